//! The queue of one elastic thread, in slices of time.
//!
//! ```
//! use world::controlled::server::queue::{Queue, Rates};
//! use rand::SeedableRng;
//! let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
//! let mut queue = Queue::default();
//! // 300 k packets a second arrive, 100 k are served: a tenth of a second leaves 20,000.
//! for _ in 0..100 {
//!     queue.pass(&Rates { arriving: 300e3, serving: 100e3, scv: 1.0 }, 1e-3, &mut random);
//! }
//! assert!((queue.packets() / 20_000.0 - 1.0).abs() < 0.05);
//! ```
//!
//! Between the slice's ends the queue is Brownian motion with the drift of the rates and the variance of Poisson
//! arrivals and of the service times. Its least value within the slice has a known law given both ends (that of
//! a Brownian bridge), and what is below zero of it is capacity that found no packet (Skorokhod's reflection).
//! So the queue at the ends of slices has the exact law of reflected Brownian motion, for slices of any length.

use rand::{Rng, RngExt};
use rand_distr::{Distribution, Poisson, StandardNormal};

/// Beyond this exponent the chance that the queue was empty within a slice is under 1e-13.
const NEVER_EMPTY: f64 = 30.0;
/// Expected packets below which they are drawn one by one: four standard deviations beyond, a normal law's part below
/// zero is nothing.
const FEW: f64 = 16.0;

/// Rates of one slice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Packets that arrive, per second.
    pub arriving: f64,
    /// Packets that would be served per second of busy time, per second.
    pub serving: f64,
    /// Squared coefficient of variation of the service time.
    pub scv: f64,
}

/// What a slice was like.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Slice {
    /// Packets that arrived.
    pub arrived: f64,
    /// Packets that were served.
    pub served: f64,
    /// The share of the slice without packets. What can be served in a slice is left to chance, so that it may be more
    /// than 1; the mean over many slices is exact.
    pub idle: f64,
}

/// See the module's comment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Queue {
    packets: f64,
}

impl Queue {
    /// Packets that wait.
    pub fn packets(&self) -> f64 {
        self.packets
    }

    /// Packets that come from elsewhere at once, or, negative, that go.
    pub fn put(&mut self, packets: f64) {
        self.packets = (self.packets + packets).max(0.0);
    }

    /// Lets `seconds` pass.
    #[inline]
    pub fn pass(&mut self, rates: &Rates, seconds: f64, random: &mut impl Rng) -> Slice {
        let (in_mean, out_mean) = (rates.arriving * seconds, rates.serving * seconds);
        let arrived = arrivals(in_mean, random);
        let out_noise: f64 = random.sample(StandardNormal);
        let could = (out_mean + (out_mean * rates.scv).sqrt() * out_noise).max(0.0);
        let before = self.packets;
        let after = before + arrived - could;
        let variance = in_mean + out_mean * rates.scv;
        let least = least_within(before, after, variance, random);
        let unused = (-least).max(0.0);
        // No more is left than was there: motion without packets would make some of nothing.
        self.packets = (after + unused).clamp(0.0, before + arrived);
        let served = before + arrived - self.packets;
        // What could be served and was not found no packet.
        let idle = if out_mean > 0.0 { (could - served).max(0.0) / out_mean } else { 0.0 };
        Slice { arrived, served, idle }
    }
}

/// Packets of a Poisson process of which so many are expected. Where these are few the normal law would bring more of
/// them than that: it has a part below zero, which no packets are.
#[inline]
fn arrivals(mean: f64, random: &mut impl Rng) -> f64 {
    if mean < FEW {
        return Poisson::new(mean).map_or(0.0, |poisson| poisson.sample(random));
    }
    let noise: f64 = random.sample(StandardNormal);
    (mean + mean.sqrt() * noise).max(0.0)
}

/// The least value of a Brownian bridge between two values, of this variance over its length.
#[inline]
fn least_within(before: f64, after: f64, variance: f64, random: &mut impl Rng) -> f64 {
    if before > 0.0 && after > 0.0 && 2.0 * before * after > NEVER_EMPTY * variance {
        return before.min(after);
    }
    // Over 0, so that it has a logarithm.
    let uniform = 1.0 - random.random::<f64>();
    let apart = before - after;
    (before + after - (apart * apart - 2.0 * variance * uniform.ln()).sqrt()) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// The 99th percentile of the wait at slice ends, in seconds, and the mean idle share.
    fn stationary(load: f64, slice_s: f64, slices: u32) -> (f64, f64) {
        let rates = Rates { arriving: load * 373e3, serving: 373e3, scv: 1.0 };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut queue = Queue::default();
        let (mut waits, mut idle) = (Vec::new(), 0.0);
        for index in 0..slices {
            let slice = queue.pass(&rates, slice_s, &mut random);
            idle += slice.idle;
            if index > slices / 10 {
                waits.push(queue.packets() / rates.serving);
            }
        }
        waits.sort_by(f64::total_cmp);
        (waits[waits.len() * 99 / 100], idle / f64::from(slices))
    }

    /// The closed form of M/M/1, which the motion approaches in heavy traffic: ln 100 / (mu - lambda).
    #[test]
    fn the_tail_is_that_of_theory_for_slices_of_any_length() {
        for load in [0.90, 0.95, 0.97] {
            let theory = 100f64.ln() / (373e3 * (1.0 - load));
            for slice_s in [50e-6, 100e-6, 1e-3] {
                let (p99, idle) = stationary(load, slice_s, 2_000_000);
                assert!(
                    (p99 / theory - 1.0).abs() < 0.12,
                    "{load} {slice_s}: {p99} against {theory}"
                );
                assert!((idle - (1.0 - load)).abs() < 0.01, "{load} {slice_s}: idle {idle}");
            }
        }
    }

    #[test]
    fn few_packets_are_no_more_than_come() {
        let rates = Rates { arriving: 2_000.0, serving: 50_000.0, scv: 1.0 };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut queue = Queue::default();
        let (mut served, mut idle) = (0.0, 0.0);
        for _ in 0..1_000_000 {
            let slice = queue.pass(&rates, 100e-6, &mut random);
            (served, idle) = (served + slice.served, idle + slice.idle);
        }
        assert!((served / 200_000.0 - 1.0).abs() < 0.01, "{served} in 100 s of 2,000 a second");
        assert!((idle / 1e6 - 0.96).abs() < 0.01, "{idle}");
    }

    proptest! {
        #[test]
        fn packets_are_neither_lost_nor_made(
            seed in any::<u64>(), arriving in 0.0f64..1e6, serving in 0.0f64..1e6, start in 0.0f64..1e4,
        ) {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut queue = Queue::default();
            queue.put(start);
            let mut balance = start;
            for _ in 0..50 {
                let slice = queue.pass(&Rates { arriving, serving, scv: 1.0 }, 1e-4, &mut random);
                balance += slice.arrived - slice.served;
                prop_assert!(slice.idle >= 0.0 && queue.packets() >= 0.0);
                prop_assert!((balance - queue.packets()).abs() < 1e-6 * (1.0 + balance.abs()));
            }
        }
    }
}
