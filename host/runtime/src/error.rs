//! Why a dataplane could not run.

use dataplane::ClassError;

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
    /// Settings that do not fit this machine, each other, or what they were made for.
    #[error("{0}")]
    Unfit(String),
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
