//! Options of Unix sockets that the kernel may have, tried on a pair of them.
//!
//! `unsafe` because `rustix` does not have these options.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// asm-generic/socket.h, from Linux 6.16 on.
const SO_PASSRIGHTS: libc::c_int = 83;
const INT_BYTES: libc::socklen_t = size_of::<libc::c_int>() as libc::socklen_t;

/// Whether the kernel can keep descriptors from a socket.
pub fn has_passrights() -> bool {
    let Ok((near, _far)) = UnixStream::pair() else { return false };
    let none: libc::c_int = 0;
    let at = (&raw const none).cast();
    // SAFETY: the kernel reads `INT_BYTES` bytes at `at`, which has them.
    unsafe {
        libc::setsockopt(near.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, at, INT_BYTES) == 0
    }
}

/// Whether the kernel says by pidfd which process is at the other end of a socket.
pub fn has_peer_pidfd() -> bool {
    let Ok((near, _far)) = UnixStream::pair() else { return false };
    let (mut raw, mut bytes): (libc::c_int, _) = (-1, INT_BYTES);
    let at = (&raw mut raw).cast();
    // SAFETY: the kernel writes at most `bytes` bytes at `at`, which has them, and the length to `bytes`.
    let status = unsafe {
        let socket = near.as_raw_fd();
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERPIDFD, at, &raw mut bytes)
    };
    if status != 0 || raw < 0 {
        return false;
    }
    // SAFETY: the kernel has just made this descriptor, and no other code has seen it: it closes here.
    drop(unsafe { OwnedFd::from_raw_fd(raw) });
    true
}
