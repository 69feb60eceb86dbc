//! Steering: sessions stay, shares are fair, checksums stay right, and what is not steered is refused by name.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use clock::{Duration, Instant};
use proptest::prelude::*;
use services::{Layer, Refused, Steering, SteeringConfig, SteeringError};
use wire::{Endpoint, Ipv4View, Protocol, Sum, TcpView, UdpView};

use crate::packets::{serve, tcp, udp};

const VIRTUAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 100);
const IDLE_MAX: Duration = Duration::from_secs(10);

fn steering(backends: u8) -> (Steering, Vec<services::BackendId>) {
    let mut config = SteeringConfig::new(VIRTUAL, [7; 16]);
    (config.sessions_max, config.backends_max, config.idle_max) = (4_096, 16, IDLE_MAX);
    let mut steering = Steering::new(config).expect("a configuration");
    steering.set_now(Instant::from_millis(1));
    let ids = (0..backends).map(|n| steering.add_backend(backend(n)).expect("room")).collect();
    (steering, ids)
}

fn backend(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, number)
}

fn session(port: u16) -> Vec<u8> {
    let client = Endpoint::new(Ipv4Addr::new(203, 0, 113, 9), port);
    tcp(client, Endpoint::new(VIRTUAL, 443), b"hello")
}

fn steer(steering: &mut Steering, packet: &[u8]) -> Ipv4Addr {
    let reply = serve(steering, packet).expect("steered");
    Ipv4View::parse(&reply).expect("a packet").dst()
}

fn assert_checksums(packet: &[u8]) {
    let ip = Ipv4View::parse(packet).expect("a packet");
    assert!(ip.verify_checksum());
    let is_right = match ip.protocol() {
        Protocol::TCP => {
            TcpView::parse(ip.payload()).expect("TCP").verify_checksum(ip.src(), ip.dst())
        }
        _ => UdpView::parse(ip.payload()).expect("UDP").verify_checksum(ip.src(), ip.dst()),
    };
    assert!(is_right, "{packet:x?}");
}

proptest! {
    #[test]
    fn only_the_destination_changes_and_checksums_stay_right(
        (addr, port, is_tcp) in any::<([u8; 4], u16, bool)>(),
        payload in prop::collection::vec(any::<u8>(), 0..100),
        padding in 0usize..10,
    ) {
        let (mut steering, _) = steering(5);
        let (client, server) = (Endpoint::new(Ipv4Addr::from(addr), port), Endpoint::new(VIRTUAL, 53));
        let packet =
            if is_tcp { tcp(client, server, &payload) } else { udp(client, server, 0, &payload) };
        let padded = [&packet[..], &vec![0xaa; padding]].concat();
        let reply = serve(&mut steering, &padded).expect("steered");
        assert_checksums(&reply);
        // As if it had been sent there: another way to the same bytes.
        let backend = Ipv4View::parse(&reply).expect("a packet").dst();
        let server = Endpoint::new(backend, 53);
        let expected =
            if is_tcp { tcp(client, server, &payload) } else { udp(client, server, 0, &payload) };
        prop_assert_eq!(reply, expected);
    }
}

#[test]
fn a_datagram_without_checksum_stays_without() {
    let (mut steering, _) = steering(1);
    let client = Endpoint::new(Ipv4Addr::new(203, 0, 113, 9), 1);
    let mut packet = udp(client, Endpoint::new(VIRTUAL, 53), 0, b"hello");
    packet[26..28].fill(0);
    assert_eq!(serve(&mut steering, &packet).expect("steered")[26..28], [0, 0]);
}

#[test]
fn sessions_stay_when_backends_come_and_go() {
    let (mut steering, ids) = steering(8);
    let before: HashMap<u16, Ipv4Addr> =
        (1..2_000).map(|port| (port, steer(&mut steering, &session(port)))).collect();
    for number in 0..8 {
        let share = before.values().filter(|&&addr| addr == backend(number)).count();
        assert!((150..350).contains(&share), "backend {number} has {share} of 1999");
    }

    steering.add_backend(backend(100)).expect("room");
    steering.drain_backend(ids[0]).expect("there");
    for (&port, &addr) in &before {
        assert_eq!(steer(&mut steering, &session(port)), addr, "{port}");
    }
    let new: Vec<_> = (2_000..3_000).map(|port| steer(&mut steering, &session(port))).collect();
    assert!(!new.contains(&backend(0)), "it is being drained");
    assert!(new.contains(&backend(100)), "it takes its share");

    steering.remove_backend(ids[1]).expect("there");
    for (&port, &addr) in &before {
        let now = steer(&mut steering, &session(port));
        assert!(now != backend(1), "it is gone");
        assert!(addr == backend(1) || now == addr, "session {port} moved for nothing");
        assert_eq!(steer(&mut steering, &session(port)), now, "it stays where it was moved");
    }
    let lost = before.values().filter(|&&addr| addr == backend(1)).count();
    assert_eq!(steering.stats().moved, lost as u64);

    // Its successor in the same place is somebody else.
    let successor = steering.add_backend(backend(101)).expect("room");
    assert_eq!(steering.remove_backend(ids[1]), Err(SteeringError::Gone));
    assert_eq!(steering.drain_backend(ids[1]), Err(SteeringError::Gone));
    steering.drain_backend(successor).expect("there");
}

#[test]
fn an_idle_session_is_a_new_one() {
    let (mut steering, ids) = steering(2);
    let addr = steer(&mut steering, &session(1));
    let number = addr.octets()[3];
    steering.drain_backend(ids[usize::from(number)]).expect("there");
    let later = |millis| Instant::from_millis(1) + IDLE_MAX - Duration::from_millis(millis);
    steering.set_now(later(1));
    assert_eq!(steer(&mut steering, &session(1)), addr);
    steering.set_now(later(1) + IDLE_MAX);
    assert_eq!(steer(&mut steering, &session(1)), backend(1 - number));
    assert_eq!((steering.stats().new, steering.stats().known), (2, 1));
    assert_eq!(steering.sessions(), 1);
}

#[test]
fn a_flood_leaves_the_table_bounded_and_sessions_where_they_were() {
    let (mut steering, _) = steering(8);
    let before: Vec<_> = (1..1_000).map(|port| steer(&mut steering, &session(port))).collect();
    for port in 10_000..30_000 {
        steer(&mut steering, &session(port));
        assert!(steering.sessions() <= 4_096);
    }
    assert!(steering.stats().evicted > 15_000, "{:?}", steering.stats());
    assert_eq!(steering.stats().unrecorded, 0);
    let after: Vec<_> = (1..1_000).map(|port| steer(&mut steering, &session(port))).collect();
    assert_eq!(before, after, "the hash knows where forgotten sessions were");
}

#[test]
fn steerers_with_the_same_key_and_backends_agree() {
    let (mut one, _) = steering(8);
    let (mut other, _) = steering(0);
    for number in (0..8).rev() {
        other.add_backend(backend(number)).expect("room");
    }
    for port in 1..500 {
        assert_eq!(steer(&mut one, &session(port)), steer(&mut other, &session(port)));
    }
}

#[test]
fn what_is_not_steered_is_named() {
    let (mut steering, _) = steering(1);
    let good = session(1);
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = good.clone();
        change(&mut packet);
        packet[10..12].fill(0);
        let checksum = Sum::of(&packet[..20]).finish();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet
    };
    let cases: [(Vec<u8>, Refused); 6] = [
        (with(&|p| p[19] = 101), Refused::Address { layer: Layer::Ipv4 }),
        (with(&|p| p[6] = 0x20), Refused::Fragment),
        (with(&|p| p[7] = 1), Refused::Fragment),
        (with(&|p| p[9] = 1), Refused::Protocol { layer: Layer::Ipv4, found: 1 }),
        (with(&|p| p[3] = 39), Refused::Truncated { layer: Layer::Tcp }),
        (with(&|p| (p[3], p[9]) = (27, 17)), Refused::Truncated { layer: Layer::Udp }),
    ];
    for (packet, refused) in cases {
        assert_eq!(serve(&mut steering, &packet), Err(refused));
    }
    let mut damaged = good.clone();
    damaged[8] ^= 1;
    let refused = Err(Refused::Checksum { layer: Layer::Ipv4 });
    assert_eq!(serve(&mut steering, &damaged), refused);
    assert_eq!(steering.sessions(), 0, "nothing of this is a session");
    let (mut without, _) = crate::steering::steering(0);
    assert_eq!(serve(&mut without, &good), Err(Refused::NoBackend));
}

#[test]
fn what_cannot_be_set_up_is_said() {
    for (sessions_max, backends_max) in [(0, 1), (1, 0), (usize::MAX, 1), (1, 5_000)] {
        let mut config = SteeringConfig::new(VIRTUAL, [7; 16]);
        (config.sessions_max, config.backends_max) = (sessions_max, backends_max);
        assert!(matches!(Steering::new(config).err(), Some(SteeringError::Limit { .. })));
    }
    let (mut steering, _) = steering(16);
    assert_eq!(
        steering.add_backend(backend(3)),
        Err(SteeringError::Duplicate { addr: backend(3) })
    );
    assert_eq!(steering.add_backend(backend(16)), Err(SteeringError::Full { limit: 16 }));
}
