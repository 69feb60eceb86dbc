//! What can go wrong with a lab: what was tried, what was found, what to do.

use std::io;

use super::constants::QUEUES_MAX;

/// Why a lab could not be made, entered, or removed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Network namespaces need root.
    #[error("a lab needs root (this is uid {uid}): run it with sudo")]
    NotRoot {
        /// The effective user.
        uid: u32,
    },
    /// Queue count out of range.
    #[error("a lab has 1 to {QUEUES_MAX} queues, not {queues}")]
    Queues {
        /// What was asked for.
        queues: u32,
    },
    /// A lab or a namespace of that name exists.
    #[error("lab '{prefix}' cannot be made: {found}; remove it first ({remedy})")]
    Exists {
        /// The lab.
        prefix: String,
        /// What stands in the way.
        found: String,
        /// The command that removes it.
        remedy: String,
    },
    /// There is no lab of that name.
    #[error("lab '{prefix}' is not up: run `tailplane lab up --name {prefix}`")]
    NotUp {
        /// The lab.
        prefix: String,
    },
    /// A program could not be started in a namespace.
    #[error("cannot start '{program}' in network namespace '{namespace}': {source}")]
    Spawn {
        /// The program.
        program: String,
        /// The namespace.
        namespace: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A signal arrived while the lab was being made; it is being removed.
    #[error("interrupted while lab '{prefix}' was being made")]
    Interrupted {
        /// The lab.
        prefix: String,
    },
    /// Anything else: what was tried, what was found, and what to do where that is known.
    #[error("{0}")]
    Failed(String),
}
