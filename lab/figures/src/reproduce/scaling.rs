//! Messages per second over many open connections, on real packets: the client opens all of them from
//! its own dataplane, then sends on each in turn, in an order that no cache foresees.
//!
//! Both ends run at real-time priority, so in windows well below a second: whoever started one cannot
//! run until it is over. Hence the client itself keeps the time of a window, and then sleeps.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::bail;
use bench::connections::spread;
use tailplane::{Calls, Endpoint, Events, Instant, Service};
use world::rig::Caller;

use crate::commands::load::DataplaneClient;
use crate::demo::machine::Usage;
use crate::demo::processors::{CLIENT_CPU, REALTIME};
use crate::demo::window::PAUSE;
use service::lab::Lab;

/// Connections to one port of the server: fewer than the client has ephemeral ports.
pub const PER_PORT: usize = 50_000;
/// Messages that are sent together, the next when all are answered.
const BURST: usize = 512;
/// How long the handshakes' timers take to have fired.
const REST: Duration = Duration::from_millis(1_500);
/// One window, and the part of it in which messages are not counted yet.
const WINDOW: Duration = Duration::from_millis(400);
const WARM_UP: Duration = Duration::from_millis(100);
/// Further tries of a window that somebody else disturbed.
const RETRIES: u32 = 3;
/// How often a client without a window looks for the next.
const LOOK: Duration = Duration::from_millis(2);
/// Longest that all of it may take.
const LIMIT: Duration = Duration::from_secs(900);
/// Windows in a row without a further connection, before opening them is given up.
const STALLED: u32 = 20;

/// What the threads tell each other.
#[derive(Default)]
struct Told {
    /// Windows that were asked for, and those that are over.
    wanted: AtomicU32,
    over: AtomicU32,
    /// Of the last window: nanoseconds and answers that count, and all answers with those of the warm-up.
    window_ns: AtomicU64,
    answered: AtomicU64,
    answered_all: AtomicU64,
    open: AtomicU64,
    failures: AtomicU64,
    stop: AtomicBool,
    ended: AtomicBool,
}

/// The client: in a window it opens what is not open, then asks and asks.
struct Asking<'a> {
    caller: Caller,
    order: Vec<u32>,
    next: usize,
    window: Option<Window>,
    /// Answers before the present window.
    answered_before: u64,
    now: Instant,
    told: &'a Told,
}

/// A window that goes on.
struct Window {
    begun: Instant,
    /// When counting began, and with how many answers.
    counting: Option<(Instant, u64)>,
}

impl Asking<'_> {
    fn is_open(&self) -> bool {
        self.caller.open() == self.caller.connections()
    }

    /// Begins and ends windows. Relaxed but where a window is handed over: see `over`.
    fn keep_time(&mut self, now: Instant) {
        let told = self.told;
        let Some(Window { begun, counting }) = &mut self.window else {
            if told.wanted.load(Ordering::Acquire) != told.over.load(Ordering::Relaxed) {
                self.window = Some(Window { begun: now, counting: None });
                self.answered_before = self.caller.answered();
                self.caller.pause(false);
            }
            return;
        };
        if counting.is_none() && now.since(*begun) >= WARM_UP {
            *counting = Some((now, self.caller.answered()));
        }
        let opening = self.order.is_empty();
        let ends = now.since(*begun) >= WINDOW;
        let (since, before) = counting.unwrap_or((now, self.caller.answered()));
        if ends || opening && self.is_open() {
            told.window_ns.store(now.since(since).as_nanos() as u64, Ordering::Relaxed);
            told.answered.store(self.caller.answered() - before, Ordering::Relaxed);
            let all = self.caller.answered() - self.answered_before;
            told.answered_all.store(all, Ordering::Relaxed);
            told.open.store(self.caller.open() as u64, Ordering::Relaxed);
            told.failures.store(self.caller.failures(), Ordering::Relaxed);
            self.window = None;
            self.caller.pause(true);
            if opening && self.is_open() {
                let connections = self.caller.connections();
                self.order = spread(connections, connections).collect();
            }
            // What was stored above is seen by whoever sees this.
            told.over.fetch_add(1, Ordering::Release);
        }
    }
}

impl Service for Asking<'_> {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        self.now = now;
        self.keep_time(now);
        if self.window.is_some() && !self.order.is_empty() {
            // In bursts: one core sends more slowly than it is answered, so that a steady stream would
            // find the server idle now and then, and its batches small.
            let answered = self.caller.in_flight() + self.caller.waiting() == 0;
            for _ in 0..if answered { BURST } else { 0 } {
                self.caller.ask(self.order[self.next]);
                self.next = (self.next + 1) % self.order.len();
            }
        }
        self.caller.on_batch(now, events, calls);
    }

    fn wake_at(&self) -> Option<Instant> {
        Some(if self.window.is_some() { Instant::ZERO } else { self.now + LOOK })
    }
}

/// What one window found, in messages per second.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// End to end.
    pub rate: f64,
    /// Of the server's processor time that served something.
    pub capacity: f64,
}

/// Messages per second in each of `windows` windows, over `connections` connections to an echo service
/// at `address`, which listens on a port for every [`PER_PORT`] of them from `port` on. `busy`: the
/// processor time that the server has served with so far.
///
/// # Errors
/// What could not be opened; connections that fail.
pub fn rates(
    lab: &Lab,
    (address, port): (Ipv4Addr, u16),
    connections: usize,
    windows: u32,
    busy: impl Fn() -> Duration,
) -> anyhow::Result<Vec<Found>> {
    let mut client = DataplaneClient::open(lab, 1, &[CLIENT_CPU])?;
    client.realtime = Some(REALTIME);
    let ports = connections.div_ceil(PER_PORT) as u16;
    let servers = (port..port + ports).map(|port| Endpoint::new(address, port)).collect();
    let told = Told::default();
    let mut caller = Caller::new(connections, BURST, servers, PER_PORT);
    caller.set_request(&[b'e'; 64], &[b'e'; 64]);
    caller.pause(true);
    let asking = Asking {
        caller,
        order: Vec::new(),
        next: 0,
        window: None,
        answered_before: 0,
        now: Instant::ZERO,
        told: &told,
    };
    std::thread::scope(|scope| {
        let told = &told;
        let plane = scope.spawn(move || {
            let served = client.serve(vec![asking], LIMIT, || told.stop.load(Ordering::Relaxed));
            told.ended.store(true, Ordering::Relaxed);
            served
        });
        let measured = measure(told, connections, windows, busy);
        told.stop.store(true, Ordering::Relaxed);
        match plane.join() {
            Ok(served) => served?,
            Err(_) => bail!("the client's thread panicked"),
        }
        measured
    })
}

impl Told {
    /// Has one window run.
    fn window(&self, doing: &str) -> anyhow::Result<()> {
        std::thread::sleep(PAUSE);
        let wanted = self.wanted.fetch_add(1, Ordering::Release) + 1;
        while self.over.load(Ordering::Acquire) != wanted {
            if self.ended.load(Ordering::Relaxed) {
                bail!("the client's dataplane ended while {doing}");
            }
            std::thread::sleep(LOOK);
        }
        match self.failures.load(Ordering::Relaxed) {
            0 => Ok(()),
            failures => bail!("{failures} connections or messages failed while {doing}"),
        }
    }
}

fn measure(
    told: &Told,
    connections: usize,
    windows: u32,
    busy: impl Fn() -> Duration,
) -> anyhow::Result<Vec<Found>> {
    let (mut open, mut stalled) = (0, 0);
    while open < connections as u64 {
        told.window("opening connections")?;
        let now_open = told.open.load(Ordering::Relaxed);
        stalled = if now_open > open { 0 } else { stalled + 1 };
        if stalled > STALLED {
            bail!("no more than {open} of {connections} connections opened");
        }
        open = now_open;
    }
    std::thread::sleep(REST);
    // The first fills caches and windows.
    told.window("exchanging messages")?;
    let (mut rates, mut tries) = (Vec::new(), 0);
    while (rates.len() as u32) < windows {
        let (usage, busy_before) = (Usage::now(&[]), busy());
        told.window("exchanging messages")?;
        let quiet = usage.disturbance_since(&[]).is_quiet();
        let answered = told.answered.load(Ordering::Relaxed);
        if answered == 0 {
            bail!("no message was answered with {connections} connections open");
        }
        if quiet || tries == RETRIES {
            let all = told.answered_all.load(Ordering::Relaxed) as f64;
            rates.push(Found {
                rate: answered as f64 * 1e9 / told.window_ns.load(Ordering::Relaxed) as f64,
                capacity: all / (busy() - busy_before).as_secs_f64(),
            });
            tries = 0;
        } else {
            tries += 1;
        }
    }
    Ok(rates)
}
