//! What a device can do for a dataplane, as far as the kernel says so without trying: `tailplane run` opens by it, and
//! `tailplane doctor` shows it.
//!
//! ```no_run
//! let device = nic::device::Device::look("eth0")?;
//! println!("{}: {:?} receive queues", device.driver, device.queues);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! The mode that a device gets (native XDP, zero-copy) only trying shows: [`af_xdp`](crate::af_xdp) and
//! [`xdp_program`](crate::xdp_program) try. What its driver asks for that, [`driver_rules`](crate::driver_rules) knows.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use mem::{ChunkBytes, TX_PAYLOAD};
use wire::EthernetRepr;

use crate::driver_chunks::zero_copy_granularity;
use crate::unsafe_interface::is_up;
use crate::xdp_features::XdpFeatures;
use crate::{Channels, Ethtool, Interface};

/// Bytes of a VLAN tag, which a device may leave in the frame.
const VLAN_TAG: usize = 4;
/// What the kernel adds to the MTU for the frame that a chunk has to hold in zero-copy mode: the header, two tags, the
/// check sequence (`ETH_PAD_LEN` in net/xdp/xsk_buff_pool.c, Linux 6.12.117).
const ZERO_COPY_OVERHEAD: usize = EthernetRepr::HEADER_LEN + 2 * VLAN_TAG + 4;

/// Bytes of the largest frame that native XDP has in one buffer: a page, without `XDP_PACKET_HEADROOM` and the kernel's
/// `skb_shared_info` (veth, virtio_net; read in Linux 6.12).
const ONE_BUFFER: usize = 4096 - 256 - 320;

/// Chunks of a frame to send at most. In copy mode the kernel drops those with more than 18: the buffer's first part, and
/// its `MAX_SKB_FRAGS` of 17 (net/xdp/xsk.c, Linux 6.12).
const FRAME_CHUNKS: usize = 16;

/// Bytes of the largest IP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mtu {
    /// Of those that are sent.
    pub send: u16,
    /// Chunks that a frame with one of them takes at most.
    pub frame_chunks: u8,
    /// Of those that are received.
    pub receive: u16,
}

impl Mtu {
    /// Ethernet's usual one.
    pub const ETHERNET: Self = Self { send: 1500, frame_chunks: 1, receive: 1500 };
}

/// A network interface that could be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name, index, addresses, MTU.
    pub interface: Interface,
    /// The driver's name; `unknown` where it does not tell.
    pub driver: String,
    /// Whether somebody has set it up (`ip link set eth0 up`).
    pub is_up: bool,
    /// Receive queues in use; none where the driver does not tell.
    pub queues: Option<u32>,
    /// Receive queues that it can have; none where the driver does not report them.
    pub queues_max: Option<u32>,
    /// Entries of its RSS indirection table; none where it has none that can be read.
    pub rss_entries: Option<u32>,
    /// Offloads by their kernel names (`rx-lro`), and whether they are active.
    pub features: BTreeMap<String, bool>,
    /// What the kernel declares that its driver can do; none before Linux 6.3.
    pub xdp: Option<XdpFeatures>,
}

impl Device {
    /// Looks at an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn look(interface: &str) -> io::Result<Self> {
        let found = Interface::by_name(interface)?;
        let device = Ethtool::open(interface)?;
        let channels = device.channels().ok();
        Ok(Self {
            driver: device.driver().unwrap_or_else(|_| "unknown".to_owned()),
            is_up: is_up(interface)?,
            queues: channels
                .map(Channels::receive)
                .or_else(|| queues_shown(&found))
                .filter(|&all| all > 0),
            queues_max: channels.map(|channels| channels.receive_max).filter(|&all| all > 0),
            rss_entries: device.rss_entries().ok().filter(|&entries| entries > 0),
            features: device.features().unwrap_or_default(),
            xdp: XdpFeatures::of(found.index).ok(),
            interface: found,
        })
    }

    /// What sees how the device fares, from any namespace.
    ///
    /// # Errors
    /// No descriptors. To be called in the device's namespace.
    pub fn watch(&self) -> io::Result<Watch> {
        let device = Ethtool::open(&self.interface.name)?;
        Ok(Watch { device, index: self.interface.index })
    }

    /// Bytes of the largest frame that the interface receives.
    pub fn max_frame_bytes(&self) -> usize {
        self.interface.mtu.saturating_add(EthernetRepr::HEADER_LEN + VLAN_TAG)
    }

    /// The chunks that the interface's frames fit into; the largest ones where they fit into none.
    pub fn chunk_bytes(&self, zero_copy: bool) -> ChunkBytes {
        let packet = self.interface.mtu;
        let fits = |&size: &ChunkBytes| self.packet_in(size, zero_copy) >= packet;
        Some(ChunkBytes::Small).filter(fits).unwrap_or(ChunkBytes::Page)
    }

    /// Bytes of the largest IP packet that the device puts into one chunk.
    fn packet_in(&self, size: ChunkBytes, zero_copy: bool) -> usize {
        match zero_copy {
            true => {
                let granularity = zero_copy_granularity(&self.driver);
                size.max_frame() / granularity * granularity - ZERO_COPY_OVERHEAD
            }
            false => size.max_frame().min(ONE_BUFFER) - EthernetRepr::HEADER_LEN - VLAN_TAG,
        }
    }

    /// Whether the interface's frames can be too large for one buffer, so that the device must leave them in several.
    pub fn is_jumbo(&self) -> bool {
        self.max_frame_bytes() > ONE_BUFFER
    }

    /// The largest IP packets that pass the interface and fit chunks of this size, or several of them where
    /// `multi_buffer`. What is sent takes [`mem::CHUNK_SIZE`] bytes of each, whatever chunks are.
    pub fn mtu(&self, chunk: ChunkBytes, zero_copy: bool, multi_buffer: bool) -> Mtu {
        let received = match multi_buffer {
            true => u16::MAX as usize,
            false => self.packet_in(chunk, zero_copy),
        };
        let one_chunk = ChunkBytes::Small.max_frame() - EthernetRepr::HEADER_LEN;
        let mtu = self.interface.mtu;
        let frame_chunks = match multi_buffer && mtu > one_chunk {
            true => self.frame_chunks(zero_copy),
            false => 1,
        };
        // Two chunks in a row hold more than one has room for: what is less is put into one.
        let sent = one_chunk.max(frame_chunks / 2 * TX_PAYLOAD);
        Mtu {
            send: mtu.min(sent) as u16,
            frame_chunks: frame_chunks as u8,
            receive: mtu.min(received) as u16,
        }
    }

    /// Chunks of a frame to send that the device takes with multi-buffer.
    fn frame_chunks(&self, zero_copy: bool) -> usize {
        let declared = self.xdp.and_then(|xdp| xdp.zero_copy_multi_buffer).unwrap_or(1);
        let most = if zero_copy { (declared as usize).max(1) } else { FRAME_CHUNKS };
        most.min(FRAME_CHUNKS)
    }
}

/// Receive queues that sysfs shows, of an interface whose driver reports none: veth of Linux 5.10, say. None
/// where sysfs is that of another network namespace.
fn queues_shown(interface: &Interface) -> Option<u32> {
    let directory = Path::new("/sys/class/net").join(&interface.name);
    let read = |file: &str| fs::read_to_string(directory.join(file));
    let is_it = read("ifindex").ok()?.trim() == interface.index.to_string()
        && read("address").ok()?.trim() == interface.mac.to_string();
    let queues = fs::read_dir(directory.join("queues")).ok()?.flatten();
    let receive = queues.filter(|queue| queue.file_name().to_string_lossy().starts_with("rx-"));
    is_it.then(|| receive.count() as u32)
}

/// Sees how a device fares that is open.
#[derive(Debug)]
pub struct Watch {
    device: Ethtool,
    index: u32,
}

impl Watch {
    /// Whether the interface is there: a card can be pulled, a virtual interface deleted.
    pub fn is_there(&self) -> bool {
        self.device.index().is_ok_and(|index| index == self.index)
    }

    /// Whether the link is up. One whose driver does not tell is.
    pub fn has_link(&self) -> bool {
        self.device.has_link().unwrap_or(true)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An interface with four queues of eight, of which the kernel declares nothing.
    pub(crate) fn device(driver: &str, mtu: usize) -> Device {
        let (name, mac) = ("eth0".to_owned(), wire::MacAddr::default());
        Device {
            interface: Interface { name, index: 2, mac, mtu, hardware_type: 1 },
            driver: driver.into(),
            is_up: true,
            queues: Some(4),
            queues_max: Some(8),
            rss_entries: None,
            features: BTreeMap::new(),
            xdp: None,
        }
    }

    #[test]
    fn chunks_follow_from_mtu_headroom_and_granularity() {
        let chunk = |driver, mtu, zero_copy| device(driver, mtu).chunk_bytes(zero_copy).get();
        assert_eq!((chunk("igb", 1500, true), chunk("igb", 1500, false)), (4096, 2048));
        assert_eq!((chunk("ice", 1500, true), chunk("virtio_net", 1500, true)), (2048, 2048));
        // 1,024 bytes are what igb uses of a small chunk, 1,664 what the kernel grants any driver.
        assert_eq!((chunk("igb", 998, true), chunk("igb", 999, true)), (2048, 4096));
        assert_eq!((chunk("mlx5_core", 1638, true), chunk("mlx5_core", 1639, true)), (2048, 4096));
        assert_eq!((chunk("veth", 1710, false), chunk("veth", 1711, false)), (2048, 4096));
        assert_eq!((chunk("veth", 65_535, false), chunk("unheard-of", 1500, true)), (4096, 4096));
    }

    #[test]
    fn packets_fit_interface_and_chunks() {
        let mtu = |mtu, zero_copy, multi_buffer| {
            let device = device("igb", mtu);
            let found = device.mtu(device.chunk_bytes(zero_copy), zero_copy, multi_buffer);
            (found.send, found.receive, device.is_jumbo())
        };
        assert_eq!(mtu(1400, false, false), (1400, 1400, false));
        assert_eq!(mtu(1500, true, false), (1500, 1500, false));
        assert_eq!(mtu(3500, false, false), (1714, 3500, false));
        assert_eq!(mtu(3700, false, false), (1714, 3502, true));
        // One chunk, of which igb uses 3 KiB; several, of which nothing is declared.
        assert_eq!(mtu(9000, true, false), (1714, 3046, true));
        assert_eq!(mtu(9000, true, true), (1714, 9000, true));
        assert_eq!(mtu(9000, false, true), (9000, 9000, true));
    }

    #[test]
    fn frames_to_send_have_several_chunks_where_the_device_takes_them() {
        let sent = |mtu, zero_copy, multi_buffer, declared| {
            let xdp = XdpFeatures { zero_copy_multi_buffer: declared, ..XdpFeatures::default() };
            let device = Device { xdp: Some(xdp), ..device("ice", mtu) };
            let found = device.mtu(ChunkBytes::Page, zero_copy, multi_buffer);
            (found.send, found.frame_chunks)
        };
        assert_eq!(sent(9000, false, true, None), (9000, 16));
        assert_eq!(sent(9000, false, false, None), (1714, 1));
        assert_eq!(sent(1500, false, true, None), (1500, 1));
        assert_eq!(sent(65_535, false, true, None), (14_848, 16));
        // Of five chunks, one may be nearly empty.
        assert_eq!(sent(9000, true, true, Some(5)), (3_712, 5));
        assert_eq!(sent(9000, true, true, Some(8)), (7_424, 8));
        assert_eq!(sent(9000, true, true, Some(1)), (1714, 1));
        assert_eq!(sent(9000, true, true, Some(99)), (9000, 16));
    }

    #[cfg(not(miri))]
    #[test]
    fn the_loopback_interface_is_looked_at() {
        let device = Device::look("lo").expect("every namespace has one");
        assert_eq!((device.interface.index, device.queues, device.rss_entries), (1, Some(1), None));
        assert_eq!(device.xdp.is_none_or(|declared| declared.native), device.xdp.is_none());
        assert!(device.is_up);
        assert!(Device::look("no-such-device").is_err());
        let watch = device.watch().expect("a socket");
        assert!(watch.is_there());
        assert!(!Watch { index: 99, ..watch }.is_there(), "another one has its name");
    }
}
