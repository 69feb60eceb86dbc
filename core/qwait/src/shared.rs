//! The shared form: several consumers, each queue served by one of them at a time.
//!
//! ```
//! use qwait::{Config, DoorbellRef, QueueId, SharedSet};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let set = SharedSet::new(Config::default())?;
//! let producer = set.add(QueueId::new(3), DoorbellRef::new())?;
//! let (mut one, mut two) = (set.consumer()?, set.consumer()?);
//! producer.ring_many(2);
//! assert_eq!(one.try_qwait(), Some(QueueId::new(3)));
//! assert_eq!(two.try_qwait(), None); // One owner at a time ...
//! assert_eq!(one.reconsider(QueueId::new(3), 1), 1);
//! assert_eq!(two.try_qwait(), Some(QueueId::new(3))); // ... until it reconsiders.
//! # Ok(()) }
//! ```
//!
//! A ready bit is claimed by clearing it, and that makes the claimant look; but what makes it the
//! *owner* is a bit in the doorbell's own word, set by the read-modify-write that verifies and
//! cleared by the one that reconsiders. A ready bit too many (a queue that was removed and added
//! anew, a late producer) can therefore cost a look and never give a queue two owners.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::idle::Sleeper;
use crate::policy::Arbiter;
use crate::set::{Config, Control, Core, MAX_CONSUMERS, Producer, QueueId, SetError};
use crate::unsafe_doorbell::DoorbellRef;

/// A set of queues with several consumers. Clones are the same set.
#[derive(Clone, Debug)]
pub struct SharedSet {
    pub(crate) core: Arc<Core>,
    config: Config,
}

impl SharedSet {
    /// An empty set. Memory for all its queues is allocated here.
    ///
    /// # Errors
    /// [`SetError::BadCapacity`].
    pub fn new(config: Config) -> Result<Self, SetError> {
        Ok(Self::over(Core::new(config.capacity)?, config))
    }

    pub(crate) fn over(core: Arc<Core>, config: Config) -> Self {
        Self { core, config }
    }

    /// One more consumer, which sleeps by `sleeper`. Consumers begin their rounds at different
    /// queues; each has a cursor of its own (see [`ServicePolicy`](crate::ServicePolicy)).
    ///
    /// # Errors
    /// [`SetError::TooManyConsumers`].
    pub fn consumer_with(&self, sleeper: Arc<dyn Sleeper>) -> Result<SharedConsumer, SetError> {
        let bit = self.core.join(&sleeper)?;
        let capacity = self.core.capacity;
        // Bit-reversed, so that any number of consumers is spread over the queues.
        let number = bit.trailing_zeros();
        let spread = u64::from(number.reverse_bits() >> (32 - MAX_CONSUMERS.trailing_zeros()));
        let start = (spread * u64::from(capacity) / u64::from(MAX_CONSUMERS)) as u32;
        Ok(SharedConsumer {
            core: Arc::clone(&self.core),
            arbiter: Arbiter::new(self.config.policy, capacity, start),
            queues: (0..capacity).map(|_| Seen::default()).collect(),
            sleeper,
            bit,
            spin_looks: self.config.spin_looks,
            baton: false,
        })
    }

    /// `QWAIT-ADD`, on any thread: watches a doorbell under this number. A doorbell belongs to one
    /// queue: it may come back under the same number at any time, but under another one only when no
    /// consumer owns it, since the owner's last act is to activate the number that it knows.
    ///
    /// # Errors
    /// [`SetError::OutOfRange`], [`SetError::AlreadyAdded`].
    pub fn add(&self, queue: QueueId, doorbell: DoorbellRef) -> Result<Producer, SetError> {
        self.core.add(queue, &doorbell)?;
        Ok(Producer::new(&self.core, queue, doorbell))
    }

    /// `QWAIT-REMOVE`, on any thread: no consumer takes the queue any more, and its number is free.
    /// One that owns it at this moment finishes its visit.
    ///
    /// # Errors
    /// [`SetError::OutOfRange`], [`SetError::NotAdded`].
    pub fn remove(&self, queue: QueueId) -> Result<(), SetError> {
        self.core.remove(queue)
    }

    /// A handle on masks and weights.
    pub fn control(&self) -> Control {
        Control::new(&self.core)
    }
}

/// What a consumer knows of a queue.
#[derive(Debug, Default)]
struct Seen {
    generation: u32,
    owned: bool,
    /// Activated under its next generation while this consumer still owned the last: the visit's end
    /// gives the activation back.
    again: bool,
    doorbell: Option<DoorbellRef>,
}

/// One consumer of a [`SharedSet`].
#[derive(Debug)]
pub struct SharedConsumer {
    pub(crate) core: Arc<Core>,
    arbiter: Arbiter,
    queues: Vec<Seen>,
    pub(crate) sleeper: Arc<dyn Sleeper>,
    pub(crate) bit: u64,
    pub(crate) spin_looks: u32,
    /// A waker picked this consumer: if it leaves work behind, it wakes the next.
    pub(crate) baton: bool,
}

impl SharedConsumer {
    /// `QWAIT` that does not block: the queue to be served next, which this consumer then owns until
    /// it calls [`reconsider`](Self::reconsider); or `None` where none is ready. Others do not get
    /// the queue meanwhile. A consumer may own several.
    ///
    /// Never allocates and makes no system call, but when it wakes another consumer on the way.
    #[inline]
    pub fn try_qwait(&mut self) -> Option<QueueId> {
        // Each turn takes away a ready bit, or another consumer did.
        let found = loop {
            let Some(queue) = self.core.next(self.arbiter.cursor) else { break None };
            if !self.core.ready.clear(queue) {
                continue;
            }
            self.arbiter.grant(queue, || self.core.weight(queue));
            if self.own(QueueId::new(queue)) {
                break Some(QueueId::new(queue));
            }
        };
        if self.baton {
            self.pass_baton(found.is_some());
        }
        found
    }

    #[cold]
    fn pass_baton(&mut self, found: bool) {
        self.baton = false;
        if found && self.core.ready.any() {
            self.core.wake_one();
        }
    }

    /// Verifies an activation and takes the queue.
    #[inline]
    fn own(&mut self, queue: QueueId) -> bool {
        let generation = self.core.generation(queue);
        let seen = &mut self.queues[queue.index()];
        if seen.generation != generation {
            if seen.owned {
                seen.again = true;
                return false;
            }
            // Rare: the queue was added or removed since we last met it.
            (seen.generation, seen.doorbell) = self.core.lookup(queue);
        }
        let Some(doorbell) = &seen.doorbell else { return false };
        if !doorbell.own() {
            return false;
        }
        if doorbell.count() == 0 {
            // Drained by an owner between our two looks. Give it back as after any visit.
            if doorbell.release(0) > 0 {
                self.core.activate(queue);
            }
            return false;
        }
        seen.owned = true;
        true
    }

    /// `QWAIT-VERIFY`: how many items a queue that this consumer owns has; take at most so many. Zero
    /// for a queue that it does not own.
    #[inline]
    pub fn verify(&mut self, queue: QueueId) -> u32 {
        match self.queues.get(queue.index()) {
            Some(Seen { owned: true, doorbell: Some(doorbell), .. }) => doorbell.count(),
            _ => 0,
        }
    }

    /// `QWAIT-RECONSIDER` after `items` were dequeued, one or a batch: ends the ownership, and
    /// activates the queue if items are left; how many. Zero, and nothing happens, if this consumer
    /// does not own it.
    ///
    /// Before processing for the most concurrency, or after it if the queue's items must be
    /// processed in order (the paper's lines 18 and 19). The items must be out of the queue: the next
    /// owner may dequeue at once.
    #[inline]
    pub fn reconsider(&mut self, queue: QueueId, items: u32) -> u32 {
        let Some(seen) = self.queues.get_mut(queue.index()) else { return 0 };
        let (true, Some(doorbell)) = (seen.owned, &seen.doorbell) else { return 0 };
        let left = doorbell.release(items);
        seen.owned = false;
        let again = core::mem::replace(&mut seen.again, false);
        if left > 0 || again {
            self.core.activate(queue);
        }
        left
    }

    /// The first half of going to sleep: as [`ExclusiveSet::arm`](crate::ExclusiveSet::arm).
    #[must_use = "where it is false there is work, and nothing will wake this consumer"]
    pub fn arm(&mut self) -> bool {
        self.core.arm(self.bit, &mut self.baton)
    }

    /// Takes the announcement back, after [`arm`](Self::arm) answered true. Look for work
    /// after this.
    pub fn disarm(&mut self) {
        self.baton |= self.core.disarm(self.bit);
    }

    /// Whether this consumer owns the queue.
    pub fn owns(&self, queue: QueueId) -> bool {
        self.queues.get(queue.index()).is_some_and(|seen| seen.owned)
    }

    /// True where nothing was ready a moment ago. May be false without need (a queue is ready but
    /// disabled), never true for long while something is ready. Two cache lines.
    #[inline]
    pub fn is_empty_hint(&self) -> bool {
        !self.core.ready.hint()
    }

    /// A handle on masks and weights for other threads.
    pub fn control(&self) -> Control {
        Control::new(&self.core)
    }
}

impl Drop for SharedConsumer {
    /// Gives back what it owns, and passes a wake-up on.
    fn drop(&mut self) {
        for queue in 0..self.core.capacity {
            self.reconsider(QueueId::new(queue), 0);
        }
        if self.baton {
            self.pass_baton(true);
        }
        self.core.leave(self.bit);
    }
}
