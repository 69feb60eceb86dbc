//! The ready bits: flat up to 1,024 queues (two lines), with a summary above.
//!
//! ```text
//! set:    leaf |= bit; summary |= leaf's bit           always both: a producer depends on no other
//! clear:  leaf &= !bit                                 the summary is left as it is (lazy)
//! next:   an empty leaf under a set summary bit: summary &= !bit; leaf again; summary |= bit
//! ```
//!
//! All changes are read-modify-writes with acquire and release. That is what the proof of the
//! crate's front page rests on: those on one word are totally ordered, and whoever clears a bit
//! after another set it sees all that the other did before.

use alloc::boxed::Box;

use handshake::look;

use crate::sync::{AtomicU64, Mutant, Ordering, mutated, publishing};

/// Words of a block: two lines of 64 bytes, which x86 fetches together. Few for the model checker.
const BLOCK_WORDS: usize = if cfg!(loom) { 2 } else { 16 };
/// Most queues of a flat bitmap.
pub const FLAT_MAX: u32 = 1024;

/// Words that share no cache line with anything else.
#[derive(Debug)]
#[repr(align(128))]
struct Block([AtomicU64; BLOCK_WORDS]);

/// A run of words in blocks.
#[derive(Debug)]
struct Words {
    blocks: Box<[Block]>,
    len: usize,
}

impl Words {
    fn new(len: usize) -> Self {
        debug_assert!(len > 0);
        let block = || Block(core::array::from_fn(|_| AtomicU64::new(0)));
        Self { blocks: (0..len.div_ceil(BLOCK_WORDS)).map(|_| block()).collect(), len }
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        &self.blocks[index / BLOCK_WORDS].0[index % BLOCK_WORDS]
    }

    /// Which words of the first block are not zero, a bit each. All are read, without a branch: where
    /// the next ready queue is cannot be predicted, and a mispredicted branch costs more than the
    /// loads, which hit two lines.
    #[inline]
    fn non_zero(&self) -> u32 {
        let block = &self.blocks[0].0;
        let bits = block
            .iter()
            .enumerate()
            .map(|(index, word)| u32::from(word.load(Ordering::Acquire) != 0) << index);
        bits.fold(0, |all, bit| all | bit)
    }

    /// Whether a word of the first block is not zero.
    #[inline]
    fn any_in_first(&self) -> bool {
        if self.len == 1 {
            return self.blocks[0].0[0].load(Ordering::Relaxed) != 0;
        }
        self.blocks[0].0.iter().fold(0, |all, word| all | word.load(Ordering::Relaxed)) != 0
    }
}

/// The bit of a queue in its word.
#[inline]
fn bit_of(queue: u32) -> u64 {
    1 << (queue % 64)
}

/// Bits at or above a queue's in its word.
#[inline]
fn from_bit(queue: u32) -> u64 {
    !0 << (queue % 64)
}

/// Ready bits with a summary where they are many, and mask bits beside them.
#[derive(Debug)]
pub(crate) struct Bitmap {
    ready: Words,
    mask: Words,
    summary: Option<Words>,
}

impl Bitmap {
    /// No queue ready, none masked.
    pub(crate) fn new(capacity: u32) -> Self {
        if capacity <= FLAT_MAX { Self::flat(capacity) } else { Self::two_level(capacity) }
    }

    pub(crate) fn flat(capacity: u32) -> Self {
        let words = capacity.div_ceil(64) as usize;
        Self { ready: Words::new(words), mask: Words::new(words), summary: None }
    }

    pub(crate) fn two_level(capacity: u32) -> Self {
        let flat = Self::flat(capacity);
        let summary = Words::new(flat.ready.len.div_ceil(64));
        Self { summary: Some(summary), ..flat }
    }

    /// Sets a queue's ready bit.
    #[inline]
    pub(crate) fn set(&self, queue: u32) {
        let leaf = queue / 64;
        let word = self.ready.word(leaf as usize);
        if mutated(Mutant::RelaxedSkip) && word.load(Ordering::Relaxed) & bit_of(queue) != 0 {
            return;
        }
        let order = publishing(Mutant::SetWithoutAcquire);
        word.fetch_or(bit_of(queue), order);
        if let Some(summary) = &self.summary {
            summary.word((leaf / 64) as usize).fetch_or(bit_of(leaf), order);
        }
    }

    /// Clears a queue's ready bit; true where it was set.
    #[inline]
    pub(crate) fn clear(&self, queue: u32) -> bool {
        let word = self.ready.word((queue / 64) as usize);
        if mutated(Mutant::ClearByStore) {
            let old = word.load(Ordering::Acquire);
            word.store(old & !bit_of(queue), Ordering::Release);
            return old & bit_of(queue) != 0;
        }
        word.fetch_and(!bit_of(queue), Ordering::AcqRel) & bit_of(queue) != 0
    }

    /// Whether a queue's ready bit is set. For a consumer that alone sets it.
    #[inline]
    pub(crate) fn is_set(&self, queue: u32) -> bool {
        let word = self.ready.word((queue / 64) as usize);
        word.load(Ordering::Acquire) & bit_of(queue) != 0
    }

    /// Sets or clears a queue's mask bit.
    pub(crate) fn set_mask(&self, queue: u32, masked: bool) {
        let word = self.mask.word((queue / 64) as usize);
        if masked {
            word.fetch_or(bit_of(queue), Ordering::AcqRel);
        } else {
            word.fetch_and(!bit_of(queue), publishing(Mutant::EnableWithoutAcquire));
        }
    }

    /// Whether a queue's mask bit is set.
    #[inline]
    pub(crate) fn is_masked(&self, queue: u32) -> bool {
        self.mask.word((queue / 64) as usize).load(Ordering::Acquire) & bit_of(queue) != 0
    }

    /// The same, for a consumer that announced its sleep.
    pub(crate) fn is_masked_before_sleep(&self, queue: u32) -> bool {
        look(self.mask.word((queue / 64) as usize)) & bit_of(queue) != 0
    }

    /// Ready and enabled bits of a leaf. The masks' line is read only where a bit is set.
    #[inline]
    fn enabled(&self, index: usize, ready: u64) -> u64 {
        if ready == 0 { 0 } else { ready & !self.mask.word(index).load(Ordering::Acquire) }
    }

    /// The first ready and enabled queue at or after `from`, in circular order. `resurfaced` is set
    /// where a leaf that others may have taken for empty meanwhile turned out not to be: whoever
    /// sleeps by that mistake must then be woken.
    #[inline]
    pub(crate) fn next(&self, from: u32, resurfaced: &mut bool) -> Option<u32> {
        match &self.summary {
            None => self.next_flat(from),
            Some(summary) => self.next_two_level(summary, from, resurfaced),
        }
    }

    #[inline]
    fn next_flat(&self, from: u32) -> Option<u32> {
        let first = (from / 64) as usize;
        let load = |index| self.enabled(index, self.ready.word(index).load(Ordering::Acquire));
        let answer = |index: usize, word: u64| Some(index as u32 * 64 + word.trailing_zeros());
        // The first word is read once and used at both ends of the round.
        let start = load(first);
        // Where most queues are busy it is the very next one. A branch of its own, as that can be
        // predicted: the processor then looks at the queue's doorbell without waiting for this word.
        if start & bit_of(from) != 0 {
            return Some(from);
        }
        if start & from_bit(from) != 0 {
            return answer(first, start & from_bit(from));
        }
        if self.ready.len > 1 {
            let later = self.ready.non_zero() & !(1 << first);
            for mut candidates in [later & (!0 << first), later & !(!0 << first)] {
                while candidates != 0 {
                    let index = candidates.trailing_zeros() as usize;
                    let word = load(index);
                    if word != 0 {
                        return answer(index, word);
                    }
                    // Only disabled queues, or another consumer was faster.
                    candidates &= candidates - 1;
                }
            }
        }
        if start != 0 { answer(first, start) } else { None }
    }

    fn next_two_level(&self, summary: &Words, from: u32, resurfaced: &mut bool) -> Option<u32> {
        let (first, leaves) = (from / 64, self.ready.len as u32);
        // The round begins in the middle of the first leaf and ends there.
        let rounds = [(first, leaves, from_bit(from)), (0, first + 1, !from_bit(from))];
        for (low, high, first_mask) in rounds {
            let mut at = low;
            while let Some(leaf) = next_leaf(summary, at, high) {
                let ready = self.leaf_or_tidy(summary, leaf, resurfaced);
                let mut word = self.enabled(leaf as usize, ready);
                if leaf == first {
                    word &= first_mask;
                }
                if word != 0 {
                    return Some(leaf * 64 + word.trailing_zeros());
                }
                at = leaf + 1;
            }
        }
        None
    }

    /// The leaf's word; where that is zero its summary bit is cleared, and set again if the leaf
    /// has filled meanwhile. The same proof as for a queue's bit, with the leaf for the doorbell.
    fn leaf_or_tidy(&self, summary: &Words, leaf: u32, resurfaced: &mut bool) -> u64 {
        let word = self.ready.word(leaf as usize);
        let ready = word.load(Ordering::Acquire);
        if ready != 0 {
            return ready;
        }
        let above = summary.word((leaf / 64) as usize);
        above.fetch_and(!bit_of(leaf), Ordering::AcqRel);
        if mutated(Mutant::MissingLeafRecheck) {
            return 0;
        }
        let again = word.load(Ordering::Acquire);
        if again != 0 {
            above.fetch_or(bit_of(leaf), publishing(Mutant::SetWithoutAcquire));
            *resurfaced = true;
        }
        again
    }

    /// Whether a queue is ready and enabled.
    pub(crate) fn any(&self) -> bool {
        self.any_by(|word| word.load(Ordering::Acquire))
    }

    /// The same, for a consumer that announced its sleep: each word in which others publish is read by an
    /// exchange, so that whoever publishes later sees the announcement.
    pub(crate) fn any_before_sleep(&self) -> bool {
        self.any_by(look)
    }

    fn any_by(&self, read: impl Fn(&AtomicU64) -> u64) -> bool {
        let any_leaf = |index| {
            let ready = read(self.ready.word(index));
            ready != 0 && ready & !read(self.mask.word(index)) != 0
        };
        match &self.summary {
            None => (0..self.ready.len).any(any_leaf),
            Some(summary) => (0..summary.len).any(|word| {
                let mut bits = read(summary.word(word));
                core::iter::from_fn(|| {
                    let bit = bits.trailing_zeros();
                    bits &= bits.wrapping_sub(1);
                    (bit < 64).then_some(word * 64 + bit as usize)
                })
                .any(any_leaf)
            }),
        }
    }

    /// False: nothing was ready a moment ago. True: something may have been, or was only disabled.
    /// Two lines are read, whatever the number of queues.
    #[inline]
    pub(crate) fn hint(&self) -> bool {
        // Either is one block: a flat bitmap's words, or the summary of the largest one.
        self.summary.as_ref().unwrap_or(&self.ready).any_in_first()
    }
}

/// The first leaf from `low` and below `high` whose summary bit is set.
#[inline]
fn next_leaf(summary: &Words, low: u32, high: u32) -> Option<u32> {
    if low >= high {
        return None;
    }
    let mut keep = from_bit(low);
    for index in low / 64..high.div_ceil(64) {
        let word = summary.word(index as usize).load(Ordering::Acquire) & keep;
        if word != 0 {
            let leaf = index * 64 + word.trailing_zeros();
            return (leaf < high).then_some(leaf);
        }
        keep = !0;
    }
    None
}
