//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).
//!
//! A `Sum` is an un-folded ones'-complement accumulator. Sums of pieces are made where the bytes are touched anyway
//! (`copy_and_sum` while a payload is copied into its frame) and added later; only `finish` folds.
//!
//! ```
//! use wire::{Sum, copy_and_sum};
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
    // In frames of a few words a call would cost a quarter of it.
    #[inline(always)]
    pub fn of(bytes: &[u8]) -> Sum {
        let mut acc = 0;
        let (blocks, mut rest) = bytes.as_chunks::<BLOCK>();
        for block in blocks {
            acc = add_chain(acc, block);
        }
        // What is left, by the binary digits of its length: no loop.
        acc = add_step::<32>(acc, &mut rest);
        acc = add_step::<16>(acc, &mut rest);
        acc = add_step::<WORD>(acc, &mut rest);
        if !rest.is_empty() {
            acc = add_word(acc, tail_word(bytes, rest.len()));
        }
        Sum(acc)
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
        let shifted = if offset.is_multiple_of(2) { other.0 } else { other.0.rotate_left(8) };
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

    /// A sum of words in memory order that were added without a carry out of 64 bits.
    #[inline(always)]
    pub(crate) const fn from_words(words: u64) -> Sum {
        Sum(words)
    }

    /// The sum as a word that [`from_bits`](Self::from_bits) takes back: to be kept where no `Sum` can be.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The sum that [`to_bits`](Self::to_bits) gave.
    #[inline]
    pub const fn from_bits(bits: u64) -> Sum {
        Sum(bits)
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
    let (src_blocks, mut from) = src.as_chunks::<BLOCK>();
    let (dst_blocks, mut to) = dst.as_chunks_mut::<BLOCK>();
    for (from, to) in src_blocks.iter().zip(dst_blocks) {
        // In two halves: a copy of whole blocks the compiler would take out of the loop as one memcpy call, and the
        // payload would cross the cache twice.
        let (from_halves, _) = from.as_chunks::<{ BLOCK / 2 }>();
        let (to_halves, _) = to.as_chunks_mut::<{ BLOCK / 2 }>();
        for (from, to) in from_halves.iter().zip(to_halves) {
            *to = *from;
        }
        acc = add_chain(acc, from);
    }
    acc = copy_step::<32>(acc, &mut from, &mut to);
    acc = copy_step::<16>(acc, &mut from, &mut to);
    acc = copy_step::<WORD>(acc, &mut from, &mut to);
    if !from.is_empty() {
        acc = add_word(acc, tail_word(src, from.len()));
        copy_tail(src, dst);
    }
    Sum(acc)
}

/// Completes a transport checksum as a device with checksum offload does: the field at `offset` bytes behind `start` holds
/// the folded sum of the pseudo-header, and gets the checksum over that and all bytes from `start` on. A checksum of zero
/// is stored as its complement, which means the same to TCP and is what UDP wants (RFC 768).
///
/// Where the field lies outside the frame, nothing is changed.
pub fn complete_checksum(frame: &mut [u8], start: usize, offset: usize) {
    complete_checksum_before(frame, Sum::ZERO, start, offset);
}

/// The same where more of the frame lies elsewhere: `behind` is its sum, as if its bytes followed those from `start` on.
pub fn complete_checksum_before(frame: &mut [u8], behind: Sum, start: usize, offset: usize) {
    let Some(bytes) = frame.get_mut(start..) else { return };
    let checksum = match Sum::of(bytes).add(behind).finish() {
        0 => u16::MAX,
        checksum => checksum,
    };
    if let Some(field) = bytes.get_mut(offset..).and_then(<[u8]>::first_chunk_mut) {
        *field = checksum.to_be_bytes();
    }
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

/// Adds `N` bytes, a multiple of eight, in a single carry chain.
#[inline(always)]
fn add_chain<const N: usize>(acc: u64, bytes: &[u8; N]) -> u64 {
    const { assert!(N.is_multiple_of(WORD)) };
    let (words, _) = bytes.as_chunks::<WORD>();
    let mut sum = acc;
    let mut carry = false;
    for word in words {
        (sum, carry) = sum.carrying_add(u64::from_ne_bytes(*word), carry);
    }
    // Cannot overflow again: all ones with a carry out needs all ones with a carry in at the step before, and the
    // first step has no carry in.
    sum + u64::from(carry)
}

/// Adds the first `N` bytes of `rest` when there are so many, and moves on.
#[inline(always)]
fn add_step<const N: usize>(acc: u64, rest: &mut &[u8]) -> u64 {
    let Some((chunk, after)) = rest.split_first_chunk::<N>() else { return acc };
    *rest = after;
    add_chain(acc, chunk)
}

/// Copies and adds the first `N` bytes of `from` when there are so many, and moves on.
#[inline(always)]
fn copy_step<const N: usize>(acc: u64, from: &mut &[u8], to: &mut &mut [u8]) -> u64 {
    let Some((from_chunk, from_after)) = from.split_first_chunk::<N>() else { return acc };
    let Some((to_chunk, to_after)) = core::mem::take(to).split_first_chunk_mut::<N>() else {
        return acc;
    };
    *to_chunk = *from_chunk;
    (*from, *to) = (from_after, to_after);
    add_chain(acc, from_chunk)
}

/// The last `len`, one to seven, of `bytes` as the start of a word in memory order, zero after them.
///
/// Loads overlap instead of going byte by byte; bytes loaded twice are shifted out or or-ed onto themselves.
#[inline(always)]
fn tail_word(bytes: &[u8], len: usize) -> u64 {
    let word = if let Some(last) = bytes.last_chunk::<WORD>() {
        u64::from_le_bytes(*last) >> (8 * (WORD - len) % 64)
    } else if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let last = u64::from(u32::from_le_bytes(*last)) << (8 * (len - 4) % 64);
        u64::from(u32::from_le_bytes(*first)) | last
    } else if let [first, .., last] = *bytes {
        let middle = u64::from(bytes[len / 2]) << (8 * (len / 2) % 64);
        u64::from(first) | middle | u64::from(last) << (8 * (len - 1) % 64)
    } else {
        bytes.first().map_or(0, |only| u64::from(*only))
    };
    word.to_le()
}

/// Copies at least the last bytes of `src`, up to seven, to the same place in `dst`, which is as long.
#[inline(always)]
fn copy_tail(src: &[u8], dst: &mut [u8]) {
    if let (Some(from), Some(to)) = (src.last_chunk::<WORD>(), dst.last_chunk_mut::<WORD>()) {
        *to = *from;
        return;
    }
    if let (Some(from), Some(to)) = (src.first_chunk::<4>(), dst.first_chunk_mut::<4>()) {
        *to = *from;
    }
    if let (Some(from), Some(to)) = (src.last_chunk::<4>(), dst.last_chunk_mut::<4>()) {
        *to = *from;
        return;
    }
    if let (Some(from), Some(to)) = (src.first_chunk::<2>(), dst.first_chunk_mut::<2>()) {
        *to = *from;
    }
    if let (Some(from), Some(to)) = (src.last(), dst.last_mut()) {
        *to = *from;
    }
}

/// Folds 64 bits to 16 with end-around carry. Adding a word to its own rotation leaves both halves' sum, carry
/// included, in the upper half.
#[inline(always)]
pub(crate) const fn fold(sum: u64) -> u16 {
    let half = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    (half.wrapping_add(half.rotate_left(16)) >> 16) as u16
}
