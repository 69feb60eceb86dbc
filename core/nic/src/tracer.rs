//! Middleware: one line per frame through `tracing`, at trace level, target `nic::tracer`.
//!
//! ```text
//! tx UDP 10.0.0.1:4000 > 10.0.0.2:7 len 18
//! rx TCP 10.0.0.2:80 > 10.0.0.1:5000 [S.] seq 1 ack 2 win 65535 len 0
//! rx TCP [fd77::2]:80 > [fd77::1]:5000 [S.] seq 1 ack 2 win 65535 len 0
//! ```
//!
//! Where nobody listens at trace level, it costs one comparison per burst.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use clock::Instant;
use wire::{
    ArpOperation, ArpRepr, EtherType, EthernetView, Ipv4View, Protocol, TcpFlags, TcpView, UdpView,
};

use crate::Nic;
use crate::tap::{Direction, Tap, Tapped};

/// A driver with a tracer before it.
pub type TracerNic<N> = Tapped<N, Tracer>;

/// What writes the lines.
#[derive(Debug)]
pub struct Tracer(());

impl Tap for Tracer {
    fn is_listening(&self) -> bool {
        tracing::enabled!(tracing::Level::TRACE)
    }

    fn see(&mut self, now: Instant, direction: Direction, frame: &[u8]) {
        let way = match direction {
            Direction::Received => "rx",
            Direction::Sent => "tx",
        };
        tracing::trace!(at_ns = now.as_nanos(), "{way} {}", Summary(frame));
    }
}

impl<N: Nic> TracerNic<N> {
    /// Traces what passes `inner`.
    pub fn new(inner: N) -> Self {
        Self::with_tap(inner, Tracer(()))
    }

    /// The driver.
    pub fn into_inner(self) -> N {
        self.inner
    }
}

/// A frame in a line, for people.
#[derive(Clone, Copy)]
pub struct Summary<'a>(
    /// The frame, from its Ethernet header on.
    pub &'a [u8],
);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(frame) = EthernetView::parse(self.0) else {
            return write!(f, "{} bytes, no Ethernet header", self.0.len());
        };
        match frame.ethertype() {
            EtherType::IPV4 => ipv4(f, frame.payload()),
            EtherType::IPV6 => ipv6(f, frame.payload()),
            EtherType::ARP => arp(f, frame.payload()),
            other => {
                let (src, dst, kind) = (frame.src(), frame.dst(), other.0);
                write!(f, "{src} > {dst} type {kind:#06x} len {}", frame.payload().len())
            }
        }
    }
}

fn arp(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    match ArpRepr::parse(bytes) {
        Ok(arp) => match arp.operation {
            ArpOperation::Request => {
                write!(f, "ARP who has {}? tell {}", arp.target_ip, arp.sender_ip)
            }
            ArpOperation::Reply => write!(f, "ARP {} is at {}", arp.sender_ip, arp.sender_mac),
        },
        Err(error) => write!(f, "ARP: {error}"),
    }
}

fn ipv4(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let ip = match Ipv4View::parse(bytes) {
        Ok(ip) => ip,
        Err(error) => return write!(f, "IPv4: {error}"),
    };
    let (src, dst, payload) = (ip.src(), ip.dst(), ip.payload());
    if ip.is_fragment() {
        let more = if ip.more_fragments() { "+" } else { "" };
        return write!(f, "IPv4 {src} > {dst} fragment {}{more}", ip.fragment_offset());
    }
    match transport(f, src.into(), dst.into(), ip.protocol(), payload) {
        Some(written) => written,
        None => {
            let protocol = ip.protocol().0;
            write!(f, "IPv4 {src} > {dst} protocol {protocol} len {}", payload.len())
        }
    }
}

/// Bytes of an IPv6 header (RFC 8200 §3).
const IPV6_HEADER: usize = 40;

fn ipv6(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let Some((header, rest)) = bytes.split_first_chunk::<IPV6_HEADER>() else {
        return write!(f, "IPv6: {} bytes, no header", bytes.len());
    };
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        Ipv6Addr::from(octets)
    };
    let (src, dst, next) = (address(8), address(24), Protocol(header[6]));
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    // Behind it is link padding.
    let payload = &rest[..payload_len.min(rest.len())];
    match transport(f, src.into(), dst.into(), next, payload) {
        Some(written) => written,
        None => write!(f, "IPv6 {src} > {dst} next header {} len {payload_len}", next.0),
    }
}

/// Writes a packet of TCP or UDP. None: it is of another protocol.
fn transport(
    f: &mut fmt::Formatter<'_>,
    src: IpAddr,
    dst: IpAddr,
    protocol: Protocol,
    payload: &[u8],
) -> Option<fmt::Result> {
    let ends = |from, to| (SocketAddr::new(src, from), SocketAddr::new(dst, to));
    let written = match protocol {
        Protocol::TCP => match TcpView::parse(payload) {
            Ok(tcp) => {
                let (from, to) = ends(tcp.src_port(), tcp.dst_port());
                write!(f, "TCP {from} > {to} [{}]", Flags(tcp.flags()))
                    .and_then(|()| write!(f, " seq {} ack {}", tcp.seq().0, tcp.ack().0))
                    .and_then(|()| write!(f, " win {} len {}", tcp.window(), tcp.payload().len()))
            }
            Err(error) => write!(f, "TCP {src} > {dst}: {error}"),
        },
        Protocol::UDP => match UdpView::parse(payload) {
            Ok(udp) => {
                let (from, to) = ends(udp.src_port(), udp.dst_port());
                write!(f, "UDP {from} > {to} len {}", udp.payload().len())
            }
            Err(error) => write!(f, "UDP {src} > {dst}: {error}"),
        },
        _ => return None,
    };
    Some(written)
}

/// Flags as tcpdump writes them.
struct Flags(TcpFlags);

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = [
            (TcpFlags::SYN, 'S'),
            (TcpFlags::FIN, 'F'),
            (TcpFlags::RST, 'R'),
            (TcpFlags::PSH, 'P'),
            (TcpFlags::URG, 'U'),
            (TcpFlags::ECE, 'E'),
            (TcpFlags::CWR, 'W'),
            (TcpFlags::ACK, '.'),
        ];
        for (flag, letter) in letters {
            if self.0.contains(flag) {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::{LoopbackConfig, pair};
    use mem::{Pool, Region};
    use std::sync::{Arc, Mutex};
    use tracing::field::{Field, Visit};

    /// Eth + IPv4 + TCP SYN+ACK of `10.0.0.1:80 > 10.0.0.2:5000`, made by hand.
    fn syn_ack() -> [u8; 54] {
        let mut frame = [0; 54];
        frame[12] = 0x08;
        frame[14..34].copy_from_slice(&[
            0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        frame[34..54].copy_from_slice(&[
            0, 80, 0x13, 0x88, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x12, 0xff, 0xff, 0, 0, 0, 0,
        ]);
        frame
    }

    /// The same segment over IPv6, from `fd77::1` to `fd77::2`.
    fn syn_ack_v6() -> [u8; 74] {
        let mut frame = [0; 74];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, 20, 6, 64]);
        for (at, last) in [(22, 1), (38, 2)] {
            frame[at..at + 2].copy_from_slice(&[0xfd, 0x77]);
            frame[at + 15] = last;
        }
        frame[54..].copy_from_slice(&syn_ack()[34..]);
        frame
    }

    #[test]
    fn frames_read_as_lines() {
        let line = |bytes: &[u8]| Summary(bytes).to_string();
        let frame = syn_ack();
        assert_eq!(
            line(&frame),
            "TCP 10.0.0.1:80 > 10.0.0.2:5000 [S.] seq 1 ack 2 win 65535 len 0"
        );
        let mut fragment = frame;
        fragment[20] = 0x20;
        assert_eq!(line(&fragment), "IPv4 10.0.0.1 > 10.0.0.2 fragment 0+");
        let mut frame = syn_ack_v6();
        assert_eq!(
            line(&frame),
            "TCP [fd77::1]:80 > [fd77::2]:5000 [S.] seq 1 ack 2 win 65535 len 0"
        );
        frame[20] = 44;
        assert_eq!(line(&frame), "IPv6 fd77::1 > fd77::2 next header 44 len 20");
        assert_eq!(line(&frame[..53]), "IPv6: 39 bytes, no header");
        assert_eq!(line(&[0; 5]), "5 bytes, no Ethernet header");
        assert_eq!(line(&[0; 14]), "00:00:00:00:00:00 > 00:00:00:00:00:00 type 0x0000 len 0");
        let mut arp = [0; 42];
        arp[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        arp[38..42].copy_from_slice(&[10, 0, 0, 9]);
        assert_eq!(line(&arp), "ARP who has 10.0.0.9? tell 0.0.0.0");
    }

    #[test]
    fn no_prefix_of_a_frame_panics() {
        for frame in [&syn_ack()[..], &syn_ack_v6()] {
            for len in 0..frame.len() {
                assert!(!Summary(&frame[..len]).to_string().is_empty());
            }
        }
    }

    /// Collects messages.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);
    impl Visit for Lines {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            if field.name() == "message" {
                self.0.lock().expect("no panic held it").push(format!("{value:?}"));
            }
        }
    }
    impl tracing::Subscriber for Lines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            event.record(&mut self.clone());
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn each_frame_has_one_line_each_way() {
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            let (near, far) = pair(LoopbackConfig::default());
            let (mut near, mut far) = (TracerNic::new(near), TracerNic::new(far));
            let mut pool = Pool::new(&Region::heap(64), 64);
            let mut mbuf = pool.alloc().expect("a chunk");
            mbuf.append(&syn_ack()).expect("fits");
            near.transmit(Instant::ZERO, &mut pool, &mut [mbuf.into_tx()].into());
            let mut out = Vec::new();
            assert_eq!(far.receive(Instant::ZERO, &mut pool, &mut out, 64), 1);
            out.drain(..).for_each(|mbuf| pool.free(mbuf));
            near.reclaim(&mut pool);
        });
        let lines = lines.0.lock().expect("no panic held it");
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("tx TCP 10.0.0.1:80") && lines[1].starts_with("rx TCP"));
    }
}
