//! Seeded simulation of hosts that run the real stack and dataplane (DESIGN: simulation).
//!
//! Two or more hosts, each with one or more elastic threads on virtual cores, on a network that loses,
//! doubles, reorders, corrupts and delays. One seed replays everything: each entity draws from its own
//! stream, and the digest of all frames and events tells whether two runs were the same.
//!
//! ```
//! use world::lossy::{Scenario, ScenarioConfig, replay_command, run};
//! let outcome = run(3, &ScenarioConfig::new(Scenario::Churn));
//! assert!(outcome.ok, "{}: {:?}", replay_command(3, Scenario::Churn), outcome.failure);
//! ```
//!
//! - [`host`]: elastic threads on virtual cores, on [`network`](crate::network) with faults; [`variation`]: what differs from seed to seed.
//! - [`scenario`]: workloads; [`client`]: the service that runs their scripts; [`watch`]: what must
//!   hold of all events.
//! - [`runner`]: one run, many runs, one that is interrupted, and the checks at the end.

pub mod client;
pub mod host;
pub mod runner;
pub mod scenario;
pub mod variation;
pub mod watch;

pub use crate::network::Faults;
pub use host::Steering;
pub use runner::{
    Outcome, RunStats, ScenarioConfig, replay_command, run, run_interrupted, run_many,
};
pub use scenario::Scenario;
pub use variation::{Migrations, SchedulerChoice};
