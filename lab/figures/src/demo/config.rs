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

/// What the demo says while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News<'a> {
    /// A step begins: one of [`STEPS`].
    Step(&'a str),
    /// What the step at hand does.
    Detail(&'a str),
    /// A first result.
    Found(&'a str),
}

/// Steps of a demo: the bound twice, four of each of three servers, the echo's windows, sockperf's, and what opens and
/// closes connections.
pub const STEPS: u64 = 2 + 3 * 4 + 2 * (super::echo::ROUNDS + super::sockperf::ROUNDS) as u64 + 3;

/// Hears how far the demo is.
pub type Progress<'a> = &'a mut dyn FnMut(News<'_>);
