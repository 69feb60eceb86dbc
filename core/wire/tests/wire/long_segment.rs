//! Segments over several buffers: what is cut carries the same bytes, flags and numbers, with right checksums.

use proptest::collection::vec;
use proptest::prelude::*;
use wire::{
    EtherType, EthernetRepr, EthernetView, Ipv4Addr, Ipv4Repr, Ipv4View, Ipv6Addr, Ipv6Repr,
    Ipv6View, LongSegment, MacAddr, Protocol, SeqNumber, Sum, TcpFlags, TcpOptions, TcpRepr,
    TcpView, Timestamp, WireError,
};

const SRC: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const DST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

const SRC_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const DST_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

fn frame(payload: &[u8], seq: u32, flags: TcpFlags, has_timestamp: bool) -> Vec<u8> {
    frame_of(payload, seq, flags, has_timestamp, false)
}

fn frame_of(
    payload: &[u8],
    seq: u32,
    flags: TcpFlags,
    has_timestamp: bool,
    is_v6: bool,
) -> Vec<u8> {
    let timestamp = has_timestamp.then_some(Timestamp { value: 1, echo: 2 });
    let options = TcpOptions { timestamp, ..TcpOptions::default() };
    let tcp = TcpRepr {
        src_port: 1000,
        dst_port: 80,
        seq: SeqNumber(seq),
        ack: SeqNumber(77),
        flags,
        window: 500,
        options,
    };
    let headers = EthernetRepr::HEADER_LEN + Ipv4Repr::HEADER_LEN + tcp.header_len();
    let mut frame = vec![0; headers];
    let macs = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
    EthernetRepr { dst: macs[0], src: macs[1], ethertype: EtherType::IPV4 }.emit(&mut frame);
    let ip = Ipv4Repr {
        src: SRC,
        dst: DST,
        protocol: Protocol::TCP,
        ttl: 64,
        ident: 3,
        dscp_ecn: 0,
        dont_fragment: true,
        payload_len: tcp.header_len() + payload.len(),
    };
    ip.emit(&mut frame[14..]);
    tcp.emit(&mut frame[34..], SRC, DST, payload.len(), Sum::of(payload));
    if is_v6 {
        frame.resize(54 + tcp.header_len(), 0);
        EthernetRepr { dst: macs[0], src: macs[1], ethertype: EtherType::IPV6 }.emit(&mut frame);
        let len = tcp.header_len() + payload.len();
        Ipv6Repr::new(SRC_V6, DST_V6, Protocol::TCP, len).emit(&mut frame[14..]);
        tcp.emit(&mut frame[54..], SRC_V6, DST_V6, payload.len(), Sum::of(payload));
    }
    frame.extend_from_slice(payload);
    frame
}

/// Whether both checksums are right, and the segment.
fn segment_of(frame: &[u8]) -> (bool, TcpView<'_>) {
    let link = EthernetView::parse(frame).expect("a frame");
    if link.ethertype() == EtherType::IPV6 {
        let ip = Ipv6View::parse(link.payload()).expect("a packet");
        let tcp = TcpView::parse(ip.payload()).expect("a segment");
        return (tcp.verify_checksum(SRC_V6, DST_V6), tcp);
    }
    let ip = Ipv4View::parse(link.payload()).expect("a packet");
    let tcp = TcpView::parse(ip.payload()).expect("a segment");
    (ip.verify_checksum() && tcp.verify_checksum(SRC, DST), tcp)
}

/// The payload's parts with where they begin: the first buffer's, then those of all others.
fn parts(payload: &[u8], cuts: &[prop::sample::Index]) -> Vec<(usize, Vec<u8>)> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(payload.len() + 1)).collect();
    at.extend([0, payload.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| (pair[0], payload[pair[0]..pair[1]].to_vec())).collect()
}

proptest! {
    #[test]
    fn the_segments_are_the_same_stream(
        payload in vec(any::<u8>(), 1..12_000),
        cuts in vec(any::<prop::sample::Index>(), 0..6),
        seq: u32,
        fin: bool,
        has_timestamp: bool,
        is_v6: bool,
    ) {
        let mut flags = TcpFlags::ACK | TcpFlags::PSH;
        if fin {
            flags |= TcpFlags::FIN;
        }
        let frame = frame_of(&payload, seq, flags, has_timestamp, is_v6);
        let headers = frame.len() - payload.len();
        let parts = parts(&payload, &cuts);
        let first = &frame[..headers + parts[0].1.len()];
        let long = LongSegment::parse(first, frame.len()).expect("it is one");
        prop_assert_eq!(long.headers_len(), headers);
        let sum = |parts: &[(usize, Vec<u8>)]| {
            parts.iter().fold(Sum::ZERO, |sum, (at, part)| sum.add_at(Sum::of(part), *at))
        };
        prop_assert!(long.is_valid(sum(&parts)));
        prop_assert!(!long.is_valid(sum(&parts).add_u16(1)));
        let mut stream = Vec::new();
        for (at, part) in &parts {
            let mut segment = vec![0; headers];
            long.emit(&mut segment, *at, part.len(), Sum::of(part));
            segment.extend_from_slice(part);
            let (is_valid, tcp) = segment_of(&segment);
            prop_assert!(is_valid);
            prop_assert_eq!(tcp.seq(), SeqNumber(seq) + *at as u32);
            let is_last = at + part.len() == payload.len();
            prop_assert_eq!(tcp.flags().contains(TcpFlags::FIN), fin && is_last);
            prop_assert_eq!(tcp.options().timestamp.is_some(), has_timestamp);
            stream.extend_from_slice(tcp.payload());
        }
        prop_assert_eq!(stream, payload);
    }

    #[test]
    fn no_bytes_make_it_panic(mut bytes in vec(any::<u8>(), 0..200), frame_len in 0..70_000usize) {
        let _ = LongSegment::parse(&bytes, frame_len);
        // Further in: IPv6, then IPv4, with TCP, of a length that fits.
        if bytes.len() > 40 {
            bytes[12..16].copy_from_slice(&[0x86, 0xdd, 0x60, 0]);
            bytes[18..20].copy_from_slice(&(frame_len.saturating_sub(54) as u16).to_be_bytes());
            bytes[20] = 6;
            if let Ok(long) = LongSegment::parse(&bytes, frame_len) {
                long.emit(&mut [0; 134], frame_len, 9000, Sum::ZERO);
            }
            bytes[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
            bytes[16..18].copy_from_slice(&(frame_len.saturating_sub(14) as u16).to_be_bytes());
            bytes[20..24].copy_from_slice(&[0, 0, 64, 6]);
            if let Ok(long) = LongSegment::parse(&bytes, frame_len) {
                let mut out = [0; 134];
                long.emit(&mut out, frame_len, 9000, Sum::ZERO);
            }
        }
    }
}

#[test]
fn what_cannot_be_cut_is_told() {
    let whole = frame(&[1; 100], 1, TcpFlags::ACK, false);
    let parse = |frame: &[u8], len| LongSegment::parse(frame, len).map(|_| ());
    assert_eq!(parse(&whole, whole.len()), Ok(()));
    assert_eq!(parse(&whole, whole.len() + 1), Err(WireError::Malformed));
    assert_eq!(parse(&whole[..50], whole.len()), Err(WireError::Truncated));
    let open = frame(&[1; 100], 1, TcpFlags::SYN, false);
    assert_eq!(parse(&open, open.len()), Err(WireError::Unsupported));
    // Behind another header, and over IPv6 as over IPv4.
    let v6 = frame_of(&[1; 100], 1, TcpFlags::ACK, false, true);
    assert_eq!(parse(&v6, v6.len()), Ok(()));
    assert_eq!(parse(&v6, v6.len() - 1), Err(WireError::Malformed));
    let mut behind = v6.clone();
    behind[20] = 60;
    assert_eq!(parse(&behind, v6.len()), Err(WireError::Malformed));
    let mut fragment = whole.clone();
    fragment[20] = 0x20;
    assert_eq!(parse(&fragment, fragment.len()), Err(WireError::Unsupported));
    let mut datagram = whole.clone();
    datagram[23] = 17;
    assert_eq!(parse(&datagram, datagram.len()), Err(WireError::Unsupported));
    let mut wrong = whole;
    wrong[25] ^= 1;
    let long = LongSegment::parse(&wrong, wrong.len()).expect("its lengths hold");
    assert!(!long.is_valid(Sum::of(&[1; 100])), "the header's checksum is wrong");
}
