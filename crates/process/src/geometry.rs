//! Where what stands in the arrays.
//!
//! ```text
//! event array (written by the dataplane)    call array (written by the application)
//!   0  batch: u32                             0  done: u32, the batch whose calls these are
//!   4  asleep: u32, the dataplane waits       4  asleep: u32, the application waits
//!   8  now, nanoseconds                       8  wish: when to be run without an event
//!  16  yield at, 0: never                    16  calls
//!  24  events                                24  pieces
//!  32  calls that there is room for          64  calls, four words each
//!  40  buffers that may be sent                  pieces: offset in the arena << 16 | bytes
//!  64  events, six words each
//! ```

/// Bytes before the records of either array.
pub(crate) const HEADER: usize = 64;
/// Words of an event, and of a call.
pub(crate) const EVENT_WORDS: usize = 6;
/// As above.
pub(crate) const CALL_WORDS: usize = 4;

/// In both arrays: the number of a batch.
pub(crate) const BATCH: usize = 0;
/// In both arrays: whose it is sleeps, and wants to be woken.
pub(crate) const ASLEEP: usize = 4;
/// In the event array.
pub(crate) const NOW: usize = 8;
/// In the event array.
pub(crate) const YIELD_AT: usize = 16;
/// In the event array.
pub(crate) const EVENTS: usize = 24;
/// In the event array.
pub(crate) const ROOM: usize = 32;
/// In the event array.
pub(crate) const BUFFERS: usize = 40;
/// In the call array.
pub(crate) const WISH: usize = 8;
/// In the call array.
pub(crate) const CALLS: usize = 16;
/// In the call array.
pub(crate) const PIECES: usize = 24;

/// How large the arrays of one elastic thread are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Events of one batch.
    pub events: u32,
    /// Calls of one batch.
    pub calls: u32,
    /// Chunks of the transmit arena, and so pieces of one batch.
    pub arena_chunks: u32,
}

impl Default for Geometry {
    fn default() -> Self {
        Self { events: 1_024, calls: 4_096, arena_chunks: 2_048 }
    }
}

impl Geometry {
    /// Whether all of it is in range: what comes from another process is asked this first.
    pub fn is_valid(&self) -> bool {
        (1..=1 << 16).contains(&self.events)
            && (1..=1 << 16).contains(&self.calls)
            && (64..=1 << 20).contains(&self.arena_chunks)
    }

    /// Calls that the array has room for: those that a batch has, and one more for each event
    /// ([`Calls::again`](domain::Calls::again)).
    pub(crate) fn call_records(&self) -> usize {
        self.calls as usize + self.events as usize
    }

    /// Bytes of the event array.
    pub fn event_bytes(&self) -> usize {
        (HEADER + self.events as usize * EVENT_WORDS * 8).next_multiple_of(4096)
    }

    /// Bytes of the call array.
    pub fn call_bytes(&self) -> usize {
        (self.piece(0) + self.arena_chunks as usize * 8).next_multiple_of(4096)
    }

    pub(crate) fn event(&self, index: usize) -> usize {
        HEADER + index * EVENT_WORDS * 8
    }

    pub(crate) fn call(&self, index: usize) -> usize {
        HEADER + index * CALL_WORDS * 8
    }

    pub(crate) fn piece(&self, index: usize) -> usize {
        self.call(self.call_records()) + index * 8
    }
}
