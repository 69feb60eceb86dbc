//! A sequence of configurations that the control loop's rule walks one step at a time; here from the user's file.
//!
//! ```
//! use control::policy::{Policy, Sequence};
//! use control::{Machine, Scaling};
//! let text = r#"
//! name = "two steps"
//! [[step]]
//! cores = 1
//! clock = 1200000      # kHz, or "turbo"
//! [[step]]
//! cores = 8
//! hyperthreads = true
//! clock = "turbo"
//! background = 0       # cores left to the background job
//! "#;
//! let policy = Sequence::from_toml(text, &Machine::ix(), Scaling::ix())?;
//! assert_eq!(policy.steps().len(), 2);
//! let wrong = text.replace("cores = 8", "cores = 9");
//! let error = Sequence::from_toml(&wrong, &Machine::ix(), Scaling::ix()).unwrap_err();
//! assert!(error.to_string().starts_with("line 7: step 2 has 9 cores"));
//! # Ok::<(), control::policy::FileError>(())
//! ```

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::{Policy, Step, Thresholds, View, Wish, by_the_rule};
use crate::configuration::{Clock, Configuration, Machine, Scaling};

/// Most steps of a file: the paper's longest sequence has 22.
pub const STEPS_MAX: usize = 1_024;

/// What is wrong with a file, and on which line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct FileError {
    /// Counted from one.
    pub line: usize,
    /// What was found, and what to do.
    pub message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    delay_us: Option<Spanned<f64>>,
    idle_factor: Option<Spanned<f64>>,
    #[serde(default)]
    step: Vec<Spanned<FileStep>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileStep {
    cores: Spanned<u32>,
    #[serde(default)]
    hyperthreads: bool,
    clock: Option<Spanned<Clock>>,
    background: Option<Spanned<u32>>,
    /// Predicted throughput, in any one unit; computed where it is not given.
    speed: Option<Spanned<f64>>,
}

/// See the module's comment.
#[derive(Debug, Clone)]
pub struct Sequence {
    name: String,
    steps: Vec<Step>,
    /// When to move.
    pub thresholds: Thresholds,
}

impl Sequence {
    /// Steps that are there already, as the Pareto analysis derives them; sorted by their
    /// speed, those that add none are left out. None where there is no step.
    pub fn new(name: impl Into<String>, mut steps: Vec<Step>) -> Option<Self> {
        steps.retain(|step| step.speed.is_finite() && step.speed > 0.0);
        steps.sort_by(|a, b| a.speed.total_cmp(&b.speed));
        steps.dedup_by(|later, earlier| later.speed <= earlier.speed * (1.0 + 1e-9));
        (!steps.is_empty()).then(|| Self::of(name, steps))
    }

    /// These steps, with the authors' thresholds.
    pub(super) fn of(name: impl Into<String>, steps: Vec<Step>) -> Self {
        Self { name: name.into(), steps, thresholds: Thresholds::ixcp() }
    }

    /// Reads a file for a machine. Steps without a `clock` run at the nominal one; without a `speed`, what
    /// `scaling` predicts.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line: no TOML, an unknown key, a configuration that the machine
    /// does not have, a step that is not faster than the one before.
    pub fn from_toml(text: &str, machine: &Machine, scaling: Scaling) -> Result<Self, FileError> {
        let file: File = toml::from_str(text).map_err(|error| {
            let message = error.message().trim_end().to_owned();
            error_at(text, &error.span().unwrap_or(0..0), message)
        })?;
        let at = |span: Range<usize>, message: String| Err(error_at(text, &span, message));
        if file.step.is_empty() {
            return at(0..0, "no steps; write one [[step]] for each configuration".to_owned());
        }
        if file.step.len() > STEPS_MAX {
            let message = format!("{} steps; at most {STEPS_MAX} are allowed", file.step.len());
            return at(file.step[STEPS_MAX].span(), message);
        }
        let mut steps: Vec<Step> = Vec::with_capacity(file.step.len());
        for (index, step) in file.step.iter().enumerate() {
            let made = step_of(index + 1, step.as_ref(), machine, &scaling);
            let made = made.map_err(|(span, message)| error_at(text, &span, message))?;
            if let Some(before) = steps.last().filter(|before| before.speed >= made.speed) {
                let message = format!(
                    "step {} ({}) is predicted to serve no more than the step before it ({}): put them in \
                     the order of their throughput, or give both a `speed`",
                    index + 1,
                    made.configuration,
                    before.configuration
                );
                return at(step.span(), message);
            }
            steps.push(made);
        }
        let mut thresholds = Thresholds::ixcp();
        if let Some(delay_us) = file.delay_us {
            let found = *delay_us.as_ref();
            if !(1.0..=1e7).contains(&found) {
                let message = format!("delay_us is {found}; allowed: 1 to 10000000");
                return at(delay_us.span(), message);
            }
            (thresholds.delay_ns, thresholds.calm_delay_ns) = (found * 1e3, found * 250.0);
        }
        if let Some(factor) = file.idle_factor {
            let found = *factor.as_ref();
            if !(1.0..=10.0).contains(&found) {
                return at(factor.span(), format!("idle_factor is {found}; allowed: 1 to 10"));
            }
            thresholds.idle_factor = found;
        }
        Ok(Self { name: file.name.unwrap_or_else(|| "file".to_owned()), steps, thresholds })
    }

    /// The sequence as a file that [`from_toml`](Self::from_toml) reads.
    pub fn to_toml(&self) -> String {
        let mut text = format!("name = {}\n", toml::Value::String(self.name.clone()));
        for step in &self.steps {
            let Configuration { cores, hyperthreads, clock } = step.configuration;
            let clock = match clock {
                Clock::Khz(khz) => khz.to_string(),
                other => format!("\"{other}\""),
            };
            text.push_str(&format!(
                "\n[[step]]\ncores = {cores}\nhyperthreads = {hyperthreads}\nclock = {clock}\n\
                 background = {}\nspeed = {:?}\n",
                step.background_cores, step.speed
            ));
        }
        text
    }
}

type Wrong = (Range<usize>, String);

fn step_of(
    number: usize,
    step: &FileStep,
    machine: &Machine,
    scaling: &Scaling,
) -> Result<Step, Wrong> {
    let wrong = |span: Range<usize>, what: String| Err((span, format!("step {number} {what}")));
    let cores = *step.cores.as_ref();
    if !(1..=machine.cores).contains(&cores) {
        let all = machine.cores;
        let what = format!("has {cores} cores; this machine has {all}: write 1 to {all}");
        return wrong(step.cores.span(), what);
    }
    if step.hyperthreads && machine.threads_per_core == 1 {
        let what = "asks for hyperthreads; this machine's cores have one thread each: leave \
                    `hyperthreads` out";
        return wrong(step.cores.span(), what.to_owned());
    }
    let clock = step.clock.as_ref().map_or(machine.nominal_clock(), |clock| *clock.as_ref());
    if !machine.clocks().contains(&clock) {
        let span = step.clock.as_ref().map_or_else(|| step.cores.span(), Spanned::span);
        let all: Vec<String> = machine.clocks().iter().map(|&c| String::from(c)).collect();
        let (clock, all) = (String::from(clock), all.join(", "));
        return wrong(span, format!("asks for the clock {clock}; this machine has: {all}"));
    }
    let configuration = Configuration { cores, hyperthreads: step.hyperthreads, clock };
    let mut made = Step::alone(machine, scaling, configuration);
    if let Some(background) = &step.background {
        let (left, free) = (*background.as_ref(), machine.cores - cores);
        if left > free {
            let all = machine.cores;
            let what =
                format!("leaves {left} cores to the background job; only {free} of {all} are left");
            return wrong(background.span(), what);
        }
        made.background_cores = left;
    }
    if let Some(speed) = &step.speed {
        made.speed = *speed.as_ref();
        if !(made.speed > 0.0 && made.speed.is_finite()) {
            let what = format!("has a speed of {}; write one over 0", made.speed);
            return wrong(speed.span(), what);
        }
    }
    Ok(made)
}

fn error_at(text: &str, span: &Range<usize>, message: String) -> FileError {
    let end = span.start.min(text.len());
    let line = text.as_bytes()[..end].iter().filter(|&&byte| byte == b'\n').count() + 1;
    FileError { line, message }
}

impl Policy for Sequence {
    fn name(&self) -> &str {
        &self.name
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
    use crate::policy::Sequence;
    use proptest::prelude::*;

    fn error(text: &str) -> String {
        Sequence::from_toml(text, &Machine::ix(), Scaling::ix()).unwrap_err().to_string()
    }

    #[test]
    fn errors_give_the_line_and_what_to_do() {
        assert_eq!(error(""), "line 1: no steps; write one [[step]] for each configuration");
        assert!(
            error("[[step]]\ncores = 1\n\nspeed = -1.0").starts_with("line 4: step 1 has a speed")
        );
        assert!(
            error("[[step]]\ncores = 0").contains("line 2: step 1 has 0 cores; this machine has 8")
        );
        let unknown = error("[[step]]\ncores = 1\nhypertreads = true");
        assert!(unknown.starts_with("line 3: unknown field `hypertreads`"), "{unknown}");
        let clock = error("[[step]]\ncores = 1\nclock = 1250000");
        assert!(clock.starts_with("line 3: step 1 asks for the clock 1250000 kHz"), "{clock}");
        assert!(clock.contains("1200000 kHz, 1300000 kHz"), "{clock}");
        let word = error("[[step]]\ncores = 1\nclock = \"fast\"");
        assert!(word.contains("line 3") && word.contains("\"turbo\" or \"fixed\""), "{word}");
        let order = error("[[step]]\ncores = 2\n[[step]]\ncores = 1");
        assert!(order.starts_with("line 3: step 2 (1 core, 2.4 GHz)"), "{order}");
        assert!(error("[[step]]\ncores = 2\nbackground = 7").contains("only 6 of 8 are left"));
        assert!(error("delay_us = 0.0\n[[step]]\ncores = 1").starts_with("line 1: delay_us is 0"));
        assert!(error("idle_factor = 0.5\n[[step]]\ncores = 1").contains("allowed: 1 to 10"));
        assert!(error("[[step]\ncores = 1").starts_with("line 1: "));
        let plain = Machine { threads_per_core: 1, ..Machine::ix() };
        let text = "[[step]]\ncores = 1\nhyperthreads = true";
        let refused = Sequence::from_toml(text, &plain, Scaling::ix()).unwrap_err().to_string();
        assert!(refused.contains("leave `hyperthreads` out"), "{refused}");
    }

    #[test]
    fn what_is_written_can_be_read() {
        let machine = Machine::ix();
        let energy = Sequence::energy(&machine, Scaling::ix());
        let sequence = Sequence::new("derived", energy.steps().to_vec()).expect("steps");
        let read = Sequence::from_toml(&sequence.to_toml(), &machine, Scaling::ix()).unwrap();
        assert_eq!(read.steps(), sequence.steps());
        assert_eq!(read.name(), "derived");
        assert!(Sequence::new("none", Vec::new()).is_none());
    }

    proptest! {
        /// Whatever is in the file, it is read or refused with a line that it has.
        #[test]
        fn any_text_is_answered(lines in prop::collection::vec(
            prop_oneof![
                Just("[[step]]".to_owned()), Just("cores = 3".to_owned()), Just("clock = 1_200_000".to_owned()),
                Just("hyperthreads = true".to_owned()), Just("background = 9".to_owned()), "[a-z=\\[\\]\" 0-9.-]{0,20}",
            ], 0..12))
        {
            let text = lines.join("\n");
            if let Err(error) = Sequence::from_toml(&text, &Machine::ix(), Scaling::ix()) {
                prop_assert!(error.line >= 1 && error.line <= lines.len().max(1));
                prop_assert!(!error.message.is_empty());
            }
        }
    }
}
