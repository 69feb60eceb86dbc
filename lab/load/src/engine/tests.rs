//! The engine against a service in virtual time: every nanosecond is known, so that results are
//! compared with what they must be and not with what looks plausible.

use super::*;
use crate::codec::Violation;
use crate::latency::LATENCY_MAX_NS;
use crate::pattern::PatternShape;
use crate::probe::ProbeConfig;
use crate::report::{Conditions, LoadReport};
use crate::series::SeriesPoint;
use crate::sizes::SizeDistribution;
use crate::test_peers::MiniCache;
use crate::workload::WorkloadConfig;

const MS: u64 = 1_000_000;

/// What the service does with a request's bytes.
enum Service {
    Echo,
    Memcached(MiniCache),
}

/// A service that answers everything `delay_ns` after it was sent, one after the other where that
/// takes it `busy_ns`, and not at all while it is paused.
struct Model {
    service: Service,
    delay_ns: u64,
    busy_ns: u64,
    pause_ns: Range<u64>,
    now_ns: u64,
    free_ns: u64,
    /// Answers by the moment at which they arrive; in order, since all take the same time.
    answers: VecDeque<(u64, u32, Vec<u8>)>,
    /// Of each send: when, on which connection, how many bytes.
    sent: Vec<(u64, u32, usize)>,
    sent_bytes: Vec<u8>,
    aborted: Vec<u32>,
}

impl Model {
    fn new(service: Service, delay_ns: u64) -> Self {
        Self {
            service,
            delay_ns,
            busy_ns: 0,
            pause_ns: 0..0,
            now_ns: 0,
            free_ns: 0,
            answers: VecDeque::new(),
            sent: Vec::new(),
            sent_bytes: Vec::new(),
            aborted: Vec::new(),
        }
    }
}

impl Sender for Model {
    fn send(&mut self, connection: u32, bytes: &[u8]) -> usize {
        self.sent.push((self.now_ns, connection, bytes.len()));
        self.sent_bytes.extend_from_slice(bytes);
        let answer = match &mut self.service {
            Service::Echo => bytes.to_vec(),
            Service::Memcached(cache) => cache.answer(bytes),
        };
        let mut begin_ns = self.free_ns.max(self.now_ns);
        if self.pause_ns.contains(&begin_ns) {
            begin_ns = self.pause_ns.end;
        }
        // One send may carry several requests of 64 bytes.
        self.free_ns = begin_ns + self.busy_ns * (bytes.len() / 64) as u64;
        self.answers.push_back((self.free_ns + self.delay_ns, connection, answer));
        bytes.len()
    }

    fn abort(&mut self, connection: u32) {
        self.aborted.push(connection);
    }
}

fn engine(config: &LoadConfig) -> Engine {
    let workload = Workload::new(&config.workload, config.seed).expect("a valid workload");
    let mut engine = Engine::new(config, Arc::new(workload)).expect("a valid load");
    (0..config.connections_in_all()).for_each(|connection| engine.on_opened(connection));
    engine
}

/// Runs in virtual time until `phase`, polling when the engine asks for it.
fn run_until(engine: &mut Engine, model: &mut Model, phase: Phase) {
    for _ in 0..10_000_000 {
        let poll = engine.poll(model.now_ns, model);
        if poll.phase == phase {
            return;
        }
        let answer_ns = model.answers.front().map_or(u64::MAX, |(at_ns, ..)| *at_ns);
        let next_ns = poll.wake_ns.min(answer_ns);
        assert_ne!(next_ns, u64::MAX, "stuck in {:?}", poll.phase);
        model.now_ns = model.now_ns.max(next_ns);
        if answer_ns <= model.now_ns
            && let Some((_, connection, bytes)) = model.answers.pop_front()
        {
            engine.on_received(connection, &bytes, model.now_ns, model);
        }
    }
    panic!("{phase:?} was never reached");
}

fn measure(config: &LoadConfig, model: &mut Model) -> Measurement {
    let mut engine = engine(config);
    engine.start(0);
    run_until(&mut engine, model, Phase::Done);
    engine.finish(model.now_ns)
}

fn open(rps: f64, connections: u32) -> LoadConfig {
    let mut config = LoadConfig::echo(64);
    config.mode = Mode::open(rps);
    config.connections = connections;
    config.warmup_ms = 20;
    config.measure_ms = 200;
    config.drain_ms = 100;
    config.verify_share = 1.0;
    config
}

fn within(value: f64, expected: f64, share: f64) -> bool {
    (value / expected - 1.0).abs() <= share
}

#[test]
fn open_loop_offers_the_rate_and_measures_the_delay() {
    let mut model = Model::new(Service::Echo, 10_000);
    let m = measure(&open(100_000.0, 16), &mut model);
    // 20,000 arrivals in the window, give or take five standard deviations.
    assert!(m.counts.requests.abs_diff(20_000) < 5 * 142, "{} requests", m.counts.requests);
    assert!(within(m.achieved_rps(), 100_000.0, 0.04), "{}", m.achieved_rps());
    assert_eq!(m.latency_ns.len(), m.counts.requests);
    assert!(within(m.latency_ns.max() as f64, 10_000.0, 0.01));
    assert!(within(m.latency_ns.min() as f64, 10_000.0, 0.01));
    assert_eq!(
        (m.counts.errors, m.counts.wrong_bytes, m.counts.unanswered, m.counts.late),
        (0, 0, 0, 0)
    );
    assert!(m.counts.verified >= m.counts.requests);
}

#[test]
fn a_pause_of_the_service_is_seen_by_every_request_meant_for_it() {
    // Without coordinated omission: one connection, one request at a time, and a standstill of 50
    // of 200 ms. A closed loop would see one slow request; a quarter of all are.
    let mut config = open(10_000.0, 1);
    config.mode = Mode::Open { rps: 10_000.0, arrivals: ArrivalProcess::Deterministic, depth: 1 };
    let mut model = Model::new(Service::Echo, 20_000);
    model.pause_ns = 100 * MS..150 * MS;
    let m = measure(&config, &mut model);
    assert_eq!(m.counts.requests, 2_000);
    assert_eq!(m.latency_ns.len(), 2_000);
    assert!(m.latency_ns.value_at_quantile(0.5) < 100_000);
    let p80 = m.latency_ns.value_at_quantile(0.8);
    assert!(p80 > MS, "{p80} ns");
    assert!(within(m.latency_ns.max() as f64, 50.0 * MS as f64, 0.01), "{}", m.latency_ns.max());
    assert!(m.counts.backlog_peak.abs_diff(500) < 10, "{}", m.counts.backlog_peak);
    assert_eq!(m.counts.late, 0, "the service was slow, not the generator");
}

#[test]
fn the_pipelining_bound_holds_and_the_choice_of_connections_is_even() {
    let mut config = open(100_000.0, 10);
    config.mode = Mode::Open { rps: 100_000.0, arrivals: ArrivalProcess::Poisson, depth: 2 };
    let workload = Workload::new(&config.workload, 1).expect("valid");
    let mut engine = Engine::new(&config, Arc::new(workload)).expect("valid");
    (0..10).for_each(|connection| engine.on_opened(connection));
    engine.start(0);
    // A service that never answers: 10 connections take 2 requests each, the rest waits.
    let mut model = Model::new(Service::Echo, u64::MAX / 2);
    model.now_ns = 0;
    while model.now_ns < 10 * MS {
        engine.poll(model.now_ns, &mut model);
        model.now_ns += 1_000;
    }
    let requests_of = |model: &Model| {
        let mut requests = [0u64; 10];
        for &(_, connection, bytes) in &model.sent {
            requests[connection as usize] += bytes as u64 / 64;
        }
        requests
    };
    assert_eq!(requests_of(&model), [2; 10]);
    assert!(engine.result.counts.backlog_peak > 900, "{}", engine.result.counts.backlog_peak);

    let mut model = Model::new(Service::Echo, 1_000);
    measure(&open(100_000.0, 10), &mut model);
    let requests = requests_of(&model);
    let mean = requests.iter().sum::<u64>() / 10;
    assert!(requests.iter().all(|n| n.abs_diff(mean) < 6 * 45), "{requests:?}");
}

#[test]
fn closed_loop_obeys_littles_law() {
    for (connections, depth) in [(1, 1), (32, 1), (8, 4), (200, 2)] {
        let mut config = open(1.0, connections);
        config.mode = Mode::closed(depth);
        let mut model = Model::new(Service::Echo, 50_000);
        let m = measure(&config, &mut model);
        let expected = f64::from(connections * depth) / 50e-6;
        assert!(within(m.achieved_rps(), expected, 0.01), "{} of {expected}", m.achieved_rps());
        assert!(within(m.latency_ns.max() as f64, 50_000.0, 0.01));
        assert_eq!(m.latency_ns.len(), m.counts.requests);
        assert_eq!(m.counts.unanswered, 0);
    }
}

#[test]
fn an_overloaded_service_shows_in_latency_and_rate() {
    // 20 us a request: 50,000 a second, offered 100,000.
    let mut model = Model::new(Service::Echo, 0);
    model.busy_ns = 20_000;
    let m = measure(&open(100_000.0, 64), &mut model);
    assert!(within(m.achieved_rps(), 50_000.0, 0.02), "{}", m.achieved_rps());
    assert!(m.latency_ns.value_at_quantile(0.99) > 50 * MS);
    assert_eq!(m.latency_ns.len(), m.counts.requests, "every request has an entry");
    // 22,000 requests take the service 440 ms; it had 320.
    assert!(m.counts.unanswered > 5_000, "{}", m.counts.unanswered);
}

#[test]
fn a_busy_generator_makes_its_result_invalid() {
    let config = open(10_000.0, 4);
    let mut engine = engine(&config);
    let mut model = Model::new(Service::Echo, 10_000);
    engine.start(0);
    // The thread gets to it only every 5 ms.
    while engine.poll(model.now_ns, &mut model).phase != Phase::Done {
        while model.answers.front().is_some_and(|(at_ns, ..)| *at_ns <= model.now_ns) {
            let (_, connection, bytes) = model.answers.pop_front().expect("was there");
            engine.on_received(connection, &bytes, model.now_ns, &mut model);
        }
        model.now_ns += 5 * MS;
    }
    let m = engine.finish(model.now_ns);
    assert!(
        m.counts.late as f64 > m.counts.requests as f64 * 0.9,
        "{} of {}",
        m.counts.late,
        m.counts.requests
    );
    assert!(within(m.lag_ns.max() as f64, 5.0 * MS as f64, 0.05), "{}", m.lag_ns.max());
    let report = LoadReport::new(&config, Conditions::new(&config, "model", "model", "none"), &m);
    assert!(!report.valid);
    assert!(report.invalid_reason.expect("a reason").contains("did not keep up"));
}

#[test]
fn keys_are_stored_once_each_and_then_all_found() {
    let mut config = open(50_000.0, 8);
    config.workload = WorkloadConfig::Memcached {
        get_share: 0.9,
        keys: 5_000,
        key_size: SizeDistribution::Uniform { min: 10, max: 40 },
        value_size: SizeDistribution::Uniform { min: 1, max: 300 },
    };
    let mut model = Model::new(Service::Memcached(MiniCache::default()), 10_000);
    let mut engine = engine(&config);
    // Two halves, as two threads would do it.
    engine.begin_preload(0..2_500);
    run_until(&mut engine, &mut model, Phase::Ready);
    engine.course.phase = Phase::Idle;
    engine.idle.extend(0..8);
    engine.begin_preload(2_500..u32::MAX);
    run_until(&mut engine, &mut model, Phase::Ready);
    let Service::Memcached(cache) = &model.service else { panic!("is memcached") };
    assert_eq!((cache.len(), cache.sets), (5_000, 5_000));

    engine.start(model.now_ns);
    run_until(&mut engine, &mut model, Phase::Done);
    let m = engine.finish(model.now_ns);
    assert_eq!(
        (m.counts.misses, m.counts.errors, m.counts.wrong_bytes, m.counts.preload_failures),
        (0, 0, 0, 0)
    );
    assert!(m.counts.verified >= m.counts.requests && m.counts.requests > 9_000);
}

#[test]
fn a_cache_that_was_not_filled_misses() {
    let mut config = open(50_000.0, 8);
    config.workload = WorkloadConfig::usr();
    let mut model = Model::new(Service::Memcached(MiniCache::default()), 10_000);
    let m = measure(&config, &mut model);
    assert!(
        m.counts.misses as f64 > m.counts.requests as f64 * 0.9,
        "{} of {}",
        m.counts.misses,
        m.counts.requests
    );
}

#[test]
fn wrong_bytes_are_found_in_the_share_that_is_verified() {
    let mut config = open(50_000.0, 8);
    config.workload = WorkloadConfig::Memcached {
        get_share: 1.0,
        keys: 100,
        key_size: SizeDistribution::Fixed(8),
        value_size: SizeDistribution::Fixed(32),
    };
    config.verify_share = 0.25;
    let mut model = Model::new(Service::Memcached(MiniCache::corrupting(10)), 10_000);
    let mut engine = engine(&config);
    engine.begin_preload(0..u32::MAX);
    run_until(&mut engine, &mut model, Phase::Ready);
    engine.start(model.now_ns);
    run_until(&mut engine, &mut model, Phase::Done);
    let m = engine.finish(model.now_ns);
    // The whole run has 220 ms; a quarter is verified. Every 10th answer is wrong and every 4th
    // is looked at: every 20th is both.
    assert!(
        within(m.counts.verified as f64, 11_000.0 / 4.0, 0.1),
        "{} verified",
        m.counts.verified
    );
    assert!(
        within(m.counts.wrong_bytes as f64, 11_000.0 / 20.0, 0.1),
        "{} wrong",
        m.counts.wrong_bytes
    );
}

#[test]
fn requests_on_a_connection_that_ends_are_lost_and_counted() {
    let mut config = open(100_000.0, 2);
    config.warmup_ms = 0;
    let mut engine = engine(&config);
    let mut model = Model::new(Service::Echo, u64::MAX / 2);
    engine.start(0);
    model.now_ns = MS;
    while engine.poll(model.now_ns, &mut model).wake_ns <= model.now_ns {}
    assert_eq!(model.sent.len(), 8, "2 connections, 4 requests each");
    engine.on_closed(0);
    engine.on_closed(0);
    engine.on_received(0, b"late", model.now_ns, &mut model);
    assert_eq!((engine.result.counts.lost, engine.result.counts.connections_lost), (4, 1));
    assert_eq!(engine.result.latency_ns.len(), 4);
    assert!(engine.result.latency_ns.max() >= LATENCY_MAX_NS);
    assert_eq!(engine.open_connections(), 1);
    engine.on_closed(1);
    assert_eq!(engine.poll(model.now_ns, &mut model).phase, Phase::Done);
    let m = engine.finish(model.now_ns);
    assert!(m.ended_early);
    assert_eq!(m.latency_ns.len(), m.counts.requests);
}

#[test]
fn bytes_that_break_the_protocol_end_the_connection() {
    let mut config = open(100_000.0, 1);
    config.workload = WorkloadConfig::usr();
    let mut engine = engine(&config);
    let mut model = Model::new(Service::Memcached(MiniCache::default()), 10);
    engine.start(0);
    model.now_ns = MS;
    engine.poll(model.now_ns, &mut model);
    engine.on_received(0, b"HTTP/1.1 400 Bad Request\r\n", model.now_ns, &mut model);
    assert_eq!(model.aborted, [0]);
    assert_eq!(engine.result.violation, Some(Violation::UnknownLine));
    assert_eq!(engine.open_connections(), 0);
}

#[test]
fn a_full_backlog_drops_and_says_so() {
    let mut config = open(RATE_FOR_OVERFLOW, 1);
    config.warmup_ms = 0;
    config.measure_ms = 1_000;
    let mut engine = engine(&config);
    let mut model = Model::new(Service::Echo, u64::MAX / 2);
    engine.start(0);
    model.now_ns = 2_000 * MS;
    while engine.poll(model.now_ns, &mut model).phase != Phase::Done {}
    let m = engine.finish(model.now_ns);
    assert_eq!(m.counts.backlog_peak, BACKLOG_MAX as u64);
    assert_eq!(m.counts.dropped, m.counts.requests - BACKLOG_MAX as u64 - 4);
    assert_eq!(m.latency_ns.len(), m.counts.requests);
}

/// More arrivals in one second than the backlog holds.
const RATE_FOR_OVERFLOW: f64 = 400_000.0;

#[test]
fn one_seed_asks_for_the_same_requests() {
    let mut config = open(50_000.0, 8);
    config.workload = WorkloadConfig::etc();
    let sent = |seed| {
        let config = LoadConfig { seed, ..config.clone() };
        let mut model = Model::new(Service::Memcached(MiniCache::default()), 10_000);
        measure(&config, &mut model);
        (model.sent, model.sent_bytes)
    };
    assert_eq!(sent(7), sent(7));
    assert_ne!(sent(7).0, sent(8).0);
}

#[test]
fn calls_out_of_order_change_nothing() {
    let mut engine = engine(&open(1_000.0, 2));
    let mut model = Model::new(Service::Echo, 10);
    assert_eq!(engine.poll(0, &mut model), Poll { phase: Phase::Idle, wake_ns: u64::MAX });
    engine.on_received(7, b"x", 0, &mut model);
    engine.on_writable(7, &mut model);
    engine.on_closed(7);
    engine.on_opened(7);
    engine.on_opened(1);
    assert_eq!(engine.open_connections(), 2);
    engine.start(0);
    engine.start(1_000_000_000);
    engine.begin_preload(0..10);
    assert_eq!(engine.phase(), Phase::WarmingUp);
    assert_eq!(engine.course.window.start, 20 * MS);
    let churn = LoadConfig {
        mode: Mode::Churn { requests: 1, close: crate::CloseMode::Rst },
        ..open(1.0, 1)
    };
    let workload = Arc::new(Workload::new(&churn.workload, 1).expect("valid"));
    assert_eq!(Engine::new(&churn, workload).expect_err("churn").key, "mode");
}

#[test]
fn every_arrival_process_reaches_the_wire_as_it_was_asked_for() {
    for arrivals in ["poisson", "deterministic", "uniform", "bursty:16", "facebook"] {
        let mut config = open(50_000.0, 16);
        let arrivals = arrivals.parse().expect("a process");
        config.mode = Mode::Open { rps: 50_000.0, arrivals, depth: 64 };
        config.measure_ms = 1_000;
        let m = measure(&config, &mut Model::new(Service::Echo, 1_000));
        let conditions = Conditions::new(&config, "model", "model", "none");
        let report = LoadReport::new(&config, conditions, &m);
        assert!(report.valid, "{arrivals}: {:?}", report.invalid_reason);
        let check = report.arrivals.expect("50,000 gaps can be judged");
        assert!(check.passed && check.resolution_gaps < 0.01, "{check:?}");
        assert!(
            within(m.counts.requests as f64, 50_000.0, 0.06),
            "{arrivals}: {}",
            m.counts.requests
        );
    }
}

#[test]
fn a_loop_with_long_rounds_is_seen_where_a_resolution_is_set() {
    // The thread gets to it every 40 us, two mean gaps: too seldom to be late, but not Poisson.
    let mut config = open(50_000.0, 64);
    let mut engine = engine(&config);
    let mut model = Model::new(Service::Echo, 10_000);
    engine.start(0);
    while engine.poll(model.now_ns, &mut model).phase != Phase::Done {
        while model.answers.front().is_some_and(|(at_ns, ..)| *at_ns <= model.now_ns) {
            let (_, connection, bytes) = model.answers.pop_front().expect("was there");
            engine.on_received(connection, &bytes, model.now_ns, &mut model);
        }
        model.now_ns += 40_000;
    }
    let m = engine.finish(model.now_ns);
    let report = |config: &LoadConfig| {
        LoadReport::new(config, Conditions::new(config, "model", "model", "none"), &m)
    };
    let relaxed = report(&config);
    assert!(relaxed.valid, "{:?}", relaxed.invalid_reason);
    let check = relaxed.arrivals.expect("enough gaps");
    assert!(within(check.resolution_gaps, 2.0, 0.02), "{check:?}");
    assert!(check.statistic_strict > 0.3 && check.statistic_intended < check.critical);
    assert!(within(relaxed.lag_p50_us, 20.0, 0.05) && within(relaxed.lag_p99_us, 39.6, 0.02));
    config.resolution_us = Some(5);
    let strict = report(&config);
    assert!(strict.invalid_reason.expect("is not valid").contains("let it spin"));
}

/// The mutant: a report that was asked for one process and got another is not valid.
#[test]
fn a_generator_with_the_wrong_process_is_found_out() {
    let config = open(50_000.0, 16);
    let mut wrong = config.clone();
    wrong.mode = Mode::Open { rps: 50_000.0, arrivals: ArrivalProcess::Uniform, depth: 4 };
    let mut engine = engine(&wrong);
    if let Some(open) = &mut engine.open {
        open.watch = GapWatch::new(ArrivalProcess::Poisson, 50_000.0, 1);
    }
    let mut model = Model::new(Service::Echo, 1_000);
    engine.start(0);
    run_until(&mut engine, &mut model, Phase::Done);
    let m = engine.finish(model.now_ns);
    let report = LoadReport::new(&config, Conditions::new(&config, "model", "model", "none"), &m);
    let reason = report.invalid_reason.expect("is not valid");
    assert!(reason.contains("did not leave as poisson arrivals"), "{reason}");
    assert!(reason.contains("pin it to cores of its own"), "{reason}");
}

#[test]
fn a_pattern_is_offered_as_its_integral_says() {
    for shape in ["slope", "step", "square", "sine+noise"] {
        let mut config = open(100_000.0, 16);
        config.measure_ms = 1_000;
        let shape = shape.parse().expect("a shape");
        config.pattern = Some(Pattern { shape, low_rps: 5_000.0, period_ms: 1_000, seed: 3 });
        let m = measure(&config, &mut Model::new(Service::Echo, 1_000));
        let conditions = Conditions::new(&config, "model", "model", "none");
        let report = LoadReport::new(&config, conditions, &m);
        assert!(report.valid, "{shape}: {:?}", report.invalid_reason);
        let offered = report.offered_rps.expect("an open loop");
        assert!((offered - 52_500.0).abs() < 1_500.0, "{shape}: {offered}");
        let off = (m.counts.requests as f64 - offered).abs();
        assert!(off < 4.0 * offered.sqrt(), "{shape}: {} of {offered}", m.counts.requests);
        assert!(report.arrivals.expect("enough gaps").passed);
    }
    let mut config = open(1.0, 1);
    config.mode = Mode::closed(1);
    let shape = PatternShape::Slope;
    config.pattern = Some(Pattern { shape, low_rps: 1.0, period_ms: 1_000, seed: 3 });
    assert_eq!(config.validate().expect_err("no rate to follow it").key, "pattern");
}

#[test]
fn the_agent_measures_apart_from_the_load_with_one_request_at_a_time() {
    let mut config = open(10_000.0, 8);
    config.probe = Some(ProbeConfig { connections: 4, rps: 2_000.0 });
    let mut model = Model::new(Service::Echo, 30_000);
    let m = measure(&config, &mut model);
    let probe = m.probe.as_ref().expect("there was an agent");
    // 400 in the window, give or take six standard deviations, less what waited for an answer.
    assert!((280..=520).contains(&probe.requests), "{}", probe.requests);
    assert_eq!((probe.latency_ns.len(), probe.failed), (probe.requests, 0));
    assert!(within(probe.latency_ns.max() as f64, 30_000.0, 0.01));
    assert_eq!(
        m.latency_ns.len(),
        m.counts.requests,
        "the load's histogram has the load's requests"
    );
    let probes: Vec<_> = model.sent.iter().filter(|(_, connection, _)| *connection >= 8).collect();
    assert!(probes.windows(2).all(|pair| {
        let [(before_ns, a, _), (after_ns, b, _)] = pair else { return false };
        // Never a second one before the answer; the connections take turns.
        after_ns - before_ns >= 30_000 && *b == 8 + (a - 8 + 1) % 4
    }));
    assert!(model.sent.iter().any(|(_, connection, _)| *connection < 8));

    let conditions = Conditions::new(&config, "model", "model", "none");
    let report = LoadReport::new(&config, conditions, &m);
    let found = report.probe.as_ref().expect("is reported");
    assert!(within(found.p50_us, 30.0, 0.01) && found.connections == 4, "{found:?}");
    assert!(report.to_table().contains("requests on 4 connections of its own, 0 failed"));
    assert_eq!(serde_json::from_str::<LoadReport>(&report.to_json()).expect("reads"), report);
}

#[test]
fn an_agent_without_a_rate_asks_as_soon_as_it_is_answered() {
    let mut config = open(1_000.0, 1);
    config.probe = Some(ProbeConfig { connections: 32, rps: 0.0 });
    let m = measure(&config, &mut Model::new(Service::Echo, 10_000));
    let probe = m.probe.expect("there was an agent");
    // 200 ms of 10 us each.
    assert!(within(probe.requests as f64, 20_000.0, 0.001), "{}", probe.requests);
}

#[test]
fn what_the_agent_loses_is_counted() {
    let mut config = open(1_000.0, 1);
    config.warmup_ms = 0;
    config.probe = Some(ProbeConfig { connections: 2, rps: 0.0 });
    let mut engine = engine(&config);
    engine.on_opened(1);
    engine.on_opened(2);
    let mut model = Model::new(Service::Echo, u64::MAX / 2);
    engine.start(0);
    engine.poll(0, &mut model);
    assert_eq!(model.sent.iter().map(|(_, connection, _)| *connection).collect::<Vec<_>>(), [1]);
    engine.on_closed(1);
    engine.on_closed(1);
    assert_eq!(engine.result.counts.connections_lost, 1);
    engine.poll(MS, &mut model);
    assert_eq!(model.sent.last().map(|(_, connection, _)| *connection), Some(2));
    engine.on_received(2, &[0; 64], 2 * MS, &mut model);
    assert_eq!(engine.result.counts.wrong_bytes, 1, "verified, and not what was sent");
    engine.on_received(2, &[1; 200], 3 * MS, &mut model);
    assert_eq!(model.aborted, [2], "more than was asked for");
    engine.on_writable(2, &mut model);
    // Without its connections the agent is silent, and the load goes on.
    assert_eq!(engine.poll(4 * MS, &mut model).phase, Phase::Measuring);
    let probe = engine.finish(5 * MS).probe.expect("there was an agent");
    assert_eq!((probe.failed, probe.latency_ns.len()), (probe.requests, probe.requests));
    let churn = Mode::Churn { requests: 1, close: crate::CloseMode::Rst };
    let config = LoadConfig { mode: churn, ..config };
    assert_eq!(config.validate().expect_err("no agent beside a churn").key, "probe");
}

#[test]
fn the_series_adds_up_to_the_window() {
    let mut config = open(50_000.0, 16);
    config.measure_ms = 1_050;
    let shape = PatternShape::Slope;
    config.pattern = Some(Pattern { shape, low_rps: 5_000.0, period_ms: 1_000, seed: 3 });
    // 40,000 a second at most: less than the peak, so that responses lag behind there.
    let mut model = Model::new(Service::Echo, 10_000);
    model.busy_ns = 25_000;
    let m = measure(&config, &mut model);
    let conditions = Conditions::new(&config, "model", "model", "none");
    let report = LoadReport::new(&config, conditions, &m);
    assert_eq!(report.series.len(), 11);
    assert_eq!(report.series.iter().map(|p| p.requests).sum::<u64>(), m.counts.requests);
    let seconds = |at: &SeriesPoint| if at.at_ms < 1_000 { 0.1 } else { 0.05 };
    let completed: f64 = report.series.iter().map(|p| p.achieved_rps * seconds(p)).sum();
    assert!(
        (completed - m.counts.completed as f64).abs() < 0.5,
        "{completed} of {}",
        m.counts.completed
    );
    let offered: f64 = report.series.iter().filter_map(|p| Some(p.offered_rps? * seconds(p))).sum();
    assert!(within(offered / 1.05, report.offered_rps.expect("open loop"), 1e-6));
    for point in &report.series {
        let expected = point.offered_rps.expect("open loop") * seconds(point);
        let off = (point.requests as f64 - expected).abs();
        assert!(off < 5.0 * expected.sqrt(), "{point:?}: {expected}");
    }
    let p99 = |index: usize| report.series[index].p99_us.expect("had requests");
    assert!(p99(5) > 10.0 * p99(0), "the peak shows: {} and {}", p99(5), p99(0));
    assert!(report.to_table().contains("at 500 ms"));
    // Not every number survives JSON to its last bit.
    let again = serde_json::from_str::<LoadReport>(&report.to_json()).expect("reads");
    assert_eq!(again.series.len(), 11);
    assert_eq!(again.series[5].p99_us, report.series[5].p99_us);
}

/// A generator that takes half a microsecond for every request and every response can do a million
/// a second, less than the engine does alone (the example `engine_cost`). At half of that,
/// against a service that takes known times on as many cores as it needs, it must measure those
/// times. What it adds is the wait for its own work on other requests: about 1.6 times its cost of
/// one, which must be small beside the times that are measured.
#[test]
fn at_half_its_capacity_the_generator_measures_the_known_distribution() {
    const COST_NS: u64 = 500;
    for (times, p50_us, p99_us) in [
        ("exponential:100", 100.0 * 2f64.ln(), 100.0 * 100f64.ln()),
        ("deterministic:100", 100.0, 100.0),
        ("bimodal-1:200", 100.0, 1_100.0),
    ] {
        // One request on a connection, so that answers need not wait for those before them.
        let mut config = open(500_000.0, 4_096);
        let arrivals = ArrivalProcess::Poisson;
        config.mode = Mode::Open { rps: 500_000.0, arrivals, depth: 1 };
        config.workload = WorkloadConfig::named(&format!("spin:{times}")).expect("a workload");
        let mut network = Parallel::default();
        let mut engine = engine(&config);
        engine.start(0);
        let mut now_ns = 0;
        loop {
            let before = network.sent;
            network.now_ns = now_ns;
            let poll = engine.poll(now_ns, &mut network);
            if poll.phase == Phase::Done {
                break;
            }
            now_ns += (network.sent - before) * COST_NS;
            let due = network.answers.first_key_value().map(|(key, _)| *key);
            match due {
                Some((at_ns, number)) if at_ns <= now_ns => {
                    let (connection, frame) =
                        network.answers.remove(&(at_ns, number)).expect("is there");
                    network.now_ns = now_ns;
                    engine.on_received(connection, &frame, now_ns, &mut network);
                    now_ns += COST_NS;
                }
                _ if network.sent > before => {}
                _ => {
                    let answer_ns = due.map_or(u64::MAX, |(at_ns, _)| at_ns);
                    now_ns = now_ns.max(poll.wake_ns.min(answer_ns));
                }
            }
        }
        let m = engine.finish(now_ns);
        let report =
            LoadReport::new(&config, Conditions::new(&config, "model", "model", "none"), &m);
        assert!(report.valid, "{times}: {:?}", report.invalid_reason);
        assert!(
            m.counts.requests > 95_000
                && m.counts.wrong_bytes == 0
                && m.counts.verified >= m.counts.requests
        );
        assert!(within(report.p50_us, p50_us, 0.02), "{times}: p50 {}", report.p50_us);
        assert!(within(report.p99_us, p99_us, 0.05), "{times}: p99 {}", report.p99_us);
    }
}

/// The synthetic service on as many cores as it has requests: each answer comes after exactly the
/// time that it asks for.
#[derive(Default)]
struct Parallel {
    now_ns: u64,
    sent: u64,
    answers: std::collections::BTreeMap<(u64, u64), (u32, [u8; 16])>,
}

impl Sender for Parallel {
    fn send(&mut self, connection: u32, bytes: &[u8]) -> usize {
        let (frames, rest) = bytes.as_chunks::<16>();
        assert!(rest.is_empty(), "whole requests");
        for frame in frames {
            let service_ns = spin::Frame::from_bytes(frame).service_ns;
            self.sent += 1;
            self.answers.insert((self.now_ns + service_ns, self.sent), (connection, *frame));
        }
        bytes.len()
    }

    fn abort(&mut self, _: u32) {}
}
