//! RAID protection (HyperPlane §V-A): P + Q, as in H. P. Anvin, "The mathematics of RAID-6".
//!
//! Request: `n` blocks of equal length, one behind the other. Reply: P, the exclusive or of the blocks, and Q, the sum
//! of 2^i times block i in GF(2^8). [`Raid::recover`] brings back any two lost blocks of a stripe of data, P and Q.
//!
//! ```
//! use services::{LostBlocks, Raid, Service};
//!
//! let mut raid = Raid::new(3)?;
//! let mut stripe = *b"onetwothrPPPQQQ";
//! let (data, parity) = stripe.split_at_mut(9);
//! raid.serve(data, parity)?;
//! let whole = stripe;
//! stripe[..6].fill(0);
//! raid.recover(&mut stripe, LostBlocks::Two(0, 1))?;
//! assert_eq!(stripe, whole);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::erasure::part_len;
use crate::galois::{Element, ORDER, Products};
use crate::kernel::Kernel;
use crate::refused::Refused;
use crate::service::{Service, room};

/// Bytes that the recovery of two data blocks computes at a time, on the stack.
const PIECE: usize = 256;

/// A set of disks that cannot be, or a stripe that is none of theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RaidError {
    /// There are as many different factors as the field has elements but zero.
    #[error("{found} data disks: P + Q protects 1 to 255")]
    Disks {
        /// Disks that were asked for.
        found: usize,
    },
    /// The stripe is not the blocks of all disks.
    #[error("a stripe of {found} bytes is not {blocks} blocks of equal length, P and Q among them")]
    Stripe {
        /// Bytes given.
        found: usize,
        /// Blocks that they should be.
        blocks: usize,
    },
    /// A lost block's number does not exist, or the same one is named twice.
    #[error("block {block} is unknown or named twice: data from 0, then P, then Q = {last}")]
    Block {
        /// The number.
        block: usize,
        /// The last one that exists.
        last: usize,
    },
}

/// What is lost of a stripe: numbers of data blocks from 0, then P, then Q.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostBlocks {
    /// One block.
    One(usize),
    /// Two blocks, in any order.
    Two(usize, usize),
}

/// The P + Q redundancy of `n` data disks.
#[derive(Debug)]
pub struct Raid {
    disks: usize,
    kernel: Kernel,
}

impl Raid {
    /// For `disks` data disks, with the processor's fastest instructions.
    ///
    /// # Errors
    /// [`RaidError::Disks`].
    pub fn new(disks: usize) -> Result<Self, RaidError> {
        Self::with_kernel(disks, Kernel::detect())
    }

    /// For `disks` data disks, multiplying with `kernel`.
    ///
    /// # Errors
    /// [`RaidError::Disks`].
    pub fn with_kernel(disks: usize, kernel: Kernel) -> Result<Self, RaidError> {
        if !(1..=ORDER).contains(&disks) {
            return Err(RaidError::Disks { found: disks });
        }
        Ok(Self { disks, kernel })
    }

    /// Brings back the lost blocks of a stripe of `n + 2` blocks, whatever stands in their place.
    ///
    /// # Errors
    /// [`RaidError::Stripe`], [`RaidError::Block`].
    pub fn recover(&self, stripe: &mut [u8], lost: LostBlocks) -> Result<(), RaidError> {
        let (first, second) = self.check(stripe, lost)?;
        let (p, q) = (self.disks, self.disks + 1);
        let length = stripe.len() / (self.disks + 2);
        let (data, parity) = stripe.split_at_mut(self.disks * length);
        let (p_block, q_block) = parity.split_at_mut(length);
        match (first, second) {
            // No data is lost, or only what P alone brings back: then P and Q are made anew.
            (first, _) if first >= p => {}
            (x, None) => self.solve_by_p(data, x, p_block),
            (x, Some(second)) if second == q => self.solve_by_p(data, x, p_block),
            (x, Some(second)) if second == p => self.solve_by_q(data, x, q_block),
            (x, Some(y)) => self.solve_by_both(data, x, y, p_block, q_block),
        }
        self.kernel.pq(data, p_block, q_block);
        Ok(())
    }

    /// The lost blocks in ascending order.
    fn check(&self, stripe: &[u8], lost: LostBlocks) -> Result<(usize, Option<usize>), RaidError> {
        let (blocks, last) = (self.disks + 2, self.disks + 1);
        if stripe.is_empty() || !stripe.len().is_multiple_of(blocks) {
            return Err(RaidError::Stripe { found: stripe.len(), blocks });
        }
        let (first, second) = match lost {
            LostBlocks::One(block) => (block, None),
            LostBlocks::Two(a, b) => (a.min(b), Some(a.max(b))),
        };
        let highest = second.unwrap_or(first);
        if highest > last || second == Some(first) {
            return Err(RaidError::Block { block: highest, last });
        }
        Ok((first, second))
    }

    /// Sets block `x` to P plus all other blocks: its value, or the sum of the lost ones if there are two.
    fn solve_by_p(&self, data: &mut [u8], x: usize, p: &[u8]) {
        self.sum_others(data, (x, x), p, |_| Element::ONE);
    }

    /// Sets block `x` to (Q + Qx) / 2^x, where Qx is Q of all other blocks.
    fn solve_by_q(&self, data: &mut [u8], x: usize, q: &[u8]) {
        self.sum_others(data, (x, x), q, Element::power_of_two);
        let divisor = Products::of(Element::power_of_two(ORDER - x));
        let block = &mut data[x * q.len()..][..q.len()];
        block.iter_mut().for_each(|byte| *byte = divisor.times(*byte));
    }

    /// Solves Dx + Dy = P + Pxy and 2^x Dx + 2^y Dy = Q + Qxy (Anvin §4), x < y.
    fn solve_by_both(&self, data: &mut [u8], x: usize, y: usize, p: &[u8], q: &[u8]) {
        let length = p.len();
        self.sum_others(data, (x, y), p, |_| Element::ONE);
        // The block that now holds a sum of its own must not enter the other's.
        self.sum_others(data, (y, x), q, Element::power_of_two);

        let ratio = Element::power_of_two(y - x);
        // 2^(y - x) is not 1, because 0 < y - x < 255.
        let inverse = ratio.add(Element::ONE).inverse().unwrap_or(Element::ZERO);
        let a = Products::of(ratio.mul(inverse));
        let b = Products::of(Element::power_of_two(ORDER - x).mul(inverse));
        let (low, high) = data.split_at_mut(y * length);
        let (x_block, y_block) = (&mut low[x * length..][..length], &mut high[..length]);
        for (x_piece, y_piece) in x_block.chunks_mut(PIECE).zip(y_block.chunks_mut(PIECE)) {
            let mut x_data = [0; PIECE];
            let x_data = &mut x_data[..x_piece.len()];
            self.kernel.add_product(&a, x_piece, x_data);
            self.kernel.add_product(&b, y_piece, x_data);
            for ((x, y), solved) in x_piece.iter_mut().zip(y_piece).zip(x_data) {
                *y = *x ^ *solved;
                *x = *solved;
            }
        }
    }

    /// Sets block `lost.0` to `parity` plus the weighted sum of all blocks but the two of `lost`.
    fn sum_others(
        &self,
        data: &mut [u8],
        (target, other): (usize, usize),
        parity: &[u8],
        weight: impl Fn(usize) -> Element,
    ) {
        let length = parity.len();
        let (before, rest) = data.split_at_mut(target * length);
        let (out, after) = rest.split_at_mut(length);
        out.copy_from_slice(parity);
        let others = before.chunks_exact(length).enumerate().chain(
            after.chunks_exact(length).enumerate().map(|(i, block)| (target + 1 + i, block)),
        );
        for (i, block) in others.filter(|&(i, _)| i != other) {
            self.kernel.add_product(&Products::of(weight(i)), block, out);
        }
    }
}

impl Service for Raid {
    fn name(&self) -> &'static str {
        "RAID P+Q"
    }

    fn serve(&mut self, request: &[u8], reply: &mut [u8]) -> Result<usize, Refused> {
        let block_len = part_len(request.len(), self.disks)?;
        let (p, q) = room(reply, 2 * block_len)?.split_at_mut(block_len);
        self.kernel.pq(request, p, q);
        Ok(2 * block_len)
    }

    fn reply_len_max(&self, request_len: usize) -> usize {
        request_len / self.disks * 2
    }
}
