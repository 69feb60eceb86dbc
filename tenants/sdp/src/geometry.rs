//! What a tenant asked for, checked, and where everything then lies in its memory.
//!
//! ```
//! use sdp::{DoorbellLayout, Shape};
//! let shape = Shape { queues: 4, depth: 64, slot_bytes: 256, doorbells: DoorbellLayout::Packed };
//! let memory = shape.check()?.memory_bytes();
//! assert!(memory < 256 << 10);
//! # Ok::<(), sdp::ShapeError>(())
//! ```
//!
//! ```text
//! page 0      waiting | per set word: ready, idle                        tenant, see below
//! page 1 …    doorbells, 128 B or a page apart                           tenant +, plane -
//! per queue   consumed | submission slots | completion slots             tenant; tenant; plane
//! slot        header: length << 32 | number;  payload                    multiple of 64 B
//! ```
//!
//! What the two sides write lies 128 bytes apart (adjacent lines are fetched in pairs), but slots,
//! each of which has one writer for as long as it carries one message.

use std::sync::Arc;

use qwait::{Region, TenantPlace};

/// Most queues of one tenant.
pub const QUEUES_MAX: u32 = 1024;
/// Fewest entries of a ring.
pub const DEPTH_MIN: u32 = 32;
/// Most entries of a ring.
pub const DEPTH_MAX: u32 = 1024;
/// Least payload of a slot in bytes.
pub const SLOT_BYTES_MIN: u32 = 64;
/// Most payload of a slot in bytes.
pub const SLOT_BYTES_MAX: u32 = 4096;
/// Most sets (groups of cores) that the queues of a tenant are spread over.
pub const SETS_MAX: u32 = 4;
/// Queues of one ready word.
pub(crate) const WORD_QUEUES: u32 = qwait::TENANT_QUEUES_MAX;

const PAGE: usize = 4096;
/// Two lines.
const APART: usize = 128;
/// Before a slot's payload.
pub(crate) const HEADER_BYTES: usize = 8;
/// Where a tenant says that it waits for completions.
pub(crate) const WAITING: usize = 0;
/// The first ready word; its idle word follows at a distance of `APART`.
const WORDS: usize = 2 * APART;

/// How doorbells lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DoorbellLayout {
    /// 128 bytes apart: on lines of their own.
    #[default]
    Packed,
    /// A page apart, as devices and hypervisors map them: HyperPlane's tenants.
    Paged,
}

impl DoorbellLayout {
    /// From one doorbell to the next, in bytes.
    pub const fn stride_bytes(self) -> usize {
        match self {
            Self::Packed => APART,
            Self::Paged => PAGE,
        }
    }
}

/// What a tenant asks for: so many queue pairs, all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Queue pairs: 1 to 1,024.
    pub queues: u32,
    /// Entries of each ring, and so the requests that can be outstanding on it: a power of two, 32 to
    /// 1,024.
    pub depth: u32,
    /// Most bytes of a request and of a reply: 64 to 4,096, a multiple of 8.
    pub slot_bytes: u32,
    /// How the doorbells lie.
    pub doorbells: DoorbellLayout,
}

impl Default for Shape {
    fn default() -> Self {
        Self { queues: 1, depth: 64, slot_bytes: 256, doorbells: DoorbellLayout::Packed }
    }
}

/// Why a shape is refused: what was found, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ShapeError(String);

impl Shape {
    /// Checks the shape, for queues in one set.
    ///
    /// # Errors
    /// [`ShapeError`], which says what is allowed.
    pub fn check(self) -> Result<Geometry, ShapeError> {
        self.check_over(1)
    }

    /// Checks the shape, for queues that are dealt out over so many sets.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn check_over(self, sets: u32) -> Result<Geometry, ShapeError> {
        let Self { queues, depth, slot_bytes, .. } = self;
        let bytes = SLOT_BYTES_MIN..=SLOT_BYTES_MAX;
        let wrong = if queues == 0 || queues > QUEUES_MAX {
            format!(
                "{queues} queues for one tenant: allowed are 1 to {QUEUES_MAX}; join once more for more"
            )
        } else if !depth.is_power_of_two() || !(DEPTH_MIN..=DEPTH_MAX).contains(&depth) {
            format!(
                "rings of {depth} entries: allowed are powers of two from {DEPTH_MIN} to {DEPTH_MAX}"
            )
        } else if !bytes.contains(&slot_bytes) || !slot_bytes.is_multiple_of(8) {
            format!(
                "slots of {slot_bytes} bytes: allowed are multiples of 8 from {SLOT_BYTES_MIN} to \
                 {SLOT_BYTES_MAX}"
            )
        } else if sets == 0 || sets > SETS_MAX {
            format!("queues over {sets} sets: allowed are 1 to {SETS_MAX}")
        } else {
            return Ok(Geometry { shape: self, sets });
        };
        Err(ShapeError(wrong))
    }
}

/// One of a tenant's ready words: up to 64 of its queues, all of one set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// Which set of cores serves it.
    pub(crate) set: u32,
    /// Queues in it.
    pub(crate) queues: u32,
    /// Offsets in bytes, as in [`qwait::TenantPlace`].
    pub(crate) ready: usize,
    pub(crate) idle: usize,
    pub(crate) doorbells: usize,
    pub(crate) stride: usize,
}

impl Word {
    /// Where `qwait` finds the word and its doorbells in the memory that both sides have mapped.
    pub(crate) fn place(&self, region: &Arc<Region>) -> TenantPlace {
        let Self { ready, idle, doorbells, stride, queues, .. } = *self;
        TenantPlace { region: Arc::clone(region), ready, idle, doorbells, stride, queues }
    }
}

/// A checked shape and the offsets that follow from it. Queue `i` belongs to set `i % sets`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    shape: Shape,
    sets: u32,
}

impl Geometry {
    /// What was asked for.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Over how many sets the queues are dealt out.
    pub fn sets(&self) -> u32 {
        self.sets
    }

    /// Ready words: those of all sets, and where a set has more than 64 queues several of each. Word
    /// `w` belongs to set `w % sets`; where there are fewer queues than sets, the last have none.
    pub(crate) fn words(&self) -> u32 {
        self.shape.queues.div_ceil(self.sets).div_ceil(WORD_QUEUES) * self.sets
    }

    /// A ready word; `None` where it has no queues.
    pub(crate) fn word(&self, word: u32) -> Option<Word> {
        let (set, block) = (word % self.sets, word / self.sets);
        let first = self.queue_at(word, 0);
        let in_set = (self.shape.queues + self.sets - 1 - set) / self.sets;
        let queues = in_set.saturating_sub(block * WORD_QUEUES).min(WORD_QUEUES);
        let ready = WORDS + word as usize * 2 * APART;
        (word < self.words() && queues > 0).then(|| Word {
            set,
            queues,
            ready,
            idle: ready + APART,
            doorbells: self.doorbell(first),
            stride: self.shape.doorbells.stride_bytes() * self.sets as usize,
        })
    }

    /// The queue of a bit of a ready word. Not checked: the bit may have none.
    #[inline]
    pub(crate) fn queue_at(&self, word: u32, bit: u32) -> u32 {
        let (set, block) = (word % self.sets, word / self.sets);
        (block * WORD_QUEUES + bit) * self.sets + set
    }

    /// The ready word and bit of a queue.
    #[inline]
    pub(crate) fn word_of(&self, queue: u32) -> (u32, u32) {
        let (set, in_set) = (queue % self.sets, queue / self.sets);
        (in_set / WORD_QUEUES * self.sets + set, in_set % WORD_QUEUES)
    }

    /// The doorbell of a queue.
    #[inline]
    pub(crate) fn doorbell(&self, queue: u32) -> usize {
        self.doorbells_at() + queue as usize * self.shape.doorbells.stride_bytes()
    }

    fn doorbells_at(&self) -> usize {
        (WORDS + self.words() as usize * 2 * APART).next_multiple_of(PAGE)
    }

    /// Where the pages of ready words and doorbells end, and the queues begin.
    pub(crate) fn doorbells_end(&self) -> usize {
        let doorbells = self.shape.queues as usize * self.shape.doorbells.stride_bytes();
        (self.doorbells_at() + doorbells).next_multiple_of(PAGE)
    }

    /// From one slot of a ring to the next.
    #[inline]
    pub(crate) fn slot_stride(&self) -> usize {
        (HEADER_BYTES + self.shape.slot_bytes as usize).next_multiple_of(64)
    }

    fn ring_bytes(&self) -> usize {
        (self.shape.depth as usize * self.slot_stride()).next_multiple_of(APART)
    }

    fn queue_bytes(&self) -> usize {
        APART + 2 * self.ring_bytes()
    }

    /// Where a queue's tenant says how many completions it consumed.
    pub(crate) fn consumed(&self, queue: u32) -> usize {
        self.doorbells_end() + queue as usize * self.queue_bytes()
    }

    /// A queue's first submission slot.
    pub(crate) fn submissions(&self, queue: u32) -> usize {
        self.consumed(queue) + APART
    }

    /// A queue's first completion slot.
    pub(crate) fn completions(&self, queue: u32) -> usize {
        self.submissions(queue) + self.ring_bytes()
    }

    /// The whole memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        (self.doorbells_end() + self.shape.queues as usize * self.queue_bytes())
            .next_multiple_of(PAGE)
    }
}

// The largest tenant stays far below what an offset can hold.
const _: () = assert!(
    QUEUES_MAX as usize * (2 * DEPTH_MAX as usize * (SLOT_BYTES_MAX as usize + 64) + PAGE)
        < usize::MAX / 4
);

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(queues: u32, sets: u32) -> Geometry {
        Shape { queues, ..Shape::default() }.check_over(sets).expect("allowed")
    }

    #[test]
    fn senseless_shapes_are_refused() {
        let ok = Shape::default();
        let bad = [
            Shape { queues: 0, ..ok },
            Shape { queues: QUEUES_MAX + 1, ..ok },
            Shape { depth: 16, ..ok },
            Shape { depth: 33, ..ok },
            Shape { depth: 2048, ..ok },
            Shape { slot_bytes: 56, ..ok },
            Shape { slot_bytes: 65, ..ok },
            Shape { slot_bytes: u32::MAX, ..ok },
        ];
        assert!(bad.iter().all(|shape| shape.check().is_err()));
        assert!(ok.check().is_ok());
        assert!(ok.check_over(0).is_err() && ok.check_over(SETS_MAX + 1).is_err());
    }

    #[test]
    fn every_queue_has_one_bit_and_one_doorbell() {
        for (queues, sets) in [(1, 1), (1, 4), (3, 2), (64, 1), (65, 1), (257, 4), (1024, 3)] {
            let geometry = shape(queues, sets);
            let mut seen = vec![false; queues as usize];
            for index in 0..geometry.words() {
                let Some(word) = geometry.word(index) else { continue };
                assert_eq!(word.set, index % sets);
                for bit in 0..word.queues {
                    let queue = geometry.queue_at(index, bit);
                    assert!(!std::mem::replace(&mut seen[queue as usize], true));
                    assert_eq!(geometry.word_of(queue), (index, bit));
                    assert_eq!(queue % sets, word.set);
                    let doorbell = word.doorbells + word.stride * bit as usize;
                    assert_eq!(doorbell, geometry.doorbell(queue));
                }
            }
            assert!(seen.iter().all(|&seen| seen), "{queues} over {sets}");
            assert!(geometry.word(geometry.words()).is_none());
        }
    }

    #[test]
    fn parts_do_not_overlap() {
        for doorbells in [DoorbellLayout::Packed, DoorbellLayout::Paged] {
            let shape = Shape { queues: 70, depth: 32, slot_bytes: 64, doorbells };
            let geometry = shape.check_over(2).expect("allowed");
            let mut parts = vec![(WAITING, 4)];
            for word in (0..geometry.words()).filter_map(|word| geometry.word(word)) {
                parts.extend([(word.ready, 8), (word.idle, 4)]);
            }
            let ring = geometry.slot_stride() * 32;
            for queue in 0..70 {
                parts.extend([(geometry.doorbell(queue), 4), (geometry.consumed(queue), 4)]);
                parts.extend([
                    (geometry.submissions(queue), ring),
                    (geometry.completions(queue), ring),
                ]);
            }
            parts.sort_unstable();
            assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
            let (last, len) = parts[parts.len() - 1];
            assert!(last + len <= geometry.memory_bytes());
        }
    }
}
