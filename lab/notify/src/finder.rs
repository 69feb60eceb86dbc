//! What the consumers have in common, whose ways to their items are in `polling`, `watching` and `linear`.
//!
//! All serve in round robin, one item a visit, as in the paper.

use crate::work::Item;

/// One consumer's way to its items.
pub trait Finder: Send {
    /// Looks once, at every queue where queues are polled, and takes one item if there is one.
    fn take(&mut self) -> Option<Item>;

    /// The item is out of its queue: counts the doorbell down, and arms what is to be armed. Before or
    /// after the work (Algorithm 1, lines 18 and 19).
    fn settle(&mut self, queue: u32);

    /// Looks at single queues so far, where queues are polled; 0 elsewhere.
    fn polls(&self) -> u64 {
        0
    }
}
