//! The latency agent: a few connections beside the load, with one request outstanding in all.
//!
//! IX and ZygOS measure latency on a client that takes no part in the load (IX §5.1, ZygOS §3.2):
//! its requests meet the service as loaded as the others make it, but wait for nothing on their own
//! side. Here the agent shares the first thread with the load, and so sees that thread's delays; on
//! its connections it is alone. The connections take turns. Requests are spaced by exponential
//! gaps, so that they follow no rhythm of the load's; one that is due while another is outstanding
//! waits for it. What the agent measures is from sending to the response's last byte: as in a
//! closed loop, a service that stands still is met by one request only.

use rand::{RngExt, SeedableRng};
use rand_distr::Exp1;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::codec::Outcome;
use crate::connection::{Connection, Outstanding, Sender};
use crate::latency::{LATENCY_MAX_NS, latency_histogram};
use crate::measurement::Measurement;
use crate::probe::{ProbeConfig, ProbeMeasured};
use crate::workload::Workload;

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
        let mut rest = if state.is_open() { bytes } else { &[] };
        loop {
            match state.receive(workload, &mut rest) {
                Ok(None) => return true,
                Ok(Some((outcome, done))) => {
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
