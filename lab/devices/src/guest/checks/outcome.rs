//! The outcomes that checks return.

use crate::protocol::Outcome;

/// A check that holds, with a value.
pub fn passed(value: impl Into<String>) -> anyhow::Result<Outcome> {
    Ok(Outcome::Passed(value.into()))
}

/// What this driver, mode or kernel cannot do.
pub fn not_possible(reason: impl Into<String>) -> anyhow::Result<Outcome> {
    Ok(Outcome::NotPossible(reason.into()))
}
