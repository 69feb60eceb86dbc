//! How a controller steers the elastic threads of a running service (IX §4.6), from any thread: it grants and
//! parks them, places them on processors, and moves flow groups between them.
//!
//! ```
//! use runtime::{ControlError, Controls};
//! let controls = Controls::new(2);
//! // Nothing runs with it: see `run_controlled`.
//! assert!(matches!(controls.park(1), Err(ControlError::Mover(_))));
//! ```
//!
//! A *parked* thread leaves its processor to others: it sleeps as soon as it has nothing to do, and takes no work of
//! other threads. It goes on with what comes to it: packets that the wire still sends to its queue are forwarded as
//! always. So only a thread that is home to no flow group is parked.
//!
//! Orders are words that the thread looks at once in each cycle: one load of a line that is seldom written. Whether
//! one makes sense is decided here, before it is given.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dataplane::{GroupSet, MoveCommand, MoveMailbox, MoveReport};
use nic::indirection::IndirectionTable;
use stack::Shared;

use crate::bells::{Bell, Wake};
use crate::mover::Mover;
use crate::mover_error::MoverError;

/// Processors that an order can name.
const CPUS: usize = 1 << 24;

/// Why an order was not given, or not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// As for moves: nothing runs, no such thread, too many moves.
    #[error(transparent)]
    Mover(#[from] MoverError),
    /// A thread that is to be parked is home to flow groups.
    #[error("elastic thread {core} is home to {groups} flow groups: move them away first")]
    HasGroups {
        /// The thread.
        core: usize,
        /// How many.
        groups: u32,
    },
    /// A thread that is to be parked has flow groups that come or go.
    #[error(
        "flow groups are on their way to elastic thread {core} or from it: wait for the move's end"
    )]
    Moving {
        /// The thread.
        core: usize,
    },
    /// A thread that is to be a home is parked.
    #[error("elastic thread {core} is parked: grant it first")]
    IsParked {
        /// The thread.
        core: usize,
    },
    /// The thread has not seen the order before this one.
    #[error("elastic thread {core} has not seen the last order yet: it is in the application")]
    Pending {
        /// The thread.
        core: usize,
    },
    /// Flow groups of this service stay where they are.
    #[error(
        "the flow groups of this service cannot be moved: it keeps the state of its connections to each thread, or \
         is a process of its own"
    )]
    NotMovable,
    /// The thread cannot run there.
    #[error(
        "elastic thread {core} cannot run on processor {cpu}: it is not there, offline, or not in the process's \
         cpuset (system error {errno})"
    )]
    Processor {
        /// The thread.
        core: usize,
        /// What was asked for.
        cpu: usize,
        /// What the system said.
        errno: i32,
    },
}

/// An order that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    core: usize,
    number: u32,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Grant,
    Park,
    Place { cpu: usize },
}

/// Where a thread finds its orders, on lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Station {
    /// Number, kind and processor of the last order.
    order: AtomicU64,
    answer: Answer,
}

/// Where it says what became of them.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Answer(AtomicU64);

/// What the controller knows.
#[derive(Debug, Default)]
struct Known {
    /// Threads that are parked, or told to be.
    parked: u128,
    /// Migrations without a report: from, token, to.
    moves: Vec<(usize, u64, usize)>,
    /// By thread: orders given.
    numbers: Vec<u32>,
}

/// A handle on one run's elastic threads; see the module's comment.
#[derive(Debug)]
pub struct Controls {
    mover: Mover,
    stations: Box<[Station]>,
    known: Mutex<Known>,
    granted: usize,
    movable: AtomicBool,
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
        let known = Known { numbers: vec![0; cores], ..Known::default() };
        let controls = Self {
            mover: Mover::new(cores),
            stations: (0..cores).map(|_| Station::default()).collect(),
            known: Mutex::new(known),
            granted,
            movable: AtomicBool::new(false),
        };
        let mut known = controls.known();
        for core in granted..cores {
            known.parked |= 1 << core;
            controls.give(&mut known, core, What::Park);
        }
        drop(known);
        controls
    }

    /// The same, on a device with an indirection table, as [`Mover::with_table`].
    ///
    /// # Errors
    /// As there.
    pub fn with_table(self, table: impl IndirectionTable + 'static) -> Result<Self, MoverError> {
        let mover = Mover::with_table(self.cores(), table)?;
        Ok(Self { mover, ..self })
    }

    /// Whether a device's table follows the flow groups.
    pub fn steers(&self) -> bool {
        self.mover.steers()
    }

    /// What moves flow groups.
    pub(super) fn mover(&self) -> &Mover {
        &self.mover
    }

    /// Has a thread serve with the configured idle policy.
    ///
    /// # Errors
    /// [`ControlError`]; nothing was ordered then.
    pub fn grant(&self, core: usize) -> Result<Order, ControlError> {
        let mut known = self.free(core)?;
        known.parked &= !(1 << core);
        Ok(self.give(&mut known, core, What::Grant))
    }

    /// Has a thread leave its processor to others.
    ///
    /// # Errors
    /// [`ControlError`]; nothing was ordered then.
    pub fn park(&self, core: usize) -> Result<Order, ControlError> {
        let mut known = self.free(core)?;
        if known.moves.iter().any(|&(from, _, to)| from == core || to == core) {
            return Err(ControlError::Moving { core });
        }
        let groups = self.mover.groups_of(core).len();
        if groups > 0 {
            return Err(ControlError::HasGroups { core, groups });
        }
        known.parked |= 1 << core;
        Ok(self.give(&mut known, core, What::Park))
    }

    /// Has a thread run on another processor.
    ///
    /// # Errors
    /// [`ControlError`]; nothing was ordered then. Whether the thread can run there is said by
    /// [`outcome`](Self::outcome).
    pub fn place(&self, core: usize, cpu: usize) -> Result<Order, ControlError> {
        let mut known = self.free(core)?;
        if cpu >= CPUS {
            let errno = rustix::io::Errno::INVAL.raw_os_error();
            return Err(ControlError::Processor { core, cpu, errno });
        }
        Ok(self.give(&mut known, core, What::Place { cpu }))
    }

    /// What became of an order; none as long as the thread has not seen it.
    pub fn outcome(&self, order: Order) -> Option<Result<(), ControlError>> {
        let Order { core, number, what } = order;
        let answer = self.stations.get(core)?.answer.0.load(Ordering::Acquire);
        let (seen, errno) = ((answer >> 32) as u32, answer as u32 as i32);
        Some(match what {
            // There is one order at a time: a later one was seen means that this one was.
            _ if seen < number => return None,
            What::Place { cpu } if seen == number && errno != 0 => {
                Err(ControlError::Processor { core, cpu, errno })
            }
            _ => Ok(()),
        })
    }

    /// Whether a thread is parked, or has been told to.
    pub fn is_parked(&self, core: usize) -> bool {
        core < self.stations.len() && self.known().parked >> core & 1 != 0
    }

    /// Whether flow groups can be moved. Not before the threads serve.
    pub fn is_movable(&self) -> bool {
        self.movable.load(Ordering::Relaxed)
    }

    /// Asks thread `core`, their home, to give flow groups away, as [`Mover::post`]. What became of it is in a
    /// [`report`](Self::report).
    ///
    /// # Errors
    /// [`ControlError`]; nothing was asked then.
    pub fn post(&self, core: usize, command: MoveCommand) -> Result<(), ControlError> {
        let to = usize::from(command.to);
        let mut known = self.known();
        self.check(core)?;
        if !self.is_movable() {
            return Err(ControlError::NotMovable);
        }
        if known.parked >> to.min(127) & 1 != 0 {
            return Err(ControlError::IsParked { core: to });
        }
        self.mover.post(core, command)?;
        known.moves.push((core, command.token, to));
        Ok(())
    }

    /// The next report of thread `core`, if there is one.
    pub fn report(&self, core: usize) -> Option<MoveReport> {
        let mut known = self.known();
        let report = self.mover.report(core)?;
        let is_it = |&(from, token, _): &(usize, u64, usize)| (from, token) == (core, report.token);
        if let Some(at) = known.moves.iter().position(is_it) {
            known.moves.swap_remove(at);
        }
        Some(report)
    }

    /// The flow groups whose home is thread `core`, as [`Mover::groups_of`].
    pub fn groups_of(&self, core: usize) -> GroupSet {
        self.mover.groups_of(core)
    }

    /// Elastic threads.
    pub fn cores(&self) -> usize {
        self.stations.len()
    }

    /// Threads that begin granted.
    pub(super) fn granted(&self) -> usize {
        self.granted
    }

    /// As [`Mover::end`].
    pub fn end(&self, stop: &AtomicBool) {
        self.mover.end(stop);
    }

    /// Threads start that are reached by these. Answers whether they are the first, and as many as expected.
    pub(super) fn start(&self, shared: &Arc<Shared>, bells: &Arc<[Bell]>) -> bool {
        self.mover.start(shared, bells)
    }

    /// The mailbox of thread `core`, once, of a service that can be moved.
    pub(super) fn mailbox(&self, core: usize) -> Option<MoveMailbox> {
        self.movable.store(true, Ordering::Relaxed);
        self.mover.mailbox(core)
    }

    /// A thread's end.
    pub(super) fn seat(&self, core: usize) -> Option<Seat<'_>> {
        self.stations.get(core).map(|station| Seat { station, last: 0 })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // It is whole whatever panicked beside it.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, core: usize) -> Result<(), ControlError> {
        let cores = self.stations.len();
        if core >= cores {
            return Err(MoverError::NoSuchThread { core, cores }.into());
        }
        if !self.mover.is_running() {
            return Err(MoverError::NotRunning.into());
        }
        Ok(())
    }

    /// What is known, where the thread has seen all orders.
    fn free(&self, core: usize) -> Result<MutexGuard<'_, Known>, ControlError> {
        self.check(core)?;
        let known = self.known();
        let seen = (self.stations[core].answer.0.load(Ordering::Acquire) >> 32) as u32;
        if seen != known.numbers[core] {
            return Err(ControlError::Pending { core });
        }
        Ok(known)
    }

    fn give(&self, known: &mut Known, core: usize, what: What) -> Order {
        known.numbers[core] = known.numbers[core].wrapping_add(1);
        let number = known.numbers[core];
        let kind = match what {
            What::Grant => 0,
            What::Park => 1,
            What::Place { cpu } => 2 | (cpu as u64) << 8,
        };
        // The word is all that the thread reads of it.
        self.stations[core].order.store(u64::from(number) << 32 | kind, Ordering::Relaxed);
        self.mover.ring(core, Wake::Order);
        Order { core, number, what }
    }
}

/// The thread's side of its orders.
#[derive(Debug)]
pub(super) struct Seat<'a> {
    station: &'a Station,
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
    pub fn take(&mut self) -> What {
        self.last = self.station.order.load(Ordering::Relaxed);
        match self.last & 0xff {
            0 => What::Grant,
            1 => What::Park,
            _ => What::Place { cpu: (self.last >> 8 & (CPUS as u64 - 1)) as usize },
        }
    }

    /// Says what became of it.
    pub fn answer(&self, errno: i32) {
        let answer = self.last >> 32 << 32 | u64::from(errno as u32);
        self.station.answer.0.store(answer, Ordering::Release);
    }
}
