//! Many connections at once on one elastic thread.

use std::fs;
use std::net::{Shutdown, TcpStream};

use serde_json::Value;

use crate::harness::process::may_open;
use crate::harness::stream::{assert_echoes, assert_end, connect};
use crate::harness::{ECHO, Testbed, tailplane, wait_until};

const CONNECTIONS: usize = 10_000;
/// Files beside the connections: the test binary's own.
const OTHER_FILES: u64 = 256;

#[test]
fn ten_thousand_connections_stay_open_and_close_in_order() {
    if !may_open(CONNECTIONS as u64 + OTHER_FILES) {
        return;
    }
    let Some(mut bed) = Testbed::with("connections", "echo") else { return };
    let mut streams: Vec<TcpStream> = bed.at_client(|| {
        fs::write("/proc/sys/net/ipv4/ip_local_port_range", "2000 65000").expect("its own range");
        (0..CONNECTIONS)
            .map(|number| connect(ECHO).unwrap_or_else(|e| panic!("{number}: {e}")))
            .collect()
    });
    let message = |number: usize| (number as u64).to_le_bytes();
    for (number, stream) in streams.iter_mut().enumerate() {
        assert_echoes(stream, &message(number));
    }
    // The first ones have been quiet while all others were opened and used.
    for (number, stream) in streams.iter_mut().enumerate().step_by(97) {
        assert_echoes(stream, &message(number + CONNECTIONS));
    }
    for stream in &streams {
        stream.shutdown(Shutdown::Write).expect("open until now");
    }
    for stream in &mut streams {
        assert_end(stream);
    }
    drop(streams);
    // So many ends at once overflow rings: what was dropped is sent again.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let summary = bed.stop();
    assert_eq!(summary.accepted, [CONNECTIONS as u64], "{}", summary.text);
    assert_eq!(summary.left, 0, "{}", summary.text);
}

#[test]
fn status_shows_what_the_stack_counts() {
    let Some(bed) = Testbed::with("counted", "echo") else { return };
    let mut streams: Vec<TcpStream> =
        bed.at_client(|| (0..3).map(|_| connect(ECHO).expect("let in")).collect());
    streams.iter_mut().for_each(|stream| assert_echoes(stream, b"counted"));
    let count = |counter: &str| {
        let mut command = tailplane(&["status", "--json", "--over-ms", "20"]);
        let output = command.env("TAILPLANE_RUN_DIR", bed.directory.file("run")).output();
        let output = output.expect("the tailplane command starts");
        let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        status["services"][0]["stack"][counter]["total"].as_u64()
    };
    wait_until("three connections are counted", || count("tcp_accepted") == Some(3));
    wait_until("and what came in", || count("tcp_bytes_in") == Some(3 * 7));
    assert_eq!(count("malformed"), Some(0));
}
