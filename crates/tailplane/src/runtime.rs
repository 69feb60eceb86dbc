//! Elastic threads on real threads, `inline` domain: one pinned thread a core, each with its queue
//! pair, its pool and its service.
//!
//! A thread spins while there is work and for a while after; then it sleeps in two phases (arm
//! every source, look once more, block) until a packet, a timer, a forwarded packet or the end.
//!
//! However a thread ends, it leaves the network: peers are reset, and packet memory comes back.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use clock::{Clock, MonotonicClock};
use dataplane::{
    ClassError, ConservingConfig, ConservingThread, CycleStats, Elastic, ElasticConfig,
    ElasticThread, Floor, ForwardPorts, Idle, IdlePolicy, Left, MAX_CORES, MigrationStats,
    Moderation, ModerationPolicy, Parts, ReadySetConfig, Tender, WhileAway, forwarding_mesh,
};
use domain::Service;
use mem::{Pool, Region};
use nic::{Armed, Nic, NicStats};
use process::NearBell;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::thread::CpuSet;
use stack::{RssKey, Secrets, Shared, StackConfig, StackStats};

use crate::kicks::Kicks;

mod device;
mod mover;
mod protected;

pub use mover::{Mover, MoverError};
pub use protected::run_protected;

/// Packets that may be under way between two cores.
const FORWARD_RING: usize = 1024;
/// How long a thread that ends goes on telling its peers so, where they or the device keep it waiting; after
/// how long it lets others have the processor meanwhile, and how often it looks again then.
const LEAVING: Duration = Duration::from_secs(1);
const LEAVING_HURRY: Duration = Duration::from_millis(2);
const LEAVING_LOOK: Duration = Duration::from_micros(200);

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
    #[error(
        "{found} NIC queues were given; an elastic thread needs one each, and 1 to 128 can run"
    )]
    Queues {
        /// Queues given.
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
    /// A `Mover` for another number of threads, or one that was used before.
    #[error(
        "the `Mover` is for another number of elastic threads than {cores}, or was used before"
    )]
    Mover {
        /// Threads that there are.
        cores: usize,
    },
    /// The device's indirection table, at the start.
    #[error("the device's indirection table could not be written: {0}")]
    Table(#[from] nic::rss::RssError),
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
    /// Where each elastic thread tells how busy it is; threads without an entry do not tell.
    pub meters: Vec<Arc<Meter>>,
}

/// How busy an elastic thread is, for others to look at while it runs. On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Meter {
    busy_ns: AtomicU64,
}

impl Meter {
    /// Time of the cycles that did something: polling that found nothing is not in it.
    pub fn busy(&self) -> Duration {
        // A number to look at: nothing else hangs on it.
        Duration::from_nanos(self.busy_ns.load(Ordering::Relaxed))
    }
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

/// How others wake a sleeping elastic thread.
#[derive(Debug)]
struct Bell {
    asleep: AtomicBool,
    event: OwnedFd,
}

impl Bell {
    fn new() -> Result<Self, RuntimeError> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|errno| system("making an eventfd", errno))?;
        Ok(Self { asleep: AtomicBool::new(false), event })
    }

    /// Called after work was left for the thread. The fence orders that before the look at the
    /// flag; it pairs with the one in `sleep`, where the flag is set before the look for work.
    fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            // A full counter (nobody reads it for long) still wakes.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

/// Runs one elastic thread for each queue pair in `nics` until `stop` is set, each with the service
/// that `make_service` makes for its number. Answers what each has done, in order.
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
    run_with(config, region, nics, make_service, ready, None, stop)
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
    run_with(config, region, nics, make_service, ready, Some(mover), stop)
}

fn run_with<N, S>(
    config: &RuntimeConfig,
    region: &Arc<Region>,
    nics: Vec<N>,
    make_service: impl Fn(usize) -> S + Sync,
    ready: impl Fn() + Sync,
    mover: Option<&Mover>,
    stop: &AtomicBool,
) -> Result<Vec<(CoreReport, S)>, RuntimeError>
where
    N: Nic + Send,
    S: Service + Send,
{
    let key = mover.and_then(Mover::key);
    let (ground, ports) = Ground::new(config, key, nics.len())?;
    let (shared, clock) = (&ground.shared, ground.clock);
    if mover.is_some_and(|mover| !mover.start(shared, &ground.bells)) {
        return Err(RuntimeError::Mover { cores: nics.len() });
    }
    mover.map_or(Ok(()), |mover| mover.deal(shared))?;
    let stage = Stage { mover, ..ground.stage(config, stop) };
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
    bells: Arc<[Bell]>,
    kicks: Kicks,
}

impl Ground {
    /// For so many threads; with the ends of each one's forwarding rings. `key`: of the device's hash, where the
    /// configuration does not know it.
    fn new(
        config: &RuntimeConfig,
        key: Option<RssKey>,
        cores: usize,
    ) -> Result<(Self, Vec<ForwardPorts>), RuntimeError> {
        if !(1..=128).contains(&cores) {
            return Err(RuntimeError::Queues { found: cores });
        }
        if config.scheduler.shares() && cores > MAX_CORES {
            return Err(RuntimeError::TooManyCores { found: cores, max: MAX_CORES });
        }
        let secrets = draw_secrets()?;
        let stack = StackConfig { rss_key: key.or(config.stack.rss_key), ..config.stack.clone() };
        let shared = Arc::new(Shared::new(stack, &secrets, cores as u8));
        let bells = (0..cores).map(|_| Bell::new()).collect::<Result<_, _>>()?;
        let priority = config.realtime.unwrap_or(0);
        let kicks = match config.scheduler.kicks() {
            true if !(1..=98).contains(&priority) => {
                return Err(RuntimeError::KicksNeedPriority { found: priority });
            }
            true => Kicks::new(cores).map_err(|source| system("making an eventfd", source))?,
            false => Kicks::default(),
        };
        let ground = Self { shared, clock: MonotonicClock::new(), bells, kicks };
        Ok((ground, forwarding_mesh(cores, FORWARD_RING)))
    }

    fn stage<'a>(&'a self, config: &'a RuntimeConfig, stop: &'a AtomicBool) -> Stage<'a> {
        let Self { clock, bells, kicks, .. } = self;
        let starting = AtomicUsize::new(bells.len());
        let callers = Vec::new();
        Stage { config, clock: *clock, bells, kicks, mover: None, stop, starting, callers }
    }
}

/// What all threads of a run have in common.
struct Stage<'a> {
    config: &'a RuntimeConfig,
    clock: MonotonicClock,
    bells: &'a [Bell],
    kicks: &'a Kicks,
    mover: Option<&'a Mover>,
    stop: &'a AtomicBool,
    /// Threads that do not receive yet.
    starting: AtomicUsize,
    /// Of each thread, what its application rings when it is done with a batch, where it has one in another process.
    callers: Vec<Option<NearBell>>,
}

impl Stage<'_> {
    fn run_sharing<N: Nic + Send, S: Service + Send>(
        &self,
        threads: Vec<ConservingThread<N>>,
        make_service: &(impl Fn(usize) -> S + Sync),
        ready: &(impl Fn() + Sync),
    ) -> Result<Vec<(CoreReport, S)>, RuntimeError> {
        let kicked = self.config.scheduler.kicks();
        let tenders = threads.iter().filter(|_| kicked).map(ConservingThread::tender).collect();
        let threads = threads.into_iter().map(|thread| move || thread).collect();
        self.run(threads, tenders, make_service, ready)
    }

    fn run<T, N, S>(
        &self,
        threads: Vec<impl FnOnce() -> T + Send>,
        tenders: Vec<Tender<N>>,
        make_service: &(impl Fn(usize) -> S + Sync),
        ready: &(impl Fn() + Sync),
    ) -> Result<Vec<(CoreReport, S)>, RuntimeError>
    where
        T: Elastic,
        N: Nic + Send,
        S: Service + Send,
    {
        std::thread::scope(|scope| {
            let mut handles = Vec::new();
            let mut tended = Vec::new();
            for (core, tender) in tenders.into_iter().enumerate() {
                self.kicks.add();
                let body = move || self.tend(core, tender);
                let named = std::thread::Builder::new().name(format!("kicked-{core}"));
                match named.spawn_scoped(scope, body) {
                    Ok(handle) => tended.push(handle),
                    Err(source) => {
                        self.stop.store(true, Ordering::Relaxed);
                        self.kicks.done();
                        self.kicks.end();
                        return Err(system("starting a thread for kicks", source));
                    }
                }
            }
            for (core, make) in threads.into_iter().enumerate() {
                let body = move || self.one(core, make, make_service, ready);
                let named = std::thread::Builder::new().name(format!("elastic-{core}"));
                match named.spawn_scoped(scope, body) {
                    Ok(handle) => handles.push(handle),
                    Err(source) => {
                        self.stop.store(true, Ordering::Relaxed);
                        self.kicks.end();
                        return Err(system("starting an elastic thread", source));
                    }
                }
            }
            let reports = join_all(handles);
            join_all(tended).and(reports)
        })
    }

    fn one<T: Elastic, S: Service>(
        &self,
        core: usize,
        make: impl FnOnce() -> T,
        make_service: &impl Fn(usize) -> S,
        ready: &impl Fn(),
    ) -> Result<(CoreReport, S), RuntimeError> {
        let others = EndsWithThis(self.stop);
        // Its memory is first touched where it runs.
        let placed = self.place(core);
        let mut thread = make();
        // A panic is the service's as likely as ours: the peers are told all the same.
        let ran = catch_unwind(AssertUnwindSafe(|| {
            placed.and_then(|()| self.serve(core, &mut thread, make_service, ready))
        }));
        // All leave at the same time.
        drop(others);
        self.kicks.end();
        // Where the first panic left something half done there may be a second: the first is told.
        let left = catch_unwind(AssertUnwindSafe(|| self.leave(thread)));
        let (report, service) = ran.unwrap_or_else(|payload| resume_unwind(payload))?;
        let left = left.unwrap_or_else(|payload| resume_unwind(payload));
        Ok((CoreReport { left, ..report }, service))
    }

    /// The thread that kicks wake, until all stop.
    fn tend<N: Nic>(&self, core: usize, tender: Tender<N>) -> Result<(), RuntimeError> {
        let _counted = Counted(self.kicks);
        let _others = EndsWithThis(self.stop);
        pin(core, self.config.cpus.get(core).copied())?;
        set_realtime(self.config.realtime.unwrap_or(0) + 1)?;
        self.kicks.tend(core, tender, self.clock, |wakes| self.ring(wakes), self.stop);
        Ok(())
    }

    /// Puts the calling thread, number `core`, where it is to run.
    fn place(&self, core: usize) -> Result<(), RuntimeError> {
        pin(core, self.config.cpus.get(core).copied())?;
        self.config.realtime.map_or(Ok(()), set_realtime)
    }

    fn serve<T: Elastic, S: Service>(
        &self,
        core: usize,
        thread: &mut T,
        make_service: &impl Fn(usize) -> S,
        ready: &impl Fn(),
    ) -> Result<(CoreReport, S), RuntimeError> {
        let mut service = make_service(core);
        if self.config.scheduler.shares() && !service.runs_anywhere() {
            return Err(RuntimeError::KeepsToItsCore);
        }
        if let Some(mover) = self.mover {
            if !service.runs_anywhere() {
                return Err(RuntimeError::CannotMove);
            }
            mover.mailbox(core).into_iter().for_each(|mailbox| thread.obey(mailbox));
        }
        // The first cycle lends the NIC its receive buffers: before, it drops what comes.
        thread.cycle(self.clock.now(), || self.clock.now(), &mut service);
        // The last thread knows by this that the others are as far.
        if self.starting.fetch_sub(1, Ordering::AcqRel) == 1 {
            ready();
        }
        let meter = self.config.meters.get(core).cloned().unwrap_or_default();
        Ok(self.drive(core, thread, service, &meter))
    }

    /// The end of a thread, however it came.
    fn leave<T: Elastic>(&self, mut thread: T) -> Left {
        let began = self.clock.now();
        loop {
            let now = self.clock.now();
            let waits = now < began + LEAVING && thread.withdraw(now);
            self.ring(thread.take_wakes());
            if !waits {
                break;
            }
            if now > began + LEAVING_HURRY {
                std::thread::sleep(LEAVING_LOOK);
            }
        }
        let left = thread.leave();
        if left.memory.lost > 0 {
            let chunks = left.memory.lost;
            tracing::warn!(chunks, "the device keeps packet memory until this process ends");
        }
        left
    }

    /// Wakes those of these threads that sleep, one bit each.
    #[inline]
    fn ring(&self, mut wakes: u128) {
        while wakes != 0 {
            let other = wakes.trailing_zeros() as usize;
            wakes &= wakes - 1;
            if let Some(bell) = self.bells.get(other) {
                bell.ring();
            }
        }
    }

    fn drive<T: Elastic, S: Service>(
        &self,
        core: usize,
        thread: &mut T,
        mut service: S,
        meter: &Meter,
    ) -> (CoreReport, S) {
        let Self { config, clock, bells, stop, .. } = *self;
        let mut idle = Idle::new(config.idle, clock.now());
        let mut moderation = Moderation::new(config.moderation, clock.now());
        let (mut sleeps, mut busy_ns) = (0, 0);
        // When the cycle before this one began, where it did something.
        let mut working_since = None;
        while !stop.load(Ordering::Relaxed) {
            let now = clock.now();
            if let Some(since) = working_since {
                busy_ns += now.since(since).as_nanos() as u64;
                meter.busy_ns.store(busy_ns, Ordering::Relaxed);
            }
            let progress = thread.cycle(now, || clock.now(), &mut service);
            working_since = progress.worked.then_some(now);
            self.ring(thread.take_wakes());
            self.kicks.send(thread.take_kicks());
            let not_before = moderation.after_cycle(now, progress.received);
            if let Some(until) = not_before
                && !progress.pending
            {
                // What follows is no work.
                if let Some(since) = working_since.take() {
                    busy_ns += clock.now().since(since).as_nanos() as u64;
                    meter.busy_ns.store(busy_ns, Ordering::Relaxed);
                }
                let until = progress.next_deadline.map_or(until, |deadline| deadline.min(until));
                leave_alone(clock, until);
            }
            let rest = idle.after_cycle(now, &progress);
            if let Some(span) = rest {
                let caller = self.callers.get(core).and_then(Option::as_ref);
                sleeps += sleep(thread, &bells[core], caller, span, stop) as u64;
            }
        }
        let report = CoreReport {
            cycle: thread.stats(),
            stack: thread.inspect(|stack, _| stack.stats()),
            nic: thread.nic_stats(),
            migrations: thread.migrations(),
            sleeps,
            busy_ns,
            footprint: thread.inspect(|stack, _| stack.footprint()),
            left: Left::default(),
        };
        (report, service)
    }
}

/// A thread that tends, until it ends.
struct Counted<'a>(&'a Kicks);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.done();
    }
}

/// Waits for all elastic threads; the first failure is the one that is told.
fn join_all<T>(
    handles: Vec<ScopedJoinHandle<'_, Result<T, RuntimeError>>>,
) -> Result<Vec<T>, RuntimeError> {
    let mut reports = Vec::new();
    let mut failure = None;
    for (core, handle) in handles.into_iter().enumerate() {
        match handle.join() {
            Ok(Ok(report)) => reports.push(report),
            Ok(Err(error)) => failure = failure.or(Some(error)),
            Err(payload) => {
                let message = panic_message(payload.as_ref());
                failure = failure.or(Some(RuntimeError::Panicked { core, message }));
            }
        }
    }
    failure.map_or(Ok(reports), Err)
}

fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

/// Ends all elastic threads when one ends, also by an error or a panic: a dataplane of which a part
/// is missing would go on without the connections of that part, and nobody would be told.
struct EndsWithThis<'a>(&'a AtomicBool);

impl Drop for EndsWithThis<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Lets the calling thread run before all ordinary ones (`SCHED_FIFO`, priority 1 to 99). A thread
/// that never sleeps must not stay so: it starves its processor.
///
/// # Errors
/// [`RuntimeError::System`]: without privileges, that they are missing.
pub fn set_realtime(priority: u8) -> Result<(), RuntimeError> {
    crate::unsafe_priority::set_realtime(priority)
        .map_err(|source| system("setting a real-time priority", source))
}

/// Pins the calling thread, number `core`, to a processor.
fn pin(core: usize, cpu: Option<usize>) -> Result<(), RuntimeError> {
    let Some(cpu) = cpu else { return Ok(()) };
    let allowed = rustix::thread::sched_getaffinity(None)
        .map_err(|errno| system("asking for the processors of this process", errno))?;
    if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
        let allowed: Vec<String> = (0..CpuSet::MAX_CPU)
            .filter(|&cpu| allowed.is_set(cpu))
            .map(|cpu| cpu.to_string())
            .collect();
        return Err(RuntimeError::Processor { core, cpu, allowed: allowed.join(", ") });
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|errno| system("pinning an elastic thread to its processor", errno))
}

/// Spins without a look at anything but the clock: it is tens of microseconds, and going to sleep and
/// waking up costs about as much.
fn leave_alone(clock: MonotonicClock, until: clock::Instant) {
    while clock.now() < until {
        std::hint::spin_loop();
    }
}

/// Arms every source, looks once more, and blocks. Answers whether it slept.
fn sleep<T: Elastic>(
    thread: &mut T,
    bell: &Bell,
    caller: Option<&NearBell>,
    span: Duration,
    stop: &AtomicBool,
) -> bool {
    bell.asleep.store(true, Ordering::Relaxed);
    // The flag is seen before we look for work; see `Bell::ring`.
    fence(Ordering::SeqCst);
    let mut slept = false;
    let is_done = caller.is_some_and(|caller| !caller.arm());
    if !is_done && thread.is_quiet() && !stop.load(Ordering::Relaxed) {
        slept = thread.with_nic(|nic| {
            let quiet = nic.arm() == Armed::Quiet;
            if quiet {
                block(nic.wait_fd(), bell.event.as_fd(), caller, span);
            }
            nic.disarm();
            quiet
        });
    }
    caller.into_iter().for_each(NearBell::disarm);
    bell.asleep.store(false, Ordering::Relaxed);
    let mut count = [0u8; 8];
    // Nothing to read: nobody rang.
    let _ = rustix::io::read(&bell.event, &mut count);
    slept
}

fn block(
    device: Option<BorrowedFd<'_>>,
    bell: BorrowedFd<'_>,
    caller: Option<&NearBell>,
    span: Duration,
) {
    let timeout = Timespec {
        tv_sec: span.as_secs().min(1 << 20) as i64,
        tv_nsec: span.subsec_nanos().into(),
    };
    let all = [Some(bell), device, caller.map(AsFd::as_fd)];
    let mut count = 0;
    // Those that there are, first.
    let mut asked = [bell; 3].map(|none| PollFd::from_borrowed_fd(none, PollFlags::IN));
    for fd in all.into_iter().flatten() {
        asked[count] = PollFd::from_borrowed_fd(fd, PollFlags::IN);
        count += 1;
    }
    // An interrupted poll only ends the sleep early.
    let _ = poll(&mut asked[..count], Some(&timeout));
}
