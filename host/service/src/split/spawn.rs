//! Starting a dataplane, which is this program.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, ExitStatus};

use anyhow::Context;
use runtime::set_realtime;
use sandbox::Groups;

use super::bounds::{self, Bounds};
use super::control::pair;
use crate::application::{End, Exhausted, Program};
use crate::config::RunConfig;
use crate::identity::{self, Boxed};
use crate::terminal::Copies;

/// A dataplane that waits for its first order.
#[derive(Debug)]
pub struct Started {
    /// The process.
    pub program: Program,
    /// This end of its control socket.
    pub control: OwnedFd,
    /// What it is kept from.
    pub taken: Vec<String>,
    /// What protection it lacks, and why.
    pub missing: Vec<String>,
    /// Its control groups, and its memory.
    pub memory: MemoryBound,
    /// The processors that its control groups hold.
    pub bounds: Bounds,
}

/// The control groups of a process, and the limit of memory in them.
#[derive(Debug)]
pub struct MemoryBound {
    /// To be kept until the process has ended.
    pub groups: Groups,
    /// The configuration's key of the limit.
    pub key: &'static str,
    /// The limit, in bytes.
    pub bytes: Option<u64>,
}

impl MemoryBound {
    /// How a process of these groups ended.
    pub fn end_of(&self, status: ExitStatus) -> End {
        let killed = self.groups.killed_for_memory().filter(|&killed| killed > 0);
        let exhausted = self.bytes.zip(killed).map(|(bytes, killed)| Exhausted {
            key: self.key,
            limit_mb: bytes >> 20,
            killed,
        });
        End { status, exhausted }
    }
}

/// Starts the dataplane of a configuration, which is the program `own` and prints through `copies`; its control groups
/// have this name.
///
/// # Errors
/// It cannot be started.
pub fn dataplane(
    name: &str,
    config: &RunConfig,
    own: &Path,
    copies: &mut Copies,
) -> anyhow::Result<Started> {
    let mut boxed = identity::dataplane(&config.dataplane, own, identity::is_root())?;
    let cpus = bounds::begins_on(&config.dataplane);
    boxed.limits.cpuset.clone_from(&cpus);
    let groups = boxed.make_groups(name);
    let bounds = Bounds::new(groups.cpuset(), cpus.as_deref());
    let (program, control) = at_priority(config.dataplane.realtime(), || {
        start(own, &["dataplane"], &boxed, copies).context("cannot start the dataplane")
    })?;
    let Boxed { taken, missing, limits, .. } = boxed;
    let memory = MemoryBound { groups, key: "dataplane.memory_mb", bytes: limits.memory_bytes };
    Ok(Started { program, control, taken, missing, memory, bounds })
}

/// Starts the program `own`, which is this one, in a box. Of the starter's it has the other end of the control socket that
/// is answered, as its input, and pipes for what it prints.
///
/// # Errors
/// It cannot be started.
pub fn start(
    own: &Path,
    arguments: &[&str],
    boxed: &Boxed,
    copies: &mut Copies,
) -> anyhow::Result<(Program, OwnedFd)> {
    let (control, theirs) = pair()?;
    let mut command = Command::new(own);
    command.args(arguments).env_clear().stdin(theirs);
    copies.of(&mut command).context("making pipes for its output")?;
    Ok((Program::from(boxed.confinement.spawn(command, &[])?), control))
}

/// Has what `spawn` starts run at the elastic threads' real-time priority, or the one above, which is for what looks
/// after them. It may lower that for its threads, and needs no right to raise it: a process that may not change its
/// resource limits' upper bounds (`CAP_SYS_RESOURCE`) cannot give such a right.
fn at_priority<R: Send>(
    realtime: u8,
    spawn: impl FnOnce() -> anyhow::Result<R> + Send,
) -> anyhow::Result<R> {
    if realtime == 0 {
        return spawn();
    }
    let inherited = || {
        set_realtime(realtime.saturating_add(1).min(99))?;
        spawn()
    };
    // A thread that ends with this: the starter itself keeps its place behind all others. (The dataplane does not die
    // with the thread that started it.)
    std::thread::scope(|scope| {
        let started = scope.spawn(inherited).join();
        started.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
