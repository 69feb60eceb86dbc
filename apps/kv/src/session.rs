//! One connection's place in the protocol.
//!
//! Requests that lie wholly in the bytes given to [`Session::feed`] are carried out from there. A command
//! line that is cut off is not taken: its bytes are to be given again, with what follows them. A value that
//! is cut goes part by part into its item, for which there is a ticket. A reply that there is no room for
//! stops at a key, or within a long value, which is then pinned. So a session itself holds no bytes, and
//! cutting a byte stream elsewhere never changes the replies.

use tailplane::Flow;

use crate::protocol::command;
use crate::protocol::context::{Context, TURN_OPERATIONS};
use crate::protocol::line::{find, until_nul};
use crate::protocol::partial::Partial;
use crate::protocol::reading::{Keys, Progress, Reading};
use crate::protocol::reply::Output;
use crate::protocol::step::{State, Step};
use crate::protocol::text;
use crate::{Store, WallTime};

/// A line longer than this is not a command (memcached gives up at the same length); the connection
/// is closed without an answer.
pub const LINE_MAX_BYTES: usize = 2048;

/// Retrieval commands may name any number of keys. Of a line up to this length all keys are looked at before one is
/// answered, as memcached does it; those of a longer one are answered as they come.
pub const MULTIGET_WHOLE_BYTES: usize = 64 << 10;

/// Memory that a session may have for a value or a reply in part, the store's entry for it included.
pub(crate) const REQUEST_BYTES: usize = {
    const ENTRY_BYTES: usize = 64;
    let (value, reading) = (size_of::<Partial>(), size_of::<Reading>());
    (if value > reading { value } else { reading }) + ENTRY_BYTES
};

/// The protocol state of one connection: two words while no request is half received.
///
/// Call [`Session::close`] when the connection ends: half-received values and half-sent ones then free their
/// memory at once, and otherwise only when the store wants it.
#[derive(Debug, Default)]
pub struct Session {
    state: State,
    /// Bytes at the beginning of the next input that are known to hold no end of a line.
    scanned: u32,
}

// Tens of thousands of idle connections cost no more than this each.
const _: () = assert!(size_of::<Session>() <= 24);
// What is scanned is a part of a line.
const _: () = assert!(MULTIGET_WHOLE_BYTES <= u32::MAX as usize);

impl Session {
    /// A new connection's state.
    pub const fn new() -> Self {
        Self { state: State::Command, scanned: 0 }
    }

    /// Whether no request is half received or half answered.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Command) && self.scanned == 0
    }

    /// Takes received bytes, and puts the replies to `out` in order.
    ///
    /// - [`Flow::Partial`]: the last `left` bytes are the beginning of a command line, to be given again in
    ///   front of what follows.
    /// - [`Flow::Yield`]: there is no room for the reply, or others are to be served. Call
    ///   [`resume`](Self::resume), then this with the last `left` bytes.
    /// - After [`Flow::Close`] further input is ignored.
    pub fn feed(
        &mut self,
        store: &Store,
        now: WallTime,
        input: &[u8],
        out: &mut impl Output,
    ) -> Flow {
        let mut context = Context { store, now, out, turn: TURN_OPERATIONS, is_cut: false };
        let mut begun = self.is_idle();
        let mut rest = input;
        while !rest.is_empty() {
            if self.lacks_key(rest) {
                return Flow::Partial { left: rest.len(), begun };
            }
            let taken = match &mut self.state {
                State::Command => match self.feed_command(&mut context, rest) {
                    Some(taken) => taken,
                    None => return Flow::Partial { left: rest.len(), begun },
                },
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
                State::Keys(keys) => {
                    let keys = *keys;
                    // Each key is as good as a command: the peer goes on.
                    begun = true;
                    self.feed_keys(&mut context, keys, rest)
                }
                State::Reading(_) => break,
                State::Closed => return Flow::Close,
            };
            debug_assert!(taken <= rest.len(), "more was taken than there is");
            rest = &rest[taken..];
            begun |= matches!(self.state, State::Command);
            let is_paused =
                matches!(self.state, State::Keys(_) | State::Reading(_)) && !self.lacks_key(rest);
            if is_paused || (!rest.is_empty() && begun && context.is_over()) {
                return Flow::Yield { left: rest.len() };
            }
        }
        match self.state {
            State::Command => Flow::Continue,
            State::Swallow(_) | State::Value(_) => Flow::Partial { left: 0, begun },
            State::Keys(Keys { is_long: true, .. }) => Flow::Partial { left: 0, begun },
            State::Keys(_) | State::Reading(_) => Flow::Yield { left: rest.len() },
            State::Closed => Flow::Close,
        }
    }

    /// Goes on with a reply that was broken off. [`Flow::Abort`]: its item is gone, so that the reply cannot be
    /// completed.
    pub fn resume(&mut self, store: &Store, out: &mut impl Output) -> Flow {
        let State::Reading(reading) = &mut self.state else { return Flow::Continue };
        match reading.send(out, store) {
            Progress::NoRoom => return Flow::Yield { left: 0 },
            Progress::Lost => {
                self.state = State::Closed;
                return Flow::Abort;
            }
            Progress::Done => {}
        }
        self.state = reading.then.map_or(State::Command, State::Keys);
        match self.awaits_keys() {
            // The rest of the line may not be here.
            true => Flow::Partial { left: 0, begun: true },
            false => Flow::Continue,
        }
    }

    /// Gives back what a half-received or half-sent value holds. The session takes no more input.
    pub fn close(&mut self, store: &Store) {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Value(partial) => partial.abandon(store),
            State::Reading(reading) => reading.abandon(store),
            State::Command | State::Swallow(_) | State::Keys(_) | State::Closed => {}
        }
    }

    /// Carries out the command that `rest` begins with. `None`: it is incomplete.
    fn feed_command<O: Output>(
        &mut self,
        context: &mut Context<'_, O>,
        rest: &[u8],
    ) -> Option<usize> {
        let scanned = (std::mem::take(&mut self.scanned) as usize).min(rest.len());
        let found = find::<b'\n'>(&rest[scanned..]).map(|end| scanned + end);
        let in_limit = line_len_ok(&rest[..found.unwrap_or(rest.len())]);
        let (line, after) = match (found, in_limit) {
            (Some(end), true) => (&rest[..end], &rest[end + 1..]),
            (None, true) => {
                self.scanned = rest.len() as u32;
                return None;
            }
            // The same keys wherever the stream is cut.
            (_, false) => match whole_keys(&rest[..rest.len().min(MULTIGET_WHOLE_BYTES)]) {
                Some(keys) if retrieves(keys) => {
                    context.is_cut = true;
                    (keys, &[][..])
                }
                _ => {
                    self.state = State::Closed;
                    return Some(rest.len());
                }
            },
        };
        let line_len = line.len() + 1;
        let mut step = command::execute(context, line, after);
        let is_cut = std::mem::take(&mut context.is_cut);
        if matches!(step.next, State::Command) {
            if step.is_whole && !is_cut {
                // As nearly always: the state is this one already.
                return Some(line_len + step.consumed);
            }
            if is_cut {
                // An error: what follows it on the line is no command.
                step.next = State::Closed;
            }
        }
        Some(self.take(step, line_len, rest))
    }

    /// Goes to the state that a step leads to. Answers the bytes taken off the front of `rest`, whose line has
    /// `line_len`, its end included.
    fn take(&mut self, step: Step, line_len: usize, rest: &[u8]) -> usize {
        self.state = step.next;
        match self.state {
            State::Closed => rest.len(),
            _ if step.is_whole => line_len + step.consumed,
            _ => step.consumed,
        }
    }

    /// Answers the rest of a retrieval command's keys, with which `rest` begins, or what of it is there.
    fn feed_keys<O: Output>(
        &mut self,
        context: &mut Context<'_, O>,
        keys: Keys,
        rest: &[u8],
    ) -> usize {
        let end = find::<b'\n'>(rest);
        let line = match end {
            Some(end) => rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]),
            // Without an end it is a key that is too long.
            None => whole_keys(rest).unwrap_or(rest),
        };
        let line = if keys.is_long { line } else { until_nul(line) };
        context.is_cut = end.is_none();
        let step = text::go_on(context, line, keys);
        context.is_cut = false;
        self.take(step, end.map_or(rest.len(), |end| end + 1), rest)
    }

    /// Whether the next key of a long line is not whole yet, and not too long either.
    fn lacks_key(&self, rest: &[u8]) -> bool {
        let ends_key = |byte: &u8| matches!(byte, b' ' | b'\n');
        self.awaits_keys() && rest.len() <= LINE_MAX_BYTES && !rest.iter().any(ends_key)
    }

    /// Whether keys of a long line may be to come.
    fn awaits_keys(&self) -> bool {
        matches!(self.state, State::Keys(Keys { is_long: true, .. }))
    }
}

/// Whether a line, or the beginning of one, is within the limit for its kind.
#[inline]
fn line_len_ok(line: &[u8]) -> bool {
    line.len() <= LINE_MAX_BYTES || (line.len() <= MULTIGET_WHOLE_BYTES && retrieves(line))
}

/// Whether a line is a command for which any number of keys may be named.
fn retrieves(line: &[u8]) -> bool {
    let start = line.iter().take_while(|&&byte| byte == b' ').count();
    let names = [&b"get "[..], b"gat ", b"gets ", b"gats "];
    // Where the name ends later, a line that is cut before it would have been given up.
    let is_in_limit = |name: &[u8]| start + name.len() <= LINE_MAX_BYTES;
    names.iter().any(|name| line[start..].starts_with(name) && is_in_limit(name))
}

/// The beginning of a line that is cut within a key: up to the space in front of that. None: no key is whole.
fn whole_keys(rest: &[u8]) -> Option<&[u8]> {
    let end = rest.iter().rposition(|&byte| byte == b' ')?;
    Some(&rest[..=end])
}
