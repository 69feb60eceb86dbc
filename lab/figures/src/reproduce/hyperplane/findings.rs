//! What the cells found, put together: what a poll costs, the ratios beside it, the claims, and the
//! targets that this project set itself for the software ready set.

use std::collections::{BTreeSet, HashMap};

use measure::Kept;
use measure::stats::{Line, line, median};
use notify::{Latency, Layout, Shape, Strategy, Throughput};
use reproduce::{Axis, Mark, MarkOf, Measured, Recorder};

use super::bench::Queues;
use super::services::SERVICES;
use super::task::{LONG, MIDDLE, SHORT, TASKS, Task};

/// The claims, by what they ask for.
pub const SQ_GAIN: &str = "qwait.real.sq_throughput_gain_1000";
/// See [`SQ_GAIN`].
pub const P99_GAIN: &str = "qwait.real.light_load_p99_gain_1000";
/// See [`SQ_GAIN`].
pub const SINGLE_COST: &str = "qwait.real.single_queue_cost";

/// All that was measured, by cell; each with the strategies in the order of [`Strategy::ALL`].
#[derive(Default)]
pub struct Findings {
    /// Of the intervals.
    pub seed: u64,
    /// Backlog, by queues and task.
    pub backlog: HashMap<(Queues, &'static str), Vec<Kept<Throughput>>>,
    /// Spinning and the exclusive set in many places of memory, where they are judged by what little they differ.
    pub close: HashMap<(Queues, &'static str), Vec<Kept<Throughput>>>,
    /// Light load.
    pub light: HashMap<Queues, Vec<Kept<Latency>>>,
    /// The exclusive set's latency at many queues, at few that are used as often each, and at few that are used as
    /// often together.
    pub flat: HashMap<Layout, Vec<Kept<Latency>>>,
}

const TIME: fn(&Throughput) -> f64 = |found| found.ns_per_item;
/// Of a window of latencies, in nanoseconds.
pub const MEAN: fn(&Latency) -> f64 = Latency::mean_ns;
/// See [`MEAN`].
pub const P99: fn(&Latency) -> f64 = |found| found.quantile_ns(0.99);

/// Those that are compared with spinning.
const COMPARED: [Strategy; 3] = [Strategy::Exclusive, Strategy::Shared, Strategy::Linear];

fn index(strategy: Strategy) -> usize {
    Strategy::ALL.iter().position(|&of| of == strategy).unwrap_or(0)
}

/// Shares of spinning's throughput that are to be kept at least where all of 1,000 queues are busy, by work.
const KEPT: [(Task, f64); 2] = [(SHORT, 0.97), (LONG, 0.99)];
/// Work with which one queue that is always busy may lose a few hundredths.
const ALONE: [Task; 2] = [MIDDLE, LONG];
/// Those that are compared in many places of memory.
pub const TWO: [Strategy; 2] = [Strategy::Spin, Strategy::Exclusive];

fn fully(count: u32, layout: Layout) -> Queues {
    Queues { count, shape: Shape::FullyBalanced, layout }
}

/// Cells in which the ready set and spinning are much alike, and judged by what little they differ.
pub fn close_cells() -> Vec<(Queues, Task)> {
    let alone = ALONE.map(|task| (fully(1, Layout::Packed), task));
    let all = |layout| KEPT.map(|(task, _)| (fully(1_000, layout), task));
    alone.into_iter().chain(Layout::ALL.into_iter().flat_map(all)).collect()
}

impl Findings {
    fn time(&self, queues: Queues, task: Task, strategy: Strategy) -> Option<&Kept<Throughput>> {
        // With one queue all shapes are one.
        let fully = Queues { shape: Shape::FullyBalanced, ..queues };
        let known = self.backlog.get(&(queues, task.slug));
        let known = known.or_else(|| match queues.count {
            1 => self.backlog.get(&(fully, task.slug)),
            _ => None,
        });
        known?.get(index(strategy))
    }

    fn latency(&self, queues: Queues, strategy: Strategy) -> Option<&Kept<Latency>> {
        self.light.get(&queues)?.get(index(strategy))
    }

    /// What a poll costs: fitted over the cells with one busy queue, at 400 ns of work.
    pub fn poll(&self, layout: Layout, strategy: Strategy) -> Option<Line> {
        let cells = self.backlog.keys().filter(|(queues, _)| queues.layout == layout);
        let counts: BTreeSet<u32> = cells.map(|(queues, _)| queues.count).collect();
        let point = |count| {
            let queues = Queues { count, shape: Shape::SingleQueue, layout };
            let kept = self.time(queues, MIDDLE, strategy)?;
            let polls = median(&kept.values(|found| found.polls_per_item))?;
            Some((polls, median(&kept.values(TIME))?))
        };
        let points: Vec<(f64, f64)> = counts.into_iter().filter_map(point).collect();
        line(&points)
    }

    fn poll_words(&self, layout: Layout) -> String {
        self.poll(layout, Strategy::Spin).map_or_else(
            || "what a poll of the spinning loop costs was not measured".to_owned(),
            |fit| format!("a poll of the spinning loop costs {:.2} ns", fit.each),
        )
    }

    /// How many times more a strategy gets done than spinning does.
    fn gain(&self, queues: Queues, task: Task, strategy: Strategy) -> Option<Measured> {
        let spin = self.time(queues, task, Strategy::Spin)?;
        let other = self.time(queues, task, strategy)?;
        let gain = Measured::ratio_of((spin, TIME), (other, TIME), self.seed);
        Some(gain.note(self.poll_words(queues.layout)))
    }

    /// How many times longer than QWAIT's latency spinning's is.
    fn latency_gain(&self, queues: Queues, of: fn(&Latency) -> f64) -> Option<Measured> {
        let spin = self.latency(queues, Strategy::Spin)?;
        let set = self.latency(queues, Strategy::Exclusive)?;
        let gain = Measured::ratio_of((spin, of), (set, of), self.seed);
        Some(gain.note(self.poll_words(queues.layout)))
    }

    /// Draws the ratios, fills the claims and says which targets were met.
    ///
    /// # Errors
    /// A claim that the figure does not name.
    pub fn show(&self, recorder: &mut Recorder<'_>, counts: &[u32]) -> anyhow::Result<()> {
        self.polls(recorder);
        for layout in Layout::ALL {
            for task in TASKS {
                self.gains(recorder, layout, task, counts);
            }
            self.latency_gains(recorder, layout, counts);
        }
        self.services(recorder);
        self.close_ones(recorder);
        self.targets(recorder);
        self.claims(recorder)
    }

    fn polls(&self, recorder: &mut Recorder<'_>) {
        let axis = Axis::linear("one poll", "ns");
        let chart = recorder.chart("poll", "What a poll costs", Axis::category("loop"), axis);
        for layout in Layout::ALL {
            let series = recorder.series(chart, layout.name());
            for strategy in [Strategy::Spin, Strategy::Burst] {
                if let Some(fit) = self.poll(layout, strategy) {
                    let words = format!("beside {:.0} ns for an item itself", fit.once);
                    let cost = Measured::single(fit.each).note(words);
                    recorder.category(series, strategy.name(), cost);
                }
            }
        }
    }

    fn gains(&self, recorder: &mut Recorder<'_>, layout: Layout, task: Task, counts: &[u32]) {
        let name = format!("gain-{}-{}", layout.stride(), task.slug);
        let title = format!("Throughput over spinning: work of {}, {}", task.name, layout.name());
        let y = Axis::log("items/s over spinning's", "");
        let chart = recorder.chart(&name, &title, Axis::log("queues", ""), y);
        for shape in Shape::ALL {
            for strategy in COMPARED {
                for &count in counts {
                    let queues = Queues { count, shape, layout };
                    let Some(gain) = self.gain(queues, task, strategy) else { continue };
                    let words = format!("{}, {}", shape.short(), strategy.name());
                    recorder.curve(chart, &words, [(count.into(), gain)]);
                }
            }
        }
    }

    /// What the ready set gains with the paper's services as work.
    fn services(&self, recorder: &mut Recorder<'_>) {
        let title = "Throughput over spinning: the six services, 1,000 queues, a page each";
        let y = Axis::log("items/s over spinning's", "");
        let chart = recorder.chart("services", title, Axis::category("service"), y);
        for shape in [Shape::SingleQueue, Shape::FullyBalanced] {
            let queues = Queues { count: 1_000, shape, layout: Layout::Paged };
            let series = recorder.series(chart, shape.short());
            for task in SERVICES {
                if let Some(gain) = self.gain(queues, task, Strategy::Exclusive) {
                    recorder.category(series, task.name, gain);
                }
            }
        }
    }

    fn close_ones(&self, recorder: &mut Recorder<'_>) {
        let title = "The exclusive set's throughput over spinning's where all queues are busy, over many places of memory";
        let y = Axis::linear("items/s over spinning's", "");
        let chart = recorder.chart("close", title, Axis::category("queues and work"), y);
        let series = recorder.series(chart, "QWAIT, exclusive");
        for (queues, task) in close_cells() {
            if let Some(kept) = self.closely(queues, task, |spin, set| spin / set) {
                recorder.category(series, &format!("{queues}, {}", task.name), kept);
            }
        }
        recorder.mark(chart, Mark::horizontal(MarkOf::Goal, 1.0, "no difference"));
    }

    fn latency_gains(&self, recorder: &mut Recorder<'_>, layout: Layout, counts: &[u32]) {
        let name = format!("latency-gain-{}", layout.stride());
        let title = format!("Light-load latency of spinning over QWAIT's: {}", layout.name());
        let y = Axis::log("spinning's latency over QWAIT's", "");
        let chart = recorder.chart(&name, &title, Axis::log("queues", ""), y);
        for shape in Shape::ALL {
            for (words, of) in [("mean", MEAN), ("p99", P99)] {
                for &count in counts {
                    let queues = Queues { count, shape, layout };
                    let Some(gain) = self.latency_gain(queues, of) else { continue };
                    let series = recorder.series(chart, &format!("{}, {words}", shape.short()));
                    recorder.point(series, count.into(), gain);
                }
            }
        }
        recorder.mark(chart, Mark::horizontal(MarkOf::Goal, 1.0, "no difference"));
    }

    fn claims(&self, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
        let paged = |shape| Queues { count: 1_000, shape, layout: Layout::Paged };
        let mut claim = |id, found: Option<Measured>, words: &str| {
            let found = found.map(|found| found.note(words));
            recorder
                .claim(id, found.unwrap_or_else(|| Measured::missing("its cell was not measured")))
        };
        let layout = Layout::Paged.name();
        let gain = self.gain(paged(Shape::SingleQueue), MIDDLE, Strategy::Exclusive);
        claim(SQ_GAIN, gain, &format!("400 ns of work, {layout}"))?;
        let gain = self.latency_gain(paged(Shape::FullyBalanced), P99);
        claim(P99_GAIN, gain, &format!("arrivals over all queues, {layout}"))?;
        claim(SINGLE_COST, self.single_cost(LONG), "1 us of work")
    }

    /// What the exclusive set keeps of spinning's throughput, or `how` else the two compare.
    fn closely(&self, queues: Queues, task: Task, how: fn(f64, f64) -> f64) -> Option<Measured> {
        let [spin, set] = self.close.get(&(queues, task.slug))?.as_slice() else { return None };
        Some(Measured::compared((spin, TIME), (set, TIME), self.seed, how))
    }

    /// The share of its throughput that one always busy queue loses by the exclusive set.
    fn single_cost(&self, task: Task) -> Option<Measured> {
        self.closely(fully(1, Layout::Packed), task, |spin, set| 1.0 - spin / set)
    }

    /// Latencies at 1,000 queues over those at 64, in both ways to compare them.
    fn flatness(&self, layout: Layout) -> [(String, Option<Measured>); 2] {
        let kept = self.flat.get(&layout);
        let over = |few: usize| {
            let (many, few) = (kept?.first()?, kept?.get(few)?);
            Some(Measured::ratio_of((many, MEAN), (few, MEAN), self.seed))
        };
        let what = |rate| {
            let name = layout.name();
            format!("QWAIT's mean latency at 1,000 queues over that at 64, {rate}, {name}")
        };
        [
            (what("each queue used as often"), over(1)),
            (what("all of them used as often together"), over(2)),
        ]
    }

    /// One note for each target.
    fn targets(&self, recorder: &mut Recorder<'_>) {
        let sq = Queues { count: 1_000, shape: Shape::SingleQueue, layout: Layout::Paged };
        let fb = |layout| fully(1_000, layout);
        let mut note = |what: &str, found: Option<Measured>, bound: f64, at_least: bool| {
            recorder.note(judged(what, found, bound, at_least));
        };
        for (task, bound) in [(MIDDLE, 3.0), (LONG, 2.5)] {
            let what =
                format!("SQ, 1,000 queues, a page each, {} of work: over spinning", task.name);
            note(&what, self.gain(sq, task, Strategy::Exclusive), bound, true);
        }
        let p99 = self.latency_gain(fb(Layout::Paged), P99);
        note("light-load p99, 1,000 queues, a page each: spinning over QWAIT", p99, 4.0, true);
        for task in ALONE {
            let what = format!("one busy queue, {} of work: throughput lost", task.name);
            note(&what, self.single_cost(task), 0.04, false);
        }
        for layout in Layout::ALL {
            for (task, bound) in KEPT {
                let (name, work) = (layout.name(), task.name);
                let what = format!("FB, 1,000 queues, {name}, {work} of work: over spinning");
                let kept = self.closely(fb(layout), task, |spin, set| spin / set);
                note(&what, kept, bound, true);
            }
            for (what, found) in self.flatness(layout) {
                note(&what, found, 1.3, false);
            }
            let list = self.time(fb(layout), MIDDLE, Strategy::Linear);
            let linear = list
                .zip(self.time(fb(layout), MIDDLE, Strategy::Exclusive))
                .map(|(list, set)| Measured::ratio_of((set, TIME), (list, TIME), self.seed));
            let what = format!(
                "the paper's linear list over the ready bits, FB, 1,000 queues, 400 ns, {} (Figure 13: \
                 down to 0.50)",
                layout.name()
            );
            note(&what, linear, 0.95, false);
        }
    }
}

/// A target in one sentence: what was found and whether it is enough.
pub fn judged(what: &str, found: Option<Measured>, bound: f64, at_least: bool) -> String {
    let (words, met): (&str, fn(f64, f64) -> bool) = match at_least {
        true => ("at least", |found, bound| found >= bound),
        false => ("at most", |found, bound| found <= bound),
    };
    match found.as_ref().map(|found| (found.value(), found.is_valid())) {
        Some((Some(value), true)) => {
            let verdict = if met(value, bound) { "met" } else { "not met" };
            format!("{what}: {value:.3} ({words} {bound}: {verdict})")
        }
        Some((Some(value), false)) => {
            format!("{what}: {value:.3}, disturbed ({words} {bound}: not judged)")
        }
        _ => format!("{what}: not measured ({words} {bound})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::Disturbance;

    fn throughput(ns_per_item: f64, polls_per_item: f64) -> Kept<Throughput> {
        let found = Throughput {
            ns_per_item,
            items: 1,
            polls_per_item,
            idle_looks_per_item: 0.0,
            disturbance: Disturbance::default(),
        };
        Kept::from(vec![found; 3])
    }

    fn cell(findings: &mut Findings, count: u32, shape: Shape, spin: f64, polls: f64, set: f64) {
        let queues = Queues { count, shape, layout: Layout::Paged };
        let kept = [(spin, polls), (spin, polls), (set, 0.0), (set, 0.0), (set, 0.0)];
        let kept = kept.map(|(time, polls)| throughput(time, polls)).to_vec();
        findings.backlog.insert((queues, MIDDLE.slug), kept);
    }

    #[test]
    fn a_poll_is_what_one_queue_more_costs() {
        let mut findings = Findings::default();
        assert_eq!(findings.poll(Layout::Paged, Strategy::Spin), None);
        assert!(findings.poll_words(Layout::Paged).contains("not measured"));
        cell(&mut findings, 1, Shape::FullyBalanced, 410.0, 1.0, 420.0);
        cell(&mut findings, 1_000, Shape::SingleQueue, 2_408.0, 1_000.0, 430.0);
        let fit = findings.poll(Layout::Paged, Strategy::Spin).expect("two places");
        assert!((fit.each - 2.0).abs() < 1e-9, "{fit:?}");
        assert_eq!(findings.poll(Layout::Packed, Strategy::Spin), None);
        let queues = Queues { count: 1_000, shape: Shape::SingleQueue, layout: Layout::Paged };
        let gain = findings.gain(queues, MIDDLE, Strategy::Exclusive).expect("measured");
        assert_eq!(gain.value(), Some(5.6));
        assert!(findings.gain(queues, LONG, Strategy::Exclusive).is_none());
    }

    #[test]
    fn targets_are_judged_both_ways_and_only_where_they_count() {
        let found = |value| Some(Measured::single(value));
        assert_eq!(judged("a", found(3.5), 3.0, true), "a: 3.500 (at least 3: met)");
        assert_eq!(judged("a", found(0.05), 0.04, false), "a: 0.050 (at most 0.04: not met)");
        let loud = found(3.5).map(|found| found.disturbed("a neighbour"));
        assert!(judged("a", loud, 3.0, true).ends_with("not judged)"));
        assert!(judged("a", None, 3.0, true).contains("not measured"));
    }
}
