//! The ends of a connection in one word: what tells the connections of a host apart.
//!
//! ```
//! use wire::{FlowKey, PairId};
//! let pair = PairId::of_v4("10.0.0.1".parse().unwrap());
//! let key = FlowKey::new(pair, 40000, 11211);
//! assert_eq!((key.pair(), key.remote_port(), key.local_port()), (pair, 40000, 11211));
//! ```

use crate::Ipv4Addr;

/// A pair of addresses, our own and a peer's, in 32 bits.
///
/// Nearly always a host speaks IPv4 from one address: then the pair is the peer's address, and lies in a packet as it is.
/// Any other pair has a number, and who gave the number knows the addresses. Numbers stand in 224.0.0.0/4, where no
/// peer's address is (RFC 1112 §4: multicast).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default)]
pub struct PairId(pub(crate) u32);

impl PairId {
    /// The first of the numbers, as an address.
    const NUMBERED: u32 = 0xe000_0000;
    /// Numbers that there are.
    pub const NUMBERS: u32 = 1 << 28;

    /// The pair of our first IPv4 address and a peer's.
    #[inline]
    pub const fn of_v4(peer: Ipv4Addr) -> Self {
        Self(u32::from_ne_bytes(peer.octets()))
    }

    /// The pair that has this number, below [`NUMBERS`](Self::NUMBERS).
    #[inline]
    pub const fn of_number(number: u32) -> Self {
        Self((Self::NUMBERED | (number % Self::NUMBERS)).to_be())
    }

    /// The peer's address, where the pair has no number.
    #[inline]
    pub const fn v4(self) -> Result<Ipv4Addr, u32> {
        let bits = u32::from_be(self.0);
        match bits & Self::NUMBERED == Self::NUMBERED && bits < 0xf000_0000 {
            true => Err(bits % Self::NUMBERS),
            false => Ok(Ipv4Addr::from_bits(bits)),
        }
    }

    /// The peer's address, where the pair is known to have no number.
    #[inline]
    pub const fn as_v4(self) -> Ipv4Addr {
        Ipv4Addr::from_octets(self.0.to_ne_bytes())
    }

    /// Whether the pair has a number.
    #[inline]
    pub const fn is_numbered(self) -> bool {
        self.v4().is_err()
    }
}

impl core::fmt::Debug for PairId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.v4() {
            Ok(peer) => write!(f, "{peer}"),
            Err(number) => write!(f, "pair {number}"),
        }
    }
}

/// The pair of addresses, the remote and the local port, laid out as they lie in a received IPv4 packet (address, source
/// port, destination port, all in memory order): made, compared and put into a header without turning a byte.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default)]
pub struct FlowKey {
    pub(crate) pair: PairId,
    /// The remote port, then the local one.
    pub(crate) ports: u32,
}

impl FlowKey {
    /// The key of the connection of a pair of hosts between these ports.
    #[inline]
    pub const fn new(pair: PairId, remote_port: u16, local_port: u16) -> Self {
        let ([a, b], [c, d]) = (remote_port.to_be_bytes(), local_port.to_be_bytes());
        FlowKey { pair, ports: u32::from_ne_bytes([a, b, c, d]) }
    }

    /// The same ports of another pair.
    #[inline]
    #[must_use]
    pub const fn with_pair(self, pair: PairId) -> Self {
        FlowKey { pair, ports: self.ports }
    }

    /// The pair of addresses.
    #[inline]
    pub const fn pair(self) -> PairId {
        self.pair
    }

    /// Whether the ports are those of `other`.
    #[inline]
    pub const fn has_ports_of(self, other: Self) -> bool {
        self.ports == other.ports
    }

    /// The remote and the local port, as they lie in a received packet.
    #[inline]
    pub const fn ports(self) -> [u8; 4] {
        self.ports.to_ne_bytes()
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
}

impl core::fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?}:{} to {}", self.pair, self.remote_port(), self.local_port())
    }
}
