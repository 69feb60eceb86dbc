//! ICMP for IPv6 (RFC 4443) and the two messages of neighbour discovery that resolve addresses (RFC 4861 §4.3, §4.4).
//!
//! Received: `Icmpv6View::parse(ip.payload(), ip.src(), ip.dst())?` has verified the checksum and, for neighbour
//! discovery, the message's own rules; `repr()` is the meaning, `data()` the echo's data or, for an error, the quoted
//! packet. Sent: the data is copied into the frame with `copy_and_sum`, then `Icmpv6Repr::emit` writes the header with
//! the data's sum. A neighbour discovery message has no data: `emit` writes all of it.
//!
//! One rule needs the IP header and stays with the caller: a neighbour discovery message counts only with a hop limit
//! of 255, which proves that no router forwarded it (RFC 4861 §3.1). Its sender sets that hop limit.

use core::net::Ipv6Addr;

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U16, U32},
};

use crate::{
    MacAddr, Protocol, Sum, TimeExceededCode, WireError, pseudo_header_sum, solicited_node,
};

/// What every message begins with (RFC 4443 §2.1).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    kind: u8,
    code: u8,
    checksum: U16,
}

/// A neighbour solicitation or advertisement behind its head (RFC 4861 §4.3, §4.4); options follow.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct NeighborRaw {
    /// Three flags in an advertisement, else reserved.
    flags: U32,
    target: [u8; 16],
}

/// An option with an Ethernet address (RFC 2464 §6).
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct LinkAddressOption {
    kind: u8,
    /// Of the whole option, in units of 8 bytes.
    units: u8,
    mac: [u8; 6],
}

const DEST_UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
/// The lowest type of an informational message (RFC 4443 §2.1).
const FIRST_INFORMATIONAL: u8 = 128;

const ROUTER: u32 = 1 << 31;
const SOLICITED: u32 = 1 << 30;
const OVERRIDE: u32 = 1 << 29;

const OPTION_SOURCE_LINK: u8 = 1;
const OPTION_TARGET_LINK: u8 = 2;
/// Bytes in one unit of an option's length (RFC 4861 §4.6).
const OPTION_UNIT: usize = 8;

/// Bytes of the head.
const HEAD_LEN: usize = size_of::<Head>();
/// Bytes of the head and the 32-bit word that echoes and errors have behind it.
const WORD_HEADER_LEN: usize = HEAD_LEN + size_of::<U32>();
/// Bytes of a neighbour discovery message before its options.
const NEIGHBOR_LEN: usize = HEAD_LEN + size_of::<NeighborRaw>();

/// Why a destination is unreachable over IPv6 (RFC 4443 §3.1).
#[derive(Debug, Copy, Clone, PartialEq, Eq, Hash)]
pub struct UnreachableCodeV6(pub u8);

impl UnreachableCodeV6 {
    /// No route to the destination.
    pub const NO_ROUTE: Self = Self(0);
    /// An administrator prohibits the traffic.
    pub const PROHIBITED: Self = Self(1);
    /// The source address's scope ends before the destination.
    pub const BEYOND_SCOPE: Self = Self(2);
    /// The host does not answer.
    pub const ADDRESS: Self = Self(3);
    /// The host has nothing on this port.
    pub const PORT: Self = Self(4);
    /// A policy refuses the source address.
    pub const SOURCE_POLICY: Self = Self(5);
    /// The route to the destination rejects packets.
    pub const REJECT_ROUTE: Self = Self(6);
}

/// What is wrong with a quoted packet's headers (RFC 4443 §3.4).
#[derive(Debug, Copy, Clone, PartialEq, Eq, Hash)]
pub struct ParameterProblemCode(pub u8);

impl ParameterProblemCode {
    /// A header field has a bad value.
    pub const HEADER_FIELD: Self = Self(0);
    /// The receiver does not know the next header.
    pub const NEXT_HEADER: Self = Self(1);
    /// The receiver does not know an option that asks for this error.
    pub const OPTION: Self = Self(2);
}

/// The meaning of an ICMPv6 header; for neighbour discovery, of the whole message.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub enum Icmpv6Repr {
    /// Asks for the data to be sent back (RFC 4443 §4.1).
    EchoRequest {
        /// Which asker.
        ident: u16,
        /// Which of its requests.
        seq: u16,
    },
    /// Sends the data back (RFC 4443 §4.2).
    EchoReply {
        /// As in the request.
        ident: u16,
        /// As in the request.
        seq: u16,
    },
    /// The quoted packet could not be delivered.
    DestUnreachable {
        /// Why.
        code: UnreachableCodeV6,
    },
    /// The quoted packet is larger than a link on its path carries (RFC 4443 §3.2, RFC 8201).
    PacketTooBig {
        /// Bytes that the link carries, as received; a receiver takes no value below 1,280 (RFC 8201 §4).
        mtu: u32,
    },
    /// The quoted packet took too long.
    TimeExceeded {
        /// Which time.
        code: TimeExceededCode,
    },
    /// The quoted packet's headers have a bad byte.
    ParameterProblem {
        /// What is wrong with it.
        code: ParameterProblemCode,
        /// Offset of that byte in the quoted packet; may lie beyond the quotation.
        pointer: u32,
    },
    /// Asks for the target's link-layer address (RFC 4861 §4.3).
    NeighborSolicitation {
        /// The address in question; never multicast.
        target: Ipv6Addr,
        /// Link-layer address of the sender; absent where the sender has no address yet (RFC 4862 §5.4.2).
        source_link: Option<MacAddr>,
    },
    /// Announces the target's link-layer address (RFC 4861 §4.4).
    NeighborAdvertisement {
        /// The address in question; never multicast.
        target: Ipv6Addr,
        /// Whether the sender is a router.
        router: bool,
        /// Whether this answers a solicitation; never in a message to a multicast address.
        solicited: bool,
        /// Whether this replaces a cached link-layer address.
        override_: bool,
        /// Link-layer address of the target.
        target_link: Option<MacAddr>,
    },
    /// Any other type, and an echo with a code that has no meaning. Its data begins right behind the checksum.
    Other {
        /// ICMPv6 type.
        kind: u8,
        /// ICMPv6 code.
        code: u8,
    },
}

impl Icmpv6Repr {
    /// Bytes that `emit` writes: 8 for echoes and errors, 24 or 32 for neighbour discovery, 4 for `Other`.
    pub const fn header_len(&self) -> usize {
        let (source_link, target_link) = match self {
            Icmpv6Repr::NeighborSolicitation { source_link, .. } => (source_link, &None),
            Icmpv6Repr::NeighborAdvertisement { target_link, .. } => (&None, target_link),
            Icmpv6Repr::Other { .. } => return HEAD_LEN,
            _ => return WORD_HEADER_LEN,
        };
        let has_option = source_link.is_some() || target_link.is_some();
        if has_option { NEIGHBOR_LEN + OPTION_UNIT } else { NEIGHBOR_LEN }
    }

    /// Whether this reports an error about a quoted packet: a type below 128. Such a message is never answered with
    /// another (RFC 4443 §2.4 (e)).
    pub const fn is_error(&self) -> bool {
        self.kind_and_code().0 < FIRST_INFORMATIONAL
    }

    const fn kind_and_code(&self) -> (u8, u8) {
        match *self {
            Icmpv6Repr::EchoRequest { .. } => (ECHO_REQUEST, 0),
            Icmpv6Repr::EchoReply { .. } => (ECHO_REPLY, 0),
            Icmpv6Repr::DestUnreachable { code } => (DEST_UNREACHABLE, code.0),
            Icmpv6Repr::PacketTooBig { .. } => (PACKET_TOO_BIG, 0),
            Icmpv6Repr::TimeExceeded { code } => (TIME_EXCEEDED, code.0),
            Icmpv6Repr::ParameterProblem { code, .. } => (PARAMETER_PROBLEM, code.0),
            Icmpv6Repr::NeighborSolicitation { .. } => (NEIGHBOR_SOLICITATION, 0),
            Icmpv6Repr::NeighborAdvertisement { .. } => (NEIGHBOR_ADVERTISEMENT, 0),
            Icmpv6Repr::Other { kind, code } => (kind, code),
        }
    }

    /// Writes the header, checksum included, into the first [`header_len`](Self::header_len) bytes of `out`. `data` is
    /// the sum and the length in bytes of what follows; `(Sum::ZERO, 0)` for a neighbour discovery message. `src` and
    /// `dst` are the packet's addresses.
    ///
    /// # Panics
    /// When `out` has fewer bytes than `header_len`.
    pub fn emit(&self, out: &mut [u8], src: Ipv6Addr, dst: Ipv6Addr, data: (Sum, usize)) {
        let out = &mut out[..self.header_len()];
        let (kind, code) = self.kind_and_code();
        let (head, body) = out.split_at_mut(HEAD_LEN);
        self.emit_body(body);
        let (data_sum, data_len) = data;
        let len = HEAD_LEN + body.len() + data_len;
        let checksum = pseudo_header_sum(src, dst, Protocol::ICMPV6, len)
            .add_u16(u16::from_be_bytes([kind, code]))
            .add(Sum::of(body))
            .add(data_sum)
            .finish();
        head.copy_from_slice(Head { kind, code, checksum: checksum.into() }.as_bytes());
    }

    /// Writes what lies behind the head into `body`, which is exactly as long.
    fn emit_body(&self, body: &mut [u8]) {
        let pair = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
        let word = match *self {
            Icmpv6Repr::EchoRequest { ident, seq } | Icmpv6Repr::EchoReply { ident, seq } => {
                pair(ident, seq)
            }
            Icmpv6Repr::DestUnreachable { .. } | Icmpv6Repr::TimeExceeded { .. } => 0,
            Icmpv6Repr::PacketTooBig { mtu } => mtu,
            Icmpv6Repr::ParameterProblem { pointer, .. } => pointer,
            Icmpv6Repr::NeighborSolicitation { target, source_link } => {
                return emit_neighbor(body, 0, target, (OPTION_SOURCE_LINK, source_link));
            }
            Icmpv6Repr::NeighborAdvertisement {
                target,
                router,
                solicited,
                override_,
                target_link,
            } => {
                let flags = if router { ROUTER } else { 0 }
                    | if solicited { SOLICITED } else { 0 }
                    | if override_ { OVERRIDE } else { 0 };
                return emit_neighbor(body, flags, target, (OPTION_TARGET_LINK, target_link));
            }
            Icmpv6Repr::Other { .. } => return,
        };
        body.copy_from_slice(&word.to_be_bytes());
    }
}

/// Writes a neighbour discovery message behind its head into `body`, which is exactly as long. `link` is the kind of
/// the option and its address.
fn emit_neighbor(body: &mut [u8], flags: u32, target: Ipv6Addr, link: (u8, Option<MacAddr>)) {
    let (fixed, options) = body.split_at_mut(size_of::<NeighborRaw>());
    let raw = NeighborRaw { flags: flags.into(), target: target.octets() };
    fixed.copy_from_slice(raw.as_bytes());
    if let (kind, Some(MacAddr(mac))) = link {
        options.copy_from_slice(LinkAddressOption { kind, units: 1, mac }.as_bytes());
    }
}

/// A received message whose checksum is right and, for neighbour discovery, whose contents follow the rules.
#[derive(Copy, Clone)]
pub struct Icmpv6View<'a> {
    repr: Icmpv6Repr,
    data: &'a [u8],
}

impl<'a> Icmpv6View<'a> {
    /// Checks length and checksum, and reads a neighbour discovery message whole. `bytes` is exactly the packet's
    /// payload, `src` and `dst` the packet's addresses. The hop limit of neighbour discovery is the caller's to check:
    /// anything but 255 is to be dropped (RFC 4861 §7.1).
    ///
    /// # Errors
    /// - `Truncated` when the buffer ends before the header of the message's type, or before the length that an option
    ///   claims.
    /// - `Checksum` when the checksum over pseudo-header and message is wrong.
    /// - `Malformed` for neighbour discovery that RFC 4861 §7.1 declares invalid: a code other than 0, a multicast
    ///   target, an option of length 0; a solicitation from the unspecified address with a source link-layer address
    ///   or not to a solicited-node address; a solicited advertisement to a multicast address. Also for the option
    ///   with the link-layer address in a length that is not Ethernet's (RFC 2464 §6).
    pub fn parse(bytes: &'a [u8], src: Ipv6Addr, dst: Ipv6Addr) -> Result<Self, WireError> {
        let (head, body) = Head::ref_from_prefix(bytes).map_err(|_| WireError::Truncated)?;
        let sum = pseudo_header_sum(src, dst, Protocol::ICMPV6, bytes.len()).add(Sum::of(bytes));
        if !sum.is_valid() {
            return Err(WireError::Checksum);
        }
        let Head { kind, code, checksum: _ } = *head;
        match (kind, code) {
            (NEIGHBOR_SOLICITATION | NEIGHBOR_ADVERTISEMENT, _) => {
                let repr = parse_neighbor(head, body, src, dst)?;
                return Ok(Icmpv6View { repr, data: &[] });
            }
            (ECHO_REQUEST | ECHO_REPLY, 0) | (DEST_UNREACHABLE..=PARAMETER_PROBLEM, _) => {}
            _ => return Ok(Icmpv6View { repr: Icmpv6Repr::Other { kind, code }, data: body }),
        }
        let (word, data) = U32::read_from_prefix(body).map_err(|_| WireError::Truncated)?;
        let word = word.get();
        let (ident, seq) = ((word >> 16) as u16, word as u16);
        let repr = match kind {
            ECHO_REQUEST => Icmpv6Repr::EchoRequest { ident, seq },
            ECHO_REPLY => Icmpv6Repr::EchoReply { ident, seq },
            DEST_UNREACHABLE => Icmpv6Repr::DestUnreachable { code: UnreachableCodeV6(code) },
            // The receiver ignores the code (RFC 4443 §3.2).
            PACKET_TOO_BIG => Icmpv6Repr::PacketTooBig { mtu: word },
            TIME_EXCEEDED => Icmpv6Repr::TimeExceeded { code: TimeExceededCode(code) },
            _ => {
                let code = ParameterProblemCode(code);
                Icmpv6Repr::ParameterProblem { code, pointer: word }
            }
        };
        Ok(Icmpv6View { repr, data })
    }

    /// What the message says.
    #[inline]
    pub fn repr(&self) -> Icmpv6Repr {
        self.repr
    }

    /// The bytes after the header: the echo's data, or the packet that an error quotes. Empty for neighbour discovery:
    /// `repr` has its one option of interest, and others are skipped.
    #[inline]
    pub fn data(&self) -> &'a [u8] {
        self.data
    }
}

/// Reads a neighbour solicitation or advertisement; see [`Icmpv6View::parse`] for its rules.
fn parse_neighbor(
    head: &Head,
    body: &[u8],
    src: Ipv6Addr,
    dst: Ipv6Addr,
) -> Result<Icmpv6Repr, WireError> {
    let (raw, options) = NeighborRaw::ref_from_prefix(body).map_err(|_| WireError::Truncated)?;
    let target = Ipv6Addr::from(raw.target);
    if head.code != 0 || target.is_multicast() {
        return Err(WireError::Malformed);
    }
    if head.kind == NEIGHBOR_SOLICITATION {
        let source_link = link_address(options, OPTION_SOURCE_LINK)?;
        // A host that asks whether its address is free has no other to send from (RFC 4862 §5.4.2).
        let is_probe = src.is_unspecified();
        if is_probe && (source_link.is_some() || !is_solicited_node(dst)) {
            return Err(WireError::Malformed);
        }
        return Ok(Icmpv6Repr::NeighborSolicitation { target, source_link });
    }
    let target_link = link_address(options, OPTION_TARGET_LINK)?;
    let flags = raw.flags.get();
    let solicited = flags & SOLICITED != 0;
    if solicited && dst.is_multicast() {
        return Err(WireError::Malformed);
    }
    let (router, override_) = (flags & ROUTER != 0, flags & OVERRIDE != 0);
    Ok(Icmpv6Repr::NeighborAdvertisement { target, router, solicited, override_, target_link })
}

/// Whether `addr` is the solicited-node address of any address (RFC 4291 §2.7.1).
fn is_solicited_node(addr: Ipv6Addr) -> bool {
    addr == solicited_node(addr)
}

/// Walks all options of a neighbour discovery message; returns the address in the first of `kind`.
fn link_address(options: &[u8], kind: u8) -> Result<Option<MacAddr>, WireError> {
    let mut found = None;
    let mut rest = options;
    while !rest.is_empty() {
        let units = usize::from(*rest.get(1).ok_or(WireError::Truncated)?);
        if units == 0 {
            return Err(WireError::Malformed);
        }
        let (option, after) =
            rest.split_at_checked(units * OPTION_UNIT).ok_or(WireError::Truncated)?;
        if option.first() == Some(&kind) && found.is_none() {
            let [_, _, mac @ ..] =
                *<&[u8; OPTION_UNIT]>::try_from(option).map_err(|_| WireError::Malformed)?;
            found = Some(MacAddr(mac));
        }
        rest = after;
    }
    Ok(found)
}
