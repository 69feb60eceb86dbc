//! Atomics, or the model checker's, and the seeded mistakes.
//!
//! Under `cfg(loom)` every atomic of this crate is loom's, so that what is checked is the code that
//! runs. `mutated(Mutant::X)` is a constant `false` in every other build.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Mistakes that the models must catch; see `unsafe_loom_tests`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A connection whose turn somebody has gets a second one.
    TurnWhileHeld,
    /// A connection is released before the calls of its turn were executed. A mistake of whoever uses
    /// this crate, so only the models make it.
    #[cfg(loom)]
    ReleaseBeforeCalls,
    /// A place of a ring is handed over without ordering what stands in it.
    RelaxedHandOver,
    /// Two producers may fill one place of a ring.
    FillWithoutClaim,
    /// Two consumers may take what stands at one place.
    TakeWithoutClaim,
    /// The lock's holder gives it back without ordering what it did.
    RelaxedUnlock,
    /// A place of a ring is filled without ordering that after the read of what stood there.
    RelaxedRoom,
    /// A value is read out of a ring without ordering that after its hand-over.
    RelaxedTake,
    /// A place of a ring is given back without ordering the read of what stood there.
    RelaxedReturn,
    /// The lock is taken without ordering what comes after its last holder.
    RelaxedLock,
    /// A thief stays away from a queue that it found empty, and does not look again.
    MissingQueueRecheck,
    /// A core that found a class's first turn not yet in its place counts it as taken.
    CountsUntaken,
}

/// Whether the model at hand makes this mistake.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn mutated(_: Mutant) -> bool {
    false
}

#[cfg(loom)]
std::thread_local! {
    // A model's threads all run on the thread of its test.
    static MUTANT: core::cell::Cell<Option<Mutant>> = const { core::cell::Cell::new(None) };
}

#[cfg(loom)]
pub(crate) fn mutated(mutant: Mutant) -> bool {
    MUTANT.with(|cell| cell.get() == Some(mutant))
}

/// The ordering as it ships, or none at all where the model at hand makes this mistake.
#[inline(always)]
pub(crate) fn unless(mutant: Mutant, shipped: Ordering) -> Ordering {
    if mutated(mutant) { Ordering::Relaxed } else { shipped }
}

/// Makes the models of this test make a mistake.
#[cfg(loom)]
pub(crate) fn mutate(mutant: Option<Mutant>) {
    MUTANT.with(|cell| cell.set(mutant));
}
