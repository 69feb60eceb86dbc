//! The client: threads in its namespace that speak the protocol of memcached, and `ping`.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::panic;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::rig::NAMESPACE;
use super::service::{ADDRESS, PORT};

/// Longest wait for a connection: two lost SYNs and their retransmissions.
const CONNECT_LIMIT: Duration = Duration::from_secs(4);
/// Longest wait for the next bytes of a reply.
const REPLY_LIMIT: Duration = Duration::from_secs(6);
/// Bytes of a ping's headers: IPv4 and ICMP.
pub const PING_HEADER_BYTES: usize = 28;

/// Runs `work` in the client's namespace, on a thread that ends with it.
///
/// # Errors
/// The namespace cannot be entered; those of `work`.
pub fn in_namespace<R: Send>(work: impl FnOnce() -> anyhow::Result<R> + Send) -> anyhow::Result<R> {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            let file = File::open(format!("/run/netns/{NAMESPACE}"))?;
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .context("entering the client's namespace")?;
            work()
        });
        inside.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
    })
}

/// Whether one ping with so many bytes of data is answered within `wait_s`.
///
/// # Errors
/// `ping` cannot be started.
pub fn ping(data_bytes: usize, wait_s: &str) -> anyhow::Result<bool> {
    let mut command = Command::new("ping");
    command.args(["-n", "-q", "-c", "1", "-W", wait_s, "-s", &data_bytes.to_string(), ADDRESS]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = in_namespace(move || command.status().context("cannot start ping"))?;
    Ok(status.success())
}

/// A connection to the service.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// Connects; to be called in the client's namespace.
    ///
    /// # Errors
    /// The service does not answer in time.
    pub fn open() -> anyhow::Result<Self> {
        let address: SocketAddr = format!("{ADDRESS}:{PORT}").parse()?;
        let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT)
            .with_context(|| format!("no connection within {} s", CONNECT_LIMIT.as_secs()))?;
        stream.set_read_timeout(Some(REPLY_LIMIT))?;
        stream.set_write_timeout(Some(REPLY_LIMIT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Connects and asks for the service's version.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`version`](Self::version).
    pub fn answered() -> anyhow::Result<Self> {
        let mut open = Self::open()?;
        open.version()?;
        Ok(open)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line);
        ensure!(read.context("waiting for a reply")? > 0, "the service closed the connection");
        Ok(line.trim_end().to_owned())
    }

    /// Asks for the service's version.
    ///
    /// # Errors
    /// No reply in time, or another one.
    pub fn version(&mut self) -> anyhow::Result<()> {
        self.stream.get_mut().write_all(b"version\r\n").context("sending a request")?;
        let line = self.line()?;
        ensure!(line.starts_with("VERSION"), "expected VERSION, found '{line}'");
        Ok(())
    }

    /// Stores an item.
    ///
    /// # Errors
    /// No reply in time, or another one.
    pub fn set(&mut self, key: &str, value: &[u8]) -> anyhow::Result<()> {
        let stream = self.stream.get_mut();
        let mut request = format!("set {key} 0 0 {}\r\n", value.len()).into_bytes();
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
        stream.write_all(&request).context("sending an item")?;
        let line = self.line()?;
        ensure!(line == "STORED", "expected STORED, found '{line}'");
        Ok(())
    }

    /// Fetches an item and compares it with what it should be.
    ///
    /// # Errors
    /// No reply in time, another reply, or another value: where it differs first.
    pub fn get(&mut self, key: &str, expected: &[u8]) -> anyhow::Result<()> {
        let request = format!("get {key}\r\n");
        self.stream.get_mut().write_all(request.as_bytes()).context("sending a request")?;
        let (line, wanted) = (self.line()?, format!("VALUE {key} 0 {}", expected.len()));
        ensure!(line == wanted, "expected '{wanted}', found '{line}'");
        let mut value = vec![0; expected.len() + 2];
        self.stream.read_exact(&mut value).context("reading a value")?;
        let differs = value.iter().zip(expected).position(|(found, expected)| found != expected);
        if let Some(at) = differs {
            bail!(
                "byte {at} of {} is {:#04x}, not {:#04x}",
                expected.len(),
                value[at],
                expected[at]
            );
        }
        let line = self.line()?;
        ensure!(line == "END", "expected END, found '{line}'");
        Ok(())
    }
}

/// Opens `count` connections, all at once and held until all have been answered, and returns how many were, with the
/// first error.
pub fn answered(count: usize) -> (usize, Option<String>) {
    let one = || in_namespace(Connection::answered);
    let results: Vec<anyhow::Result<Connection>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(one)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let good = results.iter().filter(|result| result.is_ok()).count();
    (good, results.into_iter().find_map(Result::err).map(|error| format!("{error:#}")))
}

/// Bytes that differ from place to place and from seed to seed.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut made = Vec::with_capacity(bytes + 8);
    while made.len() < bytes {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        made.extend_from_slice(&state.to_le_bytes());
    }
    made.truncate(bytes);
    made
}
