//! Which requests an open loop makes.

use clock::Duration;

use super::config::{Arrivals, Config};

/// A request that will be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planned {
    /// Since the beginning.
    pub after: Duration,
    /// Which core its connection is at home on, and which of that core's connections it is: as parts of their
    /// number, 0 to below 1.
    pub home: f64,
    /// As above.
    pub among: f64,
    /// How long it is to be served, in nanoseconds.
    pub service_ns: u64,
}

/// Random numbers of a run: xorshift64*.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Between 0 and 1, neither of them.
    pub fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        (bits as f64 + 0.5) / (1u64 << 53) as f64
    }

    pub fn exponential(&mut self, mean: f64) -> f64 {
        -self.uniform().ln() * mean
    }
}

/// The requests of a run whose arrivals do not depend on answers, in their order; none for other arrivals.
pub(super) fn plan(config: &Config) -> Vec<Planned> {
    let Arrivals::Open { rate, span, .. } = config.arrivals else { return Vec::new() };
    let mut random = Random::new(config.seed);
    let (mut at_ns, mut plan) = (0.0, Vec::new());
    loop {
        at_ns += random.exponential(1e9 / rate);
        let after = Duration::from_nanos(at_ns as u64);
        if after >= span {
            return plan;
        }
        let (home, among) = (random.uniform(), random.uniform());
        let service_ns = random.exponential(config.service_ns) as u64;
        plan.push(Planned { after, home, among, service_ns });
    }
}
