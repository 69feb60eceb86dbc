//! What was measured of memcached's protocol: one curve for each server and workload.

use load::Probe;

/// The load at which the servers' processor time is compared, in requests per second.
pub const CPU_RPS: f64 = 80_000.0;

/// One server under one workload.
pub struct Curve {
    pub workload: &'static str,
    pub server: &'static str,
    pub probes: Vec<Probe>,
    /// Throughput at the objective, and p99 of one request at a time, in us.
    pub at_slo: Option<f64>,
    pub unloaded_p99_us: Vec<f64>,
    /// Processor time of the server for one request at [`CPU_RPS`], in us.
    pub cpu_us: Vec<f64>,
}

/// All of them.
pub type Curves = Vec<Curve>;
