//! Atomics, or the model checker's, and the seeded mistakes.
//!
//! Under `cfg(loom)` every atomic of this crate is loom's, so that what is checked is the code that
//! runs. `mutated(Mutant::X)` is a constant `false` in every other build.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

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
    /// Two consumers may take what stands at one place.
    TakeWithoutClaim,
    /// The lock's holder gives it back without ordering what it did.
    RelaxedUnlock,
    /// No fence between "I left work" and "does somebody wait", nor on the other side.
    MissingIdleFence,
    /// A thief clears the bit of a lane that it found empty, and does not look again.
    MissingLaneRecheck,
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

/// Makes the models of this test make a mistake.
#[cfg(loom)]
pub(crate) fn mutate(mutant: Option<Mutant>) {
    MUTANT.with(|cell| cell.set(mutant));
}

/// The fence between writing one word and reading another, where the other side does the reverse.
#[inline(always)]
pub(crate) fn idle_fence() {
    if !mutated(Mutant::MissingIdleFence) {
        fence(Ordering::SeqCst);
    }
}
