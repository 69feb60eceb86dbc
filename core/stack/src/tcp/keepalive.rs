//! Keepalive (RFC 9293 §3.8.4, RFC 1122 §4.2.3.6): a peer of which nothing was heard for long is asked for a sign of life,
//! with a segment that it has acknowledged already, and given up where none comes.
//!
//! How long the peer has been silent says when a probe is due; `Cold::retries` counts those that were sent, as nothing else
//! is out that it could count.

use super::conn::{Cold, Conn, State};
use crate::context::{Context, STAMP_SHIFT};
use crate::wheel::TICK_SHIFT;

/// How far ahead an entry of the wheel stands at most, in ticks: ten minutes. A connection forgets entries, and they stay
/// until they fire.
const FURTHEST: u64 = 600_000_000_000 >> TICK_SHIFT;

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
    let silent = ctx.silence(conn.heard_at);
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
    Some(ctx.tick + ahead.min(FURTHEST))
}

/// What is due now.
#[cold]
pub(crate) fn due(conn: &Conn, cold: &Cold, ctx: &Context<'_>) -> Option<Due> {
    let (idle, _, most) = ctx.shared.ticks.keepalive?;
    silence(conn, ctx)?.checked_sub(idle)?;
    Some(if u32::from(cold.retries) < most { Due::Probe } else { Due::GiveUp })
}
