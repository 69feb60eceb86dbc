//! A service on the kernel's own stack (ZygOS §3.3), as queueing models with measured costs.
//!
//! - *partitioned*: each thread has its own connections: n x M/G/1 in the order of arrival, each request
//!   with what the kernel takes for it.
//! - *floating*: all threads poll one pool of connections: M/G/n, each request with the same and with what
//!   sharing costs.
//!
//! ```
//! use world::cores::{Costs, linux};
//! use queueing::{Law, Replications};
//! let costs = Costs::sandy_bridge_dune();
//! let runs = Replications { count: 2, ..Replications::new().of_jobs(20_000) };
//! let load = |system: linux::System| {
//!     linux::max_load_at_slo(&system.curve(&costs, 16, Law::Exponential, 100.0, 0.0), 10.0, &runs)
//! };
//! assert!(load(linux::System::Floating)?.mean > load(linux::System::Partitioned)?.mean);
//! # Ok::<(), queueing::RunError>(())
//! ```
//!
//! They are upper bounds of what the kernel reaches: softirq work that lands on another core, wake-ups
//! beyond the first, and the scheduler's own noise are not in them.

use queueing::{Law, MeanInterval, Model, Replications, RunError, TailCurve};

use crate::cores::costs::Costs;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Linux-partitioned.
    Partitioned,
    /// Linux-floating.
    Floating,
}

impl System {
    /// As the paper writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Partitioned => "Linux-partitioned",
            Self::Floating => "Linux-floating",
        }
    }

    /// The system's p99 on `cores` cores, all times in microseconds; `wire_us` is one way. A thread that
    /// is idle sleeps: its wake-up is in every latency, and nobody else waits for it.
    pub fn curve(
        self,
        costs: &Costs,
        cores: u32,
        law: Law,
        mean_us: f64,
        wire_us: f64,
    ) -> TailCurve {
        let [partitioned, centralized, ..] = Model::zygos(cores);
        let linux = &costs.linux;
        let (model, overhead_ns) = match self {
            Self::Partitioned => (partitioned, linux.request),
            Self::Floating => (centralized, linux.request + linux.floating),
        };
        TailCurve {
            model,
            law,
            mean: mean_us,
            overhead: overhead_ns / 1e3,
            network: 2.0 * wire_us + linux.wake / 1e3,
            share: 0.99,
        }
    }
}

/// The highest load, of what the work alone would allow, at which the share of the requests takes no
/// longer than `bound` mean service times, network and all.
///
/// # Errors
/// A setting out of its range.
pub fn max_load_at_slo(
    curve: &TailCurve,
    bound: f64,
    replications: &Replications,
) -> Result<MeanInterval, RunError> {
    // What the network takes is not left for the servers.
    let left = bound - curve.network / curve.mean;
    let service = curve.service();
    let found = queueing::max_load_at_slo(
        &curve.model,
        &service,
        curve.share,
        left.max(0.0),
        replications,
    )?;
    Ok(found.map(|taken| taken * service.mean / service.total_mean()))
}
