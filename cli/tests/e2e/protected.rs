//! Services in processes of their own: they serve as ever, and hurt nobody but themselves.

use std::io::{ErrorKind, Read, Write};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::process::{RUN_DIR, Running};
use crate::harness::stream::{assert_echoes, connect, transfer};
use crate::harness::{ECHO, Testbed, config, start, tailplane, wait_until};

/// The process that serves for a dataplane of this test's configuration.
fn application(bed: &Testbed) -> Pid {
    let config = bed.directory.file("run.toml");
    let of_ours = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        words.any(|word| word == b"application")
            && words.any(|word| word == config.as_os_str().as_encoded_bytes())
    };
    let processes = std::fs::read_dir("/proc").expect("there are processes");
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let found: Vec<i32> = numbers.filter(of_ours).collect();
    assert_eq!(found.len(), 1, "one application of {}", config.display());
    Pid::from_raw(found[0]).expect("a number of a process")
}

fn domain(placement: &str) -> String {
    format!("domain = \"process\"\nplacement = \"{placement}\"\n")
}

#[test]
fn services_serve_from_processes_of_their_own() {
    let Some(mut bed) = Testbed::new("protected", 2) else { return };
    for placement in ["split", "same-core"] {
        for scheduler in ["run-to-completion", "work-conserving", "ready-set"] {
            let more = format!("{}scheduler = \"{scheduler}\"\n", domain(placement));
            bed.serve("echo", 2, &more);
            let stream = bed.at_client(|| connect(ECHO)).expect("let in");
            transfer(&stream, 1, 300 << 10);
            drop(stream);
            let summary = bed.stop();
            assert_eq!(summary.accepted.iter().sum::<u64>(), 1, "{}", summary.text);
            let counted = |line: &&str| line.starts_with("domain ");
            let lines: Vec<&str> = summary.text.lines().filter(counted).collect();
            assert_eq!(lines.len(), 2, "{}", summary.text);
            for line in lines {
                let well = ", 0 calls without sense, 0 beyond the room for them, 0 batches held \
                            back by rates";
                assert!(line.ends_with(well), "{line}");
            }
        }
    }
}

#[test]
fn an_application_that_is_killed_takes_its_connections_along() {
    let Some(bed) = Testbed::new("killed", 1) else { return };
    let service = start(&bed.directory, &config("echo", bed.lab.prefix(), 1, &domain("split")));
    let mut stream = bed.at_client(|| connect(ECHO)).expect("let in");
    assert_echoes(&mut stream, b"hello");
    kill_process(application(&bed), Signal::KILL).expect("it was there");
    let error = stream.read(&mut [0; 8]).expect_err("no end in order");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    service.finish().assert_failure(&["ended while it served", "connections were reset"]);
}

/// It is stopped in the middle of whatever it does: the dataplane answers for it as far as it can.
#[test]
fn an_application_that_is_stopped_holds_up_nothing_of_the_network() {
    let Some(bed) = Testbed::new("frozen", 1) else { return };
    let mut service = start(&bed.directory, &config("echo", bed.lab.prefix(), 1, &domain("split")));
    let mut stream = bed.at_client(|| connect(ECHO)).expect("let in");
    assert_echoes(&mut stream, b"hello");
    let pid = application(&bed);
    kill_process(pid, Signal::STOP).expect("it was there");
    stream.write_all(b"while it stands still").expect("its acknowledgment comes");
    // Connections open, and pings are answered.
    let others: Vec<_> =
        (0..5).map(|_| bed.at_client(|| connect(ECHO)).expect("opens without it")).collect();
    let ping = |count: &str| {
        let mut ping = Command::new("ping");
        ping.args(["-n", "-q", "-i", "0.01", "-W", "2", "-c", count]).arg(ECHO.ip().to_string());
        bed.run(ping)
    };
    if let Some(pinged) = ping("20") {
        pinged.assert_success();
        assert!(pinged.stdout.contains(" 0% packet loss"), "{}", pinged.stdout);
    }
    std::thread::sleep(Duration::from_millis(50));
    service.assert_runs();
    kill_process(pid, Signal::CONT).expect("it stands still");
    let mut answer = [0; 21];
    stream.read_exact(&mut answer).expect("it goes on where it stood");
    assert_eq!(&answer, b"while it stands still");
    for mut other in others {
        assert_echoes(&mut other, b"late");
    }
    let finished = service.interrupt(Signal::TERM);
    finished.assert_success();
    let slow = finished.stdout.lines().find(|line| line.starts_with("domain 0")).expect("counted");
    assert!(!slow.contains(" 0 of over 10 ms"), "{slow}");
    for told in ["has not answered for more than 10 ms", "thread 0 of the application is back"] {
        assert!(finished.stderr.contains(told), "{}", finished.stderr);
    }
}

/// Another user, without capabilities, with a list of system calls: enough to serve.
#[test]
fn an_application_is_confined_to_what_is_said() {
    let Some(mut bed) = Testbed::new("confined", 1) else { return };
    let policy = "default = \"allow\"\ndeny = [\"socket\", \"ptrace\", \"bpf\", \"mount\"]\n";
    let policy = bed.directory.write("policy.toml", policy);
    let section = format!(
        "[application]\nuser = 65534\npolicy = \"{}\"\nown_network = true\n",
        policy.display()
    );
    bed.serve("echo", 1, &format!("{}{section}", domain("split")));
    let mut stream = bed.at_client(|| connect(ECHO)).expect("let in");
    assert_echoes(&mut stream, b"from nobody");
    let pid = application(&bed).as_raw_nonzero();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let words = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap_or_else(|| panic!("no {key}")).split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(words("Uid:"), ["65534"; 4]);
    assert_eq!(words("Gid:"), ["65534"; 4]);
    assert_eq!(words("CapEff:"), ["0000000000000000"]);
    assert_eq!(words("CapBnd:"), ["0000000000000000"]);
    assert_eq!((words("NoNewPrivs:"), words("Seccomp:")), (vec!["1"], vec!["2"]));
    drop(stream);
    bed.stop();
    // What makes no sense is said before anything is started.
    let more = "domain = \"inline\"\n[application]\nuser = 1\n";
    let path = bed.directory.write("inline.toml", config("echo", bed.lab.prefix(), 1, more));
    let refused = tailplane(&["run"]).arg(path).output().expect("it runs");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("`[application]` is for"), "{text}");
}

#[test]
fn any_program_that_joins_serves_and_others_are_told_what_is_missing() {
    let Some(bed) = Testbed::new("program", 1) else { return };
    let path = bed.directory.write("run.toml", config("echo", bed.lab.prefix(), 1, ""));
    let run = |program: &[&str]| {
        let mut command = tailplane(&["run", "--seconds", "300"]);
        command.arg(&path).arg("--").args(program);
        command
    };
    let refused = |program: &[&str], parts: &[&str]| {
        let mut command = run(program);
        let output = command.env(RUN_DIR, bed.directory.file("run")).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && parts.iter().all(|part| text.contains(part)), "{text}");
    };
    let did_not_join = ["'/bin/true' did not join", "tailplane::application::serve"];
    refused(&["/bin/true"], &did_not_join);
    for (script, how) in
        [("exit 0", "exit status: 0"), ("exit 7", "exit status: 7"), ("kill -SEGV $$", "SIGSEGV")]
    {
        refused(&["sh", "-c", script], &["the application ended (", how, ") before it joined"]);
    }
    refused(&["/no/such/program"], &["cannot start the program '/no/such/program'"]);
    // This command knows how to serve.
    let own = env!("CARGO_BIN_EXE_tailplane");
    let program = run(&[own, "application", path.to_str().expect("a name in letters")]);
    let mut service = Running::start(&bed.directory, "service", program, Command::spawn)
        .expect("the tailplane command starts");
    wait_until("the program serves", || {
        service.assert_runs();
        service.stdout().contains("domain process")
    });
    let mut stream = bed.at_client(|| connect(ECHO)).expect("let in");
    assert_echoes(&mut stream, b"from a program");
    service.interrupt(Signal::TERM).assert_success();
    // Without a dataplane it says what it needs.
    let alone = tailplane(&["application"]).arg(&path).output().expect("it runs");
    let text = String::from_utf8_lossy(&alone.stderr);
    assert!(text.contains("TAILPLANE_DOMAIN is not set"), "{text}");
}

/// Who may not connect is reset, whatever the application would like; who may is served, as fast as the rate allows.
#[test]
fn the_policy_says_who_is_served_and_how_fast() {
    const BYTES: u64 = 400 << 10;
    const BYTES_PER_S: u64 = 1 << 20;
    let Some(mut bed) = Testbed::new("policy", 1) else { return };
    let rule = |verdict: &str| {
        format!(
            "{}[policy]\nbytes_per_s = {BYTES_PER_S}\n[[policy.rules]]\nverdict = \"{verdict}\"\n\
             direction = \"in\"\ntransport = \"tcp\"\nports = \"{}\"\n",
            domain("split"),
            ECHO.port()
        )
    };
    bed.serve("echo", 1, &rule("deny"));
    let error = bed.at_client(|| connect(ECHO)).expect_err("the policy denies all peers");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    let summary = bed.stop();
    assert!(summary.text.contains("policy_denied_in: 1\n"), "{}", summary.text);

    bed.serve("echo", 1, &rule("allow"));
    let stream = bed.at_client(|| connect(ECHO)).expect("let in");
    let begun = std::time::Instant::now();
    transfer(&stream, 1, BYTES);
    // All but the first burst and one batch is paid for: at least half of it, whatever a batch is.
    let least = Duration::from_secs_f64(BYTES as f64 / BYTES_PER_S as f64 / 2.0);
    assert!(begun.elapsed() >= least, "{:?} instead of {least:?}", begun.elapsed());
    drop(stream);
    let summary = bed.stop();
    assert!(!summary.text.contains(" 0 batches held back"), "{}", summary.text);
}

/// Each elastic thread of the application runs where it is said; a processor that is not there is an error.
#[test]
fn elastic_threads_of_an_application_have_their_processors() {
    let Some(mut bed) = Testbed::new("placed", 1) else { return };
    let section = |cpu: usize| format!("{}[application]\ncpus = [{cpu}]\n", domain("split"));
    bed.serve("echo", 1, &section(1));
    let mut stream = bed.at_client(|| connect(ECHO)).expect("let in");
    assert_echoes(&mut stream, b"from there");
    let pid = application(&bed).as_raw_nonzero();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let allowed = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap_or_default().trim().to_owned()
    };
    let lists: Vec<String> = tasks.map(|task| allowed(task.expect("a thread"))).collect();
    assert!(lists.iter().any(|list| list == "1"), "{lists:?}");
    assert!(lists.iter().any(|list| list != "1"), "background threads go anywhere: {lists:?}");
    drop(stream);
    bed.stop();
    let file = config("echo", bed.lab.prefix(), 1, &section(900));
    let mut command = tailplane(&["run", "--seconds", "300"]);
    command.arg(bed.directory.write("run.toml", file));
    let refused = Running::start(&bed.directory, "refused", command, Command::spawn);
    let refused = refused.expect("the tailplane command starts").finish();
    refused.assert_failure(&["processor '900'", "TAILPLANE_CPUS"]);
}
