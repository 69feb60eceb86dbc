//! All sockets of an application on one elastic thread.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use clock::Instant;
use domain::Transport;
use wire::{Address, Endpoint};

use crate::datagram::Datagrams;
use crate::epoll::EpollSet;
use crate::errno::Errno;
use crate::options::Options;
use crate::readiness;
use crate::stream::{Leaving, Phase, PortState, Stream};
use crate::table::Table;

/// What the sockets are told of the dataplane that they run over, and their bounds.
#[derive(Clone, Debug)]
pub struct SocketsConfig {
    /// The dataplane's own addresses.
    pub addresses: Vec<Address>,
    /// Descriptors at most; as many connections may be ending that have none any more.
    pub descriptors: usize,
    /// Ports from which one is chosen where the application names none.
    pub ephemeral: RangeInclusive<u16>,
    /// Payload bytes of a full segment, by which Nagle's algorithm goes.
    pub segment_bytes: usize,
    /// Payload bytes of a datagram at most.
    pub datagram_bytes: usize,
    /// The receive window of each connection in bytes, which is what `SO_RCVBUF` of a TCP socket says.
    pub receive_window_bytes: u32,
    /// Whether silent peers are asked for a sign of life.
    pub keepalive: bool,
}

impl SocketsConfig {
    /// The usual bounds, for a dataplane with these addresses.
    pub fn new(addresses: Vec<Address>) -> Self {
        Self {
            addresses,
            descriptors: 1024,
            ephemeral: 32_768..=60_999,
            segment_bytes: 1448,
            datagram_bytes: 1472,
            receive_window_bytes: 256 << 10,
            keepalive: false,
        }
    }
}

/// For what a call waits. Ask again when the sockets have had a batch, or at `until`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wait {
    /// When the call answers though nothing came.
    pub until: Option<Instant>,
    /// Bytes that were taken: ask again with the rest.
    pub done: usize,
}

/// Why a call has no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It failed.
    Failed(Errno),
    /// It has to wait. Nothing here sleeps: who drives the sockets does, and asks again.
    Blocked(Wait),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

/// The result of a call.
pub type Answer<T> = Result<T, Stop>;

/// A call that waits until the socket changes.
pub(crate) const BLOCKED: Stop = Stop::Blocked(Wait { until: None, done: 0 });

#[derive(Debug)]
pub(crate) enum Kind {
    Stream(Stream),
    Datagrams(Datagrams),
    Epoll(EpollSet),
}

/// One socket, or one epoll set.
#[derive(Debug)]
pub(crate) struct Socket {
    pub kind: Kind,
    pub is_v4: bool,
    pub options: Options,
    pub is_nonblocking: bool,
    /// The error that the next call reports (`SO_ERROR`).
    pub error: Option<Errno>,
    /// Where it is bound; port 0: to an address alone.
    pub local: Option<Endpoint>,
    /// Whether the application chose the port.
    pub is_bound: bool,
    /// Attempts to connect from ports that were not free.
    pub tries: u8,
    /// Epoll sets that watch it.
    pub watchers: Vec<u32>,
    pub is_dirty: bool,
    /// It has no descriptor any more.
    pub is_abandoned: bool,
}

impl Socket {
    pub fn new(kind: Kind, is_v4: bool) -> Self {
        Self {
            kind,
            is_v4,
            options: Options::new(),
            is_nonblocking: false,
            error: None,
            local: None,
            is_bound: false,
            tries: 0,
            watchers: Vec::new(),
            is_dirty: false,
            is_abandoned: false,
        }
    }

    /// Whether its port is that of others, and it is no epoll set.
    pub fn transport(&self) -> Option<Transport> {
        match self.kind {
            Kind::Stream(_) => Some(Transport::Tcp),
            Kind::Datagrams(_) => Some(Transport::Udp),
            Kind::Epoll(_) => None,
        }
    }

    pub fn local_port(&self) -> Option<u16> {
        self.local.map(|local| local.port).filter(|port| *port > 0)
    }

    /// # Errors
    /// `ENOTSOCK` of an epoll set; the socket's own error of one that is no TCP socket.
    pub fn stream(&mut self, otherwise: Errno) -> Result<&mut Stream, Errno> {
        match &mut self.kind {
            Kind::Stream(stream) => Ok(stream),
            Kind::Datagrams(_) => Err(otherwise),
            Kind::Epoll(_) => Err(Errno::ENOTSOCK),
        }
    }
}

/// See the module's comment.
pub struct Sockets {
    pub(crate) config: SocketsConfig,
    pub(crate) table: Table<Socket>,
    /// Sockets for which calls are due, each once.
    pub(crate) dirty: VecDeque<u32>,
    /// Sockets by the handles of their connections; a listening one by those of what it has not accepted.
    pub(crate) handles: BTreeMap<u64, u32>,
    /// Ports that are to be closed.
    pub(crate) closing_ports: VecDeque<(Transport, u16)>,
    /// When short segments stop waiting for more to come.
    pub(crate) timers: BTreeSet<(Instant, u32)>,
    pub(crate) now: Instant,
    last_port: u16,
}

impl Sockets {
    /// No sockets.
    pub fn new(config: SocketsConfig) -> Self {
        Self {
            table: Table::new(config.descriptors),
            dirty: VecDeque::new(),
            handles: BTreeMap::new(),
            closing_ports: VecDeque::new(),
            timers: BTreeSet::new(),
            now: Instant::ZERO,
            last_port: *config.ephemeral.end(),
            config,
        }
    }

    /// The calls that follow are made at this moment.
    pub fn set_now(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// The moment at which calls are made.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// A descriptor's slot and socket.
    pub(crate) fn find(&mut self, descriptor: i32) -> Result<(u32, &mut Socket), Errno> {
        let slot = self.table.at(descriptor)?;
        self.table.get_mut(slot).map(|socket| (slot, socket)).ok_or(Errno::EBADF)
    }

    /// Calls are due for a socket.
    pub(crate) fn touch(&mut self, slot: u32) {
        if let Some(socket) = self.table.get_mut(slot)
            && !core::mem::replace(&mut socket.is_dirty, true)
        {
            self.dirty.push_back(slot);
        }
    }

    /// A socket's state changed: epoll sets that watch it look at it.
    pub(crate) fn notify(&mut self, slot: u32) {
        let mut woken = false;
        let mut at = 0;
        while let Some(watcher) = self.table.get(slot).and_then(|socket| socket.watchers.get(at)) {
            let watcher = *watcher;
            at += 1;
            if let Some(Socket { kind: Kind::Epoll(set), .. }) = self.table.get_mut(watcher) {
                let is_exclusive = set.is_exclusive(slot);
                if !(is_exclusive && woken) {
                    set.note(slot);
                    woken |= is_exclusive;
                }
            }
        }
    }

    /// What a socket is ready for.
    pub(crate) fn readiness(&self, slot: u32) -> u32 {
        let Some(Socket { kind, options, error, .. }) = self.table.get(slot) else { return 0 };
        match kind {
            Kind::Stream(stream) => readiness::of_stream(stream, options, error.is_some()),
            Kind::Datagrams(datagrams) => {
                readiness::of_datagrams(datagrams, options, error.is_some())
            }
            Kind::Epoll(set) => match set.is_ready(|slot| self.readiness(slot)) {
                true => readiness::events::IN | readiness::events::RDNORM,
                false => 0,
            },
        }
    }

    /// A port that no socket of the transport has, of those to choose from.
    pub(crate) fn free_port(&mut self, transport: Transport) -> Result<u16, Errno> {
        let (first, last) = (*self.config.ephemeral.start(), *self.config.ephemeral.end());
        for _ in first..=last {
            self.last_port = if self.last_port >= last { first } else { self.last_port + 1 };
            let port = self.last_port;
            let is_taken = |socket: &Socket| {
                socket.transport() == Some(transport) && socket.local_port() == Some(port)
            };
            if !self.table.iter().any(|(_, socket)| is_taken(socket)) {
                return Ok(port);
            }
        }
        Err(Errno::EADDRNOTAVAIL)
    }

    /// A socket that has a port of a transport open, other than `except`.
    pub(crate) fn opener(&self, transport: Transport, port: u16, except: u32) -> Option<u32> {
        let is_one = |socket: &Socket| {
            socket.transport() == Some(transport)
                && socket.local_port() == Some(port)
                && match &socket.kind {
                    Kind::Stream(stream) => matches!(stream.phase, Phase::Listening(_)),
                    Kind::Datagrams(datagrams) => datagrams.port.is_some(),
                    Kind::Epoll(_) => false,
                }
        };
        let mut all = self.table.iter();
        all.find(|(slot, socket)| *slot != except && is_one(socket)).map(|(slot, _)| slot)
    }

    /// A socket gives its port up: another one that shares it goes on with it, or it is closed.
    pub(crate) fn give_up_port(&mut self, slot: u32) {
        let Some(socket) = self.table.get_mut(slot) else { return };
        let (transport, port) = (socket.transport(), socket.local_port());
        let (Some(transport), Some(port)) = (transport, port) else { return };
        let state = match &mut socket.kind {
            Kind::Stream(Stream { phase: phase @ Phase::Listening(_), .. }) => {
                let Phase::Listening(listener) = core::mem::replace(phase, Phase::Fresh) else {
                    return;
                };
                for knocking in &listener.queue {
                    self.handles.remove(&knocking.handle.to_bits());
                }
                listener.port
            }
            Kind::Datagrams(Datagrams { port: port @ Some(_), .. }) => {
                port.take().unwrap_or(PortState::Shared)
            }
            _ => return,
        };
        if !matches!(state, PortState::Asked | PortState::Open) {
            return;
        }
        let heir = self.opener(transport, port, slot);
        match heir.and_then(|heir| self.table.get_mut(heir)).map(|socket| &mut socket.kind) {
            Some(Kind::Stream(Stream { phase: Phase::Listening(listener), .. })) => {
                listener.port = state;
            }
            Some(Kind::Datagrams(datagrams)) => datagrams.port = Some(state),
            _ => self.closing_ports.push_back((transport, port)),
        }
    }

    /// A socket is no more, and what named it.
    pub(crate) fn release(&mut self, slot: u32) {
        self.give_up_port(slot);
        let Some(socket) = self.table.remove(slot) else { return };
        if let Kind::Stream(Stream { handle: Some(handle), .. }) = &socket.kind {
            self.handles.remove(&handle.to_bits());
        }
        for watcher in socket.watchers {
            if let Some(Socket { kind: Kind::Epoll(set), .. }) = self.table.get_mut(watcher) {
                set.forget(slot);
            }
        }
        if let Kind::Epoll(set) = socket.kind {
            for watched in set.items.keys() {
                if let Some(socket) = self.table.get_mut(*watched) {
                    socket.watchers.retain(|watcher| *watcher != slot);
                }
            }
        }
    }

    /// A descriptor is closed; its socket stays for as long as its connection takes to end.
    pub(crate) fn abandon(&mut self, descriptor: i32, slot: u32, leaving: Leaving) {
        self.table.close(descriptor);
        let has_room = self.table.has_room_for_orphan();
        let Some(socket) = self.table.get_mut(slot) else { return };
        socket.is_abandoned = true;
        let watchers = core::mem::take(&mut socket.watchers);
        let Kind::Stream(stream) = &mut socket.kind else { return };
        stream.leaving = if has_room { leaving } else { Leaving::Aborts };
        for watcher in watchers {
            if let Some(Socket { kind: Kind::Epoll(set), .. }) = self.table.get_mut(watcher) {
                set.forget(slot);
            }
        }
        self.touch(slot);
    }
}

impl core::fmt::Debug for Sockets {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sockets").field("config", &self.config).finish_non_exhaustive()
    }
}
