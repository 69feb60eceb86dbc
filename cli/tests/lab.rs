//! Labs on this machine: made, used, removed, whatever happens in between.
//!
//! Root is needed. Where a lab cannot be made for want of root or iproute2, each test prints so and
//! passes; anything else that goes wrong is a failure.

use std::net::UdpSocket;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use nic::Ethtool;
use service::lab::constants::{
    CLIENT_ADDRESS, CLIENT_INTERFACE, DATAPLANE_INTERFACE, DATAPLANE_KERNEL_ADDRESS,
    is_unwanted_feature,
};
use service::lab::{self, Lab, LabConfig, LabError, Lifetime, in_namespace, spawn_in};

/// How long anything here may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether labs can be made here; prints why not.
fn possible() -> bool {
    let reason = if !rustix::process::geteuid().is_root() {
        "needs root"
    } else if Command::new("ip").arg("-V").stdout(Stdio::null()).status().is_err() {
        "needs iproute2"
    } else if !Path::new("/proc/self/ns/net").exists() {
        "this kernel has no network namespaces"
    } else {
        return true;
    };
    println!("skipped: {reason}");
    false
}

fn exists(namespace: &str) -> bool {
    Path::new("/run/netns").join(namespace).exists()
}

fn both_exist(prefix: &str) -> bool {
    exists(&format!("{prefix}-dp")) && exists(&format!("{prefix}-client"))
}

fn none_exists(prefix: &str) -> bool {
    !exists(&format!("{prefix}-dp")) && !exists(&format!("{prefix}-client"))
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "still not after {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The binary under test, on a lab of this test's own.
fn tailplane(arguments: &[&str], prefix: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailplane"));
    command.args(["lab", "--name", prefix]).args(arguments);
    command
}

/// Receives a datagram. A socket with a timeout is interrupted by signals that nobody handles, too:
/// those of children that end while another thread starts one.
fn receive(socket: &UdpSocket, bytes: &mut [u8]) -> (usize, std::net::SocketAddr) {
    loop {
        match socket.recv_from(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.expect("a datagram within the timeout"),
        }
    }
}

/// A datagram from the client's kernel reaches the dataplane side's kernel, and the other way.
fn assert_kernels_reach_each_other(lab: &Lab) {
    let bind = |address: std::net::Ipv4Addr| move || UdpSocket::bind((address, 0));
    let server = in_namespace(lab.dataplane(), bind(DATAPLANE_KERNEL_ADDRESS)).unwrap().unwrap();
    let client = in_namespace(lab.client(), bind(CLIENT_ADDRESS)).unwrap().unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.send_to(b"there", server.local_addr().unwrap()).unwrap();
    let mut bytes = [0; 16];
    let (length, from) = receive(&server, &mut bytes);
    assert_eq!((&bytes[..length], from), (&b"there"[..], client.local_addr().unwrap()));
    server.send_to(b"back", from).unwrap();
    let (length, _) = receive(&client, &mut bytes);
    assert_eq!(&bytes[..length], b"back");
}

#[test]
fn a_lab_carries_packets_with_offloads_off_and_all_its_queues() {
    if !possible() {
        return;
    }
    let lab = Lab::create(LabConfig { queues: 4, ..LabConfig::unique("carry") }).unwrap();
    let prefix = lab.prefix().to_owned();
    assert_kernels_reach_each_other(&lab);
    let ends = [(lab.dataplane(), DATAPLANE_INTERFACE), (lab.client(), CLIENT_INTERFACE)];
    for (namespace, interface) in ends {
        let (features, channels) = in_namespace(namespace, || {
            let device = Ethtool::open(interface)?;
            Ok::<_, io::Error>((device.features()?, device.channels()?))
        })
        .unwrap()
        .unwrap();
        assert_eq!((channels.receive(), channels.transmit()), (4, 4), "{interface}");
        assert_eq!(features.get("tx-checksum-ip-generic"), Some(&false), "{interface}");
        let on: Vec<_> =
            features.iter().filter(|(name, on)| **on && is_unwanted_feature(name)).collect();
        assert!(on.is_empty(), "{interface}: {on:?}");
        let disabled = in_namespace(namespace, || {
            fs::read_to_string("/proc/sys/net/ipv6/conf/all/disable_ipv6")
        });
        assert!(disabled.unwrap().is_ok_and(|text| text.trim() == "1"), "{interface} has IPv6");
    }
    lab.remove().unwrap();
    assert!(none_exists(&prefix));
}

#[test]
fn ping_works_from_the_client() {
    if !possible() {
        return;
    }
    let lab = Lab::create(LabConfig::unique("ping")).unwrap();
    let mut ping = Command::new("ping");
    ping.args(["-c", "1", "-W", "5", &DATAPLANE_KERNEL_ADDRESS.to_string()]).stdout(Stdio::null());
    match spawn_in(lab.client(), ping) {
        Ok(mut child) => assert!(child.wait().unwrap().success()),
        Err(LabError::Spawn { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            println!("skipped: needs ping (package iputils-ping)");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn two_labs_coexist_and_cubic_serves_both() {
    if !possible() {
        return;
    }
    let first = Lab::create(LabConfig::unique("first")).unwrap();
    let second = Lab::create(LabConfig::unique("second")).unwrap();
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let has_cubic = available.is_ok_and(|list| list.split_whitespace().any(|name| name == "cubic"));
    for lab in [&first, &second] {
        assert_kernels_reach_each_other(lab);
        if has_cubic {
            assert_eq!(lab.info().unwrap().client.congestion_control, "cubic");
        }
    }
    let prefix = first.prefix().to_owned();
    first.remove().unwrap();
    assert!(none_exists(&prefix));
    assert_kernels_reach_each_other(&second);
}

#[test]
fn a_panic_leaves_nothing_behind() {
    if !possible() {
        return;
    }
    let config = LabConfig::unique("panic");
    let prefix = config.prefix.clone();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let lab = Lab::create(config).unwrap();
        assert!(both_exist(lab.prefix()));
        panic!("on purpose");
    }));
    assert!(outcome.is_err());
    assert!(none_exists(&prefix));
    assert!(lab::find(&prefix).unwrap().is_none());
}

#[test]
fn programs_inside_end_with_the_lab() {
    if !possible() {
        return;
    }
    let lab = Lab::create(LabConfig::unique("programs")).unwrap();
    let mut sleep = Command::new("sleep");
    sleep.arg("1000");
    let mut child = spawn_in(lab.dataplane(), sleep).unwrap();
    assert_eq!(lab.dataplane().pids().unwrap(), [child.id()]);
    lab.remove().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
}

#[test]
fn a_name_in_use_is_refused_and_what_stands_is_left_alone() {
    if !possible() {
        return;
    }
    let config = LabConfig::unique("twice");
    let lab = Lab::create(config.clone()).unwrap();
    let again = Lab::create(config);
    assert!(again.is_err_and(|error| error.to_string().contains("cannot be made: process ")));
    assert_kernels_reach_each_other(&lab);
}

#[test]
fn the_command_makes_enters_and_removes_a_lab() {
    if !possible() {
        return;
    }
    let prefix = LabConfig::unique("command").prefix;
    let run = |arguments: &[&str]| tailplane(arguments, &prefix).output().unwrap();
    let _removal = RemoveAtEnd(&prefix);

    let down = run(&["status"]);
    assert_eq!(down.status.code(), Some(1));
    for _ in 0..2 {
        let up = run(&["up", "--queues", "2", "--json"]);
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        let info: serde_json::Value = serde_json::from_slice(&up.stdout).unwrap();
        assert_eq!(info["queues"], 2);
        assert_eq!(info["dataplane_address"], "10.77.0.2");
        assert_eq!(info["client"]["kernel_address"], "10.77.0.1");
    }
    let other = run(&["up", "--queues", "3"]);
    let message = String::from_utf8_lossy(&other.stderr);
    assert!(!other.status.success() && message.contains("lab down"), "{message}");

    let inside = run(&["exec", "--", "ip", "-o", "addr"]);
    assert!(String::from_utf8_lossy(&inside.stdout).contains("10.77.0.1/24"));
    assert_eq!(run(&["exec", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));

    assert!(run(&["down"]).status.success());
    assert!(none_exists(&prefix));
    assert!(run(&["down"]).status.success(), "removing what is not there is no error");
}

/// Removes a persistent lab also where the test fails half-way.
struct RemoveAtEnd<'a>(&'a str);

impl Drop for RemoveAtEnd<'_> {
    fn drop(&mut self) {
        let _ = lab::remove(self.0);
    }
}

#[test]
#[ignore = "the two tests below run it in another process, which they then kill"]
fn hold_a_lab_until_killed() {
    let prefix = std::env::var(HELD_PREFIX).expect("the name of the lab to hold");
    let _lab = Lab::create(LabConfig { prefix, ..LabConfig::default() }).unwrap();
    thread::sleep(PATIENCE);
    panic!("nobody killed this process");
}

/// Names the lab that [`hold_a_lab_until_killed`] makes.
const HELD_PREFIX: &str = "TAILPLANE_TEST_HELD_PREFIX";

/// Another process that holds a lab of that name, once it is made.
fn another_process_with_a_lab(prefix: &str) -> std::process::Child {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hold_a_lab_until_killed", "--ignored", "--nocapture"])
        .env(HELD_PREFIX, prefix)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The client's interface comes up last. (That its address can be bound says nothing: in a
    // namespace without any route the kernel lets every address be bound.)
    wait_until("the lab of another process", || {
        let up = Lab::attach(prefix).and_then(|lab| {
            in_namespace(lab.client(), || {
                Command::new("ip").args(["-o", "link", "show", "up"]).output()
            })
        });
        let Ok(Ok(output)) = up else { return false };
        String::from_utf8_lossy(&output.stdout).contains(CLIENT_INTERFACE)
    });
    child
}

#[test]
fn an_interrupted_process_removes_its_lab_and_dies_by_the_signal() {
    if !possible() {
        return;
    }
    let prefix = LabConfig::unique("interrupt").prefix;
    let mut child = another_process_with_a_lab(&prefix);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGINT));
    assert!(none_exists(&prefix));
    assert!(lab::find(&prefix).unwrap().is_none());
}

#[test]
fn what_a_killed_process_left_goes_when_the_next_lab_is_made() {
    if !possible() {
        return;
    }
    let prefix = LabConfig::unique("killed").prefix;
    let mut child = another_process_with_a_lab(&prefix);
    child.kill().unwrap();
    child.wait().unwrap();
    // Another test may make a lab at this very moment and thereby remove this one: only the end is
    // certain.
    let next = Lab::create(LabConfig::unique("next")).unwrap();
    assert!(none_exists(&prefix));
    assert!(lab::find(&prefix).unwrap().is_none());
    drop(next);
}

#[test]
fn a_persistent_lab_outlives_its_value() {
    if !possible() {
        return;
    }
    let config = LabConfig { lifetime: Lifetime::Persistent, ..LabConfig::unique("stays") };
    let prefix = config.prefix.clone();
    let _removal = RemoveAtEnd(&prefix);
    drop(Lab::create(config).unwrap());
    drop(Lab::attach(&prefix).unwrap());
    assert!(both_exist(&prefix));
    assert!(lab::remove(&prefix).unwrap());
    assert!(none_exists(&prefix));
    assert!(matches!(Lab::attach(&prefix), Err(LabError::NotUp { .. })));
}
