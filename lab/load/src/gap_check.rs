//! The generator's check of itself: do the requests leave as the arrival process says?
//!
//! Of the window's gaps a bounded sample is kept, each in mean gaps (where the rate follows a
//! pattern: in operational time), which makes those of several threads and of any rate
//! comparable. At the end the sample of *actual* send times is compared with the configured
//! distribution by the test of Kolmogorov and Smirnov. The moment at which the generator turned to
//! a request is only as fine as one round of its loop (a system call or two), so a gap is known up
//! to a *resolution*, the lateness that one request in a hundred exceeds: the distance is measured
//! to the nearest distribution that differs by no more than that. How late requests may be is
//! judged apart; this finds what lateness does not explain. Both the distance without this
//! allowance and that of the intended times are reported beside it.
//!
//! Of bursts, the gaps between their beginnings are judged: within one, requests leave together.
//!
//! Equal gaps have no density to compare with: there the share of gaps that are off by more than a
//! twentieth, or than the resolution, is the statistic. One request in a hundred is later than the
//! resolution, and each such makes the gap before it too long and the one after it too short: two
//! gaps in a hundred may be off, and of a sample as many as chance puts into it.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::arrival::ArrivalProcess;
use crate::pattern::RateWalk;

/// Gaps that are kept of one thread's window. At this number the critical distance is 0.03.
const SAMPLE_MAX: usize = 4_096;
/// Fewer gaps than these are not judged: the asymptotic critical value needs some.
const SAMPLE_MIN: usize = 50;
/// The test's level: the chance that a faultless generator is found at fault.
const ALPHA: f64 = 0.001;
/// By how much, in mean gaps, an equal gap may be off.
const EQUAL_GAP_TOLERANCE: f64 = 0.05;
/// The share of equal gaps that may be off by more: two for each of the requests that are later
/// than the resolution.
const EQUAL_GAP_SHARE: f64 = 0.02;

/// The result of the check, for the report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArrivalCheck {
    /// The test: `kolmogorov-smirnov`, or `share of gaps off` where all are to be equal.
    pub test: String,
    /// The process that was asked for.
    pub process: String,
    /// Gaps of the window.
    pub gaps: u64,
    /// Gaps in the sample.
    pub sampled: u64,
    /// Distance of the actual gaps from the process, beyond what the resolution explains.
    pub statistic: f64,
    /// The greatest distance that passes (level 0.001).
    pub critical: f64,
    /// Whether the actual send times passed.
    pub passed: bool,
    /// Distance of the actual gaps without the allowance.
    pub statistic_strict: f64,
    /// Distance of the intended gaps.
    pub statistic_intended: f64,
    /// The resolution, in mean gaps: near or above one, the test cannot tell much.
    pub resolution_gaps: f64,
}

/// How time is counted in mean gaps.
#[derive(Debug, Clone)]
enum Scale {
    /// One rate: the mean gap, in nanoseconds.
    Even(f64),
    /// A pattern: walks along it for the intended and for the actual times.
    Pattern { intended: RateWalk, actual: RateWalk },
}

/// Watches one thread's sends. Allocates its sample at the start.
#[derive(Debug, Clone)]
pub(crate) struct GapWatch {
    scale: Scale,
    last: Option<(u64, u64)>,
    sample: GapSample,
}

impl GapWatch {
    /// For one rate of `rps` requests per second.
    pub fn new(process: ArrivalProcess, rps: f64, seed: u64) -> Self {
        let mean_gap_ns = 1e9 / rps;
        let sample = GapSample::new(process, mean_gap_ns, seed);
        Self { scale: Scale::Even(mean_gap_ns), last: None, sample }
    }

    /// For a pattern, along which `walk` goes from the start on; `peak_rps` is its highest rate.
    pub fn following(process: ArrivalProcess, walk: RateWalk, peak_rps: f64, seed: u64) -> Self {
        let scale = Scale::Pattern { intended: walk.clone(), actual: walk };
        Self { scale, last: None, sample: GapSample::new(process, 1e9 / peak_rps, seed) }
    }

    /// The first request of a group was meant for `intended_ns` and handed over at `actual_ns`.
    pub fn on_send(&mut self, intended_ns: u64, actual_ns: u64) {
        let last = self.last.replace((intended_ns, actual_ns));
        let (intended, actual) = match (&mut self.scale, last) {
            (Scale::Even(mean_gap_ns), Some((last_intended_ns, last_actual_ns))) => (
                intended_ns.saturating_sub(last_intended_ns) as f64 / *mean_gap_ns,
                actual_ns.saturating_sub(last_actual_ns) as f64 / *mean_gap_ns,
            ),
            (Scale::Even(_), None) => return,
            (Scale::Pattern { intended, actual }, last) => {
                let gaps = (intended.until(intended_ns), actual.until(actual_ns));
                if last.is_none() {
                    return;
                }
                gaps
            }
        };
        self.sample.record(intended, actual);
    }

    /// What was seen.
    pub fn into_sample(self) -> GapSample {
        self.sample
    }
}

/// A sample of gaps, each of them intended and actual, in mean gaps: what another machine needs to have it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Gaps {
    /// The mean gap, in nanoseconds.
    pub mean_gap_ns: f64,
    /// Gaps that there were.
    pub seen: u64,
    /// Those that are kept.
    pub kept: Vec<(f32, f32)>,
}

/// A sample of the gaps of a process.
#[derive(Debug, Clone)]
pub(crate) struct GapSample {
    process: ArrivalProcess,
    pub gaps: Gaps,
    rng: Xoshiro256PlusPlus,
}

impl GapSample {
    fn new(process: ArrivalProcess, mean_gap_ns: f64, seed: u64) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x0BAD_5EED_0BAD_5EED);
        let gaps = Gaps { mean_gap_ns, seen: 0, kept: Vec::with_capacity(SAMPLE_MAX) };
        Self { process, gaps, rng }
    }

    /// Algorithm R: every gap of the window has the same chance to be in the sample.
    fn record(&mut self, intended: f64, actual: f64) {
        let gap = (intended as f32, actual as f32);
        self.gaps.seen += 1;
        if self.gaps.kept.len() < SAMPLE_MAX {
            self.gaps.kept.push(gap);
            return;
        }
        let place = self.rng.random_range(0..self.gaps.seen);
        if let Some(kept) = self.gaps.kept.get_mut(place as usize) {
            *kept = gap;
        }
    }

    /// The sample of `process` that another machine took.
    pub fn of(process: ArrivalProcess, gaps: Gaps) -> Self {
        Self { gaps, ..Self::new(process, 1.0, 0) }
    }

    /// Adds another thread's sample: in mean gaps, its gaps follow the same distribution.
    pub fn merge(&mut self, other: &Self) {
        self.gaps.kept.extend_from_slice(&other.gaps.kept);
        self.gaps.seen += other.gaps.seen;
        self.gaps.mean_gap_ns = self.gaps.mean_gap_ns.min(other.gaps.mean_gap_ns);
    }

    /// Judges the sample, where a send time is known up to `resolution_ns` nanoseconds; `None`
    /// where there are too few gaps to judge.
    pub fn check(&self, resolution_ns: f64) -> Option<ArrivalCheck> {
        let Gaps { mean_gap_ns, seen, kept } = &self.gaps;
        let n = kept.len();
        if n < SAMPLE_MIN {
            return None;
        }
        let column = |actual: bool| {
            let pick = |(i, a): &(f32, f32)| f64::from(if actual { *a } else { *i });
            let mut gaps: Vec<f64> = kept.iter().map(pick).collect();
            gaps.sort_by(f64::total_cmp);
            gaps
        };
        let (intended, actual) = (column(false), column(true));
        // The clock itself tells whole nanoseconds.
        let clock = 1.0 / mean_gap_ns;
        let resolution_gaps = resolution_ns / mean_gap_ns + clock;
        let is_equal = self.process.gap_share_below(1.0).is_none();
        let critical = if is_equal { critical_share(n) } else { critical_distance(n, ALPHA) };
        let distance = |gaps: &[f64], resolution: f64| {
            if is_equal { share_off(gaps, resolution) } else { ks(self.process, gaps, resolution) }
        };
        let statistic = distance(&actual, resolution_gaps);
        Some(ArrivalCheck {
            test: if is_equal { "share of gaps off" } else { "kolmogorov-smirnov" }.to_owned(),
            process: self.process.to_string(),
            gaps: *seen,
            sampled: n as u64,
            statistic,
            critical,
            passed: statistic <= critical,
            statistic_strict: distance(&actual, clock),
            statistic_intended: distance(&intended, clock),
            resolution_gaps,
        })
    }
}

/// The greatest share of `n` equal gaps that may be off.
fn critical_share(n: usize) -> f64 {
    // The one-sided quantile of the normal distribution at the level `ALPHA`.
    const DEVIATIONS: f64 = 3.09;
    let deviation = (EQUAL_GAP_SHARE * (1.0 - EQUAL_GAP_SHARE) / n as f64).sqrt();
    EQUAL_GAP_SHARE + DEVIATIONS * deviation
}

/// The asymptotic critical distance of the Kolmogorov-Smirnov test for `n` samples.
fn critical_distance(n: usize, alpha: f64) -> f64 {
    (-(alpha / 2.0).ln() / 2.0).sqrt() / (n as f64).sqrt()
}

/// The greatest distance between the distribution of the sorted `gaps` and the nearest one whose
/// gaps differ by at most `resolution` from the process's.
fn ks(process: ArrivalProcess, gaps: &[f64], resolution: f64) -> f64 {
    let n = gaps.len() as f64;
    let below = |gap: f64| process.gap_share_below(gap).unwrap_or(0.0);
    let distance = |(at, gap): (usize, &f64)| {
        let too_many_short = (at + 1) as f64 / n - below(gap + resolution);
        let too_many_long = below(gap - resolution) - at as f64 / n;
        too_many_short.max(too_many_long)
    };
    gaps.iter().enumerate().map(distance).fold(0.0, f64::max)
}

/// The share of `gaps` that are not one, up to the tolerance.
fn share_off(gaps: &[f64], resolution: f64) -> f64 {
    let tolerance = resolution.max(EQUAL_GAP_TOLERANCE);
    let off = gaps.iter().filter(|gap| (**gap - 1.0).abs() > tolerance).count();
    off as f64 / gaps.len().max(1) as f64
}

#[cfg(test)]
mod tests;
