//! What was found, or why nothing was.

use measure::WindowError;
use nic::shm::ShmError;
use serde::Serialize;

use super::config::OPEN_MAX;
use crate::cores::{Interruption, Planned};

/// What was found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Found {
    /// Requests answered.
    pub answered: u64,
    /// Requests that were due and not answered in time.
    pub left: u64,
    /// Seconds in which they were.
    pub seconds: f64,
    /// Median, and 99th percentile, of the time from when the client made a request until the service had served
    /// it, in microseconds.
    pub p50_us: f64,
    /// As above.
    pub p99_us: f64,
    /// The same of the time from when the request was on the wire.
    pub served_us: [f64; 2],
    /// What was asked in an open loop, by the moment at which it was on the wire.
    #[serde(skip)]
    pub asked: Vec<Planned>,
    /// When elastic threads were not running: because of the client, or of anybody else; by their moment.
    #[serde(skip)]
    pub interruptions: Vec<Interruption>,
    /// Mean of the service times that were asked for, in microseconds.
    pub service_us: f64,
    /// The client's time for each request, in microseconds: the second core's thread has that much less.
    pub client_us: f64,
    /// Requests that either side saw out of order, or that were answered with something else.
    pub out_of_order: u64,
    /// Calls that were refused or failed.
    pub failures: u64,
    /// Turns that were made, stolen, and network layers that were run for another core, over both cores.
    pub turns: u64,
    /// As above.
    pub stolen: u64,
    /// As above.
    pub borrowed: u64,
}

/// Why a run gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum TwoCoresError {
    /// The shared memory.
    #[error("cannot join client and server: {0}")]
    Memory(#[from] ShmError),
    /// There must be two.
    #[error("this needs processors 0 and 1, and may not run on both: {0}")]
    Processors(WindowError),
    /// Privileges, mostly.
    #[error("cannot run before other threads: {0}")]
    Priority(String),
    /// The client gave up.
    #[error("{open} of {wanted} connections opened within {} s", OPEN_MAX.as_secs())]
    Connections {
        /// Connections that stand.
        open: u32,
        /// That were asked for.
        wanted: u32,
    },
    /// A thread panicked, which is a bug.
    #[error("a thread of the run panicked")]
    Panicked,
}
