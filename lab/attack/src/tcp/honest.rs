//! The service under attack, and its honest clients: requests with a body of several segments, which the network
//! reorders, so that they need all that an attack can take: packet memory, room for connections, time.

use clock::{Duration, Instant};
use tailplane::{Calls, Cookie, Event, Events, Flow, Handle, Opened, Output, Protocol, Service};
use world::dice::Dice;

use super::frames::SERVER;

/// Bytes before a request's body: the reply's length, whether the service closes then, the body's length.
const HEADER: usize = 8;
/// Bytes of an honest request's body and of its reply: three segments each.
const BODY: u16 = 4_000;
const REPLY: usize = 4_000;
/// Bytes that the service puts into a reply at a time.
const PIECE: [u8; 4_096] = [0; 4_096];
/// Requests on a connection that does not last.
const ASKED_MAX: u32 = 4;

/// A request for `reply` bytes, after which the service closes where `closes`.
pub fn request(reply: u32, closes: bool, body: u16) -> Vec<u8> {
    let [a, b, c, d] = reply.to_be_bytes();
    let [high, low] = body.to_be_bytes();
    let mut bytes = vec![a, b, c, d, 0, u8::from(closes), high, low];
    bytes.resize(HEADER + usize::from(body), 0);
    bytes
}

/// The service: answers each request with as many bytes as it asks for.
#[derive(Debug)]
pub struct Replies;

/// What a connection of [`Replies`] has left to do.
#[derive(Debug, Default)]
pub struct Reply {
    left: usize,
    closes: bool,
}

impl Protocol for Replies {
    type Connection = Reply;

    fn open(&mut self, _: Instant, _: Opened) -> Option<Reply> {
        Some(Reply::default())
    }

    fn receive(
        &mut self,
        _: Instant,
        reply: &mut Reply,
        mut data: &[u8],
        output: &mut Output<'_, '_>,
    ) -> Flow {
        loop {
            while reply.left > 0 {
                let piece = reply.left.min(output.room()).min(PIECE.len());
                if piece == 0 {
                    return Flow::Yield { left: data.len() };
                }
                output.put(&PIECE[..piece]);
                reply.left -= piece;
            }
            if reply.closes {
                return Flow::Close;
            }
            let [a, b, c, d, _, closes, high, low, ref rest @ ..] = *data else { break };
            let Some(rest) = rest.get(usize::from(u16::from_be_bytes([high, low]))..) else {
                break;
            };
            *reply = Reply { left: u32::from_be_bytes([a, b, c, d]) as usize, closes: closes != 0 };
            data = rest;
        }
        if data.is_empty() {
            Flow::Continue
        } else {
            Flow::Partial { left: data.len(), begun: true }
        }
    }

    fn resume(&mut self, now: Instant, reply: &mut Reply, output: &mut Output<'_, '_>) -> Flow {
        self.receive(now, reply, &[], output)
    }
}

/// How honest clients ask.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Connections at a time; those with even numbers last, the others end after [`ASKED_MAX`] requests.
    pub lines: usize,
    /// Mean time from one request of a line to its next.
    pub gap: Duration,
    /// The first request comes due at this moment, those of other lines within a gap of it.
    pub from: Instant,
    /// No request comes due from here on, and connections close.
    pub until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Connecting,
    /// With the bytes that may be sent, and those of the request that were not.
    Open {
        handle: Handle,
        window: u32,
        unsent: usize,
    },
}

/// One connection after the other, or one that lasts.
#[derive(Debug)]
struct Line {
    state: State,
    /// When its request comes or came due: its latency counts from here, however late it was sent.
    due: Instant,
    /// It has come due, and no reply has ended it.
    begun: bool,
    /// Requests answered on this connection, and bytes that the next answer has so far.
    answered: u32,
    got: usize,
}

/// What honest clients found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Requests that came due, and those that were answered.
    pub asked: u64,
    /// See [`asked`](Self::asked).
    pub answered: u64,
    /// Connections that were refused or reset.
    pub broken: u64,
    /// Nanoseconds from the moment a request came due to the end of its reply, on an open connection.
    pub latencies: Vec<u64>,
    /// The same of requests that open a connection first.
    pub openings: Vec<u64>,
}

impl std::ops::AddAssign<&Found> for Found {
    fn add_assign(&mut self, other: &Found) {
        self.asked += other.asked;
        self.answered += other.answered;
        self.broken += other.broken;
        self.latencies.extend(&other.latencies);
        self.openings.extend(&other.openings);
    }
}

/// The clients' side; see the module's comment.
pub struct Honest {
    pace: Pace,
    lines: Vec<Line>,
    dice: Dice,
    request: Vec<u8>,
    /// What was found.
    pub found: Found,
}

impl Honest {
    /// Clients that ask at `pace`; `seed` draws when.
    pub fn new(pace: Pace, seed: u64) -> Self {
        let lines = (0..pace.lines).map(|number| Line {
            state: State::Closed,
            due: pace.from + pace.gap * number as u32 / pace.lines as u32,
            begun: false,
            answered: 0,
            got: 0,
        });
        let (lines, dice) = (lines.collect(), Dice::new(seed, "honest", 0));
        let request = request(REPLY as u32, false, BODY);
        Self { pace, lines, dice, request, found: Found::default() }
    }

    fn event(&mut self, now: Instant, event: Event<'_>, calls: &mut Calls<'_>) {
        let (cookie, handle) = match event {
            Event::Connected { cookie, outcome, .. } => {
                let line = &mut self.lines[cookie.0 as usize];
                (line.answered, line.got) = (0, 0);
                line.state = match outcome {
                    Ok((handle, window)) => {
                        State::Open { handle, window, unsent: self.request.len() }
                    }
                    Err(_) => State::Closed,
                };
                if outcome.is_err() {
                    self.end_request(cookie);
                    self.found.broken += 1;
                }
                return;
            }
            Event::Recv { handle, cookie, data, .. } => {
                // A call that the batch has no room for only delays the window.
                let _ = calls.recv_done(handle, data.len());
                (cookie, handle)
            }
            Event::Sent { handle, cookie, .. } | Event::Dead { handle, cookie, .. } => {
                (cookie, handle)
            }
            _ => return,
        };
        let line = &mut self.lines[cookie.0 as usize];
        let State::Open { handle: own, window, unsent } = &mut line.state else { return };
        if *own != handle {
            return;
        }
        match event {
            Event::Sent { window: now, .. } => *window = now,
            Event::Recv { data, window: now_open, .. } => {
                *window = now_open;
                line.got += data.len();
                if line.got >= REPLY && line.begun {
                    *unsent = self.request.len();
                    self.answered(cookie, now, handle, calls);
                }
            }
            _ => {
                line.state = State::Closed;
                self.found.broken += 1;
                self.end_request(cookie);
            }
        }
    }

    /// The reply to a line's request has come.
    fn answered(&mut self, cookie: Cookie, now: Instant, handle: Handle, calls: &mut Calls<'_>) {
        let line = &mut self.lines[cookie.0 as usize];
        let latency = now.since(line.due).as_nanos() as u64;
        match line.answered {
            0 => self.found.openings.push(latency),
            _ => self.found.latencies.push(latency),
        }
        self.found.answered += 1;
        (line.answered, line.got) = (line.answered + 1, 0);
        let lasts = cookie.0.is_multiple_of(2);
        if !lasts && line.answered == ASKED_MAX && calls.close(handle).is_ok() {
            line.state = State::Closed;
        }
        self.end_request(cookie);
    }

    /// The next request of a line comes due a gap after this one did, also where that is past.
    fn end_request(&mut self, cookie: Cookie) {
        let gap = self.dice.duration(self.pace.gap / 2, self.pace.gap * 3 / 2);
        let line = &mut self.lines[cookie.0 as usize];
        (line.begun, line.due) = (false, line.due + gap);
    }

    fn act(&mut self, now: Instant, number: usize, calls: &mut Calls<'_>) {
        let (line, until) = (&mut self.lines[number], self.pace.until);
        if !line.begun && line.due <= now && line.due < until {
            line.begun = true;
            self.found.asked += 1;
        }
        match &mut line.state {
            State::Closed if line.begun && calls.connect(Cookie(number as u64), SERVER).is_ok() => {
                line.state = State::Connecting;
            }
            State::Open { handle, window, unsent } if line.begun => {
                while *unsent > 0 && *window > 0 {
                    let bytes = (*window as usize).min(*unsent);
                    let from = self.request.len() - *unsent;
                    if calls.sendv(*handle, &[&self.request[from..][..bytes]]).is_err() {
                        break;
                    }
                    (*unsent, *window) = (*unsent - bytes, *window - bytes as u32);
                }
            }
            State::Open { handle, .. } if now >= until && calls.close(*handle).is_ok() => {
                line.state = State::Closed;
            }
            _ => {}
        }
    }
}

impl Service for Honest {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            self.event(now, event, calls);
        }
        (0..self.lines.len()).for_each(|number| self.act(now, number, calls));
    }

    fn wake_at(&self) -> Option<Instant> {
        let until = self.pace.until;
        let idle = |line: &&Line| !line.begun && (line.due < until || line.state != State::Closed);
        self.lines.iter().filter(idle).map(|line| line.due.min(until)).min()
    }
}
