//! What commands do to items, one function each, under the shard's lock.

use super::item::{ACTIVE, FETCHED, NO_SLOT, NewItem, STALE, WON, memcached_bytes};
use super::pending::Ticket;
use super::shard::{KeyHash, Shard};
use super::slab::Chunk;

/// The largest decimal 64-bit number, in digits.
pub(crate) const DIGITS_MAX: usize = 20;

/// Bytes of a value in which its number must end: blanks, a sign, leading zeros and [`DIGITS_MAX`] digits.
const NUMBER_READ_BYTES: usize = 64;

/// The condition under which a value is stored, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    #[default]
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
}

/// A storage command without its value.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StoreRequest {
    pub(crate) mode: Mode,
    pub(crate) client_flags: u32,
    /// Unix seconds, or never.
    pub(crate) expires: u32,
    /// The CAS value to compare with; 0 compares nothing (but never lets a `cas` through).
    pub(crate) cas: u64,
    /// A CAS value to give to the item, in place of the next one.
    pub(crate) new_cas: Option<u64>,
    /// `ms ... I`: store even if `cas` is older than the item's, but mark the item stale.
    pub(crate) accept_stale: bool,
    pub(crate) key_binary: bool,
}

/// How a storage command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreOutcome {
    /// With this CAS value.
    Stored(u64),
    NotStored,
    Exists,
    NotFound,
    /// Nothing could be evicted to make room.
    OutOfMemory,
}

/// How an increment or decrement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// The item (it may be a new one) and its new number.
    Done(Chunk, u64),
    NotFound,
    Exists,
    NonNumeric,
    OutOfMemory,
}

/// One increment or decrement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delta {
    pub(crate) incr: bool,
    pub(crate) by: u64,
    pub(crate) cas: Option<u64>,
    pub(crate) new_cas: Option<u64>,
}

/// What is to be done, the item of this key being as it is.
enum Decision {
    /// Store, in place of whatever is there; with these flags carried over.
    Link {
        expires: Option<u32>,
        flags: u8,
    },
    /// Put the value before or behind that of the item.
    Combine(Chunk),
    Refuse(StoreOutcome),
}

impl Shard {
    /// Whether an item of this size may be stored at all.
    pub(crate) fn size_ok(&self, key_len: usize, client_flags: u32, value_len: usize) -> bool {
        memcached_bytes(key_len, client_flags, value_len) <= self.item_size_max
    }

    /// Notes that an item was fetched. Its place in the LRU list changes only when its turn comes.
    pub(crate) fn bump(&mut self, item: Chunk, now: u32) {
        self.slab.set_flag(item, FETCHED | ACTIVE, true);
        self.slab.header_mut(item).accessed.set(now);
    }

    fn decide(&mut self, old: Option<Chunk>, request: &StoreRequest) -> Decision {
        let plain = Decision::Link { expires: None, flags: 0 };
        let Some(old) = old else {
            return match request.mode {
                Mode::Set | Mode::Add => plain,
                Mode::Cas => {
                    self.counters.cas_misses += 1;
                    Decision::Refuse(StoreOutcome::NotFound)
                }
                Mode::Replace | Mode::Append | Mode::Prepend => {
                    Decision::Refuse(StoreOutcome::NotStored)
                }
            };
        };
        let old_cas = self.slab.header(old).cas.get();
        match request.mode {
            Mode::Set | Mode::Replace => plain,
            Mode::Add => {
                // "add" of an item that is there promotes it (protocol.txt, mode E).
                self.slab.set_flag(old, ACTIVE, true);
                Decision::Refuse(StoreOutcome::NotStored)
            }
            Mode::Append | Mode::Prepend if request.cas != 0 && request.cas != old_cas => {
                Decision::Refuse(StoreOutcome::Exists)
            }
            Mode::Append | Mode::Prepend => Decision::Combine(old),
            Mode::Cas if request.cas != 0 && request.cas == old_cas => {
                self.class_counters_of(old).cas_hits += 1;
                plain
            }
            Mode::Cas if request.accept_stale && request.cas != 0 && request.cas < old_cas => {
                let won = if self.slab.flag(old, WON) { WON } else { 0 };
                Decision::Link {
                    expires: Some(self.slab.header(old).expires.get()),
                    flags: STALE | won,
                }
            }
            Mode::Cas => {
                self.class_counters_of(old).cas_badval += 1;
                Decision::Refuse(StoreOutcome::Exists)
            }
        }
    }

    /// A storage command whose value has wholly arrived in one piece: no allocation, one copy.
    pub(crate) fn store(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        request: &StoreRequest,
        value: &[u8],
        now: u32,
    ) -> StoreOutcome {
        let old = self.find(hash, key, now);
        match self.decide(old, request) {
            Decision::Refuse(why) => why,
            Decision::Combine(old) => {
                self.combine(hash, key, request, old, Part::Bytes(value), now)
            }
            Decision::Link { expires, flags } => {
                // The old one goes first: its chunk is then there for the new one.
                if let Some(old) = old {
                    self.unlink(old);
                }
                let mut new = new_item(hash, key, request, value.len());
                new.expires = expires.unwrap_or(request.expires);
                let Some(item) = self.create(&new, now) else {
                    self.counters.store_no_memory += 1;
                    return StoreOutcome::OutOfMemory;
                };
                self.slab.write_value(item, 0, value);
                self.slab.set_flag(item, flags, true);
                self.stored(item, request)
            }
        }
    }

    fn stored(&mut self, item: Chunk, request: &StoreRequest) -> StoreOutcome {
        self.class_counters_of(item).cmd_set += 1;
        // An item under construction belongs to the epoch in which it is linked.
        self.slab.header_mut(item).epoch = self.epoch;
        StoreOutcome::Stored(self.link(item, request.new_cas))
    }

    /// Replaces `old` by an item with the value of both. Too large or no memory: not stored.
    fn combine(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        request: &StoreRequest,
        old: Chunk,
        part: Part<'_>,
        now: u32,
    ) -> StoreOutcome {
        let part_len = match part {
            Part::Bytes(bytes) => bytes.len(),
            Part::Waiting(_, item) => self.slab.value_len(item),
        };
        let old_len = self.slab.value_len(old);
        let new = NewItem {
            key,
            hash: hash.tag(),
            client_flags: self.slab.header(old).client_flags.get(),
            expires: self.slab.header(old).expires.get(),
            key_binary: request.key_binary,
            value_len: old_len + part_len,
        };
        if !self.size_ok(key.len(), new.client_flags, new.value_len) {
            self.counters.store_too_large += 1;
            return StoreOutcome::NotStored;
        }
        let Some(item) = self.create(&new, now) else {
            self.counters.store_no_memory += 1;
            return StoreOutcome::NotStored;
        };
        // Making room may have taken the very items that are to be put together.
        let part_lost = match part {
            Part::Bytes(_) => false,
            Part::Waiting(ticket, waiting) => self.pending.get(ticket, now) != Some(waiting),
        };
        if part_lost || self.find(hash, key, now) != Some(old) {
            self.free_chain(item);
            self.counters.store_no_memory += 1;
            return StoreOutcome::NotStored;
        }
        let (old_at, part_at) =
            if request.mode == Mode::Append { (0, old_len) } else { (part_len, 0) };
        self.counters.copied_bytes += old_len as u64;
        self.slab.copy_value(old, item, old_at);
        match part {
            Part::Bytes(bytes) => self.slab.write_value(item, part_at, bytes),
            Part::Waiting(_, waiting) => self.slab.copy_value(waiting, item, part_at),
        }
        self.unlink(old);
        self.stored(item, request)
    }

    /// Makes an item for a value of which the first part is here; it is not to be found until
    /// [`Shard::finish`], and takes memory as the value arrives. None: no memory.
    pub(crate) fn begin(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        request: &StoreRequest,
        value_len: usize,
        now: u32,
    ) -> Option<Ticket> {
        let Some(item) = self.create_head(&new_item(hash, key, request, value_len), now) else {
            self.counters.store_no_memory += 1;
            return None;
        };
        let ticket = self.pending.insert(item, now);
        self.slab.set_pending_slot(item, ticket.slot);
        Some(ticket)
    }

    /// Writes `bytes` at offset `at` of a waiting value, all before which is written. False: it was reclaimed, or
    /// there is no memory for more of it.
    pub(crate) fn progress(&mut self, ticket: Ticket, at: usize, bytes: &[u8], now: u32) -> bool {
        let Some(item) = self.pending.get(ticket, now) else {
            return false;
        };
        let slot = ticket.slot;
        // As under construction: the memory for more of it is not taken from its own pages.
        self.slab.set_pending_slot(item, NO_SLOT);
        let grown = self.grow(item, at + bytes.len(), now);
        self.slab.set_pending_slot(item, slot);
        if grown {
            self.slab.write_value(item, at, bytes);
        } else {
            self.abandon_slot(slot);
        }
        grown
    }

    /// Carries out the command of a waiting value all of which is written.
    pub(crate) fn finish(
        &mut self,
        ticket: Ticket,
        hash: KeyHash,
        key: &[u8],
        request: &StoreRequest,
        now: u32,
    ) -> StoreOutcome {
        let Some(item) = self.pending.get(ticket, now) else {
            self.counters.store_no_memory += 1;
            return StoreOutcome::OutOfMemory;
        };
        debug_assert!(self.slab.key(item) == key, "the ticket is for another key");
        let old = self.find(hash, key, now);
        match self.decide(old, request) {
            Decision::Refuse(why) => {
                self.abandon(ticket, now);
                why
            }
            Decision::Combine(old) => {
                let part = Part::Waiting(ticket, item);
                let outcome = self.combine(hash, key, request, old, part, now);
                self.abandon(ticket, now);
                outcome
            }
            Decision::Link { expires, flags } => {
                if let Some(old) = old {
                    self.unlink(old);
                }
                self.pending.remove(ticket.slot);
                if let Some(expires) = expires {
                    self.slab.header_mut(item).expires.set(expires);
                }
                self.slab.end_value(item);
                self.slab.header_mut(item).accessed.set(now);
                self.slab.set_flag(item, flags, true);
                self.stored(item, request)
            }
        }
    }

    /// Frees a waiting value that will not be finished.
    pub(crate) fn abandon(&mut self, ticket: Ticket, now: u32) {
        if self.pending.get(ticket, now).is_some() {
            self.abandon_slot(ticket.slot);
        }
    }

    /// Creates an item for a key that was just found missing, with a number or nothing for value.
    pub(crate) fn vivify(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        request: &StoreRequest,
        value: &[u8],
        now: u32,
    ) -> Option<Chunk> {
        let item = self.create(&new_item(hash, key, request, value.len()), now)?;
        self.slab.write_value(item, 0, value);
        self.link(item, request.new_cas);
        Some(item)
    }

    /// Removes the item of this key if it is there.
    pub(crate) fn remove_key(&mut self, hash: KeyHash, key: &[u8], now: u32) {
        if let Some(item) = self.find(hash, key, now) {
            self.unlink(item);
        }
    }

    /// Deletes an item that was found.
    pub(crate) fn delete(&mut self, item: Chunk) {
        self.class_counters_of(item).delete_hits += 1;
        self.unlink(item);
    }

    /// Gives an item another expiry, counted as a touch.
    pub(crate) fn set_expiry(&mut self, item: Chunk, expires: u32) {
        self.class_counters_of(item).touch_hits += 1;
        self.slab.header_mut(item).expires.set(expires);
    }

    /// Counts an increment or decrement of a key that is not there.
    pub(crate) fn count_arithmetic_miss(&mut self, incr: bool) {
        if incr {
            self.counters.incr_misses += 1;
        } else {
            self.counters.decr_misses += 1;
        }
    }

    /// Marks an item stale (`md ... I`): the next one to fetch it wins the right to recache it.
    pub(crate) fn invalidate(&mut self, item: Chunk, expires: Option<u32>, new_cas: Option<u64>) {
        if let Some(expires) = expires {
            self.slab.header_mut(item).expires.set(expires);
        }
        self.slab.set_flag(item, STALE, true);
        self.slab.set_flag(item, WON, false);
        self.set_cas(item, new_cas);
    }

    /// Adds to or subtracts from the number that an item holds. Increments wrap at 2^64, decrements
    /// stop at 0. A number that has become shorter is padded with spaces, as memcached does.
    pub(crate) fn arithmetic(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        delta: &Delta,
        now: u32,
    ) -> Arithmetic {
        let Some(item) = self.find(hash, key, now) else {
            return Arithmetic::NotFound;
        };
        // memcached looks for an empty value first, then at the CAS value, then for a number.
        if self.slab.value_len(item) == 0 {
            return Arithmetic::NonNumeric;
        }
        if delta.cas.is_some_and(|cas| cas != self.slab.header(item).cas.get()) {
            return Arithmetic::Exists;
        }
        let Some(number) = self.number(item) else {
            return Arithmetic::NonNumeric;
        };
        let number = if delta.incr {
            self.class_counters_of(item).incr_hits += 1;
            number.wrapping_add(delta.by)
        } else {
            self.class_counters_of(item).decr_hits += 1;
            number.saturating_sub(delta.by)
        };
        let mut line = crate::protocol::reply::Line::<DIGITS_MAX>::new();
        line.number(number);
        let old_len = self.slab.value_len(item);
        // A pinned item is being sent: the new number then stands in an item of its own.
        if line.as_bytes().len() <= old_len && !self.pinned.has(item) {
            self.slab.write_value(item, 0, line.as_bytes());
            self.slab.fill_value(item, line.as_bytes().len(), b' ');
            self.counters.copied_bytes += old_len as u64;
            self.set_cas(item, delta.new_cas);
            self.slab.set_flag(item, ACTIVE, true);
            return Arithmetic::Done(item, number);
        }
        let request = StoreRequest {
            client_flags: self.slab.header(item).client_flags.get(),
            expires: self.slab.header(item).expires.get(),
            new_cas: delta.new_cas,
            key_binary: self.slab.flag(item, super::item::KEY_BINARY),
            ..StoreRequest::default()
        };
        self.unlink(item);
        match self.vivify(hash, key, &request, line.as_bytes(), now) {
            Some(item) => Arithmetic::Done(item, number),
            None => Arithmetic::OutOfMemory,
        }
    }

    /// The number an item's value begins with; blanks may come before it and anything after a blank. `None`
    /// where it does not end in the first [`NUMBER_READ_BYTES`].
    fn number(&self, item: Chunk) -> Option<u64> {
        let mut start = [0; NUMBER_READ_BYTES];
        let mut len = 0;
        self.slab.for_value_line(item, start.len(), |piece| {
            start[len..len + piece.len()].copy_from_slice(piece);
            len += piece.len();
        });
        let start = &start[..len];
        let is_cut = len < self.slab.value_len(item) && start.last()?.is_ascii_digit();
        if is_cut { None } else { crate::protocol::line::parse_u64(start) }
    }
}

/// The new part of an append or prepend.
#[derive(Clone, Copy)]
enum Part<'a> {
    Bytes(&'a [u8]),
    Waiting(Ticket, Chunk),
}

fn new_item<'a>(
    hash: KeyHash,
    key: &'a [u8],
    request: &StoreRequest,
    value_len: usize,
) -> NewItem<'a> {
    NewItem {
        key,
        hash: hash.tag(),
        client_flags: request.client_flags,
        expires: request.expires,
        key_binary: request.key_binary,
        value_len,
    }
}
