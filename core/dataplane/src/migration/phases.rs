//! How long the phases of migrations take (IX Table V).

use clock::{Duration, Instant};

/// The phases of a migration (IX §5.3, Table V).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The command is taken; the home words and, by whoever can, the device's table are changed.
    Prepare,
    /// For packets that are on their way to the old home, and the first one at the new home.
    Wait,
    /// For connections that the application has in hand; then the groups change hands.
    Rpc,
    /// Packets that came to the new home before the groups did.
    Deferred,
}

impl Phase {
    /// In their order.
    pub const ALL: [Self; 4] = [Self::Prepare, Self::Wait, Self::Rpc, Self::Deferred];

    /// As the table has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Wait => "wait",
            Self::Rpc => "rpc",
            Self::Deferred => "deferred",
        }
    }
}

/// How long each phase of one migration took, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseTimes {
    ns: [u64; 4],
}

impl PhaseTimes {
    /// From the moments at which the command was taken, and each phase ended.
    pub(crate) fn between(moments: [Instant; 5]) -> Self {
        let span = |at: usize| moments[at + 1].since(moments[at]).as_nanos() as u64;
        Self { ns: core::array::from_fn(span) }
    }

    /// One phase, in nanoseconds.
    pub fn of_ns(&self, phase: Phase) -> u64 {
        self.ns[phase as usize]
    }

    /// All of them together, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.ns.iter().sum()
    }
}

/// Buckets of a histogram: the n-th counts what took less than `2^(n+1)` microseconds, and not less than half of
/// that; the last also all that took longer.
pub const HISTOGRAM_BUCKETS: usize = 16;

/// What one phase took, over all migrations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseStats {
    /// Migrations.
    pub count: u64,
    /// Their sum, in nanoseconds.
    pub sum_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
    /// How many took about how long: see [`HISTOGRAM_BUCKETS`].
    pub histogram: [u64; HISTOGRAM_BUCKETS],
}

impl PhaseStats {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
        let bucket = (ns / 1_000).max(1).ilog2() as usize;
        self.histogram[bucket.min(HISTOGRAM_BUCKETS - 1)] += 1;
    }

    /// The mean.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum_ns / self.count.max(1))
    }
}

impl core::ops::AddAssign for PhaseStats {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        let pairs = self.histogram.iter_mut().zip(other.histogram);
        pairs.for_each(|(one, another)| *one += another);
    }
}

/// What an elastic thread has done for migrations. Counted at the old home, but for what is said of the new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MigrationStats {
    /// Commands that were taken up.
    pub begun: u64,
    /// Those of them that are complete.
    pub completed: u64,
    /// Those of them that were given up.
    pub given_up: u64,
    /// Commands that were refused.
    pub refused: u64,
    /// Flow groups that moved.
    pub groups: u64,
    /// Connections that moved with them.
    pub connections: u64,
    /// Packets whose processing was deferred.
    pub packets: u64,
    /// Packets dropped at this new home, for want of room or memory to park them.
    pub parked_drops: u64,
    /// Migrations for which the device's table was changed, those of them whose wait a probe ended, and those for
    /// which the device refused.
    pub redirected: u64,
    /// See [`redirected`](Self::redirected).
    pub probed: u64,
    /// See [`redirected`](Self::redirected).
    pub not_redirected: u64,
    /// Migrations that went on without some core's answer to the fence.
    pub unfenced: u64,
    /// Calls on connections that are at home elsewhere, sent there from here.
    pub calls_forwarded: u64,
    /// Calls that were refused, as too many wait already.
    pub calls_refused: u64,
    /// By [`Phase`].
    pub phases: [PhaseStats; 4],
    /// All phases together.
    pub total: PhaseStats,
}

impl MigrationStats {
    /// A migration is complete.
    pub(crate) fn complete(&mut self, moved: &super::Moved) {
        self.completed += 1;
        self.groups += u64::from(moved.groups);
        self.connections += u64::from(moved.connections);
        self.packets += u64::from(moved.packets);
        for phase in Phase::ALL {
            self.phases[phase as usize].add(moved.times.of_ns(phase));
        }
        self.total.add(moved.times.total_ns());
    }
}

impl core::ops::AddAssign for MigrationStats {
    fn add_assign(&mut self, other: Self) {
        self.begun += other.begun;
        self.completed += other.completed;
        self.given_up += other.given_up;
        self.refused += other.refused;
        self.groups += other.groups;
        self.connections += other.connections;
        self.packets += other.packets;
        self.parked_drops += other.parked_drops;
        self.redirected += other.redirected;
        self.probed += other.probed;
        self.not_redirected += other.not_redirected;
        self.unfenced += other.unfenced;
        self.calls_forwarded += other.calls_forwarded;
        self.calls_refused += other.calls_refused;
        self.phases.iter_mut().zip(other.phases).for_each(|(one, another)| *one += another);
        self.total += other.total;
    }
}
