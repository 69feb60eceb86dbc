//! What a caller can ask wrongly, and what only a run can find out.

use std::ops::RangeInclusive;

/// A setting that is out of its range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{what} is {found}; allowed: {allowed}")]
pub struct Invalid {
    /// The setting.
    pub what: &'static str,
    /// What was asked for.
    pub found: String,
    /// What may be.
    pub allowed: String,
}

/// Why a run has no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunError {
    /// A setting is out of its range; nothing was run.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// Preemption costs more than the servers can give: requests pile up without bound.
    #[error(
        "{present} requests are present after {arrived} arrivals: the cost of preemption leaves too \
         little; lower the load, lengthen the quantum or lower its cost"
    )]
    Overloaded {
        /// Requests present at once.
        present: usize,
        /// Arrivals until then.
        arrived: u64,
    },
}

/// Whether a number is in its range; what is no number never is.
///
/// # Errors
/// [`Invalid`] where it is not.
pub fn check(what: &'static str, found: f64, allowed: RangeInclusive<f64>) -> Result<(), Invalid> {
    if allowed.contains(&found) {
        return Ok(());
    }
    let allowed = format!("{} to {}", allowed.start(), allowed.end());
    Err(Invalid { what, found: found.to_string(), allowed })
}
