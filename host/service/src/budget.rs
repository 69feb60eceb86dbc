//! A bound on a rate, with a burst: a token bucket.

use std::time::{Duration, Instant};

/// See the module's comment.
#[derive(Debug)]
pub(crate) struct Budget {
    /// What comes in within a second.
    per_s: usize,
    /// What is left at most.
    burst: usize,
    /// Below zero: what was spent beyond it, which has to come in first.
    left: isize,
    at: Instant,
}

impl Budget {
    /// A full one.
    pub fn new(per_s: usize, burst: usize, now: Instant) -> Self {
        Self { per_s, burst, left: burst as isize, at: now }
    }

    /// What may be spent now.
    pub fn refill(&mut self, now: Instant) -> usize {
        let passed = now.saturating_duration_since(self.at).min(Duration::from_secs(1));
        let more = (passed.as_micros() as usize * self.per_s) / 1_000_000;
        if more > 0 {
            let left = self.left.saturating_add_unsigned(more);
            (self.left, self.at) = (left.min(self.burst as isize), now);
        }
        self.left.max(0) as usize
    }

    /// So much was spent.
    pub fn spend(&mut self, count: usize) {
        self.left = self.left.saturating_sub_unsigned(count);
    }

    /// Spends one, where there is one left.
    pub fn take(&mut self, now: Instant) -> bool {
        let has_one = self.refill(now) > 0;
        self.spend(usize::from(has_one));
        has_one
    }
}
