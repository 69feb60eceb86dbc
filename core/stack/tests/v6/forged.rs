//! Frames that name addresses which no packet of their version can have.

use stack::neighbors::Neighbor;
use wire::ipv6::{multicast_mac, solicited_node};
use wire::{Address, Endpoint, Icmpv6Repr, Ipv4Addr, Ipv6Addr, MacAddr, PairId, Prefix, Protocol};

use crate::support::{
    MORE_IPS, Open, PEER_IP, PEER_MAC, Peer, STACK_IP, UDP_PORT, World, host, icmpv6_frame, ms,
    too_big_frame, udp_frame,
};

/// A peer of the first IPv4 address.
const PEER_V4: Address = Address::of_v4(Ipv4Addr::new(172, 16, 0, 9));

fn dual() -> World {
    World::with(|config| {
        config.addresses.push(Prefix::new(MORE_IPS[1], 24));
    })
}

/// An IPv6 packet from an address that maps an IPv4 address is none, also where it has the form of established
/// connections' frames: no answer, and nothing that the version makes too short.
#[test]
fn no_mapped_address_speaks_ipv6() {
    for make in [dual, World::new] {
        let mut world = make();
        let mut peer = Peer::new(7, Open::default());
        peer.timestamp = Some((1, 1));
        peer.here.addr = PEER_V4;
        world.hear(&peer.seg(1, 1));
        world.silent();
        assert_eq!(world.stats().not_for_us, 1);
    }
}

/// An opened IPv6 connection with timestamps.
fn opened(world: &mut World, port: u16) -> Peer {
    let peer = Peer::establish(world, port, Open { timestamp: Some(1), ..Open::default() });
    peer.timestamp.expect("agreed");
    peer
}

/// The IPv4 sources that have the form of the first numbers of each flow group.
fn numbers() -> impl Iterator<Item = Address> {
    let of_group = PairId::NUMBERS / 128;
    (0..128).map(move |group| Address::of_v4(Ipv4Addr::from_bits(0xe000_0000 + group * of_group)))
}

/// No IPv4 source is the number of a pair of IPv6 addresses: a frame from a multicast address speaks for no host.
#[test]
fn no_multicast_source_is_the_number_of_a_pair() {
    let mut world = dual();
    let peer = opened(&mut world, 7);
    for source in numbers() {
        let mut forged = peer.seg(1, 1).ts(2, 2);
        (forged.src.addr, forged.dst.addr) = (source, MORE_IPS[1]);
        world.hear(&forged);
    }
    let answers = world.frames_out();
    assert!(answers.is_empty(), "answered to {PEER_IP}: {answers:?}");
    assert_eq!(world.stats().not_for_us, 128);
}

/// Nor does it end a handshake that a cookie stands for: the connection would stand under the hash of other addresses.
#[test]
fn no_multicast_source_brings_the_cookie_of_another() {
    let mut world = World::with(|config| {
        config.addresses.push(Prefix::new(MORE_IPS[1], 24));
        config.backlog = 2;
    });
    // Its pair has a number as long as it lasts.
    let _first = opened(&mut world, 7);
    // The backlog is full of half-open ones.
    for port in [8, 9] {
        world.hear(&Peer::new(port, Open::default()).syn());
    }
    world.frames_out();
    for port in 100..140 {
        let mut peer = Peer::new(port, Open { timestamp: Some(1), ..Open::default() });
        world.hear(&peer.syn());
        let answers = world.segments();
        let [answer] = &answers[..] else { panic!("{answers:?}") };
        peer.irs = answer.seq;
        peer.timestamp = Some((1, answer.options.timestamp.expect("agreed").value));
        for source in numbers() {
            let mut forged = peer.seg(1, 1);
            (forged.src.addr, forged.dst.addr) = (source, MORE_IPS[1]);
            world.hear(&forged);
        }
        let _ = world.frames_out();
        let told = world.told();
        assert!(told.is_empty(), "opened by an IPv4 frame: {told:?}");
    }
}

/// RFC 8201 §4: what names less than every IPv6 link carries is discarded, and lowers nothing.
#[test]
fn no_message_names_less_than_every_link_carries() {
    let mut world = World::new();
    let _peer = opened(&mut world, 7);
    world.send(1_400);
    let sent = world.segments();
    let frame = {
        let mut back = sent[0].clone();
        back.stream_offset = 0;
        back.frame()
    };
    for mtu in [0, 68, 1_279] {
        world.hear_frames(&[too_big_frame(PEER_IP, mtu, &frame[14..14 + 200])]);
    }
    world.pass(ms(400));
    assert_eq!(world.stats().tcp_path_mtu_lowered, 0);
    world.frames_out();
}

/// RFC 6980 §5: no neighbour discovery in a fragment, and be it the only one.
#[test]
fn no_solicitation_comes_behind_a_fragment_header() {
    let mut world = World::new();
    let target = STACK_IP.v6().expect("one");
    let group = solicited_node(target);
    let message = Icmpv6Repr::NeighborSolicitation { target, source_link: Some(PEER_MAC) };
    let whole = icmpv6_frame(host(3), group.into(), &message, &[]);
    let mut frame = whole[..14 + 40].to_vec();
    frame.extend([Protocol::ICMPV6.0, 0, 0, 0, 0, 0, 0, 1]);
    frame.extend(&whole[14 + 40..]);
    frame[..6].copy_from_slice(&multicast_mac(group).0);
    frame[14 + 5] += 8;
    frame[14 + 6] = Protocol::FRAGMENT.0;
    world.hear_frames(&[frame]);
    world.silent();
}

/// Who asks for us from ever new addresses does not have those forgotten through which connections get on.
#[test]
fn a_flood_of_askers_leaves_neighbours_known() {
    let mut world = World::new();
    world.stays = true;
    let target = STACK_IP.v6().expect("one");
    let _peer = opened(&mut world, 7);
    for batch in 0..256u16 {
        let frames: Vec<_> = (0..64)
            .map(|number| {
                let asker = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 7, 7, batch, number);
                let source_link = Some(MacAddr([6; 6]));
                let message = Icmpv6Repr::NeighborSolicitation { target, source_link };
                icmpv6_frame(asker.into(), STACK_IP, &message, &[])
            })
            .collect();
        world.pass(ms(1));
        world.hear_frames(&frames);
        world.frames_out();
    }
    let known = world.stack.shared().neighbors.lookup(PEER_IP, world.now);
    assert_eq!(known, Neighbor::Reachable(PEER_MAC));
}

/// RFC 8200 §8.1: a device that verifies checksums has none to verify here.
#[test]
fn no_datagram_is_without_a_checksum_whatever_the_device_says() {
    let mut world = World::with(|config| config.rx_checksums_verified = true);
    let mut frame = udp_frame(Endpoint::new(PEER_IP, 1_000), UDP_PORT, b"data");
    frame[14 + 40 + 6..14 + 40 + 8].fill(0);
    world.hear_frames(&[frame]);
    let told = world.told();
    assert!(told.is_empty(), "{told:?}");
}

/// Sources that no host has, in frames of the form of established connections, to which a reset would answer.
#[test]
fn no_reset_answers_those_whom_no_host_is() {
    let mut world = dual();
    for source in ["ff02::1", "::", "::1", "::ffff:127.0.0.1", "2001:db8::1", "224.0.0.1"] {
        let mut peer = Peer::new(7, Open::default());
        peer.timestamp = Some((1, 1));
        peer.here.addr = source.parse().expect("an address");
        let v4 = peer.here.addr.is_ipv4() && !source.starts_with(':');
        peer.there.addr = if v4 { MORE_IPS[1] } else { STACK_IP };
        world.hear(&peer.seg(1, 1));
        world.silent();
    }
    assert_eq!(world.stats().not_for_us, 6);
}
