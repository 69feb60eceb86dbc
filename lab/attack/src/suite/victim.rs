//! The dataplane under attack: real threads, a hostile application in a process of its own, a client.
//!
//! Everything of it runs on one processor. Threads that do not end are left behind, and counted as a finding, so
//! that one attack that works does not hide the others.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use wire::Prefix;

use anyhow::Context;
use measure::process::stolen;
use mem::{HugePages, Region};
use nic::shm::{ShmConfig, ShmNic};
use process::{Geometry, Hello, Host, Near, NearStats, Waiting};
use runtime::policy::{Direction, NetworkPolicy, Rule};
use runtime::{CoreReport, RuntimeConfig, RuntimeError, Scheduler};
use runtime::{ElasticConfig, IdlePolicy, ModerationPolicy, StackConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal, kill_process_group};
use tailplane::application::DOMAIN_VARIABLE;

use super::Outcome;
use super::gate::Gate;
use super::own;
use super::pings::{Counted, Pings};
use crate::acts::{Allowed, Attack, Shares};
use crate::crowd::{CLIENT, Crowd, DATAGRAM_PORT, MACS, PORT, SERVER};

/// Packet memory of the attacked dataplane.
const CHUNKS: usize = 4_096;
/// How long an application may take to join.
const JOINS_WITHIN: Duration = Duration::from_secs(2);
/// How long a dataplane may take to end once it is to.
const ENDS_WITHIN: Duration = Duration::from_secs(3);
/// A silence beyond which nothing more is waited for.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How long a thread of ours that ends may be seen to, before it is left behind.
const LOOK: Duration = Duration::from_millis(10);
/// Memory that an episode may take beyond what it began with, in bytes: packets, arrays, stacks, an arena.
const MEMORY_MAX: u64 = 128 << 20;

/// The settings of either side.
fn config(index: usize, shares: Shares) -> RuntimeConfig {
    let mut stack = StackConfig::new([SERVER, CLIENT][index], 24, MACS[index]);
    stack.tcp_listen = vec![PORT];
    stack.udp_bind = vec![DATAGRAM_PORT];
    stack.max_connections = 4_096;
    stack.time_wait = Duration::from_millis(1);
    stack.fin_wait = Duration::from_millis(20);
    // Pings are to be answered at any rate.
    stack.answers_per_second = 100_000;
    RuntimeConfig {
        stack,
        elastic: ElasticConfig::default(),
        scheduler: match shares {
            Shares::Nothing => Scheduler::RunToCompletion,
            Shares::Work => Scheduler::WorkConserving(Default::default()),
            Shares::Ready => Scheduler::ReadySet(Default::default()),
        },
        idle: IdlePolicy {
            spin: Some(Duration::from_micros(20)),
            // Nobody rings for a sleeper over these wires.
            longest_sleep: Duration::from_micros(200),
        },
        moderation: ModerationPolicy::default(),
        cpus: Vec::new(),
        realtime: None,
        pool_keep: 1_024,
        segment: None,
        register: None,
    }
}

/// A thread whose end is waited for no longer than is said.
struct Task<T>(Receiver<T>);

impl<T: Send + 'static> Task<T> {
    fn start(name: &str, body: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<Self> {
        let (tell, told) = channel();
        let body = move || {
            // Nobody hears it where it took too long.
            let _ = tell.send(body());
        };
        std::thread::Builder::new().name(name.into()).spawn(body).context("starting a thread")?;
        Ok(Self(told))
    }

    /// None: it has not ended, or panicked.
    fn end(&self, within: Duration) -> Option<T> {
        let waited = Silence::begin();
        loop {
            match self.0.recv_timeout(within.saturating_sub(waited.lasted())) {
                Ok(ended) => return Some(ended),
                Err(RecvTimeoutError::Timeout) if waited.lasted() < within => {}
                Err(_) => return None,
            }
        }
    }
}

/// The hostile process and all that it started: it does not outlive this value.
struct Hostile(Child);

impl Hostile {
    fn group(&self) -> Option<Pid> {
        Pid::from_raw(self.0.id() as i32)
    }

    fn end(&mut self) -> std::io::Result<ExitStatus> {
        if let Some(group) = self.group() {
            // None of them is there any more: as well.
            let _ = kill_process_group(group, Signal::KILL);
        }
        self.0.wait()
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        // Where it has ended already there is nothing to do.
        let _ = self.end();
    }
}

fn spawn(attack: &Attack, seed: u64, socket: &OwnedFd) -> anyhow::Result<Hostile> {
    let program = std::env::current_exe().context("finding this program's file")?;
    let mut command = Command::new(program);
    command.args(["act", attack.name, "--seed", &seed.to_string()]);
    if attack.shares != Shares::Nothing {
        command.arg("--anywhere");
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    if std::env::var_os("ATTACK_VERBOSE").is_none() {
        command.stderr(Stdio::null());
    }
    fcntl_setfd(socket, FdFlags::empty()).context("leaving a socket to the program")?;
    command.env(DOMAIN_VARIABLE, socket.as_raw_fd().to_string());
    Ok(Hostile(command.spawn().context("starting the hostile application")?))
}

/// The policy of the attacked dataplane.
fn policy(allowed: Allowed) -> NetworkPolicy {
    let client = Rule {
        allow: true,
        direction: Direction::In,
        transport: None,
        network: Some(Prefix::host(CLIENT.into())),
        ports: 0..=u16::MAX,
    };
    let rules = match allowed {
        Allowed::Everything => return NetworkPolicy::default(),
        Allowed::Client => vec![client],
        Allowed::Nothing => Vec::new(),
    };
    NetworkPolicy {
        rules,
        allow_out: false,
        allow_in: false,
        source_ports: None,
        listen: Vec::new(),
    }
}

/// Whether the other end of the socket has hung up, after a while. What it sends is not read.
fn has_hung_up(socket: &OwnedFd) -> bool {
    let most = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
    let mut asked = [PollFd::new(socket, PollFlags::empty())];
    poll(&mut asked, Some(&most)).is_ok_and(|count| count > 0)
}

/// What a dataplane's thread answers.
type Ran = Result<Vec<CoreReport>, RuntimeError>;

/// A dataplane that runs, with all that belongs to it.
struct Running {
    hostile: Hostile,
    allowed: Allowed,
    stop: Arc<AtomicBool>,
    client_stop: Arc<AtomicBool>,
    gone: Arc<AtomicBool>,
    counted: Arc<Counted>,
    stats: Arc<NearStats>,
    region: Arc<Region>,
    dataplane: Task<Ran>,
    client: Task<Option<Crowd>>,
    /// Kept: the application would hear of the dataplane's end.
    _socket: Arc<OwnedFd>,
}

/// Starts all of it; why the application was not let in, or went before.
fn start(attack: &Attack, seed: u64, gate: &Gate) -> anyhow::Result<Result<Running, String>> {
    let wires = ShmConfig { mac: MACS[0], ..ShmConfig::default() };
    let far_wires = ShmConfig { mac: MACS[1], ..ShmConfig::default() };
    let (near_nic, far_nic) = ShmNic::pair(&wires, &far_wires).context("making a wire")?;
    let region = Region::map(CHUNKS, HugePages::No)?;
    let waiting = Waiting { placement: attack.placement, looks: 1_000 };
    let hello = Hello { geometry: Geometry::default(), waiting, segment_bytes: 1_448, sums: true };
    let host = Host::new(hello, 1, &region)?;
    let (near, far) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&near, Timeout::Recv, Some(JOINS_WITHIN))?;
    let hostile = spawn(attack, seed, &far)?;
    drop(far);
    gate.is_there(hostile.group());
    let gone = Arc::new(AtomicBool::new(false));
    let met = host.greet(near.as_fd()).and_then(|()| host.meet(near.as_fd(), &gone));
    let near_side = match met {
        Ok(mut nears) => nears.pop().context("a side for each elastic thread")?,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let stats = near_side.stats();
    let (stop, client_stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let dataplane = {
        let (region, stop) = (Arc::clone(&region), Arc::clone(&stop));
        let mut config = config(0, attack.shares);
        config.stack.policy = policy(attack.allowed);
        Task::start("attacked", move || -> Ran {
            let nears: Vec<Near<'static>> = vec![near_side];
            runtime::run_protected(&config, &region, vec![near_nic], nears, || {}, None, &stop)
        })?
    };
    let counted = Arc::new(Counted::default());
    let nic = Pings::new(far_nic, &counted);
    let client = {
        let stop = Arc::clone(&client_stop);
        Task::start("client", move || {
            let heap = Region::heap(CHUNKS as u32);
            let make = |_| Crowd::new(seed, Duration::from_micros(50));
            let ran =
                runtime::run(&config(1, Shares::Nothing), &heap, vec![nic], make, &stop).ok()?;
            ran.into_iter().next().map(|(_, crowd)| crowd)
        })?
    };
    let socket = Arc::new(near);
    watch(&socket, &gone, &stop)?;
    Ok(Ok(Running {
        hostile,
        allowed: attack.allowed,
        stop,
        client_stop,
        gone,
        counted,
        stats,
        region,
        dataplane,
        client,
        _socket: socket,
    }))
}

/// Hears of the application's end, as the one who starts real ones does.
fn watch(
    socket: &Arc<OwnedFd>,
    gone: &Arc<AtomicBool>,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let (socket, gone, stop) = (Arc::clone(socket), Arc::clone(gone), Arc::clone(stop));
    Task::start("watch", move || {
        while !stop.load(Ordering::Relaxed) {
            if has_hung_up(&socket) {
                gone.store(true, Ordering::Relaxed);
                stop.store(true, Ordering::Relaxed);
            }
        }
    })?;
    Ok(())
}

/// Time in which nothing was answered, less what the host took of the machine's processors meanwhile: nobody who runs
/// on this machine did that.
pub struct Silence {
    since: Instant,
    stolen: Duration,
}

impl Silence {
    /// From now on.
    pub fn begin() -> Self {
        Self { since: Instant::now(), stolen: stolen() }
    }

    /// So far.
    pub fn lasted(&self) -> Duration {
        self.since.elapsed().saturating_sub(stolen().saturating_sub(self.stolen))
    }
}

/// Runs a dataplane with this attack until the application ends, or for so long.
///
/// # Errors
/// The machine has no means for it.
pub fn episode(
    attack: &Attack,
    seed: u64,
    most: Duration,
    gate: &Gate,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    outcome.episodes += 1;
    let memory_before = own::resident()?;
    let mut running = match start(attack, seed, gate)? {
        Ok(running) => running,
        Err(why) => {
            gate.is_gone();
            outcome.refusals.insert(why);
            return Ok(());
        }
    };
    outcome.joined += 1;
    let began = Instant::now();
    let (mut silence, mut last, mut heard, mut grown) = (Duration::ZERO, 0, Silence::begin(), 0);
    while began.elapsed() < most && !running.stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        let answered = running.counted.answered.load(Ordering::Relaxed);
        if answered != last {
            silence = silence.max(heard.lasted());
            (last, heard) = (answered, Silence::begin());
        }
        grown = own::resident()?.saturating_sub(memory_before).max(grown);
        // An attack that takes all memory of the machine would end more than itself.
        if grown > 4 * MEMORY_MAX || heard.lasted() > SILENCE_MAX {
            break;
        }
    }
    if !running.stop.load(Ordering::Relaxed) {
        silence = silence.max(heard.lasted());
    }
    outcome.silent(silence);
    if grown > MEMORY_MAX {
        outcome.fail(format!("the dataplane's memory grew by {} MiB", grown >> 20));
    }
    end(&mut running, outcome);
    gate.is_gone();
    let status = running.hostile.end().context("waiting for the hostile application")?;
    check_status(status, outcome);
    Ok(())
}

/// Ends the dataplane, in order, while its application does what it likes; then looks what is left.
fn end(running: &mut Running, outcome: &mut Outcome) {
    let began = Silence::begin();
    running.stop.store(true, Ordering::Relaxed);
    let mut ran = running.dataplane.end(ENDS_WITHIN);
    outcome.ended_in(began.lasted());
    if ran.is_none() {
        outcome.fail(format!("did not end within {} s of its stop", ENDS_WITHIN.as_secs()));
        running.gone.store(true, Ordering::Relaxed);
        ran = running.dataplane.end(ENDS_WITHIN / 3);
    }
    if ran.is_none() {
        outcome.fail("nor when it had heard that its application is gone");
        // Whoever is left behind needs not be attacked on.
        if running.hostile.end().is_ok() {
            ran = running.dataplane.end(ENDS_WITHIN / 3);
        }
    }
    if ran.is_none() {
        outcome.fail("nor when its application was dead: a thread is left behind");
    }
    running.client_stop.store(true, Ordering::Relaxed);
    match running.client.end(ENDS_WITHIN) {
        Some(client) => client.iter().for_each(|crowd| outcome.saw(running.allowed, crowd.seen)),
        None => outcome.fail("the client of the attacked dataplane did not end"),
    }
    match &ran {
        Some(Ok(reports)) => {
            let denied = |report: &CoreReport| {
                report.stack.policy_denied_in + report.stack.policy_denied_out
            };
            outcome.forbidden += reports.iter().map(denied).sum::<u64>();
            let lost = reports.iter().map(|report| report.left.memory.lost).sum::<u32>();
            let (back, all) = (running.region.depot_len(), running.region.chunks() as usize);
            if lost > 0 || back != all {
                outcome
                    .fail(format!("packet memory: {lost} chunks lost, {back} of {all} came back"));
            }
        }
        Some(Err(error)) => outcome.fail(format!("the dataplane failed: {error}")),
        None => {}
    }
    let Running { stats, counted, .. } = running;
    outcome.crossings += stats.crossings();
    outcome.violations += stats.violations();
    outcome.refused += stats.refused();
    outcome.pinged(counted);
}

/// How the application ended tells whether it got where nobody may.
fn check_status(status: ExitStatus, outcome: &mut Outcome) {
    if status.code() == Some(crate::acts::GOT_IN) {
        outcome.fail("it could change memory that it may only read");
    }
    outcome.faulted += u64::from(status.signal() == Some(libc::SIGSEGV));
}
