//! A running service, as the daemon reaches it: requests over its control socket, numbers from its segment.
//!
//! [`Link`] is what the daemon's logic is written against. `endpoint_link` implements it over a real service's
//! socket and statistics segment, a fake one for tests. No call of it blocks.

use std::os::fd::BorrowedFd;

use control::metrics::Counters;

/// What a service is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Let an elastic thread follow its idle policy again.
    Grant {
        /// Which.
        thread: u16,
    },
    /// Let it sleep whenever it has nothing to do: it has no flow group.
    Park {
        /// Which.
        thread: u16,
    },
    /// Move flow groups, all or none.
    Move {
        /// Their home.
        from: u16,
        /// Their home from then on.
        to: u16,
        /// Which.
        groups: Vec<u16>,
    },
    /// Run a thread on another processor.
    Place {
        /// Which.
        thread: u16,
        /// Where.
        cpu: u32,
    },
    /// End the service, in order.
    End,
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Grant { thread } => write!(f, "grant thread {thread}"),
            Self::Park { thread } => write!(f, "park thread {thread}"),
            Self::Move { from, to, groups } => {
                write!(f, "move {} groups from {from} to {to}", groups.len())
            }
            Self::Place { thread, cpu } => write!(f, "place thread {thread} on processor {cpu}"),
            Self::End => f.write_str("end"),
        }
    }
}

/// What a move was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Flow groups.
    pub groups: u64,
    /// Connections in them.
    pub connections: u64,
    /// Packets that came to the new home before its groups.
    pub packets_deferred: u64,
    /// Time of each phase: prepare, wait, rpc, deferred (IX Table V), in nanoseconds.
    pub phase_ns: [u64; 4],
}

/// Why an order was not carried out, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedKind {
    /// There is no such elastic thread.
    NoSuchThread,
    /// A flow group is at home elsewhere.
    NotHome,
    /// A flow group is on its way already.
    UnderWay,
    /// The thread still has flow groups.
    HasGroups,
    /// Flow groups of this service cannot be moved.
    NotMovable,
    /// The service cannot do that at all.
    Unsupported,
    /// The service is ending.
    Leaving,
    /// Too much is asked at a time.
    TooMany,
    /// The system refused.
    System,
}

impl RefusedKind {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSuchThread => "no-such-thread",
            Self::NotHome => "not-home",
            Self::UnderWay => "under-way",
            Self::HasGroups => "has-groups",
            Self::NotMovable => "not-movable",
            Self::Unsupported => "unsupported",
            Self::Leaving => "leaving",
            Self::TooMany => "too-many",
            Self::System => "system",
        }
    }
}

/// Why an order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// In one word.
    pub kind: RefusedKind,
    /// In the service's words.
    pub reason: String,
}

/// The one answer to an order: of moves their summary, of all others nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Of which order.
    pub id: u64,
    /// What became of it.
    pub result: Result<Option<Moved>, Refusal>,
}

/// The service does not answer any more: why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone(pub String);

/// What a service says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// What it is called.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// When it started, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// The file that it was configured by.
    pub config_path: String,
    /// And what stood in it.
    pub config_text: String,
    /// Its elastic threads.
    pub threads: u16,
    /// The processor of each; none where it is not pinned.
    pub cpus: Vec<Option<u32>>,
    /// B: packets of one cycle at most.
    pub batch_max: u32,
    /// Flow groups.
    pub groups: u16,
    /// Which core runs the application for a connection.
    pub scheduler: String,
    /// What separates dataplane and application.
    pub domain: String,
    /// How frames travel.
    pub driver: String,
    /// Whether the device's indirection table can be programmed.
    pub steers: bool,
    /// Whether flow groups can be moved.
    pub movable: bool,
    /// Of tailplane.
    pub version: String,
}

/// What an elastic thread does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadState {
    /// It is being set up.
    #[default]
    Starting,
    /// It serves.
    Running,
    /// It serves what still comes to it, and sleeps else.
    Parked,
    /// It ends.
    Leaving,
}

impl ThreadState {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Parked => "parked",
            Self::Leaving => "leaving",
        }
    }
}

/// An elastic thread's numbers. All but the last four only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadReading {
    /// What the control loop needs.
    pub counters: Counters,
    /// How often it has slept.
    pub sleeps: u64,
    /// Turns that it took from others.
    pub steals: u64,
    /// Interrupts that it sent.
    pub kicks: u64,
    /// Packets that it passed on to their home.
    pub forwarded: u64,
    /// Events that it handed out.
    pub events: u64,
    /// System calls that it carried out.
    pub calls: u64,
    /// Batches by size: entry i counts those of 2^(i-1) + 1 to 2^i packets.
    pub batches: Vec<u64>,
    /// Estimated queueing delays: entry i counts those of 2^(i-1) + 1 to 2^i microseconds.
    pub delays: Vec<u64>,
    /// Connections now.
    pub connections: u64,
    /// What it does.
    pub state: ThreadState,
    /// The processor that it runs on, where it is pinned.
    pub cpu: Option<u32>,
    /// When it entered the application, where it is in it, by CLOCK_MONOTONIC, in nanoseconds; else 0.
    pub entered_ns: u64,
}

/// Migrations of one service so far, all threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Migrations {
    /// Of each phase: how many.
    pub count: [u64; 4],
    /// Their time, in nanoseconds.
    pub sum_ns: [u64; 4],
    /// The longest one, in nanoseconds.
    pub longest_ns: [u64; 4],
    /// Moves that failed.
    pub failed: u64,
}

/// See the module's comment.
pub trait Link: Send {
    /// What the service said of itself when it was reached.
    fn described(&self) -> &Described;

    /// Asks; the number that its answer will bear.
    ///
    /// # Errors
    /// The service is gone, or takes no more.
    fn ask(&mut self, order: &Order) -> Result<u64, Gone>;

    /// Answers that have come since the last call.
    ///
    /// # Errors
    /// The service is gone; answers that came before were handed out.
    fn replies(&mut self) -> Result<Vec<Reply>, Gone>;

    /// What the control loop needs of a thread, and when it entered the application ([`ThreadReading::entered_ns`]).
    fn counters(&self, thread: u16) -> (Counters, u64);

    /// All of a thread's numbers.
    fn reading(&self, thread: u16) -> ThreadReading;

    /// What a thread does.
    fn state(&self, thread: u16) -> ThreadState;

    /// Packets that each flow group has received, written over `into`.
    fn group_packets(&self, into: &mut Vec<u64>);

    /// The home of a flow group.
    fn home(&self, group: u16) -> u16;

    /// Its migrations.
    fn migrations(&self) -> Migrations;

    /// What becomes readable when answers have come.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}
