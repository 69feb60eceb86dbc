//! What every form of the set shares: its numbers, errors, the state between producers and
//! consumers, and the two handles that other threads hold: [`Producer`] and [`Control`].

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use handshake::{Armed, ByExchange, One, Sleepers};

use crate::bitmap::Bitmap;
use crate::idle::Sleeper;
use crate::policy::ServicePolicy;
use crate::sync::{AtomicU64, Lock, Ordering};
use crate::unsafe_doorbell::DoorbellRef;

/// Most queues of one set.
pub const MAX_QUEUES: u32 = 65_536;
/// Exclusive sets of up to so many queues have no ready bits: their consumer looks at the doorbells, which
/// costs it no more than the bits would, and saves a line that would have to move for each notification.
pub const DIRECT_MAX: u32 = 8;
/// Most consumers of one set.
pub const MAX_CONSUMERS: u32 = 64;

/// A queue's number (the paper's QID): below the set's capacity, else it names no queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QueueId(u32);

impl QueueId {
    /// The queue of this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How a set is made (the paper's `QWAIT_init`).
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How many queues there can be, 1 to 65,536. Memory is allocated for all of them at once.
    pub capacity: u32,
    /// Which ready queue is served first.
    pub policy: ServicePolicy,
    /// How often a blocking `qwait` looks before it sleeps, in looks. With 1,000 queues a look takes
    /// some 10 ns.
    pub spin_looks: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { capacity: 64, policy: ServicePolicy::RoundRobin, spin_looks: 2_000 }
    }
}

/// Why an operation on a set was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// The set's size is senseless.
    #[error("a set of {capacity} queues: allowed are 1 to {MAX_QUEUES}; use several sets for more")]
    BadCapacity {
        /// What was asked for.
        capacity: u32,
    },
    /// The number is beyond the set.
    #[error("queue {queue} of a set of {capacity}: numbers begin at 0; make the set larger")]
    OutOfRange {
        /// Which queue.
        queue: QueueId,
        /// How many the set can hold.
        capacity: u32,
    },
    /// There is such a queue already.
    #[error("queue {queue} was added before: remove it first, or take another number")]
    AlreadyAdded {
        /// Which queue.
        queue: QueueId,
    },
    /// There is no such queue.
    #[error("queue {queue} is not in the set: add it first")]
    NotAdded {
        /// Which queue.
        queue: QueueId,
    },
    /// The set has as many consumers as it can have.
    #[error("a set has at most {MAX_CONSUMERS} consumers: drop one, or use several sets")]
    TooManyConsumers,
    /// A weight of zero.
    #[error("queue {queue} cannot have weight 0: disable it, or remove it")]
    ZeroWeight {
        /// Which queue.
        queue: QueueId,
    },
}

/// A word with two lines to itself.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Alone(Sleepers<AtomicU64, One, ByExchange>);

/// The state between producers and consumers.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) ready: Bitmap,
    /// By queue: weight in the low half, and in the high half a generation that counts additions and
    /// removals. One load gives a consumer both.
    slots: Box<[AtomicU64]>,
    /// One bit for each consumer that sleeps, or is about to. Written only by who goes to sleep, gets
    /// up, or wakes somebody: producers otherwise share it unchanged, so that their load costs
    /// nothing while nobody sleeps.
    sleepers: Alone,
    /// By queue. Only the control path takes this lock: no waker waits for it.
    doorbells: Lock<Vec<Option<DoorbellRef>>>,
    /// By consumer: how it sleeps. A waker takes this lock for a clone.
    parkers: Lock<Vec<Option<Arc<dyn Sleeper>>>>,
    pub(crate) capacity: u32,
    /// The doorbells are the ready bits: a ring writes nothing else, and the one consumer looks at all of
    /// them. Of the ready words only what adding sets is used, which the consumer itself does.
    pub(crate) direct: bool,
}

impl Core {
    pub(crate) fn new(capacity: u32) -> Result<Arc<Self>, SetError> {
        if capacity == 0 || capacity > MAX_QUEUES {
            return Err(SetError::BadCapacity { capacity });
        }
        Ok(Self::make(capacity, Bitmap::new(capacity), false))
    }

    /// For one consumer: without ready bits where the doorbells are few.
    pub(crate) fn new_exclusive(capacity: u32) -> Result<Arc<Self>, SetError> {
        match capacity {
            1..=DIRECT_MAX => Ok(Self::make(capacity, Bitmap::flat(capacity), true)),
            _ => Self::new(capacity),
        }
    }

    pub(crate) fn make(capacity: u32, ready: Bitmap, direct: bool) -> Arc<Self> {
        let doorbells = (0..capacity).map(|_| None).collect();
        Arc::new(Self {
            ready,
            slots: (0..capacity).map(|_| AtomicU64::new(1)).collect(),
            sleepers: Alone::default(),
            doorbells: Lock::new(doorbells),
            parkers: Lock::new(Vec::new()),
            capacity,
            direct,
        })
    }

    pub(crate) fn check(&self, queue: QueueId) -> Result<(), SetError> {
        if queue.0 < self.capacity {
            Ok(())
        } else {
            Err(SetError::OutOfRange { queue, capacity: self.capacity })
        }
    }

    // ---- queues -------------------------------------------------------------------------------

    /// Publishes a queue's doorbell and activates the queue once: work that came before is noticed,
    /// and where there is none the first visit finds that out.
    pub(crate) fn add(&self, queue: QueueId, doorbell: &DoorbellRef) -> Result<(), SetError> {
        self.check(queue)?;
        self.doorbells.with(|doorbells| {
            let place = &mut doorbells[queue.index()];
            if place.is_some() {
                return Err(SetError::AlreadyAdded { queue });
            }
            *place = Some(doorbell.clone());
            // A new queue does not inherit the old one's weight.
            let generation = self.generation(queue).wrapping_add(1);
            self.slots[queue.index()].store(u64::from(generation) << 32 | 1, Ordering::Release);
            Ok(())
        })?;
        self.activate(queue);
        Ok(())
    }

    pub(crate) fn remove(&self, queue: QueueId) -> Result<(), SetError> {
        self.check(queue)?;
        let removed = self.doorbells.with(|doorbells| {
            let removed = doorbells[queue.index()].take();
            if removed.is_some() {
                self.slots[queue.index()].fetch_add(1 << 32, Ordering::Release);
            }
            removed
        });
        // The doorbell's memory may be unmapped here, outside of the lock.
        removed.map(drop).ok_or(SetError::NotAdded { queue })
    }

    /// The doorbell that is registered at present, with its generation.
    pub(crate) fn lookup(&self, queue: QueueId) -> (u32, Option<DoorbellRef>) {
        self.doorbells.with(|doorbells| (self.generation(queue), doorbells[queue.index()].clone()))
    }

    #[inline]
    pub(crate) fn generation(&self, queue: QueueId) -> u32 {
        (self.slots[queue.index()].load(Ordering::Acquire) >> 32) as u32
    }

    #[inline]
    pub(crate) fn weight(&self, queue: u32) -> u32 {
        self.slots[queue as usize].load(Ordering::Relaxed) as u32
    }

    fn set_weight(&self, queue: QueueId, weight: u32) -> Result<(), SetError> {
        self.check(queue)?;
        if weight == 0 {
            return Err(SetError::ZeroWeight { queue });
        }
        // Under the lock, since additions and removals change the other half.
        self.doorbells.with(|_| {
            let generation = u64::from(self.generation(queue)) << 32;
            self.slots[queue.index()].store(generation | u64::from(weight), Ordering::Release);
        });
        Ok(())
    }

    fn set_enabled(&self, queue: QueueId, enabled: bool) -> Result<(), SetError> {
        self.check(queue)?;
        self.ready.set_mask(queue.0, !enabled);
        if enabled {
            // Work may have waited behind the mask while a consumer fell asleep.
            self.wake_one();
        }
        Ok(())
    }

    // ---- notification -------------------------------------------------------------------------

    /// Sets the ready bit and sees to it that somebody is awake.
    #[inline]
    pub(crate) fn activate(&self, queue: QueueId) {
        self.ready.set(queue.0);
        self.wake_one();
    }

    /// A doorbell went from empty to non-empty.
    #[inline]
    fn rung(&self, queue: QueueId) {
        if !self.direct {
            self.ready.set(queue.0);
        }
        self.wake_one();
    }

    /// Wakes one consumer if one sleeps. One load if none does.
    #[inline]
    pub(crate) fn wake_one(&self) {
        let asleep = self.sleepers.0.notify(One);
        if asleep != 0 {
            self.wake_one_of(asleep);
        }
    }

    /// Each turn takes one bit off the word that was seen, so there are at most as many turns as consumers.
    #[cold]
    fn wake_one_of(&self, mut seen: u64) {
        while let Some(number) = self.sleepers.0.claim_lowest(seen) {
            let sleeper =
                self.parkers.with(|parkers| parkers.get(number as usize).cloned().flatten());
            if let Some(sleeper) = sleeper {
                sleeper.wake();
                return;
            }
            // It left after its announcement was seen.
            seen &= !(1 << number);
        }
    }

    /// The next queue by its ready and mask bits.
    #[inline]
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        let mut resurfaced = false;
        let next = self.ready.next(from, &mut resurfaced);
        if resurfaced {
            self.wake_one();
        }
        next
    }

    // ---- consumers ----------------------------------------------------------------------------

    /// Registers a consumer; its bit in the sleepers' word.
    pub(crate) fn join(&self, sleeper: &Arc<dyn Sleeper>) -> Result<u64, SetError> {
        self.parkers.with(|parkers| {
            let free = parkers.iter().position(Option::is_none);
            let number = free.unwrap_or(parkers.len());
            if number >= MAX_CONSUMERS as usize {
                return Err(SetError::TooManyConsumers);
            }
            if number == parkers.len() {
                parkers.push(None);
            }
            parkers[number] = Some(Arc::clone(sleeper));
            Ok(1 << number)
        })
    }

    /// A consumer is gone. If somebody had just woken it, the wake-up goes on to another.
    pub(crate) fn leave(&self, bit: u64) {
        let picked = self.disarm(bit);
        let number = bit.trailing_zeros() as usize;
        drop(self.parkers.with(|parkers| parkers.get_mut(number).and_then(Option::take)));
        if picked && self.ready.any() {
            self.wake_one();
        }
    }

    /// Announces that a consumer is about to sleep. False: there is work, and the announcement was
    /// taken back; `picked` is then set if a waker had seen it.
    pub(crate) fn arm(&self, bit: u64, picked: &mut bool) -> bool {
        self.arm_unless(bit, picked, || self.ready.any_before_sleep())
    }

    /// The same with another way to look for work, which reads what others publish by [`handshake::look`].
    pub(crate) fn arm_unless(
        &self,
        bit: u64,
        picked: &mut bool,
        has_work: impl Fn() -> bool,
    ) -> bool {
        match self.sleepers.0.arm(bit, |One| has_work()) {
            Armed::Quiet => true,
            Armed::Work { was_claimed } => {
                *picked |= was_claimed;
                false
            }
        }
    }

    /// Takes the announcement back. True where a waker had picked this consumer.
    pub(crate) fn disarm(&self, bit: u64) -> bool {
        self.sleepers.0.disarm(bit)
    }
}

/// The producer's side of one queue. Clone it for several producers of one queue.
#[derive(Clone, Debug)]
pub struct Producer {
    core: Arc<Core>,
    queue: QueueId,
    doorbell: DoorbellRef,
}

impl Producer {
    pub(crate) fn new(core: &Arc<Core>, queue: QueueId, doorbell: DoorbellRef) -> Self {
        Self { core: Arc::clone(core), queue, doorbell }
    }

    /// Says that one item was enqueued. Call it after the item is in the queue. True where that made
    /// the queue ready, so that a consumer that slept was woken.
    ///
    /// One read-modify-write if the queue had work before; one more (two in sets of more than 1,024
    /// queues, none in exclusive ones of up to [`DIRECT_MAX`]) and one load if not.
    #[inline]
    pub fn ring(&self) -> bool {
        self.ring_many(1)
    }

    /// As [`ring`](Self::ring), for several items at once. False for none.
    #[inline]
    pub fn ring_many(&self, items: u16) -> bool {
        let is_edge = self.doorbell.ring_polled(items);
        if is_edge {
            self.core.rung(self.queue);
        }
        is_edge
    }

    /// Items that were rung for and not counted down: the queue's length, where every item is rung for,
    /// or up to twice that less one where an exclusive set serves it (see
    /// [`reconsider`](crate::ExclusiveSet::reconsider)); zero as soon as the queue is empty. Use it to see
    /// whether there is room (it acquires what the consumer released).
    #[inline]
    pub fn count(&self) -> u32 {
        self.doorbell.count()
    }

    /// Which queue.
    pub fn queue(&self) -> QueueId {
        self.queue
    }
}

/// Masks and weights, for any thread: timers that enable a queue again, a control plane.
#[derive(Clone, Debug)]
pub struct Control {
    core: Arc<Core>,
}

impl Control {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self { core: Arc::clone(core) }
    }

    /// `QWAIT-DISABLE`: after this returns, no `qwait` that begins later on this thread returns the
    /// queue, even if it has work. A consumer that was just given it finishes its visit.
    ///
    /// # Errors
    /// [`SetError::OutOfRange`].
    pub fn disable(&self, queue: QueueId) -> Result<(), SetError> {
        self.core.set_enabled(queue, false)
    }

    /// `QWAIT-ENABLE`. Wakes a consumer that sleeps, as the queue may have work.
    ///
    /// # Errors
    /// [`SetError::OutOfRange`].
    pub fn enable(&self, queue: QueueId) -> Result<(), SetError> {
        self.core.set_enabled(queue, true)
    }

    /// Whether the queue is disabled. False for a number beyond the set.
    pub fn is_disabled(&self, queue: QueueId) -> bool {
        queue.0 < self.core.capacity && self.core.ready.is_masked(queue.0)
    }

    /// How many times in a row the queue is selected under
    /// [`WeightedRoundRobin`](ServicePolicy::WeightedRoundRobin). Takes effect when its turn next
    /// begins. 1 after it was added.
    ///
    /// # Errors
    /// [`SetError::OutOfRange`], [`SetError::ZeroWeight`].
    pub fn set_weight(&self, queue: QueueId, weight: u32) -> Result<(), SetError> {
        self.core.set_weight(queue, weight)
    }
}
