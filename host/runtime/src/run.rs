//! Runs elastic threads on real threads, each with its service.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clock::Clock;
use dataplane::{ElasticThread, Floor, Parts, Tender};
use domain::Service;
use mem::Region;
use nic::{Nic, QueueSet};

use crate::config::{CoreReport, RuntimeConfig, Scheduler};
use crate::controls::Controls;
use crate::error::{RuntimeError, refused};
use crate::stage::Stage;

/// Runs one elastic thread for each device in `nics` until `stop` is set, each with the service
/// that `make_service` makes for its number. Answers what each has done, in order.
///
/// A thread that sleeps sees `stop` when it wakes ([`IdlePolicy::longest_sleep`](crate::IdlePolicy::longest_sleep)); [`Controls::end`] wakes it.
///
/// # Errors
/// [`RuntimeError`]; all threads have ended then.
pub fn run<N, S>(
    config: &RuntimeConfig,
    region: &Arc<Region>,
    nics: Vec<impl Into<QueueSet<N>>>,
    make_service: impl Fn(usize) -> S + Sync,
    stop: &AtomicBool,
) -> Result<Vec<(CoreReport, S)>, RuntimeError>
where
    N: Nic + Send,
    S: Service + Send,
{
    run_controlled(config, region, nics, make_service, || {}, None, stop)
}

/// The same, and calls `ready` once, as soon as packets that arrive are no longer lost. Where there are `controls`, they
/// steer it while it runs (IX §4.5, §4.6): threads are granted, parked and placed, and flow groups are moved where the
/// service [runs anywhere](Service::runs_anywhere).
///
/// # Errors
/// As [`run`]; also where the [`Controls`](crate::Controls) is for another number of threads, or was used before.
pub fn run_controlled<N, S>(
    config: &RuntimeConfig,
    region: &Arc<Region>,
    nics: Vec<impl Into<QueueSet<N>>>,
    make_service: impl Fn(usize) -> S + Sync,
    ready: impl Fn() + Sync,
    controls: Option<&Controls>,
    stop: &AtomicBool,
) -> Result<Vec<(CoreReport, S)>, RuntimeError>
where
    N: Nic + Send,
    S: Service + Send,
{
    let nics = nics.into_iter().map(Into::into).collect();
    run_dyn(config, region, nics, &make_service, &ready, controls, stop)
}

/// The same, made once for each kind of service and driver, and not for each closure: inlined, it would be.
#[inline(never)]
fn run_dyn<N, S>(
    config: &RuntimeConfig,
    region: &Arc<Region>,
    nics: Vec<QueueSet<N>>,
    make_service: &(dyn Fn(usize) -> S + Sync),
    ready: &(dyn Fn() + Sync),
    controls: Option<&Controls>,
    stop: &AtomicBool,
) -> Result<Vec<(CoreReport, S)>, RuntimeError>
where
    N: Nic + Send,
    S: Service + Send,
{
    let (stage, parts) = Stage::new(config, region, nics, controls, stop)?;
    let (shared, clock, elastic) = (&stage.shared, stage.clock, config.elastic);
    let now = clock.now();
    match &config.scheduler {
        Scheduler::RunToCompletion => {
            let thread = |(core, Parts { queues, pool, ports })| {
                let shared = Arc::clone(shared);
                // Made where it runs: its parts cannot be moved.
                move || {
                    ElasticThread::new(
                        core as u8,
                        shared,
                        queues,
                        pool,
                        ports,
                        elastic,
                        clock.now(),
                    )
                }
            };
            let none = Vec::<Tender<N>>::new();
            let threads = parts.into_iter().enumerate().map(thread).collect();
            stage.run(threads, none, make_service, ready)
        }
        Scheduler::WorkConserving(conserving) => {
            let threads = Floor::threads(shared, parts, elastic, *conserving, now);
            stage.run_sharing(threads, make_service, ready)
        }
        Scheduler::ReadySet(set) => {
            let threads = Floor::ready_set(shared, parts, elastic, set, now).map_err(refused)?;
            stage.run_sharing(threads, make_service, ready)
        }
    }
}
