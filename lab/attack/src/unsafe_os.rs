//! What the operating system lets a hostile program try, and safe Rust does not.
//!
//! `unsafe` because descriptors come as numbers, processes are doubled, and memory is mapped that nobody may write
//! to: each of these is asked of the kernel, whose answer is what the attack is about.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use memfile::Memory;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};

/// Takes the descriptor of this number, which whoever started this process left to it.
pub fn inherited(number: i32) -> OwnedFd {
    // SAFETY: the starter says that it is this process's, which takes it once, at its start.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Doubles this process. Answers whether it is the child, which must not return to what its parent does, and ends
/// by itself.
pub fn fork() -> std::io::Result<Option<i32>> {
    // SAFETY: callers are programs of one thread; the child uses no lock that another thread could hold.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()),
        0 => Ok(None),
        child => Ok(Some(child)),
    }
}

/// Ends this process with a signal after so many seconds, whatever it does.
pub fn end_after(seconds: u32) {
    // SAFETY: it takes a number; nobody else uses this timer.
    unsafe { libc::alarm(seconds) };
}

/// Has the allocator give back what it keeps for later.
pub fn trim_heap() {
    // SAFETY: it gives back pages that nothing allocated is in, under the allocator's own locks.
    unsafe { libc::malloc_trim(0) };
}

/// Tries to get `memory`, which was shown to be read, to be written to. Answers the ways that worked.
pub fn ways_to_write(memory: &Memory) -> Vec<&'static str> {
    let mut found = Vec::new();
    let Ok(file) = memory.descriptor() else { return found };
    let len = memory.len();
    let map = |protection| {
        // SAFETY: a new mapping, at an address that the kernel chooses; nothing is stored there.
        unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, &file, 0) }
    };
    if let Ok(base) = map(ProtFlags::READ | ProtFlags::WRITE) {
        found.push("mmap for writing");
        // SAFETY: the mapping just made, to which nothing refers.
        let _ = unsafe { munmap(base, len) };
    }
    if let Ok(base) = map(ProtFlags::READ) {
        // SAFETY: the mapping just made; nothing is stored there.
        if unsafe { mprotect(base, len, MprotectFlags::READ | MprotectFlags::WRITE) }.is_ok() {
            found.push("mprotect for writing");
        }
        // SAFETY: the same mapping; what the advice would remove is what the attack is after.
        if unsafe { libc::madvise(base, len, libc::MADV_REMOVE) } == 0 {
            found.push("madvise to remove");
        }
        // SAFETY: the same mapping, to which nothing refers.
        let _ = unsafe { munmap(base, len) };
    }
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let writable = std::fs::OpenOptions::new().read(true).write(true).open(path);
    if let Ok(writable) = writable {
        // SAFETY: as for the first mapping.
        let base = unsafe {
            mmap(std::ptr::null_mut(), len, ProtFlags::WRITE, MapFlags::SHARED, &writable, 0)
        };
        if let Ok(base) = base {
            found.push("mmap for writing of the file opened again");
            // SAFETY: the mapping just made, to which nothing refers.
            let _ = unsafe { munmap(base, len) };
        }
    }
    found
}

/// Asks in each way that there is to have pages of `memory` unmapped, swapped out or removed. Answers whether the one
/// that takes them from all, which a seal forbids, worked.
pub fn takes_pages_away(memory: &Memory, at: usize, bytes: usize) -> bool {
    let Some(first) = memory.word(at) else { return false };
    let place = std::ptr::from_ref(first).cast_mut().cast();
    let bytes = bytes.min(memory.len() - at);
    let advise = |advice| {
        // SAFETY: inside a shared mapping of a file, of which any advice leaves the bytes in the file, or zeroes; both
        // are what words and copies may read.
        unsafe { libc::madvise(place, bytes, advice) == 0 }
    };
    // These are the caller's to give, and no matter of who has the memory too.
    let _ = [libc::MADV_COLD, libc::MADV_PAGEOUT, libc::MADV_DONTNEED].map(advise);
    advise(libc::MADV_REMOVE)
}

/// Has the calling thread run as any other one, whatever whoever started it did.
///
/// # Errors
/// What the operating system says.
pub fn no_priority() -> std::io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a local value; 0 names the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Gives the calling thread the highest real-time priority that the operating system lets it have; none where it lets it
/// have none.
pub fn highest_priority() -> Option<i32> {
    (1..=99).rev().find(|&sched_priority| {
        let parameters = libc::sched_param { sched_priority };
        // SAFETY: the pointer is to a local value; 0 names the calling thread.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) == 0 }
    })
}
