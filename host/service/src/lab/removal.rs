//! The removal of labs that are another's: of killed processes, or by name.

use super::config::check_prefix;
use super::constants::LOCK_WAIT;
use super::error::LabError;
use super::site::Site;
use super::state::{LabState, StateDirectory, StateLock};

/// Labs are root's.
pub(super) fn check_root() -> Result<(), LabError> {
    let user = rustix::process::geteuid();
    user.is_root().then_some(()).ok_or_else(|| {
        LabError::Failed(format!("a lab needs root (this is uid {user}): run it with sudo"))
    })
}

/// Removes the labs of killed processes. What fails is left for the next time: it is no reason not
/// to make another lab.
pub(super) fn sweep(states: &StateDirectory, lock: &StateLock) {
    for leftover in states.leftovers() {
        let site = Site::new(&leftover.prefix, leftover.queues);
        match site.erase(states, lock) {
            Ok(()) => tracing::info!(lab = leftover.prefix, "removed what a killed process left"),
            Err(error) => tracing::warn!(lab = leftover.prefix, %error, "a leftover stays"),
        }
    }
}

/// Removes the labs of killed processes now.
///
/// # Errors
/// The record of labs is locked, or cannot be.
pub fn remove_leftovers() -> Result<(), LabError> {
    let states = StateDirectory::default();
    let lock = states.lock(LOCK_WAIT)?;
    sweep(&states, &lock);
    Ok(())
}

/// What is recorded of the lab of that name, whoever owns it; `None` where there is none.
///
/// # Errors
/// It is no name of a lab.
pub fn find(prefix: &str) -> Result<Option<LabState>, LabError> {
    check_prefix(prefix)?;
    Ok(StateDirectory::default().load(prefix))
}

/// Removes the lab of that name, whoever made it. False where there is none.
///
/// # Errors
/// The caller is not root, or something could not be removed.
pub fn remove(prefix: &str) -> Result<bool, LabError> {
    let state = find(prefix)?;
    let site = Site::new(prefix, state.as_ref().map_or(1, |state| state.queues));
    if state.is_none() && !site.dataplane.exists() && !site.client.exists() {
        return Ok(false);
    }
    check_root()?;
    let states = StateDirectory::default();
    let lock = states.lock(LOCK_WAIT)?;
    site.erase(&states, &lock)?;
    Ok(true)
}
