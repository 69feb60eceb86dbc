//! Memory that two processes map: words in it, by offset, and doorbells at a stride.
//!
//! ```
//! use qwait::{Region, DoorbellRef};
//! # fn main() -> Result<(), qwait::RegionError> {
//! // A doorbell at the start of each of four pages; the descriptor goes to whoever rings.
//! let near = Region::create(4 * 4096)?;
//! let far = Region::join(near.descriptor().map_err(|source| qwait::RegionError::Os { tried: "dup", source })?)?;
//! let doorbells: Vec<DoorbellRef> = near.doorbells(0, 4096, 4)?;
//! assert_eq!(doorbells.len(), 4);
//! assert_eq!(near.len_bytes(), far.len_bytes());
//! # Ok(()) }
//! ```
//!
//! This module holds `unsafe` because it maps memory. No reference to anything but atomic words is
//! ever made into it, so whatever the other process writes is only a number. The size is sealed: a
//! peer that truncated the file could else kill us by a bus error.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::unsafe_doorbell::{Doorbell, DoorbellRef};

/// Largest region: a page for each doorbell of the largest set, and one more.
const LEN_MAX: usize = (crate::MAX_QUEUES as usize + 1) * 4096;

/// Why a region could not be made, joined or used.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The operating system refused.
    #[error("{tried} failed: {source}")]
    Os {
        /// What was tried.
        tried: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The size is not allowed.
    #[error("a shared region of {len} bytes: allowed are 1 to {LEN_MAX}")]
    BadSize {
        /// What was asked for, or offered.
        len: u64,
    },
    /// The peer could still shrink it.
    #[error("the shared memory that was offered can be shrunk: its maker must seal its size")]
    NotSealed,
    /// Words that do not lie in it.
    #[error(
        "{count} words at offset {offset}, {stride} bytes apart, do not fit a region of {len} bytes, \
         or are not aligned to 128"
    )]
    OutOfRange {
        /// First offset in bytes.
        offset: usize,
        /// Distance in bytes.
        stride: usize,
        /// How many.
        count: usize,
        /// The region's size in bytes.
        len: usize,
    },
}

fn os(tried: &'static str) -> impl FnOnce(rustix::io::Errno) -> RegionError {
    move |errno| RegionError::Os { tried, source: errno.into() }
}

/// Shared memory of a fixed size, zero at first.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    memfd: OwnedFd,
}

// SAFETY: it is an address range; everything in it is reached through atomics.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Makes a region of at least `len` bytes, rounded up to pages.
    ///
    /// # Errors
    /// [`RegionError::BadSize`], [`RegionError::Os`].
    pub fn create(len: usize) -> Result<Arc<Self>, RegionError> {
        if len == 0 || len > LEN_MAX {
            return Err(RegionError::BadSize { len: len as u64 });
        }
        let len = len.next_multiple_of(4096);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = memfd_create("tailplane-qwait", flags).map_err(os("memfd_create"))?;
        ftruncate(&memfd, len as u64).map_err(os("ftruncate of the region"))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&memfd, seals).map_err(os("sealing the region's size"))?;
        Self::map(memfd, len)
    }

    /// Maps a region that another process made.
    ///
    /// # Errors
    /// [`RegionError::NotSealed`], [`RegionError::BadSize`], [`RegionError::Os`].
    pub fn join(memfd: OwnedFd) -> Result<Arc<Self>, RegionError> {
        let seals = fcntl_get_seals(&memfd).map_err(os("reading the region's seals"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(RegionError::NotSealed);
        }
        let size = fstat(&memfd).map_err(os("fstat of the region"))?.st_size;
        let len = usize::try_from(size).ok().filter(|len| (1..=LEN_MAX).contains(len));
        let len = len.ok_or(RegionError::BadSize { len: size.max(0) as u64 })?;
        Self::map(memfd, len)
    }

    fn map(memfd: OwnedFd, len: usize) -> Result<Arc<Self>, RegionError> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else is touched.
        let base = unsafe { mmap(null_mut::<c_void>(), len, prot, MapFlags::SHARED, &memfd, 0) }
            .map_err(os("mmap of the region"))?;
        let base =
            NonNull::new(base.cast::<u8>()).ok_or(RegionError::BadSize { len: len as u64 })?;
        Ok(Arc::new(Self { base, len, memfd }))
    }

    /// A duplicate of the descriptor, to be passed to another process.
    ///
    /// # Errors
    /// What the operating system says, usually that no more descriptors can be had.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.memfd.as_fd().try_clone_to_owned()
    }

    /// The size in bytes.
    pub fn len_bytes(&self) -> usize {
        self.len
    }

    /// The address of `size` bytes at an offset that is a multiple of `align`.
    fn at(&self, offset: usize, size: usize, align: usize) -> Option<NonNull<u8>> {
        let fits = offset.checked_add(size).is_some_and(|end| end <= self.len);
        // SAFETY: the offset lies inside the mapping.
        (fits && offset.is_multiple_of(align)).then(|| unsafe { self.base.add(offset) })
    }

    /// A word of 32 bits; `None` where it is outside or not aligned.
    pub(crate) fn word32(&self, offset: usize) -> Option<&AtomicU32> {
        // SAFETY: inside the mapping, which is page-aligned and lives as long as `self`; aligned; any
        // bits are a valid atomic, and everybody accesses it as one.
        self.at(offset, 4, 4).map(|place| unsafe { place.cast::<AtomicU32>().as_ref() })
    }

    /// A word of 64 bits; `None` where it is outside or not aligned.
    pub(crate) fn word64(&self, offset: usize) -> Option<&AtomicU64> {
        // SAFETY: as for `word32`.
        self.at(offset, 8, 8).map(|place| unsafe { place.cast::<AtomicU64>().as_ref() })
    }

    /// Doorbells that lie in the region: `count` of them, the first at `offset`, `stride` bytes apart
    /// (both multiples of 128; 4,096 gives each a page). They keep the region mapped.
    ///
    /// For processes that trust each other as threads do: whoever can write such a doorbell can have
    /// its queue forgotten or, in a shared set, served by two consumers at once. Tenants that are not
    /// trusted belong in a [`TenantSet`](crate::TenantSet).
    ///
    /// # Errors
    /// [`RegionError::OutOfRange`].
    pub fn doorbells(
        self: &Arc<Self>,
        offset: usize,
        stride: usize,
        count: usize,
    ) -> Result<Vec<DoorbellRef>, RegionError> {
        let wrong = || RegionError::OutOfRange { offset, stride, count, len: self.len };
        let size = size_of::<Doorbell>();
        let place = |index: usize| {
            let at = index.checked_mul(stride)?.checked_add(offset)?;
            self.at(at, size, align_of::<Doorbell>())
        };
        // The last one first, so that a senseless count allocates nothing.
        if stride < size || count > 0 && place(count - 1).is_none() {
            return Err(wrong());
        }
        let doorbell = |index| {
            let place = place(index).ok_or_else(wrong)?.cast::<Doorbell>();
            // SAFETY: inside the mapping and aligned; the clone keeps it mapped; others access it as
            // atomic words.
            Ok(unsafe { DoorbellRef::from_raw(place, Arc::<Self>::clone(self)) })
        };
        (0..count).map(doorbell).collect()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which nothing refers any more: doorbells hold an `Arc` of it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, ExclusiveSet, QueueId};
    use std::sync::atomic::Ordering;

    #[test]
    #[cfg_attr(miri, ignore = "maps a memory file")]
    fn a_doorbell_in_shared_memory_is_rung_from_another_mapping() {
        let near = Region::create(2 * 4096).expect("made");
        let far = Region::join(near.descriptor().expect("duplicated")).expect("joined");
        let mut set = ExclusiveSet::new(Config::default()).expect("made");
        let mut doorbells = near.doorbells(0, 4096, 2).expect("fit");
        let producer = set.add(QueueId::new(0), doorbells.remove(1)).expect("added");
        assert_eq!(set.try_qwait().map(|queue| set.verify(queue)), Some(0));
        drop((near, doorbells));
        assert!(producer.ring());
        let word = far.word32(4096).expect("inside");
        assert_eq!(word.load(Ordering::Acquire), 1, "the other mapping sees the count");
        assert_eq!(set.try_qwait().map(|queue| set.reconsider(queue, 1)), Some(0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a memory file")]
    fn what_does_not_fit_is_refused() {
        let region = Region::create(1).expect("made");
        assert_eq!(region.len_bytes(), 4096, "rounded up to a page");
        let refused = |offset, stride, count| region.doorbells(offset, stride, count).is_err();
        assert!(refused(0, 4096, 2) && refused(0, 64, 2) && refused(64, 128, 1));
        assert!(refused(0, 128, 33) && refused(usize::MAX - 127, 128, 1));
        assert!(refused(0, usize::MAX & !127, 3) && refused(0, 128, usize::MAX));
        assert!(!refused(0, 128, 32) && !refused(0, 128, 0));
        assert!(region.word32(4096).is_none() && region.word32(2).is_none());
        assert!(region.word64(4092).is_none() && region.word64(4088).is_some());
        assert!(matches!(Region::create(0), Err(RegionError::BadSize { len: 0 })));
        assert!(Region::create(LEN_MAX + 1).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a memory file")]
    fn a_region_that_could_shrink_is_refused() {
        let loose = memfd_create("loose", MemfdFlags::ALLOW_SEALING).expect("made");
        ftruncate(&loose, 4096).expect("sized");
        assert!(matches!(Region::join(loose), Err(RegionError::NotSealed)));
    }
}
