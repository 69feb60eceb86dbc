//! A mapping of memory that the kernel or another process shares with this one.
//!
//! This module holds `unsafe` because it maps and unmaps. What lies in the memory, and who may use it how, is for the
//! modules that hold a mapping.
#![allow(unsafe_code)]

use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A mapping, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address range that may be used and unmapped from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file from `offset` on, to be read and written.
    pub(crate) fn new(
        file: impl AsFd,
        len: usize,
        flags: MapFlags,
        offset: u64,
    ) -> Result<Self, Errno> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | flags);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, file, offset)? };
        Ok(Self { base: NonNull::new(base.cast()).ok_or(Errno::FAULT)?, len })
    }

    /// Where it begins, on a page.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped with this length by `new`, and whatever pointed into it is gone. A failure leaves the mapping,
        // which is harmless.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
