//! A home layer may move from core to core, as a whole.
//!
//! `unsafe` because the compiler cannot see it: frames with the NIC and segments that wait for their
//! acknowledgment share chunks, whose states need no atomics as long as one core at a time has both, so
//! neither type is `Send` by itself. A home layer holds both: the driver's and the stack's claims on a chunk
//! are inside it and nowhere else, so whoever has the layer has them all. Flow groups that leave it or come
//! to it (`stack::PackedGroup`) have claims on chunks of which no driver has any.
#![allow(unsafe_code)]

use nic::Nic;

use crate::home_layer::HomeLayer;

// SAFETY: see above. Turns, which leave a layer, hold mbufs only, which are the one claim on their chunk.
unsafe impl<N: Nic + Send> Send for HomeLayer<N> {}
