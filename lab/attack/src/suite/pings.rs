//! A wire on which somebody pings the other end about every millisecond: the network layer there answers, whatever
//! its application does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clock::Instant;
use mem::{Mbuf, Pool, TxFrame};
use nic::{Armed, Capabilities, Closed, Nic};
use wire::{EtherType, EthernetRepr, IcmpRepr, Ipv4Repr, Protocol, Sum};

use crate::crowd::{CLIENT, MACS, SERVER};

const EVERY: Duration = Duration::from_millis(1);
/// Where the ICMP header of a frame is, and bytes of a whole ping.
const ICMP: usize = EthernetRepr::HEADER_LEN + Ipv4Repr::HEADER_LEN;
const PING: usize = ICMP + IcmpRepr::HEADER_LEN + 16;
/// How the pings are told from others.
const NAME: u16 = 0x7470;

/// Pings so far.
#[derive(Debug, Default)]
pub struct Counted {
    /// Sent.
    pub sent: AtomicU64,
    /// Answered.
    pub answered: AtomicU64,
}

/// See the module's comment.
pub struct Pings<N> {
    inner: N,
    counted: Arc<Counted>,
    next: Instant,
    sequence: u16,
}

impl<N: Nic> Pings<N> {
    /// Pings over `inner`, counted in `counted`.
    pub fn new(inner: N, counted: &Arc<Counted>) -> Self {
        Self { inner, counted: Arc::clone(counted), next: Instant::ZERO, sequence: 0 }
    }

    fn ping(&mut self, now: Instant, pool: &mut Pool) {
        let Ok(mut mbuf) = pool.alloc() else { return };
        if mbuf.append(&frame(self.sequence)).is_err() {
            pool.free(mbuf);
            return;
        }
        self.sequence = self.sequence.wrapping_add(1);
        let mut frames = Vec::from([mbuf.into_tx()]);
        let sent = self.inner.transmit(now, pool, &mut frames);
        self.counted.sent.fetch_add(sent as u64, Ordering::Relaxed);
        frames.drain(..).for_each(|frame| pool.complete(frame));
    }
}

/// An echo request (RFC 792).
fn frame(sequence: u16) -> [u8; PING] {
    let mut bytes = [0; PING];
    let (protocol, payload_len) = (Protocol::ICMP, PING - ICMP);
    let [dst, src] = MACS;
    EthernetRepr { dst, src, ethertype: EtherType::IPV4 }.emit(&mut bytes);
    let (src, dst, ttl, ident, dscp_ecn) = (CLIENT, SERVER, 64, 0, 0);
    Ipv4Repr { src, dst, protocol, ttl, ident, dscp_ecn, dont_fragment: false, payload_len }
        .emit(&mut bytes[EthernetRepr::HEADER_LEN..]);
    let data = Sum::of(&bytes[ICMP + IcmpRepr::HEADER_LEN..]);
    IcmpRepr::EchoRequest { ident: NAME, seq: sequence }.emit(&mut bytes[ICMP..], data);
    bytes
}

/// Whether it is the answer to one of these.
fn is_answer(bytes: &[u8]) -> bool {
    bytes.get(12..14) == Some(&[8, 0])
        && bytes.get(23) == Some(&1)
        && bytes.get(ICMP) == Some(&0)
        && bytes.get(ICMP + 4..ICMP + 6) == Some(&NAME.to_be_bytes())
}

impl<N: Nic> Nic for Pings<N> {
    fn receive(
        &mut self,
        now: Instant,
        pool: &mut Pool,
        out: &mut Vec<Mbuf>,
        limit: usize,
    ) -> usize {
        if now >= self.next {
            self.next = now + EVERY;
            self.ping(now, pool);
        }
        let before = out.len();
        let received = self.inner.receive(now, pool, out, limit);
        let answers = out[before..].iter().filter(|mbuf| is_answer(mbuf.bytes())).count();
        self.counted.answered.fetch_add(answers as u64, Ordering::Relaxed);
        received
    }
    fn transmit(&mut self, now: Instant, pool: &mut Pool, frames: &mut Vec<TxFrame>) -> usize {
        self.inner.transmit(now, pool, frames)
    }
    nic::hand_on!(self, self.inner);
    fn close(self, pool: &mut Pool) -> Closed {
        self.inner.close(pool)
    }
    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn next_event(&self) -> Option<Instant> {
        self.inner.next_event()
    }
    fn arm(&mut self) -> Armed {
        self.inner.arm()
    }
}
