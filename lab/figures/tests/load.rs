//! `tailplane load` and `tailplane load-agent` as a script sees them: over loopback, against small
//! services in this process. Nothing asserted depends on how fast the machine is.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Short windows on a busy machine: what is late there is not what is tested here.
const SHORT: [&str; 8] =
    ["--workload", "echo:64", "--wait", "block", "--warmup-ms", "20", "--late-us", "1000000"];

/// `SHORT` and `more`, with a short window where `more` names none.
fn short<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let seconds: &[&str] = if more.contains(&"--seconds") { &[] } else { &["--seconds", "0.1"] };
    [&SHORT, seconds, more].concat()
}

/// What a run says that had no processor for a whole window.
const NOTHING_ANSWERED: &str = "nothing was answered inside the window (0 errors)";

/// What `run` gives with a short window and, where nothing was answered in it, with longer ones: its argument. A host
/// can take a machine's processors for longer than a short window lasts, which ends a run, as it has to.
fn with_a_processor(mut run: impl FnMut(&[&str]) -> Output) -> Output {
    let mut output = run(&["--seconds", "0.1"]);
    for longer in ["0.5", "2", "5"] {
        if !(text(&output.stdout) + &text(&output.stderr)).contains(NOTHING_ANSWERED) {
            break;
        }
        output = run(&["--seconds", longer]);
    }
    output
}

/// A service on loopback: each connection is handed to `serve` on a thread of its own.
fn service(serve: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

fn echo_until(mut stream: TcpStream, deadline: Option<Instant>) {
    let mut buffer = [0; 16 << 10];
    while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
        let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if is_over || stream.write_all(&buffer[..bytes]).is_err() {
            return;
        }
    }
}

fn echo(stream: TcpStream) {
    echo_until(stream, None);
}

/// An echo that closes in mid-run.
fn mortal_echo(stream: TcpStream) {
    echo_until(stream, Some(Instant::now() + Duration::from_millis(400)));
}

/// Answers everything with something else.
fn rubbish(mut stream: TcpStream) {
    let mut buffer = [0; 16 << 10];
    let answer = b"HTTP/1.1 400 Bad Request\r\n\r\n".repeat(100);
    while let Ok(1..) = stream.read(&mut buffer) {
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

/// Takes everything, answers nothing.
fn silent(mut stream: TcpStream) {
    let mut buffer = [0; 16 << 10];
    while let Ok(1..) = stream.read(&mut buffer) {}
}

fn tailplane(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailplane-lab"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs `tailplane load TARGET` with the short window and `more`.
fn load(target: SocketAddr, more: &[&str]) -> Output {
    let target = target.to_string();
    let arguments = [&["load", &target][..], &short(more)].concat();
    tailplane(&arguments).output().expect("the command can be run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    let said = text(&output.stdout);
    serde_json::from_str(&said).unwrap_or_else(|error| {
        panic!("{error}: no JSON in '{said}'; standard error: {}", text(&output.stderr))
    })
}

/// A failure with its reason, and without a report.
fn fails_saying(output: &Output, parts: &[&str]) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in parts {
        assert!(said.contains(part), "'{part}' in: {said}");
    }
}

/// A process that is ended where a test fails.
struct Running(Child);

impl Running {
    fn start(arguments: &[&str]) -> Self {
        Self(tailplane(arguments).spawn().expect("the command can be run"))
    }

    /// Waits for the end: status and standard error.
    fn ended(mut self) -> (Option<i32>, String) {
        let status = self.0.wait().expect("is a child");
        let mut said = String::new();
        let mut stderr = self.0.stderr.take().expect("is a pipe");
        stderr.read_to_string(&mut said).expect("text");
        (status.code(), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A coordinator, and what it says on standard error.
struct Coordinator {
    process: Running,
    stderr: BufReader<std::process::ChildStderr>,
    address: String,
}

impl Coordinator {
    fn start(target: SocketAddr, agents: &str, more: &[&str]) -> Self {
        let target = target.to_string();
        let listen = ["--agents", agents, "--listen", "127.0.0.1:0", "--json"];
        let arguments = [&["load", &target][..], &listen, &short(more)].concat();
        let mut process = Running::start(&arguments);
        let mut stderr = BufReader::new(process.0.stderr.take().expect("is a pipe"));
        let line = until(&mut stderr, "waiting for");
        let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
        Self { process, stderr, address }
    }

    /// Waits for the end.
    fn output(mut self) -> Output {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut pipe = self.process.0.stdout.take().expect("is a pipe");
        pipe.read_to_end(&mut stdout).expect("can be read");
        self.stderr.read_to_end(&mut stderr).expect("can be read");
        let status = self.process.0.wait().expect("is a child");
        Output { status, stdout, stderr }
    }
}

/// The first line that contains `part`.
fn until(from: &mut impl BufRead, part: &str) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert_ne!(from.read_line(&mut line).expect("text"), 0, "no line with '{part}'");
        if line.contains(part) {
            return line;
        }
    }
}

fn agent(coordinator: &str, more: &[&str]) -> Running {
    Running::start(&[&["load-agent", coordinator, "--wait-s", "20"], more].concat())
}

#[test]
fn two_agents_and_a_coordinator_give_one_report() {
    let target = service(echo);
    let mut agents = Vec::new();
    let output = with_a_processor(|window| {
        let more = [&["--rate", "1000", "--connections", "4"], window].concat();
        let coordinator = Coordinator::start(target, "2", &more);
        agents =
            ["north", "south"].map(|name| agent(&coordinator.address, &["--name", name])).into();
        coordinator.output()
    });
    let report = json(&output);
    assert_eq!(output.status.code(), Some(0), "{report}");
    let names: Vec<&str> = report["agents"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|agent| agent["name"].as_str().expect("a name"))
        .collect();
    assert!(names.contains(&"north") && names.contains(&"south"), "{names:?}");
    assert_eq!((&report["valid"], &report["offered_rps"]), (&true.into(), &1000.0.into()));
    assert!(report["partial"].is_null() && report["start_skew_bound_us"].is_f64());
    for field in ["host", "achieved_rps", "valid", "p99_us", "requests", "clock_bound_us"] {
        assert!(!report["agents"][0][field].is_null(), "{field}: {report}");
    }
    for agent in agents {
        assert_eq!(agent.ended().0, Some(0));
    }
}

#[test]
fn a_killed_agent_leaves_a_partial_report_and_status_1() {
    let target = service(echo);
    let more = ["--rate", "1000", "--connections", "4", "--seconds", "3"];
    let coordinator = Coordinator::start(target, "2", &more);
    let survivor = agent(&coordinator.address, &["--name", "survivor"]);
    let mut victim = agent(&coordinator.address, &["--name", "victim"]);
    let mut said = BufReader::new(victim.0.stderr.take().expect("is a pipe"));
    until(&mut said, "echo of 64 B");
    std::thread::sleep(Duration::from_millis(1_500));
    victim.0.kill().expect("can be killed");
    let output = coordinator.output();
    let report = json(&output);
    fails_saying(&output, &["partial", "agent victim: lost"]);
    assert_eq!((&report["partial"], &report["valid"]), (&true.into(), &false.into()));
    assert!(report["partial_reason"].as_str().is_some_and(|reason| reason.contains("victim")));
    assert!(report["achieved_rps"].as_f64().is_some_and(|rps| rps > 0.0), "{report}");
    assert_eq!(survivor.ended().0, Some(0));
}

/// Its connection stays open, but its machine might as well be gone.
#[test]
fn an_agent_that_falls_silent_is_lost_too() {
    let target = service(echo);
    let more = ["--rate", "1000", "--connections", "4", "--seconds", "2"];
    let coordinator = Coordinator::start(target, "2", &more);
    let survivor = agent(&coordinator.address, &["--name", "survivor"]);
    let mut victim = agent(&coordinator.address, &["--name", "victim"]);
    let mut said = BufReader::new(victim.0.stderr.take().expect("is a pipe"));
    until(&mut said, "echo of 64 B");
    std::thread::sleep(Duration::from_millis(1_000));
    let stop = rustix::process::Signal::STOP;
    rustix::process::kill_process(rustix::process::Pid::from_child(&victim.0), stop)
        .expect("is a child");
    let output = coordinator.output();
    let report = json(&output);
    fails_saying(&output, &["agent victim: lost: nothing was heard in time"]);
    assert_eq!(report["partial"], true);
    assert!(report["requests"].as_u64().is_some_and(|requests| requests > 0), "{report}");
    assert_eq!(survivor.ended().0, Some(0));
}

#[test]
fn a_killed_coordinator_ends_its_agents_with_an_error() {
    let target = service(echo);
    let more = ["--rate", "1000", "--connections", "4", "--seconds", "600"];
    let mut coordinator = Coordinator::start(target, "1", &more);
    let mut agent = agent(&coordinator.address, &[]);
    let mut said = BufReader::new(agent.0.stderr.take().expect("is a pipe"));
    until(&mut said, "echo of 64 B");
    std::thread::sleep(Duration::from_millis(300));
    coordinator.process.0.kill().expect("can be killed");
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    assert!(rest.contains("was lost, the load is stopped"), "{rest}");
    assert_eq!(agent.0.wait().expect("is a child").code(), Some(1));
}

#[test]
fn secrets_that_cannot_be_used_and_agents_that_do_not_come_are_said() {
    let target = service(echo);
    let coordination = ["--agents", "1", "--listen", "127.0.0.1:0"];
    let missing = ["--secret-file", "no such file", "--connections", "1"];
    let output = load(target, &[&coordination[..], &missing].concat());
    fails_saying(&output, &["cannot use the secret file 'no such file'"]);
    let output = load(target, &[&coordination[..], &["--wait-s", "0"]].concat());
    fails_saying(&output, &["0 of 1 agents came", "tailplane load-agent 127.0.0.1:"]);
    let output = tailplane(&["load-agent", "127.0.0.1:1", "--wait-s", "0"]).output();
    let output = output.expect("the command can be run");
    fails_saying(&output, &["could not reach the coordinator at 127.0.0.1:1"]);
}

#[test]
fn a_search_tells_median_spread_interval_and_all_points() {
    let target = service(echo);
    let search = ["--slo-us", "30000000", "--slo-start", "2000", "--slo-max", "4000", "--json"];
    let search = [&search[..], &["--connections", "2", "--repeats", "6"]].concat();
    let output = with_a_processor(|window| load(target, &[&search[..], window].concat()));
    let found = json(&output);
    assert_eq!(output.status.code(), Some(0), "{found}");
    assert_eq!((&found["kind"], &found["valid"]), (&"search".into(), &true.into()));
    assert_eq!(found["repeats"].as_array().map(Vec::len), Some(6));
    let median = found["throughput_at_slo_rps"].as_f64().expect("a number");
    let end = |name: &str| found["spread"][name].as_f64().expect("a number");
    assert!(end("min") <= median && median <= end("max") && end("max") < 8_000.0, "{found}");
    assert!(found["confidence"]["level"].as_f64().is_some_and(|level| level > 0.95), "{found}");
    // Two loads at least in each repeat.
    let points = found["points"].as_array().expect("a list");
    assert!(points.len() >= 12, "{found}");
    assert!(points.iter().all(|point| point["p99_us"].is_f64() && point["verdict"].is_string()));
    assert_eq!(found["best"]["conditions"]["workload"], "echo of 64 B");
    // One line for each point, since nobody watches.
    let said = text(&output.stderr);
    assert_eq!(
        said.lines().filter(|line| line.contains("requests/s offered")).count(),
        points.len()
    );
}

#[test]
fn an_objective_that_is_never_met_is_an_error_that_keeps_its_points() {
    let target = service(echo);
    let search = ["--slo-us", "0.5", "--slo-start", "2", "--repeats", "1", "--json"];
    let output = load(target, &[&search[..], &["--seconds", "1.5"]].concat());
    let found = json(&output);
    fails_saying(&output, &["the objective was met at no load", "p99 was", "is 0.5 us"]);
    assert!(found["throughput_at_slo_rps"].is_null() && found["best"].is_null());
    assert_eq!((&found["valid"], &found["partial"]), (&false.into(), &false.into()));
    assert!(found["points"].as_array().is_some_and(|points| !points.is_empty()));
}

#[test]
fn a_sweep_is_a_table_a_list_of_points_and_a_picture() {
    let target = service(echo);
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sweep.svg");
    let svg = path.to_str().expect("text");
    let sweep = ["--sweep", "500:1500:3", "--slo-us", "100000", "--connections", "2", "--svg", svg];
    let output = with_a_processor(|window| load(target, &[&sweep[..], window].concat()));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    for part in ["offered /s", "p99 within 100000 us"] {
        assert!(table.contains(part), "'{part}' in {table}");
    }
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    for rps in ["500", "1500"] {
        assert!(lines.any(|words| words.starts_with(&["│", "1", rps])), "{rps} in {table}");
    }
    let picture = std::fs::read_to_string(&path).expect("was written");
    for part in
        ["<svg ", "p99.9", "objective: p99 within 100000 us", "echo of 64 B", "2 connections"]
    {
        assert!(picture.contains(part), "'{part}' in {picture}");
    }
    assert!(
        picture.contains("prefers-color-scheme:dark") && picture.trim_end().ends_with("</svg>")
    );
    std::fs::remove_file(&path).expect("is there");

    let sweep = ["--sweep", "500:1500:3", "--connections", "2", "--json"];
    let output = with_a_processor(|window| load(target, &[&sweep[..], window].concat()));
    let points = json(&output)["points"].as_array().expect("a list").clone();
    let offered: Vec<f64> = points.iter().filter_map(|p| p["offered_rps"].as_f64()).collect();
    assert_eq!(offered, [500.0, 1_000.0, 1_500.0]);
    assert!(points[0]["verdict"].is_null() && points[0]["requests"].is_u64());
}

#[test]
fn agents_carry_a_sweep_too() {
    let target = service(echo);
    let more = ["--sweep", "500:1000:2", "--connections", "2"];
    let mut agents = Vec::new();
    let output = with_a_processor(|window| {
        let coordinator = Coordinator::start(target, "2", &[&more[..], window].concat());
        agents = [(); 2].map(|()| agent(&coordinator.address, &[])).into();
        coordinator.output()
    });
    let found = json(&output);
    assert_eq!(output.status.code(), Some(0), "{found}");
    assert_eq!(found["points"].as_array().map(Vec::len), Some(2));
    for agent in agents {
        assert_eq!(agent.ended().0, Some(0));
    }
}

#[test]
fn a_curve_that_ends_early_keeps_its_points() {
    // The whole service ends after a second: what was measured before is there.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    let target = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten().take(2) {
            std::thread::spawn(move || echo(stream));
        }
    });
    let output = load(target, &["--sweep", "500:5000:10", "--json", "--connect-ms", "1000"]);
    let found = json(&output);
    fails_saying(&output, &["the result is partial", "could not open connection 0 of 1"]);
    assert_eq!((&found["partial"], &found["valid"]), (&true.into(), &false.into()));
    assert_eq!(found["points"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_target_that_is_not_there_is_said_with_what_to_do() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    let nobody = listener.local_addr().expect("bound");
    drop(listener);
    let output = load(nobody, &["--rate", "100"]);
    fails_saying(&output, &["could not open connection 0 of 1", "does a service listen"]);
    assert!(output.stdout.is_empty());
    // A search fails just so, without a single point.
    let output = load(nobody, &["--slo-us", "500", "--json"]);
    fails_saying(&output, &["could not open connection 0 of 1"]);
    assert!(output.stdout.is_empty());
    // No TCP connection leads to a broadcast address.
    let output = load("255.255.255.255:7".parse().expect("an address"), &[]);
    let parts = ["could not open connection 0 of 1 to 255.255.255.255:7", "is there a route"];
    fails_saying(&output, &parts);
}

#[test]
fn agents_are_told_why_a_run_has_ended() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    let nobody = listener.local_addr().expect("bound");
    drop(listener);
    for more in [&["--rate", "100"][..], &["--sweep", "100:200:2"]] {
        let coordinator = Coordinator::start(nobody, "1", more);
        let agent = agent(&coordinator.address, &["--name", "north"]);
        let parts = ["agent north: could not open connection 0 of 1", "does a service listen"];
        fails_saying(&coordinator.output(), &parts);
        let (status, said) = agent.ended();
        assert_eq!(status, Some(1));
        assert!(said.contains("ended the run") && said.contains("does a service listen"), "{said}");
    }
}

#[test]
fn a_target_that_accepts_nobody_times_out() {
    // A listener whose queue is full: the kernel drops what comes beyond.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    rustix::net::listen(&listener, 0).expect("is a listener");
    let target = listener.local_addr().expect("bound");
    let limit = Duration::from_millis(200);
    let waiting: Vec<_> =
        (0..8).map_while(|_| TcpStream::connect_timeout(&target, limit).ok()).collect();
    assert!(waiting.len() < 8, "the queue takes everybody");
    let output = load(target, &["--connect-ms", "400"]);
    fails_saying(&output, &["could not open connection 0 of 1", "is the service accepting?"]);
}

#[test]
fn a_target_that_closes_in_mid_run_leaves_a_partial_report() {
    let target = service(mortal_echo);
    let output = load(target, &["--rate", "1000", "--seconds", "2", "--json"]);
    let report = json(&output);
    fails_saying(&output, &["partial", "all connections were closed by the peer"]);
    assert_eq!((&report["partial"], &report["valid"]), (&true.into(), &false.into()));
    assert_eq!(report["fault"], "closed");
    assert!(report["requests"].as_u64().is_some_and(|requests| requests > 0), "{report}");
}

#[test]
fn a_target_that_answers_rubbish_or_nothing_is_found_out() {
    let output = load(service(rubbish), &["--rate", "1000", "--json"]);
    let report = json(&output);
    assert_eq!(report["valid"], false);
    fails_saying(&output, &["the result is"]);
    assert!(["wrong_bytes", "protocol", "closed"].iter().any(|fault| report["fault"] == *fault));
    // The default workload stores keys first, which only memcached's protocol can.
    for other in [rubbish as fn(TcpStream), echo] {
        let target = service(other).to_string();
        let output = tailplane(&["load", &target, "--seconds", "0.1", "--wait", "block"]).output();
        let output = output.expect("the command can be run");
        fails_saying(&output, &["does not speak memcached's text protocol", "`workload`"]);
        assert!(output.stdout.is_empty());
    }
    let output = load(service(silent), &["--rate", "100", "--json"]);
    assert_eq!(json(&output)["fault"], "silent");
    fails_saying(&output, &["nothing was answered inside the window", "is the service alive"]);
    // A search sees that no other load would help.
    let output = load(service(silent), &["--slo-us", "500", "--slo-start", "100", "--json"]);
    let found = json(&output);
    fails_saying(&output, &["the result is partial: at 100 requests/s: nothing was answered"]);
    assert_eq!(found["points"].as_array().map(Vec::len), Some(1));
}

#[test]
fn options_that_do_not_fit_say_so() {
    let target = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    for (arguments, part) in [
        (&["--svg", "x.svg"][..], "`--svg` needs `--slo-us` or `--sweep`"),
        (&["--slo-us", "500", "--repeats", "0"], "`--repeats` is 0; allowed: 1 to 100"),
        (&["--slo-us", "0"], "`slo_p99_us` is `0`"),
        (&["--agents", "2"], "--listen"),
        (&["--sweep", "5:1:3"], "LOW:HIGH:STEPS"),
        (&["--slo-us", "500", "--slo-percentile", "98"], "50, 90, 99, 99.9"),
        (&["--slo-us", "500", "--rate", "5"], "cannot be used with"),
    ] {
        let output = load(target, arguments);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(part), "{arguments:?}: {said}");
    }
}

/// A service in a process of its own, at one end of a wire in shared memory; killed when dropped.
struct ShmService {
    child: Child,
    directory: PathBuf,
}

impl ShmService {
    fn start() -> Self {
        let directory =
            std::env::temp_dir().join(format!("tailplane-load-shm-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        let text = format!(
            "[service]\napp = \"echo\"\n[network]\nshm = \"{}\"\n[memory]\nchunks = 2048\n\
             [control]\nsocket = false\n",
            directory.join("wire").display()
        );
        let config = directory.join("echo.toml");
        std::fs::write(&config, text).expect("a writable directory");
        let config = config.display().to_string();
        let child = tailplane(&["run", &config, "--seconds", "60"]).spawn().expect("starts");
        let service = Self { child, directory };
        let deadline = Instant::now() + Duration::from_secs(20);
        while !service.wire().exists() {
            assert!(Instant::now() < deadline, "the service offers no wire");
            std::thread::sleep(Duration::from_millis(10));
        }
        service
    }

    fn wire(&self) -> PathBuf {
        self.directory.join("wire")
    }
}

impl Drop for ShmService {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn two_processes_are_joined_by_shared_memory() {
    let service = ShmService::start();
    let wire = service.wire().display().to_string();
    let target = SocketAddr::from((Ipv4Addr::new(10, 77, 0, 2), 7));
    // One client after the other: the wire is free again when one has gone.
    for _ in 0..2 {
        let output = load(target, &["--shm", &wire, "--connections", "8", "--json"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}{error}");
        let report: Value = serde_json::from_str(&text).expect("JSON");
        assert!(report["requests"].as_u64().is_some_and(|requests| requests > 0), "{text}");
        assert_eq!((&report["errors"], &report["wrong_bytes"]), (&0.into(), &0.into()), "{text}");
    }
    drop(service);
    let output = load(target, &["--shm", &wire]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("no wire is offered"), "{error}");
}
