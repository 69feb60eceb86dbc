//! Frames in and out: built with `wire`, and decoded with every checksum verified.

use wire::ipv4::ECN_CE;
use wire::{
    Address, ArpOperation, ArpRepr, Endpoint, EtherType, EthernetRepr, EthernetView, IcmpRepr,
    IcmpView, Icmpv6Repr, Icmpv6View, Ipv4Repr, Ipv4View, Ipv6Repr, Ipv6View, MacAddr, Protocol,
    SeqNumber, Sum, TcpFlags, TcpOptions, TcpRepr, TcpView, Timestamp, UdpRepr, UdpView,
    UnreachableCode,
};

use super::{MORE_IPS, PEER_MAC, STACK_IP, STACK_MAC, pattern};

/// A TCP segment with its ends.
#[derive(Clone, Debug)]
pub struct Seg {
    pub src: Endpoint,
    pub dst: Endpoint,
    pub seq: SeqNumber,
    pub ack: SeqNumber,
    pub flags: TcpFlags,
    pub window: u16,
    pub options: TcpOptions,
    pub payload: Vec<u8>,
    /// Where the payload begins in the stream that all ends send.
    pub stream_offset: usize,
    /// Of a segment of the stack, its packet's time to live and codepoint.
    pub ttl: u8,
    pub dscp: u8,
    /// The packet's codepoint (RFC 3168 §5).
    pub ecn: u8,
}

impl Seg {
    /// Was marked on the way.
    pub fn marked(mut self) -> Self {
        self.ecn = ECN_CE;
        self
    }

    /// Replaces the flags: letters of `S F R P U E W .` (the dot is ACK, E is ECE, W is CWR).
    pub fn flags(mut self, letters: &str) -> Self {
        self.flags = letters.chars().fold(TcpFlags::NONE, |flags, letter| {
            flags.union(match letter {
                'S' => TcpFlags::SYN,
                'F' => TcpFlags::FIN,
                'R' => TcpFlags::RST,
                'P' => TcpFlags::PSH,
                'U' => TcpFlags::URG,
                'E' => TcpFlags::ECE,
                'W' => TcpFlags::CWR,
                '.' => TcpFlags::ACK,
                other => panic!("no flag is called {other}"),
            })
        });
        self
    }

    /// Carries the next `len` bytes of the stream.
    pub fn len(mut self, len: usize) -> Self {
        self.payload = pattern(self.stream_offset, len);
        self
    }

    /// Announces this window (unscaled).
    pub fn win(mut self, window: u16) -> Self {
        self.window = window;
        self
    }

    /// Carries this timestamp.
    pub fn ts(mut self, value: u32, echo: u32) -> Self {
        self.options.timestamp = Some(Timestamp { value, echo });
        self
    }

    /// Carries exactly these options.
    pub fn options(mut self, options: TcpOptions) -> Self {
        self.options = options;
        self
    }

    /// The segment as a frame to the stack.
    pub fn frame(&self) -> Vec<u8> {
        let repr = TcpRepr {
            src_port: self.src.port,
            dst_port: self.dst.port,
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            options: self.options,
        };
        let mut bytes = vec![0; repr.header_len()];
        let (src, dst) = (self.src.addr, self.dst.addr);
        repr.emit(&mut bytes, src, dst, self.payload.len(), Sum::of(&self.payload));
        bytes.extend_from_slice(&self.payload);
        packet_frame((src, dst), Protocol::TCP, self.ecn, &bytes)
    }
}

/// An Ethernet frame to the stack.
pub fn ethernet_frame(dst: MacAddr, ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; EthernetRepr::HEADER_LEN];
    EthernetRepr { dst, src: PEER_MAC, ethertype }.emit(&mut frame);
    frame.extend_from_slice(payload);
    frame
}

/// An IP packet in a frame to the stack.
pub fn ip_frame(src: Address, dst: Address, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    packet_frame((src, dst), protocol, 0, payload)
}

fn packet_frame(
    (src, dst): (Address, Address),
    protocol: Protocol,
    ecn: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut packet = vec![0; if src.is_ipv4() && dst.is_ipv4() { 20 } else { 40 }];
    let ethertype = match (src.v4(), dst.v4()) {
        (Some(src), Some(dst)) => {
            let repr = Ipv4Repr::new(src, dst, protocol, payload.len());
            Ipv4Repr { ident: 7, dscp_ecn: ecn, ..repr }.emit(&mut packet);
            EtherType::IPV4
        }
        _ => {
            let [src, dst] = [src, dst].map(|end| end.octets().into());
            let repr = Ipv6Repr::new(src, dst, protocol, payload.len());
            Ipv6Repr { dscp_ecn: ecn, ..repr }.emit(&mut packet);
            EtherType::IPV6
        }
    };
    packet.extend_from_slice(payload);
    ethernet_frame(STACK_MAC, ethertype, &packet)
}

/// A datagram in a frame to the stack.
pub fn udp_frame(src: Endpoint, port: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; UdpRepr::HEADER_LEN];
    let repr = UdpRepr { src_port: src.port, dst_port: port, payload_len: data.len() };
    repr.emit(&mut bytes, src.addr, STACK_IP, Sum::of(data));
    bytes.extend_from_slice(data);
    ip_frame(src.addr, STACK_IP, Protocol::UDP, &bytes)
}

/// An ICMP message in a frame to the stack.
#[allow(dead_code, reason = "each suite sends messages of one version of IP")]
pub fn icmp_frame(src: Address, repr: IcmpRepr, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; IcmpRepr::HEADER_LEN];
    repr.emit(&mut bytes, Sum::of(data));
    bytes.extend_from_slice(data);
    ip_frame(src, STACK_IP, Protocol::ICMP, &bytes)
}

/// An ICMPv6 message in a frame to the stack, from a neighbour: with the hop limit that no router passes on.
pub fn icmpv6_frame(src: Address, dst: Address, repr: &Icmpv6Repr, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; repr.header_len()];
    let [from, to] = [src, dst].map(|end| end.octets().into());
    repr.emit(&mut bytes, from, to, (Sum::of(data), data.len()));
    bytes.extend_from_slice(data);
    let mut packet = vec![0; Ipv6Repr::HEADER_LEN];
    let ip = Ipv6Repr::new(from, to, Protocol::ICMPV6, bytes.len());
    Ipv6Repr { hop_limit: 255, ..ip }.emit(&mut packet);
    packet.extend(bytes);
    ethernet_frame(STACK_MAC, EtherType::IPV6, &packet)
}

/// An echo request in a frame to the stack.
pub fn ping_frame(src: Address, data: &[u8]) -> Vec<u8> {
    let (ident, seq) = (1, 2);
    match src.is_ipv4() {
        true => icmp_frame(src, IcmpRepr::EchoRequest { ident, seq }, data),
        false => icmpv6_frame(src, STACK_IP, &Icmpv6Repr::EchoRequest { ident, seq }, data),
    }
}

/// A router's message that a packet of the stack, which begins with `quoted`, was too big for the next hop.
pub fn too_big_frame(router: Address, mtu: u16, quoted: &[u8]) -> Vec<u8> {
    if !router.is_ipv4() {
        let message = Icmpv6Repr::PacketTooBig { mtu: mtu.into() };
        return icmpv6_frame(router, STACK_IP, &message, quoted);
    }
    let code = UnreachableCode::FRAGMENTATION_NEEDED;
    icmp_frame(router, IcmpRepr::DestUnreachable { code, next_hop_mtu: mtu }, quoted)
}

/// A frame that the stack sent.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "each suite looks at messages of one version of IP")]
pub enum Out {
    Tcp(Seg),
    Arp { to: MacAddr, arp: ArpRepr },
    Icmp { dst: Address, repr: IcmpRepr, data: Vec<u8> },
    Icmpv6 { to: MacAddr, dst: Address, repr: Icmpv6Repr, data: Vec<u8> },
    Udp { src: Endpoint, dst: Endpoint, data: Vec<u8> },
}

/// Takes a frame of the stack apart. Whatever no honest stack sends is a panic.
pub fn decode(frame: &[u8], mtu: usize) -> Out {
    let link = EthernetView::parse(frame).expect("an Ethernet frame");
    assert_eq!(link.src(), STACK_MAC);
    if link.ethertype() == EtherType::ARP {
        let arp = ArpRepr::parse(link.payload()).expect("an ARP packet");
        assert!(arp.sender_mac == STACK_MAC && is_own(arp.sender_ip.into()));
        return Out::Arp { to: link.dst(), arp };
    }
    // Neighbours may lie about their address, but nobody says this one.
    assert_ne!(link.dst(), MacAddr([0; 6]), "sent without a link address");
    let packet = Packet::parse(link.ethertype(), link.payload());
    assert!(is_own(packet.src), "sent from {}", packet.src);
    assert_eq!(packet.len, link.payload().len(), "nothing behind the packet");
    assert!(packet.len <= mtu, "a packet of {} bytes", packet.len);
    assert!(packet.ttl > 0);
    let Packet { src, dst, payload, .. } = packet;
    match packet.protocol {
        Protocol::TCP => Out::Tcp(segment(&packet)),
        Protocol::UDP => {
            let udp = UdpView::parse(payload).expect("a datagram");
            assert!(udp.checksum() != 0 && udp.verify_checksum(src, dst), "UDP checksum");
            let (src, dst) =
                (Endpoint::new(src, udp.src_port()), Endpoint::new(dst, udp.dst_port()));
            Out::Udp { src, dst, data: udp.payload().to_vec() }
        }
        Protocol::ICMP => {
            let icmp = IcmpView::parse(payload).expect("an ICMP message");
            Out::Icmp { dst, repr: icmp.repr(), data: icmp.data().to_vec() }
        }
        Protocol::ICMPV6 => {
            let [from, to] = [src, dst].map(|end| end.octets().into());
            let icmp = Icmpv6View::parse(payload, from, to).expect("an ICMPv6 message");
            let (repr, data) = (icmp.repr(), icmp.data().to_vec());
            Out::Icmpv6 { to: link.dst(), dst, repr, data }
        }
        Protocol(other) => panic!("the stack speaks no protocol {other}"),
    }
}

fn is_own(address: Address) -> bool {
    address == STACK_IP || MORE_IPS.contains(&address)
}

/// What an IP header says.
struct Packet<'a> {
    src: Address,
    dst: Address,
    protocol: Protocol,
    ttl: u8,
    dscp: u8,
    ecn: u8,
    len: usize,
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    fn parse(ethertype: EtherType, bytes: &'a [u8]) -> Self {
        if ethertype == EtherType::IPV6 {
            let ip = Ipv6View::parse(bytes).expect("an IPv6 packet");
            assert_eq!((ip.fragment(), ip.header_len()), (None, Ipv6Repr::HEADER_LEN));
            return Self {
                src: ip.src().into(),
                dst: ip.dst().into(),
                protocol: ip.protocol(),
                ttl: ip.hop_limit(),
                dscp: ip.dscp(),
                ecn: ip.ecn(),
                len: ip.total_len(),
                payload: ip.payload(),
            };
        }
        assert_eq!(ethertype, EtherType::IPV4);
        let ip = Ipv4View::parse(bytes).expect("an IPv4 packet");
        assert!(ip.verify_checksum(), "IPv4 checksum");
        assert!(!ip.is_fragment() && ip.dont_fragment());
        Self {
            src: ip.src().into(),
            dst: ip.dst().into(),
            protocol: ip.protocol(),
            ttl: ip.ttl(),
            dscp: ip.dscp(),
            ecn: ip.ecn(),
            len: ip.total_len(),
            payload: ip.payload(),
        }
    }
}

fn segment(packet: &Packet<'_>) -> Seg {
    let tcp = TcpView::parse(packet.payload).expect("a TCP segment");
    assert!(tcp.verify_checksum(packet.src, packet.dst), "TCP checksum");
    let options = tcp.options();
    assert!(!options.malformed);
    let is_syn = tcp.flags().contains(TcpFlags::SYN);
    assert!(is_syn || (options.mss.is_none() && options.window_scale.is_none()));
    Seg {
        src: Endpoint::new(packet.src, tcp.src_port()),
        dst: Endpoint::new(packet.dst, tcp.dst_port()),
        seq: tcp.seq(),
        ack: tcp.ack(),
        flags: tcp.flags(),
        window: tcp.window(),
        options: tcp.options(),
        payload: tcp.payload().to_vec(),
        stream_offset: 0,
        ttl: packet.ttl,
        dscp: packet.dscp,
        ecn: packet.ecn,
    }
}

impl Out {
    /// The host whose link address this asks for.
    pub fn asks_for(&self) -> Option<Address> {
        match *self {
            Self::Arp { arp, .. } if arp.operation == ArpOperation::Request => {
                Some(arp.target_ip.into())
            }
            Self::Icmpv6 { repr: Icmpv6Repr::NeighborSolicitation { target, .. }, .. } => {
                Some(target.into())
            }
            _ => None,
        }
    }
}
