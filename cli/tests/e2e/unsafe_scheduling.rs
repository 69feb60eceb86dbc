//! How the kernel schedules threads of other processes.
//!
//! `unsafe` because the calls have no safe wrapper in the libraries that we use: they take numbers.
#![allow(unsafe_code)]

/// The scheduling policy of the thread of this number, with `SCHED_RESET_ON_FORK`; negative: there is no such thread.
pub fn policy_of(thread: u32) -> i32 {
    // SAFETY: asks about a number, whatever it is.
    unsafe { libc::sched_getscheduler(thread as libc::pid_t) }
}
