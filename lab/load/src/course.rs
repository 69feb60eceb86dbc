//! The phases of a run, and which of its responses are verified: the same whatever is sent.

use std::ops::Range;

use crate::config::LoadConfig;

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing is sent.
    Idle,
    /// Keys are being stored.
    Preloading,
    /// Every key is stored; nothing is sent.
    Ready,
    /// Load, not measured.
    WarmingUp,
    /// Load, measured.
    Measuring,
    /// No new requests; responses are awaited.
    Draining,
    /// Over.
    Done,
}

/// What the transport must know after a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Poll {
    /// Where the run stands.
    pub phase: Phase,
    /// When to poll again at the latest; a moment not after `now` means at once, `u64::MAX` that
    /// only a received byte makes a difference.
    pub wake_ns: u64,
}

/// See the module's comment. The window and the drain are in the far future before the load starts.
#[derive(Debug)]
pub(crate) struct Course {
    pub phase: Phase,
    /// What is measured.
    pub window: Range<u64>,
    pub drain_until_ns: u64,
    /// How long warm-up, window and drain take.
    lengths_ns: [u64; 3],
    verify_share: f64,
    verify_credit: f64,
}

impl Course {
    pub fn new(config: &LoadConfig) -> Self {
        let lengths_ms = [config.warmup_ms, config.measure_ms, config.drain_ms];
        Self {
            phase: Phase::Idle,
            window: u64::MAX..u64::MAX,
            drain_until_ns: u64::MAX,
            lengths_ns: lengths_ms.map(|ms| ms * 1_000_000),
            verify_share: config.verify_share,
            verify_credit: 0.0,
        }
    }

    /// The warm-up begins at `at_ns`.
    pub fn start(&mut self, at_ns: u64) {
        let [warmup_ns, measure_ns, drain_ns] = self.lengths_ns;
        let from_ns = at_ns.saturating_add(warmup_ns);
        self.window = from_ns..from_ns.saturating_add(measure_ns);
        self.drain_until_ns = self.window.end.saturating_add(drain_ns);
        self.phase = Phase::WarmingUp;
    }

    /// Moves on to the window, and to the drain after it; how the drain ends is the generator's to say.
    pub fn advance(&mut self, now_ns: u64) {
        if self.phase == Phase::WarmingUp && now_ns >= self.window.start {
            self.phase = Phase::Measuring;
        }
        if self.phase == Phase::Measuring && now_ns >= self.window.end {
            self.phase = Phase::Draining;
        }
    }

    /// When this phase of the load ends at the latest.
    pub fn ends_ns(&self) -> u64 {
        match self.phase {
            Phase::WarmingUp => self.window.start,
            Phase::Measuring => self.window.end,
            Phase::Draining => self.drain_until_ns,
            _ => u64::MAX,
        }
    }

    /// Whether the next response is verified.
    pub fn verifies(&mut self) -> bool {
        self.verify_credit += self.verify_share;
        let verifies = self.verify_credit >= 1.0;
        if verifies {
            self.verify_credit -= 1.0;
        }
        verifies
    }
}
