//! Checksums that the device completes, by transmit metadata: what a peer sees of frames from a veth, whose driver completes
//! none itself.

use super::*;
use std::num::NonZero;

use mem::PartialChecksum;
use wire::{EthernetRepr, MacAddr, UdpRepr, pseudo_header_sum};

/// The port at the peer, and the other one.
const PORT: u16 = 7000;
const LINK: usize = EthernetRepr::HEADER_LEN;

/// A datagram to the peer with a partial checksum, and what the field holds then.
fn datagram(pool: &mut Pool, from: MacAddr, to: MacAddr, payload: &[u8]) -> (mem::TxFrame, u16) {
    let udp = UdpRepr { src_port: 9, dst_port: PORT, payload_len: payload.len() };
    let payload_len = UdpRepr::HEADER_LEN + payload.len();
    let mut bytes = vec![0; LINK + Ipv4Repr::HEADER_LEN + UdpRepr::HEADER_LEN];
    EthernetRepr { dst: to, src: from, ethertype: EtherType::IPV4 }.emit(&mut bytes);
    let ip = Ipv4Repr {
        src: OWN,
        dst: PEER,
        protocol: Protocol::UDP,
        ttl: 64,
        ident: 0,
        dscp_ecn: 0,
        dont_fragment: true,
        payload_len,
    };
    ip.emit(&mut bytes[LINK..]);
    let start = LINK + Ipv4Repr::HEADER_LEN;
    udp.emit(&mut bytes[start..], OWN, PEER, Sum::ZERO);
    let partial = !pseudo_header_sum(OWN, PEER, Protocol::UDP, payload_len).finish();
    bytes[start + 6..start + 8].copy_from_slice(&partial.to_be_bytes());
    bytes.extend(payload);
    let mut mbuf = pool.alloc().expect("a chunk");
    // As far to the front as a frame can begin.
    mbuf.reset(mem::CHUNK_HEADER).expect("inside");
    mbuf.append(&bytes).expect("fits");
    let offset = NonZero::new(6).expect("not zero");
    let checksum = PartialChecksum { start: start as u16, offset };
    (mbuf.into_tx().with_partial_checksum(Some(checksum)), partial)
}

/// The checksum that arrives at the peer's AF_XDP socket, and whether it is right.
fn seen_by_af_xdp(far: &mut AfXdp, pool: &mut Pool) -> (u16, bool) {
    let mut found = None;
    let mut out = Vec::new();
    poll_until(|| {
        far.receive(Instant::ZERO, pool, &mut out, 64);
        for mbuf in out.drain(..) {
            let link = EthernetView::parse(mbuf.bytes()).expect("a frame");
            if let Ok(ip) = Ipv4View::parse(link.payload())
                && let Ok(udp) = UdpView::parse(ip.payload())
                && udp.dst_port() == PORT
            {
                found = Some((udp.checksum(), udp.verify_checksum(OWN, PEER)));
            }
            pool.free(mbuf);
        }
        found.is_some()
    });
    found.expect("a datagram")
}

/// With the veth's checksum offload off the kernel completes the checksum when it sends. With it on it stays incomplete:
/// the peer's kernel takes the frame, as the socket buffer says that the checksum is partial, and an AF_XDP socket at the peer
/// gets it as it is.
#[test]
fn a_veth_completes_no_checksum_and_its_kernel_does_where_the_offload_is_off() {
    if skip_reason().is_some() {
        return;
    }
    let rig = Rig::new();
    let region = region(4096);
    let mut pool = Pool::new(&region, 2048);
    let open = |config| AfXdp::new(XdpSocket::open(&config, &region).expect("a socket"));
    rig.enter_near();
    let device = Device::look(NEAR).expect("there");
    assert!(!device.xdp.expect("declared").tx_checksum, "veth has no zero-copy to declare it for");
    let mut near = open(AfXdpConfig { tx_checksum_offload: true, ..small(0) }).expect("a driver");
    assert!(near.capabilities().tx_checksum_offload);
    rig.enter_far();
    let filter = XdpFilter::address(PEER);
    let to = nic::Interface::by_name(FAR).expect("there").mac;
    let payload: Vec<u8> = (0..333).map(|at| at as u8).collect();
    let from = near.capabilities().mac;

    let mut program = XdpProgram::attach(FAR, &filter).expect("a program");
    let queues =
        XdpSocket::open_queues(&AfXdpConfig { interface: FAR.into(), ..small(0) }, QUEUES, &region);
    let mut far = drivers(queues.expect("queues"), &mut program, &mut pool);
    for is_on in [false, true] {
        let line = format!("ethtool -K {NEAR} tx {}", if is_on { "on" } else { "off" });
        rig.near_output(&line);
        let (frame, partial) = datagram(&mut pool, from, to, &payload);
        assert_eq!(near.transmit(Instant::ZERO, &mut pool, &mut vec![frame]), 1);
        let (checksum, is_right) = seen_by_af_xdp(&mut far[0], &mut pool);
        assert_eq!((checksum == partial, is_right), (is_on, !is_on), "offload on: {is_on}");
    }
    for nic in far {
        nic.close(&mut pool);
    }
    drop(program);

    let socket = UdpSocket::bind(SocketAddrV4::new(PEER, PORT)).expect("bound");
    socket.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let mut heard = [0; 1000];
    let (frame, _) = datagram(&mut pool, from, to, &payload);
    assert_eq!(near.transmit(Instant::ZERO, &mut pool, &mut vec![frame]), 1);
    let (len, _) = socket.recv_from(&mut heard).expect("the peer's kernel takes it");
    assert_eq!(heard[..len], payload);
    // One that is wrong, and complete as it says, is not taken: kernels verify here.
    let (mut frame, _) = datagram(&mut pool, from, to, &payload);
    let mut wrong = pool.alloc().expect("a chunk");
    wrong.append(frame.bytes()).expect("fits");
    pool.complete(std::mem::replace(&mut frame, wrong.into_tx()));
    let (right, _) = datagram(&mut pool, from, to, b"right");
    assert_eq!(near.transmit(Instant::ZERO, &mut pool, &mut vec![frame, right]), 2);
    let (len, _) = socket.recv_from(&mut heard).expect("the other one");
    assert_eq!(heard[..len], *b"right");
    assert_eq!(near.stats().rx_bad_descriptors, 0, "no descriptor was refused");
    assert_eq!(near.close(&mut pool).lost, 0);
}
