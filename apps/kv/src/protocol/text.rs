//! The classic commands: retrieval, storage, arithmetic, deletion, touching.

use super::context::{BAD_FORMAT, Context, ERROR};
use super::line::{KEY_MAX_BYTES, Tokens, Words, parse_i32, parse_u32, parse_u64, words};
use super::partial::{ValueCommand, ValueReply};
use super::reading::{Keys, Reading};
use super::reply::{Line, Output};
use super::step::{Next, Step};
use super::value;
use crate::store::operations::{Arithmetic, DIGITS_MAX, Delta, Mode, StoreRequest};
use crate::store::shard::{KeyHash, Shard};
use crate::store::slab::Chunk;

const BAD_EXPTIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
const NON_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";

/// Whether the client asked not to be answered: only the last token says so.
pub(crate) fn noreply(tokens: &Tokens<'_>) -> bool {
    tokens.last() == b"noreply"
}

/// Whether one of these keys is too long. Nothing is answered then but the error.
fn any_too_long(keys: &[u8]) -> bool {
    keys.len() > KEY_MAX_BYTES && words(keys).any(|key| key.len() > KEY_MAX_BYTES)
}

/// get and gets. `keys` are the end of a command of `command_len` bytes.
pub(crate) fn get<O: Output>(
    context: &mut Context<'_, O>,
    (command_len, keys): (usize, &[u8]),
    with_cas: bool,
) -> Step {
    if any_too_long(keys) {
        context.reply(BAD_FORMAT);
        return Step::done();
    }
    let mut words = words(keys);
    let Some(first) = words.next() else {
        if context.is_cut {
            let how = Keys { with_cas, touch: None, is_long: true };
            return step(end(context), command_len, how);
        }
        context.reply(ERROR);
        return Step::done();
    };
    let how = Keys { with_cas, touch: None, is_long: context.is_cut };
    step(answer(context, first, words, how), command_len, how)
}

/// gat and gats: the first word is the expiration time.
pub(crate) fn get_and_touch<O: Output>(
    context: &mut Context<'_, O>,
    (command_len, line): (usize, &[u8]),
    with_cas: bool,
) -> Step {
    let mut words = words(line);
    let Some(exptime_s) = parse_i32(words.next().unwrap_or(&[])) else {
        context.reply(BAD_EXPTIME);
        return Step::done();
    };
    if any_too_long(line) {
        context.reply(BAD_FORMAT);
        return Step::done();
    }
    let touch = Some(context.now.expiry(exptime_s));
    let how = Keys { with_cas, touch, is_long: context.is_cut };
    let Some(first) = words.next() else {
        return step(end(context), command_len, how);
    };
    step(answer(context, first, words, how), command_len, how)
}

/// The rest of the keys of such a command, or more of them where the line is cut.
pub(crate) fn go_on<O: Output>(context: &mut Context<'_, O>, keys: &[u8], how: Keys) -> Step {
    let mut words = words(keys);
    let Some(first) = words.next() else {
        return step(end(context), keys.len(), how);
    };
    step(answer(context, first, words, how), keys.len(), how)
}

/// Where the turn ended before the keys did.
enum Pause {
    /// Behind a key, or within the value of one, with so many bytes of keys left.
    At { left: usize, reading: Option<Box<Reading>> },
    /// Nothing is left that could be answered.
    Wrong,
}

fn step(pause: Option<Pause>, command_len: usize, keys: Keys) -> Step {
    match pause {
        None => Step::done(),
        Some(Pause::At { left, reading }) => {
            Step::new(0, Next::Keys { at: command_len - left, keys, reading })
        }
        Some(Pause::Wrong) => Step::new(0, Next::Close),
    }
}

/// Behind the last of these keys.
fn end<O: Output>(context: &mut Context<'_, O>) -> Option<Pause> {
    if context.is_cut {
        return Some(Pause::At { left: 0, reading: None });
    }
    context.reply(b"END\r\n");
    None
}

/// Answers keys, and the command, as far as the turn goes.
#[inline]
fn answer<O: Output>(
    context: &mut Context<'_, O>,
    first: &[u8],
    mut rest: Words<'_>,
    how: Keys,
) -> Option<Pause> {
    let now = context.now.as_u32();
    let mut key = first;
    loop {
        if how.is_long && (key.len() > KEY_MAX_BYTES || key.contains(&0)) {
            context.reply(BAD_FORMAT);
            return Some(Pause::Wrong);
        }
        let hash = context.store.hash(key);
        let mut shard = context.store.shard(hash);
        let found = shard.find(hash, key, now);
        count(&mut shard, found, how, now);
        if let Some(item) = found
            && let Some(mut reading) = put_item(context.out, &mut shard, (item, hash), how.with_cas)
        {
            reading.then = Some(how);
            return Some(Pause::At { left: rest.rest().len(), reading: Some(reading) });
        }
        drop(shard);
        let behind = rest.rest();
        let Some(next) = rest.next() else { break };
        if context.is_over() {
            return Some(Pause::At { left: behind.len(), reading: None });
        }
        key = next;
    }
    end(context)
}

#[inline]
fn count(shard: &mut Shard, found: Option<Chunk>, how: Keys, now: u32) {
    match (found, how.touch) {
        (Some(item), None) => {
            shard.counters.cmd_get += 1;
            shard.bump(item, now);
            let class = shard.slab().class_of(item);
            shard.class_counters[class].get_hits += 1;
        }
        (None, None) => {
            shard.counters.cmd_get += 1;
            shard.counters.get_misses += 1;
        }
        (Some(item), Some(expires)) => {
            shard.counters.cmd_touch += 1;
            shard.set_expiry(item, expires);
            shard.bump(item, now);
        }
        (None, Some(_)) => {
            shard.counters.cmd_touch += 1;
            shard.counters.touch_misses += 1;
        }
    }
}

/// Answers with an item; with the rest of it, where that is long and the peer has to read first.
#[inline]
fn put_item(
    out: &mut impl Output,
    shard: &mut Shard,
    (item, hash): (Chunk, KeyHash),
    with_cas: bool,
) -> Option<Box<Reading>> {
    let slab = shard.slab();
    if with_cas {
        let mut cas = Line::<24>::new();
        cas.push(b" ");
        cas.number(slab.cas(item));
        cas.push(b"\r\n");
        out.put(slab.value_heading(item));
        out.put(cas.as_bytes());
        let range = slab.value_range(item);
        return Reading::begin(out, shard, (item, hash), range);
    }
    if let Some(body) = slab.whole_body(item) {
        out.put(body);
        return None;
    }
    let range = (0, slab.body_len(item));
    Reading::begin(out, shard, (item, hash), range)
}

/// set, add, replace, append, prepend and cas.
pub(crate) fn update<O: Output>(
    context: &mut Context<'_, O>,
    tokens: &Tokens<'_>,
    mode: Mode,
    after: &[u8],
) -> Step {
    let noreply = noreply(tokens);
    let key = tokens.get(1);
    let numbers = (|| {
        let client_flags = parse_u32(tokens.get(2))?;
        let exptime_s = parse_i32(tokens.get(3))?;
        let value_len = usize::try_from(parse_i32(tokens.get(4))?).ok()?;
        let cas = if mode == Mode::Cas { parse_u64(tokens.get(5))? } else { 0 };
        // Two more bytes are to come and must be countable in memcached's 31 bits.
        (value_len <= i32::MAX as usize - 2).then_some((client_flags, exptime_s, value_len, cas))
    })();
    let Some((client_flags, exptime_s, value_len, cas)) =
        numbers.filter(|_| key.len() <= KEY_MAX_BYTES)
    else {
        context.reply_unless(noreply, BAD_FORMAT);
        return Step::new(0, Next::Command);
    };
    let request = StoreRequest {
        mode,
        client_flags,
        expires: context.now.expiry(exptime_s),
        cas,
        new_cas: None,
        accept_stale: false,
        key_binary: false,
    };
    let reply = ValueReply::Text { noreply };
    value::take(context, ValueCommand { key, request, value_len, reply }, after)
}

/// incr and decr.
pub(crate) fn arithmetic<O: Output>(context: &mut Context<'_, O>, tokens: &Tokens<'_>, incr: bool) {
    let noreply = noreply(tokens);
    let key = tokens.get(1);
    if key.len() > KEY_MAX_BYTES {
        context.reply_unless(noreply, BAD_FORMAT);
        return;
    }
    let Some(by) = parse_u64(tokens.get(2)) else {
        context.reply_unless(noreply, b"CLIENT_ERROR invalid numeric delta argument\r\n");
        return;
    };
    let hash = context.store.hash(key);
    let mut shard = context.store.shard(hash);
    let delta = Delta { incr, by, cas: None, new_cas: None };
    let now = context.now.as_u32();
    let outcome = context.charged(&mut shard, |shard| shard.arithmetic(hash, key, &delta, now));
    if outcome == Arithmetic::NotFound {
        shard.count_arithmetic_miss(incr);
    }
    drop(shard);
    match outcome {
        Arithmetic::Done(_, number) => {
            let mut line = Line::<{ DIGITS_MAX + 2 }>::new();
            line.number(number);
            line.push(b"\r\n");
            context.reply_unless(noreply, line.as_bytes());
        }
        // Without a CAS value to compare, an existing item is never refused.
        Arithmetic::NotFound | Arithmetic::Exists => {
            context.reply_unless(noreply, b"NOT_FOUND\r\n");
        }
        Arithmetic::NonNumeric => context.reply_unless(noreply, NON_NUMERIC),
        Arithmetic::OutOfMemory => {
            context.reply_unless(noreply, b"SERVER_ERROR out of memory\r\n");
        }
    }
}

/// delete; a second argument of 0 is accepted, as it was long ago a hold time.
pub(crate) fn delete<O: Output>(context: &mut Context<'_, O>, tokens: &Tokens<'_>) {
    let mut quiet = false;
    if tokens.len() > 2 {
        let zero = tokens.get(2) == b"0";
        quiet = noreply(tokens);
        let valid = match tokens.len() {
            3 => zero || quiet,
            _ => zero && quiet,
        };
        if !valid {
            context.reply_unless(
                quiet,
                b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n",
            );
            return;
        }
    }
    let key = tokens.get(1);
    if key.len() > KEY_MAX_BYTES {
        context.reply_unless(quiet, BAD_FORMAT);
        return;
    }
    let hash = context.store.hash(key);
    let mut shard = context.store.shard(hash);
    let found = shard.find(hash, key, context.now.as_u32());
    match found {
        Some(item) => shard.delete(item),
        None => shard.counters.delete_misses += 1,
    }
    drop(shard);
    context.reply_unless(quiet, if found.is_some() { b"DELETED\r\n" } else { b"NOT_FOUND\r\n" });
}

/// touch.
pub(crate) fn touch<O: Output>(context: &mut Context<'_, O>, tokens: &Tokens<'_>) {
    let noreply = noreply(tokens);
    let key = tokens.get(1);
    if key.len() > KEY_MAX_BYTES {
        context.reply_unless(noreply, BAD_FORMAT);
        return;
    }
    let Some(exptime_s) = parse_i32(tokens.get(2)) else {
        context.reply_unless(noreply, BAD_EXPTIME);
        return;
    };
    let now = context.now.as_u32();
    let hash = context.store.hash(key);
    let mut shard = context.store.shard(hash);
    shard.counters.cmd_touch += 1;
    let found = shard.find(hash, key, now);
    match found {
        Some(item) => {
            let expires = context.now.expiry(exptime_s);
            shard.set_expiry(item, expires);
            shard.bump(item, now);
        }
        None => shard.counters.touch_misses += 1,
    }
    drop(shard);
    context.reply_unless(noreply, if found.is_some() { b"TOUCHED\r\n" } else { b"NOT_FOUND\r\n" });
}
