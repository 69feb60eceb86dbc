//! One axis of a plot: which values it shows, where its ticks stand, and where a value lies.
//!
//! Linear axes tick in steps of 1, 2 or 5 times a power of ten and start at zero where the data
//! allow; logarithmic ones tick at the decades, with 2 and 5 between where there is room.

use crate::number::tick;
use crate::result::{Axis, Scale};

/// Values larger than this cannot be told apart on paper, and their differences overflow.
const LARGEST: f64 = 1e100;
/// Values smaller than this are zero on a linear axis, and cannot be drawn on a logarithmic one.
const SMALLEST: f64 = 1e-100;
/// Bound of the ticks of an axis, whatever its range.
const TICKS_MAX: usize = 24;
/// Slack for values that rounding moved past the end of the axis, as a share of its length.
const SLACK: f64 = 1e-9;

/// One tick.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    /// Its value.
    pub at: f64,
    /// What stands beside it; empty for a tick that only divides.
    pub label: String,
}

/// An axis with its ends fixed, on a stretch of the picture.
#[derive(Clone, Debug)]
pub(crate) struct Ruler {
    scale: Scale,
    low: f64,
    high: f64,
    /// Places of `low` and `high` in the picture.
    from: f64,
    to: f64,
    /// From low to high.
    pub ticks: Vec<Tick>,
}

/// Whether an axis of that scale has a place for the value.
pub(crate) fn drawable(scale: Scale, value: f64) -> bool {
    let size = value.abs();
    match scale {
        Scale::Linear | Scale::Category => size <= LARGEST,
        Scale::Log => value > 0.0 && (SMALLEST..=LARGEST).contains(&size),
    }
}

impl Ruler {
    /// The ruler of `axis` for `values`, from `from` to `to` in the picture, with about `wanted`
    /// ticks; `names` are those of a category axis.
    pub fn new(
        axis: &Axis,
        values: impl Iterator<Item = f64>,
        names: &[String],
        (from, to): (f64, f64),
        wanted: usize,
    ) -> Self {
        let scale = axis.scale;
        if scale == Scale::Category {
            let high = names.len().max(1) as f64 - 0.5;
            let ticks = names.iter().enumerate();
            let ticks =
                ticks.map(|(at, name)| Tick { at: at as f64, label: name.clone() }).collect();
            return Self { scale, low: -0.5, high, from, to, ticks };
        }
        let fixed = |end: Option<crate::number::Finite>| {
            end.map(f64::from).filter(|end| drawable(scale, *end))
        };
        let (fixed_low, fixed_high) = match (fixed(axis.low), fixed(axis.high)) {
            // Ends that contradict each other are none.
            (Some(low), Some(high)) if low >= high => (None, None),
            ends => ends,
        };
        let (mut least, mut most) = values
            .filter(|value| drawable(scale, *value))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        if least > most {
            (least, most) = if scale == Scale::Log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        least = fixed_low.unwrap_or(least).min(fixed_high.unwrap_or(least));
        most = fixed_high.unwrap_or(most).max(fixed_low.unwrap_or(most));
        let (low, high, ticks) = match scale {
            Scale::Log => log_ticks(least, most, (fixed_low, fixed_high), wanted),
            _ => linear_ticks(least, most, (fixed_low, fixed_high), wanted),
        };
        Self { scale, low, high, from, to, ticks }
    }

    /// Where `value` lies in the picture; nowhere when it is outside of the axis.
    pub fn place(&self, value: f64) -> Option<f64> {
        let share = self.share(value)?;
        (-SLACK..=1.0 + SLACK).contains(&share).then(|| self.at(share))
    }

    /// Where `value` lies, or the end of the axis that it is beyond.
    pub fn place_clamped(&self, value: f64) -> f64 {
        match self.share(value) {
            Some(share) => self.at(share.clamp(0.0, 1.0)),
            // No place on a logarithmic axis: below all others.
            None => self.at(if value > 0.0 { 1.0 } else { 0.0 }),
        }
    }

    /// Length in the picture between two neighbours of a category axis.
    pub fn slot(&self) -> f64 {
        (self.to - self.from).abs() / (self.high - self.low)
    }

    fn at(&self, share: f64) -> f64 {
        self.from + (self.to - self.from) * share
    }

    fn share(&self, value: f64) -> Option<f64> {
        // The outermost ticks may lie just beyond what is drawable.
        if !drawable(self.scale, value / 2.0) && !drawable(self.scale, value * 2.0) {
            return None;
        }
        Some(match self.scale {
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
            _ => (value - self.low) / (self.high - self.low),
        })
    }
}

type Fixed = (Option<f64>, Option<f64>);

fn linear_ticks(least: f64, most: f64, fixed: Fixed, wanted: usize) -> (f64, f64, Vec<Tick>) {
    let (mut low, mut high) = (least, most);
    // A difference is only seen as large as it is when zero is in the picture.
    if fixed.0.is_none() && low > 0.0 {
        low = 0.0;
    }
    if fixed.1.is_none() && high < 0.0 {
        high = 0.0;
    }
    let size = low.abs().max(high.abs());
    if high - low <= size * 1e-9 || size < SMALLEST {
        let room = if size < SMALLEST { 1.0 } else { size * 0.1 };
        if fixed.0.is_none() {
            low -= if size < SMALLEST && low >= 0.0 { 0.0 } else { room };
        }
        high = high.max(low) + room;
    }
    let step = step_of((high - low) / wanted.max(2) as f64);
    let first = (low / step + SLACK).floor();
    let last = (high / step - SLACK).ceil();
    low = if fixed.0.is_some() { low } else { first * step };
    high = if fixed.1.is_some() { high } else { last * step };
    let slack = (high - low) * SLACK;
    let largest = low.abs().max(high.abs());
    let ticks = (0..TICKS_MAX)
        .map(|index| (first + index as f64) * step)
        .filter(|at| *at >= low - slack && *at <= high + slack)
        .map(|at| Tick { at, label: tick(at, step, largest) })
        .collect();
    (low, high, ticks)
}

/// The smallest of 1, 2, 5 times a power of ten that is not below `length`.
fn step_of(length: f64) -> f64 {
    let power = 10f64.powi(length.log10().floor() as i32);
    let times = [1.0, 2.0, 5.0].into_iter().find(|times| times * power >= length * (1.0 - SLACK));
    times.unwrap_or(10.0) * power
}

fn log_ticks(least: f64, most: f64, fixed: Fixed, wanted: usize) -> (f64, f64, Vec<Tick>) {
    let low = fixed.0.unwrap_or_else(|| step_below(least));
    let mut high = fixed.1.unwrap_or_else(|| step_of(most));
    if high <= low * (1.0 + SLACK) {
        high = low * 10.0;
    }
    let first = low.log10().floor() as i32;
    let last = high.log10().ceil() as i32;
    let decades = (last - first).max(1) as usize;
    let each = decades.div_ceil(wanted.max(2)) as i32;
    let between = decades * 3 <= wanted.max(4) + 2;
    let mut ticks = Vec::new();
    for power in (first..=last).step_by(each as usize) {
        for times in if between { &[1.0, 2.0, 5.0][..] } else { &[1.0][..] } {
            let at = times * 10f64.powi(power);
            if at >= low * (1.0 - SLACK) && at <= high * (1.0 + SLACK) && ticks.len() < TICKS_MAX {
                ticks.push(Tick { at, label: tick(at, 0.0, 0.0) });
            }
        }
    }
    (low, high, ticks)
}

/// The largest of 1, 2, 5 times a power of ten that is not above `value`.
fn step_below(value: f64) -> f64 {
    let power = 10f64.powi(value.log10().floor() as i32);
    let times = [5.0, 2.0].into_iter().find(|times| times * power <= value * (1.0 + SLACK));
    times.unwrap_or(1.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: &Axis, values: &[f64]) -> Vec<String> {
        let ruler = Ruler::new(axis, values.iter().copied(), &[], (0.0, 100.0), 6);
        ruler.ticks.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn linear_axes_tick_by_one_two_five() {
        let axis = Axis::linear("", "");
        assert_eq!(labels(&axis, &[3.0, 5.8]), ["0", "1", "2", "3", "4", "5", "6"]);
        assert_eq!(labels(&axis, &[0.41, 0.95]), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(labels(&axis, &[210_000.0, 630_000.0]), ["0", "200k", "400k", "600k", "800k"]);
        assert_eq!(labels(&axis, &[-3.0, 3.0]), ["-3", "-2", "-1", "0", "1", "2", "3"]);
        assert_eq!(labels(&axis, &[]), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        let narrow = Axis::linear("", "").range(0.9, 1.0);
        assert_eq!(labels(&narrow, &[0.95]), ["0.9", "0.92", "0.94", "0.96", "0.98", "1"]);
    }

    #[test]
    fn logarithmic_axes_tick_by_decades() {
        let axis = Axis::log("", "");
        assert_eq!(labels(&axis, &[1.0, 250_000.0]), ["1", "10", "100", "1k", "10k", "100k"]);
        assert_eq!(labels(&axis, &[64.0, 400.0]), ["50", "100", "200", "500"]);
        assert_eq!(labels(&axis, &[0.0, -1.0]), ["1", "2", "5", "10"]);
        assert_eq!(labels(&axis, &[10.0]), ["10", "20", "50", "100"]);
    }

    #[test]
    fn the_outermost_ticks_have_places() {
        let ruler = Ruler::new(&Axis::log("", ""), [1.4e-100].into_iter(), &[], (0.0, 1.0), 6);
        assert!(ruler.ticks.iter().all(|tick| ruler.place(tick.at).is_some()), "{ruler:?}");
        let ruler = Ruler::new(&Axis::log("", ""), [9.9e99].into_iter(), &[], (0.0, 1.0), 6);
        assert!(ruler.ticks.iter().all(|tick| ruler.place(tick.at).is_some()), "{ruler:?}");
    }

    #[test]
    fn places_are_on_the_axis_or_nowhere() {
        let axis = Axis::log("", "").range(1.0, 100.0);
        let ruler = Ruler::new(&axis, [1.0, 5000.0].into_iter(), &[], (300.0, 0.0), 6);
        assert!((ruler.place(10.0).unwrap() - 150.0).abs() < 1e-6);
        assert_eq!((ruler.place(0.0), ruler.place(-1.0), ruler.place(101.0)), (None, None, None));
        assert_eq!((ruler.place_clamped(0.0), ruler.place_clamped(1e9)), (300.0, 0.0));
        assert_eq!(ruler.place_clamped(f64::INFINITY), 0.0);
    }

    fn scale() -> impl Strategy<Value = Scale> {
        prop_oneof![Just(Scale::Linear), Just(Scale::Log)]
    }

    proptest! {
        #[test]
        fn any_values_have_an_axis(
            scale in scale(),
            values in prop::collection::vec(prop::num::f64::ANY, 0..8),
            ends in (prop::num::f64::ANY, prop::num::f64::ANY),
            fix: bool,
        ) {
            let mut axis = Axis { scale, ..Axis::default() };
            if fix {
                axis = axis.range(ends.0, ends.1);
            }
            let ruler = Ruler::new(&axis, values.iter().copied(), &[], (40.0, 700.0), 6);
            prop_assert!(ruler.low < ruler.high, "{ruler:?}");
            prop_assert!(ruler.ticks.len() <= TICKS_MAX);
            if !fix {
                prop_assert!(ruler.ticks.len() >= 2, "{ruler:?}");
            }
            prop_assert!(ruler.ticks.is_sorted_by(|a, b| a.at < b.at), "{ruler:?}");
            for tick in &ruler.ticks {
                prop_assert!(ruler.place(tick.at).is_some(), "{tick:?} {ruler:?}");
            }
            for value in values {
                let place = ruler.place(value);
                if !fix {
                    prop_assert_eq!(place.is_some(), drawable(scale, value), "{} {:?}", value, ruler);
                }
                let clamped = ruler.place_clamped(value);
                prop_assert!(!clamped.is_nan() && (39.9..=700.1).contains(&clamped));
                if let Some(place) = place {
                    prop_assert!((39.9..=700.1).contains(&place));
                }
            }
        }

        #[test]
        fn larger_values_lie_further_along(a in 1e-6..1e6, b in 1e-6..1e6, scale in scale()) {
            let axis = Axis { scale, ..Axis::default() };
            let ruler = Ruler::new(&axis, [a, b].into_iter(), &[], (0.0, 1000.0), 6);
            let (place_a, place_b) = (ruler.place(a).unwrap(), ruler.place(b).unwrap());
            prop_assert!((a <= b) == (place_a <= place_b) || (place_a - place_b).abs() < 1e-6);
        }
    }
}
