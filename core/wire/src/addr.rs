//! Addresses: `MacAddr`, `Address` (an IPv4 or IPv6 address in 16 bytes), and `Endpoint`, an address with a port.
//!
//! ```
//! use wire::{Endpoint, MacAddr};
//! let mac: MacAddr = "02:00:00:00:00:01".parse().unwrap();
//! let endpoint: Endpoint = "10.0.0.1:6379".parse().unwrap();
//! let other: Endpoint = "[2001:db8::1]:6379".parse().unwrap();
//! assert!(!mac.is_multicast());
//! assert_eq!((endpoint.port, endpoint.addr.is_ipv4()), (6379, true));
//! assert_eq!((other.to_string().as_str(), other.addr.is_ipv4()), ("[2001:db8::1]:6379", false));
//! ```

use core::fmt;
use core::net::{IpAddr, SocketAddr, SocketAddrV4};
use core::str::FromStr;

pub use core::net::{Ipv4Addr, Ipv6Addr};

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

/// An IPv4 or IPv6 address. An IPv4 address is the IPv6 address that maps it (RFC 4291 §2.5.5.2), which no packet may
/// have: so events and calls that name a peer keep their 32 bytes, and nothing has to ask for a version to compare.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address([u8; 16]);

impl Address {
    /// What is in front of a mapped IPv4 address.
    const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

    /// An IPv4 address.
    #[inline]
    pub const fn of_v4(v4: Ipv4Addr) -> Self {
        Self(v4.to_ipv6_mapped().octets())
    }

    /// An IPv6 address; one that maps an IPv4 address is that.
    #[inline]
    pub const fn of_v6(v6: Ipv6Addr) -> Self {
        Self(v6.octets())
    }

    /// Whether it is an IPv4 address.
    #[inline]
    pub fn is_ipv4(self) -> bool {
        self.0.starts_with(&Self::MAPPED)
    }

    /// The IPv4 address, if it is one.
    #[inline]
    pub fn v4(self) -> Option<Ipv4Addr> {
        let [.., a, b, c, d] = self.0;
        self.is_ipv4().then_some(Ipv4Addr::new(a, b, c, d))
    }

    /// The IPv6 address, if it is one.
    #[inline]
    pub fn v6(self) -> Option<Ipv6Addr> {
        (!self.is_ipv4()).then_some(Ipv6Addr::from_octets(self.0))
    }

    /// All 16 bytes, in transmission order.
    #[inline]
    pub const fn octets(self) -> [u8; 16] {
        self.0
    }

    /// The address of these bytes. Any are one.
    #[inline]
    pub const fn from_octets(octets: [u8; 16]) -> Self {
        Self(octets)
    }

    /// As the standard library says it.
    #[inline]
    pub fn ip(self) -> IpAddr {
        IpAddr::from(Ipv6Addr::from_octets(self.0)).to_canonical()
    }

    /// The address of no host, of the same version.
    #[inline]
    pub fn is_unspecified(self) -> bool {
        self.ip().is_unspecified()
    }

    /// Whether no single host can have it, or only the host that asks: multicast, broadcast, unspecified and loopback
    /// (RFC 1122 §3.2.1.3, RFC 4291 §2.5 and §2.7), and what IPv4 reserves (RFC 1112 §4).
    #[inline]
    pub fn is_martian(self) -> bool {
        match self.ip() {
            IpAddr::V4(v4) => v4.octets()[0] >= 224 || v4.octets()[0] == 0 || v4.is_loopback(),
            IpAddr::V6(v6) => v6.is_multicast() || v6.is_unspecified() || v6.is_loopback(),
        }
    }

    /// Whether the first `bits` bits are those of `network`, and the version too. Beyond its bits a longer prefix says
    /// no more than the whole address.
    #[inline]
    pub fn is_in(self, network: Self, bits: u8) -> bool {
        let bits = match (self.is_ipv4(), network.is_ipv4()) {
            (true, true) => u32::from(bits.min(32)) + 96,
            (false, false) => u32::from(bits.min(128)),
            _ => return false,
        };
        let differing = u128::from_be_bytes(self.0) ^ u128::from_be_bytes(network.0);
        differing.checked_shr(128 - bits).unwrap_or(0) == 0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip().fmt(f)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Address {
    type Err = ParseAddrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "an address such as 10.0.0.1 or 2001:db8::1";
        IpAddr::from_str(text).map(Self::from).map_err(|_| ParseAddrError { expected: EXPECTED })
    }
}

impl From<Ipv4Addr> for Address {
    #[inline]
    fn from(v4: Ipv4Addr) -> Self {
        Self::of_v4(v4)
    }
}

impl From<Ipv6Addr> for Address {
    #[inline]
    fn from(v6: Ipv6Addr) -> Self {
        Self::of_v6(v6)
    }
}

impl From<IpAddr> for Address {
    #[inline]
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

/// An address and how many of its bits are those of its network: a network, or a host in it.
#[derive(Debug, Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The address.
    pub address: Address,
    /// Bits of the network: at most 32, or 128 for IPv6.
    pub bits: u8,
}

impl Prefix {
    /// A prefix; bits that the version does not have count for nothing.
    pub fn new(address: Address, bits: u8) -> Self {
        Self { address, bits: bits.min(if address.is_ipv4() { 32 } else { 128 }) }
    }

    /// The network of one host.
    pub fn host(address: Address) -> Self {
        Self::new(address, u8::MAX)
    }

    /// Whether `address` is in this network.
    #[inline]
    pub fn contains(&self, address: Address) -> bool {
        address.is_in(self.address, self.bits)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Prefix {
    type Err = ParseAddrError;

    /// Reads `10.0.0.2/24` or `2001:db8::2/64`; the bits are required.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = ParseAddrError { expected: "a network such as 10.0.0.0/24 or 2001:db8::/64" };
        let (address, bits) = text.split_once('/').ok_or(error)?;
        let prefix =
            Self::new(address.parse().map_err(|_| error)?, bits.parse().map_err(|_| error)?);
        // A sign, zeros in front, or bits that there are not.
        let is_whole = bits.len() == prefix.bits.checked_ilog10().unwrap_or(0) as usize + 1;
        match is_whole && bits.parse() == Ok(prefix.bits) {
            true => Ok(prefix),
            false => Err(error),
        }
    }
}

/// One end of a TCP or UDP conversation.
#[derive(Debug, Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The host.
    pub addr: Address,
    /// The TCP or UDP port.
    pub port: u16,
}

impl Endpoint {
    /// An address and a port together.
    #[inline]
    pub fn new(addr: impl Into<Address>, port: u16) -> Self {
        Endpoint { addr: addr.into(), port }
    }

    /// The same of an IPv4 address, also where a constant is wanted.
    #[inline]
    pub const fn v4(addr: Ipv4Addr, port: u16) -> Self {
        Endpoint { addr: Address::of_v4(addr), port }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::from(*self).fmt(f)
    }
}

impl FromStr for Endpoint {
    type Err = ParseAddrError;

    /// Reads `a.b.c.d:port` or `[a:b::c]:port`; the port is required.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "an endpoint such as 10.0.0.1:6379 or [2001:db8::1]:6379";
        let socket = SocketAddr::from_str(text);
        socket.map(Self::from).map_err(|_| ParseAddrError { expected: EXPECTED })
    }
}

impl From<SocketAddrV4> for Endpoint {
    #[inline]
    fn from(socket: SocketAddrV4) -> Self {
        Endpoint::v4(*socket.ip(), socket.port())
    }
}

impl From<SocketAddr> for Endpoint {
    #[inline]
    fn from(socket: SocketAddr) -> Self {
        Endpoint::new(socket.ip(), socket.port())
    }
}

impl From<Endpoint> for SocketAddr {
    #[inline]
    fn from(endpoint: Endpoint) -> Self {
        SocketAddr::new(endpoint.addr.ip(), endpoint.port)
    }
}

/// Text that was not the address it should be; says which form was expected.
#[derive(Debug, Copy, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read address: expected {expected}")]
pub struct ParseAddrError {
    expected: &'static str,
}
