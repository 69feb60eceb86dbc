//! Who a dialogue is played to: our stack in virtual time, or the kernel's over a TAP device.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use stack::Keepalive;
use wire::{EthernetView, Ipv4View, Protocol};

use crate::support::{
    MTU, Out, PEER_IP, PEER_MAC, PORT, STACK_IP, STACK_MAC, Seg, Told, World, decode, ms, pattern,
    ping_frame,
};
use crate::unsafe_tap;

/// Silence of the peer before a keepalive probe.
const KEEPALIVE: Duration = Duration::from_secs(3);
/// Longest real time for what the kernel does at once.
const PATIENCE: Duration = Duration::from_secs(20);

/// One end of a dialogue, with a server on [`PORT`] that accepts.
pub trait Host {
    /// A segment arrives. Answers what is sent at once.
    fn hear(&mut self, seg: &Seg) -> Vec<Seg>;
    /// Answers what is sent next, within `limit`.
    fn wait(&mut self, limit: Duration) -> Vec<Seg>;
    /// The application sends the next bytes of its stream.
    fn send(&mut self, len: usize);
    /// What the application has heard since it last asked, in words.
    fn read(&mut self) -> String;
    /// The application sends no more, but reads on.
    fn shutdown(&mut self);
    /// The application closes.
    fn close(&mut self);
    /// What has been sent since it was last looked at.
    fn sent(&mut self) -> Vec<Seg>;
}

/// What a reader finds: bytes, and how they end.
fn words(bytes: usize, end: Option<&str>) -> String {
    match end {
        Some(end) => format!("reads {bytes} bytes, {end}"),
        None => format!("reads {bytes} bytes"),
    }
}

/// Our stack. It acknowledges almost at once, as the kernel is asked to.
pub fn ours() -> World {
    let (idle, interval) = (KEEPALIVE, KEEPALIVE);
    World::with(|config| {
        config.delayed_ack = ms(1);
        config.keepalive = Some(Keepalive { idle, interval, probes: 3 });
    })
}

impl Host for World {
    fn hear(&mut self, seg: &Seg) -> Vec<Seg> {
        World::hear(self, seg);
        self.sent()
    }

    fn wait(&mut self, limit: Duration) -> Vec<Seg> {
        self.pass_until_sent(limit);
        self.segments()
    }

    fn send(&mut self, len: usize) {
        World::send(self, len);
    }

    fn read(&mut self) -> String {
        let (mut bytes, mut end) = (0, None);
        for event in self.told() {
            match event {
                Told::Recv { data, .. } => bytes += data.len(),
                Told::Eof { .. } => end = end.or(Some("end")),
                Told::Dead { reason: domain::DeadReason::Reset, .. } => end = Some("reset"),
                _ => {}
            }
        }
        words(bytes, end)
    }

    fn shutdown(&mut self) {
        let handle = self.handle();
        self.call(|calls| calls.shutdown(handle).expect("room for a call"));
    }

    fn close(&mut self) {
        let handle = self.handle();
        self.call(|calls| calls.close(handle).expect("room for a call"));
    }

    fn sent(&mut self) -> Vec<Seg> {
        self.pass(ms(2));
        self.segments()
    }
}

/// The kernel's stack, in a namespace of the calling thread.
pub struct Linux {
    tap: File,
    listener: TcpListener,
    stream: Option<TcpStream>,
    written: usize,
    /// The peer's port: what is sent to others belongs to earlier dialogues.
    port: u16,
}

/// Makes the namespace as the dialogues want it: nothing is limited, delayed or sent again soon.
fn configure() {
    let lines = [
        format!("link set tap0 address {STACK_MAC} mtu {MTU} up"),
        format!("addr add {STACK_IP}/24 dev tap0"),
        format!("neigh add {PEER_IP} lladdr {PEER_MAC} dev tap0 nud permanent"),
        format!("route replace 10.0.0.0/24 dev tap0 src {STACK_IP} quickack 1 rto_min 3s"),
    ];
    for line in lines {
        let output = Command::new("ip").args(line.split(' ')).output().expect("ip is installed");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cannot run `ip {line}`: {error}");
    }
    for (name, value) in [
        ("tcp_invalid_ratelimit", "0"),
        ("tcp_early_retrans", "0"),
        ("tcp_ecn", "2"),
        ("icmp_ratelimit", "0"),
    ] {
        let path = format!("/proc/sys/net/ipv4/{name}");
        std::fs::write(&path, value).unwrap_or_else(|error| panic!("cannot write {path}: {error}"));
    }
}

impl Linux {
    /// A namespace, a device and a server.
    ///
    /// # Errors
    /// The namespace cannot be made.
    pub fn new() -> io::Result<Self> {
        unsafe_tap::new_namespace()?;
        let path = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
        if std::path::Path::new(path).exists() {
            std::fs::write(path, "1")?;
        }
        let tap = unsafe_tap::open("tap0")?;
        configure();
        let listener = TcpListener::bind((STACK_IP.v4().expect("IPv4"), PORT))?;
        Ok(Self { tap, listener, stream: None, written: 0, port: 0 })
    }

    /// A dialogue with this port begins; the connections of earlier ones are reset.
    pub fn begin(&mut self, port: u16) {
        self.listener.set_nonblocking(true).expect("an open socket");
        let waiting = std::iter::from_fn(|| Some(self.listener.accept().ok()?.0));
        for stream in self.stream.take().into_iter().chain(waiting) {
            sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("an open socket");
        }
        (self.written, self.port) = (0, port);
        self.sent();
    }

    fn segment(&self, frame: &[u8]) -> Option<Seg> {
        segment(frame).filter(|seg| seg.dst.port == self.port)
    }

    /// The next frame, if one comes within `limit`.
    fn frame(&mut self, limit: Duration) -> Option<Vec<u8>> {
        let limit =
            Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        let mut polled = [PollFd::new(&self.tap, PollFlags::IN)];
        poll(&mut polled, Some(&limit)).expect("an open device");
        let mut frame = vec![0; 2_048];
        match self.tap.read(&mut frame) {
            Ok(len) => Some(frame[..len].to_vec()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("cannot read from the device: {error}"),
        }
    }

    /// The connection that was last accepted, or is accepted now.
    fn stream(&mut self) -> &TcpStream {
        let listener = &self.listener;
        self.stream.get_or_insert_with(|| {
            let limit = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            let mut polled = [PollFd::new(listener, PollFlags::IN)];
            let ready = poll(&mut polled, Some(&limit)).expect("an open socket");
            assert_eq!(ready, 1, "a connection to accept");
            let (stream, _) = listener.accept().expect("a connection");
            stream.set_nonblocking(true).expect("an open socket");
            stream.set_nodelay(true).expect("an open socket");
            sockopt::set_socket_keepalive(&stream, true).expect("an open socket");
            sockopt::set_tcp_keepidle(&stream, KEEPALIVE).expect("an open socket");
            stream
        })
    }
}

/// The segment in a frame, if there is one.
fn segment(frame: &[u8]) -> Option<Seg> {
    let link = EthernetView::parse(frame).ok()?;
    let ip = Ipv4View::parse(link.payload()).ok().filter(|ip| ip.protocol() == Protocol::TCP)?;
    assert_eq!(ip.src(), STACK_IP.v4().expect("IPv4"));
    match decode(frame, MTU.into()) {
        Out::Tcp(seg) => Some(seg),
        other => panic!("not a segment: {other:?}"),
    }
}

impl Host for Linux {
    fn hear(&mut self, seg: &Seg) -> Vec<Seg> {
        self.tap.write_all(&seg.frame()).expect("an open device");
        self.sent()
    }

    fn wait(&mut self, limit: Duration) -> Vec<Seg> {
        let end = Instant::now() + limit;
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            let found = self.frame(rest).and_then(|frame| self.segment(&frame));
            if let Some(first) = found {
                return [vec![first], self.sent()].concat();
            }
            if rest.is_zero() {
                return Vec::new();
            }
        }
    }

    fn send(&mut self, len: usize) {
        let bytes = pattern(self.written % 251, len);
        self.written += len;
        self.stream().write_all(&bytes).expect("room in the send buffer");
    }

    fn read(&mut self) -> String {
        let (mut bytes, mut buffer) = (0, [0; 4_096]);
        loop {
            match self.stream().read(&mut buffer) {
                Ok(0) => return words(bytes, Some("end")),
                Ok(count) => bytes += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return words(bytes, None),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return words(bytes, Some("reset"));
                }
                Err(error) => panic!("cannot read from the connection: {error}"),
            }
        }
    }

    fn shutdown(&mut self) {
        self.stream().shutdown(std::net::Shutdown::Write).expect("a connection");
    }

    fn close(&mut self) {
        self.stream();
        self.stream = None;
    }

    /// The kernel answers in the order in which it is asked: what is sent comes before the answer to a ping.
    fn sent(&mut self) -> Vec<Seg> {
        self.tap.write_all(&ping_frame(PEER_IP, &[7; 40])).expect("an open device");
        let end = Instant::now() + PATIENCE;
        let mut segments = Vec::new();
        while Instant::now() < end {
            let Some(frame) = self.frame(PATIENCE) else { continue };
            let is_pong = EthernetView::parse(&frame).is_ok_and(|link| {
                Ipv4View::parse(link.payload()).is_ok_and(|ip| ip.protocol() == Protocol::ICMP)
            });
            if is_pong {
                return segments;
            }
            segments.extend(self.segment(&frame));
        }
        panic!("the kernel answers no ping within {PATIENCE:?}");
    }
}
