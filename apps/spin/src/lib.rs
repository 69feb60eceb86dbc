//! The synthetic service of ZygOS §3: each request carries its own service time.
//!
//! The service spins for that time and returns the request. With the times drawn by the client, one
//! service serves every distribution, and what is measured can be laid beside a queueing model.
//!
//! ```
//! use tailplane::{MonotonicClock, Server};
//! use spin::{Frame, Spin};
//! let service = Server::new(Spin::new(MonotonicClock::new()));
//! assert_eq!(service.connections(), 0);
//! let request = Frame { service_ns: 10_000, sequence: 7 };
//! assert_eq!(Frame::from_bytes(&request.to_bytes()), request);
//! ```
//!
//! A service that runs in a simulation cannot make virtual time pass, and spinning would never
//! end: [`DelayedSpin`] answers when the time would have been spent instead, one request after
//! the other, as one core serves them.

mod busy;
mod delay;
mod frame;
mod pending;

pub use busy::{Connection, Spin};
pub use delay::DelayedSpin;
pub use frame::{Assembler, FRAME_BYTES, Frame, SERVICE_NS_MAX};
pub use pending::Pending;
