//! When an idle elastic thread stops spinning: first a budget, then Seastar's two-phase sleep.
//!
//! The policy is a state machine; the sleeping itself is the driver's, which arms every source,
//! disarms again where one has work, and else blocks until the moment given here.

use clock::{Duration, Instant};

/// How long to spin, and how long to sleep at most.
#[derive(Clone, Copy, Debug)]
pub struct IdlePolicy {
    /// Time without work after which the thread goes to sleep. `None`: never, it spins for ever.
    pub spin: Option<Duration>,
    /// Longest sleep: a bound on how late anything is noticed that does not wake us.
    pub longest_sleep: Duration,
}

impl Default for IdlePolicy {
    fn default() -> Self {
        Self { spin: Some(Duration::from_micros(50)), longest_sleep: Duration::from_millis(100) }
    }
}

/// See the module's comment.
#[derive(Debug)]
pub struct Idle {
    policy: IdlePolicy,
    last_work: Instant,
}

impl Idle {
    /// A thread that had work at `now`.
    pub fn new(policy: IdlePolicy, now: Instant) -> Self {
        Self { policy, last_work: now }
    }

    /// Tells of a cycle that ended at `now`. Answers how long the thread may sleep, if it is time
    /// for that: until `next_deadline`, bounded by the policy.
    pub fn after_cycle(
        &mut self,
        now: Instant,
        worked: bool,
        next_deadline: Option<Instant>,
    ) -> Option<Duration> {
        if worked {
            self.last_work = now;
            return None;
        }
        let spin = self.policy.spin?;
        if now.since(self.last_work) < spin {
            return None;
        }
        let until = next_deadline.map_or(self.policy.longest_sleep, |deadline| deadline.since(now));
        (!until.is_zero()).then_some(until.min(self.policy.longest_sleep))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_its_budget_then_sleeps_until_the_deadline() {
        let policy = IdlePolicy::default();
        let mut idle = Idle::new(policy, Instant::ZERO);
        let at = Instant::from_micros;
        assert_eq!(idle.after_cycle(at(49), false, None), None);
        assert_eq!(idle.after_cycle(at(50), false, None), Some(policy.longest_sleep));
        let deadline = Some(at(60));
        assert_eq!(idle.after_cycle(at(50), false, deadline), Some(Duration::from_micros(10)));
        assert_eq!(idle.after_cycle(at(60), false, deadline), None, "it is due: do not sleep");
        assert_eq!(idle.after_cycle(at(61), true, None), None);
        assert_eq!(idle.after_cycle(at(100), false, None), None, "work starts the budget anew");
    }

    #[test]
    fn spins_for_ever_where_told_to() {
        let policy = IdlePolicy { spin: None, ..IdlePolicy::default() };
        let mut idle = Idle::new(policy, Instant::ZERO);
        assert_eq!(idle.after_cycle(Instant::from_millis(99_999), false, None), None);
    }
}
