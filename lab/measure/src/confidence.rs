//! How well a few repeats tell the median of all that could have been made.
//!
//! ```
//! use measure::median_interval;
//! let repeats = [101.0, 97.0, 99.0, 104.0, 100.0, 98.0];
//! let interval = median_interval(&repeats, 0.95).unwrap();
//! assert_eq!((interval.low, interval.high), (97.0, 104.0));
//! assert!(interval.level > 0.968 && interval.level < 0.969);
//! assert_eq!(median_interval(&repeats[..5], 0.95), None);
//! ```
//!
//! The interval is the one of order statistics (the sign test's; David and Nagaraja, *Order
//! Statistics*, §7.1): of `n` independent repeats, each lies below the median with chance one half,
//! whatever their distribution, so that the `k`-th smallest and the `k`-th largest enclose it but for
//! twice the chance of fewer than `k` heads in `n` throws. Repeats are of one machine at one time: it
//! says nothing of other machines or days.

use serde::{Deserialize, Serialize};

/// Repeats from which on there is an interval of 95 %: five give 93.75 % at most.
pub const REPEATS_FOR_95: usize = 6;

/// Two of the values, and how surely they enclose the median.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MedianInterval {
    /// Lower end: one of the values.
    pub low: f64,
    /// Upper end: one of the values.
    pub high: f64,
    /// The chance that the median lies between, at least the one that was asked for.
    pub level: f64,
}

/// The narrowest interval of order statistics that encloses the median with a chance of at least
/// `level` (0 to 1); `None` where there are too few values, or one that is no number.
pub fn median_interval(values: &[f64], level: f64) -> Option<MedianInterval> {
    if values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let mut found = None;
    // The chance of exactly `below` heads, and of up to as many.
    let (mut exactly, mut up_to) = (0.5f64.powi(i32::try_from(n).ok()?), 0.0);
    for below in 0..n / 2 {
        up_to += exactly;
        exactly *= (n - below) as f64 / (below + 1) as f64;
        let encloses = 1.0 - 2.0 * up_to;
        if encloses < level {
            break;
        }
        let (low, high) = (sorted[below], sorted[n - 1 - below]);
        found = Some(MedianInterval { low, high, level: encloses });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn the_ranks_are_those_of_the_tables() {
        let values = |n: u32| (1..=n).map(f64::from).collect::<Vec<_>>();
        // n, rank of the lower end, level: tables of the sign test.
        for (n, rank, level) in
            [(6, 1.0, 0.96875), (8, 1.0, 0.9921875), (9, 2.0, 0.9609375), (12, 3.0, 0.9614)]
        {
            let interval = median_interval(&values(n), 0.95).expect("enough");
            assert_eq!((interval.low, interval.high), (rank, f64::from(n) + 1.0 - rank), "{n}");
            assert!((interval.level - level).abs() < 1e-4, "{n}: {}", interval.level);
        }
        assert_eq!(median_interval(&values(REPEATS_FOR_95 as u32 - 1), 0.95), None);
        assert!(median_interval(&values(REPEATS_FOR_95 as u32), 0.95).is_some());
        assert_eq!(median_interval(&[], 0.95), None);
        assert_eq!(median_interval(&[f64::NAN; 9], 0.95), None);
    }

    #[test]
    fn it_encloses_the_median_as_often_as_it_says() {
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(7);
        let tries = 4_000;
        let mut enclosed = 0;
        for _ in 0..tries {
            // A skewed distribution whose median is ln 2.
            let values: Vec<f64> =
                (0..9).map(|_| -rng.random_range(f64::MIN_POSITIVE..1.0).ln()).collect();
            let interval = median_interval(&values, 0.95).expect("enough");
            let median = std::f64::consts::LN_2;
            enclosed += u32::from(interval.low <= median && median <= interval.high);
        }
        // 96.09 %, give or take six standard deviations.
        let share = f64::from(enclosed) / f64::from(tries);
        assert!((share - 0.9609).abs() < 0.0185, "{share}");
    }
}
