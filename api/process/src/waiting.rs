//! How either side waits for the other: a word of the other's array changes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use handshake::{ByFence, One, Sleepers};
use rustix::thread::futex;

use crate::place::Placement;

/// How the application's thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Where it runs at first: see [`Placement`].
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

/// Bit of a side that sleeps on the futex of the other's word. [`AT_THE_BELL`](crate::layout::AT_THE_BELL) is another.
const AT_THE_FUTEX: u64 = 1;

/// One side of a crossing as a sleeper: it has one thread, and a bit for each way to sleep.
#[inline]
pub(crate) fn side(asleep: &AtomicU32) -> Sleepers<&AtomicU32, One, ByFence> {
    Sleepers::over(asleep)
}

/// Sleeps until the word changes from `old`, or somebody wakes for no reason, or `most` has passed. `asleep` is in
/// this side's own array: whoever changes the word looks there, in [`wake`].
pub(crate) fn sleep(word: &AtomicU32, old: u32, asleep: &AtomicU32, most: Duration) {
    let side = side(asleep);
    if side.arm(AT_THE_FUTEX, |One| word.load(Ordering::Acquire) != old).is_quiet() {
        let most =
            futex::Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
        // However it ends, the caller looks again.
        let _ = futex::wait(word, futex::Flags::empty(), old, Some(&most));
        side.disarm(AT_THE_FUTEX);
    }
}

/// Called after the word has changed: wakes the other side where it sleeps on that word. Answers how it sleeps, if it
/// does: [`AT_THE_FUTEX`], [`AT_THE_BELL`](crate::layout::AT_THE_BELL).
///
/// The waker does not claim the sleeper: the bits are in the other side's own array, which only that side writes.
#[inline]
pub(crate) fn wake(word: &AtomicU32, asleep: &AtomicU32) -> u64 {
    let how = side(asleep).notify(One);
    if how == AT_THE_FUTEX {
        // The kernel finds no sleeper where that side lied, or woke up by itself.
        let _ = futex::wake(word, futex::Flags::empty(), 1);
    }
    how
}
