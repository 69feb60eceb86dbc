//! A dataplane of two elastic threads on two processors, joined by shared memory to a client at the second one:
//! what a scheduler does with real threads.
//!
//! Requests carry a connection's number, their number on it, and a service time. The service spins for that
//! time, checks that it sees the requests of a connection in order, and returns them. It keeps nothing of a
//! connection but its next number, which stands in a place without a lock: a scheduler that let two cores
//! have a connection, or lost the order between them, would be found out.
//!
//! There are two processors, and both have an elastic thread: the client is called from the second one's, whenever
//! something is due, also while its service spins. That time is noted, and so is any other in which the threads
//! did not run.

mod config;
mod found;
mod guest;
mod interruptions;
mod service;
mod split;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clock::{Clock, MonotonicClock};
use dataplane::{
    CycleStats, Driver, Elastic, ElasticConfig, ElasticThread, Floor, Parts, forwarding_mesh,
};
use measure::{SetsAtEnd, pin};
use mem::{Pool, Region};
use nic::shm::{ShmConfig, ShmNic};
use stack::{Secrets, Shared, StackConfig};
use wire::{Ipv4Addr, MacAddr};

pub use config::{Arrivals, Config, Scheduler};
pub use found::{Found, TwoCoresError};

use config::RUN_MAX;
use guest::Guest;
use interruptions::{IDLING, Interruptions};
use service::{Seen, Spinning};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
const PORT: u16 = 2000;

/// A stack of one end of the wire.
fn shared(address: Ipv4Addr, mac: MacAddr, cores: u8, seed: u64) -> Arc<Shared> {
    let mut config = StackConfig::new(address, 24, mac);
    config.tcp_listen = vec![PORT];
    config.rx_checksums_verified = true;
    let byte = |place: u8| place.wrapping_mul(31).wrapping_add(seed as u8);
    let secrets = Secrets {
        rss_key: wire::MICROSOFT_KEY,
        isn_key: [byte(1); 16],
        port_key: [byte(2); 16],
        offset: seed as u32,
    };
    Arc::new(Shared::new(config, &secrets, cores))
}

/// What the threads of a run have in common.
struct Signals {
    /// One for all: its copies have one origin.
    clock: MonotonicClock,
    /// All connections are open.
    ready: AtomicBool,
    stop: AtomicBool,
}

impl Signals {
    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Runs it.
///
/// # Errors
/// [`TwoCoresError`].
pub fn run(config: &Config) -> Result<Found, TwoCoresError> {
    let server = shared(SERVER, MACS[0], if config.one_sided { 1 } else { 2 }, config.seed);
    let region = Region::heap(16_384);
    let wires = ShmConfig { slots: 4_096, ..ShmConfig::default() };
    let (mut ends, mut parts) = (Vec::new(), Vec::new());
    for ports in forwarding_mesh(2, 1_024) {
        let (near, far) = ShmNic::pair(&wires, &wires.far())?;
        ends.push(far);
        parts.push(Parts { queues: near.into(), pool: Pool::new(&region, 4_096), ports });
    }
    let signals = Signals {
        clock: MonotonicClock::new(),
        ready: AtomicBool::new(false),
        stop: AtomicBool::new(false),
    };
    let (elastic, now) = (ElasticConfig::default(), signals.clock.now());
    match config.scheduler {
        Scheduler::RunToCompletion => {
            let thread = |(core, Parts { queues, pool, ports })| {
                let shared = Arc::clone(&server);
                move || ElasticThread::new(core as u8, shared, queues, pool, ports, elastic, now)
            };
            serve(
                config,
                &signals,
                &server,
                ends,
                parts.into_iter().enumerate().map(thread).collect(),
            )
        }
        Scheduler::WorkConserving(conserving) => {
            let threads = Floor::threads(&server, parts, elastic, conserving, now);
            let threads = threads.into_iter().map(|thread| move || thread).collect();
            serve(config, &signals, &server, ends, threads)
        }
    }
}

fn serve<T: Elastic, F: FnOnce() -> T + Send>(
    config: &Config,
    signals: &Signals,
    server: &Arc<Shared>,
    ends: Vec<ShmNic>,
    threads: Vec<F>,
) -> Result<Found, TwoCoresError> {
    let seen = Seen {
        next: (0..config.connections).map(|_| AtomicU64::new(0)).collect(),
        out_of_order: AtomicU64::new(0),
        failures: AtomicU64::new(0),
    };
    let (seen, mut ends) = (&seen, Some(ends));
    let outcomes = std::thread::scope(|scope| {
        let mut handles = Vec::new();
        for (core, make) in threads.into_iter().enumerate() {
            // The client is at the second core.
            let ends = if core == 1 { ends.take() } else { None };
            handles.push(scope.spawn(move || {
                // Ends the others when this one ends, also by an error or a panic.
                let _stop = SetsAtEnd(&signals.stop);
                pin(core).map_err(TwoCoresError::Processors)?;
                let guest = ends.map(|ends| Guest::new(config, signals, server, ends));
                let service = Spinning::new(seen, server, signals.clock, guest);
                elastic_thread(make(), service, config, signals)
            }));
        }
        let joined = handles.into_iter().map(|handle| handle.join());
        joined.map(|end| end.map_err(|_| TwoCoresError::Panicked)?).collect::<Result<Vec<_>, _>>()
    })?;
    let (mut stats, mut interruptions, mut client) = (Vec::new(), Vec::new(), None);
    for (core, end) in outcomes.into_iter().enumerate() {
        stats.push(end.stats);
        interruptions.push((core, end.interruptions));
        client = client.or(end.client);
    }
    let (mut found, began) = client.ok_or(TwoCoresError::Panicked)?;
    for (core, seen) in interruptions {
        found.interruptions.extend(seen.since(core, began));
    }
    found.interruptions.sort_by_key(|interruption| interruption.after_ns);
    let total = |of: fn(&CycleStats) -> u64| stats.iter().map(of).sum();
    found.turns = total(|stats| stats.turns);
    found.stolen = total(|stats| stats.stolen);
    found.borrowed = total(|stats| stats.borrowed);
    found.out_of_order += seen.out_of_order.load(Ordering::Relaxed);
    found.failures += seen.failures.load(Ordering::Relaxed);
    Ok(found)
}

/// Both cores spin all the time, so none is asleep.
struct Spins(MonotonicClock);

impl Driver for Spins {
    fn now(&self) -> clock::Instant {
        self.0.now()
    }

    fn signal(&mut self, _wakes: u128, _kicks: u128) {}
}

/// What a thread ends with: at the second core also with what the client found, and when requests began.
struct End {
    stats: CycleStats,
    interruptions: Interruptions,
    client: Option<(Found, clock::Instant)>,
}

/// One thread: its dataplane, its service and, at the second core, the client.
fn elastic_thread<T: Elastic>(
    mut thread: T,
    mut service: Spinning<'_>,
    config: &Config,
    signals: &Signals,
) -> Result<End, TwoCoresError> {
    let clock = signals.clock;
    let mut raised = None;
    while !signals.stop.load(Ordering::Relaxed) {
        let now = clock.now();
        if config.realtime && raised.is_none() && signals.ready.load(Ordering::Relaxed) {
            runtime::set_realtime(1).map_err(|error| TwoCoresError::Priority(error.to_string()))?;
            raised = Some(now);
        }
        // The client ends the run; this is for when it cannot.
        if raised.is_some_and(|since| now.since(since) > RUN_MAX * 2) {
            break;
        }
        let progress = thread.cycle(now, &mut Spins(clock), &mut service);
        let after = clock.now();
        if !progress.worked {
            service.interruptions.looked(now, after, IDLING);
            if raised.is_none() {
                std::thread::yield_now();
            }
        }
        service.let_guest(after);
    }
    let Spinning { interruptions, guest, .. } = service;
    let stats = thread.stats();
    // What is on the wire is its peers' by now: all memory goes back with the last of them.
    thread.leave();
    Ok(End { stats, interruptions, client: guest.map(Guest::found).transpose()? })
}
