//! The network layer of one elastic thread: its NIC queue pairs, its packet memory, and its stack with the
//! flow groups that are at home here. All steps of the cycle but the third.
//!
//! Which core runs it is not its business: the thread's own or, under a scheduler that is work-conserving,
//! one that has nothing else to do.

use alloc::sync::Arc;
use alloc::vec::Vec;

use clock::{Duration, Instant};
use domain::{CallArray, EventArray, Handle};
use mem::{Mbuf, Pool};
use nic::{Armed, Nic, QueueSet};
use stack::{Away, FORWARDED, GroupSet, Shared, Stack};

use crate::classes::ClassTable;
use crate::cycle::{CycleStats, ElasticConfig, Left, Progress};
use crate::forward::ForwardPorts;
use crate::migration::Migration;

mod migrate;

/// After which time a core without a queue tries again to hand over frames, where the core that sends them had no room.
const RELAY_AGAIN: Duration = Duration::from_micros(50);

/// Buffers that came with a batch of events, each with the connection that it belongs to.
pub(crate) type Buffers = Vec<(Option<Handle>, Mbuf)>;

/// What step 2 has to know of step 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Polled {
    /// Flow groups are on their way, here or from here.
    is_moving: bool,
    /// The NIC had no more.
    is_dry: bool,
}

/// See the module's comment.
pub(crate) struct NetLayer<N: Nic> {
    pub queues: QueueSet<N>,
    pub pool: Pool,
    pub stack: Stack,
    /// Events that the application has not been handed.
    pub events: EventArray,
    /// Packets received and not yet carried through the stack.
    rx: Vec<Mbuf>,
    pub ports: ForwardPorts,
    /// The core that sends this one's frames, where this one has no queue.
    relay: Option<u8>,
    /// The cores whose frames this one sends, one bit each.
    relayed: u128,
    /// Cores to which packets were forwarded since somebody asked, one bit each.
    pub forwarded: u128,
    batch: usize,
    pub stats: CycleStats,
    /// Packets that the present cycle has taken.
    pub received: usize,
    /// Packets that it has left in the receive ring, where its batch is full.
    waiting: usize,
    /// The classes of connections, where the cores share one ready set.
    pub classes: Option<ClassTable>,
    /// Flow groups that come and go.
    pub migration: Migration,
    /// The application takes no events in this cycle: those that wait for it are no work.
    pub is_withheld: bool,
}

impl<N: Nic> NetLayer<N> {
    /// The network layer of elastic thread `core`.
    pub fn new(
        core: u8,
        shared: Arc<Shared>,
        queues: QueueSet<N>,
        pool: Pool,
        ports: ForwardPorts,
        config: ElasticConfig,
        now: Instant,
    ) -> Self {
        let batch = config.batch.max(1);
        Self {
            relay: queues.relay(),
            relayed: queues.relays_for(),
            queues,
            pool,
            stack: Stack::new(shared, core, now, config.tx_frames),
            events: EventArray::new(config.events()),
            rx: Vec::with_capacity(batch),
            ports,
            forwarded: 0,
            batch,
            stats: CycleStats::default(),
            received: 0,
            waiting: 0,
            classes: None,
            migration: Migration::new(core, config.migration),
            is_withheld: false,
        }
    }

    /// Steps 1 and 2: packets become events.
    #[inline]
    pub fn receive(&mut self, now: Instant) {
        let polled = self.poll(now);
        self.process(now, polled);
    }

    /// Step 1: takes packets that other cores forwarded and those that the NIC has.
    #[inline(always)]
    pub fn poll(&mut self, now: Instant) -> Polled {
        let mut room = self.batch - self.rx.len().min(self.batch);
        let is_moving = self.migration.is_active();
        let mut deferred = 0;
        if is_moving {
            deferred = self.before_receive(now, room);
            room -= deferred;
        }
        // What other cores forwarded was received earlier, so it comes first. Never wait to fill the batch, never
        // exceed it.
        let forwarded = self.ports.receive(&mut self.rx, room, &mut self.migration.heard);
        let asked = room - forwarded;
        let mut received = 0;
        self.queues.in_turn(|queue| {
            received += queue.receive(now, &mut self.pool, &mut self.rx, asked - received);
        });
        if is_moving && self.migration.departures.awaits_probes() {
            self.take_probes(received);
        }
        if is_moving || !self.migration.heard.is_empty() {
            deferred += self.after_receive(now, asked - received);
        }
        self.received = deferred + forwarded + received;
        // A ring that had no full batch is empty: then it is not asked.
        self.waiting = if received == asked { self.queues.rx_backlog() } else { 0 };
        self.stats.packets += self.received as u64;
        Polled { is_moving, is_dry: received < asked }
    }

    /// Step 2, protocol processing: packets become events.
    #[inline(always)]
    pub fn process(&mut self, now: Instant, polled: Polled) {
        self.stack.deliver(now, &mut self.pool, &mut self.events);
        let before = self.rx.len();
        if before > 0 {
            self.input(now);
        }
        if polled.is_moving {
            let is_dry = polled.is_dry && self.rx.is_empty();
            self.migration.departures.processed(before - self.rx.len(), is_dry);
        }
    }

    /// Whether packets or events wait for room in the event array.
    pub fn lacks_room(&self) -> bool {
        !self.rx.is_empty() || self.stack.has_late_events()
    }

    #[inline]
    fn input(&mut self, now: Instant) {
        let own = self.migration.departures.core();
        // Packets that are here before their groups; without an allocation where there are none.
        let mut early = Vec::new();
        let (ports, stats, forwarded) = (&mut self.ports, &mut self.stats, &mut self.forwarded);
        let forward = |Away { home, group }, mut mbuf: Mbuf, pool: &mut Pool| {
            if home == own {
                return early.push((group, mbuf));
            }
            *forwarded |= 1u128.checked_shl(home as u32).unwrap_or(0);
            mbuf.tag = FORWARDED;
            if let Err(mbuf) = ports.send(home, mbuf) {
                stats.forward_drops += 1;
                pool.free(mbuf);
            }
        };
        self.stack.input(now, &mut self.rx, &mut self.pool, &mut self.events, forward);
        for (group, mbuf) in early {
            self.park(group, mbuf);
        }
    }

    /// Step 4: executes calls. `buffers` are those of the events that the application has seen; they are
    /// settled once `recv_done` has been heard.
    #[inline]
    pub fn execute(&mut self, now: Instant, calls: &mut CallArray, buffers: &mut Buffers) {
        self.stack.execute(now, calls, buffers, &mut self.pool, &mut self.events);
        if self.stack.has_elsewhere() {
            self.route_calls(now);
        }
        if self.migration.departures.has_sealed() {
            self.set_aside();
        }
    }

    /// Steps 5 and 6. `worked`: the application had something to do, or asked for something. `is_busy`: whether
    /// it has connections of some flow groups in hand, here or elsewhere.
    #[inline]
    pub fn finish(
        &mut self,
        now: Instant,
        worked: bool,
        is_busy: impl Fn(GroupSet) -> bool,
    ) -> Progress {
        self.run_timers(now);
        self.transmit(now, worked, is_busy)
    }

    /// Step 5: runs what is due.
    #[inline]
    pub fn run_timers(&mut self, now: Instant) {
        self.stack.run_timers(now, &mut self.pool, &mut self.events);
    }

    /// Step 6: sends what must still be acknowledged, then all frames; reclaims in a pass of its own. The arguments are
    /// those of [`finish`](Self::finish).
    #[inline(always)]
    pub fn transmit(
        &mut self,
        now: Instant,
        worked: bool,
        is_busy: impl Fn(GroupSet) -> bool,
    ) -> Progress {
        self.stack.flush(now, &mut self.pool, &mut self.events);
        let (pool, frames) = (&mut self.pool, self.stack.frames());
        let sent = match self.queues.sender() {
            Some(queue) => queue.transmit(now, pool, frames),
            None => self.queues.transmit(now, pool, frames),
        };
        if let Some(relay) = self.relay.filter(|_| sent > 0) {
            self.forwarded |= 1u128.checked_shl(relay.into()).unwrap_or(0);
        }
        let reclaimed = self.queues.reclaim(&mut self.pool);
        self.pool.share_out();
        let is_moving =
            (self.migration.is_active() || self.migration.is_asked()) && self.migrate(now, is_busy);
        let takes_packets = self.takes_packets();
        let pending = is_moving
            || takes_packets && !self.rx.is_empty()
            || !(self.events.is_empty() || self.is_withheld)
            || self.stack.has_work_of_its_own()
            || takes_packets && self.stack.has_work_for_application()
            || self.relay.is_none() && !self.stack.frames().is_empty()
            || self.has_relayed()
            || self.hears_others();
        let worked = pending || worked || sent + reclaimed > 0;
        match worked {
            true => self.stats.busy_cycles += 1,
            false => self.stats.idle_cycles += 1,
        }
        let next_deadline = match (self.stack.next_timer(), self.queues.next_event()) {
            (Some(timer), Some(device)) => Some(timer.min(device)),
            (timer, device) => timer.or(device),
        };
        let again = self.is_blocked().then(|| now + RELAY_AGAIN);
        let next_deadline = next_deadline.into_iter().chain(again);
        let next_deadline = next_deadline.chain(self.migration.next_deadline()).min();
        let awaits = self.migration.is_active();
        let Self { received, waiting, .. } = *self;
        Progress {
            worked,
            pending,
            awaits,
            received,
            waiting,
            next_deadline,
            ..Progress::default()
        }
    }

    /// Whether something stands in the forwarding rings that can be taken.
    pub fn hears_others(&self) -> bool {
        self.ports.has_work() && self.takes_packets()
    }

    /// Whether frames of other cores wait for this one to send them.
    pub fn has_relayed(&self) -> bool {
        self.relayed != 0 && self.queues.relayed() > 0
    }

    /// Whether frames wait for room at the core that sends them, which does not wake this one.
    fn is_blocked(&mut self) -> bool {
        self.relay.is_some() && !self.stack.frames().is_empty()
    }

    /// A cycle without an application: a portion of the connections is reset, and what comes for the
    /// application is nobody's. Answers whether the next one has something to do, if only for a core whose frames this
    /// one sends, and which has not left.
    pub fn withdraw(&mut self, now: Instant) -> bool {
        self.stop_migrations();
        self.receive(now);
        self.drop_events();
        let more = self.stack.reset_connections(now, &mut self.pool, &mut self.events);
        self.finish(now, true, |_| false);
        self.drop_events();
        more || !self.stack.frames().is_empty()
            || self.queues.in_flight() > 0
            || self.relayed != 0 && self.ports.alive() & self.relayed != 0
    }

    /// Whether packets are processed: they wait where the application has all events that there is room for, and takes
    /// none.
    pub fn takes_packets(&self) -> bool {
        !self.is_withheld || Stack::takes_packets(&self.events)
    }

    /// Arms the queue pair, and looks at it once more. Returns whether it has nothing that would be taken, and is armed.
    pub fn arm(&mut self) -> bool {
        if !self.takes_packets() {
            return !self.has_relayed();
        }
        let is_armed = self.queues.arm() == Armed::Quiet;
        match is_armed {
            true => self.pool.rest(),
            false => self.queues.disarm(),
        }
        is_armed
    }

    /// Sends other cores nothing any more, so that none waits for this one.
    pub fn fall_silent(&mut self) {
        self.stop_migrations();
        let Self { ports, pool, .. } = self;
        ports.fall_silent(pool);
    }

    fn drop_events(&mut self) {
        let Self { events, pool, .. } = self;
        events.drain().for_each(|(_, mbuf)| pool.free(mbuf));
    }

    /// Ends it, and gives back all packet memory.
    pub fn close(mut self) -> Left {
        self.end_migrations();
        self.drop_events();
        let Self { queues, mut pool, stack, mut rx, ports, .. } = self;
        rx.drain(..).for_each(|mbuf| pool.free(mbuf));
        let untold = ports.close(&mut pool);
        // The stack's claims end first, so that what the device returns is free.
        let mut connections = stack.close(&mut pool);
        connections.untold += untold;
        let memory = queues.close(&mut pool);
        Left { connections, memory }
    }
}
