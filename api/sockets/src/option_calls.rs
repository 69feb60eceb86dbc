//! `getsockopt` and `setsockopt`: what the stack can serve. Anything else fails as an unknown option does on Linux, and an
//! option that is what it is set to succeeds.

use clock::Duration;
use domain::ConnectionInfo;

use crate::errno::Errno;
use crate::options::{LEAST_BYTES, MOST_BYTES};
use crate::socket_calls::socket_type::*;
use crate::sockets::{Answer, BLOCKED, Kind, Socket, Sockets};
use crate::stream::{Asked, CORKED_FOR, Phase};

/// Linux's numbers of levels and options.
pub mod option {
    /// The level of sockets.
    pub const SOL_SOCKET: i32 = 1;
    /// The level of TCP.
    pub const SOL_TCP: i32 = 6;
    /// Whether a port may be bound that others have.
    pub const SO_REUSEADDR: i32 = 2;
    /// `SOCK_STREAM` or `SOCK_DGRAM`; to get.
    pub const SO_TYPE: i32 = 3;
    /// The error that waits; to get, which takes it.
    pub const SO_ERROR: i32 = 4;
    /// The send buffer in bytes: Linux doubles what is set.
    pub const SO_SNDBUF: i32 = 7;
    /// The receive buffer in bytes: Linux doubles what is set. To be set of UDP alone.
    pub const SO_RCVBUF: i32 = 8;
    /// Whether silent peers are asked for a sign of life: the configuration says.
    pub const SO_KEEPALIVE: i32 = 9;
    /// What `close` waits for.
    pub const SO_LINGER: i32 = 13;
    /// Whether several sockets may listen on a port.
    pub const SO_REUSEPORT: i32 = 15;
    /// Whether it listens; to get.
    pub const SO_ACCEPTCONN: i32 = 30;
    /// The protocol; to get.
    pub const SO_PROTOCOL: i32 = 38;
    /// The address family; to get.
    pub const SO_DOMAIN: i32 = 39;
    /// Whether short segments go at once.
    pub const TCP_NODELAY: i32 = 1;
    /// Payload bytes of a segment; to get.
    pub const TCP_MAXSEG: i32 = 2;
    /// Whether short segments wait for more.
    pub const TCP_CORK: i32 = 3;
    /// What is known of the connection: see `Sockets::info`.
    pub const TCP_INFO: i32 = 11;
}
use option::*;

/// For how long the dataplane's answer to `TCP_INFO` may wait for the call to be made again.
const ANSWER_LASTS: Duration = Duration::from_millis(100);

impl Sockets {
    /// `setsockopt` of an option whose value is one number.
    ///
    /// # Errors
    /// `ENOPROTOOPT` of an option that is not served, or cannot be set to this; `EINVAL`.
    pub fn set_option(&mut self, descriptor: i32, level: i32, name: i32, value: i32) -> Answer<()> {
        let (now, has_keepalive) = (self.now, self.config.keepalive);
        let before = self.table.at(descriptor).map_or(0, |slot| self.readiness(slot));
        let (slot, socket) = self.find(descriptor)?;
        let is_stream = match &socket.kind {
            Kind::Stream(_) => true,
            Kind::Datagrams(_) => false,
            Kind::Epoll(_) => return Err(Errno::ENOTSOCK.into()),
        };
        // Linux cuts what is too large, and doubles the rest for its bookkeeping.
        let bytes = |value: i32| {
            let wanted = u32::try_from(value).unwrap_or(MOST_BYTES).min(MOST_BYTES);
            (2 * wanted).max(LEAST_BYTES)
        };
        let options = &mut socket.options;
        match (level, name) {
            (SOL_SOCKET, SO_REUSEADDR) => options.reuse_address = value != 0,
            (SOL_SOCKET, SO_REUSEPORT) => options.reuse_port = value != 0,
            (SOL_SOCKET, SO_SNDBUF) => options.send_bytes = bytes(value),
            (SOL_SOCKET, SO_RCVBUF) if !is_stream => options.receive_bytes = bytes(value),
            (SOL_SOCKET, SO_KEEPALIVE) if is_stream && (value != 0) == has_keepalive => {}
            (SOL_TCP, TCP_NODELAY) if is_stream => options.no_delay = value != 0,
            (SOL_TCP, TCP_CORK) if is_stream => {
                options.cork = value != 0;
                if let Kind::Stream(stream) = &mut socket.kind
                    && (value == 0 || !stream.unsent.is_empty())
                {
                    let until = stream.hold_until.unwrap_or(now + CORKED_FOR);
                    stream.hold_until = (value != 0).then_some(until);
                }
            }
            _ => return Err(Errno::ENOPROTOOPT.into()),
        }
        self.touch(slot);
        self.notify(slot, before);
        Ok(())
    }

    /// `setsockopt` of `SO_LINGER`; `None`: off.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn set_linger(&mut self, descriptor: i32, linger: Option<Duration>) -> Answer<()> {
        self.find(descriptor)?.1.options.linger = linger;
        Ok(())
    }

    /// `getsockopt` of `SO_LINGER`.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn linger(&mut self, descriptor: i32) -> Answer<Option<Duration>> {
        Ok(self.find(descriptor)?.1.options.linger)
    }

    /// `getsockopt` of an option whose value is one number.
    ///
    /// # Errors
    /// `ENOPROTOOPT` of an option that is not served.
    pub fn option(&mut self, descriptor: i32, level: i32, name: i32) -> Answer<i32> {
        let (window, has_keepalive) = (self.config.receive_window_bytes, self.config.keepalive);
        let (_, socket) = self.find(descriptor)?;
        let (is_stream, is_listening) = match &socket.kind {
            Kind::Stream(stream) => (true, matches!(stream.phase, Phase::Listening(_))),
            Kind::Datagrams(_) => (false, false),
            Kind::Epoll(_) => return Err(Errno::ENOTSOCK.into()),
        };
        let options = socket.options;
        let value = match (level, name) {
            (SOL_SOCKET, SO_ERROR) => socket.error.take().map_or(0, Errno::number),
            (SOL_SOCKET, SO_TYPE) if is_stream => SOCK_STREAM,
            (SOL_SOCKET, SO_TYPE) => SOCK_DGRAM,
            (SOL_SOCKET, SO_PROTOCOL) if is_stream => IPPROTO_TCP,
            (SOL_SOCKET, SO_PROTOCOL) => IPPROTO_UDP,
            (SOL_SOCKET, SO_DOMAIN) if socket.is_v4 => AF_INET,
            (SOL_SOCKET, SO_DOMAIN) => AF_INET6,
            (SOL_SOCKET, SO_ACCEPTCONN) => is_listening.into(),
            (SOL_SOCKET, SO_REUSEADDR) => options.reuse_address.into(),
            (SOL_SOCKET, SO_REUSEPORT) => options.reuse_port.into(),
            (SOL_SOCKET, SO_SNDBUF) => options.send_bytes as i32,
            (SOL_SOCKET, SO_RCVBUF) if is_stream => window as i32,
            (SOL_SOCKET, SO_RCVBUF) => options.receive_bytes as i32,
            (SOL_SOCKET, SO_KEEPALIVE) => (is_stream && has_keepalive).into(),
            (SOL_TCP, TCP_NODELAY) if is_stream => options.no_delay.into(),
            (SOL_TCP, TCP_CORK) if is_stream => options.cork.into(),
            // As Linux says before there is a connection.
            (SOL_TCP, TCP_MAXSEG) if is_stream => match self.info(descriptor)? {
                ConnectionInfo { snd_mss_bytes: 0, .. } => 536,
                info => info.snd_mss_bytes as i32,
            },
            _ => return Err(Errno::ENOPROTOOPT.into()),
        };
        Ok(value)
    }

    /// `getsockopt` of `TCP_INFO`: the dataplane is asked, for whose answer a socket that does not block waits too. Of a
    /// socket that is not connected all but the state is zero.
    ///
    /// # Errors
    /// `ENOPROTOOPT` of a socket that is no TCP socket; `ENOBUFS` where the dataplane has no packet memory to answer in.
    pub fn info(&mut self, descriptor: i32) -> Answer<ConnectionInfo> {
        let now = self.now;
        let (slot, socket) = self.find(descriptor)?;
        let Socket { kind: Kind::Stream(stream), .. } = socket else {
            return Err(Errno::ENOPROTOOPT.into());
        };
        let without = |state| Ok(ConnectionInfo { state, ..ConnectionInfo::default() });
        match stream.phase {
            Phase::Listening(_) => return without(10),
            Phase::Connecting => return without(2),
            Phase::Open if !stream.is_dead => {}
            Phase::Fresh | Phase::Open => return without(7),
        }
        match core::mem::replace(&mut stream.asked, Asked::Nothing) {
            Asked::Answered(info, at) if now.since(at) < ANSWER_LASTS => {
                Ok(*info.ok_or(Errno::ENOBUFS)?)
            }
            Asked::Issued => {
                stream.asked = Asked::Issued;
                Err(BLOCKED)
            }
            Asked::Nothing | Asked::Wanted | Asked::Answered(..) => {
                stream.asked = Asked::Wanted;
                self.touch(slot);
                Err(BLOCKED)
            }
        }
    }
}
