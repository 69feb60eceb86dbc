//! A dataplane of two elastic threads under a policy, its application in the process domain, and three peers, in one
//! thread and on a virtual clock.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use clock::{Duration, Instant};
use dataplane::{
    Classes, ConservingConfig, ConservingThread, Elastic, ElasticConfig, ElasticThread, Floor,
    GroupSet, MoveCommand, MoveControl, Parts, ReadySetConfig, ServicePolicy, forwarding_mesh,
    move_mailbox,
};
use domain::{Calls, Events, Handle, Service};
use mem::{HugePages, Mbuf, Pool, Region};
use nic::Nic;
use nic::loopback::{self, LoopbackConfig, LoopbackNic};
use process::{Far, Geometry, Hello, Host, Mirror, Near, Placement, Waiting};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use stack::{NetworkPolicy, Shared, StackConfig};
use wire::{Endpoint, Ipv4Addr, MacAddr};

use crate::application::{Application, Call};
use crate::peer::{Peer, secrets};

pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const PEERS: [Ipv4Addr; 3] =
    [Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 1, 0, 2), Ipv4Addr::new(10, 2, 0, 1)];
/// Ports that peers listen on, and of their datagrams.
pub const PEER_PORTS: [u16; 3] = [53, 80, 81];
/// TCP ports that the dataplane listens on.
pub const LISTEN: [u16; 2] = [7, 8];
/// UDP ports of the dataplane.
pub const BOUND: [u16; 2] = [7, 9];
pub const SEGMENT: usize = 1_448;
pub const CORES: usize = 2;
/// Time from one round to the next.
const ROUND: Duration = Duration::from_micros(20);
const PACKET_CHUNKS: usize = 1_024;
const PEER_CHUNKS: u32 = 1_024;
const KEPT: usize = 64;
/// The classes of the ready set, by the ports that are listened on.
const CLASS_OF_PORT: [(u16, u8); 2] = [(7, 0), (8, 1)];

/// A scheduler and where the application runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    pub scheduler: Scheduler,
    pub placement: Placement,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    RunToCompletion,
    WorkConserving,
    ReadySet,
}

pub const MODES: [Mode; 6] = {
    use Placement::{SameCore, Split};
    use Scheduler::{ReadySet, RunToCompletion, WorkConserving};
    [
        Mode { scheduler: RunToCompletion, placement: Split },
        Mode { scheduler: RunToCompletion, placement: SameCore },
        Mode { scheduler: WorkConserving, placement: Split },
        Mode { scheduler: WorkConserving, placement: SameCore },
        Mode { scheduler: ReadySet, placement: Split },
        Mode { scheduler: ReadySet, placement: SameCore },
    ]
};

const ELASTIC: ElasticConfig = {
    let timer = Duration::from_micros(100);
    let fence = Duration::from_millis(1);
    let (parked, calls, mistake) = (64, 64, None);
    let migration = dataplane::MigrationConfig { timer, fence, parked, calls, mistake };
    ElasticConfig { batch: 16, calls: 64, tx_frames: 128, migration }
};

type Locked = Arc<Mutex<(Far, Application)>>;

/// The dataplane's end of one elastic thread's domain, and the application that answers it.
struct Lane {
    near: Near<'static>,
    far: Locked,
}

fn lock(far: &Locked) -> MutexGuard<'_, (Far, Application)> {
    far.lock().expect("no test goes on after a panic")
}

impl Service for Lane {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        self.near.on_batch(now, events, calls);
    }

    fn wake_at(&self) -> Option<Instant> {
        let has_calls = !lock(&self.far).1.script.is_empty();
        if has_calls { Some(Instant::ZERO) } else { self.near.wake_at() }
    }

    fn is_away(&mut self, now: Instant) -> bool {
        self.near.is_away(now)
    }

    fn has_batch(&self) -> bool {
        self.near.has_batch()
    }

    fn collect(&mut self, now: Instant, calls: &mut Calls<'_>) {
        self.near.collect(now, calls);
    }

    fn runs_anywhere(&self) -> bool {
        self.near.runs_anywhere()
    }
}

/// What outlives a case: the domain of an application.
pub struct Domain {
    mode: Mode,
    lanes: Vec<Lane>,
    region: Arc<Region>,
    peers: Arc<Region>,
    peer_settings: Vec<Arc<Shared>>,
    _socket: OwnedFd,
    _bells: Vec<process::NearBell>,
}

impl Domain {
    pub fn new(mode: Mode) -> Self {
        let pair =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (socket, far_socket) = pair.expect("a socket pair");
        let region = Region::map(PACKET_CHUNKS, HugePages::No).expect("mapped");
        let events = ELASTIC.events() as u32;
        let geometry = Geometry { events, calls: ELASTIC.calls as u32, arena_chunks: 64 };
        let waiting = Waiting { placement: mode.placement, looks: 0 };
        let hello = Hello { geometry, waiting, segment_bytes: SEGMENT, sums: true };
        let host = Host::new(hello, CORES, &region).expect("made");
        host.greet(socket.as_fd()).expect("sent");
        let fars = process::Application::join(far_socket).expect("joined");
        let fars = fars.begin(true).expect("sent");
        let nears = host.meet(socket.as_fd(), &Arc::default()).expect("met");
        let mut bells = Vec::new();
        let lanes = nears.into_iter().zip(fars).map(|(near, far)| {
            let far = Arc::new(Mutex::new((far, Application::default())));
            let asked = Arc::clone(&far);
            let mut near = near.with_meanwhile(move || {
                let (far, application) = &mut *lock(&asked);
                far.poll(application);
                Instant::ZERO
            });
            if mode.goes_apart() {
                bells.push(near.go_apart().expect("made with a bell"));
            }
            Lane { near, far }
        });
        let lanes = lanes.collect();
        let peers = Region::heap(PEER_CHUNKS);
        let settings = |(index, address)| Peer::shared(address, mac(index as u8 + 2));
        let peer_settings = PEERS.into_iter().enumerate().map(settings).collect();
        Self { mode, lanes, region, peers, peer_settings, _socket: socket, _bells: bells }
    }
}

/// The driver of a world on one thread: its clock stands during a cycle, and no thread sleeps.
struct Standing(Instant);

impl dataplane::Driver for Standing {
    fn now(&self) -> Instant {
        self.0
    }
    fn signal(&mut self, _wakes: u128, _kicks: u128) {}
}

impl Mode {
    /// The elastic threads go on while the application has a batch.
    pub fn goes_apart(self) -> bool {
        self.scheduler == Scheduler::RunToCompletion
    }
}

enum Threads {
    Complete(Vec<ElasticThread<LoopbackNic>>),
    Sharing(Vec<ConservingThread<LoopbackNic>>),
}

/// A frame of the dataplane's on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    Tcp { peer: Endpoint, local_port: u16, is_reset: bool },
    Udp { peer: Endpoint, local_port: u16 },
    Other,
}

/// See the module's comment: one case.
pub struct World<'d> {
    pub now: Instant,
    pub shared: Arc<Shared>,
    pub peers: Vec<Peer>,
    /// Frames of the dataplane's since somebody took them.
    pub sent: Vec<(Instant, Sent)>,
    domain: &'d mut Domain,
    threads: Threads,
    controls: Vec<MoveControl>,
    wires: Vec<LoopbackNic>,
    pool: Pool,
    /// Chunks of the peers' that were there before.
    chunks: usize,
}

fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, last])
}

impl<'d> World<'d> {
    pub fn new(domain: &'d mut Domain, policy: &NetworkPolicy, now: Instant) -> Self {
        let mut config = StackConfig::new(SERVER, 8, mac(1));
        config.tcp_listen = LISTEN.to_vec();
        config.udp_bind = BOUND.to_vec();
        config.answers_per_second = u32::MAX;
        config.policy = policy.clone();
        let shared = Arc::new(Shared::new(config, &secrets(), CORES as u8));
        let loop_config = LoopbackConfig { ring_frames: 256, ..LoopbackConfig::default() };
        let (nics, wires): (Vec<_>, Vec<_>) =
            (0..CORES).map(|_| loopback::pair(loop_config)).unzip();
        let parts = nics.into_iter().zip(forwarding_mesh(CORES, 64));
        let region = &Arc::clone(&domain.region);
        let part = |(nic, ports): (LoopbackNic, _)| Parts {
            queues: nic.into(),
            pool: Pool::new(region, KEPT),
            ports,
        };
        let parts: Vec<_> = parts.map(part).collect();
        let mirrors = domain.lanes.iter().map(|lane| lane.near.mirror()).collect();
        let mut threads = threads(domain.mode, &shared, parts, region, mirrors, now);
        let controls = threads.obey();
        let mut peers = Vec::new();
        for settings in &domain.peer_settings {
            shared.neighbors.learn(settings.config.address(), settings.config.mac, now);
            let peer = Peer::new(settings, now);
            peer.learn(mac(1), now);
            peers.push(peer);
        }
        let pool = Pool::new(&domain.peers, KEPT);
        let chunks = pool.available();
        for lane in &domain.lanes {
            lock(&lane.far).1 = Application::default();
        }
        let sent = Vec::new();
        Self { now, shared, peers, sent, domain, threads, controls, wires, pool, chunks }
    }

    /// What the application of thread `core` does and hears.
    pub fn application<R>(&mut self, core: usize, body: impl FnOnce(&mut Application) -> R) -> R {
        body(&mut lock(&self.domain.lanes[core].far).1)
    }

    /// Has the application of one thread issue a call in its next batch.
    pub fn call(&mut self, core: usize, call: Call) {
        self.application(core, |application| application.script.push_back(call));
    }

    /// Handles that the connection between these ends has, if it lives, as an application can guess them: the flow
    /// group follows from the ends, slots and generations count from 0.
    pub fn guess(&self, peer: Endpoint, local_port: u16, slot: u32, generation: u32) -> Handle {
        let hash = self.shared.flow_hash(Endpoint::new(SERVER, local_port), peer);
        Handle::new(Shared::group_of(hash), slot, generation)
    }

    /// Asks for the flow group of these ends to be moved to the other thread.
    pub fn migrate(&mut self, peer: Endpoint, local_port: u16) {
        let group =
            Shared::group_of(self.shared.flow_hash(Endpoint::new(SERVER, local_port), peer));
        let from = usize::from(self.shared.home_of(group));
        while self.controls[from].report().is_some() {}
        let to = (CORES - 1 - from) as u8;
        let command = MoveCommand { token: 1, groups: GroupSet::one(group), to };
        // One at a time is enough.
        let _ = self.controls[from].post(command);
    }

    /// The application of thread `core`, which runs beside its thread, looks for a batch.
    pub fn poll(&mut self, core: usize) {
        let (far, application) = &mut *lock(&self.domain.lanes[core].far);
        far.poll(application);
    }

    /// One cycle of thread `core`.
    pub fn cycle(&mut self, core: usize) {
        let (now, lane) = (self.now, &mut self.domain.lanes[core]);
        match &mut self.threads {
            Threads::Complete(threads) => threads[core].cycle(now, &mut Standing(now), lane),
            Threads::Sharing(threads) => threads[core].cycle(now, &mut Standing(now), lane),
        };
    }

    /// Carries frames over the wire both ways, with one cycle of each peer. Answers whether there were any.
    pub fn carry(&mut self) -> bool {
        let Self { now, peers, wires, pool, sent, .. } = self;
        let mut frames = Vec::new();
        for wire in wires.iter_mut() {
            wire.receive(*now, pool, &mut frames, usize::MAX);
        }
        let mut moved = !frames.is_empty();
        for frame in frames {
            sent.push((*now, parse(frame.bytes())));
            deliver(frame, peers, pool);
        }
        for peer in peers {
            let out = peer.cycle(*now, pool);
            moved |= !out.is_empty();
            wires[0].transmit(*now, pool, out);
            wires[0].reclaim(pool);
        }
        self.now += ROUND;
        moved
    }

    /// One cycle of all: the application answers what it was handed in the round before.
    pub fn round(&mut self) -> bool {
        for core in 0..CORES {
            self.poll(core);
            self.cycle(core);
        }
        self.carry()
    }

    /// Rounds until nothing moves any more.
    pub fn settle(&mut self) {
        const LONGEST: usize = 100;
        let mut quiet = 0;
        for _ in 0..LONGEST {
            let moved = self.round();
            let has_calls = (0..CORES)
                .any(|core| !self.application(core, |application| application.script.is_empty()));
            let is_moving = self.controls.iter_mut().any(|control| {
                while control.report().is_some() {}
                control.open() > 0
            });
            quiet = if moved || has_calls || is_moving { 0 } else { quiet + 1 };
            if quiet == 4 {
                return;
            }
        }
        panic!("frames go on and on");
    }

    /// Time passes: so much of it at once.
    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        for (index, peer) in self.peers.iter().enumerate() {
            self.shared.neighbors.learn(peer.address.into(), mac(index as u8 + 2), self.now);
            peer.learn(mac(1), self.now);
        }
    }

    /// Ends the dataplane and its peers; all memory comes back.
    pub fn end(mut self) {
        const LONGEST: usize = 100;
        for turn in 0.. {
            assert!(turn < LONGEST, "the application still has a batch");
            for core in 0..CORES {
                self.application(core, |application| application.script.clear());
            }
            self.round();
            if self.domain.lanes.iter().all(|lane| !lane.near.has_batch()) {
                break;
            }
        }
        for turn in 0.. {
            assert!(turn < LONGEST, "threads withdraw without end");
            let is_left = match &mut self.threads {
                Threads::Complete(threads) => withdraw(threads, self.now),
                Threads::Sharing(threads) => withdraw(threads, self.now),
            };
            self.carry();
            if !is_left {
                break;
            }
        }
        let Self { domain, threads, mut wires, mut pool, peers, .. } = self;
        match threads {
            Threads::Complete(threads) => leave(threads),
            Threads::Sharing(threads) => leave(threads),
        }
        peers.into_iter().for_each(|peer| peer.leave(&mut pool));
        wires.iter_mut().for_each(|wire| {
            wire.drain(&mut pool);
        });
        assert_eq!(pool.available(), self.chunks, "packet memory of the peers is lost");
        let free = Pool::new(&domain.region, 0).available();
        assert_eq!(free, PACKET_CHUNKS, "packet memory of the dataplane is lost");
    }
}

/// Answers whether there is more to withdraw.
fn withdraw<T: Elastic>(threads: &mut [T], now: Instant) -> bool {
    threads.iter_mut().map(|thread| thread.withdraw(now)).filter(|is_left| *is_left).count() > 0
}

fn leave<T: Elastic>(threads: Vec<T>) {
    threads.into_iter().for_each(|thread| {
        thread.leave();
    });
}

impl Threads {
    fn obey(&mut self) -> Vec<MoveControl> {
        let (controls, boxes): (Vec<_>, Vec<_>) = (0..CORES).map(|_| move_mailbox(1)).unzip();
        match self {
            Self::Complete(threads) => {
                threads.iter_mut().zip(boxes).for_each(|(thread, mailbox)| thread.obey(mailbox));
            }
            Self::Sharing(threads) => {
                threads.iter_mut().zip(boxes).for_each(|(thread, mailbox)| thread.obey(mailbox));
            }
        }
        controls
    }
}

/// The threads as the runtime makes them for an application in the process domain.
fn threads(
    mode: Mode,
    shared: &Arc<Shared>,
    parts: Vec<Parts<LoopbackNic>>,
    region: &Arc<Region>,
    mirrors: Vec<Mirror>,
    now: Instant,
) -> Threads {
    let sharing = ConservingConfig { pool_keep: KEPT, turns: 64, ..ConservingConfig::default() };
    match mode.scheduler {
        Scheduler::RunToCompletion => {
            let thread = |((core, Parts { queues, pool, ports }), mirror)| {
                ElasticThread::new(
                    core as u8,
                    Arc::clone(shared),
                    queues,
                    pool,
                    ports,
                    ELASTIC,
                    now,
                )
                .staging(Pool::new(region, KEPT / 2))
                .mirroring(mirror)
            };
            Threads::Complete(parts.into_iter().enumerate().zip(mirrors).map(thread).collect())
        }
        Scheduler::WorkConserving => {
            Threads::Sharing(Floor::threads(shared, parts, ELASTIC, sharing, now))
        }
        Scheduler::ReadySet => {
            let mut classes = Classes::new(ServicePolicy::StrictPriority);
            for (port, class) in CLASS_OF_PORT {
                classes = classes.port(port, class).expect("a class");
            }
            let config = ReadySetConfig { sharing, classes };
            let threads = Floor::ready_set(shared, parts, ELASTIC, &config, now);
            Threads::Sharing(threads.expect("classes and cores in range"))
        }
    }
}

/// What a frame is, read by hand: nothing of the code under test.
fn parse(frame: &[u8]) -> Sent {
    const ETHERNET: usize = 14;
    const IPV4: usize = 20;
    const RST: u8 = 4;
    let [0x08, 0x00] = frame[12..ETHERNET] else { return Sent::Other };
    let transport = &frame[ETHERNET + IPV4..];
    let word = |at: usize| u16::from_be_bytes([transport[at], transport[at + 1]]);
    let peer = Endpoint::new(destination(frame), word(2));
    match frame[ETHERNET + 9] {
        6 => Sent::Tcp { peer, local_port: word(0), is_reset: transport[13] & RST != 0 },
        17 => Sent::Udp { peer, local_port: word(0) },
        _ => Sent::Other,
    }
}

fn destination(frame: &[u8]) -> Ipv4Addr {
    Ipv4Addr::new(frame[30], frame[31], frame[32], frame[33])
}

/// Hands a frame to the peer that it is for. Peers know the dataplane's link address: none is asked for it.
fn deliver(frame: Mbuf, peers: &mut [Peer], pool: &mut Pool) {
    let to = frame.bytes()[..6].to_vec();
    let found = (0..peers.len()).find(|index| to == mac(*index as u8 + 2).0);
    match found {
        Some(index) => peers[index].frames.push(frame),
        None => pool.free(frame),
    }
}
