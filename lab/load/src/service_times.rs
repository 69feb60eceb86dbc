//! Service times that the requests of the synthetic service ask for (ZygOS §2.3 and §3).
//!
//! The laws themselves are [`queueing::Law`], so that a service asks for the very times that theory
//! reckons with.
//!
//! ```
//! use load::ServiceTimes;
//! let times: ServiceTimes = "bimodal-1:10".parse()?;
//! assert_eq!(times.to_string(), "bimodal-1:10");
//! # Ok::<(), load::ConfigError>(())
//! ```

use std::fmt;
use std::str::FromStr;

use queueing::{Invalid, Law};

use crate::setting::{ConfigError, check_range, parse_number};

/// The longest service time that the service accepts, in microseconds.
pub const SERVICE_US_MAX: f64 = 1_000_000.0;
const ALLOWED: &str = "deterministic:MEAN_US, exponential:MEAN_US, bimodal-1:MEAN_US, \
                       bimodal-2:MEAN_US, trace:FILE";

/// How service times are distributed. Written as in `ALLOWED`.
#[derive(Debug, Clone, PartialEq)]
pub enum ServiceTimes {
    /// One of ZygOS's laws. The deterministic one is also read as `fixed`.
    Law {
        /// Which.
        law: Law,
        /// Its mean S, in microseconds.
        mean_us: f64,
    },
    /// Each time of a file, one in microseconds a line, with the same chance. Empty lines, and
    /// those that begin with `#`, are passed over.
    Trace {
        /// The file.
        file: String,
    },
}

impl ServiceTimes {
    /// The law and its mean S in microseconds; none of a trace.
    pub fn law(&self) -> Option<(Law, f64)> {
        match self {
            Self::Law { law, mean_us } => Some((*law, *mean_us)),
            Self::Trace { .. } => None,
        }
    }

    /// Checks every setting; a trace is read by [`crate::Workload::new`].
    ///
    /// # Errors
    /// A mean that is not positive, or with which a time could exceed [`SERVICE_US_MAX`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Some((law, mean_us)) = self.law() else { return Ok(()) };
        // The greatest time in means; for the exponential, the one of the last of 2^32 draws.
        let greatest = law.modes().map_or(23.0, |[_, long]| long.multiple);
        check_range("service time", mean_us, 0.001, (SERVICE_US_MAX / greatest).floor())
    }
}

impl fmt::Display for ServiceTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Law { law, mean_us } => write!(f, "{}:{mean_us}", law.name()),
            Self::Trace { file } => write!(f, "trace:{file}"),
        }
    }
}

impl FromStr for ServiceTimes {
    type Err = ConfigError;
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let error = || ConfigError::new("service times", text, ALLOWED);
        let (name, rest) = text.split_once(':').ok_or_else(error)?;
        if name == "trace" && !rest.is_empty() {
            return Ok(Self::Trace { file: rest.to_owned() });
        }
        let mean_us = parse_number("service times", text, rest, ALLOWED)?;
        let name = if name == "fixed" { Law::Deterministic.name() } else { name };
        Ok(Self::Law { law: Law::from_name(name).ok_or_else(error)?, mean_us })
    }
}

/// Service times made ready: the time of a draw is a function of the draw, so that the response
/// can be checked without anything being stored.
#[derive(Debug)]
pub(crate) enum ServiceTable {
    /// One time.
    Fixed(u64),
    /// Exponential with this mean, in nanoseconds.
    Exponential(f64),
    /// The short time below this draw, the long one from it on.
    TwoModes { below: u32, short_ns: u64, long_ns: u64 },
    /// The times of a trace.
    Trace(Box<[u64]>),
}

impl ServiceTable {
    /// Makes `times` ready; reads a trace.
    ///
    /// # Errors
    /// A file that cannot be read, or a line of it that is no service time, with its number.
    pub fn new(times: &ServiceTimes) -> Result<Self, ConfigError> {
        times.validate()?;
        let (law, mean_us) = match times {
            ServiceTimes::Law { law, mean_us } => (law, mean_us),
            ServiceTimes::Trace { file } => {
                let text = std::fs::read_to_string(file).map_err(|error| {
                    ConfigError::new("trace", format_args!("{file}: {error}"), "a text file")
                })?;
                return Ok(Self::Trace(read_trace(file, &text)?));
            }
        };
        Ok(match law.modes() {
            None => Self::Exponential(mean_us * 1e3),
            Some([only, _]) if only.share == 1.0 => Self::Fixed(nanos(mean_us * only.multiple)),
            Some([short, long]) => Self::TwoModes {
                below: (short.share * 2f64.powi(32)).round() as u32,
                short_ns: nanos(mean_us * short.multiple),
                long_ns: nanos(mean_us * long.multiple),
            },
        })
    }

    /// The service time of the draw `draw`, of which each has the same chance, in nanoseconds.
    pub fn at(&self, draw: u32) -> u64 {
        match self {
            Self::Fixed(ns) => *ns,
            Self::Exponential(mean_ns) => {
                // The middle of the draw's part of the unit interval: never zero, never one.
                let rest = (f64::from(draw) + 0.5) / 2f64.powi(32);
                (-rest.ln() * mean_ns).round() as u64
            }
            Self::TwoModes { below, short_ns, long_ns } => {
                if draw < *below {
                    *short_ns
                } else {
                    *long_ns
                }
            }
            Self::Trace(times) => {
                let place = (u64::from(draw) * times.len() as u64) >> 32;
                times.get(place as usize).copied().unwrap_or(0)
            }
        }
    }
}

fn nanos(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

fn read_trace(file: &str, text: &str) -> Result<Box<[u64]>, ConfigError> {
    let times = queueing::read_times(text, SERVICE_US_MAX).map_err(
        |Invalid { what, found, allowed }| {
            ConfigError::new("trace", format_args!("{file}, where {what} is {found}"), allowed)
        },
    )?;
    Ok(times.into_iter().map(nanos).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and 99th percentile of evenly spread draws, in microseconds.
    fn mean_and_p99(text: &str) -> (f64, f64) {
        let table = ServiceTable::new(&text.parse().expect(text)).expect(text);
        const DRAWS: u32 = 1 << 20;
        let mut times: Vec<u64> = (0..DRAWS).map(|draw| table.at(draw << 12 | draw >> 8)).collect();
        times.sort_unstable();
        let mean = times.iter().sum::<u64>() as f64 / f64::from(DRAWS);
        (mean / 1e3, times[times.len() / 100 * 99] as f64 / 1e3)
    }

    #[test]
    fn the_distributions_are_those_of_zygos() {
        // §2.3: the 99th percentiles are 1, 4.6, 5.5 and 0.5 times the mean.
        for (text, p99) in [
            ("deterministic:10", 10.0),
            ("exponential:10", 10.0 * 100f64.ln()),
            ("bimodal-1:10", 55.0),
            ("bimodal-2:10", 5.0),
        ] {
            let (mean, found) = mean_and_p99(text);
            assert!((mean / 10.0 - 1.0).abs() < 2e-3, "{text}: mean {mean}");
            assert!((found / p99 - 1.0).abs() < 2e-3, "{text}: p99 {found}");
        }
        let table = ServiceTable::new(&"bimodal-2:10".parse().expect("reads")).expect("valid");
        assert_eq!((table.at(0), table.at(u32::MAX)), (5_000, 5_005_000));
        let longest =
            ServiceTable::new(&ServiceTimes::Law { law: Law::Exponential, mean_us: 43_478.0 });
        assert!(longest.expect("valid").at(0) <= 1_000_000_000);
    }

    #[test]
    fn a_trace_is_drawn_from_evenly_and_its_bad_lines_are_named() {
        let times = read_trace("t", "# us\n1\n2.5\n\n 400 \n").expect("reads");
        assert_eq!(*times, [1_000, 2_500, 400_000]);
        let table = ServiceTable::Trace(times);
        let third = u32::MAX / 3;
        assert_eq!(table.at(0), 1_000);
        assert_eq!(table.at(third + 9), 2_500);
        assert_eq!(table.at(u32::MAX), 400_000);
        for (text, part) in [
            (
                "1\nx\n",
                "`t, where a service time is 'x' in line 2`; allowed: 0 to 1000000, in microseconds",
            ),
            ("1\n\n-1\n", "'-1' in line 3"),
            ("1000001\n", "'1000001' in line 1"),
            ("NaN\n", "'NaN' in line 1"),
            ("# nothing\n", "is 0`; allowed: 1 to"),
        ] {
            let error = read_trace("t", text).expect_err(text).to_string();
            assert!(error.contains(part), "{error}");
        }
        let missing = "trace:no such file".parse().expect("reads");
        let error = ServiceTable::new(&missing).expect_err("no file").to_string();
        assert!(error.contains("no such file: "), "{error}");
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        for text in
            ["deterministic:10", "exponential:2.5", "bimodal-1:1", "bimodal-2:100", "trace:a:b"]
        {
            let times: ServiceTimes = text.parse().expect(text);
            assert_eq!(times.to_string(), text);
            times.validate().expect(text);
        }
        let deterministic = ServiceTimes::Law { law: Law::Deterministic, mean_us: 3.0 };
        assert_eq!("fixed:3".parse(), Ok(deterministic));
        for text in ["", "exponential", "exponential:", "exponential:x", "normal:3", "trace:"] {
            let error = text.parse::<ServiceTimes>().expect_err(text);
            assert_eq!((error.value.as_str(), error.allowed.as_str()), (text, ALLOWED));
        }
        for text in ["deterministic:0", "exponential:NaN", "bimodal-2:2000", "bimodal-1:-1"] {
            assert!(text.parse::<ServiceTimes>().expect(text).validate().is_err(), "{text}");
        }
    }
}
