//! What was found of each static configuration of a machine, and the frontier and the sequence that follow.

use std::collections::BTreeMap;

use anyhow::ensure;
use control::policy::{Policy, Sequence};
use control::{Configuration, Machine, Scaling};
use reproduce::Mode;
use serde::Serialize;
use world::controlled::pareto::{Candidate, Frontier, Objective};
use world::controlled::server::ServerModel;

/// What was found of one configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// It.
    pub configuration: Configuration,
    /// What it serves and draws, or why that is not known.
    pub found: Result<Candidate, String>,
    /// How it was measured, where it was.
    pub run: Option<Run>,
}

/// The measurement of one configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// The processors of its elastic threads, in their order.
    pub cpus: Vec<u32>,
    /// The 99th percentile at what it serves; where that is nothing, at the lowest load that was tried. In microseconds.
    pub p99_us: f64,
    /// Why it serves no more: `service`, or what bounded the measurement.
    pub limit: String,
    /// Windows that were measured.
    pub windows: u32,
    /// How many of them somebody else disturbed.
    pub disturbed: u32,
}

/// A whole analysis.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// What the machine is called.
    pub name: String,
    /// Its dimensions.
    pub machine: Machine,
    /// How throughput is predicted to grow; a measured one is not predicted.
    pub scaling: Scaling,
    /// Simulated ([`Mode::Sim`]) or measured ([`Mode::Real`]).
    pub mode: Mode,
    /// The bound of the 99th percentile, in microseconds.
    pub slo_us: f64,
    /// What is to be saved.
    pub objective: Objective,
    /// All static configurations.
    pub entries: Vec<Entry>,
    /// What the result was found under.
    pub conditions: BTreeMap<String, String>,
    /// What a reader should know.
    pub notes: Vec<String>,
    /// Why it is not whole, where it is not.
    pub partial: Option<String>,
}

impl Analysis {
    /// All configurations of a simulated server.
    pub fn simulated(
        model: &ServerModel,
        objective: Objective,
        conditions: BTreeMap<String, String>,
    ) -> Self {
        let machine = model.machine();
        let entry = |configuration| Entry {
            configuration,
            found: Ok(Candidate::simulated(model, configuration)),
            run: None,
        };
        let mut all = Self {
            name: model.name.clone(),
            scaling: model.scaling,
            mode: Mode::Sim,
            slo_us: model.slo_us,
            objective,
            entries: machine.configurations().into_iter().map(entry).collect(),
            machine,
            conditions,
            notes: Vec::new(),
            partial: None,
        };
        all.condition("server", format!("simulated: {}", model.name));
        all.condition("objective", format!("p99 < {} us", model.slo_us));
        all
    }

    /// One of the conditions.
    pub fn condition(&mut self, name: &str, value: impl ToString) {
        self.conditions.insert(name.to_owned(), value.to_string());
    }

    /// What serves something.
    fn candidates(&self) -> Vec<Candidate> {
        let found = self.entries.iter().filter_map(|entry| entry.found.as_ref().ok());
        found.filter(|candidate| candidate.capacity_rps > 0.0).copied().collect()
    }

    /// The frontier for an objective; none where nothing counts for it: no power, say.
    pub fn frontier_for(&self, objective: Objective) -> Option<Frontier> {
        let frontier = Frontier::of(objective, self.machine.clone(), self.candidates());
        (!frontier.candidates().is_empty()).then_some(frontier)
    }

    /// The frontier for the objective of this analysis.
    pub fn frontier(&self) -> Option<Frontier> {
        self.frontier_for(self.objective)
    }

    /// The sequence as a file for the policy `file`, which reads back as it is.
    ///
    /// # Errors
    /// Nothing serves anything within the objective; or it does not read back, which would be an error of ours.
    pub fn sequence_file(&self) -> anyhow::Result<String> {
        let sequence = self.frontier().and_then(|frontier| frontier.sequence());
        let Some(sequence) = sequence else {
            anyhow::bail!(
                "no configuration serves anything within {} us, so there is no sequence to write; give the \
                 service more time (`--slo-us`)",
                self.slo_us
            );
        };
        let text = sequence.to_toml();
        let read = Sequence::from_toml(&text, &self.machine, self.scaling)?;
        ensure!(read.steps() == sequence.steps(), "the sequence does not read back as it is");
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_derived_sequence_is_what_the_policy_file_reads() {
        for objective in [Objective::Energy, Objective::Consolidation] {
            let all = Analysis::simulated(&ServerModel::ix(), objective, BTreeMap::new());
            assert_eq!(all.entries.len(), 224, "IX §5.3");
            let text = all.sequence_file().expect("it serves something");
            let read = Sequence::from_toml(&text, &Machine::ix(), Scaling::ix()).expect("readable");
            let derived = all.frontier().and_then(|frontier| frontier.sequence()).expect("steps");
            assert_eq!((read.steps(), read.name()), (derived.steps(), derived.name()));
        }
    }

    #[test]
    fn what_serves_nothing_makes_no_sequence() {
        let mut all = Analysis::simulated(&ServerModel::ix(), Objective::Energy, BTreeMap::new());
        for entry in &mut all.entries {
            entry.found = Err("not measured".to_owned());
        }
        assert!(all.frontier().is_none());
        let error = all.sequence_file().expect_err("nothing").to_string();
        assert!(error.contains("within 500 us") && error.contains("--slo-us"), "{error}");
    }
}
