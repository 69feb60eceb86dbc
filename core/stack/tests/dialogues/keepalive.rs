//! Silent peers are asked for a sign of life (RFC 9293 §3.8.4).

use clock::Duration;
use domain::DeadReason;
use stack::Keepalive;

use crate::support::{Open, Peer, Told, World, ms, near};

fn world() -> World {
    let seconds = Duration::from_secs;
    let (idle, interval) = (seconds(100), seconds(10));
    World::with(|config| config.keepalive = Some(Keepalive { idle, interval, probes: 3 }))
}

/// The wheel's slots are an eighth of the whole silence long.
fn next_probe(world: &mut World) {
    let waited = world.pass_until_sent(ms(1_000_000));
    assert!(waited > ms(1_000) && waited < ms(26_000), "{waited:?}");
}

#[test]
fn a_peer_that_answers_is_kept() {
    for timestamp in [None, Some(7)] {
        let mut world = world();
        let peer = Peer::establish(&mut world, 5, Open { timestamp, ..Open::default() });
        for _ in 0..20 {
            near(world.pass_until_sent(ms(1_000_000)), 100_000);
            world.expect(&peer, &[". 0 ack 1"]);
            world.hear(&peer.seg(1, 1));
        }
        // What is said beside counts as well.
        world.pass(ms(90_000));
        world.hear(&peer.seg(1, 1).len(10));
        world.pass(ms(90_000));
        world.expect(&peer, &[". 1 ack 11"]);
        next_probe(&mut world);
        world.expect(&peer, &[". 0 ack 11"]);
        world.told();
    }
}

#[test]
fn a_peer_that_is_gone_is_given_up() {
    let mut world = world();
    let peer = Peer::establish(&mut world, 5, Open::default());
    near(world.pass_until_sent(ms(1_000_000)), 100_000);
    world.expect(&peer, &[". 0 ack 1"]);
    for _ in 0..2 {
        next_probe(&mut world);
        world.expect(&peer, &[". 0 ack 1"]);
    }
    next_probe(&mut world);
    world.expect(&peer, &["R. 1 ack 1"]);
    assert_eq!(world.told(), [Told::Dead { cookie: 5, reason: DeadReason::TimedOut }]);
}

/// What is sent and not acknowledged is sent again, which asks as well.
#[test]
fn data_that_is_out_asks_itself() {
    let mut world = world();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(10);
    world.pass(ms(99_000));
    for segment in world.segments() {
        assert_eq!(peer.text(&segment), ". 1:11(10) ack 1");
    }
    world.hear(&peer.seg(1, 11));
    world.told();
    near(world.pass_until_sent(ms(1_000_000)), 100_000);
    world.expect(&peer, &[". 10 ack 1"]);
}

/// A host that slept, or a wheel that was late, has sent no probe: then none is missed.
#[test]
fn nobody_is_given_up_without_a_probe() {
    let mut world = world();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.pass(ms(1_000));
    world.now += ms(1_000_000);
    world.settle();
    world.pass(ms(1));
    world.expect(&peer, &[". 0 ack 1"]);
    world.hear(&peer.seg(1, 1));
    assert_eq!(world.told(), []);
}
