//! Flow-group migration (IX §4.5): flow groups of one elastic thread, its *old home*, become another's, its
//! *new home*, while packets keep coming. Nothing is dropped, nothing reordered, no timer lost.
//!
//! ```text
//!           old home A                            other cores C, and B           new home B
//! prepare   the home word says B; Fence ------->  Fenced, behind all packets
//!           for A that were forwarded before
//!           the device's table says B; a probe
//!           goes into A's queue
//! wait      goes on as the owner                                                 parks what comes to it
//!                                                                          <---- Met: the first packet
//!           all Fenced, or the fence's timer; and the probe, with all before it, has been processed,
//!           or (without one) Met, and what stood in its receive ring then has,
//!           or the timer, and what stood there then has: the groups are sealed
//! rpc       busy connections are waited for; one message has it all  --------->  takes the groups in
//! deferred                                                                       what was parked, in order
//!           <----------------------------------------------------------  Done
//! ```
//!
//! [`Departures`] and [`Arrivals`] are the two ends as state machines without I/O, clock or threads; what
//! they decide, the network layer does (`net_layer::migrate`). Cores talk through the forwarding rings, of
//! which there is one for each pair of cores and direction, so that a message stands in one line with the
//! packets that were forwarded before it and after.
//!
//! Where IX holds the groups' processing off from the first step on, here the old home goes on until they are
//! sealed, so waiting costs latency only to packets that have come to the new home already.
//!
//! # Why no packet overtakes another of its flow
//!
//! Packets of a flow come to one receive ring, of core R, until the device's table is changed (if it can be),
//! and then to B's. R processes them in order, or forwards them in order. Let p come before q.
//!
//! 1. *Both come to R, which is neither A nor B.* R reads the home word for each. Up to some packet it says A,
//!    from then on B: a word's values are seen in one order. If both go to A, or both to B, the ring keeps
//!    their order. If p goes to A and q to B: q is parked at B until B has the group. A gives it away only
//!    after R's `Fenced`, which stands in the ring from R to A behind p (R sends nothing of the group to A
//!    after it, as it has seen the fence, and so the word that was written before the fence); and after all
//!    that had been taken from the rings then has been processed. So p is processed at A, and q later at B.
//! 2. *Both come to A.* What comes before the groups are sealed is processed at A. What comes after goes
//!    through the ring from A to B, in order, and is processed after p, as it is processed at B. It may stand
//!    in the ring before the groups do; then it is parked.
//! 3. *Both come to B.* What comes while the word says A goes through the ring to A, as in 1, with B as R.
//! 4. *p comes to A, and q to B, as the device's table has changed.* A changes it, after the home word: whoever
//!    sees a frame that has gone by the new table sees the new home, so q is parked. p must be processed at A
//!    before A gives the group away, or else be forwarded before q comes, which nobody could promise. How A knows:
//!    - *By a probe*, where the device can put one into A's queue behind all that the queue was given before the
//!      change. Whatever lies between table and ring (a kernel's backlog, say) keeps the order of a queue, so when
//!      the probe has come out of the ring, p has. A processes what it has taken, and seals. This also ends a wait
//!      where nothing comes.
//!    - *By the first packet at B*, which B reports (`Met`), where the device has no probes: it was sent by the new
//!      table. The change is in effect then, so what A's queue was given stands in its receive ring, *if* the
//!      device writes its rings in the order in which it chose queues, as one does that is polled. A processes
//!      as much as stands there, and seals. Where a kernel stands between and polls its queues in turns, p may
//!      come later than that, and q overtake it.
//!    - *By the migration timer* in any case: a probe is lost as any frame, and where nothing comes to B the table
//!      was never changed, or nothing is under way.
//! 5. *Parked packets* are one queue, in the order of their arrival. When the groups have come, theirs go
//!    before whatever the rings and the device have: no batch takes anything from those before the
//!    queue is empty, and B takes groups in only when no packet is left over from the batch before.
//!
//! # Events and calls
//!
//! Groups are given away between two cycles, when the application has none of their connections in hand: not
//! in a batch, not in a turn. Events that have been made and not handed out go along, and the new home hands
//! them out before all others. A call that is issued where a connection is not at home any more goes to its
//! home through the ring (`Calls`), and is parked there where the group is not yet.
//!
//! # What can go wrong
//!
//! A core that is in its application for long answers no fence. IX involves two cores; here the others are asked, and
//! after a time ([`MigrationConfig::fence`]) not waited for. One that is in its application has forwarded nothing since
//! the home word changed, and does so to the new home when it comes back. Only one that was preempted for as long
//! between reading the word and writing the ring breaks the order of what it had taken, at most a batch; TCP puts that
//! right.
//!
//! A ring that is full delays messages, which wait at the sender in order (packets behind them are dropped and
//! counted, as always when a ring is full). A new home that has left is noticed before the groups are
//! given away, and they stay. Cores that have left answer no fence and send nothing more: none is waited for. A
//! second migration of a group that is under way is refused.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use clock::{Duration, Instant};
use domain::{EventRecord, Received};
use mem::Pool;
use stack::{Elsewhere, GroupSet, PackedGroup};

mod arrivals;
mod departures;
mod device;
mod mailbox;
mod phases;
#[cfg(test)]
mod tests;

pub(crate) use arrivals::{Arrivals, Finished};
pub(crate) use departures::{Departure, Departures};
pub use device::{DeviceTable, Redirected};
pub use mailbox::{MailboxFull, MoveControl, MoveMailbox, move_mailbox};
pub use phases::{HISTOGRAM_BUCKETS, MigrationStats, Phase, PhaseStats, PhaseTimes};

/// Migrations of which one thread may be the old home at a time.
pub const MOVES_MAX: usize = 32;

/// How flow groups are moved.
#[derive(Clone, Copy, Debug)]
pub struct MigrationConfig {
    /// The migration timer: how long the old home waits for the probe, or without one for the first packet at the
    /// new home. It goes on with the groups meanwhile. Longer than a packet takes from the device's table to its
    /// ring: where a probe is lost, the timer stands for it.
    pub timer: Duration,
    /// How long the old home waits for the fences of other cores: longer than a step of a network layer takes. A core
    /// that does not answer is in its application, and all that it forwarded before has been processed; or it was
    /// preempted within such a step, and packets that it forwards afterwards may be overtaken.
    pub fence: Duration,
    /// Packets that may be parked at a new home, of all groups that are on their way there. Further ones are
    /// dropped and counted.
    pub parked: usize,
    /// Calls that may wait for a ring that is full, or for a group that is on its way.
    pub calls: usize,
    /// A mistake that tests make on purpose.
    #[doc(hidden)]
    pub mistake: Option<Mistake>,
}

impl Default for MigrationConfig {
    fn default() -> Self {
        let timer = Duration::from_millis(1);
        let fence = Duration::from_millis(5);
        Self { timer, fence, parked: 4_096, calls: 4_096, mistake: None }
    }
}

/// Mistakes that a simulation must find: each takes one step of the protocol out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Mistake {
    /// Parked packets are dropped when their group has come.
    ForgetParked,
    /// Nobody is asked whether packets are still on their way to the old home, nor is its receive ring emptied.
    NoFence,
    /// Parked packets go behind what the rings have.
    ParkedLast,
    /// A group is given away while the application has turns of its connections.
    IgnoreTurns,
    /// Events that were not handed out stay at the old home.
    LeaveEvents,
    /// Calls on connections that have moved are refused.
    RefuseCalls,
}

/// What a controller asks of the thread that is home to flow groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveCommand {
    /// The controller's own name for it, which comes with the report.
    pub token: u64,
    /// Which flow groups are to move: all of them or none.
    pub groups: GroupSet,
    /// The thread that is to be their home.
    pub to: u8,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveReport {
    /// The command's.
    pub token: u64,
    /// What came of it.
    pub outcome: Result<Moved, MoveError>,
}

/// A migration that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Flow groups.
    pub groups: u32,
    /// Connections in them.
    pub connections: u32,
    /// Packets whose processing was deferred.
    pub packets: u32,
    /// How long each phase took.
    pub times: PhaseTimes,
}

/// Why flow groups stay where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// The set is empty.
    #[error("no flow group was named")]
    NoGroups,
    /// There is no such thread.
    #[error("there is no elastic thread {to}: there are {cores}, from 0 on")]
    NoSuchThread {
        /// What was asked for.
        to: u8,
        /// Threads that there are.
        cores: u8,
    },
    /// The groups are there.
    #[error("thread {to} is their home already")]
    SameThread {
        /// What was asked for.
        to: u8,
    },
    /// Another thread is home to a group.
    #[error("flow group {group} is not at home here: ask its home")]
    NotHome {
        /// The first such group.
        group: u16,
    },
    /// A group is on its way here or from here.
    #[error("flow group {group} is under way: wait for the report")]
    UnderWay {
        /// The first such group.
        group: u16,
    },
    /// [`MOVES_MAX`] migrations are under way.
    #[error("{MOVES_MAX} migrations are under way from here: wait for a report")]
    TooMany,
    /// The thread that was to be their home has left.
    #[error("thread {to} has left")]
    HasLeft {
        /// That thread.
        to: u8,
    },
    /// The thread that is their home is leaving.
    #[error("the thread that is their home is leaving the network")]
    Leaving,
}

/// A migration under way: the old home, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MoveId {
    pub from: u8,
    pub number: u32,
}

/// What cores tell each other about migrations, in one line with the packets that they forward.
#[derive(Debug)]
pub(crate) enum Control {
    /// A to B: these groups are going to come.
    Expect { id: MoveId, set: GroupSet },
    /// A to all: the home words have changed; say when nothing more comes.
    Fence { id: MoveId },
    /// To A: nothing more comes.
    Fenced { id: MoveId },
    /// B to A: the first packet of a group has come out of B's own receive ring.
    Met { id: MoveId },
    /// A to B: they do not come.
    Cancel { id: MoveId },
    /// A to B: here they are.
    Groups(Parcel),
    /// B to A: all that was deferred is done.
    Done { id: MoveId, finished: Finished },
    /// To a home: calls that were issued elsewhere.
    Calls(Elsewhere),
}

impl Control {
    /// Gives its packet memory back, where nobody hears it any more. Answers how many peers were to be told of
    /// their connection's end, and are not.
    pub fn discard(self, pool: &mut Pool) -> u64 {
        match self {
            Self::Groups(parcel) => parcel.discard(pool),
            Self::Calls(mut calls) => {
                calls.clear(pool);
                0
            }
            _ => 0,
        }
    }
}

/// Flow groups on their way, with all that belongs to them.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub id: MoveId,
    pub set: GroupSet,
    pub groups: Vec<PackedGroup>,
    /// Events that were made and not handed out, in order.
    pub events: VecDeque<(EventRecord, Option<Received>)>,
    /// By flow group: the classes of its connections, where there are any.
    pub classes: Vec<(u16, Vec<u8>)>,
}

impl Parcel {
    pub fn discard(self, pool: &mut Pool) -> u64 {
        let buffers = self.events.into_iter().filter_map(|(_, buffer)| buffer);
        buffers.for_each(|(_, mbuf)| pool.free(mbuf));
        self.groups.into_iter().map(|group| group.discard(pool)).sum()
    }
}

/// One end's part of all migrations.
#[derive(Debug)]
pub(crate) struct Migration {
    pub departures: Departures,
    pub arrivals: Arrivals,
    pub config: MigrationConfig,
    pub stats: MigrationStats,
    pub mailbox: Option<MoveMailbox>,
    /// Events of sealed groups.
    pub aside: VecDeque<(EventRecord, Option<Received>)>,
    /// What other cores have said in the present cycle.
    pub heard: Vec<(u8, Box<Control>)>,
    pub leaving: bool,
}

impl Migration {
    pub fn new(core: u8, config: MigrationConfig) -> Self {
        Self {
            departures: Departures::new(core, &config),
            arrivals: Arrivals::new(config.parked),
            config,
            stats: MigrationStats::default(),
            mailbox: None,
            aside: VecDeque::new(),
            heard: Vec::new(),
            leaving: false,
        }
    }

    /// Whether this end makes a mistake on purpose.
    pub fn errs(&self, mistake: Mistake) -> bool {
        self.config.mistake == Some(mistake)
    }

    /// Whether anything is under way.
    #[inline]
    pub fn is_active(&self) -> bool {
        !self.departures.is_empty() || !self.arrivals.is_empty()
    }

    /// Whether a controller has asked for something: one load of a line that it seldom writes.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.mailbox.as_ref().is_some_and(|mailbox| !mailbox.is_empty())
    }

    /// When the state changes by itself.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.departures.next_deadline()
    }
}
