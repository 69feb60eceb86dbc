//! Who gives way when a size class has no chunk left.
//!
//! In this order: values whose client has fallen silent; expired, flushed and then least recently
//! used items of the same class; and if the class has none, a page of the class that holds most.

use super::item::{ACTIVE, FETCHED, Kind, NO_SLOT, UNLINKED};
use super::shard::Shard;
use super::slab::Chunk;
use crate::time::NEVER;

/// Silent clients' values dropped by one allocation at most, and active items given another round before one is
/// evicted all the same: bounds one allocation.
const ROUNDS_MAX: usize = 64;

/// After so many evictions a class looks whether another one holds older items than its own.
const REBALANCE_EVERY: u64 = 256;

/// A class gives up a page to one whose oldest item was used this much later, in seconds.
const REBALANCE_AGE_S: u32 = 60;

/// Items of one class looked at for a page that can be taken.
const CANDIDATES_PER_CLASS: usize = 8;

impl Shard {
    /// A chunk of `class`. None only if everything that could give way is itself being built.
    pub(super) fn allocate(&mut self, class: usize, now: u32) -> Option<Chunk> {
        if let Some(chunk) = self.slab.try_alloc(class) {
            return Some(chunk);
        }
        for _ in 0..ROUNDS_MAX {
            let Some(slot) = self.pending.idle_slot(now) else { break };
            self.abandon_slot(slot);
            if let Some(chunk) = self.slab.try_alloc(class) {
                return Some(chunk);
            }
        }
        if self.class_counters[class].evicted % REBALANCE_EVERY == REBALANCE_EVERY - 1
            && self.take_older_page(class, now)
            && let Some(chunk) = self.slab.try_alloc(class)
        {
            return Some(chunk);
        }
        for round in 0..=ROUNDS_MAX {
            let item = self.lru[class].tail();
            if item.is_nil() {
                break;
            }
            // Flushed items are not moved: `free_next_epoch` looks for them at the list's end.
            let stays =
                !self.is_dead(item, now) && (self.pinned.has(item) || self.slab.flag(item, ACTIVE));
            if round < ROUNDS_MAX && stays {
                self.slab.set_flag(item, ACTIVE, false);
                self.lru[class].remove(&mut self.slab, item);
                self.lru[class].push_front(&mut self.slab, item);
                continue;
            }
            self.give_way(item, now);
            if let Some(chunk) = self.slab.try_alloc(class) {
                return Some(chunk);
            }
        }
        if self.take_any_page(class, now)
            && let Some(chunk) = self.slab.try_alloc(class)
        {
            return Some(chunk);
        }
        self.class_counters[class].outofmemory += 1;
        None
    }

    /// Removes a linked item, counted as an eviction unless it was dead anyway.
    fn give_way(&mut self, item: Chunk, now: u32) {
        if self.is_dead(item, now) {
            self.count_expiry(item);
            self.class_counters_of(item).reclaimed += 1;
        } else {
            let counters = &mut self.class_counters[self.slab.class_of(item)];
            counters.evicted += 1;
            counters.evicted_nonzero += u64::from(self.slab.header(item).expires.get() != NEVER);
            counters.evicted_unfetched += u64::from(!self.slab.flag(item, FETCHED));
            counters.evicted_active += u64::from(self.slab.flag(item, ACTIVE));
        }
        self.unlink(item);
    }

    /// Drops a value that has not wholly arrived; its connection finds the ticket worthless.
    pub(super) fn abandon_slot(&mut self, slot: u32) {
        let item = self.pending.remove(slot);
        if !item.is_nil() {
            self.free_chain(item);
        }
    }

    /// Moves the page of the oldest item of another class to the pool, if that is much older than
    /// the oldest of `class`.
    fn take_older_page(&mut self, class: usize, now: u32) -> bool {
        let own = self.lru[class].tail();
        if own.is_nil() {
            return false;
        }
        let oldest = (0..self.lru.len())
            .filter(|&other| other != class && !self.lru[other].tail().is_nil())
            .map(|other| self.lru[other].tail())
            .min_by_key(|&item| self.slab.header(item).accessed.get());
        let Some(item) = oldest else {
            return false;
        };
        let limit = self.slab.header(own).accessed.get().saturating_sub(REBALANCE_AGE_S);
        self.slab.header(item).accessed.get() < limit && self.evacuate(self.slab.page_of(item), now)
    }

    /// Moves some page of another class to the pool: of the class with most pages if possible.
    fn take_any_page(&mut self, class: usize, now: u32) -> bool {
        let mut donors: Vec<usize> = (0..self.lru.len())
            .filter(|&other| other != class && self.slab.classes()[other].pages > 0)
            .collect();
        donors.sort_by_key(|&other| std::cmp::Reverse(self.slab.classes()[other].pages));
        for donor in donors {
            let mut item = self.lru[donor].tail();
            for _ in 0..CANDIDATES_PER_CLASS {
                if item.is_nil() {
                    break;
                }
                if self.evacuate(self.slab.page_of(item), now) {
                    return true;
                }
                item = self.slab.header(item).lru_prev;
            }
        }
        // Continuation chunks and waiting values alone fill what is left: take what can be had.
        (0..self.slab.page_count()).any(|page| self.evacuate(page, now))
    }

    /// Empties `page`. False, and nothing is changed, if an item being built lies in it.
    fn evacuate(&mut self, page: usize, now: u32) -> bool {
        if self.slab.page_class(page).is_none() {
            return false;
        }
        let mut nth = 0;
        while let Some(chunk) = self.slab.chunk_in_page(page, nth) {
            if let Some(item) = self.owner(chunk)
                && self.slab.flag(item, UNLINKED)
                && self.slab.pending_slot(item) == NO_SLOT
            {
                return false;
            }
            nth += 1;
        }
        let mut nth = 0;
        while let Some(chunk) = self.slab.chunk_in_page(page, nth) {
            if let Some(item) = self.owner(chunk) {
                let is_pinned = self.pinned.has(item);
                if !self.slab.flag(item, UNLINKED) {
                    self.give_way(item, now);
                } else if !is_pinned {
                    self.abandon_slot(self.slab.pending_slot(item));
                }
                if is_pinned {
                    self.break_pins(item);
                }
            }
            nth += 1;
        }
        self.counters.slabs_moved += 1;
        debug_assert!(self.slab.page_class(page).is_none(), "an evacuated page is still in use");
        true
    }

    /// The item that a chunk is part of.
    fn owner(&self, chunk: Chunk) -> Option<Chunk> {
        match self.slab.kind(chunk) {
            Kind::Free => None,
            Kind::Item => Some(chunk),
            Kind::Continuation(item) => Some(item),
        }
    }
}
