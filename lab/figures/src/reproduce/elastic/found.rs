//! What was found.

use load::LoadReport;
use measure::Disturbance;

use super::timeline::Swing;

/// What the daemon said of the job at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// When, by `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
    /// Its processor time so far, in seconds.
    pub cpu_s: f64,
}

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// What two threads carry, in requests per second.
    pub capacity_rps: f64,
    /// The load, in intervals.
    pub report: LoadReport,
    /// When the load's window began, by `CLOCK_MONOTONIC`, in nanoseconds: as the first step shows.
    pub began_ns: u64,
    /// What was done about it.
    pub swings: Vec<Swing>,
    /// How far the job came.
    pub progress: Vec<Progress>,
    /// When the second thread served: from, to.
    pub granted: Vec<(u64, u64)>,
    /// What others did to the processors meanwhile.
    pub disturbance: Disturbance,
}

impl Found {
    /// What the job got of a processor between two moments: 1 is all of one. None where nothing was told between them.
    pub fn job_share(&self, from_ns: u64, to_ns: u64) -> Option<f64> {
        let within = |told: &&Progress| (from_ns..to_ns).contains(&told.at_ns);
        let first = self.progress.iter().find(within)?;
        let last = self.progress.iter().rev().find(within)?;
        let over_s =
            last.at_ns.checked_sub(first.at_ns).filter(|over_ns| *over_ns > 0)? as f64 / 1e9;
        Some((last.cpu_s - first.cpu_s) / over_s)
    }
}
