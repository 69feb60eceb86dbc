//! Sums of products in GF(2^8) over blocks of bytes.
//!
//! [`Kernel`] multiplies whole blocks: with AVX2 where the processor has it, 32 bytes at once by two look-ups in a table
//! of 16 (Plank, Greenan, Miller, "Screaming Fast Galois Field Arithmetic Using Intel SIMD Instructions", FAST 2013),
//! else by the sum over each byte's bits. A kernel is the proof that the processor has the instructions: only `detect`
//! makes one that uses them. The portable functions are what they are compared with, what runs where there is no AVX2,
//! and what Miri runs by default (`-Ctarget-feature=+avx2` makes it run the others).
//!
//! The vector functions walk columns, 64 bytes of every block at a time, so that each source byte is loaded once for up
//! to four rows and each result is stored once. The last column of a block overlaps the one before it: the same bytes
//! are computed twice, which is cheaper than a loop over the rest.
#![allow(unsafe_code)]

use crate::galois::{Products, REDUCTION};

/// Bytes that the portable P + Q keeps in registers, for the compiler to vectorise.
const PORTABLE_COLUMN: usize = 32;

/// Which instructions multiply blocks; made once, when a service is.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// Set by `detect` alone, where the processor has AVX2.
    has_avx2: bool,
}

impl Kernel {
    /// The fastest that this processor has.
    pub fn detect() -> Kernel {
        #[cfg(target_arch = "x86_64")]
        let has_avx2 = std::arch::is_x86_feature_detected!("avx2");
        #[cfg(not(target_arch = "x86_64"))]
        let has_avx2 = false;
        Kernel { has_avx2 }
    }

    /// Without vector instructions beyond the compiler's own: for comparison, and for processors without AVX2.
    pub fn portable() -> Kernel {
        Kernel { has_avx2: false }
    }

    /// What reports call it.
    pub fn name(self) -> &'static str {
        if self.has_avx2 { "AVX2" } else { "portable" }
    }

    /// `out += factor * source`, over as many bytes as the shorter has.
    #[inline]
    pub(crate) fn add_product(self, products: &Products, source: &[u8], out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2 {
            // SAFETY: the processor has AVX2.
            return unsafe { avx2::add_product(products, source, out) };
        }
        add_product_portable(products, source, out);
    }

    /// `out[row] = sum over i of rows[row][i] * source[i]`, where `sources` are blocks of `block_len` bytes one behind
    /// the other, as are the rows of `out`; `rows` has, row by row, a factor for each source.
    ///
    /// # Panics
    /// When the lengths do not fit together: they are checked by the service that owns the factors.
    pub(crate) fn dot(self, rows: &[Products], sources: &[u8], block_len: usize, out: &mut [u8]) {
        // The vector code relies on these lengths.
        assert!(block_len > 0 && !rows.is_empty(), "nothing to multiply");
        assert!(sources.len().is_multiple_of(block_len) && out.len().is_multiple_of(block_len));
        let (sources_count, rows_count) = (sources.len() / block_len, out.len() / block_len);
        assert!(sources_count > 0 && rows.len() == sources_count * rows_count, "a factor for each");
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2 && block_len >= avx2::VECTOR {
            // Four rows at a time: more would not leave registers for the sources.
            let factors = rows.chunks(4 * sources_count);
            for (factors, out) in factors.zip(out.chunks_mut(4 * block_len)) {
                // SAFETY: the processor has AVX2. Lengths: `sources` is `sources_count` blocks of at least one vector;
                // `factors` is that many for each row, and `out` a block for each row, cut by the same number of rows.
                unsafe {
                    match out.len() / block_len {
                        1 => avx2::dot::<1>(factors, sources, block_len, out),
                        2 => avx2::dot::<2>(factors, sources, block_len, out),
                        3 => avx2::dot::<3>(factors, sources, block_len, out),
                        _ => avx2::dot::<4>(factors, sources, block_len, out),
                    }
                }
            }
            return;
        }
        let rows = rows.chunks_exact(sources_count);
        for (factors, out) in rows.zip(out.chunks_exact_mut(block_len)) {
            out.fill(0);
            for (products, source) in factors.iter().zip(sources.chunks_exact(block_len)) {
                add_product_portable(products, source, out);
            }
        }
    }

    /// P, the sum of the blocks, and Q, the sum of 2^i times block i. All blocks are as long as `p` and `q`.
    ///
    /// # Panics
    /// When the lengths do not fit together: they are checked by the service.
    pub(crate) fn pq(self, blocks: &[u8], p: &mut [u8], q: &mut [u8]) {
        let block_len = p.len();
        assert!(block_len > 0 && block_len == q.len() && blocks.len().is_multiple_of(block_len));
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2 && block_len >= avx2::VECTOR {
            // SAFETY: the processor has AVX2. `blocks` is whole blocks of `block_len`, at least one vector; `p` and `q`
            // have that length too.
            return unsafe { avx2::pq(blocks, block_len, p, q) };
        }
        pq_portable(blocks, block_len, p, q);
    }
}

/// The vector functions.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use core::arch::x86_64::{
        __m256i, _mm256_add_epi8, _mm256_and_si256, _mm256_cmpgt_epi8, _mm256_load_si256,
        _mm256_loadu_si256, _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8,
        _mm256_srli_epi16, _mm256_storeu_si256, _mm256_xor_si256,
    };

    use super::add_product_portable;
    use crate::galois::{Products, REDUCTION};

    /// Bytes of a vector register.
    pub(super) const VECTOR: usize = 32;

    /// Products of 32 bytes with a factor: two look-ups by half a byte each. The tables are Plank's (§3 of the paper).
    #[inline]
    #[target_feature(enable = "avx2")]
    fn multiply(products: &Products, low: __m256i, high: __m256i) -> __m256i {
        // SAFETY: each table is 32 bytes, and aligned to 32 because `Products` is and they are its two halves.
        let (table_low, table_high) = unsafe {
            (
                _mm256_load_si256(products.low.as_ptr().cast()),
                _mm256_load_si256(products.high.as_ptr().cast()),
            )
        };
        _mm256_xor_si256(_mm256_shuffle_epi8(table_low, low), _mm256_shuffle_epi8(table_high, high))
    }

    /// The lower and the upper halves of 32 bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn halves(bytes: __m256i) -> (__m256i, __m256i) {
        let mask = _mm256_set1_epi8(0x0f);
        let high = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), mask);
        (_mm256_and_si256(bytes, mask), high)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn add_product(products: &Products, source: &[u8], out: &mut [u8]) {
        let (source_vectors, source_rest) = source.as_chunks::<VECTOR>();
        let vectors = source_vectors.len().min(out.len() / VECTOR);
        let (out_vectors, out_rest) = out.split_at_mut(vectors * VECTOR);
        for (source, out) in source_vectors.iter().zip(out_vectors.as_chunks_mut::<VECTOR>().0) {
            // SAFETY: both are 32 bytes; unaligned access is what these instructions are for.
            unsafe {
                let (low, high) = halves(_mm256_loadu_si256(source.as_ptr().cast()));
                let product = multiply(products, low, high);
                let sum = _mm256_xor_si256(_mm256_loadu_si256(out.as_ptr().cast()), product);
                _mm256_storeu_si256(out.as_mut_ptr().cast(), sum);
            }
        }
        // Where `out` is the shorter one, its rest lies beside a whole source vector.
        let rest = source_vectors.get(vectors).map_or(source_rest, |vector| vector);
        add_product_portable(products, rest, out_rest);
    }

    /// `ROWS` rows over all columns.
    ///
    /// # Safety
    /// `sources` is whole blocks of `block_len`, at least [`VECTOR`]; `rows` has a factor for each of them in each of
    /// `ROWS` rows; `out` has `ROWS * block_len` bytes.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn dot<const ROWS: usize>(
        rows: &[Products],
        sources: &[u8],
        block_len: usize,
        out: &mut [u8],
    ) {
        let mut at = 0;
        // SAFETY: each column lies within a block: the loop's condition, and for the last two `block_len >= VECTOR`. The
        // other conditions are this function's own.
        unsafe {
            while at + 2 * VECTOR <= block_len {
                dot_column::<ROWS, 2>(rows, sources, block_len, at, out);
                at += 2 * VECTOR;
            }
            if at + VECTOR <= block_len {
                dot_column::<ROWS, 1>(rows, sources, block_len, at, out);
                at += VECTOR;
            }
            if at < block_len {
                dot_column::<ROWS, 1>(rows, sources, block_len, block_len - VECTOR, out);
            }
        }
    }

    /// `ROWS` rows over the `VECTORS` vectors that begin `at` bytes into each block.
    ///
    /// # Safety
    /// As [`dot`], and `at + VECTORS * VECTOR <= block_len`.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn dot_column<const ROWS: usize, const VECTORS: usize>(
        rows: &[Products],
        sources: &[u8],
        block_len: usize,
        at: usize,
        out: &mut [u8],
    ) {
        let count = sources.len() / block_len;
        debug_assert!(rows.len() == ROWS * count && out.len() == ROWS * block_len);
        debug_assert!(at + VECTORS * VECTOR <= block_len);
        let mut sums = [[_mm256_setzero_si256(); VECTORS]; ROWS];
        for source in 0..count {
            let mut parts = [(_mm256_setzero_si256(), _mm256_setzero_si256()); VECTORS];
            for (vector, part) in parts.iter_mut().enumerate() {
                let offset = source * block_len + at + vector * VECTOR;
                // SAFETY: the vector ends within block `source` of `sources`.
                *part = halves(unsafe { _mm256_loadu_si256(sources.as_ptr().add(offset).cast()) });
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                // SAFETY: there are `ROWS * count` factors.
                let products = unsafe { rows.get_unchecked(row * count + source) };
                for (sum, (low, high)) in sums.iter_mut().zip(parts) {
                    *sum = _mm256_xor_si256(*sum, multiply(products, low, high));
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (vector, sum) in sums.iter().enumerate() {
                let offset = row * block_len + at + vector * VECTOR;
                // SAFETY: the vector ends within row `row` of `out`.
                unsafe { _mm256_storeu_si256(out.as_mut_ptr().add(offset).cast(), *sum) };
            }
        }
    }

    /// # Safety
    /// `blocks` is whole blocks of `block_len`, at least [`VECTOR`]; `p` and `q` have `block_len` bytes.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn pq(blocks: &[u8], block_len: usize, p: &mut [u8], q: &mut [u8]) {
        let mut at = 0;
        // SAFETY: as in `dot`.
        unsafe {
            while at + 2 * VECTOR <= block_len {
                pq_column::<2>(blocks, block_len, at, p, q);
                at += 2 * VECTOR;
            }
            if at + VECTOR <= block_len {
                pq_column::<1>(blocks, block_len, at, p, q);
                at += VECTOR;
            }
            if at < block_len {
                pq_column::<1>(blocks, block_len, block_len - VECTOR, p, q);
            }
        }
    }

    /// P and Q of the `VECTORS` vectors that begin `at` bytes into each block: Horner's rule, from the last block down.
    ///
    /// # Safety
    /// As [`pq`], and `at + VECTORS * VECTOR <= block_len`.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn pq_column<const VECTORS: usize>(
        blocks: &[u8],
        block_len: usize,
        at: usize,
        p: &mut [u8],
        q: &mut [u8],
    ) {
        debug_assert!(p.len() == block_len && q.len() == block_len);
        debug_assert!(at + VECTORS * VECTOR <= block_len);
        let reduction = _mm256_set1_epi8(REDUCTION as i8);
        let zero = _mm256_setzero_si256();
        let mut sums = [(zero, zero); VECTORS];
        for block in (0..blocks.len() / block_len).rev() {
            for (vector, (p, q)) in sums.iter_mut().enumerate() {
                let offset = block * block_len + at + vector * VECTOR;
                // SAFETY: the vector ends within block `block`.
                let data = unsafe { _mm256_loadu_si256(blocks.as_ptr().add(offset).cast()) };
                // A byte whose highest bit is set is negative: all ones where a doubled byte must be reduced.
                let overflow = _mm256_and_si256(_mm256_cmpgt_epi8(zero, *q), reduction);
                let doubled = _mm256_xor_si256(_mm256_add_epi8(*q, *q), overflow);
                *q = _mm256_xor_si256(doubled, data);
                *p = _mm256_xor_si256(*p, data);
            }
        }
        for (vector, (p_sum, q_sum)) in sums.into_iter().enumerate() {
            let offset = at + vector * VECTOR;
            // SAFETY: the vector ends within `p` and within `q`.
            unsafe {
                _mm256_storeu_si256(p.as_mut_ptr().add(offset).cast(), p_sum);
                _mm256_storeu_si256(q.as_mut_ptr().add(offset).cast(), q_sum);
            }
        }
    }
}

/// See [`Kernel::add_product`].
fn add_product_portable(products: &Products, source: &[u8], out: &mut [u8]) {
    let powers = products.of_powers();
    for (out, &byte) in out.iter_mut().zip(source) {
        // A sum over the byte's bits instead of a look-up: the compiler makes vector code of it.
        let bits = powers.iter().enumerate();
        *out ^=
            bits.fold(0, |sum, (bit, power)| sum ^ if byte & (1 << bit) != 0 { *power } else { 0 });
    }
}

/// See [`Kernel::pq`].
fn pq_portable(blocks: &[u8], block_len: usize, p: &mut [u8], q: &mut [u8]) {
    let columns = p.chunks_mut(PORTABLE_COLUMN).zip(q.chunks_mut(PORTABLE_COLUMN));
    for (column, (p, q)) in columns.enumerate() {
        let at = column * PORTABLE_COLUMN;
        let (mut p_sum, mut q_sum) = ([0u8; PORTABLE_COLUMN], [0u8; PORTABLE_COLUMN]);
        for block in blocks.chunks_exact(block_len).rev() {
            let data = &block[at..at + p.len()];
            for q in &mut q_sum {
                let overflow = ((*q as i8) >> 7) as u8 & REDUCTION;
                *q = (*q << 1) ^ overflow;
            }
            for ((p, q), byte) in p_sum.iter_mut().zip(&mut q_sum).zip(data) {
                *p ^= byte;
                *q ^= byte;
            }
        }
        p.copy_from_slice(&p_sum[..p.len()]);
        q.copy_from_slice(&q_sum[..q.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::galois::Element;

    /// Lengths below, at and between the widths that the code distinguishes.
    const LENGTHS: &[usize] = if cfg!(miri) {
        &[1, 33, 97]
    } else {
        &[1, 2, 31, 32, 33, 63, 64, 65, 95, 96, 97, 128, 410, 512]
    };

    fn noise(len: usize, seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    fn kernels() -> impl Iterator<Item = Kernel> {
        if !cfg!(miri) && !Kernel::detect().has_avx2 {
            println!("no AVX2 here: only the portable code is tested");
        }
        [Kernel::portable(), Kernel::detect()].into_iter()
    }

    #[test]
    fn blocks_are_multiplied_as_single_bytes_are() {
        for kernel in kernels() {
            for &len in LENGTHS {
                let factor = Element(noise(1, len as u64)[0] | 2);
                let (source, before) = (noise(len, 1), noise(len, 2));
                let mut out = before.clone();
                kernel.add_product(&Products::of(factor), &source, &mut out);
                for i in 0..len {
                    let expected = before[i] ^ factor.mul(Element(source[i])).0;
                    assert_eq!(out[i], expected, "{} {len} {i}", kernel.name());
                }
            }
        }
    }

    #[test]
    fn the_shorter_length_counts() {
        let products = Products::of(Element(3));
        for kernel in kernels() {
            for (source_len, out_len) in [(100, 70), (70, 100), (64, 40), (40, 64), (0, 5)] {
                let source = vec![1; source_len];
                let mut out = vec![0; out_len];
                kernel.add_product(&products, &source, &mut out);
                let written = out.iter().filter(|&&byte| byte == 3).count();
                assert_eq!(written, source_len.min(out_len));
                assert!(out[written..].iter().all(|&byte| byte == 0));
            }
        }
    }

    #[test]
    fn rows_of_products_are_summed_as_single_bytes_are() {
        for kernel in kernels() {
            // Every number of rows that is taken at once, and more than four.
            let shapes = [(1, 1), (2, 2), (3, 2), (5, 2), (4, 10), (9, 4)];
            for (rows, sources) in shapes.into_iter().take(if cfg!(miri) { 4 } else { 6 }) {
                for &len in LENGTHS {
                    let data = noise(sources * len, 3);
                    let factors = noise(rows * sources, 4);
                    let products: Vec<_> =
                        factors.iter().map(|&factor| Products::of(Element(factor))).collect();
                    let mut out = vec![0xee; rows * len];
                    kernel.dot(&products, &data, len, &mut out);
                    for (at, &byte) in out.iter().enumerate() {
                        let (row, i) = (at / len, at % len);
                        let term = |s: usize| {
                            Element(factors[row * sources + s]).mul(Element(data[s * len + i]))
                        };
                        let expected = (0..sources).map(term).fold(Element::ZERO, Element::add);
                        assert_eq!(byte, expected.0, "{} {rows}x{sources} {len}", kernel.name());
                    }
                }
            }
        }
    }

    #[test]
    fn p_and_q_are_the_sums_that_they_are_named_for() {
        for kernel in kernels() {
            for blocks in [1, 2, 8] {
                for &len in LENGTHS {
                    let data = noise(blocks * len, 5);
                    let (mut p, mut q) = (vec![0xee; len], vec![0xee; len]);
                    kernel.pq(&data, &mut p, &mut q);
                    for i in 0..len {
                        let byte = |block: usize| Element(data[block * len + i]);
                        let term = |block| Element::power_of_two(block).mul(byte(block));
                        let sum = (0..blocks).map(byte).fold(Element::ZERO, Element::add);
                        assert_eq!(p[i], sum.0, "{} {blocks} {len}", kernel.name());
                        let sum = (0..blocks).map(term).fold(Element::ZERO, Element::add);
                        assert_eq!(q[i], sum.0, "{} {blocks} {len}", kernel.name());
                    }
                }
            }
        }
    }
}
