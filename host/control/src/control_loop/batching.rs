//! What adaptive batching is worth (IX §3): of a cycle's time a part is the cycle's, whatever it takes, and the rest its
//! packets'.
//!
//! A thread with little to do takes its packets one at a time, and each of them pays for a cycle; at its limit it takes
//! many at once. Who divides busy time by packets then sees a server that is nearly full, and grants what nobody needs.
//! Here both parts are told apart by what periods with more and with fewer packets a cycle took: least squares of
//!
//! ```text
//! busy time = cycle x cycles + packet x packets
//! ```
//!
//! and of the cycle's part only what chance does not explain is believed: an error there would promise a capacity that
//! is none.

/// Periods are forgotten over this, in nanoseconds.
const HORIZON_NS: f64 = 2e9;
/// Periods below which nothing is said.
const PERIODS_MIN: f64 = 50.0;
/// Standard errors that the cycle's part is taken to be smaller by.
const CAUTION: f64 = 3.0;

/// See the module's comment. Sums over periods, each weighed by how long ago it was.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CycleCost {
    periods: f64,
    /// Squares of the weights: how many periods the sums are worth.
    squares: f64,
    cc: f64,
    cp: f64,
    pp: f64,
    cy: f64,
    py: f64,
    yy: f64,
}

impl CycleCost {
    /// A period of so many nanoseconds, with the cycles that did something, the packets that they took, and their
    /// time.
    pub fn add(&mut self, period_ns: f64, cycles: f64, packets: f64, busy_ns: f64) {
        if packets <= 0.0 || cycles <= 0.0 {
            return;
        }
        let kept = (-period_ns / HORIZON_NS).exp();
        let (c, p, y) = (cycles, packets, busy_ns);
        self.periods = self.periods * kept + 1.0;
        self.squares = self.squares * kept * kept + 1.0;
        self.cc = self.cc * kept + c * c;
        self.cp = self.cp * kept + c * p;
        self.pp = self.pp * kept + p * p;
        self.cy = self.cy * kept + c * y;
        self.py = self.py * kept + p * y;
        self.yy = self.yy * kept + y * y;
    }

    /// The least that a cycle costs beside its packets, for all that is known, in nanoseconds.
    pub fn least_ns(&self) -> f64 {
        let worth = self.periods * self.periods / self.squares.max(1.0);
        if worth < PERIODS_MIN {
            return 0.0;
        }
        // What varies in the cycles beside what the packets explain: nothing, where all took as many at once.
        let apart = self.cc - self.cp * self.cp / self.pp;
        if apart <= 1e-9 * self.cc {
            return 0.0;
        }
        let cycle = (self.cy - self.cp * self.py / self.pp) / apart;
        let packet = (self.py - cycle * self.cp) / self.pp;
        let rest = (self.yy - cycle * self.cy - packet * self.py).max(0.0);
        let variance = rest / self.periods * worth / (worth - 2.0);
        let error = (variance * self.periods / worth / apart).sqrt();
        (cycle - CAUTION * error).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_distr::{Distribution, Exp1, Poisson};
    use rand_xoshiro::Xoshiro256PlusPlus;

    const PERIOD_NS: f64 = 1e6;

    /// A thread for so many periods: it serves what has come, at most 64 at once, each cycle at `cycle_ns` and each
    /// packet at `packet_ns`, exponentially where that is so.
    fn thread(
        cost: &mut CycleCost,
        [rate_per_s, cycle_ns, packet_ns]: [f64; 3],
        exponential: bool,
        periods: u32,
        seed: u64,
    ) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut now, mut waiting) = (0.0, 0.0);
        for _ in 0..periods {
            let (mut cycles, mut packets, mut busy, begins) = (0.0, 0.0, 0.0, now);
            while now < begins + PERIOD_NS {
                let idle: f64 = Exp1.sample(&mut random);
                let idle = if waiting == 0.0 { idle * 1e9 / rate_per_s } else { 0.0 };
                let took = f64::min(waiting, 64.0).max(1.0);
                waiting = f64::max(waiting - took, 0.0);
                let one = |random: &mut Xoshiro256PlusPlus| -> f64 {
                    if exponential { Exp1.sample(random) } else { 1.0 }
                };
                let served: f64 = (0..took as u32).map(|_| one(&mut random) * packet_ns).sum();
                let length = cycle_ns + served;
                let come = Poisson::new(rate_per_s * length / 1e9).expect("some come");
                waiting += come.sample(&mut random);
                (cycles, packets, busy) = (cycles + 1.0, packets + took, busy + length);
                now += idle + length;
            }
            cost.add(PERIOD_NS, cycles, packets, busy);
        }
    }

    #[test]
    fn a_cycles_part_is_found_in_what_it_takes_with_few_and_with_many() {
        // IX's costs at a third of what it serves, where batches are of one or two.
        let mut cost = CycleCost::default();
        thread(&mut cost, [190_000.0, 2_083.0, 1_710.0], false, 1_000, 1);
        assert!((1_700.0..2_083.1).contains(&cost.least_ns()), "{}", cost.least_ns());
    }

    #[test]
    fn chance_is_not_taken_for_a_cycles_part() {
        for seed in 0..40 {
            let mut cost = CycleCost::default();
            thread(&mut cost, [20_000.0, 0.0, 20_000.0], true, 1_000, seed);
            assert!(cost.least_ns() < 1_000.0, "seed {seed}: {}", cost.least_ns());
        }
    }

    #[test]
    fn what_does_not_vary_tells_nothing() {
        let mut cost = CycleCost::default();
        assert_eq!(cost.least_ns(), 0.0);
        for periods in 0..1_000 {
            cost.add(PERIOD_NS, 10.0, 20.0, 50_000.0);
            assert_eq!(cost.least_ns(), 0.0, "after {periods}");
        }
        cost.add(PERIOD_NS, 0.0, 0.0, 0.0);
        assert_eq!(cost.least_ns(), 0.0);
    }

    #[test]
    fn another_service_is_believed_after_a_while() {
        let mut cost = CycleCost::default();
        thread(&mut cost, [190_000.0, 2_083.0, 1_710.0], false, 2_000, 1);
        thread(&mut cost, [190_000.0, 0.0, 1_710.0], false, 20_000, 2);
        assert!(cost.least_ns() < 50.0, "{}", cost.least_ns());
    }
}
