//! The kernel's answers to raw system calls, and new namespaces for the caller.
//!
//! Like the steps that use them: no allocation, no lock, no formatting.
#![allow(unsafe_code)]

use rustix::io::Errno;
use rustix::thread::UnshareFlags;

/// The kernel's answer to a raw call as a result.
pub(crate) fn check(answer: libc::c_long) -> Result<libc::c_long, Errno> {
    match answer {
        -1 => Err(last_errno()),
        answer => Ok(answer),
    }
}

pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

pub(crate) fn unshare(what: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: network, mount and PID namespaces change no memory and no descriptor of ours. For the first two the
    // thread is alone (a forked child), so no other one loses its view;
    // the last is about the caller's next children alone.
    unsafe { rustix::thread::unshare_unsafe(what) }
}
