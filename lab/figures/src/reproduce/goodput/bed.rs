//! Where goodput is measured: a lab whose client is behind a relay, and servers of the memcached protocol that answer it.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use measure::{SetsAtEnd, pin};
use runtime::{CongestionAlgorithm, set_realtime};
use world::path::Path;

use super::relay::{Carried, Relay};
use crate::demo::processors::{CLIENT_CPU, REALTIME};
use crate::demo::systems::{Memcached, Tailplane};
use crate::reproduce::testbed::Running;
use service::config::{App, RunConfig};
use service::lab::constants::{
    CLIENT_ADDRESS, CLIENT_INTERFACE, DATAPLANE_ADDRESS, DATAPLANE_KERNEL_ADDRESS, SUBNET_BITS,
};
use service::lab::{Lab, LabConfig, disable_offloads, in_namespace};

/// The client's interface, and the relay's at the other end of its pair.
const FAR: &str = "tp-far";
const NEAR: &str = "tp-near";
/// The kernels' buffers, least, default and most bytes: several times what a path and its queue hold.
const BUFFERS: &str = "4096 131072 67108864";
/// Behind a run, in addition to a round trip.
const SETTLE: Duration = Duration::from_millis(50);
/// Longest that a client waits for bytes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Our key-value service.
    Tailplane,
    /// The distribution's memcached on the kernel's stack.
    Linux,
}

impl Server {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Tailplane, Self::Linux];

    /// As it is called in plots.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tailplane => "tailplane",
            Self::Linux => "Linux",
        }
    }

    fn target(self) -> SocketAddrV4 {
        match self {
            Self::Tailplane => Tailplane::TARGET,
            Self::Linux => Memcached::TARGET,
        }
    }
}

/// See the module's comment.
pub struct Bed {
    /// All that the relay carried.
    pub carried: Carried,
    relay: Relay,
    lab: Lab,
}

impl Bed {
    /// Makes the lab: the kernel's client is moved to the far end of a pair of its own, and the relay joins that with the
    /// lab's.
    ///
    /// # Errors
    /// What could not be made.
    pub fn new() -> anyhow::Result<Self> {
        let lab = Lab::create(LabConfig::unique("goodput")).context("cannot make a lab")?;
        let (client, address) = (lab.client(), format!("{CLIENT_ADDRESS}/{SUBNET_BITS}"));
        client.ip(&["link", "add", "name", FAR, "type", "veth", "peer", "name", NEAR])?;
        client.ip(&["addr", "del", &address, "dev", CLIENT_INTERFACE])?;
        client.ip(&["addr", "add", &address, "dev", FAR])?;
        for interface in [FAR, NEAR] {
            in_namespace(client, || disable_offloads(interface))??;
            client.ip(&["link", "set", interface, "up"])?;
        }
        let set = |name: &str, value: &str| {
            let path = format!("/proc/sys/net/ipv4/{name}");
            fs::write(&path, value).with_context(|| format!("cannot write {path}"))
        };
        // A connection learns nothing from those before it.
        in_namespace(client, || {
            set("tcp_rmem", BUFFERS)?;
            set("tcp_no_metrics_save", "1")
        })??;
        in_namespace(lab.dataplane(), || {
            set("tcp_wmem", BUFFERS)?;
            set("tcp_no_metrics_save", "1")
        })??;
        let servers = [DATAPLANE_ADDRESS, DATAPLANE_KERNEL_ADDRESS];
        let ends = [(NEAR, &servers[..]), (CLIENT_INTERFACE, &[CLIENT_ADDRESS][..])];
        let relay = in_namespace(client, || Relay::open(ends))??;
        Ok(Self { carried: Carried::default(), relay, lab })
    }

    /// Starts a server.
    ///
    /// # Errors
    /// What could not be opened.
    pub fn start(&self, server: Server) -> anyhow::Result<Running> {
        Ok(match server {
            Server::Linux => Box::new(Memcached::start(&self.lab)?),
            Server::Tailplane => {
                let settings = |config: &mut RunConfig| {
                    config.tcp.congestion = CongestionAlgorithm::Cubic;
                    // As the other one. It sleeps where it has nothing to do.
                    config.dataplane.realtime = Some(REALTIME);
                };
                Box::new(Tailplane::start_with(&self.lab, App::Kv, settings)?)
            }
        })
    }

    /// Runs `body`, in the client's namespace and on its processor, while the relay has this path between its ends, and
    /// relays on until what was under way has arrived. Frames of the servers that `is_doomed` names are lost.
    ///
    /// # Errors
    /// Those of `body`, and of the relay.
    pub fn over<R: Send>(
        &mut self,
        path: Path,
        is_doomed: impl FnMut(&[u8]) -> bool + Send,
        body: impl FnOnce() -> anyhow::Result<R> + Send,
    ) -> anyhow::Result<R> {
        let stop = AtomicBool::new(false);
        let Self { carried: all, relay, lab } = self;
        std::thread::scope(|scope| {
            let carried = scope.spawn(|| {
                pin(CLIENT_CPU)?;
                // It sleeps until a frame comes or is due: the client gets the rest.
                set_realtime(REALTIME + 1)?;
                relay.run(path, is_doomed, &stop)
            });
            let found = {
                let _ends = SetsAtEnd(&stop);
                let found = in_namespace(lab.client(), || {
                    pin(CLIENT_CPU)?;
                    body()
                });
                // A connection that ended leaves nothing behind that another run would carry.
                std::thread::sleep(2 * path.delay + SETTLE);
                found
            };
            let carried = carried.join().map_err(|_| anyhow::anyhow!("the relay panicked"))??;
            all.frames += carried.frames;
            all.late += carried.late;
            found?
        })
    }
}

/// A client of one connection.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects, from within the client's namespace.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn connect(server: Server) -> anyhow::Result<Self> {
        let stream = TcpStream::connect_timeout(&server.target().into(), PATIENCE)
            .with_context(|| format!("cannot connect to {}", server.name()))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, buffer: vec![0; 256 << 10] })
    }

    /// Stores a value under a key, such that its answer has so many bytes.
    ///
    /// # Errors
    /// The server does not store it.
    pub fn store(&mut self, key: &str, answer_bytes: usize) -> anyhow::Result<()> {
        let around = |bytes: usize| format!("VALUE {key} 0 {bytes}\r\n\r\nEND\r\n").len();
        let bytes = answer_bytes - around(answer_bytes);
        ensure!(bytes + around(bytes) == answer_bytes, "no value has {answer_bytes} bytes' answer");
        let begin = format!("set {key} 0 0 {bytes}\r\n");
        let command = [begin.as_bytes(), &vec![b'v'; bytes], b"\r\n"].concat();
        self.stream.write_all(&command)?;
        let mut stored = [0; 8];
        self.stream.read_exact(&mut stored)?;
        ensure!(&stored == b"STORED\r\n", "the server stores nothing: {stored:?}");
        Ok(())
    }

    /// The time of one answer, without the connection's begin.
    ///
    /// # Errors
    /// No answer comes.
    pub fn ask(&mut self, key: &str, answer_bytes: usize) -> anyhow::Result<Duration> {
        let asked = Instant::now();
        self.stream.write_all(format!("get {key}\r\n").as_bytes())?;
        let mut left = answer_bytes;
        while left > 0 {
            let space = left.min(self.buffer.len());
            match self.stream.read(&mut self.buffer[..space])? {
                0 => bail!("the connection ended before the answer did"),
                count => left -= count,
            }
        }
        Ok(asked.elapsed())
    }

    /// Goodput in bytes per second over `span`, which begins so long after the first request: `ahead` requests for answers of
    /// so many bytes are always outstanding.
    ///
    /// # Errors
    /// Nothing comes any more.
    pub fn pour(
        &mut self,
        key: &str,
        answer_bytes: usize,
        ahead: usize,
        (settle, span): (Duration, Duration),
    ) -> anyhow::Result<f64> {
        let request = format!("get {key}\r\n");
        self.stream.write_all(request.repeat(ahead).as_bytes())?;
        let (began, mut bytes, mut answers) = (Instant::now(), 0, 0);
        let mut settled = None;
        loop {
            let count = match self.stream.read(&mut self.buffer)? {
                0 => bail!("the connection ended before the measurement did"),
                count => count,
            };
            let took = began.elapsed();
            let before = match took >= settle {
                true => *settled.get_or_insert(bytes),
                false => bytes,
            };
            if took >= settle + span {
                return Ok((bytes - before) as f64 / span.as_secs_f64());
            }
            bytes += count;
            let more = bytes / answer_bytes - answers;
            self.stream.write_all(request.repeat(more).as_bytes())?;
            answers += more;
        }
    }
}
