//! Middleware that looks at every frame of both directions, once, and changes none: what captures and
//! tracers have in common.

use clock::Instant;
use mem::{Mbuf, Pool, TxFrame};

use crate::{Armed, Capabilities, Closed, Nic, chunks};

/// Which way a frame goes, as its host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It was received.
    Received,
    /// It is about to be sent.
    Sent,
}

/// What looks at frames.
pub trait Tap {
    /// Whether it wants to see anything just now: asked once for each burst.
    fn is_listening(&self) -> bool {
        true
    }

    /// Sees a frame, from its Ethernet header on.
    fn see(&mut self, now: Instant, direction: Direction, frame: &[u8]);
}

/// A driver with a tap before it.
#[derive(Debug)]
pub struct Tapped<N, T> {
    pub(crate) inner: N,
    pub(crate) tap: T,
    /// Frames at the front of the caller's queue that were seen, but that the inner driver had no room
    /// for: the caller offers them again, first and in order.
    seen_ahead: usize,
    /// A frame of several chunks.
    joined: Vec<u8>,
}

impl<N: Nic, T: Tap> Tapped<N, T> {
    pub(crate) fn with_tap(inner: N, tap: T) -> Self {
        Self { inner, tap, seen_ahead: 0, joined: Vec::new() }
    }
}

impl<N: Nic, T: Tap> Nic for Tapped<N, T> {
    fn receive(
        &mut self,
        now: Instant,
        pool: &mut Pool,
        out: &mut Vec<Mbuf>,
        limit: usize,
    ) -> usize {
        let count = self.inner.receive(now, pool, out, limit);
        if count > 0 && self.tap.is_listening() {
            let first = out.len() - count.min(out.len());
            for mbuf in &out[first..] {
                self.tap.see(now, Direction::Received, mbuf.bytes());
            }
        }
        count
    }

    fn transmit(&mut self, now: Instant, pool: &mut Pool, frames: &mut Vec<TxFrame>) -> usize {
        if !frames.is_empty() && self.tap.is_listening() {
            // Seen before they go, as their bytes are the driver's afterwards.
            let unseen = frames.get(self.seen_ahead..).unwrap_or_default();
            for frame in chunks::frames(unseen) {
                self.tap.see(now, Direction::Sent, chunks::joined(frame, &mut self.joined));
            }
        }
        let taken = self.inner.transmit(now, pool, frames);
        self.seen_ahead = frames.len();
        taken
    }

    fn close(self, pool: &mut Pool) -> Closed {
        self.inner.close(pool)
    }
    hand_on!(self, self.inner);

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn next_event(&self) -> Option<Instant> {
        self.inner.next_event()
    }

    fn arm(&mut self) -> Armed {
        self.inner.arm()
    }
}
