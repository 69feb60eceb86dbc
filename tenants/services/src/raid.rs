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

use crate::erasure::{Repair, part_len};
use crate::galois::{Element, ORDER};
use crate::refused::Refused;
use crate::service::{Service, room};
use crate::unsafe_galois::Kernel;

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
        let (blocks, last) = (self.disks + 2, self.disks + 1);
        if stripe.is_empty() || !stripe.len().is_multiple_of(blocks) {
            return Err(RaidError::Stripe { found: stripe.len(), blocks });
        }
        let (lost, highest, is_twice) = match lost {
            LostBlocks::One(block) => (vec![block], block, false),
            LostBlocks::Two(a, b) => (vec![a.min(b), a.max(b)], a.max(b), a == b),
        };
        if highest > last || is_twice {
            return Err(RaidError::Block { block: highest, last });
        }
        // P has each block once, Q has block i 2^i times. No two of up to 255 powers are equal, so that any two lost
        // blocks can be solved for (Anvin §4).
        let weight = |row: usize, disk: usize| match row < last {
            true => Element::ONE,
            false => Element::power_of_two(disk),
        };
        let repair = Repair::of((self.disks, blocks), &lost, self.kernel, weight);
        repair.expect("any two can be solved for").apply(stripe, stripe.len() / blocks);
        Ok(())
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
