//! The same service linked in and in the `process` domain, over shared memory, with a client that checks every
//! byte: under each scheduler and placement.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::Address;

use mem::{HugePages, Region};
use process::{Geometry, Hello, Host, Placement, Waiting};
use runtime::{RuntimeConfig, Scheduler};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tailplane::{
    Calls, Cookie, Event, Events, Flow, Instant, MacAddr, Opened, Output, Protocol, Server,
    Service, SharedSlots, application,
};

use crate::common::{self, CLIENT, Ends, SERVER, wire};

const CONNECTIONS: usize = 20;
const MESSAGES: usize = 200;

/// Returns every byte, each larger by one.
struct Successor;

impl Protocol for Successor {
    type Connection = ();
    fn open(&mut self, _: Instant, _: Opened) -> Option<()> {
        Some(())
    }
    fn receive(
        &mut self,
        _: Instant,
        (): &mut (),
        data: &[u8],
        output: &mut Output<'_, '_>,
    ) -> Flow {
        let reply: Vec<u8> = data.iter().map(|byte| byte.wrapping_add(1)).collect();
        output.put(&reply);
        Flow::Continue
    }
}

/// Sends messages of many lengths on some connections, one after the other, checks the answers, and closes.
struct Client {
    stop: Arc<AtomicBool>,
    begun: usize,
    ended: usize,
    lines: Vec<Line>,
}

#[derive(Default)]
struct Line {
    sent: usize,
    answered: usize,
    unsent: Vec<u8>,
}

fn message(connection: usize, number: usize) -> Vec<u8> {
    let len = 1 + (connection * 977 + number * 131) % 5_000;
    (0..len).map(|index| (index * 7 + number + connection) as u8).collect()
}

impl Client {
    fn send(line: &mut Line, handle: tailplane::Handle, window: u32, calls: &mut Calls<'_>) {
        let count = line.unsent.len().min(window as usize);
        if count > 0 && calls.sendv(handle, &[&line.unsent[..count]]).is_ok() {
            line.unsent.drain(..count);
        }
        if !line.unsent.is_empty() {
            calls.again(handle);
        }
    }
}

impl Service for Client {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        while self.begun < CONNECTIONS && calls.connect(Cookie(self.begun as u64), SERVER).is_ok() {
            self.begun += 1;
            self.lines.push(Line::default());
        }
        for event in events.iter() {
            match event {
                Event::Connected { cookie, outcome, .. } => {
                    let (handle, window) = outcome.expect("it listens");
                    let line = &mut self.lines[cookie.0 as usize];
                    line.unsent = message(cookie.0 as usize, 0);
                    Self::send(line, handle, window, calls);
                }
                Event::Recv { handle, cookie, data, window, .. } => {
                    let connection = cookie.0 as usize;
                    let line = &mut self.lines[connection];
                    let expected = message(connection, line.sent);
                    for &byte in data {
                        assert_eq!(byte, expected[line.answered].wrapping_add(1));
                        line.answered += 1;
                    }
                    calls.recv_done(handle, data.len()).expect("room");
                    if line.answered == expected.len() {
                        line.sent += 1;
                        line.answered = 0;
                        if line.sent == MESSAGES {
                            calls.close(handle).expect("room");
                        } else {
                            line.unsent = message(connection, line.sent);
                        }
                    }
                    Self::send(line, handle, window, calls);
                }
                Event::Sent { handle, cookie, window, .. }
                | Event::Again { handle, cookie, window } => {
                    Self::send(&mut self.lines[cookie.0 as usize], handle, window, calls);
                }
                Event::Dead { .. } => {
                    self.ended += 1;
                    if self.ended == CONNECTIONS {
                        self.stop.store(true, Ordering::Relaxed);
                    }
                }
                Event::Eof { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        (self.begun < CONNECTIONS).then_some(Instant::ZERO)
    }
}

fn config(address: impl Into<Address>, last: u8, scheduler: Scheduler) -> RuntimeConfig {
    let mut config = common::config(address, MacAddr([2, 0, 0, 0, 0, last]), scheduler);
    config.stack.time_wait = Duration::from_millis(1);
    // Nobody rings for a sleeper over these wires.
    config.idle.longest_sleep = Duration::from_micros(200);
    config.pool_keep = 1_024;
    config
}

/// Runs the service in the domain, and the client against it; answers what the near side counted of crossings.
fn run(scheduler: Scheduler, placement: Placement) -> u64 {
    let (near_nic, far_nic) = wire();
    let (near_socket, far_socket) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("made");
    let region = Region::map(4_096, HugePages::No).expect("mapped");
    let waiting = Waiting { placement, looks: 1_000 };
    let hello = Hello { geometry: Geometry::default(), waiting, segment_bytes: 1_448, sums: true };
    let host = Host::new(hello, 1, &region).expect("made");
    host.greet(near_socket.as_fd()).expect("sent");
    let (stop, client_stop) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let gone = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _ends = Ends([&stop, &client_stop]);
        let shares = !matches!(scheduler, Scheduler::RunToCompletion);
        let application = scope.spawn(move || {
            if shares {
                let slots = Arc::new(SharedSlots::new(1, 1_000));
                let make = |core| Server::shared(core, Successor, Arc::clone(&slots));
                application::serve_over(far_socket, make).map(|services| services[0].stats())
            } else {
                application::serve_over(far_socket, |_| Server::new(Successor))
                    .map(|services| services[0].stats())
            }
        });
        let nears = host.meet(near_socket.as_fd(), &gone).expect("met");
        let stats = nears[0].stats();
        let (region, stop) = (&region, &stop);
        let dataplane = scope.spawn(move || {
            let config = config(SERVER.addr, 1, scheduler);
            runtime::run_protected(&config, region, vec![near_nic], nears, || {}, None, stop)
        });
        let heap = Region::heap(4_096);
        let client_config = config(CLIENT, 2, Scheduler::RunToCompletion);
        let ends = Arc::clone(&client_stop);
        let make =
            move |_| Client { stop: Arc::clone(&ends), begun: 0, ended: 0, lines: Vec::new() };
        let clients = runtime::run(&client_config, &heap, vec![far_nic], make, &client_stop);
        let clients = clients.expect("the client ran");
        assert_eq!(clients[0].1.ended, CONNECTIONS);
        assert!(clients[0].1.lines.iter().all(|line| line.sent == MESSAGES));
        stop.store(true, Ordering::Relaxed);
        let reports = dataplane.join().expect("no panic").expect("it ran");
        assert_eq!(reports[0].left.memory.lost, 0);
        assert_eq!((stats.violations(), stats.refused()), (0, 0), "{stats:?}");
        // The dataplane hangs up.
        drop(near_socket);
        let served = application.join().expect("no panic").expect("it served");
        assert_eq!((served.accepted, served.broken), (CONNECTIONS as u64, 0));
        stats.crossings()
    })
}

#[test]
fn a_service_in_another_process_serves_as_one_that_is_linked_in() {
    for placement in [Placement::Split, Placement::SameCore] {
        for scheduler in [
            Scheduler::RunToCompletion,
            Scheduler::WorkConserving(Default::default()),
            Scheduler::ReadySet(Default::default()),
        ] {
            let crossings = run(scheduler, placement);
            assert!(crossings > (MESSAGES / 2) as u64, "{crossings}");
        }
    }
}
