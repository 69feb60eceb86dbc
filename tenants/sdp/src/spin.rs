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

use crate::class::{CLASS_LOWEST, CLASSES};
use crate::link::Link;
use crate::queue_pair::{Look, PlanePair};
use memfile::Doorbell;

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
    class: usize,
    entry: usize,
}

/// The queues of a class.
#[derive(Debug, Default)]
struct Table {
    /// Dense: this is all that a look at an empty queue reads but the doorbell itself.
    doorbells: Vec<Doorbell>,
    entries: Vec<Entry>,
    cursor: usize,
}

impl Table {
    #[inline]
    fn advance(&mut self) -> usize {
        let index = self.cursor;
        self.cursor = if index + 1 < self.doorbells.len() { index + 1 } else { 0 };
        index
    }

    /// Takes out the queues of a slot. The round goes on where it was.
    fn take_out(&mut self, slot: u32) -> Vec<(Doorbell, Entry)> {
        let all = self.doorbells.drain(..).zip(self.entries.drain(..)).enumerate();
        let (out, kept): (Vec<_>, Vec<_>) = all.partition(|(_, (_, entry))| entry.slot == slot);
        let cursor = kept.iter().filter(|(index, _)| *index < self.cursor).count();
        (self.doorbells, self.entries) = kept.into_iter().map(|(_, queue)| queue).unzip();
        self.cursor = if cursor < self.entries.len() { cursor } else { 0 };
        out.into_iter().map(|(_, queue)| queue).collect()
    }
}

/// What a spinning core looks at: a table for each class, the highest first.
#[derive(Debug)]
pub(crate) struct Spinner {
    tables: [Table; CLASSES as usize],
    shared: bool,
    dpdk: bool,
    burst: Box<[Descriptor; BURST]>,
}

impl Spinner {
    /// `shared`: other cores have the same queues.
    pub(crate) fn new(shared: bool, dpdk: bool) -> Self {
        Self { tables: Default::default(), shared, dpdk, burst: Box::new([0; BURST]) }
    }

    /// Adds the queues of a tenant's ready word, in the lowest class.
    pub(crate) fn attach(&mut self, link: &Arc<Link>, word: u32, slot: u32) {
        let table = &mut self.tables[usize::from(CLASS_LOWEST)];
        let queues = link.geometry.word(word).map_or(0, |word| word.queues);
        for bit in 0..queues {
            let queue = link.geometry.queue_at(word, bit);
            let at = link.geometry.doorbell(queue);
            let place = || Doorbell::new(&link.memory, at);
            let (Some(dense), Some(doorbell)) = (place(), place()) else { continue };
            let link = Arc::clone(link);
            table.doorbells.push(dense);
            table.entries.push(Entry { link, queue, slot, bit, doorbell, rx_burst });
        }
    }

    /// Moves the queues of a slot to a class.
    pub(crate) fn set_class(&mut self, slot: u32, class: u8) {
        let out: Vec<_> = self.tables.iter_mut().flat_map(|table| table.take_out(slot)).collect();
        let Some(table) = self.tables.get_mut(usize::from(class)) else { return };
        for (doorbell, entry) in out {
            table.doorbells.push(doorbell);
            table.entries.push(entry);
        }
    }

    /// Forgets the queues of a slot.
    pub(crate) fn detach(&mut self, slot: u32) {
        self.tables.iter_mut().for_each(|table| _ = table.take_out(slot));
    }

    /// Looks at every queue of a class once at most, beginning after the last one, and goes on to the next
    /// class where none has work: the first that has and is nobody else's.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Spun> {
        (0..self.tables.len()).find_map(|class| {
            if self.dpdk { self.next_of::<true>(class) } else { self.next_of::<false>(class) }
        })
    }

    #[inline]
    fn next_of<const DPDK: bool>(&mut self, class: usize) -> Option<Spun> {
        let table = &mut self.tables[class];
        for _ in 0..table.doorbells.len() {
            let index = table.advance();
            if !DPDK && table.doorbells[index].load(Ordering::Acquire) == 0 {
                continue;
            }
            let entry = &table.entries[index];
            let pair = entry.pair();
            if pair.is_aside() || self.shared && !pair.try_lock() {
                continue;
            }
            let count = if DPDK {
                let found = (entry.rx_burst)(entry, &mut self.burst) as u32;
                // The burst's contents count as read, as an application would.
                std::hint::black_box(&self.burst);
                found
            } else {
                // Again, under the lock: another core may have served it meanwhile.
                table.doorbells[index].load(Ordering::Acquire)
            };
            if count > 0 {
                return Some(Spun { slot: entry.slot, bit: entry.bit, count, class, entry: index });
            }
            if self.shared {
                pair.unlock();
            }
        }
        None
    }

    /// Ends a visit: takes `items` off the doorbell, or all that it says.
    pub(crate) fn finish(&mut self, spun: Spun, items: u32, all: bool) {
        let Some(entry) = self.tables[spun.class].entries.get(spun.entry) else { return };
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
