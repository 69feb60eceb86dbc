//! The services against a dataplane of a page, in virtual time: real event and call arrays, tiny
//! windows, tiny arrays, and a host that checks each call.

use std::collections::{HashMap, VecDeque};

use domain::{CallArray, CallRecord, EventArray, EventRecord};
use mem::{Pool, Region};
use tailplane::{
    CallError, CallKind, Calls, ConnectError, Cookie, DeadReason, Handle, Instant, Service,
};

use super::*;
use crate::config::{CloseMode, Mode};
use crate::test_peers::MiniCache;
use crate::workload::WorkloadConfig;

const HOP_NS: u64 = 5_000;

/// What will reach the service.
enum Coming {
    Event(EventRecord),
    Bytes(Handle, Vec<u8>),
    /// An acknowledgement; the window is told as it is when the event is made.
    Acked(Handle, u32),
}

struct Open {
    cookie: Cookie,
    unacked: u32,
    /// Received and not yet returned.
    unreturned: usize,
    input: Vec<u8>,
    half_closed: bool,
}

/// One elastic thread and a service at the far end.
struct Host {
    cache: Option<MiniCache>,
    events: EventArray,
    calls: CallArray,
    pool: Pool,
    chunks: usize,
    coming: VecDeque<(u64, Coming)>,
    open: HashMap<Handle, Open>,
    next_slot: u32,
    now_ns: u64,
    window: u32,
    /// Bytes in one received buffer.
    piece: usize,
    refuse: Option<ConnectError>,
    connects: u64,
    closes: u64,
    aborts: u64,
    /// Connections end with this after as many sends, where set.
    die_after: Option<(u64, DeadReason)>,
    sends: u64,
}

impl Host {
    fn new(cache: Option<MiniCache>) -> Self {
        let chunks = 512u32;
        Self {
            cache,
            events: EventArray::new(64),
            calls: CallArray::new(256, 1_448),
            pool: Pool::new(&Region::heap(chunks), chunks as usize),
            chunks: chunks as usize,
            coming: VecDeque::new(),
            open: HashMap::new(),
            next_slot: 0,
            now_ns: 0,
            window: 64 << 10,
            piece: 1_448,
            refuse: None,
            connects: 0,
            closes: 0,
            aborts: 0,
            die_after: None,
            sends: 0,
        }
    }

    fn later(&mut self, coming: Coming) {
        self.coming.push_back((self.now_ns + HOP_NS, coming));
    }

    /// Steps 2 to 4 of the cycle, and on to the next moment at which something happens.
    fn cycle(&mut self, service: &mut LoadService) {
        while self.coming.front().is_some_and(|(at_ns, _)| *at_ns <= self.now_ns)
            && self.events.room() > 0
        {
            let (_, coming) = self.coming.pop_front().expect("there is one");
            self.make_event(coming);
        }
        let now = Instant::from_nanos(self.now_ns);
        let mut calls = Calls::new(&mut self.calls, &mut self.pool);
        service.on_batch(now, self.events.view(&()), &mut calls);
        for (_, mbuf) in self.events.drain() {
            self.pool.free(mbuf);
        }
        self.execute();
        let next_ns = self.coming.front().map_or(u64::MAX, |(at_ns, _)| *at_ns);
        let wake_ns = service.wake_at().map_or(u64::MAX, Instant::as_nanos);
        let next_ns = next_ns.min(wake_ns);
        if next_ns != u64::MAX {
            // A cycle takes time.
            self.now_ns = next_ns.max(self.now_ns + 200);
        }
    }

    fn make_event(&mut self, coming: Coming) {
        let record = match coming {
            Coming::Event(record) => {
                // Its own FIN was sent before: with the peer's, the connection has ended.
                if let EventRecord::Eof { handle, .. } = record {
                    self.open.remove(&handle);
                }
                record
            }
            Coming::Acked(handle, bytes) => {
                let Some(open) = self.open.get_mut(&handle) else { return };
                open.unacked -= bytes;
                let (cookie, window) = (open.cookie, self.window - open.unacked);
                EventRecord::Sent { handle, cookie, bytes, window }
            }
            Coming::Bytes(handle, bytes) => {
                let Some(open) = self.open.get_mut(&handle) else { return };
                open.unreturned += bytes.len();
                let mut mbuf = self.pool.alloc().expect("a chunk for what was received");
                mbuf.append(&bytes).expect("fits a chunk");
                let window = self.window - open.unacked;
                self.events
                    .push_recv(handle, open.cookie, mbuf, 0, window)
                    .expect("room was checked");
                return;
            }
        };
        self.events.push(record).expect("room was checked");
    }

    fn execute(&mut self) {
        let (mut records, mut payloads) = self.calls.take();
        let mut staged = payloads.drain(..);
        for record in records.drain(..) {
            match record {
                CallRecord::Again { .. } => unreachable!("the generator does not ask for it"),
                CallRecord::Connect { cookie, .. } => {
                    self.connects += 1;
                    let handle = Handle::new(1, self.next_slot, 3);
                    self.next_slot += 1;
                    let event = match self.refuse {
                        Some(error) => EventRecord::ConnectFailed { cookie, error },
                        None => {
                            let (input, unacked, unreturned) = (Vec::new(), 0, 0);
                            let half_closed = false;
                            let open = Open { cookie, unacked, unreturned, input, half_closed };
                            self.open.insert(handle, open);
                            let (local, window) = (1.into(), self.window);
                            EventRecord::Connected { cookie, local, handle, window }
                        }
                    };
                    self.coming.push_back((self.now_ns + HOP_NS, Coming::Event(event)));
                }
                CallRecord::Sendv { handle, staged: range } => {
                    let mut bytes = Vec::new();
                    for (mbuf, _) in staged.by_ref().take(range.count as usize) {
                        bytes.extend_from_slice(mbuf.bytes());
                        self.pool.free(mbuf);
                    }
                    let Some(open) = self.open.get_mut(&handle) else { continue };
                    assert!(!open.half_closed, "sending after close");
                    let sent = bytes.len() as u32;
                    assert!(sent <= self.window - open.unacked, "more than the window was sent");
                    open.unacked += sent;
                    open.input.extend_from_slice(&bytes);
                    let answer = match &mut self.cache {
                        Some(cache) => cache.answer_stream(&mut open.input),
                        None => std::mem::take(&mut open.input),
                    };
                    let at_ns = self.now_ns + HOP_NS;
                    for piece in answer.chunks(self.piece) {
                        self.coming.push_back((at_ns, Coming::Bytes(handle, piece.to_vec())));
                    }
                    self.coming.push_back((at_ns, Coming::Acked(handle, sent)));
                    self.sends += 1;
                    if let Some((after, reason)) = self.die_after
                        && self.sends == after
                        && let Some(Open { cookie, .. }) = self.open.remove(&handle)
                    {
                        let event = EventRecord::Dead { handle, cookie, reason };
                        self.coming.push_back((at_ns, Coming::Event(event)));
                    }
                }
                CallRecord::RecvDone { handle, bytes } => {
                    if let Some(open) = self.open.get_mut(&handle) {
                        assert!(bytes as usize <= open.unreturned, "returned more than received");
                        open.unreturned -= bytes as usize;
                    }
                }
                CallRecord::Close { handle } => {
                    self.closes += 1;
                    let open = self.open.get_mut(&handle).expect("closes what is open");
                    open.half_closed = true;
                    let (cookie, reason) = (open.cookie, DeadReason::Closed);
                    self.later(Coming::Event(EventRecord::Eof { handle, cookie }));
                    self.later(Coming::Event(EventRecord::Dead { handle, cookie, reason }));
                }
                CallRecord::Abort { handle } => {
                    self.aborts += 1;
                    self.open.remove(&handle);
                }
                CallRecord::Accept { .. }
                | CallRecord::Shutdown { .. }
                | CallRecord::SendvPlaced { .. }
                | CallRecord::Listen { .. }
                | CallRecord::Unlisten { .. }
                | CallRecord::Inform { .. }
                | CallRecord::UdpSendv { .. } => {
                    panic!("a load generator does not {record:?}")
                }
            }
        }
        drop(staged);
        self.calls.restore(records, payloads);
    }
}

fn target() -> Endpoint {
    "10.0.0.2:7".parse().expect("an endpoint")
}

fn config(workload: WorkloadConfig, mode: Mode, connections: u32) -> LoadConfig {
    let mut config = LoadConfig::new(workload);
    config.mode = mode;
    config.connections = connections;
    config.warmup_ms = 5;
    config.measure_ms = 50;
    config.drain_ms = 50;
    config.verify_share = 1.0;
    config
}

fn cached() -> WorkloadConfig {
    WorkloadConfig::Memcached {
        get_share: 0.8,
        keys: 300,
        key_size: "uniform:5:60".parse().expect("sizes"),
        value_size: "uniform:1:3000".parse().expect("sizes"),
    }
}

/// Runs `load` on one thread to its end.
fn run(load: &LoadConfig, host: &mut Host) -> Result<LoadReport, LoadError> {
    let (mut services, run) = services(load, target(), 1)?;
    for _ in 0..5_000_000 {
        if run.is_over() {
            assert!(host.open.is_empty(), "every connection was closed");
            assert_eq!(host.pool.available(), host.chunks, "every buffer came back");
            let conditions = run.conditions("model", target());
            return run.report(conditions);
        }
        host.cycle(&mut services[0]);
    }
    panic!("the run did not end: {}", run.phase());
}

fn assert_sound(report: &LoadReport) {
    assert!(report.valid, "{:?}", report.invalid_reason);
    assert_eq!((report.errors, report.misses, report.wrong_bytes), (0, 0, 0), "{report:?}");
    assert_eq!((report.connections_lost, report.unanswered), (0, 0));
    assert!(report.requests > 100 && report.verified >= report.requests);
}

#[test]
fn an_open_loop_of_echoes() {
    let load = config(WorkloadConfig::Echo { bytes: 64 }, Mode::open(200_000.0), 100);
    let report = run(&load, &mut Host::new(None)).expect("runs");
    assert_sound(&report);
    assert!((report.achieved_rps / 200_000.0 - 1.0).abs() < 0.05, "{}", report.achieved_rps);
    assert!((report.p50_us - 5.0).abs() < 1.0, "{}", report.p50_us);
}

#[test]
fn a_closed_loop_of_requests_to_a_cache_that_is_filled_first() {
    let load = config(cached(), Mode::closed(4), 10);
    let mut host = Host::new(Some(MiniCache::default()));
    let report = run(&load, &mut host).expect("runs");
    assert_sound(&report);
    assert_eq!(host.cache.expect("is there").len(), 300);
}

#[test]
fn a_service_that_does_not_speak_the_keys_protocol_is_named_as_such() {
    // An echo answers the storing of a key with the very same bytes.
    let error = run(&config(cached(), Mode::closed(4), 10), &mut Host::new(None));
    let error = error.expect_err("is no cache").to_string();
    assert!(error.contains("does not speak memcached's text protocol"), "{error}");
}

#[test]
fn tiny_windows_arrays_and_pieces_lose_nothing() {
    for (window, calls, piece) in [(10, 256, 1_448), (64 << 10, 3, 100), (50, 2, 1), (7, 5, 3)] {
        for mode in [Mode::closed(3), Mode::open(3_000.0)] {
            let load = config(cached(), mode, 5);
            let mut host = Host::new(Some(MiniCache::default()));
            host.window = window;
            host.calls = CallArray::new(calls, 1_448);
            host.piece = piece;
            // A byte a buffer: small values keep the test short.
            let small = WorkloadConfig::Memcached {
                get_share: 0.5,
                keys: 20,
                key_size: "6".parse().expect("a size"),
                value_size: "uniform:1:40".parse().expect("sizes"),
            };
            let load = LoadConfig { workload: small, drain_ms: 1_000, lag_limit_us: 1_000, ..load };
            let report = run(&load, &mut host).expect("runs");
            assert!(report.valid, "{window} {calls} {piece}: {:?}", report.invalid_reason);
            let counts = (report.errors, report.misses, report.wrong_bytes, report.unanswered);
            assert_eq!(counts, (0, 0, 0, 0), "{window} {calls} {piece}");
        }
    }
}

#[test]
fn exhausted_packet_memory_delays_and_loses_nothing() {
    let load = config(WorkloadConfig::Echo { bytes: 4_000 }, Mode::closed(2), 40);
    let mut host = Host::new(None);
    // 40 connections ask for 240 chunks at once; the test keeps some for what is received.
    host.chunks = 100;
    host.pool = Pool::new(&Region::heap(100), 100);
    host.events = EventArray::new(16);
    let report = run(&load, &mut host).expect("runs");
    assert_sound(&report);
}

#[test]
fn several_threads_start_at_one_moment_and_are_one_report() {
    let load = config(cached(), Mode::open(20_000.0), 7);
    let (mut services, run) = services(&load, target(), 3).expect("valid");
    let mut hosts: Vec<Host> = (0..3).map(|_| Host::new(Some(MiniCache::default()))).collect();
    // Three machines with one clock: whoever is behind goes on.
    for _ in 0..5_000_000 {
        if run.is_over() {
            break;
        }
        let behind = (0..3).min_by_key(|&i| hosts[i].now_ns).expect("three");
        let before_ns = hosts[behind].now_ns;
        hosts[behind].cycle(&mut services[behind]);
        // Nothing left to do: do not hold up the others.
        if hosts[behind].now_ns == before_ns {
            hosts[behind].now_ns += 1_000_000;
        }
    }
    assert!(run.is_over(), "{}", run.phase());
    assert_eq!(run.phase(), "done");
    let stored: usize = hosts.iter().filter_map(|h| h.cache.as_ref()).map(MiniCache::len).sum();
    assert!(stored >= 300, "each key is stored by one of the threads");
    let conditions = run.conditions("model", target());
    let report = run.report(conditions).expect("runs");
    // Each host has only a third of the keys, so that GETs miss: only the sum matters here.
    assert!(report.requests.abs_diff(1_000) < 6 * 32, "{}", report.requests);
    assert_eq!(report.conditions.threads, 3);
}

#[test]
fn churn_with_both_ways_to_close() {
    for (close, requests) in [(CloseMode::Rst, 1), (CloseMode::Fin, 3)] {
        for workload in [WorkloadConfig::Echo { bytes: 64 }, cached()] {
            let load = config(workload, Mode::Churn { requests, close }, 8);
            let mut host = Host::new(None);
            if load.workload != (WorkloadConfig::Echo { bytes: 64 }) {
                host.cache = Some(MiniCache::default());
            }
            let report = run(&load, &mut host).expect("runs");
            assert_sound(&report);
            assert!(host.connects > 1_000, "{}", host.connects);
            assert_eq!(host.closes > 0, close == CloseMode::Fin);
            // Connect, the requests, and with FIN the closing: each takes one hop or more.
            let hops = 1 + requests + u32::from(close == CloseMode::Fin);
            assert!(report.p50_us >= 5.0 * f64::from(hops) * 0.99, "{}", report.p50_us);
        }
    }
}

#[test]
fn connections_that_cannot_be_opened_end_the_run_with_a_reason() {
    let load = config(WorkloadConfig::Echo { bytes: 64 }, Mode::closed(1), 100);
    let mut host = Host::new(None);
    host.refuse = Some(ConnectError::Refused);
    let error = run(&load, &mut host).expect_err("refused").to_string();
    assert!(error.contains("of 100 to 10.0.0.2:7: connection refused; does a"), "{error}");

    // A churn counts it instead.
    let load = config(load.workload, Mode::Churn { requests: 1, close: CloseMode::Rst }, 4);
    let mut host = Host::new(None);
    host.refuse = Some(ConnectError::NoPort);
    let report = run(&load, &mut host).expect("runs");
    assert!(!report.valid && report.errors > 0);
    assert!(report.conditions.more["first failure"].contains("no local port is free"));
}

#[test]
fn a_silent_peer_is_given_up_at_the_deadline() {
    let load = config(WorkloadConfig::Echo { bytes: 64 }, Mode::closed(1), 2);
    let (mut services, run) = services(&load, target(), 1).expect("valid");
    let mut host = Host::new(None);
    for _ in 0..100 {
        host.cycle(&mut services[0]);
        // What the network has on its way never arrives.
        host.coming.clear();
    }
    assert!(run.is_over());
    let conditions = run.conditions("model", target());
    let error = run.report(conditions).expect_err("nobody answered").to_string();
    assert!(error.contains("connection 0 of 2") && error.contains("connect_timeout_ms"), "{error}");
}

#[test]
fn a_connection_that_dies_is_counted_and_named() {
    let load = config(WorkloadConfig::Echo { bytes: 64 }, Mode::closed(1), 5);
    let mut host = Host::new(None);
    host.die_after = Some((100, DeadReason::Reset));
    let report = run(&load, &mut host).expect("runs");
    assert_eq!((report.connections_lost, report.errors), (1, 1));
    assert_eq!(report.conditions.more["first failure"], "the connection ended: Reset");
}

#[test]
fn a_failed_call_ends_the_connection_since_its_stream_is_unknown() {
    let load = config(WorkloadConfig::Echo { bytes: 64 }, Mode::closed(1), 2);
    let (mut services, run) = services(&load, target(), 1).expect("valid");
    let mut host = Host::new(None);
    while run.phase() != "measuring" {
        host.cycle(&mut services[0]);
    }
    let (&handle, open) = host.open.iter().next().expect("two are open");
    let (call, error) = (CallKind::Sendv, CallError::Trimmed { accepted: 3 });
    let event = EventRecord::Failed { call, handle, cookie: open.cookie, error };
    host.coming.push_front((host.now_ns, Coming::Event(event)));
    // Unasked for: somebody connects, and a connection of long ago opens.
    let peer = target();
    let stranger = Handle::new(9, 9, 9);
    let window = domain::FirstWindow::new(1);
    let knock = EventRecord::Knock { handle: stranger, local: 1.into(), peer, window };
    host.coming.push_front((host.now_ns, Coming::Event(knock)));
    let cookie = Cookie(1 | 77 << 32);
    let old = EventRecord::Connected { cookie, local: 1.into(), handle: stranger, window: 1 };
    host.coming.push_front((host.now_ns, Coming::Event(old)));
    while !run.is_over() {
        host.cycle(&mut services[0]);
    }
    assert_eq!(host.aborts, 4, "the broken one, two strangers, and the other at the end");
    let conditions = run.conditions("model", target());
    let report = run.report(conditions).expect("runs");
    assert_eq!(report.connections_lost, 1);
    let failure = &report.conditions.more["first failure"];
    assert!(failure.contains("Sendv failed: Trimmed"), "{failure}");
}

#[test]
fn a_run_that_is_stopped_says_how_far_it_came() {
    let load = config(WorkloadConfig::Echo { bytes: 64 }, Mode::closed(1), 2);
    let (mut services, run) = services(&load, target(), 1).expect("valid");
    let mut host = Host::new(None);
    host.cycle(&mut services[0]);
    let conditions = run.conditions("model", target());
    let error = run.report(conditions).expect_err("not over").to_string();
    assert_eq!(error, "the run was stopped before it ended, in the phase connecting");
}

/// The runtime moves each service to its thread.
#[test]
fn services_can_be_moved_to_their_threads() {
    fn on_its_thread<S: Service + Send>(_: S) {}
    let load = config(WorkloadConfig::Echo { bytes: 64 }, Mode::closed(1), 2);
    let (services, run) = services(&load, target(), 2).expect("valid");
    services.into_iter().for_each(on_its_thread);
    assert!(!run.is_over());
}
