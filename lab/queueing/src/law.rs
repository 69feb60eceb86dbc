//! How long requests take: the four laws of ZygOS §2.3, times that were measured, and what is added to them.
//!
//! ```
//! use queueing::{Law, Service};
//! assert_eq!(Law::Bimodal2.quantile(0.99), 0.5);
//! let service = Service { law: Law::Exponential, mean: 10.0, overhead: 1.5 }; // microseconds
//! assert_eq!(service.total_mean(), 11.5);
//! ```

use rand::{Rng, RngExt};
use rand_distr::{Distribution, Exp1};

use crate::error::{Invalid, check};
use crate::trace::Trace;

/// One value of a law that has few, and how often it comes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mode {
    /// Its share of the requests.
    pub share: f64,
    /// The service time in means.
    pub multiple: f64,
}

/// A distribution of service times with the mean one (ZygOS §2.3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Law {
    /// P(X = 1) = 1.
    Deterministic,
    /// P(X > x) = e^-x.
    Exponential,
    /// P(X = 0.5) = 0.9, P(X = 5.5) = 0.1.
    Bimodal1,
    /// P(X = 0.5) = 0.999, P(X = 500.5) = 0.001.
    Bimodal2,
    /// Drawn from a list: a user's own.
    Trace(Trace),
}

impl Law {
    /// Those of the paper, in its order.
    pub const ALL: [Self; 4] =
        [Self::Deterministic, Self::Exponential, Self::Bimodal1, Self::Bimodal2];

    /// As the paper writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deterministic => "deterministic",
            Self::Exponential => "exponential",
            Self::Bimodal1 => "bimodal-1",
            Self::Bimodal2 => "bimodal-2",
            Self::Trace(_) => "trace",
        }
    }

    /// The law of that name, of those of the paper.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|law| law.name() == name)
    }

    /// The values of a law that has few, the short one first; `None` for the exponential one and for lists.
    pub const fn modes(self) -> Option<[Mode; 2]> {
        let (share, short, long) = match self {
            Self::Exponential | Self::Trace(_) => return None,
            Self::Deterministic => (1.0, 1.0, 1.0),
            Self::Bimodal1 => (0.9, 0.5, 5.5),
            Self::Bimodal2 => (0.999, 0.5, 500.5),
        };
        Some([Mode { share, multiple: short }, Mode { share: 1.0 - share, multiple: long }])
    }

    /// E(X^power).
    pub fn moment(self, power: u32) -> f64 {
        if let Self::Trace(trace) = self {
            return trace.moment(power);
        }
        match self.modes() {
            None => (1..=power).map(f64::from).product(),
            Some(modes) => {
                modes.iter().map(|mode| mode.share * mode.multiple.powi(power as i32)).sum()
            }
        }
    }

    /// The squared coefficient of variation, Var(X) / E(X)²: 0, 1, 2.25 and 249.75.
    pub fn scv(self) -> f64 {
        self.moment(2) - 1.0
    }

    /// The least x with P(X ≤ x) >= `share`: the tail latency where nothing ever waits.
    pub fn quantile(self, share: f64) -> f64 {
        if let Self::Trace(trace) = self {
            return trace.quantile(share);
        }
        match self.modes() {
            None => -(1.0 - share).ln(),
            Some([short, long]) => {
                if share <= short.share {
                    short.multiple
                } else {
                    long.multiple
                }
            }
        }
    }

    /// One service time.
    #[inline]
    pub fn draw(self, random: &mut impl Rng) -> f64 {
        match self {
            Self::Deterministic => 1.0,
            Self::Exponential => Exp1.sample(random),
            Self::Bimodal1 | Self::Bimodal2 => {
                let [short, long] = if self == Self::Bimodal1 { MODES_1 } else { MODES_2 };
                if random.random::<f64>() < short.share { short.multiple } else { long.multiple }
            }
            Self::Trace(trace) => trace.draw(random),
        }
    }
}

const MODES_1: [Mode; 2] = Law::Bimodal1.modes().expect("it has two");
const MODES_2: [Mode; 2] = Law::Bimodal2.modes().expect("it has two");

/// The time that a server is taken by one request: `law` times `mean`, and `overhead` on top.
///
/// The unit is the caller's; all times that come out are in the same one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Service {
    /// The shape.
    pub law: Law,
    /// S, the mean of the work itself.
    pub mean: f64,
    /// What each request costs beside it, always the same: network processing, scheduling.
    pub overhead: f64,
}

impl Service {
    /// The law with the mean one and no overhead: times are then in multiples of S.
    pub const fn unit(law: Law) -> Self {
        Self { law, mean: 1.0, overhead: 0.0 }
    }

    /// The mean with the overhead.
    pub fn total_mean(&self) -> f64 {
        self.mean + self.overhead
    }

    /// The least time that the share `share` of all requests does not exceed where nothing waits.
    pub fn quantile(&self, share: f64) -> f64 {
        self.law.quantile(share) * self.mean + self.overhead
    }

    /// Checks both times.
    ///
    /// # Errors
    /// A mean that is not positive, or a negative overhead.
    pub fn validate(&self) -> Result<(), Invalid> {
        check("mean service time", self.mean, 1e-9..=1e9)?;
        check("overhead", self.overhead, 0.0..=1e9)
    }

    /// One service time.
    #[inline]
    pub(crate) fn draw(&self, random: &mut impl Rng) -> f64 {
        self.law.draw(random) * self.mean + self.overhead
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn the_laws_are_those_of_the_paper() {
        // ZygOS §2.3: the least 99th percentiles; the second moments are 1, 2, 3.25 and 250.75.
        let least = [1.0, 100f64.ln(), 5.5, 0.5];
        let second = [1.0, 2.0, 3.25, 250.75];
        for ((law, least), second) in Law::ALL.into_iter().zip(least).zip(second) {
            assert!((law.quantile(0.99) - least).abs() < 1e-12, "{law:?}");
            assert!((law.moment(2) - second).abs() < 1e-9, "{law:?}: {}", law.moment(2));
            assert!((law.moment(1) - 1.0).abs() < 1e-12, "{law:?}");
            assert_eq!(Law::from_name(law.name()), Some(law));
        }
        assert_eq!(Law::from_name("normal"), None);
        assert_eq!(Law::Exponential.moment(4), 24.0);
        assert!((Law::Bimodal1.scv() - 2.25).abs() < 1e-12);
    }

    #[test]
    fn draws_follow_the_moments() {
        for law in [Law::Deterministic, Law::Exponential, Law::Bimodal1] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
            let service = Service { law, mean: 2.0, overhead: 0.5 };
            let draws = 200_000;
            let times: Vec<f64> = (0..draws).map(|_| service.draw(&mut random)).collect();
            // (mean · S + overhead)², multiplied out.
            let second = 4.0 * law.moment(2) + 2.0 * 2.0 * 0.5 + 0.5 * 0.5;
            for (power, expected) in [(1, service.total_mean()), (2, second)] {
                let values = times.iter().map(|time| time.powi(power));
                let (sum, squares) = values.fold((0.0, 0.0), |(a, b), v| (a + v, b + v * v));
                let mean = sum / f64::from(draws);
                let error = ((squares / f64::from(draws) - mean * mean) / f64::from(draws)).sqrt();
                assert!((mean - expected).abs() <= 4.0 * error + 1e-9, "{law:?}: {mean}");
            }
            let least = times.iter().copied().fold(f64::INFINITY, f64::min);
            assert!(least >= 0.5, "{least}");
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(6);
        let long = (0..1_000_000).filter(|_| Law::Bimodal2.draw(&mut random) > 1.0).count();
        // 1,000, give or take four standard deviations.
        assert!((873..=1_127).contains(&long), "{long}");
    }

    #[test]
    fn times_that_are_none_are_refused() {
        let good = Service::unit(Law::Bimodal1);
        assert_eq!(good.validate(), Ok(()));
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = Service { mean: bad, ..good }.validate().expect_err("refused");
            assert!(error.to_string().contains("mean service time"), "{error}");
        }
        assert!(Service { overhead: -0.1, ..good }.validate().is_err());
    }
}
