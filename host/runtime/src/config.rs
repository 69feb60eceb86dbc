//! How a dataplane runs, and what its elastic threads report.

use std::sync::Arc;

use dataplane::{
    ConservingConfig, CycleStats, ElasticConfig, IdlePolicy, Left, MigrationStats,
    ModerationPolicy, ReadySetConfig, WhileAway,
};
use nic::NicStats;
use stack::{PeerRegister, StackConfig, StackStats};
use statseg::Segment;

/// Which core runs the application for a connection (DESIGN: one configuration word).
#[derive(Clone, Debug, Default)]
pub enum Scheduler {
    /// The connection's home core, all that came at once (IX).
    #[default]
    RunToCompletion,
    /// Any core that has nothing else to do (ZygOS). The service must run anywhere.
    WorkConserving(ConservingConfig),
    /// Any core, connections of the class that is next by a service policy first (HyperPlane). The service
    /// must run anywhere.
    ReadySet(ReadySetConfig),
}

impl Scheduler {
    /// Whether a connection's events come to threads other than its home.
    pub(crate) fn shares(&self) -> bool {
        !matches!(self, Self::RunToCompletion)
    }

    /// Whether cores that are in the application are kicked.
    pub(crate) fn kicks(&self) -> bool {
        match self {
            Self::RunToCompletion => false,
            Self::WorkConserving(sharing) | Self::ReadySet(ReadySetConfig { sharing, .. }) => {
                sharing.while_away == WhileAway::Kick
            }
        }
    }
}

/// How a dataplane runs.
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// The stack's settings.
    pub stack: StackConfig,
    /// The cycle's settings.
    pub elastic: ElasticConfig,
    /// Who runs the application.
    pub scheduler: Scheduler,
    /// When to stop spinning.
    pub idle: IdlePolicy,
    /// Whether to wait for several packets where they come often.
    pub moderation: ModerationPolicy,
    /// The processor of each elastic thread; threads without an entry are not pinned.
    pub cpus: Vec<usize>,
    /// Real-time priority of the threads (`SCHED_FIFO`, 1 to 99). Only with an idle policy that
    /// sleeps: a thread that spins for ever at such a priority starves its processor.
    pub realtime: Option<u8>,
    /// Free chunks that each pool keeps to itself.
    pub pool_keep: usize,
    /// Where the elastic threads show what they do; none: nowhere. For as many threads as run.
    pub segment: Option<Arc<Segment>>,
    /// Where connections are written down, for whoever resets them if this process is killed; none: nowhere.
    pub register: Option<Arc<dyn PeerRegister>>,
}

/// What one elastic thread has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreReport {
    /// The cycle.
    pub cycle: CycleStats,
    /// The stack.
    pub stack: StackStats,
    /// The queue pair.
    pub nic: NicStats,
    /// Flow groups that it was home to and that moved.
    pub migrations: MigrationStats,
    /// Times that the thread slept.
    pub sleeps: u64,
    /// Time of the cycles that did something, in nanoseconds.
    pub busy_ns: u64,
    /// Connections at the end, and bytes of their state.
    pub footprint: (usize, usize),
    /// How these ended, and what became of the packet memory. Under a work-conserving scheduler the report of
    /// the thread that left last counts for all.
    pub left: Left,
}
