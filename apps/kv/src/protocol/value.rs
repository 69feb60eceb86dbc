//! Commands that bring a value: taking it from the input, whole or its first part.
//!
//! A value that lies wholly in the received bytes goes from there into the item. One that is cut
//! goes part by part into an item that is not to be found yet; only then is a [`Partial`] allocated.

use super::context::Context;
use super::line::KEY_MAX_BYTES;
use super::partial::{CRLF, Partial, ValueCommand, ValueReply};
use super::reply::Output;
use super::step::{State, Step};
use crate::store::operations::Mode;

/// Carries out a storage command; `after` is what follows its line.
pub(crate) fn take<O: Output>(
    context: &mut Context<'_, O>,
    command: ValueCommand<'_>,
    after: &[u8],
) -> Step {
    let now = context.now.as_u32();
    let line_len = command.value_len + CRLF.len();
    let key = command.key;
    debug_assert!(!key.is_empty() && key.len() <= KEY_MAX_BYTES);
    let (hash, mut shard) = context.shard(key);
    if !shard.size_ok(key.len(), command.request.client_flags, command.value_len) {
        shard.counters.store_too_large += 1;
        // The old value must not be taken for the one that was refused.
        if command.request.mode == Mode::Set || matches!(command.reply, ValueReply::Meta(_)) {
            shard.remove_key(hash, key, now);
        }
        drop(shard);
        command.reply.error(context.out, b"SERVER_ERROR object too large for cache\r\n");
        return Step::new(0, State::Swallow(line_len as u64));
    }
    if let Some(line) = after.get(..line_len) {
        let (value, end) = line.split_at(command.value_len);
        if end != CRLF {
            drop(shard);
            command.reply.error(context.out, b"CLIENT_ERROR bad data chunk\r\n");
        } else {
            let request = &command.request;
            let outcome =
                context.charged(&mut shard, |shard| shard.store(hash, key, request, value, now));
            drop(shard);
            command.reply.outcome(context.out, outcome, key, command.request.key_binary);
        }
        return Step::new(line_len, State::Command);
    }
    let Some(ticket) = shard.begin(hash, key, &command.request, command.value_len, now) else {
        shard.remove_key(hash, key, now);
        drop(shard);
        command.reply.error(context.out, b"SERVER_ERROR out of memory storing object\r\n");
        return Step::new(0, State::Swallow(line_len as u64));
    };
    drop(shard);
    let mut partial = Box::new(Partial::new(command, hash, ticket));
    let (consumed, complete) = partial.receive(context, after);
    debug_assert!(!complete, "a whole value was taken for a part of one");
    Step::new(consumed, State::Value(partial))
}
