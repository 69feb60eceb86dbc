//! What the configuration files of `tailplane run`, `tailplaned` and the gateway have in common: how a file is read, how a
//! value is checked and refused, and the `[control]` table, which the service and the daemon both read.
//!
//! ```
//! let error = configfile::in_range("tcp.backlog", 0, 1, 4096).unwrap_err().to_string();
//! assert_eq!(error, "`tcp.backlog` is 0; allowed: 1 to 4096");
//! let error = configfile::network("network.address", "10.0.0.2").unwrap_err().to_string();
//! assert!(error.starts_with("`network.address` is '10.0.0.2'; allowed: an IPv4 address"));
//! ```
//!
//! Every section refuses unknown keys and values of a wrong type by itself (`serde`, with the line); what is checked here
//! names the key, the value and what is allowed.

use std::fmt::Display;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, ensure};

mod control_table;

pub use control_table::{BackgroundConfig, ControlConfig, PolicyName, Restart};

/// Reads the file at `path` and has `parse` make of its text what it says.
///
/// # Errors
/// It cannot be read, or what `parse` says; each with the path.
pub fn load<T>(path: &Path, parse: impl FnOnce(&str) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration '{shown}'"))?;
    parse(&text).with_context(|| format!("in the configuration '{shown}'"))
}

/// Whether the number of `key` is in its range.
///
/// # Errors
/// It is not: the key, the value and what is allowed.
pub fn in_range<T: PartialOrd + Display>(
    key: &str,
    value: T,
    least: T,
    most: T,
) -> anyhow::Result<()> {
    // What is no number is in no range.
    ensure!((&least..=&most).contains(&&value), "`{key}` is {value}; allowed: {least} to {most}");
    Ok(())
}

/// Reads `10.0.0.2/24`, the value of `key`.
///
/// # Errors
/// The key, the value and what is allowed.
pub fn network(key: &str, text: &str) -> anyhow::Result<(Ipv4Addr, u8)> {
    let parsed = text.split_once('/').and_then(|(address, bits)| {
        let bits = bits.parse().ok().filter(|bits| *bits <= 32)?;
        Some((address.parse().ok()?, bits))
    });
    parsed.with_context(|| {
        format!(
            "`{key}` is '{text}'; allowed: an IPv4 address and a prefix of 0 to 32, as in 10.0.0.2/24"
        )
    })
}
