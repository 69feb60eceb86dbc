//! IPv6 beside IPv4, against the kernel's stack: neighbour discovery, echoes, transfers, datagrams.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use service::lab::constants::{
    CLIENT_ADDRESS, CLIENT_ADDRESS_V6, CLIENT_INTERFACE, DATAPLANE_ADDRESS, DATAPLANE_ADDRESS_V6,
    SUBNET_BITS, SUBNET_BITS_V6,
};

use crate::harness::stream::{connect, transfer};
use crate::harness::{ECHO, PATIENCE, Testbed, config};
use crate::udp::receive;

const ECHO_V6: SocketAddr = SocketAddr::new(IpAddr::V6(DATAPLANE_ADDRESS_V6), 7);

/// A service with an address of each version.
fn serve(bed: &mut Testbed, threads: u32, more: &str) {
    let text = config("echo", bed.lab.prefix(), threads, more);
    let address = format!(
        "address = [\"{DATAPLANE_ADDRESS}/{SUBNET_BITS}\", \"{DATAPLANE_ADDRESS_V6}/{SUBNET_BITS_V6}\"]\n"
    );
    bed.serve_with(&text.replace("[dataplane]", &format!("{address}[dataplane]")));
}

/// Megabytes over both versions at once: no byte is wrong, no connection ends early.
fn both_versions(tag: &str, threads: u32, more: &str) {
    let Some(mut bed) = Testbed::with_ipv6(tag, threads) else { return };
    serve(&mut bed, threads, more);
    let streams: Vec<_> = [ECHO_V6, ECHO, ECHO_V6, ECHO_V6, ECHO, ECHO_V6]
        .iter()
        .map(|&to| bed.at_client(|| connect(to)).unwrap_or_else(|error| panic!("{to}: {error}")))
        .collect();
    std::thread::scope(|scope| {
        for (seed, stream) in streams.iter().enumerate() {
            scope.spawn(move || transfer(stream, seed as u64, 1 << 20));
        }
    });
    drop(streams);
    let summary = bed.stop();
    let accepted: u64 = summary.accepted.iter().sum();
    assert_eq!((accepted, summary.left), (6, 0), "{}", summary.text);
}

#[test]
fn transfers_over_both_versions_do_not_mix() {
    both_versions("v6", 1, "");
}

#[test]
fn any_core_serves_connections_of_either_version() {
    both_versions("v6-shared", 2, "scheduler = \"work-conserving\"\n");
}

/// What tells a process of its peers has room for their addresses.
#[test]
fn an_application_in_a_process_of_its_own_serves_both_versions() {
    both_versions("v6-process", 1, "domain = \"process\"\n");
}

/// The table at the peer's egress hashes IPv6 as the dataplane does: no packet has to be handed on.
#[test]
fn flow_groups_of_ipv6_connections_come_to_their_threads() {
    let Some(mut bed) = Testbed::with_ipv6("v6-steered", 2) else { return };
    serve(&mut bed, 2, "scheduler = \"run-to-completion\"\n");
    let streams: Vec<_> =
        (0..32).map(|_| bed.at_client(|| connect(ECHO_V6)).expect("a connection")).collect();
    for (seed, stream) in streams.iter().enumerate() {
        transfer(stream, seed as u64, 10_000);
    }
    drop(streams);
    let summary = bed.stop();
    assert!(summary.accepted.iter().all(|&accepted| accepted > 3), "{}", summary.text);
    assert_eq!(summary.accepted.iter().sum::<u64>(), 32, "{}", summary.text);
    assert_eq!(summary.text.matches(", 0 forwarded").count(), 2, "{}", summary.text);
}

/// Where nothing listens the kernel hears so at once; and an echo request is answered.
#[test]
fn what_is_not_taken_is_reported() {
    let Some(mut bed) = Testbed::with_ipv6("v6-refused", 1) else { return };
    serve(&mut bed, 1, "");
    let refused = bed.at_client(|| connect(SocketAddr::new(DATAPLANE_ADDRESS_V6.into(), 9)));
    let error = refused.expect_err("nothing listens there");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused, "{error}");
    bed.at_client(|| {
        let socket = UdpSocket::bind((CLIENT_ADDRESS_V6, 0)).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE.min(Duration::from_secs(5)))).expect("a time-out");
        socket.connect((DATAPLANE_ADDRESS_V6, 9)).expect("a route");
        socket.send(b"x").expect("it leaves");
        let error = socket.recv(&mut [0; 8]).expect_err("nothing is bound there");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused, "{error}");
    });
    let ping = {
        let mut command = std::process::Command::new("ping");
        command.args(["-6", "-c", "2", "-i", "0.2", &DATAPLANE_ADDRESS_V6.to_string()]);
        command
    };
    if let Some(ping) = bed.run(ping) {
        assert!(ping.status.success(), "{ping:?}");
    }
    bed.stop();
}

/// Linux cuts what is larger than its route takes: over either version the stack puts it together, whichever thread has the
/// fragments, and the echo comes back whole.
#[test]
fn datagrams_that_linux_cuts_come_back() {
    let Some(mut bed) = Testbed::with_ipv6("cut", 2) else { return };
    serve(&mut bed, 2, "");
    let [v4, v6] = [format!("{DATAPLANE_ADDRESS}/32"), format!("{DATAPLANE_ADDRESS_V6}/128")];
    for (version, to, mtu) in [("-4", v4, "600"), ("-6", v6, "1280")] {
        let mut route = std::process::Command::new("ip");
        route.args([version, "route", "replace", &to, "dev", CLIENT_INTERFACE, "mtu", mtu]);
        bed.run(route).expect("ip is installed").assert_success();
    }
    for (from, to) in [(IpAddr::from(CLIENT_ADDRESS), ECHO), (CLIENT_ADDRESS_V6.into(), ECHO_V6)] {
        let socket = bed.at_client(|| UdpSocket::bind((from, 0))).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        socket.connect(to).expect("a route");
        let mut back = [0; 2_000];
        for length in [1_300usize, 1_333, 1_452] {
            let sent: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
            socket.send(&sent).expect("sent");
            let count = receive(&socket, &mut back).expect("an answer");
            assert!(back[..count] == sent, "{length} bytes sent, {count} other ones back");
        }
    }
    let [v4, v6] = bed.at_client(|| {
        ["snmp", "snmp6"].map(|name| {
            std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).expect("counters")
        })
    });
    let mut ip = v4.lines().filter(|line| line.starts_with("Ip: ")).map(str::split_whitespace);
    let (names, values) = (ip.next().expect("names"), ip.next().expect("values"));
    let cut = names.zip(values).find(|(name, _)| *name == "FragCreates").expect("a counter");
    assert_eq!(cut.1, "9", "three fragments of each datagram");
    let cut = v6.lines().find(|line| line.starts_with("Ip6FragCreates")).expect("a counter");
    assert_eq!(cut.split_whitespace().last(), Some("6"), "two fragments of each");
    bed.stop();
}
