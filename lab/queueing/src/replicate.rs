//! Several independent runs, what they have in common, and how far apart they are.
//!
//! ```
//! use queueing::{Law, Model, Replications, Service, max_load_at_slo};
//! let runs = Replications { count: 4, jobs: 200_000, ..Replications::new() };
//! let [partitioned, ..] = Model::zygos(16);
//! let service = Service::unit(Law::Exponential);
//! let load = max_load_at_slo(&partitioned, &service, 0.99, 10.0, &runs)?;
//! // ZygOS §3.1 has 53.7 %, theory 53.95 %.
//! assert!((load.mean - 0.5395).abs() < 0.02, "{load:?}");
//! # Ok::<(), queueing::RunError>(())
//! ```

use measure::MeanInterval;

use crate::error::{Invalid, RunError, check};
use crate::law::Service;
use crate::model::Model;
use crate::observer::{Exceeding, Tally};
use crate::requests::replication_seed;
use crate::simulate::{LOAD_MAX, Run, observe, simulate};

/// How close a search for a load comes: a hundredth of a point.
pub const LOAD_STEP: f64 = 1e-4;

/// Independent runs that differ only by their seeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Replications {
    /// How many: two at least, since one alone says nothing of its error.
    pub count: u32,
    /// Requests that count, of each.
    pub jobs: u64,
    /// Requests before them.
    pub warmup: u64,
    /// The chance with which the intervals hold the true value, 0 to 1.
    pub level: f64,
    /// The seeds of all follow from it.
    pub seed: u64,
}

impl Replications {
    /// Five of a million requests, each after a hundred thousand; intervals of 95 %.
    pub const fn new() -> Self {
        Self { count: 5, jobs: 1_000_000, warmup: 100_000, level: 0.95, seed: 1 }
    }

    /// So many requests in each, and a tenth of them before.
    #[must_use]
    pub const fn of_jobs(self, jobs: u64) -> Self {
        Self { jobs, warmup: jobs / 10, ..self }
    }

    /// The `index`-th run.
    pub fn run(&self, index: u32, service: &Service, load: f64) -> Run {
        let seed = replication_seed(self.seed, index);
        Run { service: *service, load, jobs: self.jobs, warmup: self.warmup, seed }
    }

    /// Checks what its runs do not.
    ///
    /// # Errors
    /// Fewer than two runs, or a level that is no chance.
    pub fn validate(&self) -> Result<(), Invalid> {
        check("number of replications", self.count.into(), 2.0..=10_000.0)?;
        check("level of confidence", self.level, 0.01..=0.999_999)
    }

    /// The interval around the mean of what `value` says of each run.
    fn interval(
        &self,
        mut value: impl FnMut(u32) -> Result<f64, RunError>,
    ) -> Result<MeanInterval, RunError> {
        self.validate()?;
        let values = (0..self.count).map(&mut value).collect::<Result<Vec<f64>, _>>()?;
        Ok(mean_interval("result of the replications", &values, self.level)?)
    }
}

/// The interval around the mean of `values` that holds the true one with the chance `level`.
///
/// # Errors
/// `what` is no finite number.
pub fn mean_interval(
    what: &'static str,
    values: &[f64],
    level: f64,
) -> Result<MeanInterval, Invalid> {
    let (found, allowed) = (format!("{values:?}"), "finite numbers".to_owned());
    MeanInterval::of(values, level).ok_or(Invalid { what, found, allowed })
}

impl Default for Replications {
    fn default() -> Self {
        Self::new()
    }
}

/// The runs of `model` at one load, one after the other.
///
/// # Errors
/// A setting out of its range, or preemption that costs more than the servers can give.
pub fn replicate(
    model: &Model,
    service: &Service,
    load: f64,
    replications: &Replications,
) -> Result<Vec<Tally>, RunError> {
    replications.validate()?;
    let one = |index| simulate(model, &replications.run(index, service, load));
    (0..replications.count).map(one).collect()
}

/// What `value` says of each run of `model` at one load, with its interval.
///
/// # Errors
/// As [`replicate`].
pub fn estimate(
    model: &Model,
    service: &Service,
    load: f64,
    replications: &Replications,
    value: impl Fn(&Tally) -> f64,
) -> Result<MeanInterval, RunError> {
    replications
        .interval(|index| Ok(value(&simulate(model, &replications.run(index, service, load))?)))
}

/// The highest load at which the share `share` of the requests (0.99 for the 99th percentile) takes
/// no longer than `bound` times the mean of the work S (ZygOS §3.1: maximum load @ SLO).
///
/// The load is that of the servers by work and overhead together. Each replication is searched by
/// bisection to [`LOAD_STEP`] with the same requests at every load, so that what is found in it is a
/// load and not the noise of a run. Zero: not even the lowest load will do. [`LOAD_MAX`]: the search
/// ended there, and the true value lies between it and one.
///
/// # Errors
/// A setting out of its range.
pub fn max_load_at_slo(
    model: &Model,
    service: &Service,
    share: f64,
    bound: f64,
    replications: &Replications,
) -> Result<MeanInterval, RunError> {
    check("share of the requests", share, 0.0..=1.0)?;
    check("bound", bound, 0.0..=1e12)?;
    let bound_time = bound * service.mean;
    replications.interval(|index| {
        highest(|load| {
            let run = replications.run(index, service, load);
            let mut exceeding = Exceeding::new(run.window(model), bound_time);
            match observe(model, &run, &mut exceeding) {
                Ok(()) => Ok(exceeding.share() <= 1.0 - share),
                Err(RunError::Overloaded { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        })
    })
}

/// The highest load that is `good`, if all below a good one are, to [`LOAD_STEP`].
fn highest(good: impl Fn(f64) -> Result<bool, RunError>) -> Result<f64, RunError> {
    if good(LOAD_MAX)? { Ok(LOAD_MAX) } else { highest_load(LOAD_MAX, LOAD_STEP, good) }
}

/// The highest load below `most` that is `good`, if all below a good one are, to `step`: by bisection. Zero where none
/// is.
///
/// # Errors
/// What `good` returns.
pub fn highest_load<E>(
    most: f64,
    step: f64,
    good: impl Fn(f64) -> Result<bool, E>,
) -> Result<f64, E> {
    let (mut low, mut high) = (0.0, most);
    while high - low > step {
        let middle = (low + high) / 2.0;
        if good(middle)? { low = middle } else { high = middle }
    }
    // Nothing above the lowest step was good: no load is.
    Ok(if low == 0.0 { 0.0 } else { (low + high) / 2.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::Law;

    #[test]
    fn a_search_ends_at_its_bound() {
        for bound in [0.0, 0.018, 0.5, 0.9677, 0.9985] {
            let found = highest(|load| Ok(load <= bound)).expect("no run fails");
            assert!((found - bound).abs() <= LOAD_STEP, "{bound}: {found}");
        }
        assert_eq!(highest(|_| Ok(true)), Ok(LOAD_MAX));
        assert_eq!(highest(|_| Ok(false)), Ok(0.0));
    }

    #[test]
    fn settings_are_checked_before_anything_runs() {
        let (model, service) = (Model::zygos(2)[0], Service::unit(Law::Exponential));
        let few = Replications { count: 1, ..Replications::new() };
        let error = max_load_at_slo(&model, &service, 0.99, 10.0, &few).expect_err("one run");
        assert_eq!(error.to_string(), "number of replications is 1; allowed: 2 to 10000");
        let runs = Replications::new().of_jobs(1_000);
        assert!(max_load_at_slo(&model, &service, 1.5, 10.0, &runs).is_err());
        assert!(max_load_at_slo(&model, &service, 0.99, f64::NAN, &runs).is_err());
        assert!(estimate(&model, &service, 1.0, &runs, Tally::mean_present).is_err());
        assert!(replicate(&model, &service, f64::NAN, &runs).is_err());
    }

    #[test]
    fn no_load_keeps_a_bound_below_the_service_time() {
        let (model, service) = (Model::zygos(4)[1], Service::unit(Law::Deterministic));
        let runs = Replications { count: 2, ..Replications::new().of_jobs(2_000) };
        let found = max_load_at_slo(&model, &service, 0.99, 0.9, &runs).expect("runs");
        assert_eq!(found.mean, 0.0);
    }
}
