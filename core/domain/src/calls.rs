//! Batched system calls: what the application asks of the dataplane.
//!
//! Bytes to send are copied once, at the call, straight into the buffer that becomes the frame's
//! payload, with the checksum in the same pass; the application may reuse its memory at once. The
//! frame's buffer is kept until the peer acknowledges it, so sending again copies nothing either.

use alloc::vec::Vec;
use core::ops::Range;

use clock::Instant;
use mem::{Mbuf, Pool, Want};
use wire::{Endpoint, Sum, copy_and_sum};

use crate::full::Full;
use crate::placed::{Placed, Places, SharedMemory};
use crate::{Cookie, EventArray, Handle, LocalEndpoint};

/// Payload buffers of one `sendv`: consecutive entries of the array's staged buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Staged {
    /// First buffer.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// What a port belongs to, and what a rule of the access policy is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

/// One batched system call (IX Table II) as a record of fixed size. `SendvPlaced` is only of an array [by place](CallArray::by_place).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are those of the methods of `Calls`")]
pub enum CallRecord {
    Connect { cookie: Cookie, local: LocalEndpoint, peer: Endpoint },
    Accept { handle: Handle, cookie: Cookie },
    Sendv { handle: Handle, staged: Staged },
    SendvPlaced { handle: Handle, placed: Placed },
    RecvDone { handle: Handle, bytes: u32 },
    Shutdown { handle: Handle },
    Close { handle: Handle },
    Abort { handle: Handle },
    Again { handle: Handle },
    UdpSendv { local: LocalEndpoint, peer: Endpoint, staged: Staged },
    Listen { cookie: Cookie, transport: Transport, port: u16, backlog: u16 },
    Unlisten { cookie: Cookie, transport: Transport, port: u16 },
    Inform { handle: Handle },
}

const _: () = assert!(size_of::<CallRecord>() <= 32);

impl CallRecord {
    /// The connection that the call is about, where it is about one.
    #[inline]
    pub fn connection(&self) -> Option<Handle> {
        match *self {
            Self::Accept { handle, .. }
            | Self::Sendv { handle, .. }
            | Self::SendvPlaced { handle, .. }
            | Self::RecvDone { handle, .. }
            | Self::Shutdown { handle }
            | Self::Close { handle }
            | Self::Abort { handle }
            | Self::Again { handle }
            | Self::Inform { handle } => Some(handle),
            Self::Connect { .. }
            | Self::UdpSendv { .. }
            | Self::Listen { .. }
            | Self::Unlisten { .. } => None,
        }
    }
}

/// Payload bytes that a buffer has room for, behind the room for headers.
const BUFFER_BYTES: usize = mem::CHUNK_SIZE - mem::TX_HEADROOM;

/// The dataplane's side of the call array.
#[derive(Debug)]
pub struct CallArray {
    pub(crate) records: Vec<CallRecord>,
    /// Payloads in the order of the records that refer to them, with their checksums.
    pub(crate) payloads: Vec<(Mbuf, Sum)>,
    pub(crate) capacity: usize,
    /// Payload buffers that may be staged.
    pub(crate) buffers: usize,
    /// Payload bytes that one frame carries on most connections.
    pub(crate) segment_bytes: usize,
    /// Whether payloads of connections are summed as they are copied.
    sums: bool,
    /// The `Sendv` at the end of `payloads` that a further `sendv` on its handle continues.
    pub(crate) open: Option<(Handle, usize)>,
    /// Messages are told by place.
    places: Option<Places>,
}

impl CallArray {
    /// An array with room for `capacity` calls, which stages at most `segment_bytes` payload bytes
    /// in a buffer (1,448 where frames are 1,514 bytes and TCP has timestamps).
    pub fn new(capacity: usize, segment_bytes: usize) -> Self {
        Self {
            records: Vec::with_capacity(capacity),
            payloads: Vec::with_capacity(capacity),
            ..Self::growing(capacity, segment_bytes)
        }
    }

    /// As [`new`](Self::new), for the calls of one connection: its memory grows with them.
    pub fn growing(capacity: usize, segment_bytes: usize) -> Self {
        Self {
            records: Vec::new(),
            payloads: Vec::new(),
            capacity,
            buffers: usize::MAX,
            segment_bytes: segment_bytes.clamp(1, BUFFER_BYTES),
            sums: true,
            open: None,
            places: None,
        }
    }

    /// The same for a stack whose device completes the checksums of TCP segments, if `offload`: their payloads are copied
    /// without being summed.
    #[must_use]
    pub fn with_tx_checksum_offload(self, offload: bool) -> Self {
        Self { sums: !offload, ..self }
    }

    /// The same for an application in a process of its own, whose packet memory is at the addresses `packets`: a
    /// message that one frame carries is not staged in a buffer of its own, but told by its place
    /// ([`CallRecord::SendvPlaced`]), be it in the packet memory, where the application sends what it received, or in
    /// the arena, the memory of the pool, where such messages are put one behind the other.
    #[must_use]
    pub fn by_place(self, packets: Range<usize>) -> Self {
        Self { places: Some(Places::new(packets)), ..self }
    }

    /// From now on there is room for so many calls, and payloads may take so many buffers: what the dataplane
    /// of another process says that it has.
    pub fn bound(&mut self, calls: usize, buffers: usize) {
        (self.capacity, self.buffers) = (calls, buffers);
    }

    /// Calls present.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is nothing to execute.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Empties the array for execution: records in order, and the payloads that they consume in
    /// order. Whoever takes them puts the two vectors back with [`restore`](Self::restore).
    pub fn take(&mut self) -> (Vec<CallRecord>, Vec<(Mbuf, Sum)>) {
        self.seal();
        (core::mem::take(&mut self.records), core::mem::take(&mut self.payloads))
    }

    /// The calls and their payloads, to be told to a dataplane in another process, which reads what they name: for as long
    /// the buffers that [`emptied_into`](Self::emptied_into) hands over are to be kept.
    #[inline]
    pub fn told(&mut self) -> (&[CallRecord], &[(Mbuf, Sum)]) {
        self.seal();
        (&self.records, &self.payloads)
    }

    /// Empties the array of calls that were [told](Self::told). The buffers of all that they send go to `lent`.
    #[inline]
    pub fn emptied_into(&mut self, lent: &mut Vec<Mbuf>) {
        self.records.clear();
        lent.extend(self.payloads.drain(..).map(|(mbuf, _)| mbuf));
        if let Some(places) = &mut self.places {
            places.emptied_into(lent);
        }
    }

    /// Returns the emptied vectors of [`take`](Self::take), so that their memory is used again.
    pub fn restore(&mut self, mut records: Vec<CallRecord>, mut payloads: Vec<(Mbuf, Sum)>) {
        records.clear();
        debug_assert!(payloads.is_empty(), "every staged payload is sent or freed");
        payloads.clear();
        self.records = records;
        self.payloads = payloads;
    }

    /// No message is continued by what comes.
    #[inline]
    fn seal(&mut self) {
        self.open = None;
        if let Some(places) = &mut self.places {
            places.last = None;
        }
    }

    #[inline]
    fn push(&mut self, record: CallRecord) -> Result<(), Full> {
        if self.records.len() >= self.capacity {
            return Err(Full);
        }
        self.records.push(record);
        Ok(())
    }

    /// Records a message that is told by place, for which there is room. What stands in the arena can be continued.
    #[inline]
    fn push_placed(&mut self, handle: Handle, placed: Placed) {
        if let Some(places) = &mut self.places {
            let is_open = placed.memory == SharedMemory::Arena;
            places.open = is_open.then_some(self.records.len());
        }
        self.records.push(CallRecord::SendvPlaced { handle, placed });
    }

    /// So many bytes together are sent by place last, on one connection, and take so many buffers more there.
    #[inline]
    fn sent_placed(&mut self, handle: Handle, bytes: usize, buffers: usize) {
        self.open = None;
        self.buffers -= buffers;
        if let Some(places) = &mut self.places {
            places.last = Some((handle, bytes));
        }
    }

    /// Appends `slices` to the payloads, starting a new buffer unless `append`, with at most
    /// `buffer_bytes` in one, and with their sums where `sums`. On failure what was staged is freed again.
    fn stage(
        &mut self,
        pool: &mut Pool,
        slices: &[&[u8]],
        append: bool,
        (buffer_bytes, sums): (usize, bool),
    ) -> Result<u32, Full> {
        let mut slices = slices.iter().copied();
        let mut rest = slices.next().unwrap_or_default();
        let total = rest.len() + slices.clone().map(<[u8]>::len).sum::<usize>();
        self.stage_with(pool, total, append, buffer_bytes, |mut room| {
            let mut sum = Sum::ZERO;
            let mut offset = 0;
            while !room.is_empty() {
                if rest.is_empty() {
                    let Some(next) = slices.next() else { break };
                    rest = next;
                    continue;
                }
                let (now, later) = rest.split_at(rest.len().min(room.len()));
                let (here, behind) = room.split_at_mut(now.len());
                sum = sum.add_at(copy(now, here, sums), offset);
                offset += now.len();
                (rest, room) = (later, behind);
            }
            sum
        })
    }

    /// The same for `len` bytes that `fill` writes, in order, part by part, with each part's sum.
    fn stage_with(
        &mut self,
        pool: &mut Pool,
        len: usize,
        append: bool,
        buffer_bytes: usize,
        mut fill: impl FnMut(&mut [u8]) -> Sum,
    ) -> Result<u32, Full> {
        let before = self.payloads.len();
        // A buffer that is continued is cut back to this length where memory runs out.
        let continued =
            if append { self.payloads.last().map(|(mbuf, sum)| (mbuf.len(), *sum)) } else { None };
        let behind = continued.map_or(0, |(len, _)| buffer_bytes.saturating_sub(len));
        let needed = len.saturating_sub(behind).div_ceil(buffer_bytes);
        if needed > self.buffers.saturating_sub(before) || !pool.could_give(Want::Send, needed) {
            // It would be staged in vain.
            return Err(Full);
        }
        let mut fresh = !append;
        let mut left = len;
        while left > 0 {
            let full = self.payloads.last().is_none_or(|(mbuf, _)| mbuf.len() >= buffer_bytes);
            if fresh || full {
                let Some(mbuf) = self.spare(pool) else {
                    self.unstage(pool, before, continued);
                    return Err(Full);
                };
                self.payloads.push((mbuf, Sum::default()));
                fresh = false;
            }
            if let Some((mbuf, sum)) = self.payloads.last_mut() {
                let offset = mbuf.len();
                let now = left.min(buffer_bytes - offset);
                if let Ok(room) = mbuf.extend(now) {
                    *sum = sum.add_at(fill(room), offset);
                }
                left -= now;
            }
        }
        Ok((self.payloads.len() - before) as u32)
    }

    /// A buffer to stage in. What is sent leaves memory to receive its acknowledgment in.
    #[inline]
    fn spare(&self, pool: &mut Pool) -> Option<Mbuf> {
        if self.payloads.len() >= self.buffers || !pool.allows(Want::Send) {
            return None;
        }
        pool.alloc().ok()
    }

    /// As [`stage`](Self::stage), for what most calls send: one slice that fits one buffer, where the pool has one at
    /// hand. False, with nothing staged, where it has none.
    #[inline]
    fn stage_one(&mut self, pool: &mut Pool, slice: &[u8]) -> bool {
        if self.payloads.len() >= self.buffers || !pool.allows(Want::Send) {
            return false;
        }
        let Some(mut mbuf) = pool.alloc_at_hand() else { return false };
        // It fits, as a buffer of this array holds `segment_bytes`.
        let sums = self.sums;
        let sum = mbuf.extend(slice.len()).map_or(Sum::ZERO, |room| copy(slice, room, sums));
        self.payloads.push((mbuf, sum));
        true
    }

    /// The send at `index` has so many buffers more.
    fn continue_with(&mut self, index: usize, added: u32) {
        if let Some(CallRecord::Sendv { staged, .. }) = self.records.get_mut(index) {
            staged.count += added;
        }
    }

    #[cold]
    fn unstage(&mut self, pool: &mut Pool, before: usize, continued: Option<(usize, Sum)>) {
        for (mbuf, _) in self.payloads.drain(before..) {
            pool.free(mbuf);
        }
        if let (Some((len, old_sum)), Some((mbuf, sum))) = (continued, self.payloads.last_mut()) {
            mbuf.truncate(len);
            *sum = old_sum;
        }
    }
}

/// Copies a payload, with its sum where it is needed.
#[inline]
fn copy(from: &[u8], to: &mut [u8], sums: bool) -> Sum {
    if sums {
        return copy_and_sum(from, to);
    }
    to.copy_from_slice(from);
    Sum::ZERO
}

/// The application's side of the call array.
#[derive(Debug)]
pub struct Calls<'a> {
    pub(crate) array: &'a mut CallArray,
    pub(crate) pool: &'a mut Pool,
    yield_at: Option<Instant>,
}

impl<'a> Calls<'a> {
    /// The array as the application sees it; payloads are taken from `pool`.
    pub fn new(array: &'a mut CallArray, pool: &'a mut Pool) -> Self {
        Self { array, pool, yield_at: None }
    }

    /// The same, with a moment by which the application does well to be done: see [`yield_at`](Self::yield_at).
    #[must_use]
    pub fn until(mut self, yield_at: Option<Instant>) -> Self {
        self.yield_at = yield_at;
        self
    }

    /// Where long requests make room for short ones: the moment from which on the application, at its next
    /// safe point, should keep what is left of the request for later, ask for its connection
    /// [again](Self::again), and return. `None`: there is no such moment.
    ///
    /// It is a wish. An application that never looks at it keeps its core for as long as it takes.
    #[inline]
    pub fn yield_at(&self) -> Option<Instant> {
        self.yield_at
    }

    /// Calls that still fit.
    pub fn room(&self) -> usize {
        // Less than nothing where `again` was recorded beyond the capacity.
        self.array.capacity.saturating_sub(self.array.records.len())
    }

    /// Opens a connection to `peer`, from an address and a port that the dataplane chooses. `Event::Connected` with this
    /// cookie reports the outcome.
    ///
    /// # Errors
    /// [`Full`].
    pub fn connect(&mut self, cookie: Cookie, peer: Endpoint) -> Result<(), Full> {
        self.connect_from(cookie, LocalEndpoint::UNSPECIFIED, peer)
    }

    /// As [`connect`](Self::connect), from an own address of the caller's choice (RFC 9293 §3.9.1.1, MUST-43), or a port,
    /// or both; the dataplane chooses what is unspecified. Where the dataplane has no such address, or the address has
    /// another version than the peer's, the outcome is `BadAddress`. The port may be one that is listened on. The flow
    /// group follows from both ends: where it is at home on another core, and where there is such a connection already,
    /// the outcome is `NoPort`.
    ///
    /// Ports are for what is linked into the dataplane. Of an application in a process of its own the dataplane takes the
    /// address, and chooses the port.
    ///
    /// # Errors
    /// [`Full`].
    pub fn connect_from(
        &mut self,
        cookie: Cookie,
        local: impl Into<LocalEndpoint>,
        peer: Endpoint,
    ) -> Result<(), Full> {
        self.array.push(CallRecord::Connect { cookie, local: local.into(), peer })
    }

    /// Opens a port: connections to it knock, or datagrams for it arrive, on all elastic threads. Of the connections of
    /// one thread at most `backlog` may be open and not accepted, and at most as many as the configuration says.
    /// [`Event::Listening`](crate::Event::Listening) with this cookie answers, or `Event::Failed`: the port is open
    /// already (`BadState`), or the operator's policy does not allow it (`Forbidden`).
    ///
    /// # Errors
    /// [`Full`].
    pub fn listen(
        &mut self,
        cookie: Cookie,
        transport: Transport,
        port: u16,
        backlog: u16,
    ) -> Result<(), Full> {
        self.array.push(CallRecord::Listen { cookie, transport, port, backlog })
    }

    /// Closes a port, be it one of the configuration or one that [`listen`](Self::listen) opened. Connections to it that
    /// are not accepted are reset, at the end of the cycle that executes the call, and on other elastic threads in their
    /// next one; half-open ones are forgotten. `Event::Failed` with this cookie where the port is not open (`BadState`)
    /// or is not the application's (`Forbidden`).
    ///
    /// # Errors
    /// [`Full`].
    pub fn unlisten(
        &mut self,
        cookie: Cookie,
        transport: Transport,
        port: u16,
    ) -> Result<(), Full> {
        self.array.push(CallRecord::Unlisten { cookie, transport, port })
    }

    /// Asks what is known of a connection: [`Event::Info`](crate::Event::Info) answers, or `Event::Failed` where the
    /// handle is stale or there is no packet memory to answer in (`Busy`).
    ///
    /// # Errors
    /// [`Full`].
    pub fn inform(&mut self, handle: Handle) -> Result<(), Full> {
        self.array.push(CallRecord::Inform { handle })
    }

    /// Accepts a connection that knocked; `cookie` comes with all of its events.
    ///
    /// # Errors
    /// [`Full`].
    pub fn accept(&mut self, handle: Handle, cookie: Cookie) -> Result<(), Full> {
        self.array.push(CallRecord::Accept { handle, cookie })
    }

    /// Sends the bytes of `slices`, in order. All that the window (as last told by an event) has
    /// room for is sent; where that is less, `Event::Failed` with `Trimmed` says how much was taken.
    ///
    /// # Errors
    /// [`Full`], with nothing taken. One call that asks for more packet memory than the pool lets senders have
    /// is refused in every batch: a long message is sent in pieces.
    #[inline]
    pub fn sendv(&mut self, handle: Handle, slices: &[&[u8]]) -> Result<(), Full> {
        if self.array.places.is_some() {
            if self.sends_received(handle, slices) {
                return Ok(());
            }
            if let Some(sent) = self.sendv_placed(handle, slices) {
                return sent;
            }
        }
        // What most calls send: one slice that fits one buffer, on another connection than before.
        if let [slice] = *slices
            && !slice.is_empty()
            && slice.len() <= self.array.segment_bytes
            && self.array.open.is_none_or(|(open, _)| open != handle)
            && self.room() > 0
            && self.array.stage_one(self.pool, slice)
        {
            return self.push_sendv(handle, 1);
        }
        self.sendv_any(handle, slices)
    }

    /// Sends one slice that was received, as the first on its connection of those that follow one another. False, with
    /// nothing done: it is something else, or there is no room.
    #[inline]
    fn sends_received(&mut self, handle: Handle, slices: &[&[u8]]) -> bool {
        let array = &mut *self.array;
        let (Some(places), [slice]) = (&mut array.places, slices) else { return false };
        let Some(placed) = places.received(slice) else { return false };
        let is_first = places.last.is_none_or(|(last, _)| last != handle);
        let is_short = (1..=array.segment_bytes).contains(&slice.len());
        let is_room = array.payloads.len() < array.buffers && array.records.len() < array.capacity;
        if !(is_first && is_short && is_room) {
            return false;
        }
        array.push_placed(handle, placed);
        array.sent_placed(handle, slice.len(), 1);
        true
    }

    /// Sends `slices` by place, if they are so many bytes as one frame carries. None: they are more, or none.
    fn sendv_placed(&mut self, handle: Handle, slices: &[&[u8]]) -> Option<Result<(), Full>> {
        let array = &mut *self.array;
        let places = array.places.as_mut()?;
        let len = slices.iter().map(|slice| slice.len()).sum::<usize>();
        if !(1..=array.segment_bytes).contains(&len) {
            return None;
        }
        // What was staged since comes first: then this continues nothing.
        let before = places.last.filter(|(last, _)| *last == handle && array.open.is_none());
        let sent = before.map_or(0, |(_, sent)| sent);
        // The dataplane has a buffer for each that it fills with what follows one another on a connection.
        let buffers = |bytes: usize| bytes.div_ceil(array.segment_bytes);
        // Nearly always it is the first there: then nothing is divided.
        let needed = if sent == 0 { 1 } else { buffers(sent + len) - buffers(sent) };
        if needed > array.buffers.saturating_sub(array.payloads.len()) {
            return Some(Err(Full));
        }
        if let (Some(index), Some(_)) = (places.open, before)
            && let Some(CallRecord::SendvPlaced { placed, .. }) = array.records.get_mut(index)
            && placed.len as usize + len <= array.segment_bytes
            && places.extend(slices, len)
        {
            placed.len += len as u32;
        } else if array.records.len() < array.capacity {
            let placed = match places.place(self.pool, slices, len) {
                Ok(placed) => placed,
                Err(full) => return Some(Err(full)),
            };
            array.push_placed(handle, placed);
        } else {
            return Some(Err(Full));
        }
        array.sent_placed(handle, sent + len, needed);
        Some(Ok(()))
    }

    /// Records what was staged last.
    #[inline]
    fn push_sendv(&mut self, handle: Handle, count: u32) -> Result<(), Full> {
        let first = self.array.payloads.len() as u32 - count;
        self.array.open = Some((handle, self.array.records.len()));
        self.array.push(CallRecord::Sendv { handle, staged: Staged { first, count } })
    }

    /// Nothing to send is a call all the same (its handle is checked), but not one that a later call can continue:
    /// it has no buffer of its own. Nor can the one before it be: its buffers would no longer be where the calls'
    /// order has them.
    fn push_nothing(&mut self, handle: Handle) -> Result<(), Full> {
        self.array.seal();
        let staged = Staged { first: self.array.payloads.len() as u32, count: 0 };
        self.array.push(CallRecord::Sendv { handle, staged })
    }

    /// Sends `len` bytes that `fill` writes where they leave from, in order, part by part, answering each
    /// part's sum: what a domain does with bytes that the application may change at any moment.
    ///
    /// # Errors
    /// As [`sendv`](Self::sendv).
    pub fn sendv_with(
        &mut self,
        handle: Handle,
        len: usize,
        fill: impl FnMut(&mut [u8]) -> Sum,
    ) -> Result<(), Full> {
        let limit = self.array.segment_bytes;
        if let Some((open, index)) = self.array.open
            && open == handle
        {
            let added = self.array.stage_with(self.pool, len, true, limit, fill)?;
            self.array.continue_with(index, added);
            return Ok(());
        }
        if self.room() == 0 {
            return Err(Full);
        }
        if len == 0 {
            return self.push_nothing(handle);
        }
        let count = self.array.stage_with(self.pool, len, false, limit, fill)?;
        self.push_sendv(handle, count)
    }

    /// Payload buffers that can be had for what is sent in this batch, as long as nobody else takes them: of
    /// the pool's own, which nobody else takes while the batch lasts.
    #[inline]
    pub fn buffers(&mut self) -> usize {
        self.pool.allowance(Want::Send)
    }

    #[inline(never)]
    fn sendv_any(&mut self, handle: Handle, slices: &[&[u8]]) -> Result<(), Full> {
        let limit = (self.array.segment_bytes, self.array.sums);
        if let Some((open, index)) = self.array.open
            && open == handle
        {
            let added = self.array.stage(self.pool, slices, true, limit)?;
            self.array.continue_with(index, added);
            return Ok(());
        }
        if self.room() == 0 {
            return Err(Full);
        }
        if slices.iter().all(|slice| slice.is_empty()) {
            return self.push_nothing(handle);
        }
        let count = self.array.stage(self.pool, slices, false, limit)?;
        self.push_sendv(handle, count)
    }

    /// Gives back the oldest `bytes` received bytes: frees their buffers and opens the window
    /// (one operation, IX Table II).
    ///
    /// # Errors
    /// [`Full`].
    pub fn recv_done(&mut self, handle: Handle, bytes: usize) -> Result<(), Full> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.array.push(CallRecord::RecvDone { handle, bytes })
    }

    /// Ends sending in order: all that was taken is still delivered, and what the peer sends is still received
    /// (RFC 9293 §3.6, case 1).
    ///
    /// # Errors
    /// [`Full`].
    pub fn shutdown(&mut self, handle: Handle) -> Result<(), Full> {
        self.array.seal();
        self.array.push(CallRecord::Shutdown { handle })
    }

    /// Closes a connection in order (all that was taken is still delivered), or rejects one that
    /// knocked. Received bytes that no event has brought yet, or that come later, end it with a reset, so that
    /// the peer does not take them for read (RFC 9293 §3.10.4, RFC 2525 §2.17).
    ///
    /// # Errors
    /// [`Full`].
    pub fn close(&mut self, handle: Handle) -> Result<(), Full> {
        self.array.seal();
        self.array.push(CallRecord::Close { handle })
    }

    /// Ends a connection at once, with a reset to the peer.
    ///
    /// # Errors
    /// [`Full`].
    pub fn abort(&mut self, handle: Handle) -> Result<(), Full> {
        self.array.seal();
        self.array.push(CallRecord::Abort { handle })
    }

    /// Asks for the connection to be told of again in a later batch, although nothing came for it:
    /// something was left undone for want of room in this batch, or of packet memory, or since it took too
    /// long ([`yield_at`](Self::yield_at)).
    /// [`Event::Again`](crate::Event::Again) tells of it; of one that knocked and was neither accepted
    /// nor closed, `Event::Knock` once more. However often it is asked for, there is one such event in a
    /// batch; none where the connection has ended.
    ///
    /// This cannot be refused: what asks for it has no other way to go on. Asked for at most once for each
    /// event of a batch, it always has room, beyond the array's capacity, since a batch has no more than
    /// [`EventArray::MAX_RECORDS`] events. What is asked for beyond that is not recorded.
    #[cold]
    pub fn again(&mut self, handle: Handle) {
        let record = CallRecord::Again { handle };
        let most = self.array.capacity.saturating_add(EventArray::MAX_RECORDS);
        if self.array.records.last() != Some(&record) && self.array.records.len() < most {
            self.array.records.push(record);
        }
    }

    /// The same for one datagram of `len` bytes: see [`sendv_with`](Self::sendv_with).
    ///
    /// # Errors
    /// As [`udp_sendv`](Self::udp_sendv).
    pub fn udp_sendv_with(
        &mut self,
        local: impl Into<LocalEndpoint>,
        peer: Endpoint,
        len: usize,
        fill: impl FnMut(&mut [u8]) -> Sum,
    ) -> Result<(), Full> {
        if self.room() == 0 {
            return Err(Full);
        }
        self.array.seal();
        let first = self.array.payloads.len() as u32;
        let count = self.array.stage_with(self.pool, len, false, BUFFER_BYTES, fill)?;
        let (local, staged) = (local.into(), Staged { first, count });
        self.array.push(CallRecord::UdpSendv { local, peer, staged })
    }

    /// Sends one datagram from `local`: a port, whose address the dataplane chooses, or an own address too (RFC 1122
    /// §4.1.3.5). The `local` of [`Event::Datagram`](crate::Event::Datagram) answers from where the request came to.
    ///
    /// # Errors
    /// [`Full`]. `Event::Failed` reports one that does not fit a frame (`Unsendable`), and one from an address that the
    /// dataplane does not have, or of another version than the peer's (`BadAddress`).
    pub fn udp_sendv(
        &mut self,
        local: impl Into<LocalEndpoint>,
        peer: Endpoint,
        slices: &[&[u8]],
    ) -> Result<(), Full> {
        if self.room() == 0 {
            return Err(Full);
        }
        self.array.seal();
        let first = self.array.payloads.len() as u32;
        // A datagram is not cut where a segment would be: it goes out in one frame or not at all.
        let count = self.array.stage(self.pool, slices, false, (BUFFER_BYTES, true))?;
        let (local, staged) = (local.into(), Staged { first, count });
        self.array.push(CallRecord::UdpSendv { local, peer, staged })
    }
}
