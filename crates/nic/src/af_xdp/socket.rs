//! Opening and binding AF_XDP sockets: the part that needs privileges.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mem::{CHUNK_HEADER, CHUNK_SIZE, Region};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
    set_xdp_umem_fill_ring_size, set_xdp_umem_reg, xdp_options,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpOptionsFlags, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use super::config::{AfXdpConfig, AfXdpError, BindMode};
use crate::unsafe_interface::Interface;

/// Entries of each ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingSizes {
    pub(super) rx: u32,
    pub(super) tx: u32,
    pub(super) fill: u32,
    pub(super) completion: u32,
}

/// A bound socket whose rings nobody drives yet. It can be passed to another process by its
/// descriptor, or driven here by [`AfXdp::new`](super::AfXdp::new).
#[derive(Debug)]
pub struct XdpSocket {
    pub(super) fd: OwnedFd,
    pub(super) region: Arc<Region>,
    pub(super) sizes: RingSizes,
    pub(super) link: Interface,
    pub(super) queue: u32,
    pub(super) zero_copy: bool,
    pub(super) rx_buffers: u32,
    pub(super) assume_rx_checksums: bool,
    /// Another process opened it, and may hold it still when we close it.
    pub(super) adopted: bool,
}

impl XdpSocket {
    /// Opens a socket, registers `region` as its packet memory (UMEM), and binds it.
    ///
    /// # Errors
    /// [`AfXdpError`]: each says what to do.
    pub fn open(config: &AfXdpConfig, region: &Arc<Region>) -> Result<Self, AfXdpError> {
        config.check()?;
        let link = find(&config.interface)?;
        let fd = new_socket()?;
        let bytes = region.len_bytes();
        let registration = XdpUmemReg {
            addr: region.base().as_ptr() as u64,
            len: bytes as u64,
            chunk_size: CHUNK_SIZE as u32,
            headroom: CHUNK_HEADER as u32,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        set_xdp_umem_reg(&fd, registration)
            .map_err(|errno| AfXdpError::Memory { bytes, source: errno.into() })?;
        let sizes = set_rings(&fd, config)?;

        let mode = match config.mode {
            BindMode::Auto => SocketAddrXdpFlags::empty(),
            BindMode::Copy => SocketAddrXdpFlags::XDP_COPY,
            BindMode::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
        };
        let flags = mode | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        patiently(|| bind(&fd, &SocketAddrXdp::new(flags, link.index, config.queue)))
            .map_err(|errno| bind_error(config, errno))?;
        Self::bound(fd, region, sizes, link, config)
    }

    /// Opens a socket for another queue (of this or another interface) on the packet memory of
    /// `first`, with rings of its own; `config.mode` is what `first` has. `first` may be dropped
    /// afterwards.
    ///
    /// # Errors
    /// [`AfXdpError`]: each says what to do.
    pub fn open_sharing(config: &AfXdpConfig, first: &XdpSocket) -> Result<Self, AfXdpError> {
        config.check()?;
        let link = find(&config.interface)?;
        if link.index == first.link.index && config.queue == first.queue {
            // The kernel would let both share one fill ring, which has one producer.
            return Err(AfXdpError::QueueBusy {
                interface: config.interface.clone(),
                queue: config.queue,
            });
        }
        let fd = new_socket()?;
        let sizes = set_rings(&fd, config)?;
        // The flags of the first socket hold for all; the kernel refuses others here.
        let flags = SocketAddrXdpFlags::XDP_SHARED_UMEM;
        patiently(|| {
            let addr = SocketAddrXdp::new(flags, link.index, config.queue);
            let shared_umem_fd = first.fd.as_fd();
            bind(&fd, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd })
        })
        .map_err(|errno| bind_error(config, errno))?;
        Self::bound(fd, &first.region, sizes, link, config)
    }

    /// Opens the queues `0..queues` of an interface on one packet memory.
    ///
    /// # Errors
    /// [`AfXdpError`]: each says what to do.
    pub fn open_queues(
        config: &AfXdpConfig,
        queues: u32,
        region: &Arc<Region>,
    ) -> Result<Vec<Self>, AfXdpError> {
        let mut sockets: Vec<Self> = Vec::with_capacity(queues as usize);
        for queue in 0..queues {
            let config = AfXdpConfig { queue, ..config.clone() };
            let socket = match sockets.first() {
                None => Self::open(&config, region)?,
                Some(first) => Self::open_sharing(&config, first)?,
            };
            sockets.push(socket);
        }
        Ok(sockets)
    }

    fn bound(
        fd: OwnedFd,
        region: &Arc<Region>,
        sizes: RingSizes,
        link: Interface,
        config: &AfXdpConfig,
    ) -> Result<Self, AfXdpError> {
        let zero_copy = is_zero_copy(fd.as_fd())?;
        Ok(Self {
            fd,
            region: Arc::clone(region),
            sizes,
            link,
            queue: config.queue,
            zero_copy,
            rx_buffers: config.rx_buffers,
            assume_rx_checksums: config.assume_rx_checksums,
            adopted: false,
        })
    }

    /// The socket: to be put into an XDP program's map, or passed to another process. While another
    /// descriptor of it exists, closing this one does not end reception: whoever duplicates it must
    /// not [`close`](super::AfXdp::close) a driver on it for its chunks.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The packet memory.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The queue that it is bound to.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// The interface that it is bound to.
    pub fn interface(&self) -> &Interface {
        &self.link
    }

    /// Whether the device reads and writes packet memory itself.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }
}

pub(super) fn is_zero_copy(fd: BorrowedFd<'_>) -> Result<bool, AfXdpError> {
    let options = xdp_options(fd).map_err(AfXdpError::os("asking for the socket's mode"))?;
    Ok(options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
}

fn find(interface: &str) -> Result<Interface, AfXdpError> {
    const ARPHRD_ETHER: u16 = 1;
    let link = Interface::by_name(interface)
        .map_err(|source| AfXdpError::NoInterface { interface: interface.into(), source })?;
    if link.hardware_type != ARPHRD_ETHER {
        let hardware = link.hardware_type;
        return Err(AfXdpError::NotEthernet { interface: interface.into(), hardware });
    }
    Ok(link)
}

fn new_socket() -> Result<OwnedFd, AfXdpError> {
    socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None).map_err(|errno| {
        match errno {
            Errno::PERM | Errno::ACCESS => AfXdpError::NotPermitted { source: errno.into() },
            Errno::AFNOSUPPORT => AfXdpError::NoAfXdp { source: errno.into() },
            _ => AfXdpError::os("opening an AF_XDP socket")(errno),
        }
    })
}

fn set_rings(fd: &OwnedFd, config: &AfXdpConfig) -> Result<RingSizes, AfXdpError> {
    let sizes = RingSizes {
        rx: config.rx_ring_frames,
        tx: config.tx_ring_frames,
        fill: config.rx_ring_frames,
        completion: config.tx_ring_frames,
    };
    let tried = |result, tried| -> Result<(), AfXdpError> {
        Result::map_err(result, AfXdpError::os(tried))
    };
    tried(set_xdp_rx_ring_size(fd, sizes.rx), "making the receive ring")?;
    tried(set_xdp_tx_ring_size(fd, sizes.tx), "making the transmit ring")?;
    tried(set_xdp_umem_fill_ring_size(fd, sizes.fill), "making the fill ring")?;
    tried(set_xdp_umem_completion_ring_size(fd, sizes.completion), "making the completion ring")?;
    Ok(sizes)
}

/// How long a queue that is taken is tried again for, and how often.
const TAKEN: Duration = Duration::from_millis(500);
const TAKEN_LOOK: Duration = Duration::from_millis(5);

/// Binds, again where the queue is taken: the kernel gives a queue up only a while after its owner has ended,
/// so a service that is started again at once would find it taken.
fn patiently(bind: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    let begun = Instant::now();
    loop {
        match bind() {
            Err(Errno::BUSY) if begun.elapsed() < TAKEN => std::thread::sleep(TAKEN_LOOK),
            done => return done,
        }
    }
}

fn bind_error(config: &AfXdpConfig, errno: Errno) -> AfXdpError {
    let (interface, queue) = (config.interface.clone(), config.queue);
    let source = std::io::Error::from(errno);
    match errno {
        Errno::BUSY => AfXdpError::QueueBusy { interface, queue },
        Errno::OPNOTSUPP if config.mode == BindMode::ZeroCopy => {
            AfXdpError::NoZeroCopy { interface, queue, source }
        }
        Errno::PERM | Errno::ACCESS => AfXdpError::NotPermitted { source },
        _ => AfXdpError::NoQueue { interface, queue, source },
    }
}
