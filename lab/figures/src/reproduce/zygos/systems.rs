//! What the figures of ZygOS §6 compare: systems simulated on sixteen virtual cores, under three cost
//! models, with the theory and Linux's models behind them.
//!
//! To add a system: name it in [`SYSTEMS`].

use queueing::{Law, MeanInterval, Model, Replications, TailCurve, max_load_at_slo as theory_max};
use reproduce::{Measured, Options, Recorder};
use world::cores::{
    Costs, LinuxCosts, Outcome, Run, RunToCompletion, Search, Setup, WorkConserving, WorldError,
    linux, max_load_at_slo, simulate,
};

use runtime::{ConservingConfig, WhileAway};
use tailplane::Duration;

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
#[derive(Clone, Copy, Debug)]
pub struct System {
    /// As plots and tables name it.
    pub name: &'static str,
    /// B.
    pub batch: usize,
    /// How cores share their work (ZygOS); none: each runs its own to completion (IX).
    pub sharing: Option<Sharing>,
}

/// How cores share their work.
#[derive(Clone, Copy, Debug)]
pub struct Sharing {
    /// What becomes of a network layer whose core is in the application.
    pub while_away: WhileAway,
    /// After so many mean service times a request is put off.
    pub quantum: Option<f64>,
    /// One event a crossing, also where nobody waits.
    pub single: bool,
}

const USUAL: Sharing = Sharing { while_away: WhileAway::Borrow, quantum: None, single: false };

impl System {
    /// What is simulated.
    pub fn setup(&self, costs: &Costs, law: Law, mean_us: f64) -> Setup {
        Setup { batch: self.batch, cores: CORES, ..Setup::zygos(costs.clone(), law, mean_us) }
    }

    /// One load of it.
    ///
    /// # Errors
    /// A setting out of its range; a simulation that broke a promise.
    pub fn run(&self, setup: &Setup, run: &Run) -> Result<Outcome, WorldError> {
        match self.sharing {
            None => simulate(&RunToCompletion, setup, run),
            Some(sharing) => simulate(&sharing.scheduler(setup.mean_us), setup, run),
        }
    }

    /// Its loads, each with so many requests of that seed, up to the first that cannot be served: `each` gets the load
    /// and what came of it.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_up(
        &self,
        setup: &Setup,
        loads: &[f64],
        (requests, seed): (u64, u64),
        mut each: impl FnMut(f64, &Outcome),
    ) -> Result<(), WorldError> {
        for &load in loads {
            let outcome = self.run(setup, &Run { seed, ..Run::new(load, requests) })?;
            each(load, &outcome);
            if outcome.given_up {
                break;
            }
        }
        Ok(())
    }

    /// The highest load that keeps the objective.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn search(&self, setup: &Setup, search: &Search) -> Result<MeanInterval, WorldError> {
        match self.sharing {
            None => max_load_at_slo(&RunToCompletion, setup, search),
            Some(sharing) => max_load_at_slo(&sharing.scheduler(setup.mean_us), setup, search),
        }
    }

    /// The quantum, in microseconds.
    pub fn quantum_us(&self, mean_us: f64) -> Option<f64> {
        Some(self.sharing?.quantum? * mean_us)
    }
}

impl Sharing {
    fn scheduler(self, mean_us: f64) -> WorkConserving {
        let usual = ConservingConfig::default();
        let quantum_ns = self.quantum.map(|means| (means * mean_us * 1e3).round() as u64);
        let config = ConservingConfig {
            while_away: self.while_away,
            crossing: if self.single { Duration::ZERO } else { usual.crossing },
            quantum: quantum_ns.map(Duration::from_nanos),
            ..usual
        };
        WorkConserving { config }
    }
}

/// Loads from `step` hundredths on in such steps.
pub fn loads(step: u32) -> Vec<f64> {
    (step..100).step_by(step as usize).map(|load| f64::from(load) / 100.0).collect()
}

/// How the figures search: to two hundredths of load in a quick run, else to half a hundredth; with so many requests a
/// load in a quick run and in a full one.
pub fn search_of(options: Options, [quick, full]: [u64; 2]) -> Search {
    Search {
        requests: if options.quick { quick } else { full },
        step: if options.quick { 0.02 } else { 0.005 },
        count: options.repeats.max(2),
        seed: options.seed,
        ..Search::zygos()
    }
}

/// IX with batching off, as ZygOS §3.3 runs it.
pub const RTC: System = System { name: "run-to-completion, B = 1", batch: 1, sharing: None };
/// IX as it ships.
pub const RTC_64: System = System { name: "run-to-completion, B = 64", batch: 64, sharing: None };
/// ZygOS, with IX's batches where nobody waits, and borrowing.
pub const WORK_CONSERVING: System =
    System { name: "work-conserving, B = 64", batch: 64, sharing: Some(USUAL) };
/// The same with kicks, as ZygOS has them.
pub const KICKS: System = System {
    name: "work-conserving, kicks",
    sharing: Some(Sharing { while_away: WhileAway::Kick, ..USUAL }),
    ..WORK_CONSERVING
};
/// The same with neither: "ZygOS (no interrupts)".
pub const COOPERATIVE: System = System {
    name: "work-conserving, no interrupts",
    sharing: Some(Sharing { while_away: WhileAway::Wait, ..USUAL }),
    ..WORK_CONSERVING
};
/// With borrowing, and long requests put off after two mean service times.
pub const PREEMPTIVE: System = System {
    name: "work-conserving, quantum 2 S",
    sharing: Some(Sharing { quantum: Some(2.0), ..USUAL }),
    ..WORK_CONSERVING
};
/// With borrowing, and one event in each crossing whether somebody waits or not: ZygOS without IX.
pub const SINGLE: System = System {
    name: "work-conserving, one event a crossing",
    sharing: Some(Sharing { single: true, ..USUAL }),
    ..WORK_CONSERVING
};

/// The systems of figure 6.
pub const SYSTEMS: [System; 4] = [RTC, WORK_CONSERVING, KICKS, COOPERATIVE];

/// The three cost models, the one that fills claims first: this machine's, the same with AF_XDP in copy
/// mode, and the papers' machine.
///
/// # Errors
/// This machine could not be measured.
pub fn cost_models(recorder: &mut Recorder<'_>) -> anyhow::Result<Vec<Costs>> {
    let (calibration, realtime) = calibrate::measure(recorder.options().quick)?;
    let measured = calibration.costs;
    let copying = Costs::af_xdp_copy(&measured);
    let models = vec![measured, copying, Costs::sandy_bridge_dune()];
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
    [centralized, partitioned].map(|model| without_overhead(model, law, mean_us))
}

/// One queue for all cores, in the order of arrival and with processors shared; without overhead.
pub fn in_order_and_sharing(law: Law, mean_us: f64) -> [(String, TailCurve); 2] {
    let [_, in_order, _, sharing] = Model::zygos(CORES as u32);
    [in_order, sharing].map(|model| without_overhead(model, law, mean_us))
}

fn without_overhead(model: Model, law: Law, mean_us: f64) -> (String, TailCurve) {
    let (mean, overhead, network) = (mean_us, 0.0, 0.0);
    (model.notation(), TailCurve { model, law, mean, overhead, network, share: SHARE })
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

/// A latency of one load, in microseconds; missing where requests piled up.
pub fn p99_us(outcome: &Outcome) -> Measured {
    if outcome.given_up {
        return Measured::missing("more than can be served");
    }
    Measured::single(outcome.latency_us(SHARE))
}
