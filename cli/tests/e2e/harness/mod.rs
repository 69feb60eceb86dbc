//! What every test stands on: a lab and a service of its own, ended on every way out.

pub mod capture;
pub mod kernel_echo;
pub mod process;
pub mod stream;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};
use std::{fs, thread};

use service::doctor::xdp;
use service::lab::constants::DATAPLANE_ADDRESS;
use service::lab::{Lab, LabConfig, LabError, in_namespace, spawn_in};

use self::process::{Finished, Running};

/// How long any one step may take before it counts as stuck: longer than the longest load.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long a service has to see the end of its connections before it is stopped.
const SETTLING: Duration = Duration::from_millis(150);
/// Where the echo service listens.
pub const ECHO: SocketAddr = at(7);
/// Where the key-value service listens.
pub const KV: SocketAddr = at(11_211);

/// A port of the dataplane.
pub const fn at(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(DATAPLANE_ADDRESS), port)
}

/// Whether the long forms were asked for.
pub fn is_full() -> bool {
    std::env::var_os("TAILPLANE_E2E_FULL").is_some_and(|value| value == "1")
}

/// Whether tests with a lab can run here; prints why not.
pub fn possible() -> bool {
    let reason = if !rustix::process::geteuid().is_root() {
        "needs root".to_owned()
    } else if Command::new("ip").arg("-V").stdout(Stdio::null()).status().is_err() {
        "needs iproute2".to_owned()
    } else if !Path::new("/proc/self/ns/net").exists() {
        "this kernel has no network namespaces".to_owned()
    } else if let Err(error) = xdp::probe() {
        format!("needs AF_XDP sockets: {error}")
    } else {
        return true;
    };
    println!("skipped: {reason}");
    false
}

/// The right to run, as long as this value lives.
#[derive(Debug)]
pub struct Turn {
    _beside: Option<RwLockReadGuard<'static, ()>>,
    _alone: Option<RwLockWriteGuard<'static, ()>>,
}

static TURN: RwLock<()> = RwLock::new(());

impl Turn {
    /// Beside others, as many as the test harness has threads, each in a lab of its own.
    pub fn beside() -> Self {
        // A test that failed has given its lab back all the same.
        let turn = TURN.read().unwrap_or_else(PoisonError::into_inner);
        Self { _beside: Some(turn), _alone: None }
    }

    /// For a test that measures, or counts what there is on the machine.
    pub fn alone() -> Self {
        let turn = TURN.write().unwrap_or_else(PoisonError::into_inner);
        Self { _beside: None, _alone: Some(turn) }
    }
}

/// Waits for something, [`PATIENCE`] at most.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "still not after {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The command under test: [`PROGRAM`](crate::PROGRAM).
pub fn tailplane(arguments: &[&str]) -> Command {
    let mut command = Command::new(crate::PROGRAM);
    command.args(arguments);
    command
}

/// A directory that goes with this value.
#[derive(Debug)]
pub struct TemporaryDirectory {
    path: PathBuf,
}

impl TemporaryDirectory {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tailplane-e2e-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a directory for this test");
        Self { path }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(name);
        fs::write(&path, content).expect("writing a file of this test");
        path
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A configuration for `tailplane run` in a lab. Threads sleep when they are idle: the client needs
/// the processor as well. `more` is TOML that comes after `[dataplane]`'s keys.
///
/// With TAILPLANE_TEST_SCHEDULER=work-conserving (or ready-set) all tests run under that scheduler; few of
/// them do so otherwise. `kick` is work-conserving with kicks, which need a real-time priority. With
/// TAILPLANE_TEST_DOMAIN=split (or same-core) all services are processes of their own, placed so.
pub fn config(app: &str, lab: &str, threads: u32, more: &str) -> String {
    let chosen = std::env::var("TAILPLANE_TEST_SCHEDULER").ok();
    let chosen = chosen.filter(|_| !more.contains("scheduler"));
    let scheduler = match chosen.as_deref() {
        None => String::new(),
        Some("kick") => {
            "scheduler = \"work-conserving\"\nwhile_away = \"kick\"\nrealtime = 1\n".to_owned()
        }
        Some(name) => format!("scheduler = \"{name}\"\n"),
    };
    let placement =
        std::env::var("TAILPLANE_TEST_DOMAIN").ok().filter(|_| !more.contains("domain"));
    let domain = placement.map_or(String::new(), |placement| {
        format!("domain = \"process\"\nplacement = \"{placement}\"\n")
    });
    format!(
        "[service]\napp = \"{app}\"\n[network]\nlab = \"{lab}\"\n\
         [dataplane]\nthreads = {threads}\nspin_us = 50\n{scheduler}{domain}{more}"
    )
}

/// Starts `tailplane run` and waits until it serves. It ends by itself in the end, should this
/// process be killed.
pub fn start(directory: &TemporaryDirectory, config: &str) -> Running {
    let path = directory.write("run.toml", config);
    let mut command = tailplane(&["run", "--seconds", "300"]);
    command.arg(path).env("TAILPLANE_RUN_DIR", directory.file("run"));
    let mut service = Running::start(directory, "service", command, Command::spawn)
        .expect("the tailplane command starts");
    wait_until("the service serves", || {
        service.assert_runs();
        service.stdout().contains("scheduler")
    });
    service
}

/// What a service said of itself at its end, summed over its threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Connections accepted by each elastic thread.
    pub accepted: Vec<u64>,
    /// Connections that were left.
    pub left: u64,
    /// All that it printed.
    pub text: String,
}

impl Summary {
    /// `thread 0: 6 packets in, …, 1 connections accepted, 0 left`
    fn parse(text: &str) -> Self {
        let mut summary = Self { text: text.to_owned(), ..Self::default() };
        for line in text.lines().filter(|line| line.starts_with("thread ")) {
            let before = |word: &str| -> u64 {
                let number = line.split(word).next().and_then(|head| head.split(' ').next_back());
                let number = number.and_then(|number| number.parse().ok());
                number.unwrap_or_else(|| panic!("no number before '{word}' in: {line}"))
            };
            summary.accepted.push(before(" connections accepted"));
            summary.left += before(" left");
        }
        summary
    }
}

/// A lab and a service. Fields go in this order: first the service, then the lab it runs in.
#[derive(Debug)]
pub struct Testbed {
    service: Option<Running>,
    pub lab: Lab,
    pub directory: TemporaryDirectory,
    _turn: Turn,
}

impl Testbed {
    /// A lab without a service; `None` where this cannot be, which is printed.
    pub fn new(tag: &str, queues: u32) -> Option<Self> {
        Self::at_turn(tag, queues, false, Turn::beside)
    }

    /// The same in a lab whose client speaks IPv6 too.
    pub fn with_ipv6(tag: &str, queues: u32) -> Option<Self> {
        Self::at_turn(tag, queues, true, Turn::beside)
    }

    /// The same for a test that is to be the only one.
    pub fn alone(tag: &str, queues: u32) -> Option<Self> {
        Self::at_turn(tag, queues, false, Turn::alone)
    }

    fn at_turn(tag: &str, queues: u32, ipv6: bool, take: fn() -> Turn) -> Option<Self> {
        if !possible() {
            return None;
        }
        let turn = take();
        let config = LabConfig { queues, ipv6, ..LabConfig::unique(&format!("e2e-{tag}")) };
        let lab = Lab::create(config).expect("a lab");
        Some(Self { service: None, lab, directory: TemporaryDirectory::new(), _turn: turn })
    }

    /// A lab with a service on one elastic thread.
    pub fn with(tag: &str, app: &str) -> Option<Self> {
        let mut bed = Self::new(tag, 1)?;
        bed.serve(app, 1, "");
        Some(bed)
    }

    /// Starts a service in the lab.
    pub fn serve(&mut self, app: &str, threads: u32, more: &str) {
        let text = config(app, self.lab.prefix(), threads, more);
        self.serve_with(&text);
    }

    /// The same with a whole configuration.
    pub fn serve_with(&mut self, text: &str) {
        self.service = Some(start(&self.directory, text));
    }

    /// The service, where one runs.
    pub fn service(&self) -> Option<&Running> {
        self.service.as_ref()
    }

    /// Ends the service as Ctrl-C does. It must end well.
    pub fn stop(&mut self) -> Summary {
        let service = self.service.take().expect("a service runs");
        // The last segments are still under way, or wait for a processor.
        thread::sleep(SETTLING);
        let finished = service.interrupt(rustix::process::Signal::INT);
        assert!(finished.status.success(), "{finished:?}");
        Summary::parse(&finished.stdout)
    }

    /// Runs `work` at the client's end, on a thread that ends with it.
    pub fn at_client<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        in_namespace(self.lab.client(), work).expect("the client's namespace")
    }

    /// Runs a program at the client's end, to its end. `None`, which is printed, where it is not
    /// installed.
    pub fn run(&self, command: Command) -> Option<Finished> {
        Some(self.start(command)?.finish())
    }

    /// Starts a program at the client's end. `None` as for [`run`](Self::run).
    pub fn start(&self, command: Command) -> Option<Running> {
        let program = command.get_program().to_string_lossy().into_owned();
        let spawn = |command: &mut Command| {
            // `spawn_in` takes its command: hand it the one that is set up.
            let set_up = std::mem::replace(command, Command::new("true"));
            spawn_in(self.lab.client(), set_up).map_err(|error| match error {
                LabError::Spawn { source, .. } => source,
                other => panic!("{other}"),
            })
        };
        match Running::start(&self.directory, "client", command, spawn) {
            Ok(running) => Some(running),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                println!("skipped: needs the program {program}");
                None
            }
            Err(error) => panic!("{program}: {error}"),
        }
    }
}

/// The address of a kernel's server at the dataplane's end, for comparison.
pub fn kernel_at(port: u16) -> SocketAddr {
    let address: Ipv4Addr = service::lab::constants::DATAPLANE_KERNEL_ADDRESS;
    SocketAddr::from((address, port))
}
