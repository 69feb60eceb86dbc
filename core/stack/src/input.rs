//! Step 2: from frames to segments.
//!
//! Two passes over the batch: the first parses every frame, the second processes. Where there are many connections, the first
//! prefetches the table entry of each, and a pass between the two finds the connections and prefetches them (IX §4.3,
//! TAS), so that none waits for memory. Nothing in a frame is believed before it was checked.

use core::ops::Range;

use mem::Mbuf;
use wire::established::{V4, V6, Version};
use wire::icmpv6::{Icmpv6Repr, Icmpv6View};
use wire::ipv4::ECN_CE;
use wire::ipv6::{Ipv6View, solicited_node};
use wire::{
    Address, Endpoint, EstablishedHeaders, EstablishedView, EtherType, EthernetRepr, EthernetView,
    FlowKey, Fragment6, IcmpRepr, IcmpView, Ipv4View, PairId, Protocol, QuotedTcp, SackBlocks,
    TcpFlags, TcpOptions, TcpView, Toeplitz, UnreachableCode, WireError,
};

use crate::group_set::GroupSet;
use crate::icmp::Undelivered;
use crate::pairs::{Pair, Pairs};
use crate::reassembly::{Fragment, Key};
use crate::shared::{First, Shared};
use crate::stats::StackStats;
use crate::tcp::fields::{Segment, SynOptions};
use crate::tcp::too_big::Message;

/// What the first pass found in a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parsed {
    /// An IPv4 frame of the form that established connections send, whole, with its hash and the slot that
    /// is, most likely, its connection's.
    Established { hash: u32, slot: Option<u32> },
    /// An IPv6 one.
    EstablishedV6 { hash: u32, slot: Option<u32> },
    /// Any other TCP segment for us; the mbuf is cut to its payload.
    Tcp { segment: Segment },
    /// An ARP packet.
    Arp,
    /// An ICMP message or a datagram for us: transport bytes begin at this offset.
    Icmp { at: u16, len: u16, pair: Pair },
    /// As above.
    Udp { at: u16, len: u16, pair: Pair },
    /// A router's message about a segment of ours.
    TooBig(Message),
    /// A packet of a protocol that we do not speak.
    Unknown { why: Undelivered, pair: Pair },
    /// A part of a datagram for us.
    Fragment(Fragment),
    /// A TCP segment of a flow group that is not here, a message about one, or a fragment.
    Elsewhere(Away),
    /// Nothing for us; counted.
    Drop,
}

/// Where a packet belongs that is of another core's flow group, or of one that is on its way here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Away {
    /// The elastic thread that is home to it.
    pub home: u8,
    /// The flow group.
    pub group: u16,
}

/// The tag of a packet of which this core's receive ring says nothing: one that came through a forwarding ring, or that
/// the device does not steer by its flow: a fragment, what was reassembled, a router's message about a segment.
pub const FORWARDED: u32 = 1;

/// Whether a frame that is long enough to be a usual one of either version carries an IPv6 packet.
#[inline(always)]
pub(crate) fn is_v6(frame: &[u8]) -> bool {
    // One question of the length: `parse_established_v4` asks the same.
    frame.len() >= V4::HEADERS_LEN
        && EthernetView::parse(frame).is_ok_and(|link| link.ethertype() == EtherType::IPV6)
}

/// The usual IPv4 frame, checked: its hash. Whatever is wrong with another one is for
/// [`parse_any`] to find out and count.
// What is the same for all frames of a batch comes by value: the loop has it at hand.
#[inline(always)]
pub(crate) fn parse_established_v4(
    frame: &[u8],
    verified: bool,
    first: First,
    toeplitz: &Toeplitz,
) -> Option<u32> {
    let flow = checked::<V4>(frame, first, verified)?.headers().flow();
    // Of a source that no host has, `segment::arrive` finds out: no connection has it. But that of a group of hosts would be
    // taken for the number of a pair.
    if flow.pair().is_numbered() {
        return None;
    }
    Some(toeplitz.hash_v4_of(first.hash, flow.pair().as_v4(), flow.ports()))
}

/// The same of an IPv6 frame. `last` is the source of the last one, and what it contributed to the hash: those of a batch
/// are mostly of few hosts, and sixteen bytes are looked up one by one.
#[inline(never)]
fn parse_established_v6(
    frame: &[u8],
    verified: bool,
    shared: &Shared,
    last: &mut (Address, u32),
) -> Option<u32> {
    let view = checked::<V6>(frame, shared.firsts[1], verified)?;
    let (flow, (remote, _)) = (view.headers().flow(), view.addresses());
    if last.0 != remote {
        // One that maps an IPv4 address would be taken for that.
        if remote.is_ipv4() {
            return None;
        }
        look_up(remote, &shared.toeplitz, last);
    }
    Some(shared.firsts[1].hash ^ last.1 ^ shared.toeplitz.ports_v6(flow.ports()))
}

// Inside of its caller, the address would be in sixteen registers, one for each byte.
#[cold]
#[inline(never)]
fn look_up(remote: Address, toeplitz: &Toeplitz, last: &mut (Address, u32)) {
    *last = (remote, toeplitz.source_v6(remote.octets().into()));
}

#[inline(always)]
fn checked<'a, V: Version>(
    frame: &'a [u8],
    first: First,
    verified: bool,
) -> Option<EstablishedView<'a, V>> {
    let view = EstablishedView::<V>::parse(frame)?;
    let is_taken = view.is_for(first.mac, first.address)
        && !view.headers().flags().contains(TcpFlags::SYN)
        && (verified || view.verify_checksums());
    is_taken.then_some(view)
}

/// The segment in a frame that one of these took. Of an IPv6 frame, with the ports of its connection and no pair.
#[inline(always)]
pub(crate) fn established_segment<V: Version>(frame: &[u8], hash: u32) -> Option<Segment> {
    let headers = EstablishedHeaders::of::<V>(frame)?;
    Some(Segment {
        hash,
        flow: headers.flow(),
        seq: headers.seq(),
        ack: headers.ack(),
        flags: headers.flags(),
        window: headers.window(),
        payload_len: headers.payload_len() as u32,
        is_marked: false,
        timestamp: Some(headers.timestamp()),
        syn: SynOptions::default(),
        sack_blocks: SackBlocks::EMPTY,
    })
}

/// The hosts that such a frame is from and for.
#[inline(always)]
pub(crate) fn established_pair<V: Version>(frame: &[u8]) -> Option<Pair> {
    let (remote, local) = EstablishedHeaders::addresses::<V>(frame)?;
    Some(Pair { local, remote })
}

/// Leaves the payload of the frame whose segment [`established_segment`] read.
#[inline(always)]
pub(crate) fn cut_to_payload<V: Version>(mbuf: &mut Mbuf, segment: &Segment) {
    mbuf.advance(V::HEADERS_LEN);
    mbuf.truncate(segment.payload_len as usize);
}

/// What a frame is looked at with.
pub(crate) struct Parser<'a> {
    /// The flow groups that are here.
    pub here: GroupSet,
    /// Checksums need not be verified.
    pub verified: bool,
    pub shared: &'a Shared,
    pub pairs: &'a mut Pairs,
    pub stats: &'a mut StackStats,
}

/// What an IP packet carries, or what else it is.
type Carried = Result<Transport, Parsed>;

/// A packet's transport header and what is behind it, and what the IP header says of it.
struct Transport {
    /// Where they stand in the frame.
    bytes: Range<usize>,
    protocol: Protocol,
    pair: Pair,
    /// A router has marked the packet (CE, RFC 3168 §5).
    is_marked: bool,
    /// Where the packet names the protocol, in bytes from its begin.
    named_at: u16,
}

impl Parser<'_> {
    /// Any frame. A function of its own with all of its parts, off the usual way.
    #[inline(never)]
    pub fn parse_any(&mut self, mbuf: &mut Mbuf) -> Parsed {
        match self.parse_link(mbuf) {
            Ok(parsed) => parsed,
            Err(WireError::Checksum) => {
                self.stats.bad_checksum += 1;
                Parsed::Drop
            }
            Err(_) => {
                self.stats.malformed += 1;
                Parsed::Drop
            }
        }
    }

    /// Where the packets of a hash belong, if not here.
    fn away(&self, hash: u32) -> Option<Away> {
        let group = Shared::group_of(hash);
        (!self.here.has(group)).then(|| Away { home: self.shared.home_of(group), group })
    }

    /// A frame with an IPv6 packet.
    #[inline]
    pub fn over_v6(&mut self, mbuf: &mut Mbuf, last: &mut (Address, u32)) -> Parsed {
        let Some(hash) = parse_established_v6(mbuf.bytes(), self.verified, self.shared, last)
        else {
            return self.parse_any(mbuf);
        };
        match self.away(hash) {
            None => Parsed::EstablishedV6 { hash, slot: None },
            Some(away) => Parsed::Elsewhere(away),
        }
    }

    fn parse_link(&mut self, mbuf: &mut Mbuf) -> Result<Parsed, WireError> {
        let link = EthernetView::parse(mbuf.bytes())?;
        let ours = link.dst() == self.shared.config.mac;
        let carried = match link.ethertype() {
            EtherType::IPV4 if ours => self.parse_v4(link.payload())?,
            EtherType::IPV6 if ours || link.dst().is_multicast() => {
                self.parse_v6(link.payload(), ours)?
            }
            EtherType::ARP if ours || link.dst().is_broadcast() => return Ok(Parsed::Arp),
            _ => {
                self.stats.not_for_us += 1;
                return Ok(Parsed::Drop);
            }
        };
        let transport = match carried {
            Ok(transport) => transport,
            Err(parsed) => return Ok(steered_otherwise(mbuf, parsed)),
        };
        let (at, len) = (transport.bytes.start as u16, transport.bytes.len() as u16);
        let pair = transport.pair;
        match (transport.protocol, pair.remote.is_ipv4()) {
            (Protocol::TCP, _) => self.parse_tcp(mbuf, &transport),
            (Protocol::UDP, _) => Ok(Parsed::Udp { at, len, pair }),
            (Protocol::ICMP, true) | (Protocol::ICMPV6, false) => {
                let message = mbuf.bytes().get(transport.bytes).unwrap_or(&[]);
                let too_big = self.too_big(message, pair);
                Ok(too_big.map_or(Parsed::Icmp { at, len, pair }, |of| steered_otherwise(mbuf, of)))
            }
            // No more headers, and nothing behind them (RFC 8200 §4.7).
            (Protocol::NO_NEXT, false) => {
                self.stats.not_for_us += 1;
                Ok(Parsed::Drop)
            }
            _ => {
                let why = Undelivered::Protocol { at: transport.named_at };
                Ok(Parsed::Unknown { why, pair })
            }
        }
    }

    fn parse_v4(&mut self, packet: &[u8]) -> Result<Carried, WireError> {
        let ip = Ipv4View::parse(packet)?;
        if !self.verified && !ip.verify_checksum() {
            return Err(WireError::Checksum);
        }
        let pair = Pair { local: ip.dst().into(), remote: ip.src().into() };
        if !self.is_for_us(pair) {
            return Ok(Err(Parsed::Drop));
        }
        // RFC 7126 §4.3: a route of the sender's choice is dropped, as is what it brings.
        if ip.is_source_routed() {
            return Err(WireError::Malformed);
        }
        if ip.is_fragment() {
            let key = Key { pair, ident: ip.ident().into(), protocol: ip.protocol().0 };
            let (offset, more, len) =
                (ip.fragment_offset(), ip.more_fragments(), ip.payload().len());
            // RFC 791 §3.2: blocks of eight bytes, and a total length of 16 bits.
            let end = ip.header_len() + usize::from(offset) + len;
            if more && !len.is_multiple_of(8) || end > usize::from(u16::MAX) {
                return Err(WireError::Malformed);
            }
            let extent = (ip.header_len(), offset, len);
            return self.fragment(key, extent, more, ip.ecn()).map(Err);
        }
        let at = EthernetRepr::HEADER_LEN + ip.header_len();
        Ok(Ok(Transport {
            bytes: at..at + ip.payload().len(),
            protocol: ip.protocol(),
            pair,
            is_marked: ip.ecn() == ECN_CE,
            named_at: 9,
        }))
    }

    /// `ours`: the frame is for our link address alone.
    fn parse_v6(&mut self, packet: &[u8], ours: bool) -> Result<Carried, WireError> {
        let ip = Ipv6View::parse(packet)?;
        let pair = Pair { local: ip.dst().into(), remote: ip.src().into() };
        // An address that maps an IPv4 address is none that a packet has: it would be taken for that.
        if pair.local.is_ipv4() || pair.remote.is_ipv4() {
            self.stats.not_for_us += 1;
            return Ok(Err(Parsed::Drop));
        }
        let is_taken = self.is_asked_for(&ip) || ours && self.is_for_us(pair);
        if !is_taken {
            self.stats.not_for_us += u64::from(!ours);
            return Ok(Err(Parsed::Drop));
        }
        if let Some(Fragment6 { offset, more, ident, .. }) = ip.fragment() {
            // What is for a group of hosts is neighbour discovery, which has no fragments (RFC 6980 §5). A first fragment has
            // all headers (RFC 7112 §5).
            if self.is_asked_for(&ip) || offset == 0 && !ip.has_whole_chain() {
                return Err(WireError::Malformed);
            }
            let key = Key { pair, ident, protocol: 0 };
            let extent = (ip.header_len(), offset, ip.payload().len());
            return self.fragment(key, extent, more, ip.ecn()).map(Err);
        }
        let at = EthernetRepr::HEADER_LEN + ip.header_len();
        Ok(Ok(Transport {
            bytes: at..at + ip.payload().len(),
            protocol: ip.protocol(),
            pair,
            is_marked: ip.ecn() == ECN_CE,
            named_at: ip.protocol_at(),
        }))
    }

    /// A fragment whose payload of `len` bytes stands behind `header_len` bytes of the packet. Devices steer fragments by the
    /// addresses alone, and all of a datagram's meet at the home of the addresses' hash, wherever they came.
    #[cold]
    fn fragment(
        &self,
        key: Key,
        (header_len, offset, len): (usize, u16, usize),
        more: bool,
        ecn: u8,
    ) -> Result<Parsed, WireError> {
        if len == 0 {
            return Err(WireError::Malformed);
        }
        let Pair { local, remote } = key.pair;
        if let Some(away) = self.away(self.shared.addresses_hash(local, remote)) {
            return Ok(Parsed::Elsewhere(away));
        }
        let headers = (EthernetRepr::HEADER_LEN + header_len) as u16;
        let (len, is_marked) = (len as u16, ecn == ECN_CE);
        Ok(Parsed::Fragment(Fragment { key, headers, len, offset, more, is_marked }))
    }

    /// Whether a packet is for a group of hosts that may have an address of ours: they are asked for its link address
    /// (RFC 4861 §7.2.1).
    fn is_asked_for(&self, ip: &Ipv6View<'_>) -> bool {
        let own = self.shared.config.addresses.iter().filter_map(|own| own.address.v6());
        ip.protocol() == Protocol::ICMPV6
            && own.into_iter().any(|own| solicited_node(own) == ip.dst())
    }

    /// Whether a packet is for one of our addresses, from one that a host can have (RFC 1122 §3.2.1.3); counted where not.
    fn is_for_us(&mut self, Pair { local, remote }: Pair) -> bool {
        let config = &self.shared.config;
        let is_for_us = config.is_own(local) && !config.is_own(remote) && !remote.is_martian();
        self.stats.not_for_us += u64::from(!is_for_us);
        is_for_us
    }

    /// A router's message that a segment of ours was too big (RFC 1191 §4, RFC 8201 §4). The device steers it by the
    /// router's address; it belongs to the flow group of the connection.
    #[cold]
    fn too_big(&mut self, message: &[u8], pair: Pair) -> Option<Parsed> {
        const CODE: UnreachableCode = UnreachableCode::FRAGMENTATION_NEEDED;
        // `icmp::arrive` counts what is wrong with any other.
        let (quoted, mtu) = match pair.remote.is_ipv4() {
            true => {
                let view = IcmpView::parse(message).ok()?;
                let IcmpRepr::DestUnreachable { code: CODE, next_hop_mtu } = view.repr() else {
                    return None;
                };
                (QuotedTcp::parse(view.data())?, next_hop_mtu)
            }
            false => {
                let [src, dst] = [pair.remote, pair.local].map(|end| end.octets().into());
                let view = Icmpv6View::parse(message, src, dst).ok()?;
                let Icmpv6Repr::PacketTooBig { mtu } = view.repr() else { return None };
                (QuotedTcp::parse(view.data())?, mtu.min(u16::MAX.into()) as u16)
            }
        };
        let QuotedTcp { src: local, dst: remote, seq } = quoted;
        if local.addr != pair.local {
            return None;
        }
        let hash = self.shared.flow_hash(local, remote);
        if let Some(away) = self.away(hash) {
            return Some(Parsed::Elsewhere(away));
        }
        let pair = self.pair_of(Pair { local: local.addr, remote: remote.addr });
        let flow = FlowKey::new(pair, remote.port, local.port);
        Some(Parsed::TooBig(Message { hash, flow, seq, mtu }))
    }

    fn pair_of(&mut self, pair: Pair) -> PairId {
        self.pairs.of(pair, self.shared)
    }

    fn parse_tcp(&mut self, mbuf: &mut Mbuf, transport: &Transport) -> Result<Parsed, WireError> {
        let Transport { bytes, pair, is_marked, .. } = transport;
        let (at, len) = (bytes.start, bytes.len());
        let tcp = TcpView::parse(mbuf.bytes().get(bytes.clone()).unwrap_or(&[]))?;
        if !self.verified && !tcp.verify_checksum(pair.remote, pair.local) {
            return Err(WireError::Checksum);
        }
        let local = Endpoint::new(pair.local, tcp.dst_port());
        let hash = self.shared.flow_hash(local, Endpoint::new(pair.remote, tcp.src_port()));
        if let Some(away) = self.away(hash) {
            return Ok(Parsed::Elsewhere(away));
        }
        let flow = FlowKey::new(self.pair_of(*pair), tcp.src_port(), tcp.dst_port());
        let (segment, header_len) = segment_of(&tcp, hash, flow, *is_marked);
        // Data on a SYN is not kept (RFC 9293 §3.10.7.2 allows to), and comes again after it.
        let is_syn = segment.flags.contains(TcpFlags::SYN);
        mbuf.advance(at + header_len);
        mbuf.truncate(if is_syn { 0 } else { len - header_len });
        Ok(Parsed::Tcp { segment })
    }
}

/// What `mbuf` was found to be, which the device steered by something else than its flow: where it is another core's, it
/// does not show that the device brings its flow group's segments here.
fn steered_otherwise(mbuf: &mut Mbuf, found: Parsed) -> Parsed {
    if let Parsed::Elsewhere(_) = found {
        mbuf.tag = FORWARDED;
    }
    found
}

/// What a TCP header says, and its length.
#[inline(always)]
fn segment_of(tcp: &TcpView<'_>, hash: u32, flow: FlowKey, is_marked: bool) -> (Segment, usize) {
    let flags = tcp.flags();
    let no_blocks = SackBlocks::EMPTY;
    let (timestamp, syn, sack_blocks) = match tcp.aligned_timestamp() {
        Some(stamp) => (Some(stamp), SynOptions::default(), no_blocks),
        None if tcp.options_bytes().is_empty() => (None, SynOptions::default(), no_blocks),
        None => {
            let TcpOptions { mss, window_scale, sack_permitted, timestamp, sack_blocks, .. } =
                tcp.options();
            (timestamp, SynOptions { mss, window_scale, sack_permitted }, sack_blocks)
        }
    };
    let segment = Segment {
        hash,
        flow,
        seq: tcp.seq(),
        ack: tcp.ack(),
        flags,
        window: tcp.window(),
        payload_len: tcp.payload().len() as u32,
        is_marked,
        timestamp,
        syn,
        sack_blocks,
    };
    (segment, tcp.header_len())
}
