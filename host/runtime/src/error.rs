//! Why a dataplane could not run.

use std::fmt::Display;

/// Why a dataplane could not run: what was tried, found and allowed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RuntimeError(pub(crate) String);

/// The operating system refused something.
pub(crate) fn system(tried: &str, source: impl Display) -> RuntimeError {
    RuntimeError(format!("{tried} failed: {source}"))
}

/// What is configured was refused, for a reason that says all.
pub(crate) fn refused(reason: impl Display) -> RuntimeError {
    RuntimeError(reason.to_string())
}

/// There are more or fewer elastic threads than there can be.
pub(crate) fn threads(found: usize) -> RuntimeError {
    RuntimeError(format!(
        "cannot run elastic threads: found devices for {found} of them; give 1 to 128"
    ))
}

/// The service keeps its connections' state to each thread.
pub(crate) fn keeps_to_its_core() -> RuntimeError {
    RuntimeError(
        "the schedulers work-conserving and ready-set run a connection on any core, and this service keeps the state \
         of its connections in each thread's value of it; use one that runs anywhere (`Service::runs_anywhere`), or \
         run to completion"
            .to_owned(),
    )
}
