//! A core's own free chunks.
//!
//! Last in, first out: the chunk that was freed last is the one whose lines are still in the cache.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr::NonNull;

use crate::depot::BATCH;
use crate::unsafe_chunk::{ChunkState, Mbuf, TxFrame};
use crate::{BadAddress, Exhausted, Region};

/// What a pool has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Allocations that found no free chunk here nor in the depot.
    pub exhausted: u64,
    /// Chunks of another region that were given to this pool; they are lost to both.
    pub foreign: u64,
}

/// What memory is wanted for. Received bytes that are kept (ahead of a gap, or until the application
/// gives them back) and bytes that wait for their acknowledgment have their own parts of a pool, so
/// that neither can stop the other; an eighth stays free of both, to receive acknowledgments in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// To keep bytes of the application until they are acknowledged: what reception has no claim on.
    Send,
    /// To keep a segment that arrived ahead of a gap: reception's first quarter of the pool.
    OutOfOrder,
    /// To keep received bytes that continue a stream: up to three eighths.
    Receive,
}

/// Chunks that a connection may keep in any case, as long as there are some.
const LEAST_SHARE: usize = 8;

/// A core's free chunks, in front of the region's depot.
#[derive(Debug)]
pub struct Pool {
    free: Vec<NonNull<u8>>,
    /// Free chunks beyond which a batch goes back to the depot.
    high_water: usize,
    /// An eighth of the chunks that this pool may count on, of which [`Want`] speaks.
    eighth: usize,
    /// Received buffers that are kept beyond their batch.
    kept: usize,
    /// It has found nothing since it was last asked to share.
    wants: bool,
    region: Arc<Region>,
    stats: PoolStats,
}

impl Pool {
    /// A pool that keeps up to `keep` free chunks to itself (at least two batches).
    pub fn new(region: &Arc<Region>, keep: usize) -> Self {
        let high_water = keep.max(2 * BATCH);
        let free = Vec::with_capacity(high_water + BATCH);
        let mut pool = Self {
            free,
            high_water,
            eighth: keep / 8,
            kept: 0,
            wants: false,
            region: Arc::clone(region),
            stats: PoolStats::default(),
        };
        pool.fetch(keep);
        pool
    }

    /// The region whose chunks these are.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Takes a free chunk as an empty mbuf with [`TX_HEADROOM`](crate::TX_HEADROOM) before it.
    ///
    /// # Errors
    /// [`Exhausted`] where neither this pool nor the depot has one; counted.
    #[inline]
    pub fn alloc(&mut self) -> Result<Mbuf, Exhausted> {
        match self.alloc_at_hand() {
            Some(mbuf) => Ok(mbuf),
            None => self.alloc_from_depot(),
        }
    }

    /// The same of a chunk that this pool has itself; `None` where it has none.
    #[inline]
    pub fn alloc_at_hand(&mut self) -> Option<Mbuf> {
        self.free.pop().map(Mbuf::adopt)
    }

    /// Fills up, where more than a few are missing, with what `other` has beyond half of what it keeps; and where a
    /// quarter of what this pool keeps is missing then, from the depot, and with up to half of what `other` has, where
    /// the depot has nothing. For a pool from which chunks are taken, and to which none come back, as they come back to
    /// the other one. The chunks that came back last go first: their lines are still in the cache.
    #[inline]
    pub fn top_up(&mut self, other: &mut Self) {
        // A few are soon many: together they cost less.
        const FEW: usize = BATCH / 4;
        let missing = self.high_water.saturating_sub(self.free.len());
        if missing < FEW || !Arc::ptr_eq(&self.region, &other.region) {
            return;
        }
        self.take_from(other, missing.min(other.free.len().saturating_sub(other.high_water / 2)));
        if self.free.len() < self.high_water / 4 * 3 {
            self.top_up_from(other);
        }
    }

    #[cold]
    fn top_up_from(&mut self, other: &mut Self) {
        self.fetch(self.high_water - self.free.len());
        if self.free.len() < self.high_water / 4 * 3 {
            let missing = self.high_water - self.free.len();
            self.take_from(other, missing.min(other.free.len() / 2));
        }
    }

    /// Takes so many chunks that the other pool has.
    #[inline]
    fn take_from(&mut self, other: &mut Self, count: usize) {
        let keep_from = other.free.len() - count;
        self.free.extend(other.free.drain(keep_from..));
    }

    #[cold]
    fn alloc_from_depot(&mut self) -> Result<Mbuf, Exhausted> {
        self.fetch(BATCH);
        match self.alloc_at_hand() {
            Some(mbuf) => Ok(mbuf),
            None => {
                self.stats.exhausted += 1;
                self.want();
                Err(Exhausted)
            }
        }
    }

    /// Whether a chunk may be taken, or kept, for this purpose.
    #[inline(always)]
    pub fn allows(&self, want: Want) -> bool {
        self.allows_all(want, 1)
    }

    /// Chunks of one purpose that one connection may keep: a quarter of what is left, so that a few take from
    /// nobody what it needs. However many take all that they get, one of them has a fifth of the whole where it is
    /// alone, and `n` leave one part in `n + 4` to the next (Choudhury and Hahne's dynamic thresholds). To send, the depot's
    /// chunks count too, as of now.
    pub fn share(&self, want: Want) -> usize {
        let left = match want {
            Want::Send => self.available().saturating_sub(self.stays_free(want)),
            Want::OutOfOrder | Want::Receive => self.quota(want).saturating_sub(self.kept),
        };
        (left / 4).max(LEAST_SHARE)
    }

    /// Received chunks that may be kept where one more is wanted for this purpose.
    #[inline(always)]
    fn quota(&self, want: Want) -> usize {
        match want {
            Want::Send => usize::MAX,
            Want::OutOfOrder => 2 * self.eighth,
            Want::Receive => 3 * self.eighth,
        }
    }

    /// Whether more chunks are free than have to stay so in any case, whatever is kept already.
    pub fn leaves_reserve(&self) -> bool {
        self.free.len() > self.eighth || self.has_more_than(self.eighth)
    }

    /// Whether so many chunks may be taken, or kept, for this purpose.
    #[inline(always)]
    pub fn allows_all(&self, want: Want, chunks: usize) -> bool {
        let more = chunks.saturating_sub(1);
        if want != Want::Send && self.kept + more >= self.quota(want) {
            return false;
        }
        let stays_free = self.stays_free(want) + more;
        self.free.len() > stays_free || self.has_more_than(stays_free)
    }

    /// Chunks that may be taken for this purpose without a visit to the depot, which others visit too. Where
    /// there are few, some are brought from there first.
    #[inline]
    pub fn allowance(&mut self, want: Want) -> usize {
        if self.at_hand(want) <= BATCH / 2 {
            self.fetch(BATCH);
            if self.at_hand(want) == 0 {
                self.want();
            }
        }
        self.at_hand(want)
    }

    /// Says that the depot has too little.
    fn want(&mut self) {
        self.wants = true;
        self.region.depot.want();
    }

    /// Gives half of what this pool keeps, beyond two batches, to the depot, where another one has found that empty: asked
    /// once a cycle. However much a pool may keep, one that has none gets some of it.
    #[inline]
    pub fn share_out(&mut self) {
        if self.region.depot.is_wanted() {
            self.give_half();
        }
    }

    #[cold]
    fn give_half(&mut self) {
        // One that has wanted some lately is no rich one, whatever has come back since.
        if core::mem::take(&mut self.wants) {
            return;
        }
        let keep = (self.free.len() / 2).max(2 * BATCH);
        if keep < self.free.len() {
            self.put_from(keep);
            self.region.depot.satisfy();
        }
    }

    /// The same before a sleep, in which it cannot be asked: where the depot has little, it gets all beyond two batches.
    pub fn rest(&mut self) {
        if self.free.len() > 2 * BATCH && self.region.depot_len() < 4 * BATCH {
            self.put_from(2 * BATCH);
        }
    }

    /// Takes up to so many chunks from the depot, fewer only where it has fewer.
    #[cold]
    fn fetch(&mut self, most: usize) {
        let Self { region, free, .. } = self;
        region.depot.take(most, free, |number| region.chunk(number));
    }

    /// As [`allowance`](Self::allowance), of the chunks that this pool has itself.
    #[inline]
    pub fn at_hand(&self, want: Want) -> usize {
        self.free.len().saturating_sub(self.stays_free(want))
    }

    /// Whether so many chunks could be had for this purpose, as far as can be said now: what takes more does well not
    /// to begin.
    #[inline]
    pub fn could_give(&self, want: Want, count: usize) -> bool {
        let most = count.saturating_add(self.stays_free(want));
        if self.free.len() >= most {
            return true;
        }
        self.available() >= most
    }

    /// Chunks that could be had for this purpose, in sixteenths of those that this pool may count on. The depot's
    /// are a snapshot.
    pub fn sixteenths_left(&self, want: Want) -> usize {
        2 * self.available().saturating_sub(self.stays_free(want)) / self.eighth.max(1)
    }

    /// Chunks that whoever wants one for this purpose leaves.
    #[inline(always)]
    fn stays_free(&self, want: Want) -> usize {
        let eighth = self.eighth;
        match want {
            Want::Send => eighth + (3 * eighth).saturating_sub(self.kept),
            Want::OutOfOrder | Want::Receive => eighth,
        }
    }

    /// Tells that a received buffer is kept beyond its batch.
    #[inline]
    pub fn keep(&mut self) {
        self.kept += 1;
    }

    /// Tells that a kept buffer is not kept any more, whoever has it now.
    #[inline]
    pub fn unkeep(&mut self) {
        debug_assert!(self.kept > 0, "kept buffers are counted in pairs");
        self.kept = self.kept.saturating_sub(1);
    }

    /// Received buffers that are kept.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Counts the depot's chunks too.
    #[cold]
    fn has_more_than(&self, count: usize) -> bool {
        self.available() > count
    }

    /// Where the bytes of an mbuf of this pool begin, as an offset in the region; none where it is of another.
    #[inline]
    pub fn offset_of(&self, mbuf: &Mbuf) -> Option<u64> {
        let head = crate::CHUNK_HEADER + mbuf.headroom();
        Some(self.region.offset_of(mbuf.chunk())? + head as u64)
    }

    /// Gives a chunk back.
    #[inline]
    pub fn free(&mut self, mbuf: Mbuf) {
        self.put(mbuf.into_chunk());
    }

    #[inline(always)]
    fn put(&mut self, chunk: NonNull<u8>) {
        if self.region.offset_of(chunk).is_none() {
            self.stats.foreign += 1;
            return;
        }
        self.free.push(chunk);
        if self.free.len() >= self.high_water + BATCH {
            self.spill();
        }
    }

    /// As [`put`](Self::put), for a chunk that the NIC had, or that was retained.
    #[inline(always)]
    fn put_back(&mut self, chunk: NonNull<u8>) {
        ChunkState::set(chunk, ChunkState::OURS);
        self.put(chunk);
    }

    #[cold]
    fn spill(&mut self) {
        self.put_from(self.free.len() - BATCH);
    }

    /// Gives the free chunks from the one at `index` on to the depot.
    fn put_from(&mut self, index: usize) {
        let Self { region, free, .. } = self;
        region.depot.put(free[index..].iter().map(|chunk| region.number_of(*chunk)));
        free.truncate(index);
    }

    /// Chunks that this pool can hand out without visiting the depot.
    pub fn free_len(&self) -> usize {
        self.free.len()
    }

    /// Chunks free here and in the depot; the latter is a snapshot.
    pub fn available(&self) -> usize {
        self.free.len() + self.region.depot_len()
    }

    /// Counters.
    pub fn stats(&self) -> PoolStats {
        self.stats
    }

    /// Lends a chunk to the NIC for reception and answers its address in the region.
    ///
    /// # Errors
    /// The mbuf comes back where it is of another region.
    #[inline]
    pub fn lend(&self, mbuf: Mbuf) -> Result<u64, Mbuf> {
        let Some(address) = self.region.offset_of(mbuf.chunk()) else { return Err(mbuf) };
        let chunk = mbuf.into_chunk();
        ChunkState::set(chunk, ChunkState::LENT);
        Ok(address)
    }

    /// Takes back a chunk that [`lend`](Self::lend) gave out, with `len` bytes of a frame that
    /// starts at `address`.
    ///
    /// # Errors
    /// [`BadAddress`] where the address is not of a lent chunk, or the frame does not fit it.
    #[inline]
    pub fn take_back(&self, address: u64, len: usize) -> Result<Mbuf, BadAddress> {
        let chunk = self.region.chunk_at(address).ok_or(BadAddress(address))?;
        if ChunkState::get(chunk) != ChunkState::LENT {
            return Err(BadAddress(address));
        }
        let chunk_bytes = self.region.chunk_bytes().get();
        let head = address as usize & (chunk_bytes - 1);
        if head < crate::CHUNK_HEADER || head + len > chunk_bytes {
            return Err(BadAddress(address));
        }
        ChunkState::set(chunk, ChunkState::OURS);
        let mut mbuf = Mbuf::adopt(chunk);
        mbuf.set_window(head, len);
        Ok(mbuf)
    }

    /// Hands a frame to the NIC by address: (offset in the region, length in bytes).
    ///
    /// # Errors
    /// The frame comes back where it is of another region.
    #[inline]
    pub fn post(&self, frame: TxFrame) -> Result<(u64, usize), TxFrame> {
        let Some(base) = self.region.offset_of(frame.chunk()) else { return Err(frame) };
        let posted = (base + frame.head() as u64, frame.len());
        frame.forget_in_nic();
        Ok(posted)
    }

    /// The NIC has sent the frame at `address` (any byte of its chunk): its claim ends.
    ///
    /// # Errors
    /// [`BadAddress`] where the chunk there was not in transmission.
    #[inline]
    pub fn complete_address(&mut self, address: u64) -> Result<(), BadAddress> {
        let chunk = self.region.chunk_at(address).ok_or(BadAddress(address))?;
        match ChunkState::get(chunk) {
            ChunkState::TX => self.put_back(chunk),
            ChunkState::TX_RETAINED => ChunkState::set(chunk, ChunkState::RETAINED),
            _ if ChunkState::is_in_nic(chunk) => ChunkState::leave_nic(chunk),
            _ => return Err(BadAddress(address)),
        }
        Ok(())
    }

    /// The NIC has sent `frame`: its claim ends.
    #[inline(always)]
    pub fn complete(&mut self, frame: TxFrame) {
        let chunk = frame.chunk();
        frame.forget_in_nic();
        match ChunkState::get(chunk) == ChunkState::TX {
            true => self.put_back(chunk),
            false => ChunkState::leave_nic(chunk),
        }
    }

    /// The stack needs the bytes no more. Each chunk is free now, or once the NIC is done with it.
    #[inline(always)]
    pub fn release(&mut self, retained: crate::Retained) {
        let chunk = retained.chunk();
        let state = ChunkState::get(chunk);
        if state == ChunkState::TX_RETAINED {
            ChunkState::set(chunk, ChunkState::TX);
        } else if state & ChunkState::LONG == 0 {
            self.put_back(chunk);
        } else {
            self.release_long(retained);
        }
    }

    /// The same where there are several chunks.
    #[cold]
    #[inline(never)]
    fn release_long(&mut self, retained: crate::Retained) {
        for chunk in retained.chunks() {
            match ChunkState::is_in_nic(chunk) {
                true => ChunkState::set(chunk, ChunkState::TX),
                false => self.put_back(chunk),
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.put_from(0);
    }
}
