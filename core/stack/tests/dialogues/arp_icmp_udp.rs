//! What is not TCP.

use domain::{CallError, CallKind, ConnectError, Cookie};
use wire::{
    Address, ArpOperation, ArpRepr, Endpoint, EtherType, IcmpRepr, Ipv4Addr, MacAddr, Protocol,
    TimeExceededCode, UnreachableCode,
};

use crate::support::{
    Open, Out, PEER_IP, PEER_MAC, Peer, STACK_IP, STACK_MAC, Told, UDP_PORT, World, ethernet_frame,
    far, host, icmp_frame, ip_frame, ms, pattern, udp_frame,
};

const OTHER_IP: Address = host(3);

fn arp_frame(operation: ArpOperation, sender: Address, target: Address) -> Vec<u8> {
    let v4 = |address: Address| address.v4().expect("ARP is of IPv4");
    let arp = ArpRepr {
        operation,
        sender_mac: PEER_MAC,
        sender_ip: v4(sender),
        target_mac: MacAddr([0; 6]),
        target_ip: v4(target),
    };
    let mut bytes = vec![0; ArpRepr::LEN];
    arp.emit(&mut bytes);
    let to = if operation == ArpOperation::Request { MacAddr::BROADCAST } else { STACK_MAC };
    ethernet_frame(to, EtherType::ARP, &bytes)
}

#[track_caller]
fn asked(world: &mut World) -> (MacAddr, Address) {
    match world.frames_out()[..] {
        [Out::Arp { to, arp }] if arp.operation == ArpOperation::Request => {
            (to, arp.target_ip.into())
        }
        ref other => panic!("not one ARP request: {other:?}"),
    }
}

#[test]
fn arp_requests_for_us_are_answered_and_taught_by() {
    let mut world = World::new();
    world.auto_arp = false;
    world.hear_frames(&[arp_frame(ArpOperation::Request, OTHER_IP, STACK_IP)]);
    let [Out::Arp { to, arp }] = world.frames_out()[..] else { panic!("one reply") };
    assert_eq!((to, arp.operation), (PEER_MAC, ArpOperation::Reply));
    assert_eq!((arp.target_mac, arp.target_ip.into()), (PEER_MAC, OTHER_IP));
    // The asker is known now.
    world.hear_frames(&[udp_frame(Endpoint::new(OTHER_IP, 9), 1, b"x")]);
    assert!(matches!(world.frames_out()[..], [Out::Icmp { dst: OTHER_IP, .. }]));
}

#[test]
fn arp_chatter_of_others_teaches_nothing_new_and_refreshes_what_is_known() {
    let mut world = World::new();
    world.auto_arp = false;
    world.hear_frames(&[arp_frame(ArpOperation::Request, OTHER_IP, host(9))]);
    world.silent();
    let to_other = Endpoint::new(OTHER_IP, 9);
    world.call(|calls| calls.udp_sendv(UDP_PORT, to_other, &[b"x"]).expect("room"));
    assert_eq!(asked(&mut world), (MacAddr::BROADCAST, OTHER_IP));
    // PEER_IP is known: a broadcast of its own keeps it so.
    world.pass(ms(40_000));
    world.hear_frames(&[arp_frame(ArpOperation::Request, PEER_IP, PEER_IP)]);
    world.pass(ms(40_000));
    world.frames_out();
    let to_peer = Endpoint::new(PEER_IP, 9);
    world.call(|calls| calls.udp_sendv(UDP_PORT, to_peer, &[b"x"]).expect("room"));
    assert!(matches!(world.frames_out()[..], [Out::Udp { .. }]));
}

#[test]
fn arp_from_impossible_senders_is_dropped() {
    let mut world = World::new();
    let [none, all] = [Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST].map(Address::from);
    for sender in [STACK_IP, far(1), none, all] {
        world.hear_frames(&[arp_frame(ArpOperation::Request, sender, STACK_IP)]);
    }
    world.hear_frames(&[ethernet_frame(MacAddr::BROADCAST, EtherType::ARP, &[0; 28])]);
    world.silent();
    assert_eq!((world.stats().not_for_us, world.stats().malformed), (4, 1));
}

#[test]
fn frames_wait_for_a_link_address() {
    let mut world = World::new();
    world.stays = true;
    world.auto_arp = false;
    let there = Endpoint::new(OTHER_IP, 9);
    world.call(|calls| {
        calls.udp_sendv(UDP_PORT, there, &[b"one"]).expect("room");
        calls.udp_sendv(UDP_PORT, there, &[b"two"]).expect("room");
        calls.connect(Cookie(1), there).expect("room");
    });
    assert_eq!(asked(&mut world), (MacAddr::BROADCAST, OTHER_IP));
    world.hear_frames(&[arp_frame(ArpOperation::Reply, OTHER_IP, STACK_IP)]);
    let out = world.frames_out();
    let [Out::Udp { data: one, .. }, Out::Udp { data: two, .. }, Out::Tcp(syn)] = &out[..] else {
        panic!("{out:?}")
    };
    assert_eq!((&one[..], &two[..]), (&b"one"[..], &b"two"[..]));
    assert_eq!(syn.flags, wire::TcpFlags::SYN);
}

#[test]
fn frames_that_wait_are_bounded_in_number_and_time() {
    let mut world = World::new();
    world.stays = true;
    world.auto_arp = false;
    let there = Endpoint::new(OTHER_IP, 9);
    for number in 0..100u8 {
        world.call(|calls| calls.udp_sendv(UDP_PORT, there, &[&[number]]).expect("room"));
    }
    world.frames_out();
    assert_eq!(world.stats().unresolved_drops, 36);
    world.hear_frames(&[arp_frame(ArpOperation::Reply, OTHER_IP, STACK_IP)]);
    let out = world.frames_out();
    assert_eq!(out.len(), 64);
    let Out::Udp { data, .. } = &out[0] else { panic!() };
    assert_eq!(data[..], [36], "the oldest were dropped");
    // Others, too late.
    let third = Endpoint::new(host(4), 9);
    world.call(|calls| calls.udp_sendv(UDP_PORT, third, &[b"old"]).expect("room"));
    world.pass(ms(1_100));
    world.call(|calls| calls.udp_sendv(UDP_PORT, third, &[b"new"]).expect("room"));
    assert_eq!(world.stats().unresolved_drops, 37);
}

#[test]
fn requests_for_a_link_address_are_paced() {
    let mut world = World::new();
    world.stays = true;
    world.auto_arp = false;
    let there = Endpoint::new(OTHER_IP, 9);
    let send = |world: &mut World| {
        world.call(|calls| calls.udp_sendv(UDP_PORT, there, &[b"x"]).expect("room"));
    };
    for _ in 0..10 {
        send(&mut world);
    }
    asked(&mut world);
    world.pass(ms(101));
    send(&mut world);
    asked(&mut world);
}

#[test]
fn a_neighbour_is_asked_again_before_it_is_forgotten() {
    let mut world = World::new();
    world.auto_arp = false;
    let there = Endpoint::new(PEER_IP, 9);
    world.pass(ms(50_000));
    world.call(|calls| calls.udp_sendv(UDP_PORT, there, &[b"x"]).expect("room"));
    let out = world.frames_out();
    let [Out::Arp { to: PEER_MAC, .. }, Out::Udp { .. }] = &out[..] else { panic!("{out:?}") };
    world.pass(ms(11_000));
    world.call(|calls| calls.udp_sendv(UDP_PORT, there, &[b"x"]).expect("room"));
    assert_eq!(asked(&mut world), (MacAddr::BROADCAST, PEER_IP));
}

/// RFC 4861 §7.3.1: who acknowledges what is sent is where it was, whatever becomes of requests for its address.
#[test]
fn a_neighbour_that_acknowledges_is_not_asked_again() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open { timestamp: Some(7), ..Open::default() });
    let (value, echo) = peer.timestamp.expect("agreed");
    world.auto_arp = false;
    for round in 0..600u32 {
        world.pass(ms(1_000));
        world.hear(&peer.seg(1 + round, 1 + round).ts(value + round, echo).len(1));
        world.send(1);
        assert_eq!(world.segments().len(), 1, "{round}");
        world.pass(ms(50));
        world.hear(&peer.seg(2 + round, 2 + round).ts(value + round, echo));
        world.told();
    }
}

/// Strangers with forged addresses in our network do not take the places of a neighbour that the application asks for.
#[test]
fn strangers_leave_room_for_a_neighbour_of_ours() {
    let mut world = World::new();
    world.stays = true;
    world.auto_arp = false;
    let forged = |last: u8| {
        let mut peer = Peer::new(7, Open::default());
        peer.here.addr = host(last);
        peer.syn()
    };
    (10..100).for_each(|last| world.hear(&forged(last)));
    assert_eq!(world.frames_out().len(), 32, "as many are asked for");
    let there = Endpoint::new(OTHER_IP, 9);
    world.call(|calls| calls.connect(Cookie(1), there).expect("room"));
    assert_eq!(asked(&mut world), (MacAddr::BROADCAST, OTHER_IP));
    (100..200).for_each(|last| world.hear(&forged(last)));
    world.silent();
    world.hear_frames(&[arp_frame(ArpOperation::Reply, OTHER_IP, STACK_IP)]);
    let out = world.frames_out();
    assert!(matches!(&out[..], [Out::Tcp(syn)] if syn.flags == wire::TcpFlags::SYN), "{out:?}");
    world.call(|calls| calls.udp_sendv(UDP_PORT, there, &[b"x"]).expect("room"));
    assert!(matches!(world.frames_out()[..], [Out::Udp { .. }]));
}

/// Nor do they keep a peer behind the gateway from its answer, whose link address is not known any more.
#[test]
fn strangers_nearby_leave_the_way_to_the_gateway_open() {
    let gateway = host(254);
    let mut world = World::with(|config| config.set_gateway(gateway));
    world.stays = true;
    world.auto_arp = false;
    let syn = |addr, port| {
        let mut peer = Peer::new(port, Open::default());
        peer.here.addr = addr;
        peer.syn()
    };
    (10..100).for_each(|last| world.hear(&syn(host(last), 7)));
    assert_eq!(world.frames_out().len(), 32, "as many are asked for");
    let far = far(8);
    world.hear(&syn(far, 8));
    assert_eq!(asked(&mut world), (MacAddr::BROADCAST, gateway));
    world.hear_frames(&[arp_frame(ArpOperation::Reply, gateway, STACK_IP)]);
    let out = world.frames_out();
    assert!(matches!(&out[..], [Out::Tcp(answer)] if answer.dst.addr == far), "{out:?}");
}

#[test]
fn a_fixed_neighbour_is_not_asked_for() {
    let mut world = World::with(|config| config.neighbors = vec![(OTHER_IP, PEER_MAC)]);
    world.auto_arp = false;
    let there = Endpoint::new(OTHER_IP, 9);
    for _ in 0..3 {
        world.call(|calls| calls.udp_sendv(UDP_PORT, there, &[b"x"]).expect("room"));
        assert!(matches!(world.frames_out()[..], [Out::Udp { .. }]));
        world.pass(ms(3_600_000));
    }
}

#[test]
fn a_connection_to_nobody_times_out() {
    let mut world = World::with(|config| config.syn_retries = 1);
    world.auto_arp = false;
    let there = Endpoint::new(OTHER_IP, 9);
    world.call(|calls| calls.connect(Cookie(1), there).expect("room"));
    world.pass(ms(5_000));
    let asked = world.frames_out().len();
    assert!((2..=30).contains(&asked), "{asked} ARP requests");
    let error = ConnectError::TimedOut;
    assert_eq!(world.told(), [Told::ConnectFailed { cookie: 1, error }]);
}

#[test]
fn echo_requests_are_answered_with_their_data() {
    let mut world = World::new();
    for len in [0, 1, 56, 1_472] {
        let request = IcmpRepr::EchoRequest { ident: 77, seq: len as u16 };
        world.hear_frames(&[icmp_frame(PEER_IP, request, &pattern(0, len))]);
        let out = world.frames_out();
        let [Out::Icmp { dst: PEER_IP, repr, data }] = &out[..] else { panic!("{out:?}") };
        assert_eq!(*repr, IcmpRepr::EchoReply { ident: 77, seq: len as u16 });
        assert_eq!(*data, pattern(0, len));
    }
    assert_eq!(world.stats().icmp_echoes, 4);
    let mut bad = icmp_frame(PEER_IP, IcmpRepr::EchoRequest { ident: 1, seq: 1 }, b"data");
    bad[14 + 20 + 9] ^= 1;
    world.hear_frames(&[bad]);
    world.silent();
    assert_eq!(world.stats().bad_checksum, 1);
}

#[test]
fn icmp_that_asks_nothing_is_never_answered() {
    let mut world = World::new();
    let errors = [
        IcmpRepr::DestUnreachable { code: UnreachableCode::PORT, next_hop_mtu: 0 },
        IcmpRepr::TimeExceeded { code: TimeExceededCode::TTL_EXPIRED },
        IcmpRepr::ParameterProblem { pointer: 3 },
        IcmpRepr::Other { kind: 5, code: 0, rest: 0 },
    ];
    for error in errors {
        world.hear_frames(&[icmp_frame(PEER_IP, error, &[0; 28])]);
    }
    for other in [
        IcmpRepr::EchoReply { ident: 1, seq: 1 },
        IcmpRepr::Other { kind: 13, code: 0, rest: 0 },
        IcmpRepr::Other { kind: 200, code: 9, rest: 0 },
    ] {
        world.hear_frames(&[icmp_frame(PEER_IP, other, &[0; 28])]);
    }
    world.silent();
    assert_eq!((world.stats().icmp_errors_in, world.stats().not_for_us), (4, 3));
}

/// RFC 5461: a connection does not die of an ICMP error, which anybody can send.
#[test]
fn icmp_errors_do_not_end_connections() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(10);
    let sent = world.expect(&peer, &[". 1:11(10) ack 1"]);
    let quoted = sent[0].frame()[14..14 + 28].to_vec();
    for code in [UnreachableCode::HOST, UnreachableCode::PORT, UnreachableCode::PROTOCOL] {
        let error = IcmpRepr::DestUnreachable { code, next_hop_mtu: 0 };
        world.hear_frames(&[icmp_frame(PEER_IP, error, &quoted)]);
    }
    assert_eq!(world.told(), []);
    world.hear(&peer.seg(1, 11));
    assert!(matches!(world.told()[..], [Told::Sent { bytes: 10, .. }]));
}

#[test]
fn what_nobody_takes_is_reported_with_its_first_bytes() {
    let mut world = World::with(|config| config.answers_per_second = 5);
    world.stays = true;
    let from = Endpoint::new(PEER_IP, 1_000);
    let frame = udp_frame(from, 9, &[1; 1_000]);
    world.hear_frames(core::slice::from_ref(&frame));
    let out = world.frames_out();
    let [Out::Icmp { dst: PEER_IP, repr, data }] = &out[..] else { panic!("{out:?}") };
    let expected = IcmpRepr::DestUnreachable { code: UnreachableCode::PORT, next_hop_mtu: 0 };
    assert_eq!(*repr, expected);
    assert!(data.len() >= 28 && frame[14..].starts_with(data), "header and eight bytes");
    let strange = ip_frame(PEER_IP, STACK_IP, Protocol(132), &[0; 20]);
    world.hear_frames(core::slice::from_ref(&strange));
    let out = world.frames_out();
    let [Out::Icmp { repr: IcmpRepr::DestUnreachable { code, .. }, .. }] = out[..] else {
        panic!("{out:?}")
    };
    assert_eq!(code, UnreachableCode::PROTOCOL);
    for _ in 0..10 {
        world.hear_frames(&[frame.clone(), strange.clone()]);
    }
    assert_eq!(world.frames_out().len(), 3);
    assert_eq!((world.stats().icmp_errors_out, world.stats().answers_limited), (5, 17));
}

/// Echoes, errors and resets do not take each other's place, and no peer that of another one.
#[test]
fn answers_to_strangers_have_separate_budgets() {
    let mut world = World::with(|config| config.answers_per_second = 5);
    world.stays = true;
    let from = Endpoint::new(PEER_IP, 1_000);
    for seq in 0..10 {
        let request = IcmpRepr::EchoRequest { ident: 1, seq };
        world.hear_frames(&[icmp_frame(PEER_IP, request, b"x"), udp_frame(from, 9, b"x")]);
        let mut peer = Peer::new(seq + 1, Open::default());
        peer.there.port = 9;
        world.hear(&peer.syn());
    }
    let out = world.frames_out();
    let count = |is: fn(&Out) -> bool| out.iter().filter(|&out| is(out)).count();
    let echo = |out: &Out| matches!(out, Out::Icmp { repr: IcmpRepr::EchoReply { .. }, .. });
    assert_eq!([count(echo), count(|out| matches!(out, Out::Tcp(_))), out.len()], [5, 5, 15]);
    assert_eq!(world.stats().answers_limited, 15);
    // All but the few that the secret hash puts into one class with that peer are answered as before.
    let others = (10..40).map(host);
    let request = IcmpRepr::EchoRequest { ident: 1, seq: 1 };
    for other in others {
        world.hear_frames(&[icmp_frame(other, request, b"x")]);
    }
    let answered = world.frames_out().len();
    assert!((25..=30).contains(&answered), "{answered}");
}

/// RFC 7126 §4.3 and §4.4.
#[test]
fn source_routes_are_refused() {
    let mut world = World::new();
    let options: [&[u8]; 5] = [
        &[131, 7, 4, 10, 0, 0, 9, 0],
        &[1, 137, 7, 4, 10, 0, 0, 9],
        &[7, 4, 0, 0, 137, 3, 4, 0],
        // A record of the route, and a timestamp: no harm.
        &[7, 7, 4, 0, 0, 0, 0, 0],
        &[68, 8, 5, 0, 0, 0, 0, 0],
    ];
    for (index, options) in options.into_iter().enumerate() {
        let mut frame = udp_frame(Endpoint::new(PEER_IP, 1_000), UDP_PORT, b"data");
        frame.splice(34..34, options.iter().copied());
        frame[14] += 2;
        frame[17] += 8;
        frame[24..26].fill(0);
        let sum = wire::Sum::of(&frame[14..42]).finish();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        world.hear_frames(&[frame]);
        assert_eq!(world.told().len(), usize::from(index > 2), "{index}");
    }
    assert_eq!(world.stats().malformed, 3);
}

#[test]
fn datagrams_in() {
    let mut world = World::new();
    let from = Endpoint::new(PEER_IP, 1_000);
    for len in [0, 1, 100, 1_472] {
        world.hear_frames(&[udp_frame(from, UDP_PORT, &pattern(0, len))]);
        let data = pattern(0, len);
        assert_eq!(world.told(), [Told::Datagram { port: UDP_PORT, peer: from, data }]);
    }
    // A sender may leave the checksum out (RFC 768), but not get it wrong.
    let mut frame = udp_frame(from, UDP_PORT, b"data");
    frame[14 + 20 + 6..14 + 20 + 8].fill(0);
    world.hear_frames(core::slice::from_ref(&frame));
    assert_eq!(world.told().len(), 1);
    frame[14 + 20 + 7] = 1;
    world.hear_frames(&[frame]);
    assert_eq!((world.told(), world.stats().bad_checksum), (vec![], 1));
    world.silent();
    assert_eq!(world.stats().udp_in, 5);
}

#[test]
fn datagrams_out() {
    let mut world = World::new();
    let to = Endpoint::new(PEER_IP, 1_000);
    for len in [0, 1, 99, 1_448, 1_472] {
        let bytes = pattern(0, len);
        let (a, b) = bytes.split_at(len / 3);
        world.call(|calls| calls.udp_sendv(UDP_PORT, to, &[a, b]).expect("room"));
        let out = world.frames_out();
        let [Out::Udp { src, dst, data }] = &out[..] else { panic!("{out:?}") };
        assert_eq!((*src, *dst, data), (Endpoint::new(STACK_IP, UDP_PORT), to, &bytes));
    }
    assert_eq!(world.told(), []);
}

#[test]
fn datagrams_that_cannot_be_sent_fail() {
    let mut world = World::with(|config| config.mtu_bytes = 576);
    let failed = [Told::Failed { call: CallKind::UdpSendv, error: CallError::Unsendable }];
    let to = Endpoint::new(PEER_IP, 1_000);
    // 20 and 8 bytes of the packet are headers; what is more than a buffer is no packet at all.
    for len in [549, 1_472, 3_000] {
        world.call(|calls| calls.udp_sendv(UDP_PORT, to, &[&vec![0; len]]).expect("room"));
        assert_eq!(world.told(), failed);
    }
    world.call(|calls| calls.udp_sendv(UDP_PORT, to, &[&[0; 548]]).expect("room"));
    assert!(matches!(world.frames_out()[..], [Out::Udp { .. }]));
    let far = Endpoint::new(far(8), 1);
    world.call(|calls| calls.udp_sendv(UDP_PORT, far, &[b"x"]).expect("room"));
    assert_eq!(world.told(), failed);
    world.silent();
}

#[test]
fn beyond_the_prefix_the_gateway_is_asked_for() {
    let gateway = host(254);
    let mut world = World::with(|config| config.set_gateway(gateway));
    world.stays = true;
    world.auto_arp = false;
    let far = Endpoint::new(far(8), 1);
    world.call(|calls| calls.udp_sendv(UDP_PORT, far, &[b"x"]).expect("room"));
    assert_eq!(asked(&mut world), (MacAddr::BROADCAST, gateway));
    world.hear_frames(&[arp_frame(ArpOperation::Reply, gateway, STACK_IP)]);
    assert!(matches!(world.frames_out()[..], [Out::Udp { .. }]));
}
