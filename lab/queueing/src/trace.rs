//! Service times that were measured: a law that draws from a list.
//!
//! ```
//! use queueing::{Law, Service, Trace};
//! let (trace, mean) = Trace::of(&[2.0, 2.0, 2.0, 34.0])?;
//! assert_eq!(mean, 10.0);
//! let service = Service { law: Law::Trace(trace), mean, overhead: 0.0 };
//! assert!((service.quantile(0.99) - 34.0).abs() < 1e-9);
//! # Ok::<(), queueing::Invalid>(())
//! ```

use rand::Rng;

use crate::error::{Invalid, check};

/// Most times of a trace.
pub const TRACE_MAX: usize = 1 << 24;
/// Longest part of a line that an error repeats, in characters.
const SHOWN_MAX: usize = 40;

/// The service times of a text: one in microseconds a line, `most_us` at most. Empty lines, and those
/// that begin with `#`, are passed over.
///
/// # Errors
/// A line that is no service time, with its number; no times at all, or more than [`TRACE_MAX`].
pub fn read_times(text: &str, most_us: f64) -> Result<Vec<f64>, Invalid> {
    let mut times = Vec::new();
    let lines = text.lines().map(str::trim).enumerate();
    for (index, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let time = line.parse().ok().filter(|us| (0.0..=most_us).contains(us));
        times.push(time.ok_or_else(|| {
            let shown: String = line.chars().take(SHOWN_MAX).collect();
            Invalid {
                what: "a service time",
                found: format!("'{shown}' in line {}", index + 1),
                allowed: format!("0 to {most_us}, in microseconds"),
            }
        })?);
        if times.len() > TRACE_MAX {
            break;
        }
    }
    check("number of service times, one a line,", times.len() as f64, 1.0..=TRACE_MAX as f64)?;
    Ok(times)
}

/// Times to draw from, each with the same chance, as multiples of their mean.
///
/// The list stays in memory until the process ends, so that a law remains a value that is copied: make one
/// for each file, not one for each run. Two are equal where they are the same list.
#[derive(Debug, Clone, Copy)]
pub struct Trace {
    /// The shortest first.
    multiples: &'static [f64],
}

impl Trace {
    /// The trace of `times`, in any unit, and their mean, in the same one.
    ///
    /// # Errors
    /// No times at all, or more than [`TRACE_MAX`]; one that is negative or no number; a mean of zero.
    pub fn of(times: &[f64]) -> Result<(Self, f64), Invalid> {
        check("number of times in a trace", times.len() as f64, 1.0..=TRACE_MAX as f64)?;
        for &time in times {
            check("service time of a trace", time, 0.0..=1e9)?;
        }
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        check("mean service time of a trace", mean, 1e-9..=1e9)?;
        let mut multiples: Vec<f64> = times.iter().map(|time| time / mean).collect();
        multiples.sort_unstable_by(f64::total_cmp);
        Ok((Self { multiples: multiples.leak() }, mean))
    }

    /// How many times it has.
    pub fn count(&self) -> usize {
        self.multiples.len()
    }

    /// One of the times, in means.
    #[inline]
    pub fn draw(&self, random: &mut impl Rng) -> f64 {
        // The upper half times the number, so that none is likelier by more than number / 2^32.
        let index = ((random.next_u64() >> 32) * self.multiples.len() as u64) >> 32;
        self.multiples[index as usize]
    }

    /// E(X^power), for a mean of one.
    pub fn moment(&self, power: u32) -> f64 {
        let sum: f64 = self.multiples.iter().map(|multiple| multiple.powi(power as i32)).sum();
        sum / self.multiples.len() as f64
    }

    /// The least of the times, in means, that the share `share` of them does not exceed.
    pub fn quantile(&self, share: f64) -> f64 {
        let count = self.multiples.len();
        let rank = (share.clamp(0.0, 1.0) * count as f64).ceil() as usize;
        self.multiples[rank.clamp(1, count) - 1]
    }
}

impl PartialEq for Trace {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.multiples, other.multiples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::{Law, Service};
    use crate::{Model, Replications, estimate};
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn moments_quantiles_and_draws_are_the_lists() {
        let (trace, mean) = Trace::of(&[8.0, 1.0, 1.0, 2.0]).expect("times");
        let law = Law::Trace(trace);
        assert_eq!((mean, trace.count(), law.name(), law.modes()), (3.0, 4, "trace", None));
        assert!((law.moment(1) - 1.0).abs() < 1e-12);
        assert!((law.moment(2) - 70.0 / 4.0 / 9.0).abs() < 1e-12);
        assert_eq!(
            [0.0, 0.5, 0.51, 1.0].map(|share| (law.quantile(share) * 3.0).round()),
            [1.0, 1.0, 2.0, 8.0]
        );
        let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
        let long = (0..100_000).filter(|_| law.draw(&mut random) > 2.0).count();
        // 25,000, give or take four standard deviations.
        assert!((24_452..=25_548).contains(&long), "{long}");
    }

    #[test]
    fn a_list_with_two_values_waits_as_the_law_of_two_values_does() {
        let times: Vec<f64> = (0..10).map(|index| if index == 0 { 5.5 } else { 0.5 }).collect();
        let (trace, mean) = Trace::of(&times).expect("times");
        let runs = Replications { count: 8, level: 0.999, ..Replications::new().of_jobs(200_000) };
        let service = Service { law: Law::Trace(trace), mean, overhead: 0.0 };
        let wait = |tally: &crate::Tally| tally.sojourn.mean() - 1.0;
        let found = estimate(&Model::zygos(4)[0], &service, 0.5, &runs, wait).expect("runs");
        let expected = 0.5 * Law::Bimodal1.moment(2);
        assert!(found.holds(expected) && found.half_width() < 0.1, "{found:?} {expected}");
    }

    #[test]
    fn lists_that_are_none_are_refused() {
        for (times, part) in [
            (&[][..], "number of times"),
            (&[1.0, -1.0], "service time of a trace is -1"),
            (&[f64::NAN], "service time of a trace is NaN"),
            (&[0.0, 0.0], "mean service time of a trace is 0"),
        ] {
            let error = Trace::of(times).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
        let (one, _) = Trace::of(&[1.0]).expect("a time");
        let (other, _) = Trace::of(&[1.0]).expect("a time");
        assert!(one == one && one != other);
    }
}
