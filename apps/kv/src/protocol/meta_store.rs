//! ms, meta set.

use super::context::{BAD_FORMAT, Context};
use super::line::{KEY_MAX_BYTES, Tokens, parse_i32};
use super::meta_flags::{META_TOKENS_MAX, MetaFlags, MetaKey, check_opaque};
use super::meta_reply::MetaReply;
use super::partial::{ValueCommand, ValueReply};
use super::reply::Output;
use super::step::{State, Step};
use super::value;
use crate::store::operations::{Mode, StoreRequest};

/// ms. Once the value's length is known, an error also swallows the value.
pub(crate) fn set<O: Output>(
    context: &mut Context<'_, O>,
    tokens: &Tokens<'_>,
    after: &[u8],
) -> Result<Step, &'static [u8]> {
    let key = tokens.get(1);
    if key.len() > KEY_MAX_BYTES || tokens.len() == 2 {
        return Err(BAD_FORMAT);
    }
    if tokens.len() > META_TOKENS_MAX {
        return Err(b"CLIENT_ERROR options flags too long\r\n");
    }
    let length = parse_i32(tokens.get(2)).filter(|&length| length <= i32::MAX - 2);
    let value_len = length.and_then(|length| usize::try_from(length).ok()).ok_or(BAD_FORMAT)?;
    Ok(match understand(context, tokens, key) {
        Ok((key, request, reply)) => {
            let command = ValueCommand { key: key.bytes(), request, value_len, reply };
            value::take(context, command, after)
        }
        Err(line) => {
            context.reply(line);
            Step::new(0, State::Swallow(value_len as u64 + 2))
        }
    })
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
    check_opaque(tokens.from(3))?;
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
