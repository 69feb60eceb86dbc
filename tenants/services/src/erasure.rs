//! Erasure coding (HyperPlane §V-A): Reed-Solomon with a Cauchy matrix over GF(2^8).
//!
//! Request: `k` data fragments of equal length, one behind the other. Reply: `m` parity fragments. Any `k` of the
//! `k + m` fragments bring back the others: [`ReedSolomon::repair`] makes the [`Repair`] for a set of lost ones, itself
//! a service from `k` surviving fragments to the lost ones; [`ReedSolomon::reconstruct`] repairs a stripe in place.
//!
//! ```
//! use services::{ReedSolomon, Service};
//!
//! let mut code = ReedSolomon::new(3, 2)?;
//! let mut stripe = *b"data fragments!..........";
//! let (data, parity) = stripe.split_at_mut(15);
//! code.serve(data, parity)?;
//! let whole = stripe;
//! stripe[5..15].fill(0); // fragments 1 and 2 are lost
//! code.reconstruct(&mut stripe, &[1, 2])?;
//! assert_eq!(stripe, whole);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The matrix is Intel ISA-L's `gf_gen_cauchy1_matrix`: row `r` of the parity has 1 / (r XOR c) for data fragment `c`,
//! rows numbered from `k` on. The sets {0..k} and {k..k + m} have no element in common, which makes it a Cauchy matrix,
//! each square part of which can be inverted; that is why every loss of up to `m` fragments can be repaired.

use crate::galois::{Element, Products};
use crate::matrix::invert;
use crate::refused::Refused;
use crate::service::{Service, room};
use crate::unsafe_galois::Kernel;

/// Most fragments, data and parity together: the field's elements.
const FRAGMENTS_MAX: usize = 256;

/// A code that cannot be, or a loss that cannot be repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ErasureError {
    /// The numbers of fragments are out of range.
    #[error("{data} + {parity} fragments: there must be 1 of each at least, 256 together at most")]
    Shape {
        /// Data fragments.
        data: usize,
        /// Parity fragments.
        parity: usize,
    },
    /// More fragments are lost than the code has parity for.
    #[error("{lost} fragments are lost, {parity} can be repaired: read more from other copies")]
    TooManyLost {
        /// How many are lost.
        lost: usize,
        /// How many may be.
        parity: usize,
    },
    /// A lost fragment's number does not exist, or is named twice or out of order.
    #[error("lost fragment {fragment} is unknown, or not named in ascending order: 0 to {last}")]
    Fragment {
        /// The number.
        fragment: usize,
        /// The last one that exists.
        last: usize,
    },
    /// The stripe is not whole fragments.
    #[error("a stripe of {found} bytes is not {fragments} fragments of equal length")]
    Stripe {
        /// Bytes given.
        found: usize,
        /// Fragments that they should be.
        fragments: usize,
    },
}

/// A Reed-Solomon code of `k` data and `m` parity fragments.
#[derive(Debug)]
pub struct ReedSolomon {
    data: usize,
    parity: usize,
    kernel: Kernel,
    /// The factors of the parity: row by row, one for each data fragment.
    products: Box<[Products]>,
}

/// The element of the matrix for parity fragment `row` (from `k` on) and data fragment `column`.
fn cauchy(row: usize, column: usize) -> Element {
    // Both are below 256 and different, so there is an inverse.
    Element((row ^ column) as u8).inverse().unwrap_or(Element::ZERO)
}

impl ReedSolomon {
    /// A code with the processor's fastest instructions.
    ///
    /// # Errors
    /// [`ErasureError::Shape`].
    pub fn new(data: usize, parity: usize) -> Result<Self, ErasureError> {
        Self::with_kernel(data, parity, Kernel::detect())
    }

    /// A code that multiplies with `kernel`.
    ///
    /// # Errors
    /// [`ErasureError::Shape`].
    pub fn with_kernel(data: usize, parity: usize, kernel: Kernel) -> Result<Self, ErasureError> {
        let in_range = 1..FRAGMENTS_MAX;
        let total = data.saturating_add(parity);
        if !in_range.contains(&data) || !in_range.contains(&parity) || total > FRAGMENTS_MAX {
            return Err(ErasureError::Shape { data, parity });
        }
        let rows = data..data + parity;
        let products = rows
            .flat_map(|row| (0..data).map(move |column| Products::of(cauchy(row, column))))
            .collect();
        Ok(Self { data, parity, kernel, products })
    }

    /// How the fragments of `lost` (ascending; data 0 to k - 1, then parity) come from the first `k` that are not.
    /// Inverts a matrix and allocates: done once for a loss, not once for a request.
    ///
    /// # Errors
    /// [`ErasureError::TooManyLost`], [`ErasureError::Fragment`].
    pub fn repair(&self, lost: &[usize]) -> Result<Repair, ErasureError> {
        let total = self.data + self.parity;
        if lost.len() > self.parity {
            return Err(ErasureError::TooManyLost { lost: lost.len(), parity: self.parity });
        }
        let mut next = 0;
        for &fragment in lost {
            if fragment < next || fragment >= total {
                return Err(ErasureError::Fragment { fragment, last: total - 1 });
            }
            next = fragment + 1;
        }
        // Every square part of a Cauchy matrix is regular, so there is a repair.
        Repair::of((self.data, total), lost, self.kernel, cauchy)
            .ok_or(ErasureError::TooManyLost { lost: lost.len(), parity: self.parity })
    }

    /// Brings back the fragments of `lost` in a stripe of `k + m` fragments, whatever stands in their place.
    ///
    /// # Errors
    /// As [`repair`](Self::repair), and [`ErasureError::Stripe`].
    pub fn reconstruct(&self, stripe: &mut [u8], lost: &[usize]) -> Result<(), ErasureError> {
        let repair = self.repair(lost)?;
        let (found, fragments) = (stripe.len(), self.data + self.parity);
        if found == 0 || !found.is_multiple_of(fragments) {
            return Err(ErasureError::Stripe { found, fragments });
        }
        repair.apply(stripe, found / fragments);
        Ok(())
    }
}

impl Service for ReedSolomon {
    fn name(&self) -> &'static str {
        "erasure coding"
    }

    fn serve(&mut self, request: &[u8], reply: &mut [u8]) -> Result<usize, Refused> {
        let fragment_len = part_len(request.len(), self.data)?;
        let out = room(reply, self.parity * fragment_len)?;
        self.kernel.dot(&self.products, request, fragment_len, out);
        Ok(out.len())
    }

    fn reply_len_max(&self, request_len: usize) -> usize {
        request_len / self.data * self.parity
    }
}

/// The repair of one set of lost fragments. As a service: the request is the fragments of [`Repair::survivors`], the
/// reply those of [`Repair::lost`].
#[derive(Debug)]
pub struct Repair {
    survivors: Box<[usize]>,
    lost: Box<[usize]>,
    kernel: Kernel,
    /// For each lost fragment, a factor for each survivor.
    products: Box<[Products]>,
}

impl Repair {
    /// The fragments that are read, `k` of them, ascending.
    pub fn survivors(&self) -> &[usize] {
        &self.survivors
    }

    /// The fragments that are brought back, ascending.
    pub fn lost(&self) -> &[usize] {
        &self.lost
    }

    /// The repair of `lost`, ascending, in a linear code of `total` fragments, the first `k` of them data. `parity` is
    /// the factor of a parity fragment (from `k` on) and a data fragment. `None`: the others do not suffice.
    pub(crate) fn of(
        (k, total): (usize, usize),
        lost: &[usize],
        kernel: Kernel,
        parity: impl Fn(usize, usize) -> Element,
    ) -> Option<Self> {
        let survivors: Box<[usize]> =
            (0..total).filter(|fragment| !lost.contains(fragment)).take(k).collect();
        // Rows of the generator: the fragments as sums of the data.
        let generator = |row: usize, column: usize| match row < k {
            true => Element(u8::from(row == column)),
            false => parity(row, column),
        };
        let entry = |at: usize| generator(survivors[at / k], at % k);
        let mut matrix: Vec<Element> = (0..k * k).map(entry).collect();
        // The data as sums of the survivors.
        let inverse = invert(&mut matrix, k)?;
        let factor = |at: usize| {
            let term = |i: usize| generator(lost[at / k], i).mul(inverse[i * k + at % k]);
            Products::of((0..k).map(term).fold(Element::ZERO, Element::add))
        };
        let products = (0..lost.len() * k).map(factor).collect();
        Some(Self { survivors, lost: lost.into(), kernel, products })
    }

    /// Repairs a whole stripe of fragments of `length` bytes in place.
    pub(crate) fn apply(&self, stripe: &mut [u8], length: usize) {
        let rows = self.products.chunks_exact(self.survivors.len());
        for (&lost, factors) in self.lost.iter().zip(rows) {
            let (before, rest) = stripe.split_at_mut(lost * length);
            let (out, after) = rest.split_at_mut(length);
            out.fill(0);
            for (&survivor, products) in self.survivors.iter().zip(factors) {
                let source = if survivor < lost {
                    &before[survivor * length..][..length]
                } else {
                    &after[(survivor - lost - 1) * length..][..length]
                };
                self.kernel.add_product(products, source, out);
            }
        }
    }
}

impl Service for Repair {
    fn name(&self) -> &'static str {
        "erasure repair"
    }

    fn serve(&mut self, request: &[u8], reply: &mut [u8]) -> Result<usize, Refused> {
        let fragment_len = part_len(request.len(), self.survivors.len())?;
        let out = room(reply, self.lost.len() * fragment_len)?;
        if !self.lost.is_empty() {
            self.kernel.dot(&self.products, request, fragment_len, out);
        }
        Ok(out.len())
    }

    fn reply_len_max(&self, request_len: usize) -> usize {
        request_len / self.survivors.len() * self.lost.len()
    }
}

/// The length of each of `parts` equal parts of a request.
///
/// # Errors
/// [`Refused::Length`] where they would not be equal, or empty.
#[inline]
pub(crate) fn part_len(request_len: usize, parts: usize) -> Result<usize, Refused> {
    if request_len == 0 || !request_len.is_multiple_of(parts) {
        return Err(Refused::Length { found: request_len, multiple: parts });
    }
    Ok(request_len / parts)
}
