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
use crate::demo::measure::{CLIENT_CPU, SERVER_CPU};
use crate::demo::systems::REALTIME;

/// Mean gap between two arrivals at light load: half a percent of it is work of 100 ns.
pub const LIGHT_GAP_NS: f64 = 20_000.0;
/// Stall that a window of latencies may have: it delays some five arrivals, less than the hundredth that
/// is looked at.
const LIGHT_STALL_MAX_NS: u64 = 100_000;
/// Tries for each of its windows, as fewer are so quiet.
const LIGHT_TRIES: usize = 10;

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
        let (windows, throughput, latency, pause) =
            if options.quick { (5, 8, 15, 6) } else { (2 * options.repeats as usize, 20, 45, 15) };
        let step_ns = Chain::step_ns();
        let cells = Self {
            options,
            step_ns,
            plan: Plan {
                windows: windows.max(3),
                tries: 3 * windows.max(3),
                pause: millis(pause),
                stall_max_ns: STALL_MAX_NS,
            },
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
                "{} quiet ones of {throughput} ms (latency: {latency} ms, without a stall over {} us) for \
                 each value, of {} tries (latency: {}) at most; contenders in turn",
                cells.plan.windows,
                LIGHT_STALL_MAX_NS / 1_000,
                cells.plan.tries,
                LIGHT_TRIES * cells.plan.windows
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
        if tailplane::runtime::set_realtime(REALTIME).is_err() {
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
        let bench = |&strategy: &Strategy| {
            let Queues { count, shape, layout } = queues;
            let ends = set_up(strategy, count, layout)?;
            Ok(Bench::new(ends, Traffic::new(shape, count, self.options.seed), count))
        };
        strategies.iter().map(bench).collect()
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
        let mut work = (task.make)(self.step_ns);
        let place = |side| self.place(side);
        in_turn(&mut self.benches(strategies, queues)?, self.plan, |bench| {
            let found = bench.backlog(&place, self.throughput_window, &mut *work)?;
            Ok((found, found.disturbance))
        })
        .with_context(|| format!("{queues}, {}", task.name))
    }

    /// Latencies at light load, by strategy; arrivals are `gap_ns` apart.
    ///
    /// # Errors
    /// As [`Self::backlog`].
    pub fn light(
        &self,
        strategies: &[Strategy],
        queues: Queues,
        gap_ns: f64,
        task: Task,
    ) -> anyhow::Result<Vec<Kept<Latency>>> {
        let mut work = (task.make)(self.step_ns);
        let place = |side| self.place(side);
        let plan = Plan {
            tries: LIGHT_TRIES * self.plan.windows,
            stall_max_ns: LIGHT_STALL_MAX_NS,
            ..self.plan
        };
        in_turn(&mut self.benches(strategies, queues)?, plan, |bench| {
            let found = bench.light(&place, self.latency_window, gap_ns, &mut *work)?;
            let disturbance = found.disturbance;
            Ok((found, disturbance))
        })
        .with_context(|| format!("{queues}, light load"))
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

/// The ratio of two contenders' medians with its 95 % interval, marked where either was disturbed.
pub fn ratio<A, B>(
    above: (&Kept<A>, fn(&A) -> f64),
    below: (&Kept<B>, fn(&B) -> f64),
    seed: u64,
) -> Measured {
    let values = (above.0.values(above.1), below.0.values(below.1));
    let ratio = ratio_of_medians(&values.0, &values.1, seed);
    let measured = ratio.map_or(Measured::default(), |ratio| Measured::interval(&ratio));
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
        let found = (0..count).map(|_| 100.0 + random.exponential(10.0)).collect();
        Kept { found, discarded: 0, disturbed: None }
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
}
