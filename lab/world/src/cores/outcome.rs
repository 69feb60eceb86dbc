//! What a simulation found.

use dataplane::MigrationStats;
use queueing::Tail;

use crate::cores::core::{Budget, Counts, Nap};

/// See the module's comment.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The load that was asked for: see [`Setup::rate`](crate::cores::Setup::rate).
    pub load: f64,
    /// Latencies in nanoseconds, from the moment at which a request was due to the arrival of its answer.
    pub latency_ns: Tail,
    /// The share of the requests that took longer than the objective's bound.
    pub above: f64,
    /// Whether the run ended early, since its objective could not be met or requests piled up without
    /// end; the latencies are then of what came until then.
    pub given_up: bool,
    /// Requests that came due in the window, and answers that came in it.
    pub due: u64,
    /// See [`due`](Self::due).
    pub completed: u64,
    /// The window's length, in nanoseconds.
    pub window_ns: f64,
    /// Mean service time of the window's requests, in nanoseconds.
    pub service_ns: f64,
    /// Where the time of each core went, in the window.
    pub budgets: Vec<Budget>,
    /// What each core did, in the window.
    pub counts: Vec<Counts>,
    /// Connections at home on each core.
    pub homes: Vec<usize>,
    /// Steps of the simulation, set-up and all.
    pub steps: u64,
    /// Real time that the run took.
    pub took: std::time::Duration,
    /// All requests answered, warm-up and all.
    pub answered: u64,
    /// In a replay, when each core slept.
    pub naps: Vec<Vec<Nap>>,
    /// Flow groups that moved between cores, if they did.
    pub migrations: MigrationStats,
}

impl Outcome {
    /// A latency that the share `share` of the requests does not exceed, in microseconds.
    pub fn latency_us(&self, share: f64) -> f64 {
        self.latency_ns.quantile(share) / 1e3
    }

    /// Answers in a second of virtual time.
    pub fn throughput(&self) -> f64 {
        self.completed as f64 / self.window_ns * 1e9
    }

    /// All cores together.
    pub fn counts(&self) -> Counts {
        let mut all = Counts::default();
        self.counts.iter().for_each(|&counts| all += counts);
        all
    }

    /// All cores together.
    pub fn budget(&self) -> Budget {
        let mut all = Budget::default();
        self.budgets.iter().for_each(|&budget| all += budget);
        all
    }

    /// The share of the cores' time in which they did something.
    pub fn busy(&self) -> f64 {
        self.budget().busy_ns() / (self.window_ns * self.budgets.len() as f64)
    }

    /// What a request cost beside its service time, in nanoseconds.
    pub fn overhead_ns(&self) -> f64 {
        let budget = self.budget();
        let requests = self.counts().requests.max(1) as f64;
        (budget.busy_ns() - budget.application_ns) / requests
    }

    /// Events executed away from their home core, as a share of all (ZygOS Figure 8).
    pub fn steal_rate(&self) -> f64 {
        let counts = self.counts();
        counts.events_abroad as f64 / counts.events.max(1) as f64
    }

    /// Answers simulated in a second of real time.
    pub fn speed(&self) -> f64 {
        self.answered as f64 / self.took.as_secs_f64().max(1e-9)
    }
}
