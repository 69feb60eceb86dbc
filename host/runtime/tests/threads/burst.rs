//! A burst at one of two real threads, the other one asleep: both serve, at the same time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Wall};

use mem::Region;
use runtime::{ConservingConfig, IdlePolicy, ReadySetConfig};
use runtime::{Scheduler, run};
use tailplane::{
    Calls, Cookie, Event, Events, Flow, Handle, Instant, MacAddr, Opened, Output, Protocol, Server,
    Service, SharedSlots,
};

use crate::common::{CLIENT, Ends, SERVER, config, wire};

const CORES: usize = 2;
/// Of each of the client's threads: enough that some are at home on the server's first one.
const CONNECTIONS: usize = 24;
const ROUNDS: usize = 5;
/// What a request takes. It sleeps, so that the machine may be busy with something else.
const TAKES: Duration = Duration::from_millis(30);
/// Longer than a thread spins before it sleeps.
const PAUSE: Duration = Duration::from_millis(20);
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// When requests were served.
type Served = Mutex<Vec<(Wall, Wall)>>;

/// Answers `?` with the thread that a connection is at home on, and serves anything else for [`TAKES`].
struct Slow<'a> {
    core: u8,
    served: &'a Served,
}

impl Protocol for Slow<'_> {
    type Connection = u8;

    fn open(&mut self, _: Instant, _: Opened) -> Option<u8> {
        Some(self.core)
    }

    fn receive(
        &mut self,
        _: Instant,
        home: &mut u8,
        data: &[u8],
        output: &mut Output<'_, '_>,
    ) -> Flow {
        if data == b"?" {
            output.put(&[*home]);
            return Flow::Continue;
        }
        let began = Wall::now();
        std::thread::sleep(TAKES);
        self.served.lock().expect("no panic").push((began, Wall::now()));
        output.put(b"!");
        Flow::Continue
    }
}

/// What the test and the client's threads share.
#[derive(Default)]
struct Wish {
    /// Connections that know their home.
    located: AtomicUsize,
    /// Bursts that were asked for.
    rounds: AtomicUsize,
}

/// Opens connections, asks where they are at home, and sends bursts of two requests to the server's first thread.
struct Asking<'a> {
    core: usize,
    wish: &'a Wish,
    asked: usize,
    at_first: Vec<Handle>,
    sent: usize,
}

impl Service for Asking<'_> {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            match event {
                Event::Connected { outcome, .. } => {
                    let handle = outcome.expect("it is let in").0;
                    calls.sendv(handle, &[b"?"]).expect("room");
                }
                Event::Recv { handle, data, .. } => {
                    if data != b"!" {
                        self.at_first.extend((data == [0]).then_some(handle));
                        self.wish.located.fetch_add(1, Ordering::Relaxed);
                    }
                    calls.recv_done(handle, data.len()).expect("room");
                }
                _ => {}
            }
        }
        while self.asked < CONNECTIONS && calls.connect(Cookie(0), SERVER).is_ok() {
            self.asked += 1;
        }
        if self.core == 0 && self.sent < self.wish.rounds.load(Ordering::Relaxed) {
            self.sent += 1;
            for &handle in self.at_first.iter().take(2) {
                calls.sendv(handle, &[b"w"]).expect("room");
            }
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let wished = self.core == 0 && self.sent < self.wish.rounds.load(Ordering::Relaxed);
        (self.asked < CONNECTIONS || wished).then_some(Instant::ZERO)
    }
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let began = Wall::now();
    while !holds() {
        assert!(began.elapsed() < TIME_LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A request that waits for any core is not to wait behind the one that its own core runs: the other core is woken
/// before that one begins, not after it.
fn both_serve(scheduler: Scheduler) {
    let (near, far): (Vec<_>, Vec<_>) = (0..CORES).map(|_| wire()).unzip();
    let regions = [Region::heap(8_192), Region::heap(8_192)];
    let [stop, done] = [const { AtomicBool::new(false) }; 2];
    let (served, wish) = (Served::default(), Wish::default());
    let slots = Arc::new(SharedSlots::new(CORES, 1_024));
    let ran = std::thread::scope(|scope| {
        let _ends = Ends([&stop, &done]);
        let server = scope.spawn(|| {
            let config = config(SERVER.addr, MacAddr([2, 0, 0, 0, 0, 1]), scheduler);
            let make = |core| {
                let slow = Slow { core: core as u8, served: &served };
                Server::shared(core, slow, Arc::clone(&slots))
            };
            run(&config, &regions[0], near, make, &stop)
        });
        let client = scope.spawn(|| {
            let mut config =
                config(CLIENT, MacAddr([2, 0, 0, 0, 0, 2]), Scheduler::RunToCompletion);
            // Its threads look for a wish now and then.
            config.idle = IdlePolicy { longest_sleep: Duration::from_millis(1), ..config.idle };
            let make = |core| {
                let (wish, at_first) = (&wish, Vec::new());
                Asking { core, wish, asked: 0, at_first, sent: 0 }
            };
            run(&config, &regions[1], far, make, &done)
        });
        let all = CORES * CONNECTIONS;
        let located = || wish.located.load(Ordering::Relaxed) == all;
        wait_until("all connections are open", located);
        for round in 1..=ROUNDS {
            std::thread::sleep(PAUSE);
            wish.rounds.store(round, Ordering::Relaxed);
            let count = || served.lock().expect("no panic").len();
            wait_until("both requests are served", || count() == 2 * round);
        }
        done.store(true, Ordering::Relaxed);
        client.join().expect("no panic").expect("it runs");
        stop.store(true, Ordering::Relaxed);
        server.join().expect("no panic").expect("it runs")
    });
    // Before each burst, so that a request comes to a core of which the other one sleeps.
    assert!(
        ran.iter().all(|(report, _)| report.sleeps >= ROUNDS as u64),
        "they sleep in the pauses"
    );
    let served = served.into_inner().expect("no panic");
    let together = |pair: &[(Wall, Wall)]| pair[0].0 < pair[1].1 && pair[1].0 < pair[0].1;
    let count = served.chunks(2).filter(|pair| together(pair)).count();
    assert_eq!(count, ROUNDS, "bursts whose two requests were served at the same time");
}

#[test]
fn work_conserving() {
    both_serve(Scheduler::WorkConserving(ConservingConfig::default()));
}

#[test]
fn ready_set() {
    both_serve(Scheduler::ReadySet(ReadySetConfig::default()));
}
