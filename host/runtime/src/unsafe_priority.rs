//! Real-time priority of threads, and why it could not be had.
//!
//! `unsafe` because the calls have no safe wrapper in the libraries that we use; each takes a pointer to
//! a value that lives across the call and touches no other memory.
#![allow(unsafe_code)]

use std::io;

use crate::error::{RuntimeError, system};

/// Lets the calling thread run before all ordinary ones (`SCHED_FIFO`, priority 1 to 99). A thread
/// that never sleeps must not stay so: it starves its processor. Threads and processes that it starts inherit it.
///
/// # Errors
/// Without privileges, that they are missing.
pub fn set_realtime(priority: u8) -> Result<(), RuntimeError> {
    set("setting a real-time priority", priority, libc::SCHED_FIFO)
}

/// The same for a thread of the dataplane: what it starts begins as an ordinary thread.
pub(crate) fn set_own_realtime(priority: u8) -> Result<(), RuntimeError> {
    set("setting a real-time priority", priority, OWN)
}

/// The policy of a real-time thread that starts ordinary ones.
const OWN: libc::c_int = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;

fn set(tried: &'static str, priority: u8, policy: libc::c_int) -> Result<(), RuntimeError> {
    let parameters = libc::sched_param { sched_priority: priority.clamp(1, 99).into() };
    // SAFETY: the pointer is to a local value; 0 names the calling thread.
    answered(tried, unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) })
}

fn answered(tried: &'static str, status: libc::c_int) -> Result<(), RuntimeError> {
    match status {
        0 => Ok(()),
        _ => Err(system(tried, io::Error::last_os_error())),
    }
}

/// Has the calling thread keep its real-time priority, where it has one, from threads and processes that it starts.
///
/// # Errors
/// As [`set_realtime`].
pub fn keep_realtime() -> Result<(), RuntimeError> {
    let tried = "keeping a real-time priority from what is started";
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: asks about the calling thread; the pointer is to a local value.
    match unsafe { (libc::sched_getscheduler(0), libc::sched_getparam(0, &raw mut parameters)) } {
        (libc::SCHED_FIFO, 0) => set(tried, parameters.sched_priority.clamp(1, 99) as u8, OWN),
        _ => Ok(()),
    }
}

/// Makes this process's first thread an ordinary one: for one that was started with a real-time priority so that its
/// elastic threads inherit it, and has nothing to do but to wait for these.
///
/// # Errors
/// As [`set_realtime`].
pub fn make_first_ordinary() -> Result<(), RuntimeError> {
    let first = std::process::id() as libc::pid_t;
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a local value; a process's first thread has the process's number.
    let status =
        unsafe { libc::sched_setscheduler(first, libc::SCHED_OTHER, &raw const parameters) };
    answered("giving up a real-time priority", status)
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

#[cfg(test)]
mod tests {
    use super::{keep_realtime, set_own_realtime, set_realtime};

    /// The policy of a thread that a thread of a real-time priority starts.
    fn inherited(is_inherited: bool) -> Option<i32> {
        let starter = std::thread::spawn(move || {
            if is_inherited { set_realtime(1) } else { set_own_realtime(1) }.ok()?;
            // SAFETY: asks about the calling thread.
            let policy = || unsafe { libc::sched_getscheduler(0) };
            std::thread::spawn(policy).join().ok()
        });
        starter.join().expect("no panic")
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls sched_setscheduler")]
    fn a_priority_is_inherited_only_where_that_is_asked_for() {
        match inherited(true) {
            Some(policy) => assert_eq!(policy, libc::SCHED_FIFO),
            None => return println!("skipped: real-time priorities take CAP_SYS_NICE"),
        }
        assert_eq!(inherited(false), Some(libc::SCHED_OTHER));
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls sched_setscheduler")]
    fn a_thread_can_keep_its_priority_from_what_it_starts() {
        let starter = std::thread::spawn(|| {
            // Nothing to keep is no error.
            keep_realtime().expect("nothing changes");
            set_realtime(1).ok()?;
            keep_realtime().expect("the same priority");
            // SAFETY: asks about the calling thread.
            let policy = || unsafe { libc::sched_getscheduler(0) };
            Some((policy(), std::thread::spawn(policy).join().ok()?))
        });
        if let Some(found) = starter.join().expect("no panic") {
            let own = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
            assert_eq!(found, (own, libc::SCHED_OTHER));
        }
    }
}
