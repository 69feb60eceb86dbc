//! Messages per second over many open connections, on real packets: the client opens all of them from
//! its own dataplane, then sends on each in turn, in an order that no cache foresees.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use tailplane::{Calls, Endpoint, Events, Service};
use tailplane_bench::Caller;
use tailplane_bench::connections::spread;

use crate::commands::load::DataplaneClient;
use crate::demo::machine::Usage;
use crate::demo::measure::CLIENT_CPU;
use crate::lab::Lab;

/// Connections to one port of the server: fewer than the client has ephemeral ports.
pub const PER_PORT: usize = 50_000;
/// Unanswered messages at a time.
const IN_FLIGHT: usize = 256;
/// How long the handshakes' timers take to have fired.
const REST: Duration = Duration::from_millis(1_500);
const WINDOW: Duration = Duration::from_millis(400);
/// Longest that all of it may take.
const LIMIT: Duration = Duration::from_secs(900);
/// Further tries of a window that somebody else disturbed.
const RETRIES: u32 = 2;
/// Opening connections per second, at the least, before it is given up.
const OPENING_RATE: f64 = 2_000.0;

/// What the threads tell each other.
#[derive(Default)]
struct Told {
    open: AtomicU64,
    answered: AtomicU64,
    failures: AtomicU64,
    asking: AtomicBool,
    stop: AtomicBool,
}

/// The client: opens, then asks and asks.
struct Asking<'a> {
    caller: Caller,
    order: Vec<u32>,
    next: usize,
    told: &'a Told,
}

impl Service for Asking<'_> {
    fn on_batch(&mut self, now: tailplane::Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        if self.told.asking.load(Ordering::Relaxed) {
            while self.caller.waiting() < IN_FLIGHT {
                self.caller.ask(self.order[self.next]);
                self.next = (self.next + 1) % self.order.len();
            }
        }
        self.caller.on_batch(now, events, calls);
        // Counters to look at: nothing else hangs on them.
        self.told.open.store(self.caller.open() as u64, Ordering::Relaxed);
        self.told.answered.store(self.caller.answered(), Ordering::Relaxed);
        self.told.failures.store(self.caller.failures(), Ordering::Relaxed);
    }

    fn wake_at(&self) -> Option<tailplane::Instant> {
        match self.told.asking.load(Ordering::Relaxed) {
            true => Some(tailplane::Instant::ZERO),
            false => self.caller.wake_at(),
        }
    }
}

/// Messages per second in each of `windows` windows, over `connections` connections to an echo service
/// at `address`, which listens on a port for every [`PER_PORT`] of them from `port` on.
///
/// # Errors
/// What could not be opened; connections that fail.
pub fn rates(
    lab: &Lab,
    (address, port): (Ipv4Addr, u16),
    connections: usize,
    windows: u32,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<f64>> {
    let mut client = DataplaneClient::open(lab, 1, &[CLIENT_CPU])?;
    client.idle_spin = Duration::from_millis(200);
    let ports = connections.div_ceil(PER_PORT) as u16;
    let servers = (port..port + ports).map(|port| Endpoint::new(address, port)).collect();
    let told = Told::default();
    let mut caller = Caller::new(connections, IN_FLIGHT, servers, PER_PORT);
    caller.set_request(&[b'e'; 64], &[b'e'; 64]);
    let order: Vec<u32> = spread(connections, connections).collect();
    let asking = Asking { caller, order, next: 0, told: &told };
    let over = AtomicBool::new(false);
    let (told, over) = (&told, &over);
    std::thread::scope(|scope| {
        let plane = scope.spawn(move || {
            let served = client.serve(vec![asking], LIMIT, || told.stop.load(Ordering::Relaxed));
            over.store(true, Ordering::Relaxed);
            served
        });
        let measured =
            measure(told, connections, windows, progress, || over.load(Ordering::Relaxed));
        told.stop.store(true, Ordering::Relaxed);
        match plane.join() {
            Ok(served) => served?,
            Err(_) => bail!("the client's thread panicked"),
        }
        measured
    })
}

fn measure(
    told: &Told,
    connections: usize,
    windows: u32,
    progress: &mut dyn FnMut(&str),
    over: impl Fn() -> bool,
) -> anyhow::Result<Vec<f64>> {
    let check = |doing: &str| match told.failures.load(Ordering::Relaxed) {
        _ if over() => bail!("the client's dataplane ended while {doing}"),
        0 => Ok(()),
        failures => bail!("{failures} connections or messages failed while {doing}"),
    };
    let begun = Instant::now();
    let limit = Duration::from_secs_f64(5.0 + connections as f64 / OPENING_RATE);
    let mut last_told = begun;
    loop {
        check("opening connections")?;
        let open = told.open.load(Ordering::Relaxed);
        if open == connections as u64 {
            break;
        }
        if begun.elapsed() > limit {
            bail!("only {open} of {connections} connections were open after {limit:?}");
        }
        if last_told.elapsed() > Duration::from_secs(2) {
            last_told = Instant::now();
            progress(&format!("{open} of {connections} connections open"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(REST);
    told.asking.store(true, Ordering::Relaxed);
    std::thread::sleep(WINDOW);
    let mut rates = Vec::new();
    let mut tries = 0;
    while (rates.len() as u32) < windows {
        let usage = Usage::now(&[]);
        let (begun, before) = (Instant::now(), told.answered.load(Ordering::Relaxed));
        std::thread::sleep(WINDOW);
        let answered = told.answered.load(Ordering::Relaxed) - before;
        let rate = answered as f64 / begun.elapsed().as_secs_f64();
        check("exchanging messages")?;
        if answered == 0 {
            bail!("no message was answered in {WINDOW:?} with {connections} connections open");
        }
        if usage.disturbance_since(&[]).is_quiet() || tries == RETRIES {
            rates.push(rate);
            tries = 0;
        } else {
            tries += 1;
        }
    }
    Ok(rates)
}
