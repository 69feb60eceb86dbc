//! Forwarding rings keep order and refuse what does not fit.

use clock::Instant;
use mem::{Pool, Region};

use super::*;

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
