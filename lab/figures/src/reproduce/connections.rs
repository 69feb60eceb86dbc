//! IX Figure 6: message rate over open connections.

use anyhow::Context;
use bench::connections;
use measure::Kept;
use measure::stats::median_of;
use reproduce::{Axis, Figure, Measured, Recorder, Takes};

use super::Testbed;
use super::scaling::{self, Found, PER_PORT};
use crate::demo::systems::Tailplane;

const QUARTER: &str = "ix.fig6.throughput_at_250k_connections_over_peak";
const MILLION: &str = "ix.fig6.throughput_at_1m_connections_over_peak";
/// Connections on each of which one message goes there and back in the loopback driver.
const SAMPLE: usize = 50_000;

/// See the module's comment.
pub const FIG6: Figure<Testbed> = Figure {
    id: "ix/fig6",
    title: "Messages per second over open connections",
    section: "IX (TOCS'16) §5.3, Figure 6",
    what: "64-byte echo over connections that are all open, in an order in which none comes again \
           soon. On the veth pair: one server core and one client core, 256 messages outstanding, end \
           to end and per second in which the server was busy; the claims are over the latter's peak. \
           In the loopback driver: per second of the server's processor time, which shows what the \
           caches' misses cost where no driver hides them.",
    claims: &[QUARTER, MILLION],
    takes: Takes { quick_s: 90, full_s: 400 },
    run,
};

fn run(testbed: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let options = recorder.options();
    recorder.condition("B", 64);
    let counts: &[usize] = if options.quick {
        &[64, 10_000, 250_000, 1_000_000]
    } else {
        &[64, 1_000, 10_000, 50_000, 100_000, 250_000, 500_000, 1_000_000]
    };
    recorder.plan(2 * counts.len() as u64);
    let x = || Axis::log("open connections", "");
    let rate = recorder.chart("rate", "Messages per second", x(), Axis::linear("rate", "1/s"));
    let title = "Messages per second of the server's processor time";
    let alone = recorder.chart("alone", title, x(), Axis::linear("rate", "1/s"));
    let y = Axis::linear("per connection", "bytes");
    let state = recorder.chart("state", "Stack state", x(), y);
    on_the_pair(testbed, recorder, rate, counts)?;
    in_memory(recorder, (alone, state), counts)
}

const CAPACITY: fn(&Found) -> f64 = |found| found.capacity;

/// On real packets.
fn on_the_pair(
    testbed: &mut Testbed,
    recorder: &mut Recorder<'_>,
    chart: reproduce::ChartId,
    counts: &[usize],
) -> anyhow::Result<()> {
    let options = recorder.options();
    let lab = testbed.lab(recorder)?;
    let rate = recorder.series(chart, "end to end");
    let capacity = recorder.series(chart, "of the server's busy time");
    let mut found: Vec<(usize, Kept<Found>)> = Vec::new();
    for &count in counts {
        recorder.step(&format!("{count} connections on the pair"))?;
        let server = Tailplane::start_for_many(lab, count.div_ceil(PER_PORT) as u16)?;
        let target = Tailplane::MANY_TARGET;
        let to = (*target.ip(), target.port());
        let windows = options.repeats.max(3);
        let rates = scaling::rates(lab, to, count, windows, || server.busy())
            .with_context(|| format!("{count} connections"))?;
        server.stop()?;
        let of_each = |key: fn(&Found) -> f64| Measured::windows(&rates, options.seed, key);
        recorder.point(rate, count as f64, of_each(|found| found.rate));
        recorder.point(capacity, count as f64, of_each(CAPACITY));
        found.push((count, rates));
    }
    recorder.note(
        "With many connections each answer is acknowledged by a packet of its own, since the next \
         message of its connection comes too late to carry that. A sender on a veth pair pays for the \
         receiver's interrupt, so this makes the one client core the bottleneck: the claims are about \
         the server, so they are over its busy time, in which it could have served more.",
    );
    let peak = found.iter().max_by(|(_, a), (_, b)| {
        median_of(a.values(CAPACITY)).total_cmp(&median_of(b.values(CAPACITY)))
    });
    let Some((_, peak)) = peak else { return Ok(()) };
    for (id, wanted) in [(QUARTER, 250_000), (MILLION, 1_000_000)] {
        if let Some((_, rates)) = found.iter().find(|&&(count, _)| count == wanted) {
            let ratio = Measured::ratio_apart((rates, CAPACITY), (peak, CAPACITY), options.seed);
            recorder.claim(id, ratio)?;
        }
    }
    Ok(())
}

/// Server and client in one process, without a driver.
fn in_memory(
    recorder: &mut Recorder<'_>,
    (rate, state): (reproduce::ChartId, reproduce::ChartId),
    counts: &[usize],
) -> anyhow::Result<()> {
    let options = recorder.options();
    let rates = recorder.series(rate, "tailplane, loopback driver");
    let bytes = recorder.series(state, "tailplane");
    for &count in counts {
        recorder.step(&format!("{count} connections in memory"))?;
        let mut samples = Vec::new();
        for _ in 0..options.repeats.min(3) {
            let one = connections::run(count, SAMPLE.min(count))
                .with_context(|| format!("{count} connections"))?;
            samples.push(one.echoes_per_s_all);
            if samples.len() == 1 && count >= 1_000 {
                recorder.point(bytes, count as f64, Measured::single(one.server_bytes));
            }
        }
        recorder.point(rates, count as f64, Measured::samples(&samples));
    }
    Ok(())
}
