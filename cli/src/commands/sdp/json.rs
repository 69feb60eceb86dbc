//! Results as JSON, where `--json` asks for them.

use std::path::Path;

use anyhow::Context;
use serde::Serialize;

/// Writes a value to a file, or to standard output where the path is `-`.
///
/// # Errors
/// The file cannot be written.
pub fn write_json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    if path == Path::new("-") {
        print!("{text}");
        return Ok(());
    }
    std::fs::write(path, text).with_context(|| format!("cannot write '{}'", path.display()))
}
