//! The word that sleepers announce themselves in: an atomic of this process or one in shared memory.

use core::sync::atomic::Ordering;

use crate::mutants::{Mutant, mutated};

/// An atomic word of sleepers' bits. Bits beyond its width are dropped.
pub trait Word {
    /// Reads the bits.
    fn load(&self, order: Ordering) -> u64;
    /// Sets bits; the word before.
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64;
    /// Clears all but these bits; the word before.
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64;
    /// The fence that belongs to this kind of word: the processor's, or the model checker's.
    fn fence(order: Ordering);
}

impl<W: Word> Word for &W {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        (**self).load(order)
    }
    #[inline(always)]
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        (**self).fetch_or(bits, order)
    }
    #[inline(always)]
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        (**self).fetch_and(bits, order)
    }
    #[inline(always)]
    fn fence(order: Ordering) {
        W::fence(order);
    }
}

macro_rules! words {
    ($($module:ident :: $atomic:ident as $bits:ty),+) => {$(
        impl Word for $module::sync::atomic::$atomic {
            #[inline(always)]
            fn load(&self, order: Ordering) -> u64 {
                u64::from(self.load(order))
            }
            #[inline(always)]
            fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
                u64::from(self.fetch_or(bits as $bits, order))
            }
            #[inline(always)]
            fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
                u64::from(self.fetch_and(bits as $bits, order))
            }
            #[inline(always)]
            fn fence(order: Ordering) {
                $module::sync::atomic::fence(order);
            }
        }
    )+};
}

words!(core::AtomicU32 as u32, core::AtomicU64 as u64);
#[cfg(loom)]
words!(loom::AtomicU32 as u32, loom::AtomicU64 as u64);

/// Reads a word in which wakers publish work, for a sleeper that pairs
/// [by exchange](crate::ByExchange): by a read-modify-write that changes nothing.
///
/// Release: a waker whose publication comes after this look acquires the announcement. Acquire: what stands behind
/// a publication that came before is seen.
#[inline]
pub fn look(word: &impl Word) -> u64 {
    if mutated(Mutant::LookByLoad) {
        return word.load(Ordering::Acquire);
    }
    word.fetch_or(
        0,
        if mutated(Mutant::LookWithoutRelease) {
            Ordering::Acquire
        } else if mutated(Mutant::LookWithoutAcquire) {
            Ordering::Release
        } else {
            Ordering::AcqRel
        },
    )
}
