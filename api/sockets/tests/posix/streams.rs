//! TCP.

use clock::Duration;
use domain::{CallError, CallKind, EventRecord, Handle};
use sockets::message::{MSG_DONTWAIT, MSG_MORE, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL};
use sockets::socket_type::{AF_INET, SOCK_NONBLOCK, SOCK_STREAM};
use sockets::{Errno, Received, SHUT_RD, SHUT_RDWR, SHUT_WR, Stop, Wait};

use crate::support::{CLIENT, PORT, SERVER, World, at, bytes, cookie};

const MS: Duration = Duration::from_millis(1);

fn failed<T>(errno: Errno) -> Result<T, Stop> {
    Err(Stop::Failed(errno))
}

#[test]
fn bytes_go_both_ways_and_an_end_is_an_end() {
    let mut world = World::new();
    let (server, client) = world.connected();
    world.send(CLIENT, client, b"question").expect("open");
    assert_eq!(world.read(SERVER, server, 100), Ok(b"question".to_vec()));
    world.send(SERVER, server, b"answer").expect("open");
    assert_eq!(world.read(CLIENT, client, 3), Ok(b"ans".to_vec()));
    assert_eq!(world.read(CLIENT, client, 100), Ok(b"wer".to_vec()));
    world.sockets[CLIENT].close(client).expect("open");
    assert_eq!(world.read(SERVER, server, 100), Ok(Vec::new()));
    // The way back is open until the peer says otherwise.
    world.send(SERVER, server, b"late").expect("open");
    world.pass(MS);
    assert_eq!(world.send(SERVER, server, b"x"), Err(Errno::EPIPE));
}

/// Bounds hold on both sides: what is not read fills the window, then the send buffer, then blocks.
#[test]
fn a_reader_that_stops_stops_the_writer_and_no_byte_is_lost() {
    let mut world = World::new();
    let (server, client) = world.connected();
    let all = bytes(1 << 20);
    let mut sent = 0;
    for _ in 0..2_000 {
        match world.sockets[CLIENT].send(client, &all[sent..], MSG_DONTWAIT, None) {
            Ok(count) => sent += count,
            Err(stop) => assert_eq!(stop, Stop::Failed(Errno::EAGAIN)),
        }
        world.step();
    }
    // The window of 64 KiB, and Linux's buffer.
    let most = (64 << 10) + 212_992;
    assert!(sent <= most && sent > most - 8_192, "{sent}");
    assert_eq!(world.sockets[CLIENT].unsent_bytes(client), Ok(212_992));
    let readable = world.sockets[SERVER].readable_bytes(server).expect("a stream");
    assert!(readable <= 64 << 10 && readable > 56 << 10, "{readable}");
    let mut read = Vec::new();
    while read.len() < all.len() {
        if sent < all.len() {
            sent +=
                world.sockets[CLIENT].send(client, &all[sent..], MSG_DONTWAIT, None).unwrap_or(0);
        }
        read.extend(world.read(SERVER, server, 10_000).expect("open"));
    }
    assert!(read == all, "in order");
}

#[test]
fn a_blocking_send_says_how_much_is_queued_and_goes_on() {
    let mut world = World::new();
    let (server, client) = world.connected();
    let all = bytes(300_000);
    let first = world.sockets[CLIENT].send(client, &all, 0, None);
    assert_eq!(first, Err(Stop::Blocked(Wait { until: None, done: 212_992 })));
    let mut left = &all[212_992..];
    let mut read = Vec::new();
    while read.len() < all.len() {
        match world.sockets[CLIENT].send(client, left, 0, None) {
            Ok(sent) => left = &left[sent..],
            Err(Stop::Blocked(wait)) => left = &left[wait.done..],
            Err(Stop::Failed(errno)) => panic!("{errno}"),
        }
        read.extend(world.read(SERVER, server, 50_000).expect("open"));
    }
    assert!(read == all);
}

#[test]
fn what_would_block_says_so_and_what_blocks_waits() {
    let mut world = World::new();
    let listener = world.listener(PORT);
    let mut buffer = [0; 8];
    assert!(matches!(world.sockets[SERVER].accept(listener, 0), Err(Stop::Blocked(_))));
    world.sockets[SERVER].set_nonblocking(listener, true).expect("open");
    assert_eq!(world.sockets[SERVER].accept(listener, 0), failed(Errno::EAGAIN));
    let (server, client) = {
        world.sockets[SERVER].set_nonblocking(listener, false).expect("open");
        world.connect_to(listener)
    };
    let sockets = &mut world.sockets[SERVER];
    assert!(matches!(sockets.receive(server, &mut buffer, 0), Err(Stop::Blocked(_))));
    assert_eq!(sockets.receive(server, &mut buffer, MSG_DONTWAIT), failed(Errno::EAGAIN));
    sockets.set_nonblocking(server, true).expect("open");
    assert_eq!(sockets.receive(server, &mut buffer, 0), failed(Errno::EAGAIN));
    assert_eq!(sockets.is_nonblocking(server), Ok(true));
    assert_eq!(sockets.receive(server, &mut buffer, MSG_OOB), failed(Errno::EINVAL));
    assert_eq!(sockets.send(server, b"x", MSG_OOB, None), failed(Errno::EOPNOTSUPP));
    assert_eq!(world.sockets[CLIENT].accept(client, 0), failed(Errno::EINVAL));
}

#[test]
fn a_connect_that_does_not_wait_goes_through_linuxs_answers() {
    let mut world = World::new();
    let listener = world.listener(PORT);
    let client = world.socket(CLIENT, SOCK_STREAM | SOCK_NONBLOCK);
    let connect = |world: &mut World| world.sockets[CLIENT].connect(client, at(SERVER, PORT));
    assert_eq!(connect(&mut world), failed(Errno::EINPROGRESS));
    assert_eq!(connect(&mut world), failed(Errno::EALREADY));
    assert_eq!(world.sockets[CLIENT].send(client, b"x", 0, None), failed(Errno::EAGAIN));
    world.pass(MS);
    assert_eq!(connect(&mut world), Ok(()));
    assert_eq!(connect(&mut world), failed(Errno::EISCONN));
    let (server, peer) = world.wait(SERVER, |sockets| sockets.accept(listener, 0)).expect("one");
    assert_eq!(world.sockets[CLIENT].local(client), Ok(peer));
    assert_eq!(world.sockets[CLIENT].peer(client), Ok(at(SERVER, PORT)));
    assert_eq!(world.sockets[SERVER].local(server), Ok(at(SERVER, PORT)));
    assert_eq!(world.sockets[SERVER].peer(server), Ok(peer));
}

#[test]
fn a_refused_connect_fails_once_and_may_be_tried_again() {
    let mut world = World::new();
    let client = world.socket(CLIENT, SOCK_STREAM);
    let connect =
        |world: &mut World| world.wait(CLIENT, |sockets| sockets.connect(client, at(SERVER, PORT)));
    assert_eq!(connect(&mut world), Err(Errno::ECONNREFUSED));
    let mut buffer = [0; 8];
    assert_eq!(world.sockets[CLIENT].receive(client, &mut buffer, 0), failed(Errno::ENOTCONN));
    assert_eq!(world.sockets[CLIENT].send(client, b"x", 0, None), failed(Errno::EPIPE));
    assert_eq!(world.sockets[CLIENT].peer(client), failed(Errno::ENOTCONN));
    let listener = world.listener(PORT);
    assert_eq!(connect(&mut world), Ok(()));
    world.sockets[SERVER].close(listener).expect("open");
}

#[test]
fn a_connect_from_a_bound_port_leaves_from_it() {
    let mut world = World::new();
    let listener = world.listener(PORT);
    let client = world.socket(CLIENT, SOCK_STREAM);
    world.sockets[CLIENT].bind(client, at(CLIENT, 4_321)).expect("free");
    world.wait(CLIENT, |sockets| sockets.connect(client, at(SERVER, PORT))).expect("accepted");
    let (_, peer) = world.wait(SERVER, |sockets| sockets.accept(listener, 0)).expect("one");
    assert_eq!(peer, at(CLIENT, 4_321));
}

#[test]
fn peeked_bytes_stay_and_cut_ones_go() {
    let mut world = World::new();
    let (server, client) = world.connected();
    world.send(CLIENT, client, b"0123456789").expect("open");
    world.pass(MS);
    let mut buffer = [0; 4];
    let sockets = &mut world.sockets[SERVER];
    let four = Ok(Received { bytes: 4, from: None, flags: 0 });
    assert_eq!(sockets.receive(server, &mut buffer, MSG_PEEK), four);
    assert_eq!((sockets.receive(server, &mut buffer, 0), &buffer), (four, b"0123"));
    // Of a stream it is taken without being copied.
    assert_eq!((sockets.receive(server, &mut buffer, MSG_TRUNC), &buffer), (four, b"0123"));
    assert_eq!(sockets.readable_bytes(server), Ok(2));
    assert_eq!(world.read(SERVER, server, 100), Ok(b"89".to_vec()));
}

#[test]
fn a_read_that_wants_all_waits_for_it_or_for_the_end() {
    let mut world = World::new();
    let (server, client) = world.connected();
    world.send(CLIENT, client, b"012").expect("open");
    world.pass(MS);
    let mut buffer = [0; 6];
    let part = world.sockets[SERVER].receive(server, &mut buffer, MSG_WAITALL);
    assert_eq!(part, Err(Stop::Blocked(Wait { until: None, done: 3 })));
    world.send(CLIENT, client, b"345").expect("open");
    // Behind the acknowledgment of what came before.
    world.pass(60 * MS);
    let rest = world.sockets[SERVER].receive(server, &mut buffer[3..], MSG_WAITALL);
    assert_eq!((rest.expect("the rest").bytes, &buffer), (3, b"012345"));
    world.send(CLIENT, client, b"6").expect("open");
    world.sockets[CLIENT].shutdown(client, SHUT_WR).expect("open");
    world.pass(MS);
    let last = world.sockets[SERVER].receive(server, &mut buffer, MSG_WAITALL);
    assert_eq!(last.expect("the last").bytes, 1);
}

/// Nagle's algorithm, and what sets it aside.
#[test]
fn short_segments_wait_for_acknowledgments_unless_they_may_not() {
    let sent = |no_delay: i32| {
        let mut world = World::new();
        let (server, client) = world.connected();
        world.sockets[CLIENT].set_option(client, 6, 1, no_delay).expect("served");
        world.pass(MS);
        let before = world.segments(CLIENT);
        for _ in 0..4 {
            world.sockets[CLIENT].send(client, b"abc", 0, None).expect("room");
            world.step();
        }
        let sent = world.segments(CLIENT) - before;
        world.pass(Duration::from_millis(100));
        assert_eq!(world.read(SERVER, server, 100).expect("open").len(), 12);
        sent
    };
    assert_eq!([sent(0), sent(1)], [1, 4]);
}

#[test]
fn what_more_follows_waits_for_200_ms_at_most() {
    let mut world = World::new();
    let (server, client) = world.connected();
    world.sockets[CLIENT].send(client, b"ab", MSG_MORE, None).expect("room");
    world.pass(150 * MS);
    assert_eq!(world.sockets[SERVER].readable_bytes(server), Ok(0));
    world.sockets[CLIENT].send(client, b"cd", 0, None).expect("room");
    world.pass(MS);
    assert_eq!(world.read(SERVER, server, 100), Ok(b"abcd".to_vec()));
    world.pass(50 * MS);
    world.sockets[CLIENT].send(client, b"ef", MSG_MORE, None).expect("room");
    world.pass(190 * MS);
    assert_eq!(world.sockets[SERVER].readable_bytes(server), Ok(0));
    world.pass(20 * MS);
    assert_eq!(world.read(SERVER, server, 100), Ok(b"ef".to_vec()));
    assert!(!world.wishes(CLIENT), "nothing waits any more");
}

#[test]
fn each_way_is_shut_down_by_itself() {
    let mut world = World::new();
    let (server, client) = world.connected();
    world.send(CLIENT, client, b"last").expect("open");
    world.sockets[CLIENT].shutdown(client, SHUT_WR).expect("open");
    assert_eq!(world.send(CLIENT, client, b"x"), Err(Errno::EPIPE));
    assert_eq!(world.read(SERVER, server, 100), Ok(b"last".to_vec()));
    assert_eq!(world.read(SERVER, server, 100), Ok(Vec::new()));
    world.pass(MS);
    assert_eq!(world.sockets[CLIENT].unsent_bytes(client), Ok(0), "acknowledged");
    world.send(SERVER, server, b"reply").expect("open");
    assert_eq!(world.read(CLIENT, client, 100), Ok(b"reply".to_vec()));
    world.sockets[CLIENT].shutdown(client, SHUT_RD).expect("open");
    assert_eq!(world.read(CLIENT, client, 100), Ok(Vec::new()));
    assert_eq!(world.sockets[CLIENT].shutdown(client, 3), failed(Errno::EINVAL));
    let fresh = world.socket(CLIENT, SOCK_STREAM);
    assert_eq!(world.sockets[CLIENT].shutdown(fresh, SHUT_RDWR), failed(Errno::ENOTCONN));
}

#[test]
fn a_close_with_unread_bytes_resets_and_one_without_does_not() {
    for unread in [false, true] {
        let mut world = World::new();
        let (server, client) = world.connected();
        world.send(CLIENT, client, b"read").expect("open");
        world.pass(MS);
        if !unread {
            world.read(SERVER, server, 100).expect("open");
        }
        world.sockets[SERVER].close(server).expect("open");
        world.pass(MS);
        let expected = if unread { Err(Errno::ECONNRESET) } else { Ok(Vec::new()) };
        assert_eq!(world.read(CLIENT, client, 100), expected);
        assert_eq!(world.resets(SERVER), u64::from(unread));
        // The error is reported once.
        assert_eq!(world.read(CLIENT, client, 100), Ok(Vec::new()));
    }
}

#[test]
fn what_was_queued_is_sent_after_close() {
    let mut world = World::new();
    let (server, client) = world.connected();
    let all = bytes(200_000);
    world.send(CLIENT, client, &all).expect("open");
    world.sockets[CLIENT].close(client).expect("open");
    assert_eq!(world.sockets[CLIENT].close(client), failed(Errno::EBADF));
    let mut read = Vec::new();
    while read.len() < all.len() {
        read.extend(world.read(SERVER, server, 100_000).expect("open"));
    }
    assert_eq!((read == all, world.read(SERVER, server, 9)), (true, Ok(Vec::new())));
}

#[test]
fn linger_resets_or_waits_as_long_as_it_says() {
    let mut world = World::new();
    let listener = world.listener(PORT);
    let (server, client) = world.connect_to(listener);
    world.sockets[CLIENT].set_linger(client, Some(Duration::ZERO)).expect("open");
    assert_eq!(world.sockets[CLIENT].linger(client), Ok(Some(Duration::ZERO)));
    world.sockets[CLIENT].close(client).expect("at once");
    world.pass(MS);
    assert_eq!(world.read(SERVER, server, 100), Err(Errno::ECONNRESET));
    let (_, client) = world.connect_to(listener);
    world.sockets[CLIENT].set_linger(client, Some(1_000 * MS)).expect("open");
    // Acknowledged: then it returns.
    world.send(CLIENT, client, b"some").expect("open");
    let begin = world.now;
    world.wait(CLIENT, |sockets| sockets.close(client)).expect("open");
    assert!(world.now.since(begin) < 100 * MS);
    // Never acknowledged: then the time ends it.
    let (_, client) = world.connect_to(listener);
    world.sockets[CLIENT].set_linger(client, Some(1_000 * MS)).expect("open");
    world.is_joined = false;
    world.send(CLIENT, client, b"some").expect("open");
    let begin = world.now;
    world.wait(CLIENT, |sockets| sockets.close(client)).expect("open");
    let waited = world.now.since(begin);
    assert!(waited >= 1_000 * MS && waited < 1_010 * MS, "{waited:?}");
}

#[test]
fn a_listener_that_closes_resets_what_it_has_not_accepted() {
    let mut world = World::new();
    let listener = world.listener(PORT);
    let client = world.socket(CLIENT, SOCK_STREAM);
    world.wait(CLIENT, |sockets| sockets.connect(client, at(SERVER, PORT))).expect("open");
    world.pass(MS);
    world.sockets[SERVER].close(listener).expect("open");
    world.pass(MS);
    assert_eq!(world.read(CLIENT, client, 100), Err(Errno::ECONNRESET));
    assert_eq!(world.connections(SERVER), 0);
    let other = world.socket(CLIENT, SOCK_STREAM);
    let refused = world.wait(CLIENT, |sockets| sockets.connect(other, at(SERVER, PORT)));
    assert_eq!(refused, Err(Errno::ECONNREFUSED));
    // The port is free again.
    world.listener(PORT);
}

/// As on Linux: it is accepted, and then says why it ended.
#[test]
fn a_connection_that_ended_is_still_accepted() {
    let mut world = World::new();
    let listener = world.listener(PORT);
    let client = world.socket(CLIENT, SOCK_STREAM);
    world.wait(CLIENT, |sockets| sockets.connect(client, at(SERVER, PORT))).expect("open");
    world.pass(MS);
    world.sockets[CLIENT].set_linger(client, Some(Duration::ZERO)).expect("open");
    world.sockets[CLIENT].close(client).expect("open");
    world.pass(MS);
    let (server, _) = world.sockets[SERVER].accept(listener, 0).expect("it waits");
    assert_eq!(world.read(SERVER, server, 100), Err(Errno::ECONNRESET));
    assert_eq!(world.sockets[SERVER].peer(server), failed(Errno::ENOTCONN));
}

#[test]
fn ports_conflict_as_they_do_on_linux() {
    let mut world = World::new();
    let listener = world.listener(PORT);
    let other = world.socket(SERVER, SOCK_STREAM);
    let bind =
        |world: &mut World, socket, port| world.sockets[SERVER].bind(socket, at(SERVER, port));
    assert_eq!(bind(&mut world, other, PORT), failed(Errno::EADDRINUSE));
    for socket in [listener, other] {
        world.sockets[SERVER].set_option(socket, 1, 2, 1).expect("SO_REUSEADDR");
    }
    assert_eq!(bind(&mut world, other, PORT), failed(Errno::EADDRINUSE), "it listens");
    assert_eq!(world.sockets[SERVER].bind(other, at(CLIENT, 5)), failed(Errno::EADDRNOTAVAIL));
    assert_eq!(bind(&mut world, other, 0), Ok(()));
    let port = world.sockets[SERVER].local(other).expect("bound").port;
    assert!((32_768..=60_999).contains(&port));
    assert_eq!(bind(&mut world, other, 7), failed(Errno::EINVAL));
    let v6 = "[::1]:5".parse().expect("an endpoint");
    assert_eq!(world.sockets[SERVER].bind(other, v6), failed(Errno::EAFNOSUPPORT));
    // The policy does not name this one.
    let last = world.socket(SERVER, SOCK_STREAM);
    assert_eq!(bind(&mut world, last, u16::MAX), Ok(()));
    assert_eq!(world.wait(SERVER, |sockets| sockets.listen(last, 5)), Err(Errno::EACCES));
}

#[test]
fn several_listen_on_one_port_where_all_say_so() {
    let mut world = World::new();
    let listeners = [(); 3].map(|()| {
        let listener = world.socket(SERVER, SOCK_STREAM);
        world.sockets[SERVER].set_option(listener, 1, 15, 1).expect("SO_REUSEPORT");
        world.sockets[SERVER].bind(listener, at(SERVER, PORT)).expect("shared");
        world.wait(SERVER, |sockets| sockets.listen(listener, 8)).expect("shared");
        listener
    });
    let accept = |world: &mut World| {
        let clients = [(); 8].map(|()| {
            let client = world.socket(CLIENT, SOCK_STREAM);
            world.wait(CLIENT, |sockets| sockets.connect(client, at(SERVER, PORT))).expect("open");
            client
        });
        world.pass(MS);
        for client in clients {
            world.sockets[CLIENT].close(client).expect("open");
        }
        listeners.map(|listener| {
            let mut accepted = 0;
            while let Ok((server, _)) = world.sockets[SERVER].accept(listener, 0) {
                world.sockets[SERVER].close(server).expect("open");
                accepted += 1;
            }
            accepted
        })
    };
    let counts = accept(&mut world);
    assert_eq!(counts.iter().sum::<i32>(), 8, "{counts:?}");
    assert!(counts.iter().filter(|count| **count > 0).count() >= 2, "{counts:?}");
    // The one that had the port opened goes: the others keep it.
    world.sockets[SERVER].close(listeners[0]).expect("open");
    let counts = accept(&mut world);
    assert_eq!((counts[0], counts.iter().sum::<i32>()), (0, 8), "{counts:?}");
    // The last one takes the port along.
    for listener in &listeners[1..] {
        world.sockets[SERVER].close(*listener).expect("open");
    }
    let client = world.socket(CLIENT, SOCK_STREAM);
    let refused = world.wait(CLIENT, |sockets| sockets.connect(client, at(SERVER, PORT)));
    assert_eq!(refused, Err(Errno::ECONNREFUSED));
}

#[test]
fn descriptors_are_bounded_and_a_connection_waits_until_there_is_one() {
    let mut world = World::new();
    let listener = world.listener(PORT);
    let client = world.socket(CLIENT, SOCK_STREAM);
    world.wait(CLIENT, |sockets| sockets.connect(client, at(SERVER, PORT))).expect("open");
    let others: Vec<_> = (1..16).map(|_| world.socket(SERVER, SOCK_STREAM)).collect();
    assert_eq!(world.sockets[SERVER].socket(AF_INET, SOCK_STREAM, 0), failed(Errno::EMFILE));
    world.pass(MS);
    assert_eq!(world.sockets[SERVER].accept(listener, 0), failed(Errno::EMFILE));
    world.sockets[SERVER].close(others[4]).expect("open");
    let (server, _) = world.sockets[SERVER].accept(listener, SOCK_NONBLOCK).expect("it waited");
    assert_eq!(server, others[4], "the lowest number");
    assert_eq!(world.sockets[SERVER].is_nonblocking(server), Ok(true));
}

#[test]
fn a_reset_is_reported_behind_the_bytes_that_came_before() {
    let mut world = World::new();
    let (server, client) = world.connected();
    world.send(CLIENT, client, b"before").expect("open");
    world.pass(MS);
    world.sockets[CLIENT].set_linger(client, Some(Duration::ZERO)).expect("open");
    world.sockets[CLIENT].close(client).expect("open");
    world.pass(MS);
    assert_eq!(world.read(SERVER, server, 100), Ok(b"before".to_vec()));
    assert_eq!(world.read(SERVER, server, 100), Err(Errno::ECONNRESET));
    assert_eq!(world.read(SERVER, server, 100), Ok(Vec::new()));
    assert_eq!(world.send(SERVER, server, b"x"), Err(Errno::EPIPE));
}

#[test]
fn a_peer_that_is_gone_times_out() {
    let mut world = World::with(|config| config.user_timeout = Some(Duration::from_secs(2)));
    let (_, client) = world.connected();
    world.is_joined = false;
    world.send(CLIENT, client, b"lost").expect("open");
    assert_eq!(world.read(CLIENT, client, 100), Err(Errno::ETIMEDOUT));
}

/// The peer's stack acknowledges and answers probes for ever; its application reads nothing.
#[test]
fn a_closed_connection_whose_peer_reads_nothing_ends() {
    let mut world = World::new();
    let (_, client) = world.connected();
    world.send(CLIENT, client, &bytes(200_000)).expect("open");
    world.sockets[CLIENT].close(client).expect("open");
    world.skip(90_000 * MS);
    assert_eq!(world.connections(CLIENT), 1);
    world.skip(20_000 * MS);
    assert_eq!(world.connections(CLIENT), 0);
    assert!(!world.wishes(CLIENT), "nothing waits any more");
}

#[test]
fn the_first_error_is_the_one_that_is_reported() {
    let mut world = World::new();
    let (_, client) = world.connected();
    let (call, error) = (CallKind::Sendv, CallError::Trimmed { accepted: 0 });
    let (handle, cookie) = (Handle::from_bits(0), cookie(0));
    world.deliver(CLIENT, EventRecord::Failed { call, handle, cookie, error });
    let dead = EventRecord::Dead { handle, cookie, reason: domain::DeadReason::Aborted };
    world.deliver(CLIENT, dead);
    let closed = EventRecord::Dead { handle, cookie, reason: domain::DeadReason::Closed };
    world.deliver(CLIENT, closed);
    assert_eq!(world.read(CLIENT, client, 1), Err(Errno::ENOBUFS));
    assert_eq!(world.read(CLIENT, client, 1), Ok(Vec::new()));
}

#[test]
fn an_attempt_to_connect_is_given_up_by_shutdown_and_by_close() {
    for steps in 0..3 {
        let mut world = World::new();
        let listener = world.listener(PORT);
        let client = world.socket(CLIENT, SOCK_STREAM | SOCK_NONBLOCK);
        let connect = |world: &mut World| world.sockets[CLIENT].connect(client, at(SERVER, PORT));
        assert_eq!(connect(&mut world), failed(Errno::EINPROGRESS));
        (0..steps).for_each(|_| world.step());
        if world.sockets[CLIENT].shutdown(client, SHUT_RD) != Ok(()) {
            panic!("Linux aborts the attempt");
        }
        assert_eq!(world.sockets[CLIENT].shutdown(client, SHUT_RD), failed(Errno::ENOTCONN));
        assert_eq!(connect(&mut world), failed(Errno::ECONNRESET));
        world.pass(MS);
        assert_eq!(world.connections(CLIENT), 0, "after {steps} steps");
        assert_eq!(connect(&mut world), failed(Errno::EINPROGRESS));
        (0..steps).for_each(|_| world.step());
        world.sockets[CLIENT].set_linger(client, Some(Duration::ZERO)).expect("open");
        world.sockets[CLIENT].close(client).expect("open");
        world.pass(MS);
        assert_eq!(world.connections(CLIENT), 0, "after {steps} steps");
        world.sockets[SERVER].close(listener).expect("open");
    }
}

#[test]
fn a_descriptor_that_does_not_block_lingers_too() {
    let mut world = World::new();
    let (_, client) = world.connected();
    world.sockets[CLIENT].set_nonblocking(client, true).expect("open");
    world.sockets[CLIENT].set_linger(client, Some(1_000 * MS)).expect("open");
    world.send(CLIENT, client, b"some").expect("open");
    assert!(matches!(world.sockets[CLIENT].close(client), Err(Stop::Blocked(_))));
    world.wait(CLIENT, |sockets| sockets.close(client)).expect("open");
}

#[test]
fn a_cork_holds_what_is_queued_for_200_ms_at_most() {
    let mut world = World::new();
    let (server, client) = world.connected();
    // The second waits for the acknowledgment of the first, which the server delays.
    for text in [b"a", b"b"] {
        world.sockets[CLIENT].send(client, text, 0, None).expect("room");
        world.step();
    }
    world.sockets[CLIENT].set_option(client, 6, 3, 1).expect("TCP_CORK");
    world.pass(150 * MS);
    assert_eq!(world.sockets[SERVER].readable_bytes(server), Ok(1));
    world.pass(60 * MS);
    assert_eq!(world.sockets[SERVER].readable_bytes(server), Ok(2));
}
