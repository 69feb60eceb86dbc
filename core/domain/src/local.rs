//! The dataplane's own end of a connection or of a datagram's path.

use wire::{Address, Endpoint};

/// A port, and which of the dataplane's own addresses it is of, by the address's position in the configuration's list.
///
/// Without a position the dataplane chooses the address: by the peer's version, scope and network (RFC 6724 §5). Port 0 is
/// none. Three bytes, so that records have room for it beside the peer's address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LocalEndpoint {
    port: [u8; 2],
    /// The position, and one; 0: unspecified.
    address: u8,
}

impl LocalEndpoint {
    /// Neither an address nor a port.
    pub const UNSPECIFIED: Self = Self { port: [0; 2], address: 0 };
    /// Positions that can be named: addresses of a longer list are unspecified from there on.
    pub const POSITIONS: usize = u8::MAX as usize;

    /// This port of the own address at `position` of the list.
    pub const fn new(position: usize, port: u16) -> Self {
        let address = if position < Self::POSITIONS { position as u8 + 1 } else { 0 };
        Self { port: port.to_be_bytes(), address }
    }

    /// An own end, whose address is one of this list, or else unspecified.
    pub fn among(mut own: impl Iterator<Item = Address>, end: Endpoint) -> Self {
        let position = own.position(|own| own == end.addr);
        position.map_or(end.port.into(), |position| Self::new(position, end.port))
    }

    /// The port.
    #[inline]
    pub const fn port(self) -> u16 {
        u16::from_be_bytes(self.port)
    }

    /// The position of the address in the list; `None`: it is unspecified.
    #[inline]
    pub const fn position(self) -> Option<usize> {
        (self.address as usize).checked_sub(1)
    }

    /// The same address with another port.
    #[must_use]
    pub const fn with_port(self, port: u16) -> Self {
        Self { port: port.to_be_bytes(), ..self }
    }

    /// As the low 24 bits of a word: the port above the address.
    #[inline]
    pub const fn to_bits(self) -> u32 {
        (self.port() as u32) << 8 | self.address as u32
    }

    /// What the low 24 bits of a word are, whichever they are. No dataplane need have such an address.
    #[inline]
    pub const fn from_bits(bits: u32) -> Self {
        Self { port: ((bits >> 8) as u16).to_be_bytes(), address: bits as u8 }
    }
}

/// This port of an unspecified address.
impl From<u16> for LocalEndpoint {
    #[inline]
    fn from(port: u16) -> Self {
        Self::UNSPECIFIED.with_port(port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_position_and_port_has_bits_of_its_own() {
        assert_eq!(LocalEndpoint::from(0), LocalEndpoint::UNSPECIFIED);
        for position in 0..LocalEndpoint::POSITIONS {
            let local = LocalEndpoint::new(position, 0x8001);
            assert_eq!((local.position(), local.port()), (Some(position), 0x8001));
            assert_eq!(LocalEndpoint::from_bits(0xff << 24 | local.to_bits()), local);
            assert_eq!(local.with_port(7), LocalEndpoint::new(position, 7));
        }
        assert_eq!(LocalEndpoint::new(LocalEndpoint::POSITIONS, 7), 7.into());
        let port_alone = LocalEndpoint::from(7);
        assert_eq!((port_alone.position(), port_alone.to_bits()), (None, 7 << 8));
    }
}
