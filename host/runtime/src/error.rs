//! Why a dataplane could not run.

use dataplane::ClassError;
use stack::FLOW_GROUPS;

/// Why a dataplane could not run.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The operating system refused something.
    #[error("{tried} failed: {source}")]
    System {
        /// What was tried.
        tried: &'static str,
        /// What it said.
        source: std::io::Error,
    },
    /// More or fewer elastic threads than there can be.
    #[error("cannot run elastic threads: found devices for {found} of them; give 1 to 128")]
    Queues {
        /// Devices given.
        found: usize,
    },
    /// A processor that this process may not run on, or that is not there.
    #[error(
        "elastic thread {core} cannot run on processor {cpu}; allowed: {allowed} (`taskset` and \
         cpusets limit them)"
    )]
    Processor {
        /// The thread's number.
        core: usize,
        /// What was asked for.
        cpu: usize,
        /// What there is.
        allowed: String,
    },
    /// More elastic threads than a scheduler can look after.
    #[error(
        "{found} elastic threads are more than can share their work: {max}; run two dataplanes, or run to \
         completion"
    )]
    TooManyCores {
        /// Threads asked for.
        found: usize,
        /// Most threads.
        max: usize,
    },
    /// A domain whose event arrays are too small for the threads' batches.
    #[error(
        "a batch of an elastic thread has up to {events} events, and the domain's event arrays have room for {room}: \
         make them larger (`process::Geometry`), or the batch smaller"
    )]
    EventArray {
        /// Events that one batch can have.
        events: usize,
        /// Room of the smallest array.
        room: usize,
    },
    /// A service that keeps its connections' state to each thread.
    #[error(
        "the schedulers work-conserving and ready-set run a connection on any core, and this service keeps \
         the state of its connections in each thread's value of it; use one that runs anywhere \
         (`Service::runs_anywhere`), or run to completion"
    )]
    KeepsToItsCore,
    /// A [`Controls`](crate::Controls) for another number of threads, or one that was used before.
    #[error(
        "the `Controls` is for another number of elastic threads than {cores}, or was used before"
    )]
    Controls {
        /// Threads that there are.
        cores: usize,
    },
    /// The device's indirection table, at the start.
    #[error("the device's indirection table could not be written: {0}")]
    Table(#[from] nic::rss::RssError),
    /// A statistics segment that was made for something else.
    #[error(
        "the statistics segment is for {threads} elastic threads and {groups} flow groups, and there are {cores} and \
         {FLOW_GROUPS}"
    )]
    Segment {
        /// Threads of the segment.
        threads: u16,
        /// Flow groups of the segment.
        groups: u16,
        /// Threads that there are.
        cores: usize,
    },
    /// Kicks without the means to interrupt anything.
    #[error(
        "kicks interrupt the application by a thread of higher real-time priority, and the real-time priority \
         is {found}; allowed with kicks: 1 to 98; set it, or have network layers borrowed instead"
    )]
    KicksNeedPriority {
        /// What was configured; 0: none.
        found: u8,
    },
    /// The classes of a ready set.
    #[error(transparent)]
    Classes(#[from] ClassError),
    /// A thread panicked: a bug of the service or of ours.
    #[error("elastic thread {core} panicked: {message}")]
    Panicked {
        /// Its number.
        core: usize,
        /// What it said.
        message: String,
    },
}

pub(crate) fn system(tried: &'static str, source: impl Into<std::io::Error>) -> RuntimeError {
    RuntimeError::System { tried, source: source.into() }
}
