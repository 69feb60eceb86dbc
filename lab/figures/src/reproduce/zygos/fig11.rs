//! ZygOS Figure 11: which system serves most depends on how strict the objective is.

use queueing::Law;
use reproduce::{Axis, Figure, Mark, MarkOf, Recorder, Takes};
use world::cores::Costs;

use super::curves::over_throughput;
use super::systems::{RTC, RTC_64, System, WORK_CONSERVING, cost_models};
use crate::reproduce::Testbed;

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
    run,
};

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let models = cost_models(recorder)?;
    let all = [RTC, RTC_64, WORK_CONSERVING];
    let laws = [Law::Exponential, Law::Deterministic];
    recorder.plan((laws.len() * models.len() * all.len()) as u64);
    for law in laws {
        for costs in &models {
            panel(recorder, law, costs, &all)?;
        }
    }
    Ok(())
}

fn panel(
    recorder: &mut Recorder<'_>,
    law: Law,
    costs: &Costs,
    all: &[System],
) -> anyhow::Result<()> {
    let (step, requests) = if recorder.options().quick { (10, 20_000) } else { (4, 200_000) };
    let (x, y) = (Axis::linear("throughput", "MRPS"), Axis::log("p99", "us"));
    let title = format!("p99, {}, S = {MEAN_US} us, {}", law.name(), costs.name);
    let chart = recorder.chart(&format!("{}-{}", law.name(), costs.name), &title, x, y);
    for bound_us in OBJECTIVES_US {
        let words = format!("{bound_us} us");
        recorder.mark(chart, Mark::horizontal(MarkOf::Objective, bound_us, &words));
    }
    over_throughput(recorder, (chart, &title), all, (costs, law, MEAN_US), (step, requests))
}
