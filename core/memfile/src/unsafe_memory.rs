//! A memory file, mapped: words by offset, bytes copied in and out.
//!
//! This module holds `unsafe` because the other process may write to that memory at any time: no
//! reference into it is ever made but to atomic words, bytes are only copied (see `unsafe_copy`), and the file's size is
//! sealed, so that nobody can make our accesses fault by shrinking it. (Whoever may write to it can punch holes into
//! it: they read as zeroes, which is one more thing that the other side may write.)
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::unsafe_copy::{copy_array_from_shared, copy_from_shared, copy_to_shared};

/// linux/magic.h: what memory files of ordinary pages are in.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// What a page table's entry maps at least.
const PAGE_BYTES: usize = 4096;

/// Memory that two processes map.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
    file: OwnedFd,
}

// SAFETY: it is an address range; words in it are reached through atomics, bytes by copying.
unsafe impl Send for Memory {}
// SAFETY: as above; that copies may race with the other process's writes is the point of this module.
unsafe impl Sync for Memory {}

impl Memory {
    /// Makes zeroed memory of so many bytes, sealed at its size, and maps it with all its pages: the
    /// first touch of a page is paid for here and not on a serving core. `name` is for `/proc/*/maps`.
    ///
    /// # Errors
    /// What the operating system says: no memory, no descriptors.
    pub fn create(name: &str, len: usize) -> io::Result<Arc<Self>> {
        Self::sealed(name, len, SealFlags::empty())
    }

    /// The same, for others to read: only this mapping can be written to, nobody can make another such.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_for_readers(name: &str, len: usize) -> io::Result<Arc<Self>> {
        Self::sealed(name, len, SealFlags::FUTURE_WRITE)
    }

    fn sealed(name: &str, len: usize, further: SealFlags) -> io::Result<Arc<Self>> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, len as u64)?;
        let memory = Self::map(file, len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::POPULATE)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | further;
        fcntl_add_seals(&memory.file, seals)?;
        Ok(memory)
    }

    /// Maps memory that the other side made; it must have exactly this size.
    ///
    /// # Errors
    /// `InvalidData`: it is not sealed against shrinking, or has another size. Else what the operating system
    /// says.
    pub fn join(file: OwnedFd, len: usize) -> io::Result<Arc<Self>> {
        Self::check(&file, len)?;
        Self::map(file, len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::empty())
    }

    /// The same, only to read. A store there is a fault of the process that tries.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn join_read_only(file: OwnedFd, len: usize) -> io::Result<Arc<Self>> {
        Self::check(&file, len)?;
        Self::map(file, len, ProtFlags::READ, MapFlags::POPULATE)
    }

    /// The same, of a process that may try to harm this one: memory as [`create_for_readers`](Self::create_for_readers)
    /// makes it. Its pages are ordinary ones: of huge pages there may be none left where it has given some back, and
    /// then a read is a fault. And it is sealed against further writers, so that no page can be given back: that would
    /// interrupt each processor on which this process runs, as often as the other one likes.
    ///
    /// # Errors
    /// As [`join`](Self::join); `InvalidData` also where it is no memory of ordinary pages, or not sealed so.
    pub fn join_untrusted(file: OwnedFd, len: usize) -> io::Result<Arc<Self>> {
        Self::untrusted_len(&file)?;
        Self::join_read_only(file, len)
    }

    /// The size of memory that [`join_untrusted`](Self::join_untrusted) accepts, in bytes. Never waits, whatever file
    /// the other process has passed.
    ///
    /// # Errors
    /// As [`join_untrusted`](Self::join_untrusted).
    pub fn untrusted_len(file: impl AsFd) -> io::Result<u64> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        // First, since the kernel answers it by itself: none but memory files have seals. All other questions go to
        // the file's file system, which may be another process (FUSE) that never answers.
        let seals = fcntl_get_seals(&file).map_err(|_| invalid())?;
        let keeps_pages = SealFlags::FUTURE_WRITE | SealFlags::WRITE;
        let is_sealed = seals.contains(SealFlags::SHRINK) && seals.intersects(keeps_pages);
        if !is_sealed || fstatfs(&file)?.f_type != TMPFS_MAGIC {
            return Err(invalid());
        }
        Ok(fstat(&file)?.st_size as u64)
    }

    fn check(file: &OwnedFd, len: usize) -> io::Result<()> {
        let sealed = fcntl_get_seals(file)?.contains(SealFlags::SHRINK);
        match sealed && fstat(file)?.st_size == len as i64 {
            true => Ok(()),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn map(
        file: OwnedFd,
        len: usize,
        protection: ProtFlags,
        how: MapFlags,
    ) -> io::Result<Arc<Self>> {
        let flags = MapFlags::SHARED | how;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, &file, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidInput)?;
        let writable = protection.contains(ProtFlags::WRITE);
        Ok(Arc::new(Self { base, len, writable, file }))
    }

    /// Takes the pages of a range out of this process's page table; the bytes stay in the file, and an access maps
    /// their page again. For who unmaps large memory in steps, since each step interrupts the other threads once.
    /// Nothing happens where the range is outside, or does not begin at a page.
    pub fn forget_pages(&self, offset: usize, len: usize) {
        let Some(from) = self.at(offset, len, PAGE_BYTES) else { return };
        // SAFETY: inside our own shared mapping, whose bytes the file keeps. A failure leaves the pages mapped, which
        // is harmless.
        let _ = unsafe { madvise(from.as_ptr().cast(), len, Advice::LinuxDontNeed) };
    }

    /// Where it is mapped.
    pub fn addresses(&self) -> std::ops::Range<usize> {
        let base = self.base.addr().get();
        base..base + self.len
    }

    /// Bytes of it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The descriptor.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A duplicate of the descriptor, to be passed on.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.file.as_fd().try_clone_to_owned()
    }

    /// Bytes in place, for who reads what a trusted other side wrote.
    ///
    /// # Safety
    /// Nobody may write to these bytes while the answer is in use, on either side.
    #[inline]
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> Option<&[u8]> {
        let from = self.at(offset, len, 1)?;
        // SAFETY: inside the mapping, which lives as long as `self`; the caller sees to the rest.
        Some(unsafe { std::slice::from_raw_parts(from.as_ptr(), len) })
    }

    /// The address of `size` bytes.
    #[inline]
    fn at(&self, offset: usize, size: usize, align: usize) -> Option<NonNull<u8>> {
        let fits = offset.checked_add(size).is_some_and(|end| end <= self.len);
        // SAFETY: inside the mapping.
        (fits && offset.is_multiple_of(align)).then(|| unsafe { self.base.add(offset) })
    }

    /// A word of 32 bits; `None` where it is outside or not aligned. Not to be written where the memory was
    /// joined to be read: that is a fault.
    #[inline]
    pub fn word(&self, offset: usize) -> Option<&AtomicU32> {
        // SAFETY: inside the mapping, which is page-aligned and lives as long as `self`; aligned; any
        // bits are a valid atomic, and everybody accesses it as one.
        self.at(offset, 4, 4).map(|place| unsafe { place.cast::<AtomicU32>().as_ref() })
    }

    /// A word of 64 bits; `None` where it is outside or not aligned.
    #[inline]
    pub fn word64(&self, offset: usize) -> Option<&AtomicU64> {
        // SAFETY: as for `word`.
        self.at(offset, 8, 8).map(|place| unsafe { place.cast::<AtomicU64>().as_ref() })
    }

    /// So many words of 64 bits, checked together; `None` where they are not all inside, or not aligned.
    #[inline]
    pub fn words<const N: usize>(&self, offset: usize) -> Option<&[AtomicU64; N]> {
        // SAFETY: as for `word`; an array of them is what stands there.
        self.at(offset, 8 * N, 8).map(|place| unsafe { place.cast::<[AtomicU64; N]>().as_ref() })
    }

    /// So many arrays of words, one behind the other; `None` where they are not all inside, or not aligned.
    #[inline]
    pub fn arrays<const N: usize>(&self, offset: usize, count: usize) -> Option<&[[AtomicU64; N]]> {
        let place = self.at(offset, count.checked_mul(8 * N)?, 8)?;
        // SAFETY: as for `words`, of each of them.
        Some(unsafe { NonNull::slice_from_raw_parts(place.cast(), count).as_ref() })
    }

    /// Copies bytes into private memory. False, and nothing is copied, where they lie outside.
    #[inline]
    #[must_use]
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) -> bool {
        let Some(from) = self.at(offset, to.len(), 1) else { return false };
        // SAFETY: `from` has that many bytes inside the mapping; `to` is ours and elsewhere.
        unsafe { copy_from_shared(from, to) };
        true
    }

    /// As many bytes as `to` has, to be copied there part by part; `None` where they lie outside.
    #[inline(always)]
    pub fn transfer<'a>(&'a self, offset: usize, to: &'a mut [u8]) -> Option<Transfer<'a>> {
        let from = self.at(offset, to.len(), 1)?;
        Some(Transfer { from, to, memory: PhantomData })
    }

    /// Copies private bytes into the memory. False, and nothing is copied, where that is outside, or the memory
    /// was joined to be read.
    #[inline]
    #[must_use]
    pub fn copy_in(&self, offset: usize, from: &[u8]) -> bool {
        let Some(to) = self.at(offset, from.len(), 1).filter(|_| self.writable) else {
            return false;
        };
        // SAFETY: `to` has that many bytes inside the mapping, which can be written to; `from` is elsewhere.
        unsafe { copy_to_shared(from, to) };
        true
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which nothing refers any more: whoever keeps an address in it
        // (`Doorbell`) keeps an `Arc` of it. A failure leaves the mapping, which is harmless.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Bytes on their way out of a memory, in parts whose length is known where the program is compiled: short ones take no
/// call. Made by [`Memory::transfer`].
#[derive(Debug)]
pub struct Transfer<'a> {
    /// As many bytes in the mapping as `to` has here.
    from: NonNull<u8>,
    to: &'a mut [u8],
    memory: PhantomData<&'a Memory>,
}

impl<'a> Transfer<'a> {
    /// Copies the next `N` bytes and answers the copy, which is private and was read once. None:
    /// fewer are left.
    #[inline(always)]
    pub fn part<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        if self.to.len() < N {
            return None;
        }
        let (now, later) = std::mem::take(&mut self.to).split_first_chunk_mut::<N>()?;
        // SAFETY: as for `copy_out`: `from` had as many bytes inside the mapping as `to` before it was split, which were
        // `N` or more; so what lies behind them is inside, or right at the end.
        unsafe {
            copy_array_from_shared(self.from, now);
            self.from = self.from.add(N);
        }
        self.to = later;
        Some(now)
    }

    /// Copies all that are left, if any are.
    #[inline]
    pub fn rest(self) -> Option<&'a [u8]> {
        if self.to.is_empty() {
            return None;
        }
        // SAFETY: as for `copy_out`: `from` has as many bytes inside the mapping as `to`.
        unsafe { copy_from_shared(self.from, self.to) };
        Some(self.to)
    }
}

/// One word of a tenant's memory by its address: what a spinning core reads for each queue in turn,
/// with no more between than the load.
#[derive(Debug)]
pub struct Doorbell {
    word: NonNull<AtomicU32>,
    _memory: Arc<Memory>,
}

// SAFETY: a shared reference to an atomic word, and what keeps it mapped.
unsafe impl Send for Doorbell {}
// SAFETY: as above.
unsafe impl Sync for Doorbell {}

impl Doorbell {
    /// The word at an offset; `None` where it is outside or not aligned.
    pub fn new(memory: &Arc<Memory>, offset: usize) -> Option<Self> {
        let word = NonNull::from(memory.word(offset)?);
        Some(Self { word, _memory: Arc::clone(memory) })
    }
}

impl std::ops::Deref for Doorbell {
    type Target = AtomicU32;
    #[inline]
    fn deref(&self) -> &AtomicU32 {
        // SAFETY: it was a reference into the mapping, which the `Arc` keeps.
        unsafe { self.word.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FallocateFlags, fallocate};
    use std::sync::atomic::Ordering;

    #[test]
    #[cfg_attr(miri, ignore = "maps a memory file")]
    fn both_sides_see_the_same_and_nothing_outside() {
        let near = Memory::create("test", 8192).expect("made");
        let far = Memory::join(near.descriptor().expect("duplicated"), 8192).expect("joined");
        assert!(near.copy_in(4090, b"across"));
        let mut read = [0; 6];
        assert!(far.copy_out(4090, &mut read) && &read == b"across");
        let doorbell = Doorbell::new(&near, 128).expect("inside");
        drop(near);
        far.word(128).expect("inside").store(7, Ordering::Release);
        assert_eq!(doorbell.load(Ordering::Acquire), 7);
        assert!(!far.copy_out(8187, &mut read) && !far.copy_in(usize::MAX, b"x"));
        assert!(far.words::<4>(8160).is_some() && far.words::<4>(8168).is_none());
        assert!(far.words::<4>(4).is_none() && far.words::<4>(usize::MAX - 7).is_none());
        assert!(far.word(8192).is_none() && far.word(2).is_none() && far.word64(4).is_none());
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a memory file")]
    fn what_is_transferred_in_parts_is_what_stands_there() {
        let memory = Memory::create("test", 4096).expect("made");
        let there: Vec<u8> = (0..100).collect();
        assert!(memory.copy_in(3996, &there));
        let mut to = [0; 100];
        let mut transfer = memory.transfer(3996, &mut to).expect("inside");
        assert_eq!(transfer.part::<64>().expect("left"), &there[..64]);
        assert!(transfer.part::<64>().is_none());
        assert_eq!(transfer.part::<32>().expect("left"), &there[64..96]);
        assert_eq!(transfer.rest().expect("left"), &there[96..]);
        assert_eq!(to[..], there);
        assert_eq!(memory.transfer(4096, &mut []).expect("nothing").rest(), None);
        for outside in [3997, 4096, usize::MAX] {
            assert!(memory.transfer(outside, &mut to).is_none(), "{outside}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a memory file")]
    fn of_whom_is_not_trusted_only_sealed_memory_of_ordinary_pages_is_joined() {
        let near = Memory::create_for_readers("test", 4096).expect("made");
        let joined = Memory::join_untrusted(near.descriptor().expect("duplicated"), 4096);
        assert!(joined.is_ok_and(|memory| !memory.copy_in(0, b"x")));
        // No page of it can be given back, not by its maker either.
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(fallocate(near.file(), punch, 0, 4096), Err(rustix::io::Errno::PERM));
        let loose = Memory::create("test", 4096).expect("made");
        assert_eq!(fallocate(loose.file(), punch, 0, 4096), Ok(()));
        let joined = Memory::join_untrusted(loose.descriptor().expect("duplicated"), 4096);
        assert_eq!(joined.map(drop).map_err(|error| error.kind()), Err(io::ErrorKind::InvalidData));
        // Whether there are huge pages or not: a file can be made, and sealed.
        let huge = memfd_create("huge", MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB);
        let huge = huge.expect("a file without pages yet");
        ftruncate(&huge, 2 << 20).expect("sized");
        fcntl_add_seals(&huge, SealFlags::SHRINK | SealFlags::FUTURE_WRITE).expect("sealed");
        let refused = Memory::join_untrusted(huge, 2 << 20).map(drop);
        assert_eq!(refused.map_err(|error| error.kind()), Err(io::ErrorKind::InvalidData));
        let null = std::fs::File::open("/dev/zero").expect("the zero device");
        assert!(Memory::join_untrusted(null.into(), 4096).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a memory file")]
    fn pages_that_are_forgotten_keep_their_bytes_and_sealed_ones_cannot_be_removed() {
        let near = Memory::create_for_readers("test", 16_384).expect("made");
        let word = near.word(8_192).expect("inside");
        word.store(7, Ordering::Release);
        near.forget_pages(4_096, 8_192);
        near.forget_pages(100, 4_096);
        near.forget_pages(12_288, 8_192);
        assert_eq!(word.load(Ordering::Acquire), 7, "the file keeps it");
        // The other way to punch a hole, by address, is closed by the same seal.
        let remove = |memory: &Memory| {
            let at = memory.addresses().start as *mut std::ffi::c_void;
            // SAFETY: inside the mapping; nobody refers to its bytes.
            unsafe { madvise(at, 4_096, Advice::LinuxRemove) }
        };
        assert_eq!(remove(&near), Err(rustix::io::Errno::PERM));
        assert_eq!(remove(&Memory::create("test", 4_096).expect("made")), Ok(()));
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a memory file")]
    fn what_is_not_sealed_or_has_another_size_is_refused() {
        let near = Memory::create("test", 4096).expect("made");
        assert!(Memory::join(near.descriptor().expect("duplicated"), 8192).is_err());
        let loose = memfd_create("loose", MemfdFlags::ALLOW_SEALING).expect("made");
        ftruncate(&loose, 4096).expect("sized");
        assert!(Memory::join(loose, 4096).is_err());
    }
}
