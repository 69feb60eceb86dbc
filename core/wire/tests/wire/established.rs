//! The whole frame at once says what its headers say one by one.

use proptest::prelude::*;
use wire::established::{V4, Version};
use wire::ipv4::ECN_CE;
use wire::{
    EstablishedFields, EstablishedHeaders, EstablishedTemplate, EstablishedView, EtherType,
    EthernetRepr, EthernetView, FlowKey, Ipv4Repr, Ipv4View, PairId, Protocol, SeqNumber, Sum,
    TcpFlags, TcpOptions, TcpRepr, TcpView, Timestamp, complete_checksum,
};

use crate::strategies::{ip, mac, payload};

/// What two ends say, and a payload.
#[derive(Debug, Clone)]
struct Frame {
    link: EthernetRepr,
    ip: Ipv4Repr,
    tcp: TcpRepr,
    payload: Vec<u8>,
}

impl Frame {
    /// Header by header: the oracle.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; V4::HEADERS_LEN];
        self.link.emit(&mut bytes);
        self.ip.emit(&mut bytes[14..]);
        let sum = Sum::of(&self.payload);
        self.tcp.emit(&mut bytes[34..], self.ip.src, self.ip.dst, self.payload.len(), sum);
        bytes.extend(&self.payload);
        bytes
    }

    fn timestamp(&self) -> Timestamp {
        self.tcp.options.timestamp.unwrap_or_default()
    }
}

fn frame() -> impl Strategy<Value = Frame> {
    let tcp = any::<(u16, u16, u32, u32, u8, u16, u32, u32)>();
    // Any class and codepoint but CE.
    let traffic = (any::<u8>(), 0..3u8).prop_map(|(class, codepoint)| class << 2 | codepoint);
    ((mac(), mac(), ip(), ip()), traffic, tcp, payload()).prop_map(
        |(ends, traffic, tcp, payload)| {
            let (dst_mac, src_mac, src, dst) = ends;
            let (src_port, dst_port, seq, ack, flags, window, value, echo) = tcp;
            let options = TcpOptions::with_timestamp(Timestamp { value, echo });
            Frame {
                link: EthernetRepr { dst: dst_mac, src: src_mac, ethertype: EtherType::IPV4 },
                ip: Ipv4Repr {
                    src,
                    dst,
                    protocol: Protocol::TCP,
                    ttl: 64,
                    ident: 0,
                    dscp_ecn: traffic,
                    dont_fragment: true,
                    payload_len: TcpRepr::HEADER_LEN + 12 + payload.len(),
                },
                tcp: TcpRepr {
                    src_port,
                    dst_port,
                    seq: SeqNumber(seq),
                    ack: SeqNumber(ack),
                    flags: TcpFlags(flags),
                    window,
                    options,
                },
                payload,
            }
        },
    )
}

proptest! {
    #[test]
    fn the_template_writes_what_the_headers_emit(frame in frame()) {
        let (link, ip, tcp) = (&frame.link, &frame.ip, &frame.tcp);
        let template = |mac, peer: wire::Ipv4Addr| {
            let (macs, ends) = ((mac, link.src), (ip.src.into(), peer.into()));
            EstablishedTemplate::new(macs, ends, (ip.ttl, ip.dscp_ecn), frame.timestamp().value)
        };
        let fields = EstablishedFields {
            // As a connection's flow names a pair that has a number.
            flow: FlowKey::new(PairId::of_number(1), tcp.dst_port, tcp.src_port),
            seq: tcp.seq,
            ack: tcp.ack,
            flags: tcp.flags,
            window: tcp.window,
            echo: frame.timestamp().echo,
            payload_len: frame.payload.len(),
            payload_sum: Some(Sum::of(&frame.payload)),
        };
        let mut of_another = template(wire::MacAddr([9; 6]), wire::Ipv4Addr::new(9, 8, 7, 6));
        of_another.set_peer(link.dst, ip.dst);
        for template in [template(link.dst, ip.dst), of_another] {
            let mut out = [0xa5; EstablishedTemplate::ROOM];
            let len = template.write(&mut out, &fields);
            prop_assert_eq!(len, V4::HEADERS_LEN);
            prop_assert_eq!(&out[out.len() - len..], &frame.bytes()[..len]);
            let partial = EstablishedFields { payload_sum: None, ..fields };
            prop_assert_eq!(template.write(&mut out, &partial), len);
            let mut emitted = [0xa5; TcpRepr::HEADER_LEN + 12];
            tcp.emit_partial(&mut emitted, ip.src, ip.dst, frame.payload.len());
            prop_assert_eq!(out.last_chunk(), Some(&emitted));
            let mut bytes = out[out.len() - len..].to_vec();
            bytes.extend(&frame.payload);
            complete_checksum(&mut bytes, len - emitted.len(), TcpRepr::CHECKSUM_AT);
            prop_assert!(EstablishedView::<V4>::parse(&bytes).expect("usual").verify_checksums());
        }
    }

    #[test]
    fn the_view_reads_what_was_emitted(frame in frame(), padding in 0usize..20) {
        let mut bytes = frame.bytes();
        bytes.extend(vec![0xee; padding]);
        let view = EstablishedView::<V4>::parse(&bytes).expect("the usual form");
        prop_assert!(view.verify_checksums());
        prop_assert!(view.is_for(frame.link.dst, frame.ip.dst.into()));
        for byte in 0..6 {
            let mut other = frame.link.dst;
            other.0[byte] ^= 1;
            prop_assert!(!view.is_for(other, frame.ip.dst.into()));
        }
        let [a, b, c, d] = frame.ip.dst.octets();
        for other in [[a ^ 1, b, c, d], [a, b ^ 1, c, d], [a, b, c ^ 1, d], [a, b, c, d ^ 1]] {
            prop_assert!(!view.is_for(frame.link.dst, wire::Ipv4Addr::from(other).into()));
        }
        let pair = PairId::of_v4(frame.ip.src);
        let flow = FlowKey::new(pair, frame.tcp.src_port, frame.tcp.dst_port);
        let addresses = EstablishedHeaders::addresses::<V4>(&bytes);
        prop_assert_eq!(addresses, Some((frame.ip.src.into(), frame.ip.dst.into())));
        let headers = EstablishedHeaders::of::<V4>(&bytes).expect("long enough");
        prop_assert_eq!(headers.payload_len(), frame.payload.len());
        prop_assert_eq!(headers.flow(), flow);
        let named = (!frame.ip.src.is_multicast()).then_some(frame.ip.src);
        prop_assert_eq!(flow.pair().v4().ok(), named);
        prop_assert_eq!((headers.seq(), headers.ack()), (frame.tcp.seq, frame.tcp.ack));
        prop_assert_eq!((headers.flags(), headers.window()), (frame.tcp.flags, frame.tcp.window));
        prop_assert_eq!(headers.timestamp(), frame.timestamp());
        prop_assert_eq!(view.payload(), &frame.payload[..]);
    }

    /// Whatever one byte is changed to: where the view takes the frame, the views of the single headers take it
    /// too, agree on the payload, and find its checksums as right or wrong as it does.
    #[test]
    fn the_view_takes_nothing_that_the_headers_refuse(
        frame in frame(),
        at in 0..V4::HEADERS_LEN,
        value in any::<u8>(),
        cut in 0usize..80,
    ) {
        let mut bytes = frame.bytes();
        bytes[at] = value;
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        if let Some(view) = EstablishedView::<V4>::parse(&bytes) {
            let link = EthernetView::parse(&bytes).expect("parsed as a whole");
            prop_assert_eq!(link.ethertype(), EtherType::IPV4);
            let ip = Ipv4View::parse(link.payload()).expect("parsed as a whole");
            prop_assert!(!ip.is_fragment() && ip.protocol() == Protocol::TCP && ip.ecn() != ECN_CE);
            let tcp = TcpView::parse(ip.payload()).expect("parsed as a whole");
            prop_assert_eq!(view.payload(), tcp.payload());
            prop_assert_eq!(Some(view.headers().timestamp()), tcp.aligned_timestamp());
            let valid = ip.verify_checksum() && tcp.verify_checksum(ip.src(), ip.dst());
            prop_assert_eq!(view.verify_checksums(), valid);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some(view) = EstablishedView::<V4>::parse(&bytes) {
            prop_assert!(view.payload().len() <= bytes.len());
        }
    }
}

fn address(text: &str) -> wire::Address {
    text.parse().expect("an address")
}

/// The forms that are left to the views of the single headers.
#[test]
fn unusual_forms_are_not_taken() {
    let template = EstablishedTemplate::new(
        (wire::MacAddr([2; 6]), wire::MacAddr([4; 6])),
        (address("10.0.0.1"), address("10.0.0.2")),
        (64, 0),
        7,
    );
    let fields = EstablishedFields {
        flow: FlowKey::new(PairId::of_v4(wire::Ipv4Addr::new(10, 0, 0, 2)), 9, 80),
        seq: SeqNumber(1),
        ack: SeqNumber(2),
        flags: TcpFlags::ACK,
        window: 3,
        echo: 4,
        payload_len: 0,
        payload_sum: Some(Sum::ZERO),
    };
    let mut room = [0; EstablishedTemplate::ROOM];
    template.write(&mut room, &fields);
    let frame: [u8; V4::HEADERS_LEN] = *room.last_chunk().expect("so long");
    assert!(EstablishedView::<V4>::parse(&frame).is_some());
    // Ethertype, IPv4 options, more fragments, a fragment's offset, protocol, data offset, option kind.
    let changes = [(12, 0x86), (14, 0x46), (20, 0x20), (21, 1), (23, 17), (46, 0x50), (54, 2)];
    // Class and codepoint: CE with any class.
    for (at, value) in changes.into_iter().chain((0..64).map(|class| (15, class << 2 | ECN_CE))) {
        let mut other = frame;
        other[at] = value;
        assert!(EstablishedView::<V4>::parse(&other).is_none(), "byte {at} changed");
    }
}

/// The same over IPv6.
mod v6 {
    use super::*;
    use wire::established::V6;
    use wire::{Address, Ipv6Addr, Ipv6Repr, Ipv6View};

    fn six(frame: &Frame) -> (Ipv6Repr, Address, Address) {
        let widen = |v4: wire::Ipv4Addr| {
            Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(v4.to_bits()) << 17 | 5)
        };
        let (src, dst) = (widen(frame.ip.src), widen(frame.ip.dst));
        let plain =
            Ipv6Repr::new(src, dst, Protocol::TCP, TcpRepr::HEADER_LEN + 12 + frame.payload.len());
        let Ipv4Repr { ttl, dscp_ecn, .. } = frame.ip;
        (Ipv6Repr { hop_limit: ttl, dscp_ecn, ..plain }, src.into(), dst.into())
    }

    fn bytes(frame: &Frame) -> Vec<u8> {
        let (ip, src, dst) = six(frame);
        let mut bytes = vec![0; V6::HEADERS_LEN];
        EthernetRepr { ethertype: EtherType::IPV6, ..frame.link }.emit(&mut bytes);
        ip.emit(&mut bytes[14..]);
        frame.tcp.emit(&mut bytes[54..], src, dst, frame.payload.len(), Sum::of(&frame.payload));
        bytes.extend(&frame.payload);
        bytes
    }

    proptest! {
        #[test]
        fn the_template_writes_what_the_headers_emit(frame in frame()) {
            let (ip, src, dst) = six(&frame);
            let template = EstablishedTemplate::new(
                (frame.link.dst, frame.link.src),
                (src, dst),
                (ip.hop_limit, ip.dscp_ecn),
                frame.timestamp().value,
            );
            let fields = EstablishedFields {
                flow: FlowKey::new(PairId::of_number(7), frame.tcp.dst_port, frame.tcp.src_port),
                seq: frame.tcp.seq,
                ack: frame.tcp.ack,
                flags: frame.tcp.flags,
                window: frame.tcp.window,
                echo: frame.timestamp().echo,
                payload_len: frame.payload.len(),
                payload_sum: Some(Sum::of(&frame.payload)),
            };
            let mut out = [0xa5; EstablishedTemplate::ROOM];
            prop_assert_eq!(template.write(&mut out, &fields), V6::HEADERS_LEN);
            let written = &out[out.len() - V6::HEADERS_LEN..];
            prop_assert_eq!(written, &bytes(&frame)[..V6::HEADERS_LEN]);
            let partial = EstablishedFields { payload_sum: None, ..fields };
            template.write(&mut out, &partial);
            let mut emitted = [0xa5; TcpRepr::HEADER_LEN + 12];
            frame.tcp.emit_partial(&mut emitted, src, dst, frame.payload.len());
            prop_assert_eq!(out.last_chunk(), Some(&emitted));
            let mut bytes = out[out.len() - V6::HEADERS_LEN..].to_vec();
            bytes.extend(&frame.payload);
            complete_checksum(&mut bytes, V6::HEADERS_LEN - emitted.len(), TcpRepr::CHECKSUM_AT);
            prop_assert!(EstablishedView::<V6>::parse(&bytes).expect("usual").verify_checksums());
        }

        #[test]
        fn the_view_reads_what_was_emitted(frame in frame(), padding in 0usize..20) {
            let (_, src, dst) = six(&frame);
            let mut bytes = bytes(&frame);
            bytes.extend(vec![0xee; padding]);
            let view = EstablishedView::<V6>::parse(&bytes).expect("the usual form");
            prop_assert!(view.verify_checksums() && view.is_for(frame.link.dst, dst));
            prop_assert!(!view.is_for(frame.link.dst, src) || src == dst);
            for byte in 0..16 {
                let mut octets = dst.octets();
                octets[byte] ^= 1;
                prop_assert!(!view.is_for(frame.link.dst, Address::from_octets(octets)));
            }
            prop_assert_eq!(EstablishedHeaders::addresses::<V6>(&bytes), Some((src, dst)));
            let headers = EstablishedHeaders::of::<V6>(&bytes).expect("long enough");
            let ports = (headers.flow().remote_port(), headers.flow().local_port());
            prop_assert_eq!(ports, (frame.tcp.src_port, frame.tcp.dst_port));
            prop_assert_eq!((headers.seq(), headers.ack()), (frame.tcp.seq, frame.tcp.ack));
            prop_assert_eq!(headers.timestamp(), frame.timestamp());
            prop_assert_eq!(headers.payload_len(), frame.payload.len());
            prop_assert_eq!(view.payload(), &frame.payload[..]);
            prop_assert!(EstablishedView::<V4>::parse(&bytes).is_none());
            prop_assert!(EstablishedView::<V6>::parse(&frame.bytes()).is_none());
        }

        #[test]
        fn the_view_takes_nothing_that_the_headers_refuse(
            frame in frame(),
            at in 0..V6::HEADERS_LEN,
            value in any::<u8>(),
            cut in 0usize..80,
        ) {
            let mut bytes = bytes(&frame);
            bytes[at] = value;
            bytes.truncate(bytes.len() - cut.min(bytes.len()));
            if let Some(view) = EstablishedView::<V6>::parse(&bytes) {
                let link = EthernetView::parse(&bytes).expect("parsed as a whole");
                prop_assert_eq!(link.ethertype(), EtherType::IPV6);
                let ip = Ipv6View::parse(link.payload()).expect("parsed as a whole");
                prop_assert!(ip.fragment().is_none() && ip.ecn() != ECN_CE);
                prop_assert_eq!(ip.protocol(), Protocol::TCP);
                let tcp = TcpView::parse(ip.payload()).expect("parsed as a whole");
                prop_assert_eq!(view.payload(), tcp.payload());
                prop_assert_eq!(Some(view.headers().timestamp()), tcp.aligned_timestamp());
                let valid = tcp.verify_checksum(ip.src(), ip.dst());
                prop_assert_eq!(view.verify_checksums(), valid);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(view) = EstablishedView::<V6>::parse(&bytes) {
                prop_assert!(view.payload().len() <= bytes.len());
            }
        }
    }
}
