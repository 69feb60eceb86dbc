//! One core's connections idle, the other's overloaded: what stealing gains on two real cores.

use measure::stats::median_of;
use reproduce::{Axis, Figure, Mark, MarkOf, Measured, Recorder, Takes};

use super::real::{Load, windows};
use super::systems::BOUND;
use crate::reproduce::Testbed;

const MEAN_US: f64 = 100.0;
/// What stealing has to gain.
const GAIN: f64 = 1.7;

/// See the module's comment.
pub const IMBALANCE: Figure<Testbed> = Figure {
    id: "zygos/imbalance",
    title: "Two real cores, all connections at home on one",
    section: "ZygOS (SOSP'17) §4.2 (persistent imbalance; not evaluated there)",
    what: "The synthetic service, exponential with a mean of 100 us, on two elastic threads on two processors, \
           joined to the client by shared memory. All connections are at home on the first. Throughput rises \
           until the 99th percentile exceeds ten mean service times; the client shares the second processor, \
           which the thief is the poorer for.",
    claims: &[],
    takes: Takes { quick_s: 60, full_s: 300 },
    run,
};

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let options = recorder.options();
    let (step, count) = if options.quick { (10, 3) } else { (5, 9) };
    let bound_us = BOUND * MEAN_US;
    let (x, y) =
        (Axis::linear("throughput", "requests per mean service time"), Axis::log("p99", "us"));
    let chart = recorder.chart("one-sided", "p99, one core's connections idle", x, y);
    recorder.mark(chart, Mark::horizontal(MarkOf::Objective, bound_us, "10 S"));
    recorder.plan(2);
    let (mut highest, mut disturbed, mut loud) = ([0.0_f64; 2], 0, 0);
    for (index, (name, stealing)) in
        [("run-to-completion", false), ("work-conserving", true)].into_iter().enumerate()
    {
        recorder.step(name)?;
        let series = recorder.series(chart, name);
        let mut misses = 0;
        for hundredths in (2 * step..=200).step_by(step) {
            let cores = hundredths as f64 / 100.0;
            let load = Load { cores, mean_us: MEAN_US, one_sided: true, stealing };
            let found = windows(&load, count, options.seed)?;
            disturbed += found.discarded;
            loud += usize::from(found.disturbed.is_some());
            let measured = Measured::windows(&found, options.seed, |found| found.p99_us);
            recorder.point(series, cores, measured);
            // One load above the bound may be chance; two in a row are the end.
            if median_of(found.values(|found| found.p99_us)) <= bound_us {
                highest[index] = cores;
                misses = 0;
            } else {
                misses += 1;
            }
            if misses == 2 {
                break;
            }
        }
    }
    let [completing, stealing] = highest;
    let gain = stealing / completing;
    let verdict = if gain >= GAIN { "at least" } else { "less than" };
    recorder.note(format!(
        "highest throughput with p99 <= 10 S, in requests per mean service time: {completing:.2} run to \
         completion, {stealing:.2} work-conserving: {gain:.2} times, {verdict} {GAIN}"
    ));
    if disturbed > 0 {
        recorder.note(format!(
            "{disturbed} windows were disturbed by others and left out, but for {loud} loads without a quiet window"
        ));
    }
    Ok(())
}
