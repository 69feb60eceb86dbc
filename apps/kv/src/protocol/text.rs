//! The classic commands: retrieval, storage, arithmetic, deletion, touching.

use super::context::{BAD_EXPTIME, BAD_FORMAT, Context, ERROR, NO_MEMORY, NON_NUMERIC};
use super::line::{KEY_MAX_BYTES, Tokens, Words, parse_i32, parse_u32, parse_u64};
use super::partial::{ValueCommand, ValueReply};
use super::reading::{Keys, Reading};
use super::reply::{Line, Output};
use super::step::{State, Step};
use super::value;
use crate::store::operations::{Arithmetic, DIGITS_MAX, Delta, Mode, StoreRequest};
use crate::store::shard::{KeyHash, Shard};
use crate::store::slab::Chunk;

/// Whether the client asked not to be answered: only the last token says so.
pub(crate) fn noreply(tokens: &Tokens<'_>) -> bool {
    tokens.last() == b"noreply"
}

/// Whether one of these keys is too long. Nothing is answered then but the error.
fn any_too_long(keys: &[u8]) -> bool {
    keys.len() > KEY_MAX_BYTES && Words { rest: keys }.any(|key| key.len() > KEY_MAX_BYTES)
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
    let how = Keys { with_cas, touch: None, is_long: context.is_cut };
    let mut words = Words { rest: keys };
    let first = words.next();
    if first.is_none() && !context.is_cut {
        context.reply(ERROR);
        return Step::done();
    }
    answer(context, command_len, (first, words), how)
}

/// gat and gats: the first word is the expiration time.
pub(crate) fn get_and_touch<O: Output>(
    context: &mut Context<'_, O>,
    (command_len, line): (usize, &[u8]),
    with_cas: bool,
) -> Step {
    let mut words = Words { rest: line };
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
    answer(context, command_len, (words.next(), words), how)
}

/// The rest of the keys of such a command, or more of them where the line is cut.
pub(crate) fn go_on<O: Output>(context: &mut Context<'_, O>, keys: &[u8], how: Keys) -> Step {
    let mut words = Words { rest: keys };
    answer(context, keys.len(), (words.next(), words), how)
}

/// Answers the last keys of a command of `command_len` bytes, and the command, as far as the turn goes.
#[inline]
fn answer<'a, O: Output>(
    context: &mut Context<'_, O>,
    command_len: usize,
    (first, mut rest): (Option<&'a [u8]>, Words<'a>),
    how: Keys,
) -> Step {
    let now = context.now.as_u32();
    let mut next = first;
    while let Some(key) = next {
        if how.is_long && (key.len() > KEY_MAX_BYTES || key.contains(&0)) {
            context.reply(BAD_FORMAT);
            return Step::new(0, State::Closed);
        }
        let (hash, mut shard) = context.shard(key);
        let found = shard.find(hash, key, now);
        count(&mut shard, found, how, now);
        if let Some(item) = found
            && let Some(mut reading) = put_item(context.out, &mut shard, (item, hash), how.with_cas)
        {
            reading.then = Some(how);
            return Step::part(command_len - rest.rest.len(), State::Reading(reading));
        }
        drop(shard);
        let behind = rest.rest.len();
        next = rest.next();
        if next.is_some() && context.is_over() {
            return Step::part(command_len - behind, State::Keys(how));
        }
    }
    if context.is_cut {
        return Step::part(command_len, State::Keys(how));
    }
    context.reply(b"END\r\n");
    Step::done()
}

#[inline]
fn count(shard: &mut Shard, found: Option<Chunk>, how: Keys, now: u32) {
    match (found, how.touch) {
        (Some(item), None) => {
            shard.counters.cmd_get += 1;
            shard.bump(item, now);
            shard.class_counters_of(item).get_hits += 1;
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
    let slab = &shard.slab;
    if with_cas {
        let mut cas = Line::<24>::new();
        cas.push(b" ");
        cas.number(slab.header(item).cas.get());
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
        return Step::done();
    };
    let request = StoreRequest {
        mode,
        client_flags,
        expires: context.now.expiry(exptime_s),
        cas,
        ..StoreRequest::default()
    };
    let reply = ValueReply::Text { noreply };
    value::take(context, ValueCommand { key, request, value_len, reply }, after)
}

/// incr and decr.
pub(crate) fn arithmetic<O: Output>(context: &mut Context<'_, O>, tokens: &Tokens<'_>, incr: bool) {
    let noreply = noreply(tokens);
    match change(context, tokens, incr) {
        Ok(number) => {
            let mut line = Line::<{ DIGITS_MAX + 2 }>::new();
            line.number(number);
            line.push(b"\r\n");
            context.reply_unless(noreply, line.as_bytes());
        }
        Err(line) => context.reply_unless(noreply, line),
    }
}

/// The new number, or the line to answer with.
fn change<O: Output>(
    context: &mut Context<'_, O>,
    tokens: &Tokens<'_>,
    incr: bool,
) -> Result<u64, &'static [u8]> {
    let key = tokens.get(1);
    if key.len() > KEY_MAX_BYTES {
        return Err(BAD_FORMAT);
    }
    let by =
        parse_u64(tokens.get(2)).ok_or(&b"CLIENT_ERROR invalid numeric delta argument\r\n"[..])?;
    let (hash, mut shard) = context.shard(key);
    let delta = Delta { incr, by, cas: None, new_cas: None };
    let now = context.now.as_u32();
    match context.charged(&mut shard, |shard| shard.arithmetic(hash, key, &delta, now)) {
        Arithmetic::Done(_, number) => Ok(number),
        // Without a CAS value to compare, an existing item is never refused.
        Arithmetic::NotFound | Arithmetic::Exists => {
            shard.count_arithmetic_miss(incr);
            Err(b"NOT_FOUND\r\n")
        }
        Arithmetic::NonNumeric => Err(NON_NUMERIC),
        Arithmetic::OutOfMemory => Err(NO_MEMORY),
    }
}

/// delete; a second argument of 0 is accepted, as it was long ago a hold time. The line to answer with.
pub(crate) fn delete<O>(context: &Context<'_, O>, tokens: &Tokens<'_>) -> &'static [u8] {
    let (zero, quiet) = (tokens.get(2) == b"0", noreply(tokens));
    let valid = match tokens.len() {
        2 => true,
        3 => zero || quiet,
        _ => zero && quiet,
    };
    if !valid {
        return b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
    }
    let key = tokens.get(1);
    if key.len() > KEY_MAX_BYTES {
        return BAD_FORMAT;
    }
    let (hash, mut shard) = context.shard(key);
    let Some(item) = shard.find(hash, key, context.now.as_u32()) else {
        shard.counters.delete_misses += 1;
        return b"NOT_FOUND\r\n";
    };
    shard.delete(item);
    b"DELETED\r\n"
}

/// touch. The line to answer with.
pub(crate) fn touch<O>(context: &Context<'_, O>, tokens: &Tokens<'_>) -> &'static [u8] {
    let key = tokens.get(1);
    if key.len() > KEY_MAX_BYTES {
        return BAD_FORMAT;
    }
    let Some(exptime_s) = parse_i32(tokens.get(2)) else { return BAD_EXPTIME };
    let now = context.now.as_u32();
    let (hash, mut shard) = context.shard(key);
    shard.counters.cmd_touch += 1;
    let Some(item) = shard.find(hash, key, now) else {
        shard.counters.touch_misses += 1;
        return b"NOT_FOUND\r\n";
    };
    shard.set_expiry(item, context.now.expiry(exptime_s));
    shard.bump(item, now);
    b"TOUCHED\r\n"
}
