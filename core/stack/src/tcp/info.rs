//! What is known of a connection (`TCP_INFO`).

use domain::{CallError, CallKind, ConnectionInfo};
use mem::Want;

use super::calls::fail;
use super::conn::{Cold, Conn, Flags, Place, State};
use crate::config::StackConfig;
use crate::context::{Context, STAMP_SHIFT};
use crate::ticks::UNIT_SHIFT;

/// Linux's number of a state.
fn number_of(state: State) -> u64 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

/// What is known now.
pub(crate) fn of(conn: &Conn, cold: &Cold, ctx: &Context<'_>) -> ConnectionInfo {
    let flag = |flag, value| if conn.flags.has(flag) { value } else { 0 };
    let has_scale = conn.snd_wscale | conn.rcv_wscale != 0;
    let timestamps = flag(Flags::TIMESTAMPS, 1);
    let recovery = cold.recovery.as_ref();
    let board = recovery.map(|recovery| &recovery.board);
    let peer = ctx.addresses(conn.flow.pair()).remote;
    let headers = u64::from(StackConfig::headers_len(peer)) + 12 * timestamps;
    let round_trip = |units: u32, shift: u32| u64::from(units >> shift) << UNIT_SHIFT;
    ConnectionInfo {
        state: number_of(conn.state),
        options: timestamps + flag(Flags::SACK, 2) + 4 * u64::from(has_scale) + flag(Flags::ECN, 8),
        snd_wscale: conn.snd_wscale.into(),
        rcv_wscale: conn.rcv_wscale.into(),
        srtt_ns: round_trip(conn.srtt_8, 3),
        rttvar_ns: round_trip(conn.rttvar_4, 2),
        rto_ns: u64::from(conn.rto) << crate::wheel::TICK_SHIFT,
        backoff: conn.backoff.into(),
        retries: cold.retries.into(),
        snd_mss_bytes: conn.mss.into(),
        rcv_mss_bytes: u64::from(conn.rcv_mss_64) * 64,
        path_mtu_bytes: u64::from(conn.mss) + headers,
        cwnd_bytes: conn.cwnd.into(),
        ssthresh_bytes: cold.ssthresh().into(),
        in_flight_bytes: conn.flight().into(),
        in_flight_segments: board
            .filter(|_| conn.flags.has(Flags::TRACKED))
            .map_or(u64::from(conn.listed), |board| board.len() as u64),
        sacked_bytes: board.map_or(0, |board| board.sacked().into()),
        sacked_segments: board.map_or(0, |board| board.sacked_segments().into()),
        lost_bytes: board.map_or(0, |board| board.lost().into()),
        recovery: flag(Flags::TIMEOUT_RECOVERY, 2).max(flag(Flags::RECOVERY, 1)),
        reorders: flag(Flags::REORDERS, 1),
        unsent_bytes: (conn.snd_end - conn.snd_nxt).max(0) as u64,
        snd_wnd_bytes: conn.snd_wnd.into(),
        rcv_wnd_bytes: (conn.rcv_adv - conn.rcv_nxt).max(0) as u64,
        held_bytes: conn.rcv_used.into(),
        silence_ns: u64::from(ctx.silence(conn.heard_at)) << STAMP_SHIFT,
    }
}

/// `inform`: the answer stands in a chunk of packet memory, which is freed after the batch.
pub(crate) fn inform(place: Place, conn: &Conn, cold: &Cold, ctx: &mut Context<'_>) {
    let (handle, cookie) = (conn.handle(place), conn.cookie);
    let bytes = of(conn, cold, ctx).to_bytes();
    let chunk = if ctx.pool.allows(Want::Send) { ctx.pool.alloc().ok() } else { None };
    let told = chunk.is_some_and(|mut mbuf| {
        let is_written = mbuf.append(&bytes).is_ok();
        let refused = match is_written && ctx.out.late_events.is_empty() {
            true => ctx.events.push_info(handle, cookie, mbuf).err(),
            false => Some(mbuf),
        };
        let is_told = refused.is_none();
        refused.into_iter().for_each(|mbuf| ctx.pool.free(mbuf));
        is_told
    });
    if !told {
        fail(CallKind::Inform, handle, cookie, CallError::Busy, ctx);
    }
}
