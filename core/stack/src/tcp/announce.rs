//! The receive window that is announced (RFC 9293 §3.8.6).

use super::conn::{Cold, Conn, Flags};
use crate::context::Context;

/// The receive window of a connection: the configured one, as far as the window field can say it
/// with the scale that was agreed on (RFC 7323 §2.3).
#[inline]
fn receive_window(conn: &Conn, ctx: &Context<'_>) -> u32 {
    ctx.shared.config.receive_window_bytes.min((u16::MAX as u32) << conn.rcv_wscale)
}

/// Bytes that may be received now, whatever was announced. Where memory is short windows shrink with the shares of
/// connections, before anything is refused.
#[inline]
pub(super) fn receive_room(conn: &Conn, cold: &Cold, ctx: &Context<'_>) -> u32 {
    let undelivered = if conn.flags.has(Flags::UNDELIVERED) { undelivered_bytes(cold) } else { 0 };
    let window = receive_window(conn, ctx).min(ctx.out.shares.receive);
    window.saturating_sub(conn.rcv_used + undelivered)
}

/// A function of its own: the compiler would load the number for every reply and then choose, which
/// with many connections waits for memory.
#[cold]
#[inline(never)]
fn undelivered_bytes(cold: &Cold) -> u32 {
    core::hint::black_box(cold).undelivered_bytes
}

/// Moves the announced edge as far as there is room for, unless that were a silly window
/// (RFC 9293 §3.8.6.2.2), and answers the window field.
#[inline(always)]
pub(crate) fn announce_window(conn: &mut Conn, cold: &Cold, ctx: &Context<'_>) -> u16 {
    let (left, mss) = (conn.rcv_adv - conn.rcv_nxt, conn.mss as i32);
    // Where more is open than the largest window less a segment, no segment can have come free; and
    // two segments open say that a segment is no more than half of this window.
    let open = left >= 2 * mss && ctx.shared.config.receive_window_bytes as i32 - left < mss;
    if !open {
        move_edge(conn, cold, ctx);
    }
    let window = (conn.rcv_adv - conn.rcv_nxt).max(0) as u32;
    (window >> conn.rcv_wscale).min(u16::MAX as u32) as u16
}

fn move_edge(conn: &mut Conn, cold: &Cold, ctx: &Context<'_>) {
    let edge = conn.rcv_nxt + receive_room(conn, cold, ctx);
    let grown = edge - conn.rcv_adv;
    if grown > 0 && grown as u32 >= silly_window(conn, ctx) {
        conn.rcv_adv = edge;
    }
}

#[inline]
fn silly_window(conn: &Conn, ctx: &Context<'_>) -> u32 {
    (conn.mss as u32).min(receive_window(conn, ctx) / 2)
}

/// Whether so much room came free that the peer should hear of it at once. Never where the edge
/// would stay: an acknowledgment that says nothing new looks like a loss to the peer.
#[inline]
pub(crate) fn window_update_due(conn: &Conn, cold: &Cold, ctx: &Context<'_>) -> bool {
    let left = conn.rcv_adv - conn.rcv_nxt;
    if left > ctx.shared.config.receive_window_bytes as i32 / 2 && left >= 2 * conn.mss as i32 {
        // Most of the window is open as it is, so less than half of it can have grown.
        return false;
    }
    let half = receive_window(conn, ctx) as i32 / 2;
    let grown = (conn.rcv_nxt + receive_room(conn, cold, ctx)) - conn.rcv_adv;
    let worth_it = grown >= silly_window(conn, ctx).max(1) as i32;
    grown >= half.max(1) || (worth_it && left < 2 * conn.mss as i32)
}
