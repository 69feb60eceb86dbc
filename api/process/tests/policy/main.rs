//! The access policy, tried by an application that issues its calls in any order on any handle.
//!
//! Everything runs in one thread on a virtual clock: two elastic threads under each scheduler, the application in the
//! process domain in both placements, and peers that are stacks of their own.

mod application;
mod model;
mod orders;
mod peer;
mod world;

use application::Call;
use clock::Instant;
use peer::Act;
use stack::{Direction, NetworkPolicy, Rule, Transport};
use wire::{Endpoint, Ipv4Addr, Prefix};
use world::{Domain, MODES, PEERS, Sent, World};

const START: Instant = Instant::from_micros(10_000_000);

fn denies_incoming() -> NetworkPolicy {
    NetworkPolicy { allow_in: false, ..NetworkPolicy::default() }
}

#[test]
fn a_guessed_handle_opens_no_connection_that_the_policy_denies() {
    for mode in MODES {
        let mut domain = Domain::new(mode);
        let mut world = World::new(&mut domain, &denies_incoming(), START);
        let peer = Endpoint::new(PEERS[0], 4_000);
        world.peers[0].acts.push(Act::Connect(peer.port, 7));
        let handle = world.guess(peer, 7, 0, 0);
        let home = usize::from(world.shared.home_of(handle.group()));
        for _ in 0..20 {
            world.call(home, Call::Accept(handle));
            world.call(home, Call::Send(handle));
            world.peers[0].acts.push(Act::Send(0));
            world.round();
        }
        world.settle();
        let heard = world.application(home, |application| application.heard.clone());
        let is_bytes =
            |heard: &application::Heard| matches!(heard, application::Heard::Bytes { .. });
        assert!(!heard.iter().any(is_bytes), "{mode:?}: bytes of a denied peer: {heard:?}");
        assert_eq!(world.peers[0].connections[0].received, 0, "{mode:?}: bytes for a denied peer");
        world.end();
    }
}

#[test]
fn a_datagram_leaves_to_nobody_whom_the_policy_denies() {
    let rule = Rule {
        allow: true,
        direction: Direction::In,
        transport: Some(Transport::Udp),
        network: Some(Prefix::new(Ipv4Addr::new(10, 2, 0, 0).into(), 16)),
        ports: 0..=u16::MAX,
    };
    let policy = NetworkPolicy { rules: vec![rule], allow_out: false, ..NetworkPolicy::default() };
    for mode in MODES {
        let mut domain = Domain::new(mode);
        let mut world = World::new(&mut domain, &policy, START);
        world.call(0, Call::Datagram(7, Endpoint::new(PEERS[0], 53)));
        world.settle();
        assert_eq!(world.peers[0].datagrams, [], "{mode:?}");
        let sent = |(_, sent): &(Instant, Sent)| matches!(sent, Sent::Udp { .. });
        assert!(!world.sent.iter().any(sent), "{mode:?}: {:?}", world.sent);
        world.end();
    }
}
