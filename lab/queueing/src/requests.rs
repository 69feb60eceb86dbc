//! The stream of requests: Poisson arrivals, service times, and the queue each one takes.
//!
//! The draws of a seed are the same whatever the model and the load: a load only stretches the time
//! between arrivals. Two models, or two loads, can so be compared request by request (common random
//! numbers).

use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::law::Service;

/// One request before it is served.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Request {
    /// When it arrives.
    pub arrival: f64,
    /// How long a server needs for it.
    pub size: f64,
    /// The queue it takes where there are many.
    pub queue: u32,
}

/// Requests without end.
#[derive(Debug, Clone)]
pub(crate) struct Requests {
    random: Xoshiro256PlusPlus,
    service: Service,
    servers: u32,
    mean_gap: f64,
    now: f64,
}

impl Requests {
    /// Those of `seed`, with the mean time `mean_gap` from one to the next.
    pub fn new(seed: u64, service: Service, servers: u32, mean_gap: f64) -> Self {
        debug_assert!(mean_gap > 0.0 && servers > 0);
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { random, service, servers, mean_gap, now: 0.0 }
    }

    /// The next one.
    #[inline]
    pub fn next(&mut self) -> Request {
        let gap: f64 = Exp1.sample(&mut self.random);
        self.now += gap * self.mean_gap;
        let size = self.service.draw(&mut self.random);
        // Drawn also where there is one queue: the streams of all models are the same. The upper
        // half times the number, so that none is likelier by more than servers / 2^32.
        let queue = ((self.random.next_u64() >> 32) * u64::from(self.servers)) >> 32;
        Request { arrival: self.now, size, queue: queue as u32 }
    }
}

/// The seed of the `index`-th replication of `seed` (the finalizer of splitmix64).
pub fn replication_seed(seed: u64, index: u32) -> u64 {
    let word = seed.wrapping_add(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(u64::from(index) + 1));
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::Law;

    #[test]
    fn a_load_only_stretches_the_gaps() {
        let service = Service::unit(Law::Exponential);
        let mut slow = Requests::new(3, service, 16, 2.0);
        let mut fast = Requests::new(3, service, 16, 0.5);
        for _ in 0..1_000 {
            let (slow, fast) = (slow.next(), fast.next());
            assert!((slow.arrival / fast.arrival - 4.0).abs() < 1e-9);
            assert_eq!((slow.size, slow.queue), (fast.size, fast.queue));
        }
    }

    #[test]
    fn queues_are_taken_evenly() {
        let mut requests = Requests::new(4, Service::unit(Law::Bimodal1), 16, 1.0);
        let mut taken = [0u32; 16];
        for _ in 0..160_000 {
            taken[requests.next().queue as usize] += 1;
        }
        // 10,000 each, give or take four standard deviations.
        assert!(taken.iter().all(|&count| (9_612..=10_388).contains(&count)), "{taken:?}");
    }

    #[test]
    fn replications_have_seeds_of_their_own() {
        let mut seeds: Vec<u64> = (0..10_000).map(|index| replication_seed(1, index)).collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 10_000);
        assert_ne!(replication_seed(1, 0), replication_seed(2, 0));
    }
}
