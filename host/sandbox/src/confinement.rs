//! What is taken from a child before its program starts ([`Confinement::spawn`]), as plain data.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::PidfdFlags;
use rustix::thread::CapabilitySet;

use crate::files::{Files, FilesPlan};
use crate::limits::Limits;
use crate::policy::SyscallPolicy;
use crate::root::{Root, RootPlan};
use crate::unsafe_processes::ForChildren;
use crate::unsafe_steps::{Passed, Prepared, hold_number, install, run_before_exec};
use crate::{SandboxError, Step};

/// The lowest number that a descriptor can be passed as: below are input, output and error, which are
/// [`Command`]'s.
pub const FIRST_TARGET: i32 = 3;

/// The highest: below the usual limit of 1024 open files, with room for the numbers that a start takes
/// above the targets.
pub const LAST_TARGET: i32 = 767;

/// What a process keeps. Always taken, whatever is set: every capability, new privileges by `exec`, core
/// files, lower niceness, and (where a child is started) every descriptor that is not listed.
#[derive(Clone, Debug, Default)]
pub struct Confinement {
    groups: Vec<Arc<OwnedFd>>,
    identity: Option<(u32, u32)>,
    limits: Limits,
    nice: Option<i32>,
    realtime: Option<u8>,
    root: Root,
    files: Option<Files>,
    own_network: bool,
    own_processes: bool,
    outlives_parent: bool,
    policies: Vec<SyscallPolicy>,
}

impl Confinement {
    /// No identity, root, network or policy of its own; dies with its starter; a session of its own.
    pub fn new() -> Self {
        Self::default()
    }

    /// A dataplane's: [`SyscallPolicy::dataplane`], and what it needs until it calls
    /// [`enforce`](SyscallPolicy::enforce) with that, in two steps: with [threads](SyscallPolicy::with_threads) before
    /// it makes them, without when they run. It outlives its starter, to tell its peers that it ends.
    ///
    /// With an [identity](Self::identity) of its own, [limits](Self::limits) for its size and
    /// [nothing but its program](Self::alone_with), where the starter can give these.
    pub fn dataplane() -> Self {
        let policy = SyscallPolicy::dataplane().with_threads().with_joining().with_startup();
        Self::new().syscalls(policy).outlives_parent()
    }

    /// Another user and group, and no supplementary groups. Needs root. Give each box a user of its
    /// own: two processes of one user can signal each other, and share the limit of processes.
    pub fn identity(mut self, user: u32, group: u32) -> Self {
        self.identity = Some((user, group));
        self
    }

    /// Resource limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// CPU niceness, -20 to 19; below the starter's needs root.
    pub fn nice(mut self, nice: i32) -> Self {
        self.nice = Some(nice);
        self
    }

    /// Real-time priority (`SCHED_FIFO`, 1 to 99), which its threads inherit and may lower. Needs `CAP_SYS_NICE`. 0: none,
    /// whatever the starter has.
    pub fn realtime(mut self, priority: u8) -> Self {
        self.realtime = Some(priority);
        self
    }

    /// Joins a control group before all else: `procs` is its `cgroup.procs`, open for writing. Once for each
    /// hierarchy. What the process starts begins in the same groups.
    pub fn group(mut self, procs: Arc<OwnedFd>) -> Self {
        self.groups.push(procs);
        self
    }

    /// A PID namespace of its own, a namespace of its own for System V objects and message queues, and a `/proc` that
    /// shows nothing else where it has the host's root. Needs root; for [`spawn`](Self::spawn).
    ///
    /// The process that `spawn` answers is the namespace's first: it reaps, and ends as soon as the program has
    /// ended, which runs as its child ([`Standing::of_program`](crate::Standing::of_program)). With the first process
    /// the kernel kills all others of the namespace, however many forks away: no descendant outlives the program, and
    /// none can undo the death with the starter. The answered process exits with the program's code, or with 128 and
    /// the number of the signal that killed the program.
    pub fn own_processes(mut self) -> Self {
        self.own_processes = true;
        self
    }

    /// Landlock rules: which files it may open, and how. Needs Linux 5.13 ([`Files::version`]).
    pub fn files(mut self, files: Files) -> Self {
        self.files = Some(files);
        self
    }

    /// The files that it can reach. Anything but [`Root::Host`] needs root.
    pub fn root(mut self, root: Root) -> Self {
        self.root = root;
        self
    }

    /// A network namespace of its own with nothing in it, not even a loopback that is up. Sockets that
    /// are passed keep working: they belong to the namespace they were made in. Needs root.
    pub fn own_network(mut self) -> Self {
        self.own_network = true;
        self
    }

    /// No file but `program` and what it needs to start, and no network: [`root`](Self::root) and
    /// [`own_network`](Self::own_network). Needs root.
    ///
    /// # Errors
    /// The program cannot be read.
    pub fn alone_with(self, program: &Path) -> Result<Self, SandboxError> {
        Ok(self.root(Root::for_program(program)?).own_network())
    }

    /// Lives on when its starter dies.
    pub fn outlives_parent(mut self) -> Self {
        self.outlives_parent = true;
        self
    }

    /// The system calls that it may make: this list, in place of those that were given before.
    pub fn syscalls(mut self, policy: SyscallPolicy) -> Self {
        self.policies = vec![policy];
        self
    }

    /// The same, and no call that an earlier list refuses. Each earlier one has to allow `seccomp`, by which the next one
    /// comes in force.
    pub fn also_syscalls(mut self, policy: SyscallPolicy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Starts a program with nothing but this: the steps of [`Step`] happen between `fork` and `exec`,
    /// and a child that fails one never starts the program. Each descriptor is passed as the number
    /// beside it; all others but 0, 1 and 2 are closed.
    ///
    /// The system call filter is in force *across* the start, so it must allow `execve` and what the loader
    /// needs: a filter has no memory, and cannot allow one `execve` and no second. A second one gains
    /// nothing (filter, limits, identity and the lack of capabilities stay), but a program that is ours
    /// does better: start it under [`SyscallPolicy::with_startup`], and let it call
    /// [`SyscallPolicy::enforce`] with the bare policy as its first act.
    ///
    /// The death of a starter is that of the *thread* that called this (`prctl(2)`, `PR_SET_PDEATHSIG`):
    /// call it from a thread that lives as long as the child shall.
    ///
    /// The child is the caller's to wait for; see [`Watched`](crate::Watched).
    ///
    /// # Errors
    /// [`SandboxError::Step`] for the step that failed; else what is asked for that there cannot be.
    pub fn spawn(
        &self,
        mut command: Command,
        descriptors: &[(BorrowedFd<'_>, i32)],
    ) -> Result<Child, SandboxError> {
        check_targets(descriptors)?;
        if self.policies.iter().any(|policy| !policy.allows("execve")) {
            return Err(SandboxError::refused(
                "start a program under this system call policy",
                "it refuses execve",
                "allow it, or use SyscallPolicy::with_startup and let the program call SyscallPolicy::enforce when \
                 it has started",
            ));
        }
        let mut prepared = self.prepare()?;
        prepared.above_targets =
            descriptors.iter().map(|(_, target)| target + 1).max().unwrap_or(FIRST_TARGET);
        prepared.passed = descriptors
            .iter()
            .map(|(source, target)| Passed { source: source.as_raw_fd(), target: *target })
            .collect();
        prepared.parked = vec![-1; descriptors.len()];

        let (told, report) = report_pipe(prepared.above_targets)?;
        let placeholders = hold_targets(descriptors, told.as_fd())?;
        run_before_exec(&mut command, prepared, report);
        let started = ForChildren::enter(self.own_processes)
            .map_err(|errno| SandboxError::Step { step: Step::Processes, errno })
            .map(|namespace| {
                let started = command.spawn();
                (started, namespace.leave())
            });
        drop(placeholders);
        // The write end went with the hook: now the pipe ends where nothing was told.
        drop(command);
        let (started, left) = started?;
        let mut child = started.map_err(|e| failure(&told, &e))?;
        match left {
            Ok(()) => Ok(child),
            // The thread could start nothing that is not in that namespace any more.
            Err(errno) => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(SandboxError::Step { step: Step::Processes, errno })
            }
        }
    }

    fn prepare(&self) -> Result<Prepared, SandboxError> {
        let capabilities = rustix::thread::capabilities(None)
            .map_err(|errno| SandboxError::Step { step: Step::Capabilities, errno })?;
        let parent = Some(rustix::process::getpid()).filter(|_| !self.outlives_parent);
        let watch = parent.filter(|_| self.own_processes).map(|parent| {
            rustix::process::pidfd_open(parent, PidfdFlags::empty())
                .map_err(|errno| SandboxError::Step { step: Step::ParentDeath, errno })
        });
        Ok(Prepared {
            groups: self.groups.clone(),
            passed: Vec::new(),
            above_targets: FIRST_TARGET,
            parked: Vec::new(),
            own_network: self.own_network,
            root: RootPlan::of(&self.root)?,
            own_processes: self.own_processes,
            nice: self.nice,
            realtime: self.realtime,
            limits: self.limits.list(),
            // Without it the bounding set stays, and means nothing: no_new_privs stops `exec` from
            // giving anything out of it.
            may_bound: capabilities.effective.contains(CapabilitySet::SETPCAP),
            identity: self.identity,
            files: self.files.as_ref().map(FilesPlan::of).transpose()?,
            parent,
            parent_watch: watch.transpose()?,
            filters: self
                .policies
                .iter()
                .map(|policy| policy.compile(None))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl SyscallPolicy {
    /// Puts the policy in force for the calling process, all threads, for ever, and makes it not
    /// dumpable (`exec` had made it so again). Needs no privilege. A filter that is in force already stays:
    /// what one of them refuses is refused.
    ///
    /// # Errors
    /// [`SandboxError::Step`], or a policy that is too long.
    pub fn enforce(&self) -> Result<(), SandboxError> {
        let program = self.compile(Some(std::process::id()))?;
        let failed = |step| move |errno| SandboxError::Step { step, errno };
        rustix::thread::set_no_new_privs(true).map_err(failed(Step::NoNewPrivileges))?;
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
            .map_err(failed(Step::NotDumpable))?;
        install(&program, true).map_err(failed(Step::Filter))
    }
}

fn check_targets(descriptors: &[(BorrowedFd<'_>, i32)]) -> Result<(), SandboxError> {
    for (i, (_, number)) in descriptors.iter().enumerate() {
        let reason = if *number < FIRST_TARGET {
            "0, 1 and 2 are the standard streams: use Command::stdin, stdout, stderr"
        } else if *number > LAST_TARGET {
            "it is above LAST_TARGET: use a lower number"
        } else if descriptors[..i].iter().any(|(_, other)| other == number) {
            "two descriptors are to have it: give each its own"
        } else {
            continue;
        };
        return Err(SandboxError::Refused(format!(
            "could not pass a descriptor as number {number}: {reason}"
        )));
    }
    Ok(())
}

/// A pipe in which a child tells its failed step, both ends above every target.
fn report_pipe(above: RawFd) -> Result<(OwnedFd, OwnedFd), SandboxError> {
    let failed = |errno| SandboxError::Step { step: Step::Descriptors, errno };
    let (read, write) =
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(failed)?;
    let up = |end: OwnedFd| rustix::io::fcntl_dupfd_cloexec(end, above).map_err(failed);
    Ok((up(read)?, up(write)?))
}

/// Occupies the targets in the starter, so that the pipe by which the standard library learns of a
/// failed `exec` is on none of them.
fn hold_targets(
    descriptors: &[(BorrowedFd<'_>, i32)],
    like: BorrowedFd<'_>,
) -> Result<Vec<OwnedFd>, SandboxError> {
    let mut held = Vec::with_capacity(descriptors.len());
    for (_, target) in descriptors {
        let failed = |errno| SandboxError::Step { step: Step::Descriptors, errno };
        held.extend(hold_number(like, *target).map_err(failed)?);
    }
    Ok(held)
}

/// The step that a child told, or else the start of its program.
fn failure(told: &OwnedFd, found: &std::io::Error) -> SandboxError {
    let mut byte = [0];
    let step = match rustix::io::read(told, &mut byte) {
        Ok(1) => Step::from_repr(byte[0]).unwrap_or(Step::Exec),
        // Nothing was told: every step went well.
        Ok(_) | Err(_) => Step::Exec,
    };
    SandboxError::Step { step, errno: Errno::from_io_error(found).unwrap_or(Errno::IO) }
}

#[cfg(test)]
mod tests {
    use rustix::process::Pid;

    use super::*;

    #[test]
    fn a_starter_that_died_before_is_noticed() {
        let mut prepared = Confinement::new().prepare().expect("nothing is asked for");
        // No process has so high a number: the child's starter is another than it was told.
        prepared.parent = Pid::from_raw(1 << 30);
        let (told, report) = report_pipe(FIRST_TARGET).expect("a pipe");
        let mut command = Command::new("true");
        run_before_exec(&mut command, prepared, report);
        let found = failure(&told, &command.spawn().expect_err("no child"));
        assert!(found.to_string().contains("find the starter alive"), "{found}");
    }
}
