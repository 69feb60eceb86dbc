//! Step 6: what a connection still has to say after a batch, and its timer.

use clock::Instant;
use wire::TcpFlags;

use super::conn::{Cold, Conn, Flags, State};
use super::group::FlowGroup;
use super::output::{arm_retransmission, bare_seq, note_pending, send_bare};
use super::rtt::rto_ticks;
use super::send_queue::{pump, waits_for_the_device};
use super::{loss, pacing, tail};
use crate::context::{Context, STAMP_SHIFT};
use crate::wheel::tick_of;

/// With nothing in flight no acknowledgment will come: the closed window is probed by a timer. It is
/// closed for us where segments wait, and for the application where it was told that it may send
/// nothing: what it keeps back we do not see, and the peer's window update may be lost.
#[inline]
fn probe_if_stuck(conn: &mut Conn, ctx: &mut Context<'_>) {
    let opening = !conn.state.is_synchronized();
    if opening || conn.flight() > 0 || conn.flags.has(Flags::RTX_ARMED) {
        return;
    }
    if conn.flags.has(Flags::UNSENT) || (conn.credit() == 0 && conn.state.may_send()) {
        conn.flags.set(Flags::PERSIST);
        conn.backoff = 0;
        arm_retransmission(conn, ctx);
    }
}

/// Chooses what the retransmission timer is for: segments that wait for their turn, segments that others overtook, a tail
/// loss probe, or a time-out.
fn choose_timer(conn: &mut Conn, cold: &Cold, ctx: &Context<'_>) {
    if !conn.flags.has(Flags::RTX_ARMED) || conn.flags.has(Flags::PERSIST) {
        return;
    }
    let now = ctx.tick as u32;
    // RFC 6298 §5.1 and §5.3: since the oldest segment was sent, or the peer was heard of. Where it is one, the timer is left
    // as it runs.
    let time_out = match conn.flags.has(Flags::EARLY) {
        true => {
            let now_ns = ctx.now.as_nanos();
            let silent_ns = u64::from(ctx.silence(conn.heard_at)) << STAMP_SHIFT;
            let oldest_ns = loss::oldest_at_ns(conn, cold).unwrap_or(now_ns);
            let since =
                tick_of(Instant::from_nanos(oldest_ns.max(now_ns.saturating_sub(silent_ns))));
            (since as u32).wrapping_add(rto_ticks(conn, &ctx.shared.ticks))
        }
        false => conn.rtx_at,
    };
    let late_at_ns = cold.recovery.as_ref().and_then(|recovery| recovery.look_at_ns());
    let newest_ns = loss::newest_at_ns(conn, cold);
    let runs = conn.flags.has(Flags::PROBE) && newest_ns != Some(ctx.now.as_nanos());
    let paced_ns = pacing::due_ns(conn, cold, ctx).filter(|_| conn.flags.has(Flags::UNSENT));
    let (kind, at) =
        if let Some(paced_ns) = paced_ns.filter(|&at| late_at_ns.is_none_or(|late| at < late)) {
            (Flags::PACED, tick_of(Instant::from_nanos(paced_ns)) as u32 + 1)
        } else if let Some(late_at_ns) = late_at_ns {
            (Flags::REORDER_TIMER, tick_of(Instant::from_nanos(late_at_ns)) as u32 + 1)
        } else if let Some(ticks) = tail::due_in(conn, cold, ctx) {
            // RFC 8985 §7.2: anew with each new segment, and no later than the time-out.
            (Flags::PROBE, if runs { conn.rtx_at } else { now.wrapping_add(ticks) })
        } else {
            (Flags::default(), time_out)
        };
    conn.flags.clear(Flags::EARLY);
    if time_out.wrapping_sub(at) as i32 > 0 {
        conn.flags.set(kind);
        conn.rtx_at = at;
    } else {
        conn.rtx_at = time_out;
    }
}

/// What step 6 has to look at, beside the timer.
const UNSETTLED: Flags =
    Flags::ACK_NOW.and(Flags::ACK_DUE).and(Flags::ACK_ARMED).and(Flags::UNSENT);

/// Whether step 6 has nothing to do, as nearly always: a reply took the acknowledgment along, and the
/// timer is set. `other`: flags for which the caller looks too.
#[inline]
pub(crate) fn is_settled(conn: &Conn, other: Flags, ctx: &Context<'_>) -> bool {
    conn.flags.are(Flags::RTX_ARMED, Flags::RTX_ARMED.and(UNSETTLED).and(other))
        && has_timer(conn, ctx)
}

/// Whether step 6 has nothing to do for a connection that nothing was sent on since it was last looked
/// at: an acknowledgment came, and either all is acknowledged and the window open, or the timer is set.
#[inline]
pub(crate) fn is_at_rest(conn: &Conn, ctx: &Context<'_>) -> bool {
    conn.flags.are(Flags::default(), UNSETTLED)
        && match conn.flags.has(Flags::RTX_ARMED) {
            true => conn.listed <= 1 && has_timer(conn, ctx),
            false => conn.flight() == 0 && conn.credit() > 0,
        }
}

/// Whether the wheel will ask about when the retransmission timer is due, or before.
#[inline]
pub(crate) fn has_timer(conn: &Conn, ctx: &Context<'_>) -> bool {
    conn.timer.covers(conn.rtx_at, ctx.shared.ticks.rto_slack)
}

/// Step 6 for one connection: acknowledges what no reply took along, or sets the timer for it.
pub(crate) fn flush(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let (place, conn, cold) = group.at(slot);
    conn.flags.clear(Flags::PENDING);
    let is_long = conn.flight() > u32::from(conn.mss);
    const OTHERS: Flags = Flags::TRACKED.and(Flags::UNSENT).and(Flags::PROBE).and(Flags::PACED);
    if is_long || conn.flags.has(OTHERS) {
        choose_timer(conn, cold, ctx);
    }
    if is_settled(conn, Flags::EARLY.and(Flags::TRACKED), ctx) {
        return;
    }
    if conn.state == State::Closed {
        return;
    }
    if conn.flags.has(Flags::UNSENT.and(Flags::TRACKED)) && waits_for_the_device(conn, cold, ctx) {
        pump(place, conn, cold, ctx);
    }
    if conn.flags.has(Flags::ACK_NOW) {
        let seq = bare_seq(conn);
        if send_bare(conn, cold, seq, TcpFlags::ACK, ctx).is_ok() {
            ctx.stats.tcp_pure_acks_out += 1;
        } else {
            note_pending(conn, place, ctx);
        }
    } else if conn.flags.has(Flags::ACK_DUE) && !conn.flags.has(Flags::ACK_ARMED) {
        conn.ack_at = (ctx.tick as u16).wrapping_add(ctx.shared.ticks.delayed_ack);
        conn.flags.set(Flags::ACK_ARMED);
    }
    probe_if_stuck(conn, ctx);
    group.schedule(slot, ctx);
}
