//! What is done with an item: the tasks of the figures.
//!
//! A service of the paper's evaluation (§V-A: encapsulation, encryption, steering, erasure coding, RAID,
//! dispatching) is one more [`Task`]: `make` answers a [`Work`] that holds the service and requests for
//! it, and serves the next of them for each item. Name it in [`TASKS`], and in [`ENCAPSULATION`] the one
//! that Figure 3 asks for.

use notify::{Chain, Work};

/// One task.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// As it stands in titles.
    pub name: &'static str,
    /// In the names of charts.
    pub slug: &'static str,
    /// One for a consumer, where a step of a chain takes so many nanoseconds.
    pub make: fn(f64) -> Box<dyn Work>,
}

/// 100 ns of work.
pub const SHORT: Task =
    Task { name: "100 ns", slug: "100", make: |step_ns| Box::new(Chain::of(100.0, step_ns)) };
/// 400 ns of work.
pub const MIDDLE: Task =
    Task { name: "400 ns", slug: "400", make: |step_ns| Box::new(Chain::of(400.0, step_ns)) };
/// 1 us of work.
pub const LONG: Task =
    Task { name: "1 us", slug: "1000", make: |step_ns| Box::new(Chain::of(1_000.0, step_ns)) };

/// All tasks of the comparison.
pub const TASKS: [Task; 3] = [SHORT, MIDDLE, LONG];

/// What Figure 3a does with a packet: a stand-in as long as a small encapsulation.
pub const ENCAPSULATION: Task = SHORT;
