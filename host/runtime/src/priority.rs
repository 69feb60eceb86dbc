//! Real-time priority of threads, and why it could not be had.

use crate::error::{RuntimeError, system};
use crate::unsafe_priority;

/// Lets the calling thread run before all ordinary ones (`SCHED_FIFO`, priority 1 to 99). A thread
/// that never sleeps must not stay so: it starves its processor. Threads and processes that it starts inherit it.
///
/// # Errors
/// [`RuntimeError::System`]: without privileges, that they are missing.
pub fn set_realtime(priority: u8) -> Result<(), RuntimeError> {
    unsafe_priority::set_realtime(priority, true)
        .map_err(|source| system("setting a real-time priority", source))
}

/// The same for a thread of the dataplane: what it starts begins as an ordinary thread.
pub(crate) fn set_own_realtime(priority: u8) -> Result<(), RuntimeError> {
    unsafe_priority::set_realtime(priority, false)
        .map_err(|source| system("setting a real-time priority", source))
}

/// Has the calling thread keep its real-time priority, where it has one, from threads and processes that it starts.
///
/// # Errors
/// As [`set_realtime`].
pub fn keep_realtime() -> Result<(), RuntimeError> {
    unsafe_priority::keep_realtime()
        .map_err(|source| system("keeping a real-time priority from what is started", source))
}

/// Makes this process's first thread an ordinary one: for one that was started with a real-time priority so that its
/// elastic threads inherit it, and has nothing to do but to wait for these.
///
/// # Errors
/// As [`set_realtime`].
pub fn make_first_ordinary() -> Result<(), RuntimeError> {
    unsafe_priority::make_first_ordinary()
        .map_err(|source| system("giving up a real-time priority", source))
}

/// Whether this process may run threads at such a priority.
///
/// # Errors
/// As [`set_realtime`].
pub fn may_have_realtime(priority: u8) -> Result<(), RuntimeError> {
    // A thread of its own has it for a moment.
    let tried = std::thread::spawn(move || set_own_realtime(priority)).join();
    tried.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
