//! What is said over a service's control socket.
//!
//! ```
//! use endpoint::{Ask, Request};
//! let ask = Ask { id: 7, request: Request::Move { from: 0, to: 1, groups: vec![3, 4] } };
//! let text = serde_json::to_string(&ask)?;
//! assert_eq!(text, r#"{"id":7,"request":{"move":{"from":0,"to":1,"groups":[3,4]}}}"#);
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! Every [`Ask`] is answered by exactly one [`Answer`] with its number, in whatever order: that of a move comes
//! when it is complete.

use serde::{Deserialize, Serialize};

use crate::printable::printable;

/// Of what is said here: [`Description::version`].
pub const PROTOCOL_VERSION: u32 = 1;

/// What a client asks for: the one form of it from the client to the elastic thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// What the service is; the answer brings the descriptor of its statistics segment.
    Describe,
    /// A thread shall serve with the configured idle policy.
    Grant {
        /// Its number.
        thread: u16,
    },
    /// A thread that has no flow group shall leave its processor to others.
    Park {
        /// Its number.
        thread: u16,
    },
    /// Flow groups shall be at home on another thread: all of them or none (IX §4.5).
    Move {
        /// Their home.
        from: u16,
        /// Their home from then on.
        to: u16,
        /// Their numbers.
        groups: Vec<u16>,
    },
    /// A thread shall run on another processor.
    Place {
        /// Its number.
        thread: u16,
        /// The processor's.
        cpu: usize,
    },
    /// The service shall end, as at a SIGTERM.
    End,
}

impl Request {
    /// Whether this is what a service reports that has carried the request out.
    pub fn is_done_by(&self, done: &Done) -> bool {
        matches!(
            (self, done),
            (Self::Describe, Done::Described(_))
                | (Self::Grant { .. }, Done::Granted)
                | (Self::Park { .. }, Done::Parked)
                | (Self::Move { .. }, Done::Moved(_))
                | (Self::Place { .. }, Done::Placed)
                | (Self::End, Done::Ending)
        )
    }
}

/// A request, with its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// Comes back with the answer. On a control socket 0 is the server's own, for what it says of the connection; behind
    /// it the number is the server's, and no two requests have the same.
    pub id: u64,
    /// What is asked for.
    pub request: Request,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The request's.
    pub id: u64,
    /// What was done, or why nothing was.
    pub result: Outcome,
}

/// What was done, or why nothing was.
pub type Outcome = Result<Done, Refused>;

impl Answer {
    /// The same, with each text that people read as a terminal can show it. A service is not trusted by its clients:
    /// its reasons and names reach terminals and logs.
    pub fn printable(self) -> Self {
        let result = match self.result {
            Ok(Done::Described(description)) => {
                Ok(Done::Described(Box::new(description.printable())))
            }
            result => result.map_err(Refused::printable),
        };
        Self { result, ..self }
    }
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Done {
    /// What the service is. With the descriptor of its statistics segment.
    Described(Box<Description>),
    /// The thread has seen it.
    Granted,
    /// The thread has seen it.
    Parked,
    /// The move is complete.
    Moved(MoveSummary),
    /// The thread runs there.
    Placed,
    /// The service is about to end.
    Ending,
}

/// A migration that is complete (IX Table V).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveSummary {
    /// Flow groups.
    pub groups: u32,
    /// Connections in them.
    pub connections: u32,
    /// Packets whose processing was deferred.
    pub packets_deferred: u32,
    /// How long each phase took, in nanoseconds: prepare, wait, rpc, deferred.
    pub phase_ns: [u64; 4],
}

/// What a service is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The name that its socket has.
    pub name: String,
    /// The process that serves this socket.
    pub pid: u32,
    /// When it began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// The file that it was configured by; empty where there was none.
    pub config_path: String,
    /// That file's text; empty where it is too long for a message.
    pub config_text: String,
    /// Elastic threads.
    pub threads: u16,
    /// The processor of each as it was configured; none: where the kernel puts it. Where it runs now is in the
    /// segment.
    pub cpus: Vec<Option<usize>>,
    /// B: packets that one cycle takes at most.
    pub batch_max: u32,
    /// Flow groups.
    pub groups: u16,
    /// Which core runs the application for a connection.
    pub scheduler: String,
    /// What separates dataplane and application.
    pub domain: String,
    /// How frames travel.
    pub driver: String,
    /// Whether the wire's own table of flow groups can be programmed; else packets are forwarded by whichever thread
    /// they come to.
    pub steers: bool,
    /// Whether flow groups can be moved.
    pub movable: bool,
    /// Of the protocol: [`PROTOCOL_VERSION`].
    pub version: u32,
}

impl Description {
    /// The same, with each text that is printed in one line as a terminal can show it. The configuration is read by
    /// programs, and stays as it is.
    fn printable(self) -> Self {
        Self {
            name: printable(&self.name),
            scheduler: printable(&self.scheduler),
            domain: printable(&self.domain),
            driver: printable(&self.driver),
            ..self
        }
    }
}

/// Why nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// For people: what was found, and what to do.
    pub reason: String,
    /// For programs.
    pub kind: RefusedKind,
}

/// The kinds of refusals; in events and commands' answers each is its name as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "kebab-case")]
pub enum RefusedKind {
    /// There is no elastic thread, or no flow group, of that number.
    NoSuchThread,
    /// A flow group is at home elsewhere.
    NotHome,
    /// A flow group is on its way.
    UnderWay,
    /// A thread that is to be parked is home to flow groups.
    HasGroups,
    /// Flow groups of this service cannot be moved, or not there.
    NotMovable,
    /// The message makes no sense to this version.
    Unsupported,
    /// The service is ending.
    Leaving,
    /// As much is under way as may be: wait for an answer.
    TooMany,
    /// The operating system, or the server, did not do it.
    System,
}

impl Refused {
    /// A refusal of this kind.
    pub fn new(kind: RefusedKind, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), kind }
    }

    /// The same, with its reason as a terminal can show it: of a process that is not trusted.
    pub fn printable(self) -> Self {
        Self { reason: printable(&self.reason), ..self }
    }
}
