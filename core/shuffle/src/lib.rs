//! The shuffle layer (ZygOS §4.3 and §4.4): between the network layer, where every connection has a home
//! core, and the application, which any core can run.
//!
//! A *turn* is what one connection has for the application. The home core hands it out into its shuffle queue
//! ([`ShuffleLayer`]); the home core or, where that is busy, another core takes it, runs the application, and gives
//! it back with what the application asked for; the home core does that, and only then the connection's next
//! turn is handed out ([`Home`]).
//!
//! ```text
//!            arrive          hand_out             take / steal
//!   idle ------------> due ------------> ready -----------------> busy
//!     ^                 ^                                          |  calls are executed at home
//!     |                 |  something came meanwhile                v
//!     +-----------------+----------------------------------- finish
//! ```
//!
//! That is the work-conserving form. In the shared form the shuffle queues are not the cores' but the classes'
//! of connections, and a service policy says which class is next: [`ReadySet`].
//!
//! So the events of a connection are seen in order and by one core at a time, without a lock in the
//! application; a request's reply leaves before the next request of its connection is seen; and no core is
//! idle while a turn stands in any shuffle queue.
//!
//! # Why a turn has one holder
//!
//! A turn is a box. It is in one queue or in one core's hands, which the type system sees to; a queue gives
//! each value to one taker ([`Ring`]). A connection has one turn at most that is out, because [`Home`] makes
//! the next one only when the last has come back, and `Home` is reached by one core at a time: its home, or
//! who holds the [`TryLock`] of its network layer. Hand-overs are release and acquire on the word of the
//! queue's place, so what one core did to the application's state of a connection is seen by the next.
//!
//! # Why no turn is overlooked
//!
//! An idle core does not look at every queue but at one word, [`ShuffleLayer::steal`]. A core publishes its turn and
//! then looks whether its bit in that word is set; a thief clears a bit and then looks whether the queue is
//! empty. With a fence in between on both sides at least one sees the other. The same holds for a core that
//! declares itself idle and then looks at the queues, and one that publishes and then looks for idle ones.
//!
//! A class's queue, unlike a core's, is filled by several cores at a time, so a turn may stand there behind a
//! place that somebody has claimed and not yet filled: nobody can take it, and an idle core may find the queue
//! empty. Whoever filled the later place has announced in vain; but who fills the first one announces after
//! that, and then both can be taken.
#![no_std]
extern crate alloc;
#[cfg(any(test, loom))]
extern crate std;

mod home;
mod layer;
mod ready_set;
mod sync;
mod unsafe_ring;
mod unsafe_try_lock;

pub use home::{Home, Turn};
pub use layer::{MAX_CORES, ShuffleLayer};
pub use qwait::{ServicePolicy, SetError};
pub use ready_set::{MAX_CLASSES, ReadySet, Taker};
pub use unsafe_ring::Ring;
pub use unsafe_try_lock::{Guard, TryLock};

#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, loom))]
mod unsafe_loom_tests;
