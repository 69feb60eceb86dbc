//! `tailplane run` as a command: what it refuses, how it ends, what it leaves behind.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use service::lab::constants::{CLIENT_INTERFACE, DATAPLANE_INTERFACE, DATAPLANE_MAC, mac_text};
use service::lab::{self, LabConfig};

use crate::harness::process::{Finished, Running};
use crate::harness::stream::{assert_echoes, connect};
use crate::harness::{
    ECHO, PATIENCE, TemporaryDirectory, Testbed, Turn, config, possible, start, tailplane,
    wait_until,
};
use crate::udp;

/// Runs the command to its end.
fn run(directory: &TemporaryDirectory, arguments: &[&str]) -> Finished {
    let running = Running::start(directory, "run", tailplane(arguments), Command::spawn);
    running.expect("the tailplane command starts").finish()
}

/// Runs `tailplane run` with this configuration. It should fail; it ends in any case.
fn run_config(directory: &TemporaryDirectory, text: &str) -> Finished {
    let path = directory.write("bad.toml", text);
    run(directory, &["run", "--seconds", "60", path.to_str().expect("a plain path")])
}

fn exist(prefix: &str) -> [bool; 2] {
    let exists = |end: &str| Path::new("/run/netns").join(format!("{prefix}-{end}")).exists();
    [exists("dp"), exists("client")]
}

fn huge_pages() -> String {
    fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap_or_default()
}

/// What `ip link` says of the dataplane's interface.
pub fn link(prefix: &str) -> String {
    let namespace = format!("{prefix}-dp");
    let arguments = ["-n", &namespace, "link", "show", "dev", DATAPLANE_INTERFACE];
    let output = Command::new("ip").args(arguments).output().expect("iproute2");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Removes a lab that a killed process may have left, on every way out of a test.
struct RemoveAtEnd<'a>(&'a str);

impl Drop for RemoveAtEnd<'_> {
    fn drop(&mut self) {
        let _ = lab::remove(self.0);
    }
}

#[test]
fn bad_configurations_are_refused_by_key_value_and_what_is_allowed() {
    let directory = TemporaryDirectory::new();
    let kv = "[service]\napp = \"kv\"\n";
    let cases: [(&str, &[&str]); 12] = [
        ("", &["service"]),
        ("[service]\n", &["app"]),
        ("[service]\napp = \"web\"\n", &["app = \"web\"", "echo", "kv"]),
        ("[service]\napp = \"kv\"\nport = 0\n", &["`service.port` is 0", "1 to 65535"]),
        ("[service]\napp = \"kv\"\nport = 70000\n", &["port", "70000"]),
        ("[dataplane]\nthreads = 0\n", &["`dataplane.threads` is 0", "1 to 64"]),
        ("[dataplane]\nbatch = 5000\n", &["`dataplane.batch` is 5000", "1 to 1024"]),
        ("[dataplane]\nspin_us = \"long\"\n", &["spin_us", "long", "i64"]),
        ("[dataplane]\ncpu = 1\n", &["cpu", "cpus"]),
        ("[memory]\nhuge_pages = \"maybe\"\n", &["huge_pages", "maybe", "try", "require", "no"]),
        ("[tcp]\ndelayed_ack_ms = 500\n", &["`tcp.delayed_ack_ms` is 500", "0 to 499"]),
        ("[network]\naddress = \"10.0.0.2\"\ninterface = \"x\"\n", &["'10.0.0.2'", "0 to 32"]),
    ];
    for (text, parts) in cases {
        let has_app = text.is_empty() || text.starts_with("[service]");
        let text = if has_app { text.to_owned() } else { format!("{kv}{text}") };
        run_config(&directory, &text).assert_failure(parts);
    }
    run(&directory, &["run", "/nowhere/x.toml"]).assert_failure(&["/nowhere/x.toml", "No such"]);
    run(&directory, &["run"]).assert_failure(&["CONFIG.toml"]);
}

#[test]
fn what_the_machine_cannot_give_is_refused_and_leaves_nothing_behind() {
    if !possible() {
        return;
    }
    let _turn = Turn::beside();
    let directory = TemporaryDirectory::new();
    let prefix = LabConfig::unique("e2e-refused").prefix;
    let _removal = RemoveAtEnd(&prefix);
    let cases: [(String, &[&str]); 4] = [
        // One thread starts, the other cannot: both end.
        (config("echo", &prefix, 2, "cpus = [0, 1023]\n"), &["processor 1023", "allowed: 0"]),
        (config("echo", &prefix, 1, "cpus = [5000]\n"), &["5000", "allowed: 0"]),
        (config("echo", "No/Lab", 1, ""), &["'No/Lab'", "lower-case"]),
        (
            "[service]\napp = \"kv\"\n[network]\ninterface = \"tp-none\"\naddress = \"10.0.0.2/8\"\n"
                .to_owned(),
            &["tp-none", "ip link"],
        ),
    ];
    for (text, parts) in cases {
        run_config(&directory, &text).assert_failure(parts);
        assert_eq!(exist(&prefix), [false, false], "{text}");
    }
}

#[test]
fn a_lab_serves_any_number_of_threads_and_one_service() {
    let Some(mut bed) = Testbed::new("queues", 2) else { return };
    let prefix = bed.lab.prefix().to_owned();
    for (threads, what) in [(1, "2 queues for 1 thread\n"), (3, "2 queues for 3 threads, packets")]
    {
        bed.serve("echo", threads, "");
        let said = bed.service().map(Running::stdout).unwrap_or_default();
        assert!(said.contains(what), "{said}");
        for word in 0..20_u64 {
            let mut stream = bed.at_client(|| connect(ECHO)).expect("a connection");
            assert_echoes(&mut stream, &word.to_le_bytes());
        }
        bed.stop();
    }
    bed.serve("echo", 2, "");
    let second = run_config(&bed.directory, &config("kv", &prefix, 2, ""));
    second.assert_failure(&[
        "cannot attach the XDP program",
        "found another one",
        "of process",
        "(tailplane)",
    ]);
    // The first one is unharmed.
    let mut stream = bed.at_client(|| connect(ECHO)).expect("a connection");
    assert_echoes(&mut stream, b"still there?");
    drop(stream);
    bed.stop();
}

#[test]
fn signals_end_a_run_well_and_its_lab_goes() {
    if !possible() {
        return;
    }
    let _turn = Turn::beside();
    let directory = TemporaryDirectory::new();
    let pages = huge_pages();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let prefix = LabConfig::unique("e2e-signal").prefix;
        let _removal = RemoveAtEnd(&prefix);
        let service = start(&directory, &config("echo", &prefix, 1, ""));
        assert_eq!(exist(&prefix), [true, true]);
        let finished = service.interrupt(signal);
        assert_eq!(finished.status.code(), Some(0), "{signal:?}: {finished:?}");
        assert!(finished.stdout.contains("thread 0: "), "no summary: {finished:?}");
        assert_eq!(finished.stderr, "");
        assert_eq!(exist(&prefix), [false, false], "{signal:?}");
        assert!(lab::find(&prefix).expect("a good name").is_none(), "{signal:?}");
        assert_eq!(huge_pages(), pages, "{signal:?}");
    }
}

#[test]
fn the_first_packet_after_the_announcement_is_answered() {
    let Some(mut bed) = Testbed::new("first", 1) else { return };
    // A known neighbour: a question for its link address would be repeated if it was lost. A
    // datagram is not.
    let mut neighbor = Command::new("ip");
    neighbor.args(["-n", bed.lab.client().name(), "neigh", "replace", "10.77.0.2", "lladdr"]);
    neighbor.args([&mac_text(DATAPLANE_MAC), "dev", CLIENT_INTERFACE, "nud", "permanent"]);
    assert!(neighbor.status().expect("iproute2").success());
    for _ in 0..5 {
        bed.serve("echo", 1, "");
        let socket = bed.at_client(|| {
            let socket = std::net::UdpSocket::bind("10.77.0.1:0").expect("a socket");
            socket.connect(ECHO).expect("an address");
            socket.set_read_timeout(Some(PATIENCE)).expect("a socket of ours");
            socket
        });
        socket.send(b"first").expect("sent");
        assert_eq!(udp::receive(&socket, &mut [0; 16]).expect("an answer"), 5);
        bed.stop();
    }
}

#[test]
fn the_xdp_program_goes_with_the_service_however_it_ends() {
    let Some(mut bed) = Testbed::new("program", 1) else { return };
    let prefix = bed.lab.prefix().to_owned();
    for signal in [Signal::TERM, Signal::KILL] {
        let service = start(&bed.directory, &config("echo", &prefix, 1, ""));
        assert!(link(&prefix).contains("prog/xdp"), "{}", link(&prefix));
        let finished = service.interrupt(signal);
        assert_eq!(finished.status.success(), signal == Signal::TERM, "{finished:?}");
        assert!(!link(&prefix).contains("xdp"), "{signal:?}: {}", link(&prefix));
        // A lab that is another's stays.
        assert_eq!(exist(&prefix), [true, true]);
    }
    // And the next service finds all it needs.
    bed.serve("echo", 1, "");
    let mut stream = bed.at_client(|| connect(ECHO)).expect("a connection");
    assert_echoes(&mut stream, b"as if nothing had been");
    drop(stream);
    bed.stop();
}

#[test]
fn what_a_killed_run_leaves_goes_at_once() {
    if !possible() {
        return;
    }
    let _turn = Turn::beside();
    let directory = TemporaryDirectory::new();
    let pages = huge_pages();
    for more in ["", "domain = \"process\"\n"] {
        let prefix = LabConfig::unique("e2e-killed").prefix;
        let _removal = RemoveAtEnd(&prefix);
        let service = start(&directory, &config("echo", &prefix, 1, more));
        assert_eq!(exist(&prefix), [true, true]);
        assert!(!service.interrupt(Signal::KILL).status.success());
        wait_until("the lab is gone", || exist(&prefix) == [false, false]);
        wait_until("so is its record", || lab::find(&prefix).expect("a good name").is_none());
    }
    wait_until("so are its huge pages", || huge_pages() == pages);
}
