//! Open-loop arrival processes: *when* each request is meant to be sent.
//!
//! ```
//! use load::{ArrivalProcess, Arrivals};
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

use crate::pattern::{Pattern, RateWalk};
use crate::setting::{ConfigError, check_range, parse_number};

/// Most requests of one burst.
pub const BURST_MAX: u32 = 65_536;
/// Shape of Facebook's inter-arrival gaps, a generalized Pareto distribution with location zero
/// (Atikoglu et al., SIGMETRICS 2012, §5: scale 16.0292 us, shape 0.154971). The scale follows
/// from the rate that is asked for.
const FACEBOOK_SHAPE: f64 = 0.154_971;

const ALLOWED: &str = "poisson, deterministic, uniform, bursty:N, facebook";

/// Shape of the gaps between intended send times. Written as in `ALLOWED`: `bursty:8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrivalProcess {
    /// Exponential gaps: many independent clients (ZygOS §2.3, the M of M/G/n).
    Poisson,
    /// Equal gaps.
    Deterministic,
    /// Gaps spread evenly from zero to twice the mean: less bursty than Poisson.
    Uniform,
    /// Bursts of requests back to back; the bursts' beginnings are a Poisson process.
    Bursty {
        /// Requests of one burst.
        burst: u32,
    },
    /// Generalized Pareto gaps as Facebook measured them on its ETC pool: a longer tail than the
    /// exponential's.
    Facebook,
}

impl ArrivalProcess {
    /// Checks the process's own setting.
    ///
    /// # Errors
    /// A burst of no request, or of more than [`BURST_MAX`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::Bursty { burst } => check_range("burst", *burst, 1, BURST_MAX),
            _ => Ok(()),
        }
    }

    /// Requests that stand together: the gaps of the process are those between such groups.
    pub const fn group(&self) -> u32 {
        match self {
            Self::Bursty { burst } => *burst,
            _ => 1,
        }
    }

    /// The share of gaps between groups that are at most `gap` long, in mean gaps between
    /// requests; `None` where all gaps are equal and there is no density to compare with.
    pub fn gap_share_below(&self, gap: f64) -> Option<f64> {
        if *self == Self::Deterministic {
            return None;
        }
        if gap <= 0.0 {
            return Some(0.0);
        }
        Some(match self {
            Self::Poisson | Self::Deterministic => 1.0 - (-gap).exp(),
            Self::Uniform => (gap / 2.0).min(1.0),
            Self::Bursty { burst } => 1.0 - (-gap / f64::from(*burst)).exp(),
            Self::Facebook => {
                let scale = 1.0 - FACEBOOK_SHAPE;
                1.0 - (1.0 + FACEBOOK_SHAPE * gap / scale).powf(-1.0 / FACEBOOK_SHAPE)
            }
        })
    }

    /// Draws a gap between groups, in mean gaps between requests.
    fn draw_gap(&self, rng: &mut Xoshiro256PlusPlus) -> f64 {
        match self {
            Self::Poisson => rng.sample::<f64, _>(Exp1),
            Self::Deterministic => 1.0,
            Self::Uniform => 2.0 * rng.random::<f64>(),
            Self::Bursty { burst } => rng.sample::<f64, _>(Exp1) * f64::from(*burst),
            Self::Facebook => {
                // The mean of a generalized Pareto distribution is scale / (1 - shape).
                let scale = 1.0 - FACEBOOK_SHAPE;
                let rest = 1.0 - rng.random::<f64>();
                scale * (rest.powf(-FACEBOOK_SHAPE) - 1.0) / FACEBOOK_SHAPE
            }
        }
    }
}

impl fmt::Display for ArrivalProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Poisson => "poisson",
            Self::Deterministic => "deterministic",
            Self::Uniform => "uniform",
            Self::Bursty { burst } => return write!(f, "bursty:{burst}"),
            Self::Facebook => "facebook",
        })
    }
}

impl FromStr for ArrivalProcess {
    type Err = ConfigError;
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let process = match text {
            "poisson" => Self::Poisson,
            "deterministic" => Self::Deterministic,
            "uniform" => Self::Uniform,
            "facebook" => Self::Facebook,
            _ => match text.strip_prefix("bursty:") {
                Some(burst) => {
                    Self::Bursty { burst: parse_number("arrivals", text, burst, ALLOWED)? }
                }
                None => return Err(ConfigError::new("arrivals", text, ALLOWED)),
            },
        };
        process.validate()?;
        Ok(process)
    }
}

/// How gaps become time.
#[derive(Debug, Clone)]
enum Pace {
    /// One rate: a mean gap in nanoseconds.
    Even(f64),
    /// A rate that changes: the gaps are those of the process in operational time.
    Pattern(RateWalk),
}

/// The sequence of intended send times of one run, in nanoseconds of the caller's clock.
#[derive(Debug, Clone)]
pub struct Arrivals {
    process: ArrivalProcess,
    pace: Pace,
    next_ns: u64,
    /// Requests of the present group that come at the same moment as the next one.
    left_in_group: u32,
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
        Self::with_pace(process, Pace::Even(mean_gap_ns), start_ns, seed)
    }

    /// Arrivals from `start_ns` on at a rate that follows `pattern` with the peak `peak_rps`; the
    /// pattern itself begins at `origin_ns`, and its first rate holds until then. The process's
    /// gaps are drawn in operational time, so that a Poisson process stays one, with this rate.
    pub fn following(
        pattern: Pattern,
        process: ArrivalProcess,
        peak_rps: f64,
        (start_ns, origin_ns): (u64, u64),
        seed: u64,
    ) -> Self {
        let walk = RateWalk::new(pattern, peak_rps, origin_ns, start_ns);
        Self::with_pace(process, Pace::Pattern(walk), start_ns, seed)
    }

    fn with_pace(process: ArrivalProcess, pace: Pace, start_ns: u64, seed: u64) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (next_ns, fraction_ns) = (start_ns, 0.0);
        let mut arrivals = Self { process, pace, next_ns, left_in_group: 0, fraction_ns, rng };
        arrivals.advance();
        arrivals
    }

    /// The intended time of the next request. Never earlier than the one before.
    pub const fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Whether the next request is the first of its group: the gaps of the process are between
    /// those.
    pub const fn begins_group(&self) -> bool {
        self.left_in_group + 1 == self.process.group()
    }

    /// Goes on to the request after the next.
    pub fn advance(&mut self) {
        if self.left_in_group > 0 {
            self.left_in_group -= 1;
            return;
        }
        self.left_in_group = self.process.group().saturating_sub(1);
        let gap = self.process.draw_gap(&mut self.rng);
        let mean_gap_ns = match &mut self.pace {
            Pace::Even(mean_gap_ns) => *mean_gap_ns,
            Pace::Pattern(walk) => {
                self.next_ns = self.next_ns.max(walk.after(gap));
                return;
            }
        };
        let exact_ns = gap * mean_gap_ns + self.fraction_ns;
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

    /// Mean, variance and the third quartile of each process, in mean gaps: closed forms.
    #[test]
    fn every_process_has_the_moments_and_quantiles_of_its_closed_form() {
        let k = FACEBOOK_SHAPE;
        let scale = 1.0 - k;
        for (process, variance, third_quartile) in [
            (ArrivalProcess::Poisson, 1.0, 4f64.ln()),
            (ArrivalProcess::Uniform, 1.0 / 3.0, 1.5),
            // The gaps of a burst's requests are zero but for one in eight, an exponential of 8.
            (ArrivalProcess::Bursty { burst: 8 }, 2.0 * 64.0 / 8.0 - 1.0, 0.0),
            (
                ArrivalProcess::Facebook,
                scale * scale / ((1.0 - k) * (1.0 - k) * (1.0 - 2.0 * k)),
                scale * (4f64.powf(k) - 1.0) / k,
            ),
        ] {
            let mut gaps: Vec<f64> =
                gaps(process, 50_000.0).iter().map(|gap| gap / 20_000.0).collect();
            gaps.sort_by(f64::total_cmp);
            let n = gaps.len() as f64;
            let mean = gaps.iter().sum::<f64>() / n;
            let found = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / n;
            assert!((mean - 1.0).abs() < 5.0 * (variance / n).sqrt(), "{process}: mean {mean}");
            assert!((found / variance - 1.0).abs() < 0.06, "{process}: {found} of {variance}");
            let quartile = gaps[gaps.len() / 4 * 3];
            assert!((quartile - third_quartile).abs() < 0.03, "{process}: {quartile}");
            if process.group() == 1 {
                let share = process.gap_share_below(third_quartile).expect("has a density");
                assert!((share - 0.75).abs() < 1e-9, "{process}: {share}");
            }
        }
    }

    #[test]
    fn facebooks_gaps_have_the_published_scale_at_the_published_rate() {
        // Scale 16.0292 us and shape 0.154971 have the mean gap 16.0292 / (1 - 0.154971) us.
        let mean_us = 16.029_2 / (1.0 - 0.154_971);
        let median_us = 16.029_2 * (2f64.powf(0.154_971) - 1.0) / 0.154_971;
        let share = ArrivalProcess::Facebook.gap_share_below(median_us / mean_us);
        assert!((share.expect("has a density") - 0.5).abs() < 1e-6);
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        for text in ["poisson", "deterministic", "uniform", "bursty:16", "facebook"] {
            assert_eq!(text.parse::<ArrivalProcess>().expect(text).to_string(), text);
        }
        for text in ["", "bursty", "bursty:", "bursty:x", "normal"] {
            let error = text.parse::<ArrivalProcess>().expect_err(text);
            assert_eq!((error.value.as_str(), error.allowed.as_str()), (text, ALLOWED));
        }
        assert!("bursty:0".parse::<ArrivalProcess>().is_err());
        let arrivals = ArrivalProcess::Bursty { burst: 4 };
        let mode = crate::Mode::Open { rps: 1.0, arrivals, depth: 1 };
        let json = serde_json::to_value(mode).expect("serializes");
        assert_eq!(json["arrivals"], "bursty:4");
    }

    #[test]
    fn a_rate_of_zero_never_arrives() {
        let mut arrivals = Arrivals::new(ArrivalProcess::Poisson, 0.0, 5, 1);
        assert_eq!(arrivals.next_ns(), u64::MAX);
        arrivals.advance();
        assert_eq!(arrivals.next_ns(), u64::MAX);
    }
}
