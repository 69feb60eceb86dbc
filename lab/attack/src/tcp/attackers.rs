//! The attackers: scripts that send frames at their moments, and hear what passes the server's port.

use clock::{Duration, Instant};
use wire::{Endpoint, Ipv4Addr, SeqNumber, TcpFlags};
use world::dice::Dice;

use super::frames::{SERVER, Segment, VICTIM};
use super::honest::request;

/// Connections of an attack that opens its own.
pub const PEERS: u64 = 64;
/// Port of the first of them, all at one address behind the gateway.
const FIRST_PORT: u16 = 2_000;
const PEERS_HOST: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
/// How long the victim's connection is left alone first.
const VICTIM_SETTLES: Duration = Duration::from_millis(100);

/// One attack under way.
pub trait Attacker {
    /// When it acts next without hearing anything; the far future: never.
    fn next(&self) -> Instant;
    /// Sends what is due at [`next`](Self::next).
    fn act(&mut self, out: &mut Vec<Segment>);
    /// A segment passes the server's port, in either direction.
    fn hear(&mut self, _segment: Segment, _out: &mut Vec<Segment>) {}
}

/// Moments a gap apart, so many of them.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    /// The next one.
    pub at: Instant,
    /// From each to the next.
    pub gap: Duration,
    /// How many are left.
    pub left: u64,
}

impl Ticks {
    fn next(&self) -> Instant {
        if self.left > 0 { self.at } else { Instant::FAR_FUTURE }
    }

    fn pass(&mut self) {
        (self.at, self.left) = (self.at + self.gap, self.left - 1);
    }
}

/// SYNs from addresses that are not their sender's.
pub struct Spoofed {
    ticks: Ticks,
    is_near: bool,
    dice: Dice,
}

impl Spoofed {
    /// From addresses of the server's own network, or from behind its gateway.
    pub fn new(ticks: Ticks, is_near: bool, seed: u64) -> Self {
        Self { ticks, is_near, dice: Dice::new(seed, "spoofed", 0) }
    }
}

impl Attacker for Spoofed {
    fn next(&self) -> Instant {
        self.ticks.next()
    }

    fn act(&mut self, out: &mut Vec<Segment>) {
        self.ticks.pass();
        let word = self.dice.next();
        let [_, _, _, _, _, _, high, low] = word.to_be_bytes();
        let source = match self.is_near {
            // None of the hosts that there are.
            true => Ipv4Addr::new(10, 8, high | 1, low),
            false => Ipv4Addr::new(198, 18 | high & 1, (word >> 16) as u8, low),
        };
        let source = Endpoint::new(source, 1_024 | (word >> 32) as u16);
        out.push(Segment::syn(source, (word >> 24) as u32, 65_535));
    }
}

/// What the [`Peers`] do once they are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduct {
    /// Send single bytes, none next to another, ahead of a byte that never comes.
    Gaps,
    /// Ask for 4 MiB and read 100,000 bytes of them, so that much is under way. Three of four acknowledge nothing from then
    /// on, the others announce a window of zero.
    Unread,
    /// Ask for 1,000 bytes, after which the service closes, with a window for no more. Those with odd numbers take the
    /// second half of it back.
    Closed,
}

struct Peer {
    here: Endpoint,
    /// The next number to send, and the next one expected.
    seq: SeqNumber,
    ack: SeqNumber,
    /// Bytes that it will still read.
    reads: u32,
    /// Its window is as large as what it will still read, and not the largest until then.
    is_narrow: bool,
    is_open: bool,
}

/// Hosts that open a connection each.
pub struct Peers {
    conduct: Conduct,
    ticks: Ticks,
    acts: u64,
    peers: Vec<Peer>,
}

impl Peers {
    /// [`PEERS`] hosts, of which one acts at each tick: connects, or sends the next byte ahead of its gap.
    pub fn new(conduct: Conduct, ticks: Ticks, seed: u64) -> Self {
        let mut dice = Dice::new(seed, "peers", 0);
        let peer = |number: u64| Peer {
            here: Endpoint::new(PEERS_HOST, FIRST_PORT + number as u16),
            seq: SeqNumber(dice.next() as u32),
            ack: SeqNumber(0),
            reads: match conduct {
                Conduct::Gaps => 60_000,
                Conduct::Unread => 100_000,
                Conduct::Closed => {
                    if number.is_multiple_of(2) {
                        1_000
                    } else {
                        500
                    }
                }
            },
            is_narrow: conduct == Conduct::Closed,
            is_open: false,
        };
        Self { conduct, ticks, acts: 0, peers: (0..PEERS).map(peer).collect() }
    }
}

impl Peer {
    fn segment(&self, seq: SeqNumber, payload: Vec<u8>) -> Segment {
        let window = match self.reads {
            1.. if !self.is_narrow => u16::MAX,
            left => left as u16,
        };
        let (ack, flags) = (self.ack, TcpFlags::ACK);
        Segment { seq, ack, flags, payload, ..Segment::syn(self.here, 0, window) }
    }

    fn open(&mut self, conduct: Conduct, syn_ack: &Segment, out: &mut Vec<Segment>) {
        (self.ack, self.seq, self.is_open) = (syn_ack.seq + 1, syn_ack.ack, true);
        let asked = match conduct {
            Conduct::Gaps => return out.push(self.segment(self.seq, Vec::new())),
            Conduct::Unread => request(4 << 20, false, 0),
            Conduct::Closed => request(1_000, true, 0),
        };
        // The reply may fill this window, and not yet a smaller one.
        let first =
            Segment { window: 1_000.max(self.reads as u16), ..self.segment(self.seq, asked) };
        self.seq += first.payload.len() as u32;
        out.push(first);
    }

    /// Reads what it will, and acknowledges each segment that wants an answer.
    fn read(&mut self, segment: &Segment, is_silent: bool, out: &mut Vec<Segment>) {
        let begins = self.ack - segment.seq;
        let bytes = segment.payload.len() as u32;
        let is_fin = segment.flags.contains(TcpFlags::FIN);
        if bytes == 0 && !is_fin && begins == 0 {
            return;
        }
        if (0..bytes as i32).contains(&begins) {
            let read = (bytes - begins as u32).min(self.reads);
            (self.ack, self.reads) = (self.ack + read, self.reads - read);
        }
        if self.reads > 0 || !is_silent {
            out.push(self.segment(self.seq, Vec::new()));
        }
    }
}

impl Attacker for Peers {
    fn next(&self) -> Instant {
        self.ticks.next()
    }

    fn act(&mut self, out: &mut Vec<Segment>) {
        self.ticks.pass();
        let (number, round) = (self.acts % PEERS, self.acts / PEERS);
        self.acts += 1;
        let peer = &mut self.peers[number as usize];
        if round == 0 {
            out.push(Segment::syn(peer.here, peer.seq.0, u16::MAX));
        } else if self.conduct == Conduct::Gaps && peer.is_open {
            out.push(peer.segment(peer.seq + 2 * round as u32, vec![0]));
        }
    }

    fn hear(&mut self, segment: Segment, out: &mut Vec<Segment>) {
        let number = segment.dst.port.wrapping_sub(FIRST_PORT);
        let Some(peer) = self.peers.get_mut(usize::from(number)) else { return };
        if segment.src != SERVER || segment.dst != peer.here {
            return;
        }
        if segment.flags.contains(TcpFlags::RST) {
            peer.is_open = false;
        } else if segment.flags.contains(TcpFlags::SYN) && !peer.is_open {
            peer.open(self.conduct, &segment, out);
        } else if peer.is_open {
            peer.read(&segment, self.conduct == Conduct::Unread && !number.is_multiple_of(4), out);
        }
    }
}

/// Forges segments of the victim's connection, whose last ones it has seen: it is on the path.
pub struct OnPath {
    ticks: Ticks,
    acts: u64,
    /// It has both ends of the connection miss bytes, once; else it sends the server what it cannot accept.
    splits: bool,
    from_victim: Option<Segment>,
    from_server: Option<Segment>,
}

impl OnPath {
    /// Sends the server a segment that it cannot accept at each tick.
    pub fn unacceptable(ticks: Ticks) -> Self {
        let ticks = Ticks { at: ticks.at + VICTIM_SETTLES, ..ticks };
        Self { ticks, acts: 0, splits: false, from_victim: None, from_server: None }
    }

    /// Sends each end bytes that the other end never sent, at the first tick alone.
    pub fn splitting(ticks: Ticks) -> Self {
        let ticks = Ticks { at: ticks.at + VICTIM_SETTLES, left: 1, ..ticks };
        Self { ticks, acts: 0, splits: true, from_victim: None, from_server: None }
    }
}

impl Attacker for OnPath {
    fn next(&self) -> Instant {
        self.ticks.next()
    }

    fn act(&mut self, out: &mut Vec<Segment>) {
        self.ticks.pass();
        let (Some(victim), Some(server)) = (&self.from_victim, &self.from_server) else { return };
        let (seq, expected) = (server.ack, victim.ack);
        let forged = |one: &Segment, seq, ack, bytes| Segment {
            seq,
            ack,
            flags: TcpFlags::ACK,
            payload: vec![0; bytes],
            ..one.clone()
        };
        if self.splits {
            out.push(forged(victim, seq, expected, 4));
            out.push(forged(server, expected, seq, 4));
            return;
        }
        self.acts += 1;
        out.push(match self.acts % 4 {
            // Repeated, beyond the window, with and without data; an acknowledgment of what was never sent.
            0 => forged(victim, seq - 100, expected, 100),
            1 => forged(victim, seq + (1 << 28), expected, 100),
            2 => forged(victim, seq + (1 << 28), expected, 0),
            _ => forged(victim, seq, expected + (1 << 28), 0),
        });
    }

    fn hear(&mut self, segment: Segment, _: &mut Vec<Segment>) {
        // What it forged passes as well: the first segments without data after the request are the victim's own.
        if self.acts > 0 || segment.flags.contains(TcpFlags::SYN) {
            return;
        }
        if segment.src.addr == VICTIM.into() {
            self.from_victim = Some(segment);
        } else if segment.dst.addr == VICTIM.into() {
            self.from_server = Some(segment);
        }
    }
}
