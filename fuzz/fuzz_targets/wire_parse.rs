//! Every parser on the same bytes: none panics, every accessor works on what was accepted, and what
//! is emitted again is parsed as the same.
#![no_main]

use std::net::Ipv6Addr;

use wire::{
    ArpRepr, EthernetRepr, EthernetView, IcmpView, Icmpv6View, Ipv4Addr, Ipv4Repr, Ipv4View,
    Ipv6Repr, Ipv6View, LongSegment, MAX_EXTENSION_BYTES, Protocol, QuotedTcp, Sum, TcpOptions,
    TcpRepr, TcpView, UdpRepr, UdpView, pseudo_header_sum,
};

const SRC: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const DST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const SRC_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const DST_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);

fn ethernet(bytes: &[u8]) {
    let Ok(view) = EthernetView::parse(bytes) else { return };
    let mut again = bytes.to_vec();
    EthernetRepr::from_view(&view).emit(&mut again);
    assert_eq!(again, bytes);
    long_segment(bytes);
    ipv4(view.payload());
    ipv6(view.payload());
    arp(view.payload());
}

/// The bytes as the first buffer of a frame that is as long as its IPv4 header says.
fn long_segment(bytes: &[u8]) {
    let Some(&[high, low]) = bytes.get(16..18) else { return };
    let frame_len = EthernetRepr::HEADER_LEN + usize::from(u16::from_be_bytes([high, low]));
    let Ok(long) = LongSegment::parse(bytes, frame_len) else { return };
    let mut headers = vec![0; long.headers_len()];
    let payload_len = frame_len - headers.len();
    long.emit(&mut headers, 0, payload_len, Sum::ZERO);
    assert_eq!(headers[..10], bytes[..10], "addresses and lengths are as they were");
    let _ = long.is_valid(Sum::ZERO);
}

fn arp(bytes: &[u8]) {
    let Ok(repr) = ArpRepr::parse(bytes) else { return };
    let mut again = vec![0; ArpRepr::LEN];
    repr.emit(&mut again);
    assert_eq!(ArpRepr::parse(&again), Ok(repr));
}

fn ipv4(bytes: &[u8]) {
    let Ok(view) = Ipv4View::parse(bytes) else { return };
    assert_eq!(view.header_len() + view.payload().len(), view.total_len());
    assert_eq!(view.header_len(), Ipv4Repr::HEADER_LEN + view.options().len());
    let _ = (view.verify_checksum(), view.ecn(), view.dscp(), view.fragment_offset());
    if !view.is_fragment() && view.options().is_empty() {
        let repr = Ipv4Repr::from_view(&view);
        let mut again = bytes.to_vec();
        repr.emit(&mut again);
        let second = Ipv4View::parse(&again).expect("what was emitted is a packet");
        assert!(second.verify_checksum());
        assert_eq!(Ipv4Repr::from_view(&second), repr);
    }
    tcp(view.payload(), view.src(), view.dst());
    udp(view.payload(), view.src(), view.dst());
    icmp(view.payload());
}

fn ipv6(bytes: &[u8]) {
    let Ok(view) = Ipv6View::parse(bytes) else { return };
    let extensions_len = view.header_len() - Ipv6Repr::HEADER_LEN;
    assert!(extensions_len <= MAX_EXTENSION_BYTES);
    assert_eq!(view.payload(), &bytes[view.header_len()..view.total_len()]);
    if view.fragment().is_some() {
        assert_eq!(usize::from(view.protocol_at()) + 8, view.header_len());
        return;
    }
    let repr = Ipv6Repr::from_view(&view);
    let mut again = vec![0; Ipv6Repr::HEADER_LEN];
    repr.emit(&mut again);
    again.extend_from_slice(view.payload());
    let second = Ipv6View::parse(&again).expect("what was emitted is a packet");
    assert_eq!(Ipv6Repr::from_view(&second), repr);
    icmpv6(view.payload(), view.src(), view.dst());
}

/// The bytes as they are, and with the checksum that makes their contents count.
fn icmpv6(bytes: &[u8], src: Ipv6Addr, dst: Ipv6Addr) {
    let _ = (Icmpv6View::parse(bytes, src, dst).is_ok(), QuotedTcp::parse(bytes));
    if bytes.len() < 4 {
        return;
    }
    let mut message = bytes.to_vec();
    message[2..4].fill(0);
    let sum = pseudo_header_sum(src, dst, Protocol::ICMPV6, bytes.len()).add(Sum::of(&message));
    message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    let Ok(view) = Icmpv6View::parse(&message, src, dst) else { return };
    let repr = view.repr();
    let mut again = vec![0; repr.header_len()];
    repr.emit(&mut again, src, dst, (Sum::of(view.data()), view.data().len()));
    again.extend_from_slice(view.data());
    let second = Icmpv6View::parse(&again, src, dst).expect("what was emitted is a message");
    assert_eq!((second.repr(), second.data()), (repr, view.data()));
}

fn tcp(bytes: &[u8], src: Ipv4Addr, dst: Ipv4Addr) {
    let Ok(view) = TcpView::parse(bytes) else { return };
    let _ = (view.verify_checksum(src, dst), view.urgent(), view.sequence_len());
    assert_eq!(view.header_len() + view.payload().len(), bytes.len());
    if let Some(stamp) = view.aligned_timestamp() {
        assert_eq!(view.options().timestamp, Some(stamp));
    }
    options(view.options_bytes());
    let repr = TcpRepr::from_view(&view);
    let mut again = vec![0; repr.header_len()];
    repr.emit(&mut again, src, dst, view.payload().len(), Sum::of(view.payload()));
    again.extend_from_slice(view.payload());
    let second = TcpView::parse(&again).expect("what was emitted is a segment");
    assert!(second.verify_checksum(src, dst));
    assert_eq!((second.seq(), second.ack()), (view.seq(), view.ack()));
    assert_eq!((second.flags(), second.payload()), (view.flags(), view.payload()));
}

fn options(bytes: &[u8]) {
    let parsed = TcpOptions::parse(bytes);
    let mut again = vec![0; parsed.len()];
    parsed.emit(&mut again);
    assert!(again.len() <= 40 && again.len() % 4 == 0);
    let second = TcpOptions::parse(&again);
    assert!(!second.malformed);
    assert_eq!((second.mss, second.window_scale), (parsed.mss, parsed.window_scale));
    assert_eq!(second.timestamp, parsed.timestamp);
}

fn udp(bytes: &[u8], src: Ipv4Addr, dst: Ipv4Addr) {
    let Ok(view) = UdpView::parse(bytes) else { return };
    let _ = (view.verify_checksum(src, dst), view.checksum());
    let repr = UdpRepr::from_view(&view);
    let mut again = vec![0; UdpRepr::HEADER_LEN];
    repr.emit(&mut again, src, dst, Sum::of(view.payload()));
    again.extend_from_slice(view.payload());
    let second = UdpView::parse(&again).expect("what was emitted is a datagram");
    assert!(second.verify_checksum(src, dst));
    assert_eq!(second.payload(), view.payload());
}

fn icmp(bytes: &[u8]) {
    let Ok(view) = IcmpView::parse(bytes) else { return };
    let mut again = bytes.to_vec();
    view.repr().emit(&mut again, Sum::of(view.data()));
    let second = IcmpView::parse(&again).expect("what was emitted is a message");
    assert_eq!((second.repr(), second.data()), (view.repr(), view.data()));
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    ethernet(bytes);
    arp(bytes);
    ipv4(bytes);
    ipv6(bytes);
    icmpv6(bytes, SRC_V6, DST_V6);
    tcp(bytes, SRC, DST);
    udp(bytes, SRC, DST);
    icmp(bytes);
    options(&bytes[..bytes.len().min(40)]);
});
