//! How things stand, as plain data: for the control socket, for metrics, and for systemd's status line.

use std::collections::BTreeMap;

use control::metrics::Sample;
use serde::Serialize;

use statseg::ThreadCounters;

/// An elastic thread.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadStatus {
    /// Its number.
    pub thread: u16,
    /// `starting`, `running`, `parked` or `leaving`.
    pub state: &'static str,
    /// Its processor, where it is pinned.
    pub cpu: Option<usize>,
    /// Flow groups at home on it.
    pub groups: u32,
    /// Packets that it takes in a second.
    pub packets_per_s: f64,
    /// Packets of a busy cycle, on average.
    pub batch: f64,
    /// The estimated queueing delay, in microseconds (IX §4.6).
    pub delay_us: f64,
    /// The share of the time that it was idle.
    pub idle: f64,
    /// Connections.
    pub connections: u64,
    /// For how long the application has not returned, in milliseconds; 0 where it is not in it.
    pub away_ms: u64,
    /// Time without work so far, in nanoseconds.
    #[serde(skip)]
    pub idle_ns: u64,
    /// All of its numbers.
    #[serde(skip)]
    pub shown: ThreadCounters,
}

impl ThreadStatus {
    /// Of a reading, and of what happened in the latest period where one has passed.
    pub fn new(
        thread: u16,
        groups: u32,
        now_ns: u64,
        shown: ThreadCounters,
        sample: Option<&Sample>,
    ) -> Self {
        let of = |value: fn(&Sample) -> f64| sample.map_or(0.0, value);
        let away_ns = match shown.in_application_since_ns {
            0 => 0,
            entered_ns => now_ns.saturating_sub(entered_ns),
        };
        Self {
            thread,
            state: shown.state.name(),
            cpu: shown.processor,
            groups,
            packets_per_s: of(|s| s.packets as f64 * 1e9 / s.period_ns.max(1) as f64),
            batch: of(|s| s.batch_packets),
            delay_us: of(|s| s.delay_ns() / 1e3),
            idle: of(|s| s.idle),
            connections: shown.totals.connections,
            away_ms: away_ns / 1_000_000,
            idle_ns: shown.counters(now_ns).idle_ns,
            shown,
        }
    }
}

/// Where the policy stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepStatus {
    /// The step in force, or being taken, counted from 0.
    pub at: usize,
    /// How many there are.
    pub of: usize,
    /// What it grants.
    pub configuration: String,
    /// Cores that it leaves to the background job.
    pub background_cores: u32,
}

/// A background job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BackgroundStatus {
    /// Whether it runs.
    pub alive: bool,
    /// Processors that it may use; empty: it is stopped.
    pub cpus: Vec<u32>,
    /// Processor time that it has used, in seconds.
    pub cpu_seconds: f64,
}

/// What the control loop has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Turns of the loop.
    pub turns: u64,
    /// Turns that were left out, as the daemon was late.
    pub missed: u64,
    /// Threads granted.
    pub grants: u64,
    /// Threads parked.
    pub parks: u64,
    /// Flow groups moved.
    pub moved_groups: u64,
    /// Decisions that failed.
    pub failures: u64,
}

/// What a service says of itself and what is found of it, while it can be reached.
#[derive(Clone, Debug, Serialize)]
pub struct Running {
    /// Its process.
    pub pid: u32,
    /// When it started, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// The file that it was configured by.
    pub config_path: String,
    /// Which core runs the application for a connection.
    pub scheduler: String,
    /// What separates dataplane and application.
    pub domain: String,
    /// How frames travel.
    pub driver: String,
    /// The version of its control protocol.
    pub version: u32,
    /// B: packets of one cycle at most.
    pub batch_max: u32,
    /// Whether flow groups can be moved.
    pub movable: bool,
    /// Whether the device's indirection table can be programmed.
    pub steers: bool,
    /// Elastic threads.
    pub threads: Vec<ThreadStatus>,
    /// The home of each flow group.
    pub homes: Vec<u16>,
    /// Where the policy stands, while it decides.
    pub step: Option<StepStatus>,
    /// The clock in force, where one was set.
    pub clock: Option<String>,
    /// The same in hertz; 0 with Turbo.
    pub clock_hertz: Option<u64>,
    /// The background job.
    pub background: Option<BackgroundStatus>,
    /// What the loop has done.
    pub totals: Totals,
    /// Requests without an answer yet.
    pub under_way: usize,
    /// Packets that each flow group has received.
    #[serde(skip)]
    pub group_packets: Vec<u64>,
    /// What the counters of the threads' stacks are called, each with its place in `ThreadCounters::stack`.
    #[serde(skip)]
    pub stack_names: Vec<(usize, &'static str)>,
}

/// A service.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceStatus {
    /// What it is called.
    pub name: String,
    /// `down`, `waiting` (to be started again), `starting`, `up` or `stopping`.
    pub phase: &'static str,
    /// `policy`, `hand` (suspended by a command) or `watch`.
    pub mode: &'static str,
    /// The policy's name, as it is configured.
    pub policy: &'static str,
    /// The objective, in microseconds.
    pub slo_us: Option<f64>,
    /// From one turn of the loop to the next, in milliseconds.
    pub period_ms: u64,
    /// The file that it is started by; none where the daemon only found it.
    pub file: Option<String>,
    /// Why something does not work.
    pub problem: Option<String>,
    /// How often it was started by this daemon.
    pub starts: u64,
    /// What it shows.
    pub running: Option<Running>,
}

/// All of it at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The services, by name.
    pub services: Vec<ServiceStatus>,
    /// How many events of each kind there were.
    pub events: BTreeMap<&'static str, u64>,
    /// Problems of the daemon itself: what the machine lacks, files that are wrong.
    pub problems: Vec<String>,
}

impl Snapshot {
    /// One line for systemd.
    pub fn line(&self) -> String {
        let up = self.services.iter().filter(|service| service.phase == "up").count();
        let problems = self.services.iter().filter(|service| service.problem.is_some()).count();
        let problems = problems + self.problems.len();
        let rest = match problems {
            0 => String::new(),
            1 => "; 1 problem".to_owned(),
            n => format!("; {n} problems"),
        };
        format!("{up} of {} services up{rest}", self.services.len())
    }
}
