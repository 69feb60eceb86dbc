//! Subcommands that are programs of their own.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{env, fs};

/// One test at a time: a process that another one starts while a program is written keeps it busy until it is another
/// program itself.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a copy of the command in a folder of its own, with these programs beside it: each prints its name and arguments.
fn run(beside: &[&str], arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("tailplane");
    fs::copy(env!("CARGO_BIN_EXE_tailplane"), &own).expect("a copy");
    for name in beside {
        write_program(&folder.path().join(name));
    }
    let nowhere = folder.path().join("empty");
    Command::new(own).args(arguments).env("PATH", nowhere).output().expect("it starts")
}

fn write_program(path: &Path) {
    fs::write(path, "#!/bin/sh\necho \"${0##*/} $*\"\nexit 7\n").expect("a program");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn an_unknown_subcommand_is_the_laboratorys() {
    let _turn = turn();
    let output = run(&["tailplane-lab"], &["demo", "--seconds", "3"]);
    assert_eq!(stdout(&output), "tailplane-lab demo --seconds 3");
    assert_eq!(output.status.code(), Some(7), "its exit status is the command's");
}

#[test]
fn a_program_of_that_name_comes_first() {
    let _turn = turn();
    let output = run(&["tailplane-lab", "tailplane-attack"], &["attack", "list"]);
    assert_eq!(stdout(&output), "tailplane-attack list");
    // The laboratory is not asked for what this program has.
    let output = run(&["tailplane-lab", "tailplane-status"], &["status", "--help"]);
    assert!(stdout(&output).contains("Usage: tailplane status"), "{output:?}");
}

/// A program that hands the subcommand back would be started without end.
#[test]
fn a_program_that_asks_for_itself_is_not_started_again() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("tailplane");
    fs::copy(env!("CARGO_BIN_EXE_tailplane"), &own).expect("a copy");
    fs::copy(&own, folder.path().join("tailplane-lab")).expect("a copy");
    let output = Command::new(own).arg("demo").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("asked for it again"), "{said}");
}

#[test]
fn what_cannot_be_run_is_no_program() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("tailplane");
    fs::copy(env!("CARGO_BIN_EXE_tailplane"), &own).expect("a copy");
    fs::write(folder.path().join("tailplane-lab.d"), "what cargo writes").expect("a file");
    write_program(&folder.path().join("tailplane-lab"));
    let output = Command::new(own).arg("lab.d").output().expect("it starts");
    assert_eq!(stdout(&output), "tailplane-lab lab.d");
}

#[test]
fn without_the_laboratory_the_error_says_what_to_do() {
    let _turn = turn();
    for name in ["demo", "../demo", ""] {
        let output = run(&[], &[name]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with(&format!("tailplane: cannot run subcommand '{name}'")), "{said}");
        assert!(said.contains("cargo build --release") && said.lines().count() == 1, "{said}");
        assert!(!output.status.success());
    }
}
