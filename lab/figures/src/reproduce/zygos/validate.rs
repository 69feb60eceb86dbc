//! The simulator against this machine: one curve of two cores, predicted and measured.

use measure::stats::median_of;
use reproduce::{Axis, Figure, Measured, Recorder, Role, Takes};

use super::real::{Load, simulated, windows};
use super::systems::{RTC_64, System, WORK_CONSERVING, cost_models};
use crate::reproduce::Testbed;

const MEAN_US: f64 = 100.0;
/// How far the prediction may be off, up to 80 % load: at the median, and at the 99th percentile.
const WITHIN: [f64; 2] = [0.15, 0.25];

/// See the module's comment.
pub const VALIDATE: Figure<Testbed> = Figure {
    id: "zygos/validate",
    title: "Two cores, simulated and real",
    section: "ZygOS (SOSP'17) §3.2, its service on this machine",
    what: "The synthetic service, exponential with a mean of 100 us, on two elastic threads on two processors, \
           joined to the client by shared memory; latency from when a request is on the wire until \
           the batch that served it is over. The client shares the second processor and runs first; the threads, \
           which always spin, note when they were not running. The simulator, with this machine's costs measured \
           just before, is given each window's requests (their moments, connections and service times) and those \
           times, and predicts its latencies.",
    claims: &[],
    takes: Takes { quick_s: 60, full_s: 300 },
    run,
};

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let costs = cost_models(recorder)?.swap_remove(0);
    let options = recorder.options();
    let (loads, count): (&[f64], usize) = match options.quick {
        true => (&[0.2, 0.4, 0.6, 0.8], 5),
        false => (&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], 15),
    };
    let both: [(System, bool); 2] = [(RTC_64, false), (WORK_CONSERVING, true)];
    recorder.plan((both.len() * loads.len()) as u64);
    let (mut furthest, mut disturbed, mut compared, mut loud) = ([0.0_f64; 2], 0, 0, 0);
    for (system, stealing) in both {
        let charts = ["p50", "p99"].map(|what| {
            let (x, y) = (Axis::linear("load", "").range(0.0, 1.0), Axis::log(what, "us"));
            let title = format!("{what}, {}", system.name);
            recorder.chart(&format!("{what}-{}", stealing_word(stealing)), &title, x, y)
        });
        let real = charts.map(|chart| recorder.series(chart, "this machine"));
        let told = charts.map(|chart| recorder.series_as(chart, "simulated", Role::Theory));
        for &load in loads {
            recorder.step(&format!("{}, load {load}", system.name))?;
            let what = Load { cores: 2.0 * load, mean_us: MEAN_US, one_sided: false, stealing };
            let found = windows(&what, count, options.seed)?;
            disturbed += found.discarded;
            let is_quiet = found.disturbed.is_none();
            compared += usize::from(is_quiet);
            loud += usize::from(!is_quiet);
            let taken = median_of(found.values(|found| {
                let took = found.interruptions.iter().map(|of| of.took_ns as f64 / 1e9);
                took.sum::<f64>() / 2.0 / found.seconds
            }));
            let mut predicted = [Vec::new(), Vec::new()];
            for window in &found.found {
                let [p50, p99] = simulated(&what, &system, &costs, window)?;
                predicted[0].push(p50);
                predicted[1].push(p99);
            }
            let values = [0, 1].map(|which| found.values(|found| found.served_us[which]));
            let medians = values.clone().map(median_of);
            let [p50, p99] = predicted.clone().map(median_of);
            for (index, told_us) in [p50, p99].into_iter().enumerate() {
                let real_us =
                    Measured::windows(&found, options.seed, |found| found.served_us[index]);
                recorder.point(real[index], load, real_us);
                recorder.point(told[index], load, Measured::samples(&predicted[index]));
                let off = (told_us / medians[index] - 1.0).abs();
                if is_quiet {
                    furthest[index] = furthest[index].max(off);
                }
            }
            recorder.note(format!(
                "{}, load {load}: p50 {:.0} us, simulated {p50:.0}; p99 {:.0}, simulated {p99:.0}; the client \
                 and others had the cores {:.0} % of the time",
                system.name, medians[0], medians[1], 100.0 * taken
            ));
        }
    }
    say_verdict(recorder, furthest, (disturbed, compared, loud));
    Ok(())
}

/// How far off the predictions were at most, at the `compared` loads that had a quiet window; `loud` ones had none, and
/// `disturbed` windows were left out in all.
fn say_verdict(
    recorder: &mut Recorder<'_>,
    furthest: [f64; 2],
    (disturbed, compared, loud): (usize, usize, usize),
) {
    let both = [("p50", furthest[0], WITHIN[0]), ("p99", furthest[1], WITHIN[1])];
    for (what, off, within) in both.into_iter().filter(|_| compared > 0) {
        let verdict = if off <= within { "within" } else { "beyond" };
        recorder.note(format!(
            "{what}: the prediction is off by {:.0} % at most, {verdict} {:.0} %",
            100.0 * off,
            100.0 * within
        ));
    }
    if disturbed > 0 {
        recorder.note(format!(
            "{disturbed} windows were disturbed by others; at {loud} of {} loads no window was quiet, and the \
             prediction is not held against those",
            loud + compared
        ));
    }
}

fn stealing_word(stealing: bool) -> &'static str {
    if stealing { "work-conserving" } else { "run-to-completion" }
}
