//! The network between the simulated hosts: a switch whose links lose, double, reorder, corrupt and
//! delay frames, all drawn from the run's seed.
//!
//! A link has no rate: a frame is on its way for a delay of its own, however many others are. Where a port has a
//! [`Path`] before it, frames wait for their turn there. What arrives waits in a bounded queue of the receiver until the
//! core that polls it takes it, and is copied into that core's pool then, as a device would write it.
//!
//! ```
//! use clock::Instant;
//! use world::network::{Faults, Network, Spread};
//! let network = Network::new(42, Faults::usual());
//! let first = network.borrow_mut().attach(wire::MacAddr([2, 0, 0, 0, 0, 1]), 1, Spread::OneQueue);
//! assert_eq!(first, 0);
//! assert_eq!(network.borrow().next_due(), None);
//! ```

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use clock::{DueQueue, Duration, Instant};
use nic::fault::{Fate, corrupt};
use wire::ip::{emit_fragment, mark_congestion};
use wire::{Ipv4Repr, Ipv6Repr, MacAddr};

use crate::dice::{Dice, Digest};
use crate::path::{Link, Path, too_big};

pub use nic::fault::Faults;

/// Bytes of an Ethernet header, and where its type stands.
const LINK_HEADER: usize = 14;
const ETHERTYPES_IP: [[u8; 2]; 2] = [[0x08, 0x00], [0x86, 0xdd]];

/// Bytes of the IP header in a frame, which has no options.
fn ip_header_len(frame: &[u8]) -> Option<usize> {
    let ethertype = frame.get(12..LINK_HEADER)?;
    let version = ETHERTYPES_IP.iter().position(|ip| ip == ethertype)?;
    Some([Ipv4Repr::HEADER_LEN, Ipv6Repr::HEADER_LEN][version])
}

/// To which of a port's queues a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// The first.
    OneQueue,
    /// Any, drawn anew for each frame: the worst that a device without programmable RSS can do.
    Random,
}

/// What became of the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct NetworkStats {
    /// Frames that hosts sent.
    pub sent: u64,
    /// Frames among them that were longer than a chunk of packet memory.
    pub long: u64,
    /// Copies that set out, one for each receiver of a broadcast.
    pub started: u64,
    /// Frames addressed to nobody (a corrupted address, say).
    pub strayed: u64,
    /// Copies that vanished.
    pub lost: u64,
    /// Copies that were doubled.
    pub duplicated: u64,
    /// Copies that were held back.
    pub reordered: u64,
    /// Copies with a flipped bit.
    pub corrupted: u64,
    /// Fragments beyond the first that copies were cut into.
    pub cut: u64,
    /// Copies that were marked (CE, RFC 3168): as many as are lost or reordered, of those whose senders take marks.
    pub marked: u64,
    /// Copies that a path dropped: its queue was full, or they were too big.
    pub dropped: u64,
    /// Reports of the paths' hops that a copy was too big.
    pub reported: u64,
    /// Copies that found the receiver's queue full.
    pub overflowed: u64,
    /// Copies put into a receiver's queue.
    pub arrived: u64,
    /// Segments beyond the first that devices made of frames longer than a chunk.
    pub resegmented: u64,
}

/// What a step of a core took from the devices and gave to them, where each step has a price.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Frames taken from the core's own receive queue.
    pub taken: u64,
    /// Frames taken from other cores' receive queues.
    pub taken_abroad: u64,
    /// Frames sent through any queue.
    pub sent: u64,
    /// Those of them that went through another core's queue.
    pub sent_abroad: u64,
    /// The other core whose queue it was, the last one of them.
    pub abroad: Option<usize>,
}

/// A network whose frames leave at the end of a step that lasts, and the step that runs now.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    /// Whose step it is: a port and its queue.
    acting: (usize, usize),
    /// Sent in the present step, in order.
    pub sent: Vec<Vec<u8>>,
    pub moved: Moved,
    /// Memory of frames that have been received.
    spare: Vec<Vec<u8>>,
}

/// A frame on its way.
#[derive(Debug)]
struct Flight {
    to: usize,
    frame: Vec<u8>,
}

/// Where a host is plugged in.
struct Port {
    mac: MacAddr,
    spread: Spread,
    queues: Vec<VecDeque<Vec<u8>>>,
    /// Draws what happens to frames on their way to this port.
    dice: Dice,
    /// Chooses the queue instead.
    steer: Option<Steer>,
    lag: Option<Lag>,
    /// What frames to this port pass.
    path: Option<Link>,
}

/// What lies between a device's choice of a queue and the queue: each passes frames on in order, and is late by
/// so much.
struct Lag {
    longest: Duration,
    /// When the last frame of each queue comes out.
    last: Vec<Instant>,
}

/// A frame whose queue is chosen.
#[derive(Debug)]
struct Chosen {
    port: usize,
    queue: usize,
    frame: Vec<u8>,
}

/// Answers the queue of a frame, as the device of a port chooses it at its arrival.
pub type Steer = Box<dyn Fn(&[u8]) -> usize>;

/// What passed the tapped port: when, and the frame.
pub type Capture = Vec<(Instant, Vec<u8>)>;

/// See the module's comment.
pub struct Network {
    seed: u64,
    faults: Faults,
    ports: Vec<Port>,
    /// Draws what is marked, apart, so that it changes nothing else.
    marks: Dice,
    /// Probability that an IP packet with more than sixteen bytes of payload is cut into fragments, though its sender forbids
    /// it: each goes its own way.
    pub cuts: f64,
    /// Draws what is cut, apart too.
    cutter: Dice,
    flights: DueQueue<Flight>,
    chosen: DueQueue<Chosen>,
    /// Counters.
    pub stats: NetworkStats,
    /// The fingerprint of all frames so far, and of what the runner added.
    pub digest: Digest,
    /// A copy of each frame that port 0 sent or received, where these are to be kept.
    pub capture: Option<Capture>,
    stage: Option<Stage>,
}

/// The network as its ports share it: the whole simulation is one thread.
pub type SharedNetwork = Rc<RefCell<Network>>;

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("stats", &self.stats).finish_non_exhaustive()
    }
}

impl Network {
    /// A network without ports.
    pub fn new(seed: u64, faults: Faults) -> SharedNetwork {
        Rc::new(RefCell::new(Self {
            seed,
            faults,
            ports: Vec::new(),
            marks: Dice::new(seed, "marks", 0),
            cuts: 0.0,
            cutter: Dice::new(seed, "fragments", 0),
            flights: DueQueue::default(),
            chosen: DueQueue::default(),
            stats: NetworkStats::default(),
            digest: Digest::default(),
            capture: None,
            stage: None,
        }))
    }

    /// A network without faults, on which frames set out when the world says so ([`carry`](Self::carry)): each step of a
    /// core takes a time that is known only when it has run.
    pub(crate) fn staged(queue_frames: usize) -> SharedNetwork {
        let network = Self::new(0, Faults { queue_frames, ..Faults::none() });
        network.borrow_mut().stage = Some(Stage::default());
        network
    }

    /// From now on the core of this queue takes and sends. Only where frames are staged.
    pub(crate) fn begin(&mut self, port: usize, queue: usize) {
        let stage = self.stage();
        (stage.acting, stage.moved) = ((port, queue), Moved::default());
    }

    /// The present step. Only where frames are staged.
    pub(crate) fn stage(&mut self) -> &mut Stage {
        self.stage.as_mut().expect("a network whose frames are staged")
    }

    /// A frame sets out that is in a queue at `due`.
    pub(crate) fn carry(&mut self, due: Instant, port: usize, queue: usize, frame: Vec<u8>) {
        self.stats.started += 1;
        self.chosen.push(due, Chosen { port, queue, frame });
    }

    /// The frames that the present step sent set out: each is in the queue that `queue` says at `due`.
    pub(crate) fn carry_sent(&mut self, due: Instant, port: usize, queue: impl Fn(&[u8]) -> usize) {
        let mut sent = std::mem::take(&mut self.stage().sent);
        for frame in sent.drain(..) {
            let queue = queue(&frame);
            self.carry(due, port, queue, frame);
        }
        self.stage().sent = sent;
    }

    /// Plugs a host in. Answers the port's number.
    pub fn attach(&mut self, mac: MacAddr, queues: usize, spread: Spread) -> usize {
        let dice = Dice::new(self.seed, "link", self.ports.len() as u64);
        let queues = (0..queues.max(1)).map(|_| VecDeque::new()).collect();
        let (steer, lag, path) = (None, None, None);
        self.ports.push(Port { mac, spread, queues, dice, steer, lag, path });
        self.ports.len() - 1
    }

    /// From now on `steer` chooses the queues of frames to a port.
    pub fn steer(&mut self, port: usize, steer: Steer) {
        self.ports[port].steer = Some(steer);
    }

    /// Puts a path before a port, from the begin on.
    pub fn set_path(&mut self, port: usize, path: Path) {
        self.ports[port].path = Some(Link::new(path, port as u64, Instant::ZERO));
    }

    /// From now on frames to a port come into the chosen queue up to `longest` later, those of one queue in the
    /// order in which it was chosen for them.
    pub fn lag(&mut self, port: usize, longest: Duration) {
        let last = vec![Instant::ZERO; self.ports[port].queues.len()];
        self.ports[port].lag = Some(Lag { longest, last });
    }

    /// The device of a port puts a frame of its own into a queue, behind those that the queue was chosen for.
    pub fn inject(&mut self, now: Instant, port: usize, queue: usize, frame: Vec<u8>) {
        self.stats.started += 1;
        self.choose(now, Chosen { port, queue, frame });
    }

    fn choose(&mut self, now: Instant, chosen: Chosen) {
        let Port { lag, dice, .. } = &mut self.ports[chosen.port];
        let due = lag.as_mut().map_or(now, |lag| {
            let last = &mut lag.last[chosen.queue];
            *last = (*last).max(now + dice.duration(Duration::ZERO, lag.longest));
            *last
        });
        self.chosen.push(due, chosen);
    }

    /// Makes every link perfect from now on. A path keeps its rate, its queue and its MTU.
    pub fn heal(&mut self) {
        self.cuts = 0.0;
        self.faults = Faults { queue_frames: self.faults.queue_frames, ..Faults::none() };
    }

    /// The link address of a port.
    pub(crate) fn port(&self, port: usize) -> MacAddr {
        self.ports[port].mac
    }

    /// Frames that wait in a queue.
    pub fn waiting(&self, port: usize, queue: usize) -> usize {
        self.ports[port].queues[queue].len()
    }

    /// Takes the frame that has waited longest in a queue.
    pub fn take(&mut self, port: usize, queue: usize) -> Option<Vec<u8>> {
        self.ports[port].queues[queue].pop_front()
    }

    /// A queue's frames have been taken: so many of them received, the memory of `last` to be used again.
    pub(crate) fn taken(&mut self, port: usize, queue: usize, frames: u64) {
        let Some(stage) = &mut self.stage else { return };
        if stage.acting == (port, queue) {
            stage.moved.taken += frames;
        } else {
            stage.moved.taken_abroad += frames;
            stage.moved.abroad = Some(queue);
        }
    }

    /// The memory of a frame that was taken.
    pub(crate) fn recycle(&mut self, frame: Vec<u8>) {
        if let Some(stage) = &mut self.stage {
            stage.spare.push(frame);
        }
    }

    /// A queue of port `from` sends a frame.
    pub(crate) fn send_through(&mut self, now: Instant, from: usize, queue: usize, frame: &[u8]) {
        let Some(stage) = &mut self.stage else { return self.send(now, from, frame) };
        let mut copy = stage.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(frame);
        stage.sent.push(copy);
        stage.moved.sent += 1;
        if stage.acting != (from, queue) {
            stage.moved.sent_abroad += 1;
            stage.moved.abroad = Some(queue);
        }
    }

    /// Port `from` sends a frame.
    pub fn send(&mut self, now: Instant, from: usize, frame: &[u8]) {
        self.stats.sent += 1;
        self.stats.long += u64::from(frame.len() > mem::CHUNK_SIZE);
        self.digest.word(now.as_nanos() ^ (from as u64) << 56);
        self.digest.bytes(frame);
        if from == 0
            && let Some(capture) = &mut self.capture
        {
            capture.push((now, frame.to_vec()));
        }
        let to = frame.get(..6).unwrap_or(&[]);
        // A group, as of IPv6 neighbours, is everybody's too: hosts look for themselves.
        let everybody = to.first().is_some_and(|first| first & 1 != 0);
        let before = self.stats.started;
        for port in 0..self.ports.len() {
            if port != from && (everybody || self.ports[port].mac.0 == to) {
                self.stats.started += 1;
                match self.cut(frame) {
                    Some(pieces) => pieces.iter().for_each(|piece| self.start(now, port, piece)),
                    None => self.start(now, port, frame),
                }
            }
        }
        self.stats.strayed += u64::from(self.stats.started == before);
    }

    /// The fragments that a copy is cut into, two to five; `None`: it stays whole.
    fn cut(&mut self, frame: &[u8]) -> Option<Vec<Vec<u8>>> {
        let header_len = LINK_HEADER + ip_header_len(frame)?;
        let payload_len = frame.len().checked_sub(header_len).filter(|len| *len > 16)?;
        if !self.cutter.chance(self.cuts) {
            return None;
        }
        let (link, packet) = frame.split_at(LINK_HEADER);
        let ident = self.cutter.between(0, u32::MAX.into()) as u32;
        let blocks = payload_len as u64 / 8;
        let size = 8 * self.cutter.between(blocks.div_ceil(4), blocks.max(2) - 1) as usize;
        let piece = |at: usize| {
            let end = payload_len.min(at + size);
            let mut out = vec![0; frame.len() + 8];
            let len = emit_fragment(packet, ident, at..end, end < payload_len, &mut out);
            [link, &out[..len]].concat()
        };
        let pieces: Vec<_> = (0..payload_len).step_by(size).map(piece).collect();
        self.stats.cut += pieces.len() as u64 - 1;
        self.stats.started += pieces.len() as u64 - 1;
        Some(pieces)
    }

    /// A copy sets out towards a port. ARP is spared flipped bits: it has no checksum of its own and relies on the
    /// frame check sequence, which a corrupted frame would not pass.
    fn start(&mut self, now: Instant, to: usize, frame: &[u8]) {
        let fate = Fate::draw(&self.faults, &mut self.ports[to].dice, frame.len());
        if fate.lost {
            self.stats.lost += 1;
            return;
        }
        let mut copy = frame.to_vec();
        let is_ip = ETHERTYPES_IP.iter().any(|ip| frame.get(12..LINK_HEADER) == Some(ip));
        let flip = fate.flip.filter(|_| is_ip);
        if is_ip && self.marks.chance(self.faults.loss + self.faults.reorder) {
            self.stats.marked += u64::from(mark_congestion(&mut copy[LINK_HEADER..]));
        }
        corrupt(&mut copy, flip);
        self.stats.corrupted += u64::from(flip.is_some());
        self.stats.duplicated += u64::from(fate.duplicate);
        self.stats.reordered += u64::from(fate.reorder);
        if fate.duplicate {
            self.set_out(now, fate.delays[1], Flight { to, frame: copy.clone() });
        }
        self.set_out(now, fate.delays[0], Flight { to, frame: copy });
    }

    /// A frame is on its way: for as long as its path takes it, or for `delay` where there is none.
    fn set_out(&mut self, now: Instant, delay: Duration, Flight { to, frame }: Flight) {
        let Some(link) = &mut self.ports[to].path else {
            return self.flights.push(now + delay, Flight { to, frame });
        };
        let Err(mtu) = link.check_size(now, &frame) else {
            let before = link.dropped + link.lost;
            link.send(now, frame, false);
            self.stats.dropped += link.dropped + link.lost - before;
            return;
        };
        self.stats.dropped += 1;
        let sender = self.ports.iter().position(|port| frame.get(6..12) == Some(&port.mac.0));
        let reports = self.ports[to].path.as_ref().is_some_and(Link::reports);
        if let (Some(to), Some(frame)) = (sender, too_big(mtu, &frame).filter(|_| reports)) {
            self.stats.reported += 1;
            self.flights.push(now + delay, Flight { to, frame });
        }
    }

    /// When the next frame arrives.
    pub fn next_due(&self) -> Option<Instant> {
        let paths = self.ports.iter().filter_map(|port| port.path.as_ref()?.next());
        paths.chain(self.flights.next_due()).chain(self.chosen.next_due()).min()
    }

    /// Puts all frames that have arrived into their receivers' queues, and calls `wake` with the port
    /// and the queue of each.
    pub fn deliver(&mut self, now: Instant, mut wake: impl FnMut(usize, usize)) {
        for to in 0..self.ports.len() {
            let passed = self.ports[to].path.as_mut().map(|link| link.receive(now));
            for frame in passed.into_iter().flatten() {
                self.flights.push(now, Flight { to, frame });
            }
        }
        while let Some(Flight { to, frame }) = self.flights.pop_due(now) {
            let port = &mut self.ports[to];
            let queue = match (&port.steer, port.spread) {
                (Some(steer), _) => steer(&frame),
                (None, Spread::OneQueue) => 0,
                (None, Spread::Random) => port.dice.below(port.queues.len() as u64) as usize,
            };
            self.choose(now, Chosen { port: to, queue, frame });
        }
        while let Some(Chosen { port: to, queue, frame }) = self.chosen.pop_due(now) {
            let waiting = &mut self.ports[to].queues[queue];
            if waiting.len() >= self.faults.queue_frames {
                self.stats.overflowed += 1;
                self.recycle(frame);
                continue;
            }
            self.stats.arrived += 1;
            if to == 0
                && let Some(capture) = &mut self.capture
            {
                capture.push((now, frame.clone()));
            }
            waiting.push_back(frame);
            wake(to, queue);
        }
    }

    /// What does not add up in the counters, now that nothing is on its way.
    ///
    /// # Errors
    /// The counters in words.
    pub fn audit(&self) -> Result<(), String> {
        let stats = &self.stats;
        let paths = self.ports.iter().filter_map(|port| port.path.as_ref()).map(Link::flying);
        let under_way = paths.sum::<usize>() + self.flights.len() + self.chosen.len();
        let came = stats.arrived + stats.overflowed + stats.dropped + under_way as u64;
        let went = stats.started + stats.duplicated + stats.reported - stats.lost;
        if came == went { Ok(()) } else { Err(format!("the network lost count: {stats:?}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(to: u8, tag: u8) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, 9, 8, 0];
        frame.resize(60, tag);
        frame
    }

    fn network(faults: Faults) -> SharedNetwork {
        let network = Network::new(3, faults);
        for last in 0..3 {
            let mac = MacAddr([2, 0, 0, 0, 0, last]);
            network.borrow_mut().attach(mac, 2, Spread::Random);
        }
        network
    }

    fn taken(network: &mut Network, port: usize) -> Vec<Vec<u8>> {
        network.deliver(Instant::FAR_FUTURE, |_, _| {});
        (0..2)
            .flat_map(|queue| std::iter::from_fn(|| network.take(port, queue)).collect::<Vec<_>>())
            .collect()
    }

    #[test]
    fn a_perfect_network_delivers_to_whom_it_may_concern() {
        let network = network(Faults::none());
        let mut network = network.borrow_mut();
        network.send(Instant::ZERO, 0, &frame(1, 5));
        network.send(Instant::ZERO, 0, &frame(7, 5));
        let broadcast = [&[0xff; 6][..], &frame(0, 1)[6..]].concat();
        network.send(Instant::ZERO, 1, &broadcast);
        assert_eq!(network.next_due().map(|due| due.as_micros() >= 5), Some(true));
        assert_eq!(taken(&mut network, 1), [frame(1, 5)]);
        assert_eq!(taken(&mut network, 0), std::slice::from_ref(&broadcast));
        assert_eq!(taken(&mut network, 2), [broadcast]);
        assert_eq!((network.stats.strayed, network.stats.arrived), (1, 3));
        assert_eq!(network.audit(), Ok(()));
    }

    #[test]
    fn each_fault_happens_about_as_often_as_it_was_asked_for() {
        let faults = Faults {
            loss: 0.1,
            duplicate: 0.2,
            reorder: 0.3,
            corrupt: 0.4,
            queue_frames: 1 << 20,
            ..Faults::usual()
        };
        let network = network(faults);
        let mut network = network.borrow_mut();
        for round in 0..10_000u64 {
            network.send(Instant::from_micros(round), 0, &frame(1, 0));
        }
        let frames = taken(&mut network, 1);
        let near = |count: u64, share: f64| (count as f64 / 10_000.0 - share).abs() < 0.02;
        let stats = network.stats;
        assert!(near(stats.lost, 0.1), "{stats:?}");
        // The others are counted on frames that are not lost.
        assert!(near(stats.duplicated, 0.18) && near(stats.reordered, 0.27), "{stats:?}");
        assert!(near(stats.corrupted, 0.36), "{stats:?}");
        let flipped = frames.iter().filter(|found| **found != frame(1, 0)).count() as u64;
        assert!(flipped >= stats.corrupted, "each corrupted frame differs by its bit");
        assert_eq!(network.audit(), Ok(()));
    }

    #[test]
    fn a_lag_keeps_the_order_of_a_queue_and_of_no_two() {
        let network = network(Faults { delay_max: Faults::none().delay_min, ..Faults::none() });
        let mut network = network.borrow_mut();
        network.steer(1, Box::new(|frame| usize::from(frame[20] % 2)));
        network.lag(1, Duration::from_micros(40));
        let mut order = Vec::new();
        for tag in 0..60 {
            let now = Instant::from_micros(tag);
            network.send(now, 0, &frame(1, tag as u8));
            network.inject(now, 1, 0, frame(1, 100 + tag as u8));
        }
        while let Some(due) = network.next_due() {
            network.deliver(due, |port, queue| order.push((port, queue)));
        }
        let tags = |network: &mut Network, queue| {
            let frames = std::iter::from_fn(|| network.take(1, queue));
            frames.map(|frame| frame[20]).collect::<Vec<_>>()
        };
        let (even, odd) = (tags(&mut network, 0), tags(&mut network, 1));
        assert!(odd.is_sorted() && odd.len() == 30);
        let (own, sent): (Vec<u8>, Vec<u8>) = even.into_iter().partition(|tag| *tag >= 100);
        assert!(own.is_sorted() && sent.is_sorted() && (own.len(), sent.len()) == (60, 30));
        assert!(!order.iter().map(|(_, queue)| queue).is_sorted(), "both queues at a time");
        assert_eq!(network.audit(), Ok(()));
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let network = network(Faults { queue_frames: 3, ..Faults::none() });
        let mut network = network.borrow_mut();
        (0..20).for_each(|tag| network.send(Instant::ZERO, 0, &frame(2, tag)));
        assert_eq!(taken(&mut network, 2).len(), 6);
        assert_eq!(network.stats.overflowed, 14);
        assert_eq!(network.audit(), Ok(()));
    }
}
