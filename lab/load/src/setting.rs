//! One setting: what it may be at most, how it is read and checked, and the error where it cannot be used.

use std::fmt;
use std::str::FromStr;

/// Most connections of one run (IX §5 goes to 250,000).
pub const CONNECTIONS_MAX: u32 = 1_000_000;
/// Most requests outstanding on one connection.
pub const DEPTH_MAX: u32 = 1_024;
/// The highest rate that can be asked for, in requests per second.
pub const RATE_MAX_RPS: f64 = 100_000_000.0;
/// Longest warm-up, window or drain, in milliseconds (one hour).
pub const PERIOD_MAX_MS: u64 = 3_600_000;

/// A setting that cannot be used: which, what was given, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is `{value}`; allowed: {allowed}")]
pub struct ConfigError {
    /// The setting's name, as the user writes it.
    pub key: &'static str,
    /// What was given.
    pub value: String,
    /// What would have been accepted.
    pub allowed: String,
}

impl ConfigError {
    /// The error that `key` is `value` while only `allowed` can be used.
    pub fn new(key: &'static str, value: impl fmt::Display, allowed: impl fmt::Display) -> Self {
        Self { key, value: value.to_string(), allowed: allowed.to_string() }
    }
}

/// Serde's form of a setting that is written as text: as its user writes it.
pub(crate) mod as_text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub fn serialize<S: Serializer>(setting: &impl Display, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(setting)
    }

    pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?.parse().map_err(Error::custom)
    }
}

/// Fails unless `min <= value <= max`; a NaN fails.
pub(crate) fn check_range<T: PartialOrd + fmt::Display>(
    key: &'static str,
    value: T,
    min: T,
    max: T,
) -> Result<(), ConfigError> {
    if value >= min && value <= max {
        Ok(())
    } else {
        Err(ConfigError::new(key, value, format_args!("{min} to {max}")))
    }
}

/// Reads the number that stands in `text`, for the setting `key`.
pub(crate) fn parse_number<T: FromStr>(
    key: &'static str,
    whole: &str,
    text: &str,
    allowed: &str,
) -> Result<T, ConfigError> {
    text.parse().map_err(|_| ConfigError::new(key, whole, allowed))
}
