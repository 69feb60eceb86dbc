//! The control loop's rule for a single step (IX §4.6): add one when the estimated queueing delay exceeds the
//! bound; remove one when idle time exceeds its share of the throughput.

use super::{Because, Step, View, Wish};

/// The rule's numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// The upper bound of the acceptable queueing delay, in nanoseconds.
    pub delay_ns: f64,
    /// Nothing is removed while the mean delay over the longest horizon exceeds this, in nanoseconds.
    pub calm_delay_ns: f64,
    /// A step is removed when idle time exceeds its share of the throughput by this factor. IXCP: 1.2.
    pub idle_factor: f64,
}

impl Thresholds {
    /// The authors' IXCP adds at 32 waiting packets and removes under 8; a packet of the paper's service takes
    /// 2.8 to 5.5 us on a thread of its (half of that time on average over the steps), so these are the same
    /// bounds as delays.
    pub fn ixcp() -> Self {
        Self { delay_ns: 128_000.0, calm_delay_ns: 32_000.0, idle_factor: 1.2 }
    }
}

/// One step up, one step down, or none.
pub fn by_the_rule(steps: &[Step], thresholds: &Thresholds, view: &View) -> Wish {
    let go = |to, because| Wish::Go { to, boost: false, because };
    let can_add = view.at + 1 < steps.len();
    if can_add && view.delay_ns > thresholds.delay_ns {
        return go(view.at + 1, Because::Delay);
    }
    let calm = view.settled && view.slow_delay_ns <= thresholds.calm_delay_ns;
    if view.at > 0 && calm && view.idle > thresholds.idle_factor * share(steps, view.at) {
        return go(view.at - 1, Because::Idle);
    }
    Wish::Stay
}

/// What step `at` adds, as a share of the throughput with it: the idle time that makes it superfluous.
fn share(steps: &[Step], at: usize) -> f64 {
    1.0 - steps[at - 1].speed / steps[at].speed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{Machine, Scaling};
    use crate::policy::{Policy, Sequence};

    pub fn view(at: usize) -> View {
        View {
            now_ns: 0,
            period_ns: 100_000_000,
            at,
            settled: true,
            delay_ns: 0.0,
            slow_delay_ns: 0.0,
            idle: 0.0,
            waiting_packets: 0.0,
            arrivals_now_per_s: 0.0,
            arrivals_per_s: [0.0; 3],
            capacity_per_speed: None,
            batching: crate::policy::Batching::UNKNOWN,
            imbalance: 1.0,
        }
    }

    #[test]
    fn shares_are_those_of_ixcp() {
        let policy = Sequence::energy(&Machine::ix(), Scaling::ix());
        let steps = policy.steps();
        // The second core adds a half, hyperthreads 1 - 1 / 1.3, the first clock step 1 / 13, Turbo a tenth.
        for (at, expected) in
            [(1, 0.5), (7, 0.125), (8, 1.0 - 1.0 / 1.3), (9, 1.0 / 13.0), (21, 0.1)]
        {
            assert!((share(steps, at) - expected).abs() < 1e-9, "{at}: {}", share(steps, at));
        }
    }

    #[test]
    fn delay_adds_and_idle_time_removes() {
        let policy = Sequence::energy(&Machine::ix(), Scaling::ix());
        let rule = |view: &View| by_the_rule(policy.steps(), &Thresholds::ixcp(), view);
        let to = |wish| match wish {
            Wish::Go { to, .. } => Some(to),
            Wish::Stay => None,
        };
        let late = |at| View { delay_ns: 200_000.0, ..view(at) };
        assert_eq!(to(rule(&late(0))), Some(1));
        assert_eq!(to(rule(&late(21))), None, "there is no more");
        let idle = |at, idle| View { idle, ..view(at) };
        assert_eq!(to(rule(&idle(7, 0.1))), None);
        assert_eq!(to(rule(&idle(7, 0.151))), Some(6));
        assert_eq!(to(rule(&idle(0, 1.0))), None, "the base state stays");
        assert_eq!(to(rule(&View { settled: false, ..idle(7, 0.9) })), None);
        assert_eq!(to(rule(&View { slow_delay_ns: 50_000.0, ..idle(7, 0.9) })), None);
    }
}
