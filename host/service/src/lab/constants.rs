//! What is the same in every lab: names, addresses, limits. Scripts and other crates rely on them.
//!
//! ```text
//!   namespace PREFIX-dp                          namespace PREFIX-client
//!   tp-dp      02:54:50:00:00:02  <--- veth --->  tp-client  02:54:50:00:00:01
//!   10.77.0.3/24  the kernel's                    10.77.0.1/24  the kernel's
//!   10.77.0.2     the dataplane's, on no interface
//!   with IPv6, where it is asked for:
//!   fd77::2       the dataplane's, on no interface    fd77::1/64  the kernel's
//! ```
//!
//! The XDP program takes 10.77.0.2 (ARP included) and passes all else, so a kernel server (say,
//! memcached) can be run at 10.77.0.3 over the same pair for comparison. Both answer with the MAC
//! address of `tp-dp`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tailplane::MacAddr;

/// The prefix of the user's lab, the one that `tailplane lab up` makes.
pub const DEFAULT_PREFIX: &str = "tailplane";
/// Ending of the name of the dataplane's namespace.
pub const DATAPLANE_SUFFIX: &str = "-dp";
/// Ending of the name of the client's namespace.
pub const CLIENT_SUFFIX: &str = "-client";
/// Bytes of a prefix: short enough that state files and namespaces keep readable names.
pub const PREFIX_BYTES_MAX: usize = 64;

/// The interface on the dataplane's side.
pub const DATAPLANE_INTERFACE: &str = "tp-dp";
/// The interface on the client's side.
pub const CLIENT_INTERFACE: &str = "tp-client";

/// The kernel's address on the client's side.
pub const CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The dataplane's address. No kernel interface has it: the XDP program takes it.
pub const DATAPLANE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The kernel's address on the dataplane's side, for kernel servers to compare with.
pub const DATAPLANE_KERNEL_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);
/// The address of a load generator on our own dataplane, on the client's side. No kernel interface
/// has it.
pub const CLIENT_DATAPLANE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 4);
/// Length of the subnet's prefix, in bits.
pub const SUBNET_BITS: u8 = 24;
/// The kernel's IPv6 address on the client's side.
pub const CLIENT_ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
/// The IPv6 address that a dataplane may take in the lab.
pub const DATAPLANE_ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
/// Length of their subnet's prefix, in bits.
pub const SUBNET_BITS_V6: u8 = 64;

/// The MAC address of [`CLIENT_INTERFACE`]: locally administered, then "TP".
pub const CLIENT_MAC: [u8; 6] = [0x02, 0x54, 0x50, 0, 0, 1];
/// The MAC address of [`DATAPLANE_INTERFACE`], of the kernel there and of the dataplane.
pub const DATAPLANE_MAC: [u8; 6] = [0x02, 0x54, 0x50, 0, 0, 2];

/// Queue pairs at most. veth allows more, but each needs a UMEM and a core to be of use.
pub const QUEUES_MAX: u32 = 64;

/// The kernel's congestion control in a lab: the reference machine defaults to bbr, which costs the
/// kernel about a fifth of its echo rate, and a comparison with a handicapped peer is none.
pub const FAIR_CONGESTION_CONTROL: &str = "cubic";

/// Where labs are recorded, so that leftovers of a killed process are found.
pub const STATE_DIRECTORY: &str = "/run/tailplane";
/// Where iproute2 keeps named network namespaces.
pub const NETNS_DIRECTORY: &str = "/run/netns";

/// How long to wait for another process that is making or removing a lab.
pub const LOCK_WAIT: Duration = Duration::from_secs(10);
/// How long programs inside a lab have to end after SIGTERM before SIGKILL.
pub const TERMINATION_WAIT: Duration = Duration::from_secs(2);

/// Whether a device feature (by its kernel name) must be off at both ends of the pair.
///
/// veth hands frames over as they are: with checksum offload their checksums are partial, with
/// segmentation offload they are super-frames, with VLAN offload the tag is beside the frame. None
/// of that exists for an AF_XDP socket. Matching by pattern covers kinds that later kernels add.
pub fn is_unwanted_feature(name: &str) -> bool {
    name.starts_with("tx-checksum-")
        || name.ends_with("-segmentation")
        || name == "tx-gso-list"
        || name.starts_with("rx-gro")
        || (name.contains("vlan") && (name.ends_with("-insert") || name.ends_with("-parse")))
}

/// A MAC address as `ip` writes it.
pub fn mac_text(mac: [u8; 6]) -> String {
    MacAddr(mac).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwanted_features_are_the_offloads_only() {
        for name in [
            "tx-checksum-ip-generic",
            "tx-checksum-sctp",
            "tx-tcp-segmentation",
            "tx-generic-segmentation",
            "tx-udp-segmentation",
            "tx-tcp-accecn-segmentation",
            "tx-gso-list",
            "rx-gro",
            "rx-gro-list",
            "tx-vlan-hw-insert",
            "rx-vlan-stag-hw-parse",
        ] {
            assert!(is_unwanted_feature(name), "{name}");
        }
        for name in ["rx-checksum", "tx-scatter-gather", "rx-vlan-filter", "highdma", "loopback"] {
            assert!(!is_unwanted_feature(name), "{name}");
        }
    }

    #[test]
    fn mac_addresses_read_as_ip_prints_them() {
        assert_eq!(mac_text(CLIENT_MAC), "02:54:50:00:00:01");
    }
}
