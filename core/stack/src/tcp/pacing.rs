//! Pacing (RFC 9002 §7.7): where a round trip is long, what the window lets go at once is spread over it, so that no burst
//! fills a queue on the way. The timing wheel says when to go on.
//!
//! A bucket of tokens: as many segments as an initial window has may go at once, then one after the other at somewhat more
//! than the window's rate. Replies that go the short way (`predicted`), each a segment of its own and at most as many as may be
//! listed, are not held back.

use super::congestion::{Congestion, initial_window};
use super::conn::{Cold, Conn};
use crate::context::Context;
use crate::ticks::UNIT_SHIFT;

/// Round trips from about a millisecond on, in units of [`UNIT_SHIFT`]: the queues of shorter ones are the receiver's.
const LEAST_SRTT: u32 = 1 << (20 - UNIT_SHIFT);
/// The rate over that of the window, in quarters: in slow start it doubles in a round trip.
const SLOW_START_QUARTERS: u64 = 8;
const QUARTERS: u64 = 5;

/// Nanoseconds that `bytes` take at the connection's rate.
fn span_ns(conn: &Conn, congestion: &Congestion, bytes: u32) -> u64 {
    let quarters = if conn.cwnd < congestion.ssthresh { SLOW_START_QUARTERS } else { QUARTERS };
    // Of ten segments and half an hour at most: no overflow.
    let srtt = u64::from(conn.srtt_8 / 8);
    let units = srtt * u64::from(bytes) * 4 / (u64::from(conn.cwnd.max(1)) * quarters);
    units << UNIT_SHIFT
}

/// When the next new segment may go, in nanoseconds; `None`: now. With nothing in flight it goes in any case.
#[inline]
pub(crate) fn due_ns(conn: &Conn, cold: &Cold, ctx: &Context<'_>) -> Option<u64> {
    if conn.srtt_8 / 8 < LEAST_SRTT || conn.flight() == 0 {
        return None;
    }
    let congestion = cold.congestion.as_deref()?;
    Some(congestion.paced_ns).filter(|&due_ns| due_ns > ctx.now.as_nanos())
}

/// New data of `bytes` went out.
#[inline]
pub(crate) fn note_sent(conn: &Conn, cold: &mut Cold, bytes: u32, ctx: &Context<'_>) {
    if conn.srtt_8 / 8 < LEAST_SRTT {
        return;
    }
    let Some(congestion) = cold.congestion.as_deref_mut() else { return };
    // The last one of a burst leaves the bucket empty.
    let burst_ns = span_ns(conn, congestion, initial_window(conn.mss) - u32::from(conn.mss));
    let full_ns = ctx.now.as_nanos().saturating_sub(burst_ns);
    congestion.paced_ns = congestion.paced_ns.max(full_ns) + span_ns(conn, congestion, bytes);
}
