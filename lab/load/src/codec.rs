//! Incremental parsers of the responses: any split of the bytes gives the same answers.
//!
//! The caller knows which request the next response answers, and says so on each call; the parser
//! says how much it took and how the response ended. What does not belong to the protocol is a
//! [`Violation`], after which nothing on that connection can be trusted.
//!
//! ```
//! use load::{Outcome, Request, ResponseParser, Workload, WorkloadConfig};
//! let workload = Workload::new(&WorkloadConfig::usr(), 1)?;
//! let mut parser = ResponseParser::default();
//! let progress = parser.advance(&workload, Request::set(3), true, b"STORED\r\nSTO").unwrap();
//! assert_eq!((progress.consumed, progress.outcome), (8, Some(Outcome::Complete)));
//! # Ok::<(), load::ConfigError>(())
//! ```

use serde::{Deserialize, Serialize};

use crate::workload::{Request, RequestKind, Workload};

/// Longest response line that is accepted, in bytes: `VALUE`, a key of 250 bytes, and numbers.
const LINE_BYTES_MAX: usize = 512;
/// Longest value that a response may announce, in bytes.
const ANNOUNCED_BYTES_MAX: u64 = 128 << 20;

/// How a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As asked, and its bytes are right wherever they were compared.
    Complete,
    /// The key of a GET is not there.
    Miss,
    /// The service answered with an error, or did not store.
    Error,
    /// Well formed, but not the bytes that belong to the key or message.
    WrongBytes,
}

/// How far one call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes taken from the front of the input.
    pub consumed: usize,
    /// How the response ended; `None` while it needs more bytes.
    pub outcome: Option<Outcome>,
}

/// Bytes that are no response of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Violation {
    /// A line that is too long.
    #[error("a response line is longer than {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// A line that is no answer to the request.
    #[error("a response line is not an answer to the request")]
    UnknownLine,
    /// A `VALUE` line whose fields cannot be read.
    #[error("a VALUE line is malformed")]
    BadValueLine,
    /// The bytes after a value are not CR LF.
    #[error("a value is not followed by CR LF")]
    BadValueEnd,
    /// Bytes that answer no request.
    #[error("bytes arrived that answer no request; is the service at its limit of connections?")]
    Unasked,
}

/// Where in a response the parser stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// At the start of a response, or of a line of it.
    Line,
    /// In a value or message: bytes seen of bytes to come.
    Content { seen: u64, total: u64 },
    /// After a value, before its CR.
    ContentCr,
    /// After a value, before its LF.
    ContentLf,
}

/// What the next response answers, and whether its content is compared.
#[derive(Clone, Copy)]
struct Asked<'a> {
    workload: &'a Workload,
    request: Request,
    verify: bool,
}

/// The parser of one connection's responses.
#[derive(Debug)]
pub struct ResponseParser {
    state: State,
    /// A `VALUE` was seen, so that `END` is a hit.
    hit: bool,
    /// Something did not match.
    wrong: bool,
    /// The part of a line that came before a split. Allocated at the first split of a line, since
    /// most connections never see one and there may be a million of them.
    line: Vec<u8>,
}

impl Default for ResponseParser {
    fn default() -> Self {
        Self { state: State::Line, hit: false, wrong: false, line: Vec::new() }
    }
}

impl ResponseParser {
    /// Takes bytes from the front of `bytes` until the response to `request` ends or the bytes
    /// do. `verify` decides whether content is compared; it and `request` must stay the same
    /// until the response ends.
    ///
    /// # Errors
    /// The bytes are no response of the protocol.
    pub fn advance(
        &mut self,
        workload: &Workload,
        request: Request,
        verify: bool,
        bytes: &[u8],
    ) -> Result<Progress, Violation> {
        let asked = Asked { workload, request, verify };
        let mut consumed = 0;
        while consumed < bytes.len() {
            let rest = &bytes[consumed..];
            let (taken, outcome) = match self.state {
                State::Line if is_returned(request.kind) => {
                    let total = workload.content_len(request) as u64;
                    self.state = State::Content { seen: 0, total };
                    (0, None)
                }
                State::Line => self.line(asked, rest)?,
                State::Content { seen, total } => self.content(asked, rest, seen, total),
                State::ContentCr => (self.expect(b'\r', State::ContentLf, rest)?, None),
                State::ContentLf => (self.expect(b'\n', State::Line, rest)?, None),
            };
            consumed += taken;
            if outcome.is_some() {
                return Ok(Progress { consumed, outcome });
            }
        }
        Ok(Progress { consumed, outcome: None })
    }

    /// Collects a line, across splits, and reads it.
    fn line(
        &mut self,
        asked: Asked<'_>,
        bytes: &[u8],
    ) -> Result<(usize, Option<Outcome>), Violation> {
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let taken = end.map_or(bytes.len(), |end| end + 1);
        if self.line.len() + taken > LINE_BYTES_MAX {
            return Err(Violation::LineTooLong);
        }
        if self.line.is_empty() && end.is_some() {
            // The usual case: the whole line is here and is read where it lies.
            return Ok((taken, self.read_line(asked, &bytes[..taken])?));
        }
        self.line.extend_from_slice(&bytes[..taken]);
        if end.is_none() {
            return Ok((taken, None));
        }
        // Taken out, so that the line can be read while the state changes; put back for its room.
        let mut line = std::mem::take(&mut self.line);
        let outcome = self.read_line(asked, &line)?;
        line.clear();
        self.line = line;
        Ok((taken, outcome))
    }

    fn read_line(&mut self, asked: Asked<'_>, line: &[u8]) -> Result<Option<Outcome>, Violation> {
        let line = line.strip_suffix(b"\r\n").ok_or(Violation::UnknownLine)?;
        // `ERROR Too many open connections` has a text, too.
        if line.starts_with(b"ERROR")
            || line.starts_with(b"CLIENT_ERROR")
            || line.starts_with(b"SERVER_ERROR")
        {
            return Ok(Some(self.finish(Outcome::Error)));
        }
        match (asked.request.kind, line) {
            (RequestKind::Set, b"STORED") => Ok(Some(self.finish(Outcome::Complete))),
            (RequestKind::Set, b"NOT_STORED" | b"EXISTS" | b"NOT_FOUND") => {
                Ok(Some(self.finish(Outcome::Error)))
            }
            (RequestKind::Get, b"END") => {
                let outcome = if self.hit { Outcome::Complete } else { Outcome::Miss };
                Ok(Some(self.finish(outcome)))
            }
            (RequestKind::Get, _) if line.starts_with(b"VALUE ") && !self.hit => {
                self.read_value_line(asked, &line[6..])?;
                Ok(None)
            }
            _ => Err(Violation::UnknownLine),
        }
    }

    /// `<key> <flags> <bytes> [<cas>]`
    fn read_value_line(&mut self, asked: Asked<'_>, fields: &[u8]) -> Result<(), Violation> {
        let Asked { workload, request, verify } = asked;
        let mut fields = fields.split(|&byte| byte == b' ');
        let (Some(key), Some(flags), Some(bytes)) = (fields.next(), fields.next(), fields.next())
        else {
            return Err(Violation::BadValueLine);
        };
        let flags = read_decimal(flags).ok_or(Violation::BadValueLine)?;
        let total = read_decimal(bytes).ok_or(Violation::BadValueLine)?;
        if total > ANNOUNCED_BYTES_MAX {
            return Err(Violation::BadValueLine);
        }
        self.hit = true;
        if verify {
            let expected = workload.content_len(request) as u64;
            self.wrong |= flags != 0 || total != expected || !workload.is_key(request.key, key);
        }
        self.state = if total == 0 { State::ContentCr } else { State::Content { seen: 0, total } };
        Ok(())
    }

    /// Takes content: compares it, or only counts it.
    fn content(
        &mut self,
        asked: Asked<'_>,
        bytes: &[u8],
        seen: u64,
        total: u64,
    ) -> (usize, Option<Outcome>) {
        let Asked { workload, request, verify } = asked;
        let taken = bytes.len().min(usize::try_from(total - seen).unwrap_or(usize::MAX));
        if verify && !self.wrong {
            let from = usize::try_from(seen).unwrap_or(usize::MAX);
            self.wrong = !workload.is_content(request, from, &bytes[..taken]);
        }
        let seen = seen + taken as u64;
        if seen < total {
            self.state = State::Content { seen, total };
            return (taken, None);
        }
        if is_returned(request.kind) {
            return (taken, Some(self.finish(Outcome::Complete)));
        }
        self.state = State::ContentCr;
        (taken, None)
    }

    fn expect(&mut self, byte: u8, next: State, bytes: &[u8]) -> Result<usize, Violation> {
        if bytes.first() != Some(&byte) {
            return Err(Violation::BadValueEnd);
        }
        self.state = next;
        Ok(1)
    }

    /// Ends a response; wrong bytes outweigh a good ending.
    fn finish(&mut self, outcome: Outcome) -> Outcome {
        let wrong = self.wrong;
        self.state = State::Line;
        self.hit = false;
        self.wrong = false;
        debug_assert!(self.line.is_empty(), "a line that was read is gone");
        if wrong { Outcome::WrongBytes } else { outcome }
    }
}

/// Whether the response is the request itself, without a line before it.
const fn is_returned(kind: RequestKind) -> bool {
    matches!(kind, RequestKind::Echo | RequestKind::Spin)
}

/// A decimal number without sign; `None` where it is none or too large.
fn read_decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 18 {
        return None;
    }
    text.iter().try_fold(0u64, |number, &byte| {
        byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0'))
    })
}

#[cfg(test)]
mod tests;
