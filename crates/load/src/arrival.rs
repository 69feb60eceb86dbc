//! Open-loop arrival processes: *when* each request is meant to be sent.
//!
//! ```
//! use tailplane_load::{ArrivalProcess, Arrivals};
//! // 1,000 requests a second, evenly spaced, from t = 0.
//! let mut arrivals = Arrivals::new(ArrivalProcess::Deterministic, 1_000.0, 0, 1);
//! assert_eq!(arrivals.next_ns(), 1_000_000);
//! arrivals.advance();
//! assert_eq!(arrivals.next_ns(), 2_000_000);
//! ```

use std::fmt;
use std::str::FromStr;

use rand::{RngExt, SeedableRng};
use rand_distr::Exp1;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::config::ConfigError;

/// Shape of the gaps between intended send times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrivalProcess {
    /// Exponential gaps: many independent clients (ZygOS §2.3, the M of M/G/n).
    Poisson,
    /// Equal gaps.
    Deterministic,
}

impl fmt::Display for ArrivalProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Poisson => "poisson",
            Self::Deterministic => "deterministic",
        })
    }
}

impl FromStr for ArrivalProcess {
    type Err = ConfigError;
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match text {
            "poisson" => Ok(Self::Poisson),
            "deterministic" => Ok(Self::Deterministic),
            _ => Err(ConfigError::new("arrivals", text, "poisson, deterministic")),
        }
    }
}

/// The sequence of intended send times of one run, in nanoseconds of the caller's clock.
#[derive(Debug, Clone)]
pub struct Arrivals {
    process: ArrivalProcess,
    mean_gap_ns: f64,
    next_ns: u64,
    /// What rounding to whole nanoseconds left over, 0 to 1: without it, a rate whose gap is not
    /// a whole number of nanoseconds drifts.
    fraction_ns: f64,
    rng: Xoshiro256PlusPlus,
}

impl Arrivals {
    /// Arrivals at `rps` requests per second, the first one gap after `start_ns`. A rate that is
    /// not positive never arrives (a checked configuration has none).
    pub fn new(process: ArrivalProcess, rps: f64, start_ns: u64, seed: u64) -> Self {
        let mean_gap_ns = if rps > 0.0 { 1e9 / rps } else { f64::INFINITY };
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut arrivals = Self { process, mean_gap_ns, next_ns: start_ns, fraction_ns: 0.0, rng };
        arrivals.advance();
        arrivals
    }

    /// The intended time of the next request. Never earlier than the one before.
    pub const fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Goes on to the request after the next.
    pub fn advance(&mut self) {
        let gap_ns = match self.process {
            ArrivalProcess::Poisson => self.rng.sample::<f64, _>(Exp1) * self.mean_gap_ns,
            ArrivalProcess::Deterministic => self.mean_gap_ns,
        };
        let exact_ns = gap_ns + self.fraction_ns;
        // The cast saturates, and so does the sum: an infinite gap ends the sequence.
        let whole_ns = exact_ns as u64;
        self.fraction_ns = if exact_ns.is_finite() { exact_ns - whole_ns as f64 } else { 0.0 };
        self.next_ns = self.next_ns.saturating_add(whole_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: usize = 100_000;

    fn gaps(process: ArrivalProcess, rps: f64) -> Vec<f64> {
        let mut arrivals = Arrivals::new(process, rps, 0, 42);
        let mut last = 0;
        (0..SAMPLES)
            .map(|_| {
                let now = arrivals.next_ns();
                arrivals.advance();
                let gap = now - last;
                last = now;
                gap as f64
            })
            .collect()
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_variance_of_the_exponential() {
        let mean_ns = 1e9 / 50_000.0;
        let gaps = gaps(ArrivalProcess::Poisson, 50_000.0);
        let mean = gaps.iter().sum::<f64>() / SAMPLES as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / SAMPLES as f64;
        // Four standard errors: mean/sqrt(n), and sqrt(8) * mean^2/sqrt(n) for the variance.
        let root = (SAMPLES as f64).sqrt();
        assert!((mean - mean_ns).abs() < 4.0 * mean_ns / root, "mean {mean}");
        let expected = mean_ns * mean_ns;
        assert!(
            (variance - expected).abs() < 4.0 * 8f64.sqrt() * expected / root,
            "variance {variance}"
        );
    }

    #[test]
    fn poisson_gaps_pass_a_kolmogorov_smirnov_check_against_the_exponential() {
        let mean_ns = 1e9 / 50_000.0;
        let mut gaps = gaps(ArrivalProcess::Poisson, 50_000.0);
        gaps.sort_by(f64::total_cmp);
        let n = SAMPLES as f64;
        let distance = gaps
            .iter()
            .enumerate()
            .map(|(i, gap)| {
                let cdf = 1.0 - (-gap / mean_ns).exp();
                (cdf - i as f64 / n).abs().max((cdf - (i + 1) as f64 / n).abs())
            })
            .fold(0.0, f64::max);
        // 1.63 / sqrt(n) is the 1 % critical value; equal gaps would give 0.63.
        assert!(distance < 1.63 / n.sqrt(), "distance {distance}");
    }

    #[test]
    fn equal_gaps_do_not_drift_at_a_rate_that_does_not_divide_a_second() {
        let mut arrivals = Arrivals::new(ArrivalProcess::Deterministic, 3_000_000.0, 7, 1);
        for _ in 1..3_000_000 {
            arrivals.advance();
        }
        assert!(arrivals.next_ns().abs_diff(1_000_000_007) <= 1, "{}", arrivals.next_ns());
    }

    #[test]
    fn one_seed_gives_one_sequence_and_time_never_goes_back() {
        let mut a = Arrivals::new(ArrivalProcess::Poisson, 1e6, 100, 3);
        let mut b = a.clone();
        let mut other = Arrivals::new(ArrivalProcess::Poisson, 1e6, 100, 4);
        let mut last = 100;
        let mut differ = false;
        for _ in 0..1_000 {
            assert_eq!(a.next_ns(), b.next_ns());
            assert!(a.next_ns() >= last);
            last = a.next_ns();
            differ |= a.next_ns() != other.next_ns();
            a.advance();
            b.advance();
            other.advance();
        }
        assert!(differ, "another seed gives another sequence");
    }

    #[test]
    fn a_rate_of_zero_never_arrives() {
        let mut arrivals = Arrivals::new(ArrivalProcess::Poisson, 0.0, 5, 1);
        assert_eq!(arrivals.next_ns(), u64::MAX);
        arrivals.advance();
        assert_eq!(arrivals.next_ns(), u64::MAX);
    }
}
