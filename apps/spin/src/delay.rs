//! Responses that are held back by a timer instead of by spinning: nothing has to pass on the clock meanwhile.
//!
//! On a virtual clock this is the service itself: one core that serves the requests in the order of their arrival
//! and is busy with each for as long as it asks. With a core for each request
//! ([`DelayedSpin::parallel`]) it is a service whose latencies are known however much is asked of it, on real clocks
//! too: what a load generator is tried against.
//!
//! Received bytes are given back with the response to them, so that what a peer can make the
//! service remember is bounded by its receive window.

use std::collections::VecDeque;

use tailplane::{CallKind, Calls, Cookie, DueQueue, Event, Events, Handle, Instant, Service};

use crate::frame::{Assembler, FRAME_BYTES, Frame};

/// A response that is to leave at its moment.
#[derive(Debug)]
struct Due {
    slot: u32,
    handle: Handle,
    frame: Frame,
}

#[derive(Debug)]
struct Slot {
    handle: Handle,
    assembler: Assembler,
    /// Bytes that the dataplane takes now.
    window: u32,
    /// Bytes given to it in batch number `batch`: a `sent` event of that batch does not know them.
    given: u32,
    batch: u64,
    /// Responses that are not served yet.
    pending: u32,
    /// When the last of them leaves: a connection's responses are in the order of its requests.
    busy_until: Instant,
    /// Responses that are to leave, and how many of the first one's bytes have left.
    ready: VecDeque<Frame>,
    ready_from: usize,
    /// Bytes of responses that have left: as many received ones can be given back.
    unreturned: usize,
    /// No more requests are read; closed when the last response has left.
    ending: bool,
    closed: bool,
    queued: bool,
}

impl Slot {
    fn new(handle: Handle, window: u32) -> Self {
        Self {
            handle,
            assembler: Assembler::default(),
            window,
            given: 0,
            batch: 0,
            pending: 0,
            busy_until: Instant::ZERO,
            ready: VecDeque::new(),
            ready_from: 0,
            unreturned: 0,
            ending: false,
            closed: false,
            queued: false,
        }
    }

    /// Does what the window and the batch have room for; whether to try again in the next batch.
    fn flush(&mut self, batch: u64, calls: &mut Calls<'_>) -> bool {
        if self.batch != batch {
            (self.batch, self.given) = (batch, 0);
        }
        while let Some(frame) = self.ready.front() {
            let bytes = frame.to_bytes();
            let rest = &bytes[self.ready_from..];
            let rest = &rest[..rest.len().min(self.window as usize)];
            if rest.is_empty() {
                break;
            }
            if calls.sendv(self.handle, &[rest]).is_err() {
                return true;
            }
            self.window -= rest.len() as u32;
            self.given += rest.len() as u32;
            self.unreturned += rest.len();
            self.ready_from += rest.len();
            if self.ready_from == FRAME_BYTES {
                self.ready_from = 0;
                self.ready.pop_front();
            }
        }
        if self.unreturned > 0 {
            if calls.recv_done(self.handle, self.unreturned).is_err() {
                return true;
            }
            self.unreturned = 0;
        }
        if self.ending && !self.closed && self.pending == 0 && self.ready.is_empty() {
            self.closed = calls.close(self.handle).is_ok();
            return !self.closed;
        }
        false
    }
}

/// The service whose responses are held back by a timer.
#[derive(Debug, Default)]
pub struct DelayedSpin {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    due: DueQueue<Due>,
    /// Each request has a core of its own.
    parallel: bool,
    busy_until: Instant,
    /// Connections for which the batch had no room.
    again: VecDeque<u32>,
    /// Connections that knocked when the batch had no room to accept them.
    knocks: VecDeque<(Handle, u32)>,
    batch: u64,
    served: u64,
}

impl DelayedSpin {
    /// A service without connections.
    pub fn new() -> Self {
        Self::default()
    }

    /// A service without connections, with a core for each request: it answers each after exactly the time that it
    /// asks for. Requests of one connection still wait for those before them where these take longer.
    pub fn parallel() -> Self {
        Self { parallel: true, ..Self::default() }
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Requests served.
    pub const fn served(&self) -> u64 {
        self.served
    }

    fn slot(&mut self, number: u32, handle: Handle) -> Option<&mut Slot> {
        self.slots.get_mut(number as usize)?.as_mut().filter(|slot| slot.handle == handle)
    }

    fn knock(&mut self, handle: Handle, window: u32, calls: &mut Calls<'_>) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        if calls.accept(handle, Cookie(u64::from(number))).is_err() {
            self.free.push(number);
            self.knocks.push_back((handle, window));
            return;
        }
        self.slots[number as usize] = Some(Slot::new(handle, window));
    }

    fn receive(&mut self, now: Instant, number: u32, handle: Handle, data: &[u8]) {
        let Some(Some(slot)) = self.slots.get_mut(number as usize) else { return };
        if slot.handle != handle {
            return;
        }
        let mut rest = data;
        while !slot.ending {
            let Some((frame, behind)) = slot.assembler.next(rest) else { return };
            rest = behind;
            let Some(time) = frame.service() else {
                slot.ending = true;
                return;
            };
            let at = match self.parallel {
                true => slot.busy_until.max(now + time),
                false => self.busy_until.max(now) + time,
            };
            (slot.busy_until, self.busy_until) = (at, at);
            slot.pending += 1;
            self.due.push(at, Due { slot: number, handle, frame });
        }
    }

    /// Hands over the responses whose time has come.
    fn serve(&mut self, now: Instant, calls: &mut Calls<'_>) {
        while let Some(due) = self.due.pop_due(now) {
            self.served += 1;
            // A connection that has ended meanwhile was served all the same: its core was busy.
            let Some(slot) = self.slot(due.slot, due.handle) else { continue };
            slot.pending -= 1;
            slot.ready.push_back(due.frame);
            self.flush(due.slot, calls);
        }
    }

    fn flush(&mut self, number: u32, calls: &mut Calls<'_>) {
        let Some(Some(slot)) = self.slots.get_mut(number as usize) else { return };
        if slot.flush(self.batch, calls) && !slot.queued {
            slot.queued = true;
            self.again.push_back(number);
        }
    }

    fn end(&mut self, number: u32, handle: Handle, calls: &mut Calls<'_>) {
        if let Some(slot) = self.slot(number, handle) {
            slot.ending = true;
            self.flush(number, calls);
        }
    }

    /// An event tells the window; what was sent in this batch is not in it.
    fn set_window(&mut self, number: u32, handle: Handle, window: u32) {
        let batch = self.batch;
        if let Some(slot) = self.slot(number, handle) {
            let given = if slot.batch == batch { slot.given } else { 0 };
            slot.window = window.saturating_sub(given);
        }
    }

    fn event(&mut self, now: Instant, event: Event<'_>, calls: &mut Calls<'_>) {
        match event {
            Event::Knock { handle, window, .. } => self.knock(handle, window, calls),
            Event::Recv { handle, cookie, data, window, .. } => {
                let number = cookie.0 as u32;
                self.set_window(number, handle, window);
                self.receive(now, number, handle, data);
                // It may have asked for too much, with nothing before it.
                self.flush(number, calls);
            }
            Event::Sent { handle, cookie, window, .. } => {
                let number = cookie.0 as u32;
                self.set_window(number, handle, window);
                self.flush(number, calls);
            }
            Event::Eof { handle, cookie } => self.end(cookie.0 as u32, handle, calls),
            Event::Dead { handle, cookie, .. } => {
                self.knocks.retain(|(knocked, _)| *knocked != handle);
                let number = cookie.0 as u32;
                if self.slot(number, handle).is_some() {
                    self.slots[number as usize] = None;
                    self.free.push(number);
                }
            }
            Event::Failed { call: CallKind::Sendv, handle, cookie, .. } => {
                // A hole in the stream cannot be mended.
                let number = cookie.0 as u32;
                if let Some(slot) = self.slot(number, handle) {
                    slot.ready.clear();
                    slot.ending = true;
                    // Where the batch is full, an orderly close is tried again.
                    slot.closed = calls.abort(handle).is_ok();
                    self.flush(number, calls);
                }
            }
            // It does not connect; it has no datagrams; it asks for time instead of for a connection again;
            // its other calls fail only on connections that died.
            Event::Connected { .. }
            | Event::Datagram { .. }
            | Event::Again { .. }
            | Event::Listening { .. }
            | Event::Info { .. }
            | Event::Failed { .. } => {}
        }
    }
}

impl Service for DelayedSpin {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        self.batch += 1;
        for _ in 0..self.again.len() {
            let Some(number) = self.again.pop_front() else { break };
            if let Some(Some(slot)) = self.slots.get_mut(number as usize) {
                slot.queued = false;
            }
            self.flush(number, calls);
        }
        for _ in 0..self.knocks.len().min(calls.room()) {
            let Some((handle, window)) = self.knocks.pop_front() else { break };
            self.knock(handle, window, calls);
        }
        for event in events.iter() {
            self.event(now, event, calls);
        }
        self.serve(now, calls);
    }

    fn wake_at(&self) -> Option<Instant> {
        if !self.again.is_empty() || !self.knocks.is_empty() {
            return Some(Instant::ZERO);
        }
        self.due.next_due()
    }
}

#[cfg(test)]
mod tests;
