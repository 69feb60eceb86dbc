//! Two independent implementations, smoltcp and etherparse, read what this crate writes and write what it reads.

use etherparse::{
    Icmpv4Type, NetSlice, PacketBuilder, SlicedPacket, TcpOptionElement, TransportSlice,
};
use proptest::prelude::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire as smol;
use wire::{
    ArpOperation, ArpRepr, EtherType, EthernetRepr, EthernetView, IcmpRepr, IcmpView, Ipv4Addr,
    Ipv4Repr, Ipv4View, Protocol, SackBlocks, SeqNumber, Sum, TcpFlags, TcpOptions, TcpRepr,
    TcpView, Timestamp, UdpRepr, UdpView,
};

use crate::strategies::{arp, ethernet, icmp, ip, ipv4, payload, tcp};

/// A whole frame around a transport's header and payload; the transport fills in what it needs.
fn frame(
    ethernet: EthernetRepr,
    ip: Ipv4Repr,
    transport_len: usize,
    emit_transport: impl FnOnce(&mut [u8]),
) -> Vec<u8> {
    let mut frame = vec![0; EthernetRepr::HEADER_LEN + Ipv4Repr::HEADER_LEN + transport_len];
    EthernetRepr { ethertype: EtherType::IPV4, ..ethernet }.emit(&mut frame);
    Ipv4Repr { payload_len: transport_len, ..ip }.emit(&mut frame[14..]);
    emit_transport(&mut frame[34..]);
    frame
}

fn tcp_frame(ethernet: EthernetRepr, ip: Ipv4Repr, tcp: TcpRepr, payload: &[u8]) -> Vec<u8> {
    let header_len = tcp.header_len();
    let ip = Ipv4Repr { protocol: Protocol::TCP, ..ip };
    frame(ethernet, ip, header_len + payload.len(), |out| {
        out[header_len..].copy_from_slice(payload);
        tcp.emit(out, ip.src, ip.dst, payload.len(), Sum::of(payload));
    })
}

proptest! {
    #[test]
    fn smoltcp_reads_our_tcp(
        ethernet in ethernet(), ip in ipv4(), tcp in tcp(), payload in payload(),
    ) {
        let bytes = tcp_frame(ethernet, ip, tcp, &payload);
        let frame = smol::EthernetFrame::new_checked(&bytes).unwrap();
        prop_assert_eq!(frame.src_addr().0, ethernet.src.0);
        prop_assert_eq!(frame.dst_addr().0, ethernet.dst.0);
        prop_assert_eq!(frame.ethertype(), smol::EthernetProtocol::Ipv4);
        let packet = smol::Ipv4Packet::new_checked(frame.payload()).unwrap();
        prop_assert!(packet.verify_checksum());
        prop_assert_eq!((packet.src_addr(), packet.dst_addr()), (ip.src, ip.dst));
        prop_assert_eq!((packet.hop_limit(), packet.ident()), (ip.ttl, ip.ident));
        prop_assert_eq!(packet.dscp() << 2 | packet.ecn(), ip.dscp_ecn);
        prop_assert_eq!(packet.dont_frag(), ip.dont_fragment);
        prop_assert_eq!((packet.more_frags(), packet.frag_offset()), (false, 0));
        let segment = smol::TcpPacket::new_checked(packet.payload()).unwrap();
        prop_assert!(segment.verify_checksum(&ip.src.into(), &ip.dst.into()));
        prop_assert_eq!((segment.src_port(), segment.dst_port()), (tcp.src_port, tcp.dst_port));
        prop_assert_eq!(segment.seq_number().0 as u32, tcp.seq.0);
        prop_assert_eq!(segment.ack_number().0 as u32, tcp.ack.0);
        prop_assert_eq!(segment.window_len(), tcp.window);
        prop_assert_eq!(segment.payload(), &payload[..]);
        let flags = [
            (segment.fin(), TcpFlags::FIN), (segment.syn(), TcpFlags::SYN),
            (segment.rst(), TcpFlags::RST), (segment.psh(), TcpFlags::PSH),
            (segment.ack(), TcpFlags::ACK), (segment.urg(), TcpFlags::URG),
            (segment.ece(), TcpFlags::ECE), (segment.cwr(), TcpFlags::CWR),
        ];
        for (set, flag) in flags {
            prop_assert_eq!(set, tcp.flags.contains(flag), "{}", flag);
        }
        // It keeps three blocks of four.
        let ours = TcpOptions {
            sack_blocks: tcp.options.sack_blocks.iter().copied().take(3).collect(),
            ..tcp.options
        };
        prop_assert_eq!(smoltcp_options(segment.options()), ours);
    }

    #[test]
    fn etherparse_reads_our_tcp(
        ethernet in ethernet(), ip in ipv4(), tcp in tcp(), payload in payload(),
    ) {
        let bytes = tcp_frame(ethernet, ip, tcp, &payload);
        let packet = SlicedPacket::from_ethernet(&bytes).unwrap();
        let Some(NetSlice::Ipv4(net)) = &packet.net else { panic!("no IPv4: {packet:?}") };
        let header = net.header().to_header();
        prop_assert_eq!(header.calc_header_checksum(), header.header_checksum);
        prop_assert_eq!((header.source, header.destination), (ip.src.octets(), ip.dst.octets()));
        prop_assert_eq!((header.time_to_live, header.identification), (ip.ttl, ip.ident));
        prop_assert_eq!(header.dscp.value() << 2 | header.ecn.value(), ip.dscp_ecn);
        let Some(TransportSlice::Tcp(slice)) = &packet.transport else {
            panic!("no TCP: {packet:?}")
        };
        let theirs = slice.to_header();
        let checksum = theirs.calc_checksum_ipv4(&header, slice.payload()).unwrap();
        prop_assert_eq!(theirs.checksum, checksum);
        prop_assert_eq!(theirs.source_port, tcp.src_port);
        prop_assert_eq!(theirs.destination_port, tcp.dst_port);
        prop_assert_eq!(theirs.sequence_number, tcp.seq.0);
        prop_assert_eq!(theirs.acknowledgment_number, tcp.ack.0);
        prop_assert_eq!(theirs.window_size, tcp.window);
        prop_assert_eq!(slice.payload(), &payload[..]);
        prop_assert_eq!(etherparse_options(theirs.options_iterator()), tcp.options);
    }

    #[test]
    fn we_read_smoltcp_tcp(
        (src, dst) in (ip(), ip()),
        (src_port, dst_port, window) in (1u16.., 1u16.., any::<u16>()),
        (seq, ack) in any::<(i32, Option<i32>)>(),
        control in prop_oneof![
            Just(smol::TcpControl::None), Just(smol::TcpControl::Psh), Just(smol::TcpControl::Syn),
            Just(smol::TcpControl::Fin), Just(smol::TcpControl::Rst),
        ],
        (mss, scale, sack_permitted) in any::<(Option<u16>, Option<u8>, bool)>(),
        timestamp in any::<Option<(u32, u32)>>(),
        payload in payload(),
    ) {
        let theirs = smol::TcpRepr {
            src_port,
            dst_port,
            control,
            seq_number: smol::TcpSeqNumber(seq),
            ack_number: ack.map(smol::TcpSeqNumber),
            window_len: window,
            window_scale: scale,
            max_seg_size: mss,
            sack_permitted,
            sack_ranges: [None; 3],
            timestamp: timestamp.map(|(tsval, tsecr)| smol::TcpTimestampRepr { tsval, tsecr }),
            payload: &payload,
        };
        let ip_repr = smol::Ipv4Repr {
            src_addr: src,
            dst_addr: dst,
            next_header: smol::IpProtocol::Tcp,
            payload_len: theirs.buffer_len(),
            hop_limit: 64,
        };
        let mut bytes = vec![0; 20 + theirs.buffer_len()];
        let capabilities = ChecksumCapabilities::default();
        ip_repr.emit(&mut smol::Ipv4Packet::new_unchecked(&mut bytes), &capabilities);
        let mut segment = smol::TcpPacket::new_unchecked(&mut bytes[20..]);
        theirs.emit(&mut segment, &src.into(), &dst.into(), &capabilities);

        let ip = Ipv4View::parse(&bytes).unwrap();
        prop_assert!(ip.verify_checksum());
        prop_assert_eq!((ip.src(), ip.dst(), ip.protocol()), (src, dst, Protocol::TCP));
        let tcp = TcpView::parse(ip.payload()).unwrap();
        prop_assert!(tcp.verify_checksum(src, dst));
        prop_assert_eq!((tcp.src_port(), tcp.dst_port()), (src_port, dst_port));
        prop_assert_eq!(tcp.seq(), SeqNumber(seq as u32));
        prop_assert_eq!(tcp.flags().contains(TcpFlags::ACK), ack.is_some());
        prop_assert!(ack.is_none_or(|ack| tcp.ack() == SeqNumber(ack as u32)));
        prop_assert_eq!(tcp.flags().contains(TcpFlags::SYN), control == smol::TcpControl::Syn);
        prop_assert_eq!(tcp.window(), window);
        prop_assert_eq!(tcp.payload(), &payload[..]);
        prop_assert_eq!(tcp.options(), TcpOptions {
            mss,
            window_scale: scale.map(|shift| shift.min(14)),
            sack_permitted,
            timestamp: timestamp.map(|(value, echo)| Timestamp { value, echo }),
            ..TcpOptions::NONE
        });
    }

    #[test]
    fn we_read_etherparse_tcp(
        ethernet in ethernet(),
        (src, dst) in (ip(), ip()),
        (src_port, dst_port, seq, ack, window) in any::<(u16, u16, u32, u32, u16)>(),
        (mss, scale) in (any::<u16>(), 0u8..=14),
        timestamp in any::<(u32, u32)>(),
        payload in payload(),
    ) {
        let mut bytes = Vec::new();
        PacketBuilder::ethernet2(ethernet.src.0, ethernet.dst.0)
            .ipv4(src.octets(), dst.octets(), 7)
            .tcp(src_port, dst_port, seq, window)
            .ack(ack)
            .syn()
            .ece()
            .options(&[
                TcpOptionElement::WindowScale(scale),
                TcpOptionElement::Timestamp(timestamp.0, timestamp.1),
                TcpOptionElement::SelectiveAcknowledgementPermitted,
                TcpOptionElement::MaximumSegmentSize(mss),
            ])
            .unwrap()
            .write_to_vec(&mut bytes, &payload)
            .unwrap();
        let view = EthernetView::parse(&bytes).unwrap();
        prop_assert_eq!((view.src(), view.dst()), (ethernet.src, ethernet.dst));
        prop_assert_eq!(view.ethertype(), EtherType::IPV4);
        let ip = Ipv4View::parse(view.payload()).unwrap();
        prop_assert!(ip.verify_checksum());
        prop_assert_eq!((ip.src(), ip.dst(), ip.ttl()), (src, dst, 7));
        let tcp = TcpView::parse(ip.payload()).unwrap();
        prop_assert!(tcp.verify_checksum(src, dst));
        prop_assert_eq!(TcpRepr::from_view(&tcp), TcpRepr {
            src_port,
            dst_port,
            seq: SeqNumber(seq),
            ack: SeqNumber(ack),
            flags: TcpFlags::SYN | TcpFlags::ACK | TcpFlags::ECE,
            window,
            options: TcpOptions {
                mss: Some(mss),
                window_scale: Some(scale),
                sack_permitted: true,
                timestamp: Some(Timestamp { value: timestamp.0, echo: timestamp.1 }),
                ..TcpOptions::NONE
            },
        });
        prop_assert_eq!(tcp.payload(), &payload[..]);
    }

    #[test]
    fn udp_both_ways(
        ethernet in ethernet(), ip in ipv4(), ports in any::<(u16, u16)>(), payload in payload(),
    ) {
        let ip = Ipv4Repr { protocol: Protocol::UDP, ..ip };
        let repr = UdpRepr { src_port: ports.0, dst_port: ports.1, payload_len: payload.len() };
        let ours = frame(ethernet, ip, 8 + payload.len(), |out| {
            out[8..].copy_from_slice(&payload);
            repr.emit(out, ip.src, ip.dst, Sum::of(&payload));
        });
        let datagram = smol::UdpPacket::new_checked(&ours[34..]).unwrap();
        prop_assert!(datagram.verify_checksum(&ip.src.into(), &ip.dst.into()));
        prop_assert_eq!((datagram.src_port(), datagram.dst_port()), ports);
        prop_assert_eq!(datagram.payload(), &payload[..]);

        let mut theirs = Vec::new();
        PacketBuilder::ethernet2(ethernet.src.0, ethernet.dst.0)
            .ipv4(ip.src.octets(), ip.dst.octets(), ip.ttl)
            .udp(ports.0, ports.1)
            .write_to_vec(&mut theirs, &payload)
            .unwrap();
        prop_assert_eq!(&theirs[34..], &ours[34..]);
        let view = UdpView::parse(&theirs[34..]).unwrap();
        prop_assert!(view.verify_checksum(ip.src, ip.dst));
        prop_assert_eq!(UdpRepr::from_view(&view), repr);
    }

    #[test]
    fn icmp_both_ways(repr in icmp(), (ident, seq) in any::<(u16, u16)>(), data in payload()) {
        let mut ours = vec![0; 8 + data.len()];
        ours[8..].copy_from_slice(&data);
        repr.emit(&mut ours, Sum::of(&data));
        prop_assert!(smol::Icmpv4Packet::new_checked(&ours).unwrap().verify_checksum());
        // It takes timestamp messages (13 and 14) of exactly 20 bytes only; ours have any data.
        if !matches!(repr, IcmpRepr::Other { kind: 13 | 14, .. }) {
            let (theirs, rest) = etherparse::Icmpv4Header::from_slice(&ours).unwrap();
            prop_assert_eq!(theirs.icmp_type.calc_checksum(rest), theirs.checksum);
            same_icmp_meaning(repr, &theirs.icmp_type);
        }

        let capabilities = ChecksumCapabilities::default();
        let theirs = smol::Icmpv4Repr::EchoReply { ident, seq_no: seq, data: &data };
        let mut bytes = vec![0; theirs.buffer_len()];
        theirs.emit(&mut smol::Icmpv4Packet::new_unchecked(&mut bytes[..]), &capabilities);
        let view = IcmpView::parse(&bytes).unwrap();
        prop_assert_eq!(view.repr(), IcmpRepr::EchoReply { ident, seq });
        prop_assert_eq!(view.data(), &data[..]);
    }

    #[test]
    fn arp_both_ways(repr in arp()) {
        let theirs = smol::ArpRepr::EthernetIpv4 {
            operation: match repr.operation {
                ArpOperation::Request => smol::ArpOperation::Request,
                ArpOperation::Reply => smol::ArpOperation::Reply,
            },
            source_hardware_addr: smol::EthernetAddress(repr.sender_mac.0),
            source_protocol_addr: repr.sender_ip,
            target_hardware_addr: smol::EthernetAddress(repr.target_mac.0),
            target_protocol_addr: repr.target_ip,
        };
        let mut their_bytes = [0; 28];
        theirs.emit(&mut smol::ArpPacket::new_unchecked(&mut their_bytes[..]));
        let mut our_bytes = [0; 28];
        repr.emit(&mut our_bytes);
        prop_assert_eq!(our_bytes, their_bytes);
        prop_assert_eq!(ArpRepr::parse(&their_bytes), Ok(repr));
    }

    /// On arbitrary bytes the header fields that both accept agree.
    #[test]
    fn etherparse_agrees_on_arbitrary_ipv4(
        mut bytes in prop::collection::vec(any::<u8>(), 20..100), ihl in 5u8..16, slack in 0u8..40,
    ) {
        bytes[0] = 0x40 | ihl;
        bytes[2] = 0;
        bytes[3] = (bytes.len() as u8).saturating_sub(slack);
        let ours = Ipv4View::parse(&bytes);
        let theirs = etherparse::Ipv4HeaderSlice::from_slice(&bytes);
        let Ok(view) = ours else {
            let covers = theirs.is_ok_and(|header| usize::from(bytes[3]) >= header.slice().len());
            prop_assert!(!covers, "only we reject {:02x?}", bytes);
            return Ok(());
        };
        let header = theirs.unwrap().to_header();
        prop_assert_eq!(view.header_len(), header.header_len());
        prop_assert_eq!(view.total_len(), usize::from(header.total_len));
        prop_assert_eq!(view.options(), header.options.as_slice());
        prop_assert_eq!(view.fragment_offset(), header.fragment_offset.value() * 8);
        prop_assert_eq!(view.more_fragments(), header.more_fragments);
        prop_assert_eq!(view.dont_fragment(), header.dont_fragment);
        prop_assert_eq!(view.is_fragment(), header.is_fragmenting_payload());
        prop_assert_eq!(view.protocol().0, header.protocol.0);
        prop_assert_eq!(view.src(), Ipv4Addr::from(header.source));
        prop_assert_eq!(view.verify_checksum(), header.calc_header_checksum() == header.header_checksum);
    }
}

/// Fails unless etherparse's reading of a message says what `repr` says.
fn same_icmp_meaning(repr: IcmpRepr, theirs: &Icmpv4Type) {
    match (repr, theirs) {
        (IcmpRepr::EchoRequest { ident, seq }, Icmpv4Type::EchoRequest(echo))
        | (IcmpRepr::EchoReply { ident, seq }, Icmpv4Type::EchoReply(echo)) => {
            assert_eq!((echo.id, echo.seq), (ident, seq));
        }
        (IcmpRepr::EchoRequest { .. } | IcmpRepr::EchoReply { .. }, other) => {
            panic!("{repr:?} was read as {other:?}")
        }
        (
            IcmpRepr::DestUnreachable { code, next_hop_mtu },
            Icmpv4Type::DestinationUnreachable(header),
        ) => {
            assert_eq!(header.code_u8(), code.0);
            if let etherparse::icmpv4::DestUnreachableHeader::FragmentationNeeded {
                next_hop_mtu: mtu,
            } = header
            {
                assert_eq!(*mtu, next_hop_mtu);
            }
        }
        (IcmpRepr::TimeExceeded { code }, Icmpv4Type::TimeExceeded(header)) => {
            assert_eq!(header.code_u8(), code.0);
        }
        (IcmpRepr::ParameterProblem { pointer }, Icmpv4Type::ParameterProblem(header)) => {
            let expected =
                etherparse::icmpv4::ParameterProblemHeader::PointerIndicatesError(pointer);
            assert_eq!(header, &expected);
        }
        // Codes and types that it does not name: the checksum above is what can be compared.
        _ => {}
    }
}

/// What smoltcp reads from option bytes, in this crate's terms.
fn smoltcp_options(mut bytes: &[u8]) -> TcpOptions {
    let mut options = TcpOptions::NONE;
    while !bytes.is_empty() {
        let (rest, option) = smol::TcpOption::parse(bytes).unwrap();
        match option {
            smol::TcpOption::MaxSegmentSize(mss) => options.mss = Some(mss),
            smol::TcpOption::WindowScale(shift) => options.window_scale = Some(shift),
            smol::TcpOption::SackPermitted => options.sack_permitted = true,
            smol::TcpOption::SackRange(ranges) => {
                options.sack_blocks = blocks(ranges.into_iter().flatten());
            }
            smol::TcpOption::TimeStamp { tsval, tsecr } => {
                options.timestamp = Some(Timestamp { value: tsval, echo: tsecr });
            }
            smol::TcpOption::EndOfList
            | smol::TcpOption::NoOperation
            | smol::TcpOption::Unknown { .. } => {}
        }
        bytes = rest;
    }
    options
}

/// What etherparse reads from option bytes, in this crate's terms.
fn etherparse_options(elements: etherparse::TcpOptionsIterator<'_>) -> TcpOptions {
    let mut options = TcpOptions::NONE;
    for element in elements {
        match element.unwrap() {
            TcpOptionElement::Noop => {}
            TcpOptionElement::MaximumSegmentSize(mss) => options.mss = Some(mss),
            TcpOptionElement::WindowScale(shift) => options.window_scale = Some(shift),
            TcpOptionElement::SelectiveAcknowledgementPermitted => options.sack_permitted = true,
            TcpOptionElement::SelectiveAcknowledgement(first, rest) => {
                options.sack_blocks =
                    blocks(std::iter::once(first).chain(rest.into_iter().flatten()));
            }
            TcpOptionElement::Timestamp(value, echo) => {
                options.timestamp = Some(Timestamp { value, echo });
            }
        }
    }
    options
}

fn blocks(edges: impl Iterator<Item = (u32, u32)>) -> SackBlocks {
    edges.map(|(left, right)| (SeqNumber(left), SeqNumber(right))).collect()
}
