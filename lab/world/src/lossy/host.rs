//! A simulated host: elastic threads of the real dataplane on virtual cores, each with its service.
//!
//! A core runs a cycle when a frame came, when a timer is due, when its service wished for it, or
//! when the last cycle left something undone. Nothing is polled in fixed steps, so a second in which
//! nothing happens costs nothing.

use std::sync::Arc;

use clock::{Duration, Instant};
use dataplane::{
    ConservingConfig, ConservingThread, CycleStats, Elastic, ElasticConfig, ElasticThread, Floor,
    Left, MigrationStats, MoveMailbox, Parts, Progress, ReadySetConfig, forwarding_mesh,
};
use mem::{Pool, Region};
use nic::{NicStats, QueueSet};
use stack::{Secrets, Shared, Stack, StackConfig};
use tailplane::Service;
use wire::MacAddr;

use crate::dice::Dice;
use crate::lossy::host::distant::{Distant, EventCopy};
use crate::lossy::watch::ensure;
use crate::network::{SharedNetwork, Spread};
use crate::port::{PortConfig, VirtualNic};

/// Doublings of the pause of a core that has work and cannot do it.
const MAX_STALL_SHIFT: u32 = 6;
/// Longest time without work after which a core says that it is idle.
const SETTLES: Duration = Duration::from_micros(10);
/// Longest time after which a core without work looks whether another needs help.
const LOOK_AROUND: Duration = Duration::from_micros(5);
/// Chunks that a core keeps for what an application elsewhere sends.
const STAGED: usize = 128;
/// Longest time that a kick takes to arrive.
const KICK_TAKES: Duration = Duration::from_micros(30);

/// What a host is made of.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Elastic threads.
    pub cores: u8,
    /// Queue pairs, where they are not as many as threads.
    pub queues: Option<u8>,
    /// Chunks of packet memory, for all cores together.
    pub chunks: u32,
    /// Chunks that a core keeps to itself.
    pub pool_keep: usize,
    /// Packets that fit the ring between two cores.
    pub forward_ring: usize,
    /// Limits of an elastic thread.
    pub elastic: ElasticConfig,
    /// How cores share their work.
    pub sharing: Sharing,
    /// Frames with a queue's device at a time, and how long they stay there.
    pub nic: PortConfig,
    /// The stack.
    pub stack: StackConfig,
    /// Shortest and longest time that one cycle takes.
    pub cycle: (Duration, Duration),
    /// Whether flow groups move from core to core all the time.
    pub moves: Option<MovesConfig>,
    /// Whether the application is elsewhere, where cores do not share their work.
    pub distant: Option<DistantConfig>,
}

impl HostConfig {
    /// The queue pairs of each core: `queues` of `port`, whose devices each have a die.
    fn queue_sets(
        &self,
        network: &SharedNetwork,
        port: usize,
        queues: u8,
        dice: impl Fn(u8) -> Dice,
    ) -> Vec<QueueSet<VirtualNic>> {
        let queue =
            |queue: u8| VirtualNic::new(network.clone(), port, queue.into(), self.nic, dice(queue));
        QueueSet::deal((0..queues).map(queue).collect(), self.cores.into())
            .expect("a device of a simulation has queues, and no descriptors")
    }

    /// An elastic thread that runs to completion, and its service, which is elsewhere where the host has that: it then
    /// gets a copy of the events.
    fn completing(
        &self,
        mut thread: ElasticThread<VirtualNic>,
        region: &Arc<Region>,
        mut service: Box<dyn Service>,
        dice: Dice,
    ) -> (Thread, Box<dyn Service>) {
        if let Some(distant) = self.distant {
            let (copy, segment_bytes) = (EventCopy::default(), self.stack.segment_bytes());
            thread = thread.staging(Pool::new(region, STAGED)).mirroring(copy.clone());
            let distant = Distant::new(service, distant, self.chunks, segment_bytes, dice, copy);
            service = Box::new(distant);
        }
        (Thread::Completing(Box::new(thread)), service)
    }
}

/// How a host's cores share their work.
#[derive(Clone, Debug)]
pub enum Sharing {
    /// They do not: they run to completion.
    Not,
    /// Each takes what others have ready.
    Conserving(ConservingConfig),
    /// All of them serve one ready set.
    ReadySet(ReadySetConfig),
}

impl Sharing {
    /// Its word in a configuration.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Not => "run-to-completion",
            Self::Conserving(_) => "work-conserving",
            Self::ReadySet(_) => "ready-set",
        }
    }
}

/// An elastic thread, by its scheduler.
enum Thread {
    Completing(Box<ElasticThread<VirtualNic>>),
    Conserving(Box<ConservingThread<VirtualNic>>),
}

/// Calls the same of whichever it is.
macro_rules! of_thread {
    ($self:expr, $thread:ident => $body:expr) => {
        match $self {
            Thread::Completing($thread) => $body,
            Thread::Conserving($thread) => $body,
        }
    };
}

mod distant;
mod leave;
mod moves;

pub use distant::DistantConfig;
pub(crate) use moves::LAG;
pub use moves::{MovesConfig, Steering};

/// Methods of [`Elastic`] that both have.
macro_rules! of_either {
    ($(fn $name:ident($self:ident: $this:ty $(, $argument:ident: $type:ty)*) $(-> $out:ty)?;)*) => {
        impl Thread {
            $(fn $name($self: $this $(, $argument: $type)*) $(-> $out)? {
                of_thread!($self, thread => thread.$name($($argument),*))
            })*
        }
    };
}

of_either! {
    fn stats(self: &Self) -> CycleStats;
    fn nic_stats(self: &Self) -> NicStats;
    fn migrations(self: &Self) -> MigrationStats;
    fn free_chunks(self: &Self) -> usize;
    fn take_wakes(self: &mut Self) -> u128;
    fn take_kicks(self: &mut Self) -> u128;
    fn kicked(self: &mut Self, now: Instant);
    fn obey(self: &mut Self, mailbox: MoveMailbox);
    fn withdraw(self: &mut Self, now: Instant) -> bool;
    fn leave(self: Self) -> Left;
}

impl Thread {
    fn inspect<R>(&self, body: impl FnOnce(&Stack, &Pool) -> R) -> R {
        of_thread!(self, thread => thread.inspect(body))
    }
}

/// A virtual core.
struct Core {
    thread: Thread,
    service: Box<dyn Service>,
    /// It is in the application: when that ends, and whether the application's part is done.
    away: Option<Away>,
    /// When it next looks for work.
    next_poll: Instant,
    /// Until when the last cycle keeps it busy.
    busy_until: Instant,
    /// Cycles in a row that had work and got nothing done.
    stalled: u32,
    /// It found nothing to do, and has looked again since.
    settled: bool,
    /// A kick is on its way to it: when it arrives.
    kicked_at: Instant,
    dice: Dice,
}

/// A core that is in the application, while others go on: until `busy_until`.
#[derive(Clone, Copy, Debug)]
struct Away {
    since: Instant,
    /// The application did its work when the core went there, not when it comes back.
    done: bool,
}

/// See the module's comment.
pub struct Host {
    cores: Vec<Core>,
    region: Arc<Region>,
    config: HostConfig,
    port: usize,
    moves: Option<moves::Moves>,
    network: SharedNetwork,
}

/// Secrets of a simulated stack. This is the only place where they come from a seed: a simulation
/// has no strangers.
fn secrets(dice: &mut Dice) -> Secrets {
    let mut secrets = Secrets {
        rss_key: [0; 40],
        isn_key: [0; 16],
        port_key: [0; 16],
        offset: dice.next() as u32,
    };
    dice.fill(&mut secrets.rss_key);
    dice.fill(&mut secrets.isn_key);
    dice.fill(&mut secrets.port_key);
    secrets
}

impl Host {
    /// Host `number`, plugged into `network`; `service` makes each core's service.
    pub fn new(
        seed: u64,
        number: u64,
        config: HostConfig,
        network: &SharedNetwork,
        mut service: impl FnMut(u8) -> Box<dyn Service>,
    ) -> Self {
        let mut dice = Dice::new(seed, "host", number);
        let shared = Arc::new(Shared::new(config.stack.clone(), &secrets(&mut dice), config.cores));
        let region = Region::heap(config.chunks);
        let queues = config.queues.unwrap_or(config.cores);
        let spread = if queues > 1 { Spread::Random } else { Spread::OneQueue };
        let mac: MacAddr = config.stack.mac;
        let port = network.borrow_mut().attach(mac, queues as usize, spread);
        let device = config.moves.and_then(|MovesConfig { steering, .. }| {
            let at = (port, usize::from(queues));
            moves::steer(&shared, steering, &mut network.borrow_mut(), at)
        });
        let meshes = forwarding_mesh(config.cores as usize, config.forward_ring);
        let (elastic, start) = (config.elastic, Instant::ZERO);
        let dealt = config.queue_sets(network, port, queues, |queue| {
            Dice::new(seed, "device", number << 8 | u64::from(queue))
        });
        let pool = || Pool::new(&region, config.pool_keep);
        let parts = meshes.into_iter().zip(dealt).map(|(ports, queues)| Parts {
            queues,
            pool: pool(),
            ports,
        });
        let mut conserving = |threads: Vec<_>| -> Vec<(Thread, Box<dyn Service>)> {
            let thread = |thread| Thread::Conserving(Box::new(thread));
            threads.into_iter().map(thread).zip((0..config.cores).map(&mut service)).collect()
        };
        let threads = match &config.sharing {
            Sharing::Not => {
                let completing = |(core, Parts { queues, pool, ports })| {
                    let shared = Arc::clone(&shared);
                    let thread =
                        ElasticThread::new(core, shared, queues, pool, ports, elastic, start);
                    let dice = Dice::new(seed, "distant", number << 8 | u64::from(core));
                    config.completing(thread, &region, service(core), dice)
                };
                (0..).zip(parts).map(completing).collect()
            }
            Sharing::Conserving(sharing) => {
                conserving(Floor::threads(&shared, parts.collect(), elastic, *sharing, start))
            }
            Sharing::ReadySet(set) => conserving(
                Floor::ready_set(&shared, parts.collect(), elastic, set, start)
                    .expect("at most eight classes, and fewer cores than a set has consumers"),
            ),
        };
        let core = |(core, (thread, service))| Core {
            thread,
            service,
            away: None,
            next_poll: start,
            busy_until: start,
            stalled: 0,
            settled: false,
            kicked_at: Instant::FAR_FUTURE,
            dice: Dice::new(seed, "core", number << 8 | core as u64),
        };
        let mut cores: Vec<Core> = threads.into_iter().enumerate().map(core).collect();
        let moves = config.moves.map(|moves| {
            let threads = cores.iter_mut().map(|core| &mut core.thread);
            moves::Moves::new(moves, shared, threads, device, Dice::new(seed, "moves", number))
        });
        Self { cores, region, config, port, moves, network: SharedNetwork::clone(network) }
    }

    /// When a core of this host next has something to do.
    pub fn next_poll(&self) -> Instant {
        let next = |core: &Core| core.next_poll.min(core.kicked_at);
        self.cores.iter().map(next).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// A frame came to `queue`, or a packet was forwarded to the core of that number.
    pub fn wake(&mut self, queue: usize, now: Instant) {
        let core = queue % self.cores.len();
        if let Some(core) = self.cores.get_mut(core) {
            core.next_poll = core.next_poll.min(core.busy_until.max(now));
        }
    }

    /// Runs one cycle of each core that has something to do at `now`.
    pub fn run(&mut self, now: Instant) {
        let (mut woken, mut kicks) = (0, 0);
        for core in &mut self.cores {
            if core.kicked_at <= now {
                core.kicked_at = Instant::FAR_FUTURE;
                // Wherever it is in its cycle.
                core.thread.kicked(now);
                woken |= core.thread.take_wakes();
            }
            if core.next_poll <= now {
                core.run(now, self.config.cycle);
                woken |= core.thread.take_wakes();
                kicks |= core.thread.take_kicks();
            }
        }
        if let Some(moves) = &self.moves {
            moves.send_probes(&mut self.network.borrow_mut(), self.port, now);
        }
        for (number, core) in self.cores.iter_mut().enumerate() {
            // A hint, which may be lost; and one that nobody needs does no harm.
            let asked = kicks >> number & 1 != 0 && core.dice.chance(0.9);
            if asked || core.away.is_some() && core.dice.chance(0.02) {
                let takes = core.dice.duration(Duration::ZERO, KICK_TAKES);
                core.kicked_at = core.kicked_at.min(now + takes);
            }
        }
        for core in 0..self.cores.len() {
            if woken >> core & 1 != 0 {
                self.wake(core, now);
            }
        }
        if let Some(core) = self.control(now) {
            self.wake(core, now);
        }
        if self.cores.iter().any(|core| core.away.is_some()) {
            // A core without work looks around while another is in the application.
            for core in self.cores.iter_mut().filter(|core| core.away.is_none()) {
                let soon = core.dice.duration(Duration::from_nanos(200), LOOK_AROUND);
                core.next_poll = core.next_poll.min(core.busy_until.max(now + soon));
            }
        }
    }

    /// A counter of the devices, of all cores together.
    pub fn nic_total(&self, of: impl Fn(&NicStats) -> u64) -> u64 {
        self.cores.iter().map(|core| of(&core.thread.nic_stats())).sum()
    }

    /// A counter of the elastic threads, of all cores together.
    pub fn cycle_total(&self, of: impl Fn(&CycleStats) -> u64) -> u64 {
        self.cores.iter().map(|core| of(&core.thread.stats())).sum()
    }

    /// Each core's counters that are not zero, for a failure's text.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (number, core) in self.cores.iter().enumerate() {
            text.push_str(&core.thread.inspect(|stack, pool| {
                let entries = stack.stats();
                let counters: Vec<String> = entries
                    .entries()
                    .filter(|(_, value)| *value > 0)
                    .map(|(name, value)| format!("{name} {value}"))
                    .collect();
                format!(
                    "\n  {} core {number}: {} connections, {} of {} chunks free, exhausted {}, next \
                     poll {} us; {}",
                    self.config.stack.address(),
                    stack.connections(),
                    pool.available(),
                    self.config.chunks,
                    pool.stats().exhausted,
                    core.next_poll.as_micros(),
                    counters.join(", ")
                )
            }));
        }
        text
    }

    /// Counters of all cores' stacks, added up.
    pub fn stack_total(&self, name: &str) -> u64 {
        let of = |core: &Core| -> u64 {
            let entries = core.thread.inspect(|stack, _| stack.stats());
            entries.entries().filter(|(entry, _)| *entry == name).map(|(_, value)| value).sum()
        };
        self.cores.iter().map(of).sum()
    }

    /// Allocations that found no chunk, on all cores.
    pub fn exhausted(&self) -> u64 {
        let of = |core: &Core| core.thread.inspect(|_, pool| pool.stats().exhausted);
        self.cores.iter().map(of).sum()
    }

    /// What does not add up, now that all connections have ended and nothing is on its way.
    ///
    /// # Errors
    /// Which counter, in words.
    pub fn audit(&self) -> Result<(), String> {
        let name = self.config.stack.address();
        let mut available = 0;
        for (number, core) in self.cores.iter().enumerate() {
            core.audit().map_err(|what| format!("{name} core {number} {what}"))?;
            // The depot is common to all pools: count it once.
            available += core.thread.free_chunks();
            if number == 0 {
                available += self.region.depot_len();
            }
        }
        let (taken, received) =
            (self.cycle_total(|cycle| cycle.packets), self.nic_total(|nic| nic.rx_frames));
        let migrations = self.migrations();
        let dropped = self.cycle_total(|cycle| cycle.forward_drops) + migrations.parked_drops;
        if let Some(moves) = &self.moves {
            moves.audit(&migrations).map_err(|what| format!("{name}: {what}"))?;
        }
        let forwarded = self.stack_total("forwarded");
        ensure(taken + dropped == received + forwarded, || {
            format!(
                "{name}: {taken} packets taken and {dropped} dropped, {received} received and \
                 {forwarded} forwarded"
            )
        })?;
        debug_assert!(Arc::strong_count(&self.region) > self.cores.len());
        let (chunks, lost) = (self.config.chunks, i64::from(self.config.chunks) - available as i64);
        ensure(lost == 0, || format!("{name} lost {lost} of {chunks} chunks"))
    }
}

impl Core {
    /// What does not add up here.
    fn audit(&self) -> Result<(), String> {
        let nic = self.thread.nic_stats();
        ensure(nic.tx_dropped == 0, || format!("made frames that are too long: {nic:?}"))?;
        self.thread.inspect(|stack, pool| {
            ensure(pool.kept() == 0, || format!("counts {} kept buffers", pool.kept()))?;
            ensure(pool.stats().foreign == 0, || "got chunks of another region".to_owned())?;
            ensure(stack.connections() == 0, || format!("has connections left: {stack:?}"))
        })
    }

    fn run(&mut self, now: Instant, cycle: (Duration, Duration)) {
        let before = self.done();
        let took = self.dice.duration(cycle.0, cycle.1);
        let progress = match &mut self.thread {
            Thread::Completing(thread) => thread.run_cycle(now, &mut self.service),
            Thread::Conserving(_) => match self.run_conserving(now, took) {
                Some(progress) => progress,
                None => return,
            },
        };
        let got_on = self.done() != before;
        self.busy_until = now + took;
        self.stalled = if got_on { 0 } else { (self.stalled + 1).min(MAX_STALL_SHIFT) };
        let waits = progress.worked
            || progress.pending
            || self.device_waits()
            || progress.next_deadline.is_some_and(|due| due <= now);
        self.next_poll = if waits {
            // Work that cannot be done now (no memory, a full ring) is tried less and less often.
            now + took * (1 << self.stalled)
        } else {
            progress.next_deadline.unwrap_or(Instant::FAR_FUTURE).max(self.busy_until)
        };
        // A core that spins finds out after a while that it is idle, and says so.
        let settles = !waits && !self.settled && matches!(self.thread, Thread::Conserving(_));
        self.settled = !waits;
        if settles {
            self.next_poll = self.next_poll.min(now + took + SETTLES);
        }
    }

    /// A cycle in two parts, between which other cores run; `None` after the first.
    fn run_conserving(&mut self, now: Instant, took: Duration) -> Option<Progress> {
        let Thread::Conserving(thread) = &mut self.thread else { return None };
        match self.away.take() {
            None => {
                let found = thread.begin(now);
                let is_wished = !found && self.service.wake_at().is_some_and(|at| at <= now);
                if is_wished {
                    thread.begin_by_wish(now);
                }
                if found || is_wished {
                    let done = self.dice.chance(0.5);
                    if done {
                        let (events, mut calls) = thread.crossing(|| now);
                        self.service.on_batch(now, events, &mut calls);
                    }
                    let until = now + took;
                    self.away = Some(Away { since: now, done });
                    (self.busy_until, self.next_poll) = (until, until);
                    return None;
                }
            }
            Some(Away { since, done }) => {
                if !done {
                    let (events, mut calls) = thread.crossing(|| since);
                    self.service.on_batch(now, events, &mut calls);
                }
            }
        }
        let mut progress = thread.finish(now);
        let wish = self.service.wake_at();
        progress.next_deadline = progress.next_deadline.into_iter().chain(wish).min();
        Some(progress)
    }

    fn device_waits(&mut self) -> bool {
        of_thread!(&mut self.thread, thread => thread.with_queues(|queues| queues.rx_backlog() > 0))
    }

    /// Changes whenever a cycle got something done.
    fn done(&self) -> (u64, u64, u64, u64) {
        let (cycle, nic) = (self.thread.stats(), self.thread.nic_stats());
        (cycle.packets, cycle.events, cycle.calls, nic.tx_frames)
    }
}
