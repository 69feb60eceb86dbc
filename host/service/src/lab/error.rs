//! What can go wrong with a lab: what was tried, what was found, what to do.

use std::io;

/// Why a lab could not be made, entered, or removed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
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
    /// Anything else: what was tried, what was found, and what to do where that is known.
    #[error("{0}")]
    Failed(String),
}
