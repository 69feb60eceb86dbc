//! One connection's sending side: what goes out now, and what is kept until it can.

use std::collections::VecDeque;

use clock::Instant;
use domain::{Calls, Full, Handle};

/// Bytes of replies kept for a connection beyond which the protocol is not asked for more: see
/// [`Output::room`]. Bytes received meanwhile wait, and are not given back, so that the peer's window closes.
pub const OUTPUT_LIMIT_BYTES: usize = 32 << 10;
/// Bytes of what is kept that are handed over in one call. A call is taken as a whole or not at all: one
/// that asks for more packet memory than there is would be refused for ever, and calls that follow one
/// another share a record and its segments.
const PIECE: usize = 1 << 10;

/// See the module's comment. Small: with a protocol's state of a few words it stands in one cache line
/// (asserted where slots are).
#[derive(Debug)]
pub struct Sending {
    pub(super) handle: Handle,
    /// Bytes that the dataplane takes now.
    window: u32,
    /// Bytes given to it in batch number `batch`: a window told in that batch does not know them.
    given: u32,
    /// The batch that the connection's last event came in.
    pub(super) batch: u64,
    /// Received bytes that were not given back yet: at most a receive window.
    pub(super) unreturned: u32,
    /// When the connection was entered among those that may be idle, as the lowest bits of the tick.
    pub(super) open_tick: u16,
    /// To be closed once nothing is kept.
    pub(super) closing: bool,
    /// The connection has an entry among those that keep something.
    pub(super) watched: bool,
    /// `None`: no request is incomplete, and no reply is kept.
    pub(super) backlog: Option<Box<Backlog>>,
}

/// What a connection keeps: the reply that its peer has not taken, and received bytes that the protocol has
/// not.
#[derive(Debug, Default)]
pub struct Backlog {
    output: VecDeque<u8>,
    input: Vec<u8>,
    /// Bytes of `input` that the protocol has taken.
    taken: usize,
    /// Bytes charged to the service's connection memory.
    pub(super) charged: usize,
    /// When the incomplete request began, where there is one; else the protocol's last turn.
    pub(super) asked: Instant,
    /// When the oldest of `output` was kept, or the peer had last taken `OUTPUT_LIMIT_BYTES` since.
    unread: Instant,
    /// Bytes that the peer has taken since then.
    read_bytes: usize,
    /// The protocol has a request in part.
    pub(super) partial: bool,
    /// The protocol put off the rest of what it has.
    pub(super) yielded: bool,
    /// Bytes came since the protocol asked for more.
    pub(super) fresh: bool,
    /// The peer will send no more, which the protocol does not know yet.
    pub(super) ended: bool,
}

impl Backlog {
    /// Bytes of the reply that wait.
    pub(super) fn output_len(&self) -> usize {
        self.output.len()
    }

    /// Since when the peer has not completed its request, or has taken too little of the reply.
    pub(super) fn since(&self) -> Instant {
        match (self.output.is_empty(), self.partial) {
            (true, _) => self.asked,
            (false, true) => self.asked.min(self.unread),
            (false, false) => self.unread,
        }
    }

    /// The peer has taken `bytes` of the reply. A byte now and then is no progress: each holds as much memory as
    /// all.
    fn take_output(&mut self, bytes: usize, now: Instant) {
        self.output.drain(..bytes);
        self.read_bytes += bytes;
        if self.output.is_empty() {
            // A connection that read slowly once does not hold the memory for good.
            self.output = VecDeque::new();
        }
        if self.read_bytes >= OUTPUT_LIMIT_BYTES {
            (self.unread, self.read_bytes) = (now, 0);
        }
    }

    /// Whether nothing depends on it any more.
    pub(super) fn is_done(&self) -> bool {
        self.output.is_empty()
            && self.input.is_empty()
            && !(self.partial || self.yielded || self.ended)
    }

    /// Memory that it takes, with `request_bytes` for a request that the protocol has in part.
    pub(super) fn bytes(&self, request_bytes: usize) -> usize {
        let request = if self.partial || self.yielded { request_bytes } else { 0 };
        size_of::<Self>() + self.output.capacity() + self.input.capacity() + request
    }

    /// Received bytes wait for the protocol.
    pub(super) fn keep_input(&mut self, data: &[u8]) {
        self.input.extend_from_slice(data);
        self.fresh |= !data.is_empty();
    }

    /// What waits for the protocol, taken out: all that it has not taken, with what came since.
    pub(super) fn take_input(&mut self) -> Option<(Vec<u8>, usize)> {
        if !self.fresh || self.input.is_empty() {
            return None;
        }
        self.fresh = false;
        Some((core::mem::take(&mut self.input), self.taken))
    }

    /// Puts it back, but for what the protocol has taken: the last `left` bytes stay.
    pub(super) fn put_back(&mut self, input: Vec<u8>, left: usize) {
        self.taken = input.len() - left.min(input.len());
        self.input = input;
        if left == 0 {
            self.forget_input();
        } else if self.taken >= self.input.len() / 2 {
            // What stays is moved at most as often as as much was taken.
            self.input.drain(..self.taken);
            self.taken = 0;
        }
    }

    /// Drops what waits for the protocol.
    pub(super) fn forget_input(&mut self) {
        (self.input, self.taken, self.fresh) = (Vec::new(), 0, false);
    }
}

impl Sending {
    /// Of a connection that knocked, in batch number `batch`.
    pub(super) fn new(handle: Handle, window: u32, batch: u64) -> Self {
        Self {
            handle,
            window,
            given: 0,
            batch,
            unreturned: 0,
            open_tick: 0,
            closing: false,
            watched: false,
            backlog: None,
        }
    }

    /// Bytes of replies that are kept.
    #[inline]
    pub(super) fn output_len(&self) -> usize {
        self.backlog.as_ref().map_or(0, |backlog| backlog.output.len())
    }

    /// Whether there is nothing but received bytes to give back.
    #[inline]
    pub(super) fn is_clear(&self) -> bool {
        self.backlog.is_none() && !self.closing
    }

    #[inline]
    fn give(&mut self, bytes: usize) {
        self.given += bytes as u32;
        self.window -= bytes as u32;
    }

    /// An event of this batch is about the connection.
    #[inline]
    pub(super) fn enter(&mut self, batch: u64) {
        if self.batch != batch {
            (self.batch, self.given) = (batch, 0);
        }
    }

    /// The same, of an event that told the window.
    #[inline]
    pub(super) fn set_window(&mut self, batch: u64, window: u32) {
        self.enter(batch);
        self.window = window.saturating_sub(self.given);
    }

    /// A look at the connection was no event of its own: as if the one in batch `seen` were its last.
    pub(super) fn look_away(&mut self, seen: u64) {
        if self.given == 0 && self.backlog.is_none() {
            self.batch = seen;
        }
    }

    /// What the connection keeps from now on.
    pub(super) fn backlog(&mut self, now: Instant) -> &mut Backlog {
        let new = || Box::new(Backlog { asked: now, unread: now, ..Backlog::default() });
        self.backlog.get_or_insert_with(new)
    }

    /// Gives back what was received. A full batch asks for the connection again.
    #[inline]
    pub(super) fn give_back(&mut self, calls: &mut Calls<'_>) {
        let received = core::mem::take(&mut self.unreturned);
        if received > 0 && calls.recv_done(self.handle, received as usize).is_err() {
            self.unreturned = received;
            calls.again(self.handle);
        }
    }

    /// Sends what is kept as far as the window and the batch have room.
    ///
    /// # Errors
    /// The batch, or the packet memory, is full.
    pub(super) fn send_kept(&mut self, now: Instant, calls: &mut Calls<'_>) -> Result<(), Full> {
        while self.window > 0
            && let Some(backlog) = self.backlog.as_mut().filter(|it| !it.output.is_empty())
        {
            let (front, _) = backlog.output.as_slices();
            let count = front.len().min(self.window as usize).min(PIECE);
            calls.sendv(self.handle, &[&front[..count]])?;
            backlog.take_output(count, now);
            self.give(count);
        }
        Ok(())
    }
}

/// Where a protocol puts its replies.
#[derive(Debug)]
pub struct Output<'a, 'b> {
    pub(super) sending: &'a mut Sending,
    pub(super) calls: &'a mut Calls<'b>,
    pub(super) now: Instant,
    pub(super) kept_bytes: &'a mut u64,
}

impl Output<'_, '_> {
    /// From when on a long request should be put off at its next safe point ([`Flow::Yield`](super::Flow)); as
    /// [`Calls::yield_at`].
    #[inline]
    pub fn yield_at(&self) -> Option<Instant> {
        self.calls.yield_at()
    }

    /// Bytes that may be put now. A protocol whose reply is much longer than its request ends its turn
    /// ([`Flow::Yield`](super::Flow)) where there is no room, and is asked to go on once the peer has taken
    /// what is kept. What is put beyond is kept all the same, and charged to the connection memory.
    #[inline]
    pub fn room(&self) -> usize {
        match self.sending.output_len() {
            0 => self.sending.window as usize + OUTPUT_LIMIT_BYTES,
            kept => OUTPUT_LIMIT_BYTES.saturating_sub(kept),
        }
    }

    /// Appends bytes to the stream. They are copied before this returns: once, into the frame,
    /// while the window has room.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        if self.sending.output_len() == 0 && !rest.is_empty() {
            let now = &rest[..rest.len().min(self.sending.window as usize)];
            if !now.is_empty() && self.calls.sendv(self.sending.handle, &[now]).is_ok() {
                self.sending.give(now.len());
                rest = &rest[now.len()..];
            }
        }
        if !rest.is_empty() {
            self.keep(rest);
        }
    }

    #[cold]
    fn keep(&mut self, bytes: &[u8]) {
        *self.kept_bytes += bytes.len() as u64;
        let backlog = self.sending.backlog(self.now);
        if backlog.output.is_empty() {
            (backlog.unread, backlog.read_bytes) = (self.now, 0);
        }
        backlog.output.extend(bytes);
    }
}
