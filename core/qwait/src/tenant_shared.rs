//! Queues of untrusted tenants, served by several consumers: each queue by one of them at a time.
//!
//! ```
//! use qwait::{QueueId, Region, SharedTenantSet, Tenant, TenantPlace};
//! use std::os::fd::OwnedFd;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let set = SharedTenantSet::new(16)?;
//! let (mut one, mut two) = (set.consumer()?, set.consumer()?);
//! // Memory and eventfd of a tenant with two queues of at most 32 items; see `Tenant::over`.
//! let region = Region::create(4096)?;
//! let place = TenantPlace { region, ready: 0, idle: 128, doorbells: 256, stride: 128, queues: 2 };
//! let wake: OwnedFd = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK)?;
//! one.attach(3, place.clone(), 32, wake.try_clone()?)?;
//! two.attach(3, place.clone(), 32, wake.try_clone()?)?;
//! let tenant = Tenant::over(place, wake)?;
//! tenant.ring(1)?;
//! let queue = one.try_qwait().expect("rung");
//! assert_eq!(queue, QueueId::new(64 * 3 + 1));
//! assert_eq!(two.try_qwait(), None); // One owner at a time.
//! assert_eq!((one.verify(queue), one.reconsider(queue, 1)), (1, 0));
//! # Ok(()) }
//! ```
//!
//! The table of [`TenantSet`](crate::TenantSet)'s module holds here, too: a tenant writes nothing but
//! its own ready word and doorbells. Ownership stands in words that it cannot reach; the protocol, its
//! proof and its models are in `tenant_claims`.
//!
//! *Sleep.* A consumer that goes to sleep asks every tenant to ring aloud, then looks once more. A
//! tenant rings aloud once and wakes one sleeper at least; whoever is awake looks for the others' work,
//! and wakes one more where it finds more than it takes. So an idle word need be right only while all
//! consumers sleep.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use handshake::{ByExchange, One, Sleepers};

use rustix::event::{EventfdFlags, eventfd};

use crate::policy::ServicePolicy;
use crate::set::{MAX_CONSUMERS, QueueId};
use crate::tenant_claims::{Claims, withdraw_unless_asleep};
use crate::tenant_error::{TENANTS_MAX, TenantError, os};
use crate::tenant_place::{Slots, TenantPlace};
use crate::tenant_rounds::{Rounds, Words};

/// What the consumers of a set share. No tenant can reach any of it.
#[derive(Debug)]
struct Shared {
    /// By slot.
    claims: Box<[Claims]>,
    /// One bit for each consumer that sleeps or is about to.
    sleepers: Sleepers<AtomicU64, One, ByExchange>,
    /// By consumer: ends its sleep.
    wakes: Box<[OwnedFd]>,
    /// Consumers that were made.
    made: AtomicU64,
}

/// A set of tenants' queues with several consumers. Clones are the same set.
#[derive(Clone, Debug)]
pub struct SharedTenantSet {
    shared: Arc<Shared>,
}

impl SharedTenantSet {
    /// A set with room for so many tenants, in slots.
    ///
    /// # Errors
    /// [`TenantError::BadTenants`], [`TenantError::Os`].
    pub fn new(tenants: u32) -> Result<Self, TenantError> {
        if tenants == 0 || tenants > TENANTS_MAX {
            return Err(TenantError::BadTenants { tenants });
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = |_| eventfd(0, flags).map_err(os("eventfd"));
        Ok(Self {
            shared: Arc::new(Shared {
                claims: (0..tenants).map(|_| Claims::default()).collect(),
                sleepers: Sleepers::default(),
                wakes: (0..CONSUMERS_MAX).map(wake).collect::<Result<_, _>>()?,
                made: AtomicU64::new(0),
            }),
        })
    }

    /// One more consumer.
    ///
    /// # Errors
    /// [`TenantError::Full`] where there are too many, [`TenantError::Os`].
    pub fn consumer(&self) -> Result<SharedTenantConsumer, TenantError> {
        let number = self.shared.made.fetch_add(1, Ordering::Relaxed);
        let wake = self.shared.wakes.get(number as usize).ok_or(TenantError::Full)?;
        let tenants = self.shared.claims.len();
        let slots = Slots::new(tenants)?;
        slots.watch(wake)?;
        // Consumers begin their rounds apart.
        let start = (number as usize * tenants / CONSUMERS_MAX * 64) as u32;
        Ok(SharedTenantConsumer {
            words: Looks { shared: Arc::clone(&self.shared), slots, owned: vec![0; tenants] },
            number: number as u32,
            rounds: Rounds::new(ServicePolicy::RoundRobin, tenants as u32, start),
        })
    }

    /// Makes a slot as new, for the next tenant. Call it when every consumer has detached the last
    /// one, and before the first attaches the next.
    pub fn reset(&self, slot: u32) {
        if let Some(claims) = self.shared.claims.get(slot as usize) {
            claims.reset();
        }
    }
}

/// Most consumers of a set: those that a machine's cores make up, and a bound on descriptors.
const CONSUMERS_MAX: usize = 8;
const _: () = assert!(CONSUMERS_MAX <= MAX_CONSUMERS as usize);

/// What one consumer looks at, and what it owns.
#[derive(Debug)]
struct Looks {
    shared: Arc<Shared>,
    /// The others have their own.
    slots: Slots,
    /// By slot: the queues that this consumer owns.
    owned: Vec<u64>,
}

impl Words for Looks {
    #[inline]
    fn fold(&mut self, slot: u32) {
        if let Some(tenant) = &self.slots.tenants[slot as usize] {
            self.shared.claims[slot as usize].add(tenant.fold());
        }
    }

    #[inline]
    fn candidates(&self, slot: u32) -> u64 {
        // A slot that this consumer has not attached may be another's already.
        let Some(tenant) = &self.slots.tenants[slot as usize] else { return 0 };
        self.shared.claims[slot as usize].candidates() & tenant.valid
    }

    #[inline]
    fn take(&mut self, queue: u32) -> bool {
        let (slot, bit) = ((queue / 64) as usize, 1 << (queue % 64));
        let is_ours = self.shared.claims[slot].claim(bit);
        self.owned[slot] |= if is_ours { bit } else { 0 };
        is_ours
    }
}

/// One consumer of a [`SharedTenantSet`]. Queue `i` of the tenant in a slot has the number
/// `64 * slot + i`. Classes are served in strict priority, as in a [`TenantSet`](crate::TenantSet), and the
/// queues of a class in round robin, by each consumer with a cursor of its own. A consumer that has begun
/// a visit finishes it, whatever becomes ready meanwhile.
#[derive(Debug)]
pub struct SharedTenantConsumer {
    words: Looks,
    number: u32,
    rounds: Rounds,
}

impl SharedTenantConsumer {
    /// Begins to look at a tenant. Every consumer of the set attaches it, in the same slot, each with
    /// a copy of the tenant's eventfd, which is never read.
    ///
    /// # Errors
    /// [`TenantError::Full`] where this consumer has a tenant in that slot, or there is no such slot;
    /// `BadQueues`, `Region`, `Os`.
    pub fn attach(
        &mut self,
        slot: u32,
        place: TenantPlace,
        capacity: u32,
        wake: OwnedFd,
    ) -> Result<(), TenantError> {
        // (`EPOLLEXCLUSIVE` would spare the other sleepers; but it goes by who is in the call at that
        // moment.)
        self.words.slots.insert(slot, place, capacity, wake)?;
        self.rounds.insert(slot);
        Ok(())
    }

    /// Stops looking at a tenant. A queue of it that this consumer owns is given back.
    pub fn detach(&mut self, slot: u32) {
        if !self.words.slots.remove(slot) {
            return;
        }
        self.rounds.remove(slot);
        let mut mine = std::mem::take(&mut self.words.owned[slot as usize]);
        while mine != 0 {
            let bit = mine & mine.wrapping_neg();
            self.words.shared.claims[slot as usize].finish(bit, true);
            mine &= !bit;
        }
    }

    /// Sets a tenant's class for this consumer: each is told, as each searches for itself. A tenant begins
    /// in [`TENANT_CLASS_LOWEST`](crate::TENANT_CLASS_LOWEST).
    ///
    /// # Errors
    /// [`TenantError::BadClass`], [`TenantError::NoTenant`].
    pub fn set_class(&mut self, slot: u32, class: u8) -> Result<(), TenantError> {
        self.rounds.set_class(slot, class)
    }

    /// A tenant's class; `None` where this consumer has no tenant in the slot.
    pub fn class(&self, slot: u32) -> Option<u8> {
        self.rounds.class(slot)
    }

    /// `QWAIT` that does not block: the queue to be served next, which is this consumer's until it
    /// calls [`reconsider`](Self::reconsider) or [`reconsider_all`](Self::reconsider_all). For each class
    /// from the first on, folds one tenant's word, or all of them where nothing of that class is ready,
    /// before it goes to the next.
    #[inline]
    pub fn try_qwait(&mut self) -> Option<QueueId> {
        let queue = self.rounds.select(&mut self.words)?;
        // Read only while all are awake: the line stays in every cache.
        if self.words.shared.sleepers.notify(One) != 0 && self.rounds.any(&self.words) {
            self.wake_one();
        }
        Some(QueueId::new(queue))
    }

    #[cold]
    fn wake_one(&self) {
        let sleepers = &self.words.shared.sleepers;
        if let Some(number) = sleepers.claim_lowest(sleepers.asleep()) {
            let wake = &self.words.shared.wakes[number as usize];
            // Ours alone and non-blocking; full means readable, which is what is wanted.
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }

    /// The slot and bit of a queue that this consumer owns.
    #[inline]
    fn mine(&self, queue: QueueId) -> Option<(usize, u32)> {
        let (slot, index) = ((queue.get() / 64) as usize, queue.get() % 64);
        (self.words.owned.get(slot)? >> index & 1 == 1).then_some((slot, index))
    }

    /// `QWAIT-VERIFY`: how many items the tenant claims that a queue of this consumer has, at most the
    /// queue's capacity. Zero: end the visit with `reconsider(queue, 0)`.
    #[inline]
    pub fn verify(&mut self, queue: QueueId) -> u32 {
        let Some((slot, index)) = self.mine(queue) else { return 0 };
        self.words.slots.tenants[slot].as_mut().map_or(0, |tenant| tenant.claimed(index))
    }

    /// `QWAIT-RECONSIDER` after `items` were dequeued: ends the ownership. How many items the tenant
    /// claims are left.
    #[inline]
    pub fn reconsider(&mut self, queue: QueueId, items: u32) -> u32 {
        let Some((slot, index)) = self.mine(queue) else { return 0 };
        let tenant = self.words.slots.tenants[slot].as_mut();
        let left = tenant.map_or(0, |tenant| tenant.take(index, items));
        self.finish(slot, index, left > 0);
        left
    }

    /// Takes the whole count, whatever it says, and ends the ownership: for a queue that turned out to
    /// be empty under a count. What is enqueued later rings again.
    pub fn reconsider_all(&mut self, queue: QueueId) {
        let Some((slot, index)) = self.mine(queue) else { return };
        if let Some(tenant) = &self.words.slots.tenants[slot] {
            tenant.take_all(index);
        }
        self.finish(slot, index, false);
    }

    #[inline]
    fn finish(&mut self, slot: usize, index: u32, left: bool) {
        self.words.owned[slot] &= !(1 << index);
        let ready = self.words.shared.claims[slot].finish(1 << index, left);
        if ready && self.words.shared.sleepers.notify(One) != 0 {
            // This consumer may go on elsewhere for long.
            self.wake_one();
        }
    }

    fn set_mask(&self, queue: QueueId, masked: bool) {
        if let Some(claims) = self.words.shared.claims.get((queue.get() / 64) as usize) {
            claims.set_mask(1 << (queue.get() % 64), masked);
        }
    }

    /// `QWAIT-DISABLE`, for all consumers. One that owns the queue finishes its visit.
    pub fn disable(&self, queue: QueueId) {
        self.set_mask(queue, true);
    }

    /// `QWAIT-ENABLE`. This consumer is awake, and looks.
    pub fn enable(&self, queue: QueueId) {
        self.set_mask(queue, false);
    }

    /// How often the doorbells of the tenant in this slot said something impossible to this consumer.
    pub fn lies(&self, slot: u32) -> u64 {
        self.words.slots.get(slot).map_or(0, |tenant| tenant.lies)
    }

    /// The first half of going to sleep: tells every tenant to ring aloud, then looks once more.
    /// True: nothing is ready, and a ring makes [`as_fd`](Self::as_fd) readable.
    #[must_use = "where it is false there is work, and nothing will wake this consumer"]
    pub fn arm(&mut self) -> bool {
        let sleepers = &self.words.shared.sleepers;
        let is_quiet = sleepers.arm(1 << self.number, |One| self.announce()).is_quiet();
        if !is_quiet {
            self.withdraw();
        }
        is_quiet
    }

    /// Tells every tenant to ring aloud, and folds what they rang for before. Answers whether anything is ready.
    fn announce(&self) -> bool {
        let Looks { shared, slots, .. } = &self.words;
        for (slot, tenant) in slots.all() {
            tenant.announce();
            shared.claims[slot].add(tenant.fold_before_sleep());
            shared.claims[slot].exchange();
        }
        self.rounds.any(&self.words)
    }

    /// Takes the announcements to the tenants back, unless another of these consumers sleeps.
    fn withdraw(&self) {
        let Looks { shared, slots, .. } = &self.words;
        let withdraw = || slots.all().for_each(|(_, tenant)| tenant.withdraw());
        if withdraw_unless_asleep(&shared.sleepers, withdraw, || self.announce()) {
            self.wake_one();
        }
    }

    /// The second half: this consumer is awake.
    pub fn disarm(&mut self) {
        self.words.shared.sleepers.disarm(1 << self.number);
        self.withdraw();
    }

    /// Makes the descriptor unreadable again. Look for work after this, or arm.
    pub fn clear(&mut self) {
        self.sleep(Duration::ZERO);
    }

    /// Between [`arm`](Self::arm) and [`disarm`](Self::disarm): waits until somebody rings aloud, or
    /// `timeout` has passed; may return early.
    pub fn sleep(&mut self, timeout: Duration) {
        self.words.slots.sleep(timeout);
    }
}

impl Drop for SharedTenantConsumer {
    /// Gives back what it owns, and does not count as asleep.
    fn drop(&mut self) {
        (0..self.words.slots.tenants.len() as u32).for_each(|slot| self.detach(slot));
        self.words.shared.sleepers.disarm(1 << self.number);
    }
}

impl AsFd for SharedTenantConsumer {
    /// Readable when a tenant rang, or another consumer had too much, while this one was armed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.words.slots.epoll.as_fd()
    }
}

#[cfg(test)]
#[path = "tenant_shared_tests.rs"]
mod tests;
