//! Cells of the figures: windows at real-time priority on two processors, several contenders in turn.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Context;
use measure::{Disturbance, Kept, Places, Plan, QUIET, WindowError, contest};
use notify::{Bench, Chain, Latency, Layout, Shape, Strategy, Throughput, Traffic, set_up};
use reproduce::{Options, Recorder, not_run};

use super::task::Task;
use crate::demo::processors::{CLIENT_CPU, SERVER_CPU, places};

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
    /// How windows are repeated.
    pub plan: Plan,
    place_plan: Plan,
    light_plan: Plan,
    throughput_window: Duration,
    /// Length of a window in which latencies are measured.
    pub latency_window: Duration,
    /// Where the threads run. Without the privilege for real-time priority windows are disturbed more often.
    pub places: Places,
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
        let plan = |windows: usize, tries, stall_ns| {
            let (windows, quiet) = (windows.max(3), Disturbance { stall_ns, ..QUIET });
            let (tries, pause, seed) = (tries * windows, millis(pause), options.seed);
            Plan { windows, tries, pause, quiet, seed }
        };
        let cells = Self {
            options,
            step_ns,
            plan: plan(windows, TRIES, QUIET.stall_ns),
            place_plan: plan(PLACES * windows.div_ceil(PLACE_SHARE).max(3), TRIES, QUIET.stall_ns),
            light_plan: plan(windows.div_ceil(2), LIGHT_TRIES, LIGHT_STALL_MAX_NS),
            throughput_window: millis(throughput),
            latency_window: millis(latency),
            places: places(),
        };
        recorder.condition("consumer core", SERVER_CPU);
        recorder.condition("producer core", CLIENT_CPU);
        let work = format!("chain of dependent multiplications, {step_ns:.2} ns each");
        recorder.condition("work", work);
        let Plan { windows, tries, .. } = cells.plan;
        let light = cells.light_plan;
        let windows = format!(
            "{windows} quiet ones at least of {throughput} ms (latency: {} of {latency} ms, without a stall over {} us), \
             of {tries} rounds (latency: {}) at most; {} over {PLACES} places of memory, where two are judged to a \
             hundredth; contenders in an order that is drawn anew each round, compared round by round",
            light.windows,
            light.quiet.stall_ns / 1_000,
            light.tries,
            cells.place_plan.windows
        );
        recorder.condition("windows", windows);
        Ok(cells)
    }

    /// Says what came to light while measuring.
    pub fn end(&self, recorder: &mut Recorder<'_>) {
        let priority = match self.places.are_realtime() {
            true => "real-time in windows",
            false => "ordinary: real-time was refused",
        };
        recorder.condition("priority", priority);
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
        self.contest(strategies, 1, self.plan, queues, task)
    }

    /// The same in many places of memory, one after the other: all take part in one contest.
    ///
    /// # Errors
    /// As [`Self::backlog`].
    pub fn backlog_in_places(
        &self,
        strategies: &[Strategy],
        queues: Queues,
        task: Task,
    ) -> anyhow::Result<Vec<Kept<Throughput>>> {
        self.contest(strategies, PLACES, self.place_plan, queues, task)
    }

    /// Each strategy's benches, in so many places of memory, take turns from round to round.
    fn contest(
        &self,
        strategies: &[Strategy],
        places: usize,
        plan: Plan,
        queues: Queues,
        task: Task,
    ) -> anyhow::Result<Vec<Kept<Throughput>>> {
        let in_places = |&strategy: &Strategy| {
            (0..places).map(|_| self.bench(strategy, queues)).collect::<anyhow::Result<_>>()
        };
        let mut benches: Vec<VecDeque<Bench>> =
            strategies.iter().map(in_places).collect::<anyhow::Result<_>>()?;
        let mut work = (task.make)(self.step_ns);
        let place = |side| self.places.take(side);
        contest(&mut benches, plan, |benches| {
            benches.rotate_left(1);
            let found = benches[0].backlog(&place, self.throughput_window, &mut *work)?;
            Ok::<_, WindowError>((found, found.disturbance))
        })
        .with_context(|| format!("work of {}", task.name))
        .with_context(|| queues.to_string())
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
        let place = |side| self.places.take(side);
        let bench = |&(strategy, queues, gap_ns): &(Strategy, Queues, f64)| {
            Ok((self.bench(strategy, queues)?, gap_ns))
        };
        let mut benches = contenders.iter().map(bench).collect::<anyhow::Result<Vec<_>>>()?;
        contest(&mut benches, self.light_plan, |(bench, gap_ns)| {
            let found = bench.light(&place, self.latency_window, *gap_ns, &mut *work)?;
            let disturbance = found.disturbance;
            Ok::<_, WindowError>((found, disturbance))
        })
        .context("light load")
    }
}
