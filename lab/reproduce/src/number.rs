//! Numbers that were measured, and how they are written.
//!
//! ```
//! use reproduce::number::{Finite, show};
//! assert!(Finite::new(f64::NAN).is_none());
//! assert_eq!(show(4_186_000.0), "4,186,000");
//! assert_eq!(show(5.8), "5.8");
//! ```

use serde::{Deserialize, Serialize};

/// A number that is one: never NaN, never infinite. Results hold nothing else, so what is not
/// measured must be absent.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Finite(f64);

impl Finite {
    /// `value`, where it is a number. Negative zero becomes zero.
    pub fn new(value: f64) -> Option<Self> {
        value.is_finite().then_some(Self(value + 0.0))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl From<Finite> for f64 {
    fn from(value: Finite) -> Self {
        value.0
    }
}

impl TryFrom<f64> for Finite {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, String> {
        let error =
            || format!("{value} is not a number that can be measured; leave the value out instead");
        Self::new(value).ok_or_else(error)
    }
}

/// Digits that a table shows of a number below 1,000.
const SIGNIFICANT: i32 = 4;

/// For tables: four significant digits, whole from 1,000 up with commas, no trailing zeros.
pub fn show(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "not a number".to_owned();
    }
    if size == 0.0 {
        return "0".to_owned();
    }
    if !(1e-4..1e15).contains(&size) {
        return format!("{value:.3e}");
    }
    let decimals = (SIGNIFICANT - 1 - size.log10().floor() as i32).max(0) as usize;
    let text = format!("{value:.decimals$}");
    group(if decimals > 0 { trim(&text) } else { &text })
}

/// As [`show`], or a dash where there is no number.
pub fn show_or_dash(value: Option<Finite>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| show(value.get()))
}

fn trim(text: &str) -> &str {
    text.trim_end_matches('0').trim_end_matches('.')
}

/// Commas between groups of three digits of the whole part.
fn group(text: &str) -> String {
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut grouped = sign.to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

/// For the ticks of an axis, which are `step` apart (zero: on a logarithmic axis) and at most
/// `largest` in size: short, with k, M and G, and exact.
pub fn tick(value: f64, step: f64, largest: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let of = if step > 0.0 { largest } else { value.abs() };
    let (divisor, suffix) = match of {
        of if !(1e-4..1e15).contains(&of) => return scientific(value),
        of if of >= 1e9 => (1e9, "G"),
        of if of >= 1e6 => (1e6, "M"),
        of if of >= 1e4 || (step == 0.0 && of >= 1e3) => (1e3, "k"),
        _ => (1.0, ""),
    };
    let finest = if step > 0.0 { step / divisor } else { value.abs() / divisor };
    let decimals = (-(finest.log10() + 1e-9).floor()).clamp(0.0, 12.0) as usize;
    let text = format!("{:.decimals$}", value / divisor);
    let text = if decimals > 0 { trim(&text) } else { &text };
    // A tick that rounding left of zero is zero.
    if text == "0" || text == "-0" { "0".to_owned() } else { format!("{text}{suffix}") }
}

fn scientific(value: f64) -> String {
    let text = format!("{value:.2e}");
    match text.split_once('e') {
        Some((digits, exponent)) => format!("{}e{exponent}", trim(digits)),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tables_show_four_digits_and_commas() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (0.75, "0.75"),
            (1.0, "1"),
            (12.345, "12.35"),
            (100.0, "100"),
            (999.96, "1,000"),
            (1000.0, "1,000"),
            (1234.5, "1,234"),
            (4_186_000.0, "4,186,000"),
            (-4_186_000.0, "-4,186,000"),
            (0.001, "0.001"),
            (0.000_01, "1.000e-5"),
            (1e20, "1.000e20"),
            (f64::INFINITY, "not a number"),
        ] {
            assert_eq!(show(value), text, "{value:?}");
        }
    }

    #[test]
    fn ticks_are_short_and_exact() {
        assert_eq!(tick(200_000.0, 100_000.0, 400_000.0), "200k");
        assert_eq!(tick(1_500_000.0, 500_000.0, 2_000_000.0), "1.5M");
        assert_eq!(tick(0.3, 0.1, 0.5), "0.3");
        assert_eq!(tick(0.25, 0.05, 0.5), "0.25");
        assert_eq!(tick(2000.0, 1000.0, 5000.0), "2000");
        assert_eq!(tick(1000.0, 0.0, 0.0), "1k");
        assert_eq!(tick(0.01, 0.0, 0.0), "0.01");
        assert_eq!(tick(5e-7, 0.0, 0.0), "5e-7");
        assert_eq!(tick(1e-17, 0.1, 0.5), "0");
    }

    #[test]
    fn json_holds_no_nan() {
        assert!(serde_json::from_str::<Finite>("1.5").is_ok_and(|value| value.get() == 1.5));
        assert!(serde_json::from_str::<Finite>("null").is_err());
        assert!(serde_json::from_str::<Finite>("1e999").is_err());
    }

    proptest! {
        #[test]
        fn shown_numbers_are_near(value in prop::num::f64::NORMAL) {
            let back: f64 = show(value).replace(',', "").parse().unwrap();
            prop_assert!((back - value).abs() <= value.abs() * 1e-3);
        }
    }
}
