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

/// Sockets by connection number.
#[derive(Debug)]
pub(super) struct Sockets {
    streams: Vec<Option<TcpStream>>,
    pub poller: Poller,
    /// Connections whose last send failed; the driver reports them to the generator.
    pub broken: Vec<u32>,
    /// Connections whose socket took less than was sent: a driver that asks no poller tries again.
    pub blocked: Vec<u32>,
}

impl Sockets {
    /// Opens `count` connections to `target` within `limit`.
    pub fn connect(
        target: SocketAddr,
        count: u32,
        limit: Duration,
        wait: Wait,
    ) -> Result<Self, LoadError> {
        let poller = Poller::new(wait)?;
        let deadline = Instant::now() + limit;
        let mut streams = Vec::with_capacity(count as usize);
        for number in 0..count {
            let stream = connect_one(target, deadline).map_err(|source| LoadError::Connect {
                target: target.to_string(),
                opened: number,
                wanted: count,
                reason: source.to_string(),
                advice: advice(&source),
            })?;
            poller
                .add(&stream, u64::from(number), EventFlags::IN)
                .map_err(LoadError::system("epoll_ctl"))?;
            streams.push(Some(stream));
        }
        Ok(Self { streams, poller, broken: Vec::new(), blocked: Vec::new() })
    }

    /// Number of connections, open or not.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Reads what `connection` has into `buffer`, without waiting.
    pub fn receive(&mut self, connection: u32, buffer: &mut [u8]) -> Received {
        let Some(Some(stream)) = self.streams.get_mut(connection as usize) else {
            return Received::Nothing;
        };
        match read_once(stream, buffer) {
            Received::Closed => {
                self.streams[connection as usize] = None;
                Received::Closed
            }
            other => other,
        }
    }

    /// The kernel has room again: no need to hear of it until the next full buffer.
    pub fn on_writable(&mut self, connection: u32) {
        self.watch(connection, EventFlags::IN);
    }

    fn watch(&mut self, connection: u32, interest: EventFlags) {
        if let Some(Some(stream)) = self.streams.get(connection as usize)
            && self.poller.modify(stream, u64::from(connection), interest).is_err()
        {
            self.broken.push(connection);
        }
    }
}

impl Sender for Sockets {
    fn send(&mut self, connection: u32, bytes: &[u8]) -> usize {
        let Some(Some(stream)) = self.streams.get_mut(connection as usize) else { return 0 };
        match write_once(stream, bytes) {
            Ok(taken) => {
                if taken < bytes.len() {
                    self.watch(connection, EventFlags::IN | EventFlags::OUT);
                    self.blocked.push(connection);
                }
                taken
            }
            Err(_) => {
                self.streams[connection as usize] = None;
                self.broken.push(connection);
                0
            }
        }
    }

    fn abort(&mut self, connection: u32) {
        if let Some(stream) = self.streams.get_mut(connection as usize).and_then(Option::take) {
            close_by_reset(stream);
        }
    }
}

impl Drop for Sockets {
    /// Closes by reset what is still open: TIME-WAIT of thousands of connections would leave no
    /// ports for the next run.
    fn drop(&mut self) {
        self.streams.drain(..).flatten().for_each(close_by_reset);
    }
}

/// A buffer for [`Sockets::receive`].
pub(super) fn read_buffer() -> Vec<u8> {
    vec![0; READ_BYTES]
}

/// One `recv` that does not wait.
pub(super) fn read_once(stream: &mut TcpStream, buffer: &mut [u8]) -> Received {
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
pub(super) fn write_once(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    loop {
        return match stream.write(bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            other => other,
        };
    }
}

/// Closes with a RST instead of a FIN.
pub(super) fn close_by_reset(stream: TcpStream) {
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
pub(super) fn advice(error: &io::Error) -> &'static str {
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
