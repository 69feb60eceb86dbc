//! The generator on one dataplane, the synthetic service on another, joined in memory, on a virtual
//! clock: Poisson arrivals and exponential service times on one core are an M/M/1 queue, whose
//! times are known.

use std::sync::Arc;

use clock::{Clock, Duration, Instant, VirtualClock};
use dataplane::{ElasticConfig, ElasticThread, ForwardPorts};
use load::{LoadConfig, LoadReport, Mode, ProbeConfig, WorkloadConfig, dataplane as transport};
use mem::{Pool, Region};
use nic::loopback::{LoopbackConfig, LoopbackNic, pair};
use spin::DelayedSpin;
use stack::{Secrets, Shared, StackConfig, StackStats};
use tailplane::{Endpoint, Ipv4Addr, MacAddr, Service};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const PORT: u16 = 7_070;
/// Virtual time of a cycle in which something happens.
const CYCLE: Duration = Duration::from_micros(1);
/// Virtual time that is passed over at most where nothing does: the stacks' own timers are coarser.
const IDLE: Duration = Duration::from_micros(100);

fn thread(address: Ipv4Addr, last: u8, nic: LoopbackNic) -> ElasticThread<LoopbackNic> {
    let mut config = StackConfig::new(address, 24, MacAddr([2, 0, 0, 0, 0, last]));
    config.tcp_listen = vec![PORT];
    let secrets =
        Secrets { rss_key: wire::MICROSOFT_KEY, isn_key: [1; 16], port_key: [2; 16], offset: 3 };
    let shared = Arc::new(Shared::new(config, &secrets, 1));
    let pool = Pool::new(&Region::heap(8_192), 8_192);
    let ports = ForwardPorts::default();
    ElasticThread::new(0, shared, nic, pool, ports, ElasticConfig::default(), Instant::ZERO)
}

/// Carries `load` in virtual time.
fn run(load: &LoadConfig) -> LoadReport {
    let target = Endpoint::new(SERVER, PORT);
    let (mut services, run) = transport::services(load, target, 1).expect("a valid load");
    let mut generator = services.pop().expect("one service");
    let (a, b) = pair(LoopbackConfig::default());
    let (mut server, mut client) = (thread(SERVER, 1, a), thread(CLIENT, 2, b));
    let mut service = DelayedSpin::new();
    let mut clock = VirtualClock::default();
    let limit = Instant::from_millis(run.limit_ms());
    let mut frames_before = 0;
    while !run.is_over() {
        assert!(clock.now() < limit, "the run did not end: {}", run.phase());
        client.run_cycle(clock.now(), &mut generator);
        server.run_cycle(clock.now(), &mut service);
        let segments = |stats: StackStats| stats.tcp_segments_in + stats.tcp_segments_out;
        let frames = segments(client.stack().stats()) + segments(server.stack().stats());
        let busy = frames != frames_before;
        frames_before = frames;
        let next = [generator.wake_at(), service.wake_at()].into_iter().flatten().min();
        if busy {
            clock.advance(CYCLE);
        } else {
            let latest = clock.now() + IDLE;
            let earliest = clock.now() + Duration::from_nanos(100);
            clock.advance_to(next.unwrap_or(latest).clamp(earliest, latest));
        }
    }
    assert_eq!(client.stack().stats().tcp_retransmissions, 0);
    let conditions = run.conditions("tailplane over loopback", target);
    run.report(conditions).expect("a report")
}

fn within(value: f64, expected: f64, share: f64) -> bool {
    (value / expected - 1.0).abs() <= share
}

#[test]
fn the_times_of_an_m_m_1_queue_are_measured() {
    let mut load = LoadConfig::new(WorkloadConfig::named("spin:exponential:100").expect("named"));
    load.connections = 64;
    load.warmup_ms = 20;
    load.measure_ms = 12_000;
    load.drain_ms = 100;
    load.verify_share = 1.0;
    // A fifth of what the core can do, and half of it.
    for load_share in [0.2, 0.5] {
        load.mode = Mode::open(load_share * 10_000.0);
        let report = run(&load);
        assert!(report.valid, "{:?}", report.invalid_reason);
        assert_eq!((report.errors, report.wrong_bytes, report.unanswered), (0, 0, 0));
        assert!(report.verified >= report.requests);
        // The time in an M/M/1 queue is exponential, with the mean S / (1 - load).
        let mean_us = 100.0 / (1.0 - load_share);
        let (p50_us, p99_us) = (mean_us * 2f64.ln(), mean_us * 100f64.ln());
        assert!(within(report.p50_us, p50_us, 0.02), "p50 {} of {p50_us}", report.p50_us);
        assert!(within(report.p99_us, p99_us, 0.05), "p99 {} of {p99_us}", report.p99_us);
        assert!(report.arrivals.expect("is judged").passed);
    }
}

#[test]
fn the_agent_of_the_dataplane_transport_measures_on_its_own_connections() {
    let mut load = LoadConfig::new(WorkloadConfig::named("spin:deterministic:20").expect("named"));
    load.mode = Mode::open(5_000.0);
    load.connections = 8;
    load.probe = Some(ProbeConfig { connections: 32, rps: 1_000.0 });
    load.warmup_ms = 10;
    load.measure_ms = 500;
    load.drain_ms = 50;
    let report = run(&load);
    assert!(report.valid, "{:?}", report.invalid_reason);
    let probe = report.probe.expect("there was an agent");
    assert!((400..600).contains(&probe.requests) && probe.failed == 0, "{probe:?}");
    // Alone, or behind one of the load: mostly alone at a tenth of what the core can do.
    assert!((20.0..25.0).contains(&probe.p50_us), "{probe:?}");
    assert!(report.requests.abs_diff(2_500) < 6 * 50, "{}", report.requests);
}
