//! What drivers ask of a device before they serve XDP and AF_XDP on it: with `driver_chunks` the one place that knows
//! drivers by name.
//!
//! ```
//! # fn warn(device: &nic::device::Device) {
//! for rule in nic::driver_rules::broken(device) {
//!     println!("{}; {}", rule.text(device), rule.remedy(device));
//! }
//! # }
//! ```
//!
//! Each rule names the source that it was read in. MTUs hold for pages of 4 KiB, and where the kernel does not declare that
//! the driver leaves frames in several buffers. A rule about what the kernel reports of a device is checked before anything
//! is tried; the other rules explain a refusal by its error.

use libc::{EINVAL, ENOMEM, ENOSPC, EOPNOTSUPP, ERANGE};

use self::Asks::{HalfOfQueues, Mtu, Off, Unseen};
use self::Purpose::{NativeXdp, ZeroCopy};
use crate::device::Device;
use crate::driver_chunks::VIRTIO;

pub use crate::driver_chunks::copies_passed;

/// For what a driver asks something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To run an XDP program itself.
    NativeXdp,
    /// To serve an AF_XDP socket by zero-copy.
    ZeroCopy,
}

impl Purpose {
    fn name(self) -> &'static str {
        match self {
            Self::NativeXdp => "native XDP",
            Self::ZeroCopy => "zero-copy",
        }
    }
}

/// What a driver asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    /// An MTU of so many bytes at most.
    Mtu(usize),
    /// No more receive queues in use than half of those that the device can have.
    HalfOfQueues,
    /// This offload switched off.
    Off(&'static str),
    /// What the kernel does not report, and what to do for it.
    Unseen(&'static str, &'static str),
}

/// A rule of drivers.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whose; none: the kernel's own, for all of them.
    drivers: &'static [&'static str],
    /// For what it asks.
    pub purpose: Purpose,
    asks: Asks,
    /// With what a device is refused that breaks it.
    errno: i32,
    /// A file of the kernel with the version that was read, or commits.
    source: &'static str,
}

impl Rule {
    /// Whether the device breaks it, as far as the kernel reports.
    fn is_broken(&self, device: &Device) -> bool {
        match self.asks {
            Asks::Mtu(most) => device.interface.mtu > most && !self.is_multi_buffer(device),
            Asks::HalfOfQueues => {
                let queues = device.queues.zip(device.queues_max);
                queues.is_some_and(|(queues, most)| queues > most / 2)
            }
            Asks::Off(feature) => device.features.get(feature) == Some(&true),
            Asks::Unseen(..) => false,
        }
    }

    /// Whether the kernel declares that a frame may lie in several buffers, for this purpose.
    fn is_multi_buffer(&self, device: &Device) -> bool {
        device.xdp.is_some_and(|declared| match self.purpose {
            NativeXdp => declared.multi_buffer,
            ZeroCopy => declared.zero_copy_multi_buffer.is_some_and(|most| most > 1),
        })
    }

    fn is_of(&self, device: &Device) -> bool {
        self.drivers.is_empty() || self.drivers.contains(&device.driver.as_str())
    }

    /// What is asked for, what was found, and the source: `ena: native XDP asks for an MTU of 3498 at most, found 9001
    /// (drivers/..., Linux 6.12)`.
    pub fn text(&self, device: &Device) -> String {
        let asked = match self.asks {
            Asks::Mtu(most) => format!("an MTU of {most} at most, found {}", device.interface.mtu),
            Asks::HalfOfQueues => format!(
                "half of the queues at most, found {} of {}",
                device.queues.unwrap_or(0),
                device.queues_max.unwrap_or(0)
            ),
            Asks::Off(feature) => format!("'{feature}' to be off, found it on"),
            Asks::Unseen(what, _) => what.to_owned(),
        };
        let (driver, purpose) = (&device.driver, self.purpose.name());
        format!("{driver}: {purpose} asks for {asked} ({})", self.source)
    }

    /// What to do for it.
    pub fn remedy(&self, device: &Device) -> String {
        let name = &device.interface.name;
        match self.asks {
            Asks::Mtu(most) => format!("do `ip link set dev {name} mtu {most}`"),
            Asks::HalfOfQueues => match device.queues_max.unwrap_or(0) / 2 {
                0 => "use a device with more queues (in a cloud: a larger machine type)".to_owned(),
                half => format!("use {half} queues at most (`ethtool -L {name}` sets them)"),
            },
            Asks::Off(feature) => format!("do `ethtool -K {name} {feature} off`"),
            Asks::Unseen(_, remedy) => remedy.to_owned(),
        }
    }
}

/// The rules that a device breaks, as far as the kernel reports.
pub fn broken(device: &Device) -> impl Iterator<Item = &'static Rule> {
    RULES.iter().filter(|rule| rule.is_of(device) && rule.is_broken(device))
}

/// The rule that explains why a driver refused with `errno`: one with that error which the device is seen to break, else
/// one about what the kernel does not report.
pub fn explain(device: &Device, purpose: Purpose, errno: Option<i32>) -> Option<&'static Rule> {
    let is_unseen = |rule: &&Rule| matches!(rule.asks, Asks::Unseen(..)) && rule.is_of(device);
    let unseen = RULES.iter().filter(is_unseen);
    broken(device).chain(unseen).find(|rule| rule.purpose == purpose && Some(rule.errno) == errno)
}

/// Bytes of the largest IP packet that a driver has in one buffer with native XDP; none of a driver without a rule.
pub fn one_buffer_mtu(device: &Device) -> Option<u16> {
    let of_native = RULES.iter().filter(|rule| rule.is_of(device) && rule.purpose == NativeXdp);
    let mtus = of_native.filter_map(|rule| match rule.asks {
        Asks::Mtu(most) => u16::try_from(most).ok(),
        _ => None,
    });
    mtus.min()
}

const fn rule(
    drivers: &'static [&'static str],
    purpose: Purpose,
    asks: Asks,
    errno: i32,
    source: &'static str,
) -> Rule {
    Rule { drivers, purpose, asks, errno, source }
}

const ENA: &str = "drivers/net/ethernet/amazon/ena/ena_xdp.h, Linux 6.12";
const GVE: &str = "drivers/net/ethernet/google/gve/gve_main.c, Linux 6.12";
const HYPER_V: &str = "drivers/net/hyperv/netvsc_bpf.c, Linux 6.12";
const I40E: &str = "drivers/net/ethernet/intel/i40e/i40e_main.c, Linux 6.12";
const ICE: &str = "drivers/net/ethernet/intel/ice/ice_main.c, Linux 6.12";
const IGB: &str = "drivers/net/ethernet/intel/igb/igb_main.c and igb.h, Linux 6.12";
const IGC: &str = "drivers/net/ethernet/intel/igc/igc_xdp.c, Linux 6.12";
const IXGBE: &str = "drivers/net/ethernet/intel/ixgbe/ixgbe_main.c, Linux 6.12";
const MLX5: &str = "drivers/net/ethernet/mellanox/mlx5/core/en_main.c, Linux 6.12";
const VETH: &str = "drivers/net/veth.c, Linux 6.12";
const VMXNET3: &str = "drivers/net/vmxnet3/vmxnet3_xdp.h, Linux 6.12";

const CHUNKS: &str = "net/xdp/xsk_buff_pool.c, Linux 6.12.117";

const OTHER_NIC: &str = "use another NIC where that matters";

static RULES: &[Rule] = &[
    // ENA pairs each queue with one that transmits for the program.
    rule(&["ena"], NativeXdp, Mtu(3498), EINVAL, ENA),
    rule(&["ena"], NativeXdp, HalfOfQueues, EINVAL, ENA),
    rule(&["gve"], NativeXdp, Mtu(2032), EOPNOTSUPP, GVE),
    rule(&["gve"], NativeXdp, HalfOfQueues, EINVAL, GVE),
    rule(&["gve"], NativeXdp, Off("rx-lro"), EOPNOTSUPP, GVE),
    rule(
        &["gve"],
        NativeXdp,
        Unseen("the queue format GQI-QPL", "use a machine type whose device has that format"),
        EOPNOTSUPP,
        GVE,
    ),
    rule(
        &["gve"],
        ZeroCopy,
        Unseen("chunks for the largest MTU that the device has, not the one in use", OTHER_NIC),
        EINVAL,
        GVE,
    ),
    rule(&["hv_netvsc"], NativeXdp, Mtu(3506), EOPNOTSUPP, HYPER_V),
    rule(&["hv_netvsc"], NativeXdp, Off("rx-lro"), EOPNOTSUPP, HYPER_V),
    rule(&["vmxnet3"], NativeXdp, Mtu(3494), EOPNOTSUPP, VMXNET3),
    rule(&["virtio_net"], NativeXdp, Mtu(3506), EINVAL, VIRTIO),
    rule(
        &["virtio_net"],
        NativeXdp,
        Unseen(
            "a host that joins no packets and leaves no checksums, or lets the guest switch that off",
            "start the virtual machine with guest_tso4=off,guest_tso6=off,guest_ufo=off,guest_csum=off, or with \
             ctrl_guest_offloads=on",
        ),
        EOPNOTSUPP,
        VIRTIO,
    ),
    // Later kernels run the program without queues of its own.
    rule(
        &["virtio_net"],
        NativeXdp,
        Unseen(
            "as many free queues as there are CPUs, before Linux 5.10.61 and 5.13",
            "boot a later kernel, or give the device fewer queues (`ethtool -L`) or the virtual machine more",
        ),
        ENOMEM,
        "commit 97c2c69e1926, of 2021-03",
    ),
    rule(
        &["virtio_net"],
        ZeroCopy,
        Unseen(
            "queues that use the DMA interface",
            "start the virtual machine with iommu_platform=on for the device",
        ),
        EINVAL,
        VIRTIO,
    ),
    rule(
        &["virtio_net"],
        ZeroCopy,
        Unseen("Linux 6.13 or later", "boot such a kernel"),
        EOPNOTSUPP,
        "commit 37e0ca657a3d, of 2024-11; drivers/net/virtio_net.c, Linux 6.12, declares none",
    ),
    rule(
        &["veth"],
        NativeXdp,
        Unseen("an MTU of 3506 at most at the other end", "set the MTU of the other end to 3506"),
        ERANGE,
        VETH,
    ),
    rule(
        &["veth"],
        NativeXdp,
        Unseen(
            "no fewer receive queues than the other end has transmit queues",
            "make the pair with as many queues at both ends",
        ),
        ENOSPC,
        VETH,
    ),
    rule(
        &["igb"],
        ZeroCopy,
        Unseen("Linux 6.14 or later", "boot such a kernel"),
        EOPNOTSUPP,
        "commit 2c6196013f84, of 2025-01; drivers/net/ethernet/intel/igb, Linux 6.12, has none",
    ),
    // A buffer of 3 KiB without two tags, for the MTU of the moment.
    rule(&["igb"], NativeXdp, Mtu(3046), EINVAL, IGB),
    rule(&["igc"], NativeXdp, Mtu(1500), EOPNOTSUPP, IGC),
    rule(&["ixgbe"], NativeXdp, Off("rx-lro"), EINVAL, IXGBE),
    // A buffer of 3 KiB without one tag; once the program runs, the driver counts two of them.
    rule(&["ixgbe"], NativeXdp, Mtu(3050), EINVAL, IXGBE),
    rule(
        &["ixgbe"],
        NativeXdp,
        Unseen("neither virtual functions nor DCB on the device", "switch both off"),
        EINVAL,
        IXGBE,
    ),
    rule(
        &["ixgbe"],
        NativeXdp,
        Unseen("128 CPUs at most", "boot with `nr_cpus=128`"),
        ENOMEM,
        IXGBE,
    ),
    rule(&["i40e"], NativeXdp, Mtu(3046), EINVAL, I40E),
    rule(&["ice"], NativeXdp, Mtu(3046), EOPNOTSUPP, ICE),
    rule(
        &["ice"],
        NativeXdp,
        Unseen("the DDP firmware package", "install it (linux-firmware, intel/ice/ddp)"),
        EOPNOTSUPP,
        ICE,
    ),
    rule(
        &["ice"],
        NativeXdp,
        Unseen("a free transmit queue for every second CPU", "use fewer queues (`ethtool -L`)"),
        ENOMEM,
        ICE,
    ),
    rule(&["mlx5_core"], NativeXdp, Mtu(3498), EINVAL, MLX5),
    rule(&["mlx5_core"], NativeXdp, Off("rx-lro"), EINVAL, MLX5),
    rule(&["mlx5_core"], NativeXdp, Off("rx-gro-hw"), EINVAL, MLX5),
    rule(
        &["mlx5_core"],
        ZeroCopy,
        Unseen(
            "Linux 6.1 or later, unless queues are counted from behind the ordinary ones",
            "boot such a kernel",
        ),
        EINVAL,
        "commits 3db4c85cde7a, of 2022-09, and 11abca031ee3",
    ),
    rule(
        &["e1000", "e1000e"],
        NativeXdp,
        Unseen("another driver: this one runs no XDP program", OTHER_NIC),
        EOPNOTSUPP,
        "drivers/net/ethernet/intel/e1000 and e1000e, Linux 6.12, have no ndo_bpf",
    ),
    // A frame has to fit a chunk of 4 KiB behind its headroom.
    rule(&[], ZeroCopy, Mtu(3686), EINVAL, CHUNKS),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::tests::device;
    use crate::xdp_features::XdpFeatures;

    #[test]
    fn a_broken_rule_has_its_source_and_a_remedy() {
        let of = |driver, mtu, queues| Device { queues: Some(queues), ..device(driver, mtu) };
        let texts = |device: Device| -> Vec<String> {
            broken(&device)
                .map(|rule| format!("{}; {}", rule.text(&device), rule.remedy(&device)))
                .collect()
        };
        assert!(
            texts(of("ena", 1500, 4)).is_empty() && texts(of("unheard-of", 1500, 8)).is_empty()
        );
        assert_eq!(
            texts(of("ena", 3500, 5)),
            [
                "ena: native XDP asks for an MTU of 3498 at most, found 3500 \
                 (drivers/net/ethernet/amazon/ena/ena_xdp.h, Linux 6.12); \
                 do `ip link set dev eth0 mtu 3498`",
                "ena: native XDP asks for half of the queues at most, found 5 of 8 \
                 (drivers/net/ethernet/amazon/ena/ena_xdp.h, Linux 6.12); \
                 use 4 queues at most (`ethtool -L eth0` sets them)",
            ]
        );
        let mut mlx5 = of("mlx5_core", 1500, 8);
        mlx5.features = [("rx-lro".to_owned(), true), ("rx-gro-hw".to_owned(), false)].into();
        let found = texts(mlx5);
        assert!(
            found.len() == 1 && found[0].ends_with("do `ethtool -K eth0 rx-lro off`"),
            "{found:?}"
        );
        // Its frames lie in several buffers.
        let xdp = Some(XdpFeatures { multi_buffer: true, ..XdpFeatures::default() });
        assert!(
            texts(Device { xdp, ..of("i40e", 9000, 4) }).len() < texts(of("i40e", 9000, 4)).len()
        );
        // Half of one queue is none: no command helps.
        let one = Device { queues_max: Some(1), ..of("ena", 1500, 1) };
        let found = texts(one);
        assert!(
            found.len() == 1 && found[0].ends_with("(in a cloud: a larger machine type)"),
            "{found:?}"
        );
        // Nothing is known of its queues.
        assert!(texts(Device { queues_max: None, ..of("ena", 1500, 8) }).is_empty());
    }

    #[test]
    fn a_refusal_is_explained_by_what_is_seen_or_by_its_error() {
        let text = |device: &Device, purpose, errno| {
            explain(device, purpose, Some(errno)).map(|rule| rule.text(device)).unwrap_or_default()
        };
        let virtio = device("virtio_net", 1500);
        assert!(text(&virtio, ZeroCopy, EINVAL).contains("DMA interface"));
        assert!(text(&virtio, ZeroCopy, EOPNOTSUPP).contains("Linux 6.13"));
        assert_eq!(text(&virtio, ZeroCopy, ENOMEM), "");
        assert!(text(&virtio, NativeXdp, ENOMEM).contains("as many free queues as there are CPUs"));
        assert_eq!(explain(&virtio, ZeroCopy, None), None);
        assert!(text(&device("virtio_net", 9000), ZeroCopy, EINVAL).contains("3686"));
        assert!(text(&device("virtio_net", 9000), NativeXdp, EINVAL).contains("3506"));
        assert!(text(&device("veth", 1500), NativeXdp, ENOSPC).contains("transmit queues"));
        assert_eq!(text(&device("veth", 1500), ZeroCopy, EOPNOTSUPP), "");
        assert!(text(&device("igb", 3047), NativeXdp, EINVAL).contains("3046 at most, found 3047"));
        assert_eq!(text(&device("igb", 3046), NativeXdp, EINVAL), "");
        assert!(text(&device("ixgbe", 3051), NativeXdp, EINVAL).contains("3050 at most"));
        // It has too large an MTU, which is not why.
        assert!(text(&device("ice", 9000), NativeXdp, ENOMEM).contains("transmit queue"));
    }

    #[test]
    fn a_driver_s_buffer_follows_from_its_rule() {
        let of = |driver| one_buffer_mtu(&device(driver, 9000));
        assert_eq!((of("i40e"), of("mlx5_core"), of("veth")), (Some(3046), Some(3498), None));
    }

    #[test]
    fn every_rule_has_a_source_and_a_remedy_and_is_there_once() {
        let device = device("any", 9000);
        for rule in RULES {
            assert!(!rule.source.is_empty() && !rule.remedy(&device).is_empty(), "{rule:?}");
            assert_eq!(RULES.iter().filter(|other| *other == rule).count(), 1, "{rule:?}");
        }
    }
}
