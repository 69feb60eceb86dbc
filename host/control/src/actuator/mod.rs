//! Hands on stock Linux: elastic threads, cpusets and affinity, clocks, the background job.
//!
//! ```
//! use control::actuator::{Executor, Recorder};
//! use control::metrics::ThreadId;
//! use control::{Decision, Outcome};
//! let mut executor = Executor::new(Recorder::default()); // no clock, no background job
//! let outcomes = executor.execute(&[Decision::Grant(ThreadId(1))]);
//! assert_eq!(outcomes, [Outcome::Granted(ThreadId(1))]);
//! assert_eq!(executor.threads().said, ["grant 1"]);
//! ```
//!
//! What all of them hold to:
//! - what a machine lacks is said ([`Missing`]: what was looked for, where, and what it costs), never played;
//! - whatever is written is read back, and a value that the system did not take is an error;
//! - everything is put back as it was found, by `restore`, or else when dropped.

mod affinity;
mod background;
mod clock;
mod cpuset;
mod executor;
mod settings;
mod threads;

use std::fmt;
use std::path::PathBuf;

pub use affinity::Affinity;
pub use background::{BackgroundJob, CgroupJob, ProcessGroupJob};
pub use clock::{ClockSetter, Cpufreq};
pub use cpuset::{Cpuset, Hierarchy};
pub use executor::Executor;
pub use settings::Settings;
pub use threads::{ElasticThreads, Recorder};

use crate::sysfs::FileError;

/// Something that this machine does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What was looked for.
    pub what: &'static str,
    /// Where.
    pub looked_at: Vec<PathBuf>,
    /// What cannot be done without it.
    pub costs: &'static str,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<String> = self.looked_at.iter().map(|p| p.display().to_string()).collect();
        write!(f, "no {} (looked at {}): {}", self.what, places.join(", "), self.costs)
    }
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActuatorError {
    /// The machine cannot.
    #[error("{0}")]
    Missing(Missing),
    /// A file could not be used, or did not keep what was written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The system refused a call, or did something else.
    #[error("{tried}: {reason}")]
    System {
        /// What was tried, of what.
        tried: String,
        /// What the system said.
        reason: String,
    },
}

impl From<Missing> for ActuatorError {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing)
    }
}
