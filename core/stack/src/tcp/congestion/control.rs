//! What every algorithm of congestion control is asked, and what it answers.

use wire::SeqNumber;

/// Segments by which the window grows at most for one acknowledgment in slow start (RFC 9406 §4.2), as an
/// acknowledgment may stand for many segments.
pub(super) const SLOW_START_SEGMENTS: u32 = 8;

/// The window of a connection, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    /// The congestion window.
    pub cwnd: u32,
    /// Payload of a full segment.
    pub mss: u32,
}

/// When an acknowledgment came, and of what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Bytes that it acknowledged.
    pub acked: u32,
    /// What is acknowledged, and what was sent.
    pub una: SeqNumber,
    pub nxt: SeqNumber,
    /// The round trip that it ended, where that is known.
    pub rtt_ns: Option<u64>,
    /// The smoothed round-trip time.
    pub srtt_ns: u64,
    /// When it came, in units of some clock; wraps around.
    pub at: u32,
}

impl Arrival {
    /// Whether all that it acknowledges was sent before `until`, which is in flight still or was just now.
    pub fn is_within(self, until: Option<SeqNumber>) -> bool {
        until.is_some_and(|until| self.una.before_eq(until) && until.before_eq(self.nxt))
    }
}

/// What says that the path holds less than is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// Acknowledgments name a loss.
    Loss,
    /// None came.
    TimeOut,
    /// A router marked something (RFC 3168).
    Mark,
}

/// log2 of the nanoseconds of a unit of [`Arrival::at`]: about a millisecond.
pub(crate) const UNIT_SHIFT: u32 = 20;

/// An algorithm, with what it remembers.
pub(super) trait CongestionControl: core::fmt::Debug {
    /// Data arrived in congestion avoidance, while the window was in full use. Answers the new window.
    fn avoid(&mut self, window: Window, arrival: Arrival) -> u32;

    /// The path holds less than is sent, `flight` bytes in flight. Answers the new slow start threshold.
    fn reduce(&mut self, window: Window, flight: u32, cause: Cause) -> u32;

    /// Data arrived, which was marked on the way or not (RFC 3168). Not asked for each acknowledgment without marks.
    fn arrived(&mut self, _arrival: Arrival, _is_marked: bool) {}

    /// It was not lost: the window is what it was before, `cwnd` bytes.
    fn undo(&mut self, cwnd: u32);
}

/// The least threshold: two segments (RFC 5681 §3.1, equation 4).
pub(super) fn threshold(bytes: u32, mss: u32) -> u32 {
    bytes.max(2 * mss)
}
