//! Taking over a socket that another process made: the dataplane's half of the split between a
//! privileged control plane and an unprivileged dataplane.
//!
//! The control plane passes the socket and the region's memory file over a Unix socket; the
//! dataplane maps both, and says so; the control plane binds the socket then. The descriptor does not
//! tell its rings' sizes, so each ring is measured: the kernel maps no more of it than it has.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use mem::Region;
use rustix::net::AddressFamily;
use rustix::net::sockopt::{socket_domain, xdp_mmap_offsets};

use super::config::{AfXdpError, BindMode, MAX_RING_FRAMES, MIN_RING_FRAMES};
use super::socket::{MappedSocket, RingSizes, XdpSocket};
use super::unsafe_map::{Kind, can_map};
use crate::unsafe_interface::Interface;

/// What comes with a socket: facts that its descriptor does not tell, and that the adopter may not
/// be able to look up in its own network namespace.
#[derive(Clone, Debug)]
pub struct AdoptedQueue {
    /// The interface.
    pub interface: Interface,
    /// The queue that the socket is for.
    pub queue: u32,
    /// Chunks that the kernel is to hold for reception (at most the fill ring's size).
    pub rx_buffers: u32,
    /// Report received checksums as verified.
    pub assume_rx_checksums: bool,
    /// Its memory was registered with transmit metadata: see [`AfXdpConfig`](super::AfXdpConfig).
    pub tx_checksum_offload: bool,
    /// Nobody else holds the socket any more when its driver is [closed](crate::Nic::close): closing ends the
    /// kernel's use of packet memory then, and what it held comes back.
    pub is_sole_owner: bool,
}

impl XdpSocket {
    /// Adopts a socket, and maps its rings. `region` must be the memory that was registered with it. It should not be
    /// bound yet: Linux before 6.5 maps no ring of a bound socket.
    ///
    /// # Errors
    /// [`AfXdpError::NotAfXdp`], [`AfXdpError::NoRing`]: the descriptor is not what it should be;
    /// [`AfXdpError::RingsInUse`]: somebody drives it.
    pub fn adopt(
        fd: OwnedFd,
        region: &Arc<Region>,
        queue: AdoptedQueue,
    ) -> Result<MappedSocket, AfXdpError> {
        let domain =
            socket_domain(&fd).map_err(AfXdpError::os("asking for the socket's domain"))?;
        if domain != AddressFamily::XDP {
            return Err(AfXdpError::NotAfXdp { domain: domain.as_raw() });
        }
        let offsets =
            xdp_mmap_offsets(&fd).map_err(AfXdpError::os("asking for the rings' layout"))?;
        let mut sizes = [0; 4];
        for (kind, size) in Kind::ALL.into_iter().zip(&mut sizes) {
            *size = measure(|frames| can_map(fd.as_fd(), kind, &offsets, frames)).map_err(
                |source| AfXdpError::NoRing { ring: kind.name(), source: source.into() },
            )?;
        }
        let [rx, tx, fill, completion] = sizes;
        let socket = Self {
            fd,
            region: Arc::clone(region),
            sizes: RingSizes { rx, tx, fill, completion },
            link: queue.interface,
            queue: queue.queue,
            mode: BindMode::Auto,
            multi_buffer: false,
            shares: queue.queue > 0,
            rx_buffers: queue.rx_buffers.clamp(1, fill),
            assume_rx_checksums: queue.assume_rx_checksums,
            tx_checksum_offload: queue.tx_checksum_offload,
            adopted: !queue.is_sole_owner,
        };
        socket.map()
    }
}

/// The largest power of two that `can_map` takes.
fn measure(
    can_map: impl Fn(u32) -> Result<(), rustix::io::Errno>,
) -> Result<u32, rustix::io::Errno> {
    let mut frames = MIN_RING_FRAMES;
    can_map(frames)?;
    while frames < MAX_RING_FRAMES && can_map(2 * frames).is_ok() {
        frames *= 2;
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn measuring_finds_the_size_within_the_limits() {
        let upto = |size| move |frames| if frames <= size { Ok(()) } else { Err(Errno::INVAL) };
        assert_eq!(measure(upto(2048)), Ok(2048));
        assert_eq!(measure(upto(MIN_RING_FRAMES)), Ok(MIN_RING_FRAMES));
        assert_eq!(measure(upto(1 << 30)), Ok(MAX_RING_FRAMES));
        assert_eq!(measure(upto(64)), Err(Errno::INVAL));
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes a pair of datagram sockets")]
    fn other_descriptors_are_refused() {
        let (socket, _other) = std::os::unix::net::UnixDatagram::pair().expect("a pair");
        let interface = Interface {
            name: "none".into(),
            index: 1,
            mac: wire::MacAddr::default(),
            mtu: 1500,
            hardware_type: 1,
        };
        let queue = AdoptedQueue {
            interface,
            queue: 0,
            rx_buffers: 64,
            assume_rx_checksums: false,
            tx_checksum_offload: false,
            is_sole_owner: false,
        };
        let region = Region::heap(4);
        let error = XdpSocket::adopt(socket.into(), &region, queue.clone()).expect_err("no XDP");
        assert!(matches!(error, AfXdpError::NotAfXdp { .. }), "{error}");
        let file = std::fs::File::open("/dev/null").expect("the null device");
        let error = XdpSocket::adopt(file.into(), &region, queue).expect_err("no socket at all");
        assert!(error.to_string().contains("domain"), "{error}");
    }
}
