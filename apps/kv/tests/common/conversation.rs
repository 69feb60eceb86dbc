//! A session for a caller without a server: the tests, and the fuzz target of the protocol.

use kv::{Flow, Output, Session, Store, WallTime};

/// A [`Session`] with the bytes that it has not taken.
#[derive(Debug, Default)]
pub struct Conversation {
    session: Session,
    waiting: Vec<u8>,
}

impl Conversation {
    /// A new one.
    pub const fn new() -> Self {
        Self { session: Session::new(), waiting: Vec::new() }
    }

    /// As [`Session::feed`], to the end of what can be answered: [`Flow::Continue`], [`Flow::Close`] or
    /// [`Flow::Abort`]. `out` must have room for all.
    pub fn feed(
        &mut self,
        store: &Store,
        now: WallTime,
        input: &[u8],
        out: &mut impl Output,
    ) -> Flow {
        self.waiting.extend_from_slice(input);
        loop {
            let flow = self.session.feed(store, now, &self.waiting, out);
            let left = match flow {
                Flow::Partial { left, .. } | Flow::Yield { left } => left,
                Flow::Continue | Flow::Close | Flow::Abort => 0,
            };
            self.waiting.drain(..self.waiting.len() - left);
            match flow {
                Flow::Yield { .. } => match self.session.resume(store, out) {
                    Flow::Continue if self.waiting.is_empty() => return Flow::Continue,
                    Flow::Continue => {}
                    ended => return ended,
                },
                Flow::Partial { .. } => return Flow::Continue,
                Flow::Continue | Flow::Close | Flow::Abort => return flow,
            }
        }
    }

    /// As [`Session::is_idle`].
    pub fn is_idle(&self) -> bool {
        self.session.is_idle()
    }

    /// As [`Session::close`].
    pub fn close(&mut self, store: &Store) {
        self.session.close(store);
    }
}
