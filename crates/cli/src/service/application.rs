//! An application in a process of its own: started, joined, watched, ended.
//!
//! However either of the two ends, the other one ends: the dataplane hears of its application's end by the socket
//! between them, resets the connections and stops; the application hears of the dataplane's end in the same way.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use mem::Region;
use process::{Geometry, Hello, Host, Near, Waiting};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sandbox::Confinement;
use tailplane::Service;
use tailplane::application::{DOMAIN_VARIABLE, serve};
use tailplane::runtime::RuntimeConfig;

use super::builtin::{self, Runner};
use super::config::RunConfig;

/// How long a program may take to join, and to end when its dataplane has gone.
const JOINS_WITHIN: Duration = Duration::from_secs(10);
const ENDS_WITHIN: Duration = Duration::from_secs(2);
/// The socket's number in a program that inherits nothing else.
const CONFINED_SOCKET: i32 = 3;
/// Between two looks at a program.
const LOOK: Duration = Duration::from_millis(20);

/// The program that serves as this configuration's built-in service: this one.
///
/// # Errors
/// It is not known where this program is.
pub fn builtin(config: &Path) -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("finding this program's file")?;
    let mut command = Command::new(program);
    command.arg("application").arg(config);
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
    Hello {
        geometry: Geometry::default(),
        waiting: Waiting { placement: config.dataplane.placement.into(), ..Waiting::default() },
        // Segments carry timestamps.
        segment_bytes: usize::from(runtime.stack.mss()) - 12,
    }
}

/// A program that has joined.
pub struct Started {
    program: Program,
    socket: OwnedFd,
    nears: Vec<Near<'static>>,
    gone: Arc<AtomicBool>,
}

/// A child process, which does not outlive this value.
struct Program(Child);

impl Program {
    /// Waits for its end, for some time; then ends it.
    fn end(&mut self) -> std::io::Result<ExitStatus> {
        let began = Instant::now();
        while began.elapsed() < ENDS_WITHIN {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(LOOK);
        }
        self.0.kill()?;
        self.0.wait()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Where it has ended already there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
        let host = Host::new(hello, lanes, region)?;
        let (near, far) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .context("making the socket between dataplane and application")?;
        set_socket_timeout(&near, Timeout::Recv, Some(JOINS_WITHIN))
            .context("limiting the time to join")?;
        let name = program.get_program().to_string_lossy().into_owned();
        let child = spawn(program, &far, confinement);
        let child = child.with_context(|| format!("cannot start the program '{name}'"))?;
        let program = Program(child);
        drop(far);
        let gone = Arc::new(AtomicBool::new(false));
        // A program that ends at once is not even there to be greeted.
        let greeted = host.greet(near.as_fd());
        let nears = greeted.and_then(|()| host.meet(near.as_fd(), &gone)).with_context(|| {
            format!(
                "the program '{name}' did not join the dataplane within {} s (a program serves with \
                 `tailplane::application::serve`)",
                JOINS_WITHIN.as_secs()
            )
        })?;
        Ok(Self { program, socket: near, nears, gone })
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
        let Self { mut program, socket, nears, gone } = self;
        let counted: Vec<_> = nears.iter().map(Near::stats).collect();
        let over = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    if has_hung_up(&socket) {
                        gone.store(true, Ordering::Relaxed);
                        stop.store(true, Ordering::Relaxed);
                        return;
                    }
                }
            });
            let _over = Sets(&over);
            dataplane(nears, stop)
        });
        drop(socket);
        let status = program.end().context("waiting for the program's end")?;
        for (core, stats) in counted.iter().enumerate() {
            println!(
                "domain {core}: {} crossings, {} of over 10 ms, {} calls without sense, {} beyond the room for them",
                stats.crossings(),
                stats.unresponsive(),
                stats.violations(),
                stats.refused(),
            );
        }
        let result = result?;
        if gone.load(Ordering::Relaxed) && !status.success() {
            bail!("the program ended while it served ({status}): its connections were reset");
        }
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

/// Sets a flag at its end, however that comes.
struct Sets<'a>(&'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits a little for a hang-up of the other end. An application that has joined sends nothing: if one does, it is
/// not read.
fn has_hung_up(socket: &OwnedFd) -> bool {
    let most = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
    let mut asked = [PollFd::new(socket, PollFlags::empty())];
    // An interrupted poll is another look.
    poll(&mut asked, Some(&most)).is_ok_and(|count| count > 0)
}
