//! Turns of connections that keep something, and the limits on what they keep.
//!
//! A request that comes whole and whose reply the window takes never enters here.

use clock::Instant;
use domain::{Calls, Cookie};

use super::limits::{Ended, Limits};
use super::sending::{OUTPUT_LIMIT_BYTES, Output};
use super::slots::Slot;
use super::watch::{Entry, Watch};
use super::{Flow, Protocol, ServerStats, batch};

/// What the turn of one connection works with.
pub(super) struct Turn<'a, 'b, P> {
    pub protocol: &'a mut P,
    pub stats: &'a mut ServerStats,
    pub watch: &'a mut Watch,
    pub batch: u64,
    pub now: Instant,
    pub cookie: Cookie,
    pub calls: &'a mut Calls<'b>,
}

impl<P: Protocol> Turn<'_, '_, P> {
    /// Asks the protocol. Returns how many of the bytes that it was given it has not taken.
    fn run(
        &mut self,
        slot: &mut Slot<P::Connection>,
        body: impl FnOnce(&mut P, &mut P::Connection, &mut Output<'_, '_>) -> Flow,
    ) -> usize {
        let Some(connection) = &mut slot.connection else { return 0 };
        let mut output = Output {
            sending: &mut slot.sending,
            calls: self.calls,
            now: self.now,
            kept_bytes: &mut self.stats.kept_bytes,
        };
        let flow = body(self.protocol, connection, &mut output);
        self.conclude(slot, flow)
    }

    /// What the protocol answered. Returns how many of the bytes that it was given it has not taken.
    fn conclude(&mut self, slot: &mut Slot<P::Connection>, flow: Flow) -> usize {
        let now = self.now;
        match flow {
            Flow::Continue => {
                if let Some(backlog) = &mut slot.sending.backlog {
                    (backlog.partial, backlog.asked) = (false, now);
                }
                0
            }
            Flow::Partial { left, begun } => {
                let backlog = slot.sending.backlog(now);
                if begun || !backlog.partial {
                    backlog.asked = now;
                }
                backlog.partial = true;
                left
            }
            Flow::Yield { left } => {
                self.watch.memory.count_yield();
                let backlog = slot.sending.backlog(now);
                (backlog.partial, backlog.yielded, backlog.asked) = (false, true, now);
                left
            }
            Flow::Close => {
                self.leave(slot);
                slot.sending.closing = true;
                0
            }
            Flow::Abort => {
                self.abort(slot);
                0
            }
        }
    }

    /// The protocol has seen `data`, which came when nothing waited, and answered `flow`.
    pub fn received(&mut self, slot: &mut Slot<P::Connection>, flow: Flow, data: &[u8]) {
        let left = self.conclude(slot, flow).min(data.len());
        if let Some(backlog) = &mut slot.sending.backlog
            && left > 0
        {
            backlog.keep_input(&data[data.len() - left..]);
            backlog.fresh = backlog.yielded;
        }
        self.end_turn(slot);
    }

    /// `data` came behind what waits.
    pub fn receive(&mut self, slot: &mut Slot<P::Connection>, data: &[u8]) {
        if slot.connection.is_some() {
            slot.sending.backlog(self.now).keep_input(data);
        }
        self.go_on(slot);
    }

    /// The peer will send no more.
    pub fn end_of_input(&mut self, slot: &mut Slot<P::Connection>) {
        slot.sending.enter(self.batch);
        if slot.connection.is_some() {
            slot.sending.backlog(self.now).ended = true;
        }
        self.go_on(slot);
    }

    /// Sends what is kept, and has the protocol go on with what waits, as far as there is room for replies.
    pub fn go_on(&mut self, slot: &mut Slot<P::Connection>) {
        loop {
            self.send(slot);
            if slot.connection.is_none() {
                break;
            }
            let Some(backlog) = &mut slot.sending.backlog else { break };
            if backlog.output_len() >= OUTPUT_LIMIT_BYTES {
                break;
            }
            let now = self.now;
            if core::mem::take(&mut backlog.yielded) {
                self.run(slot, |protocol, connection, out| protocol.resume(now, connection, out));
            } else if let Some((input, taken)) = backlog.take_input() {
                let left = self.run(slot, |protocol, connection, out| {
                    protocol.receive(now, connection, &input[taken..], out)
                });
                if let Some(backlog) = &mut slot.sending.backlog
                    && slot.connection.is_some()
                {
                    backlog.put_back(input, left);
                    backlog.fresh = backlog.yielded && left > 0;
                }
            } else if core::mem::take(&mut backlog.ended) {
                self.run(slot, |protocol, connection, out| protocol.end(now, connection, out));
            } else {
                break;
            }
            // A turn ends where the protocol says so: others are to be served.
            if slot.sending.backlog.as_ref().is_some_and(|backlog| backlog.yielded) {
                break;
            }
        }
        self.end_turn(slot);
    }

    fn send(&mut self, slot: &mut Slot<P::Connection>) {
        if slot.sending.send_kept(self.now, self.calls).is_err() {
            self.calls.again(slot.sending.handle);
        }
    }

    /// A protocol that put something off is asked to go on in a later batch; where the peer does not read, once
    /// it does.
    fn end_turn(&mut self, slot: &mut Slot<P::Connection>) {
        self.send(slot);
        let sending = &slot.sending;
        if let Some(backlog) = &sending.backlog
            && backlog.yielded
            && backlog.output_len() < OUTPUT_LIMIT_BYTES
        {
            self.calls.again(sending.handle);
        }
    }

    /// After everything else: gives back what was received, closes, charges what is kept.
    pub fn settle(&mut self, slot: &mut Slot<P::Connection>) {
        let sending = &mut slot.sending;
        let backlog = sending.backlog.as_ref();
        // First what frees memory. While something waits, the peer's window closes.
        if !backlog.is_some_and(|it| it.yielded || it.output_len() >= OUTPUT_LIMIT_BYTES) {
            sending.give_back(self.calls);
        }
        if sending.closing && sending.output_len() == 0 {
            match self.calls.close(sending.handle) {
                Ok(()) => sending.closing = false,
                Err(_) => self.calls.again(sending.handle),
            }
        }
        let Some(backlog) = &mut sending.backlog else { return };
        if backlog.is_done() {
            self.watch.charge(backlog.charged, 0);
            sending.backlog = None;
            return;
        }
        let bytes = backlog.bytes(P::REQUEST_BYTES);
        self.watch.charge(core::mem::replace(&mut backlog.charged, bytes), bytes);
        if self.watch.memory.is_spent() {
            return self.end(slot, Ended::Evicted);
        }
        if !core::mem::replace(&mut sending.watched, true) {
            // Where nothing times out, it is looked at from time to time.
            let times_out = self.watch.limits.request_timeout.is_some();
            let since = if times_out { backlog.since() } else { self.now };
            let handle = sending.handle;
            self.watch.hold(Entry { since, cookie: self.cookie, handle });
        }
    }

    /// The connection's entry among those that keep something was taken out: ends it where it has waited for
    /// too long, else enters it again where it still keeps something.
    pub fn look(&mut self, slot: &mut Slot<P::Connection>) {
        slot.sending.watched = false;
        let Some(backlog) = &slot.sending.backlog else { return };
        let timeout = self.watch.limits.request_timeout;
        if timeout.is_some_and(|timeout| backlog.since() + timeout <= self.now) {
            self.end(slot, Ended::TimedOut);
        }
    }

    /// The same, for want of memory: ends it unless it has made progress since its entry.
    pub fn evict(&mut self, slot: &mut Slot<P::Connection>, since: Instant) {
        slot.sending.watched = false;
        if slot.sending.backlog.as_ref().is_some_and(|backlog| backlog.since() <= since) {
            self.end(slot, Ended::Evicted);
        }
    }

    /// Another core asked for this one's end for want of memory. Entries go to the core that last had the turn, so
    /// the other one's oldest may be new: where one of this core has waited longer, that one is asked in its place.
    fn evict_or_older(&mut self, slot: &mut Slot<P::Connection>) {
        slot.sending.watched = false;
        let Some(since) = slot.sending.backlog.as_ref().map(|backlog| backlog.since()) else {
            return;
        };
        match self.watch.take_older(since) {
            Some(Entry { handle, .. }) => self.calls.again(handle),
            None => self.end(slot, Ended::Evicted),
        }
    }

    /// The connection's entry among all was taken out. `seen`: the batch of its last event.
    pub fn look_if_idle(&mut self, slot: &mut Slot<P::Connection>, seen: u64) {
        let Some(timeout) = self.watch.limits.idle_timeout else { return };
        if slot.connection.is_none() {
            return;
        }
        let last = match slot.sending.backlog {
            Some(_) => self.now,
            None => batch::last_moment(seen, self.now).min(self.now),
        };
        if last + timeout <= self.now {
            return self.end(slot, Ended::Idle);
        }
        // It is looked at when it may have been idle for long enough, or has ended meanwhile.
        let since = (last + (timeout - self.watch.open_time())).min(self.now);
        slot.sending.open_tick = batch::tick(since) as u16;
        let (cookie, handle) = (self.cookie, slot.sending.handle);
        self.watch.open(Entry { since, cookie, handle });
    }

    /// Another core's server asked for this turn by one of its entries; which one, the connection knows.
    pub fn look_as_asked(&mut self, slot: &mut Slot<P::Connection>, seen: u64) {
        if slot.sending.watched {
            match self.watch.memory.is_short() {
                true => self.evict_or_older(slot),
                false => self.look(slot),
            }
        }
        let limits = &self.watch.limits;
        let (times_out, is_limited) =
            (limits.idle_timeout.is_some(), limits.max_connections.is_some());
        if times_out {
            let ticks = (batch::tick(self.now) as u16).wrapping_sub(slot.sending.open_tick);
            // Before that its entry is still there.
            if u64::from(ticks) >= batch::ticks(self.watch.open_time()) {
                self.look_if_idle(slot, seen);
            }
        }
        if is_limited && self.watch.memory.is_crowded(self.now) {
            self.yield_place(slot, seen, times_out);
        }
        if times_out || is_limited {
            slot.sending.look_away(seen);
        }
    }

    /// There are nearly as many connections as there may be. Ends this one unless it had an event lately or, where
    /// it has no other time-out, since it was last asked.
    fn yield_place(&mut self, slot: &mut Slot<P::Connection>, seen: u64, times_out: bool) {
        if slot.connection.is_none() || !slot.sending.is_clear() {
            return;
        }
        if batch::last_moment(seen, self.now) + Limits::CROWD_IDLE > self.now {
            return;
        }
        let asked = slot.sending.open_tick;
        let since_asked = (batch::tick_of(seen) as u16).wrapping_sub(asked) as i16;
        if times_out || since_asked <= 0 {
            return self.end(slot, Ended::Crowded);
        }
        slot.sending.open_tick = batch::tick(self.now) as u16;
    }

    /// Ends the connection for a limit's sake.
    pub fn end(&mut self, slot: &mut Slot<P::Connection>, why: Ended) {
        self.watch.memory.count(why);
        match why {
            Ended::Idle => {
                self.leave(slot);
                slot.sending.closing = true;
            }
            Ended::TimedOut | Ended::Evicted | Ended::Crowded => self.abort(slot),
        }
    }

    /// The connection is over for the protocol: what waits for it is dropped.
    fn leave(&mut self, slot: &mut Slot<P::Connection>) {
        if let Some(backlog) = &mut slot.sending.backlog {
            backlog.forget_input();
            (backlog.partial, backlog.yielded, backlog.ended) = (false, false, false);
        }
        if let Some(connection) = slot.connection.take() {
            self.protocol.closed(connection);
        }
    }

    /// Resets the connection.
    pub fn abort(&mut self, slot: &mut Slot<P::Connection>) {
        self.leave(slot);
        if let Some(backlog) = slot.sending.backlog.take() {
            self.watch.charge(backlog.charged, 0);
        }
        // Where the batch is full, an orderly close is tried again.
        slot.sending.closing = self.calls.abort(slot.sending.handle).is_err();
        if slot.sending.closing {
            self.calls.again(slot.sending.handle);
        }
    }
}
