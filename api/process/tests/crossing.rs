//! Crossings between two threads that share what two processes would.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clock::{Duration, Instant};
use domain::{CallKind, CallRecord, Calls, ConnectError, Cookie, DeadReason, Event, EventRecord};
use domain::{Events, Handle, LocalEndpoint, Service};
use process::{Placement, Waiting};
use support::{Pair, payload};
use wire::{Endpoint, Ipv4Addr};

/// How long anything that is waited for may take.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// Returns what comes, and remembers all events in words.
#[derive(Default)]
struct Echo {
    seen: Vec<String>,
    wish: Option<Instant>,
}

impl Service for Echo {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        self.seen.push(format!("batch at {} of {}", now.as_nanos(), events.len()));
        for event in events.iter() {
            self.seen.push(format!("{event:?}"));
            match event {
                Event::Knock { handle, .. } => calls.accept(handle, Cookie(7)).expect("room"),
                Event::Recv { handle, data, .. } => {
                    calls.sendv(handle, &[b"<", data, b">"]).expect("room");
                    calls.recv_done(handle, data.len()).expect("room");
                }
                Event::Datagram { local, peer, data } => {
                    calls.udp_sendv(local, peer, &[data]).expect("room");
                }
                Event::Eof { handle, .. } => calls.close(handle).expect("room"),
                Event::Again { handle, .. } => calls.again(handle),
                Event::Connected { cookie, local, .. } => {
                    let peer = Endpoint::new(Ipv4Addr::new(10, 1, 2, 3), 99);
                    calls.connect_from(cookie, local.with_port(0), peer).expect("room");
                }
                Event::Failed { handle, .. } => calls.abort(handle).expect("room"),
                Event::Sent { .. }
                | Event::Dead { .. }
                | Event::Listening { .. }
                | Event::Info { .. } => {}
            }
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.wish
    }
}

fn all_kinds<S>(pair: &mut Pair<S>) {
    let peer = Endpoint::new(Ipv4Addr::new(192, 168, 0, 255), 65_535);
    let (handle, cookie) = (Handle::new(4_000, 9_999_999, 123_456), Cookie(u64::MAX));
    let events = [
        EventRecord::Knock {
            handle,
            local: LocalEndpoint::new(3, 65_000),
            peer,
            window: domain::FirstWindow::new(1),
        },
        EventRecord::Connected {
            cookie,
            local: LocalEndpoint::new(1, 7),
            handle,
            window: u32::MAX,
        },
        EventRecord::ConnectFailed { cookie, error: ConnectError::NoPort },
        EventRecord::Sent { handle, cookie, bytes: 3, window: 4 },
        EventRecord::Eof { handle, cookie },
        EventRecord::Again { handle, cookie, window: 5 },
        EventRecord::Dead { handle, cookie, reason: DeadReason::TimedOut },
        EventRecord::Failed {
            call: CallKind::UdpSendv,
            handle,
            cookie,
            error: domain::CallError::Trimmed { accepted: 77 },
        },
    ];
    for event in events {
        pair.events.push(event).expect("room");
    }
    pair.receive(handle, cookie, b"hello");
    pair.datagram(LocalEndpoint::new(2, 53), peer, &payload(1_400));
}

#[test]
fn an_application_sees_and_does_the_same_as_if_it_were_linked_in() {
    for placement in [Placement::Split, Placement::SameCore] {
        let mut pair = Pair::new(Waiting { placement, ..Waiting::default() }, Echo::default);
        let mut inline = Echo::default();
        for round in 0..100 {
            all_kinds(&mut pair);
            pair.receive(Handle::new(1, 2, 3), Cookie(round), &payload(1 + 14 * round as usize));
            let now = Instant::from_nanos(round * 1_000);
            let expected = pair.inline(now, &mut inline);
            assert_eq!(pair.cross(now), expected, "round {round}");
        }
        let stats = pair.near().stats();
        assert_eq!((stats.violations(), stats.refused()), (0, 0), "{stats:?}");
        let echo = pair.end();
        assert_eq!(echo.seen, inline.seen);
    }
}

/// What more than one frame carries crosses in pieces, the only call of its batch or not.
#[test]
fn long_messages_cross_in_pieces() {
    struct Long(usize);
    impl Service for Long {
        fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
            for event in events.iter() {
                let Event::Recv { handle, .. } = event else { continue };
                calls.sendv(handle, &[&payload(self.0)]).expect("room");
                self.0 += 1_000;
            }
        }
    }
    let mut pair = Pair::new(Waiting::default(), || Long(1));
    let mut inline = Long(1);
    for requests in [1, 1, 1, 1, 3, 2, 1] {
        for slot in 0..requests {
            pair.receive(Handle::new(1, 2, slot), Cookie(1), b"more");
        }
        let expected = pair.inline(Instant::ZERO, &mut inline);
        assert_eq!(pair.cross(Instant::ZERO), expected);
    }
    let stats = pair.near().stats();
    assert_eq!((stats.violations(), stats.refused()), (0, 0), "{stats:?}");
    assert_eq!(pair.end().0, inline.0);
}

/// The arena has room for so many batches with an answer, and there are more.
#[test]
fn memory_of_answers_comes_back() {
    let mut pair = Pair::new(Waiting::default(), Echo::default);
    let handle = Handle::new(1, 2, 3);
    for batch in 0..2 * process::Geometry::default().arena_chunks {
        pair.receive(handle, Cookie(1), b"ping");
        let issued = pair.cross(Instant::ZERO);
        assert_eq!(issued.first().map(|(_, bytes)| &bytes[..]), Some(&b"<ping>"[..]), "{batch}");
    }
    pair.end();
}

#[test]
fn a_long_batch_goes_over_in_several() {
    let mut pair = Pair::new(Waiting::default(), Echo::default);
    let handle = Handle::new(1, 2, 3);
    for number in 0..2_500 {
        let event = EventRecord::Sent { handle, cookie: Cookie(1), bytes: number, window: 1 };
        pair.events.push(event).expect("room");
    }
    assert!(pair.cross(Instant::ZERO).is_empty());
    assert_eq!(pair.near().stats().crossings(), 3);
    let sent = pair.end().seen.iter().filter(|line| line.starts_with("Sent")).count();
    assert_eq!(sent, 2_500);
}

/// Windows that a later part of a batch tells know what was sent in answer to the earlier parts: to the application
/// they are batches of their own.
#[test]
fn windows_of_a_long_batch_are_of_the_moment() {
    #[derive(Default)]
    struct Sender(Vec<u32>);
    impl Service for Sender {
        fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
            for (index, event) in events.iter().enumerate() {
                let Event::Sent { handle, window, .. } = event else { continue };
                if index == 0 {
                    self.0.push(window);
                    calls.sendv(handle, &[b"0123456789"]).expect("room");
                }
            }
        }
    }
    let mut pair = Pair::new(Waiting::default(), Sender::default);
    for _ in 0..2_500 {
        let (handle, cookie) = (Handle::new(1, 2, 3), Cookie(1));
        pair.event(EventRecord::Sent { handle, cookie, bytes: 1, window: 1_000 });
    }
    assert_eq!(pair.cross(Instant::ZERO).len(), 1, "one after the other they are one call");
    assert_eq!(pair.end().0, [1_000, 990, 980]);
}

/// The application's own memory runs out in the dataplane, not in the arena.
#[test]
fn room_is_what_the_dataplane_has() {
    struct Greedy(Vec<usize>);
    impl Service for Greedy {
        fn on_batch(&mut self, _: Instant, _: Events<'_>, calls: &mut Calls<'_>) {
            let mut sent = 0;
            while calls.sendv(Handle::new(1, sent as u32, 1), &[b"x"]).is_ok() {
                sent += 1;
            }
            self.0.push(sent);
        }
    }
    let mut pair = Pair::new(Waiting::default(), || Greedy(Vec::new()));
    let allowed = pair.buffers();
    let issued = pair.cross(Instant::ZERO);
    assert_eq!(issued.len(), allowed);
    let stats = pair.near().stats();
    assert_eq!((stats.refused(), stats.violations()), (0, 0));
    assert_eq!(pair.end().0, [allowed]);
}

#[test]
fn the_wish_to_be_run_is_heard() {
    let wish = Some(Instant::from_nanos(123));
    let mut pair = Pair::new(Waiting::default(), move || Echo { wish, ..Echo::default() });
    assert_eq!(pair.near().wake_at(), Some(Instant::ZERO), "it may begin by itself");
    pair.cross(Instant::ZERO);
    assert_eq!(pair.near().wake_at(), wish);
    pair.end();
}

/// The network goes on while the application is busy, which is noticed.
#[test]
fn the_network_goes_on_while_the_application_is_busy() {
    /// Is away for long, and until it has heard that it may return.
    struct Slow(Arc<AtomicBool>);
    impl Service for Slow {
        fn on_batch(&mut self, _: Instant, _: Events<'_>, _: &mut Calls<'_>) {
            let began = std::time::Instant::now();
            let is_long = || began.elapsed() >= std::time::Duration::from_millis(30);
            let is_over = || self.0.load(Ordering::Relaxed) || began.elapsed() >= PATIENCE;
            while !(is_long() && is_over()) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    }
    for placement in [Placement::Split, Placement::SameCore] {
        let returns = Arc::new(AtomicBool::new(false));
        let slow = Arc::clone(&returns);
        let waiting = Waiting { placement, ..Waiting::default() };
        let mut pair = Pair::new(waiting, move || Slow(Arc::clone(&slow)));
        let (stats, looks) = (pair.near().stats(), pair.counted());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let began = std::time::Instant::now();
                while looks.load(Ordering::Relaxed) <= 20 && began.elapsed() < PATIENCE {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                returns.store(true, Ordering::Relaxed);
            });
            pair.cross(Instant::ZERO);
        });
        assert_eq!(stats.unresponsive(), 1);
        assert!(pair.looks() > 20, "{} looks", pair.looks());
        pair.end();
    }
}

#[test]
fn an_application_that_goes_holds_nobody_up() {
    struct Never;
    impl Service for Never {
        fn on_batch(&mut self, _: Instant, _: Events<'_>, calls: &mut Calls<'_>) {
            calls.close(Handle::new(1, 1, 1)).expect("room");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
    let mut pair = Pair::new(Waiting::default(), || Never);
    let gone = pair.gone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            gone.store(true, Ordering::Relaxed);
        });
        let before = std::time::Instant::now();
        assert!(pair.cross(Instant::ZERO).is_empty(), "what comes too late is not done");
        assert!(before.elapsed() < Duration::from_millis(90));
        // And it is not asked again.
        assert!(pair.cross(Instant::ZERO).is_empty());
    });
    pair.end();
}

#[test]
fn a_sleeping_application_is_woken() {
    let mut pair = Pair::new(Waiting { looks: 10, ..Waiting::default() }, Echo::default);
    for round in 0..200 {
        if round % 10 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        pair.receive(Handle::new(1, 2, 3), Cookie(1), b"x");
        let issued = pair.cross(Instant::ZERO);
        assert!(matches!(issued[0].0, CallRecord::Sendv { .. }), "{issued:?}");
        assert_eq!(issued[0].1, b"<x>");
    }
    pair.end();
}
