//! A hierarchical timing wheel with a tick of 16 us (IX §4.2).
//!
//! Made for timers that are nearly always cancelled: setting one is a few instructions, and a
//! connection whose deadline moved later leaves its entry where it is and is asked again when that
//! fires. Entries are linked through the connections themselves, so the wheel allocates nothing.
//!
//! Five levels of 64 slots; level `n` resolves `64^n` ticks. All of it spans almost five
//! hours; later deadlines fire then and are set again.

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
/// No entry.
pub(crate) const NONE: u32 = u32::MAX;
const NOT_SET: u16 = u16::MAX;

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

/// A connection's entry in its flow group's wheel.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TimerLinks {
    next: u32,
    prev: u32,
    /// Low bits of the tick at which the entry fires.
    tick: u32,
    slot: u16,
}

impl Default for TimerLinks {
    fn default() -> Self {
        Self { next: NONE, prev: NONE, tick: 0, slot: NOT_SET }
    }
}

impl TimerLinks {
    /// Whether the wheel holds this entry.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.slot != NOT_SET
    }

    /// Low bits of the tick at which it fires; meaningful while it is set.
    #[inline]
    pub fn tick(&self) -> u32 {
        self.tick
    }
}

/// Where the entries live.
pub trait TimerNodes {
    /// The links of entry `index`.
    fn links(&mut self, index: u32) -> &mut TimerLinks;
}

/// The wheel.
#[derive(Debug)]
pub struct Wheel {
    /// All entries at or before this tick have fired.
    elapsed: u64,
    /// Lower bound of the next tick at which something is to be done.
    next_due: u64,
    heads: [[u32; SLOTS]; LEVELS],
    occupied: [u64; LEVELS],
}

impl Wheel {
    /// An empty wheel that stands at tick `now`.
    pub fn new(now: u64) -> Self {
        Self {
            elapsed: now,
            next_due: u64::MAX,
            heads: [[NONE; SLOTS]; LEVELS],
            occupied: [0; LEVELS],
        }
    }

    /// No entry fires before this tick.
    #[inline]
    pub fn next_due(&self) -> u64 {
        self.next_due
    }

    /// Sets entry `index` to fire at `when` (at the next tick, where that is past). It must not be
    /// set already.
    pub fn insert(&mut self, nodes: &mut impl TimerNodes, index: u32, when: u64) {
        let when = when.clamp(self.elapsed + 1, self.elapsed + HORIZON);
        self.next_due = self.next_due.min(when);
        self.link(nodes, index, when);
    }

    fn link(&mut self, nodes: &mut impl TimerNodes, index: u32, when: u64) {
        let level = level_of(self.elapsed, when);
        let slot = (when >> (SLOT_BITS * level as u32)) as usize % SLOTS;
        let head = self.heads[level][slot];
        *nodes.links(index) = TimerLinks {
            next: head,
            prev: NONE,
            tick: when as u32,
            slot: (level * SLOTS + slot) as u16,
        };
        if head != NONE {
            nodes.links(head).prev = index;
        }
        self.heads[level][slot] = index;
        self.occupied[level] |= 1 << slot;
    }

    /// Removes entry `index`; no effect where it is not set.
    pub fn remove(&mut self, nodes: &mut impl TimerNodes, index: u32) {
        let links = *nodes.links(index);
        if !links.is_set() {
            return;
        }
        let (level, slot) = (links.slot as usize / SLOTS, links.slot as usize % SLOTS);
        if links.next != NONE {
            nodes.links(links.next).prev = links.prev;
        }
        if links.prev != NONE {
            nodes.links(links.prev).next = links.next;
        } else {
            self.heads[level][slot] = links.next;
            if links.next == NONE {
                self.occupied[level] &= !(1 << slot);
            }
        }
        *nodes.links(index) = TimerLinks::default();
    }

    /// Takes one entry that fires at or before tick `now`; `None` when there is no further one.
    pub fn pop_expired(&mut self, nodes: &mut impl TimerNodes, now: u64) -> Option<u32> {
        while let Some((level, slot, due)) = self.next_slot() {
            if due > now {
                self.next_due = due;
                self.elapsed = self.elapsed.max(now);
                return None;
            }
            self.elapsed = self.elapsed.max(due);
            let index = self.heads[level][slot];
            if level == 0 {
                self.remove(nodes, index);
                return Some(index);
            }
            self.cascade(nodes, level, slot);
        }
        self.next_due = u64::MAX;
        self.elapsed = self.elapsed.max(now);
        None
    }

    /// Spreads a slot over the levels below it.
    fn cascade(&mut self, nodes: &mut impl TimerNodes, level: usize, slot: usize) {
        let mut index = core::mem::replace(&mut self.heads[level][slot], NONE);
        self.occupied[level] &= !(1 << slot);
        while index != NONE {
            let links = *nodes.links(index);
            // The full tick: the one nearest to `elapsed` that has these low bits.
            let ahead = links.tick.wrapping_sub(self.elapsed as u32) as i32 as i64;
            let when = self.elapsed.saturating_add_signed(ahead).max(self.elapsed);
            self.link(nodes, index, when);
            index = links.next;
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
