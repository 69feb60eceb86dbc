//! Exponentially weighted moving averages, with several smoothing factors in parallel (IX §4.6):
//! `Q(t, a) = a Q_now + (1 - a) Q(t-1, a)`.
//!
//! IX's instants are 10 ms apart. Ours may be further, after a gap, or nearer; so an average has a time
//! constant, and a = 1 - exp(-period / constant) follows from how long the new value stands for.

/// One average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ewma {
    constant_ns: f64,
    value: f64,
    is_empty: bool,
    /// The last period and its smoothing factor: periods seldom change.
    last_period_ns: f64,
    alpha: f64,
}

impl Ewma {
    /// Without a value. A step is followed to 63 % within `constant_ns` nanoseconds.
    pub fn new(constant_ns: f64) -> Self {
        assert!(constant_ns > 0.0, "an average needs a time constant over 0");
        Self { constant_ns, value: 0.0, is_empty: true, last_period_ns: 0.0, alpha: 0.0 }
    }

    /// Takes a value that stands for the last `period_ns` nanoseconds; one that is no number is passed over.
    pub fn add(&mut self, value: f64, period_ns: f64) {
        if !value.is_finite() {
            return;
        }
        if self.is_empty {
            (self.value, self.is_empty) = (value, false);
            return;
        }
        if period_ns != self.last_period_ns {
            self.alpha = 1.0 - (-period_ns.max(0.0) / self.constant_ns).exp();
            self.last_period_ns = period_ns;
        }
        self.value += self.alpha * (value - self.value);
    }

    /// The average; 0 before the first value.
    pub fn get(&self) -> f64 {
        self.value
    }

    /// Whether there was no value yet.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }
}

/// The same quantity over three horizons, as IXCP keeps them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Averages {
    /// Follows at once.
    pub fast: Ewma,
    /// Between.
    pub middle: Ewma,
    /// Hardly moves.
    pub slow: Ewma,
}

impl Averages {
    /// With these time constants, in nanoseconds.
    pub fn new(constants_ns: [f64; 3]) -> Self {
        let [fast, middle, slow] = constants_ns.map(Ewma::new);
        Self { fast, middle, slow }
    }

    /// Takes a value into all three.
    pub fn add(&mut self, value: f64, period_ns: f64) {
        for average in [&mut self.fast, &mut self.middle, &mut self.slow] {
            average.add(value, period_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_recurrence_is_that_of_the_paper() {
        let (alpha, period_ns) = (0.25, 10e6);
        // Its smoothing factor at one value a period is `alpha`.
        let mut ours = Ewma::new(-period_ns / (1.0_f64 - alpha).ln());
        let mut paper = 8.0;
        ours.add(8.0, period_ns);
        for value in [0.0, 3.0, 100.0, 7.0] {
            paper = alpha * value + (1.0 - alpha) * paper;
            ours.add(value, period_ns);
            assert!((ours.get() - paper).abs() < 1e-9);
        }
        ours.add(f64::NAN, period_ns);
        assert!((ours.get() - paper).abs() < 1e-9);
    }

    proptest! {
        /// One value for a long time, or the same in parts: the average is the same. So gaps do no harm.
        #[test]
        fn it_depends_on_time_and_not_on_the_number_of_readings(
            value in -1e6f64..1e6, parts in 1u32..50, period in 1.0f64..1e9,
        ) {
            let mut whole = Ewma::new(1e8);
            whole.add(1.0, 1.0);
            let mut cut = whole;
            whole.add(value, period);
            for _ in 0..parts {
                cut.add(value, period / f64::from(parts));
            }
            prop_assert!((whole.get() - cut.get()).abs() <= 1e-6 * value.abs().max(1.0));
        }

        #[test]
        fn it_stays_between_what_it_has_seen(values in prop::collection::vec(0.0f64..1e9, 1..50)) {
            let mut averages = Averages::new([1e6, 1e7, 1e8]);
            for &value in &values {
                averages.add(value, 1e6);
            }
            let (low, high) = values.iter().fold((f64::MAX, 0.0f64), |(l, h), &v| (l.min(v), h.max(v)));
            for average in [averages.fast, averages.middle, averages.slow] {
                prop_assert!((low..=high).contains(&average.get()));
            }
        }
    }
}
