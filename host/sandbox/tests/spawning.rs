//! Starting confined processes: what they are allowed, what they hold, when they die.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Place, USER, finish, is_root, lives};
use sandbox::{
    Confinement, Ended, LAST_TARGET, Limits, Refusal, Root, SandboxError, Standing, Step,
    SyscallPolicy, Watched,
};

const SOON: Duration = Duration::from_secs(1);

fn dataplane() -> Confinement {
    Confinement::new().identity(USER, USER).syscalls(SyscallPolicy::dataplane().with_startup())
}

#[test]
fn a_child_has_no_power_and_the_kernel_says_so() {
    if !is_root() {
        return;
    }
    let place = Place::new("standing");
    let mut child = dataplane().spawn(place.command(&["strict", "wait"]), &[]).expect("a child");
    let mut ready = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut ready).expect("a line");
    let standing = Standing::of(child.id()).expect("it runs");
    let (_, ended) = finish(child);
    assert_eq!((ready.trim(), ended), ("ready", Ended::Exited(0)));
    assert_eq!(standing.users, [USER; 4]);
    assert_eq!(standing.groups, [USER; 4]);
    assert!(standing.supplementary.is_empty());
    assert_eq!((standing.bounding, standing.is_powerless()), (0, true), "{standing:?}");
    assert!(standing.no_new_privileges);
    assert_eq!(standing.seccomp, sandbox::Seccomp::Filters(2));
    // The same of the starter: it was not confined with it.
    assert!(!Standing::of_self().expect("we run").is_powerless());
}

#[test]
fn only_the_listed_descriptors_are_open_in_the_child() {
    let place = Place::new("descriptors");
    let confinement = Confinement::new();
    let files: Vec<_> =
        (0..4).map(|_| std::fs::File::open("/dev/null").expect("it opens")).collect();
    // Without close-on-exec: only the confinement can close these.
    for file in &files {
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty()).expect("it is open");
    }
    let (free, _) = place.free(&["free", "descriptors"]);
    assert!(free.matches(',').count() >= 2 + files.len(), "{free}");
    let (none, _) = place.confined(&confinement, &["free", "descriptors"], &[]);
    assert_eq!(none, "[0, 1, 2]");
    // Targets that are each other's sources.
    let numbers = files.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect::<Vec<_>>();
    let crossed =
        [(files[0].as_fd(), numbers[1]), (files[1].as_fd(), numbers[0]), (files[2].as_fd(), 700)];
    let (found, _) = place.confined(&confinement, &["free", "descriptors"], &crossed);
    let mut expected = vec![0, 1, 2, numbers[0], numbers[1], 700];
    expected.sort_unstable();
    assert_eq!(found, format!("{expected:?}"));
}

#[test]
fn crossed_descriptors_arrive_where_they_should() {
    let (a_read, a_write) = std::io::pipe().expect("a pipe");
    let (b_read, b_write) = std::io::pipe().expect("a pipe");
    let (a, b) =
        (std::os::fd::AsRawFd::as_raw_fd(&a_write), std::os::fd::AsRawFd::as_raw_fd(&b_write));
    let mut command = Command::new("/bin/bash");
    command.args(["-c", &format!("echo first >&{b}; echo second >&{a}")]);
    let mut child = Confinement::new()
        .spawn(command, &[(a_write.as_fd(), b), (b_write.as_fd(), a)])
        .expect("a child");
    assert!(child.wait().expect("a child of ours").success());
    drop((a_write, b_write));
    for (mut end, expected) in [(a_read, "first\n"), (b_read, "second\n")] {
        let mut found = String::new();
        end.read_to_string(&mut found).expect("text");
        assert_eq!(found, expected);
    }
}

#[test]
fn a_dataplane_can_do_its_work() {
    if !is_root() {
        return;
    }
    let place = Place::new("work");
    let memory = rustix::fs::memfd_create("umem", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
    rustix::fs::ftruncate(&memory, 8192).expect("two pages");
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let confinement = Confinement::new()
        .identity(USER, USER)
        .own_network()
        .root(Root::for_program(&place.probe()).expect("a program"))
        .limits(Limits {
            open_files: Some(64),
            address_space_bytes: Some(1 << 30),
            ..Limits::default()
        })
        .syscalls(
            SyscallPolicy::dataplane().with_threads().with_startup().refusing_with(Refusal::Kill),
        );
    let passed = [(memory.as_fd(), 3), (theirs.as_fd(), 4)];
    // Killing at the least refusal: nothing that it needs is missing from the list.
    let (found, ended) = place.confined(&confinement, &["start", "work"], &passed);
    assert_eq!((found.as_str(), ended), ("ok", Ended::Exited(0)));
    let mut byte = [0];
    ours.read_exact(&mut byte).expect("it was sent");
    assert_eq!(rustix::io::pread(&memory, &mut byte[..], 0), Ok(1));
    assert_eq!(byte, [42]);
}

#[test]
fn limits_bind() {
    if !is_root() {
        return;
    }
    let place = Place::new("limits");
    // Users of its own: the count of processes is a user's.
    let with = |user, limits| Confinement::new().identity(user, user).limits(limits);
    let none = Limits::default();
    let cases = [
        ("much memory", Limits { address_space_bytes: Some(512 << 20), ..none }, "ENOMEM"),
        ("much locked memory", Limits { locked_memory_bytes: Some(64 << 10), ..none }, "ENOMEM"),
        ("many files", Limits { open_files: Some(64), ..none }, "EMFILE"),
        ("real time", Limits { realtime_priority: Some(0), ..none }, "EPERM"),
        ("threads", Limits { processes: Some(5), ..none }, "made 4"),
        ("processes", Limits { processes: Some(5), ..none }, "made 4"),
    ];
    for (i, (attempt, limits, expected)) in cases.into_iter().enumerate() {
        let user = 30_100 + i as u32;
        let (found, ended) = place.confined(&with(user, limits), &["free", attempt], &[]);
        assert_eq!((found.as_str(), ended), (expected, Ended::Exited(0)), "{attempt}");
        let (free, _) = place.free(&["free", attempt]);
        assert!(free == "ok" || free == "made 64", "{attempt} without the limit: {free}");
    }
}

#[test]
fn a_real_time_thread_that_spins_is_killed() {
    if !is_root() {
        return;
    }
    let place = Place::new("realtime");
    let limits = Limits { realtime_us: Some(100_000), ..Limits::default() };
    let confinement = Confinement::new().identity(USER, USER).limits(limits);
    // The starter gives the policy, as it does to a dataplane: the child may not.
    let spin = |child: std::process::Child| {
        let number = child.id().to_string();
        let given = Command::new("chrt").args(["-f", "-p", "1", &number]).status();
        assert!(given.expect("chrt of util-linux").success());
        finish(child)
    };
    let command = || place.command(&["free", "spin in real time"]);
    let (_, ended) = spin(confinement.spawn(command(), &[]).expect("a child"));
    assert_eq!(ended, Ended::Killed(libc::SIGKILL));
    let (found, ended) = spin(command().spawn().expect("a child"));
    assert_eq!((found.as_str(), ended), ("ok", Ended::Exited(0)));
}

#[test]
fn no_file_and_no_network_of_the_host_is_reached() {
    if !is_root() {
        return;
    }
    let place = Place::new("root");
    let host = Confinement::new();
    let root = Root::for_program(&place.probe()).expect("a program");
    let confinement = Confinement::new().own_network().root(root);
    for (attempt, expected) in [
        ("read passwd", "ENOENT"),
        ("write memory of init", "ENOENT"),
        ("make a file", "EROFS"),
        ("reach the host", "ENETUNREACH"),
    ] {
        let (found, _) = place.confined(&confinement, &["free", attempt], &[]);
        // The file would be made in the folder of the probe, which is there: its file system is read-only.
        assert_eq!(found, expected, "{attempt}");
        let (found, _) = place.confined(&host, &["free", attempt], &[]);
        assert_ne!(found, expected, "{attempt} without a root and network of its own");
    }
}

/// Starts a starter; it and its child's number.
fn starter(place: &Place, kind: &str) -> (std::process::Child, u32) {
    let mut starter = place.command(&["free", kind]).spawn().expect("a starter");
    let mut number = String::new();
    BufReader::new(starter.stdout.as_mut().expect("piped")).read_line(&mut number).expect("a line");
    let number = number.trim().parse().unwrap_or_else(|_| panic!("{number}"));
    (starter, number)
}

fn gone_soon(pid: u32) -> bool {
    let deadline = Instant::now() + SOON;
    while lives(pid) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    !lives(pid)
}

#[test]
fn a_child_dies_with_its_starter_in_any_order() {
    if !is_root() {
        return;
    }
    let place = Place::new("death");
    // The starter is killed first.
    let (mut first, child) = starter(&place, "starter");
    assert!(lives(child));
    first.kill().and_then(|()| first.wait()).expect("a child of ours");
    assert!(gone_soon(child), "the starter was killed, its child lives");
    // The starter ends in order.
    let (second, child) = starter(&place, "starter");
    finish(second);
    assert!(gone_soon(child), "the starter ended, its child lives");
    // The child is killed first: the starter is not hurt.
    let (third, child) = starter(&place, "starter");
    let pid = rustix::process::Pid::from_raw(child as i32).expect("a number");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("root may");
    assert_eq!(finish(third).1, Ended::Exited(0));
    assert!(gone_soon(child));
    // Where that is not asked for, it lives on: so it was the request that ended the others.
    let (mut careless, child) = starter(&place, "careless starter");
    careless.kill().and_then(|()| careless.wait()).expect("a child of ours");
    std::thread::sleep(Duration::from_millis(100));
    assert!(lives(child));
    let pid = rustix::process::Pid::from_raw(child as i32).expect("a number");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("root may");
    // Both at once.
    let (mut fourth, child) = starter(&place, "starter");
    let pid = rustix::process::Pid::from_raw(child as i32).expect("a number");
    fourth.kill().expect("a child of ours");
    // It may have gone with its starter already.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    fourth.wait().expect("a child of ours");
    assert!(gone_soon(child));
}

#[test]
fn a_watched_child_tells_its_end() {
    let mut child = Command::new("sleep").arg("5").spawn().expect("a child");
    let watched = Watched::of_child(&child).expect("a child");
    assert!(!watched.wait(Duration::ZERO).expect("a wait"));
    assert_eq!(watched.ended().expect("a child of ours"), None);
    watched.kill().expect("a child of ours");
    assert!(watched.wait(SOON).expect("a wait"));
    assert_eq!(watched.ended().expect("a child of ours"), Some(Ended::Killed(libc::SIGKILL)));
    child.wait().expect("a child of ours");
    // Waited for: its number may be another's now, and still nobody else is meant.
    assert!(watched.wait(Duration::ZERO).expect("a wait"));
    watched.kill().expect("no error");
    assert!(watched.ended().is_err());
    assert!(Watched::of_child(&child).is_err());
}

#[test]
fn what_cannot_be_started_is_said_with_its_step() {
    let said = |confinement: &Confinement, command: Command| {
        confinement.spawn(command, &[]).map(|_| ()).expect_err("no child")
    };
    let nowhere = || Command::new("/no/such/program");
    let found = said(&Confinement::new(), nowhere());
    assert!(matches!(found, SandboxError::Step { step: Step::Exec, .. }), "{found:?}");
    assert!(found.to_string().contains("start the program"), "{found}");
    let found = said(&Confinement::new().syscalls(SyscallPolicy::dataplane()), nowhere());
    assert!(
        found.to_string().contains("refuses execve") && found.to_string().contains("with_startup")
    );
    let relative = Root::Only(vec!["etc".into()]);
    assert!(said(&Confinement::new().root(relative), nowhere()).to_string().contains("absolute"));
    let nested = Root::Only(vec!["/usr/lib".into(), "/usr/lib/os-release".into()]);
    assert!(said(&Confinement::new().root(nested), nowhere()).to_string().contains("outer"));
    let null = std::fs::File::open("/dev/null").expect("it opens");
    for (number, reason) in [(2, "Command::stdin"), (LAST_TARGET + 1, "lower number")] {
        let found = Confinement::new().spawn(nowhere(), &[(null.as_fd(), number)]);
        let found = found.map(|_| ()).expect_err("no such target").to_string();
        assert!(found.contains(reason), "{found}");
    }
    let twice = [(null.as_fd(), 9), (null.as_fd(), 9)];
    assert!(Confinement::new().spawn(nowhere(), &twice).is_err());
    if !is_root() {
        let found = said(&Confinement::new().identity(0, 0), nowhere());
        assert!(found.to_string().contains("as root"), "{found}");
    }
    // More than the kernel allows even root: the step before `exec` is named, not `exec`.
    let limits = Limits { open_files: Some(u64::MAX / 2), ..Limits::default() };
    let found = said(&Confinement::new().limits(limits), nowhere());
    assert!(matches!(found, SandboxError::Step { step: Step::Limits, .. }), "{found:?}");
}
