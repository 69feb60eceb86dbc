//! ZygOS Figure 9: tiny tasks, where what a cycle costs once decides; batching against none.

use queueing::Law;
use reproduce::{Axis, Figure, Measured, Recorder, Takes};
use world::cores::{Costs, Search};

use super::curves::over_throughput;
use super::systems::{RTC, RTC_64, System, WORK_CONSERVING, cost_models, search_of};
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
        let title = format!("p99, tasks of {MEAN_US} us, {}", costs.name);
        let (named, what) = ((&*costs.name, &*title), (costs, Law::Deterministic, MEAN_US));
        over_throughput(recorder, named, &[OBJECTIVE_US], &all, what, [40_000, 400_000])?;
    }
    searches(recorder, &models, &all)
}

fn searches(recorder: &mut Recorder<'_>, models: &[Costs], all: &[System]) -> anyhow::Result<()> {
    let search = search_of(recorder.options(), [40_000, 400_000]);
    let search = Search { bound: OBJECTIVE_US / MEAN_US, ..search };
    let x = Axis::category("cost model");
    let y = Axis::linear("throughput", "MRPS");
    let chart = recorder.chart("slo", "Highest throughput with p99 <= 500 us", x, y);
    let mut at_slo = Vec::new();
    for (place, costs) in models.iter().enumerate() {
        for system in all {
            recorder.step(&format!("throughput at p99, {}, {}", costs.name, system.name))?;
            let setup = system.setup(costs, Law::Deterministic, MEAN_US);
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
