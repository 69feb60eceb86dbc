//! Tail loss probes (RFC 8985 §7): where the last segments of a flight are lost, nothing arrives behind them that would tell.
//! After some two round trips one segment more is sent, whose acknowledgment does.

use super::conn::{Cold, Conn, Flags};
use super::fields::Segment;
use super::recovery::{Probe, Recovery};
use super::rtt::rto_ticks;
use crate::context::Context;
use crate::ticks::UNIT_SHIFT;
use crate::wheel::TICK_SHIFT;

/// The shortest time before a probe, in the units of round-trip times: half a millisecond. Devices and schedulers delay
/// acknowledgments for so long now and then, which round trips of microseconds do not show.
const LEAST: u32 = 500_000 >> UNIT_SHIFT;

/// Ticks of the wheel after which a probe is due, where one may be sent: a flight of more than a segment, as a single one
/// is acknowledged late by peers that delay acknowledgments, nothing missing, and a time-out that is later.
pub(crate) fn due_in(conn: &Conn, cold: &Cold, ctx: &Context<'_>) -> Option<u32> {
    const HINDERS: Flags = Flags::RECOVERY
        .and(Flags::TIMEOUT_RECOVERY)
        .and(Flags::TAKEN_BACK)
        .and(Flags::PERSIST)
        .and(Flags::UNDO);
    let is_clear = match &cold.recovery {
        Some(recovery) => recovery.probe.is_none() && recovery.board.sacked_segments() == 0,
        None => true,
    };
    if !conn.flags.has(Flags::SACK)
        || conn.flags.has(HINDERS)
        || !conn.state.is_synchronized()
        || conn.srtt_8 == 0
        || conn.flight() == 0
        || !is_clear
    {
        return None;
    }
    if conn.flight() <= u32::from(conn.mss) {
        return Some(rto_ticks(conn, &ctx.shared.ticks));
    }
    // RFC 8985 §7.2: two round trips; one and its variation, where that is more.
    let units = (conn.srtt_8 / 4).max(conn.srtt_8 / 8 + conn.rttvar_4).max(LEAST);
    let mut ticks = (units >> (TICK_SHIFT - UNIT_SHIFT)) + 2;
    if conn.flight() < 2 * u32::from(conn.mss) {
        // A peer that counts bytes may delay its acknowledgment, as long as we would.
        ticks += u32::from(ctx.shared.ticks.delayed_ack);
    }
    Some(ticks.min(rto_ticks(conn, &ctx.shared.ticks)))
}

/// What became of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// None was out, or it is not known yet.
    Unknown,
    /// What it repeated had arrived before.
    NotLost,
    /// It filled a gap: something was lost, which must slow us down, with so many bytes in flight.
    Lost { flight: u32 },
}

/// What an acknowledgment says about the probe (RFC 8985 §7.4).
pub(crate) fn judge(
    conn: &Conn,
    recovery: &mut Recovery,
    segment: &Segment,
    is_twice: bool,
    is_duplicate: bool,
) -> Outcome {
    let Some(Probe { end, is_old, flight }) = recovery.probe else { return Outcome::Unknown };
    let has_none = segment.sack_blocks.as_slice().is_empty();
    if conn.snd_una.before(end) {
        return Outcome::Unknown;
    }
    let outcome = match is_old {
        false => Outcome::NotLost,
        true if is_twice || (is_duplicate && has_none) => Outcome::NotLost,
        true if conn.snd_una.after(end) => Outcome::Lost { flight },
        true => return Outcome::Unknown,
    };
    recovery.probe = None;
    outcome
}
