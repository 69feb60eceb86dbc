//! What is run: requests, connections, and who runs the application.

use clock::Duration;
use dataplane::ConservingConfig;

/// Longest time for which threads run before all ordinary ones.
pub(super) const RUN_MAX: Duration = Duration::from_millis(800);
/// Longest time that opening connections may take.
pub(super) const OPEN_MAX: Duration = Duration::from_secs(20);

/// Who runs the application.
#[derive(Clone, Copy, Debug)]
pub enum Scheduler {
    /// The home core.
    RunToCompletion,
    /// Any core.
    WorkConserving(ConservingConfig),
}

/// How requests come.
#[derive(Clone, Copy, Debug)]
pub enum Arrivals {
    /// As fast as they are answered: so many are outstanding on each connection, until so many were answered.
    Closed {
        /// Outstanding on a connection.
        depth: u32,
        /// In all.
        total: u64,
    },
    /// At moments that do not depend on answers, exponentially apart.
    Open {
        /// Requests per second.
        rate: f64,
        /// For how long.
        span: Duration,
        /// On a connection at a time; further ones wait at the client, and their time counts.
        depth: u32,
    },
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Who runs the application.
    pub scheduler: Scheduler,
    /// Connections.
    pub connections: u32,
    /// Whether all of them are at home at the first core, and none at the second.
    pub one_sided: bool,
    /// How requests come.
    pub arrivals: Arrivals,
    /// The mean of service times, which are exponentially distributed, in nanoseconds; 0: none.
    pub service_ns: f64,
    /// Whether the threads run before all ordinary ones while requests are answered. Only for short runs.
    pub realtime: bool,
    /// Random numbers.
    pub seed: u64,
}
