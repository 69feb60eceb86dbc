//! The exclusive form: one consumer. The cheapest, and the one for a queue per core.
//!
//! A queue's ready bit stays set while it has work, and is cleared at the visit that drains it: under
//! load producers and consumer then touch the ready word hardly at all.
//!
//! With up to [`DIRECT_MAX`](crate::DIRECT_MAX) queues there are no bits: "ready" is what the doorbells
//! say. A notification then moves one line instead of two, as a spinning loop's does.
//!
//! A doorbell is counted down late: the set remembers how many items a doorbell told of and how many of
//! them are done, and settles once that is half of them. The visits between touch no shared line, where
//! each would otherwise cost a locked instruction, and the line of whoever rings meanwhile.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::idle::Sleeper;
use crate::policy::Arbiter;
use crate::set::{Config, Control, Core, Producer, QueueId, SetError};
use crate::sync::{Mutant, mutated};
use crate::unsafe_doorbell::DoorbellRef;

/// A doorbell, and how far its consumer's account of it runs ahead.
#[derive(Debug)]
struct Watched {
    doorbell: DoorbellRef,
    /// Items that the doorbell told of when it was last counted down or looked at.
    seen: u32,
    /// How many of them are done and not yet counted down: fewer than half, so that there is always
    /// something left where something was seen, and a doorbell says zero as soon as its queue is empty.
    owed: u32,
}

impl Watched {
    fn new(doorbell: DoorbellRef) -> Self {
        Self { doorbell, seen: 0, owed: 0 }
    }

    /// Items that are known to be left. Zero: only the doorbell knows.
    #[inline]
    fn known(&self) -> u32 {
        self.seen - self.owed
    }

    /// Whether the queue has items.
    #[inline]
    fn has_items(&self) -> bool {
        self.seen > 0 || self.doorbell.count() > 0
    }

    /// `items` are done: how many are known to be left. Zero: the doorbell has been counted down, and
    /// says so.
    #[inline]
    fn done(&mut self, items: u32) -> u32 {
        self.owed = self.owed.saturating_add(items);
        if self.owed.saturating_mul(2) < self.seen {
            return self.known();
        }
        self.settle()
    }

    /// Counts the doorbell down by what is owed; what is left.
    #[inline]
    fn settle(&mut self) -> u32 {
        self.seen = self.doorbell.take(self.owed);
        self.owed = 0;
        self.seen
    }
}

/// A set of queues with one consumer, which is whoever holds this.
#[derive(Debug)]
pub struct ExclusiveSet {
    pub(crate) core: Arc<Core>,
    arbiter: Arbiter,
    /// By queue; ours alone, so that a visit takes no lock and checks no generation.
    doorbells: Vec<Option<Watched>>,
    pub(crate) sleeper: Arc<dyn Sleeper>,
    pub(crate) bit: u64,
    pub(crate) spin_looks: u32,
}

impl ExclusiveSet {
    /// An empty set whose consumer sleeps by `sleeper`. All memory is allocated here.
    ///
    /// # Errors
    /// [`SetError::BadCapacity`].
    pub fn with_sleeper(config: Config, sleeper: Arc<dyn Sleeper>) -> Result<Self, SetError> {
        Self::over(Core::new_exclusive(config.capacity)?, config, sleeper)
    }

    pub(crate) fn over(
        core: Arc<Core>,
        config: Config,
        sleeper: Arc<dyn Sleeper>,
    ) -> Result<Self, SetError> {
        let bit = core.join(&sleeper)?;
        Ok(Self {
            arbiter: Arbiter::new(config.policy, core.capacity, 0),
            doorbells: (0..core.capacity).map(|_| None).collect(),
            spin_looks: config.spin_looks,
            core,
            sleeper,
            bit,
        })
    }

    /// `QWAIT-ADD`: watches a doorbell under this number. The producer is for whoever enqueues. The
    /// queue is activated once; if its doorbell says zero, `verify` answers so.
    ///
    /// # Errors
    /// [`SetError::OutOfRange`], [`SetError::AlreadyAdded`].
    pub fn add(&mut self, queue: QueueId, doorbell: DoorbellRef) -> Result<Producer, SetError> {
        self.core.add(queue, &doorbell)?;
        self.doorbells[queue.index()] = Some(Watched::new(doorbell.clone()));
        Ok(Producer::new(&self.core, queue, doorbell))
    }

    /// `QWAIT-REMOVE`: the queue is not returned any more, and its number is free. Producers that are
    /// left can still ring, to no effect; work in the queue stays where it is.
    ///
    /// # Errors
    /// [`SetError::OutOfRange`], [`SetError::NotAdded`].
    pub fn remove(&mut self, queue: QueueId) -> Result<(), SetError> {
        self.core.remove(queue)?;
        if let Some(mut watched) = self.doorbells[queue.index()].take() {
            // Whoever watches the doorbell next finds it exact.
            watched.settle();
        }
        Ok(())
    }

    /// `QWAIT` that does not block: the queue to be served next, or `None` where none is ready.
    ///
    /// Never allocates and makes no system call. Where nothing is ready it reads two cache lines,
    /// three where a queue is disabled. Returns a queue again while it is ready: it is left to
    /// [`verify`](Self::verify) and [`reconsider`](Self::reconsider) to end that.
    #[inline]
    pub fn try_qwait(&mut self) -> Option<QueueId> {
        let turn = self.arbiter.cursor;
        // Where most queues are busy, the next one is known to have items. Then its bit is set, as only
        // we clear it.
        if let Some(Some(watched)) = self.doorbells.get(turn as usize)
            && watched.seen > 0
            && !self.core.ready.is_masked(turn)
        {
            self.arbiter.grant(turn, || self.core.weight(turn));
            return Some(QueueId::new(turn));
        }
        self.search()
    }

    /// The next queue by the ready bits, or by the doorbells themselves. Not inlined, so that the common
    /// case above is small wherever it is.
    #[inline(never)]
    fn search(&mut self) -> Option<QueueId> {
        loop {
            let from = self.arbiter.cursor;
            let next = if self.core.direct { self.next_direct(from) } else { self.core.next(from) };
            let queue = next?;
            if self.doorbells[queue as usize].is_none() {
                // Left over from a queue that was removed. Each turn takes such a bit away.
                self.core.ready.clear(queue);
                continue;
            }
            self.arbiter.grant(queue, || self.core.weight(queue));
            return Some(QueueId::new(queue));
        }
    }

    /// The next queue by its doorbell, or by the activation that came with adding it.
    #[inline]
    fn next_direct(&self, from: u32) -> Option<u32> {
        let is_ready = |queue: &u32| {
            let rung = self.doorbells[*queue as usize].as_ref().is_some_and(Watched::has_items);
            (rung || self.core.ready.is_set(*queue)) && !self.core.ready.is_masked(*queue)
        };
        (from..self.core.capacity).chain(0..from).find(is_ready)
    }

    /// The first half of going to sleep: announces it, then looks once more. True: nothing is
    /// ready, and from now on what makes a queue ready calls this consumer's
    /// [`Sleeper::wake`]. False: there is work; the announcement is taken back.
    ///
    /// For two-phase sleep on several sources: arm each in turn; where one has work, disarm
    /// the earlier ones in reverse order and go on; else block on all of them, then disarm
    /// all.
    #[must_use = "where it is false there is work, and nothing will wake this consumer"]
    pub fn arm(&mut self) -> bool {
        // Who picked us does not matter: there is nobody to pass a wake-up to.
        if !self.core.direct {
            return self.core.arm(self.bit, &mut false);
        }
        self.core.arm_unless(self.bit, &mut false, || {
            if mutated(Mutant::MissingDirectLook) {
                return self.core.ready.any_before_sleep();
            }
            let rung = |watched: &Option<Watched>| {
                watched.as_ref().is_some_and(|watched| watched.doorbell.is_rung_before_sleep())
            };
            (0..).zip(&self.doorbells).any(|(queue, bell)| {
                let ready = &self.core.ready;
                (rung(bell) || ready.is_set(queue)) && !ready.is_masked_before_sleep(queue)
            })
        })
    }

    /// Takes the announcement back, after [`arm`](Self::arm) answered true. Look for work
    /// after this.
    pub fn disarm(&mut self) {
        self.core.disarm(self.bit);
    }

    /// `QWAIT-VERIFY`: how many items the queue has, at least; there may be more where items of an
    /// earlier look are left. Take at most so many. Zero: the wake-up was spurious, the queue is armed,
    /// and there is nothing to do.
    #[inline]
    pub fn verify(&mut self, queue: QueueId) -> u32 {
        let Some(watched) = watched(&mut self.doorbells, queue) else { return 0 };
        if watched.seen == 0 {
            watched.seen = watched.doorbell.count();
            if watched.seen == 0 {
                watched.seen = drained(&self.core, queue, &watched.doorbell);
            }
        }
        watched.known()
    }

    /// `QWAIT-RECONSIDER` after `items` were dequeued, one or a batch; how many are left, at least. The
    /// queue is armed if none are, and else stays ready. Before or after processing, as there is only
    /// one consumer.
    ///
    /// More than the doorbell said counts as all of it. The doorbell itself is counted down late: until
    /// then it says more than the queue has, though never twice as much, and it says zero as soon as the
    /// queue is empty.
    #[inline]
    pub fn reconsider(&mut self, queue: QueueId, items: u32) -> u32 {
        let Some(watched) = watched(&mut self.doorbells, queue) else { return 0 };
        let left = watched.done(items);
        if left > 0 {
            return left;
        }
        watched.seen = drained(&self.core, queue, &watched.doorbell);
        watched.seen
    }

    /// For queues that count for themselves: the doorbell goes to zero whatever it said, and the
    /// queue is armed. Call it *before* emptying the queue: what is enqueued later rings again. How
    /// many items had been rung for.
    pub fn reconsider_all(&mut self, queue: QueueId) -> u32 {
        let Some(watched) = watched(&mut self.doorbells, queue) else { return 0 };
        let count = watched.doorbell.count();
        let owed = watched.owed;
        watched.owed = count;
        if watched.settle() == 0 {
            watched.seen = drained(&self.core, queue, &watched.doorbell);
        }
        count.saturating_sub(owed)
    }

    /// A handle on masks and weights, for any thread.
    pub fn control(&self) -> Control {
        Control::new(&self.core)
    }

    /// True where nothing was ready a moment ago. May be false without need (a queue is ready but
    /// disabled), never true for long while something is ready. Two cache lines.
    #[inline]
    pub fn is_empty_hint(&self) -> bool {
        if self.core.direct && self.doorbells.iter().flatten().any(Watched::has_items) {
            return false;
        }
        !self.core.ready.hint()
    }
}

impl Drop for ExclusiveSet {
    fn drop(&mut self) {
        self.core.leave(self.bit);
        for watched in self.doorbells.iter_mut().flatten() {
            watched.settle();
        }
    }
}

#[inline]
fn watched(doorbells: &mut [Option<Watched>], queue: QueueId) -> Option<&mut Watched> {
    doorbells.get_mut(queue.index())?.as_mut()
}

/// The doorbell said zero: clears the bit, and sets it again if the doorbell was rung meanwhile. What
/// the doorbell then says. The proof stands on the crate's front page.
#[inline]
fn drained(core: &Core, queue: QueueId, doorbell: &DoorbellRef) -> u32 {
    if core.direct {
        // Producers do not write the bit, so that there is no race to be lost here.
        if core.ready.is_set(queue.get()) {
            core.ready.clear(queue.get());
        }
        return doorbell.count();
    }
    core.ready.clear(queue.get());
    if mutated(Mutant::MissingRecheck) {
        return 0;
    }
    let count = doorbell.count();
    if count > 0 {
        core.ready.set(queue.get());
    }
    count
}
