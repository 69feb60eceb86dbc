//! Who wakes, kicks and counts upon whom: the cores of a work-conserving dataplane, step by step on a virtual clock.
//! All connections are at home at core 0.

use alloc::sync::Arc;
use alloc::vec::Vec;

use clock::{Duration, Instant};
use domain::{Calls, Cookie, Event, Events, Handle, Service};
use mem::{Pool, Region};
use nic::QueueSet;
use wire::MacAddr;

use crate::leave_tests::{CHUNKS, CLIENT, CLIENT_CHUNKS, Port, ROUNDS, SERVER, Wire, shared};
use crate::*;

/// The queue of the client, behind those of the cores.
const CLIENT_QUEUE: usize = 3;
/// What a unit of a request's only byte takes in the application.
const UNIT: Duration = Duration::from_nanos(500);

/// Opens connections, and sends requests of one byte.
#[derive(Default)]
struct Asking {
    to_open: usize,
    lines: Vec<Handle>,
    /// Of each request, the connection and the byte.
    to_send: Vec<(usize, u8)>,
}

impl Service for Asking {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            match event {
                Event::Connected { outcome, .. } => self.lines.push(outcome.expect("let in").0),
                Event::Recv { handle, data, .. } => {
                    calls.recv_done(handle, data.len()).expect("room");
                }
                _ => {}
            }
        }
        for _ in 0..core::mem::take(&mut self.to_open) {
            calls.connect(Cookie(0), SERVER).expect("room");
        }
        for (line, byte) in self.to_send.drain(..) {
            calls.sendv(self.lines[line], &[&[byte]]).expect("room");
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        (self.to_open + self.to_send.len() > 0).then_some(Instant::ZERO)
    }
}

/// Echoes, and takes as long as each request's byte says.
#[derive(Default)]
struct Serving {
    /// The requests of the last batch, and what they took.
    bytes: Vec<u8>,
    took: Duration,
    /// When the last batch should have ended.
    yield_at: Option<Instant>,
    wishes: bool,
    /// Calls of each batch that fail, on a connection that is none.
    failing: usize,
}

impl Service for Serving {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        (self.bytes, self.took) = (Vec::new(), Duration::ZERO);
        self.yield_at = calls.yield_at();
        for event in events.iter() {
            match event {
                Event::Knock { handle, .. } => calls.accept(handle, Cookie(1)).expect("room"),
                Event::Recv { handle, data, .. } => {
                    self.bytes.extend(data);
                    data.iter().for_each(|&units| self.took += UNIT * u32::from(units));
                    calls.sendv(handle, &[data]).expect("room");
                    calls.recv_done(handle, data.len()).expect("room");
                }
                _ => {}
            }
        }
        for _ in 0..self.failing {
            self.took += UNIT;
            calls.accept(Handle::from_bits(u64::MAX >> 1), Cookie(2)).expect("room");
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.wishes.then_some(Instant::ZERO)
    }

    fn runs_anywhere(&self) -> bool {
        true
    }
}

/// A server of up to three cores, all connections open and all cores idle.
struct Rig {
    now: Instant,
    threads: Vec<ConservingThread<Port>>,
    serving: Vec<Serving>,
    client: ElasticThread<Port>,
    asking: Asking,
    /// Of a core without a queue.
    relayed: QueueSet<Port>,
    regions: [Arc<Region>; 2],
}

impl Rig {
    fn new(cores: usize, lines: usize, sharing: ConservingConfig) -> Self {
        let wire = Wire::default();
        let (region, client_region) = (Region::heap(CHUNKS), Region::heap(CLIENT_CHUNKS));
        let (now, elastic) = (Instant::from_millis(1), ElasticConfig::default());
        let server = shared(SERVER.addr, MacAddr([2, 0, 0, 0, 0, 1]), 1);
        let port = |queue| Port::new(&wire, queue, CLIENT_QUEUE);
        // The first core sends for a further one.
        let mut queues =
            QueueSet::deal((0..cores).map(port).collect(), cores + 1).expect("a queue");
        let relayed = queues.pop().expect("one without a queue");
        let part = |(queues, ports)| Parts { queues, pool: Pool::new(&region, 256), ports };
        let parts = queues.into_iter().zip(forwarding_mesh(cores, 64)).map(part).collect();
        let threads = Floor::threads(&server, parts, elastic, sharing, now);
        let client = ElasticThread::new(
            0,
            shared(CLIENT, MacAddr([2, 0, 0, 0, 0, 2]), 1),
            Port::new(&wire, CLIENT_QUEUE, 0),
            Pool::new(&client_region, 256),
            ForwardPorts::default(),
            elastic,
            now,
        );
        let serving = (0..cores).map(|_| Serving::default()).collect();
        let asking = Asking { to_open: lines, ..Asking::default() };
        let regions = [region, client_region];
        let mut rig = Self { now, threads, serving, client, asking, relayed, regions };
        rig.go_on();
        assert_eq!(rig.asking.lines.len(), lines);
        rig
    }

    fn step(&mut self) -> Instant {
        self.now += Duration::from_micros(1);
        self.now
    }

    fn run_client(&mut self) {
        let now = self.step();
        while self.client.run_cycle(now, &mut self.asking).pending {}
    }

    /// One request on each of the first connections, on the wire.
    fn ask(&mut self, bytes: &[u8]) {
        self.asking.to_send.extend(bytes.iter().copied().enumerate());
        self.run_client();
    }

    /// A further connection's first segment, on the wire.
    fn knock(&mut self) {
        self.asking.to_open = 1;
        self.run_client();
    }

    /// A core goes into the application, if there is something: answers whether.
    fn begin(&mut self, core: usize) -> bool {
        let now = self.step();
        let found = self.threads[core].begin(now);
        if found {
            let (events, mut calls) = self.threads[core].crossing(|| now);
            self.serving[core].on_batch(now, events, &mut calls);
        }
        found
    }

    /// The core comes back, after as long as its requests took.
    fn finish(&mut self, core: usize) -> Progress {
        self.now += core::mem::take(&mut self.serving[core].took);
        self.threads[core].finish(self.now)
    }

    fn cycle(&mut self, core: usize) -> Progress {
        self.begin(core);
        self.finish(core)
    }

    /// All cores, until each has been idle for a while. Nobody is named to be woken any more.
    fn go_on(&mut self) {
        for _ in 0..ROUNDS {
            self.run_client();
            (0..self.threads.len()).for_each(|core| _ = self.cycle(core));
        }
        self.threads.iter_mut().for_each(|thread| _ = (thread.take_wakes(), thread.take_kicks()));
    }

    fn sleeps(&mut self, core: usize) -> bool {
        self.threads[core].sleeps(self.now)
    }

    fn is_marked_idle(&self, core: usize) -> bool {
        self.threads[core].tender().floor.shuffle.is_marked_idle(core)
    }

    /// All leave, and all memory is back.
    fn account(self) {
        self.threads.into_iter().for_each(|thread| _ = thread.leave());
        Elastic::leave(self.client);
        self.relayed.close(&mut Pool::new(&self.regions[0], 0));
        for region in self.regions {
            assert_eq!(region.depot_len(), region.chunks() as usize);
        }
    }

    /// How often somebody has looked into the ring of core 0.
    fn looks(&mut self) -> u32 {
        let mut looks = 0;
        self.threads[0].with_queues(|queues| queues.in_turn(|port| looks += port.looks.get()));
        looks
    }
}

fn by(while_away: WhileAway) -> ConservingConfig {
    ConservingConfig { while_away, ..ConservingConfig::default() }
}

#[test]
fn a_sleeping_home_is_woken_for_what_a_kick_took_in() {
    let mut rig = Rig::new(2, 2, by(WhileAway::Kick));
    assert!(rig.sleeps(0));
    let tender = rig.threads[0].tender();
    assert_eq!(tender.tend(rig.step()), 0, "nothing came");
    rig.knock();
    let now = rig.step();
    // A connection that is half open has a timer, which is the home's.
    assert_eq!(tender.tend(now), 0b01);
    drop(tender);
    rig.account();
}

#[test]
fn a_sleeping_home_is_borrowed_and_woken() {
    let mut rig = Rig::new(2, 2, by(WhileAway::Borrow));
    assert!(rig.sleeps(0));
    rig.ask(&[1]);
    rig.now += Duration::from_micros(20);
    assert!(rig.begin(1), "the layer of a core that sleeps is free");
    assert_eq!((rig.serving[1].bytes.as_slice(), rig.threads[1].take_wakes()), (&[1][..], 0b01));
    rig.account();
}

#[test]
fn what_others_did_in_the_layer_is_looked_at_before_a_sleep() {
    let mut rig = Rig::new(2, 2, by(WhileAway::Kick));
    let tender = rig.threads[0].tender();
    let before = rig.finish(0);
    assert!(!before.worked);
    assert!(rig.threads[0].is_quiet());
    // A late kick: between the end of the home's cycle and the announcement of its sleep. A connection that is half
    // open has a timer that the home's deadline does not know.
    rig.knock();
    tender.tend(rig.step());
    assert!(!rig.threads[0].is_quiet(), "its deadline is stale");
    rig.finish(0);
    assert!(rig.threads[0].is_quiet(), "it has seen what there is");
    drop(tender);
    rig.account();
}

#[test]
fn a_reply_brought_home_is_kicked_for_though_somebody_has_looked() {
    let mut rig = Rig::new(3, 2, by(WhileAway::Kick));
    rig.ask(&[1, 1]);
    assert!(rig.begin(0) && rig.begin(1), "one turn each");
    rig.now += Duration::from_micros(3);
    let before = rig.looks();
    assert!(!rig.begin(2));
    assert_eq!((rig.looks(), rig.threads[2].take_kicks()), (before + 1, 0), "a look in vain");
    rig.finish(1);
    assert_eq!(rig.threads[1].take_kicks(), 0b001, "the reply waits for the home");
    rig.account();
}

#[test]
fn idle_cores_look_less_and_less_often() {
    let mut rig = Rig::new(3, 2, by(WhileAway::Kick));
    rig.ask(&[1]);
    assert!(rig.begin(0));
    let before = rig.looks();
    let cycles = if cfg!(miri) { 100 } else { 500 };
    for _ in 0..cycles {
        rig.cycle(1);
        rig.cycle(2);
    }
    // At first soon, then once in 20 us; two cores that take turns have a pause each.
    let looks = rig.looks() - before;
    assert!(
        (cycles * 2 / 25..=cycles * 3 / 25).contains(&looks),
        "{looks} looks in {} us",
        2 * cycles
    );
    rig.account();
}

#[test]
fn events_taken_in_are_kicked_for() {
    let mut rig =
        Rig::new(2, 8, ConservingConfig { crossing: Duration::ZERO, ..by(WhileAway::Kick) });
    // Nobody is idle: the home takes one event, and makes no turns of the others.
    rig.threads[1].set_parked(true);
    let before = rig.threads[0].stats().turns;
    rig.ask(&[1; 8]);
    assert!(rig.begin(0));
    assert_eq!(rig.threads[0].stats().turns, before);
    rig.threads[1].set_parked(false);
    rig.now += Duration::from_micros(3);
    assert!(!rig.begin(1));
    assert_eq!(rig.threads[1].take_kicks(), 0b01);
    rig.account();
}

#[test]
fn frames_that_a_core_is_to_send_for_another_are_kicked_for() {
    let mut rig = Rig::new(2, 2, by(WhileAway::Kick));
    rig.ask(&[1]);
    assert!(rig.begin(0));
    rig.now += Duration::from_micros(3);
    assert!(!rig.begin(1));
    assert_eq!(rig.threads[1].take_kicks(), 0, "nothing waits");
    let mut pool = Pool::new(&rig.regions[0], 1);
    let frame = pool.alloc().expect("a chunk").into_tx();
    assert_eq!(rig.relayed.transmit(rig.now, &mut pool, &mut vec![frame]), 1);
    drop(pool);
    rig.now += Duration::from_micros(50);
    rig.cycle(1);
    assert_eq!(rig.threads[1].take_kicks(), 0b01);
    rig.account();
}

#[test]
fn a_core_that_is_parked_calls_another_for_the_turn_that_it_was_woken_for() {
    let mut rig = Rig::new(3, 2, by(WhileAway::Wait));
    rig.ask(&[1, 1]);
    assert!(rig.begin(0));
    assert_eq!(rig.threads[0].take_wakes(), 0b010);
    rig.threads[1].set_parked(true);
    assert!(!rig.threads[1].is_quiet(), "the other one is to be called first");
    rig.cycle(1);
    assert_eq!(rig.threads[1].take_wakes(), 0b100);
    assert!(rig.threads[1].is_quiet());
    rig.account();
}

/// Waking takes so long.
struct SlowBell {
    now: Instant,
    wakes: u128,
}

impl Driver for SlowBell {
    fn now(&self) -> Instant {
        self.now
    }

    fn signal(&mut self, wakes: u128, _: u128) {
        if wakes != 0 {
            self.now += Duration::from_millis(1);
        }
        self.wakes |= wakes;
    }
}

#[test]
fn waking_others_is_no_part_of_a_request() {
    let quantum = Some(Duration::from_micros(5));
    let mut rig = Rig::new(2, 2, ConservingConfig { quantum, ..ConservingConfig::default() });
    rig.ask(&[1, 1]);
    let now = rig.step();
    let mut driver = SlowBell { now, wakes: 0 };
    rig.threads[0].cycle(now, &mut driver, &mut rig.serving[0]);
    assert_eq!(driver.wakes, 0b10);
    let ends = now + Duration::from_millis(1) + Duration::from_micros(5);
    assert_eq!(rig.serving[0].yield_at, Some(ends));
    rig.account();
}

/// Wishes a batch, in which it looks at what others see of its core.
struct Wishing {
    tender: Tender<Port>,
    batches: usize,
    yield_at: Option<Instant>,
}

impl Service for Wishing {
    fn on_batch(&mut self, _: Instant, _: Events<'_>, calls: &mut Calls<'_>) {
        let Tender { floor, core } = &self.tender;
        let away_since =
            floor.sides[*core].hints.away_since.load(core::sync::atomic::Ordering::Relaxed);
        assert!(!floor.shuffle.is_marked_idle(*core), "it takes no turn now");
        assert_ne!(away_since, 0, "its network layer stands still");
        (self.batches, self.yield_at) = (self.batches + 1, calls.yield_at());
    }

    fn wake_at(&self) -> Option<Instant> {
        Some(Instant::ZERO)
    }
}

#[test]
fn a_core_with_a_batch_by_wish_is_busy() {
    let quantum = Some(Duration::from_micros(5));
    let mut rig = Rig::new(2, 2, ConservingConfig { quantum, ..ConservingConfig::default() });
    assert!(rig.is_marked_idle(1));
    let mut wishing = Wishing { tender: rig.threads[1].tender(), batches: 0, yield_at: None };
    let mut now = rig.step();
    rig.threads[1].cycle(now, &mut now, &mut wishing);
    assert_eq!((wishing.batches, wishing.yield_at), (1, Some(now + Duration::from_micros(5))));
    drop(wishing);
    rig.account();
}

/// The size of a crossing is that of the longest events of late. By the mean (1.65 us), six would share one of 10 us.
#[test]
#[cfg_attr(miri, ignore = "thousands of requests, nothing of them unsafe")]
fn short_requests_wait_behind_no_long_one() {
    let mut rig = Rig::new(2, 20, by(WhileAway::Wait));
    rig.threads[1].set_parked(true);
    let (short, long) = (1, 24);
    let mut shared = 0;
    for round in 0..200 {
        // One of ten is long, at a place that changes.
        let bytes: Vec<u8> =
            (0..20).map(|at| if (at + round) % 10 == 0 { long } else { short }).collect();
        rig.ask(&bytes);
        while rig.begin(0) {
            shared += usize::from(round > 20 && rig.serving[0].bytes.len() > 1);
            rig.finish(0);
        }
        rig.run_client();
        rig.cycle(0);
    }
    assert_eq!(shared, 0, "crossings with more than one request");
    rig.account();
}

#[test]
#[cfg_attr(miri, ignore = "thousands of requests, nothing of them unsafe")]
fn short_requests_share_a_crossing_where_none_is_long() {
    let mut rig = Rig::new(2, 20, by(WhileAway::Wait));
    rig.threads[1].set_parked(true);
    let mut most = 0;
    for _ in 0..400 {
        rig.ask(&[1; 20]);
        while rig.begin(0) {
            most = most.max(rig.serving[0].bytes.len());
            rig.finish(0);
        }
        rig.run_client();
        rig.cycle(0);
    }
    assert!((5..=20).contains(&most), "{most} in a crossing of 10 us");
    rig.account();
}

/// Each batch of an application's makes more events than the next one takes: results of calls that fail. Packets find
/// room all the same.
#[test]
#[cfg_attr(miri, ignore = "tens of thousands of calls, nothing of them unsafe")]
fn an_application_whose_calls_fail_does_not_keep_packets_out() {
    const FAILING: usize = 200;
    let mut rig = Rig::new(1, 1, by(WhileAway::Borrow));
    rig.serving[0].failing = FAILING;
    rig.ask(&[1]);
    // Long enough for the event array to overflow several times, where a batch takes a few events of it.
    let capacity = ElasticConfig::default().events();
    for _ in 0..5 * capacity / FAILING {
        rig.cycle(0);
    }
    for byte in 2..10 {
        rig.ask(&[byte]);
        let cycles = (0..capacity).take_while(|_| {
            rig.cycle(0);
            rig.serving[0].bytes != [byte]
        });
        let waited = cycles.count();
        assert!(waited <= 2 * capacity / FAILING, "served after {waited} batches");
    }
    rig.account();
}
