//! How the one producer tells the list of ready queues which queue became ready: a ring of their numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Activations on their way from the one producer to the list: a ring with a place for every queue,
/// which is on its way once at most.
#[derive(Debug)]
pub struct Activations {
    places: Box<[AtomicU32]>,
    tail: Line,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU32);

impl Activations {
    /// Room for one activation of each queue.
    pub(crate) fn new(queues: u32) -> Arc<Self> {
        let places = (0..queues.next_power_of_two()).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self { places, tail: Line::default() })
    }

    fn place(&self, index: u32) -> &AtomicU32 {
        &self.places[(index & (self.places.len() as u32 - 1)) as usize]
    }

    /// By the one producer, on the edge from empty to non-empty.
    pub(crate) fn push(&self, queue: u32) {
        let tail = self.tail.0.load(Ordering::Relaxed);
        self.place(tail).store(queue, Ordering::Relaxed);
        self.tail.0.store(tail.wrapping_add(1), Ordering::Release);
    }

    /// How many were pushed, wrapping.
    #[inline]
    pub(crate) fn tail(&self) -> u32 {
        self.tail.0.load(Ordering::Acquire)
    }

    /// The queue of a push before the tail.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> u32 {
        self.place(index).load(Ordering::Relaxed)
    }
}
