//! The sockets as a service: events change them, and what they have to ask is asked.

use alloc::boxed::Box;

use clock::Instant;
use domain::{
    CallError, CallKind, Calls, ConnectError, ConnectionInfo, Cookie, DeadReason, Event, Events,
    Full, Handle, Service, Transport,
};
use wire::Endpoint;

use crate::errno::Errno;
use crate::socket_calls::CONNECT_TRIES;
use crate::sockets::{Kind, Socket, Sockets};
use crate::stream::{Asked, Knocking, Leaving, Phase, PortState, Stream};

/// Calls of one socket in one go at most: its sends, and one of each other kind.
const CALLS_EACH: usize = 8;

impl Service for Sockets {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        self.set_now(now);
        for event in events.iter() {
            self.hear(event);
        }
        while let Some((_, slot)) = self.timers.first().filter(|(at, _)| *at <= now).copied() {
            self.timers.pop_first();
            self.touch(slot);
        }
        // What finds no room is asked in the next batch.
        let _ = self.ask(calls);
    }

    fn wake_at(&self) -> Option<Instant> {
        match self.dirty.is_empty() && self.closing_ports.is_empty() {
            true => self.timers.first().map(|(at, _)| *at),
            false => Some(Instant::ZERO),
        }
    }
}

impl Sockets {
    fn stream_of(&mut self, cookie: Cookie) -> Option<(u32, &mut Socket)> {
        let slot = self.table.of_cookie(cookie)?;
        let socket = self.table.get_mut(slot)?;
        matches!(socket.kind, Kind::Stream(_)).then_some((slot, socket))
    }

    fn hear(&mut self, event: Event<'_>) {
        match event {
            Event::Knock { handle, local_port, peer, window } => {
                self.knock(Knocking { handle, peer, window, ended: None }, local_port);
            }
            Event::Connected { cookie, outcome } => self.connected(cookie, outcome),
            Event::Recv { cookie, data, acked, window, .. } => {
                self.with(cookie, |stream| {
                    // What comes after `close` or `shutdown` is given back unread.
                    match stream.reads_no_more || stream.leaving != Leaving::Stays {
                        true => stream.read += data.len(),
                        false => stream.received.extend(data),
                    }
                    stream.acknowledged(acked, window);
                });
            }
            Event::Sent { cookie, bytes, window, .. } => {
                self.with(cookie, |stream| stream.acknowledged(bytes, window));
            }
            Event::Again { cookie, window, .. } => {
                self.with(cookie, |stream| stream.acknowledged(0, window));
            }
            Event::Eof { cookie, .. } => self.with(cookie, |stream| stream.eof = true),
            Event::Info { cookie, info, .. } => self.with(cookie, |stream| {
                stream.asked = Asked::Answered(ConnectionInfo::of_bytes(info).map(Box::new));
            }),
            Event::Dead { handle, cookie, reason } => self.dead(handle, cookie, reason),
            Event::Datagram { local_port, peer, data } => self.datagram(local_port, peer, data),
            Event::Listening { cookie } => self.port_answered(cookie, None),
            Event::Failed { call, handle, cookie, error } => {
                self.failed(call, (handle, cookie), error);
            }
        }
    }

    /// Changes a connection's socket.
    fn with(&mut self, cookie: Cookie, change: impl FnOnce(&mut Stream)) {
        if let Some((slot, Socket { kind: Kind::Stream(stream), .. })) = self.stream_of(cookie) {
            change(stream);
            self.touch(slot);
            self.notify(slot);
        }
    }

    /// A peer opened a connection: to one of the sockets that listen on the port, by the connection's name.
    fn knock(&mut self, knocking: Knocking, local_port: u16) {
        let is_listening = |socket: &Socket| {
            socket.local_port() == Some(local_port)
                && matches!(&socket.kind, Kind::Stream(stream)
                    if matches!(stream.phase, Phase::Listening(_)))
        };
        let listeners =
            || self.table.iter().filter(|(_, socket)| is_listening(socket)).map(|(slot, _)| slot);
        let count = listeners().count().max(1);
        // Flows have groups and slots in no order that a peer chooses.
        let turn = knocking.handle.to_bits().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        // Of a port that is being closed the dataplane resets it.
        let Some(slot) = listeners().nth(turn as usize % count) else { return };
        self.handles.insert(knocking.handle.to_bits(), slot);
        if let Some(Socket { kind: Kind::Stream(stream), .. }) = self.table.get_mut(slot)
            && let Phase::Listening(listener) = &mut stream.phase
        {
            listener.queue.push_back(knocking);
        }
        self.notify(slot);
    }

    fn connected(&mut self, cookie: Cookie, outcome: Result<(Handle, u32), ConnectError>) {
        let port = match outcome {
            Err(ConnectError::NoPort) => self.free_port(Transport::Tcp).ok(),
            _ => None,
        };
        let Some((slot, socket)) = self.stream_of(cookie) else { return };
        let (is_bound, local) = (socket.is_bound, socket.local);
        let Kind::Stream(stream) = &mut socket.kind else { return };
        match outcome {
            Ok((handle, window)) => {
                (stream.phase, stream.is_news) = (Phase::Open, true);
                (stream.handle, stream.window) = (Some(handle), window);
                self.handles.insert(handle.to_bits(), slot);
            }
            Err(ConnectError::NoPort)
                if !is_bound && socket.tries < CONNECT_TRIES && port.is_some() =>
            {
                socket.tries += 1;
                socket.local = local.zip(port).map(|(local, port)| Endpoint::new(local.addr, port));
                stream.begins = true;
            }
            Err(error) => {
                stream.phase = Phase::Fresh;
                socket.error = Some(match error {
                    ConnectError::Refused => Errno::ECONNREFUSED,
                    ConnectError::TimedOut => Errno::ETIMEDOUT,
                    ConnectError::Unreachable => Errno::EHOSTUNREACH,
                    ConnectError::NoPort => Errno::EADDRNOTAVAIL,
                    ConnectError::NoMemory => Errno::ENOBUFS,
                    ConnectError::Forbidden => Errno::EACCES,
                });
            }
        }
        self.touch(slot);
        self.notify(slot);
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
            _ => {
                stream.is_dead = true;
                stream.in_flight = 0;
                stream.unsent.clear();
                *error = why;
            }
        }
        self.touch(slot);
        self.notify(slot);
    }

    fn datagram(&mut self, local_port: u16, peer: Endpoint, data: &[u8]) {
        // Of several that share the port the one that is connected to the peer, or the last.
        let mut best: Option<(bool, u32)> = None;
        for (slot, socket) in self.table.iter() {
            if let Kind::Datagrams(datagrams) = &socket.kind
                && socket.local_port() == Some(local_port)
                && datagrams.peer.is_none_or(|only| only == peer)
            {
                best = best.max(Some((datagrams.peer.is_some(), slot)));
            }
        }
        let Some((_, slot)) = best else { return };
        if let Some(Socket { kind: Kind::Datagrams(datagrams), options, .. }) =
            self.table.get_mut(slot)
        {
            // An empty one takes some memory, too.
            let held = datagrams.received_bytes + 64 * datagrams.received.len() + data.len();
            if datagrams.reads_no_more || held > options.receive_bytes as usize {
                return;
            }
            datagrams.received_bytes += data.len();
            datagrams.received.push_back((peer, data.into()));
        }
        self.notify(slot);
    }

    /// The dataplane answered that a port is open, or why it is not.
    fn port_answered(&mut self, cookie: Cookie, why: Option<Errno>) {
        let Some(slot) = self.table.of_cookie(cookie) else { return };
        let Some(socket) = self.table.get_mut(slot) else { return };
        if why.is_some() {
            socket.error = why;
            (socket.local, socket.is_bound) = (None, false);
        }
        match &mut socket.kind {
            Kind::Stream(stream) => match (&mut stream.phase, why) {
                (Phase::Listening(listener), None) => listener.port = PortState::Open,
                (phase, _) => *phase = Phase::Fresh,
            },
            Kind::Datagrams(datagrams) => {
                datagrams.port = why.is_none().then_some(PortState::Open);
                datagrams.is_news &= why.is_none();
            }
            Kind::Epoll(_) => {}
        }
        self.notify(slot);
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
            CallKind::Inform => self.with(cookie, |stream| stream.asked = Asked::Answered(None)),
            // A hole in the stream cannot be mended.
            CallKind::Sendv => {
                if let Some((slot, socket)) = self.stream_of(cookie) {
                    socket.error = Some(Errno::ENOBUFS);
                    if let Kind::Stream(stream) = &mut socket.kind {
                        stream.leaving = Leaving::Aborts;
                    }
                    self.touch(slot);
                }
            }
            // The others fail only where the connection is gone, which an event of its own says, and datagrams may be lost.
            _ => {}
        }
    }

    /// Issues the calls that are due, of each socket in turn, as far as the batch has room.
    fn ask(&mut self, calls: &mut Calls<'_>) -> Result<(), Full> {
        while let Some((transport, port)) = self.closing_ports.front().copied() {
            calls.unlisten(Cookie(0), transport, port)?;
            self.closing_ports.pop_front();
        }
        for _ in 0..self.dirty.len() {
            if calls.room() < CALLS_EACH {
                return Err(Full);
            }
            let Some(slot) = self.dirty.pop_front() else { break };
            let (cookie, now) = (self.table.cookie(slot), self.now);
            let segment_bytes = self.config.segment_bytes;
            let Some(socket) = self.table.get_mut(slot) else { continue };
            socket.is_dirty = false;
            let port = socket.local_port();
            let options = &socket.options;
            let issued = match &mut socket.kind {
                Kind::Stream(stream) => {
                    stream.issue((cookie, port), (options, segment_bytes, now), calls)
                }
                Kind::Datagrams(datagrams) => {
                    datagrams.issue(cookie, port.unwrap_or(0), calls).map(|()| false)
                }
                Kind::Epoll(_) => Ok(false),
            };
            match issued {
                Ok(true) if socket_is_abandoned(socket) => self.release(slot),
                Ok(_) => self.notify(slot),
                Err(Full) => self.touch(slot),
            }
        }
        Ok(())
    }
}

/// Whether nothing but its connection keeps a socket.
fn socket_is_abandoned(socket: &mut Socket) -> bool {
    let Kind::Stream(stream) = &mut socket.kind else { return false };
    // One whose stream broke has its descriptor still, and has ended.
    stream.is_dead |= stream.leaving == Leaving::Aborts;
    socket.is_abandoned
}

impl Stream {
    /// The peer acknowledged so many bytes, and has so much room.
    fn acknowledged(&mut self, bytes: u32, window: u32) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.window = window;
    }
}
