//! The paper's software ready set (§V-E, Figure 13): a list of ready queues, and an iterator that
//! walks over all of it to find the one whose turn it is. Slow on purpose: it is there to be compared.

use std::sync::Arc;

use qwait::DoorbellRef;

use crate::activations::Activations;
use crate::finder::Finder;
use crate::queue::Rings;
use crate::work::Item;

/// The consumer that keeps the list.
pub(crate) struct Linear {
    rings: Arc<Rings>,
    bells: Vec<DoorbellRef>,
    activations: Arc<Activations>,
    seen: u32,
    ready: Vec<u32>,
    /// Where in the list the queue stands that was selected last.
    selected: usize,
    cursor: u32,
}

impl Linear {
    pub(crate) fn new(
        rings: &Arc<Rings>,
        bells: Vec<DoorbellRef>,
        activations: &Arc<Activations>,
    ) -> Self {
        Self {
            rings: Arc::clone(rings),
            ready: Vec::with_capacity(bells.len()),
            bells,
            activations: Arc::clone(activations),
            seen: 0,
            selected: 0,
            cursor: 0,
        }
    }
}

impl Finder for Linear {
    #[inline]
    fn take(&mut self) -> Option<Item> {
        let tail = self.activations.tail();
        while self.seen != tail {
            self.ready.push(self.activations.at(self.seen));
            self.seen = self.seen.wrapping_add(1);
        }
        // Numbers below the cursor wrap to large distances: their turn comes last.
        let distance = |queue: &u32| u64::from(queue.wrapping_sub(self.cursor));
        let (mut nearest, mut selected) = (u64::MAX, None);
        for (index, queue) in self.ready.iter().enumerate() {
            if distance(queue) < nearest {
                (nearest, selected) = (distance(queue), Some(index));
            }
        }
        self.selected = selected?;
        let queue = self.ready[self.selected];
        self.cursor = queue.wrapping_add(1);
        Some(self.rings.dequeue(queue))
    }

    #[inline]
    fn settle(&mut self, queue: u32) {
        debug_assert_eq!(self.ready[self.selected], queue);
        if self.bells[queue as usize].take_polled(1) == 0 {
            self.ready.swap_remove(self.selected);
        }
    }
}
