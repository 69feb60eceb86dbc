//! Two hosts on a wire: one leaves, under either scheduler, and at any point of its cycle. Its peer is told,
//! and all packet memory is back where it came from.

use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use std::collections::VecDeque;

use clock::{Duration, Instant};
use domain::{Calls, Cookie, DeadReason, Event, Events, Handle, Service};
use mem::{Mbuf, Pool, Region, TxFrame};
use nic::{Armed, Capabilities, Closed, Nic, NicStats, QueueSet};
use stack::{Secrets, Shared, StackConfig};
use wire::{Address, Endpoint, Ipv4Addr, MacAddr};

use crate::*;

pub(crate) const SERVER: Endpoint = Endpoint::v4(Ipv4Addr::new(10, 0, 0, 1), 80);
pub(crate) const DATAGRAMS: Endpoint = Endpoint { port: 53, ..SERVER };
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(crate) const CHUNKS: u32 = if cfg!(miri) { 1_536 } else { 4_096 };
pub(crate) const CLIENT_CHUNKS: u32 = if cfg!(miri) { 512 } else { 2_048 };
pub(crate) const CORES: usize = 2;
pub(crate) const CONNECTIONS: usize = if cfg!(miri) { 8 } else { 24 };
/// Of all threads' cycles, until nothing is left to do.
pub(crate) const ROUNDS: usize = if cfg!(miri) { 15 } else { 100 };

/// Frames on their way, by the queue that they wait in: the server's cores', then the client's.
pub(crate) type Wire = Rc<RefCell<[VecDeque<Vec<u8>>; CORES + 2]>>;

/// A queue pair. All that the client sends comes to the server's first core. A frame that is sent stays with
/// the device until the next reclaim.
pub(crate) struct Port {
    pub wire: Wire,
    pub queue: usize,
    pub to: usize,
    pub sent: Vec<TxFrame>,
    /// How often somebody has asked what waits in it.
    pub looks: Cell<u32>,
}

impl Port {
    pub fn new(wire: &Wire, queue: usize, to: usize) -> Self {
        Self { wire: Rc::clone(wire), queue, to, sent: Vec::new(), looks: Cell::new(0) }
    }
}

impl Nic for Port {
    fn arm(&mut self) -> Armed {
        if self.wire.borrow()[self.queue].is_empty() { Armed::Quiet } else { Armed::HasWork }
    }
    fn receive(&mut self, _: Instant, pool: &mut Pool, out: &mut Vec<Mbuf>, limit: usize) -> usize {
        let waiting = &mut self.wire.borrow_mut()[self.queue];
        let count = waiting.len().min(limit);
        out.extend(waiting.drain(..count).map(|frame| {
            let mut mbuf = pool.alloc().expect("memory enough");
            mbuf.append(&frame).expect("a frame fits");
            mbuf
        }));
        count
    }
    fn transmit(&mut self, _: Instant, _: &mut Pool, frames: &mut Vec<TxFrame>) -> usize {
        let count = frames.len();
        for frame in frames.drain(..) {
            self.wire.borrow_mut()[self.to].push_back(frame.bytes().to_vec());
            self.sent.push(frame);
        }
        count
    }
    fn reclaim(&mut self, pool: &mut Pool) -> usize {
        self.sent.drain(..).map(|frame| pool.complete(frame)).count()
    }
    fn close(mut self, pool: &mut Pool) -> Closed {
        Closed { returned: self.reclaim(pool) as u32, lost: 0 }
    }
    fn in_flight(&self) -> usize {
        self.sent.len()
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            driver: "test",
            mode: "copy",
            mac: MacAddr([2, 0, 0, 0, 0, 9]),
            max_frame_bytes: 1514,
            rx_checksums_verified: true,
            tx_checksum_offload: false,
            tx_ring_frames: 1024,
        }
    }
    fn stats(&self) -> NicStats {
        NicStats::default()
    }
    fn rx_backlog(&self) -> usize {
        self.looks.set(self.looks.get() + 1);
        self.wire.borrow()[self.queue].len()
    }
}

/// Sends every byte back.
struct Echo;

impl Service for Echo {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            match event {
                Event::Knock { handle, .. } => calls.accept(handle, Cookie(1)).expect("room"),
                Event::Recv { handle, data, .. } => {
                    calls.sendv(handle, &[data]).expect("room");
                    calls.recv_done(handle, data.len()).expect("room");
                }
                _ => {}
            }
        }
    }

    fn runs_anywhere(&self) -> bool {
        true
    }
}

/// Opens connections, and says something on all of them when it is told to.
#[derive(Default)]
struct Caller {
    asked: usize,
    lines: Vec<Handle>,
    speak: bool,
    heard: usize,
    dead: Vec<DeadReason>,
}

impl Service for Caller {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            match event {
                Event::Connected { outcome, .. } => {
                    self.lines.push(outcome.expect("it is let in").0)
                }
                Event::Recv { handle, data, .. } => {
                    self.heard += data.len();
                    calls.recv_done(handle, data.len()).expect("room");
                }
                Event::Dead { handle, reason, .. } => {
                    self.lines.retain(|line| *line != handle);
                    self.dead.push(reason);
                }
                _ => {}
            }
        }
        while self.asked < CONNECTIONS && calls.connect(Cookie(0), SERVER).is_ok() {
            self.asked += 1;
        }
        if core::mem::take(&mut self.speak) {
            self.lines.iter().for_each(|&line| calls.sendv(line, &[b"hello"]).expect("room"));
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        (self.asked < CONNECTIONS || self.speak).then_some(Instant::ZERO)
    }
}

pub(crate) fn shared(address: impl Into<Address>, mac: MacAddr, cores: usize) -> Arc<Shared> {
    let key = |byte| [byte; 16];
    let secrets =
        Secrets { rss_key: wire::MICROSOFT_KEY, isn_key: key(1), port_key: key(2), offset: 3 };
    let mut config = StackConfig::new(address, 24, mac);
    config.tcp_listen = [SERVER.port].into();
    config.udp_bind = [DATAGRAMS.port].into();
    Arc::new(Shared::new(config, &secrets, cores as u8))
}

/// The server's threads, all connections open.
struct Rig<T> {
    threads: VecDeque<T>,
    region: Arc<Region>,
    client: ElasticThread<Port>,
    client_region: Arc<Region>,
    caller: Caller,
    now: Instant,
}

pub(crate) fn parts(region: &Arc<Region>, wire: &Wire) -> Vec<Parts<Port>> {
    let part = |(queue, ports)| {
        let nic = Port::new(wire, queue, CORES);
        Parts { queues: nic.into(), pool: Pool::new(region, 256), ports }
    };
    forwarding_mesh(CORES, 64).into_iter().enumerate().map(part).collect()
}

/// The same of a device with one queue: the second thread has none.
fn of_one_queue(wire: &Wire, region: &Arc<Region>) -> Vec<Parts<Port>> {
    let sets = QueueSet::deal(alloc::vec![Port::new(wire, 0, CORES)], CORES).expect("a queue");
    let part = |(queues, ports)| Parts { queues, pool: Pool::new(region, 256), ports };
    sets.into_iter().zip(forwarding_mesh(CORES, 64)).map(part).collect()
}

fn completing_of<N: Nic>(parts: Vec<Parts<N>>) -> Vec<ElasticThread<N>> {
    let shared = shared(SERVER.addr, MacAddr([2, 0, 0, 0, 0, 1]), CORES);
    let thread = |(core, Parts { queues, pool, ports })| {
        let (shared, config) = (Arc::clone(&shared), ElasticConfig::default());
        ElasticThread::new(core as u8, shared, queues, pool, ports, config, Instant::ZERO)
    };
    parts.into_iter().enumerate().map(thread).collect()
}

fn conserving_of<N: Nic>(parts: Vec<Parts<N>>) -> Vec<ConservingThread<N>> {
    let shared = shared(SERVER.addr, MacAddr([2, 0, 0, 0, 0, 1]), CORES);
    let (elastic, conserving) = (ElasticConfig::default(), ConservingConfig::default());
    Floor::threads(&shared, parts, elastic, conserving, Instant::ZERO)
}

fn completing(wire: &Wire, region: &Arc<Region>) -> Vec<ElasticThread<Port>> {
    completing_of(parts(region, wire))
}

fn conserving(wire: &Wire, region: &Arc<Region>) -> Vec<ConservingThread<Port>> {
    conserving_of(parts(region, wire))
}

fn completing_by_one_queue(wire: &Wire, region: &Arc<Region>) -> Vec<ElasticThread<Port>> {
    completing_of(of_one_queue(wire, region))
}

fn conserving_by_one_queue(wire: &Wire, region: &Arc<Region>) -> Vec<ConservingThread<Port>> {
    conserving_of(of_one_queue(wire, region))
}

impl<T: Elastic> Rig<T> {
    fn new(make: impl FnOnce(&Wire, &Arc<Region>) -> Vec<T>) -> Self {
        let wire = Wire::default();
        let (region, client_region) = (Region::heap(CHUNKS), Region::heap(CLIENT_CHUNKS));
        let client = ElasticThread::new(
            0,
            shared(CLIENT, MacAddr([2, 0, 0, 0, 0, 2]), 1),
            Port::new(&wire, CORES, 0),
            Pool::new(&client_region, 256),
            ForwardPorts::default(),
            ElasticConfig::default(),
            Instant::ZERO,
        );
        let threads = make(&wire, &region).into();
        let (caller, now) = (Caller::default(), Instant::from_millis(1));
        let mut rig = Self { threads, region, client, client_region, caller, now };
        rig.go_on();
        assert_eq!(rig.caller.lines.len(), CONNECTIONS);
        rig.ask();
        rig.go_on();
        assert_eq!(rig.caller.heard, 5 * CONNECTIONS);
        rig
    }

    /// Something is said on all connections.
    fn ask(&mut self) {
        self.caller.speak = true;
        self.run_client();
    }

    fn run_client(&mut self) {
        self.now += Duration::from_micros(5);
        while self.client.run_cycle(self.now, &mut self.caller).pending {}
    }

    /// Both go on for a while.
    fn go_on(&mut self) {
        for _ in 0..ROUNDS {
            self.run_client();
            for thread in &mut self.threads {
                self.now += Duration::from_micros(1);
                thread.cycle(self.now, &mut self.now, &mut Echo);
            }
        }
    }

    /// The first of the server's threads withdraws, as far as it can, and leaves.
    fn one_leaves(&mut self) -> Left {
        let mut thread = self.threads.pop_front().expect("a thread");
        let mut cycles = 0;
        while thread.withdraw(self.now) {
            self.run_client();
            cycles += 1;
            assert!(cycles < 1_000, "it goes on for ever");
        }
        thread.leave()
    }

    /// Connections of the first of the server's threads.
    fn at_home(&self) -> usize {
        self.threads[0].inspect(|stack, _| stack.connections()) as usize
    }

    /// All of the server's memory is back, and all of the client's when it has left too.
    fn account(mut self) {
        assert_eq!(self.region.depot_len(), self.region.chunks() as usize);
        self.run_client();
        Elastic::leave(self.client);
        assert_eq!(self.client_region.depot_len(), self.client_region.chunks() as usize);
    }
}

fn whoever_is_connected_is_told<T: Elastic>(mut rig: Rig<T>) {
    rig.ask();
    let mut left = Left::default();
    while !rig.threads.is_empty() {
        left += rig.one_leaves();
        rig.run_client();
    }
    assert_eq!(left.connections.reset, CONNECTIONS as u64);
    assert_eq!((left.connections.untold, left.memory.lost), (0, 0));
    assert_eq!(rig.caller.dead, [DeadReason::Reset; CONNECTIONS]);
    rig.account();
}

#[test]
fn whoever_is_connected_is_told_by_either_scheduler() {
    whoever_is_connected_is_told(Rig::new(completing));
    whoever_is_connected_is_told(Rig::new(conserving));
}

/// A thread that has sent nothing is waited for, too: it may have connections that came to it by a migration.
fn a_silent_thread_is_waited_for<T: Elastic>(make: fn(&Wire, &Arc<Region>) -> Vec<T>) {
    let (region, now) = (Region::heap(CHUNKS), Instant::from_millis(1));
    let mut threads = make(&Wire::default(), &region);
    let (other, mut relay) = (threads.pop().expect("one"), threads.pop().expect("another"));
    (0..ROUNDS).for_each(|_| assert!(relay.withdraw(now), "the other is there"));
    other.leave();
    assert!(!relay.withdraw(now));
    relay.leave();
    assert_eq!(region.depot_len(), region.chunks() as usize);
}

/// The thread that has the device's queue is the first to withdraw: it stays until it has sent what the other has to say.
fn last_frames_are_sent<T: Elastic>(mut rig: Rig<T>) {
    assert!(rig.threads.iter().all(|thread| thread.inspect(|stack, _| stack.connections() > 0)));
    rig.ask();
    let (mut sender, mut other) =
        (rig.threads.pop_front().expect("a thread"), rig.threads.pop_front().expect("another"));
    (0..ROUNDS).for_each(|_| assert!(sender.withdraw(rig.now), "the other is there"));
    while other.withdraw(rig.now) {
        assert!(sender.withdraw(rig.now), "the other is there");
        rig.run_client();
    }
    let mut left = other.leave();
    while sender.withdraw(rig.now) {
        rig.run_client();
    }
    left += sender.leave();
    rig.run_client();
    assert_eq!((left.connections.untold, left.memory.lost), (0, 0));
    assert_eq!(rig.caller.dead, [DeadReason::Reset; CONNECTIONS]);
    rig.account();
}

#[test]
fn the_last_frames_of_a_thread_without_a_queue_are_sent() {
    a_silent_thread_is_waited_for(completing_by_one_queue);
    a_silent_thread_is_waited_for(conserving_by_one_queue);
    last_frames_are_sent(Rig::new(completing_by_one_queue));
    last_frames_are_sent(Rig::new(conserving_by_one_queue));
    memory_comes_back(completing_by_one_queue);
    memory_comes_back(conserving_by_one_queue);
}

/// Threads leave without a word, out of each of the points at which a cycle can be interrupted.
fn memory_comes_back<T: Elastic>(make: fn(&Wire, &Arc<Region>) -> Vec<T>) {
    for stage in if cfg!(miri) { 1..2 } else { 0..3 } {
        let mut rig = Rig::new(make);
        rig.ask();
        // The first forwards what is the second one's, and has its own in hand.
        for thread in &mut rig.threads {
            if thread.begin(rig.now) && stage > 0 {
                let (events, mut calls) = thread.crossing(|| rig.now);
                Echo.on_batch(rig.now, events, &mut calls);
            }
            if stage > 1 {
                thread.finish(rig.now);
            }
        }
        let mut left = Left::default();
        rig.threads.drain(..).for_each(|thread| left += thread.leave());
        assert_eq!((left.connections.reset, left.memory.lost), (0, 0), "stage {stage}");
        assert_eq!(left.connections.untold, CONNECTIONS as u64, "stage {stage}");
        rig.account();
    }
}

#[test]
fn memory_comes_back_out_of_the_midst_of_a_cycle() {
    memory_comes_back(completing);
    memory_comes_back(conserving);
}

fn one_leaves_and_the_other_goes_on<T: Elastic>(mut rig: Rig<T>) {
    // The second core leaves: frames come to the first.
    rig.threads.rotate_left(1);
    let gone = rig.at_home();
    assert!(gone > 0 && gone < CONNECTIONS, "connections live at both");
    // A request of each of its connections waits where it leaves.
    rig.ask();
    rig.threads[1].cycle(rig.now, &mut rig.now, &mut Echo);
    rig.one_leaves();
    rig.go_on();
    let stay = CONNECTIONS - gone;
    assert_eq!(rig.caller.dead, alloc::vec![DeadReason::Reset; gone]);
    let heard = rig.caller.heard;
    rig.ask();
    rig.go_on();
    assert_eq!((rig.caller.heard - heard, rig.at_home()), (5 * stay, stay));
    let left = rig.one_leaves();
    rig.run_client();
    assert_eq!((left.connections.untold, left.memory.lost), (0, 0));
    assert_eq!(rig.caller.dead, [DeadReason::Reset; CONNECTIONS]);
    rig.account();
}

#[test]
fn one_leaves_and_the_other_goes_on_under_either_scheduler() {
    one_leaves_and_the_other_goes_on(Rig::new(completing));
    one_leaves_and_the_other_goes_on(Rig::new(conserving));
}

#[test]
fn what_is_forwarded_to_one_who_has_left_comes_back() {
    let region = Region::heap(64);
    let mut pool = Pool::new(&region, 64);
    let mut ports = forwarding_mesh(3, 4).into_iter();
    let (mut first, second, third) = (ports.next(), ports.next(), ports.next());
    let first = first.as_mut().expect("three of them");
    let mut send = |to, pool: &mut Pool| {
        let mbuf = pool.alloc().expect("a chunk");
        first.send(to, mbuf).map_err(|mbuf| pool.free(mbuf))
    };
    send(1, &mut pool).expect("room");
    second.expect("three of them").close(&mut pool);
    // It has left and nobody knows yet.
    for _ in 0..3 {
        send(1, &mut pool).expect("room");
    }
    send(1, &mut pool).expect_err("its ring is full");
    send(2, &mut pool).expect("room");
    // One is dropped, as a thread that could not start does.
    drop(third);
    assert_eq!(pool.available(), 64 - 5);
    core::mem::take(first).close(&mut pool);
    assert_eq!(pool.available(), 64);
}
