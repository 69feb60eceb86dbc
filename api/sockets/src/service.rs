//! The sockets as a service: events change them, and what they have to ask is asked.

use alloc::boxed::Box;

use clock::Instant;
use domain::{
    CallError, CallKind, Calls, ConnectError, ConnectionInfo, Cookie, DeadReason, Event, Events,
    Full, Handle, LocalEndpoint, Service, Transport,
};
use wire::Endpoint;

use crate::datagram::{Datagram, EACH_BYTES};
use crate::errno::Errno;
use crate::local::overlap;
use crate::ports::port_name;
use crate::readiness::READ;
use crate::sockets::{Kind, Socket, Sockets};
use crate::stream::{Asked, Knocking, Phase, Stream};

/// Calls of one socket in one go at most: its sends, and one of each other kind.
const CALLS_EACH: usize = 8;

impl Service for Sockets {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        self.set_now(now);
        for event in events.iter() {
            self.on_event(event);
        }
        while let Some((_, slot)) = self.timers.first().filter(|(at, _)| *at <= now).copied() {
            self.timers.pop_first();
            self.touch(slot);
        }
        // What finds no room is issued in the next batch.
        let _ = self.issue(calls);
    }

    fn wake_at(&self) -> Option<Instant> {
        let is_idle = self.dirty.is_empty() && !self.ports.has_calls() && self.to_abort.is_empty();
        if is_idle { self.timers.first().map(|(at, _)| *at) } else { Some(Instant::ZERO) }
    }
}

impl Sockets {
    fn stream_of(&mut self, cookie: Cookie) -> Option<(u32, &mut Socket)> {
        let slot = self.table.of_cookie(cookie)?;
        let socket = self.table.get_mut(slot)?;
        matches!(socket.kind, Kind::Stream(_)).then_some((slot, socket))
    }

    fn on_event(&mut self, event: Event<'_>) {
        match event {
            Event::Knock { handle, local, peer, window } => {
                self.knock(Knocking { handle, local, peer, window, ended: None });
            }
            Event::Connected { cookie, local, outcome } => self.connected(cookie, local, outcome),
            Event::Recv { cookie, data, acked, window, .. } => {
                self.with(cookie, READ, |stream| {
                    // What comes after `close` or `shutdown` is given back unread.
                    match stream.reads_no_more {
                        true => stream.read += data.len(),
                        false => stream.received.extend(data),
                    }
                    stream.acknowledged(acked, window);
                });
            }
            Event::Sent { cookie, bytes, window, .. } => {
                self.with(cookie, 0, |stream| stream.acknowledged(bytes, window));
            }
            Event::Again { cookie, window, .. } => {
                self.with(cookie, 0, |stream| stream.acknowledged(0, window));
            }
            Event::Eof { cookie, .. } => self.with(cookie, u32::MAX, |stream| stream.eof = true),
            Event::Info { cookie, info, .. } => {
                self.informed(cookie, ConnectionInfo::of_bytes(info).map(Box::new));
            }
            Event::Dead { handle, cookie, reason } => self.dead(handle, cookie, reason),
            Event::Datagram { local, peer, data } => self.datagram(local, peer, data),
            Event::Listening { cookie } => self.port_answered(cookie, None),
            Event::Failed { call, handle, cookie, error } => {
                self.failed(call, (handle, cookie), error);
            }
        }
    }

    /// Changes a connection's socket. Epoll sets report `again` though the socket was ready for it.
    fn with(&mut self, cookie: Cookie, again: u32, change: impl FnOnce(&mut Stream)) {
        let Some(slot) = self.table.of_cookie(cookie) else { return };
        let before = self.readiness(slot) & !again;
        if let Some(Socket { kind: Kind::Stream(stream), .. }) = self.table.get_mut(slot) {
            change(stream);
            self.touch(slot);
            self.notify(slot, before);
        }
    }

    fn informed(&mut self, cookie: Cookie, info: Option<Box<ConnectionInfo>>) {
        let now = self.now;
        self.with(cookie, 0, |stream| stream.asked = Asked::Answered(info, now));
    }

    /// A peer opened a connection: to one of the sockets that listen on the port at this address, or else at all of them, by
    /// the connection's name.
    fn knock(&mut self, knocking: Knocking) {
        let own = self.config.end_of(knocking.local, knocking.peer.addr.is_ipv4());
        let all = self.ports.receivers(port_name(Transport::Tcp, own.port));
        let of = |slot: u32| Some((slot, self.table.get(slot)?.local?.addr));
        let fit = all.iter().filter_map(|slot| of(*slot)).filter(|(_, at)| overlap(*at, own.addr));
        let is_named = fit.clone().any(|(_, at)| at == own.addr);
        let listeners = fit.filter(|(_, at)| !is_named || *at == own.addr);
        // Flows have groups and slots in no order that a peer chooses. The product's highest bits depend on all of them.
        let hash = knocking.handle.to_bits().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let turn = (hash as usize * listeners.clone().count()) >> 32;
        let Some((slot, _)) = listeners.clone().nth(turn) else {
            // Its listener is gone, or is bound to another address, or the port is the configuration's.
            return self.to_abort.push_back(knocking.handle);
        };
        let before = self.readiness(slot) & !READ;
        self.handles.insert(knocking.handle.to_bits(), slot);
        if let Some(Socket { kind: Kind::Stream(stream), .. }) = self.table.get_mut(slot)
            && let Phase::Listening(listener) = &mut stream.phase
        {
            listener.queue.push_back(knocking);
        }
        self.notify(slot, before);
    }

    fn connected(
        &mut self,
        cookie: Cookie,
        local: LocalEndpoint,
        outcome: Result<(Handle, u32), ConnectError>,
    ) {
        let Some((slot, socket)) = self.stream_of(cookie) else {
            // The attempt was given up meanwhile.
            return self.to_abort.extend(outcome.ok().map(|(handle, _)| handle));
        };
        let is_v4 = socket.is_v4;
        let Kind::Stream(stream) = &mut socket.kind else { return };
        match outcome {
            Ok((handle, window)) => {
                (stream.phase, stream.connect_unreported) = (Phase::Open, true);
                (stream.handle, stream.window) = (Some(handle), window);
                self.handles.insert(handle.to_bits(), slot);
                self.set_local(slot, Some(self.config.end_of(local, is_v4)));
            }
            Err(error) => {
                stream.phase = Phase::Fresh;
                socket.error = Some(match error {
                    ConnectError::Refused => Errno::ECONNREFUSED,
                    ConnectError::TimedOut => Errno::ETIMEDOUT,
                    ConnectError::Unreachable => Errno::EHOSTUNREACH,
                    ConnectError::NoPort | ConnectError::BadAddress => Errno::EADDRNOTAVAIL,
                    ConnectError::NoMemory => Errno::ENOBUFS,
                    ConnectError::Forbidden => Errno::EACCES,
                });
            }
        }
        self.touch(slot);
        self.notify(slot, 0);
    }

    fn dead(&mut self, handle: Handle, cookie: Cookie, reason: DeadReason) {
        let slot = match self.table.of_cookie(cookie) {
            Some(slot) => slot,
            // It was not accepted, or is about to be.
            None => match self.handles.remove(&handle.to_bits()) {
                Some(slot) => slot,
                None => return,
            },
        };
        let Some(Socket { kind: Kind::Stream(stream), error, .. }) = self.table.get_mut(slot)
        else {
            return;
        };
        let why = match reason {
            DeadReason::Closed => None,
            // As Linux says after the peer's FIN.
            DeadReason::Reset if stream.eof => Some(Errno::EPIPE),
            DeadReason::Reset | DeadReason::Aborted => Some(Errno::ECONNRESET),
            DeadReason::TimedOut => Some(Errno::ETIMEDOUT),
        };
        match &mut stream.phase {
            Phase::Listening(listener) => {
                // Linux keeps it to be accepted, as far as the backlog goes.
                let is_crowded = listener.queue.len() > listener.backlog.into();
                listener.queue.retain(|one| one.handle != handle || !is_crowded);
                let one = listener.queue.iter_mut().find(|one| one.handle == handle);
                one.into_iter().for_each(|one| one.ended = why.or(Some(Errno::ECONNRESET)));
            }
            // It is being reset, and says why already.
            _ if stream.is_dead => {}
            _ => {
                stream.end();
                *error = why;
            }
        }
        self.touch(slot);
        self.notify(slot, 0);
    }

    fn datagram(&mut self, local: LocalEndpoint, peer: Endpoint, data: &[u8]) {
        let own = self.config.end_of(local, peer.addr.is_ipv4());
        // Of several that share the port the one that is connected to the peer, or one that is bound to the address, or the
        // last.
        let mut best: Option<(bool, bool, u32)> = None;
        for &slot in self.ports.receivers(port_name(Transport::Udp, own.port)) {
            if let Some(Socket { kind: Kind::Datagrams(datagrams), local: Some(bound), .. }) =
                self.table.get(slot)
                && datagrams.peer.is_none_or(|only| only == peer)
                && overlap(bound.addr, own.addr)
            {
                best = best.max(Some((datagrams.peer.is_some(), bound.addr == own.addr, slot)));
            }
        }
        let Some((.., slot)) = best else { return };
        let before = self.readiness(slot) & !READ;
        if let Some(Socket { kind: Kind::Datagrams(datagrams), options, .. }) =
            self.table.get_mut(slot)
        {
            let held = datagrams.received_bytes + data.len() + EACH_BYTES;
            if datagrams.reads_no_more || held > options.receive_bytes as usize {
                return;
            }
            datagrams.received_bytes = held;
            datagrams.received.push_back(Datagram { local, peer, bytes: data.into() });
        }
        self.notify(slot, before);
    }

    /// The dataplane answered that a port is open, or why it is not.
    fn port_answered(&mut self, name: Cookie, refused: Option<Errno>) {
        let receivers = self.ports.answered(name, refused.is_none());
        for slot in receivers.into_iter().filter(|_| refused.is_some()) {
            self.set_local(slot, None);
            let Some(socket) = self.table.get_mut(slot) else { continue };
            (socket.error, socket.is_bound) = (socket.error.or(refused), false);
            if let Kind::Datagrams(datagrams) = &mut socket.kind {
                datagrams.unsent.clear();
                (datagrams.unsent_bytes, datagrams.bind_unreported) = (0, false);
            }
            self.notify(slot, 0);
        }
    }

    fn failed(&mut self, call: CallKind, (handle, cookie): (Handle, Cookie), error: CallError) {
        match call {
            CallKind::Listen => {
                let why = match error {
                    CallError::Forbidden => Errno::EACCES,
                    _ => Errno::EADDRINUSE,
                };
                self.port_answered(cookie, Some(why));
            }
            CallKind::Accept => self.dead(handle, Cookie(0), DeadReason::Reset),
            CallKind::Inform => self.informed(cookie, None),
            // A hole in the stream cannot be mended.
            CallKind::Sendv => {
                if let Some((slot, socket)) = self.stream_of(cookie) {
                    socket.error.get_or_insert(Errno::ENOBUFS);
                    self.reset(slot);
                    self.touch(slot);
                    self.notify(slot, 0);
                }
            }
            // The others fail only where the connection is gone, which an event of its own says, and datagrams may be lost.
            _ => {}
        }
    }

    /// Issues the calls that are due, of each socket in turn, as far as the batch has room.
    fn issue(&mut self, calls: &mut Calls<'_>) -> Result<(), Full> {
        while let Some(handle) = self.to_abort.front() {
            calls.abort(*handle)?;
            self.to_abort.pop_front();
        }
        self.ports.issue(calls)?;
        for _ in 0..self.dirty.len() {
            if calls.room() < CALLS_EACH {
                return Err(Full);
            }
            let Some(slot) = self.dirty.pop_front() else { break };
            let (cookie, now, before) = (self.table.cookie(slot), self.now, self.readiness(slot));
            let segment_bytes = self.config.segment_bytes;
            let Some(socket) = self.table.get_mut(slot) else { continue };
            socket.is_dirty = false;
            let (local, is_abandoned) = (self.config.name_of(socket.local), socket.is_abandoned);
            let issued = match &mut socket.kind {
                Kind::Stream(stream) => {
                    let rules = (&socket.options, segment_bytes, now);
                    let issued = stream.issue((cookie, local, is_abandoned), rules, calls);
                    let next = stream.next_timer(is_abandoned, now);
                    if let Some(at) = core::mem::replace(&mut stream.timer, next) {
                        self.timers.remove(&(at, slot));
                    }
                    self.timers.extend(next.map(|at| (at, slot)));
                    issued
                }
                Kind::Datagrams(datagrams) => datagrams.issue(calls).map(|()| is_abandoned),
                Kind::Epoll(_) => Ok(false),
            };
            match issued {
                Ok(true) => self.release(slot),
                Ok(false) => self.notify(slot, before),
                Err(Full) => {
                    self.touch(slot);
                    self.notify(slot, before);
                }
            }
        }
        Ok(())
    }
}
