//! `tailplane reproduce` as a script sees it, as far as that needs no privileges.

use std::process::{Command, Output};

use serde_json::Value;

fn reproduce(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tailplane-lab"))
        .arg("reproduce")
        .args(arguments)
        .output()
        .expect("the command can be run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_list_names_every_figure() {
    let output = reproduce(&["list"]);
    assert!(output.status.success());
    let said = text(&output.stdout);
    for figure in ["fig4", "fig5a", "fig5b", "fig5c", "fig6", "fig7", "table3", "fig13"] {
        assert!(said.contains(&format!("ix/{figure}")), "{figure} in {said}");
    }
}

#[test]
fn an_unknown_figure_is_told_with_the_nearest_name() {
    let output = reproduce(&["ix/fg4", "--quick"]);
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("unknown figure 'ix/fg4'") && said.contains("ix/fig4"), "{said}");
}

#[test]
fn bad_repeats_are_refused_with_what_is_allowed() {
    let output = reproduce(&["ix/fig5a", "--repeats", "0"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("`--repeats` is 0; allowed: 1 to 100"));
}

#[test]
fn a_quick_run_is_never_written_into_a_document() {
    let output = reproduce(&["ix/fig8", "--quick", "--into", "README.md"]);
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("--quick") && said.contains("cannot be used with"), "{said}");
}

/// What cannot run here is said with its reason, and never looks like a pass.
#[test]
fn a_figure_that_cannot_run_says_why_in_the_contracts_words() {
    // One processor is not enough for a producer and a consumer. This thread's child inherits it.
    let mut one = rustix::thread::CpuSet::new();
    one.set(0);
    rustix::thread::sched_setaffinity(None, &one).expect("the first processor is there");
    let output = reproduce(&["hyperplane/software", "--quick", "--json", "-"]);
    let said = text(&output.stdout);
    let json: Value = serde_json::from_str(&said).expect("nothing but JSON on standard output");
    assert_eq!(json["figure"], "hyperplane/software");
    assert!(json["conditions"]["kernel"].is_string());
    assert!(json["series"].as_array().is_some_and(Vec::is_empty));
    let claims = json["claims"].as_array().expect("its claims");
    assert!(claims.iter().any(|claim| claim["id"] == "qwait.real.sq_throughput_gain_1000"));
    for claim in claims {
        assert!(claim["goal"].is_number(), "{claim}");
        assert!(claim["measured"].is_null() && claim["met"].is_null(), "{claim}");
    }
    assert!(json["not_run"].as_str().is_some_and(|reason| reason.contains("core")), "{json}");
}
