//! How well independent runs tell a mean: Student's t.
//!
//! ```
//! use measure::MeanInterval;
//! let interval = MeanInterval::of(&[9.8, 10.1, 10.0, 10.3], 0.95).unwrap();
//! assert!((interval.mean - 10.05).abs() < 1e-12);
//! assert!(interval.holds(10.0) && !interval.holds(11.0));
//! assert_eq!(MeanInterval::of(&[1.0], 0.95), None);
//! ```

/// A mean, and the ends between which the true one lies with a chance of `level`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanInterval {
    /// The mean of the values.
    pub mean: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Values it was made of.
    pub count: usize,
    /// The chance, if the values are independent and their mean about normal.
    pub level: f64,
}

impl MeanInterval {
    /// The interval of level `level` (0 to 1, exclusive) around the mean of `values`; `None` where
    /// there are fewer than two values, or one that is no number.
    pub fn of(values: &[f64], level: f64) -> Option<Self> {
        let count = values.len();
        let fits = count >= 2 && level > 0.0 && level < 1.0;
        if !fits || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let error = (squares / (count - 1) as f64 / count as f64).sqrt();
        let half = student_t((1.0 + level) / 2.0, count as u32 - 1) * error;
        Some(Self { mean, low: mean - half, high: mean + half, count, level })
    }

    /// Whether `value` lies between its ends.
    pub fn holds(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Half of its width.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// With both ends and the mean put through `map`, which must not fall.
    #[must_use]
    pub fn map(&self, map: impl Fn(f64) -> f64) -> Self {
        Self { mean: map(self.mean), low: map(self.low), high: map(self.high), ..*self }
    }
}

/// P(T ≤ t) of Student's distribution with `freedom` degrees, by the finite sums over the angle
/// atan(t / sqrt(freedom)) (Abramowitz and Stegun 26.7.3 and 26.7.4).
fn student_cdf(t: f64, freedom: u32) -> f64 {
    let angle = (t / f64::from(freedom).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let odd = freedom % 2 == 1;
    let (mut term, mut sum) = if odd { (cosine, 0.0) } else { (1.0, 1.0) };
    if odd && freedom > 1 {
        sum = cosine;
    }
    // Each term from the one before: 2/3 cos² and so on for odd degrees, 1/2 cos² for even ones.
    let mut at = if odd { 3 } else { 2 };
    while at < freedom {
        term *= f64::from(at - 1) / f64::from(at) * cosine * cosine;
        sum += term;
        at += 2;
    }
    let within = if odd { (angle + sine * sum) * std::f64::consts::FRAC_2_PI } else { sine * sum };
    0.5 + within / 2.0
}

/// The t that the share `share` (above one half) of Student's distribution does not exceed.
fn student_t(share: f64, freedom: u32) -> f64 {
    debug_assert!(share > 0.5 && share < 1.0 && freedom > 0);
    let mut high = 1.0;
    while student_cdf(high, freedom) < share && high < 1e15 {
        high *= 2.0;
    }
    let mut low = 0.0;
    // Until the ends are neighbours, or nearly.
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if student_cdf(middle, freedom) < share { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};

    #[test]
    fn the_values_are_those_of_the_tables() {
        for (share, freedom, t) in [
            (0.975, 1, 12.706),
            (0.975, 2, 4.303),
            (0.975, 3, 3.182),
            (0.975, 4, 2.776),
            (0.975, 9, 2.262),
            (0.975, 30, 2.042),
            (0.995, 5, 4.032),
            (0.9995, 7, 5.408),
            (0.95, 120, 1.658),
        ] {
            let found = student_t(share, freedom);
            assert!((found - t).abs() < 6e-4, "{share} {freedom}: {found}");
        }
    }

    #[test]
    fn it_holds_the_mean_as_often_as_it_says() {
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(11);
        let mut uniform = || random.next_u64() as f64 / 2f64.powi(64);
        let tries = 4_000;
        let held = (0..tries).filter(|_| {
            // Sums of twelve are as good as normal, with the mean six.
            let values: Vec<f64> = (0..5).map(|_| (0..12).map(|_| uniform()).sum()).collect();
            MeanInterval::of(&values, 0.95).expect("five values").holds(6.0)
        });
        let share = held.count() as f64 / f64::from(tries);
        assert!((share - 0.95).abs() < 0.0138, "{share}");
    }

    #[test]
    fn what_is_no_sample_has_no_interval() {
        for (values, level) in [
            (&[1.0, f64::NAN][..], 0.95),
            (&[], 0.95),
            (&[1.0, 2.0], 1.0),
            (&[1.0, 2.0], 0.0),
            (&[1.0, 2.0], f64::NAN),
        ] {
            assert_eq!(MeanInterval::of(values, level), None);
        }
        let same = MeanInterval::of(&[2.0; 3], 0.99).expect("three values");
        assert_eq!((same.low, same.high, same.half_width()), (2.0, 2.0, 0.0));
        assert_eq!(same.map(|value| value * 3.0).high, 6.0);
    }
}
