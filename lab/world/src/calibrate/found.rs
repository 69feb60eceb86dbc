//! How much is measured, and what of it was found, or why nothing.

use std::time::Duration;

use measure::stats::Summary;
use measure::{Kept, Place, Plan, QUIET, WindowError};
use serde::Serialize;

use crate::cores::Costs;

/// Of the order in which measurements take turns.
const SEED: u64 = 1;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Quiet windows of each measurement.
    pub windows: usize,
    /// The length of each.
    pub window: Duration,
    /// What passes between two, for the rest of the machine.
    pub pause: Duration,
}

impl Effort {
    /// A few seconds.
    pub const QUICK: Self =
        Self { windows: 3, window: Duration::from_millis(8), pause: Duration::from_millis(10) };
    /// Half a minute.
    pub const FULL: Self =
        Self { windows: 15, window: Duration::from_millis(25), pause: Duration::from_millis(30) };

    pub(super) fn plan(&self) -> Plan {
        Plan {
            windows: self.windows,
            tries: 4 * self.windows,
            pause: self.pause,
            quiet: QUIET,
            seed: SEED,
        }
    }
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// The threads could not run.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// The operating system refused something.
    #[error("{tried} failed: {source}")]
    Os {
        /// What was tried.
        tried: &'static str,
        /// What it said.
        source: std::io::Error,
    },
    /// The wire between the two dataplanes could not be made.
    #[error(transparent)]
    Shm(#[from] nic::shm::ShmError),
    /// A measurement gave no number at all.
    #[error(
        "{what} gave no sample in {windows} windows; run it again on a machine that is less busy"
    )]
    Nothing {
        /// Which measurement.
        what: &'static str,
        /// Windows that were tried.
        windows: usize,
    },
}

/// One constant as it was measured, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// What it is.
    pub name: String,
    /// The median of the windows' medians.
    pub median_ns: f64,
    /// The least and the greatest window.
    pub low_ns: f64,
    /// See [`low_ns`](Self::low_ns).
    pub high_ns: f64,
    /// Windows that count, and those that were thrown away since something disturbed them.
    pub windows: usize,
    /// See [`windows`](Self::windows).
    pub discarded: usize,
    /// No window was quiet: these are what was found all the same.
    pub disturbed: bool,
}

impl Found {
    /// Of one number of each window.
    pub(super) fn of<T>(
        name: impl Into<String>,
        what: &'static str,
        kept: &Kept<T>,
        number: impl FnMut(&T) -> f64,
    ) -> Result<Self, CalibrateError> {
        let Summary { n, min, median, max, .. } = Summary::of(&kept.values(number))
            .ok_or(CalibrateError::Nothing { what, windows: kept.found.len() + kept.discarded })?;
        Ok(Self {
            name: name.into(),
            median_ns: median,
            low_ns: min,
            high_ns: max,
            windows: n,
            discarded: kept.discarded,
            disturbed: kept.disturbed.is_some(),
        })
    }
}

/// How the constants are measured, and what is known so far.
pub(super) struct Measuring<'a> {
    pub effort: Effort,
    pub place: Place<'a>,
    pub costs: Costs,
    pub found: Vec<Found>,
}

impl Measuring<'_> {
    /// Adds what one measurement found. Returns its median.
    pub fn add(&mut self, name: &'static str, kept: &Kept<f64>) -> Result<f64, CalibrateError> {
        let one = Found::of(name, name, kept, |ns| *ns)?;
        let median_ns = one.median_ns;
        self.found.push(one);
        Ok(median_ns)
    }
}
