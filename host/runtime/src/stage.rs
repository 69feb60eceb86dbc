//! All threads of a run: started together, ended together, however one of them ends.

use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use clock::{Clock, MonotonicClock};
use dataplane::{ConservingThread, Elastic, Left, Tender};
use domain::Service;
use nic::{Nic, QueueSet};
use process::{NearBell, Placer};
use shown::Shown;
use stack::Shared;
use statseg::{Board, Segment, State};

use crate::bells::{Bell, Wake, end_run};
use crate::config::{CoreReport, RuntimeConfig};
use crate::controls::Controls;
use crate::error::{RuntimeError, keeps_to_its_core, system};
use crate::kicks::{Kicks, Tending};
use crate::processor::pin;
use crate::unsafe_priority::set_own_realtime;

/// How long a thread that ends goes on telling its peers so, where they or the device keep it waiting; after
/// how long it lets others have the processor meanwhile, and how often it looks again then.
const LEAVING: Duration = Duration::from_secs(1);
const LEAVING_HURRY: Duration = Duration::from_millis(2);
const LEAVING_LOOK: Duration = Duration::from_micros(200);

/// What all threads of a run have in common.
pub(super) struct Stage<'a> {
    pub config: &'a RuntimeConfig,
    /// What the threads' stacks have in common.
    pub shared: Arc<Shared>,
    pub clock: MonotonicClock,
    /// What `CLOCK_MONOTONIC` said when that clock began, in nanoseconds.
    pub epoch_ns: u64,
    pub bells: Arc<[Bell]>,
    pub kicks: Kicks,
    /// What steers the run, where something does.
    pub controls: Option<&'a Controls>,
    /// Whether flow groups may move: no thread's service keeps its connections to itself.
    pub is_movable: bool,
    pub stop: &'a AtomicBool,
    /// Elastic threads that do not receive yet, and those for kicks that have no priority yet.
    pub starting: AtomicUsize,
    /// Where each thread's application runs, where that is in another process.
    pub placers: Vec<Placer>,
    /// Of each thread, what its application rings when it is done with a batch, where it has one in another process.
    pub callers: Vec<Option<NearBell>>,
}

impl Stage<'_> {
    pub fn run_sharing<N: Nic + Send, S: Service + Send>(
        &self,
        threads: Vec<ConservingThread<N>>,
        make_service: &(dyn Fn(usize) -> S + Sync),
        ready: &(dyn Fn() + Sync),
    ) -> Result<Vec<(CoreReport, S)>, RuntimeError> {
        let kicked = self.config.scheduler.kicks();
        let tenders = threads.iter().filter(|_| kicked).map(ConservingThread::tender).collect();
        let threads = threads.into_iter().map(|thread| move || thread).collect();
        self.run(threads, tenders, make_service, ready)
    }

    pub fn run<T, N, S>(
        &self,
        threads: Vec<impl FnOnce() -> T + Send>,
        tenders: Vec<Tender<N>>,
        make_service: &(dyn Fn(usize) -> S + Sync),
        ready: &(dyn Fn() + Sync),
    ) -> Result<Vec<(CoreReport, S)>, RuntimeError>
    where
        T: Elastic,
        N: Nic + Send,
        S: Service + Send,
    {
        std::thread::scope(|scope| {
            let (mut handles, mut tended) = (Vec::new(), Vec::new());
            let failed = |tried, source| {
                self.end_all();
                self.kicks.end();
                system(tried, source)
            };
            self.starting.fetch_add(tenders.len(), Ordering::AcqRel);
            for (core, tender) in tenders.into_iter().enumerate() {
                let tending = self.kicks.tending();
                let body = move || self.tend(core, tending, tender, ready);
                let named = std::thread::Builder::new().name(format!("kicked-{core}"));
                let started = named.spawn_scoped(scope, body);
                tended.push(started.map_err(|error| failed("starting a thread for kicks", error))?);
            }
            for (core, make) in threads.into_iter().enumerate() {
                let body = move || self.one(core, make, make_service, ready);
                let named = std::thread::Builder::new().name(format!("elastic-{core}"));
                let started = named.spawn_scoped(scope, body);
                handles.push(started.map_err(|error| failed("starting an elastic thread", error))?);
            }
            let reports = join_all(handles);
            join_all(tended).and(reports)
        })
    }

    fn one<T: Elastic, S: Service>(
        &self,
        core: usize,
        make: impl FnOnce() -> T,
        make_service: &dyn Fn(usize) -> S,
        ready: &dyn Fn(),
    ) -> Result<(CoreReport, S), RuntimeError> {
        let others = EndsWithThis(self);
        // Its memory is first touched where it runs.
        let placed = self.place(core);
        let mut thread = make();
        // A panic is the service's as likely as ours: the peers are told all the same.
        let ran = catch_unwind(AssertUnwindSafe(|| {
            placed.and_then(|()| self.serve(core, &mut thread, make_service, ready))
        }));
        // All leave at the same time.
        drop(others);
        self.kicks.end();
        if let Some(board) = self.segment().and_then(|segment| segment.board(core as u16)) {
            board.set_state(State::Leaving);
        }
        // Where the first panic left something half done there may be a second: the first is told.
        let left = catch_unwind(AssertUnwindSafe(|| self.leave(thread)));
        let (report, service) = ran.unwrap_or_else(|payload| resume_unwind(payload))?;
        let left = left.unwrap_or_else(|payload| resume_unwind(payload));
        Ok((CoreReport { left, ..report }, service))
    }

    /// The thread that kicks wake, until all stop.
    fn tend<N: Nic>(
        &self,
        core: usize,
        _tending: Tending<'_>,
        tender: Tender<N>,
        ready: &dyn Fn(),
    ) -> Result<(), RuntimeError> {
        let _others = EndsWithThis(self);
        pin(core, self.config.cpus.get(core).copied())?;
        set_own_realtime(self.config.realtime.unwrap_or(0) + 1)?;
        self.has_started(ready);
        self.kicks.tend(core, &tender, self.clock, |wakes| self.ring(wakes), self.stop);
        Ok(())
    }

    /// Puts the calling thread, number `core`, where it is to run.
    fn place(&self, core: usize) -> Result<(), RuntimeError> {
        pin(core, self.config.cpus.get(core).copied())?;
        self.config.realtime.map_or(Ok(()), set_own_realtime)
    }

    fn serve<T: Elastic, S: Service>(
        &self,
        core: usize,
        thread: &mut T,
        make_service: &dyn Fn(usize) -> S,
        ready: &dyn Fn(),
    ) -> Result<(CoreReport, S), RuntimeError> {
        let mut service = make_service(core);
        if self.config.scheduler.shares() && !service.runs_anywhere() {
            return Err(keeps_to_its_core());
        }
        self.follow(core, thread, service.runs_anywhere());
        // Before the thread may do no more than serving takes.
        let device = thread.with_queues(device_fd)?;
        let own = statseg::words();
        let board = self.segment().and_then(|segment| segment.board(core as u16));
        let board = board.unwrap_or_else(|| Board::over(&own));
        let (segment, batch) = (self.segment(), self.config.elastic.batch);
        let now = self.clock.now();
        let mut shown = Shown::new(board, segment, core as u16, self.epoch_ns, batch, now);
        shown.set_processor(self.config.cpus.get(core).copied());
        // The first cycle lends the NIC its receive buffers: before, it drops what comes.
        self.cycle(self.clock.now(), thread, &mut service, &mut shown);
        self.has_started(ready);
        Ok(self.drive(core, thread, device, service, shown))
    }

    /// One more thread is where it is to run, at its priority. The last one knows by this that all are: from then on
    /// no thread is made, and none changes its priority.
    fn has_started(&self, ready: &dyn Fn()) {
        if self.starting.fetch_sub(1, Ordering::AcqRel) == 1 {
            ready();
        }
    }

    fn segment(&self) -> Option<&Segment> {
        self.config.segment.as_deref()
    }

    /// Has a thread look for migrations that are asked for.
    fn follow<T: Elastic>(&self, core: usize, thread: &mut T, runs_anywhere: bool) {
        let movable = self.controls.filter(|_| self.is_movable && runs_anywhere);
        let Some(mailbox) = movable.and_then(|controls| controls.mailbox(core)) else { return };
        thread.obey(match self.config.segment.clone() {
            None => mailbox,
            Some(segment) => mailbox.with_witness(move |groups, home| {
                groups.iter().for_each(|group| segment.set_home(group, home.into()));
            }),
        });
    }

    /// The end of a thread, however it came.
    fn leave<T: Elastic>(&self, mut thread: T) -> Left {
        let began = self.clock.now();
        loop {
            let now = self.clock.now();
            let waits = now < began + LEAVING && thread.withdraw(now);
            self.ring(thread.take_wakes());
            if !waits {
                break;
            }
            if now > began + LEAVING_HURRY {
                std::thread::sleep(LEAVING_LOOK);
            }
        }
        let left = thread.leave();
        if left.memory.lost > 0 {
            let chunks = left.memory.lost;
            tracing::warn!(chunks, "the device keeps packet memory until this process ends");
        }
        left
    }

    /// Has all threads end, those that sleep among them.
    fn end_all(&self) {
        end_run(self.stop, &self.bells);
    }

    /// Wakes those of these threads that sleep, one bit each.
    #[inline]
    pub fn ring(&self, mut wakes: u128) {
        while wakes != 0 {
            let other = wakes.trailing_zeros() as usize;
            wakes &= wakes - 1;
            if let Some(bell) = self.bells.get(other) {
                bell.ring(Wake::Turn);
            }
        }
    }
}

/// A descriptor of the thread's own for what the device has: it polls it while others have the device itself.
fn device_fd<N: Nic>(queues: &mut QueueSet<N>) -> Result<Option<OwnedFd>, RuntimeError> {
    let own = queues.wait_fd().map(|fd| fd.try_clone_to_owned()).transpose();
    own.map_err(|source| system("duplicating the descriptor of a queue pair", source))
}

/// Waits for all elastic threads; the first failure is the one that is told.
fn join_all<T>(
    handles: Vec<ScopedJoinHandle<'_, Result<T, RuntimeError>>>,
) -> Result<Vec<T>, RuntimeError> {
    let mut reports = Vec::new();
    let mut failure = None;
    for (core, handle) in handles.into_iter().enumerate() {
        match handle.join() {
            Ok(Ok(report)) => reports.push(report),
            Ok(Err(error)) => failure = failure.or(Some(error)),
            Err(payload) => {
                let message = panic_message(payload.as_ref());
                failure = failure.or_else(|| {
                    Some(RuntimeError(format!("elastic thread {core} panicked: {message}")))
                });
            }
        }
    }
    failure.map_or(Ok(reports), Err)
}

fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

/// Ends all elastic threads when one ends, also by an error or a panic: a dataplane of which a part
/// is missing would go on without the connections of that part, and nobody would be told.
struct EndsWithThis<'a>(&'a Stage<'a>);

impl Drop for EndsWithThis<'_> {
    fn drop(&mut self) {
        self.0.end_all();
    }
}
