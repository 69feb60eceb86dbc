//! Consumers that look at every queue in turn: a tight loop over doorbells, and one that costs what a
//! poll-mode driver's costs.

use std::hint::black_box;
use std::sync::Arc;

use qwait::DoorbellRef;

use crate::finder::Finder;
use crate::queue::Rings;
use crate::work::Item;

/// A tight loop over the doorbells: the strongest opponent that a ready set can have. A poll is a load
/// of a pointer, in order, and one of the doorbell.
pub(crate) struct Spin {
    rings: Arc<Rings>,
    bells: Vec<DoorbellRef>,
    /// The queue of the first of them.
    first: u32,
    at: usize,
    polls: u64,
}

impl Spin {
    /// Over the queues from `first` on, as many as there are doorbells.
    pub(crate) fn new(rings: &Arc<Rings>, first: u32, bells: Vec<DoorbellRef>) -> Self {
        Self { rings: Arc::clone(rings), bells, first, at: 0, polls: 0 }
    }
}

impl Finder for Spin {
    #[inline]
    fn take(&mut self) -> Option<Item> {
        // The two halves of a round, so that the loop itself compares nothing but the doorbell.
        let (before, from) = self.bells.split_at(self.at);
        let found = match from.iter().position(|bell| bell.count() > 0) {
            Some(offset) => Some(offset),
            None => before.iter().position(|bell| bell.count() > 0).map(|at| from.len() + at),
        };
        let Some(offset) = found else {
            self.polls += self.bells.len() as u64;
            return None;
        };
        self.polls += offset as u64 + 1;
        let queue = self.at + offset;
        let queue = if queue < self.bells.len() { queue } else { queue - self.bells.len() };
        self.at = if queue + 1 == self.bells.len() { 0 } else { queue + 1 };
        Some(self.rings.dequeue(self.first + queue as u32))
    }

    #[inline]
    fn settle(&mut self, queue: u32) {
        self.bells[(queue - self.first) as usize].take_polled(1);
    }

    fn polls(&self) -> u64 {
        self.polls
    }
}

/// What a poll-mode driver's queue is to its caller: a function and a state of its own.
type Poll = fn(&mut QueueState, &Rings, &mut [Item]) -> usize;

/// A queue's own state, two lines of it: where its next descriptor is.
#[repr(align(128))]
struct QueueState {
    queue: u32,
    next: u32,
}

/// Takes what is there, up to the length of `items`; how many.
fn burst(state: &mut QueueState, rings: &Rings, items: &mut [Item]) -> usize {
    let mut taken = 0;
    while taken < items.len() && rings.is_full(state.queue, state.next) {
        items[taken] = rings.dequeue(state.queue);
        state.next = state.next.wrapping_add(1);
        taken += 1;
    }
    taken
}

/// A loop over queues by indirect calls, each of which reads two lines.
pub(crate) struct Burst {
    rings: Arc<Rings>,
    queues: Vec<(Poll, QueueState)>,
    at: usize,
    polls: u64,
}

impl Burst {
    pub(crate) fn new(rings: &Arc<Rings>) -> Self {
        // Opaque, so that the call stays one through a pointer, as a driver's is.
        let queue = |queue| (black_box(burst as Poll), QueueState { queue, next: 0 });
        let queues = (0..rings.count()).map(queue).collect();
        Self { rings: Arc::clone(rings), queues, at: 0, polls: 0 }
    }
}

impl Finder for Burst {
    #[inline]
    fn take(&mut self) -> Option<Item> {
        let mut items = [Item::default()];
        for _ in 0..self.queues.len() {
            let (poll, state) = &mut self.queues[self.at];
            self.at = if self.at + 1 == self.rings.count() as usize { 0 } else { self.at + 1 };
            self.polls += 1;
            if poll(state, &self.rings, &mut items) > 0 {
                return Some(items[0]);
            }
        }
        None
    }

    fn settle(&mut self, _: u32) {}

    fn polls(&self) -> u64 {
        self.polls
    }
}
