//! The steps of a confinement, run between `fork` and `exec` of a child.
//!
//! Only system calls happen here: no allocation, no lock, no formatting, because a fork of a program with
//! threads may have caught a lock of the allocator held, for ever. Everything is made ready before
//! ([`Prepared`]); what fails is told as a [`Step`] and an error number.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, UnshareFlags};
use rustix::thread::{Gid, Uid};
use seccompiler::BpfProgram;

use crate::Step;
use crate::files::FilesPlan;
use crate::limits::MOST_LIMITS;
use crate::root::RootPlan;
use crate::unsafe_calls::{check, unshare};
use crate::unsafe_processes;

/// A descriptor on its way: from the starter's number, over one that nobody wants, to the child's.
pub(crate) struct Passed {
    pub source: RawFd,
    pub target: RawFd,
}

/// A confinement, ready to be carried out without another allocation.
pub(crate) struct Prepared {
    /// `cgroup.procs` of each group that the process joins, open for writing.
    pub groups: Vec<Arc<OwnedFd>>,
    pub passed: Vec<Passed>,
    /// Numbers from here on are nobody's target. As long as `passed`, filled in the child.
    pub above_targets: RawFd,
    pub parked: Vec<RawFd>,
    pub own_network: bool,
    pub root: Option<RootPlan>,
    /// The process is the first of a new PID namespace: it sees to the others, its child runs the program.
    pub own_processes: bool,
    pub nice: Option<i32>,
    /// `SCHED_FIFO` priority; 0: `SCHED_OTHER`.
    pub realtime: Option<u8>,
    pub limits: [Option<(Resource, Rlimit)>; MOST_LIMITS],
    /// Whether the caller may take capabilities out of its bounding set.
    pub may_bound: bool,
    pub identity: Option<(u32, u32)>,
    /// The Landlock rules.
    pub files: Option<FilesPlan>,
    /// The process whose death is ours.
    pub parent: Option<Pid>,
    /// The same process, for a child whose PID namespace has no number for it.
    pub parent_watch: Option<OwnedFd>,
    pub filters: Vec<BpfProgram>,
}

impl Prepared {
    /// Carries out every step in order, the filters last: under it, most of the others would be refused.
    pub(crate) fn run(&mut self) -> Result<(), (Step, Errno)> {
        let at = |step| move |errno| (step, errno);
        // A group that limits processor time takes in no thread with a real-time priority.
        if let Some(priority) = self.realtime {
            set_realtime(priority).map_err(at(Step::Realtime))?;
        }
        for group in &self.groups {
            // cgroups(7): 0 is the writing process.
            rustix::io::write(&**group, b"0").map_err(at(Step::ControlGroups))?;
        }
        match rustix::process::setsid() {
            // The leader of a process group cannot, and then the caller has arranged its groups.
            Ok(_) | Err(Errno::PERM) => {}
            Err(errno) => return Err((Step::Session, errno)),
        }
        self.pass_descriptors().map_err(at(Step::Descriptors))?;
        if self.own_network {
            unshare(UnshareFlags::NEWNET).map_err(at(Step::Network))?;
        }
        // System V objects and message queues stay until their namespace goes: with this one when its last process ends.
        if self.own_processes {
            unshare(UnshareFlags::NEWIPC).map_err(at(Step::Processes))?;
        }
        if let Some(root) = &self.root {
            unshare(UnshareFlags::NEWNS).and_then(|()| root.enter()).map_err(at(Step::Root))?;
        } else if self.own_processes {
            unshare(UnshareFlags::NEWNS)
                .and_then(|()| unsafe_processes::show_own())
                .map_err(at(Step::Processes))?;
        }
        let files =
            self.files.as_ref().map(FilesPlan::make).transpose().map_err(at(Step::Files))?;
        if let Some(nice) = self.nice {
            rustix::process::setpriority_process(None, nice).map_err(at(Step::Nice))?;
        }
        for (resource, limit) in self.limits.iter().flatten() {
            rustix::process::setrlimit(*resource, *limit).map_err(at(Step::Limits))?;
        }
        self.drop_privileges()?;
        // A change of identity forgets both of these, so they come after it.
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
            .map_err(at(Step::NotDumpable))?;
        if let Some(parent) = self.parent {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
                .map_err(at(Step::ParentDeath))?;
            // It may have died before the request: then no signal comes, and a reaper is our parent.
            let gone = match &self.parent_watch {
                Some(watch) => has_ended(watch),
                None => rustix::process::getppid() != Some(parent),
            };
            if gone {
                return Err((Step::ParentGone, Errno::SRCH));
            }
        }
        if let Some(files) = files {
            unsafe_processes::restrict(&files).map_err(at(Step::Files))?;
        }
        if self.own_processes {
            // The caller goes on as the program; its parent, which it leaves behind, ends with it.
            unsafe_processes::leave_to_child().map_err(at(Step::Processes))?;
        }
        // Each further one goes through those before it, and what one of them refuses is refused.
        for filter in &self.filters {
            // After `fork` the calling thread is all there are.
            install(filter, false).map_err(at(Step::Filter))?;
        }
        Ok(())
    }

    fn drop_privileges(&self) -> Result<(), (Step, Errno)> {
        let at = |step| move |errno| (step, errno);
        // The order is forced: the bounding set while CAP_SETPCAP is there, groups before the user.
        if self.may_bound {
            empty_bounding_set().map_err(at(Step::BoundingSet))?;
            // A user id of 0 gives nothing any more, and this cannot be taken back.
            let bits = CapabilitiesSecureBits::NO_ROOT
                | CapabilitiesSecureBits::NO_ROOT_LOCKED
                | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
                | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
                | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
            rustix::thread::set_capabilities_secure_bits(bits).map_err(at(Step::BoundingSet))?;
        }
        rustix::thread::clear_ambient_capability_set().map_err(at(Step::BoundingSet))?;
        if let Some((user, group)) = self.identity {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            rustix::thread::set_thread_groups(&[]).map_err(at(Step::Groups))?;
            rustix::thread::set_thread_res_gid(group, group, group).map_err(at(Step::GroupId))?;
            rustix::thread::set_thread_res_uid(user, user, user).map_err(at(Step::UserId))?;
        }
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, sets).map_err(at(Step::Capabilities))?;
        rustix::thread::set_no_new_privs(true).map_err(at(Step::NoNewPrivileges))
    }

    /// Every descriptor closes at `exec` but 0, 1, 2 and the targets. They are not closed here: one of
    /// them is the standard library's, by which the starter learns of a failed `exec`.
    fn pass_descriptors(&mut self) -> Result<(), Errno> {
        close_at_exec()?;
        // All away from the targets first: a source may be another's target.
        for (passed, parked) in self.passed.iter().zip(&mut self.parked) {
            // SAFETY: duplicates a number to a new one; the caller holds `source` open meanwhile.
            let answer =
                unsafe { libc::fcntl(passed.source, libc::F_DUPFD_CLOEXEC, self.above_targets) };
            *parked = check(answer.into())? as RawFd;
        }
        for (passed, parked) in self.passed.iter().zip(&self.parked) {
            // SAFETY: in the forked child, where `target` is nobody's: the starter took care that the
            // number was a placeholder's or a listed source's (moved above) when the child was made.
            check(unsafe { libc::dup3(*parked, passed.target, 0) }.into())?;
        }
        Ok(())
    }
}

/// Has every descriptor but 0, 1 and 2 close at `exec`.
fn close_at_exec() -> Result<(), Errno> {
    const FIRST: u32 = 3;
    // SAFETY: marks descriptors; closes none, so no owner of one is disturbed.
    let answer =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    match check(answer) {
        // Linux 5.10 cannot mark them all at once; older containers refuse calls that they do not know.
        Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) => {
            mark_each(FIRST as RawFd);
            Ok(())
        }
        answer => answer.map(drop),
    }
}

/// Has every descriptor from this one on close at `exec`, one by one.
fn mark_each(first: RawFd) {
    /// `fs.nr_open`, unless somebody has raised it: no descriptor has this number.
    const END: RawFd = 1 << 20;
    for descriptor in first..END {
        // SAFETY: marks a descriptor, or is refused where there is none.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Whether the process of this pidfd has ended.
fn has_ended(watch: &OwnedFd) -> bool {
    let mut asked = [PollFd::new(watch, PollFlags::IN)];
    !matches!(poll(&mut asked, Some(&Timespec::default())), Ok(0))
}

/// Gives the calling thread `SCHED_FIFO`, which threads and processes of its making inherit, or with 0 `SCHED_OTHER`.
fn set_realtime(priority: u8) -> Result<(), Errno> {
    let policy = if priority == 0 { libc::SCHED_OTHER } else { libc::SCHED_FIFO };
    let parameters = libc::sched_param { sched_priority: priority.into() };
    // SAFETY: the pointer is to a local value; 0 names the calling thread.
    let answer = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    check(answer.into()).map(|_| ())
}

/// Drops every capability that the kernel knows, and so those that this crate does not.
fn empty_bounding_set() -> Result<(), Errno> {
    const MOST_CAPABILITIES: libc::c_ulong = 64;
    for capability in 0..MOST_CAPABILITIES {
        // SAFETY: a call with integers only.
        let answer = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        match check(answer.into()) {
            Ok(_) => {}
            // Above the last one that there is.
            Err(Errno::INVAL) if capability > 0 => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Installs a filter on the calling thread, or on all threads of the process.
pub(crate) fn install(filter: &BpfProgram, whole_process: bool) -> Result<(), Errno> {
    let done = match whole_process {
        true => seccompiler::apply_filter_all_threads(filter),
        false => seccompiler::apply_filter(filter),
    };
    match done {
        Ok(()) => Ok(()),
        Err(seccompiler::Error::Seccomp(e) | seccompiler::Error::Prctl(e)) => {
            Err(Errno::from_io_error(&e).unwrap_or(Errno::IO))
        }
        // A thread has a filter that is not an ancestor of ours.
        Err(seccompiler::Error::ThreadSync(_)) => Err(Errno::BUSY),
        Err(_) => Err(Errno::INVAL),
    }
}

/// Lets the child of `command` run the steps before its program; a failed one is told through `report`.
pub(crate) fn run_before_exec(command: &mut Command, mut prepared: Prepared, report: OwnedFd) {
    let hook = move || {
        prepared.run().map_err(|(step, errno)| {
            // A starter that is gone or a full pipe cannot be told; the child ends all the same.
            let _ = rustix::io::write(&report, &[step as u8]);
            std::io::Error::from(errno)
        })
    };
    // SAFETY: the hook makes system calls on memory made before the fork: it allocates nothing
    // (`io::Error::from` of an error number holds the number), takes no lock and does not unwind.
    unsafe {
        command.pre_exec(hook);
    }
}

/// A placeholder on `number`, so that nothing else gets it while a child is made; `None` where the
/// number is taken already.
pub(crate) fn hold_number(like: BorrowedFd<'_>, number: RawFd) -> Result<Option<OwnedFd>, Errno> {
    let held = rustix::io::fcntl_dupfd_cloexec(like, number)?;
    Ok((held.as_raw_fd() == number).then_some(held))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no fcntl that sets a descriptor's flags")]
    fn descriptors_are_marked_one_by_one_where_the_kernel_cannot_mark_all() {
        let file = File::open("/dev/null").expect("every machine has it");
        fcntl_setfd(&file, FdFlags::empty()).expect("its flags can be set");
        mark_each(3);
        assert_eq!(fcntl_getfd(&file).expect("its flags can be read"), FdFlags::CLOEXEC);
    }
}
