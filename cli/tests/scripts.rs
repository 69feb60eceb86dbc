//! The scripts that continuous integration relies on, with stand-ins for the programs they call.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held while a program is written, and while one is started: a process that is started meanwhile keeps the program busy
/// until it is another program itself.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory of stand-ins that come before the real programs; removed with this value.
struct StandIns {
    path: PathBuf,
}

impl StandIns {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tailplane-scripts-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    /// Adds a program of this shell text.
    fn program(self, name: &str, text: &str) -> Self {
        let file = self.path.join(name);
        let _turn = turn();
        fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    fn run(&self, script: &str, arguments: &[&str]) -> Output {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(repository.join("scripts").join(script));
        command
            .args(arguments)
            .env("PATH", format!("{}:{path}", self.path.display()))
            .env("LOG", self.path.join("log"))
            // Nothing that the machine keeps for its user is found, nor fetched for it.
            .env("HOME", &self.path)
            .env_remove("TLA2TOOLS")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let started = {
            let _turn = turn();
            command.spawn().unwrap()
        };
        started.wait_with_output().unwrap()
    }

    /// What the stand-ins wrote to `$LOG`.
    fn log(&self) -> String {
        fs::read_to_string(self.path.join("log")).unwrap_or_default()
    }
}

impl Drop for StandIns {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn last_line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned()
}

/// A machine on which neither a target of rustup's nor a model checker can be had: what goes without them, goes on.
fn without_network() -> StandIns {
    StandIns::new().program("rustup", "exit 1").program("mvn", "exit 1")
}

/// A `cargo` that prints these lines and ends with this status where it is called with `argument`.
fn cargo_at(argument: &str, lines: &str, status: i32) -> Output {
    let text = format!(
        "case \" $* \" in *' {argument} '*) ;; *) exit 0 ;; esac\ncat <<'END'\n{lines}\nEND\nexit {status}"
    );
    without_network().program("cargo", &text).run("test.sh", &[])
}

/// A `cargo` whose tests print these lines and which ends with this status.
fn cargo_test(lines: &str, status: i32) -> Output {
    cargo_at("--lib", lines, status)
}

#[test]
fn the_summary_is_the_sum_over_all_test_binaries() {
    let output = cargo_test(
        "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
         a test without newline test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured",
        0,
    );
    assert_eq!(last_line(&output), "15 passed, 0 failed");
    assert!(output.status.success());
    // Those that run beside the others count as well.
    for argument in ["instructions", "--doc"] {
        let failed = cargo_at(argument, "test result: FAILED. 2 passed; 1 failed; 0 ignored", 101);
        assert_eq!(last_line(&failed), "2 passed, 1 failed");
        assert!(!failed.status.success(), "{argument}");
    }
}

#[test]
fn what_is_skipped_is_said_with_its_reason() {
    let output = cargo_test(
        "test a ... ok\nsuccesses:\n\n---- a stdout ----\nskipped: needs root\n\n---- b stdout ----\n\
         skipped: needs root\ntest result: ok. 2 passed; 0 failed; 0 ignored",
        0,
    );
    let said = text(&output.stdout);
    assert!(said.contains("2 skipped") && said.contains("2 needs root"), "{said}");
    assert!(!said.contains("test a ... ok"), "what passed is not listed: {said}");
    assert_eq!(last_line(&output), "2 passed, 0 failed");
}

#[test]
fn a_room_is_tested_by_its_packages() {
    let stand_ins = StandIns::new()
        .program("cargo", "echo \"$*\" >>\"$LOG\"; echo 'test result: ok. 1 passed; 0 failed;'");
    assert!(stand_ins.run("test.sh", &["--room", "core"]).status.success());
    let log = stand_ins.log();
    assert!(log.starts_with("test --no-fail-fast --package clock --package"), "{log}");
    assert!(log.contains("--package wire --") && log.lines().count() == 1, "{log}");
    assert!(stand_ins.run("test.sh", &["--room", "cli"]).status.success());
    assert!(stand_ins.log().contains("--package cli --"), "{}", stand_ins.log());
    assert!(!stand_ins.run("test.sh", &["--room", "nowhere"]).status.success());
}

#[test]
fn a_failing_test_is_counted_and_fails() {
    let output = cargo_test(
        "test result: FAILED. 2 passed; 1 failed; 0 ignored\ntest result: ok. 5 passed; 0 failed; 0",
        101,
    );
    assert_eq!(last_line(&output), "7 passed, 1 failed");
    assert!(!output.status.success());
}

#[test]
fn a_build_failure_and_an_empty_run_are_failures() {
    for status in [101, 0] {
        let output = cargo_at("--no-run", "error: could not compile", status);
        assert_eq!(last_line(&output), "0 passed, 1 failed");
        assert!(!output.status.success(), "cargo ended with {status}");
    }
}

#[test]
fn a_lint_failure_does_not_keep_the_tests_from_running() {
    let text = "case \"$*\" in fmt*) exit 1 ;; *--lib*) echo 'test result: ok. 4 passed; 0 failed;' ;; esac";
    let output = without_network().program("cargo", text).run("test.sh", &[]);
    assert_eq!(last_line(&output), "4 passed, 1 failed");
    assert!(!output.status.success());
}

/// An installation in which `missing` is not installed; `apt-get install` fails until an update.
fn package_system(missing: &str) -> StandIns {
    let dpkg_query = format!("[ \"$3\" = {missing} ] && exit 1\necho installed");
    let apt_get = "echo \"$*\" >>\"$LOG\"\n\
                   case \"$*\" in *install*) grep -q update \"$LOG\" ;; esac";
    StandIns::new()
        .program("cargo", "exit 0")
        .program("id", "echo 0")
        .program("dpkg-query", &dpkg_query)
        .program("apt-get", apt_get)
        .program("apt-cache", "echo '  Candidate: 1.0'")
}

#[test]
fn only_what_is_missing_is_installed_and_stale_lists_are_updated() {
    let system = package_system("tcpdump");
    let output = system.run("setup.sh", &["test"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let log = system.log();
    let calls: Vec<&str> = log.lines().collect();
    assert_eq!(calls.len(), 3, "install, update, install: {calls:?}");
    assert!(calls[0].contains("install") && calls[1].contains("update"), "{calls:?}");
    assert!(calls[2].ends_with("--no-install-recommends tcpdump"), "{calls:?}");
}

#[test]
fn where_nothing_is_missing_apt_is_left_alone() {
    let system = package_system("nothing-of-that-name");
    assert!(system.run("setup.sh", &["build", "bpf", "test", "demo"]).status.success());
    assert_eq!(system.log(), "");
}

#[test]
fn an_unknown_tier_is_refused() {
    let output = package_system("x").run("setup.sh", &["everything"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no tier 'everything'"));
}

/// The object that is loaded into kernels is what its source says. Another compiler may well build another one.
#[test]
fn the_committed_bpf_objects_are_what_their_sources_build_to() {
    let version = Command::new("clang").arg("--version").output();
    let version = version.map_or_else(|_| String::new(), |told| text(&told.stdout));
    if !version.contains("clang version 14.") {
        eprintln!("skipped: clang 14 is not installed (scripts/setup.sh bpf)");
        return;
    }
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let output = Command::new("bash").arg("scripts/bpf.sh").current_dir(root).output();
    let output = output.expect("bash is installed");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
