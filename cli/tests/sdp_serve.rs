//! `tailplane sdp serve` as a command: the plane serves from a process without privileges, and both of its
//! processes end together.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sandbox::{Groups, Seccomp, Standing};
use serde_json::Value;

/// Longest that anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

fn tailplane(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailplane"));
    command.arg("sdp").args(arguments);
    command
}

/// A plane of the command. Dropping it kills both processes.
struct Serving {
    child: Child,
    lines: Receiver<String>,
    socket: PathBuf,
    said: Vec<String>,
}

impl Serving {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let file = format!("tailplane-sdp-serve-{}-{name}", std::process::id());
        let socket = std::env::temp_dir().join(file);
        let mut command = tailplane(&["serve", "--seconds", "120", "--json", "-"]);
        command.args(arguments).arg("--socket").arg(&socket);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let (told, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).all(|line| told.send(line).is_ok())
        });
        Self { child, lines, socket, said: Vec::new() }
    }

    /// Until it serves.
    fn serving(mut self) -> Self {
        while !self.said.last().is_some_and(|line| line.contains("try it")) {
            let line = self.lines.recv_timeout(PATIENCE);
            self.said.push(line.unwrap_or_else(|_| panic!("it serves: {:?}", self.said)));
        }
        self
    }

    /// The plane's process, as the announcement names it.
    fn plane(&self) -> u32 {
        let line = self.said.iter().find_map(|line| line.trim().strip_prefix("protection plane: "));
        let line = line.unwrap_or_else(|| panic!("announced: {:?}", self.said));
        let pid = line.strip_prefix("pid ").and_then(|rest| rest.split(',').next());
        pid.and_then(|pid| pid.parse().ok()).expect("a number")
    }

    fn missing(&self) -> usize {
        self.said.iter().filter(|line| line.contains("protection missing: ")).count()
    }

    fn tenant(&self, arguments: &[&str]) -> Output {
        let mut command = tailplane(&["tenant", "--count", "2000", "--json", "-", "--socket"]);
        command.arg(&self.socket).args(arguments).output().expect("the command starts")
    }

    fn signal(&self, pid: u32, signal: Signal) {
        kill_process(Pid::from_raw(pid as i32).expect("a process"), signal).expect("it is there");
    }

    /// Its end, by itself.
    fn ended(&mut self) -> std::process::ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("ours") {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "it ends");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // The plane dies with its opener.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

#[test]
fn the_plane_serves_without_privileges_and_says_what_protects_it() {
    let mut serving =
        Serving::start("confined", &["--mode", "666", "--spin-looks", "200"]).serving();
    let standing = Standing::of(serving.plane()).expect("it runs");
    assert_eq!(standing.parent, serving.child.id());
    assert!(standing.is_powerless() && standing.no_new_privileges, "{standing}");
    // Of the start, of making its threads, and of serving.
    assert_eq!(standing.seccomp, Seccomp::Filters(3), "{standing}");
    if rustix::process::geteuid().is_root() {
        assert!(standing.users.iter().all(|user| *user != 0 && *user == standing.users[0]));
        assert!(standing.groups.iter().all(|group| *group != 0), "{standing}");
        assert!(standing.supplementary.is_empty());
        // What depends on how the machine was set up: its users, its control groups.
        let of_machine = ["no user 'tailplane-sdp'", "the plane has no limit of"];
        let mut missing = serving.said.iter().filter(|line| line.contains("protection missing: "));
        assert!(
            missing.all(|line| of_machine.iter().any(|part| line.contains(part))),
            "{:?}",
            serving.said
        );
        let root = std::fs::read_dir(format!("/proc/{}/root/etc", serving.plane()));
        assert!(root.is_err(), "it sees no file of the machine's");
        audit(&serving);
    } else {
        println!("not root: the plane has the command's user, and says so");
        assert!(serving.missing() >= 2, "{:?}", serving.said);
    }
    let served = serving.tenant(&["--queues", "20", "--active", "5"]);
    assert!(served.status.success(), "{}", String::from_utf8_lossy(&served.stderr));
    let refused = serving.tenant(&["--queues", "1024", "--depth", "1024", "--bytes", "4096"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("cannot join: found"), "{said}");
    serving.signal(serving.child.id(), Signal::INT);
    let status = serving.ended();
    let mut stdout = serving.child.stdout.take().expect("piped");
    let report: Value = serde_json::from_reader(&mut stdout).expect("JSON");
    assert!(status.success(), "{status}");
    assert_eq!((&report["joined"], &report["over_limit"]), (&1.into(), &1.into()), "{report}");
    assert_eq!(report["cores"][0]["served"], 2_000, "{report}");
    let protection = report["conditions"]["protection"].as_array().expect("stamped");
    assert!(protection[0].as_str().expect("a line").contains("no capabilities"), "{report}");
    assert!(!serving.socket.exists(), "the opener has removed it");
}

/// What the plane's process has of the command and of the machine, as the kernel says.
fn audit(serving: &Serving) {
    let (plane, opener) = (serving.plane(), serving.child.id());
    let read =
        |pid: u32, name: &str| std::fs::read_link(format!("/proc/{pid}/{name}")).expect("it runs");
    let outputs = [1, 2].map(|number| read(plane, &format!("fd/{number}")));
    for (number, output) in outputs.iter().enumerate() {
        let text = output.to_string_lossy();
        assert!(text.starts_with("pipe:"), "output {}: {text}", number + 1);
        assert_ne!(*output, read(opener, &format!("fd/{}", number + 1)), "the command's own");
    }
    for entry in std::fs::read_dir(format!("/proc/{plane}/fd")).expect("it runs").flatten() {
        let Ok(held) = std::fs::read_link(entry.path()) else { continue };
        let known = ["socket:", "pipe:", "anon_inode:", "/memfd:"];
        let text = held.to_string_lossy();
        assert!(known.iter().any(|kind| text.starts_with(kind)), "it holds {text}");
    }
    for namespace in ["ns/net", "ns/mnt"] {
        assert_ne!(read(plane, namespace), read(opener, namespace), "{namespace}");
    }
    let limits = std::fs::read_to_string(format!("/proc/{plane}/limits")).expect("it runs");
    for (name, value) in [
        ("Max core file size", "0"),
        ("Max locked memory", "0"),
        ("Max realtime priority", "0"),
        ("Max processes", "256"),
    ] {
        let line = limits.lines().find_map(|line| line.strip_prefix(name));
        let soft = line.and_then(|line| line.split_whitespace().next());
        assert_eq!(soft, Some(value), "{name}: {limits}");
    }
    let groups = std::fs::read_to_string(format!("/proc/{plane}/cgroup")).expect("it runs");
    for controller in ["memory", "pids", "cpu"] {
        if Groups::version(std::path::Path::new("/sys/fs/cgroup"), controller).is_ok() {
            assert!(
                groups.contains(&format!("/tailplane/plane.{opener}.")),
                "{controller}: {groups}"
            );
        }
    }
}

#[test]
fn both_processes_end_together() {
    let mut serving = Serving::start("killed", &[]).serving();
    serving.signal(serving.plane(), Signal::KILL);
    assert!(!serving.ended().success(), "a plane that was killed is an error");
    let mut serving = Serving::start("orphan", &[]).serving();
    let plane = serving.plane();
    serving.signal(serving.child.id(), Signal::KILL);
    serving.ended();
    let start = Instant::now();
    while Standing::of(plane).is_ok() {
        assert!(start.elapsed() < PATIENCE, "the plane dies with its opener");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_user_that_cannot_be_and_a_plane_that_cannot_start_are_errors() {
    let failed = |arguments: &[&str], said: &str| {
        let mut serving = Serving::start("refused", arguments);
        assert!(!serving.ended().success(), "{arguments:?}");
        let lines: Vec<_> = serving.lines.iter().collect();
        assert!(lines.join("\n").contains(said), "{arguments:?}: {lines:?}");
    };
    failed(&["--user", "0"], "`--user` is '0'; allowed: 1 to");
    failed(&["--user", "nobody"], "`--user` is 'nobody'");
    failed(&["--cpus", "100000"], "pinning core 0");
    failed(&["--cores", "5"], "`cores` is 5");
}
