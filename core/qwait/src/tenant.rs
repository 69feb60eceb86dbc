//! Queues of tenants that are not trusted: each has memory of its own, and can hurt only itself.
//!
//! ```
//! use qwait::{QueueId, Region, ServicePolicy, Tenant, TenantPlace, TenantSet};
//! use std::os::fd::OwnedFd;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut set = TenantSet::new(16, ServicePolicy::RoundRobin)?;
//! // Memory and eventfd of a tenant with two queues of at most 32 items. Both travel to the tenant's process.
//! let region = Region::create(4096)?;
//! let place = TenantPlace { region, ready: 0, idle: 128, doorbells: 256, stride: 128, queues: 2 };
//! let wake: OwnedFd = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK)?;
//! set.connect_over(3, place.clone(), 32, wake.try_clone()?)?;
//! let tenant = Tenant::over(place, wake)?;
//! tenant.ring(1)?;
//! let queue = set.try_qwait().expect("rung");
//! assert_eq!(set.locate(queue), Some((3, 1)));
//! assert_eq!(set.verify(queue), 1);
//! assert_eq!(set.reconsider(queue, 1), 0);
//! # Ok(()) }
//! ```
//!
//! A ready bitmap that tenants write would let one clear another's bit. So each has a ready word in
//! its own memory, which the trusted side *folds* into private words; this is the price of doing in
//! software what HyperPlane's monitoring set does by watching (a tenant there writes nothing but its
//! doorbell). A fold is one load for each tenant, not for each queue: one tenant's a visit, and all of
//! them when there is nothing else to do.
//!
//! | A tenant that … | gets | and the others |
//! | --- | --- | --- |
//! | rings without work | `verify` answers a count that its queue does not bear out: one visit a round, until the caller takes the count ([`TenantSet::reconsider_all`]) | wait for at most that visit |
//! | sets ready bits without ringing | `verify` answers 0 and the bit is gone: one visit a fold | the same |
//! | enqueues without ringing | its item waits for its next ring | nothing |
//! | clears its ready word or doorbell | its items wait for its next ring | nothing: the words are its own |
//! | writes an absurd count | the queue's capacity, as `verify` never answers more; counted as a lie | nothing |
//! | sets bits of queues that it has not | nothing: they are masked off | nothing |
//! | names a queue beyond its own | an error in its own process; there is no such word to write | nothing |
//! | clears its idle word | its own ring does not wake the trusted side | nothing: theirs do |
//! | writes or reads its eventfd without need | a spurious wake-up; or it swallows its own | a wake-up costs processor time, bounded by one fold each |
//! | writes whatever it likes | its class as before: that is nowhere in its memory | nothing |
//! | truncates the memory | refused: the size is sealed | nothing |
//!
//! *Classes.* A tenant has a class, 0 to 7, which the trusted side sets ([`TenantSet::set_class`]): a queue
//! is selected only while no queue of a lower number's class is ready (strict priority, HyperPlane §IV-B,
//! over tenants). Among the queues of one class the set's [`ServicePolicy`] holds. A tenant that always has
//! work starves the classes below its own, lies included: what it gets is for whoever raises it to weigh;
//! `disable` and rate limits take its queues out of the way.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::policy::ServicePolicy;
use crate::set::QueueId;
use crate::tenant_error::{TENANT_QUEUES_MAX, TENANTS_MAX, TenantError};
use crate::tenant_place::{Connected, Slots, TenantPlace};
use crate::tenant_rounds::{Rounds, Words};
use crate::tenant_words as words;

/// The tenant's side.
#[derive(Debug)]
pub struct Tenant {
    place: TenantPlace,
    wake: OwnedFd,
}

impl Tenant {
    /// A tenant whose words the trusted side laid out: the counterpart of [`TenantSet::connect_over`] and of
    /// [`SharedTenantConsumer::attach`](crate::SharedTenantConsumer). By `wake`, an eventfd, it wakes the trusted side;
    /// no other tenant has it.
    ///
    /// # Errors
    /// [`TenantError::BadQueues`], [`TenantError::Region`] where the words do not fit.
    pub fn over(place: TenantPlace, wake: OwnedFd) -> Result<Self, TenantError> {
        // Asked for once, so that ringing cannot fail by it.
        place.check(1)?;
        Ok(Self { place, wake })
    }

    /// Says that one item was enqueued. True where that made the queue ready.
    ///
    /// # Errors
    /// [`TenantError::NoSuchQueue`].
    #[inline]
    pub fn ring(&self, queue: u32) -> Result<bool, TenantError> {
        let no_such = || TenantError::NoSuchQueue { queue, queues: self.place.queues };
        let (ready, idle) = (self.place.ready(), self.place.idle());
        let (Some(doorbell), Some(ready), Some(idle)) = (self.place.doorbell(queue), ready, idle)
        else {
            return Err(no_such());
        };
        if !words::ring(doorbell, ready, 1 << queue) {
            return Ok(false);
        }
        if words::must_wake(idle) {
            // Full means readable, which is what is wanted.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
        Ok(true)
    }
}

/// What the search looks at.
#[derive(Debug)]
struct Folded {
    slots: Slots,
    /// Folded and not yet drained, one word a slot. Nobody else sees them.
    ready: Vec<u64>,
    mask: Vec<u64>,
    weights: Vec<u32>,
}

impl Words for Folded {
    #[inline]
    fn fold(&mut self, slot: u32) {
        let slot = slot as usize;
        if let Some(tenant) = &self.slots.tenants[slot] {
            self.ready[slot] |= tenant.fold();
        }
    }

    #[inline]
    fn candidates(&self, slot: u32) -> u64 {
        self.ready[slot as usize] & !self.mask[slot as usize]
    }

    #[inline]
    fn weight(&self, queue: u32) -> u32 {
        self.weights[queue as usize]
    }
}

/// The trusted side: an exclusive set over the queues of tenants. See the module's comment for what
/// they can and cannot do.
///
/// A tenant has a slot, and its queue `i` the number `64 * slot + i`. Fairness is by queue and has the
/// bound of [`ServicePolicy`] over all queues of the tenant's class, plus one fold: while higher classes
/// have no work, a ring is noticed within as many visits as the class has tenants.
#[derive(Debug)]
pub struct TenantSet {
    words: Folded,
    rounds: Rounds,
}

impl TenantSet {
    /// A set with room for so many tenants.
    ///
    /// # Errors
    /// [`TenantError::BadTenants`], [`TenantError::Os`].
    pub fn new(tenants: u32, policy: ServicePolicy) -> Result<Self, TenantError> {
        if tenants == 0 || tenants > TENANTS_MAX {
            return Err(TenantError::BadTenants { tenants });
        }
        let queues = tenants * TENANT_QUEUES_MAX;
        Ok(Self {
            words: Folded {
                slots: Slots::new(tenants as usize)?,
                ready: vec![0; tenants as usize],
                mask: vec![0; tenants as usize],
                weights: vec![1; queues as usize],
            },
            rounds: Rounds::new(policy, tenants, 0),
        })
    }

    /// `QWAIT-ADD` for a new tenant, in a slot that the caller chooses; its words lie where the caller says. `capacity` is
    /// the most items that one of its queues can hold. `wake` is the trusted side's copy of the tenant's eventfd; it is
    /// never read, so that a tenant which makes it blocking stalls no other. The tenant begins in the lowest class.
    ///
    /// # Errors
    /// [`TenantError::Full`] where the slot is taken or there is no such; `BadQueues`, `Region`, `Os`.
    pub fn connect_over(
        &mut self,
        slot: u32,
        place: TenantPlace,
        capacity: u32,
        wake: OwnedFd,
    ) -> Result<(), TenantError> {
        let (index, words) = (slot as usize, &mut self.words);
        words.slots.insert(slot, place, capacity, wake)?;
        (words.ready[index], words.mask[index]) = (0, 0);
        words.weights[index * 64..][..64].fill(1);
        self.rounds.insert(slot);
        Ok(())
    }

    /// `QWAIT-REMOVE` for all queues of a tenant. It keeps its memory, which is no longer looked at.
    pub fn disconnect(&mut self, slot: u32) {
        if self.words.slots.remove(slot) {
            self.words.ready[slot as usize] = 0;
            self.rounds.remove(slot);
        }
    }

    /// Sets a tenant's class: its queues are served only while no queue of a class with a lower number is
    /// ready. It begins in [`TENANT_CLASS_LOWEST`](crate::TENANT_CLASS_LOWEST).
    ///
    /// # Errors
    /// [`TenantError::BadClass`], [`TenantError::NoTenant`].
    pub fn set_class(&mut self, slot: u32, class: u8) -> Result<(), TenantError> {
        self.rounds.set_class(slot, class)
    }

    /// A tenant's class; `None` where the slot has no tenant.
    pub fn class(&self, slot: u32) -> Option<u8> {
        self.rounds.class(slot)
    }

    /// The slot of a queue's tenant and the tenant's number for it, if there is such a queue.
    pub fn locate(&self, queue: QueueId) -> Option<(u32, u32)> {
        let (slot, index) = (queue.get() / 64, queue.get() % 64);
        self.words.slots.get(slot)?.has(index).then_some((slot, index))
    }

    /// The tenant of a queue, the tenant's number for it, and the folded bits that it is among.
    #[inline]
    fn visit(&mut self, queue: QueueId) -> Option<(&mut Connected, u32, &mut u64)> {
        let (slot, index) = ((queue.get() / 64) as usize, queue.get() % 64);
        let tenant = self.words.slots.tenants.get_mut(slot)?.as_mut()?;
        tenant.has(index).then_some((tenant, index, &mut self.words.ready[slot]))
    }

    /// How often a tenant's doorbells said something impossible.
    pub fn lies(&self, slot: u32) -> u64 {
        self.words.slots.get(slot).map_or(0, |tenant| tenant.lies)
    }

    /// `QWAIT` that does not block: the queue to be served next. For each class from the first on, folds
    /// one tenant's word, or all of them where nothing of that class is ready, before it goes to the next.
    #[inline]
    pub fn try_qwait(&mut self) -> Option<QueueId> {
        self.rounds.select(&mut self.words).map(QueueId::new)
    }

    /// `QWAIT-VERIFY`: how many items the tenant claims, at most the queue's capacity. It is a claim:
    /// the queue itself may hold less. Zero: armed.
    pub fn verify(&mut self, queue: QueueId) -> u32 {
        let Some((tenant, index, ready)) = self.visit(queue) else { return 0 };
        let count = tenant.claimed(index);
        if count == 0 {
            *ready &= !(1 << index);
        }
        count
    }

    /// `QWAIT-RECONSIDER` after `items` were dequeued: how many the tenant claims are left.
    pub fn reconsider(&mut self, queue: QueueId, items: u32) -> u32 {
        let Some((tenant, index, ready)) = self.visit(queue) else { return 0 };
        let left = tenant.take(index, items);
        if left == 0 {
            *ready &= !(1 << index);
        }
        left
    }

    /// Takes the whole count, whatever it says, and arms the queue: for a queue that turned out to be
    /// empty under a count. Look into the queue once more *after* this: what is enqueued later rings.
    pub fn reconsider_all(&mut self, queue: QueueId) {
        if let Some((tenant, index, ready)) = self.visit(queue) {
            tenant.take_all(index);
            *ready &= !(1 << index);
        }
    }

    fn set_mask(&mut self, queue: QueueId, masked: bool) {
        if let Some((slot, index)) = self.locate(queue) {
            let word = &mut self.words.mask[slot as usize];
            *word = if masked { *word | 1 << index } else { *word & !(1 << index) };
        }
    }

    /// `QWAIT-DISABLE`. Nothing happens where there is no such queue.
    pub fn disable(&mut self, queue: QueueId) {
        self.set_mask(queue, true);
    }

    /// `QWAIT-ENABLE`. Nothing happens where there is no such queue.
    pub fn enable(&mut self, queue: QueueId) {
        self.set_mask(queue, false);
    }

    /// How many times in a row a queue is selected under weighted round robin; zero counts as one.
    pub fn set_weight(&mut self, queue: QueueId, weight: u32) {
        if let Some(place) = self.words.weights.get_mut(queue.index()) {
            *place = weight.max(1);
        }
    }

    /// The first half of going to sleep: tells every tenant to ring aloud, then looks once more.
    /// True: nothing is ready, and a ring makes [`as_fd`](Self::as_fd) readable.
    #[must_use = "where it is false there is work, and nothing will wake this consumer"]
    pub fn arm(&mut self) -> bool {
        let words = &mut self.words;
        for (slot, tenant) in words.slots.all() {
            tenant.announce();
            words.ready[slot] |= tenant.fold_before_sleep();
        }
        let work = self.rounds.any(&self.words);
        if work {
            self.disarm();
        }
        !work
    }

    /// The second half: tenants need not ring aloud any more.
    pub fn disarm(&mut self) {
        self.words.slots.all().for_each(|(_, tenant)| tenant.withdraw());
    }

    /// Makes the descriptor unreadable again. Look for work after this, or arm. One system call,
    /// however many tenants rang aloud; no tenant's descriptor is read.
    pub fn clear(&mut self) {
        self.sleep(Duration::ZERO);
    }

    /// Between [`arm`](Self::arm) and [`disarm`](Self::disarm): waits until a tenant rings aloud, or
    /// `timeout` has passed; may return early.
    pub fn sleep(&mut self, timeout: Duration) {
        self.words.slots.sleep(timeout);
    }

    /// `QWAIT`: waits until a queue is ready, or `timeout` has passed. Tenants can wake it without
    /// need, so it may also give up early.
    pub fn qwait_timeout(&mut self, timeout: Duration) -> Option<QueueId> {
        if let Some(queue) = self.try_qwait() {
            return Some(queue);
        }
        if self.arm() {
            self.sleep(timeout);
            self.disarm();
            self.clear();
        }
        self.try_qwait()
    }
}

impl AsFd for TenantSet {
    /// Readable when a tenant rang while this side was armed: for somebody else's poll loop.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.words.slots.epoll.as_fd()
    }
}

#[cfg(test)]
#[path = "tenant_tests.rs"]
mod tests;
