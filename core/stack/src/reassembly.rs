//! Reassembly of IP fragments (RFC 791 §3.2, RFC 815, RFC 1122 §3.3.2; RFC 8200 §4.5, RFC 5722).
//!
//! Each core has a fixed number of slots, each of them for one incomplete datagram: one chunk, into which the fragments are
//! copied to where they belong, and a bitmap of the 8-byte blocks that came. A datagram that needs more than a chunk is
//! refused. A whole one leaves as the frame of an unfragmented packet. The stack itself sends no fragments.
//!
//! A slot ends with its datagram, after [`LIFE_SECONDS`], or for another one when there are no slots or there is no memory:
//! the class of peers with the most slots loses its oldest. So a peer that floods the slots with fragments only loses its own
//! as soon as others need some.
//!
//! Fragments that overlap refuse the whole datagram, with the fragments that are still to come (RFC 5722 §4): an overlap is
//! an attack, or two datagrams that share an identification (RFC 4963). An exact duplicate, with the same place, length and
//! bytes, is ignored: networks duplicate packets. With other bytes one of the two is wrong, and which one is not known.

use alloc::collections::VecDeque;
use core::ops::Range;

use clock::Duration;
use mem::{CHUNK_SIZE, Mbuf, Pool, TX_HEADROOM, Want};
use wire::{EthernetRepr, ip};

use crate::budget::CLASSES;
use crate::pairs::Pair;
use crate::stats::StackStats;
use crate::wheel::ticks;

/// Slots of a core. Their chunks count as bytes ahead of a gap ([`Want::OutOfOrder`]), of which they get the share of one
/// connection.
const SLOTS: usize = 64;
/// How long fragments are waited for (RFC 8200 §4.5; RFC 1122 §3.3.2: 60 to 120 s).
const LIFE_SECONDS: u64 = 60;
/// Bytes behind the headers of the largest datagram that is reassembled. The headers stand before [`TX_HEADROOM`].
const MAX_PAYLOAD: usize = CHUNK_SIZE - TX_HEADROOM;
/// Bytes in which offsets are counted.
const BLOCK: usize = 8;

/// A received fragment: where its bytes stand in its frame, and where they belong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment {
    pub key: Key,
    /// Bytes of the frame before the payload: link header, IP header, and over IPv6 all up to the Fragment header.
    pub headers: u16,
    /// Bytes of payload.
    pub len: u16,
    /// Where they belong in the datagram's, a multiple of eight.
    pub offset: u16,
    /// Whether others follow; `len` is then a multiple of eight.
    pub more: bool,
    /// A router has marked it (RFC 3168 §5.3).
    pub is_marked: bool,
}

/// Which datagram a fragment belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub pair: Pair,
    pub ident: u32,
    /// Over IPv4 (RFC 791 §3.2). Zero over IPv6, where the first fragment's Next Header is the datagram's.
    pub protocol: u8,
}

/// One bit for each block of a datagram.
#[derive(Clone, Copy, Default, Debug)]
struct Blocks([u128; 2]);

const _: () = assert!(MAX_PAYLOAD <= BLOCK * 256, "a bit for each block");

impl Blocks {
    /// The bits of a range of blocks.
    fn of(blocks: &Range<usize>) -> Self {
        let below = |end: usize| u128::MAX.checked_shr(128 - end as u32).unwrap_or(0);
        let word = |first: usize| {
            let [begin, end] =
                [blocks.start, blocks.end].map(|at| at.saturating_sub(first).min(128));
            below(end) & !below(begin)
        };
        Self([word(0), word(128)])
    }

    fn and(self, other: Self) -> Self {
        Self([self.0[0] & other.0[0], self.0[1] & other.0[1]])
    }

    fn insert(&mut self, other: Self) {
        self.0[0] |= other.0[0];
        self.0[1] |= other.0[1];
    }

    fn has_any(self, blocks: &Range<usize>) -> bool {
        self.and(Self::of(blocks)).0 != [0; 2]
    }

    fn has_all(self, blocks: &Range<usize>) -> bool {
        self.and(Self::of(blocks)).0 == Self::of(blocks).0
    }
}

/// What a fragment makes of its datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Inserted {
    Incomplete,
    Whole,
    /// Fragments overlap, or contradict each other about the datagram's end.
    Contradiction,
    TooLarge,
}

/// An incomplete datagram.
#[derive(Debug)]
struct Slot {
    key: Key,
    /// The class of the peer.
    class: u8,
    /// When it ends, in ticks.
    due: u64,
    /// Its payload, from [`TX_HEADROOM`] on, and before that the first fragment's headers. `None`: refused; the slot stays
    /// so that later fragments begin no new one.
    chunk: Option<Mbuf>,
    /// Bytes of the first fragment's headers; zero: it has not come.
    headers: u16,
    /// Bytes of the first fragment's payload.
    first_len: u16,
    /// Bytes of the whole payload, once the last fragment has come.
    total: Option<u16>,
    /// A fragment was marked.
    is_marked: bool,
    arrived: Blocks,
    /// First blocks of the fragments that came.
    begins: Blocks,
}

impl Slot {
    /// Copies a fragment, whose frame this is, to where it belongs.
    fn insert(&mut self, fragment: &Fragment, frame: &[u8]) -> Inserted {
        let Some(chunk) = &mut self.chunk else { return Inserted::Incomplete };
        let (offset, len) = (usize::from(fragment.offset), usize::from(fragment.len));
        let end = offset + len;
        let (headers, payload) = frame.split_at(usize::from(fragment.headers).min(frame.len()));
        let before = usize::from(self.headers);
        if end > MAX_PAYLOAD || payload.len() < len {
            return Inserted::TooLarge;
        }
        let (blocks, room) = (offset / BLOCK..end.div_ceil(BLOCK), before + offset..before + end);
        let (payload, is_last) = (&payload[..len], !fragment.more);
        if self.arrived.has_any(&blocks) {
            let is_same = chunk.bytes().get(room) == Some(payload);
            let is_duplicate = is_same && self.has_exactly(&blocks, end, is_last);
            return if is_duplicate { Inserted::Incomplete } else { Inserted::Contradiction };
        }
        // Of two last ones, one is beyond the other.
        let is_beyond = self.total.is_some_and(|total| end > usize::from(total));
        if is_beyond || is_last && self.arrived.has_any(&(blocks.end..MAX_PAYLOAD / BLOCK)) {
            return Inserted::Contradiction;
        }
        if let Some(room) = chunk.bytes_mut().get_mut(room) {
            room.copy_from_slice(payload);
        }
        if offset == 0 {
            let Ok(frame) = chunk.prepend(headers.len()) else { return Inserted::TooLarge };
            frame[..headers.len()].copy_from_slice(headers);
            (self.headers, self.first_len) = (fragment.headers, fragment.len);
        }
        if is_last {
            self.total = Some(end as u16);
        }
        self.is_marked |= fragment.is_marked;
        self.arrived.insert(Blocks::of(&blocks));
        self.begins.insert(Blocks::of(&(blocks.start..blocks.start + 1)));
        let all = self.total.map(|total| 0..usize::from(total).div_ceil(BLOCK));
        match all.is_some_and(|all| self.arrived.has_all(&all)) {
            true => Inserted::Whole,
            false => Inserted::Incomplete,
        }
    }

    /// Whether one of the fragments that came has just these blocks, and this end.
    fn has_exactly(&self, blocks: &Range<usize>, end: usize, is_last: bool) -> bool {
        let next = blocks.end..blocks.end + 1;
        self.arrived.has_all(blocks)
            && self.begins.has_any(&(blocks.start..blocks.start + 1))
            && !self.begins.has_any(&(blocks.start + 1..blocks.end))
            && (!self.arrived.has_any(&next) || self.begins.has_any(&next))
            && is_last == (self.total.map(usize::from) == Some(end))
    }

    /// The frame of the whole datagram.
    fn into_frame(self) -> Option<Mbuf> {
        let Self { chunk, headers, total, is_marked, .. } = self;
        let mut frame = chunk?;
        let headers = usize::from(headers);
        frame.truncate(headers + usize::from(total?));
        let packet = frame.bytes_mut().get_mut(EthernetRepr::HEADER_LEN..)?;
        ip::reassemble(packet, headers - EthernetRepr::HEADER_LEN);
        if is_marked {
            // RFC 3168 §5.3, of a datagram whose sender takes marks.
            ip::mark_congestion(packet);
        }
        Some(frame)
    }
}

/// The incomplete datagrams of a core.
#[derive(Debug)]
pub(crate) struct IncompleteDatagrams {
    /// Oldest first.
    slots: VecDeque<Slot>,
}

impl Default for IncompleteDatagrams {
    fn default() -> Self {
        Self { slots: VecDeque::with_capacity(SLOTS) }
    }
}

impl IncompleteDatagrams {
    /// Takes in a fragment of a peer of `class`, whose frame this is. Answers the frame of its datagram, where that is whole
    /// now: no device has verified its checksums.
    pub fn take_in(
        &mut self,
        fragment: &Fragment,
        frame: &[u8],
        (tick, class): (u64, u8),
        pool: &mut Pool,
        stats: &mut StackStats,
    ) -> Option<Mbuf> {
        // The newest first: most fragments come together.
        let at = match self.slots.iter().rposition(|slot| slot.key == fragment.key) {
            Some(at) => at,
            None => self.begin(fragment.key, class, tick, pool, stats)?,
        };
        let slot = self.slots.get_mut(at)?;
        match slot.insert(fragment, frame) {
            Inserted::Incomplete => return None,
            Inserted::Whole => {
                pool.unkeep();
                stats.reassembled += 1;
                return self.slots.remove(at)?.into_frame();
            }
            Inserted::Contradiction => stats.reassembly_refused += 1,
            Inserted::TooLarge => stats.reassembly_too_large += 1,
        }
        free(slot.chunk.take(), pool);
        None
    }

    /// A slot for a new datagram. `None`: there is no room.
    fn begin(
        &mut self,
        key: Key,
        class: u8,
        tick: u64,
        pool: &mut Pool,
        stats: &mut StackStats,
    ) -> Option<usize> {
        if !self.has_room(pool) {
            // One at most, whatever the memory is short for.
            stats.reassembly_no_room += 1;
            let victim = self.victim(class)?;
            free(self.slots.remove(victim)?.chunk, pool);
            if !self.has_room(pool) {
                return None;
            }
        }
        let Ok(mut chunk) = pool.alloc() else {
            stats.reassembly_no_room += 1;
            return None;
        };
        if chunk.extend(MAX_PAYLOAD).is_err() {
            pool.free(chunk);
            return None;
        }
        pool.keep();
        self.slots.push_back(Slot {
            key,
            class,
            due: tick + ticks(Duration::from_secs(LIFE_SECONDS)),
            chunk: Some(chunk),
            headers: 0,
            first_len: 0,
            total: None,
            is_marked: false,
            arrived: Blocks::default(),
            begins: Blocks::default(),
        });
        Some(self.slots.len() - 1)
    }

    /// When the time of the oldest datagram is over, in ticks.
    pub fn next_due(&self) -> u64 {
        self.slots.front().map_or(u64::MAX, |slot| slot.due)
    }

    /// Gives up a datagram whose time is over; `None`: there is none, refused ones aside.
    pub fn pop_expired(&mut self, tick: u64) -> Option<Expired> {
        while let Some(slot) = self.slots.pop_front_if(|slot| slot.due <= tick) {
            let Slot { key, chunk: Some(mut chunk), headers, first_len, .. } = slot else {
                continue;
            };
            // What is behind it may be of a packet that was in the chunk before.
            chunk.truncate(usize::from(headers) + usize::from(first_len));
            return Some(Expired { pair: key.pair, has_first: headers > 0, chunk });
        }
        None
    }

    /// Gives back what is incomplete.
    pub fn clear(&mut self, pool: &mut Pool) {
        self.slots.drain(..).for_each(|slot| free(slot.chunk, pool));
    }

    /// Whether another datagram can be begun.
    fn has_room(&self, pool: &Pool) -> bool {
        let chunks = self.slots.iter().filter(|slot| slot.chunk.is_some()).count();
        self.slots.len() < SLOTS
            && pool.allows(Want::OutOfOrder)
            && chunks < pool.share(Want::OutOfOrder)
    }

    /// The slot that a datagram of a peer of `class` takes the place of: the oldest of the class that has the most, with
    /// the new one. Where it is not slots that lack, of those that have a chunk.
    fn victim(&self, class: u8) -> Option<usize> {
        let lacks_slots = self.slots.len() >= SLOTS;
        let counts = |slot: &&Slot| lacks_slots || slot.chunk.is_some();
        let mut held = [0u8; CLASSES];
        held[usize::from(class)] = 1;
        let counted = || self.slots.iter().filter(counts);
        counted().for_each(|slot| held[usize::from(slot.class)] += 1);
        let most = counted().map(|slot| held[usize::from(slot.class)]).max()?;
        self.slots.iter().position(|slot| counts(&slot) && held[usize::from(slot.class)] == most)
    }
}

/// A datagram that did not become whole in time.
#[derive(Debug)]
pub(crate) struct Expired {
    pub pair: Pair,
    /// Whether the first fragment came.
    pub has_first: bool,
    /// That one's frame, or nothing. Its pool counts it as kept.
    pub chunk: Mbuf,
}

fn free(chunk: Option<Mbuf>, pool: &mut Pool) {
    if let Some(mbuf) = chunk {
        pool.unkeep();
        pool.free(mbuf);
    }
}
