//! Round trips that suddenly take longer: spurious time-outs are found and undone (RFC 3522, 4015, 5682).

use clock::Duration;

use crate::support::{Open, Peer, Told, World, ms, near};

const MSS: u32 = 1_460;

fn stamped(world: &mut World) -> Peer {
    Peer::establish(world, 5, Open { timestamp: Some(100), ..Open::default() })
}

/// Sends `len` bytes, which the peer acknowledges as each transmission arrives, `one_way` after it was sent. Answers
/// how many segments were sent again.
fn request(world: &mut World, peer: &Peer, len: usize, path: Duration) -> u64 {
    let before = world.stats().tcp_retransmissions;
    world.send(len);
    let mut arrivals = Vec::new();
    let deadline = world.now + ms(20_000);
    loop {
        for segment in world.segments() {
            arrivals.push((world.now + path, segment));
        }
        let Some((at, _)) = arrivals.first() else { break };
        assert!(world.now < deadline, "no end");
        let wait = at.since(world.now);
        let passed = world.pass_until_sent(wait.max(Duration::from_nanos(1)));
        if passed < wait {
            continue;
        }
        let (_, segment) = arrivals.remove(0);
        let echo = segment.options.timestamp.map_or(0, |stamp| stamp.value);
        let end = (segment.seq - peer.irs) as u32 + segment.payload.len() as u32;
        let mut ack = peer.seg(1, end);
        if let Some((value, _)) = peer.timestamp {
            ack = ack.ts(value, echo);
        }
        // What was acknowledged before is a duplicate, and harmless.
        world.hear(&ack);
        world.told();
    }
    world.stats().tcp_retransmissions - before
}

/// With timestamps and without, a path on which round trips take 400 ms instead of 10 costs a few segments, not all of
/// them twice for ever.
#[test]
fn a_path_that_becomes_forty_times_longer_is_learned() {
    for timestamp in [Some(100), None] {
        let mut world = World::new();
        let peer = Peer::establish(&mut world, 5, Open { timestamp, ..Open::default() });
        let again = (0..20).map(|_| request(&mut world, &peer, 100, ms(10))).sum::<u64>();
        assert_eq!(again, 0);
        let again: Vec<_> = (0..20).map(|_| request(&mut world, &peer, 100, ms(400))).collect();
        assert!(again.iter().sum::<u64>() <= 3, "{timestamp:?}: {again:?}");
    }
}

/// The acknowledgment of what was sent twice is no sample, so that the back-off stays until there is one
/// (RFC 6298 §5.7).
#[test]
fn without_timestamps_the_back_off_stays_until_there_is_a_sample() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(100);
    near_after(&mut world, 200);
    near_after(&mut world, 400);
    world.hear(&peer.seg(1, 101));
    world.send(100);
    near_after(&mut world, 800);
    world.hear(&peer.seg(1, 201));
    world.told();
}

fn near_after(world: &mut World, expected: u64) {
    world.frames_out();
    near(world.pass_until_sent(ms(60_000)), expected);
    world.frames_out();
}

/// Eifel: the first acknowledgment echoes the timestamp of what was sent first.
#[test]
fn a_late_acknowledgment_of_the_first_transmission_undoes_the_time_out() {
    let mut world = World::new();
    let peer = stamped(&mut world);
    let full = MSS - 12;
    (0..10).for_each(|_| world.send(full as usize));
    let first = world.segments();
    assert_eq!(first.len(), 10);
    let [value, echoes] = [100, first[0].options.timestamp.expect("agreed").value];
    near(world.pass_until_sent(ms(5_000)), 200);
    world.expect(&peer, &[&format!(". 1:{}({full}) ack 1", 1 + full)]);
    world.told();
    world.hear(&peer.seg(1, 1 + 2 * full).ts(value, echoes));
    world.silent();
    assert_eq!(world.stats().tcp_spurious_timeouts, 1);
    let told = world.told();
    assert!(matches!(told[..], [Told::Sent { window, .. }] if window >= 2 * full), "{told:?}");
    // What the time-out had declared lost is not sent again.
    world.hear(&peer.seg(1, 1 + 10 * full).ts(value, echoes));
    world.silent();
    assert_eq!(world.stats().tcp_retransmissions, 1);
}

/// The first acknowledgment echoes what was sent again: the time-out was right.
#[test]
fn a_time_out_after_a_loss_is_not_undone() {
    let mut world = World::new();
    let peer = stamped(&mut world);
    let full = MSS - 12;
    (0..10).for_each(|_| world.send(full as usize));
    world.frames_out();
    world.pass_until_sent(ms(5_000));
    let again = world.segments();
    let echo = again[0].options.timestamp.expect("agreed").value;
    world.hear(&peer.seg(1, 1 + full).ts(100, echo));
    assert_eq!((world.segments().len(), world.stats().tcp_spurious_timeouts), (2, 0));
    world.told();
}

/// Two segments are acknowledged after a time-out, which leaves a window that is smaller than what the application was
/// promised: more waits than is sent.
fn with_a_small_window() -> (World, Peer) {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(2 * MSS as usize);
    world.frames_out();
    world.pass_until_sent(ms(5_000));
    world.hear(&peer.seg(1, 1 + 2 * MSS));
    world.frames_out();
    (world, peer)
}

/// F-RTO, RFC 5682 §2.1: new data after the first acknowledgment; the second one decides.
#[test]
fn new_data_finds_out_whether_a_time_out_was_spurious() {
    for spurious in [true, false] {
        let (mut world, peer) = with_a_small_window();
        world.send(8 * MSS as usize);
        assert_eq!(numbers(&mut world, &peer), [2, 3]);
        world.pass_until_sent(ms(5_000));
        assert_eq!(numbers(&mut world, &peer), [2]);
        world.hear(&peer.seg(1, 1 + 3 * MSS));
        assert_eq!(numbers(&mut world, &peer), [4, 5], "new data");
        if spurious {
            world.hear(&peer.seg(1, 1 + 4 * MSS));
            assert_eq!(numbers(&mut world, &peer)[0], 6);
            assert_eq!(world.stats().tcp_spurious_timeouts, 1);
        } else {
            world.hear(&peer.seg(1, 1 + 3 * MSS));
            assert_eq!(numbers(&mut world, &peer), [3], "the next hole");
            assert_eq!(world.stats().tcp_spurious_timeouts, 0);
        }
        world.told();
    }
}

/// More is in flight than the window after a time-out allows segments for, and data waits: what was lost goes, as nothing
/// new can decide.
#[test]
fn where_nothing_new_can_be_sent_what_was_lost_is() {
    let mut world = World::new();
    let open = Open { mss: Some(100), ..Open::default() };
    let peer = Peer::establish(&mut world, 5, open);
    let (mut acked, mut window) = (1, 1_000);
    // A window of more than a hundred segments.
    for _ in 0..20 {
        world.send(window as usize);
        acked += window;
        world.frames_out();
        world.hear(&peer.seg(1, acked));
        let told = world.told();
        let Some(&Told::Sent { window: now, .. }) = told.last() else { panic!("{told:?}") };
        window = now;
    }
    assert!(window > 12_000, "{window}");
    world.send(window as usize);
    world.frames_out();
    world.pass_until_sent(ms(5_000));
    world.frames_out();
    world.hear(&peer.seg(1, acked + 100));
    assert!(!world.segments().is_empty(), "no second time-out is waited for");
    world.told();
}

/// What was sent again in small segments and is acknowledged in two steps decides nothing.
#[test]
fn small_segments_that_were_lost_are_no_spurious_time_out() {
    let (mut world, peer) = with_a_small_window();
    (0..60).for_each(|_| world.send(100));
    assert_eq!(world.segments().len(), 29);
    world.pass_until_sent(ms(5_000));
    assert_eq!(world.segments().len(), 14, "sent again");
    for acked in [300, 600] {
        world.hear(&peer.seg(1, 1 + 2 * MSS + acked));
        assert!(!world.segments().is_empty());
    }
    assert_eq!(world.stats().tcp_spurious_timeouts, 0);
    world.told();
}

/// The full segments that were sent, counted from zero.
fn numbers(world: &mut World, peer: &Peer) -> Vec<u32> {
    let number = |seq: i32| (seq - 1) as u32 / MSS;
    world.segments().iter().map(|segment| number(segment.seq - peer.irs)).collect()
}
