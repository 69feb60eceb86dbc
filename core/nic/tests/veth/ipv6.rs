//! IPv6 on a veth pair: which frames the XDP program gives the dataplane and which the kernel, rule by rule, and the
//! multicast addresses that an interface accepts.

use std::net::Ipv6Addr;

use nic::multicast::{Membership, solicited_node};
use rustix::net::{RecvFlags, SocketFlags, eth, recv, socket_with};
use wire::MacAddr;

use super::*;
use rig::{KERNEL6, OWN6, PEER6};

const TCP: u8 = 6;
const UDP: u8 = 17;
const GRE: u8 = 47;
const ICMPV6: u8 = 58;
/// Extension headers: hop-by-hop options, fragment.
const HOP_BY_HOP: u8 = 0;
const FRAGMENT: u8 = 44;
/// Types of ICMPv6 messages.
const ECHO: u8 = 128;
const ROUTER_ADVERTISEMENT: u8 = 134;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Of an address that has the last 24 bits of `OWN6`, and so its group.
const SAME_GROUP: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 5, 0, 2);
/// As the group of `OWN6`, with another scope (RFC 4291 §2.7).
const SITE_GROUP: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 1, 0xff00, 2);
/// The first bytes of the link address that frames of these tests come from; the others number them.
const FROM: [u8; 4] = [2, 0x77, 0, 0];

/// The solicited-node group of an address (RFC 4291 §2.7.1).
fn group(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let last = u16::from_be_bytes([b, c]);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), last)
}

/// A packet from the peer, behind its Ethernet header. Checksums are zero: nothing here looks at them.
fn packet(dst: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next_header, 255]);
    packet.extend(PEER6.octets());
    packet.extend(dst.octets());
    packet.extend(payload);
    packet
}

/// A TCP or UDP header's bytes, from port 7.
fn to_port(port: u16) -> Vec<u8> {
    let mut header = vec![0, 7];
    header.extend(port.to_be_bytes());
    header.resize(20, 0);
    header
}

/// An ICMPv6 message with a target, as solicitations and advertisements of neighbours have it.
fn message(kind: u8, target: Ipv6Addr) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.octets());
    message
}

fn solicitation(to: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    packet(to, ICMPV6, &message(SOLICITATION, target))
}

/// `payload` behind an extension header of eight bytes.
fn behind(extension: u8, next_header: u8, payload: &[u8]) -> (u8, Vec<u8>) {
    (extension, [&[next_header, 0, 1, 4, 0, 0, 0, 0], payload].concat())
}

/// Who gets a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taker {
    Dataplane,
    Kernel,
}

/// Both ends of a pair: AF_XDP sends at the far one, and receives at the near one what the program gives it; a packet
/// socket sees what comes to the near kernel.
struct Ends {
    near: AfXdp,
    far: AfXdp,
    kernel: OwnedFd,
    program: XdpProgram,
    pool: Pool,
    _rig: Rig,
}

impl Ends {
    fn new(filter: &XdpFilter, policy: AttachPolicy) -> Self {
        let rig = Rig::new();
        let region = region(4096);
        let mut pool = Pool::new(&region, 1024);
        let open = |config| AfXdp::new(XdpSocket::open(&config, &region).expect("a socket"));
        rig.enter_far();
        let far = open(AfXdpConfig {
            rx_buffers: 512,
            tx_ring_frames: 512,
            rx_ring_frames: 512,
            ..AfXdpConfig::new(FAR, 0)
        });
        rig.enter_near();
        let mut program = XdpProgram::attach_with(NEAR, filter, policy, false).expect("a program");
        let mut near = open(small(0)).expect("a driver");
        program.register(0, near.socket().fd()).expect("registered");
        near.receive(Instant::ZERO, &mut pool, &mut Vec::new(), 0);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kernel = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, Some(eth::IPV6));
        let kernel = kernel.expect("a packet socket");
        Self { near, far: far.expect("a driver"), kernel, program, pool, _rig: rig }
    }

    /// Sends packets, and answers who gets each.
    fn takers(&mut self, packets: &[Vec<u8>]) -> Vec<Taker> {
        let before = self.program.counters().expect("counters").redirected;
        let frame = |(number, packet): (usize, &Vec<u8>)| {
            let mut mbuf = self.pool.alloc().expect("a chunk");
            let mac = self.near.capabilities().mac;
            let number = (number as u16).to_be_bytes();
            let header = [&mac.0[..], &FROM, &number, &[0x86, 0xdd]].concat();
            mbuf.append(&[&header[..], packet].concat()).expect("room");
            mbuf.into_tx()
        };
        let mut frames: Vec<_> = packets.iter().enumerate().map(frame).collect();
        let mut takers = vec![None; packets.len()];
        let mut seen = |frame: &[u8], taker| {
            let Some(number) = frame[6..12].strip_prefix(&FROM[..]) else { return };
            let number = usize::from(u16::from_be_bytes([number[0], number[1]]));
            let before = takers[number].replace(taker);
            assert_eq!((before, &frame[14..]), (None, &packets[number][..]), "packet {number}");
        };
        let (mut out, mut count, mut buffer) = (Vec::new(), 0, [0; 2048]);
        poll_until(|| {
            self.far.transmit(Instant::ZERO, &mut self.pool, &mut frames);
            self.far.reclaim(&mut self.pool);
            count += self.near.receive(Instant::ZERO, &mut self.pool, &mut out, 64);
            for mbuf in out.drain(..) {
                seen(mbuf.bytes(), Taker::Dataplane);
                self.pool.free(mbuf);
            }
            while let Ok((len, _)) = recv(&self.kernel, &mut buffer, RecvFlags::empty()) {
                count += usize::from(buffer[6..10] == FROM);
                seen(&buffer[..len], Taker::Kernel);
            }
            count >= packets.len()
        });
        let takers: Vec<_> = takers.into_iter().map(|taker| taker.expect("it came")).collect();
        let ours = takers.iter().filter(|taker| **taker == Taker::Dataplane).count() as u64;
        let redirected = self.program.counters().expect("counters").redirected - before;
        assert_eq!(redirected, ours, "each is counted");
        takers
    }

    /// Sends packets, and panics with the names of those that others get.
    fn check(mut self, cases: &[(&str, Taker, Vec<u8>)]) {
        let packets: Vec<_> = cases.iter().map(|(_, _, packet)| packet.clone()).collect();
        let takers = self.takers(&packets);
        let wrong: Vec<_> = cases
            .iter()
            .zip(takers)
            .filter(|((_, right, _), taker)| right != taker)
            .map(|((name, ..), taker)| format!("{name}: {taker:?}"))
            .collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        for nic in [self.near, self.far] {
            assert_eq!(nic.close(&mut self.pool).lost, 0);
        }
    }
}

#[test]
fn an_ipv6_address_and_what_solicits_it_are_ours() {
    use Taker::{Dataplane, Kernel};
    if skip_reason().is_some() {
        return;
    }
    let echo = message(ECHO, OWN6);
    let other_prefix = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 2);
    let other_host = Ipv6Addr::new(0xfd77, 0, 0, 0, 1, 0, 0, 2);
    let (hop_by_hop, options) = behind(HOP_BY_HOP, UDP, &to_port(7));
    let (fragment, piece) = behind(FRAGMENT, UDP, &to_port(7));
    let (_, solicits_behind) = behind(HOP_BY_HOP, ICMPV6, &message(SOLICITATION, OWN6));
    let mut probes_duplicates = solicitation(group(OWN6), OWN6);
    // From no address (RFC 4862 §5.4.2).
    probes_duplicates[8..24].fill(0);
    let short = &message(SOLICITATION, OWN6)[..23];
    let mut no_header = packet(OWN6, UDP, &[]);
    no_header.truncate(39);
    let cases = [
        ("UDP to us", Dataplane, packet(OWN6, UDP, &to_port(7))),
        ("TCP to us", Dataplane, packet(OWN6, TCP, &to_port(80))),
        ("ICMPv6 to us", Dataplane, packet(OWN6, ICMPV6, &echo)),
        ("GRE to us", Dataplane, packet(OWN6, GRE, &[0; 8])),
        ("options to us", Dataplane, packet(OWN6, hop_by_hop, &options)),
        ("a fragment to us", Dataplane, packet(OWN6, fragment, &piece)),
        (
            "a neighbour's advertisement",
            Dataplane,
            packet(OWN6, ICMPV6, &message(ADVERTISEMENT, PEER6)),
        ),
        ("who is reachable, to us", Dataplane, solicitation(OWN6, OWN6)),
        ("who has our address?", Dataplane, solicitation(group(OWN6), OWN6)),
        ("who has it, before it is taken?", Dataplane, probes_duplicates),
        ("UDP to the kernel", Kernel, packet(KERNEL6, UDP, &to_port(7))),
        ("UDP to another prefix", Kernel, packet(other_prefix, UDP, &to_port(7))),
        ("UDP to another host", Kernel, packet(other_host, UDP, &to_port(7))),
        ("less than a header", Kernel, no_header),
        ("who has the kernel's address?", Kernel, solicitation(group(KERNEL6), KERNEL6)),
        ("who has one of the same group?", Kernel, solicitation(group(SAME_GROUP), SAME_GROUP)),
        ("solicits in another group", Kernel, solicitation(group(KERNEL6), OWN6)),
        ("solicits beyond the link", Kernel, solicitation(SITE_GROUP, OWN6)),
        ("solicits of all nodes", Kernel, solicitation(ALL_NODES, OWN6)),
        ("solicits of the kernel", Kernel, solicitation(KERNEL6, OWN6)),
        ("a short solicitation", Kernel, packet(group(OWN6), ICMPV6, short)),
        ("solicits behind options", Kernel, packet(group(OWN6), hop_by_hop, &solicits_behind)),
        (
            "another message in our group",
            Kernel,
            packet(group(OWN6), ICMPV6, &message(ADVERTISEMENT, OWN6)),
        ),
        ("UDP to our group", Kernel, packet(group(OWN6), UDP, &message(SOLICITATION, OWN6))),
        (
            "an advertisement to all",
            Kernel,
            packet(ALL_NODES, ICMPV6, &message(ADVERTISEMENT, OWN6)),
        ),
        ("a router's", Kernel, packet(ALL_NODES, ICMPV6, &message(ROUTER_ADVERTISEMENT, OWN6))),
    ];
    for policy in [AttachPolicy::Native, AttachPolicy::Generic] {
        Ends::new(&XdpFilter::address(OWN6), policy).check(&cases);
    }
}

#[test]
fn with_ports_the_rest_of_an_ipv6_address_stays_with_the_kernel() {
    use Taker::{Dataplane, Kernel};
    if skip_reason().is_some() {
        return;
    }
    let (hop_by_hop, options) = behind(HOP_BY_HOP, UDP, &to_port(7));
    let (fragment, piece) = behind(FRAGMENT, UDP, &to_port(7));
    let cases = [
        ("UDP to a port", Dataplane, packet(KERNEL6, UDP, &to_port(7))),
        ("TCP to a port", Dataplane, packet(KERNEL6, TCP, &to_port(8))),
        ("UDP to another port", Kernel, packet(KERNEL6, UDP, &to_port(9))),
        ("TCP to another port", Kernel, packet(KERNEL6, TCP, &to_port(9))),
        ("UDP to another address", Kernel, packet(OWN6, UDP, &to_port(7))),
        ("UDP without a port", Kernel, packet(KERNEL6, UDP, &[0, 7, 0])),
        ("what looks like a port", Kernel, packet(KERNEL6, GRE, &to_port(7))),
        ("options", Kernel, packet(KERNEL6, hop_by_hop, &options)),
        ("a fragment", Kernel, packet(KERNEL6, fragment, &piece)),
        ("ICMPv6", Kernel, packet(KERNEL6, ICMPV6, &message(ECHO, KERNEL6))),
        ("who has the address?", Kernel, solicitation(group(KERNEL6), KERNEL6)),
        ("who is reachable?", Kernel, solicitation(KERNEL6, KERNEL6)),
        ("a router's", Kernel, packet(ALL_NODES, ICMPV6, &message(ROUTER_ADVERTISEMENT, KERNEL6))),
    ];
    Ends::new(&XdpFilter::ports(KERNEL6, &[7, 8]), AttachPolicy::Native).check(&cases);
}

#[test]
fn addresses_of_both_families_and_tunnels_go_together() {
    use Taker::{Dataplane, Kernel};
    if skip_reason().is_some() {
        return;
    }
    let second = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0x12, 0x3456);
    let filter = XdpFilter {
        addresses: vec![OWN6.into(), OWN.into(), second.into()],
        tunnels: vec![KERNEL6],
        ..XdpFilter::default()
    };
    let cases = [
        ("the first address", Dataplane, packet(OWN6, UDP, &to_port(7))),
        ("the second address", Dataplane, packet(second, TCP, &to_port(7))),
        ("who has the second address?", Dataplane, solicitation(group(second), second)),
        ("a tunnel's packet", Dataplane, packet(KERNEL6, GRE, &[0; 8])),
        ("another to the tunnel's end", Kernel, packet(KERNEL6, UDP, &to_port(7))),
        ("who has the tunnel's end?", Kernel, solicitation(group(KERNEL6), KERNEL6)),
        ("the first's group, the second's target", Kernel, solicitation(group(OWN6), second)),
    ];
    Ends::new(&filter, AttachPolicy::Native).check(&cases);
}

#[test]
fn the_peers_kernel_solicits_us_and_reaches_its_neighbour() {
    if skip_reason().is_some() {
        return;
    }
    let rig = Rig::new();
    rig.enter_near();
    let region = region(4096);
    let mut pool = Pool::new(&region, 2048);
    let sockets = XdpSocket::open_queues(&small(0), QUEUES, &region).expect("two queues");
    let mut program = XdpProgram::attach(NEAR, &XdpFilter::address(OWN6)).expect("a program");
    let mut nics = drivers(sockets, &mut program, &mut pool);
    // The kernel's own address is solicited and answered by the kernel.
    assert!(rig.peer_runs(&format!("ping -6 -c 1 -W 2 {KERNEL6}")));
    assert_eq!(program.counters().expect("counters").redirected, 0);
    let send = |text: &[u8]| {
        on_peer(&rig, || {
            let socket = UdpSocket::bind((PEER6, 0)).expect("a socket");
            let _ = socket.send_to(text, (OWN6, 7));
        });
    };
    send(b"anyone?");
    for mbuf in receive_all(&mut nics, &mut pool, 1) {
        let frame = EthernetView::parse(mbuf.bytes()).expect("a header");
        assert_eq!((frame.ethertype(), frame.dst()), (EtherType::IPV6, solicited_node(OWN6)));
        let (header, message) = frame.payload().split_at(40);
        assert_eq!((header[6], &header[24..]), (ICMPV6, &group(OWN6).octets()[..]));
        assert_eq!((message[0], &message[8..24]), (SOLICITATION, &OWN6.octets()[..]));
        pool.free(mbuf);
    }
    rig.add_neighbour(nics[0].capabilities().mac);
    send(b"you are");
    let is_it = |mbuf: &Mbuf| mbuf.bytes().ends_with(b"you are");
    poll_until(|| {
        let mut out = receive_all(&mut nics, &mut pool, 1);
        let came = out.iter().any(is_it);
        out.drain(..).for_each(|mbuf| pool.free(mbuf));
        came
    });
    for nic in nics {
        assert_eq!(nic.close(&mut pool).lost, 0);
    }
}

#[test]
fn an_interface_accepts_groups_while_a_membership_lives() {
    if skip_reason().is_some() {
        return;
    }
    let rig = Rig::new();
    rig.enter_near();
    let listed = |group: MacAddr| {
        let hex: String = group.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let addresses = rig.near_output("cat /proc/net/dev_mcast");
        addresses.lines().any(|line| line.contains(NEAR) && line.ends_with(&hex))
    };
    let (ours, other) = (solicited_node(OWN6), MacAddr([1, 0, 0x5e, 1, 2, 3]));
    assert_eq!(ours, MacAddr([0x33, 0x33, 0xff, 0, 0, 2]));
    assert!(!listed(ours) && !listed(other));
    let both = Membership::join(NEAR, &[ours, other]).expect("joined");
    assert!(listed(ours) && listed(other));
    let again = Membership::join(NEAR, &[ours]).expect("joined");
    drop(both);
    goes(|| listed(other));
    assert!(listed(ours), "one membership is left");
    drop(again);
    goes(|| listed(ours));
    // The kernel's own stay.
    let kernels = solicited_node(KERNEL6);
    assert!(listed(kernels));
    drop(Membership::join(NEAR, &[kernels]).expect("joined"));
    std::thread::sleep(Duration::from_millis(10));
    assert!(listed(kernels));
}
