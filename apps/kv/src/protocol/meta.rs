//! mg, md, ma and me: the meta commands without a value.

use super::base64::{self, ENCODED_KEY_MAX_BYTES};
use super::context::{BAD_FORMAT, Context, NO_MEMORY, NON_NUMERIC};
use super::line::{KEY_MAX_BYTES, Tokens};
use super::meta_flags::{META_TOKENS_MAX, MetaFlags, MetaKey, check_opaque};
use super::meta_reply::{META_LINE_MAX_BYTES, push_key};
use super::reading::Reading;
use super::reply::{Line, Output};
use super::step::{State, Step};
use crate::store::item::{FETCHED, KEY_BINARY, STALE, WON};
use crate::store::operations::{Arithmetic, DIGITS_MAX, Delta, Mode, StoreRequest};
use crate::store::shard::Shard;
use crate::store::slab::Chunk;
use crate::time::NEVER;

type MetaLine = Line<META_LINE_MAX_BYTES>;

const BAD_FLAG: &[u8] = b"CLIENT_ERROR invalid or duplicate flag\r\n";

/// The key and the flags of a command, or the line to answer with. md and ma say the same of every
/// bad flag.
fn understand<'a, O>(
    context: &Context<'_, O>,
    tokens: &Tokens<'a>,
    one_error: bool,
) -> Result<(MetaKey<'a>, MetaFlags), &'static [u8]> {
    let token = tokens.get(1);
    if token.len() > KEY_MAX_BYTES {
        return Err(BAD_FORMAT);
    }
    if tokens.len() > META_TOKENS_MAX {
        return Err(if one_error {
            b"CLIENT_ERROR options flags too long\r\n"
        } else {
            b"CLIENT_ERROR options flags are too long\r\n"
        });
    }
    let flags = MetaFlags::parse(tokens.from(2), context.now)
        .map_err(|line| if one_error { BAD_FLAG } else { line })?;
    let key = MetaKey::new(token, flags.key_binary).ok_or(if one_error {
        BAD_FLAG
    } else {
        b"CLIENT_ERROR error decoding key\r\n"
    })?;
    Ok((key, flags))
}

/// Opaque token and key, as every reply gives them back.
fn push_echo(line: &mut MetaLine, flag: &[u8], key: &[u8], binary: bool) {
    match flag.first() {
        Some(b'O') => {
            line.push(b" ");
            line.push(flag);
        }
        Some(b'k') => push_key(line, key, binary),
        _ => {}
    }
}

fn push_number(line: &mut MetaLine, name: &[u8; 2], number: impl Into<u64>) {
    line.push(name);
    line.number(number.into());
}

/// Seconds that an item has left, -1 for ever.
fn push_ttl(line: &mut MetaLine, shard: &Shard, item: Chunk, now: u32) {
    let expires = shard.slab.header(item).expires.get();
    if expires == NEVER {
        line.push(b" t-1");
    } else {
        push_number(line, b" t", expires.saturating_sub(now));
    }
}

/// The request that creates an item on a miss. Its expiry is set when the `N` flag's turn comes, as in
/// memcached: a `t` before it tells -1.
fn vivify_request(flags: &MetaFlags) -> StoreRequest {
    let MetaFlags { new_cas, key_binary, .. } = *flags;
    StoreRequest { mode: Mode::Add, new_cas, key_binary, ..StoreRequest::default() }
}

/// mg.
///
/// # Errors
/// As of the other commands: the line to answer with.
pub(crate) fn get<O: Output>(
    context: &mut Context<'_, O>,
    tokens: &Tokens<'_>,
) -> Result<Step, &'static [u8]> {
    let (key, flags) = understand(context, tokens, false)?;
    check_opaque(tokens.from(2))?;
    let now = context.now.as_u32();
    let (hash, mut shard) = context.shard(key.bytes());
    shard.counters.cmd_meta += 1;
    let mut created = false;
    let mut item = shard.find(hash, key.bytes(), now);
    if item.is_none() && flags.vivify.is_some() {
        let request = vivify_request(&flags);
        item = shard.vivify(hash, key.bytes(), &request, b"", now);
        created = item.is_some();
    }
    count_get(&mut shard, item, flags.expires.is_some());
    let Some(item) = item else {
        drop(shard);
        if !flags.quiet {
            reply_status(context, b"EN", tokens, key.bytes(), flags.key_binary);
        }
        return Ok(Step::done());
    };
    let mut line = MetaLine::new();
    if flags.value {
        line.push(b"VA ");
        line.number(shard.slab.value_len(item) as u64);
    } else {
        line.push(b"HD");
    }
    let won = push_item(&mut line, &mut shard, item, tokens.from(2), &flags, created, now);
    if won {
        shard.slab.set_flag(item, WON, true);
    }
    line.push(b"\r\n");
    context.out.put(line.as_bytes());
    if !flags.no_bump {
        shard.bump(item, now);
    }
    if !flags.value {
        return Ok(Step::done());
    }
    // The rest of a value that is longer than there is room for.
    let range = shard.slab.value_range(item);
    let reading = Reading::begin(context.out, &mut shard, (item, hash), range);
    Ok(Step::new(0, reading.map_or(State::Command, State::Reading)))
}

fn count_get(shard: &mut Shard, item: Option<Chunk>, touch: bool) {
    match (item, touch) {
        (Some(item), false) => {
            shard.counters.cmd_get += 1;
            shard.class_counters_of(item).get_hits += 1;
        }
        (Some(item), true) => {
            shard.counters.cmd_touch += 1;
            shard.class_counters_of(item).touch_hits += 1;
        }
        (None, _) => {
            shard.counters.cmd_get += 1;
            shard.counters.get_misses += 1;
        }
    }
}

/// The flags of a hit in the order asked for, then Z, X and W. True if this client has won.
fn push_item(
    line: &mut MetaLine,
    shard: &mut Shard,
    item: Chunk,
    asked: &[&[u8]],
    flags: &MetaFlags,
    created: bool,
    now: u32,
) -> bool {
    let was_won = shard.slab.flag(item, WON);
    let mut won = created;
    for flag in asked {
        let slab = &shard.slab;
        match flag.first() {
            Some(b'T') => {
                if let Some(expires) = flags.expires {
                    shard.slab.header_mut(item).expires.set(expires);
                }
            }
            Some(b'N') if created => {
                shard.slab.header_mut(item).expires.set(flags.vivify.unwrap_or(NEVER));
            }
            Some(b'R') => {
                let expires = slab.header(item).expires.get();
                won |= !was_won && !created && expires != NEVER && expires < flags.recache;
            }
            Some(b's') => push_number(line, b" s", slab.value_len(item) as u64),
            Some(b't') => push_ttl(line, shard, item, now),
            Some(b'c') => push_number(line, b" c", slab.header(item).cas.get()),
            Some(b'f') => push_number(line, b" f", slab.header(item).client_flags.get()),
            Some(b'l') => {
                push_number(line, b" l", now.saturating_sub(slab.header(item).accessed.get()));
            }
            Some(b'h') => push_number(line, b" h", slab.flag(item, FETCHED)),
            _ => push_echo(line, flag, slab.key(item), slab.flag(item, KEY_BINARY)),
        }
    }
    if was_won {
        line.push(b" Z");
    }
    if shard.slab.flag(item, STALE) {
        line.push(b" X");
        won |= !was_won;
    }
    if won {
        line.push(b" W");
    }
    won
}

/// md.
pub(crate) fn delete<O: Output>(
    context: &mut Context<'_, O>,
    tokens: &Tokens<'_>,
) -> Result<Step, &'static [u8]> {
    let (key, flags) = understand(context, tokens, true)?;
    check_opaque(tokens.from(2))?;
    let (hash, mut shard) = context.shard(key.bytes());
    shard.counters.cmd_meta += 1;
    let status = match shard.find(hash, key.bytes(), context.now.as_u32()) {
        Some(item) if flags.cas.is_some_and(|cas| cas != shard.slab.header(item).cas.get()) => {
            shard.counters.delete_misses += 1;
            b"EX"
        }
        Some(item) => {
            if flags.invalidate {
                shard.invalidate(item, flags.expires, flags.new_cas);
            } else {
                shard.delete(item);
            }
            if flags.quiet {
                return Ok(Step::done());
            }
            b"HD"
        }
        None => {
            shard.counters.delete_misses += 1;
            b"NF"
        }
    };
    drop(shard);
    reply_status(context, status, tokens, key.bytes(), flags.key_binary);
    Ok(Step::done())
}

/// A reply of two letters and the flags that are echoed.
fn reply_status<O: Output>(
    context: &mut Context<'_, O>,
    status: &[u8; 2],
    tokens: &Tokens<'_>,
    key: &[u8],
    key_binary: bool,
) {
    let mut line = MetaLine::new();
    line.push(status);
    for flag in tokens.from(2) {
        push_echo(&mut line, flag, key, key_binary);
    }
    line.push(b"\r\n");
    context.reply(line.as_bytes());
}

/// ma.
pub(crate) fn arithmetic<O: Output>(
    context: &mut Context<'_, O>,
    tokens: &Tokens<'_>,
) -> Result<Step, &'static [u8]> {
    let (key, flags) = understand(context, tokens, true)?;
    let incr = match flags.mode {
        None | Some(b'I' | b'+') => true,
        Some(b'D' | b'-') => false,
        Some(_) => return Err(b"CLIENT_ERROR invalid mode for ma M token\r\n"),
    };
    check_opaque(tokens.from(2))?;
    let now = context.now.as_u32();
    let (hash, mut shard) = context.shard(key.bytes());
    shard.counters.cmd_meta += 1;
    let delta = Delta {
        incr,
        by: flags.delta.unwrap_or(1),
        // As for `cas`, 0 compares nothing.
        cas: flags.cas.filter(|&cas| cas != 0),
        new_cas: flags.new_cas,
    };
    let mut created = false;
    let mut outcome =
        context.charged(&mut shard, |shard| shard.arithmetic(hash, key.bytes(), &delta, now));
    if outcome == Arithmetic::NotFound && flags.vivify.is_some() {
        let mut initial = Line::<DIGITS_MAX>::new();
        initial.number(flags.initial);
        let request = vivify_request(&flags);
        outcome = match shard.vivify(hash, key.bytes(), &request, initial.as_bytes(), now) {
            Some(item) => Arithmetic::Done(item, flags.initial),
            None => Arithmetic::OutOfMemory,
        };
        created = true;
    }
    let status = match outcome {
        Arithmetic::Done(item, number) => {
            let key = (key.bytes(), &flags);
            let line = number_line(now, tokens, key, &mut shard, (item, number, created));
            drop(shard);
            if let Some(line) = line {
                context.reply(line.as_bytes());
            }
            return Ok(Step::done());
        }
        Arithmetic::NotFound => {
            shard.count_arithmetic_miss(incr);
            b"NF"
        }
        Arithmetic::Exists => b"EX",
        Arithmetic::NonNumeric => return Err(NON_NUMERIC),
        Arithmetic::OutOfMemory => return Err(NO_MEMORY),
    };
    drop(shard);
    reply_status(context, status, tokens, key.bytes(), flags.key_binary);
    Ok(Step::done())
}

/// The successful reply of `ma`: the new number, and what the flags ask for; none where they ask for silence.
fn number_line(
    now: u32,
    tokens: &Tokens<'_>,
    (key, flags): (&[u8], &MetaFlags),
    shard: &mut Shard,
    (item, number, created): (Chunk, u64, bool),
) -> Option<MetaLine> {
    let mut digits = Line::<DIGITS_MAX>::new();
    digits.number(number);
    let mut line = MetaLine::new();
    if flags.value {
        line.push(b"VA ");
        line.number(digits.as_bytes().len() as u64);
    } else {
        line.push(b"HD");
    }
    for flag in tokens.from(2) {
        match flag.first() {
            Some(b'c') => push_number(&mut line, b" c", shard.slab.header(item).cas.get()),
            Some(b't') => push_ttl(&mut line, shard, item, now),
            Some(b'T') => {
                if let Some(expires) = flags.expires {
                    shard.slab.header_mut(item).expires.set(expires);
                }
            }
            Some(b'N') if created => {
                shard.slab.header_mut(item).expires.set(flags.vivify.unwrap_or(NEVER));
            }
            _ => push_echo(&mut line, flag, key, flags.key_binary),
        }
    }
    if flags.quiet && !created {
        return None;
    }
    line.push(b"\r\n");
    if flags.value {
        line.push(digits.as_bytes());
        line.push(b"\r\n");
    }
    Some(line)
}

/// me: what is known of an item, for people.
pub(crate) fn debug<O: Output>(
    context: &mut Context<'_, O>,
    tokens: &Tokens<'_>,
) -> Result<Step, &'static [u8]> {
    let token = tokens.get(1);
    if tokens.len() < 2 || token.len() > KEY_MAX_BYTES {
        return Err(BAD_FORMAT);
    }
    let key = MetaKey::new(token, tokens.get(2) == b"b").ok_or(BAD_FORMAT)?;
    let now = context.now.as_u32();
    let (hash, mut shard) = context.shard(key.bytes());
    shard.counters.cmd_meta += 1;
    let item = shard.find(hash, key.bytes(), now).ok_or(&b"EN\r\n"[..])?;
    let slab = &shard.slab;
    let mut line = MetaLine::new();
    line.push(b"ME ");
    if slab.flag(item, KEY_BINARY) {
        let mut text = [0; ENCODED_KEY_MAX_BYTES];
        let len = base64::encode(slab.key(item), &mut text);
        line.push(&text[..len]);
    } else {
        line.push(slab.key(item));
    }
    // memcached counts from the expiry to now, so that what is left is negative; likewise here.
    let expires = slab.header(item).expires.get();
    line.push(b" exp=-");
    line.number(if expires == NEVER { 1 } else { u64::from(expires.saturating_sub(now)) });
    line.push(b" la=");
    line.number(u64::from(now.saturating_sub(slab.header(item).accessed.get())));
    line.push(b" cas=");
    line.number(slab.header(item).cas.get());
    line.push(if slab.flag(item, FETCHED) { b" fetch=yes cls=" } else { &b" fetch=no cls="[..] });
    line.number(slab.class_of(item) as u64 + 1);
    line.push(b" size=");
    line.number(slab.item_bytes(item) as u64);
    line.push(b"\r\n");
    drop(shard);
    context.reply(line.as_bytes());
    Ok(Step::done())
}
