//! One table of connections for the servers of all cores, so that any core can serve any connection
//! (ZygOS §4.4).
//!
//! ```
//! use std::sync::Arc;
//! use tailplane::{Flow, Instant, Opened, Output, Protocol, Server, SharedSlots};
//!
//! struct Echo;
//! impl Protocol for Echo {
//!     type Connection = ();
//!     fn open(&mut self, _: Instant, _: Opened) -> Option<()> {
//!         Some(())
//!     }
//!     fn receive(&mut self, _: Instant, _: &mut (), data: &[u8], out: &mut Output<'_, '_>) -> Flow {
//!         out.put(data);
//!         Flow::Continue
//!     }
//! }
//!
//! let slots = Arc::new(SharedSlots::new(2, 10_000));
//! let servers: Vec<_> =
//!     (0..2).map(|core| Server::shared(core, Echo, Arc::clone(&slots))).collect();
//! assert!(servers.iter().all(|server| server.connections() == 0));
//! ```
//!
//! Each core has a part of the table, of which it alone allocates pages and hands out slots: to the
//! connections that are at home there. A page never moves, and other cores find it by its number, which
//! the cookie holds.
//!
//! # Why a slot has one user
//!
//! The scheduler sees to it: one core at a time has a connection's turn, and hand-overs order memory
//! (`Service::runs_anywhere`). But this is safe code for whatever drives it, so each slot has a lock, in its
//! own cache line, that is tried for and never waited for: in turn, it is always free, and costs one
//! exchange on a line that is needed anyway. One that is not free is a mistake of the scheduler: the event is
//! dropped, and counted (`ServerStats::out_of_turn`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use domain::{Cookie, Handle};
use mem::TableBox;
use shuffle::{Guard, TryLock};

use super::batch::CORE_SHIFT;
use super::limits::ConnectionMemory;
use super::slots::{PAGE, Slot, Slots};

/// Cores that a table is made for at most.
const MAX_CORES: usize = 1 << 8;
/// In every cookie: zero, which events of connections that were never accepted have, names no slot.
const MARK: u64 = 1 << 63;
const _: () = assert!((MAX_CORES as u64 - 1) << CORE_SHIFT >> CORE_SHIFT == MAX_CORES as u64 - 1);

/// A slot and its lock on cache lines of their own.
#[derive(Debug)]
#[repr(align(64))]
struct Line<C>(TryLock<Option<Slot<C>>>);

const _: () = assert!(size_of::<Line<u64>>() == 64);

/// Slots that are allocated together, and the handles of the connections in them, for a core whose turn a
/// connection is not; 0: none.
#[derive(Debug)]
struct Page<C> {
    lines: TableBox<[Line<C>; PAGE]>,
    handles: Box<[AtomicU64; PAGE]>,
}

/// One core's part of the table, but for its pages.
#[derive(Debug)]
struct Part {
    /// A server has it.
    claimed: AtomicBool,
    /// Slots of this part that were freed on another core, because their connection had moved there. A
    /// lock, as connections end rarely compared with what else is done with them.
    returned: Mutex<Vec<u32>>,
}

impl Part {
    fn returned(&self) -> MutexGuard<'_, Vec<u32>> {
        // A list of numbers is whole whatever panicked beside it.
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module's comment.
pub struct SharedSlots<C> {
    parts: Box<[Part]>,
    /// Pages of all parts, one part's after the other's; those that are not allocated yet are empty.
    pages: Box<[OnceLock<Page<C>>]>,
    pages_per_core: usize,
    memory: Arc<ConnectionMemory>,
}

impl<C> SharedSlots<C> {
    /// A table for `cores` servers (1 to 256) with at most `max_connections_per_core` (up to 16 million)
    /// connections at home on each, both cut to these limits. Memory for connections is allocated when they
    /// come, 64 slots at a time; the table itself has 24 bytes for that many.
    pub fn new(cores: usize, max_connections_per_core: usize) -> Self {
        let cores = cores.clamp(1, MAX_CORES);
        let most = max_connections_per_core.clamp(1, Handle::MAX_SLOTS as usize);
        let pages_per_core = most.div_ceil(PAGE);
        let part = |_| Part { claimed: AtomicBool::new(false), returned: Mutex::new(Vec::new()) };
        Self {
            parts: (0..cores).map(part).collect(),
            pages: (0..cores * pages_per_core).map(|_| OnceLock::new()).collect(),
            pages_per_core,
            memory: Arc::default(),
        }
    }

    /// Servers that the table is for.
    pub fn cores(&self) -> usize {
        self.parts.len()
    }

    /// The slot that a cookie names, if there is one.
    #[inline]
    fn line(&self, cookie: Cookie) -> Option<&Line<C>> {
        // Without the mark it is a number beyond all pages.
        let number = (cookie.0 ^ MARK) as usize;
        Some(&self.pages.get(number / PAGE)?.get()?.lines[number % PAGE])
    }

    /// Where the handle of the connection in slot `number` is noted.
    fn noted(&self, number: usize) -> Option<&AtomicU64> {
        Some(&self.pages.get(number / PAGE)?.get()?.handles[number % PAGE])
    }
}

// Slots' numbers are 32 bits.
const _: () = assert!(MAX_CORES * Handle::MAX_SLOTS as usize <= 1 << 32);

impl<C> core::fmt::Debug for SharedSlots<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SharedSlots")
            .field("cores", &self.cores())
            .field("max_connections_per_core", &(self.pages_per_core * PAGE))
            .finish_non_exhaustive()
    }
}

/// What one core's server has of [`SharedSlots`]: access to all, and its own part to hand out.
#[derive(Debug)]
pub struct CoreSlots<C> {
    table: Arc<SharedSlots<C>>,
    core: usize,
    /// Pages of its part that are allocated.
    pages: usize,
    /// Free slots of its part.
    free: Vec<u32>,
    out_of_turn: u64,
}

impl<C> CoreSlots<C> {
    /// # Panics
    /// See [`Server::shared`](super::Server::shared).
    pub(super) fn new(core: usize, table: Arc<SharedSlots<C>>) -> Self {
        let cores = table.cores();
        let Some(part) = table.parts.get(core) else {
            panic!("core {core} has no part of slots that are shared by {cores} cores, from 0 on");
        };
        // Relaxed: it orders nothing, as the part's slots are reached by their locks.
        let claimed = part.claimed.swap(true, Ordering::Relaxed);
        assert!(!claimed, "core {core}'s part of the shared slots has a server already");
        Self { table, core, pages: 0, free: Vec::new(), out_of_turn: 0 }
    }

    /// Free slots again: those that other cores returned, else a new page's.
    #[cold]
    fn refill(&mut self) {
        core::mem::swap(&mut self.free, &mut self.table.parts[self.core].returned());
        if !self.free.is_empty() || self.pages == self.table.pages_per_core {
            return;
        }
        let page = self.core * self.table.pages_per_core + self.pages;
        let line = |_| Line(TryLock::new(None));
        self.table.pages[page].get_or_init(|| Page {
            lines: TableBox::new(std::array::from_fn(line)),
            handles: Box::new(std::array::from_fn(|_| AtomicU64::new(0))),
        });
        self.pages += 1;
        let first = (page * PAGE) as u32;
        self.free.extend((first..=first + (PAGE as u32 - 1)).rev());
    }
}

impl<C> Slots<C> for CoreSlots<C> {
    type Guard<'a>
        = Guard<'a, Option<Slot<C>>>
    where
        C: 'a;
    const SHARED: bool = true;

    #[inline]
    fn get(&mut self, cookie: Cookie) -> Option<Guard<'_, Option<Slot<C>>>> {
        let guard = self.table.line(cookie)?.0.try_lock();
        if guard.is_none() {
            self.out_of_turn += 1;
            debug_assert!(false, "another core has the slot of {cookie:?}, whose turn is here");
        }
        guard
    }

    #[inline]
    fn prefetch(&self, cookie: Cookie) {
        if let Some(line) = self.table.line(cookie) {
            mem::prefetch(line);
        }
    }

    fn take(&mut self) -> Option<Cookie> {
        if self.free.is_empty() {
            self.refill();
        }
        self.free.pop().map(|number| Cookie(MARK | u64::from(number)))
    }

    fn occupy(&mut self, cookie: Cookie, handle: Handle) {
        if let Some(noted) = self.table.noted((cookie.0 ^ MARK) as usize) {
            // Relaxed here and below: who reads it has the dataplane ask the connection, which may be gone.
            noted.store(handle.to_bits(), Ordering::Relaxed);
        }
    }

    fn connection(&self, index: usize) -> Option<(Cookie, Handle)> {
        let number = self.core * self.table.pages_per_core * PAGE + index;
        let bits = self.table.noted(number)?.load(Ordering::Relaxed);
        (bits != 0).then(|| (Cookie(MARK | number as u64), Handle::from_bits(bits)))
    }

    fn release(&mut self, cookie: Cookie) {
        let number = cookie.0 as u32;
        if let Some(noted) = self.table.noted(number as usize) {
            noted.store(0, Ordering::Relaxed);
        }
        let owner = number as usize / PAGE / self.table.pages_per_core;
        if owner == self.core {
            self.free.push(number);
        } else if let Some(part) = self.table.parts.get(owner) {
            part.returned().push(number);
        }
    }

    #[inline]
    fn capacity(&self) -> usize {
        self.pages * PAGE
    }

    fn taken(&self) -> usize {
        self.capacity() - self.free.len() - self.table.parts[self.core].returned().len()
    }

    fn first_batch(&self) -> u64 {
        (self.core as u64) << CORE_SHIFT
    }

    fn memory(&self) -> Arc<ConnectionMemory> {
        Arc::clone(&self.table.memory)
    }

    fn out_of_turn(&self) -> u64 {
        self.out_of_turn
    }
}
