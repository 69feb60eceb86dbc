//! Options.

use domain::{CallError, CallKind, EventRecord, Handle};
use sockets::option::{
    SO_ACCEPTCONN, SO_DOMAIN, SO_KEEPALIVE, SO_PROTOCOL, SO_RCVBUF, SO_REUSEADDR, SO_REUSEPORT,
    SO_SNDBUF, SO_TYPE, SOL_SOCKET, SOL_TCP, TCP_CORK, TCP_MAXSEG, TCP_NODELAY,
};
use sockets::socket_type::{AF_INET, SOCK_DGRAM, SOCK_STREAM};
use sockets::{Errno, Stop};

use crate::support::{CLIENT, PORT, SERVER, World, cookie};

#[test]
fn what_can_be_set_is_what_one_gets() {
    let mut world = World::new();
    let socket = world.socket(CLIENT, SOCK_STREAM);
    let sockets = &mut world.sockets[CLIENT];
    for (level, name) in [
        (SOL_SOCKET, SO_REUSEADDR),
        (SOL_SOCKET, SO_REUSEPORT),
        (SOL_TCP, TCP_NODELAY),
        (SOL_TCP, TCP_CORK),
    ] {
        for value in [1, 0] {
            assert_eq!(sockets.set_option(socket, level, name, value), Ok(()));
            assert_eq!(sockets.option(socket, level, name), Ok(value), "{level} {name}");
        }
    }
    for (value, got) in [(10_000, 20_000), (1, 4_608), (1 << 30, 425_984), (-1, 425_984)] {
        sockets.set_option(socket, SOL_SOCKET, SO_SNDBUF, value).expect("served");
        assert_eq!(sockets.option(socket, SOL_SOCKET, SO_SNDBUF), Ok(got), "{value}");
    }
}

#[test]
fn what_a_socket_is_can_be_asked() {
    let mut world = World::new();
    let listener = world.listener(PORT);
    let datagrams = world.socket(SERVER, SOCK_DGRAM);
    let sockets = &mut world.sockets[SERVER];
    let mut get = |socket, name| sockets.option(socket, SOL_SOCKET, name).expect("served");
    assert_eq!(
        [SO_TYPE, SO_PROTOCOL, SO_DOMAIN, SO_ACCEPTCONN].map(|name| get(listener, name)),
        [1, 6, 2, 1]
    );
    assert_eq!(
        [SO_TYPE, SO_PROTOCOL, SO_DOMAIN, SO_ACCEPTCONN].map(|name| get(datagrams, name)),
        [2, 17, 2, 0]
    );
    assert_eq!([SO_RCVBUF, SO_KEEPALIVE].map(|name| get(listener, name)), [64 << 10, 0]);
}

/// Never a pretended success.
#[test]
fn what_cannot_be_served_fails() {
    let mut world = World::new();
    let stream = world.socket(CLIENT, SOCK_STREAM);
    let datagrams = world.socket(CLIENT, SOCK_DGRAM);
    let sockets = &mut world.sockets[CLIENT];
    let refused = Err(Stop::Failed(Errno::ENOPROTOOPT));
    for (socket, level, name, value) in [
        (stream, SOL_SOCKET, SO_RCVBUF, 1 << 16),
        (stream, SOL_SOCKET, SO_KEEPALIVE, 1),
        (stream, SOL_TCP, TCP_MAXSEG, 1_000),
        (stream, SOL_SOCKET, SO_TYPE, 1),
        (datagrams, SOL_TCP, TCP_NODELAY, 1),
        (stream, 99, 1, 1),
    ] {
        assert_eq!(sockets.set_option(socket, level, name, value), refused, "{level} {name}");
    }
    // It is off already.
    assert_eq!(sockets.set_option(stream, SOL_SOCKET, SO_KEEPALIVE, 0), Ok(()));
    assert_eq!(sockets.option(stream, SOL_TCP, 99), Err(Stop::Failed(Errno::ENOPROTOOPT)));
    assert_eq!(sockets.info(datagrams), Err(Stop::Failed(Errno::ENOPROTOOPT)));
    let no = |errno| Err(Stop::Failed(errno));
    assert_eq!(sockets.socket(1, SOCK_STREAM, 0), no(Errno::EAFNOSUPPORT));
    assert_eq!(sockets.socket(AF_INET, 3, 0), no(Errno::ESOCKTNOSUPPORT));
    assert_eq!(sockets.socket(AF_INET, SOCK_STREAM, 17), no(Errno::EPROTONOSUPPORT));
    let set = sockets.epoll_create().expect("room");
    assert_eq!(sockets.option(set, SOL_SOCKET, SO_TYPE), no(Errno::ENOTSOCK));
    assert_eq!(sockets.listen(datagrams, 5), Err(Stop::Failed(Errno::EOPNOTSUPP)));
}

#[test]
fn tcp_info_is_the_stacks() {
    let mut world = World::new();
    let (server, client) = world.connected();
    world.send(CLIENT, client, b"hello").expect("open");
    world.read(SERVER, server, 9).expect("open");
    world.pass(clock::Duration::from_millis(60));
    let info = world.wait(CLIENT, |sockets| sockets.info(client)).expect("connected");
    assert_eq!((info.state, info.snd_mss_bytes, info.in_flight_bytes), (1, 1_448, 0));
    assert!(info.srtt_ns > 0 && info.rto_ns >= info.srtt_ns, "{info:?}");
    let mss = world.wait(CLIENT, |sockets| sockets.option(client, SOL_TCP, TCP_MAXSEG));
    assert_eq!(mss, Ok(1_448));
    let fresh = world.socket(CLIENT, SOCK_STREAM);
    assert_eq!(world.sockets[CLIENT].info(fresh).expect("at once").state, 7);
}

#[test]
fn information_that_does_not_come_or_is_old_is_not_given() {
    let mut world = World::new();
    let (_, client) = world.connected();
    assert!(matches!(world.sockets[CLIENT].info(client), Err(Stop::Blocked(_))));
    let (call, error) = (CallKind::Inform, CallError::Busy);
    let (handle, cookie) = (Handle::from_bits(0), cookie(0));
    world.deliver(CLIENT, EventRecord::Failed { call, handle, cookie, error });
    assert_eq!(world.sockets[CLIENT].info(client), Err(Stop::Failed(Errno::ENOBUFS)));
    assert!(matches!(world.sockets[CLIENT].info(client), Err(Stop::Blocked(_))));
    world.pass(clock::Duration::from_millis(500));
    assert!(matches!(world.sockets[CLIENT].info(client), Err(Stop::Blocked(_))), "old");
    world.step();
    world.step();
    assert_eq!(world.sockets[CLIENT].info(client).expect("new").state, 1);
}
