//! Ports: which sockets receive on them, and what becomes of connections that no socket accepts.

use clock::Duration;
use sockets::socket_type::{SOCK_NONBLOCK, SOCK_STREAM};
use sockets::{Errno, SHUT_RD, Stop};

use crate::support::{CLIENT, PORT, SERVER, World, at};

const MS: Duration = Duration::from_millis(1);

/// A socket of the server, bound to a port that others may share.
fn shared(world: &mut World, port: u16) -> i32 {
    let socket = world.socket(SERVER, SOCK_STREAM);
    world.sockets[SERVER].set_option(socket, 1, 15, 1).expect("SO_REUSEPORT");
    world.sockets[SERVER].bind(socket, at(SERVER, port)).expect("shared");
    socket
}

fn connect(world: &mut World) -> (i32, Result<(), Errno>) {
    let client = world.socket(CLIENT, SOCK_STREAM);
    (client, world.wait(CLIENT, |sockets| sockets.connect(client, at(SERVER, PORT))))
}

#[test]
fn a_listener_that_closes_beside_another_resets_its_own_connections() {
    let mut world = World::new();
    let listeners = [(); 2].map(|()| shared(&mut world, PORT));
    for listener in listeners {
        world.wait(SERVER, |sockets| sockets.listen(listener, 8)).expect("shared");
    }
    let clients = [(); 8].map(|()| connect(&mut world).0);
    world.pass(MS);
    world.sockets[SERVER].close(listeners[0]).expect("open");
    world.pass(MS);
    let mut accepted = 0;
    while let Ok((server, _)) = world.sockets[SERVER].accept(listeners[1], SOCK_NONBLOCK) {
        world.sockets[SERVER].close(server).expect("open");
        accepted += 1;
    }
    world.pass(MS);
    let reads = clients.map(|client| world.read(CLIENT, client, 1));
    let reset = reads.iter().filter(|read| **read == Err(Errno::ECONNRESET)).count();
    assert_eq!(reset + accepted, 8);
    assert!(reset > 0 && accepted > 0, "{reset}");
}

#[test]
fn a_configured_port_is_closed_until_a_socket_listens() {
    let mut world = World::with(|config| config.tcp_listen = vec![PORT]);
    world.step();
    assert_eq!(connect(&mut world).1, Err(Errno::ECONNREFUSED));
    let listener = world.listener(PORT);
    world.connect_to(listener);
    let mut early = World::with(|config| config.tcp_listen = vec![PORT]);
    let listener = early.listener(PORT);
    early.connect_to(listener);
}

#[test]
fn a_connection_without_a_listener_is_reset() {
    let mut world = World::with_unknown_port(PORT);
    let (client, outcome) = connect(&mut world);
    assert_eq!(outcome, Ok(()));
    world.pass(MS);
    assert_eq!(world.connections(SERVER), 0);
    world.sockets[CLIENT].close(client).expect("open");
}

/// The dataplane has a port open of which these sockets know nothing.
#[test]
fn a_socket_that_closes_before_the_answer_leaves_the_port_of_another_open() {
    let mut world = World::with_unknown_port(PORT);
    let listener = world.socket(SERVER, SOCK_STREAM);
    world.sockets[SERVER].bind(listener, at(SERVER, PORT)).expect("free");
    assert!(matches!(world.sockets[SERVER].listen(listener, 5), Err(Stop::Blocked(_))));
    world.step();
    world.sockets[SERVER].close(listener).expect("open");
    world.pass(MS);
    assert_eq!(connect(&mut world).1, Ok(()));
}

#[test]
fn a_port_that_was_asked_for_goes_to_the_next_that_shares_it() {
    for steps in 0..3 {
        let mut world = World::new();
        let [first, second] = [(); 2].map(|()| shared(&mut world, PORT));
        let asked = [first, second].map(|socket| world.sockets[SERVER].listen(socket, 5).is_ok());
        assert_eq!(asked, [false, false], "the dataplane has not answered");
        (0..steps).for_each(|_| world.step());
        world.sockets[SERVER].close(first).expect("open");
        world.wait(SERVER, |sockets| sockets.listen(second, 5)).expect("shared");
        world.connect_to(second);
    }
}

#[test]
fn all_that_share_a_port_hear_of_a_refusal() {
    let mut world = World::new();
    let sockets = [(); 2].map(|()| shared(&mut world, u16::MAX));
    for socket in sockets {
        assert!(matches!(world.sockets[SERVER].listen(socket, 5), Err(Stop::Blocked(_))));
    }
    world.pass(MS);
    for socket in sockets {
        assert_eq!(world.sockets[SERVER].listen(socket, 5), Err(Stop::Failed(Errno::EACCES)));
    }
}

#[test]
fn a_late_refusal_leaves_a_connection_alone() {
    let mut world = World::new();
    let listener = world.listener(PORT);
    let client = world.socket(CLIENT, SOCK_STREAM);
    world.sockets[CLIENT].bind(client, at(CLIENT, u16::MAX)).expect("free");
    assert!(matches!(world.sockets[CLIENT].listen(client, 5), Err(Stop::Blocked(_))));
    world.step();
    world.sockets[CLIENT].shutdown(client, SHUT_RD).expect("it listens");
    world.wait(CLIENT, |sockets| sockets.connect(client, at(SERVER, PORT))).expect("accepted");
    world.wait(SERVER, |sockets| sockets.accept(listener, 0)).expect("one");
}
