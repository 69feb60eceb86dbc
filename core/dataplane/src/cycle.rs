//! What an elastic thread is told before its first cycle, and answers after each and after the last.

use clock::Instant;
use nic::Closed;
use stack::Ended;

use crate::migration::MigrationConfig;

/// Settings of one elastic thread.
#[derive(Clone, Copy, Debug)]
pub struct ElasticConfig {
    /// B: packets that one cycle takes at most (IX §3: 64).
    pub batch: usize,
    /// Calls that the application can issue in one cycle.
    pub calls: usize,
    /// Frames that may wait for the transmit ring.
    pub tx_frames: usize,
    /// How flow groups are moved.
    pub migration: MigrationConfig,
}

impl ElasticConfig {
    /// Events that one batch has at most: those of a full batch of packets, and the failures of a full array of calls.
    pub fn events(&self) -> usize {
        8 * self.batch.max(1) + self.calls + 32
    }
}

impl Default for ElasticConfig {
    fn default() -> Self {
        Self { batch: 64, calls: 1024, tx_frames: 1024, migration: MigrationConfig::default() }
    }
}

/// What a cycle did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether there was anything to do: packets, events, calls, timers, frames.
    pub worked: bool,
    /// Whether some of it is left, so that the next cycle should begin at once.
    pub pending: bool,
    /// Whether a word of another thread is about to come that others wait for: flow groups are under way from here
    /// or to here.
    pub awaits: bool,
    /// Packets that were taken in step 1, by whoever ran it, since the thread's last cycle.
    pub received: usize,
    /// Packets that were left in the receive ring when a full batch had been taken from it.
    pub waiting: usize,
    /// Connections at home here whose work was taken from the ring and waits for the application, or for whoever runs it
    /// just now, and events that are not dealt out to their connections yet (ZygOS §4.4). 0 where threads run to
    /// completion and the application is linked in: all that is taken is handed on.
    pub ready: usize,
    /// What those take in the application, as events took lately, in nanoseconds.
    pub ready_ns: u64,
    /// Whether the application, in a process of its own, has a batch: time passes with its work, though the thread may
    /// have none.
    pub is_lent: bool,
    /// The next moment at which there will be, without a packet: a timer, or the service's wish.
    pub next_deadline: Option<Instant>,
}

/// Counters of the cycle (IX §4.6: what the control plane watches).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CycleStats {
    /// Cycles that did something.
    pub busy_cycles: u64,
    /// Cycles that found nothing to do.
    pub idle_cycles: u64,
    /// Packets taken in step 1.
    pub packets: u64,
    /// Crossings to the application.
    pub crossings: u64,
    /// Events handed to it.
    pub events: u64,
    /// Calls executed here, in whoever's network layer.
    pub calls: u64,
    /// Packets of another core's flow groups, dropped because the ring towards it was full.
    pub forward_drops: u64,
    /// Turns of connections that were made here, in whoever's network layer.
    pub turns: u64,
    /// Turns of other cores' connections that were run here.
    pub stolen: u64,
    /// Times that another core's network layer was run here, while that core was in the application.
    pub borrowed: u64,
    /// Kicks sent to other cores.
    pub kicks: u64,
    /// Times that a kick ran this core's network layer.
    pub kicked: u64,
}

/// What an elastic thread left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// How its connections ended.
    pub connections: Ended,
    /// Chunks that its device had. All others came back.
    pub memory: Closed,
}

impl core::ops::AddAssign for Left {
    fn add_assign(&mut self, other: Self) {
        self.connections.reset += other.connections.reset;
        self.connections.untold += other.connections.untold;
        self.memory += other.memory;
    }
}
