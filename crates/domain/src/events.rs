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
    pub index: u16,
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
    Dead { handle: Handle, cookie: Cookie, reason: DeadReason },
    Datagram { local_port: u16, peer: Endpoint, buffer: BufferRef },
    Failed { call: CallKind, handle: Handle, cookie: Cookie, error: CallError },
}

const _: () = assert!(size_of::<EventRecord>() <= 32);

/// The dataplane's side of the event array: records, and the buffers that they refer to.
///
/// Bounded: whoever fills it asks for room first and keeps what does not fit for the next batch.
#[derive(Debug)]
pub struct EventArray {
    records: Vec<EventRecord>,
    /// Frames trimmed to their payload, with the connection that received them (`None`: UDP).
    buffers: Vec<(Option<Handle>, Mbuf)>,
    capacity: usize,
}

impl EventArray {
    /// An array with room for `capacity` records (at most 65,535).
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.min(u16::MAX as usize);
        Self {
            records: Vec::with_capacity(capacity),
            buffers: Vec::with_capacity(capacity),
            capacity,
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
        let buffer = BufferRef { index: self.buffers.len() as u16 };
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
        let buffer = BufferRef { index: self.buffers.len() as u16 };
        self.buffers.push((None, mbuf));
        self.records.push(EventRecord::Datagram { local_port, peer, buffer });
        Ok(())
    }

    /// Empties the array once the application has consumed it: the buffers, each with the
    /// connection that it belongs to, go back to whoever accounts for them.
    pub fn drain(&mut self) -> impl Iterator<Item = (Option<Handle>, Mbuf)> + '_ {
        self.records.clear();
        self.buffers.drain(..)
    }

    /// As [`drain`](Self::drain), without moving the buffers one by one: `buffers`, which is empty,
    /// changes places with the array's own.
    pub fn take_buffers(&mut self, buffers: &mut Vec<(Option<Handle>, Mbuf)>) {
        debug_assert!(buffers.is_empty(), "buffers that nobody settled");
        self.records.clear();
        core::mem::swap(&mut self.buffers, buffers);
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
    /// with `recv_done`, oldest first.
    pub fn held(&self, handle: Handle, mut visit: impl FnMut(&[u8])) {
        self.held.held(handle, &mut visit);
    }

    /// The events in order.
    pub fn iter(&self) -> impl Iterator<Item = Event<'a>> + use<'a> {
        let array = self.array;
        array.records.iter().map(move |record| array.event(record))
    }
}

impl core::fmt::Debug for Events<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl EventArray {
    #[inline]
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
        self.buffers.get(buffer.index as usize).map_or(&[], |(_, mbuf)| mbuf.bytes())
    }
}
