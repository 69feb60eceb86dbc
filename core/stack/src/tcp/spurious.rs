//! Spurious recoveries: the segments had arrived, and only their acknowledgments were late, or the segments themselves.
//!
//! With timestamps the first acknowledgment after the recovery began names the transmission that caused it (Eifel,
//! RFC 3522). Without them, after a time-out, new data is sent instead of old: if the acknowledgment after the next one
//! advances too, what was not sent again had arrived (F-RTO, RFC 5682 §2). And a peer that has each segment twice that was
//! sent again lacked none of them (RFC 3708). What the recovery changed is then undone (RFC 4015).

use wire::SeqNumber;

use super::congestion::initial_window;
use super::conn::{Cold, Conn, Flags};
use super::fields::Segment;
use super::recovery::{Recovery, Undo};
use crate::context::Context;

/// A recovery begins that may turn out to be spurious, with `fitted` bytes in flight that the path has held.
pub(crate) fn begin(
    conn: &mut Conn,
    cold: &Cold,
    recovery: &mut Recovery,
    fitted: u32,
    is_timeout: bool,
    ctx: &Context<'_>,
) {
    let ssthresh = cold.ssthresh();
    recovery.undo = Some(Undo {
        cwnd: conn.cwnd,
        // RFC 4015 §3.2.
        ssthresh: ssthresh.max(fitted),
        timestamp: ctx.timestamp(),
        again: 0,
        range: None,
        is_timeout,
        until: None,
    });
    conn.flags.set(Flags::UNDO);
}

/// A time-out will have the first segment sent again. Before anything that it changes.
pub(crate) fn on_timeout(conn: &mut Conn, cold: &Cold, recovery: &mut Recovery, ctx: &Context<'_>) {
    if !conn.flags.has(Flags::TIMEOUT_RECOVERY) {
        // What was in flight fitted the path, if the time-out was spurious and nothing had been lost before.
        let fitted = if conn.flags.has(Flags::RECOVERY) { 0 } else { conn.flight() };
        begin(conn, cold, recovery, fitted, true, ctx);
    } else if conn.flags.has(Flags::FRTO) {
        // Of several time-outs in a row the first one counts, unless new data has gone out since.
        refute(conn);
    }
}

/// An acknowledgment came that advances by `acked`; SND.UNA has moved.
pub(crate) fn on_ack(
    conn: &mut Conn,
    cold: &mut Cold,
    segment: &Segment,
    acked: u32,
    ctx: &mut Context<'_>,
) {
    let Some(mut recovery) = cold.recovery.take() else { return forget(conn) };
    let timestamp = recovery.undo.as_ref().map(|undo| undo.timestamp);
    if conn.flags.has(Flags::TIMESTAMPS) {
        conn.flags.clear(Flags::UNDO);
        if let Some(stamp) = segment.timestamp
            && let Some(timestamp) = timestamp
            && (stamp.echo.wrapping_sub(timestamp) as i32) < 0
        {
            undo(conn, cold, &mut recovery, acked, ctx);
        }
    } else if conn.flags.has(Flags::FRTO) {
        undo(conn, cold, &mut recovery, acked, ctx);
    } else {
        conn.flags.clear(Flags::UNDO);
        let room = conn.snd_wnd.saturating_sub(conn.flight());
        let has_new = cold
            .unsent
            .front()
            .is_some_and(|meta| meta.len > 0 && meta.len.min(conn.mss) as u32 <= room);
        // All that was sent again is acknowledged, and not all that was sent.
        if has_new && conn.flags.has(Flags::TIMEOUT_RECOVERY) && recovery.board.is_oldest_lost() {
            // Step 2b: up to two new segments, and none again before it is decided.
            conn.cwnd = recovery.pipe(conn.flight(), conn.mss) + 2 * u32::from(conn.mss);
            conn.flags.set(Flags::UNDO.and(Flags::FRTO));
        }
    }
    cold.recovery = Some(recovery);
}

/// Bytes from `seq` to `end` are sent again.
pub(crate) fn note_again(recovery: &mut Recovery, seq: SeqNumber, end: SeqNumber) {
    if let Some(Undo { again, range, .. }) = &mut recovery.undo {
        *again = again.saturating_add((end - seq) as u32);
        let (from, to) = range.unwrap_or((seq, end));
        *range = Some((if seq.before(from) { seq } else { from }, to.max(end)));
    }
}

/// The peer has what is from `left` to `right` twice: if it has all that was sent again, it lacked none of it.
pub(crate) fn on_twice(
    conn: &mut Conn,
    cold: &mut Cold,
    recovery: &mut Recovery,
    (left, right): (SeqNumber, SeqNumber),
    acked: u32,
    ctx: &mut Context<'_>,
) {
    let Some(Undo { again, range: Some((from, to)), .. }) = &mut recovery.undo else { return };
    if *again > 0 && left.after_eq(*from) && right.before_eq(*to) {
        *again = again.saturating_sub((right - left) as u32);
        if *again == 0 {
            undo(conn, cold, recovery, acked, ctx);
        }
    }
}

/// A duplicate acknowledgment, or another time-out, while new data was to decide: the segments were lost
/// (RFC 5682 §2.1, step 3a).
pub(crate) fn refute(conn: &mut Conn) {
    forget(conn);
    conn.cwnd = 3 * u32::from(conn.mss);
}

/// What was in flight is lost for another reason: no acknowledgment decides any more.
pub(crate) fn forget(conn: &mut Conn) {
    conn.flags.clear(Flags::UNDO.and(Flags::FRTO));
}

/// The recovery is over. What the peer has twice it tells in the next round trip.
pub(crate) fn wait_for_last(conn: &mut Conn, recovery: &mut Recovery) {
    forget(conn);
    let until = conn.snd_nxt;
    recovery.undo = recovery.undo.take().map(|undo| Undo { until: Some(until), ..undo });
}

/// An acknowledgment advanced: nothing more will be known of a recovery that was over a round trip ago.
pub(crate) fn forget_old(conn: &Conn, recovery: &mut Recovery) {
    let is_old = |undo: &Undo| undo.until.is_some_and(|until| conn.snd_una.after_eq(until));
    recovery.undo = recovery.undo.take().filter(|undo| !is_old(undo));
}

/// RFC 4015 §3.2: goes on where the recovery interrupted, in slow start up to what was in flight then.
fn undo(
    conn: &mut Conn,
    cold: &mut Cold,
    recovery: &mut Recovery,
    acked: u32,
    ctx: &mut Context<'_>,
) {
    let Some(undo) = recovery.undo.take() else { return forget(conn) };
    match undo.is_timeout {
        true => ctx.stats.tcp_spurious_timeouts += 1,
        false => {
            ctx.stats.tcp_spurious_recoveries += 1;
            conn.flags.set(Flags::REORDERS);
        }
    }
    conn.flags.clear(Flags::UNDO.and(Flags::FRTO));
    conn.flags.clear(Flags::RECOVERY.and(Flags::TIMEOUT_RECOVERY));
    recovery.board.find_lost();
    recovery.rack.forget_latest();
    recovery.duplicates = 0;
    if let Some(congestion) = &mut cold.congestion {
        congestion.undo(undo.cwnd, undo.ssthresh);
    }
    let (flight, most) = (conn.flight(), initial_window(conn.mss));
    conn.cwnd = conn.cwnd.max(match undo.is_timeout {
        true => flight + acked.min(most),
        false => undo.cwnd.min(flight + most),
    });
}
