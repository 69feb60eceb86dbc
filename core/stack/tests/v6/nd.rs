//! Neighbour discovery, ICMPv6, UDP over IPv6, extension headers, and several addresses.

use domain::{CallError, CallKind};
use wire::ipv6::{multicast_mac, solicited_node};
use wire::{
    Address, Endpoint, EtherType, EthernetRepr, Icmpv6Repr, Ipv6Addr, Ipv6Repr, MacAddr,
    ParameterProblemCode, Prefix, Protocol, TcpFlags, UnreachableCodeV6,
};

use crate::support::{
    MORE_IPS, Open, Out, PEER_IP, PEER_MAC, Peer, STACK_IP, STACK_MAC, Told, UDP_PORT, World,
    ethernet_frame, far, host, icmpv6_frame, ip_frame, ms, pattern, ping_frame, udp_frame,
};

const OTHER_IP: Address = host(3);

fn v6(address: Address) -> Ipv6Addr {
    address.v6().expect("an IPv6 address")
}

/// A solicitation of `sender` for `target`, in a frame to the group that it is in.
fn solicitation(sender: Address, target: Address, link: Option<MacAddr>) -> Vec<u8> {
    let group = solicited_node(v6(target));
    let message = Icmpv6Repr::NeighborSolicitation { target: v6(target), source_link: link };
    let mut frame = icmpv6_frame(sender, group.into(), &message, &[]);
    frame[..6].copy_from_slice(&multicast_mac(group).0);
    frame
}

fn advertisement(target: Address, mac: MacAddr, override_: bool) -> Vec<u8> {
    let message = Icmpv6Repr::NeighborAdvertisement {
        target: v6(target),
        router: false,
        solicited: true,
        override_,
        target_link: Some(mac),
    };
    icmpv6_frame(target, STACK_IP, &message, &[])
}

fn sends(world: &mut World, to: Address) {
    let to = Endpoint::new(to, 9);
    world.call(|calls| calls.udp_sendv(UDP_PORT, to, &[b"x"]).expect("room"));
}

/// The host that one frame asks for, of all that may have its address.
#[track_caller]
fn asked(world: &mut World) -> Address {
    match world.frames_out()[..] {
        [
            Out::Icmpv6 {
                to,
                dst,
                repr: Icmpv6Repr::NeighborSolicitation { target, source_link },
                ..
            },
        ] => {
            let group = solicited_node(target);
            assert_eq!((dst, to), (group.into(), multicast_mac(group)));
            assert_eq!(source_link, Some(STACK_MAC));
            target.into()
        }
        ref other => panic!("not one solicitation: {other:?}"),
    }
}

#[test]
fn solicitations_for_us_are_answered_and_taught_by() {
    let mut world = World::new();
    world.stays = true;
    world.auto_arp = false;
    world.hear_frames(&[solicitation(OTHER_IP, STACK_IP, Some(PEER_MAC))]);
    let [Out::Icmpv6 { to: PEER_MAC, dst: OTHER_IP, repr, .. }] = world.frames_out()[..] else {
        panic!("one answer")
    };
    let answer = Icmpv6Repr::NeighborAdvertisement {
        target: v6(STACK_IP),
        router: false,
        solicited: true,
        override_: true,
        target_link: Some(STACK_MAC),
    };
    assert_eq!(repr, answer);
    // The asker is known now.
    sends(&mut world, OTHER_IP);
    assert!(matches!(world.frames_out()[..], [Out::Udp { .. }]));
    assert_eq!(world.stats().neighbor_replies_out, 1);
    // By its link address, as it does once it knows that.
    let mut direct = solicitation(OTHER_IP, STACK_IP, Some(PEER_MAC));
    direct[..6].copy_from_slice(&STACK_MAC.0);
    world.hear_frames(&[direct]);
    assert_eq!(world.frames_out().len(), 1);
}

/// RFC 4862 §5.4.3: a host that is about to take our address hears that it is taken.
#[test]
fn an_address_of_ours_is_defended() {
    let mut world = World::new();
    let nobody = Address::of_v6(Ipv6Addr::UNSPECIFIED);
    world.hear_frames(&[solicitation(nobody, STACK_IP, None)]);
    let all_nodes = "ff02::1".parse::<Ipv6Addr>().expect("an address");
    let [Out::Icmpv6 { to, dst, repr, .. }] = world.frames_out()[..] else { panic!("one answer") };
    assert_eq!((to, dst), (multicast_mac(all_nodes), all_nodes.into()));
    assert!(matches!(repr, Icmpv6Repr::NeighborAdvertisement { solicited: false, .. }), "{repr:?}");
}

#[test]
fn what_others_say_to_each_other_teaches_nothing() {
    let mut world = World::new();
    world.stays = true;
    world.auto_arp = false;
    // One for another host of our group, one for a host of another group, and one to all nodes.
    let last = Address::of_v6("2001:db8:0:0:7::1".parse().expect("an address"));
    let mut to_all = advertisement(OTHER_IP, PEER_MAC, true);
    to_all[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
    world.hear_frames(&[
        solicitation(OTHER_IP, last, Some(PEER_MAC)),
        solicitation(OTHER_IP, host(9), Some(PEER_MAC)),
        to_all,
    ]);
    world.silent();
    // Nobody asked for this one.
    world.hear_frames(&[advertisement(OTHER_IP, PEER_MAC, true)]);
    sends(&mut world, OTHER_IP);
    assert_eq!(asked(&mut world), OTHER_IP);
}

#[test]
fn impossible_messages_are_dropped() {
    let mut world = World::new();
    let address = |text: &str| text.parse::<Address>().expect("an address");
    let good = solicitation(OTHER_IP, STACK_IP, Some(PEER_MAC));
    // A router has forwarded it (RFC 4861 §7.1.1).
    let mut far_away = good.clone();
    far_away[14 + 7] = 254;
    let group = solicitation(OTHER_IP, STACK_IP, Some(MacAddr([0x33, 0x33, 0, 0, 0, 1])));
    world.hear_frames(&[far_away, group, solicitation(OTHER_IP, STACK_IP, Some(MacAddr([0; 6])))]);
    for sender in [STACK_IP, far(1), address("ff02::1"), address("::1"), address("10.0.0.3")] {
        world.hear_frames(&[solicitation(sender, STACK_IP, Some(PEER_MAC))]);
    }
    world.silent();
    assert_eq!((world.stats().malformed, world.stats().not_for_us), (1, 7));
}

#[test]
fn frames_wait_for_an_advertisement() {
    let mut world = World::new();
    world.stays = true;
    world.auto_arp = false;
    sends(&mut world, OTHER_IP);
    assert_eq!(asked(&mut world), OTHER_IP);
    world.hear_frames(&[advertisement(OTHER_IP, PEER_MAC, false)]);
    assert!(matches!(world.frames_out()[..], [Out::Udp { .. }]));
}

/// The device deals an advertisement by its addresses: the core that it reaches learns for the one that has asked.
#[test]
fn an_advertisement_may_reach_another_core() {
    let mut world = World::new();
    world.stays = true;
    world.auto_arp = false;
    sends(&mut world, OTHER_IP);
    assert_eq!(asked(&mut world), OTHER_IP);
    assert!(world.wander());
    world.hear_frames(&[advertisement(OTHER_IP, PEER_MAC, false)]);
    world.silent();
    assert!(world.wander());
    world.pass(ms(2));
    assert!(matches!(world.frames_out()[..], [Out::Udp { .. }]));
}

/// RFC 4861 §7.2.5: without the override flag another link address does not replace one that is known.
#[test]
fn a_neighbour_moves_where_it_says_so() {
    let mut world = World::new();
    world.stays = true;
    let moved = MacAddr([2, 0, 0, 0, 0, 9]);
    let known = |world: &World| world.stack.shared().neighbors.lookup(PEER_IP, world.now);
    let before = known(&world);
    world.hear_frames(&[advertisement(PEER_IP, moved, false)]);
    assert_eq!(known(&world), before);
    world.hear_frames(&[advertisement(PEER_IP, moved, true)]);
    assert_eq!(known(&world), stack::neighbors::Neighbor::Reachable(moved));
}

#[test]
fn a_neighbour_is_asked_directly_before_it_is_forgotten() {
    let mut world = World::new();
    world.stays = true;
    world.auto_arp = false;
    world.pass(ms(50_000));
    sends(&mut world, PEER_IP);
    let out = world.frames_out();
    let [Out::Icmpv6 { to: PEER_MAC, dst: PEER_IP, .. }, Out::Udp { .. }] = &out[..] else {
        panic!("{out:?}")
    };
    world.pass(ms(11_000));
    sends(&mut world, PEER_IP);
    assert_eq!(asked(&mut world), PEER_IP);
}

#[test]
fn beyond_the_network_the_gateway_is_asked_for() {
    let gateway = "fe80::fe".parse::<Address>().expect("an address");
    let mut world = World::with(|config| config.set_gateway(gateway));
    world.stays = true;
    world.auto_arp = false;
    sends(&mut world, far(8));
    assert_eq!(asked(&mut world), gateway);
    world.hear_frames(&[advertisement(gateway, PEER_MAC, true)]);
    assert!(matches!(world.frames_out()[..], [Out::Udp { .. }]));
}

#[test]
fn echo_requests_are_answered_with_their_data() {
    let mut world = World::new();
    for len in [0, 1, 56, 1_472] {
        world.hear_frames(&[ping_frame(PEER_IP, &pattern(0, len))]);
        let out = world.frames_out();
        let [Out::Icmpv6 { dst: PEER_IP, repr, data, .. }] = &out[..] else { panic!("{out:?}") };
        assert_eq!(*repr, Icmpv6Repr::EchoReply { ident: 1, seq: 2 });
        assert_eq!(*data, pattern(0, len));
    }
    let mut bad = ping_frame(PEER_IP, b"data");
    bad[14 + 40 + 9] ^= 1;
    world.hear_frames(&[bad]);
    // A group that has no address of ours, and one that has.
    let request = Icmpv6Repr::EchoRequest { ident: 1, seq: 1 };
    for group in ["ff02::1".parse().expect("an address"), solicited_node(v6(STACK_IP))] {
        world.hear_frames(&[icmpv6_frame(PEER_IP, group.into(), &request, b"data")]);
    }
    world.silent();
    let stats = world.stats();
    assert_eq!((stats.icmp_echoes, stats.bad_checksum, stats.not_for_us), (4, 1, 2));
}

/// RFC 4443 §3.1 and §2.4 (c).
#[test]
fn what_is_not_taken_is_reported_with_all_that_fits() {
    let mut world = World::new();
    world.stays = true;
    let from = Endpoint::new(PEER_IP, 1_000);
    for len in [10, 1_400] {
        let frame = udp_frame(from, 9, &pattern(0, len));
        world.hear_frames(core::slice::from_ref(&frame));
        let out = world.frames_out();
        let [Out::Icmpv6 { dst: PEER_IP, repr, data, .. }] = &out[..] else { panic!("{out:?}") };
        assert_eq!(*repr, Icmpv6Repr::DestUnreachable { code: UnreachableCodeV6::PORT });
        assert_eq!(data[..], frame[14..frame.len().min(14 + 1_280 - 48)]);
    }
    // A packet of an unknown protocol, and one in which another header names it (RFC 8200 §4).
    let strange = ip_frame(PEER_IP, STACK_IP, Protocol(132), &[0; 20]);
    let options = [132, 0, 1, 4, 0, 0, 0, 0];
    let behind = [&options[..], &[0; 20]].concat();
    let behind = ip_frame(PEER_IP, STACK_IP, Protocol::DESTINATION_OPTIONS, &behind);
    for (frame, place) in [(strange, 6), (behind, 40)] {
        world.hear_frames(&[frame]);
        let out = world.frames_out();
        let [Out::Icmpv6 { repr, .. }] = &out[..] else { panic!("{out:?}") };
        let code = ParameterProblemCode::NEXT_HEADER;
        assert_eq!(*repr, Icmpv6Repr::ParameterProblem { code, pointer: place });
    }
    world.hear_frames(&[ip_frame(PEER_IP, STACK_IP, Protocol::NO_NEXT, &[0; 20])]);
    // Nor are errors, whatever they say.
    let error = Icmpv6Repr::DestUnreachable { code: UnreachableCodeV6::PORT };
    world.hear_frames(&[icmpv6_frame(PEER_IP, STACK_IP, &error, &[0; 48])]);
    world.silent();
    assert_eq!((world.stats().icmp_errors_out, world.stats().icmp_errors_in), (4, 1));
}

#[test]
fn datagrams_both_ways() {
    let mut world = World::new();
    let peer = Endpoint::new(PEER_IP, 1_000);
    for len in [0, 1, 100, 1_472] {
        world.hear_frames(&[udp_frame(peer, UDP_PORT, &pattern(0, len))]);
        let data = pattern(0, len);
        assert_eq!(world.told(), [Told::Datagram { port: UDP_PORT, peer, data }]);
        let bytes = pattern(0, len);
        world.call(|calls| calls.udp_sendv(UDP_PORT, peer, &[&bytes]).expect("room"));
        let out = world.frames_out();
        let [Out::Udp { src, dst, data }] = &out[..] else { panic!("{out:?}") };
        assert_eq!((src.port, *dst, data), (UDP_PORT, peer, &bytes));
    }
    // Without a checksum nothing would say that it is for us (RFC 8200 §8.1).
    let mut frame = udp_frame(peer, UDP_PORT, b"data");
    frame[14 + 40 + 6..14 + 40 + 8].fill(0);
    world.hear_frames(&[frame]);
    assert_eq!((world.told(), world.stats().bad_checksum), (vec![], 1));
    world.call(|calls| calls.udp_sendv(UDP_PORT, peer, &[&[0; 1_473]]).expect("room"));
    let error = CallError::Unsendable;
    assert_eq!(world.told(), [Told::Failed { call: CallKind::UdpSendv, error }]);
    world.silent();
}

/// A SYN behind options that may be skipped opens; a route, options that may not be skipped, and a header out of place do not.
#[test]
fn extension_headers_are_skipped_or_refused() {
    let mut world = World::new();
    let syn = |port| Peer::new(port, Open::default()).syn().frame()[54..].to_vec();
    let behind = |first: Protocol, header: &[u8], port| {
        let payload = [header, &syn(port)].concat();
        ip_frame(PEER_IP, STACK_IP, first, &payload)
    };
    let padding = [6, 0, 1, 4, 0, 0, 0, 0];
    let route = [6, 0, 0, 1, 0, 0, 0, 0];
    let refused = [6, 0, 0xc1, 4, 0, 0, 0, 0];
    let late = [&[0, 0, 1, 4, 0, 0, 0, 0][..], &padding].concat();
    world.hear_frames(&[
        behind(Protocol::DESTINATION_OPTIONS, &padding, 1),
        behind(Protocol::HOP_BY_HOP, &padding, 2),
    ]);
    assert_eq!(world.segments().len(), 2, "both are answered");
    world.hear_frames(&[
        behind(Protocol::ROUTING, &route, 3),
        behind(Protocol::DESTINATION_OPTIONS, &refused, 4),
        behind(Protocol::DESTINATION_OPTIONS, &late, 5),
    ]);
    world.silent();
    assert_eq!(world.stats().malformed, 3);
}

/// Connections from one port of a peer to one of ours by each address: each is answered from where it was asked, and
/// none is taken for another.
#[test]
fn each_address_has_connections_of_its_own() {
    let [second, v4, link_local] = MORE_IPS;
    let mut world = World::with(|config| {
        config.addresses.push(Prefix::new(second, 64));
        config.addresses.push(Prefix::new(v4, 24));
        config.addresses.push(Prefix::new(link_local, 64));
    });
    let peers = [
        (PEER_IP, STACK_IP),
        (PEER_IP, second),
        ("172.16.0.9".parse().expect("an address"), v4),
        ("fe80::9".parse().expect("an address"), link_local),
        ("fe80::9".parse().expect("an address"), STACK_IP),
    ];
    let mut open = Vec::new();
    for (remote, local) in peers {
        let mut peer = Peer::new(7, Open { timestamp: Some(1), ..Open::default() });
        (peer.here.addr, peer.there.addr) = (remote, local);
        world.hear(&peer.syn());
        let out = world.segments();
        let [answer] = &out[..] else { panic!("{out:?}") };
        assert_eq!((answer.src, answer.dst), (peer.there, peer.here));
        assert!(answer.flags.contains(TcpFlags::SYN));
        let mss = if remote.is_ipv4() { 1_480 } else { 1_460 };
        assert_eq!(answer.options.mss, Some(mss), "{remote}");
        peer.irs = answer.seq;
        peer.timestamp = Some((2, answer.options.timestamp.expect("agreed").value));
        world.hear(&peer.seg(1, 1));
        let told = world.told();
        assert!(matches!(told[..], [Told::Knock { peer: from, .. }] if from == peer.here));
        open.push((peer, world.handle()));
    }
    assert_eq!(world.stack.connections(), 5);
    for (index, (peer, handle)) in open.iter().enumerate() {
        world.hear(&peer.seg(1, 1).len(10 + index));
        assert!(matches!(&world.told()[..], [Told::Recv { data, .. }] if data.len() == 10 + index));
        world.call(|calls| calls.sendv(*handle, &[&pattern(0, 3)]).expect("room"));
        let out = world.segments();
        let [answer] = &out[..] else { panic!("{out:?}") };
        assert_eq!((answer.src, answer.dst), (peer.there, peer.here));
        assert_eq!((answer.seq - peer.irs, answer.payload.len()), (1, 3));
    }
    // A reset of one ends no other.
    world.hear(&open[1].0.seg(11, 4).flags("R").ts(3, 0));
    world.hear(&open[1].0.seg(12, 4).flags("R").ts(3, 0));
    assert_eq!(world.stack.connections(), 4);
}

/// Frames that say one version of IP and have another are for nobody.
#[test]
fn versions_are_not_mixed() {
    let mut world = World::new();
    let packet = Peer::new(9, Open::default()).syn().frame()[14..].to_vec();
    world.hear_frames(&[ethernet_frame(STACK_MAC, EtherType::IPV4, &packet)]);
    let mut frame = vec![0; EthernetRepr::HEADER_LEN + Ipv6Repr::HEADER_LEN];
    EthernetRepr { dst: STACK_MAC, src: PEER_MAC, ethertype: EtherType::IPV6 }.emit(&mut frame);
    frame[14] = 0x45;
    world.hear_frames(&[frame]);
    world.silent();
    assert_eq!(world.stats().malformed, 2);
}
