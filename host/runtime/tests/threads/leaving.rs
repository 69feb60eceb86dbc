//! A dataplane that ends on real threads: its peers are told, and its packet memory is all there again, however
//! it ends and as often as it is run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dataplane::ConservingConfig;
use mem::Region;
use runtime::{CoreReport, IdlePolicy, RuntimeError, Scheduler, run};
use tailplane::{Calls, Cookie, DeadReason, Event, Events, Handle, Instant, MacAddr, Service};

use crate::common::{CLIENT, SERVER, config, wire};

const CONNECTIONS: usize = 50;

/// Sends every byte back, but for one message, at which it panics.
struct Echo {
    panics: bool,
}

impl Service for Echo {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            match event {
                Event::Knock { handle, .. } => calls.accept(handle, Cookie(1)).expect("room"),
                Event::Recv { handle, data, .. } => {
                    calls.sendv(handle, &[data]).expect("room");
                    assert!(!self.panics, "a service may have a bug");
                    calls.recv_done(handle, data.len()).expect("room");
                }
                _ => {}
            }
        }
    }
    fn runs_anywhere(&self) -> bool {
        true
    }
}

/// Opens connections, then sends something on each, and is done when all of them have ended.
struct Caller<'a> {
    asked: usize,
    open: Vec<Handle>,
    answered: &'a AtomicUsize,
    dead: Vec<DeadReason>,
    done: &'a AtomicBool,
}

impl Service for Caller<'_> {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        while self.asked < CONNECTIONS && calls.connect(Cookie(0), SERVER).is_ok() {
            self.asked += 1;
        }
        for event in events.iter() {
            match event {
                Event::Connected { outcome, .. } => {
                    self.open.push(outcome.expect("it is let in").0);
                    if self.open.len() == CONNECTIONS {
                        let speak = |&line| calls.sendv(line, &[b"hello"]).expect("room");
                        self.open.iter().for_each(speak);
                    }
                }
                // Kept, so that the memory is held when all ends.
                Event::Recv { .. } => {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                }
                Event::Dead { reason, .. } => self.dead.push(reason),
                _ => {}
            }
        }
        if self.dead.len() == CONNECTIONS {
            self.done.store(true, Ordering::Relaxed);
        }
    }
    fn wake_at(&self) -> Option<Instant> {
        (self.asked < CONNECTIONS).then_some(Instant::ZERO)
    }
}

/// A server and a client, until the client has heard of the end of all its connections.
struct Ran {
    server: Result<Vec<CoreReport>, RuntimeError>,
    dead: Vec<DeadReason>,
    regions: [Arc<Region>; 2],
}

fn run_both(scheduler: Scheduler, panics: bool) -> Ran {
    let (near, far) = wire();
    let regions = [Region::heap(4_096), Region::heap(4_096)];
    let (stop, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let answered = AtomicUsize::new(0);
    let (server, client) = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let config = config(SERVER.addr, MacAddr([2, 0, 0, 0, 0, 1]), scheduler);
            let ran = run(&config, &regions[0], vec![near], |_| Echo { panics }, &stop);
            ran.map(|ran| ran.into_iter().map(|(report, _)| report).collect())
        });
        let client = scope.spawn(|| {
            let config = config(CLIENT, MacAddr([2, 0, 0, 0, 0, 2]), Scheduler::RunToCompletion);
            let (answered, done) = (&answered, &done);
            let make = |_| Caller { asked: 0, open: Vec::new(), answered, dead: Vec::new(), done };
            run(&config, &regions[1], vec![far], make, done)
        });
        while !panics && answered.load(Ordering::Relaxed) < CONNECTIONS {
            std::thread::sleep(Duration::from_millis(1));
        }
        if !panics {
            stop.store(true, Ordering::Relaxed);
        }
        let server = server.join().expect("a panic of the service is an error of the run");
        (server, client.join().expect("no panic").expect("it runs to its end"))
    });
    let (_, caller) = client.into_iter().next().expect("one thread");
    Ran { server, dead: caller.dead, regions }
}

fn all_memory_is_back(regions: &[Arc<Region>; 2]) {
    for region in regions {
        assert_eq!(region.depot_len(), region.chunks() as usize);
        assert_eq!(Arc::strong_count(region), 1, "so the memory goes when it is dropped");
    }
}

const SCHEDULERS: [fn() -> Scheduler; 2] =
    [|| Scheduler::RunToCompletion, || Scheduler::WorkConserving(ConservingConfig::default())];

#[test]
fn whoever_is_connected_is_told_when_a_dataplane_is_stopped() {
    for scheduler in SCHEDULERS {
        for _ in 0..2 {
            let Ran { server, dead, regions } = run_both(scheduler(), false);
            assert_eq!(dead, [DeadReason::Reset; CONNECTIONS]);
            let left = server.expect("it ends well")[0].left;
            assert_eq!(left.connections.reset, CONNECTIONS as u64);
            assert_eq!((left.connections.untold, left.memory.lost), (0, 0));
            all_memory_is_back(&regions);
        }
    }
}

#[test]
fn whoever_is_connected_is_told_when_the_service_panics() {
    for scheduler in SCHEDULERS {
        let Ran { server, dead, regions } = run_both(scheduler(), true);
        let error = server.expect_err("its service panicked");
        assert!(
            error.to_string().contains("thread 0 panicked: ")
                && error.to_string().contains("a bug"),
            "{error}"
        );
        assert_eq!(dead, [DeadReason::Reset; CONNECTIONS]);
        all_memory_is_back(&regions);
    }
}

/// Serves nothing; the one of thread 0 cannot be made.
struct Absent;

impl Service for Absent {
    fn on_batch(&mut self, _: Instant, _: Events<'_>, _: &mut Calls<'_>) {}
    fn runs_anywhere(&self) -> bool {
        true
    }
}

#[test]
fn a_thread_that_ends_wakes_those_that_sleep() {
    const LONG: Duration = Duration::from_secs(30);
    let (near, far) = wire();
    let mut config = config(SERVER.addr, MacAddr([2, 0, 0, 0, 0, 1]), Scheduler::RunToCompletion);
    config.idle = IdlePolicy { spin: Some(Duration::ZERO), longest_sleep: LONG };
    let (region, stop) = (Region::heap(8_192), AtomicBool::new(false));
    let began = std::time::Instant::now();
    let make = |core| {
        if core == 0 {
            // The other thread is asleep by then.
            std::thread::sleep(Duration::from_millis(300));
            panic!("this one has a bug");
        }
        Absent
    };
    let error = run(&config, &region, vec![near, far], make, &stop).map(|_| ()).expect_err("a bug");
    assert!(error.to_string().starts_with("elastic thread 0 panicked"), "{error}");
    assert!(began.elapsed() < LONG / 2, "the other thread slept for {:?}", began.elapsed());
}
