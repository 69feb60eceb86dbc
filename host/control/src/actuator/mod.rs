//! Hands on stock Linux: elastic threads, cpusets and affinity, clocks, the background job.
//!
//! ```
//! use control::actuator::Cpuset;
//! let missing = Cpuset::find("/nonexistent".as_ref()).unwrap_err();
//! assert!(missing.to_string().starts_with("no cgroup hierarchy with cpusets (looked at /nonexistent/"));
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
mod settings;

use std::fmt::Display;
use std::path::PathBuf;

pub use affinity::Affinity;
pub use background::BackgroundJob;
pub use clock::Cpufreq;
pub use cpuset::{Cpuset, Hierarchy};
pub use settings::Settings;

use crate::sysfs::FileError;

/// Something that this machine does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {what} (looked at {}): {costs}", listed(.looked_at))]
pub struct Missing {
    /// What was looked for.
    pub what: &'static str,
    /// Where.
    pub looked_at: Vec<PathBuf>,
    /// What cannot be done without it.
    pub costs: &'static str,
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActuatorError {
    /// The machine cannot.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A file could not be used, or did not keep what was written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The system refused a call, or did something else.
    #[error("{0}")]
    Refused(String),
}

/// What the system, or a check before it, said of what was tried.
fn refused(tried: String, reason: impl Display) -> ActuatorError {
    ActuatorError::Refused(format!("{tried}: {reason}"))
}
