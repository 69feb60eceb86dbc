//! The software ready set against spinning, over shapes, numbers of queues, work and layouts
//! (HyperPlane Figures 8, 9, 10 and 13, for software on real cores).

use std::time::{Duration, Instant};

use measure::stats::median;
use measure::{Kept, WindowError, contest};
use notify::idle::sleeping;
use notify::pair::{Division, Load, Pair, PairFound};
use notify::{Chain, Layout, Shape, Strategy, Work};
use reproduce::{Axis, Figure, Measured, Recorder, Takes};

use super::bench::{Cells, LIGHT_GAP_NS, Queues};
use super::findings::{
    Findings, MEAN, P99, P99_GAIN, SINGLE_COST, SQ_GAIN, TWO, close_cells, judged,
};
use super::services::SERVICES;
use super::task::{LONG, MIDDLE, SHORT, Task};
use crate::reproduce::Testbed;

/// See the module's comment.
pub const SOFTWARE: Figure<Testbed> = Figure {
    id: "hyperplane/software",
    title: "The software ready set against spinning",
    section: "HyperPlane (MICRO'20) §V-B, §V-C, §V-E; here in software, on real cores",
    what: "A producer on one core and a consumer on another. Throughput in a closed loop with backlog, \
           one item a visit in round robin, in four traffic shapes at 1 to 1,000 queues; latency of \
           single Poisson arrivals 20 us apart, from before an item is enqueued until it is dequeued, after \
           20 ms of traffic that brings all queues into the caches. \
           Contenders: a tight loop over doorbells; a loop with the costs of a poll-mode driver \
           (indirect call, burst of one, the queue's own line and its descriptor); QWAIT exclusive and \
           shared; and a list of ready queues that is searched from end to end, the paper's software \
           ready set. Work of 100 ns, 400 ns and 1 us, and the six services of the paper (§V-A). Two consumers, by turns with a set each and with one together, on a schedule of \
           arrivals that whichever of them looks next releases. A consumer that sleeps.",
    claims: &[SQ_GAIN, P99_GAIN, SINGLE_COST],
    takes: Takes { quick_s: 200, full_s: 1_200 },
    run,
};

const COUNTS: [u32; 5] = [1, 8, 64, 256, 1_000];
/// A quick run begins no further cell after this long.
const QUICK_LIMIT: Duration = Duration::from_secs(170);

/// What is measured between one producer and one consumer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cell {
    Backlog(Queues, Task),
    /// Spinning and the exclusive set alone, in many places of memory.
    Close(Queues, Task),
    Light(Queues),
    /// The exclusive set's latency at [`MANY`] queues and at [`FEW`], in one contest.
    Flat(Layout),
}

/// Numbers of queues whose latencies are compared.
const MANY: u32 = 1_000;
/// See [`MANY`].
const FEW: u32 = 64;

/// The contenders of [`Cell::Flat`]: many queues; few, each with as many arrivals as each of the many; few, with as
/// many arrivals together. What a notification finds in the caches depends on how long ago its queue was last
/// used, and only in the first two is that the same.
fn flat(layout: Layout) -> [(Strategy, Queues, f64); 3] {
    let set = |count, gap_ns| {
        (Strategy::Exclusive, Queues { count, shape: Shape::FullyBalanced, layout }, gap_ns)
    };
    let rare_ns = LIGHT_GAP_NS * f64::from(MANY) / f64::from(FEW);
    [set(MANY, LIGHT_GAP_NS), set(FEW, rare_ns), set(FEW, LIGHT_GAP_NS)]
}

impl Cell {
    /// What it is about, whatever is measured.
    fn queues(self) -> Queues {
        match self {
            Self::Backlog(queues, _) | Self::Close(queues, _) | Self::Light(queues) => queues,
            Self::Flat(layout) => flat(layout)[0].1,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Backlog(queues, task) => format!("{queues}, work of {}", task.name),
            Self::Close(queues, task) => format!("{queues}, work of {}, two contenders", task.name),
            Self::Light(queues) => format!("{queues}, light load"),
            Self::Flat(layout) => format!("FB {MANY} against {FEW}, {}, light load", layout.name()),
        }
    }
}

/// All cells, those of the claims and targets first.
fn cells() -> Vec<Cell> {
    let at = |count, shape, layout| Queues { count, shape, layout };
    let (fb, sq) = (Shape::FullyBalanced, Shape::SingleQueue);
    let (packed, paged) = (Layout::Packed, Layout::Paged);
    let mut cells = vec![
        Cell::Backlog(at(1_000, sq, paged), MIDDLE),
        Cell::Backlog(at(1_000, sq, paged), LONG),
        Cell::Light(at(1_000, fb, paged)),
        Cell::Flat(paged),
        Cell::Flat(packed),
    ];
    cells.extend(close_cells().into_iter().map(|(queues, task)| Cell::Close(queues, task)));
    cells.extend([
        // One queue is a page's start as well as any other place; for the fit of a poll's cost.
        Cell::Backlog(at(1, fb, paged), MIDDLE),
        Cell::Backlog(at(1_000, fb, paged), MIDDLE),
        Cell::Backlog(at(1_000, fb, packed), MIDDLE),
        Cell::Backlog(at(1_000, fb, paged), SHORT),
        Cell::Backlog(at(64, sq, paged), MIDDLE),
        Cell::Backlog(at(1_000, sq, packed), MIDDLE),
        Cell::Backlog(at(64, sq, packed), MIDDLE),
        Cell::Light(at(1, fb, packed)),
        Cell::Light(at(1_000, fb, packed)),
    ]);
    for task in SERVICES {
        cells.push(Cell::Backlog(at(1_000, sq, paged), task));
        cells.push(Cell::Backlog(at(1_000, fb, paged), task));
    }
    for layout in [paged, packed] {
        let counts = |shape| COUNTS.map(|count| at(count, shape, layout)).into_iter().rev();
        let all = || Shape::ALL.into_iter().flat_map(counts);
        // By weight: what a quick run leaves out is the short work.
        for task in [MIDDLE, LONG, SHORT] {
            cells.extend(all().map(|queues| Cell::Backlog(queues, task)));
        }
        cells.extend(all().map(Cell::Light));
    }
    let mut kept: Vec<Cell> = Vec::new();
    for cell in cells {
        let Queues { count, shape, .. } = cell.queues();
        // A shape in which all queues are busy is FB.
        let is_fb = shape != fb && shape.hot(count) == count;
        if !is_fb && !kept.contains(&cell) {
            kept.push(cell);
        }
    }
    kept
}

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let bench = Cells::begin(recorder)?;
    let cells = cells();
    recorder.plan((cells.len() + LOADS.len() + 2) as u64);
    recorder.note(
        "Shapes in which all queues are busy (all of them at 1 queue, NC up to 100) are FB, and shown only \
         there. The DPDK-like loop has no doorbells: its descriptor rings lie alike in both layouts.",
    );
    let mut findings = Findings { seed: recorder.options().seed, ..Findings::default() };
    let begun = Instant::now();
    let outcome = extras(&bench, recorder).and_then(|()| {
        for (index, &cell) in cells.iter().enumerate() {
            if recorder.options().quick && begun.elapsed() > QUICK_LIMIT {
                let left = cells.len() - index;
                recorder
                    .note(format!("a quick run: {left} of {} cells were left out", cells.len()));
                break;
            }
            recorder.step(&cell.name())?;
            measure(&bench, recorder, cell, &mut findings)?;
        }
        Ok(())
    });
    bench.end(recorder);
    // Also of a run that was stopped: what was measured stands.
    findings.show(recorder, &COUNTS)?;
    outcome
}

fn measure(
    bench: &Cells,
    recorder: &mut Recorder<'_>,
    cell: Cell,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let seed = recorder.options().seed;
    let x = || Axis::log("queues", "");
    match cell {
        Cell::Backlog(queues, task) => {
            let kept = bench.backlog(&Strategy::ALL, queues, task)?;
            let (shape, bytes) = (queues.shape.short(), queues.layout.stride());
            let name = format!("{}-{bytes}-{}", shape.to_lowercase(), task.slug);
            let title = format!("{shape}, {}, work of {}", queues.layout.name(), task.name);
            let y = Axis::log("throughput", "million items/s");
            let chart = recorder.chart(&name, &title, x(), y);
            for (strategy, kept) in Strategy::ALL.iter().zip(&kept) {
                let rate = Measured::windows(kept, seed, |found| 1e3 / found.ns_per_item);
                let point = (queues.count.into(), starved(kept, rate));
                recorder.curve(chart, strategy.name(), [point]);
            }
            findings.backlog.insert((queues, task.slug), kept);
        }
        Cell::Close(queues, task) => {
            let kept = bench.backlog_in_places(&TWO, queues, task)?;
            findings.close.insert((queues, task.slug), kept);
        }
        Cell::Light(queues) => {
            let contenders = Strategy::ALL.map(|strategy| (strategy, queues, LIGHT_GAP_NS));
            let kept = bench.light(&contenders, SHORT)?;
            let (shape, bytes) = (queues.shape.short(), queues.layout.stride());
            for (words, of_ns) in [("mean", MEAN), ("p99", P99)] {
                let name = format!("latency-{}-{bytes}-{words}", shape.to_lowercase());
                let title =
                    format!("Light load: {words} latency, {shape}, {}", queues.layout.name());
                let chart = recorder.chart(&name, &title, x(), Axis::log("latency", "us"));
                for (strategy, kept) in Strategy::ALL.iter().zip(&kept) {
                    let value = Measured::windows(kept, seed, |found| of_ns(found) / 1e3);
                    recorder.curve(chart, strategy.name(), [(queues.count.into(), value)]);
                }
            }
            findings.light.insert(queues, kept);
        }
        Cell::Flat(layout) => {
            findings.flat.insert(layout, bench.light(&flat(layout), SHORT)?);
        }
    }
    Ok(())
}

/// Looks without a find, for each item, above which a cell says that its producer was the limit.
const STARVED: f64 = 0.02;

fn starved(kept: &Kept<notify::Throughput>, rate: Measured) -> Measured {
    let idle = kept.values(|found| found.idle_looks_per_item);
    match median(&idle) {
        Some(idle) if idle > STARVED => rate.note(format!(
            "the producer was the limit: {idle:.2} looks for each item found nothing"
        )),
        _ => rate,
    }
}

/// Two consumers, and a sleeping one.
fn extras(bench: &Cells, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    asleep(recorder)?;
    pairs(bench, recorder)
}

/// Queues that a sleeping consumer watches.
const ASLEEP_QUEUES: u32 = 1_000;

fn asleep(recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let quick = recorder.options().quick;
    let length = Duration::from_millis(if quick { 400 } else { 1_000 });
    let (x, y) = (Axis::category("arrivals"), Axis::linear("processor time", "% of a core"));
    let title = "A consumer that sleeps on a futex, 1,000 queues";
    let chart = recorder.chart("asleep", title, x, y);
    let series = recorder.series(chart, "QWAIT, exclusive");
    for (label, gap) in [("none", length), ("1,000 a second", Duration::from_millis(1))] {
        recorder.step(&format!("asleep, arrivals: {label}"))?;
        let values = (0..recorder.options().repeats)
            .map(|_| Ok(sleeping(ASLEEP_QUEUES, length, gap)?.cpu * 100.0))
            .collect::<anyhow::Result<Vec<f64>>>()?;
        let found = Measured::samples(&values);
        if gap == length {
            let what = "an idle consumer's processor time, % of a core";
            recorder.note(judged(what, Some(found.clone()), 2.0, false));
        }
        recorder.category(series, label, found);
    }
    Ok(())
}

/// As many queues as in the paper's Figure 10.
const PAIR_QUEUES: u32 = 400;
/// The share of the busier half: 10 % more than the mean of both.
const FIRST_HALF: f64 = 0.55;
/// Loads, as shares of what two consumers could do if finding work cost nothing.
const LOADS: [f64; 4] = [0.2, 0.4, 0.6, 0.7];
/// The load by which the target is judged.
const JUDGED: f64 = 0.7;
/// Work of one item: long beside what the two consumers need to release arrivals themselves, which would
/// else be a good part of their load.
const PAIR_WORK_NS: f64 = 4_000.0;

fn pairs(bench: &Cells, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let seed = recorder.options().seed;
    let axis = Axis::log("p99 from due until served", "us");
    let title = "Two consumers, 400 queues, work of 4 us, one half 10 % above the mean";
    let chart = recorder.chart("pair", title, Axis::linear("load", "of two cores"), axis);
    let place = |side| bench.places.take(side);
    for load in LOADS {
        recorder.step(&format!("two consumers, load {load}"))?;
        let mut pairs = Division::ALL
            .iter()
            .map(|&division| Pair::new(division, PAIR_QUEUES, seed))
            .collect::<Result<Vec<Pair>, _>>()?;
        let offered = Load { gap_ns: PAIR_WORK_NS / (2.0 * load), first_half: FIRST_HALF };
        let mut works = [(); 2].map(|()| Chain::of(PAIR_WORK_NS, bench.step_ns));
        let found = contest(&mut pairs, bench.plan, |pair| {
            let [one, two] = &mut works;
            let works: [&mut dyn Work; 2] = [one, two];
            let found = pair.run(&place, bench.latency_window, offered, works)?;
            let disturbance = found.latency.disturbance;
            Ok::<_, WindowError>((found, disturbance))
        })?;
        let p99: fn(&PairFound) -> f64 = |found| found.latency.quantile_ns(0.99) / 1e3;
        for (division, kept) in Division::ALL.iter().zip(&found) {
            let value = Measured::windows(kept, seed, p99);
            recorder.curve(chart, division.name(), [(load, overloaded(kept, value))]);
        }
        if load == JUDGED {
            let gain = Measured::ratio_of((&found[1], p99), (&found[2], p99), seed);
            let what =
                "two consumers, load 0.7, 10 % imbalance: p99 with a set each over one shared";
            recorder.note(judged(what, Some(gain), 1.0, true));
        }
    }
    Ok(())
}

/// Share of the arrivals that may be left when a window ends: those of its last moments.
const LEFT_MAX: f64 = 0.005;

fn overloaded(kept: &Kept<PairFound>, p99: Measured) -> Measured {
    let count = |of: fn(&PairFound) -> u64| kept.found.iter().map(of).sum::<u64>() as f64;
    let left = count(|found| found.refused);
    let share = left / (left + count(|found| found.latency.sorted_ns.len() as u64)).max(1.0);
    match share > LEFT_MAX {
        true => p99.note(format!("{:.1} % of the arrivals were not served", share * 100.0)),
        false => p99,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::hyperplane::task::TASKS;

    #[test]
    fn every_cell_stands_once_and_those_of_the_claims_first() {
        let cells = cells();
        for (index, &cell) in cells.iter().enumerate() {
            assert!(!cells[..index].contains(&cell), "{}", cell.name());
        }
        let backlog = cells.iter().filter(|cell| matches!(cell, Cell::Backlog(..))).count();
        // FB at five numbers, PC and SQ at four, NC at two, by layouts and tasks; each service twice.
        assert_eq!(backlog, 15 * Layout::ALL.len() * TASKS.len() + 2 * SERVICES.len());
        let flat = cells.iter().filter(|cell| matches!(cell, Cell::Flat(..))).count();
        assert_eq!(flat, Layout::ALL.len());
        let close = cells.iter().filter(|cell| matches!(cell, Cell::Close(..))).count();
        assert_eq!(close, close_cells().len());
        assert_eq!(cells.len() - backlog - flat - close, 15 * Layout::ALL.len());
        let first: Vec<String> = cells[..3].iter().map(|cell| cell.name()).collect();
        assert_eq!(first[0], "SQ 1000, doorbells 4 KiB apart, work of 400 ns");
        assert!(first[2].contains("light load"), "{first:?}");
    }

    #[test]
    fn an_overload_is_told_and_the_last_moments_are_none() {
        let window = |refused| PairFound {
            latency: notify::Latency {
                sorted_ns: vec![1; 1_000],
                disturbance: measure::Disturbance::default(),
            },
            refused,
        };
        let told = |refused| {
            let kept = Kept::from(vec![window(refused); 2]);
            overloaded(&kept, Measured::single(1.0))
        };
        assert_eq!(told(3), Measured::single(1.0));
        assert_eq!(told(100), Measured::single(1.0).note("9.1 % of the arrivals were not served"));
    }
}
