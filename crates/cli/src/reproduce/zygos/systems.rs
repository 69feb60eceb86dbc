//! What the figures of ZygOS §6 compare: systems simulated on sixteen virtual cores, under three cost
//! models, with the theory and Linux's models behind them.
//!
//! To add a scheduler: name it in [`SYSTEMS`].

use multicore::{
    Costs, LinuxCosts, Outcome, Run, RunToCompletion, Scheduler, Search, Setup, WorkConserving,
    WorldError, linux, max_load_at_slo, simulate,
};
use queueing::{Law, MeanInterval, Model, Replications, TailCurve, max_load_at_slo as theory_max};
use reproduce::stats::Interval;
use reproduce::{Measured, Recorder};

use crate::commands::calibrate;

/// ZygOS §3.1: 99 % of the requests within ten mean service times.
pub const SHARE: f64 = 0.99;
/// See [`SHARE`].
pub const BOUND: f64 = 10.0;
/// ZygOS §3.3: a core for each hardware thread.
pub const CORES: usize = 16;
/// The laws of ZygOS Figures 3, 6 and 7.
pub const LAWS: [Law; 3] = [Law::Deterministic, Law::Exponential, Law::Bimodal1];

/// A scheduler with its settings, as one curve of a figure.
#[derive(Clone, Copy)]
pub struct System {
    /// As plots name it.
    pub name: &'static str,
    /// B.
    pub batch: usize,
    run: fn(&Setup, &Run) -> Result<Outcome, WorldError>,
    search: fn(&Setup, &Search) -> Result<MeanInterval, WorldError>,
}

impl System {
    /// A scheduler under a name.
    pub const fn of<S: Scheduler + Default>(name: &'static str, batch: usize) -> Self {
        Self {
            name,
            batch,
            run: |setup, run| simulate(&S::default(), setup, run),
            search: |setup, search| max_load_at_slo(&S::default(), setup, search),
        }
    }

    /// What is simulated.
    pub fn setup(&self, costs: &Costs, law: Law, mean_us: f64) -> Setup {
        Setup { batch: self.batch, cores: CORES, ..Setup::zygos(costs.clone(), law, mean_us) }
    }

    /// One load of it.
    pub fn run(&self, setup: &Setup, run: &Run) -> Result<Outcome, WorldError> {
        (self.run)(setup, run)
    }

    /// The highest load that keeps the objective.
    pub fn search(&self, setup: &Setup, search: &Search) -> Result<MeanInterval, WorldError> {
        (self.search)(setup, search)
    }
}

/// IX with batching off, as ZygOS §3.3 runs it.
pub const RTC: System = System::of::<RunToCompletion>("run-to-completion, B = 1", 1);
/// IX as it ships.
pub const RTC_64: System = System::of::<RunToCompletion>("run-to-completion, B = 64", 64);
/// ZygOS, with IX's batches where nobody waits.
pub const WORK_CONSERVING: System = System::of::<WorkConserving>("work-conserving, B = 64", 64);

/// The systems of figures 6 to 8.
pub const SYSTEMS: [System; 2] = [RTC, WORK_CONSERVING];

/// The three cost models, the one that fills claims first: this machine's, the same with AF_XDP in copy
/// mode, and the papers' machine.
///
/// # Errors
/// This machine could not be measured.
pub fn cost_models(recorder: &mut Recorder<'_>) -> anyhow::Result<Vec<Costs>> {
    let (calibration, realtime) = calibrate::measure(recorder.options().quick)?;
    let measured = calibration.costs;
    let models = vec![Costs::af_xdp_copy(&measured), Costs::sandy_bridge_dune()];
    let models: Vec<Costs> = std::iter::once(measured).chain(models).collect();
    for costs in &models {
        let LinuxCosts { request, floating, .. } = costs.linux;
        let words = format!(
            "{costs}; a cache line {} ns; Linux {request:.0} ns a request, {floating:.0} more where \
             connections float; {}",
            costs.cache_line, costs.source
        );
        recorder.condition(&format!("costs, {}", costs.name), words);
    }
    let priority =
        if realtime { "real-time in windows" } else { "ordinary: real-time was refused" };
    recorder.condition("calibrated at priority", priority);
    let disturbed = calibration.found.iter().filter(|found| found.disturbed).count();
    if disturbed > 0 {
        recorder.note(format!("{disturbed} constants were measured without one quiet window"));
    }
    recorder.condition("cores", CORES);
    recorder
        .condition("connections", Setup::zygos(Costs::zero(), Law::Exponential, 1.0).connections);
    Ok(models)
}

/// The two models of theory, without overhead, and what they are called.
pub fn theory(law: Law, mean_us: f64) -> [(String, TailCurve); 2] {
    let [partitioned, centralized, ..] = Model::zygos(CORES as u32);
    [centralized, partitioned].map(|model| {
        let curve =
            TailCurve { model, law, mean: mean_us, overhead: 0.0, network: 0.0, share: SHARE };
        (model.notation(), curve)
    })
}

/// Linux's two models under `costs`, on the same wire as what is simulated.
pub fn linux(costs: &Costs, law: Law, mean_us: f64) -> [(String, TailCurve); 2] {
    let wire_us = Setup::zygos(costs.clone(), law, mean_us).wire_ns as f64 / 1e3;
    [linux::System::Partitioned, linux::System::Floating].map(|system| {
        let name = format!("{}, {}", system.name(), costs.name);
        (name, system.curve(costs, CORES as u32, law, mean_us, wire_us))
    })
}

/// The highest load of a model at ten mean service times.
///
/// # Errors
/// A setting out of its range.
pub fn max_of(curve: &TailCurve, runs: &Replications) -> anyhow::Result<MeanInterval> {
    if curve.network == 0.0 && curve.overhead == 0.0 {
        return Ok(theory_max(&curve.model, &curve.service(), curve.share, BOUND, runs)?);
    }
    Ok(linux::max_load_at_slo(curve, BOUND, runs)?)
}

/// A mean with its interval, none of it below `least`.
pub fn measured(found: &MeanInterval, least: f64) -> Measured {
    let MeanInterval { mean, low, high, count, .. } = *found;
    Measured::interval(&Interval { value: mean, low: low.max(least), high, n: count })
}

/// A latency of one load, in microseconds; missing where requests piled up.
pub fn p99_us(outcome: &Outcome) -> Measured {
    if outcome.given_up {
        return Measured::missing("more than can be served");
    }
    Measured::single(outcome.latency_us(SHARE))
}
