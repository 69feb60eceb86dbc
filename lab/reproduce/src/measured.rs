//! One measured thing with its spread, or the reason why there is none.
//!
//! ```
//! use reproduce::Measured;
//! let latency = Measured::samples(&[5.1, 5.0, 5.3]);
//! let window = Measured::single(4.9).disturbed("another process used 8 % of the core");
//! let nothing = Measured::missing("needs 8 cores; this machine has 2");
//! assert_eq!(latency.value(), Some(5.1));
//! assert_eq!(nothing.value(), None);
//! # let _ = window;
//! ```

use crate::number::Finite;
use crate::stats::{Interval, Kept, Spread, Summary, Window, keep_valid};

/// A value (the median, where there were repeats) with the ends of its spread, or nothing and why.
/// What is not a number is nothing: it can never be shown as one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    pub(crate) value: Option<Finite>,
    pub(crate) low: Option<Finite>,
    pub(crate) high: Option<Finite>,
    pub(crate) n: u64,
    pub(crate) discarded: u64,
    pub(crate) invalid: Option<String>,
    pub(crate) note: Option<String>,
}

/// What a missing value says when the caller gave numbers that are none.
const NO_NUMBER: &str = "the measurement gave no number";
/// The same, when every window was disturbed.
const ALL_DISTURBED: &str = "every window was disturbed";

impl Measured {
    /// One number, measured once.
    pub fn single(value: f64) -> Self {
        match Finite::new(value) {
            Some(value) => Self { value: Some(value), n: 1, ..Self::default() },
            None => Self::missing(NO_NUMBER),
        }
    }

    /// The median of repeats, with the least and the greatest as its spread.
    pub fn samples(values: &[f64]) -> Self {
        Self::spread(values, Spread::MinMax)
    }

    /// The median of repeats, with the spread of that kind.
    pub fn spread(values: &[f64], spread: Spread) -> Self {
        let Some(summary) = Summary::of(values) else {
            return Self::missing(NO_NUMBER);
        };
        let (low, high) = summary.ends(spread);
        Self {
            value: Finite::new(summary.median),
            low: Finite::new(low),
            high: Finite::new(high),
            n: summary.n as u64,
            discarded: (values.len() - summary.n) as u64,
            ..Self::default()
        }
    }

    /// The median of the windows that count, and how many did not.
    pub fn windows(windows: &[Window]) -> Self {
        let Kept { values, discarded } = keep_valid(windows);
        if values.is_empty() && discarded > 0 {
            let discarded = discarded as u64;
            return Self { discarded, ..Self::missing(ALL_DISTURBED) };
        }
        Self { discarded: discarded as u64, ..Self::samples(&values) }
    }

    /// A value with an interval, as [`crate::stats::ratio_of_medians`] gives it.
    pub fn interval(interval: &Interval) -> Self {
        Self {
            low: Finite::new(interval.low),
            high: Finite::new(interval.high),
            n: interval.n as u64,
            ..Self::single(interval.value)
        }
    }

    /// Nothing, and why: it was tried and failed, or this machine cannot.
    pub fn missing(reason: impl Into<String>) -> Self {
        Self { invalid: Some(reason.into()), ..Self::default() }
    }

    /// Measured, but under a disturbance: shown as such, and never held against a goal.
    #[must_use]
    pub fn disturbed(mut self, reason: impl Into<String>) -> Self {
        self.invalid = Some(reason.into());
        self
    }

    /// Something a reader should know of this value, beside what was noted before.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        let note = note.into();
        self.note = Some(match self.note.take() {
            Some(before) => format!("{before}; {note}"),
            None => note,
        });
        self
    }

    /// The number, where one was measured; also a disturbed one.
    pub fn value(&self) -> Option<f64> {
        self.value.map(Finite::get)
    }

    /// Whether there is a number and it counts.
    pub fn is_valid(&self) -> bool {
        self.value.is_some() && self.invalid.is_none()
    }

    /// Why it does not count, then the note.
    pub(crate) fn remarks(&self) -> Option<String> {
        match (&self.invalid, &self.note) {
            (Some(invalid), Some(note)) => Some(format!("{invalid}; {note}")),
            (invalid, note) => invalid.clone().or_else(|| note.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_missing() {
        for measured in [
            Measured::single(f64::NAN),
            Measured::samples(&[]),
            Measured::samples(&[f64::INFINITY]),
            Measured::windows(&[]),
        ] {
            assert_eq!(measured.value(), None);
            assert_eq!(measured.remarks().as_deref(), Some(NO_NUMBER));
            assert!(!measured.is_valid());
        }
        let windows = [Window { value: 1.0, valid: false }; 3];
        let measured = Measured::windows(&windows);
        assert_eq!((measured.value(), measured.discarded), (None, 3));
        assert_eq!(measured.remarks().as_deref(), Some(ALL_DISTURBED));
    }

    #[test]
    fn repeats_carry_their_spread() {
        let measured = Measured::samples(&[3.0, 1.0, 2.0, f64::NAN]).note("cold");
        assert_eq!(measured.value(), Some(2.0));
        assert_eq!(measured.low.map(Finite::get), Some(1.0));
        assert_eq!(measured.high.map(Finite::get), Some(3.0));
        assert_eq!((measured.n, measured.discarded), (3, 1));
        assert!(measured.is_valid());
        let disturbed = measured.disturbed("a neighbour");
        assert!(!disturbed.is_valid());
        assert_eq!(disturbed.remarks().as_deref(), Some("a neighbour; cold"));
        assert_eq!(disturbed.value(), Some(2.0));
    }
}
