//! One shard: its index, its memory, and the finding, linking and unlinking of items.
//!
//! What commands do with items is in `operations`; who gives way when memory is short is in `evict`.

use super::item::{self, FETCHED, Layout, NO_SLOT, NewItem, UNLINKED};
use super::lru::List;
use super::pending::Pending;
use super::pinned::{PINNED_SLOT, Pin, Pinned};
use super::slab::{CHUNK_MAX_BYTES, Chunk, PAGE_BYTES, Slab};
use super::unsafe_memory::{Carved, Memory};
use crate::stats::{ClassCounters, Counters};
use crate::time::NEVER;

/// Bytes of memory for which the index gets one bucket. With the smallest items that is a chain of
/// two, and 3 % of the memory.
const BYTES_PER_BUCKET: usize = 128;

/// No delayed flush is set.
const NO_FLUSH: u32 = u32::MAX;

/// Where a key belongs: the high bits chose the shard, these choose the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHash(pub(crate) u64);

impl KeyHash {
    /// The part kept in the item.
    pub(crate) fn tag(self) -> u32 {
        self.0 as u32
    }
}

/// One independently locked part of the store.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) slab: Slab,
    /// By size class.
    pub(crate) lru: Vec<List>,
    pub(crate) pending: Pending,
    pub(crate) pinned: Pinned,
    buckets: Carved<Chunk>,
    /// The next CAS unique, and the distance to the one after it: no two shards have one in common.
    cas_next: u64,
    cas_step: u64,
    /// Items of an earlier epoch are flushed. Wraps after 256 flushes, see `free_next_epoch`.
    pub(super) epoch: u8,
    flush_at: u32,
    pub(super) item_size_max: usize,
    pub(crate) counters: Counters,
    pub(crate) class_counters: Vec<ClassCounters>,
}

impl Shard {
    /// The shard `place.0` of `place.1`, of at most `bytes`, all of it taken from `memory` now; `None` where that has less.
    pub(crate) fn new(
        memory: &mut Memory,
        bytes: usize,
        item_size_max: usize,
        place: (usize, usize),
    ) -> Option<Self> {
        let wanted = (bytes / BYTES_PER_BUCKET).max(2);
        let count = 1usize << wanted.ilog2();
        let mut buckets = memory.carve(count)?;
        buckets.fill(Chunk::NIL);
        let pages = (bytes - count * size_of::<Chunk>()) / Slab::BYTES_PER_PAGE;
        let slab = Slab::new(memory.carve(pages * PAGE_BYTES)?);
        let classes = slab.classes().len();
        Some(Self {
            slab,
            lru: vec![List::new(); classes],
            pending: Pending::default(),
            pinned: Pinned::default(),
            buckets,
            cas_next: place.0 as u64 + 1,
            cas_step: place.1 as u64,
            epoch: 0,
            flush_at: NO_FLUSH,
            item_size_max,
            counters: Counters::default(),
            class_counters: vec![ClassCounters::default(); classes],
        })
    }

    /// Bytes allocated at start.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.slab.page_count() * Slab::BYTES_PER_PAGE + self.buckets.len() * size_of::<Chunk>()
    }

    /// Gives an item a CAS value: `new_cas`, or the next one.
    pub(super) fn set_cas(&mut self, item: Chunk, new_cas: Option<u64>) -> u64 {
        let cas = new_cas.unwrap_or_else(|| {
            self.cas_next += self.cas_step;
            self.cas_next - self.cas_step
        });
        self.slab.header_mut(item).cas.set(cas);
        cas
    }

    /// The counters of an item's size class.
    #[inline]
    pub(crate) fn class_counters_of(&mut self, item: Chunk) -> &mut ClassCounters {
        &mut self.class_counters[self.slab.class_of(item)]
    }

    fn bucket(&self, tag: u32) -> usize {
        tag as usize & (self.buckets.len() - 1)
    }

    /// The live item of this key. One that has expired or was flushed is reclaimed on the way.
    pub(crate) fn find(&mut self, hash: KeyHash, key: &[u8], now: u32) -> Option<Chunk> {
        if now >= self.flush_at {
            self.flush_now();
        }
        let tag = hash.tag();
        let mut item = self.buckets[self.bucket(tag)];
        while !item.is_nil() {
            if self.slab.key_is(item, tag, key) {
                if !self.is_dead(item, now) {
                    return Some(item);
                }
                if self.slab.header(item).epoch == self.epoch {
                    self.counters.get_expired += 1;
                } else {
                    self.counters.get_flushed += 1;
                }
                self.count_expiry(item);
                self.unlink(item);
                return None;
            }
            item = self.slab.header(item).next;
        }
        None
    }

    /// Whether a linked item has expired or was flushed.
    pub(super) fn is_dead(&self, item: Chunk, now: u32) -> bool {
        let expires = self.slab.header(item).expires.get();
        (expires != NEVER && expires <= now) || self.slab.header(item).epoch != self.epoch
    }

    pub(super) fn count_expiry(&mut self, item: Chunk) {
        if !self.slab.flag(item, FETCHED) {
            self.class_counters_of(item).expired_unfetched += 1;
        }
    }

    /// Puts a built item into the index and the LRU list, with a new CAS value.
    pub(super) fn link(&mut self, item: Chunk, new_cas: Option<u64>) -> u64 {
        debug_assert!(self.slab.flag(item, UNLINKED), "the item is linked already");
        let cas = self.set_cas(item, new_cas);
        self.slab.set_flag(item, UNLINKED, false);
        let bucket = self.bucket(self.slab.header(item).hash.get());
        self.slab.header_mut(item).next = self.buckets[bucket];
        self.buckets[bucket] = item;
        let class = self.slab.class_of(item);
        self.lru[class].push_front(&mut self.slab, item);
        self.counters.curr_items += 1;
        self.counters.total_items += 1;
        self.counters.bytes += self.slab.item_bytes(item) as u64;
        cas
    }

    /// Takes a linked item out of the index and the LRU list and frees its memory.
    pub(super) fn unlink(&mut self, item: Chunk) {
        debug_assert!(!self.slab.flag(item, UNLINKED), "the item is not linked");
        let bucket = self.bucket(self.slab.header(item).hash.get());
        let next = self.slab.header(item).next;
        if self.buckets[bucket] == item {
            self.buckets[bucket] = next;
        } else {
            let mut at = self.buckets[bucket];
            while !at.is_nil() && self.slab.header(at).next != item {
                at = self.slab.header(at).next;
            }
            debug_assert!(!at.is_nil(), "a linked item is missing from its bucket");
            if !at.is_nil() {
                self.slab.header_mut(at).next = next;
            }
        }
        let class = self.slab.class_of(item);
        self.lru[class].remove(&mut self.slab, item);
        self.counters.curr_items -= 1;
        self.counters.bytes -= self.slab.item_bytes(item) as u64;
        self.free_unlinked(item);
    }

    /// Keeps a linked item's bytes as they are until [`unpin`](Self::unpin).
    pub(crate) fn pin(&mut self, item: Chunk) -> Pin {
        debug_assert!(!self.slab.flag(item, UNLINKED), "only a linked item is found");
        self.pinned.add(item)
    }

    /// Gives a pin back. The last one of an item that has left the index frees it.
    pub(crate) fn unpin(&mut self, pin: Pin) {
        if let Some(item) = self.pinned.remove(pin)
            && self.slab.flag(item, UNLINKED)
        {
            self.free_chain(item);
        }
    }

    /// Frees an item that has left the index, or leaves it to those that have it pinned.
    #[inline]
    pub(super) fn free_unlinked(&mut self, item: Chunk) {
        if self.pinned.has(item) {
            self.slab.set_flag(item, UNLINKED, true);
            self.slab.set_pending_slot(item, PINNED_SLOT);
        } else {
            self.free_chain(item);
        }
    }

    /// Frees an item that only pins keep: the pins are worthless from now on.
    pub(super) fn break_pins(&mut self, item: Chunk) {
        if self.pinned.forget(item) {
            self.counters.reads_lost += 1;
            self.free_chain(item);
        }
    }

    /// Frees all chunks of an item that is in no list.
    pub(super) fn free_chain(&mut self, item: Chunk) {
        let mut chunk = self.slab.next_chunk(item, item);
        while !chunk.is_nil() {
            let next = self.slab.next_chunk(item, chunk);
            self.slab.free(chunk);
            chunk = next;
        }
        self.slab.free(item);
    }

    /// Memory for a new item, evicting others where needed, with everything but its value written.
    pub(super) fn create(&mut self, new: &NewItem<'_>, now: u32) -> Option<Chunk> {
        let head = self.create_head(new, now)?;
        if !self.grow(head, new.value_len, now) {
            self.free_chain(head);
            return None;
        }
        self.slab.end_value(head);
        Some(head)
    }

    /// The first chunk of a new item, which is to [`grow`](Self::grow) as its value arrives.
    pub(super) fn create_head(&mut self, new: &NewItem<'_>, now: u32) -> Option<Chunk> {
        // A flush that is due concerns what was stored before it, not this.
        if now >= self.flush_at {
            self.flush_now();
        }
        let head = self.allocate(self.slab.class_for(Layout::of(new).chunk_bytes(0)), now)?;
        item::build(&mut self.slab, head, new, now, self.epoch);
        Some(head)
    }

    /// Extends the chain of an item under construction to the chunks of the value's first `len` bytes. False: no
    /// memory; the chain is then as long as it could be made.
    pub(super) fn grow(&mut self, head: Chunk, len: usize, now: u32) -> bool {
        debug_assert!(self.slab.pending_slot(head) == NO_SLOT, "its own page could be taken");
        let layout = self.slab.layout(head);
        let wanted = self.slab.chunks_for(head, len);
        let (mut end, mut next) = (head, self.slab.next_chunk(head, head));
        for nth in 1..wanted {
            if next.is_nil() {
                let class = self.slab.class_for(layout.chunk_bytes(nth));
                let Some(chunk) = self.allocate(class, now) else { return false };
                self.slab.init_continuation(chunk, head);
                self.slab.set_next_chunk(head, end, chunk);
                next = chunk;
            }
            (end, next) = (next, self.slab.next_chunk(head, next));
        }
        true
    }

    /// Makes everything stored so far unfindable, at once or from `at` (Unix seconds) on. False, and nothing is
    /// flushed, where `purges` did not suffice for [`Shard::free_next_epoch`].
    pub(crate) fn flush(&mut self, at: u32, now: u32, purges: &mut u32) -> bool {
        if !self.free_next_epoch(purges) {
            return false;
        }
        if at <= now {
            self.flush_now();
        } else {
            self.flush_at = at;
        }
        true
    }

    /// Takes out what is left of the epoch that comes next, from 255 flushes ago, so that it does not look alive
    /// again. Each chunk takes one of `purges`; false where these did not suffice.
    ///
    /// Flushed items are not moved in their lists, so those of the oldest epoch are the last.
    pub(crate) fn free_next_epoch(&mut self, purges: &mut u32) -> bool {
        let next = self.epoch.wrapping_add(1);
        for class in 0..self.lru.len() {
            while let tail = self.lru[class].tail()
                && !tail.is_nil()
                && self.slab.header(tail).epoch == next
            {
                if *purges == 0 {
                    return false;
                }
                let chunks = self.slab.item_bytes(tail).div_ceil(CHUNK_MAX_BYTES);
                *purges = purges.saturating_sub(chunks as u32);
                self.unlink(tail);
            }
        }
        true
    }

    /// The flush that [`Shard::flush`] has prepared.
    fn flush_now(&mut self) {
        self.flush_at = NO_FLUSH;
        self.epoch = self.epoch.wrapping_add(1);
        debug_assert!(
            self.lru.iter().all(|list| {
                list.tail().is_nil() || self.slab.header(list.tail()).epoch != self.epoch
            }),
            "a flushed item comes to life again"
        );
    }
}
