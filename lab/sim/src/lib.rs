//! Seeded simulation of hosts that run the real stack and dataplane (DESIGN: simulation).
//!
//! Two or more hosts, each with one or more elastic threads on virtual cores, on a network that loses,
//! doubles, reorders, corrupts and delays. One seed replays everything: each entity draws from its own
//! stream, and the digest of all frames and events tells whether two runs were the same.
//!
//! ```
//! use sim::{Scenario, ScenarioConfig, replay_command, run};
//! let outcome = run(3, &ScenarioConfig::new(Scenario::Churn));
//! assert!(outcome.ok, "{}: {:?}", replay_command(3, Scenario::Churn), outcome.failure);
//! ```
//!
//! - [`network`]: links with faults; [`port`]: a host's queue pair on it; [`host`]: elastic threads on
//!   virtual cores; [`variation`]: what differs from seed to seed.
//! - [`scenario`]: workloads; [`client`]: the service that runs their scripts; [`watch`]: what must
//!   hold of all events.
//! - [`runner`]: one run, many runs, one that is interrupted, and the checks at the end; [`pcap`]: a look at
//!   the frames.

pub mod client;
pub mod dice;
pub mod host;
pub mod network;
pub mod pcap;
pub mod port;
pub mod runner;
pub mod scenario;
pub mod variation;
pub mod watch;

pub use host::Steering;
pub use network::Faults;
pub use runner::{
    Outcome, RunStats, ScenarioConfig, replay_command, run, run_interrupted, run_many,
};
pub use scenario::Scenario;
pub use variation::{Migrations, SchedulerChoice};
