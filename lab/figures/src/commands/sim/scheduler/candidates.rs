//! What may be chosen, simulated: for each candidate the highest load that keeps the objective, and how it
//! does at half of that load, at that load, and at the user's own. Beside them the two models of theory.
//!
//! To add a candidate: name it in [`CANDIDATES`], at the place that its simplicity gives it.

use std::num::NonZero;
use std::thread;

use anyhow::bail;
use queueing::{MeanInterval, Model, TailCurve};
use runtime::{ConservingConfig, WhileAway};
use serde::Serialize;
use world::cores::{Outcome, Run, Setup, WorldError, linux};

use super::question::Question;
use crate::reproduce::zygos::systems::{
    COOPERATIVE, KICKS, PREEMPTIVE, RTC, RTC_64, System, WORK_CONSERVING,
};

/// Told of steps done and of what is done now, from several threads.
pub type Progress<'a> = &'a (dyn Fn(u64, &str) + Sync);

/// Steps of a search on the progress bar, where a single run is one.
const SEARCH_STEPS: u64 = 8;
/// Models of theory.
const MODELS: usize = 2;

/// All of them, the simplest first: that which asks for the fewest words in a configuration file, then what
/// asks more of the service or the machine.
pub const CANDIDATES: [System; 7] = [
    RTC_64,
    System { name: "run-to-completion, B = 8", batch: 8, ..RTC_64 },
    RTC,
    System { name: "work-conserving, borrowing", ..WORK_CONSERVING },
    System { name: "work-conserving, neither", ..COOPERATIVE },
    PREEMPTIVE,
    KICKS,
];

impl System {
    /// `dataplane.scheduler` of a configuration file.
    pub fn scheduler(&self) -> &'static str {
        self.sharing.map_or("run-to-completion", |_| "work-conserving")
    }

    /// What becomes of a network layer whose core is in the application, in a word; none where a core runs
    /// its own only.
    pub fn while_away(&self) -> Option<&'static str> {
        self.sharing.map(|sharing| match sharing.while_away {
            WhileAway::Wait => "wait",
            WhileAway::Borrow => "borrow",
            WhileAway::Kick => "kick",
        })
    }

    /// Whether its scheduler's name is all there is to say: it asks nothing else of the service or the machine.
    pub fn asks_nothing(&self) -> bool {
        let usual = ConservingConfig::default();
        self.sharing.is_none_or(|sharing| {
            sharing.while_away == usual.while_away && sharing.quantum.is_none()
        })
    }

    fn answer(&self, question: &Question, progress: Progress<'_>) -> Result<Answer, WorldError> {
        let setup = Setup { batch: self.batch, ..question.setup() };
        progress(0, self.name);
        let found = self.search(&setup, &question.search)?;
        progress(SEARCH_STEPS, self.name);
        let look = |load: f64| {
            let objective = Some(question.objective());
            let run = Run {
                seed: question.search.seed,
                objective,
                ..Run::new(load, question.search.requests)
            };
            let look = self.run(&setup, &run).map(|outcome| Look::of(&outcome, question));
            progress(1, self.name);
            look
        };
        let best = Some(found.mean).filter(|load| *load > 0.0);
        Ok(Answer {
            candidate: *self,
            at_half: best.map(|load| look(load / 2.0)).transpose()?,
            at_max: best.map(look).transpose()?,
            at_rate: question.rate_rps.map(|rate| look(question.load_of(rate))).transpose()?,
            // A load is none below zero, whatever the interval around a mean says.
            max_load: found.map(|load| load.max(0.0)),
        })
    }
}

/// A candidate at one load, as the JSON has it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Look {
    /// See [`Setup::rate`].
    pub load: f64,
    /// In requests per second.
    pub rate_rps: f64,
    /// Requests piled up without end: there are no latencies.
    pub overloaded: bool,
    /// Whether the objective was kept.
    pub meets: bool,
    /// Latencies in microseconds: median, 99th percentile, and that of the objective's share.
    pub p50_us: Option<f64>,
    /// See [`p50_us`](Self::p50_us).
    pub p99_us: Option<f64>,
    /// See [`p50_us`](Self::p50_us).
    pub at_share_us: Option<f64>,
    /// The share of the cores' time in which they did something.
    pub busy: f64,
    /// Events executed away from their home core, as a share of all.
    pub steal_rate: f64,
    /// What a request cost beside its service time.
    pub overhead_ns: f64,
}

impl Look {
    fn of(outcome: &Outcome, question: &Question) -> Self {
        let latency = |share| (!outcome.given_up).then(|| outcome.latency_us(share));
        Self {
            load: outcome.load,
            rate_rps: question.rate_of(outcome.load),
            overloaded: outcome.given_up,
            meets: !outcome.given_up && outcome.above <= 1.0 - question.search.share,
            p50_us: latency(0.5),
            p99_us: latency(0.99),
            at_share_us: latency(question.search.share),
            busy: outcome.busy(),
            steal_rate: outcome.steal_rate(),
            overhead_ns: outcome.overhead_ns(),
        }
    }
}

/// What was found of a candidate.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Which.
    pub candidate: System,
    /// The highest load that keeps the objective; zero: none does.
    pub max_load: MeanInterval,
    /// At half of that load; none where it is zero.
    pub at_half: Option<Look>,
    /// At that load.
    pub at_max: Option<Look>,
    /// At the user's own.
    pub at_rate: Option<Look>,
}

/// A model of theory.
#[derive(Debug, Clone)]
pub struct Bound {
    /// In Kendall's notation.
    pub model: String,
    /// The highest load that keeps the objective, without overhead.
    pub max_load: MeanInterval,
}

/// Everything that was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// In the order of [`CANDIDATES`].
    pub answers: Vec<Answer>,
    /// One queue for all cores, then one for each.
    pub theory: Vec<Bound>,
}

/// Steps of [`simulate_all`] on a progress bar.
pub fn steps(with_rate: bool) -> u64 {
    CANDIDATES.len() as u64 * (SEARCH_STEPS + 2 + u64::from(with_rate)) + MODELS as u64
}

/// All candidates, as many at a time as there are processors, and both models. Each run is a function of its seed:
/// their order changes nothing.
///
/// # Errors
/// The first that failed, in the order of the candidates: a simulation that broke a promise.
pub fn simulate_all(question: &Question, progress: Progress<'_>) -> anyhow::Result<Found> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let mut answers = Vec::new();
    for candidates in CANDIDATES.chunks(threads) {
        thread::scope(|scope| {
            let answer =
                |candidate| scope.spawn(move || System::answer(candidate, question, progress));
            let running: Vec<_> = candidates.iter().map(answer).collect();
            for candidate in running {
                let Ok(answer) = candidate.join() else {
                    bail!("a candidate's simulation panicked")
                };
                answers.push(answer?);
            }
            Ok(())
        })?;
    }
    Ok(Found { answers, theory: theory(question, progress)? })
}

/// What a single queue, and one for each core, would carry on the same wire without any overhead.
fn theory(question: &Question, progress: Progress<'_>) -> anyhow::Result<Vec<Bound>> {
    let [partitioned, centralized, ..] = Model::zygos(question.cores as u32);
    let models: [Model; MODELS] = [centralized, partitioned];
    let bound = |model: Model| {
        let notation = model.notation();
        progress(0, &notation);
        let curve = TailCurve {
            model,
            law: question.law,
            mean: question.mean_us,
            overhead: 0.0,
            network: 2.0 * question.wire_us,
            share: question.search.share,
        };
        let bound = question.slo_us / question.mean_us;
        let max_load = linux::max_load_at_slo(&curve, bound, &question.replications())?;
        progress(1, &notation);
        Ok(Bound { model: notation, max_load: max_load.map(|load| load.max(0.0)) })
    };
    models.into_iter().map(bound).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use service::config::RunConfig;

    /// What is recommended is what the configuration file's own reader takes.
    #[test]
    fn the_words_of_a_candidate_are_those_of_the_configuration() {
        let mut named = 0;
        for candidate in CANDIDATES.iter().filter(|candidate| candidate.asks_nothing()) {
            let (scheduler, batch) = (candidate.scheduler(), candidate.batch);
            let text = format!(
                "[service]\napp = 'echo'\n[dataplane]\nscheduler = '{scheduler}'\nbatch = {batch}\n"
            );
            let config = RunConfig::parse(&text).expect("words that it knows");
            assert_eq!(config.dataplane.scheduler.as_ref(), scheduler);
            assert_eq!(config.dataplane.batch, batch);
            named += 1;
        }
        assert_eq!(named, 4);
    }

    #[test]
    fn names_tell_candidates_apart_and_the_simplest_is_the_default() {
        let config = RunConfig::parse("[service]\napp = 'echo'\n").expect("the defaults");
        let [first, ..] = CANDIDATES;
        assert_eq!(first.scheduler(), config.dataplane.scheduler.as_ref());
        assert_eq!(first.batch, config.dataplane.batch);
        let mut names = CANDIDATES.map(|candidate| candidate.name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        let quanta = CANDIDATES.iter().filter_map(|candidate| candidate.quantum_us(5.0));
        assert_eq!(quanta.collect::<Vec<_>>(), [10.0]);
    }
}
