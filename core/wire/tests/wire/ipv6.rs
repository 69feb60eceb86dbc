//! IPv6 packets by hand: what a header says, which extension headers a host accepts, and derived addresses.

use std::net::Ipv6Addr;

use wire::ipv4::{ECN_CE, ECN_ECT_1, ECN_NOT_ECT};
use wire::{
    Address, Fragment6, Ipv4Addr, Ipv4Repr, Ipv4View, Ipv6Repr, Ipv6View, MAX_EXTENSION_BYTES,
    MAX_EXTENSION_HEADERS, MacAddr, Protocol, Sum, UdpView, WireError, ip, ipv6, multicast_mac,
    pseudo_header_sum, solicited_node,
};

const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const SERVER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

const HOP_BY_HOP: u8 = 0;
const UDP: u8 = 17;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const NO_NEXT: u8 = 59;
const DESTINATION: u8 = 60;

/// A UDP datagram from port 12345 to 11211, expedited, with a flow label.
const REQUEST: [u8; 51] = [
    0x6b, 0x91, 0x23, 0x45, 0, 11, 17, 63, // DSCP 46, ECT(1), flow label 0x12345
    0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, //
    0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, //
    0x30, 0x39, 0x2b, 0xcb, 0, 11, 0x83, 0xfc, b'a', b'b', b'c',
];

fn request_repr() -> Ipv6Repr {
    Ipv6Repr {
        src: CLIENT,
        dst: SERVER,
        protocol: Protocol::UDP,
        hop_limit: 63,
        dscp_ecn: 0xb9,
        flow_label: 0x12345,
        payload_len: 11,
    }
}

/// A packet whose fixed header names `first` and whose other bytes are `body`.
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; Ipv6Repr::HEADER_LEN];
    Ipv6Repr::new(CLIENT, SERVER, Protocol(first), body.len()).emit(&mut packet);
    packet.extend(body);
    packet
}

/// Why a packet is refused; `None` when it is not.
fn refusal(first: u8, body: &[u8]) -> Option<WireError> {
    Ipv6View::parse(&packet(first, body)).err()
}

/// An options header of `units` times 8 bytes that names `next`: one long padding option.
fn padded(next: u8, units: u8) -> Vec<u8> {
    let mut header = vec![next, units - 1];
    let mut left = usize::from(units) * 8 - 2;
    while left > 0 {
        let data = left.saturating_sub(2).min(255);
        header.extend(if left == 1 { vec![0] } else { vec![1, data as u8] });
        header.extend(vec![0; data]);
        left = usize::from(units) * 8 - header.len();
    }
    header
}

#[test]
fn reads_and_writes_a_packet() {
    let mut frame = REQUEST.to_vec();
    frame.extend([0xee; 5]);
    let view = Ipv6View::parse(&frame).unwrap();
    assert_eq!(Ipv6Repr::from_view(&view), request_repr());
    assert_eq!((view.traffic_class(), view.dscp(), view.ecn()), (0xb9, 46, ECN_ECT_1));
    assert_eq!((view.header_len(), view.total_len(), view.fragment()), (40, 51, None));
    let udp = UdpView::parse(view.payload()).unwrap();
    assert_eq!(udp.payload(), b"abc", "link padding is dropped");
    let sum = pseudo_header_sum(view.src(), view.dst(), view.protocol(), 11);
    assert!(sum.add(Sum::of(view.payload())).is_valid());
    let mut out = [0xee; 41];
    request_repr().emit(&mut out);
    assert_eq!((&out[..40], out[40]), (&REQUEST[..40], 0xee));
    // Bits beyond the flow label do not reach the traffic class.
    Ipv6Repr { flow_label: 0xfff1_2345, ..request_repr() }.emit(&mut out);
    assert_eq!(out[..40], REQUEST[..40]);
    let own = Ipv6Repr::new(CLIENT, SERVER, Protocol::UDP, 11);
    assert_eq!((own.hop_limit, own.dscp_ecn, own.flow_label), (64, 0, 0));
}

#[test]
fn rejects_lengths_and_versions() {
    for len in 0..REQUEST.len() {
        let error = Ipv6View::parse(&REQUEST[..len]).err();
        assert_eq!(error, Some(WireError::Truncated), "{len} bytes");
    }
    for version in (0..16).filter(|version| *version != 6) {
        let mut other = REQUEST;
        other[0] = version << 4 | 0xb;
        assert_eq!(Ipv6View::parse(&other).err(), Some(WireError::Malformed), "{version}");
    }
}

#[test]
#[should_panic(expected = "out of range")]
fn emit_needs_room() {
    request_repr().emit(&mut [0; 39]);
}

/// Lengths that count every byte of a chain of each kind of header; a payload length that ends within one.
#[test]
fn chains_end_at_the_payload() {
    let chain = [
        padded(DESTINATION, 2),
        padded(ROUTING, 1),
        vec![FRAGMENT, 0, 4, 0, 0, 0, 0, 0],
        vec![DESTINATION, 0xff, 0, 0, 0, 0, 0, 7],
        padded(UDP, 3),
    ]
    .concat();
    let body = [&chain[..], b"payload"].concat();
    let bytes = packet(HOP_BY_HOP, &body);
    let view = Ipv6View::parse(&bytes).unwrap();
    assert_eq!((view.protocol(), view.payload()), (Protocol::UDP, &b"payload"[..]));
    assert_eq!((view.header_len(), view.total_len()), (40 + 64, bytes.len()));
    assert_eq!(view.fragment(), None);
    assert_eq!(Ipv6Repr::from_view(&view).payload_len, 7);
    for len in 1..chain.len() {
        assert_eq!(refusal(HOP_BY_HOP, &body[..len]), Some(WireError::Malformed), "{len} bytes");
    }
    assert_eq!(refusal(DESTINATION, &[]), Some(WireError::Malformed));
}

/// RFC 8200 §4.1: Hop-by-Hop Options only directly behind the fixed header; the others in any order.
#[test]
fn hop_by_hop_comes_first() {
    assert_eq!(refusal(HOP_BY_HOP, &padded(UDP, 1)), None);
    for before in [HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION] {
        let first = vec![HOP_BY_HOP, 0, 0, 0, 0, 0, 0, 0];
        let body = [first, padded(UDP, 1)].concat();
        assert_eq!(refusal(before, &body), Some(WireError::Malformed), "behind {before}");
    }
    let body = [padded(ROUTING, 1), vec![DESTINATION, 0, 4, 0, 0, 0, 0, 0], padded(UDP, 1)];
    assert_eq!(refusal(DESTINATION, &body.concat()), None);
}

#[test]
fn chains_are_bounded() {
    let chain = |headers: usize, units: u8| -> Vec<u8> {
        let inner = std::iter::repeat_n(padded(DESTINATION, units), headers - 1);
        inner.chain([padded(UDP, units)]).flatten().collect()
    };
    assert_eq!((MAX_EXTENSION_HEADERS, MAX_EXTENSION_BYTES), (8, 512));
    assert_eq!(refusal(DESTINATION, &chain(8, 1)), None);
    assert_eq!(refusal(DESTINATION, &chain(9, 1)), Some(WireError::Unsupported));
    assert_eq!(refusal(DESTINATION, &chain(8, 8)), None, "512 bytes");
    assert_eq!(refusal(DESTINATION, &chain(1, 64)), None, "512 bytes");
    assert_eq!(refusal(DESTINATION, &chain(1, 65)), Some(WireError::Unsupported));
    let within = [&chain(7, 9)[..], &padded(UDP, 2)].concat();
    assert_eq!(refusal(DESTINATION, &within), None, "the rest is payload");
    let beyond = [padded(DESTINATION, 64), padded(UDP, 1)].concat();
    assert_eq!(refusal(DESTINATION, &beyond), Some(WireError::Unsupported));
    // A header that is not there is malformed, however long it claims to be.
    assert_eq!(refusal(DESTINATION, &[UDP, 255, 1, 4, 0, 0, 0, 0]), Some(WireError::Malformed));
}

/// RFC 8200 §4.4 and RFC 5095: a host is no intermediate node, whatever the routing type.
#[test]
fn routes_must_be_at_their_end() {
    for kind in [0, 2, 3, 4, 253] {
        for left in [1, 2, 255] {
            let header = [UDP, 0, kind, left, 0, 0, 0, 0];
            assert_eq!(refusal(ROUTING, &header), Some(WireError::Malformed), "type {kind}");
        }
        let spent = [[UDP, 2, kind, 0, 0xff, 0xff, 0xff, 0xff], [0xff; 8], [0xff; 8]].concat();
        assert_eq!(refusal(ROUTING, &spent), None, "type {kind}");
    }
}

#[test]
fn fragments_end_the_chain() {
    // Behind Hop-by-Hop Options and an atomic fragment; its payload would be a bad Hop-by-Hop header.
    let fragment = [HOP_BY_HOP, 0xaa, 0x12, 0x37, 0xde, 0xad, 0xbe, 0xef];
    let atomic = [FRAGMENT, 0, 0, 0, 0, 0, 0, 9];
    let body = [&padded(FRAGMENT, 2)[..], &atomic, &fragment, &[0xff; 16]].concat();
    let bytes = packet(HOP_BY_HOP, &body);
    let view = Ipv6View::parse(&bytes).unwrap();
    let expected = Fragment6 { offset: 0x1230, more: true, ident: 0xdead_beef };
    assert_eq!(view.fragment(), Some(expected));
    assert_eq!(view.protocol_at(), 40 + 16 + 8);
    assert_eq!((view.protocol(), view.payload()), (Protocol::HOP_BY_HOP, &[0xff; 16][..]));
    assert_eq!(view.header_len(), 40 + 16 + 8 + 8);

    // Directly behind the fixed header: the first, a middle and the last fragment.
    for (word, offset, more) in [(0x0001u16, 0, true), (0x0009, 8, true), (0x0010, 16, false)] {
        let [high, low] = word.to_be_bytes();
        let bytes = packet(FRAGMENT, &[UDP, 0, high, low, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8]);
        let view = Ipv6View::parse(&bytes).unwrap();
        let fragment = view.fragment().unwrap();
        assert_eq!((fragment.offset, fragment.more, fragment.ident), (offset, more, 1));
        assert_eq!((view.protocol_at(), view.header_len()), (40, 48));
        assert_eq!(view.protocol(), Protocol::UDP);
        assert_eq!(view.payload(), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}

/// RFC 7112 §3: up to the transport's header, all of it, and no fragment inside the fragment.
#[test]
fn a_first_fragment_has_the_whole_chain_or_not() {
    const TCP: u8 = 6;
    const ICMP: u8 = 58;
    let is_whole = |next: u8, payload: &[u8]| {
        let bytes = packet(FRAGMENT, &[&[next, 0, 0, 1, 0, 0, 0, 1][..], payload].concat());
        Ipv6View::parse(&bytes).unwrap().has_whole_chain()
    };
    // A TCP header of 24 bytes.
    let mut tcp = [0; 24];
    tcp[12] = 0x60;
    assert_eq!([16, 24].map(|len| is_whole(TCP, &tcp[..len])), [false, true]);
    let behind = |next, units: u8| [&padded(next, units)[..], &[0; 8]].concat();
    for next in [UDP, ICMP] {
        assert_eq!(
            [8, 16].map(|len| is_whole(DESTINATION, &behind(next, 1)[..len])),
            [false, true]
        );
    }
    assert!(is_whole(DESTINATION, &behind(NO_NEXT, 1)[..8]) && is_whole(132, &[0; 8]));
    assert!(!is_whole(DESTINATION, &behind(UDP, 4)[..16]), "the header itself is cut");
    assert!(!is_whole(FRAGMENT, &[UDP, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]));
    assert!(is_whole(FRAGMENT, &[UDP, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]));
}

/// RFC 8200 §4.5: the fixed header in each, and a Fragment header that names what the packet began with.
#[test]
fn fragments_are_parts_of_their_packet() {
    let whole = packet(DESTINATION, &[&padded(UDP, 2)[..], &[5; 60]].concat());
    let mut out = [0; 200];
    for (bytes, more) in [(0..48, true), (48..76, false)] {
        let len = ip::emit_fragment(&whole, 0xdead_beef, bytes.clone(), more, &mut out);
        let view = Ipv6View::parse(&out[..len]).unwrap();
        let expected = Fragment6 { offset: bytes.start as u16, more, ident: 0xdead_beef };
        assert_eq!((view.fragment(), view.total_len()), (Some(expected), len));
        assert_eq!((view.protocol(), view.header_len()), (Protocol(DESTINATION), 48));
        assert_eq!(view.payload(), &whole[40..][bytes]);
        assert_eq!((view.src(), view.dst()), (CLIENT, SERVER));
    }
}

/// RFC 8200 §4.5: the reassembled packet is an atomic fragment.
#[test]
fn the_headers_of_a_first_fragment_become_those_of_the_packet() {
    let first = [&padded(FRAGMENT, 1)[..], &[UDP, 0, 0, 1, 0, 0, 0, 1], &[3; 16]].concat();
    let mut bytes = packet(DESTINATION, &first);
    let header_len = Ipv6View::parse(&bytes).unwrap().header_len();
    bytes.extend([4; 300]);
    wire::ipv6::reassemble(&mut bytes, header_len);
    let view = Ipv6View::parse(&bytes).unwrap();
    assert_eq!((view.fragment(), view.is_atomic_fragment()), (None, true));
    assert_eq!((view.protocol(), view.payload().len()), (Protocol::UDP, 316));
    assert_eq!(view.header_len(), header_len);
    wire::ipv6::reassemble(&mut bytes[..39], 3);
}

/// RFC 6946: offset 0 and no more fragments; the reserved bits count for nothing.
#[test]
fn atomic_fragments_are_whole() {
    let body = [&[DESTINATION, 0xff, 0, 0b110, 0, 0, 0, 1][..], &padded(UDP, 1), b"abc"].concat();
    let bytes = packet(FRAGMENT, &body);
    let view = Ipv6View::parse(&bytes).unwrap();
    assert_eq!((view.fragment(), view.protocol()), (None, Protocol::UDP));
    assert_eq!((view.payload(), view.is_atomic_fragment()), (&b"abc"[..], true));
    let bytes = packet(DESTINATION, &[&padded(UDP, 1), &b"abc"[..]].concat());
    assert!(!Ipv6View::parse(&bytes).unwrap().is_atomic_fragment());
}

/// RFC 8200 §4.5: multiples of 8 bytes before the last fragment, and no more than 65,535 bytes in all.
#[test]
fn fragments_must_fit() {
    let fragment = |word: u16, len: usize| {
        let [high, low] = word.to_be_bytes();
        [vec![UDP, 0, high, low, 0, 0, 0, 1], vec![0; len]].concat()
    };
    for len in 0..=16 {
        let expected = (len % 8 != 0).then_some(WireError::Malformed);
        assert_eq!(refusal(FRAGMENT, &fragment(1, len)), expected, "{len} bytes");
        assert_eq!(refusal(FRAGMENT, &fragment(8, len)), None, "{len} bytes, the last");
    }
    assert_eq!(refusal(FRAGMENT, &fragment(0xfff8, 7)), None);
    assert_eq!(refusal(FRAGMENT, &fragment(0xfff8, 8)), Some(WireError::Malformed));
    assert_eq!(refusal(FRAGMENT, &fragment(0xfff9, 8)), Some(WireError::Malformed));
    // The per-fragment headers count too.
    let behind_options = |len| [padded(FRAGMENT, 1), fragment(0xfff0, len)].concat();
    assert_eq!(refusal(DESTINATION, &behind_options(7)), None);
    assert_eq!(refusal(DESTINATION, &behind_options(8)), Some(WireError::Malformed));
}

/// RFC 8200 §4.2: two kinds of padding, and the two upper bits of every other type.
#[test]
fn options_are_skipped_or_refuse_the_packet() {
    for header in [HOP_BY_HOP, DESTINATION] {
        for kind in 2..=255u8 {
            let expected = (kind >> 6 != 0).then_some(WireError::Unsupported);
            let short = [UDP, 0, kind, 4, 0xff, 0xff, 0xff, 0xff];
            assert_eq!(refusal(header, &short), expected, "option {kind}");
            let behind_padding = [UDP, 0, 0, 1, 1, 0xc2, kind, 0];
            assert_eq!(refusal(header, &behind_padding), expected, "option {kind}");
        }
        let accepted = [
            [0, 0, 0, 0, 0, 0],             // Pad1
            [1, 0, 1, 0, 1, 0],             // PadN without data
            [1, 4, 0xc2, 0xff, 0xff, 0xff], // its data is not looked at
            [0, 5, 2, 0, 0, 0],             // router alert
        ];
        for options in accepted {
            assert_eq!(refusal(header, &[&[UDP, 0], &options[..]].concat()), None, "{options:?}");
        }
        let malformed = [
            [1, 5, 0, 0, 0, 0],  // padding beyond the header
            [0, 0, 0, 0, 0, 1],  // no length
            [1, 3, 0, 0, 0, 30], // no length
            [5, 3, 0, 0, 0, 30], // no length
            [0, 30, 4, 0, 0, 0], // beyond the header
            [0, 0, 0, 0, 30, 1], // beyond the header
        ];
        for options in malformed {
            let error = refusal(header, &[&[UDP, 0], &options[..], &[0; 64]].concat());
            assert_eq!(error, Some(WireError::Malformed), "{options:?}");
        }
    }
}

/// RFC 2675: the length is in an option, and the payload length is zero.
#[test]
fn jumbograms_are_refused() {
    let jumbo = [UDP, 0, 0xc2, 4, 0, 1, 0, 0];
    let mut bytes = packet(HOP_BY_HOP, &jumbo);
    assert_eq!(Ipv6View::parse(&bytes).err(), Some(WireError::Unsupported));
    bytes[4..6].fill(0);
    assert_eq!(Ipv6View::parse(&bytes).err(), Some(WireError::Unsupported));
    assert_eq!(Ipv6View::parse(&packet(UDP, &[])).unwrap().payload(), []);
}

/// Next headers that end the chain: what lies behind them is not read.
#[test]
fn other_next_headers_are_protocols() {
    for protocol in
        (0..=255).filter(|it| ![HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION].contains(it))
    {
        let bytes = packet(protocol, &[0xff; 3]);
        let view = Ipv6View::parse(&bytes).unwrap();
        assert_eq!((view.protocol(), view.header_len()), (Protocol(protocol), 40));
    }
    let body = padded(NO_NEXT, 1);
    let bytes = packet(DESTINATION, &body);
    let view = Ipv6View::parse(&bytes).unwrap();
    assert_eq!((view.protocol(), view.payload()), (Protocol::NO_NEXT, &[][..]));
    assert_eq!(refusal(DESTINATION, &[&padded(AUTHENTICATION, 1)[..], &[0, 255]].concat()), None);
}

#[test]
fn routers_mark_either_version() {
    let marks = [ipv6::mark_congestion, ip::mark_congestion];
    for mark in marks {
        for ecn in 0..4 {
            let mut bytes = packet(ROUTING, &[UDP, 0, 0, 1, 0, 0, 0, 0]);
            let repr = Ipv6Repr { dscp_ecn: 0xb8 | ecn, protocol: Protocol::UDP, ..request_repr() };
            Ipv6Repr { payload_len: 8, ..repr }.emit(&mut bytes);
            let mut before = bytes.clone();
            assert_eq!(mark(&mut bytes), ecn != ECN_NOT_ECT);
            if ecn != ECN_NOT_ECT {
                before[1] |= ECN_CE << 4;
            }
            assert_eq!(bytes, before);
        }
        // A router does not read extension headers; it does not touch what is no packet.
        let mut routed = packet(ROUTING, &[UDP, 0, 0, 1, 0, 0, 0, 0]);
        routed[1] |= ECN_ECT_1 << 4;
        assert!(mark(&mut routed) && routed[1] >> 4 == ECN_CE);
        let mut cut = REQUEST[..50].to_vec();
        assert!(!mark(&mut cut) && cut == REQUEST[..50]);
        assert!(!mark(&mut []));
    }
    let mut v4 = [0; 20];
    let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    Ipv4Repr { dscp_ecn: ECN_ECT_1, ..Ipv4Repr::new(src, dst, Protocol::TCP, 0) }.emit(&mut v4);
    assert!(ip::mark_congestion(&mut v4));
    let view = Ipv4View::parse(&v4).unwrap();
    assert!(view.verify_checksum() && view.ecn() == ECN_CE);
    let mut other = REQUEST;
    other[0] ^= 0x30;
    assert!(!ip::mark_congestion(&mut other) && !ipv6::mark_congestion(&mut other));
}

#[test]
fn derived_addresses() {
    // The examples of RFC 4291 §2.7.1 and RFC 2464 §7.
    let host: Ipv6Addr = "4037::01:800:200e:8c6c".parse().unwrap();
    assert_eq!(solicited_node(host), "ff02::1:ff0e:8c6c".parse::<Ipv6Addr>().unwrap());
    assert_eq!(solicited_node(CLIENT), "ff02::1:ff00:1".parse::<Ipv6Addr>().unwrap());
    let all_bits = "fe80::ffff:ffff:ffff".parse().unwrap();
    assert_eq!(solicited_node(all_bits), "ff02::1:ffff:ffff".parse::<Ipv6Addr>().unwrap());
    let group = solicited_node(host);
    assert_eq!(multicast_mac(group), MacAddr([0x33, 0x33, 0xff, 0x0e, 0x8c, 0x6c]));
    assert!(multicast_mac(group).is_multicast());
    for (addr, mapped) in [
        ("::ffff:10.0.0.1", true),
        ("::ffff:0:0", true),
        ("::10.0.0.1", false),
        ("::1:ffff:10.0.0.1", false),
        ("64:ff9b::10.0.0.1", false),
        ("::", false),
    ] {
        let address = Address::from(addr.parse::<Ipv6Addr>().unwrap());
        assert_eq!(address.is_ipv4(), mapped, "{addr}");
    }
}
