//! Sent data: what the application was promised, what the peer's window allows, probes.

use domain::{CallError, CallKind, DeadReason};

use wire::{MacAddr, TcpFlags};

use crate::support::{Open, Peer, Seg, Told, World, config, host, ms, near, pattern};

const MSS: u32 = 1_460;

#[track_caller]
fn trimmed(world: &mut World, accepted: u32) {
    let (call, error) = (CallKind::Sendv, CallError::Trimmed { accepted });
    assert_eq!(world.told(), [Told::Failed { call, error }]);
}

#[test]
fn all_of_the_window_is_taken_and_what_goes_beyond_is_trimmed() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(20_000);
    trimmed(&mut world, 14_600);
    let segments = world.segments();
    assert_eq!(segments.len(), 10);
    for (index, seg) in segments.iter().enumerate() {
        let at = 1 + index as u32 * MSS;
        assert_eq!(peer.text(seg), format!(". {at}:{}(1460) ack 1", at + MSS));
        // At the message's end.
        assert_eq!(seg.flags.contains(wire::TcpFlags::PSH), index == 9);
    }
    let handle = world.handle();
    world.call(|calls| calls.sendv(handle, &[b"x"]).expect("room"));
    trimmed(&mut world, 0);
    world.hear(&peer.seg(1, 1 + MSS));
    // Slow start: the window of eleven segments, nine in flight.
    assert_eq!(world.told(), [Told::Sent { cookie: 5, bytes: MSS, window: 2 * MSS }]);
    world.hear(&peer.seg(1, 14_601));
    let told = world.told();
    let [Told::Sent { bytes: 13_140, window, .. }] = told[..] else { panic!("{told:?}") };
    // Eight segments for one acknowledgment, at most (RFC 9406 §4.2).
    assert_eq!(window, 19 * MSS);
    assert_eq!(world.stats().tx_payload_copies, 0);
}

/// Both ways out, one segment that is sent again, and one that is cut from a longer one: all with payload, also
/// where it is sent again while the NIC still reads it. What has none, or waits for a link address, leaves complete.
#[test]
fn the_nic_completes_checksums_of_segments_with_payload_where_it_can() {
    let completed = |count| if crate::OFFLOADS { count } else { 0 };
    for timestamp in [None, Some(7)] {
        let mut world = World::new();
        world.stays = true;
        let peer = Peer::establish(&mut world, 5, Open { timestamp, ..Open::default() });
        world.hear(&peer.seg(1, 1).len(1));
        world.pass(ms(100));
        assert_eq!(world.completed, 0, "acknowledgments have no payload");
        world.send(100);
        assert_eq!(world.completed, completed(1));
        world.pass(ms(300));
        assert_eq!(world.completed, completed(2), "sent again");
        world.hear(&peer.seg(2, 51));
        world.segments();
        world.nic_holds = true;
        world.pass(ms(600));
        assert_eq!((world.segments().len(), world.completed), (1, completed(3)), "the rest");
        world.pass(ms(1_200));
        assert_eq!((world.segments().len(), world.completed), (1, completed(4)), "a copy");
    }
}

/// RFC 9293 §3.9.2: both ways out, that of replies and the general one.
#[test]
fn packets_have_the_configured_time_to_live_and_codepoint() {
    for timestamp in [None, Some(7)] {
        let mut world = World::with(|config| (config.ttl, config.dscp) = (9, 46));
        let open = Open { timestamp, ..Open::default() };
        let (peer, answer) = Peer::knock(&mut world, 5, open);
        world.hear(&peer.seg(1, 1));
        world.told();
        world.send(100);
        let sent = world.segments();
        assert!([answer].iter().chain(&sent).all(|seg| (seg.ttl, seg.dscp) == (9, 46)));
        assert_eq!(sent.len(), 1);
    }
}

#[test]
fn odd_cuts_keep_the_checksum() {
    for window in [1, 2, 7, 1_459, 1_461, 2_921] {
        let mut world = World::new();
        let open = Open { window, ..Open::default() };
        let peer = Peer::establish(&mut world, 5, open);
        let handle = world.handle();
        let bytes = pattern(0, 5_000);
        let (a, b) = bytes.split_at(333);
        world.call(|calls| {
            calls.sendv(handle, &[a, &[]]).expect("room");
            calls.sendv(handle, &[b]).expect("room");
        });
        trimmed(&mut world, window as u32);
        let mut total = 0;
        while total < window as usize {
            let sent = world.segments();
            sent.iter().for_each(|seg| assert!(!peer.text(seg).is_empty()));
            assert!(!sent.is_empty(), "{total} of {window}");
            total += sent.iter().map(|seg| seg.payload.len()).sum::<usize>();
            // A short one behind full ones waits for this.
            let left = window - total as u16;
            world.hear(&Seg { window: left, ..peer.seg(1, 1 + total as u32) });
        }
        assert_eq!(total, window as usize);
    }
}

/// RFC 9293 §3.8.6.2.1: a segment that ends where the window does waits while others are in flight, for what the application
/// sends once it may.
#[test]
fn a_segment_that_the_window_cuts_waits_for_more() {
    for goes_on in [true, false] {
        let mut world = World::new();
        let peer = Peer::establish(&mut world, 5, Open::default());
        let sizes = |world: &mut World| -> Vec<(usize, bool)> {
            let sent = world.segments();
            let of = |seg: &Seg| (seg.payload.len(), seg.flags.contains(TcpFlags::PSH));
            sent.iter().map(|seg| (peer.text(seg), of(seg)).1).collect()
        };
        // A message goes at once, however short.
        world.send(700);
        assert_eq!(sizes(&mut world), [(700, true)]);
        // All that the window leaves, of a longer one.
        world.send(10 * MSS as usize - 700);
        let full = (MSS as usize, false);
        assert_eq!(sizes(&mut world), [full; 9]);
        world.hear(&peer.seg(1, 701));
        world.told();
        world.silent();
        if goes_on {
            world.send(800);
            // Filled up; behind it is the message's end.
            assert_eq!(sizes(&mut world), [full, (100, true)]);
        } else {
            world.hear(&peer.seg(1, 10 * MSS - 759));
            world.told();
            assert_eq!(sizes(&mut world), [(760, true)]);
        }
    }
}

/// Nagle's algorithm (RFC 9293 §3.7.4): with something unacknowledged short messages wait, and share a segment.
#[test]
fn short_messages_wait_for_acknowledgments_where_that_is_asked_for() {
    for nagle in [true, false] {
        for timestamp in [None, Some(7)] {
            let mut world = World::with(|config| config.nagle = nagle);
            let open = Open { timestamp, ..Open::default() };
            let peer = Peer::establish(&mut world, 5, open);
            let sizes = |world: &mut World, bytes: usize| -> Vec<usize> {
                if bytes > 0 {
                    world.send(bytes);
                }
                world.segments().iter().map(|seg| (peer.text(seg), seg.payload.len()).1).collect()
            };
            assert_eq!(sizes(&mut world, 100), [100]);
            if !nagle {
                assert_eq!([sizes(&mut world, 100), sizes(&mut world, 50)], [[100], [50]]);
                continue;
            }
            assert_eq!(sizes(&mut world, 100), []);
            assert_eq!(sizes(&mut world, 50), []);
            // A full one goes, and what is left waits.
            assert_eq!(sizes(&mut world, 1_400).len(), 1);
            world.hear(&peer.seg(1, 101));
            world.told();
            assert_eq!(sizes(&mut world, 0), [], "the full one is unacknowledged");
            let full = if timestamp.is_some() { 1_448 } else { 1_460 };
            world.hear(&peer.seg(1, 101 + full));
            world.told();
            assert_eq!(sizes(&mut world, 0), [1_550 - full as usize]);
        }
    }
}

#[test]
fn a_small_mss_cuts_what_was_staged() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open { mss: Some(100), ..Open::default() });
    world.send(950);
    let expected: Vec<String> = (0..10)
        .map(|part| {
            let end = (part * 100 + 100).min(950);
            format!(". {}:{}({}) ack 1", part * 100 + 1, end + 1, end - part * 100)
        })
        .collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    world.expect(&peer, &expected);
    // The last piece stays where it was staged.
    assert_eq!(world.stats().tx_payload_copies, 9);
    world.hear(&peer.seg(1, 951));
    assert!(matches!(world.told()[..], [Told::Sent { bytes: 950, .. }]));
}

/// A connection whose application was promised a window that its peer then closes.
fn closed_window(world: &mut World) -> Peer {
    let peer = Peer::establish(world, 5, Open::default());
    world.send(100);
    world.expect(&peer, &[". 1:101(100) ack 1"]);
    world.hear(&peer.seg(1, 101).win(0));
    let told = world.told();
    let [Told::Sent { bytes: 100, window, .. }] = told[..] else { panic!("{told:?}") };
    assert_eq!(window, 14_500, "what was promised stays promised");
    peer
}

#[test]
fn what_was_promised_is_taken_and_a_closed_window_is_probed() {
    let mut world = World::new();
    let peer = closed_window(&mut world);
    world.send(200);
    assert_eq!(world.told(), []);
    world.silent();
    // An old byte asks for the window, with back-off; each answer keeps the connection alive.
    for expected in [200, 400, 800, 1_600] {
        let waited = world.pass_until_sent(ms(60_000));
        near(waited, expected);
        world.expect(&peer, &[". 100 ack 1"]);
        world.hear(&peer.seg(1, 101).win(0));
        world.silent();
    }
    world.hear(&peer.seg(1, 101).win(5_000));
    world.expect(&peer, &[". 101:301(200) ack 1"]);
    // The retransmission timer starts afresh: the probes' back-off is not its own.
    let waited = world.pass_until_sent(ms(60_000));
    near(waited, 200);
    world.expect(&peer, &[". 101:301(200) ack 1"]);
    world.hear(&peer.seg(1, 301).win(5_000));
}

#[test]
fn a_window_that_opens_in_part_lets_a_part_out_and_loss_is_noticed() {
    let mut world = World::new();
    let peer = closed_window(&mut world);
    world.send(1_000);
    world.pass(ms(300));
    world.expect(&peer, &[". 100 ack 1"]);
    world.hear(&peer.seg(1, 101).win(400));
    world.expect(&peer, &[". 101:501(400) ack 1"]);
    // Lost: it is retransmitted, not probed for.
    let waited = world.pass_until_sent(ms(60_000));
    near(waited, 200);
    world.expect(&peer, &[". 101:501(400) ack 1"]);
    world.hear(&peer.seg(1, 501).win(400));
    world.expect(&peer, &[". 501:901(400) ack 1"]);
    world.hear(&peer.seg(1, 901).win(0));
    world.silent();
    world.hear(&peer.seg(1, 901).win(300));
    world.expect(&peer, &[". 901:1101(200) ack 1"]);
    world.hear(&peer.seg(1, 1_101));
}

#[test]
fn probes_that_nobody_answers_end() {
    let mut world = World::with(|config| config.retries = 3);
    let peer = closed_window(&mut world);
    world.send(200);
    world.pass(ms(30_000));
    world.expect(&peer, &[". 100 ack 1", ". 100 ack 1", ". 100 ack 1", "R. 101 ack 1"]);
    assert_eq!(world.told(), [Told::Dead { cookie: 5, reason: DeadReason::TimedOut }]);
}

#[test]
fn probes_that_are_answered_go_on() {
    let mut world = World::with(|config| {
        config.retries = 8;
        config.rto_max = ms(1_000);
    });
    let peer = closed_window(&mut world);
    world.send(200);
    for _ in 0..100 {
        world.pass_until_sent(ms(5_000));
        world.expect(&peer, &[". 100 ack 1"]);
        world.hear(&peer.seg(1, 101).win(0));
    }
    assert_eq!(world.told(), []);
}

#[test]
fn a_window_smaller_than_a_segment_cuts_it() {
    let mut world = World::new();
    let open = Open { window: 1_000, ..Open::default() };
    let peer = Peer::establish(&mut world, 5, open);
    world.hear_all(&[peer.seg(1, 1).len(1), peer.seg(2, 1).len(1).win(300)]);
    world.told();
    world.send(1_000);
    assert_eq!(world.told(), []);
    // A larger window may come soon (RFC 9293 §3.8.6.2.1): a part is sent when none did.
    world.pass(ms(100));
    world.expect(&peer, &[". 1 ack 3"]);
    world.pass_until_sent(ms(1_000));
    world.expect(&peer, &[". 0 ack 3", ". 1:301(300) ack 3"]);
    world.hear(&peer.seg(3, 301).win(300));
    world.expect(&peer, &[". 301:601(300) ack 3"]);
    // Some of it acknowledged: no sliver follows what is in flight.
    world.hear(&peer.seg(3, 451).win(300));
    world.silent();
    world.hear(&peer.seg(3, 601).win(1_000));
    world.expect(&peer, &[". 601:1001(400) ack 3"]);
    world.hear(&peer.seg(3, 1_001).win(1_000));
}

#[test]
fn a_full_device_queue_delays_and_loses_nothing() {
    let mut world = World::sized(config(), 256, 4);
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.nic_takes = false;
    world.send(14_600);
    assert_eq!(world.stack.frames().len(), 4);
    world.nic_takes = true;
    world.settle();
    let segments = world.segments();
    assert_eq!(segments.len(), 10);
    for (index, seg) in segments.iter().enumerate() {
        assert_eq!(seg.seq - peer.irs, 1 + index as i32 * MSS as i32);
    }
    world.hear(&peer.seg(1, 14_601));
    assert!(matches!(world.told()[..], [Told::Sent { bytes: 14_600, .. }]));
}

#[test]
fn a_peer_that_acknowledges_half_a_segment_gets_the_rest_again() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(1_001);
    world.frames_out();
    world.hear(&peer.seg(1, 334));
    let waited = world.pass_until_sent(ms(5_000));
    assert!(waited >= ms(200), "{waited:?}");
    world.expect(&peer, &[". 334:1002(668) ack 1"]);
    world.hear(&peer.seg(1, 1_002));
    let told = world.told();
    let sent: u32 =
        told.iter().map(|told| if let Told::Sent { bytes, .. } = told { *bytes } else { 0 }).sum();
    assert_eq!(sent, 1_001);
}

/// An older acknowledgment that arrives late says nothing of the window (RFC 9293 §3.10.7.4).
#[test]
fn a_late_acknowledgment_does_not_move_the_window() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open { window: 2_000, ..Open::default() });
    world.send(1_000);
    world.hear(&peer.seg(1, 1_001).win(1_000));
    world.told();
    world.frames_out();
    // Sent before the acknowledgment above, and overtaken by it.
    world.hear(&peer.seg(2, 501).win(60_000));
    assert_eq!(world.told(), []);
}

/// Headers that were prepared for one neighbour in a batch are not used for another.
#[test]
fn each_neighbour_gets_what_is_sent_to_it() {
    let mut world = World::new();
    let other = host(3);
    let mac = MacAddr([2, 0, 0, 0, 0, 77]);
    world.stack.shared().neighbors.learn(other, mac, world.now);
    let open = Open { timestamp: Some(1), ..Open::default() };
    let first = Peer::establish(&mut world, 5, open);
    let first_handle = world.handle();
    let mut far = [6, 7].map(|port| {
        let mut peer = Peer::new(port, open);
        peer.here.addr = other;
        world.hear(&peer.syn());
        let answers = world.segments();
        peer.irs = answers[0].seq;
        let value = answers[0].options.timestamp.expect("it was offered").value;
        peer.timestamp = Some((1, value));
        world.hear(&peer.seg(1, 1));
        world.told();
        (peer, world.handle())
    });
    let bytes = pattern(0, 10);
    world.call(|calls| {
        calls.sendv(first_handle, &[&bytes]).expect("room");
        // Not by the short way.
        calls.close(far[0].1).expect("room");
        calls.sendv(far[1].1, &[&bytes]).expect("room");
    });
    let sent = world.segments();
    assert_eq!(sent.len(), 3);
    assert_eq!(first.text(&sent[0]), ". 1:11(10) ack 1");
    far.reverse();
    assert_eq!(far[0].0.text(&sent[2]), ". 1:11(10) ack 1");
}

/// RFC 9293 §3.8.6.1: a window that is taken back is probed, and what it had let out is sent again once it opens: the
/// peer lives, so that no number of retransmissions gives it up, and nothing was lost on the way.
#[test]
fn a_window_that_is_taken_back_is_probed_and_not_timed_out() {
    let mut world = World::with(|config| (config.retries, config.user_timeout) = (3, None));
    let peer = Peer::establish(&mut world, 5, Open::default());
    for _ in 0..4 {
        world.send(1_460);
    }
    world.frames_out();
    let closed = |ack| peer.seg(1, ack).win(0);
    world.hear(&closed(1));
    for _ in 0..20 {
        world.pass_until_sent(ms(100_000));
        world.expect(&peer, &[". 1:1461(1460) ack 1"]);
        world.hear(&closed(1));
    }
    assert_eq!(world.told(), []);
    world.hear(&peer.seg(1, 1));
    let expected =
        [0, 1, 2, 3].map(|n| format!(". {}:{}(1460) ack 1", 1 + n * 1_460, 1_461 + n * 1_460));
    world.expect(&peer, &expected.each_ref().map(String::as_str));
    world.told();
    world.hear(&peer.seg(1, 1 + 4 * 1_460));
    assert!(matches!(world.told()[..], [Told::Sent { bytes: 5_840, .. }]));
}

/// Sends `len` bytes in messages of `message` as the windows open; the peer acknowledges all that comes. Answers the payloads
/// of the segments.
fn stream(world: &mut World, peer: &Peer, mut credit: u32, len: u32, message: u32) -> Vec<usize> {
    let (mut left, mut received, mut payloads) = (len, 0, Vec::new());
    while received < len {
        while left > 0 && credit > 0 {
            let part = message.min(left).min(credit);
            world.send(part as usize);
            (left, credit) = (left - part, credit - part);
        }
        let segments = world.segments();
        assert!(!segments.is_empty(), "{left} bytes left, {credit} may be sent");
        for segment in segments {
            peer.text(&segment);
            assert_eq!(segment.seq - peer.irs, 1 + received as i32);
            received += segment.payload.len() as u32;
            payloads.push(segment.payload.len());
        }
        world.hear(&peer.seg(1, 1 + received));
        for told in world.told() {
            let Told::Sent { window, .. } = told else { panic!("{told:?}") };
            credit = window;
        }
    }
    payloads
}

/// The application's buffers are cut where the peer's segments end, and what is left over goes with what follows.
#[test]
fn segments_are_equal_but_the_last_whatever_the_peer_takes() {
    for (mss, most) in [(1_000, 102), (536, 190), (1_460, 70)] {
        let mut world = World::new();
        let peer = Peer::establish(&mut world, 5, Open { mss: Some(mss), ..Open::default() });
        let payloads = stream(&mut world, &peer, 10 * u32::from(mss), 100_000, 64_000);
        assert!(payloads.len() <= most, "{mss}: {} segments: {payloads:?}", payloads.len());
    }
}

/// What waits for the window is joined: a hundred messages go in as few segments as their bytes fill.
#[test]
fn small_messages_that_wait_share_segments_and_memory() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    // A time-out leaves a window of one segment, and the promise of ten.
    world.send(1_460);
    world.frames_out();
    world.pass_until_sent(ms(5_000));
    world.frames_out();
    let free = world.pool.available();
    (0..100).for_each(|_| world.send(100));
    let taken = free - world.pool.available();
    assert!(taken <= 10, "{taken} chunks for 10,000 bytes");
    let mut lens = Vec::new();
    let mut acked = 1_461;
    while acked < 11_461 {
        world.hear(&peer.seg(1, acked));
        let sent = world.segments();
        assert!(!sent.is_empty(), "{lens:?}");
        acked += sent.iter().map(|segment| segment.payload.len() as u32).sum::<u32>();
        lens.extend(sent.iter().map(|segment| segment.payload.len()));
    }
    assert_eq!(lens, [1_400, 1_400, 1_400, 1_400, 1_400, 1_400, 1_400, 200]);
    world.hear(&peer.seg(1, acked));
    world.told();
}

/// Chunks are charged, not bytes: however small the messages, a connection has a part of its share of the memory in flight,
/// and the rest is joined.
#[test]
fn tiny_messages_do_not_pin_a_chunk_for_each_byte() {
    for (chunks, most) in [(4_096, 128), (512, 64)] {
        let mut world = World::sized(config(), chunks, 1_024);
        let peer = Peer::establish(&mut world, 5, Open::default());
        let free = world.pool.available();
        (0..2_000).for_each(|_| world.send(1));
        let taken = free - world.pool.available();
        assert!(taken <= most + 6, "{taken} chunks");
        let sent: usize = world.segments().iter().map(|segment| segment.payload.len()).sum();
        assert!(sent > most * 9 / 10 && sent <= most, "{sent}");
        world.hear(&peer.seg(1, 1 + sent as u32));
        let rest: Vec<_> = world.segments().iter().map(|segment| segment.payload.len()).collect();
        assert_eq!(rest, [1_460, 2_000 - 1_460 - sent]);
        world.hear(&peer.seg(1, 2_001));
        world.told();
    }
}

/// Where memory is short a connection is promised a share of what is left: fast readers that fall silent, one after the
/// other, do not pin all of it.
#[test]
fn promises_shrink_with_the_memory_that_is_left() {
    let mut world = World::sized(config(), 256, 1024);
    let mut pinned = Vec::new();
    for port in 1..=6 {
        let open = Open { window_scale: Some(7), ..Open::default() };
        let peer = Peer::establish(&mut world, port, open);
        let (mut promised, mut acked) = (10 * MSS, 1);
        for _ in 0..5 {
            world.send(promised as usize);
            // The last one, where it is short, waits for what is before it.
            for _ in 0..2 {
                let sent = world.segments();
                acked += sent.iter().map(|seg| seg.payload.len() as u32).sum::<u32>();
                world.hear(&peer.seg(1, acked));
            }
            let told = world.told();
            let Some(&Told::Sent { window, .. }) = told.last() else { panic!("{told:?}") };
            promised = window;
        }
        world.send(promised as usize);
        world.frames_out();
        pinned.push(promised / MSS);
    }
    assert!(pinned.is_sorted_by(|one, next| one >= next), "{pinned:?}");
    assert!(pinned[0] > 5 * pinned[5] / 2 && pinned[5] >= 7, "{pinned:?}");
    assert!(world.pool.available() >= 256 / 8, "{pinned:?}");
}
