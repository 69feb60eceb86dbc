//! The arrival of a segment (RFC 9293 §3.10.7).

use domain::{ConnectError, DeadReason, EventRecord};
use mem::Mbuf;
use wire::TcpFlags;

use super::conn::{Cold, Conn, Flags, Place, State};
use super::fields::Segment;
use super::group::FlowGroup;
use super::half_open::Outcome;
use super::handshake::Handshake;
use super::{ack, close, ecn, half_open, listen, output, receive, reset, send_queue};
use crate::context::Context;
use crate::pairs::Pair;

/// Delivers a segment to its connection, to a listening port, or answers with a reset.
pub(crate) fn arrive(group: &mut FlowGroup, segment: &Segment, mbuf: Mbuf, ctx: &mut Context<'_>) {
    group.received += 1;
    let mut segment = segment;
    let known;
    if segment.flow.pair().is_numbered() {
        let pair = ctx.pairs.known(group.index, segment.flow.pair());
        known = Segment { flow: segment.flow.with_pair(pair), ..*segment };
        segment = &known;
    }
    let slot = group.lookup(segment.hash, segment.flow);
    let Some(slot) = slot else {
        let Pair { local, remote } = ctx.addresses(segment.flow.pair());
        let config = &ctx.shared.config;
        if remote.is_martian() || config.is_own(remote) || !config.is_own(local) {
            // No connection has such ends, so only here it has to be asked.
            ctx.stats.not_for_us += 1;
            return ctx.pool.free(mbuf);
        }
        let mut outcome = half_open::arrive(group, segment, mbuf, ctx);
        if let Outcome::None(mbuf) = outcome {
            outcome = listen::arrive(group, segment, mbuf, ctx);
        }
        if let Outcome::Opened(slot, mbuf) = outcome {
            synchronized(group, slot, segment, mbuf, ctx);
        }
        return;
    };
    match group.slots.hot(slot).state {
        State::SynSent => {
            ctx.pool.free(mbuf);
            syn_sent(group, slot, segment, ctx);
        }
        State::TimeWait => {
            ctx.pool.free(mbuf);
            close::time_wait(group, slot, segment, ctx);
        }
        State::SynReceived => syn_received(group, slot, segment, mbuf, ctx),
        _ => synchronized(group, slot, segment, mbuf, ctx),
    }
}

/// SYN-SENT (RFC 9293 §3.10.7.3).
#[cold]
fn syn_sent(group: &mut FlowGroup, slot: u32, segment: &Segment, ctx: &mut Context<'_>) {
    let (place, conn, cold) = group.at(slot);
    let has_ack = segment.flags.contains(TcpFlags::ACK);
    let acceptable = has_ack && segment.ack == conn.snd_una + 1;
    if has_ack && !acceptable {
        if !segment.flags.contains(TcpFlags::RST) {
            reset::send_reset(segment, ctx);
        }
        return;
    }
    if segment.flags.contains(TcpFlags::RST) {
        if acceptable {
            ctx.stats.tcp_resets_in += 1;
            let cookie = conn.cookie;
            ctx.event(EventRecord::ConnectFailed { cookie, error: ConnectError::Refused });
            group.destroy(slot, ctx);
        }
        return;
    }
    if !segment.flags.contains(TcpFlags::SYN) {
        return;
    }
    if !has_ack {
        return cross(conn, cold, segment, ctx);
    }
    adopt(conn, cold, segment, ctx);
    conn.state = State::Established;
    conn.flags.set(Flags::ACK_NOW);
    ctx.stats.tcp_connected += 1;
    let plain = Segment { seq: segment.seq + 1, ..*segment };
    // The window of a SYN is not scaled.
    let scale = core::mem::take(&mut conn.snd_wscale);
    ack::process(place, conn, cold, &plain, ctx);
    conn.snd_wscale = scale;
    conn.flags.set(Flags::ACCEPTED);
    report_connected(place, conn, ctx);
}

/// Reports that a connection which this end opened is open.
fn report_connected(place: Place, conn: &Conn, ctx: &mut Context<'_>) {
    let local = ctx.shared.config.name_of(ctx.ends(conn.flow).local);
    let (cookie, window, handle) = (conn.cookie, conn.credit(), conn.handle(place));
    ctx.event(EventRecord::Connected { cookie, local, handle, window });
}

/// Takes over what the answer to our SYN, or one that crossed it, announces.
fn adopt(conn: &mut Conn, cold: &Cold, segment: &Segment, ctx: &Context<'_>) {
    let has_ecn = conn.flags.has(Flags::ECN) && ecn::is_answered(segment.flags);
    let handshake = Handshake::of_syn(segment, conn.snd_una, has_ecn);
    // A repeated SYN may have been lost (RFC 5681 §3.1).
    half_open::adopt(conn, &handshake, cold.retries > 0, ctx);
    (conn.snd_wl1, conn.snd_wnd) = (segment.seq, segment.window.into());
}

/// Both ends have sent a SYN (RFC 9293 §3.5, figure 7): ours is sent again, as the answer to the peer's.
fn cross(conn: &mut Conn, cold: &mut Cold, segment: &Segment, ctx: &mut Context<'_>) {
    adopt(conn, cold, segment, ctx);
    conn.state = State::SynReceived;
    send_queue::retransmit_first(conn, cold, ctx);
}

/// SYN-RECEIVED of a connection that both ends opened.
fn syn_received(
    group: &mut FlowGroup,
    slot: u32,
    segment: &Segment,
    mbuf: Mbuf,
    ctx: &mut Context<'_>,
) {
    let (place, conn, cold) = group.at(slot);
    let repeats_syn = segment.flags.contains(TcpFlags::SYN) && segment.seq + 1 == conn.rcv_nxt;
    let is_syn_ack = repeats_syn
        && segment.flags.contains(TcpFlags::ACK)
        && !segment.flags.contains(TcpFlags::RST)
        && segment.ack == conn.snd_nxt;
    if repeats_syn && !is_syn_ack {
        // The peer's SYN was doubled. What it lacks it gets when the timer fires.
        output::answer(place, conn, cold, segment, ctx);
        return ctx.pool.free(mbuf);
    }
    // The peer's SYN-ACK repeats a SYN that has its place; its ACK counts (RFC 9293 §3.5, figure 7, line 6).
    let plain = match is_syn_ack {
        true => Segment {
            seq: segment.seq + 1,
            flags: segment.flags.difference(TcpFlags::SYN),
            payload_len: 0,
            ..*segment
        },
        false => *segment,
    };
    let opens = plain.flags.contains(TcpFlags::ACK)
        && !plain.flags.intersects(TcpFlags::RST.union(TcpFlags::SYN))
        && !is_old(conn, &plain, ctx)
        && acceptable(conn, &plain);
    // What does not open must not come to its ACK below either: with our SYN acknowledged no timer
    // would run for the connection any more.
    if !opens {
        return synchronized(group, slot, &plain, mbuf, ctx);
    }
    if plain.ack != conn.snd_nxt {
        ctx.pool.free(mbuf);
        return reset::send_reset(segment, ctx);
    }
    conn.state = State::Established;
    conn.flags.set(Flags::ACCEPTED);
    ctx.stats.tcp_connected += 1;
    // The window of a SYN is not scaled.
    conn.snd_wnd = u32::from(plain.window) << if is_syn_ack { 0 } else { conn.snd_wscale };
    conn.snd_wl1 = plain.seq;
    conn.snd_edge = conn.snd_nxt + conn.cwnd.min(conn.snd_wnd);
    report_connected(place, conn, ctx);
    if is_syn_ack {
        ctx.pool.free(mbuf);
        let scale = core::mem::take(&mut conn.snd_wscale);
        ack::process(place, conn, cold, &plain, ctx);
        conn.snd_wscale = scale;
        conn.flags.set(Flags::ACK_NOW);
        return output::note_pending(conn, place, ctx);
    }
    synchronized(group, slot, &plain, mbuf, ctx);
}

/// All states from ESTABLISHED on, and what RFC 9293 §3.10.7.4 says of all others.
fn synchronized(
    group: &mut FlowGroup,
    slot: u32,
    segment: &Segment,
    mbuf: Mbuf,
    ctx: &mut Context<'_>,
) {
    let (place, conn, cold) = group.at(slot);
    let reset = segment.flags.contains(TcpFlags::RST);
    if (is_old(conn, segment, ctx) && !reset) || !acceptable(conn, segment) {
        ctx.stats.tcp_unacceptable += 1;
        if !reset {
            output::answer(place, conn, cold, segment, ctx);
        }
        return ctx.pool.free(mbuf);
    }
    if segment.flags.intersects(TcpFlags::RST.union(TcpFlags::SYN)) {
        ctx.pool.free(mbuf);
        return if reset {
            obey_reset(group, slot, segment, ctx)
        } else {
            // RFC 5961 §4: never reset because of a SYN.
            output::challenge(place, conn, cold, segment, ctx);
        };
    }
    if !segment.flags.contains(TcpFlags::ACK)
        || !ack::is_acceptable(place, conn, cold, segment, ctx)
    {
        return ctx.pool.free(mbuf);
    }
    conn.heard_at = ctx.clock;
    // RFC 7323 §4.3 (2). Behind the acknowledgment: a stranger who guesses only the window must not move what is
    // echoed, or old segments of the peer would be refused from then on (CVE-2005-0356).
    if let Some(stamp) = segment.timestamp
        && conn.flags.has(Flags::TIMESTAMPS)
        // An older one was let in by a long silence: from here on that clock counts.
        && (segment.seq.before_eq(conn.last_ack_sent)
            || (stamp.value.wrapping_sub(conn.ts_recent) as i32) < 0)
    {
        conn.ts_recent = stamp.value;
    }
    ack::process(place, conn, cold, segment, ctx);
    if !close::after_ack(group, slot, ctx) {
        return ctx.pool.free(mbuf);
    }
    let fin = segment.flags.contains(TcpFlags::FIN);
    if segment.payload_len == 0 && !fin {
        return ctx.pool.free(mbuf);
    }
    let (_, conn, cold) = group.at(slot);
    if segment.payload_len > 0 && conn.flags.has(Flags::ECN) {
        take_mark(conn, cold, segment, ctx);
    }
    receive::data(group, slot, segment, mbuf, ctx);
}

/// Takes the mark of a segment with data, before RCV.NXT counts it.
#[cold]
fn take_mark(conn: &mut Conn, cold: &Cold, segment: &Segment, ctx: &mut Context<'_>) {
    ctx.stats.tcp_marks_in += u64::from(segment.is_marked);
    let config = &ctx.shared.config;
    if ecn::is_turn(conn, segment, config) && conn.rcv_nxt != conn.last_ack_sent {
        // One that finds no room is made up for by the next one.
        let seq = output::bare_seq(conn);
        let is_sent = output::send_bare(conn, cold, seq, TcpFlags::ACK, ctx).is_ok();
        ctx.stats.tcp_pure_acks_out += u64::from(is_sent);
    }
    ecn::arrive(conn, segment, config);
}

/// Silence of the peer after which TS.Recent says nothing any more (RFC 7323 §5.5), in ticks of the timestamp clock: 2,000 s, in
/// which even a clock of microseconds does not turn round half.
const PAWS_SILENCE: u32 = 1_907_349;

/// PAWS (RFC 7323 §5.3 R1), which comes before the test of the sequence number.
#[inline]
fn is_old(conn: &Conn, segment: &Segment, ctx: &Context<'_>) -> bool {
    conn.flags.has(Flags::TIMESTAMPS)
        && segment
            .timestamp
            .is_some_and(|stamp| (stamp.value.wrapping_sub(conn.ts_recent) as i32) < 0)
        && ctx.silence(conn.heard_at) < PAWS_SILENCE
}

/// Whether a segment is in the receive window.
#[inline]
fn acceptable(conn: &Conn, segment: &Segment) -> bool {
    segment.is_in_window(conn.rcv_nxt, (conn.rcv_adv - conn.rcv_nxt).max(0))
}

/// RFC 5961 §3.2: a reset must hit the next sequence number exactly.
#[cold]
fn obey_reset(group: &mut FlowGroup, slot: u32, segment: &Segment, ctx: &mut Context<'_>) {
    let (place, conn, cold) = group.at(slot);
    if segment.seq != conn.rcv_nxt {
        return output::challenge(place, conn, cold, segment, ctx);
    }
    ctx.stats.tcp_resets_in += 1;
    if conn.state == State::SynReceived {
        let cookie = conn.cookie;
        ctx.event(EventRecord::ConnectFailed { cookie, error: ConnectError::Refused });
        return group.destroy(slot, ctx);
    }
    close::die(group, slot, Some(DeadReason::Reset), ctx);
}
