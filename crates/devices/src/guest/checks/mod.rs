//! The checks, by theme. Each returns what it found; an error is a failure with its text.

pub mod domains;
pub mod faults;
pub mod lifecycle;
pub mod readme;
pub mod start;
pub mod steering;
pub mod traffic;

use anyhow::bail;

use super::client;
use crate::protocol::Outcome;

/// A check that holds, with a value.
fn passed(value: impl Into<String>) -> anyhow::Result<Outcome> {
    Ok(Outcome::Passed(value.into()))
}

/// What this driver, mode or kernel cannot do.
fn not_possible(reason: impl Into<String>) -> anyhow::Result<Outcome> {
    Ok(Outcome::NotPossible(reason.into()))
}

/// Expects `count` connections at once to be answered.
fn expect_answers(count: usize) -> anyhow::Result<()> {
    let (good, error) = client::answered(count);
    if good < count {
        bail!(
            "{good} of {count} connections answered; the first error: {}",
            error.unwrap_or_default()
        );
    }
    Ok(())
}
