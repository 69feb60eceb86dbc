//! Pareto analysis of static configurations (IX §5.3): which of them is best at which load, the sequence that
//! follows, and what a controller could win at most that always had the best one.
//!
//! ```
//! use control::pareto::Frontier;
//! use control::server::ServerModel;
//! let model = ServerModel::ix();
//! let frontier = Frontier::energy(&model);
//! assert_eq!(frontier.candidates().len(), 224);
//! let best = frontier.best(1_000_000.0).expect("it can be served");
//! // §5.4: cores first, hyperthreads and clocks only when there are no more.
//! assert_eq!(best.configuration.to_string(), "4 cores, 1.2 GHz");
//! ```

use crate::configuration::{Clock, Configuration};
use crate::policy::{Sequence, Step};
use crate::server::ServerModel;

/// What is to be as small, or as great, as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// The least power, in watts.
    Energy,
    /// The greatest background throughput, over that without the latency-sensitive service.
    Consolidation,
}

/// A static configuration that may be part of the frontier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// It.
    pub configuration: Configuration,
    /// The highest load that keeps the objective of latency, in requests per second.
    pub capacity_rps: f64,
    /// What it draws, or leaves, without load and at its capacity; in between it is linear.
    ends: (f64, f64),
}

/// A point of the frontier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Best {
    /// The configuration that is best there.
    pub configuration: Configuration,
    /// Its power in watts, or its background throughput.
    pub value: f64,
}

/// See the module's comment.
#[derive(Debug, Clone)]
pub struct Frontier<'a> {
    model: &'a ServerModel,
    objective: Objective,
    candidates: Vec<Candidate>,
}

/// Loads at which the frontier is looked at, between 0 and the highest that can be served.
const GRID: usize = 2_000;

impl<'a> Frontier<'a> {
    fn of(
        model: &'a ServerModel,
        objective: Objective,
        allowed: impl Fn(&Configuration) -> bool,
    ) -> Self {
        let all = model.machine().configurations().into_iter().filter(allowed);
        let candidate = |configuration: Configuration| {
            let capacity_rps = model.capacity_rps(&configuration);
            let value = |rps| value(model, objective, &configuration, rps);
            Candidate { configuration, capacity_rps, ends: (value(0.0), value(capacity_rps)) }
        };
        let mut candidates: Vec<Candidate> = all.map(candidate).collect();
        candidates.sort_by(|a, b| a.capacity_rps.total_cmp(&b.capacity_rps));
        Self { model, objective, candidates }
    }

    /// Over all configurations (Figure 8a).
    pub fn energy(model: &'a ServerModel) -> Self {
        Self::of(model, Objective::Energy, |_| true)
    }

    /// Only the clock changes; all cores and hyperthreads run (Figure 9).
    pub fn clock_only(model: &'a ServerModel) -> Self {
        let most = model.machine().maximum();
        Self::of(model, Objective::Energy, |c| Configuration { clock: most.clock, ..*c } == most)
    }

    /// The background job runs on what is left, at the nominal clock: Turbo would come "at an
    /// energy/throughput premium" (Figure 8b). The whole machine with Turbo is there for what is beyond.
    pub fn consolidation(model: &'a ServerModel) -> Self {
        let machine = model.machine();
        let (nominal, most) = (machine.nominal_clock(), machine.maximum());
        Self::of(model, Objective::Consolidation, |c| c.clock == nominal || *c == most)
    }

    /// What it is about.
    pub fn objective(&self) -> Objective {
        self.objective
    }

    /// All configurations that were considered, by what they serve.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// What a configuration draws, or leaves to the background job, at a load that it serves.
    pub fn value(&self, configuration: &Configuration, rps: f64) -> f64 {
        value(self.model, self.objective, configuration, rps)
    }

    fn is_better(&self, value: f64, than: f64) -> bool {
        match self.objective {
            Objective::Energy => value < than,
            Objective::Consolidation => value > than,
        }
    }

    /// The best configuration at a load; of equals one without Turbo, and then the one that serves most. None
    /// where none serves it.
    pub fn best(&self, rps: f64) -> Option<Best> {
        let mut best: Option<Best> = None;
        for candidate in self.candidates.iter().rev() {
            if candidate.capacity_rps < rps {
                break;
            }
            let value = candidate.value(rps);
            let is_better = |best: Best| {
                let without_turbo = best.configuration.clock == Clock::Turbo
                    && candidate.configuration.clock != Clock::Turbo;
                self.is_better(value, best.value) || value == best.value && without_turbo
            };
            if best.is_none_or(is_better) {
                best = Some(Best { configuration: candidate.configuration, value });
            }
        }
        best
    }

    /// What the best configuration gives at a load; at one that none serves, what the greatest does.
    pub fn bound(&self, rps: f64) -> f64 {
        let most = self.candidates.last();
        self.best(rps).map_or_else(
            || most.map_or(0.0, |most| most.value(most.capacity_rps)),
            |best| best.value,
        )
    }

    /// The mean bound over loads: what a controller that always had the best configuration would draw, or leave.
    pub fn mean_bound(&self, loads_rps: impl IntoIterator<Item = f64>) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for rps in loads_rps {
            sum += self.bound(rps);
            count += 1.0;
        }
        if count > 0.0 { sum / count } else { 0.0 }
    }

    /// The highest load that any configuration serves within the objective, in requests per second.
    pub fn most_rps(&self) -> f64 {
        self.candidates.last().map_or(0.0, |most| most.capacity_rps)
    }

    /// The frontier as a curve: loads in requests per second, and the best there.
    pub fn curve(&self, points: usize) -> Vec<(f64, Best)> {
        let most = self.most_rps();
        let load = |index: usize| most * index as f64 / points.max(1) as f64;
        (0..=points).filter_map(|index| Some((load(index), self.best(load(index))?))).collect()
    }

    /// The configurations that are part of the frontier, in the order of the loads at which they are best.
    pub fn members(&self) -> Vec<Configuration> {
        let mut members: Vec<Configuration> = Vec::new();
        for (_, best) in self.curve(GRID) {
            if !members.contains(&best.configuration) {
                members.push(best.configuration);
            }
        }
        members
    }

    /// The sequence that the frontier derives: its members, each serving more than the one before. None where
    /// nothing can be served.
    pub fn sequence(&self) -> Option<Sequence> {
        let machine = self.model.machine();
        let step = |configuration: Configuration| match self.objective {
            Objective::Energy => Step::alone(&machine, &self.model.scaling, configuration),
            Objective::Consolidation => self.model.shared(configuration),
        };
        let name = match self.objective {
            Objective::Energy => "derived for energy",
            Objective::Consolidation => "derived for consolidation",
        };
        Sequence::new(name, self.members().into_iter().map(step).collect())
    }
}

impl Candidate {
    /// What it draws, or leaves, at a load that it serves.
    fn value(&self, rps: f64) -> f64 {
        let part = if self.capacity_rps > 0.0 { rps / self.capacity_rps } else { 0.0 };
        self.ends.0 + (self.ends.1 - self.ends.0) * part
    }
}

/// Power in Turbo is that of a cool processor, the lower end of the paper's band: so the bound is the stricter
/// one.
fn value(
    model: &ServerModel,
    objective: Objective,
    configuration: &Configuration,
    rps: f64,
) -> f64 {
    match objective {
        Objective::Energy => model.watts(configuration, rps, 0.0),
        Objective::Consolidation => {
            let left = model.cores - configuration.cores;
            // Where Turbo runs, nothing is left.
            let clock = match configuration.clock {
                Clock::Turbo => model.machine().nominal_clock(),
                clock => clock,
            };
            model.background(left, clock)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Consolidation, Energy, Policy};
    use proptest::prelude::*;

    #[test]
    fn the_policies_of_the_paper_are_near_the_frontier() {
        let model = ServerModel::ix();
        let (machine, scaling) = (model.machine(), model.scaling);
        // §5.4: "the difference in overall impact in terms of energy spent is marginal".
        let frontier = Frontier::energy(&model);
        let sequence = Energy::new(&machine, scaling);
        let of_sequence = |rps: f64| {
            let steps = sequence.steps().iter().map(|step| &step.configuration);
            let enough = steps.filter(|c| model.capacity_rps(c) >= rps);
            enough.map(|c| frontier.value(c, rps)).fold(f64::MAX, f64::min)
        };
        let loads = (0..620).map(|index| f64::from(index) * 10_000.0);
        let (ours, best) = loads.fold((0.0, 0.0), |(ours, best), rps| {
            (ours + of_sequence(rps), best + frontier.bound(rps))
        });
        assert!(ours / best < 1.05, "{}", ours / best);
        // "For consolidation, Pareto and policy nearly identically overlap."
        let frontier = Frontier::consolidation(&model);
        let sequence = Consolidation::new(&machine, scaling);
        for step in sequence.steps() {
            let rps = model.capacity_rps(&step.configuration) - 1.0;
            let left = frontier.best(rps).expect("served").value;
            assert!((left - f64::from(step.background_cores) / 8.0).abs() < 1e-9);
        }
    }

    #[test]
    fn the_clock_alone_saves_little_at_low_loads() {
        let model = ServerModel::ix();
        let all = Frontier::energy(&model);
        let clocks = Frontier::clock_only(&model);
        assert_eq!(clocks.candidates().len(), 14);
        assert!(clocks.bound(300_000.0) > 1.5 * all.bound(300_000.0), "Figure 9");
        assert!((clocks.bound(6_000_000.0) / all.bound(6_000_000.0) - 1.0).abs() < 0.01);
        assert_eq!(all.bound(1e12), all.value(&model.machine().maximum(), all.most_rps()));
        assert_eq!(all.mean_bound([]), 0.0);
    }

    #[test]
    fn the_derived_sequence_grows_and_serves_everything() {
        let model = ServerModel::ix();
        for frontier in [Frontier::energy(&model), Frontier::consolidation(&model)] {
            let sequence = frontier.sequence().expect("a server serves something");
            assert!(sequence.steps().windows(2).all(|pair| pair[0].speed < pair[1].speed));
            let last = sequence.steps().last().expect("a step");
            assert_eq!(last.configuration, model.machine().maximum());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Against looking at every configuration, for servers of any parameters.
        #[test]
        fn the_frontier_is_what_brute_force_finds(
            cores in 1u32..9, gain in 1.0f64..1.8, turbo in 1.0f64..1.4, static_watts in 0.0f64..50.0,
            low in 0.6f64..1.0, extra in 0.0f64..0.5, load in 0.0f64..1.1,
        ) {
            let mut model = ServerModel::ix();
            (model.cores, model.scaling.hyperthread_gain) = (cores, gain);
            (model.scaling.turbo_gain, model.power.static_watts) = (turbo, static_watts);
            (model.power.volts_lowest, model.power.hyperthread_extra) = (low, extra);
            model.validate().expect("in range");
            for frontier in [Frontier::energy(&model), Frontier::consolidation(&model)] {
                let rps = load * frontier.most_rps();
                let serve = frontier.candidates().iter().filter(|c| c.capacity_rps >= rps);
                let values = serve.map(|c| frontier.value(&c.configuration, rps));
                let brute = match frontier.objective {
                    Objective::Energy => values.min_by(f64::total_cmp),
                    Objective::Consolidation => values.max_by(f64::total_cmp),
                };
                let found = frontier.best(rps).map(|best| best.value);
                prop_assert_eq!(found.is_some(), brute.is_some());
                let apart = found.unwrap_or(0.0) - brute.unwrap_or(0.0);
                prop_assert!(apart.abs() < 1e-9, "{:?} against {:?}", found, brute);
                // No curve of the frontier's members is ever beaten by a configuration that is none.
                for (rps, best) in frontier.curve(50) {
                    for other in frontier.candidates().iter().filter(|c| c.capacity_rps >= rps) {
                        let value = frontier.value(&other.configuration, rps);
                        let near = (value - best.value).abs() < 1e-9;
                        prop_assert!(near || !frontier.is_better(value, best.value));
                    }
                }
            }
        }
    }
}
