//! The workload consolidation policy (IX §5.4): the background job on all cores but one, at the nominal clock;
//! then one core after the other, with all of its hyperthreads, from the job to the service; the last one stops
//! the job; Turbo last, since the job wins nothing by it.

use super::{Policy, Step, Thresholds, View, Wish, by_the_rule};
use crate::configuration::{Clock, Machine, Scaling};

/// See the module's comment: nine configurations on the machine of the paper.
#[derive(Debug, Clone)]
pub struct Consolidation {
    steps: Vec<Step>,
    /// When to move.
    pub thresholds: Thresholds,
}

impl Consolidation {
    /// The sequence for a machine; the authors' thresholds.
    pub fn new(machine: &Machine, scaling: Scaling) -> Self {
        let all = machine.maximum();
        let nominal = machine.nominal_clock();
        let cores =
            (1..=machine.cores).map(|cores| crate::Configuration { cores, clock: nominal, ..all });
        let turbo = (all.clock == Clock::Turbo).then_some(all);
        let sequence = cores.chain(turbo);
        let steps = sequence.map(|c| Step::shared(machine, &scaling, c)).collect();
        Self { steps, thresholds: Thresholds::ixcp() }
    }
}

impl Policy for Consolidation {
    fn name(&self) -> &str {
        "consolidation"
    }

    fn steps(&self) -> &[Step] {
        &self.steps
    }

    fn wish(&mut self, view: &View) -> Wish {
        by_the_rule(&self.steps, &self.thresholds, view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_steps_on_the_machine_of_the_paper() {
        let policy = Consolidation::new(&Machine::ix(), Scaling::ix());
        let steps = policy.steps();
        assert_eq!(steps.len(), 9);
        let background: Vec<u32> = steps.iter().map(|step| step.background_cores).collect();
        assert_eq!(background, [7, 6, 5, 4, 3, 2, 1, 0, 0]);
        assert!(steps.iter().all(|step| step.configuration.hyperthreads));
        assert_eq!(steps[7].configuration.clock, Clock::Khz(2_400_000));
        assert_eq!(steps[8].configuration, Machine::ix().maximum());
    }
}
