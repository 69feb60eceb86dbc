//! Connections with a state and a send buffer: what IX's `libix` gave its applications (IX §4.3).
//!
//! Writes go straight into the frames of this batch as long as the window has room; what it has no
//! room for is kept here, in the application's own memory, and goes out when `sent` events open the
//! window. While much is kept, received bytes are not given back, so that a peer that does not read
//! cannot make the server buffer without bound: its own window closes.

use std::collections::VecDeque;

use clock::Instant;
use domain::{Calls, Cookie, Event, Events, Handle, Service};
use mem::TableBox;
use wire::Endpoint;

/// Bytes kept for a connection beyond which it receives no more.
const KEPT_LIMIT: usize = 256 << 10;

/// Whether a connection goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// It does.
    Continue,
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

/// What a server does with its connections. One value serves one elastic thread.
pub trait Protocol {
    /// State of one connection.
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
    /// Connections rejected by the protocol.
    pub rejected: u64,
    /// Connections that ended.
    pub ended: u64,
    /// Bytes that the window had no room for when they were put, and so were copied once more.
    pub kept_bytes: u64,
    /// Connections aborted because the dataplane could not take what it had promised to.
    pub broken: u64,
}

/// One connection's sending side. Small: with a protocol's state of a few words it stands in one cache
/// line (asserted below).
#[derive(Debug)]
struct Sending {
    handle: Handle,
    /// Bytes that the dataplane takes now.
    window: u32,
    /// Bytes given to it in batch number `batch` (its low bits): a `sent` event of that batch does not
    /// know them.
    given: u32,
    batch: u32,
    /// Received bytes that were not given back yet: at most a receive window.
    unreturned: u32,
    /// `None`: nothing was ever kept.
    #[expect(
        clippy::box_collection,
        reason = "it is nearly always absent, and a word is less than four"
    )]
    kept: Option<Box<VecDeque<u8>>>,
    closing: bool,
    /// Stands in the list of connections to be tried again.
    queued: bool,
}

impl Sending {
    /// Bytes that are kept.
    #[inline]
    fn kept_len(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.len())
    }

    fn give(&mut self, batch: u32, bytes: usize) {
        if self.batch != batch {
            (self.batch, self.given) = (batch, 0);
        }
        self.given += bytes as u32;
        self.window -= bytes as u32;
    }

    fn set_window(&mut self, batch: u32, window: u32) {
        let given = if self.batch == batch { self.given } else { 0 };
        self.window = window.saturating_sub(given);
    }

    /// Sends what is kept, gives back what was received, closes: as far as the batch has room.
    /// Answers whether to try again in the next batch.
    #[inline]
    fn flush(&mut self, batch: u32, calls: &mut Calls<'_>) -> bool {
        // Nearly always there is nothing but received bytes to give back.
        if self.kept_len() > 0 || self.closing {
            return self.flush_kept(batch, calls);
        }
        let received = core::mem::take(&mut self.unreturned);
        if received > 0 && calls.recv_done(self.handle, received as usize).is_err() {
            self.unreturned = received;
            return true;
        }
        false
    }

    #[cold]
    fn flush_kept(&mut self, batch: u32, calls: &mut Calls<'_>) -> bool {
        // First what frees memory, then what needs it.
        if self.unreturned > 0 && self.kept_len() < KEPT_LIMIT {
            if calls.recv_done(self.handle, self.unreturned as usize).is_err() {
                return true;
            }
            self.unreturned = 0;
        }
        while self.window > 0
            && let Some(kept) = self.kept.as_mut().filter(|kept| !kept.is_empty())
        {
            let (front, _) = kept.as_slices();
            let count = front.len().min(self.window as usize);
            if calls.sendv(self.handle, &[&front[..count]]).is_err() {
                return true;
            }
            kept.drain(..count);
            self.give(batch, count);
        }
        // What the sends made room for can be returned with the next event.
        if self.closing && self.kept_len() == 0 {
            if calls.close(self.handle).is_err() {
                return true;
            }
            self.closing = false;
        }
        false
    }
}

/// Where a protocol puts its replies.
#[derive(Debug)]
pub struct Output<'a, 'b> {
    sending: &'a mut Sending,
    calls: &'a mut Calls<'b>,
    batch: u32,
    kept_bytes: &'a mut u64,
}

impl Output<'_, '_> {
    /// Appends bytes to the stream. They are copied before this returns: once, into the frame,
    /// while the window has room.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        if self.sending.kept_len() == 0 && !rest.is_empty() {
            let now = &rest[..rest.len().min(self.sending.window as usize)];
            if !now.is_empty() && self.calls.sendv(self.sending.handle, &[now]).is_ok() {
                self.sending.give(self.batch, now.len());
                rest = &rest[now.len()..];
            }
        }
        if !rest.is_empty() {
            *self.kept_bytes += rest.len() as u64;
            self.sending.kept.get_or_insert_default().extend(rest);
        }
    }
}

#[repr(align(64))]
struct Slot<C> {
    sending: Sending,
    /// Ended for the protocol, but not yet for the dataplane, where `None`.
    connection: Option<C>,
}

const _: () = assert!(size_of::<Option<Slot<u64>>>() == 64);

/// Slots that are allocated together.
const PAGE: usize = 64;
/// Slots beyond which a batch's are asked for before the first of them is used: fewer are in the caches.
const CACHED: usize = 4_096;

/// Connections, by cookie. They never move.
struct Slots<C> {
    pages: Vec<TableBox<[Option<Slot<C>>; PAGE]>>,
    free: Vec<u32>,
}

impl<C> Slots<C> {
    #[inline]
    fn get_mut(&mut self, index: usize) -> Option<&mut Option<Slot<C>>> {
        Some(&mut self.pages.get_mut(index / PAGE)?[index % PAGE])
    }

    /// A slot that is free. Allocates a page now and then: when a connection opens.
    fn take(&mut self) -> u32 {
        if self.free.is_empty() {
            let first = (self.pages.len() * PAGE) as u32;
            self.pages.push(TableBox::new(std::array::from_fn(|_| None)));
            self.free.extend((first..first + PAGE as u32).rev());
        }
        self.free.pop().unwrap_or_default()
    }

    fn capacity(&self) -> usize {
        self.pages.len() * PAGE
    }
}

/// A [`Service`] that runs a [`Protocol`].
pub struct Server<P: Protocol> {
    protocol: P,
    slots: Slots<P::Connection>,
    /// Connections for which the batch had no room.
    again: VecDeque<u32>,
    /// Connections that knocked when the batch had no room to accept them.
    knocks: VecDeque<(Handle, Opened, u32)>,
    batch: u32,
    stats: ServerStats,
}

impl<P: Protocol> Server<P> {
    /// A server of `protocol`, without connections.
    pub fn new(protocol: P) -> Self {
        Self {
            protocol,
            slots: Slots { pages: Vec::new(), free: Vec::new() },
            again: VecDeque::new(),
            knocks: VecDeque::new(),
            batch: 0,
            stats: ServerStats::default(),
        }
    }

    /// Counters.
    pub fn stats(&self) -> ServerStats {
        self.stats
    }

    /// The protocol.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.slots.capacity() - self.slots.free.len()
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
            self.knocks.push_back((handle, opened, window));
            return;
        }
        let Some(connection) = self.protocol.open(now, opened) else {
            self.stats.rejected += 1;
            // There is room: it was just asked for.
            let _ = calls.close(handle);
            return;
        };
        let sending = Sending {
            handle,
            window,
            given: 0,
            batch: self.batch,
            unreturned: 0,
            kept: None,
            closing: false,
            queued: false,
        };
        let index = self.slots.take();
        if calls.accept(handle, Cookie(index as u64)).is_err() {
            self.slots.free.push(index);
            self.protocol.closed(connection);
            return;
        }
        self.stats.accepted += 1;
        if let Some(place) = self.slots.get_mut(index as usize) {
            *place = Some(Slot { sending, connection: Some(connection) });
        }
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
        let Self { protocol, slots, stats, again, batch, .. } = self;
        let Some(Some(slot)) = slots.get_mut(cookie.0 as usize) else { return };
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
                slot.sending.kept = None;
                // Where the batch is full, an orderly close is tried again.
                slot.sending.closing = calls.abort(handle).is_err();
            }
        }
        if slot.sending.flush(*batch, calls) && !slot.sending.queued {
            slot.sending.queued = true;
            again.push_back(cookie.0 as u32);
        }
    }

    /// Asks for the slots of a batch: a message of one connection out of many finds it in no cache.
    #[inline(never)]
    fn prefetch(&mut self, events: Events<'_>) {
        for event in events.iter() {
            if let Event::Recv { cookie, .. } | Event::Sent { cookie, .. } = event
                && let Some(slot) = self.slots.get_mut(cookie.0 as usize)
            {
                mem::prefetch(slot);
            }
        }
    }

    fn retry(&mut self, calls: &mut Calls<'_>) {
        for _ in 0..self.again.len() {
            let Some(index) = self.again.pop_front() else { return };
            let Some(Some(slot)) = self.slots.get_mut(index as usize) else { continue };
            slot.sending.queued = slot.sending.flush(self.batch, calls);
            if slot.sending.queued {
                self.again.push_back(index);
            }
        }
    }

    fn dead(&mut self, cookie: Cookie, handle: Handle) {
        self.knocks.retain(|(knocked, ..)| *knocked != handle);
        let Some(place) = self.slots.get_mut(cookie.0 as usize) else { return };
        if place.as_ref().is_none_or(|slot| slot.sending.handle != handle) {
            return;
        }
        if let Some(connection) = place.take().and_then(|slot| slot.connection) {
            self.protocol.closed(connection);
        }
        self.slots.free.push(cookie.0 as u32);
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
                let batch = self.batch;
                if let Some(Some(slot)) = self.slots.get_mut(cookie.0 as usize)
                    && slot.sending.handle == handle
                {
                    slot.sending.set_window(batch, window);
                    if slot.sending.kept_len() > 0 || slot.sending.unreturned > 0 {
                        self.with(cookie, handle, None, calls, |_, _, _| Flow::Continue);
                    }
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

impl<P: Protocol> Service for Server<P> {
    // Not inlined: within the dataplane's cycle its loop would have no registers.
    #[inline(never)]
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        self.batch = self.batch.wrapping_add(1);
        if self.slots.capacity() > CACHED {
            self.prefetch(events);
        }
        if !self.again.is_empty() {
            self.retry(calls);
        }
        for _ in 0..self.knocks.len().min(calls.room()) {
            let Some((handle, opened, window)) = self.knocks.pop_front() else { break };
            self.knock(now, handle, opened, window, calls);
        }
        for event in events.iter() {
            self.event(now, event, calls);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        (!self.again.is_empty() || !self.knocks.is_empty()).then_some(Instant::ZERO)
    }
}

impl<P: Protocol> core::fmt::Debug for Server<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Server").field("stats", &self.stats).finish_non_exhaustive()
    }
}
