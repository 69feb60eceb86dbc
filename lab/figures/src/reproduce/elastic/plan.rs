//! What to do, and how the service is governed meanwhile.

/// Microseconds that a request takes: so long that generator and daemon, on the same two processors, take little of them,
/// and 90 % of what two threads carry is too much for one.
pub const REQUEST_US: f64 = 500.0;
/// Low and high load, as shares of what two threads carry.
pub const SHARES: [f64; 2] = [0.1, 0.9];

/// How the service is governed.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// What results call it.
    pub name: &'static str,
    /// Its lines in the service's `[control]` table.
    pub table: &'static str,
    /// What a packet may wait, in microseconds: one that waits longer is a violation.
    pub bound_us: f64,
    /// The service's scheduler.
    pub scheduler: &'static str,
}

/// Our own: a thousand turns a second, ahead of the load.
pub const AHEAD: Policy = Policy {
    name: "latency target, 1 kHz",
    table: "policy = \"latency-target\"\nover = \"consolidation\"\nslo_us = 6000\nfloor_us = 700\nperiod_ms = 1\n",
    bound_us: 2_500.0,
    scheduler: "work-conserving",
};

/// As in the paper: ten turns a second.
pub const PAPER: Policy = Policy {
    name: "consolidation, 10 Hz",
    table: "policy = \"consolidation\"\nslo_us = 2500\nperiod_ms = 100\n",
    bound_us: 2_500.0,
    scheduler: "run-to-completion",
};

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Who decides.
    pub policy: Policy,
    /// From low to high load and back, so many times.
    pub swings: u32,
    /// Each takes so long: half of it at the high load.
    pub period_ms: u64,
    /// Of the arrivals.
    pub seed: u64,
}
