//! An application in a process of its own: started, joined, watched, ended.
//!
//! However either of the two ends, the other one ends: the dataplane hears of its application's end by the socket
//! between them, resets the connections and stops; the application hears of the dataplane's end in the same way.

use std::fmt;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use mem::Region;
use process::{Geometry, Hello, Host, Near, NearStats, Placer, Waiting};
use runtime::{RuntimeConfig, beside};
use rustix::event::PollFlags;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sandbox::{Confinement, Watched};
use signal_hook::low_level::signal_name;
use tailplane::Service;
use tailplane::application::{DOMAIN_VARIABLE, serve};

use super::builtin::{self, Runner};
use super::config::RunConfig;
use crate::ready::is_ready;
use crate::terminal::Output;

/// How long a program may take to join, and to end when its dataplane has gone.
pub(super) const JOINS_WITHIN: Duration = Duration::from_secs(10);
const ENDS_WITHIN: Duration = Duration::from_secs(2);
/// How long the kernel may take to end a program that was killed. One that waits for a device may take for ever.
const DIES_WITHIN: Duration = Duration::from_secs(1);
/// The socket's number in a program that inherits nothing else.
const CONFINED_SOCKET: i32 = 3;
/// What a shell adds to the number of a signal.
const SIGNAL_BASE: i32 = 128;
/// Between two looks at a program that is to end.
const END_LOOK: Duration = Duration::from_millis(2);
/// Between two looks at a program.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// The program that serves as this configuration's built-in service: this one. It is given the configuration's text,
/// as it may not be able to read the file.
///
/// # Errors
/// The text cannot be given.
pub fn builtin(program: &Path, config: &RunConfig) -> anyhow::Result<Command> {
    let text = memfd_create("configuration", MemfdFlags::CLOEXEC)
        .map_err(std::io::Error::from)
        .and_then(|text| {
            let mut text = File::from(text);
            text.write_all(config.text.as_bytes())?;
            text.rewind()?;
            Ok(text)
        });
    let text = text.context("handing the configuration to the application")?;
    let mut command = Command::new(program);
    // The path is for people who list processes.
    command.args(["application", "--from-input"]).arg(&config.path).stdin(text);
    // It serves the network, and needs nothing of the starter's surroundings.
    command.env_clear();
    Ok(command)
}

/// Serves as the configuration's built-in service on the dataplane that started this process.
///
/// # Errors
/// There is no such dataplane, or the service could not be made.
pub fn serve_builtin(config: &RunConfig) -> anyhow::Result<()> {
    struct Attached;
    impl Runner for Attached {
        type Outcome = ();
        fn run<S: Service + Send>(
            self,
            make_service: impl Fn(usize) -> S + Sync,
        ) -> anyhow::Result<()> {
            Ok(serve(make_service).map(|_| ())?)
        }
    }
    builtin::run(config, Attached)
}

/// What a dataplane of this configuration tells its application.
pub fn hello(config: &RunConfig, runtime: &RuntimeConfig) -> Hello {
    let plain = Geometry::default();
    let events = u32::try_from(runtime.elastic.events()).unwrap_or(u32::MAX);
    Hello {
        // One batch has all that a thread can have.
        geometry: Geometry { events: plain.events.max(events), ..plain },
        waiting: Waiting { placement: config.dataplane.placement.into(), ..Waiting::default() },
        // Segments carry timestamps.
        segment_bytes: runtime.stack.segment_bytes(),
        sums: !runtime.stack.tx_checksum_offload,
    }
}

/// Why a dataplane does not serve: its program has not joined.
#[derive(Debug, thiserror::Error)]
#[error(
    "the program '{name}' did not join the dataplane{} (a program serves with `tailplane::application::serve`)",
    if *after >= JOINS_WITHIN { format!(" within {} s", JOINS_WITHIN.as_secs()) } else { String::new() }
)]
pub struct NotJoined {
    name: String,
    /// When the dataplane gave up: at [`JOINS_WITHIN`], or when the program hung up or sent nonsense.
    after: Duration,
}

/// The dataplane's sides of an application that has joined.
pub struct Joined {
    socket: OwnedFd,
    nears: Vec<Near<'static>>,
    gone: Arc<AtomicBool>,
}

impl Joined {
    /// Shows the domain to the application at the other end of `socket`, for a dataplane of `lanes` elastic threads
    /// whose packets are in `region`, and waits until it has joined: as long as the socket's time-out says. `name` is
    /// the program's, for errors.
    ///
    /// # Errors
    /// It does not join.
    pub fn new(
        hello: Hello,
        lanes: usize,
        region: &Arc<Region>,
        socket: OwnedFd,
        name: &str,
    ) -> anyhow::Result<Self> {
        let host = Host::new(hello, lanes, region)?;
        let gone = Arc::new(AtomicBool::new(false));
        // A program that ends at once is not even there to be greeted.
        let (greeted, began) = (host.greet(socket.as_fd()), Instant::now());
        let nears = greeted
            .and_then(|()| host.meet(socket.as_fd(), &gone))
            .with_context(|| NotJoined { name: name.to_owned(), after: began.elapsed() })?;
        Ok(Self { socket, nears, gone })
    }

    /// What places the application's threads, in the elastic threads' order.
    pub fn placers(&self) -> Vec<Placer> {
        self.nears.iter().map(Near::placer).collect()
    }

    /// Runs `dataplane` with the threads' sides of the domain until `stop` is set, and sets it where the application
    /// goes before. The application hears of the dataplane's end when this returns. Answers also whether it had gone.
    ///
    /// # Errors
    /// What the dataplane could not do.
    pub fn run<R>(
        self,
        stop: &AtomicBool,
        dataplane: impl FnOnce(Vec<Near<'static>>, &AtomicBool) -> anyhow::Result<R>,
    ) -> anyhow::Result<(R, bool)> {
        let Self { socket, nears, gone } = self;
        let counted: Vec<_> = nears.iter().map(Near::stats).collect();
        let mut late = vec![false; counted.len()];
        let look = || {
            report_late(&counted, &mut late);
            // An application that has joined sends nothing: if one does, it is not read.
            let has_gone = is_ready(&socket, PollFlags::empty(), LOOK);
            if has_gone {
                gone.store(true, Ordering::Relaxed);
                stop.store(true, Ordering::Relaxed);
            }
            !has_gone
        };
        let result = beside("hang-up", keep_own_realtime, look, || dataplane(nears, stop));
        drop(socket);
        for (core, stats) in counted.iter().enumerate() {
            // Not `println!`, which panics where the starter has gone.
            Output::Standard.print(&format!(
                "domain {core}: {} crossings, {} of over 10 ms, {} calls without sense, {} beyond the room for them, \
                 {} batches held back by rates\n",
                stats.crossings(),
                stats.unresponsive(),
                stats.violations(),
                stats.refused(),
                stats.held_back(),
            ));
        }
        Ok((result??, gone.load(Ordering::Relaxed)))
    }
}

/// Has a thread that hears of the end beside threads that always run keep the priority that it has inherited, from
/// threads to come.
pub fn keep_own_realtime() {
    // One that was refused has a priority that its threads inherit, and makes none.
    if let Err(error) = runtime::keep_realtime() {
        tracing::warn!(%error, "what looks after the elastic threads may pass its priority on");
    }
}

/// Tells of each elastic thread whose application takes long, and when it is back: once, not for each batch.
fn report_late(threads: &[Arc<NearStats>], late: &mut [bool]) {
    for (core, (stats, late)) in threads.iter().zip(late).enumerate() {
        let was = std::mem::replace(late, stats.is_unresponsive());
        match (was, *late) {
            (false, true) => Output::Error.print(&format!(
                "tailplane: elastic thread {core} of the application has not answered for more than 10 ms: it blocks, \
                 works on one batch, or is stopped. The network goes on; its connections wait\n"
            )),
            (true, false) => Output::Error
                .print(&format!("tailplane: elastic thread {core} of the application is back\n")),
            _ => {}
        }
    }
}

/// A child process, which does not outlive this value.
#[derive(Debug)]
pub struct Program(Child);

impl Program {
    /// Its process number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// To learn of its end.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn watch(&self) -> anyhow::Result<Watched> {
        Ok(Watched::of_child(&self.0)?)
    }

    /// Waits for its end until some moment; then kills it.
    ///
    /// # Errors
    /// The operating system does not know it, or does not end it.
    pub fn end(&mut self, by: Instant) -> std::io::Result<ExitStatus> {
        if let Some(status) = self.wait(by)? {
            return Ok(status);
        }
        self.0.kill()?;
        let killed = self.wait(Instant::now() + DIES_WITHIN)?;
        killed.ok_or_else(|| {
            std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                format!("process {} was killed, and the kernel has not ended it", self.id()),
            )
        })
    }

    /// Kills it, and does not wait for its end.
    pub fn begin_to_kill(&mut self) {
        // Where it has ended already there is nothing to do.
        let _ = self.0.kill();
    }

    fn wait(&mut self, by: Instant) -> std::io::Result<Option<ExitStatus>> {
        loop {
            let status = self.0.try_wait()?;
            if status.is_some() || Instant::now() >= by {
                return Ok(status);
            }
            std::thread::sleep(END_LOOK);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.end(Instant::now());
    }
}

impl From<Child> for Program {
    fn from(child: Child) -> Self {
        Self(child)
    }
}

/// The two ends of a domain's socket: the dataplane's, which waits no longer than a program may take to join, and the
/// application's.
///
/// # Errors
/// No descriptors are left.
pub(super) fn sockets() -> anyhow::Result<(OwnedFd, OwnedFd)> {
    let (near, far) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .context("making the socket between dataplane and application")?;
    set_socket_timeout(&near, Timeout::Recv, Some(JOINS_WITHIN))
        .context("limiting the time to join")?;
    Ok((near, far))
}

/// Starts a program with its end of a domain's socket; confined, if it is to be. To be called on a thread that lives
/// as long as the program shall.
///
/// # Errors
/// It cannot be started.
pub(super) fn start(
    program: Command,
    socket: &OwnedFd,
    confinement: Option<&Confinement>,
) -> anyhow::Result<Program> {
    let name = program.get_program().to_string_lossy().into_owned();
    let child = spawn(program, socket, confinement);
    child.map(Program).with_context(|| format!("cannot start the program '{name}'"))
}

/// A limit of memory that made the kernel kill processes of a program.
#[derive(Clone, Copy, Debug)]
pub struct Exhausted {
    /// The configuration's key.
    pub key: &'static str,
    /// Its value, in MiB.
    pub limit_mb: u64,
    /// Processes that were killed.
    pub killed: u64,
}

/// How a program ended.
#[derive(Debug)]
pub struct End {
    /// As its parent hears it.
    pub status: ExitStatus,
    /// What its control group adds.
    pub exhausted: Option<Exhausted>,
}

impl From<ExitStatus> for End {
    fn from(status: ExitStatus) -> Self {
        Self { status, exhausted: None }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        // The first process of a PID namespace ends with 128 and the number of the signal that killed the program.
        let signal = self.status.code().and_then(|code| code.checked_sub(SIGNAL_BASE));
        if let Some(signal) = signal.filter(|signal| (1..=libc::SIGRTMAX()).contains(signal)) {
            write!(f, ", killed by signal {signal}")?;
            if let Some(name) = signal_name(signal) {
                write!(f, ", {name}")?;
            }
        }
        if let Some(Exhausted { key, limit_mb, killed }) = self.exhausted {
            write!(
                f,
                "; it reached `{key}` = {limit_mb}: the kernel killed {killed} of its processes"
            )?;
        }
        Ok(())
    }
}

/// What it is for a service that its program ended by itself, in this way.
///
/// # Errors
/// That, where the program did not end well.
pub(super) fn judge(gone: bool, end: &End) -> anyhow::Result<()> {
    if gone && !end.status.success() {
        bail!("the program ended while it served ({end}): its connections were reset");
    }
    Ok(())
}

/// A program that has joined a dataplane of this process.
pub struct Started {
    program: Program,
    joined: Joined,
}

impl Started {
    /// Starts `program` for a dataplane of `lanes` elastic threads whose packets are in `region`; confined, if it
    /// is to be. To be called on a thread that lives as long as the program shall.
    ///
    /// # Errors
    /// It cannot be started, or does not join.
    pub fn new(
        hello: Hello,
        lanes: usize,
        region: &Arc<Region>,
        program: Command,
        confinement: Option<&Confinement>,
    ) -> anyhow::Result<Self> {
        let (near, far) = sockets()?;
        let name = program.get_program().to_string_lossy().into_owned();
        let program = start(program, &far, confinement)?;
        drop(far);
        let joined = Joined::new(hello, lanes, region, near, &name)?;
        Ok(Self { program, joined })
    }

    /// Runs `dataplane` with the threads' sides of the domain until `stop` is set, and sets it where the program
    /// ends before. The program has ended afterwards.
    ///
    /// # Errors
    /// What the dataplane could not do; that the program ended by itself, and how.
    pub fn run<R>(
        self,
        stop: &AtomicBool,
        dataplane: impl FnOnce(Vec<Near<'static>>, &AtomicBool) -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        let Self { mut program, joined } = self;
        let ran = joined.run(stop, dataplane);
        let status =
            program.end(Instant::now() + ENDS_WITHIN).context("waiting for the program's end")?;
        let (result, gone) = ran?;
        judge(gone, &status.into())?;
        Ok(result)
    }
}

/// Starts a program with one end of the socket.
fn spawn(
    mut program: Command,
    socket: &OwnedFd,
    confinement: Option<&Confinement>,
) -> anyhow::Result<Child> {
    if let Some(confinement) = confinement {
        program.env(DOMAIN_VARIABLE, CONFINED_SOCKET.to_string());
        return Ok(confinement.spawn(program, &[(socket.as_fd(), CONFINED_SOCKET)])?);
    }
    // The program inherits it.
    fcntl_setfd(socket, FdFlags::empty()).context("leaving a socket to the program")?;
    program.env(DOMAIN_VARIABLE, socket.as_raw_fd().to_string());
    Ok(program.spawn()?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn an_end_names_its_signal_and_the_limit_that_was_reached() {
        let exhausted = Exhausted { key: "application.memory_mb", limit_mb: 96, killed: 2 };
        // A status as `wait` returns it: the code in the second byte, the signal in the first.
        for (status, exhausted, expected) in [
            (7 << 8, None, "exit status: 7"),
            (128 << 8, None, "exit status: 128"),
            (139 << 8, None, "exit status: 139, killed by signal 11, SIGSEGV"),
            (162 << 8, None, "exit status: 162, killed by signal 34"),
            (255 << 8, None, "exit status: 255"),
            (9, None, "signal: 9 (SIGKILL)"),
            (
                137 << 8,
                Some(exhausted),
                "exit status: 137, killed by signal 9, SIGKILL; it reached `application.memory_mb` = 96: the kernel \
                 killed 2 of its processes",
            ),
        ] {
            let end = End { status: ExitStatus::from_raw(status), exhausted };
            assert_eq!(end.to_string(), expected);
        }
    }

    #[test]
    fn a_program_that_ends_at_once_is_not_waited_for_in_words() {
        let at = |after| NotJoined { name: "true".into(), after }.to_string();
        assert!(!at(Duration::from_millis(500)).contains("within"), "{}", at(Duration::ZERO));
        assert!(at(JOINS_WITHIN).contains("within 10 s"), "{}", at(JOINS_WITHIN));
    }
}
