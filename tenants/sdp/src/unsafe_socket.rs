//! A socket option that `rustix` does not have: `SO_PASSRIGHTS` (Linux 6.16).
//!
//! Without it a tenant can send descriptors along with its messages, though nobody receives them. The
//! control thread then closes them for the last time when it drops the message, and that can block: for
//! an hour, where one is a TCP socket with `SO_LINGER` and bytes that nobody takes.
//!
//! This module holds `unsafe` because it makes the call by `libc`.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// asm-generic/socket.h: `SO_PASSRIGHTS`.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Has the kernel refuse messages with descriptors to a listening socket's connections: the sender gets
/// `EPERM`.
///
/// # Errors
/// `ENOPROTOOPT`: the kernel is older than that.
pub(crate) fn refuse_descriptors(listener: BorrowedFd<'_>) -> io::Result<()> {
    let off: libc::c_int = 0;
    // SAFETY: the kernel reads four bytes from `off`, which lives as long as the call.
    let done = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
