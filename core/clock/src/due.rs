//! Things that are due at a moment.

use alloc::collections::BinaryHeap;
use core::cmp::{Ordering, Reverse};

use crate::Instant;

/// Hands things back when they are due: the earliest first, and of those that are due at the same moment
/// the one that was put in first.
///
/// ```
/// use clock::{DueQueue, Instant};
/// let mut queue = DueQueue::default();
/// queue.push(Instant::from_micros(2), 'b');
/// queue.push(Instant::from_micros(1), 'a');
/// queue.push(Instant::from_micros(2), 'c');
/// let mut due = |micros| queue.pop_due(Instant::from_micros(micros));
/// assert_eq!((due(0), due(1), due(1)), (None, Some('a'), None));
/// assert_eq!((due(3), due(3), due(3)), (Some('b'), Some('c'), None));
/// ```
#[derive(Debug)]
pub struct DueQueue<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    next_order: u64,
}

#[derive(Debug)]
struct Entry<T> {
    due: Instant,
    order: u64,
    thing: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<T> Eq for Entry<T> {}
impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

impl<T> Default for DueQueue<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), next_order: 0 }
    }
}

impl<T> DueQueue<T> {
    /// An empty queue with memory for so many things.
    pub fn with_capacity(things: usize) -> Self {
        Self { heap: BinaryHeap::with_capacity(things), next_order: 0 }
    }

    /// Puts a thing in.
    pub fn push(&mut self, due: Instant, thing: T) {
        let order = self.next_order;
        self.next_order += 1;
        self.heap.push(Reverse(Entry { due, order, thing }));
    }

    /// The next thing, if it is due by `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<T> {
        let is_due = self.next_due().is_some_and(|due| due <= now);
        is_due.then(|| self.heap.pop()).flatten().map(|Reverse(entry)| entry.thing)
    }

    /// When the next thing is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.due)
    }

    /// How many things there are.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Takes all things out, due or not, in no particular order.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.heap.drain().map(|Reverse(entry)| entry.thing)
    }
}
