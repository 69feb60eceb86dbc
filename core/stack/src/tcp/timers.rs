//! A connection's timers: retransmission (RFC 6298 §5), persist (RFC 9293 §3.8.6.1), delayed
//! acknowledgment and FIN-WAIT-2, which share one entry of the timing wheel. TIME-WAIT has a queue.

use clock::Instant;
use domain::{ConnectError, DeadReason, EventRecord};
use mem::Want;
use wire::TcpFlags;

use super::close::abort;
use super::conn::{Cold, Conn, Flags, State};
use super::group::FlowGroup;
use super::{close, keepalive, loss, output, send_queue, spurious, tail};
use crate::context::Context;
use crate::wheel::tick_of;

/// The connection's entry fired.
pub(crate) fn fire(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let conn = group.slots.hot(slot);
    let ack_due =
        conn.flags.has(Flags::ACK_ARMED) && conn.ack_at.wrapping_sub(ctx.tick as u16) as i16 <= 0;
    if ack_due {
        conn.flags.clear(Flags::ACK_ARMED);
        conn.flags.set(Flags::ACK_NOW);
    }
    if !conn.flags.has(Flags::RTX_ARMED) && !ack_due {
        // As nearly always: all was acknowledged since. What else is armed has an entry of its own.
        if !conn.flags.has(Flags::ACK_ARMED) {
            if conn.flags.has(Flags::KEEPALIVE) {
                ask_for_life(group, slot, ctx);
            }
            return;
        }
    }
    let rtx_due =
        conn.flags.has(Flags::RTX_ARMED) && conn.rtx_at.wrapping_sub(ctx.tick as u32) as i32 <= 0;
    if rtx_due {
        conn.flags.clear(Flags::RTX_ARMED);
        let (state, flags, idle) = (conn.state, conn.flags, conn.flight() == 0);
        conn.flags.clear(Flags::EARLY);
        match state {
            State::FinWait2 => return abort(group, slot, DeadReason::TimedOut, ctx),
            _ if flags.has(Flags::FIN_WANTED) && idle => {
                close::send_fin(group, slot, ctx);
            }
            _ if flags.has(Flags::PERSIST) => probe(group, slot, ctx),
            _ if flags.has(Flags::EARLY) => {
                let (place, conn, cold) = group.at(slot);
                if flags.has(Flags::PROBE) {
                    send_queue::probe_tail(conn, cold, ctx);
                    output::arm_retransmission(conn, ctx);
                } else {
                    if flags.has(Flags::REORDER_TIMER) {
                        loss::on_late(conn, cold, ctx);
                    }
                    // Step 6 reckons when the others are due.
                    conn.flags.set(Flags::RTX_ARMED.and(flags.only(Flags::EARLY)));
                }
                send_queue::pump(place, conn, cold, ctx);
            }
            _ => {
                let (_, conn, cold) = group.at(slot);
                if tail::due_in(conn, cold, ctx).is_some() {
                    // RFC 8985 §7.2: no later than the time-out, and in its place.
                    send_queue::probe_tail(conn, cold, ctx);
                    output::arm_retransmission(conn, ctx);
                } else if !time_out(group, slot, ctx) {
                    return;
                }
            }
        }
    }
    output::mark_pending(group, slot, ctx);
}

/// The retransmission timer fired (RFC 6298 §5.4 to §5.6). Answers whether the connection lives.
fn time_out(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) -> bool {
    let (place, conn, cold) = group.at(slot);
    if conn.flight() == 0 {
        return true;
    }
    ctx.stats.tcp_timeouts += 1;
    let opening = !conn.state.is_synchronized();
    let config = &ctx.shared.config;
    let limit = if opening { config.syn_retries } else { config.retries };
    // While one of the flight that timed out is unacknowledged, the recovery goes on.
    let recovers = conn.flags.has(Flags::TIMEOUT_RECOVERY.and(Flags::TAKEN_BACK));
    if !recovers || conn.snd_una.after_eq(cold.stalled_until) {
        begin_stall(conn, cold, ctx);
    }
    let stalled = !opening && has_stalled(conn, cold, cold.retries > 0, ctx);
    if cold.retries >= limit || stalled {
        ctx.stats.tcp_stalled += u64::from(stalled);
        give_up(group, slot, ctx);
        return false;
    }
    // A window that was taken back is probed with the first segment that does not fit it any more: that it is not
    // acknowledged says nothing of the path.
    let taken_back = conn.snd_wnd == 0 && !opening;
    if taken_back {
        spurious::forget(conn);
        conn.flags.set(Flags::TAKEN_BACK);
    } else {
        loss::on_timeout(conn, cold, ctx);
    }
    cold.retries += 1;
    conn.backoff = conn.backoff.saturating_add(1);
    output::arm_retransmission(conn, ctx);
    // A SYN has more time than data (RFC 9293 §3.8.3, R2).
    if !opening {
        bring_forward(conn, cold, ctx);
    }
    if opening || taken_back {
        send_queue::retransmit_first(conn, cold, ctx);
    } else {
        send_queue::pump(place, conn, cold, ctx);
    }
    true
}

/// Nothing but keepalive may be due.
#[cold]
fn ask_for_life(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let (_, conn, cold) = group.at(slot);
    match keepalive::due(conn, cold, ctx) {
        Some(keepalive::Due::GiveUp) => return abort(group, slot, DeadReason::TimedOut, ctx),
        Some(keepalive::Due::Probe) => {
            let seq = conn.snd_una - 1;
            // One that finds no room is made up for by the next one.
            let is_sent = output::send_bare(conn, cold, seq, TcpFlags::ACK, ctx).is_ok();
            cold.retries += u8::from(is_sent);
        }
        // It was heard of, or has something out that counts for itself.
        None if conn.flight() == 0 => cold.retries = 0,
        None => {}
    }
    group.schedule(slot, ctx);
}

fn give_up(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let conn = group.slots.hot(slot);
    match conn.state {
        State::SynSent | State::SynReceived => {
            let cookie = conn.cookie;
            ctx.event(EventRecord::ConnectFailed { cookie, error: ConnectError::TimedOut });
            group.destroy(slot, ctx);
        }
        _ => abort(group, slot, DeadReason::TimedOut, ctx),
    }
}

/// A timer fired that finds data of the application unacknowledged: the user time-out runs since it was first
/// sent, and until the peer has acknowledged all that is in flight now. Less is no progress, so that a byte now
/// and then does not keep the memory of a whole window.
fn begin_stall(conn: &Conn, cold: &mut Cold, ctx: &Context<'_>) {
    let sent_at = loss::oldest_at_ns(conn, cold).map(Instant::from_nanos);
    cold.stalled_since = tick_of(sent_at.unwrap_or(ctx.now)) as u32;
    cold.stalled_until = conn.snd_nxt;
}

/// Whether the peer has left data unacknowledged for longer than the user time-out (RFC 5482) or, where memory is
/// short and at least one retransmission has brought nothing (`has_tried`), than that allows.
fn has_stalled(conn: &Conn, cold: &Cold, has_tried: bool, ctx: &Context<'_>) -> bool {
    let stalled = (ctx.tick as u32).wrapping_sub(cold.stalled_since);
    stalled >= user_timeout(conn, ctx)
        || (has_tried && patience(ctx).is_some_and(|patience| stalled >= patience))
}

/// Ticks for which data may remain unacknowledged.
fn user_timeout(conn: &Conn, ctx: &Context<'_>) -> u32 {
    match conn.flags.has(Flags::CLOSED) {
        true => ctx.shared.ticks.closed_timeout,
        false => ctx.shared.ticks.user_timeout,
    }
}

/// Ticks for which data may remain unacknowledged where memory to send from is short: the fewer chunks are left,
/// the fewer. So peers that acknowledge nothing cannot keep it from those that do
/// ([`user_timeout_least`](crate::StackConfig::user_timeout_least)). `None`: it is not short.
fn patience(ctx: &Context<'_>) -> Option<u32> {
    match ctx.pool.sixteenths_left(Want::Send) as u32 {
        left @ 0..4 => Some(ctx.shared.ticks.user_timeout_least.saturating_mul(4_u32.pow(left))),
        _ => None,
    }
}

/// The timer fires at the user time-out at the latest.
fn bring_forward(conn: &mut Conn, cold: &Cold, ctx: &Context<'_>) {
    let end = cold.stalled_since.wrapping_add(user_timeout(conn, ctx));
    if conn.rtx_at.wrapping_sub(end) as i32 > 0 {
        conn.rtx_at = end;
    }
}

/// The window stays closed: ask for it with a byte that the peer already has, which any receiver
/// answers with its window (RFC 9293 §3.8.6.1). Goes on as long as the peer answers, unless data waits that the
/// application was promised room for: then until the user time-out. A peer that is gone is found by the bound on
/// retries, as each answer resets the count.
fn probe(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let (place, conn, cold) = group.at(slot);
    if conn.backoff == 0 {
        begin_stall(conn, cold, ctx);
        cold.retries = 0;
    }
    let stalled = conn.flags.has(Flags::UNSENT) && has_stalled(conn, cold, conn.backoff > 0, ctx);
    if cold.retries >= ctx.shared.config.retries || stalled {
        ctx.stats.tcp_stalled += u64::from(stalled);
        return abort(group, slot, DeadReason::TimedOut, ctx);
    }
    cold.retries += 1;
    conn.backoff = conn.backoff.saturating_add(1);
    let seq = conn.snd_una - 1;
    // A probe that finds no room is made up for by the next one.
    let _ = output::send_bare(conn, cold, seq, TcpFlags::ACK, ctx);
    output::arm_retransmission(conn, ctx);
    if conn.flags.has(Flags::UNSENT) {
        bring_forward(conn, cold, ctx);
    }
    send_queue::pump(place, conn, cold, ctx);
}
