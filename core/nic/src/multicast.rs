//! Multicast link addresses that an interface accepts.
//!
//! A device receives frames to its own link address, to all stations, and to the multicast addresses that its kernel
//! asked it for: those of the kernel's own IPv6 addresses. The kernel does not have the dataplane's IPv6 addresses, so
//! the dataplane asks for the groups in which neighbours solicit their link address.
//!
//! ```no_run
//! use nic::multicast::{self, Membership};
//! # fn accept() -> Result<(), Box<dyn std::error::Error>> {
//! let membership = Membership::join("eth0", &[multicast::solicited_node("2001:db8::2".parse()?)])?;
//! // Neighbours' solicitations for 2001:db8::2 come to the device's queues ...
//! drop(membership);
//! // ... and now the device filters them.
//! # Ok(()) }
//! ```
//!
//! The membership is one of the link layer alone: the kernel sends no reports of it (MLD, RFC 3810). A switch that
//! forwards multicast by reports ("MLD snooping") forwards solicitations for the dataplane's addresses only where it
//! floods solicited-node groups.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;

use wire::MacAddr;

use crate::unsafe_interface::Interface;
use crate::unsafe_packet;

/// The link address of an address's solicited-node group: 33:33:ff and the address's last 24 bits (RFC 4291 §2.7.1,
/// RFC 2464 §7).
pub fn solicited_node(address: Ipv6Addr) -> MacAddr {
    let [.., a, b, c] = address.octets();
    MacAddr([0x33, 0x33, 0xff, a, b, c])
}

/// Has an interface accept frames to multicast addresses as long as it lives. Memberships count: an address is accepted
/// until the last one that asks for it is dropped, the kernel's own included.
#[derive(Debug)]
pub struct Membership {
    /// The kernel ends the membership of a packet socket when that is closed.
    _socket: OwnedFd,
}

impl Membership {
    /// Asks an interface of the calling thread's network namespace for frames to `groups`.
    ///
    /// # Errors
    /// There is no such interface (`ENODEV`), an address is not a multicast one (`InvalidInput`), or the kernel refuses
    /// (`EPERM` without `CAP_NET_RAW`).
    pub fn join(interface: &str, groups: &[MacAddr]) -> io::Result<Self> {
        if let Some(unicast) = groups.iter().find(|group| !group.is_multicast()) {
            let error =
                format!("cannot join {unicast}: found no group bit; name a multicast address");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        let interface = Interface::by_name(interface)?;
        Ok(Self { _socket: unsafe_packet::member(interface.index, groups)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_the_last_bytes_of_its_address() {
        let address = "2001:db8::1234:56ab:cdef".parse().expect("an address");
        assert_eq!(solicited_node(address).to_string(), "33:33:ff:ab:cd:ef");
    }

    #[cfg(not(miri))]
    #[test]
    fn nonsense_is_refused() {
        let group = solicited_node(Ipv6Addr::LOCALHOST);
        let error = Membership::join("no-such-device", &[group]).expect_err("none");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{error}");
        let error = Membership::join("lo", &[group, MacAddr([2; 6])]).expect_err("a station's");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    }
}
