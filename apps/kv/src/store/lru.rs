//! One least-recently-used list per size class, linked through the items' headers.
//!
//! A hit does not move its item: it sets the item's ACTIVE flag, and an active item that comes to
//! the end of the list is given another round. So a hit touches one cache line, as in memcached's
//! segmented LRU.

use super::slab::{Chunk, Slab};

/// A doubly linked list of items, most recently stored or bumped first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    head: Chunk,
    tail: Chunk,
    len: u64,
}

impl List {
    pub(crate) const fn new() -> Self {
        Self { head: Chunk::NIL, tail: Chunk::NIL, len: 0 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The item to be evicted first.
    pub(crate) fn tail(&self) -> Chunk {
        self.tail
    }

    pub(crate) fn push_front(&mut self, slab: &mut Slab, item: Chunk) {
        slab.header_mut(item).lru_prev = Chunk::NIL;
        slab.header_mut(item).lru_next = self.head;
        if self.head.is_nil() {
            self.tail = item;
        } else {
            slab.header_mut(self.head).lru_prev = item;
        }
        self.head = item;
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, slab: &mut Slab, item: Chunk) {
        debug_assert!(self.len > 0, "an item is taken off an empty list");
        let (prev, next) = (slab.header(item).lru_prev, slab.header(item).lru_next);
        if prev.is_nil() {
            debug_assert!(self.head == item, "the item is not on this list");
            self.head = next;
        } else {
            slab.header_mut(prev).lru_next = next;
        }
        if next.is_nil() {
            self.tail = prev;
        } else {
            slab.header_mut(next).lru_prev = prev;
        }
        self.len -= 1;
    }
}
