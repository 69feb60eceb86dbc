//! One run: sets the hosts up, moves the virtual clock from event to event, checks what is left.
//!
//! ```
//! use world::lossy::{Scenario, ScenarioConfig, run};
//! let outcome = run(1, &ScenarioConfig::new(Scenario::Echo));
//! assert!(outcome.ok, "{:?}", outcome.failure);
//! assert_eq!(outcome.digest, run(1, &ScenarioConfig::new(Scenario::Echo)).digest);
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use clock::{Duration, Instant};
use dataplane::CycleStats;
use nic::NicStats;
use tailplane::{Endpoint, Service};

use crate::dice::Dice;
use crate::lossy::client::{Client, ClientConfig};
use crate::lossy::host::{Host, HostConfig, Sharing};
use crate::lossy::scenario::{self, Load, PORT, Scenario};
use crate::lossy::variation::{Migrations, SchedulerChoice, Variation};
use crate::lossy::watch::{Living, SharedLedger, Watched, ensure};
use crate::network::{Capture, Faults, Network, NetworkStats, SharedNetwork};

/// Virtual time within which all connections must have ended: slow runs have tiny windows behind
/// retransmission time-outs of a second and more.
const TIME_LIMIT: Instant = Instant::from_millis(4 * 3_600_000);
/// Virtual time within which the last TIME-WAIT must be over and all memory back.
const SETTLE: Duration = Duration::from_secs(900);
/// Steps of one run: a run that gets nowhere in virtual time ends too.
const STEP_LIMIT: u64 = 20_000_000;

/// What to run.
#[derive(Clone, Debug)]
pub struct ScenarioConfig {
    /// The workload.
    pub scenario: Scenario,
    /// The network.
    pub faults: Faults,
    /// Whether seeds vary sizes, cores and limits; else all hosts are ordinary.
    pub vary: bool,
    /// Who runs the server's application.
    pub scheduler: SchedulerChoice,
    /// Whether, and how, the server's flow groups move from core to core.
    pub migrations: Option<Migrations>,
    /// Whether the server's application is elsewhere and has each batch for some time. Where cores share their
    /// work this changes nothing.
    pub distant: bool,
    /// Turns that each queue of a server holds whose cores share their work, in place of what the seed says: few let
    /// the queues fill. Such a server has several cores, and long crossings.
    pub turns: Option<usize>,
    /// The server has another number of queue pairs than cores, and several of these; else so do some servers, by seed.
    pub queues: bool,
    /// All hosts send and receive packets of 9,000 bytes, in several chunks of packet memory.
    pub jumbo: bool,
    /// Keep the frames that the server sends and receives.
    pub capture: bool,
    /// Share of the packets that the network cuts into fragments.
    pub fragments: f64,
}

impl ScenarioConfig {
    /// A workload with the usual faults, varied.
    pub fn new(scenario: Scenario) -> Self {
        Self {
            scenario,
            faults: Faults::usual(),
            vary: true,
            scheduler: SchedulerChoice::BySeed,
            migrations: None,
            distant: false,
            turns: None,
            queues: false,
            jumbo: false,
            capture: false,
            fragments: 0.0,
        }
    }
}

/// What happened in a run.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct RunStats {
    /// Virtual time until the last connection was completed, in microseconds.
    pub took_us: u64,
    /// Virtual time until all was quiet, in microseconds.
    pub quiet_us: u64,
    /// Steps of the simulation.
    pub steps: u64,
    /// Client connections completed.
    pub connections: u64,
    /// Payload bytes that applications were given.
    pub bytes: u64,
    /// Segments sent again, but for tail loss probes: where acknowledgments are late, nothing need be lost for one.
    pub retransmissions: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// Packets forwarded between cores.
    pub forwarded: u64,
    /// Turns of connections that were run on another core than their home.
    pub stolen: u64,
    /// Times that a core ran the network layer of another.
    pub borrowed: u64,
    /// Times that a kick had a core that was in the application run its network layer.
    pub kicked: u64,
    /// Migrations of flow groups, connections that moved with them, and packets that were deferred.
    pub migrations: u64,
    /// See above.
    pub moved_connections: u64,
    /// See above.
    pub deferred: u64,
    /// Segments that came out of order.
    pub out_of_order: u64,
    /// Packets put together from fragments.
    pub reassembled: u64,
    /// Allocations that found no memory.
    pub exhausted: u64,
    /// The network's counters.
    pub network: NetworkStats,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Whether all checks passed.
    pub ok: bool,
    /// What failed first.
    pub failure: Option<String>,
    /// Fingerprint of all frames and events in order: the same for the same seed.
    pub digest: u64,
    /// Counters.
    pub stats: RunStats,
    /// The frames that the server sent and received, where they were asked for.
    pub capture: Capture,
}

/// The command that replays a run.
pub fn replay_command(seed: u64, scenario: Scenario) -> String {
    format!("tailplane sim --seed {seed} --scenario {scenario}")
}

struct Simulation {
    network: SharedNetwork,
    ledger: SharedLedger,
    hosts: Vec<Host>,
    now: Instant,
    steps: u64,
}

/// Runs one seed. A panic of the code under test is a failure like any other.
pub fn run(seed: u64, config: &ScenarioConfig) -> Outcome {
    let outcome = guarded(|| Ok(Simulation::new(seed, config)?.run()));
    outcome.unwrap_or_else(|failure| Outcome { failure: Some(failure), ..Outcome::default() })
}

/// Runs one seed up to some moment in the middle of it, at which all hosts leave, with whatever is under way.
/// Each must get all of its packet memory back. Answers how many connections were reset.
///
/// # Errors
/// What went wrong, in words.
pub fn run_interrupted(seed: u64, config: &ScenarioConfig) -> Result<u64, String> {
    let whole = run(seed, config);
    if let Some(failure) = whole.failure {
        return Err(failure);
    }
    guarded(|| {
        let mut sim = Simulation::new(seed, config)?;
        let mut dice = Dice::new(seed, "leave", 0);
        let steps = dice.between(1, whole.stats.steps);
        while sim.steps < steps && sim.step(TIME_LIMIT) {}
        let mut reset = 0;
        for host in sim.hosts.drain(..) {
            reset += host.leave(sim.now, &mut dice)?.connections.reset;
        }
        Ok(reset)
    })
}

/// Runs `body`, whose panic is a failure like any other.
fn guarded<T>(body: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panicked: {}", text.unwrap_or("without a word")))
    })
}

/// Runs `count` seeds from `first` on, on `threads` threads. `each` is called with every outcome as it
/// comes; the answer is in the order of the seeds.
pub fn run_many(
    first: u64,
    count: u64,
    config: &ScenarioConfig,
    threads: usize,
    each: impl Fn(u64, &Outcome) + Sync,
) -> Vec<(u64, Outcome)> {
    let next = AtomicU64::new(0);
    let worker = || {
        let mut outcomes = Vec::new();
        loop {
            // Relaxed: only the number itself matters.
            let offset = next.fetch_add(1, Ordering::Relaxed);
            if offset >= count {
                return outcomes;
            }
            let seed = first.wrapping_add(offset);
            let outcome = run(seed, config);
            each(seed, &outcome);
            outcomes.push((offset, seed, outcome));
        }
    };
    let mut all = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(worker)).collect();
        // A worker catches what its runs do, so it has no reason to panic itself.
        workers.into_iter().filter_map(|worker| worker.join().ok()).flatten().collect::<Vec<_>>()
    });
    all.sort_by_key(|(offset, ..)| *offset);
    all.into_iter().map(|(_, seed, outcome)| (seed, outcome)).collect()
}

impl Simulation {
    fn new(seed: u64, config: &ScenarioConfig) -> Result<Self, String> {
        let mut variation = if config.vary { Variation::draw(seed) } else { Variation::ordinary() };
        if let Some(migrations) = &config.migrations {
            variation.migrate(seed, migrations);
        }
        if config.distant {
            variation.go_apart(seed);
        }
        if config.turns.is_some() || config.queues {
            variation.spread_out(seed);
        }
        variation.schedule(seed, config.scheduler);
        if config.vary || config.queues {
            variation.deal_queues(seed, config.queues);
        }
        if let Some(turns) = config.turns {
            variation.crowd(seed, turns);
        }
        if config.jumbo {
            variation.grow_frames();
        }
        if config.vary {
            variation.speak_ipv6(seed);
        }
        let network = Network::new(seed, config.faults);
        network.borrow_mut().cuts = config.fragments;
        if config.capture {
            network.borrow_mut().capture = Some(Capture::default());
        }
        let ledger: SharedLedger = Rc::default();
        let shares =
            !matches!(variation.server.sharing, Sharing::Not) || variation.server.moves.is_some();
        let shared = shares.then_some(variation.server.cores);
        let mut service = scenario::server(config.scenario, seed, shared)
            .map_err(|error| format!("cannot set the server up: {error}"))?;
        let living = Living::default();
        let server = Host::new(seed, 0, variation.server.clone(), &network, |core| {
            let (name, living) = (format!("server core {core}"), Rc::clone(&living));
            let (ledger, network) = (Rc::clone(&ledger), Rc::clone(&network));
            Box::new(Watched::new(service(core), name, ledger, network, living))
        });
        let mut sim = Self { network, ledger, hosts: vec![server], now: Instant::ZERO, steps: 0 };
        for (index, host) in variation.clients.iter().enumerate() {
            sim.add_client(seed, index as u64 + 1, host, config.scenario, &variation);
        }
        if let Some(path) = variation.path {
            (0..sim.hosts.len()).for_each(|port| sim.network.borrow_mut().set_path(port, path));
        }
        Ok(sim)
    }

    fn add_client(
        &mut self,
        seed: u64,
        number: u64,
        host: &HostConfig,
        scenario: Scenario,
        variation: &Variation,
    ) {
        let (network, ledger) = (Rc::clone(&self.network), Rc::clone(&self.ledger));
        let living = Living::default();
        let make = |core: u8| -> Box<dyn Service> {
            let client = number << 8 | core as u64;
            let mut dice = Dice::new(seed, "client", client);
            let load = Load::draw(scenario, &mut dice);
            let load = if variation.crowded { load.crowded() } else { load };
            ledger.borrow_mut().planned += load.connections;
            let config = ClientConfig {
                server: Endpoint::new(variation.target(seed, client), PORT),
                ports: variation.server.stack.tcp_listen.len() as u16,
                slots: load.slots,
                open_within: variation.open_within,
                hold: variation.hold,
                piece: variation.piece,
            };
            let script = move |number| scenario::script(scenario, seed, client, number);
            let scripts = (0..load.connections).map(script);
            let service = Client::new(config, scripts, Rc::clone(&ledger), dice);
            let name = format!("client {number} core {core}");
            let living = Rc::clone(&living);
            Box::new(Watched::new(service, name, Rc::clone(&ledger), Rc::clone(&network), living))
        };
        self.hosts.push(Host::new(seed, number, host.clone(), &network, make));
    }

    /// Goes on to the next moment at which something happens, unless that is after `limit`.
    fn step(&mut self, limit: Instant) -> bool {
        let arrival = self.network.borrow().next_due();
        let poll = self.hosts.iter().map(Host::next_poll).min();
        let Some(next) = arrival.into_iter().chain(poll).min() else { return false };
        if next > limit || next == Instant::FAR_FUTURE {
            return false;
        }
        self.now = self.now.max(next);
        self.steps += 1;
        let Self { network, hosts, now, .. } = self;
        let mut woken = Vec::new();
        network.borrow_mut().deliver(*now, |port, queue| woken.push((port, queue)));
        for (port, queue) in woken {
            // Hosts were attached in their order.
            hosts[port].wake(queue, *now);
        }
        hosts.iter_mut().for_each(|host| host.run(*now));
        true
    }

    fn over(&self) -> bool {
        let ledger = self.ledger.borrow();
        ledger.failure.is_some()
            || (ledger.completed == ledger.planned && ledger.ended == ledger.begun)
    }

    fn run(mut self) -> Outcome {
        while !self.over() && self.steps < STEP_LIMIT && self.step(TIME_LIMIT) {}
        let mut failure = self.ledger.borrow_mut().failure.take();
        if let Some(text) = &mut failure {
            self.hosts.iter().for_each(|host| text.push_str(&host.describe()));
        }
        if failure.is_none() && !self.over() {
            failure = Some(self.stuck());
        }
        if failure.is_none() {
            // What is left are connections in TIME-WAIT, and frames on their way.
            self.network.borrow_mut().heal();
            let quiet_by = self.now + SETTLE;
            while self.steps < STEP_LIMIT && self.step(quiet_by) {}
            failure = self.ledger.borrow_mut().failure.take();
            failure = failure.or_else(|| self.audit().err());
        }
        self.outcome(failure)
    }

    fn stuck(&self) -> String {
        let ledger = self.ledger.borrow();
        let why = if self.steps >= STEP_LIMIT { "steps" } else { "virtual time" };
        let mut text = format!(
            "not over at {} us for want of {why} ({} steps): {} of {} connections completed, {} \
             began, {} ended",
            self.now.as_micros(),
            self.steps,
            ledger.completed,
            ledger.planned,
            ledger.begun,
            ledger.ended
        );
        for host in &self.hosts {
            text.push_str(&host.describe());
        }
        text
    }

    fn audit(&self) -> Result<(), String> {
        let stats = self.network.borrow().stats;
        self.network.borrow().audit()?;
        self.hosts.iter().try_for_each(Host::audit)?;
        let total = |name| self.hosts.iter().map(|host| host.stack_total(name)).sum::<u64>();
        let (sent, received) = (total("tcp_bytes_out"), total("tcp_bytes_in"));
        let told = self.ledger.borrow().bytes;
        let is_same = sent == received && received == told;
        ensure(is_same, || format!("{sent} bytes sent, {received} received, {told} told"))?;
        let (accepted, connected) = (total("tcp_accepted"), total("tcp_connected"));
        let is_same = accepted == connected;
        ensure(is_same, || format!("{accepted} connections accepted, {connected} made"))?;
        let frames = |of: fn(&NicStats) -> u64| -> u64 {
            self.hosts.iter().map(|host| host.nic_total(of)).sum()
        };
        let (handed, sent) = (frames(|nic| nic.tx_frames), stats.sent);
        ensure(handed == sent, || format!("{handed} frames handed to devices, {sent} sent"))?;
        let lost = frames(|nic| nic.rx_no_buffer + nic.rx_dropped + nic.rx_unfit);
        let taken = frames(|nic| nic.rx_frames) + lost;
        let arrived = stats.arrived + stats.resegmented;
        ensure(taken == arrived, || format!("{arrived} frames arrived, {taken} were taken"))
    }

    fn outcome(&self, failure: Option<String>) -> Outcome {
        let total = |name| self.hosts.iter().map(|host| host.stack_total(name)).sum::<u64>();
        let ledger = self.ledger.borrow();
        let mut network = self.network.borrow_mut();
        let cycles = |of: fn(&CycleStats) -> u64| -> u64 {
            self.hosts.iter().map(|host| host.cycle_total(of)).sum()
        };
        let moves = self.hosts[0].migrations();
        let stats = RunStats {
            took_us: ledger.completed_at.as_micros(),
            quiet_us: self.now.as_micros(),
            steps: self.steps,
            connections: ledger.completed,
            bytes: ledger.bytes,
            retransmissions: total("tcp_retransmissions").saturating_sub(total("tcp_tail_probes")),
            timeouts: total("tcp_timeouts"),
            forwarded: total("forwarded"),
            stolen: cycles(|cycle| cycle.stolen),
            borrowed: cycles(|cycle| cycle.borrowed),
            kicked: cycles(|cycle| cycle.kicked),
            migrations: moves.completed,
            moved_connections: moves.connections,
            deferred: moves.packets,
            out_of_order: total("tcp_out_of_order"),
            reassembled: total("reassembled"),
            exhausted: self.hosts.iter().map(Host::exhausted).sum(),
            network: network.stats,
        };
        network.digest.word(self.now.as_nanos());
        network.digest.word(stats.steps);
        let digest = network.digest.value();
        let capture = network.capture.take().unwrap_or_default();
        Outcome { ok: failure.is_none(), failure, digest, stats, capture }
    }
}
