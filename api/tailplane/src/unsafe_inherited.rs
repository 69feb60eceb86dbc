//! A descriptor that the process was started with.
//!
//! `unsafe` because a number becomes an owned descriptor, which nobody else may own: it is asked for once in the
//! life of the process, and whoever started the process says which number it is.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Takes descriptor `number`. None: it was taken before, or is not open.
pub(crate) fn take(number: RawFd) -> Option<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if number < 0 || TAKEN.swap(true, Ordering::Relaxed) {
        return None;
    }
    // SAFETY: the call only asks about a number.
    let open = unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
    // SAFETY: it is open; the starter left it to this process, whose only taker this is.
    open.then(|| unsafe { OwnedFd::from_raw_fd(number) })
}
