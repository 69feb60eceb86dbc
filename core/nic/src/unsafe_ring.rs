//! A ring between one producer and one consumer that share memory: the index protocol of AF_XDP,
//! which the `shm` driver uses too.
//!
//! ```text
//! producer: reserve(want) -> push ... push -> submit     (store-release of the producer index)
//! consumer: peek(want)    -> pop  ... pop  -> release    (store-release of the consumer index)
//! ```
//!
//! Indices are free-running `u32`s; they wrap, and a slot is `index & (size - 1)`. Each side owns
//! its index and keeps a cached copy of the other's, which it reads again (load-acquire) only when
//! the cached one does not suffice: the other's cache line then moves once per burst, not once per
//! entry. Acquire pairs with the other side's release: the entries are written before the consumer
//! sees them, and read before the producer may write over them.
//!
//! This module holds `unsafe` because the memory is shared with the kernel or another process. An other
//! side that writes nonsense into its index can make us read stale entries or see a full ring, never more. One
//! that writes to a slot while we read it gets us to see some entry: an [`Entry`] is made of atomic words, each read once,
//! so that what was checked is what is used.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// An index word. A trait so that the model checker can put its own in place.
pub(crate) trait Word {
    fn load_relaxed(&self) -> u32;
    fn load_acquire(&self) -> u32;
    fn store_release(&self, value: u32);
}

impl Word for AtomicU32 {
    #[inline(always)]
    fn load_relaxed(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }
    #[inline(always)]
    fn load_acquire(&self) -> u32 {
        self.load(Ordering::Acquire)
    }
    #[inline(always)]
    fn store_release(&self, value: u32) {
        self.store(value, Ordering::Release);
    }
}

/// What a slot of a ring holds.
///
/// # Safety
/// `Words` consists of atomics only, and any bits are one.
pub(crate) unsafe trait Entry: Copy {
    /// The entry as it lies in shared memory.
    type Words;
    /// Reads each word once.
    fn load(words: &Self::Words) -> Self;
    /// Writes each word once.
    fn store(self, words: &Self::Words);
}

// SAFETY: an atomic, for which any bits do.
unsafe impl Entry for u32 {
    type Words = AtomicU32;
    #[inline(always)]
    fn load(words: &AtomicU32) -> Self {
        words.load(Ordering::Relaxed)
    }
    #[inline(always)]
    fn store(self, words: &AtomicU32) {
        words.store(self, Ordering::Relaxed);
    }
}

// SAFETY: an atomic, for which any bits do.
unsafe impl Entry for u64 {
    type Words = AtomicU64;
    #[inline(always)]
    fn load(words: &AtomicU64) -> Self {
        words.load(Ordering::Relaxed)
    }
    #[inline(always)]
    fn store(self, words: &AtomicU64) {
        words.store(self, Ordering::Relaxed);
    }
}

/// Where a ring lies.
///
/// # Safety
/// The words and `size` slots are valid for as long as `self`, `size` is a power of two that never
/// changes, and `write` and `read` touch no slot but the one named.
pub(crate) unsafe trait RingMemory<T: Copy> {
    type Word: Word;
    fn producer(&self) -> &Self::Word;
    fn consumer(&self) -> &Self::Word;
    fn size(&self) -> u32;
    /// # Safety
    /// `slot < size`, and the caller is the producer. By the protocol the slot is its own at present; an other side
    /// that breaks the protocol may use it all the same.
    unsafe fn write(&self, slot: u32, entry: T);
    /// # Safety
    /// `slot < size`, and the caller is the consumer; else as for `write`.
    unsafe fn read(&self, slot: u32) -> T;
}

/// The side that fills.
#[derive(Debug)]
pub(crate) struct Producer<T: Copy, M: RingMemory<T>> {
    memory: M,
    /// Where the next entry goes; ahead of the shared index until `submit`.
    head: u32,
    cached_consumer: u32,
    entries: PhantomData<T>,
}

impl<T: Copy, M: RingMemory<T>> Producer<T, M> {
    /// Becomes the producer of a ring, going on where its index stands. A ring has one producer.
    pub(crate) fn new(memory: M) -> Self {
        let head = memory.producer().load_relaxed();
        let cached_consumer = memory.consumer().load_acquire();
        Self { memory, head, cached_consumer, entries: PhantomData }
    }

    /// The ring's memory.
    pub(crate) fn memory(&self) -> &M {
        &self.memory
    }

    #[inline]
    fn free_cached(&self) -> u32 {
        // An other side whose index ran past ours leaves no room, rather than too much.
        self.memory.size().saturating_sub(self.head.wrapping_sub(self.cached_consumer))
    }

    /// How many entries may be pushed, `want` at the most.
    #[inline]
    pub(crate) fn reserve(&mut self, want: u32) -> u32 {
        let mut free = self.free_cached();
        if free < want {
            self.cached_consumer = self.memory.consumer().load_acquire();
            free = self.free_cached();
        }
        free.min(want)
    }

    /// The slot that the next entry will take, where one is free as far as is known.
    #[inline]
    pub(crate) fn next_slot(&self) -> Option<u32> {
        (self.free_cached() > 0).then(|| self.head & (self.memory.size() - 1))
    }

    /// Writes an entry that the consumer sees after [`submit`](Self::submit). False where nothing
    /// was reserved for it.
    #[inline]
    pub(crate) fn push(&mut self, entry: T) -> bool {
        let Some(slot) = self.next_slot() else { return false };
        // SAFETY: masked, so below the size; we are the producer.
        unsafe { self.memory.write(slot, entry) };
        self.head = self.head.wrapping_add(1);
        true
    }

    /// Shows all pushed entries to the consumer.
    #[inline]
    pub(crate) fn submit(&mut self) {
        self.memory.producer().store_release(self.head);
    }

    /// Entries that the consumer has not released. Reads the shared index.
    #[inline]
    pub(crate) fn pending(&self) -> u32 {
        let consumer = self.memory.consumer().load_acquire();
        self.head.wrapping_sub(consumer).min(self.memory.size())
    }

    /// Copies of the submitted entries that the consumer has not released, oldest first.
    pub(crate) fn unconsumed(&self) -> alloc::vec::Vec<T> {
        let mask = self.memory.size() - 1;
        let pending = self.pending();
        let first = self.head.wrapping_sub(pending);
        (0..pending)
            // SAFETY: masked, so below the size. Of the consumer and us, only we write there.
            .map(|index| unsafe { self.memory.read(first.wrapping_add(index) & mask) })
            .collect()
    }

    /// The consumer's index, to see whether it moves.
    #[inline]
    pub(crate) fn consumer_index(&self) -> u32 {
        self.memory.consumer().load_relaxed()
    }
}

/// The side that drains.
#[derive(Debug)]
pub(crate) struct Consumer<T: Copy, M: RingMemory<T>> {
    memory: M,
    /// The next entry to read; ahead of the shared index until `release`.
    tail: u32,
    cached_producer: u32,
    entries: PhantomData<T>,
}

impl<T: Copy, M: RingMemory<T>> Consumer<T, M> {
    /// Becomes the consumer of a ring, going on where its index stands. A ring has one consumer.
    pub(crate) fn new(memory: M) -> Self {
        let tail = memory.consumer().load_relaxed();
        Self { memory, tail, cached_producer: tail, entries: PhantomData }
    }

    /// The ring's memory.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> &M {
        &self.memory
    }

    /// How many entries may be popped, `want` at the most.
    #[inline]
    pub(crate) fn peek(&mut self, want: u32) -> u32 {
        let cached = self.cached_producer.wrapping_sub(self.tail);
        if cached >= want {
            return want;
        }
        let available = self.backlog();
        self.cached_producer = self.tail.wrapping_add(available);
        available.min(want)
    }

    /// Entries that are known to wait since the shared index was last read.
    #[inline]
    pub(crate) fn known(&self) -> u32 {
        self.cached_producer.wrapping_sub(self.tail)
    }

    /// Entries that wait. Reads the shared index.
    #[inline]
    pub(crate) fn backlog(&self) -> u32 {
        let producer = self.memory.producer().load_acquire();
        // An other side whose index ran away shows at most a full ring.
        producer.wrapping_sub(self.tail).min(self.memory.size())
    }

    /// The slot of the next entry, where one is known to wait.
    #[inline]
    pub(crate) fn next_slot(&self) -> Option<u32> {
        (self.cached_producer != self.tail).then(|| self.tail & (self.memory.size() - 1))
    }

    /// Copies the next entry out; none beyond what `peek` found.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let slot = self.next_slot()?;
        // SAFETY: masked, so below the size; we are the consumer.
        let entry = unsafe { self.memory.read(slot) };
        self.tail = self.tail.wrapping_add(1);
        Some(entry)
    }

    /// Gives the slots of all popped entries back to the producer.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.memory.consumer().store_release(self.tail);
    }
}

/// A ring at raw addresses, inside memory that `O` keeps alive.
#[derive(Debug)]
pub(crate) struct RawRing<T: Entry, O> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    /// AF_XDP's flags word (`XDP_RING_NEED_WAKEUP`).
    flags: Option<NonNull<AtomicU32>>,
    entries: NonNull<T::Words>,
    size: u32,
    _owner: O,
}

// SAFETY: the addresses lie in memory that `O` owns and that may be used from any thread; all accesses are atomic.
unsafe impl<T: Entry + Send, O: Send> Send for RawRing<T, O> {}

/// Byte offsets of a ring's parts from the start of its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingOffsets {
    pub(crate) producer: usize,
    pub(crate) consumer: usize,
    pub(crate) flags: Option<usize>,
    pub(crate) entries: usize,
}

impl RingOffsets {
    /// Bytes of memory that a ring of `size` entries of `entry_bytes` needs.
    pub(crate) fn len_bytes(&self, size: u32, entry_bytes: usize) -> usize {
        self.entries.saturating_add((size as usize).saturating_mul(entry_bytes))
    }
}

impl<T: Entry, O> RawRing<T, O> {
    /// A ring at `base`; none where the parts do not fit `len_bytes`, are not aligned, or the size
    /// is not a power of two.
    ///
    /// # Safety
    /// `base` is aligned to 8 bytes and valid for `len_bytes` for as long as `owner` lives, and this
    /// process uses that memory by atomics only.
    pub(crate) unsafe fn new(
        base: NonNull<u8>,
        len_bytes: usize,
        offsets: RingOffsets,
        size: u32,
        owner: O,
    ) -> Option<Self> {
        let word = |offset: usize| {
            let end = offset.checked_add(size_of::<AtomicU32>())?;
            if end > len_bytes || !offset.is_multiple_of(align_of::<AtomicU32>()) {
                return None;
            }
            // SAFETY: inside the memory, as was just checked.
            Some(unsafe { base.add(offset) }.cast::<AtomicU32>())
        };
        let fits = offsets.len_bytes(size, size_of::<T::Words>()) <= len_bytes
            && offsets.entries.is_multiple_of(align_of::<T::Words>());
        if !size.is_power_of_two() || !fits || align_of::<T::Words>() > 8 {
            return None;
        }
        let flags = match offsets.flags {
            Some(offset) => Some(word(offset)?),
            None => None,
        };
        // SAFETY: inside the memory, as was just checked.
        let entries = unsafe { base.add(offsets.entries) }.cast();
        let (producer, consumer) = (word(offsets.producer)?, word(offsets.consumer)?);
        Some(Self { producer, consumer, flags, entries, size, _owner: owner })
    }

    /// The flags word; zero where the ring has none.
    #[inline]
    pub(crate) fn flags(&self) -> u32 {
        // SAFETY: `new` checked that the word lies in the memory, which `_owner` keeps.
        self.flags.map_or(0, |word| unsafe { word.as_ref() }.load(Ordering::Relaxed))
    }
}

// SAFETY: `new` checked that all parts lie in the memory, which `_owner` keeps; masks keep slots
// below the size.
unsafe impl<T: Entry, O> RingMemory<T> for RawRing<T, O> {
    type Word = AtomicU32;
    #[inline(always)]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.producer.as_ref() }
    }
    #[inline(always)]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }
    #[inline(always)]
    fn size(&self) -> u32 {
        self.size
    }
    #[inline(always)]
    unsafe fn write(&self, slot: u32, entry: T) {
        // SAFETY: the slot is inside the ring, and made of atomics, which the other side may use too.
        entry.store(unsafe { self.entries.add(slot as usize).as_ref() });
    }
    #[inline(always)]
    unsafe fn read(&self, slot: u32) -> T {
        // SAFETY: as in `write`.
        T::load(unsafe { self.entries.add(slot as usize).as_ref() })
    }
}

#[cfg(test)]
#[path = "unsafe_ring_tests.rs"]
mod tests;
