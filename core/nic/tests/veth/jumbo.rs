//! Frames of several chunks that are sent to the kernel at the other end: datagrams of the driver's, and a stream of the
//! stack's.

use std::net::TcpStream;
use std::num::NonZero;

use domain::{CallArray, Calls, Cookie, Event, EventArray, Handle};
use mem::{PartialChecksum, TX_PAYLOAD, TxFrame};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use stack::{Secrets, Shared, Stack, StackConfig, StackStats};
use wire::{EthernetRepr, MacAddr, UdpRepr, pseudo_header_sum};

use super::*;

const MTU: usize = 9000;
const PORT: u16 = 7000;
/// Bytes of the headers before a datagram's payload.
const HEADERS: usize = EthernetRepr::HEADER_LEN + Ipv4Repr::HEADER_LEN + UdpRepr::HEADER_LEN;

/// An interface with an MTU at both ends, and drivers on it.
fn open(
    rig: &Rig,
    mtu: usize,
    region: &Arc<Region>,
    tx_checksum_offload: bool,
) -> (Vec<AfXdp>, XdpProgram, Pool) {
    let is_jumbo = mtu > 1500;
    rig.enter_near();
    assert!(rig.near_output(&format!("ip link set {NEAR} mtu {mtu}")).is_empty());
    assert!(rig.peer_runs(&format!("ip link set {FAR} mtu {mtu}")));
    let filter = XdpFilter::address(OWN);
    let mut program =
        XdpProgram::attach_with(NEAR, &filter, AttachPolicy::Native, is_jumbo).expect("a program");
    let mut pool = Pool::new(region, 2048);
    let config = AfXdpConfig { multi_buffer: is_jumbo, tx_checksum_offload, ..small(0) };
    let sockets = XdpSocket::open_queues(&config, QUEUES, region).expect("two queues");
    let nics = drivers(sockets, &mut program, &mut pool);
    rig.add_neighbour(nics[0].capabilities().mac);
    (nics, program, pool)
}

fn payload(len: usize, seed: usize) -> Vec<u8> {
    (seed..seed + len).map(|at| (at % 251) as u8).collect()
}

/// A datagram to the peer in chunks of `most` bytes.
fn datagram(
    pool: &mut Pool,
    (from, to): (MacAddr, MacAddr),
    payload: &[u8],
    most: usize,
    is_partial: bool,
) -> Vec<TxFrame> {
    let udp = UdpRepr { src_port: 9, dst_port: PORT, payload_len: payload.len() };
    let payload_len = UdpRepr::HEADER_LEN + payload.len();
    let mut bytes = vec![0; HEADERS];
    EthernetRepr { dst: to, src: from, ethertype: EtherType::IPV4 }.emit(&mut bytes);
    Ipv4Repr::new(OWN, PEER, Protocol::UDP, payload_len)
        .emit(&mut bytes[EthernetRepr::HEADER_LEN..]);
    let start = HEADERS - UdpRepr::HEADER_LEN;
    udp.emit(&mut bytes[start..], OWN, PEER, Sum::of(payload));
    let mut checksum = None;
    if is_partial {
        let partial = !pseudo_header_sum(OWN, PEER, Protocol::UDP, payload_len).finish();
        bytes[start + 6..start + 8].copy_from_slice(&partial.to_be_bytes());
        let offset = NonZero::new(6).expect("not zero");
        checksum = Some(PartialChecksum { start: start as u16, offset });
    }
    bytes.extend(payload);
    let parts = bytes.chunks(most);
    let count = parts.len();
    let chunk = |(index, part): (usize, &[u8])| {
        let mut mbuf = pool.alloc().expect("a chunk");
        mbuf.append(part).expect("room");
        let frame = mbuf.into_tx().with_continued(index + 1 < count);
        if index == 0 { frame.with_partial_checksum(checksum) } else { frame }
    };
    parts.enumerate().map(chunk).collect()
}

/// More of them than the ring has room for, with small ones between, and one of as many chunks as the dataplane makes: the
/// kernel at the other end gets each whole, and all chunks come back.
#[test]
fn the_kernel_gets_frames_of_several_chunks() {
    const DATAGRAMS: usize = 150;
    if skip_reason().is_some() {
        return;
    }
    for is_partial in [false, true] {
        let rig = Rig::new();
        let region = Region::map_of(4096, ChunkBytes::Page, HugePages::No).expect("memory");
        let (mut nics, _program, mut pool) = open(&rig, MTU, &region, is_partial);
        let socket = on_peer(&rig, || {
            let socket = UdpSocket::bind((PEER, PORT)).expect("bound");
            socket.set_nonblocking(true).expect("set");
            // A burst of the ring's frames fits.
            set_socket_recv_buffer_size_force(&socket, 16 << 20).expect("root may");
            socket
        });
        let mac = on_peer(&rig, || Device::look(FAR).expect("there").interface.mac);
        let nic = &mut nics[0];
        let ends = (nic.capabilities().mac, mac);
        let mut frames = Vec::new();
        let free = pool.available();
        let sizes: Vec<usize> =
            (0..DATAGRAMS).map(|at| if at % 3 == 2 { 20 } else { MTU - 28 - at }).collect();
        for (at, &size) in sizes.iter().enumerate() {
            frames.extend(datagram(&mut pool, ends, &payload(size, at), TX_PAYLOAD, is_partial));
        }
        let most = (MTU - 28 + HEADERS).div_ceil(16);
        frames.extend(datagram(&mut pool, ends, &payload(MTU - 28, 1), most, is_partial));
        assert!(frames.len() > 512);
        let (mut received, mut buffer) = (Vec::new(), vec![0; MTU]);
        poll_until(|| {
            nic.transmit(Instant::ZERO, &mut pool, &mut frames);
            nic.reclaim(&mut pool);
            while let Ok(len) = socket.recv(&mut buffer) {
                received.push(buffer[..len].to_vec());
            }
            received.len() > DATAGRAMS
        });
        for (at, (&size, found)) in sizes.iter().zip(&received).enumerate() {
            assert!(found == &payload(size, at), "datagram {at} of {size} bytes");
        }
        assert!(received[DATAGRAMS] == payload(MTU - 28, 1));
        assert_eq!(nic.stats().tx_frames, DATAGRAMS as u64 + 1);
        poll_until(|| {
            nic.reclaim(&mut pool);
            nic.in_flight() == 0
        });
        let lent = free - pool.available();
        assert!(lent < 64, "{lent} chunks did not come back, beside those to receive into");
        for nic in nics {
            assert_eq!(nic.close(&mut pool).lost, 0);
        }
    }
}

/// What a transfer took.
struct Taken {
    seconds: f64,
    frames: u64,
    stats: StackStats,
}

/// The stack behind the drivers, with an application that sends so many bytes to whom it hears of.
struct Server {
    stack: Stack,
    events: EventArray,
    calls: CallArray,
    connection: Option<(Handle, usize)>,
    sent: usize,
}

impl Server {
    fn new(mtu: usize, mac: MacAddr, tx_checksum_offload: bool) -> Self {
        let mut config = StackConfig::new(OWN, 24, mac);
        (config.mtu_bytes, config.tcp_listen) = (mtu as u16, vec![PORT]);
        config.frame_chunks = if mtu > 1500 { 16 } else { 1 };
        config.tx_checksum_offload = tx_checksum_offload;
        let secrets = Secrets {
            rss_key: wire::MICROSOFT_KEY,
            isn_key: [3; 16],
            port_key: [4; 16],
            offset: 5,
        };
        let calls = CallArray::new(1024, config.segment_bytes())
            .with_tx_checksum_offload(tx_checksum_offload);
        let shared = Arc::new(Shared::new(config, &secrets, 1));
        let stack = Stack::new(shared, 0, Instant::from_millis(1), 512);
        Self { stack, events: EventArray::new(512), calls, connection: None, sent: 0 }
    }

    fn cycle(&mut self, now: Instant, total: usize, nics: &mut [AfXdp], pool: &mut Pool) {
        let Self { stack, events, calls, connection, sent } = self;
        let mut received = Vec::new();
        for nic in &mut *nics {
            nic.receive(now, pool, &mut received, 64);
        }
        while !received.is_empty() {
            stack.input(now, &mut received, pool, events, |_, _, _| panic!("one core"));
        }
        let view = events.view(stack);
        let mut batch = Calls::new(calls, pool);
        for event in view.iter() {
            match event {
                Event::Knock { handle, window, .. } => {
                    *connection = Some((handle, window as usize));
                    batch.accept(handle, Cookie(1)).expect("room");
                }
                Event::Sent { handle, window, .. } => {
                    *connection = Some((handle, window as usize));
                }
                _ => {}
            }
        }
        if let Some((handle, window)) = connection {
            let len = (*window).min(total - *sent).min(200_000);
            if len > 0 && batch.sendv(*handle, &[&payload(len, *sent % 251)]).is_ok() {
                *sent += len;
                *window -= len;
            }
        }
        let mut buffers: Vec<_> = events.drain().collect();
        stack.execute(now, calls, &mut buffers, pool, events);
        stack.run_timers(now, pool, events);
        stack.flush(now, pool, events);
        nics[0].transmit(now, pool, stack.frames());
        nics[0].reclaim(pool);
    }
}

/// The kernel at the other end connects and reads so many bytes.
fn transfer(mtu: usize, total: usize, tx_checksum_offload: bool) -> Taken {
    let rig = Rig::new();
    let region = Region::map_of(8192, ChunkBytes::Page, HugePages::No).expect("memory");
    let (mut nics, _program, mut pool) = open(&rig, mtu, &region, tx_checksum_offload);
    let mut server = Server::new(mtu, nics[0].capabilities().mac, tx_checksum_offload);
    let is_done = AtomicBool::new(false);
    let begun = WallClock::now();
    let seconds = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            rig.enter_far();
            let mut stream = TcpStream::connect((OWN, PORT)).expect("it answers");
            stream.set_read_timeout(Some(PATIENCE)).expect("set");
            let (mut buffer, mut read) = (vec![0; 1 << 16], 0);
            let begun = WallClock::now();
            while read < total {
                let len = stream.read(&mut buffer).expect("bytes");
                assert!(len > 0 && buffer[..len] == payload(len, read % 251), "at {read}");
                read += len;
            }
            is_done.store(true, Ordering::Relaxed);
            begun.elapsed().as_secs_f64()
        });
        while !is_done.load(Ordering::Relaxed) && !reader.is_finished() {
            let now = Instant::from_millis(2) + begun.elapsed();
            server.cycle(now, total, &mut nics, &mut pool);
            std::thread::yield_now();
        }
        reader.join().expect("all bytes came, in their order")
    });
    let frames = nics[0].stats().tx_frames;
    let stats = server.stack.stats();
    Taken { seconds, frames, stats }
}

#[test]
fn a_large_answer_leaves_in_few_large_segments() {
    const TOTAL: usize = 16 << 20;
    if skip_reason().is_some() {
        return;
    }
    let report = |what, taken: &Taken| {
        let megabits = TOTAL as f64 * 8e-6 / taken.seconds;
        let Taken { frames, stats, .. } = taken;
        let (long, again) = (stats.tcp_long_segments_out, stats.tcp_retransmissions);
        eprintln!("{what}: {megabits:.0} Mbit/s, {frames} frames, {long} long, {again} again");
    };
    let small = transfer(1500, TOTAL, false);
    report("MTU 1500", &small);
    assert_eq!(small.stats.tcp_long_segments_out, 0);
    for offload in [false, true] {
        let large = transfer(MTU, TOTAL, offload);
        report(if offload { "MTU 9000, kernel's checksums" } else { "MTU 9000" }, &large);
        let least = (TOTAL / MTU) as u64;
        assert!(large.stats.tcp_long_segments_out > least * 9 / 10, "{:?}", large.stats);
        assert!(large.frames < small.frames / 4, "{} and {}", large.frames, small.frames);
    }
}
