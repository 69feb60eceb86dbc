//! The size of segments on a path that carries less than both ends take: path MTU discovery.
//!
//! A router's message (`too_big`) lowers the size once the segment that it quotes is not acknowledged in time (RFC 1191,
//! RFC 5927 §7). Where no message comes, time-outs in a row do (RFC 4821 §7.7). Probes, segments of data that are larger,
//! raise it: ten minutes after a message, and after time-outs at once, by bisection (RFC 4821 §7.3).
//!
//! The loss of a segment that was too big is no sign of congestion (RFC 1191 §6.4, RFC 4821 §7.6.1): the stack sends it again
//! in parts, and leaves the slow start threshold as it is.
//!
//! Each connection finds out for itself, in a few round trips. A table by destination (RFC 1191 §6.2) would let one forged
//! message that a connection believed slow all others to the same peer.

use wire::SeqNumber;

use super::congestion::initial_window;
use super::conn::{Cold, Conn, Flags};
use super::recovery::{Recovery, SizeProbe, TooBig};
use super::spurious;
use crate::context::{Context, STAMP_SHIFT};

/// Payload bytes of segments after time-outs in a row, one size after the other: the second fits the least MTU that a
/// message may name (`too_big`), with timestamps.
const BASES: [u16; 2] = [1024, 500];
/// The same over IPv6: what fits the least MTU that there is, with timestamps (RFC 8201 §4).
const BASES_V6: [u16; 1] = [1280 - 60 - 12];
/// Time-outs in a row before that.
const BLACK_HOLE: u8 = 2;
/// Bytes to a size that failed within which no larger one is tried.
const NEAR: u16 = 32;
/// Ticks of the timestamp clock until larger sizes are tried anew (RFC 1191 §6.3, RFC 4821 §7.7): ten minutes.
const RAISE: u32 = (600_000_000_000_u64 >> STAMP_SHIFT) as u32;
/// Ticks until the next try of a size whose probe got lost among others, or could not be made: a second.
const AGAIN: u32 = (1_000_000_000_u64 >> STAMP_SHIFT) as u32;
/// Segments that have to follow a probe, so that its loss is found without a time-out.
pub(crate) const FOLLOWERS: u32 = 3;

const RECOVERS: Flags = Flags::RECOVERY.and(Flags::TIMEOUT_RECOVERY);

/// Judges the message and the probe that are out, after losses were found. Answers whether these are no sign of congestion.
pub(crate) fn on_news(
    conn: &mut Conn,
    cold: &mut Cold,
    recovery: &mut Recovery,
    ctx: &mut Context<'_>,
) -> bool {
    confirm(conn, cold, recovery, ctx) || judge_probe(conn, cold, recovery, ctx)
}

/// Believes a router's message where the segment was lost, or is late.
fn confirm(
    conn: &mut Conn,
    cold: &mut Cold,
    recovery: &mut Recovery,
    ctx: &mut Context<'_>,
) -> bool {
    let Some(message) = recovery.too_big else { return false };
    if message.is_refuted || conn.snd_una.after(message.seq) {
        recovery.too_big = None;
        return false;
    }
    let is_lost = recovery.board.find(message.seq).is_some_and(|sent| sent.is_lost());
    if !is_lost && message.due_ns > ctx.now.as_nanos() {
        return false;
    }
    recovery.too_big = None;
    shrink(conn, cold, recovery, &message, ctx)
}

/// The path carries `mss` payload bytes and no more, as the message says: what is larger and in flight is lost. Answers whether all that is lost
/// was too big.
fn shrink(
    conn: &mut Conn,
    cold: &mut Cold,
    recovery: &mut Recovery,
    &TooBig { seq, mss, .. }: &TooBig,
    ctx: &mut Context<'_>,
) -> bool {
    let probe = recovery.size_probe.take();
    // The one that was reported too, which options may have made longer.
    recovery.board.judge(|sent| Some(sent.payload_len() > mss || sent.seq == seq));
    note_failed(conn, cold, mss.saturating_add(1), ctx);
    if mss >= conn.mss {
        return probe.is_some_and(|probe| excuse(conn, recovery, probe));
    }
    conn.mss = mss;
    ctx.stats.tcp_path_mtu_lowered += 1;
    if !conn.flags.has(RECOVERS)
        && let Some(congestion) = &mut cold.congestion
    {
        let ssthresh = congestion.ssthresh.max(conn.cwnd);
        congestion.undo(conn.cwnd, ssthresh);
    }
    spurious::forget(conn);
    (recovery.undo, recovery.probe, recovery.late_at_ns) = (None, None, None);
    resume(conn, recovery);
    // No burst: slow start leads back to the window of before.
    let pipe = recovery.pipe(conn.flight(), mss);
    conn.cwnd = conn.cwnd.min(pipe + initial_window(mss));
    true
}

/// Goes on as after a time-out, until all that is in flight is acknowledged: what arrives meanwhile behind a gap is no
/// sign of congestion.
fn resume(conn: &mut Conn, recovery: &mut Recovery) {
    conn.flags.clear(Flags::RECOVERY);
    conn.flags.set(Flags::TIMEOUT_RECOVERY);
    (recovery.recover, recovery.duplicates) = (Some(conn.snd_nxt), 0);
}

/// A probe is lost. Answers whether it alone is: where others are too, congestion may be the reason (RFC 4821 §7.6.2).
/// Else neither the duplicates that a peer without selective acknowledgments goes on to send, nor a tail loss probe that
/// repeats a part of the probe, stand for another loss.
fn excuse(conn: &mut Conn, recovery: &mut Recovery, SizeProbe { seq, end }: SizeProbe) -> bool {
    if recovery.board.lost() > (end - seq) as u32 || conn.flags.has(RECOVERS) {
        return false;
    }
    recovery.probe = None;
    if !conn.flags.has(Flags::SACK) {
        resume(conn, recovery);
    }
    true
}

/// Segments of `size` payload bytes do not arrive.
fn note_failed(conn: &Conn, cold: &mut Cold, size: u16, ctx: &Context<'_>) {
    let path = &mut cold.congestion(ctx.shared.config.congestion).path_mtu;
    if path.full == 0 {
        path.full = conn.mss;
    }
    path.failed = size;
    let is_near = size <= conn.mss.saturating_add(NEAR);
    path.try_at = ctx.clock.wrapping_add(if is_near { RAISE } else { 0 });
}

/// Raises the size to that of a probe that arrived, and notes one that did not.
fn judge_probe(
    conn: &mut Conn,
    cold: &mut Cold,
    recovery: &mut Recovery,
    ctx: &mut Context<'_>,
) -> bool {
    let Some(probe) = recovery.size_probe else { return false };
    let SizeProbe { seq, end } = probe;
    let size = (end - seq) as u16;
    if conn.snd_una.after_eq(end) {
        recovery.size_probe = None;
        conn.mss = size;
        let congestion = cold.congestion(ctx.shared.config.congestion);
        congestion.doubted = None;
        let path = &mut congestion.path_mtu;
        path.try_at = ctx.clock;
        if size >= path.full {
            *path = Default::default();
        } else if path.failed <= size.saturating_add(NEAR) {
            path.try_at = ctx.clock.wrapping_add(RAISE);
        }
        return false;
    }
    if !recovery.board.find(seq).is_some_and(|sent| sent.is_lost()) {
        return false;
    }
    recovery.size_probe = None;
    if !excuse(conn, recovery, probe) {
        put_off(cold, ctx);
        return false;
    }
    note_failed(conn, cold, size, ctx);
    if let Some(congestion) = &mut cold.congestion
        && let Some(ssthresh) = congestion.doubted.take()
    {
        // That size was why there were time-outs.
        congestion.undo(conn.cwnd, ssthresh.max(congestion.ssthresh));
    }
    true
}

/// The retransmission timer fired. Answers whether a router's message explains that, so that it is no sign of congestion.
pub(crate) fn on_timeout(
    conn: &mut Conn,
    cold: &mut Cold,
    recovery: &mut Recovery,
    ctx: &mut Context<'_>,
) -> bool {
    if let Some(message) = &mut recovery.too_big {
        message.due_ns = 0;
        let before = conn.mss;
        // That a probe was too big does not explain it.
        if confirm(conn, cold, recovery, ctx) && conn.mss < before {
            return true;
        }
    }
    if let Some(SizeProbe { seq, end }) = recovery.size_probe.take() {
        match seq == conn.snd_una {
            true => note_failed(conn, cold, (end - seq) as u16, ctx),
            false => put_off(cold, ctx),
        }
    }
    let oldest = recovery.board.iter().next().map_or(0, |sent| sent.payload_len());
    let is_v4 = ctx.addresses(conn.flow.pair()).remote.is_ipv4();
    let bases = if is_v4 { &BASES[..] } else { &BASES_V6 };
    let base = bases.iter().copied().find(|&base| base < oldest && base < conn.mss);
    if cold.retries >= BLACK_HOLE
        && let Some(base) = base
    {
        // The path may have carried nothing at all: the first probe has the full size.
        note_failed(conn, cold, u16::MAX, ctx);
        conn.mss = base;
        if let Some(congestion) = &mut cold.congestion
            && let Some(undo) = &recovery.undo
        {
            congestion.doubted.get_or_insert(undo.ssthresh);
        }
        ctx.stats.tcp_path_mtu_lowered += 1;
    }
    false
}

/// The payload bytes of a probe that is due now.
pub(crate) fn next_size(conn: &Conn, cold: &mut Cold, ctx: &Context<'_>) -> Option<u16> {
    // After a recovery duplicates may be of what was sent twice, and do not find a loss.
    let is_unclear = |recovery: &Recovery| {
        recovery.size_probe.is_some() || recovery.too_big.is_some() || recovery.undo.is_some()
    };
    let is_unclear = cold.recovery.as_deref().is_some_and(is_unclear);
    let path = &mut cold.congestion.as_deref_mut()?.path_mtu;
    if path.full <= conn.mss
        || (ctx.clock.wrapping_sub(path.try_at) as i32) < 0
        || conn.flags.has(RECOVERS.and(Flags::FRTO))
        || is_unclear
    {
        return None;
    }
    if path.failed <= conn.mss.saturating_add(NEAR) {
        // That was ten minutes ago.
        path.failed = u16::MAX;
    }
    Some(match path.failed > path.full {
        true => path.full,
        false => conn.mss + (path.failed - conn.mss) / 2,
    })
}

/// A probe could not be made, or its loss is no answer.
pub(crate) fn put_off(cold: &mut Cold, ctx: &Context<'_>) {
    if let Some(congestion) = &mut cold.congestion {
        congestion.path_mtu.try_at = ctx.clock.wrapping_add(AGAIN);
    }
}

/// Whether the path is known to carry less than both ends would take.
pub(crate) fn is_narrow(cold: &Cold) -> bool {
    cold.congestion.as_ref().is_some_and(|congestion| congestion.path_mtu.full != 0)
}

/// The segment that begins with `seq` goes out in parts: if it was a probe, their arrival says nothing of its size.
pub(crate) fn forget_probe(
    cold: &mut Cold,
    recovery: &mut Recovery,
    seq: SeqNumber,
    ctx: &Context<'_>,
) {
    if recovery.size_probe.is_some_and(|probe| probe.seq == seq) {
        recovery.size_probe = None;
        put_off(cold, ctx);
    }
}
