//! ZygOS Figure 9: tiny tasks, where what a cycle costs once decides; batching against none.

use queueing::Law;
use reproduce::{Axis, Figure, Mark, MarkOf, Measured, Recorder, Takes};
use world::cores::{Costs, Search};

use super::curves::over_throughput;
use super::systems::{RTC, RTC_64, System, WORK_CONSERVING, cost_models};
use crate::reproduce::Testbed;

const CLAIM: &str = "zygos.fig9.usr_throughput_at_slo_over_ix_b64";
/// A GET of memcached: under 2 us, nearly deterministic (ZygOS §6.2).
const MEAN_US: f64 = 1.0;
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
    run,
};

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let models = cost_models(recorder)?;
    let all = [RTC, RTC_64, WORK_CONSERVING];
    recorder.plan((2 * models.len() * all.len()) as u64);
    for costs in &models {
        panel(recorder, costs, &all)?;
    }
    searches(recorder, &models, &all)
}

fn panel(recorder: &mut Recorder<'_>, costs: &Costs, all: &[System]) -> anyhow::Result<()> {
    let (step, requests) = if recorder.options().quick { (10, 40_000) } else { (4, 400_000) };
    let (x, y) = (Axis::linear("throughput", "MRPS"), Axis::log("p99", "us"));
    let title = format!("p99, tasks of {MEAN_US} us, {}", costs.name);
    let chart = recorder.chart(&costs.name, &title, x, y);
    recorder.mark(chart, Mark::horizontal(MarkOf::Objective, OBJECTIVE_US, "500 us"));
    over_throughput(
        recorder,
        (chart, &title),
        all,
        (costs, Law::Deterministic, MEAN_US),
        (step, requests),
    )
}

fn searches(recorder: &mut Recorder<'_>, models: &[Costs], all: &[System]) -> anyhow::Result<()> {
    let options = recorder.options();
    let search = Search {
        bound: OBJECTIVE_US / MEAN_US,
        requests: if options.quick { 40_000 } else { 400_000 },
        step: if options.quick { 0.02 } else { 0.005 },
        count: options.repeats.max(2),
        seed: options.seed,
        ..Search::zygos()
    };
    let x = Axis::category("cost model");
    let y = Axis::linear("throughput", "MRPS");
    let chart = recorder.chart("slo", "Highest throughput with p99 <= 500 us", x, y);
    let mut at_slo = Vec::new();
    for costs in models {
        for system in all {
            recorder.step(&format!("throughput at p99, {}, {}", costs.name, system.name))?;
            let setup = system.setup(costs, Law::Deterministic, MEAN_US);
            let found = system.search(&setup, &search)?.map(|load| setup.rate(load) / 1e6);
            let series = recorder.series(chart, system.name);
            recorder.category(series, &costs.name, Measured::mean(&found, 0.0..=f64::MAX));
            at_slo.push((costs.name.clone(), system.name, found));
        }
    }
    let of = |name: &str| {
        at_slo.iter().find(|(costs, system, _)| *costs == models[0].name && *system == name)
    };
    match (of(WORK_CONSERVING.name), of(RTC_64.name)) {
        (Some((.., ours)), Some((.., ix))) if ix.mean > 0.0 => {
            recorder
                .claim(CLAIM, Measured::mean(&ours.map(|rate| rate / ix.mean), 0.0..=f64::MAX))?;
        }
        _ => recorder.claim_not_run(CLAIM, "run to completion met the objective at no load")?,
    }
    Ok(())
}
