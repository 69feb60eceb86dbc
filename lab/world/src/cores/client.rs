//! The clients of a service whose requests carry their service time: one host that runs the real stack, with many
//! connections.
//!
//! Requests come due by a Poisson process, each on a connection drawn at random, whatever the server does
//! (ZygOS §3.1); by a plan; or, in a closed loop, when an answer comes. A connection has at most a few of them
//! unanswered (four in ZygOS §6.2); what is due beyond waits here, and its latency counts from the moment it was due.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::controlled::server::Latencies;
use clock::Instant;
use domain::{Calls, Cookie, Event, Events, Handle, Service};
use queueing::{Law, Tail, Window};
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use spin::{Assembler, Frame};
use wire::Endpoint;

use crate::cores::app::ASK_HOME;
use crate::cores::pattern::LoadPattern;
use crate::cores::replay::{Planned, Replay};

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
    /// A closed loop instead: each connection has all it may have unanswered, until so many were answered.
    pub closed: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    due: Instant,
    /// When it was on the wire, where that is asked for.
    left: Instant,
    service_ns: u64,
    /// Its place in the replay.
    planned: usize,
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

/// What is known of requests whose server is real: it writes the moment at which an answer leaves into the answer, in
/// place of the service time, so that nothing hangs on when the client sees it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stamped {
    /// The time from the wire to when the answer left, in nanoseconds.
    pub served: Tail,
    /// What a replay asked, by the moment at which it was on the wire.
    pub asked: Vec<Planned>,
    /// Connections whose last requests were handed to the stack in the present cycle.
    leaving: Vec<u32>,
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
    /// Connections that are open and of which it is known where they are at home.
    pub located: usize,
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
    /// Requests unanswered.
    pub open_requests: u64,
    pub found: Found,
    /// Latencies since they were last taken, if somebody takes them.
    pub recent: Option<Latencies>,
    /// Where answers are stamped.
    pub stamped: Option<Stamped>,
}

/// Bits of a sequence number that count a connection's requests: above them stands the connection.
const NUMBER_BITS: u32 = 40;

/// The sequence number of a connection's request of this number.
fn sequence(connection: usize, number: u64) -> u64 {
    (connection as u64) << NUMBER_BITS | number
}

/// The connection that a sequence number names, and the number of the request on it.
pub(crate) fn place_of(sequence: u64) -> (usize, u64) {
    ((sequence >> NUMBER_BITS) as usize, sequence & ((1 << NUMBER_BITS) - 1))
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
            found: Found::default(),
            recent: None,
            stamped: None,
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
        if self.arrivals.closed.is_some() {
            for index in 0..self.connections.len() {
                (0..self.arrivals.pipeline).for_each(|_| self.make_drawn(now, index));
                self.again.push_back(index as u32);
            }
        }
    }

    /// Whether all that was to be asked is answered.
    pub fn is_over(&self) -> bool {
        match self.arrivals.closed {
            Some(total) => self.found.all >= total,
            None => self.next_due.is_none() && self.open_requests == 0,
        }
    }

    /// What was handed to the stack in this cycle is on the wire.
    pub fn left(&mut self, now: Instant) {
        let Some(stamped) = &mut self.stamped else { return };
        for index in stamped.leaving.drain(..) {
            let connection = &mut self.connections[index as usize];
            let sent = connection.requests.range_mut(..connection.sent).rev();
            for request in sent.take_while(|request| request.left == Instant::FAR_FUTURE) {
                request.left = now;
                if let Some(replay) = &self.arrivals.replay {
                    let after_ns = now.as_nanos() - self.began_ns as u64;
                    stamped.asked.push(Planned { after_ns, ..replay.requests[request.planned] });
                }
            }
        }
    }

    /// When the next request is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.next_due.map(moment)
    }

    /// When the next request is due, after one that was due at `before_ns`.
    fn due_after(&mut self, before_ns: f64) -> Option<f64> {
        if self.arrivals.closed.is_some() {
            return None;
        }
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
        if law == Law::Deterministic {
            // One draw a request, as of every law: a seed's requests go to the same connections.
            self.random.next_u64();
        }
        let multiple = law.draw(&mut self.random);
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
            self.make(moment(due_ns), index, service_ns);
            self.send(index, calls);
        }
    }

    /// A request of connection `index`, to be sent as soon as may be.
    fn make(&mut self, due: Instant, index: usize, service_ns: u64) {
        if self.window.holds(nanos(due)) {
            self.found.due += 1;
            self.found.service_ns += service_ns as f64;
        }
        self.open_requests += 1;
        let (left, planned) = (Instant::FAR_FUTURE, self.replayed.saturating_sub(1));
        let request = Request { due, left, service_ns, planned };
        self.connections[index].requests.push_back(request);
    }

    /// The same in a closed loop.
    fn make_drawn(&mut self, due: Instant, index: usize) {
        let service_ns = self.service_ns();
        self.make(due, index, service_ns);
    }

    /// Sends what the connection's pipeline has room for.
    fn send(&mut self, index: usize, calls: &mut Calls<'_>) {
        let connection = &mut self.connections[index];
        let Some(handle) = connection.handle else { return };
        while connection.sent < self.arrivals.pipeline
            && let Some(request) = connection.requests.get(connection.sent)
        {
            let sequence = sequence(index, connection.next_sequence);
            let frame = Frame { service_ns: request.service_ns, sequence };
            if calls.room() <= CALL_RESERVE || calls.sendv(handle, &[&frame.to_bytes()]).is_err() {
                self.again.push_back(index as u32);
                return;
            }
            connection.sent += 1;
            connection.next_sequence += 1;
            self.stamped.iter_mut().for_each(|stamped| stamped.leaving.push(index as u32));
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
                    Some(home) if frame.sequence == ASK_HOME | sequence(index, 0) => {
                        home.push(index as u32);
                    }
                    _ => self.found.wrong += 1,
                }
                self.located += 1;
                continue;
            }
            let Some(request) = connection.requests.pop_front().filter(|_| connection.sent > 0)
            else {
                self.found.wrong += 1;
                continue;
            };
            // Where answers are stamped, when it left; else it has just come.
            let done = self.stamped.as_ref().map(|_| Instant::from_nanos(frame.service_ns));
            let service_ns = done.map_or(request.service_ns, |_| frame.service_ns);
            let right = Frame { service_ns, sequence: sequence(index, connection.next_answer) };
            self.found.wrong += u64::from(frame != right);
            let done = done.unwrap_or(now);
            connection.next_answer += 1;
            connection.sent -= 1;
            self.open_requests -= 1;
            self.found.all += 1;
            self.found.completed += u64::from(self.window.holds(nanos(now)));
            if let Some(recent) = &mut self.recent {
                recent.add(now.since(request.due).as_nanos() as f64 / 1e3, 1.0);
            }
            if self.window.holds(nanos(request.due)) {
                let latency = done.since(request.due).as_nanos() as f64;
                self.found.answered += 1;
                self.found.above += u64::from(latency > self.bound_ns);
                self.found.latency.record(latency);
            }
            if let Some(stamped) = &mut self.stamped {
                stamped.served.record(done.since(request.left).as_nanos() as f64);
            }
            if self.arrivals.closed.is_some_and(|total| self.found.all < total) {
                self.make_drawn(now, index);
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
            Event::Connected { cookie, outcome: Ok((handle, _)), .. }
                if (cookie.0 as usize) < self.connections.len() =>
            {
                self.connections[cookie.0 as usize].handle = Some(handle);
                let sequence = ASK_HOME | sequence(cookie.0 as usize, 0);
                let ask = Frame { service_ns: 0, sequence };
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
