//! The generator on one dataplane against an echo service on another, joined in memory, on a
//! virtual clock: the real stack at both ends, and the same numbers on every machine.

use std::sync::Arc;

use clock::{Clock, Duration, Instant, VirtualClock};
use dataplane::{ElasticConfig, ElasticThread, ForwardPorts};
use load::{CloseMode, LoadConfig, LoadReport, Mode, dataplane as transport};
use mem::{Pool, Region};
use nic::loopback::{LoopbackConfig, LoopbackNic, pair};
use stack::{Secrets, Shared, StackConfig};
use tailplane::{Calls, Cookie, Endpoint, Event, Events, Ipv4Addr, MacAddr, Service};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const PORT: u16 = 7;
/// Virtual time from one cycle of both ends to the next.
const CYCLE: Duration = Duration::from_micros(2);

/// Returns what it receives. The loads here never fill a batch of calls or a window.
#[derive(Default)]
struct Echo {
    knocks: u64,
    ended: u64,
}

impl Service for Echo {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            match event {
                Event::Knock { handle, .. } => {
                    self.knocks += 1;
                    calls.accept(handle, Cookie(0)).expect("room");
                }
                Event::Recv { handle, data, .. } => {
                    calls.sendv(handle, &[data]).expect("room");
                    calls.recv_done(handle, data.len()).expect("room");
                }
                Event::Eof { handle, .. } => calls.close(handle).expect("room"),
                Event::Dead { .. } => self.ended += 1,
                _ => {}
            }
        }
    }
}

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

fn run(mode: Mode, connections: u32) -> (LoadReport, Echo) {
    let mut load = LoadConfig::echo(64);
    load.mode = mode;
    load.connections = connections;
    load.warmup_ms = 5;
    load.measure_ms = 30;
    load.drain_ms = 50;
    load.verify_share = 1.0;
    let target = Endpoint::new(SERVER, PORT);
    let (mut services, run) = transport::services(&load, target, 1).expect("a valid load");
    let mut generator = services.pop().expect("one service");
    let (a, b) = pair(LoopbackConfig::default());
    let (mut server, mut client) = (thread(SERVER, 1, a), thread(CLIENT, 2, b));
    let mut echo = Echo::default();
    let mut clock = VirtualClock::default();
    let limit = Instant::from_millis(run.limit_ms());
    while !run.is_over() {
        assert!(clock.now() < limit, "the run did not end: {}", run.phase());
        client.run_cycle(clock.now(), &mut generator);
        server.run_cycle(clock.now(), &mut echo);
        clock.advance(CYCLE);
    }
    // The last resets are on their way.
    for _ in 0..100 {
        client.run_cycle(clock.now(), &mut generator);
        server.run_cycle(clock.now(), &mut echo);
        clock.advance(CYCLE);
    }
    assert_eq!(client.stack().stats().tcp_retransmissions, 0);
    let conditions = run.conditions("tailplane over loopback", target);
    (run.report(conditions).expect("a report"), echo)
}

fn assert_sound(report: &LoadReport) {
    assert!(report.valid, "{:?}", report.invalid_reason);
    let counts = (report.errors, report.wrong_bytes, report.connections_lost, report.unanswered);
    assert_eq!(counts, (0, 0, 0, 0), "{report:?}");
    assert!(report.requests > 0 && report.verified >= report.requests);
}

#[test]
fn open_loop_over_a_thousand_connections() {
    let (report, echo) = run(Mode::open(100_000.0), 1_000);
    assert_sound(&report);
    assert_eq!((echo.knocks, echo.ended), (1_000, 1_000));
    assert!((report.achieved_rps / 100_000.0 - 1.0).abs() < 0.1, "{}", report.achieved_rps);
    // A request meant between two cycles waits for the next, and its response is there one later.
    assert!(report.p99_us <= 5.0, "{}", report.p99_us);
}

#[test]
fn closed_loop_with_pipelining() {
    let (report, _) = run(Mode::closed(4), 16);
    assert_sound(&report);
    // Each of 64 requests takes one cycle there and back.
    assert!((report.achieved_rps / 32e6 - 1.0).abs() < 0.05, "{}", report.achieved_rps);
}

#[test]
fn churn_by_reset_and_by_fin() {
    // Few at a time by FIN: their TIME-WAIT would use up the client's ports.
    for (close, connections) in [(CloseMode::Rst, 16), (CloseMode::Fin, 2)] {
        let (report, echo) = run(Mode::Churn { requests: 2, close }, connections);
        assert_sound(&report);
        assert!(echo.knocks > 1_000, "{} connections", echo.knocks);
        assert_eq!(echo.knocks, echo.ended);
    }
}
