//! Items that are being sent part by part, to peers that take a long value slowly.
//!
//! A connection holds a [`Pin`], never an item. While an item has a pin its bytes do not change: one that is
//! overwritten, deleted or evicted leaves the index, and its memory is freed with the last pin. Where the
//! shard needs the page, the pins become worthless, and their connections are reset: memory stays within the
//! limit whatever peers do.

use std::collections::HashMap;

use super::item::UNLINKED;
use super::shard::Shard;
use super::slab::Chunk;

/// In place of the waiting slot of an item that only pins keep.
pub(super) const PINNED_SLOT: u32 = u32::MAX - 1;

/// The right to read an item to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pin {
    item: Chunk,
    generation: u64,
}

#[derive(Debug, Clone, Copy)]
struct Readers {
    generation: u64,
    count: u32,
}

/// The pinned items of one shard: at most one for each connection with a reply in part.
#[derive(Debug, Default)]
pub(super) struct Pinned {
    items: HashMap<u32, Readers>,
    generation: u64,
}

impl Pinned {
    #[inline]
    pub(super) fn has(&self, item: Chunk) -> bool {
        !self.items.is_empty() && self.items.contains_key(&item.0)
    }
}

impl Shard {
    /// Keeps a linked item's bytes as they are until [`unpin`](Self::unpin).
    pub(crate) fn pin(&mut self, item: Chunk) -> Pin {
        debug_assert!(!self.slab.flag(item, UNLINKED), "only a linked item is found");
        let Pinned { items, generation } = &mut self.pinned;
        let readers = items.entry(item.0).or_insert_with(|| {
            *generation += 1;
            Readers { generation: *generation, count: 0 }
        });
        readers.count += 1;
        Pin { item, generation: readers.generation }
    }

    /// The item of a pin; `None` where the shard needed its memory.
    pub(crate) fn pinned(&self, pin: Pin) -> Option<Chunk> {
        let readers = self.pinned.items.get(&pin.item.0)?;
        (readers.generation == pin.generation).then_some(pin.item)
    }

    /// Gives a pin back. The last one of an item that has left the index frees it.
    pub(crate) fn unpin(&mut self, pin: Pin) {
        let Some(item) = self.pinned(pin) else { return };
        if let Some(readers) = self.pinned.items.get_mut(&item.0) {
            readers.count -= 1;
            if readers.count > 0 {
                return;
            }
        }
        self.pinned.items.remove(&item.0);
        if self.slab.flag(item, UNLINKED) {
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
        if self.pinned.items.remove(&item.0).is_some() {
            self.counters.reads_lost += 1;
            self.free_chain(item);
        }
    }

    /// Items that are pinned.
    pub(crate) fn pinned_len(&self) -> usize {
        self.pinned.items.len()
    }
}
