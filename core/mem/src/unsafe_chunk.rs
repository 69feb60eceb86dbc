//! A chunk's bookkeeping, and the types that hold a chunk.
//!
//! This module holds `unsafe` because it turns a chunk's address into references. The argument is
//! the same everywhere: each type below is the only one through which its bytes can be reached, is
//! neither `Clone` nor constructible outside this crate, and the region outlives every chunk that
//! is not back in the depot (see `unsafe_region`). While a [`TxFrame`] and a [`Retained`] share a
//! chunk both only read the frame, and bytes before it that hold nothing else are the `TxFrame`'s; both are `!Send`, so their state byte needs no atomics.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::num::NonZero;
use core::ptr::NonNull;
use core::slice;

use crate::{BLOCK_SIZE, CHUNK_HEADER, CHUNK_SIZE, ChunkBytes, TX_HEADROOM, TX_METADATA};

/// What the stack remembers of a segment that waits for its acknowledgment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxMeta {
    /// When it was last sent, in nanoseconds.
    pub sent_at_ns: u64,
    /// Ones'-complement sum of the payload (`Sum::to_bits`), so that sending again need not read it. Without meaning where
    /// the device completes checksums.
    pub payload_sum: u64,
    /// First sequence number.
    pub seq: u32,
    /// Payload bytes.
    pub len: u16,
    /// TCP flags that it carries beside ACK (SYN, FIN, PSH).
    pub flags: u8,
    /// Times that it was sent.
    pub transmissions: u8,
}

/// The first cache line of a chunk.
#[repr(C)]
pub(crate) struct Header {
    /// Bytes from this chunk to the next one of its queue; 0: it is the last one.
    pub(crate) next: isize,
    pub(crate) meta: TxMeta,
    /// Where the payload starts and how long it is: what `Retained` can see.
    pub(crate) payload_head: u16,
    pub(crate) payload_len: u16,
    /// Chunks of [`CHUNK_SIZE`] from this one to the next one of a long segment, where the state says that there is one.
    more: i32,
}

// Frames start behind the bookkeeping, and metadata before a frame is not to overwrite it.
const _: () = assert!(size_of::<Header>() + TX_METADATA <= CHUNK_HEADER);
const _: () = assert!(ChunkBytes::Page.get() <= u16::MAX as usize);

pub(crate) fn header(chunk: NonNull<u8>) -> NonNull<Header> {
    chunk.cast()
}

/// Makes `next` the chunk behind `chunk` in their queue. Writes the distance between the two: a process that reads
/// packet memory finds no address in it.
///
/// # Safety
/// The caller holds the claim on `chunk`'s header.
#[inline]
pub(crate) unsafe fn link(chunk: NonNull<u8>, next: NonNull<u8>) {
    // A queue may have chunks of two regions: hence not only an offset from `chunk`.
    let next = next.expose_provenance().get();
    // SAFETY: the header is inside the chunk, and the caller's.
    unsafe { (*header(chunk).as_ptr()).next = next.wrapping_sub(chunk.addr().get()) as isize };
}

/// The chunk behind `chunk` in their queue.
///
/// # Safety
/// The caller holds the claim on `chunk`'s header, in which [`link`] or a queue has written.
#[inline]
pub(crate) unsafe fn next(chunk: NonNull<u8>) -> Option<NonNull<u8>> {
    // SAFETY: the header is inside the chunk, and the caller's.
    let distance = unsafe { header(chunk).as_ref() }.next;
    if distance == 0 {
        return None;
    }
    let address = chunk.addr().get().wrapping_add_signed(distance);
    // SAFETY: `link` took the distance between two chunks' addresses, none of which is zero.
    let address = unsafe { NonZero::new_unchecked(address) };
    Some(NonNull::with_exposed_provenance(address))
}

/// Who holds a chunk, so that what a device returns can be checked: a byte for each [`CHUNK_SIZE`] of a block, at the
/// block's head; a larger chunk has the byte of its first half. There 64 chunks share a cache line. In the chunks themselves the states would be 2 KiB
/// apart, for which a cache has few places, and one that was looked up in vain for each packet.
pub(crate) struct ChunkState;

impl ChunkState {
    /// Neither with the NIC nor retained: in a pool or the depot, or in an mbuf.
    pub(crate) const OURS: u8 = 0;
    /// With the NIC, to receive into.
    pub(crate) const LENT: u8 = 1;
    /// With the NIC, being sent: a bit.
    pub(crate) const TX: u8 = 2;
    /// Held by the stack until acknowledged: a bit, alone while the chunk is not with the NIC.
    pub(crate) const RETAINED: u8 = 4;
    /// Both.
    pub(crate) const TX_RETAINED: u8 = Self::TX | Self::RETAINED;
    /// A bit of retained chunks: the segment goes on in another one ([`Retained::chain`]).
    pub(crate) const LONG: u8 = 1;

    /// The byte of a chunk. Regions begin at a multiple of a block's size.
    #[inline(always)]
    fn of(chunk: NonNull<u8>) -> *mut u8 {
        let within = chunk.as_ptr() as usize % BLOCK_SIZE;
        chunk.as_ptr().wrapping_sub(within - within / CHUNK_SIZE)
    }

    #[inline]
    pub(crate) fn get(chunk: NonNull<u8>) -> u8 {
        // SAFETY: the head of the chunk's block lies in its region, holds nothing but states, and was
        // zeroed at first; each state is touched by whoever holds the chunk, and by nobody else.
        unsafe { *Self::of(chunk) }
    }

    #[inline]
    pub(crate) fn set(chunk: NonNull<u8>, state: u8) {
        // SAFETY: as above.
        unsafe { *Self::of(chunk) = state }
    }

    /// Whether the NIC holds a retained chunk.
    pub(crate) fn is_in_nic(chunk: NonNull<u8>) -> bool {
        Self::get(chunk) & Self::TX != 0
    }

    /// The NIC is done with a retained chunk.
    #[cold]
    #[inline(never)]
    pub(crate) fn leave_nic(chunk: NonNull<u8>) {
        Self::set(chunk, Self::get(chunk) & !Self::TX);
    }
}

/// The chunk in which the segment of a retained one goes on.
///
/// # Safety
/// The caller holds the stack's claim on `chunk`.
#[inline]
unsafe fn more(chunk: NonNull<u8>) -> Option<NonNull<u8>> {
    if ChunkState::get(chunk) & ChunkState::LONG == 0 {
        return None;
    }
    // SAFETY: the header is inside the chunk, and the caller's; `set_more` wrote this field.
    let distance = unsafe { header(chunk).as_ref() }.more as isize * CHUNK_SIZE as isize;
    let address = chunk.addr().get().wrapping_add_signed(distance);
    // SAFETY: `set_more` took the distance between two chunks' addresses, none of which is zero.
    let address = unsafe { NonZero::new_unchecked(address) };
    Some(NonNull::with_exposed_provenance(address))
}

/// Has the segment of `chunk` go on in `next`, or with `None` end there. Answers whether the two chunks are near enough to each other.
///
/// # Safety
/// The caller holds the stack's claim on `chunk` and on `next`.
unsafe fn set_more(chunk: NonNull<u8>, next: Option<NonNull<u8>>) -> bool {
    if let Some(next) = next {
        let next = next.expose_provenance().get();
        let distance = next.wrapping_sub(chunk.addr().get()) as isize / CHUNK_SIZE as isize;
        let Ok(distance) = i32::try_from(distance) else { return false };
        // SAFETY: the header is inside the chunk, and the caller's.
        unsafe { (*header(chunk).as_ptr()).more = distance };
    }
    let mark = if next.is_some() { ChunkState::LONG } else { 0 };
    ChunkState::set(chunk, ChunkState::get(chunk) & !ChunkState::LONG | mark);
    true
}

/// An operation wanted more bytes than the chunk has before or behind the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the frame does not fit its chunk")]
pub struct NoRoom;

/// A message buffer: a chunk and the window of it that holds a frame (IX §4.2). Owned by one
/// holder, returned to a [`Pool`](crate::Pool) by hand; one that is dropped is lost until the
/// process ends, which tests of the pools detect.
#[derive(Debug)]
#[must_use = "an mbuf that is dropped is lost to its pool"]
pub struct Mbuf {
    pub(crate) chunk: NonNull<u8>,
    pub(crate) head: u16,
    pub(crate) len: u16,
    /// Free for the holder: the dataplane keeps the flow hash here.
    pub tag: u32,
}

const _: () = assert!(size_of::<Mbuf>() == 16);

// SAFETY: an mbuf is the only way to its chunk's bytes; moving it moves that right.
unsafe impl Send for Mbuf {}
// SAFETY: through `&Mbuf` the bytes are only read.
unsafe impl Sync for Mbuf {}
// SAFETY: a pool's free chunks are reachable through it alone.
unsafe impl Send for crate::Pool {}

impl Mbuf {
    #[inline]
    pub(crate) fn adopt(chunk: NonNull<u8>) -> Self {
        Self { chunk, head: TX_HEADROOM as u16, len: 0, tag: 0 }
    }

    #[inline]
    pub(crate) fn chunk(&self) -> NonNull<u8> {
        self.chunk
    }

    #[inline]
    pub(crate) fn into_chunk(self) -> NonNull<u8> {
        self.chunk
    }

    /// Places the window; the caller has checked that it lies in the chunk.
    #[inline]
    pub(crate) fn set_window(&mut self, head: usize, len: usize) {
        debug_assert!(head >= CHUNK_HEADER && head + len <= ChunkBytes::Page.get());
        self.head = head as u16;
        self.len = len as u16;
    }

    /// The frame.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the window lies in the chunk, behind the header (every change checks that), and
        // the borrow of `self` keeps writers away.
        unsafe {
            slice::from_raw_parts(self.chunk.as_ptr().add(self.head as usize), self.len as usize)
        }
    }

    /// Starts loading the lines in which the frame's headers stand, which another core has written.
    #[inline(always)]
    pub fn prefetch_headers(&self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: hints, which read nothing that the program can observe; both addresses lie in the
        // chunk or right behind it, and a hint cannot fault.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let first = self.chunk.as_ptr().wrapping_add(self.head as usize);
            _mm_prefetch::<_MM_HINT_T0>(first.cast_const().cast());
            _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(64).cast_const().cast());
        }
    }

    /// The frame, to write.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `&mut self` is the only way to these bytes.
        unsafe {
            slice::from_raw_parts_mut(
                self.chunk.as_ptr().add(self.head as usize),
                self.len as usize,
            )
        }
    }

    /// Bytes of the frame.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the frame has no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes before the frame that it can grow by.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.head as usize - CHUNK_HEADER
    }

    /// Bytes behind the frame that it can grow by: up to [`CHUNK_SIZE`], beyond which only the NIC writes.
    #[inline]
    pub fn tailroom(&self) -> usize {
        CHUNK_SIZE.saturating_sub(self.head as usize + self.len as usize)
    }

    /// Empties the frame and lets it start at `head` bytes into the chunk.
    ///
    /// # Errors
    /// [`NoRoom`] where that is inside the bookkeeping or past the end.
    pub fn reset(&mut self, head: usize) -> Result<(), NoRoom> {
        if !(CHUNK_HEADER..=CHUNK_SIZE).contains(&head) {
            return Err(NoRoom);
        }
        self.set_window(head, 0);
        Ok(())
    }

    /// Drops the first `count` bytes of the frame (all, where it has fewer).
    #[inline]
    pub fn advance(&mut self, count: usize) {
        let count = count.min(self.len as usize) as u16;
        self.head += count;
        self.len -= count;
    }

    /// Cuts the frame to its first `len` bytes (no effect where it has fewer).
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len.min(u16::MAX.into()) as u16);
    }

    /// Grows the frame by `count` bytes at its front and answers the whole frame. The new bytes
    /// hold what was there before.
    ///
    /// # Errors
    /// [`NoRoom`] where the headroom is smaller.
    #[inline]
    pub fn prepend(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        if count > self.headroom() {
            return Err(NoRoom);
        }
        self.head -= count as u16;
        self.len += count as u16;
        Ok(self.bytes_mut())
    }

    /// Grows the frame by `count` bytes at its end and answers just these.
    ///
    /// # Errors
    /// [`NoRoom`] where the tailroom is smaller.
    #[inline]
    pub fn extend(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        if count > self.tailroom() {
            return Err(NoRoom);
        }
        let end = self.head as usize + self.len as usize;
        self.len += count as u16;
        // SAFETY: `count` bytes from the frame's end are its tailroom, inside the chunk; `&mut self` is
        // the only way to them.
        Ok(unsafe { slice::from_raw_parts_mut(self.chunk.as_ptr().add(end), count) })
    }

    /// Appends a copy of `bytes`.
    ///
    /// # Errors
    /// [`NoRoom`] where the tailroom is smaller; nothing is appended then.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        self.extend(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Gives the whole frame to the NIC: once sent, the chunk is free.
    #[inline]
    pub fn into_tx(self) -> TxFrame {
        ChunkState::set(self.chunk, ChunkState::TX);
        TxFrame::new(self.chunk, self.head, self.len)
    }

    /// As [`retain`](Self::retain) and [`Retained::transmit`] in one: the stack's claim and the NIC's. `write` gets the `N`
    /// bytes before the frame, and answers how many of them, the last ones, are the headers.
    ///
    /// # Errors
    /// The mbuf comes back where there is no room for `N` bytes before it.
    // Always inlined, so that `write` is compiled for what its caller knows.
    #[inline(always)]
    pub fn transmit<const N: usize>(
        self,
        meta: TxMeta,
        write: impl FnOnce(&mut [u8; N]) -> usize,
    ) -> Result<(Retained, TxFrame), Self> {
        if self.headroom() < N {
            return Err(self);
        }
        // SAFETY: the headroom lies in the chunk behind its header, and `self` is the only holder.
        let front = unsafe { &mut *self.chunk.as_ptr().add(self.head as usize - N).cast() };
        let headers = write(front).min(N) as u16;
        let (head, len) = (self.head - headers, self.len + headers);
        let chunk = self.chunk;
        let retained = self.retain(meta);
        ChunkState::set(chunk, ChunkState::TX_RETAINED);
        Ok((retained, TxFrame::new(chunk, head, len)))
    }

    /// Keeps the frame's bytes as payload of a segment that is not sent yet.
    #[inline]
    pub fn retain(self, meta: TxMeta) -> Retained {
        ChunkState::set(self.chunk, ChunkState::RETAINED);
        // SAFETY: `self` is the only holder; the header is inside the chunk.
        unsafe {
            let header = &mut *header(self.chunk).as_ptr();
            header.meta = meta;
            header.payload_head = self.head;
            header.payload_len = self.len;
        }
        Retained { chunk: self.chunk, _local: PhantomData }
    }
}

/// A transport checksum that the device completes (Linux: `CHECKSUM_PARTIAL`): its field holds the sum of the
/// pseudo-header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartialChecksum {
    /// The first byte of the frame that it covers.
    pub start: u16,
    /// Where the field lies, in bytes from there.
    pub offset: NonZero<u16>,
}

/// The NIC's claim on a frame that is being sent, whose bytes are read-only, and on what lies before them; of a frame of
/// several chunks, on one of them: all but the last are [continued](Self::is_continued), and lie before it in a row.
#[derive(Debug)]
#[must_use = "a frame that is dropped is lost to its pool"]
pub struct TxFrame {
    chunk: NonNull<u8>,
    head: u16,
    len: u16,
    /// [`PartialChecksum::start`], where `options` has an offset.
    checksum_start: u16,
    /// [`PartialChecksum::offset`], or 0: the checksum is complete; and [`CONTINUED`](Self::CONTINUED).
    options: u16,
    _local: PhantomData<*const ()>,
}

const _: () = assert!(size_of::<TxFrame>() == 16);
const _: () = assert!(ChunkBytes::Page.get() < TxFrame::CONTINUED as usize);

impl TxFrame {
    #[inline(always)]
    fn new(chunk: NonNull<u8>, head: u16, len: u16) -> Self {
        Self { chunk, head, len, checksum_start: 0, options: 0, _local: PhantomData }
    }

    /// Set of a chunk that is not the frame's last one.
    const CONTINUED: u16 = 1 << 15;

    /// The frame with a checksum that the device is to complete, if any: only for a driver that says it can. Of several
    /// chunks the first has it.
    #[inline(always)]
    pub fn with_partial_checksum(self, partial_checksum: Option<PartialChecksum>) -> Self {
        match partial_checksum {
            None => self,
            Some(PartialChecksum { start, offset }) => {
                debug_assert!(offset.get() < Self::CONTINUED, "the field lies in the frame");
                let options = self.options & Self::CONTINUED | offset.get() & !Self::CONTINUED;
                Self { checksum_start: start, options, ..self }
            }
        }
    }

    /// The checksum that the device is to complete, if any.
    #[inline]
    pub fn partial_checksum(&self) -> Option<PartialChecksum> {
        let offset = NonZero::new(self.options & !Self::CONTINUED)?;
        Some(PartialChecksum { start: self.checksum_start, offset })
    }

    /// The frame, which goes on in the next one if `is_continued`: only for a driver that says it can.
    #[inline]
    pub fn with_continued(self, is_continued: bool) -> Self {
        let mark = if is_continued { Self::CONTINUED } else { 0 };
        Self { options: self.options & !Self::CONTINUED | mark, ..self }
    }

    /// Whether the frame goes on in the next one.
    #[inline]
    pub fn is_continued(&self) -> bool {
        self.options & Self::CONTINUED != 0
    }

    /// Whether the frame has one chunk and a complete checksum, unless it is the last chunk of a longer one.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.options == 0
    }

    /// Writes what a device wants directly before the frame. The bytes there hold nothing else: headroom, or the
    /// unused end of the chunk's bookkeeping.
    #[inline]
    pub fn write_metadata(&mut self, metadata: [u8; TX_METADATA]) {
        // SAFETY: a frame starts behind `CHUNK_HEADER`, so these bytes lie in the chunk behind its bookkeeping (asserted
        // above). A `Retained` of the same chunk reads bookkeeping and payload alone while the frame exists, and the
        // payload lies in the frame.
        unsafe {
            let before = self.chunk.as_ptr().add(self.head as usize - TX_METADATA);
            before.cast::<[u8; TX_METADATA]>().write(metadata);
        }
    }

    /// The frame.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the window was checked when the mbuf had it; all holders of this chunk only read.
        unsafe {
            slice::from_raw_parts(self.chunk.as_ptr().add(self.head as usize), self.len as usize)
        }
    }

    /// Bytes of the frame.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the frame has no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn chunk(&self) -> NonNull<u8> {
        self.chunk
    }

    pub(crate) fn head(&self) -> usize {
        self.head as usize
    }

    /// The claim goes on in the chunk's state byte.
    pub(crate) fn forget_in_nic(self) {}
}

/// The stack's claim on a segment until its acknowledgment comes.
#[derive(Debug)]
#[must_use = "a segment that is dropped is lost to its pool"]
pub struct Retained {
    pub(crate) chunk: NonNull<u8>,
    pub(crate) _local: PhantomData<*const ()>,
}

impl Retained {
    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: the stack's claim is the only way to the header of a retained chunk, but for the
        // state byte, which both claims reach from the same thread and never by reference.
        unsafe { header(self.chunk).as_ref() }
    }

    /// The segment's first chunk.
    #[inline]
    pub(crate) fn chunk(&self) -> NonNull<u8> {
        self.chunk
    }

    /// What is remembered of the segment.
    #[inline]
    pub fn meta(&self) -> TxMeta {
        self.header().meta
    }

    /// Replaces what is remembered.
    #[inline]
    pub fn set_meta(&mut self, meta: TxMeta) {
        // SAFETY: as in `header`, and `&mut self` is the only claim of the stack.
        unsafe { (*header(self.chunk).as_ptr()).meta = meta }
    }

    /// Remembers that the segment was sent, once more, at `now_ns`.
    #[inline]
    pub fn mark_sent(&mut self, now_ns: u64) {
        // SAFETY: as in `set_meta`.
        let meta = unsafe { &mut (*header(self.chunk).as_ptr()).meta };
        meta.sent_at_ns = now_ns;
        meta.transmissions = meta.transmissions.saturating_add(1);
    }

    /// Whether the NIC still holds the last transmission, or a part of it.
    #[inline]
    pub fn is_in_nic(&self) -> bool {
        // The first test is the only one for most that go out.
        ChunkState::get(self.chunk) != ChunkState::RETAINED && self.is_any_in_nic()
    }

    /// The same of each chunk.
    #[cold]
    fn is_any_in_nic(&self) -> bool {
        self.chunks().any(ChunkState::is_in_nic)
    }

    /// The segment's chunks. Each may be given away before the next one is asked for.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = NonNull<u8>> + use<> {
        let mut next = Some(self.chunk);
        core::iter::from_fn(move || {
            let chunk = next?;
            // SAFETY: the claim on a segment is that on all of its chunks, and `chunk` has not been given away yet.
            next = unsafe { more(chunk) };
            Some(chunk)
        })
    }

    /// The payload's first part: all of it, unless the segment [is long](Self::is_long).
    #[inline]
    pub fn payload(&self) -> &[u8] {
        self.bytes_in(self.chunk)
    }

    /// The payload, chunk by chunk.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks().map(|chunk| self.bytes_in(chunk))
    }

    /// The payload's part in one of the segment's chunks.
    #[inline]
    fn bytes_in(&self, chunk: NonNull<u8>) -> &[u8] {
        // SAFETY: as in `header`, of each of the segment's chunks.
        let header = unsafe { header(chunk).as_ref() };
        let (head, len) = (header.payload_head, header.payload_len);
        // SAFETY: set from a checked window in `retain` and only shrunk since; nobody writes there.
        unsafe { slice::from_raw_parts(chunk.as_ptr().add(head as usize), len as usize) }
    }

    /// Whether the payload lies in several chunks.
    #[inline]
    pub fn is_long(&self) -> bool {
        // SAFETY: as in `chunks`.
        unsafe { more(self.chunk) }.is_some()
    }

    /// Forgets the first `count` bytes of the payload (all, where it has fewer): they have been
    /// acknowledged. Keeps the chunks.
    pub fn trim_front(&mut self, count: usize) {
        let mut left = count;
        for chunk in self.chunks() {
            // SAFETY: as in `set_meta`, of each of the segment's chunks.
            let header = unsafe { &mut *header(chunk).as_ptr() };
            let cut = left.min(header.payload_len as usize);
            header.payload_head += cut as u16;
            header.payload_len -= cut as u16;
            left -= cut;
        }
    }

    /// The segment's last chunk.
    fn last(&self) -> NonNull<u8> {
        self.chunks().last().unwrap_or(self.chunk)
    }

    /// Bytes behind the payload that it can grow by without another chunk.
    pub fn tailroom(&self) -> usize {
        // SAFETY: as in `header`, of each of the segment's chunks.
        let header = unsafe { header(self.last()).as_ref() };
        CHUNK_SIZE.saturating_sub(header.payload_head as usize + header.payload_len as usize)
    }

    /// Appends a copy of `bytes` to the payload, in its last chunk.
    ///
    /// # Errors
    /// [`NoRoom`] where the chunk has no room for them, or the NIC reads it; nothing is appended then.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        let last = self.last();
        if ChunkState::is_in_nic(last) || bytes.len() > self.tailroom() {
            return Err(NoRoom);
        }
        // SAFETY: as in `set_meta`; the bytes behind the payload are its tailroom, inside the chunk, and no other
        // claim reads or writes there, as it is not in the NIC.
        unsafe {
            let header = &mut *header(last).as_ptr();
            let end = header.payload_head as usize + header.payload_len as usize;
            slice::from_raw_parts_mut(last.as_ptr().add(end), bytes.len()).copy_from_slice(bytes);
            header.payload_len += bytes.len() as u16;
        }
        Ok(())
    }

    /// Appends the payload of `next`, which stays in its chunks. What is remembered of `next` is forgotten; what is
    /// remembered of the whole is for the caller to [replace](Self::set_meta).
    ///
    /// # Errors
    /// `next` comes back where its chunk is further away than a region is large.
    pub fn chain(&mut self, next: Self) -> Result<(), Self> {
        // SAFETY: both claims are at hand.
        match unsafe { set_more(self.last(), Some(next.chunk)) } {
            true => Ok(()),
            false => Err(next),
        }
    }

    /// Splits a long segment between two of its chunks: answers the first chunks, as many as have up to `most` bytes of
    /// payload, and the others. What is remembered of both is for the caller to [replace](Self::set_meta).
    ///
    /// # Errors
    /// It comes back where the first chunk has more, the first chunks have none, or no others would be left.
    pub fn split_front(self, most: usize) -> Result<[Self; 2], Self> {
        let mut len = 0;
        let is_within = |chunk: &NonNull<u8>| {
            len += self.bytes_in(*chunk).len();
            len <= most
        };
        let last = self.chunks().take_while(is_within).last();
        // SAFETY: as in `chunks`.
        let rest = last.and_then(|last| unsafe { more(last) });
        let (Some(last), Some(rest)) = (last, rest) else { return Err(self) };
        let mut front = self.chunks().take_while(|&chunk| chunk != rest);
        if front.all(|chunk| self.bytes_in(chunk).is_empty()) {
            return Err(self);
        }
        // SAFETY: the claim on the segment is that on all of its chunks; each is in one of the two from here on.
        unsafe { set_more(last, None) };
        Ok([self, Self { chunk: rest, _local: PhantomData }])
    }

    /// Makes a frame of the payload with `headers` bytes before it, which `write` fills, and hands
    /// the NIC its claim. `write` gets exactly these bytes.
    ///
    /// # Errors
    /// [`NoRoom`] where the headers do not fit, or where the NIC still holds the last
    /// transmission, so that its bytes must not change; copy the payload to a new mbuf then.
    // Always inlined, so that `write` is compiled for what its caller knows.
    #[inline(always)]
    pub fn transmit(
        &mut self,
        headers: usize,
        write: impl FnOnce(&mut [u8], &[u8]),
    ) -> Result<TxFrame, NoRoom> {
        let (payload_head, payload_len) = (self.header().payload_head, self.header().payload_len);
        let payload_start = payload_head as usize;
        if self.is_in_nic() || headers > payload_start - CHUNK_HEADER {
            return Err(NoRoom);
        }
        let head = payload_start - headers;
        // SAFETY: both ranges lie in the chunk behind the header, do not overlap, and no other
        // claim on the chunk exists, as it is not in the NIC.
        let (front, payload) = unsafe {
            let start = self.chunk.as_ptr().add(head);
            (
                slice::from_raw_parts_mut(start, headers),
                slice::from_raw_parts(start.add(headers), payload_len as usize),
            )
        };
        write(front, payload);
        let len = headers as u16 + payload_len;
        Ok(self.post(self.chunk, head as u16, len))
    }

    /// The frames of a long segment's other chunks, in their order, to follow that which
    /// [`transmit`](Self::transmit) made just now.
    pub fn transmit_rest(&mut self) -> impl Iterator<Item = TxFrame> + use<'_> {
        self.chunks().skip(1).map(|chunk| {
            // SAFETY: as in `header`, of each of the segment's chunks.
            let header = unsafe { header(chunk).as_ref() };
            self.post(chunk, header.payload_head, header.payload_len)
        })
    }

    /// The NIC's claim on one of the segment's chunks.
    #[inline]
    fn post(&self, chunk: NonNull<u8>, head: u16, len: u16) -> TxFrame {
        let state = ChunkState::get(chunk);
        ChunkState::set(chunk, state | ChunkState::TX);
        let is_continued = state & ChunkState::LONG != 0;
        TxFrame::new(chunk, head, len).with_continued(is_continued)
    }
}
