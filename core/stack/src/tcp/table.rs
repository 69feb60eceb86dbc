//! From the hash of a connection's ends to its slot.
//!
//! An entry is eight bytes, the hash and the slot, eight entries to a cache line; a search walks from
//! the hash's place to the first free one, and looks at a connection only where the whole hash is the
//! same. So a batch can be looked up in two passes without ever waiting for memory: the first
//! prefetches the entries ([`prefetch`](FlowTable::prefetch)), the second finds the slots
//! ([`candidate`](FlowTable::candidate)) and prefetches the connections.
//!
//! The hash is keyed with a secret, so nobody who does not know it can fill one place.

use alloc::boxed::Box;

use mem::prefetch;

/// Entries of the smallest table.
const SMALLEST: usize = 8;
const FREE: u64 = 0;

/// See the module's comment. Open addressing, linear probing, at most seven eighths full.
#[derive(Debug)]
pub(crate) struct FlowTable {
    /// Hash in the upper half; slot plus one in the lower. A power of two of them.
    entries: Box<[u64]>,
    len: usize,
}

#[inline(always)]
fn entry(hash: u32, slot: u32) -> u64 {
    (hash as u64) << 32 | (slot as u64 + 1)
}

#[inline(always)]
fn slot_of(entry: u64) -> u32 {
    (entry as u32).wrapping_sub(1)
}

impl Default for FlowTable {
    fn default() -> Self {
        Self { entries: free(SMALLEST), len: 0 }
    }
}

impl FlowTable {
    /// Entries present.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.entries)
    }

    /// Where the search for a hash begins. The low bits have chosen the flow group, so they are all
    /// alike here: the others are spread.
    #[inline(always)]
    fn place(&self, hash: u32) -> usize {
        let spread = (hash >> 7).wrapping_mul(0x9e37_79b1);
        (spread >> 8) as usize & (self.entries.len() - 1)
    }

    /// Starts loading what a search for `hash` looks at first.
    #[inline(always)]
    pub fn prefetch(&self, hash: u32) {
        if let Some(entry) = self.entries.get(self.place(hash)) {
            prefetch(entry);
        }
    }

    /// The first slot that was entered under this hash: nearly always the one that is meant, which
    /// the caller finds out.
    #[inline(always)]
    pub fn candidate(&self, hash: u32) -> Option<u32> {
        self.find(hash, |_| true)
    }

    /// The slot under this hash for which `is_it`.
    #[inline(always)]
    pub fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let found = self.entries[self.position(hash, is_it)?];
        Some(slot_of(found))
    }

    /// Some slot that is there.
    pub fn any(&self) -> Option<u32> {
        self.entries.iter().find(|&&entry| entry != FREE).map(|&entry| slot_of(entry))
    }

    #[inline(always)]
    fn position(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        let mask = self.entries.len() - 1;
        let mut at = self.place(hash);
        // There is always a free entry, so this ends.
        loop {
            let entry = self.entries[at & mask];
            if entry == FREE {
                return None;
            }
            if (entry >> 32) as u32 == hash && is_it(slot_of(entry)) {
                return Some(at & mask);
            }
            at += 1;
        }
    }

    /// Enters a slot, which is not there yet.
    pub fn insert(&mut self, hash: u32, slot: u32) {
        if (self.len + 1) * 8 > self.entries.len() * 7 {
            let larger = free(self.entries.len() * 2);
            let old = core::mem::replace(&mut self.entries, larger);
            old.iter().filter(|&&entry| entry != FREE).for_each(|&entry| self.put(entry));
        }
        self.put(entry(hash, slot));
        self.len += 1;
    }

    fn put(&mut self, entry: u64) {
        let mask = self.entries.len() - 1;
        let mut at = self.place((entry >> 32) as u32);
        while self.entries[at & mask] != FREE {
            at += 1;
        }
        self.entries[at & mask] = entry;
    }

    /// Takes a slot out; no effect where it is not there.
    pub fn remove(&mut self, hash: u32, slot: u32) {
        let Some(mut hole) = self.position(hash, |other| other == slot) else { return };
        let mask = self.entries.len() - 1;
        self.len -= 1;
        // What stands behind the hole moves into it, where the hole is not before its own place: so
        // no search ends too early, and no mark of the removed is left to be stepped over.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = self.entries[at];
            if entry == FREE {
                break;
            }
            let home = self.place((entry >> 32) as u32);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.entries[hole] = entry;
                hole = at;
            }
        }
        self.entries[hole] = FREE;
    }
}

fn free(entries: usize) -> Box<[u64]> {
    alloc::vec![FREE; entries].into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            ..ProptestConfig::default()
        })]

        /// Against a set of (hash, slot), with few hashes, so that chains meet and wrap around.
        #[test]
        fn it_holds_what_a_set_holds(
            steps in prop::collection::vec(
                (any::<bool>(), 0..24u32, 0..40u32), 0..if cfg!(miri) { 60 } else { 400 },
            ),
        ) {
            let (mut table, mut model) = (FlowTable::default(), BTreeSet::new());
            for (insert, hash, slot) in steps {
                // Hashes of one flow group differ in their upper bits; some stand at one place.
                let hash = (hash % 6) << 7 | (hash / 6) << 29;
                match insert {
                    true if model.insert((hash, slot)) => table.insert(hash, slot),
                    true => {}
                    false => {
                        model.remove(&(hash, slot));
                        table.remove(hash, slot);
                    }
                }
                prop_assert_eq!(table.len(), model.len());
                for &(hash, slot) in &model {
                    prop_assert_eq!(table.find(hash, |other| other == slot), Some(slot));
                    prop_assert!(table.candidate(hash).is_some());
                }
                let absent = table.find(0xffff_ff80, |_| true);
                prop_assert_eq!(absent, None);
            }
        }
    }

    #[test]
    fn a_removed_entry_leaves_no_trace() {
        let mut table = FlowTable::default();
        let slots: Vec<u32> = (0..if cfg!(miri) { 500 } else { 10_000 }).collect();
        for &slot in &slots {
            table.insert(slot.wrapping_mul(0x9e37_79b9), slot);
        }
        for &slot in &slots {
            table.remove(slot.wrapping_mul(0x9e37_79b9), slot);
        }
        assert_eq!(table.len(), 0);
        assert!(table.entries.iter().all(|&entry| entry == FREE));
    }
}
