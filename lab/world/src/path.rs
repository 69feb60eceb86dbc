//! A path of one hop: a rate, a queue before it, a delay behind it, and faults from a seed. Time is the caller's: the
//! paths of virtual time and the relay between real interfaces are the same.

use clock::{DueQueue, Duration, Instant};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use wire::ip::mark_congestion;
use wire::{
    EtherType, EthernetRepr, IcmpRepr, Icmpv6Repr, Ipv4Addr, Ipv4Repr, Ipv4View, Ipv6Addr,
    Ipv6Repr, Ipv6View, MacAddr, Protocol, Sum, UnreachableCode,
};

/// Frames up to this length carry no data: no fault takes them, as faults are of the data's direction.
const BARE_FRAME_BYTES: usize = 100;
/// Packets that a burst of losses lasts, and their length, in bytes.
const BURST_PACKETS: u64 = 20;
const FULL_FRAME_BYTES: u64 = 1_514;

/// What a path is like, in both directions.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Of all that is drawn.
    pub seed: u64,
    /// Bits a second.
    pub rate: u64,
    /// Time from the hop's exit to the far end, one way.
    pub delay: Duration,
    /// Bytes that wait before the hop at most.
    pub queue: u64,
    /// The hop has no queue: it drops what exceeds its rate by more than a burst of `queue` bytes (a policer).
    pub polices: bool,
    /// Probability that a packet with data is lost.
    pub loss: f64,
    /// Probability that it is late by up to half of the delay.
    pub reorder: f64,
    /// Probability that all is lost for as long as twenty packets take.
    pub burst: f64,
    /// So many of the last segments of the transfer are lost, when they are sent first.
    pub lose_last: u32,
    /// Bytes in the queue from which on the hop marks packets (RFC 3168), where their sender takes marks.
    pub mark: Option<u64>,
    /// The receive window of the ends.
    pub window: u32,
    /// Bytes of the largest packet that the hop takes, and of the largest one from `mtu_at` on.
    pub mtu: [u16; 2],
    /// When that changes, since the begin.
    pub mtu_at: Duration,
    /// Whether the hop reports packets that are too big (RFC 1191).
    pub reports: bool,
}

impl Path {
    /// A path of 200 Mbit/s without faults, whose queue holds a round trip's worth, and 100 KB at least.
    pub fn new(seed: u64, delay: Duration) -> Self {
        let rate = 200_000_000;
        let queue = (2 * delay.as_nanos() as u64 * (rate / 8) / 1_000_000_000).max(100_000);
        Self {
            seed,
            rate,
            delay,
            queue,
            polices: false,
            loss: 0.0,
            reorder: 0.0,
            burst: 0.0,
            lose_last: 0,
            mark: None,
            window: 16 << 20,
            mtu: [1_500; 2],
            mtu_at: Duration::ZERO,
            reports: true,
        }
    }
}

/// The time that bytes take at a rate in bits a second.
fn on_wire(bytes: u64, rate: u64) -> Duration {
    Duration::from_nanos(bytes * 8 * 1_000_000_000 / rate)
}

/// One direction of a path.
#[derive(Debug)]
pub struct Link {
    path: Path,
    dice: Xoshiro256PlusPlus,
    /// When the hop has sent all that waits.
    free_at: Instant,
    /// Packets on their way.
    flying: DueQueue<Vec<u8>>,
    began: Instant,
    /// When the present burst of losses ends.
    burst_ends: Instant,
    /// Packets that faults took.
    pub lost: u64,
    /// Packets that the queue had no room for.
    pub dropped: u64,
    /// Bytes that each packet found in the queue.
    pub found: Vec<u64>,
    /// Packets that were too big.
    pub too_big: u64,
}

impl Link {
    /// One direction of a path, of those that share its seed, which begins now.
    pub fn new(path: Path, direction: u64, began: Instant) -> Self {
        Self {
            path,
            began,
            dice: Xoshiro256PlusPlus::seed_from_u64(
                path.seed.wrapping_mul(2).wrapping_add(direction),
            ),
            free_at: Instant::ZERO,
            flying: DueQueue::default(),
            burst_ends: Instant::ZERO,
            lost: 0,
            dropped: 0,
            found: Vec::new(),
            too_big: 0,
        }
    }

    fn takes_away(&mut self, now: Instant) -> bool {
        if self.dice.random_bool(self.path.burst) {
            self.burst_ends = now + on_wire(BURST_PACKETS * FULL_FRAME_BYTES, self.path.rate);
        }
        now < self.burst_ends || self.dice.random_bool(self.path.loss)
    }

    /// A packet comes to the hop. A doomed one is lost, whatever is drawn.
    pub fn send(&mut self, now: Instant, mut frame: Vec<u8>, is_doomed: bool) {
        let has_data = frame.len() > BARE_FRAME_BYTES;
        if has_data && (is_doomed || self.takes_away(now)) {
            self.lost += 1;
            return;
        }
        let Path { rate, delay, queue, polices, reorder, .. } = self.path;
        let begin = self.free_at.max(now);
        let waiting = begin.since(now).as_nanos() as u64 * (rate / 8) / 1_000_000_000;
        self.found.push(waiting);
        if waiting + frame.len() as u64 > queue {
            self.dropped += 1;
            return;
        }
        if self.path.mark.is_some_and(|threshold| waiting >= threshold) {
            mark_congestion(&mut frame[EthernetRepr::HEADER_LEN..]);
        }
        self.free_at = begin + on_wire(frame.len() as u64, rate);
        let mut due = if polices { now } else { self.free_at } + delay;
        if has_data && self.dice.random_bool(reorder) {
            due += delay.mul_f64(0.5 * self.dice.random::<f64>());
        }
        self.flying.push(due, frame);
    }

    /// Whether the hop takes a packet of this frame's length; if not, the largest that it takes.
    ///
    /// # Errors
    /// Bytes of the largest packet.
    pub fn check_size(&mut self, now: Instant, frame: &[u8]) -> Result<(), u16> {
        let is_later = now.since(self.began) >= self.path.mtu_at;
        let mtu = self.path.mtu[usize::from(is_later)];
        let is_carried = frame.len() <= 14 + usize::from(mtu);
        self.too_big += u64::from(!is_carried);
        if is_carried { Ok(()) } else { Err(mtu) }
    }

    /// Whether the hop reports packets that are too big.
    pub fn reports(&self) -> bool {
        self.path.reports
    }

    /// Packets on their way.
    pub fn flying(&self) -> usize {
        self.flying.len()
    }

    /// A packet of the hop's own.
    pub fn report(&mut self, now: Instant, frame: Vec<u8>) {
        self.flying.push(now + self.path.delay, frame);
    }

    /// When the next packet arrives.
    pub fn next(&self) -> Option<Instant> {
        self.flying.next_due()
    }

    /// The packets that have arrived.
    pub fn receive(&mut self, now: Instant) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.flying.pop_due(now)).collect()
    }
}

/// What a hop says to the sender of a frame that was too big (RFC 1191 §4, RFC 8201 §4); `None` where it is no IP packet.
pub fn too_big(mtu: u16, frame: &[u8]) -> Option<Vec<u8>> {
    const HOP: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
    const HOP_V6: Ipv6Addr = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 9, 9);
    let sender = MacAddr(frame.get(6..12)?.try_into().ok()?);
    let packet = frame.get(EthernetRepr::HEADER_LEN..)?;
    let (mut message, mut ip) = (vec![0; IcmpRepr::HEADER_LEN], Vec::new());
    let (ethertype, quoted) = if let Ok(view) = Ipv4View::parse(packet) {
        let (code, quoted) = (UnreachableCode::FRAGMENTATION_NEEDED, packet.get(..28)?);
        let repr = IcmpRepr::DestUnreachable { code, next_hop_mtu: mtu };
        repr.emit(&mut message, Sum::of(quoted));
        ip.resize(Ipv4Repr::HEADER_LEN, 0);
        let len = message.len() + quoted.len();
        Ipv4Repr::new(HOP, view.src(), Protocol::ICMP, len).emit(&mut ip);
        (EtherType::IPV4, quoted)
    } else {
        let src = Ipv6View::parse(packet).ok()?.src();
        let quoted = packet.get(..48)?;
        let repr = Icmpv6Repr::PacketTooBig { mtu: mtu.into() };
        repr.emit(&mut message, HOP_V6, src, (Sum::of(quoted), quoted.len()));
        ip.resize(Ipv6Repr::HEADER_LEN, 0);
        let len = message.len() + quoted.len();
        Ipv6Repr::new(HOP_V6, src, Protocol::ICMPV6, len).emit(&mut ip);
        (EtherType::IPV6, quoted)
    };
    let mut report = vec![0; EthernetRepr::HEADER_LEN];
    EthernetRepr { dst: sender, src: MacAddr([2; 6]), ethertype }.emit(&mut report);
    report.extend(ip.iter().chain(&message).chain(quoted));
    Some(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    /// Bytes of a frame that 200 Mbit/s carry in 60 us.
    const FRAME: usize = 1_500;

    /// When frames arrive that are all sent at the begin.
    fn arrivals(path: Path, frames: usize) -> (Vec<Duration>, Link) {
        let mut link = Link::new(path, 0, Instant::ZERO);
        (0..frames).for_each(|_| link.send(Instant::ZERO, vec![0; FRAME], false));
        let mut times = Vec::new();
        while let Some(due) = link.next() {
            times.extend(link.receive(due).iter().map(|_| due.since(Instant::ZERO)));
        }
        (times, link)
    }

    #[test]
    fn frames_wait_for_their_turn_until_the_queue_is_full() {
        let (times, link) = arrivals(Path { queue: 15_000, ..Path::new(1, MS) }, 30);
        let expected: Vec<_> = (1..=10).map(|turn| MS + Duration::from_micros(60 * turn)).collect();
        assert_eq!(times, expected);
        assert_eq!((link.dropped, link.lost, link.flying()), (20, 0, 0));
    }

    #[test]
    fn a_policer_passes_a_burst_at_once_and_drops_the_rest() {
        let path = Path { queue: 15_000, polices: true, ..Path::new(1, MS) };
        let (times, mut link) = arrivals(path, 30);
        assert_eq!((times, link.dropped), (vec![MS; 10], 20));
        // A turn later there is room for one more.
        let later = Instant::ZERO + Duration::from_micros(61);
        (0..2).for_each(|_| link.send(later, vec![0; FRAME], false));
        assert_eq!((link.flying(), link.dropped), (1, 21));
    }

    #[test]
    fn a_hop_marks_behind_its_threshold_and_reports_what_is_too_big() {
        let mut packet = vec![0; FRAME];
        Ipv4Repr::new(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), Protocol::TCP, 1_466)
            .emit(&mut packet[14..34]);
        let path = Path { mtu: [1_500, 1_000], mtu_at: MS, ..Path::new(1, MS) };
        let mut link = Link::new(path, 0, Instant::ZERO);
        assert_eq!(link.check_size(Instant::ZERO, &packet), Ok(()));
        assert_eq!(link.check_size(Instant::ZERO + MS, &packet), Err(1_000));
        let report = too_big(1_000, &packet).expect("a packet");
        let ip = Ipv4View::parse(&report[14..]).expect("whole");
        assert_eq!((ip.dst(), ip.protocol()), (Ipv4Addr::new(10, 0, 0, 1), Protocol::ICMP));
        assert!(ip.verify_checksum());
        assert_eq!(too_big(1_000, &[0; 60]), None);
    }
}
