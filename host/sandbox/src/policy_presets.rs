//! The policies that come with the crate: what a dataplane needs, what any program's start needs, and what no
//! application needs.
//!
//! A change of the dataplane's list belongs beside a reason: each call is surface that a broken-into
//! dataplane reaches the kernel by.

use crate::policy::{ArgTest, SyscallPolicy};
use ArgTest::{FutexIs, Is, IsNot, IsNull, IsOwnPid, With, Without};

const PROT_EXEC: u32 = libc::PROT_EXEC as u32;
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;
/// Reading only, and nothing made: the low two bits are the access mode.
const WRITES: u32 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u32;
/// linux/prctl.h: names a mapping, for people who read /proc/<pid>/maps.
const PR_SET_VMA: u32 = 0x5356_4d41;
/// linux/mman.h, from Linux 6.13 on: makes pages that fault, as newer C libraries guard threads' stacks.
const MADV_GUARD_INSTALL: u32 = 102;
const REALTIME_OF_ITS_OWN: u32 = (libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK) as u32;
/// linux/personality.h: what `personality` reads with, and changes nothing.
const PERSONALITY_READ: u32 = 0xffff_ffff;
/// No family of sockets that an application may make.
const RARE_FAMILIES: [ArgTest; 4] = [
    IsNot(0, libc::AF_UNIX as u32),
    IsNot(0, libc::AF_INET as u32),
    IsNot(0, libc::AF_INET6 as u32),
    IsNot(0, libc::AF_NETLINK as u32),
];

/// Calls with blanks between, and the tests that their arguments must pass all of; without a test, whatever they are.
/// Several rows for one call are alternatives.
type Rows = [(&'static str, &'static [ArgTest])];

/// What an elastic thread calls.
const DATAPLANE: &Rows = &[
    // Rings, control socket, eventfds and timers that are open already. A kick of an AF_XDP socket is
    // `sendto` or `recvfrom`.
    ("read write readv writev close lseek fstat", &[]),
    ("recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown getsockopt", &[]),
    ("eventfd2 timerfd_create timerfd_settime timerfd_gettime", &[]),
    // To the socket's peer, never to an address.
    ("sendto", &[IsNull(4)]),
    ("fcntl", &[Is(1, libc::F_GETFD as u32)]),
    ("fcntl", &[Is(1, libc::F_SETFD as u32)]),
    ("fcntl", &[Is(1, libc::F_GETFL as u32)]),
    ("fcntl", &[Is(1, libc::F_SETFL as u32)]),
    ("fcntl", &[Is(1, libc::F_DUPFD_CLOEXEC as u32)]),
    ("fcntl", &[Is(1, libc::F_GET_SEALS as u32)]),
    // Sleep and wake-up.
    ("poll ppoll epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2", &[]),
    ("nanosleep clock_nanosleep sched_yield restart_syscall", &[]),
    // To wait and to wake. Not with the inheritance of priorities, nor moving sleepers from one word to another.
    ("futex", &[FutexIs(libc::FUTEX_WAIT as u32)]),
    ("futex", &[FutexIs(libc::FUTEX_WAKE as u32)]),
    ("futex", &[FutexIs(libc::FUTEX_WAIT_BITSET as u32)]),
    ("futex", &[FutexIs(libc::FUTEX_WAKE_BITSET as u32)]),
    // Memory of its own.
    ("munmap mremap brk mlock mlock2 munlock mlockall munlockall", &[]),
    ("mmap mprotect", &[Without(2, PROT_EXEC)]),
    // To this process's own pages only: to give them back, to have large ones, to guard a thread's stack. Not to remove
    // them from a file that others have mapped (`MADV_REMOVE`).
    ("madvise", &[Is(2, libc::MADV_DONTNEED as u32)]),
    ("madvise", &[Is(2, libc::MADV_FREE as u32)]),
    ("madvise", &[Is(2, libc::MADV_HUGEPAGE as u32)]),
    ("madvise", &[Is(2, libc::MADV_NOHUGEPAGE as u32)]),
    ("madvise", &[Is(2, MADV_GUARD_INSTALL)]),
    // Clocks, where the vDSO does not answer; timers and signals of its own threads.
    ("clock_gettime clock_getres gettimeofday time", &[]),
    ("timer_create timer_settime timer_gettime timer_getoverrun timer_delete", &[]),
    ("rt_sigaction rt_sigprocmask rt_sigreturn rt_sigtimedwait rt_sigpending", &[]),
    ("rt_sigsuspend sigaltstack", &[]),
    ("tgkill", &[IsOwnPid(0)]),
    // Itself.
    ("getpid gettid getppid getuid geteuid getgid getegid getrandom getrusage getcpu", &[]),
    ("sched_getaffinity sched_getscheduler sched_getparam sched_getattr", &[]),
    ("sched_get_priority_max sched_get_priority_min", &[]),
    ("set_robust_list rseq exit exit_group", &[]),
    // Thread 0 is the calling one. No filter can read the mask, which is behind a pointer: the starter puts the
    // dataplane into a cpuset of the processors that its threads are placed on, and moves that first.
    ("sched_setaffinity", &[Is(0, 0)]),
    // Limits may be read, its own.
    ("prlimit64", &[Is(0, 0), IsNull(2)]),
    ("prctl", &[Is(0, libc::PR_SET_NAME as u32)]),
    ("prctl", &[Is(0, libc::PR_GET_NAME as u32)]),
    ("prctl", &[Is(0, libc::PR_GET_DUMPABLE as u32)]),
    ("prctl", &[Is(0, libc::PR_GET_NO_NEW_PRIVS as u32)]),
    ("prctl", &[Is(0, libc::PR_GET_PDEATHSIG as u32)]),
    ("prctl", &[Is(0, libc::PR_SET_TIMERSLACK as u32)]),
    ("prctl", &[Is(0, PR_SET_VMA)]),
];

/// What a dataplane calls until its threads run, besides.
const STARTING: &Rows = &[
    // Threads, no processes and no namespaces. The flags are the first argument on both processors.
    ("clone", &[With(0, libc::CLONE_THREAD as u32), Without(0, NEW_NAMESPACES)]),
    // A thread's own real-time priority, which what it starts does not inherit, or none; none for the first thread.
    // The priority itself, which is behind a pointer, is bounded by RLIMIT_RTPRIO: none above the inherited one.
    ("sched_setscheduler", &[Is(0, 0), Is(1, REALTIME_OF_ITS_OWN)]),
    ("sched_setscheduler", &[Is(0, 0), Is(1, libc::SCHED_OTHER as u32)]),
    ("sched_setscheduler", &[IsOwnPid(0), Is(1, libc::SCHED_OTHER as u32)]),
    // A further filter only, for all threads: `SECCOMP_SET_MODE_FILTER`.
    ("seccomp", &[Is(0, libc::SECCOMP_SET_MODE_FILTER)]),
    ("prctl", &[Is(0, libc::PR_SET_NO_NEW_PRIVS as u32)]),
    ("prctl", &[Is(0, libc::PR_SET_DUMPABLE as u32), Is(1, 0)]),
];

/// What the kernel's loader, the C library's and Rust's start-up call.
const STARTUP: &Rows = &[
    ("execve capget uname arch_prctl set_tid_address set_robust_list rseq getrandom", &[]),
    // The files of the program and its libraries.
    ("read pread64 write close lseek fstat newfstatat statx stat lstat", &[]),
    ("access faccessat faccessat2 readlink readlinkat getcwd getdents64", &[]),
    ("open", &[Without(1, WRITES)]),
    ("openat", &[Without(2, WRITES)]),
    ("fcntl", &[Is(1, libc::F_GETFD as u32)]),
    ("fcntl", &[Is(1, libc::F_SETFD as u32)]),
    ("fcntl", &[Is(1, libc::F_GETFL as u32)]),
    // Memory, signals and clocks; itself.
    ("mmap mprotect munmap mremap madvise brk futex poll ppoll clock_gettime", &[]),
    ("rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack restart_syscall", &[]),
    ("getpid gettid getppid getuid geteuid getgid getegid sched_getaffinity exit exit_group", &[]),
    ("prlimit64", &[Is(0, 0), IsNull(2)]),
    ("prctl", &[Is(0, libc::PR_SET_NO_NEW_PRIVS as u32)]),
    ("prctl", &[Is(0, libc::PR_SET_DUMPABLE as u32), Is(1, 0)]),
    ("prctl", &[Is(0, libc::PR_GET_DUMPABLE as u32)]),
    ("prctl", &[Is(0, libc::PR_SET_NAME as u32)]),
    ("prctl", &[Is(0, PR_SET_VMA)]),
    // So that the program can go on to its own, stricter filter.
    ("seccomp", &[]),
];

/// What a dataplane calls until its application has joined: the memory that the two share is made by the dataplane,
/// which seals it before it shows it.
const JOINING: &Rows = &[
    ("ftruncate fstatfs", &[]),
    // Neither of huge pages nor with a right to run what is in it.
    ("memfd_create", &[Is(1, libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)]),
    ("fcntl", &[Is(1, libc::F_ADD_SEALS as u32)]),
];

/// What a plane calls, besides, to let tenants in.
const LETTING_IN: &Rows = &[("accept4", &[])];

/// What a container's runtime refuses as well: the kernel's administration, other processes, and interfaces with a
/// history of faults that a service has no use for. With tests: what an application may call, but not so.
const NO_APPLICATION: &Rows = &[
    // Mounts and roots.
    ("mount umount2 move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr", &[]),
    ("pivot_root chroot open_by_handle_at name_to_handle_at fanotify_init", &[]),
    // Namespaces: a user namespace brings all capabilities back, inside of it.
    ("unshare setns", &[]),
    ("clone", &[With(0, libc::CLONE_NEWNS as u32)]),
    ("clone", &[With(0, libc::CLONE_NEWCGROUP as u32)]),
    ("clone", &[With(0, libc::CLONE_NEWUTS as u32)]),
    ("clone", &[With(0, libc::CLONE_NEWIPC as u32)]),
    ("clone", &[With(0, libc::CLONE_NEWUSER as u32)]),
    ("clone", &[With(0, libc::CLONE_NEWPID as u32)]),
    ("clone", &[With(0, libc::CLONE_NEWNET as u32)]),
    // Other processes.
    ("ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp", &[]),
    // Programs in the kernel, and rings of calls that no filter sees.
    ("bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register", &[]),
    // Keys of the kernel, which know no namespaces.
    ("add_key request_key keyctl", &[]),
    // The machine.
    ("kexec_load kexec_file_load init_module finit_module delete_module reboot", &[]),
    ("swapon swapoff acct quotactl syslog settimeofday clock_settime clock_adjtime adjtimex", &[]),
    ("sethostname setdomainname vhangup iopl ioperm modify_ldt", &[]),
    ("uselib ustat sysfs _sysctl nfsservctl lookup_dcookie", &[]),
    // Bytes into the input of a terminal: `TIOCSTI`, and the console's selection.
    ("ioctl", &[Is(1, libc::TIOCSTI as u32)]),
    ("ioctl", &[Is(1, libc::TIOCLINUX as u32)]),
    // Death with the starter cannot be cancelled. Whoever asks for it asks for SIGKILL.
    ("prctl", &[Is(0, libc::PR_SET_PDEATHSIG as u32), IsNot(1, libc::SIGKILL as u32)]),
    ("personality", &[IsNot(0, 0), IsNot(0, PERSONALITY_READ)]),
    // Families of sockets other than Unix, internet, and netlink, by which C libraries list interfaces.
    ("socket socketpair", &RARE_FAMILIES),
];

impl SyscallPolicy {
    /// What elastic threads need that run, whose AF_XDP sockets, eventfds, memory and control socket are open:
    /// to sleep and wake, to kick, to map passed memory, to read clocks, to end. No path can be named, no
    /// socket made, no program or thread started, no code made, no priority raised, no other process touched.
    pub fn dataplane() -> Self {
        Self::deny_all().with(DATAPLANE)
    }

    /// What a plane of `sdp` needs whose cores run: a dataplane's, and what lets tenants in for as long as it serves.
    pub fn plane() -> Self {
        Self::dataplane().with_joining().with(LETTING_IN)
    }

    /// This policy, and what a dataplane needs besides until its threads run: to make them, to set their priorities,
    /// and to install the policy itself.
    pub fn with_threads(self) -> Self {
        self.with(STARTING)
    }

    /// Everything but what no service needs: the kernel's administration, other processes, new namespaces, programs
    /// in the kernel, `io_uring`, sockets of rare families. Programs that know nothing of it do not notice.
    pub fn application() -> Self {
        calls(NO_APPLICATION)
            .fold(Self::allow_all(), |policy, (name, tests)| policy.rule(name, false, tests))
    }

    /// This policy, and what a dataplane needs besides until its application has joined: to make memory files and to
    /// seal them. For [`with_startup`](Self::with_startup), before [`enforce`](Self::enforce) of the policy itself.
    pub fn with_joining(self) -> Self {
        self.with(JOINING)
    }

    /// This policy, and what the start of a program needs besides: `execve`, reading files (the loader's),
    /// mapping code, and to install a further filter. For
    /// [`Confinement::spawn`](crate::Confinement::spawn) of a program that calls
    /// [`enforce`](Self::enforce) with the policy itself when it is up. A call that was denied by name and
    /// is needed is allowed.
    pub fn with_startup(self) -> Self {
        self.with(STARTUP)
    }

    fn with(self, rows: &'static Rows) -> Self {
        calls(rows).fold(self, |policy, (name, tests)| policy.widen(name, tests))
    }
}

/// Each call of a table by itself.
fn calls(rows: &'static Rows) -> impl Iterator<Item = (&'static str, &'static [ArgTest])> {
    rows.iter().flat_map(|(names, tests)| names.split(' ').map(move |name| (name, *tests)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syscalls::look_up;

    #[test]
    fn every_name_of_a_preset_exists() {
        for rows in [DATAPLANE, STARTING, STARTUP, JOINING, LETTING_IN, NO_APPLICATION] {
            for (name, _) in calls(rows) {
                assert!(look_up(name).is_some(), "{name} is not a system call");
            }
        }
    }

    #[test]
    fn a_dataplane_reaches_nothing_by_name() {
        let policy = SyscallPolicy::dataplane();
        for name in [
            "open",
            "openat",
            "openat2",
            "creat",
            "socket",
            "socketpair",
            "connect",
            "bind",
            "accept4",
            "execve",
            "execveat",
            "fork",
            "vfork",
            "clone",
            "clone3",
            "sched_setscheduler",
            "sched_setparam",
            "sched_setattr",
            "ptrace",
            "process_vm_readv",
            "process_vm_writev",
            "pidfd_getfd",
            "pidfd_open",
            "bpf",
            "perf_event_open",
            "mount",
            "move_mount",
            "open_tree",
            "pivot_root",
            "chroot",
            "unshare",
            "setns",
            "keyctl",
            "add_key",
            "request_key",
            "userfaultfd",
            "io_uring_setup",
            "io_uring_enter",
            "ioctl",
            "setuid",
            "setresuid",
            "capset",
            "kill",
            "tkill",
            "seccomp",
            "personality",
            "shmat",
            "pkey_mprotect",
            "memfd_create",
            "setrlimit",
            "newfstatat",
            "dup2",
            "init_module",
            "kexec_load",
            "reboot",
            "modify_ldt",
        ] {
            assert!(!policy.allows(name), "{name}");
        }
        assert!(!policy.allows("ftruncate"));
        let starting = policy.clone().with_threads();
        assert!(starting.allows("clone") && starting.allows("sched_setscheduler"));
        assert!(!starting.allows("sched_setattr") && !starting.allows("membarrier"));
        assert!(!starting.allows("futex_waitv") && !starting.allows("fork"));
        let joining = policy.with_joining();
        assert!(joining.allows("memfd_create") && !joining.allows("openat"));
        assert!(joining.with_startup().allows("execve"));
        let plane = SyscallPolicy::plane();
        assert!(plane.allows("accept4") && plane.allows("memfd_create"));
        assert!(!plane.allows("clone") && !plane.allows("sched_setscheduler"));
    }
}
