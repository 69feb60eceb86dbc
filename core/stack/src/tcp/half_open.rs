//! Half-open connections: a SYN was answered, and its answer is not acknowledged (SYN-RECEIVED, RFC 9293 §3.10.7.4).
//!
//! Anybody can make one, with any address. So it is a record of a few words without packet memory, not a connection: the
//! SYN-ACK is made anew each time. A listening port has so many of them as its backlog allows; what comes beyond is
//! answered with a [`cookie`](super::cookie) and not recorded at all.

use domain::{EventRecord, FirstWindow};
use mem::Mbuf;
use wire::{FlowKey, SeqNumber, TcpFlags, TcpOptions, TcpRepr, Timestamp};

use super::congestion::initial_window;
use super::conn::{Conn, Flags, Place, State};
use super::fields::{Ends, Segment};
use super::group::FlowGroup;
use super::handshake::{Due, HalfOpen, Handshake, RETRIES};
use super::output::{ANSWER_INTERVAL, TIMESTAMP_BYTES, send_unowned};
use super::{output, rtt};
use crate::context::Context;
use crate::shared::Shared;

/// Sends the SYN-ACK of a handshake, with `timestamp` as our timestamp. Answers whether there was room for it.
pub(crate) fn syn_ack(
    handshake: &Handshake,
    flow: FlowKey,
    timestamp: u32,
    ctx: &mut Context<'_>,
) -> bool {
    let shared = ctx.shared;
    let peer = ctx.addresses(flow.pair()).remote;
    let options = TcpOptions {
        mss: Some(shared.config.receive_mss(peer)),
        window_scale: handshake.window_scale.map(|_| shared.window_scale),
        timestamp: handshake.ts_recent.map(|echo| Timestamp { value: timestamp, echo }),
        sack_permitted: handshake.sack,
        ..TcpOptions::NONE
    };
    let ecn = if handshake.ecn { TcpFlags::ECE } else { TcpFlags::NONE };
    let flags = TcpFlags::SYN.union(TcpFlags::ACK).union(ecn);
    send(handshake, flow, handshake.iss, flags, options, ctx)
}

fn send(
    handshake: &Handshake,
    flow: FlowKey,
    seq: SeqNumber,
    flags: TcpFlags,
    options: TcpOptions,
    ctx: &mut Context<'_>,
) -> bool {
    let (src_port, dst_port) = (flow.local_port(), flow.remote_port());
    let (ack, window) = (handshake.irs + 1, first_window(ctx.shared) as u16);
    let repr = TcpRepr { src_port, dst_port, seq, ack, flags, window, options };
    send_unowned(ctx.addresses(flow.pair()), &repr, ctx)
}

/// The window that a SYN-ACK announces, which is not scaled.
fn first_window(shared: &Shared) -> u32 {
    shared.config.receive_window_bytes.min(u16::MAX.into())
}

/// Records the half-open connection that a SYN makes, and answers it.
pub(crate) fn open(
    group: &mut FlowGroup,
    segment: &Segment,
    handshake: Handshake,
    ctx: &mut Context<'_>,
) {
    let Some(flow) = ctx.hold(group.index, segment.flow) else {
        ctx.stats.tcp_syn_dropped += 1;
        return;
    };
    let half =
        HalfOpen { flow, handshake, sent_at_ns: 0, answered_at: None, generation: 0, tried: 0 };
    let slot = group.half_open.insert(segment.hash, half);
    ctx.count_backlog(&mut group.backlogs, segment.flow.local_port(), |backlog| {
        backlog.half_open += 1
    });
    send_syn_ack(group, slot, ctx);
}

/// Sends the SYN-ACK, and has the record looked at when it has waited long enough for the acknowledgment.
fn send_syn_ack(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let half = group.half_open.at(slot);
    half.tried += 1;
    if syn_ack(&half.handshake, half.flow, ctx.timestamp(), ctx) {
        ctx.stats.tcp_retransmissions += u64::from(half.tried > 1);
        half.sent_at_ns = ctx.now.as_nanos();
    }
    let due = group.half_open.wait(slot, ctx.tick);
    ctx.note_group_due(group.index, due);
}

/// Ends a half-open connection.
fn remove(group: &mut FlowGroup, hash: u32, slot: u32, ctx: &mut Context<'_>) -> HalfOpen {
    let half = group.half_open.remove(hash, slot);
    ctx.pairs.release(half.flow.pair());
    ctx.count_backlog(&mut group.backlogs, half.flow.local_port(), |backlog| {
        backlog.half_open -= 1
    });
    half
}

/// Looks at half-open connections that have waited long enough, `most` of them. Answers how many more there might have
/// been.
pub(crate) fn run_due(group: &mut FlowGroup, mut most: usize, ctx: &mut Context<'_>) -> usize {
    while most > 0
        && let Some(Due { slot, generation, .. }) = group.half_open.pop_due(ctx.tick)
    {
        most -= 1;
        let half = *group.half_open.at(slot);
        if half.generation != generation {
            continue;
        }
        ctx.stats.tcp_timeouts += 1;
        let retries = usize::from(ctx.shared.config.syn_retries).min(RETRIES);
        if usize::from(half.tried) > retries {
            let hash = ctx.hash_of(half.flow);
            remove(group, hash, slot, ctx);
        } else {
            send_syn_ack(group, slot, ctx);
        }
    }
    most
}

/// Resets half-open connections of a stack that leaves: their peers may already take them for open. As many as there is
/// room for; answers how many.
pub(crate) fn reset_all(group: &mut FlowGroup, ctx: &mut Context<'_>) -> u64 {
    let mut reset = 0;
    while let Some((slot, half)) = group.half_open.first()
        && ctx.can_send()
    {
        let hash = ctx.hash_of(half.flow);
        remove(group, hash, slot, ctx);
        let flags = TcpFlags::RST.union(TcpFlags::ACK);
        let Handshake { iss, .. } = half.handshake;
        let is_sent = send(&half.handshake, half.flow, iss + 1, flags, TcpOptions::NONE, ctx);
        ctx.stats.tcp_resets_out += u64::from(is_sent);
        reset += u64::from(is_sent);
    }
    reset
}

/// Forgets half-open connections of ports that are not listened on any more. Their peers learn of it by the reset that
/// answers the last step of the handshake.
pub(crate) fn forget_closed(group: &mut FlowGroup, ctx: &mut Context<'_>) {
    for slot in 0..group.half_open.capacity() {
        if let Some(half) = group.half_open.get(slot)
            && group.backlogs.is_over(half.flow.local_port(), &ctx.shared.tcp_ports)
        {
            let hash = ctx.hash_of(half.flow);
            remove(group, hash, slot, ctx);
        }
    }
}

/// What became of a segment that belongs to no connection.
pub(crate) enum Outcome {
    /// There is no half-open connection either.
    None(Mbuf),
    /// It was dealt with.
    Done,
    /// It opened the connection in this slot, which now takes the segment.
    Opened(u32, Mbuf),
}

/// A segment between the ends of a half-open connection, if there is one (RFC 9293 §3.10.7.4, SYN-RECEIVED).
pub(crate) fn arrive(
    group: &mut FlowGroup,
    segment: &Segment,
    mbuf: Mbuf,
    ctx: &mut Context<'_>,
) -> Outcome {
    // Nearly always none at all: then nothing is searched.
    if group.half_open.len() == 0 {
        return Outcome::None(mbuf);
    }
    let Some(slot) = group.half_open.find(segment.hash, segment.flow) else {
        return Outcome::None(mbuf);
    };
    let half = *group.half_open.at(slot);
    let Handshake { iss, irs, ts_recent, .. } = half.handshake;
    let flags = segment.flags;
    let rcv_nxt = irs + 1;
    let is_exact = segment.seq == rcv_nxt;
    let is_old = matches!((ts_recent, segment.timestamp), (Some(recent), Some(stamp))
        if (stamp.value.wrapping_sub(recent) as i32) < 0);
    let in_window = segment.is_in_window(rcv_nxt, first_window(ctx.shared) as i32);
    if flags.contains(TcpFlags::RST) {
        ctx.pool.free(mbuf);
        if is_exact {
            ctx.stats.tcp_resets_in += 1;
            remove(group, segment.hash, slot, ctx);
        } else if in_window {
            acknowledge(group, slot, ctx);
        }
    } else if flags.contains(TcpFlags::SYN) && segment.seq == irs {
        // Our SYN-ACK was lost, or the SYN was doubled: an answer now and then is enough.
        ctx.pool.free(mbuf);
        if may_answer(group.half_open.at(slot), ctx) {
            syn_ack(&half.handshake, half.flow, ctx.timestamp(), ctx);
        }
    } else if flags.contains(TcpFlags::SYN) || is_old || !in_window {
        ctx.pool.free(mbuf);
        acknowledge(group, slot, ctx);
    } else if !flags.contains(TcpFlags::ACK) {
        ctx.pool.free(mbuf);
    } else if segment.ack != iss + 1 {
        // It may acknowledge a cookie that was sent before there was room for the record.
        return Outcome::None(mbuf);
    } else if can_establish(group, segment, ctx) {
        let HalfOpen { handshake, sent_at_ns, tried, answered_at, .. } =
            remove(group, segment.hash, slot, ctx);
        let answered = match tried {
            1 if answered_at.is_none() => Answered::Once { at_ns: sent_at_ns },
            _ => Answered::Again,
        };
        return establish(group, segment, &handshake, answered, mbuf, ctx);
    } else {
        // The peer takes the connection for open, and will send the last step again with its data.
        ctx.pool.free(mbuf);
    }
    Outcome::Done
}

/// Whether a segment that does not open the connection is answered: now and then.
fn may_answer(half: &mut HalfOpen, ctx: &mut Context<'_>) -> bool {
    let now = ctx.clock;
    if half.answered_at.is_some_and(|at| now.wrapping_sub(at) < ANSWER_INTERVAL) {
        ctx.stats.tcp_answers_limited += 1;
        return false;
    }
    half.answered_at = Some(now);
    true
}

/// Acknowledges what is not acceptable, or a guess (RFC 5961).
fn acknowledge(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let half = group.half_open.at(slot);
    if !may_answer(half, ctx) {
        return;
    }
    let HalfOpen { flow, handshake, .. } = *half;
    let stamp = handshake.ts_recent.map(|echo| Timestamp { value: ctx.timestamp(), echo });
    let options = stamp.map_or(TcpOptions::NONE, TcpOptions::with_timestamp);
    if send(&handshake, flow, handshake.iss + 1, TcpFlags::ACK, options, ctx) {
        ctx.stats.tcp_challenge_acks += 1;
    }
}

/// Whether there is room for one more connection that the application has not accepted; counted where there is none.
pub(crate) fn can_establish(group: &FlowGroup, segment: &Segment, ctx: &mut Context<'_>) -> bool {
    let config = &ctx.shared.config;
    let port = segment.flow.local_port();
    let most = ctx.shared.unaccepted_most(port).unwrap_or(0);
    // Those of the port's last opening end first.
    let has_room = !group.backlogs.is_over(port, &ctx.shared.tcp_ports)
        && ctx.backlog(port).unaccepted < most
        && ctx.census.connections < config.max_connections;
    ctx.stats.tcp_backlog_full += u64::from(!has_room);
    has_room
}

/// Takes over what a handshake has agreed on. `is_repeated`: a SYN of ours may have been lost, so that the first flight is
/// one segment (RFC 5681 §3.1).
pub(crate) fn adopt(conn: &mut Conn, handshake: &Handshake, is_repeated: bool, ctx: &Context<'_>) {
    let shared = ctx.shared;
    let peer = ctx.addresses(conn.flow.pair()).remote;
    conn.mss = handshake.mss.min(shared.config.mss(peer));
    if let Some(ts_recent) = handshake.ts_recent {
        conn.flags.set(Flags::TIMESTAMPS);
        conn.ts_recent = ts_recent;
        conn.mss -= TIMESTAMP_BYTES as u16;
    }
    if handshake.sack {
        conn.flags.set(Flags::SACK);
    }
    // One that asked for it has the flag before.
    conn.flags.clear(Flags::ECN);
    if handshake.ecn {
        conn.flags.set(Flags::ECN);
    }
    if let Some(scale) = handshake.window_scale {
        (conn.snd_wscale, conn.rcv_wscale) = (scale, shared.window_scale);
    }
    conn.cwnd = if is_repeated { conn.mss.into() } else { initial_window(conn.mss) };
    conn.rcv_nxt = handshake.irs + 1;
    conn.rcv_adv = conn.rcv_nxt + first_window(shared);
    conn.last_ack_sent = conn.rcv_nxt;
    conn.heard_at = ctx.clock;
}

/// How the SYN was answered that an acknowledgment comes for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answered {
    /// With one SYN-ACK: a sample of the round-trip time.
    Once { at_ns: u64 },
    /// With several: one may have been lost (RFC 5681 §3.1).
    Again,
    /// With a cookie.
    Unknown,
}

/// The last step of the handshake: the connection is open, and the application hears of it.
pub(crate) fn establish(
    group: &mut FlowGroup,
    segment: &Segment,
    handshake: &Handshake,
    answered: Answered,
    mbuf: Mbuf,
    ctx: &mut Context<'_>,
) -> Outcome {
    let Some(slot) = group.create(segment.hash, segment.flow, ctx) else {
        ctx.stats.tcp_backlog_full += 1;
        ctx.pool.free(mbuf);
        return Outcome::Done;
    };
    if let Some(half) = group.half_open.find(segment.hash, segment.flow) {
        remove(group, segment.hash, half, ctx);
    }
    let local_port = segment.flow.local_port();
    ctx.count_backlog(&mut group.backlogs, local_port, |backlog| backlog.unaccepted += 1);
    let (place, conn, _) = group.at(slot);
    let snd_nxt = handshake.iss + 1;
    conn.state = State::Established;
    adopt(conn, handshake, matches!(answered, Answered::Again), ctx);
    (conn.snd_una, conn.snd_nxt, conn.snd_end) = (snd_nxt, snd_nxt, snd_nxt);
    conn.snd_wl1 = segment.seq - 1;
    // The handshake's ACK must open the window before the application hears of it.
    conn.snd_wnd = u32::from(segment.window) << conn.snd_wscale;
    conn.snd_edge = snd_nxt + conn.cwnd.min(conn.snd_wnd);
    if let Answered::Once { at_ns } = answered {
        rtt::sample(conn, ctx.now.as_nanos().saturating_sub(at_ns), &ctx.shared.ticks);
    }
    ctx.stats.tcp_accepted += 1;
    if conn.flags.has(Flags::KEEPALIVE) {
        output::note_pending(conn, place, ctx);
    }
    let knock = knock(place, conn, ctx);
    ctx.event(knock);
    Outcome::Opened(slot, mbuf)
}

/// The event of a connection that waits to be accepted.
pub(crate) fn knock(place: Place, conn: &Conn, ctx: &Context<'_>) -> EventRecord {
    let Ends { local, remote: peer } = ctx.ends(conn.flow);
    let (local, window) = (ctx.shared.config.name_of(local), FirstWindow::new(conn.credit()));
    EventRecord::Knock { handle: conn.handle(place), local, peer, window }
}
