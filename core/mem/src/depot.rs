//! The depot: the free chunks that no pool keeps, as a stack of chunk numbers without a lock (Treiber, 1986).
//!
//! A pool visits it once per [`BATCH`] allocations or frees at the most, and each visit moves all of its chunks with one
//! exchange of `top`. A pool whose thread loses its processor in the middle of a visit delays no other one. The holder
//! of a lock would, for a whole time slice; and a pool that stopped waiting would answer
//! [`Exhausted`](crate::Exhausted) although chunks are free.
//!
//! An exchange fails only where another visit was completed meanwhile. Each other pool then has a batch to use up
//! before its next visit, which takes longer than a visit: a visit is repeated about once per other pool.
//!
//! ```text
//! top        number of the uppermost chunk (32 bits) | visits so far (32 bits)
//! links[n]   number of the chunk below n (32 bits)   | chunks from n downwards (32 bits)
//! ```
//!
//! `visits` is what makes an exchange safe: a visit that reads a link which others change meanwhile fails, although
//! the same chunk may be uppermost again (the ABA problem). A thread would have to sleep for exactly 2^32 visits, more
//! than an hour of nothing else, to be misled.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;

use crate::sync::{AtomicBool, AtomicU64, Mutant, Ordering, mutated};

/// Chunks that move between a pool and the depot at a time.
pub(crate) const BATCH: usize = 64;
/// The number of no chunk: below the lowest one.
const NONE: u32 = u32::MAX;

/// Two lines of its own, as processors fetch lines in pairs: every pool reads the region's address, which would
/// otherwise share a line with the word that every visit writes.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

/// See the module's comment.
#[derive(Debug)]
pub(crate) struct Depot {
    top: Padded<AtomicU64>,
    links: Box<[AtomicU64]>,
    /// A pool found less than it wanted. Relaxed: a hint, on which no chunk depends.
    wanted: AtomicBool,
}

fn two(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn both(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// `order`, or none for a model that makes this mistake.
fn unless(mutant: Mutant, order: Ordering) -> Ordering {
    if mutated(mutant) { Ordering::Relaxed } else { order }
}

impl Depot {
    /// An empty depot for chunks with numbers below `numbers`.
    pub(crate) fn new(numbers: u32) -> Self {
        let links = (0..numbers).map(|_| AtomicU64::new(two(NONE, 0))).collect();
        let top = Padded(AtomicU64::new(two(NONE, 0)));
        Self { top, links, wanted: AtomicBool::new(false) }
    }

    /// Says that a pool found less than it wanted, until one gives.
    pub(crate) fn want(&self) {
        if !self.is_wanted() {
            self.wanted.store(true, Ordering::Relaxed);
        }
    }

    /// Whether one did.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// One has given.
    pub(crate) fn satisfy(&self) {
        self.wanted.store(false, Ordering::Relaxed);
    }

    fn link(&self, number: u32) -> (u32, u32) {
        both(self.links[number as usize].load(Ordering::Relaxed))
    }

    /// The word for `number` as the uppermost chunk after another visit than the one that found `visits`.
    fn after(number: u32, visits: u32) -> u64 {
        let more = u32::from(!mutated(Mutant::UncountedVisit));
        two(number, visits.wrapping_add(more))
    }

    /// Chunks in the depot from `number` downwards.
    fn depth(&self, number: u32) -> u32 {
        if number == NONE { 0 } else { self.link(number).1 }
    }

    /// Adds chunks, of which the last becomes the uppermost. The caller is their only holder.
    pub(crate) fn put(&self, numbers: impl Iterator<Item = u32> + Clone) {
        let top = &self.top.0;
        // Acquire: the depth of the uppermost chunk is what the visit wrote that put it there.
        let seen = unless(Mutant::RelaxedDepth, Ordering::Acquire);
        // Release pairs with the load in `take`: the next holder of a chunk sees it as the last one left it.
        let shown = unless(Mutant::RelaxedPut, Ordering::Release);
        let mut found = top.load(seen);
        loop {
            let (mut uppermost, visits) = both(found);
            let mut depth = self.depth(uppermost);
            for number in numbers.clone() {
                depth += 1;
                self.links[number as usize].store(two(uppermost, depth), Ordering::Relaxed);
                uppermost = number;
            }
            match top.compare_exchange_weak(found, Self::after(uppermost, visits), shown, seen) {
                Ok(_) => return,
                Err(now) => found = now,
            }
        }
    }

    /// Takes up to `most` chunks to the end of `taken`, the uppermost last; fewer only where there are fewer. `chunk`
    /// answers the chunk of a number.
    pub(crate) fn take(
        &self,
        most: usize,
        taken: &mut Vec<NonNull<u8>>,
        chunk: impl Fn(u32) -> NonNull<u8>,
    ) {
        let top = &self.top.0;
        // Pairs with the exchange in `put`.
        let seen = unless(Mutant::RelaxedTake, Ordering::Acquire);
        let before = taken.len();
        let mut found = top.load(seen);
        loop {
            let (mut number, visits) = both(found);
            // What others change meanwhile makes this walk wrong, but neither longer nor leave the links: the exchange
            // fails then.
            while number != NONE && taken.len() - before < most {
                taken.push(chunk(number));
                number = self.link(number).0;
            }
            if taken.len() == before {
                return;
            }
            // Nothing is written that the next visit reads: it sees the links through the exchange of `put`, of whose
            // release sequence this one is part.
            let after = Self::after(number, visits);
            match top.compare_exchange_weak(found, after, Ordering::Relaxed, seen) {
                Ok(_) => break,
                Err(now) => found = now,
            }
            taken.truncate(before);
        }
        taken[before..].reverse();
    }

    /// Chunks in the depot: a snapshot.
    pub(crate) fn len(&self) -> usize {
        let (uppermost, _) = both(self.top.0.load(Ordering::Acquire));
        self.depth(uppermost) as usize
    }
}
