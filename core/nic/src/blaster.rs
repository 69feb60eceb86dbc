//! A packet generator: sends UDP frames as fast as the driver takes them and counts those that come
//! back. Against a [`reflector`](crate::reflector), it measures what the wire and both drivers can.

use alloc::vec::Vec;
use core::net::SocketAddrV4;

use clock::Instant;
use mem::{Mbuf, Pool, TxFrame};
use wire::{EtherType, EthernetRepr, Ipv4Repr, MacAddr, Protocol, Sum, UdpRepr};

use crate::Nic;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlasterConfig {
    /// The generator's link address.
    pub source_mac: MacAddr,
    /// The reflector's link address.
    pub target_mac: MacAddr,
    /// The generator's address and first port.
    pub source: SocketAddrV4,
    /// The reflector's address and port.
    pub target: SocketAddrV4,
    /// Bytes of a frame without its check sequence: 42 or more. 60 is what is called 64 B.
    pub frame_bytes: usize,
    /// Source ports in rotation, so that a device spreads the frames over its queues.
    pub flows: u16,
    /// Frames that may be under way; below the receive rings' sizes none are lost.
    pub window: u64,
    /// Frames of one burst.
    pub batch: usize,
}

/// Bytes of the three headers.
const HEADERS: usize = EthernetRepr::HEADER_LEN + 20 + 8;
const SOURCE_PORT: usize = EthernetRepr::HEADER_LEN + 20;

/// A generator on one driver.
#[derive(Debug)]
pub struct Blaster {
    config: BlasterConfig,
    /// A whole frame; only the source port changes, and the UDP checksum is absent (RFC 768).
    template: Vec<u8>,
    received: Vec<Mbuf>,
    outgoing: Vec<TxFrame>,
    next_flow: u16,
    /// Frames sent so far.
    pub sent: u64,
    /// Frames of ours that came back so far.
    pub reflected: u64,
    /// Other frames received so far.
    pub ignored: u64,
    written_off: u64,
}

impl Blaster {
    /// A generator of the frames that `config` describes; its values are held to sensible bounds.
    pub fn new(config: BlasterConfig) -> Self {
        let config = BlasterConfig {
            frame_bytes: config.frame_bytes.clamp(HEADERS, 1514),
            flows: config.flows.max(1),
            window: config.window.max(1),
            batch: config.batch.max(1),
            ..config
        };
        Self {
            template: template(&config),
            received: Vec::with_capacity(config.batch),
            outgoing: Vec::with_capacity(config.batch),
            next_flow: 0,
            sent: 0,
            reflected: 0,
            ignored: 0,
            written_off: 0,
            config,
        }
    }

    /// Frames that are under way, or lost.
    pub fn outstanding(&self) -> u64 {
        // What was written off may come back after all.
        self.sent.saturating_sub(self.reflected + self.written_off)
    }

    /// Takes all that is outstanding for lost, so that the window opens. Answers how many.
    pub fn write_off(&mut self) -> u64 {
        let lost = self.outstanding();
        self.written_off += lost;
        lost
    }

    /// One round: receive and count, send what the window allows, reclaim. Answers how many frames
    /// came back.
    pub fn blast_once<N: Nic + ?Sized>(
        &mut self,
        now: Instant,
        nic: &mut N,
        pool: &mut Pool,
    ) -> usize {
        let room =
            self.config.window.saturating_sub(self.outstanding() + self.outgoing.len() as u64);
        let burst = (self.config.batch - self.outgoing.len().min(self.config.batch)) as u64;
        for _ in 0..room.min(burst) {
            let Some(frame) = self.make(pool) else { break };
            self.outgoing.push(frame);
        }
        self.collect_once(now, nic, pool)
    }

    /// As [`blast_once`](Self::blast_once), but sends nothing new: for collecting stragglers.
    pub fn collect_once<N: Nic + ?Sized>(
        &mut self,
        now: Instant,
        nic: &mut N,
        pool: &mut Pool,
    ) -> usize {
        self.sent += nic.transmit(now, pool, &mut self.outgoing) as u64;
        nic.reclaim(pool);
        nic.receive(now, pool, &mut self.received, self.config.batch);
        let mut back = 0;
        for mbuf in self.received.drain(..) {
            if is_reflection(mbuf.bytes(), &self.config) {
                back += 1;
            } else {
                self.ignored += 1;
            }
            pool.free(mbuf);
        }
        self.reflected += back as u64;
        back
    }

    fn make(&mut self, pool: &mut Pool) -> Option<TxFrame> {
        let mut mbuf = pool.alloc().ok()?;
        if mbuf.append(&self.template).is_err() {
            pool.free(mbuf);
            return None;
        }
        let port = self.config.source.port().wrapping_add(self.next_flow);
        self.next_flow = (self.next_flow + 1) % self.config.flows;
        mbuf.bytes_mut()[SOURCE_PORT..SOURCE_PORT + 2].copy_from_slice(&port.to_be_bytes());
        Some(mbuf.into_tx())
    }

    /// Returns the frames that wait for the transmit ring to `pool`. Answers how many.
    pub fn drain(&mut self, pool: &mut Pool) -> usize {
        let count = self.outgoing.len();
        self.outgoing.drain(..).for_each(|frame| pool.complete(frame));
        count
    }
}

fn template(config: &BlasterConfig) -> Vec<u8> {
    let mut frame = alloc::vec![0; config.frame_bytes];
    let ethernet =
        EthernetRepr { dst: config.target_mac, src: config.source_mac, ethertype: EtherType::IPV4 };
    ethernet.emit(&mut frame);
    let payload_len = config.frame_bytes - HEADERS;
    let (src, dst) = (*config.source.ip(), *config.target.ip());
    let ip = Ipv4Repr::new(src, dst, Protocol::UDP, UdpRepr::HEADER_LEN + payload_len);
    ip.emit(&mut frame[EthernetRepr::HEADER_LEN..]);
    let udp =
        UdpRepr { src_port: config.source.port(), dst_port: config.target.port(), payload_len };
    udp.emit(&mut frame[SOURCE_PORT..], src, dst, Sum::ZERO);
    // The source port will change: say that there is no checksum (RFC 768).
    frame[SOURCE_PORT + 6..HEADERS].fill(0);
    frame
}

/// Whether a frame is one of ours, turned around.
#[inline]
fn is_reflection(frame: &[u8], config: &BlasterConfig) -> bool {
    let [high, low] = config.target.port().to_be_bytes();
    frame.len() >= config.frame_bytes
        && frame[12..14] == [0x08, 0x00]
        && frame[26..30] == config.target.ip().octets()
        && frame[SOURCE_PORT..SOURCE_PORT + 2] == [high, low]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::{LoopbackConfig, pair};
    use crate::reflector::Reflector;
    use mem::Region;
    use wire::{EthernetView, Ipv4View, UdpView};

    fn config() -> BlasterConfig {
        let [source_mac, target_mac] = LoopbackConfig::default().macs;
        BlasterConfig {
            source_mac,
            target_mac,
            source: "10.0.0.1:1000".parse().expect("an endpoint"),
            target: "10.0.0.2:7".parse().expect("an endpoint"),
            frame_bytes: 60,
            flows: 4,
            window: 100,
            batch: 32,
        }
    }

    #[test]
    fn frames_are_well_formed() {
        let frame = template(&config());
        let ethernet = EthernetView::parse(&frame).expect("a header");
        let ip = Ipv4View::parse(ethernet.payload()).expect("IPv4");
        assert!(ip.verify_checksum());
        let udp = UdpView::parse(ip.payload()).expect("UDP");
        assert!(udp.verify_checksum(ip.src(), ip.dst()));
        assert_eq!((frame.len(), udp.payload().len(), udp.dst_port()), (60, 18, 7));
    }

    #[test]
    fn what_is_reflected_comes_back_and_is_counted() {
        let (mut near, mut far) = pair(LoopbackConfig::default());
        let mut pool = Pool::new(&Region::heap(1024), 1024);
        let mut blaster = Blaster::new(config());
        let mut reflector = Reflector::new(32);
        for _ in 0..50 {
            blaster.blast_once(Instant::ZERO, &mut near, &mut pool);
            assert!(blaster.outstanding() <= 100);
            reflector.reflect_once(Instant::ZERO, &mut far, &mut pool);
        }
        while blaster.outstanding() > 0 {
            blaster.collect_once(Instant::ZERO, &mut near, &mut pool);
            reflector.reflect_once(Instant::ZERO, &mut far, &mut pool);
        }
        assert_eq!(blaster.sent, blaster.reflected);
        assert_eq!((blaster.sent, reflector.reflected, blaster.ignored), (1600, 1600, 0));
        near.reclaim(&mut pool);
        far.reclaim(&mut pool);
        assert_eq!(pool.available(), 1024);
    }

    #[test]
    fn losses_close_the_window_until_they_are_written_off() {
        let (mut near, mut far) = pair(LoopbackConfig::default());
        let mut pool = Pool::new(&Region::heap(1024), 1024);
        let mut blaster = Blaster::new(config());
        for _ in 0..5 {
            blaster.blast_once(Instant::ZERO, &mut near, &mut pool);
        }
        assert_eq!((blaster.sent, blaster.outstanding()), (100, 100));
        assert_eq!(blaster.write_off(), 100);
        blaster.blast_once(Instant::ZERO, &mut near, &mut pool);
        assert_eq!((blaster.sent, blaster.outstanding()), (132, 32));
        let mut late = Vec::new();
        far.receive(Instant::ZERO, &mut pool, &mut late, 200);
        late.drain(..).for_each(|mbuf| pool.free(mbuf));
        near.reclaim(&mut pool);
        assert_eq!(pool.available(), 1024);
    }
}
