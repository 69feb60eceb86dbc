//! `tailplane dataplane`: the dataplane of the `process` domain. `tailplane run` starts it.

use std::process::ExitCode;

use service::split::dataplane;

/// Runs `tailplane dataplane`.
///
/// # Errors
/// Nobody started it who can be told how it went.
pub fn run() -> anyhow::Result<ExitCode> {
    dataplane::serve()?;
    Ok(ExitCode::SUCCESS)
}
