//! What the cores share: for each a queue of turns that any core may take, a queue of its own, the way back,
//! and two words that say at one look where there is work and who has none.
//!
//! In the shared form ([`Lanes::by_class`]) the turns that any core may take stand in one [`ReadySet`], by the
//! class of their connections, and not at their homes; all else is the same.

use alloc::boxed::Box;

use crate::home::Turn;
use crate::ready_set::{ReadySet, Taker};
use crate::sync::{AtomicU64, Mutant, Ordering, idle_fence, mutated};
use crate::unsafe_ring::Ring;

/// Most cores.
pub const MAX_CORES: usize = 64;

/// A word that shares no cache line with anything else.
#[derive(Debug)]
#[repr(align(128))]
struct Word(AtomicU64);

/// One core's queues.
#[derive(Debug)]
struct Lane<T> {
    /// Turns that any core may take.
    ready: Ring<Box<T>>,
    /// Turns that only this core may take.
    own: Ring<Box<T>>,
    /// Turns that other cores had, on their way home.
    back: Ring<Box<T>>,
}

/// See the module's comment.
#[derive(Debug)]
pub struct Lanes<T> {
    lanes: Box<[Lane<T>]>,
    /// Cores whose ready queue has something, a bit each. Set by whoever fills the queue, cleared by whoever
    /// found it empty. A bit that is missing delays a steal, and loses nothing: the home core looks into its
    /// queue without it.
    stealable: Word,
    /// Cores that found nothing to do.
    idle: Word,
    /// The shared form.
    shared: Option<ReadySet<T>>,
}

impl<T: Turn> Lanes<T> {
    /// Lanes for `cores` cores (1 to [`MAX_CORES`]), whose queues take `capacity` turns each.
    pub fn new(cores: usize, capacity: usize) -> Self {
        Self::make(cores, capacity, None)
    }

    /// The shared form: turns that any core may take go through `shared`.
    pub fn by_class(cores: usize, capacity: usize, shared: ReadySet<T>) -> Self {
        Self::make(cores, capacity, Some(shared))
    }

    fn make(cores: usize, capacity: usize, shared: Option<ReadySet<T>>) -> Self {
        let ready = if shared.is_some() { 0 } else { capacity };
        let lane = |_| Lane {
            ready: Ring::new(ready),
            own: Ring::new(capacity),
            back: Ring::new(capacity),
        };
        Self {
            lanes: (0..cores.clamp(1, MAX_CORES)).map(lane).collect(),
            stealable: Word(AtomicU64::new(0)),
            idle: Word(AtomicU64::new(0)),
            shared,
        }
    }

    /// How many cores there are.
    pub fn cores(&self) -> usize {
        self.lanes.len()
    }

    /// Whether this is the shared form.
    #[inline]
    pub fn is_by_class(&self) -> bool {
        self.shared.is_some()
    }

    #[inline(always)]
    fn lane(&self, core: usize) -> &Lane<T> {
        &self.lanes[core]
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
            None => self.lane(home).ready.push(turn),
        }
    }

    /// A turn that only core `home` may take.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    #[inline]
    pub fn publish_own(&self, home: usize, turn: Box<T>) -> Result<(), Box<T>> {
        self.lane(home).own.push(turn)
    }

    /// Tells the others that the ready queue of `home`, or the shared ones, have something. Answers a core to be woken if it
    /// sleeps: one that found nothing to do.
    ///
    /// One fence for what was published since the last time.
    #[inline]
    pub fn announce(&self, home: usize) -> Option<usize> {
        // Pairs with the fences of `steal` and `declare_idle`: either they see what we published, or we see
        // what they wrote.
        idle_fence();
        let bit = 1 << home;
        if self.shared.is_none() && self.stealable.0.load(Ordering::Relaxed) & bit == 0 {
            self.stealable.0.fetch_or(bit, Ordering::AcqRel);
        }
        self.somebody_idle(home)
    }

    /// A core other than `but` that found nothing to do a moment ago.
    #[inline]
    pub fn somebody_idle(&self, but: usize) -> Option<usize> {
        let idle = self.idle.0.load(Ordering::Relaxed) & !(1 << but);
        // The next one after us, so that not all wake the same.
        let after = idle & (!0 << but);
        let chosen = if after != 0 { after } else { idle };
        (chosen != 0).then(|| chosen.trailing_zeros() as usize)
    }

    /// The oldest turn of the core's own queues, those that nobody else may take first.
    #[inline]
    pub fn take(&self, core: usize) -> Option<Box<T>> {
        let lane = self.lane(core);
        lane.own.pop().or_else(|| lane.ready.pop())
    }

    /// The oldest turn that only `core` may take.
    #[inline]
    pub fn take_own(&self, core: usize) -> Option<Box<T>> {
        self.lane(core).own.pop()
    }

    /// In the shared form: the turn that is next by the policy, whoever its home is. None in the other.
    #[inline]
    pub fn take_shared(&self, taker: &mut Taker) -> Option<Box<T>> {
        self.shared.as_ref()?.take(taker)
    }

    /// Turns that wait in the ready queue of `core`, for the core itself to look at.
    #[inline]
    pub fn ready_len(&self, core: usize) -> usize {
        self.lane(core).ready.len()
    }

    /// The oldest turn of some other core that has any. `random` decides with which the search begins.
    pub fn steal(&self, thief: usize, random: u32) -> Option<Box<T>> {
        let others = self.stealable.0.load(Ordering::Acquire) & !(1 << thief);
        let start = random % 64;
        let mut left = others.rotate_right(start);
        while left != 0 {
            let victim = (left.trailing_zeros() + start) as usize % 64;
            left &= left - 1;
            let Some(lane) = self.lanes.get(victim) else { continue };
            if let Some(turn) = lane.ready.pop() {
                return Some(turn);
            }
            self.clear_stealable(victim);
        }
        None
    }

    /// The ready queue of `victim` was empty.
    #[cold]
    fn clear_stealable(&self, victim: usize) {
        let bit = 1 << victim;
        self.stealable.0.fetch_and(!bit, Ordering::AcqRel);
        // Pairs with the fence of `announce`: what was published before it saw the bit is seen here.
        idle_fence();
        if !mutated(Mutant::MissingLaneRecheck) && !self.lane(victim).ready.is_empty() {
            self.stealable.0.fetch_or(bit, Ordering::AcqRel);
        }
    }

    /// Sends a turn back to core `home`, where what the application asked for is done.
    ///
    /// # Errors
    /// The turn comes back where the queue is full: keep it, and try again.
    #[inline]
    pub fn send_home(&self, home: usize, turn: Box<T>) -> Result<(), Box<T>> {
        self.lane(home).back.push(turn)
    }

    /// A turn that came back to `home`, oldest first.
    #[inline]
    pub fn came_back(&self, home: usize) -> Option<Box<T>> {
        self.lane(home).back.pop()
    }

    /// Whether a turn has come back to `home`.
    #[inline]
    pub fn has_come_back(&self, home: usize) -> bool {
        !self.lane(home).back.is_empty()
    }

    /// Says that `core` found nothing to do, and goes on looking.
    #[inline]
    pub fn mark_idle(&self, core: usize) {
        let bit = 1 << core;
        if self.idle.0.load(Ordering::Relaxed) & bit == 0 {
            self.idle.0.fetch_or(bit, Ordering::AcqRel);
        }
    }

    /// Whether `core` is taken to have nothing to do.
    pub fn is_marked_idle(&self, core: usize) -> bool {
        self.idle.0.load(Ordering::Relaxed) & (1 << core) != 0
    }

    /// Says that `core` found nothing to do, and is about to sleep. Answers whether it may: there is nothing
    /// in its own queues, and nothing that it could steal.
    pub fn declare_idle(&self, core: usize) -> bool {
        self.mark_idle(core);
        // Pairs with the fence of `announce`.
        idle_fence();
        let own = self.lane(core);
        own.own.is_empty()
            && own.back.is_empty()
            && match &self.shared {
                Some(shared) => shared.is_empty(),
                None => self.lanes.iter().all(|lane| lane.ready.is_empty()),
            }
    }

    /// Whether nothing is in the queues of `core`, which may sleep then without having
    /// [declared](Self::declare_idle) it: what others steal is not its business.
    pub fn is_empty_at(&self, core: usize) -> bool {
        let own = self.lane(core);
        own.own.is_empty() && own.back.is_empty() && own.ready.is_empty()
    }

    /// `core` has something to do.
    #[inline]
    pub fn declare_busy(&self, core: usize) {
        let bit = 1 << core;
        if self.idle.0.load(Ordering::Relaxed) & bit != 0 {
            self.idle.0.fetch_and(!bit, Ordering::AcqRel);
        }
    }
}
