//! One connection's place in the protocol.
//!
//! Requests that lie wholly in the bytes given to [`Session::feed`] are carried out from there. Only
//! what is cut off at the end is kept: the beginning of a command line, or, for a value, a ticket for
//! the item that it is being copied into. Cutting a byte stream elsewhere never changes the replies.

use crate::protocol::command::{self, Context, Next};
use crate::protocol::line::find;
use crate::protocol::reply::Output;
use crate::protocol::value::Partial;
use crate::{Store, WallTime};

/// A line longer than this is not a command (memcached gives up at the same length); the connection
/// is closed without an answer.
pub const LINE_MAX_BYTES: usize = 2048;

/// Retrieval commands may name many keys in lines up to this length, after which the connection is
/// closed; memcached sets no limit.
pub const MULTIGET_LINE_MAX_BYTES: usize = 64 << 10;

/// Whether the connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a connection that is to be closed must be closed by the caller"]
pub enum Verdict {
    /// More input is welcome.
    Continue,
    /// Send the replies so far, then close.
    Close,
}

/// The protocol state of one connection; a few dozen bytes while no request is half received.
///
/// Call [`Session::close`] when the connection ends: half-received values then free their memory at
/// once, and otherwise only when the store wants it.
#[derive(Debug)]
pub struct Session {
    /// The beginning of a command line.
    line: Vec<u8>,
    state: State,
}

#[derive(Debug)]
enum State {
    Command,
    Swallow(u64),
    Value(Box<Partial>),
    Closed,
}

// Tens of thousands of idle connections cost no more than this each.
const _: () = assert!(size_of::<Session>() <= 64);

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

impl Session {
    /// A new connection's state.
    pub const fn new() -> Self {
        Self { line: Vec::new(), state: State::Command }
    }

    /// Whether no request is half received.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Command) && self.line.is_empty()
    }

    /// Takes received bytes, all of them, and puts the replies to `out` in order.
    ///
    /// After [`Verdict::Close`] further input is ignored.
    pub fn feed(
        &mut self,
        store: &Store,
        now: WallTime,
        input: &[u8],
        out: &mut impl Output,
    ) -> Verdict {
        let mut context = Context { store, now, out };
        let mut rest = input;
        while !rest.is_empty() {
            let taken = match &mut self.state {
                State::Command => self.feed_command(&mut context, rest),
                State::Swallow(left) => {
                    let taken = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= taken as u64;
                    if *left == 0 {
                        self.state = State::Command;
                    }
                    taken
                }
                State::Value(partial) => {
                    let (taken, complete) = partial.receive(&mut context, rest);
                    if complete {
                        self.state = State::Command;
                    }
                    taken
                }
                State::Closed => return Verdict::Close,
            };
            debug_assert!(taken > 0 && taken <= rest.len(), "input that is not used up");
            rest = &rest[taken..];
        }
        if matches!(self.state, State::Closed) { Verdict::Close } else { Verdict::Continue }
    }

    /// Gives back what a half-received value holds. The session takes no more input.
    pub fn close(&mut self, store: &Store) {
        if let State::Value(partial) = std::mem::replace(&mut self.state, State::Closed) {
            partial.abandon(store);
        }
        self.line = Vec::new();
    }

    /// Carries out the command that ends in `rest`, or keeps what there is of it.
    fn feed_command<O: Output>(&mut self, context: &mut Context<'_, O>, rest: &[u8]) -> usize {
        let Some(end) = find::<b'\n'>(rest) else {
            if self.line_len_ok(rest, rest.len()) {
                self.line.extend_from_slice(rest);
            } else {
                self.end();
            }
            return rest.len();
        };
        if !self.line_len_ok(rest, end) {
            self.end();
            return rest.len();
        }
        let (line, after) = (&rest[..end], &rest[end + 1..]);
        let step = if self.line.is_empty() {
            command::execute(context, line, after)
        } else {
            let mut whole = std::mem::take(&mut self.line);
            whole.extend_from_slice(line);
            command::execute(context, &whole, after)
        };
        match step.next {
            Next::Command => {}
            Next::Swallow(bytes) => self.state = State::Swallow(bytes),
            Next::Value(partial) => self.state = State::Value(partial),
            Next::Close => {
                self.end();
                return rest.len();
            }
        }
        end + 1 + step.consumed
    }

    fn end(&mut self) {
        self.state = State::Closed;
        self.line = Vec::new();
    }

    /// Whether the kept line with `more` bytes of `rest` is within the limit for its kind.
    fn line_len_ok(&self, rest: &[u8], more: usize) -> bool {
        let len = self.line.len() + more;
        if len <= LINE_MAX_BYTES {
            return true;
        }
        // The name is among the first bytes, wherever the line was cut.
        let start = self.line.iter().chain(&rest[..more]).skip_while(|&&byte| byte == b' ');
        let mut name = [0; 5];
        for (place, byte) in name.iter_mut().zip(start) {
            *place = *byte;
        }
        let retrieval = matches!(&name, b"get  " | b"gat  " | b"gets " | b"gats ")
            || matches!(&name[..4], b"get " | b"gat ");
        retrieval && len <= MULTIGET_LINE_MAX_BYTES
    }
}
