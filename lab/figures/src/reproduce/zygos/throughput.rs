//! ZygOS Figures 9 and 11: the 99th percentile over throughput, against objectives.

use queueing::Law;
use reproduce::{Axis, Figure, Mark, MarkOf, Measured, Recorder, Takes};
use world::cores::{Costs, Search};

use super::systems::{RTC, RTC_64, System, WORK_CONSERVING, cost_models, loads, p99_us, search_of};
use crate::reproduce::Testbed;

const CLAIM: &str = "zygos.fig9.usr_throughput_at_slo_over_ix_b64";
/// A GET of memcached: under 2 us, nearly deterministic (ZygOS §6.2).
const TINY_US: f64 = 1.0;
const OBJECTIVE_US: f64 = 500.0;

/// See the module's comment.
pub const FIG9: Figure<Testbed> = Figure {
    id: "zygos/fig9",
    title: "Tiny tasks: p99 over throughput, B = 1 and B = 64",
    section: "ZygOS (SOSP'17) §6.2, Figure 9",
    what: "Deterministic tasks of 1 us, which is what ZygOS §6.2 says of memcached's, simulated as for \
           Figure 6: run to completion with adaptive bounded batching off and with its default bound. The \
           service is the synthetic one: its requests and replies are of 16 bytes, not memcached's sizes. \
           Then the highest throughput with p99 <= 500 us.",
    claims: &[CLAIM],
    takes: Takes { quick_s: 120, full_s: 1_200 },
    run: run_fig9,
};

fn run_fig9(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let models = cost_models(recorder)?;
    let all = [RTC, RTC_64, WORK_CONSERVING];
    recorder.plan((2 * models.len() * all.len()) as u64);
    for costs in &models {
        let title = format!("p99, tasks of {TINY_US} us, {}", costs.name);
        let (named, what) = ((&*costs.name, &*title), (costs, Law::Deterministic, TINY_US));
        over_throughput(recorder, named, &[OBJECTIVE_US], &all, what, [40_000, 400_000])?;
    }
    searches(recorder, &models, &all)
}

fn searches(recorder: &mut Recorder<'_>, models: &[Costs], all: &[System]) -> anyhow::Result<()> {
    let search = search_of(recorder.options(), [40_000, 400_000]);
    let search = Search { bound: OBJECTIVE_US / TINY_US, ..search };
    let x = Axis::category("cost model");
    let y = Axis::linear("throughput", "MRPS");
    let chart = recorder.chart("slo", "Highest throughput with p99 <= 500 us", x, y);
    let mut at_slo = Vec::new();
    for (place, costs) in models.iter().enumerate() {
        for system in all {
            recorder.step(&format!("throughput at p99, {}, {}", costs.name, system.name))?;
            let setup = system.setup(costs, Law::Deterministic, TINY_US);
            let found = system.search(&setup, &search)?.map(|load| setup.rate(load) / 1e6);
            let series = recorder.series(chart, system.name);
            recorder.category(series, &costs.name, Measured::mean(&found, 0.0..=f64::MAX));
            // This machine's costs fill the claim.
            at_slo.extend((place == 0).then_some((system.name, found)));
        }
    }
    let of = |system: System| Some(at_slo.iter().find(|(name, _)| *name == system.name)?.1);
    match (of(WORK_CONSERVING), of(RTC_64)) {
        (Some(ours), Some(ix)) if ix.mean > 0.0 => {
            let ratio = ours.map(|rate| rate / ix.mean);
            recorder.claim(CLAIM, Measured::mean(&ratio, 0.0..=f64::MAX))
        }
        _ => recorder.claim_not_run(CLAIM, "run to completion met the objective at no load"),
    }
}

const MEAN_US: f64 = 10.0;
/// 10 S and 100 S.
const OBJECTIVES_US: [f64; 2] = [100.0, 1_000.0];

/// See the module's comment.
pub const FIG11: Figure<Testbed> = Figure {
    id: "zygos/fig11",
    title: "p99 over throughput under two objectives",
    section: "ZygOS (SOSP'17) §7, Figure 11",
    what: "Service times with a mean of 10 us, simulated as for Figure 6: run to completion with batching off \
           and on, and the work-conserving scheduler, against objectives of 10 S and of 100 S. The paper's \
           text says exponential, its caption deterministic: both are here.",
    claims: &[],
    takes: Takes { quick_s: 60, full_s: 900 },
    run: run_fig11,
};

fn run_fig11(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let models = cost_models(recorder)?;
    let all = [RTC, RTC_64, WORK_CONSERVING];
    let laws = [Law::Exponential, Law::Deterministic];
    recorder.plan((laws.len() * models.len() * all.len()) as u64);
    for law in laws {
        for costs in &models {
            let (law_name, costs_name) = (law.name(), &costs.name);
            let title = format!("p99, {law_name}, S = {MEAN_US} us, {costs_name}");
            let name = format!("{law_name}-{costs_name}");
            let what = (costs, law, MEAN_US);
            let requests = [20_000, 200_000];
            over_throughput(recorder, (&name, &title), &OBJECTIVES_US, &all, what, requests)?;
        }
    }
    Ok(())
}

/// A chart of the 99th percentile of each of `systems` over its throughput, at loads up to the first that cannot be
/// served, with so many requests a load in a quick run and in a full one; and the objectives, in microseconds. A step of
/// the recorder's plan for each system.
///
/// # Errors
/// A setting out of its range; a simulation that broke a promise.
fn over_throughput(
    recorder: &mut Recorder<'_>,
    (name, title): (&str, &str),
    objectives_us: &[f64],
    systems: &[System],
    (costs, law, mean_us): (&Costs, Law, f64),
    [quick, full]: [u64; 2],
) -> anyhow::Result<()> {
    let options = recorder.options();
    let (step, requests) = if options.quick { (10, quick) } else { (4, full) };
    let (x, y) = (Axis::linear("throughput", "MRPS"), Axis::log("p99", "us"));
    let chart = recorder.chart(name, title, x, y);
    for &bound_us in objectives_us {
        let words = format!("{bound_us} us");
        recorder.mark(chart, Mark::horizontal(MarkOf::Objective, bound_us, words));
    }
    for system in systems {
        recorder.step(&format!("{title}, {}", system.name))?;
        let setup = system.setup(costs, law, mean_us);
        let series = recorder.series(chart, system.name);
        system.run_up(&setup, &loads(step), (requests, options.seed), |_, outcome| {
            recorder.point(series, outcome.throughput() / 1e6, p99_us(outcome));
        })?;
    }
    Ok(())
}
