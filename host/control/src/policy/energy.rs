//! The energy-proportional policy (IX §5.4): one core at the lowest clock; then more cores; then the
//! hyperthreads of all of them, as a single step; then the clock, step by step; Turbo last.

use super::{Sequence, Step};
use crate::configuration::{Clock, Configuration, Machine, Scaling};

impl Sequence {
    /// See the module's comment: 22 configurations on the machine of the paper. With the authors' thresholds.
    pub fn energy(machine: &Machine, scaling: Scaling) -> Self {
        let lowest = machine.lowest_clock();
        let cores = (1..=machine.cores).map(|cores| Configuration {
            cores,
            hyperthreads: false,
            clock: lowest,
        });
        let all = Configuration { clock: lowest, ..machine.maximum() };
        let hyperthreads = all.hyperthreads.then_some(all);
        let faster = machine.clocks().into_iter().filter(|&clock: &Clock| clock != lowest);
        let faster = faster.map(|clock| Configuration { clock, ..all });
        let sequence = cores.chain(hyperthreads).chain(faster);
        Self::of("energy", sequence.map(|c| Step::alone(machine, &scaling, c)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    #[test]
    fn the_sequence_follows_the_machine() {
        let of = |machine: &Machine| Sequence::energy(machine, Scaling::ix()).steps().to_vec();
        let ix = of(&Machine::ix());
        assert_eq!(ix.len(), 22);
        assert!(ix.windows(2).all(|pair| pair[0].speed < pair[1].speed));
        assert_eq!(ix[21].configuration, Machine::ix().maximum());
        let plain = Machine { cores: 2, threads_per_core: 1, clocks_khz: vec![], turbo: false };
        assert_eq!(of(&plain).len(), 2);
        let odd =
            Machine { cores: 3, threads_per_core: 2, clocks_khz: vec![1, 2, 3], turbo: false };
        assert_eq!(of(&odd).len(), 3 + 1 + 2);
    }
}
