//! The queueing models of ZygOS §2.3: simulated, and in closed form where there is one.
//!
//! Which model answers which question:
//!
//! - *What can any scheduler reach?* Centralized FCFS (M/G/n): no server idles while a request waits.
//! - *What does it cost to pin connections to cores?* Partitioned FCFS (n × M/G/1), against it.
//! - *What do threads on a time-sharing kernel give?* Processor sharing, centralized or partitioned.
//! - *Is preemption worth its price?* Round robin with a quantum and a cost, between FCFS and PS.
//! - *How far is a measured system from all that?* [`tail_curve`], with its overhead and network.
//!
//! ```
//! use queueing::{Law, Model, Run, Service, simulate, theory};
//! let run = Run { load: 0.7, jobs: 400_000, ..Run::new(Service::unit(Law::Exponential)) };
//! let [partitioned, centralized, ..] = Model::zygos(16);
//! let p99 = simulate(&centralized, &run)?.sojourn.quantile(0.99);
//! assert!((p99 / theory::mmn_sojourn_quantile(16, 0.7, 0.99) - 1.0).abs() < 0.02);
//! assert!(simulate(&partitioned, &run)?.sojourn.quantile(0.99) > 3.0 * p99);
//! # Ok::<(), queueing::RunError>(())
//! ```
//!
//! A run is a function of its settings and its seed; one core simulates 15 to 60 million requests a
//! second under FCFS. All models and loads of a seed see the same requests, so that differences
//! between them are not noise. [`Replications`] of different seeds say how far a result can be
//! trusted; the closed forms of [`theory`] are what the simulations are tested against.

mod curve;
mod error;
mod fcfs;
mod law;
mod model;
mod observer;
mod replicate;
mod requests;
mod round_robin;
mod sharing;
mod simulate;
mod station;
mod tail;
pub mod theory;
mod trace;

pub use curve::{CurvePoint, TailCurve, tail_curve};
pub use error::{Invalid, RunError, check};
pub use law::{Law, Mode, Service};
pub use measure::MeanInterval;
pub use model::{Discipline, Model, Queues, SERVERS_MAX};
pub use observer::{Departure, Exceeding, Observer, Tally, Window};
pub use replicate::{
    LOAD_STEP, Replications, estimate, highest_load, max_load_at_slo, mean_interval, replicate,
};
pub use requests::replication_seed;
pub use simulate::{JOBS_MAX, LOAD_MAX, PRESENT_MAX, Run, observe, simulate};
pub use tail::Tail;
pub use trace::{TRACE_MAX, Trace, read_times};
