//! The workload consolidation policy (IX §5.4): the background job on all cores but one, at the nominal clock;
//! then one core after the other, with all of its hyperthreads, from the job to the service; the last one stops
//! the job; Turbo last, since the job wins nothing by it.

use super::{Sequence, Step};
use crate::configuration::{Clock, Configuration, Machine, Scaling};

impl Sequence {
    /// See the module's comment: nine configurations on the machine of the paper. With the authors' thresholds.
    pub fn consolidation(machine: &Machine, scaling: Scaling) -> Self {
        let (all, clock) = (machine.maximum(), machine.nominal_clock());
        let cores = (1..=machine.cores).map(|cores| Configuration { cores, clock, ..all });
        let turbo = (all.clock == Clock::Turbo).then_some(all);
        let steps = cores.chain(turbo).map(|c| Step::shared(machine, &scaling, c)).collect();
        Self::of("consolidation", steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    #[test]
    fn nine_steps_on_the_machine_of_the_paper() {
        let policy = Sequence::consolidation(&Machine::ix(), Scaling::ix());
        let steps = policy.steps();
        assert_eq!(steps.len(), 9);
        let background: Vec<u32> = steps.iter().map(|step| step.background_cores).collect();
        assert_eq!(background, [7, 6, 5, 4, 3, 2, 1, 0, 0]);
        assert!(steps.iter().all(|step| step.configuration.hyperthreads));
        assert_eq!(steps[7].configuration.clock, Clock::Khz(2_400_000));
        assert_eq!(steps[8].configuration, Machine::ix().maximum());
    }
}
