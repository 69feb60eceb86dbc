//! Items that are being sent part by part, to peers that take a long value slowly.
//!
//! A connection holds a [`Pin`], never an item. While an item has a pin its bytes do not change: one that is
//! overwritten, deleted or evicted leaves the index, and its memory is freed with the last pin. Where the
//! shard needs the page, the pins become worthless, and their connections are reset: memory stays within the
//! limit whatever peers do.

use std::collections::HashMap;

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
pub(crate) struct Pinned {
    items: HashMap<Chunk, Readers>,
    generation: u64,
}

impl Pinned {
    #[inline]
    pub(super) fn has(&self, item: Chunk) -> bool {
        !self.items.is_empty() && self.items.contains_key(&item)
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// One more pin of `item`.
    pub(super) fn add(&mut self, item: Chunk) -> Pin {
        let Self { items, generation } = self;
        let readers = items.entry(item).or_insert_with(|| {
            *generation += 1;
            Readers { generation: *generation, count: 0 }
        });
        readers.count += 1;
        Pin { item, generation: readers.generation }
    }

    /// The item of a pin; `None` where the pin is worthless.
    pub(crate) fn item(&self, pin: Pin) -> Option<Chunk> {
        let readers = self.items.get(&pin.item)?;
        (readers.generation == pin.generation).then_some(pin.item)
    }

    /// Takes a pin back. Answers with its item where that has no other.
    pub(super) fn remove(&mut self, pin: Pin) -> Option<Chunk> {
        let item = self.item(pin)?;
        if let Some(readers) = self.items.get_mut(&item) {
            readers.count -= 1;
            if readers.count > 0 {
                return None;
            }
        }
        self.items.remove(&item);
        Some(item)
    }

    /// Makes all pins of `item` worthless. False: it has none.
    pub(super) fn forget(&mut self, item: Chunk) -> bool {
        self.items.remove(&item).is_some()
    }
}
