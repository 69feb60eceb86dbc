//! Elastic threads on real threads, `inline` domain: one pinned thread a core, each with its queue
//! pairs, its pool and its service.
//!
//! A thread spins while there is work and for a while after; then it sleeps in two phases (arm
//! every source, look once more, block) until a packet, a timer, a forwarded packet or the end.
//!
//! However a thread ends, it leaves the network: peers are reset, and packet memory comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use clock::{Clock, MonotonicClock};
use dataplane::{
    CycleStats, ElasticThread, Floor, ForwardPorts, Left, MAX_CORES, Parts, Tender, forwarding_mesh,
};
use domain::Service;
use mem::{Pool, Region};
use nic::{Nic, NicStats};
use rustix::time::{ClockId, clock_gettime};
use stack::{Secrets, Shared, StackStats};
use statseg::Segment;

use crate::kicks::Kicks;

mod controls;
mod device;
mod drive;
mod kicks;
mod mover;
mod protected;
mod register;
mod stage;
mod unsafe_priority;

pub use dataplane::{
    ClassError, Classes, ConservingConfig, ElasticConfig, GroupSet, IdlePolicy, MigrationStats,
    ModerationPolicy, MoveCommand, MoveError, MoveReport, Moved, Phase, ReadySetConfig,
    ServicePolicy, WhileAway,
};
pub use stack::{FLOW_GROUPS, RssKey, StackConfig, policy};

pub use controls::{ControlError, Controls, Order};
pub use mover::{Mover, MoverError};
pub use protected::run_protected;
pub use register::{PeersLeft, Register, places_of_group};
pub use shown::{Shown, Watched};
pub use stack::PeerRegister;

use drive::Bell;
pub(crate) use drive::run_on;
use stage::{Hand, Stage};

/// Packets that may be under way between two cores.
const FORWARD_RING: usize = 1024;

/// Why a dataplane could not run.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The operating system refused something.
    #[error("{tried} failed: {source}")]
    System {
        /// What was tried.
        tried: &'static str,
        /// What it said.
        source: std::io::Error,
    },
    /// More or fewer elastic threads than there can be.
    #[error("cannot run elastic threads: found devices for {found} of them; give 1 to 128")]
    Queues {
        /// Devices given.
        found: usize,
    },
    /// A processor that this process may not run on, or that is not there.
    #[error(
        "elastic thread {core} cannot run on processor {cpu}; allowed: {allowed} (`taskset` and \
         cpusets limit them)"
    )]
    Processor {
        /// The thread's number.
        core: usize,
        /// What was asked for.
        cpu: usize,
        /// What there is.
        allowed: String,
    },
    /// More elastic threads than a scheduler can look after.
    #[error(
        "{found} elastic threads are more than can share their work: {max}; run two dataplanes, or run to \
         completion"
    )]
    TooManyCores {
        /// Threads asked for.
        found: usize,
        /// Most threads.
        max: usize,
    },
    /// A domain whose event arrays are too small for the threads' batches.
    #[error(
        "a batch of an elastic thread has up to {events} events, and the domain's event arrays have room for {room}: \
         make them larger (`process::Geometry`), or the batch smaller"
    )]
    EventArray {
        /// Events that one batch can have.
        events: usize,
        /// Room of the smallest array.
        room: usize,
    },
    /// A service that keeps its connections' state to each thread.
    #[error(
        "the schedulers work-conserving and ready-set run a connection on any core, and this service keeps \
         the state of its connections in each thread's value of it; use one that runs anywhere \
         (`Service::runs_anywhere`), or run to completion"
    )]
    KeepsToItsCore,
    /// A service that keeps its connections' state to each thread, and a handle to move them.
    #[error(
        "flow groups that move take their connections to other threads, and this service keeps the state of \
         its connections in each thread's value of it; use one that runs anywhere \
         (`Service::runs_anywhere`), or run without a `Mover`"
    )]
    CannotMove,
    /// A `Mover` or `Controls` for another number of threads, or one that was used before.
    #[error(
        "the `Mover` or `Controls` is for another number of elastic threads than {cores}, or was used before"
    )]
    Mover {
        /// Threads that there are.
        cores: usize,
    },
    /// The device's indirection table, at the start.
    #[error("the device's indirection table could not be written: {0}")]
    Table(#[from] nic::rss::RssError),
    /// A statistics segment that was made for something else.
    #[error(
        "the statistics segment is for {threads} elastic threads and {groups} flow groups, and there are {cores} and \
         {FLOW_GROUPS}"
    )]
    Segment {
        /// Threads of the segment.
        threads: u16,
        /// Flow groups of the segment.
        groups: u16,
        /// Threads that there are.
        cores: usize,
    },
    /// Kicks without the means to interrupt anything.
    #[error(
        "kicks interrupt the application by a thread of higher real-time priority, and the real-time priority \
         is {found}; allowed with kicks: 1 to 98; set it, or have network layers borrowed instead"
    )]
    KicksNeedPriority {
        /// What was configured; 0: none.
        found: u8,
    },
    /// The classes of a ready set.
    #[error(transparent)]
    Classes(#[from] ClassError),
    /// A thread panicked: a bug of the service or of ours.
    #[error("elastic thread {core} panicked: {message}")]
    Panicked {
        /// Its number.
        core: usize,
        /// What it said.
        message: String,
    },
}

/// Which core runs the application for a connection (DESIGN: one configuration word).
#[derive(Clone, Debug, Default)]
pub enum Scheduler {
    /// The connection's home core, all that came at once (IX).
    #[default]
    RunToCompletion,
    /// Any core that has nothing else to do (ZygOS). The service must run anywhere.
    WorkConserving(ConservingConfig),
    /// Any core, connections of the class that is next by a service policy first (HyperPlane). The service
    /// must run anywhere.
    ReadySet(ReadySetConfig),
}

impl Scheduler {
    /// Whether a connection's events come to threads other than its home.
    fn shares(&self) -> bool {
        !matches!(self, Self::RunToCompletion)
    }

    /// Whether cores that are in the application are kicked.
    fn kicks(&self) -> bool {
        match self {
            Self::RunToCompletion => false,
            Self::WorkConserving(sharing) | Self::ReadySet(ReadySetConfig { sharing, .. }) => {
                sharing.while_away == WhileAway::Kick
            }
        }
    }
}

/// How a dataplane runs.
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// The stack's settings.
    pub stack: StackConfig,
    /// The cycle's settings.
    pub elastic: ElasticConfig,
    /// Who runs the application.
    pub scheduler: Scheduler,
    /// When to stop spinning.
    pub idle: IdlePolicy,
    /// Whether to wait for several packets where they come often.
    pub moderation: ModerationPolicy,
    /// The processor of each elastic thread; threads without an entry are not pinned.
    pub cpus: Vec<usize>,
    /// Real-time priority of the threads (`SCHED_FIFO`, 1 to 99). Only with an idle policy that
    /// sleeps: a thread that spins for ever at such a priority starves its processor.
    pub realtime: Option<u8>,
    /// Free chunks that each pool keeps to itself.
    pub pool_keep: usize,
    /// Where the elastic threads show what they do; none: nowhere. For as many threads as run.
    pub segment: Option<Arc<Segment>>,
    /// Where connections are written down, for whoever resets them if this process is killed; none: nowhere.
    pub register: Option<Arc<dyn PeerRegister>>,
}

/// What one elastic thread has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreReport {
    /// The cycle.
    pub cycle: CycleStats,
    /// The stack.
    pub stack: StackStats,
    /// The queue pair.
    pub nic: NicStats,
    /// Flow groups that it was home to and that moved.
    pub migrations: MigrationStats,
    /// Times that the thread slept.
    pub sleeps: u64,
    /// Time of the cycles that did something, in nanoseconds.
    pub busy_ns: u64,
    /// Connections at the end, and bytes of their state.
    pub footprint: (usize, usize),
    /// How these ended, and what became of the packet memory. Under a work-conserving scheduler the report of
    /// the thread that left last counts for all.
    pub left: Left,
}

/// Draws the stack's secrets from the operating system.
///
/// # Errors
/// [`RuntimeError::System`] where it has none to give.
pub fn draw_secrets() -> Result<Secrets, RuntimeError> {
    let mut bytes = [0u8; 76];
    let mut filled = 0;
    while filled < bytes.len() {
        let got =
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
                .map_err(|errno| system("drawing secrets (getrandom)", errno))?;
        filled += got;
    }
    let part = |from: usize| -> [u8; 16] { core::array::from_fn(|i| bytes[from + i]) };
    Ok(Secrets {
        rss_key: core::array::from_fn(|i| bytes[i]),
        isn_key: part(40),
        port_key: part(56),
        offset: u32::from_ne_bytes(core::array::from_fn(|i| bytes[72 + i])),
    })
}

fn system(tried: &'static str, source: impl Into<std::io::Error>) -> RuntimeError {
    RuntimeError::System { tried, source: source.into() }
}

/// Runs one elastic thread for each device in `nics` until `stop` is set, each with the service
/// that `make_service` makes for its number. Answers what each has done, in order.
///
/// A thread that sleeps sees `stop` when it wakes ([`IdlePolicy::longest_sleep`]); [`Controls::end`] wakes it.
///
/// # Errors
/// [`RuntimeError`]; all threads have ended then.
pub fn run<N, S>(
    config: &RuntimeConfig,
    region: &Arc<Region>,
    nics: Vec<N>,
    make_service: impl Fn(usize) -> S + Sync,
    stop: &AtomicBool,
) -> Result<Vec<(CoreReport, S)>, RuntimeError>
where
    N: Nic + Send,
    S: Service + Send,
{
    run_announced(config, region, nics, make_service, || {}, stop)
}

/// The same, and calls `ready` once, as soon as packets that arrive are no longer lost.
///
/// # Errors
/// As [`run`].
pub fn run_announced<N, S>(
    config: &RuntimeConfig,
    region: &Arc<Region>,
    nics: Vec<N>,
    make_service: impl Fn(usize) -> S + Sync,
    ready: impl Fn() + Sync,
    stop: &AtomicBool,
) -> Result<Vec<(CoreReport, S)>, RuntimeError>
where
    N: Nic + Send,
    S: Service + Send,
{
    run_with(config, region, nics, make_service, ready, Hand::Nobody, stop)
}

/// The same, and flow groups can be moved through `mover` while it runs (IX §4.5): a connection is at home on
/// another thread then, so the service must [run anywhere](Service::runs_anywhere).
///
/// # Errors
/// As [`run`]; [`RuntimeError::CannotMove`], [`RuntimeError::Mover`].
pub fn run_moved<N, S>(
    config: &RuntimeConfig,
    region: &Arc<Region>,
    nics: Vec<N>,
    make_service: impl Fn(usize) -> S + Sync,
    ready: impl Fn() + Sync,
    mover: &Mover,
    stop: &AtomicBool,
) -> Result<Vec<(CoreReport, S)>, RuntimeError>
where
    N: Nic + Send,
    S: Service + Send,
{
    run_with(config, region, nics, make_service, ready, Hand::Mover(mover), stop)
}

/// The same, steered through `controls` while it runs (IX §4.6): threads are granted, parked and placed. Flow groups can
/// be moved where the service [runs anywhere](Service::runs_anywhere).
///
/// # Errors
/// As [`run`]; [`RuntimeError::Mover`].
pub fn run_controlled<N, S>(
    config: &RuntimeConfig,
    region: &Arc<Region>,
    nics: Vec<N>,
    make_service: impl Fn(usize) -> S + Sync,
    ready: impl Fn() + Sync,
    controls: &Controls,
    stop: &AtomicBool,
) -> Result<Vec<(CoreReport, S)>, RuntimeError>
where
    N: Nic + Send,
    S: Service + Send,
{
    run_with(config, region, nics, make_service, ready, Hand::Controls(controls), stop)
}

fn run_with<N, S>(
    config: &RuntimeConfig,
    region: &Arc<Region>,
    nics: Vec<N>,
    make_service: impl Fn(usize) -> S + Sync,
    ready: impl Fn() + Sync,
    hand: Hand<'_>,
    stop: &AtomicBool,
) -> Result<Vec<(CoreReport, S)>, RuntimeError>
where
    N: Nic + Send,
    S: Service + Send,
{
    let (ground, ports) = Ground::new(config, nics.len(), hand)?;
    let (shared, clock) = (&ground.shared, ground.clock);
    let stage = ground.stage(config, hand, stop);
    let part = |(nic, ports)| Parts { nic, pool: Pool::new(region, config.pool_keep), ports };
    let parts = nics.into_iter().zip(ports).map(part);
    let (elastic, now) = (config.elastic, clock.now());
    match &config.scheduler {
        Scheduler::RunToCompletion => {
            let thread = |(core, Parts { nic, pool, ports })| {
                let shared = Arc::clone(shared);
                // Made where it runs: its parts cannot be moved.
                move || {
                    ElasticThread::new(core as u8, shared, nic, pool, ports, elastic, clock.now())
                }
            };
            let none = Vec::<Tender<N>>::new();
            stage.run(parts.enumerate().map(thread).collect(), none, &make_service, &ready)
        }
        Scheduler::WorkConserving(conserving) => {
            let threads = Floor::threads(shared, parts.collect(), elastic, *conserving, now);
            stage.run_sharing(threads, &make_service, &ready)
        }
        Scheduler::ReadySet(set) => {
            let threads = Floor::ready_set(shared, parts.collect(), elastic, set, now)?;
            stage.run_sharing(threads, &make_service, &ready)
        }
    }
}

/// What is there before there are threads.
struct Ground {
    shared: Arc<Shared>,
    clock: MonotonicClock,
    epoch_ns: u64,
    bells: Arc<[Bell]>,
    kicks: Kicks,
}

impl Ground {
    /// For so many threads; with the ends of each one's forwarding rings.
    fn new(
        config: &RuntimeConfig,
        cores: usize,
        hand: Hand<'_>,
    ) -> Result<(Self, Vec<ForwardPorts>), RuntimeError> {
        if !(1..=128).contains(&cores) {
            return Err(RuntimeError::Queues { found: cores });
        }
        if config.scheduler.shares() && cores > MAX_CORES {
            return Err(RuntimeError::TooManyCores { found: cores, max: MAX_CORES });
        }
        let secrets = draw_secrets()?;
        // That of the device's hash, where there is a table of which the configuration does not know.
        let rss_key: Option<RssKey> = hand.key().or(config.stack.rss_key);
        let stack = StackConfig { rss_key, ..config.stack.clone() };
        let shared = Shared::new(stack, &secrets, cores as u8);
        let shared = Arc::new(shared.with_register(config.register.clone()));
        deal(&shared, config, cores, hand)?;
        let bells: Arc<[Bell]> = (0..cores).map(|_| Bell::new()).collect::<Result<_, _>>()?;
        let priority = config.realtime.unwrap_or(0);
        let kicks = match config.scheduler.kicks() {
            true if !(1..=98).contains(&priority) => {
                return Err(RuntimeError::KicksNeedPriority { found: priority });
            }
            true => Kicks::new(cores).map_err(|source| system("making an eventfd", source))?,
            false => Kicks::default(),
        };
        let is_first = match hand {
            Hand::Nobody => true,
            Hand::Mover(mover) => mover.start(&shared, &bells),
            Hand::Controls(controls) | Hand::Fixed(controls) => controls.start(&shared, &bells),
        };
        if !is_first {
            return Err(RuntimeError::Mover { cores });
        }
        hand.deal_table(&shared)?;
        let clock = MonotonicClock::new();
        let now = clock_gettime(ClockId::Monotonic);
        let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let epoch_ns = now_ns - clock.now().as_nanos();
        let ground = Self { shared, clock, epoch_ns, bells, kicks };
        Ok((ground, forwarding_mesh(cores, FORWARD_RING)))
    }

    fn stage<'a>(
        &'a self,
        config: &'a RuntimeConfig,
        hand: Hand<'a>,
        stop: &'a AtomicBool,
    ) -> Stage<'a> {
        let Self { clock, epoch_ns, bells, kicks, .. } = self;
        let starting = AtomicUsize::new(bells.len());
        let (clock, epoch_ns) = (*clock, *epoch_ns);
        let (callers, placers) = (Vec::new(), Vec::new());
        Stage { config, clock, epoch_ns, bells, kicks, hand, stop, starting, placers, callers }
    }
}

/// Deals flow groups out to the threads that are granted at first, and says so in the segment.
fn deal(
    shared: &Shared,
    config: &RuntimeConfig,
    cores: usize,
    hand: Hand<'_>,
) -> Result<(), RuntimeError> {
    if let Some(controls) = hand.controls() {
        let granted = controls.granted().min(cores);
        (0..FLOW_GROUPS).for_each(|group| shared.set_home(group as u16, (group % granted) as u8));
    }
    let Some(segment) = &config.segment else { return Ok(()) };
    let statseg::Layout { threads, groups, .. } = segment.layout();
    if usize::from(threads) < cores || usize::from(groups) != FLOW_GROUPS {
        return Err(RuntimeError::Segment { threads, groups, cores });
    }
    (0..groups).for_each(|group| segment.set_home(group, shared.home_of(group).into()));
    Ok(())
}

/// Lets the calling thread run before all ordinary ones (`SCHED_FIFO`, priority 1 to 99). A thread
/// that never sleeps must not stay so: it starves its processor. Threads and processes that it starts inherit it.
///
/// # Errors
/// [`RuntimeError::System`]: without privileges, that they are missing.
pub fn set_realtime(priority: u8) -> Result<(), RuntimeError> {
    crate::unsafe_priority::set_realtime(priority, true)
        .map_err(|source| system("setting a real-time priority", source))
}

/// The same for a thread of the dataplane: what it starts begins as an ordinary thread.
fn set_own_realtime(priority: u8) -> Result<(), RuntimeError> {
    crate::unsafe_priority::set_realtime(priority, false)
        .map_err(|source| system("setting a real-time priority", source))
}

/// Has the calling thread keep its real-time priority, where it has one, from threads and processes that it starts.
///
/// # Errors
/// As [`set_realtime`].
pub fn keep_realtime() -> Result<(), RuntimeError> {
    crate::unsafe_priority::keep_realtime()
        .map_err(|source| system("keeping a real-time priority from what is started", source))
}

/// Makes this process's first thread an ordinary one: for one that was started with a real-time priority so that its
/// elastic threads inherit it, and has nothing to do but to wait for these.
///
/// # Errors
/// As [`set_realtime`].
pub fn make_first_ordinary() -> Result<(), RuntimeError> {
    crate::unsafe_priority::make_first_ordinary()
        .map_err(|source| system("giving up a real-time priority", source))
}

/// Whether this process may run threads at such a priority.
///
/// # Errors
/// As [`set_realtime`].
pub fn may_have_realtime(priority: u8) -> Result<(), RuntimeError> {
    // A thread of its own has it for a moment.
    let tried = std::thread::spawn(move || set_own_realtime(priority)).join();
    tried.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
