//! IX Figure 6: message rate over open connections.

use anyhow::Context;
use reproduce::{Axis, Figure, Measured, Recorder, Takes};
use tailplane_bench::connections;

use super::Testbed;

const QUARTER: &str = "ix.fig6.throughput_at_250k_connections_over_peak";
const MILLION: &str = "ix.fig6.throughput_at_1m_connections_over_peak";
/// Connections on each of which one message goes there and back.
const SAMPLE: usize = 50_000;

/// See the module's comment.
pub const FIG6: Figure<Testbed> = Figure {
    id: "ix/fig6",
    title: "Messages per second over open connections",
    section: "IX (TOCS'16) §5.3, Figure 6",
    what: "64-byte echo over the loopback driver, client and server dataplane in one process: all \
           connections are open, and messages go over connections that are chosen so that none comes \
           again soon. Rates are per second of the server's processor time; the peak is the highest \
           of this run.",
    claims: &[QUARTER, MILLION],
    takes: Takes { quick_s: 60, full_s: 240 },
    run,
};

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let options = recorder.options();
    recorder.condition("driver", "loopback");
    recorder.condition("B", 64);
    let counts: &[usize] = if options.quick {
        &[64, 10_000, 250_000]
    } else {
        &[64, 1_000, 10_000, 50_000, 100_000, 250_000, 500_000, 1_000_000]
    };
    recorder.plan(counts.len() as u64);
    let x = || Axis::log("open connections", "");
    let rate = recorder.chart("rate", "Messages per second", x(), Axis::linear("rate", "1/s"));
    let state =
        recorder.chart("state", "Stack state", x(), Axis::linear("per connection", "bytes"));
    let rates = recorder.series(rate, "tailplane, loopback");
    let bytes = recorder.series(state, "tailplane");
    let mut found = Vec::new();
    for &count in counts {
        recorder.step(&format!("{count} connections"))?;
        let mut samples = Vec::new();
        for _ in 0..options.repeats.min(3) {
            let one = connections::run(count, SAMPLE.min(count))
                .with_context(|| format!("{count} connections"))?;
            samples.push(one.echoes_per_s_all);
            if samples.len() == 1 && count >= 1_000 {
                recorder.point(bytes, count as f64, Measured::single(one.server_bytes));
            }
        }
        let measured = Measured::samples(&samples);
        found.extend(measured.value().map(|value| (count, value)));
        recorder.point(rates, count as f64, measured);
    }
    let peak = found.iter().map(|&(_, value)| value).fold(0.0, f64::max);
    for (id, wanted) in [(QUARTER, 250_000), (MILLION, 1_000_000)] {
        match found.iter().find(|&&(count, _)| count == wanted) {
            Some(&(_, value)) => recorder.claim(id, Measured::single(value / peak))?,
            None => recorder.claim_not_run(id, "not part of a quick run")?,
        }
    }
    Ok(())
}
