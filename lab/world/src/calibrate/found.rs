//! How much is measured, and what of it was found, or why nothing.

use std::time::Duration;

use notify::WindowError;
use notify::contest::{Kept, Plan};
use notify::window::STALL_MAX_NS;

use super::fit;

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
            stall_max_ns: STALL_MAX_NS,
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
#[derive(Debug, Clone, PartialEq)]
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
    /// Of the numbers that each window gave.
    pub(super) fn of(
        name: impl Into<String>,
        what: &'static str,
        kept: &Kept<f64>,
    ) -> Result<Self, CalibrateError> {
        let mut values: Vec<f64> = kept.found.iter().copied().filter(|ns| ns.is_finite()).collect();
        let median_ns = fit::median(&mut values)
            .ok_or(CalibrateError::Nothing { what, windows: kept.found.len() + kept.discarded })?;
        Ok(Self {
            name: name.into(),
            median_ns,
            low_ns: values.first().copied().unwrap_or(median_ns),
            high_ns: values.last().copied().unwrap_or(median_ns),
            windows: values.len(),
            discarded: kept.discarded,
            disturbed: kept.disturbed.is_some(),
        })
    }
}
