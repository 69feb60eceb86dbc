//! Doorbells, and references to them wherever they lie.
//!
//! ```
//! use std::sync::Arc;
//! use qwait::{Doorbell, DoorbellRef};
//! struct Channel { doorbell: Doorbell, /* slots … */ }
//! let channel = Arc::new(Channel { doorbell: Doorbell::new() });
//! let by_owner = DoorbellRef::project(&channel, |channel| &channel.doorbell);
//! let on_its_own = DoorbellRef::new();
//! assert_eq!((by_owner.count(), on_its_own.count()), (0, 0));
//! ```
//!
//! This module holds `unsafe` because a reference to a doorbell is one pointer, followed at every
//! ring and visit, next to whatever keeps the memory alive.
#![allow(unsafe_code)]

use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;

use crate::sync::{AtomicU32, Mutant, Ordering, mutated, publishing};

/// Most items that a doorbell counts: ringing for more leaves it there. Real queues are smaller.
pub const MAX_COUNT: u32 = 1 << 30;
/// Set while a consumer of a shared set owns the queue.
const OWNED: u32 = 1 << 31;

/// A queue's doorbell: how many items were enqueued and not yet counted down, with the semantics of
/// a semaphore (HyperPlane §III-A). It has two lines to itself (adjacent lines are fetched in pairs),
/// so that neighbours do not disturb each other.
///
/// One word of 32 bits at offset 0: the count, and in the highest bit whether a consumer of a shared
/// set owns the queue.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Doorbell {
    word: AtomicU32,
}

impl Doorbell {
    /// A doorbell that says zero.
    pub fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    /// Items that were rung for and not counted down.
    #[inline]
    pub fn count(&self) -> u32 {
        self.word.load(Ordering::Acquire) & !OWNED
    }

    /// Whether there are any, for a consumer that announced its sleep.
    #[inline]
    pub(crate) fn is_rung_before_sleep(&self) -> bool {
        handshake::look(&self.word) as u32 & !OWNED != 0
    }

    /// Counts items up, for a consumer that looks at the doorbell itself and has no set: a spinning data
    /// plane, or another kind of ready set. True on the edge from empty to non-empty.
    ///
    /// Of a doorbell in a set this would activate nothing: there, ring by the
    /// [`Producer`](crate::Producer).
    #[inline]
    pub fn ring_polled(&self, items: u16) -> bool {
        items > 0 && self.ring(items)
    }

    /// Takes up to `items` off, by the one consumer that looks at the doorbell itself; how many are left.
    #[inline]
    pub fn take_polled(&self, items: u32) -> u32 {
        self.take(items)
    }

    /// Adds items. True on the edge from empty to non-empty, which has to activate the queue. Release: the items are
    /// written before. Acquire: the edge continues the release sequence by which the last owner passed the queue's
    /// consumer side on; in a set without ready bits it also sees the announcement of a sleeper that looked before.
    #[inline]
    pub(crate) fn ring(&self, items: u16) -> bool {
        let before =
            self.word.fetch_add(u32::from(items), publishing(Mutant::RingWithoutAcquire)) & !OWNED;
        // One comparison for the two rare cases, zero and far too many.
        if before.wrapping_sub(1) < MAX_COUNT - 1 {
            return false;
        }
        if before == 0 {
            return true;
        }
        self.saturate();
        false
    }

    /// Brings a count that ran past the limit back to it. The room above the limit, up to the owner's
    /// bit, is more than all threads of a machine can add on the way here.
    #[cold]
    fn saturate(&self) {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & !OWNED > MAX_COUNT {
            let limited = word & OWNED | MAX_COUNT;
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            match self.word.compare_exchange(word, limited, order.0, order.1) {
                Ok(_) => return,
                // Somebody rang or took: they made progress, and the next look is at their count.
                Err(now) => word = now,
            }
        }
    }

    /// Takes up to `items` off, by the one consumer; what is left. Others only add, so what a load
    /// sees can be taken.
    #[inline]
    pub(crate) fn take(&self, items: u32) -> u32 {
        let items = items.min(self.word.load(Ordering::Relaxed) & !OWNED);
        if mutated(Mutant::SettleByStore) {
            let left = self.word.load(Ordering::Acquire) - items;
            self.word.store(left, Ordering::Release);
            return left;
        }
        (self.word.fetch_sub(items, Ordering::AcqRel) & !OWNED) - items
    }

    /// Becomes the owner, unless the queue is empty or has one. Whoever is refused need not come
    /// back: the owner's release comes later and finds the count.
    #[inline]
    pub(crate) fn own(&self) -> bool {
        if self.count() == 0 {
            return false;
        }
        if mutated(Mutant::MissingOwner) {
            return true;
        }
        self.word.fetch_or(OWNED, Ordering::AcqRel) & OWNED == 0
    }

    /// Takes up to `items` off and ends the ownership, in one step; what is left.
    #[inline]
    pub(crate) fn release(&self, items: u32) -> u32 {
        let items = items.min(self.word.load(Ordering::Relaxed) & !OWNED);
        if mutated(Mutant::MissingOwner) {
            return self.word.fetch_sub(items, Ordering::AcqRel) - items;
        }
        let before = self.word.fetch_sub(items | OWNED, Ordering::AcqRel);
        (before & !OWNED).wrapping_sub(items)
    }
}

/// A doorbell and what keeps its memory alive.
#[derive(Clone)]
pub struct DoorbellRef {
    doorbell: NonNull<Doorbell>,
    /// Only held, for the memory that the pointer leads to.
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: it is a shared reference to a `Doorbell`, which is `Sync`, and an owner that is `Send` and
// `Sync`.
unsafe impl Send for DoorbellRef {}
// SAFETY: as above.
unsafe impl Sync for DoorbellRef {}

impl DoorbellRef {
    /// A new doorbell of its own.
    #[expect(clippy::new_without_default, reason = "a reference has no natural default")]
    pub fn new() -> Self {
        Self::project(&Arc::new(Doorbell::new()), |doorbell| doorbell)
    }

    /// A doorbell inside something shared: a channel, an array, a mapping.
    pub fn project<T: Any + Send + Sync>(
        owner: &Arc<T>,
        select: impl for<'a> FnOnce(&'a T) -> &'a Doorbell,
    ) -> Self {
        // The value stays where it is, and is only shared, while the clone below exists.
        let doorbell = NonNull::from(select(owner));
        Self { doorbell, _owner: Arc::<T>::clone(owner) }
    }

    /// A doorbell in memory that this crate does not know, such as another process's.
    ///
    /// # Safety
    /// `doorbell` is aligned, and readable and writable for as long as `owner` exists. Whoever else
    /// writes the word does so atomically, or is another process. Any content is a valid doorbell.
    pub unsafe fn from_raw(doorbell: NonNull<Doorbell>, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { doorbell, _owner: owner }
    }
}

impl Deref for DoorbellRef {
    type Target = Doorbell;
    #[inline]
    fn deref(&self) -> &Doorbell {
        // SAFETY: the owner keeps it alive at its place.
        unsafe { self.doorbell.as_ref() }
    }
}

impl fmt::Debug for DoorbellRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DoorbellRef").field("count", &self.count()).finish_non_exhaustive()
    }
}
