//! The names of Linux's system calls, and their numbers on this processor.
//!
//! ```
//! use sandbox::syscalls::{Known, look_up, nearest};
//! assert!(matches!(look_up("read"), Some(("read", Known::Number(_)))));
//! assert_eq!(look_up("raed"), None);
//! assert_eq!(nearest("raed"), Some("read"));
//! ```
//!
//! A policy file may be shared between machines: a name that exists on another processor only
//! ([`Known::Elsewhere`]) is no error and has no effect here. The numbers are libc's constants; those
//! that libc has not yet are the unified ones, equal on every processor since 424.

/// What is known of a system call's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It exists here, with this number.
    Number(i64),
    /// It exists on another processor only.
    Elsewhere,
}

/// The table's own spelling of `name`, and what is known of it; `None` for a name that no Linux has.
pub fn look_up(name: &str) -> Option<(&'static str, Known)> {
    let find = |table: &[(&'static str, i64)]| table.iter().find(|(n, _)| *n == name).copied();
    match find(EVERYWHERE).or_else(|| find(NEWER)) {
        Some((name, number)) => Some((name, Known::Number(number))),
        None => LEGACY.iter().find(|(n, _)| *n == name).copied(),
    }
}

/// The known name with the fewest changed letters from `name`, if that is few enough to be a slip.
pub fn nearest(name: &str) -> Option<&'static str> {
    // A name of a file may be long: no system call is over this, so nothing is near.
    const LONGEST_NAME: usize = 40;
    if name.len() > LONGEST_NAME {
        return None;
    }
    let most = 1 + name.len() / 4;
    names()
        .map(|known| (distance(name, known), known))
        .filter(|(d, _)| *d <= most)
        .min()
        .map(|(_, n)| n)
}

/// Every name, those of other processors too.
pub fn names() -> impl Iterator<Item = &'static str> {
    EVERYWHERE.iter().chain(NEWER).map(|(n, _)| *n).chain(LEGACY.iter().map(|(n, _)| *n))
}

/// Levenshtein's distance, with the exchange of two neighbours as one change.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let kept = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                let exchange = if swapped { rows[i - 2][j - 2] + 1 } else { usize::MAX };
                kept.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(exchange)
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(target_arch = "x86_64")]
macro_rules! of_x86_64 {
    ($number:ident) => {
        Known::Number(libc::$number)
    };
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! of_x86_64 {
    ($number:ident) => {
        Known::Elsewhere
    };
}

/// Named by x86_64 alone: the calls that newer processors replaced by their `...at` forms.
const LEGACY: &[(&str, Known)] = &[
    ("_sysctl", of_x86_64!(SYS__sysctl)),
    ("access", of_x86_64!(SYS_access)),
    ("afs_syscall", of_x86_64!(SYS_afs_syscall)),
    ("alarm", of_x86_64!(SYS_alarm)),
    ("arch_prctl", of_x86_64!(SYS_arch_prctl)),
    ("chmod", of_x86_64!(SYS_chmod)),
    ("chown", of_x86_64!(SYS_chown)),
    ("creat", of_x86_64!(SYS_creat)),
    ("dup2", of_x86_64!(SYS_dup2)),
    ("epoll_create", of_x86_64!(SYS_epoll_create)),
    ("epoll_ctl_old", of_x86_64!(SYS_epoll_ctl_old)),
    ("epoll_wait", of_x86_64!(SYS_epoll_wait)),
    ("epoll_wait_old", of_x86_64!(SYS_epoll_wait_old)),
    ("eventfd", of_x86_64!(SYS_eventfd)),
    ("fork", of_x86_64!(SYS_fork)),
    ("futimesat", of_x86_64!(SYS_futimesat)),
    ("get_thread_area", of_x86_64!(SYS_get_thread_area)),
    ("getdents", of_x86_64!(SYS_getdents)),
    ("getpgrp", of_x86_64!(SYS_getpgrp)),
    ("getpmsg", of_x86_64!(SYS_getpmsg)),
    ("getrlimit", of_x86_64!(SYS_getrlimit)),
    ("inotify_init", of_x86_64!(SYS_inotify_init)),
    ("ioperm", of_x86_64!(SYS_ioperm)),
    ("iopl", of_x86_64!(SYS_iopl)),
    ("lchown", of_x86_64!(SYS_lchown)),
    ("link", of_x86_64!(SYS_link)),
    ("lstat", of_x86_64!(SYS_lstat)),
    ("mkdir", of_x86_64!(SYS_mkdir)),
    ("mknod", of_x86_64!(SYS_mknod)),
    ("modify_ldt", of_x86_64!(SYS_modify_ldt)),
    ("open", of_x86_64!(SYS_open)),
    ("pause", of_x86_64!(SYS_pause)),
    ("pipe", of_x86_64!(SYS_pipe)),
    ("poll", of_x86_64!(SYS_poll)),
    ("putpmsg", of_x86_64!(SYS_putpmsg)),
    ("readlink", of_x86_64!(SYS_readlink)),
    ("rename", of_x86_64!(SYS_rename)),
    ("renameat", of_x86_64!(SYS_renameat)),
    ("rmdir", of_x86_64!(SYS_rmdir)),
    ("security", of_x86_64!(SYS_security)),
    ("select", of_x86_64!(SYS_select)),
    ("set_thread_area", of_x86_64!(SYS_set_thread_area)),
    ("setrlimit", of_x86_64!(SYS_setrlimit)),
    ("signalfd", of_x86_64!(SYS_signalfd)),
    ("stat", of_x86_64!(SYS_stat)),
    ("symlink", of_x86_64!(SYS_symlink)),
    ("sync_file_range", of_x86_64!(SYS_sync_file_range)),
    ("sysfs", of_x86_64!(SYS_sysfs)),
    ("time", of_x86_64!(SYS_time)),
    ("tuxcall", of_x86_64!(SYS_tuxcall)),
    ("unlink", of_x86_64!(SYS_unlink)),
    ("uselib", of_x86_64!(SYS_uselib)),
    ("ustat", of_x86_64!(SYS_ustat)),
    ("utime", of_x86_64!(SYS_utime)),
    ("utimes", of_x86_64!(SYS_utimes)),
    ("vfork", of_x86_64!(SYS_vfork)),
    ("vserver", of_x86_64!(SYS_vserver)),
];

/// Newer than libc's list; unified numbers.
const NEWER: &[(&str, i64)] = &[
    ("cachestat", 451),
    ("fchmodat2", 452),
    ("map_shadow_stack", 453),
    ("futex_wake", 454),
    ("futex_wait", 455),
    ("futex_requeue", 456),
    ("statmount", 457),
    ("listmount", 458),
    ("lsm_get_self_attr", 459),
    ("lsm_set_self_attr", 460),
    ("lsm_list_modules", 461),
    ("setxattrat", 463),
    ("getxattrat", 464),
    ("listxattrat", 465),
    ("removexattrat", 466),
    ("open_tree_attr", 467),
    ("file_getattr", 468),
    ("file_setattr", 469),
];

const EVERYWHERE: &[(&str, i64)] = &[
    ("accept", libc::SYS_accept),
    ("accept4", libc::SYS_accept4),
    ("acct", libc::SYS_acct),
    ("add_key", libc::SYS_add_key),
    ("adjtimex", libc::SYS_adjtimex),
    ("bind", libc::SYS_bind),
    ("bpf", libc::SYS_bpf),
    ("brk", libc::SYS_brk),
    ("capget", libc::SYS_capget),
    ("capset", libc::SYS_capset),
    ("chdir", libc::SYS_chdir),
    ("chroot", libc::SYS_chroot),
    ("clock_adjtime", libc::SYS_clock_adjtime),
    ("clock_getres", libc::SYS_clock_getres),
    ("clock_gettime", libc::SYS_clock_gettime),
    ("clock_nanosleep", libc::SYS_clock_nanosleep),
    ("clock_settime", libc::SYS_clock_settime),
    ("clone", libc::SYS_clone),
    ("clone3", libc::SYS_clone3),
    ("close", libc::SYS_close),
    ("close_range", libc::SYS_close_range),
    ("connect", libc::SYS_connect),
    ("copy_file_range", libc::SYS_copy_file_range),
    ("delete_module", libc::SYS_delete_module),
    ("dup", libc::SYS_dup),
    ("dup3", libc::SYS_dup3),
    ("epoll_create1", libc::SYS_epoll_create1),
    ("epoll_ctl", libc::SYS_epoll_ctl),
    ("epoll_pwait", libc::SYS_epoll_pwait),
    ("epoll_pwait2", libc::SYS_epoll_pwait2),
    ("eventfd2", libc::SYS_eventfd2),
    ("execve", libc::SYS_execve),
    ("execveat", libc::SYS_execveat),
    ("exit", libc::SYS_exit),
    ("exit_group", libc::SYS_exit_group),
    ("faccessat", libc::SYS_faccessat),
    ("faccessat2", libc::SYS_faccessat2),
    ("fadvise64", libc::SYS_fadvise64),
    ("fallocate", libc::SYS_fallocate),
    ("fanotify_init", libc::SYS_fanotify_init),
    ("fanotify_mark", libc::SYS_fanotify_mark),
    ("fchdir", libc::SYS_fchdir),
    ("fchmod", libc::SYS_fchmod),
    ("fchmodat", libc::SYS_fchmodat),
    ("fchown", libc::SYS_fchown),
    ("fchownat", libc::SYS_fchownat),
    ("fcntl", libc::SYS_fcntl),
    ("fdatasync", libc::SYS_fdatasync),
    ("fgetxattr", libc::SYS_fgetxattr),
    ("finit_module", libc::SYS_finit_module),
    ("flistxattr", libc::SYS_flistxattr),
    ("flock", libc::SYS_flock),
    ("fremovexattr", libc::SYS_fremovexattr),
    ("fsconfig", libc::SYS_fsconfig),
    ("fsetxattr", libc::SYS_fsetxattr),
    ("fsmount", libc::SYS_fsmount),
    ("fsopen", libc::SYS_fsopen),
    ("fspick", libc::SYS_fspick),
    ("fstat", libc::SYS_fstat),
    ("fstatfs", libc::SYS_fstatfs),
    ("fsync", libc::SYS_fsync),
    ("ftruncate", libc::SYS_ftruncate),
    ("futex", libc::SYS_futex),
    ("futex_waitv", libc::SYS_futex_waitv),
    ("get_mempolicy", libc::SYS_get_mempolicy),
    ("get_robust_list", libc::SYS_get_robust_list),
    ("getcpu", libc::SYS_getcpu),
    ("getcwd", libc::SYS_getcwd),
    ("getdents64", libc::SYS_getdents64),
    ("getegid", libc::SYS_getegid),
    ("geteuid", libc::SYS_geteuid),
    ("getgid", libc::SYS_getgid),
    ("getgroups", libc::SYS_getgroups),
    ("getitimer", libc::SYS_getitimer),
    ("getpeername", libc::SYS_getpeername),
    ("getpgid", libc::SYS_getpgid),
    ("getpid", libc::SYS_getpid),
    ("getppid", libc::SYS_getppid),
    ("getpriority", libc::SYS_getpriority),
    ("getrandom", libc::SYS_getrandom),
    ("getresgid", libc::SYS_getresgid),
    ("getresuid", libc::SYS_getresuid),
    ("getrusage", libc::SYS_getrusage),
    ("getsid", libc::SYS_getsid),
    ("getsockname", libc::SYS_getsockname),
    ("getsockopt", libc::SYS_getsockopt),
    ("gettid", libc::SYS_gettid),
    ("gettimeofday", libc::SYS_gettimeofday),
    ("getuid", libc::SYS_getuid),
    ("getxattr", libc::SYS_getxattr),
    ("init_module", libc::SYS_init_module),
    ("inotify_add_watch", libc::SYS_inotify_add_watch),
    ("inotify_init1", libc::SYS_inotify_init1),
    ("inotify_rm_watch", libc::SYS_inotify_rm_watch),
    ("io_cancel", libc::SYS_io_cancel),
    ("io_destroy", libc::SYS_io_destroy),
    ("io_getevents", libc::SYS_io_getevents),
    ("io_setup", libc::SYS_io_setup),
    ("io_submit", libc::SYS_io_submit),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_register", libc::SYS_io_uring_register),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("ioctl", libc::SYS_ioctl),
    ("ioprio_get", libc::SYS_ioprio_get),
    ("ioprio_set", libc::SYS_ioprio_set),
    ("kcmp", libc::SYS_kcmp),
    ("kexec_file_load", libc::SYS_kexec_file_load),
    ("kexec_load", libc::SYS_kexec_load),
    ("keyctl", libc::SYS_keyctl),
    ("kill", libc::SYS_kill),
    ("landlock_add_rule", libc::SYS_landlock_add_rule),
    ("landlock_create_ruleset", libc::SYS_landlock_create_ruleset),
    ("landlock_restrict_self", libc::SYS_landlock_restrict_self),
    ("lgetxattr", libc::SYS_lgetxattr),
    ("linkat", libc::SYS_linkat),
    ("listen", libc::SYS_listen),
    ("listxattr", libc::SYS_listxattr),
    ("llistxattr", libc::SYS_llistxattr),
    ("lookup_dcookie", libc::SYS_lookup_dcookie),
    ("lremovexattr", libc::SYS_lremovexattr),
    ("lseek", libc::SYS_lseek),
    ("lsetxattr", libc::SYS_lsetxattr),
    ("madvise", libc::SYS_madvise),
    ("mbind", libc::SYS_mbind),
    ("membarrier", libc::SYS_membarrier),
    ("memfd_create", libc::SYS_memfd_create),
    ("memfd_secret", libc::SYS_memfd_secret),
    ("migrate_pages", libc::SYS_migrate_pages),
    ("mincore", libc::SYS_mincore),
    ("mkdirat", libc::SYS_mkdirat),
    ("mknodat", libc::SYS_mknodat),
    ("mlock", libc::SYS_mlock),
    ("mlock2", libc::SYS_mlock2),
    ("mlockall", libc::SYS_mlockall),
    ("mmap", libc::SYS_mmap),
    ("mount", libc::SYS_mount),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("move_mount", libc::SYS_move_mount),
    ("move_pages", libc::SYS_move_pages),
    ("mprotect", libc::SYS_mprotect),
    ("mq_getsetattr", libc::SYS_mq_getsetattr),
    ("mq_notify", libc::SYS_mq_notify),
    ("mq_open", libc::SYS_mq_open),
    ("mq_timedreceive", libc::SYS_mq_timedreceive),
    ("mq_timedsend", libc::SYS_mq_timedsend),
    ("mq_unlink", libc::SYS_mq_unlink),
    ("mremap", libc::SYS_mremap),
    ("mseal", libc::SYS_mseal),
    ("msgctl", libc::SYS_msgctl),
    ("msgget", libc::SYS_msgget),
    ("msgrcv", libc::SYS_msgrcv),
    ("msgsnd", libc::SYS_msgsnd),
    ("msync", libc::SYS_msync),
    ("munlock", libc::SYS_munlock),
    ("munlockall", libc::SYS_munlockall),
    ("munmap", libc::SYS_munmap),
    ("name_to_handle_at", libc::SYS_name_to_handle_at),
    ("nanosleep", libc::SYS_nanosleep),
    ("newfstatat", libc::SYS_newfstatat),
    ("nfsservctl", libc::SYS_nfsservctl),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("open_tree", libc::SYS_open_tree),
    ("openat", libc::SYS_openat),
    ("openat2", libc::SYS_openat2),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("personality", libc::SYS_personality),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
    ("pipe2", libc::SYS_pipe2),
    ("pivot_root", libc::SYS_pivot_root),
    ("pkey_alloc", libc::SYS_pkey_alloc),
    ("pkey_free", libc::SYS_pkey_free),
    ("pkey_mprotect", libc::SYS_pkey_mprotect),
    ("ppoll", libc::SYS_ppoll),
    ("prctl", libc::SYS_prctl),
    ("pread64", libc::SYS_pread64),
    ("preadv", libc::SYS_preadv),
    ("preadv2", libc::SYS_preadv2),
    ("prlimit64", libc::SYS_prlimit64),
    ("process_madvise", libc::SYS_process_madvise),
    ("process_mrelease", libc::SYS_process_mrelease),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("pselect6", libc::SYS_pselect6),
    ("ptrace", libc::SYS_ptrace),
    ("pwrite64", libc::SYS_pwrite64),
    ("pwritev", libc::SYS_pwritev),
    ("pwritev2", libc::SYS_pwritev2),
    ("quotactl", libc::SYS_quotactl),
    ("quotactl_fd", libc::SYS_quotactl_fd),
    ("read", libc::SYS_read),
    ("readahead", libc::SYS_readahead),
    ("readlinkat", libc::SYS_readlinkat),
    ("readv", libc::SYS_readv),
    ("reboot", libc::SYS_reboot),
    ("recvfrom", libc::SYS_recvfrom),
    ("recvmmsg", libc::SYS_recvmmsg),
    ("recvmsg", libc::SYS_recvmsg),
    ("remap_file_pages", libc::SYS_remap_file_pages),
    ("removexattr", libc::SYS_removexattr),
    ("renameat2", libc::SYS_renameat2),
    ("request_key", libc::SYS_request_key),
    ("restart_syscall", libc::SYS_restart_syscall),
    ("rseq", libc::SYS_rseq),
    ("rt_sigaction", libc::SYS_rt_sigaction),
    ("rt_sigpending", libc::SYS_rt_sigpending),
    ("rt_sigprocmask", libc::SYS_rt_sigprocmask),
    ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo),
    ("rt_sigreturn", libc::SYS_rt_sigreturn),
    ("rt_sigsuspend", libc::SYS_rt_sigsuspend),
    ("rt_sigtimedwait", libc::SYS_rt_sigtimedwait),
    ("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo),
    ("sched_get_priority_max", libc::SYS_sched_get_priority_max),
    ("sched_get_priority_min", libc::SYS_sched_get_priority_min),
    ("sched_getaffinity", libc::SYS_sched_getaffinity),
    ("sched_getattr", libc::SYS_sched_getattr),
    ("sched_getparam", libc::SYS_sched_getparam),
    ("sched_getscheduler", libc::SYS_sched_getscheduler),
    ("sched_rr_get_interval", libc::SYS_sched_rr_get_interval),
    ("sched_setaffinity", libc::SYS_sched_setaffinity),
    ("sched_setattr", libc::SYS_sched_setattr),
    ("sched_setparam", libc::SYS_sched_setparam),
    ("sched_setscheduler", libc::SYS_sched_setscheduler),
    ("sched_yield", libc::SYS_sched_yield),
    ("seccomp", libc::SYS_seccomp),
    ("semctl", libc::SYS_semctl),
    ("semget", libc::SYS_semget),
    ("semop", libc::SYS_semop),
    ("semtimedop", libc::SYS_semtimedop),
    ("sendfile", libc::SYS_sendfile),
    ("sendmmsg", libc::SYS_sendmmsg),
    ("sendmsg", libc::SYS_sendmsg),
    ("sendto", libc::SYS_sendto),
    ("set_mempolicy", libc::SYS_set_mempolicy),
    ("set_mempolicy_home_node", libc::SYS_set_mempolicy_home_node),
    ("set_robust_list", libc::SYS_set_robust_list),
    ("set_tid_address", libc::SYS_set_tid_address),
    ("setdomainname", libc::SYS_setdomainname),
    ("setfsgid", libc::SYS_setfsgid),
    ("setfsuid", libc::SYS_setfsuid),
    ("setgid", libc::SYS_setgid),
    ("setgroups", libc::SYS_setgroups),
    ("sethostname", libc::SYS_sethostname),
    ("setitimer", libc::SYS_setitimer),
    ("setns", libc::SYS_setns),
    ("setpgid", libc::SYS_setpgid),
    ("setpriority", libc::SYS_setpriority),
    ("setregid", libc::SYS_setregid),
    ("setresgid", libc::SYS_setresgid),
    ("setresuid", libc::SYS_setresuid),
    ("setreuid", libc::SYS_setreuid),
    ("setsid", libc::SYS_setsid),
    ("setsockopt", libc::SYS_setsockopt),
    ("settimeofday", libc::SYS_settimeofday),
    ("setuid", libc::SYS_setuid),
    ("setxattr", libc::SYS_setxattr),
    ("shmat", libc::SYS_shmat),
    ("shmctl", libc::SYS_shmctl),
    ("shmdt", libc::SYS_shmdt),
    ("shmget", libc::SYS_shmget),
    ("shutdown", libc::SYS_shutdown),
    ("sigaltstack", libc::SYS_sigaltstack),
    ("signalfd4", libc::SYS_signalfd4),
    ("socket", libc::SYS_socket),
    ("socketpair", libc::SYS_socketpair),
    ("splice", libc::SYS_splice),
    ("statfs", libc::SYS_statfs),
    ("statx", libc::SYS_statx),
    ("swapoff", libc::SYS_swapoff),
    ("swapon", libc::SYS_swapon),
    ("symlinkat", libc::SYS_symlinkat),
    ("sync", libc::SYS_sync),
    ("syncfs", libc::SYS_syncfs),
    ("sysinfo", libc::SYS_sysinfo),
    ("syslog", libc::SYS_syslog),
    ("tee", libc::SYS_tee),
    ("tgkill", libc::SYS_tgkill),
    ("timer_create", libc::SYS_timer_create),
    ("timer_delete", libc::SYS_timer_delete),
    ("timer_getoverrun", libc::SYS_timer_getoverrun),
    ("timer_gettime", libc::SYS_timer_gettime),
    ("timer_settime", libc::SYS_timer_settime),
    ("timerfd_create", libc::SYS_timerfd_create),
    ("timerfd_gettime", libc::SYS_timerfd_gettime),
    ("timerfd_settime", libc::SYS_timerfd_settime),
    ("times", libc::SYS_times),
    ("tkill", libc::SYS_tkill),
    ("truncate", libc::SYS_truncate),
    ("umask", libc::SYS_umask),
    ("umount2", libc::SYS_umount2),
    ("uname", libc::SYS_uname),
    ("unlinkat", libc::SYS_unlinkat),
    ("unshare", libc::SYS_unshare),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("utimensat", libc::SYS_utimensat),
    ("vhangup", libc::SYS_vhangup),
    ("vmsplice", libc::SYS_vmsplice),
    ("wait4", libc::SYS_wait4),
    ("waitid", libc::SYS_waitid),
    ("write", libc::SYS_write),
    ("writev", libc::SYS_writev),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "compares every two names, nothing of it unsafe")]
    fn every_name_is_found_once_and_under_itself() {
        let mut all: Vec<_> = names().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        for name in all {
            assert_eq!(look_up(name).expect("a name of the table").0, name);
            assert_eq!(nearest(name), Some(name));
        }
        #[cfg(target_arch = "x86_64")]
        assert_eq!(look_up("open").unwrap().1, Known::Number(2));
    }

    #[test]
    #[cfg_attr(miri, ignore = "compares names with all others, nothing of it unsafe")]
    fn a_slip_is_named_and_nonsense_is_not() {
        assert_eq!(nearest("opanat"), Some("openat"));
        assert_eq!(nearest("clock_gettme"), Some("clock_gettime"));
        assert_eq!(nearest("launch_the_missiles"), None);
        assert_eq!(nearest(&"x".repeat(1 << 20)), None);
    }
}
