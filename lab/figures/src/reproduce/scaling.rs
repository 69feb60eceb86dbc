//! Messages per second over many open connections, on real packets: the client opens all of them from
//! its own dataplane, then sends on each in turn, in an order that no cache foresees.
//!
//! Both ends run at real-time priority, so in windows well below a second: whoever started one cannot
//! run until it is over. Hence the client itself keeps the time of a window, and then sleeps.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::bail;
use bench::connections::spread;
use measure::{Kept, Plan, QUIET, contest, watched};
use tailplane::{Calls, Endpoint, Events, Instant, Service};
use world::rig::Caller;

use crate::commands::load::DataplaneClient;
use crate::demo::processors::{CLIENT_CPU, REALTIME};
use crate::demo::window::{PAUSE, TRIES};
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
/// How often a client without a window looks for the next.
const LOOK: Duration = Duration::from_millis(2);
/// Longest that all of it may take.
const LIMIT: Duration = Duration::from_secs(900);
/// Windows in a row without a further connection, before opening them is given up.
const STALLED: u32 = 20;

/// What happened in a window.
struct Ran {
    /// Time that counts, and answers in it.
    span: Duration,
    answered: u64,
    /// Answers, those of the warm-up too.
    answered_all: u64,
    /// Connections that are open.
    open: usize,
    /// Connections and messages that failed so far.
    failures: u64,
}

/// The client: in a window it opens what is not open, then asks and asks.
struct Asking {
    caller: Caller,
    order: Vec<u32>,
    next: usize,
    window: Option<Window>,
    /// Answers before the present window.
    answered_before: u64,
    now: Instant,
    /// Windows that are asked for, and what happened in them.
    wanted: Receiver<()>,
    over: Sender<Ran>,
}

/// A window that goes on.
struct Window {
    begun: Instant,
    /// When counting began, and with how many answers.
    counting: Option<(Instant, u64)>,
}

impl Asking {
    fn is_open(&self) -> bool {
        self.caller.open == self.caller.connections()
    }

    /// Begins and ends windows.
    fn keep_time(&mut self, now: Instant) {
        let Some(Window { begun, counting }) = &mut self.window else {
            if self.wanted.try_recv().is_ok() {
                self.window = Some(Window { begun: now, counting: None });
                self.answered_before = self.caller.answered;
                self.caller.pause(false);
            }
            return;
        };
        if counting.is_none() && now.since(*begun) >= WARM_UP {
            *counting = Some((now, self.caller.answered));
        }
        let opening = self.order.is_empty();
        let ends = now.since(*begun) >= WINDOW;
        let (since, before) = counting.unwrap_or((now, self.caller.answered));
        if ends || opening && self.is_open() {
            let ran = Ran {
                span: now.since(since),
                answered: self.caller.answered - before,
                answered_all: self.caller.answered - self.answered_before,
                open: self.caller.open,
                failures: self.caller.failures,
            };
            self.window = None;
            self.caller.pause(true);
            if opening && self.is_open() {
                let connections = self.caller.connections();
                self.order = spread(connections, connections).collect();
            }
            // The one that asked for it may have given up.
            let _ = self.over.send(ran);
        }
    }
}

impl Service for Asking {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        self.now = now;
        self.keep_time(now);
        if self.window.is_some() && !self.order.is_empty() {
            // In bursts: one core sends more slowly than it is answered, so that a steady stream would
            // find the server idle now and then, and its batches small.
            let answered = self.caller.is_idle();
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

/// Messages per second in `windows` quiet windows, over `connections` connections to an echo service
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
) -> anyhow::Result<Kept<Found>> {
    let mut client = DataplaneClient::open(lab, 1, &[CLIENT_CPU])?;
    client.realtime = Some(REALTIME);
    let ports = connections.div_ceil(PER_PORT) as u16;
    let servers = (port..port + ports).map(|port| Endpoint::new(address, port)).collect();
    let ((ask, wanted), (over, ran)) = (channel(), channel());
    let stop = AtomicBool::new(false);
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
        wanted,
        over,
    };
    std::thread::scope(|scope| {
        let plane =
            scope.spawn(|| client.serve(vec![asking], LIMIT, || stop.load(Ordering::Relaxed)));
        let measured = Windows { ask, ran, connections, busy }.measure(windows as usize);
        stop.store(true, Ordering::Relaxed);
        match plane.join() {
            Ok(served) => served?,
            Err(_) => bail!("the client's thread panicked"),
        }
        measured
    })
}

/// The windows of the client's thread.
struct Windows<B> {
    ask: Sender<()>,
    ran: Receiver<Ran>,
    connections: usize,
    busy: B,
}

impl<B: Fn() -> Duration> Windows<B> {
    /// Has one run.
    fn run(&self, doing: &str) -> anyhow::Result<Ran> {
        std::thread::sleep(PAUSE);
        // Both ends of its channels go with the client.
        let asked = self.ask.send(()).is_ok();
        match self.ran.recv() {
            Ok(ran) if asked && ran.failures == 0 => Ok(ran),
            Ok(ran) => bail!("{} connections or messages failed while {doing}", ran.failures),
            Err(_) => bail!("the client's dataplane ended while {doing}"),
        }
    }

    /// Opens all connections, and measures until so many windows were quiet.
    fn measure(&self, count: usize) -> anyhow::Result<Kept<Found>> {
        let connections = self.connections;
        let (mut open, mut stalled) = (0, 0);
        while open < connections {
            let now_open = self.run("opening connections")?.open;
            stalled = if now_open > open { 0 } else { stalled + 1 };
            if stalled > STALLED {
                bail!("no more than {open} of {connections} connections opened");
            }
            open = now_open;
        }
        std::thread::sleep(REST);
        // The first fills caches and windows.
        self.run("exchanging messages")?;
        // Each window pauses by itself; one contestant has no order.
        let (tries, pause) = (count * TRIES, Duration::ZERO);
        let plan = Plan { windows: count, tries, pause, quiet: QUIET, seed: 0 };
        let mut kept = contest(&mut [()], plan, |()| watched(&[], || self.one()))?;
        Ok(kept.swap_remove(0))
    }

    /// One window of messages.
    fn one(&self) -> anyhow::Result<Found> {
        let busy_before = (self.busy)();
        let Ran { span, answered, answered_all, .. } = self.run("exchanging messages")?;
        if answered == 0 {
            bail!("no message was answered with {} connections open", self.connections);
        }
        Ok(Found {
            rate: answered as f64 / span.as_secs_f64(),
            capacity: answered_all as f64 / ((self.busy)() - busy_before).as_secs_f64(),
        })
    }
}
