//! The churning engine against a dialer in virtual time.

use super::*;
use crate::latency::LATENCY_MAX_NS;

const MS: u64 = 1_000_000;

#[derive(Debug, Clone, PartialEq)]
enum Event {
    Connected(u32),
    Bytes(u32, Vec<u8>),
    PeerClosed(u32),
}

/// A network on which everything takes `hop_ns`, and an echo service.
#[derive(Default)]
struct Model {
    hop_ns: u64,
    now_ns: u64,
    events: VecDeque<(u64, Event)>,
    connects: u64,
    /// Every n-th connect fails at once; zero for never.
    refuse_every: u64,
    /// Connections are accepted and never heard of again.
    silent: bool,
    resets: u64,
    fins: u64,
}

impl Model {
    fn later(&mut self, event: Event) {
        self.events.push_back((self.now_ns + self.hop_ns, event));
    }
}

impl Sender for Model {
    fn send(&mut self, slot: u32, bytes: &[u8]) -> usize {
        if !self.silent {
            self.later(Event::Bytes(slot, bytes.to_vec()));
        }
        bytes.len()
    }
    fn abort(&mut self, _: u32) {
        self.resets += 1;
    }
}

impl Dialer for Model {
    fn connect(&mut self, slot: u32) -> bool {
        self.connects += 1;
        let refused = self.refuse_every > 0 && self.connects.is_multiple_of(self.refuse_every);
        if !refused {
            self.later(Event::Connected(slot));
        }
        !refused
    }
    fn close(&mut self, slot: u32, how: CloseMode) {
        match how {
            CloseMode::Rst => self.resets += 1,
            CloseMode::Fin => {
                self.fins += 1;
                self.later(Event::PeerClosed(slot));
            }
        }
    }
}

fn config(requests: u32, close: CloseMode, connections: u32) -> LoadConfig {
    let mut config = LoadConfig::echo(64);
    config.mode = Mode::Churn { requests, close };
    config.connections = connections;
    config.warmup_ms = 10;
    config.measure_ms = 100;
    config.drain_ms = 50;
    config.verify_share = 1.0;
    config
}

fn measure(config: &LoadConfig, model: &mut Model) -> Measurement {
    let workload = Workload::new(&config.workload, 1).expect("valid");
    let mut engine = ChurnEngine::new(config, Arc::new(workload)).expect("valid");
    engine.start(0);
    for _ in 0..10_000_000 {
        let poll = engine.poll(model.now_ns, model);
        if poll.phase == Phase::Done {
            return engine.finish(model.now_ns);
        }
        let event_ns = model.events.front().map_or(u64::MAX, |(at_ns, _)| *at_ns);
        let next_ns = poll.wake_ns.min(event_ns);
        assert_ne!(next_ns, u64::MAX, "stuck in {:?}", poll.phase);
        model.now_ns = model.now_ns.max(next_ns);
        if event_ns <= model.now_ns
            && let Some((_, event)) = model.events.pop_front()
        {
            match event {
                Event::Connected(slot) => engine.on_connected(slot, model.now_ns, model),
                Event::Bytes(slot, bytes) => {
                    engine.on_received(slot, &bytes, model.now_ns, model);
                }
                Event::PeerClosed(slot) => engine.on_peer_closed(slot, model.now_ns),
            }
        }
    }
    panic!("the run did not end");
}

fn within(value: f64, expected: f64, share: f64) -> bool {
    (value / expected - 1.0).abs() <= share
}

#[test]
fn cycles_take_as_long_as_their_steps() {
    // Connect, n requests, and with FIN one more hop.
    for (requests, close, hops) in
        [(1, CloseMode::Rst, 2), (1, CloseMode::Fin, 3), (5, CloseMode::Rst, 6)]
    {
        let mut model = Model { hop_ns: 20_000, ..Model::default() };
        let m = measure(&config(requests, close, 8), &mut model);
        let cycle_ns = 20_000.0 * f64::from(hops);
        assert!(within(m.achieved_rps(), 8e9 / cycle_ns, 0.01), "{}", m.achieved_rps());
        let answers = m.achieved_rps() * f64::from(requests);
        assert!(within(m.answers_rps(), answers, 0.01), "{} of {answers}", m.answers_rps());
        assert!(within(m.latency_ns.max() as f64, cycle_ns, 0.01), "{}", m.latency_ns.max());
        assert_eq!(m.latency_ns.len(), m.counts.requests);
        assert_eq!((m.counts.errors, m.counts.connections_lost, m.counts.unanswered), (0, 0, 0));
        assert!(m.counts.verified >= m.counts.completed * u64::from(requests));
        let (resets, fins) = (model.resets, model.fins);
        assert_eq!((resets > 0, fins > 0), (close == CloseMode::Rst, close == CloseMode::Fin));
    }
}

#[test]
fn a_refused_connect_is_counted_and_tried_again_after_a_rest() {
    let mut model = Model { hop_ns: 20_000, refuse_every: 10, ..Model::default() };
    let m = measure(&config(1, CloseMode::Rst, 8), &mut model);
    assert!(within(m.counts.connections_lost as f64, model.connects as f64 / 10.0, 0.01));
    assert!(m.counts.completed > 1_000, "{}", m.counts.completed);
    assert!(m.latency_ns.max() >= LATENCY_MAX_NS, "a failed cycle is not a fast one");
    assert_eq!(m.latency_ns.len(), m.counts.requests);

    // All refused: one try a millisecond and slot, not a busy loop.
    let mut model = Model { hop_ns: 20_000, refuse_every: 1, ..Model::default() };
    let m = measure(&config(1, CloseMode::Rst, 8), &mut model);
    assert_eq!(m.counts.completed, 0);
    assert!((800..=888).contains(&model.connects), "{}", model.connects);
}

#[test]
fn a_silent_peer_leaves_cycles_unanswered_and_old_ones_are_ended() {
    let mut model = Model { hop_ns: 20_000, silent: true, ..Model::default() };
    let mut load = config(1, CloseMode::Fin, 4);
    load.warmup_ms = 0;
    let m = measure(&load, &mut model);
    assert_eq!((m.counts.requests, m.counts.unanswered, m.counts.completed), (4, 4, 0));
    assert!(within(m.latency_ns.max() as f64, 150.0 * MS as f64, 0.01));

    load.measure_ms = 6_000;
    let mut model = Model { hop_ns: 20_000, silent: true, ..Model::default() };
    let m = measure(&load, &mut model);
    assert_eq!((m.counts.connections_lost, model.resets), (4, 4), "after 5 s");
}

#[test]
fn answers_that_were_not_asked_for_fail_the_cycle() {
    let load = config(1, CloseMode::Fin, 1);
    let workload = Workload::new(&load.workload, 1).expect("valid");
    let mut engine = ChurnEngine::new(&load, Arc::new(workload)).expect("valid");
    let mut model = Model { hop_ns: 10, ..Model::default() };
    engine.start(0);
    engine.poll(0, &mut model);
    engine.on_connected(0, 10, &mut model);
    // The right 64 bytes, and one more.
    let mut bytes = match model.events.pop_back() {
        Some((_, Event::Bytes(0, bytes))) => bytes,
        other => panic!("no request was sent: {other:?}"),
    };
    bytes.push(0);
    engine.on_received(0, &bytes, 20, &mut model);
    assert_eq!(engine.result.violation, Some(crate::Violation::Unasked));
    assert_eq!((engine.result.counts.connections_lost, model.resets), (1, 1));
    // Calls about the old connection change nothing.
    engine.on_connected(0, 30, &mut model);
    engine.on_received(0, b"x", 30, &mut model);
    engine.on_peer_closed(0, 30);
    engine.on_failed(0, 30);
    assert_eq!(engine.result.counts.connections_lost, 1);
}

/// IX §5.2 varies the round trips of a connection from 1 to 1,024.
#[test]
fn any_number_of_round_trips_from_one_to_1024() {
    for (requests, close) in [1, 2, 8, 64, 512, 1_024]
        .into_iter()
        .flat_map(|n| [(n, CloseMode::Rst), (n, CloseMode::Fin)])
    {
        let mut model = Model { hop_ns: 1_000, ..Model::default() };
        let m = measure(&config(requests, close, 4), &mut model);
        let hops = u64::from(requests) + 1 + u64::from(close == CloseMode::Fin);
        assert!(within(m.latency_ns.max() as f64, hops as f64 * 1e3, 0.01), "{requests} {close:?}");
        // 4 connections at a time for 100 ms.
        let expected = 4.0 * 1e8 / (hops as f64 * 1e3);
        assert!(
            within(m.counts.completed as f64, expected, 0.05),
            "{} of {expected}",
            m.counts.completed
        );
        assert_eq!((m.counts.lost, m.counts.wrong_bytes, m.counts.unanswered), (0, 0, 0));
    }
}

#[test]
fn answers_count_also_where_no_cycle_ends_in_the_window() {
    let mut model = Model { hop_ns: 20_000, ..Model::default() };
    let m = measure(&config(1_000_000, CloseMode::Rst, 8), &mut model);
    assert_eq!(m.counts.completed, 0);
    assert!(within(m.answers_rps(), 8.0 * 50_000.0, 0.01), "{}", m.answers_rps());
}
