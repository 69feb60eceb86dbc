//! IX Figure 13: the batch bound.

use std::time::Duration;

use load::{Mode, WorkloadConfig};
use measure::stats::median_of;
use measure::{Plan, QUIET, contest, shuffled};
use reproduce::{Axis, Figure, Measured, Recorder, Takes};

use super::Testbed;
use super::memcached::{at_slo, search};
use crate::demo::kv_test::{CONNECTIONS, KvServer, KvTest, SEARCH_WINDOW_MS};
use crate::demo::systems::Tailplane;
use service::config::App;

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
    let y = Axis::linear("throughput", "requests/s");
    let rate = recorder.chart("rate", "Throughput within 500 us", x(), y);
    let low = recorder.chart("low", "p99 at 50,000 requests/s", x(), Axis::linear("p99", "us"));
    let rates = recorder.series(rate, "tailplane");
    let seed = options.seed;
    let start = |bound| -> anyhow::Result<KvTest<'_>> {
        let server = Tailplane::start(lab, App::Kv, |config| config.dataplane.batch = bound)?;
        let test = KvTest::new(lab, KvServer::Tailplane(server), &WorkloadConfig::usr(), seed);
        test.store_keys()?;
        Ok(test)
    };
    let windows = options.repeats.max(3) as usize;
    let plan = Plan { windows, tries: windows, pause: Duration::ZERO, quiet: QUIET, seed };
    let mut contestants = bounds.to_vec();
    let kept = contest(&mut contestants, plan, |&mut bound| {
        recorder.step(&format!("low load, B = {bound}"))?;
        let test = start(bound)?;
        let found = test.window(&test.load(Mode::open(LOW_RPS), CONNECTIONS, SEARCH_WINDOW_MS))?;
        test.end()?;
        anyhow::Ok((found.0.p99_us, found.1))
    })?;
    let tails = bounds
        .iter()
        .zip(&kept)
        .map(|(&bound, kept)| (bound as f64, Measured::windows(kept, seed, |p99_us| *p99_us)));
    recorder.curve(low, "tailplane", tails);
    if let [one, .., all] = kept.as_slice() {
        let ratios: Vec<f64> = all.paired(one).map(|(all, one)| all / one).collect();
        recorder.note(format!(
            "p99 at {LOW_RPS} requests/s, B = {} over B = {} in the same round: {:.2} (median of {})",
            bounds[bounds.len() - 1],
            bounds[0],
            median_of(ratios.iter().copied()),
            ratios.len()
        ));
    }
    let mut found = Vec::new();
    for bound in shuffled(bounds.to_vec(), seed) {
        let test = start(bound)?;
        found.push((bound, search(&test, recorder, &format!("B = {bound}"))?.1));
        test.end()?;
    }
    found.sort_unstable_by_key(|(bound, _)| *bound);
    for &(bound, found) in &found {
        recorder.point(rates, bound as f64, at_slo(found));
    }
    let of = |wanted: usize| found.iter().find(|(bound, _)| *bound == wanted)?.1;
    match (of(16), of(1)) {
        (Some(many), Some(one)) => recorder.claim(GAIN, Measured::single(many / one)),
        _ => recorder.claim_not_run(GAIN, "the objective was kept at no load"),
    }
}
