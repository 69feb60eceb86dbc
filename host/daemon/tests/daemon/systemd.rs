//! What systemd and people at a terminal see of the daemon.

use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use crate::support::{Caller, Daemon, Dir, PATIENCE};

fn heard(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 1_024];
    let len = socket.recv(&mut bytes).expect("a datagram");
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

#[test]
fn systemd_is_told_ready_alive_reloaded_and_stopping() {
    let dir = Dir::new("systemd");
    let config = dir.config("[metrics]\nlisten = \"\"");
    let socket = UnixDatagram::bind(dir.path("notify")).expect("bound");
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut command = Daemon::command(&config);
    command.env("NOTIFY_SOCKET", dir.path("notify")).env("WATCHDOG_USEC", "200000");
    let mut daemon = Daemon(command.spawn().expect("the daemon starts"));
    assert_eq!(heard(&socket), "READY=1\nSTATUS=0 of 0 services up");
    let beats = (0..5).filter(|_| heard(&socket) == "WATCHDOG=1").count();
    assert!(beats >= 4, "{beats} of 5");
    dir.put("services/kv.toml", "");
    let answer = Caller::connect(&dir).call("Reload", serde_json::json!({}));
    assert_eq!(answer["parameters"], serde_json::json!({}));
    while !heard(&socket).starts_with("RELOADING=1\nMONOTONIC_USEC=") {}
    while heard(&socket) != "READY=1\nSTATUS=0 of 1 services up" {}
    daemon.terminate();
    while heard(&socket) != "STOPPING=1\nSTATUS=ending; services go on" {}
    assert!(daemon.0.wait().expect("it is ours").success());
    assert!(!dir.path("run/control.sock").exists(), "it takes its socket away");
}

#[test]
fn events_are_one_line_of_json_each() {
    let dir = Dir::new("json");
    dir.put("services/bad.toml", "[control]\nperiod_ms = 0\n");
    let config = dir.config("[log]\nformat = \"json\"\n[metrics]\nlisten = \"\"");
    let mut daemon = Daemon::start_quietly(&config);
    Caller::connect(&dir);
    std::thread::sleep(Duration::from_millis(100));
    daemon.terminate();
    daemon.0.wait().expect("it is ours");
    let mut text = String::new();
    daemon.0.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let problem = lines.iter().find(|line| line["kind"] == "problem").expect("a line on it");
    let detail = problem["detail"].as_str().expect("particulars");
    assert!(detail.contains("bad.toml") && detail.contains("`control.period_ms` is 0"), "{detail}");
    assert_eq!(problem["level"], "warn");
}

#[test]
fn the_command_line_checks_and_teaches() {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tailplaned"));
        let output = command.args(arguments).output().expect("it ran");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    let (status, help) = run(&["--help"]);
    assert_eq!(status, Some(0));
    for part in ["--check", "varlinkctl", "policy = \"energy\"", "SIGHUP", "docs/daemon.md"] {
        assert!(help.contains(part), "{part} is not in: {help}");
    }
    let dir = Dir::new("check");
    let config = dir.config("").display().to_string();
    let (status, said) = run(&["--config", &config, "--check"]);
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("lacking clocks") && said.contains("lacking cpusets"), "{said}");
    dir.put("services/bad.toml", "[control]\npolicy = \"file\"\n");
    let (status, said) = run(&["--config", &config, "--check"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("control.sequence") && said.contains("mend what is wrong"), "{said}");
    let (status, said) = run(&["--config", "/nonexistent/x.toml"]);
    assert_eq!(status, Some(1));
    assert!(said.contains("cannot read the configuration '/nonexistent/x.toml'"), "{said}");
    dir.put("tailplaned.toml", "[control]\nmdoe = 1\n");
    let (status, said) = run(&["--config", &config]);
    assert_eq!(status, Some(1));
    assert!(said.contains("mdoe") && said.contains("mode"), "{said}");
}
