//! A stack that sends bytes to another one.

use std::sync::Arc;

use clock::{Duration, Instant};
use domain::{CallArray, Calls, Cookie, Event, EventArray, Handle};
use mem::{Pool, Region};
use stack::{CongestionAlgorithm, Ecn, Secrets, Shared, Stack, StackConfig};
use wire::{Endpoint, Ipv4Addr, MacAddr};

use world::path::{Link, Path, too_big};
use world::tail::Tail;

/// When a transfer begins.
const BEGIN: Instant = Instant::from_millis(1_000);
const PORT: u16 = 80;
/// Bytes of a request.
const REQUEST: u64 = 10;
/// Bytes of a full segment, with timestamps.
const MSS: usize = 1448;

/// How a transfer went.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "failures print all of it")]
pub struct Outcome {
    /// Goodput over what the path's rate allows.
    pub share: f64,
    pub took: Duration,
    /// Segments sent again, and those that the path lost and dropped.
    pub again: u64,
    pub lost: u64,
    pub dropped: u64,
    pub timeouts: u64,
    pub probes: u64,
    pub spurious: u64,
    /// Windows that marks shrank, and the 99th percentile of the bytes in the queue of the data.
    pub marked: u64,
    pub queue_p99: u64,
    pub queue_most: u64,
    /// Segments that were too big for the path, times that the sender lowered its size, and losses taken for congestion.
    pub too_big: u64,
    pub lowered: u64,
    pub fast: u64,
}

struct Host {
    stack: Stack,
    pool: Pool,
    events: EventArray,
    calls: CallArray,
    /// Bytes that wait to be sent, and how many may be.
    left: u64,
    credit: u32,
    handle: Option<Handle>,
    received: u64,
    /// Bytes that each request is answered with, where there are requests.
    answer: u64,
}

fn address(host: u8) -> (Ipv4Addr, MacAddr) {
    (Ipv4Addr::new(10, 0, 0, host), MacAddr([2, 0, 0, 0, 0, host]))
}

impl Host {
    fn new(
        [own, other]: [u8; 2],
        algorithm: CongestionAlgorithm,
        path: Path,
        now: Instant,
    ) -> Self {
        let ((ip, mac), (far_ip, far_mac)) = (address(own), address(other));
        let mut config = StackConfig::new(ip, 24, mac);
        config.tcp_listen = vec![PORT];
        config.congestion = algorithm;
        config.ecn = if path.mark.is_some() { Ecn::Ask } else { Ecn::Off };
        config.receive_window_bytes = path.window;
        config.neighbors = vec![(far_ip.into(), far_mac)];
        let secrets = Secrets {
            rss_key: wire::MICROSOFT_KEY,
            isn_key: [own; 16],
            port_key: [own; 16],
            offset: u32::from(own),
        };
        let shared = Arc::new(Shared::new(config, &secrets, 1));
        Self {
            stack: Stack::new(shared, 0, now, 16_384),
            pool: Pool::new(&Region::heap(65_536), 65_536),
            events: EventArray::new(1024),
            calls: CallArray::new(1024, MSS),
            left: 0,
            credit: 0,
            handle: None,
            received: 0,
            answer: 0,
        }
    }

    /// One cycle. Answers the frames that it sends.
    fn cycle(&mut self, now: Instant, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let Self { stack, pool, events, calls, left, credit, handle, received, answer } = self;
        let mut rx = Vec::new();
        for frame in frames {
            let mut mbuf = pool.alloc().expect("enough memory");
            mbuf.append(frame).expect("a frame fits");
            rx.push(mbuf);
        }
        stack.deliver(now, pool, events);
        stack.input(now, &mut rx, pool, events, |_, _, _| unreachable!("one core"));
        assert!(rx.is_empty(), "there is room for all events");
        let view = events.view(stack);
        let mut calls_now = Calls::new(calls, pool);
        for event in view.iter() {
            match event {
                Event::Knock { handle: knocked, window, .. } => {
                    calls_now.accept(knocked, Cookie(1)).expect("room");
                    (*handle, *credit) = (Some(knocked), window);
                }
                Event::Connected { outcome, .. } => {
                    let (opened, window) = outcome.expect("the other end answers");
                    (*handle, *credit) = (Some(opened), window);
                }
                Event::Recv { handle, data, window, .. } => {
                    *credit = window;
                    *received += data.len() as u64;
                    *left += *answer * (data.len() as u64 / REQUEST);
                    calls_now.recv_done(handle, data.len()).expect("room");
                }
                Event::Sent { window, .. } => *credit = window,
                other => panic!("{other:?}"),
            }
        }
        while let Some(handle) = *handle
            && *left > 0
            && *credit > 0
        {
            static BYTES: [u8; 64 << 10] = [7; 64 << 10];
            let mut len = (*left).min((*credit).into()).min(BYTES.len() as u64);
            if len < *left {
                // More follows: full segments, as any sender avoids silly windows.
                len -= len % MSS as u64;
            }
            if len == 0 {
                break;
            }
            if calls_now.sendv(handle, &[&BYTES[..len as usize]]).is_err() {
                break;
            }
            (*left, *credit) = (*left - len, *credit - len as u32);
        }
        let mut buffers: Vec<_> = events.drain().collect();
        stack.execute(now, calls, &mut buffers, pool, events);
        stack.run_timers(now, pool, events);
        stack.flush(now, pool, events);
        let mut sent = Vec::new();
        for frame in core::mem::take(stack.frames()) {
            sent.push(frame.bytes().to_vec());
            pool.complete(frame);
        }
        sent
    }

    fn is_busy(&self) -> bool {
        !self.events.is_empty() || self.stack.has_work()
    }
}

/// Two hosts with a path between them, the first of which has connected to the second.
struct World<'a> {
    path: Path,
    now: Instant,
    hosts: [Host; 2],
    links: [Link; 2],
    cycles: u64,
    /// Whether a frame of the first host's is lost.
    is_doomed: &'a mut dyn FnMut(&[u8]) -> bool,
}

impl<'a> World<'a> {
    fn new(
        algorithm: CongestionAlgorithm,
        path: Path,
        is_doomed: &'a mut dyn FnMut(&[u8]) -> bool,
    ) -> Self {
        let now = BEGIN;
        let mut hosts = [[1, 2], [2, 1]].map(|ends| Host::new(ends, algorithm, path, now));
        let links = [0, 1].map(|direction| Link::new(path, direction, now));
        let far = Endpoint::new(address(2).0, PORT);
        let Host { pool, calls, .. } = &mut hosts[0];
        Calls::new(calls, pool).connect(Cookie(1), far).expect("room");
        Self { path, now, hosts, links, cycles: 0, is_doomed }
    }

    /// Goes on until the second host has received so many bytes.
    fn run_until_received(&mut self, bytes: u64) {
        while self.hosts[1].received < bytes {
            self.cycles += 1;
            let is_endless = self.now.since(BEGIN) >= Duration::from_secs(3_600);
            assert!(!is_endless, "no end: {} cycles", self.cycles);
            let is_first = self.cycles == 1;
            let progress = [0, 1].map(|side| self.step(side, is_first));
            if progress == [false; 2] {
                let timers = self.hosts.iter().filter_map(|host| host.stack.next_timer());
                let next = timers.chain(self.links.iter().filter_map(Link::next)).min();
                let next = next.expect("something happens");
                self.now = next.max(self.now + Duration::from_nanos(1));
            }
        }
    }

    /// A cycle of one host, where it has something to do, or must.
    fn step(&mut self, side: usize, must: bool) -> bool {
        let Self { path, now, hosts, links, is_doomed, .. } = self;
        let (host, now) = (&mut hosts[side], *now);
        let frames = links[1 - side].receive(now);
        let is_due = host.stack.next_timer().is_some_and(|at| at <= now);
        if frames.is_empty() && !host.is_busy() && !is_due && !must {
            return false;
        }
        for frame in host.cycle(now, &frames) {
            let is_doomed = side == 0 && is_doomed(&frame);
            match links[side].check_size(now, &frame) {
                Ok(()) => links[side].send(now, frame, is_doomed),
                Err(mtu) if path.reports => {
                    let report = too_big(mtu, &frame).expect("all are packets");
                    links[1 - side].report(now, report);
                }
                Err(_) => {}
            }
        }
        true
    }
}

/// The times of answers of so many bytes, one after the other, some of which lose their ends.
pub fn answers(
    count: usize,
    bytes: u64,
    algorithm: CongestionAlgorithm,
    path: Path,
) -> Vec<Duration> {
    let mut tail = Tail::new(path.seed, bytes as u32);
    let mut is_doomed = |frame: &[u8]| tail.dooms(frame);
    let mut world = World::new(algorithm, path, &mut is_doomed);
    world.hosts[0].answer = bytes;
    world.hosts[0].left = 1;
    world.run_until_received(1);
    let ask = |number: usize| {
        let asked = world.now;
        world.hosts[1].left = REQUEST;
        world.step(1, true);
        world.run_until_received(1 + (number as u64 + 1) * bytes);
        world.now.since(asked)
    };
    (0..count).map(ask).collect()
}

/// Sends `bytes` over a path.
pub fn transfer(bytes: u64, algorithm: CongestionAlgorithm, path: Path) -> Outcome {
    let segments = bytes.div_ceil(MSS as u64);
    let first_lost = segments - u64::from(path.lose_last).min(segments);
    let mut full_sent = 0;
    let mut is_doomed = |frame: &[u8]| {
        let is_data = frame.len() > 100;
        full_sent += u64::from(is_data);
        is_data && full_sent > first_lost && full_sent <= segments
    };
    let mut world = World::new(algorithm, path, &mut is_doomed);
    world.hosts[0].left = bytes;
    world.run_until_received(bytes);
    let World { now, hosts, mut links, .. } = world;
    let took = now.since(BEGIN);
    let stats = hosts[0].stack.stats();
    let mut found = core::mem::take(&mut links[0].found);
    found.sort_unstable();
    // A full segment is 1,448 bytes of 1,514.
    let most = path.rate as f64 / 8.0 * took.as_secs_f64() * 1448.0 / 1514.0;
    Outcome {
        share: bytes as f64 / most,
        took,
        again: stats.tcp_retransmissions,
        lost: links[0].lost,
        dropped: links[0].dropped,
        timeouts: stats.tcp_timeouts,
        probes: stats.tcp_tail_probes,
        spurious: stats.tcp_spurious_recoveries + stats.tcp_spurious_timeouts,
        marked: stats.tcp_marked_windows,
        queue_p99: found[found.len() * 99 / 100],
        queue_most: found[found.len() - 1],
        too_big: links[0].too_big,
        lowered: stats.tcp_path_mtu_lowered,
        fast: stats.tcp_fast_retransmits,
    }
}
