//! What the demo is asked: for how long it measures, and within which objective.

/// The objective: p99 within 500 us (IX §5.5).
pub const SLO_P99_US: f64 = 500.0;

/// What to measure for how long.
#[derive(Clone, Copy, Debug)]
pub struct DemoConfig {
    /// Seconds of load for each system, roughly.
    pub seconds: f64,
    /// Seconds of connect-request-close for each echo server.
    pub churn_seconds: f64,
    /// Seed of arrivals and keys.
    pub seed: u64,
}

impl DemoConfig {
    /// As results are measured.
    pub const FULL: Self = Self { seconds: 10.0, churn_seconds: 5.0, seed: 1 };
}
