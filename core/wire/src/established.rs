//! The frame of an established connection, in one piece: Ethernet, IPv4 without options, TCP with `NOP NOP TIMESTAMP`
//! and nothing else (RFC 7323 appendix A).
//!
//! Nearly every frame of a busy service is one. Received, `EstablishedView::parse` answers with a single bounds check
//! whether it is; what it does not know goes to the views of the single headers. Sent, an `EstablishedTemplate` holds
//! all that the frames of one moment to one neighbour have in common, their part of the checksums too, so that a frame
//! costs a copy and a few fields.

use core::mem::offset_of;

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16, big_endian::U32,
};

use crate::checksum::fold;
use crate::ipv4::{DONT_FRAGMENT, FRAGMENT_OFFSET, Ipv4Repr, MORE_FRAGMENTS, VERSION_IHL};
use crate::tcp_options::ALIGNED_TIMESTAMP;
use crate::{EtherType, FlowKey, Ipv4Addr, MacAddr, Protocol, SeqNumber, Sum, TcpFlags, Timestamp};

/// The headers as they lie in the frame.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Copy, Clone)]
#[repr(C)]
struct Raw {
    dst: [u8; 6],
    src: [u8; 6],
    ethertype: U16,
    version_ihl: u8,
    dscp_ecn: u8,
    total_len: U16,
    ident: U16,
    flags_fragment: U16,
    ttl: u8,
    protocol: u8,
    ip_checksum: [u8; 2],
    /// Addresses, ports and the checksums are kept as they lie in memory: nobody turns them.
    src_ip: [u8; 4],
    dst_ip: [u8; 4],
    ports: [u8; 4],
    seq: U32,
    ack: U32,
    data_offset: u8,
    flags: u8,
    window: U16,
    checksum: [u8; 2],
    urgent: U16,
    kind: U32,
    value: [u8; 4],
    echo: [u8; 4],
}

/// Bytes of all headers.
pub const ESTABLISHED_HEADERS_LEN: usize = size_of::<Raw>();
const LINK_LEN: usize = 14;
const IP_LEN: usize = 20;
const TCP_LEN: usize = 32;
const _: () = assert!(ESTABLISHED_HEADERS_LEN == LINK_LEN + IP_LEN + TCP_LEN);

/// Eight 32-bit words, and reserved bits that are not looked at.
const DATA_OFFSET: u8 = (TCP_LEN as u8 / 4) << 4;
const TCP: u8 = 6;

/// A received frame of the usual form, trimmed of link padding.
#[derive(Copy, Clone)]
pub struct EstablishedView<'a> {
    raw: &'a Raw,
    ip: &'a [u8; IP_LEN],
    tcp: &'a [u8; TCP_LEN],
    payload: &'a [u8],
}

impl<'a> EstablishedView<'a> {
    /// The frame, if it has the usual form, its lengths hold together and no router has marked it (CE, RFC 3168 §5).
    /// `None` says nothing about what else it is.
    #[inline(always)]
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        let (headers, rest) = frame.split_first_chunk::<ESTABLISHED_HEADERS_LEN>()?;
        let raw = Raw::ref_from_bytes(headers).ok()?;
        // One branch for all of them: they agree together or not at all. What lies together is compared together.
        let word = |at: usize| {
            u32::from_le_bytes([headers[at], headers[at + 1], headers[at + 2], headers[at + 3]])
        };
        let [high, low] = EtherType::IPV4.0.to_be_bytes();
        let ip = word(offset_of!(Raw, ethertype)) ^ u32::from_le_bytes([high, low, VERSION_IHL, 0]);
        let [more, offset] = (MORE_FRAGMENTS | FRAGMENT_OFFSET).to_be_bytes();
        let protocol = word(offset_of!(Raw, flags_fragment)) ^ u32::from_le_bytes([0, 0, 0, TCP]);
        let kind = u32::from_ne_bytes(raw.kind.to_bytes());
        // The class left out, one more than CE, and than no other codepoint, is in the bit behind the codepoint's.
        let differs = (((ip & 0x03ff_ffff) + 0x0100_0000) & 0x04ff_ffff)
            | (protocol & u32::from_le_bytes([more, offset, 0, u8::MAX]))
            | u32::from(raw.data_offset ^ DATA_OFFSET)
            | (kind ^ ALIGNED_TIMESTAMP.to_be());
        if differs != 0 {
            return None;
        }
        let len = usize::from(raw.total_len.get()).checked_sub(IP_LEN + TCP_LEN)?;
        let payload = rest.get(..len)?;
        let (_, transport) = headers.split_first_chunk::<LINK_LEN>()?;
        let (ip, tcp) = transport.split_first_chunk::<IP_LEN>()?;
        Some(EstablishedView { raw, ip, tcp: tcp.first_chunk()?, payload })
    }

    /// Whether this frame is for the station at `mac` with the address `ip`.
    #[inline(always)]
    pub fn is_for(&self, mac: MacAddr, ip: Ipv4Addr) -> bool {
        let halves = |[a, b, c, d, e, f]: [u8; 6]| {
            (u32::from_ne_bytes([a, b, c, d]), u32::from(u16::from_ne_bytes([e, f])))
        };
        let ((head, tail), (own_head, own_tail)) = (halves(self.raw.dst), halves(mac.0));
        let dst = u32::from_ne_bytes(self.raw.dst_ip);
        let own = u32::from_ne_bytes(ip.octets());
        (head ^ own_head) | (tail ^ own_tail) | (dst ^ own) == 0
    }

    /// Whether both checksums are right (RFC 1071 §1).
    #[inline(always)]
    pub fn verify_checksums(&self) -> bool {
        // Pseudo-header: the length is the segment's, both below 2^16, as is the protocol.
        let len = (TCP_LEN + self.payload.len()) as u32;
        let pseudo = u64::from(u32::from_ne_bytes(self.raw.src_ip))
            + u64::from(u32::from_ne_bytes(self.raw.dst_ip))
            + u64::from((len + u32::from(TCP)).to_be());
        let segment = Sum::of(self.payload).add(Sum::of(self.tcp)).add(Sum::from_words(pseudo));
        Sum::of(self.ip).is_valid() && segment.is_valid()
    }

    /// The TCP header's fields.
    #[inline(always)]
    pub fn headers(&self) -> EstablishedHeaders<'a> {
        EstablishedHeaders { raw: self.raw }
    }

    /// The bytes after the headers, without link padding.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// What the headers of such a frame say.
#[derive(Copy, Clone)]
pub struct EstablishedHeaders<'a> {
    raw: &'a Raw,
}

impl<'a> EstablishedHeaders<'a> {
    /// The headers of a frame that [`EstablishedView::parse`] took before; of any other frame, bytes
    /// without meaning. `None` where it is too short for them.
    #[inline(always)]
    pub fn of(frame: &'a [u8]) -> Option<Self> {
        let headers = frame.first_chunk::<ESTABLISHED_HEADERS_LEN>()?;
        Some(EstablishedHeaders { raw: Raw::ref_from_bytes(headers).ok()? })
    }

    /// The connection, as its receiver names it.
    #[inline]
    pub fn flow(&self) -> FlowKey {
        FlowKey {
            address: u32::from_ne_bytes(self.raw.src_ip),
            ports: u32::from_ne_bytes(self.raw.ports),
        }
    }

    /// Sequence number of the first payload byte (SEG.SEQ).
    #[inline]
    pub fn seq(&self) -> SeqNumber {
        SeqNumber(self.raw.seq.get())
    }

    /// SEG.ACK; without meaning unless ACK is set.
    #[inline]
    pub fn ack(&self) -> SeqNumber {
        SeqNumber(self.raw.ack.get())
    }

    /// The control bits.
    #[inline]
    pub fn flags(&self) -> TcpFlags {
        TcpFlags(self.raw.flags)
    }

    /// The receive window, not scaled (SEG.WND).
    #[inline]
    pub fn window(&self) -> u16 {
        self.raw.window.get()
    }

    /// The timestamp.
    #[inline]
    pub fn timestamp(&self) -> Timestamp {
        Timestamp {
            value: u32::from_be_bytes(self.raw.value),
            echo: u32::from_be_bytes(self.raw.echo),
        }
    }

    /// Bytes after the headers, by the length field.
    #[inline]
    pub fn payload_len(&self) -> usize {
        usize::from(self.raw.total_len.get()).saturating_sub(IP_LEN + TCP_LEN)
    }
}

/// What the frames of one moment to one neighbour have in common.
#[derive(Copy, Clone)]
pub struct EstablishedTemplate {
    raw: Raw,
    /// Sums of what the template fixes, in memory order: of the IPv4 header, and of the TCP header with its
    /// pseudo-header. Each is below 2^35, so that a frame's own fields are added without looking after carries.
    ip_words: u64,
    tcp_words: u64,
}

/// What a frame says beside its template.
#[derive(Debug, Copy, Clone)]
pub struct EstablishedFields {
    /// The connection, as the sender of the frame names it.
    pub flow: FlowKey,
    /// Sequence number of the first payload byte.
    pub seq: SeqNumber,
    /// The next sequence number expected.
    pub ack: SeqNumber,
    /// The control bits.
    pub flags: TcpFlags,
    /// The receive window, already shifted by the scale in force.
    pub window: u16,
    /// The peer's timestamp (TSecr).
    pub echo: u32,
    /// Bytes of payload behind the headers: at most [`Ipv4Repr::MAX_PAYLOAD_LEN`](crate::Ipv4Repr::MAX_PAYLOAD_LEN)
    /// less 32.
    pub payload_len: usize,
    /// Their sum.
    pub payload_sum: Sum,
}

impl EstablishedTemplate {
    /// The template for frames from `src_mac` to the neighbour at `dst_mac`, with the timestamp `value` (TSval). Of `ip`
    /// counts what is the same in all packets: source, time to live and traffic class.
    pub fn new(dst_mac: MacAddr, src_mac: MacAddr, ip: &Ipv4Repr, value: u32) -> Self {
        let Ipv4Repr { src, ttl, dscp_ecn, .. } = *ip;
        let raw = Raw {
            dst: dst_mac.0,
            src: src_mac.0,
            ethertype: EtherType::IPV4.0.into(),
            version_ihl: VERSION_IHL,
            dscp_ecn,
            total_len: 0.into(),
            ident: 0.into(),
            flags_fragment: DONT_FRAGMENT.into(),
            ttl,
            protocol: Protocol::TCP.0,
            ip_checksum: [0; 2],
            src_ip: src.octets(),
            dst_ip: [0; 4],
            ports: [0; 4],
            seq: 0.into(),
            ack: 0.into(),
            data_offset: DATA_OFFSET,
            flags: 0,
            window: 0.into(),
            checksum: [0; 2],
            urgent: 0.into(),
            kind: ALIGNED_TIMESTAMP.into(),
            value: value.to_be_bytes(),
            echo: [0; 4],
        };
        let pair = |a, b| u64::from(u16::from_ne_bytes([a, b]));
        let src = u64::from(u32::from_ne_bytes(src.octets()));
        let ip_words = pair(VERSION_IHL, dscp_ecn)
            + u64::from(DONT_FRAGMENT.to_be())
            + pair(raw.ttl, raw.protocol)
            + src;
        let tcp_words = src + u64::from(ALIGNED_TIMESTAMP.to_be()) + u64::from(value.to_be());
        EstablishedTemplate { raw, ip_words, tcp_words }
    }

    /// Another neighbour, of the same moment.
    #[inline]
    pub fn set_destination(&mut self, dst_mac: MacAddr) {
        self.raw.dst = dst_mac.0;
    }

    /// Writes all headers, checksums included, into `out`.
    #[inline(always)]
    pub fn write(&self, out: &mut [u8; ESTABLISHED_HEADERS_LEN], fields: &EstablishedFields) {
        let total_len = (IP_LEN + TCP_LEN + fields.payload_len) as u16;
        let segment_len = (TCP_LEN + fields.payload_len) as u16;
        let dst = fields.flow.address;
        // What is the peer's source is our destination: the halves change places.
        let ports = fields.flow.ports.rotate_left(16);
        let ip_words = self.ip_words + u64::from(total_len.to_be()) + u64::from(dst);
        let words = self.tcp_words
            + u64::from(dst)
            + u64::from((u32::from(segment_len) + u32::from(TCP)).to_be())
            + u64::from(ports)
            + u64::from(fields.seq.0.to_be())
            + u64::from(fields.ack.0.to_be())
            + u64::from(u16::from_ne_bytes([DATA_OFFSET, fields.flags.0]))
            + u64::from(fields.window.to_be())
            + u64::from(fields.echo.to_be());
        let sum = fields.payload_sum.add(Sum::from_words(words));
        *out = zerocopy::transmute!(self.raw);
        let Ok(raw) = Raw::mut_from_bytes(out) else { return };
        raw.total_len = total_len.into();
        raw.ip_checksum = (!fold(ip_words)).to_ne_bytes();
        raw.dst_ip = dst.to_ne_bytes();
        raw.ports = ports.to_ne_bytes();
        raw.seq = fields.seq.0.into();
        raw.ack = fields.ack.0.into();
        raw.flags = fields.flags.0;
        raw.window = fields.window.into();
        raw.checksum = sum.finish().to_be_bytes();
        raw.echo = fields.echo.to_be_bytes();
    }
}

impl core::fmt::Debug for EstablishedTemplate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EstablishedTemplate")
            .field("dst", &MacAddr(self.raw.dst))
            .finish_non_exhaustive()
    }
}
