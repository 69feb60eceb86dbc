//! Spinning: looking at every queue in turn. What HyperPlane is measured against (§II-B, §II-C).
//!
//! Two ways of looking. `Spin` is the least that can be done: one load of the queue's doorbell, from a
//! dense table of addresses. `SpinDpdk` costs what a poll-mode driver's poll costs: a call through a
//! function pointer per queue with a burst interface, `rx_burst(queue, &mut [_; 32]) -> n`, which
//! reads the queue's descriptor line (the slot at the head) and its index line (the doorbell), whether
//! or not anything is there.
//!
//! Cores that share queues hold a queue's lock while they serve it, and take it by trying: `Spin` after
//! it saw work, `SpinDpdk` before it polls, as a poll moves the driver's state.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::link::Link;
use crate::queue_pair::{Look, PlanePair};
use crate::unsafe_memory::Doorbell;

/// Descriptors of a burst, as DPDK's examples have it.
pub(crate) const BURST: usize = 32;

/// What a burst tells of a request: its length, or `u32::MAX` where no slot has that.
type Descriptor = u32;
/// A driver's poll.
type RxBurst = fn(&Entry, &mut [Descriptor; BURST]) -> usize;

/// One queue in the table of a `SpinDpdk` core, and where the visit of a spinning core finds the rest.
#[derive(Debug)]
struct Entry {
    link: Arc<Link>,
    queue: u32,
    slot: u32,
    bit: u32,
    doorbell: Doorbell,
    rx_burst: RxBurst,
}

impl Entry {
    #[inline]
    fn pair(&self) -> &PlanePair {
        &self.link.queues[self.queue as usize]
    }
}

/// The driver's poll of a queue pair.
#[inline(never)]
fn rx_burst(entry: &Entry, burst: &mut [Descriptor; BURST]) -> usize {
    let (pair, memory) = (entry.pair(), &*entry.link.memory);
    let mut found = 0;
    for place in burst.iter_mut() {
        *place = match pair.look_ahead(memory, found as u32) {
            Look::Nothing => break,
            Look::Request(len) => len,
            Look::TooLong => u32::MAX,
        };
        found += 1;
    }
    // As a driver compares with the index that the device wrote.
    found.min(entry.doorbell.load(Ordering::Acquire) as usize)
}

/// A queue that a spinning core found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spun {
    pub(crate) slot: u32,
    pub(crate) bit: u32,
    /// Items by the doorbell, at most a burst's for a driver's poll.
    pub(crate) count: u32,
    entry: usize,
}

/// The table of a spinning core.
#[derive(Debug)]
pub(crate) struct Spinner {
    /// Dense: this is all that a look at an empty queue reads but the doorbell itself.
    doorbells: Vec<Doorbell>,
    entries: Vec<Entry>,
    cursor: usize,
    shared: bool,
    dpdk: bool,
    burst: Box<[Descriptor; BURST]>,
}

impl Spinner {
    /// `shared`: other cores have the same queues.
    pub(crate) fn new(shared: bool, dpdk: bool) -> Self {
        Self {
            doorbells: Vec::new(),
            entries: Vec::new(),
            cursor: 0,
            shared,
            dpdk,
            burst: Box::new([0; BURST]),
        }
    }

    /// Adds the queues of a tenant's ready word. `core`: the cores begin their rounds apart.
    pub(crate) fn attach(&mut self, link: &Arc<Link>, word: u32, slot: u32) {
        let queues = link.geometry.word(word).map_or(0, |word| word.queues);
        for bit in 0..queues {
            let queue = link.geometry.queue_at(word, bit);
            let at = link.geometry.doorbell(queue);
            let place = || Doorbell::new(&link.memory, at);
            let (Some(dense), Some(doorbell)) = (place(), place()) else { continue };
            let link = Arc::clone(link);
            self.doorbells.push(dense);
            self.entries.push(Entry { link, queue, slot, bit, doorbell, rx_burst });
        }
    }

    /// Forgets the queues of a slot.
    pub(crate) fn detach(&mut self, slot: u32) {
        let gone = |entry: &Entry| entry.slot == slot;
        let mut index = 0;
        self.doorbells.retain(|_| {
            index += 1;
            !gone(&self.entries[index - 1])
        });
        self.entries.retain(|entry| !gone(entry));
        self.cursor = 0;
    }

    /// Queues in the table.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Looks at `looks` queues at most, beginning after the last one: the first that has work and is
    /// nobody else's.
    #[inline]
    pub(crate) fn next(&mut self, looks: usize) -> Option<Spun> {
        if self.dpdk { self.next_dpdk(looks) } else { self.next_plain(looks) }
    }

    #[inline]
    fn advance(&mut self) -> usize {
        let index = self.cursor;
        self.cursor = if index + 1 < self.doorbells.len() { index + 1 } else { 0 };
        index
    }

    fn next_plain(&mut self, looks: usize) -> Option<Spun> {
        for _ in 0..looks.min(self.doorbells.len()) {
            let index = self.advance();
            if self.doorbells[index].load(Ordering::Acquire) == 0 {
                continue;
            }
            let entry = &self.entries[index];
            let pair = entry.pair();
            if pair.is_aside() || self.shared && !pair.try_lock() {
                continue;
            }
            // Again, under the lock: another core may have served it meanwhile.
            let count = self.doorbells[index].load(Ordering::Acquire);
            if count > 0 {
                return Some(Spun { slot: entry.slot, bit: entry.bit, count, entry: index });
            }
            if self.shared {
                pair.unlock();
            }
        }
        None
    }

    fn next_dpdk(&mut self, looks: usize) -> Option<Spun> {
        for _ in 0..looks.min(self.entries.len()) {
            let index = self.advance();
            let entry = &self.entries[index];
            let pair = entry.pair();
            if pair.is_aside() || self.shared && !pair.try_lock() {
                continue;
            }
            let count = (entry.rx_burst)(entry, &mut self.burst) as u32;
            // The burst's contents count as read, as an application would.
            std::hint::black_box(&self.burst);
            if count > 0 {
                return Some(Spun { slot: entry.slot, bit: entry.bit, count, entry: index });
            }
            if self.shared {
                pair.unlock();
            }
        }
        None
    }

    /// Ends a visit: takes `items` off the doorbell, or all that it says.
    pub(crate) fn finish(&mut self, spun: Spun, items: u32, all: bool) {
        let Some(entry) = self.entries.get(spun.entry) else { return };
        if all {
            entry.doorbell.swap(0, Ordering::AcqRel);
        } else if items > 0 {
            take(&entry.doorbell, items);
        }
        if self.shared {
            entry.pair().unlock();
        }
    }
}

/// Takes items off a doorbell that its tenant may have changed meanwhile.
#[inline]
fn take(doorbell: &AtomicU32, items: u32) {
    if doorbell.fetch_sub(items, Ordering::AcqRel) < items {
        // Taken back from under us: not below zero, which would be a great many.
        doorbell.store(0, Ordering::Release);
    }
}
