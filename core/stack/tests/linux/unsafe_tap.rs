//! A network namespace for this thread, and a TAP device in it: two calls that rustix has no safe form of.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// Moves the calling thread to a new network namespace, which lasts as long as it and its files.
///
/// # Errors
/// The kernel's: `EPERM` without privileges.
pub fn new_namespace() -> io::Result<()> {
    // SAFETY: `unshare` takes no pointer, and changes nothing but what network the calling thread is in.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A TAP device of this name: each write is a frame that it receives, each read one that it sends. Never blocks.
///
/// # Errors
/// The kernel's.
pub fn open(name: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file =
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    // SAFETY: all zeros are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    for (to, byte) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
    // SAFETY: the descriptor is open, and the request lives and is initialised throughout the call, which reads it and
    // writes the name.
    match unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}
