//! One load from several machines: agents that generate it, and a coordinator that tells them what
//! to do, starts them together and adds up what they measured.
//!
//! ```no_run
//! use std::time::Duration;
//! use load::remote::{Coordinator, CoordinatorConfig};
//! use load::{KernelConfig, LoadConfig, Mode};
//! let config = CoordinatorConfig {
//!     listen: "10.0.0.1:7700".parse()?,
//!     agents: 2,
//!     wait: Duration::from_secs(60),
//!     secret: None,
//! };
//! let mut notes = |line: &str| eprintln!("{line}");
//! let mut fleet = Coordinator::bind(config)?.gather(&mut notes)?;
//! let mut load = LoadConfig::echo(64);
//! load.mode = Mode::open(100_000.0);
//! load.connections = 64;
//! let report = fleet.run(&load, &KernelConfig::new("10.0.0.9:7".parse()?))?;
//! println!("{}", report.to_table());
//! fleet.finish();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An agent is [`serve`]: a plain process, as like to the others as any launcher can start them. It
//! dials the coordinator, so that only the coordinator needs an address that is known.
//!
//! What travels: frames of a length and JSON (`frame`), bounded, with deadlines. Handshake
//! (`handshake`): the coordinator's challenge, the agent's answer, the coordinator's verdict; with a
//! secret, both prove that they have it before anything else is said, and every frame after that is
//! authenticated (`frame`). Nothing is encrypted: somebody on the path can read, and can cut the
//! connection. An agent without a secret obeys only a coordinator on a loopback address.
//!
//! A run: job, ready (connected, keys stored), clock readings (`clock`), a common moment to start
//! at, results (`carried`). Each share is `rate/N` and `connections/N`, the rate in proportion to
//! the connections where these do not divide evenly. All agents draw from seeds of their own, but
//! agree on the keys and their values; the keys are stored by all of them together. A latency agent
//! (`probe`) is the first one's.

mod agent;
mod agent_report;
mod carried;
mod clock;
mod coordinator;
mod door;
mod error;
mod frame;
mod handshake;
mod link;
mod message;
mod reckoning;
#[cfg(test)]
mod tests;

pub use agent::{AgentConfig, serve};
pub use agent_report::AgentReport;
pub use coordinator::{AGENTS_MAX, Coordinator, CoordinatorConfig, Fleet};
pub use error::RemoteError;
pub use handshake::{SECRET_BYTES_MIN, Secret};
pub use message::VERSION;

/// Reads `bytes` as frames of every kind of message, each to the first that is none: what a fuzz target calls.
#[doc(hidden)]
pub fn read_frames(bytes: &[u8]) {
    fn all<M: serde::de::DeserializeOwned>(mut bytes: &[u8], limit: usize) {
        while frame::read::<M>(&mut bytes, limit, None).is_ok() {}
    }
    all::<message::Challenge>(bytes, frame::HANDSHAKE_BYTES_MAX);
    all::<message::Answer>(bytes, frame::HANDSHAKE_BYTES_MAX);
    all::<message::Verdict>(bytes, frame::HANDSHAKE_BYTES_MAX);
    all::<message::ToAgent>(bytes, frame::FRAME_BYTES_MAX);
    all::<message::ToCoordinator>(bytes, frame::FRAME_BYTES_MAX);
}
