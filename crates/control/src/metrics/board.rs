//! The counters of one elastic thread: it alone adds, others read whenever they like.
//!
//! They only grow, so a reader that misses a turn misses nothing, and nobody ever resets them. The writer
//! stores and never exchanges: on the usual processors that is a plain store to a line of its own, some of
//! them per cycle.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a busy cycle of the elastic thread was like (IX Figure 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cycle {
    /// Q: packets that waited when step 1 looked, those included that this cycle takes.
    pub queue_packets: u64,
    /// Packets that it took, at most B.
    pub taken_packets: u64,
    /// The iteration time, in nanoseconds.
    pub busy_ns: u64,
    /// For how long the oldest packet or event had waited, in nanoseconds.
    pub oldest_waiting_ns: u64,
}

/// One elastic thread's counters, in memory that the control plane sees. Alone on its cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Board {
    busy_cycles: AtomicU64,
    idle_cycles: AtomicU64,
    packets: AtomicU64,
    queue_packets: AtomicU64,
    busy_ns: AtomicU64,
    idle_ns: AtomicU64,
    oldest_waiting_ns: AtomicU64,
}

/// A reading of a [`Board`]. All but `oldest_waiting_ns` only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Cycles that found packets.
    pub busy_cycles: u64,
    /// Cycles that found nothing.
    pub idle_cycles: u64,
    /// Packets taken.
    pub packets: u64,
    /// The sum of the queue depths that busy cycles found.
    pub queue_packets: u64,
    /// Time in busy cycles, in nanoseconds.
    pub busy_ns: u64,
    /// Time in others, in nanoseconds.
    pub idle_ns: u64,
    /// How long the oldest one had waited in the latest busy cycle, in nanoseconds; 0 after an idle one.
    pub oldest_waiting_ns: u64,
}

impl Board {
    /// Counts a cycle that found packets. Only the elastic thread itself may call it.
    #[inline]
    pub fn busy(&self, cycle: &Cycle) {
        add(&self.busy_cycles, 1);
        add(&self.packets, cycle.taken_packets);
        add(&self.queue_packets, cycle.queue_packets);
        add(&self.busy_ns, cycle.busy_ns);
        self.oldest_waiting_ns.store(cycle.oldest_waiting_ns, Ordering::Relaxed);
    }

    /// Counts time without packets. Only the elastic thread itself may call it.
    #[inline]
    pub fn idle(&self, idle_ns: u64) {
        add(&self.idle_cycles, 1);
        add(&self.idle_ns, idle_ns);
        if self.oldest_waiting_ns.load(Ordering::Relaxed) != 0 {
            self.oldest_waiting_ns.store(0, Ordering::Relaxed);
        }
    }

    /// Reads all counters. They are read one after the other: a cycle that ends meanwhile may be in some of
    /// them and not in others, which the next reading puts right.
    pub fn snapshot(&self) -> Counters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            busy_cycles: of(&self.busy_cycles),
            idle_cycles: of(&self.idle_cycles),
            packets: of(&self.packets),
            queue_packets: of(&self.queue_packets),
            busy_ns: of(&self.busy_ns),
            idle_ns: of(&self.idle_ns),
            oldest_waiting_ns: of(&self.oldest_waiting_ns),
        }
    }
}

/// There is one writer, so reading and storing is enough: no locked instruction on the elastic thread's way.
#[inline]
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}
