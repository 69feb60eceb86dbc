//! ms, meta set.

use super::base64::{self, ENCODED_KEY_MAX_BYTES};
use super::command::{BAD_FORMAT, Context, Next, Step};
use super::line::{Tokens, parse_i32};
use super::meta_flags::{MetaFlags, MetaKey, OPAQUE_MAX_BYTES, opaque_too_long};
use super::reply::{Line, Output};
use super::value::{self, KEY_MAX_BYTES, ValueCommand, ValueReply};
use crate::store::operations::{Mode, StoreOutcome, StoreRequest};

/// Longest reply line of any meta command: status, value length, nine flags with numbers of at most
/// 20 digits, the opaque token and an encoded key.
pub(crate) const META_LINE_MAX_BYTES: usize = 640;

/// A meta command has at most this many tokens, command and key included.
pub(crate) const META_TOKENS_MAX: usize = 19;

/// What an `ms` is to be answered with; kept until its value has arrived.
#[derive(Debug, Clone)]
pub(crate) struct MetaReply {
    quiet: bool,
    /// Flags O, k and c in the order given; 0 ends them.
    order: [u8; 3],
    opaque: [u8; OPAQUE_MAX_BYTES],
    opaque_len: usize,
}

impl MetaReply {
    fn new(flags: &[&[u8]], quiet: bool) -> Self {
        let mut reply = Self { quiet, order: [0; 3], opaque: [0; OPAQUE_MAX_BYTES], opaque_len: 0 };
        let mut len = 0;
        for flag in flags {
            if let [name @ (b'O' | b'k' | b'c'), ..] = flag
                && len < reply.order.len()
            {
                reply.order[len] = *name;
                len += 1;
                if *name == b'O' {
                    reply.opaque_len = flag.len().min(OPAQUE_MAX_BYTES);
                    reply.opaque[..reply.opaque_len].copy_from_slice(&flag[..reply.opaque_len]);
                }
            }
        }
        reply
    }

    /// Answers how the command ended.
    pub(crate) fn put(
        &self,
        out: &mut impl Output,
        outcome: StoreOutcome,
        key: &[u8],
        binary: bool,
    ) {
        let (status, cas) = match outcome {
            StoreOutcome::Stored(_) if self.quiet => return,
            StoreOutcome::Stored(cas) => (b"HD", cas),
            StoreOutcome::Exists => (b"EX", 0),
            StoreOutcome::NotFound => (b"NF", 0),
            StoreOutcome::NotStored | StoreOutcome::OutOfMemory => (b"NS", 0),
        };
        let mut line = Line::<META_LINE_MAX_BYTES>::new();
        line.push(status);
        for flag in self.order {
            match flag {
                b'O' => {
                    line.push(b" ");
                    line.push(&self.opaque[..self.opaque_len]);
                }
                b'k' => push_key(&mut line, key, binary),
                b'c' => {
                    line.push(b" c");
                    line.number(cas);
                }
                _ => break,
            }
        }
        line.push(b"\r\n");
        out.put(line.as_bytes());
    }
}

/// The `k` flag of a reply, with `b` if the key is encoded.
pub(crate) fn push_key(line: &mut Line<META_LINE_MAX_BYTES>, key: &[u8], binary: bool) {
    line.push(b" k");
    if binary {
        let mut text = [0; ENCODED_KEY_MAX_BYTES];
        let len = base64::encode(key, &mut text);
        line.push(&text[..len]);
        line.push(b" b");
    } else {
        line.push(key);
    }
}

/// ms. Once the value's length is known, an error also swallows the value.
pub(crate) fn set<O: Output>(
    context: &mut Context<'_, O>,
    tokens: &Tokens<'_>,
    after: &[u8],
) -> Step {
    let key = tokens.get(1);
    if key.len() > KEY_MAX_BYTES || tokens.len() == 2 {
        context.reply(BAD_FORMAT);
        return Step::done();
    }
    if tokens.len() > META_TOKENS_MAX {
        context.reply(b"CLIENT_ERROR options flags too long\r\n");
        return Step::done();
    }
    let length = parse_i32(tokens.get(2)).filter(|&length| length <= i32::MAX - 2);
    let Some(value_len) = length.and_then(|length| usize::try_from(length).ok()) else {
        context.reply(BAD_FORMAT);
        return Step::done();
    };
    match understand(context, tokens, key) {
        Ok((key, request, reply)) => {
            let command = ValueCommand { key: key.bytes(), request, value_len, reply };
            value::take(context, command, after)
        }
        Err(line) => {
            context.reply(line);
            Step::new(0, Next::Swallow(value_len as u64 + 2))
        }
    }
}

fn understand<'a, O>(
    context: &Context<'_, O>,
    tokens: &Tokens<'_>,
    key: &'a [u8],
) -> Result<(MetaKey<'a>, StoreRequest, ValueReply), &'static [u8]> {
    let flags = MetaFlags::parse(tokens.from(3), context.now)?;
    let key =
        MetaKey::new(key, flags.key_binary).ok_or(&b"CLIENT_ERROR error decoding key\r\n"[..])?;
    let mode = match (flags.mode, flags.cas) {
        (None | Some(b'S' | b'R'), Some(_)) => Mode::Cas,
        (None | Some(b'S'), None) => Mode::Set,
        (Some(b'R'), None) => Mode::Replace,
        (Some(b'E'), _) => Mode::Add,
        (Some(b'A'), _) => Mode::Append,
        (Some(b'P'), _) => Mode::Prepend,
        _ => return Err(b"CLIENT_ERROR invalid mode for ms M token\r\n"),
    };
    if opaque_too_long(tokens.from(3)) {
        return Err(b"CLIENT_ERROR opaque token too long\r\n");
    }
    let request = StoreRequest {
        mode,
        client_flags: flags.client_flags,
        expires: flags.expires.unwrap_or(crate::time::NEVER),
        cas: flags.cas.unwrap_or(0),
        new_cas: flags.new_cas,
        accept_stale: flags.invalidate,
        key_binary: flags.key_binary,
    };
    Ok((key, request, ValueReply::Meta(MetaReply::new(tokens.from(3), flags.quiet))))
}
