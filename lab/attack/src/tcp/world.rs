//! The network under attack in virtual time: a server whose core's work has a price, hosts that work for nothing, and an
//! attacker.
//!
//! Server and hosts are elastic threads with the real stack. A cycle of the server takes as long as [`price`] says for
//! what it received, served and sent; meanwhile frames wait in a receive ring that drops what it has no room for.

use std::sync::Arc;

use clock::{Duration, Instant};
use dataplane::{Elastic, ElasticConfig, ElasticThread, ForwardPorts};
use mem::{Pool, Region};
use stack::{Keepalive, Secrets, Shared, StackConfig};
use tailplane::{Server, Service};
use wire::{Address, MacAddr};
use world::cores::Costs;
use world::dice::Dice;
use world::network::{Faults, Network, SharedNetwork, Spread};
use world::port::{PortConfig, VirtualNic};

use super::attackers::Attacker;
use super::frames::{
    CLIENT_MAC, CLIENTS, GATEWAY, GATEWAY_MAC, PREFIX_BITS, SERVER, SERVER_MAC, Segment, VICTIM,
    VICTIM_MAC, arp_answer,
};
use super::honest::{Found, Honest, Pace, Replies};

/// Half-open connections of the server at most.
pub const BACKLOG: u32 = 4_096;
/// Where the network meets the gateway, behind which attackers are.
const GATEWAY_PORT: usize = 2;
/// Frames that a receive ring holds.
const RING_FRAMES: usize = 1_024;
/// From one host to another, and how much more or less where frames overtake each other.
const DELAY: Duration = Duration::from_micros(3);
const DELAY_VARIES: Duration = Duration::from_micros(1);
/// A host's timer that is due fires within a tick of its timing wheel.
const TICK: Duration = Duration::from_micros(16);
/// How long the last answers may take, several retransmissions of a lost segment among them.
const DRAIN: Duration = Duration::from_secs(30);
/// Moments of a run at most.
pub const STEPS_MAX: u64 = 20_000_000;
/// How long the server has to forget peers that fell silent: longer than each of its time-outs.
const SETTLE: Duration = Duration::from_secs(1_800);
/// When the network layer asks connections without data under way for a sign of life: nothing else ends those of hosts
/// that vanished.
const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(120), interval: Duration::from_secs(10), probes: 3 };

/// What the server's core takes, in nanoseconds: assumed, and more than this stack needs, so that an attack on the
/// processor shows.
fn price() -> Costs {
    Costs {
        name: "attacked".to_owned(),
        cycle: 100.0,
        receive: 50.0,
        segment: 250.0,
        crossing: 50.0,
        event: 100.0,
        call: 50.0,
        transmit: 100.0,
        doorbell: 50.0,
        ..Costs::zero()
    }
}

/// A host: its elastic thread and its service.
struct Node<S> {
    thread: ElasticThread<VirtualNic>,
    service: S,
    price: Costs,
    chunks: u32,
    /// It has something to do as soon as its core is free.
    is_ready: bool,
    free_at: Instant,
    /// When a timer fires.
    timer: Instant,
}

impl<S: Service> Node<S> {
    fn new(
        (address, mac): (Address, MacAddr),
        network: &SharedNetwork,
        (price, chunks): (Costs, u32),
        service: S,
        change: impl FnOnce(&mut StackConfig),
    ) -> Self {
        let mut config = StackConfig::new(address, PREFIX_BITS, mac);
        config.set_gateway(GATEWAY);
        change(&mut config);
        let key = [mac.0[5]; 16];
        let secrets =
            Secrets { rss_key: wire::MICROSOFT_KEY, isn_key: key, port_key: key, offset: 5 };
        let port = network.borrow_mut().attach(mac, 1, Spread::OneQueue);
        let device = PortConfig {
            max_frame_bytes: 1_514,
            ring_frames: RING_FRAMES,
            longest_read: Duration::ZERO,
            rx_checksums_verified: false,
            tx_checksum_offload: false,
        };
        let nic = VirtualNic::new(network.clone(), port, 0, device, Dice::new(0, "device", 0));
        let pool = Pool::new(&Region::heap(chunks), chunks as usize);
        let (shared, limits) =
            (Arc::new(Shared::new(config, &secrets, 1)), ElasticConfig::default());
        let ports = ForwardPorts::default();
        let thread = ElasticThread::new(0, shared, nic, pool, ports, limits, Instant::ZERO);
        let (free_at, timer) = (Instant::ZERO, Instant::ZERO);
        Self { thread, service, price, chunks, is_ready: true, free_at, timer }
    }

    fn next(&self) -> Instant {
        let wish = self.service.wake_at().unwrap_or(Instant::FAR_FUTURE);
        let at = if self.is_ready { Instant::ZERO } else { self.timer.min(wish) };
        at.max(self.free_at)
    }

    /// One cycle: its frames leave once what it received and served has been paid for.
    fn cycle(&mut self, now: Instant) {
        let Self { thread, service, price, .. } = self;
        let before = (thread.stats(), thread.nic_stats());
        let has_events = thread.begin(now);
        let received = (thread.nic_stats().rx_frames - before.1.rx_frames) as f64;
        let mut ns = price.cycle + received * (price.receive + price.segment);
        if has_events || service.wake_at().is_some_and(|at| at <= now) {
            let (events, mut calls) = thread.crossing(|| now);
            ns += price.crossing + events.len() as f64 * price.event;
            service.on_batch(now, events, &mut calls);
        }
        let served = now + Duration::from_nanos(ns as u64);
        let progress = thread.finish(served);
        let calls = (thread.stats().calls - before.0.calls) as f64;
        let sent = (thread.nic_stats().tx_frames - before.1.tx_frames) as f64;
        let doorbell = if sent > 0.0 { price.doorbell } else { 0.0 };
        let ns = calls * price.call + doorbell + sent * price.transmit;
        self.free_at = served + Duration::from_nanos(ns as u64);
        self.is_ready = progress.pending || progress.waiting > 0;
        self.timer = progress.next_deadline.unwrap_or(Instant::FAR_FUTURE).max(served + TICK);
    }

    /// Chunks in use, and connections in any state, half-open ones among them.
    fn holds(&self) -> Held {
        self.thread.inspect(|stack, pool| Held {
            chunks: u64::from(self.chunks) - pool.available() as u64,
            connections: stack.connections().into(),
        })
    }
}

/// What a stack holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Held {
    /// Chunks of packet memory, of 2 KiB each.
    pub chunks: u64,
    /// Connections in any state, half-open ones among them.
    pub connections: u64,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// What the honest clients found.
    pub honest: Found,
    /// Frames that the attacker sent, and that the server sent to anything but honest clients.
    pub sent: u64,
    /// See [`sent`](Self::sent).
    pub answers: u64,
    /// Frames that the victim sent the server.
    pub from_victim: u64,
    /// Moments at which something happened: [`STEPS_MAX`] where it would have gone on for ever.
    pub steps: u64,
    /// The most that the server ever held.
    pub peak: Held,
    /// What it holds at the end beyond what it held at the start.
    pub left: Held,
}

/// What is run.
pub struct Plan {
    /// How the honest clients ask, from when the attack begins until it ends.
    pub pace: Pace,
    /// All draws follow from it.
    pub seed: u64,
    /// Packet memory of each host, in chunks of 2 KiB.
    pub chunks: u32,
    /// Frames that are sent together come out of order.
    pub reorders: bool,
    /// ARP requests for addresses that are none of the hosts' are answered: with the gateway's link address.
    pub answers_arp: bool,
    /// The attacker answers also when the attack is over, so that only the server can end what it began.
    pub goes_on: bool,
}

struct World {
    network: SharedNetwork,
    server: Node<Server<Replies>>,
    /// Clients that are near, clients behind the gateway, and the victim: by port, from the second on.
    hosts: [Node<Honest>; 3],
    attacker: Option<Box<dyn Attacker>>,
    answers_arp: bool,
    now: Instant,
    ran: Ran,
}

/// Runs a plan with an attacker, or without one: quiet.
pub fn run(plan: &Plan, attacker: Option<Box<dyn Attacker>>) -> Ran {
    let varies = if plan.reorders { DELAY_VARIES } else { Duration::ZERO };
    let (delay_min, delay_max) = (DELAY - varies, DELAY + varies);
    let faults = Faults { delay_min, delay_max, queue_frames: RING_FRAMES, ..Faults::none() };
    let network = Network::new(plan.seed, faults);
    let listens = |config: &mut StackConfig| {
        (config.tcp_listen, config.backlog) = (vec![SERVER.port], BACKLOG);
        config.keepalive = Some(KEEPALIVE);
    };
    let server = (SERVER.addr, SERVER_MAC);
    let server = Node::new(server, &network, (price(), plan.chunks), Server::new(Replies), listens);
    let host = |name, pace, neighbors| {
        let service = Honest::new(pace, plan.seed);
        Node::new(name, &network, (Costs::zero(), plan.chunks), service, |config| {
            config.neighbors = neighbors
        })
    };
    // The victim asks once, and its connection stays.
    let once = Pace { lines: 1, gap: 4 * plan.pace.until.since(plan.pace.from), ..plan.pace };
    let half = Pace { lines: plan.pace.lines / 2, ..plan.pace };
    let hosts = [
        host((CLIENTS[0].into(), CLIENT_MAC), half, Vec::new()),
        // From behind the gateway, that one leads to the server.
        host((CLIENTS[1].into(), GATEWAY_MAC), half, vec![(GATEWAY.into(), SERVER_MAC)]),
        host((VICTIM.into(), VICTIM_MAC), once, Vec::new()),
    ];
    network.borrow_mut().capture = Some(Vec::new());
    let (answers_arp, now, ran) = (plan.answers_arp, Instant::ZERO, Ran::default());
    let mut world = World { network, server, hosts, attacker, answers_arp, now, ran };
    let before = world.server.holds();
    world.pass(plan.pace.until);
    if !plan.goes_on {
        world.attacker = None;
    }
    let settle = if plan.goes_on { Duration::ZERO } else { SETTLE };
    world.pass(plan.pace.until + DRAIN + settle);
    let after = world.server.holds();
    world.ran.left = Held {
        chunks: after.chunks - before.chunks,
        connections: after.connections - before.connections,
    };
    for host in &world.hosts[..CLIENTS.len()] {
        world.ran.honest += &host.service.found;
    }
    world.ran
}

impl World {
    /// Time passes, unless that takes too many steps.
    fn pass(&mut self, end: Instant) {
        while self.ran.steps < STEPS_MAX {
            self.ran.steps += 1;
            let hosts = self.hosts.iter().map(Node::next).min();
            let attacker = self.attacker.as_ref().map(|attacker| attacker.next());
            let network = self.network.borrow().next_due();
            let next = [hosts, attacker, network].into_iter().flatten().min();
            let next = next.map_or(self.server.next(), |next| next.min(self.server.next()));
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            self.step();
        }
    }

    fn step(&mut self) {
        let Self { network, server, hosts, now, .. } = self;
        network.borrow_mut().deliver(*now, |port, _| match port {
            0 => server.is_ready = true,
            port => hosts.iter_mut().skip(port - 1).take(1).for_each(|host| host.is_ready = true),
        });
        if server.next() <= *now {
            server.cycle(*now);
            let held = server.holds();
            let peak = &mut self.ran.peak;
            peak.chunks = peak.chunks.max(held.chunks);
            peak.connections = peak.connections.max(held.connections);
        }
        for host in hosts.iter_mut().filter(|host| host.next() <= *now) {
            host.cycle(*now);
        }
        let mut out = Vec::new();
        if let Some(attacker) = self.attacker.as_mut().filter(|attacker| attacker.next() <= *now) {
            attacker.act(&mut out);
        }
        self.send(self.now, &mut out);
        let seen = self.network.borrow_mut().capture.replace(Vec::new());
        seen.into_iter().flatten().for_each(|(at, frame)| self.tap(at, &frame));
    }

    fn send(&mut self, at: Instant, out: &mut Vec<Segment>) {
        self.ran.sent += out.len() as u64;
        let mut network = self.network.borrow_mut();
        out.drain(..).for_each(|segment| network.send(at, GATEWAY_PORT, &segment.frame()));
    }

    /// A frame passes the server's port.
    fn tap(&mut self, at: Instant, frame: &[u8]) {
        if let Some((asked, answer)) = arp_answer(frame) {
            let is_host = asked == VICTIM || CLIENTS.contains(&asked);
            self.ran.answers += u64::from(!is_host);
            if asked == GATEWAY || self.answers_arp && !is_host {
                self.network.borrow_mut().send(at, GATEWAY_PORT, &answer);
            }
        } else if let Some(segment) = Segment::parse(frame) {
            let is_answer =
                segment.src == SERVER && !CLIENTS.map(Address::from).contains(&segment.dst.addr);
            self.ran.answers += u64::from(is_answer);
            self.ran.from_victim += u64::from(frame.get(6..12) == Some(&VICTIM_MAC.0));
            let mut out = Vec::new();
            if let Some(attacker) = &mut self.attacker {
                attacker.hear(segment, &mut out);
            }
            self.send(at, &mut out);
        }
    }
}
