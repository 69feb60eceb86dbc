//! The AF_XDP driver and its XDP program on a veth pair between two network namespaces of the test's
//! own. Needs root; prints why where it cannot run.

mod checksums;
mod ipv6;
mod jumbo;
mod rig;
mod steering;

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddrV4, SocketAddrV6, UdpSocket};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as WallClock};

use clock::Instant;
use mem::{ChunkBytes, HugePages, Mbuf, Pool, Region};
use nic::af_xdp::{
    AdoptedQueue, AfXdp, AfXdpConfig, AfXdpError, BindMode, MappedSocket, XdpSocket,
};
use nic::device::Device;
use nic::reflector::Reflector;
use nic::rss::{EthtoolRss, RssError};
use nic::xdp_program::{AttachMode, AttachPolicy, XdpFilter, XdpProgram};
use nic::{Armed, Nic};
use rig::{FAR, KERNEL, NEAR, OWN, PEER, QUEUES, Rig, TUNNEL_ENDS, skip_reason};
use rustix::net::{AddressFamily, SendFlags, SocketType};
use wire::{
    ArpOperation, ArpRepr, EtherType, EthernetView, Ipv4Repr, Ipv4View, Protocol, SeqNumber, Sum,
    TcpFlags, TcpOptions, TcpRepr, TcpView, UdpView,
};

const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until what was dropped is not there any more: a command that another test starts just now has its descriptor,
/// too, until it is another program.
fn goes(is_there: impl Fn() -> bool) {
    let start = WallClock::now();
    while is_there() {
        assert!(start.elapsed() < PATIENCE, "it is still there after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn region(chunks: usize) -> Arc<Region> {
    Region::map(chunks, HugePages::No).expect("memory")
}

fn small(queue: u32) -> AfXdpConfig {
    AfXdpConfig {
        rx_ring_frames: 512,
        tx_ring_frames: 512,
        rx_buffers: 512,
        ..AfXdpConfig::new(NEAR, queue)
    }
}

/// Polls until `done` says so, giving the processor away between rounds. Panics when it takes long.
fn poll_until(mut done: impl FnMut() -> bool) {
    let start = WallClock::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "nothing came within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

/// Drivers of these queues, which take what the program gives them.
fn drivers(sockets: Vec<MappedSocket>, program: &mut XdpProgram, pool: &mut Pool) -> Vec<AfXdp> {
    let drive = |mapped: MappedSocket| {
        let socket = mapped.socket();
        program.register(socket.queue(), socket.fd()).expect("registered");
        let mut nic = AfXdp::new(mapped).expect("a driver");
        nic.receive(Instant::ZERO, pool, &mut Vec::new(), 0);
        nic
    };
    sockets.into_iter().map(drive).collect()
}

/// Polls all of them until `frames` have come.
fn receive_all(nics: &mut [AfXdp], pool: &mut Pool, frames: usize) -> Vec<Mbuf> {
    let mut out = Vec::new();
    poll_until(|| {
        for nic in &mut *nics {
            nic.receive(Instant::ZERO, pool, &mut out, 64);
        }
        out.len() >= frames
    });
    out
}

/// A driver on queue 0 with the program attached, in the calling thread's namespace.
fn driver(config: &AfXdpConfig, region: &Arc<Region>) -> (AfXdp, XdpProgram) {
    let socket = XdpSocket::open(config, region).expect("a socket");
    let mut program = XdpProgram::attach(NEAR, &XdpFilter::address(OWN)).expect("a program");
    program.register(config.queue, socket.socket().fd()).expect("registered");
    (AfXdp::new(socket).expect("a driver"), program)
}

/// Runs `body` on a thread in the peer's namespace.
fn on_peer<R: Send>(rig: &Rig, body: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            rig.enter_far();
            body()
        });
        thread.join().expect("the peer's thread")
    })
}

#[test]
fn frames_for_our_address_arrive_and_others_pass_to_the_kernel() {
    if skip_reason().is_some() {
        return;
    }
    let rig = Rig::new();
    rig.enter_near();
    let region = region(2048);
    let mut pool = Pool::new(&region, 1024);
    // Who asks for an address does so on any queue, the same one as long as the machine runs.
    let sockets = XdpSocket::open_queues(&small(0), QUEUES, &region).expect("two queues");
    let mut program = XdpProgram::attach(NEAR, &XdpFilter::address(OWN)).expect("a program");
    let mut nics = drivers(sockets, &mut program, &mut pool);
    assert_eq!(program.mode(), AttachMode::Native);
    let capabilities = nics[0].capabilities();
    assert_eq!((capabilities.driver, capabilities.mode), ("af_xdp", "copy"));
    assert_eq!(capabilities.max_frame_bytes, 1514);
    assert_eq!(capabilities.mac, nics[0].socket().interface().mac);

    // The kernel on our side still answers at its own address.
    let mut out: Vec<Mbuf> = Vec::new();
    for nic in &mut nics {
        nic.receive(Instant::ZERO, &mut pool, &mut out, 64);
        assert_eq!(nic.arm(), Armed::Quiet);
    }
    assert!(rig.peer_runs(&format!("ping -c 2 -i 0.01 -W 2 {KERNEL}")));
    for nic in &mut nics {
        assert_eq!(nic.receive(Instant::ZERO, &mut pool, &mut out, 64), 0);
    }
    // An ARP request and two pings.
    assert!(program.counters().expect("counters").passed >= 3);

    // Without a neighbour entry the peer asks who has our address, and we see it ask.
    let mut asked = false;
    let start = WallClock::now();
    while !asked && start.elapsed() < PATIENCE {
        on_peer(&rig, || {
            let socket = UdpSocket::bind((PEER, 0)).expect("a socket");
            let _ = socket.send_to(b"anyone?", (OWN, 7));
        });
        std::thread::sleep(Duration::from_millis(50));
        for nic in &mut nics {
            nic.receive(Instant::ZERO, &mut pool, &mut out, 64);
        }
        for mbuf in out.drain(..) {
            let frame = EthernetView::parse(mbuf.bytes()).expect("a header");
            if frame.ethertype() == EtherType::ARP {
                let arp = ArpRepr::parse(frame.payload()).expect("ARP");
                assert_eq!((arp.operation, arp.target_ip), (ArpOperation::Request, OWN));
                assert_eq!(arp.sender_ip, PEER);
                asked = true;
            }
            pool.free(mbuf);
        }
    }
    assert!(asked, "no ARP request arrived");
    assert!(program.counters().expect("counters").redirected >= 1);
    let lost: u32 = nics.into_iter().map(|nic| nic.close(&mut pool).lost).sum();
    assert_eq!((lost, pool.available()), (0, region.chunks() as usize));
}

#[test]
fn a_sleeper_is_woken_by_a_frame() {
    if skip_reason().is_some() {
        return;
    }
    let rig = Rig::new();
    rig.enter_near();
    let region = region(2048);
    let mut pool = Pool::new(&region, 1024);
    let (mut nic, _program) = driver(&small(0), &region);
    rig.add_neighbour(nic.capabilities().mac);
    let mut out = Vec::new();
    nic.receive(Instant::ZERO, &mut pool, &mut out, 64);
    assert_eq!(nic.arm(), Armed::Quiet);
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let rig = &rig;
        scope.spawn(move || {
            rig.enter_far();
            // New source ports until one hashes to queue 0.
            while !done.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(20));
                let socket = UdpSocket::bind((PEER, 0)).expect("a socket");
                let _ = socket.send_to(b"wake up", (OWN, 7));
            }
        });
        let fd = nic.wait_fd().expect("a socket");
        let mut polled = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        let timeout = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
        let ready = rustix::event::poll(&mut polled, Some(&timeout)).expect("poll");
        done.store(true, Ordering::Relaxed);
        assert_eq!(ready, 1, "not woken");
    });
    assert_eq!(nic.arm(), Armed::HasWork);
    assert!(nic.rx_backlog() > 0);
    nic.disarm();
    assert!(nic.receive(Instant::ZERO, &mut pool, &mut out, 64) > 0);
    out.drain(..).for_each(|mbuf| pool.free(mbuf));
    assert_eq!(nic.close(&mut pool).lost, 0);
}

/// 10,000 numbered datagrams of one flow go out from a kernel socket and must come back, each once,
/// through rings of 512 entries. A window keeps the socket buffers from overflowing.
fn exchange(port: u16, total: u32) {
    let socket = UdpSocket::bind((PEER, port)).expect("a socket");
    socket.connect((OWN, 7)).expect("connected");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let (mut sent, mut seen) = (0, vec![false; total as usize]);
    let mut buffer = [0; 64];
    for _ in 0..total {
        while sent < total && sent - seen_count(&seen, sent) < 64 {
            socket.send(&sent.to_be_bytes()).expect("sent");
            sent += 1;
        }
        let len = socket.recv(&mut buffer).expect("an echo within the patience");
        let number = u32::from_be_bytes(buffer[..len].try_into().expect("four bytes"));
        assert!(!std::mem::replace(&mut seen[number as usize], true), "{number} came twice");
    }
    assert!(seen.iter().all(|seen| *seen));

    fn seen_count(seen: &[bool], sent: u32) -> u32 {
        // Echoes of one flow come in order, so the recent past is enough to look at.
        let recent = sent.saturating_sub(128) as usize;
        recent as u32 + seen[recent..sent as usize].iter().filter(|seen| **seen).count() as u32
    }
}

#[test]
fn ten_thousand_datagrams_are_reflected_while_the_rings_wrap() {
    if skip_reason().is_some() {
        return;
    }
    let rig = Rig::new();
    rig.enter_near();
    let region = region(2048);
    let mut pools = [Pool::new(&region, 256), Pool::new(&region, 256)];
    let sockets = XdpSocket::open_queues(&small(0), QUEUES, &region).expect("two queues");
    let mut program = XdpProgram::attach(NEAR, &XdpFilter::address(OWN)).expect("a program");
    let mut nics: Vec<AfXdp> = sockets
        .into_iter()
        .map(|mapped| {
            let socket = mapped.socket();
            program.register(socket.queue(), socket.fd()).expect("registered");
            AfXdp::new(mapped).expect("a driver")
        })
        .collect();
    rig.add_neighbour(nics[0].capabilities().mac);

    let done = &AtomicBool::new(false);
    let mut reflectors = [Reflector::new(64), Reflector::new(64)];
    std::thread::scope(|scope| {
        let rig = &rig;
        scope.spawn(move || {
            struct Finish<'a>(&'a AtomicBool);
            impl Drop for Finish<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::Relaxed);
                }
            }
            let _finish = Finish(done);
            rig.enter_far();
            // The kernel draws each socket's queue at random: of 40 flows, all go to one queue
            // once in 2^39 runs.
            for port in 0..40 {
                exchange(4000 + port, 250);
            }
        });
        while !done.load(Ordering::Relaxed) {
            let mut busy = 0;
            for ((nic, reflector), pool) in nics.iter_mut().zip(&mut reflectors).zip(&mut pools) {
                busy += reflector.reflect_once(Instant::ZERO, nic, pool);
            }
            if busy == 0 {
                std::thread::yield_now();
            }
        }
    });

    let reflected: Vec<u64> = reflectors.iter().map(|reflector| reflector.reflected).collect();
    assert_eq!(reflected.iter().sum::<u64>(), 10_000);
    assert!(reflected.iter().all(|count| *count > 0), "one queue only: {reflected:?}");
    for (nic, pool) in nics.into_iter().zip(&mut pools) {
        let stats = nic.stats();
        assert_eq!((stats.rx_bad_descriptors, stats.rx_dropped, stats.rx_no_buffer), (0, 0, 0));
        assert_eq!(nic.close(pool).lost, 0);
    }
    drop(pools);
    assert_eq!(region.depot_len(), region.chunks() as usize);
}

#[test]
fn a_passed_socket_is_adopted_and_driven() {
    if skip_reason().is_some() {
        return;
    }
    let rig = Rig::new();
    rig.enter_near();
    let region = region(2048);
    let config = AfXdpConfig { tx_ring_frames: 1024, ..small(0) };
    let mut program = XdpProgram::attach(NEAR, &XdpFilter::address(OWN)).expect("a program");
    let socket = XdpSocket::create(&config, &region).expect("a socket");
    let interface = socket.interface().clone();
    rig.add_neighbour(interface.mac);

    let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
    pass_descriptor(&ours, socket.fd());
    std::thread::scope(|scope| {
        let (region, rig) = (&region, &rig);
        // The adopter's thread stays in the namespace where the process started: it needs nothing
        // of the interface's.
        let adopter = scope.spawn(move || {
            let fd = receive_descriptor(&theirs);
            let queue = AdoptedQueue {
                interface,
                queue: 0,
                rx_buffers: 512,
                assume_rx_checksums: false,
                tx_checksum_offload: false,
                is_sole_owner: false,
            };
            let duplicate = fd.try_clone().expect("a duplicate");
            let mapped = XdpSocket::adopt(fd, region, queue.clone()).expect("adopted");
            theirs.write_all(b"m").expect("said");
            theirs.read_exact(&mut [0]).expect("it is bound");
            let mut nic = AfXdp::new(mapped).expect("a driver");
            assert_eq!(nic.capabilities().tx_ring_frames, 1024, "measured");
            let mut pool = Pool::new(region, 1024);
            let mut reflector = Reflector::new(64);
            poll_until(|| {
                reflector.reflect_once(Instant::ZERO, &mut nic, &mut pool);
                reflector.reflected >= 100
            });
            // A second driver on the same rings would be a second producer.
            let error = XdpSocket::adopt(duplicate, region, queue).expect_err("in use");
            assert!(matches!(error, AfXdpError::RingsInUse { .. }), "{error}");
            // Who passed the socket may hold it still: the kernel may write to what it was lent.
            assert_eq!(nic.close(&mut pool).returned, 0);
        });
        ours.read_exact(&mut [0]).expect("it is mapped");
        socket.bind().expect("bound");
        program.register(0, socket.fd()).expect("registered");
        drop(socket);
        ours.write_all(b"b").expect("said");
        scope.spawn(move || {
            rig.enter_far();
            let mut sockets = Vec::new();
            while !adopter.is_finished() {
                // Source ports at random, until enough of them hash to queue 0.
                let socket = UdpSocket::bind((PEER, 0)).expect("a socket");
                let _ = socket.send_to(b"hello", (OWN, 7));
                sockets.push(socket);
                if sockets.len() > 500 {
                    sockets.clear();
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            adopter.join().expect("the adopter");
        });
    });
}

fn pass_descriptor(stream: &UnixStream, fd: std::os::fd::BorrowedFd<'_>) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, sendmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(stream, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).expect("passed");
}

fn receive_descriptor(stream: &UnixStream) -> OwnedFd {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
        .expect("received");
    control
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        })
        .expect("a descriptor")
}

#[test]
fn with_ports_the_rest_of_the_address_stays_with_the_kernel() {
    if skip_reason().is_some() {
        return;
    }
    let rig = Rig::new();
    rig.enter_near();
    let region = region(4096);
    let sockets = XdpSocket::open_queues(&small(0), QUEUES, &region).expect("two queues");
    let filter = XdpFilter::ports(KERNEL, &[7, 8]);
    let mut program =
        XdpProgram::attach_with(NEAR, &filter, AttachPolicy::Generic, false).expect("a program");
    assert_eq!(program.mode(), AttachMode::Generic);
    let mut pool = Pool::new(&region, 2048);
    let mut nics = drivers(sockets, &mut program, &mut pool);
    // A port that is not ours, on the same address, is the kernel's: it answers, as does its ICMP.
    let kernel = UdpSocket::bind((KERNEL, 9)).expect("a socket");
    kernel.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert!(rig.peer_runs(&format!("ping -c 1 -W 2 {KERNEL}")));
    let source = on_peer(&rig, || {
        let socket = UdpSocket::bind((PEER, 0)).expect("a socket");
        for (text, port) in [("seven", 7), ("eight", 8), ("nine", 9)] {
            socket.send_to(text.as_bytes(), (KERNEL, port)).expect("sent");
        }
        // Two fragments: not ours, though the first of them names our port.
        socket.send_to(&[b'f'; 2000], (KERNEL, 7)).expect("sent");
        socket.local_addr().expect("an address").port()
    });
    let mut buffer = [0; 16];
    assert_eq!(kernel.recv(&mut buffer).expect("passed to the kernel"), 4);
    assert_eq!(&buffer[..4], b"nine");
    let mut out = receive_all(&mut nics, &mut pool, 2);
    let payloads: Vec<Vec<u8>> = out
        .iter()
        .map(|mbuf| {
            let ip = Ipv4View::parse(EthernetView::parse(mbuf.bytes()).unwrap().payload()).unwrap();
            let udp = UdpView::parse(ip.payload()).unwrap();
            assert!(udp.verify_checksum(ip.src(), ip.dst()));
            assert_eq!(udp.src_port(), source);
            udp.payload().to_vec()
        })
        .collect();
    assert_eq!(payloads, [b"seven", b"eight"]);
    out.drain(..).for_each(|mbuf| pool.free(mbuf));
    assert_eq!(program.counters().expect("counters").redirected, 2);
    program.unregister(0).expect("it was registered");
    assert!(program.unregister(256).is_err(), "beyond the map");
    for nic in nics {
        assert_eq!(nic.close(&mut pool).lost, 0);
    }
}

#[test]
fn of_a_tunnel_s_address_gre_is_ours_and_the_rest_the_kernel_s() {
    if skip_reason().is_some() {
        return;
    }
    let rig = Rig::new();
    rig.enter_near();
    let region = region(4096);
    let sockets = XdpSocket::open_queues(&small(0), QUEUES, &region).expect("two queues");
    let [end, other] = TUNNEL_ENDS;
    let mut program = XdpProgram::attach(NEAR, &XdpFilter::tunnel(end)).expect("a program");
    let mut pool = Pool::new(&region, 2048);
    let mut nics = drivers(sockets, &mut program, &mut pool);
    // Neighbour discovery and ICMPv6 are the kernel's.
    assert!(rig.peer_runs(&format!("ping -6 -c 1 -W 2 {end}")));
    assert!(rig.peer_runs(&format!("ping -6 -c 1 -W 2 {other}")));
    on_peer(&rig, || {
        let gre = rustix::net::Protocol::from_raw(NonZeroU32::new(47).expect("not zero"));
        let raw = rustix::net::socket(AddressFamily::INET6, SocketType::RAW, Some(gre));
        let raw = raw.expect("a raw socket");
        for (to, text) in [(other, b"not for us"), (end, b"for us, it"), (end, b"and this 1")] {
            let to = SocketAddrV6::new(to, 0, 0, 0);
            rustix::net::sendto(&raw, text, SendFlags::empty(), &to).expect("sent");
        }
    });
    let mut out = receive_all(&mut nics, &mut pool, 2);
    // Ethernet and IPv6 headers, then what was sent.
    let payloads: Vec<&[u8]> = out.iter().map(|mbuf| &mbuf.bytes()[14 + 40..]).collect();
    assert_eq!(payloads, [b"for us, it", b"and this 1"]);
    out.drain(..).for_each(|mbuf| pool.free(mbuf));
    assert_eq!(program.counters().expect("counters").redirected, 2);
    for nic in nics {
        assert_eq!(nic.close(&mut pool).lost, 0);
    }
}

/// An IPv4 packet from the peer to us: TCP with this payload, or the same bytes as another protocol.
fn long_packet(payload: &[u8], protocol: Protocol) -> Vec<u8> {
    let tcp = TcpRepr {
        src_port: 1000,
        dst_port: 80,
        seq: SeqNumber(7),
        ack: SeqNumber(8),
        flags: TcpFlags::ACK,
        window: 100,
        options: TcpOptions::default(),
    };
    let payload_len = tcp.header_len() + payload.len();
    let mut packet = vec![0; Ipv4Repr::HEADER_LEN + tcp.header_len()];
    let (src, dst) = (PEER, OWN);
    let ip = Ipv4Repr {
        src,
        dst,
        protocol,
        ttl: 64,
        ident: 1,
        dscp_ecn: 0,
        dont_fragment: true,
        payload_len,
    };
    ip.emit(&mut packet);
    let sum = Sum::of(payload);
    tcp.emit(&mut packet[Ipv4Repr::HEADER_LEN..], src, dst, payload.len(), sum);
    packet.extend(payload);
    packet
}

#[test]
fn long_frames_come_in_several_chunks_and_become_segments() {
    if skip_reason().is_some() {
        return;
    }
    const MTU: usize = 9000;
    let rig = Rig::new();
    rig.enter_near();
    assert!(rig.near_output(&format!("ip link set {NEAR} mtu {MTU}")).is_empty());
    assert!(rig.peer_runs(&format!("ip link set {FAR} mtu {MTU}")));
    let filter = XdpFilter::address(OWN);
    // Without, the driver takes no program, or hands over no frame that is longer than its buffer.
    let mut program =
        XdpProgram::attach_with(NEAR, &filter, AttachPolicy::Native, true).expect("a program");
    assert!(program.is_multi_buffer());
    let region = Region::map_of(4096, ChunkBytes::Page, HugePages::No).expect("memory");
    let mut pool = Pool::new(&region, 2048);
    let config = AfXdpConfig { multi_buffer: true, ..small(0) };
    let sockets = XdpSocket::open_queues(&config, QUEUES, &region).expect("two queues");
    let mut nics = drivers(sockets, &mut program, &mut pool);
    rig.add_neighbour(nics[0].capabilities().mac);
    let payload: Vec<u8> = (0..MTU - 40).map(|at| (at % 251) as u8).collect();
    on_peer(&rig, || {
        let any = rustix::net::Protocol::from_raw(NonZeroU32::new(255).expect("not zero"));
        let raw = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(any));
        let raw = raw.expect("a raw socket");
        for protocol in [Protocol(254), Protocol::TCP] {
            let to = SocketAddrV4::new(OWN, 0);
            let packet = long_packet(&payload, protocol);
            rustix::net::sendto(&raw, &packet, SendFlags::empty(), &to).expect("sent");
        }
    });
    let (mut out, mut stream) = (Vec::new(), Vec::new());
    poll_until(|| {
        for nic in &mut nics {
            // Fewer than a frame has chunks.
            let received = nic.receive(Instant::ZERO, &mut pool, &mut out, 2);
            assert!(received <= 2, "{received}");
        }
        for mbuf in out.drain(..) {
            let link = EthernetView::parse(mbuf.bytes()).expect("a frame");
            if let Ok(ip) = Ipv4View::parse(link.payload())
                && ip.protocol() == Protocol::TCP
            {
                let tcp = TcpView::parse(ip.payload()).expect("a segment");
                assert!(ip.verify_checksum() && tcp.verify_checksum(PEER, OWN));
                assert_eq!(tcp.seq(), SeqNumber(7) + stream.len() as u32);
                stream.extend_from_slice(tcp.payload());
            }
            pool.free(mbuf);
        }
        stream.len() >= payload.len()
    });
    assert!(stream == payload, "the bytes are those that were sent, in their order");
    let unfit: u64 = nics.iter().map(|nic| nic.stats().rx_unfit).sum();
    assert_eq!(unfit, 1, "the packet of another protocol");
    for nic in nics {
        assert_eq!(nic.close(&mut pool).lost, 0);
    }
}

#[test]
fn a_driver_that_refuses_a_plain_program_gets_a_multi_buffer_one() {
    if skip_reason().is_some() {
        return;
    }
    let rig = Rig::new();
    rig.enter_near();
    // veth refuses a plain program by the MTU of the other end (ERANGE).
    assert!(rig.peer_runs(&format!("ip link set {FAR} mtu 9000")));
    let filter = XdpFilter::address(OWN);
    for policy in [AttachPolicy::Native, AttachPolicy::PreferNative] {
        let program = XdpProgram::attach_with(NEAR, &filter, policy, false).expect("a program");
        assert_eq!(program.mode(), AttachMode::Native);
        assert!(program.is_multi_buffer());
        assert!(
            program.refused().is_some_and(|refused| refused.to_string().contains("native mode"))
        );
    }
}

#[test]
fn the_program_is_gone_after_drop() {
    if skip_reason().is_some() {
        return;
    }
    let rig = Rig::new();
    rig.enter_near();
    let attached = || rig.near_output(&format!("ip link show {NEAR}")).contains("xdp");
    for policy in [AttachPolicy::Native, AttachPolicy::Generic] {
        let filter = XdpFilter::address(OWN);
        let program = XdpProgram::attach_with(NEAR, &filter, policy, false).expect("attached");
        assert!(attached());
        let again =
            XdpProgram::attach_with(NEAR, &filter, policy, false).expect_err("one is attached");
        let own = format!("of process {} ", std::process::id());
        assert!(again.to_string().contains(&own), "{again}");
        drop(program);
        goes(attached);
    }
}

#[test]
fn an_interface_that_goes_down_and_up_delays_frames() {
    if skip_reason().is_some() {
        return;
    }
    let rig = Rig::new();
    rig.enter_near();
    let region = region(2048);
    let mut pool = Pool::new(&region, 1024);
    let (mut nic, _program) = driver(&small(0), &region);
    rig.near_output(&format!("ip link set {NEAR} down"));
    let mut frames: Vec<_> = (0..3)
        .map(|_| {
            let mut mbuf = pool.alloc().expect("a chunk");
            mbuf.append(&[0xff; 60]).expect("fits");
            mbuf.into_tx()
        })
        .collect();
    assert_eq!(nic.transmit(Instant::ZERO, &mut pool, &mut frames), 3);
    assert!(nic.tx_error().is_some());
    assert_eq!(nic.arm(), Armed::Quiet, "asking again at once would not help");
    rig.near_output(&format!("ip link set {NEAR} up"));
    let mut sent = 0;
    poll_until(|| {
        nic.transmit(Instant::ZERO, &mut pool, &mut frames);
        sent += nic.reclaim(&mut pool);
        sent == 3
    });
    assert!(nic.tx_error().is_none());
    assert_eq!(nic.close(&mut pool).lost, 0);
}

#[test]
fn the_pair_has_no_programmable_scaling() {
    if skip_reason().is_some() {
        return;
    }
    let rig = Rig::new();
    rig.enter_near();
    let error = EthtoolRss::open(NEAR, QUEUES as u16).expect_err("veth has none");
    assert!(matches!(error, RssError::Unsupported { .. }), "{error}");
}

#[test]
fn a_pair_declares_native_xdp_and_no_zero_copy() {
    if skip_reason().is_some() {
        return;
    }
    let rig = Rig::new();
    rig.enter_near();
    let device = Device::look(NEAR).expect("it is there");
    assert_eq!((device.driver.as_str(), device.queues), ("veth", Some(QUEUES)));
    // None before Linux 6.3.
    let Some(declared) = device.xdp else { return };
    assert!(declared.native && declared.redirect && !declared.zero_copy, "{declared:?}");
}

#[test]
fn refusals_say_what_to_do() {
    if skip_reason().is_some() {
        return;
    }
    let rig = Rig::new();
    rig.enter_near();
    let region = region(1024);
    let open = |config: &AfXdpConfig| XdpSocket::open(config, &region);
    let zero_copy = AfXdpConfig { mode: BindMode::ZeroCopy, ..small(0) };
    let error = open(&zero_copy).expect_err("veth has no zero-copy");
    assert!(matches!(error, AfXdpError::NoZeroCopy { queue: 0, .. }), "{error}");
    let error = open(&small(9)).expect_err("two queues");
    assert!(matches!(error, AfXdpError::NoQueue { queue: 9, .. }), "{error}");
    let error = open(&AfXdpConfig::new(FAR, 0)).expect_err("on the other side");
    assert!(matches!(error, AfXdpError::NoInterface { .. }), "{error}");
    let error = open(&AfXdpConfig::new("lo", 0)).expect_err("no Ethernet");
    assert!(matches!(error, AfXdpError::NotEthernet { hardware: 772, .. }), "{error}");
    let error = open(&AfXdpConfig { rx_ring_frames: 1000, ..small(0) }).expect_err("no power");
    assert!(error.to_string().contains("rx_ring_frames"), "{error}");
    let error = open(&AfXdpConfig { rx_buffers: 513, ..small(0) }).expect_err("too many");
    assert!(matches!(error, AfXdpError::BadBuffers { .. }), "{error}");

    let first = open(&small(0)).expect("free");
    let error = open(&small(0)).expect_err("taken");
    assert!(matches!(error, AfXdpError::QueueBusy { queue: 0, .. }), "{error}");
    let second = XdpSocket::create(&small(0), &region).expect("made");
    let error = second.bind_beside(first.socket()).expect_err("taken");
    assert!(matches!(error, AfXdpError::QueueBusy { queue: 0, .. }), "{error}");
    let copy = AfXdpConfig { mode: BindMode::Copy, ..small(1) };
    let mapped = open(&copy).expect("its own memory registration");
    assert!(!mapped.socket().is_zero_copy().expect("it is bound"));
    drop((first, mapped));
    let zero_copy = AfXdpConfig { mode: BindMode::ZeroCopy, ..small(0) };
    let error = XdpSocket::try_bind(&zero_copy, ChunkBytes::Page).expect_err("veth has none");
    assert!(matches!(error, AfXdpError::NoZeroCopy { queue: 0, .. }), "{error}");
    // What was tried is gone.
    open(&small(0)).expect("free again");
}
