//! The elastic thread itself.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use clock::Instant;
use domain::{CallArray, Calls, EventMirror, Events, Service};
use mem::Pool;
use nic::{Nic, NicStats, QueueSet};
use stack::{Shared, Stack};

use crate::cycle::{CycleStats, ElasticConfig, Left, Progress};
use crate::forward::ForwardPorts;
use crate::migration::{MigrationStats, MoveMailbox};
use crate::net_layer::{Buffers, NetLayer};
use crate::turn::{calls_of, discard};

/// One elastic thread that runs to completion: its network layer, and the arrays shared with the
/// application.
pub struct ElasticThread<N: Nic> {
    net: NetLayer<N>,
    calls: CallArray,
    /// Buffers of the batch that the application has just seen, or still has; kept for its memory.
    buffers: Buffers,
    /// Packet memory for what the application sends, where its batches last longer than a cycle: what it was told that
    /// it can have is not to be received into meanwhile.
    staging: Option<Pool>,
    /// The application has a batch, which came with `buffers`.
    lent: Option<Lent>,
    /// What an event costs in an application that has batches, roughly.
    event_ns: u64,
}

/// What the application has at the end of step 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Batch {
    /// Nothing: it has finished with its events, or there were none for it.
    Finished,
    /// An unfinished batch: it is in a process of its own, and keeps events for as long as it likes.
    Lent,
    /// It does not come back, with a batch or without one: nothing is handed to it.
    Withheld,
    /// Nothing, and it gets nothing in this cycle, which collected its calls: flow groups that are to move wait for such a
    /// moment, which never comes under load by itself, or the application is in debt.
    Paused,
}

/// A batch that the application has.
#[derive(Clone, Copy, Debug)]
struct Lent {
    since: Instant,
    events: usize,
}

/// What an event is taken to cost in the application before any was seen.
pub(crate) const FIRST_EVENT_NS: u64 = 10_000;

/// What an event costs, after so many took `spent`.
#[inline]
pub(crate) fn learned(event_ns: u64, spent: clock::Duration, events: usize) -> u64 {
    (7 * event_ns + spent.as_nanos() as u64 / events.max(1) as u64) / 8
}

impl<N: Nic> ElasticThread<N> {
    /// Elastic thread `core` of the dataplane that `shared` describes. `ports` are its ends of the
    /// forwarding rings (`ForwardPorts::default()` where it is the only one).
    pub fn new(
        core: u8,
        shared: Arc<Shared>,
        queues: impl Into<QueueSet<N>>,
        pool: Pool,
        ports: ForwardPorts,
        config: ElasticConfig,
        now: Instant,
    ) -> Self {
        let calls = calls_of(CallArray::new, config.calls.max(1), &shared.config);
        Self {
            net: NetLayer::new(core, shared, queues.into(), pool, ports, config, now),
            calls,
            buffers: Vec::with_capacity(config.events()),
            staging: None,
            lent: None,
            event_ns: FIRST_EVENT_NS,
        }
    }

    /// For a service whose batches last longer than a cycle ([`Service::has_batch`]): what it sends is written to chunks
    /// of `staging`, a pool of the same region.
    #[must_use]
    pub fn staging(self, staging: Pool) -> Self {
        Self { staging: Some(staging), ..self }
    }

    /// For peers without timestamps, whose segments are longer: what the application sends is staged in buffers of so many
    /// bytes, in a call array with room for `calls`.
    #[must_use]
    pub fn cutting(self, calls: usize, segment_bytes: usize) -> Self {
        Self { calls: CallArray::new(calls.max(1), segment_bytes), ..self }
    }

    /// For a service in another process: events are written to `mirror` as they come about.
    #[must_use]
    pub fn mirroring(mut self, mirror: impl EventMirror + 'static) -> Self {
        self.net.events.mirror_in(Box::new(mirror));
        self
    }

    /// Step 3: what the application consumes, and what it fills.
    fn cross(&mut self) -> (Events<'_>, Calls<'_>) {
        let net = &mut self.net;
        net.stats.crossings += 1;
        net.stats.events += net.events.len() as u64;
        let pool = match &mut self.staging {
            Some(staging) => {
                // What is sent comes back to the other one.
                staging.top_up(&mut net.pool);
                staging
            }
            None => &mut net.pool,
        };
        (net.events.view(&net.stack), Calls::new(&mut self.calls, pool))
    }

    /// The whole cycle (IX Figure 2). With an application that is linked in a crossing is a function call; one that is in
    /// another process has its batch for as long as it likes, and the cycle goes on without it.
    ///
    /// Which cores have to be woken for what was forwarded, [`take_wakes`](Elastic::take_wakes) says after it.
    pub fn run_cycle(&mut self, now: Instant, service: &mut impl Service) -> Progress {
        self.run_cycle_with(now, service, |_| ())
    }

    /// The same; `before_batch` is called before the application has a batch. Its steps are always inlined: as calls, they
    /// cost a cycle of one packet 2 % more instructions.
    #[inline]
    fn run_cycle_with(
        &mut self,
        now: Instant,
        service: &mut impl Service,
        before_batch: impl FnOnce(&mut Self),
    ) -> Progress {
        let polled = self.net.poll(now);
        self.net.process(now, polled);
        let batch = match self.without_batch(now, service) {
            Some(batch) => batch,
            None => {
                before_batch(self);
                let (events, mut calls) = self.cross();
                let lent = Lent { since: now, events: events.len() };
                service.on_batch(now, events, &mut calls);
                self.lent = service.has_batch().then_some(lent);
                if self.lent.is_some() { Batch::Lent } else { Batch::Finished }
            }
        };
        let worked = self.execute(now, batch);
        self.net.run_timers(now);
        let has_some = self.lent.is_some();
        let progress = self.net.transmit(now, worked, |_| has_some);
        with_wish(self.with_waiting(progress, batch), service)
    }

    /// Before step 3: collects the calls of a batch that is out, and answers why the application gets none in this cycle;
    /// `None`: it gets one.
    #[inline(always)]
    fn without_batch(&mut self, now: Instant, service: &mut impl Service) -> Option<Batch> {
        self.net.is_withheld = service.is_away(now);
        if self.net.is_withheld {
            return Some(Batch::Withheld);
        }
        if let Some(lent) = self.lent.take() {
            self.event_ns = learned(self.event_ns, now.since(lent.since), lent.events);
            self.collect(now, service);
            // `collect` charged the calls: an application in debt waits for its next batch.
            self.net.is_withheld = service.is_away(now);
            if self.net.is_withheld || self.net.migration.departures.has_sealed() {
                return Some(Batch::Paused);
            }
        }
        let is_idle = self.net.events.is_empty() && service.wake_at().is_none_or(|at| at > now);
        is_idle.then_some(Batch::Finished)
    }

    /// Step 4: executes the system calls of a batch that is finished. Whether there was anything to do for the application,
    /// or for one that has not finished.
    #[inline(always)]
    fn execute(&mut self, now: Instant, batch: Batch) -> bool {
        let net = &mut self.net;
        match batch {
            Batch::Finished => {
                let had_events = !net.events.is_empty();
                let calls = self.calls.len();
                net.stats.calls += calls as u64;
                // The buffers of the batch are taken first: calls may cause events of the next one.
                net.events.take_buffers(&mut self.buffers);
                net.execute(now, &mut self.calls, &mut self.buffers);
                had_events || calls > 0
            }
            Batch::Lent => {
                net.events.take_buffers(&mut self.buffers);
                true
            }
            Batch::Withheld => false,
            // The events are the next batch's.
            Batch::Paused => true,
        }
    }

    /// With what waits for an application that has a batch: the rest of that, and what came since.
    #[inline]
    fn with_waiting(&self, mut progress: Progress, batch: Batch) -> Progress {
        if batch == Batch::Finished {
            return progress;
        }
        progress.is_lent = self.lent.is_some();
        progress.ready = self.net.events.len() + self.lent.map_or(0, |lent| lent.events);
        // An application may keep a batch for as long as it likes.
        progress.ready_ns = (progress.ready as u64).saturating_mul(self.event_ns);
        progress
    }

    /// Step 4 of a batch that took longer than its cycle.
    #[cold]
    #[inline(never)]
    fn collect(&mut self, now: Instant, service: &mut impl Service) {
        let Self { net, calls, buffers, staging, .. } = self;
        let pool = staging.as_mut().unwrap_or(&mut net.pool);
        service.collect(now, &mut Calls::new(calls, pool));
        net.stats.calls += calls.len() as u64;
        net.execute(now, calls, buffers);
        // What came meanwhile told windows of before these calls.
        let stack = &mut net.stack;
        net.events.renew_windows(|handle| stack.window(handle));
    }

    /// What the application has in hand is nobody's any more.
    fn take_back(&mut self) {
        let Self { net, calls, buffers, lent, .. } = self;
        discard(calls, &mut net.pool);
        *lent = None;
        buffers.drain(..).for_each(|(_, mbuf)| net.pool.free(mbuf));
    }

    /// Its queue pairs, to arm and disarm them for sleep.
    pub fn queues(&mut self) -> &mut QueueSet<N> {
        &mut self.net.queues
    }

    /// The stack, to look at.
    pub fn stack(&self) -> &Stack {
        &self.net.stack
    }

    /// The pool, to look at.
    pub fn pool(&self) -> &Pool {
        &self.net.pool
    }
}

/// What drives an elastic thread sees of it, whatever its scheduler.
///
/// ```text
/// begin      steps 1 and 2, and the choice of what is next; false: nothing for the application
/// crossing   step 3: what the application consumes, and what it fills
/// finish     steps 4 to 6
/// ```
///
/// Between `begin` and `finish` time passes while the application runs: each has a `now` of its own.
///
/// A thread that ends withdraws from the network first, at any point of its cycle, for as long as its driver
/// likes to wait, and then leaves. One that is dropped instead tells no peer, and keeps its packet memory's
/// region from being unmapped.
pub trait Elastic {
    /// The driver of its queue pairs.
    type Nic: Nic;

    /// Steps 1 and 2. Answers whether there is something for the application.
    fn begin(&mut self, now: Instant) -> bool;

    /// Follows a [`begin`](Self::begin) that found nothing, where the service wishes a batch all the same: shows the
    /// other cores that this one goes into the application.
    fn begin_by_wish(&mut self, _now: Instant) {}

    /// Step 3: the application has the thread from `now()` on, which a scheduler that does not want to know never asks
    /// for: a look at the clock is dear beside a small request.
    fn crossing(&mut self, now: impl FnOnce() -> Instant) -> (Events<'_>, Calls<'_>);

    /// Steps 4 to 6; also where the application was not run.
    fn finish(&mut self, now: Instant) -> Progress;

    /// After a cycle that found nothing: from when on the same cycle would do something though nothing came,
    /// since it has then waited long enough. A thread that polls finds out by itself; a simulation, which
    /// leaves out polls that find nothing, has to ask.
    fn looks_again(&self) -> Option<Instant> {
        None
    }

    /// A cycle without an application, which is the last that hears of nothing: a portion of the
    /// connections ends, with resets as ABORT sends them (RFC 9293 §3.10.5), and whoever knocks is refused.
    /// Answers whether the next one has something to do: connections, frames that have not left. After the
    /// first, nothing but further ones and [`leave`](Self::leave) makes sense.
    fn withdraw(&mut self, now: Instant) -> bool;

    /// Gives all packet memory back. Connections that [`withdraw`](Self::withdraw) did not come to end
    /// without a word. Threads that share their network layers take all of them apart when the last one
    /// leaves: its answer counts for all.
    fn leave(self) -> Left
    where
        Self: Sized;

    /// Cores for which something was left since the last call, one bit each: they may sleep.
    fn take_wakes(&mut self) -> u128;

    /// Cores whose application is to be interrupted, one bit each, so that their network layer runs
    /// ([`kicked`](Self::kicked)). Hints: one that is lost costs latency, never more.
    fn take_kicks(&mut self) -> u128 {
        0
    }

    /// What a kick does, while the application is interrupted: runs the network layer. Any number of times
    /// between [`crossing`](Self::crossing) and [`finish`](Self::finish), and at any other time, when it may do
    /// nothing.
    fn kicked(&mut self, _now: Instant) {}

    /// Counters of the cycle.
    fn stats(&self) -> CycleStats;

    /// Counters of the queue pairs.
    fn nic_stats(&self) -> NicStats;

    /// From now on a controller can have flow groups of this thread moved (IX §4.5): this is the mailbox in
    /// which the thread looks for commands.
    fn obey(&mut self, mailbox: MoveMailbox);

    /// Counters of migrations.
    fn migrations(&self) -> MigrationStats;

    /// Shows the stack and the network layer's packet memory.
    fn inspect<R>(&self, body: impl FnOnce(&Stack, &Pool) -> R) -> R;

    /// Whether the thread is to leave its processor to others (IX §4.6): it goes on with what comes to it, and
    /// neither takes work of other threads nor is counted upon by them.
    fn set_parked(&mut self, _parked: bool) {}

    /// Chunks that are free in all pools of this thread, the depot not counted.
    fn free_chunks(&self) -> usize;

    /// Whether other cores have left nothing here. Declares so where they look for it: they then wake this core when
    /// something comes.
    fn is_quiet(&mut self) -> bool;

    /// Whether the controller has left a command in the mailbox.
    fn is_asked(&self) -> bool;

    /// Whether the thread takes packets: if not, it has no room for them until its application takes events, and blocks
    /// without a look at the device, which stays readable.
    fn takes_packets(&self) -> bool {
        true
    }

    /// Arms the queue pair and looks at it once more. Returns whether the device has nothing that the thread
    /// [takes](Self::takes_packets), so that it may block; if so, [`disarm`](Self::disarm) comes next. Else nothing is armed.
    fn arm(&mut self, now: Instant) -> bool;

    /// Goes to sleep where all cores run on one thread, so that none leaves anything meanwhile. Returns whether it
    /// may: as from [`arm`](Self::arm).
    fn sleeps(&mut self, now: Instant) -> bool {
        self.is_quiet() && !self.is_asked() && self.arm(now)
    }

    /// Ends what [`arm`](Self::arm) began.
    fn disarm(&mut self);

    /// Runs `body` on the queue pairs, which no other thread touches meanwhile.
    fn with_queues<R>(&mut self, body: impl FnOnce(&mut QueueSet<Self::Nic>) -> R) -> R;

    /// The whole cycle with an application that is linked in: a crossing is a function call.
    fn cycle(
        &mut self,
        now: Instant,
        driver: &mut impl Driver,
        service: &mut impl Service,
    ) -> Progress {
        let has_events = self.begin(now);
        let is_wished = !has_events && service.wake_at().is_some_and(|at| at <= now);
        if is_wished {
            self.begin_by_wish(now);
        }
        let mut after = now;
        if has_events || is_wished {
            driver.signal(self.take_wakes(), self.take_kicks());
            // Neither the steps before nor waking others is the application's time.
            let (events, mut calls) = self.crossing(|| driver.now());
            service.on_batch(now, events, &mut calls);
            after = driver.now();
        }
        let progress = self.finish(after);
        driver.signal(self.take_wakes(), self.take_kicks());
        with_wish(progress, service)
    }
}

/// What runs the cycles of an elastic thread: the clock, and the way to the other threads.
pub trait Driver {
    /// The time before and after the application, for a scheduler that wants to know.
    fn now(&self) -> Instant;

    /// Wakes the threads of `wakes` that sleep and interrupts the applications of `kicks`, a bit for each core. Called
    /// before the application, which may have the thread for long, and after the cycle.
    fn signal(&mut self, wakes: u128, kicks: u128);
}

#[inline]
fn with_wish(mut progress: Progress, service: &impl Service) -> Progress {
    if let Some(wish) = service.wake_at() {
        progress.next_deadline = Some(progress.next_deadline.map_or(wish, |other| other.min(wish)));
    }
    progress
}

impl<N: Nic> Elastic for ElasticThread<N> {
    type Nic = N;
    fn cycle(
        &mut self,
        now: Instant,
        driver: &mut impl Driver,
        service: &mut impl Service,
    ) -> Progress {
        // One look at the clock for a cycle.
        let progress = self.run_cycle_with(now, service, |thread| {
            driver.signal(thread.take_wakes(), 0);
        });
        driver.signal(self.take_wakes(), 0);
        progress
    }
    fn begin(&mut self, now: Instant) -> bool {
        self.net.receive(now);
        !self.net.events.is_empty()
    }
    fn crossing(&mut self, _now: impl FnOnce() -> Instant) -> (Events<'_>, Calls<'_>) {
        self.cross()
    }
    fn finish(&mut self, now: Instant) -> Progress {
        let worked = self.execute(now, Batch::Finished);
        self.net.finish(now, worked, |_| false)
    }
    fn withdraw(&mut self, now: Instant) -> bool {
        self.take_back();
        self.net.withdraw(now)
    }
    fn leave(mut self) -> Left {
        self.take_back();
        self.net.close()
    }
    fn take_wakes(&mut self) -> u128 {
        core::mem::take(&mut self.net.forwarded)
    }
    fn stats(&self) -> CycleStats {
        self.net.stats
    }
    fn nic_stats(&self) -> NicStats {
        self.net.queues.stats()
    }
    fn obey(&mut self, mailbox: MoveMailbox) {
        self.net.migration.mailbox = Some(mailbox);
    }
    fn migrations(&self) -> MigrationStats {
        self.net.migration.stats
    }
    fn inspect<R>(&self, body: impl FnOnce(&Stack, &Pool) -> R) -> R {
        body(&self.net.stack, &self.net.pool)
    }
    fn free_chunks(&self) -> usize {
        self.net.pool.free_len() + self.staging.as_ref().map_or(0, Pool::free_len)
    }
    fn is_quiet(&mut self) -> bool {
        !self.net.hears_others()
    }
    fn is_asked(&self) -> bool {
        self.net.migration.is_asked()
    }
    fn takes_packets(&self) -> bool {
        self.net.takes_packets()
    }
    fn arm(&mut self, _now: Instant) -> bool {
        self.net.arm()
    }
    fn disarm(&mut self) {
        self.net.queues.disarm();
    }
    fn with_queues<R>(&mut self, body: impl FnOnce(&mut QueueSet<N>) -> R) -> R {
        body(self.queues())
    }
}
