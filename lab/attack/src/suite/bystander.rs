//! A second dataplane on the same machine, with its own application: each of its requests is checked, and timed in
//! short windows, before, between and during the attacks on the first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clock::{Clock, MonotonicClock};
use dataplane::{ElasticConfig, ElasticThread, ForwardPorts};
use domain::{Calls, Cookie, Event, Events, Handle, Service};
use measure::stats::nearest;
use mem::{Pool, Region};
use nic::loopback::{LoopbackConfig, LoopbackNic, WhenFull, pair};
use stack::{Shared, StackConfig};
use wire::{Endpoint, Ipv4Addr, MacAddr};

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 7, 0, 1), Ipv4Addr::new(10, 7, 0, 2)];
const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 7, 0, 1]), MacAddr([2, 0, 0, 7, 0, 2])];
const PORT: u16 = 7;
const CHUNKS: u32 = 512;
/// Cycles of both sides in which an answer comes, if it comes.
const CYCLES: usize = 1_000;
/// A request that takes longer is slow: some fifty times the usual. Neighbours of the machine stall a thread so, and an
/// attack may: hence such a window counts like any other, and the suite compares how many there are of either kind.
const SLOW: Duration = Duration::from_micros(50);
/// Bytes of a request.
const BYTES: usize = 64;

/// Returns what comes.
struct Echo;

impl Service for Echo {
    fn on_batch(&mut self, _: clock::Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            // One that finds no room is a request lost, which is counted where it is asked.
            let _ = match event {
                Event::Knock { handle, .. } => calls.accept(handle, Cookie(0)),
                Event::Recv { handle, data, .. } => {
                    calls.sendv(handle, &[data]).and_then(|()| calls.recv_done(handle, data.len()))
                }
                _ => Ok(()),
            };
        }
    }
}

/// Asks one request at a time.
#[derive(Default)]
struct Asks {
    handle: Option<Handle>,
    connecting: bool,
    to_send: Option<[u8; BYTES]>,
    received: Vec<u8>,
    ended: bool,
}

impl Service for Asks {
    fn on_batch(&mut self, _: clock::Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        if !self.connecting {
            self.connecting = calls.connect(Cookie(0), Endpoint::new(ADDRESSES[0], PORT)).is_ok();
        }
        for event in events.iter() {
            match event {
                Event::Connected { outcome: Ok((handle, _)), .. } => self.handle = Some(handle),
                Event::Recv { handle, data, .. } => {
                    self.received.extend_from_slice(data);
                    self.ended |= calls.recv_done(handle, data.len()).is_err();
                }
                Event::Sent { .. } => {}
                _ => self.ended = true,
            }
        }
        if let (Some(handle), Some(bytes)) = (self.handle, self.to_send.take()) {
            self.ended |= calls.sendv(handle, &[&bytes]).is_err();
        }
    }

    fn wake_at(&self) -> Option<clock::Instant> {
        Some(clock::Instant::ZERO)
    }
}

/// A window's latencies.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Of 99 in 100 requests at most this, in nanoseconds.
    pub p99_ns: u64,
    /// A request took longer than [`SLOW`].
    pub slow: bool,
}

/// See the module's comment.
pub struct Bystander {
    server: ElasticThread<LoopbackNic>,
    client: ElasticThread<LoopbackNic>,
    asks: Asks,
    clock: MonotonicClock,
    number: u64,
    /// Requests so far.
    pub asked: u64,
    /// Those without an answer, or with a wrong one.
    pub lost: u64,
    latencies: Vec<u64>,
}

fn thread(
    index: usize,
    nic: LoopbackNic,
    now: clock::Instant,
) -> anyhow::Result<ElasticThread<LoopbackNic>> {
    let mut settings = StackConfig::new(ADDRESSES[index], 24, MACS[index]);
    settings.tcp_listen = vec![PORT];
    let secrets = runtime::draw_secrets()?;
    let shared = Arc::new(Shared::new(settings, &secrets, 1));
    let pool = Pool::new(&Region::heap(CHUNKS), CHUNKS as usize);
    let (ports, elastic) = (ForwardPorts::default(), ElasticConfig::default());
    Ok(ElasticThread::new(0, shared, nic, pool, ports, elastic, now))
}

impl Bystander {
    /// Both of its sides, connected.
    ///
    /// # Errors
    /// They do not connect.
    pub fn new() -> anyhow::Result<Self> {
        let clock = MonotonicClock::new();
        let wire = LoopbackConfig { macs: MACS, when_full: WhenFull::Wait, ..Default::default() };
        let (near, far) = pair(wire);
        let server = thread(0, near, clock.now())?;
        let client = thread(1, far, clock.now())?;
        let asks = Asks::default();
        let latencies = Vec::with_capacity(1 << 16);
        let mut bystander =
            Self { server, client, asks, clock, number: 0, asked: 0, lost: 0, latencies };
        for _ in 0..CYCLES {
            bystander.cycles();
        }
        ensure!(bystander.asks.handle.is_some(), "the second application did not connect");
        Ok(bystander)
    }

    fn cycles(&mut self) {
        self.client.run_cycle(self.clock.now(), &mut self.asks);
        self.server.run_cycle(self.clock.now(), &mut Echo);
    }

    /// One request and its answer.
    fn ask(&mut self) {
        self.number += 1;
        let mut bytes = [0; BYTES];
        let mut word = self.number;
        for byte in &mut bytes {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            *byte = (word >> 56) as u8;
        }
        self.asks.received.clear();
        self.asks.to_send = Some(bytes);
        self.asked += 1;
        for _ in 0..CYCLES {
            self.cycles();
            if self.asks.received.len() >= BYTES || self.asks.ended {
                break;
            }
        }
        self.lost += u64::from(self.asks.received != bytes || self.asks.ended);
    }

    /// Asks for so long, one request after the other.
    pub fn window(&mut self, length: Duration) -> Window {
        self.latencies.clear();
        let began = Instant::now();
        let (mut before, mut slow) = (began, false);
        // Warm again: what ran here meanwhile is not what is measured.
        for _ in 0..20 {
            self.ask();
            before = Instant::now();
        }
        while before.duration_since(began) < length {
            self.ask();
            let now = Instant::now();
            let took = now.duration_since(before);
            slow |= took > SLOW;
            // Beyond its first capacity nothing is kept: a window is short.
            if self.latencies.len() < self.latencies.capacity() {
                self.latencies.push(took.as_nanos() as u64);
            }
            before = now;
        }
        self.latencies.sort_unstable();
        Window { p99_ns: nearest(&self.latencies, 0.99), slow }
    }
}
