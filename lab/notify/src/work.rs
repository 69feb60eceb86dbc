//! What a consumer does with an item, and how long that takes.
//!
//! ```
//! use notify::{Chain, Item, Work};
//! let step_ns = Chain::step_ns();
//! let mut work = Chain::of(400.0, step_ns);
//! work.serve(&Item::default());
//! ```
//!
//! The six services of the paper's evaluation (§V-A) come in by the same door: one that implements
//! [`Work`] and keeps its requests ready, the next of which it serves for each item.

use std::hint::black_box;
use std::time::Instant;

/// One work item, as it comes out of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Which queue it lay in.
    pub queue: u32,
    /// Its number in that queue.
    pub number: u32,
    /// When it was sent, in nanoseconds of the window's clock; 0 where nobody asks.
    pub sent_ns: u64,
}

/// What is done with an item: the task of the paper's figures.
pub trait Work: Send {
    /// Serves one item. Must end by itself, and neither sleep nor call the operating system: it runs at
    /// real-time priority.
    fn serve(&mut self, item: &Item);
}

/// Nothing is done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl Work for Nothing {
    fn serve(&mut self, _: &Item) {}
}

/// A chain of multiplications, each of which needs the one before: time that no processor can shorten
/// by doing something else at once, and that touches no memory.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    steps: u32,
    state: u64,
}

impl Chain {
    /// So many multiplications.
    pub fn new(steps: u32) -> Self {
        Self { steps, state: 1 }
    }

    /// As many as take `ns`, where one takes `step_ns`; one at least.
    pub fn of(ns: f64, step_ns: f64) -> Self {
        Self::new((ns / step_ns).round().clamp(1.0, 1e9) as u32)
    }

    /// Multiplications of one item.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// How long one multiplication takes here: the fastest of several measurements, in nanoseconds. A
    /// slower one was interrupted.
    pub fn step_ns() -> f64 {
        const STEPS: u32 = 100_000;
        let mut chain = Self::new(STEPS);
        let measure = |_| {
            let begun = Instant::now();
            chain.serve(&Item::default());
            begun.elapsed().as_nanos() as f64 / f64::from(STEPS)
        };
        // A clock that stood still would make a chain without end.
        (0..20).map(measure).fold(f64::INFINITY, f64::min).max(0.05)
    }
}

impl Work for Chain {
    #[inline]
    fn serve(&mut self, item: &Item) {
        let mut state = self.state ^ u64::from(item.number);
        for _ in 0..self.steps {
            // The shift keeps the compiler from making one multiplication of several.
            state = (state ^ state >> 32).wrapping_mul(0x2545_f491_4f6c_dd1d);
        }
        self.state = black_box(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_as_long_as_asked_for() {
        assert_eq!(Chain::of(400.0, 1.0).steps(), 400);
        assert_eq!(Chain::of(1_000.0, 0.8).steps(), 1_250);
        assert_eq!(Chain::of(0.0, 1.0).steps(), 1);
        assert_eq!(Chain::of(f64::INFINITY, 1.0).steps(), 1_000_000_000);
        assert!(Chain::step_ns().is_finite());
    }

    #[test]
    fn every_step_counts() {
        let run = |steps| {
            let mut chain = Chain::new(steps);
            chain.serve(&Item { number: 2, ..Item::default() });
            chain.state
        };
        assert_ne!(run(1), run(2));
    }
}
