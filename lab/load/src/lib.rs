//! The load generator: open and closed loop, over kernel sockets or the dataplane.
//!
//! A [`LoadConfig`] says what is asked and when; [`kernel::run`] carries it over kernel sockets and
//! returns a [`LoadReport`]. The generator itself ([`Engine`], [`ChurnEngine`]) knows neither
//! sockets nor clocks, so that the dataplane carries the very same one.
//!
//! ```no_run
//! use load::{KernelConfig, LoadConfig, Mode, WorkloadConfig, kernel};
//! let mut config = LoadConfig::new(WorkloadConfig::usr());
//! config.mode = Mode::open(50_000.0);
//! config.connections = 32;
//! let transport = KernelConfig::new("10.0.0.2:11211".parse()?);
//! let report = kernel::run(&config, &transport)?;
//! print!("{}", report.to_table());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Latency counts from the time at which a request was *meant* to be sent, so that a slow service
//! cannot slow down its own measurement, and every request of the window has an entry, answered or
//! not. A result that the generator itself has spoiled says so ([`LoadReport::valid`]).

pub mod dataplane;
pub mod kernel;
pub mod remote;

mod agent;
mod arrival;
mod churn;
mod codec;
mod config;
mod connection;
mod course;
mod engine;
mod error;
mod gap_check;
mod generator;
mod hdr_log;
mod latency;
mod measurement;
mod pattern;
mod probe;
mod rendezvous;
mod report;
mod search;
mod series;
mod service_times;
mod setting;
mod sizes;
#[cfg(test)]
#[path = "tests/peers.rs"]
mod test_peers;
mod usage;
mod workload;

pub use arrival::{ArrivalProcess, Arrivals, BURST_MAX};
pub use churn::{ChurnEngine, Dialer};
pub use codec::{Outcome, Progress, ResponseParser, Violation};
pub use config::{CloseMode, LoadConfig, Mode, OPEN_DEPTH_DEFAULT};
pub use connection::Sender;
pub use course::{Phase, Poll};
pub use engine::{BACKLOG_MAX, Engine};
pub use error::LoadError;
pub use gap_check::ArrivalCheck;
pub use kernel::{KernelConfig, Wait};
pub use latency::LATENCY_MAX_NS;
pub use measurement::{Counts, Measurement};
pub use pattern::{Pattern, PatternShape};
pub use probe::{ProbeConfig, ProbeReport};
pub use report::{Conditions, Fault, LoadReport, Sheet};
pub use search::{
    Limit, Percentile, Probe, SearchConfig, SearchResult, Verdict, best_windows, judge,
    throughput_at_slo,
};
pub use series::SeriesPoint;
pub use service_times::{SERVICE_US_MAX, ServiceTimes};
pub use setting::{CONNECTIONS_MAX, ConfigError, DEPTH_MAX, PERIOD_MAX_MS, RATE_MAX_RPS};
pub use sizes::SizeDistribution;
pub use workload::{
    KEY_BYTES_MAX, KEYS_MAX, Request, RequestKind, VALUE_BYTES_MAX, Workload, WorkloadConfig,
};
