//! Several queues on a veth pair: frames come to their flow group's thread, and flow groups move from thread to
//! thread under load.

use std::net::TcpStream;
use std::time::Duration;

use figures::reproduce::moving::{self, Found, Plan, Table};
use rustix::process::Signal;
use service::lab::{Lab, LabConfig};

use crate::harness::stream::{assert_echoes, connect};
use crate::harness::{ECHO, Testbed, Turn, config, possible, start};

/// Packets that the threads of a service handed to each other, as it says at its end.
fn forwarded(stdout: &str) -> Vec<u64> {
    let lines = stdout.lines().filter(|line| line.starts_with("thread "));
    let number = |line: &str| line.strip_suffix(" forwarded")?.rsplit(' ').next()?.parse().ok();
    lines.map(|line| number(line).unwrap_or_else(|| panic!("no count in '{line}'"))).collect()
}

#[test]
fn a_service_of_two_threads_gets_each_connections_packets_where_it_is_at_home() {
    let Some(bed) = Testbed::alone("steered", 2) else { return };
    for domain in ["inline", "process"] {
        let more = format!("domain = \"{domain}\"\n");
        let service = start(&bed.directory, &config("echo", bed.lab.prefix(), 2, &more));
        assert!(service.stdout().contains("indirection table"), "{}", service.stdout());
        let mut streams: Vec<TcpStream> =
            bed.at_client(|| (0..40).map(|_| connect(ECHO).expect("let in")).collect());
        for _ in 0..20 {
            streams.iter_mut().for_each(|stream| assert_echoes(stream, b"word after word"));
        }
        drop(streams);
        std::thread::sleep(Duration::from_millis(100));
        let finished = service.interrupt(Signal::TERM);
        finished.assert_success();
        assert_eq!(forwarded(&finished.stdout), [0, 0], "{domain}: {finished:?}");
    }
}

fn lab() -> Lab {
    let lab = Lab::create(LabConfig { queues: 2, ..LabConfig::unique("moving") }).expect("a lab");
    lab.add_uplink().expect("an uplink");
    lab
}

fn move_all(lab: &Lab, table: Table, word_every: Option<Duration>) -> Found {
    let pause = Duration::from_millis(1);
    let plan = Plan { table, moves: 60, connections: 48, word_every, pause };
    let found = moving::run(lab, &plan).expect("it runs");
    println!("{table:?}: {found:?}");
    assert_eq!(found.recorded.len(), plan.moves);
    assert_eq!(found.anomalous(), 0, "{:?}", found.anomalies);
    found
}

#[test]
fn flow_groups_move_under_load_and_nothing_is_lost_or_reordered() {
    if !possible() {
        return;
    }
    let _turn = Turn::alone();
    let lab = lab();
    let word_every = Some(Duration::from_micros(60));
    let found = move_all(&lab, Table::Probed, word_every);
    let moved = found.migrations;
    assert!(found.words > 1_000 && found.connections > 300, "{found:?}");
    assert_eq!((moved.redirected, moved.not_redirected), (moved.begun, 0));
    // A probe may be lost as any frame: the timer stands for it.
    assert!(moved.probed * 10 >= moved.completed * 9, "{moved:?}");

    // Without a table all is as it was: packets are forwarded.
    let found = move_all(&lab, Table::None, word_every);
    assert_eq!((found.migrations.redirected, found.migrations.probed), (0, 0));
    assert!(found.forwarded > 0);
}

#[test]
fn groups_without_packets_do_not_wait_for_a_timer() {
    if !possible() {
        return;
    }
    let _turn = Turn::alone();
    let lab = lab();
    let moved = move_all(&lab, Table::Probed, None).migrations;
    assert!(moved.probed * 10 >= moved.completed * 9, "{moved:?}");
}
