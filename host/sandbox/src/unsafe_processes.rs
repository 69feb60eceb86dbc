//! A PID namespace for a program, and the first process of it; Landlock's system calls.
//!
//! Like the other steps: what runs in the forked child makes system calls only.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::PidfdFlags;
use rustix::thread::UnshareFlags;

use crate::unsafe_calls::{check, last_errno, unshare};

/// The number of the highest signal (`_NSIG`).
const LAST_SIGNAL: libc::c_int = 64;
/// What a shell adds to the number of a signal for an exit code.
const KILLED: libc::c_int = 128;

/// The calling thread's next children are in a PID namespace of their own, until it leaves again.
pub(crate) struct ForChildren {
    /// This process, whose namespace the thread returns to.
    own: Option<OwnedFd>,
}

impl ForChildren {
    /// Makes a namespace for the next children where `wanted`, else changes nothing.
    pub fn enter(wanted: bool) -> Result<Self, Errno> {
        if !wanted {
            return Ok(Self { own: None });
        }
        let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
        unshare(UnshareFlags::NEWPID)?;
        Ok(Self { own: Some(own) })
    }

    /// The next children are in this process's namespace again.
    pub fn leave(self) -> Result<(), Errno> {
        let Some(own) = self.own else { return Ok(()) };
        // SAFETY: changes where the calling thread's next children are, and nothing of its own.
        check(unsafe { libc::setns(own.as_raw_fd(), libc::CLONE_NEWPID) }.into()).map(|_| ())
    }
}

/// Mounts a `/proc` that shows the caller's PID namespace alone. The caller is alone in its mount namespace, which
/// goes on to see what the host mounts later.
pub(crate) fn show_own() -> Result<(), Errno> {
    let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", downstream)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount(c"proc", c"/proc", c"proc", flags, None)
}

/// Forks: returns in the child. The parent, first of its PID namespace, reaps what is left to it until the child has
/// ended, and then ends, with the child's exit code.
pub(crate) fn leave_to_child() -> Result<(), Errno> {
    // SAFETY: as `fork`: the child has a copy of this memory, where the calling thread is the only one, and no lock
    // is taken on the way (which is why this is not libc's). It goes on to `exec`.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    match check(child)? {
        0 => Ok(()),
        child => reap_until_end(child as libc::pid_t),
    }
}

fn reap_until_end(child: libc::pid_t) -> ! {
    // SAFETY: system calls with integers and pointers to locals. Every descriptor is closed, and nothing that owned
    // one runs any more: this process never returns from here.
    unsafe {
        libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
        libc::prctl(libc::PR_SET_NAME, c"tailplane-init".as_ptr());
        // The starter's handlers are of no use here. The kernel gives the first process no signal that it leaves to
        // the default, but SIGKILL and SIGSTOP from outside.
        for signal in 1..=LAST_SIGNAL {
            libc::signal(signal, libc::SIG_DFL);
        }
        loop {
            let mut status = 0;
            let ended = libc::waitpid(-1, &mut status, libc::__WALL);
            if ended == child && libc::WIFEXITED(status) {
                libc::_exit(libc::WEXITSTATUS(status));
            }
            if ended == child && libc::WIFSIGNALED(status) {
                libc::_exit(KILLED + libc::WTERMSIG(status));
            }
            if ended == -1 && last_errno() != Errno::INTR {
                libc::_exit(libc::EXIT_FAILURE);
            }
        }
    }
}

/// `struct landlock_ruleset_attr` of linux/landlock.h.
#[repr(C)]
struct RulesetAttributes {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr` of linux/landlock.h.
#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

const RULE_PATH_BENEATH: libc::c_int = 1;
const CREATE_RULESET_VERSION: libc::c_uint = 1;

/// The version of Landlock that the kernel enforces; 0 for none.
pub(crate) fn landlock_version() -> u32 {
    let none = std::ptr::null::<RulesetAttributes>();
    // SAFETY: asks for the version; nothing is pointed to.
    let answer = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, CREATE_RULESET_VERSION)
    };
    u32::try_from(answer).unwrap_or(0)
}

/// A set of rules without a rule: every access that it handles is refused.
pub(crate) fn ruleset(handled: u64, scoped: u64) -> Result<OwnedFd, Errno> {
    let attributes =
        RulesetAttributes { handled_access_fs: handled, handled_access_net: 0, scoped };
    let size = size_of::<RulesetAttributes>();
    // SAFETY: points to a local value of the size that is given.
    let answer =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, size, 0) };
    let number = check(answer)? as RawFd;
    // SAFETY: the kernel has just made the descriptor for the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Allows accesses at and below what `file` is.
pub(crate) fn allow(rules: &OwnedFd, file: &OwnedFd, access: u64) -> Result<(), Errno> {
    let beneath = PathBeneath { allowed_access: access, parent_fd: file.as_raw_fd() };
    // SAFETY: points to a local value of the kind that is named.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            rules.as_raw_fd(),
            RULE_PATH_BENEATH,
            &raw const beneath,
            0,
        )
    };
    check(answer).map(|_| ())
}

/// Puts the rules in force for the calling thread and what it starts.
pub(crate) fn restrict(rules: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: integers only.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) })
        .map(|_| ())
}
