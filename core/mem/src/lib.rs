//! Packet memory: mbufs and per-core pools over one region of huge pages (IX §4.2).
//!
//! A [`Region`] is one contiguous mapping, cut into blocks of 2 MB and those into chunks of
//! [`CHUNK_SIZE`] bytes. A block's first chunk says who holds each of the others; a chunk's first cache
//! line is for what the stack remembers of a segment that it sent. Every elastic thread has a [`Pool`]: a
//! last-in first-out list of free chunks, a few instructions to allocate and to free, no atomics.
//! Pools of one region trade batches of chunks through a lock-free depot, so that frames which travel to
//! another core do not drain the one they came from.
//!
//! An application of another process may read all of a region. A region holds no address: links between chunks
//! are distances.
//!
//! ```
//! use mem::{Pool, Region};
//! let region = Region::heap(128);
//! let mut pool = Pool::new(&region, 64);
//! let mut mbuf = pool.alloc().expect("a fresh pool has chunks");
//! mbuf.append(b"payload").expect("a chunk holds a frame");
//! assert_eq!(mbuf.bytes(), b"payload");
//! pool.free(mbuf);
//! ```
//!
//! # Who holds a chunk
//!
//! Exactly one of these at any time, each a type that must be in hand:
//! - a [`Pool`] or the depot: free;
//! - an [`Mbuf`]: one owner reads and writes it;
//! - the NIC, for reception: the pool lent its address out ([`Pool::lend`]) and takes it back by
//!   address ([`Pool::take_back`]);
//! - a [`TxFrame`] (the NIC's claim during transmission), alone or together with a [`Retained`]
//!   (the stack's claim until the peer acknowledges). The bytes are read-only while both exist. One claim of the stack's is
//!   that on all chunks of a segment that is longer than one ([`Retained::chain`]); the NIC has one for each.
#![cfg_attr(not(feature = "std"), no_std)]
extern crate alloc;

mod depot;
mod pool;
mod region;
mod sync;
mod unsafe_chunk;
mod unsafe_prefetch;
mod unsafe_queues;
mod unsafe_region;
mod unsafe_table_box;

pub use pool::{Pool, PoolStats, Want};
pub use region::{HugePages, RegionError};
pub use unsafe_chunk::{Mbuf, NoRoom, PartialChecksum, Retained, TxFrame, TxMeta};
pub use unsafe_prefetch::prefetch;
pub use unsafe_queues::{MbufQueue, RetainedQueue};
pub use unsafe_region::Region;
pub use unsafe_table_box::TableBox;

/// Bytes of one chunk, unless its region has larger ones ([`ChunkBytes`]), and of what a frame to send takes of it.
/// AF_XDP's aligned mode wants a power of two from 2,048 to the page size.
pub const CHUNK_SIZE: usize = 2048;

/// Bytes of a region's chunks: what the NIC may write a received frame into. A frame that is made here takes no more
/// than [`CHUNK_SIZE`] of either.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChunkBytes {
    /// 2 KiB: a frame of 1,514 bytes behind [`RX_HEADROOM`].
    #[default]
    Small = CHUNK_SIZE as isize,
    /// 4 KiB, a page: for larger frames, and for devices that use of the room behind [`RX_HEADROOM`] no more than a
    /// multiple of 1 KiB.
    Page = 2 * CHUNK_SIZE as isize,
}

impl ChunkBytes {
    /// The number of bytes.
    pub const fn get(self) -> usize {
        self as usize
    }

    /// Bytes of the largest frame that can be received.
    pub const fn max_frame(self) -> usize {
        self.get() - RX_HEADROOM
    }

    /// Those of so many bytes, where there are some.
    pub const fn of(bytes: usize) -> Option<Self> {
        match bytes {
            CHUNK_SIZE => Some(Self::Small),
            bytes if bytes == Self::Page.get() => Some(Self::Page),
            _ => None,
        }
    }
}
/// Bytes of one block, and the alignment of regions: a huge page.
pub(crate) const BLOCK_SIZE: usize = 2 << 20;
/// Chunks of the largest region, 4 TiB: with the blocks' first ones they are numbered by 32 bits.
pub(crate) const CHUNKS_MAX: usize = 1 << 31;
/// Bytes at the start of a chunk that hold its bookkeeping: one cache line. AF_XDP is told so
/// (`headroom` of the UMEM) and never writes there.
pub const CHUNK_HEADER: usize = 64;
/// Bytes directly before a frame to send that its driver may write ([`TxFrame::write_metadata`]): AF_XDP's
/// `xsk_tx_metadata`. A chunk's bookkeeping leaves as many of [`CHUNK_HEADER`] free, so that a frame without any headroom
/// has them, too.
pub const TX_METADATA: usize = 24;
/// Where a received frame starts in its chunk: bookkeeping, then the kernel's fixed
/// `XDP_PACKET_HEADROOM`.
pub const RX_HEADROOM: usize = CHUNK_HEADER + 256;
/// Where the payload of a frame to send starts: room for Ethernet, IPv4 and TCP with all options
/// before it, on a cache line's boundary.
pub const TX_HEADROOM: usize = CHUNK_HEADER + 128;
/// Payload bytes that fit a chunk behind that.
pub const TX_PAYLOAD: usize = CHUNK_SIZE - TX_HEADROOM;

/// No chunk is free. The caller drops what it wanted to store, and counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the packet memory is exhausted: raise `memory.chunks` or lower the load")]
pub struct Exhausted;

/// An address that the NIC returned but does not hold: outside the region, or of a chunk that was
/// not lent. The driver counts it and goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the device returned address {0:#x}, which it does not hold")]
pub struct BadAddress(
    /// The offset in the region, in bytes.
    pub u64,
);

#[cfg(test)]
mod tests;
#[cfg(all(test, loom))]
mod unsafe_loom_tests;
