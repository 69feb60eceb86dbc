//! The API a service is written against, and the threads that run it (IX §4.3, Table II).
//!
//! A service implements [`Service`]: it consumes [`Events`] and issues [`Calls`], a batch at a
//! time, on one elastic thread.

pub use clock::{Clock, Duration, Instant, MonotonicClock};
pub use domain::{
    CallError, CallKind, Calls, ConnectError, Cookie, DeadReason, Event, Events, Full, Handle,
    Service,
};
pub use wire::{Endpoint, Ipv4Addr, MacAddr};
