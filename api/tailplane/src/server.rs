//! Connections with a state and a send buffer: what IX's `libix` gave its applications (IX §4.3).
//!
//! Writes go straight into the frames of this batch as long as the window has room; what it has no
//! room for is kept here, in the application's own memory, and goes out when `sent` events open the
//! window.
//!
//! # What a connection can make a server keep
//!
//! A reply beyond the window, up to [`OUTPUT_LIMIT_BYTES`] and what one more [`put`](Output::put) adds: the
//! protocol is not asked for more until the peer has read. Bytes received meanwhile, and incomplete requests:
//! up to a receive window. [`Limits`] bound both for all connections together, and in time; the server ends the
//! connections that have waited longest first.

mod batch;
#[cfg(test)]
mod limit_tests;
mod limits;
mod sending;
mod shared_slots;
mod slots;
#[cfg(test)]
mod tests;
mod turn;
mod watch;

use std::sync::Arc;

use clock::Instant;
use domain::{Calls, Cookie, Event, Events, Handle, Service};
use wire::Endpoint;

use limits::Ended;
pub use limits::{CONNECTION_MEMORY_BYTES, ConnectionMemory, ConnectionMemoryStats, Limits};
use sending::Sending;
pub use sending::{OUTPUT_LIMIT_BYTES, Output};
use slots::{CACHED, Slot, Slots};
use turn::Turn;
use watch::{ASKED_AT_ONCE, Entry, PORTION, Watch};

pub use shared_slots::{CoreSlots, SharedSlots};
pub use slots::OwnSlots;

/// Of the connections that there may be, the part (one in so many) that is kept free by ending idle ones.
const CROWD_RESERVE: usize = 16;
/// Slots among which the connection that has been idle for longest is looked for.
const CROWD_SAMPLE: usize = 64;

/// Whether a connection goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// It does.
    Continue,
    /// It does, in the middle of a request: of the bytes that came the protocol has not taken the last `left`.
    /// The next call of [`Protocol::receive`] has them again, with what came since behind them.
    Partial {
        /// Bytes that were not taken; 0 where the protocol keeps the beginning of the request itself.
        left: usize,
        /// Whether the request began in these bytes, behind complete ones: its time begins now.
        begun: bool,
    },
    /// It does, but what came for it is not done: there is no [room](Output::room) for the reply, or others are
    /// to be served. [`Protocol::resume`] is called once the peer has read, or in a later batch; then
    /// [`Protocol::receive`] has the last `left` of the bytes that came again, with what came since.
    Yield {
        /// Bytes that were not taken.
        left: usize,
    },
    /// It is closed once all that was put has been sent. What the peer sends from then on resets it.
    Close,
    /// It is reset at once.
    Abort,
}

/// A new connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The port that the peer connected to.
    pub local_port: u16,
    /// The peer.
    pub peer: Endpoint,
}

/// What a server does with its connections. One value serves one elastic thread: what it holds itself is
/// that thread's.
pub trait Protocol {
    /// State of one connection. Where servers [share their connections](Server::shared), each call may be
    /// by another thread's value, one after the other.
    type Connection;

    /// Bytes of memory that the protocol has for a connection in the middle of a request or of a reply, beyond
    /// [`Connection`](Self::Connection): the server charges them with what it keeps itself.
    const REQUEST_BYTES: usize = 0;

    /// The limits of its connections. Asked once, when the server is made.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// A peer connects; `None` rejects it.
    fn open(&mut self, now: Instant, opened: Opened) -> Option<Self::Connection>;

    /// Bytes came. The protocol takes them, but for what it [leaves](Flow) to be given again.
    fn receive(
        &mut self,
        now: Instant,
        connection: &mut Self::Connection,
        data: &[u8],
        output: &mut Output<'_, '_>,
    ) -> Flow;

    /// Goes on with what was put off by [`Flow::Yield`]. Bytes that came meanwhile wait until it is done.
    fn resume(
        &mut self,
        _now: Instant,
        _connection: &mut Self::Connection,
        _output: &mut Output<'_, '_>,
    ) -> Flow {
        Flow::Continue
    }

    /// The peer will send no more. By default the connection is closed.
    fn end(
        &mut self,
        _now: Instant,
        _connection: &mut Self::Connection,
        _output: &mut Output<'_, '_>,
    ) -> Flow {
        Flow::Close
    }

    /// The connection has ended, however.
    fn closed(&mut self, _connection: Self::Connection) {}

    /// A datagram came; `reply` sends one back.
    fn datagram(&mut self, _now: Instant, _data: &[u8], _reply: &mut dyn FnMut(&[u8])) {}
}

/// What a server has done and met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections rejected: by the protocol, or because there are as many as shared slots hold.
    pub rejected: u64,
    /// Connections that ended.
    pub ended: u64,
    /// Bytes that the window had no room for when they were put, and so were copied once more.
    pub kept_bytes: u64,
    /// Connections aborted because the dataplane could not take what it had promised to.
    pub broken: u64,
    /// Events that were dropped because another core had their connection's slot in hand. Only a scheduler
    /// that breaks its promise ([`Service::runs_anywhere`]) makes it anything but zero.
    pub out_of_turn: u64,
}

/// A [`Service`] that runs a [`Protocol`], with its connections in `S`.
pub struct Server<P: Protocol, S: Slots<P::Connection> = OwnSlots<<P as Protocol>::Connection>> {
    protocol: P,
    slots: S,
    /// The number of the batch at hand: see [`batch`].
    batch: u64,
    /// The tick of that batch.
    tick: u64,
    watch: Watch,
    /// The slot that was looked at last for one that is idle.
    hand: usize,
    stats: ServerStats,
}

/// A [`Server`] whose connections any core may serve.
pub type SharedServer<P> = Server<P, CoreSlots<<P as Protocol>::Connection>>;

impl<P: Protocol> Server<P> {
    /// A server of `protocol`, without connections. It serves those of its own elastic thread.
    pub fn new(protocol: P) -> Self {
        Self::with_slots(protocol, OwnSlots::new())
    }
}

impl<P: Protocol> SharedServer<P>
where
    P::Connection: Send,
{
    /// The server of `protocol` for elastic thread `core`, without connections, whose connections the
    /// servers of all threads can serve: each thread's is made with the same `slots`. Under a scheduler that
    /// is work-conserving an idle core runs the turns of a busy one with it.
    ///
    /// # Panics
    /// Where `slots` are for fewer cores, or `core`'s part of them has a server already.
    pub fn shared(core: usize, protocol: P, slots: Arc<SharedSlots<P::Connection>>) -> Self {
        Self::with_slots(protocol, CoreSlots::new(core, slots))
    }
}

impl<P: Protocol, S: Slots<P::Connection>> Server<P, S> {
    fn with_slots(protocol: P, slots: S) -> Self {
        let batch = slots.first_batch();
        let watch = Watch::new(protocol.limits(), || slots.memory());
        let stats = ServerStats::default();
        Self { protocol, slots, batch, tick: 0, watch, hand: 0, stats }
    }

    /// Counters.
    pub fn stats(&self) -> ServerStats {
        ServerStats { out_of_turn: self.slots.out_of_turn(), ..self.stats }
    }

    /// The protocol.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// Connections that are open, of those that were accepted here.
    pub fn connections(&self) -> usize {
        self.slots.taken()
    }

    fn knock(
        &mut self,
        now: Instant,
        handle: Handle,
        opened: Opened,
        window: u32,
        calls: &mut Calls<'_>,
    ) {
        if calls.room() == 0 {
            // It knocks once more.
            return calls.again(handle);
        }
        let opened = self.open(now, handle, opened, window);
        // There is room: it was just asked for.
        let _ = match opened {
            Some(cookie) => {
                self.stats.accepted += 1;
                calls.accept(handle, cookie)
            }
            None => {
                self.stats.rejected += 1;
                calls.close(handle)
            }
        };
        if self.is_crowded() {
            self.make_room(now, calls);
        }
    }

    /// Whether there are nearly as many connections as there may be.
    fn is_crowded(&self) -> bool {
        self.watch.limits.max_connections.is_some_and(|most| {
            let many = most - most / CROWD_RESERVE;
            self.slots.capacity() >= many && self.slots.taken() >= many
        })
    }

    /// Resets the connection that has been idle for longest, of the next [`CROWD_SAMPLE`]: so peers that connect and
    /// ask nothing keep nobody out. What other cores may have in hand is asked, and judges itself.
    #[cold]
    fn make_room(&mut self, now: Instant, calls: &mut Calls<'_>) {
        self.watch.memory.note_crowd(now);
        let (mut oldest, mut asked) = (None, 0);
        for _ in 0..CROWD_SAMPLE.min(self.slots.capacity()) {
            self.hand = (self.hand + 1) % self.slots.capacity();
            let Some((cookie, handle)) = self.slots.connection(self.hand) else { continue };
            if S::SHARED {
                calls.again(handle);
                asked += 1;
                if asked == ASKED_AT_ONCE {
                    return;
                }
                continue;
            }
            let place = self.slots.get(cookie);
            let last =
                place.as_deref().and_then(Option::as_ref).and_then(|slot| slot.idle_since(now));
            if let Some(last) = last
                && oldest.is_none_or(|(oldest, _)| last < oldest)
            {
                oldest = Some((last, (cookie, handle)));
            }
        }
        if let Some((last, connection)) = oldest
            && last + Limits::CROWD_IDLE <= now
        {
            self.with(now, connection, calls, |turn, slot| turn.end(slot, Ended::Crowded));
        }
    }

    /// The cookie of a new connection; `None` where it is rejected.
    fn open(
        &mut self,
        now: Instant,
        handle: Handle,
        opened: Opened,
        window: u32,
    ) -> Option<Cookie> {
        let cookie = self.slots.take()?;
        let Some(connection) = self.protocol.open(now, opened) else {
            self.slots.release(cookie);
            return None;
        };
        let mut sending = Sending::new(handle, window, self.batch);
        sending.open_tick = batch::tick(now) as u16;
        let Some(mut place) = self.slots.get(cookie) else {
            self.protocol.closed(connection);
            return None;
        };
        if self.watch.limits.idle_timeout.is_some() {
            self.watch.open(Entry { since: now, cookie, handle });
        }
        *place = Some(Slot { sending, connection: Some(connection) });
        drop(place);
        self.slots.occupy(cookie, handle);
        Some(cookie)
    }

    /// Runs `body` on a connection that keeps something, or is to end, and settles it.
    #[cold]
    #[inline(never)]
    fn with(
        &mut self,
        now: Instant,
        (cookie, handle): (Cookie, Handle),
        calls: &mut Calls<'_>,
        body: impl FnOnce(&mut Turn<'_, '_, P>, &mut Slot<P::Connection>),
    ) {
        let Self { protocol, slots, stats, batch, watch, .. } = self;
        let Some(mut place) = slots.get(cookie) else { return };
        let Some(slot) = place.as_mut().filter(|slot| slot.sending.handle == handle) else {
            return;
        };
        let mut turn = Turn { protocol, stats, watch, batch: *batch, now, cookie, calls };
        body(&mut turn, slot);
        turn.settle(slot);
    }

    /// While memory is short: ends the connections that have kept something for longest.
    #[cold]
    fn relieve(&mut self, now: Instant, calls: &mut Calls<'_>) {
        for _ in 0..if S::SHARED { ASKED_AT_ONCE } else { PORTION } {
            if !self.watch.is_short(S::SHARED) || calls.room() == 0 {
                return;
            }
            let Some(Entry { since, cookie, handle }) = self.watch.take_oldest() else { return };
            match S::SHARED {
                // It may be in another core's hands: its next turn, whoever has it, looks.
                true => calls.again(handle),
                false => {
                    self.with(now, (cookie, handle), calls, |turn, slot| turn.evict(slot, since));
                }
            }
        }
    }

    /// Looks at connections that may have exceeded their time, a portion of them, and relieves the memory that
    /// another core's connections may have used up.
    #[cold]
    #[inline(never)]
    fn sweep(&mut self, now: Instant, calls: &mut Calls<'_>) {
        self.relieve(now, calls);
        if now < self.watch.wake() {
            return;
        }
        for _ in 0..PORTION.min(calls.room()) {
            let Some((Entry { cookie, handle, .. }, is_open)) = self.watch.take_due(now) else {
                return;
            };
            match (S::SHARED, is_open) {
                (true, _) => calls.again(handle),
                (false, false) => {
                    self.with(now, (cookie, handle), calls, |turn, slot| turn.look(slot))
                }
                (false, true) => self.with(now, (cookie, handle), calls, |turn, slot| {
                    turn.look_if_idle(slot, slot.sending.batch);
                }),
            }
        }
    }

    /// Bytes came for a connection, with the window.
    #[inline]
    fn received(
        &mut self,
        now: Instant,
        (cookie, handle): (Cookie, Handle),
        (data, window): (&[u8], u32),
        calls: &mut Calls<'_>,
    ) {
        let Self { protocol, slots, stats, batch, .. } = self;
        let Some(mut place) = slots.get(cookie) else { return };
        let Some(slot) = place.as_mut().filter(|slot| slot.sending.handle == handle) else {
            return;
        };
        let Slot { sending, connection } = slot;
        sending.unreturned += data.len() as u32;
        sending.set_window(*batch, window);
        let flow = match connection {
            Some(connection) if sending.backlog.is_none() => {
                let kept_bytes = &mut stats.kept_bytes;
                let mut output = Output { sending, calls, now, kept_bytes };
                let flow = protocol.receive(now, connection, data, &mut output);
                // Nearly always there is nothing but received bytes to give back.
                if flow == Flow::Continue && sending.is_clear() {
                    return sending.give_back(calls);
                }
                Some(flow)
            }
            _ => None,
        };
        drop(place);
        self.with(now, (cookie, handle), calls, |turn, slot| match flow {
            Some(flow) => turn.received(slot, flow, data),
            None => turn.receive(slot, data),
        });
        self.relieve(now, calls);
    }

    /// Asks for the slots of a batch: a message of one connection out of many finds it in no cache.
    #[inline(never)]
    fn prefetch(&mut self, events: Events<'_>) {
        for event in events.iter() {
            if let Event::Recv { cookie, .. } | Event::Sent { cookie, .. } = event {
                self.slots.prefetch(cookie);
            }
        }
    }

    /// An event tells of the window alone: sends what it has room for, and goes on with what waits.
    #[inline]
    fn sent(
        &mut self,
        now: Instant,
        (cookie, handle): (Cookie, Handle),
        window: u32,
        calls: &mut Calls<'_>,
    ) {
        let Some(mut place) = self.slots.get(cookie) else { return };
        let Some(slot) = place.as_mut().filter(|slot| slot.sending.handle == handle) else {
            return;
        };
        let sending = &mut slot.sending;
        sending.set_window(self.batch, window);
        if sending.is_clear() {
            return sending.give_back(calls);
        }
        drop(place);
        self.with(now, (cookie, handle), calls, |turn, slot| turn.go_on(slot));
        self.relieve(now, calls);
    }

    fn dead(&mut self, cookie: Cookie, handle: Handle) {
        let Some(mut place) = self.slots.get(cookie) else { return };
        let ended = place.take_if(|slot| slot.sending.handle == handle);
        let Some(Slot { sending, connection }) = ended else { return };
        drop(place);
        if let Some(backlog) = sending.backlog {
            self.watch.charge(backlog.charged, 0);
        }
        if let Some(connection) = connection {
            self.protocol.closed(connection);
        }
        self.slots.release(cookie);
        self.stats.ended += 1;
    }

    fn event(&mut self, now: Instant, event: Event<'_>, calls: &mut Calls<'_>) {
        match event {
            Event::Recv { handle, cookie, data, window, .. } => {
                self.received(now, (cookie, handle), (data, window), calls);
            }
            Event::Sent { handle, cookie, window, .. } => {
                self.sent(now, (cookie, handle), window, calls);
            }
            Event::Again { handle, cookie, window } => {
                self.with(now, (cookie, handle), calls, |turn, slot| {
                    let seen = slot.sending.batch;
                    slot.sending.set_window(turn.batch, window);
                    if S::SHARED {
                        turn.look_as_asked(slot, seen);
                    }
                    turn.go_on(slot);
                });
                self.relieve(now, calls);
            }
            Event::Knock { handle, local, peer, window } => {
                let opened = Opened { local_port: local.port(), peer };
                self.knock(now, handle, opened, window, calls);
            }
            Event::Eof { handle, cookie } => {
                self.with(now, (cookie, handle), calls, |turn, slot| turn.end_of_input(slot));
            }
            Event::Dead { handle, cookie, .. } => self.dead(cookie, handle),
            Event::Datagram { local, peer, data } => {
                self.protocol.datagram(now, data, &mut |reply| {
                    // UDP promises nothing: a full batch drops the reply.
                    let _ = calls.udp_sendv(local, peer, &[reply]);
                });
            }
            Event::Failed { call: domain::CallKind::Sendv, handle, cookie, .. } => {
                // A hole in the stream cannot be mended.
                self.stats.broken += 1;
                self.with(now, (cookie, handle), calls, |turn, slot| turn.abort(slot));
            }
            // A server neither connects, listens nor asks, and its other calls fail only on connections that died.
            Event::Connected { .. }
            | Event::Failed { .. }
            | Event::Listening { .. }
            | Event::Info { .. } => {}
        }
    }
}

impl<P: Protocol, S: Slots<P::Connection>> Service for Server<P, S> {
    // Not inlined: within the dataplane's cycle its loop would have no registers.
    #[inline(never)]
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        match batch::tick(now) {
            tick if tick > self.tick => {
                (self.tick, self.batch) = (tick, batch::first(self.slots.first_batch(), tick));
            }
            _ => self.batch += 1,
        }
        if self.slots.capacity() > CACHED {
            self.prefetch(events);
        }
        for event in events.iter() {
            self.event(now, event, calls);
        }
        // Nearly always no connection keeps anything.
        if self.watch.wake() != Instant::FAR_FUTURE {
            self.sweep(now, calls);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let wake = self.watch.wake();
        (wake != Instant::FAR_FUTURE).then_some(wake)
    }

    fn runs_anywhere(&self) -> bool {
        S::SHARED
    }
}

impl<P: Protocol, S: Slots<P::Connection>> core::fmt::Debug for Server<P, S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Server").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
