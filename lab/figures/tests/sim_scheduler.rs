//! `tailplane sim scheduler` as a script sees it.

use std::process::{Command, Output};

use serde_json::Value;

fn scheduler(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tailplane-lab"))
        .args(["sim", "scheduler"])
        .args(arguments.split_whitespace())
        .output()
        .expect("the command can be run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Small: the point is what is told, not how well.
const SMALL: &str = "--costs zero --cores 2 --requests 2000 --quick --seed 3 --json -";

#[test]
fn the_json_is_what_help_says_and_its_numbers_hang_together() {
    let asked = format!("--law exponential --mean-us 10 --slo-us 100 --rate 60000 {SMALL}");
    let output = scheduler(&asked);
    let (said, shown) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{shown}");
    let json: Value = serde_json::from_str(&said).expect("nothing but JSON on standard output");
    for key in ["kernel", "costs", "driver", "connections", "simulated cores"] {
        assert!(json["conditions"][key].is_string(), "{key} in {}", json["conditions"]);
    }
    assert_eq!(number(&json["objective"]["slo_us"]), 100.0);
    let candidates = json["candidates"].as_array().expect("a list");
    assert_eq!(candidates.len(), 7);
    let one_queue = number(&json["theory"][0]["max_load"]["mean"]);
    assert!(one_queue > number(&json["theory"][1]["max_load"]["mean"]), "{}", json["theory"]);
    for candidate in candidates {
        let load = number(&candidate["max_load"]["mean"]);
        // Short runs: theory and simulation see other requests.
        assert!(load > 0.2 && load < one_queue + 0.1, "{candidate}");
        let (half, rate) = (&candidate["at_half"], &candidate["at_rate"]);
        assert!((number(&half["load"]) / load - 0.5).abs() < 1e-9, "{candidate}");
        // 99 % of exponential times of 10 us are below 46, and the wire takes 4.
        assert!(number(&half["p99_us"]) > 35.0, "{candidate}");
        assert!((number(&rate["load"]) - 0.3).abs() < 1e-9 && rate["meets"] == true, "{candidate}");
        assert!((number(&rate["busy"]) - 0.3).abs() < 0.1, "{candidate}");
        let home_only = candidate["scheduler"] == "run-to-completion";
        assert_eq!(number(&candidate["at_max"]["steal_rate"]) == 0.0, home_only, "{candidate}");
        assert_eq!(candidate["while_away"].is_null(), home_only, "{candidate}");
    }
    let recommended = &json["recommendation"];
    let name = recommended["name"].as_str().expect("one is recommended");
    let chosen = candidates.iter().find(|candidate| candidate["name"] == name).expect("among them");
    assert_eq!(chosen["asks_nothing"], true);
    let words = &recommended["configuration"];
    assert_eq!(words["dataplane.scheduler"], chosen["scheduler"]);
    assert_eq!(words["dataplane.batch"], chosen["batch"]);
    assert!(shown.contains(&format!("Take {name}: ")) && shown.contains("[dataplane]"), "{shown}");
    assert!(shown.contains("theory, M/G/2/FCFS") && shown.contains("At your 60000 requests/s"));
}

#[test]
fn a_trace_with_a_bad_line_and_an_objective_that_cannot_be_are_told() {
    let directory = std::env::temp_dir();
    let path = directory.join(format!("tailplane-trace-{}.txt", std::process::id()));
    std::fs::write(&path, "# us\n10\n12.5\noops\n").expect("a file can be written");
    let output = scheduler(&format!("--trace {} {SMALL}", path.display()));
    std::fs::remove_file(&path).expect("it was there");
    assert!(!output.status.success() && output.stdout.is_empty());
    let said = text(&output.stderr);
    assert!(said.contains("a service time is 'oops' in line 4; allowed: 0 to 1000000"), "{said}");
    let output = scheduler(&format!("--law deterministic --mean-us 10 --slo-us 5 {SMALL}"));
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("no scheduler answers before"), "{said}");
    // The options of the other simulations stay theirs.
    let output = scheduler(&format!("--law deterministic --mean-us 10 --loss 0.1 {SMALL}"));
    assert!(text(&output.stderr).contains("--loss"));
}
