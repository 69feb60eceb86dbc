//! Mapping a socket's rings.
//!
//! This module holds `unsafe` because it makes rings of memory that the kernel shares with us. A mapping is owned by its
//! ring and goes away with it.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::MapFlags;
use rustix::net::xdp::{
    XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING,
};
use rustix::net::xdp::{XdpDesc, XdpDescOptions, XdpMmapOffsets, XdpRingOffset};

use crate::unsafe_mapping::Mapping;
use crate::unsafe_ring::{Entry, RawRing, RingOffsets};

/// One of a socket's four rings.
pub(super) type MappedRing<T> = RawRing<T, Mapping>;

/// Which ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Receive,
    Transmit,
    Fill,
    Completion,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Receive, Self::Transmit, Self::Fill, Self::Completion];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Transmit => "transmit",
            Self::Fill => "fill",
            Self::Completion => "completion",
        }
    }

    fn page_offset(self) -> u64 {
        match self {
            Self::Receive => XDP_PGOFF_RX_RING,
            Self::Transmit => XDP_PGOFF_TX_RING,
            Self::Fill => XDP_UMEM_PGOFF_FILL_RING,
            Self::Completion => XDP_UMEM_PGOFF_COMPLETION_RING,
        }
    }

    fn offsets(self, all: &XdpMmapOffsets) -> RingOffsets {
        let XdpRingOffset { producer, consumer, desc, flags } = match self {
            Self::Receive => all.rx,
            Self::Transmit => all.tx,
            Self::Fill => all.fr,
            Self::Completion => all.cr,
        };
        RingOffsets {
            producer: producer as usize,
            consumer: consumer as usize,
            flags: flags.map(|flags| flags as usize),
            entries: desc as usize,
        }
    }

    /// Bytes of an entry.
    fn entry_bytes(self) -> usize {
        match self {
            Self::Receive | Self::Transmit => size_of::<XdpDesc>(),
            Self::Fill | Self::Completion => size_of::<u64>(),
        }
    }
}

fn map_bytes(socket: BorrowedFd<'_>, kind: Kind, len: usize) -> rustix::io::Result<Mapping> {
    Mapping::new(socket, len, MapFlags::POPULATE, kind.page_offset())
}

/// Whether a ring can be mapped as one of `frames` entries: the kernel refuses more than it has.
pub(super) fn can_map(
    socket: BorrowedFd<'_>,
    kind: Kind,
    offsets: &XdpMmapOffsets,
    frames: u32,
) -> rustix::io::Result<()> {
    let len = kind.offsets(offsets).len_bytes(frames, kind.entry_bytes());
    map_bytes(socket, kind, len).map(drop)
}

/// Maps a ring of descriptors (`Receive`, `Transmit`) or of addresses (`Fill`, `Completion`).
pub(super) fn map<T: Entry>(
    socket: BorrowedFd<'_>,
    kind: Kind,
    offsets: &XdpMmapOffsets,
    frames: u32,
) -> rustix::io::Result<MappedRing<T>> {
    if size_of::<T>() != kind.entry_bytes() {
        return Err(rustix::io::Errno::INVAL);
    }
    let offsets = kind.offsets(offsets);
    let len = offsets.len_bytes(frames, size_of::<T>());
    let mapping = map_bytes(socket, kind, len)?;
    // SAFETY: the mapping starts on a page, is `len` bytes long and lives with the ring, and only
    // the kernel and this ring use it.
    unsafe { RawRing::new(mapping.base(), len, offsets, frames, mapping) }
        .ok_or(rustix::io::Errno::INVAL)
}

/// A descriptor as the kernel lays it out.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct DescriptorWords {
    addr: AtomicU64,
    len: AtomicU32,
    options: AtomicU32,
}

const _: () = assert!(size_of::<DescriptorWords>() == size_of::<XdpDesc>());

// SAFETY: atomics only, for which any bits do.
unsafe impl Entry for XdpDesc {
    type Words = DescriptorWords;
    #[inline(always)]
    fn load(words: &DescriptorWords) -> Self {
        Self {
            addr: words.addr.load(Ordering::Relaxed),
            len: words.len.load(Ordering::Relaxed),
            options: XdpDescOptions::from_bits_retain(words.options.load(Ordering::Relaxed)),
        }
    }
    #[inline(always)]
    fn store(self, words: &DescriptorWords) {
        words.addr.store(self.addr, Ordering::Relaxed);
        words.len.store(self.len, Ordering::Relaxed);
        words.options.store(self.options.bits(), Ordering::Relaxed);
    }
}
