//! The service end to end between two dataplanes joined in memory, on a virtual clock.

use std::sync::Arc;

use clock::{Clock, Duration, Instant, VirtualClock};
use dataplane::{ElasticConfig, ElasticThread, ForwardPorts};
use domain::{Calls, Cookie, Event, Events, Handle, Service};
use echo::Echo;
use mem::{CHUNK_SIZE, Pool, RX_HEADROOM, Region};
use nic::loopback::{LoopbackConfig, LoopbackNic, pair};
use stack::{Secrets, Shared, StackConfig};
use tailplane::Server;
use wire::{Endpoint, Ipv4Addr, MacAddr};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

fn secrets() -> Secrets {
    Secrets { rss_key: wire::MICROSOFT_KEY, isn_key: [1; 16], port_key: [2; 16], offset: 3 }
}

fn thread(
    address: Ipv4Addr,
    last: u8,
    nic: LoopbackNic,
    chunks: u32,
) -> ElasticThread<LoopbackNic> {
    let mut config = StackConfig::new(address, 24, MacAddr([2, 0, 0, 0, 0, last]));
    config.tcp_listen = vec![7];
    let shared = Arc::new(Shared::new(config, &secrets(), 1));
    let pool = Pool::new(&Region::heap(chunks), chunks as usize);
    let ports = ForwardPorts::default();
    ElasticThread::new(0, shared, nic, pool, ports, ElasticConfig::default(), Instant::ZERO)
}

/// Where the driver puts the payload of a segment with timestamps, from the start of its chunk:
/// behind the receive headroom and the Ethernet, IPv4 and TCP headers. A copy would stand in another
/// buffer's place for payloads, or outside the packet memory.
const PLACED_BY_THE_DRIVER: usize = RX_HEADROOM + 14 + 20 + 32;

/// Counts the received buffers that the service sees anywhere else than where the driver put them.
struct Watching {
    inner: Server<Echo>,
    /// The packet memory of this host.
    base: usize,
    bytes: usize,
    seen: usize,
    copied: usize,
}

impl Service for Watching {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            if let Event::Recv { data, .. } = event {
                let offset = (data.as_ptr() as usize).wrapping_sub(self.base);
                let in_place = offset < self.bytes && offset % CHUNK_SIZE == PLACED_BY_THE_DRIVER;
                self.seen += 1;
                self.copied += usize::from(!in_place);
            }
        }
        self.inner.on_batch(now, events, calls);
    }
    fn wake_at(&self) -> Option<Instant> {
        self.inner.wake_at()
    }
}

/// Sends `total` bytes as the window allows and checks what comes back.
#[derive(Default)]
struct Client {
    total: usize,
    started: bool,
    handle: Option<Handle>,
    sent: usize,
    /// Of it, in this batch: the windows of its events do not know of that yet.
    given: usize,
    received: usize,
    closed: bool,
    dead: bool,
}

fn byte_at(offset: usize) -> u8 {
    (offset % 253) as u8
}

impl Client {
    fn fill(&mut self, window: u32, calls: &mut Calls<'_>) {
        let Some(handle) = self.handle else { return };
        let room = (window as usize).saturating_sub(self.given);
        let count = (self.total - self.sent).min(room);
        let data: Vec<u8> = (self.sent..self.sent + count).map(byte_at).collect();
        if count > 0 && calls.sendv(handle, &[&data]).is_ok() {
            self.sent += count;
            self.given += count;
        }
    }
}

impl Service for Client {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        self.given = 0;
        if !self.started {
            self.started = true;
            calls.connect(Cookie(5), Endpoint::new(SERVER, 7)).expect("room");
        }
        for event in events.iter() {
            match event {
                Event::Connected { cookie, outcome, .. } => {
                    assert_eq!(cookie, Cookie(5));
                    let (handle, window) = outcome.expect("connects");
                    self.handle = Some(handle);
                    self.fill(window, calls);
                }
                Event::Recv { handle, data, window, .. } => {
                    for (index, &byte) in data.iter().enumerate() {
                        assert_eq!(byte, byte_at(self.received + index));
                    }
                    self.received += data.len();
                    calls.recv_done(handle, data.len()).expect("room");
                    self.fill(window, calls);
                    if self.received == self.total && !self.closed {
                        self.closed = true;
                        calls.close(handle).expect("room");
                    }
                }
                Event::Sent { window, .. } => self.fill(window, calls),
                Event::Dead { .. } => self.dead = true,
                Event::Eof { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    }
    fn wake_at(&self) -> Option<Instant> {
        (!self.started).then_some(Instant::ZERO)
    }
}

#[test]
fn echoes_a_megabyte() {
    let (a, b) = pair(LoopbackConfig::default());
    let (mut server, mut client) = (thread(SERVER, 1, a, 4096), thread(CLIENT, 2, b, 4096));
    let base = server.pool().region().base().as_ptr() as usize;
    let bytes = server.pool().region().len_bytes();
    let mut echo = Watching { inner: Server::new(Echo), base, bytes, seen: 0, copied: 0 };
    let mut app = Client { total: 1_000_000, ..Client::default() };
    let mut clock = VirtualClock::default();
    for _ in 0..200_000 {
        client.run_cycle(clock.now(), &mut app);
        server.run_cycle(clock.now(), &mut echo);
        clock.advance(Duration::from_micros(5));
        if app.dead {
            break;
        }
    }
    assert!(app.dead, "ends in order: {:?} {:?}", client.stack(), server.stack());
    assert_eq!(app.received, 1_000_000);
    assert!(echo.seen >= 1_000_000 / 1448, "every segment was looked at: {}", echo.seen);
    assert_eq!(echo.copied, 0, "of {} buffers", echo.seen);
    let echo = echo.inner;
    assert_eq!(server.stack().stats().tcp_retransmissions, 0);
    assert_eq!(client.stack().stats().tcp_retransmissions, 0);
    assert_eq!(echo.stats().broken, 0);
    assert_eq!(echo.connections(), 0);
    println!("took {:?} of virtual time; {:?}", clock.now(), server.stack().stats());
}
