//! The store's memory: one mapping, in huge pages where the system has them, carved into exclusive
//! slices for the shards.
//!
//! A request looks at a bucket and an item that it has not looked at for long, so nearly every one
//! misses the TLB; in 4 KiB pages that costs more than the protocol does. Hence the mapping is aligned
//! to 2 MiB and the kernel is asked for huge pages (`madvise`; where it has none to give, or none are
//! enabled, the pages are small and nothing else changes).
//!
//! This module holds `unsafe` because slices point into the mapping. It stays sound by three rules:
//! each byte is carved at most once; every slice keeps the mapping alive; and only types of which zeroed
//! memory and any bytes are values are carved.
#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable};

/// Size and alignment of a huge page.
const HUGE_PAGE: usize = 2 << 20;
/// Slices begin at multiples of a cache line.
const ALIGNMENT: usize = 64;

/// The mapping, as it is to be unmapped.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range; what lies in it belongs to the slices, each of which has its own part.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped with this length; no slice is left, as each holds the mapping.
        unsafe { system::unmap(self.base, self.bytes) };
    }
}

/// The system calls.
#[cfg(not(miri))]
mod system {
    use std::ptr::{NonNull, null_mut};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    /// A new zeroed mapping.
    pub(super) fn map(bytes: usize) -> std::io::Result<NonNull<u8>> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new private mapping at an address that the kernel chooses.
        let base = unsafe { mmap_anonymous(null_mut(), bytes, protection, flags)? };
        NonNull::new(base.cast()).ok_or_else(|| std::io::ErrorKind::OutOfMemory.into())
    }

    /// Returns a mapping. A failure leaves it in place, which is harmless.
    ///
    /// # Safety
    /// From [`map`] with this length, and nobody uses it any more.
    pub(super) unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise.
        let _ = unsafe { munmap(base.as_ptr().cast(), bytes) };
    }

    /// Where the advice is not taken, pages are small.
    ///
    /// # Safety
    /// The range lies in a mapping.
    pub(super) unsafe fn ask_for_huge_pages(base: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise; the advice changes no contents.
        let _ = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
    }
}

/// The allocator instead, as Miri knows no mappings.
#[cfg(miri)]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 4096).expect("a size that was allocated")
    }

    pub(super) fn map(bytes: usize) -> std::io::Result<NonNull<u8>> {
        // SAFETY: the size is not zero.
        let base = unsafe { alloc_zeroed(layout(bytes)) };
        NonNull::new(base).ok_or_else(|| std::io::ErrorKind::OutOfMemory.into())
    }

    pub(super) unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(base.as_ptr(), layout(bytes)) };
    }

    pub(super) unsafe fn ask_for_huge_pages(_: NonNull<u8>, _: usize) {}
}

/// Zeroed memory that has not been given to anybody yet.
#[derive(Debug)]
pub(crate) struct Memory {
    mapping: Arc<Mapping>,
    next: usize,
    end: usize,
}

impl Memory {
    /// Room for slices of `bytes` bytes in all, `slices` of them.
    ///
    /// # Errors
    /// What the system said: there is not so much address space.
    pub(crate) fn new(bytes: usize, slices: usize) -> std::io::Result<Self> {
        let wanted = (bytes + slices * ALIGNMENT).next_multiple_of(HUGE_PAGE);
        let mapped = wanted + HUGE_PAGE;
        let base = system::map(mapped)?;
        let mapping = Arc::new(Mapping { base, bytes: mapped });
        let next = base.as_ptr().align_offset(HUGE_PAGE);
        // SAFETY: the range lies in the mapping.
        unsafe { system::ask_for_huge_pages(base.add(next), wanted) };
        Ok(Self { mapping, next, end: next + wanted })
    }

    /// The next `count` words, zeroed; `None` where there are not so many.
    pub(crate) fn carve<T: FromBytes>(&mut self, count: usize) -> Option<Carved<T>> {
        let start = self.next.next_multiple_of(ALIGNMENT.max(align_of::<T>()));
        let end = start.checked_add(count.checked_mul(size_of::<T>())?)?;
        if end > self.end {
            return None;
        }
        self.next = end;
        // SAFETY: the offset lies in the mapping.
        let base = unsafe { self.mapping.base.add(start) }.cast();
        Some(Carved { base, count, mapping: Arc::clone(&self.mapping) })
    }
}

/// A slice that owns its part of the mapping.
#[derive(Debug)]
pub(crate) struct Carved<T> {
    base: NonNull<T>,
    count: usize,
    #[expect(dead_code, reason = "held, so that it lives as long as the slice")]
    mapping: Arc<Mapping>,
}

// SAFETY: a slice is the only way to its words, which are plain integers.
unsafe impl<T: FromBytes + Send> Send for Carved<T> {}
// SAFETY: through a shared reference the words are only read.
unsafe impl<T: FromBytes + Immutable + Sync> Sync for Carved<T> {}

impl<T: FromBytes> Deref for Carved<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `count` words at `base` lie in the mapping, aligned, zeroed or written since, and
        // belong to this slice alone.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.count) }
    }
}

impl<T: FromBytes> DerefMut for Carved<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `&mut self` is the only way to them.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_zeroed_apart_and_outlive_what_they_were_carved_from() {
        // Miri takes a second for each ten thousand.
        const BYTES: usize = if cfg!(miri) { 5_001 } else { 2_000_001 };
        let mut memory = Memory::new(3_000_000, 2).expect("memory");
        let mut words = memory.carve::<u32>(1000).expect("room");
        let mut bytes = memory.carve::<u8>(BYTES).expect("room");
        assert!(words.iter().all(|&word| word == 0) && bytes.iter().all(|&byte| byte == 0));
        words.fill(u32::MAX);
        bytes.fill(7);
        assert!(words.iter().all(|&word| word == u32::MAX));
        assert!(bytes.iter().all(|&byte| byte == 7));
        drop(memory);
        drop(words);
        assert_eq!(bytes[BYTES - 1], 7);
        assert_eq!(bytes.as_ptr() as usize % ALIGNMENT, 0);
    }

    #[test]
    fn no_more_is_carved_than_there_is() {
        let mut memory = Memory::new(100, 1).expect("memory");
        assert!(memory.carve::<u8>(HUGE_PAGE + 1).is_none());
        assert!(memory.carve::<u32>(usize::MAX).is_none());
        assert!(memory.carve::<u8>(100).is_some());
    }
}
