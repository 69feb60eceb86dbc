//! What a command line leads to: how much of the input was used, and what the connection expects next.

use super::partial::Partial;
use super::reading::{Keys, Reading};

/// What a connection expects.
#[derive(Debug, Default)]
pub(crate) enum State {
    /// A command line.
    #[default]
    Command,
    /// So many bytes that mean nothing.
    Swallow(u64),
    /// The rest of a value.
    Value(Box<Partial>),
    /// In a retrieval command, before a key: the input goes on with the rest of its line.
    Keys(Keys),
    /// In the reply to a retrieval command, within a value: the peer is to read.
    Reading(Box<Reading>),
    /// Nothing: it is to be closed.
    Closed,
}

/// How a command line was taken.
#[derive(Debug)]
pub(crate) struct Step {
    /// Whether all of the line was taken.
    pub(crate) is_whole: bool,
    /// Bytes used: of those behind a whole line, else of the line.
    pub(crate) consumed: usize,
    pub(crate) next: State,
}

impl Step {
    /// The line and so many of the bytes behind it.
    pub(crate) fn new(consumed: usize, next: State) -> Self {
        Self { is_whole: true, consumed, next }
    }

    /// The line up to this place; the rest of it is to be given again.
    pub(crate) fn part(consumed: usize, next: State) -> Self {
        Self { is_whole: false, consumed, next }
    }

    /// The next command line, none of the bytes after this one used.
    pub(crate) fn done() -> Self {
        Self::new(0, State::Command)
    }
}
