//! `socket`, `bind`, `listen`, `accept`, `connect`, `shutdown`, `close`, and what a socket's ends are.

use alloc::collections::VecDeque;

use clock::Duration;
use domain::Transport;
use wire::Endpoint;

use crate::datagram::Datagrams;
use crate::errno::Errno;
use crate::local::{is_unspecified, overlap, unspecified};
use crate::ports::{PortState, port_name};
use crate::sockets::{Answer, BLOCKED, Kind, Socket, Sockets, Stop, Wait};
use crate::stream::{Listener, Phase, Sending, Stream};

/// Linux's address families, types of sockets and flags of them.
pub mod socket_type {
    /// IPv4.
    pub const AF_INET: i32 = 2;
    /// IPv6.
    pub const AF_INET6: i32 = 10;
    /// TCP.
    pub const SOCK_STREAM: i32 = 1;
    /// UDP.
    pub const SOCK_DGRAM: i32 = 2;
    /// The descriptor does not block.
    pub const SOCK_NONBLOCK: i32 = 0o4000;
    /// Accepted without effect: no program is executed here.
    pub const SOCK_CLOEXEC: i32 = 0o2000000;
    /// The protocol of TCP.
    pub const IPPROTO_TCP: i32 = 6;
    /// The protocol of UDP.
    pub const IPPROTO_UDP: i32 = 17;
}
use socket_type::*;

/// `SHUT_RD`: nothing is read any more.
pub const SHUT_RD: i32 = 0;
/// `SHUT_WR`: nothing is written any more.
pub const SHUT_WR: i32 = 1;
/// `SHUT_RDWR`: both.
pub const SHUT_RDWR: i32 = 2;

impl Sockets {
    /// `socket`.
    ///
    /// # Errors
    /// `EAFNOSUPPORT`, `ESOCKTNOSUPPORT`, `EPROTONOSUPPORT`, `EMFILE`.
    pub fn socket(&mut self, family: i32, kind: i32, protocol: i32) -> Answer<i32> {
        if family != AF_INET && family != AF_INET6 {
            return Err(Errno::EAFNOSUPPORT.into());
        }
        let (new, own) = match kind & 0xf {
            SOCK_STREAM => (Kind::Stream(Stream::new(Phase::Fresh)), IPPROTO_TCP),
            SOCK_DGRAM => (Kind::Datagrams(Datagrams::default()), IPPROTO_UDP),
            _ => return Err(Errno::ESOCKTNOSUPPORT.into()),
        };
        if kind & !(0xf | SOCK_NONBLOCK | SOCK_CLOEXEC) != 0 {
            return Err(Errno::EINVAL.into());
        }
        if protocol != 0 && protocol != own {
            return Err(Errno::EPROTONOSUPPORT.into());
        }
        let mut socket = Socket::new(new, family == AF_INET);
        socket.is_nonblocking = kind & SOCK_NONBLOCK != 0;
        Ok(self.table.open(socket)?.0)
    }

    /// `bind`. A UDP port is asked of the dataplane, for whose answer a socket that does not block waits too.
    ///
    /// # Errors
    /// `EINVAL` where it is bound, `EADDRNOTAVAIL`, `EADDRINUSE`, `EAFNOSUPPORT`, `EACCES`.
    pub fn bind(&mut self, descriptor: i32, local: Endpoint) -> Answer<()> {
        let (slot, socket) = self.find(descriptor)?;
        let transport = socket.transport().ok_or(Errno::ENOTSOCK)?;
        if let Kind::Datagrams(Datagrams { bind_unreported: true, .. }) = socket.kind
            && self.is_port_asked(slot)
        {
            return Err(BLOCKED);
        }
        let (_, socket) = self.find(descriptor)?;
        if let Some(error) = socket.error.take() {
            return Err(error.into());
        }
        if let Kind::Datagrams(datagrams) = &mut socket.kind
            && core::mem::take(&mut datagrams.bind_unreported)
        {
            return Ok(());
        }
        if local.addr.is_ipv4() != socket.is_v4 {
            return Err(Errno::EAFNOSUPPORT.into());
        }
        if socket.is_bound || socket.local.is_some() {
            return Err(Errno::EINVAL.into());
        }
        if !is_unspecified(local.addr) && !self.config.addresses.contains(&local.addr) {
            return Err(Errno::EADDRNOTAVAIL.into());
        }
        let port = match local.port {
            0 => self.free_port(transport)?,
            port => port,
        };
        let chosen = Endpoint::new(local.addr, port);
        if self.conflicts(slot, transport, chosen) {
            return Err(Errno::EADDRINUSE.into());
        }
        self.set_local(slot, Some(chosen));
        let (_, socket) = self.find(descriptor)?;
        socket.is_bound = true;
        let Kind::Datagrams(datagrams) = &mut socket.kind else { return Ok(()) };
        datagrams.bind_unreported = true;
        self.receive_on_port(slot, 1);
        self.bind(descriptor, local)
    }

    /// Whether the dataplane has not answered yet whether a socket's port is open.
    fn is_port_asked(&self, slot: u32) -> bool {
        let name = self.table.get(slot).and_then(Socket::port_name);
        let port = name.and_then(|name| self.ports.get(name));
        port.is_some_and(|port| port.state == PortState::Asked)
    }

    /// A socket receives on its port from now on.
    fn receive_on_port(&mut self, slot: u32, backlog: u16) {
        if let Some(name) = self.table.get(slot).and_then(Socket::port_name) {
            self.ports.receive(name, slot, backlog);
        }
    }

    /// Whether a socket's local address has packets in common with this end's.
    fn overlaps(socket: &Socket, end: Endpoint) -> bool {
        socket.local.is_some_and(|local| overlap(local.addr, end.addr))
    }

    /// Whether another socket stands against binding to an end: Linux's rule for `SO_REUSEADDR` and `SO_REUSEPORT`.
    fn conflicts(&self, slot: u32, transport: Transport, local: Endpoint) -> bool {
        let Some(own) = self.table.get(slot).map(|socket| socket.options) else { return false };
        let port = self.ports.get(port_name(transport, local.port));
        let holders = port.into_iter().flat_map(|port| &port.holders);
        let others = holders.filter_map(|other| self.table.get(*other));
        others.filter(|other| Self::overlaps(other, local)).any(|other| {
            let is_listening =
                matches!(&other.kind, Kind::Stream(Stream { phase: Phase::Listening(_), .. }));
            let reuses = own.reuse_address && other.options.reuse_address && !is_listening;
            !(reuses || own.reuse_port && other.options.reuse_port)
        })
    }

    /// `listen`. The port is asked of the dataplane, for whose answer a socket that does not block waits too. The backlog of
    /// a socket that listens cannot be changed (`EOPNOTSUPP`).
    ///
    /// # Errors
    /// `EADDRINUSE`, `EACCES`, `EINVAL`, `EOPNOTSUPP`.
    pub fn listen(&mut self, descriptor: i32, backlog: i32) -> Answer<()> {
        // As Linux does: a negative one is the largest.
        let backlog = u16::try_from(backlog).unwrap_or(4_096).clamp(1, 4_096);
        let (slot, socket) = self.find(descriptor)?;
        match &socket.stream(Errno::EOPNOTSUPP)?.phase {
            Phase::Listening(listener) => {
                let is_same = listener.backlog == backlog;
                return match self.is_port_asked(slot) {
                    true => Err(BLOCKED),
                    false if is_same => Ok(()),
                    false => Err(Errno::EOPNOTSUPP.into()),
                };
            }
            Phase::Fresh => {}
            Phase::Connecting | Phase::Open => return Err(Errno::EINVAL.into()),
        }
        if let Some(error) = socket.error.take() {
            return Err(error.into());
        }
        let (is_v4, reuses_port) = (socket.is_v4, socket.options.reuse_port);
        let local = match socket.local.filter(|local| local.port > 0) {
            Some(local) => local,
            None => {
                let port = self.free_port(Transport::Tcp)?;
                let local = Endpoint::new(unspecified(is_v4), port);
                self.set_local(slot, Some(local));
                local
            }
        };
        let receivers = self.ports.receivers(port_name(Transport::Tcp, local.port)).iter();
        let mut others = receivers.filter_map(|other| self.table.get(*other));
        let is_taken = |other: &Socket| !(reuses_port && other.options.reuse_port);
        if others.any(|other| Self::overlaps(other, local) && is_taken(other)) {
            return Err(Errno::EADDRINUSE.into());
        }
        let (_, socket) = self.find(descriptor)?;
        socket.is_bound = true;
        let listener = Listener { queue: VecDeque::new(), backlog };
        socket.stream(Errno::EOPNOTSUPP)?.phase = Phase::Listening(listener);
        self.receive_on_port(slot, backlog);
        if self.is_port_asked(slot) { Err(BLOCKED) } else { Ok(()) }
    }

    /// `accept4`: the new descriptor and the peer. The socket has the options of the one that listens, but does not inherit
    /// that it does not block.
    ///
    /// # Errors
    /// `EAGAIN`, `EINVAL` where it does not listen, `EMFILE`, with the connection left to be accepted.
    pub fn accept(&mut self, descriptor: i32, flags: i32) -> Answer<(i32, Endpoint)> {
        let (_, socket) = self.find(descriptor)?;
        let (is_nonblocking, options, is_v4) =
            (socket.is_nonblocking, socket.options, socket.is_v4);
        let Phase::Listening(listener) = &mut socket.stream(Errno::EOPNOTSUPP)?.phase else {
            return Err(Errno::EINVAL.into());
        };
        let Some(knocking) = listener.queue.front().copied() else {
            return Err(if is_nonblocking { Errno::EAGAIN.into() } else { BLOCKED });
        };
        let stream = Stream::accepted(knocking);
        let mut accepted = Socket::new(Kind::Stream(stream), is_v4);
        (accepted.options, accepted.error) = (options, knocking.ended);
        accepted.is_nonblocking = flags & SOCK_NONBLOCK != 0;
        let (number, slot) = self.table.open(accepted)?;
        self.set_local(slot, Some(self.config.end_of(knocking.local, is_v4)));
        let (_, socket) = self.find(descriptor)?;
        if let Phase::Listening(listener) = &mut socket.stream(Errno::EOPNOTSUPP)?.phase {
            listener.queue.pop_front();
        }
        if knocking.ended.is_none() {
            self.handles.insert(knocking.handle.to_bits(), slot);
            self.touch(slot);
        }
        Ok((number, knocking.peer))
    }

    /// `connect`, from the address and the port that the socket is bound to; the dataplane chooses what it is not bound to.
    /// For a UDP socket: datagrams go to this peer and come from it alone.
    ///
    /// # Errors
    /// Those of Linux: `EINPROGRESS`, `EALREADY`, `EISCONN`, `ECONNREFUSED`, `ETIMEDOUT`, `EHOSTUNREACH`,
    /// `EADDRNOTAVAIL`, `EACCES`, `ENOBUFS`, `EAFNOSUPPORT`.
    pub fn connect(&mut self, descriptor: i32, peer: Endpoint) -> Answer<()> {
        let (slot, socket) = self.find(descriptor)?;
        if peer.addr.is_ipv4() != socket.is_v4 {
            return Err(Errno::EAFNOSUPPORT.into());
        }
        let is_nonblocking = socket.is_nonblocking;
        if let Kind::Datagrams(_) = socket.kind {
            self.bind_datagrams(slot)?;
            if let Ok((_, Socket { kind: Kind::Datagrams(datagrams), .. })) = self.find(descriptor)
            {
                datagrams.peer = Some(peer);
            }
            return Ok(());
        }
        let stream = socket.stream(Errno::EOPNOTSUPP)?;
        match &stream.phase {
            Phase::Connecting if is_nonblocking => return Err(Errno::EALREADY.into()),
            Phase::Connecting => return Err(BLOCKED),
            Phase::Open if core::mem::take(&mut stream.connect_unreported) => return Ok(()),
            Phase::Open | Phase::Listening(_) => return Err(Errno::EISCONN.into()),
            Phase::Fresh => {}
        }
        if let Some(error) = socket.error.take() {
            return Err(error.into());
        }
        let stream = socket.stream(Errno::EOPNOTSUPP)?;
        *stream = Stream::new(Phase::Connecting);
        (stream.peer, stream.open_due) = (Some(peer), true);
        self.touch(slot);
        Err(if is_nonblocking { Errno::EINPROGRESS.into() } else { BLOCKED })
    }

    /// Opens a port for a UDP socket that has none.
    pub(crate) fn bind_datagrams(&mut self, slot: u32) -> Result<(), Errno> {
        let Some(socket) = self.table.get(slot) else { return Ok(()) };
        if socket.local_port().is_none() {
            let local = unspecified(socket.is_v4);
            let port = self.free_port(Transport::Udp)?;
            self.set_local(slot, Some(Endpoint::new(local, port)));
            self.receive_on_port(slot, 1);
        }
        Ok(())
    }

    /// `shutdown`. An attempt to connect is given up, and then reported as reset, as on Linux.
    ///
    /// # Errors
    /// `ENOTCONN`, `EINVAL`.
    pub fn shutdown(&mut self, descriptor: i32, how: i32) -> Answer<()> {
        let slot = self.table.at(descriptor)?;
        let before = self.readiness(slot);
        let (_, socket) = self.find(descriptor)?;
        let (reads, writes) = (how == SHUT_RD || how == SHUT_RDWR, how != SHUT_RD);
        if !(SHUT_RD..=SHUT_RDWR).contains(&how) {
            return Err(Errno::EINVAL.into());
        }
        match &mut socket.kind {
            Kind::Epoll(_) => return Err(Errno::ENOTSOCK.into()),
            Kind::Datagrams(datagrams) => {
                if datagrams.peer.is_none() {
                    return Err(Errno::ENOTCONN.into());
                }
                datagrams.reads_no_more |= reads;
                datagrams.sends_no_more |= writes;
            }
            Kind::Stream(stream) => match &stream.phase {
                // As Linux does: a socket that listens does so no more.
                Phase::Listening(_) if reads => self.stop_receiving(slot, false),
                Phase::Listening(_) => {}
                Phase::Connecting => {
                    *stream = Stream::new(Phase::Fresh);
                    socket.error.get_or_insert(Errno::ECONNRESET);
                    self.table.rename(slot);
                }
                Phase::Open if !stream.is_dead => {
                    stream.reads_no_more |= reads;
                    if writes && stream.sending == Sending::Open {
                        stream.sending = Sending::Ending;
                    }
                }
                _ => return Err(Errno::ENOTCONN.into()),
            },
        }
        self.touch(slot);
        self.notify(slot, before);
        Ok(())
    }

    /// `close`. A connection with unread bytes is reset, as on Linux; one with bytes to send sends them first. With
    /// `SO_LINGER` it waits for their acknowledgment, or resets.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&mut self, descriptor: i32) -> Answer<()> {
        let now = self.now;
        let (slot, socket) = self.find(descriptor)?;
        let linger = socket.options.linger;
        let has_more = match &mut socket.kind {
            Kind::Stream(stream) => {
                let is_reset = !stream.received.is_empty() || linger == Some(Duration::ZERO);
                if let Some(linger) = linger
                    && stream.is_connected()
                    && stream.queued() > 0
                    && !is_reset
                {
                    let until = *stream.close_by.get_or_insert(now + linger);
                    if now < until {
                        if stream.sending == Sending::Open {
                            stream.sending = Sending::Ending;
                        }
                        self.touch(slot);
                        return Err(Stop::Blocked(Wait { until: Some(until), done: 0 }));
                    }
                }
                stream.is_connected() && !is_reset
            }
            Kind::Datagrams(datagrams) => !datagrams.unsent.is_empty(),
            Kind::Epoll(_) => false,
        };
        self.table.close(descriptor);
        if has_more && self.table.has_room_for_orphan() {
            self.abandon(slot);
        } else {
            self.reset(slot);
            self.release(slot);
        }
        Ok(())
    }

    /// `getsockname`: the unspecified address and port 0 before the socket has an end, a TCP socket that is not bound until it
    /// is connected.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`.
    pub fn local(&mut self, descriptor: i32) -> Answer<Endpoint> {
        let (_, socket) = self.find(descriptor)?;
        socket.transport().ok_or(Errno::ENOTSOCK)?;
        Ok(socket.local.unwrap_or(Endpoint::new(unspecified(socket.is_v4), 0)))
    }

    /// `getpeername`.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn peer(&mut self, descriptor: i32) -> Answer<Endpoint> {
        let (_, socket) = self.find(descriptor)?;
        let peer = match &socket.kind {
            Kind::Stream(stream) => stream.peer.filter(|_| stream.is_connected()),
            Kind::Datagrams(datagrams) => datagrams.peer,
            Kind::Epoll(_) => return Err(Errno::ENOTSOCK.into()),
        };
        Ok(peer.ok_or(Errno::ENOTCONN)?)
    }

    /// `fcntl` with `F_SETFL` and `O_NONBLOCK`, or `ioctl` with `FIONBIO`.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn set_nonblocking(&mut self, descriptor: i32, is_nonblocking: bool) -> Answer<()> {
        self.find(descriptor)?.1.is_nonblocking = is_nonblocking;
        Ok(())
    }

    /// What `fcntl` with `F_GETFL` says of `O_NONBLOCK`.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn is_nonblocking(&mut self, descriptor: i32) -> Answer<bool> {
        Ok(self.find(descriptor)?.1.is_nonblocking)
    }
}
