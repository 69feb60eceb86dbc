//! One connection to the control socket: calls one after the other, each with its reply before the next.
//!
//! A client may send many calls at once; they wait in its socket until it is their turn. It may not read; then nothing
//! more is taken from it, events for it are counted instead of kept, and after a while it is cut off.

use endpoint::MoveSummary;
use serde_json::json;

use super::access::{Access, Role};
use super::interface::{Asked, asked, failure, own_error};
use super::message::{Call, MESSAGE_MAX, reply};
use crate::commands::{Answered, What};
use crate::events::Event;
use crate::status::Snapshot;
use crate::stream::Pipe;

/// Bytes of replies that a client has not read, beyond which nothing more is taken from it or kept for it.
const UNSENT_MAX: usize = 256 * 1024;
/// Calls that are looked at before others have their turn.
const CALLS_MAX: usize = 16;
/// A client that reads nothing for so long is cut off, in nanoseconds.
const STALL_NS: u64 = 30_000_000_000;

/// Where it is.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// It may call.
    Idle,
    /// A command about that service is under way.
    Waits { ticket: u64, service: String, oneway: bool },
    /// It is told what happens, to one service or to all.
    Follows { service: Option<String>, lost: u64 },
    /// Nothing more is heard: what was said is still sent.
    Ends,
}

/// What a session wants of the daemon.
#[derive(Clone, Debug, PartialEq)]
pub enum Wants {
    /// The service of this name is to be asked that; the answer bears the ticket that [`Session::waits`] is given.
    Command(String, What),
    /// The files are to be read again.
    Reload,
}

/// See the module's comment.
#[derive(Debug)]
pub struct Session {
    /// The connection.
    pub pipe: Pipe,
    /// What its peer may do.
    pub role: Role,
    /// Its peer's user.
    pub uid: u32,
    state: State,
    oneway: bool,
}

impl Session {
    /// With somebody who has connected.
    pub fn new(pipe: Pipe, role: Role, uid: u32) -> Self {
        Self { pipe, role, uid, state: State::Idle, oneway: false }
    }

    /// Whether calls are taken from it now.
    pub fn listens(&self) -> bool {
        self.state == State::Idle && self.pipe.unsent() < UNSENT_MAX
    }

    /// Whether a whole call is here that could be taken at once.
    pub fn has_call(&self) -> bool {
        self.listens() && self.pipe.input.contains(&0)
    }

    /// Tells it that there is no room for it, and ends.
    pub fn turn_away(&mut self, limit: usize, now_ns: u64) {
        self.say(&own_error("TooManyConnections", json!({ "limit": limit })), now_ns);
        self.state = State::Ends;
    }

    /// Takes calls that have come; what is wanted of the daemon, if anything: then [`waits`](Self::waits) or
    /// [`answer`](Self::answer) follows before this is called again.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn take(
        &mut self,
        access: &Access,
        snapshot: &Snapshot,
        now_ns: u64,
    ) -> std::io::Result<Option<Wants>> {
        if !self.listens() {
            return Ok(None);
        }
        self.pipe.fill(MESSAGE_MAX + 1)?;
        for _ in 0..CALLS_MAX {
            if !self.listens() {
                return Ok(None);
            }
            let Some(end) = self.pipe.input.iter().position(|byte| *byte == 0) else {
                self.look_at_rest(now_ns);
                return Ok(None);
            };
            let message: Vec<u8> = self.pipe.input.drain(..=end).collect();
            if let Some(wants) = self.call(&message[..end], access, snapshot, now_ns) {
                return Ok(Some(wants));
            }
        }
        Ok(None)
    }

    /// Nothing whole has come: perhaps it never will.
    fn look_at_rest(&mut self, now_ns: u64) {
        if self.pipe.input.len() > MESSAGE_MAX {
            self.refuse(&format!("a message is longer than {MESSAGE_MAX} bytes"), now_ns);
        } else if self.pipe.ended {
            self.state = State::Ends;
        }
    }

    fn refuse(&mut self, reason: &str, now_ns: u64) {
        self.say(&own_error("Malformed", json!({ "reason": reason })), now_ns);
        self.state = State::Ends;
    }

    fn call(
        &mut self,
        message: &[u8],
        access: &Access,
        snapshot: &Snapshot,
        now_ns: u64,
    ) -> Option<Wants> {
        let call = match Call::parse(message) {
            Ok(call) => call,
            Err(reason) => {
                self.refuse(&reason, now_ns);
                return None;
            }
        };
        self.oneway = call.oneway;
        match asked(&call, access, self.role, snapshot) {
            Asked::Reply(bytes) => {
                if !call.oneway {
                    self.say(&bytes, now_ns);
                }
                None
            }
            Asked::Command(service, what) => Some(Wants::Command(service, what)),
            Asked::Reload => {
                self.done(now_ns);
                Some(Wants::Reload)
            }
            Asked::Follow(service) => {
                self.state = State::Follows { service, lost: 0 };
                None
            }
        }
    }

    fn done(&mut self, now_ns: u64) {
        if !self.oneway {
            self.say(&reply(json!({}), false), now_ns);
        }
    }

    /// What it wanted is under way, by this ticket.
    pub fn waits(&mut self, ticket: u64, service: String) {
        self.state = State::Waits { ticket, service, oneway: self.oneway };
    }

    /// The answer to a command; false where it is not the one that it waits for.
    pub fn answer(&mut self, answered: &Answered, now_ns: u64) -> bool {
        let State::Waits { ticket, service, oneway } = &self.state else { return false };
        if *ticket != answered.ticket {
            return false;
        }
        let bytes = match &answered.result {
            Ok(None) => reply(json!({}), false),
            Ok(Some(moved)) => reply(summary(moved), false),
            Err(why) => failure(service, why),
        };
        let oneway = *oneway;
        self.state = State::Idle;
        if !oneway {
            self.say(&bytes, now_ns);
        }
        true
    }

    /// Something happened; false where it follows, and is too slow.
    pub fn tell(&mut self, event: &Event, now_ns: u64) -> bool {
        let State::Follows { service, lost } = &mut self.state else { return true };
        if service.as_ref().is_some_and(|service| *service != event.service) {
            return true;
        }
        if self.pipe.unsent() >= UNSENT_MAX {
            *lost += 1;
            return false;
        }
        let missed = std::mem::take(lost);
        if missed > 0 {
            self.say_lost(missed, event, now_ns);
        }
        self.say(&reply(json!({ "event": event }), true), now_ns);
        true
    }

    /// So many events could not be told before this one.
    fn say_lost(&mut self, lost: u64, before: &Event, now_ns: u64) {
        let event = json!({
            "number": before.number,
            "unix_ms": before.unix_ms,
            "severity": "warning",
            "service": "daemon",
            "kind": "events-lost",
            "fields": { "events": lost.to_string() },
        });
        self.say(&reply(json!({ "event": event }), true), now_ns);
    }

    fn say(&mut self, bytes: &[u8], now_ns: u64) {
        self.pipe.put(bytes, now_ns);
    }

    /// Its peer has closed the connection: what it called before is still heard where nothing else is under way.
    pub fn hung_up(&mut self) {
        if self.state != State::Idle {
            self.state = State::Ends;
            self.pipe.ended = true;
        }
    }

    /// Whether it reads nothing of what it was told.
    pub fn is_stalled(&self, now_ns: u64) -> bool {
        self.pipe.stalled_ns(now_ns) > STALL_NS
    }

    /// Whether nothing more is heard from it.
    pub fn ends(&self) -> bool {
        self.state == State::Ends
    }

    /// Whether it is over: nothing more is heard, and all was read.
    pub fn is_over(&mut self, now_ns: u64) -> bool {
        self.ends() && self.pipe.linger(now_ns)
    }
}

fn summary(moved: &MoveSummary) -> serde_json::Value {
    json!({
        "groups": moved.groups,
        "connections": moved.connections,
        "packets_deferred": moved.packets_deferred,
        "phase_ns": moved.phase_ns,
    })
}
