//! Rates and windows as the application meets them: over a domain of two threads.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clock::Instant;
use domain::{CallArray, CallRecord, Calls, Cookie, Event, EventArray, Events, Handle, Service};
use mem::{HugePages, Pool, Region};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use wire::{Endpoint, Ipv4Addr};

use crate::{Application, Geometry, Hello, Host, Near, Rates, Toll, Waiting};

const PEERS: [Endpoint; 2] =
    [Endpoint::v4(Ipv4Addr::new(10, 0, 0, 2), 80), Endpoint::v4(Ipv4Addr::new(192, 168, 0, 2), 80)];

/// Connects to two peers and sends datagrams to each in its first batch, and keeps what it is told.
#[derive(Default)]
struct Asks {
    batches: usize,
    told: Vec<String>,
}

impl Service for Asks {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            self.told.push(match event {
                Event::Recv { handle, window, .. } => {
                    calls.sendv(handle, &[&[0; 100]]).expect("room");
                    format!("window {window}")
                }
                other => format!("{other:?}"),
            });
        }
        self.batches += 1;
        if self.batches == 1 {
            for (cookie, peer) in [(1, PEERS[0]), (2, PEERS[1])] {
                calls.connect(Cookie(cookie), peer).expect("room");
                calls.udp_sendv(7, peer, &[b"datagram"]).expect("room");
                calls.udp_sendv(8, peer, &[b"from another port"]).expect("room");
            }
        }
    }
}

/// Lets the application's thread end however the test does.
pub(crate) struct Ends<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Both sides, and the dataplane's end of their socket: an application that waits for a while looks whether that is
/// still there, and ends where it is not.
fn domain(region: &Arc<Region>) -> (Near<'static>, crate::Far, OwnedFd) {
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (socket, far) = pair.expect("made");
    let geometry = Geometry { events: 8, calls: 64, arena_chunks: 64 };
    let hello = Hello { geometry, waiting: Waiting::default(), segment_bytes: 1_448, sums: true };
    let host = Host::new(hello, 1, region).expect("made");
    host.greet(socket.as_fd()).expect("sent");
    let mut fars = Application::join(far).expect("joined").begin(false).expect("sent");
    let mut nears = host.meet(socket.as_fd(), &Arc::default()).expect("met");
    (nears.pop().expect("one"), fars.pop().expect("one"), socket)
}

/// Runs a batch through the dataplane's side; the calls that come out of it.
fn batch(near: &mut Near<'_>, pool: &mut Pool, events: &mut EventArray) -> Vec<CallRecord> {
    let mut array = CallArray::new(64, 1_448);
    let view = events.view(&());
    near.on_batch(Instant::from_nanos(1), view, &mut Calls::new(&mut array, pool));
    let (records, payloads) = array.take();
    payloads.into_iter().for_each(|(mbuf, _)| pool.free(mbuf));
    for (_, mbuf) in events.drain() {
        pool.free(mbuf);
    }
    records
}

/// More events than the array has room for go over in two crossings: the second tells the windows that are left.
#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn the_second_crossing_of_a_batch_tells_the_windows_that_are_left() {
    let region = Region::map(128, HugePages::No).expect("mapped");
    let (mut near, mut far, _socket) = domain(&region);
    let (stop, mut asks) = (AtomicBool::new(false), Asks::default());
    std::thread::scope(|scope| {
        let _end = Ends(&stop);
        scope.spawn(|| far.run(&mut asks, &stop));
        let mut pool = Pool::new(&region, 100);
        let mut events = EventArray::new(16);
        for _ in 0..11 {
            let mut mbuf = pool.alloc().expect("memory");
            mbuf.append(b"request").expect("room");
            events.push_recv(Handle::new(1, 1, 1), Cookie(1), mbuf, 0, 1_000).expect("room");
        }
        batch(&mut near, &mut pool, &mut events);
    });
    let told: Vec<&str> = asks.told.iter().map(String::as_str).collect();
    let mut expected = vec!["window 1000"; 8];
    expected.extend(["window 200"; 3]);
    assert_eq!(told, expected);
}

#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn who_has_used_up_its_rate_gets_its_next_batch_later() {
    let region = Region::map(128, HugePages::No).expect("mapped");
    let (near, mut far, _socket) = domain(&region);
    let toll = Toll::new(Rates { connections: Some(1), ..Rates::default() });
    let (time, runs) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicBool::new(false)));
    let (clock, goes) = (Arc::clone(&time), Arc::clone(&runs));
    let near = near.charged_to(toll.as_ref());
    // Each look at the network takes 10 ms of this clock, once it runs.
    let tick = Duration::from_millis(10).as_nanos() as u64;
    let mut near = near.with_meanwhile(move || {
        let passed = if goes.load(Ordering::Relaxed) { tick } else { 0 };
        Instant::from_nanos(clock.fetch_add(passed, Ordering::Relaxed) + passed)
    });
    let (stop, mut asks) = (AtomicBool::new(false), Asks::default());
    std::thread::scope(|scope| {
        let _end = Ends(&stop);
        scope.spawn(|| far.run(&mut asks, &stop));
        let mut pool = Pool::new(&region, 100);
        let mut events = EventArray::new(16);
        assert_eq!(batch(&mut near, &mut pool, &mut events).len(), 6);
        assert_eq!(near.stats().held_back(), 0);
        runs.store(true, Ordering::Relaxed);
        batch(&mut near, &mut pool, &mut events);
        let now = time.load(Ordering::Relaxed);
        assert!(now >= 1_980_000_000, "two connections at one a second, less a burst: {now} ns");
        assert_eq!(near.stats().held_back(), 1);
    });
    assert_eq!(asks.batches, 2);
}
