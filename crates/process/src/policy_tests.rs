//! Policies as the application meets them: over a domain of two threads.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clock::Instant;
use domain::{
    CallArray, CallError, CallRecord, Calls, ConnectError, Cookie, Event, EventArray, EventRecord,
    Events, Handle, Held, Service,
};
use mem::{HugePages, Pool, Region};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use wire::{Endpoint, Ipv4Addr};

use crate::{
    Application, Direction, Geometry, Hello, Host, Near, NetworkPolicy, Rates, Rule, Toll, Waiting,
};

const FRIEND: Endpoint = Endpoint::new(Ipv4Addr::new(10, 0, 0, 2), 80);
const STRANGER: Endpoint = Endpoint::new(Ipv4Addr::new(192, 168, 0, 2), 80);

struct NothingHeld;

impl Held for NothingHeld {
    fn held(&self, _: Handle, _: &mut dyn FnMut(&[u8])) {}
}

/// Connects to a friend and a stranger and sends a datagram to each in its first batch, and keeps what it is told.
#[derive(Default)]
struct Asks {
    batches: usize,
    told: Vec<String>,
}

impl Service for Asks {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            self.told.push(match event {
                Event::Connected { cookie, outcome: Err(ConnectError::Forbidden) } => {
                    format!("forbidden {}", cookie.0)
                }
                Event::Failed { error: CallError::Forbidden, .. } => "forbidden datagram".into(),
                Event::Knock { peer, .. } => format!("knock of {peer}"),
                Event::Datagram { peer, .. } => format!("datagram of {peer}"),
                Event::Recv { handle, window, .. } => {
                    calls.sendv(handle, &[&[0; 100]]).expect("room");
                    format!("window {window}")
                }
                other => format!("{other:?}"),
            });
        }
        self.batches += 1;
        if self.batches == 1 {
            for (cookie, peer) in [(1, FRIEND), (2, STRANGER)] {
                calls.connect(Cookie(cookie), peer).expect("room");
                calls.udp_sendv(7, peer, &[b"datagram"]).expect("room");
                calls.udp_sendv(8, peer, &[b"from a port of another"]).expect("room");
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
    let hello = Hello { geometry, waiting: Waiting::default(), segment_bytes: 1_448 };
    let host = Host::new(hello, 1, region).expect("made");
    host.greet(socket.as_fd()).expect("sent");
    let mut fars = Application::join(far).expect("joined").begin(false).expect("sent");
    let mut nears = host.meet(socket.as_fd(), &Arc::default()).expect("met");
    (nears.pop().expect("one"), fars.pop().expect("one"), socket)
}

/// Runs a batch through the dataplane's side; the calls that come out of it.
fn batch(near: &mut Near<'_>, pool: &mut Pool, events: &mut EventArray) -> Vec<CallRecord> {
    let mut array = CallArray::new(64, 1_448);
    let view = events.view(&NothingHeld);
    near.on_batch(Instant::from_nanos(1), view, &mut Calls::new(&mut array, pool));
    let (records, payloads) = array.take();
    payloads.into_iter().for_each(|(mbuf, _)| pool.free(mbuf));
    for (_, mbuf) in events.drain() {
        pool.free(mbuf);
    }
    records
}

fn policy() -> Arc<NetworkPolicy> {
    let rule = |direction| Rule {
        allow: true,
        direction,
        transport: None,
        network: Ipv4Addr::new(10, 0, 0, 0),
        prefix_bits: 8,
        ports: 0..=u16::MAX,
    };
    Arc::new(NetworkPolicy {
        rules: vec![rule(Direction::Out), rule(Direction::In)],
        allow_out: false,
        allow_in: false,
        source_ports: Some(vec![7..=7]),
    })
}

#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn what_is_forbidden_is_told_and_not_done() {
    let region = Region::map(128, HugePages::No).expect("mapped");
    let (near, mut far, _socket) = domain(&region);
    let mut near = near.under(&policy(), None);
    let (stop, mut asks) = (AtomicBool::new(false), Asks::default());
    std::thread::scope(|scope| {
        let _end = Ends(&stop);
        scope.spawn(|| far.run(&mut asks, &stop));
        let mut pool = Pool::new(&region, 100);
        let mut events = EventArray::new(16);
        let asked = batch(&mut near, &mut pool, &mut events);
        assert!(
            matches!(
                asked[..],
                [
                    CallRecord::Connect { peer: FRIEND, .. },
                    CallRecord::UdpSendv { local_port: 7, peer: FRIEND, .. }
                ]
            ),
            "{asked:?}"
        );
        assert!(near.wake_at().is_some(), "what is owed comes at once");
        // Knocks and datagrams of both; the stranger's connection is reset.
        for (index, peer) in [(1, FRIEND), (2, STRANGER)] {
            let handle = Handle::new(1, index, 1);
            let knock = EventRecord::Knock { handle, local_port: 7, peer, window: 9 };
            events.push(knock).expect("room");
            let mut mbuf = pool.alloc().expect("memory");
            mbuf.append(b"hello").expect("room");
            events.push_datagram(7, peer, mbuf).expect("room");
        }
        let asked = batch(&mut near, &mut pool, &mut events);
        let stranger = Handle::new(1, 2, 1);
        assert!(
            matches!(asked[..], [CallRecord::Abort { handle }] if handle == stranger),
            "{asked:?}"
        );
        assert_eq!(near.stats().forbidden(), 4 + 2);
    });
    let forbidden =
        ["forbidden datagram", "forbidden 2", "forbidden datagram", "forbidden datagram"];
    assert_eq!(
        asks.told[..4],
        forbidden,
        "in the order of the calls, before what the network tells"
    );
    assert_eq!(asks.told[4..], [format!("knock of {FRIEND}"), format!("datagram of {FRIEND}")]);
}

/// What is owed takes room in a batch, which then goes over in two: the second tells windows that are left.
#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn windows_are_of_the_moment_also_behind_what_is_owed() {
    let region = Region::map(128, HugePages::No).expect("mapped");
    let (near, mut far, _socket) = domain(&region);
    let mut near = near.under(&policy(), None);
    let (stop, mut asks) = (AtomicBool::new(false), Asks::default());
    std::thread::scope(|scope| {
        let _end = Ends(&stop);
        scope.spawn(|| far.run(&mut asks, &stop));
        let mut pool = Pool::new(&region, 100);
        let mut events = EventArray::new(16);
        batch(&mut near, &mut pool, &mut events);
        for _ in 0..7 {
            let mut mbuf = pool.alloc().expect("memory");
            mbuf.append(b"request").expect("room");
            events.push_recv(Handle::new(1, 1, 1), Cookie(1), mbuf, 0, 1_000).expect("room");
        }
        batch(&mut near, &mut pool, &mut events);
    });
    let told: Vec<&str> = asks.told.iter().map(String::as_str).collect();
    let mut expected =
        vec!["forbidden datagram", "forbidden 2", "forbidden datagram", "forbidden datagram"];
    expected.extend(["window 1000"; 4]);
    expected.extend(["window 600"; 3]);
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
    let near = near.under(&Arc::default(), toll.as_ref());
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
