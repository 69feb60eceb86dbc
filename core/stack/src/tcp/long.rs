//! Segments whose payload lies in several chunks: what a device that sends frames of several chunks takes in one.
//!
//! A chunk holds [`TX_PAYLOAD`](mem::TX_PAYLOAD) bytes. The send queue chains the chunks of a segment that is to be larger, without a
//! copy; a segment that has to be shorter again is split between two of them. Everywhere else it is one segment.

use mem::{Exhausted, Pool, Retained, TxMeta};
use wire::Sum;

/// The sum of a segment's payload.
pub(crate) fn sum(segment: &Retained) -> Sum {
    let mut at = 0;
    segment.parts().fold(Sum::ZERO, |sum, part| {
        let sum = sum.add_at(Sum::of(part), at);
        at += part.len();
        sum
    })
}

/// What is remembered of a segment to which `len` bytes with a sum were added at its end.
pub(crate) fn longer(meta: TxMeta, (len, sum): (u16, Sum), flags: u8) -> TxMeta {
    let payload_sum = Sum::from_bits(meta.payload_sum).add_at(sum, meta.len.into()).to_bits();
    TxMeta { len: meta.len + len, flags: meta.flags | flags, payload_sum, ..meta }
}

/// Puts the payload of `second` behind that of `first`, in its chunks.
///
/// # Errors
/// It comes back where its chunks are too far away.
pub(crate) fn chain(first: &mut Retained, second: Retained) -> Result<(), Retained> {
    let (meta, added) = (first.meta(), second.meta());
    first.chain(second)?;
    let sum = Sum::from_bits(added.payload_sum);
    first.set_meta(longer(meta, (added.len, sum), added.flags));
    Ok(())
}

/// Makes two segments of a long one: its first chunks, with `most` bytes at most, and the others.
///
/// # Errors
/// It comes back where its first chunk has more, or it has no others.
pub(crate) fn split(segment: Retained, most: u16) -> Result<[Retained; 2], Retained> {
    let meta = segment.meta();
    let [mut front, mut rest] = segment.split_front(most.into())?;
    let len = front.parts().map(<[u8]>::len).sum::<usize>() as u16;
    front.set_meta(TxMeta { len, payload_sum: sum(&front).to_bits(), ..meta });
    let (seq, len) = (meta.seq.wrapping_add(len.into()), meta.len - len);
    rest.set_meta(TxMeta { seq, len, payload_sum: sum(&rest).to_bits(), ..meta });
    Ok([front, rest])
}

/// The same segment in chunks of its own.
///
/// # Errors
/// There is no memory.
pub(crate) fn copy_of(segment: &Retained, pool: &mut Pool) -> Result<Retained, Exhausted> {
    let (meta, mut parts) = (segment.meta(), segment.parts());
    let mut copy = copy_part(parts.next().unwrap_or(&[]), meta, pool)?;
    for part in parts {
        let chained = copy_part(part, meta, pool).and_then(|next| {
            copy.chain(next).map_err(|next| {
                pool.release(next);
                Exhausted
            })
        });
        if chained.is_err() {
            pool.release(copy);
            return Err(Exhausted);
        }
    }
    Ok(copy)
}

/// One chunk's part, which came out of a chunk with as much room.
fn copy_part(part: &[u8], meta: TxMeta, pool: &mut Pool) -> Result<Retained, Exhausted> {
    let mut mbuf = pool.alloc()?;
    if mbuf.append(part).is_err() {
        debug_assert!(false, "{} bytes do not fit", part.len());
        pool.free(mbuf);
        return Err(Exhausted);
    }
    Ok(mbuf.retain(meta))
}
