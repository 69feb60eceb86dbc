//! Forwarding rings keep order and refuse what does not fit.

use alloc::sync::Arc;

use clock::{Duration, Instant};
use domain::{Calls, Events, Service};
use mem::{Pool, Region};
use wire::{Endpoint, EtherType, EthernetRepr, MacAddr};

use super::*;
use crate::leave_tests::{CLIENT, DATAGRAMS, Port, SERVER, Wire, shared};

/// The driver of a test: its clock stands during a cycle, and its threads do not sleep.
impl Driver for Instant {
    fn now(&self) -> Instant {
        *self
    }
    fn signal(&mut self, _wakes: u128, _kicks: u128) {}
}

#[test]
fn forwarded_packets_arrive_in_order() {
    let mut pool = Pool::new(&Region::heap(16), 16);
    let mut ports = forwarding_mesh(3, 4);
    for value in 0..4 {
        let mut mbuf = pool.alloc().expect("a chunk");
        mbuf.tag = value;
        ports[0].send(2, mbuf).expect("room for four");
    }
    let mbuf = pool.alloc().expect("a chunk");
    let mbuf = ports[0].send(2, mbuf).expect_err("full");
    let mbuf = ports[0].send(0, mbuf).expect_err("not to itself");
    let mbuf = ports[0].send(7, mbuf).expect_err("no such core");
    pool.free(mbuf);
    assert!(ports[2].has_work() && !ports[1].has_work());
    let mut out = Vec::new();
    let heard = &mut Vec::new();
    assert_eq!(ports[2].receive(&mut out, 3, heard), 3);
    assert_eq!(ports[2].receive(&mut out, 3, heard), 1);
    assert!(heard.is_empty());
    assert_eq!(out.iter().map(|mbuf| mbuf.tag).collect::<Vec<_>>(), [0, 1, 2, 3]);
    for mbuf in out {
        pool.free(mbuf);
    }
    assert_eq!(pool.available(), 16);
}

/// Is in debt for a second after each batch, and would have another one at any time.
#[derive(Default)]
struct Debtor {
    batches: u32,
    events: usize,
    has_batch: bool,
    free_at: Instant,
}

impl Service for Debtor {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, _: &mut Calls<'_>) {
        self.batches += 1;
        self.events += events.iter().count();
        self.has_batch = true;
    }
    fn wake_at(&self) -> Option<Instant> {
        Some(Instant::ZERO)
    }
    fn is_away(&mut self, now: Instant) -> bool {
        !self.has_batch && now < self.free_at
    }
    fn has_batch(&self) -> bool {
        self.has_batch
    }
    fn collect(&mut self, now: Instant, _: &mut Calls<'_>) {
        self.has_batch = false;
        self.free_at = now + Duration::from_secs(1);
    }
}

/// One thread, whose frames come from `wire`.
fn alone(wire: &Wire, region: &Arc<Region>, config: ElasticConfig) -> ElasticThread<Port> {
    let (shared, now) = (shared(SERVER.addr, MacAddr([2, 0, 0, 0, 0, 1]), 1), Instant::ZERO);
    let (nic, pool) = (Port::new(wire, 0, 1), Pool::new(region, 256));
    ElasticThread::new(0, shared, nic, pool, ForwardPorts::default(), config, now)
}

/// A batch is paid for when its calls are collected: the next one waits, though more came meanwhile.
#[test]
fn a_service_in_debt_has_no_batch_in_the_cycle_that_collects_its_calls() {
    let mut thread = alone(&Wire::default(), &Region::heap(512), ElasticConfig::default());
    let mut now = Instant::from_millis(1);
    let mut debtor = Debtor::default();
    for _ in 0..10_000 {
        thread.run_cycle(now, &mut debtor);
        now += Duration::from_millis(1);
    }
    assert!((9..=11).contains(&debtor.batches), "{} batches in 10 s", debtor.batches);
    Elastic::leave(thread);
}

/// Packets that a service in debt has no room for wait in the device, and the thread sleeps until it has paid.
#[test]
fn a_thread_whose_service_is_in_debt_sleeps_though_packets_wait() {
    let (region, wire) = (Region::heap(512), Wire::default());
    let config = ElasticConfig { batch: 2, calls: 1, ..ElasticConfig::default() };
    let mut thread = alone(&wire, &region, config);
    let mut frame = [0; 60];
    let ethernet = EthernetRepr {
        dst: MacAddr([2, 0, 0, 0, 0, 1]),
        src: MacAddr([2, 0, 0, 0, 0, 2]),
        ethertype: EtherType::IPV4,
    };
    ethernet.emit(&mut frame);
    let from = Endpoint::new(CLIENT, 9);
    wire::emit_udp_packet(&mut frame[EthernetRepr::HEADER_LEN..], from, DATAGRAMS, b"asked");
    wire.borrow_mut()[0].extend(core::iter::repeat_n(frame.to_vec(), 100));

    let mut now = Instant::from_millis(1);
    let mut debtor = Debtor { free_at: now + Duration::from_secs(1), ..Debtor::default() };
    let mut cycles = 0;
    while thread.run_cycle(now, &mut debtor).pending || !thread.sleeps(now) {
        cycles += 1;
        assert!(cycles < 100, "it never rests");
    }
    thread.disarm();
    let waiting = wire.borrow()[0].len();
    assert!(waiting > 50 && !thread.takes_packets(), "{waiting} packets wait in the device");
    assert!(!thread.run_cycle(now, &mut debtor).worked);

    now = debtor.free_at;
    let progress = thread.run_cycle(now, &mut debtor);
    assert!(progress.worked && thread.takes_packets());
    for _ in 0..50 {
        let progress = thread.run_cycle(now, &mut debtor);
        assert!(progress.ready > 0 || debtor.events == 100, "what waits is shown");
        now += Duration::from_secs(1);
    }
    assert_eq!((debtor.events, wire.borrow()[0].len()), (100, 0));
    Elastic::leave(thread);
}
