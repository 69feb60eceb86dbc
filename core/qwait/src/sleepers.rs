//! Sleeping on Linux: a futex.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex::{self, Timespec};

use crate::idle::Sleeper;

/// A word with two lines to itself: the sleeper's own, which producers write only to wake it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Token(AtomicU32);

/// Sleeps on a futex. The default with `std`: waking costs one system call, only when somebody
/// sleeps.
#[derive(Debug, Default)]
pub struct FutexSleeper {
    token: Token,
}

impl Sleeper for FutexSleeper {
    fn token(&self) -> u32 {
        self.token.0.load(Ordering::Acquire)
    }

    fn sleep(&self, token: u32, timeout: Option<Duration>) {
        // What a timespec cannot hold is longer than any machine runs: no timeout.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // Early returns (a signal, a changed word) are allowed; so is one where the kernel refuses,
        // which makes the consumer spin.
        let _ = futex::wait(&self.token.0, futex::Flags::PRIVATE, token, timeout.as_ref());
    }

    fn wake(&self) {
        self.token.0.fetch_add(1, Ordering::Release);
        // It cannot fail for a word of this process; if it did, the sleeper's timeout is left.
        let _ = futex::wake(&self.token.0, futex::Flags::PRIVATE, 1);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    #[cfg_attr(
        miri,
        ignore = "rustix hands the futex system call a pointer of a type that Miri refuses"
    )]
    fn a_futex_sleeps_and_wakes() {
        let sleeper = &FutexSleeper::default();
        let before = sleeper.token();
        let start = Instant::now();
        sleeper.sleep(before, Some(Duration::from_millis(5)));
        assert!(start.elapsed() >= Duration::from_millis(4), "nobody woke it");
        sleeper.wake();
        assert_ne!(sleeper.token(), before);
        let start = Instant::now();
        sleeper.sleep(before, Some(Duration::from_secs(20)));
        assert!(start.elapsed() < Duration::from_secs(10), "it was woken before");
        let now = sleeper.token();
        std::thread::scope(|scope| {
            scope.spawn(|| sleeper.wake());
            let start = Instant::now();
            while sleeper.token() == now {
                sleeper.sleep(now, Some(Duration::from_secs(20)));
            }
            assert!(start.elapsed() < Duration::from_secs(10), "woken across threads");
        });
    }
}
