//! How an item lies in its chunks.
//!
//! The first chunk starts with a 48-byte header; then comes the *body*, which is byte for byte what
//! a `get` answers: `VALUE <key> <flags> <length>\r\n<value>\r\n`. A hit is thus one copy and no
//! formatting. A body that does not fit goes on in continuation chunks, each with a 16-byte header.

use zerocopy::little_endian::U64;

use super::slab::{CHUNK_MAX_BYTES, Chunk, HEADER_BYTES, Header, Slab};
use crate::protocol::reply::Line;

const CONT_HEADER_BYTES: usize = 16;

/// In place of the waiting slot of an item under construction.
pub(crate) const NO_SLOT: u32 = u32::MAX;

const IS_ITEM: u8 = 1;
const IS_CONTINUATION: u8 = 2;
/// Fetched at least once.
pub(crate) const FETCHED: u8 = 1 << 2;
/// Fetched since it last came to the end of the LRU list.
pub(crate) const ACTIVE: u8 = 1 << 3;
/// Marked stale by `md ... I` or `ms ... I`.
pub(crate) const STALE: u8 = 1 << 4;
/// Somebody has already been told that he may recache it.
pub(crate) const WON: u8 = 1 << 5;
/// Its key came base64 encoded.
pub(crate) const KEY_BINARY: u8 = 1 << 6;
/// Not (yet) in the index: being built, or waiting for the rest of its value.
pub(crate) const UNLINKED: u8 = 1 << 7;

const PREFIX: &[u8] = b"VALUE ";
const CRLF: &[u8] = b"\r\n";

/// Bytes that memcached adds to key, flags and value: header, CAS, key terminator, CRLF.
const MEMCACHED_OVERHEAD_BYTES: usize = 48 + 8 + 1 + 2;

/// The size memcached 1.6 would count for an item: what the item size limit is held against.
pub(crate) fn memcached_bytes(key_len: usize, client_flags: u32, value_len: usize) -> usize {
    let flags = if client_flags == 0 { 0 } else { 4 };
    MEMCACHED_OVERHEAD_BYTES + key_len + flags + value_len
}

/// What a chunk in use is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Free,
    Item,
    /// A later chunk of the item named.
    Continuation(Chunk),
}

/// What an item is created with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewItem<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) hash: u32,
    pub(crate) client_flags: u32,
    pub(crate) expires: u32,
    pub(crate) key_binary: bool,
    pub(crate) value_len: usize,
}

/// `" <flags> <length>\r\n"`, at most 24 bytes.
fn suffix(client_flags: u32, value_len: usize) -> Line<24> {
    let mut line = Line::new();
    line.push(b" ");
    line.number(u64::from(client_flags));
    line.push(b" ");
    line.number(value_len as u64);
    line.push(CRLF);
    line
}

impl NewItem<'_> {
    fn body_len(&self) -> usize {
        let suffix = suffix(self.client_flags, self.value_len);
        PREFIX.len() + self.key.len() + suffix.as_bytes().len() + self.value_len + CRLF.len()
    }
}

/// The chunks an item of `body_len` needs: so many of the largest class, then one of `last` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Chunks of the largest class before the last one.
    pub(crate) full: usize,
    /// Bytes used of the last chunk.
    pub(crate) last: usize,
}

impl Layout {
    fn of_body(body_len: usize) -> Self {
        if HEADER_BYTES + body_len <= CHUNK_MAX_BYTES {
            return Self { full: 0, last: HEADER_BYTES + body_len };
        }
        let beyond = body_len - (CHUNK_MAX_BYTES - HEADER_BYTES);
        let room = CHUNK_MAX_BYTES - CONT_HEADER_BYTES;
        let full = (beyond - 1) / room;
        Self { full: 1 + full, last: CONT_HEADER_BYTES + beyond - full * room }
    }

    pub(crate) fn of(new: &NewItem<'_>) -> Self {
        Self::of_body(new.body_len())
    }

    /// Bytes of the chunk number `nth`.
    pub(crate) fn chunk_bytes(&self, nth: usize) -> usize {
        if nth == self.full { self.last } else { CHUNK_MAX_BYTES }
    }
}

/// Writes header, key and the body's beginning into `head`, the only chunk so far of an item under construction. The
/// value is left to be written with [`Slab::write_value`], and the body's end with [`Slab::end_value`].
pub(crate) fn build(slab: &mut Slab, head: Chunk, new: &NewItem<'_>, now: u32, epoch: u8) {
    let suffix = suffix(new.client_flags, new.value_len);
    let suffix = suffix.as_bytes();
    let key_len = new.key.len();
    debug_assert!(key_len > 0 && key_len <= 250, "a key of {key_len} bytes got past the parser");
    let binary = if new.key_binary { KEY_BINARY } else { 0 };
    *slab.header_mut(head) = Header {
        kind: IS_ITEM | UNLINKED | binary,
        key_len: key_len as u8,
        suffix_len: suffix.len() as u8,
        epoch,
        next: Chunk::NIL,
        lru_prev: Chunk(NO_SLOT.into()),
        lru_next: Chunk::NIL,
        cas: U64::ZERO,
        hash: new.hash.into(),
        expires: new.expires.into(),
        accessed: now.into(),
        client_flags: new.client_flags.into(),
        value_len: (new.value_len as u32).into(),
        next_chunk: Chunk::NIL,
    };
    let body = slab.bytes_mut(head, HEADER_BYTES, PREFIX.len() + key_len + suffix.len());
    body[..PREFIX.len()].copy_from_slice(PREFIX);
    body[PREFIX.len()..PREFIX.len() + key_len].copy_from_slice(new.key);
    body[PREFIX.len() + key_len..].copy_from_slice(suffix);
}

impl Slab {
    /// Marks `chunk` as a continuation of `owner` and leaves it as the last of the chain.
    pub(crate) fn init_continuation(&mut self, chunk: Chunk, owner: Chunk) {
        let header = self.header_mut(chunk);
        (header.kind, header.next, header.lru_prev) = (IS_CONTINUATION, owner, Chunk::NIL);
    }

    /// Puts `next` behind `chunk` in the chain that starts with `head`.
    pub(crate) fn set_next_chunk(&mut self, head: Chunk, chunk: Chunk, next: Chunk) {
        let header = self.header_mut(chunk);
        *(if chunk == head { &mut header.next_chunk } else { &mut header.lru_prev }) = next;
    }

    /// The chunk behind `chunk` in the chain that starts with `head`, or nil.
    pub(crate) fn next_chunk(&self, head: Chunk, chunk: Chunk) -> Chunk {
        let header = self.header(chunk);
        if chunk == head { header.next_chunk } else { header.lru_prev }
    }

    pub(crate) fn kind(&self, chunk: Chunk) -> Kind {
        let header = self.header(chunk);
        match header.kind & (IS_ITEM | IS_CONTINUATION) {
            IS_ITEM => Kind::Item,
            IS_CONTINUATION => Kind::Continuation(header.next),
            _ => Kind::Free,
        }
    }

    /// Whether `item` has this key; the hash is compared first, it is in the same cache line as the
    /// link to the next item.
    pub(crate) fn key_is(&self, item: Chunk, hash: u32, key: &[u8]) -> bool {
        let header = self.header(item);
        header.hash == hash
            && usize::from(header.key_len) == key.len()
            && self.bytes(item, HEADER_BYTES + PREFIX.len(), key.len()) == key
    }

    pub(crate) fn key(&self, item: Chunk) -> &[u8] {
        let len = usize::from(self.header(item).key_len);
        self.bytes(item, HEADER_BYTES + PREFIX.len(), len)
    }

    /// Length of `VALUE <key> <flags> <length>\r\n`.
    fn template_len(&self, item: Chunk) -> usize {
        let header = self.header(item);
        PREFIX.len() + usize::from(header.key_len) + usize::from(header.suffix_len)
    }

    pub(crate) fn flag(&self, item: Chunk, flag: u8) -> bool {
        self.header(item).kind & flag != 0
    }

    pub(crate) fn set_flag(&mut self, item: Chunk, flag: u8, on: bool) {
        let kind = &mut self.header_mut(item).kind;
        *kind = if on { *kind | flag } else { *kind & !flag };
    }

    /// The waiting slot of an unlinked item: it is in no list, so the field is free for this.
    pub(crate) fn pending_slot(&self, item: Chunk) -> u32 {
        self.header(item).lru_prev.0.get()
    }

    pub(crate) fn set_pending_slot(&mut self, item: Chunk, slot: u32) {
        self.header_mut(item).lru_prev = Chunk(slot.into());
    }

    pub(crate) fn value_len(&self, item: Chunk) -> usize {
        self.header(item).value_len.get() as usize
    }

    pub(crate) fn layout(&self, item: Chunk) -> Layout {
        Layout::of_body(self.body_len(item))
    }

    /// Chunks that the value's first `len` bytes and a line's end behind them take.
    pub(crate) fn chunks_for(&self, item: Chunk, len: usize) -> usize {
        Layout::of_body(self.template_len(item) + len + CRLF.len()).full + 1
    }

    /// Writes the CRLF behind the value, which completes the body.
    pub(crate) fn end_value(&mut self, item: Chunk) {
        self.write_value(item, self.value_len(item), CRLF);
    }

    /// The bytes of the item's chunks that are in use, headers included.
    pub(crate) fn item_bytes(&self, item: Chunk) -> usize {
        let layout = self.layout(item);
        layout.full * CHUNK_MAX_BYTES + layout.last
    }

    /// Length of the whole `VALUE ...\r\n<value>\r\n`.
    pub(crate) fn body_len(&self, item: Chunk) -> usize {
        self.template_len(item) + self.value_len(item) + CRLF.len()
    }

    /// The whole body where it lies in one chunk.
    pub(crate) fn whole_body(&self, item: Chunk) -> Option<&[u8]> {
        let len = self.body_len(item);
        (len <= CHUNK_MAX_BYTES - HEADER_BYTES).then(|| self.bytes(item, HEADER_BYTES, len))
    }

    /// The body from offset `at` on, as much as lies in one chunk, `most` bytes at most.
    pub(crate) fn body_part(&self, item: Chunk, at: usize, most: usize) -> &[u8] {
        let mut walk = Walk::new(item, at, most);
        let (chunk, at, len) = walk.part(self);
        self.bytes(chunk, at, len)
    }

    /// The part of the body that is `<value>\r\n`.
    pub(crate) fn value_range(&self, item: Chunk) -> (usize, usize) {
        (self.template_len(item), self.body_len(item))
    }

    /// `<value>\r\n`, its first `most` bytes, piece by piece.
    pub(crate) fn for_value_line(&self, item: Chunk, most: usize, piece: impl FnMut(&[u8])) {
        let len = (self.value_len(item) + CRLF.len()).min(most);
        self.for_range(item, self.template_len(item), len, piece);
    }

    /// `VALUE <key> <flags> <length>` without the line's end.
    pub(crate) fn value_heading(&self, item: Chunk) -> &[u8] {
        self.bytes(item, HEADER_BYTES, self.template_len(item) - CRLF.len())
    }

    fn for_range(&self, item: Chunk, from: usize, len: usize, mut piece: impl FnMut(&[u8])) {
        let mut walk = Walk::new(item, from, len);
        while let Some((chunk, at, len)) = walk.next(self) {
            piece(self.bytes(chunk, at, len));
        }
    }

    fn for_range_mut(
        &mut self,
        item: Chunk,
        from: usize,
        len: usize,
        mut piece: impl FnMut(&mut [u8]),
    ) {
        let mut walk = Walk::new(item, from, len);
        while let Some((chunk, at, len)) = walk.next(self) {
            piece(self.bytes_mut(chunk, at, len));
        }
    }

    /// Writes `bytes` at offset `at` of the value (the CRLF that follows the value included).
    pub(crate) fn write_value(&mut self, item: Chunk, at: usize, bytes: &[u8]) {
        debug_assert!(at + bytes.len() <= self.value_len(item) + CRLF.len());
        let mut left = bytes;
        self.for_range_mut(item, self.template_len(item) + at, bytes.len(), |piece| {
            let (now, later) = left.split_at(piece.len());
            piece.copy_from_slice(now);
            left = later;
        });
    }

    /// Overwrites the value from offset `at` to its end with `byte`, in one walk along the chunks.
    pub(crate) fn fill_value(&mut self, item: Chunk, at: usize, byte: u8) {
        let len = self.value_len(item) - at;
        self.for_range_mut(item, self.template_len(item) + at, len, |piece| piece.fill(byte));
    }

    /// Copies the whole value of `from` to offset `to_at` of the value of `to`.
    pub(crate) fn copy_value(&mut self, from: Chunk, to: Chunk, to_at: usize) {
        let len = self.value_len(from);
        debug_assert!(to_at + len <= self.value_len(to));
        let mut source = Walk::new(from, self.template_len(from), len);
        let mut target = Walk::new(to, self.template_len(to) + to_at, len);
        while source.left > 0 {
            let (from, from_at, readable) = source.part(self);
            let (to, to_at, writable) = target.part(self);
            let len = readable.min(writable);
            self.copy(from, from_at, to, to_at, len);
            source.skip(len);
            target.skip(len);
        }
    }
}

/// The parts of a range of an item's body, one for each chunk that it lies in.
struct Walk {
    head: Chunk,
    chunk: Chunk,
    /// Where the body goes on in that chunk.
    header: usize,
    /// Where the range goes on, from there.
    from: usize,
    left: usize,
}

impl Walk {
    fn new(head: Chunk, from: usize, left: usize) -> Self {
        Self { head, chunk: head, header: HEADER_BYTES, from, left }
    }

    /// The next part: its chunk, its place in that, and its bytes. Only the last chunk of a chain may be smaller than
    /// one of the largest class, and no range goes beyond the body's end.
    fn part(&mut self, slab: &Slab) -> (Chunk, usize, usize) {
        while self.from >= CHUNK_MAX_BYTES - self.header {
            #[cfg(test)]
            slab.chain_steps.set(slab.chain_steps.get() + 1);
            self.from -= CHUNK_MAX_BYTES - self.header;
            self.chunk = slab.next_chunk(self.head, self.chunk);
            self.header = CONT_HEADER_BYTES;
        }
        let at = self.header + self.from;
        (self.chunk, at, self.left.min(CHUNK_MAX_BYTES - at))
    }

    fn skip(&mut self, bytes: usize) {
        self.from += bytes;
        self.left -= bytes;
    }

    /// The next part, after which the walk goes on behind it.
    fn next(&mut self, slab: &Slab) -> Option<(Chunk, usize, usize)> {
        if self.left == 0 {
            return None;
        }
        let part = self.part(slab);
        self.skip(part.2);
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_use_full_chunks_and_never_an_empty_last_one() {
        let room = CHUNK_MAX_BYTES - CONT_HEADER_BYTES;
        let head_room = CHUNK_MAX_BYTES - HEADER_BYTES;
        let cases = [
            (1, 0, HEADER_BYTES + 1),
            (head_room, 0, CHUNK_MAX_BYTES),
            (head_room + 1, 1, CONT_HEADER_BYTES + 1),
            (head_room + room, 1, CHUNK_MAX_BYTES),
            (head_room + room + 1, 2, CONT_HEADER_BYTES + 1),
        ];
        for (body, full, last) in cases {
            assert_eq!(Layout::of_body(body), Layout { full, last }, "body of {body}");
        }
    }
}
