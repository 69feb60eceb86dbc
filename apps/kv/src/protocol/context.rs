//! What every command works on: the store, the reply, and what is left of the turn.

use std::sync::MutexGuard;

use super::reply::Output;
use crate::store::shard::{KeyHash, Shard};
use crate::{Store, WallTime};

pub(crate) const ERROR: &[u8] = b"ERROR\r\n";
pub(crate) const BAD_EXPTIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
pub(crate) const NON_NUMERIC: &[u8] =
    b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
pub(crate) const NO_MEMORY: &[u8] = b"SERVER_ERROR out of memory\r\n";
pub(crate) const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";

/// What a command works on.
pub(crate) struct Context<'a, O> {
    pub(crate) store: &'a Store,
    pub(crate) now: WallTime,
    pub(crate) out: &'a mut O,
    /// Keys and commands that this turn may still answer, before others are served.
    pub(crate) turn: u32,
    /// These are not all of the line's keys: their end is no end of the reply.
    pub(crate) is_cut: bool,
}

/// Keys and commands of one connection that one turn answers at most: some tens of microseconds.
pub(crate) const TURN_OPERATIONS: u32 = 256;
/// Bytes of stored values whose copying counts as one command: it takes about as long.
const OPERATION_COPIES_BYTES: u64 = 4 << 10;

impl<'a, O> Context<'a, O> {
    /// The hash of a key, and its shard, locked.
    #[inline]
    pub(crate) fn shard(&self, key: &[u8]) -> (KeyHash, MutexGuard<'a, Shard>) {
        let hash = self.store.hash(key);
        (hash, self.store.shard(hash))
    }
}

impl<O: Output> Context<'_, O> {
    /// Whether the turn is over, behind one key or command and before the next: the peer is to read, or others
    /// are to be served.
    #[inline]
    pub(crate) fn is_over(&mut self) -> bool {
        self.turn = self.turn.saturating_sub(1);
        self.turn == 0 || self.out.room() == 0
    }

    /// Runs one operation on `shard`, and charges the turn for the stored bytes that the operation copied. The
    /// command that exceeds the turn is its last.
    #[inline]
    pub(crate) fn charged<T>(
        &mut self,
        shard: &mut Shard,
        operation: impl FnOnce(&mut Shard) -> T,
    ) -> T {
        let before = shard.counters.copied_bytes;
        let outcome = operation(shard);
        let bytes = shard.counters.copied_bytes - before;
        let operations = u32::try_from(bytes / OPERATION_COPIES_BYTES).unwrap_or(u32::MAX);
        self.turn = self.turn.saturating_sub(operations);
        outcome
    }

    /// Ends the turn behind this command: it visits every shard.
    pub(crate) fn end_turn(&mut self) {
        self.turn = 0;
    }

    /// Answers with a whole line, newline included.
    pub(crate) fn reply(&mut self, line: &[u8]) {
        debug_assert!(line.ends_with(b"\r\n"), "a reply without its line end");
        self.out.put(line);
    }

    /// Answers unless the client asked not to be answered.
    pub(crate) fn reply_unless(&mut self, noreply: bool, line: &[u8]) {
        if !noreply {
            self.reply(line);
        }
    }
}
