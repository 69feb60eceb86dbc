//! Real sockets on loopback. Windows are short and no assertion depends on how fast the machine
//! is: only on what must hold on any.

use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::config::{CloseMode, Mode};
use crate::test_peers::{EchoServer, RealMemcached};
use crate::workload::WorkloadConfig;

/// A short run that tolerates a busy machine.
fn short(workload: WorkloadConfig, mode: Mode, connections: u32) -> LoadConfig {
    let mut config = LoadConfig::new(workload);
    config.mode = mode;
    config.connections = connections;
    config.warmup_ms = 20;
    config.measure_ms = 100;
    config.drain_ms = 1_000;
    config.verify_share = 1.0;
    config.lag_limit_us = 1_000_000;
    config
}

fn echo(mode: Mode, connections: u32) -> LoadConfig {
    short(WorkloadConfig::Echo { bytes: 64 }, mode, connections)
}

fn blocking(target: SocketAddr) -> KernelConfig {
    KernelConfig { wait: Wait::Block, ..KernelConfig::new(target) }
}

/// What must hold of every undisturbed run.
fn assert_sound(report: &LoadReport) {
    assert!(report.valid, "{:?}", report.invalid_reason);
    assert!(report.requests > 0 && report.achieved_rps > 0.0, "{report:?}");
    assert_eq!((report.errors, report.wrong_bytes, report.connections_lost), (0, 0, 0));
    assert!(report.verified >= report.requests);
    assert!(report.p50_us > 0.0 && report.p50_us <= report.p99_us);
    assert!(report.p99_us <= report.p999_us && report.p999_us <= report.max_us * 1.001);
}

#[test]
fn closed_loop_over_loopback_blocking_and_spinning() {
    let server = EchoServer::start(|byte| byte);
    for wait in [Wait::Block, Wait::Spin] {
        let transport = KernelConfig { wait, ..KernelConfig::new(server.address) };
        let report = run(&echo(Mode::closed(2), 8), &transport).expect("runs");
        assert_sound(&report);
        assert_eq!(report.offered_rps, None);
    }
}

#[test]
fn open_loop_over_loopback_sends_what_was_asked() {
    let server = EchoServer::start(|byte| byte);
    let report = run(&echo(Mode::open(2_000.0), 8), &blocking(server.address)).expect("runs");
    assert_sound(&report);
    // 200 arrivals in the window, give or take six standard deviations: intended times do not
    // depend on the machine.
    assert!(report.requests.abs_diff(200) < 6 * 15, "{}", report.requests);
    assert_eq!(report.unanswered, 0);
}

#[test]
fn two_threads_are_one_load() {
    let server = EchoServer::start(|byte| byte);
    let transport = KernelConfig { threads: 2, ..blocking(server.address) };
    let mut load = echo(Mode::open(4_000.0), 5);
    load.mode =
        Mode::Open { rps: 4_000.0, arrivals: crate::ArrivalProcess::Deterministic, depth: 4 };
    let report = run(&load, &transport).expect("runs");
    assert_sound(&report);
    assert!(report.requests.abs_diff(400) <= 4, "{}", report.requests);
    assert_eq!(report.conditions.threads, 2);
}

#[test]
fn pingpong_has_one_request_at_a_time() {
    let server = EchoServer::start(|byte| byte);
    let load = LoadConfig { measure_ms: 50, warmup_ms: 5, ..echo(Mode::closed(1), 1) };
    let report = run(&load, &KernelConfig::new(server.address)).expect("runs");
    assert!(report.valid, "{:?}", report.invalid_reason);
    assert_eq!(report.conditions.connections, 1);
    assert_eq!(report.conditions.wait, "spin");
    // One at a time: their latencies fit into the window one after the other, but for the last.
    let sum_us = report.requests as f64 * report.mean_us;
    assert!(sum_us <= (50_000.0 + report.max_us) * 1.01, "{sum_us} us in {report:?}");
}

#[test]
fn messages_larger_than_the_sockets_room_arrive_whole() {
    let server = EchoServer::start(|byte| byte);
    let load = short(WorkloadConfig::Echo { bytes: 1_000_000 }, Mode::closed(4), 2);
    // Two connections are few: the spinning thread asks no poller for them.
    for wait in [Wait::Block, Wait::Spin] {
        let transport = KernelConfig { wait, ..KernelConfig::new(server.address) };
        let report = run(&load, &transport).expect("runs");
        assert!(report.valid, "{wait:?}: {:?}", report.invalid_reason);
        assert_eq!((report.wrong_bytes, report.errors), (0, 0));
    }
}

#[test]
fn a_service_that_changes_bytes_is_found_out() {
    let server = EchoServer::start(|byte| if byte == 0x41 { 0x42 } else { byte });
    let report = run(&echo(Mode::closed(1), 4), &blocking(server.address)).expect("runs");
    assert!(report.wrong_bytes > 0);
    assert!(!report.valid);
    assert!(report.invalid_reason.expect("a reason").contains("wrong bytes"));
}

#[test]
fn churn_over_loopback_with_both_ways_to_close() {
    let server = EchoServer::start(|byte| byte);
    for close in [CloseMode::Rst, CloseMode::Fin] {
        for wait in [Wait::Block, Wait::Spin] {
            let load = echo(Mode::Churn { requests: 3, close }, 4);
            let transport = KernelConfig { wait, ..KernelConfig::new(server.address) };
            let report = run(&load, &transport).expect("runs");
            assert!(report.valid, "{:?}", report.invalid_reason);
            assert_eq!((report.errors, report.wrong_bytes), (0, 0), "{close:?} {wait}");
            // Verified counts every response of the run, and each cycle has three.
            assert!(report.verified > 3, "{report:?}");
            assert!(report.conditions.mode.contains(close.note()));
        }
    }
}

#[test]
fn the_real_memcached_answers_every_request_rightly() {
    let Some(server) = RealMemcached::start() else { return };
    let workload = WorkloadConfig::Memcached {
        get_share: 0.8,
        keys: 500,
        key_size: "uniform:10:60".parse().expect("sizes"),
        value_size: "uniform:1:2000".parse().expect("sizes"),
    };
    for mode in [
        Mode::closed(4),
        Mode::open(2_000.0),
        Mode::Churn { requests: 2, close: CloseMode::Rst },
        Mode::Churn { requests: 2, close: CloseMode::Fin },
    ] {
        let transport = KernelConfig { threads: 2, ..blocking(server.address) };
        let report = run(&short(workload.clone(), mode, 8), &transport).expect("runs");
        assert!(report.valid, "{mode}: {:?}", report.invalid_reason);
        let counts = (report.errors, report.misses, report.wrong_bytes);
        assert_eq!(counts, (0, 0, 0), "{mode}");
        assert!(report.verified > 0, "{mode}");
    }
}

#[test]
fn a_service_that_closes_is_an_invalid_result_and_not_a_hang() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || {
        let streams: Vec<_> = (0..4).filter_map(|_| listener.accept().ok()).collect();
        std::thread::sleep(Duration::from_millis(40));
        drop(streams);
    });
    let report = run(&echo(Mode::open(1_000.0), 4), &blocking(address)).expect("runs");
    server.join().expect("the server ends");
    assert!(!report.valid);
    assert_eq!(report.connections_lost, 4);
    assert!(report.invalid_reason.expect("a reason").contains("closed by the peer"));
}

#[test]
fn what_cannot_be_done_is_said() {
    // A port that was free a moment ago and is not listened on.
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address")
    };
    let error = run(&echo(Mode::closed(1), 2), &blocking(closed)).expect_err("nobody listens");
    let text = error.to_string();
    assert!(text.contains("connection 0 of 2") && text.contains("does a service listen"), "{text}");

    let churn = echo(Mode::Churn { requests: 1, close: CloseMode::Rst }, 1);
    let report = run(&churn, &blocking(closed)).expect("counted, not failed");
    assert!(!report.valid && report.errors > 0);
    let failure = &report.conditions.more["first failure"];
    assert!(failure.contains("refused") && failure.contains("does a service"), "{failure}");

    type Spoil = fn(&mut KernelConfig);
    let wrong: [(Spoil, &str); 4] = [
        (|c| c.threads = 0, "`threads` is `0`; allowed: 1 to 2"),
        (|c| c.threads = 3, "`threads` is `3`; allowed: 1 to 2"),
        (|c| c.cores = vec![0, 1], "`cores` is `[0, 1]`; allowed: one core for each of the 1"),
        (|c| c.target.set_port(0), "`target` is `127.0.0.1:0`; allowed: an address with a port"),
    ];
    for (spoil, expected) in wrong {
        let mut transport = blocking(closed);
        spoil(&mut transport);
        let text = run(&echo(Mode::closed(1), 2), &transport).expect_err(expected).to_string();
        assert!(text.starts_with(expected), "{text}");
    }
    let transport = KernelConfig { cores: vec![1_023], ..blocking(closed) };
    let error = run(&echo(Mode::closed(1), 1), &transport).expect_err("no such core");
    assert!(matches!(error, LoadError::Pin { core: 1_023, .. }), "{error}");
}

#[test]
fn a_pattern_an_agent_and_a_log_on_two_threads() {
    let server = EchoServer::start(|byte| byte);
    let mut load = echo(Mode::open(4_000.0), 6);
    load.measure_ms = 300;
    let shape = crate::PatternShape::Step;
    load.pattern = Some(crate::Pattern { shape, low_rps: 400.0, period_ms: 300, seed: 1 });
    load.probe = Some(crate::ProbeConfig { connections: 3, rps: 500.0 });
    let name = format!("tailplane-load-{}.hlog", std::process::id());
    let path = std::env::temp_dir().join(name);
    load.hdr_log = Some(path.to_string_lossy().into_owned());
    let transport = KernelConfig { threads: 2, ..blocking(server.address) };
    let report = run(&load, &transport);
    let log = std::fs::read_to_string(&path);
    let _ = std::fs::remove_file(&path);
    let (report, log) = (report.expect("runs"), log.expect("was written"));
    assert_sound(&report);
    let offered = report.offered_rps.expect("an open loop") * 0.3;
    let off = (report.requests as f64 - offered).abs();
    assert!(off < 6.0 * offered.sqrt(), "{} of {offered}", report.requests);
    let probe = report.probe.expect("there was an agent");
    assert!(probe.requests > 0 && probe.failed == 0 && probe.p50_us > 0.0, "{probe:?}");
    assert_eq!(report.series.len(), 3);
    assert_eq!(report.series.iter().map(|point| point.requests).sum::<u64>(), report.requests);
    assert!(log.starts_with("#echo of 64 B"), "{log}");
    assert_eq!(log.lines().filter(|line| line.starts_with("Tag=")).count(), 2, "{log}");

    load.hdr_log = Some("no such directory/x".into());
    load.measure_ms = 20;
    let error = run(&load, &transport).expect_err("cannot be written").to_string();
    assert!(error.contains("'no such directory/x'"), "{error}");
}

#[test]
fn the_synthetic_workload_is_verified_over_sockets() {
    // A service that only echoes answers rightly, too: it serves in no time.
    let server = EchoServer::start(|byte| byte);
    let times = "bimodal-2:50".parse().expect("service times");
    let load = short(WorkloadConfig::Spin { times }, Mode::closed(4), 4);
    let report = run(&load, &blocking(server.address)).expect("runs");
    assert_sound(&report);
    let server = EchoServer::start(|byte| byte ^ 1);
    let report = run(&load, &blocking(server.address)).expect("runs");
    assert!(report.wrong_bytes > 0 && !report.valid);
}
