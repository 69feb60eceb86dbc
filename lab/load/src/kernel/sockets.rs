//! The connected sockets of one thread, as a [`Sender`].

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;

use super::config::Wait;
use super::poller::Poller;
use crate::connection::Sender;
use crate::error::LoadError;

/// Bytes read by one call: more than the kernel has for one connection as a rule.
const READ_BYTES: usize = 64 << 10;

/// What reading a socket gave.
pub(super) enum Received {
    /// This many bytes in the buffer.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The connection has ended.
    Closed,
}

/// The socket of a connection. The generation tells its events from those of earlier sockets in its place.
#[derive(Default)]
pub(super) struct Slot {
    pub stream: Option<TcpStream>,
    pub connecting: bool,
    pub generation: u32,
}

/// Sockets by connection number: all open, and watched for what is awaited of them; or dialled one by
/// one (`dial`), and then watched edge-triggered for everything at once, so that a connection's life
/// needs one `epoll_ctl` and not three.
pub(super) struct Sockets {
    pub target: SocketAddr,
    pub slots: Vec<Slot>,
    pub poller: Poller,
    /// Connections whose last send failed; the driver reports them to the generator.
    pub broken: Vec<u32>,
    /// Connections whose socket took less than was sent: a driver that asks no poller tries again.
    pub blocked: Vec<u32>,
    is_dialled: bool,
    /// The first failure of a socket that was dialled, in words.
    pub first_failure: Option<String>,
}

impl Sockets {
    /// Opens `count` connections to `target` within `limit`.
    pub fn connect(
        target: SocketAddr,
        count: u32,
        limit: Duration,
        wait: Wait,
    ) -> Result<Self, LoadError> {
        let mut sockets = Self::to_dial(target, count, wait)?;
        sockets.is_dialled = false;
        let deadline = Instant::now() + limit;
        for (number, slot) in (0..count).zip(&mut sockets.slots) {
            let stream = connect_one(target, deadline).map_err(|source| LoadError::Connect {
                target: target.to_string(),
                opened: number,
                wanted: count,
                reason: source.to_string(),
                advice: advice(&source),
            })?;
            sockets
                .poller
                .add(&stream, u64::from(number), EventFlags::IN)
                .map_err(LoadError::system("epoll_ctl"))?;
            slot.stream = Some(stream);
        }
        Ok(sockets)
    }

    /// Room for `count` connections to `target` that the generator dials.
    pub fn to_dial(target: SocketAddr, count: u32, wait: Wait) -> Result<Self, LoadError> {
        Ok(Self {
            target,
            slots: (0..count).map(|_| Slot::default()).collect(),
            poller: Poller::new(wait)?,
            broken: Vec::new(),
            blocked: Vec::new(),
            is_dialled: true,
            first_failure: None,
        })
    }

    /// Number of connections, open or not.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Reads what `connection` has into `buffer`, without waiting.
    pub fn receive(&mut self, connection: u32, buffer: &mut [u8]) -> Received {
        let Some(stream) = self.stream(connection) else { return Received::Nothing };
        let received = read_once(stream, buffer);
        if matches!(received, Received::Closed) {
            self.slots[connection as usize].stream = None;
        }
        received
    }

    /// The kernel has room again: no need to hear of it until the next full buffer.
    pub fn on_writable(&mut self, connection: u32) {
        self.watch(connection, EventFlags::IN);
    }

    fn stream(&mut self, connection: u32) -> Option<&mut TcpStream> {
        self.slots.get_mut(connection as usize)?.stream.as_mut()
    }

    /// Lets go of a connection's socket, and keeps the reason of the first failure.
    pub fn fail(&mut self, connection: u32, call: &str, error: &io::Error) {
        self.slots[connection as usize].stream = None;
        let target = self.target;
        self.first_failure
            .get_or_insert_with(|| format!("{call} to {target}: {error}; {}", advice(error)));
    }

    fn watch(&mut self, connection: u32, interest: EventFlags) {
        if let Some(Slot { stream: Some(stream), .. }) = self.slots.get(connection as usize)
            && self.poller.modify(stream, u64::from(connection), interest).is_err()
        {
            self.broken.push(connection);
        }
    }
}

impl Sender for Sockets {
    fn send(&mut self, connection: u32, bytes: &[u8]) -> usize {
        let Some(stream) = self.stream(connection) else { return 0 };
        match write_once(stream, bytes) {
            Ok(taken) => {
                // Where it was dialled, the edge of OUT follows by itself.
                if taken < bytes.len() && !self.is_dialled {
                    self.watch(connection, EventFlags::IN | EventFlags::OUT);
                    self.blocked.push(connection);
                }
                taken
            }
            Err(error) => {
                self.slots[connection as usize].stream = None;
                if self.is_dialled {
                    self.fail(connection, "send", &error);
                }
                self.broken.push(connection);
                0
            }
        }
    }

    fn abort(&mut self, connection: u32) {
        if let Some(stream) = self.slots.get_mut(connection as usize).and_then(|s| s.stream.take())
        {
            close_by_reset(stream);
        }
    }
}

impl Drop for Sockets {
    /// Closes by reset what is still open: TIME-WAIT of thousands of connections would leave no
    /// ports for the next run.
    fn drop(&mut self) {
        self.slots.drain(..).filter_map(|slot| slot.stream).for_each(close_by_reset);
    }
}

/// A buffer for [`Sockets::receive`].
pub(super) fn read_buffer() -> Vec<u8> {
    vec![0; READ_BYTES]
}

/// One `recv` that does not wait.
fn read_once(stream: &mut TcpStream, buffer: &mut [u8]) -> Received {
    loop {
        return match stream.read(buffer) {
            Ok(0) => Received::Closed,
            Ok(bytes) => Received::Bytes(bytes),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Received::Nothing,
            Err(_) => Received::Closed,
        };
    }
}

/// One `send` that does not wait: how many bytes were taken.
fn write_once(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    loop {
        return match stream.write(bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            other => other,
        };
    }
}

/// Closes with a RST instead of a FIN.
fn close_by_reset(stream: TcpStream) {
    // Where the option fails the socket closes by FIN, which is only less tidy.
    let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
    drop(stream);
}

fn connect_one(target: SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    let stream = TcpStream::connect_timeout(&target, left)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// What to do about a connection that could not be opened.
fn advice(error: &io::Error) -> &'static str {
    /// Too many open files, of the process.
    const EMFILE: i32 = 24;
    if error.raw_os_error() == Some(EMFILE) {
        return "raise the limit of open files (`ulimit -n`)";
    }
    match error.kind() {
        ErrorKind::ConnectionRefused => "does a service listen on that address and port?",
        ErrorKind::TimedOut => {
            "is the address right and reachable, and is the service accepting? (`connect_timeout_ms`)"
        }
        ErrorKind::AddrNotAvailable => {
            "no local port is free: widen net.ipv4.ip_local_port_range, or wait for TIME-WAIT to end"
        }
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => {
            "is there a route to that address in this network namespace?"
        }
        _ => "see the kernel's answer",
    }
}
