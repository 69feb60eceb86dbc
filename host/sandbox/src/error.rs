//! What can go wrong, each with what was tried, what was found and what to do.

use std::path::PathBuf;

use rustix::io::Errno;

use crate::Step;

/// A confinement that could not be made, read or watched. Nothing is left half-confined and running:
/// a child that fails a step never starts its program.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A step of the confinement failed.
    #[error("could not {}: {errno}; {}", step.tried(), step.advice(*errno))]
    Step {
        /// Which.
        step: Step,
        /// The kernel's answer.
        errno: Errno,
    },
    /// A process was to be watched, read or started, and the system refused.
    #[error("could not {tried}: {found}; {advice}")]
    System {
        /// What was tried.
        tried: &'static str,
        /// What the system said.
        found: std::io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// A process with several threads cannot change its identity and capabilities in one step.
    #[error(
        "could not confine this process: it has {0} threads, and identity and capabilities are \
         each thread's own; confine it before the first thread is made"
    )]
    Threads(usize),
    /// A number for a passed descriptor that cannot be had.
    #[error("could not pass a descriptor as number {number}: {reason}")]
    Target {
        /// The number asked for.
        number: i32,
        /// Why not, and what to do.
        reason: &'static str,
    },
    /// The filter would stop the program before its first instruction.
    #[error(
        "could not start a program under this system call policy: it refuses execve; allow it, or use \
         SyscallPolicy::with_startup and let the program call SyscallPolicy::enforce when it has started"
    )]
    PolicyForbidsStart,
    /// A root of its own that cannot be made.
    #[error("could not prepare a root of its own: {path:?} {reason}")]
    Root {
        /// The path that does not fit.
        path: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// A Landlock rule that cannot be made.
    #[error("could not prepare the rules for files: {path:?} {reason}")]
    Files {
        /// The path that does not fit.
        path: PathBuf,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// A policy that is not one.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

/// A system call policy that could not be read or compiled.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// No Linux has a system call of this name.
    #[error("`{name}` in `{list}` is not a system call{}", suggestion(*.nearest))]
    UnknownCall {
        /// As written.
        name: String,
        /// The list it stands in.
        list: &'static str,
        /// What may have been meant.
        nearest: Option<&'static str>,
    },
    /// A call stands in both lists.
    #[error("`{0}` stands in `allow` and in `deny`: take it out of one of them")]
    Both(String),
    /// The text is no policy.
    #[error(
        "could not read the policy: {0}; a policy is default = \"allow\" or \"deny\", and optionally \
         allow = [...], deny = [...], refusal = \"error\" or \"kill\""
    )]
    Syntax(String),
    /// The file could not be read.
    #[error("could not read the policy file {path:?}: {found}; name a readable regular file")]
    File {
        /// Its path.
        path: PathBuf,
        /// What was found.
        found: String,
    },
    /// The policy makes no filter.
    #[error("could not compile the policy to a filter: {0}; shorten its lists")]
    Compile(String),
}

impl From<seccompiler::BackendError> for PolicyError {
    fn from(found: seccompiler::BackendError) -> Self {
        Self::Compile(found.to_string())
    }
}

fn suggestion(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!("; did you mean `{name}`?"),
        None => "; names are those of section 2 of the manual (`man 2 syscalls`)".into(),
    }
}
