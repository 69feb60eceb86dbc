//! What the dataplane's side counts of its application, for others to look at.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use clock::Instant;

/// An application that takes longer for one batch is reported (IX §4.1).
const UNRESPONSIVE: Duration = Duration::from_millis(10);

/// What an elastic thread has seen of its application, for others to look at.
#[derive(Debug, Default)]
pub struct NearStats {
    pub(crate) crossings: AtomicU64,
    pub(crate) violations: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) unresponsive: AtomicU64,
    /// The batch for which the dataplane's thread sleeps for long; 0: it does not.
    pub(crate) slept_for: AtomicU32,
    pub(crate) is_unresponsive: AtomicBool,
    /// The batch that the application has, where this side does not wait for it; 0: none.
    pub(crate) outstanding: AtomicU32,
    pub(crate) held_back: AtomicU64,
}

impl NearStats {
    /// Batches handed over.
    pub fn crossings(&self) -> u64 {
        self.crossings.load(Ordering::Relaxed)
    }

    /// Calls that made no sense: words that are no call, pieces outside the arena or its bounds.
    pub fn violations(&self) -> u64 {
        self.violations.load(Ordering::Relaxed)
    }

    /// Calls beyond what the dataplane had said that it has room for; a connection whose bytes they were is reset.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Batches that took longer than 10 ms.
    pub fn unresponsive(&self) -> u64 {
        self.unresponsive.load(Ordering::Relaxed)
    }

    /// Batches that came later than they could have, since the application had used up its rates.
    pub fn held_back(&self) -> u64 {
        self.held_back.load(Ordering::Relaxed)
    }

    /// Whether the application has had its present batch for longer than 10 ms: it blocks, or is stopped, or works
    /// on.
    pub fn is_unresponsive(&self) -> bool {
        self.is_unresponsive.load(Ordering::Relaxed)
    }

    /// The application has had its present batch since `since`.
    pub(crate) fn note_wait(&self, since: Instant, now: Instant) {
        if !self.is_unresponsive() && now.since(since) >= UNRESPONSIVE {
            Self::add(&self.unresponsive);
            self.is_unresponsive.store(true, Ordering::Relaxed);
        }
    }

    /// The application has no batch any more.
    pub(crate) fn note_answer(&self) {
        if self.is_unresponsive() {
            self.is_unresponsive.store(false, Ordering::Relaxed);
        }
    }

    pub(crate) fn add(counter: &AtomicU64) {
        // Only the elastic thread writes.
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}
