//! What the threads of a run have in common.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clock::MonotonicClock;

/// What the threads tell each other.
pub(super) struct Told {
    /// One for all: its copies have one origin.
    pub clock: MonotonicClock,
    /// All connections are open.
    pub ready: AtomicBool,
    pub stop: AtomicBool,
}

impl Told {
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// What both services see of the connections: the next request of each, and what went wrong.
#[derive(Debug)]
pub(super) struct Seen {
    pub next: Vec<AtomicU64>,
    pub out_of_order: AtomicU64,
    pub failures: AtomicU64,
}
