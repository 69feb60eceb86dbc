//! One host in virtual time: an elastic thread with its sockets, and the wire that packetdrill holds the other end of.

use std::collections::VecDeque;
use std::sync::Arc;

use clock::{Duration, Instant};
use dataplane::{ElasticConfig, ElasticThread, ForwardPorts};
use domain::Service;
use mem::{Pool, Region};
use nic::Nic;
use nic::loopback::{LoopbackConfig, LoopbackNic, WhenFull, pair};
use sockets::{Sockets, SocketsConfig};
use stack::{Secrets, Shared, StackConfig};
use wire::{EtherType, EthernetRepr, EthernetView};

use crate::settings::{GATEWAY_MAC, OWN_MAC};

/// Chunks of packet memory: a whole window of full segments, and as much again.
const CHUNKS: u32 = 32_768;
/// Chunks of packetdrill's end.
const FAR_CHUNKS: u32 = 8_192;
/// Cycles in one moment at most: more means that the stack spins.
const CYCLES: usize = 10_000;
/// Between two moments at least, so that time passes whatever wants to be run.
const TICK: Duration = Duration::from_micros(1);
/// Known, so that scripts run alike: no stranger sends to this stack.
const SECRETS: Secrets =
    Secrets { rss_key: wire::MICROSOFT_KEY, isn_key: [1; 16], port_key: [2; 16], offset: 0 };

/// See the module's comment.
pub struct Machine {
    pub now: Instant,
    pub sockets: Sockets,
    thread: ElasticThread<LoopbackNic>,
    far: LoopbackNic,
    pool: Pool,
    /// IP packets that left, and when.
    pub sent: VecDeque<(Instant, Vec<u8>)>,
}

impl Machine {
    /// A host with these settings.
    pub fn new(config: StackConfig) -> Self {
        let macs = [OWN_MAC, GATEWAY_MAC];
        let wire = LoopbackConfig { macs, when_full: WhenFull::Wait, ..Default::default() };
        let (near, far) = pair(wire);
        let addresses = config.addresses.iter().map(|own| own.address).collect();
        // Most scripts have no timestamps, and whole segments.
        let segment_bytes = config.mss(config.address()).into();
        let sockets = Sockets::new(SocketsConfig {
            segment_bytes,
            receive_window_bytes: config.receive_window_bytes,
            ..SocketsConfig::new(addresses)
        });
        let now = Instant::from_millis(1);
        let pool = Pool::new(&Region::heap(CHUNKS), CHUNKS as usize);
        let shared = Arc::new(Shared::new(config, &SECRETS, 1));
        let (ports, elastic) = (ForwardPorts::default(), ElasticConfig::default());
        let thread = ElasticThread::new(0, shared, near, pool, ports, elastic, now)
            .cutting(elastic.calls, segment_bytes);
        let pool = Pool::new(&Region::heap(FAR_CHUNKS), FAR_CHUNKS as usize);
        Self { now, sockets, thread, far, pool, sent: VecDeque::new() }
    }

    /// An IP packet arrives. Answers whether there was room for it.
    pub fn inject(&mut self, packet: &[u8]) -> bool {
        let ethertype = match packet.first().map(|byte| byte >> 4) {
            Some(4) => EtherType::IPV4,
            Some(6) => EtherType::IPV6,
            _ => return false,
        };
        let Ok(mut mbuf) = self.pool.alloc() else { return false };
        let mut link = [0; EthernetRepr::HEADER_LEN];
        EthernetRepr { dst: OWN_MAC, src: GATEWAY_MAC, ethertype }.emit(&mut link);
        if mbuf.append(&link).and_then(|()| mbuf.append(packet)).is_err() {
            self.pool.free(mbuf);
            return false;
        }
        let mut frames = vec![mbuf.into_tx()];
        let taken = self.far.transmit(self.now, &mut self.pool, &mut frames) == 1;
        frames.drain(..).for_each(|frame| self.pool.complete(frame));
        self.settle();
        taken
    }

    /// Takes the frames that left.
    fn take_sent(&mut self) -> usize {
        let mut frames = Vec::new();
        let count = self.far.receive(self.now, &mut self.pool, &mut frames, usize::MAX);
        for mbuf in frames.drain(..) {
            if let Ok(frame) = EthernetView::parse(mbuf.bytes())
                && [EtherType::IPV4, EtherType::IPV6].contains(&frame.ethertype())
            {
                self.sent.push_back((self.now, frame.payload().to_vec()));
            }
            self.pool.free(mbuf);
        }
        self.far.reclaim(&mut self.pool);
        count
    }

    /// Runs the dataplane until nothing is left to do at this moment.
    pub fn settle(&mut self) {
        self.sockets.set_now(self.now);
        for _ in 0..CYCLES {
            let progress = self.thread.run_cycle(self.now, &mut self.sockets);
            let wishes = self.sockets.wake_at().is_some_and(|at| at <= self.now);
            if self.take_sent() == 0 && !progress.worked && !wishes {
                return;
            }
        }
    }

    /// When something happens by itself.
    pub fn next(&self) -> Option<Instant> {
        let timer = self.thread.stack().next_timer();
        let next = timer.into_iter().chain(self.sockets.wake_at()).min()?;
        Some(next.max(self.now + TICK))
    }

    /// Time passes up to a moment, at which all that is due happens.
    pub fn advance_to(&mut self, moment: Instant) {
        self.now = self.now.max(moment);
        self.settle();
    }
}
