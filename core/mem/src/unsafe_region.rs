//! The memory behind all chunks: one mapping, owned by all of its pools together.
//!
//! This module holds `unsafe` because it maps and unmaps memory to which chunks hold raw pointers.
//! It stays sound by one rule: the mapping goes away only when every chunk is back in the depot;
//! a chunk that is missing then (held by a forgotten mbuf, or by a device) keeps the mapping alive
//! for the rest of the process.
#![allow(unsafe_code)]

use alloc::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use alloc::sync::Arc;
use core::ptr::NonNull;

use crate::depot::Depot;
use crate::{BLOCK_SIZE, CHUNK_SIZE, ChunkBytes};

/// States of a block, in its first chunk: one for each [`CHUNK_SIZE`].
const BLOCK_STATES: usize = BLOCK_SIZE / CHUNK_SIZE;
const _: () = assert!(BLOCK_STATES <= CHUNK_SIZE);

/// Chunks of a block, the first of which holds the states of all.
const fn block_chunks(size: ChunkBytes) -> usize {
    BLOCK_SIZE / size.get()
}

/// Bytes in which so many chunks fit, the blocks' first ones not counted.
fn bytes_for(chunks: usize, size: ChunkBytes) -> usize {
    (chunks + chunks.div_ceil(block_chunks(size) - 1)) * size.get()
}

/// How the memory was obtained, and so how it is returned.
#[derive(Debug)]
enum Backing {
    Heap(Layout),
    #[cfg(feature = "std")]
    Mapped {
        bytes: usize,
        memfd: std::os::fd::OwnedFd,
    },
}

/// One contiguous area of packet memory, cut into chunks.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    bytes: usize,
    chunks: u32,
    size: ChunkBytes,
    huge: bool,
    backing: Backing,
    pub(crate) depot: Depot,
}

// SAFETY: the region is an address range; whoever holds a chunk of it has that chunk alone, and
// the depot is made of atomics.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// A region on the heap, for tests and simulations. At least one chunk is made.
    pub fn heap(chunks: u32) -> Arc<Self> {
        Self::heap_of(chunks, ChunkBytes::Small)
    }

    /// The same, of chunks of this size.
    pub fn heap_of(chunks: u32, size: ChunkBytes) -> Arc<Self> {
        let bytes = bytes_for(chunks.max(1) as usize, size);
        let layout = Layout::from_size_align(bytes, BLOCK_SIZE)
            .expect("4,096 bytes times a u32 fit an address space of 64 bits");
        // SAFETY: the layout's size is not zero.
        let pointer = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(pointer) else { handle_alloc_error(layout) };
        Self::with_backing(base, bytes, size, false, Backing::Heap(layout))
    }

    /// `bytes`: whole chunks, from a multiple of a block's size on, all zero.
    fn with_backing(
        base: NonNull<u8>,
        bytes: usize,
        size: ChunkBytes,
        huge: bool,
        backing: Backing,
    ) -> Arc<Self> {
        let all = (bytes / size.get()) as u32;
        let in_block = block_chunks(size) as u32;
        let chunks = all - all.div_ceil(in_block);
        let depot = Depot::new(all);
        // The lowest is taken first.
        depot.put((0..all).rev().filter(|number| number % in_block != 0));
        Arc::new(Self { base, bytes, chunks, size, huge, backing, depot })
    }

    /// Bytes of a region that [`map`](Self::map) makes of ordinary pages.
    pub fn mapped_bytes(chunks: usize) -> usize {
        bytes_for(chunks, ChunkBytes::Small).next_multiple_of(4096)
    }

    /// Maps a region of chunks of [`CHUNK_SIZE`]; see [`map_of`](Self::map_of).
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "std")]
    pub fn map(chunks: usize, pages: crate::HugePages) -> Result<Arc<Self>, crate::RegionError> {
        Self::map_of(chunks, ChunkBytes::Small, pages)
    }

    /// Maps a region of at least `chunks` chunks (rounded up to whole pages) on a memory file, so
    /// that it can be handed to another process and registered as an AF_XDP UMEM.
    ///
    /// # Errors
    /// [`RegionError`](crate::RegionError) where the size is senseless or the memory is refused.
    #[cfg(feature = "std")]
    pub fn map_of(
        chunks: usize,
        size: ChunkBytes,
        pages: crate::HugePages,
    ) -> Result<Arc<Self>, crate::RegionError> {
        use crate::{CHUNKS_MAX, HugePages, RegionError};
        if chunks == 0 || chunks > CHUNKS_MAX {
            return Err(RegionError::BadSize { chunks });
        }
        if pages != HugePages::No {
            let bytes = bytes_for(chunks, size).next_multiple_of(BLOCK_SIZE);
            match map_memfd(bytes, true) {
                Ok((base, memfd)) => {
                    let backing = Backing::Mapped { bytes, memfd };
                    return Ok(Self::with_backing(base, bytes, size, true, backing));
                }
                Err(error) if pages == HugePages::Require => {
                    return Err(RegionError::Map { bytes, huge: true, error });
                }
                Err(error) => tracing::warn!(
                    bytes,
                    reason = %error,
                    "no huge pages for packet memory, using 4 KiB pages: expect a TLB miss for \
                     most packets (several percent of throughput); raise /proc/sys/vm/nr_hugepages"
                ),
            }
        }
        let bytes = bytes_for(chunks, size).next_multiple_of(4096);
        let (base, memfd) = map_memfd(bytes, false).map_err(|error| RegionError::Map {
            bytes,
            huge: false,
            error,
        })?;
        Ok(Self::with_backing(base, bytes, size, false, Backing::Mapped { bytes, memfd }))
    }

    /// Maps the memory file of a region that another process [mapped](Self::map) and passed on, all of whose chunks
    /// are free: whoever passed it must have let go of its mapping, or at least take no chunk of it. Its chunks are of
    /// [`CHUNK_SIZE`].
    ///
    /// # Errors
    /// [`RegionError::Join`](crate::RegionError::Join): it is no such file, or cannot be mapped.
    #[cfg(feature = "std")]
    pub fn join(memfd: std::os::fd::OwnedFd) -> Result<Arc<Self>, crate::RegionError> {
        Self::join_of(memfd, ChunkBytes::Small)
    }

    /// The same of a region whose chunks are of this size.
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "std")]
    pub fn join_of(
        memfd: std::os::fd::OwnedFd,
        size: ChunkBytes,
    ) -> Result<Arc<Self>, crate::RegionError> {
        let joined = || -> Result<Arc<Self>, std::io::Error> {
            use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
            // Cut off by somebody, it would make our accesses fault.
            let sealed = fcntl_get_seals(&memfd)?.contains(SealFlags::SHRINK);
            let found = fstat(&memfd)?;
            let bytes = usize::try_from(found.st_size).unwrap_or(0);
            let chunks = bytes / size.get();
            if !sealed || !(2..=crate::CHUNKS_MAX).contains(&chunks) || bytes % size.get() != 0 {
                return Err(std::io::ErrorKind::InvalidData.into());
            }
            let huge = found.st_blksize as usize >= BLOCK_SIZE;
            let base = map_file(&memfd, bytes)?;
            Ok(Self::with_backing(base, bytes, size, huge, Backing::Mapped { bytes, memfd }))
        };
        joined().map_err(|error| crate::RegionError::Join { error })
    }

    /// Address of the first byte: what is registered as a UMEM.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes of the whole region.
    pub fn len_bytes(&self) -> usize {
        self.bytes
    }

    /// Chunks in the region, those not counted that hold the blocks' own bookkeeping.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Bytes of each chunk.
    #[inline]
    pub fn chunk_bytes(&self) -> ChunkBytes {
        self.size
    }

    /// Whether the region lies in 2 MB pages.
    pub fn is_huge(&self) -> bool {
        self.huge
    }

    /// The memory file, where there is one: to be passed to the process that shares the region.
    #[cfg(feature = "std")]
    pub fn memfd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        match &self.backing {
            Backing::Heap(_) => None,
            Backing::Mapped { memfd, .. } => Some(memfd.as_fd()),
        }
    }

    /// From now on nobody can map the memory file for writing who has not done so: before it is shown to a
    /// process that may only read.
    ///
    /// # Errors
    /// What the operating system says; `Unsupported` for a region on the heap.
    #[cfg(feature = "std")]
    pub fn seal_writes(&self) -> Result<(), std::io::Error> {
        use rustix::fs::{SealFlags, fcntl_add_seals};
        let memfd = self.memfd().ok_or(std::io::ErrorKind::Unsupported)?;
        Ok(fcntl_add_seals(memfd, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?)
    }

    /// Chunks that are in no pool and in no one's hands.
    pub fn depot_len(&self) -> usize {
        self.depot.len()
    }

    /// The chunk with this number, as the [depot](crate::depot) counts them: from the region's beginning on, the
    /// blocks' first ones included.
    #[inline]
    pub(crate) fn chunk(&self, number: u32) -> NonNull<u8> {
        let at = number as usize * self.size.get();
        assert!(at < self.bytes, "chunk {number} lies outside the region");
        // SAFETY: inside the region, as was just checked.
        unsafe { self.base.add(at) }
    }

    /// The number of a chunk of this region.
    #[inline]
    pub(crate) fn number_of(&self, chunk: NonNull<u8>) -> u32 {
        ((chunk.addr().get() - self.base.addr().get()) >> self.size.get().trailing_zeros()) as u32
    }

    /// Offset of a chunk in the region, or none where it is of another region.
    pub(crate) fn offset_of(&self, chunk: NonNull<u8>) -> Option<u64> {
        let offset = (chunk.as_ptr() as usize).wrapping_sub(self.base.as_ptr() as usize);
        (offset < self.len_bytes()).then_some(offset as u64)
    }

    /// The chunk in which the byte at `offset` lies.
    pub(crate) fn chunk_at(&self, offset: u64) -> Option<NonNull<u8>> {
        if offset >= self.len_bytes() as u64 {
            return None;
        }
        let start = offset as usize & !(self.size.get() - 1);
        // SAFETY: `start` is inside the region, as `offset` is.
        Some(unsafe { self.base.add(start) })
    }
}

#[cfg(feature = "std")]
fn map_memfd(
    bytes: usize,
    huge: bool,
) -> Result<(NonNull<u8>, std::os::fd::OwnedFd), std::io::Error> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    if huge {
        flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    }
    let memfd = memfd_create("tailplane-packets", flags)?;
    ftruncate(&memfd, bytes as u64)?;
    // Whoever else has it cannot make our accesses fault.
    fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW)?;
    let base = map_file(&memfd, bytes)?;
    Ok((base, memfd))
}

/// Maps the first `bytes` of a file from a multiple of a block's size on, with all its pages.
#[cfg(feature = "std")]
fn map_file(memfd: &std::os::fd::OwnedFd, bytes: usize) -> Result<NonNull<u8>, std::io::Error> {
    use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::POPULATE;
    // Addresses enough to find an aligned beginning among them.
    let reserved = bytes + BLOCK_SIZE;
    let none = core::ptr::null_mut();
    // SAFETY: a new mapping at an address that the kernel chooses, which nothing can access.
    let start = unsafe {
        mmap_anonymous(none, reserved, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)?
    };
    let before = start.addr().next_multiple_of(BLOCK_SIZE) - start.addr();
    let after = BLOCK_SIZE - before;
    // SAFETY: `before` and `bytes` lie within what was just reserved, and nothing else is there: the part
    // that is mapped is a file that only we hold. What is not mapped is given back; where that fails it
    // remains reserved, which is harmless.
    let base = unsafe {
        let base = start.byte_add(before);
        let mapped = mmap(base, bytes, protection, flags | MapFlags::FIXED, memfd, 0);
        if let Err(errno) = mapped {
            let _ = munmap(start, reserved);
            return Err(errno.into());
        }
        for (start, len) in [(start, before), (base.byte_add(bytes), after)] {
            if len > 0 {
                let _ = munmap(start, len);
            }
        }
        base
    };
    NonNull::new(base.cast()).ok_or_else(|| std::io::ErrorKind::InvalidInput.into())
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.depot_len() != self.chunks as usize {
            // Somebody still holds a chunk: the memory must stay.
            return;
        }
        match &self.backing {
            // SAFETY: allocated with this layout; all chunks are back, so nothing points there.
            Backing::Heap(layout) => unsafe { dealloc(self.base.as_ptr(), *layout) },
            #[cfg(feature = "std")]
            Backing::Mapped { bytes, .. } => {
                // SAFETY: mapped with this length; all chunks are back, so nothing points there.
                // A failure leaves the mapping in place, which is harmless.
                let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), *bytes) };
            }
        }
    }
}
