//! A value that arrives in parts, and the answer once its end is there.

use super::context::Context;
use super::line::KEY_MAX_BYTES;
use super::meta_reply::MetaReply;
use super::reply::{Line, Output};
use crate::store::operations::{StoreOutcome, StoreRequest};
use crate::store::pending::Ticket;
use crate::store::shard::KeyHash;

/// What ends a value.
pub(super) const CRLF: &[u8; 2] = b"\r\n";

/// How a storage command is answered.
#[derive(Debug, Clone)]
pub(crate) enum ValueReply {
    Text { noreply: bool },
    Meta(MetaReply),
}

/// A storage command whose line was understood.
#[derive(Debug)]
pub(crate) struct ValueCommand<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) request: StoreRequest,
    pub(crate) value_len: usize,
    pub(crate) reply: ValueReply,
}

/// A storage command of which a part of the value is still to come.
#[derive(Debug)]
pub(crate) struct Partial {
    ticket: Ticket,
    hash: KeyHash,
    key: Line<KEY_MAX_BYTES>,
    request: StoreRequest,
    reply: ValueReply,
    value_len: usize,
    /// Bytes of value and CRLF that have arrived.
    received: usize,
    /// A byte of the CRLF was another.
    bad_end: bool,
    /// The item was reclaimed meanwhile.
    lost: bool,
}

impl Partial {
    /// None of the value of `command` has arrived; it goes into the item of `ticket`.
    pub(super) fn new(command: ValueCommand<'_>, hash: KeyHash, ticket: Ticket) -> Self {
        let mut key = Line::new();
        key.push(command.key);
        Self {
            ticket,
            hash,
            key,
            request: command.request,
            reply: command.reply,
            value_len: command.value_len,
            received: 0,
            bad_end: false,
            lost: false,
        }
    }

    /// Takes what belongs to the value off the front of `bytes`: how many, and whether that was the
    /// last of it (it is then stored and answered).
    pub(crate) fn receive<O: Output>(
        &mut self,
        context: &mut Context<'_, O>,
        bytes: &[u8],
    ) -> (usize, bool) {
        let now = context.now.as_u32();
        let line_len = self.value_len + CRLF.len();
        let taken = bytes.len().min(line_len - self.received);
        let bytes = &bytes[..taken];
        let value_part = taken.min(self.value_len.saturating_sub(self.received));
        let (value, end) = bytes.split_at(value_part);
        if !value.is_empty() && !self.lost {
            let mut shard = context.store.shard(self.hash);
            self.lost = !shard.progress(self.ticket, self.received, value, now);
        }
        let end_at = (self.received + value_part).saturating_sub(self.value_len);
        self.bad_end |= end.iter().zip(&CRLF[end_at.min(CRLF.len())..]).any(|(a, b)| a != b);
        self.received += taken;
        if self.received < line_len {
            return (taken, false);
        }
        let key = self.key.as_bytes();
        if self.bad_end {
            context.store.shard(self.hash).abandon(self.ticket, now);
            self.reply.error(context.out, b"CLIENT_ERROR bad data chunk\r\n");
        } else {
            let mut shard = context.store.shard(self.hash);
            let outcome = context.charged(&mut shard, |shard| {
                shard.finish(self.ticket, self.hash, key, &self.request, now)
            });
            drop(shard);
            self.reply.outcome(context.out, outcome, key, self.request.key_binary);
        }
        (taken, true)
    }

    /// Gives the memory back of a value that will not come.
    pub(crate) fn abandon(&self, store: &crate::Store) {
        store.shard(self.hash).abandon(self.ticket, 0);
    }
}

impl ValueReply {
    /// An error line. `noreply` hides it; meta commands always show errors.
    pub(super) fn error(&self, out: &mut impl Output, line: &[u8]) {
        match self {
            Self::Text { noreply: true } => {}
            Self::Text { noreply: false } | Self::Meta(_) => out.put(line),
        }
    }

    /// Answers how the command ended.
    pub(super) fn outcome(
        &self,
        out: &mut impl Output,
        outcome: StoreOutcome,
        key: &[u8],
        key_binary: bool,
    ) {
        if outcome == StoreOutcome::OutOfMemory {
            self.error(out, b"SERVER_ERROR out of memory storing object\r\n");
            return;
        }
        match self {
            Self::Text { noreply: true } => {}
            Self::Text { noreply: false } => out.put(match outcome {
                StoreOutcome::Stored(_) => b"STORED\r\n",
                StoreOutcome::NotStored | StoreOutcome::OutOfMemory => b"NOT_STORED\r\n",
                StoreOutcome::Exists => b"EXISTS\r\n",
                StoreOutcome::NotFound => b"NOT_FOUND\r\n",
            }),
            Self::Meta(meta) => meta.put(out, outcome, key, key_binary),
        }
    }
}
