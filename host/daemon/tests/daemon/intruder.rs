//! Services that say more of themselves than the daemon, which is root, may believe.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Uid, geteuid};
use serde_json::{Value, json};

use crate::support::{Caller, Daemon, Dir, Service, until};

const QUIET: &str = "[metrics]\nlisten = \"\"";
/// The user `nobody` of Debian.
const INTRUDER: u32 = 65_534;
/// The daemon looks through its run directory once a second: by then it has reached every service.
const SOME_SCANS: Duration = Duration::from_secs(4);

/// A configuration whose background job makes a file, and that file.
fn leaves_a_mark(dir: &Dir) -> (String, PathBuf) {
    let mark = dir.path("mark");
    let text = format!(
        "[control]\npolicy = \"consolidation\"\nbackground = {{ command = [\"touch\", \"{}\"] }}\n",
        mark.display()
    );
    (text, mark)
}

/// Problems and events of the daemon, as its log says them.
fn log_of(mut daemon: Daemon) -> String {
    daemon.terminate();
    let mut log = String::new();
    let pipe = daemon.0.stderr.as_mut().expect("it was piped");
    std::io::Read::read_to_string(pipe, &mut log).expect("text");
    log
}

/// Starts a service as another user, in a directory where that user may make sockets.
fn start_as_intruder(dir: &Dir, name: &'static str, config_text: String) -> Service {
    let run = dir.path("run");
    std::fs::create_dir_all(run.join("services")).expect("a directory");
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(run.join("services"), open).expect("it is ours");
    std::thread::spawn(move || {
        let user = Uid::from_raw(INTRUDER);
        // This thread's alone: the kernel names whoever calls listen.
        rustix::thread::set_thread_res_uid(user, user, user).expect("we are root");
        Service::start_with(&run, name, 2, &config_text)
    })
    .join()
    .expect("a service")
}

#[test]
fn a_service_of_another_user_is_refused_and_none_of_its_commands_runs() {
    if !geteuid().is_root() {
        println!("needs root: a second user cannot be played");
        return;
    }
    let dir = Dir::new("intruder");
    let (config_text, mark) = leaves_a_mark(&dir);
    let service = start_as_intruder(&dir, "evil", config_text);
    let daemon = Daemon::start_quietly(&dir.config(QUIET));
    let mut caller = Caller::connect(&dir);
    std::thread::sleep(SOME_SCANS);
    let listed = caller.call("List", json!({}))["parameters"]["services"].clone();
    let marked = mark.exists();
    drop(caller);
    let log = log_of(daemon);
    assert!(!marked, "the daemon ran a stranger's command: {log}");
    assert_eq!(listed, json!([]), "{log}");
    assert!(log.contains("unreachable") && log.contains("user 65534"), "{log}");
    assert_eq!(service.inside.requests.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn what_a_service_says_of_itself_starts_nothing_also_where_root_serves() {
    let dir = Dir::new("described");
    let (config_text, mark) = leaves_a_mark(&dir);
    let config = dir.config(QUIET);
    let _service = Service::start_with(&dir.path("run"), "kv", 2, &config_text);
    let daemon = Daemon::start_quietly(&config);
    let mut caller = Caller::connect(&dir);
    let mut status = Value::Null;
    until("the service is reached", || {
        status = caller.status("kv");
        !status["running"].is_null()
    });
    std::thread::sleep(SOME_SCANS);
    let marked = mark.exists();
    drop(caller);
    let log = log_of(daemon);
    assert!(!marked, "a description has started a program: {log}");
    // What is no more than numbers holds.
    assert_eq!((&status["policy"], &status["mode"]), (&json!("consolidation"), &json!("policy")));
    assert_eq!(status["running"]["background"], Value::Null);
    assert!(log.contains("control-ignored") && log.contains("background"), "{log}");
}
