//! Spurious time-outs: the segments had arrived, and only their acknowledgments were late.
//!
//! With timestamps the first acknowledgment after the time-out names the transmission that caused it (Eifel, RFC 3522).
//! Without them new data is sent instead of old: if the acknowledgment after the next one advances too, what was not
//! sent again had arrived (F-RTO, RFC 5682 §2). What the time-out changed is then undone (RFC 4015).

use mem::TxMeta;

use super::conn::{Cold, Conn, Flags, Undo};
use super::fields::Segment;
use super::newreno;
use super::output::sequence_len;
use crate::context::Context;

/// A time-out will have the first segment sent again. Before [`newreno::on_timeout`], which changes what is noted here.
pub(crate) fn on_timeout(conn: &mut Conn, cold: &mut Cold, ctx: &Context<'_>) {
    if conn.flags.has(Flags::TIMEOUT_RECOVERY) {
        // Of several time-outs in a row the first one counts, unless new data has gone out since.
        if conn.flags.has(Flags::FRTO) {
            refute(conn);
        }
        return;
    }
    let timestamp = ctx.timestamp();
    // RFC 4015 §3.2: what was in flight fitted the path, if the time-out was spurious and nothing had been lost before.
    let fitted = if conn.flags.has(Flags::RECOVERY) { 0 } else { conn.flight() };
    cold.undo = Undo { ssthresh: conn.ssthresh.max(fitted), timestamp };
    conn.flags.set(Flags::UNDO);
}

/// An acknowledgment came that advances by `acked`; SND.UNA has moved.
pub(crate) fn on_ack(
    conn: &mut Conn,
    cold: &mut Cold,
    segment: &Segment,
    acked: u32,
    ctx: &mut Context<'_>,
) {
    if conn.flags.has(Flags::TIMESTAMPS) {
        conn.flags.clear(Flags::UNDO);
        let Some(stamp) = segment.timestamp else { return };
        if (stamp.echo.wrapping_sub(cold.undo.timestamp) as i32) < 0 {
            undo(conn, cold, acked, ctx);
        }
    } else if conn.flags.has(Flags::FRTO) {
        undo(conn, cold, acked, ctx);
    } else {
        conn.flags.clear(Flags::UNDO);
        let room = conn.snd_wnd.saturating_sub(conn.flight());
        let fits = |meta: TxMeta| sequence_len(&meta).min(conn.mss.into()) <= room;
        let has_new = cold.unsent.front().is_some_and(fits);
        // All that was sent again is acknowledged, and not all that was sent.
        let in_between = conn.snd_una.after_eq(cold.resend) && conn.snd_una.before(cold.recover);
        if has_new && in_between {
            // Step 2b: up to two new segments, and none again before it is decided.
            conn.cwnd = conn.flight() + 2 * u32::from(conn.mss);
            conn.flags.set(Flags::UNDO.and(Flags::FRTO));
        }
    }
}

/// A duplicate acknowledgment, or another time-out, while new data was to decide: the segments were lost
/// (RFC 5682 §2.1, step 3a).
pub(crate) fn refute(conn: &mut Conn) {
    forget(conn);
    conn.cwnd = conn.cwnd.min(3 * u32::from(conn.mss));
}

/// What was in flight is lost for another reason: no acknowledgment decides any more.
pub(crate) fn forget(conn: &mut Conn) {
    conn.flags.clear(Flags::UNDO.and(Flags::FRTO));
}

/// RFC 4015 §3.2: goes on where the time-out interrupted, in slow start up to what was in flight then.
fn undo(conn: &mut Conn, cold: &Cold, acked: u32, ctx: &mut Context<'_>) {
    ctx.stats.tcp_spurious_timeouts += 1;
    conn.flags.clear(Flags::UNDO.and(Flags::FRTO).and(Flags::TIMEOUT_RECOVERY));
    conn.ssthresh = cold.undo.ssthresh;
    conn.cwnd = conn.flight() + acked.min(newreno::initial_window(conn.mss));
}
