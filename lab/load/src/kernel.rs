//! The transport over kernel TCP sockets: epoll, non-blocking, `TCP_NODELAY`.
//!
//! Each thread has its own connections, epoll instance and generator, and they
//! meet only before the start and after the end.
//!
//! When a run ends its connections are closed by reset, so that a series of runs with thousands of
//! connections does not run out of ports in TIME-WAIT.

use std::sync::Arc;
use std::time::Instant;

use crate::config::LoadConfig;
use crate::error::LoadError;
use crate::measurement::Ran;
use crate::rendezvous::Rendezvous;
use crate::report::LoadReport;
use crate::workload::Workload;

mod config;
mod dial;
mod drive;
mod part;
mod poller;
mod sockets;

pub use config::{KernelConfig, Wait};
use part::Part;

/// Carries `load` over kernel sockets and reports what was measured. Takes as long as the
/// connecting, the preloading, the warm-up, the window and the drain.
///
/// # Errors
/// A setting that cannot be used, connections that could not be opened, keys that could not be
/// stored in time, or a core that may not be used. Errors of the service during the run are
/// counted in the report.
pub fn run(load: &LoadConfig, transport: &KernelConfig) -> Result<LoadReport, LoadError> {
    load.validate()?;
    transport.validate(load)?;
    let workload = Arc::new(Workload::new(&load.workload, load.seed)?);
    let rendezvous = Rendezvous::new(transport.threads);
    let place = Place { index: 0, of: 1 };
    let outcomes = run_parts(load, transport, &workload, place, (Instant::now(), &rendezvous))?;
    LoadReport::of(load, transport.conditions(load), Ran::of_threads(load, outcomes)?)
}

/// Which of the generators of a run this one is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Its number.
    pub index: u32,
    /// How many there are; all have as many threads.
    pub of: u32,
}

/// Carries `load`, which is the share of the generator at `place`: what each thread brought back.
/// The threads' times count from the `origin`, and they start when the rendezvous lets them.
///
/// # Errors
/// A setting that cannot be used.
pub(crate) fn run_parts(
    load: &LoadConfig,
    transport: &KernelConfig,
    workload: &Arc<Workload>,
    place: Place,
    (origin, rendezvous): (Instant, &Rendezvous),
) -> Result<Vec<Result<Ran, LoadError>>, LoadError> {
    let threads = transport.threads;
    let mut parts = Vec::with_capacity(threads as usize);
    for index in 0..threads {
        let keys_share = (
            u64::from(place.index) * u64::from(threads) + u64::from(index),
            u64::from(place.of) * u64::from(threads),
        );
        parts.push(Part {
            load: load.split(index, threads)?,
            whole: load,
            transport,
            workload: Arc::clone(workload),
            index,
            keys_share,
            origin,
            rendezvous,
        });
    }
    Ok(std::thread::scope(|scope| {
        let threads: Vec<_> = parts
            .into_iter()
            .map(|part| {
                scope.spawn(move || {
                    let outcome = run_part(&part);
                    if outcome.is_err() {
                        part.rendezvous.fail();
                    }
                    outcome
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap_or(Err(LoadError::OtherThread))).collect()
    }))
}

fn run_part(part: &Part<'_>) -> Result<Ran, LoadError> {
    if let Some(&core) = part.transport.cores.get(part.index as usize) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(core);
        rustix::thread::sched_setaffinity(None, &set)
            .map_err(|errno| LoadError::Pin { core, source: errno.into() })?;
    }
    drive::run(part)
}

#[cfg(test)]
mod tests;
