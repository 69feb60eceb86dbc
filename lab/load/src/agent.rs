//! The latency agent: a few connections beside the load, with one request outstanding in all.
//!
//! IX and ZygOS measure latency on a client that takes no part in the load (IX §5.1, ZygOS §3.2):
//! its requests meet the service as loaded as the others make it, but wait for nothing on their own
//! side. Here the agent shares the first thread with the load, and so sees that thread's delays; on
//! its connections it is alone. The connections take turns. Requests are spaced by exponential
//! gaps, so that they follow no rhythm of the load's; one that is due while another is outstanding
//! waits for it. What the agent measures is from sending to the response's last byte: as in a
//! closed loop, a service that stands still is met by one request only.

use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng};
use rand_distr::Exp1;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::codec::Outcome;
use crate::config::{CONNECTIONS_MAX, ConfigError, RATE_MAX_RPS, check_range};
use crate::connection::{Connection, Outstanding, Sender};
use crate::measurement::{LATENCY_MAX_NS, Measurement, latency_histogram};
use crate::workload::Workload;

/// The agent's connections unless told otherwise.
const CONNECTIONS_DEFAULT: u32 = 32;
/// The agent's requests per second unless told otherwise: a thousand samples a second disturb no
/// service that is worth measuring.
const RPS_DEFAULT: f64 = 1_000.0;

/// What the agent does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProbeConfig {
    /// Its connections, beside those of the load.
    pub connections: u32,
    /// Its requests per second; zero: each as soon as the one before is answered.
    pub rps: f64,
}

impl Default for ProbeConfig {
    fn default() -> Self {
        Self { connections: CONNECTIONS_DEFAULT, rps: RPS_DEFAULT }
    }
}

impl ProbeConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_range("probe connections", self.connections, 1, CONNECTIONS_MAX)?;
        check_range("probe rate", self.rps, 0.0, RATE_MAX_RPS)
    }
}

/// What the agent measured.
#[derive(Debug, Clone)]
pub(crate) struct ProbeMeasured {
    /// From sending to the response's last byte, in nanoseconds; requests sent in the window.
    pub latency_ns: Histogram<u64>,
    /// Requests sent in the window.
    pub requests: u64,
    /// Of those, the ones that were not, or wrongly, answered.
    pub failed: u64,
}

impl ProbeMeasured {
    /// Adds what another agent measured.
    pub fn merge(&mut self, other: &Self) {
        self.latency_ns += &other.latency_ns;
        self.requests += other.requests;
        self.failed += other.failed;
    }
}

/// The agent's half of its connections. Their numbers follow those of the load.
#[derive(Debug)]
pub(crate) struct Agent {
    first: u32,
    connections: Vec<Connection>,
    /// Whose turn it is.
    turn: usize,
    /// A request is outstanding.
    waiting: bool,
    next_due_ns: u64,
    mean_gap_ns: f64,
    /// No request before or after; those from `measure_from_ns` on count.
    start_ns: u64,
    measure_from_ns: u64,
    end_ns: u64,
    rng: Xoshiro256PlusPlus,
    scratch: Vec<u8>,
    measured: ProbeMeasured,
}

impl Agent {
    /// An agent whose first connection has the number `first`.
    pub fn new(config: &ProbeConfig, first: u32, seed: u64) -> Self {
        Self {
            first,
            connections: (0..config.connections).map(|_| Connection::new(1)).collect(),
            turn: 0,
            waiting: false,
            next_due_ns: u64::MAX,
            mean_gap_ns: if config.rps > 0.0 { 1e9 / config.rps } else { 0.0 },
            start_ns: u64::MAX,
            measure_from_ns: u64::MAX,
            end_ns: u64::MAX,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xA6E4_7000_0000_0001),
            scratch: Vec::new(),
            measured: ProbeMeasured { latency_ns: latency_histogram(), requests: 0, failed: 0 },
        }
    }

    /// Whether `connection` is one of the agent's.
    pub const fn owns(&self, connection: u32) -> bool {
        connection >= self.first
    }

    /// Whether a request is outstanding.
    pub const fn is_waiting(&self) -> bool {
        self.waiting
    }

    fn connection(&mut self, connection: u32) -> Option<&mut Connection> {
        self.connections.get_mut(connection.checked_sub(self.first)? as usize)
    }

    /// `connection` can be used from now on.
    pub fn on_opened(&mut self, connection: u32) {
        if let Some(state) = self.connection(connection)
            && !state.is_open()
        {
            state.reopen();
        }
    }

    /// The load starts at `start_ns`; the window is from `measure_from_ns` to `end_ns`.
    pub const fn start(&mut self, start_ns: u64, measure_from_ns: u64, end_ns: u64) {
        (self.start_ns, self.measure_from_ns, self.end_ns) = (start_ns, measure_from_ns, end_ns);
        self.next_due_ns = start_ns;
    }

    /// Sends what is due at `now_ns`; when the next request is, or `u64::MAX` where something must
    /// arrive first.
    pub fn poll(&mut self, now_ns: u64, workload: &Workload, sender: &mut impl Sender) -> u64 {
        if self.waiting || self.next_due_ns >= self.end_ns {
            return u64::MAX;
        }
        if now_ns < self.next_due_ns || now_ns < self.start_ns {
            return self.next_due_ns;
        }
        if now_ns >= self.end_ns {
            return u64::MAX;
        }
        self.ask(now_ns, workload, sender);
        u64::MAX
    }

    /// Sends a request on the next open connection.
    fn ask(&mut self, now_ns: u64, workload: &Workload, sender: &mut impl Sender) {
        let count = self.connections.len();
        let next = (0..count).map(|step| (self.turn + step) % count);
        let Some(chosen) = next.into_iter().find(|at| self.connections[*at].has_room()) else {
            // All of its connections were lost, which the report says.
            self.next_due_ns = u64::MAX;
            return;
        };
        self.turn = chosen + 1;
        let gap_ns = self.rng.sample::<f64, _>(Exp1) * self.mean_gap_ns;
        self.next_due_ns = now_ns.saturating_add(gap_ns as u64);
        let request = workload.draw(&mut self.rng);
        self.scratch.clear();
        workload.append(request, &mut self.scratch);
        self.measured.requests += u64::from(now_ns >= self.measure_from_ns);
        self.waiting = true;
        let connection = &mut self.connections[chosen];
        connection.push(Outstanding { intended_ns: now_ns, request, verify: true });
        connection.send(self.first + chosen as u32, &self.scratch, sender);
    }

    /// Bytes arrived on the agent's `connection`; what they contain is counted in `result`.
    /// `false` where they broke the protocol: the connection is to be aborted.
    pub fn on_received(
        &mut self,
        connection: u32,
        bytes: &[u8],
        now_ns: u64,
        workload: &Workload,
        result: &mut Measurement,
    ) -> bool {
        let Some(place) = connection.checked_sub(self.first) else { return true };
        let Some(state) = self.connections.get_mut(place as usize) else { return true };
        let mut rest = bytes;
        while !rest.is_empty() && state.is_open() {
            match state.receive(workload, rest) {
                Ok((progress, done)) => {
                    rest = &rest[progress.consumed..];
                    let (Some(outcome), Some(done)) = (progress.outcome, done) else { continue };
                    self.waiting = false;
                    result.on_response(outcome, true, None, false);
                    if done.intended_ns >= self.measure_from_ns {
                        let failed = matches!(outcome, Outcome::Error | Outcome::WrongBytes);
                        self.measured.failed += u64::from(failed);
                        let latency_ns = now_ns.saturating_sub(done.intended_ns);
                        let entry_ns = if failed { LATENCY_MAX_NS } else { latency_ns };
                        self.measured.latency_ns.saturating_record(entry_ns.max(1));
                    }
                }
                Err(violation) => {
                    result.violation.get_or_insert(violation);
                    return false;
                }
            }
        }
        true
    }

    /// The transport has room for bytes of `connection` again.
    pub fn on_writable(&mut self, connection: u32, sender: &mut impl Sender) {
        if let Some(state) = self.connection(connection) {
            state.flush(connection, sender);
        }
    }

    /// `connection` has ended; whether it was open.
    pub fn on_closed(&mut self, connection: u32) -> bool {
        let measure_from_ns = self.measure_from_ns;
        let Some(state) = self.connection(connection) else { return false };
        let was_open = state.is_open();
        let mut lost = None;
        state.close(|item| lost = Some(item));
        if let Some(item) = lost {
            self.waiting = false;
            if item.intended_ns >= measure_from_ns {
                self.measured.failed += 1;
                self.measured.latency_ns.saturating_record(LATENCY_MAX_NS);
            }
        }
        was_open
    }

    /// What was measured when the run ended at `now_ns`. A request that is still outstanding
    /// counts with the time that it has waited.
    pub fn finish(mut self, now_ns: u64) -> ProbeMeasured {
        for item in self.connections.iter().flat_map(Connection::outstanding) {
            if item.intended_ns >= self.measure_from_ns {
                let waited_ns = now_ns.saturating_sub(item.intended_ns);
                self.measured.failed += 1;
                self.measured.latency_ns.saturating_record(waited_ns.max(1));
            }
        }
        self.measured
    }
}

/// What the agent measured, for the report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// Its connections.
    pub connections: u32,
    /// Its requests in the window.
    pub requests: u64,
    /// Of those, the ones that were not, or wrongly, answered.
    pub failed: u64,
    /// Median latency.
    pub p50_us: f64,
    /// 90th percentile of the latency.
    pub p90_us: f64,
    /// 99th percentile of the latency.
    pub p99_us: f64,
    /// 99.9th percentile of the latency.
    pub p999_us: f64,
    /// Longest latency.
    pub max_us: f64,
    /// Mean latency.
    pub mean_us: f64,
}

impl ProbeReport {
    /// The report of an agent with `config`.
    pub(crate) fn new(config: &ProbeConfig, measured: &ProbeMeasured) -> Self {
        let latency = &measured.latency_ns;
        let at = |quantile| latency.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            connections: config.connections,
            requests: measured.requests,
            failed: measured.failed,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: latency.max() as f64 / 1e3,
            mean_us: latency.mean() / 1e3,
        }
    }
}
