//! ZygOS Figure 8: the share of events that are executed away from their home core, over load.

use queueing::Law;
use reproduce::{Axis, Figure, Mark, MarkOf, Measured, Recorder, Takes};

use super::systems::{COOPERATIVE, KICKS, WORK_CONSERVING, cost_models, loads};
use crate::reproduce::Testbed;

const CLAIM: &str = "zygos.fig8.peak_steal_rate_without_kicks";
const MEAN_US: f64 = 25.0;

/// See the module's comment.
pub const FIG8: Figure<Testbed> = Figure {
    id: "zygos/fig8",
    title: "Share of events executed by a remote core",
    section: "ZygOS (SOSP'17) §6.1, Figure 8",
    what: "Exponential service times with a mean of 25 us, simulated as for Figure 6. Each event that the \
           application gets on another core than its connection's home counts as stolen, whatever the \
           scheduler calls it: without a way to a core that is in the application, with kicks, and with \
           borrowing.",
    claims: &[CLAIM],
    takes: Takes { quick_s: 90, full_s: 1_200 },
    run,
};

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let models = cost_models(recorder)?;
    recorder.plan(models.len() as u64);
    let options = recorder.options();
    let (step, requests) = if options.quick { (10, 10_000) } else { (4, 200_000) };
    let (x, y) =
        (Axis::linear("load", "").range(0.0, 1.0), Axis::linear("stolen", "").range(0.0, 1.0));
    let chart = recorder.chart("steals", "Share of events executed away from home", x, y);
    recorder.mark(chart, Mark::horizontal(MarkOf::Paper, 0.33, "without interrupts: 33 %"));
    let mut peak: f64 = 0.0;
    for (index, costs) in models.iter().enumerate() {
        recorder.step(&format!("stealing, {}", costs.name))?;
        for system in [COOPERATIVE, KICKS, WORK_CONSERVING] {
            let series = recorder.series(chart, &format!("{}, {}", system.name, costs.name));
            let setup = system.setup(costs, Law::Exponential, MEAN_US);
            system.run_up(&setup, &loads(step), (requests, options.seed), |load, outcome| {
                recorder.point(series, load, Measured::single(outcome.steal_rate()));
                if index == 0 && system.name == COOPERATIVE.name {
                    peak = peak.max(outcome.steal_rate());
                }
            })?;
        }
    }
    recorder.claim(CLAIM, Measured::single(peak))
}
