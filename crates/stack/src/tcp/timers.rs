//! A connection's timers: retransmission (RFC 6298 §5), persist (RFC 9293 §3.8.6.1), delayed
//! acknowledgment and FIN-WAIT-2, which share one entry of the timing wheel. TIME-WAIT has a queue.

use domain::{ConnectError, DeadReason, EventRecord};
use wire::TcpFlags;

use super::close::{abort, die};
use super::conn::{Conn, Flags, State};
use super::group::FlowGroup;
use super::{close, newreno, output};
use crate::context::Context;

/// The tick at which the connection next wants to be looked at.
#[inline]
pub(crate) fn deadline(conn: &Conn, tick: u64) -> Option<u64> {
    let mut next = None;
    if conn.flags.has(Flags::RTX_ARMED) {
        next = Some(expand(conn.rtx_at.wrapping_sub(tick as u32) as i32 as i64, tick));
    }
    if conn.flags.has(Flags::ACK_ARMED) {
        let ack = expand(conn.ack_at.wrapping_sub(tick as u16) as i16 as i64, tick);
        next = Some(next.map_or(ack, |rtx: u64| rtx.min(ack)));
    }
    next
}

#[inline]
fn expand(ahead: i64, tick: u64) -> u64 {
    tick.saturating_add_signed(ahead)
}

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
            return;
        }
    }
    let rtx_due =
        conn.flags.has(Flags::RTX_ARMED) && conn.rtx_at.wrapping_sub(ctx.tick as u32) as i32 <= 0;
    if rtx_due {
        conn.flags.clear(Flags::RTX_ARMED);
        let (state, flags, idle) = (conn.state, conn.flags, conn.sent.is_empty());
        match state {
            State::FinWait2 => return abort(group, slot, DeadReason::TimedOut, ctx),
            _ if flags.has(Flags::FIN_WANTED) && idle => {
                close::send_fin(group, slot, ctx);
            }
            _ if flags.has(Flags::PERSIST) => probe(group, slot, ctx),
            _ => {
                if !time_out(group, slot, ctx) {
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
    if conn.sent.is_empty() {
        return true;
    }
    ctx.stats.tcp_timeouts += 1;
    let opening = !conn.state.is_synchronized();
    let config = &ctx.shared.config;
    let limit = if opening { config.syn_retries } else { config.retries };
    if conn.backoff >= limit {
        give_up(group, slot, ctx);
        return false;
    }
    newreno::on_timeout(conn, cold);
    conn.backoff += 1;
    output::arm_retransmission(conn, ctx);
    if opening {
        output::retransmit_first(conn, cold, ctx);
    } else {
        output::pump(place, conn, cold, ctx);
    }
    true
}

fn give_up(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let conn = group.slots.hot(slot);
    match conn.state {
        State::SynSent => {
            let cookie = conn.cookie;
            ctx.event(EventRecord::ConnectFailed { cookie, error: ConnectError::TimedOut });
            group.destroy(slot, ctx);
        }
        // The application has not heard of it.
        State::SynReceived => die(group, slot, None, ctx),
        _ => abort(group, slot, DeadReason::TimedOut, ctx),
    }
}

/// The window stays closed: ask for it with a byte that the peer already has, which any receiver
/// answers with its window (RFC 9293 §3.8.6.1). Goes on as long as the peer answers; a peer that
/// is gone is found by the bound on retries, as each answer resets the count.
fn probe(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let (place, conn, cold) = group.at(slot);
    if conn.backoff >= ctx.shared.config.retries {
        return abort(group, slot, DeadReason::TimedOut, ctx);
    }
    conn.backoff += 1;
    let seq = conn.snd_una - 1;
    // A probe that finds no room is made up for by the next one.
    let _ = output::send_bare(conn, cold, seq, TcpFlags::ACK, ctx);
    output::arm_retransmission(conn, ctx);
    output::pump(place, conn, cold, ctx);
}
