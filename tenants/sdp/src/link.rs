//! What the plane knows of one tenant; shared by the cores that serve it. Nothing in here but the
//! memory was written by the tenant.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32};

use handshake::{ByFence, One, Sleepers};
use qwait::Region;
use rustix::net::SendFlags;

use crate::bucket::Limiter;
use crate::counters::{Counters, Counts};
use crate::geometry::{Geometry, WAITING};
use crate::limits::Usage;
use crate::queue_pair::PlanePair;
use memfile::Memory;

/// The tenant's bit in its own waiting word: it has one thread that sleeps.
pub(crate) const TENANT: u64 = 1;

/// A tenant as a sleeper, which the plane wakes after completions.
#[inline]
pub(crate) fn tenant(waiting: &AtomicU32) -> Sleepers<&AtomicU32, One, ByFence> {
    Sleepers::over(waiting)
}

/// Who a connection is, as the kernel says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) pid: i32,
    pub(crate) uid: u32,
}

/// One tenant.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: u64,
    pub(crate) peer: Peer,
    /// What its user is charged for it.
    pub(crate) usage: Usage,
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
    /// The connection that it joined by, and over which it is woken; control polls it. A send says itself that it does
    /// not block, whatever the tenant does to its end; an eventfd's write could be made to.
    pub(crate) socket: OwnedFd,
    pub(crate) limiter: Limiter,
    /// Below [`CLASSES`](crate::CLASSES). Cores read it when they attach the tenant and when they are told.
    pub(crate) class: AtomicU8,
    /// By core.
    pub(crate) counters: Box<[Counters]>,
}

impl Link {
    /// After completions: wakes the tenant if it says that it waits. True where it did.
    ///
    /// A core that claims the tenant makes the system call; the others find it awake.
    #[inline]
    pub(crate) fn wake_if_waiting(&self) -> bool {
        let Some(waiting) = self.memory.word(WAITING) else { return false };
        tenant(waiting).notify(One) & TENANT != 0 && self.wake(waiting)
    }

    #[cold]
    fn wake(&self, waiting: &AtomicU32) -> bool {
        if !tenant(waiting).claim(TENANT) {
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
