//! Arbitrary headers, of the states that an `emit` can say.

use proptest::prelude::*;
use wire::{
    ArpOperation, ArpRepr, EtherType, EthernetRepr, IcmpRepr, Ipv4Addr, Ipv4Repr, MacAddr,
    Protocol, SackBlocks, SeqNumber, TcpFlags, TcpOptions, TcpRepr, TimeExceededCode, Timestamp,
    UnreachableCode,
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
