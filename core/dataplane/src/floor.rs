//! What the elastic threads of a work-conserving dataplane share: how they share their work, each core's
//! network layer behind its lock, and the queues of turns.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};

use clock::{Duration, Instant};
use nic::Nic;
use shuffle::ShuffleLayer;

use crate::classes::Classes;
use crate::cycle::CycleStats;
use crate::home_layer::HomeLayer;
use crate::home_lock::HomeLock;
use crate::turn::ConnectionTurn;

/// What becomes of a network layer whose core is in the application, and cannot run it (ZygOS §4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhileAway {
    /// It waits until the core comes back.
    Wait,
    /// A core that has nothing to do, or a turn to bring home, runs it in its stead.
    #[default]
    Borrow,
    /// Such a core has the application interrupted ([`Elastic::take_kicks`](crate::Elastic::take_kicks)), so that its own core runs it.
    /// A kick is a hint: one that is lost costs latency.
    Kick,
}

/// How a work-conserving dataplane shares its work.
#[derive(Clone, Copy, Debug)]
pub struct ConservingConfig {
    /// How long a crossing lasts at most, where no core waits for work and its events take no longer than the
    /// longest ones of late: the longest that a core which becomes idle meanwhile waits for a part of it, and time
    /// enough for short requests to share a crossing's costs.
    pub crossing: Duration,
    /// How long a core must have had nothing to do before others make turns for it to take: about what
    /// handing one over costs, so that a gap between two packets does not change how everybody works.
    pub idle_after: Duration,
    /// What becomes of a network layer whose core is in the application.
    pub while_away: WhileAway,
    /// How long a core must have been in the application before another sees to its network layer.
    pub borrow_after: Duration,
    /// The longest time for which a network layer that had nothing is left alone: each look takes cache lines
    /// from its home. The shortest from one kick to the next.
    pub borrow_pause: Duration,
    /// How long the application should stay with one crossing, where it can put off the rest
    /// ([`Calls::yield_at`](domain::Calls::yield_at)): so that short requests do not wait for long ones. None: as long as it takes.
    pub quantum: Option<Duration>,
    /// Turns that may stand in each queue.
    pub turns: usize,
    /// Free chunks that each thread keeps for what its application sends.
    pub pool_keep: usize,
}

impl Default for ConservingConfig {
    fn default() -> Self {
        Self {
            crossing: Duration::from_micros(10),
            idle_after: Duration::from_micros(2),
            while_away: WhileAway::default(),
            borrow_after: Duration::from_micros(2),
            borrow_pause: Duration::from_micros(20),
            quantum: None,
            turns: 4_096,
            pool_keep: 512,
        }
    }
}

/// How a dataplane with one ready set shares its work.
#[derive(Clone, Debug, Default)]
pub struct ReadySetConfig {
    /// As under the work-conserving scheduler. `turns` is for each class; `crossing` also bounds for how long
    /// a turn that is more urgent waits behind those of the crossing before it.
    pub sharing: ConservingConfig,
    /// Which connections are served first.
    pub classes: Classes,
}

/// One core's part of what is shared.
pub(crate) struct Side<N: Nic> {
    pub hints: Hints,
    /// The core's network layer. Other cores borrow it while the core is in the application or asleep.
    pub layer: HomeLock<HomeLayer<N>>,
}

/// What other cores read of a core in each idle look, in a cache line that its network layer has no part of. All of
/// them are hints: a stale one costs a look, or delays one.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Hints {
    /// When the core went into the application or to sleep, in nanoseconds; 0: it runs its network layer itself.
    pub away_since: AtomicU64,
    /// When its network layer is next worth a look by others, in nanoseconds.
    pub borrow_not_before: AtomicU64,
    /// When it may next be kicked, in nanoseconds.
    pub kick_not_before: AtomicU64,
}

impl Hints {
    /// From when on another core looks after the network layer, if its home is away: `None` where it is not. A look
    /// that could not lead to a kick waits until it can.
    #[inline]
    pub fn look_from(&self, config: &ConservingConfig) -> Option<Instant> {
        let at = |word: &AtomicU64| Instant::from_nanos(word.load(Ordering::Relaxed));
        let since = at(&self.away_since);
        let not_before = || at(&self.borrow_not_before).max(at(&self.kick_not_before));
        (since != Instant::ZERO).then(|| (since + config.borrow_after).max(not_before()))
    }
}

/// What the elastic threads of a work-conserving dataplane share.
pub struct Floor<N: Nic> {
    pub(crate) shuffle: ShuffleLayer<ConnectionTurn>,
    pub(crate) sides: Box<[Side<N>]>,
    pub(crate) config: ConservingConfig,
}

impl<N: Nic> Floor<N> {
    /// Runs the network layer of core `core` on that core, while its application is interrupted or its thread sleeps,
    /// if no other core runs it. Answers who is to be woken, one bit each: this core among them where its thread finds
    /// something in its next cycle.
    pub(crate) fn kicked(&self, now: Instant, core: usize) -> u128 {
        let Some(mut layer) = self.sides[core].layer.try_home() else { return 0 };
        let now = layer.at(now);
        let found = layer.receive(now, &self.shuffle);
        // The thread that is interrupted updates counters of its own.
        let mut stats = layer.kicked;
        let published = self.hand_out(&mut layer, core, &mut stats);
        stats.kicked += 1;
        layer.kicked = stats;
        // The core that is interrupted takes none of them.
        let mut wakes = if published { self.shuffle.call(core).into() } else { 0 };
        if layer.finish_away(now, found) {
            wakes |= 1 << core;
        }
        wakes | core::mem::take(&mut layer.net.forwarded)
    }

    /// Makes turns of what the layer of core `home` has, and announces them. Returns whether there are new ones:
    /// the core that runs this then wakes those whom [`ShuffleLayer::call`] names, once it has taken what it runs itself.
    /// Counted for that core, as what it did in the layer before.
    #[must_use]
    pub(crate) fn hand_out(
        &self,
        layer: &mut HomeLayer<N>,
        home: usize,
        stats: &mut CycleStats,
    ) -> bool {
        stats.calls += layer.take_executed();
        let made = layer.hand_out(&self.shuffle);
        stats.turns += made;
        if made > 0 {
            self.shuffle.announce(home);
        }
        made > 0
    }
}

/// The part of an elastic thread that a kick runs. It belongs on the same core, where it interrupts the
/// application: in a thread of higher real-time priority, for one.
pub struct Tender<N: Nic> {
    pub(crate) floor: Arc<Floor<N>>,
    pub(crate) core: usize,
}

impl<N: Nic> Tender<N> {
    /// Runs the network layer, if no other core does. Answers the cores for which something was left, one bit each,
    /// its own among them: they may sleep.
    pub fn tend(&self, now: Instant) -> u128 {
        self.floor.kicked(now, self.core)
    }
}

/// As [`Tender`], for the thread's own use: it does not keep the network layer from being taken apart. Each thread
/// has a count of its own for this, so that a look writes to no line of another core.
pub struct OwnTender<N: Nic>(pub(crate) Weak<Tender<N>>);

impl<N: Nic> OwnTender<N> {
    /// Runs the network layer, if nobody does. Answers as [`Tender::tend`].
    pub fn tend(&self, now: Instant) -> u128 {
        self.0.upgrade().map_or(0, |tender| tender.tend(now))
    }
}

impl<N: Nic> core::fmt::Debug for OwnTender<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OwnTender").finish_non_exhaustive()
    }
}

impl<N: Nic> core::fmt::Debug for Tender<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Tender").field("core", &self.core).finish_non_exhaustive()
    }
}
