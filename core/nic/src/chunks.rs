//! Frames of several chunks: [`TxFrame`]s in a row, of which each but the last is continued.
//!
//! ```
//! # use mem::{Pool, Region};
//! # let mut pool = Pool::new(&Region::heap(64), 64);
//! # let mut chunk = |goes_on| pool.alloc().unwrap().into_tx().with_continued(goes_on);
//! let frames = [chunk(false), chunk(true), chunk(false)];
//! // A driver takes a frame with all of its chunks, or leaves it.
//! assert_eq!([1, 2, 3].map(|room| nic::chunks::whole(&frames, room)), [1, 1, 3]);
//! let lens: Vec<_> = nic::chunks::frames(&frames).map(|chunks| chunks.len()).collect();
//! assert_eq!(lens, [1, 2]);
//! # frames.into_iter().for_each(|frame| pool.complete(frame));
//! ```

use alloc::vec::Vec;

use mem::{CHUNK_HEADER, Mbuf, Pool, TxFrame};
use wire::Sum;

/// The tag of a [copy](copy) that goes on in the next one.
const CONTINUED: u32 = 1;

/// How many of these chunks can be taken, `most` at most, so that no frame is taken in part.
#[inline]
pub fn whole(chunks: &[TxFrame], most: usize) -> usize {
    let mut count = most.min(chunks.len());
    while count > 0 && chunks[count - 1].is_continued() {
        count -= 1;
    }
    count
}

/// The chunks of each frame.
pub fn frames(chunks: &[TxFrame]) -> impl Iterator<Item = &[TxFrame]> {
    chunks.chunk_by(|chunk, _| chunk.is_continued())
}

/// The chunks of the first frame, if there is one.
pub fn first(chunks: &[TxFrame]) -> Option<&[TxFrame]> {
    frames(chunks).next()
}

/// The bytes of a frame, in `joined` where it has several chunks. A partial checksum stays so.
pub fn joined<'a>(chunks: &'a [TxFrame], joined: &'a mut Vec<u8>) -> &'a [u8] {
    if let [only] = chunks {
        return only.bytes();
    }
    joined.clear();
    chunks.iter().for_each(|chunk| joined.extend_from_slice(chunk.bytes()));
    joined
}

/// Appends a copy of each chunk of a frame to `out`, with a complete checksum. Answers whether there was memory, for all or
/// none of it.
pub fn copy(chunks: &[TxFrame], pool: &mut Pool, out: &mut Vec<Mbuf>) -> bool {
    let before = out.len();
    for chunk in chunks {
        let Ok(mut copy) = pool.alloc() else { break };
        copy.tag = if chunk.is_continued() { CONTINUED } else { 0 };
        // Where every frame's bytes have room: those of a full chunk begin far before its payload.
        let fits = copy.reset(CHUNK_HEADER).and_then(|()| copy.append(chunk.bytes())).is_ok();
        out.push(copy);
        if !fits {
            break;
        }
    }
    let is_whole = out[before..].iter().map(Mbuf::len).eq(chunks.iter().map(TxFrame::len));
    if !is_whole {
        out.drain(before..).for_each(|mbuf| pool.free(mbuf));
        return false;
    }
    let partial = chunks.first().and_then(TxFrame::partial_checksum);
    if let (Some(partial), Some((first, others))) = (partial, out[before..].split_first_mut()) {
        let mut at = first.len() - usize::from(partial.start).min(first.len());
        let behind = others.iter().fold(Sum::ZERO, |sum, other| {
            let sum = sum.add_at(Sum::of(other.bytes()), at);
            at += other.len();
            sum
        });
        let (start, offset) = (partial.start.into(), partial.offset.get().into());
        wire::complete_checksum_before(first.bytes_mut(), behind, start, offset);
    }
    true
}

/// Whether a [copy] goes on in the next one.
pub(crate) fn goes_on(copy: &Mbuf) -> bool {
    copy.tag == CONTINUED
}

/// A [copy] as a frame to send.
pub(crate) fn into_tx(copy: Mbuf) -> TxFrame {
    let is_continued = goes_on(&copy);
    copy.into_tx().with_continued(is_continued)
}
