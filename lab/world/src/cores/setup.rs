//! What is simulated: the server, its clients, and how much of it.

use std::sync::Arc;

use queueing::{Law, check};

use crate::cores::costs::Costs;
use crate::cores::error::WorldError;
use crate::cores::replay::Replay;

/// Most cores: an elastic thread's number is one byte, and flow groups are dealt out over them.
pub const CORES_MAX: usize = 128;
/// Most connections: the client's ephemeral ports.
pub const CONNECTIONS_MAX: usize = 32_000;

/// A server of several cores and its clients.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// Cores, each with an elastic thread and a queue pair.
    pub cores: usize,
    /// B: packets that one cycle takes at most (IX §3).
    pub batch: usize,
    /// What each step takes.
    pub costs: Costs,
    /// Connections of the clients (ZygOS §3.2: 2,752).
    pub connections: usize,
    /// Requests that may be unanswered on one connection (ZygOS §6.2: 4).
    pub pipeline: usize,
    /// Requests go to each core with the same chance, however many connections are at home there. False:
    /// to each connection, as on a wire, where hashing leaves some cores more of them than others.
    pub balanced: bool,
    /// From the client to the server or back, in nanoseconds: wire and switch. The clients take no time.
    pub wire_ns: u64,
    /// How service times are distributed.
    pub law: Law,
    /// S, the mean service time, in microseconds.
    pub mean_us: f64,
    /// What happened to something real, to be compared with it. Requests are not drawn then; a run begins
    /// without others before and ends with the last.
    pub replay: Option<Arc<Replay>>,
    /// Idle cores poll for so long, in nanoseconds, and then sleep until woken. None: they poll for ever.
    pub sleep_after_ns: Option<u64>,
    /// A controller that cannot decide moves some flow groups of some core to another one (IX §4.5), on
    /// average after so many nanoseconds, again and again. None: flow groups stay.
    pub move_every_ns: Option<u64>,
}

impl Setup {
    /// ZygOS's server and clients (§3.2, §3.3): 16 cores, batching off, 2,752 connections; exponential
    /// service times with a mean of `mean_us`; a wire of 2 us each way.
    pub fn zygos(costs: Costs, law: Law, mean_us: f64) -> Self {
        Self {
            cores: 16,
            batch: 1,
            costs,
            connections: 2_752,
            pipeline: 4,
            balanced: false,
            wire_ns: 2_000,
            law,
            mean_us,
            replay: None,
            sleep_after_ns: None,
            move_every_ns: None,
        }
    }

    /// Requests in a second at `load`: the share of what all cores could serve if a request cost no more
    /// than its service time, as on the axes of ZygOS Figure 6.
    pub fn rate(&self, load: f64) -> f64 {
        load * self.cores as f64 / self.mean_us * 1e6
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// The first that is out of its range.
    pub fn validate(&self) -> Result<(), WorldError> {
        self.costs.validate()?;
        check("number of cores", self.cores as f64, 1.0..=CORES_MAX as f64)?;
        check("batch bound", self.batch as f64, 1.0..=1024.0)?;
        check("connections", self.connections as f64, 1.0..=CONNECTIONS_MAX as f64)?;
        check("pipeline", self.pipeline as f64, 1.0..=256.0)?;
        check("wire delay", self.wire_ns as f64, 0.0..=1e9)?;
        self.replay.as_ref().map_or(Ok(()), |replay| replay.validate(self.cores))?;
        check("mean service time", self.mean_us, 0.001..=1e5)?;
        check("time between migrations", self.move_every_ns.unwrap_or(1) as f64, 1.0..=1e12)?;
        Ok(check("time before sleep", self.sleep_after_ns.unwrap_or(0) as f64, 0.0..=1e12)?)
    }
}

/// One load, and how long it is watched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// See [`Setup::rate`].
    pub load: f64,
    /// Requests that count.
    pub requests: u64,
    /// Requests before them.
    pub warmup: u64,
    /// All draws follow from it.
    pub seed: u64,
    /// The latency that a share of the requests may not exceed, in microseconds, and that share.
    pub objective: Option<Objective>,
}

/// A service-level objective (ZygOS §3.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Objective {
    /// The bound, in microseconds.
    pub bound_us: f64,
    /// The share that has to keep it: 0.99 for the 99th percentile.
    pub share: f64,
    /// Give the run up as soon as it cannot be met any more.
    pub give_up: bool,
}

impl Run {
    /// A run of so many requests after a tenth as many.
    pub fn new(load: f64, requests: u64) -> Self {
        Self { load, requests, warmup: requests / 10, seed: 1, objective: None }
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// The first that is out of its range.
    pub fn validate(&self) -> Result<(), WorldError> {
        check("load", self.load, 1e-6..=4.0)?;
        check("requests", self.requests as f64, 1.0..=1e12)?;
        check("requests before", self.warmup as f64, 0.0..=1e12)?;
        if let Some(objective) = self.objective {
            check("latency bound", objective.bound_us, 0.0..=1e9)?;
            check("share of the requests", objective.share, 0.0..=1.0)?;
        }
        Ok(())
    }
}
