//! The network layer of one elastic thread: its NIC queue pair, its packet memory, and its stack with the
//! flow groups that are at home here. All steps of the cycle but the third.
//!
//! Which core runs it is not its business: the thread's own or, under a scheduler that is work-conserving,
//! one that has nothing else to do.

use alloc::sync::Arc;
use alloc::vec::Vec;

use clock::Instant;
use domain::{CallArray, EventArray, Handle};
use mem::{Mbuf, Pool};
use nic::Nic;
use stack::{Shared, Stack};

use crate::elastic::{CycleStats, ElasticConfig, Left, Progress};
use crate::forward::ForwardPorts;

/// Buffers that came with a batch of events, each with the connection that it belongs to.
pub(crate) type Buffers = Vec<(Option<Handle>, Mbuf)>;

/// See the module's comment.
pub(crate) struct NetLayer<N: Nic> {
    pub nic: N,
    pub pool: Pool,
    pub stack: Stack,
    /// Events that the application has not been handed.
    pub events: EventArray,
    /// Packets received and not yet carried through the stack.
    rx: Vec<Mbuf>,
    pub ports: ForwardPorts,
    /// Cores to which packets were forwarded since somebody asked, one bit each.
    pub forwarded: u128,
    batch: usize,
    pub stats: CycleStats,
    /// Packets that the present cycle has taken.
    pub received: usize,
}

impl<N: Nic> NetLayer<N> {
    /// The network layer of elastic thread `core`.
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
        Self {
            nic,
            pool,
            stack: Stack::new(shared, core, now, config.tx_frames),
            // Room for the events of a full batch and for the failures of a full array of calls.
            events: EventArray::new(8 * batch + config.calls + 32),
            rx: Vec::with_capacity(batch),
            ports,
            forwarded: 0,
            batch,
            stats: CycleStats::default(),
            received: 0,
        }
    }

    /// Steps 1 and 2: packets become events.
    #[inline]
    pub fn receive(&mut self, now: Instant) {
        // 1. Poll: what other cores forwarded was received earlier, so it comes first. Never wait
        // to fill the batch, never exceed it.
        let room = self.batch - self.rx.len().min(self.batch);
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
    }

    /// Step 4: executes calls. `buffers` are those of the events that the application has seen; they are
    /// settled once `recv_done` has been heard.
    #[inline]
    pub fn execute(&mut self, now: Instant, calls: &mut CallArray, buffers: &mut Buffers) {
        self.stack.execute(now, calls, buffers, &mut self.pool, &mut self.events);
    }

    /// Steps 5 and 6. `worked`: the application had something to do, or asked for something.
    #[inline]
    pub fn finish(&mut self, now: Instant, worked: bool) -> Progress {
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
        let worked = pending || worked || sent + reclaimed > 0;
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

    /// A cycle without an application: a portion of the connections is reset, and what comes for the
    /// application is nobody's. Answers whether the next one has something to do.
    pub fn withdraw(&mut self, now: Instant) -> bool {
        self.receive(now);
        self.drop_events();
        let more = self.stack.reset_connections(now, &mut self.pool, &mut self.events);
        self.finish(now, true);
        self.drop_events();
        more || !self.stack.frames().is_empty() || self.nic.in_flight() > 0
    }

    fn drop_events(&mut self) {
        let Self { events, pool, .. } = self;
        events.drain().for_each(|(_, mbuf)| pool.free(mbuf));
    }

    /// Ends it, and gives back all packet memory.
    pub fn close(mut self) -> Left {
        self.drop_events();
        let Self { nic, mut pool, stack, mut rx, ports, .. } = self;
        rx.drain(..).for_each(|mbuf| pool.free(mbuf));
        ports.close(&mut pool);
        // The stack's claims end first, so that what the device returns is free.
        let connections = stack.close(&mut pool);
        let memory = nic.close(&mut pool);
        Left { connections, memory }
    }
}
