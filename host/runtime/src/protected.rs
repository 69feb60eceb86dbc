//! Elastic threads whose application is another process: the `process` domain (IX §4.1).
//!
//! Each thread's service is the near side of the domain. Acknowledgments, timers and other connections' packets do not
//! wait for the application: a thread that runs to completion goes on while its application has a batch; others wait,
//! and run their network layer meanwhile. Where the application's threads run may change at any time
//! ([`Placer`](process::Placer)).

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clock::Clock;
use dataplane::{ConservingThread, ElasticThread, Floor, OwnTender, Parts, Tender};
use domain::Service;
use mem::{Pool, Region};
use nic::{Nic, QueueSet};
use process::{Attendant, Near};

use crate::beside::beside;
use crate::config::{CoreReport, RuntimeConfig, Scheduler};
use crate::controls::Controls;
use crate::error::{RuntimeError, keeps_to_its_core, refused, threads};
use crate::stage::Stage;
use crate::unsafe_priority::set_own_realtime;

/// Between two looks after threads that sleep while their application has a batch: how long their network layer may
/// wait for them.
const LOOK: Duration = Duration::from_millis(1);
/// The same, where they have had no batch lately.
const IDLE_LOOK: Duration = Duration::from_millis(10);

/// Free chunks that the pool of what an application sends keeps to itself: at least and at most.
const STAGED: (usize, usize) = (128, 512);

/// As [`run_controlled`](crate::run_controlled), for an application in another process: `nears` are the threads'
/// sides of the domain, in their order. `controls` steer it, where they are given: threads are granted, parked and
/// placed; flow groups are moved where the application runs anywhere.
///
/// # Errors
/// As [`run`](crate::run()); also where there are not as many `nears` as `nics`.
pub fn run_protected<N>(
    config: &RuntimeConfig,
    region: &Arc<Region>,
    nics: Vec<impl Into<QueueSet<N>>>,
    nears: Vec<Near<'static>>,
    ready: impl Fn() + Sync,
    controls: Option<&Controls>,
    stop: &AtomicBool,
) -> Result<Vec<CoreReport>, RuntimeError>
where
    N: Nic + Send,
{
    if nears.len() != nics.len() {
        return Err(threads(nics.len()));
    }
    if config.scheduler.shares() && !nears.iter().all(Service::runs_anywhere) {
        return Err(keeps_to_its_core());
    }
    let (room, events) = (nears.iter().map(Near::events_max).min(), config.elastic.events());
    if let Some(room) = room.filter(|room| *room < events) {
        return Err(RuntimeError(format!(
            "a batch of an elastic thread has up to {events} events, and the domain's event arrays have room for \
             {room}: make them larger (`process::Geometry`), or the batch smaller"
        )));
    }
    // Which of the application's threads hears of a connection must not matter to it.
    let is_movable = nears.iter().all(Service::runs_anywhere);
    let nics = nics.into_iter().map(Into::into).collect();
    let (stage, parts) = Stage::new(config, region, nics, controls, stop)?;
    let placers = nears.iter().map(Near::placer).collect();
    let stage = Stage { placers, is_movable, ..stage };
    let (shared, now) = (&stage.shared, stage.clock.now());
    match &config.scheduler {
        Scheduler::RunToCompletion => run_apart(stage, region, parts, nears, &ready),
        Scheduler::WorkConserving(conserving) => {
            let threads = Floor::threads(shared, parts, config.elastic, *conserving, now);
            run_tended(stage, threads, nears, &ready)
        }
        Scheduler::ReadySet(set) => {
            let threads =
                Floor::ready_set(shared, parts, config.elastic, set, now).map_err(refused)?;
            run_tended(stage, threads, nears, &ready)
        }
    }
}

/// Threads that run to completion and go on while their applications have a batch.
fn run_apart<N: Nic + Send>(
    stage: Stage<'_>,
    region: &Arc<Region>,
    parts: Vec<Parts<N>>,
    mut nears: Vec<Near<'static>>,
    ready: &(dyn Fn() + Sync),
) -> Result<Vec<CoreReport>, RuntimeError> {
    let stage = Stage { callers: nears.iter_mut().map(Near::go_apart).collect(), ..stage };
    let (config, stop) = (stage.config, stage.stop);
    let (clock, elastic) = (stage.clock, config.elastic);
    // What an application sends stands in this pool for the time of a crossing, and what two pools of a thread keep, no
    // other thread can have.
    let keep = (config.pool_keep / 4).clamp(STAGED.0, STAGED.1).min(config.pool_keep);
    let thread = |((core, Parts { queues, pool, ports }), mirror)| {
        let (shared, staging) = (Arc::clone(&stage.shared), Pool::new(region, keep));
        // Made where it runs: its parts cannot be moved.
        move || {
            ElasticThread::new(core as u8, shared, queues, pool, ports, elastic, clock.now())
                .staging(staging)
                .mirroring(mirror)
        }
    };
    let none = Vec::<Tender<N>>::new();
    let mirrors: Vec<_> = nears.iter().map(Near::mirror).collect();
    let attendants: Vec<Attendant> = nears.iter_mut().map(Near::attended).collect();
    let nears: Vec<_> = nears.into_iter().map(|near| Mutex::new(Some(near.until(stop)))).collect();
    let threads = parts.into_iter().enumerate().zip(mirrors).map(thread).collect();
    let run = || stage.run(threads, none, &hands_out(&nears), ready);
    attended(attendants, stage.config.realtime, run)
}

/// Makes each thread's service: takes it.
fn hands_out<'n, 'a>(
    nears: &'n [Mutex<Option<Near<'a>>>],
) -> impl Fn(usize) -> Near<'a> + Sync + use<'n, 'a> {
    |core| {
        let mut near = nears[core].lock().unwrap_or_else(|broken| broken.into_inner());
        near.take().expect("each thread asks once")
    }
}

/// Threads whose network layers run on while they wait for their applications.
fn run_tended<N: Nic + Send>(
    stage: Stage<'_>,
    mut threads: Vec<ConservingThread<N>>,
    mut nears: Vec<Near<'static>>,
    ready: &(dyn Fn() + Sync),
) -> Result<Vec<CoreReport>, RuntimeError> {
    let tenders: Vec<OwnTender<N>> = threads.iter_mut().map(ConservingThread::own_tender).collect();
    let attendants: Vec<Attendant> = nears.iter_mut().map(Near::attended).collect();
    let nears: Vec<_> = nears
        .into_iter()
        .zip(tenders)
        .map(|(near, tender)| {
            let (clock, stage) = (stage.clock, &stage);
            let tended = near.with_meanwhile(move || {
                let now = clock.now();
                stage.ring(tender.tend(now));
                now
            });
            Mutex::new(Some(tended.until(stage.stop)))
        })
        .collect();
    let run = || stage.run_sharing(threads, &hands_out(&nears), ready);
    attended(attendants, stage.config.realtime, run)
}

/// Calls `run` with a thread beside it that looks after those that need it. With their priority: before their applications,
/// which may have their cores for themselves for as long as they like.
fn attended<S>(
    mut attendants: Vec<Attendant>,
    realtime: Option<u8>,
    run: impl FnOnce() -> Result<Vec<(CoreReport, S)>, RuntimeError>,
) -> Result<Vec<CoreReport>, RuntimeError> {
    let begin = || {
        if let Err(error) = realtime.map_or(Ok(()), set_own_realtime) {
            tracing::warn!(%error, "what looks after the elastic threads runs without priority");
        }
    };
    let look = move || {
        // All of them: each look tells of its own thread.
        let busy = attendants.iter_mut().fold(false, |busy, one| one.look() | busy);
        std::thread::sleep(if busy { LOOK } else { IDLE_LOOK });
        true
    };
    let reports = beside("attendant", begin, look, run)??;
    Ok(reports.into_iter().map(|(report, _)| report).collect())
}
