//! ICMP for IPv4 (RFC 792).
//!
//! Received: `IcmpView::parse(ip.payload())?` has verified the checksum; `repr()` is the meaning, `data()` the echo's
//! data or, for an error, the quoted datagram (RFC 1122 §3.2.2). Sent: the data is copied
//! into the frame with `copy_and_sum`, then `IcmpRepr::emit` writes the header with the data's sum.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

use crate::{Address, Endpoint, Ipv4Addr, Protocol, SeqNumber, Sum, WireError};

/// The header as it lies in the message: type, code, checksum and four bytes whose meaning the type gives.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    kind: u8,
    code: u8,
    checksum: U16,
    rest_high: U16,
    rest_low: U16,
}

const ECHO_REPLY: u8 = 0;
const DEST_UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// Why a destination is unreachable (RFC 792, RFC 1122 §3.2.2.1).
#[derive(Debug, Copy, Clone, PartialEq, Eq, Hash)]
pub struct UnreachableCode(pub u8);

impl UnreachableCode {
    /// No route to the network.
    pub const NET: Self = Self(0);
    /// The host does not answer.
    pub const HOST: Self = Self(1);
    /// The host has no such protocol.
    pub const PROTOCOL: Self = Self(2);
    /// The host has nothing on this port.
    pub const PORT: Self = Self(3);
    /// Too large for the next hop and not to be fragmented (RFC 1191).
    pub const FRAGMENTATION_NEEDED: Self = Self(4);
    /// The source route failed.
    pub const SOURCE_ROUTE_FAILED: Self = Self(5);
}

/// Which time was exceeded; ICMP and ICMPv6 number the codes alike (RFC 792, RFC 4443 §3.3).
#[derive(Debug, Copy, Clone, PartialEq, Eq, Hash)]
pub struct TimeExceededCode(pub u8);

impl TimeExceededCode {
    /// The time to live, in IPv6 the hop limit, ran out in transit.
    pub const TTL_EXPIRED: Self = Self(0);
    /// Not all fragments arrived in time.
    pub const REASSEMBLY: Self = Self(1);
}

/// The meaning of an ICMP header.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub enum IcmpRepr {
    /// Asks for the data to be sent back.
    EchoRequest {
        /// Which asker.
        ident: u16,
        /// Which of its requests.
        seq: u16,
    },
    /// Sends the data back.
    EchoReply {
        /// As in the request.
        ident: u16,
        /// As in the request.
        seq: u16,
    },
    /// The quoted datagram could not be delivered.
    DestUnreachable {
        /// Why.
        code: UnreachableCode,
        /// Bytes that the next hop carries, for `FRAGMENTATION_NEEDED` (RFC 1191 §4; zero from old routers); zero for
        /// every other code.
        next_hop_mtu: u16,
    },
    /// The quoted datagram took too long.
    TimeExceeded {
        /// Which time.
        code: TimeExceededCode,
    },
    /// The quoted datagram's header has a bad byte.
    ParameterProblem {
        /// Offset of that byte in the quoted datagram.
        pointer: u8,
    },
    /// Any other type, and known types with a code that has no meaning here.
    Other {
        /// ICMP type.
        kind: u8,
        /// ICMP code.
        code: u8,
        /// The header's last four bytes.
        rest: u32,
    },
}

impl IcmpRepr {
    /// Bytes that `emit` writes.
    pub const HEADER_LEN: usize = size_of::<Raw>();

    /// Whether this reports an error about a quoted datagram. Such a message is never answered with another
    /// (RFC 1122 §3.2.2).
    pub fn is_error(&self) -> bool {
        match self {
            IcmpRepr::EchoRequest { .. } | IcmpRepr::EchoReply { .. } => false,
            IcmpRepr::DestUnreachable { .. }
            | IcmpRepr::TimeExceeded { .. }
            | IcmpRepr::ParameterProblem { .. } => true,
            IcmpRepr::Other { kind, .. } => matches!(kind, 3..=5 | 11 | 12),
        }
    }

    /// Writes the header, checksum included, into the first 8 bytes of `out`. `data_sum` is the sum of the bytes that
    /// follow.
    ///
    /// # Panics
    /// When `out` has fewer than 8 bytes.
    pub fn emit(&self, out: &mut [u8], data_sum: Sum) {
        let (kind, code, rest_high, rest_low) = match *self {
            IcmpRepr::EchoRequest { ident, seq } => (ECHO_REQUEST, 0, ident, seq),
            IcmpRepr::EchoReply { ident, seq } => (ECHO_REPLY, 0, ident, seq),
            IcmpRepr::DestUnreachable { code, next_hop_mtu } => {
                let is_told = code == UnreachableCode::FRAGMENTATION_NEEDED;
                (DEST_UNREACHABLE, code.0, 0, if is_told { next_hop_mtu } else { 0 })
            }
            IcmpRepr::TimeExceeded { code } => (TIME_EXCEEDED, code.0, 0, 0),
            IcmpRepr::ParameterProblem { pointer } => {
                (PARAMETER_PROBLEM, 0, u16::from_be_bytes([pointer, 0]), 0)
            }
            IcmpRepr::Other { kind, code, rest } => (kind, code, (rest >> 16) as u16, rest as u16),
        };
        let checksum = data_sum
            .add_u16(u16::from_be_bytes([kind, code]))
            .add_u16(rest_high)
            .add_u16(rest_low)
            .finish();
        let raw = Raw {
            kind,
            code,
            checksum: checksum.into(),
            rest_high: rest_high.into(),
            rest_low: rest_low.into(),
        };
        out[..Self::HEADER_LEN].copy_from_slice(raw.as_bytes());
    }
}

/// A received message whose checksum is right.
#[derive(Copy, Clone)]
pub struct IcmpView<'a> {
    raw: &'a Raw,
    data: &'a [u8],
}

impl<'a> IcmpView<'a> {
    /// Checks length and checksum. `bytes` is exactly the datagram's payload.
    ///
    /// # Errors
    /// `Truncated` below 8 bytes; `Checksum` when the checksum over the whole message is wrong.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (raw, data) = Raw::ref_from_prefix(bytes).map_err(|_| WireError::Truncated)?;
        // All zero bytes are no valid message either: their checksum would be 0xffff.
        if !Sum::of(bytes).is_valid() {
            return Err(WireError::Checksum);
        }
        Ok(IcmpView { raw, data })
    }

    /// What the message says.
    pub fn repr(&self) -> IcmpRepr {
        let Raw { kind, code, checksum: _, rest_high, rest_low } = self.raw;
        let (high, low) = (rest_high.get(), rest_low.get());
        match (*kind, *code) {
            (ECHO_REQUEST, 0) => IcmpRepr::EchoRequest { ident: high, seq: low },
            (ECHO_REPLY, 0) => IcmpRepr::EchoReply { ident: high, seq: low },
            (DEST_UNREACHABLE, code) => {
                let code = UnreachableCode(code);
                let known = code == UnreachableCode::FRAGMENTATION_NEEDED;
                IcmpRepr::DestUnreachable { code, next_hop_mtu: if known { low } else { 0 } }
            }
            (TIME_EXCEEDED, code) => IcmpRepr::TimeExceeded { code: TimeExceededCode(code) },
            (PARAMETER_PROBLEM, 0) => IcmpRepr::ParameterProblem { pointer: (high >> 8) as u8 },
            (kind, code) => {
                IcmpRepr::Other { kind, code, rest: u32::from(high) << 16 | u32::from(low) }
            }
        }
    }

    /// The bytes after the header: the echo's data, or the datagram that an error quotes.
    #[inline]
    pub fn data(&self) -> &'a [u8] {
        self.data
    }
}

/// The TCP segment that an ICMP or ICMPv6 error quotes, as far as every router quotes it: the IP header and eight bytes
/// (RFC 792, RFC 4443 §2.4 c).
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct QuotedTcp {
    /// Its sender, to which the error is addressed.
    pub src: Endpoint,
    /// Its receiver.
    pub dst: Endpoint,
    /// Its first sequence number.
    pub seq: SeqNumber,
}

impl QuotedTcp {
    /// Reads an error's data; `None` where that is not the begin of a TCP segment. The quoted checksums are not verified, nor
    /// the lengths: routers have changed the header, and the quoted packet ends early. Over IPv6 the segment stands directly
    /// behind the header, as this crate writes no extension headers.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let word = |at: usize| data.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        let v6 = |at: usize| Some(Address::from_octets(data.get(at..at + 16)?.try_into().ok()?));
        let v4 = |at: usize| Some(Ipv4Addr::from_bits(word(at)?).into());
        let first = *data.first()?;
        let (protocol, src, dst, header_len): (_, Address, Address, _) = match first >> 4 {
            4 => {
                let fragment_offset = word(4)? & 0x1fff;
                let header_len = usize::from(first & 0xf) * 4;
                if header_len < 20 || fragment_offset != 0 {
                    return None;
                }
                (*data.get(9)?, v4(12)?, v4(16)?, header_len)
            }
            6 => (*data.get(6)?, v6(8)?, v6(24)?, 40),
            _ => return None,
        };
        // An IPv6 address that maps an IPv4 address is none that a packet has.
        if Protocol(protocol) != Protocol::TCP || src.is_ipv4() != (first >> 4 == 4) {
            return None;
        }
        let (ports, seq) = (word(header_len)?, SeqNumber(word(header_len + 4)?));
        Some(Self {
            src: Endpoint::new(src, (ports >> 16) as u16),
            dst: Endpoint::new(dst, ports as u16),
            seq,
        })
    }
}
