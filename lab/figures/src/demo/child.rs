//! Processes that a measurement starts, and waiting for what they do.

use std::process::Child;
use std::time::{Duration, Instant};

/// A process that is killed when dropped.
#[derive(Debug)]
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // `Child` knows whether it has ended and was waited for: then nothing is killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Looks every `look` until something holds, for as long as `patience` lasts. Answers whether it does.
///
/// # Errors
/// Those of `holds`.
pub fn holds_within(
    patience: Duration,
    look: Duration,
    mut holds: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<bool> {
    let began = Instant::now();
    while !holds()? {
        if began.elapsed() > patience {
            return Ok(false);
        }
        std::thread::sleep(look);
    }
    Ok(true)
}
