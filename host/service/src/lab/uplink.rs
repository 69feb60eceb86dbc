//! A dataplane at the client's end whose frames the client's kernel forwards.
//!
//! ```text
//!   namespace PREFIX-client
//!   tp-up  <--- veth --->  tp-down               tp-client  <--- veth --->  tp-dp
//!   10.78.0.2, a           10.78.0.1/24, the     10.77.0.1/24
//!   dataplane's            kernel's
//! ```
//!
//! What an AF_XDP socket sends from `tp-client` itself passes no program of the kernel's; what comes from here does,
//! as the kernel routes it to `tp-client`: the lab's indirection table ([`Lab::steer`]) holds for it. The dataplane at
//! the other end reaches it by its gateway, 10.77.0.1.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

use super::constants::{CLIENT_ADDRESS, SUBNET_BITS};
use super::error::LabError;
use super::ip::ip;
use super::netns::in_namespace;
use super::pair::disable_offloads;
use super::state::file_error;
use super::up::Lab;

/// The interface for the dataplane.
pub const UPLINK_INTERFACE: &str = "tp-up";
/// The kernel's end.
const KERNEL_INTERFACE: &str = "tp-down";
/// The dataplane's address: on no interface of the kernel's.
pub const UPLINK_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
/// The kernel's address on it: the dataplane's gateway.
pub const UPLINK_GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
/// The gateway of the dataplane at the other end of the lab.
pub const GATEWAY_OF_THE_DATAPLANE: Ipv4Addr = CLIENT_ADDRESS;

impl Lab {
    /// Makes the uplink. It goes with the lab.
    ///
    /// # Errors
    /// What could not be made; that there is one already.
    pub fn add_uplink(&self) -> Result<(), LabError> {
        let client = self.client();
        let kind = ["type", "veth", "peer", "name", KERNEL_INTERFACE];
        client.ip(&[&["link", "add", "name", UPLINK_INTERFACE][..], &kind].concat())?;
        for interface in [UPLINK_INTERFACE, KERNEL_INTERFACE] {
            in_namespace(client, || disable_offloads(interface))??;
        }
        let address = format!("{UPLINK_GATEWAY}/{SUBNET_BITS}");
        client.ip(&["addr", "add", &address, "dev", KERNEL_INTERFACE])?;
        for interface in [UPLINK_INTERFACE, KERNEL_INTERFACE] {
            client.ip(&["link", "set", interface, "up"])?;
        }
        in_namespace(client, || {
            let path = Path::new("/proc/sys/net/ipv4/ip_forward");
            fs::write(path, "1").map_err(file_error("write", path))
        })?
    }

    /// Frames that the lab's devices have dropped so far, or could not make sense of, in either direction.
    ///
    /// # Errors
    /// What `ip` said, or that it makes no sense.
    pub fn drops(&self) -> anyhow::Result<u64> {
        let mut total = 0;
        for namespace in [self.dataplane(), self.client()] {
            let text = ip(&["-n", namespace.name(), "-s", "-j", "link", "show"])?;
            let links: Vec<Link> =
                serde_json::from_str(&text).context("reading `ip -s -j link`")?;
            let of = |link: &Link| {
                let Counters { rx, tx } = &link.stats64;
                rx.dropped + rx.errors + tx.dropped + tx.errors
            };
            total += links.iter().map(of).sum::<u64>();
        }
        Ok(total)
    }
}

/// What `ip` tells of an interface, as far as it matters here.
#[derive(Deserialize)]
struct Link {
    stats64: Counters,
}

#[derive(Deserialize)]
struct Counters {
    rx: Direction,
    tx: Direction,
}

#[derive(Deserialize)]
struct Direction {
    dropped: u64,
    errors: u64,
}
