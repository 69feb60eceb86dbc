//! Seeded mistakes: each removes one fence, one ordering or one step, and a model must find it.
//!
//! `mutated(Mutant::X)` is a constant `false` in every build but loom's, so that the code that ships is the code
//! that is checked.

/// A mistake that the models must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The sleeper looks without a fence after its announcement (A2).
    NoFenceBeforeLook,
    /// The waker reads the sleepers' word without a fence after its publication (B2).
    NoFenceBeforeNotify,
    /// The sleeper looks first and announces itself then.
    LookBeforeAnnouncement,
    /// The sleeper forgets its first source.
    ForgottenSource,
    /// A waker claims a sleeper without releasing what it published.
    RelaxedClaim,
    /// A sleeper withdraws without acquiring what the claiming waker published.
    RelaxedWithdrawal,
    /// The exchange of a look is a plain load.
    LookByLoad,
    /// The exchange of a look does not release the announcement.
    LookWithoutRelease,
    /// The exchange of a look does not acquire what the publication released.
    LookWithoutAcquire,
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

/// Makes the models of the calling test make a mistake: for the crates that build on this one, too.
#[cfg(loom)]
pub fn mutate(mutant: Option<Mutant>) {
    MUTANT.with(|cell| cell.set(mutant));
}
