//! ZygOS Figure 6: p99 over load, three laws of service times with means of 10 and 25 us.

use queueing::{Law, MeanInterval};
use reproduce::{Axis, Figure, Mark, MarkOf, Measured, Recorder, Takes};
use world::cores::{Costs, Run, Search};

use super::curves::behind;
use super::systems::{
    self, BOUND, LAWS, SHARE, SYSTEMS, WORK_CONSERVING, cost_models, loads, p99_us,
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
    takes: Takes { quick_s: 170, full_s: 5_400 },
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
    recorder
        .claim(claim, Measured::mean(&found.map(|load| load / best), 0.0..=f64::MAX).note(words))?;
    let causes = losses(&search, costs, mean_us, &found, best)?;
    recorder.note(format!(
        "{claim}: {:.1} points of load are lost: {causes}",
        100.0 * (best - found.mean)
    ));
    Ok(())
}

/// What the load that is missing to theory's went to, in points of load. What a request costs beside its
/// service time is counted by cause, at the load that was found; what theory and the same simulation without
/// any costs differ by is the order in which requests are served; the rest is waiting that costs cause.
fn losses(
    search: &Search,
    costs: &Costs,
    mean_us: f64,
    found: &MeanInterval,
    best: f64,
) -> anyhow::Result<String> {
    let law = Law::Exponential;
    let run = Run { seed: search.seed, ..Run::new(found.mean.max(0.01), search.requests) };
    let outcome = WORK_CONSERVING.run(&WORK_CONSERVING.setup(costs, law, mean_us), &run)?;
    let requests = outcome.counts().requests.max(1) as f64;
    let points = |ns: f64| 100.0 * found.mean * ns / requests / (mean_us * 1e3);
    let budget = outcome.budget();
    let mut causes = vec![
        ("the network layers' work", points(budget.network_ns)),
        ("crossings and events", points(budget.crossing_ns)),
        ("lines that move with stolen turns", points(budget.steal_ns)),
        ("lines that move with borrowed network layers", points(budget.borrow_ns)),
        ("making turns", points(budget.turn_ns)),
        ("waiting for one's own network layer", points(budget.waiting_ns)),
    ];
    let free = WORK_CONSERVING.setup(&Costs::zero(), law, mean_us);
    let free = WORK_CONSERVING.search(&free, search)?;
    causes.push((
        "the order of service, and the time until a waiting core is seen",
        100.0 * (best - free.mean),
    ));
    let told: f64 = causes.iter().map(|(_, points)| points).sum();
    causes.push(("queueing behind all that", 100.0 * (best - found.mean) - told));
    let words: Vec<String> =
        causes.iter().map(|(cause, points)| format!("{cause} {points:.1}")).collect();
    Ok(words.join(", "))
}

fn panel(
    recorder: &mut Recorder<'_>,
    law: Law,
    mean_us: f64,
    models: &[Costs],
) -> anyhow::Result<()> {
    let options = recorder.options();
    let (step, requests) = if options.quick { (10, 10_000) } else { (4, 200_000) };
    let loads = loads(step);
    let bound_us = BOUND * mean_us;
    let name = format!("{}-{mean_us}us", law.name());
    let title = format!("p99, {}, S = {mean_us} us", law.name());
    let (x, y) = (Axis::linear("load", "").range(0.0, 1.0), Axis::log("p99", "us"));
    let chart = recorder.chart(&name, &title, x, y);
    recorder.mark(chart, Mark::horizontal(MarkOf::Objective, bound_us, "10 S"));
    for costs in models {
        recorder.step(&format!("{title}, {}", costs.name))?;
        // Quickly, the first two: kicks and neither are in Figure 8, too.
        let systems = if options.quick { &SYSTEMS[..2] } else { &SYSTEMS[..] };
        for system in systems {
            let setup = system.setup(costs, law, mean_us);
            let series = recorder.series(chart, &format!("{}, {}", system.name, costs.name));
            system.run_up(&setup, &loads, (requests, options.seed), |load, outcome| {
                recorder.point(series, load, p99_us(outcome));
            })?;
        }
    }
    recorder.step(&format!("{title}, theory"))?;
    let linux = systems::linux(&models[0], law, mean_us);
    behind(recorder, chart, systems::theory(law, mean_us).into_iter().chain(linux), &loads)
}
