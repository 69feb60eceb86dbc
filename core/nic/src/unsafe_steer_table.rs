//! The indirection table of `steer_program`: a map of the kernel's, as memory that the program reads while we
//! write.
//!
//! This module holds `unsafe` because it maps memory that the kernel shares with us.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Entries, each the number of a queue. No system call changes one, so that a process without privileges can,
/// and an elastic thread in the middle of its cycle.
#[derive(Debug)]
pub(crate) struct SteerTable {
    base: NonNull<AtomicU64>,
    entries: usize,
}

// SAFETY: the mapping is an address range that may be used and unmapped from any thread, and all accesses to it
// are atomic.
unsafe impl Send for SteerTable {}
// SAFETY: as above.
unsafe impl Sync for SteerTable {}

impl SteerTable {
    /// Maps an array map (`BPF_F_MMAPABLE`) of `entries` 64-bit values.
    pub(crate) fn map(map: BorrowedFd<'_>, entries: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let len = entries * size_of::<u64>();
        // SAFETY: a new mapping at an address that the kernel chooses. It refuses one that is larger than the
        // map, so that all entries lie in there.
        let base =
            unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, map, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { base, entries })
    }

    fn entry(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.entries, "the callers check it");
        // SAFETY: within the mapping, which lives as long as `self`; any bits are an `AtomicU64`; the kernel's
        // program only reads, and others of this process's only write through this type.
        unsafe { self.base.add(index).as_ref() }
    }

    /// Frames of this entry go to `queue` from now on. Whoever sees a frame there also sees what the caller has
    /// written before: the program passes a frame on after it has read the entry.
    pub(crate) fn set(&self, index: usize, queue: u16) {
        self.entry(index).store(queue.into(), Ordering::Release);
    }

    /// The queue of an entry.
    pub(crate) fn get(&self, index: usize) -> u16 {
        self.entry(index).load(Ordering::Relaxed) as u16
    }
}

impl Drop for SteerTable {
    fn drop(&mut self) {
        // SAFETY: mapped with this length by `map`, and nothing borrows from it any more. A failure leaves the
        // mapping, which is harmless.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.entries * size_of::<u64>()) };
    }
}
