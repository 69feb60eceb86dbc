//! The generator's connections on the dataplane, and the way out to its call array.
//!
//! Calls can be refused where the array or the packet memory is full. Bytes to send then stay with
//! the generator, which is told when to try again; other calls are owed, and made first of all in
//! the next batch.

use std::collections::VecDeque;

use tailplane::{Calls, Cookie, Endpoint, Full, Handle};

use crate::churn::Dialer;
use crate::config::CloseMode;
use crate::connection::Sender;

/// One connection's state on the dataplane.
#[derive(Debug, Clone, Default)]
pub(super) struct Line {
    /// `None` while there is no connection.
    handle: Option<Handle>,
    /// Tells the events of this connection from those of earlier ones in the same place.
    generation: u32,
    /// Bytes that may be sent now.
    window: u32,
    /// Bytes that were sent in batch `batch`.
    issued: u32,
    batch: u64,
    /// Bytes wait for room in the array, and the line stands in the list of the stalled.
    stalled: bool,
}

/// A call that found no room.
#[derive(Debug, Clone, Copy)]
enum Owed {
    Connect(Cookie),
    RecvDone(Handle, usize),
    Close(Handle),
    Abort(Handle),
}

/// All connections of one service, between batches.
#[derive(Debug)]
pub(super) struct Lines {
    target: Endpoint,
    lines: Vec<Line>,
    /// In order. Bounded by what the connections can owe: one call each, and one for every buffer
    /// that was received.
    owed: VecDeque<Owed>,
    stalled: Vec<u32>,
    /// Number of the present batch, from 1.
    batch: u64,
}

impl Lines {
    /// `count` places without a connection.
    pub fn new(target: Endpoint, count: u32) -> Self {
        let count = count as usize;
        Self {
            target,
            lines: vec![Line::default(); count],
            owed: VecDeque::with_capacity(count),
            stalled: Vec::with_capacity(count),
            batch: 0,
        }
    }

    /// Number of places.
    pub fn len(&self) -> u32 {
        self.lines.len() as u32
    }

    /// Begins a batch: what is owed is called first. The lines that stalled are handed out, to be
    /// offered room again.
    pub fn begin_batch(&mut self, calls: &mut Calls<'_>, retry: &mut Vec<u32>) {
        self.batch += 1;
        while let Some(&owed) = self.owed.front() {
            if self.call(owed, calls).is_err() {
                break;
            }
            self.owed.pop_front();
        }
        retry.clear();
        std::mem::swap(&mut self.stalled, retry);
        for &line in retry.iter() {
            self.lines[line as usize].stalled = false;
        }
    }

    /// Whether something waits for room in the next batch.
    pub fn is_waiting(&self) -> bool {
        !self.owed.is_empty() || !self.stalled.is_empty()
    }

    /// The number of the line that `cookie` names, where the connection is still the same.
    pub fn find(&self, cookie: Cookie) -> Option<u32> {
        let (number, generation) = (cookie.0 as u32, (cookie.0 >> 32) as u32);
        let line = self.lines.get(number as usize)?;
        (line.generation == generation).then_some(number)
    }

    /// As [`find`](Self::find), and the connection is open.
    pub fn find_open(&self, cookie: Cookie) -> Option<u32> {
        self.find(cookie).filter(|&number| self.lines[number as usize].handle.is_some())
    }

    /// The connection of line `number` is open and may send `window` bytes.
    pub fn on_connected(&mut self, number: u32, handle: Handle, window: u32) {
        let line = &mut self.lines[number as usize];
        debug_assert!(line.handle.is_none(), "a line has one connection at a time");
        line.handle = Some(handle);
        line.window = window;
    }

    /// An event says that `window` bytes may be sent on line `number`. The event was made before
    /// this batch, and does not know what was sent in it.
    pub fn on_window(&mut self, number: u32, window: u32) {
        let line = &mut self.lines[number as usize];
        let since = if line.batch == self.batch { line.issued } else { 0 };
        line.window = window.saturating_sub(since);
    }

    /// The connection of line `number` has ended by itself: nothing more is called on it.
    pub fn on_ended(&mut self, number: u32) {
        let line = &mut self.lines[number as usize];
        line.handle = None;
        line.generation = line.generation.wrapping_add(1);
    }

    /// The calls of this batch, as a transport for the generator.
    pub fn outbox<'a, 'b>(&'a mut self, calls: &'a mut Calls<'b>) -> Outbox<'a, 'b> {
        Outbox { lines: self, calls }
    }

    fn cookie(&self, number: u32) -> Cookie {
        let generation = self.lines[number as usize].generation;
        Cookie(u64::from(number) | u64::from(generation) << 32)
    }

    fn call(&self, owed: Owed, calls: &mut Calls<'_>) -> Result<(), Full> {
        match owed {
            Owed::Connect(cookie) if self.find(cookie).is_none() => Ok(()), // given up meanwhile
            Owed::Connect(cookie) => calls.connect(cookie, self.target),
            Owed::RecvDone(handle, bytes) => calls.recv_done(handle, bytes),
            Owed::Close(handle) => calls.close(handle),
            Owed::Abort(handle) => calls.abort(handle),
        }
    }
}

/// The lines together with the call array of the present batch.
pub(super) struct Outbox<'a, 'b> {
    lines: &'a mut Lines,
    calls: &'a mut Calls<'b>,
}

impl Outbox<'_, '_> {
    /// Returns `bytes` received bytes of `handle`.
    pub fn recv_done(&mut self, handle: Handle, bytes: usize) {
        self.call_or_owe(Owed::RecvDone(handle, bytes));
    }

    /// Ends a connection that belongs to no line.
    pub fn refuse(&mut self, handle: Handle) {
        self.call_or_owe(Owed::Abort(handle));
    }

    /// Calls now, or as soon as there is room. What is owed keeps its order.
    fn call_or_owe(&mut self, call: Owed) {
        let waits = !self.lines.owed.is_empty();
        if waits || self.lines.call(call, self.calls).is_err() {
            self.lines.owed.push_back(call);
        }
    }
}

impl Sender for Outbox<'_, '_> {
    fn send(&mut self, connection: u32, bytes: &[u8]) -> usize {
        let batch = self.lines.batch;
        let Some(line) = self.lines.lines.get_mut(connection as usize) else { return 0 };
        let Some(handle) = line.handle else { return 0 };
        // Never more than the window, so that the dataplane never has to trim. Where it is zero,
        // the next `Sent` opens it.
        let taken = bytes.len().min(line.window as usize);
        if taken == 0 {
            return 0;
        }
        if self.calls.sendv(handle, &[&bytes[..taken]]).is_err() {
            if !line.stalled {
                line.stalled = true;
                self.lines.stalled.push(connection);
            }
            return 0;
        }
        line.window -= taken as u32;
        line.issued = if line.batch == batch { line.issued } else { 0 } + taken as u32;
        line.batch = batch;
        taken
    }

    fn abort(&mut self, connection: u32) {
        let Some(line) = self.lines.lines.get_mut(connection as usize) else { return };
        let handle = line.handle.take();
        // Also where there is no handle yet: its `Connected` event belongs to nobody then.
        line.generation = line.generation.wrapping_add(1);
        if let Some(handle) = handle {
            self.call_or_owe(Owed::Abort(handle));
        }
    }
}

impl Dialer for Outbox<'_, '_> {
    fn connect(&mut self, slot: u32) -> bool {
        let Some(line) = self.lines.lines.get_mut(slot as usize) else { return false };
        debug_assert!(line.handle.is_none(), "a slot has one connection at a time");
        line.generation = line.generation.wrapping_add(1);
        let cookie = self.lines.cookie(slot);
        self.call_or_owe(Owed::Connect(cookie));
        true
    }

    fn close(&mut self, slot: u32, how: CloseMode) {
        match how {
            CloseMode::Rst => self.abort(slot),
            CloseMode::Fin => {
                let line = self.lines.lines.get(slot as usize);
                if let Some(handle) = line.and_then(|line| line.handle) {
                    self.call_or_owe(Owed::Close(handle));
                }
            }
        }
    }
}
