//! What an application could do beside its service: leave processes behind, live on without its starter, open files.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::time::{Duration, Instant};

use common::{Place, USER, finish, is_root, lives};
use sandbox::{Confinement, Ended, Files, Standing};

/// A chain of forks goes on for two seconds by itself.
const AT_ONCE: Duration = Duration::from_secs(1);

fn user() -> Confinement {
    Confinement::new().identity(USER, USER)
}

fn line(child: &mut Child) -> String {
    let mut line = String::new();
    let output = child.stdout.as_mut().expect("piped");
    BufReader::new(output).read_line(&mut line).expect("a line");
    line.trim().to_owned()
}

/// How long after a program's death its output is still held by a process that it has left behind.
fn outlived(place: &Place, confinement: &Confinement) -> Duration {
    let mut child = confinement.spawn(place.command(&["free", "chain"]), &[]).expect("it starts");
    assert_eq!(line(&mut child), "ready");
    let killed = Instant::now();
    child.kill().and_then(|()| child.wait()).expect("a child of ours");
    let mut rest = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut rest).expect("text");
    killed.elapsed()
}

#[test]
fn a_chain_of_forks_ends_with_its_program() {
    if !is_root() {
        return;
    }
    let place = Place::new("chain");
    let without = outlived(&place, &user());
    assert!(without > AT_ONCE, "nothing to contain: the chain ended after {without:?}");
    let with = outlived(&place, &user().own_processes());
    assert!(with < AT_ONCE, "the chain went on for {with:?}");
}

/// Segments of shared memory that this user has left on the host.
fn segments_left() -> usize {
    let table =
        std::fs::read_to_string("/proc/sysvipc/shm").expect("a kernel with System V objects");
    let owner = |line: &str| line.split_whitespace().nth(7).and_then(|uid| uid.parse().ok());
    table.lines().filter(|line| owner(line) == Some(USER)).count()
}

#[test]
fn shared_memory_ends_with_its_program() {
    if !is_root() {
        return;
    }
    let place = Place::new("segment");
    let before = segments_left();
    let (found, ended) =
        place.confined(&user().own_processes(), &["free", "leave shared memory"], &[]);
    assert_eq!((found.as_str(), ended), ("ok", Ended::Exited(0)), "it can make some");
    assert_eq!(segments_left(), before);
}

#[test]
fn a_program_that_clears_its_death_signal_dies_with_its_starter() {
    if !is_root() {
        return;
    }
    let place = Place::new("stubborn");
    let survives = |kind: &str| {
        let mut starter = place.command(&["free", kind]).spawn().expect("a starter");
        let program: u32 = line(&mut starter).parse().expect("a number");
        assert!(program > 0 && lives(program));
        // It has cleared its signal when it waits for its input.
        let deadline = Instant::now() + AT_ONCE;
        while !sleeps(program) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        starter.kill().and_then(|()| starter.wait()).expect("a child of ours");
        let deadline = Instant::now() + AT_ONCE / 2;
        while lives(program) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let survived = lives(program);
        if survived {
            let pid = rustix::process::Pid::from_raw(program as i32).expect("a number");
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("root may");
        }
        survived
    };
    assert!(survives("starter of one that clears its death signal"), "nothing to contain");
    assert!(!survives("the same in a namespace"));
}

/// Whether the probe waits for its input, which is the last that it does.
fn sleeps(pid: u32) -> bool {
    // The number of the call, or "running".
    let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let is_probe = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    is_probe.ends_with(b"clear\0") && call.starts_with("0 0x0 ")
}

#[test]
fn a_program_in_a_namespace_is_an_ordinary_process_with_an_ordinary_end() {
    if !is_root() {
        return;
    }
    let place = Place::new("namespace");
    let confinement = user().own_processes();
    let (found, ended) = place.confined(&confinement, &["free", "number of itself"], &[]);
    assert_eq!((found.as_str(), ended), ("2\nok", Ended::Exited(0)));
    // Init's memory is there to be refused: it is not the machine's.
    let (found, _) = place.confined(&confinement, &["free", "write memory of init"], &[]);
    assert_eq!(found, "EACCES");
    let mut child =
        confinement.spawn(place.command(&["free", "wait"]), &[]).expect("the probe starts");
    assert_eq!(line(&mut child), "ready");
    let (first, program) = (
        Standing::of(child.id()).expect("it runs"),
        Standing::of_program(child.id()).expect("it runs"),
    );
    assert_eq!((program.parent, program.numbers.last()), (first.pid, Some(&2)), "{program:?}");
    assert_eq!((first.users, program.users), ([USER; 4], [USER; 4]));
    assert!(first.is_powerless() && program.is_powerless());
    let open = std::fs::read_dir(format!("/proc/{}/fd", first.pid)).expect("root may look");
    assert_eq!(open.count(), 0, "the first process holds nothing");
    // A signal from inside or outside is the program's as ever.
    let pid = rustix::process::Pid::from_raw(program.pid as i32).expect("a number");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("root may");
    assert_eq!(finish(child).1, Ended::Exited(128 + libc::SIGTERM));
    // What the caller starts afterwards is not in that namespace.
    let (found, _) = place.free(&["free", "number of itself"]);
    assert_ne!(found, "2\nok");
    let (found, _) = place.confined(&user(), &["free", "threads"], &[]);
    assert_eq!(found, "made 64");
}

#[test]
fn files_are_read_only_but_for_listed_ones() {
    if !is_root() {
        return;
    }
    if Files::version() == 0 {
        println!("skipped: the kernel enforces no Landlock rules");
        return;
    }
    let place = Place::new("files");
    let read_only = Confinement::new().files(Files::read_only());
    let writable = Confinement::new().files(Files::read_only().writable("/tmp"));
    for (attempt, free, expected, listed) in [
        ("read passwd", "ok", "ok", "ok"),
        ("make a file", "ok", "EACCES", "ok"),
        ("write to null", "ok", "ok", "ok"),
        ("write below proc", "ok", "EACCES", "EACCES"),
        ("open another device", "ok", "EACCES", "EACCES"),
        ("start a program", "ENOENT", "ENOENT", "ENOENT"),
    ] {
        // Root, so that nothing but the rules decides.
        let (found, _) = place.free(&["free", attempt]);
        assert_eq!(found, free, "{attempt} without rules");
        for (confinement, expected) in [(&read_only, expected), (&writable, listed)] {
            let (found, ended) = place.confined(confinement, &["free", attempt], &[]);
            assert_eq!((found.as_str(), ended), (expected, Ended::Exited(0)), "{attempt}");
        }
    }
}
