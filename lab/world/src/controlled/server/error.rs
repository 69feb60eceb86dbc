//! Why a model, or a run of it, cannot be used.

use control::MachineError;

/// Why a model cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// It is no TOML, or not all of the parameters, or others.
    #[error("the server's parameters cannot be read: {0}")]
    Syntax(String),
    /// The dimensions.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A parameter that no server has, or a run that cannot be.
    #[error("{what} is {found}; allowed: {allowed}")]
    Range {
        /// Which.
        what: &'static str,
        /// What was found.
        found: f64,
        /// What may be.
        allowed: &'static str,
    },
}

/// Whether a number is in its range; what is no number never is.
pub(super) fn check(
    what: &'static str,
    found: f64,
    low: f64,
    high: f64,
    allowed: &'static str,
) -> Result<(), ModelError> {
    let fits = (low..=high).contains(&found);
    if fits { Ok(()) } else { Err(ModelError::Range { what, found, allowed }) }
}
