//! Long values, sent part by part as the peer takes them, and the keys behind them.

use super::reply::Output;
use crate::Store;
use crate::store::pinned::Pin;
use crate::store::shard::{KeyHash, Shard};
use crate::store::slab::{Chunk, Slab};

/// How the keys of a retrieval command are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) with_cas: bool,
    /// The expiry that items get (gat, gats).
    pub(crate) touch: Option<u32>,
    /// The line is longer than what of it was looked at: each key is, as it comes.
    pub(crate) is_long: bool,
}

/// A value of which the peer has not taken all.
#[derive(Debug)]
pub(crate) struct Reading {
    hash: KeyHash,
    pin: Pin,
    /// The part of the item's body that is left.
    at: usize,
    end: usize,
    /// The keys behind it, if it answers one of several.
    pub(crate) then: Option<Keys>,
}

/// How far a value was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    /// The peer is to take some of it first.
    NoRoom,
    /// The item is gone, in the middle of the reply.
    Lost,
}

impl Reading {
    /// Sends the body of a linked item from `at` to `end`; the rest, where there is no room for all.
    pub(crate) fn begin(
        out: &mut impl Output,
        shard: &mut Shard,
        (item, hash): (Chunk, KeyHash),
        (at, end): (usize, usize),
    ) -> Option<Box<Self>> {
        let at = send(out, &shard.slab, item, (at, end));
        (at < end).then(|| Box::new(Self { hash, pin: shard.pin(item), at, end, then: None }))
    }

    /// Goes on.
    pub(crate) fn send(&mut self, out: &mut impl Output, store: &Store) -> Progress {
        let mut shard = store.shard(self.hash);
        let Some(item) = shard.pinned.item(self.pin) else { return Progress::Lost };
        self.at = send(out, &shard.slab, item, (self.at, self.end));
        if self.at < self.end {
            return Progress::NoRoom;
        }
        shard.unpin(self.pin);
        Progress::Done
    }

    /// Gives the item back before its end.
    pub(crate) fn abandon(&self, store: &Store) {
        store.shard(self.hash).unpin(self.pin);
    }
}

/// Puts as much as there is room for. Answers how far it came.
fn send(out: &mut impl Output, slab: &Slab, item: Chunk, (mut at, end): (usize, usize)) -> usize {
    while at < end {
        let room = out.room();
        if room == 0 {
            break;
        }
        let part = slab.body_part(item, at, room.min(end - at));
        debug_assert!(!part.is_empty(), "a body ends before its end");
        out.put(part);
        at += part.len();
    }
    at
}
