//! `tailplane doctor --probe` reports the mode of a lab's interface, and undoes all that it has changed.

use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value;
use service::lab::constants::DATAPLANE_INTERFACE;
use service::lab::in_namespace;

use crate::harness::{Testbed, tailplane};
use crate::run_cli::link;

/// A probe of a lab's interface takes milliseconds; this is a bound on a busy machine.
const WITHIN: Duration = Duration::from_secs(10);

/// Runs `tailplane doctor --json --probe INTERFACE` at the dataplane's end.
fn probe(bed: &Testbed, interface: &str) -> Output {
    let mut command = tailplane(&["doctor", "--json", "--probe", interface]);
    let ran = in_namespace(bed.lab.dataplane(), || command.output());
    ran.expect("the dataplane's namespace").expect("the tailplane command starts")
}

fn refusal(bed: &Testbed, interface: &str) -> String {
    let output = probe(bed, interface);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_probe_reports_the_mode_and_gives_all_back() {
    let Some(mut bed) = Testbed::new("probe", 2) else { return };
    let before = link(bed.lab.prefix());
    for _ in 0..2 {
        let begun = Instant::now();
        let output = probe(&bed, DATAPLANE_INTERFACE);
        assert!(begun.elapsed() < WITHIN, "{:?}", begun.elapsed());
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let checks = report["checks"].as_array().expect("checks");
        let probed: Vec<&Value> = checks.iter().filter(|check| check["group"] == "probe").collect();
        let [mode, steering] = probed.as_slice() else { panic!("{probed:?}") };
        assert_eq!(mode["name"], format!("{DATAPLANE_INTERFACE}: mode"));
        let found = "copy, native XDP, 2 KiB chunks, sent checksums in software, tried on queue 1; MTU 1500";
        assert_eq!((&mode["found"], &mode["status"]), (&found.into(), &"warn".into()), "{mode}");
        let cost = mode["cost"].as_str().expect("text");
        assert!(cost.contains("veth refuses zero-copy: Operation not supported"), "{cost}");
        assert_eq!(steering["found"], "2 queues, no RSS table that can be written", "{steering}");
        assert_eq!(link(bed.lab.prefix()), before);
    }
    assert!(refusal(&bed, "tp-none").contains("tp-none"));

    // All queues are free for a service, whose program the next probe leaves alone.
    bed.serve("echo", 2, "");
    let refused = refusal(&bed, DATAPLANE_INTERFACE);
    for part in ["cannot probe interface", "another one attached, of process", "stop it"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    bed.stop();
    assert_eq!(link(bed.lab.prefix()), before);
}
