//! Frames that one thread sends for another.
//!
//! `unsafe` because the compiler cannot see that these frames may move between threads: a [`TxFrame`] is not `Send` as the
//! stack may hold a claim on its chunk, too (a segment that waits for its acknowledgment), and the two claims share a
//! state without atomics. A frame in here was made of an [`Mbuf`], which is the only claim on its chunk.
#![allow(unsafe_code)]

use alloc::vec::Vec;

use mem::{Mbuf, TxFrame};

use crate::chunks;

/// Frames that were mbufs, in order.
#[derive(Debug, Default)]
pub(crate) struct RelayedFrames(Vec<TxFrame>);

// SAFETY: see the module's comment. `push` is the only way in.
unsafe impl Send for RelayedFrames {}

impl RelayedFrames {
    pub fn with_capacity(frames: usize) -> Self {
        Self(Vec::with_capacity(frames))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends a frame, or a chunk of one, whose bytes are those of a [copy](chunks::copy).
    pub fn push(&mut self, copy: Mbuf) {
        self.0.push(chunks::into_tx(copy));
    }

    /// Has `send` take frames from the front. It must not add any.
    pub fn send<R>(&mut self, send: impl FnOnce(&mut Vec<TxFrame>) -> R) -> R {
        let before = self.0.len();
        let sent = send(&mut self.0);
        assert!(self.0.len() <= before, "a driver takes frames, and gives none");
        sent
    }

    /// All frames, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = TxFrame> + '_ {
        self.0.drain(..)
    }
}
