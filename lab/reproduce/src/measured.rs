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

use std::ops::RangeInclusive;

use measure::stats::{Interval, Summary, bootstrap_median, ratio_of_medians, ratio_of_pools};
use measure::{Disturbance, Kept, MeanInterval};
use serde::{Serialize, Serializer};

use crate::number::Finite;

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
/// Fewer rounds than these compare nothing.
const ROUNDS_MIN: usize = 3;
/// Fewer repeats on real threads than these have no interval: the bootstrap of one value is that value at both ends.
pub(crate) const REPEATS_MIN: u64 = 3;

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
        let Some(Summary { n, min, median, max, .. }) = Summary::of(values) else {
            return Self::missing(NO_NUMBER);
        };
        Self {
            low: Finite::new(min),
            high: Finite::new(max),
            n: n as u64,
            discarded: (values.len() - n) as u64,
            ..Self::single(median)
        }
    }

    /// A value with an interval; missing where there is none.
    fn interval(interval: Option<Interval>) -> Self {
        let Some(interval) = interval else { return Self::missing(NO_NUMBER) };
        Self {
            low: Finite::new(interval.low),
            high: Finite::new(interval.high),
            n: interval.n as u64,
            ..Self::single(interval.value)
        }
    }

    /// A mean with its interval, less what lies outside of `possible`.
    pub fn mean(found: &MeanInterval, possible: RangeInclusive<f64>) -> Self {
        let MeanInterval { mean: value, low, high, count: n, .. } = *found;
        let (low, high) = (low.max(*possible.start()), high.min(*possible.end()));
        Self::interval(Some(Interval { value, low, high, n }))
    }

    /// The ratio of two medians, with its bootstrap interval. Values that are no number count as discarded.
    pub fn ratio(above: &[f64], below: &[f64], seed: u64) -> Self {
        let none = |values: &[f64]| values.iter().filter(|value| !value.is_finite()).count();
        let discarded = none(above).max(none(below)) as u64;
        Self { discarded, ..Self::bootstrapped(ratio_of_medians(above, below, seed)) }
    }

    /// The ratio of what `of` makes of two contestants' values, those of all rounds together, with its bootstrap interval over
    /// the rounds.
    pub fn ratio_of_pools(
        above: &[Vec<f64>],
        below: &[Vec<f64>],
        seed: u64,
        of: impl Fn(&[f64]) -> Option<f64>,
    ) -> Self {
        Self::bootstrapped(ratio_of_pools(above, below, seed, of))
    }

    /// A bootstrap's value; its interval only where there were enough repeats.
    fn bootstrapped(interval: Option<Interval>) -> Self {
        let measured = Self::interval(interval);
        match measured.n >= REPEATS_MIN {
            true => measured,
            false => Self { low: None, high: None, ..measured },
        }
    }

    /// The median over a contestant's windows of one number of each, with its bootstrap interval; disturbed where no
    /// window was quiet.
    pub fn windows<T>(kept: &Kept<T>, seed: u64, of: impl FnMut(&T) -> f64) -> Self {
        let measured = Self::bootstrapped(bootstrap_median(&kept.values(of), seed));
        Self { discarded: kept.discarded as u64, ..measured }.under(&[kept.disturbed])
    }

    /// How two contestants of one contest compare: the median over their common rounds of what `how` makes of one's
    /// number and the other's, with its bootstrap interval; disturbed where either was, or both were quiet in too few
    /// rounds.
    pub fn compared<A, B>(
        (one, of_one): (&Kept<A>, fn(&A) -> f64),
        (other, of_other): (&Kept<B>, fn(&B) -> f64),
        seed: u64,
        how: fn(f64, f64) -> f64,
    ) -> Self {
        let pairs = one.paired(other);
        let values: Vec<f64> =
            pairs.map(|(one, other)| how(of_one(one), of_other(other))).collect();
        let measured = Self::bootstrapped(bootstrap_median(&values, seed));
        let measured = measured.of_both(one, other);
        if one.disturbed.is_none() && other.disturbed.is_none() && values.len() < ROUNDS_MIN {
            return measured.disturbed(format!("both were quiet in {} rounds only", values.len()));
        }
        measured
    }

    /// The ratio of two contestants of one contest, round by round as [`compared`](Self::compared); where both were
    /// quiet in too few rounds, that of their medians, which says so where the rounds differ.
    pub fn ratio_of<A, B>(
        above: (&Kept<A>, fn(&A) -> f64),
        below: (&Kept<B>, fn(&B) -> f64),
        seed: u64,
    ) -> Self {
        if above.0.paired(below.0).take(ROUNDS_MIN).count() == ROUNDS_MIN {
            return Self::compared(above, below, seed, |above, below| above / below);
        }
        let measured = Self::ratio_apart(above, below, seed);
        match above.0.rounds == below.0.rounds {
            true => measured,
            false => measured.note("of windows in different rounds"),
        }
    }

    /// The ratio of the medians of two contestants whose rounds have nothing in common; disturbed where either was.
    pub fn ratio_apart<A, B>(
        (above, of_above): (&Kept<A>, fn(&A) -> f64),
        (below, of_below): (&Kept<B>, fn(&B) -> f64),
        seed: u64,
    ) -> Self {
        let measured = Self::ratio(&above.values(of_above), &below.values(of_below), seed);
        measured.of_both(above, below)
    }

    /// Of two contestants: the rounds that are not among the `n` that count are discarded; all are, and it is marked,
    /// where either had no quiet window.
    fn of_both<A, B>(self, one: &Kept<A>, other: &Kept<B>) -> Self {
        let disturbed = [one.disturbed, other.disturbed];
        let count = if disturbed == [None, None] { self.n } else { 0 };
        let discarded = (one.held.max(other.held) as u64).saturating_sub(count);
        Self { discarded, ..self }.under(&disturbed)
    }

    /// Marked where a contestant had no quiet window.
    fn under(self, disturbed: &[Option<Disturbance>]) -> Self {
        match disturbed.iter().flatten().next() {
            Some(disturbance) => self.disturbed(format!("no window was quiet: {disturbance}")),
            None => self,
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

/// As its number, or nothing.
impl Serialize for Measured {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

/// As [`Measured::single`].
impl From<f64> for Measured {
    fn from(value: f64) -> Self {
        Self::single(value)
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn what_is_no_number_is_missing() {
        for measured in [
            Measured::single(f64::NAN),
            Measured::samples(&[]),
            Measured::samples(&[f64::INFINITY]),
            Measured::windows(&Kept::from(Vec::<f64>::new()), 1, |value| *value),
            Measured::ratio(&[], &[1.0], 1),
        ] {
            assert_eq!(measured.value(), None);
            assert_eq!(measured.remarks().as_deref(), Some(NO_NUMBER));
            assert!(!measured.is_valid());
        }
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
    /// A seeded walk through values that look like windows: around 100, with a skewed spread.
    fn windows(count: usize, seed: u64) -> Kept<f64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut one = || 100.0 - 10.0 * random.random_range(f64::MIN_POSITIVE..1.0).ln();
        Kept::from(Vec::from_iter((0..count).map(|_| one())))
    }

    const OF: fn(&f64) -> f64 = |&value| value;

    #[test]
    fn intervals_hold_the_median_that_the_windows_were_drawn_from() {
        let truth = 100.0 + 10.0 * std::f64::consts::LN_2;
        let held = (0..400).filter(|&seed| {
            let values = windows(10, seed).values(OF);
            let interval = bootstrap_median(&values, seed).expect("there are ten");
            (interval.low..=interval.high).contains(&truth)
        });
        // Meant to be 95 %; a bootstrap of ten values holds a little less.
        let held = held.count();
        assert!((350..400).contains(&held), "{held} of 400");
        assert!(Measured::windows(&windows(10, 1), 1, OF).is_valid());
    }

    #[test]
    fn what_was_disturbed_is_never_shown_as_sound() {
        let mut loud = windows(3, 1);
        loud.disturbed = Some(Disturbance { switches: 4, ..Default::default() });
        loud.discarded = 3;
        let shown = Measured::windows(&loud, 1, OF);
        assert!(shown.value().is_some() && !shown.is_valid() && shown.discarded == 3);
        let ratio = Measured::ratio_of((&windows(3, 2), OF), (&loud, OF), 1);
        assert!(!ratio.is_valid() && ratio.discarded == 3);
        assert!(Measured::ratio_of((&windows(3, 2), OF), (&windows(3, 3), OF), 1).is_valid());
    }

    #[test]
    fn one_or_two_repeats_have_no_interval_and_are_of_the_same_rounds() {
        for count in 1..=2 {
            let (one, other) = (windows(count, 1), windows(count, 2));
            let ratio = Measured::ratio_of((&one, OF), (&other, OF), 1);
            assert_eq!((ratio.is_valid(), ratio.n, &ratio.note), (true, count as u64, &None));
            for measured in [ratio, Measured::windows(&one, 1, OF)] {
                assert_eq!((measured.low, measured.high), (None, None));
            }
        }
        assert!(Measured::windows(&windows(3, 1), 1, OF).low.is_some());
    }

    #[test]
    fn contestants_are_compared_round_by_round() {
        // The host doubles its speed after a third of the rounds; one contestant is always a tenth slower. That it
        // was quiet in other rounds changes nothing.
        let time = |round: usize| if round < 10 { 200.0 } else { 100.0 };
        let at = |rounds: Vec<usize>, times: f64| Kept {
            found: rounds.iter().map(|&round| times * time(round)).collect(),
            rounds,
            held: 31,
            discarded: 0,
            disturbed: None,
        };
        let slow = at((0..18).collect(), 1.1);
        let fast = at((3..30).collect(), 1.0);
        let found = Measured::ratio_of((&slow, OF), (&fast, OF), 1);
        assert!(found.is_valid() && found.value().is_some_and(|ratio| (ratio - 1.1).abs() < 1e-9));
        assert_eq!((found.n, found.discarded), (15, 16), "31 rounds were held");
        let few = at(vec![1, 20, 30], 1.0);
        let differ = Measured::compared((&slow, OF), (&few, OF), 1, |a, b| a - b);
        assert!(!differ.is_valid(), "one round is too few");
        // Medians of 220 and 100, and never silently.
        let apart = Measured::ratio_of((&slow, OF), (&few, OF), 1);
        assert!(format!("{apart:?}").contains("of windows in different rounds"));
        assert!(apart.value().is_some_and(|ratio| ratio > 2.0), "{apart:?}");
        assert_eq!((apart.n, apart.discarded), (3, 28));
    }
}
