//! The few statistics that results are made of: order statistics over repeats, and the ratio of
//! two medians with an interval.
//!
//! ```
//! use measure::stats::{Summary, ratio_of_medians};
//! let summary = Summary::of(&[3.0, 1.0, 2.0]).unwrap();
//! assert_eq!((summary.median, summary.min, summary.max), (2.0, 1.0, 3.0));
//! let ratio = ratio_of_medians(&[20.0, 21.0, 22.0], &[10.0, 10.0, 11.0], 7).unwrap();
//! assert_eq!(ratio.value, 2.1);
//! assert!(ratio.low <= ratio.value && ratio.value <= ratio.high);
//! ```

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Samples drawn anew for an interval: its ends then move by about 1 % from seed to seed.
pub const RESAMPLES: usize = 2_000;

/// Share of the resampled ratios that an interval holds.
pub const CONFIDENCE: f64 = 0.95;

/// The finite ones of `values`, in order of size. What is not a number was not measured.
fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The value below which the share `share` (0 to 1) of `sorted` lies, linear between neighbours
/// (type 7 of Hyndman and Fan, which R and NumPy take by default). `sorted` must not be empty.
fn quantile_of_sorted(sorted: &[f64], share: f64) -> f64 {
    assert!(!sorted.is_empty());
    debug_assert!(sorted.is_sorted());
    let rank = share.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = rank.floor() as usize;
    let above = rank.ceil() as usize;
    let part = rank - below as f64;
    // Weighted rather than by the difference, which may overflow; clamped, since rounding may
    // leave the neighbours.
    let between = sorted[below] * (1.0 - part) + sorted[above] * part;
    between.clamp(sorted[below], sorted[above])
}

/// The value below which the share `share` (0 to 1) of `values` lies; absent where there is none.
/// Values that are not numbers are left out.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let sorted = sorted(values);
    (!sorted.is_empty()).then(|| quantile_of_sorted(&sorted, share))
}

/// The middle of `values`; absent where there is none.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The middle of `values`; no number where there is none.
pub fn median_of(values: impl IntoIterator<Item = f64>) -> f64 {
    median(&values.into_iter().collect::<Vec<f64>>()).unwrap_or(f64::NAN)
}

/// The value of `sorted` that the share `share` (0 to 1) does not exceed, the nearest one: for latencies, of which
/// there are many. Zero where there is none.
pub fn nearest(sorted: &[u64], share: f64) -> u64 {
    debug_assert!(sorted.is_sorted());
    let last = sorted.len().saturating_sub(1);
    let at = (share.clamp(0.0, 1.0) * last as f64).round() as usize;
    sorted.get(at).copied().unwrap_or(0)
}

/// Repeats of one measurement in five numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Values that count.
    pub n: usize,
    /// The least.
    pub min: f64,
    /// A quarter lies below.
    pub q1: f64,
    /// Half lies below.
    pub median: f64,
    /// Three quarters lie below.
    pub q3: f64,
    /// The greatest.
    pub max: f64,
}

impl Summary {
    /// Of the finite ones of `values`; absent where there is none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        Some(Self {
            n: sorted.len(),
            min,
            q1: quantile_of_sorted(&sorted, 0.25),
            median: quantile_of_sorted(&sorted, 0.5),
            q3: quantile_of_sorted(&sorted, 0.75),
            max,
        })
    }
}

/// One value and the interval that holds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The value itself.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Values on the smaller of the two sides.
    pub n: usize,
}

/// The median of `values` with its interval, as [`ratio_of_medians`].
pub fn bootstrap_median(values: &[f64], seed: u64) -> Option<Interval> {
    // Over a constant: what is left is the interval of the median itself.
    ratio_of_medians(values, &vec![1.0; values.len()], seed)
}

/// What `of` makes of the values of all rounds of `above` together, over the same of `below`, with the bootstrap's percentile
/// interval: rounds are resampled, not their values, which depend on one another.
///
/// Absent where a side has no values, or `of` makes no positive number of `below`'s.
pub fn ratio_of_pools(
    above: &[Vec<f64>],
    below: &[Vec<f64>],
    seed: u64,
    of: impl Fn(&[f64]) -> Option<f64>,
) -> Option<Interval> {
    let ratio = |above: &[f64], below: &[f64]| {
        let ratio = of(above)? / of(below).filter(|below| *below > 0.0)?;
        ratio.is_finite().then_some(ratio)
    };
    let value = ratio(&above.concat(), &below.concat())?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut drawn = |rounds: &[Vec<f64>]| -> Vec<f64> {
        let one = |_| rounds[random.random_range(0..rounds.len())].as_slice();
        rounds.iter().flat_map(one).copied().collect()
    };
    let mut ratios: Vec<f64> =
        (0..RESAMPLES).filter_map(|_| ratio(&drawn(above), &drawn(below))).collect();
    if ratios.is_empty() {
        return None;
    }
    Some(percentiles(value, &mut ratios, above.len().min(below.len())))
}

/// A value with the percentile interval of its resamples, of which there are some.
fn percentiles(value: f64, resampled: &mut [f64], n: usize) -> Interval {
    resampled.sort_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    Interval {
        value,
        // Few and skewed values can leave the value itself outside of the percentiles.
        low: quantile_of_sorted(resampled, tail).min(value),
        high: quantile_of_sorted(resampled, 1.0 - tail).max(value),
        n,
    }
}

/// The median of `above` over the median of `below`, with the bootstrap's percentile interval
/// ([`CONFIDENCE`], [`RESAMPLES`]); the same seed gives the same interval.
///
/// Absent where a side has no values, or `below` has any that is zero or less: the ratio of
/// rates and times needs positive ones.
pub fn ratio_of_medians(above: &[f64], below: &[f64], seed: u64) -> Option<Interval> {
    let (above, below) = (sorted(above), sorted(below));
    if above.is_empty() || below.first().is_none_or(|&least| least <= 0.0) {
        return None;
    }
    let value = quantile_of_sorted(&above, 0.5) / quantile_of_sorted(&below, 0.5);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut buffer = Vec::with_capacity(above.len().max(below.len()));
    let mut ratios: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let above = resampled_median(&above, &mut buffer, &mut random);
            above / resampled_median(&below, &mut buffer, &mut random)
        })
        .filter(|ratio| ratio.is_finite())
        .collect();
    if !value.is_finite() || ratios.is_empty() {
        return None;
    }
    Some(percentiles(value, &mut ratios, above.len().min(below.len())))
}

/// The median of as many values, drawn with replacement.
fn resampled_median(values: &[f64], buffer: &mut Vec<f64>, random: &mut Xoshiro256PlusPlus) -> f64 {
    buffer.clear();
    buffer.extend((0..values.len()).map(|_| values[random.random_range(0..values.len())]));
    buffer.sort_by(f64::total_cmp);
    quantile_of_sorted(buffer, 0.5)
}

/// What is taken once, and what for each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Where the line begins.
    pub once: f64,
    /// How steeply it rises.
    pub each: f64,
}

/// The line through points (how many, what they took) by Theil and Sen: the median of the slopes between any
/// two, so that no single disturbed point turns it. Neither part is negative.
pub fn line(points: &[(f64, f64)]) -> Option<Line> {
    let mut slopes = Vec::new();
    for (index, a) in points.iter().enumerate() {
        for b in &points[index + 1..] {
            if a.0 != b.0 {
                slopes.push((b.1 - a.1) / (b.0 - a.0));
            }
        }
    }
    let each = median(&slopes)?.max(0.0);
    let rests: Vec<f64> = points.iter().map(|(count, ns)| ns - each * count).collect();
    Some(Line { once: median(&rests)?.max(0.0), each })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_are_those_of_r_and_numpy() {
        // quantile(c(1, 2, 4, 8, 16)) and quantile(1:4), type 7.
        let summary = Summary::of(&[8.0, 1.0, 16.0, 4.0, 2.0]).unwrap();
        assert_eq!(summary, Summary { n: 5, min: 1.0, q1: 2.0, median: 4.0, q3: 8.0, max: 16.0 });
        let summary = Summary::of(&[4.0, 2.0, 3.0, 1.0]).unwrap();
        assert_eq!((summary.q1, summary.median, summary.q3), (1.75, 2.5, 3.25));
        assert_eq!(quantile(&[10.0, 20.0], 0.75), Some(17.5));
    }

    #[test]
    fn pools_are_compared_by_rounds() {
        let most = |values: &[f64]| values.iter().copied().reduce(f64::max);
        let (ours, theirs) =
            ([vec![1.0, 4.0], vec![2.0, 8.0], vec![3.0]], [vec![2.0], vec![2.0], vec![2.0]]);
        let ratio = ratio_of_pools(&ours, &theirs, 1, most).expect("there are values");
        // The second round is left out of one resampling in three or so, never half of it.
        assert_eq!((ratio.value, ratio.high, ratio.n), (4.0, 4.0, 3));
        assert!([1.5, 2.0].contains(&ratio.low), "{}", ratio.low);
        assert_eq!(ratio_of_pools(&ours, &[vec![0.0]], 1, most), None);
        assert_eq!(ratio_of_pools(&ours, &[], 1, most), None);
    }

    #[test]
    fn nothing_gives_nothing() {
        assert!(median_of([]).is_nan() && nearest(&[], 0.5) == 0);
        assert_eq!((median_of([3.0, 1.0, 2.0]), nearest(&[1, 2, 3, 4, 5], 0.5)), (2.0, 3));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[f64::NAN, f64::INFINITY]), None);
        assert_eq!(Summary::of(&[f64::NEG_INFINITY, 2.0]).map(|summary| summary.n), Some(1));
        assert_eq!(ratio_of_medians(&[], &[1.0], 1), None);
        assert_eq!(ratio_of_medians(&[1.0], &[0.0, 1.0], 1), None);
        assert_eq!(ratio_of_medians(&[f64::MAX], &[f64::MIN_POSITIVE], 1), None);
    }

    #[test]
    fn the_interval_is_that_of_the_data_and_of_the_seed() {
        let above: Vec<f64> = (0..20).map(|index| 100.0 + f64::from(index)).collect();
        let below: Vec<f64> = (0..20).map(|index| 50.0 + f64::from(index) / 2.0).collect();
        let ratio = ratio_of_medians(&above, &below, 1).unwrap();
        assert_eq!(ratio.value, 2.0);
        assert_eq!(ratio.n, 20);
        assert!(ratio.low > 1.8 && ratio.low < 1.95, "{ratio:?}");
        assert!(ratio.high > 2.05 && ratio.high < 2.2, "{ratio:?}");
        assert_eq!(ratio_of_medians(&above, &below, 1), Some(ratio));
        let other = ratio_of_medians(&above, &below, 2).unwrap();
        assert_ne!(other, ratio);
        assert!((other.low - ratio.low).abs() < 0.03, "{ratio:?} {other:?}");
        let constant = ratio_of_medians(&[6.0; 5], &[3.0; 4], 1).unwrap();
        assert_eq!(constant, Interval { value: 2.0, low: 2.0, high: 2.0, n: 4 });
    }

    #[test]
    fn a_line_survives_a_wrong_point() {
        let mut points: Vec<(f64, f64)> =
            [1.0, 2.0, 4.0, 8.0, 16.0, 64.0].map(|count| (count, 100.0 + 7.0 * count)).into();
        assert_eq!(line(&points), Some(Line { once: 100.0, each: 7.0 }));
        points[2].1 = 9_000.0;
        let found = line(&points).expect("a line");
        assert!((found.each - 7.0).abs() < 0.5 && (found.once - 100.0).abs() < 5.0, "{found:?}");
        for few in [&[][..], &[(1.0, 5.0)], &[(5.0, 1.0), (5.0, 2.0)]] {
            assert_eq!(line(few), None, "one number of them, or none");
        }
        let found = line(&[(1.0, 101.0), (8.0, 108.5), (64.0, 163.5)]).expect("three places");
        assert!((found.each - 0.99).abs() < 0.02 && (found.once - 100.0).abs() < 1.0, "{found:?}");
        assert_eq!(line(&[(1.0, 5.0), (2.0, 3.0)]), Some(Line { once: 4.0, each: 0.0 }));
    }

    proptest! {
        #[test]
        fn order_statistics_are_ordered(values in prop::collection::vec(prop::num::f64::ANY, 0..40)) {
            let finite = values.iter().filter(|value| value.is_finite()).count();
            match Summary::of(&values) {
                None => prop_assert_eq!(finite, 0),
                Some(s) => {
                    prop_assert_eq!(s.n, finite);
                    prop_assert!(s.min <= s.q1 && s.q1 <= s.median);
                    prop_assert!(s.median <= s.q3 && s.q3 <= s.max);
                    let below = values.iter().filter(|value| **value <= s.median).count();
                    prop_assert!(2 * below >= finite);
                }
            }
        }

        #[test]
        fn a_median_does_not_see_the_order(
            mut values in prop::collection::vec(-1e9..1e9, 1..30),
            turn in 0usize..30,
        ) {
            let before = median(&values);
            let turn = turn % values.len();
            values.rotate_left(turn);
            prop_assert_eq!(median(&values), before);
        }

        #[test]
        fn intervals_hold_their_value(
            above in prop::collection::vec(1e-3..1e3, 1..12),
            below in prop::collection::vec(1e-3..1e3, 1..12),
            seed: u64,
        ) {
            let ratio = ratio_of_medians(&above, &below, seed).unwrap();
            prop_assert!(ratio.low <= ratio.value && ratio.value <= ratio.high);
            let (above, below) = (Summary::of(&above).unwrap(), Summary::of(&below).unwrap());
            prop_assert!(ratio.low >= above.min / below.max * 0.999);
            prop_assert!(ratio.high <= above.max / below.min * 1.001);
        }
    }
}
