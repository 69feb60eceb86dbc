//! The simulation: N cores, a client and a wire on one virtual clock.
//!
//! What happens next is the earliest of: a frame arrives at the server, a frame arrives at the client, a
//! request comes due, a core takes its next step. At one moment they happen in that order.
//!
//! A core's cycle is three steps of the simulation: the real elastic thread runs steps 1 and 2 (`begin`), and
//! what that costs passes; the application runs, and what it costs passes, with the requests' service times;
//! the thread runs steps 4 to 6 (`finish`), what that costs passes, and the frames are on the wire. Whatever
//! a step changes that other cores can see, they see from the step's own moment on, and those that poll notice it
//! at the step's end. A core that sleeps notices nothing: it is woken at the end of a step by whoever the thread
//! says, as real threads are, by its device, or by its timer. Who runs another core's network layer has it until the
//! step's end: its home waits.

use std::sync::Arc;

use clock::{DueQueue, Duration, Instant};
use dataplane::{
    Elastic, ElasticConfig, ElasticThread, ForwardPorts, MigrationStats, Parts, Progress,
    forwarding_mesh,
};
use mem::{HugePages, Pool, Region};
use queueing::{Tail, Window, replication_seed};
use stack::{Secrets, Shared, StackConfig};
use statseg::Words;
use wire::{Endpoint, Ipv4Addr, MICROSOFT_KEY, MacAddr};

use crate::cores::app::SpinApp;
use crate::cores::client::{Arrivals, Client};
use crate::cores::core::{Budget, Core, Counts, Nap, Next, Noticing, after};
use crate::cores::error::WorldError;
use crate::cores::governor::{Governance, Governor};
use crate::cores::moves::Moves;
use crate::cores::outcome::Outcome;
use crate::cores::replay::Interruption;
use crate::cores::scheduler::{CoreParts, Looks, Scheduler};
use crate::cores::setup::{Run, Setup};

use crate::device::Device;
use crate::dice::Dice;
use crate::network::{Network, SharedNetwork, Spread};
use crate::port::{PortConfig, VirtualNic};

mod governed;

pub use governed::govern;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 2);
const SERVER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const CLIENT_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const PORT: u16 = 5_000;
/// Where the two are plugged in.
const SERVER_PORT: usize = 0;
const CLIENT_PORT: usize = 1;
/// Longest frame, with the Ethernet header.
const FRAME_BYTES_MAX: usize = 1514;
/// Frames that wait in one receive queue at most: more than the client can have outstanding.
const RING_FRAMES: usize = 1 << 16;
/// Packet memory of a core beside what its connections hold. A connection holds what it has sent and has no
/// acknowledgment for: as many as may be unanswered, but rarely more than so many.
const CHUNKS_CORE: usize = 512;
const CHUNKS_CONNECTION_MAX: usize = 6;
/// Packets of another core's flow groups that may wait for it.
const FORWARD_PACKETS: usize = 1_024;
/// Steps at one and the same moment after which the clock is taken to stand still.
const STILL_STEPS: u64 = 1 << 20;
/// Unanswered requests for each core from which on a run is overloaded: they only grow.
const OPEN_PER_CORE: u64 = 20_000;

/// A simulated server with its clients, all connections open.
pub(crate) struct World<'a, T: Elastic> {
    setup: Setup,
    threads: Vec<T>,
    cores: Vec<Core>,
    /// When each core takes its next step, side by side: all of them are looked at in every step.
    times: Vec<Instant>,
    looks: Looks,
    noticing: Noticing,
    device: Arc<Device>,
    app: SpinApp,
    host: ElasticThread<VirtualNic>,
    client: Client,
    /// When the client's host has something to do by itself: a timer.
    host_timer: Option<Instant>,
    /// The server's and the client's.
    memory: [Arc<Region>; 2],
    network: SharedNetwork,
    /// Frames have come to the client.
    answered: bool,
    /// Kicks on their way, each with the core that it will interrupt.
    kicks: DueQueue<usize>,
    now: Instant,
    /// When the run began, and how many of a replay's interruptions there were.
    began: Instant,
    interrupted: usize,
    moves: Option<Moves>,
    governor: Option<Governor<'a>>,
    window: Window,
    steps: u64,
    /// Steps since the clock moved.
    still: u64,
}

/// Runs `setup` under `scheduler` at one load.
///
/// ```
/// use world::cores::{Costs, Run, RunToCompletion, Setup, simulate};
/// use queueing::Law;
/// let setup = Setup { cores: 2, connections: 64, ..Setup::zygos(Costs::zero(), Law::Exponential, 10.0) };
/// let outcome = simulate(&RunToCompletion, &setup, &Run::new(0.5, 5_000))?;
/// assert_eq!(outcome.due, outcome.latency_ns.count());
/// assert!(outcome.latency_us(0.99) > 46.0);
/// # Ok::<(), world::cores::WorldError>(())
/// ```
///
/// # Errors
/// A setting out of its range; a promise broken by what was simulated ([`WorldError::Failed`]).
pub fn simulate<S: Scheduler>(
    scheduler: &S,
    setup: &Setup,
    run: &Run,
) -> Result<Outcome, WorldError> {
    setup.validate()?;
    run.validate()?;
    let began = std::time::Instant::now();
    let mut world = World::new(scheduler, setup, run, None)?;
    let outcome = world.open().and_then(|()| world.measure(run));
    let memory = world.close();
    debug_assert!(
        memory.iter().all(|region| region.depot_len() == region.chunks() as usize),
        "packet memory is lost to the process: {memory:?}"
    );
    outcome.map(|outcome| Outcome { took: began.elapsed(), ..outcome })
}

fn queue_pair(network: &SharedNetwork, port: usize, queue: usize) -> VirtualNic {
    let config = PortConfig {
        max_frame_bytes: FRAME_BYTES_MAX,
        ring_frames: RING_FRAMES,
        longest_read: Duration::ZERO,
        rx_checksums_verified: true,
        tx_checksum_offload: false,
    };
    VirtualNic::new(network.clone(), port, queue, config, Dice::new(0, "device", 0))
}

/// Packet memory. Mapped, most of it is never touched; the heap's would be filled with zeros at each run.
fn region(chunks: usize) -> Arc<Region> {
    Region::map(chunks, HugePages::No).unwrap_or_else(|_| Region::heap(chunks as u32))
}

fn secrets(seed: u64) -> Secrets {
    // The hash's key is the published one, whose spread over flow groups is known.
    let half = |index| u128::from(replication_seed(seed, index));
    let bytes = |index| (half(index) << 64 | half(index + 1)).to_be_bytes();
    Secrets { rss_key: MICROSOFT_KEY, isn_key: bytes(0), port_key: bytes(2), offset: seed as u32 }
}

fn stack_config(address: Ipv4Addr, mac: MacAddr, setup: &Setup) -> StackConfig {
    let mut config = StackConfig::new(address, 24, mac);
    config.max_connections = setup.connections as u32 + 16;
    // Nothing damages a frame here.
    config.rx_checksums_verified = true;
    config
}

impl<'a, T: Elastic> World<'a, T> {
    // long: makes one part after another, each in a line or a few.
    fn new<S: Scheduler<Thread = T>>(
        scheduler: &S,
        setup: &Setup,
        run: &Run,
        governance: Option<(Governance<'a>, &'a [Box<Words>])>,
    ) -> Result<Self, WorldError> {
        let (cores, now) = (setup.cores, Instant::ZERO);
        let secrets = secrets(run.seed);
        let network = Network::staged(RING_FRAMES);
        for (mac, queues) in [(SERVER_MAC, cores), (CLIENT_MAC, 1)] {
            network.borrow_mut().attach(mac, queues, Spread::OneQueue);
        }
        let mut config = stack_config(SERVER, SERVER_MAC, setup);
        config.tcp_listen = vec![PORT];
        let shared = Arc::new(Shared::new(config, &secrets, cores as u8));
        // Flow groups are dealt out before anybody has one.
        let homes = governance.as_ref().map(|(governance, _)| governance.controller.found().homes);
        for (group, home) in (0..).zip(homes.into_iter().flatten()) {
            shared.set_home(group, home.0 as u8);
        }
        // Half of a pool is for what was sent. What a core has too little of, it finds in the depot.
        let held = CHUNKS_CONNECTION_MAX.min(setup.pipeline + 1) * setup.connections;
        let keep = 2 * (CHUNKS_CORE + held / cores);
        // A scheduler may keep a second pool for each core, as large as the first one's fixed part.
        // Under a governor, one core may have all connections.
        let spare = if governance.is_some() { held } else { held / 4 };
        let memory = region(cores * (keep + CHUNKS_CORE) + spare);
        let part = |(core, ports)| Parts {
            queues: queue_pair(&network, SERVER_PORT, core).into(),
            pool: Pool::new(&memory, keep),
            ports,
        };
        let mesh = forwarding_mesh(cores, FORWARD_PACKETS);
        let mut threads = scheduler.threads(CoreParts {
            shared: Arc::clone(&shared),
            cores: mesh.into_iter().enumerate().map(part).collect(),
            config: ElasticConfig { batch: setup.batch, ..ElasticConfig::default() },
            now,
        });
        if threads.len() != cores {
            let (scheduler, made) = (scheduler.name(), threads.len());
            return Err(WorldError::Threads { scheduler, made, cores });
        }
        let pattern = governance.as_ref().map(|(governance, _)| governance.pattern());
        let device = Device::new(&shared, true);
        let governor = governance.map(|(governance, words)| {
            Governor::new(governance, words, &mut threads, &device, setup)
        });
        let moves = setup.move_every_ns.map(|every_ns| {
            Moves::new(&mut threads, &device, every_ns, replication_seed(run.seed, 5))
        });
        let host_keep = 2 * (CHUNKS_CORE + held);
        let host_memory = region(host_keep + 64);
        let host_config = stack_config(CLIENT, CLIENT_MAC, setup);
        let host = ElasticThread::new(
            0,
            Arc::new(Shared::new(host_config, &secrets, 1)),
            queue_pair(&network, CLIENT_PORT, 0),
            Pool::new(&host_memory, host_keep),
            ForwardPorts::default(),
            ElasticConfig::default(),
            now,
        );
        let arrivals = Arrivals {
            seed: replication_seed(run.seed, 4),
            law: setup.law,
            mean_ns: setup.mean_us * 1e3,
            gap_ns: 1e9 / setup.rate(run.load),
            balanced: setup.balanced,
            pipeline: setup.pipeline,
            pattern,
            replay: setup.replay.clone(),
            closed: None,
        };
        Ok(Self {
            threads,
            cores: vec![Core::new(now); cores],
            times: vec![now; cores],
            looks: scheduler.looks(),
            noticing: Noticing {
                poll_ns: setup.costs.cycle,
                sleep_after_ns: setup.sleep_after_ns.map(|ns| ns as f64),
                wake_ns: setup.costs.wake,
            },
            device,
            app: SpinApp::default(),
            host,
            client: Client::new(arrivals, setup.connections, cores, Endpoint::new(SERVER, PORT)),
            host_timer: Some(now),
            memory: [memory, host_memory],
            network,
            answered: false,
            kicks: DueQueue::with_capacity(cores),
            now,
            began: Instant::FAR_FUTURE,
            interrupted: 0,
            moves,
            governor,
            window: Window { start: f64::MAX, end: f64::MAX },
            steps: 0,
            still: 0,
            setup: setup.clone(),
        })
    }

    /// Until all connections are open.
    fn open(&mut self) -> Result<(), WorldError> {
        while !self.client.is_open() {
            self.step("opening connections")?;
            self.check()?;
        }
        Ok(())
    }

    /// The run itself.
    fn measure(&mut self, run: &Run) -> Result<Outcome, WorldError> {
        let gap_ns = 1e9 / self.setup.rate(run.load);
        let now_ns = self.now.as_nanos() as f64;
        self.began = self.now;
        self.moves.iter_mut().for_each(|moves| moves.next = self.now);
        self.window = match self.setup.replay.as_deref() {
            Some(replay) => Window { start: now_ns, end: now_ns + replay.last_ns() as f64 + 1.0 },
            None => {
                let start = now_ns + run.warmup as f64 * gap_ns;
                Window { start, end: start + run.requests as f64 * gap_ns }
            }
        };
        let bound_ns = run.objective.map_or(f64::MAX, |objective| objective.bound_us * 1e3);
        self.client.start(self.now, self.window, bound_ns);
        // Requests that may be late before the objective is missed for certain.
        let late_max = match run.objective {
            Some(objective) if objective.give_up => {
                ((1.0 - objective.share) * run.requests as f64 * 1.05) as u64 + 100
            }
            _ => u64::MAX,
        };
        let open_max = OPEN_PER_CORE * self.setup.cores as u64;
        let mut given_up = false;
        // Arrivals go on until all who came in the window have their answers.
        let patience = after(self.now, self.window.end - self.now.as_nanos() as f64) + PATIENCE;
        while !self.is_over() {
            self.step("serving requests")?;
            if self.now > patience {
                return Err(self.stalled("waiting for the last answers"));
            }
            if self.client.open_requests > open_max || self.client.found.above > late_max {
                given_up = true;
                break;
            }
        }
        self.check()?;
        Ok(self.outcome(run, given_up))
    }

    /// Takes all apart, and answers the packet memory: it goes back to the system only when every chunk has
    /// come back.
    fn close(self) -> [Arc<Region>; 2] {
        for thread in self.threads {
            thread.leave();
        }
        Elastic::leave(self.host);
        self.memory
    }

    fn is_over(&self) -> bool {
        self.now.as_nanos() as f64 >= self.window.end
            && self.client.found.answered >= self.client.found.due
    }

    /// What was promised: nothing lost, nothing twice, each connection in its order.
    fn check(&self) -> Result<(), WorldError> {
        let found = &self.client.found;
        let failures = found.failures + self.app.failures;
        let dropped = self.network.borrow().stats.overflowed;
        if found.wrong + failures + dropped > 0 {
            return Err(WorldError::Failed(format!(
                "{} answers were wrong or out of their connection's order, {failures} calls failed, \
                 {dropped} frames were dropped",
                found.wrong
            )));
        }
        Ok(())
    }

    fn outcome(&mut self, run: &Run, given_up: bool) -> Outcome {
        let found = std::mem::take(&mut self.client.found);
        let latency_ns: Tail = found.latency;
        let ended = (self.now.as_nanos() as f64).min(self.window.end);
        Outcome {
            load: run.load,
            above: found.above as f64 / found.answered.max(1) as f64,
            given_up,
            due: found.due,
            completed: found.completed,
            window_ns: (ended - self.window.start).max(1.0),
            service_ns: found.service_ns / found.due.max(1) as f64,
            budgets: self.cores.iter().map(|core| core.budget).collect(),
            counts: self.cores.iter().map(|core| core.counts).collect(),
            homes: self.client.homes().collect(),
            steps: self.steps,
            took: std::time::Duration::ZERO,
            answered: found.all,
            naps: self.cores.iter().map(|core| self.naps(core)).collect(),
            migrations: self.migrations(),
            latency_ns,
        }
    }

    fn naps(&self, core: &Core) -> Vec<Nap> {
        let at = |at: Instant| at.since(self.began).as_nanos() as u64;
        let nap = |&(from, to): &(Instant, Instant)| Nap {
            from_ns: at(from),
            to_ns: if to == Instant::FAR_FUTURE { u64::MAX } else { at(to) },
        };
        core.naps.iter().filter(|(_, to)| *to > self.began).map(nap).collect()
    }

    fn migrations(&self) -> MigrationStats {
        let mut total = MigrationStats::default();
        self.threads.iter().for_each(|thread| total += thread.migrations());
        total
    }

    /// The next thing that happens.
    fn step(&mut self, doing: &'static str) -> Result<(), WorldError> {
        let far = Instant::FAR_FUTURE;
        let arrival = self.network.borrow().next_due().unwrap_or(far);
        let answer = if self.answered { self.now } else { far };
        let host = self.client.next_due().unwrap_or(far).min(self.host_timer.unwrap_or(far));
        let core = self.times.iter().copied().min().unwrap_or(far);
        let kick = self.kicks.next_due().unwrap_or(far);
        let (taken, interruption) = self.interruption().unzip();
        let taken = taken.unwrap_or(far);
        let moves = self.moves.as_ref().map_or(far, |moves| moves.next).max(self.now);
        let governed = self.governor.as_ref().map_or(far, Governor::next).max(self.now);
        let next = arrival.min(answer).min(host).min(kick).min(core).min(taken).min(moves);
        let next = next.min(governed);
        debug_assert!(next >= self.now, "time goes on");
        self.steps += 1;
        self.still = if next > self.now { 0 } else { self.still + 1 };
        if next == far || self.still > STILL_STEPS {
            return Err(self.stalled(doing));
        }
        self.now = next;
        if arrival == next && self.arrive() {
            // Then whoever has something to do since.
        } else if self.answered || host == next {
            self.run_client();
        } else if let Some(interruption) = interruption.filter(|_| taken == next) {
            self.interrupted += 1;
            self.take_from(interruption.core, interruption.took_ns);
        } else if governed == next {
            self.govern();
        } else if moves == next {
            let asked = self.moves.as_mut().and_then(|moves| moves.act(next));
            asked.into_iter().for_each(|core| self.wake_one(core, next));
        } else if kick == next {
            while let Some(index) = self.kicks.pop_due(next) {
                self.interrupt(index);
                self.times[index] = self.cores[index].at;
            }
        } else if let Some(index) = self.times.iter().position(|at| *at == next) {
            self.run_core(index);
            self.times[index] = self.cores[index].at;
            self.after_step();
        }
        Ok(())
    }

    #[cold]
    fn stalled(&self, doing: &'static str) -> WorldError {
        WorldError::Failed(format!(
            "{doing}: given up after {} steps at {} ns of virtual time, with {} requests unanswered",
            self.steps,
            self.now.as_nanos(),
            self.client.open_requests
        ))
    }

    /// Frames reach the queues. Answers whether any of the server's.
    fn arrive(&mut self) -> bool {
        let Self { network, cores, times, noticing, now, answered, .. } = self;
        let mut came = false;
        network.borrow_mut().deliver(*now, |port, queue| match port {
            SERVER_PORT => {
                came = true;
                cores[queue].wake(*now, noticing);
                times[queue] = cores[queue].at;
            }
            _ => *answered = true,
        });
        came
    }

    fn wake_one(&mut self, core: usize, at: Instant) {
        if let Some(woken) = self.cores.get_mut(core) {
            woken.wake(at, &self.noticing);
            self.times[core] = woken.at;
        }
    }

    /// Cores that poll look at what other cores have made of theirs.
    fn all_notice(&mut self, at: Instant) {
        for (core, time) in self.cores.iter_mut().zip(&mut self.times) {
            core.notice(at, &self.noticing);
            *time = core.at;
        }
    }

    /// The client's host takes what has come and sends what is due, in no time.
    fn run_client(&mut self) {
        self.answered = false;
        self.network.borrow_mut().begin(CLIENT_PORT, 0);
        loop {
            let progress = self.host.run_cycle(self.now, &mut self.client);
            if !progress.pending && progress.received == 0 {
                // The client's own wish is asked for apart.
                let wish = self.client.next_due();
                self.host_timer = progress.next_deadline.filter(|at| Some(*at) != wish);
                break;
            }
        }
        self.host_timer = self.host_timer.map(|at| at.max(self.now + HOST_TICK));
        let arrives = after(self.now, self.setup.wire_ns as f64);
        let mut network = self.network.borrow_mut();
        network.carry_sent(arrives, SERVER_PORT, |frame| self.device.steer(frame));
    }

    /// The next interruption of a replay, and its moment.
    fn interruption(&self) -> Option<(Instant, Interruption)> {
        let replay = self.setup.replay.as_deref().filter(|_| self.began <= self.now)?;
        let next = replay.interruptions.get(self.interrupted)?;
        Some((self.began + Duration::from_nanos(next.after_ns), *next))
    }

    /// Somebody else has core `index` for so long. The application spins by the clock, which goes on meanwhile:
    /// it is late only where it would have been done before.
    fn take_from(&mut self, index: usize, took_ns: u64) {
        let ns = took_ns as f64;
        let core = &mut self.cores[index];
        core.at = match core.next {
            Next::Idle { .. } | Next::Asleep => after(self.now, ns),
            Next::Finish => core.at.max(after(self.now, ns)),
            Next::Begin | Next::Serve => after(core.at, ns),
        };
        if let Next::Idle { .. } = core.next {
            core.next = Next::Begin;
        }
        // One that sleeps is disarmed when it is woken, as ever.
        self.times[index] = core.at;
    }

    fn run_core(&mut self, index: usize) {
        let lent_until = self.cores[index].lent_until;
        match self.cores[index].next {
            // Who comes home waits for who is in its network layer.
            Next::Begin | Next::Finish if lent_until > self.now => {
                let waiting_ns = lent_until.since(self.now).as_nanos() as f64;
                let spent = Budget { waiting_ns, ..Budget::default() };
                self.spend(index, &spent, &Counts::default());
                self.cores[index].at = lent_until;
            }
            Next::Idle { .. } if self.cores[index].sleeps_at <= self.now => self.sleep(index),
            Next::Asleep => {
                self.cores[index].naps.last_mut().into_iter().for_each(|nap| nap.1 = self.now);
                self.threads[index].disarm();
                self.begin(index);
            }
            Next::Begin | Next::Idle { .. } => self.begin(index),
            Next::Serve => self.serve(index),
            Next::Finish => self.finish(index),
        }
    }

    /// An idle core arms every source and looks once more; then it sleeps.
    fn sleep(&mut self, index: usize) {
        if self.threads[index].sleeps(self.now) {
            self.cores[index].sleep(&self.noticing);
            if self.setup.replay.is_some() {
                self.cores[index].naps.push((self.now, Instant::FAR_FUTURE));
            }
        } else {
            self.begin(index);
        }
    }

    /// Steps 1 and 2 of a core's cycle, and all six where there is nothing to do.
    fn begin(&mut self, index: usize) {
        self.governor.iter_mut().for_each(|governor| governor.begin(index, self.now));
        self.network.borrow_mut().begin(SERVER_PORT, index);
        let has_events = self.threads[index].begin(self.now);
        let (mut spent, mut counts) = self.network(index);
        if !has_events && spent.busy_ns() == 0.0 && counts == Counts::default() {
            self.look_around(index);
            return;
        }
        counts.cycles = 1;
        spent.network_ns += self.setup.costs.cycle;
        let next = if has_events { Next::Serve } else { Next::Finish };
        self.end_step(index, next, &spent, &counts);
    }

    /// Step 3.
    fn serve(&mut self, index: usize) {
        self.governor.iter().for_each(|governor| governor.in_application(index, Some(self.now)));
        let now = self.now;
        let (events, mut calls) = self.threads[index].crossing(|| now);
        let batch = self.app.serve(self.now, index as u8, &self.device.shared, events, &mut calls);
        let costs = &self.setup.costs;
        let spent = Budget {
            crossing_ns: costs.crossing + batch.events as f64 * costs.event,
            application_ns: batch.service_ns as f64,
            steal_ns: costs.steal(batch.stolen),
            ..Budget::default()
        };
        let counts = Counts {
            crossings: 1,
            requests: batch.requests,
            events: batch.events,
            events_abroad: batch.events_abroad,
            steals: batch.stolen,
            ..Counts::default()
        };
        self.end_step(index, Next::Finish, &spent, &counts);
    }

    /// A poll that found nothing: the rest of the cycle is its timers.
    fn look_around(&mut self, index: usize) {
        let now = self.now;
        let progress = self.threads[index].finish(now);
        self.governor.iter_mut().for_each(|governor| governor.end(index, &progress));
        let (mut spent, mut counts) = self.network(index);
        if !progress.worked && !progress.pending {
            self.tell(index, now);
            self.governor.iter_mut().for_each(|governor| governor.rest(index, now));
            let core = &mut self.cores[index];
            core.rest(now, progress.next_deadline, &self.noticing);
            if let Some(again) = self.threads[index].looks_again() {
                core.notice(again.max(now), &self.noticing);
            }
            return;
        }
        counts.cycles = 1;
        spent.network_ns += self.setup.costs.cycle;
        self.end_step(index, Next::Begin, &spent, &counts);
        self.worked(index, &progress);
    }

    /// A core that had work sleeps later.
    fn worked(&mut self, index: usize, progress: &Progress) {
        if progress.worked || progress.received > 0 {
            self.cores[index].worked_at = self.cores[index].at;
        }
    }

    /// Steps 4 to 6.
    fn finish(&mut self, index: usize) {
        self.network.borrow_mut().begin(SERVER_PORT, index);
        self.governor.iter().for_each(|governor| governor.in_application(index, None));
        let progress = self.threads[index].finish(self.now);
        self.governor.iter_mut().for_each(|governor| governor.end(index, &progress));
        let (spent, counts) = self.network(index);
        self.end_step(index, Next::Begin, &spent, &counts);
        self.worked(index, &progress);
    }

    /// What a step took that has just run in network layers, its own and others'.
    fn network(&mut self, index: usize) -> (Budget, Counts) {
        let moved = std::mem::take(&mut self.network.borrow_mut().stage().moved);
        let stats = self.threads[index].stats();
        let seen = std::mem::replace(&mut self.cores[index].seen, stats);
        let counts = Counts {
            packets: moved.taken,
            packets_abroad: moved.taken_abroad,
            calls: stats.calls - seen.calls,
            turns: stats.turns - seen.turns,
            borrows: stats.borrowed - seen.borrowed,
            kicks: stats.kicked - seen.kicked,
            frames: moved.sent,
            ..Counts::default()
        };
        let costs = &self.setup.costs;
        let received = (moved.taken + moved.taken_abroad) as f64 * (costs.receive + costs.segment);
        let frames = moved.sent as f64;
        let sent = if moved.sent == 0 { 0.0 } else { costs.doorbell + frames * costs.transmit };
        let abroad = moved.taken_abroad + moved.sent_abroad;
        let spent = Budget {
            network_ns: received + counts.calls as f64 * costs.call + sent,
            borrow_ns: costs.borrow(counts.borrows, abroad),
            turn_ns: counts.turns as f64 * costs.turn,
            ..Budget::default()
        };
        let lasts_ns = spent.busy_ns() * self.slow(index);
        if let Some(core) = moved.abroad.and_then(|core| self.cores.get_mut(core)) {
            core.lent_until = core.lent_until.max(after(self.now, lasts_ns));
        }
        (spent, counts)
    }

    /// A kick: the application on core `index` is interrupted, its network layer run, and what that takes is
    /// added to what the application takes. Where its thread sleeps, the thread is woken for what that leaves to it. A
    /// core that is in neither, or whose network layer another core has, goes on.
    fn interrupt(&mut self, index: usize) {
        let Core { next, lent_until, .. } = self.cores[index];
        if !matches!(next, Next::Finish | Next::Asleep) || lent_until > self.now {
            return;
        }
        self.network.borrow_mut().begin(SERVER_PORT, index);
        self.threads[index].kicked(self.now);
        let (mut spent, counts) = self.network(index);
        spent.kick_ns = self.setup.costs.interrupt;
        let spent = spent * self.slow(index);
        self.spend(index, &spent, &counts);
        let end = after(self.now, spent.busy_ns());
        self.left_behind(index, end);
        let core = &mut self.cores[index];
        core.at = match next {
            Next::Asleep => core.at.max(end),
            _ => after(core.at, spent.busy_ns()),
        };
    }

    /// A step that has begun now lasts as long as what it spent; then comes `next`.
    fn end_step(&mut self, index: usize, next: Next, spent: &Budget, counts: &Counts) {
        let spent = *spent * self.slow(index);
        self.spend(index, &spent, counts);
        let end = after(self.now, spent.busy_ns());
        self.left_behind(index, end);
        self.cores[index].next = next;
        self.cores[index].at = end;
    }

    /// Counts a step that begins now, if it does so in the window.
    fn spend(&mut self, index: usize, spent: &Budget, counts: &Counts) {
        if self.window.holds(self.now.as_nanos() as f64) {
            self.cores[index].budget += *spent;
            self.cores[index].counts += *counts;
        }
    }

    /// What a step leaves at its end: frames on the wire, other cores to be told.
    fn left_behind(&mut self, index: usize, end: Instant) {
        let arrives = after(end, self.setup.wire_ns as f64);
        self.network.borrow_mut().carry_sent(arrives, CLIENT_PORT, |_| 0);
        self.tell(index, end);
        if self.looks == Looks::Everywhere {
            self.all_notice(end);
        }
    }

    /// Sends the kicks, wake-ups and probes that a step asked for.
    fn tell(&mut self, index: usize, at: Instant) {
        // The table was changed at the step's own moment: behind all that was on its way there then.
        let arrives = after(self.now, self.setup.wire_ns as f64);
        for (queue, probe) in self.device.take_probes() {
            self.network.borrow_mut().carry(arrives, SERVER_PORT, queue, probe);
        }
        let mut kicks = self.threads[index].take_kicks();
        while kicks != 0 {
            self.kicks.push(after(at, self.setup.costs.kick), kicks.trailing_zeros() as usize);
            kicks &= kicks - 1;
        }
        let wakes = self.threads[index].take_wakes();
        self.wake(wakes, at);
    }

    fn wake(&mut self, mut wakes: u128, at: Instant) {
        while wakes != 0 {
            let core = wakes.trailing_zeros() as usize;
            wakes &= wakes - 1;
            self.wake_one(core, at);
        }
    }
}

/// How long the last answers of a window may take: several of TCP's retransmission time-outs.
const PATIENCE: clock::Duration = clock::Duration::from_secs(2);
/// How soon the client's host looks at its timers again: a tick of the timing wheel.
const HOST_TICK: clock::Duration = clock::Duration::from_micros(16);
