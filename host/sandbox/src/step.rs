//! The steps in which a process is confined, in their order, and what to do where one fails.
//!
//! A step's number travels from the child to its starter in one byte, because between `fork` and `exec`
//! nothing richer may be made (no allocation).

use rustix::io::Errno;

/// One step of a confinement. The order of the variants is the order of the steps.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::FromRepr, strum::IntoStaticStr,
)]
#[repr(u8)]
pub enum Step {
    /// The control groups.
    #[strum(serialize = "join its control groups")]
    ControlGroups = 1,
    /// A session of its own, so that no terminal is its controlling one.
    #[strum(serialize = "start a session of its own")]
    Session,
    /// Listed descriptors to their numbers, all others closed at `exec`.
    #[strum(serialize = "pass the listed descriptors and close the others")]
    Descriptors,
    /// An own, empty network namespace.
    #[strum(serialize = "make an empty network namespace")]
    Network,
    /// An own mount namespace with its own read-only root.
    #[strum(serialize = "make a read-only root with nothing but the listed files")]
    Root,
    /// An own PID namespace, with a `/proc` that shows it.
    #[strum(serialize = "make a PID namespace and a /proc that shows it")]
    Processes,
    /// The Landlock rules for files.
    #[strum(serialize = "restrict the files by Landlock rules")]
    Files,
    /// CPU niceness.
    #[strum(serialize = "set the CPU niceness")]
    Nice,
    /// The real-time priority.
    #[strum(serialize = "set the real-time priority")]
    Realtime,
    /// Resource limits.
    #[strum(serialize = "set the resource limits")]
    Limits,
    /// The capability bounding and ambient sets emptied; secure bits locked.
    #[strum(serialize = "empty the capability bounding set")]
    BoundingSet,
    /// No supplementary groups.
    #[strum(serialize = "drop the supplementary groups")]
    Groups,
    /// The group id.
    #[strum(serialize = "change the group id")]
    GroupId,
    /// The user id.
    #[strum(serialize = "change the user id")]
    UserId,
    /// The permitted, effective and inheritable sets emptied.
    #[strum(serialize = "empty the capability sets")]
    Capabilities,
    /// `no_new_privs`.
    #[strum(serialize = "set no_new_privs")]
    NoNewPrivileges,
    /// No core dump, and no tracer of the same user.
    #[strum(serialize = "forbid dumps and tracing")]
    NotDumpable,
    /// Death with the starter.
    #[strum(serialize = "ask to die with the starter")]
    ParentDeath,
    /// The starter had died before that was in force.
    #[strum(serialize = "find the starter alive")]
    ParentGone,
    /// The system call filter.
    #[strum(serialize = "install the system call filter")]
    Filter,
    /// The start of the program itself.
    #[strum(serialize = "start the program")]
    Exec,
}

impl Step {
    /// What the step was about to do: "could not ...".
    pub fn tried(self) -> &'static str {
        self.into()
    }

    /// What a person may do about `errno` at this step.
    pub fn advice(self, errno: Errno) -> &'static str {
        match (self, errno) {
            (Self::Exec, Errno::NOENT) => {
                "look at the program's path; with a root of its own, list the program, its loader \
                 and its libraries (Root::for_program)"
            }
            (Self::Exec, Errno::ACCESS) => {
                "the program and each folder above it must be readable and executable for the new user"
            }
            (Self::Exec, Errno::AGAIN) => {
                "the user has more processes than the limit: raise `processes`"
            }
            (Self::Exec, Errno::NOMEM) => {
                "the address space limit is smaller than the program: raise it"
            }
            (Self::Exec, Errno::PERM) => {
                "the system call filter refuses what the start needs: use SyscallPolicy::with_startup"
            }
            (Self::Exec, _) => "start the program by hand, as that user, to see what it lacks",
            (Self::Descriptors, Errno::BADF | Errno::INVAL | Errno::MFILE) => {
                "a descriptor is not open, or its number is above the starter's limit of open files"
            }
            (Self::ParentGone, _) => "nothing: without its starter the process must not run",
            (Self::ControlGroups, _) => {
                "the group must exist, and have processors (cpuset.cpus) and room (pids.max) for another process"
            }
            (Self::Files, Errno::NOSYS | Errno::OPNOTSUPP) => {
                "boot a kernel with CONFIG_SECURITY_LANDLOCK and `landlock` in lsm="
            }
            (Self::Processes, Errno::NOSPC) => "raise /proc/sys/user/max_pid_namespaces",
            (Self::Filter, Errno::NOSYS | Errno::INVAL) => {
                "the kernel must be built with CONFIG_SECCOMP_FILTER"
            }
            (Self::Network | Self::Root, Errno::NOSPC) => {
                "raise /proc/sys/user/max_net_namespaces and max_mnt_namespaces"
            }
            (_, Errno::PERM) => "start this as root, or leave this part of the confinement out",
            _ => "see the manual page of the system call for this error",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_names_its_step_and_no_other() {
        let steps: Vec<Step> = (1..=u8::MAX).map_while(Step::from_repr).collect();
        for (i, step) in steps.iter().enumerate() {
            assert_eq!(*step as usize, i + 1);
        }
        assert_eq!(steps.last(), Some(&Step::Exec));
        assert_eq!(Step::from_repr(0), None);
        assert_eq!(Step::from_repr(Step::Exec as u8 + 1), None);
    }
}
