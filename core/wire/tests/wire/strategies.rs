//! Arbitrary headers, of the states that an `emit` can say.

use std::net::Ipv6Addr;

use proptest::prelude::*;
use wire::{
    ArpOperation, ArpRepr, EtherType, EthernetRepr, IcmpRepr, Icmpv6Repr, Ipv4Addr, Ipv4Repr,
    Ipv6Repr, MacAddr, ParameterProblemCode, Protocol, SackBlocks, SeqNumber, TcpFlags, TcpOptions,
    TcpRepr, TimeExceededCode, Timestamp, UnreachableCode, UnreachableCodeV6, solicited_node,
};

pub fn ip() -> impl Strategy<Value = Ipv4Addr> {
    any::<[u8; 4]>().prop_map(Ipv4Addr::from)
}

pub fn mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(MacAddr)
}

pub fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
}

pub fn ethernet() -> impl Strategy<Value = EthernetRepr> {
    (mac(), mac(), prop_oneof![Just(0x0800), Just(0x0806), Just(0x86dd), any::<u16>()]).prop_map(
        |(dst, src, ethertype)| EthernetRepr { dst, src, ethertype: EtherType(ethertype) },
    )
}

pub fn arp() -> impl Strategy<Value = ArpRepr> {
    let operation = prop_oneof![Just(ArpOperation::Request), Just(ArpOperation::Reply)];
    (operation, mac(), ip(), mac(), ip()).prop_map(
        |(operation, sender_mac, sender_ip, target_mac, target_ip)| ArpRepr {
            operation,
            sender_mac,
            sender_ip,
            target_mac,
            target_ip,
        },
    )
}

pub fn ipv4() -> impl Strategy<Value = Ipv4Repr> {
    let protocol = prop_oneof![Just(1u8), Just(6), Just(17), any::<u8>()];
    (ip(), ip(), protocol, any::<(u8, u16, u8, bool)>(), 0..200usize).prop_map(
        |(src, dst, protocol, (ttl, ident, dscp_ecn, dont_fragment), payload_len)| Ipv4Repr {
            src,
            dst,
            protocol: Protocol(protocol),
            ttl,
            ident,
            dscp_ecn,
            dont_fragment,
            payload_len,
        },
    )
}

pub fn icmp() -> impl Strategy<Value = IcmpRepr> {
    prop_oneof![
        any::<(u16, u16)>().prop_map(|(ident, seq)| IcmpRepr::EchoRequest { ident, seq }),
        any::<(u16, u16)>().prop_map(|(ident, seq)| IcmpRepr::EchoReply { ident, seq }),
        any::<(u8, u16)>().prop_map(|(code, mtu)| {
            let code = UnreachableCode(code % 8);
            let has_mtu = code == UnreachableCode::FRAGMENTATION_NEEDED;
            IcmpRepr::DestUnreachable { code, next_hop_mtu: if has_mtu { mtu } else { 0 } }
        }),
        (0u8..4).prop_map(|code| IcmpRepr::TimeExceeded { code: TimeExceededCode(code) }),
        any::<u8>().prop_map(|pointer| IcmpRepr::ParameterProblem { pointer }),
        // Types 13 and up have no variant of their own.
        (13u8.., any::<u8>(), any::<u32>()).prop_map(|(kind, code, rest)| IcmpRepr::Other {
            kind,
            code,
            rest
        }),
    ]
}

pub fn ipv6_addr() -> impl Strategy<Value = Ipv6Addr> {
    let group = any::<Ipv6Addr>().prop_map(solicited_node);
    prop_oneof![4 => any::<Ipv6Addr>(), 1 => group, 1 => Just(Ipv6Addr::UNSPECIFIED)]
}

/// Headers whose protocol is none of the extension headers that this crate reads, nor one of etherparse's.
pub fn ipv6() -> impl Strategy<Value = Ipv6Repr> {
    let protocol = prop_oneof![Just(58u8), Just(6), Just(17), Just(59), 61u8..=134];
    let label = 0u32..1 << 20;
    (ipv6_addr(), ipv6_addr(), protocol, any::<(u8, u8)>(), label, 0..200usize).prop_map(
        |(src, dst, protocol, (hop_limit, dscp_ecn), flow_label, payload_len)| Ipv6Repr {
            src,
            dst,
            protocol: Protocol(protocol),
            hop_limit,
            dscp_ecn,
            flow_label,
            payload_len,
        },
    )
}

/// Extension headers in any order, most of them well formed, with a payload: the first one's number, and all bytes.
pub fn extensions() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let options = prop_oneof![
        4 => (0u8..=4).prop_map(|len| [&[1, len][..], &vec![0; usize::from(len)]].concat()),
        2 => Just(vec![0]),
        2 => (2u8..64, prop::collection::vec(any::<u8>(), 0..9))
            .prop_map(|(kind, data)| [&[kind, data.len() as u8][..], &data].concat()),
        1 => prop::collection::vec(any::<u8>(), 1..4),
    ];
    let options = prop::collection::vec(options, 0..4).prop_map(|options| options.concat());
    let route = (any::<u8>(), prop_oneof![4 => Just(0u8), 1 => any::<u8>()], 0usize..20)
        .prop_map(|(kind, left, len)| [&[kind, left][..], &vec![0; len]].concat());
    let word = prop_oneof![4 => Just(0u16), 1 => any::<u16>()];
    let fragment = (word, any::<u32>())
        .prop_map(|(word, ident)| [&word.to_be_bytes()[..], &ident.to_be_bytes()].concat());
    let header = prop_oneof![
        4 => options.prop_map(|options| (60u8, options)),
        2 => route.prop_map(|route| (43, route)),
        2 => fragment.prop_map(|fragment| (44, fragment)),
    ];
    let chain = prop::collection::vec(header, 1..7);
    let last = prop_oneof![Just(6u8), Just(17), Just(58), Just(59)];
    (any::<bool>(), chain, last, payload()).prop_map(|(hop_by_hop, mut chain, last, payload)| {
        if hop_by_hop && chain[0].0 == 60 {
            chain[0].0 = 0;
        }
        let nexts = chain.iter().skip(1).map(|header| header.0).chain([last]);
        let mut body = Vec::new();
        for ((_, content), next) in chain.iter().zip(nexts) {
            let units = (content.len() + 2).div_ceil(8);
            let mut header = [&[next, (units - 1) as u8][..], content].concat();
            header.resize(units * 8, 0);
            body.extend(header);
        }
        body.extend(payload);
        (chain[0].0, body)
    })
}

/// A message and the packet's addresses, which fit it (RFC 4861 §7.1).
pub fn icmpv6() -> impl Strategy<Value = (Ipv6Addr, Ipv6Addr, Icmpv6Repr)> {
    let host = || {
        any::<Ipv6Addr>()
            .prop_filter("unicast", |addr| !addr.is_multicast() && !addr.is_unspecified())
    };
    let link = || prop::option::of(mac());
    let plain = prop_oneof![
        any::<(u16, u16)>().prop_map(|(ident, seq)| Icmpv6Repr::EchoRequest { ident, seq }),
        any::<(u16, u16)>().prop_map(|(ident, seq)| Icmpv6Repr::EchoReply { ident, seq }),
        (0u8..7).prop_map(|code| Icmpv6Repr::DestUnreachable { code: UnreachableCodeV6(code) }),
        any::<u32>().prop_map(|mtu| Icmpv6Repr::PacketTooBig { mtu }),
        (0u8..2).prop_map(|code| Icmpv6Repr::TimeExceeded { code: TimeExceededCode(code) }),
        (0u8..3, any::<u32>()).prop_map(|(code, pointer)| {
            Icmpv6Repr::ParameterProblem { code: ParameterProblemCode(code), pointer }
        }),
        // Types from 137 and from 5 have no variant of their own.
        (prop_oneof![137u8.., 5u8..128], any::<u8>())
            .prop_map(|(kind, code)| Icmpv6Repr::Other { kind, code }),
    ];
    let advertisement = (host(), any::<(bool, bool, bool)>(), link()).prop_map(
        |(target, (router, solicited, override_), target_link)| Icmpv6Repr::NeighborAdvertisement {
            target,
            router,
            solicited,
            override_,
            target_link,
        },
    );
    let probe = host().prop_map(|target| {
        let repr = Icmpv6Repr::NeighborSolicitation { target, source_link: None };
        (Ipv6Addr::UNSPECIFIED, solicited_node(target), repr)
    });
    let solicitation = (host(), link())
        .prop_map(|(target, source_link)| Icmpv6Repr::NeighborSolicitation { target, source_link });
    prop_oneof![
        7 => (ipv6_addr(), ipv6_addr(), plain),
        2 => (host(), ipv6_addr(), solicitation),
        2 => (ipv6_addr(), host(), advertisement),
        1 => probe,
    ]
}

fn seq() -> impl Strategy<Value = SeqNumber> {
    any::<u32>().prop_map(SeqNumber)
}

fn timestamp() -> impl Strategy<Value = Timestamp> {
    any::<(u32, u32)>().prop_map(|(value, echo)| Timestamp { value, echo })
}

fn sack(max: usize) -> impl Strategy<Value = SackBlocks> {
    prop::collection::vec((seq(), seq()), 0..=max).prop_map(|blocks| blocks.into_iter().collect())
}

/// Combinations that fit in 40 bytes: a SYN's, a bare timestamp, and acknowledgements with SACK.
pub fn tcp_options() -> impl Strategy<Value = TcpOptions> {
    let syn = (
        prop::option::of(any::<u16>()),
        prop::option::of(0u8..=14),
        any::<bool>(),
        prop::option::of(timestamp()),
    )
        .prop_map(|(mss, window_scale, sack_permitted, timestamp)| TcpOptions {
            mss,
            window_scale,
            sack_permitted,
            timestamp,
            ..TcpOptions::NONE
        });
    prop_oneof![
        Just(TcpOptions::NONE),
        syn,
        timestamp().prop_map(TcpOptions::with_timestamp),
        sack(4).prop_map(|sack_blocks| TcpOptions { sack_blocks, ..TcpOptions::NONE }),
        (timestamp(), sack(3)).prop_map(|(timestamp, sack_blocks)| TcpOptions {
            timestamp: Some(timestamp),
            sack_blocks,
            ..TcpOptions::NONE
        }),
    ]
}

pub fn tcp() -> impl Strategy<Value = TcpRepr> {
    (any::<(u16, u16, u8, u16)>(), seq(), seq(), tcp_options()).prop_map(
        |((src_port, dst_port, flags, window), seq, ack, options)| TcpRepr {
            src_port,
            dst_port,
            seq,
            ack,
            flags: TcpFlags(flags),
            window,
            options,
        },
    )
}
