//! The attacks, in their short form: one that works is a failure.

use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longer than a suite in which attacks work takes.
const DEADLINE: Duration = Duration::from_secs(180);

/// A child that does not outlive its test.
struct Ends(Option<Child>);

impl Drop for Ends {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // It has ended by itself: as well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Two suites at once would time each other.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a program says, if it ends in time. Its output fits a pipe.
fn output(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailplane-attack"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Ends(Some(command.spawn().expect("it starts")));
    let began = Instant::now();
    loop {
        let running = child.0.as_mut().expect("not taken");
        if running.try_wait().expect("it is a child").is_some() {
            let child = child.0.take().expect("not taken");
            return child.wait_with_output().expect("it ended");
        }
        assert!(began.elapsed() < DEADLINE, "{arguments:?} does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Requires that each attack passed.
fn assert_passed(ran: &Output) {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let said = format!("{}\n{}", text(&ran.stdout), text(&ran.stderr));
    let (passed, others): (Vec<_>, Vec<_>) =
        said.lines().partition(|line| line.ends_with(": passed"));
    let others: Vec<_> = others.into_iter().filter(|line| !line.starts_with('│')).collect();
    assert!(ran.status.success(), "{}\n{}", ran.status, others.join("\n"));
    assert_eq!(passed.len(), attacks(), "{said}");
}

/// How many attacks there are on dataplanes and services.
fn attacks() -> usize {
    let listed = output(&["list"]);
    let names = String::from_utf8_lossy(&listed.stdout);
    names
        .lines()
        .filter(|line| !line.starts_with("dataplane ") && !line.starts_with("tcp "))
        .count()
}

#[test]
fn an_application_of_the_process_domain_hurts_nobody_but_itself() {
    let _turn = turn();
    let ran = output(&["suite", "--seconds", "0.25"]);
    assert_passed(&ran);
}

/// Each attack under one of the schedulers; `tailplane-attack services` alone runs each under all of them.
#[test]
fn a_service_of_three_users_and_its_neighbour_survive_each_attack() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let _turn = turn();
    let ran = output(&["services", "--scheduler", "in-turn", "--seconds", "0.3"]);
    assert_passed(&ran);
}

#[test]
fn honest_clients_survive_each_attack_over_tcp() {
    let ran = output(&["tcp", "--short"]);
    let said = String::from_utf8_lossy(&ran.stdout);
    let listed = output(&["list"]);
    let names = String::from_utf8_lossy(&listed.stdout);
    let attacks = names.lines().filter(|line| line.starts_with("tcp ")).count();
    assert!(ran.status.success(), "{}\n{said}", ran.status);
    assert_eq!((said.matches(" passed ").count(), attacks), (11, 11), "{said}");
    let unknown = output(&["tcp", "--only", "nothing"]);
    let error = String::from_utf8_lossy(&unknown.stderr);
    assert_eq!(unknown.status.code(), Some(2), "{error}");
    assert!(error.contains("name one of syn-far-fast"), "{error}");
}

#[test]
fn random_batches_of_calls_are_calls_or_nothing() {
    let ran = output(&["batches", "--count", "100000", "--seed", "5"]);
    let error = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{}\n{error}", ran.status);
}

#[test]
fn it_says_what_it_does_and_what_there_is() {
    let listed = output(&["list"]);
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    for name in ["forged-handles", "changed-while-read", "socket-games"] {
        assert!(names.contains(name), "{names}");
    }
    let unknown = output(&["suite", "--only", "nothing"]);
    let told = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        unknown.status.code() == Some(2) && told.contains("there are: forged-handles"),
        "{told}"
    );
    let alone = output(&["act", "stop"]);
    let told = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(!alone.status.success() && told.contains("TAILPLANE_DOMAIN"), "{told}");
}
