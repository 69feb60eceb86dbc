//! What the cores share: for each a shuffle queue, whose turns any core may take, a queue of its own, one of remote
//! batched system calls, and two words that say at one look where there is work and which cores have none.
//!
//! In the shared form ([`ShuffleLayer::by_class`]) the turns that any core may take stand in one [`ReadySet`], by the
//! class of their connections, and not at their homes; all else is the same.

use alloc::boxed::Box;

use handshake::{ByFence, One, Sleepers, sources};

use crate::home::Turn;
use crate::ready_set::{ReadySet, Taker};
use crate::sync::{AtomicU64, Mutant, mutated};
use crate::unsafe_ring::Ring;

/// Most cores.
pub const MAX_CORES: usize = 64;

sources! {
    /// Where a core can find a turn. It looks into all of these before it sleeps.
    enum Queue {
        /// Turns that only this core may take.
        Own,
        /// Turns that other cores ran, with the system calls that came of them.
        RemoteCalls,
        /// Turns that any core may take.
        Shuffle,
    }
}

/// A bit for each core, in a word that shares no cache line with anything else.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Cores<S>(Sleepers<AtomicU64, S, ByFence>);

/// One core's queues.
#[derive(Debug)]
struct CoreQueues<T> {
    /// The shuffle queue (ZygOS §4.2): turns that any core may take.
    shuffle: Ring<Box<T>>,
    /// Turns that only this core may take.
    own: Ring<Box<T>>,
    /// Remote batched system calls (ZygOS §4.2): turns that other cores ran, on their way home.
    remote_calls: Ring<Box<T>>,
}

/// See the module's comment.
#[derive(Debug)]
pub struct ShuffleLayer<T> {
    cores: Box<[CoreQueues<T>]>,
    /// Cores into whose shuffle queue no thief looks: a thief found it empty and announces by this bit that it
    /// stays away; the core that fills the queue next claims the bit. A bit that is set in vain delays a steal, and
    /// loses nothing: the home core looks into its queue without it.
    avoided: Cores<One>,
    /// Cores that found nothing to do.
    idle: Cores<Queue>,
    /// The shared form.
    shared: Option<ReadySet<T>>,
}

impl<T: Turn> ShuffleLayer<T> {
    /// For `cores` cores (1 to [`MAX_CORES`]), whose queues take `capacity` turns each.
    pub fn new(cores: usize, capacity: usize) -> Self {
        Self::make(cores, capacity, None)
    }

    /// The shared form: turns that any core may take go through `shared`.
    pub fn by_class(cores: usize, capacity: usize, shared: ReadySet<T>) -> Self {
        Self::make(cores, capacity, Some(shared))
    }

    fn make(cores: usize, capacity: usize, shared: Option<ReadySet<T>>) -> Self {
        let capacity_each = if shared.is_some() { 0 } else { capacity };
        let queues = |_| CoreQueues {
            shuffle: Ring::new(capacity_each),
            own: Ring::new(capacity),
            remote_calls: Ring::new(capacity),
        };
        Self {
            cores: (0..cores.clamp(1, MAX_CORES)).map(queues).collect(),
            // No queue has been filled yet.
            avoided: Cores(Sleepers::over(AtomicU64::new(!0))),
            idle: Cores(Sleepers::over(AtomicU64::new(0))),
            shared,
        }
    }

    /// How many cores there are.
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// Whether this is the shared form.
    #[inline]
    pub fn is_by_class(&self) -> bool {
        self.shared.is_some()
    }

    #[inline(always)]
    fn queues_of(&self, core: usize) -> &CoreQueues<T> {
        &self.cores[core]
    }

    /// A turn of a connection of core `home` is ready, for any core to take. Follow a run of these with
    /// [`announce`](Self::announce).
    ///
    /// # Errors
    /// The turn comes back where the queue is full: keep it, and try again.
    #[inline]
    pub fn publish(&self, home: usize, turn: Box<T>) -> Result<(), Box<T>> {
        match &self.shared {
            Some(shared) => shared.publish(turn.class(), turn),
            None => self.queues_of(home).shuffle.push(turn),
        }
    }

    /// A turn that only core `home` may take.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    #[inline]
    pub fn publish_own(&self, home: usize, turn: Box<T>) -> Result<(), Box<T>> {
        self.queues_of(home).own.push(turn)
    }

    /// Shows the others that the shuffle queue of `home`, or the shared ones, have something. Which of them are to
    /// be woken for it, [`call`](Self::call) returns.
    ///
    /// One fence for all turns that were published since the last announcement.
    #[inline]
    pub fn announce(&self, home: usize) {
        // Its fence serves both words: `call` reads the other one behind it.
        let is_avoided = self.avoided.0.notify(One) & 1 << home != 0;
        if is_avoided && self.shared.is_none() {
            self.avoided.0.claim(1 << home);
        }
    }

    /// Whether a core other than `but` found nothing to do a moment ago.
    #[inline]
    pub fn somebody_idle(&self, but: usize) -> bool {
        self.idle.0.asleep() & !(1 << but) != 0
    }

    /// The cores that `caller` wakes, a bit each, for the turns that wait for any core: as many as there are such
    /// turns, of those that found nothing to do, never itself. To be asked after [`announce`](Self::announce), once
    /// the caller has taken what it runs itself; and by a core that [ceases to be idle](Self::declare_busy).
    #[inline]
    pub fn call(&self, caller: usize) -> u64 {
        let idle = self.idle.0.asleep() & !(1 << caller);
        if idle == 0 { 0 } else { self.choose(idle, caller) }
    }

    /// As many of the `idle` cores as turns wait. Those after the caller first, so that not all callers wake the
    /// same.
    fn choose(&self, idle: u64, caller: usize) -> u64 {
        let start = caller as u32;
        let (mut left, mut chosen) = (idle.rotate_right(start), 0);
        let mut turns = match &self.shared {
            Some(shared) => shared.len(),
            None => self.cores.iter().map(|queues| queues.shuffle.len()).sum(),
        };
        while turns > 0 && left != 0 {
            chosen |= left & left.wrapping_neg();
            left &= left - 1;
            turns -= 1;
        }
        chosen.rotate_left(start)
    }

    /// Whether a turn waits for any core. Looks at every queue: no hint may hide one from a core that sleeps.
    fn has_ready(&self) -> bool {
        match &self.shared {
            Some(shared) => !shared.is_empty(),
            None => self.cores.iter().any(|queues| !queues.shuffle.is_empty()),
        }
    }

    /// The oldest turn of the core's own queues, those that nobody else may take first.
    #[inline]
    pub fn take(&self, core: usize) -> Option<Box<T>> {
        let queues = self.queues_of(core);
        queues.own.pop().or_else(|| queues.shuffle.pop())
    }

    /// The oldest turn that only `core` may take.
    #[inline]
    pub fn take_own(&self, core: usize) -> Option<Box<T>> {
        self.queues_of(core).own.pop()
    }

    /// In the shared form: the turn that is next by the policy, whoever its home is. None in the other.
    #[inline]
    pub fn take_shared(&self, taker: &mut Taker) -> Option<Box<T>> {
        self.shared.as_ref()?.take(taker)
    }

    /// The oldest turn of some other core that has any. `random` decides with which the search begins.
    pub fn steal(&self, thief: usize, random: u32) -> Option<Box<T>> {
        let others = !self.avoided.0.asleep() & !(1 << thief);
        let start = random % 64;
        let mut left = others.rotate_right(start);
        while left != 0 {
            let victim = (left.trailing_zeros() + start) as usize % 64;
            left &= left - 1;
            let Some(queues) = self.cores.get(victim) else { continue };
            if let Some(turn) = queues.shuffle.pop() {
                return Some(turn);
            }
            self.avoid(victim);
        }
        None
    }

    /// The shuffle queue of `victim` was empty: thieves stay away until it is filled, unless it was meanwhile.
    #[cold]
    fn avoid(&self, victim: usize) {
        let is_filled =
            || !mutated(Mutant::MissingQueueRecheck) && !self.queues_of(victim).shuffle.is_empty();
        let _ = self.avoided.0.arm(1 << victim, |One| is_filled());
    }

    /// Sends a turn back to core `home`, where what the application asked for is done.
    ///
    /// # Errors
    /// The turn comes back where the queue is full: keep it, and try again.
    #[inline]
    pub fn push_remote_calls(&self, home: usize, turn: Box<T>) -> Result<(), Box<T>> {
        self.queues_of(home).remote_calls.push(turn)
    }

    /// A turn that came back to `home`, oldest first.
    #[inline]
    pub fn pop_remote_calls(&self, home: usize) -> Option<Box<T>> {
        self.queues_of(home).remote_calls.pop()
    }

    /// Whether a turn has come back to `home`.
    #[inline]
    pub fn has_remote_calls(&self, home: usize) -> bool {
        !self.queues_of(home).remote_calls.is_empty()
    }

    /// Says that `core` found nothing to do, and goes on looking.
    #[inline]
    pub fn mark_idle(&self, core: usize) {
        if !self.is_marked_idle(core) {
            self.idle.0.announce(1 << core);
        }
    }

    /// Whether `core` is taken to have nothing to do.
    pub fn is_marked_idle(&self, core: usize) -> bool {
        self.idle.0.asleep() & (1 << core) != 0
    }

    /// Says that `core` found nothing to do, and is about to sleep. Answers whether it may: there is nothing
    /// in its own queues, and nothing that it could steal. It stays marked until it has something to do.
    pub fn declare_idle(&self, core: usize) -> bool {
        self.mark_idle(core);
        let queues = self.queues_of(core);
        !self.idle.0.finds_work(|queue| match queue {
            Queue::Own => !queues.own.is_empty(),
            Queue::RemoteCalls => !queues.remote_calls.is_empty(),
            Queue::Shuffle => self.has_ready(),
        })
    }

    /// Whether nothing is in the queues of `core`, which may sleep then without having
    /// [declared](Self::declare_idle) it: what others steal is not its business.
    pub fn is_empty_at(&self, core: usize) -> bool {
        let own = self.queues_of(core);
        own.own.is_empty() && own.remote_calls.is_empty() && own.shuffle.is_empty()
    }

    /// `core` has something to do. Returns whether it was taken to have nothing while turns wait for any core: another
    /// core may have counted upon it for one of them, so that it has to [`call`](Self::call) somebody.
    #[inline]
    pub fn declare_busy(&self, core: usize) -> bool {
        if !self.is_marked_idle(core) {
            return false;
        }
        self.idle.0.disarm(1 << core);
        // As before a sleep: a core that publishes either sees that this one is busy, or its turn is seen here.
        self.idle.0.finds_work(|queue| queue == Queue::Shuffle && self.has_ready())
    }
}
