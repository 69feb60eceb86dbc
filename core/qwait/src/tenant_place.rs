//! Where a tenant's words lie, and the trusted side's checked way to them.
//!
//! [`TenantSet::connect`](crate::TenantSet::connect) makes memory for these words alone. Who shares
//! more than doorbells with a tenant (rings, payload) lays them out itself: a [`TenantPlace`] says
//! where, and is used on both sides: `TenantSet::connect_over`, [`Tenant::over`](crate::Tenant::over).

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::event::epoll;

use crate::tenant_error::{TENANT_QUEUES_MAX, TenantError, os};
use crate::tenant_words as words;
use crate::unsafe_region::{Region, RegionError};

/// Where a tenant's words lie in a shared region. All offsets are in bytes. What different sides
/// write should be 128 bytes apart.
#[derive(Clone, Debug)]
pub struct TenantPlace {
    /// The memory.
    pub region: Arc<Region>,
    /// The ready word: 64 bits, aligned to 8.
    pub ready: usize,
    /// The idle word: 32 bits, aligned to 4.
    pub idle: usize,
    /// The first queue's doorbell: 32 bits, aligned to 4.
    pub doorbells: usize,
    /// From one doorbell to the next; a multiple of 4. A page gives each a page.
    pub stride: usize,
    /// How many queues: 1 to 64.
    pub queues: u32,
}

impl TenantPlace {
    /// Whether all words lie inside the region and are aligned.
    ///
    /// # Errors
    /// [`TenantError::BadQueues`], [`TenantError::Region`].
    pub(crate) fn check(&self, capacity: u32) -> Result<(), TenantError> {
        let Self { queues, doorbells, stride, .. } = *self;
        if queues == 0 || queues > TENANT_QUEUES_MAX || capacity == 0 {
            return Err(TenantError::BadQueues { queues, capacity });
        }
        let last =
            (queues as usize - 1).checked_mul(stride).and_then(|at| at.checked_add(doorbells));
        // The first and the last: a stride that is no multiple of four shows at one of the others,
        // where it would be answered as a doorbell that is not there.
        let fits = last.is_some_and(|last| self.region.word32(last).is_some())
            && self.region.word32(doorbells).is_some()
            && (stride.is_multiple_of(4) && stride > 0 || queues == 1);
        if fits && self.ready().is_some() && self.idle().is_some() {
            return Ok(());
        }
        let len = self.region.len_bytes();
        Err(RegionError::OutOfRange { offset: doorbells, stride, count: queues as usize, len }
            .into())
    }

    #[inline]
    pub(crate) fn ready(&self) -> Option<&AtomicU64> {
        self.region.word64(self.ready)
    }

    #[inline]
    pub(crate) fn idle(&self) -> Option<&AtomicU32> {
        self.region.word32(self.idle)
    }

    /// The doorbell of a queue; `None` where there is no such queue.
    #[inline]
    pub(crate) fn doorbell(&self, queue: u32) -> Option<&AtomicU32> {
        (queue < self.queues)
            .then(|| self.region.word32(self.doorbells + self.stride * queue as usize))
            .flatten()
    }
}

/// What the trusted side knows of a tenant. Nothing in here was written by it.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) place: TenantPlace,
    pub(crate) wake: OwnedFd,
    /// One bit for each of its queues.
    pub(crate) valid: u64,
    pub(crate) capacity: u32,
    pub(crate) lies: u64,
}

impl Connected {
    pub(crate) fn new(
        place: TenantPlace,
        capacity: u32,
        wake: OwnedFd,
    ) -> Result<Self, TenantError> {
        place.check(capacity)?;
        let valid = !0 >> (TENANT_QUEUES_MAX - place.queues);
        Ok(Self { place, wake, valid, capacity, lies: 0 })
    }

    /// Has an epoll (`by`) tell of the tenant's eventfd, under this number.
    ///
    /// Edge-triggered: a wake-up needs no read to be over. A tenant can clear the non-blocking flag of its
    /// eventfd, which is the same file as ours, and a read of it could then block for ever.
    pub(crate) fn watch(&self, by: &OwnedFd, number: u64) -> Result<(), TenantError> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(number);
        epoll::add(by, &self.wake, data, flags).map_err(os("epoll_ctl"))
    }

    #[inline]
    pub(crate) fn has(&self, index: u32) -> bool {
        index < self.place.queues
    }

    /// The tenant's new ready bits, of queues that it has.
    #[inline]
    pub(crate) fn fold(&self) -> u64 {
        self.place.ready().map_or(0, |ready| words::fold(ready, self.valid))
    }

    /// The same, after [`announce`](Self::announce).
    pub(crate) fn fold_before_sleep(&self) -> u64 {
        self.place.ready().map_or(0, |ready| words::fold_before_sleep(ready, self.valid))
    }

    /// Tells the tenant to ring aloud.
    pub(crate) fn announce(&self) {
        if let Some(idle) = self.place.idle() {
            words::announce(idle);
        }
    }

    /// Tells the tenant that it need not ring aloud any more.
    pub(crate) fn withdraw(&self) {
        if let Some(idle) = self.place.idle() {
            words::withdraw(idle);
        }
    }

    /// How many items the tenant claims, at most the queue's capacity.
    #[inline]
    pub(crate) fn claimed(&mut self, index: u32) -> u32 {
        let order = std::sync::atomic::Ordering::Acquire;
        let count = self.place.doorbell(index).map_or(0, |doorbell| doorbell.load(order));
        self.lies += u64::from(count > self.capacity);
        count.min(self.capacity)
    }

    /// Takes items off a doorbell: how many the tenant claims are left.
    #[inline]
    pub(crate) fn take(&mut self, index: u32, items: u32) -> u32 {
        let capacity = self.capacity;
        let taken =
            self.place.doorbell(index).map(|doorbell| words::take(doorbell, items, capacity));
        let Some(words::Taken { left, lied }) = taken else { return 0 };
        self.lies += u64::from(lied);
        left
    }

    /// Takes the whole count, whatever it says.
    pub(crate) fn take_all(&self, index: u32) {
        if let Some(doorbell) = self.place.doorbell(index) {
            doorbell.swap(0, std::sync::atomic::Ordering::AcqRel);
        }
    }
}
