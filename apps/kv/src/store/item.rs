//! How an item lies in its chunks.
//!
//! The first chunk starts with a 48-byte header; then comes the *body*, which is byte for byte what
//! a `get` answers: `VALUE <key> <flags> <length>\r\n<value>\r\n`. A hit is thus one copy and no
//! formatting. A body that does not fit goes on in continuation chunks, each with a 16-byte header.

use super::slab::{CHUNK_MAX_BYTES, Chunk, HEADER_BYTES, Slab};

// Offsets in the first chunk.
const KIND: usize = 0;
const KEY_LEN: usize = 1;
const SUFFIX_LEN: usize = 2;
const EPOCH: usize = 3;
const HASH_NEXT: usize = 4;
const LRU_PREV: usize = 8;
const LRU_NEXT: usize = 12;
const CAS: usize = 16;
const HASH: usize = 24;
const EXPIRES: usize = 28;
const ACCESSED: usize = 32;
const CLIENT_FLAGS: usize = 36;
const VALUE_LEN: usize = 40;
const NEXT_CHUNK: usize = 44;

// Offsets in a continuation chunk.
const CONT_OWNER: usize = 4;
const CONT_NEXT: usize = 8;
const CONT_HEADER_BYTES: usize = 16;

/// Kind byte: a free chunk has 0, see `Slab::free`.
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
pub(crate) struct Suffix {
    bytes: [u8; 24],
    len: usize,
}

impl Suffix {
    pub(crate) fn new(client_flags: u32, value_len: usize) -> Self {
        let mut line = crate::protocol::reply::Line::<24>::new();
        line.push(b" ");
        line.number(u64::from(client_flags));
        line.push(b" ");
        line.number(value_len as u64);
        line.push(CRLF);
        let (bytes, len) = line.into_parts();
        Self { bytes, len }
    }
}

impl NewItem<'_> {
    /// Length of the body with this suffix.
    fn body_len(&self, suffix: &Suffix) -> usize {
        PREFIX.len() + self.key.len() + suffix.len + self.value_len + CRLF.len()
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
        Self::of_body(new.body_len(&Suffix::new(new.client_flags, new.value_len)))
    }

    /// Bytes of the chunk number `nth`.
    pub(crate) fn chunk_bytes(&self, nth: usize) -> usize {
        if nth == self.full { self.last } else { CHUNK_MAX_BYTES }
    }
}

/// Writes header, key and the body's beginning into `head`, the first chunk. The value is left to be written
/// with [`Slab::write_value`], and the body's end with [`Slab::end_value`].
pub(crate) fn build(slab: &mut Slab, head: Chunk, new: &NewItem<'_>, now: u32, epoch: u8) {
    let suffix = Suffix::new(new.client_flags, new.value_len);
    let key_len = new.key.len();
    debug_assert!(key_len > 0 && key_len <= 250, "a key of {key_len} bytes got past the parser");
    let template = PREFIX.len() + key_len + suffix.len;
    let start = slab.bytes_mut(head, 0, HEADER_BYTES + template);
    let binary = if new.key_binary { KEY_BINARY } else { 0 };
    start[KIND] = IS_ITEM | UNLINKED | binary;
    start[KEY_LEN] = key_len as u8;
    start[SUFFIX_LEN] = suffix.len as u8;
    start[EPOCH] = epoch;
    let mut field = |at: usize, value: u32| start[at..at + 4].copy_from_slice(&value.to_le_bytes());
    field(HASH_NEXT, Chunk::NIL.0);
    field(LRU_PREV, Chunk::NIL.0);
    field(LRU_NEXT, Chunk::NIL.0);
    field(HASH, new.hash);
    field(EXPIRES, new.expires);
    field(ACCESSED, now);
    field(CLIENT_FLAGS, new.client_flags);
    field(VALUE_LEN, new.value_len as u32);
    start[CAS..CAS + 8].fill(0);
    let body = &mut start[HEADER_BYTES..];
    body[..PREFIX.len()].copy_from_slice(PREFIX);
    body[PREFIX.len()..PREFIX.len() + key_len].copy_from_slice(new.key);
    body[PREFIX.len() + key_len..].copy_from_slice(&suffix.bytes[..suffix.len]);
}

impl Slab {
    /// Marks `chunk` as a continuation of `owner` and leaves it as the last of the chain.
    pub(crate) fn init_continuation(&mut self, chunk: Chunk, owner: Chunk) {
        self.set_u8(chunk, KIND, IS_CONTINUATION);
        self.set_u32(chunk, CONT_OWNER, owner.0);
        self.set_u32(chunk, CONT_NEXT, Chunk::NIL.0);
    }

    /// Marks `head` as an item under construction without further chunks.
    pub(crate) fn init_head(&mut self, head: Chunk) {
        self.set_u8(head, KIND, IS_ITEM | UNLINKED);
        self.set_u32(head, LRU_PREV, Chunk::NIL.0);
        self.set_u32(head, NEXT_CHUNK, Chunk::NIL.0);
    }

    /// Puts `next` behind `chunk` in the chain that starts with `head`.
    pub(crate) fn set_next_chunk(&mut self, head: Chunk, chunk: Chunk, next: Chunk) {
        let at = if chunk == head { NEXT_CHUNK } else { CONT_NEXT };
        self.set_u32(chunk, at, next.0);
    }

    /// The chunk behind `chunk` in the chain that starts with `head`, or nil.
    pub(crate) fn next_chunk(&self, head: Chunk, chunk: Chunk) -> Chunk {
        Chunk(self.u32(chunk, if chunk == head { NEXT_CHUNK } else { CONT_NEXT }))
    }

    pub(crate) fn kind(&self, chunk: Chunk) -> Kind {
        match self.u8(chunk, KIND) & (IS_ITEM | IS_CONTINUATION) {
            IS_ITEM => Kind::Item,
            IS_CONTINUATION => Kind::Continuation(Chunk(self.u32(chunk, CONT_OWNER))),
            _ => Kind::Free,
        }
    }

    /// Whether `item` has this key; the hash is compared first, it is in the same cache line as the
    /// link to the next item.
    pub(crate) fn key_is(&self, item: Chunk, hash: u32, key: &[u8]) -> bool {
        let header = self.header(item);
        let stored = u32::from_le_bytes([
            header[HASH],
            header[HASH + 1],
            header[HASH + 2],
            header[HASH + 3],
        ]);
        stored == hash
            && usize::from(header[KEY_LEN]) == key.len()
            && self.bytes(item, HEADER_BYTES + PREFIX.len(), key.len()) == key
    }

    pub(crate) fn key(&self, item: Chunk) -> &[u8] {
        let len = usize::from(self.u8(item, KEY_LEN));
        self.bytes(item, HEADER_BYTES + PREFIX.len(), len)
    }

    /// Length of `VALUE <key> <flags> <length>\r\n`.
    fn template_len(&self, item: Chunk) -> usize {
        let header = self.header(item);
        PREFIX.len() + usize::from(header[KEY_LEN]) + usize::from(header[SUFFIX_LEN])
    }

    pub(crate) fn flag(&self, item: Chunk, flag: u8) -> bool {
        self.u8(item, KIND) & flag != 0
    }

    pub(crate) fn set_flag(&mut self, item: Chunk, flag: u8, on: bool) {
        let kind = self.u8(item, KIND);
        self.set_u8(item, KIND, if on { kind | flag } else { kind & !flag });
    }

    pub(crate) fn epoch(&self, item: Chunk) -> u8 {
        self.u8(item, EPOCH)
    }

    pub(crate) fn set_epoch(&mut self, item: Chunk, epoch: u8) {
        self.set_u8(item, EPOCH, epoch);
    }

    pub(crate) fn hash(&self, item: Chunk) -> u32 {
        self.u32(item, HASH)
    }

    pub(crate) fn hash_next(&self, item: Chunk) -> Chunk {
        Chunk(self.u32(item, HASH_NEXT))
    }

    pub(crate) fn set_hash_next(&mut self, item: Chunk, next: Chunk) {
        self.set_u32(item, HASH_NEXT, next.0);
    }

    pub(crate) fn lru_prev(&self, item: Chunk) -> Chunk {
        Chunk(self.u32(item, LRU_PREV))
    }

    pub(crate) fn set_lru_prev(&mut self, item: Chunk, prev: Chunk) {
        self.set_u32(item, LRU_PREV, prev.0);
    }

    pub(crate) fn lru_next(&self, item: Chunk) -> Chunk {
        Chunk(self.u32(item, LRU_NEXT))
    }

    pub(crate) fn set_lru_next(&mut self, item: Chunk, next: Chunk) {
        self.set_u32(item, LRU_NEXT, next.0);
    }

    /// The waiting slot of an unlinked item: it is in no list, so the field is free for this.
    pub(crate) fn pending_slot(&self, item: Chunk) -> u32 {
        self.u32(item, LRU_PREV)
    }

    pub(crate) fn set_pending_slot(&mut self, item: Chunk, slot: u32) {
        self.set_u32(item, LRU_PREV, slot);
    }

    pub(crate) fn cas(&self, item: Chunk) -> u64 {
        self.u64(item, CAS)
    }

    pub(crate) fn set_cas(&mut self, item: Chunk, cas: u64) {
        self.set_u64(item, CAS, cas);
    }

    pub(crate) fn expires(&self, item: Chunk) -> u32 {
        self.u32(item, EXPIRES)
    }

    pub(crate) fn set_expires(&mut self, item: Chunk, expires: u32) {
        self.set_u32(item, EXPIRES, expires);
    }

    pub(crate) fn accessed(&self, item: Chunk) -> u32 {
        self.u32(item, ACCESSED)
    }

    pub(crate) fn set_accessed(&mut self, item: Chunk, now: u32) {
        self.set_u32(item, ACCESSED, now);
    }

    pub(crate) fn client_flags(&self, item: Chunk) -> u32 {
        self.u32(item, CLIENT_FLAGS)
    }

    pub(crate) fn value_len(&self, item: Chunk) -> usize {
        self.u32(item, VALUE_LEN) as usize
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
        let (mut place, mut from) = (Place::new(item), at);
        while from >= place.room() {
            from -= place.room();
            place.advance(self, item);
        }
        self.bytes(place.chunk, place.header + from, most.min(place.room() - from))
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
        let mut walk = Walk { place: Place::new(item), from, left: len };
        while let Some((chunk, at, len)) = walk.next(self, item) {
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
        let mut walk = Walk { place: Place::new(item), from, left: len };
        while let Some((chunk, at, len)) = walk.next(self, item) {
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
        let mut left = self.value_len(from);
        debug_assert!(to_at + left <= self.value_len(to));
        let mut source = Place::new(from);
        let mut target = Place::new(to);
        let mut source_at = self.template_len(from);
        let mut target_at = self.template_len(to) + to_at;
        while left > 0 {
            while source_at >= source.room() {
                source_at -= source.room();
                source.advance(self, from);
            }
            while target_at >= target.room() {
                target_at -= target.room();
                target.advance(self, to);
            }
            let take = left.min(source.room() - source_at).min(target.room() - target_at);
            self.copy(
                source.chunk,
                source.header + source_at,
                target.chunk,
                target.header + target_at,
                take,
            );
            source_at += take;
            target_at += take;
            left -= take;
        }
    }
}

/// A chunk of a chain and where the body starts in it.
struct Place {
    chunk: Chunk,
    header: usize,
}

impl Place {
    fn new(head: Chunk) -> Self {
        Self { chunk: head, header: HEADER_BYTES }
    }

    /// Body bytes in this chunk, were it one of the largest class. Only the last chunk of a chain
    /// may be smaller, and no caller goes beyond the body's end.
    fn room(&self) -> usize {
        CHUNK_MAX_BYTES - self.header
    }

    fn advance(&mut self, slab: &Slab, head: Chunk) {
        #[cfg(test)]
        slab.chain_steps.set(slab.chain_steps.get() + 1);
        self.chunk = slab.next_chunk(head, self.chunk);
        self.header = CONT_HEADER_BYTES;
    }
}

/// The parts of a range of the body, one for each chunk that it lies in.
struct Walk {
    place: Place,
    /// Where the range goes on, from the beginning of the body in that chunk.
    from: usize,
    left: usize,
}

impl Walk {
    /// The next part: its chunk, its place in that, and its bytes.
    fn next(&mut self, slab: &Slab, head: Chunk) -> Option<(Chunk, usize, usize)> {
        if self.left == 0 {
            return None;
        }
        while self.from >= self.place.room() {
            self.from -= self.place.room();
            self.place.advance(slab, head);
        }
        let len = self.left.min(self.place.room() - self.from);
        let part = (self.place.chunk, self.place.header + self.from, len);
        self.from += len;
        self.left -= len;
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
