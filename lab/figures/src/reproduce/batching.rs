//! IX Figure 13: the batch bound.

use load::{Mode, WorkloadConfig};
use reproduce::stats::median;
use reproduce::{Axis, Figure, Measured, Recorder, Takes};

use super::Testbed;
use super::memcached::{load_of, search, store_keys};
use crate::demo::systems::Tailplane;
use crate::demo::window::window;
use service::lab::Lab;

const GAIN: &str = "ix.fig13.batching_gain_b16_over_b1";
/// A load at which batches hardly form, in requests per second.
const LOW_RPS: f64 = 50_000.0;

/// See the module's comment.
pub const FIG13: Figure<Testbed> = Figure {
    id: "ix/fig13",
    title: "The bound on adaptive batches",
    section: "IX (TOCS'16) §6.1, Figure 13",
    what: "The USR workload with batch bounds B from 1 to 64: the highest load whose p99 stays below \
           500 us, and the p99 at a low load, which batching must not raise: there the bounds take turns, each with a \
           server of its own, and are compared within a round.",
    claims: &[GAIN],
    takes: Takes { quick_s: 100, full_s: 300 },
    run,
};

fn run(testbed: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let options = recorder.options();
    let lab = testbed.lab(recorder)?;
    recorder.condition("priority", "real-time for the server and the client");
    let bounds: &[usize] = if options.quick { &[1, 16, 64] } else { &[1, 2, 8, 16, 64] };
    let x = || Axis::log("batch bound B", "packets");
    let rate = recorder.chart(
        "rate",
        "Throughput within 500 us",
        x(),
        Axis::linear("throughput", "requests/s"),
    );
    let low = recorder.chart("low", "p99 at 50,000 requests/s", x(), Axis::linear("p99", "us"));
    let (rates, tails) = (recorder.series(rate, "tailplane"), recorder.series(low, "tailplane"));
    let workload = WorkloadConfig::usr();
    let target = Tailplane::target();
    let rounds = low_load(lab, recorder, bounds, &workload)?;
    for (index, &bound) in bounds.iter().enumerate() {
        let p99: Vec<f64> = rounds.iter().map(|round| round[index]).collect();
        recorder.point(tails, bound as f64, Measured::samples(&p99));
    }
    let ratios: Vec<f64> = rounds.iter().map(|round| round[round.len() - 1] / round[0]).collect();
    if let Some(ratio) = median(&ratios) {
        let (least, most) = (bounds[0], bounds[bounds.len() - 1]);
        recorder.note(format!(
            "p99 at {LOW_RPS} requests/s, B = {most} over B = {least} in the same round: {ratio:.2} (median of {})",
            ratios.len()
        ));
    }
    let mut found = Vec::new();
    for &bound in bounds {
        let server = Tailplane::start_batched(lab, bound)?;
        store_keys(lab, &[], &workload, target, options.seed)?;
        let name = format!("B = {bound}");
        let (_, at_slo) = search(lab, &[], &workload, target, recorder, &name)?;
        let measured = at_slo.map_or_else(
            || Measured::missing("the objective was kept at no load that was tried"),
            Measured::single,
        );
        recorder.point(rates, bound as f64, measured);
        found.push((bound, at_slo));
        server.stop()?;
    }
    let of = |wanted: usize| found.iter().find(|(bound, _)| *bound == wanted)?.1;
    match (of(16), of(1)) {
        (Some(many), Some(one)) => recorder.claim(GAIN, Measured::single(many / one))?,
        _ => recorder.claim_not_run(GAIN, "the objective was kept at no load")?,
    }
    Ok(())
}

/// The p99 at the low load under each bound, in microseconds: round by round, so that bounds are compared which were
/// measured within seconds of each other.
fn low_load(
    lab: &Lab,
    recorder: &mut Recorder<'_>,
    bounds: &[usize],
    workload: &WorkloadConfig,
) -> anyhow::Result<Vec<Vec<f64>>> {
    let (seed, target) = (recorder.options().seed, Tailplane::target());
    let load = load_of(workload, Mode::open(LOW_RPS), 64, seed);
    let mut rounds = Vec::new();
    for round in 0..recorder.options().repeats.max(3) {
        let mut p99_us = vec![0.0; bounds.len()];
        for turn in 0..bounds.len() {
            // Another one first in each round.
            let index = (turn + round as usize) % bounds.len();
            let bound = bounds[index];
            recorder.step(&format!("low load, round {}, B = {bound}", round + 1))?;
            let server = Tailplane::start_batched(lab, bound)?;
            store_keys(lab, &[], workload, target, seed)?;
            p99_us[index] = window(lab, &[], &load, target)?.0.p99_us;
            server.stop()?;
        }
        rounds.push(p99_us);
    }
    Ok(rounds)
}
