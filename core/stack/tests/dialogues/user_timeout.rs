//! The user time-out (RFC 9293 §3.8.3, RFC 5482): peers that accept data and do not acknowledge it.

use domain::DeadReason;

use crate::support::{Open, Peer, Told, World, ms, near};

const MSS: usize = 1_460;
/// Segments of the initial window.
const WINDOW: usize = 10;

fn limited(user_timeout_ms: u64) -> World {
    World::with(|config| config.user_timeout = Some(ms(user_timeout_ms)))
}

fn died(cookie: u64) -> [Told; 1] {
    [Told::Dead { cookie, reason: DeadReason::TimedOut }]
}

#[test]
fn data_that_is_not_acknowledged_ends_its_connection_in_time() {
    let mut world = limited(2_000);
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(100);
    world.expect(&peer, &[". 1:101(100) ack 1"]);
    // The time-outs of RFC 6298 stay as they are; the next would be after 1,600 ms.
    for expected in [200, 400, 800] {
        near(world.pass_until_sent(ms(60_000)), expected);
        world.expect(&peer, &[". 1:101(100) ack 1"]);
    }
    near(world.pass_until_sent(ms(60_000)), 600);
    world.expect(&peer, &["R. 101 ack 1"]);
    assert_eq!(world.told(), died(5));
    assert_eq!(world.stats().tcp_stalled, 1);
}

#[test]
fn a_byte_now_and_then_does_not_extend_the_time() {
    let mut world = limited(3_000);
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(WINDOW * MSS);
    let begin = world.now;
    let mut acknowledged = 1;
    while world.stats().tcp_stalled == 0 {
        world.pass_until_sent(ms(60_000));
        world.frames_out();
        acknowledged += 1;
        world.hear(&peer.seg(1, acknowledged));
        world.pass(ms(1));
        assert!(world.now.since(begin) < ms(4_000), "{acknowledged} bytes in {:?}", world.now);
    }
    world.frames_out();
    assert!(acknowledged > 3, "{acknowledged}");
    assert_eq!(world.told().last(), died(5).last());
}

#[test]
fn a_peer_that_acknowledges_late_is_waited_for() {
    let mut world = limited(2_000);
    let peer = Peer::establish(&mut world, 5, Open::default());
    for round in 0..20_u32 {
        world.send(100);
        world.pass(ms(1_900));
        world.frames_out();
        world.hear(&peer.seg(1, 101 + 100 * round));
    }
    world.frames_out();
    assert_eq!(world.stats().tcp_stalled, 0);
    let told = world.told();
    assert!(!told.iter().any(|told| matches!(told, Told::Dead { .. })), "{told:?}");
}

#[test]
fn a_peer_that_takes_back_its_window_does_not_keep_what_was_promised() {
    let mut world = limited(3_000);
    let mut peer = Peer::establish(&mut world, 5, Open::default());
    peer.window = 0;
    // Newer than what set the window last.
    world.hear(&peer.seg(1, 1).len(1));
    world.send(100);
    let begin = world.now;
    while world.stats().tcp_stalled == 0 {
        world.pass_until_sent(ms(60_000));
        world.frames_out();
        // Each probe is answered.
        world.hear(&peer.seg(2, 1));
        assert!(world.now.since(begin) < ms(5_000), "{:?}", world.now);
    }
    world.frames_out();
    assert_eq!(world.told().last(), died(5).last());
}

/// Most of the memory is with peers that acknowledge nothing, and more of them come.
#[test]
fn a_crowd_that_acknowledges_nothing_does_not_keep_a_good_client_from_its_reply() {
    let mut world = limited(60_000);
    let good = Peer::establish(&mut world, 1, Open::default());
    let own = world.handle();
    let mut acknowledged = 1;
    let mut slowest = ms(0);
    for port in 2..=600 {
        let peer = Peer::new(port, Open::default());
        world.hear(&peer.syn());
        let answers = world.segments();
        let syn_ack = answers.iter().find(|seg| seg.dst == peer.here).expect("a SYN-ACK");
        let peer = Peer { irs: syn_ack.seq, ..peer };
        world.hear(&peer.seg(1, 1));
        let handle = world.handle();
        world.call(|calls| {
            // As a service does, it is tried piece by piece, and kept where memory is refused.
            for _ in 0..WINDOW {
                let _ = calls.sendv(handle, &[&[7; MSS]]);
            }
        });
        world.frames_out();
        if port % 20 != 0 {
            world.pass(ms(5));
            continue;
        }
        // The good client's request is answered in time.
        let asked = world.now;
        loop {
            let mut sent = false;
            world.call(|calls| sent = calls.sendv(own, &[&[7; 100]]).is_ok());
            if sent {
                break;
            }
            world.pass(ms(1));
            assert!(world.now.since(asked) < ms(2_000), "{port}: {:?}", world.stats());
        }
        slowest = slowest.max(world.now.since(asked));
        acknowledged += 100;
        world.hear(&good.seg(1, acknowledged));
        world.frames_out();
    }
    let stats = world.stats();
    assert!(stats.tcp_stalled > 200, "{stats:?}");
    assert!(slowest < ms(700), "{slowest:?}");
    let told = world.told();
    let ended = |told: &&Told| matches!(told, Told::Dead { cookie: 1, .. });
    assert_eq!(told.iter().find(ended), None);
}
