//! Keepalive (RFC 9293 §3.8.4, RFC 1122 §4.2.3.6): a peer of which nothing was heard for long is asked for a sign of life,
//! with a segment that it has acknowledged already, and given up where none comes.
//!
//! Nothing is counted: how long the peer has been silent says which probe is due.

use super::conn::{Conn, State};
use crate::context::{Context, STAMP_SHIFT};
use crate::wheel::TICK_SHIFT;

/// What a silence asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// A probe.
    Probe,
    /// As many as are sent had no answer.
    GiveUp,
}

/// For how many ticks of the wheel nothing was heard, where the connection is one that is probed: open, with nothing
/// out that would be sent again.
fn silence(conn: &Conn, ctx: &Context<'_>) -> Option<u32> {
    let is_open = matches!(conn.state, State::Established | State::CloseWait | State::FinWait2);
    let silent = ctx.clock().wrapping_sub(conn.heard_at);
    (is_open && conn.flight() == 0)
        .then_some(silent.saturating_mul(1 << (STAMP_SHIFT - TICK_SHIFT)))
}

/// The tick at which the next probe is due, or the end.
#[cold]
pub(crate) fn deadline(conn: &Conn, ctx: &Context<'_>) -> Option<u64> {
    let (idle, interval, _) = ctx.shared.ticks.keepalive?;
    let silent = silence(conn, ctx)?;
    let probes = silent.checked_sub(idle).map_or(0, |over| over / interval + 1);
    let ahead = u64::from(idle) + u64::from(probes) * u64::from(interval) - u64::from(silent);
    Some(ctx.tick + ahead)
}

/// What is due now.
#[cold]
pub(crate) fn due(conn: &Conn, ctx: &Context<'_>) -> Option<Due> {
    let (idle, interval, most) = ctx.shared.ticks.keepalive?;
    let over = silence(conn, ctx)?.checked_sub(idle)?;
    Some(if over / interval < most { Due::Probe } else { Due::GiveUp })
}
