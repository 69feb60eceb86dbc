//! What can be asked of an AF_XDP queue, and what can go wrong.

use std::io;

/// Whether the kernel copies frames to and from packet memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BindMode {
    /// Zero-copy where the device's driver can, else copy.
    #[default]
    Auto,
    /// The kernel copies. Works on every device.
    Copy,
    /// The device reads and writes packet memory itself, or opening fails.
    ZeroCopy,
}

/// The smallest ring: below it, a ring that was passed by another process cannot be measured (its
/// memory would be one page whatever its size).
pub(super) const MIN_RING_FRAMES: u32 = 512;
/// The largest ring.
pub(super) const MAX_RING_FRAMES: u32 = 32_768;

/// One queue of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfXdpConfig {
    /// The interface's name in the calling thread's network namespace.
    pub interface: String,
    /// The receive and transmit queue.
    pub queue: u32,
    /// Copy or zero-copy.
    pub mode: BindMode,
    /// Entries of the receive and of the fill ring: a power of two, 512 to 32,768. 4,096 rides out
    /// a descheduling at full rate where 2,048 overran.
    pub rx_ring_frames: u32,
    /// Entries of the transmit and of the completion ring: a power of two, 512 to 32,768.
    pub tx_ring_frames: u32,
    /// Chunks that the kernel holds to receive into when there are bursts; at most `rx_ring_frames`.
    /// While it is quiet it holds fewer, so that the working set stays in the cache.
    pub rx_buffers: u32,
    /// The device may leave a frame in several chunks (Linux 6.6, and an XDP program that
    /// [takes such frames](crate::xdp_program::XdpProgram::is_multi_buffer)): TCP segments are
    /// [cut](wire::LongSegment) to one chunk each, other frames dropped and counted.
    pub multi_buffer: bool,
    /// Report received checksums as verified. Set it only where the device verifies and drops; on
    /// virtual interfaces a local sender leaves them half done.
    pub assume_rx_checksums: bool,
    /// Have the device complete partial checksums, by transmit metadata (Linux 6.11). In copy mode the kernel honours it for
    /// every device; in zero-copy mode only for one whose driver
    /// [declares it](crate::xdp_features::XdpFeatures::tx_checksum).
    pub tx_checksum_offload: bool,
}

impl AfXdpConfig {
    /// A queue with default rings.
    pub fn new(interface: impl Into<String>, queue: u32) -> Self {
        Self {
            interface: interface.into(),
            queue,
            mode: BindMode::Auto,
            rx_ring_frames: 4096,
            tx_ring_frames: 2048,
            rx_buffers: 4096,
            multi_buffer: false,
            assume_rx_checksums: false,
            tx_checksum_offload: false,
        }
    }

    pub(super) fn check(&self) -> Result<(), AfXdpError> {
        for (name, frames) in
            [("rx_ring_frames", self.rx_ring_frames), ("tx_ring_frames", self.tx_ring_frames)]
        {
            if !frames.is_power_of_two() || !(MIN_RING_FRAMES..=MAX_RING_FRAMES).contains(&frames) {
                return Err(AfXdpError::BadRing { name, frames });
            }
        }
        if self.rx_buffers == 0 || self.rx_buffers > self.rx_ring_frames {
            return Err(AfXdpError::BadBuffers {
                buffers: self.rx_buffers,
                ring: self.rx_ring_frames,
            });
        }
        Ok(())
    }
}

/// Why an AF_XDP queue could not be opened, adopted or driven.
#[derive(Debug, thiserror::Error)]
pub enum AfXdpError {
    /// A ring's size is not allowed.
    #[error(
        "`{name}` = {frames}: allowed are powers of two from {MIN_RING_FRAMES} to {MAX_RING_FRAMES}"
    )]
    BadRing {
        /// The setting.
        name: &'static str,
        /// Its value.
        frames: u32,
    },
    /// The number of receive buffers does not suit the ring.
    #[error("`rx_buffers` = {buffers}: allowed are 1 to the receive ring's {ring}")]
    BadBuffers {
        /// The setting's value.
        buffers: u32,
        /// Entries of the receive ring.
        ring: u32,
    },
    /// There is no such interface here.
    #[error(
        "interface `{interface}` was not found in this network namespace: {source}; `ip link` \
         lists those that are here"
    )]
    NoInterface {
        /// The name that was asked for.
        interface: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The interface is no Ethernet device.
    #[error("interface `{interface}` is no Ethernet device (hardware type {hardware})")]
    NotEthernet {
        /// The interface.
        interface: String,
        /// The hardware type, `ARPHRD_*`.
        hardware: u16,
    },
    /// Opening the socket is not permitted.
    #[error(
        "opening an AF_XDP socket was refused: {source}; run as root or with CAP_NET_RAW (and \
         CAP_BPF, CAP_NET_ADMIN for the XDP program), or adopt a socket from the control plane"
    )]
    NotPermitted {
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel was built without AF_XDP.
    #[error("this kernel has no AF_XDP sockets: {source}; it needs CONFIG_XDP_SOCKETS")]
    NoAfXdp {
        /// What the kernel said.
        source: io::Error,
    },
    /// Another socket is bound to the queue.
    #[error(
        "cannot bind queue {queue} of `{interface}`: found another AF_XDP socket on it; stop its owner \
         (`ss --xdp -p` shows it) or choose another interface"
    )]
    QueueBusy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// The interface has no such queue.
    #[error(
        "cannot bind queue {queue} of `{interface}`: found {source}; where the interface has fewer queues \
         (`ethtool -l {interface}`), use fewer threads"
    )]
    NoQueue {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// What the kernel said.
        source: io::Error,
    },
    /// The interface is down.
    #[error("cannot bind to `{interface}`: found it down; do `ip link set {interface} up`")]
    IsDown {
        /// The interface.
        interface: String,
    },
    /// The device refuses zero-copy.
    #[error(
        "cannot bind queue {queue} of `{interface}` in zero-copy mode: found {source}; use copy mode, or a \
         driver, an MTU and an XDP program in native mode with which it has zero-copy"
    )]
    NoZeroCopy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// What the kernel said.
        source: io::Error,
    },
    /// The packet memory could not be registered. Linux before 5.14 keeps the addresses of its pages in one allocation of 4
    /// MiB at most: 524,288 pages (net/xdp/xdp_umem.c; commit a720a2a0ad6c, of 2021-05).
    #[error(
        "cannot register {bytes} bytes of packet memory: found {source}; where that is ENOBUFS or ENOMEM, raise the limit of \
         locked memory (`ulimit -l`) or lower `memory.chunks`: Linux before 5.14 takes 2 GiB at most"
    )]
    Memory {
        /// Bytes of the region.
        bytes: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel knows no transmit metadata, by which a device is asked to complete checksums.
    #[error(
        "cannot register packet memory with transmit metadata: found {source}; boot Linux 6.11 or newer, or leave checksums \
         to software"
    )]
    NoTxMetadata {
        /// What the kernel said.
        source: io::Error,
    },
    /// A descriptor that was passed is no AF_XDP socket.
    #[error(
        "the descriptor that was passed is no AF_XDP socket (domain {domain}); pass the socket"
    )]
    NotAfXdp {
        /// Its address family.
        domain: u16,
    },
    /// A ring could not be measured.
    #[error(
        "the {ring} ring of the socket that was passed cannot be mapped at any size: {source}; was \
         it set up and bound before it was passed?"
    )]
    NoRing {
        /// Which ring.
        ring: &'static str,
        /// What the kernel said to the smallest size.
        source: io::Error,
    },
    /// The rings hold entries of an earlier owner.
    #[error(
        "the rings of the socket are in use ({entries} entries in flight): another driver has it, \
         or died with it; open a fresh one"
    )]
    RingsInUse {
        /// Entries in all rings.
        entries: u32,
    },
    /// The kernel refused something that it normally does not.
    #[error("{tried} failed: {source}")]
    Os {
        /// What was tried.
        tried: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl AfXdpError {
    pub(super) fn os(tried: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::Os { tried, source: errno.into() }
    }
}
