//! Chunks of memory in size classes, cut from pages of one preallocated arena.
//!
//! `try_alloc(class)` hands out a [`Chunk`] or says that neither the class nor the pool has one
//! left; what to evict then is the shard's business. A page belongs to one class at a time and
//! returns to the pool as soon as its last chunk is freed, so memory follows the sizes in use.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::unsafe_memory::Carved;

/// The unit in which memory moves between size classes.
pub(crate) const PAGE_BYTES: usize = 64 << 10;
/// The largest chunk; longer items are chains of chunks.
pub(crate) const CHUNK_MAX_BYTES: usize = 16 << 10;
/// The smallest chunk: the item header, a short key and a short value.
const CHUNK_MIN_BYTES: usize = 80;
/// Chunks start at multiples of this, so that 32 bits name enough of them.
const UNIT_BYTES: usize = 16;

const NO_PAGE: u32 = u32::MAX;
const NO_CLASS: u8 = u8::MAX;

/// A chunk's place in the arena, in units; the name of an item is its first chunk's.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(transparent)]
pub(crate) struct Chunk(pub(crate) U32);

impl Chunk {
    pub(crate) const NIL: Chunk = Chunk(U32::MAX_VALUE);

    /// The chunk at `offset` in the arena, a multiple of [`UNIT_BYTES`].
    fn at(offset: usize) -> Self {
        Self(U32::new((offset / UNIT_BYTES) as u32))
    }

    pub(crate) fn is_nil(self) -> bool {
        self == Self::NIL
    }

    fn offset(self) -> usize {
        debug_assert!(!self.is_nil(), "the nil chunk has no place");
        self.0.get() as usize * UNIT_BYTES
    }
}

/// What the first chunk of an item begins with (see `item`). A free chunk and a later one of an item have some of
/// their links in the same places.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    /// What the chunk is, and an item's flags. Zero in a free chunk alone.
    pub(crate) kind: u8,
    pub(crate) key_len: u8,
    pub(crate) suffix_len: u8,
    pub(crate) epoch: u8,
    /// The next item of the bucket. Of a free chunk: the next free one. Of a later one: its item.
    pub(crate) next: Chunk,
    /// Of a later chunk: the one behind it.
    pub(crate) lru_prev: Chunk,
    pub(crate) lru_next: Chunk,
    pub(crate) cas: U64,
    pub(crate) hash: U32,
    pub(crate) expires: U32,
    pub(crate) accessed: U32,
    pub(crate) client_flags: U32,
    pub(crate) value_len: U32,
    /// The item's second chunk.
    pub(crate) next_chunk: Chunk,
}

pub(crate) const HEADER_BYTES: usize = size_of::<Header>();
// The body begins at a multiple of the unit.
const _: () = assert!(HEADER_BYTES == 48);

/// What is known of one page; 20 bytes, counted against the memory limit.
#[derive(Debug, Clone)]
struct Page {
    /// Neighbours in the class's list of pages that have a free chunk.
    prev: u32,
    next: u32,
    free: Chunk,
    /// Chunks in use.
    used: u16,
    /// Chunks ever handed out since the class took the page; those beyond hold another class's
    /// leftovers and mean nothing.
    carved: u16,
    class: u8,
}

/// One size class.
#[derive(Debug, Clone)]
pub(crate) struct Class {
    pub(crate) chunk_bytes: u32,
    pub(crate) per_page: u16,
    pub(crate) pages: u32,
    pub(crate) used_chunks: u64,
    /// First page with a free chunk.
    partial: u32,
}

/// The arena, its pages and its classes.
#[derive(Debug)]
pub(crate) struct Slab {
    arena: Carved<u8>,
    pages: Box<[Page]>,
    classes: Vec<Class>,
    free_pages: Vec<u32>,
    /// The class of a size, by `(bytes - 1) / UNIT_BYTES`: no search on a set.
    class_of_units: Box<[u8]>,
    /// Steps from one chunk of an item to the next.
    #[cfg(test)]
    pub(super) chain_steps: std::cell::Cell<u64>,
}

impl Slab {
    /// Bytes that one page costs in all.
    pub(crate) const BYTES_PER_PAGE: usize = PAGE_BYTES + size_of::<Page>() + size_of::<u32>();

    /// A slab of as many pages as `arena` holds. It comes zeroed from the system, so that pages cost
    /// physical memory only once they are used.
    pub(crate) fn new(arena: Carved<u8>) -> Self {
        let pages = arena.len() / PAGE_BYTES;
        let mut classes = Vec::new();
        let mut class_of_units = vec![0u8; CHUNK_MAX_BYTES / UNIT_BYTES].into_boxed_slice();
        let mut bytes = CHUNK_MIN_BYTES;
        let mut covered = 0;
        loop {
            // A size that leaves less than a quarter chunk free at the page's end is not the last
            // step's neighbour: round up to what divides the page.
            bytes = (PAGE_BYTES / (PAGE_BYTES / bytes)) / UNIT_BYTES * UNIT_BYTES;
            let class = classes.len() as u8;
            for units in covered..bytes / UNIT_BYTES {
                class_of_units[units] = class;
            }
            covered = bytes / UNIT_BYTES;
            classes.push(Class {
                chunk_bytes: bytes as u32,
                per_page: (PAGE_BYTES / bytes) as u16,
                pages: 0,
                used_chunks: 0,
                partial: NO_PAGE,
            });
            if bytes == CHUNK_MAX_BYTES {
                break;
            }
            let next = (bytes + bytes / 4).next_multiple_of(UNIT_BYTES);
            bytes = next.min(CHUNK_MAX_BYTES);
        }
        let empty = Page {
            prev: NO_PAGE,
            next: NO_PAGE,
            free: Chunk::NIL,
            used: 0,
            carved: 0,
            class: NO_CLASS,
        };
        Self {
            arena,
            pages: vec![empty; pages].into_boxed_slice(),
            classes,
            free_pages: (0..pages as u32).rev().collect(),
            class_of_units,
            #[cfg(test)]
            chain_steps: std::cell::Cell::new(0),
        }
    }

    #[cfg(test)]
    pub(crate) fn chain_steps(&self) -> u64 {
        self.chain_steps.get()
    }

    /// The class whose chunks hold `bytes`, which must not exceed [`CHUNK_MAX_BYTES`].
    pub(crate) fn class_for(&self, bytes: usize) -> usize {
        debug_assert!(bytes > 0 && bytes <= CHUNK_MAX_BYTES, "no class holds {bytes} bytes");
        usize::from(self.class_of_units[(bytes - 1) / UNIT_BYTES])
    }

    pub(crate) fn classes(&self) -> &[Class] {
        &self.classes
    }

    pub(crate) fn page_count(&self) -> usize {
        self.pages.len()
    }

    pub(crate) fn free_page_count(&self) -> usize {
        self.free_pages.len()
    }

    /// A chunk of `class`, or none if the class is full and no page is free. The contents are
    /// whatever was there before.
    pub(crate) fn try_alloc(&mut self, class: usize) -> Option<Chunk> {
        let mut index = self.classes[class].partial;
        if index == NO_PAGE {
            index = self.free_pages.pop()?;
            let page = &mut self.pages[index as usize];
            debug_assert!(page.class == NO_CLASS && page.used == 0, "a pooled page is in use");
            page.class = class as u8;
            page.carved = 0;
            page.free = Chunk::NIL;
            self.classes[class].pages += 1;
            self.link_partial(index);
        }
        let chunk_bytes = self.classes[class].chunk_bytes as usize;
        let page = &self.pages[index as usize];
        let (chunk, next) = if page.free.is_nil() {
            let offset = index as usize * PAGE_BYTES + usize::from(page.carved) * chunk_bytes;
            (Chunk::at(offset), Chunk::NIL)
        } else {
            (page.free, self.header(page.free).next)
        };
        let page = &mut self.pages[index as usize];
        if page.free.is_nil() {
            page.carved += 1;
        }
        page.free = next;
        page.used += 1;
        let full = page.used == self.classes[class].per_page;
        self.classes[class].used_chunks += 1;
        if full {
            self.unlink_partial(index);
        }
        Some(chunk)
    }

    /// Gives a chunk back. Its kind becomes 0, which no live chunk has.
    pub(crate) fn free(&mut self, chunk: Chunk) {
        let index = self.page_of(chunk);
        let class = self.class_of(chunk);
        let was_full = self.pages[index].used == self.classes[class].per_page;
        let next = self.pages[index].free;
        let header = self.header_mut(chunk);
        (header.kind, header.next) = (0, next);
        let page = &mut self.pages[index];
        debug_assert!(page.used > 0, "a chunk was freed twice");
        page.free = chunk;
        page.used -= 1;
        let empty = page.used == 0;
        self.classes[class].used_chunks -= 1;
        if was_full {
            self.link_partial(index as u32);
        }
        if empty {
            self.unlink_partial(index as u32);
            self.pages[index].class = NO_CLASS;
            self.classes[class].pages -= 1;
            self.free_pages.push(index as u32);
        }
    }

    fn link_partial(&mut self, index: u32) {
        let class = usize::from(self.pages[index as usize].class);
        let next = std::mem::replace(&mut self.classes[class].partial, index);
        self.pages[index as usize].prev = NO_PAGE;
        self.pages[index as usize].next = next;
        if next != NO_PAGE {
            self.pages[next as usize].prev = index;
        }
    }

    fn unlink_partial(&mut self, index: u32) {
        let Page { prev, next, class, .. } = self.pages[index as usize];
        match prev {
            NO_PAGE => self.classes[usize::from(class)].partial = next,
            _ => self.pages[prev as usize].next = next,
        }
        if next != NO_PAGE {
            self.pages[next as usize].prev = prev;
        }
    }

    pub(crate) fn page_of(&self, chunk: Chunk) -> usize {
        chunk.offset() / PAGE_BYTES
    }

    /// The size class of a chunk in use.
    pub(crate) fn class_of(&self, chunk: Chunk) -> usize {
        let class = self.pages[self.page_of(chunk)].class;
        debug_assert_ne!(class, NO_CLASS, "the chunk's page is in the pool");
        usize::from(class)
    }

    /// The class that `page` belongs to, if any.
    pub(crate) fn page_class(&self, page: usize) -> Option<usize> {
        let class = self.pages[page].class;
        (class != NO_CLASS).then_some(usize::from(class))
    }

    /// The `nth` chunk ever handed out from `page`, in use or freed since.
    pub(crate) fn chunk_in_page(&self, page: usize, nth: usize) -> Option<Chunk> {
        let class = self.page_class(page)?;
        if nth >= usize::from(self.pages[page].carved) {
            return None;
        }
        let offset = page * PAGE_BYTES + nth * self.classes[class].chunk_bytes as usize;
        Some(Chunk::at(offset))
    }

    /// The chunk's header: one bounds check for all of its fields.
    #[inline]
    pub(crate) fn header(&self, chunk: Chunk) -> &Header {
        Header::ref_from_bytes(self.bytes(chunk, 0, HEADER_BYTES)).expect("a header's size")
    }

    #[inline]
    pub(crate) fn header_mut(&mut self, chunk: Chunk) -> &mut Header {
        Header::mut_from_bytes(self.bytes_mut(chunk, 0, HEADER_BYTES)).expect("a header's size")
    }

    pub(crate) fn bytes(&self, chunk: Chunk, at: usize, len: usize) -> &[u8] {
        let start = chunk.offset() + at;
        &self.arena[start..start + len]
    }

    pub(crate) fn bytes_mut(&mut self, chunk: Chunk, at: usize, len: usize) -> &mut [u8] {
        let start = chunk.offset() + at;
        &mut self.arena[start..start + len]
    }

    /// Copies `len` bytes from one chunk into another.
    pub(crate) fn copy(
        &mut self,
        from: Chunk,
        from_at: usize,
        to: Chunk,
        to_at: usize,
        len: usize,
    ) {
        let start = from.offset() + from_at;
        self.arena.copy_within(start..start + len, to.offset() + to_at);
    }
}

#[cfg(test)]
mod tests {
    use super::super::unsafe_memory::Memory;
    use super::*;

    fn one_page() -> Slab {
        let mut memory = Memory::new(PAGE_BYTES, 1).expect("memory");
        Slab::new(memory.carve(PAGE_BYTES).expect("room"))
    }

    #[test]
    fn classes_grow_to_the_largest_chunk_and_cover_every_size() {
        let slab = one_page();
        let sizes: Vec<u32> = slab.classes().iter().map(|class| class.chunk_bytes).collect();
        assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]), "{sizes:?}");
        assert_eq!(*sizes.last().unwrap() as usize, CHUNK_MAX_BYTES);
        assert!(sizes.len() < 64, "{sizes:?}");
        for bytes in 1..=CHUNK_MAX_BYTES {
            let class = slab.class_for(bytes);
            assert!(sizes[class] as usize >= bytes);
            assert!(class == 0 || (sizes[class - 1] as usize) < bytes, "{bytes} in {class}");
        }
    }

    #[test]
    fn a_page_returns_to_the_pool_and_serves_another_class() {
        let mut slab = one_page();
        let small = slab.class_for(if cfg!(miri) { 2_000 } else { 80 });
        let mut chunks = Vec::new();
        while let Some(chunk) = slab.try_alloc(small) {
            assert!(!chunks.contains(&chunk));
            chunks.push(chunk);
        }
        assert_eq!(chunks.len(), usize::from(slab.classes()[small].per_page));
        let large = slab.class_for(CHUNK_MAX_BYTES);
        assert_eq!(slab.try_alloc(large), None);
        for chunk in chunks {
            slab.free(chunk);
        }
        assert_eq!(slab.free_page_count(), 1);
        assert!(slab.try_alloc(large).is_some());
    }
}
