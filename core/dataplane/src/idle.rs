//! When an idle elastic thread stops spinning: first a budget, then Seastar's two-phase sleep.
//!
//! The policy is a state machine; the sleeping itself is the driver's, which arms every source,
//! disarms again where one has work, and else blocks until the moment given here.

use clock::{Duration, Instant};

use crate::cycle::Progress;

/// How long a thread looks for a word of another thread, once it waits for one: several times what it takes to wake
/// that one. A word that comes later wakes this one.
const AWAITED: Duration = Duration::from_micros(500);

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
    /// Since when it waits for other threads.
    awaiting_since: Option<Instant>,
}

impl Idle {
    /// A thread that had work at `now`.
    pub fn new(policy: IdlePolicy, now: Instant) -> Self {
        Self { policy, last_work: now, awaiting_since: None }
    }

    /// As [`after_cycle`](Self::after_cycle), for a thread that holds somebody up while it spins, and does so for no
    /// longer than `most`.
    pub fn after_cycle_within(
        &mut self,
        most: Duration,
        now: Instant,
        progress: &Progress,
    ) -> Option<Duration> {
        let spin = self.policy.spin.map_or(most, |spin| spin.min(most));
        self.after(IdlePolicy { spin: Some(spin), ..self.policy }, now, progress)
    }

    /// Tells of a cycle that ended at `now`. Answers how long the thread may sleep, if it is time
    /// for that: until the next deadline, bounded by the policy.
    pub fn after_cycle(&mut self, now: Instant, progress: &Progress) -> Option<Duration> {
        self.after(self.policy, now, progress)
    }

    fn after(&mut self, policy: IdlePolicy, now: Instant, progress: &Progress) -> Option<Duration> {
        let Progress { worked, awaits, next_deadline, .. } = *progress;
        if !awaits {
            self.awaiting_since = None;
        }
        if worked {
            self.last_work = now;
            return None;
        }
        let spin = policy.spin?;
        let awaited = awaits && now.since(*self.awaiting_since.get_or_insert(now)) < AWAITED;
        if awaited || now.since(self.last_work) < spin {
            return None;
        }
        let until = next_deadline.map_or(policy.longest_sleep, |deadline| deadline.since(now));
        (!until.is_zero()).then_some(until.min(policy.longest_sleep))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(worked: bool, next_deadline: Option<Instant>) -> Progress {
        Progress { worked, next_deadline, ..Progress::default() }
    }

    const AT: fn(u64) -> Instant = Instant::from_micros;

    #[test]
    fn spins_its_budget_then_sleeps_until_the_deadline() {
        let policy = IdlePolicy::default();
        let mut idle = Idle::new(policy, Instant::ZERO);
        assert_eq!(idle.after_cycle(AT(49), &of(false, None)), None);
        assert_eq!(idle.after_cycle(AT(50), &of(false, None)), Some(policy.longest_sleep));
        let deadline = Some(AT(60));
        assert_eq!(idle.after_cycle(AT(50), &of(false, deadline)), Some(Duration::from_micros(10)));
        assert_eq!(idle.after_cycle(AT(60), &of(false, deadline)), None, "it is due: do not sleep");
        assert_eq!(idle.after_cycle(AT(61), &of(true, None)), None);
        assert_eq!(
            idle.after_cycle(AT(100), &of(false, None)),
            None,
            "work starts the budget anew"
        );
    }

    #[test]
    fn a_thread_that_holds_somebody_up_sleeps_soon() {
        let none = Duration::ZERO;
        let policy = IdlePolicy::default();
        let mut idle = Idle::new(policy, Instant::ZERO);
        assert_eq!(idle.after_cycle_within(none, AT(1), &of(true, None)), None);
        let within =
            |idle: &mut Idle, spin, at| idle.after_cycle_within(spin, AT(at), &of(false, None));
        assert_eq!(within(&mut idle, none, 2), Some(policy.longest_sleep));
        assert_eq!(within(&mut idle, Duration::from_micros(5), 4), None);
        assert_eq!(within(&mut idle, Duration::from_micros(5), 6), Some(policy.longest_sleep));
        assert_eq!(idle.after_cycle(AT(7), &of(false, None)), None, "its budget is its own again");
        let due = of(false, Some(AT(8)));
        assert_eq!(idle.after_cycle_within(none, AT(8), &due), None, "it is due: do not sleep");
    }

    #[test]
    fn spins_for_ever_where_told_to() {
        let policy = IdlePolicy { spin: None, ..IdlePolicy::default() };
        let mut idle = Idle::new(policy, Instant::ZERO);
        assert_eq!(idle.after_cycle(Instant::from_millis(99_999), &of(false, None)), None);
    }

    #[test]
    fn a_word_that_is_awaited_is_spun_for_but_not_for_ever() {
        let policy = IdlePolicy::default();
        let mut idle = Idle::new(policy, Instant::ZERO);
        let awaits = Progress { awaits: true, ..of(false, None) };
        assert_eq!(idle.after_cycle(AT(200), &awaits), None);
        // What it does meanwhile does not lengthen it.
        assert_eq!(idle.after_cycle(AT(600), &Progress { worked: true, ..awaits }), None);
        assert_eq!(idle.after_cycle(AT(699), &awaits), None);
        assert_eq!(idle.after_cycle(AT(700), &awaits), Some(policy.longest_sleep));
        // The next one has a budget of its own.
        assert_eq!(idle.after_cycle(AT(800), &of(false, None)), Some(policy.longest_sleep));
        assert_eq!(idle.after_cycle(AT(900), &awaits), None);
    }
}
