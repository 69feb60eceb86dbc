//! The stack on a virtual clock, with memory, a NIC of no depth, and an application that notes what
//! it is told.

use std::collections::BTreeMap;
use std::sync::Arc;

use clock::{Duration, Instant};
use domain::{
    CallArray, CallError, CallKind, Calls, ConnectError, ConnectionInfo, Cookie, DeadReason, Event,
    EventArray, Handle, Held, LocalEndpoint,
};
use mem::{Mbuf, PartialChecksum, Pool, Region, TxFrame};
use stack::neighbors::Neighbor;
use stack::{
    Away, Ended, FLOW_GROUPS, FORWARDED, GroupSet, PeerRegister, Secrets, Shared, Stack,
    StackConfig, StackStats,
};
use wire::{
    Address, ArpOperation, ArpRepr, Endpoint, EtherType, EthernetView, Icmpv6Repr, Icmpv6View,
    Ipv4View, Ipv6View, MacAddr, complete_checksum,
};

use super::{
    MORE_IPS, MTU, OTHER_PORT, Out, PEER_IP, PEER_MAC, PORT, PREFIX_BITS, Peer, STACK_IP,
    STACK_MAC, Seg, UDP_PORT, decode, ethernet_frame, icmpv6_frame, ms, pattern,
};

/// Cycles that may follow one another without time passing: more means that the stack spins.
const MAX_CYCLES: usize = 64;
/// Timers that may fire one after the other in one call of `pass`.
const MAX_TIMERS: usize = 20_000;
const MAX_EVENTS: usize = 512;

/// What the application was told, without handles.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    Knock { peer: Endpoint, window: u32 },
    Connected { cookie: u64, window: u32 },
    ConnectFailed { cookie: u64, error: ConnectError },
    Recv { cookie: u64, data: Vec<u8> },
    Sent { cookie: u64, bytes: u32, window: u32 },
    Eof { cookie: u64 },
    Again { cookie: u64, window: u32 },
    Dead { cookie: u64, reason: DeadReason },
    Datagram { port: u16, peer: Endpoint, data: Vec<u8> },
    Listening { cookie: u64 },
    Info { cookie: u64, info: ConnectionInfo },
    Failed { call: CallKind, error: CallError },
}

/// What a frame says of its sender's link address.
fn claim(frame: &[u8]) -> Option<(Address, MacAddr)> {
    let link = EthernetView::parse(frame).ok()?;
    if link.ethertype() == EtherType::ARP {
        let arp = ArpRepr::parse(link.payload()).ok()?;
        return Some((arp.sender_ip.into(), arp.sender_mac));
    }
    let ip = Ipv6View::parse(link.payload()).ok()?;
    match Icmpv6View::parse(ip.payload(), ip.src(), ip.dst()).ok()?.repr() {
        Icmpv6Repr::NeighborSolicitation { source_link: Some(mac), .. } => {
            Some((ip.src().into(), mac))
        }
        Icmpv6Repr::NeighborAdvertisement { target, target_link: Some(mac), .. } => {
            Some((target.into(), mac))
        }
        _ => None,
    }
}

fn all() -> GroupSet {
    (0..FLOW_GROUPS as u16).collect()
}

/// See the module's comment.
pub struct World {
    pub now: Instant,
    pub stack: Stack,
    /// Of another core, to which all flow groups move after each cycle where the whole suite
    /// [wanders](crate::WANDERS).
    other: Stack,
    /// They do not: what is looked at is kept by each core for itself (frames that wait for a link address, the
    /// limit on replies to strays, the order between connections of different groups, copies made).
    pub stays: bool,
    cycles: u64,
    pub pool: Pool,
    /// Whether the application accepts whoever knocks, with the peer's port as cookie.
    pub auto_accept: bool,
    /// Whether the application gives received bytes back in the batch that tells of them.
    pub auto_done: bool,
    /// Whether neighbours answer ARP; such frames are then not seen.
    pub auto_arp: bool,
    /// Whether the NIC takes frames.
    pub nic_takes: bool,
    /// Whether the NIC, having taken frames, goes on reading them.
    pub nic_holds: bool,
    /// Every connection that was told of, oldest first.
    pub handles: Vec<Handle>,
    /// The own end of the last connection that opened, or of the last datagram.
    pub local: LocalEndpoint,
    in_nic: Vec<TxFrame>,
    /// What neighbours have said of themselves since the NIC last took frames.
    claimed: Vec<(Address, MacAddr)>,
    events: EventArray,
    calls: CallArray,
    told: Vec<Told>,
    out: Vec<Out>,
    /// Received, and not carried through the stack yet.
    rx: Vec<Mbuf>,
    chunks: usize,
    /// Frames whose checksum the NIC has completed.
    pub completed: u64,
    /// Bytes that the application has sent, by handle.
    sent: BTreeMap<Handle, usize>,
}

/// The usual settings: TCP port 80, UDP port 53.
pub fn config() -> StackConfig {
    let mut config = StackConfig::new(STACK_IP, PREFIX_BITS, STACK_MAC);
    config.mtu_bytes = MTU;
    config.tcp_listen = vec![PORT];
    config.udp_bind = vec![UDP_PORT];
    config
}

impl World {
    /// A world with the usual settings.
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    /// A world with settings changed by `change`.
    pub fn with(change: impl FnOnce(&mut StackConfig)) -> Self {
        let mut config = config();
        change(&mut config);
        Self::sized(config, 4096, 1024)
    }

    /// A world whose connections are written down.
    pub fn registered(config: StackConfig, register: Arc<dyn PeerRegister>) -> Self {
        Self::made(config, Some(register), 4096, 1024)
    }

    /// A world with `chunks` chunks of memory and a NIC queue of `frames` frames.
    pub fn sized(config: StackConfig, chunks: u32, frames: usize) -> Self {
        Self::made(config, None, chunks, frames)
    }

    fn made(
        config: StackConfig,
        register: Option<Arc<dyn PeerRegister>>,
        chunks: u32,
        frames: usize,
    ) -> Self {
        let secrets = Secrets {
            rss_key: wire::MICROSOFT_KEY,
            isn_key: [3; 16],
            port_key: [4; 16],
            offset: 0x1234_5678,
        };
        let now = Instant::from_millis(1_000);
        // Where a segment has several chunks, in as many parts as a configuration has them.
        let whole = config.mss(PEER_IP) as usize;
        let segment_bytes = if config.frame_chunks > 1 { config.segment_bytes() } else { whole };
        let config = StackConfig { tx_checksum_offload: crate::OFFLOADS, ..config };
        let shared = Arc::new(Shared::new(config, &secrets, 1).with_register(register));
        shared.neighbors.learn(PEER_IP, PEER_MAC, now);
        let region = Region::heap(chunks);
        Self {
            now,
            other: Stack::new(Arc::clone(&shared), 1, now, frames),
            stays: !crate::WANDERS,
            cycles: 0,
            stack: Stack::new(shared, 0, now, frames),
            pool: Pool::new(&region, chunks as usize),
            auto_accept: true,
            auto_done: true,
            auto_arp: true,
            nic_takes: true,
            nic_holds: false,
            handles: Vec::new(),
            local: LocalEndpoint::UNSPECIFIED,
            in_nic: Vec::new(),
            claimed: Vec::new(),
            events: EventArray::new(MAX_EVENTS),
            calls: CallArray::new(1024, segment_bytes).with_tx_checksum_offload(crate::OFFLOADS),
            completed: 0,
            told: Vec::new(),
            out: Vec::new(),
            rx: Vec::new(),
            chunks: chunks as usize,
            sent: Default::default(),
        }
    }

    /// From now on only so many events fit one batch.
    pub fn shrink_events(&mut self, capacity: usize) {
        assert!(self.events.is_empty(), "nothing waits");
        self.events = EventArray::new(capacity);
    }

    /// One segment arrives.
    pub fn hear(&mut self, seg: &Seg) {
        self.hear_frames(&[seg.frame()]);
    }

    /// Segments arrive in one batch.
    pub fn hear_all(&mut self, segs: &[Seg]) {
        let frames: Vec<_> = segs.iter().map(Seg::frame).collect();
        self.hear_frames(&frames);
    }

    /// Frames arrive in one batch.
    pub fn hear_frames(&mut self, frames: &[Vec<u8>]) {
        self.cycle(frames, |_| ());
        self.settle();
    }

    /// The application issues calls.
    pub fn call(&mut self, calls: impl FnOnce(&mut Calls<'_>)) {
        self.cycle(&[], calls);
        self.settle();
    }

    /// The application sends the next `len` bytes of the stream on the newest connection.
    pub fn send(&mut self, len: usize) {
        let handle = self.handle();
        let from = self.sent.get(&handle).copied().unwrap_or(0);
        let bytes = pattern(from % 251, len);
        self.sent.insert(handle, from + len);
        self.call(|calls| calls.sendv(handle, &[&bytes]).expect("room for a call"));
    }

    /// The newest connection.
    pub fn handle(&self) -> Handle {
        *self.handles.last().expect("a connection")
    }

    /// Time passes; timers fire when they are due.
    pub fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        for _ in 0..MAX_TIMERS {
            match self.next_timer() {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => {
                    self.now = end;
                    self.settle();
                    return;
                }
            }
            self.cycle(&[], |_| ());
            self.settle();
        }
        panic!("timers fire without end");
    }

    /// The moment at which the next segment is sent, as time passes. At most `limit` later.
    pub fn pass_until_sent(&mut self, limit: Duration) -> Duration {
        let begin = self.now;
        while self.out.is_empty() && self.now.since(begin) < limit {
            let next = self.next_timer().unwrap_or(Instant::FAR_FUTURE);
            let step = next.max(self.now + Duration::from_nanos(1)).since(self.now);
            self.pass(step.min(limit));
        }
        self.now.since(begin)
    }

    /// Cycles until there is nothing to do.
    pub fn settle(&mut self) {
        for _ in 0..MAX_CYCLES {
            let blocked = !self.nic_takes && !self.stack.frames().is_empty();
            let heard = self.events.is_empty() && self.rx.is_empty();
            if heard && (!self.stack.has_work() || blocked) {
                return;
            }
            self.cycle(&[], |_| ());
        }
        // While half of the memory is taken, or the NIC takes nothing, the stack goes on trying.
        let starved = !self.nic_takes || self.pool.available() <= self.chunks / 2;
        let free = self.pool.available();
        assert!(starved, "the stack spins with {free} chunks free: {:?}", self.stack);
    }

    /// One cycle of an elastic thread.
    pub fn cycle(&mut self, frames: &[Vec<u8>], app: impl FnOnce(&mut Calls<'_>)) {
        self.receive(frames);
        self.run_application(app);
        self.cycles += 1;
        let seals = !self.stays && self.cycles.is_multiple_of(3);
        let sealed = if seals { all() } else { GroupSet::NONE };
        let Self { now, stack, other, pool, events, calls, .. } = self;
        let mut buffers: Vec<_> = events.drain().collect();
        stack.seal(sealed);
        stack.execute(*now, calls, &mut buffers, pool, events);
        stack.run_timers(*now, pool, events);
        stack.unseal(sealed, *now, pool, events);
        if seals {
            // Those that were put off meanwhile.
            stack.run_timers(*now, pool, events);
        }
        stack.flush(*now, pool, events);
        other.run_timers(*now, pool, events);
        other.flush(*now, pool, events);
        self.transmit();
        if !self.stays {
            self.wander();
        }
    }

    /// All flow groups move to the other stack, unless what this one has sent has not left, or there is no
    /// memory for it. Answers whether they have.
    pub fn wander(&mut self) -> bool {
        let Self { now, stack, other, pool, events, .. } = self;
        if !stack.frames().is_empty() {
            return false;
        }
        stack.seal(all());
        let Ok(packed) = stack.pack(all(), pool) else {
            stack.unseal(all(), *now, pool, events);
            return false;
        };
        assert_eq!((packed.len() as u32, stack.connections()), (all().len(), 0));
        for packed in packed {
            stack.shared().set_home(packed.group(), 1);
            other.take_in(packed, *now, pool, events);
        }
        core::mem::swap(stack, other);
        true
    }

    /// No timer fires before this moment.
    fn next_timer(&self) -> Option<Instant> {
        self.stack.next_timer().into_iter().chain(self.other.next_timer()).min()
    }

    fn receive(&mut self, frames: &[Vec<u8>]) {
        let Self { now, stack, pool, events, rx, claimed, .. } = self;
        for frame in frames {
            // Without memory a NIC drops what comes.
            let Ok(mut mbuf) = pool.alloc() else { continue };
            mbuf.append(frame).expect("a frame fits a chunk");
            rx.push(mbuf);
            claimed.extend(claim(frame));
        }
        stack.deliver(*now, pool, events);
        stack.input(*now, rx, pool, events, |_, _, _| panic!("there is one core only"));
    }

    /// A frame that no device steers by its flow arrives at a core that is home to no connection. Answers where it goes.
    pub fn misdirect(&mut self, frame: &[u8]) -> Vec<Away> {
        let Self { now, other, pool, events, .. } = self;
        let mut mbuf = pool.alloc().expect("memory");
        mbuf.append(frame).expect("a frame fits a chunk");
        let mut away = Vec::new();
        other.input(*now, &mut vec![mbuf], pool, events, |to, mbuf, pool| {
            assert_eq!(mbuf.tag, FORWARDED, "where it came says nothing of its flow group");
            away.push(to);
            pool.free(mbuf);
        });
        away
    }

    /// One cycle of an elastic thread that withdraws, in which `frames` arrive. Answers whether there is more
    /// to do.
    pub fn withdraw(&mut self, frames: &[Vec<u8>]) -> bool {
        self.receive(frames);
        self.drop_events();
        let Self { now, stack, pool, events, .. } = self;
        let more = stack.reset_connections(*now, pool, events);
        stack.run_timers(*now, pool, events);
        stack.flush(*now, pool, events);
        self.drop_events();
        self.transmit();
        more || !self.stack.frames().is_empty()
    }

    fn drop_events(&mut self) {
        let Self { pool, events, .. } = self;
        events.drain().for_each(|(_, mbuf)| pool.free(mbuf));
    }

    /// The stack is closed, and a fresh one takes its place; all memory came back but what the NIC has.
    pub fn close(&mut self) -> Ended {
        let shared = Arc::clone(self.stack.shared());
        (0..FLOW_GROUPS as u16).for_each(|group| shared.set_home(group, 0));
        let fresh = Stack::new(shared, 0, self.now, 1024);
        let ended = core::mem::replace(&mut self.stack, fresh).close(&mut self.pool);
        self.drop_events();
        self.rx.drain(..).for_each(|mbuf| self.pool.free(mbuf));
        self.handles.clear();
        assert_eq!(self.pool.available() + self.in_nic.len(), self.chunks, "every chunk came back");
        ended
    }

    fn run_application(&mut self, app: impl FnOnce(&mut Calls<'_>)) {
        let view = self.events.view(&self.stack);
        let mut calls = Calls::new(&mut self.calls, &mut self.pool);
        for event in view.iter() {
            let told = match event {
                Event::Knock { handle, peer, window, local } => {
                    assert!([PORT, OTHER_PORT].contains(&local.port()));
                    self.local = local;
                    self.handles.push(handle);
                    if self.auto_accept {
                        let cookie = Cookie(peer.port as u64);
                        calls.accept(handle, cookie).expect("room for a call");
                    }
                    Told::Knock { peer, window }
                }
                Event::Connected { cookie, local, outcome: Ok((handle, window)) } => {
                    self.local = local;
                    self.handles.push(handle);
                    Told::Connected { cookie: cookie.0, window }
                }
                Event::Connected { cookie, outcome: Err(error), .. } => {
                    Told::ConnectFailed { cookie: cookie.0, error }
                }
                Event::Recv { handle, cookie, data, acked, window } => {
                    if acked > 0 {
                        let told = Told::Sent { cookie: cookie.0, bytes: acked, window };
                        self.told.push(told);
                    }
                    assert!(!data.is_empty(), "an event tells something");
                    if self.auto_done {
                        calls.recv_done(handle, data.len()).expect("room for a call");
                    }
                    Told::Recv { cookie: cookie.0, data: data.to_vec() }
                }
                Event::Sent { cookie, bytes, window, .. } => {
                    Told::Sent { cookie: cookie.0, bytes, window }
                }
                Event::Eof { cookie, .. } => Told::Eof { cookie: cookie.0 },
                Event::Again { cookie, window, .. } => Told::Again { cookie: cookie.0, window },
                Event::Dead { cookie, reason, .. } => Told::Dead { cookie: cookie.0, reason },
                Event::Datagram { local, peer, data } => {
                    self.local = local;
                    Told::Datagram { port: local.port(), peer, data: data.to_vec() }
                }
                Event::Listening { cookie } => Told::Listening { cookie: cookie.0 },
                Event::Info { cookie, info, .. } => {
                    let info = ConnectionInfo::of_bytes(info).expect("a whole one");
                    Told::Info { cookie: cookie.0, info }
                }
                Event::Failed { call, error, .. } => Told::Failed { call, error },
            };
            self.told.push(told);
        }
        app(&mut calls);
    }

    fn transmit(&mut self) {
        let mtu = self.stack.shared().config.mtu_bytes as usize;
        let mut asked = Vec::new();
        let mut frames: Vec<_> = Default::default();
        if self.nic_takes {
            // Their memory is the stacks'.
            frames.append(self.stack.frames());
            frames.append(self.other.frames());
        }
        let mut joined = Vec::new();
        let mut partial_checksum = None;
        for frame in frames {
            if joined.is_empty() {
                partial_checksum = frame.partial_checksum();
            } else {
                assert_eq!(frame.partial_checksum(), None, "the first chunk has it");
            }
            joined.extend_from_slice(frame.bytes());
            let is_continued = frame.is_continued();
            if self.nic_holds {
                self.in_nic.push(frame);
            } else {
                self.pool.complete(frame);
            }
            if is_continued {
                continue;
            }
            let mut bytes = core::mem::take(&mut joined);
            if let Some(PartialChecksum { start, offset }) = partial_checksum {
                assert_eq!(Some(crate::OFFLOADS), Some(true), "the NIC completes no checksums");
                complete_checksum(&mut bytes, start.into(), offset.get().into());
                self.completed += 1;
            }
            self.check_link(&bytes);
            let out = decode(&bytes, mtu);
            match out.asks_for().filter(|_| self.auto_arp) {
                Some(target) => asked.push(target),
                None => self.out.push(out),
            }
        }
        assert!(joined.is_empty(), "a frame without its last chunk");
        if self.nic_takes {
            self.claimed_before_now();
        }
        if !asked.is_empty() {
            let answers: Vec<_> = asked.into_iter().map(Self::neighbor_answer).collect();
            self.cycle(&answers, |_| ());
        }
    }

    /// Frames have left: later ones follow what is now believed of the neighbours.
    fn claimed_before_now(&mut self) {
        let neighbors = &self.stack.shared().neighbors;
        for (address, mac) in &mut self.claimed {
            if let Neighbor::Reachable(now) = neighbors.lookup(*address, self.now) {
                *mac = now;
            }
        }
        self.claimed.sort_unstable();
        self.claimed.dedup();
    }

    /// A packet goes to the link address of its next hop, where that is known: the one of now, or one that was
    /// claimed since frames last left, as it may have been built before the last claim.
    fn check_link(&self, frame: &[u8]) {
        let shared = self.stack.shared();
        let link = EthernetView::parse(frame).expect("an Ethernet frame");
        let v4 = Ipv4View::parse(link.payload()).map(|ip| Address::from(ip.dst()));
        let v6 = Ipv6View::parse(link.payload()).map(|ip| Address::from(ip.dst()));
        if link.ethertype() != EtherType::ARP
            && let Ok(dst) = v4.or(v6)
            && let Some(hop) = shared.config.next_hop(dst)
            && let Neighbor::Reachable(mac) = shared.neighbors.lookup(hop, self.now)
            && !self.claimed.contains(&(hop, link.dst()))
        {
            assert_eq!(link.dst(), mac, "the link address of {hop}");
        }
    }

    /// The NIC has done with the frames that it held.
    pub fn nic_completes(&mut self) {
        for frame in self.in_nic.drain(..) {
            self.pool.complete(frame);
        }
    }

    /// What the stack sent since somebody asked.
    pub fn frames_out(&mut self) -> Vec<Out> {
        core::mem::take(&mut self.out)
    }

    /// As [`frames_out`](Self::frames_out), where all are TCP segments.
    pub fn segments(&mut self) -> Vec<Seg> {
        self.frames_out()
            .into_iter()
            .map(|out| match out {
                Out::Tcp(seg) => seg,
                other => panic!("not a segment: {other:?}"),
            })
            .collect()
    }

    /// The stack sent exactly these segments to `peer` (flags but PSH, relative numbers), and their
    /// options are those of the connection.
    #[track_caller]
    pub fn expect(&mut self, peer: &Peer, expected: &[&str]) -> Vec<Seg> {
        let segments = self.segments();
        for seg in &segments {
            assert_eq!((seg.src, seg.dst), (peer.there, peer.here));
            let reset = seg.flags.contains(wire::TcpFlags::RST);
            if !seg.flags.contains(wire::TcpFlags::SYN) && !reset {
                assert_eq!(seg.options.timestamp.is_some(), peer.timestamp.is_some());
                assert_eq!((seg.options.mss, seg.options.window_scale), (None, None));
            }
        }
        let found: Vec<String> = segments.iter().map(|seg| peer.text(seg)).collect();
        assert_eq!(found, expected);
        segments
    }

    /// The stack sent nothing.
    #[track_caller]
    pub fn silent(&mut self) {
        let frames = self.frames_out();
        assert!(frames.is_empty(), "unexpected: {frames:?}");
    }

    /// What the application was told since somebody asked.
    pub fn told(&mut self) -> Vec<Told> {
        core::mem::take(&mut self.told)
    }

    /// The application was told of these bytes of the stream, on one connection, and of nothing
    /// else.
    #[track_caller]
    pub fn received(&mut self, from: usize, len: usize) {
        let mut bytes = Vec::new();
        for told in self.told() {
            match told {
                Told::Recv { data, .. } => bytes.extend(data),
                other => panic!("not received bytes: {other:?}"),
            }
        }
        assert!(bytes == pattern(from % 251, len), "{} bytes for {from}+{len}", bytes.len());
    }

    /// Bytes that the application may still look at on a connection, of earlier batches.
    pub fn held(&self, handle: Handle) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.stack.held(handle, &mut |part| bytes.extend_from_slice(part));
        bytes
    }

    /// Counters.
    pub fn stats(&self) -> StackStats {
        let mut stats = self.stack.stats();
        stats += self.other.stats();
        stats
    }

    /// Ends everything, and counts the memory.
    pub fn finish(&mut self) {
        self.nic_takes = true;
        self.nic_holds = false;
        self.auto_arp = true;
        self.nic_completes();
        self.settle();
        let handles = core::mem::take(&mut self.handles);
        for some in handles.chunks(64) {
            self.call(|calls| some.iter().for_each(|&one| calls.abort(one).expect("room")));
        }
        // Half-open connections are given up, TIME-WAIT ends.
        self.pass(ms(3 * 3600 * 1000));
        assert_eq!(self.stack.connections(), 0, "all connections ended");
        assert_eq!(self.stack.footprint().0, 0, "no connection is left in a table");
        assert_eq!(self.next_timer(), None, "no timer is left");
        assert_eq!(self.pool.available(), self.chunks, "every chunk came back");
        assert_eq!(self.pool.stats().foreign, 0);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.finish();
        }
    }
}

impl World {
    /// A neighbour's answer to a request for its link address.
    pub fn neighbor_answer(neighbor: Address) -> Vec<u8> {
        let own = if crate::V6 { MORE_IPS[1] } else { STACK_IP };
        let (Some(sender_ip), Some(target_ip)) = (neighbor.v4(), own.v4()) else {
            let answer = Icmpv6Repr::NeighborAdvertisement {
                target: neighbor.octets().into(),
                router: false,
                solicited: true,
                override_: true,
                target_link: Some(PEER_MAC),
            };
            return icmpv6_frame(neighbor, STACK_IP, &answer, &[]);
        };
        let arp = ArpRepr {
            operation: ArpOperation::Reply,
            sender_mac: PEER_MAC,
            sender_ip,
            target_mac: STACK_MAC,
            target_ip,
        };
        let mut bytes = vec![0; ArpRepr::LEN];
        arp.emit(&mut bytes);
        ethernet_frame(STACK_MAC, EtherType::ARP, &bytes)
    }
}
