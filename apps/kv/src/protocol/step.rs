//! What a command line leads to: how much behind it was used, and what the connection expects next.

use super::partial::Partial;
use super::reading::{Keys, Reading};

/// What the connection expects after a command.
#[derive(Debug)]
pub(crate) enum Next {
    /// The next command line.
    Command,
    /// The same command line once more, in a later turn: its work is not done.
    Retry,
    /// So many bytes that mean nothing.
    Swallow(u64),
    /// The rest of a value.
    Value(Box<Partial>),
    /// The keys from offset `at` of the line on, once the peer has read; behind the value `reading`.
    Keys { at: usize, keys: Keys, reading: Option<Box<Reading>> },
    /// The next command line, behind this value.
    Reading(Box<Reading>),
    /// Nothing: it is to be closed.
    Close,
}

/// How a command line was taken.
#[derive(Debug)]
pub(crate) struct Step {
    /// Bytes used of those after the line.
    pub(crate) consumed: usize,
    pub(crate) next: Next,
}

impl Step {
    pub(crate) fn new(consumed: usize, next: Next) -> Self {
        Self { consumed, next }
    }

    /// The next command line, none of the bytes after this one used.
    pub(crate) fn done() -> Self {
        Self::new(0, Next::Command)
    }
}
