//! Three processes serve, and one of them is killed at some moment: the others go, and nothing is left.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use rustix::process::{Pid, Signal, kill_process};
use sandbox::{Seccomp, Standing};
use service::lab::constants::{CLIENT_INTERFACE, DATAPLANE_INTERFACE};

use crate::harness::process::{Running, Three};
use crate::harness::stream::{assert_echoes, connect};
use crate::harness::{
    ECHO, PATIENCE, TemporaryDirectory, Testbed, config, start, tailplane, wait_until,
};

/// The aim is two seconds; other work of the machine may take its share.
const AT_ONCE: Duration = Duration::from_secs(5);
const CONNECTIONS: usize = 8;
/// Kills of each process.
const ROUNDS: u64 = 3;
/// Kills of a dataplane whose peers are silent, and these peers.
const SILENT_ROUNDS: u64 = 2;
const SILENT: usize = 600;
/// Peers that are not there any more, and their address.
const GONE: usize = 300;
const VANISHING: &str = "10.77.0.99/24";

pub fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a number of a process");
    kill_process(pid, Signal::KILL).expect("it was there");
}

/// One that has ended and waits for whoever reaps it does not live.
fn lives(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| !state.trim().starts_with(['Z', 'X']))
}

/// Numbers that differ from run to run, and are printed with a failure.
fn dice(below: u64) -> u64 {
    static SEED: AtomicU64 = AtomicU64::new(0);
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).expect("randomness");
    let drawn = u64::from_le_bytes(bytes) ^ SEED.fetch_add(1, Ordering::Relaxed);
    drawn % below
}

/// Asks and is answered, again and again, until the connection ends: how, and when. It does not wait for an answer
/// for ever: where it is acknowledged and not answered, it asks again.
fn talk(mut stream: TcpStream) -> JoinHandle<(ErrorKind, Instant)> {
    stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket of ours");
    let until = Instant::now() + PATIENCE;
    thread::spawn(move || {
        let mut answer = [0; 64];
        loop {
            let asked = stream.write_all(&[7; 64]).and_then(|()| stream.read_exact(&mut answer));
            match asked.map_err(|error| error.kind()) {
                Ok(()) => thread::sleep(Duration::from_micros(300)),
                Err(ErrorKind::WouldBlock) if Instant::now() < until => {}
                Err(kind) => return (kind, Instant::now()),
            }
        }
    })
}

fn free_huge_pages() -> String {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kept = text.lines().filter(|line| {
        ["HugePages_Total", "HugePages_Free", "HugePages_Rsvd"]
            .iter()
            .any(|key| line.starts_with(key))
    });
    kept.collect::<Vec<_>>().join("\n")
}

fn namespaces() -> Vec<String> {
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn link(bed: &Testbed) -> String {
    let mut command = Command::new("ip");
    command.args(["-n", bed.lab.dataplane().name(), "link", "show", "dev", DATAPLANE_INTERFACE]);
    let output = command.output().expect("iproute2");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn protected(bed: &Testbed) -> Running {
    let more = "domain = \"process\"\n[memory]\nchunks = 16384\n";
    start(&bed.directory, &config("echo", bed.lab.prefix(), 2, more))
}

/// Kills one of the three while clients talk, and looks at what is left.
fn round(bed: &Testbed, victim: impl Fn(Three) -> u32) {
    let before = (free_huge_pages(), namespaces());
    let service = protected(bed);
    let three = Three::of(&service);
    let streams: Vec<_> =
        bed.at_client(|| (0..CONNECTIONS).map(|_| connect(ECHO).expect("let in")).collect());
    let mut silent = bed.at_client(|| connect(ECHO)).expect("let in");
    assert_echoes(&mut silent, b"and then nothing");
    let talking: Vec<_> = streams.into_iter().map(talk).collect();
    let moment = Duration::from_micros(dice(60_000));
    thread::sleep(moment);
    kill(victim(three));
    let killed = Instant::now();
    wait_until(&format!("all of {three:?} have ended, one killed after {moment:?}"), || {
        !three.all().into_iter().any(lives)
    });
    let gone = killed.elapsed();
    for talk in talking {
        let (kind, when) = talk.join().expect("no panic");
        assert_eq!(kind, ErrorKind::ConnectionReset, "{three:?} after {moment:?}");
        let heard = when.saturating_duration_since(killed);
        assert!(heard < AT_ONCE, "heard after {heard:?}, killed after {moment:?}");
    }
    let error = silent.read(&mut [0; 8]).expect_err("no end in order");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{three:?} after {moment:?}");
    println!("killed after {moment:?}: all gone {gone:?} later");
    assert!(gone < AT_ONCE, "gone after {gone:?}, killed after {moment:?}");
    // The kernel takes a dead process's programs and memory apart in its own time.
    wait_until("the XDP program is gone", || !link(bed).contains("xdp"));
    wait_until("all else is as it was", || (free_huge_pages(), namespaces()) == before);
    let finished = service.finish();
    assert!(!finished.status.success(), "{finished:?}");
}

#[test]
fn the_starters_death_ends_the_others_and_resets_connections() {
    let Some(bed) = Testbed::alone("starter", 2) else { return };
    (0..ROUNDS).for_each(|_| round(&bed, |three| three.starter));
}

#[test]
fn the_applications_death_ends_the_others_and_resets_connections() {
    let Some(bed) = Testbed::alone("application", 2) else { return };
    (0..ROUNDS).for_each(|_| round(&bed, |three| three.application));
}

#[test]
fn the_dataplanes_death_ends_the_others_and_resets_connections() {
    let Some(bed) = Testbed::alone("dataplane", 2) else { return };
    (0..ROUNDS).for_each(|_| round(&bed, |three| three.dataplane));
    // And the next service finds all it needs.
    let service = protected(&bed);
    let mut stream = bed.at_client(|| connect(ECHO)).expect("let in");
    assert_echoes(&mut stream, b"as if nothing had been");
    drop(stream);
    service.interrupt(Signal::TERM).assert_success();
}

/// Connects from an address of the client's.
fn connect_as(from: Ipv4Addr) -> TcpStream {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP));
    let socket = socket.expect("a socket");
    rustix::net::bind(&socket, &SocketAddrV4::new(from, 0)).expect("an address of ours");
    rustix::net::connect(&socket, &ECHO).expect("let in");
    TcpStream::from(socket)
}

fn at_clients_link(bed: &Testbed, what: &str) {
    let mut command = Command::new("ip");
    command.args(["-n", bed.lab.client().name(), "address", what, VANISHING, "dev"]);
    assert!(command.arg(CLIENT_INTERFACE).status().expect("iproute2").success());
}

/// Whether all threads of a process are stopped.
fn stands_still(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    threads.flatten().all(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let state = status.lines().find_map(|line| line.strip_prefix("State:"));
        state.is_some_and(|state| state.trim().starts_with('T'))
    })
}

/// Whether the peer has acknowledged all that these have sent, as the kernel shows its sockets.
fn all_acknowledged(bed: &Testbed, streams: &[TcpStream]) -> bool {
    let read = || fs::read_to_string("/proc/thread-self/net/tcp").expect("a table of sockets");
    let table = bed.at_client(read);
    streams.iter().all(|stream| {
        let port = format!(":{:04X}", stream.local_addr().expect("it is connected").port());
        let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|fields| fields.get(1).is_some_and(|local| local.ends_with(&port)));
        line.is_some_and(|fields| fields[4].starts_with("00000000:"))
    })
}

/// Peers that will not say a word: they are told all the same, many more of them than are asked at a time, and although
/// some of those that come before them are not there any more.
#[test]
fn peers_of_a_killed_dataplane_that_are_silent_are_reset() {
    let Some(bed) = Testbed::new("silent", 2) else { return };
    let (vanishing, _) = VANISHING.split_once('/').expect("with a prefix");
    let vanishing = vanishing.parse().expect("an address");
    for _ in 0..SILENT_ROUNDS {
        let service = protected(&bed);
        let three = Three::of(&service);
        at_clients_link(&bed, "add");
        let gone: Vec<_> = bed.at_client(|| (0..GONE).map(|_| connect_as(vanishing)).collect());
        let some = || (0..SILENT).map(|_| connect(ECHO).expect("let in")).collect::<Vec<_>>();
        let mut silent = bed.at_client(some);
        silent.iter_mut().step_by(2).for_each(|stream| assert_echoes(stream, b"one word"));
        // These wait for an answer, and have nothing more to send.
        let application = i32::try_from(three.application).ok().and_then(Pid::from_raw);
        kill_process(application.expect("a process"), Signal::STOP).expect("it runs");
        // Each of its threads hears so when it next enters the kernel.
        wait_until("the application stands still", || stands_still(three.application));
        let asking = silent.iter_mut().step_by(3);
        asking.for_each(|stream| stream.write_all(b"asked").expect("there is room"));
        wait_until("all questions have arrived", || all_acknowledged(&bed, &silent));
        at_clients_link(&bed, "del");
        kill(three.dataplane);
        let killed = Instant::now();
        for (number, stream) in silent.iter_mut().enumerate() {
            let error = stream.read(&mut [0; 8]).expect_err("no end in order, and no answer");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{number}, of {three:?}");
        }
        let heard = killed.elapsed();
        println!("{SILENT} silent peers have heard after {heard:?}");
        assert!(heard < AT_ONCE, "after {heard:?}");
        wait_until("all have ended", || !three.all().into_iter().any(lives));
        assert!(killed.elapsed() < 2 * AT_ONCE, "gone after {:?}", killed.elapsed());
        drop((gone, service.finish()));
    }
}

#[test]
fn a_dataplane_that_is_killed_is_told_of() {
    let Some(bed) = Testbed::new("told", 1) else { return };
    let service =
        start(&bed.directory, &config("echo", bed.lab.prefix(), 1, "domain = \"process\"\n"));
    kill(Three::of(&service).dataplane);
    service.finish().assert_failure(&["the dataplane ended without a word", "signal: 9"]);
}

/// What is not had is said; what is left works.
#[test]
fn inherited_users_are_said_and_serve() {
    let Some(bed) = Testbed::new("inherited", 1) else { return };
    let more = "domain = \"process\"\nuser = \"inherit\"\n[application]\nuser = \"inherit\"\n";
    let service = start(&bed.directory, &config("echo", bed.lab.prefix(), 1, more));
    let said = service.stdout();
    for line in [
        "protection missing: the dataplane has no user of its own: the configuration",
        "protection missing: the application has no user of its own, every system call, the machine's network, the \
             machine's files, no Landlock rules: the configuration",
    ] {
        assert!(said.contains(line), "{said}");
    }
    let standing = Standing::of(Three::of(&service).dataplane).expect("it runs");
    assert!(standing.users == [0; 4] && standing.is_powerless(), "{standing:?}");
    let mut stream = bed.at_client(|| connect(ECHO)).expect("let in");
    assert_echoes(&mut stream, b"all the same");
    drop(stream);
    service.interrupt(Signal::TERM).assert_success();
}

/// A wire in shared memory needs no privilege: neither does what is served on it.
#[test]
fn a_local_wire_is_served_by_three_processes() {
    let directory = TemporaryDirectory::new();
    let socket = directory.file("wire.sock");
    let text = format!(
        "[service]\napp = \"kv\"\n[network]\nshm = \"{}\"\n[dataplane]\nspin_us = 50\n\
         domain = \"process\"\n[memory]\nchunks = 16384\n",
        socket.display()
    );
    let service = start(&directory, &text);
    let three = Three::of(&service);
    let finished = service.interrupt(Signal::TERM);
    finished.assert_success();
    assert!(!socket.exists() && !three.all().into_iter().any(lives), "{three:?}");
    // Killed, too.
    let service = start(&directory, &text);
    let three = Three::of(&service);
    kill(three.starter);
    wait_until("all have ended", || !three.all().into_iter().any(lives));
    let _ = service.finish();
}

/// On a local wire, any user serves; what protection that user cannot give is said.
#[test]
fn a_user_that_is_not_root_serves_and_is_told_what_is_missing() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let directory = TemporaryDirectory::new();
    let socket = directory.file("wire.sock");
    let path = directory.write(
        "run.toml",
        format!(
            "[service]\napp = \"echo\"\n[network]\nshm = \"{}\"\n[dataplane]\nspin_us = 50\n\
             domain = \"process\"\n",
            socket.display()
        ),
    );
    let all = fs::Permissions::from_mode(0o777);
    fs::set_permissions(path.parent().expect("a folder"), all).expect("ours");
    let mut command = tailplane(&["run", "--seconds", "60"]);
    command.arg(path).uid(65_534).gid(65_534);
    let service = match Running::start(&directory, "service", command, Command::spawn) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            println!("skipped: needs a build folder that every user can reach");
            return;
        }
        started => started.expect("the tailplane command starts"),
    };
    wait_until("the service serves", || service.stdout().contains("scheduler"));
    let said = service.stdout();
    // Of the dataplane its user, its files and its limits; of the application its limits, and all else in one line.
    assert_eq!(said.matches("the command was not started as root").count(), 5, "{said}");
    let standing = Standing::of(Three::of(&service).dataplane).expect("it runs");
    assert!(standing.is_powerless() && standing.no_new_privileges, "{standing:?}");
    // Across the start, with threads, without.
    assert_eq!((standing.users, standing.seccomp), ([65_534; 4], Seccomp::Filters(3)));
    service.interrupt(Signal::TERM).assert_success();
}
