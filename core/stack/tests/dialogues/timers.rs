//! Timers of many connections that are due at once: they come in batches, between which packets are heard.

use clock::Duration;
use domain::Handle;

use crate::support::{Open, Peer, World, ms};

/// Most of one cycle.
const BATCH: usize = 64;
const CONNECTIONS: u16 = 300;

fn opened(world: &mut World) -> Vec<Peer> {
    (1..=CONNECTIONS).map(|port| Peer::establish(world, port, Open::default())).collect()
}

/// Cycles of a moment at which all timers are due, one by one: what each sent. Not one is without a timer.
fn cycles(world: &mut World) -> Vec<usize> {
    let mut sent = Vec::new();
    while world.stack.next_timer().is_some_and(|at| at <= world.now) {
        world.cycle(&[], |_| ());
        sent.push(world.frames_out().len());
        assert!(sent.len() < 100, "timers fire without end: {sent:?}");
    }
    sent
}

#[test]
fn retransmissions_of_many_connections_do_not_hold_up_a_packet() {
    let mut world = World::new();
    let peers = opened(&mut world);
    for _ in 0..peers.len() {
        world.send(100);
        world.handles.rotate_left(1);
    }
    world.frames_out();
    world.now += ms(400);
    // A packet that arrives is answered in the first cycle, whatever else is due.
    let asks = peers[7].seg(1, 101).len(1).frame();
    world.cycle(&[asks], |_| ());
    let first = world.frames_out();
    assert!(first.len() <= BATCH + 1, "{}", first.len());
    let rest = cycles(&mut world);
    assert!(rest.iter().all(|&sent| sent <= BATCH), "{rest:?}");
    assert!(rest.len() >= 3, "{rest:?}");
    let again = world.stats().tcp_retransmissions;
    assert!((u64::from(CONNECTIONS) - 1..=u64::from(CONNECTIONS)).contains(&again), "{again}");
}

#[test]
fn time_wait_of_many_connections_ends_in_batches() {
    let mut world = World::new();
    let peers = opened(&mut world);
    for (peer, at) in peers.iter().zip(0..) {
        let handle: Handle = world.handles[at];
        world.call(|calls| calls.close(handle).expect("room"));
        world.hear(&peer.seg(1, 2).flags("F."));
    }
    world.frames_out();
    let before = world.stack.connections();
    assert_eq!(before, u32::from(CONNECTIONS), "all wait: {:?}", world.stack);
    world.now += ms(600_000);
    let mut left = vec![before];
    while world.stack.next_timer().is_some_and(|at| at <= world.now) {
        world.cycle(&[], |_| ());
        left.push(world.stack.connections());
        assert!(left.len() < 100, "{left:?}");
    }
    assert_eq!(left.last(), Some(&0));
    assert!(left.windows(2).all(|two| two[0] - two[1] <= BATCH as u32), "{left:?}");
}

/// The time-out of a connection that began slowly falls with each sample, also while something is in flight all the time:
/// the wheel's entry follows it.
#[test]
fn a_shorter_time_out_is_kept_though_replies_never_stop() {
    let mut world = World::new();
    world.auto_done = false;
    let open = Open { timestamp: Some(5), ..Open::default() };
    let (peer, _) = Peer::knock(&mut world, 5, open);
    world.pass(ms(900));
    world.silent();
    world.hear(&peer.seg(1, 1));
    let handle = world.handle();
    world.pass(ms(400));
    for round in 0u32..80 {
        let request = peer.seg(1 + 100 * round, 1 + 3 * round.saturating_sub(1)).len(100).frame();
        world.cycle(&[request], |calls| {
            calls.sendv(handle, &[&[0, 1, 2]]).expect("room");
            calls.recv_done(handle, 100).expect("room");
        });
        world.pass(Duration::from_micros(100));
    }
    world.frames_out();
    let waited = world.pass_until_sent(ms(10_000));
    assert!(waited < ms(500), "{waited:?}");
}
