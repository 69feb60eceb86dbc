//! The daemon is killed, again and again, while it grants threads and moves flow groups: the service never notices, and
//! the state converges.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use crate::support::{Caller, Daemon, Dir, Service, until};

const CONTROL: &str = "[metrics]\nlisten = \"\"";

#[test]
fn killed_twenty_times_the_daemon_takes_over_what_it_finds() {
    let dir = Dir::new("killed");
    let config = dir.config(CONTROL);
    dir.put(
        "services/kv.toml",
        "[control]\npolicy = \"latency-target\"\nslo_us = 500\nperiod_ms = 5\n",
    );
    let service = Service::start(&dir.path("run"), "kv", 4);
    let inside = &service.inside;
    let mut acted = 0;
    for round in 0..20u64 {
        // Mostly load that one thread cannot serve, so that something is always under way; else too many threads.
        let calm = round % 4 == 3;
        service.set_queue(if calm { 1 } else { 400 });
        service.reset(if calm { 4 } else { 1 });
        let before = inside.requests.load(Ordering::Relaxed);
        let mut daemon = Daemon::start(&config);
        // Each is killed somewhere else: also before it has reached anybody.
        std::thread::sleep(Duration::from_millis(20 + round * 67 % 300));
        if round % 3 == 0 {
            until("the daemon does something", || inside.requests.load(Ordering::Relaxed) > before);
        }
        daemon.kill();
        acted += u64::from(inside.requests.load(Ordering::Relaxed) > before);
        assert!(!inside.running().is_empty(), "nobody serves");
    }
    assert!(acted >= 7, "the daemon did something in {acted} rounds");
    let _daemon = Daemon::start(&config);
    service.set_queue(400);
    until("all threads run and share the groups", || {
        inside.running().len() == 4 && inside.spread(4).iter().all(|groups| *groups >= 12)
    });
    service.set_queue(1);
    until("one thread has all groups, the others sleep", || {
        inside.running() == [0] && inside.spread(4) == [64, 0, 0, 0]
    });
    let violations = inside.violations.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(violations.is_empty(), "{violations:?}");
    let mut caller = Caller::connect(&dir);
    caller.wait_for_mode("kv", "policy");
    let status = caller.status("kv");
    assert_eq!(status["running"]["pid"], json!(std::process::id()));
    assert_eq!(status["problem"], json!(null));
}

#[test]
fn only_one_daemon_has_a_run_directory() {
    let dir = Dir::new("twice");
    let config = dir.config(CONTROL);
    let first = Daemon::start(&config);
    Caller::connect(&dir);
    let second = Daemon::command(&config).output().expect("it ran");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("another tailplaned runs"), "{said}");
    Caller::connect(&dir);
    drop(first);
    // Killed as it was, it left its socket and its lock behind.
    let _third = Daemon::start(&config);
    until("the third one answers", || {
        let mut caller = Caller::connect(&dir);
        caller.send(&json!({ "method": "io.tailplane.Control.List" }));
        caller.hear().is_some()
    });
}
