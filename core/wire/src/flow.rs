//! The ends of a connection in one word: what tells the connections of a host with one address apart.
//!
//! ```
//! use wire::{Endpoint, FlowKey};
//! let remote: Endpoint = "10.0.0.1:40000".parse().unwrap();
//! let key = FlowKey::new(remote, 11211);
//! assert_eq!((key.remote(), key.local_port()), (remote, 11211));
//! assert_eq!(key.to_bits(), 0x0a00_0001_9c40_2bcb);
//! assert_eq!(FlowKey::from_bits(key.to_bits()), key);
//! ```

use crate::{Endpoint, Ipv4Addr};

/// The remote end and the local port, laid out as they lie in a received packet (address, source port, destination
/// port, all in memory order): made, compared and put into a header without turning a byte.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default)]
pub struct FlowKey {
    /// The remote address.
    pub(crate) address: u32,
    /// The remote port, then the local one.
    pub(crate) ports: u32,
}

impl FlowKey {
    /// The key of the connection between `remote` and our `local_port`.
    #[inline]
    pub const fn new(remote: Endpoint, local_port: u16) -> Self {
        let ([a, b], [c, d]) = (remote.port.to_be_bytes(), local_port.to_be_bytes());
        FlowKey {
            address: u32::from_ne_bytes(remote.addr.octets()),
            ports: u32::from_ne_bytes([a, b, c, d]),
        }
    }

    /// The key as one number: from the top the remote address, the remote port, the local port. The same on every
    /// machine, and never 0 where there is an address.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        let address = u32::from_be_bytes(self.remote_addr().octets());
        (address as u64) << 32 | (self.remote_port() as u64) << 16 | self.local_port() as u64
    }

    /// The key of such a number. Any is one.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        let [a, b, c, d] = ((bits >> 32) as u32).to_be_bytes();
        let remote = Endpoint { addr: Ipv4Addr::new(a, b, c, d), port: (bits >> 16) as u16 };
        Self::new(remote, bits as u16)
    }

    /// The remote address.
    #[inline]
    pub const fn remote_addr(self) -> Ipv4Addr {
        let [a, b, c, d] = self.address.to_ne_bytes();
        Ipv4Addr::new(a, b, c, d)
    }

    /// The remote port.
    #[inline]
    pub const fn remote_port(self) -> u16 {
        let [a, b, ..] = self.ports.to_ne_bytes();
        u16::from_be_bytes([a, b])
    }

    /// Our port.
    #[inline]
    pub const fn local_port(self) -> u16 {
        let [.., c, d] = self.ports.to_ne_bytes();
        u16::from_be_bytes([c, d])
    }

    /// The remote end.
    #[inline]
    pub const fn remote(self) -> Endpoint {
        Endpoint { addr: self.remote_addr(), port: self.remote_port() }
    }
}

impl core::fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} to {}", self.remote(), self.local_port())
    }
}
