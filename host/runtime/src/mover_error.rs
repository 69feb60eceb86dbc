//! Why a command to move flow groups was not posted.

use stack::FLOW_GROUPS;

/// Commands of one thread that may be without a report.
pub(crate) const MAILBOX: usize = 16;

/// Why a command was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoverError {
    /// No dataplane runs with this handle.
    #[error("no dataplane runs with this handle: start one with `run_moved`")]
    NotRunning,
    /// There is no such thread.
    #[error("there is no elastic thread {core}: this handle is for {cores}, from 0 on")]
    NoSuchThread {
        /// What was asked for.
        core: usize,
        /// Threads that there are.
        cores: usize,
    },
    /// A device's table of which a flow group is not a whole number of entries.
    #[error(
        "the device's indirection table has {entries} entries; allowed: multiples of {FLOW_GROUPS}"
    )]
    Entries {
        /// What it has.
        entries: usize,
    },
    /// Fewer queues than threads.
    #[error(
        "the device's indirection table knows {queues} queues, and there are {cores} elastic threads"
    )]
    TooFewQueues {
        /// Queues that there are.
        queues: u16,
        /// Threads.
        cores: usize,
    },
    /// A device whose hash is another one.
    #[error(
        "the key of the device's hash has {len} bytes; allowed: 40, as the Toeplitz hash of IPv4 takes"
    )]
    Key {
        /// Bytes of the key.
        len: usize,
    },
    /// The thread's mailbox is full.
    #[error("{MAILBOX} migrations of elastic thread {core} have no report yet: wait for one")]
    Full {
        /// The thread.
        core: usize,
    },
}
