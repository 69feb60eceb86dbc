//! Where a tenant's words lie, and the trusted side's checked way to them.
//!
//! The trusted side lays the words out, alone or beside what else it shares with a tenant (rings, payload): a
//! [`TenantPlace`] says where, and is used on both sides: [`TenantSet::connect_over`](crate::TenantSet::connect_over),
//! [`Tenant::over`](crate::Tenant::over).

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

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

/// The tenants that one consumer looks at, by slot, and the epoll on which it sleeps.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) tenants: Vec<Option<Connected>>,
    /// Slots from here on are free.
    high: usize,
    pub(crate) epoll: OwnedFd,
}

impl Slots {
    pub(crate) fn new(tenants: usize) -> Result<Self, TenantError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(os("epoll_create1"))?;
        Ok(Self { tenants: (0..tenants).map(|_| None).collect(), high: 0, epoll })
    }

    /// Puts a tenant into a slot.
    ///
    /// # Errors
    /// [`TenantError::Full`] where the slot is taken or there is no such; `BadQueues`, `Region`, `Os`.
    pub(crate) fn insert(
        &mut self,
        slot: u32,
        place: TenantPlace,
        capacity: u32,
        wake: OwnedFd,
    ) -> Result<(), TenantError> {
        let index = slot as usize;
        if self.tenants.get(index).is_none_or(Option::is_some) {
            return Err(TenantError::Full);
        }
        place.check(capacity)?;
        self.watch(&wake)?;
        let valid = !0 >> (TENANT_QUEUES_MAX - place.queues);
        self.tenants[index] = Some(Connected { place, wake, valid, capacity, lies: 0 });
        self.high = self.high.max(index + 1);
        Ok(())
    }

    /// Takes the tenant out of a slot. False: there was none.
    pub(crate) fn remove(&mut self, slot: u32) -> bool {
        let taken = self.tenants.get_mut(slot as usize).and_then(Option::take);
        let Some(gone) = taken else { return false };
        // It was added, so it can be removed.
        let _ = epoll::delete(&self.epoll, &gone.wake);
        self.high = self.tenants.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        true
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Connected> {
        self.tenants.get(slot as usize)?.as_ref()
    }

    /// All tenants, with their slots.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &Connected)> {
        let all = self.tenants[..self.high].iter().enumerate();
        all.filter_map(|(slot, tenant)| Some((slot, tenant.as_ref()?)))
    }

    /// Has the epoll report an eventfd.
    ///
    /// Edge-triggered: a wake-up needs no read to be over. A tenant can clear the non-blocking flag of its
    /// eventfd, which is the same file as ours, and a read of it could then block for ever.
    pub(crate) fn watch(&self, wake: &OwnedFd) -> Result<(), TenantError> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        // The consumer ignores the number: a wake-up only makes it look.
        let data = epoll::EventData::new_u64(0);
        epoll::add(&self.epoll, wake, data, flags).map_err(os("epoll_ctl"))
    }

    /// Waits until an eventfd is readable or `timeout` has passed, and takes what the epoll reports: at most so many
    /// times [`EVENTS`] that nothing of the tenants' and the consumer's own eventfds is left. The records are on the
    /// stack, as they cannot be sent between threads.
    pub(crate) fn sleep(&self, timeout: Duration) {
        // What a timespec cannot hold is longer than any machine runs.
        let mut timeout = Timespec::try_from(timeout).ok();
        for _ in 0..=(self.high + 1) / EVENTS {
            let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
            // Nothing there is fine; so is an interruption, as the next sleep then ends at once.
            let Ok((events, _)) = epoll::wait(&self.epoll, &mut events[..], timeout.as_ref())
            else {
                return;
            };
            if events.len() < EVENTS {
                return;
            }
            timeout = Some(Timespec::default());
        }
    }
}

/// Events taken at a time.
const EVENTS: usize = 64;
