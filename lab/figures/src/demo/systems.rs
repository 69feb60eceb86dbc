//! The two servers under test.

use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use measure::process::Thread;
use runtime::CoreReport;
use statseg::Reading;

use super::child::{Killed, holds_within};
use super::processors::{REALTIME, SERVER_CPU};
use service::config::{App, RunConfig};
use service::host::Host;
use service::lab::constants::{DATAPLANE_ADDRESS, DATAPLANE_INTERFACE, DATAPLANE_KERNEL_ADDRESS};
use service::lab::{Lab, in_namespace, spawn_in};

const PORT: u16 = 11_211;
/// The first port of the service for many connections.
const MANY_PORT: u16 = 2_000;
/// As IX tunes it (IX §5.1, §5.5): a hash table that need not grow, and a large backlog. One thread,
/// pinned; transparent huge pages are off for a program that does not ask for them (`madvise`).
const MEMCACHED_TUNING: [&str; 4] = ["-o", "hashpower=20", "-b", "8192"];
/// That, for a result's conditions.
pub const MEMCACHED_CONDITION: &str =
    "one pinned thread, -c 16384 -m 64 -o hashpower=20 -b 8192, no transparent huge pages";
/// Receive moderation where a figure asks for it, in microseconds: a tenth of the objective.
pub const MODERATION_US: u64 = 50;
/// Longest that a service takes to begin.
const PATIENCE: Duration = Duration::from_secs(10);
/// Spinning without work, in microseconds, after which our service sleeps.
pub const SPIN_US: i64 = 2_000;

/// Our service, on a thread of this process.
#[derive(Debug)]
pub struct Tailplane {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<anyhow::Result<Vec<CoreReport>>>>,
    /// Driver and queue mode.
    pub driver: String,
    shown: Reading,
}

impl Tailplane {
    /// Where the key-value service listens.
    pub const TARGET: SocketAddrV4 = SocketAddrV4::new(DATAPLANE_ADDRESS, PORT);
    /// Where the echo service listens.
    pub const ECHO_TARGET: SocketAddrV4 = SocketAddrV4::new(DATAPLANE_ADDRESS, 7);
    /// Where the service for many connections listens first.
    pub const MANY_TARGET: SocketAddrV4 = SocketAddrV4::new(DATAPLANE_ADDRESS, MANY_PORT);

    /// Starts it on the server's core, at real-time priority. It spins there, and sleeps only between windows. `more`
    /// changes its configuration.
    ///
    /// # Errors
    /// What could not be opened.
    pub fn start(lab: &Lab, app: App, more: impl FnOnce(&mut RunConfig)) -> anyhow::Result<Self> {
        Self::start_with(lab, app, |config| {
            config.dataplane.spin_us = SPIN_US;
            config.dataplane.realtime = Some(REALTIME);
            more(config);
        })
    }

    /// Starts a service that spins for ever, at ordinary priority: for windows of any length.
    ///
    /// # Errors
    /// What could not be opened.
    pub fn start_spinning(lab: &Lab, app: App) -> anyhow::Result<Self> {
        Self::start_with(lab, app, |config| config.dataplane.spin_us = -1)
    }

    /// As [`start_spinning`](Self::start_spinning), with an elastic thread on each of these processors: the lab has as
    /// many queues. Answers where it listens, too.
    ///
    /// # Errors
    /// What could not be opened.
    pub fn start_on(lab: &Lab, app: App, cpus: &[usize]) -> anyhow::Result<(Self, SocketAddrV4)> {
        let mut port = 0;
        let started = Self::start_with(lab, app, |config| {
            config.dataplane.spin_us = -1;
            config.dataplane.threads = cpus.len() as u32;
            config.dataplane.cpus = cpus.to_vec();
            config.memory.chunks *= cpus.len().max(1);
            port = config.service.port();
        })?;
        Ok((started, SocketAddrV4::new(DATAPLANE_ADDRESS, port)))
    }

    /// As [`start`](Self::start), an echo service on `ports` ports, with receive moderation and memory for many
    /// connections whose peers do not acknowledge at once.
    ///
    /// # Errors
    /// What could not be opened.
    pub fn start_for_many(lab: &Lab, ports: u16) -> anyhow::Result<Self> {
        Self::start(lab, App::Echo, |config| {
            config.dataplane.moderation_us = MODERATION_US;
            config.service.port = Some(MANY_PORT);
            config.service.ports = ports;
            config.memory.chunks = 65_536;
        })
    }

    /// Starts a service as it is by default, which sleeps where it has nothing to do, at ordinary priority. `settings`
    /// changes its configuration.
    ///
    /// # Errors
    /// What could not be opened.
    pub fn start_with(
        lab: &Lab,
        app: App,
        settings: impl FnOnce(&mut RunConfig),
    ) -> anyhow::Result<Self> {
        let name = format!("{app:?}").to_lowercase();
        let mut config = RunConfig::parse(&format!("[service]\napp = \"{name}\"\n"))?;
        config.dataplane.cpus = vec![SERVER_CPU];
        settings(&mut config);
        let host = Host::open(&config, Some(lab))?;
        let driver = host.driver.clone();
        let segment = host.runtime.segment.as_ref().context("the service shows nothing")?;
        let shown = segment.reading();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let (serves, told) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("demo-server".into())
            .spawn(move || {
                // Nobody listens any more where it took too long.
                let ready = || _ = serves.try_send(());
                host.run_app(&config, ready, &flag)
            })
            .context("starting the service's thread")?;
        let started = Self { stop, thread: Some(thread), driver, shown };
        // What comes before it serves is lost, and a client's next try is a second later.
        match told.recv_timeout(PATIENCE) {
            Ok(()) => Ok(started),
            Err(_) => {
                started.stop()?;
                bail!("the {name} service did not serve within {} s", PATIENCE.as_secs())
            }
        }
    }

    /// Processor time that served something so far: polling that found nothing is not in it.
    pub fn busy(&self) -> Duration {
        let busy_ns = self.shown.threads().iter().map(|thread| thread.busy_ns).sum();
        Duration::from_nanos(busy_ns)
    }

    /// Ends it.
    ///
    /// # Errors
    /// What it failed with.
    pub fn stop(mut self) -> anyhow::Result<Vec<CoreReport>> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("the service was stopped before")?;
        thread.join().map_err(|_| anyhow::anyhow!("the service's thread panicked"))?
    }
}

impl Drop for Tailplane {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Whoever wants the result calls `stop`.
            let _ = thread.join();
        }
    }
}

/// The distribution's memcached with one thread, on the kernel's stack.
#[derive(Debug)]
pub struct Memcached(Killed);

impl Memcached {
    /// Where it listens.
    pub const TARGET: SocketAddrV4 = SocketAddrV4::new(DATAPLANE_KERNEL_ADDRESS, PORT);

    /// Starts it on the server's core.
    ///
    /// # Errors
    /// It is not installed, or does not listen.
    pub fn start(lab: &Lab) -> anyhow::Result<Self> {
        let (address, port) = (Self::TARGET.ip().to_string(), PORT.to_string());
        let mut command = Command::new("chrt");
        command.args(["-f", &REALTIME.to_string(), "taskset", "-c", &SERVER_CPU.to_string()]);
        command.args(["memcached", "-u", "root", "-t", "1", "-c", "16384", "-m", "64", "-U", "0"]);
        command.args(["-l", &address, "-p", &port]).args(MEMCACHED_TUNING);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = spawn_in(lab.dataplane(), command)
            .context("cannot start memcached (is the package memcached installed?)")?;
        let mut started = Self(Killed(child));
        let target = SocketAddr::V4(Self::TARGET);
        let connects = || TcpStream::connect_timeout(&target, Duration::from_millis(100)).is_ok();
        let listens = holds_within(Duration::from_secs(5), Duration::from_millis(20), || {
            if let Some(status) = started.0.0.try_wait()? {
                bail!("memcached ended at once ({status}): is the package installed?");
            }
            Ok(in_namespace(lab.dataplane(), connects)?)
        })?;
        ensure!(listens, "memcached does not listen on {target} after 5 s");
        Ok(started)
    }

    /// Processor time of all its threads so far; `None` where the kernel does not tell.
    pub fn busy(&self) -> Option<Duration> {
        let threads = Thread::all(&self.pid().to_string());
        let ran = || threads.iter().map(|thread| Duration::from_nanos(thread.ran_ns)).sum();
        (!threads.is_empty()).then(ran)
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.0.0.id()
    }
}

/// Steers the kernel's receive processing at the server's end to the server's core (RPS), or leaves
/// it where the sender pays for it. On veth the latter charges the client's core with the server's
/// TCP work, so a fair comparison looks at both.
///
/// # Errors
/// The kernel has no RPS.
pub fn steer_receive(lab: &Lab, to_server_core: bool) -> anyhow::Result<()> {
    let mask = if to_server_core { 1u64 << SERVER_CPU } else { 0 };
    let script =
        format!("echo {mask:x} > /sys/class/net/{DATAPLANE_INTERFACE}/queues/rx-0/rps_cpus");
    // `ip netns exec` mounts the namespace's own /sys.
    let namespace = lab.dataplane().name();
    let status = Command::new("ip")
        .args(["netns", "exec", namespace, "sh", "-c", &script])
        .status()
        .context("running ip netns exec")?;
    if !status.success() {
        bail!("setting receive packet steering in '{namespace}' failed: {status}");
    }
    Ok(())
}
