//! One connection to the control socket: calls one after the other, each with its reply before the next.
//!
//! A client may send many calls at once; they wait in its socket until it is their turn. It may not read; then nothing
//! more is taken from it, events for it are counted instead of kept, and after a while it is cut off.

use serde_json::json;

use super::access::{Access, Role};
use super::interface::{Asked, asked, failure, own_error};
use super::message::{Call, MESSAGE_MAX, reply};
use crate::commands::{Answered, What};
use crate::events::{Event, Severity};
use crate::status::Snapshot;
use crate::stream::Pipe;

/// Bytes of replies that a client has not read, beyond which nothing more is taken from it or kept for it.
const UNSENT_MAX: usize = 256 * 1024;
/// Calls that are looked at before others have their turn.
const CALLS_MAX: usize = 16;
/// A client that reads nothing for so long is cut off, in nanoseconds.
const STALL_NS: u64 = 30_000_000_000;

/// A client that has sent a part of a message and not the rest for so long is cut off, in nanoseconds.
const HALF_NS: u64 = 10_000_000_000;

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
    /// Since when a part of a message waits for its rest.
    half_since_ns: Option<u64>,
}

impl Session {
    /// With somebody who has connected.
    pub fn new(pipe: Pipe, role: Role, uid: u32) -> Self {
        Self { pipe, role, uid, state: State::Idle, oneway: false, half_since_ns: None }
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
            self.half_since_ns = None;
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
        } else if !self.pipe.input.is_empty() {
            self.half_since_ns.get_or_insert(now_ns);
        }
    }

    /// Whether a part of a message has waited for its rest for too long, however slowly the rest comes.
    pub fn is_half_sent(&self, now_ns: u64) -> bool {
        let since_ns = self.half_since_ns.filter(|_| self.listens());
        since_ns.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) > HALF_NS)
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
            Ok(Some(moved)) => reply(json!(moved), false),
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
            let lost = Event {
                severity: Severity::Warning,
                service: "daemon".to_owned(),
                kind: "events-lost",
                fields: [("events", missed.to_string())].into(),
                ..*event
            };
            self.say(&reply(json!({ "event": lost }), true), now_ns);
        }
        self.say(&reply(json!({ "event": event }), true), now_ns);
        true
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use proptest::prelude::*;

    use super::*;

    fn session() -> (Session, UnixStream) {
        let (near, far) = UnixStream::pair().expect("sockets");
        for end in [&near, &far] {
            end.set_nonblocking(true).expect("set");
        }
        (Session::new(Pipe::new(near.into(), 0), Role::Change, 0), far)
    }

    fn access() -> Access {
        Access { own_uid: 0, group: None, others_read: false }
    }

    #[test]
    fn half_a_message_is_waited_for_a_while_however_slowly_it_grows() {
        let (mut session, mut far) = session();
        let mut now_ns = 0;
        let mut come = |session: &mut Session, bytes: &[u8], now_ns: u64| {
            far.write_all(bytes).expect("room");
            session.take(&access(), &Snapshot::default(), now_ns).expect("whole");
            session.is_half_sent(now_ns)
        };
        // An idle client may stay for ever.
        assert!(!come(&mut session, b"", 1_000 * HALF_NS));
        for _ in 0..10 {
            assert!(!come(&mut session, b" ", now_ns));
            now_ns += HALF_NS / 10;
        }
        assert!(come(&mut session, b" ", now_ns + 1));
        // The rest comes, with a part of the next message, which has its own time.
        let rest = b"{\"method\":\"io.tailplane.Control.List\"}\0{";
        assert!(!come(&mut session, rest, now_ns + 1));
        assert!(
            !session.is_half_sent(now_ns + HALF_NS) && session.is_half_sent(now_ns + HALF_NS + 2)
        );
    }

    proptest! {
        /// Whatever a client sends, in whatever parts, and though it reads nothing: no more is kept than the bounds say.
        #[test]
        fn any_bytes_are_kept_within_the_bounds(
            parts in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..64), 1usize..3_000), 0..40),
            call in prop::sample::select(vec!["List", "Status", "Events", "Nothing", "GetInfo"]),
        ) {
            let (mut session, mut far) = session();
            let call = format!("{{\"method\":\"io.tailplane.Control.{call}\"}}\0");
            for (bytes, times) in parts {
                // What does not fit into the socket is lost: it was too much anyway.
                let _ = far.write(&bytes.repeat(times));
                let _ = far.write(&call.as_bytes().repeat(times % 100));
                for now_ns in 0..4 {
                    // A connection that is broken is one that is over.
                    if let Ok(Some(Wants::Command(service, _))) = session.take(&access(), &Snapshot::default(), now_ns) {
                        session.waits(1, service);
                    }
                    prop_assert!(session.pipe.input.len() <= MESSAGE_MAX + 1);
                    // The last reply before the bound may be as long as the interface's description.
                    prop_assert!(session.pipe.unsent() <= UNSENT_MAX + 64 * 1024);
                }
            }
        }
    }
}
