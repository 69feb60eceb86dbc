//! QEMU's command line for a boot.
//!
//! One thread emulates all processors (`thread=single`): with a thread for each, one boot in four hung. Intel's NICs
//! have a root port each, else their virtual functions collide, and share a hub. virtio-net needs tap devices to have
//! several queues.

use std::path::Path;

use crate::boots::Boot;
use crate::protocol::{CLIENT_MAC, DATAPLANE_MAC, Driver};

/// Processors; as many queues has each NIC that has several.
const PROCESSORS: u32 = 4;
/// Memory of the guest.
const MEMORY_MB: u32 = 1024;
/// `panic=-1` restarts at once, and `-no-reboot` makes that QEMU's end.
const KERNEL_COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 mitigations=off";
/// Where QEMU's packages have its firmware.
const FIRMWARE: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];

/// The files of a boot.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// Where QEMU was unpacked.
    pub qemu: &'a Path,
    /// The kernel.
    pub kernel: &'a Path,
    /// The first root.
    pub image: &'a Path,
    /// The file of the guest's console; absent: the terminal.
    pub console: Option<&'a Path>,
    /// The guest's events.
    pub events: &'a Path,
}

/// QEMU's arguments.
pub fn arguments(boot: &Boot, files: &Files<'_>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| all.extend(words.iter().map(|word| (*word).to_owned()));
    add(&["-name", boot.name, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    add(&["-machine", "q35", "-accel", "tcg,thread=single,tb-size=256", "-cpu", "max"]);
    add(&["-smp", &PROCESSORS.to_string(), "-m", &MEMORY_MB.to_string()]);
    for directory in FIRMWARE {
        add(&["-L", &files.qemu.join(directory).to_string_lossy()]);
    }
    add(&["-kernel", &files.kernel.to_string_lossy(), "-initrd", &files.image.to_string_lossy()]);
    add(&["-append", KERNEL_COMMAND_LINE]);
    match files.console {
        Some(file) => add(&["-serial", &format!("file:{}", file.display())]),
        None => add(&["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]),
    }
    add(&["-serial", &format!("file:{}", files.events.display())]);
    for (number, mac) in [DATAPLANE_MAC, CLIENT_MAC].into_iter().enumerate() {
        match boot.driver {
            Driver::Igb => on_hub("igb", number, mac, &mut add),
            Driver::E1000e => on_hub("e1000e", number, mac, &mut add),
            Driver::VirtioNet => on_tap(boot, number, mac, &mut add),
            // The guest makes the pair.
            Driver::Veth => {}
        }
    }
    all
}

fn on_hub(device: &str, number: usize, mac: &str, add: &mut impl FnMut(&[&str])) {
    add(&["-device", &format!("pcie-root-port,id=port{number},chassis={}", number + 1)]);
    add(&["-netdev", &format!("hubport,id=net{number},hubid=0")]);
    let place = format!("netdev=net{number},bus=port{number},mac={mac},romfile=");
    add(&["-device", &format!("{device},{place}")]);
}

fn on_tap(boot: &Boot, number: usize, mac: &str, add: &mut impl FnMut(&[&str])) {
    let tap = TAPS[number];
    let queues = boot.driver.queues();
    let netdev = format!("tap,id=net{number},ifname={tap},queues={queues}");
    add(&["-netdev", &format!("{netdev},script=no,downscript=no,vhost=off")]);
    // An interrupt for each receive and transmit queue, one for control and one for changes of the configuration.
    let vectors = 2 * queues + 2;
    let mut device = format!("virtio-net-pci,netdev=net{number},mac={mac},mq=on,vectors={vectors}");
    device.push_str(",disable-legacy=on,romfile=");
    if number == 0 {
        device.push_str(",rss=on");
        if boot.iommu_platform {
            device.push_str(",iommu_platform=on");
        }
    }
    add(&["-device", &device]);
}

/// The tap devices, in the order of the NICs.
pub const TAPS: [&str; 2] = ["tap0", "tap1"];

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str) -> String {
        let path = Path::new("/q");
        let console = Some(Path::new("/log"));
        let files = Files { qemu: path, kernel: path, image: path, console, events: path };
        arguments(&Boot::named(name).expect("there is one"), &files).join(" ")
    }

    #[test]
    fn intels_nics_have_a_root_port_each_and_share_a_hub() {
        let line = line("igb-zero-copy");
        for part in ["bus=port0,mac=52:54:00:00:00:01", "bus=port1,mac=52:54:00:00:00:02"] {
            assert!(line.contains(&format!("igb,netdev=net{}", &part[8..9])), "{line}");
            assert!(line.contains(part), "{line}");
        }
        assert_eq!(line.matches("hubid=0").count(), 2, "{line}");
        assert!(line.contains("thread=single") && line.contains("-serial file:/log"), "{line}");
    }

    #[test]
    fn virtio_uses_the_dma_api_where_it_is_to_be_zero_copy() {
        let (zero_copy, copy) = (line("virtio-zero-copy"), line("virtio-copy"));
        assert_eq!(zero_copy.matches("iommu_platform=on").count(), 1, "{zero_copy}");
        assert!(!copy.contains("iommu_platform"), "{copy}");
        assert!(copy.contains("ifname=tap0,queues=4") && copy.contains("vectors=10"), "{copy}");
    }

    #[test]
    fn a_guest_with_a_veth_pair_has_no_nic() {
        assert!(!line("veth").contains("-netdev"));
    }
}
