//! The two NICs of the guest: `dp0` is the dataplane's, `cl0` the client's, in a namespace of its own.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};

use super::command::{self, wait_until};
use crate::protocol::{CLIENT_MAC, DATAPLANE_MAC, Driver};

/// The dataplane's NIC.
pub const DATAPLANE: &str = "dp0";
/// The client's NIC.
pub const CLIENT: &str = "cl0";
/// The client's namespace.
pub const NAMESPACE: &str = "c";
/// The client's address, with its prefix.
pub const CLIENT_ADDRESS: &str = "10.9.0.1/24";
/// Longest time until a driver has made its interfaces, and until their links are up.
const NIC_LIMIT: Duration = Duration::from_secs(20);

/// Sets both NICs up.
///
/// # Errors
/// One is not there, or its link does not come up.
pub fn set_up(driver: Driver) -> anyhow::Result<()> {
    ip("link set lo up")?;
    match driver {
        Driver::Veth => make_pair()?,
        _ => name_both()?,
    }
    ip(&format!("netns add {NAMESPACE}"))?;
    ip(&format!("link set {CLIENT} netns {NAMESPACE}"))?;
    for line in [
        "link set lo up".to_owned(),
        format!("addr add {CLIENT_ADDRESS} dev {CLIENT}"),
        format!("link set {CLIENT} up"),
    ] {
        ip(&format!("-n {NAMESPACE} {line}"))?;
    }
    if driver == Driver::Veth {
        // A NIC completes checksums and cuts segments on their way out; a veth device leaves both to the receiver, and
        // AF_XDP shows frames as they are.
        command::run(&format!(
            "ip netns exec {NAMESPACE} ethtool -K {CLIENT} tx off tso off gso off"
        ))?;
    }
    ip(&format!("link set {DATAPLANE} up"))?;
    wait_for_links()
}

/// A veth pair with as many queues as the other NICs have.
fn make_pair() -> anyhow::Result<()> {
    let queues = Driver::Veth.queues();
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    ip(&format!(
        "link add {DATAPLANE} address {DATAPLANE_MAC} {queues} type veth peer {CLIENT} address {CLIENT_MAC} {queues}"
    ))
}

/// Waits for both NICs, and names them by their link addresses.
fn name_both() -> anyhow::Result<()> {
    for (mac, name) in [(DATAPLANE_MAC, DATAPLANE), (CLIENT_MAC, CLIENT)] {
        let mut found = None;
        wait_until(NIC_LIMIT, || {
            found = interface_with(mac);
            found.is_some()
        });
        let found = found.with_context(|| format!("no interface has the link address {mac}"))?;
        ip(&format!("link set {found} down"))?;
        ip(&format!("link set {found} name {name}"))?;
    }
    Ok(())
}

fn interface_with(mac: &str) -> Option<String> {
    let mut interfaces = fs::read_dir("/sys/class/net").ok()?.flatten();
    let has_it = |path: &Path| {
        fs::read_to_string(path.join("address")).is_ok_and(|found| found.trim() == mac)
    };
    let found = interfaces.find(|entry| has_it(&entry.path()))?;
    Some(found.file_name().to_string_lossy().into_owned())
}

/// Waits until both links are up.
///
/// # Errors
/// One does not come up.
pub fn wait_for_links() -> anyhow::Result<()> {
    let is_up = || has_carrier() && client_has_carrier();
    if !wait_until(NIC_LIMIT, is_up) {
        bail!(
            "no link after {} s: {DATAPLANE} {}, {CLIENT} {}",
            NIC_LIMIT.as_secs(),
            if has_carrier() { "up" } else { "down" },
            if client_has_carrier() { "up" } else { "down" },
        );
    }
    Ok(())
}

/// Whether the dataplane's link is up.
pub fn has_carrier() -> bool {
    let file = format!("/sys/class/net/{DATAPLANE}/carrier");
    fs::read_to_string(file).is_ok_and(|found| found.trim() == "1")
}

fn client_has_carrier() -> bool {
    let shown = command::run(&format!("ip -n {NAMESPACE} link show {CLIENT}"));
    shown.is_ok_and(|text| text.contains("LOWER_UP"))
}

/// Runs `ip` with these words.
///
/// # Errors
/// What it printed.
pub fn ip(words: &str) -> anyhow::Result<()> {
    command::run(&format!("ip {words}")).map(drop)
}
