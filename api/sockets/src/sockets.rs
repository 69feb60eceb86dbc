//! All sockets of an application on one elastic thread.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use clock::{Duration, Instant};
use domain::{Cookie, Handle, LocalEndpoint, Transport};
use wire::{Address, Endpoint};

use crate::datagram::Datagrams;
use crate::epoll::EpollSet;
use crate::errno::Errno;
use crate::local::unspecified;
use crate::options::Options;
use crate::ports::{Ports, port_name};
use crate::readiness;
use crate::stream::{Phase, Sending, Stream};
use crate::table::Table;

/// For how long an orphan, a connection without a descriptor, may have bytes to send before it is reset: as long as the
/// stack gives a closed connection by default.
const ORPHANED_FOR: Duration = Duration::from_secs(100);

/// The dataplane that the sockets run over, and their bounds.
#[derive(Clone, Debug)]
pub struct SocketsConfig {
    /// The dataplane's own addresses, in the order of its configuration.
    pub addresses: Vec<Address>,
    /// Ports that the dataplane opens by itself. The sockets close them in their first batch, and open them again as one
    /// listens there: as on Linux nothing answers before.
    pub configured_ports: Vec<(Transport, u16)>,
    /// Descriptors at most; as many connections may be ending that have none any more.
    pub descriptors: usize,
    /// Ports from which one is chosen where the application names none. For a connection that it opens the dataplane
    /// chooses one.
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
            configured_ports: Vec::new(),
            descriptors: 1024,
            ephemeral: 32_768..=60_999,
            segment_bytes: 1448,
            datagram_bytes: 1472,
            receive_window_bytes: 256 << 10,
            keepalive: false,
        }
    }

    /// How the dataplane names a socket's local end.
    pub(crate) fn name_of(&self, local: Option<Endpoint>) -> LocalEndpoint {
        local.map_or(LocalEndpoint::UNSPECIFIED, |local| {
            LocalEndpoint::among(self.addresses.iter().copied(), local)
        })
    }

    /// The local end that the dataplane names, of a version.
    pub(crate) fn end_of(&self, local: LocalEndpoint, is_v4: bool) -> Endpoint {
        let own = local.position().and_then(|position| self.addresses.get(position).copied());
        Endpoint::new(own.unwrap_or(unspecified(is_v4)), local.port())
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
            watchers: Vec::new(),
            is_dirty: false,
            is_abandoned: false,
        }
    }

    /// The transport; `None` of an epoll set.
    pub fn transport(&self) -> Option<Transport> {
        match self.kind {
            Kind::Stream(_) => Some(Transport::Tcp),
            Kind::Datagrams(_) => Some(Transport::Udp),
            Kind::Epoll(_) => None,
        }
    }

    /// The name of its local port.
    pub fn port_name(&self) -> Option<Cookie> {
        Some(port_name(self.transport()?, self.local_port()?))
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
    /// Local ports.
    pub(crate) ports: Ports,
    /// Connections that are to be reset. A batch issues them before all else.
    pub(crate) to_abort: VecDeque<Handle>,
    /// When connections have something to do by themselves: one entry each at most, [`Stream::timer`].
    pub(crate) timers: BTreeSet<(Instant, u32)>,
    pub(crate) now: Instant,
}

impl Sockets {
    /// No sockets.
    pub fn new(config: SocketsConfig) -> Self {
        Self {
            table: Table::new(config.descriptors),
            dirty: VecDeque::new(),
            handles: BTreeMap::new(),
            ports: Ports::new(&config.configured_ports),
            to_abort: VecDeque::new(),
            timers: BTreeSet::new(),
            now: Instant::ZERO,
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

    /// A socket's state changed, which was ready for `before`: epoll sets that watch for what it has become ready for look
    /// at it. A caller takes out of `before` what is to be reported again.
    pub(crate) fn notify(&mut self, slot: u32, before: u32) {
        let rose = self.readiness(slot) & !before;
        let mut woken = false;
        let mut at = 0;
        while let Some(watcher) = self.table.get(slot).and_then(|socket| socket.watchers.get(at)) {
            let watcher = *watcher;
            at += 1;
            if let Some(Socket { kind: Kind::Epoll(set), .. }) = self.table.get_mut(watcher)
                && set.wants(slot, rose)
            {
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
        self.ports.free(transport, &self.config.ephemeral)
    }

    /// Gives a socket its local end.
    pub(crate) fn set_local(&mut self, slot: u32, local: Option<Endpoint>) {
        self.stop_receiving(slot, true);
        let Some(socket) = self.table.get_mut(slot) else { return };
        socket.local = local;
        if let Some(name) = socket.port_name() {
            self.ports.hold(name, slot);
        }
    }

    /// A socket receives on its port no more: what it has not accepted is reset, as on Linux. `leaves`: others may have the
    /// port.
    pub(crate) fn stop_receiving(&mut self, slot: u32, leaves: bool) {
        let Some(socket) = self.table.get_mut(slot) else { return };
        if let Kind::Stream(Stream { phase, .. }) = &mut socket.kind
            && let Phase::Listening(listener) = phase
        {
            for knocking in listener.queue.drain(..) {
                self.handles.remove(&knocking.handle.to_bits());
                if knocking.ended.is_none() {
                    self.to_abort.push_back(knocking.handle);
                }
            }
            *phase = Phase::Fresh;
        }
        if let Some(name) = socket.port_name() {
            self.ports.stop(name, slot, leaves);
        }
    }

    /// A socket is no more, and what named it.
    pub(crate) fn release(&mut self, slot: u32) {
        self.stop_receiving(slot, true);
        self.forget_watchers(slot);
        let Some(socket) = self.table.remove(slot) else { return };
        match socket.kind {
            Kind::Stream(stream) => {
                if let Some(handle) = stream.handle {
                    self.handles.remove(&handle.to_bits());
                }
                if let Some(at) = stream.timer {
                    self.timers.remove(&(at, slot));
                }
            }
            Kind::Datagrams(_) => {}
            Kind::Epoll(set) => {
                for watched in set.items.keys() {
                    if let Some(socket) = self.table.get_mut(*watched) {
                        socket.watchers.retain(|watcher| *watcher != slot);
                    }
                }
            }
        }
    }

    /// Epoll sets that watch a socket do so no more.
    fn forget_watchers(&mut self, slot: u32) {
        let watchers = self.table.get_mut(slot).map(|socket| core::mem::take(&mut socket.watchers));
        for watcher in watchers.into_iter().flatten() {
            if let Some(Socket { kind: Kind::Epoll(set), .. }) = self.table.get_mut(watcher) {
                set.forget(slot);
            }
        }
    }

    /// A connection is reset as soon as a batch has room for the call.
    pub(crate) fn reset(&mut self, slot: u32) {
        if let Some(Socket { kind: Kind::Stream(stream), .. }) = self.table.get_mut(slot)
            && stream.is_connected()
        {
            stream.end();
            self.to_abort.extend(stream.handle);
        }
    }

    /// A socket without a descriptor stays until what it has to send is sent.
    pub(crate) fn abandon(&mut self, slot: u32) {
        self.forget_watchers(slot);
        let close_by = self.now + ORPHANED_FOR;
        let Some(socket) = self.table.get_mut(slot) else { return };
        socket.is_abandoned = true;
        match &mut socket.kind {
            Kind::Stream(stream) => {
                (stream.reads_no_more, stream.close_by) = (true, Some(close_by));
                if stream.sending == Sending::Open {
                    stream.sending = Sending::Ending;
                }
            }
            _ => self.stop_receiving(slot, true),
        }
        self.touch(slot);
    }
}

impl core::fmt::Debug for Sockets {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sockets").field("config", &self.config).finish_non_exhaustive()
    }
}
