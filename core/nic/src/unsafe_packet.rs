//! Packet sockets: one sends whole frames from an interface, through all that the kernel does to outgoing ones, and one
//! has an interface accept multicast addresses.
//!
//! This module holds `unsafe` for calls whose arguments `rustix` has no types for.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use wire::MacAddr;

/// A socket that sends from the interface with this index, in the calling thread's network namespace, and marks
/// what it sends. It receives nothing.
pub(crate) fn sender(interface: u32, mark: u32) -> io::Result<OwnedFd> {
    let socket = socket()?;
    // SAFETY: all-zero bytes are a `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = interface as i32;
    let (of, len) = (std::ptr::from_ref(&address).cast(), size_of_val(&address) as u32);
    // SAFETY: the kernel reads as many bytes as the structure has.
    check(unsafe { libc::bind(socket.as_raw_fd(), of, len) })?;
    set(&socket, libc::SOL_SOCKET, libc::SO_MARK, &mark)?;
    Ok(socket)
}

/// A socket through which the interface with this index, in the calling thread's network namespace, accepts frames to
/// these multicast addresses, until the socket is closed. The socket itself receives nothing.
pub(crate) fn member(interface: u32, groups: &[MacAddr]) -> io::Result<OwnedFd> {
    let socket = socket()?;
    for group in groups {
        let mut address = [0; 8];
        address[..group.0.len()].copy_from_slice(&group.0);
        let request = libc::packet_mreq {
            mr_ifindex: interface as i32,
            mr_type: libc::PACKET_MR_MULTICAST as u16,
            mr_alen: group.0.len() as u16,
            mr_address: address,
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)?;
    }
    Ok(socket)
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Without a protocol: such a socket is given no frame.
    Ok(socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?)
}

fn set<T>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let (of, len) = (std::ptr::from_ref(value).cast(), size_of_val(value) as u32);
    // SAFETY: the kernel reads as many bytes as the value has.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, of, len) })
}

fn check(answer: libc::c_int) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
