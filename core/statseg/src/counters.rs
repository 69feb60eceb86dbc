//! What a writer counts and a reader gets: plain data.

use crate::layout::{
    BATCH_BUCKETS, DELAY_BUCKETS, MIGRATION_COUNTS, PHASE_BUCKETS, RUNS, STACK_COUNTERS_MAX,
};

/// What an elastic thread is doing: the word of the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, strum::FromRepr, strum::IntoStaticStr)]
#[repr(u64)]
#[strum(serialize_all = "lowercase")]
pub enum State {
    /// It does not receive yet.
    #[default]
    Starting,
    /// It serves.
    Running,
    /// It serves what comes to it, and sleeps as soon as it can: its processor is for others.
    Parked,
    /// It ends its connections, or has ended.
    Leaving,
    /// A word that this version does not know.
    Unknown = u64::MAX,
}

impl State {
    /// As people read it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    pub(crate) fn of(word: u64) -> Self {
        Self::from_repr(word).unwrap_or(Self::Unknown)
    }
}

/// What a busy cycle of the elastic thread was like (IX Figure 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cycle {
    /// Q: packets that waited when step 1 looked, those included that this cycle takes.
    pub queue_packets: u64,
    /// Packets that it took, at most B.
    pub taken_packets: u64,
    /// Connections with work for the application that it left waiting: taken from the ring, and not handed to it
    /// (ZygOS §4.4).
    pub ready: u64,
    /// What those take in the application, roughly, in nanoseconds.
    pub ready_ns: u64,
    /// The iteration time, in nanoseconds.
    pub busy_ns: u64,
    /// For how long the oldest packet or event had waited, in nanoseconds.
    pub oldest_waiting_ns: u64,
    /// The estimate of the queueing delay, `ceil(Q / B) x iteration time` (IX §4.6) and what waits for the
    /// application, in nanoseconds.
    pub delay_ns: u64,
}

/// What an elastic thread counts elsewhere, and copies to its board now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Turns of other threads' connections that it ran (ZygOS §4.4).
    pub steals: u64,
    /// Kicks that it sent (ZygOS §4.5).
    pub kicks: u64,
    /// Packets that it handed on to their homes.
    pub forwarded: u64,
    /// Packets that it dropped as the ring towards their home was full.
    pub forward_drops: u64,
    /// Connections at home there.
    pub connections: u64,
    /// Events handed to the application.
    pub events: u64,
    /// Calls executed.
    pub calls: u64,
    /// Crossings to the application.
    pub crossings: u64,
    /// Times that it ran another thread's network layer.
    pub borrowed: u64,
}

/// What the control plane differences (IX §4.6). All but `oldest_waiting_ns` only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Cycles that did something.
    pub busy_cycles: u64,
    /// Cycles that found nothing.
    pub idle_cycles: u64,
    /// Packets taken.
    pub packets: u64,
    /// The sum of the queue depths that busy cycles found.
    pub queue_packets: u64,
    /// The sum of the connections that busy cycles left waiting for the application.
    pub ready: u64,
    /// The sum of what those take in the application, in nanoseconds.
    pub ready_ns: u64,
    /// Time in busy cycles, in nanoseconds.
    pub busy_ns: u64,
    /// Time in others and asleep, in nanoseconds.
    pub idle_ns: u64,
    /// How long the oldest one had waited in the latest busy cycle, in nanoseconds; 0 after an idle one.
    pub oldest_waiting_ns: u64,
}

/// All that an elastic thread shows. What only grows says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadCounters {
    /// What it is doing.
    pub state: State,
    /// Where it runs; none: where the kernel puts it.
    pub processor: Option<usize>,
    /// Packets taken; grows.
    pub packets: u64,
    /// The sum of the queue depths that busy cycles found; grows.
    pub queue_packets: u64,
    /// The sum of the connections that busy cycles left waiting for the application; grows.
    pub ready: u64,
    /// The sum of what those take in the application, in nanoseconds; grows.
    pub ready_ns: u64,
    /// Cycles that did something; grows.
    pub busy_cycles: u64,
    /// Cycles that found nothing; grows.
    pub idle_cycles: u64,
    /// Time in busy cycles, in nanoseconds; grows.
    pub busy_ns: u64,
    /// As it stands in the segment: [`counters`](Self::counters) reads it.
    pub(crate) idle: u64,
    /// See [`Counters`].
    pub oldest_waiting_ns: u64,
    /// When the latest cycle began, by `CLOCK_MONOTONIC`, in nanoseconds.
    pub last_cycle_ns: u64,
    /// When the application was entered and has not returned, by the same clock; 0: it is not in it.
    pub in_application_since_ns: u64,
    /// Times that it slept; grows.
    pub sleeps: u64,
    /// What is copied about once a millisecond, and before the thread sleeps.
    pub totals: Totals,
    /// Busy cycles by the packets that they took: see [`bucket_floor`]; each grows.
    pub batches: [u64; BATCH_BUCKETS],
    /// Cycles that took packets by the estimated queueing delay in microseconds: as `batches`.
    pub delays: [u64; DELAY_BUCKETS],
    /// Flow groups that it was home to and that moved.
    pub migrations: MigrationTotals,
    /// What its TCP/IP stack has counted, copied as the totals are: see
    /// [`Reading::stack_names`](crate::Reading::stack_names). Each grows.
    pub stack: [u64; STACK_COUNTERS_MAX],
}

impl ThreadCounters {
    /// What the control plane differences, at a moment of `CLOCK_MONOTONIC` that was read after this was: idle
    /// time includes the sleep that the thread is in.
    pub fn counters(&self, now_ns: u64) -> Counters {
        let idle_ns = match self.is_asleep() {
            true => self.idle.wrapping_add(now_ns) & !RUNS,
            false => self.idle,
        };
        Counters {
            busy_cycles: self.busy_cycles,
            idle_cycles: self.idle_cycles,
            packets: self.packets,
            queue_packets: self.queue_packets,
            ready: self.ready,
            ready_ns: self.ready_ns,
            busy_ns: self.busy_ns,
            idle_ns,
            oldest_waiting_ns: self.oldest_waiting_ns,
        }
    }

    /// Whether it slept when this was read.
    pub fn is_asleep(&self) -> bool {
        self.idle & RUNS != 0
    }
}

/// The least number that a histogram's bucket counts: 0, 1, 2, 4, 8 and so on. The last bucket has all that are
/// larger, too.
pub fn bucket_floor(bucket: usize) -> u64 {
    match bucket {
        0 => 0,
        _ => 1 << (bucket - 1).min(63),
    }
}

/// What one phase of migrations took (IX Table V).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PhaseTotals {
    /// Migrations.
    pub count: u64,
    /// Their sum, in nanoseconds.
    pub sum_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
    /// The n-th counts what took less than `2^(n+1)` microseconds and not less than half of that; the last also
    /// all that took longer.
    pub histogram: [u64; PHASE_BUCKETS],
}

impl PhaseTotals {
    /// Adds each counter, saturating.
    fn plus(&self, other: &Self) -> Self {
        let sum = |index: usize| self.histogram[index].saturating_add(other.histogram[index]);
        Self {
            count: self.count.saturating_add(other.count),
            sum_ns: self.sum_ns.saturating_add(other.sum_ns),
            max_ns: self.max_ns.max(other.max_ns),
            histogram: std::array::from_fn(sum),
        }
    }
}

/// What an elastic thread has done for migrations, counted at the old home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MigrationTotals {
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
    /// Packets dropped at this new home, for want of room to park them.
    pub parked_drops: u64,
    /// Prepare, wait, rpc and deferred.
    pub phases: [PhaseTotals; 4],
    /// All phases together.
    pub total: PhaseTotals,
}

impl MigrationTotals {
    /// From the counts in their order.
    pub(crate) fn new(
        counts: [u64; MIGRATION_COUNTS],
        phases: [PhaseTotals; 4],
        total: PhaseTotals,
    ) -> Self {
        let [begun, completed, given_up, refused, groups, connections, packets, parked_drops] =
            counts;
        Self {
            begun,
            completed,
            given_up,
            refused,
            groups,
            connections,
            packets,
            parked_drops,
            phases,
            total,
        }
    }

    /// Adds each counter, saturating.
    pub fn plus(&self, other: &Self) -> Self {
        let (counts, more) = (self.counts(), other.counts());
        Self::new(
            std::array::from_fn(|index| counts[index].saturating_add(more[index])),
            std::array::from_fn(|index| self.phases[index].plus(&other.phases[index])),
            self.total.plus(&other.total),
        )
    }

    pub(crate) fn counts(&self) -> [u64; MIGRATION_COUNTS] {
        [
            self.begun,
            self.completed,
            self.given_up,
            self.refused,
            self.groups,
            self.connections,
            self.packets,
            self.parked_drops,
        ]
    }
}
