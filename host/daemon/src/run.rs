//! The daemon itself: everything that was tested apart, put together and kept running.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use control::Topology;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::clocks::Clocks;
use crate::config::{Config, Listen};
use crate::desk::Desk;
use crate::front::Front;
use crate::governor::Facts;
use crate::listen::{Listener, Owner};
use crate::logging;
use crate::machine::{Outside, monotonic_ns, unix_ms};
use crate::manager::Manager;
use crate::notify::{Notifier, watchdog_interval};
use crate::records::Records;
use crate::users::{Kind, number};
use crate::varlink::Access;

/// How things stand is shown so often, in nanoseconds.
const SHOW_NS: u64 = 500_000_000;
/// The thread that talks to people turns every second; after so long without, the watchdog is told no more, in
/// nanoseconds.
const FRONT_NS: u64 = 10_000_000_000;
/// Where names of users and groups are looked up.
const ETC: &str = "/etc";

/// Runs until SIGTERM or SIGINT; SIGHUP reads the services' files again. Services go on.
///
/// # Errors
/// What it cannot do without: another daemon runs, a socket cannot be made.
pub fn run(config: Config) -> anyhow::Result<()> {
    logging::begin(&config.log);
    let signals = Signals::catch().context("cannot catch signals")?;
    let notifier = Notifier::new(std::env::var_os("NOTIFY_SOCKET").as_deref())
        .context("cannot reach systemd at $NOTIFY_SOCKET")?;
    let _lock = lock(&config)?;
    let desk = Arc::new(Desk::new().context("no descriptors are left")?);
    let front = front(&config, &desk)?;
    let (facts, clocks_problems) = facts(&config);
    let outside = Outside::new(&config, &desk.control);
    let no_topology = facts.topology.is_none();
    let mut manager = Manager::new(config, facts, outside, monotonic_ns());
    if no_topology {
        let problem = "the machine's processors cannot be read: services are watched, not governed";
        manager.say_problem("machine", problem.to_owned());
    }
    for problem in clocks_problems {
        manager.say_problem("clocks", problem);
    }
    let thread = std::thread::Builder::new().name("front".to_owned());
    let front = thread.spawn(move || front.run()).context("no thread for the sockets")?;
    let mut daemon = Daemon {
        manager,
        desk: Arc::clone(&desk),
        notifier,
        watchdog: watchdog(),
        watchdog_ns: 0,
        show_ns: 0,
        is_ready: false,
        said: String::new(),
    };
    let result = daemon.serve(&signals, || front.is_finished());
    daemon.notifier.stopping();
    desk.stop();
    // It ends within its turn; a panic of it was said when it happened.
    let _ = front.join();
    result
}

fn watchdog() -> Option<Duration> {
    let usec = std::env::var_os("WATCHDOG_USEC");
    let pid = std::env::var_os("WATCHDOG_PID");
    watchdog_interval(usec.as_deref(), pid.as_deref(), std::process::id())
}

/// One daemon for each run directory, held as long as the file is open.
fn lock(config: &Config) -> anyhow::Result<File> {
    use std::os::unix::fs::DirBuilderExt;
    let directory = config.records_directory();
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&config.run_directory)
        .and_then(|()| std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory))
        .with_context(|| format!("cannot make {} (`run_directory`)", directory.display()))?;
    let path = directory.join("lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            bail!("another tailplaned runs with this run directory ({} is locked)", path.display())
        }
        Err(error) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

/// Who may do what at the control socket, and whose it is.
///
/// # Errors
/// A user or group that there is not.
pub(crate) fn access(config: &Config) -> anyhow::Result<(Access, Owner)> {
    let etc = Path::new(ETC);
    let of = |kind, who: &Option<_>| who.as_ref().map(|who| number(etc, kind, who)).transpose();
    let uid = of(Kind::User, &config.control.owner).context("`control.owner`")?;
    let gid = of(Kind::Group, &config.control.group).context("`control.group`")?;
    let own_uid = rustix::process::geteuid().as_raw();
    let access = Access { own_uid, group: gid, others_read: config.control.others_read };
    Ok((access, Owner { uid, gid, mode: config.control.mode }))
}

fn front(config: &Config, desk: &Arc<Desk>) -> anyhow::Result<Front> {
    let (access, owner) = access(config)?;
    let control = Listener::unix(&config.control_socket(), &owner)?;
    let metrics = match config.metrics_listen()? {
        Listen::Nowhere => None,
        Listen::Tcp(address) => Some(Listener::tcp(address)?),
        // Numbers are nobody's secret: who can reach the directory may read them.
        Listen::Unix(path) => Some(Listener::unix(&path, &Owner { mode: 0o666, ..owner })?),
    };
    if let Some(address) = metrics.as_ref().and_then(Listener::address) {
        tracing::info!(service = "daemon", kind = "metrics", address = %address);
    }
    Ok(Front::new(Arc::clone(desk), access, control, metrics))
}

/// What of the machine policies can use, and what went wrong when an earlier daemon's clocks were put back.
fn facts(config: &Config) -> (Facts, Vec<String>) {
    let scaling = config.machine.scaling();
    let topology = match Topology::read(&config.machine.sys) {
        Ok(topology) => topology,
        Err(error) => {
            let problems = vec![error.to_string()];
            return (Facts { topology: None, clocks: None, scaling }, problems);
        }
    };
    let records = Records::new(&config.records_directory());
    let (clocks, problems) = Clocks::new(topology.clone(), records);
    let settable = config.machine.set_clocks && !topology.machine().clocks_khz.is_empty();
    let clocks = settable.then_some(clocks);
    (Facts { topology: Some(topology), clocks, scaling }, problems)
}

/// Signals, noticed by the loop.
struct Signals {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    /// Readable when one has come.
    wake: UnixStream,
}

impl Signals {
    fn catch() -> io::Result<Self> {
        let (stop, reload) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (wake, ring) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
            signal_hook::low_level::pipe::register(signal, ring.try_clone()?)?;
        }
        signal_hook::flag::register(SIGHUP, Arc::clone(&reload))?;
        signal_hook::low_level::pipe::register(SIGHUP, ring)?;
        Ok(Self { stop, reload, wake })
    }

    fn hear(&self) {
        use std::io::Read;
        let mut bytes = [0; 64];
        // Nothing is left to read: none has come.
        while matches!((&self.wake).read(&mut bytes), Ok(len) if len > 0) {}
    }
}

struct Daemon {
    manager: Manager<Outside>,
    desk: Arc<Desk>,
    notifier: Notifier,
    watchdog: Option<Duration>,
    watchdog_ns: u64,
    show_ns: u64,
    is_ready: bool,
    said: String,
}

impl Daemon {
    fn serve(&mut self, signals: &Signals, front_ended: impl Fn() -> bool) -> anyhow::Result<()> {
        while !signals.stop.load(Ordering::Relaxed) {
            if front_ended() {
                bail!("the thread that serves the sockets has ended: see the log");
            }
            if signals.reload.swap(false, Ordering::Relaxed) || self.desk.take_reload() {
                self.reload();
            }
            let now_ns = monotonic_ns();
            for command in self.desk.commands() {
                self.manager.command(now_ns, command);
            }
            let due_ns = self.manager.turn(now_ns, unix_ms());
            let answers = self.manager.answers();
            if now_ns >= self.show_ns || !answers.is_empty() {
                self.show(now_ns);
            }
            // Whoever reads an answer finds what it speaks of.
            self.desk.tell(answers, self.manager.events());
            self.tell_watchdog(now_ns);
            self.wait(due_ns.min(self.show_ns), signals);
        }
        Ok(())
    }

    fn reload(&mut self) {
        let now_ns = monotonic_ns();
        self.notifier.reloading(now_ns);
        self.manager.reload(now_ns);
        let line = self.manager.snapshot(now_ns).line();
        self.notifier.ready(&line);
    }

    fn show(&mut self, now_ns: u64) {
        self.show_ns = now_ns + SHOW_NS;
        let snapshot = self.manager.snapshot(now_ns);
        let line = snapshot.line();
        self.desk.show(snapshot);
        if !self.is_ready {
            self.is_ready = true;
            self.notifier.ready(&line);
        } else if line != self.said {
            self.notifier.status(&line);
        }
        self.said = line;
    }

    /// The watchdog is told as long as both threads live.
    fn tell_watchdog(&mut self, now_ns: u64) {
        let Some(interval) = self.watchdog else { return };
        let front_lives = now_ns.saturating_sub(self.desk.front_alive_ns()) < FRONT_NS
            || self.desk.front_alive_ns() == 0;
        if now_ns >= self.watchdog_ns && front_lives {
            // Twice as often as needed.
            let half_ns = u64::try_from(interval.as_nanos() / 2).unwrap_or(u64::MAX);
            self.watchdog_ns = now_ns.saturating_add(half_ns);
            self.notifier.watchdog();
        }
    }

    /// Waits for what is due, or for whatever happens before.
    fn wait(&mut self, due_ns: u64, signals: &Signals) {
        let due_ns = if self.watchdog.is_some() { due_ns.min(self.watchdog_ns) } else { due_ns };
        let most_ns = due_ns.saturating_sub(monotonic_ns()).min(1_000_000_000);
        let most = Timespec::try_from(Duration::from_nanos(most_ns)).ok();
        let bell = Arc::clone(&self.desk.control);
        let mut fds =
            vec![PollFd::new(&*bell, PollFlags::IN), PollFd::new(&signals.wake, PollFlags::IN)];
        let descriptors = self.manager.descriptors();
        fds.extend(descriptors.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        // Interrupted by a signal: the loop looks at once.
        let _ = poll(&mut fds, most.as_ref());
        bell.hear();
        signals.hear();
    }
}
