//! The indirection table of a veth pair: each flow group's frames come to its queue, before and after it moves.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};

use aya::programs::{SchedClassifier, TcAttachType};
use nic::indirection::IndirectionTable;
use nic::probe;
use nic::steer_program::SteerProgram;
use wire::{MICROSOFT_KEY, MacAddr, TcpView, Toeplitz};

use super::*;

use rig::{OWN6, PEER6};

static TOEPLITZ: Toeplitz = Toeplitz::new(&MICROSOFT_KEY);
const GROUPS: usize = 128;

/// Programs at the egress of the peer's end.
fn attached(rig: &Rig) -> usize {
    on_peer(rig, || SchedClassifier::query_tcx(FAR, TcAttachType::Egress).expect("asked").1.len())
}

fn table(rig: &Rig, mac: MacAddr) -> SteerProgram {
    on_peer(rig, || {
        let program = SteerProgram::attach(FAR, &MICROSOFT_KEY, QUEUES as u16).expect("a program");
        program.with_probes(mac, OWN.into()).expect("sockets")
    })
}

/// The entry of a frame, as the hash's definition has it. `None`: no IP packet.
fn entry_of(frame: &[u8]) -> Option<usize> {
    let link = EthernetView::parse(frame).expect("a header");
    let ports = |bytes: &[u8]| {
        (u16::from_be_bytes([bytes[0], bytes[1]]), u16::from_be_bytes([bytes[2], bytes[3]]))
    };
    if link.ethertype() == EtherType::IPV6 {
        let (header, payload) = link.payload().split_at(40);
        let address = |at| Ipv6Addr::from(<[u8; 16]>::try_from(&header[at..at + 16]).expect("16"));
        let (src, dst) = (address(8), address(24));
        let hash = match wire::Protocol(header[6]) {
            wire::Protocol::TCP | wire::Protocol::UDP => {
                let (from, to) = ports(payload);
                TOEPLITZ.hash_v6(src, dst, from, to)
            }
            _ => TOEPLITZ.hash_v6_2tuple(src, dst),
        };
        return Some(hash as usize % GROUPS);
    }
    if link.ethertype() != EtherType::IPV4 {
        return None;
    }
    let packet = Ipv4View::parse(link.payload()).expect("a packet");
    let (src, dst) = (packet.src(), packet.dst());
    let hash = match packet.protocol() {
        wire::Protocol::TCP | wire::Protocol::UDP if !packet.is_fragment() => {
            let (from, to) = ports(packet.payload());
            TOEPLITZ.hash_v4(src, dst, from, to)
        }
        _ => TOEPLITZ.hash_v4_2tuple(src, dst),
    };
    Some(hash as usize % GROUPS)
}

/// Both queues of the near end.
struct Queues {
    nics: Vec<AfXdp>,
    pool: Pool,
    _program: XdpProgram,
}

impl Queues {
    fn open() -> Self {
        let region = region(4096);
        let mut pool = Pool::new(&region, 2048);
        let sockets = XdpSocket::open_queues(&small(0), QUEUES, &region).expect("two queues");
        let addresses = vec![OWN.into(), OWN6.into()];
        let filter = XdpFilter { addresses, ..XdpFilter::default() };
        let mut program = XdpProgram::attach(NEAR, &filter).expect("a program");
        let nics = drivers(sockets, &mut program, &mut pool);
        Self { nics, pool, _program: program }
    }

    fn mac(&self) -> MacAddr {
        self.nics[0].capabilities().mac
    }

    /// Takes all that comes until `frames` have, and a little longer: each with its queue.
    fn take(&mut self, frames: usize) -> Vec<(usize, Vec<u8>)> {
        let Self { nics, pool, .. } = self;
        let mut taken = Vec::new();
        let mut mbufs = Vec::new();
        let mut poll = |taken: &mut Vec<_>| {
            for (queue, nic) in nics.iter_mut().enumerate() {
                nic.receive(Instant::ZERO, pool, &mut mbufs, 64);
                for mbuf in mbufs.drain(..) {
                    taken.push((queue, mbuf.bytes().to_vec()));
                    pool.free(mbuf);
                }
            }
        };
        poll_until(|| {
            poll(&mut taken);
            taken.len() >= frames
        });
        std::thread::sleep(Duration::from_millis(2));
        poll(&mut taken);
        taken
    }
}

/// Sends a datagram from each of `ports`, which are as many flows.
fn datagrams(rig: &Rig, ports: std::ops::Range<u16>, bytes: usize) {
    datagrams_between(rig, [PEER.into(), OWN.into()], ports, bytes);
}

fn datagrams_between(
    rig: &Rig,
    [from, to]: [IpAddr; 2],
    ports: std::ops::Range<u16>,
    bytes: usize,
) {
    on_peer(rig, || {
        for port in ports {
            let socket = UdpSocket::bind((from, port)).expect("a socket");
            socket.send_to(&vec![7; bytes], (to, 7)).expect("sent");
        }
    });
}

fn all_right(taken: &[(usize, Vec<u8>)], table: &SteerProgram) -> BTreeMap<usize, usize> {
    let mut by_entry = BTreeMap::new();
    for (queue, frame) in taken {
        let right = entry_of(frame).map_or(0, |entry| {
            *by_entry.entry(entry).or_default() += 1;
            usize::from(table.entries()[entry])
        });
        assert_eq!(*queue, right, "{frame:?}");
    }
    by_entry
}

#[test]
fn every_flow_comes_to_its_entrys_queue() {
    if skip_reason().is_some() {
        return;
    }
    let rig = Rig::new();
    rig.enter_near();
    let mut queues = Queues::open();
    rig.add_neighbour(queues.mac());
    let mut table = table(&rig, queues.mac());
    assert_eq!(table.entries()[..4], [0, 1, 0, 1]);
    const FLOWS: u16 = 400;
    datagrams(&rig, 5_000..5_000 + FLOWS, 10);
    let by_entry = all_right(&queues.take(FLOWS.into()), &table);
    assert!(by_entry.len() > 100, "{} entries were met", by_entry.len());

    // Another table: one third of the entries to queue 1, in effect at once.
    let change = |entry| (entry, u16::from(entry % 3 == 1));
    table.write(&(0..GROUPS).map(change).collect::<Vec<_>>()).expect("all exist");
    datagrams(&rig, 5_000..5_000 + FLOWS, 10);
    all_right(&queues.take(FLOWS.into()), &table);
    assert!(table.write(&[(GROUPS, 0)]).is_err() && table.write(&[(0, QUEUES as u16)]).is_err());

    // Fragments, and what has no ports, by the addresses alone.
    let addresses = TOEPLITZ.hash_v4_2tuple(PEER, OWN) as usize % GROUPS;
    for queue in [1, 0] {
        table.write(&[(addresses, queue)]).expect("both exist");
        datagrams(&rig, 6_000..6_010, 3_000);
        let taken = queues.take(30);
        assert!(taken.iter().all(|(at, _)| *at == usize::from(queue)), "{taken:?}");
        all_right(&taken, &table);
        assert!(!rig.peer_runs(&format!("ping -c 1 -W 0.01 {OWN}")), "nobody answers");
        all_right(&queues.take(1), &table);
    }
    // Whoever asks for our link address is heard at queue 0.
    rig.forget_neighbour();
    datagrams(&rig, 5_000..5_020, 10);
    let taken = queues.take(1);
    assert!(taken.iter().all(|(queue, frame)| *queue == 0 && entry_of(frame).is_none()));
}

#[test]
fn a_probe_comes_behind_what_was_sent_before_and_the_program_goes_with_its_holder() {
    if skip_reason().is_some() {
        return;
    }
    let rig = Rig::new();
    rig.enter_near();
    let mut queues = Queues::open();
    rig.add_neighbour(queues.mac());
    let mut table = table(&rig, queues.mac());
    assert_eq!(attached(&rig), 1);
    let all_to = |queue| (0..GROUPS).map(|entry| (entry, queue)).collect::<Vec<_>>();
    for queue in [1, 0, 1] {
        table.write(&all_to(queue)).expect("both exist");
        datagrams(&rig, 5_000..5_050, 10);
        table.write(&all_to(1 - queue)).expect("both exist");
        assert!(table.probe(queue, 77).expect("sent"));
        datagrams(&rig, 5_000..5_050, 10);
        let taken = queues.take(101);
        let old: Vec<_> = taken.iter().filter(|(at, _)| *at == usize::from(queue)).collect();
        assert_eq!((taken.len(), old.len()), (101, 51));
        let probes: Vec<_> =
            old.iter().map(|(_, frame)| probe::token_of(frame, OWN.into())).collect();
        assert_eq!(probes[50], Some(77), "the last of its queue");
        assert_eq!(probes.iter().flatten().count(), 1);
    }
    assert!(table.probe(QUEUES as u16, 1).is_err());
    // From whatever namespace, and also when a test fails.
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _held = table;
        panic!("on purpose");
    }));
    assert!(failed.is_err());
    goes(|| attached(&rig) > 0);
}

/// Sends numbered words and reads them back, until told to stop. Answers how many.
fn converse(stop: &AtomicBool) -> u64 {
    let mut stream = TcpStream::connect((KERNEL, 7_070)).expect("connected");
    stream.set_nodelay(true).expect("an option");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut number = 0u64;
    while !stop.load(Ordering::Relaxed) {
        let words: Vec<u8> = (number..number + 16).flat_map(u64::to_be_bytes).collect();
        stream.write_all(&words).expect("written");
        let mut back = vec![0; words.len()];
        stream.read_exact(&mut back).expect("an echo");
        assert_eq!(back, words, "after {number} words");
        number += 16;
    }
    number
}

fn echo(listener: &TcpListener, connections: usize) {
    std::thread::scope(|scope| {
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().expect("a connection");
            scope.spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut bytes) {
                    stream.write_all(&bytes[..count]).expect("written");
                }
            });
        }
    });
}

#[test]
fn connections_of_the_kernel_live_through_changes() {
    if skip_reason().is_some() {
        return;
    }
    const CONNECTIONS: usize = 4;
    let rig = Rig::new();
    rig.enter_near();
    let listener = TcpListener::bind((KERNEL, 7_070)).expect("a listener");
    let mut table = table(&rig, MacAddr([2; 6]));
    let stop = &AtomicBool::new(false);
    let words: Vec<u64> = std::thread::scope(|scope| {
        let rig = &rig;
        scope.spawn(|| echo(&listener, CONNECTIONS));
        let client = || {
            scope.spawn(move || {
                rig.enter_far();
                converse(stop)
            })
        };
        let clients: Vec<_> = (0..CONNECTIONS).map(|_| client()).collect();
        for round in 0..400u16 {
            let all: Vec<_> =
                (0..GROUPS).map(|entry| (entry, (round + entry as u16) % 2)).collect();
            table.write(&all).expect("all exist");
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().expect("no wrong word")).collect()
    });
    assert!(words.iter().all(|&words| words > 100), "{words:?}");
    println!("{words:?} words");
}

#[test]
fn segments_of_the_kernel_go_where_their_entries_say() {
    if skip_reason().is_some() {
        return;
    }
    const ATTEMPTS: u16 = 60;
    let rig = Rig::new();
    rig.enter_near();
    let mut queues = Queues::open();
    rig.add_neighbour(queues.mac());
    let table = table(&rig, queues.mac());
    // The dataplane does not answer: each attempt is a segment, which is sent again only after a second.
    for own in [IpAddr::from(OWN), OWN6.into()] {
        on_peer(&rig, || {
            for port in 9_000..9_000 + ATTEMPTS {
                let wait = Duration::from_millis(1);
                TcpStream::connect_timeout(&(own, port).into(), wait).expect_err("no answer");
            }
        });
        let taken = queues.take(ATTEMPTS.into());
        let is_segment = |frame: &[u8]| {
            let header = if own.is_ipv6() { 40 } else { 20 };
            TcpView::parse(&frame[14 + header..]).is_ok()
        };
        assert!(taken.iter().all(|(_, frame)| is_segment(frame)));
        assert!(all_right(&taken, &table).len() > 30, "few entries were met");
    }
}

#[test]
fn ipv6_flows_come_to_their_entries_queues() {
    if skip_reason().is_some() {
        return;
    }
    let rig = Rig::new();
    rig.enter_near();
    let mut queues = Queues::open();
    rig.add_neighbour(queues.mac());
    let mut table = table(&rig, queues.mac());
    let ends = [PEER6.into(), OWN6.into()];
    const FLOWS: u16 = 400;
    for share in [2, 3] {
        let change = |entry| (entry, u16::from(entry % share == 1));
        table.write(&(0..GROUPS).map(change).collect::<Vec<_>>()).expect("all exist");
        datagrams_between(&rig, ends, 5_000..5_000 + FLOWS, 10);
        let by_entry = all_right(&queues.take(FLOWS.into()), &table);
        assert!(by_entry.len() > 100, "{} entries were met", by_entry.len());
    }
    // Fragments, extension headers, and what has no ports, by the addresses alone.
    let addresses = TOEPLITZ.hash_v6_2tuple(PEER6, OWN6) as usize % GROUPS;
    for queue in [1, 0] {
        let others = (0..GROUPS).map(|entry| (entry, 1 - queue)).collect::<Vec<_>>();
        table.write(&others).expect("all exist");
        table.write(&[(addresses, queue)]).expect("both exist");
        datagrams_between(&rig, ends, 6_000..6_010, 3_000);
        let mut taken = queues.take(30);
        assert!(!rig.peer_runs(&format!("ping -6 -c 1 -W 0.01 {OWN6}")), "there is no answer");
        taken.extend(queues.take(1));
        segments_behind_options(&rig, 10);
        taken.extend(queues.take(10));
        assert_eq!(taken.len(), 41);
        assert!(taken.iter().all(|(at, _)| *at == usize::from(queue)), "{taken:?}");
        all_right(&taken, &table);
    }
}

/// Sends what looks like TCP segments from as many ports, behind destination options.
fn segments_behind_options(rig: &Rig, ports: u8) {
    on_peer(rig, || {
        const OPTIONS: u32 = 60;
        let options = rustix::net::Protocol::from_raw(NonZeroU32::new(OPTIONS).expect("not zero"));
        let raw = rustix::net::socket(AddressFamily::INET6, SocketType::RAW, Some(options));
        let raw = raw.expect("a raw socket");
        for port in 0..ports {
            let mut packet = [0; 28];
            // TCP comes next; six bytes of padding; the ports.
            packet[..12].copy_from_slice(&[6, 0, 1, 4, 0, 0, 0, 0, 50, port, 0, 7]);
            let to = SocketAddrV6::new(OWN6, 0, 0, 0);
            rustix::net::sendto(&raw, &packet, SendFlags::empty(), &to).expect("sent");
        }
    });
}
