//! Items whose value has not wholly arrived yet.
//!
//! A connection holds a [`Ticket`], never an item: the item may be reclaimed under it when its
//! client falls silent or the shard needs the page, and a stale ticket then simply finds nothing.
//! So a client that announces values and never sends them can't hold memory for long.

use super::slab::Chunk;

/// A waiting item with no new bytes for this long is reclaimed when memory is wanted.
pub(crate) const PENDING_IDLE_S: u32 = 60;

/// Slots that one look for an idle one examines: bounds an allocation where very many values are half sent.
pub(super) const IDLE_LOOKS: usize = 16;

/// The right to fill in one waiting item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// To be written into the item.
    pub(super) slot: u32,
    /// Generation of the slot.
    generation: u32,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    item: Chunk,
    generation: u32,
    progress_at: u32,
}

/// The waiting items of one shard; as many as connections with a half-sent value.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The slot at which the next look for an idle one begins.
    hand: usize,
}

impl Pending {
    pub(crate) fn insert(&mut self, item: Chunk, now: u32) -> Ticket {
        match self.free.pop() {
            Some(slot) => {
                let entry = &mut self.slots[slot as usize];
                debug_assert!(entry.item.is_nil(), "a free slot holds an item");
                entry.item = item;
                entry.progress_at = now;
                Ticket { slot, generation: entry.generation }
            }
            None => {
                let slot = self.slots.len() as u32;
                self.slots.push(Slot { item, generation: 0, progress_at: now });
                Ticket { slot, generation: 0 }
            }
        }
    }

    /// The ticket's item, unless it was reclaimed.
    pub(crate) fn get(&mut self, ticket: Ticket, now: u32) -> Option<Chunk> {
        let slot = self.slots.get_mut(ticket.slot as usize)?;
        if slot.generation != ticket.generation || slot.item.is_nil() {
            return None;
        }
        slot.progress_at = now;
        Some(slot.item)
    }

    /// Empties a slot and makes its ticket worthless.
    pub(crate) fn remove(&mut self, slot: u32) -> Chunk {
        let Some(entry) = self.slots.get_mut(slot as usize) else {
            return Chunk::NIL;
        };
        let item = std::mem::replace(&mut entry.item, Chunk::NIL);
        if !item.is_nil() {
            entry.generation = entry.generation.wrapping_add(1);
            self.free.push(slot);
        }
        item
    }

    /// A slot whose client has been silent for [`PENDING_IDLE_S`], among the next [`IDLE_LOOKS`].
    pub(crate) fn idle_slot(&mut self, now: u32) -> Option<u32> {
        for _ in 0..IDLE_LOOKS.min(self.slots.len()) {
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &self.slots[self.hand];
            if !slot.item.is_nil() && now.saturating_sub(slot.progress_at) >= PENDING_IDLE_S {
                return Some(self.hand as u32);
            }
        }
        None
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
