//! The bounded table of sessions: from a 5-tuple to the backend that it stays with.
//!
//! Open addressing with linear probing at half load at most, so that a look-up is one or two cache lines and a search
//! ends soon; removal shifts followers back, so that nothing piles up. All memory is allocated by `new`.
//!
//! A clock hand goes round the table, some slots with each insertion, and removes what was idle too long; where the
//! table is full nonetheless, the longest idle of the slots it just passed makes room. Work per insertion is bounded,
//! and no session's idle time is found by a search through all.

use clock::{Duration, Instant};

/// Slots that the hand passes with each insertion.
const HAND_SLOTS: usize = 8;
/// Slots that it passes at most to find one to evict.
const EVICTION_SLOTS_MAX: usize = 64;

/// A backend, until it is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BackendId {
    pub(crate) number: u16,
    pub(crate) generation: u16,
}

/// One session.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Slot {
    /// The 5-tuple; zero in an empty slot (no 5-tuple is: its protocol is not zero).
    key: u128,
    last_seen: Instant,
    /// The lower half of the key's hash: its home slot.
    hash: u32,
    backend: BackendId,
}

const _: () = assert!(size_of::<Slot>() == 32, "two slots in a cache line");

/// What an insertion did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Inserted {
    /// Sessions that were idle too long and were removed.
    pub expired: u64,
    /// Whether a live session had to make room.
    pub evicted: bool,
    /// Whether the session is now in the table.
    pub recorded: bool,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Sessions {
    slots: Box<[Slot]>,
    mask: usize,
    len: usize,
    len_max: usize,
    hand: usize,
    idle_max: Duration,
}

impl Sessions {
    /// Room for `len_max` sessions, each removed when it was idle for `idle_max`.
    pub(crate) fn new(len_max: usize, idle_max: Duration) -> Self {
        let slots = (2 * len_max).next_power_of_two();
        Self {
            slots: vec![Slot::default(); slots].into(),
            mask: slots - 1,
            len: 0,
            len_max,
            hand: 0,
            idle_max,
        }
    }

    /// Sessions in the table, expired ones that the hand has not passed yet included.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where the session is, if it is there.
    fn find(&self, key: u128, hash: u64) -> Option<usize> {
        let mut at = hash as usize & self.mask;
        // Half the slots are empty, so this ends.
        loop {
            match self.slots[at].key {
                0 => return None,
                found if found == key => return Some(at),
                _ => at = (at + 1) & self.mask,
            }
        }
    }

    /// The session's backend, if it is known and not idle too long; its idle time begins anew.
    #[inline]
    pub(crate) fn touch(&mut self, key: u128, hash: u64, now: Instant) -> Option<BackendId> {
        let at = self.find(key, hash)?;
        let idle_max = self.idle_max;
        let slot = &mut self.slots[at];
        if now.since(slot.last_seen) >= idle_max {
            return None;
        }
        slot.last_seen = slot.last_seen.max(now);
        Some(slot.backend)
    }

    /// Records a session, or its new backend.
    pub(crate) fn insert(
        &mut self,
        key: u128,
        hash: u64,
        backend: BackendId,
        now: Instant,
    ) -> Inserted {
        debug_assert_ne!(key, 0, "an empty slot's key");
        let slot = Slot { key, last_seen: now, hash: hash as u32, backend };
        if let Some(at) = self.find(key, hash) {
            self.slots[at] = slot;
            return Inserted { recorded: true, ..Inserted::default() };
        }
        let mut inserted = self.move_hand(now);
        if self.len >= self.len_max {
            return inserted;
        }
        let mut at = hash as usize & self.mask;
        while self.slots[at].key != 0 {
            at = (at + 1) & self.mask;
        }
        self.slots[at] = slot;
        self.len += 1;
        inserted.recorded = true;
        inserted
    }

    /// Passes some slots, removes what is expired, and makes room if the table is full.
    fn move_hand(&mut self, now: Instant) -> Inserted {
        let mut inserted = Inserted::default();
        let mut longest_idle: Option<(usize, Instant)> = None;
        for passed in 0..EVICTION_SLOTS_MAX {
            let is_full = self.len >= self.len_max;
            if passed >= HAND_SLOTS && (!is_full || longest_idle.is_some()) {
                break;
            }
            let at = self.hand;
            let slot = self.slots[at];
            if slot.key != 0 && now.since(slot.last_seen) >= self.idle_max {
                self.remove(at);
                inserted.expired += 1;
                // What was shifted into this slot is looked at next. What was remembered may have been shifted.
                longest_idle = None;
                continue;
            }
            if slot.key != 0 && longest_idle.is_none_or(|(_, seen)| slot.last_seen < seen) {
                longest_idle = Some((at, slot.last_seen));
            }
            self.hand = (self.hand + 1) & self.mask;
        }
        if self.len >= self.len_max
            && let Some((at, _)) = longest_idle
        {
            self.remove(at);
            inserted.evicted = true;
        }
        inserted
    }

    /// Empties a slot and moves back what would not be found any more (Knuth, volume 3, §6.4, algorithm R).
    fn remove(&mut self, mut hole: usize) {
        self.len -= 1;
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let slot = self.slots[at];
            if slot.key == 0 {
                break;
            }
            // A slot may move to the hole unless its home lies behind the hole.
            let home = slot.hash as usize & self.mask;
            if (at.wrapping_sub(home) & self.mask) >= (at.wrapping_sub(hole) & self.mask) {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = Slot::default();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const IDLE_MAX: Duration = Duration::from_millis(10);

    /// Hashes that collide often, also across the table's end.
    fn hash_of(key: u128) -> u64 {
        (key as u64).wrapping_mul(0x5bd1) | 0x7
    }

    fn assignment(number: u16) -> BackendId {
        BackendId { number, generation: number / 2 }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        #[test]
        fn it_is_a_map_that_forgets_what_is_idle(
            steps in prop::collection::vec((1u128..40, any::<u16>(), 0u64..3, any::<bool>()), 1..300),
        ) {
            // Room for all keys, so that nothing is evicted.
            let mut sessions = Sessions::new(40, IDLE_MAX);
            let mut model: HashMap<u128, (u16, Instant)> = HashMap::new();
            let mut now = Instant::from_millis(1);
            for (key, backend, pause, insert) in steps {
                now += Duration::from_millis(pause);
                if insert {
                    let inserted = sessions.insert(key, hash_of(key), assignment(backend), now);
                    prop_assert!(inserted.recorded && !inserted.evicted);
                    model.insert(key, (backend, now));
                } else {
                    let live = model.get_mut(&key).filter(|(_, seen)| now.since(*seen) < IDLE_MAX);
                    let expected = live.map(|(backend, seen)| {
                        *seen = now;
                        assignment(*backend)
                    });
                    prop_assert_eq!(sessions.touch(key, hash_of(key), now), expected);
                }
                prop_assert!(sessions.len() <= model.len());
            }
        }
    }

    #[test]
    fn a_full_table_forgets_one_for_each_new_one() {
        let mut sessions = Sessions::new(16, IDLE_MAX);
        let now = Instant::from_millis(1);
        let mut evicted = 0;
        for key in 1..=200u128 {
            let inserted = sessions.insert(key, hash_of(key), assignment(1), now);
            assert!(inserted.recorded, "{key}");
            evicted += usize::from(inserted.evicted);
            assert!(sessions.touch(key, hash_of(key), now).is_some());
            assert!(sessions.len() <= 16);
        }
        assert_eq!((sessions.len(), evicted), (16, 184));
        let alive = (1..=200).filter(|&key| sessions.touch(key, hash_of(key), now).is_some());
        assert_eq!(alive.count(), 16);
    }

    #[test]
    fn the_hand_clears_what_nobody_asks_for() {
        let mut sessions = Sessions::new(64, IDLE_MAX);
        let now = Instant::from_millis(1);
        (1..=64u128).for_each(|key| {
            sessions.insert(key, hash_of(key), assignment(1), now);
        });
        let later = now + IDLE_MAX;
        let mut expired = 0;
        for key in 1_001..=1_032u128 {
            expired += sessions.insert(key, hash_of(key), assignment(2), later).expired;
        }
        assert_eq!((expired, sessions.len()), (64, 32));
    }
}
