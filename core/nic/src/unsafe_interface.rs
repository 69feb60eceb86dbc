//! Facts about a network interface, by the `SIOCGIF*` ioctls and `getifaddrs`.
//!
//! They look in the calling thread's network namespace; `/sys/class/net` shows that of whoever
//! mounted it, which is another one after `setns`. This module holds `unsafe` for the calls.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use wire::{Ipv4Addr, MacAddr};

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index in its namespace.
    pub index: u32,
    /// Its link address.
    pub mac: MacAddr,
    /// Largest payload of a frame, in bytes.
    pub mtu: usize,
    /// `ARPHRD_*`; 1 is Ethernet.
    pub hardware_type: u16,
}

impl Interface {
    /// Looks an interface up in the calling thread's network namespace.
    ///
    /// # Errors
    /// What the kernel said: `ENODEV` where there is none of that name.
    pub fn by_name(name: &str) -> io::Result<Self> {
        let socket = control_socket()?;
        let index = index(&socket, name)?;
        let mut request = request_for(name)?;
        ioctl(&socket, libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: as above.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        ioctl(&socket, libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: as above.
        let mtu = usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0);
        let mut mac = [0; 6];
        for (to, from) in mac.iter_mut().zip(address.sa_data) {
            *to = from as u8;
        }
        let hardware_type = address.sa_family;
        Ok(Self { name: name.into(), index, mac: MacAddr(mac), mtu, hardware_type })
    }

    /// The name of the interface on which the kernel has an address, in the calling thread's network namespace.
    ///
    /// # Errors
    /// What the kernel said to a request for all addresses.
    pub fn name_with(address: IpAddr) -> io::Result<Option<String>> {
        let mut list = std::ptr::null_mut();
        // SAFETY: the call writes a list to `list`, or fails.
        if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut found = None;
        let mut next = list;
        // SAFETY: an entry is whole and lives until the list is freed below; null is the end.
        while let Some(entry) = unsafe { next.as_ref() } {
            // SAFETY: an entry's address is null, or one of the kind that its family says.
            if unsafe { ip(entry.ifa_addr) } == Some(address) {
                // SAFETY: an entry's name is a string that ends with a null byte.
                let name = unsafe { CStr::from_ptr(entry.ifa_name) };
                found = Some(name.to_string_lossy().into_owned());
                break;
            }
            next = entry.ifa_next;
        }
        // SAFETY: the call above made the list, and nothing refers to it any more.
        unsafe { libc::freeifaddrs(list) };
        Ok(found)
    }
}

/// The IP address that a socket address holds.
///
/// # Safety
/// It is null, or a whole one of the kind that its family says.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: as the caller promises.
    let family = unsafe { address.as_ref() }?.sa_family;
    match libc::c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: as the caller promises: the family is that of this type.
            let of = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(of.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as the caller promises: the family is that of this type.
            let of = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(of.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

/// Whether an interface of the calling thread's network namespace is up (`IFF_UP`), with a cable or without.
pub(crate) fn is_up(name: &str) -> io::Result<bool> {
    let (socket, mut request) = (control_socket()?, request_for(name)?);
    ioctl(&socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the call that succeeded fills this member of the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(libc::c_int::from(flags) & libc::IFF_UP != 0)
}

/// The index of an interface in the namespace of a socket.
pub(crate) fn index(socket: &OwnedFd, name: &str) -> io::Result<u32> {
    let mut request = request_for(name)?;
    ioctl(socket, libc::SIOCGIFINDEX, &mut request)?;
    // SAFETY: the call that succeeded fills this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex } as u32)
}

/// A socket to address ioctls to.
pub(crate) fn control_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// A request about `name`.
pub(crate) fn request_for(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero bytes are an `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let fits = !name.is_empty() && name.len() < request.ifr_name.len();
    if !fits || name.bytes().any(|byte| byte == 0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// One of the `SIOCGIF*` calls, all of which read and write an `ifreq`.
fn ioctl(socket: &OwnedFd, call: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: `request` is a whole `ifreq`, as these calls want.
    match unsafe { libc::ioctl(socket.as_raw_fd(), call, std::ptr::from_mut(request)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found() {
        let lo = Interface::by_name("lo").expect("every namespace has one");
        assert_eq!((lo.index, lo.mac, lo.hardware_type), (1, MacAddr::default(), 772));
        assert!(lo.mtu >= 1500);
    }

    #[test]
    fn an_address_has_its_interface() {
        let name = |text: &str| Interface::name_with(text.parse().expect("one")).expect("a list");
        assert_eq!(name("127.0.0.1").as_deref(), Some("lo"));
        // TEST-NET-1 (RFC 5737), and for documentation (RFC 3849).
        assert_eq!((name("192.0.2.1"), name("0.0.0.0")), (None, None));
        assert_eq!((name("2001:db8::1"), name("::")), (None, None));
    }

    #[test]
    fn nonsense_is_refused() {
        for name in ["", "a\0b", "no-such-interface", "surely-longer-than-fifteen"] {
            assert!(Interface::by_name(name).is_err(), "{name:?}");
        }
    }
}
