//! The end: all orders of closing, TIME-WAIT, aborts, and peers that never finish.

use clock::Duration;
use domain::{CallError, CallKind, Cookie, DeadReason};
use wire::Endpoint;

use crate::support::{Open, PEER_IP, Peer, Told, World, ms};

fn open(world: &mut World) -> Peer {
    Peer::establish(world, 5, Open::default())
}

fn close(world: &mut World) {
    let handle = world.handle();
    world.call(|calls| calls.close(handle).expect("room"));
}

const CLOSED: Told = Told::Dead { cookie: 5, reason: DeadReason::Closed };
const EOF: Told = Told::Eof { cookie: 5 };

#[test]
fn we_close_first() {
    let mut world = World::new();
    let peer = open(&mut world);
    close(&mut world);
    world.expect(&peer, &["F. 1 ack 1"]);
    world.hear(&peer.seg(1, 2));
    world.silent();
    assert_eq!(world.told(), []);
    world.hear(&peer.seg(1, 2).flags("F."));
    world.expect(&peer, &[". 2 ack 2"]);
    assert_eq!(world.told(), [EOF, CLOSED]);
    // TIME-WAIT answers a FIN that comes again, and begins anew with it.
    world.pass(ms(50_000));
    world.hear(&peer.seg(1, 2).flags("F."));
    world.expect(&peer, &[". 2 ack 2"]);
    world.pass(ms(50_000));
    assert_eq!(world.stack.connections(), 1);
    world.pass(ms(10_100));
    assert_eq!(world.stack.connections(), 0);
    world.silent();
}

#[test]
fn the_peer_closes_first() {
    let mut world = World::new();
    let peer = open(&mut world);
    world.hear(&peer.seg(1, 1).len(10).flags("F."));
    world.expect(&peer, &[". 1 ack 12"]);
    assert!(matches!(world.told()[..], [Told::Recv { .. }, Told::Eof { cookie: 5 }]));
    world.hear(&peer.seg(1, 1).len(10).flags("F."));
    world.expect(&peer, &[". 1 ack 12"]);
    close(&mut world);
    world.expect(&peer, &["F. 1 ack 12"]);
    world.hear(&peer.seg(12, 2));
    assert_eq!(world.told(), [CLOSED]);
    assert_eq!(world.stack.connections(), 0);
    world.silent();
}

#[test]
fn both_close_at_once() {
    let mut world = World::new();
    let peer = open(&mut world);
    close(&mut world);
    world.expect(&peer, &["F. 1 ack 1"]);
    world.hear(&peer.seg(1, 1).flags("F."));
    world.expect(&peer, &[". 2 ack 2"]);
    assert_eq!(world.told(), [EOF]);
    world.hear(&peer.seg(2, 2));
    world.silent();
    assert_eq!(world.told(), [CLOSED]);
    world.pass(ms(60_100));
    assert_eq!(world.stack.connections(), 0);
}

#[test]
fn the_peer_answers_our_fin_with_its_own() {
    let mut world = World::new();
    let peer = open(&mut world);
    close(&mut world);
    world.expect(&peer, &["F. 1 ack 1"]);
    world.hear(&peer.seg(1, 2).flags("F."));
    world.expect(&peer, &[". 2 ack 2"]);
    assert_eq!(world.told(), [EOF, CLOSED]);
}

#[test]
fn after_the_peers_fin_we_may_still_send() {
    let mut world = World::new();
    let peer = open(&mut world);
    world.hear(&peer.seg(1, 1).flags("F."));
    world.expect(&peer, &[". 1 ack 2"]);
    world.send(5_000);
    assert_eq!(world.segments().len(), 4);
    world.hear(&peer.seg(2, 5_001));
    assert!(matches!(world.told()[..], [Told::Eof { .. }, Told::Sent { bytes: 5_000, .. }]));
    world.send(10);
    close(&mut world);
    world.expect(&peer, &[". 5001:5011(10) ack 2", "F. 5011 ack 2"]);
    world.hear(&peer.seg(2, 5_011));
    assert_eq!(world.told(), [], "the FIN is still out");
    world.hear(&peer.seg(2, 5_012));
    assert_eq!(world.told(), [CLOSED]);
}

#[test]
fn after_our_shutdown_the_peer_may_still_send() {
    let mut world = World::new();
    let peer = open(&mut world);
    let handle = world.handle();
    world.call(|calls| calls.shutdown(handle).expect("room"));
    world.expect(&peer, &["F. 1 ack 1"]);
    world.hear(&peer.seg(1, 1).len(100));
    world.hear(&peer.seg(101, 2).len(100));
    world.pass(ms(50));
    world.expect(&peer, &[". 2 ack 201"]);
    world.received(0, 200);
    // For as long as it likes.
    world.pass(ms(3_600_000));
    world.hear(&peer.seg(201, 2).len(10).flags("F."));
    world.expect(&peer, &[". 2 ack 212"]);
    assert!(matches!(world.told()[..], [Told::Recv { .. }, Told::Eof { .. }, Told::Dead { .. }]));
}

#[test]
fn close_after_shutdown_waits_for_the_peers_fin_no_longer_than_close_alone() {
    let mut world = World::new();
    let peer = open(&mut world);
    let handle = world.handle();
    world.call(|calls| calls.shutdown(handle).expect("room"));
    world.hear(&peer.seg(1, 2));
    world.frames_out();
    world.call(|calls| {
        calls.shutdown(handle).expect("room");
        calls.close(handle).expect("room");
        calls.close(handle).expect("room");
    });
    let error = CallError::BadState;
    let failed = [CallKind::Shutdown, CallKind::Close].map(|call| Told::Failed { call, error });
    assert_eq!(world.told(), failed);
    world.pass(ms(59_000));
    world.silent();
    world.pass(ms(10_000));
    world.expect(&peer, &["R. 2 ack 1"]);
    assert_eq!(world.told(), [Told::Dead { cookie: 5, reason: DeadReason::TimedOut }]);
}

const ABORTED: Told = Told::Dead { cookie: 5, reason: DeadReason::Aborted };

/// RFC 2525 §2.17: the peer must not take for read what nobody reads.
#[test]
fn bytes_that_come_after_close_reset_the_connection() {
    for (seq, acks) in [(1, 1), (1, 2), (101, 2)] {
        let mut world = World::new();
        let peer = open(&mut world);
        close(&mut world);
        world.frames_out();
        if acks == 2 {
            world.hear(&peer.seg(1, 2));
        }
        world.hear(&peer.seg(seq, acks).len(10));
        world.expect(&peer, &["R. 2 ack 1"]);
        assert_eq!(world.told(), [ABORTED]);
        assert_eq!(world.stack.connections(), 0);
    }
    // What was read before and comes again does no harm.
    let mut world = World::new();
    let peer = open(&mut world);
    world.hear(&peer.seg(1, 1).len(10));
    world.told();
    close(&mut world);
    world.frames_out();
    world.hear(&peer.seg(1, 1).len(10));
    world.expect(&peer, &[". 2 ack 11"]);
    assert_eq!(world.told(), []);
}

#[test]
fn bytes_that_the_application_was_not_told_of_reset_the_connection_at_close() {
    let mut world = World::new();
    let peer = open(&mut world);
    world.shrink_events(17);
    let handle = world.handle();
    let two = [peer.seg(1, 1).len(10).frame(), peer.seg(11, 1).len(10).frame()];
    world.cycle(&two, |calls| calls.close(handle).expect("room"));
    world.settle();
    let told = world.told();
    assert!(told.contains(&ABORTED), "{told:?}");
    world.expect(&peer, &["R. 1 ack 21"]);
}

/// Who reads nothing, or answers probes for ever, keeps a closed connection no longer than others.
#[test]
fn closed_connections_are_bounded_in_number_and_time() {
    let mut world = World::with(|config| (config.max_closed, config.user_timeout) = (2, None));
    let peers = [5, 6, 7]
        .map(|port| Peer::establish(&mut world, port, Open { window: 10, ..Open::default() }));
    for index in 0..3 {
        let handle = world.handles[index];
        world.call(|calls| {
            calls.sendv(handle, &[&[0; 10]]).expect("room");
            calls.close(handle).expect("room");
        });
    }
    let resets = |segments: Vec<crate::support::Seg>| {
        segments.iter().filter(|segment| segment.flags.contains(wire::TcpFlags::RST)).count()
    };
    assert_eq!((resets(world.segments()), world.stats().tcp_closed_reset), (1, 1));
    let begin = world.now;
    while world.stack.connections() > 0 {
        for peer in &peers[..2] {
            world.hear(&peer.seg(1, 11).win(0));
        }
        world.pass(ms(1_000));
        assert!(world.now.since(begin) < ms(240_000), "{:?}", world.stack);
    }
    world.frames_out();
    world.told();
}

/// RFC 6191: more connections to one port of one peer than there are ports, one after the other.
#[test]
fn ports_in_time_wait_lead_to_a_peer_again() {
    let mut world = World::with(|config| config.max_time_wait = 1 << 17);
    world.stays = true;
    let remote = Endpoint::new(PEER_IP, 9_000);
    let open = Open { timestamp: Some(77), ..Open::default() };
    for number in 0..60_000u32 {
        world.call(|calls| calls.connect(Cookie(7), remote).expect("room"));
        let [syn] = &world.segments()[..] else { panic!("{number}: one SYN") };
        let mut peer = Peer::new(9_000, open);
        (peer.there, peer.irs) = (syn.src, syn.seq);
        let stamp = syn.options.timestamp.expect("offered").value;
        world.hear(&peer.seg(0, 1).flags("S.").options(open.options()));
        let handle = world.handle();
        world.call(|calls| calls.close(handle).expect("room"));
        world.hear(&peer.seg(1, 2).flags("F.").ts(78, stamp));
        world.frames_out();
        world.handles.clear();
        world.told();
        world.now += Duration::from_micros(166);
    }
    assert_eq!(world.stats().tcp_connected, 60_000);
    (0..80).for_each(|_| world.pass(ms(1_000)));
}

#[test]
fn a_fin_goes_behind_the_data_and_is_sent_again() {
    let mut world = World::new();
    let peer = open(&mut world);
    world.send(2_000);
    close(&mut world);
    world.expect(&peer, &[". 1:1461(1460) ack 1", ". 1461:2001(540) ack 1", "F. 2001 ack 1"]);
    world.hear(&peer.seg(1, 2_001));
    world.pass_until_sent(ms(5_000));
    world.expect(&peer, &["F. 2001 ack 1"]);
    assert_eq!(world.told(), [], "after close no `Sent`");
    world.hear(&peer.seg(1, 2_002).flags("F."));
    world.expect(&peer, &[". 2002 ack 2"]);
}

#[test]
fn a_fin_waits_for_a_closed_window() {
    let mut world = World::new();
    let peer = open(&mut world);
    world.send(10);
    world.hear(&peer.seg(1, 11).win(0));
    world.frames_out();
    close(&mut world);
    world.silent();
    world.pass_until_sent(ms(5_000));
    world.expect(&peer, &[". 10 ack 1"]);
    world.hear(&peer.seg(1, 11).win(100));
    world.expect(&peer, &["F. 11 ack 1"]);
}

#[test]
fn a_peer_that_never_answers_our_fin_is_given_up() {
    let mut world = World::with(|config| config.retries = 2);
    let peer = open(&mut world);
    world.hear(&peer.seg(1, 1).flags("F."));
    close(&mut world);
    world.told();
    world.frames_out();
    world.pass(ms(10_000));
    world.expect(&peer, &["F. 1 ack 2", "F. 1 ack 2", "R. 2 ack 2"]);
    assert_eq!(world.told(), [Told::Dead { cookie: 5, reason: DeadReason::TimedOut }]);
}

#[test]
fn fin_wait_2_ends() {
    let mut world = World::new();
    let peer = open(&mut world);
    close(&mut world);
    world.hear(&peer.seg(1, 2));
    world.frames_out();
    world.pass(ms(59_000));
    world.silent();
    world.pass(ms(10_000));
    world.expect(&peer, &["R. 2 ack 1"]);
    assert_eq!(world.told(), [Told::Dead { cookie: 5, reason: DeadReason::TimedOut }]);
}

/// A connection in TIME-WAIT, whose next numbers are 2 and 2.
fn time_wait(world: &mut World, port: u16, timestamp: Option<u32>) -> Peer {
    let peer = Peer::establish(world, port, Open { timestamp, ..Open::default() });
    close(world);
    world.hear(&peer.seg(1, 2).flags("F."));
    world.told();
    world.frames_out();
    peer
}

/// Two ends in TIME-WAIT would answer each other for ever.
#[test]
fn time_wait_answers_data_and_old_segments_but_no_acknowledgment() {
    let mut world = World::new();
    let peer = time_wait(&mut world, 5, None);
    world.hear(&peer.seg(2, 2));
    world.silent();
    for seg in [peer.seg(1, 2).flags("F."), peer.seg(1, 2).len(1), peer.seg(1, 2)] {
        world.hear(&seg);
        world.expect(&peer, &[". 2 ack 2"]);
    }
    assert_eq!(world.told(), []);
}

#[test]
fn time_wait_ignores_resets() {
    let mut world = World::new();
    let peer = time_wait(&mut world, 5, None);
    world.hear(&peer.seg(2, 2).flags("R"));
    world.hear(&peer.seg(2, 2).flags("R."));
    world.silent();
    assert_eq!(world.stack.connections(), 1, "RFC 1337");
}

#[test]
fn a_newer_syn_takes_the_place_of_time_wait() {
    let mut world = World::new();
    let peer = time_wait(&mut world, 5, None);
    // Old, by its sequence number: acknowledged.
    let mut syn = peer.syn();
    syn.seq = peer.iss;
    world.hear(&syn);
    world.expect(&peer, &[". 2 ack 2"]);
    syn.seq = peer.iss + 1_000;
    world.hear(&syn);
    let [answer] = &world.segments()[..] else { panic!("one answer") };
    assert_eq!(answer.ack, syn.seq + 1);
    assert!((answer.seq - peer.irs) > 0, "newer than the old connection's numbers");
    assert_eq!(world.stack.connections(), 1);
}

#[test]
fn a_newer_timestamp_takes_the_place_too() {
    let mut world = World::new();
    let peer = time_wait(&mut world, 5, Some(1_000));
    let mut syn = peer.syn();
    syn.seq = peer.iss + 0x9000_0000;
    world.hear(&syn);
    world.expect(&peer, &[". 2 ack 2"]);
    world.hear(&syn.ts(1_001, 0));
    let [answer] = &world.segments()[..] else { panic!("one answer") };
    assert!(answer.flags.contains(wire::TcpFlags::SYN | wire::TcpFlags::ACK));
}

#[test]
fn time_wait_is_bounded() {
    // Two in the same flow group: the oldest of the group at hand ends.
    let mut world = World::with(|config| config.max_time_wait = 3);
    for port in 1..=300 {
        time_wait(&mut world, port, None);
    }
    let left = world.stack.connections();
    assert!(left < 140, "{left}: at most one a flow group beyond the limit");
    assert!(world.stats().tcp_time_wait_recycled >= 160);
}

#[test]
fn abort_resets_and_tells() {
    let mut world = World::new();
    let peer = open(&mut world);
    world.send(5_000);
    world.frames_out();
    let handle = world.handle();
    world.call(|calls| calls.abort(handle).expect("room"));
    world.expect(&peer, &["R. 5001 ack 1"]);
    assert_eq!(world.told(), [Told::Dead { cookie: 5, reason: DeadReason::Aborted }]);
    // What comes now belongs to no connection.
    world.hear(&peer.seg(1, 1_461));
    world.expect(&peer, &["R 1461"]);
}

#[test]
fn who_knocks_may_be_rejected() {
    for abort in [false, true] {
        let mut world = World::new();
        world.auto_accept = false;
        let (peer, _) = Peer::knock(&mut world, 5, Open::default());
        world.hear(&peer.seg(1, 1).len(10));
        world.told();
        world.frames_out();
        let handle = world.handle();
        world.call(|calls| match abort {
            true => calls.abort(handle).expect("room"),
            false => calls.close(handle).expect("room"),
        });
        world.expect(&peer, &["R. 1 ack 11"]);
        assert_eq!(world.told(), [Told::Dead { cookie: 0, reason: DeadReason::Aborted }]);
        assert_eq!(world.stack.connections(), 0);
        world.call(|calls| calls.accept(handle, Cookie(1)).expect("room"));
        let (call, error) = (CallKind::Accept, CallError::BadHandle);
        assert_eq!(world.told(), [Told::Failed { call, error }]);
    }
}

#[test]
fn a_reset_in_any_state_is_told_once() {
    for state in 0..4 {
        let mut world = World::new();
        let peer = open(&mut world);
        let mut next = 1;
        if state & 1 != 0 {
            world.hear(&peer.seg(1, 1).flags("F."));
            next = 2;
        }
        if state & 2 != 0 {
            close(&mut world);
        }
        world.told();
        world.frames_out();
        world.hear(&peer.seg(next, 1).flags("R."));
        assert_eq!(world.told(), [Told::Dead { cookie: 5, reason: DeadReason::Reset }]);
        assert_eq!(world.stack.connections(), 0);
        world.silent();
    }
}

#[test]
fn calls_after_close_and_after_the_end() {
    let mut world = World::new();
    let peer = open(&mut world);
    let handle = world.handle();
    close(&mut world);
    close(&mut world);
    let bad = |call, error| Told::Failed { call, error };
    assert_eq!(world.told(), [bad(CallKind::Close, CallError::BadState)]);
    world.call(|calls| calls.sendv(handle, &[b"more"]).expect("room"));
    assert_eq!(world.told(), [bad(CallKind::Sendv, CallError::BadState)]);
    world.hear(&peer.seg(1, 2).flags("F."));
    assert_eq!(world.told(), [EOF, CLOSED]);
    world.call(|calls| {
        calls.sendv(handle, &[b"more"]).expect("room");
        calls.recv_done(handle, 1).expect("room");
        calls.close(handle).expect("room");
        calls.abort(handle).expect("room");
        calls.accept(handle, Cookie(1)).expect("room");
    });
    let expected =
        [bad(CallKind::Sendv, CallError::BadHandle), bad(CallKind::Accept, CallError::BadHandle)];
    assert_eq!(world.told(), expected);
}

/// Held, told in the last batch, or waiting for a gap: all of it is free with the connection.
#[test]
fn close_frees_what_the_application_did_not_give_back() {
    let mut world = World::new();
    world.auto_done = false;
    let peer = open(&mut world);
    world.hear_all(&[peer.seg(1, 1).len(100), peer.seg(101, 1).len(100)]);
    world.hear(&peer.seg(401, 1).len(100));
    let handle = world.handle();
    assert_eq!(world.held(handle).len(), 200);
    world.hear(&peer.seg(201, 1).flags("R."));
    assert_eq!(world.held(handle).len(), 0);
}

/// A batch of calls ends more connections than the NIC's queue has frames: each peer hears of it.
#[test]
fn resets_that_the_queue_has_no_room_for_leave_when_it_has() {
    let mut world = World::sized(crate::support::config(), 256, 4);
    world.stays = true;
    let peers: Vec<Peer> =
        (1..=20).map(|port| Peer::establish(&mut world, port, Open::default())).collect();
    world.nic_takes = false;
    let handles = world.handles.clone();
    world.cycle(&[], |calls| {
        handles.iter().for_each(|&handle| calls.abort(handle).expect("room"));
    });
    assert_eq!(world.stack.connections(), 0);
    assert_eq!(world.stack.frames().len(), 4);
    assert!(world.stack.has_work(), "the others are owed");
    world.nic_takes = true;
    world.settle();
    // In the order of the calls.
    let resets = world.segments();
    let told: Vec<_> = resets.iter().zip(&peers).map(|(seg, peer)| peer.text(seg)).collect();
    assert_eq!(told, ["R. 1 ack 1"; 20]);
    assert!(resets.iter().zip(&peers).all(|(seg, peer)| seg.dst == peer.here));
    assert_eq!(world.stats().tcp_resets_out, 20);
}

/// The wheel may still have an entry of a connection that ended: nothing is sent for it.
#[test]
fn a_timer_of_a_connection_that_ended_sends_nothing() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open { window: 10, ..Open::default() });
    world.send(10);
    world.hear(&peer.seg(1, 11).win(0));
    world.frames_out();
    world.pass_until_sent(ms(5_000));
    world.expect(&peer, &[". 10 ack 1"]);
    world.hear(&peer.seg(1, 11).flags("R"));
    let told = world.told();
    assert_eq!(told.last(), Some(&Told::Dead { cookie: 5, reason: DeadReason::Reset }));
    world.pass(ms(600_000));
    world.silent();
    assert_eq!(world.told(), []);
}
