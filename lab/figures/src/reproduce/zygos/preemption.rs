//! Long requests among short ones (ZygOS §2.3, bimodal-2): what a quantum does that no order of service can.

use queueing::Law;
use reproduce::{Axis, Figure, Mark, MarkOf, Recorder, Takes};
use world::cores::{Costs, Run};

use super::curves::behind;
use super::systems::{
    PREEMPTIVE, RTC, WORK_CONSERVING, cost_models, in_order_and_sharing, loads, p99_us,
};
use crate::reproduce::Testbed;

const MEANS_US: [f64; 2] = [10.0, 25.0];

/// See the module's comment.
pub const PREEMPTION: Figure<Testbed> = Figure {
    id: "zygos/preemption",
    title: "p99 over load, bimodal-2, with and without a quantum",
    section: "ZygOS (SOSP'17) §2.3 (not evaluated there)",
    what: "One request in a thousand takes a thousand times as long as the others. Simulated as for Figure 6: \
           without preemption, and with the application putting off at its safe points what has taken longer \
           than two mean service times; behind it theory without overhead, in the order of arrival and \
           sharing processors.",
    claims: &[],
    takes: Takes { quick_s: 150, full_s: 3_600 },
    run,
};

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let models = cost_models(recorder)?;
    recorder.plan((MEANS_US.len() * (models.len() + 1)) as u64);
    for mean_us in MEANS_US {
        panel(recorder, mean_us, &models)?;
    }
    Ok(())
}

fn panel(recorder: &mut Recorder<'_>, mean_us: f64, models: &[Costs]) -> anyhow::Result<()> {
    let options = recorder.options();
    // One in a thousand is long: fewer requests than this see too few of them.
    let requests = if options.quick { 100_000 } else { 1_000_000 };
    let loads = match options.quick {
        true => vec![0.3, 0.5, 0.7, 0.8],
        false => loads(4),
    };
    let title = format!("p99, bimodal-2, S = {mean_us} us");
    let (x, y) = (Axis::linear("load", "").range(0.0, 1.0), Axis::log("p99", "us"));
    let chart = recorder.chart(&format!("bimodal-2-{mean_us}us"), &title, x, y);
    recorder.mark(chart, Mark::horizontal(MarkOf::Objective, 10.0 * mean_us, "10 S"));
    let mut kept = Vec::new();
    for costs in models {
        recorder.step(&format!("{title}, {}", costs.name))?;
        for system in [RTC, WORK_CONSERVING, PREEMPTIVE] {
            let setup = system.setup(costs, Law::Bimodal2, mean_us);
            let series = recorder.series(chart, &format!("{}, {}", system.name, costs.name));
            let mut highest = None;
            for &load in &loads {
                let run = Run { seed: options.seed, ..Run::new(load, requests) };
                let outcome = system.run(&setup, &run)?;
                recorder.point(series, load, p99_us(&outcome));
                if outcome.given_up || outcome.latency_us(0.99) > 10.0 * mean_us {
                    break;
                }
                highest = Some(load);
            }
            let words = highest.map_or_else(|| "no load".to_owned(), |load| format!("{load:.2}"));
            kept.push(format!("{}, {}: {words}", system.name, costs.name));
        }
    }
    recorder.note(format!(
        "highest load of the curve up to which p99 <= 10 S, S = {mean_us} us: {}",
        kept.join("; ")
    ));
    recorder.step(&format!("{title}, theory"))?;
    behind(recorder, chart, in_order_and_sharing(Law::Bimodal2, mean_us), &loads)
}
