//! The reference model of a set over tenants: classes, folds and the policy, one queue at a time.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::ServicePolicy;

/// Queues of a slot.
const SLOT: u32 = 64;

/// A tenant.
#[derive(Clone, Debug)]
struct Place {
    class: u8,
    queues: u32,
    /// What the tenant's ready word says of each queue.
    told: [bool; SLOT as usize],
    /// What the trusted side has folded.
    ready: [bool; SLOT as usize],
    masked: [bool; SLOT as usize],
    weights: [u32; SLOT as usize],
    counts: [u32; SLOT as usize],
}

/// A class's registers.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// The slot whose word is folded next, or the first of its class after it.
    fold_from: u32,
    cursor: u32,
    credit: u32,
}

/// What [`TenantSet`](crate::TenantSet) must do. Queue `i` of the tenant in slot `s` has the number
/// `64 * s + i`; class 0 is served first. Deliberately naive: it shares no code with the library.
///
/// ```
/// use qwait::{ServicePolicy, model::TenantQueues};
/// let mut model = TenantQueues::new(4, ServicePolicy::RoundRobin);
/// (0..2).for_each(|slot| model.connect(slot, 2));
/// model.set_class(0, 3);
/// model.set_class(1, 2);
/// model.ring(0);
/// model.ring(64);
/// assert_eq!((model.select(), model.select()), (Some(64), Some(64)));
/// model.reconsider(64, 1);
/// assert_eq!(model.select(), Some(0));
/// ```
#[derive(Clone, Debug)]
pub struct TenantQueues {
    policy: ServicePolicy,
    places: Vec<Option<Place>>,
    turns: BTreeMap<u8, Turn>,
}

impl TenantQueues {
    /// No tenants yet, room for so many.
    pub fn new(tenants: u32, policy: ServicePolicy) -> Self {
        let places = (0..tenants).map(|_| None).collect();
        Self { policy, places, turns: BTreeMap::new() }
    }

    fn place(&mut self, queue: u32) -> Option<(&mut Place, usize)> {
        let place = self.places.get_mut((queue / SLOT) as usize)?.as_mut()?;
        (queue % SLOT < place.queues).then_some((place, (queue % SLOT) as usize))
    }

    /// A tenant with so many queues, in the lowest class.
    pub fn connect(&mut self, slot: u32, queues: u32) {
        if let Some(place) = self.places.get_mut(slot as usize) {
            let none = [false; SLOT as usize];
            *place = Some(Place {
                class: 7,
                queues,
                told: none,
                ready: none,
                masked: none,
                weights: [1; SLOT as usize],
                counts: [0; SLOT as usize],
            });
        }
    }

    /// It goes.
    pub fn disconnect(&mut self, slot: u32) {
        if let Some(place) = self.places.get_mut(slot as usize) {
            *place = None;
        }
    }

    /// Its class changes.
    pub fn set_class(&mut self, slot: u32, class: u8) {
        if let Some(Some(place)) = self.places.get_mut(slot as usize) {
            place.class = class;
        }
    }

    /// The tenant rings.
    pub fn ring(&mut self, queue: u32) {
        if let Some((place, index)) = self.place(queue) {
            place.counts[index] += 1;
            place.told[index] |= place.counts[index] == 1;
        }
    }

    /// The tenant lies: it sets the ready bit alone.
    pub fn lie(&mut self, queue: u32) {
        if let Some((place, index)) = self.place(queue) {
            place.told[index] = true;
        }
    }

    /// Disables or enables a queue.
    pub fn set_mask(&mut self, queue: u32, masked: bool) {
        if let Some((place, index)) = self.place(queue) {
            place.masked[index] = masked;
        }
    }

    /// How many times in a row a queue is selected under weighted round robin.
    pub fn set_weight(&mut self, queue: u32, weight: u32) {
        if let Some((place, index)) = self.place(queue) {
            place.weights[index] = weight.max(1);
        }
    }

    fn slots_of(&self, class: u8) -> Vec<u32> {
        let of = |slot: &u32| {
            self.places[*slot as usize].as_ref().is_some_and(|place| place.class == class)
        };
        (0..self.places.len() as u32).filter(of).collect()
    }

    fn fold(&mut self, slot: u32) {
        if let Some(Some(place)) = self.places.get_mut(slot as usize) {
            for (told, ready) in place.told.iter_mut().zip(&mut place.ready) {
                *ready |= core::mem::take(told);
            }
        }
    }

    /// The first ready and enabled queue of a class, from its cursor on.
    fn find(&mut self, class: u8) -> Option<u32> {
        let capacity = self.places.len() as u32 * SLOT;
        let cursor = self.turns.get(&class).map_or(0, |turn| turn.cursor);
        let round = (0..capacity).map(|step| (cursor + step) % capacity);
        round.into_iter().find(|&queue| {
            self.place(queue).is_some_and(|(place, index)| {
                place.class == class && place.ready[index] && !place.masked[index]
            })
        })
    }

    /// The queue to be served next, and moves the registers.
    pub fn select(&mut self) -> Option<u32> {
        for class in 0..=u8::MAX {
            let slots = self.slots_of(class);
            let Some(&first) = slots.first() else { continue };
            let turn = self.turns.entry(class).or_default();
            let folded = slots.iter().copied().find(|&slot| slot >= turn.fold_from);
            let folded = folded.unwrap_or(first);
            turn.fold_from = folded + 1;
            self.fold(folded);
            let mut found = self.find(class);
            if found.is_none() {
                slots.iter().for_each(|&slot| self.fold(slot));
                found = self.find(class);
            }
            if let Some(queue) = found {
                self.grant(class, queue);
                return Some(queue);
            }
        }
        None
    }

    fn grant(&mut self, class: u8, queue: u32) {
        let after = (queue + 1) % (self.places.len() as u32 * SLOT);
        let weight = self.place(queue).map_or(1, |(place, index)| place.weights[index]);
        let turn = self.turns.entry(class).or_default();
        match self.policy {
            ServicePolicy::StrictPriority => {}
            ServicePolicy::RoundRobin => turn.cursor = after,
            ServicePolicy::WeightedRoundRobin => {
                let holds = queue == turn.cursor && turn.credit > 0;
                turn.credit = if holds { turn.credit } else { weight } - 1;
                turn.cursor = if turn.credit > 0 { queue } else { after };
            }
        }
    }

    /// `QWAIT-VERIFY`: what the doorbell says; where that is nothing, the queue is armed.
    pub fn verify(&mut self, queue: u32) -> u32 {
        self.reconsider(queue, 0)
    }

    /// `QWAIT-RECONSIDER` after taking `items`: what is left; where that is nothing, the queue is armed.
    pub fn reconsider(&mut self, queue: u32, items: u32) -> u32 {
        let Some((place, index)) = self.place(queue) else { return 0 };
        place.counts[index] = place.counts[index].saturating_sub(items);
        place.ready[index] &= place.counts[index] > 0;
        place.counts[index]
    }
}
