//! Forwarding rings keep order and refuse what does not fit.

use clock::{Duration, Instant};
use domain::{Calls, Events, Service};
use mem::{Pool, Region};
use wire::MacAddr;

use super::*;
use crate::leave_tests::{Port, SERVER, Wire, shared};

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
    has_batch: bool,
    free_at: Instant,
}

impl Service for Debtor {
    fn on_batch(&mut self, _: Instant, _: Events<'_>, _: &mut Calls<'_>) {
        self.batches += 1;
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

/// A batch is paid for when its calls are collected: the next one waits, though more came meanwhile.
#[test]
fn a_service_in_debt_has_no_batch_in_the_cycle_that_collects_its_calls() {
    let (region, wire) = (Region::heap(512), Wire::default());
    let mut now = Instant::from_millis(1);
    let mut thread = ElasticThread::new(
        0,
        shared(SERVER.addr, MacAddr([2, 0, 0, 0, 0, 1]), 1),
        Port::new(&wire, 0, 1),
        Pool::new(&region, 256),
        ForwardPorts::default(),
        ElasticConfig::default(),
        now,
    );
    let mut debtor = Debtor::default();
    for _ in 0..10_000 {
        thread.run_cycle(now, &mut debtor);
        now += Duration::from_millis(1);
    }
    assert!((9..=11).contains(&debtor.batches), "{} batches in 10 s", debtor.batches);
    Elastic::leave(thread);
}
