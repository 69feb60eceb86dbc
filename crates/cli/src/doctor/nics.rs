//! Network interfaces: driver, queues, RSS table, and what AF_XDP can expect of them.

use std::io;

use super::{Check, Root};
use nic::Ethtool;

const GROUP: &str = "nics";
const INTERFACES: &str = "sys/class/net";
/// `ARPHRD_ETHER`.
const ETHERNET: i64 = 1;

/// Drivers of the kernel tree that implement AF_XDP zero-copy. Whether a given kernel and card do
/// shows when a socket is bound.
const ZERO_COPY_DRIVERS: [&str; 9] =
    ["i40e", "ice", "ixgbe", "igc", "igb", "mlx5_core", "stmmac", "gve", "virtio_net"];
/// Drivers that run XDP programs themselves, without zero-copy: still no socket buffer per packet.
const NATIVE_DRIVERS: [&str; 9] =
    ["veth", "tun", "ena", "bnxt_en", "mlx4_en", "nfp", "hv_netvsc", "ixgbevf", "sfc"];

/// Entries of an interface's RSS indirection table.
///
/// # Errors
/// It has none (`EOPNOTSUPP`), or cannot be asked.
pub fn probe_rss(interface: &str) -> io::Result<u32> {
    Ethtool::open(interface)?.rss_entries()
}

/// The checks, one per Ethernet interface that stands for a device, given a way to ask for the RSS
/// table's size.
pub fn checks(root: &Root, rss: impl Fn(&str) -> io::Result<u32>) -> Vec<Check> {
    let mut checks: Vec<Check> = Vec::new();
    for name in root.list(INTERFACES) {
        let path = format!("{INTERFACES}/{name}");
        // Bridges, VLANs and the loopback have no device: no queue of theirs can be bound.
        let is_device = root.exists(format!("{path}/device"));
        if is_device && root.number(format!("{path}/type")) == Some(ETHERNET) {
            checks.push(interface(root, &name, rss(&name).unwrap_or(0)));
        }
    }
    if checks.is_empty() {
        checks.push(Check::ok(GROUP, "interfaces", "no Ethernet device").warn(
            "no traffic from other machines: only the lab, shared memory and simulation",
            "use `tailplane lab up`, or a machine with a NIC",
        ));
    }
    checks
}

fn interface(root: &Root, name: &str, rss_entries: u32) -> Check {
    let path = format!("{INTERFACES}/{name}");
    let driver = driver(root, &path);
    let queues = root.list(format!("{path}/queues"));
    let count = |kind: &str| queues.iter().filter(|queue| queue.starts_with(kind)).count();
    let (receive, transmit) = (count("rx-"), count("tx-"));
    let mode = if ZERO_COPY_DRIVERS.contains(&driver.as_str()) {
        "native XDP, zero-copy"
    } else if NATIVE_DRIVERS.contains(&driver.as_str()) {
        "native XDP, copy"
    } else {
        "generic XDP, copy"
    };
    let table = match rss_entries {
        0 => "no RSS table".to_owned(),
        entries => format!("RSS table of {entries}"),
    };
    let found = format!("{driver}: {receive} rx and {transmit} tx queues, {table}, {mode}");
    let check = Check::ok(GROUP, name, found);
    let mut costs = Vec::new();
    if mode.starts_with("generic") {
        costs.push("the kernel makes a socket buffer per packet before XDP runs");
    } else if mode.ends_with("copy") && !mode.ends_with("zero-copy") {
        costs.push("each packet is copied once by the kernel");
    }
    if receive < 2 {
        costs.push("one queue: one core polls, the others get their flow groups forwarded");
    } else if rss_entries == 0 {
        costs.push("flow groups cannot be moved in the NIC: packets are forwarded between cores");
    }
    if costs.is_empty() {
        return check;
    }
    check.warn(
        costs.join("; "),
        "use a NIC with several queues, a programmable RSS table and AF_XDP zero-copy (ice, mlx5)",
    )
}

fn driver(root: &Root, path: &str) -> String {
    let driver = root.link(format!("{path}/device/driver"));
    driver.unwrap_or_else(|| "unknown driver".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::super::root::tests::FakeRoot;
    use super::*;

    fn machine(driver: &str, queues: usize) -> FakeRoot {
        let mut fake = FakeRoot::with(&[
            ("sys/class/net/eth0/type", "1"),
            ("sys/class/net/br0/type", "1"),
            ("sys/class/net/lo/type", "772"),
        ])
        .link("sys/class/net/eth0/device/driver", &format!("../../bus/pci/drivers/{driver}"));
        for queue in 0..queues {
            fake = fake
                .directory(&format!("sys/class/net/eth0/queues/rx-{queue}"))
                .directory(&format!("sys/class/net/eth0/queues/tx-{queue}"));
        }
        fake
    }

    #[test]
    fn a_good_nic_has_nothing_to_complain_of() {
        let fake = machine("ice", 4);
        let found = checks(&fake.root(), |_| Ok(512));
        assert_eq!(found.len(), 1, "the bridge and the loopback are no devices: {found:?}");
        assert_eq!(found[0].status, Status::Ok, "{found:?}");
        assert!(found[0].found.contains("4 rx and 4 tx queues, RSS table of 512"), "{found:?}");
    }

    #[test]
    fn every_shortcoming_has_its_cost() {
        let fake = machine("e1000", 1);
        let found = &checks(&fake.root(), |_| Err(io::Error::from_raw_os_error(95)))[0];
        assert_eq!(found.status, Status::Warn);
        assert!(found.cost.contains("socket buffer") && found.cost.contains("one queue"));
        let fake = machine("ena", 2);
        let found = &checks(&fake.root(), |_| Ok(0))[0];
        assert!(found.cost.contains("copied once") && found.cost.contains("forwarded"));
    }

    #[test]
    fn a_machine_without_a_device_is_sent_to_the_lab() {
        let found = checks(&FakeRoot::with(&[]).root(), |_| Ok(0));
        assert!(found[0].remedy.contains("lab up"), "{found:?}");
    }
}
