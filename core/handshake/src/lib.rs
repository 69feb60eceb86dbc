//! The handshake between threads that go to sleep and threads that leave work for them.
//!
//! ```
//! use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
//! use handshake::{ByFence, Sleepers, sources};
//!
//! sources! {
//!     /// What wakes the thread of this example.
//!     pub enum Source {
//!         /// A packet stands in the ring.
//!         Packet,
//!         /// The control plane has an order.
//!         Order,
//!     }
//! }
//! let (packet, order) = (AtomicBool::new(false), AtomicBool::new(false));
//! let sleepers = Sleepers::<AtomicU64, Source, ByFence>::default();
//! let has_work = |source| match source {
//!     Source::Packet => packet.load(Ordering::Acquire),
//!     Source::Order => order.load(Ordering::Acquire),
//! };
//! // The sleeper, bit 0: nothing to do, so it may block.
//! assert!(sleepers.arm(1, has_work).is_quiet());
//! // A waker publishes, then looks who sleeps; the one that claims the bit makes the system call.
//! order.store(true, Ordering::Release);
//! let asleep = sleepers.notify(Source::Order);
//! assert_eq!(sleepers.claim_lowest(asleep), Some(0));
//! // The sleeper is awake: a waker had picked it, and the next look finds the order.
//! assert!(sleepers.disarm(1));
//! assert!(!sleepers.arm(1, has_work).is_quiet());
//! ```
//!
//! # The protocol
//!
//! ```text
//! sleeper                              waker
//!   A1  sleepers |= bit                  B1  publish the work
//!   A2  fence                            B2  fence
//!   A3  look at every source             B3  if sleepers != 0: claim one bit, wake its owner
//!   A4  block; sleepers &= !bit
//! ```
//!
//! Without the fences both A3 and B3 may read the old values (store buffering, which x86-64 and ARM64 both
//! permit), and the sleeper sleeps over the work. With them one of the two reads what the other side wrote. This is
//! an eventcount (Reed and Kanodia 1979; `prepareWait`, `cancelWait` and `notify` in folly's `EventCount`) without
//! the count: a kernel object that remembers a wake-up (an eventfd, a socket, a futex's word) closes the window
//! between A3 and A4, and a counter would be one more line to move.
//!
//! *One word for one sleeper or for 64.* A sleeper owns a bit. [`Sleepers`] is generic over its word ([`Word`]): an
//! owned atomic, or a reference into shared memory.
//!
//! *Every source is looked at.* A waker passes [`Sleepers::notify`] the source that it published to, and
//! [`Sleepers::arm`] asks for each value of that type. A source that wakers use and the sleeper never looks at does
//! not compile: `match` in the look is exhaustive. [`sources!`] declares the type. A waker that publishes to one
//! source and names another is beyond what types find.
//!
//! *Two ways to pair* ([`Pairing`]):
//!
//! - [`ByFence`], the one above, for any kind of work. A waker pays a fence for each publication: one locked
//!   instruction or `mfence` on x86-64, some 5 to 10 ns; `dmb ish` on ARM64.
//! - [`ByExchange`], for work that a waker publishes by a read-modify-write of one word with acquire semantics, such
//!   as a doorbell or a ready bit. The sleeper looks by a read-modify-write that changes nothing
//!   ([`look`], Boehm's read-don't-modify-write), so A3 and B1 are ordered: if A3 comes first, B1 acquires A1 and B3
//!   reads the bit; else A3 reads the work. Neither side needs a fence, and a waker pays one load. The sleeper
//!   takes the line of each word it looks at, which it does only before it blocks.
//!
//! *Models.* `loom_tests` checks this code over all interleavings and reorderings that loom knows, with one seeded
//! mistake for each fence and each ordering; each must fail the assertion that states what it breaks.
#![no_std]
#[cfg(any(test, loom))]
extern crate std;

#[cfg(loom)]
pub mod models;
mod mutants;
mod sleepers;
mod sources;
mod word;

pub use sleepers::{Armed, ByExchange, ByFence, Pairing, Sleepers};
pub use sources::{One, Sources};
pub use word::{Word, look};

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
