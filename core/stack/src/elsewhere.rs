//! Calls that another core is to execute.

use alloc::vec::Vec;

use domain::CallRecord;
use mem::{Mbuf, Pool};
use wire::Sum;

/// Calls on connections whose flow group is at home on another core, as that core is to execute them: in
/// order, with their payloads in the order of the calls that consume them.
#[derive(Debug, Default)]
pub struct Elsewhere {
    /// The calls.
    pub records: Vec<CallRecord>,
    /// What they send.
    pub payloads: Vec<(Mbuf, Sum)>,
}

impl Elsewhere {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Gives up the calls, and their buffers to `pool`.
    pub fn clear(&mut self, pool: &mut Pool) {
        self.records.clear();
        self.payloads.drain(..).for_each(|(mbuf, _)| pool.free(mbuf));
    }
}
