//! The opener of `tailplane sdp serve`: it keeps what takes privileges (the socket's path, the device's XDP
//! program, the lab, files), starts the plane's process with descriptors and nothing else, and watches it.
//!
//! ```text
//! opener   (the command's user)   binds the socket, opens the device, starts the plane, prints its report
//!    |  control socket: arguments, descriptors; hang-up means: end
//! plane    (own user, no capabilities, no files, no network, system calls filtered)
//!    |  shared memory and the socket
//! tenants  (any users)
//! ```
//!
//! The plane dies with its opener.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use endpoint::printable;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::Shutdown;
use rustix::process::{Resource, getrlimit};
use sandbox::{Confinement, GroupLimits, Groups, Limits, Standing, SyscallPolicy};
use sdp::{Listener, PlaneConfig};
use serde::{Deserialize, Serialize};

use super::gateway::{Held, Opened, PassedGateway};
use super::report::Written;
use super::serve_args::ServeArgs;
use service::application::Program;
use service::identity::{Boxed, NOT_ROOT, PLANE_USER, is_root, memory_bytes, passwd};
use service::split::control::send;
use service::split::spawn;
use service::split::words::{Word, Words, failure};
use service::terminal::Copies;

/// Threads of all planes of one user.
const THREADS_MAX: u64 = 256;
/// Threads of one plane beside its cores': what lets tenants in, what hears the opener, and one that has not ended yet.
const OTHER_THREADS: u64 = 8;
/// How long a plane may take to start, and to end.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
const ENDS_WITHIN: Duration = Duration::from_secs(3);
/// Bytes of a report at most; one of a thousand tenants has some 300 KB.
const REPORT_MAX: u64 = 16 << 20;

/// What an opener says to its plane.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// At first. With the listening socket, a file for the report and, where there is a gateway, packet memory
    /// and socket.
    Start(Box<Start>),
    /// The opener has let go of all that it passed but the listening socket.
    Alone,
}

/// What a plane needs to know and cannot look up.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    /// The command's arguments.
    pub args: ServeArgs,
    /// The device of a gateway.
    pub gateway: Option<PassedGateway>,
}

/// What a plane says to its opener.
#[derive(Debug, Serialize, Deserialize)]
pub enum Told {
    /// The rings of the gateway's queue are mapped: it may be bound.
    Mapped,
    /// Tenants can join. With what was lowered, and why.
    Ready(Vec<String>),
    /// It has ended as it was to, and written its report.
    Ended,
    /// It has not; each cause after what it caused.
    Failed(Vec<String>),
}

/// What is taken from the plane.
fn confinement(
    args: &ServeArgs,
    config: &PlaneConfig,
    program: &Path,
    root: bool,
) -> anyhow::Result<Boxed> {
    let mut missing = Vec::new();
    let (user, without) = match args.user.as_deref() {
        None if root => (Some(PLANE_USER.ids(&passwd(), &mut missing)), ""),
        None => (None, NOT_ROOT),
        Some("inherit") => (None, "`--user` is `inherit`"),
        Some(number) => match number.parse() {
            Ok(user) if user != 0 && user != u32::MAX => (root.then_some((user, user)), NOT_ROOT),
            _ => bail!("`--user` is '{number}'; allowed: 1 to {}, or `inherit`", u32::MAX - 1),
        },
    };
    if user.is_none() {
        missing.push(format!("the plane has no user of its own: {without}"));
    }
    let needed = config.limits.open_files();
    let hard = getrlimit(Resource::Nofile).maximum.filter(|_| !root);
    let limits = Limits {
        open_files: Some(hard.map_or(needed, |hard| hard.min(needed))),
        // Of another's user it would count the other's threads too.
        processes: user.map(|_| THREADS_MAX),
        locked_memory_bytes: Some(0),
        realtime_priority: Some(0),
        ..Limits::default()
    };
    let confinement = Confinement::new()
        .limits(limits)
        .realtime(0)
        .syscalls(SyscallPolicy::plane().with_threads().with_startup());
    let limits = GroupLimits {
        memory_bytes: memory_bytes(None),
        processes: Some(OTHER_THREADS + u64::from(args.cores)),
        // Its cores may spin; what lets tenants in may take one processor more.
        processors: Some(args.cores + 1),
        cpuset: (!args.cpus.is_empty()).then(|| args.cpus.iter().map(|&cpu| cpu as u32).collect()),
    };
    Boxed::alone("plane", confinement, user, root.then_some(program), missing, limits)
}

/// A plane's process. Dropping it kills it.
pub struct PlaneProcess {
    program: Program,
    control: OwnedFd,
    words: Words<Told>,
    report: File,
    copies: Copies,
    /// How it stands, as the kernel says; then what protection is missing or was lowered, and why.
    pub protection: Vec<String>,
    /// Held for its `Drop`, after the process.
    held: Option<Held>,
    _groups: Groups,
}

impl PlaneProcess {
    /// Starts a plane at a listener, and waits until it serves. To be called on a thread that lives as long as
    /// the plane shall.
    ///
    /// # Errors
    /// It cannot be started, or says why it cannot serve.
    pub fn start(
        args: &ServeArgs,
        config: &PlaneConfig,
        listener: &Listener,
        gateway: Option<Opened>,
    ) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("finding this program's file")?;
        let mut boxed = confinement(args, config, &own, is_root())?;
        let groups = boxed.make_groups("plane");
        let mut copies = Copies::default();
        let (program, control) = spawn::start(&own, &["sdp", "plane"], &boxed, &mut copies)
            .context("cannot start the plane's process")?;
        let report = memfd_create("report", MemfdFlags::CLOEXEC)
            .map_err(std::io::Error::from)
            .context("making a file for the report")?;
        let (passed, descriptors, held) = match gateway {
            None => (None, None, None),
            Some(Opened { passed, descriptors, held, .. }) => {
                (Some(passed), Some(descriptors), Some(held))
            }
        };
        let start = Order::Start(Box::new(Start { args: args.clone(), gateway: passed }));
        let given = [listener.socket(), report.as_fd()].into_iter();
        let given: Vec<_> = given.chain(descriptors.iter().flatten().map(AsFd::as_fd)).collect();
        send(&control, &start, &given)?;
        drop(descriptors);
        let mut plane = Self {
            program,
            words: Words::of(&control, said)?,
            control,
            report: report.into(),
            copies,
            protection: Vec::new(),
            held,
            _groups: groups,
        };
        if plane.held.is_some() {
            let Told::Mapped = plane.hear(STARTS_WITHIN)? else {
                bail!("the plane did not map its gateway's queue: please report this");
            };
        }
        if let Some(held) = &mut plane.held {
            held.bind()?;
        }
        send(&plane.control, &Order::Alone, &[])?;
        let Told::Ready(lowered) = plane.hear(STARTS_WITHIN)? else {
            bail!("the plane ended before it served: please report this");
        };
        plane.protection.push(match Standing::of(plane.program.id()) {
            Ok(standing) => format!("plane: {standing}"),
            Err(error) => format!("plane: {error}"),
        });
        let missing = boxed.missing.iter().map(|line| format!("missing: {line}"));
        plane.protection.extend(missing);
        plane.protection.extend(listener.weaker().map(|line| format!("missing: {line}")));
        plane.protection.extend(lowered.iter().map(|line| format!("lowered: {}", plain(line))));
        Ok(plane)
    }

    /// Whether it runs. It has no reason to say anything meanwhile.
    ///
    /// # Errors
    /// It has ended by itself, and how.
    pub fn runs(&mut self) -> anyhow::Result<bool> {
        match self.words.next(Duration::ZERO) {
            Word::None => Ok(true),
            word => match self.judge(word, Duration::ZERO)? {
                Told::Ended => Ok(false),
                _ => bail!("the plane ended by itself: please report this"),
            },
        }
    }

    /// Ends it: what it has counted.
    ///
    /// # Errors
    /// It did not end as it was to.
    pub fn stop(mut self) -> anyhow::Result<Written> {
        let _ = rustix::net::shutdown(&self.control, Shutdown::Write);
        let Told::Ended = self.hear(ENDS_WITHIN)? else {
            bail!("the plane said something else than that it ended: please report this");
        };
        let mut text = Vec::new();
        self.report.rewind().context("reading the plane's report")?;
        Read::by_ref(&mut self.report)
            .take(REPORT_MAX)
            .read_to_end(&mut text)
            .context("reading the plane's report")?;
        let written: Written =
            serde_json::from_slice(&text).context("reading the plane's report")?;
        self.program.end(Instant::now() + ENDS_WITHIN).context("waiting for the plane's end")?;
        self.copies.end();
        Ok(Written { text: plain(&written.text), ..written })
    }

    /// The plane's next word, within a time.
    fn hear(&mut self, within: Duration) -> anyhow::Result<Told> {
        let word = self.words.next(within);
        self.judge(word, within)
    }

    fn judge(&mut self, word: Word<Told>, within: Duration) -> anyhow::Result<Told> {
        match word {
            Word::None => {
                self.program.begin_to_kill();
                bail!("the plane did not answer within {} s, and was killed", within.as_secs());
            }
            Word::Broken(why) => {
                self.program.begin_to_kill();
                bail!("the plane broke the protocol, and was killed: {why}; please report this");
            }
            Word::Said(Told::Failed(causes)) => Err(failure("the plane", &causes)),
            Word::Said(told) => Ok(told),
            Word::HungUp => {
                let status = self
                    .program
                    .end(Instant::now() + ENDS_WITHIN)
                    .context("waiting for the plane's end")?;
                bail!("the plane ended without a word ({status}): please report this")
            }
        }
    }
}

/// The [`Take`](service::split::words::Take) of a plane's words: none has a descriptor.
fn said(told: Told, descriptor: Option<OwnedFd>) -> Result<Told, String> {
    match descriptor {
        Some(_) => Err("it sent a descriptor".to_owned()),
        None => Ok(told),
    }
}

/// Text of a process that is not trusted, for a terminal, line by line.
fn plain(text: &str) -> String {
    text.lines().map(|line| printable(line) + "\n").collect()
}
