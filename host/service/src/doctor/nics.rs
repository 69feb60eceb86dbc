//! Network interfaces: driver, queues, RSS table, what the kernel declares of XDP, and what their drivers ask for it.

use std::io;

use nic::device::Device;
use nic::driver_rules::{Purpose, broken};

use super::check::Check;
use super::root::Root;

const INTERFACES: &str = "sys/class/net";
/// `ARPHRD_ETHER`.
const ETHERNET: i64 = 1;

/// What serves a dataplane best.
pub(super) const GOOD_NIC: &str =
    "use a NIC with several queues, a programmable RSS table and AF_XDP zero-copy (ice, mlx5)";

/// The checks, one per Ethernet interface that stands for a device, given a way to [look](Device::look) at it. The report
/// has what trying showed of the interfaces in `probed`.
pub fn checks(
    root: &Root,
    look: impl Fn(&str) -> io::Result<Device>,
    probed: &[String],
) -> Vec<Check> {
    let mut checks: Vec<Check> = Vec::new();
    for name in root.list(INTERFACES) {
        let path = format!("{INTERFACES}/{name}");
        // Bridges, VLANs and the loopback have no device: no queue of theirs can be bound.
        let is_device = root.exists(format!("{path}/device"));
        if is_device && root.number(format!("{path}/type")) == Some(ETHERNET) {
            checks.push(match look(&name) {
                Ok(device) => interface(root, &device, probed.contains(&name)),
                Err(error) => Check::ok(name, format!("cannot be looked at: {error}")).warn(
                    "nothing is known of it",
                    "run in the network namespace that the interface is in",
                ),
            });
        }
    }
    if checks.is_empty() {
        checks.push(Check::ok("interfaces", "no Ethernet device").warn(
            "no traffic from other machines: only the lab, shared memory and simulation",
            "use `tailplane lab up`, or a machine with a NIC",
        ));
    }
    checks
}

fn interface(root: &Root, device: &Device, is_probed: bool) -> Check {
    let name = &device.interface.name;
    let queues = root.list(format!("{INTERFACES}/{name}/queues"));
    let count = |kind: &str| queues.iter().filter(|queue| queue.starts_with(kind)).count();
    let (receive, transmit) = (count("rx-"), count("tx-"));
    let table = match device.rss_entries {
        None => "no RSS table".to_owned(),
        Some(entries) => format!("RSS table of {entries}"),
    };
    let (driver, mode) = (&device.driver, declared(device, is_probed));
    let completes = device.xdp.is_some_and(|declared| declared.tx_checksum);
    let checksums = if completes { ", completes sent checksums in zero-copy mode" } else { "" };
    let found =
        format!("{driver}: {receive} rx and {transmit} tx queues, {table}{mode}{checksums}");
    let (has_zero_copy, is_native) =
        device.xdp.map_or((true, true), |declared| (declared.zero_copy, declared.native));
    let rules = broken(device).filter(|rule| has_zero_copy || rule.purpose != Purpose::ZeroCopy);
    let rules: Vec<_> = rules.collect();
    // A driver may declare native XDP again once its rule is kept.
    let has_native_rule = rules.iter().any(|rule| rule.purpose == Purpose::NativeXdp);
    let of_mode = match (is_native, has_zero_copy) {
        (false, _) => Some("the kernel makes a socket buffer per packet before XDP runs"),
        (true, false) => Some("each packet is copied once by the kernel"),
        (true, true) => None,
    };
    let of_queues = if receive < 2 {
        Some("one queue: one core polls, the others get their flow groups forwarded")
    } else if device.rss_entries.is_none() {
        Some("flow groups cannot be moved in the NIC: packets are forwarded between cores")
    } else {
        None
    };
    let costs = of_mode.into_iter().chain(of_queues).map(str::to_owned);
    let costs: Vec<_> = costs.chain(rules.iter().map(|rule| rule.text(device))).collect();
    let mut remedies: Vec<_> = rules.iter().map(|rule| rule.remedy(device)).collect();
    let rule_suffices = !is_native && has_native_rule;
    if of_queues.is_some() || of_mode.is_some() && !rule_suffices {
        remedies.push(GOOD_NIC.to_owned());
    }
    let check = Check::ok(name, found).fine_if(costs.is_empty());
    check.or_warn(costs.join("; "), remedies.join("; "))
}

/// What the kernel declares of the device's mode, behind a comma. The mode that it gets only trying shows.
fn declared(device: &Device, is_probed: bool) -> String {
    let try_it = format!("shows when tried: --probe {}", device.interface.name);
    match device.xdp {
        None if is_probed => String::new(),
        None => format!(", its XDP mode {try_it}"),
        Some(declared) if declared.zero_copy && is_probed => ", zero-copy declared".to_owned(),
        Some(declared) if declared.zero_copy => format!(", zero-copy declared, {try_it}"),
        Some(declared) if declared.native => ", native XDP declared, copy".to_owned(),
        Some(_) => ", generic XDP, copy".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nic::Interface;
    use nic::xdp_features::XdpFeatures;
    use wire::MacAddr;

    use super::super::check::Status;
    use super::super::fake_tests::FakeRoot;
    use super::*;

    fn machine(queues: usize) -> FakeRoot {
        let mut fake = FakeRoot::with(&[
            ("sys/class/net/eth0/type", "1"),
            ("sys/class/net/br0/type", "1"),
            ("sys/class/net/lo/type", "772"),
        ])
        .directory("sys/class/net/eth0/device");
        for queue in 0..queues {
            fake = fake
                .directory(&format!("sys/class/net/eth0/queues/rx-{queue}"))
                .directory(&format!("sys/class/net/eth0/queues/tx-{queue}"));
        }
        fake
    }

    fn device(driver: &str, queues: u32, xdp: Option<XdpFeatures>) -> Device {
        let (name, mac) = ("eth0".to_owned(), MacAddr::default());
        Device {
            interface: Interface { name, index: 2, mac, mtu: 1500, hardware_type: 1 },
            driver: driver.to_owned(),
            is_up: true,
            queues: Some(queues),
            queues_max: Some(4),
            rss_entries: None,
            features: BTreeMap::new(),
            xdp,
        }
    }

    /// What is found of such a device.
    fn check(device: &Device) -> Check {
        let fake = machine(device.queues.unwrap_or(0) as usize);
        let mut found = checks(&fake.root(), |_| Ok(device.clone()), &[]);
        assert_eq!(found.len(), 1, "the bridge and the loopback are no devices: {found:?}");
        found.remove(0)
    }

    const NATIVE: XdpFeatures = XdpFeatures {
        native: true,
        redirect: true,
        zero_copy: false,
        multi_buffer: false,
        zero_copy_multi_buffer: None,
        tx_checksum: false,
    };

    #[test]
    fn a_good_nic_has_nothing_to_complain_of() {
        let declared = XdpFeatures { zero_copy: true, ..NATIVE };
        let ice = Device { rss_entries: Some(512), ..device("ice", 4, Some(declared)) };
        let found = check(&ice);
        assert_eq!(found.status, Status::Ok, "{found:?}");
        let text = "ice: 4 rx and 4 tx queues, RSS table of 512, zero-copy declared, shows when tried: --probe eth0";
        assert_eq!(found.found, text);
        // A kernel that declares nothing leaves it open.
        let found = check(&Device { xdp: None, ..ice });
        assert_eq!(found.status, Status::Ok, "{found:?}");
        assert!(found.found.ends_with("its XDP mode shows when tried: --probe eth0"), "{found:?}");
    }

    #[test]
    fn an_interface_that_is_probed_needs_no_hint_to_probe_it() {
        let declared = XdpFeatures { zero_copy: true, ..NATIVE };
        for (xdp, end) in
            [(Some(declared), "no RSS table, zero-copy declared"), (None, "no RSS table")]
        {
            let ice = device("ice", 1, xdp);
            let found = checks(&machine(1).root(), |_| Ok(ice.clone()), &["eth0".to_owned()]);
            assert!(found[0].found.ends_with(end), "{found:?}");
            let found = checks(&machine(1).root(), |_| Ok(ice.clone()), &["eth1".to_owned()]);
            assert!(found[0].found.ends_with("--probe eth0"), "{found:?}");
        }
    }

    #[test]
    fn every_shortcoming_has_its_cost() {
        let found = check(&device("e1000", 1, Some(XdpFeatures::default())));
        assert_eq!(found.status, Status::Warn);
        assert!(found.cost.contains("socket buffer") && found.cost.contains("one queue"));
        let found = check(&device("ena", 2, Some(NATIVE)));
        assert!(found.cost.contains("copied once") && found.cost.contains("forwarded"));
        assert!(!found.cost.contains("asks for"), "{found:?}");
    }

    #[test]
    fn what_a_driver_asks_for_is_said_with_its_source() {
        let mut ena = device("ena", 3, Some(NATIVE));
        ena.interface.mtu = 9001;
        let found = check(&ena);
        let source = "ena_xdp.h, Linux 6.12";
        assert_eq!(found.cost.matches(source).count(), 2, "{found:?}");
        assert!(found.cost.contains("3498 at most, found 9001"), "{found:?}");
        assert!(found.cost.contains("half of the queues at most, found 3 of 4"), "{found:?}");
        assert!(
            found.remedy.contains("mtu 3498") && found.remedy.contains("2 queues"),
            "{found:?}"
        );
        // What can be done with this device comes first.
        let (rule, other) = (found.remedy.find("mtu 3498"), found.remedy.find(GOOD_NIC));
        assert!(rule < other && other.is_some(), "{found:?}");
        // It declares no zero-copy, so what zero-copy asks for is nothing to it.
        assert!(!found.cost.contains("3686"), "{found:?}");
    }

    /// mlx5 declares nothing while it joins packets.
    #[test]
    fn a_cost_that_a_rule_removes_asks_for_no_other_device() {
        let table = Some(128);
        let mut mlx5 =
            Device { rss_entries: table, ..device("mlx5_core", 4, Some(XdpFeatures::default())) };
        mlx5.features = [("rx-lro".to_owned(), true)].into();
        let found = check(&mlx5);
        assert!(found.cost.contains("socket buffer"), "{found:?}");
        assert_eq!(found.remedy, "do `ethtool -K eth0 rx-lro off`");
        let found = check(&Device { rss_entries: None, ..mlx5 });
        assert!(found.remedy.ends_with(GOOD_NIC), "nothing makes a table: {found:?}");
    }

    #[test]
    fn a_machine_without_a_device_is_sent_to_the_lab() {
        let none = |_: &str| Err(io::Error::from_raw_os_error(libc::ENODEV));
        let found = checks(&FakeRoot::with(&[]).root(), none, &[]);
        assert!(found[0].remedy.contains("lab up"), "{found:?}");
        let found = checks(&machine(1).root(), none, &[]);
        assert!(found[0].remedy.contains("network namespace"), "{found:?}");
    }
}
