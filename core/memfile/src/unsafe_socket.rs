//! Options of Unix sockets that `rustix` does not have.
//!
//! This module holds `unsafe` because it makes the calls by `libc`.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libc::{c_int, socklen_t};

/// asm-generic/socket.h: `SO_PASSRIGHTS`.
const SO_PASSRIGHTS: c_int = 83;
const INT_BYTES: socklen_t = size_of::<c_int>() as socklen_t;

/// Has the kernel refuse messages with descriptors to a socket, or to a listening one's connections: the sender gets
/// `EPERM` (`SO_PASSRIGHTS`, Linux 6.16).
///
/// Without it a peer can send descriptors along with its messages, though its receiver takes none. Dropping such a
/// message closes them for the last time, and that can block: for an hour, where one is a TCP socket with `SO_LINGER` and
/// bytes that its peer does not take.
///
/// # Errors
/// `ENOPROTOOPT`: the kernel is older than that.
pub fn refuse_descriptors(socket: impl AsFd) -> io::Result<()> {
    let (socket, off) = (socket.as_fd().as_raw_fd(), 0 as c_int);
    let at = (&raw const off).cast();
    // SAFETY: the kernel reads `INT_BYTES` bytes at `at`, which lives as long as the call.
    match unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, SO_PASSRIGHTS, at, INT_BYTES) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The pidfd of the process that connected, or that called `listen` (`SO_PEERPIDFD`, Linux 6.5).
///
/// A pidfd names one process for ever, where the number in `SO_PEERCRED` may belong to another one by now.
///
/// # Errors
/// `ENOPROTOOPT` on an older kernel; another error where the process has ended.
pub fn peer_pidfd(socket: impl AsFd) -> io::Result<OwnedFd> {
    let (mut raw, mut bytes): (c_int, _) = (-1, INT_BYTES);
    let (socket, at) = (socket.as_fd().as_raw_fd(), (&raw mut raw).cast());
    // SAFETY: the kernel writes at most `bytes` bytes at `at`, which has them, and the length to `bytes`.
    let status = unsafe {
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERPIDFD, at, &raw mut bytes)
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    if raw < 0 {
        return Err(io::Error::other("the kernel returned no descriptor for the peer's process"));
    }
    // SAFETY: the kernel has just made this descriptor for the caller, and no other code has seen it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}
