//! Elastic threads whose application is another process: the `process` domain (IX §4.1).
//!
//! Each thread's service is the near side of the domain, which has the thread's network layer run on while the
//! application has a batch: acknowledgments, timers and other connections' packets do not wait for it.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use clock::Clock;
use dataplane::{ConservingThread, Floor, OwnTender, Parts};
use domain::Service;
use mem::Region;
use nic::Nic;
use process::Near;

use super::{CoreReport, Ground, RuntimeConfig, RuntimeError, Scheduler};

/// As [`run_announced`](super::run_announced), for an application in another process: `nears` are the threads'
/// sides of the domain, in their order.
///
/// # Errors
/// As [`run`](super::run); [`RuntimeError::Queues`] also where there are not as many `nears` as `nics`.
pub fn run_protected<N>(
    config: &RuntimeConfig,
    region: &Arc<Region>,
    nics: Vec<N>,
    nears: Vec<Near<'static>>,
    ready: impl Fn() + Sync,
    stop: &AtomicBool,
) -> Result<Vec<CoreReport>, RuntimeError>
where
    N: Nic + Send,
{
    if nears.len() != nics.len() {
        return Err(RuntimeError::Queues { found: nics.len() });
    }
    if config.scheduler.shares() && !nears.iter().all(Service::runs_anywhere) {
        return Err(RuntimeError::KeepsToItsCore);
    }
    let (ground, ports) = Ground::new(config, nics.len())?;
    let (shared, now) = (&ground.shared, ground.clock.now());
    let parts = nics.into_iter().zip(ports);
    let parts = parts.map(|(nic, ports)| Parts {
        nic,
        pool: mem::Pool::new(region, config.pool_keep),
        ports,
    });
    let elastic = config.elastic;
    let threads: Vec<ConservingThread<N>> = match &config.scheduler {
        Scheduler::RunToCompletion => {
            let keep = config.pool_keep;
            let alone = |(core, parts)| Floor::alone(shared, core as u8, parts, elastic, keep, now);
            parts.enumerate().map(alone).collect()
        }
        Scheduler::WorkConserving(conserving) => {
            Floor::threads(shared, parts.collect(), elastic, *conserving, now)
        }
        Scheduler::ReadySet(set) => Floor::ready_set(shared, parts.collect(), elastic, set, now)?,
    };
    let stage = ground.stage(config, stop);
    let tenders: Vec<OwnTender<N>> = threads.iter().map(ConservingThread::own_tender).collect();
    let nears: Vec<_> = nears
        .into_iter()
        .zip(tenders)
        .map(|(near, tender)| {
            let (clock, stage) = (ground.clock, &stage);
            let tended = near.with_meanwhile(move || {
                let now = clock.now();
                stage.ring(tender.tend(now));
                now
            });
            Mutex::new(Some(tended.until(stop)))
        })
        .collect();
    let make = |core: usize| {
        let mut near = nears[core].lock().unwrap_or_else(|broken| broken.into_inner());
        near.take().expect("each thread asks once")
    };
    let reports = stage.run_sharing(threads, &make, &ready)?;
    Ok(reports.into_iter().map(|(report, _)| report).collect())
}
