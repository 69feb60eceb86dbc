//! The three load patterns of IX §5.4, in the paper's own numbers: "all three vary between nearly idle and
//! maximum throughput within a 4-minute period". A load generator has them in any size; a simulated server
//! wants the rate alone.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// One period, in nanoseconds.
pub const PERIOD_NS: u64 = 240_000_000_000;
/// The greatest load, in requests per second.
pub const PEAK_RPS: f64 = 6_200_000.0;

/// The step pattern: by so much, every so many nanoseconds.
const STEP_RPS: f64 = 500_000.0;
const STEP_NS: u64 = 10_000_000_000;
/// The noise: up to so much up or down, drawn anew every so many nanoseconds.
const NOISE_RPS: f64 = 250_000.0;
const NOISE_NS: u64 = 5_000_000_000;

/// See the module's comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Gradually from 0 to the peak, and gradually down again. Table IV calls it smooth.
    Slope,
    /// 500 K more every 10 s, up to 6 M, and down again.
    Step,
    /// A sine with sharp noise, which together stay between 0 and the peak.
    SineNoise,
}

impl Pattern {
    /// All of them, in the order of the figures.
    pub const ALL: [Self; 3] = [Self::Slope, Self::Step, Self::SineNoise];

    /// Its name in the paper.
    pub fn name(self) -> &'static str {
        match self {
            Self::Slope => "slope",
            Self::Step => "step",
            Self::SineNoise => "sine+noise",
        }
    }

    /// The rate `at_ns` nanoseconds after the beginning, in requests per second; `seed` is the noise's.
    pub fn rps(self, at_ns: u64, seed: u64) -> f64 {
        let within_ns = at_ns % PERIOD_NS;
        let part = within_ns as f64 / PERIOD_NS as f64;
        match self {
            Self::Slope => PEAK_RPS * (1.0 - (2.0 * part - 1.0).abs()),
            Self::Step => {
                let steps = PERIOD_NS / STEP_NS;
                let step = within_ns / STEP_NS;
                (step.min(steps - 1 - step) + 1) as f64 * STEP_RPS
            }
            Self::SineNoise => {
                let sine = (1.0 - (part * std::f64::consts::TAU).cos()) / 2.0;
                let draw = (at_ns / NOISE_NS).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ draw);
                let noise = random.random_range(-NOISE_RPS..=NOISE_RPS);
                NOISE_RPS + (PEAK_RPS - 2.0 * NOISE_RPS) * sine + noise
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_run_between_idle_and_the_peak() {
        for pattern in Pattern::ALL {
            let rates: Vec<f64> =
                (0..24_000).map(|index| pattern.rps(index * 10_000_000, 3)).collect();
            let (low, high) =
                rates.iter().fold((f64::MAX, 0.0f64), |(l, h), &r| (l.min(r), h.max(r)));
            assert!((0.0..=500_000.0).contains(&low), "{}: {low}", pattern.name());
            assert!((5_800_000.0..=PEAK_RPS).contains(&high), "{}: {high}", pattern.name());
            assert_eq!(
                pattern.rps(7 + PERIOD_NS, 3) == pattern.rps(7, 3),
                pattern != Pattern::SineNoise
            );
        }
        assert_eq!(Pattern::Step.rps(0, 0), 500_000.0);
        assert_eq!(Pattern::Step.rps(115_000_000_000, 0), 6_000_000.0);
        assert_eq!(Pattern::Step.rps(125_000_000_000, 0), 6_000_000.0);
        assert_eq!(Pattern::Step.rps(239_999_999_999, 0), 500_000.0);
        assert!(Pattern::SineNoise.rps(1, 1) != Pattern::SineNoise.rps(1, 2));
    }
}
