//! Services, processes and a machine for tests: they live on whatever becomes of the daemon under test.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use control::metrics::{Board, Counters, Cycle};
use rustix::process::Signal;

use crate::link::{
    Described, Gone, Link, Migrations, Moved, Order, Refusal, RefusedKind, Reply, ThreadReading,
    ThreadState,
};
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
        path
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
    described: Described,
    boards: Vec<Board>,
    entered_ns: Vec<u64>,
    states: Vec<ThreadState>,
    cpus: Vec<Option<u32>>,
    homes: Vec<u16>,
    packets: Vec<u64>,
    /// Of each connection: whether it is open, and its answers.
    links: Vec<(bool, Vec<Reply>)>,
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
    described: Described,
}

impl Fake {
    /// A service of so many threads, which all run and whose first has all flow groups; and a connection to it.
    pub fn start(name: &str, threads: u16, groups: u16) -> (Self, Box<dyn Link>) {
        let fake = Self::new(name, threads, groups);
        let link = fake.link();
        (fake, link)
    }

    pub fn new(name: &str, threads: u16, groups: u16) -> Self {
        let count = usize::from(threads);
        let described = Described {
            name: name.to_owned(),
            pid: 1_000 + COUNT.fetch_add(1, Ordering::Relaxed),
            threads,
            cpus: (0..u32::from(threads)).map(Some).collect(),
            batch_max: 64,
            groups,
            movable: true,
            version: "0".to_owned(),
            ..Described::default()
        };
        Self(Arc::new(Mutex::new(State {
            boards: (0..count).map(|_| Board::default()).collect(),
            entered_ns: vec![0; count],
            states: vec![ThreadState::Running; count],
            cpus: described.cpus.clone(),
            homes: vec![0; usize::from(groups)],
            packets: vec![0; usize::from(groups)],
            described,
            links: Vec::new(),
            next_id: 1,
            silent: false,
            refusing: None,
            ended: None,
            stubborn: false,
            signals: Vec::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn link(&self) -> Box<dyn Link> {
        let mut state = self.state();
        state.links.push((true, Vec::new()));
        let (number, described) = (state.links.len() - 1, state.described.clone());
        Box::new(FakeLink { service: self.clone(), number, described })
    }

    pub fn process(&self) -> Box<dyn Process> {
        let identity = Identity { pid: self.pid(), start_ticks: 1, boot: String::new() };
        Box::new(FakeProcess { service: self.clone(), identity })
    }

    pub fn describe(&self, change: impl FnOnce(&mut Described)) {
        change(&mut self.state().described);
    }

    pub fn busy(&self, thread: usize, packets: u64, busy_ns: u64) {
        let cycle =
            Cycle { queue_packets: packets, taken_packets: packets, busy_ns, oldest_waiting_ns: 0 };
        self.state().boards[thread].busy(&cycle);
    }

    pub fn idle(&self, thread: usize, idle_ns: u64) {
        self.state().boards[thread].idle(idle_ns);
    }

    pub fn enter(&self, thread: usize, at_ns: u64) {
        self.state().entered_ns[thread] = at_ns;
    }

    /// A period of load on each running thread: `queue` packets wait at each of `cycles` cycles of `cycle_ns`.
    pub fn load(&self, queue: u64, cycles: u64, cycle_ns: u64) {
        let mut state = self.state();
        let State { boards, states, packets, homes, .. } = &mut *state;
        let running =
            states.iter().zip(boards).filter(|(state, _)| **state == ThreadState::Running);
        for (_, board) in running {
            for _ in 0..cycles {
                board.busy(&Cycle {
                    queue_packets: queue,
                    taken_packets: queue.min(64),
                    busy_ns: cycle_ns,
                    oldest_waiting_ns: 0,
                });
            }
        }
        let share = cycles * queue.min(64) / homes.len() as u64;
        packets.iter_mut().for_each(|packets| *packets += share.max(1));
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
        self.state().states[thread] = to;
    }

    pub fn set_cpu(&self, thread: usize, cpu: u32) {
        self.state().cpus[thread] = Some(cpu);
    }

    pub fn set_home(&self, group: usize, thread: u16) {
        self.state().homes[group] = thread;
    }

    pub fn homes(&self) -> Vec<u16> {
        self.state().homes.clone()
    }

    pub fn running(&self) -> Vec<u16> {
        let state = self.state();
        let running =
            (0u16..).zip(&state.states).filter(|(_, state)| **state == ThreadState::Running);
        running.map(|(thread, _)| thread).collect()
    }

    pub fn cpus(&self) -> Vec<Option<u32>> {
        self.state().cpus.clone()
    }

    pub fn signals(&self) -> Vec<i32> {
        self.state().signals.clone()
    }

    pub fn pid(&self) -> u32 {
        self.state().described.pid
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
    fn carry_out(&mut self, order: &Order) -> Result<Option<Moved>, Refusal> {
        let refused = |kind: RefusedKind| Err(Refusal { kind, reason: kind.as_str().to_owned() });
        if let Some((count, kind)) = &mut self.refusing
            && *count > 0
            && matches!(order, Order::Move { .. })
        {
            *count -= 1;
            return refused(*kind);
        }
        let threads = self.described.threads;
        let is_there = |thread: u16| thread < threads;
        match order {
            Order::Grant { thread } | Order::Park { thread } | Order::Place { thread, .. }
                if !is_there(*thread) =>
            {
                refused(RefusedKind::NoSuchThread)
            }
            Order::Grant { thread } => {
                self.states[usize::from(*thread)] = ThreadState::Running;
                Ok(None)
            }
            Order::Park { thread } if self.homes.contains(thread) => {
                refused(RefusedKind::HasGroups)
            }
            Order::Park { thread } => {
                self.states[usize::from(*thread)] = ThreadState::Parked;
                Ok(None)
            }
            Order::Place { thread, cpu } => {
                self.cpus[usize::from(*thread)] = Some(*cpu);
                Ok(None)
            }
            Order::Move { .. } if !self.described.movable => refused(RefusedKind::NotMovable),
            Order::Move { to, .. } if !is_there(*to) => refused(RefusedKind::NoSuchThread),
            Order::Move { from, to, groups } => {
                let home = |group: &u16| self.homes.get(usize::from(*group));
                if groups.iter().any(|group| home(group) != Some(from)) {
                    return refused(RefusedKind::NotHome);
                }
                groups.iter().for_each(|&group| self.homes[usize::from(group)] = *to);
                let phase_ns = [1_000, 2_000, 3_000, 4_000];
                let groups = groups.len() as u64;
                Ok(Some(Moved { groups, connections: 5, packets_deferred: 1, phase_ns }))
            }
            Order::End => {
                if !self.stubborn {
                    self.states.fill(ThreadState::Leaving);
                    self.ended = Some(Ended::Status(0));
                }
                Ok(None)
            }
        }
    }
}

impl Link for FakeLink {
    fn described(&self) -> &Described {
        &self.described
    }

    fn ask(&mut self, order: &Order) -> Result<u64, Gone> {
        let mut state = self.service.state();
        if !state.links[self.number].0 {
            return Err(Gone("the connection is closed".to_owned()));
        }
        let id = state.next_id;
        state.next_id += 1;
        let result = state.carry_out(order);
        if !state.silent {
            state.links[self.number].1.push(Reply { id, result });
        }
        Ok(id)
    }

    fn replies(&mut self) -> Result<Vec<Reply>, Gone> {
        let mut state = self.service.state();
        let (open, replies) = &mut state.links[self.number];
        if *open || !replies.is_empty() {
            return Ok(std::mem::take(replies));
        }
        Err(Gone("the connection is closed".to_owned()))
    }

    fn counters(&self, thread: u16) -> (Counters, u64) {
        let state = self.service.state();
        let thread = usize::from(thread);
        (state.boards[thread].snapshot(), state.entered_ns[thread])
    }

    fn reading(&self, thread: u16) -> ThreadReading {
        let state = self.service.state();
        let thread = usize::from(thread);
        ThreadReading {
            counters: state.boards[thread].snapshot(),
            state: state.states[thread],
            cpu: state.cpus[thread],
            entered_ns: state.entered_ns[thread],
            batches: vec![1, 2, 3],
            delays: vec![4, 5],
            ..ThreadReading::default()
        }
    }

    fn state(&self, thread: u16) -> ThreadState {
        self.service.state().states[usize::from(thread)]
    }

    fn group_packets(&self, into: &mut Vec<u64>) {
        into.clone_from(&self.service.state().packets);
    }

    fn home(&self, group: u16) -> u16 {
        self.service.state().homes[usize::from(group)]
    }

    fn migrations(&self) -> Migrations {
        Migrations::default()
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
            let name = service.state().described.name.clone();
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
