//! Results as JSON, where `--json` asks for them.

use std::path::{Path, PathBuf};

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

/// Writes a value as JSON where a path is given, else prints `text`.
///
/// # Errors
/// As [`write_json`].
pub fn write_or_print(
    json: Option<&PathBuf>,
    value: &impl Serialize,
    text: &str,
) -> anyhow::Result<()> {
    match json {
        Some(path) => write_json(path, value),
        None => {
            print!("{text}");
            Ok(())
        }
    }
}
