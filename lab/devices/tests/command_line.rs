//! The commands that need no machine.

use std::process::{Command, Output};

fn devices(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailplane-devices"));
    command.args(arguments).output().expect("the program starts")
}

#[test]
fn all_boots_and_checks_are_listed() {
    let shown = devices(&["list"]);
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.status.success());
    for name in ["igb-zero-copy", "veth-5.10", "moves", "readme"] {
        assert!(text.lines().any(|line| line.trim_start().starts_with(name)), "{name}: {text}");
    }
}

#[test]
fn what_there_is_not_is_refused_before_anything_is_fetched() {
    for (arguments, names) in [
        (["run", "--boot", "rtl8139"], "no boot 'rtl8139'"),
        (["run", "--check", "speed"], "no check 'speed'"),
        (["run", "--binary", "/nowhere/tailplane"], "no program at '/nowhere/tailplane'"),
    ] {
        let refused = devices(&arguments);
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && text.contains(names), "{arguments:?}: {text}");
    }
}
