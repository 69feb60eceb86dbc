//! A hierarchical timing wheel with a tick of 16 us (IX §4.2).
//!
//! Made for timers that are nearly always cancelled, and for connections of which most are idle and in
//! no cache. Setting one is a few instructions; nothing is ever cancelled; and an entry stays where it
//! was put until it fires, which is the only moment at which anybody looks at its connection. Entries
//! stand in blocks of two cache lines, so whoever takes them out can ask for the connections of the next
//! ones ahead of their use.
//!
//! Nine levels of 64 slots; a slot of level `n` is `8^n` ticks. An entry goes into the lowest level that
//! reaches its deadline and fires at the end of its slot: never early, and late by an eighth of the time
//! it waits at most (exactly where that is below a millisecond; a retransmission timer of 200 ms up to
//! 8 ms). No entry moves down a level, as nobody needs a long time-out to the tick.
//!
//! A connection knows which entries it has ([`TimerEntries`]): one whose deadline moved later leaves its
//! entry where it is and is asked again when that fires; one whose deadline moved nearer gets a second
//! entry before the first. An entry that nobody knows of any more fires for nothing.

use alloc::boxed::Box;
use alloc::vec::Vec;

use clock::Instant;

/// log2 of the tick in nanoseconds: 16.4 us.
pub const TICK_SHIFT: u32 = 14;
const LEVELS: usize = 9;
const SLOTS: usize = 64;
/// log2 of how much longer a slot is than one of the level below.
const LEVEL_SHIFT: u32 = 3;
/// Slots ahead that a level uses: the present one and the one before it are not among them, as they may
/// still be firing.
const AHEAD: u64 = SLOTS as u64 - 2;
/// Ticks ahead that the wheel reaches.
const HORIZON: u64 = AHEAD << (LEVEL_SHIFT * (LEVELS as u32 - 1));
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

/// What a connection knows of its entries: at most two, the earlier one first. Packed: a connection's two cache lines
/// have no byte to spare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, packed(2))]
pub struct TimerEntries {
    /// Low bits of the ticks at which they fire.
    first: u32,
    second: u32,
    known: u8,
}

impl TimerEntries {
    /// Whether an entry fires by `deadline` (low bits of a tick), or at most `late` ticks after it.
    #[inline(always)]
    pub fn covers(&self, deadline: u32, late: u32) -> bool {
        self.known > 0 && self.first.wrapping_sub(deadline) as i32 <= late as i32
    }

    /// As [`covers`](Self::covers), where a quarter of the time from `now` to the deadline is not too late.
    #[inline]
    pub fn covers_about(&self, deadline: u32, now: u32) -> bool {
        self.covers(deadline, (deadline.wrapping_sub(now) as i32).max(0) as u32 >> 2)
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
        let Self { first, second, known } = *self;
        if known > 0 && first == tick {
            self.first = second;
        } else if known < 2 || second != tick {
            return false;
        }
        self.known = known - 1;
        true
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
    /// The newest block of each slot. No block is empty.
    heads: [[u32; SLOTS]; LEVELS],
    occupied: [u64; LEVELS],
    #[expect(clippy::vec_box, reason = "growing must not move what is there")]
    blocks: Vec<Box<[Block; BLOCKS]>>,
    /// The first free block.
    free: u32,
    /// Level and slot of the entry that was taken last.
    firing: (u8, u8),
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
            firing: (0, 0),
        }
    }

    /// No entry fires before this tick.
    #[inline]
    pub fn next_due(&self) -> u64 {
        self.next_due
    }

    /// It is tick `now`, and nothing fires before or at it: entries that are set from now on are placed by
    /// how far they are from here. Without it one that is set after a long silence would be taken for one
    /// that waits long, and be as late as that allows.
    #[inline]
    pub fn advance(&mut self, now: u64) {
        if now < self.next_due {
            self.elapsed = self.elapsed.max(now);
        }
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

    /// Has `index` fire at `when` (at the next tick, where that is past), or not long after. Answers when
    /// that will be: the low bits of the tick.
    #[inline]
    pub fn insert(&mut self, index: u32, when: u64) -> u32 {
        let when = when.clamp(self.elapsed + 1, self.elapsed + HORIZON - 1);
        let level = level_of(when - self.elapsed);
        let shift = LEVEL_SHIFT * level as u32;
        // The end of the slot: where it begins, rounded up.
        let place = when.div_ceil(1 << shift);
        let fires = place << shift;
        self.next_due = self.next_due.min(fires);
        self.put(Entry { index, tick: fires as u32 }, level, place as usize % SLOTS);
        fires as u32
    }

    #[inline]
    fn put(&mut self, entry: Entry, level: usize, slot: usize) {
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
        match self.next_slot() {
            Some((level, slot, due)) if due <= now => {
                self.elapsed = self.elapsed.max(due);
                Some(self.pop(level, slot))
            }
            next => {
                self.next_due = next.map_or(u64::MAX, |(.., due)| due);
                self.elapsed = self.elapsed.max(now);
                None
            }
        }
    }

    /// Takes the newest entry of a slot, which has one.
    fn pop(&mut self, level: usize, slot: usize) -> Entry {
        let head = self.heads[level][slot];
        self.firing = (level as u8, slot as u8);
        let block = self.block(head);
        block.len -= 1;
        let (entry, next) = (block.entries[block.len as usize % BLOCK], block.next);
        if block.len == 0 {
            self.give_back(head);
            self.heads[level][slot] = next;
            if next == NONE {
                self.occupied[level] &= !(1 << slot);
            }
        }
        entry
    }

    /// Takes out every entry whose index `is_it` says, in no particular order: those of a flow group that
    /// leaves (IX §4.5). One pass over all entries, which stand together; nobody's connection is looked at.
    pub fn extract(&mut self, is_it: impl Fn(u32) -> bool, mut take: impl FnMut(Entry)) {
        for level in 0..LEVELS {
            let mut left = self.occupied[level];
            while left != 0 {
                let slot = left.trailing_zeros() as usize;
                left &= left - 1;
                self.extract_slot(level, slot, &is_it, &mut take);
            }
        }
    }

    fn extract_slot(
        &mut self,
        level: usize,
        slot: usize,
        is_it: &impl Fn(u32) -> bool,
        take: &mut impl FnMut(Entry),
    ) {
        let mut at = self.heads[level][slot];
        let mut before = NONE;
        while at != NONE {
            let block = self.block(at);
            let len = block.len as usize % (BLOCK + 1);
            let mut kept = 0;
            for index in 0..len {
                let entry = block.entries[index];
                if is_it(entry.index) {
                    take(entry);
                } else {
                    block.entries[kept] = entry;
                    kept += 1;
                }
            }
            block.len = kept as u32;
            let next = block.next;
            if kept > 0 {
                before = at;
            } else {
                match before {
                    NONE => self.heads[level][slot] = next,
                    _ => self.block(before).next = next,
                }
                self.give_back(at);
            }
            at = next;
        }
        if self.heads[level][slot] == NONE {
            self.occupied[level] &= !(1 << slot);
        }
    }

    /// Takes in an entry of another wheel, which fires at the very tick that it says, so that whoever knows of it
    /// still does; at the next tick, where that one is past. This wheel must stand about where the other
    /// one stands ([`advance`](Self::advance)): it is then no coarser.
    pub fn adopt(&mut self, entry: Entry) {
        let ahead = i64::from(entry.tick.wrapping_sub(self.elapsed as u32) as i32);
        let when = self.elapsed.saturating_add_signed(ahead);
        let when = when.clamp(self.elapsed + 1, self.elapsed + HORIZON - 1);
        // By the slot and not by the time: rounded up, an entry may stand one slot behind a level's last.
        let reaches = |level: &usize| {
            let shift = LEVEL_SHIFT * *level as u32;
            when.div_ceil(1 << shift) - (self.elapsed >> shift) <= AHEAD + 1
        };
        let level = (0..LEVELS).find(reaches).unwrap_or(LEVELS - 1);
        let shift = LEVEL_SHIFT * level as u32;
        let place = when.div_ceil(1 << shift);
        self.next_due = self.next_due.min(place << shift);
        self.put(entry, level, place as usize % SLOTS);
    }

    /// Entries that [`pop_expired`](Self::pop_expired) takes next, the very next one last, as far
    /// as they stand together: for their connections to be asked for ahead of their use.
    #[inline]
    pub fn upcoming(&self) -> &[Entry] {
        let (level, slot) = (self.firing.0 as usize % LEVELS, self.firing.1 as usize % SLOTS);
        let head = self.heads[level][slot] as usize;
        match self.blocks.get(head / BLOCKS).map(|blocks| &blocks[head % BLOCKS]) {
            Some(block) => &block.entries[..block.len as usize % (BLOCK + 1)],
            None => &[],
        }
    }

    /// The next occupied slot in time: level, slot, and the tick at which it fires.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        let mut best: Option<(usize, usize, u64)> = None;
        for level in 0..LEVELS {
            if self.occupied[level] == 0 {
                continue;
            }
            let shift = LEVEL_SHIFT * level as u32;
            let position = self.elapsed >> shift;
            let ahead = self.occupied[level].rotate_right(position as u32 % SLOTS as u32);
            let place = position + u64::from(ahead.trailing_zeros());
            let due = (place << shift).max(self.elapsed);
            if best.is_none_or(|(.., earliest)| due < earliest) {
                best = Some((level, place as usize % SLOTS, due));
            }
        }
        best
    }
}

/// The lowest level that reaches so many ticks ahead.
#[inline]
fn level_of(ahead: u64) -> usize {
    let mut level = 0;
    while level + 1 < LEVELS && ahead >= AHEAD << (LEVEL_SHIFT * level as u32) {
        level += 1;
    }
    level
}

#[cfg(test)]
mod tests;
