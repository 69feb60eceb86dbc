//! What IX shows of its control plane (Figures 10 to 12, Table IV), as plain data: its readers decide how to print it.
//!
//! [`run`] is one panel of Figures 10 to 12; [`table4`] is all six runs and what follows for the claims.

use crate::controlled::pareto::{Frontier, Objective};
use crate::controlled::score::{Score, episodes};
use crate::controlled::server::{
    Controller, Fixed, ModelError, Pattern, Record, RunConfig, ServerModel, group_weights, simulate,
};
use control::policy::{LatencyTarget, Policy, Sequence, Target};
use control::{ControlLoop, Found, LoopConfig};

/// The load is looked at in steps of so many nanoseconds for the Pareto bound.
const BOUND_STEP_NS: u64 = 10_000_000;

/// Who controls a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plane {
    /// IX's policies at 10 Hz, with the thresholds and the pace of the authors' IXCP.
    Ix,
    /// Prediction at 1 kHz over the same sequences (`latency-target`).
    LatencyTarget,
}

impl Plane {
    /// Its name in a legend.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ix => "IX's policy, 10 Hz",
            Self::LatencyTarget => "latency-target, 1 kHz",
        }
    }

    /// Turns of the loop in a second.
    pub fn hz(self) -> u32 {
        match self {
            Self::Ix => 10,
            Self::LatencyTarget => 1_000,
        }
    }
}

/// One panel of Figures 10 to 12: a pattern, an objective, a controller.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The load.
    pub pattern: Pattern,
    /// What is to be saved.
    pub objective: Objective,
    /// Who controls.
    pub plane: Plane,
    /// Second by second.
    pub record: Record,
    /// The mean load of each second, in requests per second.
    pub load_rps: Vec<f64>,
    /// The Pareto bound of each second: watts, or background throughput.
    pub pareto: Vec<f64>,
    /// What the maximum configuration draws in each second, in watts; empty for consolidation.
    pub maximum: Vec<f64>,
    /// The row of Table IV.
    pub score: Score,
}

/// The control loop for a plane and an objective, and the state in which it finds the server.
///
/// # Errors
/// A model whose machine there cannot be.
pub fn control_loop(
    model: &ServerModel,
    objective: Objective,
    plane: Plane,
) -> Result<(ControlLoop, Found), ModelError> {
    let machine = model.machine();
    let objective_ns = model.slo_us * 1e3;
    let target = Target::of_objective(objective_ns, model.unloaded_p99_us * 1e3);
    let per_core = machine.threads_per_core;
    let sequence = match objective {
        Objective::Energy => Sequence::energy(&machine, model.scaling),
        Objective::Consolidation => Sequence::consolidation(&machine, model.scaling),
    };
    let (policy, config): (Box<dyn Policy>, LoopConfig) = match plane {
        Plane::Ix => (Box::new(sequence), LoopConfig::ixcp()),
        Plane::LatencyTarget => {
            (Box::new(LatencyTarget::new(sequence, per_core, target)), LoopConfig::predicting())
        }
    };
    let base = policy.steps()[0].clone();
    let places = control::Place::all(&machine);
    // The base state of the sequence: its threads run, with the flow groups dealt out in turn.
    let running = Fixed::new(model, base.configuration).found();
    let found = Found { background_cores: base.background_cores, ..running };
    let control = ControlLoop::new(policy, machine, model.scaling, places, found.clone(), config)?;
    Ok((control, found))
}

/// A load pattern of §5.4, for servers of other sizes and runs of other lengths.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Which.
    pub pattern: Pattern,
    /// So many times the paper's requests.
    pub scale: f64,
    /// Time goes so many times as fast as in the paper.
    pub speed: u64,
    /// What its noise follows from.
    pub seed: u64,
}

impl Load {
    /// As in the paper.
    pub fn new(pattern: Pattern, seed: u64) -> Self {
        Self { pattern, scale: 1.0, speed: 1, seed }
    }

    /// The same for a server that serves more or less than the paper's.
    pub fn for_server(self, model: &ServerModel) -> Self {
        let most = |model: &ServerModel| model.capacity_rps(&model.machine().maximum());
        Self { scale: most(model) / most(&ServerModel::ix()), ..self }
    }

    /// Requests per second, so many nanoseconds after the beginning.
    pub fn rps(&self, at_ns: u64) -> f64 {
        self.scale * self.pattern.rps(at_ns.saturating_mul(self.speed), self.seed)
    }
}

/// Runs one panel of Figures 10 to 12, for `duration_s` seconds of the pattern (the paper: 240).
///
/// # Errors
/// A model out of its range; nothing was run.
pub fn run(
    model: &ServerModel,
    pattern: Pattern,
    objective: Objective,
    plane: Plane,
    duration_s: u64,
    seed: u64,
) -> Result<Run, ModelError> {
    let load = Load::new(pattern, seed);
    run_on(model, &load, objective, plane, duration_s, |load, controller, config| {
        simulate(model, load, controller, config)
    })
}

/// The same for a load of any size, on any server of this model: `server` runs it.
///
/// # Errors
/// A model out of its range, and what `server` says.
pub fn run_on<E: From<ModelError>>(
    model: &ServerModel,
    load: &Load,
    objective: Objective,
    plane: Plane,
    duration_s: u64,
    server: impl FnOnce(&dyn Fn(u64) -> f64, &mut (ControlLoop, Found), &RunConfig) -> Result<Record, E>,
) -> Result<Run, E> {
    let Load { pattern, seed, .. } = *load;
    let load = |at_ns: u64| load.rps(at_ns);
    let mut controller = control_loop(model, objective, plane)?;
    let config = RunConfig { duration_s, ..RunConfig::at_hz(plane.hz(), seed) };
    let record = server(&load, &mut controller, &config)?;
    let maximum: Vec<f64> = match objective {
        Objective::Energy => {
            let loads = group_weights(model, seed);
            let mut all = Fixed::balanced(model, model.machine().maximum(), &loads);
            // Nobody decides anything there: seldom is often enough.
            let seldom = RunConfig { period_ns: RunConfig::at_hz(1, seed).period_ns, ..config };
            let seconds = simulate(model, &load, &mut all, &seldom)?.seconds;
            seconds.iter().map(|second| second.watts).collect()
        }
        Objective::Consolidation => Vec::new(),
    };
    let frontier = Frontier::simulated(objective, model);
    let in_second = |second: u64| {
        let instants = 1_000_000_000 / BOUND_STEP_NS;
        (0..instants).map(move |i| load(second * 1_000_000_000 + i * BOUND_STEP_NS))
    };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let pareto: Vec<f64> = (0..duration_s).map(|s| frontier.mean_bound(in_second(s))).collect();
    let load_rps = (0..duration_s).map(|s| mean(&in_second(s).collect::<Vec<f64>>())).collect();
    let score = Score::of(&record, objective, mean(&pareto), mean(&maximum), model);
    Ok(Run { pattern, objective, plane, record, load_rps, pareto, maximum, score })
}

/// Table IV and §5.4: six runs of a plane, and the claims that they fill.
#[derive(Debug, Clone, PartialEq)]
pub struct Table4 {
    /// Energy and consolidation for each pattern, in the paper's order.
    pub runs: Vec<Run>,
    /// `ix.table4.energy_saved_fraction_of_pareto`: the worst of the three patterns.
    pub energy_saved_of_possible: f64,
    /// `ix.table4.energy_saved`: the worst of the three.
    pub energy_saved: f64,
    /// `ix.table4.consolidation_fraction_of_pareto`: the worst of the three.
    pub consolidation_of_possible: f64,
    /// `ix.sec54.slo_violation_seconds`: of all six.
    pub violation_seconds: usize,
    /// As the paper counts them, seconds in a row being one.
    pub violations: usize,
}

/// Runs all six, of `duration_s` seconds each (the paper: 240).
///
/// # Errors
/// A model out of its range; nothing was run.
pub fn table4(
    model: &ServerModel,
    plane: Plane,
    duration_s: u64,
    seed: u64,
) -> Result<Table4, ModelError> {
    let mut runs = Vec::new();
    for objective in [Objective::Energy, Objective::Consolidation] {
        for pattern in Pattern::ALL {
            runs.push(run(model, pattern, objective, plane, duration_s, seed)?);
        }
    }
    let worst = |objective: Objective, value: fn(&Score) -> f64| {
        let of = runs.iter().filter(|run| run.objective == objective);
        of.map(|run| value(&run.score)).fold(f64::MAX, f64::min)
    };
    Ok(Table4 {
        energy_saved_of_possible: worst(Objective::Energy, Score::share_of_possible),
        energy_saved: worst(Objective::Energy, Score::gained),
        consolidation_of_possible: worst(Objective::Consolidation, Score::share_of_possible),
        violation_seconds: runs.iter().map(|run| run.score.violations.len()).sum(),
        violations: runs.iter().map(|run| episodes(&run.score.violations)).sum(),
        runs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::Event;

    fn changes(run: &Run) -> usize {
        run.record.events.iter().filter(|e| matches!(e.1, Event::Step { .. })).count()
    }

    /// The first minute of the steepest pattern, for both controllers: seven steps of half a million.
    #[test]
    fn prediction_keeps_the_objective_where_one_step_at_a_time_misses_it() {
        let model = ServerModel::ix();
        let run = |plane| run(&model, Pattern::Step, Objective::Energy, plane, 62, 3).unwrap();
        let (ix, ours) = (run(Plane::Ix), run(Plane::LatencyTarget));
        // IX: "abrupt increase of throughput, mostly in the step pattern".
        assert!((2..=12).contains(&ix.score.violations.len()), "{:?}", ix.score.violations);
        assert!(ours.score.violations.len() <= 2, "{:?}", ours.score.violations);
        for violation in ix.score.violations.iter().chain(&ours.score.violations) {
            assert!(violation.cause.is_some() && !violation.explanation.is_empty());
        }
        assert!(ours.score.share_of_possible() > 0.9, "{:?}", ours.score);
        assert!(changes(&ours) <= 30, "{} changes", changes(&ours));
        assert!(!ours.record.migrations.is_empty());
        // All that came was served.
        let served: f64 = ours.record.seconds.iter().map(|second| second.rps).sum();
        let came: f64 = ours.load_rps.iter().sum();
        assert!((served / came - 1.0).abs() < 0.002, "{served} of {came}");
    }

    /// The service gains less from hyperthreads and Turbo than the policy predicts, or more: it measures what
    /// the step in force serves, so it is a little off, and neither swings nor misses the objective for long.
    #[test]
    fn a_wrong_prediction_does_not_make_it_swing() {
        for (hyperthread_gain, turbo_gain) in [(1.15, 1.05), (1.5, 1.2)] {
            let predicted = ServerModel::ix();
            let mut real = predicted.clone();
            (real.scaling.hyperthread_gain, real.scaling.turbo_gain) =
                (hyperthread_gain, turbo_gain);
            let mut controller =
                control_loop(&predicted, Objective::Energy, Plane::LatencyTarget).unwrap();
            let load = |at_ns: u64| Pattern::Step.rps(at_ns, 1);
            let run = RunConfig { duration_s: 82, ..RunConfig::at_hz(1_000, 1) };
            let record = simulate(&real, &load, &mut controller, &run).unwrap();
            let over = crate::controlled::score::violations(&record, &real);
            assert!(over.len() <= 4, "{over:?}");
            let changes = record.events.iter().filter(|e| matches!(e.1, Event::Step { .. }));
            assert!(changes.count() <= 60, "{:?}", record.events);
        }
    }

    #[test]
    fn consolidation_gives_the_job_what_the_load_leaves() {
        let model = ServerModel::ix();
        let run = run(&model, Pattern::Step, Objective::Consolidation, Plane::LatencyTarget, 42, 3);
        let run = run.unwrap();
        assert!(run.score.violations.len() <= 2, "{:?}", run.score.violations);
        assert!(run.score.share_of_possible() > 0.9, "{:?}", run.score);
        assert!(run.maximum.is_empty());
        let best = run.record.seconds.iter().map(|second| second.background).fold(0.0, f64::max);
        assert!(best <= 7.0 / 8.0 + 1e-9);
    }

    #[test]
    fn a_seed_replays_a_whole_run() {
        let model = ServerModel::ix();
        let run = |seed| {
            run(&model, Pattern::SineNoise, Objective::Energy, Plane::LatencyTarget, 5, seed)
                .unwrap()
        };
        assert_eq!(run(9), run(9));
        assert_ne!(run(9).record, run(10).record);
    }
}
