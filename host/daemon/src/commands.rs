//! What people ask of the daemon, and what they are answered.

use std::path::PathBuf;

use endpoint::{MoveSummary, Request};

use configfile::PolicyName;

/// Another policy for a service, until it or the daemon is started anew.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyChange {
    /// Which.
    pub policy: PolicyName,
    /// The objective, in microseconds; the configured one where nothing is said.
    pub slo_us: Option<f64>,
    /// The period of the control loop, in milliseconds; likewise.
    pub period_ms: Option<u64>,
    /// The file of a sequence; likewise.
    pub sequence: Option<PathBuf>,
    /// With `latency-target`: over whose sequence.
    pub over: Option<PolicyName>,
}

/// What is asked of a service.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// Start it, and say when it answers.
    Start,
    /// End it, and say when it has ended.
    Stop,
    /// Let another policy decide.
    Policy(PolicyChange),
    /// Carry this out, and let the policy rest.
    ByHand(Request),
    /// Let the policy decide again.
    Resume,
}

/// A command; its answer bears its ticket.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// Whose.
    pub ticket: u64,
    /// Which service it is about.
    pub service: String,
    /// What is asked.
    pub what: What,
}

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody is called so.
    NoSuchService,
    /// It does not run, or cannot be reached.
    NotRunning(String),
    /// The service refused: in one word, and in its own.
    Refused(&'static str, String),
    /// It did not work: why.
    Failed(String),
    /// There was no answer within so many seconds. It may still happen.
    TimedOut(u64),
    /// The daemon has too much to do.
    Busy,
}

/// The answer to a command: of moves their summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Whose.
    pub ticket: u64,
    /// What became of it.
    pub result: Result<Option<MoveSummary>, Failure>,
}
