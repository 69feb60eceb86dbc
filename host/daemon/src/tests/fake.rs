//! Services, processes and a machine for tests: they live on whatever becomes of the daemon under test.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use endpoint::{
    Answer, Description, Done, MoveSummary, PROTOCOL_VERSION, Refused, RefusedKind, Request,
};
use rustix::process::Signal;
use statseg::{Board, Cycle, Layout, Reading, Segment, State as ThreadState};

use crate::link::{Gone, Link};
use crate::process::{Ended, Identity, Process};
use crate::world::{Launch, Reached, World};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A directory of its own, removed when dropped.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new(what: &str) -> Self {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tailplaned-{what}-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn put(&self, path: &str, text: &str) -> PathBuf {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().expect("a file in it")).expect("directories");
        std::fs::write(&path, text).expect("a file for the test");
        // Whatever the mask of whoever runs the tests: the daemon takes no file that others may write to.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(&path, mode).expect("it is ours");
        path
    }

    /// A control group `batch` for a background job, and the one beside it, as the kernel shows them.
    pub fn put_batch(&self) {
        for (path, text) in [
            ("cg/cgroup.controllers", "cpuset"),
            ("cg/cgroup.subtree_control", "cpuset"),
            ("cg/batch/cpuset.cpus", ""),
            ("cg/batch/cgroup.procs", ""),
            ("cg/batch/cgroup.freeze", "0"),
            ("cg/batch.keeper/cgroup.subtree_control", ""),
        ] {
            self.put(path, text);
        }
    }

    pub fn get(&self, path: &str) -> String {
        std::fs::read_to_string(self.0.join(path)).expect("it is there").trim().to_owned()
    }

    /// Processors 0 to `count` - 1, each a core of its own; with clocks or without.
    pub fn machine(&self, count: u32, clocks: bool) {
        let base = "sys/devices/system/cpu";
        self.put(&format!("{base}/online"), &format!("0-{}", count - 1));
        for id in 0..count {
            let topology = format!("{base}/cpu{id}/topology");
            self.put(&format!("{topology}/physical_package_id"), "0");
            self.put(&format!("{topology}/core_id"), &id.to_string());
            self.put(&format!("{topology}/thread_siblings_list"), &id.to_string());
        }
        if clocks {
            let policy = format!("{base}/cpufreq/policy0");
            self.put(&format!("{policy}/affected_cpus"), &format!("0-{}", count - 1));
            self.put(&format!("{policy}/scaling_available_frequencies"), "1000000 2000000");
            self.put(&format!("{policy}/cpuinfo_max_freq"), "2000000");
            self.put(&format!("{policy}/scaling_min_freq"), "1000000");
            self.put(&format!("{policy}/scaling_max_freq"), "2000000");
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What is left in the temporary directory harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a fake service is.
struct State {
    description: Description,
    segment: Arc<Segment>,
    packets: Vec<u64>,
    /// Of each connection: whether it is open, and its answers.
    links: Vec<(bool, Vec<Answer>)>,
    next_id: u64,
    /// Answers never come.
    silent: bool,
    /// So many moves are refused, for this reason.
    refusing: Option<(usize, RefusedKind)>,
    ended: Option<Ended>,
    /// It does not heed requests to end.
    stubborn: bool,
    signals: Vec<i32>,
}

/// A service that does what it is asked.
#[derive(Clone)]
pub struct Fake(Arc<Mutex<State>>);

struct FakeLink {
    service: Fake,
    number: usize,
    description: Description,
    reading: Reading,
}

impl Fake {
    /// A service of so many threads, which all run and whose first has all flow groups; and a connection to it.
    pub fn start(name: &str, threads: u16, groups: u16) -> (Self, Box<dyn Link>) {
        let fake = Self::new(name, threads, groups);
        let link = fake.link();
        (fake, link)
    }

    pub fn new(name: &str, threads: u16, groups: u16) -> Self {
        let description = Description {
            name: name.to_owned(),
            pid: 1_000 + COUNT.fetch_add(1, Ordering::Relaxed),
            started_unix_ms: 1,
            config_path: String::new(),
            config_text: String::new(),
            threads,
            cpus: (0..usize::from(threads)).map(Some).collect(),
            batch_max: 64,
            groups,
            scheduler: "run-to-completion".to_owned(),
            domain: "inline".to_owned(),
            driver: "none".to_owned(),
            steers: false,
            movable: true,
            version: PROTOCOL_VERSION,
        };
        let layout = Layout { threads, groups, batch_max: 64 };
        let segment = Segment::create("fake", &layout).expect("memory");
        let fake = Self(Arc::new(Mutex::new(State {
            packets: vec![0; usize::from(groups)],
            description,
            segment,
            links: Vec::new(),
            next_id: 1,
            silent: false,
            refusing: None,
            ended: None,
            stubborn: false,
            signals: Vec::new(),
        })));
        for thread in 0..usize::from(threads) {
            fake.set_state(thread, ThreadState::Running);
            fake.set_cpu(thread, thread);
        }
        (0..usize::from(groups)).for_each(|group| fake.set_home(group, 0));
        fake
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn link(&self) -> Box<dyn Link> {
        let mut state = self.state();
        state.links.push((true, Vec::new()));
        let (number, description) = (state.links.len() - 1, state.description.clone());
        let reading = state.segment.reading();
        Box::new(FakeLink { service: self.clone(), number, description, reading })
    }

    pub fn process(&self) -> Box<dyn Process> {
        let identity = Identity { pid: self.pid(), start_ticks: 1, boot: String::new() };
        Box::new(FakeProcess { service: self.clone(), identity })
    }

    pub fn describe(&self, change: impl FnOnce(&mut Description)) {
        change(&mut self.state().description);
    }

    pub fn busy(&self, thread: u16, packets: u64, busy_ns: u64) {
        let cycle =
            Cycle { queue_packets: packets, taken_packets: packets, busy_ns, ..Cycle::default() };
        self.state().board(thread).busy(&cycle);
    }

    /// The application was entered then; 0: it has returned.
    pub fn enter(&self, thread: u16, at_ns: u64) {
        self.state().board(thread).enter_application(at_ns);
    }

    /// A period of load on each running thread: `queue` packets wait at each of `cycles` cycles of `cycle_ns`.
    pub fn load(&self, queue: u64, cycles: u64, cycle_ns: u64) {
        let cycle = Cycle {
            queue_packets: queue,
            taken_packets: queue.min(64),
            busy_ns: cycle_ns,
            ..Cycle::default()
        };
        let running = self.running();
        let mut state = self.state();
        for thread in running {
            (0..cycles).for_each(|_| state.board(thread).busy(&cycle));
        }
        let share = cycles * queue.min(64) / state.packets.len() as u64;
        state.packets.iter_mut().for_each(|packets| *packets += share.max(1));
        state.segment.tell_groups(0, &state.packets);
    }

    pub fn set_silent(&self, silent: bool) {
        self.state().silent = silent;
    }

    pub fn refuse(&self, count: usize, kind: RefusedKind) {
        self.state().refusing = Some((count, kind));
    }

    pub fn set_stubborn(&self) {
        self.state().stubborn = true;
    }

    pub fn set_state(&self, thread: usize, to: ThreadState) {
        self.state().board(thread as u16).set_state(to);
    }

    pub fn set_cpu(&self, thread: usize, cpu: usize) {
        self.state().board(thread as u16).set_processor(Some(cpu));
    }

    pub fn set_home(&self, group: usize, thread: u16) {
        self.state().segment.set_home(group as u16, thread);
    }

    pub fn homes(&self) -> Vec<u16> {
        self.state().homes()
    }

    pub fn running(&self) -> Vec<u16> {
        let threads = self.state().segment.reading().threads();
        let runs = (0u16..).zip(threads).filter(|(_, shown)| shown.state == ThreadState::Running);
        runs.map(|(thread, _)| thread).collect()
    }

    pub fn cpus(&self) -> Vec<Option<usize>> {
        self.state().segment.reading().threads().iter().map(|shown| shown.processor).collect()
    }

    pub fn signals(&self) -> Vec<i32> {
        self.state().signals.clone()
    }

    pub fn pid(&self) -> u32 {
        self.state().description.pid
    }

    /// It ends, or dies.
    pub fn end(&self, how: Ended) {
        let mut state = self.state();
        state.ended = Some(how);
        state.links.iter_mut().for_each(|link| link.0 = false);
    }

    pub fn has_ended(&self) -> bool {
        self.state().ended.is_some()
    }

    /// All connections to it break; it lives on.
    pub fn break_links(&self) {
        self.state().links.iter_mut().for_each(|link| link.0 = false);
    }
}

impl State {
    fn board(&self, thread: u16) -> Board<'_> {
        self.segment.board(thread).expect("there is such a thread")
    }

    fn homes(&self) -> Vec<u16> {
        self.segment.reading().homes().into_iter().map(|home| home.expect("it is told")).collect()
    }

    fn carry_out(&mut self, request: &Request) -> Result<Done, Refused> {
        let refused = |kind: RefusedKind| Err(Refused::new(kind, <&str>::from(kind)));
        if let Some((count, kind)) = &mut self.refusing
            && *count > 0
            && matches!(request, Request::Move { .. })
        {
            *count -= 1;
            return refused(*kind);
        }
        let threads = self.description.threads;
        let is_there = |thread: u16| thread < threads;
        match request {
            Request::Grant { thread }
            | Request::Park { thread }
            | Request::Place { thread, .. }
                if !is_there(*thread) =>
            {
                refused(RefusedKind::NoSuchThread)
            }
            Request::Grant { thread } => {
                self.board(*thread).set_state(ThreadState::Running);
                Ok(Done::Granted)
            }
            Request::Park { thread } if self.homes().contains(thread) => {
                refused(RefusedKind::HasGroups)
            }
            Request::Park { thread } => {
                self.board(*thread).set_state(ThreadState::Parked);
                Ok(Done::Parked)
            }
            Request::Place { thread, cpu } => {
                self.board(*thread).set_processor(Some(*cpu));
                Ok(Done::Placed)
            }
            Request::Move { .. } if !self.description.movable => refused(RefusedKind::NotMovable),
            Request::Move { to, .. } if !is_there(*to) => refused(RefusedKind::NoSuchThread),
            Request::Move { from, to, groups } => {
                let homes = self.homes();
                let home = |group: &u16| homes.get(usize::from(*group));
                if groups.iter().any(|group| home(group) != Some(from)) {
                    return refused(RefusedKind::NotHome);
                }
                groups.iter().for_each(|&group| self.segment.set_home(group, *to));
                let phase_ns = [1_000, 2_000, 3_000, 4_000];
                let groups = groups.len() as u32;
                let moved = MoveSummary { groups, connections: 5, packets_deferred: 1, phase_ns };
                Ok(Done::Moved(moved))
            }
            Request::End => {
                if !self.stubborn {
                    (0..threads).for_each(|one| self.board(one).set_state(ThreadState::Leaving));
                    self.ended = Some(Ended::Status(0));
                }
                Ok(Done::Ending)
            }
            Request::Describe => Ok(Done::Described(Box::new(self.description.clone()))),
        }
    }
}

impl Link for FakeLink {
    fn description(&self) -> &Description {
        &self.description
    }

    fn reading(&self) -> &Reading {
        &self.reading
    }

    fn ask(&mut self, request: Request) -> Result<u64, Gone> {
        let mut state = self.service.state();
        if !state.links[self.number].0 {
            return Err(Gone("the connection is closed".to_owned()));
        }
        let id = state.next_id;
        state.next_id += 1;
        let result = state.carry_out(&request);
        if !state.silent {
            state.links[self.number].1.push(Answer { id, result });
        }
        Ok(id)
    }

    fn answers(&mut self) -> Result<Vec<Answer>, Gone> {
        let mut state = self.service.state();
        let (open, answers) = &mut state.links[self.number];
        if *open || !answers.is_empty() {
            return Ok(std::mem::take(answers));
        }
        Err(Gone("the connection is closed".to_owned()))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The process of a fake service.
struct FakeProcess {
    service: Fake,
    identity: Identity,
}

impl Process for FakeProcess {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn ended(&mut self) -> Option<Ended> {
        self.service.state().ended
    }

    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        let mut state = self.service.state();
        state.signals.push(signal.as_raw());
        if signal == Signal::KILL || !state.stubborn {
            state.ended = Some(Ended::Signal(signal.as_raw()));
        }
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// What of the machine is outside of the daemon.
#[derive(Clone, Default)]
pub struct FakeWorld(Arc<Mutex<Machine>>);

#[derive(Default)]
struct Machine {
    /// Those whose sockets are in the run directory.
    shown: BTreeMap<String, Fake>,
    /// Those that exist, shown or not.
    all: Vec<Fake>,
    connecting: Vec<String>,
    launched: Vec<Launch>,
    /// What the next starts make, and whether that shows itself at once.
    next: Vec<(Fake, bool)>,
    /// A process that runs with this command line.
    found: Option<(Launch, Fake)>,
}

impl FakeWorld {
    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A service that runs already.
    pub fn show(&self, name: &str, fake: &Fake) {
        let mut machine = self.machine();
        machine.all.push(fake.clone());
        machine.shown.insert(name.to_owned(), fake.clone());
    }

    /// What the next start makes, and whether that shows itself at once.
    pub fn prepare(&self, fake: &Fake, shows: bool) {
        self.machine().next.push((fake.clone(), shows));
    }

    /// A process that was started so, of which no record tells.
    pub fn hide_away(&self, launch: Launch, fake: &Fake) {
        self.machine().all.push(fake.clone());
        self.machine().found = Some((launch, fake.clone()));
    }

    pub fn launched(&self) -> Vec<Launch> {
        self.machine().launched.clone()
    }
}

impl World for FakeWorld {
    fn list(&mut self) -> io::Result<Vec<(String, PathBuf)>> {
        let mut machine = self.machine();
        machine.shown.retain(|_, fake| !fake.has_ended());
        Ok(machine.shown.keys().map(|name| (name.clone(), PathBuf::from(name))).collect())
    }

    fn connect(&mut self, name: &str, _path: &Path) {
        self.machine().connecting.push(name.to_owned());
    }

    fn connected(&mut self) -> Vec<(String, Result<Reached, String>)> {
        let mut machine = self.machine();
        let connecting = std::mem::take(&mut machine.connecting);
        let link = |name: String| {
            let fake = machine.shown.get(&name).filter(|fake| !fake.has_ended());
            let reach = |fake: &Fake| Reached { link: fake.link(), process: Ok(fake.process()) };
            (name, fake.map(reach).ok_or_else(|| "nobody is there".to_owned()))
        };
        connecting.into_iter().map(link).collect()
    }

    fn spawn(&mut self, launch: &Launch) -> io::Result<Box<dyn Process>> {
        let mut machine = self.machine();
        machine.launched.push(launch.clone());
        if machine.next.is_empty() {
            return Err(io::Error::other("nothing was prepared"));
        }
        let (service, shows) = machine.next.remove(0);
        machine.all.push(service.clone());
        if shows {
            let name = service.state().description.name.clone();
            machine.shown.insert(name, service.clone());
        }
        Ok(service.process())
    }

    fn find(&mut self, launch: &Launch) -> Option<Box<dyn Process>> {
        let found = self.machine().found.take_if(|found| found.0 == *launch);
        found.map(|(_, fake)| fake.process())
    }

    fn again(&mut self, identity: &Identity) -> io::Result<Box<dyn Process>> {
        let machine = self.machine();
        let is = |fake: &&Fake| fake.pid() == identity.pid && !fake.has_ended();
        let service = machine.all.iter().find(is).cloned();
        let service = service.ok_or_else(|| io::Error::other("it has ended"))?;
        Ok(Box::new(FakeProcess { service, identity: identity.clone() }))
    }
}
