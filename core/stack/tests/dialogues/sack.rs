//! Selective acknowledgments in both directions (RFC 2018, 2883, 6675), and what follows from them: losses found by time
//! (RFC 8985), tail loss probes, and the rate in recovery (RFC 6937).

use wire::TcpFlags;

use crate::support::{Open, Out, PEER_IP, Peer, World, config, ms, near, ping_frame};

const MSS: u32 = 1_460;

fn open() -> Open {
    Open { sack: true, ..Open::default() }
}

fn agreed(world: &mut World) -> Peer {
    Peer::establish(world, 5, open())
}

/// Where the full segment `number` (counted from zero) begins.
fn at(number: u32) -> u32 {
    1 + number * MSS
}

/// The full segments that were sent, counted from zero.
fn numbers(world: &mut World, peer: &Peer) -> Vec<u32> {
    let number = |seq: i32| (seq - 1) as u32 / MSS;
    world.segments().iter().map(|segment| number(segment.seq - peer.irs)).collect()
}

/// A connection with a round trip of `rtt` milliseconds and `segments` full segments in flight, sent one in a tenth of a
/// millisecond.
fn in_flight(world: &mut World, rtt: u64, segments: u32) -> Peer {
    let (peer, _) = Peer::knock(world, 5, open());
    world.pass(ms(rtt));
    world.hear(&peer.seg(1, 1));
    world.told();
    for number in 0..segments {
        world.send(MSS as usize);
        assert_eq!(numbers(world, &peer), [number]);
        world.pass(ms(1) / 10);
    }
    peer
}

#[test]
fn is_offered_and_answered_where_it_was_offered() {
    for sack in [true, false] {
        let mut world = World::new();
        let (_, answer) = Peer::knock(&mut world, 5, Open { sack, ..Open::default() });
        assert_eq!(answer.options.sack_permitted, sack);
    }
}

#[test]
fn gaps_are_told_of_newest_first() {
    let mut world = World::new();
    let peer = agreed(&mut world);
    let blocks = |world: &mut World, seq, len| {
        world.hear(&peer.seg(seq, 1).len(len));
        let acks = world.segments();
        let [ack] = &acks[..] else { panic!("one acknowledgment: {acks:?}") };
        assert_eq!(ack.ack, peer.iss + 1);
        peer.blocks(ack)
    };
    assert_eq!(blocks(&mut world, 101, 100), [(101, 201)]);
    assert_eq!(blocks(&mut world, 301, 100), [(301, 401), (101, 201)]);
    assert_eq!(blocks(&mut world, 501, 100), [(501, 601), (301, 401), (101, 201)]);
    assert_eq!(blocks(&mut world, 201, 100), [(101, 401), (501, 601)], "grown together");
    for (seq, number) in [(701, 3), (901, 4), (1_101, 4)] {
        let told = blocks(&mut world, seq, 100);
        assert_eq!((told.len(), told[0]), (number, (seq as i32, seq as i32 + 100)));
    }
    world.hear(&peer.seg(1, 1).len(100));
    let acks = world.segments();
    let newest = vec![(1_101, 1_201), (901, 1_001), (701, 801), (501, 601)];
    assert_eq!((acks[0].ack - peer.iss, peer.blocks(&acks[0])), (401, newest));
    world.hear(&peer.seg(401, 1).len(800));
    assert_eq!(peer.blocks(&world.segments()[0]), []);
}

/// Beside a timestamp there is room for three blocks, and in a full segment for none: then an acknowledgment of its own
/// takes them.
#[test]
fn blocks_go_where_there_is_room_for_them() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open { timestamp: Some(100), ..open() });
    for seq in [101, 301, 501, 701] {
        world.hear(&peer.seg(seq, 1).len(100));
    }
    let acks = world.segments();
    assert_eq!(acks.last().map(|ack| peer.blocks(ack).len()), Some(3));
    let handle = world.handle();
    for len in [MSS as usize - 12, 100] {
        let batch = [peer.seg(901, 1).len(100).frame()];
        let bytes = vec![0; len];
        world.cycle(&batch, |calls| calls.sendv(handle, &[&bytes]).expect("room"));
        let sent = world.segments();
        let blocks: Vec<_> =
            sent.iter().map(|seg| (seg.payload.len(), peer.blocks(seg).len())).collect();
        let expected = if len == 100 { vec![(100, 3)] } else { vec![(len, 0), (0, 3)] };
        assert_eq!(blocks, expected);
    }
}

/// RFC 2883 §4: the first block names what came twice, below what is acknowledged or inside another block. Once.
#[test]
fn what_comes_twice_is_told_of() {
    let mut world = World::new();
    let peer = agreed(&mut world);
    world.hear(&peer.seg(1, 1).len(200));
    world.hear(&peer.seg(401, 1).len(200));
    world.frames_out();
    world.hear(&peer.seg(1, 1).len(100));
    assert_eq!(peer.blocks(&world.segments()[0]), [(1, 101), (401, 601)], "all of it is old");
    world.hear(&peer.seg(101, 1).len(150));
    assert_eq!(peer.blocks(&world.segments()[0]), [(101, 201), (401, 601)], "a part is old");
    world.hear(&peer.seg(451, 1).len(100));
    assert_eq!(peer.blocks(&world.segments()[0]), [(451, 551), (401, 601)], "in a block");
    world.hear(&peer.seg(801, 1).len(10));
    assert_eq!(peer.blocks(&world.segments()[0]), [(801, 811), (401, 601)]);
    // A probe of an open window is no data.
    world.hear(&peer.seg(0, 1));
    assert_eq!(peer.blocks(&world.segments()[0])[0], (801, 811));
}

#[test]
fn three_segments_behind_a_gap_have_what_is_missing_sent_again() {
    let mut world = World::new();
    let peer = in_flight(&mut world, 20, 10);
    world.pass(ms(20));
    // Lost: 0, 3 and 4.
    world.hear(&peer.sack(1, 1, &[(at(1), at(2))]));
    world.hear(&peer.sack(1, 1, &[(at(1), at(3))]));
    world.silent();
    world.hear(&peer.sack(1, 1, &[(at(5), at(6)), (at(1), at(3))]));
    let mut again = numbers(&mut world, &peer);
    for number in 7..=10 {
        world.hear(&peer.sack(1, 1, &[(at(5), at(number)), (at(1), at(3))]));
        again.extend(numbers(&mut world, &peer));
    }
    assert_eq!(again, [0, 3, 4], "all within one round trip");
    world.pass(ms(20));
    world.hear(&peer.seg(1, at(10)));
    world.silent();
    let stats = world.stats();
    assert_eq!(
        (stats.tcp_fast_retransmits, stats.tcp_timeouts, stats.tcp_retransmissions),
        (1, 0, 3)
    );
    world.told();
}

/// A segment that was sent again and lost again is found by what was sent after it, without a time-out.
#[test]
fn a_lost_retransmission_is_sent_a_third_time() {
    let mut world = World::new();
    let peer = in_flight(&mut world, 20, 10);
    world.pass(ms(20));
    world.hear(&peer.sack(1, 1, &[(at(1), at(5))]));
    assert_eq!(numbers(&mut world, &peer)[0], 0);
    world.told();
    world.pass(ms(5));
    world.hear(&peer.sack(1, 1, &[(at(1), at(10))]));
    world.send(3 * MSS as usize);
    let new = numbers(&mut world, &peer);
    assert_eq!(new[0], 10, "{new:?}");
    world.pass(ms(20));
    world.hear(&peer.sack(1, 1, &[(at(1), at(11))]));
    assert_eq!(numbers(&mut world, &peer), [0], "what was sent after it has arrived");
    assert_eq!(world.stats().tcp_timeouts, 0);
    world.told();
}

/// Where the path has been seen to reorder, three segments mean nothing: a quarter of a round trip does.
#[test]
fn a_path_that_reorders_is_waited_for() {
    let mut world = World::new();
    let peer = in_flight(&mut world, 20, 4);
    world.pass(ms(20));
    world.hear(&peer.sack(1, 1, &[(at(2), at(3))]));
    world.hear(&peer.seg(1, at(3)));
    world.hear(&peer.seg(1, at(4)));
    world.told();
    let first = 4;
    for number in first..first + 8 {
        world.send(MSS as usize);
        assert_eq!(numbers(&mut world, &peer), [number]);
    }
    world.pass(ms(20));
    for number in 1..8 {
        world.hear(&peer.sack(1, at(first), &[(at(first + 1), at(first + 1 + number))]));
        world.silent();
    }
    near(world.pass_until_sent(ms(100)), 5);
    assert_eq!(numbers(&mut world, &peer), [first]);
    assert_eq!(world.stats().tcp_fast_retransmits, 1);
    world.told();
}

/// The peer has what was sent again twice: it was late, not lost. The window is what it was.
#[test]
fn a_recovery_that_was_not_needed_is_undone() {
    let mut world = World::new();
    let peer = in_flight(&mut world, 20, 10);
    world.pass(ms(20));
    world.hear(&peer.sack(1, 1, &[(at(1), at(5))]));
    assert_eq!(numbers(&mut world, &peer), [0]);
    // The first one came after all.
    world.hear(&peer.seg(1, at(10)));
    world.told();
    world.hear(&peer.sack(1, at(10), &[(1, at(1))]));
    let stats = world.stats();
    assert_eq!((stats.tcp_spurious_recoveries, stats.tcp_retransmissions), (1, 1));
    world.told();
    assert_eq!(sendable(&mut world, &peer), 10);
}

/// How many of twelve full segments go out at once.
fn sendable(world: &mut World, peer: &Peer) -> usize {
    world.send(12 * MSS as usize);
    world.told();
    // As many as an initial window has at once, and the others at the window's pace.
    let at_once = numbers(world, peer).len();
    assert!(at_once <= 10, "{at_once}");
    world.pass(ms(5));
    at_once + numbers(world, peer).len()
}

/// RFC 8985 §7: the last segments of a flight are lost. What arrives in answer to a probe shows what is missing.
#[test]
fn a_lost_tail_is_found_by_a_probe() {
    let mut world = World::new();
    let peer = in_flight(&mut world, 20, 10);
    world.pass(ms(19));
    world.hear(&peer.seg(1, at(7)));
    world.told();
    let waited = world.pass_until_sent(ms(1_000));
    assert!(waited > ms(30) && waited < ms(60), "{waited:?}, not a time-out");
    assert_eq!(numbers(&mut world, &peer), [9], "the last one");
    world.pass(ms(20));
    world.hear(&peer.sack(1, at(7), &[(at(9), at(10))]));
    let mut again = numbers(&mut world, &peer);
    if again.is_empty() {
        world.pass_until_sent(ms(100));
        again = numbers(&mut world, &peer);
    }
    world.hear(&peer.seg(1, at(8)));
    again.extend(numbers(&mut world, &peer));
    assert_eq!(again, [7, 8]);
    world.hear(&peer.seg(1, at(10)));
    let stats = world.stats();
    assert_eq!((stats.tcp_tail_probes, stats.tcp_timeouts), (1, 0));
    world.told();
}

/// A probe for which the device has no room does not put the time-out off.
#[test]
fn the_time_out_comes_though_a_probe_finds_no_room() {
    let mut world = World::sized(config(), 512, 4);
    let peer = in_flight(&mut world, 20, 4);
    world.nic_takes = false;
    (0..4).for_each(|_| world.hear_frames(&[ping_frame(PEER_IP, b"ping")]));
    world.pass(ms(1_000));
    assert_eq!((world.stats().tcp_tail_probes, world.stats().tcp_timeouts), (0, 2));
    world.nic_takes = true;
    world.settle();
    world.frames_out();
    world.pass_until_sent(ms(60_000));
    world.frames_out();
    world.hear(&peer.seg(1, at(4)));
    world.told();
}

/// The same with timestamps: what the peer echoes beside a block is of the last segment in order, and older than the probe.
#[test]
fn a_lost_tail_is_found_with_timestamps_too() {
    let mut world = World::new();
    let (peer, _) = Peer::knock(&mut world, 5, Open { timestamp: Some(100), ..open() });
    let full = MSS - 12;
    world.pass(ms(20));
    world.hear(&peer.seg(1, 1));
    world.told();
    (0..8).for_each(|_| world.send(full as usize));
    let sent = world.segments();
    let echo = sent[0].options.timestamp.map_or(0, |stamp| stamp.value);
    world.pass(ms(20));
    world.hear(&peer.seg(1, 1 + 5 * full).ts(101, echo));
    world.told();
    let waited = world.pass_until_sent(ms(1_000));
    assert!(waited < ms(60), "{waited:?}");
    world.frames_out();
    world.pass(ms(20));
    let blocks = [(1 + 7 * full, 1 + 8 * full)];
    let seg = peer.sack(1, 1 + 5 * full, &blocks).ts(102, echo);
    world.hear(&seg);
    let waited = world.pass_until_sent(ms(1_000));
    assert!(waited < ms(10), "{waited:?}: no time-out");
    world.expect(&peer, &[&format!(". {}:{}({full}) ack 1", 1 + 5 * full, 1 + 6 * full)]);
    world.told();
}

/// Blocks name the newest segment first, which says nothing of the order in which segments came.
#[test]
fn the_order_of_blocks_is_no_reordering() {
    let mut world = World::new();
    let peer = in_flight(&mut world, 20, 10);
    world.pass(ms(20));
    // The first and the sixth are lost, and one acknowledgment stands for all others.
    world.hear(&peer.sack(1, 1, &[(at(6), at(10)), (at(1), at(5))]));
    let mut again = numbers(&mut world, &peer);
    world.hear(&peer.seg(1, at(5)));
    again.extend(numbers(&mut world, &peer));
    assert_eq!(again, [0, 5], "no time is given to either");
    world.hear(&peer.seg(1, at(10)));
    // Nor to the next one.
    (0..8).for_each(|_| world.send(MSS as usize));
    world.frames_out();
    world.pass(ms(20));
    world.hear(&peer.sack(1, at(10), &[(at(11), at(14))]));
    assert_eq!(numbers(&mut world, &peer), [10]);
    world.told();
}

/// A probe that repeats what had arrived costs nothing, and one that fills the gap by itself is a loss like any other.
#[test]
fn a_probe_that_fills_the_gap_slows_down() {
    for was_lost in [true, false] {
        let mut world = World::new();
        let peer = in_flight(&mut world, 20, 10);
        world.pass(ms(19));
        world.hear(&peer.seg(1, at(9)));
        world.told();
        // Of a single segment the acknowledgment may be late: it has as long as before a time-out.
        world.pass(ms(100));
        world.silent();
        world.hear(&peer.seg(1, at(10)));
        world.told();
        for number in 10..14 {
            world.send(MSS as usize);
            assert_eq!(numbers(&mut world, &peer), [number]);
        }
        world.pass_until_sent(ms(1_000));
        assert_eq!(numbers(&mut world, &peer), [13]);
        world.hear(&peer.seg(1, at(14)));
        world.told();
        if !was_lost {
            world.hear(&peer.sack(1, at(14), &[(at(13), at(14))]));
        }
        world.send(MSS as usize);
        world.frames_out();
        world.hear(&peer.seg(1, at(15)));
        world.told();
        assert_eq!(sendable(&mut world, &peer), if was_lost { 4 } else { 12 });
        assert_eq!(world.stats().tcp_tail_probes, 1);
    }
}

/// A single segment that is lost goes again as a probe when a time-out would be due, which costs the window its share and no
/// more (RFC 8985 §7.2). The time-out follows.
#[test]
fn a_single_lost_segment_is_probed_before_a_time_out() {
    let mut world = World::new();
    let peer = in_flight(&mut world, 20, 10);
    world.pass(ms(20));
    world.hear(&peer.seg(1, at(10)));
    world.told();
    world.send(MSS as usize);
    assert_eq!(numbers(&mut world, &peer), [10]);
    for (probes, time_outs) in [(1, 0), (1, 1)] {
        near(world.pass_until_sent(ms(1_000)), 200);
        assert_eq!(numbers(&mut world, &peer), [10]);
        let stats = world.stats();
        assert_eq!((stats.tcp_tail_probes, stats.tcp_timeouts), (probes, time_outs));
    }
    near(world.pass_until_sent(ms(1_000)), 400);
}

/// A peer may drop what it has told of (RFC 2018 §8): after a time-out nothing counts but what it acknowledges.
#[test]
fn a_peer_that_drops_what_it_had_gets_it_again() {
    let mut world = World::new();
    let peer = in_flight(&mut world, 20, 4);
    world.pass(ms(20));
    world.hear(&peer.sack(1, 1, &[(at(1), at(4))]));
    assert_eq!(numbers(&mut world, &peer), [0]);
    world.hear(&peer.seg(1, at(1)));
    world.silent();
    near(world.pass_until_sent(ms(5_000)), 200);
    assert_eq!(numbers(&mut world, &peer), [1]);
    world.hear(&peer.seg(1, at(2)));
    assert_eq!(numbers(&mut world, &peer), [2, 3], "not what it had told of");
    world.hear(&peer.seg(1, at(4)));
    world.silent();
    world.told();
}

/// Blocks of what was never sent, of what is acknowledged, and those that end before they begin.
#[test]
fn blocks_that_no_honest_peer_sends_are_passed_over() {
    let mut world = World::new();
    let peer = in_flight(&mut world, 20, 4);
    world.hear(&peer.seg(1, at(1)));
    world.told();
    let blocks = [(at(5), at(9)), (at(3), at(2)), (at(0), at(9)), (at(2), at(2))];
    (0..5).for_each(|_| world.hear(&peer.sack(1, at(1), &blocks)));
    world.silent();
    let wild: Vec<_> = (0..4).map(|n| (n << 30, (n + 2) << 30)).collect();
    (0..5).for_each(|_| world.hear(&peer.sack(1, at(1), &wild)));
    world.silent();
    world.hear(&peer.seg(1, at(4)));
    assert_eq!(world.stats().tcp_fast_retransmits, 0);
    world.told();
}

/// What was not kept is not told of, though a part of its segment had come before.
#[test]
fn what_is_dropped_was_not_received_twice() {
    let mut world = World::new();
    let peer = agreed(&mut world);
    world.hear(&peer.seg(301, 1).len(100));
    world.hear(&peer.seg(201, 1).len(100));
    world.frames_out();
    world.hear(&peer.seg(201, 1).len(300));
    assert_eq!(
        peer.blocks(&world.segments()[0]),
        [(201, 401), (201, 401)],
        "nothing of 401 to 500"
    );
}

/// RFC 2883 §4: each is told of in one segment, however many go out, and those in a row together.
#[test]
fn what_comes_twice_is_told_of_once() {
    let mut world = World::new();
    let peer = agreed(&mut world);
    world.hear(&peer.seg(1, 1).len(300));
    world.hear(&peer.seg(401, 1).len(100));
    world.frames_out();
    let twice: Vec<_> = [1, 101, 201].map(|seq| peer.seg(seq, 1).len(100).frame()).into();
    world.told();
    let handle = world.handle();
    Peer::establish(&mut world, 6, open());
    let another = world.handle();
    world.cycle(&twice, |calls| {
        for handle in [handle, another, handle] {
            calls.sendv(handle, &[b"answer"]).expect("room");
        }
    });
    let told: Vec<_> = world.segments().iter().map(|seg| peer.blocks(seg)).collect();
    assert_eq!(told, [vec![(1, 301), (401, 501)], vec![], vec![(401, 501)]]);
}

/// What is lost and met a full device goes when that has room, not with the next time-out.
#[test]
fn what_is_lost_waits_for_the_device_alone() {
    let mut world = World::sized(config(), 512, 4);
    let peer = in_flight(&mut world, 20, 4);
    world.pass(ms(20));
    world.nic_takes = false;
    (0..4).for_each(|_| world.hear_frames(&[ping_frame(PEER_IP, b"ping")]));
    world.hear(&peer.sack(1, 1, &[(at(1), at(4))]));
    world.nic_takes = true;
    world.settle();
    let sent = world.frames_out();
    let again = |out: &Out| matches!(out, Out::Tcp(seg) if seg.seq == peer.irs + 1);
    assert_eq!((sent.len(), sent.iter().filter(|out| again(out)).count()), (5, 1));
    assert_eq!(world.stats().tcp_fast_retransmits, 1);
    world.told();
}

/// Without agreement nothing is told of and nothing believed.
#[test]
fn needs_an_agreement() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.hear(&peer.seg(101, 1).len(100));
    let acks = world.segments();
    assert!(acks[0].options.sack_blocks.is_empty() && acks[0].flags == TcpFlags::ACK);
    world.send(4 * MSS as usize);
    world.frames_out();
    world.hear(&peer.sack(1, 1, &[(at(1), at(4))]));
    world.pass_until_sent(ms(5_000));
    assert_eq!(numbers(&mut world, &peer), [0]);
    world.hear(&peer.seg(1, at(1)));
    assert_eq!(numbers(&mut world, &peer), [1, 2], "whatever the peer has told of");
    world.told();
}
