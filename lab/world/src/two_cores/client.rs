//! The client: requests on many connections, each with its moment, and a check of every answer.

use std::collections::VecDeque;

use clock::{Duration, Instant};
use domain::{Calls, Cookie, Event, Events, Handle, Service};
use wire::Endpoint;

use super::config::{Arrivals, Config};
use super::found::Found;
use super::plan::{Planned, Random, plan};
use super::request::{ASKS_HOME, REQUEST, parts, request};

/// Longest time between two looks for answers in an open loop. The service says when they left, so nothing hangs
/// on when the client sees them, but for connections with as many requests outstanding as may be.
const LEISURE: Duration = Duration::from_micros(200);
/// Connections that are being opened at a time.
const OPENING: u32 = 64;

/// A request without an answer.
struct Made {
    due: Instant,
    /// When it was on the wire.
    left: Instant,
    service_ns: u64,
    /// Its place in the plan.
    planned: Option<usize>,
}

#[derive(Default)]
struct Line {
    handle: Option<Handle>,
    /// Requests made, and answers seen.
    made: u64,
    answered: u64,
    /// Those that are not answered.
    due: VecDeque<Made>,
    /// Of those, how many are sent.
    sent: u64,
    /// Bytes of an answer that has not come whole.
    part: Vec<u8>,
}

/// See the module's comment.
pub struct Client {
    config: Config,
    server: Endpoint,
    lines: Vec<Line>,
    open: u32,
    opening: u32,
    /// Lines by the core that they are at home on.
    by_home: Vec<Vec<u32>>,
    /// When the run began.
    began: Instant,
    /// What is to be asked in an open loop, and how much of it was.
    plan: Vec<Planned>,
    asked: usize,
    /// Lines with something to send.
    ready: Vec<u32>,
    /// Lines whose last so many requests have been handed to the stack, and are on the wire when its cycle ends.
    leaving: Vec<(u32, u64)>,
    /// Of a closed loop's service times.
    random: Random,
    latencies_ns: Vec<u32>,
    /// The same, without the time before they left.
    served_ns: Vec<u32>,
    answered: u64,
    /// Service times drawn: how many, and their sum.
    drawn: u64,
    service_ns: f64,
    found: Found,
}

impl Client {
    pub fn new(config: &Config, server: Endpoint) -> Self {
        Self {
            config: *config,
            server,
            lines: (0..config.connections).map(|_| Line::default()).collect(),
            open: 0,
            opening: 0,
            by_home: Vec::new(),
            began: Instant::FAR_FUTURE,
            plan: plan(config),
            asked: 0,
            ready: Vec::new(),
            leaving: Vec::new(),
            random: Random::new(config.seed),
            latencies_ns: Vec::new(),
            served_ns: Vec::new(),
            answered: 0,
            drawn: 0,
            service_ns: 0.0,
            found: Found::default(),
        }
    }

    /// Connections that stand, and of which it is known where they are at home.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Requests come from now on.
    pub fn begin(&mut self, now: Instant) {
        self.began = now;
        self.by_home.retain(|lines| !lines.is_empty());
        // Answers may have come in any order.
        self.by_home.iter_mut().for_each(|lines| lines.sort_unstable());
        if let Arrivals::Closed { depth, .. } = self.config.arrivals {
            for index in 0..self.lines.len() as u32 {
                (0..depth).for_each(|_| self.make_next(index, now));
            }
        }
    }

    /// Whether all that was to be answered was.
    pub fn is_over(&self) -> bool {
        match self.config.arrivals {
            Arrivals::Closed { total, .. } => self.answered >= total,
            Arrivals::Open { .. } => {
                self.next_due().is_none() && self.lines.iter().all(|line| line.due.is_empty())
            }
        }
    }

    /// When it wants to look again, after it has looked.
    pub fn looks_at(&self, now: Instant) -> Instant {
        let Arrivals::Open { .. } = self.config.arrivals else { return now };
        if self.open < self.config.connections {
            return now;
        }
        self.next_due().unwrap_or(now + LEISURE).min(now + LEISURE)
    }

    /// What was found, `took` after the beginning.
    pub fn found(mut self, took: Duration) -> Found {
        let quantiles = |of: &mut Vec<u32>| {
            of.sort_unstable();
            [0.5, 0.99].map(|share| {
                let at = (share * of.len().saturating_sub(1) as f64).round() as usize;
                of.get(at).map_or(f64::NAN, |&ns| f64::from(ns) / 1e3)
            })
        };
        let [p50_us, p99_us] = quantiles(&mut self.latencies_ns);
        Found {
            answered: self.answered,
            left: self.lines.iter().map(|line| line.due.len() as u64).sum(),
            seconds: took.as_secs_f64(),
            p50_us,
            p99_us,
            served_us: quantiles(&mut self.served_ns),
            service_us: self.service_ns / 1e3 / self.drawn.max(1) as f64,
            ..self.found
        }
    }

    /// When the next request of an open loop is due.
    fn next_due(&self) -> Option<Instant> {
        self.plan.get(self.asked).map(|planned| self.began + planned.after)
    }

    /// A request of connection `index` is made, to be sent as soon as may be.
    fn make(&mut self, index: u32, due: Instant, service_ns: u64, planned: Option<usize>) {
        let line = &mut self.lines[index as usize];
        if line.due.len() as u64 == line.sent {
            self.ready.push(index);
        }
        line.due.push_back(Made { due, left: due, service_ns, planned });
        self.drawn += 1;
        self.service_ns += service_ns as f64;
    }

    /// The same, in a closed loop.
    fn make_next(&mut self, index: u32, due: Instant) {
        let mean = self.config.service_ns;
        let service_ns = if mean > 0.0 { self.random.exponential(mean) as u64 } else { 0 };
        self.make(index, due, service_ns, None);
    }

    /// What was handed to the stack is on the wire.
    pub fn left(&mut self, now: Instant) {
        for (index, count) in self.leaving.drain(..) {
            let line = &mut self.lines[index as usize];
            for made in line.due.range_mut((line.sent - count) as usize..line.sent as usize) {
                made.left = now;
                if let Some(place) = made.planned {
                    let after = now.since(self.began);
                    self.found.asked.push(Planned { after, ..self.plan[place] });
                }
            }
        }
    }

    fn depth(&self) -> u64 {
        match self.config.arrivals {
            Arrivals::Closed { depth, .. } | Arrivals::Open { depth, .. } => u64::from(depth),
        }
    }

    fn answer(&mut self, now: Instant, index: u32, bytes: &[u8]) {
        let [connection, number, done_ns] = parts(bytes);
        if number == ASKS_HOME {
            let home = done_ns as usize;
            if connection != u64::from(index) || home >= usize::from(u8::MAX) {
                self.found.failures += 1;
                return;
            }
            self.by_home.resize(self.by_home.len().max(home + 1), Vec::new());
            self.by_home[home].push(index);
            self.open += 1;
            return;
        }
        let line = &mut self.lines[index as usize];
        if connection != u64::from(index) || number != line.answered {
            self.found.out_of_order += 1;
        }
        line.answered += 1;
        line.sent = line.sent.saturating_sub(1);
        if let Some(Made { due, left, .. }) = line.due.pop_front() {
            let done = Instant::from_nanos(done_ns);
            let since = |from| u32::try_from(done.since(from).as_nanos()).unwrap_or(u32::MAX);
            self.latencies_ns.push(since(due));
            self.served_ns.push(since(left));
        }
        if line.due.len() as u64 > line.sent {
            self.ready.push(index);
        }
        self.answered += 1;
        if let Arrivals::Closed { total, .. } = self.config.arrivals
            && self.answered + self.found.left < total
        {
            self.make_next(index, now);
        }
    }

    fn received(&mut self, now: Instant, index: u32, data: &[u8]) {
        let mut bytes = core::mem::take(&mut self.lines[index as usize].part);
        bytes.extend_from_slice(data);
        let whole = bytes.len() / REQUEST * REQUEST;
        for request in bytes[..whole].chunks_exact(REQUEST) {
            self.answer(now, index, request);
        }
        bytes.drain(..whole);
        self.lines[index as usize].part = bytes;
    }

    /// Makes the requests that are due by now.
    fn arrive(&mut self, now: Instant) {
        while let Some(due) = self.next_due().filter(|due| *due <= now) {
            let (planned, place) = (self.plan[self.asked], self.asked);
            self.asked += 1;
            let of = |part: f64, count: usize| (part * count as f64) as usize;
            let lines = &self.by_home[of(planned.home, self.by_home.len())];
            let index = lines[of(planned.among, lines.len())];
            // By the time that it is: how late the client woke up is not the server's. Nothing that the server
            // does delays the client.
            self.make(index, due, planned.service_ns, Some(place));
        }
    }

    /// Sends what may be sent: of a connection in one piece, so that no request is cut.
    fn send(&mut self, calls: &mut Calls<'_>) {
        let depth = self.depth();
        let mut later = Vec::new();
        for index in core::mem::take(&mut self.ready) {
            let mut message = Vec::new();
            loop {
                let line = &mut self.lines[index as usize];
                if line.sent == depth.min(line.due.len() as u64) {
                    break;
                }
                let Made { service_ns, .. } = line.due[line.sent as usize];
                message.extend(request(u64::from(index), line.made, service_ns));
                line.made += 1;
                line.sent += 1;
            }
            let Some(handle) = self.lines[index as usize].handle else { continue };
            let count = (message.len() / REQUEST) as u64;
            if !message.is_empty() && calls.sendv(handle, &[&message]).is_err() {
                // The batch is full: the same again in the next one.
                let line = &mut self.lines[index as usize];
                (line.made, line.sent) = (line.made - count, line.sent - count);
                later.push(index);
            } else if count > 0 {
                self.leaving.push((index, count));
            }
        }
        self.ready.append(&mut later);
    }
}

impl Service for Client {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            match event {
                Event::Connected { cookie, outcome: Ok((handle, _)) } => {
                    self.lines[cookie.0 as usize].handle = Some(handle);
                    let asks = request(cookie.0, ASKS_HOME, 0);
                    if calls.sendv(handle, &[&asks]).is_err() {
                        self.found.failures += 1;
                    }
                }
                Event::Recv { handle, cookie, data, .. } => {
                    self.received(now, cookie.0 as u32, data);
                    if calls.recv_done(handle, data.len()).is_err() {
                        self.found.failures += 1;
                    }
                }
                Event::Connected { .. } | Event::Failed { .. } | Event::Dead { .. } => {
                    self.found.failures += 1;
                }
                Event::Knock { .. }
                | Event::Sent { .. }
                | Event::Eof { .. }
                | Event::Again { .. }
                | Event::Datagram { .. } => {}
            }
        }
        while self.opening < self.config.connections
            && self.opening - self.open < OPENING
            && calls.room() > 64
            && calls.connect(Cookie(u64::from(self.opening)), self.server).is_ok()
        {
            self.opening += 1;
        }
        self.arrive(now);
        self.send(calls);
    }

    fn wake_at(&self) -> Option<Instant> {
        let asking = !self.ready.is_empty() || self.opening < self.config.connections;
        if asking { Some(Instant::ZERO) } else { self.next_due() }
    }
}
