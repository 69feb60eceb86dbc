//! Why a load could not be carried to its end.

use std::io;

use crate::codec::Violation;
use crate::setting::ConfigError;

/// Why a run has no report. What the service does wrong *during* the load is counted in the
/// report instead.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A setting cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A connection could not be opened.
    #[error("could not open connection {opened} of {wanted} to {target}: {reason}; {advice}")]
    Connect {
        /// The service.
        target: String,
        /// Connections that were open by then.
        opened: u32,
        /// Connections that were asked for.
        wanted: u32,
        /// What went wrong.
        reason: String,
        /// What to do.
        advice: &'static str,
    },
    /// A thread could not be pinned.
    #[error("could not pin the generator to core {core}: {source}; is the core in this cpuset?")]
    Pin {
        /// The core.
        core: usize,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A system call failed that has no reason to.
    #[error("{call} failed: {source}")]
    System {
        /// The call.
        call: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The keys were not stored in time.
    #[error(
        "storing {keys} keys took longer than {limit_ms} ms; is the service alive? Raise \
         `preload_timeout_ms`, or ask for fewer `keys`"
    )]
    PreloadTimeout {
        /// Keys to store.
        keys: u32,
        /// The limit.
        limit_ms: u64,
    },
    /// All connections were closed while the keys were being stored.
    #[error(
        "the service closed all connections while the keys were being stored; did it end, or does \
         it not speak memcached's text protocol? (`workload`)"
    )]
    PreloadClosed,
    /// An answer to the storing of a key was none.
    #[error(
        "storing the keys: {violation}; the target does not speak memcached's text protocol: choose \
         the `workload` that it serves"
    )]
    PreloadProtocol {
        /// What came instead.
        violation: Violation,
    },
    /// The log of the latencies could not be written.
    #[error("could not write the HdrHistogram log '{path}': {source}; is the directory there?")]
    HdrLog {
        /// The file.
        path: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// Another thread of the run failed first.
    #[error("another thread of the generator failed")]
    OtherThread,
    /// The threads that carry the load were stopped before it ended.
    #[error("the run was stopped before it ended, in the phase {phase}")]
    Stopped {
        /// How far it came.
        phase: &'static str,
    },
}

impl LoadError {
    /// All connections ended while the keys were being stored: because of what the target answered,
    /// or by its own doing.
    pub(crate) fn preload_ended(violation: Option<Violation>) -> Self {
        violation.map_or(Self::PreloadClosed, |violation| Self::PreloadProtocol { violation })
    }

    /// Wraps the failure of the system call `call`.
    pub(crate) fn system(call: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        move |errno| Self::System { call, source: errno.into() }
    }
}
