//! The frame of an established connection, in one piece: Ethernet, IPv4 without options or IPv6 without extension headers,
//! TCP with `NOP NOP TIMESTAMP` and nothing else (RFC 7323 appendix A).
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
use crate::ipv4::{DONT_FRAGMENT, FRAGMENT_OFFSET, MORE_FRAGMENTS, VERSION_IHL};
use crate::pseudo_header::address_words;
use crate::tcp_options::ALIGNED_TIMESTAMP;
use crate::{
    Address, EtherType, FlowKey, Ipv4Addr, MacAddr, PairId, Protocol, SeqNumber, Sum, TcpFlags,
    Timestamp,
};

const LINK_LEN: usize = 14;
const TCP_LEN: usize = 32;
const IP4_LEN: usize = 20;
const IP6_LEN: usize = 40;
/// Eight 32-bit words, and reserved bits that are not looked at.
const DATA_OFFSET: u8 = (TCP_LEN as u8 / 4) << 4;
const TCP: u8 = 6;

use private::{Raw4, Raw6, RawTcp};

const _: () = assert!(size_of::<Raw4>() == LINK_LEN + IP4_LEN + TCP_LEN);
const _: () = assert!(size_of::<Raw6>() == LINK_LEN + IP6_LEN + TCP_LEN);

/// An IP version, as far as such frames differ by it.
pub trait Version: private::Version {
    /// Bytes of all headers.
    const HEADERS_LEN: usize;
    /// Whether it is IPv6.
    const IS_V6: bool;
}

/// IPv4.
#[derive(Debug)]
pub struct V4;
/// IPv6.
#[derive(Debug)]
pub struct V6;

impl Version for V4 {
    const HEADERS_LEN: usize = size_of::<Raw4>();
    const IS_V6: bool = false;
}

impl Version for V6 {
    const HEADERS_LEN: usize = size_of::<Raw6>();
    const IS_V6: bool = true;
}

mod private {
    use super::*;

    /// The headers as they lie in an IPv4 frame. Addresses, ports and the checksums are kept as they lie in memory: they need not
    /// be turned.
    #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Copy, Clone)]
    #[repr(C)]
    pub struct Raw4 {
        pub(super) dst: [u8; 6],
        pub(super) src: [u8; 6],
        pub(super) ethertype: U16,
        pub(super) version_ihl: u8,
        pub(super) dscp_ecn: u8,
        pub(super) total_len: U16,
        pub(super) ident: U16,
        pub(super) flags_fragment: U16,
        pub(super) ttl: u8,
        pub(super) protocol: u8,
        pub(super) ip_checksum: [u8; 2],
        pub(super) src_ip: [u8; 4],
        pub(super) dst_ip: [u8; 4],
        pub(super) tcp: RawTcp,
    }

    /// The headers as they lie in an IPv6 frame.
    #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Copy, Clone)]
    #[repr(C)]
    pub struct Raw6 {
        pub(super) dst: [u8; 6],
        pub(super) src: [u8; 6],
        pub(super) ethertype: U16,
        pub(super) version_class: [u8; 2],
        pub(super) flow_label: U16,
        pub(super) payload_len: U16,
        pub(super) next_header: u8,
        pub(super) hop_limit: u8,
        pub(super) src_ip: [u8; 16],
        pub(super) dst_ip: [u8; 16],
        pub(super) tcp: RawTcp,
    }

    /// The TCP header as it lies in either.
    #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Copy, Clone)]
    #[repr(C)]
    pub struct RawTcp {
        pub(super) ports: [u8; 4],
        pub(super) seq: U32,
        pub(super) ack: U32,
        pub(super) data_offset: u8,
        pub(super) flags: u8,
        pub(super) window: U16,
        pub(super) checksum: [u8; 2],
        pub(super) urgent: U16,
        pub(super) kind: U32,
        pub(super) value: [u8; 4],
        pub(super) echo: [u8; 4],
    }

    /// What frames of a version have where.
    pub trait Version {
        /// The headers.
        type Raw: FromBytes + KnownLayout + Immutable + Unaligned + 'static;
        /// The TCP header.
        fn tcp(raw: &Self::Raw) -> &RawTcp;
        /// The pair of hosts, where the headers name it.
        fn pair(raw: &Self::Raw) -> PairId;
        /// What the length field counts beside the payload.
        const BESIDE: u16;
        /// The length field.
        fn len(raw: &Self::Raw) -> u16;
        /// Bits that are not as they have to be; see [`EstablishedView::parse`].
        fn differs(raw: &Self::Raw) -> u32;
        /// Whether they are for this station; see [`EstablishedView::is_for`].
        fn is_for(raw: &Self::Raw, mac: MacAddr, ip: Address) -> bool;
        /// Whether the IP header's checksum is right.
        fn is_ip_valid(raw: &Self::Raw) -> bool;
        /// The sum of the addresses and the TCP header, which lie together.
        fn addresses_and_tcp(raw: &Self::Raw) -> Sum;
        /// Source and destination.
        fn addresses(raw: &Self::Raw) -> (Address, Address);
    }
}

/// Four bytes of `bytes` from `at` on, as they lie in memory.
#[inline(always)]
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    // As one load: from single bytes LLVM does not always make one.
    let word = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<4>());
    word.map_or(0, |word| u32::from_le_bytes(*word))
}

/// The halves of a MAC address, as they lie in memory.
#[inline(always)]
fn halves([a, b, c, d, e, f]: [u8; 6]) -> (u32, u32) {
    (u32::from_ne_bytes([a, b, c, d]), u32::from(u16::from_ne_bytes([e, f])))
}

impl RawTcp {
    /// Bits of the header's form that are not as they have to be.
    #[inline(always)]
    fn differs(&self) -> u32 {
        u32::from(self.data_offset ^ DATA_OFFSET)
            | (u32::from_ne_bytes(self.kind.to_bytes()) ^ ALIGNED_TIMESTAMP.to_be())
    }
}

impl private::Version for V4 {
    type Raw = Raw4;

    #[inline(always)]
    fn tcp(raw: &Raw4) -> &RawTcp {
        &raw.tcp
    }

    #[inline(always)]
    fn pair(raw: &Raw4) -> PairId {
        PairId(u32::from_ne_bytes(raw.src_ip))
    }

    const BESIDE: u16 = (IP4_LEN + TCP_LEN) as u16;

    #[inline(always)]
    fn len(raw: &Raw4) -> u16 {
        raw.total_len.get()
    }

    #[inline(always)]
    fn differs(raw: &Raw4) -> u32 {
        let bytes: &[u8; size_of::<Raw4>()] = zerocopy::transmute_ref!(raw);
        // One branch for all of them: they agree together or not at all. What lies together is compared together.
        let [high, low] = EtherType::IPV4.0.to_be_bytes();
        let ip = word(bytes, offset_of!(Raw4, ethertype))
            ^ u32::from_le_bytes([high, low, VERSION_IHL, 0]);
        let [more, offset] = (MORE_FRAGMENTS | FRAGMENT_OFFSET).to_be_bytes();
        let protocol =
            word(bytes, offset_of!(Raw4, flags_fragment)) ^ u32::from_le_bytes([0, 0, 0, TCP]);
        // The class left out, one more than CE, and than no other codepoint, is in the bit behind the codepoint's.
        (((ip & 0x03ff_ffff) + 0x0100_0000) & 0x04ff_ffff)
            | (protocol & u32::from_le_bytes([more, offset, 0, u8::MAX]))
            | raw.tcp.differs()
    }

    #[inline(always)]
    fn is_for(raw: &Raw4, mac: MacAddr, ip: Address) -> bool {
        let ((head, tail), (own_head, own_tail)) = (halves(raw.dst), halves(mac.0));
        let [.., a, b, c, d] = ip.octets();
        let (dst, own) = (u32::from_ne_bytes(raw.dst_ip), u32::from_ne_bytes([a, b, c, d]));
        (head ^ own_head) | (tail ^ own_tail) | (dst ^ own) == 0
    }

    #[inline(always)]
    fn is_ip_valid(raw: &Raw4) -> bool {
        let bytes: &[u8; size_of::<Raw4>()] = zerocopy::transmute_ref!(raw);
        let (_, ip) = bytes.split_at(LINK_LEN);
        ip.first_chunk::<IP4_LEN>().is_some_and(|ip| Sum::of(ip).is_valid())
    }

    #[inline(always)]
    fn addresses_and_tcp(raw: &Raw4) -> Sum {
        let bytes: &[u8; size_of::<Raw4>()] = zerocopy::transmute_ref!(raw);
        bytes.last_chunk::<{ 8 + TCP_LEN }>().map_or(Sum::ZERO, |bytes| Sum::of(bytes))
    }

    fn addresses(raw: &Raw4) -> (Address, Address) {
        (Ipv4Addr::from(raw.src_ip).into(), Ipv4Addr::from(raw.dst_ip).into())
    }
}

impl private::Version for V6 {
    type Raw = Raw6;

    #[inline(always)]
    fn tcp(raw: &Raw6) -> &RawTcp {
        &raw.tcp
    }

    #[inline(always)]
    fn pair(_: &Raw6) -> PairId {
        PairId::default()
    }

    const BESIDE: u16 = TCP_LEN as u16;

    #[inline(always)]
    fn len(raw: &Raw6) -> u16 {
        raw.payload_len.get()
    }

    #[inline(always)]
    fn differs(raw: &Raw6) -> u32 {
        let bytes: &[u8; size_of::<Raw6>()] = zerocopy::transmute_ref!(raw);
        let [high, low] = EtherType::IPV6.0.to_be_bytes();
        // Behind the EtherType the version, the class with the codepoint in its last two bits, and four bits of the flow
        // label.
        let ip =
            word(bytes, offset_of!(Raw6, ethertype)) ^ u32::from_le_bytes([high, low, 0x60, 0]);
        let marked = (ip >> 28 & 0b11) + 1;
        (ip & 0x00f0_ffff) | (marked & 0b100) | u32::from(raw.next_header ^ TCP) | raw.tcp.differs()
    }

    #[inline(always)]
    fn is_for(raw: &Raw6, mac: MacAddr, ip: Address) -> bool {
        let ((head, tail), (own_head, own_tail)) = (halves(raw.dst), halves(mac.0));
        let differs = u128::from_ne_bytes(raw.dst_ip) ^ u128::from_ne_bytes(ip.octets());
        u128::from((head ^ own_head) | (tail ^ own_tail)) | differs == 0
    }

    #[inline(always)]
    fn is_ip_valid(_: &Raw6) -> bool {
        true
    }

    #[inline(always)]
    fn addresses_and_tcp(raw: &Raw6) -> Sum {
        let bytes: &[u8; size_of::<Raw6>()] = zerocopy::transmute_ref!(raw);
        bytes.last_chunk::<{ 32 + TCP_LEN }>().map_or(Sum::ZERO, |bytes| Sum::of(bytes))
    }

    #[inline(always)]
    fn addresses(raw: &Raw6) -> (Address, Address) {
        (Address::from_octets(raw.src_ip), Address::from_octets(raw.dst_ip))
    }
}

/// A received frame of the usual form, trimmed of link padding.
pub struct EstablishedView<'a, V: Version> {
    raw: &'a V::Raw,
    payload: &'a [u8],
}

impl<'a, V: Version> EstablishedView<'a, V> {
    /// The frame, if it has the usual form, its lengths hold together and no router has marked it (CE, RFC 3168 §5).
    /// `None` says nothing about what else it is.
    #[inline(always)]
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        let (raw, rest) = V::Raw::ref_from_prefix(frame).ok()?;
        if V::differs(raw) != 0 {
            return None;
        }
        let payload = rest.get(..usize::from(V::len(raw).checked_sub(V::BESIDE)?))?;
        Some(EstablishedView { raw, payload })
    }

    /// Whether this frame is for the station at `mac` with the address `ip`.
    #[inline(always)]
    pub fn is_for(&self, mac: MacAddr, ip: Address) -> bool {
        V::is_for(self.raw, mac, ip)
    }

    /// Whether all checksums are right (RFC 1071 §1).
    #[inline(always)]
    pub fn verify_checksums(&self) -> bool {
        // Pseudo-header: the length is the segment's, both below 2^16, as is the protocol.
        let len = (TCP_LEN + self.payload.len()) as u32;
        let rest = Sum::from_words(u64::from((len + u32::from(TCP)).to_be()));
        let segment = Sum::of(self.payload).add(V::addresses_and_tcp(self.raw)).add(rest);
        V::is_ip_valid(self.raw) && segment.is_valid()
    }

    /// The TCP header's fields.
    #[inline(always)]
    pub fn headers(&self) -> EstablishedHeaders<'a> {
        EstablishedHeaders::new::<V>(self.raw)
    }

    /// The source and destination addresses.
    #[inline(always)]
    pub fn addresses(&self) -> (Address, Address) {
        V::addresses(self.raw)
    }

    /// The bytes after the headers, without link padding.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

impl<V: Version> core::fmt::Debug for EstablishedView<'_, V> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EstablishedView").field("headers", &self.headers()).finish_non_exhaustive()
    }
}

/// What the headers of such a frame say.
#[derive(Copy, Clone)]
pub struct EstablishedHeaders<'a> {
    tcp: &'a RawTcp,
    pair: PairId,
    payload_len: u16,
}

impl<'a> EstablishedHeaders<'a> {
    #[inline(always)]
    fn new<V: Version>(raw: &'a V::Raw) -> Self {
        // Of a frame that was parsed before.
        let payload_len = V::len(raw).wrapping_sub(V::BESIDE);
        EstablishedHeaders { tcp: V::tcp(raw), pair: V::pair(raw), payload_len }
    }

    /// The headers of a frame that [`EstablishedView::parse`] took before; of any other frame, bytes
    /// without meaning. `None` where it is too short for them.
    #[inline(always)]
    pub fn of<V: Version>(frame: &'a [u8]) -> Option<Self> {
        let (raw, _) = V::Raw::ref_from_prefix(frame).ok()?;
        Some(Self::new::<V>(raw))
    }

    /// The source and destination addresses of such a frame.
    #[inline(always)]
    pub fn addresses<V: Version>(frame: &[u8]) -> Option<(Address, Address)> {
        let (raw, _) = V::Raw::ref_from_prefix(frame).ok()?;
        Some(V::addresses(raw))
    }

    /// The connection, as its receiver names it. Of an IPv6 frame, its ports: who receives it knows the pair.
    #[inline]
    pub fn flow(&self) -> FlowKey {
        FlowKey { pair: self.pair, ports: u32::from_ne_bytes(self.tcp.ports) }
    }

    /// Sequence number of the first payload byte (SEG.SEQ).
    #[inline]
    pub fn seq(&self) -> SeqNumber {
        SeqNumber(self.tcp.seq.get())
    }

    /// SEG.ACK; without meaning unless ACK is set.
    #[inline]
    pub fn ack(&self) -> SeqNumber {
        SeqNumber(self.tcp.ack.get())
    }

    /// The control bits.
    #[inline]
    pub fn flags(&self) -> TcpFlags {
        TcpFlags(self.tcp.flags)
    }

    /// The receive window, not scaled (SEG.WND).
    #[inline]
    pub fn window(&self) -> u16 {
        self.tcp.window.get()
    }

    /// The timestamp.
    #[inline]
    pub fn timestamp(&self) -> Timestamp {
        Timestamp {
            value: u32::from_be_bytes(self.tcp.value),
            echo: u32::from_be_bytes(self.tcp.echo),
        }
    }

    /// Bytes after the headers, by the length field.
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.payload_len.into()
    }
}

impl core::fmt::Debug for EstablishedHeaders<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EstablishedHeaders").field("flow", &self.flow()).finish_non_exhaustive()
    }
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
    /// Their sum; `None`: the device completes the checksum ([`complete_checksum`](crate::complete_checksum)), and its
    /// field gets the sum of the pseudo-header.
    pub payload_sum: Option<Sum>,
}

/// What the frames of one moment to one peer have in common.
#[derive(Copy, Clone)]
pub struct EstablishedTemplate {
    /// The headers, at the end: so a frame of either version costs the same copy.
    bytes: [u8; EstablishedTemplate::ROOM],
    is_v4: bool,
    /// Sums of what the template fixes, in memory order: of the IPv4 header, and of the TCP header with its
    /// pseudo-header. Each is below 2^37, so that a frame's own fields are added without looking after carries.
    ip_words: u64,
    tcp_words: u64,
    /// What the timestamp option adds to `tcp_words`.
    stamp_words: u64,
}

impl EstablishedTemplate {
    /// Bytes in front of a payload that [`write`](Self::write) fills; the headers are the last of them.
    pub const ROOM: usize = 96;
    /// Bytes of the TCP header, the last of those.
    pub const TCP_LEN: usize = TCP_LEN;
    const TCP_AT: usize = Self::ROOM - TCP_LEN;
    const V4_AT: usize = Self::ROOM - size_of::<Raw4>();
    const V6_AT: usize = Self::ROOM - size_of::<Raw6>();

    /// The template for frames from `src_mac` to the neighbour at `dst_mac`, with the timestamp `value` (TSval), from
    /// `src` to `dst`, with this time to live (or hop limit) and traffic class.
    pub fn new(
        (dst_mac, src_mac): (MacAddr, MacAddr),
        (src, dst): (Address, Address),
        (ttl, dscp_ecn): (u8, u8),
        value: u32,
    ) -> Self {
        let tcp = RawTcp {
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
        let stamp_words = u64::from(ALIGNED_TIMESTAMP.to_be()) + u64::from(value.to_be());
        let mut template = Self {
            bytes: [0; Self::ROOM],
            is_v4: false,
            ip_words: 0,
            tcp_words: stamp_words,
            stamp_words,
        };
        let macs = (dst_mac.0, src_mac.0);
        match (src.v4(), dst.v4()) {
            (Some(src), Some(dst)) => template.fill_v4(macs, (src, dst), (ttl, dscp_ecn), tcp),
            _ => template.fill_v6(macs, (src, dst), (ttl, dscp_ecn), tcp),
        }
        template
    }

    fn fill_v4(
        &mut self,
        (dst, src): ([u8; 6], [u8; 6]),
        (src_ip, dst_ip): (Ipv4Addr, Ipv4Addr),
        (ttl, dscp_ecn): (u8, u8),
        tcp: RawTcp,
    ) {
        let raw = Raw4 {
            dst,
            src,
            ethertype: EtherType::IPV4.0.into(),
            version_ihl: VERSION_IHL,
            dscp_ecn,
            total_len: 0.into(),
            ident: 0.into(),
            flags_fragment: DONT_FRAGMENT.into(),
            ttl,
            protocol: Protocol::TCP.0,
            ip_checksum: [0; 2],
            src_ip: src_ip.octets(),
            dst_ip: dst_ip.octets(),
            tcp,
        };
        let pair = |a, b| u64::from(u16::from_ne_bytes([a, b]));
        let addresses = [raw.src_ip, raw.dst_ip].map(|ip| u64::from(u32::from_ne_bytes(ip)));
        let addresses = addresses.iter().sum::<u64>();
        self.ip_words = pair(VERSION_IHL, dscp_ecn)
            + u64::from(DONT_FRAGMENT.to_be())
            + pair(raw.ttl, raw.protocol)
            + addresses;
        self.tcp_words += addresses;
        self.bytes[Self::V4_AT..].copy_from_slice(raw.as_bytes());
        self.is_v4 = true;
    }

    fn fill_v6(
        &mut self,
        (dst, src): ([u8; 6], [u8; 6]),
        (src_ip, dst_ip): (Address, Address),
        (hop_limit, class): (u8, u8),
        tcp: RawTcp,
    ) {
        let raw = Raw6 {
            dst,
            src,
            ethertype: EtherType::IPV6.0.into(),
            version_class: [0x60 | class >> 4, class << 4],
            flow_label: 0.into(),
            payload_len: 0.into(),
            next_header: Protocol::TCP.0,
            hop_limit,
            src_ip: src_ip.octets(),
            dst_ip: dst_ip.octets(),
            tcp,
        };
        self.tcp_words += address_words(src_ip) + address_words(dst_ip);
        self.bytes[Self::V6_AT..].copy_from_slice(raw.as_bytes());
    }

    /// Another peer, of the same moment; of frames over IPv4.
    #[inline]
    pub fn set_peer(&mut self, dst_mac: MacAddr, dst: Ipv4Addr) {
        self.bytes[Self::V4_AT..Self::V4_AT + 6].copy_from_slice(&dst_mac.0);
        let (_, bytes) = self.bytes.split_at_mut(Self::V4_AT + offset_of!(Raw4, dst_ip));
        let Some(stored) = bytes.first_chunk_mut::<4>() else { return };
        let [before, after] = [*stored, dst.octets()].map(|ip| u64::from(u32::from_ne_bytes(ip)));
        *stored = dst.octets();
        // Both sums contain the address that was there.
        for words in [&mut self.ip_words, &mut self.tcp_words] {
            *words = *words - before + after;
        }
    }

    /// Writes all headers, checksums included, to the end of `out`. Answers how many bytes they are. The TCP header has
    /// [`TCP_LEN`](Self::TCP_LEN) of them.
    #[inline(always)]
    pub fn write(&self, out: &mut [u8; Self::ROOM], fields: &EstablishedFields) -> usize {
        let segment_len = (TCP_LEN + fields.payload_len) as u16;
        *out = self.bytes;
        let headers_len = if self.is_v4 {
            let total_len = (IP4_LEN as u16).wrapping_add(segment_len).to_be();
            let ip_words = self.ip_words + u64::from(total_len);
            const TOTAL_LEN: usize = EstablishedTemplate::V4_AT + offset_of!(Raw4, total_len);
            const CHECKSUM: usize = EstablishedTemplate::V4_AT + offset_of!(Raw4, ip_checksum);
            out[TOTAL_LEN..TOTAL_LEN + 2].copy_from_slice(&total_len.to_ne_bytes());
            out[CHECKSUM..CHECKSUM + 2].copy_from_slice(&(!fold(ip_words)).to_ne_bytes());
            V4::HEADERS_LEN
        } else {
            const LEN: usize = EstablishedTemplate::V6_AT + offset_of!(Raw6, payload_len);
            out[LEN..LEN + 2].copy_from_slice(&segment_len.to_be_bytes());
            V6::HEADERS_LEN
        };
        // What is the peer's source is our destination: the halves change places.
        let ports = fields.flow.ports.rotate_left(16);
        let words = self.tcp_words + u64::from((u32::from(segment_len) + u32::from(TCP)).to_be());
        let checksum = match fields.payload_sum {
            None => fold(words - self.stamp_words),
            Some(payload_sum) => {
                let words = words
                    + u64::from(ports)
                    + u64::from(fields.seq.0.to_be())
                    + u64::from(fields.ack.0.to_be())
                    + u64::from(u16::from_ne_bytes([DATA_OFFSET, fields.flags.0]))
                    + u64::from(fields.window.to_be())
                    + u64::from(fields.echo.to_be());
                payload_sum.add(Sum::from_words(words)).finish().to_be()
            }
        };
        let Ok(raw) = RawTcp::mut_from_bytes(&mut out[Self::TCP_AT..]) else { return 0 };
        raw.ports = ports.to_ne_bytes();
        raw.seq = fields.seq.0.into();
        raw.ack = fields.ack.0.into();
        raw.flags = fields.flags.0;
        raw.window = fields.window.into();
        raw.checksum = checksum.to_ne_bytes();
        raw.echo = fields.echo.to_be_bytes();
        headers_len
    }
}

impl core::fmt::Debug for EstablishedTemplate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EstablishedTemplate").field("is_v4", &self.is_v4).finish_non_exhaustive()
    }
}
