//! Two hosts, and a wire between them.

use std::sync::Arc;

use clock::{Duration, Instant};
use dataplane::{ElasticConfig, ElasticThread, ForwardPorts};
use domain::{CallArray, Calls, Cookie, EventArray, EventRecord, Service, Transport};
use mem::{Pool, Region};
use nic::loopback::{LoopbackConfig, LoopbackNic, pair};
use sockets::socket_type::{AF_INET, SOCK_DGRAM, SOCK_STREAM};
use sockets::{Answer, Errno, PollFd, Sockets, SocketsConfig, Stop};
use stack::{Secrets, Shared, StackConfig};
use wire::{Endpoint, Ipv4Addr, MacAddr};

/// The server, and the client.
pub const SERVER: usize = 0;
pub const CLIENT: usize = 1;
pub const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
pub const PORT: u16 = 80;
const STEP: Duration = Duration::from_micros(20);
const CHUNKS: u32 = 2_048;
/// Steps after which what is waited for does not come.
const PATIENCE: usize = 2_000_000;

pub struct World {
    pub now: Instant,
    pub sockets: [Sockets; 2],
    threads: [ElasticThread<LoopbackNic>; 2],
    /// Whether frames pass.
    pub is_joined: bool,
}

pub fn at(host: usize, port: u16) -> Endpoint {
    Endpoint::new(HOSTS[host], port)
}

/// What the first socket in this slot is called towards the dataplane.
pub fn cookie(slot: u64) -> Cookie {
    Cookie(1 << 32 | slot)
}

/// The bytes of a test's stream.
pub fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8).collect()
}

impl World {
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    /// With settings of the stacks, and of the sockets, changed.
    pub fn with(change: impl Fn(&mut StackConfig)) -> Self {
        Self::build(change, true)
    }

    /// With a port open on both stacks that the sockets do not know of.
    pub fn with_unknown_port(port: u16) -> Self {
        Self::build(|config| config.tcp_listen = vec![port], false)
    }

    fn build(change: impl Fn(&mut StackConfig), are_ports_known: bool) -> Self {
        let macs = [1, 2].map(|last| MacAddr([2, 0, 0, 0, 0, last]));
        let (near, far) = pair(LoopbackConfig { macs, ..LoopbackConfig::default() });
        let mut ends = [Some(near), Some(far)];
        let mut configured_ports = Vec::new();
        let mut own = [const { Vec::new() }; 2];
        let threads = [SERVER, CLIENT].map(|host| {
            let mut config = StackConfig::new(HOSTS[host], 24, macs[host]);
            config.policy.listen = vec![1..=u16::MAX - 1];
            config.time_wait = Duration::from_secs(1);
            config.receive_window_bytes = 64 << 10;
            change(&mut config);
            own[host].extend(config.addresses.iter().map(|own| own.address));
            if are_ports_known {
                let open = config.tcp_listen.iter().map(|port| (Transport::Tcp, *port));
                configured_ports = open.collect();
            }
            let secrets = Secrets {
                rss_key: wire::MICROSOFT_KEY,
                isn_key: [1; 16],
                port_key: [2; 16],
                offset: 3,
            };
            let shared = Arc::new(Shared::new(config, &secrets, 1));
            let pool = Pool::new(&Region::heap(CHUNKS), CHUNKS as usize);
            let nic = ends[host].take().expect("each once");
            let (ports, elastic) = (ForwardPorts::default(), ElasticConfig::default());
            ElasticThread::new(0, shared, nic, pool, ports, elastic, Instant::ZERO)
        });
        let sockets = own.map(|addresses| {
            let config = SocketsConfig::new(addresses);
            Sockets::new(SocketsConfig {
                receive_window_bytes: 64 << 10,
                descriptors: 16,
                configured_ports: configured_ports.clone(),
                ..config
            })
        });
        Self { now: Instant::from_millis(1), sockets, threads, is_joined: true }
    }

    /// One cycle of both.
    pub fn step(&mut self) {
        let hosts = if self.is_joined { 0..2 } else { CLIENT..2 };
        for host in hosts {
            self.threads[host].run_cycle(self.now, &mut self.sockets[host]);
        }
        self.now += STEP;
        self.sockets.iter_mut().for_each(|sockets| sockets.set_now(self.now));
    }

    /// The sockets of a host find an event in a batch of its own, whose calls are lost.
    pub fn deliver(&mut self, host: usize, record: EventRecord) {
        let (mut events, mut calls) = (EventArray::new(1), CallArray::new(64, 1_448));
        let mut pool = Pool::new(&Region::heap(8), 8);
        events.push(record).expect("room");
        let mut calls = Calls::new(&mut calls, &mut pool);
        self.sockets[host].on_batch(self.now, events.view(&()), &mut calls);
    }

    /// Long times, in coarse steps.
    pub fn skip(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.step();
            self.now += Duration::from_millis(1);
        }
    }

    pub fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.step();
        }
    }

    /// What a blocking program does: asks until there is an answer.
    pub fn wait<T>(
        &mut self,
        host: usize,
        mut call: impl FnMut(&mut Sockets) -> Answer<T>,
    ) -> Result<T, Errno> {
        for _ in 0..PATIENCE {
            match call(&mut self.sockets[host]) {
                Ok(value) => return Ok(value),
                Err(Stop::Failed(errno)) => return Err(errno),
                Err(Stop::Blocked(_)) => self.step(),
            }
        }
        panic!("what is waited for does not come");
    }

    pub fn socket(&mut self, host: usize, kind: i32) -> i32 {
        self.sockets[host].socket(AF_INET, kind, 0).expect("room")
    }

    /// A socket of the server that listens.
    pub fn listener(&mut self, port: u16) -> i32 {
        let listener = self.socket(SERVER, SOCK_STREAM);
        self.sockets[SERVER].bind(listener, at(SERVER, port)).expect("a free port");
        self.wait(SERVER, |sockets| sockets.listen(listener, 8)).expect("open");
        listener
    }

    /// A connection: the server's descriptor, and the client's.
    pub fn connected(&mut self) -> (i32, i32) {
        let listener = self.listener(PORT);
        let pair = self.connect_to(listener);
        self.sockets[SERVER].close(listener).expect("open");
        pair
    }

    pub fn connect_to(&mut self, listener: i32) -> (i32, i32) {
        let client = self.socket(CLIENT, SOCK_STREAM);
        self.wait(CLIENT, |sockets| sockets.connect(client, at(SERVER, PORT))).expect("accepted");
        let (server, _) = self.wait(SERVER, |sockets| sockets.accept(listener, 0)).expect("knocks");
        (server, client)
    }

    /// A UDP socket on this port.
    pub fn datagrams(&mut self, host: usize, port: u16) -> i32 {
        let socket = self.socket(host, SOCK_DGRAM);
        self.wait(host, |sockets| sockets.bind(socket, at(host, port))).expect("a free port");
        socket
    }

    /// Sends all, as a blocking program does.
    pub fn send(&mut self, host: usize, descriptor: i32, data: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        let mut send = |sockets: &mut Sockets| {
            sockets.send_rest(descriptor, data, 0, (None, &mut done)).map(|_| ())
        };
        self.wait(host, &mut send)
    }

    /// What one call that blocks reads.
    pub fn read(&mut self, host: usize, descriptor: i32, most: usize) -> Result<Vec<u8>, Errno> {
        let mut buffer = vec![0; most];
        let received = self.wait(host, |sockets| sockets.receive(descriptor, &mut buffer, 0))?;
        buffer.truncate(received.bytes);
        Ok(buffer)
    }

    /// What `poll` says at once of a descriptor.
    pub fn ready(&mut self, host: usize, descriptor: i32) -> u32 {
        let mut polled = [PollFd { descriptor, events: u32::MAX, found: 0 }];
        let now = self.now;
        self.sockets[host].set_now(now);
        self.sockets[host].poll(&mut polled, Some(Instant::ZERO)).expect("no waiting");
        polled[0].found
    }

    /// Connections that the stack of a host has.
    pub fn connections(&self, host: usize) -> u32 {
        self.threads[host].stack().connections()
    }

    pub fn resets(&self, host: usize) -> u64 {
        self.threads[host].stack().stats().tcp_resets_out
    }

    pub fn segments(&self, host: usize) -> u64 {
        self.threads[host].stack().stats().tcp_segments_out
    }

    /// Whether the sockets of a host want to be run.
    pub fn wishes(&self, host: usize) -> bool {
        self.sockets[host].wake_at().is_some()
    }
}

impl Drop for World {
    /// Whatever the test did, nothing of it stays: descriptors, connections, packet memory.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.is_joined = true;
        for descriptor in 0..16 {
            for sockets in &mut self.sockets {
                let _ = sockets.set_linger(descriptor, None);
                let _ = sockets.close(descriptor);
            }
        }
        let end = self.now + Duration::from_secs(200);
        while self.now < end && (self.connections(0) > 0 || self.connections(1) > 0) {
            self.step();
            self.now += Duration::from_millis(1);
        }
        for host in [SERVER, CLIENT] {
            assert_eq!(self.connections(host), 0, "every connection ended");
        }
        self.pass(Duration::from_millis(1));
        for thread in &self.threads {
            assert_eq!(thread.pool().available(), CHUNKS as usize, "all packet memory came back");
        }
        let names: Vec<_> = self.sockets.iter_mut().map(|sockets| sockets.epoll_create()).collect();
        assert_eq!(names, [Ok(0), Ok(0)], "every descriptor is free");
    }
}
