//! How either side waits for the other: a word of the other's array changes.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use rustix::thread::futex;

/// Where the application's thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Placement {
    /// On a core of its own (or another hyperthread): both look at each other's words for a while before they
    /// sleep. A crossing takes a few cache lines' way there and back.
    #[default]
    Split,
    /// On the dataplane's core, below its priority: whoever waits sleeps at once, and the dataplane's thread, when
    /// it is woken, runs before the application's.
    SameCore,
}

impl Placement {
    pub(crate) fn word(self) -> u64 {
        match self {
            Self::Split => 0,
            Self::SameCore => 1,
        }
    }

    pub(crate) fn of_word(word: u64) -> Option<Self> {
        [Self::Split, Self::SameCore].into_iter().find(|placement| placement.word() == word)
    }
}

/// How long to look before sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// See [`Placement`].
    pub placement: Placement,
    /// For how many looks the application's thread spins before it sleeps, where it has a core of its own. One
    /// takes some 10 ns.
    pub looks: u32,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { placement: Placement::Split, looks: 20_000 }
    }
}

/// Looks `looks` times, and `quick` times before if at all, whether the word is `wanted`. Quick looks follow each other
/// at once: a pause between two costs a good part of the time that an answer takes which comes soon.
#[inline]
pub(crate) fn look(
    word: &AtomicU32,
    (quick, looks): (u32, u32),
    wanted: impl Fn(u32) -> bool,
) -> bool {
    let quick = if looks > 0 { quick } else { 0 };
    for turn in 0..looks.saturating_add(quick) {
        if wanted(word.load(Ordering::Acquire)) {
            return true;
        }
        if turn >= quick {
            std::hint::spin_loop();
        }
    }
    wanted(word.load(Ordering::Acquire))
}

/// Sleeps until the word changes from `old`, or somebody wakes for no reason, or `most` has passed. `asleep` is in
/// this side's own array: whoever changes the word looks there, in [`wake`].
pub(crate) fn sleep(word: &AtomicU32, old: u32, asleep: &AtomicU32, most: Duration) {
    asleep.store(1, Ordering::Relaxed);
    // The flag is seen before the word is looked at; pairs with the fence in `wake`.
    fence(Ordering::SeqCst);
    if word.load(Ordering::Acquire) == old {
        let most =
            futex::Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
        // However it ends, the caller looks again.
        let _ = futex::wait(word, futex::Flags::empty(), old, Some(&most));
    }
    asleep.store(0, Ordering::Relaxed);
}

/// Called after the word has changed: wakes the other side if it says that it sleeps. Answers what it says.
#[inline]
pub(crate) fn wake(word: &AtomicU32, asleep: &AtomicU32) -> u32 {
    fence(Ordering::SeqCst);
    let how = asleep.load(Ordering::Relaxed);
    if how == 1 {
        // There is nobody where it lied, or was quicker.
        let _ = futex::wake(word, futex::Flags::empty(), 1);
    }
    how
}
