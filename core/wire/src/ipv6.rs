//! IPv6 (RFC 8200): view, representation, and derived addresses.
//!
//! `Ipv6View::parse` trims link padding and walks the extension headers, so `protocol()` and `payload()` are the
//! transport's. A packet with a `fragment()` has only a part of the transport's bytes. IPv6 has no header checksum:
//! the transports' [`pseudo_header_sum`](crate::pseudo_header_sum) covers the addresses.
//!
//! ```
//! use core::net::Ipv6Addr;
//! use wire::{Ipv6Repr, Ipv6View, Protocol};
//!
//! let (src, dst) = (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
//! let mut packet = [0; Ipv6Repr::HEADER_LEN + 3];
//! packet[Ipv6Repr::HEADER_LEN..].copy_from_slice(b"abc");
//! Ipv6Repr::new(src, dst, Protocol::UDP, 3).emit(&mut packet);
//! let view = Ipv6View::parse(&packet)?;
//! assert_eq!((view.protocol(), view.payload()), (Protocol::UDP, &b"abc"[..]));
//! assert_eq!(view.fragment(), None);
//! # Ok::<(), wire::WireError>(())
//! ```

use core::net::Ipv6Addr;
use core::ops::Range;

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U16, U32},
};

use crate::ipv4::{ECN_CE, ECN_NOT_ECT};
use crate::ipv6_extensions::{
    ChainEnd, Fragment6, NEXT_HEADER_OFFSET, OFFSET_BEFORE_END, is_chain_whole, is_extension, walk,
};
use crate::{MacAddr, Protocol, WireError};

/// The fixed header as it lies in the packet (RFC 8200 §3).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    /// Version in 4 bits, traffic class in 8, flow label in 20.
    version_class_label: U32,
    payload_len: U16,
    next_header: u8,
    hop_limit: u8,
    src: [u8; 16],
    dst: [u8; 16],
}

/// Version 6, in the place of the version.
const VERSION: u32 = 6 << VERSION_SHIFT;
const VERSION_SHIFT: u32 = 28;
const TRAFFIC_CLASS_SHIFT: u32 = 20;
const FLOW_LABEL: u32 = 0x000f_ffff;

impl Raw {
    /// Splits `bytes` into the fixed header and exactly the bytes that its payload length counts.
    #[inline]
    fn split(bytes: &[u8]) -> Result<(&Raw, &[u8]), WireError> {
        let (raw, rest) = Raw::ref_from_prefix(bytes).map_err(|_| WireError::Truncated)?;
        if raw.version_class_label.get() >> VERSION_SHIFT != 6 {
            return Err(WireError::Malformed);
        }
        let body = rest.get(..usize::from(raw.payload_len.get())).ok_or(WireError::Truncated)?;
        Ok((raw, body))
    }

    #[inline]
    fn traffic_class(&self) -> u8 {
        (self.version_class_label.get() >> TRAFFIC_CLASS_SHIFT) as u8
    }
}

/// Marks the IPv6 packet that `packet` begins with, as a router does before it has to drop packets: where the sender
/// takes marks, the codepoint becomes CE (RFC 3168 §5). Like a router, this function reads only the fixed header.
/// Returns whether the packet is marked now.
pub fn mark_congestion(packet: &mut [u8]) -> bool {
    let Ok((raw, _)) = Raw::split(packet) else { return false };
    if raw.traffic_class() & ECN_CE == ECN_NOT_ECT {
        return false;
    }
    let Ok((raw, _)) = Raw::mut_from_prefix(packet) else { return false };
    raw.version_class_label |= U32::new(u32::from(ECN_CE) << TRAFFIC_CLASS_SHIFT);
    true
}

/// Makes the headers of a first fragment those of the whole packet, which `packet` is: an atomic fragment (RFC 6946), with
/// its own payload length. `header_len` counts the bytes up to the end of the Fragment header, whose offset and flag become
/// zero. The Fragment header stays, so that what depends on it can be checked of the whole packet
/// ([`Ipv6View::is_atomic_fragment`]).
pub fn reassemble(packet: &mut [u8], header_len: usize) {
    let payload_len = packet.len().saturating_sub(size_of::<Raw>()).min(usize::from(u16::MAX));
    let word = header_len.saturating_sub(OFFSET_BEFORE_END);
    packet.get_mut(word..word + 2).into_iter().for_each(|word| word.fill(0));
    let Ok((raw, _)) = Raw::mut_from_prefix(packet) else { return };
    raw.payload_len = (payload_len as u16).into();
}

/// Writes a fragment of the whole packet `packet`, as its sender makes it (RFC 8200 §4.5): `bytes` of what is behind the fixed
/// header, beginning at a multiple of eight, with `more` to follow. Returns the fragment's length.
///
/// # Panics
/// When `out` or the packet is too short.
pub fn emit_fragment(
    packet: &[u8],
    ident: u32,
    bytes: Range<usize>,
    more: bool,
    out: &mut [u8],
) -> usize {
    let (fixed, payload) = packet.split_at(size_of::<Raw>());
    let [high, low] = (bytes.start as u16 | u16::from(more)).to_be_bytes();
    let [a, b, c, d] = ident.to_be_bytes();
    let header = [fixed[NEXT_HEADER_OFFSET], 0, high, low, a, b, c, d];
    let payload_at = fixed.len() + header.len();
    let len = payload_at + bytes.len();
    out[..fixed.len()].copy_from_slice(fixed);
    out[NEXT_HEADER_OFFSET] = Protocol::FRAGMENT.0;
    out[4..6].copy_from_slice(&((header.len() + bytes.len()) as u16).to_be_bytes());
    out[fixed.len()..payload_at].copy_from_slice(&header);
    out[payload_at..len].copy_from_slice(&payload[bytes]);
    len
}

/// A received packet whose lengths agree and whose extension headers a host accepts.
#[derive(Copy, Clone)]
pub struct Ipv6View<'a> {
    raw: &'a Raw,
    protocol: Protocol,
    /// Offset of the Next Header field that names it.
    protocol_at: u16,
    fragment: Option<Fragment6>,
    is_atomic: bool,
    payload: &'a [u8],
}

impl<'a> Ipv6View<'a> {
    /// Checks version and payload length, drops the bytes behind it (link padding), and walks the extension headers,
    /// at most [`MAX_EXTENSION_HEADERS`](crate::MAX_EXTENSION_HEADERS) of them and
    /// [`MAX_EXTENSION_BYTES`](crate::MAX_EXTENSION_BYTES) bytes.
    ///
    /// # Errors
    /// - `Truncated` when the buffer ends before the header or before the payload length.
    /// - `Malformed` for another version; for an extension header beyond the payload length, or an option beyond its
    ///   header; for Hop-by-Hop Options behind another extension header (RFC 8200 §4.1); for a Routing header with
    ///   segments left, because a host is never an intermediate node (RFC 5095; the counterpart of
    ///   [`Ipv4View::is_source_routed`](crate::Ipv4View::is_source_routed)); and for a fragment that has no multiple of
    ///   8 bytes with more to follow, or whose end lies above a payload length of 65,535 (RFC 8200 §4.5).
    /// - `Unsupported` for a jumbogram (RFC 2675), for extension headers beyond the bounds, and for an unknown option
    ///   whose type asks to discard the packet (RFC 8200 §4.2).
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (raw, body) = Raw::split(bytes)?;
        let protocol = Protocol(raw.next_header);
        if !is_extension(protocol) {
            let protocol_at = NEXT_HEADER_OFFSET as u16;
            let (fragment, is_atomic) = (None, false);
            return Ok(Ipv6View { raw, protocol, protocol_at, fragment, is_atomic, payload: body });
        }
        // A payload length of zero with Hop-by-Hop Options announces a length in an option (RFC 2675 §3).
        if protocol == Protocol::HOP_BY_HOP && body.is_empty() {
            return Err(WireError::Unsupported);
        }
        let end = walk(protocol, body)?;
        let ChainEnd { protocol, next_header_field, fragment, is_atomic, payload } = end;
        let protocol_at = next_header_field as u16;
        Ok(Ipv6View { raw, protocol, protocol_at, fragment, is_atomic, payload })
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        self.raw.src.into()
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        self.raw.dst.into()
    }

    /// What the payload is: the next-header value of the last header. In a fragment the payload begins with that
    /// header only at offset zero.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Offset in the packet of the Next Header field that names the protocol, for an error about it (RFC 4443 §3.4).
    #[inline]
    pub fn protocol_at(&self) -> u16 {
        self.protocol_at
    }

    /// Remaining hops.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.raw.hop_limit
    }

    /// Traffic class: differentiated services codepoint in the upper six bits, ECN in the lower two.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        self.raw.traffic_class()
    }

    /// Differentiated services codepoint, 6 bits (RFC 2474 §3).
    #[inline]
    pub fn dscp(&self) -> u8 {
        self.traffic_class() >> 2
    }

    /// ECN field, one of the `ECN_` constants of [`ipv4`](crate::ipv4) (RFC 3168 §5).
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.traffic_class() & 0b11
    }

    /// Flow label, 20 bits; zero for a packet that belongs to no labelled flow (RFC 6437 §2).
    #[inline]
    pub fn flow_label(&self) -> u32 {
        self.raw.version_class_label.get() & FLOW_LABEL
    }

    /// The Fragment header of a packet that carries a part of a larger one; `None` for a whole packet, also for an
    /// atomic fragment (RFC 6946).
    #[inline]
    pub fn fragment(&self) -> Option<Fragment6> {
        self.fragment
    }

    /// Whether the packet is whole and has a Fragment header all the same: an atomic fragment (RFC 6946), or a packet that
    /// [`reassemble`] made. Neighbour discovery accepts none (RFC 6980 §5).
    #[inline]
    pub fn is_atomic_fragment(&self) -> bool {
        self.is_atomic
    }

    /// Whether a first fragment has all headers of its packet, the transport's included (RFC 7112 §5).
    pub fn has_whole_chain(&self) -> bool {
        is_chain_whole(self.protocol, self.payload)
    }

    /// Bytes before the payload: the fixed header's 40 and the extension headers'.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.total_len() - self.payload.len()
    }

    /// Bytes of headers and payload.
    #[inline]
    pub fn total_len(&self) -> usize {
        size_of::<Raw>() + usize::from(self.raw.payload_len.get())
    }

    /// Exactly the bytes behind the last header that `parse` read, without link padding.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The meaning of the header of a packet that is no fragment and has no extension headers.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct Ipv6Repr {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// What the payload is.
    pub protocol: Protocol,
    /// Remaining hops.
    pub hop_limit: u8,
    /// The traffic class: codepoint in the upper six bits, ECN in the lower two.
    pub dscp_ecn: u8,
    /// Flow label; `emit` writes the lower 20 bits.
    pub flow_label: u32,
    /// Bytes after the header; at most [`Ipv6Repr::MAX_PAYLOAD_LEN`].
    pub payload_len: usize,
}

impl Ipv6Repr {
    /// Bytes that `emit` writes.
    pub const HEADER_LEN: usize = size_of::<Raw>();

    /// Most bytes that the payload length counts behind the header.
    pub const MAX_PAYLOAD_LEN: usize = u16::MAX as usize;

    /// The header of a host's own packet: a hop limit of 64, traffic class and flow label zero.
    #[inline]
    pub const fn new(src: Ipv6Addr, dst: Ipv6Addr, protocol: Protocol, payload_len: usize) -> Self {
        let (hop_limit, dscp_ecn, flow_label) = (64, 0, 0);
        Ipv6Repr { src, dst, protocol, hop_limit, dscp_ecn, flow_label, payload_len }
    }

    /// The meaning of a received header, without its extension headers. A fragment has no such meaning: check
    /// [`fragment`](Ipv6View::fragment) first.
    #[inline]
    pub fn from_view(view: &Ipv6View<'_>) -> Self {
        Ipv6Repr {
            src: view.src(),
            dst: view.dst(),
            protocol: view.protocol,
            hop_limit: view.hop_limit(),
            dscp_ecn: view.traffic_class(),
            flow_label: view.flow_label(),
            payload_len: view.payload.len(),
        }
    }

    /// Writes the header into the first 40 bytes of `out`. A `payload_len` above `MAX_PAYLOAD_LEN` is the caller's
    /// mistake: the length field cannot hold it, and the receiver drops the packet.
    ///
    /// # Panics
    /// When `out` has fewer than 40 bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let class = u32::from(self.dscp_ecn) << TRAFFIC_CLASS_SHIFT;
        let raw = Raw {
            version_class_label: (VERSION | class | self.flow_label & FLOW_LABEL).into(),
            payload_len: (self.payload_len as u16).into(),
            next_header: self.protocol.0,
            hop_limit: self.hop_limit,
            src: self.src.octets(),
            dst: self.dst.octets(),
        };
        out[..Self::HEADER_LEN].copy_from_slice(raw.as_bytes());
    }
}

/// The solicited-node multicast address of `addr`: ff02::1:ff00:0 with the lower 24 bits of `addr` (RFC 4291 §2.7.1).
/// A host joins it for each of its addresses, and neighbour solicitations for the address are sent to it.
#[inline]
pub const fn solicited_node(addr: Ipv6Addr) -> Ipv6Addr {
    const PREFIX: u128 = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0).to_bits();
    Ipv6Addr::from_bits(PREFIX | addr.to_bits() & 0x00ff_ffff)
}

/// The Ethernet address that a packet to the multicast address `addr` is sent to: 33:33 and the lower 32 bits of
/// `addr` (RFC 2464 §7).
#[inline]
pub const fn multicast_mac(addr: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = addr.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}
