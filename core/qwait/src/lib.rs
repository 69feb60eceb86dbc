//! HyperPlane's notification as a software library: which of many queues has work, without
//! looking at each of them, and sleep when none has.
//!
//! ```
//! use qwait::{Config, DoorbellRef, ExclusiveSet, QueueId};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // QWAIT_init: room for 1,000 queues. QWAIT_ADD: one of them, with its doorbell.
//! let mut set = ExclusiveSet::new(Config { capacity: 1_000, ..Config::default() })?;
//! let producer = set.add(QueueId::new(7), DoorbellRef::new())?;
//! let (sender, receiver) = std::sync::mpsc::channel(); // Any queue will do.
//!
//! std::thread::spawn(move || {
//!     for item in 0..3 {
//!         sender.send(item).expect("the receiver waits");
//!         producer.ring(); // After the item is in the queue.
//!     }
//! });
//!
//! let mut items = Vec::new();
//! while items.len() < 3 {
//!     let queue = set.qwait(); // Algorithm 1, line 11: sleeps while nothing is ready.
//!     if set.verify(queue) == 0 {
//!         continue; // Spurious. The queue is armed.
//!     }
//!     items.push(receiver.recv()?); // Dequeue ...
//!     set.reconsider(queue, 1); // ... then arm the queue, or leave it ready if more is there.
//! }
//! assert_eq!(items, [0, 1, 2]);
//! # Ok(()) }
//! ```
//!
//! # Which form
//!
//! | You have | Take |
//! | --- | --- |
//! | one core that serves its own queues | [`ExclusiveSet`]: cheapest |
//! | several cores that serve the same queues | [`SharedSet`] with a [`SharedConsumer`] each: a queue has one owner at a time |
//! | queues of processes that you do not trust | `TenantSet` |
//! | the same, served by several cores | `SharedTenantSet` with a `SharedTenantConsumer` each |
//! | a simulation or a proof | [`model`], the bit vectors that all of the above are tested against |
//!
//! All speak the paper's language: `add`, `remove`, `qwait`, `try_qwait`, `verify`, `reconsider`,
//! `enable`, `disable` (HyperPlane §III-A). Policies and the bound on unfairness:
//! [`ServicePolicy`]. Sleeping together with other sources: `arm` and `disarm`. Without the
//! feature `std` everything is there but the sleepers that need an operating system ([`Sleeper`]
//! takes yours), shared memory and tenants.
//!
//! # The protocol
//!
//! A queue has a *doorbell*, a counter on lines of its own; a set has a *ready bit* for each
//! queue, 1,024 of them in two cache lines (above that, a summary on top). HyperPlane watches
//! doorbells in hardware; here the producer sets the bit, on the edge from empty to non-empty
//! only:
//!
//! ```text
//! ring             A1  old = doorbell += 1
//!                  A2  if old == 0: ready |= bit; wake somebody if somebody sleeps
//!
//! try_qwait            the first bit of ready & !mask at or after the cursor
//! verify               the doorbell; zero is a spurious wake-up
//! reconsider(k)    B1  left = doorbell -= k            exclusive: for several visits at once
//!   exclusive      B2  if left == 0: ready &= !bit
//!                  B3                if doorbell > 0: ready |= bit
//!   shared             if left > 0: ready |= bit; wake somebody (the claim had cleared the bit)
//! ```
//!
//! "Armed" needs no bit of its own: a queue is armed when its doorbell says zero. The doorbell's
//! read-modify-write is what makes test-and-arm atomic, as the paper demands of `VERIFY` and
//! `RECONSIDER`.
//!
//! An exclusive set does B1 once for several visits: it knows how many items a doorbell told of, and
//! counts it down when half of them are done, at the latest when none is left. To everybody else that is a
//! batch. B2 follows a B1 as ever, so that nothing below depends on it.
//!
//! An exclusive set of up to [`DIRECT_MAX`] queues has no ready bits: A2 is only the look for sleepers,
//! `try_qwait` looks at the doorbells from the cursor on, and B2 and B3 fall away.
//!
//! # Why nothing is lost
//!
//! *Exclusive.* A wake-up is lost if B3 reads zero though A1 happened, and the bit ends clear. A2
//! and B2 are read-modify-writes of one word, so one comes first. If B2 does, A2 sets the bit
//! afterwards. If A2 does, B2 reads what A2 wrote or what later read-modify-writes made of it,
//! which is the same release sequence: A1 happened before B3, so B3 sees the count and sets the
//! bit again. Other queues of the word only lengthen the sequence. So acquire-release on both
//! suffices; and so a producer must not save A2 because it saw the bit set, nor a consumer clear
//! by a plain store, nor leave B3 out.
//!
//! *Shared.* Claiming a bit only makes a consumer look. Owner is who sets the highest bit of the
//! doorbell by a read-modify-write, so there is one at most, whatever stray bits a late producer
//! sets. Who is refused goes away: the owner's release comes later in the doorbell's order and
//! sees every count. Items pass from the owner before to the next through the doorbell's release
//! sequence.
//!
//! *Two levels.* A bit's leaf is set before its summary bit; a summary bit is cleared, then the
//! leaf read again: the same argument with the leaf for the doorbell. A producer always sets
//! both, so that it never depends on another that was interrupted halfway.
//!
//! *Sleep.* The consumer announces itself, then looks at the bits; the producer sets a bit, then
//! looks for announcements ([`handshake`], paired by exchange): the consumer looks by read-modify-writes, so that
//! a producer that sets a bit later acquires the announcement, and pays no fence for it. A
//! token read before the announcement closes the window between the look and the sleep. Each edge
//! wakes one sleeper; one that was woken by a set and finds work elsewhere passes the wake-up on.
//!
//! *Without ready bits* the doorbell stands in for the ready word: the ring's read-modify-write is the
//! producer's write of the handshake, and the consumer's look is at all doorbells.
//!
//! *Masks.* Enabling clears the mask bit, then looks for sleepers: the same handshake.
//!
//! This is checked, on this code, by loom with seeded mistakes that it must catch, each by the assertion that it breaks
//! (`loom_tests`); over all states of the specification `spec/qwait/ReadySet.tla`
//! (`tests/spec.rs`); against [`model`] by random histories; and by threads with numbered items
//! (`tests/stress.rs`).
//!
//! # What it costs
//!
//! `cargo run --release -p qwait --example costs` prints it for the machine at hand. A
//! ring on a queue that has work is one read-modify-write. An edge is one more (two above 1,024
//! queues) and one load. A look that finds nothing reads two lines. Nothing allocates or calls
//! the operating system but adding, removing, sleeping, and waking one who sleeps. Whoever polls
//! doorbells without a set uses [`Doorbell::ring_polled`] and [`Doorbell::take_polled`].
//!
//! # Where it differs from the hardware
//!
//! - Cursors are per consumer in the shared form; the hardware has one. An exact one would be a
//!   line that all write.
//! - A doorbell is decremented when its items are out of the queue, not before: two consumers
//!   could else dequeue at once.
//! - A producer writes the ready bit itself, so whoever shares a set must be trusted; hence
//!   tenants have another form.
//! - `verify` and `reconsider` tell how many items there are, so that batches need no second
//!   look.
#![cfg_attr(not(any(feature = "std", loom, test)), no_std)]

extern crate alloc;
#[cfg(all(not(feature = "std"), any(loom, test)))]
extern crate std;

mod bitmap;
mod exclusive;
mod idle;
pub mod model;
mod policy;
mod set;
mod shared;
#[cfg(all(feature = "std", not(loom)))]
mod sleepers;
mod sync;
#[cfg(all(feature = "std", not(loom)))]
mod tenant;
#[cfg(any(feature = "std", loom))]
mod tenant_claims;
#[cfg(all(feature = "std", not(loom)))]
mod tenant_error;
#[cfg(all(feature = "std", not(loom)))]
mod tenant_place;
#[cfg(all(feature = "std", not(loom)))]
mod tenant_rounds;
#[cfg(all(feature = "std", not(loom)))]
mod tenant_shared;
#[cfg(any(feature = "std", loom))]
mod tenant_words;
mod unsafe_doorbell;
#[cfg(all(feature = "std", not(loom)))]
mod unsafe_region;
#[cfg(any(test, all(not(feature = "std"), not(loom))))]
mod unsafe_spin_lock;
mod wait;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
mod tests;

pub use bitmap::FLAT_MAX;
pub use exclusive::ExclusiveSet;
pub use idle::{Sleeper, SpinSleeper};
pub use policy::ServicePolicy;
pub use set::{
    Config, Control, DIRECT_MAX, MAX_CONSUMERS, MAX_QUEUES, Producer, QueueId, SetError,
};
pub use shared::{SharedConsumer, SharedSet};
#[cfg(all(feature = "std", not(loom)))]
pub use sleepers::FutexSleeper;
#[cfg(all(feature = "std", not(loom)))]
pub use tenant::{Tenant, TenantSet};
#[cfg(all(feature = "std", not(loom)))]
pub use tenant_error::{
    TENANT_CLASS_LOWEST, TENANT_CLASSES, TENANT_QUEUES_MAX, TENANTS_MAX, TenantError,
};
#[cfg(all(feature = "std", not(loom)))]
pub use tenant_place::TenantPlace;
#[cfg(all(feature = "std", not(loom)))]
#[cfg(all(feature = "std", not(loom)))]
pub use tenant_shared::{SharedTenantConsumer, SharedTenantSet};
pub use unsafe_doorbell::{Doorbell, DoorbellRef, MAX_COUNT};
#[cfg(all(feature = "std", not(loom)))]
pub use unsafe_region::{Region, RegionError};

#[cfg(all(feature = "std", not(loom)))]
impl ExclusiveSet {
    /// An empty set whose consumer sleeps on a futex. All memory is allocated here.
    ///
    /// # Errors
    /// [`SetError::BadCapacity`].
    pub fn new(config: Config) -> Result<Self, SetError> {
        Self::with_sleeper(config, alloc::sync::Arc::new(FutexSleeper::default()))
    }
}

#[cfg(all(feature = "std", not(loom)))]
impl SharedSet {
    /// One more consumer, which sleeps on a futex.
    ///
    /// # Errors
    /// [`SetError::TooManyConsumers`].
    pub fn consumer(&self) -> Result<SharedConsumer, SetError> {
        self.consumer_with(alloc::sync::Arc::new(FutexSleeper::default()))
    }
}
