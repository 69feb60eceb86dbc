//! Segments that arrived ahead of a gap (RFC 9293 §3.10.7.4, "out of order").
//!
//! Kept in sequence, without overlaps, in the buffers that they came in; bounded, so that a peer
//! cannot pin memory with tiny segments. What does not fit is dropped and will be sent again.

use alloc::collections::VecDeque;

use mem::{Mbuf, Pool};
use wire::{MAX_SACK_BLOCKS, SackBlocks, SeqNumber};

/// Segments that may wait on one connection.
pub(crate) const MAX_SEGMENTS: usize = 2048;

/// See the module's comment.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// By sequence number, not overlapping.
    segments: VecDeque<(SeqNumber, Mbuf)>,
    /// Where the peer's FIN stands, once it was seen.
    pub fin: Option<SeqNumber>,
    /// Where the last segments began, newest first.
    recent: [Option<SeqNumber>; MAX_SACK_BLOCKS],
}

impl Reassembly {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.fin.is_none()
    }

    /// Buffers that wait.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Up to `most` of the blocks that wait, that of the last segment first, then those of the ones before
    /// (RFC 2018 §4).
    pub fn blocks(&self, most: usize) -> SackBlocks {
        // By rank: a block's newest segment. One walk, however many segments a peer makes it.
        let mut found = [(usize::MAX, (SeqNumber(0), SeqNumber(0))); MAX_SACK_BLOCKS];
        let mut at = 0;
        while let Some((left, right, next)) = self.block_at(at) {
            at = next;
            let is_in = |seq: &Option<SeqNumber>| {
                seq.is_some_and(|seq| left.before_eq(seq) && seq.before(right))
            };
            let rank = self.recent.iter().position(is_in).unwrap_or(MAX_SACK_BLOCKS);
            let place = found.partition_point(|&(other, _)| other <= rank);
            if place < found.len() {
                found[place..].rotate_right(1);
                found[place] = (rank, (left, right));
            }
        }
        found
            .iter()
            .filter(|(rank, _)| *rank < usize::MAX)
            .take(most)
            .map(|found| found.1)
            .collect()
    }

    /// The block that begins with the segment at `index`, and where the next one begins.
    fn block_at(&self, index: usize) -> Option<(SeqNumber, SeqNumber, usize)> {
        let (left, mbuf) = self.segments.get(index)?;
        let (mut right, mut next) = (*left + mbuf.len() as u32, index + 1);
        while let Some((seq, mbuf)) = self.segments.get(next)
            && *seq == right
        {
            (right, next) = (right + mbuf.len() as u32, next + 1);
        }
        Some((*left, right, next))
    }

    /// The block that a sequence number is in.
    pub fn block_of(&self, seq: SeqNumber) -> Option<(SeqNumber, SeqNumber)> {
        let mut at = 0;
        while let Some((left, right, next)) = self.block_at(at)
            && left.before_eq(seq)
        {
            if seq.before(right) {
                return Some((left, right));
            }
            at = next;
        }
        None
    }

    /// Keeps the part of a segment that is not there yet. The caller counts it (`Pool::keep`) where
    /// it is kept. Answers whether it, or its bytes, are kept.
    ///
    /// # Errors
    /// The buffer comes back where it is not kept: all is there, there is no room, or its bytes were copied behind those
    /// of the segment before it.
    pub fn insert(&mut self, seq: SeqNumber, mut mbuf: Mbuf) -> Result<(), (Mbuf, bool)> {
        let mut seq = seq;
        self.recent.rotate_right(1);
        self.recent[0] = Some(seq);
        // The first one that begins after us; the one before it may cover our front.
        let at = self.segments.partition_point(|(other, _)| other.before_eq(seq));
        if let Some((before, held)) = at.checked_sub(1).and_then(|index| self.segments.get(index)) {
            let covered = (*before + held.len() as u32) - seq;
            if covered > 0 {
                mbuf.advance(covered as usize);
                seq += covered as u32;
            }
        }
        // Later ones that we cover whole could be replaced; it is simpler to keep them and to end
        // where the next one begins. What lies behind it will be sent again.
        if let Some((after, _)) = self.segments.get(at) {
            let room = (*after - seq).max(0) as usize;
            mbuf.truncate(room);
        }
        if mbuf.is_empty() {
            return Err((mbuf, false));
        }
        // Small segments share a buffer.
        if let Some((before, held)) =
            at.checked_sub(1).and_then(|index| self.segments.get_mut(index))
            && *before + held.len() as u32 == seq
            && held.append(mbuf.bytes()).is_ok()
        {
            return Err((mbuf, true));
        }
        if self.segments.len() >= MAX_SEGMENTS {
            return Err((mbuf, false));
        }
        self.segments.insert(at, (seq, mbuf));
        Ok(())
    }

    /// Takes the segment that continues the stream at `rcv_nxt`, cut to what is new. Buffers that
    /// hold nothing new are freed.
    pub fn next(&mut self, rcv_nxt: SeqNumber, pool: &mut Pool) -> Option<Mbuf> {
        while let Some((seq, _)) = self.segments.front() {
            let old = rcv_nxt - *seq;
            if old < 0 {
                return None;
            }
            let (_, mut mbuf) = self.segments.pop_front()?;
            pool.unkeep();
            mbuf.advance(old as usize);
            if !mbuf.is_empty() {
                return Some(mbuf);
            }
            pool.free(mbuf);
        }
        None
    }

    /// Frees everything.
    pub fn clear(&mut self, pool: &mut Pool) {
        for (_, mbuf) in self.segments.drain(..) {
            pool.unkeep();
            pool.free(mbuf);
        }
        self.fin = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use mem::Region;
    use proptest::prelude::*;

    const LEN: usize = 600;

    fn byte_at(offset: u32) -> u8 {
        (offset % 251) as u8
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            ..ProptestConfig::default()
        })]

        /// Against a byte map: whatever comes in whatever order, the stream is the stream.
        #[test]
        fn yields_the_stream(
            start in any::<u32>(),
            pieces in prop::collection::vec((0..LEN as u32, 1..80u32), 1..120),
        ) {
            let mut pool = Pool::new(&Region::heap(256), 256);
            let mut reassembly = Reassembly::default();
            let mut rcv_nxt = SeqNumber(start);
            let mut have = [false; LEN + 80];
            let mut stream = Vec::new();
            for (offset, len) in pieces {
                let mut mbuf = pool.alloc().expect("a chunk");
                let bytes: Vec<u8> = (offset..offset + len).map(byte_at).collect();
                mbuf.append(&bytes).expect("fits");
                match reassembly.insert(SeqNumber(start) + offset, mbuf) {
                    Ok(()) => pool.keep(),
                    Err((mbuf, _)) => pool.free(mbuf),
                }
                have[offset as usize..(offset + len) as usize].fill(true);
                while let Some(mbuf) = reassembly.next(rcv_nxt, &mut pool) {
                    stream.extend_from_slice(mbuf.bytes());
                    rcv_nxt += mbuf.len() as u32;
                    pool.free(mbuf);
                }
            }
            let expected: Vec<u8> = (0..stream.len() as u32).map(byte_at).collect();
            prop_assert_eq!(&stream, &expected);
            prop_assert!(have[..stream.len()].iter().all(|&seen| seen), "nothing invented");
            reassembly.clear(&mut pool);
            prop_assert_eq!(pool.available(), 256);
        }
    }

    /// A peer that sends each byte before the one that it sent before makes many segments of one block.
    #[test]
    fn blocks_are_found_in_one_walk() {
        let mut pool = Pool::new(&Region::heap(512), 512);
        let mut reassembly = Reassembly::default();
        for number in (0..200).rev() {
            let mut mbuf = pool.alloc().expect("a chunk");
            mbuf.append(b"x").expect("fits");
            let gap = if number >= 100 { 10 } else { 0 };
            assert!(reassembly.insert(SeqNumber(number + gap), mbuf).is_ok());
            pool.keep();
        }
        let (low, high) = ((SeqNumber(0), SeqNumber(100)), (SeqNumber(110), SeqNumber(210)));
        assert_eq!(*reassembly.blocks(4), [low, high]);
        assert_eq!(*reassembly.blocks(1), [low]);
        assert_eq!(reassembly.block_of(SeqNumber(209)), Some(high));
        assert_eq!(reassembly.block_of(SeqNumber(105)), None);
        reassembly.clear(&mut pool);
    }

    #[test]
    fn is_bounded() {
        let mut pool = Pool::new(&Region::heap(4096), 4096);
        let mut reassembly = Reassembly::default();
        for number in 0..MAX_SEGMENTS as u32 + 1 {
            let mut mbuf = pool.alloc().expect("a chunk");
            mbuf.append(b"x").expect("fits");
            let kept = reassembly.insert(SeqNumber(number * 2 + 1), mbuf);
            assert_eq!(kept.is_ok(), number < MAX_SEGMENTS as u32);
            match kept {
                Ok(()) => pool.keep(),
                Err((mbuf, _)) => pool.free(mbuf),
            }
        }
        reassembly.clear(&mut pool);
        assert_eq!(pool.available(), 4096);
    }
}
