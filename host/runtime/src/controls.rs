//! How a controller steers the elastic threads of a running service (IX §4.5, §4.6), from any thread: it grants and
//! parks them, places them on processors, and moves flow groups between them.
//!
//! ```
//! use endpoint::{Ask, RefusedKind, Request};
//! use runtime::Controls;
//! let controls = Controls::new(2);
//! // Nothing runs with it: see `run_controlled`.
//! let refused = controls.begin(Ask { id: 1, request: Request::Park { thread: 1 } });
//! assert!(refused.is_err_and(|refused| refused.kind == RefusedKind::Leaving));
//! ```
//!
//! A *parked* thread leaves its processor to others: it sleeps as soon as it has nothing to do, and takes no work of
//! other threads. It goes on with what comes to it: packets that the wire still sends to its queue are forwarded as
//! always. So only a thread that is home to no flow group is parked.
//!
//! Orders are words that the thread looks at once in each cycle: one load of a line that is seldom written. Whether
//! one makes sense is decided here, before it is given.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use dataplane::{
    GroupSet, MoveCommand, MoveControl, MoveError, MoveMailbox, MoveReport, Phase, move_mailbox,
};
use endpoint::{Answer, Ask, Done, MoveSummary, Outcome, Refused, RefusedKind, Request};
use nic::indirection::IndirectionTable;
use nic::rss::RssError;
use stack::{FLOW_GROUPS, RssKey, Shared};

use crate::bells::{Bell, Wake, end_run};
use crate::device::{SharedTable, TableError};

/// Processors that an order can name.
const CPUS: usize = 1 << 24;
/// Moves of one thread that may be without a report.
const MAILBOX: usize = 16;

/// Where a thread finds its orders, on lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Station {
    /// Number, kind and processor of the last order.
    order: AtomicU64,
    answer: Answered,
}

/// Where it reports what it did: the order's number and an error number.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Answered(AtomicU64);

/// What the controller knows.
#[derive(Debug, Default)]
struct Known {
    /// Threads that are parked, or ordered to be.
    parked: u128,
    /// By thread: orders given.
    numbers: Vec<u32>,
    /// By thread: where moves are posted.
    moves: Vec<MoveControl>,
    /// Requests without a report.
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    ask: Ask,
    /// The thread's number for it; 0: a move, of which the thread reports.
    number: u32,
}

/// What there is once threads run.
#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    bells: Arc<[Bell]>,
}

/// A handle on one run's elastic threads; see the module's comment.
#[derive(Debug)]
pub struct Controls {
    stations: Box<[Station]>,
    known: Mutex<Known>,
    mailboxes: Mutex<Vec<Option<MoveMailbox>>>,
    table: Option<SharedTable>,
    running: OnceLock<Running>,
    granted: usize,
    movable: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is known and the ends of rings are whole whatever panicked beside them.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Controls {
    /// A handle for one run of `cores` elastic threads, all of them granted.
    pub fn new(cores: usize) -> Self {
        Self::with_granted(cores, cores)
    }

    /// The same, and only the first `granted` threads (one at least) are granted at first: all flow groups are theirs,
    /// the others begin parked.
    pub fn with_granted(cores: usize, granted: usize) -> Self {
        let granted = granted.clamp(1, cores.max(1));
        let (moves, mailboxes) = (0..cores)
            .map(|_| move_mailbox(MAILBOX))
            .map(|(control, mailbox)| (control, Some(mailbox)))
            .unzip();
        let controls = Self {
            stations: (0..cores).map(|_| Station::default()).collect(),
            known: Mutex::new(Known { numbers: vec![0; cores], moves, ..Known::default() }),
            mailboxes: Mutex::new(mailboxes),
            table: None,
            running: OnceLock::new(),
            granted,
            movable: AtomicBool::new(false),
        };
        let mut known = controls.known();
        for core in granted..cores {
            known.parked |= 1 << core;
            controls.give(&mut known, core, PARK);
        }
        drop(known);
        controls
    }

    /// The same, on a device with an indirection table: the threads hash with its key and change it as they move
    /// flow groups. It belongs to the handle from now on. Thread `n` has the device's queue `n`.
    ///
    /// # Errors
    /// A table that does not fit.
    pub fn with_table(self, table: impl IndirectionTable + 'static) -> Result<Self, TableError> {
        let table = Some(SharedTable::new(Box::new(table), self.cores())?);
        Ok(Self { table, ..self })
    }

    /// Whether a device's table follows the flow groups.
    pub fn steers(&self) -> bool {
        self.table.is_some()
    }

    /// Has a thread carry out a request: [`Request::Grant`], [`Request::Park`], [`Request::Place`] or
    /// [`Request::Move`]. Each that is begun is answered by one of the [`reports`](Self::reports), unless its thread ends.
    ///
    /// # Errors
    /// Why not; nothing was ordered then.
    pub fn begin(&self, ask: Ask) -> Result<(), Refused> {
        let known = &mut *self.known();
        let number = match ask.request {
            Request::Grant { thread } => {
                let core = self.free(known, thread)?;
                known.parked &= !(1 << core);
                self.give(known, core, GRANT)
            }
            Request::Park { thread } => {
                let core = self.free(known, thread)?;
                self.may_park(known, thread)?;
                known.parked |= 1 << core;
                self.give(known, core, PARK)
            }
            Request::Place { thread, cpu } => {
                let core = self.free(known, thread)?;
                if cpu >= CPUS {
                    return Err(no_processor(thread, cpu, rustix::io::Errno::INVAL));
                }
                self.give(known, core, PLACE | (cpu as u64) << 8)
            }
            Request::Move { from, to, ref groups } => {
                self.post(known, ask.id, from, to, groups)?;
                0
            }
            Request::Describe | Request::End => {
                let reason = "this is no request for an elastic thread";
                return Err(Refused::new(RefusedKind::Unsupported, reason));
            }
        };
        known.open.push(Open { ask, number });
        Ok(())
    }

    /// What has become of requests since the last call.
    pub fn reports(&self) -> Vec<Answer> {
        let Known { moves, open, .. } = &mut *self.known();
        let mut reports = Vec::new();
        for (core, control) in moves.iter_mut().enumerate() {
            while let Some(MoveReport { token: id, outcome }) = control.report() {
                open.retain(|open| !(open.ask.id == id && open.is_move_of(core)));
                reports.push(Answer { id, result: moved(outcome) });
            }
        }
        open.retain(|open| match self.outcome(open) {
            None => true,
            Some(result) => {
                reports.push(Answer { id: open.ask.id, result });
                false
            }
        });
        reports
    }

    /// Whether a request has no report yet.
    pub fn is_waiting(&self) -> bool {
        !self.known().open.is_empty()
    }

    /// Whether a thread is parked, or has been ordered to.
    pub fn is_parked(&self, core: usize) -> bool {
        core < self.cores() && self.known().parked >> core & 1 != 0
    }

    /// Whether flow groups can be moved. Not before the threads serve.
    pub fn is_movable(&self) -> bool {
        self.movable.load(Ordering::Relaxed)
    }

    /// The flow groups whose home is thread `core`, or will be when a migration is complete. None before there
    /// are threads.
    pub fn groups_of(&self, core: usize) -> GroupSet {
        let Some(Running { shared, .. }) = self.running.get() else { return GroupSet::NONE };
        (0..FLOW_GROUPS as u16)
            .filter(|&group| usize::from(shared.home_of(group)) == core)
            .collect()
    }

    /// Elastic threads.
    pub fn cores(&self) -> usize {
        self.stations.len()
    }

    /// Threads that begin granted.
    pub(super) fn granted(&self) -> usize {
        self.granted
    }

    /// The key of the device's hash, where there is a table.
    pub(super) fn key(&self) -> Option<RssKey> {
        self.table.as_ref().map(|table| table.key)
    }

    /// The device's table, as the threads begin.
    pub(super) fn deal(&self, shared: &Shared) -> Result<(), RssError> {
        self.table.as_ref().map_or(Ok(()), |table| table.deal(|group| shared.home_of(group)))
    }

    /// Sets `stop`, with which the run was started, and wakes the threads that sleep. A run whose `stop` is set by other
    /// means ends when its threads wake by themselves ([`IdlePolicy::longest_sleep`](crate::IdlePolicy::longest_sleep)).
    pub fn end(&self, stop: &AtomicBool) {
        end_run(stop, self.running.get().map_or(&[], |running| &running.bells));
    }

    /// Threads start that are reached by these. Answers whether they are the first, and as many as expected.
    pub(super) fn start(&self, shared: &Arc<Shared>, bells: &Arc<[Bell]>) -> bool {
        let running = Running { shared: Arc::clone(shared), bells: Arc::clone(bells) };
        bells.len() == self.cores() && self.running.set(running).is_ok()
    }

    /// The mailbox of thread `core`, once, of a service that can be moved.
    pub(super) fn mailbox(&self, core: usize) -> Option<MoveMailbox> {
        self.movable.store(true, Ordering::Relaxed);
        let mailbox = lock(&self.mailboxes).get_mut(core)?.take()?;
        Some(match &self.table {
            Some(table) => mailbox.with_device(Box::new(table.clone())),
            None => mailbox,
        })
    }

    /// A thread's end.
    pub(super) fn seat(&self, core: usize) -> Option<Seat<'_>> {
        self.stations.get(core).map(|station| Seat { station, thread: core as u16, last: 0 })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    /// The index of a thread that runs.
    fn check(&self, thread: u16) -> Result<usize, Refused> {
        let cores = self.cores();
        if usize::from(thread) >= cores {
            let reason =
                format!("there is no elastic thread {thread}: there are {cores}, from 0 on");
            return Err(Refused::new(RefusedKind::NoSuchThread, reason));
        }
        match self.running.get() {
            Some(_) => Ok(thread.into()),
            None => Err(Refused::new(RefusedKind::Leaving, "no dataplane runs with this handle")),
        }
    }

    /// The index of a thread that has seen all orders.
    fn free(&self, known: &Known, thread: u16) -> Result<usize, Refused> {
        let core = self.check(thread)?;
        let seen = (self.stations[core].answer.0.load(Ordering::Acquire) >> 32) as u32;
        if seen != known.numbers[core] {
            let reason = format!(
                "elastic thread {thread} has not seen the last order yet: it is in the application"
            );
            return Err(Refused::new(RefusedKind::UnderWay, reason));
        }
        Ok(core)
    }

    fn may_park(&self, known: &Known, thread: u16) -> Result<(), Refused> {
        let concerns = |open: &Open| matches!(open.ask.request, Request::Move { from, to, .. } if from == thread || to == thread);
        if known.open.iter().any(concerns) {
            let reason = format!(
                "flow groups are on their way to elastic thread {thread} or from it: wait for the move's end"
            );
            return Err(Refused::new(RefusedKind::UnderWay, reason));
        }
        let groups = self.groups_of(thread.into()).len();
        if groups > 0 {
            let reason = format!(
                "elastic thread {thread} is home to {groups} flow groups: move them away first"
            );
            return Err(Refused::new(RefusedKind::HasGroups, reason));
        }
        Ok(())
    }

    /// Asks thread `from`, their home, to give flow groups to `to`.
    fn post(
        &self,
        known: &mut Known,
        token: u64,
        from: u16,
        to: u16,
        groups: &[u16],
    ) -> Result<(), Refused> {
        if let Some(group) = groups.iter().find(|group| usize::from(**group) >= FLOW_GROUPS) {
            let reason =
                format!("there is no flow group {group}: there are {FLOW_GROUPS}, from 0 on");
            return Err(Refused::new(RefusedKind::NoSuchThread, reason));
        }
        let (target, home) = (self.check(to)?, self.check(from)?);
        if !self.is_movable() {
            let reason = "the flow groups of this service cannot be moved: it keeps the state of its connections to \
                          each thread, or is a process of its own";
            return Err(Refused::new(RefusedKind::NotMovable, reason));
        }
        if known.parked >> target & 1 != 0 {
            let reason = format!("elastic thread {to} is parked: grant it first");
            return Err(Refused::new(RefusedKind::NotMovable, reason));
        }
        let groups: GroupSet = groups.iter().copied().collect();
        let command = MoveCommand { token, groups, to: target as u8 };
        known.moves[home].post(command).map_err(|_| {
            let reason = format!(
                "{MAILBOX} migrations of elastic thread {from} have no report yet: wait for one"
            );
            Refused::new(RefusedKind::TooMany, reason)
        })?;
        self.ring(home, Wake::Migration);
        Ok(())
    }

    /// Gives a thread an order. Answers its number.
    fn give(&self, known: &mut Known, core: usize, order: u64) -> u32 {
        known.numbers[core] = known.numbers[core].wrapping_add(1);
        let number = known.numbers[core];
        // The word is all that the thread reads of it.
        self.stations[core].order.store(u64::from(number) << 32 | order, Ordering::Relaxed);
        self.ring(core, Wake::Order);
        number
    }

    /// Wakes a thread for which something was left in `source`. It may sleep.
    fn ring(&self, core: usize, source: Wake) {
        let running = self.running.get();
        let bell = running.and_then(|running| running.bells.get(core));
        bell.into_iter().for_each(|bell| bell.ring(source));
    }

    /// What became of an order; none as long as the thread has not seen it, and for a move.
    fn outcome(&self, open: &Open) -> Option<Outcome> {
        let (thread, done) = match open.ask.request {
            Request::Grant { thread } => (thread, Done::Granted),
            Request::Park { thread } => (thread, Done::Parked),
            Request::Place { thread, .. } => (thread, Done::Placed),
            _ => return None,
        };
        let answer = self.stations.get(usize::from(thread))?.answer.0.load(Ordering::Acquire);
        let (seen, errno) = ((answer >> 32) as u32, answer as u32 as i32);
        Some(match open.ask.request {
            // There is one order at a time: a later one was seen means that this one was.
            _ if seen < open.number => return None,
            Request::Place { cpu, .. } if seen == open.number && errno != 0 => {
                Err(no_processor(thread, cpu, rustix::io::Errno::from_raw_os_error(errno)))
            }
            _ => Ok(done),
        })
    }
}

impl Open {
    fn is_move_of(&self, core: usize) -> bool {
        matches!(self.ask.request, Request::Move { from, .. } if usize::from(from) == core)
    }
}

fn no_processor(thread: u16, cpu: usize, errno: rustix::io::Errno) -> Refused {
    let reason = format!(
        "elastic thread {thread} cannot run on processor {cpu}: it is not there, offline, or not in the process's \
         cpuset (system error {})",
        errno.raw_os_error()
    );
    Refused::new(RefusedKind::System, reason)
}

fn moved(outcome: Result<dataplane::Moved, MoveError>) -> Outcome {
    let moved = outcome.map_err(|error| {
        let kind = match error {
            MoveError::NoSuchThread { .. } | MoveError::NoGroups => RefusedKind::NoSuchThread,
            MoveError::SameThread { .. } | MoveError::NotHome { .. } => RefusedKind::NotHome,
            MoveError::UnderWay { .. } => RefusedKind::UnderWay,
            MoveError::TooMany => RefusedKind::TooMany,
            MoveError::HasLeft { .. } | MoveError::Leaving => RefusedKind::Leaving,
        };
        Refused::new(kind, error.to_string())
    })?;
    Ok(Done::Moved(MoveSummary {
        groups: moved.groups,
        connections: moved.connections,
        packets_deferred: moved.packets,
        phase_ns: Phase::ALL.map(|phase| moved.times.of_ns(phase)),
    }))
}

/// Kinds of orders, in the low byte of a station's word; above it the processor of [`PLACE`].
const GRANT: u64 = 0;
const PARK: u64 = 1;
const PLACE: u64 = 2;

/// The thread's side of its orders.
#[derive(Debug)]
pub(super) struct Seat<'a> {
    station: &'a Station,
    thread: u16,
    last: u64,
}

impl Seat<'_> {
    /// Whether there is an order: one load of a line that the controller seldom writes.
    #[inline]
    pub fn has_order(&self) -> bool {
        self.station.order.load(Ordering::Relaxed) != self.last
    }

    /// Takes it.
    #[cold]
    pub fn take(&mut self) -> Request {
        self.last = self.station.order.load(Ordering::Relaxed);
        let thread = self.thread;
        match self.last & 0xff {
            GRANT => Request::Grant { thread },
            PARK => Request::Park { thread },
            _ => Request::Place { thread, cpu: (self.last >> 8) as usize & (CPUS - 1) },
        }
    }

    /// Reports what became of it.
    pub fn answer(&self, errno: i32) {
        let answer = self.last >> 32 << 32 | u64::from(errno as u32);
        self.station.answer.0.store(answer, Ordering::Release);
    }
}
