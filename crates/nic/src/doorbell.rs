//! Going to sleep on a ring without losing a wake-up: two words' worth of Dekker's algorithm.
//!
//! The consumer stores "armed" and then looks at the ring; the producer stores its index and then
//! looks at "armed". Each side's store must be visible before its own look, which only a full fence
//! gives. The producer pays for one fence per burst (about 5 ns), and for a system call only where
//! the consumer sleeps.

use crate::unsafe_ring::Word;

/// The consumer's first phase: answers whether it may sleep.
pub(crate) fn arm<W: Word>(armed: &W, is_empty: impl FnOnce() -> bool) -> bool {
    armed.store_relaxed(1);
    W::full_fence();
    is_empty()
}

/// The consumer is awake again.
pub(crate) fn disarm<W: Word>(armed: &W) {
    armed.store_relaxed(0);
}

/// The producer, after submitting: answers whether the consumer must be woken, and takes that duty.
pub(crate) fn must_ring<W: Word>(armed: &W) -> bool {
    W::full_fence();
    let ring = armed.load_relaxed() != 0;
    if ring {
        // One wake-up suffices; the consumer arms anew before it sleeps anew.
        armed.store_relaxed(0);
    }
    ring
}
