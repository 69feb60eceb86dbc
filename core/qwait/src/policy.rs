//! Service policies, and the arbiter that carries them out: where a search begins, and where the
//! next one does.

/// Which of several ready queues is served first (HyperPlane §IV-B).
///
/// A queue that is ready, enabled and added is selected after at most so many selections of others
/// by the same consumer: round robin, N - 1; weighted round robin, the sum of the other queues'
/// weights; strict priority, no bound. In a shared set each of the C consumers has a cursor of its
/// own, so the bound over all of them is C times that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ServicePolicy {
    /// In circular order, one service each.
    #[default]
    RoundRobin,
    /// In circular order; a queue is selected as many times in a row as its weight says, while it
    /// has work.
    WeightedRoundRobin,
    /// The lowest number first. Starves higher numbers, as the paper warns.
    StrictPriority,
}

/// The arbiter's registers.
#[derive(Debug)]
pub(crate) struct Arbiter {
    policy: ServicePolicy,
    /// Where the next search begins.
    pub(crate) cursor: u32,
    credit: u32,
    capacity: u32,
}

impl Arbiter {
    /// `start`: where the first search begins, so that several consumers need not begin at one place.
    pub(crate) fn new(policy: ServicePolicy, capacity: u32, start: u32) -> Self {
        let fixed = policy == ServicePolicy::StrictPriority;
        let cursor = if fixed { 0 } else { start % capacity.max(1) };
        Self { policy, cursor, credit: 0, capacity }
    }

    /// The queue was selected. Its weight is asked for only where the policy needs it.
    #[inline]
    pub(crate) fn grant(&mut self, selected: u32, weight: impl FnOnce() -> u32) {
        debug_assert!(selected < self.capacity);
        match self.policy {
            ServicePolicy::StrictPriority => return,
            ServicePolicy::RoundRobin => {}
            ServicePolicy::WeightedRoundRobin => {
                if selected != self.cursor || self.credit == 0 {
                    self.credit = weight().max(1);
                }
                self.credit -= 1;
                if self.credit > 0 {
                    self.cursor = selected;
                    return;
                }
            }
        }
        let next = selected + 1;
        self.cursor = if next == self.capacity { 0 } else { next };
    }
}
