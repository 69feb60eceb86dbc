//! Event conditions: what the dataplane tells the application.

use alloc::vec::Vec;

use mem::Mbuf;
use wire::Endpoint;

use crate::{CallKind, Cookie, Handle};

/// Why `connect` failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// The peer answered with a reset: nothing listens there.
    Refused,
    /// No answer to any of the SYNs.
    TimedOut,
    /// Nobody answers ARP for the next hop, or a router said so.
    Unreachable,
    /// No ephemeral port towards this peer leads back to this core.
    NoPort,
    /// The table of connections is full.
    NoMemory,
    /// The operator's policy does not allow this application to connect there.
    Forbidden,
}

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeadReason {
    /// Both directions were closed in order.
    Closed,
    /// The peer sent a reset.
    Reset,
    /// The peer stopped answering.
    TimedOut,
    /// The application aborted it.
    Aborted,
}

/// Why a call was not, or not wholly, executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallError {
    /// The handle names no connection, or one that has ended.
    BadHandle,
    /// The call makes no sense in the connection's state (sending after close, accepting twice).
    BadState,
    /// Only the first `accepted` bytes were taken: the window, or the packet memory, was smaller.
    Trimmed {
        /// Bytes taken.
        accepted: u32,
    },
    /// More bytes were to be returned than had been received.
    TooMuch,
    /// A datagram did not fit one frame, or no route leads there.
    Unsendable,
    /// The operator's policy does not allow this application to send there, or from that port.
    Forbidden,
    /// The connection is on its way to another core, and as many calls wait for it as may: try again.
    Busy,
}

/// One event condition (IX Table II), as the application sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// A remotely initiated connection was opened. Answer with `accept` or `close`.
    Knock {
        /// The connection.
        handle: Handle,
        /// The port that the peer connected to.
        local_port: u16,
        /// The peer.
        peer: Endpoint,
        /// Bytes that may be sent now.
        window: u32,
    },
    /// A locally initiated connection finished opening.
    Connected {
        /// As passed to `connect`.
        cookie: Cookie,
        /// The connection and the bytes that may be sent now, or why there is none.
        outcome: Result<(Handle, u32), ConnectError>,
    },
    /// Bytes were received; they stand where the NIC put them. Give them back with `recv_done`.
    Recv {
        /// The connection.
        handle: Handle,
        /// As passed to `accept` or `connect`.
        cookie: Cookie,
        /// The bytes, in the order of the stream.
        data: &'a [u8],
        /// Bytes that the same segment newly acknowledged: where a request comes with the
        /// acknowledgment of the last reply, one event tells of both.
        acked: u32,
        /// Bytes that may be sent now, as of the event: what is sent in answer to earlier events of
        /// the same batch is to be taken off.
        window: u32,
    },
    /// The peer acknowledged bytes, and the window may have changed, without bytes for us.
    Sent {
        /// The connection.
        handle: Handle,
        /// As passed to `accept` or `connect`.
        cookie: Cookie,
        /// Bytes newly acknowledged.
        bytes: u32,
        /// Bytes that may be sent now, as of the event: see [`Recv`](Self::Recv).
        window: u32,
    },
    /// The peer will send no more (its FIN came, behind all `Recv` events). We still may.
    Eof {
        /// The connection.
        handle: Handle,
        /// As passed to `accept` or `connect`.
        cookie: Cookie,
    },
    /// Nothing came, but [`Calls::again`](crate::Calls::again) asked to be told of the connection.
    Again {
        /// The connection.
        handle: Handle,
        /// As passed to `accept` or `connect`.
        cookie: Cookie,
        /// Bytes that may be sent now, as of the event: see [`Recv`](Self::Recv).
        window: u32,
    },
    /// The connection ended; its handle is stale from now on.
    Dead {
        /// The connection.
        handle: Handle,
        /// As passed to `accept` or `connect`; zero where `accept` had not been called yet.
        cookie: Cookie,
        /// Why.
        reason: DeadReason,
    },
    /// A datagram was received. Its bytes are valid during this batch only.
    Datagram {
        /// The port it was sent to.
        local_port: u16,
        /// Its sender.
        peer: Endpoint,
        /// Its payload.
        data: &'a [u8],
    },
    /// A call was not, or not wholly, executed.
    Failed {
        /// Which call.
        call: CallKind,
        /// The handle that it named, as far as it had one.
        handle: Handle,
        /// The connection's cookie, where the handle names one.
        cookie: Cookie,
        /// Why.
        error: CallError,
    },
}

/// Where the bytes of an event stand: a buffer of the batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferRef {
    /// Index into the batch's buffers.
    pub index: u32,
}

/// One event condition as a record of fixed size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are those of `Event`")]
pub enum EventRecord {
    Knock { handle: Handle, local_port: u16, peer: Endpoint, window: u32 },
    Connected { cookie: Cookie, handle: Handle, window: u32 },
    ConnectFailed { cookie: Cookie, error: ConnectError },
    Recv { handle: Handle, cookie: Cookie, buffer: BufferRef, acked: u32, window: u32 },
    Sent { handle: Handle, cookie: Cookie, bytes: u32, window: u32 },
    Eof { handle: Handle, cookie: Cookie },
    Again { handle: Handle, cookie: Cookie, window: u32 },
    Dead { handle: Handle, cookie: Cookie, reason: DeadReason },
    Datagram { local_port: u16, peer: Endpoint, buffer: BufferRef },
    Failed { call: CallKind, handle: Handle, cookie: Cookie, error: CallError },
}

const _: () = assert!(size_of::<EventRecord>() <= 32);

impl EventRecord {
    /// Where its bytes stand, if it has any.
    pub fn buffer(&self) -> Option<BufferRef> {
        match *self {
            Self::Recv { buffer, .. } | Self::Datagram { buffer, .. } => Some(buffer),
            _ => None,
        }
    }

    /// The same, with its bytes, if it has any, in another place.
    fn with_buffer(mut self, place: BufferRef) -> Self {
        if let Self::Recv { buffer, .. } | Self::Datagram { buffer, .. } = &mut self {
            *buffer = place;
        }
        self
    }

    /// The connection that it is about, where there is one.
    pub fn connection(&self) -> Option<Handle> {
        match *self {
            Self::Knock { handle, .. }
            | Self::Connected { handle, .. }
            | Self::Recv { handle, .. }
            | Self::Sent { handle, .. }
            | Self::Eof { handle, .. }
            | Self::Again { handle, .. }
            | Self::Dead { handle, .. }
            | Self::Failed { handle, .. } => Some(handle),
            Self::ConnectFailed { .. } | Self::Datagram { .. } => None,
        }
    }
}

/// A frame trimmed to its payload, with the connection that received it (`None`: UDP).
pub type Received = (Option<Handle>, Mbuf);

/// The dataplane's side of the event array: records, and the buffers that they refer to.
///
/// Bounded: whoever fills it asks for room first and keeps what does not fit for the next batch.
#[derive(Debug)]
pub struct EventArray {
    records: Vec<EventRecord>,
    /// What the records refer to, in their order.
    buffers: Vec<Received>,
    /// What records refer to that were made by another process: see [`show`](Self::show). Such an array has
    /// no buffers.
    shown: Vec<&'static [u8]>,
    /// The index of the first of them: those before it went with the records that were split off.
    base: u32,
    capacity: usize,
}

impl EventArray {
    /// Records that an array holds at most.
    pub const MAX_RECORDS: usize = u16::MAX as usize;

    /// An array with room for `capacity` records, at most [`MAX_RECORDS`](Self::MAX_RECORDS).
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.min(Self::MAX_RECORDS);
        Self {
            records: Vec::with_capacity(capacity),
            buffers: Vec::with_capacity(capacity),
            shown: Vec::new(),
            base: 0,
            capacity,
        }
    }

    /// An array without a bound, whose memory grows: for events that flow control bounds.
    pub const fn growing() -> Self {
        Self {
            records: Vec::new(),
            buffers: Vec::new(),
            shown: Vec::new(),
            base: 0,
            capacity: usize::MAX,
        }
    }

    /// Records that still fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.capacity - self.records.len()
    }

    /// Records present.
    #[inline]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is nothing to tell.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Appends a record without a buffer.
    ///
    /// # Errors
    /// The record comes back where the array is full.
    #[inline]
    pub fn push(&mut self, record: EventRecord) -> Result<(), EventRecord> {
        if self.records.len() == self.capacity {
            return Err(record);
        }
        self.records.push(record);
        Ok(())
    }

    /// Appends received bytes of a connection, with what else the segment told: see
    /// [`Event::Recv`].
    ///
    /// # Errors
    /// The buffer comes back where the array is full.
    #[inline]
    pub fn push_recv(
        &mut self,
        handle: Handle,
        cookie: Cookie,
        mbuf: Mbuf,
        acked: u32,
        window: u32,
    ) -> Result<(), Mbuf> {
        if self.records.len() == self.capacity {
            return Err(mbuf);
        }
        let buffer = BufferRef { index: self.base.wrapping_add(self.buffers.len() as u32) };
        self.buffers.push((Some(handle), mbuf));
        self.records.push(EventRecord::Recv { handle, cookie, buffer, acked, window });
        Ok(())
    }

    /// Appends a received datagram.
    ///
    /// # Errors
    /// The buffer comes back where the array is full.
    #[inline]
    pub fn push_datagram(
        &mut self,
        local_port: u16,
        peer: Endpoint,
        mbuf: Mbuf,
    ) -> Result<(), Mbuf> {
        if self.records.len() == self.capacity {
            return Err(mbuf);
        }
        let buffer = BufferRef { index: self.base.wrapping_add(self.buffers.len() as u32) };
        self.buffers.push((None, mbuf));
        self.records.push(EventRecord::Datagram { local_port, peer, buffer });
        Ok(())
    }

    /// Appends an event that a dataplane in another process made, with its bytes where it has some: the
    /// application's side of a domain of two processes. Such an array is emptied by
    /// [`conclude`](Self::conclude).
    ///
    /// # Errors
    /// [`Full`](crate::Full).
    pub fn show(
        &mut self,
        record: EventRecord,
        bytes: Option<&'static [u8]>,
    ) -> Result<(), crate::Full> {
        debug_assert!(self.buffers.is_empty(), "an array of either kind");
        if self.records.len() == self.capacity {
            return Err(crate::Full);
        }
        self.records.push(record.with_buffer(BufferRef { index: self.shown.len() as u32 }));
        self.shown.extend(bytes);
        Ok(())
    }

    /// Empties an array of events that were [shown](Self::show).
    pub fn conclude(&mut self) {
        self.records.clear();
        self.shown.clear();
    }

    /// Empties the array once the application has consumed it: the buffers, each with the
    /// connection that it belongs to, go back to whoever accounts for them.
    pub fn drain(&mut self) -> impl Iterator<Item = Received> + '_ {
        self.records.clear();
        self.base = 0;
        self.buffers.drain(..)
    }

    /// As [`drain`](Self::drain), without moving the buffers one by one: `buffers`, which is empty,
    /// changes places with the array's own.
    pub fn take_buffers(&mut self, buffers: &mut Vec<Received>) {
        debug_assert!(buffers.is_empty(), "buffers that nobody settled");
        self.records.clear();
        self.base = 0;
        core::mem::swap(&mut self.buffers, buffers);
    }

    /// Moves the first `count` records, with their buffers, to the end of `into`, as far as that has
    /// room. Answers how many were moved.
    pub fn split_front(&mut self, count: usize, into: &mut Self) -> usize {
        let count = count.min(self.len()).min(into.room());
        if count == self.len() && into.is_empty() {
            core::mem::swap(&mut self.records, &mut into.records);
            core::mem::swap(&mut self.buffers, &mut into.buffers);
            into.base = core::mem::take(&mut self.base);
            return count;
        }
        self.move_front(count, |record, buffer| {
            // There is room for it.
            let _ = into.append(record, buffer);
        });
        count
    }

    /// Hands out all records in order, each with its buffer if it has one, and leaves the array empty.
    pub fn hand_out(&mut self, take: impl FnMut(EventRecord, Option<Received>)) {
        self.move_front(self.len(), take);
    }

    fn move_front(&mut self, count: usize, mut take: impl FnMut(EventRecord, Option<Received>)) {
        let with_buffers =
            self.records[..count].iter().filter(|record| record.buffer().is_some()).count();
        let mut buffers = self.buffers.drain(..with_buffers);
        for record in self.records.drain(..count) {
            let buffer = if record.buffer().is_some() { buffers.next() } else { None };
            take(record, buffer);
        }
        drop(buffers);
        let moved = self.base.wrapping_add(with_buffers as u32);
        self.base = if self.records.is_empty() { 0 } else { moved };
    }

    /// Appends a record that another array handed out, with its buffer. An acknowledgment right after
    /// another one of the same connection is added to it, so that however many come there is room.
    ///
    /// # Errors
    /// The buffer comes back where the array is full.
    pub fn append(
        &mut self,
        record: EventRecord,
        buffer: Option<Received>,
    ) -> Result<(), Option<Received>> {
        if let EventRecord::Sent { handle, bytes, window, .. } = record
            && let Some(EventRecord::Sent { handle: last, bytes: before, window: old, .. }) =
                self.records.last_mut()
            && *last == handle
        {
            *before = before.saturating_add(bytes);
            *old = window;
            return Ok(());
        }
        if self.records.len() == self.capacity {
            return Err(buffer);
        }
        let index = self.base.wrapping_add(self.buffers.len() as u32);
        self.records.push(record.with_buffer(BufferRef { index }));
        self.buffers.extend(buffer);
        Ok(())
    }

    /// Calls `window` with each connection that an event tells a window of, and writes what it answers
    /// there: what may be sent has changed since the event was made.
    pub fn renew_windows(&mut self, mut window: impl FnMut(Handle) -> u32) {
        for record in &mut self.records {
            if let EventRecord::Recv { handle, window: told, .. }
            | EventRecord::Sent { handle, window: told, .. }
            | EventRecord::Again { handle, window: told, .. } = record
            {
                *told = window(*handle);
            }
        }
    }

    /// The records, to look at.
    pub fn records(&self) -> &[EventRecord] {
        &self.records
    }

    /// What the application gets to see. `held` answers for buffers of earlier batches.
    pub fn view<'a>(&'a self, held: &'a dyn Held) -> Events<'a> {
        Events { array: self, held }
    }
}

/// Buffers that the application was given in earlier batches and has not returned.
pub trait Held {
    /// Calls `visit` with each of the connection's buffers, oldest first; with none where the
    /// handle is stale.
    fn held(&self, handle: Handle, visit: &mut dyn FnMut(&[u8]));
}

/// One batch of event conditions, to be consumed in order.
#[derive(Clone, Copy)]
pub struct Events<'a> {
    array: &'a EventArray,
    held: &'a dyn Held,
}

impl<'a> Events<'a> {
    /// Events in the batch.
    pub fn len(&self) -> usize {
        self.array.records.len()
    }

    /// Whether the batch is empty (the service was run for the sake of time).
    pub fn is_empty(&self) -> bool {
        self.array.records.is_empty()
    }

    /// Visits the bytes that were received on a connection in *earlier* batches and not returned
    /// with `recv_done`, oldest first. They stand at the connection's home: a service whose turns
    /// [any core runs](crate::Service::runs_anywhere) is shown nothing, and keeps a copy instead.
    pub fn held(&self, handle: Handle, mut visit: impl FnMut(&[u8])) {
        self.held.held(handle, &mut visit);
    }

    /// The events in order.
    pub fn iter(&self) -> EventIter<'a> {
        EventIter { array: self.array, records: self.array.records.iter() }
    }
}

/// The events of a batch, in order.
#[derive(Clone, Debug)]
pub struct EventIter<'a> {
    array: &'a EventArray,
    records: core::slice::Iter<'a, EventRecord>,
}

impl<'a> Iterator for EventIter<'a> {
    type Item = Event<'a>;

    // Into each service's loop: a call for each event would cost more than what it does.
    #[inline(always)]
    fn next(&mut self) -> Option<Event<'a>> {
        self.records.next().map(|record| self.array.event(record))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.records.size_hint()
    }
}

impl core::fmt::Debug for Events<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl EventArray {
    #[inline(always)]
    fn event(&self, record: &EventRecord) -> Event<'_> {
        match *record {
            EventRecord::Knock { handle, local_port, peer, window } => {
                Event::Knock { handle, local_port, peer, window }
            }
            EventRecord::Connected { cookie, handle, window } => {
                Event::Connected { cookie, outcome: Ok((handle, window)) }
            }
            EventRecord::ConnectFailed { cookie, error } => {
                Event::Connected { cookie, outcome: Err(error) }
            }
            EventRecord::Recv { handle, cookie, buffer, acked, window } => {
                Event::Recv { handle, cookie, data: self.bytes(buffer), acked, window }
            }
            EventRecord::Sent { handle, cookie, bytes, window } => {
                Event::Sent { handle, cookie, bytes, window }
            }
            EventRecord::Eof { handle, cookie } => Event::Eof { handle, cookie },
            EventRecord::Again { handle, cookie, window } => {
                Event::Again { handle, cookie, window }
            }
            EventRecord::Dead { handle, cookie, reason } => Event::Dead { handle, cookie, reason },
            EventRecord::Datagram { local_port, peer, buffer } => {
                Event::Datagram { local_port, peer, data: self.bytes(buffer) }
            }
            EventRecord::Failed { call, handle, cookie, error } => {
                Event::Failed { call, handle, cookie, error }
            }
        }
    }

    #[inline]
    fn bytes(&self, buffer: BufferRef) -> &[u8] {
        let index = buffer.index.wrapping_sub(self.base) as usize;
        match self.buffers.get(index) {
            Some((_, mbuf)) => mbuf.bytes(),
            None => self.shown.get(index).copied().unwrap_or_default(),
        }
    }
}
