//! A distribution of times by counting: any quantile within 0.05 % of the value, in constant space.
//!
//! ```
//! let mut tail = queueing::Tail::new();
//! (1..=1_000).for_each(|time| tail.record(f64::from(time)));
//! assert!((tail.quantile(0.99) / 990.0 - 1.0).abs() < 5e-4);
//! assert_eq!(tail.mean(), 500.5);
//! ```
//!
//! The bits of a positive double are in the order of its value, so the upper ones are the bucket:
//! the exponent, and [`BITS`] of the fraction. One shift, where a logarithm would cost more than the
//! whole simulation of a request; and no unit is lost by rounding to integers first.

/// Bits of the fraction that tell buckets apart: 2,048 buckets to an octave.
const BITS: u32 = 11;
const SHIFT: u32 = 52 - BITS;
/// Times below are in the first bucket, times from `MOST` on in the last.
const LEAST: f64 = 1.0 / (1u64 << 24) as f64;
const MOST: f64 = (1u64 << 40) as f64;
const BASE: u64 = LEAST.to_bits() >> SHIFT;
const BUCKETS: usize = ((MOST.to_bits() >> SHIFT) - BASE) as usize;

/// Counted times.
#[derive(Debug, Clone)]
pub struct Tail {
    buckets: Box<[u64]>,
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
}

impl Default for Tail {
    fn default() -> Self {
        Self::new()
    }
}

impl Tail {
    /// Empty.
    pub fn new() -> Self {
        let buckets = vec![0; BUCKETS].into_boxed_slice();
        Self { buckets, count: 0, sum: 0.0, min: f64::INFINITY, max: 0.0 }
    }

    /// Counts one time; one that is negative or no number counts as zero.
    #[inline]
    pub fn record(&mut self, time: f64) {
        let time = if time > 0.0 { time } else { 0.0 };
        let index = (time.to_bits() >> SHIFT).saturating_sub(BASE) as usize;
        self.buckets[index.min(BUCKETS - 1)] += 1;
        self.count += 1;
        self.sum += time;
        self.min = if time < self.min { time } else { self.min };
        self.max = if time > self.max { time } else { self.max };
    }

    /// Counts all that `other` has counted.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Times counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; zero where there is none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// The greatest; zero where there is none.
    pub fn max(&self) -> f64 {
        self.max
    }

    /// The time that the share `share` (0 to 1) of all does not exceed; zero where there is none.
    /// Within a bucket, times are taken to lie evenly.
    pub fn quantile(&self, share: f64) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let rank = (share.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0);
        let mut below = 0.0;
        for (index, &inside) in self.buckets.iter().enumerate() {
            let inside = inside as f64;
            if below + inside >= rank {
                let edge = |index: usize| f64::from_bits((index as u64 + BASE) << SHIFT);
                let (low, high) = (edge(index), edge(index + 1));
                let time = low + (high - low) * (rank - below) / inside;
                return time.clamp(self.min, self.max);
            }
            below += inside;
        }
        self.max
    }

    /// The share of the times that are longer than `time`, to a bucket's width.
    pub fn share_above(&self, time: f64) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let time = if time > 0.0 { time } else { 0.0 };
        let first = (time.to_bits() >> SHIFT).saturating_sub(BASE) as usize;
        let above: u64 = self.buckets.iter().skip(first.saturating_add(1)).sum();
        above as f64 / self.count as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_value_is_exact_and_nothing_is_zero() {
        let mut tail = Tail::new();
        assert_eq!((tail.quantile(0.99), tail.mean(), tail.share_above(0.0)), (0.0, 0.0, 0.0));
        (0..1_000).for_each(|_| tail.record(0.5));
        assert_eq!((tail.quantile(0.0), tail.quantile(0.99), tail.max()), (0.5, 0.5, 0.5));
        assert_eq!((tail.share_above(0.49), tail.share_above(0.51)), (1.0, 0.0));
    }

    #[test]
    fn times_beyond_the_ends_are_counted() {
        let mut tail = Tail::new();
        for time in [-1.0, f64::NAN, 0.0, 1e-300, f64::INFINITY, 1e300] {
            tail.record(time);
        }
        assert_eq!(tail.count(), 6);
        assert!(tail.quantile(0.1) < 1.001 * LEAST);
        assert!(tail.quantile(1.0) >= MOST);
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_sorted_times(
            mut times in prop::collection::vec(1e-6f64..1e9, 1..300),
            share in 0.0f64..1.0,
        ) {
            let (mut tail, mut other) = (Tail::new(), Tail::new());
            for (index, &time) in times.iter().enumerate() {
                if index % 2 == 0 { tail.record(time) } else { other.record(time) }
            }
            tail.add(&other);
            times.sort_by(f64::total_cmp);
            let rank = ((share * times.len() as f64).ceil() as usize).max(1);
            let exact = times[rank - 1];
            prop_assert!((tail.quantile(share) / exact - 1.0).abs() < 5e-4);
            let above = times.iter().filter(|&&time| time > exact * 1.001).count();
            let above = above as f64 / times.len() as f64;
            prop_assert!(tail.share_above(exact) >= above);
        }
    }
}
