//! Atomics, or the model checker's, and the seeded mistakes that its models must find.
//!
//! Only this crate's own tests see the checker's: another crate's models run with the ordinary ones.

#[cfg(not(all(test, loom)))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Mistakes in the [depot](crate::depot), one for each order that it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A chunk is put without showing what its holder did with it.
    RelaxedPut,
    /// A chunk is taken without seeing what its last holder did with it.
    RelaxedTake,
    /// The depth of the uppermost chunk is read without the visit that wrote it.
    RelaxedDepth,
    /// A top that has come back looks like one that never changed.
    UncountedVisit,
}

/// Whether the model at hand makes this mistake.
#[cfg(not(all(test, loom)))]
#[inline(always)]
pub(crate) const fn mutated(_: Mutant) -> bool {
    false
}

#[cfg(all(test, loom))]
std::thread_local! {
    // A model's threads all run on the thread of its test.
    static MUTANT: core::cell::Cell<Option<Mutant>> = const { core::cell::Cell::new(None) };
}

#[cfg(all(test, loom))]
pub(crate) fn mutated(mutant: Mutant) -> bool {
    MUTANT.with(|cell| cell.get() == Some(mutant))
}

/// Makes the models of this test make a mistake.
#[cfg(all(test, loom))]
pub(crate) fn mutate(mutant: Option<Mutant>) {
    MUTANT.with(|cell| cell.set(mutant));
}
