//! HyperPlane Figure 3: what polling many queues costs.

use measure::Kept;
use notify::{Latency, Layout, Shape, Strategy};
use reproduce::{Axis, ChartId, Figure, Measured, Recorder, Takes};

use super::bench::{Cells, Queues};
use super::findings::{MEAN, P99};
use super::services::ENCAPSULATION;
use crate::reproduce::Testbed;

/// See the module's comment.
pub const FIG3: Figure<Testbed> = Figure {
    id: "hyperplane/fig3",
    title: "Spin polling over the number of queues",
    section: "HyperPlane (MICRO'20) §II-C, Figure 3",
    what: "One core that polls its queues in turn, by a tight loop over doorbells and as a poll-mode \
           driver does: (a) throughput with backlog in four traffic shapes; (b) mean and p99 latency at \
           10,000 items a second over all queues, from before an item is enqueued until it is dequeued; \
           (c) the distribution at three numbers of queues. Doorbells one to a page. The paper measured \
           the round trip of a packet through a network card, and encapsulation for (a).",
    claims: &[],
    takes: Takes { quick_s: 45, full_s: 240 },
    run,
};

const QUICK: [u32; 4] = [1, 64, 256, 1_000];
const FULL: [u32; 8] = [1, 8, 32, 64, 128, 256, 512, 1_000];
/// Queues of (c).
const DISTRIBUTIONS: [u32; 3] = [1, 256, 1_000];
/// The paper's 0.01 million packets a second.
const GAP_NS: f64 = 100_000.0;
const POLLING: [Strategy; 2] = [Strategy::Burst, Strategy::Spin];
const LAYOUT: Layout = Layout::Paged;

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let cells = Cells::begin(recorder)?;
    let counts: &[u32] = if recorder.options().quick { &QUICK } else { &FULL };
    recorder.plan((counts.len() * (Shape::ALL.len() + 1)) as u64);
    recorder.condition("task", format!("work of {}", ENCAPSULATION.name));
    let outcome =
        throughput(&cells, recorder, counts).and_then(|()| latency(&cells, recorder, counts));
    cells.end(recorder);
    outcome
}

fn queues_axis() -> Axis {
    Axis::linear("queues", "")
}

fn throughput(cells: &Cells, recorder: &mut Recorder<'_>, counts: &[u32]) -> anyhow::Result<()> {
    let seed = recorder.options().seed;
    let y = || Axis::linear("throughput", "million items/s");
    let title = |strategy: Strategy| format!("(a) Throughput, {}", strategy.name());
    let names = ["a-burst", "a-spin"];
    let charts: Vec<ChartId> = (POLLING.iter().zip(names))
        .map(|(&strategy, name)| recorder.chart(name, &title(strategy), queues_axis(), y()))
        .collect();
    for shape in Shape::ALL {
        for &count in counts {
            recorder.step(&format!("{}, {count} queues", shape.short()))?;
            let queues = Queues { count, shape, layout: LAYOUT };
            let found = cells.backlog(&POLLING, queues, ENCAPSULATION)?;
            for (&chart, kept) in charts.iter().zip(&found) {
                let rate = Measured::windows(kept, seed, |found| 1e3 / found.ns_per_item);
                recorder.curve(chart, shape.short(), [(count.into(), rate)]);
            }
        }
    }
    Ok(())
}

fn latency(cells: &Cells, recorder: &mut Recorder<'_>, counts: &[u32]) -> anyhow::Result<()> {
    let seed = recorder.options().seed;
    let y = Axis::linear("latency", "us");
    let chart = recorder.chart("b", "(b) Latency at light load", queues_axis(), y);
    let x = Axis::log("latency", "us");
    let share = Axis::linear("share of items", "").range(0.0, 1.0);
    let cdf = recorder.chart("c", "(c) Distribution of the latency, DPDK-like", x, share);
    for &count in counts {
        recorder.step(&format!("light load, {count} queues"))?;
        let queues = Queues { count, shape: Shape::FullyBalanced, layout: LAYOUT };
        let contenders = POLLING.map(|strategy| (strategy, queues, GAP_NS));
        let found = cells.light(&contenders, ENCAPSULATION)?;
        for (strategy, kept) in POLLING.iter().zip(&found) {
            for (words, of_ns) in [("mean", MEAN), ("p99", P99)] {
                let series = recorder.series(chart, &format!("{}, {words}", strategy.name()));
                let value = Measured::windows(kept, seed, |found| of_ns(found) / 1e3);
                recorder.point(series, count.into(), value);
            }
        }
        if DISTRIBUTIONS.contains(&count) {
            recorder.curve(cdf, &format!("{count} queues"), distribution(&found[0]));
        }
    }
    Ok(())
}

/// Points of the distribution over all windows: latency in microseconds, and the share of items that
/// it was no longer for.
fn distribution(kept: &Kept<Latency>) -> Vec<(f64, f64)> {
    let mut all: Vec<u64> =
        kept.found.iter().flat_map(|found| found.sorted_ns.iter().copied()).collect();
    all.sort_unstable();
    let last = all.len().saturating_sub(1) as f64;
    // Every fiftieth, and the tail more finely.
    let shares = (0..50).map(|step| f64::from(step) / 50.0).chain([0.985, 0.99, 0.995, 0.999, 1.0]);
    shares
        .filter_map(|share| Some((*all.get((share * last).round() as usize)? as f64 / 1e3, share)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_rises_from_the_least_to_the_greatest() {
        let window = |from: u64| Latency {
            sorted_ns: (from..from + 1_000).collect(),
            disturbance: measure::Disturbance::default(),
        };
        let found = vec![window(1_000), window(2_000)];
        let points = distribution(&Kept::from(found));
        assert_eq!((points[0], points[25]), ((1.0, 0.0), (2.0, 0.5)));
        assert_eq!(points.last(), Some(&(2.999, 1.0)));
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 < b.1));
        let nothing = Kept::from(Vec::new());
        assert!(distribution(&nothing).is_empty());
    }
}
