//! The flags of meta commands (protocol.txt, "Meta Commands").

use super::base64;
use super::context::BAD_FORMAT;
use super::line::{KEY_MAX_BYTES, parse_i32, parse_u32, parse_u64};
use crate::WallTime;

/// A meta command has at most this many tokens, command and key included.
pub(crate) const META_TOKENS_MAX: usize = 19;

/// The longest opaque token, its `O` included.
pub(crate) const OPAQUE_MAX_BYTES: usize = 32;

const INVALID_FLAG: &[u8] = b"CLIENT_ERROR invalid flag\r\n";
const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad token in command line format\r\n";

/// What the flags of one command ask for.
#[derive(Debug, Clone, Default)]
pub(crate) struct MetaFlags {
    /// u
    pub(crate) no_bump: bool,
    /// v
    pub(crate) value: bool,
    /// I
    pub(crate) invalidate: bool,
    /// q
    pub(crate) quiet: bool,
    /// b
    pub(crate) key_binary: bool,
    /// M
    pub(crate) mode: Option<u8>,
    /// T, as Unix seconds
    pub(crate) expires: Option<u32>,
    /// N, as Unix seconds
    pub(crate) vivify: Option<u32>,
    /// R, as Unix seconds; 0 never wins
    pub(crate) recache: u32,
    /// F
    pub(crate) client_flags: u32,
    /// C
    pub(crate) cas: Option<u64>,
    /// E
    pub(crate) new_cas: Option<u64>,
    /// D
    pub(crate) delta: Option<u64>,
    /// J
    pub(crate) initial: u64,
}

impl MetaFlags {
    /// Reads the flags. A duplicate or unknown one ends the reading; of other errors the last one
    /// is told.
    ///
    /// # Errors
    /// The line to answer with.
    pub(crate) fn parse(tokens: &[&[u8]], now: WallTime) -> Result<Self, &'static [u8]> {
        let mut flags = Self::default();
        let mut seen: u128 = 0;
        let mut error: Option<&'static [u8]> = None;
        for token in tokens {
            let Some((&name, argument)) = token.split_first() else {
                continue;
            };
            if name >= 127 || seen >> name & 1 != 0 {
                return Err(b"CLIENT_ERROR duplicate flag\r\n");
            }
            seen |= 1 << name;
            match flags.read(name, argument, now) {
                Ok(()) => {}
                Err(INVALID_FLAG) => return Err(INVALID_FLAG),
                // F has no message of its own and leaves an earlier one standing.
                Err(BAD_FORMAT) => error = error.or(Some(BAD_FORMAT)),
                Err(line) => error = Some(line),
            }
        }
        error.map_or(Ok(flags), Err)
    }

    fn read(&mut self, name: u8, argument: &[u8], now: WallTime) -> Result<(), &'static [u8]> {
        let expiry = || parse_i32(argument).map(|exptime| now.expiry(exptime)).ok_or(BAD_TOKEN);
        let number = |line: &'static [u8]| parse_u64(argument).ok_or(line);
        match name {
            b'b' => self.key_binary = true,
            b'u' => self.no_bump = true,
            b'v' => self.value = true,
            b'I' => self.invalidate = true,
            b'q' => self.quiet = true,
            b'N' => self.vivify = Some(expiry()?),
            b'T' => self.expires = Some(expiry()?),
            b'R' => self.recache = expiry()?,
            b'F' => self.client_flags = parse_u32(argument).ok_or(BAD_FORMAT)?,
            b'C' => self.cas = Some(number(BAD_TOKEN)?),
            b'E' => self.new_cas = Some(number(BAD_TOKEN)?),
            b'M' => {
                let &[mode] = argument else {
                    return Err(b"CLIENT_ERROR incorrect length for M token\r\n");
                };
                self.mode = Some(mode);
            }
            b'J' => self.initial = number(b"CLIENT_ERROR invalid numeric initial value\r\n")?,
            b'D' => self.delta = Some(number(b"CLIENT_ERROR invalid numeric delta value\r\n")?),
            // Asked for in the reply, or hints for proxies that mean nothing here.
            b'l' | b'h' | b'k' | b's' | b't' | b'c' | b'f' | b'O' | b'P' | b'L' => {}
            _ => return Err(INVALID_FLAG),
        }
        Ok(())
    }
}

/// Checks that no opaque token is longer than can be copied back.
///
/// # Errors
/// The line to answer with.
pub(crate) fn check_opaque(tokens: &[&[u8]]) -> Result<(), &'static [u8]> {
    let too_long = |token: &&[u8]| token.first() == Some(&b'O') && token.len() > OPAQUE_MAX_BYTES;
    match tokens.iter().any(too_long) {
        true => Err(b"CLIENT_ERROR opaque token too long\r\n"),
        false => Ok(()),
    }
}

/// The key of a meta command, decoded where the `b` flag says so.
#[derive(Debug)]
pub(crate) struct MetaKey<'a> {
    plain: &'a [u8],
    decoded: [u8; KEY_MAX_BYTES],
    decoded_len: usize,
    binary: bool,
}

impl<'a> MetaKey<'a> {
    /// None: it is not base64.
    pub(crate) fn new(token: &'a [u8], binary: bool) -> Option<Self> {
        let mut key = Self { plain: token, decoded: [0; KEY_MAX_BYTES], decoded_len: 0, binary };
        if binary {
            key.decoded_len = base64::decode(token, &mut key.decoded)?;
        }
        Some(key)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.binary { &self.decoded[..self.decoded_len] } else { self.plain }
    }
}
