//! One connection's sending side: what goes out now, and what is kept until it can.

use std::collections::VecDeque;

use clock::Instant;
use domain::{Calls, Full, Handle};

/// Bytes kept for a connection beyond which it receives no more.
pub(super) const KEPT_LIMIT: usize = 256 << 10;
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
    batch: u64,
    /// Received bytes that were not given back yet: at most a receive window.
    pub(super) unreturned: u32,
    /// `None`: nothing was ever kept.
    #[expect(
        clippy::box_collection,
        reason = "it is nearly always absent, and a word is less than four"
    )]
    kept: Option<Box<VecDeque<u8>>>,
    /// To be closed once nothing is kept.
    pub(super) closing: bool,
    /// Something was put off, and the connection asked for again.
    pub(super) yielded: bool,
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
            kept: None,
            closing: false,
            yielded: false,
        }
    }

    /// Bytes that are kept.
    #[inline]
    fn kept_len(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.len())
    }

    fn give(&mut self, batch: u64, bytes: usize) {
        if self.batch != batch {
            (self.batch, self.given) = (batch, 0);
        }
        self.given += bytes as u32;
        self.window -= bytes as u32;
    }

    /// An event of this batch told the window.
    pub(super) fn set_window(&mut self, batch: u64, window: u32) {
        let given = if self.batch == batch { self.given } else { 0 };
        self.window = window.saturating_sub(given);
    }

    /// What is kept will not be sent.
    pub(super) fn forget(&mut self) {
        self.kept = None;
    }

    /// Sends what is kept, gives back what was received, closes: as far as the batch has room. What it has
    /// no room for it asks to be told of again for.
    #[inline]
    pub(super) fn flush(&mut self, batch: u64, calls: &mut Calls<'_>) {
        // Nearly always there is nothing but received bytes to give back.
        if self.kept_len() > 0 || self.closing || self.yielded {
            if self.flush_kept(batch, calls).is_err() {
                calls.again(self.handle);
            }
            return;
        }
        let received = core::mem::take(&mut self.unreturned);
        if received > 0 && calls.recv_done(self.handle, received as usize).is_err() {
            self.unreturned = received;
            calls.again(self.handle);
        }
    }

    #[cold]
    fn flush_kept(&mut self, batch: u64, calls: &mut Calls<'_>) -> Result<(), Full> {
        // First what frees memory, then what needs it.
        // Not while a request is put off: those behind it wait in the service, a window of them at most.
        if self.unreturned > 0 && self.kept_len() < KEPT_LIMIT && !self.yielded {
            calls.recv_done(self.handle, self.unreturned as usize)?;
            self.unreturned = 0;
        }
        while self.window > 0
            && let Some(kept) = self.kept.as_mut().filter(|kept| !kept.is_empty())
        {
            let (front, _) = kept.as_slices();
            let count = front.len().min(self.window as usize).min(PIECE);
            calls.sendv(self.handle, &[&front[..count]])?;
            kept.drain(..count);
            self.give(batch, count);
        }
        // What the sends made room for can be returned with the next event.
        if self.closing && self.kept_len() == 0 {
            calls.close(self.handle)?;
            self.closing = false;
        }
        Ok(())
    }
}

/// Where a protocol puts its replies.
#[derive(Debug)]
pub struct Output<'a, 'b> {
    pub(super) sending: &'a mut Sending,
    pub(super) calls: &'a mut Calls<'b>,
    pub(super) batch: u64,
    pub(super) kept_bytes: &'a mut u64,
}

impl Output<'_, '_> {
    /// From when on a long request should be put off at its next safe point ([`Flow::Yield`](super::Flow)); as
    /// [`Calls::yield_at`].
    #[inline]
    pub fn yield_at(&self) -> Option<Instant> {
        self.calls.yield_at()
    }

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
