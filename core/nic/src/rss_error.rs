//! Why a device's indirection table could not be read, attached or changed.

use std::io;

/// Why receive-side scaling could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum RssError {
    /// The device has none, or its driver does not let it be programmed.
    #[error(
        "`{interface}` has no programmable receive-side scaling: {source}; frames are steered \
         between cores in software"
    )]
    Unsupported {
        /// The interface.
        interface: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refused the access.
    #[error("{tried} of `{interface}` failed: {source}; changing it needs CAP_NET_ADMIN")]
    Os {
        /// What was tried.
        tried: &'static str,
        /// The interface.
        interface: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The program of a device that has none could not be attached or used.
    #[error(transparent)]
    Steer(#[from] SteerError),
    /// There is no such flow group.
    #[error("flow group {group} does not exist: the indirection table has {entries} entries")]
    NoSuchGroup {
        /// What was asked for.
        group: usize,
        /// Entries of the table.
        entries: usize,
    },
    /// There is no such queue.
    #[error("queue {queue} does not exist: there are {queues}")]
    NoSuchQueue {
        /// What was asked for.
        queue: u16,
        /// Queues that there are.
        queues: u16,
    },
    /// A software table's shape is not allowed.
    #[error(
        "an indirection table of {entries} entries for {queues} queues: the entries must be a \
         power of two up to 65,536, the queues at least one"
    )]
    BadShape {
        /// Entries asked for.
        entries: usize,
        /// Queues asked for.
        queues: u16,
    },
}

/// Why the program could not be attached or used.
#[derive(Debug, thiserror::Error)]
pub enum SteerError {
    /// There is no such interface here.
    #[error("interface `{interface}` was not found in this network namespace: {source}")]
    NoInterface {
        /// The name that was asked for.
        interface: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refused the program or its table.
    #[error(
        "loading the steering program failed: {reason}; it needs root or CAP_BPF + CAP_NET_ADMIN"
    )]
    Load {
        /// What the loader said, causes included.
        reason: String,
    },
    /// The interface refused the program.
    #[error(
        "attaching the steering program at the egress of `{interface}` failed: {reason}; it needs Linux 6.6 or \
         later (tcx); without it frames are forwarded between cores in software"
    )]
    Attach {
        /// The interface.
        interface: String,
        /// What the kernel said, causes included.
        reason: String,
    },
    /// A probe could not be sent, or no socket for probes be opened.
    #[error("{tried} at `{interface}` failed: {source}")]
    Probe {
        /// What was tried.
        tried: &'static str,
        /// The interface.
        interface: String,
        /// What the kernel said.
        source: io::Error,
    },
}
