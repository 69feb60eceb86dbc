//! Flow groups that move between elastic threads whose application is on the other side of the `process` domain, while a
//! client checks the sequence of all that it gets.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant as Wall};

use endpoint::{Ask, Done, Request};
use mem::{HugePages, Region};
use process::{Geometry, Hello, Host, Placement, Waiting};
use runtime::{ConservingConfig, ReadySetConfig};
use runtime::{Controls, Scheduler, run, run_protected};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tailplane::{MacAddr, Server, SharedSlots, application};

use crate::common::{CLIENT, CONNECTIONS, Counting, Echo, SERVER, config, wire};

const CORES: usize = 2;
const RUNS_FOR: Duration = Duration::from_millis(1_000);
/// Moves that say something.
const ENOUGH: u64 = 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// Moves whatever is at home on one thread to the other, a third of it or all. Answers how many were complete.
fn control(controls: &Controls) -> u64 {
    let (began, mut round, mut moved) = (Wall::now(), 0, 0);
    // On a busy machine it takes longer.
    while began.elapsed() < RUNS_FOR || (moved < ENOUGH && began.elapsed() < PATIENCE / 2) {
        round += 1;
        let from = round % CORES;
        let part = |group: &u16| round % 3 == 0 || usize::from(*group) % 3 == round % 3;
        let groups: Vec<u16> = controls.groups_of(from).iter().filter(part).collect();
        if groups.is_empty() {
            continue;
        }
        let (from, to, count) = (from as u16, ((from + 1) % CORES) as u16, groups.len());
        let ask = Ask { id: round as u64, request: Request::Move { from, to, groups } };
        controls.begin(ask).expect("the service runs anywhere");
        let report = loop {
            if let Some(report) = controls.reports().pop() {
                break report;
            }
            assert!(began.elapsed() < PATIENCE, "a command without a report");
            std::thread::sleep(Duration::from_micros(200));
        };
        assert_eq!(report.id, round as u64);
        let Ok(Done::Moved(done)) = report.result else { panic!("{report:?}") };
        assert_eq!(done.groups as usize, count);
        moved += 1;
    }
    moved
}

/// The moves and the words that came.
fn moves_under_load(scheduler: Scheduler, placement: Placement, shared: bool) -> (u64, usize) {
    let (near, far): (Vec<_>, Vec<_>) = (0..CORES).map(|_| wire()).unzip();
    let flags = SocketFlags::CLOEXEC;
    let (near_socket, far_socket) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets");
    let (region, heap) = (Region::map(8_192, HugePages::No).expect("mapped"), Region::heap(8_192));
    let waiting = Waiting { looks: 1_000, placement };
    let hello = Hello { geometry: Geometry::default(), waiting, segment_bytes: 1_448, sums: true };
    let host = Host::new(hello, CORES, &region).expect("made");
    host.greet(near_socket.as_fd()).expect("sent");
    let gone = Arc::new(AtomicBool::new(false));
    let [stop, done] = [const { AtomicBool::new(false) }; 2];
    let [heard, wrong] = [const { AtomicUsize::new(0) }; 2];
    let controls = Controls::new(CORES);
    let moved = std::thread::scope(|scope| {
        let application = scope.spawn(move || match shared {
            true => {
                let slots = Arc::new(SharedSlots::new(CORES, 1_024));
                let make = |core| Server::shared(core, Echo::default(), Arc::clone(&slots));
                application::serve_over(far_socket, make).map(|_| ())
            }
            false => {
                application::serve_over(far_socket, |_| Server::new(Echo::default())).map(|_| ())
            }
        });
        let nears = host.meet(near_socket.as_fd(), &gone).expect("met");
        let (region, heap, controls, stop, done) = (&region, &heap, &controls, &stop, &done);
        let server = scope.spawn(move || {
            let mac = MacAddr([2, 0, 0, 0, 0, 1]);
            let config = config(SERVER.addr, mac, scheduler);
            run_protected(&config, region, near, nears, || {}, Some(controls), stop)
        });
        let (heard, wrong) = (&heard, &wrong);
        let client = scope.spawn(move || {
            let config = config(CLIENT, MacAddr([2, 0, 0, 0, 0, 2]), Scheduler::RunToCompletion);
            let make = |_| Counting { asked: 0, lines: Vec::new(), heard, wrong };
            run(&config, heap, far, make, done)
        });
        let began = Wall::now();
        let hears = |words: usize| {
            while heard.load(Ordering::Relaxed) < words {
                assert!(began.elapsed() < PATIENCE, "it does not go on");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        hears(CORES * CONNECTIONS);
        let moved = if controls.is_movable() { control(controls) } else { 0 };
        hears(heard.load(Ordering::Relaxed) + 1_000);
        done.store(true, Ordering::Relaxed);
        client.join().expect("no panic").expect("it runs");
        stop.store(true, Ordering::Relaxed);
        let reports = server.join().expect("no panic").expect("it runs");
        drop(near_socket);
        application.join().expect("no panic").expect("it served");
        let completed: u64 = reports.iter().map(|report| report.migrations.completed).sum();
        assert_eq!(completed, moved);
        moved
    });
    assert_eq!(wrong.into_inner(), 0);
    assert_eq!(region.depot_len(), region.chunks() as usize, "all memory is back");
    (moved, heard.into_inner())
}

/// With an application that runs anywhere, on cores of its own and on those of the elastic threads.
fn keeps_connections_in_order(scheduler: Scheduler) {
    for placement in [Placement::Split, Placement::SameCore] {
        let (moved, heard) = moves_under_load(scheduler.clone(), placement, true);
        println!("{placement:?}: {heard} words, {moved} migrations");
        assert!(
            moved >= ENOUGH && heard > 1_000,
            "{placement:?}: {moved} migrations, {heard} words"
        );
    }
}

#[test]
fn run_to_completion() {
    keeps_connections_in_order(Scheduler::RunToCompletion);
}

#[test]
fn work_conserving() {
    keeps_connections_in_order(Scheduler::WorkConserving(ConservingConfig::default()));
}

#[test]
fn ready_set() {
    keeps_connections_in_order(Scheduler::ReadySet(ReadySetConfig::default()));
}

#[test]
fn one_that_keeps_its_connections_to_each_thread_is_left_alone() {
    assert_eq!(moves_under_load(Scheduler::RunToCompletion, Placement::Split, false).0, 0);
}
