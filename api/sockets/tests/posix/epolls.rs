//! Readiness: `poll` and `epoll`.

use clock::{Duration, Instant};
use sockets::events::{ERR, HUP, IN, NVAL, OUT, RDHUP, RDNORM, WRNORM};
use sockets::socket_type::{SOCK_NONBLOCK, SOCK_STREAM};
use sockets::{
    EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT, EpollEvent, EpollOperation, Errno, PollFd, SHUT_RDWR,
    SHUT_WR, Stop,
};

use crate::support::{CLIENT, PORT, SERVER, World, at, bytes};

const MS: Duration = Duration::from_millis(1);
const READ: u32 = IN | RDNORM;
const WRITE: u32 = OUT | WRNORM;

#[test]
fn a_connection_is_ready_as_it_is_on_linux() {
    let mut world = World::new();
    let listener = world.listener(PORT);
    assert_eq!(world.ready(SERVER, listener), 0);
    let client = world.socket(CLIENT, SOCK_STREAM | SOCK_NONBLOCK);
    assert_eq!(world.ready(CLIENT, client), WRITE | HUP);
    let _ = world.sockets[CLIENT].connect(client, at(SERVER, PORT));
    assert_eq!(world.ready(CLIENT, client), 0);
    world.pass(MS);
    assert_eq!([world.ready(CLIENT, client), world.ready(SERVER, listener)], [WRITE, READ]);
    let (server, _) = world.sockets[SERVER].accept(listener, 0).expect("one");
    assert_eq!([world.ready(SERVER, server), world.ready(SERVER, listener)], [WRITE, 0]);
    world.send(CLIENT, client, b"x").expect("open");
    world.pass(MS);
    assert_eq!(world.ready(SERVER, server), READ | WRITE);
    world.read(SERVER, server, 9).expect("open");
    assert_eq!(world.ready(SERVER, server), WRITE);
    world.sockets[CLIENT].shutdown(client, SHUT_WR).expect("open");
    world.pass(MS);
    assert_eq!(world.ready(SERVER, server), READ | WRITE | RDHUP);
    assert_eq!(world.ready(CLIENT, client), WRITE);
    world.sockets[SERVER].shutdown(server, SHUT_WR).expect("open");
    world.pass(MS);
    assert_eq!(world.ready(SERVER, server), READ | WRITE | RDHUP | HUP);
    assert_eq!(world.ready(CLIENT, client), READ | WRITE | RDHUP | HUP);
}

#[test]
fn both_ways_shut_down_here_are_a_hang_up() {
    let mut world = World::new();
    let (_, client) = world.connected();
    world.sockets[CLIENT].shutdown(client, SHUT_RDWR).expect("open");
    assert_eq!(world.ready(CLIENT, client), READ | WRITE | RDHUP | HUP);
}

#[test]
fn errors_are_ready_until_they_are_reported() {
    let mut world = World::new();
    let (server, client) = world.connected();
    world.sockets[CLIENT].set_linger(client, Some(Duration::ZERO)).expect("open");
    world.sockets[CLIENT].close(client).expect("open");
    world.pass(MS);
    let dead = READ | WRITE | RDHUP | HUP;
    assert_eq!(world.ready(SERVER, server), dead | ERR);
    assert_eq!(world.sockets[SERVER].option(server, 1, 4), Ok(104), "ECONNRESET");
    assert_eq!(world.sockets[SERVER].option(server, 1, 4), Ok(0));
    assert_eq!(world.ready(SERVER, server), dead);
    let refused = world.socket(CLIENT, SOCK_STREAM | SOCK_NONBLOCK);
    let _ = world.sockets[CLIENT].connect(refused, at(SERVER, 7));
    world.pass(MS);
    assert_eq!(world.ready(CLIENT, refused), dead | ERR);
}

#[test]
fn a_writer_is_ready_again_when_a_third_is_free() {
    let mut world = World::new();
    let (server, client) = world.connected();
    world.sockets[CLIENT].set_nonblocking(client, true).expect("open");
    while world.sockets[CLIENT].send(client, &bytes(50_000), 0, None).is_ok() {
        world.pass(MS);
    }
    assert_eq!(world.ready(CLIENT, client), 0);
    let mut read = 0;
    while world.ready(CLIENT, client) == 0 {
        read += world.read(SERVER, server, 1_000).expect("open").len();
        world.pass(MS);
    }
    // Half of what Linux's buffer has queued is a third of it, and the window has to open first.
    assert!((60_000..160_000).contains(&read), "{read}");
}

#[test]
fn poll_waits_until_its_time_and_names_what_is_none() {
    let mut world = World::new();
    let (server, client) = world.connected();
    let until = world.now + 5 * MS;
    let mut polled = [PollFd { descriptor: server, events: IN, found: 0 }];
    let found = world.wait(SERVER, |sockets| sockets.poll(&mut polled, Some(until)));
    assert_eq!((found, polled[0].found), (Ok(0), 0));
    assert!(world.now >= until && world.now < until + MS);
    world.send(CLIENT, client, b"x").expect("open");
    let found = world.wait(SERVER, |sockets| sockets.poll(&mut polled, None));
    assert_eq!((found, polled[0].found), (Ok(1), IN));
    let mut odd = [-1, 9].map(|descriptor| PollFd { descriptor, events: IN, found: 0 });
    assert_eq!(world.sockets[SERVER].poll(&mut odd, Some(Instant::ZERO)), Ok(1));
    assert_eq!(odd.map(|one| one.found), [0, NVAL]);
}

/// What a set reports at once.
fn reported(world: &mut World, set: i32) -> Vec<EpollEvent> {
    let mut found = [EpollEvent::default(); 8];
    let count = world.sockets[SERVER].epoll_wait(set, &mut found, Some(Instant::ZERO));
    found[..count.expect("no waiting")].to_vec()
}

fn control(
    world: &mut World,
    set: i32,
    operation: EpollOperation,
    descriptor: i32,
    events: u32,
) -> Result<(), Stop> {
    let wanted = EpollEvent { events, data: 7 };
    world.sockets[SERVER].epoll_control(set, operation, descriptor, wanted)
}

#[test]
fn level_edge_and_one_shot_report_as_often_as_they_should() {
    let mut world = World::new();
    let (server, client) = world.connected();
    let set = world.sockets[SERVER].epoll_create().expect("room");
    let say = |world: &mut World| {
        world.send(CLIENT, client, b"x").expect("open");
        world.pass(60 * MS);
    };
    let once = vec![EpollEvent { events: IN, data: 7 }];
    control(&mut world, set, EpollOperation::Add, server, IN).expect("new");
    assert_eq!(reported(&mut world, set), []);
    say(&mut world);
    for _ in 0..2 {
        assert_eq!(reported(&mut world, set), once, "level");
    }
    control(&mut world, set, EpollOperation::Change, server, IN | EPOLLET).expect("watched");
    assert_eq!(reported(&mut world, set), once, "asked for anew");
    assert_eq!(reported(&mut world, set), []);
    say(&mut world);
    assert_eq!([reported(&mut world, set), reported(&mut world, set)], [once.clone(), vec![]]);
    let one_shot = IN | EPOLLONESHOT;
    control(&mut world, set, EpollOperation::Change, server, one_shot).expect("watched");
    assert_eq!(reported(&mut world, set), once);
    say(&mut world);
    assert_eq!(reported(&mut world, set), []);
    control(&mut world, set, EpollOperation::Change, server, one_shot).expect("watched");
    assert_eq!(reported(&mut world, set), once);
    control(&mut world, set, EpollOperation::Remove, server, 0).expect("watched");
    say(&mut world);
    assert_eq!(reported(&mut world, set), []);
}

#[test]
fn own_calls_and_acknowledgments_are_no_edge_of_what_can_be_read() {
    let mut world = World::new();
    let (server, client) = world.connected();
    let set = world.sockets[SERVER].epoll_create().expect("room");
    control(&mut world, set, EpollOperation::Add, server, IN | EPOLLET).expect("new");
    world.send(CLIENT, client, b"some").expect("open");
    world.pass(MS);
    assert_eq!(reported(&mut world, set).len(), 1);
    assert_eq!(world.read(SERVER, server, 1), Ok(b"s".to_vec()));
    world.sockets[SERVER].set_option(server, 6, 1, 1).expect("TCP_NODELAY");
    world.send(SERVER, server, b"reply").expect("open");
    world.pass(60 * MS);
    assert_eq!(reported(&mut world, set), []);
    // The end of the stream is one, though there are bytes to be read.
    world.sockets[CLIENT].shutdown(client, SHUT_WR).expect("open");
    world.pass(MS);
    assert_eq!(reported(&mut world, set).len(), 1);
}

#[test]
fn a_wait_ends_when_something_comes_and_a_closed_socket_is_forgotten() {
    let mut world = World::new();
    let (server, client) = world.connected();
    let set = world.sockets[SERVER].epoll_create().expect("room");
    control(&mut world, set, EpollOperation::Add, server, IN).expect("new");
    world.sockets[CLIENT].send(client, b"x", 0, None).expect("room");
    let mut found = [EpollEvent::default()];
    let count = world.wait(SERVER, |sockets| sockets.epoll_wait(set, &mut found, None));
    assert_eq!((count, found[0].events), (Ok(1), IN));
    assert_eq!(world.ready(SERVER, set), READ, "a set can be polled");
    world.sockets[SERVER].close(server).expect("open");
    assert_eq!(reported(&mut world, set), []);
    assert_eq!(world.ready(SERVER, set), 0);
    // Nor does a new one that has its place take it over.
    let listener = world.listener(PORT + 1);
    control(&mut world, set, EpollOperation::Add, listener, IN).expect("new");
    world.sockets[SERVER].close(listener).expect("open");
    let next = world.listener(PORT + 1);
    assert_eq!((next, control(&mut world, set, EpollOperation::Add, next, IN)), (listener, Ok(())));
}

#[test]
fn of_exclusive_sets_one_is_woken() {
    let mut world = World::new();
    let listener = world.listener(PORT);
    let sets = [(); 3].map(|()| world.sockets[SERVER].epoll_create().expect("room"));
    for (set, events) in sets.into_iter().zip([IN | EPOLLEXCLUSIVE, IN | EPOLLEXCLUSIVE, IN]) {
        control(&mut world, set, EpollOperation::Add, listener, events | EPOLLET).expect("new");
        assert_eq!(reported(&mut world, set), []);
    }
    let client = world.socket(CLIENT, SOCK_STREAM);
    world.wait(CLIENT, |sockets| sockets.connect(client, at(SERVER, PORT))).expect("open");
    world.pass(MS);
    let woken = sets.map(|set| reported(&mut world, set).len());
    assert_eq!(woken, [1, 0, 1]);
}

#[test]
fn what_makes_no_sense_is_refused_as_on_linux() {
    let mut world = World::new();
    let listener = world.listener(PORT);
    let set = world.sockets[SERVER].epoll_create().expect("room");
    use EpollOperation::{Add, Change, Remove};
    let refused = |errno| Err(Stop::Failed(errno));
    for (operation, descriptor, events, errno) in [
        (Add, 12, IN, Errno::EBADF),
        (Add, set, IN, Errno::EINVAL),
        (Change, listener, IN, Errno::ENOENT),
        (Remove, listener, IN, Errno::ENOENT),
        (Add, listener, IN | EPOLLEXCLUSIVE | EPOLLONESHOT, Errno::EINVAL),
    ] {
        assert_eq!(control(&mut world, set, operation, descriptor, events), refused(errno));
    }
    assert_eq!(control(&mut world, listener, Add, set, IN), refused(Errno::EINVAL));
    control(&mut world, set, Add, listener, IN | EPOLLEXCLUSIVE).expect("new");
    assert_eq!(control(&mut world, set, Add, listener, IN), refused(Errno::EEXIST));
    assert_eq!(control(&mut world, set, Change, listener, IN), refused(Errno::EINVAL));
    let none = world.sockets[SERVER].epoll_wait(set, &mut [], None);
    assert_eq!(none, Err(Stop::Failed(Errno::EINVAL)));
    let mut buffer = [0; 1];
    let read = world.sockets[SERVER].receive(set, &mut buffer, 0);
    assert_eq!(read, Err(Stop::Failed(Errno::EINVAL)));
}
