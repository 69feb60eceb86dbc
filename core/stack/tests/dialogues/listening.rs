//! Ports that are opened and closed while the stack runs.

use domain::{CallError, CallKind, Cookie, DeadReason, Transport};
use stack::Shared;
use wire::Endpoint;

use crate::support::{
    OTHER_PORT as OTHER, Open, PEER_IP, PORT, Peer, STACK_IP, Told, UDP_PORT, World, udp_frame,
};

fn world() -> World {
    World::with(|config| config.policy.listen = vec![OTHER..=OTHER + 9])
}

fn listen(world: &mut World, cookie: u64, transport: Transport, port: u16, backlog: u16) {
    world.call(|calls| calls.listen(Cookie(cookie), transport, port, backlog).expect("room"));
}

fn unlisten(world: &mut World, transport: Transport, port: u16) {
    world.call(|calls| calls.unlisten(Cookie(9), transport, port).expect("room"));
}

fn failed(call: CallKind, error: CallError) -> [Told; 1] {
    [Told::Failed { call, error }]
}

/// A peer that speaks to [`OTHER`].
fn other(port: u16) -> Peer {
    let mut peer = Peer::new(port, Open::default());
    peer.there.port = OTHER;
    peer
}

/// The peer's handshake up to its SYN.
fn begin(world: &mut World, peer: &mut Peer) {
    world.hear(&peer.syn());
    let answers = world.segments();
    assert_eq!(answers.len(), 1, "a SYN-ACK");
    peer.irs = answers[0].seq;
}

#[test]
fn a_port_opens_and_closes_at_run_time() {
    let mut world = world();
    world.hear(&other(1).syn());
    world.expect(&other(1), &["R. 0 ack 1"]);
    listen(&mut world, 7, Transport::Tcp, OTHER, 5);
    assert_eq!(world.told(), [Told::Listening { cookie: 7 }]);
    let mut peer = other(2);
    begin(&mut world, &mut peer);
    world.hear(&peer.seg(1, 1).len(3));
    assert!(matches!(world.told()[..], [Told::Knock { .. }, Told::Recv { cookie: 2, .. }]));
    world.frames_out();
    // What was accepted goes on when the port closes.
    unlisten(&mut world, Transport::Tcp, OTHER);
    world.silent();
    world.hear(&other(3).syn());
    world.expect(&other(3), &["R. 0 ack 1"]);
    world.hear(&peer.seg(4, 1).len(2));
    assert!(matches!(world.told()[..], [Told::Recv { cookie: 2, .. }]));
    world.frames_out();
}

/// As Linux does: the peers of connections that were not accepted take them for open.
#[test]
fn what_was_not_accepted_is_reset_when_its_port_closes() {
    let mut world = world();
    world.auto_accept = false;
    listen(&mut world, 7, Transport::Tcp, OTHER, 5);
    let [mut open, mut half] = [other(1), other(2)];
    // In the flow group of the first one.
    let group = |port, local| {
        let (local, peer) = (Endpoint::new(STACK_IP, local), Endpoint::new(PEER_IP, port));
        Shared::group_of(world.stack.shared().flow_hash(local, peer))
    };
    let port = (3..9_000).find(|&port| group(port, PORT) == group(1, OTHER)).expect("a port");
    let (configured, _) = Peer::knock(&mut world, port, Open::default());
    world.hear(&configured.seg(1, 1));
    begin(&mut world, &mut open);
    world.hear(&open.seg(1, 1));
    begin(&mut world, &mut half);
    assert_eq!((world.handles.len(), world.stack.connections()), (2, 3));
    world.told();
    unlisten(&mut world, Transport::Tcp, OTHER);
    world.expect(&open, &["R. 1 ack 1"]);
    assert_eq!(world.told(), [Told::Dead { cookie: 0, reason: DeadReason::Aborted }]);
    // The half-open one is forgotten, and learns of it by the reset for its last step.
    assert_eq!(world.stack.connections(), 1);
    world.hear(&half.seg(1, 1));
    world.expect(&half, &["R 1"]);
    // That of the other port is still there to be accepted.
    let handle = world.handles[0];
    world.call(|calls| calls.accept(handle, Cookie(3)).expect("room"));
    world.hear(&configured.seg(1, 1).len(4));
    assert!(matches!(world.told()[..], [Told::Recv { cookie: 3, .. }]));
    world.frames_out();
}

/// A server that begins anew: what the port's last opening let in ends all the same, and nothing is let in before it has.
#[test]
fn a_port_that_opens_at_once_again_keeps_nothing() {
    let mut world = world();
    world.auto_accept = false;
    listen(&mut world, 7, Transport::Tcp, OTHER, 2);
    let [mut open, mut half] = [other(1), other(2)];
    begin(&mut world, &mut open);
    world.hear(&open.seg(1, 1));
    begin(&mut world, &mut half);
    world.told();
    world.call(|calls| {
        calls.unlisten(Cookie(9), Transport::Tcp, OTHER).expect("room");
        calls.listen(Cookie(8), Transport::Tcp, OTHER, 2).expect("room");
    });
    world.expect(&open, &["R. 1 ack 1"]);
    let dead = Told::Dead { cookie: 0, reason: DeadReason::Aborted };
    let told = world.told();
    assert!(told.contains(&dead) && told.contains(&Told::Listening { cookie: 8 }), "{told:?}");
    assert_eq!(world.stack.connections(), 0);
    // All of the backlog is there.
    for port in 3..5 {
        let mut peer = other(port);
        begin(&mut world, &mut peer);
        world.hear(&peer.seg(1, 1));
        assert!(matches!(world.told()[..], [Told::Knock { .. }]), "{port}");
    }
}

#[test]
fn a_port_of_the_configuration_closes_and_opens_again() {
    let mut world = world();
    unlisten(&mut world, Transport::Tcp, PORT);
    world.hear(&Peer::new(1, Open::default()).syn());
    world.expect(&Peer::new(1, Open::default()), &["R. 0 ack 1"]);
    listen(&mut world, 1, Transport::Tcp, PORT, 5);
    assert_eq!(world.told(), [Told::Listening { cookie: 1 }]);
    Peer::establish(&mut world, 2, Open::default());
}

#[test]
fn a_call_that_cannot_be_is_answered() {
    let mut world = world();
    for transport in [Transport::Tcp, Transport::Udp] {
        listen(&mut world, 1, transport, OTHER - 1, 5);
        assert_eq!(world.told(), failed(CallKind::Listen, CallError::Forbidden));
        unlisten(&mut world, transport, OTHER - 1);
        assert_eq!(world.told(), failed(CallKind::Unlisten, CallError::Forbidden));
        unlisten(&mut world, transport, OTHER);
        assert_eq!(world.told(), failed(CallKind::Unlisten, CallError::BadState));
        listen(&mut world, 1, transport, OTHER, 5);
        assert_eq!(world.told(), [Told::Listening { cookie: 1 }]);
        listen(&mut world, 2, transport, OTHER, 5);
        assert_eq!(world.told(), failed(CallKind::Listen, CallError::BadState));
    }
}

/// Beyond it the last step of the handshake is not taken.
#[test]
fn the_backlog_of_the_call_bounds_what_is_not_accepted() {
    let mut world = world();
    world.auto_accept = false;
    listen(&mut world, 7, Transport::Tcp, OTHER, 1);
    let mut peers = [other(1), other(2)];
    for peer in &mut peers {
        begin(&mut world, peer);
    }
    for peer in &peers {
        world.hear(&peer.seg(1, 1));
    }
    assert!(matches!(world.told()[..], [Told::Listening { .. }, Told::Knock { .. }]));
    assert_eq!(world.stats().tcp_backlog_full, 1);
    world.hear(&other(3).syn());
    world.silent();
    assert_eq!(world.stats().tcp_syn_dropped, 1);
}

#[test]
fn datagrams_come_to_a_port_while_it_is_open() {
    let mut world = world();
    let from = Endpoint::new(PEER_IP, 9);
    let hear = |world: &mut World, port| {
        world.hear_frames(&[udp_frame(from, port, b"x")]);
        world.frames_out();
        world.told().len()
    };
    assert_eq!(hear(&mut world, OTHER), 0);
    listen(&mut world, 1, Transport::Udp, OTHER, 0);
    world.told();
    assert_eq!([hear(&mut world, OTHER), hear(&mut world, UDP_PORT)], [1, 1]);
    unlisten(&mut world, Transport::Udp, OTHER);
    assert_eq!([hear(&mut world, OTHER), hear(&mut world, UDP_PORT)], [0, 1]);
    // The transports have ports of their own.
    world.hear(&other(1).syn());
    world.expect(&other(1), &["R. 0 ack 1"]);
}
