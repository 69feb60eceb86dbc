//! Encapsulation and decapsulation: together they change nothing, and each refuses what it must.

use std::net::Ipv4Addr;

use proptest::prelude::*;
use services::{Decapsulation, DscpModel, Layer, Refused, Service, TunnelConfig};
use wire::{Endpoint, EtherType, EthernetRepr, EthernetView, MacAddr, Sum};

use crate::packets::{LOCAL, REMOTE, assert_ipv4, serve, tunnel, udp};

fn packet(dscp_ecn: u8, payload_len: usize) -> Vec<u8> {
    let endpoint = |last: u8, port| Endpoint::new(Ipv4Addr::new(192, 0, 2, last), port);
    udp(endpoint(1, 1_000), endpoint(2, 2_000), dscp_ecn, &vec![0x5a; payload_len])
}

proptest! {
    #[test]
    fn in_and_out_changes_nothing(
        payload_len in 0usize..1_400,
        class in any::<u8>(),
        key in any::<Option<u32>>(),
        (sequence, checksum, pipe) in any::<(bool, bool, bool)>(),
        padding in 0usize..20,
    ) {
        let (mut entry, mut exit) = tunnel(|config| {
            (config.key, config.sequence, config.checksum) = (key, sequence, checksum);
            config.dscp = if pipe { DscpModel::Pipe(5) } else { DscpModel::Uniform };
        });
        let packet = packet(class, payload_len);
        let padded = [&packet[..], &vec![0; padding]].concat();
        for _ in 0..3 {
            let outer = serve(&mut entry, &padded).expect("encapsulated");
            prop_assert_eq!(outer.len(), entry.reply_len_max(packet.len()));
            let outer = [&outer[..], &vec![0; padding]].concat();
            prop_assert_eq!(&serve(&mut exit, &outer).expect("decapsulated"), &packet);
        }
    }
}

#[test]
fn congestion_and_codepoint_come_through() {
    // ECT(0), expedited forwarding.
    let (mut entry, mut exit) = tunnel(|_| ());
    let mut outer = serve(&mut entry, &packet(0xba, 10)).expect("encapsulated");
    assert_eq!(outer[..2], [0x6b, 0xa0], "version 6, traffic class 0xba");
    // A router on the way marks congestion (CE) and another class.
    (outer[0], outer[1]) = (0x62, 0xb0);
    let inner = serve(&mut exit, &outer).expect("decapsulated");
    assert_eq!(inner[1], 0x2b);
    assert_ipv4(&inner);

    let (mut entry, mut exit) = tunnel(|config| config.dscp = DscpModel::Pipe(10));
    let mut outer = serve(&mut entry, &packet(0xba, 10)).expect("encapsulated");
    assert_eq!(outer[..2], [0x62, 0xa0], "codepoint 10 and the packet's own ECN");
    outer[1] = 0xb0;
    let inner = serve(&mut exit, &outer).expect("decapsulated");
    assert_eq!(inner[1], 0xbb, "its own codepoint, and CE");
    assert_ipv4(&inner);

    let mut outer = serve(&mut entry, &packet(0xb8, 10)).expect("encapsulated");
    outer[1] = 0xb0;
    assert_eq!(serve(&mut exit, &outer), Err(Refused::Congestion));
}

#[test]
fn a_forwarder_takes_a_hop() {
    let (mut entry, mut exit) = tunnel(|config| config.forwarding = true);
    let mut packet = packet(0, 10);
    let outer = serve(&mut entry, &packet).expect("encapsulated");
    let inner = serve(&mut exit, &outer).expect("decapsulated");
    assert_eq!((packet[8], inner[8]), (64, 63));
    assert_ipv4(&inner);
    for ttl in [0, 1] {
        packet[8] = ttl;
        packet[10..12].fill(0);
        let checksum = Sum::of(&packet[..20]).finish();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(serve(&mut entry, &packet), Err(Refused::HopLimit));
    }
}

#[test]
fn the_mtu_is_kept_and_told() {
    let (mut entry, _) = tunnel(|config| config.key = Some(1));
    assert_eq!(entry.mtu(), 1_500 - 48);
    let outer = serve(&mut entry, &packet(0, 1_452 - 28)).expect("just fits");
    assert_eq!(outer.len(), 1_500);
    let refused = serve(&mut entry, &packet(0, 1_453 - 28));
    assert_eq!(refused, Err(Refused::TooBig { length: 1_453, mtu: 1_452 }));
}

#[test]
fn an_entry_refuses_what_is_no_ipv4_packet() {
    let (mut entry, _) = tunnel(|_| ());
    let mut wrong = packet(0, 10);
    wrong[9] ^= 1;
    assert_eq!(serve(&mut entry, &wrong), Err(Refused::Checksum { layer: Layer::Ipv4 }));
    wrong[0] = 0x65;
    assert!(matches!(serve(&mut entry, &wrong), Err(Refused::Malformed { .. })));
    assert_eq!(serve(&mut entry, &[]), Err(Refused::Truncated { layer: Layer::Ipv4 }));
}

#[test]
fn an_exit_names_what_is_wrong() {
    let (mut entry, _) = tunnel(|config| (config.key, config.checksum) = (Some(7), true));
    let good = serve(&mut entry, &packet(0, 10)).expect("encapsulated");
    let ipv6 = Layer::Ipv6;
    let gre = Layer::Gre;
    // Where, what instead, and the refusal. The GRE header begins at 40; a packet with a wrong flag has a wrong
    // checksum too, which is looked at later.
    let cases: [(usize, u8, Refused); 11] = [
        (0, 0x40, Refused::Version { layer: ipv6, found: 4, expected: 6 }),
        (5, 0xff, Refused::Truncated { layer: ipv6 }),
        (5, 2, Refused::Truncated { layer: gre }),
        (6, 41, Refused::Protocol { layer: ipv6, found: 41 }),
        (23, 9, Refused::Address { layer: ipv6 }),
        (39, 9, Refused::Address { layer: ipv6 }),
        (40, 0xe0, Refused::Malformed { layer: gre, field: "reserved flag (RFC 1701)" }),
        (40, 0xa8, Refused::Malformed { layer: gre, field: "reserved flag (RFC 1701)" }),
        (41, 1, Refused::Version { layer: gre, found: 1, expected: 0 }),
        (60, 1, Refused::Checksum { layer: gre }),
        (51, 8, Refused::Checksum { layer: gre }),
    ];
    for (at, value, refused) in cases {
        let mut exit = exit_with(Some(7));
        let mut wrong = good.clone();
        assert_ne!(wrong[at], value);
        wrong[at] = value;
        assert_eq!(serve(&mut exit, &wrong), Err(refused), "byte {at}");
        assert!(serve(&mut exit, &good).is_ok());
    }
    let key = |found, expected| Err(Refused::TunnelKey { found, expected });
    assert_eq!(serve(&mut exit_with(Some(8)), &good), key(Some(7), Some(8)));
    assert_eq!(serve(&mut exit_with(None), &good), key(Some(7), None));
}

fn exit_with(key: Option<u32>) -> Decapsulation {
    let mut config = TunnelConfig::new(REMOTE, LOCAL);
    config.key = key;
    Decapsulation::new(config).expect("a valid tunnel")
}

#[test]
fn an_exit_refuses_an_inner_packet_that_contradicts_itself() {
    let (mut entry, mut exit) = tunnel(|_| ());
    let good = serve(&mut entry, &packet(0, 10)).expect("encapsulated");
    // Another protocol than IPv4 inside.
    let mut wrong = good.clone();
    (wrong[42], wrong[43]) = (0x86, 0xdd);
    assert_eq!(
        serve(&mut exit, &wrong),
        Err(Refused::Protocol { layer: Layer::Gre, found: 0x86dd })
    );
    // One byte more in the tunnel than the inner packet has.
    let mut wrong = [&good[..], &[0]].concat();
    wrong[5] += 1;
    assert_eq!(
        serve(&mut exit, &wrong),
        Err(Refused::Malformed { layer: Layer::Ipv4, field: "total length" })
    );
    let mut wrong = good.clone();
    wrong[44 + 8] ^= 1;
    assert_eq!(serve(&mut exit, &wrong), Err(Refused::Checksum { layer: Layer::Ipv4 }));
}

#[test]
fn late_packets_and_copies_are_refused() {
    let (mut entry, mut exit) = tunnel(|config| config.sequence = true);
    let sent: Vec<_> =
        (0..4).map(|_| serve(&mut entry, &packet(0, 10)).expect("encapsulated")).collect();
    let late = |found, last| Err(Refused::Sequence { found: Some(found), last: Some(last) });
    assert!(serve(&mut exit, &sent[0]).is_ok());
    assert_eq!(serve(&mut exit, &sent[0]), late(0, 0));
    assert!(serve(&mut exit, &sent[2]).is_ok());
    assert_eq!(serve(&mut exit, &sent[1]), late(1, 2));
    assert!(serve(&mut exit, &sent[3]).is_ok());
    // The numbers wrap: 2^31 ahead of 3 is ahead, one more is behind.
    let mut far = sent[0].clone();
    far[44..48].copy_from_slice(&0x8000_0004_u32.to_be_bytes());
    assert_eq!(serve(&mut exit, &far), late(0x8000_0004, 3));
    far[44..48].copy_from_slice(&0x8000_0003_u32.to_be_bytes());
    assert!(serve(&mut exit, &far).is_ok());
    assert!(serve(&mut exit, &sent[1]).is_ok(), "behind the wrap");
    // No number at all.
    let (mut plain, _) = tunnel(|_| ());
    let plain = serve(&mut plain, &packet(0, 10)).expect("encapsulated");
    let refused = Err(Refused::Sequence { found: None, last: Some(1) });
    assert_eq!(serve(&mut exit, &plain), refused);
}

#[test]
fn frames_keep_to_their_type() {
    let (mut entry, mut exit) = tunnel(|_| ());
    let [here, there] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
    let mut frame = vec![0; 14];
    EthernetRepr { src: there, dst: here, ethertype: EtherType::IPV4 }.emit(&mut frame);
    frame.extend(packet(0, 10));
    let mut reply = [0; 200];
    let length = entry.serve_frame(here, there, &frame, &mut reply).expect("served");
    let view = EthernetView::parse(&reply[..length]).expect("a frame");
    assert_eq!((view.src(), view.dst(), view.ethertype()), (here, there, EtherType::IPV6));
    assert_eq!(serve(&mut exit, view.payload()).expect("decapsulated"), packet(0, 10));

    frame[13] = 6;
    let refused = entry.serve_frame(here, there, &frame, &mut reply);
    assert_eq!(refused, Err(Refused::Protocol { layer: Layer::Ethernet, found: 0x0806 }));
    frame[13] = 0;
    let refused = entry.serve_frame(here, there, &frame, &mut reply[..10]);
    assert!(matches!(refused, Err(Refused::ReplyRoom { room: 10, .. })), "{refused:?}");
}

#[test]
fn what_cannot_be_set_up_is_said() {
    let changes: [fn(&mut TunnelConfig); 5] = [
        |config| config.mtu = 1_279,
        |config| config.mtu = 65_576,
        |config| config.flow_label = 1 << 20,
        |config| config.hop_limit = 0,
        |config| config.dscp = DscpModel::Pipe(64),
    ];
    for change in changes {
        let mut config = TunnelConfig::new(LOCAL, REMOTE);
        change(&mut config);
        let error = services::Encapsulation::new(config).expect_err("out of range");
        assert!(error.to_string().starts_with("a tunnel was configured with"), "{error}");
    }
}
