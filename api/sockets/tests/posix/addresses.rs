//! Hosts with two addresses each.

use clock::Duration;
use sockets::socket_type::{SOCK_DGRAM, SOCK_STREAM};
use sockets::{Errno, Stop};
use wire::{Endpoint, Ipv4Addr, Prefix};

use crate::support::{CLIENT, HOSTS, PORT, SERVER, World, at};

const MS: Duration = Duration::from_millis(1);
/// The second address of each host.
const SECONDS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 11), Ipv4Addr::new(10, 0, 0, 12)];

fn world() -> World {
    World::with(|config| {
        let is_server = config.is_own(HOSTS[SERVER].into());
        let second = SECONDS[if is_server { SERVER } else { CLIENT }];
        config.addresses.push(Prefix::new(second.into(), 24));
    })
}

fn second(host: usize, port: u16) -> Endpoint {
    Endpoint::new(SECONDS[host], port)
}

fn anywhere(port: u16) -> Endpoint {
    Endpoint::new(Ipv4Addr::UNSPECIFIED, port)
}

fn listener(world: &mut World, local: Endpoint) -> i32 {
    let listener = world.socket(SERVER, SOCK_STREAM);
    world.sockets[SERVER].bind(listener, local).expect("free");
    world.wait(SERVER, |sockets| sockets.listen(listener, 8)).expect("open");
    listener
}

fn datagrams(world: &mut World, host: usize, local: Endpoint) -> i32 {
    let socket = world.socket(host, SOCK_DGRAM);
    world.wait(host, |sockets| sockets.bind(socket, local)).expect("free");
    socket
}

/// A connection of the client's from an end that it is bound to, if any.
fn connect(world: &mut World, from: Option<Endpoint>, to: Endpoint) -> i32 {
    let client = world.socket(CLIENT, SOCK_STREAM);
    if let Some(from) = from {
        world.sockets[CLIENT].bind(client, from).expect("free");
    }
    world.wait(CLIENT, |sockets| sockets.connect(client, to)).expect("a listener");
    client
}

#[test]
fn a_connection_has_the_ends_that_were_named() {
    let mut world = world();
    let listener = listener(&mut world, anywhere(PORT));
    let froms = [None, Some(anywhere(4_321)), Some(second(CLIENT, 4_322)), Some(second(CLIENT, 0))];
    for from in froms {
        for to in [at(SERVER, PORT), second(SERVER, PORT)] {
            let client = connect(&mut world, from, to);
            let accept = world.wait(SERVER, |sockets| sockets.accept(listener, 0));
            let (server, peer) = accept.expect("one");
            let is_named = from.is_some_and(|from| from.addr == SECONDS[CLIENT].into());
            let own = if is_named { SECONDS[CLIENT] } else { HOSTS[CLIENT] };
            assert_eq!(peer.addr, own.into(), "{from:?} {to:?}");
            assert!(from.is_none_or(|from| from.port == 0 || from.port == peer.port));
            assert_eq!(world.sockets[CLIENT].local(client), Ok(peer));
            assert_eq!(world.sockets[SERVER].local(server), Ok(to));
            world.sockets[CLIENT].close(client).expect("open");
            world.pass(MS);
            world.sockets[SERVER].close(server).expect("open");
            world.pass(1_500 * MS);
        }
    }
}

/// The port of a connection is the socket's, as on Linux.
#[test]
fn the_port_that_the_dataplane_chose_is_taken() {
    let mut world = world();
    listener(&mut world, anywhere(PORT));
    let client = connect(&mut world, None, at(SERVER, PORT));
    let local = world.sockets[CLIENT].local(client).expect("connected");
    let other = world.socket(CLIENT, SOCK_STREAM);
    let bind = |world: &mut World, to| world.sockets[CLIENT].bind(other, to);
    assert_eq!(bind(&mut world, local), Err(Stop::Failed(Errno::EADDRINUSE)));
    assert_eq!(bind(&mut world, anywhere(local.port)), Err(Stop::Failed(Errno::EADDRINUSE)));
    assert_eq!(bind(&mut world, second(CLIENT, local.port)), Ok(()));
}

#[test]
fn a_listener_takes_what_comes_to_its_address() {
    let mut world = world();
    let first = listener(&mut world, at(SERVER, PORT));
    // No socket listens there: the dataplane, which has the port open, lets the client in, and the sockets do not.
    let refused = connect(&mut world, None, second(SERVER, PORT));
    world.pass(MS);
    assert_eq!(world.read(CLIENT, refused, 1), Err(Errno::ECONNRESET));
    let other = listener(&mut world, second(SERVER, PORT));
    for (listener, to) in [(first, at(SERVER, PORT)), (other, second(SERVER, PORT))] {
        let client = connect(&mut world, None, to);
        let (_, peer) = world.wait(SERVER, |sockets| sockets.accept(listener, 0)).expect("one");
        assert_eq!(world.sockets[CLIENT].local(client), Ok(peer));
    }
}

/// Linux's order: a listener of the address goes before one of all addresses.
#[test]
fn of_those_that_share_a_port_the_one_that_names_the_address_takes() {
    let mut world = world();
    let [wide, narrow] = [anywhere(PORT), second(SERVER, PORT)].map(|local| {
        let socket = world.socket(SERVER, SOCK_STREAM);
        world.sockets[SERVER].set_option(socket, 1, 15, 1).expect("SO_REUSEPORT");
        world.sockets[SERVER].bind(socket, local).expect("shared");
        world.wait(SERVER, |sockets| sockets.listen(socket, 8)).expect("shared");
        socket
    });
    for (listener, to) in [(wide, at(SERVER, PORT)), (narrow, second(SERVER, PORT))].repeat(4) {
        connect(&mut world, None, to);
        world.wait(SERVER, |sockets| sockets.accept(listener, 0)).expect("one");
    }
}

#[test]
fn ends_that_overlap_are_in_each_others_way() {
    let mut world = world();
    for kind in [SOCK_STREAM, SOCK_DGRAM] {
        let first = world.socket(SERVER, kind);
        let bind =
            |world: &mut World, socket, to| world.wait(SERVER, |sockets| sockets.bind(socket, to));
        let strange = Endpoint::new(Ipv4Addr::new(10, 0, 0, 99), 7);
        assert_eq!(bind(&mut world, first, strange), Err(Errno::EADDRNOTAVAIL));
        assert_eq!(bind(&mut world, first, at(CLIENT, 7)), Err(Errno::EADDRNOTAVAIL));
        assert_eq!(bind(&mut world, first, second(SERVER, 7)), Ok(()));
        let other = world.socket(SERVER, kind);
        for taken in [second(SERVER, 7), anywhere(7)] {
            assert_eq!(bind(&mut world, other, taken), Err(Errno::EADDRINUSE));
        }
        assert_eq!(bind(&mut world, other, at(SERVER, 7)), Ok(()));
    }
}

/// RFC 1122 §4.1.3.5.
#[test]
fn a_datagram_is_answered_from_the_address_to_which_it_came() {
    let mut world = world();
    let server = datagrams(&mut world, SERVER, anywhere(53));
    let [client, other] = [9, 10].map(|port| world.datagrams(CLIENT, port));
    let mut buffer = [0; 8];
    for to in [second(SERVER, 53), at(SERVER, 53)] {
        world.sockets[CLIENT].send(client, b"ask", 0, Some(to)).expect("room");
        world.pass(MS);
        let from = world.sockets[SERVER].receive(server, &mut buffer, 0).expect("it came").from;
        for (socket, port, source) in [(client, 9, to), (other, 10, at(SERVER, 53))] {
            let peer = at(CLIENT, port);
            assert!(port != 9 || from == Some(peer));
            world.sockets[SERVER].send(server, b"tell", 0, Some(peer)).expect("room");
            world.pass(MS);
            let received = world.sockets[CLIENT].receive(socket, &mut buffer, 0).expect("it came");
            assert_eq!(received.from, Some(source));
        }
    }
}

#[test]
fn a_datagram_goes_to_the_socket_of_its_address_and_leaves_from_there() {
    let mut world = world();
    let client = world.datagrams(CLIENT, 9);
    let mut buffer = [0; 8];
    let ends = [at(SERVER, 53), second(SERVER, 53)];
    let servers = ends.map(|end| datagrams(&mut world, SERVER, end));
    for (server, end) in servers.into_iter().zip(ends) {
        world.sockets[SERVER].send(server, b"unasked", 0, Some(at(CLIENT, 9))).expect("room");
        world.pass(MS);
        let received = world.sockets[CLIENT].receive(client, &mut buffer, 0).expect("it came");
        assert_eq!(received.from, Some(end));
        world.sockets[CLIENT].send(client, b"ask", 0, Some(end)).expect("room");
        world.pass(MS);
        let counts = servers.map(|socket| world.sockets[SERVER].readable_bytes(socket));
        assert_eq!(counts, servers.map(|socket| Ok(if socket == server { 3 } else { 0 })));
        world.sockets[SERVER].receive(server, &mut buffer, 0).expect("it came");
    }
    // Nor does one take what comes for another that is gone.
    world.sockets[SERVER].close(servers[1]).expect("open");
    world.sockets[CLIENT].send(client, b"ask", 0, Some(ends[1])).expect("room");
    world.pass(MS);
    assert_eq!(world.sockets[SERVER].readable_bytes(servers[0]), Ok(0));
}
