//! Elastic threads whose application is another process: the `process` domain (IX §4.1).
//!
//! Each thread's service is the near side of the domain, which has the thread's network layer run on while the
//! application has a batch: acknowledgments, timers and other connections' packets do not wait for it.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clock::Clock;
use dataplane::{ConservingThread, Floor, OwnTender, Parts};
use domain::Service;
use mem::Region;
use nic::Nic;
use process::{Attendant, Near, Placement};

use super::stage::Hand;
use super::{Controls, CoreReport, Ground, RuntimeConfig, RuntimeError, Scheduler, set_realtime};

/// Between two looks after threads that sleep while their application has a batch: how long their network layer may
/// wait for them.
const LOOK: Duration = Duration::from_millis(1);
/// The same, where they have had no batch lately.
const IDLE_LOOK: Duration = Duration::from_millis(10);

/// As [`run_announced`](super::run_announced), for an application in another process: `nears` are the threads'
/// sides of the domain, in their order. `controls` steer it, where they are given: threads are granted, parked and
/// placed; flow groups stay where they are.
///
/// # Errors
/// As [`run`](super::run); [`RuntimeError::Queues`] also where there are not as many `nears` as `nics`.
pub fn run_protected<N>(
    config: &RuntimeConfig,
    region: &Arc<Region>,
    nics: Vec<N>,
    mut nears: Vec<Near<'static>>,
    ready: impl Fn() + Sync,
    controls: Option<&Controls>,
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
    let hand = controls.map_or(Hand::Nobody, Hand::Fixed);
    let (ground, ports) = Ground::new(config, nics.len(), hand)?;
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
    let stage = ground.stage(config, hand, stop);
    let tenders: Vec<OwnTender<N>> = threads.iter().map(ConservingThread::own_tender).collect();
    let on_shared_cores = nears.iter_mut().filter(|near| near.placement() == Placement::SameCore);
    let attendants: Vec<Attendant> = on_shared_cores.map(Near::attended).collect();
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
    let run = || stage.run_sharing(threads, &make, &ready);
    let reports = attended(attendants, config.realtime, run)?;
    Ok(reports.into_iter().map(|(report, _)| report).collect())
}

/// Calls `run` with a thread beside it that looks after those that need it.
fn attended<R>(
    attendants: Vec<Attendant>,
    realtime: Option<u8>,
    run: impl FnOnce() -> Result<R, RuntimeError>,
) -> Result<R, RuntimeError> {
    if attendants.is_empty() {
        return run();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        let _over = Sets(over);
        let named = std::thread::Builder::new().name("attendant".into());
        named
            .spawn_scoped(scope, move || attend(attendants, realtime, over))
            .map_err(|source| RuntimeError::System { tried: "starting a thread", source })?;
        run()
    })
}

/// Looks after the threads until it is over. With their priority: before their applications, which may have their cores
/// for themselves for as long as they like.
fn attend(mut attendants: Vec<Attendant>, realtime: Option<u8>, over: &AtomicBool) {
    if let Some(priority) = realtime
        && let Err(error) = set_realtime(priority)
    {
        tracing::warn!(%error, "what looks after the elastic threads runs without priority");
    }
    while !over.load(Ordering::Relaxed) {
        // All of them: each look tells of its own thread.
        let busy = attendants.iter_mut().fold(false, |busy, one| one.look() | busy);
        std::thread::sleep(if busy { LOOK } else { IDLE_LOOK });
    }
}

/// Sets a flag at its end, however that comes.
struct Sets<'a>(&'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
