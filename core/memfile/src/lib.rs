//! Memory that processes which do not trust each other share.
//!
//! ```
//! use std::sync::atomic::Ordering;
//! use memfile::Memory;
//! let near = Memory::create("example", 4096)?; // sealed at its size
//! let far = Memory::join(near.descriptor()?, 4096)?; // in the other process
//! near.word64(8).expect("inside").store(7, Ordering::Release);
//! let mut bytes = [0; 8];
//! assert!(far.copy_out(8, &mut bytes) && u64::from_le_bytes(bytes) == 7);
//! // Memory that only its maker can write to.
//! let told = Memory::create_for_readers("example", 4096)?;
//! assert!(Memory::join(told.descriptor()?, 4096).is_err());
//! assert!(Memory::join_read_only(told.descriptor()?, 4096).is_ok());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Each word is read and written as an atomic, bytes are copied, each read once: what the other side does meanwhile
//! may make them anything, and never makes us fault or misbehave. [`copy_from_shared`] and [`copy_to_shared`] do so for
//! those who map such memory themselves. [`passing`] hands its descriptors over.

pub mod passing;
mod unsafe_copy;
mod unsafe_memory;
mod unsafe_socket;

pub use unsafe_copy::{copy_from_shared, copy_to_shared};
pub use unsafe_memory::{Doorbell, Memory, Transfer};
pub use unsafe_socket::{peer_pidfd, refuse_descriptors};
