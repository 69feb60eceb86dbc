//! Hand-written packets: these bytes say this, and this is written as these bytes.

use wire::ipv4::{ECN_ECT_0, ECN_NOT_ECT};
use wire::{
    Address, ArpOperation, ArpRepr, Endpoint, EtherType, EthernetRepr, EthernetView, FlowKey,
    IcmpRepr, IcmpView, Ipv4Addr, Ipv4Repr, Ipv4View, MacAddr, Prefix, Protocol, QuotedTcp,
    SackBlocks, SeqNumber, Sum, TcpFlags, TcpOptions, TcpRepr, TcpView, TimeExceededCode,
    Timestamp, UdpRepr, UdpView, UnreachableCode, WireError,
};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// `get k` to a key-value service, as a Linux client sends it on an established connection.
const REQUEST: [u8; 73] = [
    0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x08, 0x00, // Ethernet
    0x45, 0x02, 0x00, 0x3b, 0x00, 0x00, 0x40, 0x00, 0x40, 0x06, 0x26, 0xb9, // IPv4, ECT(0)
    10, 0, 0, 1, 10, 0, 0, 2, //
    0xc8, 0x22, 0x18, 0xeb, 0x01, 0x02, 0x03, 0x05, 0x0a, 0x0b, 0x0c, 0x0d, // TCP
    0x80, 0x18, 0x01, 0xf6, 0xc0, 0x71, 0x00, 0x00, //
    0x01, 0x01, 0x08, 0x0a, 0x00, 0x0f, 0x42, 0x41, 0x00, 0x00, 0x12, 0x34, // timestamp
    b'g', b'e', b't', b' ', b'k', b'\r', b'\n',
];

/// The options of a Linux client's SYN, in this crate's order.
const SYN: [u8; 40] = [
    0xc8, 0x22, 0x18, 0xeb, 0x01, 0x02, 0x03, 0x04, 0x00, 0x00, 0x00, 0x00, //
    0xa0, 0x02, 0xfa, 0xf0, 0x11, 0xaa, 0x00, 0x00, //
    0x02, 0x04, 0x05, 0xb4, // MSS 1460
    0x04, 0x02, 0x08, 0x0a, 0x00, 0x0f, 0x42, 0x40, 0x00, 0x00, 0x00, 0x00, // SACK, timestamp
    0x01, 0x03, 0x03, 0x07, // window scale 7
];

fn request_repr() -> (EthernetRepr, Ipv4Repr, TcpRepr) {
    let ethernet = EthernetRepr {
        dst: MacAddr([2, 0, 0, 0, 0, 2]),
        src: MacAddr([2, 0, 0, 0, 0, 1]),
        ethertype: EtherType::IPV4,
    };
    let ip = Ipv4Repr {
        src: CLIENT,
        dst: SERVER,
        protocol: Protocol::TCP,
        ttl: 64,
        ident: 0,
        dscp_ecn: ECN_ECT_0,
        dont_fragment: true,
        payload_len: 39,
    };
    let tcp = TcpRepr {
        src_port: 51_234,
        dst_port: 6379,
        seq: SeqNumber(0x0102_0305),
        ack: SeqNumber(0x0a0b_0c0d),
        flags: TcpFlags::PSH | TcpFlags::ACK,
        window: 502,
        options: TcpOptions::with_timestamp(Timestamp { value: 1_000_001, echo: 0x1234 }),
    };
    (ethernet, ip, tcp)
}

#[test]
fn reads_a_request() {
    let (ethernet_repr, ip_repr, tcp_repr) = request_repr();
    let ethernet = EthernetView::parse(&REQUEST).unwrap();
    assert_eq!(EthernetRepr::from_view(&ethernet), ethernet_repr);
    let ip = Ipv4View::parse(ethernet.payload()).unwrap();
    assert!(ip.verify_checksum());
    assert_eq!(Ipv4Repr::from_view(&ip), ip_repr);
    assert_eq!((ip.header_len(), ip.total_len(), ip.ecn(), ip.dscp()), (20, 59, ECN_ECT_0, 0));
    let tcp = TcpView::parse(ip.payload()).unwrap();
    assert!(tcp.verify_checksum(ip.src(), ip.dst()));
    assert!(!tcp.verify_checksum(ip.src(), CLIENT));
    assert_eq!(TcpRepr::from_view(&tcp), tcp_repr);
    assert_eq!(tcp.aligned_timestamp(), tcp_repr.options.timestamp);
    assert_eq!((tcp.payload(), tcp.sequence_len()), (&b"get k\r\n"[..], 7));
}

#[test]
fn writes_a_request() {
    let (ethernet, ip, tcp) = request_repr();
    let mut frame = [0xee; 73];
    let payload = b"get k\r\n";
    frame[66..].copy_from_slice(payload);
    ethernet.emit(&mut frame);
    ip.emit(&mut frame[14..]);
    tcp.emit(&mut frame[34..], CLIENT, SERVER, payload.len(), Sum::of(payload));
    assert_eq!(frame, REQUEST);
}

#[test]
fn reads_and_writes_a_syn() {
    let repr = TcpRepr {
        src_port: 51_234,
        dst_port: 6379,
        seq: SeqNumber(0x0102_0304),
        ack: SeqNumber(0),
        flags: TcpFlags::SYN,
        window: 64_240,
        options: TcpOptions {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamp: Some(Timestamp { value: 1_000_000, echo: 0 }),
            ..TcpOptions::NONE
        },
    };
    let view = TcpView::parse(&SYN).unwrap();
    assert!(view.verify_checksum(CLIENT, SERVER));
    assert_eq!(TcpRepr::from_view(&view), repr);
    assert_eq!((view.payload(), view.sequence_len()), (&[][..], 1));
    let mut segment = [0xee; 40];
    repr.emit(&mut segment, CLIENT, SERVER, 0, Sum::ZERO);
    assert_eq!(segment, SYN);
}

#[test]
fn rejects_tcp_lengths() {
    assert_eq!(TcpView::parse(&SYN[..19]).err(), Some(WireError::Truncated));
    assert_eq!(TcpView::parse(&SYN[..39]).err(), Some(WireError::Truncated));
    let mut segment = SYN;
    segment[12] = 0x40;
    assert_eq!(TcpView::parse(&segment).err(), Some(WireError::Malformed));
}

#[test]
fn reads_options_in_any_layout() {
    let parse = TcpOptions::parse;
    // Unknown options are skipped, padding after the end of the list is not looked at.
    let options = parse(&[253, 4, 0xf9, 0x89, 1, 4, 2, 34, 2, 2, 4, 5, 0xb4, 0, 0xff, 0xff]);
    assert_eq!(options, TcpOptions { mss: Some(1460), sack_permitted: true, ..TcpOptions::NONE });
    // A scale above 14 means 14 (RFC 7323 §2.3).
    assert_eq!(parse(&[3, 3, 15]).window_scale, Some(14));
    assert_eq!(parse(&[3, 3, 14]).window_scale, Some(14));
    // The last of equal options counts.
    assert_eq!(parse(&[2, 4, 1, 1, 2, 4, 2, 2]).mss, Some(0x202));
    // Four blocks, and the order that they came in.
    let sack: Vec<u8> =
        [1, 1, 5, 34].into_iter().chain((0..8u8).flat_map(|i| [0, 0, 0, i])).collect();
    let expected = [(0, 1), (2, 3), (4, 5), (6, 7)].map(|(l, r)| (SeqNumber(l), SeqNumber(r)));
    assert_eq!(*parse(&sack).sack_blocks, expected);
    assert!(parse(&[]).is_empty() && parse(&[1, 1, 1]).is_empty());
}

#[test]
fn bad_option_lengths_end_the_reading() {
    let before = [2, 4, 5, 0xb4];
    let bad: [&[u8]; 9] = [
        &[8],                         // no length
        &[99, 0],                     // would not move on
        &[99, 1],                     // does not count itself
        &[99, 20, 0],                 // beyond the end
        &[2, 3, 5],                   // MSS takes 4
        &[4, 3, 0],                   // SACK permitted takes 2
        &[5, 2],                      // no block
        &[5, 9, 0, 0, 0, 0, 0, 0, 0], // not a whole block
        &[8, 6, 0, 0, 0, 0],          // timestamp takes 10
    ];
    for option in bad {
        let bytes = [&before, option, &[3, 3, 7]].concat();
        let expected = TcpOptions { mss: Some(1460), malformed: true, ..TcpOptions::NONE };
        assert_eq!(TcpOptions::parse(&bytes), expected, "{option:?}");
    }
}

#[test]
fn sack_blocks_give_way() {
    let block = (SeqNumber(u32::MAX), SeqNumber(5));
    let mut sack_blocks: SackBlocks = [block; 6].into_iter().collect();
    assert_eq!(sack_blocks.len(), 4);
    assert!(!sack_blocks.push(block.0, block.1));
    let alone = TcpOptions { sack_blocks, ..TcpOptions::NONE };
    assert_eq!(alone.len(), 36);
    let beside_timestamp = TcpOptions { timestamp: Some(Timestamp::default()), ..alone };
    assert_eq!(beside_timestamp.len(), 40);
    let mut bytes = [0; 40];
    beside_timestamp.emit(&mut bytes);
    assert_eq!(*TcpOptions::parse(&bytes).sack_blocks, [block; 3]);
    // Equal means the same blocks, whatever lies in the unused places.
    let empty = TcpOptions::NONE.sack_blocks;
    assert_ne!(sack_blocks, empty);
    assert_eq!(SackBlocks::default(), empty);
}

#[test]
fn sequence_numbers_wrap() {
    let last = SeqNumber(u32::MAX);
    let next = last + 1;
    assert_eq!(next, SeqNumber(0));
    assert!(last.before(next) && last.before_eq(next) && next.after(last) && next.after_eq(last));
    assert!(!next.before(last) && !last.after(next) && !last.before(last) && !last.after(last));
    assert!(last.before_eq(last) && last.after_eq(last));
    assert_eq!((next - last, last - next, next - 1), (1, -1, last));
    assert_eq!((last.max(next), last.min(next)), (next, last));
    let mut seq = last;
    seq += 3;
    assert_eq!(seq, SeqNumber(2));
}

#[test]
fn flags_have_names() {
    let flags = TcpFlags::SYN | TcpFlags::ACK;
    assert!(flags.contains(TcpFlags::SYN) && !flags.contains(TcpFlags::SYN | TcpFlags::FIN));
    assert!(flags.intersects(TcpFlags::SYN | TcpFlags::FIN) && !flags.intersects(TcpFlags::RST));
    assert_eq!(flags.difference(TcpFlags::ACK), TcpFlags::SYN);
    assert_eq!((flags.to_string(), TcpFlags::NONE.to_string()), ("SYN|ACK".into(), "-".into()));
    assert_eq!(format!("{:?}", TcpFlags(0xff)), "FIN|SYN|RST|PSH|ACK|URG|ECE|CWR");
}

#[test]
fn ipv4_options_padding_and_fragments() {
    // 24 bytes of header with a router alert, 3 bytes of payload, 2 of link padding.
    let mut packet = vec![0x46, 0, 0, 27, 0x12, 0x34, 0x20, 0x02, 1, 17, 0, 0];
    packet.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x94, 4, 0, 0, b'a', b'b', b'c', 0, 0]);
    let checksum = Sum::of(&packet[..24]).finish().to_be_bytes();
    packet[10..12].copy_from_slice(&checksum);
    let view = Ipv4View::parse(&packet).unwrap();
    assert!(view.verify_checksum());
    assert_eq!((view.options(), view.payload()), (&[0x94, 4, 0, 0][..], &b"abc"[..]));
    assert_eq!((view.header_len(), view.total_len(), view.ttl()), (24, 27, 1));
    assert_eq!((view.ident(), view.fragment_offset(), view.ecn()), (0x1234, 16, ECN_NOT_ECT));
    assert!(view.is_fragment() && view.more_fragments() && !view.dont_fragment());
    packet[20] ^= 1;
    assert!(!Ipv4View::parse(&packet).unwrap().verify_checksum(), "options are covered");
}

/// What was cut is the packet again, once it is put together.
#[test]
fn fragments_are_parts_of_their_packet() {
    let mut whole = vec![0; 20 + 100];
    let repr = Ipv4Repr::new(CLIENT, SERVER, Protocol::UDP, 100);
    Ipv4Repr { ident: 7, ..repr }.emit(&mut whole);
    (0..100).for_each(|at| whole[20 + at] = at as u8);
    let mut out = [0; 200];
    for (bytes, more) in [(0..48, true), (48..100, false)] {
        let len = wire::ip::emit_fragment(&whole, 0x1_0009, bytes.clone(), more, &mut out);
        let view = Ipv4View::parse(&out[..len]).unwrap();
        assert!(view.verify_checksum() && view.is_fragment() && !view.dont_fragment());
        assert_eq!((view.total_len(), view.ident()), (len, 9));
        assert_eq!((view.fragment_offset(), view.more_fragments()), (bytes.start as u16, more));
        assert_eq!(view.payload(), &whole[20..][bytes]);
    }
    out[20..120].copy_from_slice(&whole[20..]);
    wire::ip::reassemble(&mut out[..120], 20);
    let view = Ipv4View::parse(&out[..120]).unwrap();
    assert_eq!(Ipv4Repr::from_view(&view), Ipv4Repr { ident: 9, dont_fragment: false, ..repr });
}

/// RFC 791 §3.2.
#[test]
fn the_header_of_a_first_fragment_becomes_that_of_the_datagram() {
    // 24 bytes of header, "don't fragment" and "more fragments" set.
    let mut packet = vec![0x46, 0b10, 0, 32, 0x12, 0x34, 0x60, 0, 1, 17, 0, 0];
    packet.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x94, 4, 0, 0]);
    packet.extend([7; 300]);
    wire::ipv4::reassemble(&mut packet);
    let view = Ipv4View::parse(&packet).unwrap();
    assert!(view.verify_checksum() && !view.is_fragment() && view.dont_fragment());
    assert_eq!((view.total_len(), view.ident(), view.ecn()), (324, 0x1234, ECN_ECT_0));
    assert_eq!((view.options(), view.payload()), (&[0x94, 4, 0, 0][..], &[7; 300][..]));
    wire::ipv4::reassemble(&mut packet[..19]);
    wire::ipv4::reassemble(&mut packet[..21]);
}

#[test]
fn rejects_ipv4_lengths() {
    let good = &REQUEST[14..];
    let with = |offset: usize, value: u8| {
        let mut packet = good.to_vec();
        packet[offset] = value;
        Ipv4View::parse(&packet).err()
    };
    assert_eq!(Ipv4View::parse(good).err(), None);
    assert_eq!(Ipv4View::parse(&good[..19]).err(), Some(WireError::Truncated));
    assert_eq!(Ipv4View::parse(&good[..58]).err(), Some(WireError::Truncated));
    assert_eq!(with(0, 0x65), Some(WireError::Malformed), "version 6");
    assert_eq!(with(0, 0x44), Some(WireError::Malformed), "header of 16 bytes");
    assert_eq!(with(3, 19), Some(WireError::Malformed), "total length inside the header");
    assert_eq!(with(3, 60), Some(WireError::Truncated), "total length beyond the buffer");
    let mut cut = good[..22].to_vec();
    (cut[0], cut[3]) = (0x46, 24);
    assert_eq!(Ipv4View::parse(&cut).err(), Some(WireError::Truncated), "options cut off");
}

#[test]
fn udp_with_and_without_checksum() {
    let mut datagram = [0x30, 0x39, 0x2b, 0xcb, 0, 11, 0xcb, 0x6e, b'a', b'b', b'c', 0xff];
    let view = UdpView::parse(&datagram).unwrap();
    assert_eq!((view.src_port(), view.dst_port(), view.payload()), (12_345, 11_211, &b"abc"[..]));
    assert!(view.verify_checksum(CLIENT, SERVER) && !view.verify_checksum(CLIENT, CLIENT));
    datagram[6..8].fill(0);
    assert!(UdpView::parse(&datagram).unwrap().verify_checksum(CLIENT, CLIENT), "none was made");
    let mut out = [0; 8];
    let repr = UdpRepr { src_port: 12_345, dst_port: 11_211, payload_len: 3 };
    repr.emit(&mut out, CLIENT, SERVER, Sum::of(b"abc"));
    assert_eq!(out, [0x30, 0x39, 0x2b, 0xcb, 0, 11, 0xcb, 0x6e]);

    assert_eq!(UdpView::parse(&datagram[..7]).err(), Some(WireError::Truncated));
    assert_eq!(UdpView::parse(&datagram[..10]).err(), Some(WireError::Truncated));
    datagram[5] = 7;
    assert_eq!(UdpView::parse(&datagram).err(), Some(WireError::Malformed));
}

#[test]
fn udp_checksum_zero_is_sent_as_ones() {
    // A payload that cancels the rest of the sum out.
    let repr = UdpRepr { src_port: 1, dst_port: 2, payload_len: 2 };
    let mut header = [0; 8];
    repr.emit(&mut header, CLIENT, SERVER, Sum::ZERO);
    let payload = [header[6], header[7]];
    let mut datagram = [&header[..], &payload].concat();
    repr.emit(&mut datagram, CLIENT, SERVER, Sum::of(&payload));
    let view = UdpView::parse(&datagram).unwrap();
    assert_eq!(view.checksum(), 0xffff);
    assert!(view.verify_checksum(CLIENT, SERVER));
}

#[test]
fn icmp_echo_and_errors() {
    let mut echo = [8, 0, 0xe5, 0xf9, 0x12, 0x34, 0, 1, b'p', b'i', b'n', b'g', b'!'];
    let view = IcmpView::parse(&echo).unwrap();
    assert_eq!(view.repr(), IcmpRepr::EchoRequest { ident: 0x1234, seq: 1 });
    assert_eq!(view.data(), b"ping!");
    assert!(!view.repr().is_error());
    echo[12] = b'?';
    assert_eq!(IcmpView::parse(&echo).err(), Some(WireError::Checksum));
    assert_eq!(IcmpView::parse(&echo[..7]).err(), Some(WireError::Truncated));
    assert_eq!(IcmpView::parse(&[0; 8]).err(), Some(WireError::Checksum));

    let too_big = [
        3, 4, 0x39, 0x29, 0, 0, 0x05, 0x78, // next hop carries 1400
        0x45, 0, 0, 60, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, // quoted IPv4
        0xc8, 0x22, 0x18, 0xeb, 1, 2, 3, 4, // and the first 8 bytes of its TCP header
    ];
    let view = IcmpView::parse(&too_big).unwrap();
    let code = UnreachableCode::FRAGMENTATION_NEEDED;
    assert_eq!(view.repr(), IcmpRepr::DestUnreachable { code, next_hop_mtu: 1400 });
    assert!(view.repr().is_error());
    assert_eq!(view.data(), &too_big[8..]);

    let expired = IcmpRepr::TimeExceeded { code: TimeExceededCode::TTL_EXPIRED };
    let mut out = [0xee; 8];
    expired.emit(&mut out, Sum::ZERO);
    assert_eq!(out, [11, 0, 0xf4, 0xff, 0, 0, 0, 0]);
    let redirect = IcmpRepr::Other { kind: 5, code: 1, rest: 0x0a00_0003 };
    let timestamp = IcmpRepr::Other { kind: 13, code: 0, rest: 0 };
    assert!(redirect.is_error() && !timestamp.is_error());
}

/// The begin of a TCP segment, with IP options and without, and nothing else.
#[test]
fn icmp_errors_quote_segments() {
    let mut quoted = vec![0x45, 0, 5, 0xdc, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    quoted.extend([0, 80, 0x12, 0x34, 0xff, 0, 0, 1]);
    let expected = QuotedTcp {
        src: Endpoint::new(Ipv4Addr::new(10, 0, 0, 1), 80),
        dst: Endpoint::new(Ipv4Addr::new(10, 0, 0, 2), 0x1234),
        seq: SeqNumber(0xff00_0001),
    };
    assert_eq!(QuotedTcp::parse(&quoted), Some(expected));
    let mut optional = quoted.clone();
    optional[0] = 0x46;
    optional.splice(20..20, [1; 4]);
    assert_eq!(QuotedTcp::parse(&optional), Some(expected));
    for len in 0..quoted.len() {
        assert_eq!(QuotedTcp::parse(&quoted[..len]), None, "{len} bytes");
    }
    // Version 6, a short header, a later fragment, UDP.
    for (at, byte) in [(0, 0x65), (0, 0x44), (7, 1), (9, 17)] {
        let mut other = quoted.clone();
        other[at] = byte;
        assert_eq!(QuotedTcp::parse(&other), None, "{byte} at {at}");
    }
}

#[test]
fn icmp_codes_without_meaning() {
    let read = |header: [u8; 8]| {
        let mut message = header;
        let checksum = Sum::of(&message).finish().to_be_bytes();
        message[2..4].copy_from_slice(&checksum);
        IcmpView::parse(&message).unwrap().repr()
    };
    let other = |kind, code| IcmpRepr::Other { kind, code, rest: 0x1400_0578 };
    assert_eq!(read([12, 0, 0, 0, 20, 0, 5, 0x78]), IcmpRepr::ParameterProblem { pointer: 20 });
    assert_eq!(read([12, 1, 0, 0, 20, 0, 5, 0x78]), other(12, 1));
    assert_eq!(read([8, 1, 0, 0, 20, 0, 5, 0x78]), other(8, 1));
    assert_eq!(read([0, 1, 0, 0, 20, 0, 5, 0x78]), other(0, 1));
    // Only one code has a next hop; the bytes are unused with the others.
    let port = IcmpRepr::DestUnreachable { code: UnreachableCode::PORT, next_hop_mtu: 0 };
    assert_eq!(read([3, 3, 0, 0, 20, 0, 5, 0x78]), port);
}

#[test]
fn arp_request() {
    let bytes =
        [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
    let repr = ArpRepr {
        operation: ArpOperation::Request,
        sender_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        sender_ip: CLIENT,
        target_mac: MacAddr::default(),
        target_ip: SERVER,
    };
    assert_eq!(ArpRepr::parse(&bytes), Ok(repr));
    let mut out = [0xee; 28];
    repr.emit(&mut out);
    assert_eq!(out, bytes);
    // Hardware, protocol, both lengths, operation.
    for (offset, value) in [(1, 6), (2, 0x86), (4, 8), (5, 16), (7, 3)] {
        let mut other = bytes;
        other[offset] = value;
        assert_eq!(ArpRepr::parse(&other), Err(WireError::Unsupported), "byte {offset}");
    }
}

#[test]
fn addresses_as_text() {
    let mac = MacAddr([0x02, 0, 0xab, 0xcd, 0xef, 0x01]);
    assert_eq!(mac.to_string(), "02:00:ab:cd:ef:01");
    assert_eq!("02:00:AB:cd:ef:01".parse(), Ok(mac));
    for text in [
        "",
        "02:00:ab:cd:ef",
        "02:00:ab:cd:ef:01:02",
        "2:0:ab:cd:ef:1",
        "02:00:ab:cd:ef:+1",
        "02-00-ab-cd-ef-01",
    ] {
        let error = text.parse::<MacAddr>().unwrap_err();
        assert!(error.to_string().contains("02:00:00:00:00:01"), "{text}: {error}");
    }
    assert!(MacAddr::BROADCAST.is_broadcast() && MacAddr::BROADCAST.is_multicast());
    assert!(
        MacAddr([1, 0, 0x5e, 0, 0, 1]).is_multicast() && !mac.is_multicast() && !mac.is_broadcast()
    );

    let endpoint = Endpoint::new(CLIENT, 6379);
    assert_eq!(endpoint.to_string(), "10.0.0.1:6379");
    assert_eq!("10.0.0.1:6379".parse(), Ok(endpoint));
    for text in ["", "10.0.0.1", "10.0.0.1:65536", "10.0.0:1", "::1:80", "10.0.0.1:80 "] {
        let error = text.parse::<Endpoint>().unwrap_err();
        assert!(error.to_string().contains("10.0.0.1:6379"), "{text}: {error}");
    }
    assert!(endpoint < Endpoint::new(CLIENT, 6380) && endpoint < Endpoint::new(SERVER, 1));
    let v6: Endpoint = "[2001:db8::1]:6379".parse().unwrap();
    assert_eq!((v6.to_string().as_str(), v6.addr.v4()), ("[2001:db8::1]:6379", None));
    assert_eq!("[::ffff:10.0.0.1]:6379".parse(), Ok(endpoint), "a mapped address is the address");
    assert_eq!((size_of::<Endpoint>(), size_of::<FlowKey>()), (18, 8));
}

#[test]
fn networks_have_addresses_of_their_version() {
    let address = |text: &str| text.parse::<Address>().unwrap();
    for (network, bits, inside, outside) in [
        ("10.1.0.0", 16, "10.1.255.3", "10.2.0.0"),
        ("10.1.0.1", 32, "10.1.0.1", "10.1.0.0"),
        ("0.0.0.0", 0, "255.1.2.3", "::1"),
        ("2001:db8::", 32, "2001:db8:ffff::1", "2001:db9::"),
        ("2001:db8::1", 128, "2001:db8::1", "2001:db8::"),
        ("::", 0, "ff02::1", "10.0.0.1"),
        ("10.1.0.1", 99, "10.1.0.1", "10.1.0.0"),
    ] {
        let network = address(network);
        assert!(address(inside).is_in(network, bits) && !address(outside).is_in(network, bits));
    }
    for martian in ["224.0.0.1", "240.1.2.3", "255.255.255.255", "0.1.2.3", "127.1.2.3", "::"] {
        assert!(address(martian).is_martian(), "{martian}");
    }
    for martian in ["::1", "ff02::1"] {
        assert!(address(martian).is_martian(), "{martian}");
    }
    for (text, bits) in [("10.0.0.0/0", 0), ("10.0.0.1/32", 32), ("2001:db8::/128", 128)] {
        let prefix: Prefix = text.parse().unwrap();
        assert_eq!((prefix.to_string().as_str(), prefix.bits), (text, bits));
    }
    for text in ["10.0.0.0", "10.0.0.0/33", "::/129", "::/+1", "::/01", "::/", "/8", "::/256"] {
        assert!(text.parse::<Prefix>().is_err(), "{text}");
    }
    assert!(!address("10.0.0.1").is_martian() && !address("fe80::1").is_martian());
}

#[test]
#[should_panic(expected = "out of range")]
fn emit_needs_room() {
    request_repr().2.emit(&mut [0; 31], CLIENT, SERVER, 0, Sum::ZERO);
}
