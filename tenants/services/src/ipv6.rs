//! The tunnel's outer header (RFC 8200 §3), as little of IPv6 as RFC 2473 and RFC 7676 need.
//!
//! Sent: `Header { .. }.emit(&mut out)`. Received: `parse(packet)` gives the header, the upper layer's number and its
//! bytes, destination options passed over.

use std::net::Ipv6Addr;

use crate::refused::{Layer, Refused};

/// Bytes of the header.
pub(crate) const HEADER_LEN: usize = 40;
/// Next header: Generic Routing Encapsulation.
pub(crate) const NEXT_GRE: u8 = 47;
/// Next header: destination options (RFC 8200 §4.6).
const NEXT_DESTINATION_OPTIONS: u8 = 60;
/// Option of one byte without meaning (RFC 8200 §4.2).
const OPTION_PAD1: u8 = 0;
/// The bits of an option's type that say what to do with an unknown one; zero: pass over it (RFC 8200 §4.2).
const OPTION_ACTION: u8 = 0b1100_0000;

/// The meaning of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Differentiated services codepoint in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// 20 bits.
    pub flow_label: u32,
    /// Bytes after the header.
    pub payload_len: u16,
    /// What they are.
    pub next_header: u8,
    /// Remaining hops.
    pub hop_limit: u8,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
}

impl Header {
    /// Writes the header.
    #[inline]
    pub(crate) fn emit(&self, out: &mut [u8; HEADER_LEN]) {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0x000f_ffff;
        out[..4].copy_from_slice(&first.to_be_bytes());
        out[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        out[6] = self.next_header;
        out[7] = self.hop_limit;
        out[8..24].copy_from_slice(&self.src.octets());
        out[24..].copy_from_slice(&self.dst.octets());
    }

    /// Reads the header; its payload follows it.
    #[inline]
    fn read(bytes: &[u8; HEADER_LEN]) -> Header {
        let first = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let address = |at: usize| {
            let octets: [u8; 16] = core::array::from_fn(|i| bytes[at + i]);
            Ipv6Addr::from(octets)
        };
        Header {
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0x000f_ffff,
            payload_len: u16::from_be_bytes([bytes[4], bytes[5]]),
            next_header: bytes[6],
            hop_limit: bytes[7],
            src: address(8),
            dst: address(24),
        }
    }
}

/// The header, the number of the upper layer, and its bytes. Link padding behind the payload is dropped. Destination
/// options between them are passed over if every one of them allows that, as a tunnel's encapsulation limit does
/// (RFC 2473 §4.1.1: only an entry point of a further tunnel looks at it).
///
/// # Errors
/// `Truncated`, `Version`, and `Malformed` for options that contradict their length or forbid to be passed over.
#[inline]
pub(crate) fn parse(packet: &[u8]) -> Result<(Header, u8, &[u8]), Refused> {
    const TRUNCATED: Refused = Refused::Truncated { layer: Layer::Ipv6 };
    let version = packet.first().ok_or(TRUNCATED)? >> 4;
    if version != 6 {
        return Err(Refused::Version { layer: Layer::Ipv6, found: version, expected: 6 });
    }
    let (bytes, rest) = packet.split_first_chunk::<HEADER_LEN>().ok_or(TRUNCATED)?;
    let header = Header::read(bytes);
    let payload = rest.get(..usize::from(header.payload_len)).ok_or(TRUNCATED)?;
    if header.next_header != NEXT_DESTINATION_OPTIONS {
        return Ok((header, header.next_header, payload));
    }
    let (next_header, upper) = pass_options(payload)?;
    Ok((header, next_header, upper))
}

/// What follows a destination options header, and its number.
fn pass_options(payload: &[u8]) -> Result<(u8, &[u8]), Refused> {
    const TRUNCATED: Refused = Refused::Truncated { layer: Layer::Ipv6 };
    let &[next_header, units, ..] = payload else { return Err(TRUNCATED) };
    let (options, upper) =
        payload.split_at_checked((usize::from(units) + 1) * 8).ok_or(TRUNCATED)?;
    let mut rest = &options[2..];
    while let Some((&kind, after)) = rest.split_first() {
        if kind == OPTION_PAD1 {
            rest = after;
            continue;
        }
        if kind & OPTION_ACTION != 0 {
            return Err(Refused::Malformed { layer: Layer::Ipv6, field: "option type" });
        }
        rest = after
            .split_first()
            .and_then(|(&length, data)| data.get(usize::from(length)..))
            .ok_or(Refused::Malformed { layer: Layer::Ipv6, field: "option length" })?;
    }
    Ok((next_header, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(next_header: u8, payload: &[u8]) -> Vec<u8> {
        let header = Header {
            traffic_class: 0xb9,
            flow_label: 0xabcde,
            payload_len: payload.len() as u16,
            next_header,
            hop_limit: 3,
            src: "2001:db8::1".parse().expect("an address"),
            dst: "2001:db8::2".parse().expect("an address"),
        };
        let mut bytes = [0; HEADER_LEN];
        header.emit(&mut bytes);
        assert_eq!(Header::read(&bytes), header);
        [&bytes[..], payload].concat()
    }

    #[test]
    fn options_are_passed_over_where_they_allow_it() {
        // Tunnel encapsulation limit 4, PadN of one byte: what Linux sends by default.
        let limit = [NEXT_GRE, 0, 4, 1, 4, 1, 1, 0];
        let whole = packet(NEXT_DESTINATION_OPTIONS, &[&limit[..], b"gre"].concat());
        let (_, next_header, upper) = parse(&whole).expect("accepted");
        assert_eq!((next_header, upper), (NEXT_GRE, &b"gre"[..]));

        let forbids = [NEXT_GRE, 0, 0xc9, 1, 4, 1, 1, 0];
        let refused = parse(&packet(NEXT_DESTINATION_OPTIONS, &forbids)).map(|_| ());
        assert_eq!(refused, Err(Refused::Malformed { layer: Layer::Ipv6, field: "option type" }));
        let too_long = [NEXT_GRE, 0, 4, 5, 4, 1, 1, 0];
        let refused = parse(&packet(NEXT_DESTINATION_OPTIONS, &too_long)).map(|_| ());
        assert_eq!(refused, Err(Refused::Malformed { layer: Layer::Ipv6, field: "option length" }));
        let cut = parse(&packet(NEXT_DESTINATION_OPTIONS, &limit[..7])).map(|_| ());
        assert_eq!(cut, Err(Refused::Truncated { layer: Layer::Ipv6 }));
    }
}
