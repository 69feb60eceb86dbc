//! Fragments: what is reassembled, what is refused, and what that costs whom (RFC 791 §3.2, RFC 8200 §4.5).

use clock::Duration;
use wire::ipv4::{ECN_CE, ECN_ECT_0, ECN_NOT_ECT};
use wire::{Address, Endpoint, IcmpRepr, Icmpv6Repr, Protocol, TimeExceededCode};

use crate::support::{
    IP_LEN, MTU, Open, Out, PEER_IP, PORT, Peer, STACK_IP, Seg, Told, UDP_PORT, World, config, far,
    fragment, fragments, host, ip_frame, ms, pattern, ping_frame, udp_frame, with_options,
};

/// Slots of a core.
const SLOTS: usize = 64;
/// Data of the largest datagram of UDP that is reassembled.
const MOST: usize = 1_856 - 8;
const LIFE: Duration = Duration::from_secs(60);

/// Fragments are looked at by the core that has their slot.
fn world() -> World {
    settled(World::new())
}

fn settled(mut world: World) -> World {
    world.stays = true;
    world
}

fn peer() -> Endpoint {
    Endpoint::new(PEER_IP, 1_000)
}

/// A datagram from `src` with so much data.
fn datagram(src: Address, len: usize) -> Vec<u8> {
    udp_frame(Endpoint::new(src, 1_000), UDP_PORT, &pattern(0, len))
}

#[track_caller]
fn delivered(world: &mut World, len: usize) {
    let data = pattern(0, len);
    assert_eq!(world.told(), [Told::Datagram { port: UDP_PORT, peer: peer(), data }]);
}

#[test]
fn datagrams_are_reassembled_in_any_order() {
    let mut world = world();
    for (len, size) in [(9, 8), (1_000, 504), (1_400, 696), (MOST, 1_480), (MOST, 8), (100, 24)] {
        let mut pieces = fragments(&datagram(PEER_IP, len), 1, size);
        for turn in 0..3 {
            match turn {
                0 => pieces.iter().for_each(|piece| world.hear_frames(std::slice::from_ref(piece))),
                1 => pieces.chunks(32).for_each(|batch| world.hear_frames(batch)),
                _ => {
                    let middle = pieces.len() / 2;
                    pieces.rotate_left(middle);
                    pieces.chunks(32).for_each(|batch| world.hear_frames(batch));
                }
            }
            delivered(&mut world, len);
            pieces.reverse();
        }
    }
    let stats = world.stats();
    assert_eq!((stats.reassembled, stats.udp_in, world.pool.kept()), (18, 18, 0));
    assert_eq!(stats.fragments_in, 3 * (3 + 2 + 3 + 2 + 232 + 5));
    world.silent();
}

/// Those of several datagrams at once, of one identification where the ends or the protocols differ.
#[test]
fn datagrams_are_kept_apart() {
    let mut world = world();
    let mut pieces = Vec::new();
    for (src, ident) in [(PEER_IP, 1), (host(9), 1), (PEER_IP, 2)] {
        pieces.push(fragments(&datagram(src, 600), ident, 304));
    }
    if !crate::V6 {
        // Over IPv6 the protocol is no part of the key.
        pieces.push(fragments(&ping_frame(PEER_IP, &pattern(0, 600)), 1, 304));
    }
    for at in [1, 0] {
        let batch: Vec<_> = pieces.iter().map(|pieces| pieces[at].clone()).collect();
        world.hear_frames(&batch);
    }
    assert_eq!(world.told().len(), 3);
    assert_eq!(world.stats().reassembled, pieces.len() as u64);
    assert_eq!(world.frames_out().len(), pieces.len() - 3);
}

#[test]
fn segments_in_fragments_continue_a_stream() {
    let mut world = world();
    let open = Peer::establish(&mut world, 5, Open::default());
    let whole = open.seg(1, 1).len(1_300).frame();
    world.hear_frames(&fragments(&whole, 3, 600));
    world.received(0, 1_300);
    world.pass(ms(100));
    world.expect(&open, &[". 1 ack 1301"]);
    // A SYN, too.
    world.hear_frames(&fragments(&Peer::new(6, Open::default()).syn().frame(), 4, 24));
    assert_eq!(world.segments().len(), 1);
}

/// RFC 3168 §5.3: the mark of any fragment is the datagram's.
#[test]
fn a_marked_fragment_marks_the_segment() {
    let mut world = World::with(|config| config.ecn = stack::Ecn::Accept);
    world.stays = true;
    let open = Peer::establish(&mut world, 5, Open { ecn: true, ..Open::default() });
    let pieces = |seq, ident, ecn| {
        let seg = open.seg(seq, 1);
        let seg = Seg { ecn, stream_offset: seq as usize - 1, ..seg }.len(40);
        fragments(&seg.frame(), ident, 40)
    };
    // But not one of a sender that takes no marks.
    world.hear_frames(&[pieces(1, 3, ECN_NOT_ECT)[0].clone(), pieces(1, 3, ECN_CE)[1].clone()]);
    world.received(0, 40);
    world.pass(ms(100));
    world.expect(&open, &[". 1 ack 41"]);
    world.hear_frames(&[pieces(41, 4, ECN_ECT_0)[0].clone(), pieces(41, 4, ECN_CE)[1].clone()]);
    world.received(40, 40);
    world.pass(ms(100));
    world.expect(&open, &["E. 1 ack 81"]);
    assert_eq!(world.stats().tcp_marks_in, 1);
}

/// No reply is larger than the MTU, as none is sent in fragments.
#[test]
fn echo_requests_in_fragments_are_answered_up_to_the_mtu() {
    let mut world = world();
    let most = usize::from(MTU) - IP_LEN - 8;
    for len in [1_000, most] {
        world.hear_frames(&fragments(&ping_frame(PEER_IP, &pattern(0, len)), 1, 800));
        let out = world.frames_out();
        let [Out::Icmp { data, .. } | Out::Icmpv6 { data, .. }] = &out[..] else {
            panic!("{out:?}")
        };
        assert_eq!(*data, pattern(0, len));
    }
    world.hear_frames(&fragments(&ping_frame(PEER_IP, &pattern(0, most + 1)), 1, 800));
    world.silent();
    assert_eq!((world.stats().icmp_echoes, world.stats().tx_dropped), (2, 1));
}

/// What a device has promised of packets does not hold of those that are made of fragments.
#[test]
fn checksums_are_verified_over_the_whole() {
    let mut world = settled(World::with(|config| config.rx_checksums_verified = true));
    let open = Peer::establish(&mut world, 5, Open::default());
    let wholes = [
        datagram(PEER_IP, 200),
        open.seg(1, 1).len(200).frame(),
        ping_frame(PEER_IP, &pattern(0, 200)),
    ];
    for (number, whole) in wholes.iter().enumerate() {
        let mut pieces = fragments(whole, number as u32, 104);
        *pieces[1].last_mut().expect("bytes") ^= 1;
        world.hear_frames(&pieces);
        world.silent();
        assert_eq!(world.told(), [], "{number}");
        assert_eq!(world.stats().bad_checksum, number as u64 + 1);
    }
    assert_eq!(world.stats().reassembled, 3);
    world.hear_frames(&fragments(&wholes[0], 9, 104));
    delivered(&mut world, 200);
}

#[test]
fn exact_duplicates_are_ignored() {
    let mut world = world();
    let pieces = fragments(&datagram(PEER_IP, 100), 1, 40);
    for at in [0, 0, 2, 2, 0, 1] {
        world.hear_frames(&[pieces[at].clone()]);
    }
    delivered(&mut world, 100);
    assert_eq!(world.stats().reassembly_refused, 0);
}

/// RFC 5722 §4: neither the fragments that came nor those that come make a datagram.
#[test]
fn an_overlap_refuses_the_whole_datagram() {
    let whole = datagram(PEER_IP, 100);
    let mut other_bytes = fragment(&whole, 1, 40..80, true);
    *other_bytes.last_mut().expect("bytes") ^= 1;
    let overlaps = [
        // Inside one, over the end of one, over two, of one and what follows, the same as one and not the last, and with
        // other bytes.
        fragment(&whole, 1, 48..64, true),
        fragment(&whole, 1, 0..48, true),
        fragment(&whole, 1, 40..72, true),
        fragment(&whole, 1, 32..80, true),
        fragment(&whole, 1, 0..80, true),
        fragment(&whole, 1, 40..80, false),
        other_bytes,
    ];
    for (number, overlap) in overlaps.into_iter().enumerate() {
        let mut world = world();
        let pieces = fragments(&whole, 1, 40);
        world.hear_frames(&pieces[..2]);
        world.hear_frames(&[overlap]);
        assert_eq!((world.stats().reassembly_refused, world.pool.kept()), (1, 0), "{number}");
        world.hear_frames(&pieces);
        world.hear_frames(&pieces[2..]);
        assert_eq!((world.told(), world.stats().reassembled), (vec![], 0), "{number}");
        assert_eq!(world.stats().reassembly_refused, 1);
        // It is forgotten, without a report.
        world.pass(LIFE + ms(1));
        world.silent();
        assert_eq!(world.stats().reassembly_timeouts, 0);
        world.hear_frames(&pieces);
        delivered(&mut world, 100);
    }
}

/// The two fragments that touch cover the third: it is none of them.
#[test]
fn two_fragments_as_one_are_an_overlap() {
    let mut world = world();
    let whole = datagram(PEER_IP, 100);
    world.hear_frames(&[fragment(&whole, 1, 16..32, true), fragment(&whole, 1, 0..16, true)]);
    world.hear_frames(&[fragment(&whole, 1, 0..32, true)]);
    assert_eq!(world.stats().reassembly_refused, 1);
}

#[test]
fn fragments_that_contradict_each_other_about_the_end_are_refused() {
    let whole = datagram(PEER_IP, 100);
    let cut = |range, more| fragment(&whole, 1, range, more);
    for (first, second) in [
        // The last one ends before another, another ends behind the last, there are two last ones.
        (cut(80..96, true), cut(64..72, false)),
        (cut(64..72, false), cut(80..96, true)),
        (cut(64..72, false), cut(80..96, false)),
        (cut(80..96, false), cut(64..72, false)),
    ] {
        let mut world = world();
        world.hear_frames(&[first]);
        assert_eq!(world.stats().reassembly_refused, 0);
        world.hear_frames(&[second]);
        assert_eq!((world.stats().reassembly_refused, world.pool.kept()), (1, 0));
    }
}

/// A fragment that no sender makes is dropped alone (RFC 8200 §4.5), and does no harm to the others.
#[test]
fn fragments_of_bad_lengths_are_dropped() {
    let mut world = world();
    let whole = datagram(PEER_IP, 100);
    let bad = [
        fragment(&whole, 1, 0..12, true),
        fragment(&whole, 1, 8..8, true),
        fragment(&whole, 1, 8..8, false),
        fragment(&whole, 1, 65_528..65_536, false),
        fragment(&whole, 1, 65_520..65_528, true),
    ];
    // Over IPv6 the total does not count the fixed header.
    let (fitting, bad) = bad.split_last().expect("some");
    world.hear_frames(bad);
    assert_eq!((world.stats().malformed, world.stats().fragments_in), (4, 0));
    if crate::V6 {
        world.hear_frames(std::slice::from_ref(fitting));
        assert_eq!((world.stats().malformed, world.stats().reassembly_too_large), (4, 1));
    }
    world.hear_frames(&fragments(&whole, 2, 40));
    delivered(&mut world, 100);
}

#[test]
fn a_datagram_beyond_a_chunk_is_refused() {
    let mut world = world();
    let whole = datagram(PEER_IP, MOST + 1);
    let pieces = fragments(&whole, 1, 1_480);
    world.hear_frames(&pieces);
    assert_eq!((world.stats().reassembly_too_large, world.pool.kept()), (1, 0));
    world.hear_frames(&pieces[..1]);
    assert_eq!((world.told(), world.stats().reassembled), (vec![], 0));
    world.pass(LIFE + ms(1));
    world.silent();
}

/// RFC 792, RFC 4443 §3.3: of the fragments only the first says what the datagram was. None is reported of which it has not
/// come.
#[test]
fn what_does_not_become_whole_ends_in_time() {
    let mut world = world();
    let whole = datagram(PEER_IP, 1_000);
    let pieces = fragments(&whole, 1, 96);
    world.hear_frames(&pieces[..4]);
    world.hear_frames(&fragments(&whole, 2, 96)[1..]);
    assert_eq!(world.pool.kept(), 2);
    world.pass(LIFE - ms(1));
    world.silent();
    assert_eq!(world.stats().reassembly_timeouts, 0);
    world.pass(ms(2));
    assert_eq!((world.stats().reassembly_timeouts, world.pool.kept()), (2, 0));
    let code = TimeExceededCode::REASSEMBLY;
    let out = world.frames_out();
    let data = match &out[..] {
        [Out::Icmp { dst, repr, data }] => {
            assert_eq!((*dst, *repr), (PEER_IP, IcmpRepr::TimeExceeded { code }));
            data
        }
        [Out::Icmpv6 { dst, repr, data, .. }] => {
            assert_eq!((*dst, repr), (PEER_IP, &Icmpv6Repr::TimeExceeded { code }));
            data
        }
        other => panic!("{other:?}"),
    };
    // The first fragment as it came, and nothing that lay in memory behind it.
    assert!(data.len() >= IP_LEN + 8 && pieces[0][14..].starts_with(data));
    assert_eq!(world.stats().icmp_errors_out, 1);
    // Late ones begin anew.
    world.hear_frames(&pieces[4..]);
    assert_eq!((world.told(), world.pool.kept()), (vec![], 1));
}

/// RFC 1122 §3.2.2, RFC 4443 §2.4: an ICMP message may be an error, about which there is none.
#[test]
fn incomplete_icmp_messages_are_not_reported() {
    let mut world = settled(world());
    world.hear_frames(&fragments(&ping_frame(PEER_IP, &pattern(0, 600)), 1, 304)[..1]);
    world.pass(LIFE + ms(1));
    world.silent();
    assert_eq!(world.stats().reassembly_timeouts, 1);
}

/// Each report counts against the answers to strangers.
#[test]
fn reports_have_the_budget_of_answers() {
    let mut world = settled(World::with(|config| config.answers_per_second = 3));
    let whole = datagram(PEER_IP, 100);
    for ident in 0..10 {
        world.hear_frames(&fragments(&whole, ident, 40)[..1]);
    }
    world.pass(LIFE + ms(1));
    assert_eq!(world.frames_out().len(), 3);
    assert_eq!((world.stats().icmp_errors_out, world.stats().answers_limited), (3, 7));
}

/// Who fills all slots loses some of them to others, and they lose none to it.
#[test]
fn a_flood_of_one_peer_leaves_others_theirs() {
    let mut world = world();
    let flood = datagram(far(66), 1_000);
    let begin = |world: &mut World, ident| {
        world.hear_frames(&fragments(&flood, ident, 504)[1..]);
    };
    (0..200).for_each(|ident| begin(&mut world, ident));
    assert_eq!((world.pool.kept(), world.stats().reassembly_no_room), (SLOTS, 200 - SLOTS as u64));
    let others: Vec<_> =
        (0..20).map(|ident| fragments(&datagram(PEER_IP, 1_000), ident, 504)).collect();
    others.iter().for_each(|pieces| world.hear_frames(&pieces[..1]));
    (200..400).for_each(|ident| begin(&mut world, ident));
    assert_eq!(world.pool.kept(), SLOTS);
    others.iter().for_each(|pieces| world.hear_frames(&pieces[1..2]));
    others.iter().for_each(|pieces| world.hear_frames(&pieces[2..]));
    assert_eq!(world.told().len(), 20);
    // Of the flood's, the oldest are gone.
    let wholes = |world: &mut World, idents: core::ops::Range<u32>| {
        let before = world.stats().reassembled;
        idents.for_each(|ident| world.hear_frames(&fragments(&flood, ident, 504)[..1]));
        world.stats().reassembled - before
    };
    assert_eq!((wholes(&mut world, 370..400), wholes(&mut world, 340..350)), (30, 0));
}

/// Over IPv6 a peer has a whole network to flood from.
#[test]
fn many_addresses_of_one_network_are_one_peer() {
    if !crate::V6 {
        return;
    }
    let mut world = world();
    let flood = |world: &mut World, last: u16| {
        let src = Address::from(wire::Ipv6Addr::new(0x2001, 0xdb8, 7, 0, last, 0, 0, 1));
        world.hear_frames(&fragments(&datagram(src, 100), 1, 48)[1..2]);
    };
    (1..100).for_each(|last| flood(&mut world, last));
    let pieces: Vec<_> =
        (0..8).map(|ident| fragments(&datagram(PEER_IP, 100), ident, 56)).collect();
    pieces.iter().for_each(|pieces| world.hear_frames(&pieces[..1]));
    (100..200).for_each(|last| flood(&mut world, last));
    pieces.iter().for_each(|pieces| world.hear_frames(&pieces[1..]));
    assert_eq!(world.told().len(), 8);
}

/// Of little memory fragments take a share, and give it back.
#[test]
fn little_memory_is_shared() {
    let mut world = settled(World::sized(config(), 256, 64));
    for ident in 0..64 {
        world.hear_frames(&fragments(&datagram(PEER_IP, 100), ident, 56)[..1]);
    }
    let kept = world.pool.kept();
    assert!((8..=16).contains(&kept), "{kept} of 256 chunks");
    assert_eq!(world.stats().reassembly_no_room, 64 - kept as u64);
    let mut hoard = Vec::new();
    while world.pool.available() > 4 {
        hoard.extend(world.pool.alloc());
    }
    world.hear_frames(&fragments(&datagram(host(3), 100), 1, 56));
    assert_eq!(world.told(), []);
    assert!(world.pool.kept() < kept);
    hoard.into_iter().for_each(|mbuf| world.pool.free(mbuf));
}

/// What a peer makes us refuse takes no memory, and does not take others' either where that is short.
#[test]
fn refused_datagrams_do_not_stand_for_memory() {
    let mut world = settled(World::sized(config(), 256, 64));
    let begin = |world: &mut World, src, ident, range| {
        world.hear_frames(&[fragment(&datagram(src, 100), ident, range, true)]);
    };
    for ident in 0..24 {
        begin(&mut world, far(66), ident, 0..16);
        begin(&mut world, far(66), ident, 8..24);
    }
    assert_eq!((world.stats().reassembly_refused, world.pool.kept()), (24, 0));
    for ident in 100..132 {
        begin(&mut world, far(66), ident, 0..16);
    }
    let (kept, pieces) = (world.pool.kept(), fragments(&datagram(PEER_IP, 100), 1, 56));
    assert!((8..=16).contains(&kept), "{kept} of 256 chunks");
    world.hear_frames(&pieces);
    delivered(&mut world, 100);
}

/// A stack that ends gives back what is incomplete.
#[test]
fn incomplete_datagrams_end_with_the_stack() {
    let mut world = world();
    world.hear_frames(&fragments(&datagram(PEER_IP, 100), 1, 56)[..1]);
    assert_eq!(world.pool.kept(), 1);
    world.close();
    assert_eq!(world.pool.kept(), 0);
}

/// Devices steer fragments by the addresses alone, segments by the ports too: all fragments meet at the home of the
/// addresses' flow group, and what they make goes on to that of its own.
#[test]
fn fragments_and_segments_find_their_homes() {
    let mut world = world();
    let open = Peer::establish(&mut world, 5, Open::default());
    let pieces = fragments(&open.seg(1, 1).len(500).frame(), 1, 256);
    let own = stack::Shared::group_of(
        world
            .stack
            .shared()
            .flow_hash(Endpoint::new(open.there.addr, 0), Endpoint::new(PEER_IP, 0)),
    );
    let away = pieces.iter().flat_map(|piece| world.misdirect(piece)).collect::<Vec<_>>();
    assert_eq!(away.iter().map(|away| away.group).collect::<Vec<_>>(), [own; 3]);
    // A connection of another flow group than its addresses', whose group is about to leave.
    let set = stack::GroupSet::one(world.handle().group());
    assert!(!set.has(own));
    let World { now, stack, pool, .. } = &mut world;
    let mut frames = Vec::new();
    for piece in &pieces {
        let mut mbuf = pool.alloc().expect("memory");
        mbuf.append(piece).expect("room");
        frames.push(mbuf);
    }
    stack.seal(set);
    let (mut events, mut away) = (domain::EventArray::new(64), Vec::new());
    stack.input(*now, &mut frames, pool, &mut events, |to, mbuf, pool| {
        assert_eq!(mbuf.tag, stack::FORWARDED);
        away.push((to.group, mbuf.bytes().to_vec()));
        pool.free(mbuf);
    });
    stack.unseal(set, *now, pool, &mut events);
    let [(group, whole)] = &away[..] else { panic!("{} frames", away.len()) };
    assert!(set.has(*group));
    // It arrives there as an unfragmented packet does.
    world.hear_frames(std::slice::from_ref(whole));
    world.received(0, 500);
    assert_eq!(world.stats().forwarded, 4);
}

/// RFC 7112 §5: the first fragment has all headers.
#[test]
fn a_first_fragment_without_all_headers_is_dropped() {
    if !crate::V6 {
        return;
    }
    let mut world = world();
    let whole = with_options(&datagram(PEER_IP, 200), 3);
    world.hear_frames(&fragments(&whole, 1, 24));
    world.hear_frames(&fragments(&Peer::new(9, Open::default()).syn().frame(), 2, 16));
    assert_eq!((world.stats().malformed, world.stats().reassembled), (2, 0));
    world.hear_frames(&fragments(&whole, 3, 32));
    delivered(&mut world, 200);
    // Headers that do not fit before the payload.
    world.hear_frames(&fragments(&with_options(&datagram(PEER_IP, 200), 12), 4, 208));
    delivered(&mut world, 200);
}

/// RFC 6980 §5: an advertisement in fragments, or behind a Fragment header, teaches nothing.
#[test]
fn neighbour_discovery_has_no_fragments() {
    if !crate::V6 {
        return;
    }
    let mut world = world();
    world.auto_arp = false;
    let (there, plain) = (host(9), World::neighbor_answer(host(9)));
    let learned = |world: &World| {
        let found = world.stack.shared().neighbors.lookup(there, world.now);
        found != stack::neighbors::Neighbor::Unknown
    };
    world.call(|calls| calls.udp_sendv(UDP_PORT, Endpoint::new(there, 9), &[b"x"]).expect("room"));
    assert_eq!(world.frames_out().len(), 1);
    world.hear_frames(&fragments(&plain, 1, 16));
    assert_eq!((world.stats().reassembled, world.stats().malformed), (1, 1));
    let atomic = fragment(&plain, 2, 0..plain.len() - 14 - IP_LEN, false);
    world.hear_frames(&[atomic]);
    assert_eq!(world.stats().malformed, 2);
    assert!(!learned(&world));
    world.hear_frames(&[plain]);
    assert!(learned(&world));
    world.frames_out();
}

/// An atomic fragment (RFC 6946) is a packet of its own, whatever waits under its identification.
#[test]
fn atomic_fragments_are_packets() {
    if !crate::V6 {
        return;
    }
    let mut world = world();
    let whole = datagram(PEER_IP, 100);
    let pieces = fragments(&whole, 1, 56);
    world.hear_frames(&pieces[..1]);
    world.hear_frames(&[fragment(&whole, 1, 0..108, false)]);
    delivered(&mut world, 100);
    world.hear_frames(&pieces[1..]);
    delivered(&mut world, 100);
    assert_eq!(world.stats().reassembled, 1);
}

/// A reassembled datagram for a port that is not bound, and one of a protocol that is not spoken, are reported as whole ones.
#[test]
fn undeliverable_datagrams_are_reported() {
    let mut world = world();
    let unbound = udp_frame(peer(), PORT, &pattern(0, 200));
    world.hear_frames(&fragments(&unbound, 1, 104));
    let strange = ip_frame(PEER_IP, STACK_IP, Protocol(132), &pattern(0, 200));
    world.hear_frames(&fragments(&strange, 2, 104));
    let out = world.frames_out();
    assert_eq!((out.len(), world.stats().icmp_errors_out), (2, 2));
}
