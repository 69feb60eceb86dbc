//! Sums of products in GF(2^8) over blocks of bytes.
//!
//! [`Kernel`] multiplies whole blocks: with AVX2 where the processor has it, 32 bytes at once by two look-ups in a table
//! of 16 (Plank, Greenan, Miller, "Screaming Fast Galois Field Arithmetic Using Intel SIMD Instructions", FAST 2013),
//! else by the sum over each byte's bits.

use crate::galois::Products;
use crate::unsafe_galois::{Avx2, add_product_portable, dot_portable, pq_portable};

/// Which instructions multiply blocks; made once, when a service is.
#[derive(Debug, Clone, Copy)]
pub struct Kernel(Option<Avx2>);

impl Kernel {
    /// The fastest that this processor has.
    pub fn detect() -> Kernel {
        Kernel(Avx2::detect())
    }

    /// Without vector instructions beyond the compiler's own: for comparison, and for processors without AVX2.
    pub fn portable() -> Kernel {
        Kernel(None)
    }

    /// What reports call it.
    pub fn name(self) -> &'static str {
        if self.0.is_some() { "AVX2" } else { "portable" }
    }

    /// `out += factor * source`, over as many bytes as the shorter has.
    #[inline]
    pub(crate) fn add_product(self, products: &Products, source: &[u8], out: &mut [u8]) {
        match self.0 {
            Some(avx2) => avx2.add_product(products, source, out),
            None => add_product_portable(products, source, out),
        }
    }

    /// `out[row] = sum over i of rows[row][i] * source[i]`, where `sources` are blocks of `block_len` bytes one behind
    /// the other, as are the rows of `out`; `rows` has, row by row, a factor for each source.
    ///
    /// # Panics
    /// When the lengths do not fit together: they are checked by the service that owns the factors.
    #[inline]
    pub(crate) fn dot(self, rows: &[Products], sources: &[u8], block_len: usize, out: &mut [u8]) {
        match self.0 {
            Some(avx2) => avx2.dot(rows, sources, block_len, out),
            None => dot_portable(rows, sources, block_len, out),
        }
    }

    /// P, the sum of the blocks, and Q, the sum of 2^i times block i. All blocks are as long as `p` and `q`.
    ///
    /// # Panics
    /// When the lengths do not fit together: they are checked by the service.
    #[inline]
    pub(crate) fn pq(self, blocks: &[u8], p: &mut [u8], q: &mut [u8]) {
        match self.0 {
            Some(avx2) => avx2.pq(blocks, p, q),
            None => pq_portable(blocks, p, q),
        }
    }
}
