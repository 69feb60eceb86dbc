//! Builds what is inside a lab: the veth pair, its addresses, its offloads (off), quiet stacks.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use super::config::{CongestionControl, LabConfig};
use super::congestion;
use super::constants::{
    CLIENT_ADDRESS, CLIENT_ADDRESS_V6, CLIENT_INTERFACE, CLIENT_MAC, DATAPLANE_INTERFACE,
    DATAPLANE_KERNEL_ADDRESS, DATAPLANE_MAC, SUBNET_BITS, SUBNET_BITS_V6, is_unwanted_feature,
    mac_text,
};
use super::error::LabError;
use super::ip::ip;
use super::netns::{Namespace, in_namespace};
use super::site::Site;
use super::state::file_error;
use nic::Ethtool;

/// One end while it is being built.
struct End<'a> {
    namespace: &'a Namespace,
    interface: &'static str,
    address: Ipv4Addr,
}

/// Furnishes the two namespaces, which exist. Each step is one that removal can wait for.
pub(super) fn build(site: &Site, config: &LabConfig) -> Result<(), LabError> {
    let ends = [
        End {
            namespace: &site.dataplane,
            interface: DATAPLANE_INTERFACE,
            address: DATAPLANE_KERNEL_ADDRESS,
        },
        End { namespace: &site.client, interface: CLIENT_INTERFACE, address: CLIENT_ADDRESS },
    ];
    for end in &ends {
        // Before the interfaces exist, so that they never send a router solicitation.
        site.step(|| in_namespace(end.namespace, disable_ipv6)?)?;
        site.step(|| end.namespace.ip(&["link", "set", "lo", "up"]))?;
        if let CongestionControl::Named(algorithm) = &config.congestion_control {
            site.step(|| in_namespace(end.namespace, || congestion::choose(algorithm)))?;
        }
    }
    site.step(|| make_pair(site))?;
    for end in &ends {
        site.step(|| in_namespace(end.namespace, || disable_offloads(end.interface))?)?;
        let address = format!("{}/{SUBNET_BITS}", end.address);
        site.step(|| end.namespace.ip(&["addr", "add", &address, "dev", end.interface]))?;
    }
    for end in &ends {
        site.step(|| end.namespace.ip(&["link", "set", end.interface, "up"]))?;
    }
    if config.ipv6 {
        site.step(|| in_namespace(&site.client, speak_ipv6)?)?;
        let address = format!("{CLIENT_ADDRESS_V6}/{SUBNET_BITS_V6}");
        let add = ["addr", "add", &address, "dev", CLIENT_INTERFACE, "nodad"];
        site.step(|| site.client.ip(&add))?;
    }
    Ok(())
}

/// The client's end speaks IPv6, with no address but those that it is given, and without asking for routers.
fn speak_ipv6() -> Result<(), LabError> {
    for (scope, key, value) in [
        (CLIENT_INTERFACE, "addr_gen_mode", "1"),
        (CLIENT_INTERFACE, "accept_ra", "0"),
        (CLIENT_INTERFACE, "router_solicitations", "0"),
        ("lo", "disable_ipv6", "0"),
        (CLIENT_INTERFACE, "disable_ipv6", "0"),
    ] {
        let path = PathBuf::from(format!("/proc/sys/net/ipv6/conf/{scope}/{key}"));
        fs::write(&path, value).map_err(file_error("write", &path))?;
    }
    Ok(())
}

/// Both ends are born inside their namespaces: their names collide with nobody's.
fn make_pair(site: &Site) -> Result<(), LabError> {
    let queues = site.queues.to_string();
    let (dataplane_mac, client_mac) = (mac_text(DATAPLANE_MAC), mac_text(CLIENT_MAC));
    let mut arguments = vec!["link", "add", "name", DATAPLANE_INTERFACE];
    arguments.extend(["netns", site.dataplane.name(), "address", &dataplane_mac]);
    arguments.extend(["numrxqueues", &queues, "numtxqueues", &queues]);
    arguments.extend(["type", "veth", "peer", "name", CLIENT_INTERFACE]);
    arguments.extend(["netns", site.client.name(), "address", &client_mac]);
    arguments.extend(["numrxqueues", &queues, "numtxqueues", &queues]);
    ip(&arguments).map(drop)
}

/// Less noise: no neighbour discovery, no router solicitations in captures and counters.
fn disable_ipv6() -> Result<(), LabError> {
    for scope in ["all", "default"] {
        let path = PathBuf::from(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"));
        match fs::write(&path, "1") {
            // A kernel without IPv6 has none to disable.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(file_error("write", &path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Switches off what an AF_XDP socket cannot live with, on an interface of the calling thread's namespace, and reads back
/// that it is off.
///
/// # Errors
/// The interface keeps it on.
pub fn disable_offloads(interface: &'static str) -> Result<(), LabError> {
    let failed = |action| {
        move |error| {
            LabError::Failed(format!("cannot {action} of {interface} (SIOCETHTOOL): {error}"))
        }
    };
    let device = Ethtool::open(interface).map_err(failed("open a socket for the features"))?;
    let unwanted_now = || -> Result<Vec<String>, LabError> {
        let features = device.features().map_err(failed("read the features"))?;
        let unwanted = features.into_iter().filter(|(name, on)| *on && is_unwanted_feature(name));
        Ok(unwanted.map(|(name, _)| name).collect())
    };
    let before = unwanted_now()?;
    let names: Vec<&str> = before.iter().map(String::as_str).collect();
    device.set_features(&names, false).map_err(failed("switch off the features"))?;
    let left = unwanted_now()?;
    if left.is_empty() {
        return Ok(());
    }
    Err(LabError::Failed(format!(
        "{interface} keeps offloads on that an AF_XDP socket cannot live with: {}; \
         this kernel's veth cannot carry a lab",
        left.join(", ")
    )))
}
