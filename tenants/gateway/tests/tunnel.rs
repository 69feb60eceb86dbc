//! A plane with a gateway, tenants that join it, and the other end of the tunnel played by the test.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as WallClock};

use clock::Instant;
use gateway::{ClientError, Counters, Gateway, GatewayConfig, GatewayTenant, Links, Refusal};
use mem::{Pool, Region};
use nic::Nic;
use nic::shm::{ShmConfig, ShmNic};
use sdp::{Plane, PlaneConfig};
use services::{Decapsulation, Encapsulation, Service, SteeringConfig, TunnelConfig};
use wire::{Endpoint, EtherType, EthernetRepr, EthernetView, Ipv4View, UdpView, emit_udp_packet};

const PATIENCE: Duration = Duration::from_secs(10);
const LOCAL: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
const REMOTE: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const VIRTUAL: Ipv4Addr = Ipv4Addr::new(10, 8, 255, 1);
const PACKET_BYTES: u32 = 1_400;

fn tenant_address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 8, 0, number)
}

/// A UDP packet.
fn packet(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 28 + payload.len()];
    let [from, to] = [from, to].map(|(addr, port)| Endpoint::new(addr, port));
    emit_udp_packet(&mut bytes, from, to, payload);
    bytes
}

/// Source, destination and payload; all checksums are right.
fn read(packet: &[u8]) -> ((Ipv4Addr, u16), (Ipv4Addr, u16), Vec<u8>) {
    let ip = Ipv4View::parse(packet).expect("an IPv4 packet");
    assert!(ip.verify_checksum());
    let udp = UdpView::parse(ip.payload()).expect("a datagram");
    assert!(udp.verify_checksum(ip.src(), ip.dst()));
    ((ip.src(), udp.src_port()), (ip.dst(), udp.dst_port()), udp.payload().to_vec())
}

/// The plane, and the tunnel's other end.
struct Testbed {
    plane: Plane,
    socket: PathBuf,
    counters: Arc<Counters>,
    wire: ShmNic,
    pool: Pool,
    entry: Encapsulation,
    exit: Decapsulation,
    links: Links,
}

impl Testbed {
    fn new(tag: &str) -> Self {
        let config = ShmConfig::default();
        // As between two processes: each end can wait for the other.
        let (near, offer) = ShmNic::create(&config).expect("a wire");
        let wire = ShmNic::join(offer, &config.far()).expect("its other end");
        let links = Links { local: config.mac, remote: config.far().mac };
        let tunnel =
            |local, remote| TunnelConfig { key: Some(7), ..TunnelConfig::new(local, remote) };
        let config = GatewayConfig {
            tunnel: tunnel(LOCAL, REMOTE),
            links,
            tenants: (tenant_address(0), 16),
            steering: Some(SteeringConfig::new(VIRTUAL, [3; 16])),
            // 10.8.0.0 to 10.8.0.127.
            servers: (tenant_address(0), 25),
        };
        let socket = std::env::temp_dir().join(format!("gateway-{tag}-{}", std::process::id()));
        let plane = PlaneConfig { spin_looks: 50, ..PlaneConfig::new(&socket) };
        let near = Mutex::new(Some(near));
        let counters = Arc::<Counters>::default();
        let theirs = Arc::clone(&counters);
        let plane = Plane::start(plane, move |_core| {
            let near = near.lock().expect("nobody panicked").take().expect("one core");
            let pool = Pool::new(&Region::heap(512), 512);
            Box::new(Gateway::new(config, near, pool, Arc::clone(&theirs)).expect("a gateway"))
        })
        .expect("a plane");
        let exit = TunnelConfig { key: Some(7), ..TunnelConfig::new(REMOTE, LOCAL) };
        Self {
            plane,
            socket,
            counters,
            wire,
            pool: Pool::new(&Region::heap(512), 512),
            entry: Encapsulation::new(tunnel(REMOTE, LOCAL)).expect("an entry"),
            exit: Decapsulation::new(exit).expect("an exit"),
            links,
        }
    }

    fn tenant(&self, number: u8, serves: bool) -> GatewayTenant {
        self.try_tenant(tenant_address(number), serves).expect("joined")
    }

    fn try_tenant(&self, address: Ipv4Addr, serves: bool) -> Result<GatewayTenant, ClientError> {
        GatewayTenant::join(&self.socket, address, serves, PACKET_BYTES)
    }

    /// What comes out at the other end next.
    fn outside(&mut self) -> Vec<u8> {
        let end = WallClock::now() + PATIENCE;
        let mut frames = Vec::new();
        while self.wire.receive(Instant::ZERO, &mut self.pool, &mut frames, 1) == 0 {
            assert!(WallClock::now() < end, "nothing came out of the tunnel");
            std::thread::yield_now();
        }
        let frame = frames.remove(0);
        let view = EthernetView::parse(frame.bytes()).expect("a frame");
        assert_eq!((view.src(), view.dst()), (self.links.local, self.links.remote));
        assert_eq!(view.ethertype(), EtherType::IPV6);
        let mut inner = vec![0; 2_048];
        let len = self.exit.serve(view.payload(), &mut inner).expect("ours, and well made");
        inner.truncate(len);
        self.pool.free(frame);
        inner
    }

    /// Sends a packet into the tunnel from the other end.
    fn send(&mut self, packet: &[u8]) {
        let mut frame = vec![0; 2_048];
        let len = self.entry.serve(packet, &mut frame[14..]).expect("a good packet");
        frame.truncate(14 + len);
        self.send_frame(&mut frame);
    }

    fn send_frame(&mut self, frame: &mut [u8]) {
        let Links { local: dst, remote: src } = self.links;
        EthernetRepr { src, dst, ethertype: EtherType::IPV6 }.emit(&mut frame[..14]);
        let mut mbuf = self.pool.alloc().expect("a chunk");
        mbuf.append(frame).expect("fits");
        let mut frames = Vec::from([mbuf.into_tx()]);
        let end = WallClock::now() + PATIENCE;
        while !frames.is_empty() {
            self.wire.transmit(Instant::ZERO, &mut self.pool, &mut frames);
            assert!(WallClock::now() < end, "the wire is stuck");
        }
        self.wire.reclaim(&mut self.pool);
    }

    /// Waits for something that the plane does in its own time.
    fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = WallClock::now() + PATIENCE;
        while !holds(self) {
            assert!(WallClock::now() < end, "still not: {what}; {:?}", self.counters.read());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn next(tenant: &mut GatewayTenant) -> Vec<u8> {
    tenant.receive(PATIENCE).expect("the plane is there").expect("a packet came")
}

fn refusal<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Refusal {
    match result {
        Err(ClientError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn packets_flow_from_a_tenant_to_the_wire_and_back() {
    let mut bed = Testbed::new("flow");
    let mut tenant = bed.tenant(1, false);
    for round in 0..200u16 {
        let payload = vec![round as u8; 1 + usize::from(round) * 5];
        let (us, them) = ((tenant_address(1), 1_000), (OUTSIDE, 2_000 + round));
        tenant.send(&packet(us, them, &payload)).expect("sent");
        assert_eq!(read(&bed.outside()), (us, them, payload.clone()));
        bed.send(&packet(them, us, &payload));
        assert_eq!(read(&next(&mut tenant)), (them, us, payload));
        if round % 50 == 0 {
            // Long enough for the core to fall asleep.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let stats = bed.counters.read();
    assert_eq!((stats.sent, stats.delivered, stats.foreign, stats.refused), (200, 200, 0, 0));
    assert!(bed.plane.report().total().sleeps > 0, "a gateway without work sleeps");
}

type Tenants = Vec<Option<GatewayTenant>>;

/// A packet of a session to the virtual address, and its answer. Which tenant gave it.
fn ask(bed: &mut Testbed, tenants: &mut Tenants, port: u16) -> usize {
    bed.send(&packet((OUTSIDE, port), (VIRTUAL, 80), &port.to_be_bytes()));
    let end = WallClock::now() + PATIENCE;
    loop {
        for (number, tenant) in tenants.iter_mut().enumerate() {
            let Some(tenant) = tenant else { continue };
            let came = tenant.receive(Duration::ZERO).expect("the plane is there");
            let Some(came) = came else { continue };
            let (from, to, payload) = read(&came);
            assert_eq!((from, payload), ((OUTSIDE, port), port.to_be_bytes().to_vec()));
            assert_eq!(to, (tenant_address(number as u8 + 1), 80));
            // The answer comes from the address that was asked.
            tenant.send(&packet((VIRTUAL, 80), from, b"yes")).expect("it serves that");
            assert_eq!(read(&bed.outside()), ((VIRTUAL, 80), from, b"yes".to_vec()));
            return number;
        }
        assert!(WallClock::now() < end, "nobody got it: {:?}", bed.counters.read());
    }
}

#[test]
fn sessions_of_the_virtual_address_stay_with_their_tenant() {
    let mut bed = Testbed::new("steer");
    let mut tenants: Tenants = (1..=3).map(|number| Some(bed.tenant(number, true))).collect();
    let ports = 5_000..5_060u16;
    let homes: HashMap<u16, usize> =
        ports.clone().map(|port| (port, ask(&mut bed, &mut tenants, port))).collect();
    for home in 0..3 {
        assert!(homes.values().filter(|&&other| other == home).count() > 5, "{homes:?}");
    }
    for port in ports.clone() {
        assert_eq!(ask(&mut bed, &mut tenants, port), homes[&port], "a session moved");
    }
    // One goes: its sessions go elsewhere, the others stay.
    tenants[1] = None;
    bed.until("its address is free again", |bed| bed.try_tenant(tenant_address(2), false).is_ok());
    for port in ports {
        let home = ask(&mut bed, &mut tenants, port);
        assert!(home == homes[&port] || homes[&port] == 1, "a session moved without need");
        assert_ne!(home, 1);
    }
    let stats = bed.counters.read();
    assert_eq!((stats.steered, stats.unclaimed, stats.foreign), (180, 0, 0));
}

#[test]
fn a_tenant_has_its_own_address_and_no_other() {
    let mut bed = Testbed::new("own");
    let (mut one, mut two) = (bed.tenant(1, false), bed.tenant(2, true));
    for (address, expected) in [
        (tenant_address(1), Refusal::Taken),
        (VIRTUAL, Refusal::NotGiven),
        (OUTSIDE, Refusal::NotGiven),
    ] {
        assert_eq!(refusal(bed.try_tenant(address, true)), expected, "{address}");
    }
    // It may have that address, but not serve; and it may try again.
    assert_eq!(refusal(bed.try_tenant(tenant_address(200), true)), Refusal::NotServer);
    bed.try_tenant(tenant_address(200), false).expect("the address is free");
    let mut broken = packet((tenant_address(1), 1), (OUTSIDE, 1), b"x");
    broken[10] ^= 1;
    for (bytes, expected) in [
        (packet((tenant_address(2), 1), (OUTSIDE, 1), b"forged"), Refusal::Source),
        (packet((VIRTUAL, 80), (OUTSIDE, 1), b"not a server"), Refusal::Source),
        (b"no packet".to_vec(), Refusal::Packet),
        (broken, Refusal::Packet),
    ] {
        assert_eq!(refusal(one.send(&bytes)), expected, "{bytes:?}");
    }
    // Among themselves they talk without the wire.
    let hello = packet((tenant_address(1), 1), (tenant_address(2), 2), b"hello");
    one.send(&hello).expect("sent");
    assert_eq!(next(&mut two), hello);
    // Junk from outside is counted, and so is what nobody is there for.
    bed.send_frame(&mut [0xee; 100]);
    bed.send(&packet((OUTSIDE, 1), (tenant_address(77), 1), b"nobody"));
    bed.send(&packet((OUTSIDE, 1), (tenant_address(1), 1), b"after all that"));
    assert_eq!(read(&next(&mut one)).2, b"after all that");
    let stats = bed.counters.read();
    assert_eq!((stats.foreign, stats.unclaimed, stats.turned_round, stats.sent), (1, 1, 1, 0));
    assert_eq!(stats.refused, 8);
}

#[test]
fn a_tenant_that_does_not_receive_loses_its_own_packets_alone() {
    let mut bed = Testbed::new("deaf");
    let (_deaf, mut other) = (bed.tenant(1, false), bed.tenant(2, false));
    // 32 wait as replies, 256 in its mailbox; the rest has no room.
    for number in 0..400u16 {
        bed.send(&packet((OUTSIDE, number), (tenant_address(1), 1), b"unread"));
        bed.send(&packet((OUTSIDE, number), (tenant_address(2), 1), &number.to_be_bytes()));
        assert_eq!(read(&next(&mut other)).2, number.to_be_bytes());
    }
    let stats = bed.counters.read();
    assert_eq!(stats.overflowed, 400 - 32 - 256, "{stats:?}");
    assert_eq!(stats.delivered, 400 + 32 + 256);
}
