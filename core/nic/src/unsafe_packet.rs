//! A socket that sends whole frames from an interface, through all that the kernel does to outgoing ones.
//!
//! This module holds `unsafe` for two calls whose arguments `rustix` has no types for.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// A socket that sends from the interface with this index, in the calling thread's network namespace, and marks
/// what it sends. It receives nothing.
pub(crate) fn sender(interface: u32, mark: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Without a protocol: such a socket is given no frame.
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    // SAFETY: all-zero bytes are a `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = interface as i32;
    let (of, len) = (std::ptr::from_ref(&address).cast(), size_of_val(&address) as u32);
    // SAFETY: the kernel reads as many bytes as the structure has.
    check(unsafe { libc::bind(socket.as_raw_fd(), of, len) })?;
    let (of, len) = (std::ptr::from_ref(&mark).cast(), size_of_val(&mark) as u32);
    // SAFETY: as above.
    check(unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MARK, of, len)
    })?;
    Ok(socket)
}

fn check(answer: libc::c_int) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
