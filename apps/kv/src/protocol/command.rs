//! From a command line to the function that carries it out.

use super::line::{Tokens, command_of};
use super::reading::{Keys, Reading};
use super::reply::Output;
use super::value::Partial;
use super::{admin, meta, meta_store, text};
use crate::store::operations::Mode;
use crate::store::shard::Shard;
use crate::{Store, WallTime};

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

/// What the connection expects after a command.
#[derive(Debug)]
pub(crate) enum Next {
    /// The next command line.
    Command,
    /// The same command line once more, in a later turn: its work is not done.
    Retry,
    /// So many bytes that mean nothing.
    Swallow(u64),
    /// The rest of a value.
    Value(Box<Partial>),
    /// The keys from offset `at` of the line on, once the peer has read; behind the value `reading`.
    Keys { at: usize, keys: Keys, reading: Option<Box<Reading>> },
    /// The next command line, behind this value.
    Reading(Box<Reading>),
    /// Nothing: it is to be closed.
    Close,
}

/// How a command line was taken.
#[derive(Debug)]
pub(crate) struct Step {
    /// Bytes used of those after the line.
    pub(crate) consumed: usize,
    pub(crate) next: Next,
}

impl Step {
    pub(crate) fn new(consumed: usize, next: Next) -> Self {
        Self { consumed, next }
    }

    /// The next command line, none of the bytes after this one used.
    pub(crate) fn done() -> Self {
        Self::new(0, Next::Command)
    }
}

pub(crate) const ERROR: &[u8] = b"ERROR\r\n";
pub(crate) const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";

/// Carries out the command in `line` (its newline cut off); `after` is what follows it.
pub(crate) fn execute<O: Output>(context: &mut Context<'_, O>, line: &[u8], after: &[u8]) -> Step {
    let command = command_of(line);
    // Most requests are these, and their keys are not counted or cut into tokens first.
    if let Some(keys) = command.strip_prefix(b"get ") {
        return text::get(context, (command.len(), keys), false);
    }
    let tokens = Tokens::of(command);
    let count = tokens.len();
    let name = tokens.get(0);
    if name.len() < 2 {
        context.reply(ERROR);
        return Step::done();
    }
    let meta = match name {
        b"mg" | b"ms" | b"md" | b"ma" => {
            if count < 2 {
                context.reply(ERROR);
                return Step::done();
            }
            true
        }
        _ => false,
    };
    debug_assert!(!meta || count >= 2);
    match name {
        b"mg" => {
            if let Some(reading) = meta::get(context, &tokens) {
                return Step::new(0, Next::Reading(reading));
            }
        }
        b"ms" => return meta_store::set(context, &tokens, after),
        b"md" => meta::delete(context, &tokens),
        b"ma" => meta::arithmetic(context, &tokens),
        b"mn" => context.reply(b"MN\r\n"),
        b"me" => meta::debug(context, &tokens),
        b"get" | b"gets" | b"bget" | b"gat" | b"gats" if count >= 2 => {
            return retrieve(context, name, command);
        }
        b"set" if matches!(count, 5 | 6) => {
            return text::update(context, &tokens, Mode::Set, after);
        }
        b"add" if matches!(count, 5 | 6) => {
            return text::update(context, &tokens, Mode::Add, after);
        }
        b"replace" if matches!(count, 5 | 6) => {
            return text::update(context, &tokens, Mode::Replace, after);
        }
        b"append" if matches!(count, 5 | 6) => {
            return text::update(context, &tokens, Mode::Append, after);
        }
        b"prepend" if matches!(count, 5 | 6) => {
            return text::update(context, &tokens, Mode::Prepend, after);
        }
        b"cas" if matches!(count, 6 | 7) => {
            return text::update(context, &tokens, Mode::Cas, after);
        }
        b"incr" if matches!(count, 3 | 4) => text::arithmetic(context, &tokens, true),
        b"decr" if matches!(count, 3 | 4) => text::arithmetic(context, &tokens, false),
        b"delete" if matches!(count, 2..=4) => text::delete(context, &tokens),
        b"touch" if matches!(count, 3 | 4) => text::touch(context, &tokens),
        _ => return admin::execute(context, &tokens),
    }
    Step::done()
}

/// The retrieval commands other than a plain `get`; `command` is the whole line.
fn retrieve<O: Output>(context: &mut Context<'_, O>, name: &[u8], command: &[u8]) -> Step {
    // Leading blanks are allowed: the keys start behind the first occurrence of the name.
    let start = command.iter().take_while(|&&byte| byte == b' ').count() + name.len();
    let keys = (command.len(), command.get(start..).unwrap_or(&[]));
    match name {
        b"gets" => text::get(context, keys, true),
        b"gat" => text::get_and_touch(context, keys, false),
        b"gats" => text::get_and_touch(context, keys, true),
        _ => text::get(context, keys, false),
    }
}
