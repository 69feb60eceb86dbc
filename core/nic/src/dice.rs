//! Seeded randomness: every entity draws from a stream of its own, so that what one does leaves the
//! draws of all others as they were.
//!
//! ```
//! use nic::dice::Dice;
//! let (mut a, mut b) = (Dice::new(7, "link", 0), Dice::new(7, "link", 1));
//! assert_ne!(a.next(), b.next());
//! assert_eq!(Dice::new(7, "link", 0).next(), Dice::new(7, "link", 0).next());
//! ```

use clock::Duration;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// One entity's random numbers.
#[derive(Clone, Debug)]
pub struct Dice(Xoshiro256PlusPlus);

/// Spreads a word over all of its bits (the finalizer of splitmix64).
pub fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Dice {
    /// The stream of entity `index` of the kind `name` in the run of `seed`.
    pub fn new(seed: u64, name: &str, index: u64) -> Self {
        let named = name.bytes().fold(mix(seed), |hash, byte| mix(hash ^ byte as u64));
        Self(Xoshiro256PlusPlus::seed_from_u64(mix(named ^ mix(index))))
    }

    /// 64 random bits.
    #[expect(clippy::should_implement_trait, reason = "an endless source is not an iterator")]
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number from zero to `limit`, exclusive; zero where `limit` is zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((self.next() as u128 * limit as u128) >> 64) as u64
    }

    /// A number from `low` to `high`, inclusive.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// A number from `low` to `high`, small ones as likely as large ones of a hundred times the size:
    /// evenly drawn on a logarithmic scale.
    pub fn spread(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.max(1), high.max(1));
        let bits = self.between(low.ilog2() as u64, high.ilog2() as u64);
        self.between(1 << bits, (1 << bits) | ((1 << bits) - 1)).clamp(low, high)
    }

    /// A duration from `low` to `high`.
    pub fn duration(&mut self, low: Duration, high: Duration) -> Duration {
        Duration::from_nanos(self.between(low.as_nanos() as u64, high.as_nanos() as u64))
    }

    /// Whether an event of this probability happens.
    pub fn chance(&mut self, probability: f64) -> bool {
        // 53 bits make a float in [0, 1) exactly.
        ((self.next() >> 11) as f64 / (1u64 << 53) as f64) < probability
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_kept_and_reached() {
        let mut dice = Dice::new(1, "test", 0);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[dice.between(3, 7) as usize - 3] = true;
            let spread = dice.spread(10, 100_000);
            assert!((10..=100_000).contains(&spread));
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(dice.below(0), 0);
        assert!(!dice.chance(0.0) && dice.chance(1.0));
    }
}
