//! The transport over our own dataplane: the generator as a [`tailplane::Service`].
//!
//! [`services`] makes one service for each elastic thread and a [`LoadRun`] to watch them; the
//! caller puts each service on its thread, waits until [`LoadRun::is_over`], stops the threads, and
//! asks for the [`LoadRun::report`].
//!
//! ```
//! use load::{LoadConfig, Mode, WorkloadConfig, dataplane};
//! let mut config = LoadConfig::new(WorkloadConfig::usr());
//! config.mode = Mode::open(500_000.0);
//! config.connections = 1_000;
//! let (services, run) = dataplane::services(&config, "10.0.0.2:11211".parse().unwrap(), 2)?;
//! assert_eq!(services.len(), 2);
//! assert!(!run.is_over());
//! # Ok::<(), load::LoadError>(())
//! ```
//!
//! The elastic threads' clocks must have one origin: the services agree on one moment to start at.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tailplane::Endpoint;

use crate::config::LoadConfig;
use crate::course::Phase;
use crate::error::LoadError;
use crate::measurement::Ran;
use crate::rendezvous::Rendezvous;
use crate::report::{Conditions, LoadReport};
use crate::setting::{ConfigError, check_range};
use crate::workload::Workload;

mod outbox;
mod service;
mod shared;

pub use service::LoadService;
use shared::Shared;

/// Most elastic threads of one run.
const THREADS_MAX: u32 = 256;

/// A run whose services are on their threads.
#[derive(Debug)]
pub struct LoadRun {
    load: LoadConfig,
    threads: u32,
    shared: Arc<Shared>,
}

/// The services that carry `load` to `target`, one for each of `threads` elastic threads, and the
/// run that they belong to.
///
/// # Errors
/// A setting that cannot be used.
pub fn services(
    load: &LoadConfig,
    target: Endpoint,
    threads: u32,
) -> Result<(Vec<LoadService>, LoadRun), LoadError> {
    load.validate()?;
    check_range("threads", threads, 1, load.connections.min(THREADS_MAX))?;
    if target.port == 0 {
        let allowed = "an address with a port above 0";
        return Err(ConfigError::new("target", target, allowed).into());
    }
    let workload = Arc::new(Workload::new(&load.workload, load.seed)?);
    let shared = Arc::new(Shared {
        rendezvous: Rendezvous::new(threads),
        phase: AtomicU32::new(Phase::Idle as u32),
        over: AtomicU32::new(0),
        outcomes: Mutex::new(Vec::with_capacity(threads as usize)),
    });
    let services = (0..threads)
        .map(|index| {
            let (workload, shared) = (Arc::clone(&workload), Arc::clone(&shared));
            LoadService::new(load, (index, threads), target, workload, shared)
        })
        .collect::<Result<_, _>>()?;
    Ok((services, LoadRun { load: load.clone(), threads, shared }))
}

impl LoadRun {
    /// Whether every service has delivered what it measured and closed its connections.
    pub fn is_over(&self) -> bool {
        self.shared.over.load(Ordering::Acquire) >= self.threads
    }

    /// The longest that the run can take, in milliseconds: a caller that waits longer waits for a
    /// thread that does not run.
    pub fn limit_ms(&self) -> u64 {
        let load = &self.load;
        let preload_ms = if load.preloads() { load.preload_timeout_ms } else { 0 };
        let connect_ms = load.connect_timeout_ms.saturating_mul(2);
        connect_ms + preload_ms + load.warmup_ms + load.measure_ms + load.drain_ms + 1_000
    }

    /// Where the run stands, in a word.
    pub fn phase(&self) -> &'static str {
        const PHASES: [(Phase, &str); 7] = [
            (Phase::Idle, "connecting"),
            (Phase::Preloading, "storing keys"),
            (Phase::Ready, "waiting for the other threads"),
            (Phase::WarmingUp, "warming up"),
            (Phase::Measuring, "measuring"),
            (Phase::Draining, "draining"),
            (Phase::Done, "done"),
        ];
        let phase = self.shared.phase.load(Ordering::Relaxed);
        PHASES.iter().find(|(p, _)| *p as u32 == phase).map_or("unknown", |(_, name)| name)
    }

    /// The report of all threads under `conditions`, which [`LoadRun::conditions`] begins. To be
    /// asked for once, when the threads have been stopped.
    ///
    /// # Errors
    /// What a service failed with, or [`LoadError::Stopped`] where the run was not over.
    pub fn report(self, conditions: Conditions) -> Result<LoadReport, LoadError> {
        let outcomes = std::mem::take(
            &mut *self.shared.outcomes.lock().unwrap_or_else(PoisonError::into_inner),
        );
        let failed = outcomes.iter().any(Result::is_err);
        if outcomes.len() < self.threads as usize && !failed {
            return Err(LoadError::Stopped { phase: self.phase() });
        }
        LoadReport::of(&self.load, conditions, Ran::of_threads(&self.load, outcomes)?)
    }

    /// The conditions as far as the run knows them: `driver` is the dataplane's, such as
    /// `tailplane over af_xdp`. The caller adds its cores, queue mode, scheduler and batch bound.
    pub fn conditions(&self, driver: &str, target: Endpoint) -> Conditions {
        let mut conditions = Conditions::new(&self.load, driver, &target.to_string(), "spin");
        conditions.threads = self.threads;
        conditions
    }
}

#[cfg(test)]
mod tests;
