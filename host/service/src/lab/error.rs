//! What can go wrong with a lab: what was tried, what was found, what to do.

use std::io;
use std::path::PathBuf;

use super::constants::{PREFIX_BYTES_MAX, QUEUES_MAX};

/// Why a lab could not be made, entered, or removed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Network namespaces need root.
    #[error("a lab needs root (this is uid {uid}): run it with sudo")]
    NotRoot {
        /// The effective user.
        uid: u32,
    },
    /// The prefix cannot be part of a namespace's name.
    #[error(
        "'{prefix}' is no lab name: use 1 to {PREFIX_BYTES_MAX} lower-case letters, digits and '-'"
    )]
    Prefix {
        /// What was asked for.
        prefix: String,
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
    /// A program failed.
    #[error("`{command}` failed: {found}{hint}")]
    Command {
        /// The command line.
        command: String,
        /// Its status and what it wrote to standard error.
        found: String,
        /// What to do, where the failure is a known one (else empty).
        hint: &'static str,
    },
    /// A namespace could not be entered.
    #[error("cannot {action} network namespace '{namespace}': {source}")]
    Namespace {
        /// The verb.
        action: &'static str,
        /// The namespace.
        namespace: String,
        /// What the kernel said.
        source: io::Error,
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
    /// A kernel setting or a state file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// The verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A device could not be asked for, or told, its features.
    #[error("cannot {action} of {interface} (SIOCETHTOOL): {source}")]
    Device {
        /// The verb and its object.
        action: &'static str,
        /// The interface.
        interface: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// Offloads stayed on although they were switched off.
    #[error(
        "{interface} keeps offloads on that an AF_XDP socket cannot live with: {features}; \
         this kernel's veth cannot carry a lab"
    )]
    OffloadsStuck {
        /// The interface.
        interface: &'static str,
        /// The features, by their kernel names.
        features: String,
    },
    /// Another process holds the lock for too long.
    #[error(
        "another process has been making or removing a lab for {waited_s} s (it holds {}): \
         wait for it or end it",
        path.display()
    )]
    Busy {
        /// How long was waited, in seconds.
        waited_s: u64,
        /// The lock.
        path: PathBuf,
    },
    /// A signal arrived while the lab was being made; it is being removed.
    #[error("interrupted while lab '{prefix}' was being made")]
    Interrupted {
        /// The lab.
        prefix: String,
    },
    /// The thread for SIGINT, SIGTERM and SIGHUP could not be started.
    #[error("cannot arrange for the lab's removal on a signal: {source}")]
    Cleanup {
        /// What the kernel said.
        source: io::Error,
    },
}
