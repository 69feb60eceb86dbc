//! What the plane knows of one tenant; shared by the cores that serve it. Nothing in here but the
//! memory was written by the tenant.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering, fence};

use qwait::{Region, TenantPlace};
use rustix::net::SendFlags;

use crate::bucket::Limiter;
use crate::counters::{Counters, Counts};
use crate::geometry::{Geometry, WAITING};
use crate::queue_pair::PlanePair;
use memfile::Memory;

/// One tenant.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: u64,
    pub(crate) geometry: Geometry,
    pub(crate) memory: Arc<Memory>,
    /// The same memory, as `qwait` maps it.
    pub(crate) region: Arc<Region>,
    pub(crate) queues: Box<[PlanePair]>,
    /// By set: the eventfd by which the tenant wakes the set's cores. Never read here: the tenant
    /// shares the file and could make a read block.
    pub(crate) wakes: Vec<OwnedFd>,
    /// By ready word: its slot in its set's table.
    pub(crate) slots: Vec<u32>,
    /// The connection that it joined by, and over which it is woken. A send says itself that it does
    /// not block, whatever the tenant does to its end; an eventfd's write could be made to.
    pub(crate) socket: OwnedFd,
    pub(crate) limiter: Limiter,
    /// Below [`CLASSES`](crate::CLASSES). Cores read it when they attach the tenant and when they are told.
    pub(crate) class: AtomicU8,
    /// By core.
    pub(crate) counters: Box<[Counters]>,
}

impl Link {
    /// Where `qwait` finds a ready word and its doorbells.
    pub(crate) fn place(&self, word: u32) -> Option<TenantPlace> {
        let word = self.geometry.word(word)?;
        Some(TenantPlace {
            region: Arc::clone(&self.region),
            ready: word.ready,
            idle: word.idle,
            doorbells: word.doorbells,
            stride: word.stride,
            queues: word.queues,
        })
    }

    /// After completions: wakes the tenant if it says that it waits. True where it did.
    ///
    /// The tenant writes "I wait", then looks for completions; we write completions, then look
    /// whether it waits. With a fence between on both sides both cannot miss.
    #[inline]
    pub(crate) fn wake_if_waiting(&self) -> bool {
        fence(Ordering::SeqCst);
        let Some(waiting) = self.memory.word(WAITING) else { return false };
        if waiting.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.wake(waiting)
    }

    #[cold]
    fn wake(&self, waiting: &std::sync::atomic::AtomicU32) -> bool {
        if waiting.swap(0, Ordering::AcqRel) == 0 {
            return false;
        }
        // Full means readable, which is what is wanted; gone means that control will see it. Costs a
        // system call a visit at most, and only who sleeps asks for it.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = rustix::net::send(&self.socket, &[1], flags);
        true
    }

    /// What all cores counted for it.
    pub(crate) fn counts(&self) -> Counts {
        self.counters.iter().fold(Counts::default(), |mut sum, counters| {
            sum += counters.read();
            sum
        })
    }
}
