//! Why a load over several machines did not come to its end.

use std::io;
use std::net::SocketAddr;

use crate::error::LoadError;
use crate::setting::ConfigError;

/// Why there is no report of all agents, or why an agent gave up.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// A setting cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What the coordinator itself could not do.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The coordinator's port could not be opened.
    #[error(
        "could not listen for agents on {address}: {source}; is the address this machine's, and the port free?"
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the kernel answered.
        source: io::Error,
    },
    /// Too few agents came.
    #[error(
        "{came} of {wanted} agents came within {wait_s} s ({names}); start each with `tailplane \
         load-agent {address}`"
    )]
    TooFewAgents {
        /// Agents that came.
        came: usize,
        /// Agents that were waited for.
        wanted: u32,
        /// How long.
        wait_s: u64,
        /// Those that came.
        names: String,
        /// Where they were waited for.
        address: SocketAddr,
    },
    /// An agent could not carry out its share, and said so before the start.
    #[error("agent {name}: {error}")]
    AgentFailed {
        /// Which.
        name: String,
        /// What it said.
        error: String,
    },
    /// An agent was lost before the start.
    #[error("agent {name} was lost before the load started: {reason}; start it again")]
    AgentLost {
        /// Which.
        name: String,
        /// How.
        reason: String,
    },
    /// No agent has sent a result.
    #[error("no agent has sent a result: {reasons}")]
    NoResults {
        /// Of each agent, why.
        reasons: String,
    },
    /// An agent found no coordinator.
    #[error(
        "could not reach the coordinator at {coordinator} within {wait_s} s: {reason}; is `tailplane \
         load … --agents N --listen ADDRESS:PORT` running there?"
    )]
    NoCoordinator {
        /// Where.
        coordinator: String,
        /// How long it was tried.
        wait_s: u64,
        /// What the last try found.
        reason: String,
    },
    /// What answered is no coordinator, or another version of it.
    #[error("{peer} is no coordinator for this agent: {reason}")]
    NotOurs {
        /// Who answered.
        peer: String,
        /// What is wrong.
        reason: String,
    },
    /// The coordinator does not want this agent.
    #[error("the coordinator at {coordinator} refused this agent: {reason}")]
    Refused {
        /// Who.
        coordinator: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The coordinator went away; the load was stopped.
    #[error("the coordinator at {coordinator} was lost, the load is stopped: {reason}")]
    CoordinatorLost {
        /// Who.
        coordinator: String,
        /// How.
        reason: String,
    },
    /// The coordinator ended the run before its end.
    #[error("the coordinator at {coordinator} ended the run: {reason}")]
    Ended {
        /// Who.
        coordinator: String,
        /// Why.
        reason: String,
    },
    /// The coordinator is on another machine, and there is no secret.
    #[error(
        "cannot obey the coordinator at {coordinator}: it is on another machine, and this agent has no secret to know \
         it by; give both the same `--secret-file` (`openssl rand -hex 32` makes a good one)"
    )]
    NoSecret {
        /// Who.
        coordinator: String,
    },
    /// The secret's file cannot be used.
    #[error("cannot use the secret file '{path}': {reason}")]
    Secret {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}
