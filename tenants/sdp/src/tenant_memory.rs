//! The memory that a tenant shares with the plane, from the offer to the seal.
//!
//! ```text
//! plane    offer    makes an empty file, seals its size, maps nothing yet
//! tenant   mapped   allocates all pages (its own memory cgroup pays), maps them, confirms
//! plane    map      maps it too; seals it against further writers and holes; counts its pages
//!          settle   touches its pages, some each turn of the control thread: no core takes that fault
//! plane    forget   after the tenant has left: takes its pages out of the page table, some each turn
//! ```
//!
//! Both sides write to it, so the seal (`F_SEAL_FUTURE_WRITE`) comes after both have mapped it: these
//! mappings stay writable, and nobody can make another one, punch a hole (`fallocate`, `MADV_REMOVE`)
//! or resize the file any more. A hole would have the kernel interrupt each processor on which a core
//! runs, as often as the tenant likes. Before the seal the plane's mapping has no page, and a hole
//! interrupts nobody.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use memfile::Memory;
use qwait::Region;
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    ftruncate, memfd_create,
};

use crate::geometry::Geometry;

/// Bytes that one step touches or forgets. Such a step takes some 100 us; cores that fault or allocate
/// meanwhile wait no longer for the lock of the address space.
pub(crate) const STEP_BYTES: usize = 1 << 20;

const PAGE: usize = 4096;
/// Bytes of the unit that `fstat` counts in.
const BLOCK_BYTES: u64 = 512;
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// All that the plane's cores rely on; `SEAL`, so that there is nothing left to change.
const SEALS: SealFlags = SIZE_SEALS.union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// An empty file of a tenant's size, sealed at that.
pub(crate) fn offer(geometry: &Geometry) -> io::Result<OwnedFd> {
    let file = memfd_create("tailplane-sdp", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, geometry.memory_bytes() as u64)?;
    fcntl_add_seals(&file, SIZE_SEALS)?;
    Ok(file)
}

/// The tenant's part: allocates all pages of what it was offered.
pub(crate) fn allocate(file: &OwnedFd, geometry: &Geometry) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::empty(), 0, geometry.memory_bytes() as u64)?)
}

/// The plane's part, once the tenant has confirmed: maps the file, seals it, and answers what was mapped
/// where the tenant has done its part.
///
/// # Errors
/// `InvalidData`: the file is not sealed as it must be, or lacks pages. Else what the operating system
/// says.
pub(crate) fn map(file: &OwnedFd, geometry: &Geometry) -> io::Result<(Arc<Memory>, Arc<Region>)> {
    let len = geometry.memory_bytes();
    let region = Region::join(file.try_clone()?).map_err(io::Error::other)?;
    let memory = Memory::join(file.try_clone()?, len)?;
    // Refused where the tenant sealed the seals; what it left out then shows below.
    let _ = fcntl_add_seals(memory.file(), SEALS);
    if !fcntl_get_seals(memory.file())?.contains(SEALS) {
        let found = "memory that can be given back or written by others";
        return Err(io::Error::new(io::ErrorKind::InvalidData, found));
    }
    // From here on the count can only grow.
    let blocks = u64::try_from(fstat(memory.file())?.st_blocks).unwrap_or(0);
    if blocks * BLOCK_BYTES < len as u64 {
        let found = format!("{} bytes allocated of {len}", blocks * BLOCK_BYTES);
        return Err(io::Error::new(io::ErrorKind::InvalidData, found));
    }
    Ok((memory, region))
}

/// Touches a step's pages from `from` on, in both mappings: where the next step begins.
pub(crate) fn settle(
    memory: &Memory,
    region: &Arc<Region>,
    geometry: &Geometry,
    from: usize,
) -> usize {
    let to = (from + STEP_BYTES).min(memory.len());
    for at in (from..to).step_by(PAGE) {
        if let Some(word) = memory.word(at) {
            word.load(Ordering::Relaxed);
        }
    }
    // The ready set's mapping: only words and doorbells are ever read there.
    let doorbells_end = geometry.doorbells_end().min(to);
    if from < doorbells_end {
        let pages = (doorbells_end - from).div_ceil(PAGE);
        let places = region.doorbells(from, PAGE, pages).unwrap_or_default();
        places.iter().for_each(|place| _ = place.count());
    }
    to
}

/// Takes pages from `from` on out of this process's page table, `bytes` of them at most: where the next
/// step begins.
pub(crate) fn forget(memory: &Memory, from: usize, bytes: usize) -> usize {
    let to = (from + bytes).min(memory.len());
    memory.forget_pages(from, to - from);
    to
}
