//! Cells of the figures: windows at real-time priority on two processors, several contenders in turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use notify::contest::{Kept, Plan, in_turn};
use notify::window::{STALL_MAX_NS, pin};
use notify::{Bench, Chain, Latency, Layout, Shape, Side, Strategy, Throughput, Traffic, set_up};
use reproduce::stats::ratio_of_medians;
use reproduce::{Measured, Options, Recorder, not_run};

use super::task::Task;
use crate::demo::processors::{CLIENT_CPU, REALTIME, SERVER_CPU};

/// Mean gap between two arrivals at light load: half a percent of it is work of 100 ns.
pub const LIGHT_GAP_NS: f64 = 20_000.0;
/// Stall that a window of latencies may have: it delays some five arrivals, less than the hundredth that
/// is looked at.
const LIGHT_STALL_MAX_NS: u64 = 100_000;
/// Tries for each window of backlog, and for each of latencies: fewer of these are so quiet.
const TRIES: usize = 4;
const LIGHT_TRIES: usize = 8;
/// Contests, each in other memory, where two contenders are judged that differ by a few hundredths: two that are alike
/// differ by up to fifteen where one's memory happens to lie better.
const PLACES: usize = 36;
/// Of the windows of others, one in so many for each of these contests.
const PLACE_SHARE: usize = 3;

/// Queues, shape and layout of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Queues {
    /// How many.
    pub count: u32,
    /// Which have work.
    pub shape: Shape,
    /// Where their doorbells lie.
    pub layout: Layout,
}

impl std::fmt::Display for Queues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}, {}", self.shape.short(), self.count, self.layout.name())
    }
}

/// How cells are measured in this run.
pub struct Cells {
    /// Seed and repeats.
    pub options: Options,
    /// Nanoseconds of one step of a chain of work.
    pub step_ns: f64,
    plan: Plan,
    place_plan: Plan,
    light_plan: Plan,
    throughput_window: Duration,
    latency_window: Duration,
    /// No real-time priority could be had.
    ordinary: AtomicBool,
}

impl Cells {
    /// Calibrates the work, and names the conditions.
    ///
    /// # Errors
    /// Fewer than two processors: nothing can be measured.
    pub fn begin(recorder: &mut Recorder<'_>) -> anyhow::Result<Self> {
        if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
            return not_run("needs a core for the producer and one for the consumer");
        }
        let options = recorder.options();
        let millis = Duration::from_millis;
        // Short ones for throughput, and many: where neighbours use the host, a long one is never quiet.
        let (windows, throughput, latency, pause) =
            if options.quick { (9, 3, 15, 6) } else { (4 * options.repeats as usize, 5, 30, 6) };
        let step_ns = Chain::step_ns();
        let plan = |windows: usize, tries, stall_max_ns| {
            let windows = windows.max(3);
            Plan { windows, tries: tries * windows, pause: millis(pause), stall_max_ns }
        };
        let cells = Self {
            options,
            step_ns,
            plan: plan(windows, TRIES, STALL_MAX_NS),
            place_plan: plan(windows.div_ceil(PLACE_SHARE), TRIES, STALL_MAX_NS),
            light_plan: plan(windows.div_ceil(2), LIGHT_TRIES, LIGHT_STALL_MAX_NS),
            throughput_window: millis(throughput),
            latency_window: millis(latency),
            ordinary: AtomicBool::new(false),
        };
        recorder.condition("consumer core", SERVER_CPU);
        recorder.condition("producer core", CLIENT_CPU);
        recorder
            .condition("work", format!("chain of dependent multiplications, {step_ns:.2} ns each"));
        recorder.condition(
            "windows",
            format!(
                "{} quiet ones at least of {throughput} ms (latency: {} of {latency} ms, without a stall over {} us), \
                 of {} rounds (latency: {}) at most; {PLACES} times {}, each time in other memory, where two are judged \
                 to a hundredth; contenders in turn, compared round by round",
                cells.plan.windows,
                cells.light_plan.windows,
                cells.light_plan.stall_max_ns / 1_000,
                cells.plan.tries,
                cells.light_plan.tries,
                cells.place_plan.windows
            ),
        );
        Ok(cells)
    }

    /// Says what came to light while measuring.
    pub fn end(&self, recorder: &mut Recorder<'_>) {
        let ordinary = self.ordinary.load(Ordering::Relaxed);
        let priority =
            if ordinary { "ordinary: real-time was refused" } else { "real-time in windows" };
        recorder.condition("priority", priority);
    }

    /// Puts a measuring thread in its place. Without the privilege for real-time priority windows are
    /// disturbed more often, which they tell themselves.
    pub fn place(&self, side: Side) -> Result<(), String> {
        pin(match side {
            Side::Consumer => SERVER_CPU,
            Side::Other => CLIENT_CPU,
        })?;
        if runtime::set_realtime(REALTIME).is_err() {
            self.ordinary.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// How windows are repeated.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// Length of a window in which latencies are measured.
    pub fn latency_window(&self) -> Duration {
        self.latency_window
    }

    fn benches(&self, strategies: &[Strategy], queues: Queues) -> anyhow::Result<Vec<Bench>> {
        strategies.iter().map(|&strategy| self.bench(strategy, queues)).collect()
    }

    fn bench(&self, strategy: Strategy, queues: Queues) -> anyhow::Result<Bench> {
        let Queues { count, shape, layout } = queues;
        let ends = set_up(strategy, count, layout)?;
        Ok(Bench::new(ends, Traffic::new(shape, count, self.options.seed), count))
    }

    /// Nanoseconds an item with backlog, by strategy.
    ///
    /// # Errors
    /// No memory; items lost.
    pub fn backlog(
        &self,
        strategies: &[Strategy],
        queues: Queues,
        task: Task,
    ) -> anyhow::Result<Vec<Kept<Throughput>>> {
        let mut benches = self.benches(strategies, queues)?;
        self.contest(&mut benches, self.plan, task).with_context(|| queues.to_string())
    }

    /// The same in many contests, each in other memory.
    ///
    /// # Errors
    /// As [`Self::backlog`].
    pub fn backlog_in_places(
        &self,
        strategies: &[Strategy],
        queues: Queues,
        task: Task,
    ) -> anyhow::Result<Vec<Kept<Throughput>>> {
        // Kept to the end: memory that was given back would be had again.
        let mut places = Vec::with_capacity(PLACES);
        let mut all: Vec<Kept<Throughput>> = Vec::new();
        for _ in 0..PLACES {
            let mut benches = self.benches(strategies, queues)?;
            let contest = self.contest(&mut benches, self.place_plan, task);
            let found = contest.with_context(|| queues.to_string())?;
            all = match all.is_empty() {
                true => found,
                false => all.into_iter().zip(found).map(|(all, next)| all.then(next)).collect(),
            };
            places.push(benches);
        }
        Ok(all)
    }

    fn contest(
        &self,
        benches: &mut [Bench],
        plan: Plan,
        task: Task,
    ) -> anyhow::Result<Vec<Kept<Throughput>>> {
        let mut work = (task.make)(self.step_ns);
        let place = |side| self.place(side);
        in_turn(benches, plan, |bench| {
            let found = bench.backlog(&place, self.throughput_window, &mut *work)?;
            Ok((found, found.disturbance))
        })
        .with_context(|| format!("work of {}", task.name))
    }

    /// Latencies at light load of several in one contest: a strategy, its queues, and how far apart arrivals are.
    ///
    /// # Errors
    /// As [`Self::backlog`].
    pub fn light(
        &self,
        contenders: &[(Strategy, Queues, f64)],
        task: Task,
    ) -> anyhow::Result<Vec<Kept<Latency>>> {
        let mut work = (task.make)(self.step_ns);
        let place = |side| self.place(side);
        let benches = contenders
            .iter()
            .map(|&(strategy, queues, gap_ns)| Ok((self.bench(strategy, queues)?, gap_ns)));
        let mut benches = benches.collect::<anyhow::Result<Vec<_>>>()?;
        in_turn(&mut benches, self.light_plan, |(bench, gap_ns)| {
            let found = bench.light(&place, self.latency_window, *gap_ns, &mut *work)?;
            let disturbance = found.disturbance;
            Ok((found, disturbance))
        })
        .context("light load")
    }
}

/// The median of windows with its 95 % interval, marked where all of them were disturbed.
pub fn measured<T>(kept: &Kept<T>, seed: u64, of: impl FnMut(&T) -> f64) -> Measured {
    // Over a constant: what is left is the interval of the median itself.
    let median = ratio_of_medians(&kept.values(of), &vec![1.0; kept.found.len()], seed);
    let measured = median.map_or(Measured::default(), |median| Measured::interval(&median));
    let measured = match kept.discarded {
        0 => measured,
        loud => measured.note(format!("{loud} of {} windows were disturbed", loud + kept.quiet())),
    };
    marked(measured, &[kept.disturbed])
}

/// Fewer rounds than these compare nothing.
const PAIRS_MIN: usize = 3;

/// How two contenders of one contest compare: the median over their common rounds of what `how` makes of one's
/// number and the other's, with its 95 % interval; marked where either was disturbed, or both were quiet in too
/// few rounds.
pub fn compared<A, B>(
    (one, of_one): (&Kept<A>, fn(&A) -> f64),
    (other, of_other): (&Kept<B>, fn(&B) -> f64),
    seed: u64,
    how: fn(f64, f64) -> f64,
) -> Measured {
    let pairs = one.paired(other);
    let values: Vec<f64> = pairs.map(|(one, other)| how(of_one(one), of_other(other))).collect();
    let median = ratio_of_medians(&values, &vec![1.0; values.len()], seed);
    let measured = median.map_or(Measured::default(), |median| Measured::interval(&median));
    if one.disturbed.is_none() && other.disturbed.is_none() && values.len() < PAIRS_MIN {
        return measured.disturbed(format!("both were quiet in {} rounds only", values.len()));
    }
    marked(measured, &[one.disturbed, other.disturbed])
}

/// The ratio of two contenders of one contest, as [`compared`]; where both were quiet in too few rounds, that of
/// their medians, which says so.
pub fn ratio<A, B>(
    above: (&Kept<A>, fn(&A) -> f64),
    below: (&Kept<B>, fn(&B) -> f64),
    seed: u64,
) -> Measured {
    if above.0.paired(below.0).take(PAIRS_MIN).count() == PAIRS_MIN {
        return compared(above, below, seed, |above, below| above / below);
    }
    let values = (above.0.values(above.1), below.0.values(below.1));
    let ratio = ratio_of_medians(&values.0, &values.1, seed);
    let measured = ratio.map_or(Measured::default(), |ratio| Measured::interval(&ratio));
    let measured = measured.note("of windows in different rounds");
    marked(measured, &[above.0.disturbed, below.0.disturbed])
}

fn marked(measured: Measured, disturbed: &[Option<notify::Disturbance>]) -> Measured {
    match disturbed.iter().flatten().next() {
        Some(disturbance) => measured.disturbed(format!("no window was quiet: {disturbance}")),
        None => measured,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seeded walk through values that look like windows: around 100, with a skewed spread.
    fn windows(count: usize, seed: u64) -> Kept<f64> {
        let mut random = notify::Random::new(seed);
        Kept::from(Vec::from_iter((0..count).map(|_| 100.0 + random.exponential(10.0))))
    }

    #[test]
    fn intervals_hold_the_median_that_the_windows_were_drawn_from() {
        let truth = 100.0 + 10.0 * std::f64::consts::LN_2;
        let held = (0..400).filter(|&seed| {
            let values = windows(10, seed).values(|&value| value);
            let interval = ratio_of_medians(&values, &[1.0], seed).expect("there are ten");
            (interval.low..=interval.high).contains(&truth)
        });
        // Meant to be 95 %; a bootstrap of ten values holds a little less.
        let held = held.count();
        assert!((350..400).contains(&held), "{held} of 400");
        assert!(measured(&windows(10, 1), 1, |&value| value).is_valid());
    }

    #[test]
    fn what_was_disturbed_is_never_shown_as_sound() {
        let mut loud = windows(3, 1);
        loud.disturbed = Some(notify::Disturbance { switches: 4, ..Default::default() });
        let shown = measured(&loud, 1, |&value| value);
        assert!(shown.value().is_some() && !shown.is_valid());
        let of: fn(&f64) -> f64 = |&value| value;
        assert!(!ratio((&windows(3, 2), of), (&loud, of), 1).is_valid());
        assert!(ratio((&windows(3, 2), of), (&windows(3, 3), of), 1).is_valid());
    }

    #[test]
    fn contenders_are_compared_round_by_round() {
        // The host doubles its speed after a third of the rounds; one contender is always a tenth slower. That it
        // was quiet in other rounds changes nothing.
        let time = |round: usize| if round < 10 { 200.0 } else { 100.0 };
        let at = |rounds: Vec<usize>, times: f64| Kept {
            found: rounds.iter().map(|&round| times * time(round)).collect(),
            rounds,
            held: 31,
            discarded: 0,
            disturbed: None,
        };
        let slow = at((0..18).collect(), 1.1);
        let fast = at((3..30).collect(), 1.0);
        let of: fn(&f64) -> f64 = |&value| value;
        let found = ratio((&slow, of), (&fast, of), 1);
        assert!(found.is_valid() && found.value().is_some_and(|ratio| (ratio - 1.1).abs() < 1e-9));
        let few = at(vec![1, 20, 30], 1.0);
        let differ = compared((&slow, of), (&few, of), 1, |a, b| a - b);
        assert!(!differ.is_valid(), "one round is too few");
        // Medians of 220 and 100, and never silently.
        let apart = ratio((&slow, of), (&few, of), 1);
        assert!(format!("{apart:?}").contains("of windows in different rounds"));
        assert!(apart.value().is_some_and(|ratio| ratio > 2.0), "{apart:?}");
    }
}
