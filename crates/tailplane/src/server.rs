//! Connections with a state and a send buffer: what IX's `libix` gave its applications (IX §4.3).
//!
//! Writes go straight into the frames of this batch as long as the window has room; what it has no
//! room for is kept here, in the application's own memory, and goes out when `sent` events open the
//! window. While much is kept, received bytes are not given back, so that a peer that does not read
//! cannot make the server buffer without bound: its own window closes.

mod sending;
mod shared_slots;
mod slots;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use clock::Instant;
use domain::{Calls, Cookie, Event, Events, Handle, Service};
use wire::Endpoint;

pub use sending::Output;
use sending::Sending;
use slots::{CACHED, Slot, Slots};

pub use shared_slots::{CoreSlots, SharedSlots};
pub use slots::OwnSlots;

/// Whether a connection goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// It does.
    Continue,
    /// It does, but what came for it is not done: once others had their turn, [`Protocol::resume`] is called.
    Yield,
    /// It is closed once all that was put has been sent.
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

    /// A peer connects; `None` rejects it.
    fn open(&mut self, now: Instant, opened: Opened) -> Option<Self::Connection>;

    /// Bytes came. All of them are consumed: what is not understood yet is kept in `connection`.
    fn receive(
        &mut self,
        now: Instant,
        connection: &mut Self::Connection,
        data: &[u8],
        output: &mut Output<'_, '_>,
    ) -> Flow;

    /// Goes on with what was put off by [`Flow::Yield`]. More bytes may have come meanwhile
    /// ([`receive`](Self::receive)): what they ask for is to be served after it.
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
    /// The number of the batch at hand: see [`Slots::first_batch`].
    batch: u64,
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
        Self { protocol, slots, batch, stats: ServerStats::default() }
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
        let sending = Sending::new(handle, window, self.batch);
        let Some(mut place) = self.slots.get(cookie) else {
            self.protocol.closed(connection);
            return None;
        };
        *place = Some(Slot { sending, connection: Some(connection) });
        Some(cookie)
    }

    /// Runs `body` on a connection for which (`received`) bytes came, with the window, then sends and gives back what
    /// can be.
    #[inline]
    fn with(
        &mut self,
        cookie: Cookie,
        handle: Handle,
        received: Option<(usize, u32)>,
        calls: &mut Calls<'_>,
        body: impl FnOnce(&mut P, &mut P::Connection, &mut Output<'_, '_>) -> Flow,
    ) {
        let Self { protocol, slots, stats, batch } = self;
        let Some(mut place) = slots.get(cookie) else { return };
        let Some(slot) = &mut *place else { return };
        if slot.sending.handle != handle {
            return;
        }
        if let Some((bytes, window)) = received {
            slot.sending.unreturned += bytes as u32;
            slot.sending.set_window(*batch, window);
        }
        let flow = match &mut slot.connection {
            Some(connection) => {
                let mut output = Output {
                    sending: &mut slot.sending,
                    calls,
                    batch: *batch,
                    kept_bytes: &mut stats.kept_bytes,
                };
                body(protocol, connection, &mut output)
            }
            None => Flow::Continue,
        };
        match flow {
            Flow::Continue => {}
            Flow::Yield => {
                if !core::mem::replace(&mut slot.sending.yielded, true) {
                    calls.again(handle);
                }
            }
            Flow::Close => {
                slot.sending.closing = true;
                if let Some(connection) = slot.connection.take() {
                    protocol.closed(connection);
                }
            }
            Flow::Abort => {
                if let Some(connection) = slot.connection.take() {
                    protocol.closed(connection);
                }
                slot.sending.forget();
                // Where the batch is full, an orderly close is tried again.
                slot.sending.closing = calls.abort(handle).is_err();
            }
        }
        slot.sending.flush(*batch, calls);
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

    /// The window is told, by itself: sends what it has room for, and what else waits. Answers whether the
    /// connection has put something off.
    #[inline]
    fn go_on(
        &mut self,
        cookie: Cookie,
        handle: Handle,
        window: u32,
        calls: &mut Calls<'_>,
    ) -> bool {
        let Some(mut place) = self.slots.get(cookie) else { return false };
        let Some(slot) = &mut *place else { return false };
        if slot.sending.handle != handle {
            return false;
        }
        slot.sending.set_window(self.batch, window);
        slot.sending.flush(self.batch, calls);
        slot.sending.yielded
    }

    fn dead(&mut self, cookie: Cookie, handle: Handle) {
        let Some(mut place) = self.slots.get(cookie) else { return };
        if place.as_ref().is_none_or(|slot| slot.sending.handle != handle) {
            return;
        }
        let slot = place.take();
        drop(place);
        if let Some(connection) = slot.and_then(|slot| slot.connection) {
            self.protocol.closed(connection);
        }
        self.slots.release(cookie);
        self.stats.ended += 1;
    }

    fn event(&mut self, now: Instant, event: Event<'_>, calls: &mut Calls<'_>) {
        match event {
            Event::Recv { handle, cookie, data, window, .. } => {
                self.with(
                    cookie,
                    handle,
                    Some((data.len(), window)),
                    calls,
                    |protocol, connection, output| protocol.receive(now, connection, data, output),
                );
            }
            Event::Sent { handle, cookie, window, .. } => {
                self.go_on(cookie, handle, window, calls);
            }
            Event::Again { handle, cookie, window } => {
                if self.go_on(cookie, handle, window, calls) {
                    self.with(cookie, handle, None, calls, |protocol, connection, output| {
                        output.sending.yielded = false;
                        protocol.resume(now, connection, output)
                    });
                }
            }
            Event::Knock { handle, local_port, peer, window } => {
                self.knock(now, handle, Opened { local_port, peer }, window, calls);
            }
            Event::Eof { handle, cookie } => {
                self.with(cookie, handle, None, calls, |protocol, connection, output| {
                    protocol.end(now, connection, output)
                });
            }
            Event::Dead { handle, cookie, .. } => self.dead(cookie, handle),
            Event::Datagram { local_port, peer, data } => {
                self.protocol.datagram(now, data, &mut |reply| {
                    // UDP promises nothing: a full batch drops the reply.
                    let _ = calls.udp_sendv(local_port, peer, &[reply]);
                });
            }
            Event::Failed { call: domain::CallKind::Sendv, handle, cookie, .. } => {
                // A hole in the stream cannot be mended.
                self.stats.broken += 1;
                self.with(cookie, handle, None, calls, |_, _, _| Flow::Abort);
            }
            // A server does not connect, and its other calls fail only on connections that died.
            Event::Connected { .. } | Event::Failed { .. } => {}
        }
    }
}

impl<P: Protocol, S: Slots<P::Connection>> Service for Server<P, S> {
    // Not inlined: within the dataplane's cycle its loop would have no registers.
    #[inline(never)]
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        self.batch = self.batch.wrapping_add(1);
        if self.slots.capacity() > CACHED {
            self.prefetch(events);
        }
        for event in events.iter() {
            self.event(now, event, calls);
        }
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
