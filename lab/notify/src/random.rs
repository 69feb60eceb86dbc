//! Seeded random numbers, without a dependency: SplitMix64 (Steele et al., OOPSLA 2014), whose period
//! is long enough for arrivals and choices, and the two distributions that traffic is made of.

/// A stream of random numbers; the same seed gives the same stream.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Between 0 and 1, never 0: its logarithm exists.
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Below `limit`, which is not 0.
    pub fn below(&mut self, limit: u32) -> u32 {
        debug_assert!(limit > 0);
        ((u64::from(limit) * (self.bits() >> 32)) >> 32) as u32
    }

    /// A gap of a Poisson process, exponential with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    /// How many trials fail before the first success of probability `p`. Without end where `p` is 0.
    pub fn geometric(&mut self, p: f64) -> f64 {
        if p >= 1.0 {
            return 0.0;
        }
        if p <= 0.0 {
            return f64::INFINITY;
        }
        (self.unit().ln() / (1.0 - p).ln()).floor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_have_their_means() {
        let mut random = Random::new(1);
        let n = 200_000;
        let mean =
            |draw: &mut dyn FnMut() -> f64| (0..n).map(|_| draw()).sum::<f64>() / f64::from(n);
        let exponential = mean(&mut || random.exponential(20.0));
        assert!((exponential - 20.0).abs() < 0.3, "{exponential}");
        let geometric = mean(&mut || random.geometric(0.05));
        assert!((geometric - 19.0).abs() < 0.3, "{geometric}");
        let below = mean(&mut || f64::from(random.below(10)));
        assert!((below - 4.5).abs() < 0.05, "{below}");
        assert_eq!(random.geometric(1.0), 0.0);
        assert_eq!(random.geometric(0.0), f64::INFINITY);
    }

    #[test]
    fn a_seed_is_a_stream() {
        let draw = |seed| Random::new(seed).bits();
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
