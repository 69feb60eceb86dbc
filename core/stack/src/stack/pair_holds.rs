//! Whatever happens to connections, each pair of addresses is held as often as connections use it: random segments, calls,
//! time-outs and moves between two stacks.

extern crate std;
use std::collections::BTreeMap;
use std::vec::Vec;

use clock::Duration;
use domain::{Calls, Cookie, Event};
use wire::{
    Endpoint, EtherType, EthernetRepr, EthernetView, Ipv4Repr, Ipv4View, Ipv6Repr, Ipv6View,
    MacAddr, PairId, Prefix, Protocol, SeqNumber, TcpFlags, TcpOptions, TcpRepr, TcpView,
    Timestamp,
};

use super::*;
use crate::pairs::Pair;
use crate::tcp::conn::State;
use crate::{Secrets, StackConfig};

const OWN: [&str; 4] = ["2001:db8::1", "2001:db8::2", "10.0.0.1", "10.0.0.2"];
const PEERS: [&str; 6] =
    ["2001:db8::11", "2001:db8::12", "2001:db8::13", "10.0.0.11", "10.0.0.12", "10.0.0.13"];
const MAC: MacAddr = MacAddr([2; 6]);
const PEER_MAC: MacAddr = MacAddr([4; 6]);

/// One peer's end of a flow, and where its numbers are.
struct Flow {
    here: Endpoint,
    there: Endpoint,
    seq: u32,
    ack: u32,
    stamp: Option<(u32, u32)>,
}

struct World {
    now: Instant,
    stacks: [Stack; 2],
    pool: Pool,
    events: EventArray,
    calls: CallArray,
    flows: Vec<Flow>,
    handles: Vec<Handle>,
    random: u64,
    opened: usize,
    failed: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let address = |text: &str| text.parse::<Address>().expect("an address");
        let mut config = StackConfig::new(address(OWN[0]), 64, MAC);
        for own in &OWN[1..] {
            let bits = if address(own).is_ipv4() { 24 } else { 64 };
            config.addresses.push(Prefix::new(address(own), bits));
        }
        config.neighbors = PEERS.map(|peer| (address(peer), PEER_MAC)).to_vec();
        config.tcp_listen = std::vec![80];
        config.backlog = 6;
        (config.max_connections, config.max_time_wait, config.max_closed) = (24, 4, 4);
        (config.retries, config.syn_retries) = (3, 2);
        let secrets = Secrets {
            rss_key: wire::MICROSOFT_KEY,
            isn_key: [3; 16],
            port_key: [4; 16],
            offset: 7,
        };
        let shared = Arc::new(Shared::new(config, &secrets, 2));
        let now = Instant::from_millis(1_000);
        let mut flows = Vec::new();
        for port in 0..48u16 {
            let local = address(OWN[port as usize % 4]);
            let peers = PEERS.map(address);
            let mut fit = peers.iter().filter(|peer| peer.is_ipv4() == local.is_ipv4());
            let peer = *fit.nth(port as usize / 4 % 3).expect("one");
            // Both ways: those that we connect to have our port first.
            let there = Endpoint::new(local, if port < 36 { 80 } else { 2_000 + port });
            let stamp = (port.is_multiple_of(3)).then_some((1, 0));
            flows.push(Flow {
                here: Endpoint::new(peer, 1_000 + port),
                there,
                seq: 0,
                ack: 0,
                stamp,
            });
        }
        Self {
            now,
            stacks: [0, 1].map(|core| Stack::new(Arc::clone(&shared), core, now, 512)),
            pool: Pool::new(&mem::Region::heap(4_096), 4_096),
            events: EventArray::new(512),
            calls: CallArray::new(256, 1_400),
            flows,
            handles: Vec::new(),
            random: seed.wrapping_mul(2).wrapping_add(1),
            opened: 0,
            failed: 0,
        }
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) as u32 % bound
    }

    fn frame(&mut self) -> Vec<u8> {
        let (at, kind, off) = (self.below(48) as usize, self.below(16), self.below(5));
        let fresh = self.below(1 << 30);
        let flow = &mut self.flows[at];
        let (mut flags, mut len) = (TcpFlags::ACK, 0);
        match kind {
            0..=3 => (flags, flow.seq) = (TcpFlags::SYN, fresh),
            4..=7 => {}
            8 | 9 => len = 10,
            10 | 11 => flags |= TcpFlags::FIN,
            12 => flags = TcpFlags::RST | TcpFlags::ACK,
            13 => flags = TcpFlags::RST,
            _ => flags |= TcpFlags::SYN,
        }
        let seq = if off == 4 { flow.seq.wrapping_sub(1) } else { flow.seq };
        let is_syn = flags.contains(TcpFlags::SYN);
        let options = TcpOptions {
            timestamp: flow.stamp.map(|(value, echo)| Timestamp { value, echo }),
            mss: is_syn.then_some(1_000),
            ..TcpOptions::NONE
        };
        if let Some((value, _)) = &mut flow.stamp {
            *value += 1;
        }
        flow.seq = flow.seq.wrapping_add(
            len as u32 + u32::from(is_syn) + u32::from(flags.contains(TcpFlags::FIN)),
        );
        let (Flow { here, there, ack, .. }, seq) = (&*flow, SeqNumber(seq));
        let repr = TcpRepr {
            src_port: here.port,
            dst_port: there.port,
            seq,
            ack: SeqNumber(if flags.contains(TcpFlags::ACK) { *ack } else { 0 }),
            flags,
            window: 60_000,
            options,
        };
        let mut tcp = std::vec![0; repr.header_len()];
        repr.emit(&mut tcp, here.addr, there.addr, len, Sum::of(&[7; 10][..len]));
        tcp.extend(&[7; 10][..len]);
        let mut frame = std::vec![0; 14];
        let ethertype = match (here.addr.v4(), there.addr.v4()) {
            (Some(src), Some(dst)) => {
                frame.resize(34, 0);
                Ipv4Repr::new(src, dst, Protocol::TCP, tcp.len()).emit(&mut frame[14..]);
                EtherType::IPV4
            }
            _ => {
                frame.resize(54, 0);
                let [src, dst] = [here.addr, there.addr].map(|end| end.octets().into());
                Ipv6Repr::new(src, dst, Protocol::TCP, tcp.len()).emit(&mut frame[14..]);
                EtherType::IPV6
            }
        };
        EthernetRepr { dst: MAC, src: PEER_MAC, ethertype }.emit(&mut frame);
        frame.extend(tcp);
        frame
    }

    /// A batch of frames, at a core that need not be their home.
    fn input(&mut self, frames: Vec<Vec<u8>>) {
        let Self { now, stacks, pool, events, .. } = self;
        let mut rx = Vec::new();
        for frame in frames {
            let mut mbuf = pool.alloc().expect("memory");
            mbuf.append(&frame).expect("room");
            rx.push(mbuf);
        }
        let [one, other] = stacks;
        let mut away = Vec::new();
        one.deliver(*now, pool, events);
        one.input(*now, &mut rx, pool, events, |_, mbuf, _| away.push(mbuf));
        other.deliver(*now, pool, events);
        other.input(*now, &mut away, pool, events, |_, _, _| panic!("a group without a home"));
        for left in rx.into_iter().chain(away) {
            pool.free(left);
        }
    }

    /// The application's turn, and the rest of the cycle.
    fn cycle(&mut self, seals: bool) {
        let (kind, which, at) =
            (self.below(12), self.below(64) as usize, 36 + self.below(12) as usize);
        let view = self.events.view(&self.stacks[0]);
        let mut calls = Calls::new(&mut self.calls, &mut self.pool);
        for event in view.iter() {
            match event {
                Event::Knock { handle, .. } => {
                    self.opened += 1;
                    self.handles.push(handle);
                    if kind != 0 {
                        let _ = calls.accept(handle, Cookie(1));
                    }
                }
                Event::Connected { outcome: Ok((handle, _)), .. } => {
                    self.opened += 1;
                    self.handles.push(handle);
                }
                Event::Connected { .. } => self.failed += 1,
                Event::Recv { handle, data, .. } => {
                    let _ = calls.recv_done(handle, data.len());
                }
                _ => {}
            }
        }
        let newest = self.handles.len().checked_sub(1 + which % 40);
        if let Some(&handle) = newest.and_then(|at| self.handles.get(at)) {
            let _ = match kind {
                1 => calls.close(handle),
                2 => calls.abort(handle),
                3 => calls.shutdown(handle),
                4 | 5 => calls.sendv(handle, &[&[9; 20]]),
                6 => calls.accept(handle, Cookie(2)),
                _ => Ok(()),
            };
        }
        if (7..10).contains(&kind) {
            let Flow { here, there, .. } = &self.flows[at];
            let _ = match kind {
                7 => calls.connect(Cookie(3), *here),
                _ => calls.connect_from(Cookie(3), there.port, *here),
            };
        }
        let set: GroupSet =
            (0..FLOW_GROUPS as u16).filter(|group| seals && group % 3 != 1).collect();
        let Self { now, stacks: [one, other], pool, events, calls, .. } = self;
        let mut buffers: Vec<_> = events.drain().collect();
        one.seal(set);
        one.execute(*now, calls, &mut buffers, pool, events);
        one.run_timers(*now, pool, events);
        if seals && which % 4 == 0 {
            one.unseal(set, *now, pool, events);
        }
        one.flush(*now, pool, events);
        let mut elsewhere = one.take_elsewhere(Elsewhere::default());
        other.execute_carried(*now, &mut elsewhere, pool, events);
        other.run_timers(*now, pool, events);
        other.flush(*now, pool, events);
        self.transmit();
        self.wander();
        if which.is_multiple_of(2) {
            self.stacks.swap(0, 1);
        }
    }

    /// What is sealed moves to the other stack.
    fn wander(&mut self) {
        let Self { now, stacks: [one, other], pool, events, .. } = self;
        let sealed = one.sealed();
        if let Ok(packed) = one.pack(sealed, pool) {
            for packed in packed {
                one.shared().set_home(packed.group(), other.core);
                other.take_in(packed, *now, pool, events);
            }
        } else {
            one.unseal(sealed, *now, pool, events);
        }
    }

    /// What was sent moves the numbers of its flow.
    fn transmit(&mut self) {
        let mut frames: Vec<_> =
            self.stacks.iter_mut().flat_map(|stack| stack.frames().drain(..)).collect();
        for frame in frames.drain(..) {
            let link = EthernetView::parse(frame.bytes()).expect("a frame");
            let tcp = match link.ethertype() {
                EtherType::IPV4 => {
                    Ipv4View::parse(link.payload()).expect("a packet").payload().to_vec()
                }
                EtherType::IPV6 => {
                    Ipv6View::parse(link.payload()).expect("a packet").payload().to_vec()
                }
                _ => Vec::new(),
            };
            if let Ok(tcp) = TcpView::parse(&tcp)
                && let Some(flow) =
                    self.flows.iter_mut().find(|flow| flow.here.port == tcp.dst_port())
                && !tcp.flags().contains(TcpFlags::RST)
            {
                flow.there.port = tcp.src_port();
                let SeqNumber(seq) = tcp.seq();
                let counts = TcpFlags::SYN | TcpFlags::FIN;
                flow.ack = seq.wrapping_add(
                    tcp.payload().len() as u32 + u32::from(tcp.flags().intersects(counts)),
                );
                if let (Some(stamp), Some(sent)) = (&mut flow.stamp, tcp.options().timestamp) {
                    stamp.1 = sent.value;
                }
            }
            self.pool.complete(frame);
        }
    }

    /// Time passes, and timers fire.
    fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        for _ in 0..2_000 {
            let next = self.stacks.iter().filter_map(Stack::next_timer).min();
            let Some(at) = next.filter(|&at| at <= end) else { break };
            self.now = self.now.max(at);
            self.cycle(false);
            self.check();
        }
        self.now = self.now.max(end);
    }

    /// Counts what uses each number, and compares.
    fn check(&mut self) {
        for stack in &mut self.stacks {
            let mut uses = BTreeMap::new();
            let mut at_group = BTreeMap::new();
            for group in stack.groups.iter_mut().flatten() {
                let mut flows: Vec<_> =
                    group.half_open.all().into_iter().map(|half| half.flow).collect();
                let mut living = 0;
                for slot in 0..group.slots.capacity() {
                    let conn = group.slots.hot(slot);
                    if conn.state != State::Closed {
                        living += 1;
                        flows.push(conn.flow);
                    }
                }
                assert_eq!(living, group.table.len(), "each connection stands in the table");
                for number in flows.into_iter().filter_map(|flow| flow.pair().v4().err()) {
                    *uses.entry(number).or_insert(0u32) += 1;
                    at_group.insert(number, group.index);
                }
            }
            let held = stack.pairs.all();
            let mut seen = std::collections::BTreeSet::new();
            for &(number, pair, users, is_found) in &held {
                assert_eq!(uses.get(&number).copied().unwrap_or(0), users, "users of {pair:?}");
                assert!(users == 0 || is_found, "{pair:?} is found");
                let group = number / (PairId::NUMBERS / FLOW_GROUPS as u32);
                if is_found {
                    assert!(
                        seen.insert((group, pair.local, pair.remote)),
                        "{pair:?} has one number"
                    );
                }
            }
            for (number, count) in uses {
                let found = held.iter().find(|one| one.0 == number);
                let &(_, pair, ..) =
                    found.unwrap_or_else(|| panic!("{count} uses of {number}, which has no place"));
                assert_eq!(
                    u32::from(at_group[&number]),
                    number / (PairId::NUMBERS / FLOW_GROUPS as u32)
                );
                let Pair { local, remote } = pair;
                assert!(
                    OWN.contains(&&*std::format!("{local}"))
                        && PEERS.contains(&&*std::format!("{remote}"))
                );
            }
            let strangers_bytes = stack.pairs.bytes();
            assert!(strangers_bytes < 1 << 20, "{strangers_bytes} bytes of pairs");
        }
    }
}

#[test]
fn each_pair_is_held_as_often_as_it_is_used() {
    let seeds: u64 = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(8);
    let (mut opened, mut failed, mut moved) = (0, 0, 0);
    for seed in 1..=seeds {
        let mut world = World::new(seed);
        for _ in 0..1_500 {
            let frames = world.below(8);
            let frames = (0..frames).map(|_| world.frame()).collect();
            world.input(frames);
            world.check();
            let seals = world.below(4) == 0;
            moved += usize::from(seals);
            world.cycle(seals);
            world.check();
            if world.below(16) == 0 {
                let scale = world.below(18);
                world.pass(Duration::from_millis(1 << scale));
            }
        }
        opened += world.opened;
        failed += world.failed;
        // All end, and no pair is left.
        let handles = core::mem::take(&mut world.handles);
        for handle in handles {
            let mut calls = Calls::new(&mut world.calls, &mut world.pool);
            let _ = calls.abort(handle);
            world.cycle(false);
        }
        world.pass(Duration::from_secs(3 * 3_600));
        for stack in &mut world.stacks {
            stack.pairs.begin_batch();
            assert_eq!(stack.connections(), 0);
            assert!(stack.pairs.all().iter().all(|&(.., users, is_found)| users == 0 && !is_found));
        }
    }
    assert!(opened > 100 && failed > 10 && moved > 100, "{opened} {failed} {moved}");
}
