//! What a liar writes: calls that are nearly right, and words at the edges. Everything follows from a seed and
//! from what the dataplane told.

use domain::Handle;
use process::layout::RECORD_WORDS;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::joined::Joined;

/// Handles that a liar remembers, of either kind.
const REMEMBERED: usize = 64;
/// Kinds of events, as the dataplane numbers them.
pub const KNOCK: u64 = 0;
/// See [`KNOCK`].
pub const RECEIVED: u64 = 3;
/// See [`KNOCK`].
pub const END_OF_STREAM: u64 = 5;
/// See [`KNOCK`].
pub const DEAD: u64 = 7;
/// Kinds of calls.
pub const CONNECT: u64 = 0;
/// See [`CONNECT`].
pub const ACCEPT: u64 = 1;
/// See [`CONNECT`].
pub const SEND: u64 = 2;
/// See [`CONNECT`].
pub const DONE_WITH: u64 = 3;
/// See [`CONNECT`].
pub const CLOSE: u64 = 4;
/// See [`CONNECT`].
pub const DATAGRAM: u64 = 7;
/// See [`CONNECT`].
pub const SEND_RECEIVED: u64 = 8;

/// A call as words.
pub type Call = [u64; RECORD_WORDS];

/// How far from the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Falsehood {
    /// Calls of which a word is changed, in percent.
    pub changed: u32,
    /// Calls of nothing but odd words, in percent.
    pub nonsense: u32,
    /// Batches of which the counts are odd, in percent.
    pub counts: u32,
    /// One batch in so many is as long as the array.
    pub long: u32,
}

/// One that is believed as little as any.
pub const MIXED: Falsehood = Falsehood { changed: 25, nonsense: 15, counts: 5, long: 2_000 };
/// One that has mostly plausible things done.
pub const PLAUSIBLE: Falsehood = Falsehood { changed: 3, nonsense: 1, counts: 1, long: 10_000 };

/// See the module's comment.
pub struct Liar {
    /// Where its choices come from.
    pub random: Xoshiro256PlusPlus,
    /// Handles of connections that were open when last heard of.
    pub open: Vec<u64>,
    /// Handles of those that have ended.
    pub stale: Vec<u64>,
    /// Events heard, by kind; those of no known kind last.
    pub heard: [u64; 11],
    falsehood: Falsehood,
    /// Addresses to connect and send to, with port: `address << 16 | port`.
    pub peers: Vec<u64>,
    /// Honest answers to what was told: accepts, echoes, ends.
    answers: Vec<Call>,
}

/// A word that a liar would like: at the edges of what is allowed, far beyond, or nearly right.
pub fn odd(random: &mut impl Rng, near: u64) -> u64 {
    match random.random_range(0..8) {
        0 => u64::MAX - random.random_range(0..3),
        1 => random.random(),
        2 => 1 << random.random_range(0..64),
        3 => near,
        4 => near.wrapping_add(1),
        5 => near.wrapping_sub(1),
        6 => random.random_range(0..9),
        _ => random.random_range(0..70_000),
    }
}

impl Liar {
    /// A liar whose choices follow from a seed.
    pub fn new(seed: u64, falsehood: Falsehood) -> Self {
        Self {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            open: Vec::new(),
            stale: Vec::new(),
            heard: [0; 11],
            falsehood,
            peers: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Hears what the dataplane tells in the batch at hand.
    pub fn listen(&mut self, joined: &Joined) {
        for [first, handle, _, fourth] in joined.told() {
            let kind = first & 0xff;
            self.heard[kind.min(10) as usize] += 1;
            match kind {
                KNOCK => {
                    remember(&mut self.open, handle, &mut self.random);
                    self.answers.push([ACCEPT, handle, handle, 0]);
                }
                1 => remember(&mut self.open, handle, &mut self.random),
                RECEIVED => {
                    let bytes = first >> 16 & 0xffff;
                    if self.random.random_bool(0.5) {
                        let place = fourth & 0xffff_ffff | (first >> 8 & 0xff) << 32;
                        self.answers.push([SEND_RECEIVED, handle, place << 16 | bytes, bytes]);
                    } else {
                        self.answers.push([SEND | 1 << 32, handle, bytes, 0]);
                        self.answers.push([DONE_WITH, handle, bytes, 0]);
                    }
                }
                END_OF_STREAM => self.answers.push([CLOSE, handle, 0, 0]),
                DEAD => {
                    self.open.retain(|open| *open != handle);
                    remember(&mut self.stale, handle, &mut self.random);
                }
                _ => {}
            }
        }
    }

    /// How far from the truth it is from now on.
    pub fn set_falsehood(&mut self, falsehood: Falsehood) {
        self.falsehood = falsehood;
    }

    /// What an honest application would ask for after what was told.
    pub fn answers(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.answers)
    }

    /// A handle: of an open connection, a closed one, one beside it, or any.
    pub fn handle(&mut self) -> u64 {
        let random = &mut self.random;
        let own = self.open.choose(random).copied().unwrap_or(0);
        match random.random_range(0..10) {
            0 => self.stale.choose(random).copied().unwrap_or(own),
            1 => neighbour(own, random),
            2 if random.random_bool(0.5) => odd(random, own),
            _ => own,
        }
    }

    /// A call that an honest application could make, but for its handle perhaps.
    fn plausible(&mut self, arena: u64, pieces: u32) -> Call {
        let handle = self.handle();
        let random = &mut self.random;
        let peer = self.peers.choose(random).copied().unwrap_or(0x0a00_0002_0007);
        let len = [0, 1, 64, 1_448, 1_449, 2_048, 65_535][random.random_range(0..7)];
        let piece = random.random_range(0..arena.saturating_sub(len).max(1)) << 16 | len;
        let several = (u64::from(pieces.min(3)) << 32, u64::from(pieces.saturating_sub(3)));
        match random.random_range(0..20) {
            0 => [CONNECT, random.random(), peer, 0],
            1 => [ACCEPT, handle, random.random(), 0],
            2 => [SEND | 1 << 32, handle, piece, 0],
            3 => [SEND_RECEIVED, handle, piece, random.random_range(0..2_000)],
            4..=5 => [SEND | 1 << 32, handle, piece, random.random_range(0..2_000)],
            6 => [SEND | several.0, handle, 0, several.1],
            7 => [SEND, handle, 0, 0],
            8..=11 => [DONE_WITH, handle, random.random_range(0..2_000), 0],
            12 => [CLOSE, handle, 0, 0],
            13 => [5, handle, 0, 0],
            14 | 15 => [6, handle, 0, 0],
            16 => [DATAGRAM | 9 << 16 | several.0, 0, peer, several.1],
            _ => [DATAGRAM | 9 << 16 | 1 << 32, piece, peer, 0],
        }
    }

    fn one(&mut self, arena: u64, pieces: u32) -> Call {
        let mut call = match self.answers.pop() {
            Some(answer) if self.random.random_bool(0.9) => answer,
            _ => self.plausible(arena, pieces),
        };
        let Falsehood { changed, nonsense, .. } = self.falsehood;
        let random = &mut self.random;
        let dice = random.random_range(0..100);
        if dice < changed {
            let word = random.random_range(0..RECORD_WORDS);
            let near = if word == 0 { call[0] } else { arena << 16 };
            call[word] = odd(random, near);
        } else if dice < changed + nonsense {
            call = std::array::from_fn(|_| odd(random, arena));
        }
        call
    }

    /// Writes a batch of calls.
    pub fn lie(&mut self, joined: &Joined) {
        let (geometry, arena) = (joined.geometry, joined.arena.len() as u64);
        let pieces = self.random.random_range(0..=8);
        for index in 0..pieces {
            let (random, lying) = (&mut self.random, self.falsehood.changed / 2);
            let honest = random.random_range(0..arena) << 16 | random.random_range(0..200);
            let lies = random.random_range(0..100) < lying;
            let word = if lies { odd(random, arena) << 16 | odd(random, 9) } else { honest };
            joined.write(geometry.piece(index as usize), word);
        }
        let long = self.random.random_range(0..self.falsehood.long) == 0;
        let most = if long { geometry.call_records() } else { 6.max(self.answers.len().min(64)) };
        let count = self.random.random_range(0..=most);
        for index in 0..count {
            let call = self.one(arena, pieces);
            joined.call(index, call);
        }
        self.answers.truncate(1_024);
        let random = &mut self.random;
        let lies = random.random_range(0..100) < self.falsehood.counts;
        let told = if lies { odd(random, geometry.call_records() as u64) } else { count as u64 };
        let piece_count = if lies { odd(random, geometry.arena_chunks.into()) } else { 8 };
        let wish = if random.random_bool(0.3) { odd(random, 0) } else { u64::MAX };
        joined.counts(told as u32, piece_count as u32, wish);
    }
}

/// A handle beside another one: of the same group and slot with another generation, or the other way round.
pub fn neighbour(handle: u64, random: &mut impl Rng) -> u64 {
    let of = Handle::from_bits(handle);
    let (group, slot, generation) = (of.group(), of.slot(), of.generation());
    let step = if random.random_bool(0.5) { 1 } else { u32::MAX };
    match random.random_range(0..5) {
        0 => Handle::new(group, slot.wrapping_add(step), generation),
        1 => Handle::new(group, slot, generation.wrapping_add(step)),
        2 => Handle::new(group, slot, 0),
        3 => Handle::new(group, slot, u32::MAX),
        _ => Handle::new(group.wrapping_add(step as u16), slot, generation),
    }
    .to_bits()
}

fn remember(list: &mut Vec<u64>, handle: u64, random: &mut impl Rng) {
    if list.len() < REMEMBERED {
        list.push(handle);
    } else {
        list[random.random_range(0..REMEMBERED)] = handle;
    }
}
