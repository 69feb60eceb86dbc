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

    /// Shows the others that the ready queue of `home`, or the shared ones, have something. Which of them are to
    /// be woken for it, [`call`](Self::call) returns.
    ///
    /// One fence for all turns that were published since the last announcement.
    #[inline]
    pub fn announce(&self, home: usize) {
        let bit = 1 << home;
        let is_shown =
            || self.shared.is_some() || self.stealable.0.load(Ordering::Relaxed) & bit != 0;
        if !is_shown() {
            self.stealable.0.fetch_or(bit, Ordering::AcqRel);
        }
        // Pairs with the fences of `clear_stealable`, `declare_idle` and `declare_busy`: either they see what we
        // published, or we see what they wrote.
        idle_fence();
        if !is_shown() {
            self.stealable.0.fetch_or(bit, Ordering::AcqRel);
            // The look at who is idle comes after the bit, too.
            idle_fence();
        }
    }

    /// Whether a core other than `but` found nothing to do a moment ago.
    #[inline]
    pub fn somebody_idle(&self, but: usize) -> bool {
        self.idle.0.load(Ordering::Relaxed) & !(1 << but) != 0
    }

    /// The cores that `caller` wakes, a bit each, for the turns that wait for any core: as many as there are such
    /// turns, of those that found nothing to do, never itself. To be asked after [`announce`](Self::announce), once
    /// the caller has taken what it runs itself; and by a core that [ceases to be idle](Self::declare_busy).
    #[inline]
    pub fn call(&self, caller: usize) -> u64 {
        let idle = self.idle.0.load(Ordering::Relaxed) & !(1 << caller);
        if idle == 0 { 0 } else { self.choose(idle, caller) }
    }

    /// As many of the `idle` cores as turns wait. Those after the caller first, so that not all callers wake the
    /// same.
    fn choose(&self, idle: u64, caller: usize) -> u64 {
        let start = caller as u32;
        let (mut left, mut chosen) = (idle.rotate_right(start), 0);
        let mut turns = self.waiting();
        while turns > 0 && left != 0 {
            chosen |= left & left.wrapping_neg();
            left &= left - 1;
            turns -= 1;
        }
        chosen.rotate_left(start)
    }

    /// Turns that wait for any core, as far as one look shows.
    fn waiting(&self) -> usize {
        if let Some(shared) = &self.shared {
            return shared.len();
        }
        let mut left = self.stealable.0.load(Ordering::Acquire);
        let mut turns = 0;
        while left != 0 {
            let core = left.trailing_zeros() as usize;
            left &= left - 1;
            turns += self.lanes.get(core).map_or(0, |lane| lane.ready.len());
        }
        turns
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

    /// `core` has something to do. Returns whether it was taken to have nothing: another core may have counted
    /// upon it for a turn then, so that it has to [`call`](Self::call) somebody for what it leaves.
    #[inline]
    pub fn declare_busy(&self, core: usize) -> bool {
        let bit = 1 << core;
        if self.idle.0.load(Ordering::Relaxed) & bit == 0 {
            return false;
        }
        self.idle.0.fetch_and(!bit, Ordering::AcqRel);
        // Pairs with the fence of `announce`: a core that publishes either sees that this one is busy, or its turn
        // is seen by the look that follows here.
        idle_fence();
        true
    }
}
