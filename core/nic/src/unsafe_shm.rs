//! The memory that two dataplanes share, and the lanes of frames in it.
//!
//! ```text
//! page 0:      magic, slots
//! per lane:    producer index | consumer index | armed | lengths[slots] | frames[slots][2048]
//! ```
//!
//! Lane 0 carries frames from the creator to the joiner, lane 1 back. The ring of lengths follows
//! the protocol of `unsafe_ring`; a frame lies in the slot of the same number as its length.
//!
//! The peer is not trusted: a length is one atomic word, read once and then checked, indices are clamped, and
//! the memory is sealed against shrinking, so that reading it cannot fault. This module holds `unsafe` because
//! the peer may write to that memory at any time: no reference into it is ever made but to atomic words, frames are
//! copied in and out, each byte read once. A peer that breaks the protocol makes us copy garbage.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use handshake::{ByFence, One, Sleepers};
use mem::{CHUNK_SIZE, Mbuf, Pool, RX_HEADROOM};
use memfile::{copy_from_shared, copy_to_shared};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate};
use rustix::mm::MapFlags;

use crate::unsafe_mapping::Mapping;
use crate::unsafe_ring::{Consumer, Producer, RawRing, RingOffsets};

/// Says that this is such memory, and of which version.
const MAGIC: u64 = u64::from_le_bytes(*b"tpshm\0\0\x01");
const PAGE: usize = 4096;
const SLOT_BYTES: usize = CHUNK_SIZE;
/// Largest frame: what a receiver's chunk holds.
pub(crate) const MAX_FRAME_BYTES: usize = CHUNK_SIZE - RX_HEADROOM;
/// Bounds of a lane's size.
pub(crate) const MIN_SLOTS: u32 = 2;
pub(crate) const MAX_SLOTS: u32 = 1 << 16;
/// Where the consumer says that it sleeps.
const ARMED: usize = 128;
/// Its bit there.
const CONSUMER: u64 = 1;
const LENGTHS: RingOffsets =
    RingOffsets { producer: 0, consumer: 64, flags: Some(ARMED), entries: 192 };

#[derive(Debug)]
enum Backing {
    Heap(Layout),
    Mapped(OwnedFd, #[expect(dead_code, reason = "held to keep the memory")] Mapping),
}

/// The shared memory.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    slots: u32,
    backing: Backing,
}

// SAFETY: an address range; all access is by the lanes' protocol.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

fn lane_bytes(slots: u32) -> usize {
    let lengths = LENGTHS.len_bytes(slots, size_of::<u32>()).next_multiple_of(PAGE);
    lengths + slots as usize * SLOT_BYTES
}

fn total_bytes(slots: u32) -> usize {
    PAGE + 2 * lane_bytes(slots)
}

fn check_slots(slots: u32) -> io::Result<()> {
    if slots.is_power_of_two() && (MIN_SLOTS..=MAX_SLOTS).contains(&slots) {
        return Ok(());
    }
    Err(io::ErrorKind::InvalidInput.into())
}

impl Memory {
    /// Memory for two ends in one process.
    pub(crate) fn heap(slots: u32) -> io::Result<Arc<Self>> {
        check_slots(slots)?;
        let layout = Layout::from_size_align(total_bytes(slots), PAGE)
            .map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        Ok(Arc::new(Self { base, slots, backing: Backing::Heap(layout) }))
    }

    /// Memory in a file that can be passed to another process; sealed at its size.
    pub(crate) fn create(slots: u32) -> io::Result<Arc<Self>> {
        check_slots(slots)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("tailplane-shm", flags)?;
        let len = total_bytes(slots);
        ftruncate(&file, len as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapping = Mapping::new(&file, len, MapFlags::empty(), 0)?;
        let base = mapping.base();
        // SAFETY: page 0 of a fresh mapping, which nobody else has yet; both words are aligned.
        unsafe {
            base.cast::<u64>().write(MAGIC);
            base.add(8).cast::<u32>().write(slots);
        }
        Ok(Arc::new(Self { base, slots, backing: Backing::Mapped(file, mapping) }))
    }

    /// Joins memory that a peer created. What the peer says is checked.
    pub(crate) fn join(file: OwnedFd) -> io::Result<Arc<Self>> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        // Without this seal the peer could shrink the file and so make our reads fault.
        if !fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
            return Err(invalid());
        }
        let len = usize::try_from(fstat(&file)?.st_size).map_err(|_| invalid())?;
        if len < total_bytes(MIN_SLOTS) || len > total_bytes(MAX_SLOTS) {
            return Err(invalid());
        }
        let mapping = Mapping::new(&file, len, MapFlags::empty(), 0)?;
        let base = mapping.base();
        // SAFETY: page 0 of the mapping; both words are aligned, and any bits are valid. Read once.
        let (magic, slots) = unsafe {
            (base.cast::<u64>().read_volatile(), base.add(8).cast::<u32>().read_volatile())
        };
        if magic != MAGIC || check_slots(slots).is_err() || total_bytes(slots) != len {
            return Err(invalid());
        }
        Ok(Arc::new(Self { base, slots, backing: Backing::Mapped(file, mapping) }))
    }

    /// The file, to be passed to the peer.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.backing {
            Backing::Heap(_) => None,
            Backing::Mapped(file, _) => Some(file.as_fd()),
        }
    }

    /// Frames that a lane holds.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Backing::Heap(layout) = self.backing {
            // SAFETY: allocated with this layout; the lanes hold an `Arc`, so none is left.
            unsafe { dealloc(self.base.as_ptr(), layout) };
        }
    }
}

type Ring = RawRing<u32, Arc<Memory>>;

/// What both sides of a lane need beside the ring of lengths.
#[derive(Debug)]
struct Lane {
    frames: NonNull<u8>,
    armed: NonNull<AtomicU32>,
    memory: Arc<Memory>,
}

// SAFETY: addresses inside memory that the `Arc` keeps and that may be used from any thread.
unsafe impl Send for Lane {}

impl Lane {
    /// The lane's consumer as a sleeper, whom the producer wakes.
    fn consumer(&self) -> Sleepers<&AtomicU32, One, ByFence> {
        // SAFETY: inside the memory, which `self.memory` keeps; an atomic may be shared.
        Sleepers::over(unsafe { self.armed.as_ref() })
    }

    /// Where the frame of `slot` lies. `slot` is masked by the ring, so below the lane's slots.
    fn frame(&self, slot: u32) -> NonNull<u8> {
        debug_assert!(slot < self.memory.slots);
        // SAFETY: inside the lane's area of `slots` frames.
        unsafe { self.frames.add(slot as usize * SLOT_BYTES) }
    }
}

/// The two parts of lane `index` (0 or 1).
fn lane(memory: &Arc<Memory>, index: usize) -> Option<(Ring, Lane)> {
    let bytes = lane_bytes(memory.slots);
    let start = PAGE + index.min(1) * bytes;
    // SAFETY: `len` covers page 0 and two lanes, so all three addresses lie inside the memory, which
    // the ring and the lane keep by an `Arc`; pages are aligned; any bits are a `u32`.
    unsafe {
        let base = memory.base.add(start);
        let ring = RawRing::new(base, bytes, LENGTHS, memory.slots, Arc::clone(memory))?;
        let frames = base.add(bytes - memory.slots as usize * SLOT_BYTES);
        let armed = base.add(ARMED).cast();
        Some((ring, Lane { frames, armed, memory: Arc::clone(memory) }))
    }
}

/// The sending side of a lane. A lane has one.
#[derive(Debug)]
pub(crate) struct Sender {
    ring: Producer<u32, Ring>,
    lane: Lane,
}

impl Sender {
    pub(crate) fn new(memory: &Arc<Memory>, index: usize) -> Option<Self> {
        let (ring, lane) = lane(memory, index)?;
        Some(Self { ring: Producer::new(ring), lane })
    }

    /// How many frames fit, `want` at the most.
    #[inline]
    pub(crate) fn room(&mut self, want: u32) -> u32 {
        self.ring.reserve(want)
    }

    /// Copies a frame into the lane. False where it is too long or there was no room.
    #[inline]
    pub(crate) fn push(&mut self, frame: &[u8]) -> bool {
        let Some(slot) = self.ring.next_slot() else { return false };
        if frame.len() > MAX_FRAME_BYTES {
            return false;
        }
        // SAFETY: the slot holds `SLOT_BYTES`, more than the frame has, whatever the peer does there meanwhile.
        unsafe { copy_to_shared(frame, self.lane.frame(slot)) };
        self.ring.push(frame.len() as u32)
    }

    /// Shows the receiver what was pushed; answers whether it sleeps and must be woken.
    #[inline]
    pub(crate) fn submit(&mut self) -> bool {
        self.ring.submit();
        let consumer = self.lane.consumer();
        consumer.notify(One) & CONSUMER != 0 && consumer.claim(CONSUMER)
    }
}

/// Why a frame was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its length is more than any frame's.
    BadLength,
    /// There is no buffer for it.
    NoBuffer,
}

/// The receiving side of a lane. A lane has one.
#[derive(Debug)]
pub(crate) struct Receiver {
    ring: Consumer<u32, Ring>,
    lane: Lane,
}

impl Receiver {
    pub(crate) fn new(memory: &Arc<Memory>, index: usize) -> Option<Self> {
        let (ring, lane) = lane(memory, index)?;
        Some(Self { ring: Consumer::new(ring), lane })
    }

    /// How many frames wait, `want` at the most.
    #[inline]
    pub(crate) fn ready(&mut self, want: u32) -> u32 {
        self.ring.peek(want)
    }

    /// Copies the next frame into a buffer of `pool`.
    #[inline]
    pub(crate) fn pop(&mut self, pool: &mut Pool) -> Option<Result<Mbuf, Refused>> {
        let slot = self.ring.next_slot()?;
        let len = self.ring.pop()? as usize;
        if len > MAX_FRAME_BYTES {
            return Some(Err(Refused::BadLength));
        }
        let Ok(mut mbuf) = pool.alloc() else { return Some(Err(Refused::NoBuffer)) };
        let Ok(room) = mbuf.reset(RX_HEADROOM).and_then(|()| mbuf.extend(len)) else {
            // Cannot be: `MAX_FRAME_BYTES` fit behind the headroom.
            pool.free(mbuf);
            return Some(Err(Refused::BadLength));
        };
        // SAFETY: the slot holds `SLOT_BYTES`, more than the room has, whatever the peer does there meanwhile.
        unsafe { copy_from_shared(self.lane.frame(slot), room) };
        Some(Ok(mbuf))
    }

    /// Gives the slots of all popped frames back.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.ring.release();
    }

    /// Frames that wait.
    #[inline]
    pub(crate) fn backlog(&self) -> u32 {
        self.ring.backlog()
    }

    /// First phase of going to sleep: answers whether nothing waits.
    pub(crate) fn arm(&self) -> bool {
        self.lane.consumer().arm(CONSUMER, |One| self.ring.backlog() > 0).is_quiet()
    }

    /// Undoes `arm`.
    pub(crate) fn disarm(&self) {
        self.lane.consumer().disarm(CONSUMER);
    }
}

#[cfg(test)]
#[path = "unsafe_shm_memory_tests.rs"]
mod tests;
