//! Short connections: connect, one request, close. No errors, and no decay of the rate.

use std::fs;

use crate::harness::{Testbed, is_full, tailplane};

/// The second half's rate may not be below this share of the first's.
const SHARE_MIN: f64 = 0.7;
/// Other work of the machine may slow one half: so often is the ratio measured before it counts.
const ATTEMPTS: u32 = 3;

/// Cycles per second over one window.
fn rate(bed: &Testbed, transport: &str, close: &str, seconds: &str) -> f64 {
    let mut command = tailplane(&["load", "10.77.0.2:7", "--workload", "echo:64", "--json"]);
    command.args(["--churn", "1", "--close", close, "--connections", "8", "--wait", "block"]);
    command.args(["--seconds", seconds, "--warmup-ms", "100"]);
    command.args(["--lab", bed.lab.prefix(), "--transport", transport]);
    // The command enters the client's namespace by itself; starting there does no harm.
    let finished = bed.run(command).expect("the tailplane command is there");
    let report: serde_json::Value = serde_json::from_str(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", finished.stdout, finished.stderr));
    for count in ["errors", "wrong_bytes", "connections_lost", "unanswered"] {
        assert_eq!(report[count], 0, "{count}: {report:#}");
    }
    assert!(report["verified"].as_u64().is_some_and(|verified| verified > 0), "{report:#}");
    finished.assert_success();
    report["achieved_rps"].as_f64().expect("a rate")
}

fn assert_keeps_its_rate(tag: &str, transport: &str, close: &str) {
    let Some(mut bed) = Testbed::alone(tag, 1) else { return };
    bed.serve("echo", 1, "");
    bed.at_client(|| {
        // At these rates a kernel that closes first runs out of ports within seconds: more ports,
        // and no more than some connections in TIME-WAIT.
        fs::write("/proc/sys/net/ipv4/ip_local_port_range", "2000 65000").expect("its own range");
        let _ = fs::write("/proc/sys/net/ipv4/tcp_max_tw_buckets", "2000");
    });
    let seconds = match (is_full(), transport, close) {
        // Each closed connection keeps its port for a minute, as it must, and there are 55,536: at
        // the 80,000 cycles a second that an idle machine does they last for 0.7 s.
        (_, "dataplane", "fin") => "0.2",
        (true, ..) => "30",
        (false, ..) => "1.5",
    };
    let mut shares = Vec::new();
    for _ in 0..ATTEMPTS {
        let first = rate(&bed, transport, close, seconds);
        let second = rate(&bed, transport, close, seconds);
        assert!(first > 0.0, "nothing went through");
        shares.push(second / first);
        if second >= SHARE_MIN * first {
            let summary = bed.stop();
            assert_eq!(summary.left, 0, "{}", summary.text);
            return;
        }
    }
    panic!("the rate decays: second half to first {shares:?}");
}

#[test]
fn a_kernel_client_that_resets() {
    assert_keeps_its_rate("churn-rst", "kernel", "rst");
}

#[test]
fn a_kernel_client_that_closes_in_order() {
    assert_keeps_its_rate("churn-fin", "kernel", "fin");
}

#[test]
fn our_own_client_that_resets() {
    assert_keeps_its_rate("churn-own-rst", "dataplane", "rst");
}

#[test]
fn our_own_client_that_closes_in_order() {
    assert_keeps_its_rate("churn-own-fin", "dataplane", "fin");
}
