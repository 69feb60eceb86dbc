//! Several addresses.

use domain::{CallError, CallKind, ConnectError, Cookie, LocalEndpoint};
use wire::{Endpoint, Prefix, Protocol, Sum, TcpFlags, UdpRepr};

use crate::support::{
    MORE_IPS, Open, Out, PEER_IP, PORT, PREFIX_BITS, Peer, STACK_IP, Told, UDP_PORT, World,
    ip_frame, pattern,
};

/// A stack with the usual address, and those of `MORE_IPS` behind it: one of the same version, and one of each version.
fn world() -> World {
    World::with(|config| {
        config.addresses.extend(MORE_IPS.map(|own| Prefix::new(own, PREFIX_BITS.min(32))));
    })
}

/// What is said to the second address is answered from there to the peer, by the short way too.
#[test]
fn the_second_address_answers_with_timestamps() {
    let second = MORE_IPS[0];
    let mut world = World::with(|config| config.addresses.push(Prefix::new(second, PREFIX_BITS)));
    let mut peer = Peer::new(7, Open { timestamp: Some(1), ..Open::default() });
    peer.there.addr = second;
    world.hear(&peer.syn());
    let out = world.segments();
    let [answer] = &out[..] else { panic!("{out:?}") };
    assert_eq!((answer.src, answer.dst), (peer.there, peer.here));
    peer.irs = answer.seq;
    peer.timestamp = Some((2, answer.options.timestamp.expect("agreed").value));
    world.hear(&peer.seg(1, 1));
    assert!(matches!(world.told()[..], [Told::Knock { peer: from, .. }] if from == peer.here));
    assert_eq!(world.local, LocalEndpoint::new(1, PORT));
    for part in 0..3u32 {
        world.hear(&peer.seg(1 + 10 * part, 1 + 3 * part).len(10));
        assert!(matches!(&world.told()[..], [Told::Recv { .. }, ..] | [Told::Sent { .. }, ..]));
        let handle = world.handle();
        let bytes = pattern(3 * part as usize, 3);
        world.call(|calls| calls.sendv(handle, &[&bytes]).expect("room"));
        let out = world.segments();
        let [answer] = &out[..] else { panic!("{out:?}") };
        assert_eq!((answer.src, answer.dst), (peer.there, peer.here));
    }
}

/// RFC 1122 §4.1.3.5: a datagram is answered from the address to which it came.
#[test]
fn datagrams_are_answered_from_where_they_came_to() {
    let mut world = world();
    let peer = Endpoint::new(PEER_IP, 1_000);
    for (position, own) in [STACK_IP, MORE_IPS[0]].into_iter().enumerate() {
        let repr = UdpRepr { src_port: peer.port, dst_port: UDP_PORT, payload_len: 1 };
        let mut datagram = vec![0; UdpRepr::HEADER_LEN];
        repr.emit(&mut datagram, peer.addr, own, Sum::of(b"x"));
        datagram.extend(b"x");
        world.hear_frames(&[ip_frame(peer.addr, own, Protocol::UDP, &datagram)]);
        let data = b"x".to_vec();
        assert_eq!(world.told(), [Told::Datagram { port: UDP_PORT, peer, data }]);
        assert_eq!(world.local, LocalEndpoint::new(position, UDP_PORT));
        let local = world.local;
        world.call(|calls| calls.udp_sendv(local, peer, &[b"y"]).expect("room"));
        let out = world.frames_out();
        let [Out::Udp { src, dst, data }] = &out[..] else { panic!("{out:?}") };
        assert_eq!((*src, *dst, &data[..]), (Endpoint::new(own, UDP_PORT), peer, &b"y"[..]));
    }
}

/// RFC 9293 §3.9.1.1, MUST-43 and MUST-44: the application names the local address, or the stack chooses it.
#[test]
fn a_connection_leaves_from_the_address_that_is_named() {
    let mut world = world();
    // A port is chosen that leads back to the same core.
    world.stays = true;
    let remote = Endpoint::new(PEER_IP, 9_000);
    for (position, own) in [(None, STACK_IP), (Some(0), STACK_IP), (Some(1), MORE_IPS[0])] {
        for port in [0, 4_000] {
            let local = position.map_or(port.into(), |position| LocalEndpoint::new(position, port));
            world.call(|calls| calls.connect_from(Cookie(7), local, remote).expect("room"));
            let [syn] = &world.segments()[..] else { panic!("one SYN") };
            assert_eq!((syn.flags, syn.src.addr, syn.dst), (TcpFlags::SYN, own, remote));
            assert!(syn.src.port == port || port == 0 && syn.src.port > 0);
            let mut peer = Peer::new(remote.port, Open::default());
            (peer.there, peer.irs) = (syn.src, syn.seq);
            world.hear(&peer.seg(0, 1).flags("S."));
            assert_eq!(world.told(), [Told::Connected { cookie: 7, window: 5_360 }]);
            let known = LocalEndpoint::new(position.unwrap_or(0), syn.src.port);
            assert_eq!(world.local, known);
            world.expect(&peer, &[". 1 ack 1"]);
            world.hear(&peer.seg(1, 1).flags("R"));
            world.told();
        }
    }
}

/// Whatever position an application names, and one of an address of the other version.
#[test]
fn addresses_that_are_not_ours_are_refused_and_counted() {
    let mut world = world();
    let remote = Endpoint::new(PEER_IP, 9_000);
    let other_version = if PEER_IP.is_ipv4() { 3 } else { 2 };
    for (count, position) in [(1, other_version), (2, 4), (3, 254)] {
        let local = LocalEndpoint::new(position, 53);
        world.call(|calls| {
            calls.connect_from(Cookie(7), local, remote).expect("room");
            calls.udp_sendv(local, remote, &[b"x", b"y"]).expect("room");
        });
        let refused = [
            Told::ConnectFailed { cookie: 7, error: ConnectError::BadAddress },
            Told::Failed { call: CallKind::UdpSendv, error: CallError::BadAddress },
        ];
        assert_eq!(world.told(), refused, "{position}");
        world.silent();
        assert_eq!(world.stats().bad_local_addresses, 2 * count);
    }
    assert_eq!(world.stack.connections(), 0);
}
