//! `tailplane status`, `ctl` and `top` with services that run: over a wire in shared memory, in either domain.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// A run directory and the services in it, which go with it.
struct Place {
    directory: PathBuf,
    services: Vec<Child>,
}

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tailplane-control-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("a directory for this test");
        Self { directory, services: Vec::new() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tailplane"));
        command.args(arguments).env("TAILPLANE_RUN_DIR", &self.directory);
        command
    }

    /// Runs a command to its end. Answers what it said, where that went well.
    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let Output { status, stdout, stderr } =
            self.command(arguments).output().expect("the command starts");
        match status.success() {
            true => Ok(String::from_utf8_lossy(&stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&stderr).into_owned()),
        }
    }

    /// In one process, where `more` does not say more of the dataplane.
    fn config(&self, name: &str, more: &str) -> PathBuf {
        let inline =
            if more.contains("domain") { "" } else { "[dataplane]\ndomain = \"inline\"\n" };
        let text = format!(
            "[service]\napp = \"echo\"\n[network]\nshm = \"{}\"\n[memory]\nchunks = 8192\nhuge_pages = \"no\"\n\
             {inline}{more}",
            self.directory.join(format!("{name}.wire")).display()
        );
        let path = self.directory.join(format!("{name}.toml"));
        fs::write(&path, text).expect("written");
        path
    }

    /// Starts a service, and waits until it can be controlled.
    fn start(&mut self, name: &str, more: &str) {
        let path = self.config(name, more);
        let told = fs::File::create(self.directory.join(format!("{name}.out"))).expect("a file");
        let mut command = self.command(&["run", "--seconds", "120"]);
        command.arg(path).stdout(told.try_clone().expect("a descriptor")).stderr(told);
        self.services.push(command.stdin(Stdio::null()).spawn().expect("it starts"));
        wait_until("a service serves", || self.told(name).contains("  control "));
    }

    fn told(&self, name: &str) -> String {
        fs::read_to_string(self.directory.join(format!("{name}.out"))).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for service in &mut self.services {
            let _ = service.kill();
            let _ = service.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in:\n{said}");
    }
}

#[test]
fn services_are_listed_steered_and_ended_by_name() {
    let mut place = Place::new();
    assert_says(&place.run(&["status"]).expect("no error"), &["no service runs"]);
    assert_says(
        &place.run(&["top", "--once"]).expect_err("none"),
        &["no service runs", "tailplane run"],
    );
    place.start("first", "");
    assert_says(&place.told("first"), &["services/first.sock", "tailplane status first"]);
    let said = place.run(&["status", "first", "--over-ms", "20"]).expect("it runs");
    assert_says(
        &said,
        &["first: process ", "run-to-completion", "| 0      | any", "homes: thread 0: 0-127"],
    );
    // The only one needs no name.
    let said = place.run(&["top", "--once", "--interval-ms", "20"]).expect("it runs");
    assert_says(&said, &["first  process", "flow groups: a character each", "events", "q: quit"]);
    place.start("second", "[control]\nname = \"other\"\npolicy = \"none\"\n");
    let error = place.run(&["top", "--once"]).expect_err("which?");
    assert_says(&error, &["more than one", "first, other"]);
    let json = place.run(&["status", "--json", "--over-ms", "20"]).expect("both run");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let names: Vec<_> = json["services"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["name"].clone())
        .collect();
    assert_eq!(names, ["first", "other"]);
    assert_eq!(json["services"][0]["threads"][0]["state"], "running");
    assert_eq!(json["services"][0]["homes"].as_array().map(Vec::len), Some(128));

    for (arguments, parts) in [
        (&["ctl", "nobody", "end"][..], &["no service 'nobody'", "there are: first, other"][..]),
        (&["ctl", "a/b", "end"], &["a/b", "tailplane status"]),
        (&["ctl", "first", "park", "0"], &["thread 0 was not parked", "128 flow groups"]),
        (&["ctl", "first", "grant", "7"], &["there is no elastic thread 7"]),
        (&["ctl", "first", "place", "0", "8191"], &["cannot run on processor 8191", "cpuset"]),
        (&["ctl", "first", "move", "0", "1"], &["nothing was moved from thread 0 to 1"]),
        (&["ctl", "first", "move", "0", "0", "5-300"], &["from 0 to 127"]),
        (&["ctl", "first", "move", "3", "0"], &["thread 3 is home to no flow group"]),
        (&["top", "first"], &["no terminal", "--once"]),
    ] {
        assert_says(&place.run(arguments).expect_err("refused"), parts);
    }
    assert_says(
        &place.run(&["ctl", "first", "grant", "0"]).expect("done"),
        &["thread 0 is granted"],
    );
    assert_says(&place.run(&["ctl", "first", "place", "0", "0"]).expect("done"), &["processor 0"]);
    let said = place.run(&["status", "first", "--over-ms", "20"]).expect("it runs");
    assert_says(&said, &["| 0      | 0 "]);
    assert_says(&place.run(&["ctl", "first", "end"]).expect("done"), &["ending"]);
    wait_until("it has ended", || place.services[0].try_wait().expect("ours").is_some());
    assert!(place.services[0].wait().expect("ours").success(), "{}", place.told("first"));
    assert!(place.run(&["ctl", "first", "end"]).expect_err("gone").contains("there are: other"));
}

#[test]
fn a_name_has_one_service_and_one_that_was_killed_gives_it_up() {
    let mut place = Place::new();
    place.start("kv", "[control]\nsocket = true\n");
    let again = place.directory.join("again");
    fs::create_dir_all(&again).expect("a directory");
    let text = fs::read_to_string(place.directory.join("kv.toml")).expect("it was written");
    let config = again.join("kv.toml");
    fs::write(&config, text.replace("kv.wire", "kv2.wire")).expect("written");
    let path = config.to_str().expect("a path");
    let error = place.run(&["run", path, "--seconds", "1"]).expect_err("the name is taken");
    let pid = place.services[0].id().to_string();
    assert_says(&error, &["`control.socket` is true", "a service named 'kv' runs already", &pid]);
    place.services[0].kill().expect("ours");
    place.services[0].wait().expect("ours");
    let said = place.run(&["status"]).expect("a dead one is no error");
    assert_says(&said, &["no service runs"]);
    // Without insisting, a service runs although nobody can control it.
    fs::write(
        &config,
        text.replace("kv.wire", "kv2.wire").replace("socket = true", "name = \"kv\""),
    )
    .expect("written");
    let said = place.run(&["run", path, "--seconds", "1"]).expect("the name is free");
    assert_says(&said, &["services/kv.sock"]);
    let blocked = place.directory.join("blocked");
    fs::write(&blocked, "").expect("written");
    let mut command = place.command(&["run", path, "--seconds", "1"]);
    let Output { status, stdout, .. } =
        command.env("TAILPLANE_RUN_DIR", &blocked).output().expect("it starts");
    assert!(status.success());
    assert_says(
        &String::from_utf8_lossy(&stdout),
        &["control    none: cannot make the control socket"],
    );
}

#[test]
fn a_service_in_processes_of_its_own_is_steered_through_its_starter() {
    let mut place = Place::new();
    let more = "[dataplane]\ndomain = \"process\"\nspin_us = 50\n[control]\nname = \"apart\"\n";
    place.start("apart", more);
    let said = place.run(&["status", "apart", "--over-ms", "20"]).expect("it runs");
    assert_says(&said, &["domain process, auto", "stay where they are", "homes: thread 0: 0-127"]);
    assert_says(
        &place.run(&["ctl", "apart", "grant", "0"]).expect("done"),
        &["thread 0 is granted"],
    );
    assert_says(&place.run(&["ctl", "apart", "place", "0", "0"]).expect("done"), &["processor 0"]);
    for (arguments, parts) in [
        (&["ctl", "apart", "park", "0"][..], &["128 flow groups"][..]),
        (&["ctl", "apart", "place", "0", "8191"], &["cannot run on processor 8191"]),
        (&["ctl", "apart", "grant", "1"], &["there is no elastic thread 1"]),
        (&["ctl", "apart", "move", "0", "0"], &["cannot be moved"]),
    ] {
        assert_says(&place.run(arguments).expect_err("refused"), parts);
    }
    let said = place.run(&["top", "apart", "--once", "--interval-ms", "20", "--slo-us", "500"]);
    assert_says(&said.expect("it runs"), &["apart  process", "packets/s"]);
    assert_says(&place.run(&["ctl", "apart", "end"]).expect("done"), &["ending"]);
    wait_until("it has ended", || place.services[0].try_wait().expect("ours").is_some());
    let said = place.told("apart");
    assert!(place.services[0].wait().expect("ours").success(), "{said}");
    assert!(!Path::new(&place.directory.join("services/apart.sock")).exists());
}

#[test]
fn help_teaches() {
    let place = Place::new();
    for (arguments, parts) in [
        (&["status", "--help"][..], &["queueing delay", "TAILPLANE_RUN_DIR", "--json"][..]),
        (&["ctl", "--help"], &["grant", "park", "place", "move", "end", "policy"]),
        (&["ctl", "kv", "move", "--help"], &["all", "half", "0-15,20"]),
        (&["top", "--help"], &["--slo-us", "--once", "turns stolen", "flow group"]),
    ] {
        let said = place.run(arguments).expect("help");
        assert_says(&said, parts);
    }
}
