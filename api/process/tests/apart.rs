//! Batches that last longer than the call that hands them over: both sides take turns in one thread, so that each
//! moment in which something can happen is a line here.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use clock::{Duration, Instant};
use domain::{
    CallArray, CallRecord, Calls, Cookie, Event, EventArray, EventRecord, Events, Handle, Service,
};
use mem::Pool;
use process::{Far, Geometry, Near, NearBell, Rates, Toll, Waiting};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use support::{Issued, Joined, SEGMENT, issued, join};

const HANDLE: Handle = Handle::new(1, 2, 3);

/// Sends back what comes, and connects once more for each batch if it is to.
#[derive(Default)]
struct Echo {
    batches: usize,
    connects: bool,
    wish: Option<Instant>,
}

impl Service for Echo {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        self.batches += 1;
        for event in events.iter() {
            if let Event::Recv { handle, data, .. } = event {
                calls.sendv(handle, &[data]).expect("room");
                calls.recv_done(handle, data.len()).expect("room");
            }
        }
        if self.connects {
            let peer = wire::Endpoint::v4(wire::Ipv4Addr::new(10, 1, 2, 3), 99);
            calls.connect(Cookie(1), peer).expect("room");
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.wish
    }
}

struct Rig {
    near: Near<'static>,
    far: Far,
    bell: NearBell,
    pool: Pool,
    events: EventArray,
    calls: CallArray,
    joined: (Arc<std::sync::atomic::AtomicBool>, Arc<mem::Region>, std::os::fd::OwnedFd),
}

impl Rig {
    fn new() -> Self {
        Self::with(|near| near)
    }

    fn with(change: impl FnOnce(Near<'static>) -> Near<'static>) -> Self {
        let Joined { near, far, gone, region, sockets } =
            join(Geometry::default(), Waiting::default());
        let mut near = change(near);
        let bell = near.go_apart().expect("it was made with a bell");
        assert!(near.go_apart().is_none(), "there is one bell");
        Self {
            near,
            far,
            bell,
            pool: Pool::new(&region, 512),
            events: EventArray::new(512),
            calls: CallArray::new(1_024, SEGMENT),
            joined: (gone, region, sockets),
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        let mut mbuf = self.pool.alloc().expect("memory");
        mbuf.append(bytes).expect("it fits");
        self.events.push_recv(HANDLE, Cookie(7), mbuf, 0, 100).expect("room");
    }

    fn hand_over(&mut self, now: Instant) {
        let calls = &mut Calls::new(&mut self.calls, &mut self.pool);
        self.near.on_batch(now, self.events.view(&()), calls);
        assert!(issued(&mut self.calls, &mut self.pool).is_empty(), "nobody answered yet");
    }

    fn collect(&mut self, now: Instant) -> Vec<Issued> {
        self.near.collect(now, &mut Calls::new(&mut self.calls, &mut self.pool));
        // Not before: what was received stays where it is for as long as the application has the batch.
        self.events.drain().for_each(|(_, mbuf)| self.pool.free(mbuf));
        issued(&mut self.calls, &mut self.pool)
    }

    /// Whether the bell has been rung.
    fn rings(&self) -> bool {
        let Some(fd) = self.bell.fd() else { return false };
        let mut asked = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("asked") > 0
    }
}

#[test]
fn a_batch_is_away_until_it_is_answered() {
    let mut rig = Rig::new();
    let mut echo = Echo { wish: Some(Instant::from_micros(9)), ..Echo::default() };
    let at = Instant::from_micros;
    assert_eq!(rig.near.wake_at(), Some(Instant::ZERO), "it may begin by itself");
    rig.receive(b"hello");
    rig.receive(&support::payload(SEGMENT));
    rig.hand_over(at(1));
    assert!(rig.near.has_batch() && rig.near.is_away(at(2)));
    assert_eq!(rig.near.wake_at(), None, "nothing is asked of it meanwhile");
    assert!(rig.far.poll(&mut echo) && !rig.far.poll(&mut echo));
    assert!(rig.near.has_batch() && !rig.near.is_away(at(3)));
    let issued = rig.collect(at(3));
    let kinds: Vec<bool> =
        issued.iter().map(|(call, _)| matches!(call, CallRecord::Sendv { .. })).collect();
    // The second send on the same connection continues the first.
    assert_eq!(kinds, [true, false, false], "{issued:?}");
    assert_eq!(issued[0].1, [&b"hello"[..], &support::payload(SEGMENT)].concat());
    assert!(!rig.near.has_batch() && !rig.near.is_away(at(4)));
    assert_eq!(rig.near.wake_at(), Some(at(9)));
    assert_eq!(rig.near.stats().crossings(), 1);
}

/// A thread with a real-time priority that took the end of its application for a ring, again and again, kept that
/// application from ending on its own processor.
#[test]
fn a_bell_that_nobody_can_ring_ends_one_sleep_and_no_more() {
    let Rig { near: _near, far, bell, joined: _joined, .. } = Rig::new();
    assert!(bell.arm() && bell.fd().is_some());
    drop(far);
    bell.disarm();
    assert!(bell.arm(), "it may sleep");
    assert!(bell.fd().is_none(), "its other end is closed");
    bell.disarm();
}

#[test]
fn who_sleeps_is_rung_for_and_who_need_not_does_not_sleep() {
    let mut rig = Rig::new();
    let mut echo = Echo::default();
    assert!(rig.bell.arm(), "it may sleep without a batch");
    rig.bell.disarm();
    rig.receive(b"1");
    rig.hand_over(Instant::ZERO);
    assert!(rig.bell.arm() && !rig.rings());
    assert!(rig.far.poll(&mut echo));
    assert!(rig.rings());
    rig.bell.disarm();
    assert!(!rig.rings() && !rig.bell.arm(), "it is done already");
    rig.bell.disarm();
    assert_eq!(rig.collect(Instant::ZERO).len(), 2);
    // Nobody rings for one who is awake.
    rig.receive(b"2");
    rig.hand_over(Instant::ZERO);
    assert!(rig.far.poll(&mut echo) && !rig.rings());
    assert!(!rig.bell.arm());
    rig.bell.disarm();
}

#[test]
fn who_takes_long_is_reported_once_and_who_has_gone_is_not_waited_for() {
    let mut rig = Rig::new();
    let at = Instant::from_millis;
    let stats = rig.near.stats();
    rig.receive(b"1");
    rig.hand_over(at(0));
    for now in 1..30 {
        assert!(rig.near.is_away(at(now)));
        assert_eq!(stats.is_unresponsive(), now >= 11, "{now} ms");
    }
    assert_eq!(stats.unresponsive(), 1);
    assert!(rig.far.poll(&mut Echo::default()) && !rig.near.is_away(at(30)));
    assert_eq!(rig.collect(at(30)).len(), 2);
    assert!(!stats.is_unresponsive());
    rig.receive(b"2");
    rig.hand_over(at(31));
    assert!(rig.near.is_away(at(31)));
    rig.joined.0.store(true, Ordering::Relaxed);
    assert!(!rig.near.is_away(at(31)), "nobody waits");
    assert!(rig.collect(at(31)).is_empty() && !rig.near.has_batch());
    // Nor is it asked again.
    rig.hand_over(at(32));
    assert!(!rig.near.has_batch());
    assert_eq!((rig.near.wake_at(), stats.crossings()), (None, 2));
}

#[test]
fn who_is_in_debt_gets_its_next_batch_later() {
    let toll = Toll::new(Rates { connections: Some(1), ..Rates::default() });
    let mut rig = Rig::with(|near| near.charged_to(toll.as_ref()));
    let wish = Some(Instant::from_millis(900_000));
    let mut echo = Echo { connects: true, wish, ..Echo::default() };
    let mut now = Instant::from_millis(1);
    let mut held_back = Duration::ZERO;
    for _ in 0..5 {
        while rig.near.is_away(now) {
            assert!(!rig.near.has_batch());
            let at = rig.near.wake_at().expect("it is told when to look again");
            assert!(at > now && at.since(now) <= Duration::from_secs(1), "{at:?}");
            held_back += at.since(now);
            now = at;
        }
        rig.hand_over(now);
        assert!(rig.far.poll(&mut echo) && !rig.near.is_away(now));
        assert_eq!(rig.collect(now).len(), 1);
    }
    assert!(held_back >= Duration::from_secs(2), "five connections at one a second: {held_back:?}");
    assert!(rig.near.stats().held_back() >= 2);
    assert_eq!(echo.batches, 5);
}

/// Keeps what it is told, and answers nothing.
#[derive(Default)]
struct Hears(Vec<String>);

impl Service for Hears {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, _: &mut Calls<'_>) {
        self.0 = events.iter().map(|event| format!("{event:?}")).collect();
    }
}

impl Rig {
    /// What a batch of this size may have in it, in an order that differs from batch to batch.
    fn fill(&mut self, count: usize, batch: usize) {
        let (handle, cookie) = (HANDLE, Cookie(batch as u64));
        for index in batch..batch + count {
            let window = (100 * batch + index) as u32;
            let record = match index % 7 {
                3 => EventRecord::Sent { handle, cookie, bytes: 3, window },
                5 => EventRecord::Eof { handle, cookie },
                _ => {
                    self.receive(format!("{batch}: {index}").as_bytes());
                    continue;
                }
            };
            self.events.push(record).expect("room");
        }
    }

    fn told(&mut self) -> Vec<String> {
        self.events.view(&()).iter().map(|event| format!("{event:?}")).collect()
    }

    fn is_mirrored(&mut self) -> bool {
        self.events.view(&()).is_mirrored()
    }
}

const KNOCK: EventRecord = EventRecord::Knock {
    handle: HANDLE,
    local: domain::LocalEndpoint::new(0, 80),
    peer: wire::Endpoint::v4(wire::Ipv4Addr::new(10, 1, 2, 3), 99),
    window: domain::FirstWindow::new(5),
};

#[test]
fn events_are_written_down_while_the_application_reads_those_before() {
    let (mut rig, mut hears) = (Rig::new(), Hears::default());
    rig.events.mirror_in(Box::new(rig.near.mirror()));
    rig.fill(3, 0);
    for (batch, count) in (1..).zip([1, 2, 64, 1, 300, 5, 0, 2, 2]) {
        if batch == 6 {
            rig.events.push(KNOCK).expect("room");
            let mut mbuf = rig.pool.alloc().expect("memory");
            mbuf.append(b"datagram").expect("it fits");
            let peer = wire::Endpoint::v4(wire::Ipv4Addr::new(10, 1, 2, 3), 98);
            rig.events.push_datagram(80.into(), peer, mbuf).expect("room");
        }
        assert!(rig.is_mirrored(), "batch {batch}");
        let told = rig.told();
        rig.hand_over(Instant::ZERO);
        let mut lent = Vec::new();
        rig.events.take_buffers(&mut lent);
        rig.fill(count, batch);
        assert!(rig.far.poll(&mut hears));
        assert_eq!(hears.0, told, "batch {batch}");
        rig.near.collect(Instant::ZERO, &mut Calls::new(&mut rig.calls, &mut rig.pool));
        lent.into_iter().for_each(|(_, mbuf)| rig.pool.free(mbuf));
        // What changes until the next batch is handed over, it tells.
        rig.events.renew_windows(|_| batch as u32);
    }
}

#[test]
fn more_events_than_fit_are_not_written_beyond_the_array() {
    let (mut rig, mut hears) = (Rig::new(), Hears::default());
    rig.events = EventArray::new(4_096);
    rig.events.mirror_in(Box::new(rig.near.mirror()));
    let most = rig.near.events_max();
    for bytes in 0..most as u32 {
        let sent = EventRecord::Sent { handle: HANDLE, cookie: Cookie(1), bytes, window: bytes };
        rig.events.push(sent).expect("room");
    }
    assert!(rig.is_mirrored());
    let told = rig.told();
    rig.hand_over(Instant::ZERO);
    assert!(rig.far.poll(&mut hears));
    assert_eq!(hears.0, told);
    rig.events.push(EventRecord::Eof { handle: HANDLE, cookie: Cookie(1) }).expect("room");
    assert!(!rig.is_mirrored(), "one more has no place");
}
