//! The service between tiny arrays and tiny windows: whatever has no room now goes out later, in
//! order, and everything received is given back.

use std::collections::VecDeque;

use domain::{CallArray, CallRecord, DeadReason, EventArray, EventRecord};
use mem::{Pool, Region};
use proptest::prelude::*;
use tailplane::{Duration, Endpoint, Ipv4Addr};

use super::*;
use crate::frame::SERVICE_NS_MAX;

/// A dataplane of one connection.
struct Host {
    service: DelayedSpin,
    events: EventArray,
    calls: CallArray,
    pool: Pool,
    now: Instant,
    handle: Handle,
    cookie: Option<Cookie>,
    /// What the peer has room for, and what it has not acknowledged.
    window: u32,
    unacked: u32,
    received: Vec<u8>,
    returned: usize,
    closed: bool,
    aborted: bool,
}

impl Host {
    fn new(calls: usize, window: u32) -> Self {
        let mut host = Self {
            service: DelayedSpin::new(),
            events: EventArray::new(16),
            calls: CallArray::new(calls, 1_448),
            pool: Pool::new(&Region::heap(64), 64),
            now: Instant::from_micros(1),
            handle: Handle::new(1, 2, 3),
            cookie: None,
            window,
            unacked: 0,
            received: Vec::new(),
            returned: 0,
            closed: false,
            aborted: false,
        };
        let peer = Endpoint::new(Ipv4Addr::new(10, 0, 0, 1), 99);
        let handle = host.handle;
        let knock = EventRecord::Knock {
            handle,
            local: 7.into(),
            peer,
            window: domain::FirstWindow::new(window),
        };
        host.events.push(knock).expect("room");
        host.cycle();
        host
    }

    fn push(&mut self, event: impl FnOnce(Handle, Cookie) -> EventRecord) {
        let cookie = self.cookie.expect("was accepted");
        self.events.push(event(self.handle, cookie)).expect("room");
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        let mut mbuf = self.pool.alloc().expect("a chunk");
        mbuf.append(bytes).expect("fits");
        let cookie = self.cookie.expect("was accepted");
        let window = self.window - self.unacked;
        self.events.push_recv(self.handle, cookie, mbuf, 0, window).expect("room");
    }

    /// One batch, and the execution of its calls.
    fn cycle(&mut self) {
        let mut calls = Calls::new(&mut self.calls, &mut self.pool);
        self.service.on_batch(self.now, self.events.view(&()), &mut calls);
        for (_, mbuf) in self.events.drain() {
            self.pool.free(mbuf);
        }
        let (mut records, mut payloads) = self.calls.take();
        let mut staged = payloads.drain(..);
        for record in records.drain(..) {
            match record {
                CallRecord::Accept { cookie, .. } => self.cookie = Some(cookie),
                CallRecord::Sendv { staged: range, .. } => {
                    for (mbuf, _) in staged.by_ref().take(range.count as usize) {
                        self.unacked += mbuf.bytes().len() as u32;
                        self.received.extend_from_slice(mbuf.bytes());
                        self.pool.free(mbuf);
                    }
                    assert!(self.unacked <= self.window, "more than the window was sent");
                    assert!(!self.closed, "sent after close");
                }
                CallRecord::RecvDone { bytes, .. } => self.returned += bytes as usize,
                CallRecord::Close { .. } => self.closed = true,
                CallRecord::Abort { .. } => self.aborted = true,
                other => panic!("unexpected {other:?}"),
            }
        }
        drop(staged);
        self.calls.restore(records, payloads);
        self.now += Duration::from_nanos(500);
    }

    /// The peer acknowledges what it has.
    fn acknowledge(&mut self) {
        let bytes = std::mem::take(&mut self.unacked);
        if bytes > 0 {
            let window = self.window;
            self.push(|handle, cookie| EventRecord::Sent { handle, cookie, bytes, window });
        }
    }
}

fn frames(times_us: &[u64]) -> Vec<Frame> {
    let frame = |(at, us): (usize, &u64)| Frame { service_ns: us * 1_000, sequence: at as u64 * 3 };
    times_us.iter().enumerate().map(frame).collect()
}

proptest! {
    #[test]
    fn whatever_the_room_all_is_answered_in_order_and_given_back(
        times_us in prop::collection::vec(0u64..20, 1..30),
        piece in 1usize..60,
        calls in 1usize..5,
        window in 1u32..40,
        acknowledge_every in 1usize..4,
    ) {
        let frames = frames(&times_us);
        let stream: Vec<u8> = frames.iter().flat_map(|frame| frame.to_bytes()).collect();
        let mut host = Host::new(calls, window);
        let mut pieces: VecDeque<&[u8]> = stream.chunks(piece).collect();
        for cycle in 0..20_000 {
            if let Some(piece) = pieces.pop_front() {
                host.push_bytes(piece);
                if pieces.is_empty() {
                    host.push(|handle, cookie| EventRecord::Eof { handle, cookie });
                }
            }
            if cycle % acknowledge_every == 0 {
                host.acknowledge();
            }
            host.cycle();
            if host.closed {
                break;
            }
        }
        prop_assert!(host.closed, "closed after the last response");
        prop_assert_eq!(&host.received, &stream);
        prop_assert_eq!(host.returned, stream.len());
        // No earlier than one core can do it.
        let least_us: u64 = times_us.iter().sum();
        prop_assert!(host.now >= Instant::from_micros(1 + least_us));
        host.push(|handle, cookie| {
            EventRecord::Dead { handle, cookie, reason: DeadReason::Closed }
        });
        host.cycle();
        prop_assert_eq!(host.service.connections(), 0);
        prop_assert_eq!(host.service.served(), frames.len() as u64);
    }
}

#[test]
fn it_wakes_when_the_next_response_is_due() {
    let mut host = Host::new(8, 1_000);
    assert_eq!(host.service.wake_at(), None);
    let begin = host.now;
    let stream: Vec<u8> = frames(&[10, 5]).iter().flat_map(|frame| frame.to_bytes()).collect();
    host.push_bytes(&stream);
    host.cycle();
    assert_eq!(host.service.wake_at(), Some(begin + Duration::from_micros(10)));
    host.now = begin + Duration::from_micros(10);
    host.cycle();
    assert_eq!(host.received.len(), FRAME_BYTES);
    assert_eq!(host.service.wake_at(), Some(begin + Duration::from_micros(15)));
}

#[test]
fn a_connection_that_dies_leaves_the_core_busy_and_nothing_else() {
    let mut host = Host::new(8, 1_000);
    let begin = host.now;
    host.push_bytes(&frames(&[100])[0].to_bytes());
    host.cycle();
    host.push(|handle, cookie| EventRecord::Dead { handle, cookie, reason: DeadReason::Reset });
    host.cycle();
    assert_eq!(host.service.connections(), 0);
    assert_eq!(host.service.wake_at(), Some(begin + Duration::from_micros(100)));
    host.now = begin + Duration::from_micros(100);
    host.cycle();
    assert_eq!((host.received.len(), host.service.served()), (0, 1));
    assert_eq!(host.service.wake_at(), None);
}

#[test]
fn too_long_a_request_is_closed_behind_the_answers_and_a_hole_in_the_stream_aborts() {
    let mut host = Host::new(8, 1_000);
    let mut asked = frames(&[1, 0, 1]);
    asked[1].service_ns = SERVICE_NS_MAX + 1;
    let stream: Vec<u8> = asked.iter().flat_map(|frame| frame.to_bytes()).collect();
    host.push_bytes(&stream);
    host.cycle();
    assert!(!host.closed, "the first one is not answered yet");
    for _ in 0..3 {
        host.cycle();
    }
    assert!(host.closed);
    assert_eq!(host.received, asked[0].to_bytes());

    let mut host = Host::new(8, 1_000);
    host.push(|handle, cookie| EventRecord::Failed {
        call: CallKind::Sendv,
        handle,
        cookie,
        error: domain::CallError::Trimmed { accepted: 3 },
    });
    host.cycle();
    assert!(host.aborted);
}
