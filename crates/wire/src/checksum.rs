//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).
//!
//! A `Sum` is an un-folded ones'-complement accumulator. Sums of pieces are made where the bytes are touched anyway
//! (`copy_and_sum` while a payload is copied into its frame) and added later; only `finish` folds.
//!
//! ```
//! use tailplane_wire::{Sum, copy_and_sum};
//! let mut frame = [0u8; 8];
//! let first = copy_and_sum(b"odd", &mut frame[..3]);
//! let second = copy_and_sum(b"piece", &mut frame[3..]);
//! assert_eq!(first.add_at(second, 3).finish(), Sum::of(&frame).finish());
//! ```
//!
//! How it is fast: ones'-complement addition may be done in any word width and any byte order (RFC 1071 §2), so bytes
//! are read as 64-bit words in memory order, and eight words go into one chain of add-with-carry, one instruction for
//! eight bytes. That needs fewer instructions than widening SIMD lanes does with baseline x86-64 vectors.

/// Bytes in one unrolled add-with-carry chain.
const BLOCK: usize = 64;
/// Bytes in one accumulated word.
const WORD: usize = 8;

/// An un-folded ones'-complement sum.
///
/// The accumulator holds 16-bit words in *memory* order (as loaded by this machine), modulo 2^64 - 1, of which
/// 2^16 - 1 is a divisor; byte order is put right once, in [`Sum::finish`].
#[derive(Debug, Copy, Clone, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of no bytes.
    pub const ZERO: Sum = Sum(0);

    /// The sum of `bytes`; an odd last byte counts as if a zero byte followed.
    #[inline]
    pub fn of(bytes: &[u8]) -> Sum {
        let mut acc = 0;
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for block in blocks {
            acc = add_block(acc, block);
        }
        let (words, tail) = rest.as_chunks::<WORD>();
        for word in words {
            acc = add_word(acc, u64::from_ne_bytes(*word));
        }
        Sum(add_word(acc, tail_word(tail)))
    }

    /// The sum of both pieces, where `other` starts at an even offset of the whole.
    // An operator would hide that this is addition modulo 2^16 - 1 of pieces with a position.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    #[must_use]
    pub const fn add(self, other: Sum) -> Sum {
        Sum(add_word(self.0, other.0))
    }

    /// The sum of both pieces, where `other` starts `offset` bytes into the whole. At an odd offset its bytes have
    /// changed places within their 16-bit words (RFC 1071 §2 (B)).
    #[inline]
    #[must_use]
    pub const fn add_at(self, other: Sum, offset: usize) -> Sum {
        // Rotation by 8 is multiplication by 2^8 modulo 2^64 - 1, and so the byte swap modulo 2^16 - 1.
        let shifted = if offset % 2 == 0 { other.0 } else { other.0.rotate_left(8) };
        Sum(add_word(self.0, shifted))
    }

    /// Adds a field of a header, given as its value.
    #[inline]
    #[must_use]
    pub const fn add_u16(self, value: u16) -> Sum {
        Sum(add_word(self.0, value.to_be() as u64))
    }

    /// Adds a 32-bit field of a header, given as its value.
    #[inline]
    #[must_use]
    pub const fn add_u32(self, value: u32) -> Sum {
        Sum(add_word(self.0, value.to_be() as u64))
    }

    /// The checksum to store: the folded sum's complement, as a value (stored big-endian like any header field).
    #[inline]
    pub const fn finish(self) -> u16 {
        !u16::from_be(fold(self.0))
    }

    /// Whether a sum that *included* the stored checksum comes out right (RFC 1071 §1 (3)).
    #[inline]
    pub const fn is_valid(self) -> bool {
        fold(self.0) == 0xffff
    }
}

/// Copies `src` to the start of `dst` and sums it in the same pass, so that the payload crosses the cache once.
///
/// # Panics
/// When `dst` is shorter than `src`.
#[inline]
pub fn copy_and_sum(src: &[u8], dst: &mut [u8]) -> Sum {
    let dst = &mut dst[..src.len()];
    let mut acc = 0;
    let (src_blocks, src_rest) = src.as_chunks::<BLOCK>();
    let (dst_blocks, dst_rest) = dst.as_chunks_mut::<BLOCK>();
    for (from, to) in src_blocks.iter().zip(dst_blocks) {
        *to = *from;
        acc = add_block(acc, from);
    }
    let (src_words, src_tail) = src_rest.as_chunks::<WORD>();
    let (dst_words, dst_tail) = dst_rest.as_chunks_mut::<WORD>();
    for (from, to) in src_words.iter().zip(dst_words) {
        *to = *from;
        acc = add_word(acc, u64::from_ne_bytes(*from));
    }
    for (from, to) in src_tail.iter().zip(dst_tail) {
        *to = *from;
    }
    Sum(add_word(acc, tail_word(src_tail)))
}

/// The checksum after one 16-bit field changed from `old` to `new` (RFC 1624 §3, equation 3).
#[inline]
pub const fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(!checksum as u64 + !old as u64 + new as u64)
}

/// The checksum after one 32-bit field changed from `old` to `new` (RFC 1624 §3, equation 3, on both halves).
#[inline]
pub const fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    !fold(!checksum as u64 + !old as u64 + new as u64)
}

/// Ones'-complement addition: the carry comes back at the low end.
#[inline(always)]
const fn add_word(acc: u64, word: u64) -> u64 {
    let (sum, carry) = acc.overflowing_add(word);
    // Cannot overflow again: a sum that carried is at most 2^64 - 2.
    sum + carry as u64
}

/// Adds one block in a single carry chain.
#[inline(always)]
fn add_block(acc: u64, block: &[u8; BLOCK]) -> u64 {
    let (words, _) = block.as_chunks::<WORD>();
    let mut sum = acc;
    let mut carry = false;
    for word in words {
        (sum, carry) = sum.carrying_add(u64::from_ne_bytes(*word), carry);
    }
    // Cannot overflow again: with a carry out, eight words and a carry in leave the low word below its maximum
    // unless every word was, and then the accumulator itself would have been above 2^64 - 1.
    sum + carry as u64
}

/// Fewer than eight bytes as the low end of a word in memory order, zero after them.
#[inline(always)]
fn tail_word(tail: &[u8]) -> u64 {
    let mut word = [0; WORD];
    for (to, from) in word.iter_mut().zip(tail) {
        *to = *from;
    }
    u64::from_ne_bytes(word)
}

/// Folds 64 bits to 16 with end-around carry. Adding a word to its own rotation leaves both halves' sum, carry
/// included, in the upper half.
#[inline(always)]
pub(crate) const fn fold(sum: u64) -> u16 {
    let half = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    (half.wrapping_add(half.rotate_left(16)) >> 16) as u16
}
