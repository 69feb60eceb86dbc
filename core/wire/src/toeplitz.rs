//! The Toeplitz hash of receive-side scaling, as the NICs compute it (Microsoft, "RSS hashing functions").
//!
//! `Toeplitz::new(&MICROSOFT_KEY).hash_v4(src, dst, src_port, dst_port)` gives the number whose low bits select the
//! flow group. The hash is linear over GF(2): each input byte contributes a word that depends on its position and
//! value only, so twelve look-ups replace ninety-six conditional shifts. Over IPv6 (`hash_v6`) thirty-six do.

use core::net::Ipv6Addr;

use crate::Ipv4Addr;

/// Bytes of the longest input, the IPv6 4-tuple: two addresses, two ports. The IPv4 4-tuple has the first 12 positions.
const TUPLE_LEN: usize = 36;
/// Position of the ports in the IPv6 4-tuple.
const PORTS_V6: usize = 32;

/// The key of Microsoft's verification suite, also the default of many drivers.
pub const MICROSOFT_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// A key's tables: 36 KiB, made once and kept in one place. IPv4 reads the first 12 KiB of them.
#[derive(Clone)]
pub struct Toeplitz {
    tables: [[u32; 256]; TUPLE_LEN],
}

impl Toeplitz {
    /// Makes the tables for `key`. Can be evaluated at compile time, which keeps the tables off every stack.
    pub const fn new(key: &[u8; 40]) -> Self {
        let mut tables = [[0; 256]; TUPLE_LEN];
        let mut position = 0;
        while position < TUPLE_LEN {
            // Each bit doubles the values that are made: those without it, and the same with it.
            let mut made = 1usize;
            while made < 256 {
                let bit = 7 - made.trailing_zeros() as usize;
                let contribution = window(key, 8 * position + bit);
                let mut value = 0;
                while value < made {
                    tables[position][made | value] = tables[position][value] ^ contribution;
                    value += 1;
                }
                made *= 2;
            }
            position += 1;
        }
        Toeplitz { tables }
    }

    /// What each value of each byte contributes to the hash, in the order of a packet: source and destination address,
    /// source and destination port, of IPv4 in the first 12 tables, of IPv6 in all. For programs that compute it
    /// elsewhere, in the kernel say.
    pub fn tables(&self) -> &[[u32; 256]; 36] {
        &self.tables
    }

    /// The hash of addresses and ports as the receiver's NIC sees them: `src` is the remote end of what is received.
    #[inline]
    pub fn hash_v4(&self, src: Ipv4Addr, dst: Ipv4Addr, src_port: u16, dst_port: u16) -> u32 {
        self.hash_v4_to(self.destination(dst), src, src_port, dst_port)
    }

    /// What a destination address contributes to the hash: a receiver computes its own once.
    pub fn destination(&self, dst: Ipv4Addr) -> u32 {
        self.contribution(4, dst.octets())
    }

    /// As [`hash_v4`](Self::hash_v4), where `destination` is [`destination`](Self::destination) of the
    /// receiver's address.
    #[inline]
    pub fn hash_v4_to(&self, destination: u32, src: Ipv4Addr, src_port: u16, dst_port: u16) -> u32 {
        let ([e, f], [g, h]) = (src_port.to_be_bytes(), dst_port.to_be_bytes());
        self.hash_v4_of(destination, src, [e, f, g, h])
    }

    /// The same with source and destination port as they lie in a packet.
    #[inline]
    pub fn hash_v4_of(&self, destination: u32, src: Ipv4Addr, ports: [u8; 4]) -> u32 {
        let ([a, b, c, d], [e, f, g, h]) = (src.octets(), ports);
        let t = &self.tables;
        destination
            ^ t[0][usize::from(a)]
            ^ t[1][usize::from(b)]
            ^ t[2][usize::from(c)]
            ^ t[3][usize::from(d)]
            ^ t[8][usize::from(e)]
            ^ t[9][usize::from(f)]
            ^ t[10][usize::from(g)]
            ^ t[11][usize::from(h)]
    }

    /// The hash of the addresses only, as for fragments and protocols without ports.
    #[inline]
    pub fn hash_v4_2tuple(&self, src: Ipv4Addr, dst: Ipv4Addr) -> u32 {
        self.contribution(0, src.octets()) ^ self.destination(dst)
    }

    /// The hash of IPv6 addresses and ports: `src` is the remote end of what is received.
    #[inline]
    pub fn hash_v6(&self, src: Ipv6Addr, dst: Ipv6Addr, src_port: u16, dst_port: u16) -> u32 {
        self.hash_v6_to(self.destination_v6(dst), src, src_port, dst_port)
    }

    /// What an IPv6 destination address contributes to the hash: a receiver computes its own once.
    pub fn destination_v6(&self, dst: Ipv6Addr) -> u32 {
        self.contribution(16, dst.octets())
    }

    /// As [`hash_v6`](Self::hash_v6), where `destination` is [`destination_v6`](Self::destination_v6) of the
    /// receiver's address.
    #[inline]
    pub fn hash_v6_to(&self, destination: u32, src: Ipv6Addr, src_port: u16, dst_port: u16) -> u32 {
        let ([a, b], [c, d]) = (src_port.to_be_bytes(), dst_port.to_be_bytes());
        destination ^ self.source_v6(src) ^ self.ports_v6([a, b, c, d])
    }

    /// What an IPv6 source address contributes to the hash.
    #[inline]
    pub fn source_v6(&self, src: Ipv6Addr) -> u32 {
        self.contribution(0, src.octets())
    }

    /// What the ports of an IPv6 packet contribute to the hash, source and destination as they lie in it.
    #[inline]
    pub fn ports_v6(&self, ports: [u8; 4]) -> u32 {
        self.contribution(PORTS_V6, ports)
    }

    /// The hash of the IPv6 addresses only, as for fragments, extension headers and protocols without ports.
    #[inline]
    pub fn hash_v6_2tuple(&self, src: Ipv6Addr, dst: Ipv6Addr) -> u32 {
        self.contribution(0, src.octets()) ^ self.destination_v6(dst)
    }

    /// What `bytes` contribute that begin at `position` of the input.
    #[inline]
    fn contribution<const N: usize>(&self, position: usize, bytes: [u8; N]) -> u32 {
        let tables = self.tables[position..position + N].iter();
        tables.zip(bytes).fold(0, |hash, (table, byte)| hash ^ table[usize::from(byte)])
    }
}

/// The 32 bits of `key` that start at bit `start`, the first bit being the most significant of the first byte.
const fn window(key: &[u8; 40], start: usize) -> u32 {
    let mut window = 0;
    let mut bit = start;
    while bit < start + 32 {
        window = window << 1 | (key[bit / 8] >> (7 - bit % 8) & 1) as u32;
        bit += 1;
    }
    window
}

/// The hash by its definition, bit by bit: the oracle for the tables and for configuration checks, not for packets.
/// Input bits beyond the 289 that a 320-bit key covers contribute nothing.
pub fn toeplitz_reference(key: &[u8; 40], input: &[u8]) -> u32 {
    let bits = input.iter().flat_map(|byte| (0..8).map(move |bit| byte >> (7 - bit) & 1));
    bits.take(320 - 31)
        .enumerate()
        .filter(|(_, bit)| *bit == 1)
        .fold(0, |hash, (position, _)| hash ^ window(key, position))
}
