//! Policies: the sequence of resource configurations, and when to take the next one (IX §4.6, §5.4).
//!
//! ```
//! use control::policy::{Policy, Sequence};
//! use control::{Machine, Scaling};
//! let policy = Sequence::energy(&Machine::ix(), Scaling::ix());
//! assert_eq!(policy.steps().len(), 22);
//! let said: Vec<String> = policy.steps()[7..10].iter().map(|step| step.configuration.to_string()).collect();
//! assert_eq!(said, ["8 cores, 1.2 GHz", "8 cores with hyperthreads, 1.2 GHz", "8 cores with hyperthreads, 1.3 GHz"]);
//! ```
//!
//! A [`Sequence`], which is one of IX's own policies ([`Sequence::energy`], [`Sequence::consolidation`]) or from a file,
//! moves one step at a time, by the control loop's rule ([`by_the_rule`]). [`LatencyTarget`] predicts from the measured
//! arrival rate and service time instead, over any sequence.

mod consolidation;
mod energy;
mod file;
mod latency_target;
mod rule;

pub use file::{FileError, STEPS_MAX, Sequence};
pub use latency_target::{LatencyTarget, Target};
pub use rule::{Thresholds, by_the_rule};

use crate::configuration::{Configuration, Machine, Scaling};

/// One configuration of a sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What the latency-sensitive service may use.
    pub configuration: Configuration,
    /// Cores left to the background job.
    pub background_cores: u32,
    /// The throughput predicted, in any one unit that all steps share.
    pub speed: f64,
}

impl Step {
    /// Without a background job.
    pub fn alone(machine: &Machine, scaling: &Scaling, configuration: Configuration) -> Self {
        let speed = scaling.speed(machine, &configuration);
        Self { configuration, background_cores: 0, speed }
    }

    /// With the background job on all cores that the service leaves.
    pub fn shared(machine: &Machine, scaling: &Scaling, configuration: Configuration) -> Self {
        let background_cores = machine.cores - configuration.cores.min(machine.cores);
        Self { background_cores, ..Self::alone(machine, scaling, configuration) }
    }
}

/// What a policy sees: the averages of the samples, and where the loop stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct View {
    /// The moment, in nanoseconds.
    pub now_ns: u64,
    /// The period that the latest samples stand for, in nanoseconds.
    pub period_ns: u64,
    /// The step in force, or being taken.
    pub at: usize,
    /// Nothing of it is still under way: all threads run, all flow groups are at home.
    pub settled: bool,
    /// The estimated queueing delay of the worst thread, in nanoseconds, averaged over the shortest horizon.
    pub delay_ns: f64,
    /// The mean one over the longest horizon, in nanoseconds.
    pub slow_delay_ns: f64,
    /// Idle time over the shortest horizon, the mean share of the threads, 0 to 1.
    pub idle: f64,
    /// Packets that wait, all threads together, over the shortest horizon.
    pub waiting_packets: f64,
    /// Packets that arrive in a second: in the latest period alone.
    pub arrivals_now_per_s: f64,
    /// And averaged over the three horizons, the shortest first.
    pub arrivals_per_s: [f64; 3],
    /// Packets in a second that the threads could serve, from the measured service times, averaged over a long
    /// horizon and referred to the step's predicted speed. None before enough was served.
    pub capacity_per_speed: Option<f64>,
    /// What it would be with more packets in a cycle.
    pub batching: Batching,
    /// The fullest thread's load over its part: 1 is perfect balance.
    pub imbalance: f64,
}

/// How the time that packets take depends on how many of them share a cycle (IX §3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Batching {
    /// What a cycle takes beside its packets, in nanoseconds, referred to the step's predicted speed as the capacity
    /// is: the least that is known for certain; 0 where nothing is.
    pub cycle_ns: f64,
    /// Packets that a busy cycle took, on average, where the capacity was measured.
    pub batch: f64,
    /// B: packets that one cycle takes at most.
    pub batch_max: f64,
}

impl Batching {
    /// Nothing is known of cycles.
    pub const UNKNOWN: Self = Self { cycle_ns: 0.0, batch: 1.0, batch_max: 1.0 };

    /// The capacity where `batch` packets share a cycle, given the one that was measured, in packets per second.
    pub fn capacity(&self, measured: f64, batch: f64) -> f64 {
        let share = |batch: f64| self.cycle_ns / batch.clamp(1.0, self.batch_max.max(1.0));
        let measured_ns = 1e9 / measured.max(f64::MIN_POSITIVE);
        // Never more than a cycle may be of a packet's time.
        let packet_ns = (measured_ns - share(self.batch)).max(MARGINAL_MIN * measured_ns);
        1e9 / (packet_ns + share(batch))
    }
}

/// The part of the measured time of a packet that is its own, at least: what batching gains is not believed beyond.
const MARGINAL_MIN: f64 = 0.25;

/// What a policy wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// All as it is.
    Stay,
    /// This step.
    Go {
        /// Its index.
        to: usize,
        /// Run at the fastest clock until all threads of the step run and the queues are short: clocks change
        /// at once, cores and flow groups do not.
        boost: bool,
        /// Why, for the event log.
        because: Because,
    },
}

/// Why a step is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// The estimated queueing delay exceeds the bound (IX §4.6).
    Delay,
    /// Idle time exceeds the step's share of the throughput (IX §4.6).
    Idle,
    /// The predicted load needs more.
    Predicted,
    /// The predicted load has needed less for long enough.
    Spare,
    /// A state was found at the start.
    Adopted,
}

/// Which configurations there are, and when to go to which.
pub trait Policy {
    /// What it is called in conditions and on the command line.
    fn name(&self) -> &str;

    /// The sequence, from the least to the most throughput. Never empty.
    fn steps(&self) -> &[Step];

    /// What to do now.
    fn wish(&mut self, view: &View) -> Wish;
}

/// Least time between changes: the loop keeps it whatever the policy wishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// From one addition to the next, in nanoseconds.
    pub add_after_add_ns: u64,
    /// From a removal to an addition.
    pub add_after_remove_ns: u64,
    /// From an addition to a removal.
    pub remove_after_add_ns: u64,
    /// From one removal to the next.
    pub remove_after_remove_ns: u64,
}

impl Pace {
    /// The authors' IXCP: 0.2 s between additions, 2 s from a removal to an addition, 4 s before a removal.
    pub fn ixcp() -> Self {
        Self {
            add_after_add_ns: 200_000_000,
            add_after_remove_ns: 2_000_000_000,
            remove_after_add_ns: 4_000_000_000,
            remove_after_remove_ns: 4_000_000_000,
        }
    }

    /// For prediction: additions never wait, as waiting breaks the objective; removals do, so that the least
    /// time of a swing down and up again is bounded by them.
    pub fn predicting() -> Self {
        Self {
            add_after_add_ns: 0,
            add_after_remove_ns: 0,
            remove_after_add_ns: 500_000_000,
            remove_after_remove_ns: 100_000_000,
        }
    }
}
