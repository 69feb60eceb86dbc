//! ZygOS Figure 11: which system serves most depends on how strict the objective is.

use queueing::Law;
use reproduce::{Figure, Recorder, Takes};

use super::curves::over_throughput;
use super::systems::{RTC, RTC_64, WORK_CONSERVING, cost_models};
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
