//! Products of blocks in GF(2^8): with AVX2, and portably. Used through [`Kernel`](crate::Kernel) alone.
//!
//! [`Avx2`] is the proof that the processor has the instructions: only `detect` makes one, and only with it can the
//! functions be called that need them. The portable functions are what they are compared with, what runs where there
//! is no AVX2, and what Miri runs by default (`-Ctarget-feature=+avx2` makes it run the others).
//!
//! The vector functions walk columns, 64 bytes of every block at a time, so that each source byte is loaded once for up
//! to four rows and each result is stored once. The last column of a block overlaps the one before it: the same bytes
//! are computed twice, which is cheaper than a loop over the rest.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{
    __m256i, _mm256_add_epi8, _mm256_and_si256, _mm256_cmpgt_epi8, _mm256_load_si256,
    _mm256_loadu_si256, _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8,
    _mm256_srli_epi16, _mm256_storeu_si256, _mm256_xor_si256,
};

use crate::galois::{Products, REDUCTION};

/// Bytes of a vector register.
#[cfg(target_arch = "x86_64")]
const VECTOR: usize = 32;
/// Bytes that the portable P + Q keeps in registers, for the compiler to vectorise.
const PORTABLE_COLUMN: usize = 32;

/// Proof that this processor has AVX2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2 {
    _only_detect_makes_one: (),
}

impl Avx2 {
    /// `None` on processors without AVX2.
    pub(crate) fn detect() -> Option<Avx2> {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            return Some(Avx2 { _only_detect_makes_one: () });
        }
        None
    }
}

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// See [`Kernel::add_product`](crate::Kernel).
    pub(crate) fn add_product(self, products: &Products, source: &[u8], out: &mut [u8]) {
        // SAFETY: `self` proves that the processor has AVX2.
        unsafe { add_product_avx2(products, source, out) }
    }

    /// See [`Kernel::dot`](crate::Kernel).
    pub(crate) fn dot(self, rows: &[Products], sources: &[u8], block_len: usize, out: &mut [u8]) {
        let sources_count = check_dot(rows, sources, block_len, out);
        if block_len < VECTOR {
            return dot_portable(rows, sources, block_len, out);
        }
        // Four rows at a time: more would not leave registers for the sources.
        let factors = rows.chunks(4 * sources_count);
        for (factors, out) in factors.zip(out.chunks_mut(4 * block_len)) {
            // SAFETY: `self` proves AVX2. Lengths: `sources` is `sources_count` blocks of at least one vector;
            // `factors` is that many for each row, and `out` a block for each row, cut by the same number of rows.
            unsafe {
                match out.len() / block_len {
                    1 => dot_avx2::<1>(factors, sources, block_len, out),
                    2 => dot_avx2::<2>(factors, sources, block_len, out),
                    3 => dot_avx2::<3>(factors, sources, block_len, out),
                    _ => dot_avx2::<4>(factors, sources, block_len, out),
                }
            }
        }
    }

    /// See [`Kernel::pq`](crate::Kernel).
    pub(crate) fn pq(self, blocks: &[u8], p: &mut [u8], q: &mut [u8]) {
        let block_len = check_pq(blocks, p, q);
        if block_len < VECTOR {
            return pq_portable(blocks, p, q);
        }
        // SAFETY: `self` proves AVX2. `blocks` is whole blocks of `block_len`, at least one vector; `p` and `q` have
        // that length too.
        unsafe { pq_avx2(blocks, block_len, p, q) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Avx2 {
    pub(crate) fn add_product(self, products: &Products, source: &[u8], out: &mut [u8]) {
        add_product_portable(products, source, out);
    }

    pub(crate) fn dot(self, rows: &[Products], sources: &[u8], block_len: usize, out: &mut [u8]) {
        dot_portable(rows, sources, block_len, out);
    }

    pub(crate) fn pq(self, blocks: &[u8], p: &mut [u8], q: &mut [u8]) {
        pq_portable(blocks, p, q);
    }
}

/// How many sources there are. The services promise these lengths; the vector code relies on them.
fn check_dot(rows: &[Products], sources: &[u8], block_len: usize, out: &[u8]) -> usize {
    assert!(block_len > 0 && !rows.is_empty(), "nothing to multiply");
    assert!(sources.len().is_multiple_of(block_len) && out.len().is_multiple_of(block_len));
    let (sources_count, rows_count) = (sources.len() / block_len, out.len() / block_len);
    assert!(sources_count > 0 && rows.len() == sources_count * rows_count, "a factor for each");
    sources_count
}

/// How long a block is.
fn check_pq(blocks: &[u8], p: &[u8], q: &[u8]) -> usize {
    assert!(!p.is_empty() && p.len() == q.len() && blocks.len().is_multiple_of(p.len()));
    p.len()
}

/// Products of 32 bytes with a factor: two look-ups by half a byte each. The tables are Plank's (§3 of the paper).
#[cfg(target_arch = "x86_64")]
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
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn halves(bytes: __m256i) -> (__m256i, __m256i) {
    let mask = _mm256_set1_epi8(0x0f);
    let high = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), mask);
    (_mm256_and_si256(bytes, mask), high)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn add_product_avx2(products: &Products, source: &[u8], out: &mut [u8]) {
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
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn dot_avx2<const ROWS: usize>(
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
/// As [`dot_avx2`], and `at + VECTORS * VECTOR <= block_len`.
#[cfg(target_arch = "x86_64")]
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
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn pq_avx2(blocks: &[u8], block_len: usize, p: &mut [u8], q: &mut [u8]) {
    let mut at = 0;
    // SAFETY: as in `dot_avx2`.
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
/// As [`pq_avx2`], and `at + VECTORS * VECTOR <= block_len`.
#[cfg(target_arch = "x86_64")]
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

/// See [`Kernel::add_product`](crate::Kernel).
pub(crate) fn add_product_portable(products: &Products, source: &[u8], out: &mut [u8]) {
    let powers = products.of_powers();
    for (out, &byte) in out.iter_mut().zip(source) {
        // A sum over the byte's bits instead of a look-up: the compiler makes vector code of it.
        let bits = powers.iter().enumerate();
        *out ^=
            bits.fold(0, |sum, (bit, power)| sum ^ if byte & (1 << bit) != 0 { *power } else { 0 });
    }
}

/// See [`Kernel::dot`](crate::Kernel).
pub(crate) fn dot_portable(rows: &[Products], sources: &[u8], block_len: usize, out: &mut [u8]) {
    let count = check_dot(rows, sources, block_len, out);
    for (factors, out) in rows.chunks_exact(count).zip(out.chunks_exact_mut(block_len)) {
        out.fill(0);
        for (products, source) in factors.iter().zip(sources.chunks_exact(block_len)) {
            add_product_portable(products, source, out);
        }
    }
}

/// See [`Kernel::pq`](crate::Kernel).
pub(crate) fn pq_portable(blocks: &[u8], p: &mut [u8], q: &mut [u8]) {
    let block_len = check_pq(blocks, p, q);
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
    use crate::Kernel;
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
        if !cfg!(miri) && Avx2::detect().is_none() {
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
