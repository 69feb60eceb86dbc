//! The API a service is written against (IX §4.3, Table II).
//!
//! Two levels:
//! - [`Service`]: the batched, zero-copy interface itself. A service consumes [`Events`] and issues
//!   [`Calls`], a batch at a time, on one elastic thread.
//! - [`Server`] with a [`Protocol`]: IX's `libix`. It keeps a state for each connection, coalesces
//!   what is written into one `sendv` a batch, and keeps what the window has no room for.
//!
//! # A complete service
//!
//! A line-reversing server in the second style. `tailplane run` runs it as a process of its own
//! ([`application::serve`]), or the crate `runtime` on elastic threads of this one.
//!
//! ```
//! use tailplane::{Flow, Instant, Opened, Output, Protocol, Server};
//!
//! /// Answers every line with its bytes in reverse order.
//! struct Reverse;
//!
//! impl Protocol for Reverse {
//!     /// The unfinished line.
//!     type Connection = Vec<u8>;
//!
//!     fn open(&mut self, _: Instant, _: Opened) -> Option<Vec<u8>> {
//!         Some(Vec::new())
//!     }
//!
//!     fn receive(
//!         &mut self,
//!         _: Instant,
//!         line: &mut Vec<u8>,
//!         data: &[u8],
//!         output: &mut Output<'_, '_>,
//!     ) -> Flow {
//!         for &byte in data {
//!             if byte != b'\n' {
//!                 line.push(byte);
//!                 continue;
//!             }
//!             line.reverse();
//!             output.put(line);
//!             output.put(b"\n");
//!             line.clear();
//!         }
//!         // A line without end must not fill the memory.
//!         if line.len() > 64 << 10 { Flow::Close } else { Flow::Continue }
//!     }
//! }
//!
//! let service = Server::new(Reverse);
//! # let _: &dyn tailplane::Service = &service;
//! ```
//!
//! And the same in the first style, for an echo, with nothing between it and the dataplane:
//!
//! ```
//! use tailplane::{Calls, Cookie, Event, Events, Instant, Service};
//!
//! struct Echo;
//!
//! impl Service for Echo {
//!     fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
//!         for event in events.iter() {
//!             let done = match event {
//!                 Event::Knock { handle, .. } => calls.accept(handle, Cookie(0)),
//!                 Event::Recv { handle, data, .. } => calls
//!                     .sendv(handle, &[data])
//!                     .and_then(|()| calls.recv_done(handle, data.len())),
//!                 Event::Eof { handle, .. } => calls.close(handle),
//!                 _ => Ok(()),
//!             };
//!             // A full batch of calls: a real service keeps what it could not do.
//!             if done.is_err() {
//!                 return;
//!             }
//!         }
//!     }
//! }
//! # let _: &dyn Service = &Echo;
//! ```

pub mod application;
mod server;
mod unsafe_inherited;

pub use clock::{Clock, DueQueue, Duration, Instant, MonotonicClock};
pub use domain::{
    CallError, CallKind, Calls, ConnectError, Cookie, DeadReason, Event, Events, Full, Handle,
    LocalEndpoint, Service,
};
pub use server::{
    CONNECTION_MEMORY_BYTES, ConnectionMemory, ConnectionMemoryStats, CoreSlots, Flow, Limits,
    OUTPUT_LIMIT_BYTES, Opened, Output, OwnSlots, Protocol, Server, ServerStats, SharedServer,
    SharedSlots,
};
pub use wire::{Address, Endpoint, Ipv4Addr, Ipv6Addr, MacAddr, Prefix};
