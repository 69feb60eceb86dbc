//! What may be chosen, simulated: for each candidate the highest load that keeps the objective, and how it
//! does at half of that load, at that load, and at the user's own. Beside them the two models of theory.
//!
//! To add a candidate: name it in [`CANDIDATES`], at the place that its simplicity gives it.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use queueing::{MeanInterval, Model, TailCurve};
use runtime::{ConservingConfig, WhileAway};
use tailplane::Duration;
use world::cores::{
    Outcome, Run, RunToCompletion, Scheduler, Setup, WorkConserving, WorldError, linux,
    max_load_at_slo, simulate,
};

use super::question::Question;

/// Told of steps done and of what is done now, from several threads.
pub type Progress<'a> = &'a (dyn Fn(u64, &str) + Sync);

/// Steps of a search on the progress bar, where a single run is one.
const SEARCH_STEPS: u64 = 8;
/// Models of theory.
const MODELS: usize = 2;

/// Who runs the application.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Choice {
    /// IX.
    RunToCompletion,
    /// ZygOS, with its mechanism for a core that is in the application, and its quantum in mean service
    /// times.
    WorkConserving(WhileAway, Option<f64>),
}

/// A scheduler with its settings.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// As tables name it.
    pub name: &'static str,
    /// B.
    pub batch: usize,
    /// Who runs the application.
    pub choice: Choice,
}

/// All of them, the simplest first: that which asks for the fewest words in a configuration file, then what
/// asks more of the service or the machine.
pub const CANDIDATES: [Candidate; 7] = [
    Candidate { name: "run-to-completion, B = 64", batch: 64, choice: Choice::RunToCompletion },
    Candidate { name: "run-to-completion, B = 8", batch: 8, choice: Choice::RunToCompletion },
    Candidate { name: "run-to-completion, B = 1", batch: 1, choice: Choice::RunToCompletion },
    Candidate {
        name: "work-conserving, borrowing",
        batch: 64,
        choice: Choice::WorkConserving(WhileAway::Borrow, None),
    },
    Candidate {
        name: "work-conserving, neither",
        batch: 64,
        choice: Choice::WorkConserving(WhileAway::Wait, None),
    },
    Candidate {
        name: "work-conserving, quantum 2 S",
        batch: 64,
        choice: Choice::WorkConserving(WhileAway::Borrow, Some(2.0)),
    },
    Candidate {
        name: "work-conserving, kicks",
        batch: 64,
        choice: Choice::WorkConserving(WhileAway::Kick, None),
    },
];

impl Candidate {
    /// `dataplane.scheduler` of a configuration file.
    pub fn scheduler(&self) -> &'static str {
        match self.choice {
            Choice::RunToCompletion => "run-to-completion",
            Choice::WorkConserving(..) => "work-conserving",
        }
    }

    /// What becomes of a network layer whose core is in the application, in a word; none where a core runs
    /// its own only.
    pub fn while_away(&self) -> Option<&'static str> {
        match self.choice {
            Choice::RunToCompletion => None,
            Choice::WorkConserving(WhileAway::Wait, _) => Some("wait"),
            Choice::WorkConserving(WhileAway::Borrow, _) => Some("borrow"),
            Choice::WorkConserving(WhileAway::Kick, _) => Some("kick"),
        }
    }

    /// The quantum, in microseconds.
    pub fn quantum_us(&self, mean_us: f64) -> Option<f64> {
        match self.choice {
            Choice::WorkConserving(_, Some(means)) => Some(means * mean_us),
            _ => None,
        }
    }

    /// Whether its scheduler's name is all there is to say: it asks nothing else of the service or the machine.
    pub fn asks_nothing(&self) -> bool {
        let usual = ConservingConfig::default();
        match self.choice {
            Choice::RunToCompletion => true,
            Choice::WorkConserving(while_away, quantum) => {
                while_away == usual.while_away && quantum.is_none() && usual.quantum.is_none()
            }
        }
    }

    fn setup(&self, question: &Question) -> Setup {
        Setup { batch: self.batch, ..question.setup() }
    }

    fn answer(&self, question: &Question, progress: Progress<'_>) -> Result<Answer, WorldError> {
        match self.choice {
            Choice::RunToCompletion => self.answer_of(&RunToCompletion, question, progress),
            Choice::WorkConserving(while_away, _) => {
                let quantum = self.quantum_us(question.mean_us);
                let quantum = quantum.map(|us| Duration::from_nanos((us * 1e3).round() as u64));
                let config =
                    ConservingConfig { while_away, quantum, ..ConservingConfig::default() };
                self.answer_of(&WorkConserving { config }, question, progress)
            }
        }
    }

    fn answer_of<S: Scheduler>(
        &self,
        scheduler: &S,
        question: &Question,
        progress: Progress<'_>,
    ) -> Result<Answer, WorldError> {
        let setup = self.setup(question);
        progress(0, self.name);
        let found = max_load_at_slo(scheduler, &setup, &question.search())?;
        progress(SEARCH_STEPS, self.name);
        let look = |load: f64| {
            let run = Run {
                seed: question.seed,
                objective: Some(question.objective()),
                ..Run::new(load, question.requests)
            };
            let look =
                simulate(scheduler, &setup, &run).map(|outcome| Look::of(&outcome, question));
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

/// A candidate at one load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// See [`Setup::rate`].
    pub load: f64,
    /// Requests piled up without end: the latencies say nothing.
    pub overloaded: bool,
    /// Whether the objective was kept.
    pub meets: bool,
    /// Latencies in microseconds: median, 99th percentile, and that of the objective's share.
    pub p50_us: f64,
    /// See [`p50_us`](Self::p50_us).
    pub p99_us: f64,
    /// See [`p50_us`](Self::p50_us).
    pub at_share_us: f64,
    /// The share of the cores' time in which they did something.
    pub busy: f64,
    /// Events executed away from their home core, as a share of all.
    pub steal_rate: f64,
    /// What a request cost beside its service time.
    pub overhead_ns: f64,
}

impl Look {
    fn of(outcome: &Outcome, question: &Question) -> Self {
        Self {
            load: outcome.load,
            overloaded: outcome.given_up,
            meets: !outcome.given_up && outcome.above <= 1.0 - question.share,
            p50_us: outcome.latency_us(0.5),
            p99_us: outcome.latency_us(0.99),
            at_share_us: outcome.latency_us(question.share),
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
    pub candidate: Candidate,
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

/// All candidates and both models, on as many threads as there are processors. Each run is a function of
/// its seed: their order changes nothing.
///
/// # Errors
/// The first that failed, in the order of the candidates: a simulation that broke a promise.
pub fn simulate_all(question: &Question, progress: Progress<'_>) -> anyhow::Result<Found> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let answers: Mutex<Vec<(usize, Result<Answer, WorldError>)>> = Mutex::default();
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(candidate) = CANDIDATES.get(index) else { return };
            let answer = candidate.answer(question, progress);
            failed.fetch_or(answer.is_err(), Ordering::Relaxed);
            answers.lock().unwrap_or_else(PoisonError::into_inner).push((index, answer));
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(CANDIDATES.len());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
    answers.sort_unstable_by_key(|(index, _)| *index);
    let answers = answers.into_iter().map(|(_, answer)| answer).collect::<Result<Vec<_>, _>>()?;
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
            share: question.share,
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
