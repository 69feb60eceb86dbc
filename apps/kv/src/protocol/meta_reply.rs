//! How meta commands are answered: the longest line, the key in it, and the answer to an `ms`.

use super::base64::{self, ENCODED_KEY_MAX_BYTES};
use super::meta_flags::OPAQUE_MAX_BYTES;
use super::reply::{Line, Output};
use crate::store::operations::StoreOutcome;

/// Longest reply line of any meta command: status, value length, nine flags with numbers of at most
/// 20 digits, the opaque token and an encoded key.
pub(crate) const META_LINE_MAX_BYTES: usize = 640;

/// What an `ms` is to be answered with; kept until its value has arrived.
#[derive(Debug, Clone)]
pub(crate) struct MetaReply {
    quiet: bool,
    /// Flags O, k and c in the order given.
    order: Line<3>,
    opaque: Line<OPAQUE_MAX_BYTES>,
}

impl MetaReply {
    /// None of `flags` is there twice, and the opaque token is not too long.
    pub(super) fn new(flags: &[&[u8]], quiet: bool) -> Self {
        let mut reply = Self { quiet, order: Line::new(), opaque: Line::new() };
        for flag in flags {
            if let [name @ (b'O' | b'k' | b'c'), ..] = flag {
                reply.order.push(&[*name]);
            }
            if flag.first() == Some(&b'O') {
                reply.opaque.push(flag);
            }
        }
        reply
    }

    /// Answers how the command ended.
    pub(super) fn put(
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
        for flag in self.order.as_bytes() {
            match flag {
                b'O' => {
                    line.push(b" ");
                    line.push(self.opaque.as_bytes());
                }
                b'k' => push_key(&mut line, key, binary),
                _ => {
                    line.push(b" c");
                    line.number(cas);
                }
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
