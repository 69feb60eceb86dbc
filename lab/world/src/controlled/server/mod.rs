//! The server of IX's figures, simulated: a load pattern of minutes in seconds, for any controller.
//!
//! ```
//! use world::controlled::server::{Fixed, RunConfig, ServerModel, simulate};
//! let model = ServerModel::ix();
//! let mut all = Fixed::new(&model, model.machine().maximum());
//! let run = RunConfig { duration_s: 2, ..RunConfig::at_hz(10, 1) };
//! let record = simulate(&model, &|_| 3_000_000.0, &mut all, &run)?;
//! assert!(record.seconds.iter().all(|second| second.p99_us < model.slo_us));
//! # Ok::<(), world::controlled::server::ModelError>(())
//! ```
//!
//! Each elastic thread is a FCFS server (IX §4.6). Its queue is reflected Brownian motion: drift and variance
//! are those of Poisson arrivals and of the service times, and the reflection at the empty queue is exact, so
//! that the stationary distribution does not depend on the length of a slice ([`queue`]). Around it stand what
//! takes time in a real server: migrations of flow groups with Table V's latencies, one after the other, whose
//! packets are deferred; clocks and threads that do not change at once; connections that hash unevenly.
//!
//! Every number is in `ix.toml`, with its source.

mod cause;
mod cost;
mod elsewhere;
mod error;
mod executor;
mod latency;
mod meter;
mod model;
pub mod pattern;
mod power;
pub mod queue;
mod run;
#[cfg(test)]
mod tests;

pub use cause::{Cause, Causes};
pub use cost::MigrationCost;
pub use error::ModelError;
pub use executor::{Controller, Fixed};
pub use latency::Latencies;
pub use meter::Meter;
pub use model::{Reconfiguration, ServerModel};
pub use pattern::Pattern;
pub use power::Power;
pub(crate) use run::group_weights;
pub use run::{Record, RunConfig, Second, simulate};
