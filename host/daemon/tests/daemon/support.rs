//! A run directory, a service in this process, the daemon as another one, and somebody who calls it.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use endpoint::{
    Answer, Ask, Description, Done, MoveSummary, Outcome, PROTOCOL_VERSION, Refused, RefusedKind,
    Request, Server, Steering,
};
use serde_json::{Value, json};
use statseg::{Cycle, Layout, Reading, Segment, State};

/// Whatever is waited for comes within this, on however busy a machine.
pub const PATIENCE: Duration = Duration::from_secs(120);
pub const GROUPS: u16 = 64;

/// A directory of its own, with a machine of four processors in it; removed when dropped.
pub struct Dir(PathBuf);

impl Dir {
    pub fn new(what: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tailplaned-{what}-{}-{number}", std::process::id());
        let this = Self(std::env::temp_dir().join(name));
        let base = "sys/devices/system/cpu";
        this.put(&format!("{base}/online"), "0-3");
        for cpu in 0..4 {
            let topology = format!("{base}/cpu{cpu}/topology");
            this.put(&format!("{topology}/physical_package_id"), "0");
            this.put(&format!("{topology}/core_id"), &cpu.to_string());
            this.put(&format!("{topology}/thread_siblings_list"), &cpu.to_string());
        }
        std::fs::create_dir_all(this.path("services")).expect("a directory");
        this
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a file in it")).expect("directories");
        std::fs::write(&path, text).expect("a file");
        path
    }

    /// The daemon's configuration; `more` is appended.
    pub fn config(&self, more: &str) -> PathBuf {
        let text = format!(
            "run_directory = \"{0}/run\"\nservices_directory = \"{0}/services\"\ncommand = \"{0}/command\"\n{more}\n\
             [machine]\nsys = \"{0}/sys\"\ncgroup = \"{0}/cgroup\"\n",
            self.0.display()
        );
        self.put("tailplaned.toml", &text)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // What is left in the temporary directory harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits until something is so.
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The daemon; killed when dropped.
pub struct Daemon(pub Child);

impl Daemon {
    pub fn command(config: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tailplaned"));
        command.arg("--config").arg(config).stdin(Stdio::null());
        for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "TAILPLANE_RUN_DIR"] {
            command.env_remove(name);
        }
        command
    }

    pub fn start(config: &Path) -> Self {
        Self(Self::command(config).spawn().expect("the daemon starts"))
    }

    /// With its log, which is read when it has ended.
    pub fn start_quietly(config: &Path) -> Self {
        Self(Self::command(config).stderr(Stdio::piped()).spawn().expect("the daemon starts"))
    }

    pub fn kill(&mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it is ours");
    }

    pub fn terminate(&self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw);
        let signal = rustix::process::Signal::TERM;
        rustix::process::kill_process(pid.expect("a process"), signal).expect("it is ours");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A connection to the control socket.
pub struct Caller {
    pub stream: UnixStream,
    rest: Vec<u8>,
}

impl Caller {
    pub fn connect(dir: &Dir) -> Self {
        let path = dir.path("run/control.sock");
        let mut stream = None;
        until("the control socket", || {
            stream = UnixStream::connect(&path).ok();
            stream.is_some()
        });
        Self::over(stream.expect("connected"))
    }

    pub fn over(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        Self { stream, rest: Vec::new() }
    }

    pub fn send(&mut self, call: &Value) {
        let mut bytes = call.to_string().into_bytes();
        bytes.push(0);
        self.stream.write_all(&bytes).expect("the daemon reads");
    }

    /// The next message; none where the daemon has closed the connection.
    pub fn hear(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == 0) {
                let message: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&message[..end]).expect("JSON"));
            }
            let mut bytes = [0; 65_536];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(len) => self.rest.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        let method = format!("io.tailplane.Control.{method}");
        self.send(&json!({ "method": method, "parameters": parameters }));
        self.hear().expect("an answer")
    }

    pub fn status(&mut self, name: &str) -> Value {
        self.call("Status", json!({ "name": name }))["parameters"]["service"].clone()
    }

    /// Waits until the service is governed, or whatever `mode` is.
    pub fn wait_for_mode(&mut self, name: &str, mode: &str) {
        until(&format!("{name} in mode {mode}"), || {
            let status = self.status(name);
            status["mode"] == mode && !status["running"].is_null()
        });
    }
}

/// What a service does and was asked, shared with the test.
pub struct Inside {
    pub segment: Arc<Segment>,
    /// Something that no service may be asked by a daemon that knows its state.
    pub violations: Mutex<Vec<String>>,
    pub requests: AtomicU64,
    /// Packets that wait at each cycle of a running thread.
    pub queue: AtomicU64,
    end: AtomicBool,
}

impl Inside {
    pub fn reading(&self) -> Reading {
        self.segment.reading()
    }

    pub fn running(&self) -> Vec<u16> {
        let threads = self.reading().threads();
        let runs = (0u16..).zip(threads).filter(|(_, shown)| shown.state == State::Running);
        runs.map(|(thread, _)| thread).collect()
    }

    /// Flow groups at home on each of so many threads.
    pub fn spread(&self, threads: u16) -> Vec<usize> {
        let homes = self.reading().homes();
        (0..threads).map(|one| homes.iter().filter(|home| **home == Some(one)).count()).collect()
    }

    fn set_state(&self, thread: u16, state: State) {
        self.segment.board(thread).expect("there is such a thread").set_state(state);
    }

    fn state(&self, thread: u16) -> State {
        self.reading().thread(thread).expect("there is such a thread").state
    }

    fn violated(&self, what: String) {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }
}

/// What the control socket's server asks: everything is done at once, moves a little later.
struct Steered {
    inside: Arc<Inside>,
    name: String,
    config_text: String,
    threads: u16,
    moves: Vec<(Instant, u64, u16, Vec<u16>)>,
}

impl Steering for Steered {
    fn describe(&self) -> Description {
        Description {
            name: self.name.clone(),
            pid: std::process::id(),
            started_unix_ms: 1,
            config_path: String::new(),
            config_text: self.config_text.clone(),
            threads: self.threads,
            cpus: (0..usize::from(self.threads)).map(Some).collect(),
            batch_max: 64,
            groups: GROUPS,
            scheduler: "run-to-completion".to_owned(),
            domain: "inline".to_owned(),
            driver: "test".to_owned(),
            steers: false,
            movable: true,
            version: PROTOCOL_VERSION,
        }
    }

    fn segment(&self) -> std::io::Result<OwnedFd> {
        self.inside.segment.descriptor()
    }

    fn begin(&mut self, ask: Ask) -> Option<Outcome> {
        if ask.request == Request::End {
            (0..self.threads).for_each(|thread| self.inside.set_state(thread, State::Leaving));
            self.inside.end.store(true, Ordering::Relaxed);
            return Some(Ok(Done::Ending));
        }
        self.inside.requests.fetch_add(1, Ordering::Relaxed);
        match ask.request {
            Request::Grant { thread } => self.grant(thread),
            Request::Park { thread } => self.park(thread),
            Request::Move { from, to, groups } => self.move_groups(ask.id, from, to, &groups),
            Request::Place { thread, cpu } => {
                self.inside.segment.board(thread)?.set_processor(Some(cpu));
                Some(Ok(Done::Placed))
            }
            Request::Describe | Request::End => unreachable!("seen to before"),
        }
    }

    fn reports(&mut self) -> Vec<Answer> {
        let now = Instant::now();
        let done: Vec<_> = self.moves.extract_if(.., |one| one.0 <= now).collect();
        let report = |(_, id, to, groups): (Instant, u64, u16, Vec<u16>)| {
            groups.iter().for_each(|&group| self.inside.segment.set_home(group, to));
            let groups = groups.len() as u32;
            let phase_ns = [1_000, 2_000, 3_000, 4_000];
            let moved = MoveSummary { groups, connections: 1, packets_deferred: 0, phase_ns };
            Answer { id, result: Ok(Done::Moved(moved)) }
        };
        done.into_iter().map(report).collect()
    }
}

impl Steered {
    fn grant(&self, thread: u16) -> Option<Outcome> {
        if thread >= self.threads {
            return Some(Err(Refused::new(RefusedKind::NoSuchThread, "there is no such thread")));
        }
        self.inside.set_state(thread, State::Running);
        Some(Ok(Done::Granted))
    }

    fn park(&self, thread: u16) -> Option<Outcome> {
        let has_groups = self.inside.reading().homes().contains(&Some(thread));
        let gets_some = self.moves.iter().any(|one| one.2 == thread);
        if has_groups || gets_some {
            self.inside.violated(format!("thread {thread} is to be parked with flow groups"));
            return Some(Err(Refused::new(RefusedKind::HasGroups, "it has flow groups")));
        }
        self.inside.set_state(thread, State::Parked);
        if self.inside.running().is_empty() {
            self.inside.violated("nobody runs any more".to_owned());
        }
        Some(Ok(Done::Parked))
    }

    fn move_groups(&mut self, id: u64, from: u16, to: u16, groups: &[u16]) -> Option<Outcome> {
        let homes = self.inside.reading().homes();
        let moving = |group: &u16| self.moves.iter().any(|one| one.3.contains(group));
        if groups.iter().any(moving) {
            return Some(Err(Refused::new(RefusedKind::UnderWay, "a group is on its way")));
        }
        let home = |group: &u16| homes.get(usize::from(*group)).copied().flatten();
        if groups.iter().any(|group| home(group) != Some(from)) {
            return Some(Err(Refused::new(RefusedKind::NotHome, "a group is at home elsewhere")));
        }
        if self.inside.state(to) != State::Running {
            self.inside.violated(format!("groups are to go to thread {to}, which is parked"));
        }
        let done = Instant::now() + Duration::from_millis(3);
        self.moves.push((done, id, to, groups.to_vec()));
        None
    }
}

/// A service in this process; it ends when dropped.
pub struct Service {
    pub inside: Arc<Inside>,
    stop: Arc<AtomicBool>,
    load: Option<JoinHandle<()>>,
    _server: Server,
}

impl Service {
    /// So many threads, of which the first runs and has all flow groups.
    pub fn start(run_dir: &Path, name: &str, threads: u16) -> Self {
        Self::start_with(run_dir, name, threads, "")
    }

    /// The same, configured by a file of this text.
    pub fn start_with(run_dir: &Path, name: &str, threads: u16, config_text: &str) -> Self {
        let layout = Layout { threads, groups: GROUPS, batch_max: 64 };
        let inside = Arc::new(Inside {
            segment: Segment::create(name, &layout).expect("memory"),
            violations: Mutex::default(),
            requests: AtomicU64::new(0),
            queue: AtomicU64::new(1),
            end: AtomicBool::new(false),
        });
        for thread in 0..threads {
            let state = if thread == 0 { State::Running } else { State::Parked };
            inside.set_state(thread, state);
            let board = inside.segment.board(thread).expect("there is such a thread");
            board.set_processor(Some(usize::from(thread)));
        }
        (0..GROUPS).for_each(|group| inside.segment.set_home(group, 0));
        let steered = Steered {
            inside: Arc::clone(&inside),
            name: name.to_owned(),
            config_text: config_text.to_owned(),
            threads,
            moves: Vec::new(),
        };
        let server = Server::bind(run_dir, name, steered).expect("a control socket");
        let stop = Arc::new(AtomicBool::new(false));
        let load = std::thread::spawn({
            let (inside, stop) = (Arc::clone(&inside), Arc::clone(&stop));
            move || serve_load(&inside, &stop)
        });
        Self { inside, stop, load: Some(load), _server: server }
    }

    pub fn shall_end(&self) -> bool {
        self.inside.end.load(Ordering::Relaxed)
    }

    /// So many threads run and share the flow groups, by whoever's doing.
    pub fn reset(&self, threads: u16) {
        // Moves that a daemon began are complete by then.
        std::thread::sleep(Duration::from_millis(20));
        for thread in 0..4 {
            let state = if thread < threads { State::Running } else { State::Parked };
            self.inside.set_state(thread, state);
        }
        (0..GROUPS).for_each(|group| self.inside.segment.set_home(group, group % threads));
    }

    pub fn set_queue(&self, packets: u64) {
        self.inside.queue.store(packets, Ordering::Relaxed);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(load) = self.load.take() {
            load.join().expect("the load's thread is well");
        }
    }
}

/// Elastic threads as their boards show them. Cycles take 100 us; with many packets waiting they follow each other, with
/// few there is one in 10 ms.
fn serve_load(inside: &Inside, stop: &AtomicBool) {
    let mut last = Instant::now();
    let mut packets = vec![0u64; usize::from(GROUPS)];
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(2));
        let passed_us = last.elapsed().as_micros() as u64;
        let queue = inside.queue.load(Ordering::Relaxed);
        let cycles = if queue > 64 { passed_us * 9 / 1_000 } else { passed_us / 10_000 };
        if cycles == 0 {
            continue;
        }
        last = Instant::now();
        let cycle = Cycle {
            queue_packets: queue,
            taken_packets: queue.min(64),
            busy_ns: 100_000,
            ..Cycle::default()
        };
        for thread in inside.running() {
            let board = inside.segment.board(thread).expect("there is such a thread");
            (0..cycles).for_each(|_| board.busy(&cycle));
            board.idle(passed_us.saturating_sub(cycles * 100) * 1_000);
        }
        packets.iter_mut().for_each(|packets| *packets += cycles);
        inside.segment.tell_groups(0, &packets);
    }
}
