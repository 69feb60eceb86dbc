//! IPv4 (RFC 791): view, representation and the pseudo-header of the transports.
//!
//! `Ipv4View::parse` trims link padding, so `payload()` is exactly the datagram's. The header checksum is a separate
//! question (`verify_checksum`), for devices that have already checked it.

use core::ops::Range;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

use crate::checksum::fold;
use crate::{Ipv4Addr, Sum, WireError};

/// The header without options as it lies in the packet (RFC 791 §3.1).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    version_ihl: u8,
    dscp_ecn: u8,
    total_len: U16,
    ident: U16,
    flags_fragment: U16,
    ttl: u8,
    protocol: u8,
    checksum: U16,
    src: [u8; 4],
    dst: [u8; 4],
}

pub(crate) const DONT_FRAGMENT: u16 = 0x4000;
pub(crate) const MORE_FRAGMENTS: u16 = 0x2000;
pub(crate) const FRAGMENT_OFFSET: u16 = 0x1fff;
/// Version 4, five 32-bit words.
pub(crate) const VERSION_IHL: u8 = 0x45;

/// Not ECN-capable transport (RFC 3168 §5).
pub const ECN_NOT_ECT: u8 = 0b00;
/// ECN-capable transport, codepoint 1 (RFC 3168 §5).
pub const ECN_ECT_1: u8 = 0b01;
/// ECN-capable transport, codepoint 0: what a sender uses (RFC 3168 §5).
pub const ECN_ECT_0: u8 = 0b10;
/// Congestion experienced (RFC 3168 §5).
pub const ECN_CE: u8 = 0b11;

/// Marks the IPv4 packet that `packet` begins with, as a router does that will soon have to drop packets: where its sender
/// takes marks, the codepoint becomes CE, and the header's checksum follows (RFC 3168 §5, RFC 1624). Answers whether it is
/// marked now.
pub fn mark_congestion(packet: &mut [u8]) -> bool {
    let Ok(view) = Ipv4View::parse(packet) else { return false };
    if view.ecn() == ECN_NOT_ECT {
        return false;
    }
    let word = |raw: &Raw| u16::from_be_bytes([raw.version_ihl, raw.dscp_ecn]);
    let Ok((raw, _)) = Raw::mut_from_prefix(packet) else { return false };
    let before = word(raw);
    raw.dscp_ecn |= ECN_CE;
    // RFC 1624, equation 3.
    let sum = u64::from(!raw.checksum.get()) + u64::from(!before) + u64::from(word(raw));
    raw.checksum = (!fold(sum)).into();
    true
}

/// Makes the header of a first fragment that of the whole datagram, which `packet` is (RFC 791 §3.2): its total length, no
/// flag but "don't fragment", no offset. Other bytes than those of a datagram stay what they are.
pub fn reassemble(packet: &mut [u8]) {
    refit(packet, |raw| {
        raw.flags_fragment = (raw.flags_fragment.get() & DONT_FRAGMENT).into();
    });
}

/// Writes a fragment of the whole datagram `packet`, as a router makes it (RFC 791 §3.2): `bytes` of its payload, beginning
/// at a multiple of eight, with `more` to follow. The datagram has no options. Returns the fragment's length.
///
/// # Panics
/// When `out` or the packet is too short.
pub fn emit_fragment(
    packet: &[u8],
    ident: u16,
    bytes: Range<usize>,
    more: bool,
    out: &mut [u8],
) -> usize {
    let (header, payload) = packet.split_at(size_of::<Raw>());
    let len = header.len() + bytes.len();
    let word = (bytes.start / 8) as u16 | if more { MORE_FRAGMENTS } else { 0 };
    out[..header.len()].copy_from_slice(header);
    out[header.len()..len].copy_from_slice(&payload[bytes]);
    refit(&mut out[..len], |raw| {
        (raw.ident, raw.flags_fragment) = (ident.into(), word.into());
    });
    len
}

/// Changes the header of a datagram, which `packet` is, and has its length and its checksum follow.
fn refit(packet: &mut [u8], change: impl FnOnce(&mut Raw)) {
    let total_len = packet.len().min(usize::from(u16::MAX)) as u16;
    let Ok((raw, options)) = Raw::mut_from_prefix(packet) else { return };
    let options_len = (usize::from(raw.version_ihl & 0x0f) * 4).saturating_sub(size_of::<Raw>());
    (raw.total_len, raw.checksum) = (total_len.into(), 0.into());
    change(raw);
    let sum = Sum::of(raw.as_bytes()).add(Sum::of(options.get(..options_len).unwrap_or(&[])));
    raw.checksum = sum.finish().into();
}

/// What the payload of a datagram is: IPv4's protocol, and IPv6's next header.
#[derive(Debug, Copy, Clone, PartialEq, Eq, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    /// ICMP.
    pub const ICMP: Self = Self(1);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// IPv6 Hop-by-Hop Options, an extension header (RFC 8200 §4.3).
    pub const HOP_BY_HOP: Self = Self(0);
    /// IPv6 Routing, an extension header (RFC 8200 §4.4).
    pub const ROUTING: Self = Self(43);
    /// IPv6 Fragment, an extension header (RFC 8200 §4.5).
    pub const FRAGMENT: Self = Self(44);
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: Self = Self(58);
    /// No next header: the receiver ignores the payload (RFC 8200 §4.7).
    pub const NO_NEXT: Self = Self(59);
    /// IPv6 Destination Options, an extension header (RFC 8200 §4.6).
    pub const DESTINATION_OPTIONS: Self = Self(60);
}

/// A received datagram whose lengths hold together.
#[derive(Copy, Clone)]
pub struct Ipv4View<'a> {
    raw: &'a Raw,
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Ipv4View<'a> {
    /// Checks version, header length and total length; bytes after the total length (link padding) are dropped.
    ///
    /// # Errors
    /// `Truncated` when the buffer ends before the header or before the total length; `Malformed` for another
    /// version, a header length below 20 bytes, or a total length that does not cover the header.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (raw, rest) = Raw::ref_from_prefix(bytes).map_err(|_| WireError::Truncated)?;
        if raw.version_ihl >> 4 != 4 {
            return Err(WireError::Malformed);
        }
        let total_len = usize::from(raw.total_len.get());
        let header_len = usize::from(raw.version_ihl & 0x0f) * 4;
        let options_len = header_len.checked_sub(size_of::<Raw>()).ok_or(WireError::Malformed)?;
        let payload_len = total_len.checked_sub(header_len).ok_or(WireError::Malformed)?;
        let (options, rest) = rest.split_at_checked(options_len).ok_or(WireError::Truncated)?;
        let payload = rest.get(..payload_len).ok_or(WireError::Truncated)?;
        Ok(Ipv4View { raw, options, payload })
    }

    /// Whether the header checksum is right (RFC 1071 §1).
    #[inline]
    pub fn verify_checksum(&self) -> bool {
        // The length is constant, so this part is a few additions; options are rare.
        let sum = Sum::of(self.raw.as_bytes());
        if self.options.is_empty() {
            return sum.is_valid();
        }
        sum.add(Sum::of(self.options)).is_valid()
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        self.raw.src.into()
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        self.raw.dst.into()
    }

    /// What the payload is.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        Protocol(self.raw.protocol)
    }

    /// Remaining hops.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.raw.ttl
    }

    /// Differentiated services codepoint, 6 bits (RFC 2474 §3).
    #[inline]
    pub fn dscp(&self) -> u8 {
        self.raw.dscp_ecn >> 2
    }

    /// ECN field, one of the `ECN_` constants (RFC 3168 §5).
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.raw.dscp_ecn & 0b11
    }

    /// Identification, which groups fragments.
    #[inline]
    pub fn ident(&self) -> u16 {
        self.raw.ident.get()
    }

    /// Whether routers must not fragment (RFC 1191).
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.raw.flags_fragment.get() & DONT_FRAGMENT != 0
    }

    /// Whether this is a fragment and not the last.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.raw.flags_fragment.get() & MORE_FRAGMENTS != 0
    }

    /// Where this fragment's payload starts in the whole datagram's, in bytes (a multiple of 8, at most 65,528).
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        (self.raw.flags_fragment.get() & FRAGMENT_OFFSET) * 8
    }

    /// Whether the payload is only a part of a datagram's.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.raw.flags_fragment.get() & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0
    }

    /// Bytes of header, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        size_of::<Raw>() + self.options.len()
    }

    /// Bytes of header and payload.
    #[inline]
    pub fn total_len(&self) -> usize {
        self.header_len() + self.payload.len()
    }

    /// Whether the sender chose the route, also that of the answer (RFC 791 §3.1, loose and strict source route).
    pub fn is_source_routed(&self) -> bool {
        const END: u8 = 0;
        const NOP: u8 = 1;
        const LOOSE: u8 = 131;
        const STRICT: u8 = 137;
        let mut rest = self.options;
        while let [kind, after @ ..] = rest {
            rest = match (*kind, after) {
                (END, _) => return false,
                (NOP, after) => after,
                (LOOSE | STRICT, _) => return true,
                // A length below that of its own two bytes leads nowhere.
                (_, [len, ..]) if *len >= 2 => rest.get(usize::from(*len)..).unwrap_or(&[]),
                _ => return false,
            };
        }
        false
    }

    /// The header's options, not interpreted.
    #[inline]
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// Exactly the datagram's payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The meaning of the header of a datagram that is no fragment and has no options.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct Ipv4Repr {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// What the payload is.
    pub protocol: Protocol,
    /// Remaining hops.
    pub ttl: u8,
    /// Identification; without meaning where `dont_fragment` is set (RFC 6864 §4.1).
    pub ident: u16,
    /// The whole second byte: codepoint in the upper six bits, ECN in the lower two.
    pub dscp_ecn: u8,
    /// Whether routers must not fragment.
    pub dont_fragment: bool,
    /// Bytes after the header; at most [`Ipv4Repr::MAX_PAYLOAD_LEN`].
    pub payload_len: usize,
}

impl Ipv4Repr {
    /// Bytes that `emit` writes.
    pub const HEADER_LEN: usize = size_of::<Raw>();

    /// Most bytes that fit behind the header in one datagram.
    pub const MAX_PAYLOAD_LEN: usize = u16::MAX as usize - Self::HEADER_LEN;

    /// The header of a host's own packet: a time to live of 64, not to be fragmented.
    #[inline]
    pub const fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: Protocol, payload_len: usize) -> Self {
        let (ttl, ident, dscp_ecn, dont_fragment) = (64, 0, 0, true);
        Ipv4Repr { src, dst, protocol, ttl, ident, dscp_ecn, dont_fragment, payload_len }
    }

    /// The meaning of a received header, options left out. A fragment has no such meaning: look at `is_fragment`
    /// first.
    #[inline]
    pub fn from_view(view: &Ipv4View<'_>) -> Self {
        Ipv4Repr {
            src: view.src(),
            dst: view.dst(),
            protocol: view.protocol(),
            ttl: view.ttl(),
            ident: view.ident(),
            dscp_ecn: view.raw.dscp_ecn,
            dont_fragment: view.dont_fragment(),
            payload_len: view.payload.len(),
        }
    }

    /// Writes the header, checksum included, into the first 20 bytes of `out`. A `payload_len` above
    /// `MAX_PAYLOAD_LEN` is the caller's mistake: the length field cannot say it, and the receiver drops the packet.
    ///
    /// # Panics
    /// When `out` has fewer than 20 bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let total_len = (Self::HEADER_LEN + self.payload_len) as u16;
        let flags_fragment = if self.dont_fragment { DONT_FRAGMENT } else { 0 };
        let Protocol(protocol) = self.protocol;
        // Summed from the values, not from the bytes just stored: a wide load behind narrow stores would stall.
        // The sum of ten 16-bit words and their halves cannot leave 64 bits.
        let sum = u64::from(u16::from_be_bytes([VERSION_IHL, self.dscp_ecn]))
            + u64::from(total_len)
            + u64::from(self.ident)
            + u64::from(flags_fragment)
            + u64::from(u16::from_be_bytes([self.ttl, protocol]))
            + u64::from(self.src.to_bits())
            + u64::from(self.dst.to_bits());
        let raw = Raw {
            version_ihl: VERSION_IHL,
            dscp_ecn: self.dscp_ecn,
            total_len: total_len.into(),
            ident: self.ident.into(),
            flags_fragment: flags_fragment.into(),
            ttl: self.ttl,
            protocol,
            checksum: (!fold(sum)).into(),
            src: self.src.octets(),
            dst: self.dst.octets(),
        };
        out[..Self::HEADER_LEN].copy_from_slice(raw.as_bytes());
    }
}
