//! How far a stack that leaves has come, and how its connections ended.

use crate::tcp::conn::Place;

/// How the connections of a stack ended that was closed. What needs no reset (RFC 9293 §3.10.5) is in neither
/// number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Connections that ended with a reset to the peer.
    pub reset: u64,
    /// Connections whose peer was to be told and could not be, for want of its link address, of memory, or
    /// of time.
    pub untold: u64,
}

/// How far a stack that leaves has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leaving {
    /// The slot at which the walk over all connections goes on.
    pub at: Place,
    pub ended: Ended,
}
