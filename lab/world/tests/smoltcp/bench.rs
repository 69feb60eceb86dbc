//! Our stack with its sockets and smoltcp, joined by a network with faults, in virtual time.

use std::net::IpAddr;
use std::sync::Arc;

use clock::{Duration, Instant};
use dataplane::{ElasticConfig, ElasticThread, ForwardPorts};
use domain::Service;
use mem::{Pool, Region};
use sockets::message::MSG_DONTWAIT;
use sockets::socket_type::{AF_INET, AF_INET6, SOCK_NONBLOCK, SOCK_STREAM};
use sockets::{Errno, SHUT_WR, Sockets, SocketsConfig, Stop};
use stack::{Secrets, Shared, StackConfig};
use wire::{Address, Endpoint, MacAddr, Prefix};
use world::dice::Dice;
use world::network::{Faults, Network, SharedNetwork, Spread};
use world::port::{PortConfig, VirtualNic};

use crate::peer::{Peer, PeerConfig};
use crate::talk::{Got, Stream, Talk};

/// The port that either end listens on.
pub const PORT: u16 = 80;
/// The port from which smoltcp connects.
const PEER_PORT: u16 = 40_000;
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const CHUNKS: u32 = 4_096;
/// Cycles in one moment at most: more means that the stack spins.
const CYCLES: usize = 10_000;
/// Steps of one run at most.
const STEPS: usize = 2_000_000;

/// Address `last` of the network, of one version of IP.
fn host(is_v6: bool, last: u8) -> IpAddr {
    match is_v6 {
        false => [10, 0, 0, last].into(),
        true => [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)].into(),
    }
}

/// What differs between runs.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub seed: u64,
    pub is_v6: bool,
    /// Whether ours opens the connection.
    pub is_active: bool,
    pub faults: Faults,
    /// Bytes of our largest IP packet, and of our receive window.
    pub mtu: u16,
    pub window: u32,
    pub peer: PeerConfig,
}

/// A descriptor of ours.
struct Ours<'a>(&'a mut Sockets, i32);

impl Stream for Ours<'_> {
    fn send(&mut self, bytes: &[u8]) -> Got {
        match self.0.send(self.1, bytes, MSG_DONTWAIT, None) {
            Ok(bytes) => Got::Bytes(bytes),
            Err(Stop::Failed(Errno::EAGAIN)) => Got::Nothing,
            Err(_) => Got::Failed,
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Got {
        match self.0.receive(self.1, buffer, MSG_DONTWAIT) {
            Ok(received) if received.bytes == 0 => Got::End,
            Ok(received) => Got::Bytes(received.bytes),
            Err(Stop::Failed(Errno::EAGAIN)) => Got::Nothing,
            Err(_) => Got::Failed,
        }
    }

    fn shutdown(&mut self) {
        self.0.shutdown(self.1, SHUT_WR).expect("it is connected");
    }
}

/// See the module's comment.
pub struct Bench {
    pub now: Instant,
    pub network: SharedNetwork,
    pub sockets: Sockets,
    pub peer: Peer,
    setup: Setup,
    thread: ElasticThread<VirtualNic>,
    /// Our connection, and what ours and the peer do with it.
    pub descriptor: i32,
    pub talks: [Talk; 2],
}

impl Bench {
    /// Both ends, without a connection.
    pub fn new(setup: Setup) -> Self {
        let Setup { seed, is_v6, mtu, window, .. } = setup;
        let network = Network::new(seed, setup.faults);
        network.borrow_mut().attach(MAC, 1, Spread::OneQueue);
        network.borrow_mut().capture = Some(Vec::new());
        let own: Address = host(is_v6, 1).into();
        let mut config = StackConfig::new(host(false, 1), 24, MAC);
        config.addresses.push(Prefix::new(host(true, 1).into(), 64));
        config.policy.listen = vec![1..=u16::MAX - 1];
        (config.mtu_bytes, config.receive_window_bytes) = (mtu, window);
        config.time_wait = Duration::from_secs(1);
        let sockets = Sockets::new(SocketsConfig {
            receive_window_bytes: window,
            segment_bytes: config.mss(own).into(),
            ..SocketsConfig::new(vec![host(false, 1).into(), host(true, 1).into()])
        });
        let secrets = Secrets {
            rss_key: wire::MICROSOFT_KEY,
            isn_key: [seed as u8; 16],
            port_key: [2; 16],
            offset: 3,
        };
        let device = PortConfig {
            max_frame_bytes: usize::from(mtu) + 14,
            ring_frames: 256,
            longest_read: Duration::ZERO,
            rx_checksums_verified: false,
            tx_checksum_offload: false,
        };
        let nic = VirtualNic::new(network.clone(), 0, 0, device, Dice::new(seed, "device", 0));
        let pool = Pool::new(&Region::heap(CHUNKS), CHUNKS as usize);
        let (ports, elastic) = (ForwardPorts::default(), ElasticConfig::default());
        let shared = Arc::new(Shared::new(config, &secrets, 1));
        let thread = ElasticThread::new(0, shared, nic, pool, ports, elastic, Instant::ZERO);
        let peer = Peer::new(&network, seed, [host(false, 2), host(true, 2)], setup.peer);
        let now = Instant::from_millis(1);
        let talks = [Talk::default(); 2];
        Self { now, network, sockets, peer, setup, thread, descriptor: -1, talks }
    }

    /// A connection, opened by the one of `setup`, with these plans.
    pub fn connected(setup: Setup, talks: [Talk; 2]) -> Self {
        let mut bench = Self::new(setup);
        let socket = bench.socket();
        if setup.is_active {
            bench.peer.listen(PORT);
            bench.connect(socket).expect("smoltcp listens");
            bench.descriptor = socket;
        } else {
            bench.listen(socket);
            bench.peer.connect((host(setup.is_v6, 1), PORT), PEER_PORT);
            let accept = |bench: &mut Self| bench.sockets.accept(socket, SOCK_NONBLOCK);
            (bench.descriptor, _) = bench.wait(accept).expect("smoltcp connects");
            bench.sockets.close(socket).expect("it is open");
        }
        bench.talks = talks;
        bench
    }

    pub fn socket(&mut self) -> i32 {
        let family = if self.setup.is_v6 { AF_INET6 } else { AF_INET };
        self.sockets.socket(family, SOCK_STREAM, 0).expect("room")
    }

    fn listen(&mut self, socket: i32) {
        let local = Endpoint::new(host(self.setup.is_v6, 1), PORT);
        self.sockets.bind(socket, local).expect("a free port");
        self.wait(|bench| bench.sockets.listen(socket, 8)).expect("open");
    }

    /// Connects to the peer.
    pub fn connect(&mut self, socket: i32) -> Result<(), Errno> {
        let to = Endpoint::new(host(self.setup.is_v6, 2), PORT);
        self.wait(|bench| bench.sockets.connect(socket, to))
    }

    /// The peer connects to our address, where nothing listens.
    pub fn knock(&mut self) {
        self.peer.connect((host(self.setup.is_v6, 1), PORT), PEER_PORT);
    }

    /// What a blocking program does: asks until there is an answer.
    fn wait<T>(
        &mut self,
        mut call: impl FnMut(&mut Self) -> sockets::Answer<T>,
    ) -> Result<T, Errno> {
        for _ in 0..STEPS {
            match call(self) {
                Ok(value) => return Ok(value),
                Err(Stop::Failed(Errno::EAGAIN)) | Err(Stop::Blocked(_)) => self.step(),
                Err(Stop::Failed(errno)) => return Err(errno),
            }
        }
        panic!("what is waited for does not come")
    }

    /// Both ends do all that they can at this moment; then time goes on to what happens next.
    fn step(&mut self) {
        let Self { now, network, sockets, peer, thread, descriptor, talks, .. } = self;
        network.borrow_mut().deliver(*now, |_, _| ());
        sockets.set_now(*now);
        let mut cycles = 0;
        loop {
            let worked = thread.run_cycle(*now, sockets).worked;
            let wishes = sockets.wake_at().is_some_and(|at| at <= *now);
            if !worked && !wishes {
                break;
            }
            cycles += 1;
            assert!(cycles < CYCLES, "the stack spins");
        }
        peer.poll(*now);
        if *descriptor >= 0 {
            talks[0].go_on(&mut Ours(sockets, *descriptor));
            talks[1].go_on(peer);
            // What the applications did is carried out in this moment too.
            thread.run_cycle(*now, sockets);
            peer.poll(*now);
        }
        let timers = [thread.stack().next_timer(), sockets.wake_at(), peer.next(*now)];
        let next = timers.into_iter().flatten().chain(network.borrow().next_due()).min();
        let soonest = *now + Duration::from_micros(1);
        // Where nothing happens by itself, one that waits looks again in a while.
        *now = next.unwrap_or(*now + Duration::from_millis(10)).max(soonest);
    }

    /// Time passes until something holds.
    ///
    /// # Panics
    /// Where it does not within `limit`.
    pub fn until(&mut self, limit: Duration, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let end = self.now + limit;
        for _ in 0..STEPS {
            if holds(self) {
                return;
            }
            let state = self.peer.state();
            assert!(
                self.now < end,
                "after {limit:?} not {what}: {:?}, smoltcp {state}",
                self.talks
            );
            self.step();
        }
        panic!("after {STEPS} steps not {what}: {:?}", self.talks);
    }

    /// Time passes.
    pub fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.step();
        }
    }

    /// Connections of our stack.
    pub fn connections(&self) -> u32 {
        self.thread.stack().connections()
    }

    /// A counter of our stack.
    pub fn stats(&self) -> stack::StackStats {
        self.thread.stack().stats()
    }

    /// The packets of IP that our port sent or received since the last look, with the link addresses cut off.
    pub fn captured(&mut self) -> Vec<(bool, Vec<u8>)> {
        let capture = self.network.borrow_mut().capture.replace(Vec::new()).expect("it is kept");
        let frames = capture.into_iter().map(|(_, frame)| frame);
        frames.map(|frame| (frame[6..12] == MAC.0, frame[14..].to_vec())).collect()
    }

    /// Nothing of the connection stays: it is closed here, and all packet memory comes back.
    pub fn finish(mut self) {
        let _ = self.sockets.close(self.descriptor);
        self.descriptor = -1;
        self.until(Duration::from_secs(200), "without connections", |bench| {
            bench.connections() == 0
        });
        self.pass(Duration::from_millis(1));
        assert_eq!(self.thread.pool().available(), CHUNKS as usize, "all packet memory came back");
        assert_eq!(self.network.borrow().audit(), Ok(()));
    }
}
