//! The client's side: opens connections, sends requests on those it is told to, checks each answer.

use std::collections::VecDeque;
use std::sync::Arc;

use clock::Instant;
use domain::{Calls, Cookie, Event, Events, Handle, LocalEndpoint, Service};
use wire::Endpoint;

/// Connections that are half open at a time: below any backlog.
const OPENING_LIMIT: usize = 512;
/// Calls that receiving needs in the same batch.
const CALL_RESERVE: usize = 256;

/// A closed-loop client for many connections: one request outstanding on each.
#[derive(Debug)]
pub struct Caller {
    /// By cookie; `None` while the connection is not open.
    handles: Vec<Option<Handle>>,
    /// Where connection number `n` goes: the `n / per_port`th of these.
    servers: Vec<Endpoint>,
    per_port: usize,
    /// Own addresses that connections have in turn.
    addresses: usize,
    started: usize,
    /// Connections that are open.
    pub open: usize,
    /// Connections that a request is to be sent on.
    queue: VecDeque<u32>,
    /// Requests sent and not answered, and how many there may be.
    in_flight: usize,
    in_flight_limit: usize,
    request: Arc<[u8]>,
    answer: Arc<[u8]>,
    /// Right answers so far.
    pub answered: u64,
    /// Wrong answers, failed calls and connections that ended: zero in a valid run.
    pub failures: u64,
    paused: bool,
}

impl Caller {
    /// A client for `connections` connections, `per_port` to each of `servers` in turn.
    /// At most `in_flight` requests are unanswered at a time.
    pub fn new(
        connections: usize,
        in_flight: usize,
        servers: Vec<Endpoint>,
        per_port: usize,
    ) -> Self {
        assert!(per_port > 0 && servers.len() * per_port >= connections, "a port for each");
        Self {
            handles: vec![None; connections],
            servers,
            per_port,
            addresses: 1,
            started: 0,
            open: 0,
            queue: VecDeque::new(),
            in_flight: 0,
            in_flight_limit: in_flight.max(1),
            request: Arc::new([]),
            answer: Arc::new([]),
            answered: 0,
            failures: 0,
            paused: false,
        }
    }

    /// Its connections have the first `addresses` of the dataplane's in turn.
    #[must_use]
    pub fn from_addresses(self, addresses: usize) -> Self {
        Self { addresses, ..self }
    }

    /// Opens and sends nothing from now on, or does again. What comes is taken in any case.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// What is sent from now on, and the answer that is right.
    pub fn set_request(&mut self, request: &[u8], answer: &[u8]) {
        for (part, with) in [(&mut self.request, request), (&mut self.answer, answer)] {
            match Arc::get_mut(part).filter(|part| part.len() == with.len()) {
                // Without the allocator, which others of a measured process use as well.
                Some(part) => part.copy_from_slice(with),
                None => *part = with.into(),
            }
        }
    }

    /// Has one request sent on connection number `index`, as soon as the batch has room.
    pub fn ask(&mut self, index: u32) {
        self.queue.push_back(index);
    }

    /// Connections that this client is for.
    pub fn connections(&self) -> usize {
        self.handles.len()
    }

    /// Whether all requests are sent and answered.
    pub fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.queue.is_empty()
    }

    fn event(&mut self, event: Event<'_>, calls: &mut Calls<'_>) {
        match event {
            Event::Recv { handle, data, .. } => {
                // A segment carries whole answers: they are small, and each was sent at once.
                let answers = data.chunks(self.answer.len().max(1));
                let count = answers.len();
                let right = answers.into_iter().all(|answer| *answer == *self.answer)
                    && calls.recv_done(handle, data.len()).is_ok();
                self.in_flight = self.in_flight.saturating_sub(count);
                self.answered += if right { count as u64 } else { 0 };
                self.failures += !right as u64;
            }
            Event::Sent { .. } => {}
            Event::Connected { cookie, outcome: Ok((handle, _)), .. } => {
                match self.handles.get_mut(cookie.0 as usize) {
                    Some(place) => *place = Some(handle),
                    None => self.failures += 1,
                }
                self.open += 1;
            }
            _ => self.failures += 1,
        }
    }

    fn connect(&mut self, calls: &mut Calls<'_>) {
        while self.started < self.handles.len()
            && self.started - self.open < OPENING_LIMIT
            && calls.room() > CALL_RESERVE
        {
            let server = self.servers[self.started / self.per_port];
            let local = LocalEndpoint::new(self.started % self.addresses, 0);
            if calls.connect_from(Cookie(self.started as u64), local, server).is_err() {
                return;
            }
            self.started += 1;
        }
    }

    fn send(&mut self, calls: &mut Calls<'_>) {
        while self.in_flight < self.in_flight_limit
            && calls.room() > CALL_RESERVE
            && let Some(&index) = self.queue.front()
        {
            match self.handles.get(index as usize) {
                Some(&Some(handle)) => {
                    if calls.sendv(handle, &[&self.request]).is_err() {
                        return;
                    }
                    self.in_flight += 1;
                }
                _ => self.failures += 1,
            }
            self.queue.pop_front();
        }
    }
}

impl Service for Caller {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            self.event(event, calls);
        }
        if !self.paused {
            self.connect(calls);
            self.send(calls);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let wants = self.started < self.handles.len() || !self.queue.is_empty();
        (wants && !self.paused).then_some(Instant::ZERO)
    }
}
