//! Pareto analysis of static configurations (IX §5.3): which of them is best at which load, the sequence that
//! follows, and what a controller could win at most that always had the best one.
//!
//! ```
//! use world::controlled::pareto::Frontier;
//! use world::controlled::server::ServerModel;
//! let model = ServerModel::ix();
//! let frontier = Frontier::energy(&model);
//! assert_eq!(frontier.candidates().len(), 224);
//! let (best, _watts) = frontier.best(1_000_000.0).expect("it can be served");
//! // §5.4: cores first, hyperthreads and clocks only when there are no more.
//! assert_eq!(best.configuration.to_string(), "4 cores, 1.2 GHz");
//! assert_eq!(Frontier::consolidation(&model).members().len(), 9);
//! assert!(frontier.clock_only().curve(100).len() > 50);
//! ```

use crate::controlled::server::ServerModel;
use control::policy::{Sequence, Step};
use control::{Clock, Configuration, Machine, Scaling};

/// What is to be saved: as little as possible of the one, as much as possible for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, clap::ValueEnum)]
#[strum(serialize_all = "lowercase")]
pub enum Objective {
    /// Power.
    Energy,
    /// Cores, for a background job.
    Consolidation,
}

/// A static configuration that may be part of the frontier: simulated, or measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// It.
    pub configuration: Configuration,
    /// The highest load that keeps the objective of latency, in requests per second.
    pub capacity_rps: f64,
    /// Its throughput as a sequence states it: predicted, or as measured.
    pub speed: f64,
    /// What it draws without load and at its capacity, in watts; in between it is linear. None where no power
    /// could be measured.
    pub watts: Option<(f64, f64)>,
    /// The background job's throughput on the cores that it leaves, over that on all of them.
    pub background: f64,
}

impl Candidate {
    /// On a simulated server. Power in Turbo is that of a cool processor, the lower end of the paper's band: so
    /// the bound is the stricter one.
    pub fn simulated(model: &ServerModel, configuration: Configuration) -> Self {
        let machine = model.machine();
        let capacity_rps = model.capacity_rps(&configuration);
        let watts = |rps| model.watts(&configuration, rps, 0.0);
        Self {
            configuration,
            capacity_rps,
            speed: model.scaling.speed(&machine, &configuration),
            watts: Some((watts(0.0), watts(capacity_rps))),
            background: left(&machine, &model.scaling, &configuration),
        }
    }

    /// As it was measured on a machine; `watts` without load and at its capacity, where power can be measured.
    pub fn measured(
        machine: &Machine,
        configuration: Configuration,
        capacity_rps: f64,
        watts: Option<(f64, f64)>,
    ) -> Self {
        let speed = capacity_rps;
        let background = left(machine, &Scaling::ix(), &configuration);
        Self { configuration, capacity_rps, speed, watts, background }
    }

    /// What it draws at a load that it serves, in watts.
    pub fn watts_at(&self, rps: f64) -> Option<f64> {
        let part = if self.capacity_rps > 0.0 { rps / self.capacity_rps } else { 0.0 };
        self.watts.map(|(idle, full)| idle + (full - idle) * part)
    }

    fn value(&self, objective: Objective, rps: f64) -> f64 {
        match objective {
            // Who has no power is no candidate for energy (`Frontier::of`).
            Objective::Energy => self.watts_at(rps).unwrap_or(f64::INFINITY),
            Objective::Consolidation => self.background,
        }
    }
}

/// What a configuration leaves to the background job. Where Turbo runs, nothing is left: then no clock counts.
fn left(machine: &Machine, scaling: &Scaling, configuration: &Configuration) -> f64 {
    let cores = machine.cores - configuration.cores.min(machine.cores);
    let clock = match configuration.clock {
        Clock::Turbo => machine.nominal_clock(),
        clock => clock,
    };
    scaling.background(machine, cores, clock)
}

/// A configuration that is part of the frontier, and the loads at which it is: looked at at some thousand loads
/// (so to 0.05 % of the highest one).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Member {
    /// It.
    pub candidate: Candidate,
    /// The lowest load at which it is best, in requests per second.
    pub from_rps: f64,
    /// The highest.
    pub to_rps: f64,
}

/// See the module's comment.
#[derive(Debug, Clone)]
pub struct Frontier {
    machine: Machine,
    objective: Objective,
    candidates: Vec<Candidate>,
}

/// Loads at which the frontier is looked at, between 0 and the highest that can be served.
const GRID: usize = 2_000;

impl Frontier {
    /// Of configurations that were looked at, for a machine. Those that do not count for the objective are left
    /// out: for energy those without power; for consolidation all clocks but the nominal one, since Turbo would
    /// come "at an energy/throughput premium" (IX §5.3), but the whole machine with Turbo is there for what is
    /// beyond.
    pub fn of(objective: Objective, machine: Machine, mut candidates: Vec<Candidate>) -> Self {
        let (nominal, most) = (machine.nominal_clock(), machine.maximum());
        candidates.retain(|Candidate { configuration, watts, .. }| match objective {
            Objective::Energy => watts.is_some(),
            Objective::Consolidation => configuration.clock == nominal || *configuration == most,
        });
        candidates.sort_by(|a, b| a.capacity_rps.total_cmp(&b.capacity_rps));
        Self { machine, objective, candidates }
    }

    /// Of all configurations of a simulated server.
    pub fn simulated(objective: Objective, model: &ServerModel) -> Self {
        let machine = model.machine();
        let all = machine.configurations().into_iter();
        let candidates = all.map(|configuration| Candidate::simulated(model, configuration));
        Self::of(objective, machine, candidates.collect())
    }

    /// Over all configurations (Figure 8a).
    pub fn energy(model: &ServerModel) -> Self {
        Self::simulated(Objective::Energy, model)
    }

    /// Only the clock changes; all cores and hyperthreads run of the configuration that serves most (Figure 9).
    pub fn clock_only(&self) -> Self {
        let mut only = self.clone();
        if let Some(Candidate { configuration: most, .. }) = self.candidates.last() {
            only.candidates.retain(|candidate| {
                Configuration { clock: most.clock, ..candidate.configuration } == *most
            });
        }
        only
    }

    /// The background job runs on what is left, at the nominal clock (Figure 8b).
    pub fn consolidation(model: &ServerModel) -> Self {
        Self::simulated(Objective::Consolidation, model)
    }

    /// What it is about.
    pub fn objective(&self) -> Objective {
        self.objective
    }

    /// All configurations that were considered, by what they serve.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// What a configuration draws, or leaves to the background job, at a load that it serves; none where it was
    /// not considered.
    pub fn value(&self, configuration: &Configuration, rps: f64) -> Option<f64> {
        let mut all = self.candidates.iter();
        let found = all.find(|candidate| candidate.configuration == *configuration)?;
        Some(found.value(self.objective, rps))
    }

    fn is_better(&self, value: f64, than: f64) -> bool {
        match self.objective {
            Objective::Energy => value < than,
            Objective::Consolidation => value > than,
        }
    }

    /// The best configuration at a load, with its power in watts or its background throughput; of equals one without
    /// Turbo, and then the one that serves most. None where none serves it.
    pub fn best(&self, rps: f64) -> Option<(&Candidate, f64)> {
        let mut best: Option<(&Candidate, f64)> = None;
        for candidate in self.candidates.iter().rev() {
            if candidate.capacity_rps < rps {
                break;
            }
            let value = candidate.value(self.objective, rps);
            let is_better = |(best, best_value): (&Candidate, f64)| {
                let without_turbo = best.configuration.clock == Clock::Turbo
                    && candidate.configuration.clock != Clock::Turbo;
                self.is_better(value, best_value) || value == best_value && without_turbo
            };
            if best.is_none_or(is_better) {
                best = Some((candidate, value));
            }
        }
        best
    }

    /// What the best configuration gives at a load; at one that none serves, what the greatest does.
    pub fn bound(&self, rps: f64) -> f64 {
        let most = self.candidates.last();
        self.best(rps).map_or_else(
            || most.map_or(0.0, |most| most.value(self.objective, most.capacity_rps)),
            |(_, value)| value,
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

    fn loads(&self, points: usize) -> impl Iterator<Item = f64> {
        let most = self.most_rps();
        (0..=points).map(move |index| most * index as f64 / points.max(1) as f64)
    }

    /// The frontier as a curve: loads in requests per second, and the best value there.
    pub fn curve(&self, points: usize) -> Vec<(f64, f64)> {
        self.loads(points).filter_map(|rps| Some((rps, self.best(rps)?.1))).collect()
    }

    /// The curve of one candidate, up to its capacity: requests per second, and watts or background throughput.
    pub fn curve_of(&self, candidate: &Candidate, points: usize) -> Vec<(f64, f64)> {
        let load = |index| candidate.capacity_rps * index as f64 / points.max(1) as f64;
        let at = |index| (load(index), candidate.value(self.objective, load(index)));
        (0..=points).map(at).collect()
    }

    /// The configurations that are part of the frontier, in the order of the loads at which they are best.
    pub fn members(&self) -> Vec<Member> {
        let mut members: Vec<Member> = Vec::new();
        for rps in self.loads(GRID) {
            let Some((&candidate, _)) = self.best(rps) else { continue };
            let same =
                |member: &&mut Member| member.candidate.configuration == candidate.configuration;
            match members.iter_mut().find(same) {
                Some(member) => member.to_rps = rps,
                None => members.push(Member { candidate, from_rps: rps, to_rps: rps }),
            }
        }
        members
    }

    /// The sequence that the frontier derives: its members, each serving more than the one before. None where
    /// nothing can be served.
    pub fn sequence(&self) -> Option<Sequence> {
        let step = |Member { candidate, .. }: Member| {
            let Candidate { configuration, speed, .. } = candidate;
            let background_cores = match self.objective {
                Objective::Energy => 0,
                Objective::Consolidation => self.machine.cores - configuration.cores,
            };
            Step { configuration, background_cores, speed }
        };
        let name = match self.objective {
            Objective::Energy => "derived for energy",
            Objective::Consolidation => "derived for consolidation",
        };
        Sequence::new(name, self.members().into_iter().map(step).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::policy::{Policy, Sequence};
    use proptest::prelude::*;

    #[test]
    fn the_policies_of_the_paper_are_near_the_frontier() {
        let model = ServerModel::ix();
        let (machine, scaling) = (model.machine(), model.scaling);
        // §5.4: "the difference in overall impact in terms of energy spent is marginal".
        let frontier = Frontier::energy(&model);
        let sequence = Sequence::energy(&machine, scaling);
        let of_sequence = |rps: f64| {
            let steps = sequence.steps().iter().map(|step| &step.configuration);
            let enough = steps.filter(|c| model.capacity_rps(c) >= rps);
            enough.filter_map(|c| frontier.value(c, rps)).fold(f64::MAX, f64::min)
        };
        let loads = (0..620).map(|index| f64::from(index) * 10_000.0);
        let (ours, best) = loads.fold((0.0, 0.0), |(ours, best), rps| {
            (ours + of_sequence(rps), best + frontier.bound(rps))
        });
        assert!(ours / best < 1.05, "{}", ours / best);
        // "For consolidation, Pareto and policy nearly identically overlap."
        let frontier = Frontier::consolidation(&model);
        let sequence = Sequence::consolidation(&machine, scaling);
        for step in sequence.steps() {
            let rps = model.capacity_rps(&step.configuration) - 1.0;
            let (_, left) = frontier.best(rps).expect("served");
            assert!((left - f64::from(step.background_cores) / 8.0).abs() < 1e-9);
        }
    }

    #[test]
    fn the_frontiers_have_the_shapes_of_the_figures() {
        let model = ServerModel::ix();
        let (energy, consolidation) = (Frontier::energy(&model), Frontier::consolidation(&model));
        let members = energy.members();
        // 224 configurations are considered, some 40 of them are part of the frontier.
        assert_eq!(energy.candidates().len(), 224);
        assert!((22..=60).contains(&members.len()), "{}", members.len());
        // On this model, the eight numbers of cores and the maximum.
        assert_eq!(consolidation.members().len(), 9);
        let rising = |pair: &[(f64, f64)]| pair[0].1 <= pair[1].1 + 1e-9;
        assert!(energy.curve(200).windows(2).all(rising));
        assert!(consolidation.curve(200).windows(2).all(|pair| pair[0].1 >= pair[1].1));
        for member in &members {
            let points = energy.curve_of(&member.candidate, 200);
            assert_eq!(points.len(), 201);
            assert!(points.windows(2).all(rising));
        }
        assert!(energy.clock_only().curve(200)[0].1 > energy.curve(200)[0].1 * 1.7);
    }

    #[test]
    fn the_clock_alone_saves_little_at_low_loads() {
        let model = ServerModel::ix();
        let all = Frontier::energy(&model);
        let clocks = all.clock_only();
        assert_eq!(clocks.candidates().len(), 14);
        assert!(clocks.bound(300_000.0) > 1.5 * all.bound(300_000.0), "Figure 9");
        assert!((clocks.bound(6_000_000.0) / all.bound(6_000_000.0) - 1.0).abs() < 0.01);
        assert_eq!(Some(all.bound(1e12)), all.value(&model.machine().maximum(), all.most_rps()));
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

    /// A machine of two cores without clocks, as it might be measured.
    fn measured(watts: Option<(f64, f64)>) -> Vec<Candidate> {
        let machine = two_cores();
        let one = Configuration { cores: 1, hyperthreads: false, clock: Clock::Fixed };
        let two = Configuration { cores: 2, ..one };
        let of = |configuration, rps| Candidate::measured(&machine, configuration, rps, watts);
        vec![of(two, 190_000.0), of(one, 100_000.0)]
    }

    fn two_cores() -> Machine {
        Machine { cores: 2, threads_per_core: 1, clocks_khz: Vec::new(), turbo: false }
    }

    #[test]
    fn what_was_measured_has_a_frontier_too() {
        let frontier = Frontier::of(Objective::Consolidation, two_cores(), measured(None));
        let members = frontier.members();
        let cores: Vec<u32> = members.iter().map(|m| m.candidate.configuration.cores).collect();
        assert_eq!(cores, [1, 2]);
        assert_eq!((members[0].from_rps, members[1].to_rps), (0.0, 190_000.0));
        assert!((members[0].to_rps - 100_000.0).abs() <= 190_000.0 / GRID as f64);
        assert_eq!((members[0].candidate.background, members[1].candidate.background), (0.5, 0.0));
        let sequence = frontier.sequence().expect("two steps");
        let steps: Vec<_> =
            sequence.steps().iter().map(|step| (step.background_cores, step.speed)).collect();
        assert_eq!(steps, [(1, 100_000.0), (0, 190_000.0)]);
        let read = Sequence::from_toml(&sequence.to_toml(), &two_cores(), Scaling::ix());
        assert_eq!(read.expect("what is written can be read").steps(), sequence.steps());
    }

    #[test]
    fn without_power_there_is_no_frontier_of_energy() {
        let none = Frontier::of(Objective::Energy, two_cores(), measured(None));
        assert!(none.candidates().is_empty() && none.members().is_empty());
        assert!(none.sequence().is_none() && none.best(0.0).is_none());
        let some = Frontier::of(Objective::Energy, two_cores(), measured(Some((10.0, 20.0))));
        assert_eq!(some.candidates()[0].watts_at(50_000.0), Some(15.0));
        assert_eq!(some.sequence().expect("steps").steps()[0].background_cores, 0);
    }

    /// From the model itself, not by way of a candidate.
    fn of_model(model: &ServerModel, objective: Objective, of: &Candidate, rps: f64) -> f64 {
        match objective {
            Objective::Energy => model.watts(&of.configuration, rps, 0.0),
            Objective::Consolidation => {
                let left = model.cores - of.configuration.cores;
                model.background(left, model.machine().nominal_clock())
            }
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
                let values = serve.map(|c| of_model(&model, frontier.objective, c, rps));
                let brute = match frontier.objective {
                    Objective::Energy => values.min_by(f64::total_cmp),
                    Objective::Consolidation => values.max_by(f64::total_cmp),
                };
                let found = frontier.best(rps).map(|(_, value)| value);
                prop_assert_eq!(found.is_some(), brute.is_some());
                let apart = found.unwrap_or(0.0) - brute.unwrap_or(0.0);
                prop_assert!(apart.abs() < 1e-9, "{:?} against {:?}", found, brute);
                // No curve of the frontier's members is ever beaten by a configuration that is none.
                for (rps, best) in frontier.curve(50) {
                    for other in frontier.candidates().iter().filter(|c| c.capacity_rps >= rps) {
                        let value = of_model(&model, frontier.objective, other, rps);
                        let near = (value - best).abs() < 1e-9;
                        prop_assert!(near || !frontier.is_better(value, best));
                    }
                }
            }
        }
    }
}
