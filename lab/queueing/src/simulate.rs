//! One run of a model: seeded, without a clock, and the same each time.
//!
//! ```
//! use queueing::{Law, Model, Run, Service, simulate};
//! let run = Run { load: 0.8, jobs: 200_000, ..Run::new(Service::unit(Law::Exponential)) };
//! let [partitioned, centralized, ..] = Model::zygos(16);
//! let apart = simulate(&partitioned, &run)?.sojourn.quantile(0.99);
//! let together = simulate(&centralized, &run)?.sojourn.quantile(0.99);
//! assert!(apart > 4.0 * together, "{apart} {together}");
//! # Ok::<(), queueing::RunError>(())
//! ```

use crate::error::{Invalid, RunError, check};
use crate::fcfs::{ManyServers, SingleServer};
use crate::law::Service;
use crate::model::{Discipline, Model, Queues};
use crate::observer::{Departure, Observer, Tally, Window};
use crate::requests::Requests;
use crate::round_robin::RoundRobin;
use crate::sharing::Sharing;
use crate::station::Station;

/// The highest load that is run: nearer to one, no run is long enough.
pub const LOAD_MAX: f64 = 0.999;
/// Most requests of a run, warm-up and all.
pub const JOBS_MAX: u64 = 1 << 36;
/// Requests present at once from which on a run is given up: they only grow.
pub const PRESENT_MAX: usize = 1 << 22;

/// What is run on a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// How long requests take.
    pub service: Service,
    /// The share of the servers' time that arrivals ask for, overhead included: λ E(S) / n.
    pub load: f64,
    /// Requests of the window, as a mean: it is as long as it takes so many to arrive.
    pub jobs: u64,
    /// Requests before it, as a mean, which are served but not counted.
    pub warmup: u64,
    /// All draws follow from it.
    pub seed: u64,
}

impl Run {
    /// A run at half load, of a million requests after a hundred thousand.
    pub const fn new(service: Service) -> Self {
        Self { service, load: 0.5, jobs: 1_000_000, warmup: 100_000, seed: 1 }
    }

    /// The mean time from one arrival to the next, at all queues together.
    fn mean_gap(&self, model: &Model) -> f64 {
        self.service.total_mean() / (self.load * f64::from(model.servers))
    }

    /// The part that counts.
    pub fn window(&self, model: &Model) -> Window {
        let gap = self.mean_gap(model);
        let start = self.warmup as f64 * gap;
        Window { start, end: start + self.jobs as f64 * gap }
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// What is out of its range.
    pub fn validate(&self, model: &Model) -> Result<(), Invalid> {
        self.service.validate()?;
        model.validate(self.service.total_mean())?;
        check("load", self.load, 1e-6..=LOAD_MAX)?;
        check("number of requests", self.jobs as f64, 1.0..=JOBS_MAX as f64)?;
        check("warm-up requests", self.warmup as f64, 0.0..=JOBS_MAX as f64)
    }
}

/// Runs it.
///
/// # Errors
/// A setting out of its range, or preemption that costs more than the servers can give.
pub fn simulate(model: &Model, run: &Run) -> Result<Tally, RunError> {
    run.validate(model)?;
    let mut tally = Tally::new(run.window(model));
    observe(model, run, &mut tally)?;
    Ok(tally)
}

/// Runs it before the caller's own observer, which is told of all requests, also of those outside of
/// the window.
///
/// # Errors
/// As [`simulate`].
pub fn observe<O: Observer>(model: &Model, run: &Run, observer: &mut O) -> Result<(), RunError> {
    run.validate(model)?;
    // The servers of each station.
    let each = if model.queues == Queues::Partitioned { 1 } else { model.servers };
    match model.discipline {
        Discipline::Fcfs if each == 1 => drive(SingleServer::default, model, run, observer),
        Discipline::Fcfs => drive(|| ManyServers::new(each), model, run, observer),
        Discipline::ProcessorSharing => drive(|| Sharing::new(each), model, run, observer),
        Discipline::RoundRobin { quantum, cost } => {
            drive(|| RoundRobin::new(each, quantum, cost), model, run, observer)
        }
    }
}

/// Hands each request on, and counts how many of the window's have left.
struct Counted<'a, O> {
    observer: &'a mut O,
    end: f64,
    left: u64,
}

impl<O: Observer> Observer for Counted<'_, O> {
    #[inline]
    fn departed(&mut self, request: &Departure) {
        self.left += u64::from(request.arrival < self.end);
        self.observer.departed(request);
    }

    #[inline]
    fn span(&mut self, from: f64, to: f64, present: f64, busy: f64) {
        self.observer.span(from, to, present, busy);
    }
}

/// Arrivals until the window has ended, and on until all who came in it have left: who leaves late
/// is who took long, and must not be missing.
fn drive<S: Station, O: Observer>(
    station: impl Fn() -> S,
    model: &Model,
    run: &Run,
    observer: &mut O,
) -> Result<(), RunError> {
    let count = if model.queues == Queues::Partitioned { model.servers } else { 1 };
    let mut stations: Vec<S> = (0..count).map(|_| station()).collect();
    let end = run.window(model).end;
    let mut observer = Counted { observer, end, left: 0 };
    let mut requests = Requests::new(run.seed, run.service, model.servers, run.mean_gap(model));
    let last = stations.len() - 1;
    let (mut arrived, mut in_time) = (0u64, 0u64);
    // Enough for any that leave at all; what has not left then is served without more arrivals.
    let arrivals_max = 2 * (run.warmup + run.jobs) + 1_000;
    while arrived < arrivals_max {
        let request = requests.next();
        if request.arrival < end {
            in_time += 1;
        } else if observer.left == in_time {
            break;
        }
        arrived += 1;
        let station = &mut stations[(request.queue as usize).min(last)];
        station.advance(request.arrival, &mut observer);
        station.arrive(request.arrival, request.size, &mut observer);
        if station.present() > PRESENT_MAX {
            return Err(RunError::Overloaded { present: station.present(), arrived });
        }
        if request.arrival >= end && arrived % CATCH_UP == 0 {
            // A queue that nobody comes to must not keep the others waiting.
            for station in &mut stations {
                station.advance(request.arrival, &mut observer);
            }
        }
    }
    for station in &mut stations {
        station.advance(f64::INFINITY, &mut observer);
    }
    debug_assert!(observer.left >= in_time, "somebody is lost");
    Ok(())
}

/// Arrivals after which, beyond the window, all queues are brought up to the present.
const CATCH_UP: u64 = 256;
