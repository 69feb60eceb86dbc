//! `tailplane sdp serve --service gateway` from the command line: two gateways at the two ends of a lab,
//! tenants of both in processes of their own, and packets between them over AF_XDP in a tunnel.

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::process::{Finished, Running};
use crate::harness::{TemporaryDirectory, Testbed, tailplane, wait_until};

/// A plane of the command, at one end of a lab.
struct Plane {
    running: Running,
    socket: String,
    json: std::path::PathBuf,
}

fn serve(directory: &TemporaryDirectory, tag: &str, config: &str) -> Plane {
    let socket = directory.file(&format!("{tag}.sock"));
    let json = directory.file(&format!("{tag}.json"));
    let config = directory.write(&format!("{tag}.toml"), config);
    let text = |path: &std::path::Path| path.to_str().expect("a plain path").to_owned();
    // It ends by itself in the end, should this process be killed.
    let mut command = tailplane(&["sdp", "serve", "--service", "gateway", "--seconds", "300"]);
    command.args(["--spin-looks", "200", "--gateway", &text(&config)]);
    command.args(["--socket", &text(&socket), "--json", &text(&json)]);
    let mut running = Running::start(directory, tag, command, Command::spawn).expect("it starts");
    wait_until("the gateway serves", || {
        running.assert_runs();
        running.stderr().contains("try it")
    });
    assert!(running.stderr().contains("af_xdp"), "{}", running.stderr());
    Plane { running, socket: text(&socket), json }
}

impl Plane {
    /// Ends it as Ctrl-C does: what it counted.
    fn stop(self) -> Value {
        self.running.interrupt(Signal::INT).assert_success();
        let text = std::fs::read_to_string(&self.json).expect("it wrote what it counted");
        serde_json::from_str(&text).expect("JSON")
    }

    fn packets(&self, directory: &TemporaryDirectory, arguments: &[&str]) -> Running {
        let mut command = tailplane(&["sdp", "packets", "--socket", &self.socket]);
        command.args(arguments);
        Running::start(directory, "packets", command, Command::spawn).expect("it starts")
    }

    /// A tenant that echoes, once it does.
    fn echoing(&self, directory: &TemporaryDirectory, arguments: &[&str]) -> Running {
        let seconds = ["--seconds", "300", "--json", "-"];
        let mut running = self.packets(directory, &[arguments, &seconds].concat());
        wait_until("the tenant echoes", || {
            running.assert_runs();
            running.stderr().contains("echoing at")
        });
        running
    }
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {value}"))
}

/// Ends an echoing tenant: how many packets it echoed.
fn echoed(tenant: Running) -> u64 {
    let finished = tenant.interrupt(Signal::INT);
    finished.assert_success();
    number(&serde_json::from_str(&finished.stdout).expect("JSON"), "echoed")
}

#[test]
fn tenants_at_two_ends_of_a_wire_exchange_packets_through_the_tunnel() {
    let Some(bed) = Testbed::new("sdpgw", 1) else { return };
    let (directory, lab) = (&bed.directory, bed.lab.prefix());
    // A key: packets of another tunnel would not be taken.
    let both = format!("lab = \"{lab}\"\n[tunnel]\nkey = 77\nchecksum = true\n");
    let one = serve(directory, "one", &format!("[network]\n{both}"));
    let two = serve(directory, "two", &format!("[network]\nend = \"client\"\n{both}"));
    let echo = one.echoing(directory, &["--address", "10.8.2.1"]);
    for bytes in ["8", "700", "1160"] {
        let arguments = ["--address", "10.8.1.1", "--to", "10.8.2.1", "--count", "300"];
        let more = ["--bytes", bytes, "--sessions", "7", "--timeout-ms", "10000"];
        let sent = two.packets(directory, &[&arguments[..], &more].concat()).finish();
        sent.assert_success();
        assert!(sent.stdout.contains("300 of 300 packets"), "{sent:?}");
    }
    // A packet to nobody is not answered, and that is said.
    let nobody =
        ["--address", "10.8.1.1", "--to", "10.8.2.77", "--count", "1", "--timeout-ms", "50"];
    two.packets(directory, &nobody).finish().assert_failure(&["did not come back", "10.8.2.77"]);
    let outside = ["--address", "10.9.0.1", "--to", "10.8.2.1"];
    two.packets(directory, &outside)
        .finish()
        .assert_failure(&["refused", "not one that the gateway"]);
    let taken = one.packets(directory, &["--address", "10.8.2.1"]).finish();
    taken.assert_failure(&["another tenant has the address"]);
    assert_eq!(echoed(echo), 900);
    let (one, two) = (one.stop(), two.stop());
    let of = |plane: &Value, name| number(&plane["gateway"], name);
    assert_eq!((of(&one, "delivered"), of(&one, "sent"), of(&one, "unclaimed")), (900, 900, 1));
    assert_eq!((of(&two, "delivered"), of(&two, "sent"), of(&two, "foreign")), (900, 901, 0));
}

#[test]
fn sessions_of_the_virtual_address_are_steered_to_tenants_that_may_serve_it() {
    let Some(bed) = Testbed::new("sdpsteer", 1) else { return };
    let (directory, lab) = (&bed.directory, bed.lab.prefix());
    let network = format!("[network]\nlab = \"{lab}\"\n");
    let steering = "[steering]\nvirtual_address = \"10.8.2.255\"\nservers = \"10.8.2.0/28\"\n";
    let one = serve(directory, "one", &format!("{network}{steering}"));
    let two = serve(directory, "two", &format!("{network}end = \"client\"\n"));
    let serving = ["--serves", "10.8.2.255", "--address"];
    let servers: Vec<Running> = ["10.8.2.1", "10.8.2.2"]
        .map(|address| one.echoing(directory, &[&serving[..], &[address]].concat()))
        .into();
    let uninvited = one.packets(directory, &[&serving[..], &["10.8.2.99"]].concat()).finish();
    uninvited.assert_failure(&["may serve the virtual address"]);
    let arguments = ["--address", "10.8.1.1", "--to", "10.8.2.255", "--count", "400"];
    let more = ["--sessions", "40", "--timeout-ms", "10000"];
    two.packets(directory, &[&arguments[..], &more].concat()).finish().assert_success();
    let shares: Vec<u64> = servers.into_iter().map(echoed).collect();
    assert_eq!(shares.iter().sum::<u64>(), 400);
    // A session stays where it is, so that shares come in tens; each of 40 goes either way.
    assert!(shares.iter().all(|share| share % 10 == 0 && *share >= 50), "{shares:?}");
    let one = one.stop();
    assert_eq!(number(&one["gateway"], "steered"), 400);
    two.stop();
}

#[test]
fn what_a_gateway_cannot_be_is_said_before_anything_is_served() {
    let directory = TemporaryDirectory::new();
    let socket = directory.file("none.sock");
    let run = |arguments: &[&str]| -> Finished {
        let mut command = tailplane(&["sdp", "serve", "--seconds", "60"]);
        command.args(["--socket", socket.to_str().expect("a plain path")]).args(arguments);
        let running = Running::start(&directory, "refused", command, Command::spawn);
        running.expect("it starts").finish()
    };
    let gateway = |text: &str| {
        let path = directory.write("bad.toml", text);
        run(&["--service", "gateway", "--gateway", path.to_str().expect("a plain path")])
    };
    run(&["--service", "gateway", "--cores", "2"]).assert_failure(&["`--cores` is 2", "1"]);
    run(&["--lab-end", "client"]).assert_failure(&["--service gateway", "echo"]);
    run(&["--service", "gatewy"]).assert_failure(&["gatewy", "`gateway`"]);
    run(&["--service", "gateway", "--gateway", "/nowhere/x.toml"])
        .assert_failure(&["/nowhere/x.toml", "No such"]);
    gateway("[tunnel]\nmtu = 100\n").assert_failure(&["`tunnel.mtu` is 100", "1280 to 1500"]);
    let missing = "[network]\ninterface = \"tp-none\"\nnext_hop = \"02:00:00:00:00:01\"\n\
                   [tunnel]\nlocal = \"fd77::2\"\nremote = \"fd77::1\"\n\
                   [tenants]\nrange = \"10.8.0.0/24\"\n";
    gateway(missing).assert_failure(&["cannot open interface 'tp-none'"]);
    assert!(!socket.exists(), "nothing was served");
}

#[test]
fn a_gateway_has_one_queue_and_a_plane_of_another_service_none() {
    let Some(bed) = Testbed::new("sdpqueues", 2) else { return };
    let directory = &bed.directory;
    let config = format!("[network]\nlab = \"{}\"\n", bed.lab.prefix());
    let config = directory.write("two.toml", config);
    let socket = directory.file("echo.sock");
    let [config, socket] = [config, socket].map(|path| path.to_str().expect("plain").to_owned());
    let mut command = tailplane(&["sdp", "serve", "--service", "gateway", "--seconds", "60"]);
    command.args(["--socket", &socket, "--gateway", &config]);
    let refused = Running::start(directory, "two", command, Command::spawn).expect("it starts");
    refused.finish().assert_failure(&["is up with 2 queues", "lab down"]);

    for service in ["raid:4", "echo"] {
        let mut command = tailplane(&["sdp", "serve", "--service", service, "--seconds", "60"]);
        command.args(["--socket", &socket]);
        let plane = Running::start(directory, "other", command, Command::spawn).expect("it starts");
        wait_until("the plane serves", || plane.stderr().contains("try it"));
        let packets = ["sdp", "packets", "--address", "10.8.2.1", "--socket", &socket];
        let asked = Running::start(directory, "asked", tailplane(&packets), Command::spawn);
        asked.expect("it starts").finish().assert_failure(&["something else than a gateway"]);
        plane.interrupt(Signal::INT).assert_success();
    }
}
