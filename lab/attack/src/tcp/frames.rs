//! The addresses of the network under attack, and segments from any of them to any other.

use wire::{
    ArpOperation, ArpRepr, Endpoint, EtherType, EthernetRepr, EthernetView, Ipv4Addr, Ipv4Repr,
    Ipv4View, MacAddr, Protocol, SeqNumber, Sum, TcpFlags, TcpOptions, TcpRepr, TcpView,
};

/// The attacked service.
pub const SERVER: Endpoint = Endpoint::v4(Ipv4Addr::new(10, 8, 0, 1), 80);
/// Bits of the network part of the server's address: 65,536 addresses are near.
pub const PREFIX_BITS: u8 = 16;
/// The hosts of the honest clients: near, and behind the gateway.
pub const CLIENTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 8, 0, 2), Ipv4Addr::new(203, 0, 113, 2)];
/// A host whose one connection is attacked from outside.
pub const VICTIM: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 3);
/// The next hop towards all that is not near.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 4);
/// Link address of the server, of the hosts near it, and of the gateway, behind which the attackers are.
pub const SERVER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// See [`SERVER_MAC`].
pub const CLIENT_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// See [`SERVER_MAC`].
pub const VICTIM_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);
/// See [`SERVER_MAC`].
pub const GATEWAY_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 4]);

/// A TCP segment with its ends.
#[derive(Clone, Debug)]
pub struct Segment {
    pub src: Endpoint,
    pub dst: Endpoint,
    pub seq: SeqNumber,
    pub ack: SeqNumber,
    pub flags: TcpFlags,
    pub window: u16,
    pub options: TcpOptions,
    pub payload: Vec<u8>,
}

impl Segment {
    /// A SYN to the server with the options of a small host.
    pub fn syn(src: Endpoint, seq: u32, window: u16) -> Self {
        Self {
            src,
            dst: SERVER,
            seq: SeqNumber(seq),
            ack: SeqNumber(0),
            flags: TcpFlags::SYN,
            window,
            options: TcpOptions { mss: Some(1_460), ..TcpOptions::NONE },
            payload: Vec::new(),
        }
    }

    /// The segment as a frame from the gateway.
    pub fn frame(&self) -> Vec<u8> {
        let Self { src, dst, seq, ack, flags, window, options, ref payload } = *self;
        let tcp =
            TcpRepr { src_port: src.port, dst_port: dst.port, seq, ack, flags, window, options };
        let header = Ipv4Repr::HEADER_LEN + tcp.header_len();
        let mut packet = vec![0; header];
        let payload_len = tcp.header_len() + payload.len();
        Ipv4Repr::new(v4(src), v4(dst), Protocol::TCP, payload_len).emit(&mut packet);
        let sum = Sum::of(payload);
        tcp.emit(&mut packet[Ipv4Repr::HEADER_LEN..], src.addr, dst.addr, payload.len(), sum);
        packet.extend_from_slice(payload);
        let to = if v4(dst) == VICTIM { VICTIM_MAC } else { SERVER_MAC };
        ethernet(to, EtherType::IPV4, &packet)
    }

    /// The segment in a frame, if there is one.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let link = EthernetView::parse(frame).ok()?;
        if link.ethertype() != EtherType::IPV4 {
            return None;
        }
        let ip = Ipv4View::parse(link.payload()).ok()?;
        let tcp = TcpView::parse(ip.payload()).ok().filter(|_| ip.protocol() == Protocol::TCP)?;
        Some(Self {
            src: Endpoint::new(ip.src(), tcp.src_port()),
            dst: Endpoint::new(ip.dst(), tcp.dst_port()),
            seq: tcp.seq(),
            ack: tcp.ack(),
            flags: tcp.flags(),
            window: tcp.window(),
            options: tcp.options(),
            payload: tcp.payload().to_vec(),
        })
    }
}

fn v4(end: Endpoint) -> Ipv4Addr {
    end.addr.v4().unwrap_or(Ipv4Addr::UNSPECIFIED)
}

/// The address that an ARP request of the server asks for, and the answer that it is the gateway's link address.
pub fn arp_answer(frame: &[u8]) -> Option<(Ipv4Addr, Vec<u8>)> {
    let link = EthernetView::parse(frame).ok().filter(|link| link.src() == SERVER_MAC)?;
    let asked =
        ArpRepr::parse(link.payload()).ok().filter(|_| link.ethertype() == EtherType::ARP)?;
    if asked.operation != ArpOperation::Request {
        return None;
    }
    let answer = ArpRepr {
        operation: ArpOperation::Reply,
        sender_mac: GATEWAY_MAC,
        sender_ip: asked.target_ip,
        target_mac: asked.sender_mac,
        target_ip: asked.sender_ip,
    };
    let mut bytes = vec![0; ArpRepr::LEN];
    answer.emit(&mut bytes);
    Some((asked.target_ip, ethernet(SERVER_MAC, EtherType::ARP, &bytes)))
}

fn ethernet(dst: MacAddr, ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; EthernetRepr::HEADER_LEN];
    EthernetRepr { dst, src: GATEWAY_MAC, ethertype }.emit(&mut frame);
    frame.extend_from_slice(payload);
    frame
}
