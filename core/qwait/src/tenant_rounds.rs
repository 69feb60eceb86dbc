//! In which order tenants' queues are selected: strict priority over classes of tenants, and the set's
//! policy among the queues of a class.
//!
//! ```text
//! for each class that has tenants, the highest first:
//!     fold the word of one of its tenants, in turn
//!     the first ready and enabled queue at or after the class's cursor
//!     none: fold the words of all its tenants, and search once more
//! ```
//!
//! So a lower class is served only after a look at every word of all higher ones, made in the same
//! visit: the order is exact, and costs a visit of a lower class one load for each tenant above it.
//! Nothing here lies in memory that a tenant can reach, and no word is added to the protocol between
//! tenants and trusted side; a class is a matter of the trusted side's search alone.

use crate::policy::{Arbiter, ServicePolicy};
use crate::tenant_error::{TENANT_CLASS_LOWEST, TENANT_CLASSES, TenantError};

/// What a search looks at. Slots are those of the set.
pub(crate) trait Words {
    /// Takes the tenant's ready word into ours.
    fn fold(&mut self, slot: u32);
    /// The queues of a slot that could be selected.
    fn candidates(&self, slot: u32) -> u64;
    /// How many times in a row a queue may be selected.
    fn weight(&self, _queue: u32) -> u32 {
        1
    }
    /// Makes a selected queue this consumer's. False: another consumer was faster.
    fn take(&mut self, _queue: u32) -> bool {
        true
    }
}

/// A class.
#[derive(Debug)]
struct Round {
    /// Slots of its tenants, rising.
    slots: Vec<u32>,
    arbiter: Arbiter,
    /// The first of `slots` at or after the cursor's; as many as there are where it is beyond them all.
    at: usize,
    /// The slot whose word is folded next, or the first one after it; and its place, as `at`.
    fold_from: u32,
    fold_at: usize,
}

impl Round {
    /// After a change of `slots`.
    fn place(&mut self) {
        let cursor = self.arbiter.cursor / 64;
        self.at = self.slots.partition_point(|&slot| slot < cursor);
        self.fold_at = self.slots.partition_point(|&slot| slot < self.fold_from);
    }

    #[inline]
    fn fold_one(&mut self, words: &mut impl Words) {
        let index = if self.fold_at < self.slots.len() { self.fold_at } else { 0 };
        let Some(&slot) = self.slots.get(index) else { return };
        words.fold(slot);
        (self.fold_from, self.fold_at) = (slot + 1, index + 1);
    }

    /// The first candidate at or after the cursor: the place of its slot, and its number.
    #[inline]
    fn next(&self, words: &impl Words) -> Option<(usize, u32)> {
        let (slots, cursor) = (&self.slots[..], self.arbiter.cursor);
        let find = |index: usize, keep: u64| {
            let slot = *slots.get(index)?;
            let word = words.candidates(slot) & keep;
            (word != 0).then(|| (index, slot * 64 + word.trailing_zeros()))
        };
        // The cursor may stand in the middle of a slot, whose other part then comes last.
        let inside = slots.get(self.at).is_some_and(|&slot| slot == cursor / 64);
        let upper = if inside { !0 << (cursor % 64) } else { !0 };
        find(self.at, upper)
            .or_else(|| {
                let mut round = (self.at + 1..slots.len()).chain(0..self.at);
                round.find_map(|index| find(index, !0))
            })
            .or_else(|| find(self.at, !upper))
    }

    /// The next candidate that becomes this consumer's. Each turn that fails, another consumer took one;
    /// there are at most as many turns as queues, however tenants change their words.
    #[inline]
    fn pick(&mut self, words: &mut impl Words) -> Option<u32> {
        for _ in 0..self.slots.len() * 64 {
            let (index, queue) = self.next(words)?;
            self.arbiter.grant(queue, || words.weight(queue));
            let (slot, start) = (queue / 64, self.arbiter.cursor / 64);
            self.at = match start {
                // Its last queue: on to the next slot, or round the end of all.
                0 if slot != 0 => 0,
                start if start == slot => index,
                _ => index + 1,
            };
            if words.take(queue) {
                return Some(queue);
            }
        }
        None
    }
}

/// All classes of a set, from one consumer's point of view.
#[derive(Debug)]
pub(crate) struct Rounds {
    /// By class.
    rounds: [Round; TENANT_CLASSES as usize],
    /// By slot; what it says of a slot without a tenant does not matter.
    class_of: Vec<u8>,
    /// One bit for each class with tenants.
    used: u8,
}

impl Rounds {
    /// No tenants yet, room for so many. `start`: the queue at which the first search begins, so that
    /// several consumers need not begin at one place.
    pub(crate) fn new(policy: ServicePolicy, tenants: u32, start: u32) -> Self {
        let round = |_| {
            let arbiter = Arbiter::new(policy, tenants * 64, start);
            let mut round = Round { slots: Vec::new(), arbiter, at: 0, fold_from: 0, fold_at: 0 };
            // So that tenants come and go without an allocation.
            round.slots.reserve_exact(tenants as usize);
            round
        };
        Self {
            rounds: std::array::from_fn(round),
            class_of: vec![TENANT_CLASS_LOWEST; tenants as usize],
            used: 0,
        }
    }

    /// A tenant comes, in the lowest class. Its slot is free and inside.
    pub(crate) fn insert(&mut self, slot: u32) {
        self.class_of[slot as usize] = TENANT_CLASS_LOWEST;
        self.change(slot, TENANT_CLASS_LOWEST, true);
    }

    /// A tenant goes.
    pub(crate) fn remove(&mut self, slot: u32) {
        self.change(slot, self.class_of[slot as usize], false);
    }

    /// A tenant's class; `None` where the slot has no tenant.
    pub(crate) fn class(&self, slot: u32) -> Option<u8> {
        let class = *self.class_of.get(slot as usize)?;
        self.rounds[class as usize].slots.binary_search(&slot).is_ok().then_some(class)
    }

    /// Moves a tenant to a class.
    ///
    /// # Errors
    /// [`TenantError::BadClass`], [`TenantError::NoTenant`].
    pub(crate) fn set_class(&mut self, slot: u32, class: u8) -> Result<(), TenantError> {
        if class >= TENANT_CLASSES {
            return Err(TenantError::BadClass { class });
        }
        let before = self.class(slot).ok_or(TenantError::NoTenant { slot })?;
        self.class_of[slot as usize] = class;
        self.change(slot, before, false);
        self.change(slot, class, true);
        Ok(())
    }

    fn change(&mut self, slot: u32, class: u8, is_there: bool) {
        let round = &mut self.rounds[class as usize];
        match (round.slots.binary_search(&slot), is_there) {
            (Ok(index), false) => _ = round.slots.remove(index),
            (Err(index), true) => round.slots.insert(index, slot),
            _ => {}
        }
        round.place();
        let bit = 1 << class;
        self.used = if round.slots.is_empty() { self.used & !bit } else { self.used | bit };
    }

    /// The queue to be served next. See the module's comment.
    #[inline]
    pub(crate) fn select(&mut self, words: &mut impl Words) -> Option<u32> {
        let mut left = self.used;
        while left != 0 {
            let round = &mut self.rounds[left.trailing_zeros() as usize];
            left &= left - 1;
            round.fold_one(words);
            if let Some(queue) = round.pick(words) {
                return Some(queue);
            }
            round.slots.iter().for_each(|&slot| words.fold(slot));
            if let Some(queue) = round.pick(words) {
                return Some(queue);
            }
        }
        None
    }

    /// Whether there is a candidate, without a fold.
    #[inline]
    pub(crate) fn any(&self, words: &impl Words) -> bool {
        let mut slots = self.rounds.iter().flat_map(|round| &round.slots);
        slots.any(|&slot| words.candidates(slot) != 0)
    }
}

#[cfg(test)]
#[path = "tenant_rounds_tests.rs"]
mod tests;
