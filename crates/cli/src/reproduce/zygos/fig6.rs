//! ZygOS Figure 6: p99 over load, three laws of service times with means of 10 and 25 us.

use multicore::{Costs, Run, Search};
use queueing::{Law, Replications, tail_curve};
use reproduce::{Axis, Figure, Mark, MarkOf, Measured, Recorder, Role, Takes};

use super::systems::{
    self, BOUND, LAWS, SHARE, SYSTEMS, WORK_CONSERVING, cost_models, measured, p99_us,
};
use crate::reproduce::Testbed;

/// The two claims, with their mean service times.
const CLAIMS: [(&str, f64); 2] =
    [("zygos.fig6.efficiency_exp_10us", 10.0), ("zygos.fig6.efficiency_exp_25us", 25.0)];

/// See the module's comment.
pub const FIG6: Figure<Testbed> = Figure {
    id: "zygos/fig6",
    title: "p99 over load, 10 and 25 us",
    section: "ZygOS (SOSP'17) §6.1, Figure 6",
    what: "The synthetic service on sixteen virtual cores that run the real elastic threads and stack, \
           2,752 connections, at most four requests unanswered on each; every step charged by a cost \
           model: this machine's own, measured when the figure begins, the same with AF_XDP in copy mode, \
           and the papers' machine. Behind it theory without overhead, and models of Linux with \
           partitioned and with floating connections.",
    claims: &[CLAIMS[0].0, CLAIMS[1].0],
    takes: Takes { quick_s: 120, full_s: 1_800 },
    run,
};

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let models = cost_models(recorder)?;
    recorder.plan((LAWS.len() * CLAIMS.len() * (models.len() + 1)) as u64);
    for (claim, mean_us) in CLAIMS {
        fill(recorder, claim, mean_us, &models[0])?;
        for law in LAWS {
            panel(recorder, law, mean_us, &models)?;
        }
    }
    Ok(())
}

/// The efficiency: the highest load at the objective over that of M/G/16/FCFS without overhead.
fn fill(
    recorder: &mut Recorder<'_>,
    claim: &str,
    mean_us: f64,
    costs: &Costs,
) -> anyhow::Result<()> {
    let options = recorder.options();
    let search = Search {
        requests: if options.quick { 40_000 } else { 200_000 },
        count: options.repeats.max(3),
        seed: options.seed,
        ..Search::zygos()
    };
    let law = Law::Exponential;
    let found = WORK_CONSERVING.search(&WORK_CONSERVING.setup(costs, law, mean_us), &search)?;
    let best = queueing::theory::mmn_max_load(systems::CORES as u32, SHARE, BOUND);
    let words = format!("{:.1} % of {:.1} %", 100.0 * found.mean, 100.0 * best);
    recorder.claim(claim, measured(&found.map(|load| load / best), 0.0).note(words))?;
    Ok(())
}

fn panel(
    recorder: &mut Recorder<'_>,
    law: Law,
    mean_us: f64,
    models: &[Costs],
) -> anyhow::Result<()> {
    let options = recorder.options();
    let (step, requests) = if options.quick { (10, 20_000) } else { (4, 200_000) };
    let loads: Vec<f64> =
        (step..100).step_by(step).map(|load| f64::from(load as u32) / 100.0).collect();
    let bound_us = BOUND * mean_us;
    let name = format!("{}-{mean_us}us", law.name());
    let title = format!("p99, {}, S = {mean_us} us", law.name());
    let (x, y) = (Axis::linear("load", "").range(0.0, 1.0), Axis::log("p99", "us"));
    let chart = recorder.chart(&name, &title, x, y);
    recorder.mark(chart, Mark::horizontal(MarkOf::Objective, bound_us, "10 S"));
    for costs in models {
        recorder.step(&format!("{title}, {}", costs.name))?;
        for system in SYSTEMS {
            let setup = system.setup(costs, law, mean_us);
            let series = recorder.series(chart, &format!("{}, {}", system.name, costs.name));
            for &load in &loads {
                let run = Run { seed: options.seed, ..Run::new(load, requests) };
                let outcome = system.run(&setup, &run)?;
                let full = outcome.given_up;
                recorder.point(series, load, p99_us(&outcome));
                if full {
                    break;
                }
            }
        }
    }
    recorder.step(&format!("{title}, theory"))?;
    let runs = Replications { count: 2, seed: options.seed, ..Replications::new() };
    let runs = runs.of_jobs(if options.quick { 50_000 } else { 500_000 });
    let linux = systems::linux(&models[0], law, mean_us);
    for (name, curve) in systems::theory(law, mean_us).into_iter().chain(linux) {
        let series = recorder.series_as(chart, &name, Role::Theory);
        for point in tail_curve(&curve, &loads, &runs)? {
            let latency = point.latency.map(|latency| measured(&latency, 0.0));
            let latency = latency.unwrap_or_else(|| Measured::missing("more than can be served"));
            recorder.point(series, point.load, latency);
        }
    }
    Ok(())
}
