//! A hierarchical timing wheel with a tick of 16 us (IX §4.2).
//!
//! Made for timers that are nearly always cancelled, and for connections of which most are idle and in
//! no cache: setting one is a few instructions, nothing is ever cancelled, and an entry's way down the
//! levels never touches the connection that it is of. Entries stand in blocks of two cache lines, so
//! whoever takes them out can ask for the connections of the next ones ahead of their use.
//!
//! A connection knows which entries it has ([`TimerEntries`]): one whose deadline moved later leaves its
//! entry where it is and is asked again when that fires; one whose deadline moved nearer gets a second
//! entry before the first. An entry that nobody knows of any more fires for nothing.
//!
//! Five levels of 64 slots; level `n` resolves `64^n` ticks. All of it spans almost five
//! hours; later deadlines fire then and are set again.

use alloc::boxed::Box;
use alloc::vec::Vec;

use clock::Instant;

/// log2 of the tick in nanoseconds: 16.4 us.
pub const TICK_SHIFT: u32 = 14;
const LEVELS: usize = 5;
const SLOTS: usize = 64;
const SLOT_BITS: u32 = 6;
/// Ticks of one turn of the uppermost level.
const SPAN: u64 = 1 << (SLOT_BITS * LEVELS as u32);
/// Ticks ahead that the wheel can tell apart: a turn less one slot of the uppermost level, so that
/// an entry never stands in the slot that the present is in, a turn away.
const HORIZON: u64 = SPAN - SPAN / SLOTS as u64;
/// No block.
const NONE: u32 = u32::MAX;
/// Entries of a block.
const BLOCK: usize = 15;
/// Blocks that are allocated together, and never moved: growing copies nothing.
const BLOCKS: usize = 16;

/// A moment in ticks, rounded down.
#[inline]
pub fn tick_of(now: Instant) -> u64 {
    now.as_nanos() >> TICK_SHIFT
}

/// A duration in ticks, rounded up, at least one.
#[inline]
pub fn ticks(duration: core::time::Duration) -> u64 {
    let nanos = duration.as_nanos().min(u64::MAX as u128 >> 1) as u64;
    nanos.div_ceil(1 << TICK_SHIFT).max(1)
}

/// What a connection knows of its entries: at most two, the earlier one first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimerEntries {
    /// Low bits of the ticks at which they fire.
    first: u32,
    second: u32,
    known: u8,
}

impl TimerEntries {
    /// Whether an entry fires at this tick (its low bits) or before.
    #[inline]
    pub fn fires_by(&self, tick: u32) -> bool {
        self.known > 0 && self.first.wrapping_sub(tick) as i32 <= 0
    }

    /// Notes an entry that was set, and that fires before all others. A third makes it forget the last.
    #[inline]
    pub fn note(&mut self, tick: u32) {
        self.second = self.first;
        self.first = tick;
        self.known = (self.known + 1).min(2);
    }

    /// An entry fired at `tick`. Answers whether it is one that is known: it is not any more.
    #[inline]
    pub fn take(&mut self, tick: u32) -> bool {
        match *self {
            Self { known: 1.., first, .. } if first == tick => {
                self.first = self.second;
                self.known -= 1;
                true
            }
            Self { known: 2, second, .. } if second == tick => {
                self.known = 1;
                true
            }
            _ => false,
        }
    }
}

/// One entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Whose it is.
    pub index: u32,
    /// Low bits of the tick at which it fires.
    pub tick: u32,
}

/// Entries of one slot, newest last; two cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Block {
    /// The next block of the slot, or of the free ones.
    next: u32,
    len: u32,
    entries: [Entry; BLOCK],
}

const _: () = assert!(size_of::<Block>() == 128);

const EMPTY: Block = Block { next: NONE, len: 0, entries: [Entry { index: 0, tick: 0 }; BLOCK] };

/// The wheel.
#[derive(Debug)]
pub struct Wheel {
    /// All entries at or before this tick have fired.
    elapsed: u64,
    /// Lower bound of the next tick at which something is to be done.
    next_due: u64,
    /// The newest block of each slot. It is never empty; those behind it are full.
    heads: [[u32; SLOTS]; LEVELS],
    occupied: [u64; LEVELS],
    #[expect(clippy::vec_box, reason = "growing must not move what is there")]
    blocks: Vec<Box<[Block; BLOCKS]>>,
    /// The first free block.
    free: u32,
}

impl Wheel {
    /// An empty wheel that stands at tick `now`.
    pub fn new(now: u64) -> Self {
        Self {
            elapsed: now,
            next_due: u64::MAX,
            heads: [[NONE; SLOTS]; LEVELS],
            occupied: [0; LEVELS],
            blocks: Vec::new(),
            free: NONE,
        }
    }

    /// No entry fires before this tick.
    #[inline]
    pub fn next_due(&self) -> u64 {
        self.next_due
    }

    /// Bytes of the blocks.
    pub fn bytes(&self) -> usize {
        self.blocks.len() * size_of::<[Block; BLOCKS]>()
            + self.blocks.capacity() * size_of::<usize>()
    }

    #[inline]
    fn block(&mut self, at: u32) -> &mut Block {
        &mut self.blocks[at as usize / BLOCKS][at as usize % BLOCKS]
    }

    /// Has `index` fire at `when` (at the next tick, where that is past). Answers when that will be:
    /// the low bits of the tick.
    #[inline]
    pub fn insert(&mut self, index: u32, when: u64) -> u32 {
        let when = when.clamp(self.elapsed + 1, self.elapsed + HORIZON);
        self.next_due = self.next_due.min(when);
        self.put(Entry { index, tick: when as u32 }, when);
        when as u32
    }

    #[inline]
    fn put(&mut self, entry: Entry, when: u64) {
        let level = level_of(self.elapsed, when);
        let slot = (when >> (SLOT_BITS * level as u32)) as usize % SLOTS;
        let mut head = self.heads[level][slot];
        if head == NONE || self.block(head).len as usize == BLOCK {
            let fresh = self.take_block();
            *self.block(fresh) = Block { next: head, ..EMPTY };
            self.heads[level][slot] = fresh;
            self.occupied[level] |= 1 << slot;
            head = fresh;
        }
        let block = self.block(head);
        block.entries[block.len as usize % BLOCK] = entry;
        block.len += 1;
    }

    /// A block that is free. Allocates now and then: when more timers are set than ever before.
    fn take_block(&mut self) -> u32 {
        if self.free == NONE {
            let first = (self.blocks.len() * BLOCKS) as u32;
            self.blocks.push(Box::new([EMPTY; BLOCKS]));
            for at in first..first + BLOCKS as u32 {
                self.give_back(at);
            }
        }
        let at = self.free;
        self.free = self.block(at).next;
        at
    }

    fn give_back(&mut self, at: u32) {
        self.block(at).next = self.free;
        self.free = at;
    }

    /// Takes one entry that fires at or before tick `now`; `None` when there is no further one.
    #[inline]
    pub fn pop_expired(&mut self, now: u64) -> Option<Entry> {
        while let Some((level, slot, due)) = self.next_slot() {
            if due > now {
                self.next_due = due;
                self.elapsed = self.elapsed.max(now);
                return None;
            }
            self.elapsed = self.elapsed.max(due);
            if level == 0 {
                return Some(self.pop(slot));
            }
            self.cascade(level, slot);
        }
        self.next_due = u64::MAX;
        self.elapsed = self.elapsed.max(now);
        None
    }

    /// Takes the newest entry of a slot of the lowest level, which has one.
    fn pop(&mut self, slot: usize) -> Entry {
        let head = self.heads[0][slot];
        let block = self.block(head);
        block.len -= 1;
        let (entry, next) = (block.entries[block.len as usize % BLOCK], block.next);
        if block.len == 0 {
            self.give_back(head);
            self.heads[0][slot] = next;
            if next == NONE {
                self.occupied[0] &= !(1 << slot);
            }
        }
        entry
    }

    /// The entries that [`pop_expired`](Self::pop_expired) takes next, the very next one last, as far
    /// as they stand together: for their connections to be asked for ahead of their use.
    #[inline]
    pub fn upcoming(&self) -> &[Entry] {
        let slot = self.elapsed as usize % SLOTS;
        let head = self.heads[0][slot] as usize;
        match self.blocks.get(head / BLOCKS).map(|blocks| &blocks[head % BLOCKS]) {
            Some(block) => &block.entries[..block.len as usize % (BLOCK + 1)],
            None => &[],
        }
    }

    /// Spreads a slot over the levels below it.
    fn cascade(&mut self, level: usize, slot: usize) {
        let mut at = core::mem::replace(&mut self.heads[level][slot], NONE);
        self.occupied[level] &= !(1 << slot);
        while at != NONE {
            let Block { next, len, entries } = *self.block(at);
            self.give_back(at);
            for entry in entries.into_iter().take(len as usize) {
                // The full tick: the one nearest to `elapsed` that has these low bits.
                let ahead = entry.tick.wrapping_sub(self.elapsed as u32) as i32 as i64;
                let when = self.elapsed.saturating_add_signed(ahead).max(self.elapsed);
                self.put(entry, when);
            }
            at = next;
        }
    }

    /// The next occupied slot in time: level, slot, and the tick at which it begins.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        let mut best: Option<(usize, usize, u64)> = None;
        for level in 0..LEVELS {
            if self.occupied[level] == 0 {
                continue;
            }
            let shift = SLOT_BITS * level as u32;
            let position = (self.elapsed >> shift) as u32 % SLOTS as u32;
            let ahead = self.occupied[level].rotate_right(position).trailing_zeros();
            let slot = (position + ahead) as usize % SLOTS;
            let due = ((self.elapsed >> shift) + ahead as u64) << shift;
            let due = due.max(self.elapsed);
            if best.is_none_or(|(.., earliest)| due < earliest) {
                best = Some((level, slot, due));
            }
        }
        best
    }
}

/// The level on which the slots of both ticks differ.
#[inline]
fn level_of(elapsed: u64, when: u64) -> usize {
    let differing = (elapsed ^ when) | (SLOTS as u64 - 1);
    let level = (63 - differing.leading_zeros()) / SLOT_BITS;
    (level as usize).min(LEVELS - 1)
}

#[cfg(test)]
mod tests;
