//! Opening and binding AF_XDP sockets: the part that needs privileges.
//!
//! ```text
//! create      socket, packet memory (UMEM), sizes of the four rings
//! map         the rings, in the process that drives them: Linux before 6.5 maps none of a bound socket
//! bind        to a queue, for which the XDP program is attached already: igb and its like set their rings up anew
//!             when a program comes, and forget those chunks that they hold
//! ```

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mem::{CHUNK_HEADER, ChunkBytes, HugePages, Region, TX_METADATA};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
    set_xdp_umem_fill_ring_size, set_xdp_umem_reg, xdp_mmap_offsets, xdp_options,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpDesc, XdpOptionsFlags,
    XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use super::config::{AfXdpConfig, AfXdpError, BindMode, MIN_RING_FRAMES};
use super::unsafe_map::{Kind, MappedRing, map};
use crate::unsafe_interface::Interface;
use crate::unsafe_ring::{Consumer, Producer};

/// `XDP_UMEM_TX_METADATA_LEN`: `tx_metadata_len` holds (`linux/if_xdp.h`).
const TX_METADATA_LEN: XdpUmemRegFlags = XdpUmemRegFlags::from_bits_retain(1 << 2);

/// Entries of each ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingSizes {
    pub(super) rx: u32,
    pub(super) tx: u32,
    pub(super) fill: u32,
    pub(super) completion: u32,
}

/// A socket with packet memory and rings. It can be passed to another process by its descriptor, or
/// [mapped](Self::map) and driven here.
#[derive(Debug)]
pub struct XdpSocket {
    pub(super) fd: OwnedFd,
    pub(super) region: Arc<Region>,
    pub(super) sizes: RingSizes,
    pub(super) link: Interface,
    pub(super) queue: u32,
    pub(super) mode: BindMode,
    pub(super) multi_buffer: bool,
    /// It has registered no memory: it takes that of the socket which it is bound beside.
    pub(super) shares: bool,
    pub(super) rx_buffers: u32,
    pub(super) assume_rx_checksums: bool,
    /// Packet memory was registered with transmit metadata.
    pub(super) tx_checksum_offload: bool,
    /// Another process opened it, and may hold it still when we close it.
    pub(super) adopted: bool,
}

impl XdpSocket {
    /// Makes a socket, and registers `region` as its packet memory.
    ///
    /// # Errors
    /// [`AfXdpError`]: each says what to do.
    pub fn create(config: &AfXdpConfig, region: &Arc<Region>) -> Result<Self, AfXdpError> {
        let socket = Self::make(config, region, false)?;
        let bytes = region.len_bytes();
        let mut registration = XdpUmemReg {
            addr: region.base().as_ptr() as u64,
            len: bytes as u64,
            chunk_size: region.chunk_bytes().get() as u32,
            headroom: CHUNK_HEADER as u32,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        if config.tx_checksum_offload {
            registration.flags = TX_METADATA_LEN;
            registration.tx_metadata_len = TX_METADATA as u32;
        }
        let is_refused = |errno| match errno {
            Errno::INVAL if config.tx_checksum_offload => {
                AfXdpError::NoTxMetadata { source: errno.into() }
            }
            _ => AfXdpError::Memory { bytes, source: errno.into() },
        };
        set_xdp_umem_reg(&socket.fd, registration).map_err(is_refused)?;
        Ok(socket)
    }

    /// Makes sockets for the queues `0..queues` of an interface: the first one registers `region`, the others are to be
    /// [bound beside](Self::bind_all) it.
    ///
    /// # Errors
    /// [`AfXdpError`]: each says what to do.
    pub fn create_all(
        config: &AfXdpConfig,
        queues: u32,
        region: &Arc<Region>,
    ) -> Result<Vec<Self>, AfXdpError> {
        let create = |queue| {
            let config = AfXdpConfig { queue, ..config.clone() };
            match queue {
                0 => Self::create(&config, region),
                _ => Self::make(&config, region, true),
            }
        };
        (0..queues).map(create).collect()
    }

    fn make(config: &AfXdpConfig, region: &Arc<Region>, shares: bool) -> Result<Self, AfXdpError> {
        config.check()?;
        let link = find(&config.interface)?;
        let fd = new_socket()?;
        let sizes = set_rings(&fd, config)?;
        Ok(Self {
            fd,
            region: Arc::clone(region),
            sizes,
            link,
            queue: config.queue,
            mode: config.mode,
            multi_buffer: config.multi_buffer,
            shares,
            rx_buffers: config.rx_buffers,
            assume_rx_checksums: config.assume_rx_checksums,
            tx_checksum_offload: config.tx_checksum_offload,
            adopted: false,
        })
    }

    /// Binds it to its queue. From now on the device takes chunks from the fill ring.
    ///
    /// # Errors
    /// [`AfXdpError`]: each says what to do.
    pub fn bind(&self) -> Result<(), AfXdpError> {
        let mode = match self.mode {
            BindMode::Auto => SocketAddrXdpFlags::empty(),
            BindMode::Copy => SocketAddrXdpFlags::XDP_COPY,
            BindMode::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
        };
        let mut flags = mode | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        flags.set(SocketAddrXdpFlags::XDP_USE_SG, self.multi_buffer);
        let address = SocketAddrXdp::new(flags, self.link.index, self.queue);
        patiently(|| bind(&self.fd, &address)).map_err(|errno| self.bind_error(errno))
    }

    /// Binds it to its queue, on the packet memory of `first`, which is bound, and in its mode.
    ///
    /// # Errors
    /// [`AfXdpError`]: each says what to do.
    pub fn bind_beside(&self, first: &Self) -> Result<(), AfXdpError> {
        if self.link.index == first.link.index && self.queue == first.queue {
            // The kernel would let both share one fill ring, which has one producer.
            return Err(self.bind_error(Errno::BUSY));
        }
        // The flags of the first socket hold for all; the kernel refuses others here.
        let flags = SocketAddrXdpFlags::XDP_SHARED_UMEM;
        patiently(|| {
            let addr = SocketAddrXdp::new(flags, self.link.index, self.queue);
            let shared_umem_fd = first.fd.as_fd();
            bind(&self.fd, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd })
        })
        .map_err(|errno| self.bind_error(errno))
    }

    /// Binds sockets of [`create_all`](Self::create_all), in their order.
    ///
    /// # Errors
    /// [`AfXdpError`]: each says what to do.
    pub fn bind_all<'a>(sockets: impl IntoIterator<Item = &'a Self>) -> Result<(), AfXdpError> {
        let mut first = None;
        for socket in sockets {
            match first {
                Some(first) if socket.shares => socket.bind_beside(first)?,
                _ => socket.bind()?,
            }
            first.get_or_insert(socket);
        }
        Ok(())
    }

    /// Maps the rings. To be called before the socket is bound.
    ///
    /// # Errors
    /// [`AfXdpError::RingsInUse`] where the socket has an owner already, [`AfXdpError::Os`] where mapping fails.
    pub fn map(self) -> Result<MappedSocket, AfXdpError> {
        let rings = Rings::map(self.fd.as_fd(), &self.sizes)?;
        Ok(MappedSocket { rings, socket: self })
    }

    /// Makes, maps and binds the sockets of the queues `0..queues`, for a driver of this process.
    ///
    /// # Errors
    /// [`AfXdpError`]: each says what to do.
    pub fn open_queues(
        config: &AfXdpConfig,
        queues: u32,
        region: &Arc<Region>,
    ) -> Result<Vec<MappedSocket>, AfXdpError> {
        let sockets = Self::create_all(config, queues, region)?;
        let mapped = sockets.into_iter().map(Self::map).collect::<Result<Vec<_>, _>>()?;
        Self::bind_all(mapped.iter().map(MappedSocket::socket))?;
        Ok(mapped)
    }

    /// The same for one queue, `config.queue`.
    ///
    /// # Errors
    /// [`AfXdpError`]: each says what to do.
    pub fn open(config: &AfXdpConfig, region: &Arc<Region>) -> Result<MappedSocket, AfXdpError> {
        let mapped = Self::create(config, region)?.map()?;
        mapped.socket.bind()?;
        Ok(mapped)
    }

    /// Whether a queue can be bound in the mode that `wanted` says, with chunks of this size, tried with a socket that
    /// is closed again: only a bind knows. The XDP program is to be attached already. The queue's other traffic may be
    /// lost meanwhile.
    ///
    /// # Errors
    /// [`AfXdpError::NoZeroCopy`]; or why a socket could not be bound at all.
    pub fn try_bind(wanted: &AfXdpConfig, size: ChunkBytes) -> Result<(), AfXdpError> {
        Self::try_create(wanted, size)?.bind()
    }

    /// Makes a socket on small packet memory of its own, to see what the kernel takes.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn try_create(wanted: &AfXdpConfig, size: ChunkBytes) -> Result<Self, AfXdpError> {
        /// As many chunks as the rings that are tried have entries.
        const CHUNKS: usize = MIN_RING_FRAMES as usize;
        let region =
            Region::map_of(CHUNKS, size, HugePages::No).map_err(|error| AfXdpError::Memory {
                bytes: CHUNKS * size.get(),
                source: std::io::Error::other(error.to_string()),
            })?;
        let config = AfXdpConfig {
            rx_ring_frames: MIN_RING_FRAMES,
            tx_ring_frames: MIN_RING_FRAMES,
            rx_buffers: MIN_RING_FRAMES,
            ..wanted.clone()
        };
        Self::create(&config, &region)
    }

    /// The socket: to be put into an XDP program's map, or passed to another process. While another
    /// descriptor of it exists, closing this one does not end reception: whoever duplicates it must
    /// not [`close`](crate::Nic::close) a driver on it for its chunks.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The packet memory.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The queue that it is for.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// The interface that it is for.
    pub fn interface(&self) -> &Interface {
        &self.link
    }

    /// Whether the device reads and writes packet memory itself, as the kernel says of a socket that is bound.
    ///
    /// # Errors
    /// [`AfXdpError::Os`].
    pub fn is_zero_copy(&self) -> Result<bool, AfXdpError> {
        let options =
            xdp_options(&self.fd).map_err(AfXdpError::os("asking for the socket's mode"))?;
        Ok(options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    fn bind_error(&self, errno: Errno) -> AfXdpError {
        let (interface, queue) = (self.link.name.clone(), self.queue);
        let source = std::io::Error::from(errno);
        match errno {
            Errno::BUSY => AfXdpError::QueueBusy { interface, queue },
            Errno::PERM | Errno::ACCESS => AfXdpError::NotPermitted { source },
            Errno::NODEV | Errno::NXIO => AfXdpError::NoInterface { interface, source },
            Errno::NETDOWN => AfXdpError::IsDown { interface },
            // A driver answers as it likes: that it has none, or that it does not like the memory, the queue, the MTU.
            _ if self.mode == BindMode::ZeroCopy => {
                AfXdpError::NoZeroCopy { interface, queue, source }
            }
            _ => AfXdpError::NoQueue { interface, queue, source },
        }
    }
}

/// The rings of a socket, in this process.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) fill: Producer<u64, MappedRing<u64>>,
    pub(super) rx: Consumer<XdpDesc, MappedRing<XdpDesc>>,
    pub(super) tx: Producer<XdpDesc, MappedRing<XdpDesc>>,
    pub(super) completion: Consumer<u64, MappedRing<u64>>,
}

impl Rings {
    pub(super) fn map(fd: BorrowedFd<'_>, sizes: &RingSizes) -> Result<Self, AfXdpError> {
        let offsets =
            xdp_mmap_offsets(fd).map_err(AfXdpError::os("asking for the rings' layout"))?;
        let failed = || AfXdpError::os("mapping the rings");
        let fill = Producer::new(map(fd, Kind::Fill, &offsets, sizes.fill).map_err(failed())?);
        let completion =
            Consumer::new(map(fd, Kind::Completion, &offsets, sizes.completion).map_err(failed())?);
        let rx = Consumer::new(map(fd, Kind::Receive, &offsets, sizes.rx).map_err(failed())?);
        let tx = Producer::new(map(fd, Kind::Transmit, &offsets, sizes.tx).map_err(failed())?);
        // An entry of an earlier owner names a chunk that our pool may believe free.
        let entries = fill.pending() + completion.backlog() + rx.backlog() + tx.pending();
        if entries > 0 {
            return Err(AfXdpError::RingsInUse { entries });
        }
        Ok(Self { fill, rx, tx, completion })
    }
}

/// A socket whose rings are mapped, for [`AfXdp::new`](super::AfXdp::new) once it is bound.
#[derive(Debug)]
pub struct MappedSocket {
    // They come first: fields drop in order, and a mapping keeps the socket open.
    pub(super) rings: Rings,
    pub(super) socket: XdpSocket,
}

impl MappedSocket {
    /// The socket.
    pub fn socket(&self) -> &XdpSocket {
        &self.socket
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(miri))]
    #[test]
    fn a_refused_zero_copy_is_not_explained_by_missing_queues() {
        let interface = |name: &str| Interface {
            name: name.to_owned(),
            index: 2,
            mac: wire::MacAddr::default(),
            mtu: 1500,
            hardware_type: 1,
        };
        let socket = |mode| XdpSocket {
            // Any descriptor: nothing is done with it.
            fd: std::fs::File::open("/dev/null").expect("it is there").into(),
            region: Region::heap(64),
            sizes: RingSizes { rx: 64, tx: 64, fill: 64, completion: 64 },
            link: interface("eth0"),
            queue: 0,
            mode,
            multi_buffer: false,
            shares: false,
            rx_buffers: 64,
            assume_rx_checksums: false,
            tx_checksum_offload: false,
            adopted: false,
        };
        for errno in [Errno::OPNOTSUPP, Errno::INVAL] {
            let error = socket(BindMode::ZeroCopy).bind_error(errno);
            assert!(matches!(error, AfXdpError::NoZeroCopy { queue: 0, .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("zero-copy") && !text.contains("fewer queues"), "{text}");
        }
        let error = socket(BindMode::Copy).bind_error(Errno::INVAL);
        assert!(matches!(error, AfXdpError::NoQueue { queue: 0, .. }), "{error}");
    }
}
