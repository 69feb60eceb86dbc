//! The queues between a producer and its consumers: rings of slots, a doorbell each, and the
//! producer's end of all of them.
//!
//! Every strategy uses the same rings and the same producer, so that what differs is only how the
//! consumer learns which of them has work. What moves between the cores for one item: its slot, the
//! doorbell (where there is one), and now and then the line that says how far the consumer is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use qwait::{DoorbellRef, Producer, Region, RegionError};

use crate::activations::Activations;
use crate::shape::Fill;
use crate::work::Item;

/// Slots of a queue.
pub const DEPTH: u32 = 32;
/// A busy queue is filled up once so many of its slots are free: one ring for many items, so that the
/// producer is never what limits the throughput.
const REFILL: u32 = DEPTH / 2;
/// It is filled with whole lines of slots: else both would write and read one line at once.
const LINE: u32 = 4;
/// How long a producer waits, in turns of a spin loop, after it found a queue that needed nothing: each
/// look takes a line away from the consumer.
const FULL_TURNS: u32 = 16;

/// Where doorbells lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// 128 bytes apart.
    Packed,
    /// Each at the start of a page of its own: as tenants that share memory page by page map them.
    Paged,
}

impl Layout {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Packed, Self::Paged];

    /// Bytes from one to the next.
    pub fn stride(self) -> usize {
        match self {
            Self::Packed => 128,
            Self::Paged => 4_096,
        }
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packed => "doorbells 128 B apart",
            Self::Paged => "doorbells 4 KiB apart",
        }
    }
}

/// One item, in 16 bytes as a network card's descriptor: four to a line.
#[derive(Debug, Default)]
#[repr(align(16))]
struct Slot {
    /// The item's number plus one, written last: also tells a consumer that polls descriptors that the
    /// slot is full.
    ready: AtomicU32,
    sent_ns: AtomicU64,
}

/// A queue's slots, and how far its consumer is. The head has two lines to itself: adjacent ones are
/// fetched in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Ring {
    head: Head,
    slots: [Slot; DEPTH as usize],
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Head(AtomicU32);

/// The rings of all queues.
#[derive(Debug)]
pub struct Rings(Box<[Ring]>);

impl Rings {
    /// Empty rings.
    pub fn new(queues: u32) -> Arc<Self> {
        let ring =
            || Ring { head: Head::default(), slots: std::array::from_fn(|_| Slot::default()) };
        Arc::new(Self((0..queues).map(|_| ring()).collect()))
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// Takes the next item of a queue that is known to have one. Only one consumer at a time, each
    /// after the last: whoever the doorbell lets in. Its number tells whether that was kept.
    #[inline]
    pub fn dequeue(&self, queue: u32) -> Item {
        let ring = &self.0[queue as usize];
        let head = ring.head.0.load(Ordering::Relaxed);
        let slot = &ring.slots[(head % DEPTH) as usize];
        // Ordered by the doorbell, or by the look that found the slot full.
        let number = slot.ready.load(Ordering::Relaxed).wrapping_sub(1);
        let sent_ns = slot.sent_ns.load(Ordering::Relaxed);
        // Release: the slot was read before the producer may write it again.
        ring.head.0.store(head.wrapping_add(1), Ordering::Release);
        Item { queue, number, sent_ns }
    }

    /// Whether the slot of the item of this number is full.
    #[inline]
    pub fn is_full(&self, queue: u32, number: u32) -> bool {
        let slot = &self.0[queue as usize].slots[(number % DEPTH) as usize];
        slot.ready.load(Ordering::Acquire) == number.wrapping_add(1)
    }
}

/// How a producer says that it enqueued something.
#[derive(Clone, Debug)]
pub enum Bell {
    /// It counts the doorbell up, at which consumers look.
    Polled(DoorbellRef),
    /// The same, through a set that watches the doorbell.
    Watched(Producer),
    /// The same, and on the edge it tells the list of ready queues.
    Listed(DoorbellRef, Arc<Activations>),
    /// Not at all: consumers look at the slots.
    Descriptor,
}

/// Doorbells for `queues` in shared memory, as tenants map them.
///
/// # Errors
/// The operating system gave no memory.
pub fn doorbells(queues: u32, layout: Layout) -> Result<Vec<DoorbellRef>, RegionError> {
    let stride = layout.stride();
    Region::create(queues as usize * stride)?.doorbells(0, stride, queues as usize)
}

/// The producer's end of one queue.
#[derive(Debug)]
struct End {
    tail: u32,
    /// How far the consumer was when we last looked.
    head_seen: u32,
    bell: Bell,
}

/// The producer's ends of all queues.
#[derive(Debug)]
pub struct Pusher {
    rings: Arc<Rings>,
    ends: Vec<End>,
}

impl Pusher {
    /// The only producer of `rings`, with a bell for each.
    pub fn new(rings: &Arc<Rings>, bells: impl IntoIterator<Item = Bell>) -> Self {
        let end = |bell| End { tail: 0, head_seen: 0, bell };
        let ends: Vec<End> = bells.into_iter().map(end).collect();
        assert_eq!(ends.len(), rings.0.len(), "a bell for each queue");
        Self { rings: Arc::clone(rings), ends }
    }

    /// Free slots of a queue; looks at the consumer's line only where what is known is not `enough`.
    #[inline]
    fn room(&mut self, queue: u32, enough: u32) -> u32 {
        let end = &mut self.ends[queue as usize];
        let known = DEPTH - end.tail.wrapping_sub(end.head_seen);
        if known >= enough {
            return known;
        }
        end.head_seen = self.rings.0[queue as usize].head.0.load(Ordering::Acquire);
        DEPTH - end.tail.wrapping_sub(end.head_seen)
    }

    /// Enqueues `items` that are there is room for, then rings once.
    #[inline]
    fn enqueue(&mut self, queue: u32, items: u32, sent_ns: u64) {
        let end = &mut self.ends[queue as usize];
        let ring = &self.rings.0[queue as usize];
        for _ in 0..items {
            let slot = &ring.slots[(end.tail % DEPTH) as usize];
            slot.sent_ns.store(sent_ns, Ordering::Relaxed);
            end.tail = end.tail.wrapping_add(1);
            slot.ready.store(end.tail, Ordering::Release);
        }
        match &end.bell {
            Bell::Polled(doorbell) => {
                doorbell.ring_polled(items as u16);
            }
            Bell::Watched(producer) => {
                producer.ring_many(items as u16);
            }
            Bell::Listed(doorbell, list) => {
                if doorbell.ring_polled(items as u16) {
                    list.push(queue);
                }
            }
            Bell::Descriptor => {}
        }
    }

    /// Fetches what the producer itself knows of a queue, and finds out whether there is room: what a
    /// sender does before it has something to send.
    #[inline]
    pub fn ready_for(&mut self, queue: u32) -> bool {
        self.room(queue, 1) > 0
    }

    /// Enqueues one item; false where the queue is full.
    #[inline]
    pub fn push(&mut self, queue: u32, sent_ns: u64) -> bool {
        let room = self.room(queue, 1) > 0;
        if room {
            self.enqueue(queue, 1, sent_ns);
        }
        room
    }

    /// Enqueues one item that is not timed where the consumer has taken all that were there.
    pub fn push_if_empty(&mut self, queue: u32) {
        if self.room(queue, DEPTH) == DEPTH {
            self.enqueue(queue, 1, 0);
        }
    }

    /// Items that were ever enqueued.
    pub fn pushed(&self) -> u64 {
        self.ends.iter().map(|end| u64::from(end.tail)).sum()
    }
}

impl Fill for Pusher {
    fn fill(&mut self, queue: u32) -> u32 {
        let room = self.room(queue, REFILL);
        if room < REFILL {
            for _ in 0..FULL_TURNS {
                std::hint::spin_loop();
            }
            return 0;
        }
        let items = room - room % LINE;
        self.enqueue(queue, items, 0);
        items
    }

    fn one(&mut self, queue: u32) {
        // A full queue is not a rarely used one: nothing is lost by leaving it.
        self.push(queue, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_holds_what_it_can_and_numbers_it() {
        let rings = Rings::new(2);
        let mut pusher = Pusher::new(&rings, [Bell::Descriptor, Bell::Descriptor]);
        assert!(!rings.is_full(1, 0));
        for _ in 0..DEPTH {
            assert!(pusher.push(1, 5));
        }
        assert!(!pusher.push(1, 5), "it is full");
        assert!(rings.is_full(1, 0) && !rings.is_full(0, 0));
        for number in 0..DEPTH {
            assert_eq!(rings.dequeue(1), Item { queue: 1, number, sent_ns: 5 });
        }
        assert!(pusher.push(1, 6));
        pusher.push_if_empty(1);
        assert_eq!(rings.dequeue(1).number, DEPTH);
        assert_eq!(pusher.pushed(), u64::from(DEPTH) + 1, "it was not empty");
        pusher.push_if_empty(1);
        assert_eq!(rings.dequeue(1).sent_ns, 0);
    }

    #[test]
    fn a_busy_queue_is_filled_in_lots() {
        let rings = Rings::new(1);
        let bells = doorbells(1, Layout::Packed).expect("memory");
        let mut pusher = Pusher::new(&rings, [Bell::Polled(bells[0].clone())]);
        assert_eq!(pusher.fill(0), DEPTH);
        assert_eq!(bells[0].count(), DEPTH);
        assert_eq!(pusher.fill(0), 0);
        for _ in 0..REFILL {
            rings.dequeue(0);
        }
        assert_eq!(pusher.fill(0), REFILL);
    }
}
