//! Step 2: from frames to segments.
//!
//! Two passes over the batch: the first parses every frame, the second processes. Where there are many connections, the first
//! prefetches the table entry of each, and a pass between the two finds the connections and prefetches them (IX §4.3,
//! TAS), so that none waits for memory. Nothing in a frame is believed before it was checked.

use core::ops::Range;

use mem::Mbuf;
use wire::ipv4::ECN_CE;
use wire::{
    ESTABLISHED_HEADERS_LEN, Endpoint, EstablishedHeaders, EstablishedView, EtherType,
    EthernetRepr, EthernetView, FlowKey, IcmpRepr, IcmpView, Ipv4Addr, Ipv4View, Protocol,
    QuotedTcp, SackBlocks, TcpFlags, TcpOptions, TcpView, UnreachableCode, WireError,
};

use crate::context::LINK_AND_IP;
use crate::group_set::GroupSet;
use crate::shared::Shared;
use crate::stats::StackStats;
use crate::tcp::fields::{Segment, SynOptions};
use crate::tcp::too_big::Message;

/// What the first pass found in a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parsed {
    /// A frame of the form that established connections send, whole, with its hash and the slot that
    /// is, most likely, its connection's.
    Established { hash: u32, slot: Option<u32> },
    /// Any other TCP segment for us; the mbuf is cut to its payload.
    Tcp { segment: Segment },
    /// An ARP packet.
    Arp,
    /// An ICMP message or a datagram for us: transport bytes begin at this offset.
    Icmp { at: u16, len: u16, src: Ipv4Addr },
    /// As above.
    Udp { at: u16, len: u16, src: Ipv4Addr },
    /// A router's message about a segment of ours.
    TooBig(Message),
    /// A packet of a protocol that we do not speak.
    UnknownProtocol { src: Ipv4Addr },
    /// A TCP segment of a flow group that is not here, or a message about one.
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

/// The usual frame, checked: its hash. Whatever is wrong with another one is for
/// [`parse_any`] to find out and count.
#[inline(always)]
pub(crate) fn parse_established(frame: &[u8], verified: bool, shared: &Shared) -> Option<u32> {
    let view = EstablishedView::parse(frame)?;
    let headers = view.headers();
    if !view.is_for(shared.config.mac, shared.config.address)
        || headers.flags().contains(TcpFlags::SYN)
        || !(verified || view.verify_checksums())
    {
        return None;
    }
    Some(shared.hash_of(headers.flow()))
}

/// The segment in a frame that [`parse_established`] took.
#[inline(always)]
pub(crate) fn established_segment(frame: &[u8], hash: u32) -> Option<Segment> {
    let headers = EstablishedHeaders::of(frame)?;
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

/// Leaves the payload of the frame whose segment [`established_segment`] read.
#[inline(always)]
pub(crate) fn cut_to_payload(mbuf: &mut Mbuf, segment: &Segment) {
    mbuf.advance(ESTABLISHED_HEADERS_LEN);
    mbuf.truncate(segment.payload_len as usize);
}

/// Any frame. A function of its own with all of its parts, off the usual way.
#[inline(never)]
pub(crate) fn parse_any(
    mbuf: &mut Mbuf,
    here: GroupSet,
    verified: bool,
    shared: &Shared,
    stats: &mut StackStats,
) -> Parsed {
    match parse_link(mbuf, here, verified, shared, stats) {
        Ok(parsed) => parsed,
        Err(WireError::Checksum) => {
            stats.bad_checksum += 1;
            Parsed::Drop
        }
        Err(_) => {
            stats.malformed += 1;
            Parsed::Drop
        }
    }
}

#[inline(always)]
fn parse_link(
    mbuf: &mut Mbuf,
    here: GroupSet,
    verified: bool,
    shared: &Shared,
    stats: &mut StackStats,
) -> Result<Parsed, WireError> {
    let link = EthernetView::parse(mbuf.bytes())?;
    let ours = link.dst() == shared.config.mac;
    match link.ethertype() {
        EtherType::IPV4 if ours => {}
        EtherType::ARP if ours || link.dst().is_broadcast() => return Ok(Parsed::Arp),
        _ => {
            stats.not_for_us += 1;
            return Ok(Parsed::Drop);
        }
    }
    let ip = Ipv4View::parse(link.payload())?;
    if !verified && !ip.verify_checksum() {
        return Err(WireError::Checksum);
    }
    let src = ip.src();
    if ip.dst() != shared.config.address || is_martian(src, shared) {
        stats.not_for_us += 1;
        return Ok(Parsed::Drop);
    }
    // RFC 7126 §4.3: a route of the sender's choice is dropped, as is what it brings.
    if ip.is_source_routed() {
        return Err(WireError::Malformed);
    }
    if ip.is_fragment() {
        stats.fragments += 1;
        return Ok(Parsed::Drop);
    }
    let at = (EthernetRepr::HEADER_LEN + ip.header_len()) as u16;
    let (len, is_marked) = (ip.payload().len() as u16, ip.ecn() == ECN_CE);
    match ip.protocol() {
        Protocol::TCP => {
            let bytes = usize::from(at)..usize::from(at) + usize::from(len);
            parse_tcp(mbuf, bytes, (src, is_marked), here, verified, shared)
        }
        Protocol::UDP => Ok(Parsed::Udp { at, len, src }),
        Protocol::ICMP => {
            Ok(too_big(ip.payload(), here, shared).unwrap_or(Parsed::Icmp { at, len, src }))
        }
        _ => Ok(Parsed::UnknownProtocol { src }),
    }
}

/// A router's message that a segment of ours was too big (RFC 1191 §4). The device steers it by the router's address; it
/// belongs to the flow group of the connection.
#[cold]
fn too_big(message: &[u8], here: GroupSet, shared: &Shared) -> Option<Parsed> {
    const CODE: UnreachableCode = UnreachableCode::FRAGMENTATION_NEEDED;
    // `icmp::arrive` counts what is wrong with any other.
    let view = IcmpView::parse(message).ok()?;
    let IcmpRepr::DestUnreachable { code: CODE, next_hop_mtu } = view.repr() else { return None };
    let quoted = QuotedTcp::parse(view.data())?;
    if quoted.src.addr != shared.config.address {
        return None;
    }
    let flow = FlowKey::new(quoted.dst, quoted.src.port);
    let hash = shared.hash_of(flow);
    let group = Shared::group_of(hash);
    Some(match here.has(group) {
        true => Parsed::TooBig(Message { hash, flow, seq: quoted.seq, mtu: next_hop_mtu }),
        false => Parsed::Elsewhere(Away { home: shared.home_of(group), group }),
    })
}

/// Sources that no honest packet has (RFC 1122 §3.2.1.3).
#[inline]
pub(crate) fn is_martian(src: Ipv4Addr, shared: &Shared) -> bool {
    src == shared.config.address
        || src.is_multicast()
        || src.is_broadcast()
        || src.is_unspecified()
        || src.is_loopback()
}

#[inline(always)]
fn parse_tcp(
    mbuf: &mut Mbuf,
    bytes: Range<usize>,
    (src, is_marked): (Ipv4Addr, bool),
    here: GroupSet,
    verified: bool,
    shared: &Shared,
) -> Result<Parsed, WireError> {
    let (at, len) = (bytes.start, bytes.len());
    let tcp = TcpView::parse(&mbuf.bytes()[bytes])?;
    if !verified && !tcp.verify_checksum(src, shared.config.address) {
        return Err(WireError::Checksum);
    }
    let flow = FlowKey::new(Endpoint::new(src, tcp.src_port()), tcp.dst_port());
    let hash = shared.hash_of(flow);
    let group = Shared::group_of(hash);
    if !here.has(group) {
        return Ok(Parsed::Elsewhere(Away { home: shared.home_of(group), group }));
    }
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
    let header_len = tcp.header_len();
    let segment = Segment {
        hash,
        flow,
        seq: tcp.seq(),
        ack: tcp.ack(),
        flags,
        window: tcp.window(),
        payload_len: (len - header_len) as u32,
        is_marked,
        timestamp,
        syn,
        sack_blocks,
    };
    // Data on a SYN is not kept (RFC 9293 §3.10.7.2 allows to), and comes again after it.
    let payload_len = if flags.contains(TcpFlags::SYN) { 0 } else { len - header_len };
    mbuf.advance(at + header_len);
    mbuf.truncate(payload_len);
    Ok(Parsed::Tcp { segment })
}

/// Cuts a frame to its IP packet's first bytes, as an ICMP error quotes them: the header and eight
/// bytes (RFC 792).
pub(crate) fn quotation(frame: &[u8]) -> &[u8] {
    let end = frame.len().min(LINK_AND_IP + 40 + 8);
    frame.get(EthernetRepr::HEADER_LEN..end).unwrap_or(&[])
}
