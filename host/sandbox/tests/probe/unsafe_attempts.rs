//! The attempts, each one system call or a few, with what came of it as text: "ok", or an error's name.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::ptr::{null, null_mut};

/// Tries `name`; `number` is a process id where one is needed.
pub fn attempt(name: &str, number: i32) -> String {
    match name {
        "threads" => threads(),
        "processes" => processes(),
        "descriptors" => descriptors(),
        "work" => work(),
        _ => outcome(one(name, number)),
    }
}

fn outcome(answer: i64) -> String {
    if answer >= 0 {
        return "ok".into();
    }
    match std::io::Error::last_os_error().raw_os_error().unwrap_or(0) {
        libc::EPERM => "EPERM".into(),
        libc::EACCES => "EACCES".into(),
        libc::ENOENT => "ENOENT".into(),
        libc::ENOSYS => "ENOSYS".into(),
        libc::EFAULT => "EFAULT".into(),
        libc::EINVAL => "EINVAL".into(),
        libc::ENOMEM => "ENOMEM".into(),
        libc::ENOTTY => "ENOTTY".into(),
        libc::EBADF => "EBADF".into(),
        libc::EAGAIN => "EAGAIN".into(),
        libc::EMFILE => "EMFILE".into(),
        libc::EROFS => "EROFS".into(),
        libc::ENETUNREACH => "ENETUNREACH".into(),
        other => format!("errno {other}"),
    }
}

fn open(path: &CStr, flags: i32) -> i64 {
    // SAFETY: the path ends in NUL; the descriptor is left to the end of the process.
    unsafe { libc::open(path.as_ptr(), flags).into() }
}

fn socket(family: i32, kind: i32, protocol: i32) -> i64 {
    // SAFETY: integers only.
    unsafe { libc::socket(family, kind, protocol).into() }
}

/// Anonymous memory, left to the end of the process.
fn memory(bytes: usize, protection: i32) -> i64 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(null_mut(), bytes, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED { -1 } else { at as i64 }
}

// long: one line for each of the attempts.
fn one(name: &str, pid: i32) -> i64 {
    const PAGE: usize = 4096;
    // SAFETY: each call is given integers, nulls, or pointers to what lives until it returns. Those that
    // could do harm are made so that success does none: signal 0, a namespace of its own, a file that is
    // not there. A forked child ends at once.
    unsafe {
        match name {
            "raw socket" => socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP),
            "packet socket" => socket(libc::AF_PACKET, libc::SOCK_RAW, 0),
            "xdp socket" => socket(libc::AF_XDP, libc::SOCK_RAW, 0),
            "netlink socket" => socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE),
            "inet socket" => socket(libc::AF_INET, libc::SOCK_STREAM, 0),
            "unix socket" => socket(libc::AF_UNIX, libc::SOCK_STREAM, 0),
            "read passwd" => open(c"/etc/passwd", libc::O_RDONLY),
            "read shadow" => open(c"/etc/shadow", libc::O_RDONLY),
            "write memory of init" => open(c"/proc/1/mem", libc::O_RDWR),
            "write memory of another" => {
                let path = std::ffi::CString::new(format!("/proc/{pid}/mem"));
                path.map_or(-1, |path| open(&path, libc::O_RDWR))
            }
            "write physical memory" => open(c"/dev/mem", libc::O_RDWR),
            "write to null" => open(c"/dev/null", libc::O_WRONLY | libc::O_TRUNC),
            "list devices' folder" => open(c"/dev/shm", libc::O_RDONLY | libc::O_DIRECTORY),
            "open another device" => open(c"/dev/kmsg", libc::O_RDONLY | libc::O_NONBLOCK),
            "write below proc" => open(c"/proc/self/comm", libc::O_WRONLY),
            "number of itself" => {
                println!("{}", libc::getpid());
                0
            }
            "make a file" => open(c"/tmp", libc::O_TMPFILE | libc::O_RDWR),
            "read files of another" => {
                let path = std::ffi::CString::new(format!("/proc/{pid}/root/etc/passwd"));
                path.map_or(-1, |path| open(&path, libc::O_RDONLY))
            }
            "write memory of another by call" => {
                let mut byte = 0u8;
                let here = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
                let there = libc::iovec { iov_base: PAGE as *mut _, iov_len: 1 };
                libc::process_vm_writev(pid, &here, 1, &there, 1, 0) as i64
            }
            "trace" => libc::ptrace(libc::PTRACE_SEIZE, pid, null_mut::<u8>(), null_mut::<u8>()),
            "read memory of another" => {
                let mut byte = 0u8;
                let here = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
                let there = libc::iovec { iov_base: PAGE as *mut _, iov_len: 1 };
                libc::process_vm_readv(pid, &here, 1, &there, 1, 0) as i64
            }
            "take a descriptor of another" => {
                let pidfd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
                if pidfd < 0 { -1 } else { libc::syscall(libc::SYS_pidfd_getfd, pidfd, 1, 0) }
            }
            "signal another" => libc::kill(pid, 0).into(),
            "signal a thread of another" => libc::syscall(libc::SYS_tgkill, pid, pid, 0),
            "move another" => {
                let mut mask: libc::cpu_set_t = std::mem::zeroed();
                let size = size_of::<libc::cpu_set_t>();
                if libc::sched_getaffinity(0, size, &mut mask) < 0 {
                    return -1;
                }
                libc::sched_setaffinity(pid, size, &mask).into()
            }
            "start a program" => {
                libc::execve(c"/no/such/program".as_ptr(), [null()].as_ptr(), [null()].as_ptr())
                    .into()
            }
            "map code" => memory(PAGE, libc::PROT_READ | libc::PROT_EXEC),
            "make code" => {
                let at = memory(PAGE, libc::PROT_READ | libc::PROT_WRITE);
                if at < 0 { -1 } else { libc::mprotect(at as *mut _, PAGE, libc::PROT_EXEC).into() }
            }
            "become root" => libc::setresuid(0, 0, 0).into(),
            "leave the group" => libc::setgroups(0, null()).into(),
            "take capabilities" => {
                // linux/capability.h, version 3: version and thread; then effective, permitted and
                // inheritable, twice.
                let header = [0x2008_0522u32, 0];
                let net_admin = 1u32 << 12;
                let sets = [net_admin, net_admin, 0, 0, 0, 0];
                libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr())
            }
            "mount" => {
                // Where this much is allowed, the mount is in a namespace of its own.
                if libc::unshare(libc::CLONE_NEWNS) == 0 {
                    let flags = libc::MS_REC | libc::MS_PRIVATE;
                    libc::mount(null(), c"/".as_ptr(), null(), flags, null());
                }
                libc::mount(c"none".as_ptr(), c"/tmp".as_ptr(), c"tmpfs".as_ptr(), 0, null()).into()
            }
            "new user namespace" => libc::unshare(libc::CLONE_NEWUSER).into(),
            "new network namespace" => libc::unshare(libc::CLONE_NEWNET).into(),
            "clone into a user namespace" => {
                let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
                match libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) {
                    0 => libc::_exit(0),
                    answer => answer,
                }
            }
            "clone3" => libc::syscall(libc::SYS_clone3, null::<u8>(), 0),
            "fork" => match libc::fork() {
                0 => libc::_exit(0),
                answer => answer.into(),
            },
            "bpf" => {
                // BPF_MAP_CREATE of an array: type, key size, value size, entries.
                let map = [2u32, 4, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                libc::syscall(libc::SYS_bpf, 0, map.as_ptr(), size_of_val(&map))
            }
            "perf" => {
                // PERF_TYPE_SOFTWARE, PERF_ATTR_SIZE_VER0, PERF_COUNT_SW_CPU_CLOCK; of every process.
                let attributes = [1u32, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), -1, 0, -1, 0)
            }
            "io_uring" => {
                let mut parameters = [0u8; 120];
                libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr())
            }
            "userfaultfd" => libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC),
            // KEYCTL_GET_KEYRING_ID of the user's session keyring, made where there is none.
            "keyring" => libc::syscall(libc::SYS_keyctl, 0, -5, 1),
            "terminal" => {
                let mut size: libc::winsize = std::mem::zeroed();
                libc::ioctl(1, libc::TIOCGWINSZ, &mut size).into()
            }
            "outlive the starter" => libc::prctl(libc::PR_SET_PDEATHSIG, 0, 0, 0, 0).into(),
            "be dumped" => libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0).into(),
            "more open files" => {
                let mut limit: libc::rlimit = std::mem::zeroed();
                libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
                limit.rlim_max += 1;
                libc::setrlimit(libc::RLIMIT_NOFILE, &limit).into()
            }
            "much memory" => memory(1 << 30, libc::PROT_READ | libc::PROT_WRITE),
            "much locked memory" => {
                let at = memory(1 << 20, libc::PROT_READ | libc::PROT_WRITE);
                if at < 0 { -1 } else { libc::mlock(at as *const _, 1 << 20).into() }
            }
            "many files" => {
                let mut last = 0;
                for _ in 0..200 {
                    last = libc::eventfd(0, 0);
                    if last < 0 {
                        break;
                    }
                }
                last.into()
            }
            "real time" => {
                let parameters = libc::sched_param { sched_priority: 1 };
                libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters).into()
            }
            "real time of its own" => {
                let parameters = libc::sched_param { sched_priority: 1 };
                let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
                libc::sched_setscheduler(0, policy, &parameters).into()
            }
            "round robin" => {
                let parameters = libc::sched_param { sched_priority: 1 };
                let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
                libc::sched_setscheduler(0, policy, &parameters).into()
            }
            "no priority" => {
                let parameters = libc::sched_param { sched_priority: 0 };
                libc::sched_setscheduler(0, libc::SCHED_OTHER, &parameters).into()
            }
            "no priority for another" => {
                let parameters = libc::sched_param { sched_priority: 0 };
                libc::sched_setscheduler(pid, libc::SCHED_OTHER, &parameters).into()
            }
            "run on this processor" => {
                let mut mask: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(pid as usize, &mut mask);
                libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &mask).into()
            }
            "take pages from all" => {
                let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                let at = libc::mmap(null_mut(), PAGE, protection, flags, -1, 0);
                libc::madvise(at, PAGE, libc::MADV_REMOVE).into()
            }
            "give pages back" => {
                let at = memory(PAGE, libc::PROT_READ | libc::PROT_WRITE);
                libc::madvise(at as *mut _, PAGE, libc::MADV_DONTNEED).into()
            }
            "leave shared memory" => {
                libc::shmget(libc::IPC_PRIVATE, PAGE, 0o666 | libc::IPC_CREAT).into()
            }
            "lock with priority" => {
                let mut word = 0u32;
                let operation = libc::FUTEX_LOCK_PI | libc::FUTEX_PRIVATE_FLAG;
                libc::syscall(libc::SYS_futex, &raw mut word, operation, 0, null::<u8>())
            }
            "wake" => {
                let mut word = 0u32;
                let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
                libc::syscall(libc::SYS_futex, &raw mut word, operation, 1)
            }
            // MEMBARRIER_CMD_GLOBAL: interrupts every processor that runs any process.
            "hold up all processors" => libc::syscall(libc::SYS_membarrier, 1, 0, 0),
            "send to an address" => {
                let address = [0u8; 16];
                libc::sendto(-1, null(), 0, 0, address.as_ptr().cast(), 16) as i64
            }
            "make a file of huge pages" => {
                let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | libc::MFD_HUGETLB;
                libc::memfd_create(c"huge".as_ptr(), flags).into()
            }
            "make a memory file" => {
                let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
                libc::memfd_create(c"plain".as_ptr(), flags).into()
            }
            "rare socket" => socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
            "die with another signal" => libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGURG).into(),
            "die with the starter" => libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL).into(),
            "type at the terminal" => {
                let letter = b'x';
                libc::ioctl(0, libc::TIOCSTI, &raw const letter).into()
            }
            "spin in real time" => {
                let start = std::time::Instant::now();
                // The policy is given from outside.
                while libc::sched_getscheduler(0) != libc::SCHED_FIFO {
                    if start.elapsed().as_millis() > 1000 {
                        return -1;
                    }
                    libc::usleep(1000);
                }
                // Longer than its limit, shorter than a test may take.
                let start = std::time::Instant::now();
                while start.elapsed().as_millis() < 300 {
                    std::hint::spin_loop();
                }
                0
            }
            "leave through x32" => libc::syscall(0x4000_0000 | libc::SYS_getpid),
            "reach the host" => {
                let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
                let mut address: libc::sockaddr_in = std::mem::zeroed();
                address.sin_family = libc::AF_INET as u16;
                address.sin_port = 9u16.to_be();
                address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
                let size = size_of::<libc::sockaddr_in>() as u32;
                libc::connect(fd, (&raw const address).cast(), size).into()
            }
            _ => {
                println!("no such attempt: {name}");
                std::process::exit(2);
            }
        }
    }
}

/// Leaves a chain of processes behind: each starts the next and ends.
pub fn chain(lasts: std::time::Duration) {
    let began = std::time::Instant::now();
    // SAFETY: this process has one thread; a forked one sleeps, forks and ends.
    unsafe {
        if libc::fork() != 0 {
            println!("ready");
            return;
        }
        libc::setsid();
        while began.elapsed() < lasts {
            libc::usleep(500);
            if libc::fork() != 0 {
                libc::_exit(0);
            }
        }
        libc::_exit(0);
    }
}

/// Whether a call of this number passes the filter that `confine` installs and that kills at a refusal. A process of
/// its own makes it, with arguments that no call takes; whatever else becomes of that process, the call passed.
pub fn passes(number: i64, confine: impl Fn() -> bool) -> bool {
    const NO_SENSE: i64 = -1;
    const ENOUGH_SECONDS: u32 = 1;
    // SAFETY: the child has one thread, makes one call and ends; no argument is an address, a descriptor, a signal or
    // the number of a process. Where it forks, both end.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::close(1);
            libc::alarm(ENOUGH_SECONDS);
            if confine() {
                let [a, b, c, d, e, f] = [NO_SENSE; 6];
                let answer = libc::syscall(number, a, b, c, d, e, f);
                let absent =
                    *libc::__errno_location() == libc::ENOSYS && number == libc::SYS_clone3;
                libc::_exit(if answer == -1 && absent { 2 } else { 0 });
            }
            libc::_exit(1);
        }
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        assert!(!libc::WIFEXITED(status) || libc::WEXITSTATUS(status) != 1, "no filter");
        let refused = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSYS;
        let absent = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 2;
        !refused && !absent
    }
}

/// More threads than any limit of the tests, at most; how many there were.
fn threads() -> String {
    let mut made = Vec::new();
    while made.len() < 64 {
        let run = || std::thread::park_timeout(std::time::Duration::from_millis(300));
        match std::thread::Builder::new().stack_size(64 << 10).spawn(run) {
            Ok(thread) => made.push(thread),
            Err(_) => break,
        }
    }
    format!("made {}", made.len())
}

/// The same of processes, which end before this returns.
fn processes() -> String {
    let mut made = Vec::new();
    while made.len() < 64 {
        // SAFETY: the child waits for a signal and does nothing else.
        match unsafe { libc::fork() } {
            0 => unsafe {
                // SAFETY: as above; it must not outlive its parent.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::sleep(2);
                libc::_exit(0);
            },
            pid if pid > 0 => made.push(pid),
            _ => break,
        }
    }
    for pid in &made {
        // SAFETY: a child of ours that nobody has waited for.
        unsafe {
            libc::kill(*pid, libc::SIGKILL);
            libc::waitpid(*pid, null_mut(), 0);
        }
    }
    format!("made {}", made.len())
}

/// The numbers that are open.
fn descriptors() -> String {
    // SAFETY: asks about numbers, open or not.
    let open = |fd: &i32| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0;
    format!("{:?}", (0..1024).filter(open).collect::<Vec<_>>())
}

/// What an elastic thread does, on descriptor 3 (memory, two pages) and 4 (a control socket).
fn work() -> String {
    const PAGE: usize = 4096;
    let shared = libc::MAP_SHARED;
    let both = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of a passed memory of two pages; written within it.
    unsafe {
        let at = libc::mmap(null_mut(), 2 * PAGE, both, shared, 3, 0);
        if at == libc::MAP_FAILED {
            return format!("mmap: {}", outcome(-1));
        }
        at.cast::<u8>().write_volatile(42);
    }
    let waiting = std::sync::Mutex::new(0u32);
    let thread = std::thread::Builder::new().name("elastic".into());
    let counted = std::thread::scope(|scope| {
        let thread = thread.spawn_scoped(scope, || *waiting.lock().expect("not poisoned") += 1);
        thread.map(|thread| thread.join().is_ok())
    });
    if !matches!(counted, Ok(true)) {
        return format!("thread: {counted:?}");
    }
    // SAFETY: descriptors are ours, buffers live until the calls return.
    unsafe {
        let event = libc::eventfd(1, libc::EFD_CLOEXEC);
        let mut poll = libc::pollfd { fd: event, events: libc::POLLIN, revents: 0 };
        let mut value = 0u64;
        let mut mask: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        let steps = [
            ("poll", i64::from(libc::poll(&mut poll, 1, 100)) - 1),
            ("read", libc::read(event, (&raw mut value).cast(), 8) as i64 - 8),
            ("close", libc::close(event).into()),
            ("timer", libc::timerfd_create(libc::CLOCK_MONOTONIC, 0).into()),
            ("affinity", libc::sched_getaffinity(0, size, &mut mask).into()),
            ("pin", libc::sched_setaffinity(0, size, &mask).into()),
            ("yield", libc::sched_yield().into()),
            ("send", libc::send(4, b"x".as_ptr().cast(), 1, 0) as i64 - 1),
        ];
        if let Some((name, _)) = steps.iter().find(|(_, answer)| *answer < 0) {
            return format!("{name}: {}", outcome(-1));
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(1));
    "ok".into()
}
