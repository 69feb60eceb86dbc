//! UDP.

use clock::Duration;
use sockets::message::{MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC};
use sockets::socket_type::SOCK_DGRAM;
use sockets::{Errno, Received, Stop, events};

use crate::support::{CLIENT, SERVER, World, at, bytes};

const MS: Duration = Duration::from_millis(1);

#[test]
fn datagrams_keep_their_bounds_and_their_senders() {
    let mut world = World::new();
    let (server, client) = (world.datagrams(SERVER, 53), world.datagrams(CLIENT, 9));
    for text in [&b"one"[..], b"", b"three"] {
        let sent = world.sockets[CLIENT].send(client, text, 0, Some(at(SERVER, 53)));
        assert_eq!(sent, Ok(text.len()));
    }
    world.pass(MS);
    let mut buffer = [0; 4];
    let from = Some(at(CLIENT, 9));
    let sockets = &mut world.sockets[SERVER];
    assert_eq!(sockets.readable_bytes(server), Ok(3));
    let mut receive = |flags| sockets.receive(server, &mut buffer, flags);
    let one = Ok(Received { bytes: 3, from, flags: 0 });
    assert_eq!([receive(MSG_PEEK), receive(0)], [one, one]);
    assert_eq!(receive(0), Ok(Received { bytes: 0, from, flags: 0 }));
    let cut = |bytes| Ok(Received { bytes, from, flags: MSG_TRUNC });
    assert_eq!([receive(MSG_PEEK), receive(MSG_TRUNC)], [cut(4), cut(5)]);
    assert_eq!(receive(MSG_DONTWAIT), Err(Stop::Failed(Errno::EAGAIN)));
}

#[test]
fn a_connected_one_hears_its_peer_alone() {
    let mut world = World::new();
    let (server, client) = (world.datagrams(SERVER, 53), world.socket(CLIENT, SOCK_DGRAM));
    let send = |world: &mut World, to| world.sockets[CLIENT].send(client, b"x", 0, to);
    assert_eq!(send(&mut world, None), Err(Stop::Failed(Errno::EDESTADDRREQ)));
    world.sockets[CLIENT].connect(client, at(SERVER, 53)).expect("no waiting");
    assert_eq!(world.sockets[CLIENT].peer(client), Ok(at(SERVER, 53)));
    let port = world.sockets[CLIENT].local(client).expect("bound").port;
    assert_eq!(send(&mut world, None), Ok(1));
    world.pass(MS);
    let mut buffer = [0; 4];
    let received = world.sockets[SERVER].receive(server, &mut buffer, 0).expect("it came");
    assert_eq!(received.from, Some(at(CLIENT, port)));
    let other = world.datagrams(SERVER, 54);
    for (socket, text) in [(other, b"other"), (server, b"peer!")] {
        world.sockets[SERVER].send(socket, text, 0, Some(at(CLIENT, port))).expect("room");
    }
    assert_eq!(world.read(CLIENT, client, 9), Ok(b"peer!".to_vec()));
    assert_eq!(world.sockets[CLIENT].readable_bytes(client), Ok(0));
}

#[test]
fn what_is_not_read_is_bounded_and_too_large_is_refused() {
    let mut world = World::new();
    let (server, client) = (world.datagrams(SERVER, 53), world.datagrams(CLIENT, 9));
    world.sockets[SERVER].set_option(server, 1, 8, 4_000).expect("SO_RCVBUF");
    assert_eq!(world.sockets[SERVER].option(server, 1, 8), Ok(8_000), "Linux doubles it");
    for _ in 0..20 {
        world.sockets[CLIENT].send(client, &bytes(1_000), 0, Some(at(SERVER, 53))).expect("room");
        world.step();
    }
    world.pass(MS);
    let count = std::iter::from_fn(|| {
        let mut buffer = [0; 1_000];
        world.sockets[SERVER].receive(server, &mut buffer, MSG_DONTWAIT).ok()
    });
    assert_eq!(count.count(), 7);
    // What was read makes room.
    for _ in 0..3 {
        world.sockets[CLIENT].send(client, &bytes(1_000), 0, Some(at(SERVER, 53))).expect("room");
        world.pass(MS);
        assert_eq!(world.read(SERVER, server, 1_000).expect("it came").len(), 1_000);
    }
    let large = world.sockets[CLIENT].send(client, &bytes(1_473), 0, Some(at(SERVER, 53)));
    assert_eq!(large, Err(Stop::Failed(Errno::EMSGSIZE)));
}

#[test]
fn what_is_not_sent_is_bounded() {
    let mut world = World::new();
    let client = world.datagrams(CLIENT, 9);
    world.sockets[CLIENT].set_option(client, 1, 7, 1).expect("SO_SNDBUF");
    world.sockets[CLIENT].set_nonblocking(client, true).expect("open");
    let mut send = |len| world.sockets[CLIENT].send(client, &bytes(len), 0, Some(at(SERVER, 53)));
    assert_eq!([(); 4].map(|()| send(1_000).is_ok()), [true; 4]);
    assert_eq!(send(1_000), Err(Stop::Failed(Errno::EAGAIN)));
    assert_eq!(world.ready(CLIENT, client) & events::OUT, 0);
    world.pass(MS);
    assert_eq!(world.ready(CLIENT, client), events::OUT | events::WRNORM);
}

#[test]
fn ports_are_the_transports_own_and_the_policys() {
    let mut world = World::new();
    let first = world.datagrams(SERVER, 80);
    let listener = world.listener(80);
    let second = world.socket(SERVER, SOCK_DGRAM);
    let bind = |world: &mut World, port| {
        world.wait(SERVER, |sockets| sockets.bind(second, at(SERVER, port)))
    };
    assert_eq!(bind(&mut world, 80), Err(Errno::EADDRINUSE));
    assert_eq!(bind(&mut world, u16::MAX), Err(Errno::EACCES), "the policy does not name it");
    world.sockets[SERVER].close(first).expect("open");
    assert_eq!(bind(&mut world, 80), Ok(()));
    assert_eq!(bind(&mut world, 81), Err(Errno::EINVAL));
    world.sockets[SERVER].close(listener).expect("open");
}

#[test]
fn what_was_sent_before_close_leaves() {
    let mut world = World::new();
    let (server, client) = (world.datagrams(SERVER, 53), world.socket(CLIENT, SOCK_DGRAM));
    world.sockets[CLIENT].send(client, b"last", 0, Some(at(SERVER, 53))).expect("room");
    world.sockets[CLIENT].close(client).expect("open");
    assert_eq!(world.read(SERVER, server, 9), Ok(b"last".to_vec()));
    // Nor is its port in the way of the next socket.
    let client = world.datagrams(CLIENT, 9);
    world.sockets[CLIENT].send(client, b"last", 0, Some(at(SERVER, 53))).expect("room");
    world.sockets[CLIENT].close(client).expect("open");
    let next = world.datagrams(CLIENT, 9);
    world.pass(MS);
    world.sockets[SERVER].send(server, b"reply", 0, Some(at(CLIENT, 9))).expect("room");
    assert_eq!(world.read(CLIENT, next, 9), Ok(b"reply".to_vec()));
}

#[test]
fn poll_and_send_agree_on_what_is_full() {
    let mut world = World::new();
    let client = world.datagrams(CLIENT, 9);
    world.sockets[CLIENT].set_option(client, 1, 7, 1).expect("SO_SNDBUF");
    world.sockets[CLIENT].set_nonblocking(client, true).expect("open");
    let send = |world: &mut World| world.sockets[CLIENT].send(client, b"", 0, Some(at(SERVER, 53)));
    assert_eq!((0..100).take_while(|_| send(&mut world).is_ok()).count(), 4_608 / 64);
    assert_eq!(world.ready(CLIENT, client) & events::OUT, 0);
    let other = "[::1]:5".parse().expect("an endpoint");
    let sent = world.sockets[CLIENT].send(client, b"", 0, Some(other));
    assert_eq!(sent, Err(Stop::Failed(Errno::EAFNOSUPPORT)));
}

#[test]
fn what_is_left_of_a_refused_port_is_dropped() {
    let mut world = World::with(|config| config.policy.listen = vec![53..=53]);
    let (server, client) = (world.datagrams(SERVER, 53), world.socket(CLIENT, SOCK_DGRAM));
    for _ in 0..2 {
        world.sockets[CLIENT].send(client, b"x", 0, Some(at(SERVER, 53))).expect("room");
        world.step();
    }
    world.pass(MS);
    let mut buffer = [0; 4];
    while let Ok(received) = world.sockets[SERVER].receive(server, &mut buffer, MSG_DONTWAIT) {
        assert_ne!(received.from.map(|from| from.port), Some(0));
    }
    let sent = world.sockets[CLIENT].send(client, b"x", 0, Some(at(SERVER, 53)));
    assert_eq!(sent, Err(Stop::Failed(Errno::EACCES)));
}
