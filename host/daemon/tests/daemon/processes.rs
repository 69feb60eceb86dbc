//! Services as processes of their own: started, outliving the daemon, taken over, started again, ended.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;

use crate::support::{Caller, Daemon, Dir, Service, until};

/// Whether this process is to be a service, and what it is called.
const NAME: &str = "TAILPLANED_TEST_SERVICE";

/// Not a test: the body of the service that the daemon starts. Without the variable there is nothing to do.
#[test]
fn service_process() {
    let Some(name) = std::env::var_os(NAME) else { return };
    let name = name.into_string().expect("a name");
    let run_dir = endpoint::run_dir();
    let service = Service::start(&run_dir, &name, 2);
    // Bounded: a test that fails must not leave a process for ever.
    for _ in 0..60_000 {
        if service.shall_end() {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A command that serves as `tailplane run FILE` would: it is this test's own binary.
fn put_command(dir: &Dir) {
    let us = std::env::current_exe().expect("we run");
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = run ] || exit 9\nname=$(basename \"$2\" .toml)\n\
         {NAME}=$name exec '{}' --exact processes::service_process\n",
        us.display()
    );
    let path = dir.put("command", &text);
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, executable).expect("it is ours");
}

fn pid_of(caller: &mut Caller, name: &str) -> Option<Pid> {
    let pid = caller.status(name)["running"]["pid"].as_i64()?;
    Pid::from_raw(i32::try_from(pid).expect("a process"))
}

/// Ends a process of the test, whatever happens.
struct Ends(Pid);

impl Drop for Ends {
    fn drop(&mut self) {
        // It should have ended by itself.
        let _ = kill_process(self.0, Signal::KILL);
    }
}

#[test]
fn a_service_outlives_the_daemon_is_taken_over_and_ended() {
    let dir = Dir::new("process");
    put_command(&dir);
    let config = dir.config("[metrics]\nlisten = \"\"");
    dir.put("services/kv.toml", "[control]\npolicy = \"energy\"\n");
    let mut daemon = Daemon::start(&config);
    let mut caller = Caller::connect(&dir);
    assert_eq!(caller.call("Start", json!({ "name": "kv" }))["parameters"], json!({}));
    let pid = pid_of(&mut caller, "kv").expect("it runs");
    let _ends = Ends(pid);
    assert_eq!(caller.status("kv")["phase"], "up");
    assert_eq!(caller.status("kv")["starts"], 1);
    assert_eq!(rustix::process::getsid(Some(pid)).expect("it runs"), pid, "a session of its own");
    daemon.kill();
    test_kill_process(pid).expect("it goes on");
    let _daemon = Daemon::start(&config);
    let mut caller = Caller::connect(&dir);
    caller.wait_for_mode("kv", "policy");
    assert_eq!(pid_of(&mut caller, "kv"), Some(pid));
    assert_eq!(caller.status("kv")["starts"], 0, "this daemon has not started it");
    assert_eq!(caller.call("Start", json!({ "name": "kv" }))["parameters"], json!({}), "it is up");
    assert_eq!(caller.call("Stop", json!({ "name": "kv" }))["parameters"], json!({}));
    assert_eq!(caller.status("kv")["phase"], "down");
    until("it is gone", || test_kill_process(pid).is_err() || is_zombie(pid));
    let none = caller.call("Start", json!({ "name": "none" }));
    assert_eq!(none["error"], "io.tailplane.Control.NoSuchService");
}

/// Ended, and nobody has waited for it: its first parent was killed, and the machine's first process may be none that
/// does.
fn is_zombie(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let state = stat.ok().and_then(|stat| stat.rsplit_once(") ").map(|rest| rest.1.to_owned()));
    state.is_none_or(|state| state.starts_with('Z'))
}

#[test]
fn a_service_that_is_killed_is_started_again() {
    let dir = Dir::new("restart");
    put_command(&dir);
    let config = dir.config("[metrics]\nlisten = \"\"");
    dir.put("services/kv.toml", "[control]\nautostart = true\nrestart = \"on-failure\"\n");
    let _daemon = Daemon::start(&config);
    let mut caller = Caller::connect(&dir);
    until("it starts with the daemon", || pid_of(&mut caller, "kv").is_some());
    let first = Ends(pid_of(&mut caller, "kv").expect("it runs"));
    kill_process(first.0, Signal::KILL).expect("it runs");
    until("another one runs", || pid_of(&mut caller, "kv").is_some_and(|pid| pid != first.0));
    let second = Ends(pid_of(&mut caller, "kv").expect("it runs"));
    assert_eq!(caller.status("kv")["starts"], 2);
    assert_eq!(caller.call("Stop", json!({ "name": "kv" }))["parameters"], json!({}));
    assert!(pid_of(&mut caller, "kv").is_none() && test_kill_process(second.0).is_err());
}

#[test]
fn a_service_that_cannot_be_started_says_why() {
    let dir = Dir::new("unstarted");
    let config = dir.config("[metrics]\nlisten = \"\"");
    dir.put("services/kv.toml", "");
    let _daemon = Daemon::start(&config);
    let mut caller = Caller::connect(&dir);
    let failed = caller.call("Start", json!({ "name": "kv" }));
    let reason = failed["parameters"]["reason"].as_str().expect("a reason");
    assert!(reason.contains("cannot start") && reason.contains("command"), "{reason}");
    dir.put("command", "#!/bin/sh\nexit 5\n");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path("command"), executable).expect("it is ours");
    let failed = caller.call("Start", json!({ "name": "kv" }));
    assert_eq!(failed["parameters"]["reason"], "it ended: status 5");
    assert_eq!(caller.status("kv")["problem"], "it ended: status 5");
}
