//! Resets of connections that ended when the NIC's queue had no room for them: they leave when it has.
//!
//! An application that ends thousands of connections in one batch of calls makes more resets than the queue takes. A
//! peer that is not told keeps its end for ever, where it only listens.

use alloc::collections::VecDeque;

use wire::SeqNumber;

use super::conn::Conn;
use super::fields::Ends;

/// Most resets that wait. What ends beyond is not told, and counted as a frame that was dropped.
const MOST: usize = 1 << 16;

/// All that a reset needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reset {
    pub ends: Ends,
    pub seq: SeqNumber,
    pub ack: SeqNumber,
}

/// See the module's comment.
#[derive(Debug, Default)]
pub(crate) struct OwedResets(VecDeque<Reset>);

impl OwedResets {
    /// How many wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Notes what the peer of a connection that ends is owed, which is between these ends.
    pub fn owe(&mut self, conn: &Conn, ends: Ends) {
        if self.0.len() < MOST {
            self.0.push_back(Reset { ends, seq: conn.snd_nxt, ack: conn.rcv_nxt });
        }
    }

    /// The one that has waited longest, which waits no more.
    #[inline]
    pub(super) fn take_first(&mut self) -> Option<Reset> {
        self.0.pop_front()
    }
}
