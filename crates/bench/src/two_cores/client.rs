//! The client: requests on many connections, each with its moment, and a check of every answer.

use std::collections::VecDeque;

use clock::{Duration, Instant};
use domain::{Calls, Cookie, Event, Events, Handle, Service};
use wire::Endpoint;

use super::service::{REQUEST, parts, request};
use super::{Arrivals, Config, Found};

/// Longest time that the client sleeps. The service says when it was done, so nothing hangs on when the client
/// sees that, but for connections with as many requests outstanding as may be.
const NAP: Duration = Duration::from_micros(200);
/// Connections that are being opened at a time.
const OPENING: u32 = 64;

#[derive(Default)]
struct Line {
    handle: Option<Handle>,
    /// Requests made, and answers seen.
    made: u64,
    answered: u64,
    /// When each that is not answered was made.
    due: VecDeque<Instant>,
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
    /// When the run began, the next request is due, and the last one.
    began: Option<Instant>,
    next_due: Instant,
    ends: Instant,
    /// Lines with something to send.
    ready: Vec<u32>,
    random: u64,
    latencies_ns: Vec<u32>,
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
            began: None,
            next_due: Instant::FAR_FUTURE,
            ends: Instant::FAR_FUTURE,
            ready: Vec::new(),
            random: config.seed | 1,
            latencies_ns: Vec::new(),
            answered: 0,
            drawn: 0,
            service_ns: 0.0,
            found: Found::default(),
        }
    }

    /// Connections that stand.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Requests come from now on.
    pub fn begin(&mut self, now: Instant) {
        self.began = Some(now);
        match self.config.arrivals {
            Arrivals::Closed { depth, .. } => {
                for index in 0..self.lines.len() as u32 {
                    (0..depth).for_each(|_| self.make(index, now));
                }
            }
            Arrivals::Open { span, .. } => {
                self.next_due = now;
                self.ends = now + span;
            }
        }
    }

    /// Whether all that was to be answered was.
    pub fn is_over(&self) -> bool {
        match self.config.arrivals {
            Arrivals::Closed { total, .. } => self.answered >= total,
            Arrivals::Open { .. } => {
                self.next_due >= self.ends && self.lines.iter().all(|line| line.due.is_empty())
            }
        }
    }

    /// How long to sleep, where a sleep is better than another look.
    pub fn pause(&self, now: Instant) -> Option<Duration> {
        match self.config.arrivals {
            Arrivals::Closed { .. } => None,
            Arrivals::Open { .. } => {
                // Without a pause at the end, it would keep the last answers' processor to itself.
                let due = if self.next_due < self.ends { self.next_due } else { now + NAP };
                let wait = due.min(now + NAP).since(now);
                (wait > Duration::from_micros(5)).then_some(wait)
            }
        }
    }

    /// What was found, `took` after the beginning.
    pub fn found(mut self, took: Duration) -> Found {
        self.latencies_ns.sort_unstable();
        let quantile = |share: f64| {
            let last = self.latencies_ns.len().saturating_sub(1) as f64;
            let at = (share * last).round() as usize;
            self.latencies_ns.get(at).map_or(f64::NAN, |&ns| f64::from(ns) / 1e3)
        };
        Found {
            answered: self.answered,
            left: self.lines.iter().map(|line| line.due.len() as u64).sum(),
            seconds: took.as_secs_f64(),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            service_us: self.service_ns / 1e3 / self.drawn.max(1) as f64,
            ..self.found
        }
    }

    fn uniform(&mut self) -> f64 {
        // xorshift64*.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let bits = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        (bits as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -self.uniform().ln() * mean
    }

    /// A request of connection `index` is made, to be sent as soon as may be.
    fn make(&mut self, index: u32, due: Instant) {
        let line = &mut self.lines[index as usize];
        if line.due.len() as u64 == line.sent {
            self.ready.push(index);
        }
        line.due.push_back(due);
    }

    fn depth(&self) -> u64 {
        match self.config.arrivals {
            Arrivals::Closed { depth, .. } | Arrivals::Open { depth, .. } => u64::from(depth),
        }
    }

    fn answer(&mut self, now: Instant, index: u32, bytes: &[u8]) {
        let [connection, number, done_ns] = parts(bytes);
        let line = &mut self.lines[index as usize];
        if connection != u64::from(index) || number != line.answered {
            self.found.out_of_order += 1;
        }
        line.answered += 1;
        line.sent = line.sent.saturating_sub(1);
        if let Some(due) = line.due.pop_front() {
            let took = Instant::from_nanos(done_ns).since(due).as_nanos();
            self.latencies_ns.push(u32::try_from(took).unwrap_or(u32::MAX));
        }
        if line.due.len() as u64 > line.sent {
            self.ready.push(index);
        }
        self.answered += 1;
        if let Arrivals::Closed { total, .. } = self.config.arrivals
            && self.answered + self.found.left < total
        {
            self.make(index, now);
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
        let Arrivals::Open { rate, .. } = self.config.arrivals else { return };
        while self.next_due <= now && self.next_due < self.ends {
            let index = (self.uniform() * f64::from(self.config.connections)) as u32;
            // By the time that it is: how late the client woke up is not the server's. Nothing that the server
            // does delays the client.
            self.make(index.min(self.config.connections - 1), now);
            let gap = self.exponential(1e9 / rate);
            self.next_due += Duration::from_nanos(gap as u64);
        }
    }

    /// Sends what may be sent: of a connection in one piece, so that no request is cut.
    fn send(&mut self, calls: &mut Calls<'_>) {
        let depth = self.depth();
        let mut later = Vec::new();
        for index in core::mem::take(&mut self.ready) {
            let mean = self.config.service_ns;
            let mut message = Vec::new();
            loop {
                let line = &self.lines[index as usize];
                if line.sent == depth.min(line.due.len() as u64) {
                    break;
                }
                let service_ns = if mean > 0.0 { self.exponential(mean) as u64 } else { 0 };
                self.drawn += 1;
                self.service_ns += service_ns as f64;
                let line = &mut self.lines[index as usize];
                message.extend(request(u64::from(index), line.made, service_ns));
                line.made += 1;
                line.sent += 1;
            }
            let Some(handle) = self.lines[index as usize].handle else { continue };
            if !message.is_empty() && calls.sendv(handle, &[&message]).is_err() {
                // The batch is full: the same again in the next one.
                let line = &mut self.lines[index as usize];
                let count = (message.len() / REQUEST) as u64;
                (line.made, line.sent) = (line.made - count, line.sent - count);
                later.push(index);
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
                    self.open += 1;
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
        if asking { Some(Instant::ZERO) } else { Some(self.next_due) }
    }
}
