//! What coordinator and agents say to each other, in the order in which they say it.

use serde::{Deserialize, Serialize};

use super::carried::Carried;
use crate::config::LoadConfig;
use crate::kernel::KernelConfig;

/// Version of the protocol. Coordinator and agents must agree on it: the shares of one load are only
/// comparable where the generators are the same.
pub const VERSION: u32 = 2;
/// How either side says which protocol it speaks.
pub(super) const PROTOCOL: &str = "tailplane-load";

/// The coordinator's first words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Challenge {
    /// [`PROTOCOL`].
    pub protocol: String,
    /// [`VERSION`]. What follows may be missing in another version.
    pub version: u32,
    /// Random, in hexadecimal digits: what the agent's proof is of.
    #[serde(default)]
    pub nonce: String,
    /// Whether a secret must be proven.
    #[serde(default)]
    pub secret: bool,
}

/// The agent's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answer {
    /// [`PROTOCOL`].
    pub protocol: String,
    /// [`VERSION`].
    pub version: u32,
    /// What it is called.
    #[serde(default)]
    pub name: String,
    /// The machine it runs on.
    #[serde(default)]
    pub host: String,
    /// Random, in hexadecimal digits: what the coordinator's proof is of.
    #[serde(default)]
    pub nonce: String,
    /// That it has the secret.
    #[serde(default)]
    pub proof: Option<String>,
}

/// The coordinator's last word of the handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub(super) enum Verdict {
    /// The agent belongs to the run.
    Welcome {
        /// That the coordinator has the secret.
        proof: Option<String>,
    },
    /// It does not.
    Refused {
        /// Why, and what to do.
        reason: String,
    },
}

/// One window, as an agent is told of it. Every agent is told the same but for its index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Task {
    /// Told back with every answer, so that an old one is not taken for a new one.
    pub job: u32,
    /// The whole load.
    pub load: LoadConfig,
    /// Which share of it, ...
    pub index: u32,
    /// ... of how many.
    pub agents: u32,
    /// How each of them carries it; the cores are the agent's own.
    #[serde(flatten)]
    pub transport: KernelConfig,
}

/// To an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(super) enum ToAgent {
    /// Prepare this.
    Task(Box<Task>),
    /// What does your clock say?
    Ping,
    /// Start when your clock says this.
    Start {
        /// Nanoseconds of the agent's clock.
        at_ns: u64,
    },
    /// Give the task up.
    Abort,
    /// There is nothing more to do.
    End {
        /// Why, where the run did not come to its end.
        reason: Option<String>,
    },
}

/// To the coordinator, about the task `job`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ToCoordinator {
    /// Which task.
    pub job: u32,
    /// What of it.
    pub what: Said,
}

/// What an agent says about its task.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(super) enum Said {
    /// Connected, and the keys are stored.
    Ready,
    /// The clock says this.
    Pong {
        /// Nanoseconds of the agent's clock.
        now_ns: u64,
    },
    /// What was measured.
    Done(Box<Done>),
    /// The task could not be carried out.
    Failed {
        /// What was tried, what was found, and what to do.
        error: String,
    },
}

/// What an agent measured, and on what.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Done {
    /// The counts and histograms.
    pub measured: Carried,
    /// The first failure of a connection, in words.
    pub first_failure: Option<String>,
    /// How long after the moment of the start the agent was told of it; zero where in time.
    pub told_late_ns: u64,
    /// Kernel release of its machine.
    pub kernel: String,
    /// Processor of its machine.
    pub processor: String,
    /// Cores that its threads are pinned to.
    pub cores: Vec<usize>,
}
