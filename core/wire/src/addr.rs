//! Addresses: `MacAddr`, `Ipv4Addr` (the standard library's) and `Endpoint`, an IPv4 address with a port.
//!
//! ```
//! use wire::{Endpoint, MacAddr};
//! let mac: MacAddr = "02:00:00:00:00:01".parse().unwrap();
//! let endpoint: Endpoint = "10.0.0.1:6379".parse().unwrap();
//! assert!(!mac.is_multicast());
//! assert_eq!(endpoint.port, 6379);
//! ```

use core::fmt;
use core::net::SocketAddrV4;
use core::str::FromStr;

pub use core::net::Ipv4Addr;

/// An Ethernet (EUI-48) hardware address, in transmission order.
#[derive(Debug, Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The address of every station on the link.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);

    /// Whether the group bit is set (IEEE 802.3 §3.2.3). Broadcast is multicast too.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether this is the broadcast address.
    #[inline]
    pub fn is_broadcast(self) -> bool {
        self == MacAddr::BROADCAST
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddr {
    type Err = ParseAddrError;

    /// Reads six two-digit hexadecimal groups with `:` between them.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const ERROR: ParseAddrError =
            ParseAddrError { expected: "a MAC address such as 02:00:00:00:00:01" };
        let mut octets = [0u8; 6];
        let mut groups = text.split(':');
        for octet in &mut octets {
            let group = groups.next().ok_or(ERROR)?;
            // from_str_radix also takes "+f", which is no MAC group.
            if group.len() != 2 || !group.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(ERROR);
            }
            *octet = u8::from_str_radix(group, 16).map_err(|_| ERROR)?;
        }
        if groups.next().is_some() { Err(ERROR) } else { Ok(MacAddr(octets)) }
    }
}

/// One end of a TCP or UDP conversation over IPv4.
#[derive(Debug, Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The host.
    pub addr: Ipv4Addr,
    /// The TCP or UDP port.
    pub port: u16,
}

impl Endpoint {
    /// An address and a port together.
    #[inline]
    pub const fn new(addr: Ipv4Addr, port: u16) -> Self {
        Endpoint { addr, port }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.addr, self.port)
    }
}

impl FromStr for Endpoint {
    type Err = ParseAddrError;

    /// Reads `a.b.c.d:port`; the port is required.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        SocketAddrV4::from_str(text)
            .map(Endpoint::from)
            .map_err(|_| ParseAddrError { expected: "an IPv4 endpoint such as 10.0.0.1:6379" })
    }
}

impl From<SocketAddrV4> for Endpoint {
    #[inline]
    fn from(socket: SocketAddrV4) -> Self {
        Endpoint { addr: *socket.ip(), port: socket.port() }
    }
}

impl From<Endpoint> for SocketAddrV4 {
    #[inline]
    fn from(endpoint: Endpoint) -> Self {
        SocketAddrV4::new(endpoint.addr, endpoint.port)
    }
}

/// Text that was not the address it should be; says which form was expected.
#[derive(Debug, Copy, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read address: expected {expected}")]
pub struct ParseAddrError {
    expected: &'static str,
}
