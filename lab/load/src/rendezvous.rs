//! Where the threads of a run meet before the load starts.
//!
//! A barrier would do if no thread could fail before it; here one that fails frees the others. A
//! thread that may not wait (a service on an elastic thread) arrives, and looks now and then.
//!
//! A *held* meeting does not start by itself: somebody outside sees that all are there
//! ([`Rendezvous::all_there`]) and says when it starts ([`Rendezvous::open_at`]), as where several
//! machines start together.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How long before the start the threads are told of it: more than they take to wake up.
const LEAD_NS: u64 = 1_000_000;
/// How often a thread that arrived looks for the others.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// The meeting point of a fixed number of threads. The atomics are off the hot path: they are
/// looked at before the start only.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    missing: AtomicU32,
    failed: AtomicBool,
    /// The last one to arrive does not say when the start is.
    held: bool,
    /// The moment of the start; zero while somebody is missing.
    start_ns: AtomicU64,
}

impl Rendezvous {
    /// For `threads` threads.
    pub fn new(threads: u32) -> Self {
        Self {
            missing: AtomicU32::new(threads),
            failed: AtomicBool::new(false),
            held: false,
            start_ns: AtomicU64::new(0),
        }
    }

    /// For `threads` threads, which wait for [`Self::open_at`] when all are there.
    pub fn held(threads: u32) -> Self {
        Self { held: true, ..Self::new(threads) }
    }

    /// Whether every thread has arrived.
    pub fn all_there(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }

    /// Lets those who wait start at `start_ns`, which may have passed.
    pub fn open_at(&self, start_ns: u64) {
        // Zero means that the start is not known yet.
        self.start_ns.store(start_ns.max(1), Ordering::Release);
    }

    /// Tells the others that the start will not come.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Whether a thread has failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Says that this thread is there, at `now_ns`. Called once by each thread.
    pub fn arrive(&self, now_ns: u64) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 && !self.held {
            self.start_ns.store(now_ns.saturating_add(LEAD_NS), Ordering::Release);
        }
    }

    /// The common moment of the start; `None` while somebody is missing.
    pub fn start_ns(&self) -> Option<u64> {
        let start_ns = self.start_ns.load(Ordering::Acquire);
        (start_ns != 0).then_some(start_ns)
    }

    /// Arrives and waits for the others: the moment of the start, or `None` when one has failed.
    pub fn meet(&self, now_ns: u64) -> Option<u64> {
        self.arrive(now_ns);
        loop {
            let start_ns = self.start_ns();
            if start_ns.is_some() || self.has_failed() {
                return start_ns;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_get_the_last_ones_moment() {
        let meeting = Rendezvous::new(2);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| meeting.meet(5));
            while meeting.missing.load(Ordering::Acquire) == 2 {
                std::thread::yield_now();
            }
            assert_eq!(meeting.meet(70), Some(70 + LEAD_NS));
            assert_eq!(first.join().expect("meets"), Some(70 + LEAD_NS));
        });
    }

    #[test]
    fn a_held_meeting_waits_to_be_opened() {
        let meeting = Rendezvous::held(1);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| meeting.meet(5));
            while !meeting.all_there() {
                std::thread::yield_now();
            }
            assert_eq!(meeting.start_ns(), None);
            meeting.open_at(90);
            assert_eq!(first.join().expect("meets"), Some(90));
        });
    }

    #[test]
    fn a_failure_frees_those_who_wait() {
        let meeting = Rendezvous::new(2);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| meeting.meet(5));
            meeting.fail();
            assert_eq!(first.join().expect("is freed"), None);
        });
    }
}
