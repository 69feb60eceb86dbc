//! One agent's part of a report.

use serde::{Deserialize, Serialize};

/// One agent's part of a run, for the report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentReport {
    /// What it is called.
    pub name: String,
    /// Its machine.
    pub host: String,
    /// Its address, as the coordinator saw it.
    pub address: String,
    /// Its share of the connections.
    pub connections: u32,
    /// Its share of the load that was asked for, in requests per second.
    pub offered_rps: Option<f64>,
    /// Its responses without error per second of the window.
    pub achieved_rps: f64,
    /// Its requests of the window.
    pub requests: u64,
    /// Its errors.
    pub errors: u64,
    /// Median latency of its requests.
    pub p50_us: f64,
    /// 99th percentile of the same.
    pub p99_us: f64,
    /// Share of its requests that were sent too late.
    pub late_share: f64,
    /// 99th percentile of its lateness.
    pub lag_p99_us: f64,
    /// By how much its clock may have been misjudged at the start.
    pub clock_bound_us: f64,
    /// Cores that its threads are pinned to.
    pub cores: Vec<usize>,
    /// Kernel release of its machine.
    pub kernel: String,
    /// Processor of its machine.
    pub processor: String,
    /// Whether its result may be used.
    pub valid: bool,
    /// Why not.
    pub invalid_reason: Option<String>,
    /// Whether it was lost: nothing of it is in the result.
    pub lost: bool,
}
