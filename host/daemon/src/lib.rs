//! `tailplaned`, the daemon of the control plane (IX §4.6, §5.4): services started and taken over, cores granted and
//! taken by a policy, clocks and background jobs with them, and a control socket and metrics for people.
//!
//! ```text
//!  services' control sockets            Manager, on one thread                      Front, on another
//!  and segments          <--- Link ---  a Service each: Lifecycle, process,
//!  processes             <--- World --- Governor (control loop, executor)  <-- commands, answers, events, snapshots -->
//!  sysfs, control groups <-------------                                             control socket, metrics
//! ```
//!
//! - [`Config`]: the daemon's file. The `[control]` table of a service's is the crate `configfile`'s.
//! - [`Manager`]: the logic, with time and the outside ([`World`], [`Link`]) as parameters: `daemon` is tested without
//!   a service, a socket or a privilege.
//! - [`Lifecycle`], [`Held`]: how services start, end and are never mistaken for others.
//! - What is true lives in the services: homes of flow groups and states of threads are in their segments. The daemon may
//!   be killed at any moment; the next one takes over what it finds.

mod background;
mod bell;
mod check;
mod clocks;
mod commands;
mod config;
mod connection;
mod desk;
mod elastic;
mod events;
mod front;
mod governor;
mod lifecycle;
mod link;
mod listen;
mod logging;
mod machine;
mod manager;
#[cfg(test)]
mod manager_tests;
pub mod metrics;
mod notify;
mod placement;
mod policies;
mod process;
mod records;
mod run;
mod service;
mod status;
mod stream;
#[cfg(test)]
mod tests {
    pub mod fake;
}
mod unsafe_peer;
mod unsafe_session;
mod users;
pub mod varlink;
mod world;

pub use check::{Found, check};
pub use clocks::Clocks;
pub use commands::{Answered, Command, Failure, PolicyChange, What};
pub use config::{
    CONFIG_PATH, Config, Listen, LogConfig, LogFormat, LogLevel, SupervisionConfig, Who,
};
pub use connection::Connection;
pub use events::{Event, Events, Severity};
pub use governor::Facts;
pub use lifecycle::{Act, Lifecycle};
pub use link::{Gone, Link};
pub use manager::{Manager, SERVICES_MAX};
pub use process::{Ended, Held, Identity, Process};
pub use records::Records;
pub use run::run;
pub use status::{ServiceStatus, Snapshot};
pub use world::{Launch, Reached, World};
