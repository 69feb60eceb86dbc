//! Real-time priority of the calling thread.
//!
//! `unsafe` because the call has no safe wrapper in the libraries that we use; it takes a pointer to
//! a value that lives across the call and touches no other memory.
#![allow(unsafe_code)]

/// Lets the calling thread run before all ordinary ones (`SCHED_FIFO`, priority 1 to 99); with it, threads and
/// processes that it starts, where these are to inherit that.
///
/// # Errors
/// What the operating system said: without privileges, that they are missing.
pub(crate) fn set_realtime(priority: u8, is_inherited: bool) -> Result<(), std::io::Error> {
    let parameters = libc::sched_param { sched_priority: priority.clamp(1, 99).into() };
    let policy = match is_inherited {
        true => libc::SCHED_FIFO,
        false => libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
    };
    // SAFETY: the pointer is to a local value; 0 names the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Has the calling thread keep its real-time priority, where it has one, from what it starts.
///
/// # Errors
/// As [`set_realtime`].
pub(crate) fn keep_realtime() -> Result<(), std::io::Error> {
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: asks about the calling thread; the pointer is to a local value.
    match unsafe { (libc::sched_getscheduler(0), libc::sched_getparam(0, &raw mut parameters)) } {
        (libc::SCHED_FIFO, 0) => set_realtime(parameters.sched_priority.clamp(1, 99) as u8, false),
        _ => Ok(()),
    }
}

/// Makes this process's first thread an ordinary one, whatever priority it was started with.
///
/// # Errors
/// As [`set_realtime`].
pub(crate) fn make_first_ordinary() -> Result<(), std::io::Error> {
    let first = std::process::id() as libc::pid_t;
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a local value; a process's first thread has the process's number.
    match unsafe { libc::sched_setscheduler(first, libc::SCHED_OTHER, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::{keep_realtime, set_realtime};

    /// The policy of a thread that a thread of a real-time priority starts.
    fn inherited(is_inherited: bool) -> Option<i32> {
        let starter = std::thread::spawn(move || {
            set_realtime(1, is_inherited).ok()?;
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
            set_realtime(1, true).ok()?;
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
