//! A service of two elastic threads on a real dataplane in this process, steered as `tailplane run` steers its own, and a
//! client that counts on each connection and expects to hear the same numbers.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use endpoint::{Answer, Ask, Description, Outcome, PROTOCOL_VERSION, Request, Server, Steering};
use mem::Region;
use nic::shm::{ShmConfig, ShmNic};
use runtime::{Controls, RuntimeConfig, Scheduler, run, run_controlled};
use runtime::{ElasticConfig, FLOW_GROUPS, IdlePolicy, ModerationPolicy, StackConfig};
use service::control::Steered;
use statseg::{Layout, Segment, State, ThreadCounters};
use tailplane::{
    Address, Calls, Cookie, Endpoint, Event, Events, Flow, Handle, Instant, Ipv4Addr, MacAddr,
    Opened, Output, Protocol, Service, SharedSlots,
};

use crate::support::until;

/// Elastic threads of the service; the client has as many, one for each queue.
pub const THREADS: usize = 2;
/// Connections of each of the client's threads.
const CONNECTIONS: usize = 8;
/// All of them.
pub const LINES: usize = THREADS * CONNECTIONS;
/// Words under way on a connection while the client presses.
const WINDOW: u64 = 4;
/// From word to word on a connection while it does not.
const PAUSE: Duration = Duration::from_millis(20);
/// What the service takes for a word while the client presses. It sleeps: its thread is away, the processor is others'.
const WORK: Duration = Duration::from_micros(400);
const SERVER: Endpoint = Endpoint::v4(Ipv4Addr::new(10, 9, 0, 1), 80);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

/// What the two sides share with the test.
#[derive(Debug, Default)]
struct Talk {
    /// More than one thread can serve, or next to nothing.
    pressing: AtomicBool,
    /// Words that came back, in order, on each connection.
    heard: [AtomicU64; LINES],
    /// Words out of order, and connections that ended.
    wrong: AtomicU64,
    ended: AtomicU64,
}

/// Sends every byte back, after some work.
struct Echo(Arc<Talk>);

impl Protocol for Echo {
    type Connection = ();
    fn open(&mut self, _: Instant, _: Opened) -> Option<()> {
        Some(())
    }
    fn receive(
        &mut self,
        _: Instant,
        _: &mut (),
        data: &[u8],
        output: &mut Output<'_, '_>,
    ) -> Flow {
        if self.0.pressing.load(Ordering::Relaxed) {
            std::thread::sleep(WORK);
        }
        output.put(data);
        Flow::Continue
    }
}

/// One of the client's threads.
struct Counting {
    talk: Arc<Talk>,
    /// The number of its first connection.
    first: usize,
    asked: usize,
    lines: Vec<Line>,
    next: Instant,
}

struct Line {
    handle: Handle,
    said: u64,
    heard: u64,
    part: Vec<u8>,
}

impl Counting {
    fn hear(&mut self, handle: Handle, data: &[u8]) {
        let at = self.lines.iter().position(|line| line.handle == handle).expect("told of");
        let line = &mut self.lines[at];
        line.part.extend_from_slice(data);
        while let Some((word, rest)) = line.part.split_first_chunk::<8>() {
            let right = u64::from_be_bytes(*word) == line.heard;
            self.talk.wrong.fetch_add(u64::from(!right), Ordering::Relaxed);
            line.heard += 1;
            line.part = rest.to_vec();
        }
        self.talk.heard[self.first + at].store(line.heard, Ordering::Relaxed);
    }

    fn speak(&mut self, now: Instant, calls: &mut Calls<'_>) {
        let pressing = self.talk.pressing.load(Ordering::Relaxed);
        if !pressing && now < self.next {
            return;
        }
        self.next = now + PAUSE;
        let window = if pressing { WINDOW } else { 1 };
        for line in &mut self.lines {
            while line.said < line.heard + window
                && calls.sendv(line.handle, &[&line.said.to_be_bytes()]).is_ok()
            {
                line.said += 1;
            }
        }
    }
}

impl Service for Counting {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            match event {
                Event::Connected { outcome, .. } => {
                    let handle = outcome.expect("it is let in").0;
                    self.lines.push(Line { handle, said: 0, heard: 0, part: Vec::new() });
                }
                Event::Recv { handle, data, .. } => {
                    self.hear(handle, data);
                    calls.recv_done(handle, data.len()).expect("room");
                }
                Event::Dead { .. } | Event::Failed { .. } => {
                    self.talk.ended.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            }
        }
        while self.asked < CONNECTIONS && calls.connect(Cookie(0), SERVER).is_ok() {
            self.asked += 1;
        }
        self.speak(now, calls);
    }
    fn wake_at(&self) -> Option<Instant> {
        Some(if self.asked < CONNECTIONS { Instant::ZERO } else { self.next })
    }
}

/// What the daemon can ask for and what may be under way when it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Grant,
    Park,
    Move,
}

impl Kind {
    fn of(request: &Request) -> Option<Self> {
        match request {
            Request::Grant { .. } => Some(Self::Grant),
            Request::Park { .. } => Some(Self::Park),
            Request::Move { .. } => Some(Self::Move),
            _ => None,
        }
    }
}

/// Requests that the service has received.
#[derive(Debug, Default)]
pub struct Requests {
    received: u64,
    unanswered: BTreeMap<u64, Kind>,
}

/// The same, shared.
#[derive(Debug, Default)]
struct Watch {
    requests: Mutex<Requests>,
    more: Condvar,
}

impl Watch {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Carries requests out as `tailplane run` does, and notes which ones wait for their answer.
struct Watched {
    steered: Steered,
    watch: Arc<Watch>,
}

impl Watched {
    fn note(&self, id: u64, kind: Kind, outcome: Option<Outcome>) -> Option<Outcome> {
        let mut requests = self.watch.requests();
        requests.received += 1;
        if outcome.is_none() {
            requests.unanswered.insert(id, kind);
        }
        self.watch.more.notify_all();
        outcome
    }
}

impl Steering for Watched {
    fn describe(&self) -> Description {
        self.steered.describe()
    }
    fn segment(&self) -> std::io::Result<OwnedFd> {
        self.steered.segment()
    }
    fn begin(&mut self, ask: Ask) -> Option<Outcome> {
        let (id, kind) = (ask.id, Kind::of(&ask.request));
        let outcome = self.steered.begin(ask);
        match kind {
            Some(kind) => self.note(id, kind, outcome),
            None => outcome,
        }
    }
    fn reports(&mut self) -> Vec<Answer> {
        let reports = self.steered.reports();
        let mut requests = self.watch.requests();
        for answer in &reports {
            requests.unanswered.remove(&answer.id);
        }
        reports
    }
}

/// How the service stands, by what its segment shows and by what steers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// By thread: whether it is parked.
    pub parked: [bool; THREADS],
    /// By thread: the flow groups at home there.
    pub groups: [usize; THREADS],
}

/// The service and its client; both end when dropped.
pub struct Dataplane {
    controls: Arc<Controls>,
    segment: Arc<Segment>,
    talk: Arc<Talk>,
    watch: Arc<Watch>,
    regions: [Arc<Region>; 2],
    /// The client's, the service's.
    stops: [Arc<AtomicBool>; 2],
    /// Likewise.
    threads: [Option<JoinHandle<()>>; 2],
    server: Option<Server>,
}

impl Dataplane {
    /// Under way when this answers: all connections are open and have heard something. One thread has all flow groups,
    /// the other one is parked.
    pub fn start(run_dir: &Path, name: &str) -> Self {
        let layout = Layout { threads: THREADS as u16, groups: FLOW_GROUPS as u16, batch_max: 64 };
        let mut this = Self {
            controls: Arc::new(Controls::with_granted(THREADS, 1)),
            segment: Segment::create(name, &layout).expect("memory"),
            talk: Arc::default(),
            watch: Arc::default(),
            regions: std::array::from_fn(|_| Region::heap(8_192)),
            stops: Default::default(),
            threads: Default::default(),
            server: None,
        };
        let pair = || {
            let wire = ShmConfig::default();
            let (near, offer) = ShmNic::create(&wire).expect("memory");
            (near, ShmNic::join(offer, &wire.far()).expect("the other end"))
        };
        let (near, far) = (0..THREADS).map(|_| pair()).unzip();
        this.spawn_service(near);
        this.spawn_client(far);
        until("all connections are open, and both threads show themselves", || {
            this.heard().iter().all(|words| *words > 0)
                && (0..THREADS as u16).all(|one| this.thread(one).state != State::Starting)
        });
        let steered = Steered {
            description: describe(name),
            segment: Arc::clone(&this.segment),
            controls: Arc::clone(&this.controls),
            stop: Arc::clone(&this.stops[1]),
        };
        let watched = Watched { steered, watch: Arc::clone(&this.watch) };
        this.server = Some(Server::bind(run_dir, name, watched).expect("a control socket"));
        this
    }

    fn spawn_service(&mut self, near: Vec<ShmNic>) {
        let [_, stop] = self.stops.clone();
        let (region, controls) = (Arc::clone(&self.regions[1]), Arc::clone(&self.controls));
        let talk = Arc::clone(&self.talk);
        let config = RuntimeConfig {
            segment: Some(Arc::clone(&self.segment)),
            ..config(SERVER.addr, MacAddr([2, 0, 0, 0, 0, 1]))
        };
        self.threads[1] = Some(std::thread::spawn(move || {
            let slots = Arc::new(SharedSlots::new(THREADS, 1_024));
            let echo = || Echo(Arc::clone(&talk));
            let make = |core| tailplane::Server::shared(core, echo(), Arc::clone(&slots));
            run_controlled(&config, &region, near, make, || {}, Some(&controls), &stop)
                .expect("it runs");
        }));
    }

    fn spawn_client(&mut self, far: Vec<ShmNic>) {
        let [stop, _] = self.stops.clone();
        let (region, talk) = (Arc::clone(&self.regions[0]), Arc::clone(&self.talk));
        self.threads[0] = Some(std::thread::spawn(move || {
            let make = |core: usize| Counting {
                talk: Arc::clone(&talk),
                first: core * CONNECTIONS,
                asked: 0,
                lines: Vec::new(),
                next: Instant::ZERO,
            };
            let config = config(CLIENT, MacAddr([2, 0, 0, 0, 0, 2]));
            run(&config, &region, far, make, &stop).expect("it runs");
        }));
    }

    fn thread(&self, thread: u16) -> ThreadCounters {
        self.segment.reading().thread(thread).expect("there is one")
    }

    /// More load than one thread can serve, or next to none.
    pub fn press(&self, pressing: bool) {
        self.talk.pressing.store(pressing, Ordering::Relaxed);
    }

    /// Words that were heard on each connection; all of them were right, and none has ended.
    pub fn heard(&self) -> [u64; LINES] {
        let [wrong, ended] =
            [&self.talk.wrong, &self.talk.ended].map(|n| n.load(Ordering::Relaxed));
        assert_eq!((wrong, ended), (0, 0), "words out of order, connections that ended");
        std::array::from_fn(|at| self.talk.heard[at].load(Ordering::Relaxed))
    }

    /// Waits until something more was heard on each connection.
    pub fn go_on(&self) {
        let before = self.heard();
        until("all connections go on", || {
            self.heard().iter().zip(before).all(|(words, before)| *words > before)
        });
    }

    /// How it stands, where segment and controls agree.
    pub fn standing(&self) -> Option<Standing> {
        let homes = self.segment.reading().homes();
        let states: [State; THREADS] = std::array::from_fn(|one| self.thread(one as u16).state);
        let at_home = |one: usize| homes.iter().filter(|home| **home == Some(one as u16)).count();
        let shown = Standing {
            parked: states.map(|state| state == State::Parked),
            groups: std::array::from_fn(at_home),
        };
        let known = Standing {
            parked: std::array::from_fn(|one| self.controls.is_parked(one)),
            groups: std::array::from_fn(|one| self.controls.groups_of(one).len() as usize),
        };
        (shown == known && self.unanswered().is_empty()).then_some(shown)
    }

    /// By thread: the connections at home there.
    pub fn connections(&self) -> [u64; THREADS] {
        std::array::from_fn(|one| self.thread(one as u16).totals.connections)
    }

    /// Requests to grant, park and move that were received, ever.
    pub fn received(&self) -> u64 {
        self.watch.requests().received
    }

    /// Waits until more than so many were received, for a while.
    pub fn await_request(&self, before: u64, patience: Duration) {
        let none = |requests: &mut Requests| requests.received <= before;
        let waited = self.watch.more.wait_timeout_while(self.watch.requests(), patience, none);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Those that have no answer yet.
    pub fn unanswered(&self) -> Vec<Kind> {
        self.watch.requests().unanswered.values().copied().collect()
    }

    /// Ends the client and then the service, as they should.
    pub fn end(mut self) {
        self.heard();
        self.stop();
        for region in &self.regions {
            assert_eq!(region.depot_len(), region.chunks() as usize, "all memory is back");
        }
    }

    fn stop(&mut self) {
        for (stop, thread) in self.stops.iter().zip(&mut self.threads) {
            stop.store(true, Ordering::Relaxed);
            let ended = thread.take().map(JoinHandle::join);
            assert!(!matches!(ended, Some(Err(_))) || std::thread::panicking(), "it panicked");
        }
    }
}

impl Drop for Dataplane {
    fn drop(&mut self) {
        self.stop();
    }
}

fn config(address: impl Into<Address>, mac: MacAddr) -> RuntimeConfig {
    let mut stack = StackConfig::new(address, 24, mac);
    stack.tcp_listen = vec![SERVER.port];
    RuntimeConfig {
        stack,
        elastic: ElasticConfig::default(),
        scheduler: Scheduler::RunToCompletion,
        // Two processors at the most, and other tests beside this one.
        idle: IdlePolicy { spin: Some(Duration::from_micros(20)), ..IdlePolicy::default() },
        moderation: ModerationPolicy::default(),
        cpus: Vec::new(),
        realtime: None,
        pool_keep: 512,
        segment: None,
        register: None,
    }
}

fn describe(name: &str) -> Description {
    Description {
        name: name.to_owned(),
        pid: std::process::id(),
        started_unix_ms: 1,
        config_path: String::new(),
        config_text: String::new(),
        threads: THREADS as u16,
        cpus: vec![None; THREADS],
        batch_max: 64,
        groups: FLOW_GROUPS as u16,
        scheduler: "run-to-completion".to_owned(),
        domain: "inline".to_owned(),
        driver: "shm".to_owned(),
        steers: false,
        movable: true,
        version: PROTOCOL_VERSION,
    }
}
