//! The reference model: what a ready set must do, one bit at a time, with no concurrency at all.
//!
//! ```
//! use qwait::{ServicePolicy, model::ReadySet};
//! let mut set = ReadySet::new(4, ServicePolicy::WeightedRoundRobin);
//! set.set_weight(1, 2);
//! set.activate(1);
//! set.activate(3);
//! let order: Vec<_> = (0..4).map(|_| set.select()).collect();
//! assert_eq!(order, [Some(1), Some(1), Some(3), Some(1)]);
//! ```
//!
//! [`ReadySet`] is the hardware's ready set (HyperPlane §IV-B, Figure 6): ready bits, mask bits, the
//! current priority, and the weight register. [`Queues`] adds the doorbells and the operations of
//! Algorithm 1 in their two forms; [`TenantQueues`] is the set over tenants, with their classes. All are deliberately naive, search bit by bit, and share no code
//! with the library that is tested against them.

mod tenants;

use alloc::vec;
use alloc::vec::Vec;

pub use self::tenants::TenantQueues;
use crate::{MAX_QUEUES, ServicePolicy};

/// Ready bits, mask bits and an arbiter: `select` is the `QWAIT` of the hardware.
///
/// Queue numbers at or above the capacity are ignored by every operation and never selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadySet {
    ready: Vec<u64>,
    mask: Vec<u64>,
    weights: Vec<u32>,
    policy: ServicePolicy,
    /// The queue with the highest priority: the hardware's one-hot "current priority".
    cursor: u32,
    /// Services that the queue at the cursor has left before the cursor moves on: the hardware's
    /// weight register. Zero: load it when a queue is selected.
    credit: u32,
    capacity: u32,
}

impl ReadySet {
    /// An empty set for `capacity` queues (1 to 65,536; other values are brought into that range),
    /// each of weight 1 and enabled.
    pub fn new(capacity: u32, policy: ServicePolicy) -> Self {
        let capacity = capacity.clamp(1, MAX_QUEUES);
        let words = capacity.div_ceil(64) as usize;
        Self {
            ready: vec![0; words],
            mask: vec![0; words],
            weights: vec![1; capacity as usize],
            policy,
            cursor: 0,
            credit: 0,
            capacity,
        }
    }

    /// How many queues the set is for.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The queue with the highest priority at the next selection.
    pub fn cursor(&self) -> u32 {
        self.cursor
    }

    /// Services left to the queue at the cursor; zero where the weight is yet to be loaded.
    pub fn credit(&self) -> u32 {
        self.credit
    }

    fn change(words: &mut [u64], capacity: u32, queue: u32, to: bool) {
        if queue < capacity {
            let bit = 1 << (queue % 64);
            let word = &mut words[(queue / 64) as usize];
            *word = if to { *word | bit } else { *word & !bit };
        }
    }

    fn bit(words: &[u64], queue: u32) -> bool {
        words.get((queue / 64) as usize).is_some_and(|word| word >> (queue % 64) & 1 == 1)
    }

    /// Sets the ready bit.
    pub fn activate(&mut self, queue: u32) {
        Self::change(&mut self.ready, self.capacity, queue, true);
    }

    /// Clears the ready bit.
    pub fn deactivate(&mut self, queue: u32) {
        Self::change(&mut self.ready, self.capacity, queue, false);
    }

    /// Whether the ready bit is set.
    pub fn is_ready(&self, queue: u32) -> bool {
        Self::bit(&self.ready, queue)
    }

    /// `QWAIT-DISABLE`: the queue is not selected until it is enabled, ready or not.
    pub fn disable(&mut self, queue: u32) {
        Self::change(&mut self.mask, self.capacity, queue, true);
    }

    /// `QWAIT-ENABLE`.
    pub fn enable(&mut self, queue: u32) {
        Self::change(&mut self.mask, self.capacity, queue, false);
    }

    /// Whether the queue is disabled.
    pub fn is_disabled(&self, queue: u32) -> bool {
        Self::bit(&self.mask, queue)
    }

    /// Sets how many times in a row the queue may be selected; zero counts as one. Takes effect
    /// when the weight register is next loaded.
    pub fn set_weight(&mut self, queue: u32, weight: u32) {
        if let Some(slot) = self.weights.get_mut(queue as usize) {
            *slot = weight.max(1);
        }
    }

    /// The first ready and enabled queue at or after the cursor, in circular order.
    pub fn peek(&self) -> Option<u32> {
        let start = if self.policy == ServicePolicy::StrictPriority { 0 } else { self.cursor };
        (0..self.capacity)
            .map(|step| (start + step) % self.capacity)
            .find(|&queue| self.is_ready(queue) && !self.is_disabled(queue))
    }

    /// As [`peek`](Self::peek), and moves the cursor as the policy says. The ready bit stays.
    pub fn select(&mut self) -> Option<u32> {
        let selected = self.peek()?;
        match self.policy {
            ServicePolicy::StrictPriority => {}
            ServicePolicy::RoundRobin => self.cursor = (selected + 1) % self.capacity,
            ServicePolicy::WeightedRoundRobin => {
                let holds_priority = selected == self.cursor && self.credit > 0;
                let loaded =
                    if holds_priority { self.credit } else { self.weights[selected as usize] };
                self.credit = loaded - 1;
                self.cursor =
                    if self.credit > 0 { selected } else { (selected + 1) % self.capacity };
            }
        }
        Some(selected)
    }
}

/// Which of the two protocols [`Queues`] follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One consumer: the ready bit stays set while the queue has work (lazy clear).
    Exclusive,
    /// Several consumers: selecting a queue clears its bit and makes the consumer its owner.
    Shared,
}

/// Doorbells over a [`ReadySet`]: the operations of HyperPlane's Algorithm 1, by one consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queues {
    set: ReadySet,
    form: Form,
    counts: Vec<u32>,
    added: Vec<bool>,
    owned: Vec<bool>,
}

impl Queues {
    /// No queues yet, room for `capacity` (as [`ReadySet::new`]).
    pub fn new(capacity: u32, policy: ServicePolicy, form: Form) -> Self {
        let set = ReadySet::new(capacity, policy);
        let len = set.capacity() as usize;
        Self { set, form, counts: vec![0; len], added: vec![false; len], owned: vec![false; len] }
    }

    /// The ready set below.
    pub fn set(&self) -> &ReadySet {
        &self.set
    }

    /// The ready set below, for masks and weights.
    pub fn set_mut(&mut self) -> &mut ReadySet {
        &mut self.set
    }

    /// What the queue's doorbell says.
    pub fn count(&self, queue: u32) -> u32 {
        self.counts.get(queue as usize).copied().unwrap_or(0)
    }

    /// `QWAIT-ADD` with a doorbell that says zero. False where it is there already. A new queue is
    /// activated once, so that work which came before it is noticed.
    pub fn add(&mut self, queue: u32) -> bool {
        let Some(added) = self.added.get_mut(queue as usize) else { return false };
        if core::mem::replace(added, true) {
            return false;
        }
        self.counts[queue as usize] = 0;
        self.set.activate(queue);
        true
    }

    /// `QWAIT-REMOVE`. False where it was not there. A ready bit that is set stays, and is taken
    /// away when a selection meets it.
    pub fn remove(&mut self, queue: u32) -> bool {
        if let Some(owned) = self.owned.get_mut(queue as usize) {
            *owned = false;
        }
        self.added.get_mut(queue as usize).is_some_and(|added| core::mem::replace(added, false))
    }

    /// A producer's ring for `items` items. True where it made the queue ready.
    pub fn ring(&mut self, queue: u32, items: u32) -> bool {
        let Some(count) = self.counts.get_mut(queue as usize) else { return false };
        let edge = *count == 0 && items > 0;
        *count += items;
        if edge {
            self.set.activate(queue);
        }
        edge
    }

    /// `QWAIT` that does not block.
    pub fn try_qwait(&mut self) -> Option<u32> {
        loop {
            let queue = self.set.peek()?;
            let index = queue as usize;
            match self.form {
                Form::Exclusive if self.added[index] => return self.set.select(),
                Form::Exclusive => self.set.deactivate(queue),
                Form::Shared => {
                    self.set.select();
                    self.set.deactivate(queue);
                    if self.added[index] && self.counts[index] > 0 && !self.owned[index] {
                        self.owned[index] = true;
                        return Some(queue);
                    }
                }
            }
        }
    }

    /// `QWAIT-VERIFY`: what the doorbell says; where that is nothing, the queue is armed.
    pub fn verify(&mut self, queue: u32) -> u32 {
        let index = queue as usize;
        if !self.added.get(index).copied().unwrap_or(false) {
            return 0;
        }
        let count = self.counts[index];
        if count == 0 && self.form == Form::Exclusive {
            self.set.deactivate(queue);
        }
        if self.form == Form::Shared && !self.owned[index] { 0 } else { count }
    }

    /// `QWAIT-RECONSIDER` after taking `items`: what is left; where that is nothing, the queue is
    /// armed, else active.
    pub fn reconsider(&mut self, queue: u32, items: u32) -> u32 {
        let index = queue as usize;
        if !self.added.get(index).copied().unwrap_or(false) {
            return 0;
        }
        if self.form == Form::Shared && !core::mem::replace(&mut self.owned[index], false) {
            return 0;
        }
        self.counts[index] = self.counts[index].saturating_sub(items);
        match (self.counts[index], self.form) {
            (0, Form::Exclusive) => self.set.deactivate(queue),
            (0, Form::Shared) | (_, Form::Exclusive) => {}
            (_, Form::Shared) => self.set.activate(queue),
        }
        self.counts[index]
    }
}
