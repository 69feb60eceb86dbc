//! The depot under the model checker, and the mistakes that it must find.
//!
//! Run by `scripts/loom.sh`. A chunk's bytes are a cell of the checker's: two holders at a time, or one after the other
//! without an order between them, are an error by themselves. `unsafe` because such a cell gives out pointers.
#![allow(unsafe_code)]

use alloc::vec::Vec;
use core::num::NonZero;
use core::ptr::NonNull;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::depot::Depot;
use crate::sync::{Mutant, mutate};

/// A depot, and the bytes of its chunks.
struct Chunks {
    depot: Depot,
    bytes: Vec<UnsafeCell<u32>>,
}

// SAFETY: the cells are the checker's, which finds every access that is not ordered.
unsafe impl Sync for Chunks {}
// SAFETY: as above.
unsafe impl Send for Chunks {}

impl Chunks {
    /// All chunks are in the depot but those from `held` on.
    fn new(count: u32, held: u32) -> Arc<Self> {
        let depot = Depot::new(count);
        depot.put((0..held).rev());
        Arc::new(Self { depot, bytes: (0..count).map(|_| UnsafeCell::new(0)).collect() })
    }

    fn take(&self, most: usize) -> Vec<u32> {
        let mut taken = Vec::new();
        self.depot.take(most, &mut taken, |number| {
            NonNull::without_provenance(NonZero::new(number as usize + 1).expect("above zero"))
        });
        taken.into_iter().map(|chunk| chunk.addr().get() as u32 - 1).collect()
    }

    /// Writes to a chunk that the caller holds.
    fn write(&self, number: u32) {
        // SAFETY: the checker fails the test where another thread does so too.
        self.bytes[number as usize].with_mut(|bytes| unsafe { *bytes += 1 });
    }
}

/// A model that fails, and the assertion that is to break.
fn with(mutant: Mutant, body: fn()) {
    mutate(Some(mutant));
    // A test that ends otherwise than by the panic it expects resets nothing: each has a thread of its own.
    loom::model(body);
}

/// One thread uses a chunk and puts it; the other takes it and uses it.
fn hand_over() {
    let chunks = Chunks::new(1, 0);
    let other = Arc::clone(&chunks);
    let putter = thread::spawn(move || {
        other.write(0);
        other.depot.put([0].into_iter());
    });
    let taken = loop {
        match chunks.take(1).pop() {
            Some(number) => break number,
            None => thread::yield_now(),
        }
    };
    chunks.write(taken);
    putter.join().expect("it put its chunk");
}

/// Two threads put a chunk each.
fn count() {
    let chunks = Chunks::new(2, 0);
    let other = Arc::clone(&chunks);
    let putter = thread::spawn(move || other.depot.put([0].into_iter()));
    chunks.depot.put([1].into_iter());
    putter.join().expect("it put its chunk");
    assert_eq!(chunks.depot.len(), 2, "the depth is not what was put");
    assert_eq!(chunks.take(3).len(), 2);
}

/// One thread takes a chunk, while the other takes two and returns the first.
fn return_first() {
    let chunks = Chunks::new(3, 3);
    let other = Arc::clone(&chunks);
    let returner = thread::spawn(move || {
        let (first, second) = (other.take(1), other.take(1));
        other.depot.put(first.into_iter());
        second
    });
    let mut held = chunks.take(1);
    held.extend(returner.join().expect("it returned its chunk"));
    held.extend(chunks.take(3));
    held.sort_unstable();
    assert_eq!(held, [0, 1, 2], "a chunk has two holders, or none");
}

/// Both take a chunk, of which there are two: each gets one.
fn share() {
    let chunks = Chunks::new(2, 2);
    let other = Arc::clone(&chunks);
    let taker = thread::spawn(move || other.take(1).len());
    let taken = chunks.take(1).len();
    assert_eq!(taken + taker.join().expect("it took a chunk"), 2, "exhausted with a chunk left");
}

#[test]
fn each_chunk_has_one_holder_who_sees_what_the_last_one_did() {
    for body in [hand_over, count, return_first, share] {
        loom::model(body);
    }
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_relaxed_put_is_caught() {
    with(Mutant::RelaxedPut, hand_over);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_relaxed_take_is_caught() {
    with(Mutant::RelaxedTake, hand_over);
}

#[test]
#[should_panic(expected = "the depth is not what was put")]
fn a_relaxed_depth_is_caught() {
    with(Mutant::RelaxedDepth, count);
}

#[test]
#[should_panic(expected = "a chunk has two holders, or none")]
fn a_top_that_comes_back_unchanged_is_caught() {
    with(Mutant::UncountedVisit, return_first);
}
