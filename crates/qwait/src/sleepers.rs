//! Sleeping on Linux: a futex, or an eventfd that can stand in any poll loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::thread::futex;

use crate::idle::Sleeper;

/// A word with two lines to itself: the sleeper's own, which producers write only to wake it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Token(AtomicU32);

fn timespec(timeout: Option<Duration>) -> Option<Timespec> {
    // What a timespec cannot hold is longer than any machine runs: no timeout.
    timeout.and_then(|timeout| Timespec::try_from(timeout).ok())
}

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
        // Early returns (a signal, a changed word) are allowed; so is one where the kernel refuses,
        // which makes the consumer spin.
        let timeout = timespec(timeout);
        let _ = futex::wait(&self.token.0, futex::Flags::PRIVATE, token, timeout.as_ref());
    }

    fn wake(&self) {
        self.token.0.fetch_add(1, Ordering::Release);
        // It cannot fail for a word of this process; if it did, the sleeper's timeout is left.
        let _ = futex::wake(&self.token.0, futex::Flags::PRIVATE, 1);
    }
}

/// Sleeps on an eventfd, alone or in somebody else's `poll` or `epoll` loop.
///
/// ```
/// use std::os::fd::AsFd;
/// use std::sync::Arc;
/// use qwait::{Config, DoorbellRef, EventSleeper, ExclusiveSet, QueueId};
/// use rustix::event::{PollFd, PollFlags, poll};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let event = Arc::new(EventSleeper::new()?);
/// let mut set = ExclusiveSet::with_sleeper(Config::default(), event.clone())?;
/// let producer = set.add(QueueId::new(0), DoorbellRef::new())?;
/// let other = std::thread::spawn(move || producer.ring());
/// let queue = loop {
///     if let Some(queue) = set.try_qwait().filter(|&queue| set.verify(queue) > 0) {
///         break queue;
///     }
///     if set.arm() {
///         // Beside any other descriptors of the program's.
///         poll(&mut [PollFd::new(&event.as_fd(), PollFlags::IN)], None)?;
///         set.disarm();
///         event.clear();
///     }
/// };
/// assert_eq!(queue, QueueId::new(0));
/// # other.join().unwrap();
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct EventSleeper {
    token: Token,
    event: OwnedFd,
}

impl EventSleeper {
    /// Makes the eventfd.
    ///
    /// # Errors
    /// What the operating system says, usually that no more descriptors can be had.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { token: Token::default(), event })
    }

    /// Makes the descriptor unreadable again, after it was polled. Look for work after this, or arm.
    pub fn clear(&self) {
        // Empty is what is wanted.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

impl AsFd for EventSleeper {
    /// Readable when the consumer was woken.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Sleeper for EventSleeper {
    fn token(&self) -> u32 {
        self.token.0.load(Ordering::Acquire)
    }

    fn sleep(&self, token: u32, timeout: Option<Duration>) {
        if self.token() == token {
            let timeout = timespec(timeout);
            let _ = poll(&mut [PollFd::new(&self.event, PollFlags::IN)], timeout.as_ref());
        }
        self.clear();
    }

    fn wake(&self) {
        self.token.0.fetch_add(1, Ordering::Release);
        // Full means readable, which is what is wanted.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Instant;

    fn sleeps_and_wakes(sleeper: &dyn Sleeper) {
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

    #[test]
    fn a_futex_sleeps_and_wakes() {
        sleeps_and_wakes(&FutexSleeper::default());
    }

    #[test]
    #[cfg_attr(miri, ignore = "polls an eventfd with a timespec, which Miri has not")]
    fn an_eventfd_sleeps_and_wakes() {
        let event = EventSleeper::new().expect("an eventfd");
        sleeps_and_wakes(&event);
        event.wake();
        let readable = |event: &EventSleeper| {
            let mut fds = [PollFd::new(event, PollFlags::IN)];
            poll(&mut fds, timespec(Some(Duration::ZERO)).as_ref()).expect("polls") == 1
        };
        assert!(readable(&event));
        event.clear();
        assert!(!readable(&event));
    }
}
