//! N virtual cores that run the real elastic threads and the real stack, on a virtual clock.
//!
//! What a core does is what `dataplane` and `stack` do, packet by packet; how long it takes is what a cost
//! model says ([`Costs`]), measured on the machine at hand (`tailplane calibrate`) or taken from the papers.
//! So a server of sixteen cores can be watched on a machine of two, and one seed replays one run.
//!
//! ```
//! use world::cores::{Costs, Run, RunToCompletion, Setup, simulate};
//! use queueing::Law;
//! let costs = Costs::sandy_bridge_dune();
//! let setup = Setup { cores: 4, connections: 200, ..Setup::zygos(costs, Law::Exponential, 10.0) };
//! let outcome = simulate(&RunToCompletion, &setup, &Run::new(0.3, 10_000))?;
//! // What a request cost is what the cost model says of one that has a cycle for itself.
//! assert!((outcome.overhead_ns() - setup.costs.per_request(1.0)).abs() < 500.0);
//! # Ok::<(), world::cores::WorldError>(())
//! ```
//!
//! - [`Scheduler`]: what the cores run; [`RunToCompletion`] is IX. Any implementor of
//!   `dataplane::Elastic` fits.
//! - [`Setup`] and [`Run`]: the server, its clients, one load. [`simulate`] answers an [`Outcome`].
//! - [`max_load_at_slo`]: the metric of ZygOS §3.1.
//! - [`govern`]: a load that changes, and the control loop that grants threads, parks them and moves flow groups.
//! - [`linux`]: what a service on the kernel's own stack would reach, as queueing models with its costs.
//!
//! Not simulated: caches (a line that moves has a price, its absence has none), the memory bandwidth that
//! cores share, hyperthreads, loss on the wire, and the interruption of an application by a kick.

pub(crate) mod app;
pub(crate) mod client;
mod core;
mod costs;
mod error;
mod governor;
pub mod linux;
mod moves;
mod outcome;
mod pattern;
mod replay;
mod scheduler;
mod search;
mod setup;
mod world;

pub use core::{Budget, Counts, Nap};
pub use costs::{COST_NS_MAX, Costs, CostsError, LinuxCosts};
pub use error::WorldError;
pub use governor::Governance;
pub use outcome::Outcome;
pub use replay::{Interruption, Planned, Replay};
pub use scheduler::{CoreParts, Looks, ReadySet, RunToCompletion, Scheduler, WorkConserving};
pub use search::{Search, max_load_at_slo};
pub use setup::{CONNECTIONS_MAX, CORES_MAX, Objective, Run, Setup};
pub use world::{govern, simulate};
