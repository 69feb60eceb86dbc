//! Packets of a tenant through a GRE tunnel over the veth pair and back: AF_XDP at the gateway's end, the
//! kernel's IPv6 at the other.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gateway::{Counters, Gateway, GatewayConfig, GatewayTenant, Links};
use mem::{HugePages, Pool, Region};
use nic::af_xdp::{AfXdp, AfXdpConfig, XdpSocket};
use nic::xdp_program::{XdpFilter, XdpProgram};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType};
use sdp::{Plane, PlaneConfig};
use service::lab::constants::{CLIENT_INTERFACE, CLIENT_MAC, DATAPLANE_INTERFACE, DATAPLANE_MAC};
use service::lab::{Lab, in_namespace};
use services::TunnelConfig;
use wire::{Ipv4Repr, Ipv4View, MacAddr, Protocol};

use crate::harness::Testbed;

const PATIENCE: Duration = Duration::from_secs(10);
const LOCAL: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
const REMOTE: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
const TENANT: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
/// GRE without options, of IPv4 (RFC 2784).
const GRE: [u8; 4] = [0, 0, 8, 0];

fn packet(src: Ipv4Addr, dst: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    let (protocol, payload_len) = (Protocol(253), payload.len());
    let (ttl, ident, dscp_ecn, dont_fragment) = (64, 0, 0, true);
    let header = Ipv4Repr { src, dst, protocol, ttl, ident, dscp_ecn, dont_fragment, payload_len };
    header.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

fn add_address(namespace: &str, address: Ipv6Addr, interface: &str) {
    // A lab's namespaces have no IPv6 of their own.
    let enable = format!("net.ipv6.conf.{interface}.disable_ipv6=0");
    let sysctl = ["netns", "exec", namespace, "sysctl", "-q", "-w", &enable];
    assert!(Command::new("ip").args(sysctl).status().expect("ip is installed").success());
    let address = format!("{address}/64");
    let arguments = ["-n", namespace, "addr", "add", &address, "dev", interface, "nodad"];
    assert!(Command::new("ip").args(arguments).status().expect("ip is installed").success());
}

/// The device's end of the gateway, made in the namespace of the calling thread.
fn device() -> (AfXdp, XdpProgram, Pool) {
    let region = Region::map(4_096, HugePages::No).expect("memory");
    let config = AfXdpConfig::new(DATAPLANE_INTERFACE, 0);
    let mut program =
        XdpProgram::attach(DATAPLANE_INTERFACE, &XdpFilter::tunnel(LOCAL)).expect("a program");
    let socket = XdpSocket::open(&config, &region).expect("a socket");
    program.register(0, socket.socket().fd()).expect("registered");
    (AfXdp::new(socket).expect("a driver"), program, Pool::new(&region, 2_048))
}

fn plane(lab: &Lab, socket: &std::path::Path) -> (Plane, XdpProgram, Arc<Counters>) {
    let (nic, program, pool) = in_namespace(lab.dataplane(), device).expect("the namespace");
    let config = GatewayConfig {
        tunnel: TunnelConfig::new(LOCAL, REMOTE),
        links: Links { local: MacAddr(DATAPLANE_MAC), remote: MacAddr(CLIENT_MAC) },
        tenants: (TENANT, 24),
        steering: None,
        servers: (TENANT, 24),
    };
    let parts = Mutex::new(Some((nic, pool)));
    let counters = Arc::<Counters>::default();
    let theirs = Arc::clone(&counters);
    let plane = Plane::start(PlaneConfig::new(socket), move |_core| {
        let (nic, pool) = parts.lock().expect("nobody panicked").take().expect("one core");
        Box::new(Gateway::new(config, nic, pool, Arc::clone(&theirs)).expect("a gateway"))
    });
    (plane.expect("a plane"), program, counters)
}

/// The other end: the kernel does the IPv6, the test the GRE.
fn raw_gre() -> OwnedFd {
    let gre = rustix::net::Protocol::from_raw(NonZeroU32::new(47).expect("not zero"));
    let raw = rustix::net::socket(AddressFamily::INET6, SocketType::RAW, Some(gre));
    let raw = raw.expect("a raw socket");
    rustix::net::sockopt::set_socket_timeout(
        &raw,
        rustix::net::sockopt::Timeout::Recv,
        Some(PATIENCE),
    )
    .expect("a timeout");
    raw
}

#[test]
fn a_tenant_s_packets_cross_the_wire_in_a_tunnel_and_answers_come_back() {
    let Some(bed) = Testbed::new("gateway", 1) else { return };
    add_address(bed.lab.dataplane().name(), LOCAL, DATAPLANE_INTERFACE);
    add_address(bed.lab.client().name(), REMOTE, CLIENT_INTERFACE);
    let path = std::env::temp_dir().join(format!("gateway-e2e-{}", std::process::id()));
    let (plane, program, counters) = plane(&bed.lab, &path);
    let raw = bed.at_client(raw_gre);
    let mut tenant = GatewayTenant::join(&path, TENANT, false, 1_400).expect("joined");

    for round in 0..100u8 {
        let payload = vec![round; 1 + usize::from(round) * 13];
        let sent = packet(TENANT, OUTSIDE, &payload);
        tenant.send(&sent).expect("sent");
        let mut came = [0; 2_048];
        let (len, _) = rustix::net::recv(&raw, &mut came[..], RecvFlags::empty()).expect("it came");
        let (gre, inner) = came[..len].split_at(4);
        assert_eq!((gre, inner), (&GRE[..], &sent[..]));

        let answer = packet(OUTSIDE, TENANT, &payload);
        let datagram = [&GRE[..], &answer].concat();
        let to = SocketAddrV6::new(LOCAL, 0, 0, 0);
        rustix::net::sendto(&raw, &datagram, SendFlags::empty(), &to).expect("sent");
        let got = tenant.receive(PATIENCE).expect("the plane is there").expect("a packet came");
        // The link may have padded it; the tunnel took that off again.
        assert_eq!(got, answer);
        assert!(Ipv4View::parse(&got).expect("a packet").verify_checksum());
    }
    let stats = counters.read();
    assert_eq!((stats.sent, stats.delivered, stats.foreign), (100, 100, 0));
    assert_eq!(program.counters().expect("counters").redirected, 100);
    plane.stop();
}
