//! Sending: segments with headers written in place, acknowledgments, window updates.

use mem::{Mbuf, Retained, TxMeta, Want};
use wire::{
    EtherType, EthernetRepr, Ipv4Addr, Ipv4Repr, MacAddr, Protocol, SeqNumber, Sum, TcpFlags,
    TcpOptions, TcpRepr, Timestamp,
};

use super::conn::{Cold, Conn, Flags, Place, State};
use super::fields;
use super::group::FlowGroup;
use super::newreno::send_window;
use super::rtt::rto_ticks;
use crate::context::{Asker, Context, LINK_AND_IP};
use crate::shared::Shared;

/// Bytes of NOP NOP TIMESTAMP.
pub(crate) const TIMESTAMP_BYTES: usize = 12;

/// The receive window of a connection: the configured one, as far as the window field can say it
/// with the scale that was agreed on (RFC 7323 §2.3).
#[inline]
fn receive_window(conn: &Conn, shared: &Shared) -> u32 {
    shared.config.receive_window_bytes.min((u16::MAX as u32) << conn.rcv_wscale)
}

/// Bytes that may be received now, whatever was announced.
#[inline]
fn receive_room(conn: &Conn, cold: &Cold, shared: &Shared) -> u32 {
    let undelivered = if conn.flags.has(Flags::UNDELIVERED) { undelivered_bytes(cold) } else { 0 };
    receive_window(conn, shared).saturating_sub(conn.rcv_used + undelivered)
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
pub(crate) fn announce_window(conn: &mut Conn, cold: &Cold, shared: &Shared) -> u16 {
    let (left, mss) = (conn.rcv_adv - conn.rcv_nxt, conn.mss as i32);
    // Where more is open than the largest window less a segment, no segment can have come free; and
    // two segments open say that a segment is no more than half of this window.
    let open = left >= 2 * mss && shared.config.receive_window_bytes as i32 - left < mss;
    if !open {
        move_edge(conn, cold, shared);
    }
    let window = (conn.rcv_adv - conn.rcv_nxt).max(0) as u32;
    (window >> conn.rcv_wscale).min(u16::MAX as u32) as u16
}

fn move_edge(conn: &mut Conn, cold: &Cold, shared: &Shared) {
    let edge = conn.rcv_nxt + receive_room(conn, cold, shared);
    let grown = edge - conn.rcv_adv;
    if grown > 0 && grown as u32 >= silly_window(conn, shared) {
        conn.rcv_adv = edge;
    }
}

#[inline]
fn silly_window(conn: &Conn, shared: &Shared) -> u32 {
    (conn.mss as u32).min(receive_window(conn, shared) / 2)
}

/// Whether so much room came free that the peer should hear of it at once. Never where the edge
/// would stay: an acknowledgment that says nothing new looks like a loss to the peer.
#[inline]
pub(crate) fn window_update_due(conn: &Conn, cold: &Cold, shared: &Shared) -> bool {
    let left = conn.rcv_adv - conn.rcv_nxt;
    if left > shared.config.receive_window_bytes as i32 / 2 && left >= 2 * conn.mss as i32 {
        // Most of the window is open as it is, so less than half of it can have grown.
        return false;
    }
    let half = receive_window(conn, shared) as i32 / 2;
    let grown = (conn.rcv_nxt + receive_room(conn, cold, shared)) - conn.rcv_adv;
    let worth_it = grown >= silly_window(conn, shared).max(1) as i32;
    grown >= half.max(1) || (worth_it && left < 2 * conn.mss as i32)
}

/// What a segment says beside the connection's own state.
#[derive(Clone, Copy)]
struct Segment {
    seq: SeqNumber,
    flags: TcpFlags,
    payload_len: usize,
    payload_sum: Sum,
    options: TcpOptions,
    window: u16,
}

/// Writes Ethernet, IPv4 and TCP headers into all of `out`.
fn write_headers(out: &mut [u8], conn: &Conn, segment: &Segment, shared: &Shared, to: MacAddr) {
    let (src, dst) = (shared.config.address, conn.flow.remote_addr());
    let (link, rest) = out.split_at_mut(EthernetRepr::HEADER_LEN);
    let (ip, tcp) = rest.split_at_mut(Ipv4Repr::HEADER_LEN);
    EthernetRepr { dst: to, src: shared.config.mac, ethertype: EtherType::IPV4 }.emit(link);
    Ipv4Repr::new(src, dst, Protocol::TCP, tcp.len() + segment.payload_len).emit(ip);
    let has_ack = segment.flags.contains(TcpFlags::ACK);
    TcpRepr {
        src_port: conn.flow.local_port(),
        dst_port: conn.flow.remote_port(),
        seq: segment.seq,
        ack: if has_ack { conn.rcv_nxt } else { SeqNumber(0) },
        flags: segment.flags,
        window: segment.window,
        options: segment.options,
    }
    .emit(tcp, src, dst, segment.payload_len, segment.payload_sum);
}

/// Options of a segment with these flags, and the window field (never scaled on a SYN).
#[inline]
fn options_and_window(
    conn: &mut Conn,
    cold: &Cold,
    flags: TcpFlags,
    ctx: &Context<'_>,
) -> (TcpOptions, u16) {
    let echo = if flags.contains(TcpFlags::ACK) { conn.ts_recent } else { 0 };
    let timestamp = Timestamp { value: ctx.timestamp(), echo };
    if flags.contains(TcpFlags::SYN) {
        return syn_options_and_window(conn, cold, flags, timestamp, ctx);
    }
    let window = announce_window(conn, cold, ctx.shared);
    if conn.flags.has(Flags::TIMESTAMPS) {
        (TcpOptions::with_timestamp(timestamp), window)
    } else {
        (TcpOptions::NONE, window)
    }
}

#[cold]
fn syn_options_and_window(
    conn: &mut Conn,
    cold: &Cold,
    flags: TcpFlags,
    timestamp: Timestamp,
    ctx: &Context<'_>,
) -> (TcpOptions, u16) {
    // A SYN offers everything; a SYN-ACK only what the SYN offered (RFC 7323 §2.2, §3.2).
    let offers = !flags.contains(TcpFlags::ACK);
    let scales = offers || conn.rcv_wscale != 0 || conn.snd_wscale != 0;
    let options = TcpOptions {
        mss: Some(ctx.shared.config.receive_mss()),
        window_scale: scales.then_some(ctx.shared.window_scale),
        timestamp: (offers || conn.flags.has(Flags::TIMESTAMPS)).then_some(timestamp),
        ..TcpOptions::NONE
    };
    let room = receive_room(conn, cold, ctx.shared).min(u16::MAX as u32);
    conn.rcv_adv = conn.rcv_nxt + room;
    (options, room as u16)
}

/// After anything with an ACK went out.
#[inline]
pub(crate) fn acknowledged(conn: &mut Conn) {
    conn.flags.clear(Flags::ACK_DUE.and(Flags::ACK_NOW).and(Flags::ACK_ARMED));
    conn.last_ack_sent = conn.rcv_nxt;
}

/// Sends one segment of the send queue, for the first time or again. Where the link address is
/// not known yet, a copy waits for it.
fn transmit(
    conn: &mut Conn,
    cold: &Cold,
    retained: &mut Retained,
    ctx: &mut Context<'_>,
) -> Result<(), mem::Exhausted> {
    if !ctx.can_send() {
        return Err(mem::Exhausted);
    }
    let meta = retained.meta();
    let mut flags = TcpFlags(meta.flags);
    if conn.state != State::SynSent {
        flags = flags.union(TcpFlags::ACK);
    }
    let payload_sum = Sum::from_bits(meta.payload_sum);
    let (seq, payload_len) = (SeqNumber(meta.seq), retained.payload().len());
    let link = ctx.resolve_for(conn);
    let (options, window) = options_and_window(conn, cold, flags, ctx);
    let segment = Segment { seq, flags, payload_len, payload_sum, options, window };
    let headers = LINK_AND_IP + TcpRepr::HEADER_LEN + segment.options.len();
    match link {
        Some(mac) if !retained.is_in_nic() => {
            let shared = ctx.shared;
            let write = |out: &mut [u8], _: &[u8]| write_headers(out, conn, &segment, shared, mac);
            let frame = retained.transmit(headers, write).map_err(|mem::NoRoom| mem::Exhausted)?;
            ctx.out.frames.push(frame);
        }
        Some(mac) => {
            let copy = copy_for_transmission(conn, retained, &segment, headers, mac, ctx)?;
            ctx.out.frames.push(copy.into_tx());
        }
        None => {
            let nobody = MacAddr([0; 6]);
            let copy = copy_for_transmission(conn, retained, &segment, headers, nobody, ctx)?;
            ctx.wait_for_link(conn.flow.remote_addr(), copy, Asker::Ours);
        }
    }
    acknowledged(conn);
    ctx.stats.tcp_segments_out += 1;
    if meta.transmissions > 0 {
        ctx.stats.tcp_retransmissions += 1;
    } else {
        ctx.stats.tcp_bytes_out += meta.len as u64;
    }
    retained.mark_sent(ctx.now.as_nanos());
    if conn.flags.has(Flags::PERSIST) {
        // The timer ran for probes of a closed window; from here on it is for this segment.
        conn.flags.clear(Flags::PERSIST.and(Flags::RTX_ARMED));
        conn.backoff = 0;
    }
    if !conn.flags.has(Flags::RTX_ARMED) {
        arm_retransmission(conn, ctx);
    }
    Ok(())
}

/// The whole frame in a buffer of its own, where the segment's cannot be used.
#[cold]
fn copy_for_transmission(
    conn: &Conn,
    retained: &Retained,
    segment: &Segment,
    headers: usize,
    mac: MacAddr,
    ctx: &mut Context<'_>,
) -> Result<Mbuf, mem::Exhausted> {
    let mut mbuf = ctx.alloc_frame()?;
    let filled = mbuf.append(retained.payload()).and_then(|()| mbuf.prepend(headers).map(|_| ()));
    if filled.is_err() {
        ctx.pool.free(mbuf);
        return Err(mem::Exhausted);
    }
    write_headers(&mut mbuf.bytes_mut()[..headers], conn, segment, ctx.shared, mac);
    ctx.stats.tx_payload_copies += !retained.payload().is_empty() as u64;
    Ok(mbuf)
}

/// Starts the retransmission timer afresh (RFC 6298 §5.1).
#[inline(always)]
pub(crate) fn arm_retransmission(conn: &mut Conn, ctx: &Context<'_>) {
    conn.rtx_at = (ctx.tick as u32).wrapping_add(rto_ticks(conn, &ctx.shared.ticks));
    conn.flags.set(Flags::RTX_ARMED);
}

/// Sequence space of a segment in the send queue.
#[inline]
pub(crate) fn sequence_len(meta: &TxMeta) -> u32 {
    let flags = TcpFlags(meta.flags);
    meta.len as u32 + flags.contains(TcpFlags::SYN) as u32 + flags.contains(TcpFlags::FIN) as u32
}

/// What is noted about a new segment at the end of the send queue.
#[inline(always)]
fn unsent_meta(conn: &Conn, mbuf: &Mbuf, flags: TcpFlags, sum: Sum) -> TxMeta {
    TxMeta {
        sent_at_ns: 0,
        payload_sum: sum.to_bits(),
        seq: conn.snd_end.0,
        len: mbuf.len() as u16,
        flags: flags.0,
        transmissions: 0,
    }
}

/// Takes a new segment into the send queue, and sends it where the windows allow.
pub(crate) fn enqueue(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    mbuf: Mbuf,
    flags: TcpFlags,
    sum: Sum,
    ctx: &mut Context<'_>,
) {
    let meta = unsent_meta(conn, &mbuf, flags, sum);
    let len = sequence_len(&meta);
    conn.snd_end += len;
    let mut retained = mbuf.retain(meta);
    let fits = conn.flight() + len <= send_window(conn) || flags.contains(TcpFlags::SYN);
    if !conn.flags.has(Flags::UNSENT) && fits && transmit(conn, cold, &mut retained, ctx).is_ok() {
        conn.snd_nxt += len;
        conn.sent.push(retained);
    } else {
        cold.unsent.push(retained);
        conn.flags.set(Flags::UNSENT);
    }
    note_pending(conn, place, ctx);
}

/// As [`enqueue`], for a buffer that is longer than the peer's segments: it is cut when it is sent,
/// so that want of memory delays it and refuses nothing.
#[cold]
pub(crate) fn enqueue_long(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    mbuf: Mbuf,
    sum: Sum,
    ctx: &mut Context<'_>,
) {
    let meta = unsent_meta(conn, &mbuf, TcpFlags::PSH, sum);
    conn.snd_end += meta.len as u32;
    cold.unsent.push(mbuf.retain(meta));
    conn.flags.set(Flags::UNSENT);
    pump(place, conn, cold, ctx);
}

/// Has the connection looked at in step 6.
#[inline]
pub(crate) fn mark_pending(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let (place, conn, _) = group.at(slot);
    note_pending(conn, place, ctx);
}

/// As [`mark_pending`], where the connection is at hand.
#[inline]
pub(crate) fn note_pending(conn: &mut Conn, place: Place, ctx: &mut Context<'_>) {
    if !conn.flags.has(Flags::PENDING) {
        conn.flags.set(Flags::PENDING);
        ctx.out.pending.push(place);
    }
}

/// Sends again what a time-out declared lost, then what waits, as far as the windows allow.
pub(crate) fn pump(place: Place, conn: &mut Conn, cold: &mut Cold, ctx: &mut Context<'_>) {
    if conn.flags.are(Flags::TIMEOUT_RECOVERY, Flags::TIMEOUT_RECOVERY.and(Flags::FRTO)) {
        resend_lost(conn, cold, ctx);
    }
    if conn.flags.has(Flags::UNSENT) {
        send_waiting(conn, cold, ctx);
    }
    note_pending(conn, place, ctx);
}

fn resend_lost(conn: &mut Conn, cold: &mut Cold, ctx: &mut Context<'_>) {
    let mut sent = core::mem::take(&mut conn.sent);
    let mut resend = cold.resend.max(conn.snd_una);
    sent.for_each_while(|retained| {
        let meta = retained.meta();
        let seq = SeqNumber(meta.seq);
        if seq.before(resend) {
            return true;
        }
        let end = seq + sequence_len(&meta);
        let in_window = (end - conn.snd_una) as u32 <= send_window(conn).max(conn.mss as u32);
        if end.after(cold.recover) || !in_window {
            return false;
        }
        let sent = transmit(conn, cold, retained, ctx).is_ok();
        if sent {
            resend = end;
        }
        sent
    });
    cold.resend = resend;
    conn.sent = sent;
}

fn send_waiting(conn: &mut Conn, cold: &mut Cold, ctx: &mut Context<'_>) {
    while let Some(meta) = cold.unsent.front() {
        let len = sequence_len(&meta);
        let room = send_room(conn, &meta);
        // A buffer longer than the peer's segments is cut; so is one that a window smaller than a
        // segment has no room for, where nothing is in flight that could open it.
        let long = meta.len > conn.mss && (conn.mss as u32 <= room || conn.flight() == 0);
        if len > room || long {
            let cut = room.min(meta.len.min(conn.mss) as u32) as u16;
            // Pieces take memory of their own: with some on their way, as much as others may.
            let waits = conn.flight() > 0 && !(long && ctx.pool.allows(Want::Send));
            if waits || cut == 0 || split_front(cold, cut, ctx).is_err() {
                return;
            }
            continue;
        }
        let Some(mut retained) = cold.unsent.pop() else { return };
        if transmit(conn, cold, &mut retained, ctx).is_err() {
            cold.unsent.push_front(retained);
            return;
        }
        conn.snd_nxt += len;
        conn.sent.push(retained);
    }
    conn.flags.clear(Flags::UNSENT);
}

/// Makes two segments of the first waiting one, the first of `cut` payload bytes.
fn split_front(cold: &mut Cold, cut: u16, ctx: &mut Context<'_>) -> Result<(), mem::Exhausted> {
    let Some(mut second) = cold.unsent.pop() else { return Err(mem::Exhausted) };
    let meta = second.meta();
    let copied = ctx.pool.alloc().map(|mut mbuf| {
        let front = &second.payload()[..(cut as usize).min(second.payload().len())];
        let fits = mbuf.append(front).is_ok();
        (mbuf, fits)
    });
    let mbuf = match copied {
        Ok((mbuf, true)) => mbuf,
        Ok((mbuf, false)) => {
            ctx.pool.free(mbuf);
            cold.unsent.push_front(second);
            return Err(mem::Exhausted);
        }
        Err(exhausted) => {
            cold.unsent.push_front(second);
            return Err(exhausted);
        }
    };
    ctx.stats.tx_payload_copies += 1;
    let first_sum = Sum::of(mbuf.bytes()).to_bits();
    let first = mbuf.retain(TxMeta {
        payload_sum: first_sum,
        len: cut,
        flags: TcpFlags(meta.flags).difference(TcpFlags::FIN.union(TcpFlags::PSH)).0,
        ..meta
    });
    second.trim_front(cut as usize);
    second.set_meta(TxMeta {
        payload_sum: Sum::of(second.payload()).to_bits(),
        seq: meta.seq.wrapping_add(cut as u32),
        len: meta.len - cut,
        ..meta
    });
    cold.unsent.push_front(second);
    cold.unsent.push_front(first);
    Ok(())
}

/// With nothing in flight no acknowledgment will come: the closed window is probed by a timer. It is
/// closed for us where segments wait, and for the application where it was told that it may send
/// nothing: what it keeps back we do not see, and the peer's window update may be lost.
#[inline]
fn probe_if_stuck(conn: &mut Conn, ctx: &mut Context<'_>) {
    let opening = !conn.state.is_synchronized();
    if opening || conn.flight() > 0 || conn.flags.has(Flags::RTX_ARMED) {
        return;
    }
    if conn.flags.has(Flags::UNSENT) || (conn.credit() == 0 && conn.state.may_send()) {
        conn.flags.set(Flags::PERSIST);
        conn.backoff = 0;
        arm_retransmission(conn, ctx);
    }
}

/// Sends the first unacknowledged segment again. Without room it stays lost until the timer fires.
pub(crate) fn retransmit_first(conn: &mut Conn, cold: &Cold, ctx: &mut Context<'_>) {
    let mut sent = core::mem::take(&mut conn.sent);
    sent.with_front(|retained| transmit(conn, cold, retained, ctx));
    conn.sent = sent;
}

/// The sequence number of a segment without payload: SND.NXT, unless the peer has taken back the window below it and would
/// not accept that.
#[inline]
pub(crate) fn bare_seq(conn: &Conn) -> SeqNumber {
    conn.snd_una + conn.flight().min(conn.snd_wnd)
}

/// Sends a segment without payload: an acknowledgment, or a probe (`seq` before the window).
pub(crate) fn send_bare(
    conn: &mut Conn,
    cold: &Cold,
    seq: SeqNumber,
    flags: TcpFlags,
    ctx: &mut Context<'_>,
) -> Result<(), mem::Exhausted> {
    let destination = conn.flow.remote_addr();
    let link = ctx.resolve_for(conn);
    let mac = link.unwrap_or(MacAddr([0; 6]));
    let mut mbuf = ctx.alloc_frame()?;
    let (options, window) = options_and_window(conn, cold, flags, ctx);
    let segment = Segment { seq, flags, payload_len: 0, payload_sum: Sum::ZERO, options, window };
    let headers = LINK_AND_IP + TcpRepr::HEADER_LEN + segment.options.len();
    let Ok(out) = mbuf.prepend(headers) else {
        ctx.pool.free(mbuf);
        return Err(mem::Exhausted);
    };
    write_headers(out, conn, &segment, ctx.shared, mac);
    match link {
        Some(_) => ctx.out.frames.push(mbuf.into_tx()),
        None => ctx.wait_for_link(destination, mbuf, Asker::Ours),
    }
    ctx.stats.tcp_segments_out += 1;
    acknowledged(conn);
    Ok(())
}

/// Sends a segment that no connection keeps. Answers whether there was room for it.
#[cold]
pub(crate) fn send_unowned(to: Ipv4Addr, repr: &TcpRepr, ctx: &mut Context<'_>) -> bool {
    let Ok(mut mbuf) = ctx.alloc_frame() else { return false };
    let Ok(out) = mbuf.prepend(repr.header_len()) else {
        ctx.pool.free(mbuf);
        return false;
    };
    repr.emit(out, ctx.shared.config.address, to, 0, Sum::ZERO);
    ctx.stats.tcp_segments_out += 1;
    ctx.send_ip(mbuf, to, Protocol::TCP, Asker::Stranger);
    true
}

/// Whether the first waiting segment would fit the windows: what it waited for was room towards the
/// device, or memory.
fn waits_for_the_device(conn: &Conn, cold: &Cold) -> bool {
    let piece = |meta: &TxMeta| sequence_len(meta).min(conn.mss as u32);
    cold.unsent.front().is_some_and(|meta| piece(&meta) <= send_room(conn, &meta))
}

/// Sequence space that the windows leave for a segment. A SYN goes before there are any.
#[inline]
fn send_room(conn: &Conn, meta: &TxMeta) -> u32 {
    match TcpFlags(meta.flags).contains(TcpFlags::SYN) {
        true => 1,
        false => send_window(conn).saturating_sub(conn.flight()),
    }
}

/// What step 6 has to look at, beside the timer.
const UNSETTLED: Flags =
    Flags::ACK_NOW.and(Flags::ACK_DUE).and(Flags::ACK_ARMED).and(Flags::UNSENT);

/// Whether step 6 has nothing to do, as nearly always: a reply took the acknowledgment along, and the
/// timer is set. `other`: flags for which the caller looks too.
#[inline]
pub(crate) fn is_settled(conn: &Conn, other: Flags, ctx: &Context<'_>) -> bool {
    conn.flags.are(Flags::RTX_ARMED, Flags::RTX_ARMED.and(UNSETTLED).and(other))
        && has_timer(conn, ctx)
}

/// Whether step 6 has nothing to do for a connection that nothing was sent on since it was last looked
/// at: an acknowledgment came, and either all is acknowledged and the window open, or the timer is set.
#[inline]
pub(crate) fn is_at_rest(conn: &Conn, ctx: &Context<'_>) -> bool {
    conn.flags.are(Flags::default(), UNSETTLED)
        && match conn.flags.has(Flags::RTX_ARMED) {
            true => has_timer(conn, ctx),
            false => conn.flight() == 0 && conn.credit() > 0,
        }
}

/// Whether the wheel will ask about when the retransmission timer is due, or before.
#[inline]
pub(crate) fn has_timer(conn: &Conn, ctx: &Context<'_>) -> bool {
    conn.timer.covers(conn.rtx_at, ctx.shared.ticks.rto_slack)
}

/// Step 6 for one connection: acknowledges what no reply took along, or sets the timer for it.
pub(crate) fn flush(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let (place, conn, cold) = group.at(slot);
    conn.flags.clear(Flags::PENDING);
    if is_settled(conn, Flags::default(), ctx) {
        return;
    }
    if conn.state == State::Closed {
        return;
    }
    if conn.flags.has(Flags::UNSENT) && waits_for_the_device(conn, cold) {
        pump(place, conn, cold, ctx);
    }
    if conn.flags.has(Flags::ACK_NOW) {
        let seq = bare_seq(conn);
        if send_bare(conn, cold, seq, TcpFlags::ACK, ctx).is_ok() {
            ctx.stats.tcp_pure_acks_out += 1;
        } else {
            note_pending(conn, place, ctx);
        }
    } else if conn.flags.has(Flags::ACK_DUE) && !conn.flags.has(Flags::ACK_ARMED) {
        conn.ack_at = (ctx.tick as u16).wrapping_add(ctx.shared.ticks.delayed_ack);
        conn.flags.set(Flags::ACK_ARMED);
    }
    probe_if_stuck(conn, ctx);
    group.schedule(slot, ctx);
}

/// Shortest time between two acknowledgments of segments that need none: about half a second.
pub(crate) const ANSWER_INTERVAL: u32 = 477;

/// Acknowledges a segment that was not accepted (RFC 9293 §3.10.7.4; RFC 5961, challenge ACKs). For segments that are not
/// repeated such acknowledgments are limited for each connection: two ends that disagree would acknowledge each other's
/// for ever, and a limit that connections shared would let one peer find out what another does (CVE-2016-5696). What is
/// repeated is always acknowledged, as the peer may have missed the acknowledgment before. Returns whether it will be.
#[cold]
pub(crate) fn answer(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    segment: &fields::Segment,
    ctx: &mut Context<'_>,
) -> bool {
    if !segment.is_sent_again() {
        // Once in a while the low bits are alike after a minute: an answer less.
        let now = ctx.clock as u16;
        let since = now.wrapping_sub(cold.answered_at);
        if conn.flags.has(Flags::ANSWERED) && u32::from(since) < ANSWER_INTERVAL {
            ctx.stats.tcp_answers_limited += 1;
            return false;
        }
        conn.flags.set(Flags::ANSWERED);
        cold.answered_at = now;
    }
    conn.flags.set(Flags::ACK_NOW);
    note_pending(conn, place, ctx);
    true
}

/// A challenge ACK (RFC 5961): shows an honest peer our next numbers, and a blind attacker nothing.
#[cold]
pub(crate) fn challenge(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    segment: &fields::Segment,
    ctx: &mut Context<'_>,
) {
    let is_sent = answer(place, conn, cold, segment, ctx);
    ctx.stats.tcp_challenge_acks += u64::from(is_sent);
}
