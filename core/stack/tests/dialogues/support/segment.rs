//! Frames in and out: built with `wire`, and decoded with every checksum verified.

use wire::ipv4::ECN_CE;
use wire::{
    ArpRepr, Endpoint, EtherType, EthernetRepr, EthernetView, IcmpRepr, IcmpView, Ipv4Addr,
    Ipv4Repr, Ipv4View, MacAddr, Protocol, SeqNumber, Sum, TcpFlags, TcpOptions, TcpRepr, TcpView,
    Timestamp, UdpRepr, UdpView,
};

use super::{PEER_MAC, STACK_IP, STACK_MAC, pattern};

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
        let ip = Ipv4Repr::new(src, dst, Protocol::TCP, bytes.len());
        packet_frame(Ipv4Repr { dscp_ecn: self.ecn, ..ip }, &bytes)
    }
}

/// An Ethernet frame to the stack.
pub fn ethernet_frame(dst: MacAddr, ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; EthernetRepr::HEADER_LEN];
    EthernetRepr { dst, src: PEER_MAC, ethertype }.emit(&mut frame);
    frame.extend_from_slice(payload);
    frame
}

/// An IPv4 packet in a frame to the stack.
pub fn ip_frame(src: Ipv4Addr, dst: Ipv4Addr, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    packet_frame(Ipv4Repr::new(src, dst, protocol, payload.len()), payload)
}

fn packet_frame(repr: Ipv4Repr, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; Ipv4Repr::HEADER_LEN];
    Ipv4Repr { ident: 7, ..repr }.emit(&mut packet);
    packet.extend_from_slice(payload);
    ethernet_frame(STACK_MAC, EtherType::IPV4, &packet)
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
pub fn icmp_frame(src: Ipv4Addr, repr: IcmpRepr, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; IcmpRepr::HEADER_LEN];
    repr.emit(&mut bytes, Sum::of(data));
    bytes.extend_from_slice(data);
    ip_frame(src, STACK_IP, Protocol::ICMP, &bytes)
}

/// A frame that the stack sent.
#[derive(Clone, Debug)]
pub enum Out {
    Tcp(Seg),
    Arp { to: MacAddr, arp: ArpRepr },
    Icmp { dst: Ipv4Addr, repr: IcmpRepr, data: Vec<u8> },
    Udp { src_port: u16, dst: Endpoint, data: Vec<u8> },
}

/// Takes a frame of the stack apart. Whatever no honest stack sends is a panic.
pub fn decode(frame: &[u8], mtu: usize) -> Out {
    let link = EthernetView::parse(frame).expect("an Ethernet frame");
    assert_eq!(link.src(), STACK_MAC);
    if link.ethertype() == EtherType::ARP {
        let arp = ArpRepr::parse(link.payload()).expect("an ARP packet");
        assert_eq!((arp.sender_mac, arp.sender_ip), (STACK_MAC, STACK_IP));
        return Out::Arp { to: link.dst(), arp };
    }
    assert_eq!(link.ethertype(), EtherType::IPV4);
    // Neighbours may lie about their address, but nobody says this one.
    assert_ne!(link.dst(), MacAddr([0; 6]), "sent without a link address");
    let ip = Ipv4View::parse(link.payload()).expect("an IPv4 packet");
    assert!(ip.verify_checksum(), "IPv4 checksum");
    assert_eq!(ip.src(), STACK_IP);
    assert_eq!(ip.total_len(), link.payload().len(), "nothing behind the packet");
    assert!(ip.total_len() <= mtu, "a packet of {} bytes", ip.total_len());
    assert!(!ip.is_fragment() && ip.dont_fragment() && ip.ttl() > 0);
    let dst = ip.dst();
    match ip.protocol() {
        Protocol::TCP => {
            let tcp = TcpView::parse(ip.payload()).expect("a TCP segment");
            assert!(tcp.verify_checksum(STACK_IP, dst), "TCP checksum");
            let options = tcp.options();
            assert!(!options.malformed);
            let is_syn = tcp.flags().contains(TcpFlags::SYN);
            assert!(is_syn || (options.mss.is_none() && options.window_scale.is_none()));
            Out::Tcp(Seg {
                src: Endpoint::new(STACK_IP, tcp.src_port()),
                dst: Endpoint::new(dst, tcp.dst_port()),
                seq: tcp.seq(),
                ack: tcp.ack(),
                flags: tcp.flags(),
                window: tcp.window(),
                options: tcp.options(),
                payload: tcp.payload().to_vec(),
                stream_offset: 0,
                ttl: ip.ttl(),
                dscp: ip.dscp(),
                ecn: ip.ecn(),
            })
        }
        Protocol::UDP => {
            let udp = UdpView::parse(ip.payload()).expect("a datagram");
            assert!(udp.checksum() != 0 && udp.verify_checksum(STACK_IP, dst), "UDP checksum");
            let dst = Endpoint::new(dst, udp.dst_port());
            Out::Udp { src_port: udp.src_port(), dst, data: udp.payload().to_vec() }
        }
        Protocol::ICMP => {
            let icmp = IcmpView::parse(ip.payload()).expect("an ICMP message");
            Out::Icmp { dst, repr: icmp.repr(), data: icmp.data().to_vec() }
        }
        Protocol(other) => panic!("the stack speaks no protocol {other}"),
    }
}
