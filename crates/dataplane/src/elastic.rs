//! The elastic thread itself.

use alloc::sync::Arc;
use alloc::vec::Vec;

use clock::Instant;
use domain::{CallArray, Calls, EventArray, Events, Handle, Service};
use mem::{Mbuf, Pool};
use nic::Nic;
use stack::{Shared, Stack};

use crate::forward::ForwardPorts;

/// Settings of one elastic thread.
#[derive(Clone, Copy, Debug)]
pub struct ElasticConfig {
    /// B: packets that one cycle takes at most (IX §3: 64).
    pub batch: usize,
    /// Calls that the application can issue in one cycle.
    pub calls: usize,
    /// Frames that may wait for the transmit ring.
    pub tx_frames: usize,
}

impl Default for ElasticConfig {
    fn default() -> Self {
        Self { batch: 64, calls: 1024, tx_frames: 1024 }
    }
}

/// What a cycle did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Whether there was anything to do: packets, events, calls, timers, frames.
    pub worked: bool,
    /// Whether some of it is left, so that the next cycle should begin at once.
    pub pending: bool,
    /// Packets that were taken in step 1.
    pub received: usize,
    /// The next moment at which there will be, without a packet: a timer, or the service's wish.
    pub next_deadline: Option<Instant>,
}

/// Counters of the cycle (IX §4.6: what the control plane watches).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CycleStats {
    /// Cycles that did something.
    pub busy_cycles: u64,
    /// Cycles that found nothing to do.
    pub idle_cycles: u64,
    /// Packets taken in step 1.
    pub packets: u64,
    /// Crossings to the application.
    pub crossings: u64,
    /// Events handed to it.
    pub events: u64,
    /// Calls that it issued.
    pub calls: u64,
    /// Packets of another core's flow groups, dropped because the ring towards it was full.
    pub forward_drops: u64,
}

/// One elastic thread: a NIC queue pair, a pool, the stack with its flow groups, and the arrays
/// shared with the application.
pub struct ElasticThread<N: Nic> {
    nic: N,
    pool: Pool,
    stack: Stack,
    events: EventArray,
    calls: CallArray,
    /// Packets received and not yet carried through the stack.
    rx: Vec<Mbuf>,
    /// Buffers of the batch that the application has just seen; kept for its memory.
    buffers: Vec<(Option<Handle>, Mbuf)>,
    ports: ForwardPorts,
    /// Cores to which packets were forwarded since somebody asked, one bit each.
    forwarded: u128,
    config: ElasticConfig,
    stats: CycleStats,
    /// Packets that the present cycle has taken.
    received: usize,
}

impl<N: Nic> ElasticThread<N> {
    /// Elastic thread `core` of the dataplane that `shared` describes. `ports` are its ends of the
    /// forwarding rings (`ForwardPorts::default()` where it is the only one).
    pub fn new(
        core: u8,
        shared: Arc<Shared>,
        nic: N,
        pool: Pool,
        ports: ForwardPorts,
        config: ElasticConfig,
        now: Instant,
    ) -> Self {
        let batch = config.batch.max(1);
        // Room for the events of a full batch and for the failures of a full array of calls.
        let events = EventArray::new(8 * batch + config.calls + 32);
        let segment_bytes = shared.config.mss() as usize - 12;
        Self {
            nic,
            pool,
            stack: Stack::new(shared, core, now, config.tx_frames),
            events,
            calls: CallArray::new(config.calls.max(1), segment_bytes),
            rx: Vec::with_capacity(batch),
            buffers: Vec::with_capacity(8 * batch + config.calls + 32),
            ports,
            forwarded: 0,
            config: ElasticConfig { batch, ..config },
            stats: CycleStats::default(),
            received: 0,
        }
    }

    /// Steps 1 and 2. Answers whether there are events for the application.
    pub fn begin(&mut self, now: Instant) -> bool {
        // 1. Poll: what other cores forwarded was received earlier, so it comes first. Never wait
        // to fill the batch, never exceed it.
        let room = self.config.batch - self.rx.len().min(self.config.batch);
        let forwarded = self.ports.receive(&mut self.rx, room);
        let received = self.nic.receive(now, &mut self.pool, &mut self.rx, room - forwarded);
        self.received = forwarded + received;
        self.stats.packets += self.received as u64;
        // 2. Protocol processing: packets become events.
        self.stack.deliver(now, &mut self.pool, &mut self.events);
        if !self.rx.is_empty() {
            let (ports, stats, forwarded) = (&mut self.ports, &mut self.stats, &mut self.forwarded);
            let forward = |home: u8, mbuf, pool: &mut Pool| {
                *forwarded |= 1u128.checked_shl(home as u32).unwrap_or(0);
                if let Err(mbuf) = ports.send(home, mbuf) {
                    stats.forward_drops += 1;
                    pool.free(mbuf);
                }
            };
            self.stack.input(now, &mut self.rx, &mut self.pool, &mut self.events, forward);
        }
        !self.events.is_empty()
    }

    /// Step 3: what the application consumes, and what it fills.
    pub fn crossing(&mut self) -> (Events<'_>, Calls<'_>) {
        self.stats.crossings += 1;
        self.stats.events += self.events.len() as u64;
        (self.events.view(&self.stack), Calls::new(&mut self.calls, &mut self.pool))
    }

    /// Steps 4 to 6, once the application has finished with the batch (or was not run, because
    /// there was nothing for it).
    pub fn finish(&mut self, now: Instant) -> Progress {
        let had_events = !self.events.is_empty();
        let calls = self.calls.len();
        self.stats.calls += calls as u64;
        // 4. Batched system calls. The buffers of the batch are taken first: calls may cause events
        // of the next one. They are settled once `recv_done` has been heard.
        let mut buffers = core::mem::take(&mut self.buffers);
        self.events.take_buffers(&mut buffers);
        let (array, pool, events) = (&mut self.calls, &mut self.pool, &mut self.events);
        self.stack.execute(now, array, &mut buffers, pool, events);
        self.buffers = buffers;
        // 5. Timers.
        self.stack.run_timers(now, &mut self.pool, &mut self.events);
        // 6. Transmit: what must still be acknowledged, then all frames; reclaim in its own pass.
        self.stack.flush(now, &mut self.pool, &mut self.events);
        let sent = self.nic.transmit(now, &mut self.pool, self.stack.frames());
        let reclaimed = self.nic.reclaim(&mut self.pool);
        let pending = !self.rx.is_empty()
            || !self.events.is_empty()
            || self.stack.has_work()
            || self.ports.has_work();
        let worked = pending || had_events || calls + sent + reclaimed > 0;
        match worked {
            true => self.stats.busy_cycles += 1,
            false => self.stats.idle_cycles += 1,
        }
        let next_deadline = match (self.stack.next_timer(), self.nic.next_event()) {
            (Some(timer), Some(device)) => Some(timer.min(device)),
            (timer, device) => timer.or(device),
        };
        Progress { worked, pending, received: self.received, next_deadline }
    }

    /// The whole cycle with an application that is linked in: a crossing is a function call.
    pub fn run_cycle(&mut self, now: Instant, service: &mut impl Service) -> Progress {
        let has_events = self.begin(now);
        if has_events || service.wake_at().is_some_and(|at| at <= now) {
            let (events, mut calls) = self.crossing();
            service.on_batch(now, events, &mut calls);
        }
        let mut progress = self.finish(now);
        if let Some(wish) = service.wake_at() {
            progress.next_deadline =
                Some(progress.next_deadline.map_or(wish, |other| other.min(wish)));
        }
        progress
    }

    /// The NIC's queue pair, to arm and disarm it for sleep.
    pub fn nic(&mut self) -> &mut N {
        &mut self.nic
    }

    /// The stack, to look at.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// The pool, to look at.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Whether packets wait that another core forwarded.
    pub fn has_forwarded(&self) -> bool {
        self.ports.has_work()
    }

    /// Cores to which packets were forwarded since the last call, one bit each: they may sleep.
    pub fn take_forwarded(&mut self) -> u128 {
        core::mem::take(&mut self.forwarded)
    }

    /// Counters of the cycle.
    pub fn stats(&self) -> CycleStats {
        self.stats
    }

    /// Counters of the queue pair.
    pub fn nic_stats(&self) -> nic::NicStats {
        self.nic.stats()
    }
}
