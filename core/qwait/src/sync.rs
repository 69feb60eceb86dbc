//! Atomics, or the model checker's; a mutex for the control path; and the seeded mistakes.
//!
//! Under `cfg(loom)` every atomic of this crate is loom's, so that what is checked is the code that
//! runs. `mutated(Mutant::X)` is a constant `false` in every other build.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Mistakes that the models must catch; see `loom_tests`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "std"), allow(dead_code, reason = "some are in parts that need `std`"))]
pub(crate) enum Mutant {
    /// A producer saves the read-modify-write where a relaxed load saw the ready bit set.
    RelaxedSkip,
    /// The consumer clears the ready bit by a load and a store.
    ClearByStore,
    /// The consumer does not look at the doorbell again after it cleared the bit.
    MissingRecheck,
    /// A producer sets a ready bit without acquiring the announcement of a sleeper that looked before.
    SetWithoutAcquire,
    /// The same at the doorbell of a set without ready bits.
    RingWithoutAcquire,
    /// The same where a queue is enabled.
    EnableWithoutAcquire,
    /// A shared consumer goes by the ready bit alone, without taking the doorbell.
    MissingOwner,
    /// The summary is cleared without looking at the leaf again.
    MissingLeafRecheck,
    /// A queue of a tenant is claimed by a load and a store.
    ClaimByStore,
    /// The claimant of a tenant's queue clears the ready bit when it ends its visit, not before it
    /// looks at the doorbell.
    ClearAfterLook,
    /// The claimant of a tenant's queue gives it back without acquiring the announcement of a sleeper that
    /// looked before.
    FinishWithoutAcquire,
    /// A tenant's ready word is looked at by a load before a sleep.
    FoldByLoad,
    /// A tenant's ready word is emptied by a load and a store.
    FoldByStore,
    /// A consumer that withdraws the announcements to the tenants does not look again whether another one sleeps.
    MissingSleeperRecheck,
    /// The same consumer announces again, and does not look what tenants rang for in silence.
    MissingSilentRings,
    /// An exclusive set counts a doorbell down by a load and a store.
    SettleByStore,
    /// A set without ready bits falls asleep without a look at its doorbells.
    MissingDirectLook,
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

/// The ordering of a read-modify-write that publishes work: see [`handshake::ByExchange`]. Without the acquire half
/// where the model at hand makes this mistake.
#[inline(always)]
pub(crate) fn publishing(mutant: Mutant) -> Ordering {
    if mutated(mutant) { Ordering::Release } else { Ordering::AcqRel }
}

/// Makes the models of this test make a mistake.
#[cfg(loom)]
pub(crate) fn mutate(mutant: Option<Mutant>) {
    MUTANT.with(|cell| cell.set(mutant));
}

/// A mutex for adding, removing and waking; never taken while a queue is merely served. It is held
/// for a few instructions, and nothing is dropped under it: what a queue or a sleeper owns may be slow to free. With `std` it blocks rather than spins, so that a real-time thread does
/// not spin for ever on one that it has preempted.
#[derive(Debug)]
pub(crate) struct Lock<T>(Inner<T>);

#[cfg(loom)]
type Inner<T> = loom::sync::Mutex<T>;
#[cfg(all(feature = "std", not(loom)))]
type Inner<T> = std::sync::Mutex<T>;
#[cfg(all(not(feature = "std"), not(loom)))]
type Inner<T> = crate::unsafe_spin_lock::SpinLock<T>;

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Inner::new(value))
    }

    /// Runs `change` alone. `change` must not panic, nor take this lock again.
    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        #[cfg(any(feature = "std", loom))]
        {
            // Nothing that runs in here panics, so a poisoned value is as good as any.
            let mut guard = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            change(&mut guard)
        }
        #[cfg(all(not(feature = "std"), not(loom)))]
        self.0.with(change)
    }
}
