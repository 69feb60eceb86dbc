//! Real-time priority of the calling thread.
//!
//! `unsafe` because the call has no safe wrapper in the libraries that we use; it takes a pointer to
//! a value that lives across the call and touches no other memory.
#![allow(unsafe_code)]

/// Lets the calling thread run before all ordinary ones (`SCHED_FIFO`, priority 1 to 99).
///
/// # Errors
/// What the operating system said: without privileges, that they are missing.
pub(crate) fn set_realtime(priority: u8) -> Result<(), std::io::Error> {
    let parameters = libc::sched_param { sched_priority: priority.clamp(1, 99).into() };
    // SAFETY: the pointer is to a local value; 0 names the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
