//! The depot: free chunks that belong to no core.
//!
//! Pools visit it once per [`BATCH`] allocations or frees at the most, which is why a lock may
//! stand here. It is a try-lock that spins for a bounded time: a core that finds it held gives up
//! and carries on as if the depot were empty (or keeps its surplus), so no core waits for another.
#![allow(unsafe_code)]

use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

/// Chunks that move between a pool and the depot at a time.
pub(crate) const BATCH: usize = 64;

#[derive(Debug)]
pub(crate) struct Depot {
    locked: AtomicBool,
    free: UnsafeCell<Vec<NonNull<u8>>>,
}

// SAFETY: `free` is reached only between a successful exchange of `locked` and its release.
unsafe impl Send for Depot {}
// SAFETY: as above.
unsafe impl Sync for Depot {}

impl Depot {
    /// An empty depot with room for `capacity` chunks: pushing never allocates.
    pub(crate) fn new(capacity: u32) -> Self {
        let free = UnsafeCell::new(Vec::with_capacity(capacity as usize));
        Self { locked: AtomicBool::new(false), free }
    }

    /// Runs `body` on the free list, or answers `None` where another core holds it.
    pub(crate) fn try_with<R>(&self, body: impl FnOnce(&mut Vec<NonNull<u8>>) -> R) -> Option<R> {
        // Acquire pairs with the release below: the list is seen as its last user left it.
        self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // SAFETY: the flag was clear and is now ours, so no other reference exists.
        let result = body(unsafe { &mut *self.free.get() });
        self.locked.store(false, Ordering::Release);
        Some(result)
    }

    /// Runs `body` on the free list, waiting for it. Not for the hot path.
    pub(crate) fn with<R>(&self, body: impl FnOnce(&mut Vec<NonNull<u8>>) -> R) -> R {
        let mut body = Some(body);
        loop {
            let ran = self.try_with(|free| body.take().map(|body| body(free)));
            if let Some(Some(result)) = ran {
                return result;
            }
            core::hint::spin_loop();
        }
    }
}
