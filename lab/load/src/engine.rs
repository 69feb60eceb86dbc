//! The load itself, without I/O, clock or threads: a transport feeds it moments and bytes.
//!
//! A run goes through [`Phase`]s. The transport reports connections with [`Engine::on_opened`],
//! calls [`Engine::begin_preload`] and, once [`Phase::Ready`], [`Engine::start`]; in between it
//! calls [`Engine::poll`] no later than the moment that the last call returned, and hands over what
//! arrives. All times are nanoseconds of one clock that never goes back.
//!
//! Open loop: the arrival process decides when a request is *intended*; it goes on a connection
//! chosen at random. Where that connection is at its bound, the request waits in the backlog,
//! first in first out, and its latency still counts from the intended time. Closed loop: every
//! connection keeps `depth` requests outstanding.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::agent::Agent;
use crate::arrival::{ArrivalProcess, Arrivals};
use crate::codec::Outcome;
use crate::config::{LoadConfig, Mode};
use crate::connection::{Connection, Outstanding, Sender};
use crate::course::{Course, Phase, Poll};
use crate::gap_check::GapWatch;
use crate::latency::LATENCY_MAX_NS;
use crate::measurement::Measurement;
use crate::pattern::{Pattern, RateWalk};
use crate::series::Series;
use crate::setting::ConfigError;
use crate::workload::{Request, Workload};

/// Most arrivals, or connections filled, in one poll: between two polls the transport looks at
/// what was received, so that a burst of arrivals does not hide the responses.
const BATCH_MAX: usize = 64;
/// Most requests that wait in the generator. At a million requests per second that is a quarter of
/// a second of complete standstill; beyond, requests are dropped and counted.
pub const BACKLOG_MAX: usize = 1 << 18;

/// The arrivals of an open loop, and the check that they leave as they should.
#[derive(Debug)]
struct OpenLoop {
    arrivals: Arrivals,
    process: ArrivalProcess,
    rps: f64,
    pattern: Option<Pattern>,
    seed: u64,
    watch: GapWatch,
}

impl OpenLoop {
    fn new(process: ArrivalProcess, rps: f64, config: &LoadConfig) -> Self {
        let (pattern, seed) = (config.pattern, config.seed);
        let arrivals = Arrivals::new(process, rps, 0, seed);
        Self { arrivals, process, rps, pattern, seed, watch: GapWatch::new(process, rps, seed) }
    }

    /// From `start_ns` on; the window, and with it a pattern, begins at `origin_ns`.
    fn start(&mut self, start_ns: u64, origin_ns: u64) {
        let (process, rps, seed) = (self.process, self.rps, self.seed);
        self.arrivals = match self.pattern {
            None => Arrivals::new(process, rps, start_ns, seed),
            Some(pattern) => {
                let walk = RateWalk::new(pattern, rps, origin_ns, origin_ns);
                self.watch = GapWatch::following(process, walk, rps, seed);
                Arrivals::following(pattern, process, rps, (start_ns, origin_ns), seed)
            }
        };
    }
}

/// The generator of one thread. See the module's text for the order of calls.
#[derive(Debug)]
pub struct Engine {
    workload: Arc<Workload>,
    /// None in a closed loop: there the responses decide when requests are sent.
    open: Option<Box<OpenLoop>>,
    connections: Vec<Connection>,
    /// Open connections, for an even choice; `place` is where each stands in it.
    live: Vec<u32>,
    place: Vec<u32>,
    /// Connections to fill at the next polls: all of them when a phase starts.
    idle: Vec<u32>,
    backlog: VecDeque<Outstanding>,
    in_flight: usize,
    rng: Xoshiro256PlusPlus,
    /// Bytes of the requests that go out together.
    scratch: Vec<u8>,
    preload: Range<u32>,
    course: Course,
    lag_limit_ns: u64,
    /// The window in intervals, where that was asked for.
    series: Option<Series>,
    /// The latency agent, where there is one; its connections' numbers follow the load's.
    agent: Option<Box<Agent>>,
    result: Measurement,
}

impl Engine {
    /// The generator that `config` describes, with all its connections closed.
    ///
    /// # Errors
    /// A setting that cannot be used, or churn mode, which [`crate::ChurnEngine`] serves.
    pub fn new(config: &LoadConfig, workload: Arc<Workload>) -> Result<Self, ConfigError> {
        config.validate()?;
        let open = match config.mode {
            Mode::Open { rps, arrivals: process, .. } => {
                Some(Box::new(OpenLoop::new(process, rps, config)))
            }
            Mode::Closed { .. } => None,
            Mode::Churn { .. } => {
                return Err(ConfigError::new("mode", config.mode, "open loop, closed loop"));
            }
        };
        let count = config.connections as usize;
        let backlog = if open.is_some() { BACKLOG_MAX } else { 0 };
        Ok(Self {
            workload,
            open,
            connections: (0..count).map(|_| Connection::new(config.mode.depth())).collect(),
            live: Vec::with_capacity(count),
            place: vec![0; count],
            idle: Vec::with_capacity(count),
            backlog: VecDeque::with_capacity(backlog),
            in_flight: 0,
            // Another stream than the arrivals', which has the seed itself.
            rng: Xoshiro256PlusPlus::seed_from_u64(config.seed ^ 0x5851_F42D_4C95_7F2D),
            scratch: Vec::new(),
            preload: 0..0,
            course: Course::new(config),
            lag_limit_ns: config.lag_limit_us * 1_000,
            series: config.has_series().then(|| Series::new(config.measure_ms)),
            agent: config
                .probe
                .map(|probe| Box::new(Agent::new(&probe, config.connections, config.seed))),
            result: Measurement::new(config.measure_ms * 1_000_000),
        })
    }

    /// Where the run stands.
    pub const fn phase(&self) -> Phase {
        self.course.phase
    }

    /// Connections of the load that are open.
    pub fn open_connections(&self) -> usize {
        self.live.len()
    }

    /// Connection `connection` can be used from now on.
    pub fn on_opened(&mut self, connection: u32) {
        if let Some(agent) = agent_of(&mut self.agent, connection) {
            return agent.on_opened(connection);
        }
        let Some(state) = self.connections.get_mut(connection as usize) else { return };
        if state.is_open() {
            return;
        }
        state.reopen();
        self.place[connection as usize] = self.live.len() as u32;
        self.live.push(connection);
        self.idle.push(connection);
        debug_assert!(self.live.len() <= self.connections.len());
    }

    /// Stores the keys of `keys` that exist, by SETs as fast as the connections carry them. Only
    /// from [`Phase::Idle`]; an empty range goes to [`Phase::Ready`] at the next poll.
    pub fn begin_preload(&mut self, keys: Range<u32>) {
        if self.course.phase == Phase::Idle {
            self.preload = keys.start..keys.end.min(self.workload.keys());
            self.course.phase = Phase::Preloading;
        }
    }

    /// Starts the load at `at_ns`: warm-up, window and drain follow from the configuration. Only
    /// before the load, and not while keys are being stored.
    pub fn start(&mut self, at_ns: u64) {
        if !matches!(self.course.phase, Phase::Idle | Phase::Ready) {
            return;
        }
        self.course.start(at_ns);
        if let Some(open) = &mut self.open {
            open.start(at_ns, self.course.window.start);
        }
        if let Some(series) = &mut self.series {
            series.start(self.course.window.start);
        }
        if let Some(agent) = &mut self.agent {
            agent.start(at_ns, self.course.window.start, self.course.window.end);
        }
        self.idle.clear();
        self.idle.extend_from_slice(&self.live);
    }

    /// Sends what is due at `now_ns`, a bounded batch, and moves on through the phases.
    pub fn poll(&mut self, now_ns: u64, sender: &mut impl Sender) -> Poll {
        if self.live.is_empty() && !matches!(self.course.phase, Phase::Idle | Phase::Done) {
            self.result.ended_early = true;
            self.course.phase = Phase::Done;
        }
        let wake_ns = match self.course.phase {
            Phase::Idle | Phase::Ready | Phase::Done => u64::MAX,
            Phase::Preloading => self.poll_preload(now_ns, sender),
            Phase::WarmingUp | Phase::Measuring | Phase::Draining => self.poll_load(now_ns, sender),
        };
        Poll { phase: self.course.phase, wake_ns }
    }

    /// Bytes arrived on `connection` at `now_ns`. Freed places are filled at once.
    pub fn on_received(
        &mut self,
        connection: u32,
        bytes: &[u8],
        now_ns: u64,
        sender: &mut impl Sender,
    ) {
        if let Some(agent) = agent_of(&mut self.agent, connection) {
            if agent.on_received(connection, bytes, now_ns, &self.workload, &mut self.result) {
                agent.poll(now_ns, &self.workload, sender);
            } else {
                self.on_closed(connection);
                sender.abort(connection);
            }
            return;
        }
        let Some(state) = self.connections.get_mut(connection as usize) else { return };
        let in_window = self.course.window.contains(&now_ns);
        let mut rest = if state.is_open() { bytes } else { &[] };
        loop {
            match state.receive(&self.workload, &mut rest) {
                Ok(None) => break,
                Ok(Some((outcome, done))) => {
                    self.in_flight -= 1;
                    if self.course.phase == Phase::Preloading {
                        let stored = outcome == Outcome::Complete;
                        self.result.counts.preload_failures += u64::from(!stored);
                        continue;
                    }
                    let window = self.course.window.clone();
                    let latency_ns = window
                        .contains(&done.intended_ns)
                        .then(|| now_ns.saturating_sub(done.intended_ns));
                    self.result.on_response(outcome, done.verify, latency_ns, in_window);
                    if let Some(series) = &mut self.series {
                        let answered = outcome != Outcome::Error;
                        series.on_response(done.intended_ns, latency_ns, answered, now_ns);
                    }
                }
                Err(violation) => {
                    self.result.violation.get_or_insert(violation);
                    self.on_closed(connection);
                    sender.abort(connection);
                    return;
                }
            }
        }
        self.fill(connection, now_ns, sender);
    }

    /// The transport has room for bytes of `connection` again.
    pub fn on_writable(&mut self, connection: u32, sender: &mut impl Sender) {
        if let Some(agent) = agent_of(&mut self.agent, connection) {
            return agent.on_writable(connection, sender);
        }
        if let Some(state) = self.connections.get_mut(connection as usize) {
            state.flush(connection, sender);
        }
    }

    /// `connection` has ended. What was outstanding on it is lost.
    pub fn on_closed(&mut self, connection: u32) {
        if let Some(agent) = agent_of(&mut self.agent, connection) {
            let was_lost = agent.on_closed(connection) && self.course.phase != Phase::Done;
            self.result.counts.connections_lost += u64::from(was_lost);
            return;
        }
        let Some(state) = self.connections.get_mut(connection as usize) else { return };
        if !state.is_open() {
            return;
        }
        self.in_flight -= state.in_flight();
        let window = self.course.window.clone();
        let (result, series) = (&mut self.result, &mut self.series);
        let preloading = self.course.phase == Phase::Preloading;
        state.close(|item| {
            if preloading {
                result.counts.preload_failures += 1;
                return;
            }
            result.counts.lost += 1;
            if window.contains(&item.intended_ns) {
                result.on_hopeless();
                if let Some(series) = series {
                    series.on_latency(item.intended_ns, LATENCY_MAX_NS);
                }
            }
        });
        let place = self.place[connection as usize] as usize;
        self.live.swap_remove(place);
        if let Some(&moved) = self.live.get(place) {
            self.place[moved as usize] = place as u32;
        }
        // A connection that closes after the end was not lost.
        if self.course.phase != Phase::Done {
            self.result.counts.connections_lost += 1;
        }
    }

    /// Ends the run at `now_ns` and gives what was counted. Requests of the window that are still
    /// unanswered count with the time that they have waited. What is counted afterwards is lost.
    pub fn finish(&mut self, now_ns: u64) -> Measurement {
        self.course.phase = Phase::Done;
        let window = self.course.window.clone();
        let waiting = self.connections.iter().flat_map(Connection::outstanding);
        for item in waiting.chain(&self.backlog).filter(|i| window.contains(&i.intended_ns)) {
            let waited_ns = now_ns.saturating_sub(item.intended_ns);
            self.result.on_unanswered(waited_ns);
            if let Some(series) = &mut self.series {
                series.on_latency(item.intended_ns, waited_ns);
            }
        }
        self.result.series = self.series.take();
        self.result.probe = self.agent.take().map(|agent| agent.finish(now_ns));
        // Nothing is sent any more.
        self.result.gaps = self.open.take().map(|open| open.watch.into_sample());
        std::mem::replace(&mut self.result, Measurement::new(0))
    }

    fn poll_preload(&mut self, now_ns: u64, sender: &mut impl Sender) -> u64 {
        self.fill_idle(now_ns, sender);
        if self.preload.is_empty() && self.in_flight == 0 {
            self.course.phase = Phase::Ready;
        }
        if self.idle.is_empty() || self.preload.is_empty() { u64::MAX } else { now_ns }
    }

    fn poll_load(&mut self, now_ns: u64, sender: &mut impl Sender) -> u64 {
        self.course.advance(now_ns);
        let next_ns = if self.open.is_some() {
            self.dispatch_arrivals(now_ns, sender)
        } else if now_ns < self.course.window.end {
            self.fill_idle(now_ns, sender);
            if self.idle.is_empty() { u64::MAX } else { now_ns }
        } else {
            u64::MAX
        };
        let mut probing = false;
        let mut probe_ns = u64::MAX;
        if let Some(agent) = &mut self.agent {
            probe_ns = agent.poll(now_ns, &self.workload, sender);
            probing = agent.is_waiting();
        }
        // Never over while requests of the window are still to be dispatched, however late.
        let quiet = self.in_flight == 0 && self.backlog.is_empty() && !probing;
        let drained = quiet || now_ns >= self.course.drain_until_ns;
        if self.course.phase == Phase::Draining && next_ns == u64::MAX && drained {
            self.course.phase = Phase::Done;
            return u64::MAX;
        }
        next_ns.min(probe_ns).min(self.course.ends_ns())
    }

    /// Sends, or puts into the backlog, the requests that are due; when the next one is. Arrivals
    /// of the window are dispatched even where the window has ended meanwhile: they are owed.
    fn dispatch_arrivals(&mut self, now_ns: u64, sender: &mut impl Sender) -> u64 {
        for _ in 0..BATCH_MAX {
            let Some(open) = &mut self.open else { return u64::MAX };
            let intended_ns = open.arrivals.next_ns();
            if intended_ns >= self.course.window.end {
                return u64::MAX;
            }
            if intended_ns > now_ns {
                return intended_ns;
            }
            if open.arrivals.begins_group() && intended_ns >= self.course.window.start {
                open.watch.on_send(intended_ns, now_ns);
            }
            open.arrivals.advance();
            self.dispatch(intended_ns, now_ns, sender);
        }
        now_ns
    }

    fn dispatch(&mut self, intended_ns: u64, now_ns: u64, sender: &mut impl Sender) {
        let measured = intended_ns >= self.course.window.start;
        if measured {
            let lag_ns = now_ns - intended_ns;
            self.result.counts.requests += 1;
            self.result.counts.late += u64::from(lag_ns > self.lag_limit_ns);
            self.result.lag_ns.saturating_record(lag_ns.max(1));
            if let Some(series) = &mut self.series {
                series.on_request(intended_ns);
            }
        }
        let random = u64::from(self.rng.next_u32());
        let chosen = ((random * self.live.len() as u64) >> 32) as usize;
        let item = self.draw(intended_ns);
        let Some(&connection) = self.live.get(chosen) else {
            // Every connection closed inside this batch: the next poll ends the run.
            self.refuse(intended_ns);
            return;
        };
        if self.backlog.is_empty() && self.connections[connection as usize].has_room() {
            self.scratch.clear();
            self.issue(connection, item);
            self.connections[connection as usize].send(connection, &self.scratch, sender);
        } else if self.backlog.len() < BACKLOG_MAX {
            self.backlog.push_back(item);
            let waiting = self.backlog.len() as u64;
            self.result.counts.backlog_peak = self.result.counts.backlog_peak.max(waiting);
            self.fill(connection, now_ns, sender);
        } else {
            self.refuse(intended_ns);
        }
    }

    /// Counts a request that cannot even wait.
    fn refuse(&mut self, intended_ns: u64) {
        self.result.counts.dropped += 1;
        if intended_ns >= self.course.window.start {
            self.result.on_hopeless();
            if let Some(series) = &mut self.series {
                series.on_latency(intended_ns, LATENCY_MAX_NS);
            }
        }
    }

    /// Chooses a request, and whether its response is verified.
    fn draw(&mut self, intended_ns: u64) -> Outstanding {
        let verify = self.course.verifies();
        Outstanding { intended_ns, request: self.workload.draw(&mut self.rng), verify }
    }

    /// Notes `item` on `connection` and appends its bytes to the scratch buffer.
    fn issue(&mut self, connection: u32, item: Outstanding) {
        self.workload.append(item.request, &mut self.scratch);
        self.connections[connection as usize].push(item);
        self.in_flight += 1;
    }

    /// Fills the connections that wait for it, a bounded batch.
    fn fill_idle(&mut self, now_ns: u64, sender: &mut impl Sender) {
        for _ in 0..BATCH_MAX {
            let Some(connection) = self.idle.pop() else { return };
            self.fill(connection, now_ns, sender);
        }
    }

    /// Gives `connection` as many requests as it has room for, in one piece.
    fn fill(&mut self, connection: u32, now_ns: u64, sender: &mut impl Sender) {
        self.scratch.clear();
        while self.connections[connection as usize].has_room() {
            let Some(item) = self.next_item(now_ns) else { break };
            self.issue(connection, item);
        }
        if !self.scratch.is_empty() {
            self.connections[connection as usize].send(connection, &self.scratch, sender);
        }
    }

    /// The request that a free place gets in this phase.
    fn next_item(&mut self, now_ns: u64) -> Option<Outstanding> {
        match (self.course.phase, &self.open) {
            (Phase::Preloading, _) => {
                let key = self.preload.next()?;
                Some(Outstanding { intended_ns: now_ns, request: Request::set(key), verify: false })
            }
            (_, Some(_)) => self.backlog.pop_front(),
            (Phase::WarmingUp | Phase::Measuring, None) if now_ns < self.course.window.end => {
                self.result.counts.requests += u64::from(now_ns >= self.course.window.start);
                if let Some(series) = &mut self.series {
                    series.on_request(now_ns);
                }
                Some(self.draw(now_ns))
            }
            _ => None,
        }
    }
}

/// The agent, where `connection` is one of its own.
fn agent_of(agent: &mut Option<Box<Agent>>, connection: u32) -> Option<&mut Agent> {
    agent.as_deref_mut().filter(|agent| agent.owns(connection))
}

#[cfg(test)]
mod tests;
