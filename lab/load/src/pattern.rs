//! Load that changes with time: the synthetic patterns of IX §5.4 and a plain one, in any size.
//!
//! ```
//! use load::{Pattern, PatternShape};
//! // From 1,000 up to 50,000 requests a second and back, in 4 s.
//! let slope = Pattern { shape: PatternShape::Slope, low_rps: 1_000.0, period_ms: 4_000, seed: 1 };
//! assert!((slope.rate_at(50_000.0, 2_000_000_000) / 50_000.0 - 1.0).abs() < 1e-3);
//! assert!((slope.mean_rps(50_000.0, 4_000) / 25_500.0 - 1.0).abs() < 1e-6);
//! ```
//!
//! The rate is constant for a millisecond, so that its integral is exact and has an exact inverse:
//! arrivals are drawn in *operational time* (expected requests since the start) and carried over,
//! which makes a Poisson process of any rate without rejecting a single draw.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::setting::{ConfigError, PERIOD_MAX_MS, as_text, check_range};
use crate::workload::{finalize, unit};

/// How long the rate stays the same, in nanoseconds.
const TICK_NS: u64 = 1_000_000;
/// Steps from the lowest to the highest rate: IX raises the load by 500 K of 6.2 M requests/s
/// every 10 s of a 4-minute period.
const STEPS: u64 = 12;
/// Times in a period at which the noise is drawn anew: IX does so every 5 s of 4 minutes.
const NOISE_DRAWS: u64 = 48;
/// The noise's greatest size, as a share of the peak: IX's 250 K of 6.2 M requests/s.
const NOISE_SHARE: f64 = 250.0 / 6_200.0;
/// Shortest period: a step of the shortest must be some ticks long.
const PATTERN_PERIOD_MIN_MS: u64 = 100;

/// The course of the rate over one period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase", parse_err_ty = ConfigError, parse_err_fn = not_a_shape)]
pub enum PatternShape {
    /// Gradually from the low rate to the peak, and gradually down again.
    Slope,
    /// The same in twelve steps up and twelve down: abrupt changes.
    Step,
    /// The low rate, in the middle half of the period the peak: the least that a controller must follow.
    Square,
    /// A sine with sharp noise on it, as over the day of a web service. Written `sine+noise`.
    #[strum(serialize = "sine+noise")]
    SineNoise,
}

fn not_a_shape(text: &str) -> ConfigError {
    ConfigError::new("pattern", text, "slope, step, square, sine+noise")
}

/// A rate that changes with time, between a low rate and the peak that the open loop asks for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pattern {
    /// The course of the rate.
    #[serde(with = "as_text")]
    pub shape: PatternShape,
    /// The lowest rate, in requests per second.
    pub low_rps: f64,
    /// Length of one period, in milliseconds.
    pub period_ms: u64,
    /// Seed of the noise: all threads of a run must have the same.
    pub seed: u64,
}

impl Pattern {
    /// Checks every setting against the peak, `peak_rps`.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn validate(&self, peak_rps: f64) -> Result<(), ConfigError> {
        check_range("low", self.low_rps, 0.0, peak_rps)?;
        check_range("period_ms", self.period_ms, PATTERN_PERIOD_MIN_MS, PERIOD_MAX_MS)
    }

    /// The rate `since_ns` nanoseconds after the pattern's beginning, in requests per second.
    pub fn rate_at(&self, peak_rps: f64, since_ns: u64) -> f64 {
        // The middle of the tick stands for all of it.
        let at_ns = since_ns / TICK_NS * TICK_NS + TICK_NS / 2;
        let period_ns = (self.period_ms * 1_000_000).max(1);
        let part = (at_ns % period_ns) as f64 / period_ns as f64;
        // 0 at the ends of the period, 1 in its middle.
        let triangle = 1.0 - (2.0 * part - 1.0).abs();
        let height = match self.shape {
            PatternShape::Slope => triangle,
            PatternShape::Step => {
                let step = (part * (2 * STEPS) as f64) as u64;
                let up = step.min(2 * STEPS - 1 - step.min(2 * STEPS - 1));
                up as f64 / (STEPS - 1) as f64
            }
            PatternShape::Square => f64::from((0.25..0.75).contains(&part)),
            PatternShape::SineNoise => (1.0 - (part * std::f64::consts::TAU).cos()) / 2.0,
        };
        let rps = self.low_rps + (peak_rps - self.low_rps) * height;
        if self.shape != PatternShape::SineNoise {
            return rps;
        }
        let draw = at_ns / (period_ns / NOISE_DRAWS).max(1);
        let noise = (2.0 * unit_of(self.seed, draw) - 1.0) * NOISE_SHARE * peak_rps;
        (rps + noise).max(0.0)
    }

    /// The mean rate over the first `window_ms` milliseconds, in requests per second.
    pub fn mean_rps(&self, peak_rps: f64, window_ms: u64) -> f64 {
        let mut walk = RateWalk::new(*self, peak_rps, 0, 0);
        let window_ns = window_ms.max(1) * 1_000_000;
        walk.until(window_ns) * 1e9 / window_ns as f64
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {} requests/s in {} ms", self.shape, self.low_rps, self.period_ms)
    }
}

/// A number from 0 (included) to 1 (excluded) for `index`: the same for each seed.
fn unit_of(seed: u64, index: u64) -> f64 {
    let step = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    unit(finalize((seed ^ 0x6A09_E667_F3BC_C908).wrapping_add(step)))
}

/// A walk along a pattern: from expected requests to time, and from time to expected requests.
/// Only forward, so that each tick's rate is computed once.
#[derive(Debug, Clone)]
pub(crate) struct RateWalk {
    pattern: Pattern,
    peak_rps: f64,
    origin_ns: u64,
    /// Where the walk stands: whole nanoseconds, and a part of one.
    at_ns: u64,
    fraction_ns: f64,
    /// Until when the rate holds, and the rate, in requests per nanosecond.
    tick_end_ns: u64,
    rate_per_ns: f64,
}

impl RateWalk {
    /// A walk from `start_ns` on; the pattern begins at `origin_ns`, and its first rate holds
    /// until then.
    pub fn new(pattern: Pattern, peak_rps: f64, origin_ns: u64, start_ns: u64) -> Self {
        let mut walk = Self {
            pattern,
            peak_rps,
            origin_ns,
            at_ns: start_ns,
            fraction_ns: 0.0,
            tick_end_ns: 0,
            rate_per_ns: 0.0,
        };
        walk.enter_tick();
        walk
    }

    /// Reads the rate of the tick in which the walk stands.
    fn enter_tick(&mut self) {
        let since_ns = self.at_ns.saturating_sub(self.origin_ns);
        self.rate_per_ns = self.pattern.rate_at(self.peak_rps, since_ns) / 1e9;
        self.tick_end_ns = if self.at_ns < self.origin_ns {
            self.origin_ns
        } else {
            self.origin_ns.saturating_add((since_ns / TICK_NS + 1).saturating_mul(TICK_NS))
        };
    }

    fn left_in_tick_ns(&self) -> f64 {
        (self.tick_end_ns - self.at_ns) as f64 - self.fraction_ns
    }

    fn step_to_next_tick(&mut self) {
        self.at_ns = self.tick_end_ns;
        self.fraction_ns = 0.0;
        self.enter_tick();
    }

    /// Goes on by `requests` expected requests: the moment at which the walk stands then, in
    /// nanoseconds, rounded down.
    pub fn after(&mut self, requests: f64) -> u64 {
        let mut left = requests;
        loop {
            // At the end of time nothing arrives any more.
            if self.at_ns == u64::MAX || !left.is_finite() {
                return u64::MAX;
            }
            let tick = self.rate_per_ns * self.left_in_tick_ns();
            if left < tick {
                let on_ns = self.fraction_ns + left / self.rate_per_ns;
                self.at_ns = (self.at_ns + on_ns as u64).min(self.tick_end_ns);
                self.fraction_ns = on_ns.fract();
                if self.at_ns == self.tick_end_ns {
                    self.step_to_next_tick();
                }
                return self.at_ns;
            }
            left -= tick;
            self.step_to_next_tick();
        }
    }

    /// Goes on to `moment_ns`: the expected requests on the way. A moment in the past is none.
    pub fn until(&mut self, moment_ns: u64) -> f64 {
        let mut requests = 0.0;
        while self.tick_end_ns <= moment_ns && self.at_ns < u64::MAX {
            requests += self.rate_per_ns * self.left_in_tick_ns();
            self.step_to_next_tick();
        }
        if moment_ns > self.at_ns {
            requests += self.rate_per_ns * ((moment_ns - self.at_ns) as f64 - self.fraction_ns);
            self.at_ns = moment_ns;
            self.fraction_ns = 0.0;
        }
        requests
    }
}

#[cfg(test)]
mod tests;
