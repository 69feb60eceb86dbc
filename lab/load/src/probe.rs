//! What the latency agent is asked to do, and what it measured.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::setting::{CONNECTIONS_MAX, ConfigError, RATE_MAX_RPS, check_range};

/// The agent's connections unless told otherwise.
const CONNECTIONS_DEFAULT: u32 = 32;
/// The agent's requests per second unless told otherwise: a thousand samples a second disturb no
/// service that is worth measuring.
const RPS_DEFAULT: f64 = 1_000.0;

/// What the agent does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProbeConfig {
    /// Its connections, beside those of the load.
    pub connections: u32,
    /// Its requests per second; zero: each as soon as the one before is answered.
    pub rps: f64,
}

impl Default for ProbeConfig {
    fn default() -> Self {
        Self { connections: CONNECTIONS_DEFAULT, rps: RPS_DEFAULT }
    }
}

impl ProbeConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_range("probe connections", self.connections, 1, CONNECTIONS_MAX)?;
        check_range("probe rate", self.rps, 0.0, RATE_MAX_RPS)
    }
}

/// What the agent measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProbeMeasured<H = Histogram<u64>> {
    /// Requests sent in the window.
    pub requests: u64,
    /// Of those, the ones that were not, or wrongly, answered.
    pub failed: u64,
    /// From sending to the response's last byte, in nanoseconds; requests sent in the window.
    pub latency_ns: H,
}

impl ProbeMeasured {
    /// Adds what another agent measured.
    pub fn merge(&mut self, other: &Self) {
        self.latency_ns += &other.latency_ns;
        self.requests += other.requests;
        self.failed += other.failed;
    }
}

/// What the agent measured, for the report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// Its connections.
    pub connections: u32,
    /// Its requests in the window.
    pub requests: u64,
    /// Of those, the ones that were not, or wrongly, answered.
    pub failed: u64,
    /// Median latency.
    pub p50_us: f64,
    /// 90th percentile of the latency.
    pub p90_us: f64,
    /// 99th percentile of the latency.
    pub p99_us: f64,
    /// 99.9th percentile of the latency.
    pub p999_us: f64,
    /// Longest latency.
    pub max_us: f64,
    /// Mean latency.
    pub mean_us: f64,
}

impl ProbeReport {
    /// The report of an agent with `config`.
    pub(crate) fn new(config: &ProbeConfig, measured: &ProbeMeasured) -> Self {
        let latency = &measured.latency_ns;
        let at = |quantile| latency.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            connections: config.connections,
            requests: measured.requests,
            failed: measured.failed,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: latency.max() as f64 / 1e3,
            mean_us: latency.mean() / 1e3,
        }
    }
}
