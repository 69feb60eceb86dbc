//! What can go wrong, each with what was tried, what was found and what to do.

use rustix::io::Errno;

use crate::Step;

/// Of a policy that makes no filter.
pub(crate) const COMPILE: &str = "compile the policy to a filter";
pub(crate) const SHORTEN: &str = "shorten its lists";

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
    /// Anything else: what was tried, what was found and what to do.
    #[error("{0}")]
    Refused(String),
}

impl SandboxError {
    /// The error of a confinement that asks for what there cannot be, or of a system call that failed.
    pub(crate) fn refused(tried: &str, found: impl std::fmt::Display, advice: &str) -> Self {
        Self::Refused(format!("could not {tried}: {found}; {advice}"))
    }
}

impl From<seccompiler::BackendError> for SandboxError {
    fn from(found: seccompiler::BackendError) -> Self {
        Self::refused(COMPILE, found, SHORTEN)
    }
}
