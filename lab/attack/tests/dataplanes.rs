//! The starter of the `process` domain and readers of statistics, beside hostile dataplanes and applications: each
//! attack of `tailplane-attack list` that a dataplane makes. Whatever it does, the starter answers at its control
//! socket and ends within a second of SIGTERM, nothing stays behind, and no control character is printed.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use endpoint::{Client, ClientError, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A second for an answer, and a second for the end: half of it is `dataplane.end_ms` by default, and half is for a
/// starter that shares its processors with the attack and with other work of the machine.
const WITHIN: Duration = Duration::from_secs(1);
/// How long a starter may take to begin beside other work of the machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long an attack has had its way before the starter is asked anything.
const HEAD_START: Duration = Duration::from_millis(400);
/// What is copied of a process in a second, with a burst for each of its outputs, in bytes.
const COPIED_PER_S: f64 = 2.0 * (1 << 20) as f64;
const COPIED_AT_ONCE: f64 = 2.0 * (128 << 10) as f64;
/// Longest output of a starter whose dataplane is hostile, in bytes.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
const LOOK: Duration = Duration::from_millis(2);

/// A starter and its children, all of which end with this value.
struct Service {
    starter: Child,
    children: Vec<OwnedFd>,
    folder: PathBuf,
    name: &'static str,
    _turn: MutexGuard<'static, ()>,
}

/// Two processors have room for one service whose end is timed.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a starter is started with.
#[derive(Default)]
struct Setting {
    /// After `[dataplane]`.
    dataplane: &'static str,
    /// After `[application]`.
    application: &'static str,
    program: &'static [&'static str],
    stdin: Option<Stdio>,
    stdout: Option<Stdio>,
}

impl Service {
    fn start(name: &'static str) -> Self {
        Self::with(name, Setting::default())
    }

    fn with(name: &'static str, setting: Setting) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let turn = turn();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("tailplane-dataplanes-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).expect("a folder of this test");
        let config = folder.join("run.toml");
        let text = format!(
            "# attack: {name}\n[service]\napp = \"echo\"\n[network]\nshm = \"{}\"\n[dataplane]\ndomain = \"process\"\n\
             {}\n[application]\n{}\n[memory]\nchunks = 16384\n[control]\nname = \"{name}\"\nsocket = true\n",
            folder.join("wire.sock").display(),
            setting.dataplane,
            setting.application,
        );
        fs::write(&config, text).expect("writing a configuration");
        let file = |name: &str| File::create(folder.join(name)).expect("a file of this test");
        let mut command = command(&folder, &["run", "--seconds", "60"]);
        command.arg(config).stdin(setting.stdin.unwrap_or(Stdio::null()));
        command.stdout(setting.stdout.unwrap_or(file("stdout").into())).stderr(file("stderr"));
        if !setting.program.is_empty() {
            command.arg("--").args(setting.program);
        }
        let starter = command.spawn().expect("it starts");
        let mut service = Self { starter, children: Vec::new(), folder, name, _turn: turn };
        let began = Instant::now();
        while service.children.len() < 2 && !service.has_ended() {
            assert!(began.elapsed() < PATIENCE, "no children: {}", service.output());
            service.children = children(service.starter.id());
            std::thread::sleep(LOOK);
        }
        std::thread::sleep(HEAD_START);
        service
    }

    fn has_ended(&mut self) -> bool {
        self.starter.try_wait().expect("a child of this test").is_some()
    }

    fn output(&self) -> String {
        let of = |name| fs::read(self.folder.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&[of("stdout"), of("stderr")].concat()).into_owned()
    }

    /// Asks at the control socket, and requires an answer in time: that it serves, or why not.
    fn assert_answers(&mut self) -> Option<Client> {
        let began = Instant::now();
        let asked = self.connect().and_then(|mut client| {
            let described = client.describe();
            described.map(|_| client)
        });
        let took = began.elapsed();
        match asked {
            Ok(client) if took < WITHIN => Some(client),
            Err(ClientError::Refused(_)) if took < WITHIN => None,
            Err(error) if self.has_ended() => panic!("it ended: {error}: {}", self.output()),
            other => panic!("{other:?} after {took:?}: {}", self.output()),
        }
    }

    fn connect(&self) -> Result<Client, ClientError> {
        let path = endpoint::socket_path(&self.folder.join("run"), self.name).expect("a name");
        Client::connect(&path)
    }

    /// Runs a reader of the service to its end. What it prints.
    fn reader(&self, arguments: &[&str]) -> (ExitStatus, String) {
        let mut command = command(&self.folder, arguments);
        let output = command.output().expect("it starts");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert_printable(&text);
        (output.status, text)
    }

    /// Asks the starter to end as Ctrl-C does, and requires that all of them end in time.
    fn assert_ends_when_told(&mut self) -> ExitStatus {
        let pid = Pid::from_child(&self.starter);
        assert!(!self.has_ended(), "it ended before it was told: {}", self.output());
        rustix::process::kill_process(pid, Signal::TERM).expect("a child of this test");
        self.assert_ends("after SIGTERM")
    }

    /// Requires that all of them end in time.
    fn assert_ends(&mut self, when: &str) -> ExitStatus {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.starter.try_wait().expect("a child of this test") {
                break status;
            }
            assert!(began.elapsed() < PATIENCE, "{when}: it does not end: {}", self.output());
            std::thread::sleep(LOOK);
        };
        let took = began.elapsed();
        println!("{}: ended {took:?} {when}", self.name);
        assert!(took < WITHIN, "{when}: it took {took:?} to end: {}", self.output());
        for child in &self.children {
            assert!(has_ended(child), "{when}: a process was left behind: {}", self.output());
        }
        let output = self.output();
        assert_printable(&output);
        assert!(output.len() < OUTPUT_BYTES_MAX, "{} bytes were printed", output.len());
        status
    }

    /// Requires that the starter ends by itself, with an error that says so.
    fn assert_fails(&mut self, part: &str) {
        let status = self.assert_ends("by itself");
        let output = self.output();
        assert!(!status.success() && output.contains(part), "{status}: no '{part}' in {output}");
    }

    fn dataplane(&self) -> &OwnedFd {
        // The starter starts the application first.
        self.children.last().expect("there are two")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.starter.kill();
        let _ = self.starter.wait();
        for child in &self.children {
            let _ = pidfd_send_signal(child, Signal::KILL);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailplane-attack"));
    command.args(arguments).env("TAILPLANE_RUN_DIR", folder.join("run"));
    command
}

/// The children of a process, in the order in which they were started.
fn children(parent: u32) -> Vec<OwnedFd> {
    let text = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let numbers = text.unwrap_or_default();
    let pids = numbers.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
    pids.filter_map(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()).collect()
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&now)).is_ok_and(|count| count > 0)
}

#[track_caller]
fn assert_printable(text: &str) {
    let odd = text.chars().find(|&c| c.is_control() && c != '\n' && c != '\t');
    let start: String = text.chars().take(400).collect();
    assert!(odd.is_none(), "{odd:?} was printed: {start:?}");
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: needs root");
    }
    root
}

/// Whether the processes can be told apart and timed here; the attack then serves, is asked, and is told to end.
fn attack_that_lasts(name: &'static str) {
    if is_root() {
        let mut service = Service::start(name);
        service.assert_answers();
        service.assert_ends_when_told();
    }
}

fn attack_that_is_ended(name: &'static str, part: &str) {
    if is_root() {
        Service::start(name).assert_fails(part);
    }
}

const BROKE: &str = "the dataplane broke the protocol";

#[test]
fn words_without_end_end_the_dataplane() {
    attack_that_is_ended("flood-words", BROKE);
}

#[test]
fn a_second_start_ends_the_dataplane() {
    attack_that_is_ended("flood-ready", BROKE);
}

#[test]
fn garbage_ends_the_dataplane() {
    attack_that_is_ended("flood-garbage", BROKE);
}

#[test]
fn a_message_that_is_too_long_ends_the_dataplane() {
    attack_that_is_ended("oversize", BROKE);
}

#[test]
fn descriptors_without_end_end_the_dataplane() {
    attack_that_is_ended("descriptors", BROKE);
}

#[test]
fn a_dataplane_that_never_serves_holds_up_nothing() {
    attack_that_lasts("never-serves");
}

#[test]
fn a_dataplane_that_lives_on_after_its_last_word_is_ended() {
    attack_that_is_ended("says-ended", "lived on");
}

#[test]
fn a_dataplane_that_lives_on_after_its_hang_up_is_ended() {
    attack_that_is_ended("hangs-up", "lived on");
}

#[test]
fn a_dataplane_that_ignores_the_end_is_killed() {
    attack_that_lasts("ignores-end");
}

#[test]
fn a_dataplane_that_is_stopped_is_killed() {
    if !is_root() {
        return;
    }
    let mut service = Service::start("ignores-end");
    pidfd_send_signal(service.dataplane(), Signal::STOP).expect("it runs");
    service.assert_answers();
    service.assert_ends_when_told();
}

/// Where there are more processors than its threads need, those that it cannot reach serve the starter, and this test.
#[test]
fn a_dataplane_that_spins_wherever_it_may_leaves_processors_to_others() {
    attack_that_lasts("spins");
}

/// The kernel ends it at its group's limit of memory and swap together.
#[test]
fn a_dataplane_that_takes_all_memory_is_ended() {
    if !is_root() {
        return;
    }
    if let Err(why) = sandbox::Groups::version(Path::new("/sys/fs/cgroup"), "memory") {
        return println!("skipped: {why}");
    }
    let setting = Setting { dataplane: "memory_mb = 64", ..Setting::default() };
    Service::with("hoards", setting).assert_fails("the dataplane ended without a word (signal: 9");
}

#[test]
fn an_error_in_escape_sequences_is_printed_as_text() {
    attack_that_is_ended("escapes", "\\x1b]0;owned");
}

#[test]
fn output_in_escape_sequences_is_printed_as_text_and_bounded() {
    if !is_root() {
        return;
    }
    let mut service = Service::start("prints");
    service.assert_answers();
    let (bytes, began) = (service.output().len(), Instant::now());
    std::thread::sleep(HEAD_START);
    let (later, took) = (service.output().len(), began.elapsed());
    let most = COPIED_AT_ONCE + COPIED_PER_S * took.as_secs_f64();
    assert!(((later - bytes) as f64) < most, "{} bytes in {took:?}", later - bytes);
    service.assert_answers();
    let pid = Pid::from_child(&service.starter);
    rustix::process::kill_process(pid, Signal::TERM).expect("a child of this test");
    let began = Instant::now();
    while !service.has_ended() {
        assert!(began.elapsed() < WITHIN, "it does not end");
        std::thread::sleep(LOOK);
    }
    assert_printable(&service.output());
}

#[test]
fn refusals_in_escape_sequences_are_printed_as_text() {
    if !is_root() {
        return;
    }
    let mut service = Service::start("refuses");
    service.assert_answers();
    let (status, text) = service.reader(&["ctl", "refuses", "grant", "0"]);
    assert!(!status.success() && text.contains("\\x1b]0;owned"), "{status}: {text}");
    assert!(text.len() < 4 << 10, "{} bytes", text.len());
    service.assert_ends_when_told();
}

#[test]
fn orders_that_are_not_read_hold_up_nothing() {
    if !is_root() {
        return;
    }
    let mut service = Service::start("deaf");
    let mut client = service.assert_answers().expect("it serves");
    let ids: Vec<u64> = (0..12)
        .map(|_| Request::Move { from: 0, to: 0, groups: vec![65_535; 10_000] })
        .map(|request| client.ask(request).expect("sent"))
        .collect();
    std::thread::sleep(HEAD_START);
    service.assert_answers();
    for id in ids {
        let refused = client.wait(id, PATIENCE).expect_err("no answer came");
        assert!(matches!(refused, ClientError::Refused(_)), "{refused}");
    }
    service.assert_answers();
    service.assert_ends_when_told();
}

#[test]
fn readers_survive_a_segment_of_random_words() {
    if !is_root() {
        return;
    }
    let mut service = Service::start("scribbles");
    for _ in 0..8 {
        service.assert_answers();
        for arguments in [
            &["status", "scribbles", "--over-ms", "20"][..],
            &["status", "scribbles", "--over-ms", "20", "--json"],
            &["top", "scribbles", "--once", "--interval-ms", "20"],
        ] {
            let (status, text) = service.reader(arguments);
            // A header that is senseless right now is said to be so.
            let is_refused = ["no statistics segment", "the statistics segment has"]
                .iter()
                .any(|refusal| text.contains(refusal));
            assert!(status.success() || is_refused, "{arguments:?}: {status}: {text}");
        }
    }
    service.assert_ends_when_told();
}

#[test]
fn a_segment_that_can_be_cut_off_is_refused() {
    if !is_root() {
        return;
    }
    let mut service = Service::start("unsealed");
    assert!(service.assert_answers().is_none(), "{}", service.output());
    let (_, text) = service.reader(&["status"]);
    assert!(text.contains("statistics"), "{text}");
    service.assert_ends_when_told();
}

const ASKS_FOR_INPUT: &[&str] =
    &["/bin/sh", "-c", "read line; printf 'heard:%s\\033[2J\\233x\\n' \"$line\"; exec sleep 60"];

fn typed() -> Stdio {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(b"password\n").expect("there is room");
    reader.into()
}

#[test]
fn a_program_reads_nothing_of_the_terminal_and_writes_text() {
    if !is_root() {
        return;
    }
    let setting = Setting { program: ASKS_FOR_INPUT, stdin: Some(typed()), ..Setting::default() };
    let mut service = Service::with("never-serves", setting);
    service.assert_answers();
    let output = service.output();
    assert!(output.contains("heard:\\x1b[2J\\x9bx\n"), "{output:?}");
    service.assert_ends_when_told();
}

#[test]
fn a_program_reads_the_terminal_where_the_configuration_says_so() {
    if !is_root() {
        return;
    }
    let setting = Setting {
        application: "stdin = \"inherit\"",
        program: ASKS_FOR_INPUT,
        stdin: Some(typed()),
        ..Setting::default()
    };
    let mut service = Service::with("never-serves", setting);
    let output = service.output();
    assert!(output.contains("heard:password\\x1b[2J"), "{output:?}");
    service.assert_ends_when_told();
}

/// The program's output goes to a pipe that is never read.
#[test]
fn a_program_that_prints_without_end_holds_up_nothing() {
    if !is_root() {
        return;
    }
    let (unread, stdout) = std::io::pipe().expect("a pipe");
    let setting = Setting {
        program: &["/usr/bin/yes", "\x1b[2J"],
        stdout: Some(stdout.into()),
        ..Setting::default()
    };
    let mut service = Service::with("never-serves", setting);
    service.assert_answers();
    service.assert_ends_when_told();
    drop(unread);
}
