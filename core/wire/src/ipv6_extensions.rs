//! IPv6 extension headers (RFC 8200 §4): the chain between the fixed header and the payload.
//!
//! `Ipv6View::parse` walks the chain once, within two bounds, and keeps only what a receiving host needs: the protocol
//! behind the last header, the payload, and the Fragment header where one splits the packet. This module knows
//! Hop-by-Hop Options, Routing, Fragment and Destination Options. Every other next-header value ends the chain and is
//! the packet's protocol, also "no next header" (59), authentication (51) and encryption (50).

use crate::{Protocol, TcpView, UdpRepr, WireError};

/// Most extension headers in one packet. RFC 8200 §4.1 lists seven in its recommended order, of which Destination
/// Options may occur twice; a longer chain costs its receiver time and carries nothing that this crate interprets.
pub const MAX_EXTENSION_HEADERS: usize = 8;

/// Most bytes of extension headers in one packet, so that the transport's header lies near the packet's start.
pub const MAX_EXTENSION_BYTES: usize = 512;

/// Bytes of the IPv6 header before the extension headers.
const FIXED_HEADER_LEN: usize = 40;
/// Bytes of the ICMPv6 header that every message has (RFC 4443 §2.1).
const ICMPV6_HEADER_LEN: usize = 4;
/// Offset of the Next Header field in the IPv6 header.
pub(crate) const NEXT_HEADER_OFFSET: usize = 6;
/// Bytes of the shortest extension header; every length is a multiple (RFC 8200 §4).
const UNIT: usize = 8;
/// Where the Fragment header's offset begins, in bytes before the header's end.
pub(crate) const OFFSET_BEFORE_END: usize = 6;
/// The "more fragments" bit beside the fragment offset (RFC 8200 §4.5).
const MORE_FRAGMENTS: u16 = 1;
/// The fragment offset in its 16-bit word: in units of 8 bytes, shifted left by three, so the masked word counts bytes.
const FRAGMENT_OFFSET: u16 = 0xfff8;

/// The Fragment header of a packet that carries a part of a larger one (RFC 8200 §4.5): of the one that has the same source,
/// destination and `ident`.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct Fragment6 {
    /// Where this payload starts in the fragmentable part, in bytes; a multiple of 8, at most 65,528.
    pub offset: u16,
    /// Whether another fragment follows this one. The payload's length is then a multiple of 8.
    pub more: bool,
    /// Identification, which groups the fragments of one packet.
    pub ident: u32,
}

/// The end of a chain of extension headers.
pub(crate) struct ChainEnd<'a> {
    pub protocol: Protocol,
    /// Offset in the packet of the field that names it.
    pub next_header_field: usize,
    pub fragment: Option<Fragment6>,
    /// An atomic fragment's header was among them.
    pub is_atomic: bool,
    pub payload: &'a [u8],
}

/// Whether the header that `protocol` names is one that [`walk`] reads.
#[inline]
pub(crate) const fn is_extension(protocol: Protocol) -> bool {
    matches!(
        protocol,
        Protocol::HOP_BY_HOP
            | Protocol::ROUTING
            | Protocol::FRAGMENT
            | Protocol::DESTINATION_OPTIONS
    )
}

/// Follows the chain from the fixed header's next-header value `first` through `body`, exactly the bytes that the
/// payload length counts. A Fragment header ends the walk unless the packet is an atomic fragment, which is a whole
/// packet (RFC 6946).
///
/// # Errors
/// `Malformed` for a header or an option that reaches beyond its container, for Hop-by-Hop Options behind another
/// extension header (RFC 8200 §4.1), for a Routing header with segments left, and for a fragment whose length does
/// not fit. `Unsupported` beyond the two bounds, and for an option that its sender forbids to skip.
pub(crate) fn walk(first: Protocol, body: &[u8]) -> Result<ChainEnd<'_>, WireError> {
    let (mut protocol, mut payload) = (first, body);
    let mut next_header_field = NEXT_HEADER_OFFSET;
    let (mut headers, mut is_atomic) = (0, false);
    while is_extension(protocol) {
        if headers == MAX_EXTENSION_HEADERS {
            return Err(WireError::Unsupported);
        }
        if protocol == Protocol::HOP_BY_HOP && headers != 0 {
            return Err(WireError::Malformed);
        }
        let [next, units, high, low, ident @ ..] =
            *payload.first_chunk::<UNIT>().ok_or(WireError::Malformed)?;
        // The Fragment header has a fixed length, and a reserved byte in the length's place (RFC 8200 §4.5).
        let units = if protocol == Protocol::FRAGMENT { 0 } else { usize::from(units) };
        let (header, rest) =
            payload.split_at_checked((units + 1) * UNIT).ok_or(WireError::Malformed)?;
        let header_at = body.len() - payload.len();
        if header_at + header.len() > MAX_EXTENSION_BYTES {
            return Err(WireError::Unsupported);
        }
        match protocol {
            Protocol::FRAGMENT => {
                let word = u16::from_be_bytes([high, low]);
                let fragment = Fragment6 {
                    offset: word & FRAGMENT_OFFSET,
                    more: word & MORE_FRAGMENTS != 0,
                    ident: u32::from_be_bytes(ident),
                };
                if fragment.more || fragment.offset != 0 {
                    return fragment_end(fragment, Protocol(next), header_at, rest);
                }
                is_atomic = true;
            }
            // Segments left make this host an intermediate node, which it never is. Refusing them is what RFC 8200 §4.4
            // asks for an unknown routing type, RFC 5095 for type 0, and the source routes of IPv4 get no better.
            Protocol::ROUTING if low != 0 => return Err(WireError::Malformed),
            Protocol::ROUTING => {}
            _ => check_options(header.get(2..).unwrap_or(&[]))?,
        }
        next_header_field = FIXED_HEADER_LEN + header_at;
        (protocol, payload) = (Protocol(next), rest);
        headers += 1;
    }
    Ok(ChainEnd { protocol, next_header_field, fragment: None, is_atomic, payload })
}

/// Ends the chain at a Fragment header `header_at` bytes behind the fixed header. RFC 8200 §4.5: every fragment but
/// the last carries a multiple of 8 bytes, and the packet to reassemble has a payload length of 16 bits.
fn fragment_end(
    fragment: Fragment6,
    protocol: Protocol,
    header_at: usize,
    payload: &[u8],
) -> Result<ChainEnd<'_>, WireError> {
    let reassembled_len = header_at + usize::from(fragment.offset) + payload.len();
    if fragment.more && !payload.len().is_multiple_of(UNIT)
        || reassembled_len > usize::from(u16::MAX)
    {
        return Err(WireError::Malformed);
    }
    let next_header_field = FIXED_HEADER_LEN + header_at;
    let (fragment, is_atomic) = (Some(fragment), false);
    Ok(ChainEnd { protocol, next_header_field, fragment, is_atomic, payload })
}

/// Whether `payload`, which `first` names, has the rest of the chain, up to the end of the transport's header (RFC 7112
/// §3). A second fragmentation inside the first has not.
pub(crate) fn is_chain_whole(first: Protocol, payload: &[u8]) -> bool {
    let Ok(end) = walk(first, payload) else { return false };
    let least = match end.protocol {
        Protocol::TCP => TcpView::parse(end.payload).map_or(usize::MAX, |tcp| tcp.header_len()),
        Protocol::UDP => UdpRepr::HEADER_LEN,
        Protocol::ICMPV6 => ICMPV6_HEADER_LEN,
        _ => 0,
    };
    end.fragment.is_none() && end.payload.len() >= least
}

/// Checks the options of a Hop-by-Hop or Destination Options header (RFC 8200 §4.2). This crate interprets only the
/// two kinds of padding. The upper two bits of another option's type say what a host does that does not know it:
/// 00 skips the option; the other three discard the packet, with or without an error to its sender.
///
/// # Errors
/// `Malformed` when an option reaches beyond the header; `Unsupported` for an option that discards the packet.
fn check_options(options: &[u8]) -> Result<(), WireError> {
    const PAD_1: u8 = 0;
    const ACTION: u8 = 0b1100_0000;
    let mut rest = options;
    while let [kind, after @ ..] = rest {
        if *kind == PAD_1 {
            rest = after;
            continue;
        }
        if kind & ACTION != 0 {
            return Err(WireError::Unsupported);
        }
        let (len, data) = after.split_first().ok_or(WireError::Malformed)?;
        rest = data.get(usize::from(*len)..).ok_or(WireError::Malformed)?;
    }
    Ok(())
}
