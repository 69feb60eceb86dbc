//! `tailplane sdp-bench` as a command: planes and tenants' processes for a few short windows. What it
//! measures is not looked at, only that it does, and that it says what it cannot.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailplane-lab"));
    command.args(["sdp-bench"]).args(arguments).output().expect("the command starts")
}

fn two_processors() -> bool {
    let enough = std::thread::available_parallelism().map_or(1, usize::from) >= 2;
    if !enough {
        println!("skipped: needs a processor for the core and one for the tenant");
    }
    enough
}

#[test]
fn every_strategy_and_arrangement_has_its_value_and_all_conditions_are_told() {
    if !two_processors() {
        return;
    }
    // At ordinary priority: other tests run at the same time.
    let short = ["--windows", "1", "--window-ms", "5", "--no-realtime", "--json", "-"];
    let more = ["--queues", "1,130", "--queues-each", "65", "--shape", "SQ", "--paged"];
    let output = bench(&[&short[..], &more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cells = report["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 2 * 2 * 3, "queues, arrangements, strategies");
    for cell in cells {
        let number = |name: &str| cell[name].as_f64().unwrap_or_else(|| panic!("{name}: {cell}"));
        // A window that somebody disturbed may have seen nothing; that is then said.
        let disturbed = cell["disturbed"].is_string();
        assert!(disturbed || number("requests_per_s") > 0.0, "{cell}");
        assert_eq!(disturbed, number("windows") == 0.0, "{cell}");
        assert!(number("low") <= number("requests_per_s"), "{cell}");
        assert!(number("requests_per_s") <= number("high"), "{cell}");
    }
    for condition in ["kernel", "processor", "commit", "windows", "priority", "service", "batch"] {
        assert!(report["conditions"][condition].is_string(), "{condition}");
    }
    assert_eq!(report["conditions"]["priority"], "ordinary, as asked for");
}

#[test]
fn what_cannot_be_measured_is_said() {
    let cases: [(&[&str], &str); 7] = [
        (&["--queues", "0"], "1 to 16384"),
        (&["--shape", "XX"], "none of FB, PC, NC, SQ"),
        (&["--notify", "poll"], "none of qwait, spin, spin-dpdk"),
        (&["--arrangement", "up"], "`scale-out` and `scale-up:N`"),
        (&["--service", "gateway"], "without `gateway`"),
        (&["--window-ms", "200"], "5 to 50"),
        (&["--cores", "1024"], "need 1025 processors"),
    ];
    for (arguments, said) in cases {
        let output = bench(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(said), "{arguments:?}: {stderr}");
    }
}
