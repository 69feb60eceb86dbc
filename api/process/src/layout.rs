//! What stands where in the arrays: the binary interface between a dataplane and an application of any language.
//!
//! ```text
//! event array (written by the dataplane)       call array (written by the application)
//!   0  batch: u32                                0  done: u32, the batch whose calls these are
//!   4  asleep: u32, the dataplane waits: 1 for    4  asleep: u32, the application waits
//!      `done` to change, 2 at its bell
//!   8  now, nanoseconds: u64                     8  wish: u64, when to be run without an event; all ones: never
//!  16  yield after, nanoseconds: u32; 0: never  16  calls: u32
//!  20  events: u32                              20  pieces: u32
//!  24  calls that there is room for: u32        24  not used
//!  28  buffers that may be sent: u32            32  calls, four words each
//!  32  the first event, four words                  pieces: offset in the arena << 16 | bytes
//!  64  the others of batches with an even
//!      number, then those of batches with
//!      an odd one, four words each
//!      where the application's thread is to run:
//!      bit 0: on the dataplane's core, else
//!      on one of its own, u32 (bit 1 is the
//!      dataplane's matter); 1 + processor,
//!      or 0 for any, u32
//! ```
//!
//! A request that is alone in its batch moves one cache line each way (besides its bytes): the header, and the
//! first event or call behind it. Of a batch with more events the dataplane writes all but the first when they come
//! about, while the application may still read those of the batch before: hence two places. What stands there before the
//! batch's number does means nothing yet. Numbers of batches follow each other as [`next_batch`] says. Words are
//! little-endian.
//!
//! # Events
//!
//! The first word has the kind in bits 0 to 7; the others are as below, zero where nothing is named.
//!
//! | Kind | First word | Handle | Third | Fourth |
//! | --- | --- | --- | --- | --- |
//! | 0 knock | port `<< 16`, window `<< 32` | handle | peer | |
//! | 1 connected | window `<< 32` | handle | cookie | |
//! | 2 not connected | reason `<< 8` | | cookie | |
//! | 3 received | offset's high byte `<< 8`, bytes `<< 16`, window `<< 32` | handle | cookie | offset, acknowledged bytes `<< 32` |
//! | 4 sent | window `<< 32` | handle | cookie | acknowledged bytes `<< 32` |
//! | 5 end of stream | | handle | cookie | |
//! | 6 again | window `<< 32` | handle | cookie | |
//! | 7 dead | reason `<< 8` | handle | cookie | |
//! | 8 datagram | offset's high byte `<< 8`, bytes `<< 16`, port `<< 32` | | peer | offset |
//! | 9 failed | call `<< 8`, error `<< 16` | handle | cookie | accepted bytes |
//!
//! A peer is its address `<< 16 |` port. Offsets are into the packet memory.
//!
//! # Calls
//!
//! | Kind | First word | Second | Third | Fourth |
//! | --- | --- | --- | --- | --- |
//! | 0 connect | | cookie | peer | |
//! | 1 accept | | handle | cookie | |
//! | 2 send | pieces `<< 32` | handle | the piece, where there is one | first piece, where there are several; where there is one, received bytes that are done with, as by 3 after it |
//! | 3 received bytes are done with | | handle | bytes | |
//! | 4 close, 5 abort, 6 again | | handle | | |
//! | 7 send a datagram | port `<< 16`, pieces `<< 32` | the piece, where there is one | peer | first piece, where there are several |
//! | 8 send bytes of the packet memory | | handle | offset there `<< 16 \|` bytes | received bytes that are done with, as in 2 |

/// Bytes before the records of either array.
pub const HEADER: usize = 32;
/// Words of an event, and of a call.
pub const RECORD_WORDS: usize = 4;
/// Bytes of the same.
pub const RECORD_BYTES: usize = 8 * RECORD_WORDS;

/// In both arrays, 32 bits: the number of a batch.
pub const BATCH: usize = 0;
/// In both arrays, 32 bits: whose it is sleeps, and wants to be woken.
pub const ASLEEP: usize = 4;
/// What the dataplane says there where it waits at the bell: a byte on the socket of that name wakes it.
pub const AT_THE_BELL: u64 = 2;
/// In the event array.
pub const NOW: usize = 8;
/// In the event array: `yield after` and `events`, as one word.
pub const YIELD_AND_EVENTS: usize = 16;
/// In the call array.
pub const WISH: usize = 8;
/// In the call array: `calls` and `pieces`, as one word.
pub const CALLS_AND_PIECES: usize = 16;
/// Packet memory that events can tell of: offsets have 40 bits.
pub const PACKET_BYTES_MAX: u64 = 1 << 40;

/// The number of the batch that follows. 0 is no batch, and even and odd take turns.
#[inline]
pub const fn next_batch(batch: u32) -> u32 {
    match batch {
        u32::MAX => 2,
        _ => batch + 1,
    }
}

/// Two numbers of 32 bits as one word.
#[inline]
pub const fn two(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// What [`two`] made into one.
#[inline]
pub const fn both(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

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
        Self { events: 2_048, calls: 4_096, arena_chunks: 2_048 }
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
    pub fn call_records(&self) -> usize {
        self.calls as usize + self.events as usize
    }

    /// Bytes of the event array.
    pub fn event_bytes(&self) -> usize {
        (self.place() + 64).next_multiple_of(4096)
    }

    /// Where in the event array the dataplane says where the application's thread is to run: a line that is read again
    /// and again, and hardly ever written.
    #[inline]
    pub fn place(&self) -> usize {
        self.further_event(1, 0) + self.further_bytes()
    }

    /// Bytes of all events of a batch but the first.
    #[inline]
    fn further_bytes(&self) -> usize {
        // A whole number of lines: what the application reads shares none with what is written meanwhile.
        ((self.events as usize - 1) * RECORD_BYTES).next_multiple_of(64)
    }

    /// Where an event of a batch stands in the event array that is not the first: 0 is the second one.
    #[inline]
    pub fn further_event(&self, batch: u32, index: usize) -> usize {
        self.record(1) + (batch % 2) as usize * self.further_bytes() + index * RECORD_BYTES
    }

    /// Where an event of a batch stands in the event array.
    #[inline]
    pub fn event(&self, batch: u32, index: usize) -> usize {
        match index {
            0 => self.record(0),
            _ => self.further_event(batch, index - 1),
        }
    }

    /// Bytes of the call array.
    pub fn call_bytes(&self) -> usize {
        (self.piece(0) + self.arena_chunks as usize * 8).next_multiple_of(4096)
    }

    /// Where a call stands in its array, and the first event in its.
    #[inline]
    pub fn record(&self, index: usize) -> usize {
        HEADER + index * RECORD_BYTES
    }

    /// Where a piece stands in the call array.
    #[inline]
    pub fn piece(&self, index: usize) -> usize {
        self.record(self.call_records()) + index * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_that_follow_each_other_share_no_line_but_the_headers() {
        for events in [1, 2, 3, 64, 2_048, 1 << 16] {
            let geometry = Geometry { events, ..Geometry::default() };
            let places = |batch: u32| {
                let from = geometry.event(batch, 1);
                from..from + (events as usize - 1) * RECORD_BYTES
            };
            let (even, odd) = (places(2), places(3));
            assert_eq!((even.start, geometry.event(2, 0)), (64, HEADER));
            assert!(even.end.next_multiple_of(64) <= odd.start, "{even:?} and {odd:?}");
            assert!(odd.end <= geometry.place(), "{odd:?} before {}", geometry.place());
            assert!(
                geometry.place().is_multiple_of(64)
                    && geometry.place() + 64 <= geometry.event_bytes()
            );
        }
        let (mut batch, mut before) = (u32::MAX - 3, u32::MAX - 4);
        for _ in 0..8 {
            assert!(batch != 0 && batch % 2 != before % 2, "{batch} after {before}");
            (before, batch) = (batch, next_batch(batch));
        }
    }
}
