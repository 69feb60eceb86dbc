//! The steps in which a process is confined, in their order, and what to do where one fails.
//!
//! A step's number travels from the child to its starter in one byte, because between `fork` and `exec`
//! nothing richer may be made (no allocation).

use rustix::io::Errno;

/// One step of a confinement. The order of the variants is the order of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Step {
    /// The control groups.
    ControlGroups = 1,
    /// A session of its own, so that no terminal is its controlling one.
    Session,
    /// Listed descriptors to their numbers, all others closed at `exec`.
    Descriptors,
    /// An own, empty network namespace.
    Network,
    /// An own mount namespace with its own read-only root.
    Root,
    /// An own PID namespace, with a `/proc` that shows it.
    Processes,
    /// The Landlock rules for files.
    Files,
    /// CPU niceness.
    Nice,
    /// The real-time priority.
    Realtime,
    /// Resource limits.
    Limits,
    /// The capability bounding and ambient sets emptied; secure bits locked.
    BoundingSet,
    /// No supplementary groups.
    Groups,
    /// The group id.
    GroupId,
    /// The user id.
    UserId,
    /// The permitted, effective and inheritable sets emptied.
    Capabilities,
    /// `no_new_privs`.
    NoNewPrivileges,
    /// No core dump, and no tracer of the same user.
    NotDumpable,
    /// Death with the starter.
    ParentDeath,
    /// The starter had died before that was in force.
    ParentGone,
    /// The system call filter.
    Filter,
    /// The start of the program itself.
    Exec,
}

impl Step {
    const ALL: [Self; 21] = [
        Self::ControlGroups,
        Self::Session,
        Self::Descriptors,
        Self::Network,
        Self::Root,
        Self::Processes,
        Self::Files,
        Self::Nice,
        Self::Realtime,
        Self::Limits,
        Self::BoundingSet,
        Self::Groups,
        Self::GroupId,
        Self::UserId,
        Self::Capabilities,
        Self::NoNewPrivileges,
        Self::NotDumpable,
        Self::ParentDeath,
        Self::ParentGone,
        Self::Filter,
        Self::Exec,
    ];

    /// The step of a byte that a child sent.
    pub(crate) fn of_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|step| *step as u8 == byte)
    }

    /// What the step was about to do: "could not ...".
    pub fn tried(self) -> &'static str {
        match self {
            Self::ControlGroups => "join its control groups",
            Self::Session => "start a session of its own",
            Self::Descriptors => "pass the listed descriptors and close the others",
            Self::Network => "make an empty network namespace",
            Self::Root => "make a read-only root with nothing but the listed files",
            Self::Processes => "make a PID namespace and a /proc that shows it",
            Self::Files => "restrict the files by Landlock rules",
            Self::Realtime => "set the real-time priority",
            Self::Nice => "set the CPU niceness",
            Self::Limits => "set the resource limits",
            Self::BoundingSet => "empty the capability bounding set",
            Self::Groups => "drop the supplementary groups",
            Self::GroupId => "change the group id",
            Self::UserId => "change the user id",
            Self::Capabilities => "empty the capability sets",
            Self::NoNewPrivileges => "set no_new_privs",
            Self::NotDumpable => "forbid dumps and tracing",
            Self::ParentDeath => "ask to die with the starter",
            Self::ParentGone => "find the starter alive",
            Self::Filter => "install the system call filter",
            Self::Exec => "start the program",
        }
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
        for (i, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(step as usize, i + 1);
            assert_eq!(Step::of_byte(step as u8), Some(step));
        }
        assert_eq!(Step::of_byte(0), None);
        assert_eq!(Step::of_byte(Step::ALL.len() as u8 + 1), None);
    }
}
