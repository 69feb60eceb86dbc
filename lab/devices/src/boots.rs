//! The boots: which driver, in which mode, on which kernel. To add one, add a row to [`BOOTS`].

use crate::protocol::{Driver, Mode, Task, Work};

/// A kernel of Debian's archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kernel {
    /// What it is called here.
    pub name: &'static str,
    /// The suite of Debian's archive that has it.
    pub suite: &'static str,
}

impl Kernel {
    const NEWEST: Self = Self { name: "newest", suite: "trixie-backports" };
    const V6_12: Self = Self { name: "6.12", suite: "trixie" };
    const V6_1: Self = Self { name: "6.1", suite: "bookworm" };
    const V5_10: Self = Self { name: "5.10", suite: "bullseye" };
}

/// One boot of the emulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    /// What it is called.
    pub name: &'static str,
    /// The driver of both NICs.
    pub driver: Driver,
    /// How frames should travel.
    pub expected: Mode,
    /// `network.mode` of the configuration; absent: the product's own choice.
    pub demanded: Option<Mode>,
    /// The kernel.
    pub kernel: Kernel,
    /// Whether virtio devices use the DMA API, which zero-copy takes.
    pub iommu_platform: bool,
    /// Whether systemd is the guest's first process.
    pub systemd: bool,
}

impl Boot {
    const fn new(name: &'static str, driver: Driver, expected: Mode, kernel: Kernel) -> Self {
        let iommu_platform = matches!(expected, Mode::ZeroCopy);
        Self { name, driver, expected, demanded: None, kernel, iommu_platform, systemd: false }
    }

    /// The boot of this name.
    pub fn named(name: &str) -> Option<Self> {
        BOOTS.into_iter().find(|boot| boot.name == name)
    }

    /// What its guest is to do.
    pub fn task(self, work: Work) -> Task {
        let Self { driver, expected, demanded, systemd, .. } = self;
        Task { driver, expected, demanded, systemd, work }
    }
}

/// All boots, in the order of the table's columns.
pub const BOOTS: [Boot; 12] = [
    Boot::new("igb-zero-copy", Driver::Igb, Mode::ZeroCopy, Kernel::NEWEST),
    Boot {
        demanded: Some(Mode::Copy),
        ..Boot::new("igb-copy", Driver::Igb, Mode::Copy, Kernel::NEWEST)
    },
    Boot::new("igb-6.12", Driver::Igb, Mode::Copy, Kernel::V6_12),
    Boot::new("igb-6.1", Driver::Igb, Mode::Copy, Kernel::V6_1),
    Boot::new("virtio-zero-copy", Driver::VirtioNet, Mode::ZeroCopy, Kernel::NEWEST),
    Boot::new("virtio-copy", Driver::VirtioNet, Mode::Copy, Kernel::NEWEST),
    Boot::new("e1000e", Driver::E1000e, Mode::Generic, Kernel::NEWEST),
    Boot::new("veth", Driver::Veth, Mode::Copy, Kernel::NEWEST),
    Boot::new("veth-6.12", Driver::Veth, Mode::Copy, Kernel::V6_12),
    Boot::new("veth-6.1", Driver::Veth, Mode::Copy, Kernel::V6_1),
    Boot::new("veth-5.10", Driver::Veth, Mode::Copy, Kernel::V5_10),
    Boot { systemd: true, ..Boot::new("systemd", Driver::Veth, Mode::Copy, Kernel::NEWEST) },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_to_their_boots() {
        for boot in BOOTS {
            assert_eq!(Boot::named(boot.name), Some(boot));
        }
        assert_eq!(Boot::named("rtl8139"), None);
    }
}
