//! The array in which event conditions wait for the application, and what it sees of them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use mem::Mbuf;
use wire::Endpoint;

use crate::events::Received;
use crate::mirrored::{Appended, EventMirror, Mirrored};
use crate::{BufferRef, Cookie, Event, EventRecord, Handle, LocalEndpoint};

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
    mirrored: Mirrored,
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
            capacity,
            ..Self::growing()
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
            mirrored: Mirrored::none(),
        }
    }

    /// From now on events are written to `mirror` as they are appended.
    pub fn mirror_in(&mut self, mirror: Box<dyn EventMirror>) {
        self.mirrored = Mirrored::by(mirror);
    }

    /// Where the next buffer is going to stand.
    #[inline]
    fn next_buffer(&self) -> BufferRef {
        BufferRef { index: self.base.wrapping_add(self.buffers.len() as u32) }
    }

    /// Appends a record for which there is room, whose buffer, if it has one, was appended just before.
    #[inline(always)]
    fn add(&mut self, record: EventRecord) {
        self.records.push(record);
        if self.mirrored.is_due(self.records.len()) {
            self.mirror_new();
        }
    }

    /// Writes what is new to the mirror.
    #[inline(never)]
    fn mirror_new(&mut self) {
        let Self { records, buffers, base, mirrored, .. } = self;
        mirrored.put_new(Appended::new(records, buffers, *base));
    }

    /// Writes a record to the mirror that has changed there.
    fn put_again(&mut self, index: usize) {
        let Self { records, buffers, base, mirrored, .. } = self;
        mirrored.put_again(index, Appended::new(records, buffers, *base));
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
        self.add(record);
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
        let buffer = self.next_buffer();
        self.buffers.push((Some(handle), mbuf));
        self.add(EventRecord::Recv { handle, cookie, buffer, acked, window });
        Ok(())
    }

    /// Appends a received datagram.
    ///
    /// # Errors
    /// The buffer comes back where the array is full.
    #[inline]
    pub fn push_datagram(
        &mut self,
        local: LocalEndpoint,
        peer: Endpoint,
        mbuf: Mbuf,
    ) -> Result<(), Mbuf> {
        if self.records.len() == self.capacity {
            return Err(mbuf);
        }
        let buffer = self.next_buffer();
        self.buffers.push((None, mbuf));
        self.add(EventRecord::Datagram { local, peer, buffer });
        Ok(())
    }

    /// Appends what is known of a connection, as bytes in `mbuf`.
    ///
    /// # Errors
    /// The buffer comes back where the array is full.
    pub fn push_info(&mut self, handle: Handle, cookie: Cookie, mbuf: Mbuf) -> Result<(), Mbuf> {
        if self.records.len() == self.capacity {
            return Err(mbuf);
        }
        let buffer = self.next_buffer();
        // It is none of the connection's bytes, and is freed after the batch.
        self.buffers.push((None, mbuf));
        self.add(EventRecord::Info { handle, cookie, buffer });
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

    /// The same of received bytes of a connection: see [`push_recv`](Self::push_recv).
    ///
    /// # Errors
    /// [`Full`](crate::Full).
    #[inline]
    pub fn show_recv(
        &mut self,
        (handle, cookie): (Handle, Cookie),
        bytes: &'static [u8],
        acked: u32,
        window: u32,
    ) -> Result<(), crate::Full> {
        debug_assert!(self.buffers.is_empty(), "an array of either kind");
        if self.records.len() == self.capacity {
            return Err(crate::Full);
        }
        let buffer = BufferRef { index: self.shown.len() as u32 };
        self.records.push(EventRecord::Recv { handle, cookie, buffer, acked, window });
        self.shown.push(bytes);
        Ok(())
    }

    /// Empties an array of events that were [shown](Self::show).
    pub fn conclude(&mut self) {
        self.records.clear();
        self.mirrored.forget();
        self.shown.clear();
    }

    /// Empties the array once the application has consumed it: the buffers, each with the
    /// connection that it belongs to, go back to whoever accounts for them.
    pub fn drain(&mut self) -> impl Iterator<Item = Received> + '_ {
        self.records.clear();
        self.mirrored.forget();
        self.base = 0;
        self.buffers.drain(..)
    }

    /// As [`drain`](Self::drain), without moving the buffers one by one: `buffers`, which is empty,
    /// changes places with the array's own.
    pub fn take_buffers(&mut self, buffers: &mut Vec<Received>) {
        debug_assert!(buffers.is_empty(), "buffers that nobody settled");
        self.records.clear();
        self.mirrored.forget();
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
            self.mirrored.forget();
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
        self.mirrored.forget();
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
            self.put_again(self.records.len() - 1);
            return Ok(());
        }
        if self.records.len() == self.capacity {
            return Err(buffer);
        }
        let place = self.next_buffer();
        self.buffers.extend(buffer);
        self.add(record.with_buffer(place));
        Ok(())
    }

    /// Calls `window` with each connection that an event tells a window of, and writes what it answers
    /// there: what may be sent has changed since the event was made.
    pub fn renew_windows(&mut self, mut window: impl FnMut(Handle) -> u32) {
        for index in 0..self.records.len() {
            if let EventRecord::Recv { handle, window: told, .. }
            | EventRecord::Sent { handle, window: told, .. }
            | EventRecord::Again { handle, window: told, .. } = &mut self.records[index]
                && let window = window(*handle)
                && *told != window
            {
                *told = window;
                self.put_again(index);
            }
        }
    }

    /// The records, to look at.
    pub fn records(&self) -> &[EventRecord] {
        &self.records
    }

    /// What the application gets to see. `held` answers for buffers of earlier batches.
    pub fn view<'a>(&'a mut self, held: &'a dyn Held) -> Events<'a> {
        if self.mirrored.is_left(self.records.len()) {
            self.mirror_new();
        }
        Events { array: self, held }
    }
}

/// Buffers that the application was given in earlier batches and has not returned.
pub trait Held {
    /// Calls `visit` with each of the connection's buffers, oldest first; with none where the
    /// handle is stale.
    fn held(&self, handle: Handle, visit: &mut dyn FnMut(&[u8]));
}

/// Nothing is held.
impl Held for () {
    fn held(&self, _: Handle, _: &mut dyn FnMut(&[u8])) {}
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

    /// Whether all of it but the first event stands in the [mirror](EventMirror) already.
    pub fn is_mirrored(&self) -> bool {
        self.array.mirrored.has(self.array.records.len())
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
        self.records.next().map(|record| record.event(|buffer| self.array.bytes(buffer)))
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
    #[inline]
    fn bytes(&self, buffer: BufferRef) -> &[u8] {
        let index = buffer.index.wrapping_sub(self.base) as usize;
        match self.buffers.get(index) {
            Some((_, mbuf)) => mbuf.bytes(),
            None => self.shown.get(index).copied().unwrap_or_default(),
        }
    }
}
