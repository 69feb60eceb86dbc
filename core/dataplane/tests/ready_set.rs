//! The ready set on two threads and a virtual clock, step by step: which class is served when.
//!
//! All connections are at home at the server's first core; the second has no queue pair of its own to look
//! after, and helps. The client is an elastic thread at the other end of a wire in memory.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use clock::{Duration, Instant};
use dataplane::{
    Classes, ConservingConfig, ConservingThread, CycleStats, Elastic, ElasticConfig, ElasticThread,
    Floor, ForwardPorts, Parts, Progress, ReadySetConfig, ServicePolicy, forwarding_mesh,
};
use domain::{Calls, Cookie, Event, Events, Handle, Service};
use mem::{Pool, Region};
use nic::loopback::{self, LoopbackConfig, LoopbackNic};
use stack::{Secrets, Shared, StackConfig};
use wire::{Endpoint, Ipv4Addr, MICROSOFT_KEY};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// The port of class 0; those of the next classes follow.
const PORT: u16 = 100;
const STEP: Duration = Duration::from_micros(1);

/// Serves connections of any class, and notes the order.
struct Noting {
    /// Of each request, in the order of service: the connection's class, and which core it was.
    served: Rc<RefCell<Vec<(u8, usize)>>>,
    core: usize,
}

impl Service for Noting {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            let done = match event {
                Event::Knock { handle, local, .. } => {
                    calls.accept(handle, Cookie(u64::from(local.port() - PORT)))
                }
                Event::Recv { handle, cookie, data, .. } => {
                    let class = (cookie.0 as u8, self.core);
                    self.served.borrow_mut().extend(data.iter().map(|_| class));
                    calls.recv_done(handle, data.len())
                }
                _ => Ok(()),
            };
            done.expect("room for few calls");
        }
    }

    fn runs_anywhere(&self) -> bool {
        true
    }
}

/// Opens connections to ports, and sends one byte on each of those that it is told.
#[derive(Default)]
struct Asking {
    to_open: Vec<u16>,
    /// By the order in which they were asked for.
    open: Vec<Option<Handle>>,
    to_send: Vec<usize>,
}

impl Service for Asking {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            if let Event::Connected { cookie, outcome, .. } = event {
                let (handle, _) = outcome.expect("the server listens");
                self.open[cookie.0 as usize] = Some(handle);
            }
        }
        for port in self.to_open.drain(..) {
            let cookie = Cookie(self.open.len() as u64);
            self.open.push(None);
            calls.connect(cookie, Endpoint::new(SERVER, port)).expect("room for few calls");
        }
        for connection in self.to_send.drain(..) {
            let handle = self.open[connection].expect("it is open");
            calls.sendv(handle, &[b"x"]).expect("room for few calls");
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        (self.to_open.len() + self.to_send.len() > 0).then_some(Instant::ZERO)
    }
}

fn shared(address: Ipv4Addr, end: usize) -> Arc<Shared> {
    let mut config = StackConfig::new(address, 24, LoopbackConfig::default().macs[end]);
    config.tcp_listen = (PORT..PORT + 3).collect();
    let (isn_key, port_key) = ([1; 16], [2; 16]);
    let secrets = Secrets { rss_key: MICROSOFT_KEY, isn_key, port_key, offset: 3 };
    // One core: the server's second one is home to nobody.
    Arc::new(Shared::new(config, &secrets, 1))
}

struct World {
    now: Instant,
    threads: Vec<ConservingThread<LoopbackNic>>,
    services: Vec<Noting>,
    served: Rc<RefCell<Vec<(u8, usize)>>>,
    client: ElasticThread<LoopbackNic>,
    asking: Asking,
    /// Of each connection.
    classes: Vec<u8>,
}

impl World {
    /// A server of two cores with connections of these classes, all open and quiet.
    fn new(classes: Classes, sharing: ConservingConfig, connections: &[u8]) -> Self {
        Self::sharing(Some(classes), sharing, connections)
    }

    /// The same; without classes, each core has shuffle queues of its own.
    fn sharing(classes: Option<Classes>, sharing: ConservingConfig, connections: &[u8]) -> Self {
        let now = Instant::from_micros(10);
        let region = Region::heap(8_192);
        let (near, far) = loopback::pair(LoopbackConfig::default());
        let (idle, _) = loopback::pair(LoopbackConfig::default());
        let ports = forwarding_mesh(2, 64);
        let part = |(nic, ports): (LoopbackNic, _)| Parts {
            queues: nic.into(),
            pool: Pool::new(&region, 512),
            ports,
        };
        let parts = [near, idle].into_iter().zip(ports).map(part).collect();
        let (elastic, host) = (ElasticConfig::default(), shared(SERVER, 0));
        let threads = match classes {
            Some(classes) => {
                let config = ReadySetConfig { sharing, classes };
                Floor::ready_set(&host, parts, elastic, &config, now)
                    .expect("classes and cores in range")
            }
            None => Floor::threads(&host, parts, elastic, sharing, now),
        };
        let (host, pool) = (shared(CLIENT, 1), Pool::new(&region, 512));
        let client = ElasticThread::new(0, host, far, pool, ForwardPorts::default(), elastic, now);
        let served = Rc::default();
        let to_open = connections.iter().map(|&class| PORT + u16::from(class)).collect();
        let services = (0..2).map(|core| Noting { served: Rc::clone(&served), core }).collect();
        let mut world = Self {
            now,
            threads,
            services,
            served,
            client,
            asking: Asking { to_open, ..Asking::default() },
            classes: connections.to_vec(),
        };
        for _ in 0..200 {
            world.client_cycle();
            world.cycle(0);
        }
        let opened = world.asking.open.iter().flatten().count();
        assert_eq!(opened, connections.len(), "all connections are open");
        world
    }

    fn step(&mut self) -> Instant {
        self.now += STEP;
        self.now
    }

    fn client_cycle(&mut self) {
        let now = self.step();
        self.client.run_cycle(now, &mut self.asking);
    }

    /// One request on each of the connections of these classes, on the wire.
    fn ask(&mut self, classes: &[u8]) {
        for &class in classes {
            let of = self.classes.iter().enumerate().filter(|&(_, &of)| of == class);
            self.asking.to_send.extend(of.map(|(connection, _)| connection));
        }
        self.client_cycle();
    }

    /// A core goes into the application, if there is something; answers whether.
    fn begin(&mut self, core: usize) -> bool {
        let now = self.step();
        let found = self.threads[core].begin(now);
        if found {
            let (events, mut calls) = self.threads[core].crossing(|| now);
            self.services[core].on_batch(now, events, &mut calls);
        }
        found
    }

    /// It comes back.
    fn finish(&mut self, core: usize) -> Progress {
        let now = self.step();
        self.threads[core].finish(now)
    }

    fn cycle(&mut self, core: usize) {
        self.begin(core);
        self.finish(core);
    }

    /// Runs until nothing is left, and answers the classes in the order of service.
    fn classes_served(&mut self, cores: &[usize]) -> Vec<u8> {
        for _ in 0..200 {
            cores.iter().for_each(|&core| self.cycle(core));
        }
        self.take_served().into_iter().map(|(class, _)| class).collect()
    }

    fn take_served(&mut self) -> Vec<(u8, usize)> {
        self.served.take()
    }

    fn stats(&self, core: usize) -> CycleStats {
        self.threads[core].stats()
    }
}

fn two_classes(policy: ServicePolicy) -> Classes {
    let classes = Classes::new(policy).port(PORT, 0).and_then(|classes| classes.port(PORT + 1, 1));
    classes.expect("two classes")
}

/// One turn at a time.
fn one_by_one() -> ConservingConfig {
    ConservingConfig { crossing: Duration::ZERO, ..ConservingConfig::default() }
}

fn of(class: u8, count: usize) -> Vec<u8> {
    vec![class; count]
}

#[test]
fn what_is_urgent_is_served_first_though_it_came_last() {
    let connections = [of(1, 12), of(0, 4)].concat();
    let mut world =
        World::new(two_classes(ServicePolicy::StrictPriority), one_by_one(), &connections);
    world.ask(&[1, 0]);
    assert_eq!(world.classes_served(&[0]), [of(0, 4), of(1, 12)].concat());
    // Overload of class 1 is under way when class 0 comes.
    world.ask(&[1]);
    (0..3).for_each(|_| world.cycle(0));
    world.ask(&[0]);
    assert_eq!(world.classes_served(&[0]), [of(1, 3), of(0, 4), of(1, 9)].concat());
}

#[test]
fn a_long_crossing_is_in_the_order_of_classes_too() {
    let connections = [of(1, 12), of(0, 4)].concat();
    let long = ConservingConfig { crossing: Duration::from_secs(1), ..ConservingConfig::default() };
    let mut world = World::new(two_classes(ServicePolicy::StrictPriority), long, &connections);
    world.ask(&[1, 0]);
    let before = world.stats(0).crossings;
    assert_eq!(world.classes_served(&[0]), [of(0, 4), of(1, 12)].concat());
    assert_eq!(world.stats(0).crossings, before + 1, "nobody waited: one crossing");
}

#[test]
fn whoever_helps_finds_what_came_and_then_serves_the_urgent_first() {
    let connections = [of(1, 6), of(0, 3)].concat();
    let mut world =
        World::new(two_classes(ServicePolicy::StrictPriority), one_by_one(), &connections);
    world.ask(&[1]);
    // The home core makes turns of class 1, and is in the application with the first of them.
    assert!(world.begin(0));
    assert_eq!(world.take_served(), [(1, 0)]);
    // Packets of class 0 come meanwhile: to nobody's knowledge, until the other core looks after them.
    world.ask(&[0]);
    let mut helped = Vec::new();
    for _ in 0..200 {
        world.cycle(1);
        helped.extend(world.take_served());
    }
    let found = helped.iter().position(|&served| served == (0, 1)).expect("it looks");
    assert!(found > 0, "before that, what was ready");
    assert_eq!(helped[found..found + 3], [(0, 1); 3]);
    let rest = [&helped[..found], &helped[found + 3..]].concat();
    assert_eq!(rest, [(1, 1); 5]);
    world.finish(0);
    let stats = world.stats(1);
    assert_eq!((stats.stolen, stats.borrowed > 0), (8, true), "{stats:?}");
}

#[test]
fn what_is_made_of_another_cores_packets_is_served_by_class() {
    let connections = [of(1, 6), of(0, 3)].concat();
    let mut world =
        World::new(two_classes(ServicePolicy::StrictPriority), one_by_one(), &connections);
    world.ask(&[0]);
    assert!(world.begin(0), "the home core is in the application with one of class 0");
    world.ask(&[1]);
    let before = world.take_served();
    assert_eq!(before, [(0, 0)]);
    // The other core takes the rest of class 0, and then borrows.
    let order = world.classes_served(&[1]);
    assert_eq!(order, [of(0, 2), of(1, 6)].concat());
    let stats = world.stats(1);
    assert_eq!((stats.stolen, stats.borrowed > 0), (8, true), "{stats:?}");
    world.finish(0);
    // Replies and windows went home: each connection goes on.
    world.ask(&[1, 0]);
    assert_eq!(world.classes_served(&[0, 1]).len(), 9);
}

#[test]
fn two_cores_serve_in_the_order_of_classes() {
    let connections = [of(2, 10), of(1, 10), of(0, 10)].concat();
    let classes = two_classes(ServicePolicy::StrictPriority).others(2).expect("a class");
    let mut world = World::new(classes, one_by_one(), &connections);
    world.ask(&[2, 1, 0]);
    let served = world.classes_served(&[0, 1]);
    assert_eq!(served, [of(0, 10), of(1, 10), of(2, 10)].concat());
    let stolen = world.stats(1).stolen;
    assert!(stolen > 10, "{stolen} stolen: each core took its part");
}

#[test]
fn weighted_shares_are_the_weights() {
    let connections = [of(1, 8), of(0, 24)].concat();
    let classes = two_classes(ServicePolicy::WeightedRoundRobin).weight(0, 3).expect("a weight");
    let mut world = World::new(classes, one_by_one(), &connections);
    world.ask(&[1, 0]);
    let served = world.classes_served(&[0]);
    // Whatever share of a round is left over from before: three to one in every four that follow.
    for four in served.windows(4).take(28) {
        assert_eq!(four.iter().filter(|&&class| class == 0).count(), 3, "{served:?}");
    }
    assert_eq!(served.len(), 32);
}

#[test]
fn round_robin_serves_all_alike() {
    let connections = [of(2, 4), of(1, 8), of(0, 8)].concat();
    let classes = two_classes(ServicePolicy::RoundRobin).others(2).expect("a class");
    let mut world = World::new(classes, one_by_one(), &connections);
    world.ask(&[0, 1, 2]);
    let served = world.classes_served(&[0]);
    for three in served[..12].chunks(3) {
        let mut three = three.to_vec();
        three.sort_unstable();
        assert_eq!(three, [0, 1, 2], "{served:?}");
    }
}

#[test]
fn a_full_queue_of_one_class_holds_no_other_up() {
    let connections = [of(1, 20), of(0, 2)].concat();
    let sharing = ConservingConfig { turns: 2, ..one_by_one() };
    let mut world = World::new(two_classes(ServicePolicy::StrictPriority), sharing, &connections);
    world.ask(&[1]);
    world.cycle(0);
    assert_eq!(world.take_served(), [(1, 0)]);
    // Two turns of class 1 stand in its queue, and many more wait for room there.
    world.ask(&[0]);
    let served = world.classes_served(&[0]);
    assert_eq!(served, [of(0, 2), of(1, 19)].concat());
}

/// Classes or none: what a cycle leaves for the application is told, until all of it was served.
#[test]
fn what_waits_for_the_application_is_told() {
    for classes in [None, Some(two_classes(ServicePolicy::StrictPriority))] {
        let by_class = classes.is_some();
        let mut world = World::sharing(classes, one_by_one(), &of(1, 8));
        world.ask(&[1]);
        for left in (0..8).rev() {
            world.begin(0);
            let progress = world.finish(0);
            assert_eq!(progress.ready, left, "by class: {by_class}; {progress:?}");
            assert_eq!(progress.waiting, 0, "none is left in the ring");
            assert_eq!(progress.ready_ns > 0, left > 0, "{progress:?}");
        }
        assert_eq!(world.take_served().len(), 8);
        // One that the other core has is told of at its home, and by nobody else.
        world.ask(&[1]);
        assert!(world.begin(0));
        let helps = |world: &mut World| {
            let found = world.begin(1);
            assert_eq!(world.finish(1).ready, 0);
            found
        };
        assert!((0..200).any(|_| helps(&mut world)), "it helps");
        let left = world.finish(0).ready;
        assert!((5..=7).contains(&left), "by class: {by_class}; {left}");
        world.classes_served(&[0, 1]);
        assert_eq!(world.finish(0).ready, 0);
    }
}
