//! Received data: order, windows, acknowledgments, and the buffers behind them.

use domain::{CallError, CallKind, Cookie};

use crate::support::{Open, Peer, Told, World, config, ms};

#[test]
fn data_is_told_at_once_and_acknowledged_late() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.hear(&peer.seg(1, 1).len(100));
    world.silent();
    world.received(0, 100);
    let waited = world.pass_until_sent(ms(1_000));
    assert!(waited >= ms(40) && waited < ms(41), "{waited:?}");
    world.expect(&peer, &[". 1 ack 101"]);
    world.pass(ms(1_000));
    world.silent();
}

#[test]
fn the_second_full_segment_is_acknowledged_at_once() {
    for timestamp in [None, Some(5)] {
        let mut world = World::new();
        let peer = Peer::establish(&mut world, 5, Open { timestamp, ..Open::default() });
        let full = if timestamp.is_some() { 1448 } else { 1460 };
        world.hear(&peer.seg(1, 1).len(full));
        world.silent();
        world.hear(&peer.seg(1 + full as u32, 1).len(full));
        world.expect(&peer, &[&format!(". 1 ack {}", 1 + 2 * full)]);
        // One acknowledgment for a whole batch.
        let at = |index: usize| peer.seg((1 + index * full) as u32, 1).len(full);
        world.hear_all(&[at(2), at(3), at(4), at(5), at(6)]);
        world.expect(&peer, &[&format!(". 1 ack {}", 1 + 7 * full)]);
        world.received(0, 7 * full);
    }
}

#[test]
fn the_acknowledgment_rides_on_the_reply() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    let handle = world.handle();
    let request = peer.seg(1, 1).len(100).frame();
    world.cycle(&[request], |calls| calls.sendv(handle, &[&[0, 1], &[2]]).expect("room"));
    world.settle();
    world.expect(&peer, &[". 1:4(3) ack 101"]);
    world.hear(&peer.seg(101, 4));
    world.pass(ms(500));
    world.silent();
}

/// One frame carries the reply, the acknowledgment, and the room that the request's bytes leave.
#[test]
fn a_reply_announces_what_is_given_back_with_it() {
    let mut world = World::with(|config| config.receive_window_bytes = 4_000);
    world.auto_done = false;
    let peer = Peer::establish(&mut world, 5, Open { timestamp: Some(5), ..Open::default() });
    let handle = world.handle();
    let request = peer.seg(1, 1).len(1_448).frame();
    world.cycle(&[request], |calls| {
        calls.sendv(handle, &[&[0, 1, 2]]).expect("room");
        calls.recv_done(handle, 1_448).expect("room");
    });
    world.settle();
    let [reply] = &world.expect(&peer, &[". 1:4(3) ack 1449"])[..] else { panic!() };
    assert_eq!(reply.window, 4_000);
    assert!(world.held(handle).is_empty());
    world.hear(&peer.seg(1_449, 4));
    world.pass(ms(500));
    world.silent();
}

/// More than was received is refused, and the reply beside it leaves all the same.
#[test]
fn a_reply_is_sent_where_too_much_is_given_back_with_it() {
    let mut world = World::new();
    world.auto_done = false;
    let peer = Peer::establish(&mut world, 5, Open { timestamp: Some(5), ..Open::default() });
    let handle = world.handle();
    let request = peer.seg(1, 1).len(100).frame();
    world.cycle(&[request], |calls| {
        calls.sendv(handle, &[&[0, 1, 2]]).expect("room");
        calls.recv_done(handle, 101).expect("room");
    });
    world.settle();
    world.expect(&peer, &[". 1:4(3) ack 101"]);
    let refused = Told::Failed { call: CallKind::RecvDone, error: CallError::TooMuch };
    assert_eq!(world.told().iter().filter(|told| **told == refused).count(), 1);
    assert_eq!(world.held(handle).len(), 100);
}

#[test]
fn old_data_is_acknowledged_again_and_not_told_again() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.hear(&peer.seg(1, 1).len(100));
    world.received(0, 100);
    world.hear(&peer.seg(1, 1).len(100));
    world.expect(&peer, &[". 1 ack 101"]);
    world.hear(&peer.seg(21, 1).len(50));
    world.expect(&peer, &[". 1 ack 101"]);
    // A keep-alive probe: one old byte, or none.
    world.hear(&peer.seg(100, 1));
    world.expect(&peer, &[". 1 ack 101"]);
    world.received(0, 0);
    // The new part of an overlapping segment is new.
    world.hear(&peer.seg(51, 1).len(100));
    world.expect(&peer, &[". 1 ack 151"]);
    world.received(100, 50);
}

#[test]
fn a_gap_is_acknowledged_at_once_and_so_is_what_fills_it() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.hear(&peer.seg(101, 1).len(100));
    world.expect(&peer, &[". 1 ack 1"]);
    world.hear(&peer.seg(301, 1).len(100));
    world.expect(&peer, &[". 1 ack 1"]);
    world.received(0, 0);
    world.hear(&peer.seg(1, 1).len(100));
    world.expect(&peer, &[". 1 ack 201"]);
    world.received(0, 200);
    // Overlaps on both sides of the last gap.
    world.hear(&peer.seg(151, 1).len(200));
    world.expect(&peer, &[". 1 ack 401"]);
    world.received(200, 200);
}

#[test]
fn what_waits_for_a_gap_is_bounded() {
    let mut world = World::sized(config(), 8_192, 1_024);
    let peer = Peer::establish(&mut world, 5, Open::default());
    // Every second byte.
    let pieces: Vec<_> = (0..2_100).map(|index| peer.seg(2 + 2 * index, 1).len(1)).collect();
    for batch in pieces.chunks(50) {
        world.hear_all(batch);
    }
    // One connection has a fifth of the memory for gaps, which is a quarter of all.
    let (kept, dropped) = (world.stats().tcp_out_of_order, world.stats().tcp_dropped_segments);
    assert_eq!((kept, dropped), (409, 2_100 - 409));
    world.frames_out();
    for at in 0..3 {
        world.hear(&peer.seg(1 + 1_400 * at, 1).len(1_400));
    }
    let acks = world.segments();
    assert_eq!(acks.last().map(|ack| ack.ack - peer.iss), Some(4_201));
    world.received(0, 4_200);
}

#[test]
fn data_beyond_the_window_is_not_taken() {
    let mut world = World::with(|config| config.receive_window_bytes = 4_000);
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.hear(&peer.seg(4_001, 1).len(10));
    world.expect(&peer, &[". 1 ack 1"]);
    assert_eq!(world.stats().tcp_unacceptable, 1);
    // Half in, half out.
    world.hear(&peer.seg(3_901, 1).len(200).flags("F."));
    world.expect(&peer, &[". 1 ack 1"]);
    let rest: Vec<_> = (0..3).map(|part| peer.seg(1 + part * 1_300, 1).len(1_300)).collect();
    world.hear_all(&rest);
    world.expect(&peer, &[". 1 ack 4001"]);
    world.received(0, 4_000);
}

#[test]
fn a_fin_before_its_data_waits_for_it() {
    for bare in [false, true] {
        let mut world = World::new();
        let peer = Peer::establish(&mut world, 5, Open::default());
        match bare {
            true => world.hear(&peer.seg(201, 1).flags("F.")),
            false => world.hear(&peer.seg(101, 1).len(100).flags("F.")),
        }
        world.expect(&peer, &[". 1 ack 1"]);
        world.received(0, 0);
        if bare {
            world.hear(&peer.seg(101, 1).len(100));
            world.expect(&peer, &[". 1 ack 1"]);
        }
        world.hear(&peer.seg(1, 1).len(100));
        world.expect(&peer, &[". 1 ack 202"]);
        let told = world.told();
        let [Told::Recv { .. }, Told::Recv { .. }, Told::Eof { cookie: 5 }] = &told[..] else {
            panic!("{told:?}")
        };
    }
}

/// What was announced once is never taken back (RFC 9293 §3.8.6), whatever the application does.
#[test]
fn the_window_closes_without_shrinking_and_opens_by_recv_done() {
    let mut world = World::with(|config| config.receive_window_bytes = 10_000);
    world.auto_done = false;
    let peer = Peer::establish(&mut world, 5, Open::default());
    let (mut sent, mut edge) = (0u32, 10_001);
    while sent < 10_000 {
        let len = 1_460.min(10_000 - sent);
        world.hear(&peer.seg(1 + sent, 1).len(len as usize));
        sent += len;
        world.pass(ms(50));
        for ack in world.segments() {
            let told = (ack.ack - peer.iss) as u32 + ack.window as u32;
            assert!(told >= edge, "{told} after {edge}");
            edge = told;
        }
    }
    assert_eq!(edge, 10_001);
    world.received(0, 10_000);
    // The window is closed: a probe is answered and not taken.
    world.hear(&peer.seg(10_001, 1).len(1));
    let [ack] = &world.expect(&peer, &[". 1 ack 10001"])[..] else { panic!() };
    assert_eq!(ack.window, 0);
    world.hear(&peer.seg(10_000, 1));
    world.expect(&peer, &[". 1 ack 10001"]);
    // A peer that ignores the window still has its ACK and reset heard.
    world.received(0, 0);
    let handle = world.handle();
    assert_eq!(world.held(handle).len(), 10_000);
    world.call(|calls| calls.recv_done(handle, 6_000).expect("room"));
    let [update] = &world.expect(&peer, &[". 1 ack 10001"])[..] else { panic!() };
    assert_eq!(update.window, 6_000);
    world.hear(&peer.seg(10_001, 1).len(1_460));
    world.received(10_000, 1_460);
}

/// RFC 9293 §3.8.6.2.2: no window update that is hardly worth a segment, and no repeated ACK, which
/// a sender would take for a loss.
#[test]
fn silly_windows_are_not_announced() {
    let mut world = World::with(|config| config.receive_window_bytes = 10_000);
    world.auto_done = false;
    let peer = Peer::establish(&mut world, 5, Open::default());
    let batch: Vec<_> = (0..10).map(|part| peer.seg(1 + part * 1_000, 1).len(1_000)).collect();
    world.hear_all(&batch);
    world.pass(ms(50));
    world.frames_out();
    let handle = world.handle();
    for _ in 0..20 {
        world.call(|calls| calls.recv_done(handle, 70).expect("room"));
        world.silent();
    }
    world.call(|calls| calls.recv_done(handle, 60).expect("room"));
    let [update] = &world.expect(&peer, &[". 1 ack 10001"])[..] else { panic!() };
    assert_eq!(update.window, 1_460);
    for _ in 0..10 {
        world.call(|calls| calls.recv_done(handle, 10).expect("room"));
    }
    world.silent();
}

#[test]
fn a_large_window_is_scaled_and_its_edge_never_moves_back() {
    let mut world = World::new();
    world.auto_done = false;
    let open = Open { window_scale: Some(0), ..Open::default() };
    let peer = Peer::establish(&mut world, 5, open);
    let mut edge = 0;
    let mut sent = 0u32;
    for round in 0..400u32 {
        let len = 1 + (round * 7_919) % 1_460;
        world.hear(&peer.seg(1 + sent, 1).len(len as usize));
        sent += len;
        if round % 3 == 0 {
            let handle = world.handle();
            world.call(|calls| calls.recv_done(handle, (len / 2) as usize).expect("room"));
        }
        for ack in world.segments() {
            let told = (ack.ack - peer.iss) as u32 + ((ack.window as u32) << 3);
            // The shift loses up to seven bytes (RFC 7323 §2.4).
            assert!(told + 7 >= edge, "{told} after {edge}");
            edge = edge.max(told);
        }
    }
    assert!(edge > 256 << 10);
}

#[test]
fn received_bytes_stay_readable_until_given_back() {
    let mut world = World::new();
    world.auto_done = false;
    let peer = Peer::establish(&mut world, 5, Open::default());
    let handle = world.handle();
    let before = world.pool.available();
    world.hear_all(&[peer.seg(1, 1).len(100), peer.seg(101, 1).len(100)]);
    world.hear(&peer.seg(201, 1).len(100));
    world.received(0, 300);
    assert_eq!(world.held(handle), crate::support::pattern(0, 300));
    assert_eq!(world.pool.available(), before - 3);
    // Half a buffer frees nothing, whole ones do.
    world.call(|calls| calls.recv_done(handle, 50).expect("room"));
    assert_eq!(world.pool.available(), before - 3);
    world.call(|calls| calls.recv_done(handle, 150).expect("room"));
    assert_eq!(world.pool.available(), before - 1);
    assert_eq!(world.held(handle), crate::support::pattern(200, 100));
    // In the batch that tells of them, older ones included.
    let next = peer.seg(301, 1).len(40).frame();
    world.cycle(&[next], |calls| calls.recv_done(handle, 140).expect("room"));
    world.settle();
    assert_eq!(world.pool.available(), before);
    assert_eq!(world.held(handle), []);
}

#[test]
fn bytes_that_nobody_accepted_count_against_the_window() {
    let mut world = World::with(|config| config.receive_window_bytes = 4_000);
    world.auto_accept = false;
    let (peer, _) = Peer::knock(&mut world, 5, Open::default());
    world.hear(&peer.seg(1, 1));
    for part in 0..4 {
        world.hear(&peer.seg(1 + part * 1_000, 1).len(1_000));
    }
    world.pass(ms(50));
    let acks = world.segments();
    let last = acks.last().expect("an acknowledgment");
    assert_eq!((peer.text(last), last.window), (". 1 ack 4001".to_string(), 0));
    world.told();
    let handle = world.handle();
    world.call(|calls| calls.accept(handle, Cookie(1)).expect("room"));
    world.received(0, 4_000);
    let [update] = &world.expect(&peer, &[". 1 ack 4001"])[..] else { panic!() };
    assert_eq!(update.window, 4_000);
}

/// Connections that hold as much as they can, ahead of gaps or unread, leave others what they need: a gap of theirs is
/// filled, a connection is opened, and what comes in order is told.
#[test]
fn who_holds_all_that_it_gets_leaves_others_their_part() {
    for ahead in [true, false] {
        let mut world = World::new();
        let greedy: Vec<_> =
            (1..=64).map(|port| Peer::establish(&mut world, port, Open::default())).collect();
        world.auto_done = false;
        for peer in &greedy {
            // Every second byte, or each byte in a segment of its own, which is read and not given back.
            let at = |index: u32| if ahead { 2 + 2 * index } else { 1 + index };
            for index in 0..256 {
                world.hear(&peer.seg(at(index), 1).len(1));
            }
        }
        world.auto_done = true;
        world.frames_out();
        world.told();
        let peer = Peer::establish(&mut world, 100, Open::default());
        let (batch, mut last) = (4, 0);
        for round in 0..20u32 {
            // Segments of a window, the first of which comes last; all of them twice, as they would after a loss. Where
            // applications hold what they were told of, nothing is left for gaps, and all come in order.
            let first = 1 + round * batch * 1_000;
            for part in (0..batch).rev().chain((0..batch).rev()) {
                let part = if ahead { part } else { batch - 1 - part };
                world.hear(&peer.seg(first + part * 1_000, 1).len(1_000));
            }
            last = first + batch * 1_000;
        }
        let acks = world.segments();
        assert_eq!(acks.last().map(|ack| (ack.ack - peer.iss) as u32), Some(last), "{ahead}");
        let (dropped, kept) = (world.stats().tcp_dropped_segments, world.pool.kept());
        assert!(dropped > 5_000 && kept > 800, "{dropped} dropped, {kept} kept");
        world.told();
    }
}

/// Segments in a row that wait share buffers, however small they are.
#[test]
fn small_segments_that_wait_share_buffers() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    let free = world.pool.available();
    for index in 0..1_000 {
        world.hear(&peer.seg(2 + index, 1).len(1));
    }
    assert_eq!((world.stats().tcp_out_of_order, world.pool.available()), (1_000, free - 1));
    world.frames_out();
    world.hear(&peer.seg(1, 1).len(1));
    world.expect(&peer, &[". 1 ack 1002"]);
    world.received(0, 1_001);
    // The same of what the application has not accepted.
    world.auto_accept = false;
    let (peer, _) = Peer::knock(&mut world, 6, Open::default());
    let free = world.pool.available();
    for index in 0..1_000 {
        world.hear(&peer.seg(1 + index, 1).len(1));
    }
    assert_eq!(world.pool.available(), free - 1);
    world.told();
    world.frames_out();
    let handle = world.handle();
    world.call(|calls| calls.accept(handle, Cookie(1)).expect("room"));
    world.received(0, 1_000);
    world.frames_out();
}

/// Tiny segments pin large buffers: their number is bounded too.
#[test]
fn buffers_that_a_connection_pins_are_bounded() {
    let mut world = World::new();
    world.auto_done = false;
    let peer = Peer::establish(&mut world, 5, Open::default());
    for batch in 0..40u32 {
        let segs: Vec<_> = (0..50).map(|part| peer.seg(1 + batch * 50 + part, 1).len(1)).collect();
        world.hear_all(&segs);
    }
    let handle = world.handle();
    let held = world.held(handle).len();
    assert!((250..400).contains(&held), "{held} buffers");
    world.call(|calls| calls.recv_done(handle, held).expect("room"));
    world.told();
    // What came behind them is in one buffer, ahead of the gap that the first one left that was refused.
    world.hear(&peer.seg(1 + held as u32, 1).len(100));
    world.received(held, 2_000 - held);
}

/// Full segments are counted while no acknowledgment can leave.
#[test]
fn a_blocked_device_does_not_overflow_the_count_of_segments() {
    let mut world = World::sized(config(), 2048, 1);
    let peer = Peer::establish(&mut world, 5, Open { mss: Some(64), ..Open::default() });
    world.send(10);
    world.frames_out();
    world.nic_takes = false;
    world.send(10);
    for batch in 0..10u32 {
        let at = |part| 1 + (batch * 40 + part) * 64;
        let segs: Vec<_> = (0..40).map(|part| peer.seg(at(part), 11).len(64)).collect();
        world.hear_all(&segs);
    }
    world.nic_takes = true;
    world.settle();
    world.expect(&peer, &[". 11:21(10) ack 1", ". 21 ack 25601"]);
}

/// RFC 5681 §4.2: every second full segment, by the peer's measure of full, not by ours.
#[test]
fn a_stream_of_shorter_segments_is_acknowledged_as_often() {
    for len in [536, 1_000, 1_400] {
        let mut world = World::new();
        let peer = Peer::establish(&mut world, 5, Open::default());
        let mut acks = 0;
        for index in 0..20u32 {
            world.hear(&peer.seg(1 + index * len, 1).len(len as usize));
            acks += world.segments().len();
        }
        assert_eq!(acks, 10, "{len}");
        world.received(0, 20 * len as usize);
    }
}

/// A peer that has filled the window acknowledges from its right edge. Where the first segment was lost, ours would be
/// sent again until that one comes.
#[test]
fn an_acknowledgment_from_the_right_edge_of_the_window_counts() {
    let mut world = World::with(|config| config.receive_window_bytes = 4_000);
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(100);
    world.frames_out();
    world.hear(&peer.seg(2_001, 1).len(1_000));
    world.hear(&peer.seg(3_001, 1).len(1_000));
    world.frames_out();
    world.hear(&peer.seg(4_001, 101));
    assert!(matches!(world.told()[..], [Told::Sent { bytes: 100, .. }]));
    world.hear(&peer.seg(4_002, 101));
    assert_eq!(world.stats().tcp_unacceptable, 1);
    world.frames_out();
}

/// A segment for which there is no room is acknowledged as any other: its peer finds the gap, and that we are there.
#[test]
fn a_refused_segment_is_acknowledged_at_once() {
    let mut world = World::new();
    world.auto_done = false;
    let peer = Peer::establish(&mut world, 5, Open::default());
    let mut next = 1;
    while world.stats().tcp_dropped_segments == 0 {
        assert!(world.segments().is_empty() && next < 1_000, "{next}");
        world.hear(&peer.seg(next, 1).len(1));
        next += 1;
    }
    world.expect(&peer, &[&format!(". 1 ack {}", next - 1)]);
    world.told();
}

/// Where memory becomes short windows shrink, before anything is refused, and never below what each connection may have in
/// any case; they grow again with what is given back.
#[test]
fn windows_shrink_before_anything_is_refused() {
    let mut world = World::sized(config(), 2_048, 64);
    let scaled = Open { window_scale: Some(7), ..Open::default() };
    // The window of a connection that has sent one segment.
    let window = |world: &mut World, peer: &Peer, seq: u32| {
        world.hear(&peer.seg(seq, 1).len(1_460));
        world.pass(ms(50));
        world.told();
        let acks = world.segments();
        let ack = acks.iter().rfind(|ack| ack.dst == peer.here).expect("an acknowledgment");
        u32::from(ack.window) << 3
    };
    let peer = Peer::establish(&mut world, 100, scaled);
    let wide = window(&mut world, &peer, 1);
    assert_eq!(wide, 256 << 10);
    world.auto_done = false;
    // One after the other fills the window that it is announced, which shrinks.
    let mut filled = Vec::new();
    for port in 1..=8 {
        let holder = Peer::establish(&mut world, port, scaled);
        let (mut sent, mut edge) = (0, 65_535);
        while sent + 1_460 <= edge {
            world.hear(&holder.seg(1 + sent, 1).len(1_460));
            sent += 1_460;
            for ack in world.segments() {
                let window = i32::from(ack.window) << 3;
                edge = edge.max((ack.ack - holder.iss - 1 + window) as u32);
            }
        }
        world.told();
        filled.push((world.handle(), sent));
    }
    let bytes: Vec<_> = filled.iter().map(|&(_, sent)| sent).collect();
    assert!(bytes[0] > 200_000 && bytes[7] < 70_000, "{bytes:?}");
    assert!(bytes.is_sorted_by(|one, next| one >= next), "{bytes:?}");
    world.auto_done = true;
    assert_eq!(world.stats().tcp_dropped_segments, 0);
    let peer = Peer::establish(&mut world, 101, scaled);
    let narrow = window(&mut world, &peer, 1);
    assert!(narrow <= 65_535, "{narrow}: no more than its SYN was promised");
    for (handle, _) in filled {
        let held = world.held(handle).len();
        world.call(|calls| calls.recv_done(handle, held).expect("room"));
    }
    world.frames_out();
    assert_eq!(window(&mut world, &peer, 1_461), wide);
}
