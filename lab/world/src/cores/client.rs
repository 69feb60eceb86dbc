//! The clients: one host that runs the real stack at no cost, an open loop over many connections.
//!
//! Requests come due by a Poisson process, each on a connection drawn at random, whatever the server does
//! (ZygOS §3.1). A connection has at most a few of them unanswered (four in ZygOS §6.2); what is due beyond
//! waits here, and its latency counts from the moment it was due.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::controlled::server::Latencies;
use clock::Instant;
use domain::{Calls, Cookie, Event, Events, Handle, Service};
use queueing::{Law, Tail, Window};
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use spin::{Assembler, Frame};
use wire::Endpoint;

use crate::cores::app::ASK_HOME;
use crate::cores::pattern::LoadPattern;
use crate::cores::replay::Replay;

/// Connections that are being opened at a time: below any backlog.
const OPENING_MAX: usize = 256;
/// Calls that the batch keeps room for beside new requests.
const CALL_RESERVE: usize = 128;

/// How requests are drawn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Arrivals {
    pub seed: u64,
    pub law: Law,
    pub mean_ns: f64,
    /// Mean time from one request to the next, all connections together.
    pub gap_ns: f64,
    /// Draw the home core first, then one of its connections.
    pub balanced: bool,
    /// Requests of a connection that may be unanswered.
    pub pipeline: usize,
    /// How many come, where that changes: in place of the mean time.
    pub pattern: Option<LoadPattern>,
    /// What is asked instead.
    pub replay: Option<Arc<Replay>>,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    due: Instant,
    service_ns: u64,
}

#[derive(Debug, Default)]
struct Connection {
    handle: Option<Handle>,
    assembler: Assembler,
    /// Requests without an answer, oldest first; the first `sent` of them are on their way.
    requests: VecDeque<Request>,
    sent: usize,
    /// The sequence numbers of the next request to send and the next answer to come.
    next_sequence: u64,
    next_answer: u64,
}

/// What the client found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    /// Latencies of the window's requests, in nanoseconds.
    pub latency: Tail,
    /// Of the window: requests that came due, and those of them with an answer.
    pub due: u64,
    pub answered: u64,
    /// Those of the answered whose latency exceeds the bound.
    pub above: u64,
    /// All answers.
    pub all: u64,
    /// Answers that came in the window, whenever their request was due.
    pub completed: u64,
    /// Service time of the window's requests, in nanoseconds.
    pub service_ns: f64,
    /// Answers that were not what was asked for, or not next.
    pub wrong: u64,
    /// Calls that failed, connections that ended.
    pub failures: u64,
}

/// See the module's comment.
#[derive(Debug)]
pub(crate) struct Client {
    arrivals: Arrivals,
    random: Xoshiro256PlusPlus,
    server: Endpoint,
    connections: Vec<Connection>,
    started: usize,
    located: usize,
    /// Connections by the core that they are at home on.
    by_home: Vec<Vec<u32>>,
    next_due: Option<f64>,
    /// When a replay began, and how many of its requests are asked.
    began_ns: f64,
    replayed: usize,
    window: Window,
    bound_ns: f64,
    /// Connections whose requests found the batch full.
    again: VecDeque<u32>,
    /// Requests unanswered, and all that were drawn.
    pub open_requests: u64,
    pub drawn: u64,
    pub found: Found,
    /// Latencies since they were last taken, if somebody takes them.
    pub recent: Option<Latencies>,
}

impl Client {
    /// A client for so many connections to `server`, whose cores are `cores`.
    pub fn new(arrivals: Arrivals, connections: usize, cores: usize, server: Endpoint) -> Self {
        Self {
            random: Xoshiro256PlusPlus::seed_from_u64(arrivals.seed),
            arrivals,
            server,
            connections: (0..connections).map(|_| Connection::default()).collect(),
            started: 0,
            located: 0,
            by_home: vec![Vec::new(); cores],
            next_due: None,
            began_ns: 0.0,
            replayed: 0,
            window: Window { start: f64::MAX, end: f64::MAX },
            bound_ns: f64::MAX,
            again: VecDeque::new(),
            open_requests: 0,
            drawn: 0,
            found: Found::default(),
            recent: None,
        }
    }

    /// Whether all connections are open and it is known where they are at home.
    pub fn is_open(&self) -> bool {
        self.located == self.connections.len()
    }

    /// Connections at home on each core.
    pub fn homes(&self) -> impl Iterator<Item = usize> {
        self.by_home.iter().map(Vec::len)
    }

    /// Requests come due from `now` on; those in `window` count, and those above `bound_ns` among them.
    pub fn start(&mut self, now: Instant, window: Window, bound_ns: f64) {
        debug_assert!(self.is_open());
        self.by_home.retain(|connections| !connections.is_empty());
        (self.window, self.bound_ns) = (window, bound_ns);
        // In one order, in whichever their answers came.
        self.by_home.iter_mut().for_each(|connections| connections.sort_unstable());
        self.began_ns = now.as_nanos() as f64;
        self.next_due = self.due_after(self.began_ns);
    }

    /// When the next request is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.next_due.map(moment)
    }

    /// When the next request is due, after one that was due at `before_ns`.
    fn due_after(&mut self, before_ns: f64) -> Option<f64> {
        if let Some(pattern) = &self.arrivals.pattern {
            let expected: f64 = Exp1.sample(&mut self.random);
            let after_ns = pattern.after(before_ns - self.began_ns, expected);
            return after_ns.map(|after_ns| self.began_ns + after_ns);
        }
        let Some(replay) = &self.arrivals.replay else { return Some(before_ns + self.gap()) };
        let next = replay.requests.get(self.replayed);
        next.map(|request| self.began_ns + request.after_ns as f64)
    }

    /// The connection and the service time of the request that is due.
    fn request(&mut self) -> (usize, u64) {
        let Some(replay) = &self.arrivals.replay else {
            let service_ns = self.service_ns();
            return (self.draw(), service_ns);
        };
        let planned = replay.requests[self.replayed];
        self.replayed += 1;
        let of = |part: f64, count: usize| (part * count as f64) as usize;
        let connections = &self.by_home[of(planned.home, self.by_home.len())];
        (connections[of(planned.among, connections.len())] as usize, planned.service_ns)
    }

    fn gap(&mut self) -> f64 {
        let gap: f64 = Exp1.sample(&mut self.random);
        gap * self.arrivals.gap_ns
    }

    fn service_ns(&mut self) -> u64 {
        let law = self.arrivals.law;
        let multiple = match (law, law.modes()) {
            (Law::Trace(trace), _) => trace.draw(&mut self.random),
            (_, None) => Exp1.sample(&mut self.random),
            (_, Some([short, long])) => {
                if self.random.random::<f64>() < short.share {
                    short.multiple
                } else {
                    long.multiple
                }
            }
        };
        (multiple * self.arrivals.mean_ns).round() as u64
    }

    /// One of `count`, each with the same chance but for 2^-32.
    fn one_of(&mut self, count: usize) -> usize {
        (((self.random.next_u64() >> 32) * count as u64) >> 32) as usize
    }

    fn draw(&mut self) -> usize {
        if !self.arrivals.balanced {
            return self.one_of(self.connections.len());
        }
        let home = self.one_of(self.by_home.len());
        let index = self.one_of(self.by_home[home].len());
        self.by_home[home][index] as usize
    }

    /// The requests that are due by `now`.
    fn arrive(&mut self, now: Instant, calls: &mut Calls<'_>) {
        while let Some(due_ns) = self.next_due
            && moment(due_ns) <= now
        {
            let (index, service_ns) = self.request();
            self.next_due = self.due_after(due_ns);
            let due = moment(due_ns);
            self.drawn += 1;
            if self.window.holds(nanos(due)) {
                self.found.due += 1;
                self.found.service_ns += service_ns as f64;
            }
            self.open_requests += 1;
            self.connections[index].requests.push_back(Request { due, service_ns });
            self.send(index, calls);
        }
    }

    /// Sends what the connection's pipeline has room for.
    fn send(&mut self, index: usize, calls: &mut Calls<'_>) {
        let connection = &mut self.connections[index];
        let Some(handle) = connection.handle else { return };
        while connection.sent < self.arrivals.pipeline
            && let Some(request) = connection.requests.get(connection.sent)
        {
            let frame =
                Frame { service_ns: request.service_ns, sequence: connection.next_sequence };
            if calls.room() <= CALL_RESERVE || calls.sendv(handle, &[&frame.to_bytes()]).is_err() {
                self.again.push_back(index as u32);
                return;
            }
            connection.sent += 1;
            connection.next_sequence += 1;
        }
    }

    fn receive(&mut self, now: Instant, index: usize, data: &[u8]) {
        let mut rest = data;
        loop {
            let connection = &mut self.connections[index];
            let Some((frame, behind)) = connection.assembler.next(rest) else { return };
            rest = behind;
            if frame.sequence & ASK_HOME != 0 {
                match self.by_home.get_mut(frame.service_ns as usize) {
                    Some(home) => home.push(index as u32),
                    None => self.found.wrong += 1,
                }
                self.located += 1;
                continue;
            }
            let Some(request) = connection.requests.pop_front().filter(|_| connection.sent > 0)
            else {
                self.found.wrong += 1;
                continue;
            };
            let right = Frame { service_ns: request.service_ns, sequence: connection.next_answer };
            self.found.wrong += u64::from(frame != right);
            connection.next_answer += 1;
            connection.sent -= 1;
            self.open_requests -= 1;
            self.found.all += 1;
            self.found.completed += u64::from(self.window.holds(nanos(now)));
            if let Some(recent) = &mut self.recent {
                recent.add(now.since(request.due).as_nanos() as f64 / 1e3, 1.0);
            }
            if self.window.holds(nanos(request.due)) {
                let latency = now.since(request.due).as_nanos() as f64;
                self.found.answered += 1;
                self.found.above += u64::from(latency > self.bound_ns);
                self.found.latency.record(latency);
            }
        }
    }

    fn event(&mut self, now: Instant, event: Event<'_>, calls: &mut Calls<'_>) {
        match event {
            Event::Recv { handle, cookie, data, .. } => {
                let index = cookie.0 as usize;
                if index >= self.connections.len() || calls.recv_done(handle, data.len()).is_err() {
                    self.found.failures += 1;
                    return;
                }
                self.receive(now, index, data);
                self.send(index, calls);
            }
            Event::Sent { .. } => {}
            Event::Connected { cookie, outcome: Ok((handle, _)) }
                if (cookie.0 as usize) < self.connections.len() =>
            {
                self.connections[cookie.0 as usize].handle = Some(handle);
                let ask = Frame { service_ns: 0, sequence: ASK_HOME };
                self.found.failures += u64::from(calls.sendv(handle, &[&ask.to_bytes()]).is_err());
            }
            _ => self.found.failures += 1,
        }
    }

    fn connect(&mut self, calls: &mut Calls<'_>) {
        while self.started < self.connections.len()
            && self.started - self.located < OPENING_MAX
            && calls.room() > CALL_RESERVE
            && calls.connect(Cookie(self.started as u64), self.server).is_ok()
        {
            self.started += 1;
        }
    }
}

fn nanos(at: Instant) -> f64 {
    at.as_nanos() as f64
}

/// The first nanosecond that is not before `ns`.
fn moment(ns: f64) -> Instant {
    Instant::from_nanos(ns.ceil() as u64)
}

impl Service for Client {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            self.event(now, event, calls);
        }
        self.connect(calls);
        for _ in 0..self.again.len() {
            let Some(index) = self.again.pop_front() else { break };
            self.send(index as usize, calls);
        }
        self.arrive(now, calls);
    }

    fn wake_at(&self) -> Option<Instant> {
        let opening =
            self.started < self.connections.len() && self.started - self.located < OPENING_MAX;
        if opening || !self.again.is_empty() {
            return Some(Instant::ZERO);
        }
        self.next_due()
    }
}
