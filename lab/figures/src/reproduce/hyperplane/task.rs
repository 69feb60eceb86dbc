//! What is done with an item: the tasks of the figures. The paper's services are in `services`.

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

impl PartialEq for Task {
    fn eq(&self, other: &Self) -> bool {
        self.slug == other.slug
    }
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

/// Work of a given length.
pub const TASKS: [Task; 3] = [SHORT, MIDDLE, LONG];
