//! An elastic thread on `shm`: what each of its steps takes, in batches of 1 to 64.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clock::Instant;
use dataplane::{Elastic, ElasticConfig, ElasticThread, ForwardPorts};
use measure::stats::{Line, line, median_of};
use measure::{Disturbance, Kept, Place, Stopwatch, Watch, contest, together};
use mem::{Pool, Region, TxFrame};
use nic::Nic;
use nic::shm::{ShmConfig, ShmNic};
use spin::{FRAME_BYTES, Frame};
use stack::{Shared, StackConfig};
use wire::{Endpoint, Ipv4Addr};

use super::found::{CalibrateError, Found, Measuring};
use crate::cores::app::SpinApp;
use crate::rig::{Caller, SECRETS};

const BATCHES: [usize; 6] = [1, 4, 8, 16, 32, 64];
const CONNECTIONS: usize = 64;
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 30, 0, 1), Ipv4Addr::new(10, 30, 0, 2)];
const PORT: u16 = 5_000;
/// Packet memory of one end: a block of 2 MB, so that little has to be cleared before each window.
const CHUNKS: usize = 1_023;
/// Of a window, the part in which connections are opened, caches warm and the other thread comes to pace.
const WARM_UP: f64 = 0.25;
/// Bytes of a frame that carries one request of the service, headers and all.
const FRAME: usize = 14 + 20 + 32 + FRAME_BYTES;

/// Has `caller` send bursts of `size` requests, one on each connection, each when all of the last one are answered.
fn bursts(client: &mut ElasticThread<ShmNic>, clock: Stopwatch, size: usize, over: &AtomicBool) {
    let server = Endpoint::new(ADDRESSES[0], PORT);
    let mut caller = Caller::new(CONNECTIONS, CONNECTIONS, vec![server], CONNECTIONS);
    let request = Frame { service_ns: 0, sequence: 0 }.to_bytes();
    caller.set_request(&request, &request);
    let mut next = (0..CONNECTIONS as u32).cycle();
    while !over.load(Ordering::Acquire) {
        if caller.open == CONNECTIONS && caller.is_idle() {
            next.by_ref().take(size).for_each(|index| caller.ask(index));
        }
        client.run_cycle(now(clock), &mut caller);
    }
}

/// One end, made in the thread that it will run in.
fn thread(side: usize, nic: ShmNic, region: &Arc<Region>) -> (Arc<Shared>, ElasticThread<ShmNic>) {
    let mut config = StackConfig::new(ADDRESSES[side], 24, nic.capabilities().mac);
    config.tcp_listen = vec![PORT];
    config.max_connections = 1_024;
    config.rx_checksums_verified = true;
    let shared = Arc::new(Shared::new(config, &SECRETS, 1));
    let pool = Pool::new(region, CHUNKS);
    let (ports, elastic) = (ForwardPorts::default(), ElasticConfig::default());
    let own = Arc::clone(&shared);
    (shared, ElasticThread::new(0, own, nic, pool, ports, elastic, Instant::ZERO))
}

fn now(clock: Stopwatch) -> Instant {
    Instant::from_nanos(clock.now_ns())
}

/// One window of bursts of `size` requests: the medians of what each phase took.
fn window(
    size: usize,
    window: Duration,
    place: Place<'_>,
) -> Result<(Phases, Disturbance), CalibrateError> {
    let (near, far) = ShmNic::pair(&ShmConfig::default(), &ShmConfig::default().far())?;
    let over = AtomicBool::new(false);
    let clock = Stopwatch::start();
    // Before the window: its memory is filled with zeros.
    let regions = [Region::heap(CHUNKS as u32), Region::heap(CHUNKS as u32)];
    let consumer = |watch: &mut Watch| {
        let (shared, mut server) = thread(0, near, &regions[0]);
        let found = serve(&mut server, &shared, (clock, watch), size, window);
        over.store(true, Ordering::Release);
        found
    };
    let other = |_: &mut Watch| {
        let (_, mut client) = thread(1, far, &regions[1]);
        bursts(&mut client, clock, size, &over);
    };
    Ok(together(place, consumer, other).map(|(found, (), disturbance)| (found, disturbance))?)
}

/// What the phases of a cycle took.
#[derive(Debug, Clone, Copy, Default)]
struct Phases {
    begin_ns: f64,
    crossing_ns: f64,
    finish_ns: f64,
    idle_ns: f64,
}

fn cycle(
    server: &mut ElasticThread<ShmNic>,
    shared: &Shared,
    app: &mut SpinApp,
    clock: Stopwatch,
) -> [u64; 4] {
    let at = now(clock);
    let begun = clock.now_ns();
    let has_events = server.begin(at);
    let received = clock.now_ns();
    if has_events {
        let (events, mut calls) = server.crossing(|| at);
        app.serve(at, 0, shared, events, &mut calls);
    }
    let served = clock.now_ns();
    server.finish(at);
    [begun, received, served, clock.now_ns()]
}

fn serve(
    server: &mut ElasticThread<ShmNic>,
    shared: &Shared,
    (clock, watch): (Stopwatch, &mut Watch),
    size: usize,
    window: Duration,
) -> Phases {
    let mut app = SpinApp::default();
    let mut samples: [Vec<f64>; 4] = Default::default();
    let looking_ns = look_ns(clock);
    let start = clock.now_ns();
    let warm = start + (window.as_nanos() as f64 * WARM_UP) as u64;
    let end = start + window.as_nanos() as u64;
    let mut last = start;
    while last < end {
        // The burst is whole before it is looked at, as it is after a wait; what else comes is served.
        if last >= warm && server.queues().rx_backlog() < size {
            let before = clock.now_ns();
            let mut polls = 0;
            while server.queues().rx_backlog() == 0 && polls < 64 {
                idle(server, clock);
                polls += 1;
            }
            let after = clock.now_ns();
            if polls == 64 {
                samples[3].push((after - before) as f64 / 64.0 - looking_ns);
            }
            while server.queues().rx_backlog() < size && clock.now_ns() - after < 100_000 {
                std::hint::spin_loop();
            }
        }
        let packets = server.stats().packets;
        let [begun, received, served, finished] = cycle(server, shared, &mut app, clock);
        // Opening connections in memory that is touched for the first time takes long by itself.
        if last >= warm {
            watch.gap(finished - begun);
        }
        let warmed = last >= warm;
        last = finished;
        if warmed && server.stats().packets - packets == size as u64 {
            let marks = [begun, received, served, finished];
            for (phase, pair) in samples.iter_mut().zip(marks.windows(2)) {
                phase.push((pair[1] - pair[0]) as f64 - looking_ns);
            }
        }
    }
    let [begin_ns, crossing_ns, finish_ns, idle_ns] = samples.map(median_of);
    Phases { begin_ns, crossing_ns, finish_ns, idle_ns }
}

/// A cycle that finds nothing.
fn idle(server: &mut ElasticThread<ShmNic>, clock: Stopwatch) {
    let at = now(clock);
    if !server.begin(at) {
        server.finish(at);
    }
}

/// What looking at the clock takes: the least of some lots, as one that was disturbed would be taken off
/// everything.
fn look_ns(clock: Stopwatch) -> f64 {
    let lot = |_| {
        let before = clock.now_ns();
        for _ in 0..64 {
            std::hint::black_box(clock.now_ns());
        }
        (clock.now_ns() - before) as f64 / 65.0
    };
    (0..8).map(lot).fold(f64::MAX, f64::min)
}

/// The driver alone, both ways: what receiving and sending a frame takes without a stack.
fn driver(
    size: usize,
    window: Duration,
    place: Place<'_>,
) -> Result<((f64, f64), Disturbance), CalibrateError> {
    let (near, far) = ShmNic::pair(&ShmConfig::default(), &ShmConfig::default().far())?;
    let over = AtomicBool::new(false);
    let region = || Region::heap(1_024);
    let (here, there) = (region(), region());
    let consumer = |watch: &mut Watch| {
        let found = bounce(near, Pool::new(&here, 512), Some((size, window)), &over, watch);
        over.store(true, Ordering::Release);
        found
    };
    let other = |watch: &mut Watch| {
        let mut far = far;
        let mut pool = Pool::new(&there, 512);
        let mut frames: Vec<TxFrame> = (0..size)
            .filter_map(|_| {
                let mut mbuf = pool.alloc().ok()?;
                mbuf.append(&[0; FRAME]).ok()?;
                Some(mbuf.into_tx())
            })
            .collect();
        far.transmit(Instant::ZERO, &mut pool, &mut frames);
        bounce(far, pool, None, &over, watch)
    };
    Ok(together(place, consumer, other).map(|(found, _, disturbance)| (found, disturbance))?)
}

/// Sends back whatever comes, and times it in bursts of a size, if told to.
fn bounce(
    mut nic: ShmNic,
    mut pool: Pool,
    timed: Option<(usize, Duration)>,
    over: &AtomicBool,
    watch: &mut Watch,
) -> (f64, f64) {
    let clock = Stopwatch::start();
    let looking_ns = look_ns(clock);
    let (mut receiving, mut sending) = (Vec::new(), Vec::new());
    let mut mbufs = Vec::with_capacity(64);
    let mut frames = Vec::with_capacity(64);
    let start = clock.now_ns();
    let (size, warm, end) = timed.map_or((1, u64::MAX, u64::MAX), |(size, window)| {
        let window_ns = window.as_nanos() as u64;
        (size, start + (window_ns as f64 * WARM_UP) as u64, start + window_ns)
    });
    while !over.load(Ordering::Relaxed) && clock.now_ns() < end {
        if nic.rx_backlog() < size {
            std::hint::spin_loop();
            continue;
        }
        let begun = clock.now_ns();
        let taken = nic.receive(Instant::ZERO, &mut pool, &mut mbufs, 64);
        let received = clock.now_ns();
        frames.extend(mbufs.drain(..).map(mem::Mbuf::into_tx));
        let from = clock.now_ns();
        nic.transmit(Instant::ZERO, &mut pool, &mut frames);
        nic.reclaim(&mut pool);
        let sent = clock.now_ns();
        if begun >= warm {
            watch.gap(sent - begun);
        }
        if begun >= warm && taken == size {
            receiving.push((received - begun) as f64 - looking_ns);
            sending.push((sent - from) as f64 - looking_ns);
        }
    }
    (median_of(receiving), median_of(sending))
}

/// Measures all steps.
pub(super) fn measure(into: &mut Measuring<'_>) -> Result<(), CalibrateError> {
    let (length, place, plan) = (into.effort.window, into.place, into.effort.plan());
    let mut sizes = BATCHES;
    let whole = contest(&mut sizes, plan, |size| window(*size, length, place))?;
    let bare = contest(&mut sizes, plan, |size| driver(*size, length, place))?;
    let begin = into.through("steps 1 and 2", &whole, |phases| phases.begin_ns)?;
    let crossing = into.through("step 3", &whole, |phases| phases.crossing_ns)?;
    let finish = into.through("steps 4 to 6", &whole, |phases| phases.finish_ns)?;
    let receive = into.through("the driver's receive", &bare, |both| both.0)?;
    let transmit = into.through("the driver's transmit", &bare, |both| both.1)?;
    // All windows wait for bursts; the smallest waits most.
    let idle = of_all_sizes(&whole, |phases| phases.idle_ns);
    let idle = Found::of("a poll that finds nothing", "idle polls", &idle, |ns| *ns)?;
    let costs = &mut into.costs;
    costs.cycle = idle.median_ns;
    into.found.push(idle);
    costs.receive = receive.each.min(begin.each);
    costs.segment = (begin.each - receive.each).max(0.0);
    costs.crossing = crossing.once;
    costs.event = crossing.each;
    costs.call = (finish.each - transmit.each).max(0.0) / 2.0;
    costs.transmit = transmit.each.min(finish.each);
    // What a busy cycle takes once beside the poll.
    costs.doorbell = (begin.once + finish.once - costs.cycle).max(0.0);
    Ok(())
}

/// One number of the windows of all sizes: of the quiet ones; where no size had any, of all, marked as disturbed.
fn of_all_sizes<T>(kept: &[Kept<T>], of: impl Fn(&T) -> f64) -> Kept<f64> {
    let is_quiet = kept.iter().any(|kept| kept.quiet() > 0);
    let counted = kept.iter().filter(|kept| !is_quiet || kept.quiet() > 0);
    let found: Vec<f64> = counted.flat_map(|kept| kept.values(&of)).collect();
    Kept {
        discarded: kept.iter().map(|kept| kept.discarded).sum(),
        disturbed: kept.iter().filter(|_| !is_quiet).find_map(|kept| kept.disturbed),
        ..Kept::from(found)
    }
}

impl Measuring<'_> {
    /// The line of one phase over the sizes of bursts. Adds what was found at each.
    fn through<T>(
        &mut self,
        name: &'static str,
        kept: &[Kept<T>],
        of: impl Fn(&T) -> f64,
    ) -> Result<Line, CalibrateError> {
        let mut points = Vec::new();
        for (size, kept) in BATCHES.iter().zip(kept) {
            // A size that never came whole in a window has no point; the line needs but two.
            if let Ok(one) = Found::of(format!("{name}, {size} together"), name, kept, &of) {
                points.push((*size as f64, one.median_ns));
                self.found.push(one);
            }
        }
        line(&points).ok_or(CalibrateError::Nothing { what: name, windows: kept.len() })
    }
}
