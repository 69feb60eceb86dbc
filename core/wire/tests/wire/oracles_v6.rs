//! smoltcp and etherparse read the IPv6 and ICMPv6 that this crate writes, and write what it reads.

use std::net::Ipv6Addr;

use etherparse::{Icmpv6Header, Icmpv6Type, Ipv6Slice, PacketBuilder};
use proptest::prelude::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire as smol;
use wire::{
    Icmpv6Repr, Icmpv6View, Ipv6Repr, Ipv6View, MacAddr, Protocol, Sum, TimeExceededCode,
    pseudo_header_sum,
};

use crate::strategies::{extensions, icmpv6, ipv6, ipv6_addr, payload};

/// A whole packet around `transport`.
fn packet(ip: Ipv6Repr, transport: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; Ipv6Repr::HEADER_LEN];
    Ipv6Repr { payload_len: transport.len(), ..ip }.emit(&mut packet);
    packet.extend(transport);
    packet
}

fn icmp_message(repr: Icmpv6Repr, (src, dst): (Ipv6Addr, Ipv6Addr), data: &[u8]) -> Vec<u8> {
    let mut message = vec![0; repr.header_len()];
    repr.emit(&mut message, src, dst, (Sum::of(data), data.len()));
    message.extend(data);
    message
}

proptest! {
    #[test]
    fn they_read_our_header(ip in ipv6(), payload in payload()) {
        let bytes = packet(ip, &payload);
        let theirs = smol::Ipv6Packet::new_checked(&bytes).unwrap();
        prop_assert_eq!((theirs.version(), theirs.traffic_class()), (6, ip.dscp_ecn));
        prop_assert_eq!((theirs.flow_label(), theirs.hop_limit()), (ip.flow_label, ip.hop_limit));
        prop_assert_eq!((theirs.src_addr(), theirs.dst_addr()), (ip.src, ip.dst));
        prop_assert_eq!(u8::from(theirs.next_header()), ip.protocol.0);
        prop_assert_eq!((theirs.total_len(), theirs.payload()), (bytes.len(), &payload[..]));
        let (theirs, rest) = etherparse::Ipv6Header::from_slice(&bytes).unwrap();
        prop_assert_eq!(theirs.dscp().value() << 2 | theirs.ecn().value(), ip.dscp_ecn);
        prop_assert_eq!(theirs.flow_label.value(), ip.flow_label);
        prop_assert_eq!((theirs.source_addr(), theirs.destination_addr()), (ip.src, ip.dst));
        prop_assert_eq!((theirs.next_header.0, theirs.hop_limit), (ip.protocol.0, ip.hop_limit));
        prop_assert_eq!((usize::from(theirs.payload_length), rest), (payload.len(), &payload[..]));
        prop_assert_eq!(&theirs.to_bytes()[..], &bytes[..40]);
    }

    #[test]
    fn udp_and_its_pseudo_header(
        ip in ipv6(), ports in any::<(u16, u16)>(), payload in payload(),
    ) {
        let mut theirs = Vec::new();
        PacketBuilder::ipv6(ip.src.octets(), ip.dst.octets(), ip.hop_limit)
            .udp(ports.0, ports.1)
            .write_to_vec(&mut theirs, &payload)
            .unwrap();
        let view = Ipv6View::parse(&theirs).unwrap();
        prop_assert_eq!(Ipv6Repr::from_view(&view), Ipv6Repr {
            hop_limit: ip.hop_limit,
            ..Ipv6Repr::new(ip.src, ip.dst, Protocol::UDP, 8 + payload.len())
        });
        let sum = pseudo_header_sum(view.src(), view.dst(), Protocol::UDP, view.payload().len());
        prop_assert!(sum.add(Sum::of(view.payload())).is_valid());
    }

    /// What this crate accepts, etherparse divides in the same way; a fragment's payload it reads on through.
    #[test]
    fn etherparse_agrees_on_chains(ip in ipv6(), (first, body) in extensions()) {
        let bytes = packet(Ipv6Repr { protocol: Protocol(first), ..ip }, &body);
        let Ok(view) = Ipv6View::parse(&bytes) else { return Ok(()) };
        let theirs = Ipv6Slice::from_slice(&bytes);
        if let Some(fragment) = view.fragment() {
            let header = etherparse::Ipv6FragmentHeaderSlice::from_slice(&bytes[view.header_len() - 8..]);
            let header = header.unwrap().to_header();
            prop_assert!(header.is_fragmenting_payload());
            prop_assert_eq!(header.fragment_offset.value() * 8, fragment.offset);
            prop_assert_eq!(header.more_fragments, fragment.more);
            prop_assert_eq!(header.identification, fragment.ident);
            prop_assert_eq!(header.next_header.0, view.protocol().0);
            prop_assert_eq!(&bytes[view.header_len()..], view.payload());
            return Ok(());
        }
        let theirs = theirs.unwrap();
        prop_assert!(!theirs.is_payload_fragmented());
        prop_assert_eq!(theirs.payload().ip_number.0, view.protocol().0);
        prop_assert_eq!(theirs.payload().payload, view.payload());
        prop_assert_eq!(40 + theirs.extensions().slice().len(), view.header_len());
    }

    #[test]
    fn they_read_our_icmp((src, dst, repr) in icmpv6(), data in payload()) {
        let is_neighbor = matches!(
            repr,
            Icmpv6Repr::NeighborSolicitation { .. } | Icmpv6Repr::NeighborAdvertisement { .. }
        );
        let message = icmp_message(repr, (src, dst), if is_neighbor { &[] } else { &data });
        prop_assert!(smol::Icmpv6Packet::new_unchecked(&message).verify_checksum(&src, &dst));
        if let Ok((theirs, rest)) = Icmpv6Header::from_slice(&message) {
            let checksum = theirs.icmp_type.calc_checksum(src.octets(), dst.octets(), rest);
            prop_assert_eq!(theirs.checksum, checksum.unwrap());
            same_meaning(repr, &theirs.icmp_type);
        } else {
            prop_assert!(matches!(repr, Icmpv6Repr::Other { .. }), "{:?}", repr);
        }
        if is_neighbor {
            let packet = smol::Icmpv6Packet::new_checked(&message[..]).unwrap();
            prop_assert_eq!(from_smoltcp(smol::NdiscRepr::parse(&packet).unwrap()), repr);
        }
    }

    #[test]
    fn we_read_their_echo(
        (src, dst) in (ipv6_addr(), ipv6_addr()), (ident, seq) in any::<(u16, u16)>(), data in payload(),
    ) {
        let mut theirs = Vec::new();
        PacketBuilder::ipv6(src.octets(), dst.octets(), 9)
            .icmpv6_echo_request(ident, seq)
            .write_to_vec(&mut theirs, &data)
            .unwrap();
        let ip = Ipv6View::parse(&theirs).unwrap();
        prop_assert_eq!((ip.protocol(), ip.hop_limit()), (Protocol::ICMPV6, 9));
        let view = Icmpv6View::parse(ip.payload(), ip.src(), ip.dst()).unwrap();
        prop_assert_eq!(view.repr(), Icmpv6Repr::EchoRequest { ident, seq });
        prop_assert_eq!(view.data(), &data[..]);
        prop_assert_eq!(icmp_message(view.repr(), (src, dst), &data), ip.payload());
    }

    #[test]
    fn we_read_their_neighbour_discovery(
        src in ipv6_addr().prop_filter("a host has an address", |src| !src.is_unspecified()),
        (target, dst) in (ipv6_addr(), ipv6_addr()),
        flags in 0u8..8,
        mac in any::<[u8; 6]>(),
    ) {
        prop_assume!(!target.is_multicast() && !dst.is_multicast());
        let lladdr = Some(smol::RawHardwareAddress::from(smol::EthernetAddress(mac)));
        let flags = smol::NdiscNeighborFlags::from_bits_truncate(flags << 5);
        for theirs in [
            smol::NdiscRepr::NeighborSolicit { target_addr: target, lladdr },
            smol::NdiscRepr::NeighborAdvert { flags, target_addr: target, lladdr },
        ] {
            let message = smol::Icmpv6Repr::Ndisc(theirs);
            let mut bytes = vec![0; message.buffer_len()];
            let mut packet = smol::Icmpv6Packet::new_unchecked(&mut bytes[..]);
            message.emit(&src, &dst, &mut packet, &ChecksumCapabilities::default());
            let view = Icmpv6View::parse(&bytes, src, dst).unwrap();
            prop_assert_eq!(view.repr(), from_smoltcp(theirs));
        }
    }
}

/// smoltcp's reading of neighbour discovery, in this crate's terms.
fn from_smoltcp(theirs: smol::NdiscRepr<'_>) -> Icmpv6Repr {
    let mac = |lladdr: Option<smol::RawHardwareAddress>| {
        lladdr.map(|address| MacAddr(address.as_bytes()[..6].try_into().unwrap()))
    };
    match theirs {
        smol::NdiscRepr::NeighborSolicit { target_addr, lladdr } => {
            Icmpv6Repr::NeighborSolicitation { target: target_addr, source_link: mac(lladdr) }
        }
        smol::NdiscRepr::NeighborAdvert { flags, target_addr, lladdr } => {
            Icmpv6Repr::NeighborAdvertisement {
                target: target_addr,
                router: flags.contains(smol::NdiscNeighborFlags::ROUTER),
                solicited: flags.contains(smol::NdiscNeighborFlags::SOLICITED),
                override_: flags.contains(smol::NdiscNeighborFlags::OVERRIDE),
                target_link: mac(lladdr),
            }
        }
        other => panic!("no neighbour message: {other:?}"),
    }
}

/// Fails unless etherparse's reading of a message says what `repr` says.
fn same_meaning(repr: Icmpv6Repr, theirs: &Icmpv6Type) {
    match (repr, theirs) {
        (Icmpv6Repr::EchoRequest { ident, seq }, Icmpv6Type::EchoRequest(echo))
        | (Icmpv6Repr::EchoReply { ident, seq }, Icmpv6Type::EchoReply(echo)) => {
            assert_eq!((echo.id, echo.seq), (ident, seq));
        }
        (Icmpv6Repr::DestUnreachable { code }, Icmpv6Type::DestinationUnreachable(theirs)) => {
            assert_eq!(theirs.code_u8(), code.0);
        }
        (Icmpv6Repr::PacketTooBig { mtu }, Icmpv6Type::PacketTooBig { mtu: theirs }) => {
            assert_eq!(*theirs, mtu);
        }
        (Icmpv6Repr::TimeExceeded { code }, Icmpv6Type::TimeExceeded(theirs)) => {
            assert_eq!(TimeExceededCode(theirs.code_u8()), code);
        }
        (Icmpv6Repr::ParameterProblem { code, pointer }, Icmpv6Type::ParameterProblem(theirs)) => {
            assert_eq!((theirs.code.code_u8(), theirs.pointer), (code.0, pointer));
        }
        (Icmpv6Repr::NeighborSolicitation { .. }, Icmpv6Type::NeighborSolicitation)
        | (Icmpv6Repr::Other { .. }, _) => {}
        (
            Icmpv6Repr::NeighborAdvertisement { router, solicited, override_, .. },
            Icmpv6Type::NeighborAdvertisement(theirs),
        ) => {
            let flags = (theirs.router, theirs.solicited, theirs.r#override);
            assert_eq!(flags, (router, solicited, override_));
        }
        (repr, other) => panic!("{repr:?} was read as {other:?}"),
    }
}
