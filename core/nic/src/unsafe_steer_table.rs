//! The indirection table of `steer_program`: a map of the kernel's, as memory that the program reads while we
//! write.
//!
//! This module holds `unsafe` because it uses memory that the kernel shares with us.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::MapFlags;

use crate::unsafe_mapping::Mapping;

/// Entries, each the number of a queue. No system call changes one, so that a process without privileges can,
/// and an elastic thread in the middle of its cycle.
#[derive(Debug)]
pub(crate) struct SteerTable {
    mapping: Mapping,
    entries: usize,
}

impl SteerTable {
    /// Maps an array map (`BPF_F_MMAPABLE`) of `entries` 64-bit values.
    pub(crate) fn map(map: BorrowedFd<'_>, entries: usize) -> io::Result<Self> {
        // The kernel refuses a mapping that is larger than the map: all entries lie in there.
        let mapping = Mapping::new(map, entries * size_of::<u64>(), MapFlags::empty(), 0)?;
        Ok(Self { mapping, entries })
    }

    fn entry(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.entries, "the callers check it");
        // SAFETY: within the mapping, which lives as long as `self`; any bits are an `AtomicU64`; the kernel's
        // program only reads, and others of this process's only write through this type.
        unsafe { self.mapping.base().cast::<AtomicU64>().add(index).as_ref() }
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
