//! The ends of a connection in one word: what tells the connections of a host with one address apart.
//!
//! ```
//! use tailplane_wire::{Endpoint, FlowKey};
//! let remote: Endpoint = "10.0.0.1:40000".parse().unwrap();
//! let key = FlowKey::new(remote, 11211);
//! assert_eq!((key.remote(), key.local_port()), (remote, 11211));
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
