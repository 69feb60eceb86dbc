//! The highest load that keeps an objective (ZygOS §3.1).

use queueing::{MeanInterval, check, highest_load, mean_interval, replication_seed};

use crate::cores::error::WorldError;
use crate::cores::scheduler::Scheduler;
use crate::cores::setup::{Objective, Run, Setup};
use crate::cores::world::simulate;

/// How the highest load is searched for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// The bound in mean service times: 10 in ZygOS §3.1.
    pub bound: f64,
    /// The share that has to keep it.
    pub share: f64,
    /// Requests of each run.
    pub requests: u64,
    /// How close the search comes, as a load.
    pub step: f64,
    /// Searches with different seeds: two at least, since one alone says nothing of its error.
    pub count: u32,
    /// The seeds of all follow from it.
    pub seed: u64,
}

impl Search {
    /// ZygOS's objective, 99 % within ten mean service times: three searches of 200,000 requests a load,
    /// to half a hundredth.
    pub const fn zygos() -> Self {
        Self { bound: 10.0, share: 0.99, requests: 200_000, step: 0.005, count: 3, seed: 1 }
    }
}

/// The highest load of `setup` at which the objective of `search` is kept, as the mean over its seeds with
/// an interval of 95 %. Zero: not even the lowest load will do.
///
/// # Errors
/// As [`simulate`]; fewer than two searches, or a step out of its range.
pub fn max_load_at_slo<S: Scheduler>(
    scheduler: &S,
    setup: &Setup,
    search: &Search,
) -> Result<MeanInterval, WorldError> {
    check("number of searches", search.count.into(), 2.0..=1_000.0)?;
    check("step of the search", search.step, 1e-4..=0.5)?;
    let one = |index| highest(scheduler, setup, search, replication_seed(search.seed, index));
    let found = (0..search.count).map(one).collect::<Result<Vec<f64>, _>>()?;
    Ok(mean_interval("highest load", &found, 0.95)?)
}

/// By bisection, with the same requests at every load.
fn highest<S: Scheduler>(
    scheduler: &S,
    setup: &Setup,
    search: &Search,
    seed: u64,
) -> Result<f64, WorldError> {
    let bound_us = search.bound * setup.mean_us;
    let objective = Objective { bound_us, share: search.share, give_up: true };
    // More than this the cores cannot serve, whatever the scheduler: work and the least overhead.
    let least_ns = setup.mean_us * 1e3 + setup.costs.marginal();
    highest_load(setup.mean_us * 1e3 / least_ns, search.step, |load| {
        let run = Run { seed, objective: Some(objective), ..Run::new(load, search.requests) };
        let outcome = simulate(scheduler, setup, &run)?;
        Ok(!outcome.given_up && outcome.above <= 1.0 - search.share)
    })
}
