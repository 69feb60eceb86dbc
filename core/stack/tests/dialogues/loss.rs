//! Loss: time-outs by RFC 6298, fast retransmission and recovery by RFC 5681, 6582 and 3042.

use domain::DeadReason;

use crate::support::{Open, Peer, Seg, Told, World, ms, near};

const MSS: u32 = 1_460;

/// The text of full segments `range` (counted from zero), sent while `ack` is expected.
fn full(range: core::ops::Range<u32>) -> Vec<String> {
    range.map(|n| format!(". {}:{}(1460) ack 1", 1 + n * MSS, 1 + (n + 1) * MSS)).collect()
}

#[track_caller]
fn expect(world: &mut World, peer: &Peer, expected: &[String]) {
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    world.expect(peer, &expected);
}

#[test]
fn the_time_out_doubles_to_its_bound_and_then_the_peer_is_given_up() {
    let mut world = World::with(|config| {
        config.retries = 5;
        config.rto_max = ms(1_000);
    });
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(100);
    world.expect(&peer, &[". 1:101(100) ack 1"]);
    for expected in [200, 400, 800, 1_000, 1_000] {
        near(world.pass_until_sent(ms(60_000)), expected);
        world.expect(&peer, &[". 1:101(100) ack 1"]);
    }
    near(world.pass_until_sent(ms(60_000)), 1_000);
    world.expect(&peer, &["R. 101 ack 1"]);
    assert_eq!(world.told(), [Told::Dead { cookie: 5, reason: DeadReason::TimedOut }]);
    assert_eq!(world.stats().tcp_retransmissions, 5);
}

/// A host to which nothing happened for long has timers as exact as any.
#[test]
fn a_long_silence_makes_no_timer_late() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.pass(ms(3_600_000));
    world.send(100);
    world.frames_out();
    near(world.pass_until_sent(ms(600_000)), 200);
    world.expect(&peer, &[". 1:101(100) ack 1"]);
    world.hear(&peer.seg(1, 101));
    // The same behind an entry that is far away.
    world.pass(ms(100));
    world.hear(&peer.seg(1, 101).len(10));
    near(world.pass_until_sent(ms(60_000)), 40);
}

#[test]
fn the_time_out_follows_the_round_trip_time_and_karn() {
    let mut world = World::new();
    let (peer, _) = Peer::knock(&mut world, 5, Open::default());
    world.pass(ms(300));
    world.hear(&peer.seg(1, 1));
    // R = 300 ms: RTO = R + 4 R/2.
    world.send(100);
    world.frames_out();
    near(world.pass_until_sent(ms(60_000)), 900);
    world.expect(&peer, &[". 1:101(100) ack 1"]);
    // Karn: the acknowledgment of what was sent twice says nothing of the round trip, and the
    // back-off stays until one does (RFC 6298 §5.7).
    world.pass(ms(10));
    world.hear(&peer.seg(1, 101));
    world.send(100);
    world.frames_out();
    near(world.pass_until_sent(ms(60_000)), 1_800);
    world.frames_out();
    near(world.pass_until_sent(ms(60_000)), 3_600);
    world.frames_out();
    world.hear(&peer.seg(1, 201));
    // A second sample of 300 ms: RTTVAR = 3/4 150, RTO = 300 + 450.
    world.send(100);
    world.pass(ms(300));
    world.hear(&peer.seg(1, 301));
    world.send(100);
    world.frames_out();
    near(world.pass_until_sent(ms(60_000)), 750);
    world.frames_out();
    world.hear(&peer.seg(1, 401));
}

#[test]
fn each_acknowledgment_of_new_data_restarts_the_timer() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(3 * MSS as usize);
    world.frames_out();
    world.pass(ms(150));
    world.hear(&peer.seg(1, 1 + MSS));
    world.pass(ms(150));
    world.silent();
    near(world.pass_until_sent(ms(1_000)), 50);
    expect(&mut world, &peer, &full(1..2));
}

#[test]
fn after_a_time_out_what_is_lost_is_sent_again_in_slow_start() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(10 * MSS as usize);
    world.frames_out();
    near(world.pass_until_sent(ms(5_000)), 200);
    expect(&mut world, &peer, &full(0..1));
    world.hear(&peer.seg(1, 1 + MSS));
    expect(&mut world, &peer, &full(1..3));
    world.hear(&peer.seg(1, 1 + 3 * MSS));
    expect(&mut world, &peer, &full(3..6));
    // The peer had the rest: nothing more is sent again.
    world.hear(&peer.seg(1, 1 + 10 * MSS));
    world.silent();
    assert_eq!(world.stats().tcp_retransmissions, 6);
    world.pass(ms(5_000));
    world.silent();
}

fn duplicates(world: &mut World, peer: &Peer, ack: u32, count: usize) {
    for _ in 0..count {
        world.hear(&peer.seg(1, ack));
    }
}

#[test]
fn the_third_duplicate_acknowledgment_sends_the_first_segment_again() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(10 * MSS as usize);
    world.frames_out();
    duplicates(&mut world, &peer, 1, 2);
    world.silent();
    duplicates(&mut world, &peer, 1, 1);
    expect(&mut world, &peer, &full(0..1));
    duplicates(&mut world, &peer, 1, 6);
    world.silent();
    assert_eq!(world.stats().tcp_fast_retransmits, 1);
    world.told();
    world.hear(&peer.seg(1, 1 + 10 * MSS));
    world.silent();
    assert_eq!(world.stats().tcp_timeouts, 0);
    // Out of recovery the window is half of what was in flight, at most: what had been promised
    // before is still accepted, but waits.
    let told = world.told();
    assert!(matches!(told[..], [Told::Sent { bytes: 14_600, .. }]), "{told:?}");
}

#[test]
fn what_is_no_duplicate_acknowledgment_does_not_count() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    // Nothing in flight.
    duplicates(&mut world, &peer, 1, 5);
    world.send(10 * MSS as usize);
    world.frames_out();
    let data: Vec<Seg> = (0..5).map(|n| peer.seg(1 + n * 10, 1).len(10)).collect();
    for seg in &data {
        world.hear(seg);
    }
    for window in [60_000, 60_001, 60_002, 60_003] {
        world.hear(&peer.seg(51, 1).win(window));
    }
    assert_eq!(world.stats().tcp_fast_retransmits, 0);
    world.frames_out();
}

/// RFC 6582 §3.2: each partial acknowledgment names the next hole.
#[test]
fn partial_acknowledgments_fill_one_hole_after_the_other() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(10 * MSS as usize);
    world.frames_out();
    // Lost: segments 0, 2 and 5.
    duplicates(&mut world, &peer, 1, 7);
    expect(&mut world, &peer, &full(0..1));
    world.hear(&peer.seg(1, 1 + 2 * MSS));
    expect(&mut world, &peer, &full(2..3));
    world.hear(&peer.seg(1, 1 + 5 * MSS));
    expect(&mut world, &peer, &full(5..6));
    world.hear(&peer.seg(1, 1 + 10 * MSS));
    world.silent();
    assert_eq!(world.stats().tcp_fast_retransmits, 1, "one recovery");
    assert_eq!(world.stats().tcp_retransmissions, 3);
}

/// After a time-out the congestion window is smaller than what the application was promised: that
/// waits, and the first two duplicate acknowledgments let a segment each out (RFC 3042).
#[test]
fn limited_transmit_and_recovery_send_new_data() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(2 * MSS as usize);
    world.frames_out();
    world.pass_until_sent(ms(5_000));
    expect(&mut world, &peer, &full(0..1));
    world.hear(&peer.seg(1, 1 + 2 * MSS));
    world.told();
    world.send(8 * MSS as usize);
    assert_eq!(world.told(), []);
    expect(&mut world, &peer, &full(2..4));
    duplicates(&mut world, &peer, 1 + 2 * MSS, 1);
    expect(&mut world, &peer, &full(4..5));
    duplicates(&mut world, &peer, 1 + 2 * MSS, 1);
    expect(&mut world, &peer, &full(5..6));
    // Half of four in flight, and three that have left the network.
    duplicates(&mut world, &peer, 1 + 2 * MSS, 1);
    let mut third = full(2..3);
    third.extend(full(6..7));
    expect(&mut world, &peer, &third);
    duplicates(&mut world, &peer, 1 + 2 * MSS, 1);
    expect(&mut world, &peer, &full(7..8));
    world.hear(&peer.seg(1, 1 + 8 * MSS));
    expect(&mut world, &peer, &full(8..10));
    world.hear(&peer.seg(1, 1 + 10 * MSS));
    world.silent();
}

#[test]
fn a_segment_that_the_device_still_reads_is_copied() {
    let mut world = World::new();
    world.stays = true;
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.nic_holds = true;
    world.send(100);
    world.expect(&peer, &[". 1:101(100) ack 1"]);
    world.pass_until_sent(ms(5_000));
    world.expect(&peer, &[". 1:101(100) ack 1"]);
    assert_eq!(world.stats().tx_payload_copies, 1);
    // Acknowledged while the device has both frames.
    world.hear(&peer.seg(1, 101));
    world.nic_completes();
}

#[test]
fn a_reply_that_is_lost_takes_its_acknowledgment_along_again() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(10);
    world.expect(&peer, &[". 1:11(10) ack 1"]);
    world.hear(&peer.seg(1, 1).len(50));
    world.pass(ms(100));
    world.expect(&peer, &[". 11 ack 51"]);
    world.pass_until_sent(ms(5_000));
    world.expect(&peer, &[". 1:11(10) ack 51"]);
}

/// Packet memory that runs out while segments are to be sent again costs time, not data.
#[test]
fn a_device_without_room_at_the_time_out_is_tried_again() {
    let mut world = World::sized(crate::support::config(), 128, 2);
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(2 * MSS as usize);
    world.frames_out();
    world.nic_takes = false;
    world.pass(ms(5_000));
    world.nic_takes = true;
    world.settle();
    world.frames_out();
    world.pass_until_sent(ms(60_000));
    assert!(!world.segments().is_empty());
    world.hear(&peer.seg(1, 1 + 2 * MSS));
    assert!(matches!(world.told()[..], [Told::Sent { .. }]));
}
