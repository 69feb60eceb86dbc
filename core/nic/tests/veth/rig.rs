//! Two network namespaces joined by a veth pair, removed when dropped (also on panic).

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use wire::MacAddr;

/// The dataplane's own address; the kernel of its namespace has `KERNEL`.
pub const OWN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The address of the kernel on the dataplane's side.
pub const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);
/// The peer's address.
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// IPv6 addresses of the kernel on the dataplane's side.
pub const TUNNEL_ENDS: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 3), Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 4)];
/// The dataplane's own IPv6 address.
pub const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
/// The IPv6 address of the kernel on the dataplane's side.
pub const KERNEL6: Ipv6Addr = TUNNEL_ENDS[0];
/// The peer's IPv6 address.
pub const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
/// The interface's name on the dataplane's side.
pub const NEAR: &str = "near0";
/// The interface's name on the peer's side.
pub const FAR: &str = "far0";
/// Queues of both interfaces.
pub const QUEUES: u32 = 2;

/// Why the tests cannot run here, printed; none where they can.
pub fn skip_reason() -> Option<String> {
    let reason = if !rustix::process::geteuid().is_root() {
        Some("not root: network namespaces and AF_XDP need it".to_string())
    } else {
        ["ip", "ethtool"].into_iter().find_map(|tool| {
            let found = Command::new(tool).arg("--version").output().is_ok();
            (!found).then(|| format!("`{tool}` is not installed"))
        })
    };
    reason.inspect(|reason| eprintln!("skipped: {reason}"))
}

/// The namespaces.
pub struct Rig {
    names: [String; 2],
}

impl Drop for Rig {
    fn drop(&mut self) {
        for name in &self.names {
            // Removing a namespace removes its end of the pair, and with it the other.
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

fn run(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let program = words.next().expect("a command");
    let output = Command::new(program).args(words).output().expect("the tool is installed");
    if !output.status.success() {
        eprintln!("{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

impl Rig {
    /// Makes both namespaces, the pair and the addresses.
    pub fn new() -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let (pid, number) = (std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let rig = Self { names: ["a", "b"].map(|end| format!("tpnic-{pid}-{number}{end}")) };
        let [near, far] = &rig.names;
        let q = format!("numrxqueues {QUEUES} numtxqueues {QUEUES}");
        for line in [
            format!("ip netns add {near}"),
            format!("ip netns add {far}"),
            format!(
                "ip link add {NEAR} netns {near} {q} type veth peer name {FAR} netns {far} {q}"
            ),
            format!("ip -n {near} addr add {KERNEL}/24 dev {NEAR}"),
            format!("ip -n {far} addr add {PEER}/24 dev {FAR}"),
            format!("ip -n {near} addr add {}/64 dev {NEAR} nodad", TUNNEL_ENDS[0]),
            format!("ip -n {near} addr add {}/64 dev {NEAR} nodad", TUNNEL_ENDS[1]),
            format!("ip -n {far} addr add {PEER6}/64 dev {FAR} nodad"),
            format!("ip -n {near} link set {NEAR} up"),
            format!("ip -n {far} link set {FAR} up"),
            // The pair hands over half-made checksums and super-frames otherwise.
            format!("ip netns exec {far} ethtool -K {FAR} tx off tso off gso off gro off"),
            format!("ip netns exec {near} ethtool -K {NEAR} tx off tso off gso off gro off"),
        ] {
            assert!(run(&line), "{line}");
        }
        rig
    }

    /// Gives the peer's kernel the dataplane's link address, so that it sends no ARP request or solicitation.
    pub fn add_neighbour(&self, mac: MacAddr) {
        let far = &self.names[1];
        for own in [IpAddr::from(OWN), OWN6.into()] {
            let line = format!("ip -n {far} neigh replace {own} lladdr {mac} dev {FAR}");
            assert!(run(&line));
        }
    }

    /// The peer's kernel does not know the dataplane's link address any more.
    pub fn forget_neighbour(&self) {
        let far = &self.names[1];
        assert!(run(&format!("ip -n {far} neigh del {OWN} dev {FAR}")));
    }

    /// Runs a command in the peer's namespace; answers whether it succeeded.
    pub fn peer_runs(&self, line: &str) -> bool {
        run(&format!("ip netns exec {} {line}", self.names[1]))
    }

    /// Output of a command in the dataplane's namespace.
    pub fn near_output(&self, line: &str) -> String {
        let words = line.split_whitespace();
        let output = Command::new("ip")
            .args(["netns", "exec", &self.names[0]])
            .args(words)
            .output()
            .expect("ip is installed");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Moves the calling thread to the dataplane's side.
    pub fn enter_near(&self) {
        enter(&self.names[0]);
    }

    /// Moves the calling thread to the peer's side.
    pub fn enter_far(&self) {
        enter(&self.names[1]);
    }
}

fn enter(name: &str) {
    let file = File::open(format!("/run/netns/{name}")).expect("the namespace exists");
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
}
