//! Which connections may have exceeded a limit: those that keep something, by how long they have waited,
//! and, where idle connections are closed, all of them.
//!
//! A connection enters when it begins to keep something, at most once, and its entry is looked at when the
//! connection could have exceeded its time, or when memory is short. A request that comes and leaves whole
//! never touches the entries.

use std::collections::BinaryHeap;
use std::sync::Arc;

use clock::{Duration, Instant};
use domain::{Cookie, Handle};

use super::limits::{ConnectionMemory, Limits};

/// Entries looked at in one batch: bounds what the limits add to it.
pub(super) const PORTION: usize = 64;
/// Connections that one turn has end for want of memory, where another core may have them in hand: each costs
/// a turn of its own.
pub(super) const ASKED_AT_ONCE: usize = 4;
/// An entry is looked at after so long at the latest: the connection may have ended meanwhile.
const LOOK: Duration = Duration::from_secs(64);
/// What an entry is charged, as its heap grows by doubling.
const ENTRY_BYTES: usize = 2 * size_of::<Entry>();

/// A connection to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The moment since which it has waited, as of its entry.
    pub since: Instant,
    pub cookie: Cookie,
    pub handle: Handle,
}

impl Ord for Entry {
    /// The greatest is the one that has waited longest.
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        other.since.cmp(&self.since)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// See the module's comment.
#[derive(Debug)]
pub(super) struct Watch {
    pub limits: Limits,
    pub memory: Arc<ConnectionMemory>,
    /// What this server has charged to it, less what it gave back: below 0 where connections have moved here.
    kept_bytes: isize,
    /// Connections that keep something, or did when they were entered.
    holding: BinaryHeap<Entry>,
    /// All connections, where idle ones are closed.
    open: BinaryHeap<Entry>,
    /// When the first entry is due.
    wake: Instant,
}

impl Watch {
    pub fn new(mut limits: Limits, own: impl FnOnce() -> Arc<ConnectionMemory>) -> Self {
        let memory = limits.memory.clone().unwrap_or_else(own);
        memory.join();
        let longest = Limits::IDLE_TIMEOUT_MAX;
        limits.idle_timeout = limits.idle_timeout.map(|timeout| timeout.min(longest));
        let (holding, open) = (BinaryHeap::new(), BinaryHeap::new());
        Self { limits, memory, kept_bytes: 0, holding, open, wake: Instant::FAR_FUTURE }
    }

    /// When the first entry is due.
    #[inline]
    pub fn wake(&self) -> Instant {
        self.wake
    }

    /// A connection that was charged `before` bytes now keeps `after`.
    pub fn charge(&mut self, before: usize, after: usize) {
        self.memory.charge(before, after);
        self.kept_bytes += after as isize - before as isize;
    }

    /// Whether this server is to end connections for want of memory: it is short, and connections here keep more
    /// than a server's part of the reserve. Those of a server that keeps less do not suffer for the others'. Where
    /// connections move between servers (`shared`), one server is charged what another gives back: each ends some.
    pub fn is_short(&self, shared: bool) -> bool {
        (shared || self.kept_bytes > self.memory.reserve_bytes() as isize) && self.memory.is_short()
    }

    /// Enters a connection that keeps something.
    pub fn hold(&mut self, entry: Entry) {
        self.charge(0, ENTRY_BYTES);
        self.wake = self.wake.min(entry.since + self.hold_time());
        self.holding.push(entry);
    }

    /// Enters a connection among all.
    pub fn open(&mut self, entry: Entry) {
        self.wake = self.wake.min(entry.since + self.open_time());
        self.open.push(entry);
    }

    /// How long after its moment an entry of a connection that keeps something is due.
    fn hold_time(&self) -> Duration {
        self.limits.request_timeout.unwrap_or(LOOK)
    }

    /// The same for one of all connections.
    pub fn open_time(&self) -> Duration {
        self.limits.idle_timeout.map_or(LOOK, |timeout| timeout.min(LOOK))
    }

    /// An entry that is due, if there is one; else the next batch that looks is at the next one's time.
    /// With it, whether it is one of all connections.
    pub fn take_due(&mut self, now: Instant) -> Option<(Entry, bool)> {
        let (hold_time, open_time) = (self.hold_time(), self.open_time());
        let due = |heap: &BinaryHeap<Entry>, time: Duration| {
            heap.peek().map_or(Instant::FAR_FUTURE, |first| first.since + time)
        };
        let (held, opened) = (due(&self.holding, hold_time), due(&self.open, open_time));
        if held <= now {
            return self.take_oldest().map(|entry| (entry, false));
        }
        if opened <= now {
            return self.open.pop().map(|entry| (entry, true));
        }
        self.wake = held.min(opened);
        None
    }

    /// The same, where that is longer than since `since`.
    pub fn take_older(&mut self, since: Instant) -> Option<Entry> {
        self.holding.peek().filter(|oldest| oldest.since < since)?;
        self.take_oldest()
    }

    /// The entry of the connection that has kept something for longest.
    pub fn take_oldest(&mut self) -> Option<Entry> {
        let entry = self.holding.pop()?;
        self.charge(ENTRY_BYTES, 0);
        Some(entry)
    }
}
