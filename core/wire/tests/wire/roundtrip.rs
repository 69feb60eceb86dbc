//! What is emitted is parsed as the same; and no bytes make a parser panic.

use proptest::prelude::*;
use wire::ipv4::{ECN_CE, ECN_NOT_ECT, mark_congestion};
use wire::{
    ArpRepr, EthernetRepr, EthernetView, IcmpRepr, IcmpView, Icmpv6Repr, Icmpv6View, Ipv4Repr,
    Ipv4View, Ipv6Repr, Ipv6View, MAX_EXTENSION_BYTES, Protocol, QuotedTcp, Sum, TcpOptions,
    TcpRepr, TcpView, UdpRepr, UdpView, WireError, copy_and_sum, pseudo_header_sum,
};

use crate::strategies::{
    arp, ethernet, extensions, icmp, icmpv6, ip, ipv4, ipv6, payload, tcp, tcp_options,
};

proptest! {
    #[test]
    fn ethernet_round_trip(repr in ethernet(), payload in payload()) {
        let mut frame = vec![0; EthernetRepr::HEADER_LEN];
        repr.emit(&mut frame);
        frame.extend(&payload);
        let view = EthernetView::parse(&frame).unwrap();
        prop_assert_eq!(EthernetRepr::from_view(&view), repr);
        prop_assert_eq!(view.payload(), payload);
    }

    #[test]
    fn arp_round_trip(repr in arp(), padding in 0usize..32) {
        let mut packet = vec![0; ArpRepr::LEN + padding];
        repr.emit(&mut packet);
        prop_assert_eq!(ArpRepr::parse(&packet), Ok(repr));
        prop_assert_eq!(ArpRepr::parse(&packet[..ArpRepr::LEN - 1]), Err(WireError::Truncated));
    }

    #[test]
    fn ipv4_round_trip(repr in ipv4(), padding in 0usize..32, flip in 0usize..160) {
        let mut packet = vec![0x5a; Ipv4Repr::HEADER_LEN + repr.payload_len + padding];
        repr.emit(&mut packet);
        let view = Ipv4View::parse(&packet).unwrap();
        prop_assert!(view.verify_checksum());
        prop_assert_eq!(Ipv4Repr::from_view(&view), repr);
        prop_assert_eq!(view.payload().len(), repr.payload_len);
        prop_assert_eq!(view.dscp() << 2 | view.ecn(), repr.dscp_ecn);
        let (takes_marks, mut marked) = (view.ecn() != ECN_NOT_ECT, packet.clone());
        prop_assert_eq!(mark_congestion(&mut marked), takes_marks);
        let view = Ipv4View::parse(&marked).expect("as long as before");
        prop_assert!(view.verify_checksum());
        prop_assert_eq!(view.ecn(), if takes_marks { ECN_CE } else { ECN_NOT_ECT });
        prop_assert_eq!(view.dscp() << 2, repr.dscp_ecn & 0xfc);
        prop_assert!(!view.is_fragment() && view.options().is_empty());
        // Whatever bit of the header changes, either a length does not hold or the checksum shows it.
        packet[flip / 8] ^= 1 << (flip % 8);
        prop_assert!(Ipv4View::parse(&packet).map_or(true, |view| !view.verify_checksum()));
    }

    #[test]
    fn ipv6_round_trip(repr in ipv6(), padding in 0usize..32, flip in 0usize..320) {
        let mut packet = vec![0x5a; Ipv6Repr::HEADER_LEN + repr.payload_len + padding];
        repr.emit(&mut packet);
        let view = Ipv6View::parse(&packet).unwrap();
        prop_assert_eq!(Ipv6Repr::from_view(&view), repr);
        prop_assert_eq!((view.header_len(), view.fragment()), (Ipv6Repr::HEADER_LEN, None));
        prop_assert_eq!(view.payload().len(), repr.payload_len);
        prop_assert_eq!(view.dscp() << 2 | view.ecn(), repr.dscp_ecn);
        let takes_marks = view.ecn() != ECN_NOT_ECT;
        let mut marked = packet.clone();
        prop_assert_eq!(wire::ip::mark_congestion(&mut marked), takes_marks);
        let dscp_ecn = repr.dscp_ecn | if takes_marks { ECN_CE } else { 0 };
        let view = Ipv6View::parse(&marked).expect("as long as before");
        prop_assert_eq!(Ipv6Repr::from_view(&view), Ipv6Repr { dscp_ecn, ..repr });
        // No bit of the header is without meaning.
        packet[flip / 8] ^= 1 << (flip % 8);
        let other = Ipv6View::parse(&packet).map(|view| Ipv6Repr::from_view(&view));
        prop_assert_ne!(other, Ok(repr));
    }

    #[test]
    fn icmpv6_round_trip((src, dst, repr) in icmpv6(), data in payload(), flip in 0usize..64) {
        let is_neighbor = matches!(
            repr,
            Icmpv6Repr::NeighborSolicitation { .. } | Icmpv6Repr::NeighborAdvertisement { .. }
        );
        let data = if is_neighbor { Vec::new() } else { data };
        let header_len = repr.header_len();
        let mut message = vec![0xee; header_len + data.len()];
        let sum = copy_and_sum(&data, &mut message[header_len..]);
        repr.emit(&mut message, src, dst, (sum, data.len()));
        let view = Icmpv6View::parse(&message, src, dst).unwrap();
        prop_assert_eq!(view.repr(), repr);
        prop_assert_eq!(view.data(), data);
        prop_assert_eq!(repr.is_error(), message[0] < 128);
        let flip = flip % (message.len() * 8);
        message[flip / 8] ^= 1 << (flip % 8);
        let error = Icmpv6View::parse(&message, src, dst).err();
        prop_assert_eq!(error, Some(WireError::Checksum));
    }

    #[test]
    fn icmp_round_trip(repr in icmp(), data in payload()) {
        let mut message = vec![0; IcmpRepr::HEADER_LEN + data.len()];
        let sum = copy_and_sum(&data, &mut message[IcmpRepr::HEADER_LEN..]);
        repr.emit(&mut message, sum);
        let view = IcmpView::parse(&message).unwrap();
        prop_assert_eq!(view.repr(), repr);
        prop_assert_eq!(view.data(), data);
        message[5] ^= 0x10;
        prop_assert_eq!(IcmpView::parse(&message).err(), Some(WireError::Checksum));
    }

    #[test]
    fn udp_round_trip(
        (src, dst) in (ip(), ip()),
        (src_port, dst_port) in any::<(u16, u16)>(),
        payload in payload(),
        padding in 0usize..8,
    ) {
        let repr = UdpRepr { src_port, dst_port, payload_len: payload.len() };
        let mut datagram = vec![0; UdpRepr::HEADER_LEN + payload.len() + padding];
        let sum = copy_and_sum(&payload, &mut datagram[UdpRepr::HEADER_LEN..]);
        repr.emit(&mut datagram, src, dst, sum);
        let view = UdpView::parse(&datagram).unwrap();
        prop_assert!(view.checksum() != 0 && view.verify_checksum(src, dst));
        prop_assert_eq!(UdpRepr::from_view(&view), repr);
        prop_assert_eq!(view.payload(), payload);
        datagram[0] ^= 1;
        prop_assert!(!UdpView::parse(&datagram).unwrap().verify_checksum(src, dst));
    }

    #[test]
    fn tcp_round_trip((src, dst) in (ip(), ip()), repr in tcp(), payload in payload()) {
        let header_len = repr.header_len();
        let mut segment = vec![0xee; header_len + payload.len()];
        let sum = copy_and_sum(&payload, &mut segment[header_len..]);
        repr.emit(&mut segment, src, dst, payload.len(), sum);
        let view = TcpView::parse(&segment).unwrap();
        prop_assert!(view.verify_checksum(src, dst));
        prop_assert_eq!(TcpRepr::from_view(&view), repr);
        prop_assert_eq!(view.header_len(), header_len);
        prop_assert_eq!(view.payload(), payload);
        prop_assert_eq!(view.urgent(), 0);
        segment[5] ^= 4;
        prop_assert!(!TcpView::parse(&segment).unwrap().verify_checksum(src, dst));
    }

    #[test]
    fn options_say_their_length(options in tcp_options()) {
        let mut bytes = vec![0xee; 64];
        options.emit(&mut bytes);
        let len = options.len();
        prop_assert!(len.is_multiple_of(4) && len <= 40);
        prop_assert_eq!(options.is_empty(), len == 0);
        prop_assert!(bytes[len..].iter().all(|byte| *byte == 0xee), "nothing beyond len");
        prop_assert_eq!(TcpOptions::parse(&bytes[..len]), options);
        let aligned = TcpOptions::parse_aligned_timestamp(&bytes[..len]);
        let only_timestamp = options.timestamp.map(TcpOptions::with_timestamp) == Some(options);
        prop_assert_eq!(aligned.is_some(), only_timestamp);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        read_everything(&bytes);
    }

    /// Bytes of an IPv6 packet behind its header, as chains of extension headers and as ICMPv6 with a right checksum.
    #[test]
    fn no_ipv6_panics(
        (first, mut body) in extensions(),
        bytes in prop::collection::vec(prop_oneof![0u8..9, any::<u8>()], 4..80),
        kind in prop_oneof![1u8..5, Just(128), Just(135), Just(136)],
        damage in any::<Option<(prop::sample::Index, u8)>>(),
    ) {
        if let Some((place, value)) = damage {
            let place = place.index(body.len());
            body[place] = value;
        }
        for (first, body) in [(first, &body), (0, &bytes), (43, &bytes), (44, &bytes), (60, &bytes)] {
            let repr = Ipv6Repr::new(1.into(), 2.into(), Protocol(first), body.len());
            let mut packet = vec![0; Ipv6Repr::HEADER_LEN];
            repr.emit(&mut packet);
            packet.extend(body);
            read_everything(&packet);
        }
        let mut message = bytes;
        (message[0], message[1]) = (kind, 0);
        message[2..4].fill(0);
        let sum = pseudo_header_sum(wire::Ipv6Addr::from(1), wire::Ipv6Addr::from(2), Protocol::ICMPV6, message.len());
        let checksum = sum.add(Sum::of(&message)).finish().to_be_bytes();
        message[2..4].copy_from_slice(&checksum);
        prop_assert_ne!(Icmpv6View::parse(&message, 1.into(), 2.into()).err(), Some(WireError::Checksum));
        read_everything(&message);
    }

    #[test]
    fn no_options_panic(
        bytes in prop::collection::vec(prop_oneof![0u8..12, Just(0xffu8), any::<u8>()], 0..300),
    ) {
        let options = TcpOptions::parse(&bytes);
        prop_assert!(options.window_scale.is_none_or(|shift| shift <= 14));
        prop_assert!(options.sack_blocks.len() <= 4 && options.len() <= 40);
        // What was understood can be said again, except for blocks that no longer fit.
        let mut again = [0; 40];
        options.emit(&mut again);
        let reread = TcpOptions::parse(&again[..options.len()]);
        prop_assert_eq!(reread.timestamp, options.timestamp);
        prop_assert_eq!(reread.mss, options.mss);
        prop_assert!(options.sack_blocks.starts_with(&reread.sack_blocks));
    }

    /// Valid headers with a few bytes changed and the end cut off go deeper than random bytes do.
    #[test]
    fn no_damaged_packet_panics(
        (ip, tcp, payload) in (ipv4(), tcp(), payload()),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let len = tcp.header_len() + payload.len();
        let ip = Ipv4Repr { payload_len: len, ..ip };
        let mut packet = vec![0; Ipv4Repr::HEADER_LEN + len];
        ip.emit(&mut packet);
        let segment = &mut packet[Ipv4Repr::HEADER_LEN..];
        segment[len - payload.len()..].copy_from_slice(&payload);
        tcp.emit(segment, ip.src, ip.dst, payload.len(), Sum::of(&payload));
        for (place, value) in damage {
            let place = place.index(packet.len());
            packet[place] = value;
        }
        packet.truncate(cut.index(packet.len() + 1));
        read_everything(&packet);
        read_everything(packet.get(Ipv4Repr::HEADER_LEN..).unwrap_or(&[]));
    }
}

/// Reads `bytes` as every format and calls every accessor; checks what must hold whatever the bytes are.
fn read_everything(bytes: &[u8]) {
    if let Ok(view) = EthernetView::parse(bytes) {
        assert_eq!(view.payload().len() + EthernetRepr::HEADER_LEN, bytes.len());
        let repr = EthernetRepr::from_view(&view);
        let mut again = [0; EthernetRepr::HEADER_LEN];
        repr.emit(&mut again);
        assert_eq!(again, bytes[..EthernetRepr::HEADER_LEN]);
    }
    if let Ok(repr) = ArpRepr::parse(bytes) {
        let mut again = [0; ArpRepr::LEN];
        repr.emit(&mut again);
        assert_eq!(again, bytes[..ArpRepr::LEN]);
    }
    if let Ok(view) = Ipv4View::parse(bytes) {
        assert!(view.header_len() >= 20 && view.total_len() <= bytes.len());
        assert_eq!(view.header_len() + view.payload().len(), view.total_len());
        assert_eq!(view.is_fragment(), view.more_fragments() || view.fragment_offset() != 0);
        let _ = (view.verify_checksum(), Ipv4Repr::from_view(&view));
    }
    if let Ok(view) = Ipv6View::parse(bytes) {
        let extensions = view.header_len() - Ipv6Repr::HEADER_LEN;
        assert!(extensions <= MAX_EXTENSION_BYTES && extensions.is_multiple_of(8));
        assert_eq!(view.header_len() + view.payload().len(), view.total_len());
        assert_eq!(view.payload(), &bytes[view.header_len()..view.total_len()]);
        let _ = (view.dscp(), view.ecn(), view.flow_label(), Ipv6Repr::from_view(&view));
        if view.fragment().is_some() {
            assert_eq!(usize::from(view.protocol_at()) + 8, view.header_len());
        }
    }
    let _ = QuotedTcp::parse(bytes);
    if let Ok(view) = Icmpv6View::parse(bytes, 1.into(), 2.into()) {
        assert!(view.repr().header_len() + view.data().len() <= bytes.len());
        assert!(bytes.ends_with(view.data()));
        assert_eq!(view.repr().is_error(), bytes[0] < 128);
    }
    if let Ok(view) = IcmpView::parse(bytes) {
        assert_eq!(view.data().len() + IcmpRepr::HEADER_LEN, bytes.len());
        let _ = (view.repr().is_error(), QuotedTcp::parse(view.data()));
    }
    let [src, dst] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(wire::Ipv4Addr::from);
    if let Ok(view) = UdpView::parse(bytes) {
        assert!(view.payload().len() + UdpRepr::HEADER_LEN <= bytes.len());
        let _ = view.verify_checksum(src, dst);
    }
    if let Ok(view) = TcpView::parse(bytes) {
        assert_eq!(view.header_len() + view.payload().len(), bytes.len());
        assert_eq!(view.options_bytes().len() + TcpRepr::HEADER_LEN, view.header_len());
        assert!(view.sequence_len() as usize >= view.payload().len());
        let _ = (view.verify_checksum(src, dst), TcpRepr::from_view(&view));
        assert_eq!(view.aligned_timestamp().is_some(), {
            let head = view.options_bytes().starts_with(&[1, 1, 8, 10]);
            head && view.options_bytes().len() == 12
        });
    }
}
