//! Our own policy: what the measured load needs, rather than one step at a time.
//!
//! The elastic threads are FCFS servers (IX §4.6) whose service time is measured, so the capacity of the step
//! in force is known, and by the predicted throughput ratios that of every other. With n threads that together
//! serve C packets a second, of which L arrive, a packet waits longer than T with probability
//! exp(-(C - L) T / n), if service and arrivals are as irregular as exponential ones. The tail stays at 1 % while
//!
//! ```text
//! C >= imbalance x L + n ln(100) / T
//! ```
//!
//! and the first step of the sequence for which that holds is the one to take, wherever it stands. C is what they
//! serve at that edge, where a packet waits T / ln(100) on average and batches are as long as queues are then ([`Batching`]).
//!
//! - *up* at once, with the shortest horizon where that says more than chance does, and with enough on top to
//!   work off the packets that wait already within [`Target::drain_ns`]; the fastest clock bridges the time
//!   until cores and flow groups have moved;
//! - *down* only to what the greatest need within [`Target::hold_ns`] asks for.

use std::collections::VecDeque;

use super::{Batching, Because, Policy, Sequence, Step, Thresholds, View, Wish, by_the_rule};

/// What to reach, and how cautiously.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// T: 99 % of the packets wait no longer, in nanoseconds.
    pub delay_ns: f64,
    /// Waiting packets are worked off within this, in nanoseconds.
    pub drain_ns: f64,
    /// How long less must have been enough before a step is given up, in nanoseconds.
    pub hold_ns: u64,
    /// Standard deviations beyond which a change of the arrival rate, or of the queues, is none of chance.
    pub chance: f64,
    /// The headroom beside the formula, as a share of the load: errors of the measurement.
    pub margin: f64,
    /// What less must leave beside that, as a share of the load, so that it is not taken back at once.
    pub release_margin: f64,
}

impl Target {
    /// For an objective at the 99th percentile over all of the latency, of which `floor_ns` is not queueing.
    /// T is 0.85 of what is left: the tail of a single second scatters around that of the long run.
    pub fn of_objective(objective_ns: f64, floor_ns: f64) -> Self {
        Self {
            delay_ns: 0.85 * (objective_ns - floor_ns).max(1_000.0),
            drain_ns: 5_000_000.0,
            hold_ns: 500_000_000,
            chance: 5.0,
            margin: 0.002,
            release_margin: 0.01,
        }
    }
}

/// ln 100: the tail at the 99th percentile.
const LN_100: f64 = 4.605_170_185_988_092;
/// A thread is late by itself when packets wait for so many T: chance does that once in 100,000 times.
const HOPELESS: f64 = 2.5;
/// Needs are remembered in so many slots of the hold time, each with the greatest of its own.
const SLOTS: u64 = 16;

/// See the module's comment.
pub struct LatencyTarget {
    name: String,
    sequence: Sequence,
    threads: Vec<f64>,
    target: Target,
    /// The greatest need of each slot of the hold time, the oldest first: its number and the step.
    needs: VecDeque<(u64, usize)>,
}

impl LatencyTarget {
    /// Over the sequence of `sequence`, whose own rule is not asked; `threads_per_core` is the machine's.
    pub fn new(sequence: Sequence, threads_per_core: u32, target: Target) -> Self {
        let of = |step: &Step| {
            let per_core = if step.configuration.hyperthreads { threads_per_core } else { 1 };
            f64::from(step.configuration.cores * per_core)
        };
        let threads = sequence.steps().iter().map(of).collect();
        let name = format!("latency-target over {}", sequence.name());
        Self { name, sequence, threads, target, needs: VecDeque::new() }
    }

    /// The load to provide for, in packets per second.
    fn load(&self, view: &View) -> f64 {
        let [fast, middle, _] = view.arrivals_per_s;
        // The packets of a period are a Poisson count, which deviates by its root; where it is small its upper tail
        // is longer than that, by a third of the squared number of deviations (Bernstein's bound).
        let chance = self.target.chance;
        let period_ns = view.period_ns.max(1) as f64;
        let rises = |rate: f64, horizon_ns: f64| {
            let seen = |rate: f64| rate * horizon_ns / 1e9;
            let usual = seen(middle);
            seen(rate) > usual + chance * usual.sqrt() + chance * chance / 3.0
        };
        let mut load = middle;
        if rises(fast, 4.0 * period_ns) {
            load = load.max(fast);
        }
        if rises(view.arrivals_now_per_s, period_ns) {
            load = load.max(view.arrivals_now_per_s);
        }
        load
    }

    /// Whether more waits than chance explains. At the edge of the target the wait of a thread is exponential
    /// with the mean T / ln 100; that of all of them together scatters less the more there are. A single thread
    /// counts by itself only far beyond.
    fn is_late(&self, view: &View) -> bool {
        let Target { delay_ns, chance, .. } = self.target;
        let Some(capacity_per_speed) = view.capacity_per_speed else {
            return view.delay_ns > delay_ns;
        };
        let at = view.at.min(self.threads.len() - 1);
        let capacity = self.capacity(at, capacity_per_speed, &view.batching);
        let mean_ns = view.waiting_packets / capacity.max(1.0) * 1e9;
        let usual_ns = delay_ns / LN_100;
        mean_ns > usual_ns * (1.0 + chance / self.threads[at].sqrt())
            || view.delay_ns > HOPELESS * delay_ns
    }

    /// What the step at `at` serves where the tail is at the target: packets wait T / ln 100 on average, and so many
    /// share a cycle as come to a thread in that time.
    fn capacity(&self, at: usize, per_speed: f64, batching: &Batching) -> f64 {
        let speed = self.sequence.steps()[at].speed;
        let waits_s = self.target.delay_ns / LN_100 / 1e9;
        let mut capacity = speed * per_speed;
        if batching.cycle_ns > 0.0 {
            // Longer batches, more capacity, longer batches: it has settled after a few.
            for _ in 0..4 {
                let batch = capacity / self.threads[at] * waits_s;
                capacity = speed * batching.capacity(per_speed, batch);
            }
        }
        capacity
    }

    /// The first step that serves the load within the target, with `margin` beside it.
    fn need(&self, view: &View, capacity_per_speed: f64, late: bool, margin: f64) -> usize {
        let Target { mut delay_ns, drain_ns, .. } = self.target;
        if view.batching.cycle_ns > 0.0 {
            // Answers leave with their batch, which takes T / ln 100 there: half of that later on average.
            delay_ns *= 1.0 - 0.5 / LN_100;
        }
        let mut load = self.load(view) * view.imbalance.max(1.0) * (1.0 + margin);
        if late {
            load += view.waiting_packets / drain_ns * 1e9;
        }
        let steps = self.sequence.steps();
        let enough = |&at: &usize| {
            self.capacity(at, capacity_per_speed, &view.batching)
                >= load + self.threads[at] * LN_100 / delay_ns * 1e9
        };
        (0..steps.len()).find(enough).unwrap_or(steps.len() - 1)
    }

    /// Nothing is known of the service time yet, and will not be while next to nothing is served, as after a
    /// controller was started anew in a quiet hour: IX's rule, one step up or down.
    fn without_prediction(&self, view: &View, late: bool) -> Wish {
        let to = view.at + 1;
        if late {
            let more = Wish::Go { to, boost: true, because: Because::Delay };
            return if to < self.sequence.steps().len() { more } else { Wish::Stay };
        }
        let Target { delay_ns, .. } = self.target;
        let ixcp = Thresholds::ixcp();
        let thresholds = Thresholds { delay_ns, calm_delay_ns: delay_ns / 4.0, ..ixcp };
        by_the_rule(self.sequence.steps(), &thresholds, view)
    }

    /// Remembers a need; the greatest one within the hold time. None while that is not over yet.
    fn greatest(&mut self, now_ns: u64, need: usize) -> Option<usize> {
        let slot_ns = (self.target.hold_ns / SLOTS).max(1);
        let slot = now_ns / slot_ns;
        match self.needs.back_mut() {
            Some((last, most)) if *last == slot => *most = (*most).max(need),
            _ => self.needs.push_back((slot, need)),
        }
        let oldest = self.needs.front().map_or(slot, |front| front.0);
        let covered = slot.saturating_sub(oldest) >= SLOTS;
        while self.needs.front().is_some_and(|front| slot.saturating_sub(front.0) > SLOTS) {
            self.needs.pop_front();
        }
        let most = self.needs.iter().map(|need| need.1).max();
        covered.then_some(most).flatten()
    }
}

impl Policy for LatencyTarget {
    fn name(&self) -> &str {
        &self.name
    }

    fn steps(&self) -> &[Step] {
        self.sequence.steps()
    }

    fn wish(&mut self, view: &View) -> Wish {
        let late = self.is_late(view);
        let Some(capacity_per_speed) = view.capacity_per_speed else {
            return self.without_prediction(view, late);
        };
        let Target { margin, release_margin, .. } = self.target;
        let mut need = self.need(view, capacity_per_speed, late, margin);
        // The queue contradicts the prediction: believe the queue.
        if late && view.settled && need <= view.at {
            need = (view.at + 1).min(self.steps().len() - 1);
        }
        let kept = self.need(view, capacity_per_speed, late, margin + release_margin).max(need);
        let most = self.greatest(view.now_ns, kept);
        if need > view.at {
            let because = if late { Because::Delay } else { Because::Predicted };
            return Wish::Go { to: need, boost: true, because };
        }
        match most {
            Some(most) if most < view.at && view.settled && !late => {
                Wish::Go { to: most, boost: false, because: Because::Spare }
            }
            _ => Wish::Stay,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{Machine, Scaling};
    use crate::policy::Sequence;

    /// One core with one thread at the nominal clock serves so many packets a second.
    const PER_SPEED: f64 = 560_000.0;

    fn policy() -> LatencyTarget {
        let machine = Machine::ix();
        let target = Target::of_objective(500_000.0, 33_000.0);
        LatencyTarget::new(Sequence::energy(&machine, Scaling::ix()), 2, target)
    }

    fn view(now_ns: u64, at: usize, load: f64) -> View {
        View {
            now_ns,
            period_ns: 1_000_000,
            at,
            settled: true,
            delay_ns: 10_000.0,
            slow_delay_ns: 10_000.0,
            idle: 0.1,
            waiting_packets: 1.0,
            arrivals_now_per_s: load,
            arrivals_per_s: [load; 3],
            capacity_per_speed: Some(PER_SPEED),
            batching: Batching::UNKNOWN,
            imbalance: 1.0,
        }
    }

    fn to(wish: Wish) -> Option<usize> {
        match wish {
            Wish::Go { to, .. } => Some(to),
            Wish::Stay => None,
        }
    }

    #[test]
    fn it_goes_to_the_step_that_is_needed_and_not_through_those_between() {
        let mut policy = policy();
        // Seven cores at half the clock serve 1.96 M; with the tail's headroom 1.8 M needs them.
        assert_eq!(to(policy.wish(&view(0, 0, 1_800_000.0))), Some(6));
        assert_eq!(to(policy.wish(&view(0, 0, 50_000.0))), None);
        assert_eq!(to(policy.wish(&view(0, 0, 1e9))), Some(21), "there is no more");
    }

    #[test]
    fn a_rise_counts_at_once_and_chance_does_not() {
        let with_now = |now: f64| View { arrivals_now_per_s: now, ..view(0, 6, 1_800_000.0) };
        let mut policy = policy();
        assert_eq!(to(policy.wish(&with_now(1_900_000.0))), None, "2.4 deviations");
        assert_eq!(to(policy.wish(&with_now(2_300_000.0))), Some(8));
    }

    #[test]
    fn a_few_packets_together_are_chance_where_few_come() {
        // 2,000 packets a second are all that a thread serves, and 750 come: less than one in a period.
        let target = Target::of_objective(6_000_000.0, 700_000.0);
        let mut policy =
            LatencyTarget::new(Sequence::energy(&Machine::ix(), Scaling::ix()), 2, target);
        let quiet = View { capacity_per_speed: Some(4_000.0), ..view(0, 0, 750.0) };
        let [_, middle, slow] = quiet.arrivals_per_s;
        let now = |arrivals_now_per_s: f64, fast: f64| View {
            arrivals_now_per_s,
            arrivals_per_s: [fast, middle, slow],
            ..quiet
        };
        // 8 of them in a millisecond, as four requests and what confirms their answers; 15 in four.
        assert_eq!(to(policy.wish(&now(8_000.0, 3_750.0))), None);
        assert!(to(policy.wish(&now(14_000.0, 3_750.0))) > Some(0));
        assert!(to(policy.wish(&now(8_000.0, 6_000.0))) > Some(0));
    }

    #[test]
    fn queues_that_contradict_the_prediction_are_believed() {
        let mut policy = policy();
        let waits = |waiting_packets| View { waiting_packets, ..view(0, 3, 10_000.0) };
        assert_eq!(to(policy.wish(&waits(250.0))), None, "chance explains it");
        let late = waits(500.0);
        assert_eq!(to(policy.wish(&late)), Some(4));
        let one_thread = View { delay_ns: 1_000_000.0, ..waits(1.0) };
        assert_eq!(to(policy.wish(&one_thread)), Some(4));
        let unknown = View { capacity_per_speed: None, delay_ns: 400_000.0, ..late };
        assert_eq!(to(policy.wish(&unknown)), Some(4));
        assert_eq!(to(policy.wish(&View { delay_ns: 0.0, ..unknown })), None);
        // Many waiting packets ask for more than the load alone.
        let drained = View { waiting_packets: 10_000.0, ..late };
        assert!(to(policy.wish(&drained)) > Some(4));
    }

    #[test]
    fn in_a_quiet_hour_nothing_is_kept_for_want_of_knowledge() {
        let mut policy = policy();
        let quiet = View {
            capacity_per_speed: None,
            waiting_packets: 0.0,
            idle: 0.999,
            ..view(0, 3, 100.0)
        };
        let less = Wish::Go { to: 2, boost: false, because: Because::Idle };
        assert_eq!(policy.wish(&quiet), less);
        assert_eq!(policy.wish(&View { settled: false, ..quiet }), Wish::Stay);
        assert_eq!(policy.wish(&View { idle: 0.1, ..quiet }), Wish::Stay);
        assert_eq!(policy.wish(&View { at: 0, ..quiet }), Wish::Stay);
    }

    #[test]
    fn less_must_have_been_enough_for_the_hold_time() {
        let mut policy = policy();
        let mut now_ns = 0;
        let mut released = None;
        // A short need of all of step 6 in the middle puts the release off.
        while released.is_none() && now_ns < 3_000_000_000 {
            let load = if now_ns == 300_000_000 { 1_800_000.0 } else { 100_000.0 };
            released = to(policy.wish(&view(now_ns, 6, load))).map(|to| (to, now_ns / 1_000_000));
            now_ns += 1_000_000;
        }
        let (to, at_ms) = released.expect("it is released");
        assert_eq!(to, 0);
        assert!((800..900).contains(&at_ms), "{at_ms} ms");
    }
}
