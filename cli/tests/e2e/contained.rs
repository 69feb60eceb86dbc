//! What the kernel keeps the processes of a service from: each one's standing after the start, and programs that take
//! all memory or all process numbers, or live on.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sandbox::{Groups, Seccomp, Standing};
use service::identity::{APPLICATION_USER, DATAPLANE_USER};

use crate::deaths::kill;
use crate::harness::process::{RUN_DIR, Running, Three};
use crate::harness::stream::{assert_echoes, connect};
use crate::harness::{ECHO, PATIENCE, Testbed, config, start, tailplane, wait_until};
use crate::unsafe_scheduling::policy_of;

/// Processes of the application that is a fork bomb.
const PROCESSES: usize = 48;

fn link(pid: u32, name: &str) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/{name}")).expect("it runs")
}

/// The groups that a process is in, as paths below their hierarchies.
fn groups(pid: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it runs");
    // hierarchy:controllers:path
    text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).map(str::to_owned).collect()
}

/// What the descriptors of a process are, without the numbers that differ from run to run.
fn descriptors(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
    let mut all: Vec<String> = entries
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .map(|to| to.to_string_lossy().split(":[").next().unwrap_or_default().to_owned())
        .collect();
    all.sort();
    all
}

/// The names of the environment that a process began with.
fn environment(pid: u32) -> Vec<String> {
    let text = fs::read(format!("/proc/{pid}/environ")).expect("root may read it");
    let named = text.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
    named
        .map(|entry| {
            String::from_utf8_lossy(entry).split('=').next().unwrap_or_default().to_owned()
        })
        .collect()
}

/// A limit of a process, as `/proc/PID/limits` has it.
fn limit(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let soft = line.and_then(|line| line.split_whitespace().next());
    soft.unwrap_or_else(|| panic!("no '{name}' in {text}")).to_owned()
}

/// The value of a setting of the group that a process has joined in the hierarchy of `controller`, where there is one.
fn setting(pid: u32, controller: &str, first: &str, second: &str) -> Option<String> {
    let root = Path::new("/sys/fs/cgroup");
    let version = Groups::version(root, controller).ok()?;
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it runs");
    let path = text.lines().find_map(|line| {
        let [_, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>()[..] else {
            return None;
        };
        let is_it = match version {
            1 => controllers.split(',').any(|one| one == controller),
            _ => controllers.is_empty(),
        };
        is_it.then(|| path.trim_start_matches('/').to_owned())
    })?;
    let (hierarchies, file) = match version {
        1 => ([root.join(controller), root.join(controller)], first),
        _ => ([root.to_owned(), root.join("unified")], second),
    };
    let value =
        hierarchies.iter().find_map(|at| fs::read_to_string(at.join(&path).join(file)).ok());
    Some(value.unwrap_or_else(|| panic!("no {file} in {path}")).trim().to_owned())
}

/// A line of the status of each thread of a process, by the thread's number and name.
fn threads(pid: u32, field: &str) -> Vec<(u32, String, String)> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let all = entries.filter_map(|entry| {
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(|value| value.trim().to_owned())
        };
        Some((entry.file_name().to_str()?.parse().ok()?, of("Name")?, of(field)?))
    });
    all.collect()
}

/// Processors as the kernel lists them: `0-2,7`.
fn listed(text: &str) -> Vec<u32> {
    let number = |word: &str| word.parse::<u32>().expect("a number");
    let ranges = text.split(',').map(|part| part.split_once('-').unwrap_or((part, part)));
    ranges.flat_map(|(first, last)| number(first)..=number(last)).collect()
}

/// Each thread of a dataplane runs where one of its elastic threads was placed, at a priority that it cannot pass on; the
/// first thread, which only waits, has none.
#[test]
fn a_dataplane_reaches_the_processors_of_its_threads_and_no_other_one() {
    let Some(mut bed) = Testbed::new("bounds", 1) else { return };
    let all = listed(&threads(std::process::id(), "Cpus_allowed_list")[0].2);
    bed.serve("echo", 1, "domain = \"process\"\nrealtime = 1\ncpus = [0]\nplacement = \"split\"\n");
    let service = bed.service().expect("it runs");
    let (dataplane, said) = (Three::of(service).dataplane, service.stdout());
    let cpuset = || setting(dataplane, "cpuset", "cpuset.cpus", "cpuset.cpus");
    let is_bounded = !said.contains("no limit of the processors that it may run on");
    assert_eq!(
        is_bounded,
        Groups::version(Path::new("/sys/fs/cgroup"), "cpuset").is_ok(),
        "{said}"
    );
    let kept = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    let found = threads(dataplane, "Cpus_allowed_list");
    assert!(found.len() >= 4, "{found:?}");
    for (thread, name, allowed) in &found {
        let policy = policy_of(*thread);
        let expected = if *thread == dataplane { libc::SCHED_OTHER } else { kept };
        assert_eq!(policy, expected, "{name} of {found:?}");
        assert!(!is_bounded || listed(allowed) == [0], "{name} of {found:?}");
    }
    if !is_bounded || all.len() < 2 {
        return println!("skipped: {said}");
    }
    assert_eq!(cpuset().as_deref(), Some("0"));
    // A client of the control socket moves the thread, and the bounds with it.
    let path = endpoint::socket_path(&bed.directory.file("run"), "run").expect("a name");
    let mut client = endpoint::Client::connect(&path).expect("it serves");
    let last = *all.last().expect("two");
    let mut place = |cpu| {
        let order = endpoint::Request::Place { thread: 0, cpu };
        let id = client.ask(order).expect("sent");
        client.wait(id, PATIENCE)
    };
    place(last as usize).expect("it moves");
    wait_until("the bounds have moved", || cpuset() == Some(last.to_string()));
    for (_, name, allowed) in threads(dataplane, "Cpus_allowed_list") {
        assert_eq!(listed(&allowed), [last], "{name}");
    }
    // One that is not there: the order is refused, and the bounds stay.
    place(1_000).expect_err("no such processor");
    assert_eq!(cpuset(), Some(last.to_string()));
    assert_serves(&bed);
    bed.stop();
}

/// The kernel is asked what each process may do; nothing is taken from what the service says of itself but the numbers.
#[test]
fn each_process_stands_as_the_documents_say() {
    let Some(bed) = Testbed::new("audit", 2) else { return };
    let more = "domain = \"process\"\n[application]\nopen_files = 64\n[memory]\nchunks = 16384\n";
    let service = start(&bed.directory, &config("echo", bed.lab.prefix(), 2, more));
    let three = Three::of(&service);
    let said = service.stdout();
    let [starter, dataplane, application] =
        [three.starter, three.dataplane, three.application].map(|pid| Standing::of(pid).unwrap());
    assert_eq!((starter.users[1], starter.seccomp), (0, Seccomp::Off));
    let passwd = fs::read_to_string("/etc/passwd").expect("names of users");
    for (standing, default) in [(&dataplane, DATAPLANE_USER), (&application, APPLICATION_USER)] {
        let stand_in = (default.number, default.number);
        let (user, group) = default.named(&passwd).unwrap_or(stand_in);
        assert_eq!((standing.users, standing.groups), ([user; 4], [group; 4]));
        let is_lack = said.contains(&format!("no user '{}'", default.name));
        assert_eq!(is_lack, default.named(&passwd).is_none(), "{said}");
    }
    // The application is the child of its namespace's first process, which is the starter's.
    assert_eq!(application.numbers, [three.application, 2], "{application:?}");
    let first = Standing::of(application.parent).expect("it runs");
    assert_eq!((first.numbers.as_slice(), first.parent), (&[first.pid, 1][..], three.starter));
    assert_eq!(dataplane.parent, three.starter, "{dataplane:?}");
    for standing in [&dataplane, &application, &first] {
        assert!(standing.supplementary.is_empty(), "{standing:?}");
        assert!(standing.is_powerless() && standing.no_new_privileges, "{standing:?}");
        assert_eq!(standing.bounding, 0, "{standing:?}");
    }
    // Of the dataplane: across the start, with threads, without. Of the application: its list.
    assert_eq!(dataplane.seccomp, Seccomp::Filters(3));
    assert_eq!(application.seccomp, Seccomp::Filters(1));
    // The first process runs none of the application's code, and holds nothing.
    assert_eq!(descriptors(first.pid), Vec::<String>::new());

    for name in ["ns/net", "ns/mnt"] {
        let all = [three.starter, three.dataplane, three.application].map(|pid| link(pid, name));
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{name}: {all:?}");
    }
    assert_ne!(link(three.application, "ns/pid"), link(three.starter, "ns/pid"));
    for pid in [three.dataplane, three.application] {
        let below = fs::read_dir(format!("/proc/{pid}/root")).expect("it runs");
        let names: Vec<_> = below.flatten().map(|entry| entry.file_name()).collect();
        for absent in ["etc", "proc", "sys", "dev", "root", "run"] {
            assert!(!names.iter().any(|name| name == absent), "{absent}: {names:?}");
        }
        assert_eq!(limit(pid, "Max core file size"), "0");
        for held in descriptors(pid) {
            let known = ["socket", "pipe", "anon_inode", "/memfd"];
            assert!(known.iter().any(|kind| held.starts_with(kind)), "{pid} holds {held}");
        }
    }
    assert_eq!(environment(three.dataplane), Vec::<String>::new());
    assert_eq!(environment(three.application), ["TAILPLANE_DOMAIN"]);
    let phrases =
        said.lines().find(|line| line.contains("protection application: ")).expect("told");
    for phrase in ["system calls filtered", "64 open files, own processes, no network, no file but"]
    {
        assert!(phrases.contains(phrase), "{phrase:?}: {phrases}");
    }
    assert_eq!(limit(three.application, "Max open files"), "64");
    assert_eq!(limit(three.dataplane, "Max locked memory"), "0");
    assert_eq!(limit(three.dataplane, "Max realtime priority"), "0");
    assert_eq!(limit(three.dataplane, "Max realtime timeout"), "5000000");
    // 8 and two for each elastic thread; what an application has where nothing is said.
    for (pid, most) in [(three.dataplane, "12"), (three.application, "512")] {
        let value = setting(pid, "pids", "pids.max", "pids.max");
        assert!(value.as_deref().is_none_or(|value| value == most), "{pid}: {value:?}");
    }
    // Where the placement has put the elastic threads.
    let placed: BTreeSet<_> = threads(three.dataplane, "Cpus_allowed_list")
        .into_iter()
        .filter(|(_, name, _)| name.starts_with("elastic-"))
        .flat_map(|(_, _, allowed)| listed(&allowed))
        .collect();
    if let Some(cpus) = setting(three.dataplane, "cpuset", "cpuset.cpus", "cpuset.cpus") {
        assert_eq!(listed(&cpus).into_iter().collect::<BTreeSet<_>>(), placed);
    }

    let made =
        [("dataplane", three.dataplane), ("application", three.application)].map(|(name, pid)| {
            let limited = ["memory", "pids"].map(|controller| {
                let has = Groups::version(Path::new("/sys/fs/cgroup"), controller).is_ok();
                assert_eq!(said.contains(&format!("the {name} has no limit of")), !has, "{said}");
                has
            });
            let ours: Vec<_> = groups(pid)
                .into_iter()
                .filter(|path| path.contains(&format!("tailplane/{name}.{}.", three.starter)))
                .collect();
            assert_eq!(!ours.is_empty(), limited.contains(&true), "{name}: {ours:?}");
            ours
        });
    // The starter has neither packet memory nor sockets of the port.
    let maps = fs::read_to_string(format!("/proc/{}/maps", three.starter)).expect("it runs");
    assert!(!maps.contains("tailplane-packets"), "{maps}");
    let held = descriptors(three.starter);
    assert!(!held.iter().any(|file| file.contains("tailplane-packets")), "{held:?}");
    let finished = service.interrupt(Signal::TERM);
    finished.assert_success();
    assert_eq!(finished.stderr, "");
    for path in made.iter().flatten() {
        for hierarchy in ["memory", "pids", "cpu", "cpuset", "unified", ""] {
            let path =
                Path::new("/sys/fs/cgroup").join(hierarchy).join(path.trim_start_matches('/'));
            assert!(!path.exists(), "{} is left", path.display());
        }
    }
}

/// A thread of a real-time priority that has work all the time sleeps now and then, as its time limit asks.
#[test]
fn a_dataplane_that_always_runs_is_not_taken_for_one_that_was_broken_into() {
    let Some(bed) = Testbed::new("awake", 1) else { return };
    let more = "domain = \"process\"\nplacement = \"split\"\nrealtime = 1\n";
    // It spins for as long as this test takes.
    let text =
        config("echo", bed.lab.prefix(), 1, more).replace("spin_us = 50", "spin_us = 10000000");
    let service = start(&bed.directory, &text);
    let began = Instant::now();
    let dataplane = Three::of(&service).dataplane;
    let limit: u64 = limit(dataplane, "Max realtime timeout").parse().expect("a number of us");
    let limit = Duration::from_micros(limit);
    while began.elapsed() < limit + Duration::from_secs(1) {
        assert_serves(&bed);
        std::thread::sleep(Duration::from_millis(100));
    }
    service.interrupt(Signal::TERM).assert_success();
}

/// A service of a shell that does `first` and goes on as the built-in echo, with `more` about the application.
fn program(bed: &Testbed, more: &str, first: &str) -> Running {
    let text = config("echo", bed.lab.prefix(), 1, &format!("[application]\n{more}"));
    let path = bed.directory.write("run.toml", text);
    let script =
        format!("{first}exec {} application {}", env!("CARGO_BIN_EXE_tailplane"), path.display());
    let mut command = tailplane(&["run", "--seconds", "300"]);
    command.arg(&path).args(["--", "sh", "-c", &script]);
    let service = Running::start(&bed.directory, "service", command, Command::spawn);
    let service = service.expect("the tailplane command starts");
    wait_until("the program serves", || service.stdout().contains("domain process"));
    service
}

fn assert_serves(bed: &Testbed) {
    let mut stream = bed.at_client(|| connect(ECHO)).expect("let in");
    assert_echoes(&mut stream, b"all the same");
}

/// Whether this machine limits what `controller` counts; where it does not, the service has to say so.
fn is_limited(service: &Running, controller: &str, what: &str) -> bool {
    let has = Groups::version(Path::new("/sys/fs/cgroup"), controller).is_ok();
    let said = service.stdout();
    assert_eq!(said.contains(&format!("the application has no limit of {what}")), !has, "{said}");
    has
}

#[test]
fn a_program_that_takes_all_memory_is_ended_and_others_serve_on() {
    let Some(bed) = Testbed::new("memory-bomb", 1) else { return };
    // `tail` keeps what could be the last line, which never ends here.
    let bomb = "(sleep 1; tail /dev/zero; echo \"ended with $?\") & ";
    let service = program(&bed, "memory_mb = 96\n", bomb);
    if !is_limited(&service, "memory", "memory") {
        return;
    }
    // 128 + 9: the kernel has killed it.
    wait_until("the bomb has ended", || service.stdout().contains("ended with 137"));
    assert_serves(&bed);
    service.interrupt(Signal::TERM).assert_success();
}

#[test]
fn the_error_names_the_limit_of_memory_that_a_program_reached() {
    let Some(bed) = Testbed::new("memory-end", 1) else { return };
    if let Err(why) = Groups::version(Path::new("/sys/fs/cgroup"), "memory") {
        return println!("skipped: {why}");
    }
    let more = "[application]\nmemory_mb = 96\n";
    let path = bed.directory.write("run.toml", config("echo", bed.lab.prefix(), 1, more));
    let mut command = tailplane(&["run", "--seconds", "300"]);
    command.arg(path).args(["--", "tail", "/dev/zero"]).env(RUN_DIR, bed.directory.file("run"));
    let ended = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&ended.stderr);
    for part in
        ["killed by signal 9, SIGKILL", "it reached `application.memory_mb` = 96", "before it"]
    {
        assert!(!ended.status.success() && text.contains(part), "{part:?} is not in: {text}");
    }
}

/// Three that compute share one processor: the kernel holds them up when they have had it for a period.
#[test]
fn a_program_that_computes_on_all_processors_has_what_its_limit_says() {
    let Some(bed) = Testbed::new("cpu-bomb", 1) else { return };
    let spin = "(timeout 20 sh -c 'while :; do :; done') & ";
    let service = program(&bed, "processors = 1\n", &spin.repeat(3));
    if !is_limited(&service, "cpu", "processors") {
        return;
    }
    let application = Three::of(&service).application;
    let quota = setting(application, "cpu", "cpu.cfs_quota_us", "cpu.max").expect("limited");
    assert!(quota == "100000" || quota == "100000 100000", "{quota}");
    let throttled = || {
        let stat = setting(application, "cpu", "cpu.stat", "cpu.stat").expect("limited");
        let line = stat.lines().find_map(|line| line.strip_prefix("nr_throttled "));
        line.and_then(|count| count.parse::<u64>().ok()).expect("a count")
    };
    let began = Instant::now();
    while throttled() <= 3 && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50));
    }
    if throttled() <= 3 {
        // Other work of the machine has left them less than their limit, all the time.
        println!("not seen: they never had as much as a processor");
    }
    service.interrupt(Signal::TERM).assert_success();
}

/// Processes that sleep for so many seconds: a number that nobody else sleeps for.
fn sleepers(seconds: u32) -> usize {
    let processes = fs::read_dir("/proc").expect("there are processes").flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let expected = format!("sleep\0{seconds}\0");
    lines.filter(|line| *line == expected.as_bytes()).count()
}

#[test]
fn a_program_that_takes_all_process_numbers_has_a_limit_of_its_own() {
    let Some(bed) = Testbed::new("fork-bomb", 1) else { return };
    let seconds = 200_000 + std::process::id();
    // A shell that cannot fork ends.
    let bomb = format!(
        "(sleep 1; while :; do sleep {seconds} & done 2>/dev/null; :) & (sleep 2; echo enough) & "
    );
    let service = program(&bed, &format!("processes = {PROCESSES}\n"), &bomb);
    if !is_limited(&service, "pids", "processes") {
        return;
    }
    wait_until("there are many processes", || sleepers(seconds) > PROCESSES / 2);
    wait_until("the bomb is over", || service.stdout().contains("enough"));
    let made = sleepers(seconds);
    assert!(made < PROCESSES, "{made} processes, and the limit is {PROCESSES}");
    assert_serves(&bed);
    service.interrupt(Signal::TERM).assert_success();
    assert_eq!(sleepers(seconds), 0);
}

/// What a program starts and does not wait for ends with it, also where its parent ended long ago: when the service is
/// asked to end, and when its starter is killed.
#[test]
fn a_program_leaves_no_process_behind() {
    let Some(bed) = Testbed::new("behind", 1) else { return };
    let seconds = 100_000 + std::process::id();
    let family =
        format!("sleep {seconds} & setsid sh -c 'sleep {seconds} & setsid sleep {seconds} &'; ");
    for killed in [false, true] {
        let service = program(&bed, "", &family);
        assert_serves(&bed);
        wait_until("the family is there", || sleepers(seconds) == 3);
        if killed {
            kill(service.id());
            wait_until("the family has ended", || sleepers(seconds) == 0);
            drop(service.finish());
        } else {
            let finished = service.interrupt(Signal::TERM);
            assert_eq!(sleepers(seconds), 0);
            finished.assert_success();
        }
    }
}

/// A group that limits processor time takes in no real-time thread: the application has no priority of its starter's.
#[test]
fn a_starter_with_a_priority_of_its_own_serves() {
    let Some(bed) = Testbed::new("chrt", 1) else { return };
    let config = bed
        .directory
        .write("run.toml", config("echo", bed.lab.prefix(), 1, "domain = \"process\"\n"));
    let mut command = Command::new("chrt");
    command.args(["-f", "1", env!("CARGO_BIN_EXE_tailplane"), "run", "--seconds", "300"]);
    command.arg(config);
    let service = Running::start(&bed.directory, "service", command, Command::spawn);
    let mut service = service.expect("the tailplane command starts");
    wait_until("the service serves", || {
        service.assert_runs();
        service.stdout().contains("scheduler")
    });
    assert_serves(&bed);
    let application = Three::of(&service).application;
    assert_eq!(policy_of(application), libc::SCHED_OTHER);
    service.interrupt(Signal::TERM).assert_success();
}
