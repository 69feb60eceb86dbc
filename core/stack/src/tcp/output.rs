//! Sending: segments with headers written in place, acknowledgments, window updates.

use core::num::NonZero;

use mem::{Mbuf, NoRoom, PartialChecksum, Retained, TxMeta};
use wire::ipv4::ECN_NOT_ECT;
use wire::{
    MAX_OPTIONS_LEN, MacAddr, Protocol, SackBlocks, SeqNumber, Sum, TcpFlags, TcpOptions, TcpRepr,
    Timestamp,
};

use super::announce::{announce_window, receive_room};
use super::conn::{Cold, Conn, Flags, Place, State};
use super::group::FlowGroup;
use super::rtt::rto_ticks;
use super::{ecn, fields, long};
use crate::context::{Asker, Context, emit_link_and_ip, link_and_ip_len};
use crate::pairs::Pair;
use crate::shared::Shared;

/// Bytes of NOP NOP TIMESTAMP.
pub(crate) const TIMESTAMP_BYTES: usize = 12;

/// What a segment says beside the connection's own state.
#[derive(Clone, Copy)]
struct Segment {
    seq: SeqNumber,
    flags: TcpFlags,
    payload_len: usize,
    /// `None`: the device completes the checksum.
    payload_sum: Option<Sum>,
    options: TcpOptions,
    window: u16,
    /// The packet's codepoint (RFC 3168 §5).
    ecn: u8,
}

/// Writes Ethernet, IP and TCP headers into all of `out`.
fn write_headers(
    out: &mut [u8],
    conn: &Conn,
    segment: &Segment,
    shared: &Shared,
    (to, pair): (MacAddr, Pair),
) {
    let (link_and_ip, tcp) = out.split_at_mut(link_and_ip_len(pair.remote));
    let transport = (Protocol::TCP, segment.ecn);
    let len = tcp.len() + segment.payload_len;
    emit_link_and_ip(link_and_ip, to, pair, transport, len, shared);
    let has_ack = segment.flags.contains(TcpFlags::ACK);
    let repr = TcpRepr {
        src_port: conn.flow.local_port(),
        dst_port: conn.flow.remote_port(),
        seq: segment.seq,
        ack: if has_ack { conn.rcv_nxt } else { SeqNumber(0) },
        flags: segment.flags,
        window: segment.window,
        options: segment.options,
    };
    match segment.payload_sum {
        Some(sum) => repr.emit(tcp, pair.local, pair.remote, segment.payload_len, sum),
        None => repr.emit_partial(tcp, pair.local, pair.remote, segment.payload_len),
    }
}

/// The checksum of a segment whose TCP header starts `at` bytes into the frame, left to the device.
#[inline(always)]
pub(crate) fn partial_checksum(at: usize) -> PartialChecksum {
    const OFFSET: NonZero<u16> = match NonZero::new(TcpRepr::CHECKSUM_AT as u16) {
        Some(offset) => offset,
        None => NonZero::<u16>::MIN,
    };
    PartialChecksum { start: at as u16, offset: OFFSET }
}

/// Whether the device completes the checksum of a segment with so many bytes of payload. Without any there is nothing
/// to gain.
#[inline(always)]
fn is_offloaded(payload_len: usize, ctx: &Context<'_>) -> bool {
    ctx.shared.config.tx_checksum_offload && payload_len > 0
}

/// Options of a segment with these flags, and the window field (never scaled on a SYN).
#[inline]
fn options_and_window(
    conn: &mut Conn,
    cold: &Cold,
    flags: TcpFlags,
    payload_len: usize,
    ctx: &Context<'_>,
) -> (TcpOptions, u16) {
    let echo = if flags.contains(TcpFlags::ACK) { conn.ts_recent } else { 0 };
    let timestamp = Timestamp { value: ctx.timestamp(), echo };
    if flags.contains(TcpFlags::SYN) {
        return syn_options_and_window(conn, cold, flags, timestamp, ctx);
    }
    let window = announce_window(conn, cold, ctx);
    let mut options = match conn.flags.has(Flags::TIMESTAMPS) {
        true => TcpOptions::with_timestamp(timestamp),
        false => TcpOptions::NONE,
    };
    if tells_blocks(conn) {
        options.sack_blocks = sack_blocks(conn, cold, payload_len, ctx);
        // Each is told of once (RFC 2883 §4).
        if payload_len == 0 || !options.sack_blocks.is_empty() {
            conn.flags.clear(Flags::DUPLICATE);
        }
    }
    (options, window)
}

/// Whether an acknowledgment is to say which segments have come ahead of a gap, or twice.
#[inline]
fn tells_blocks(conn: &Conn) -> bool {
    conn.flags.has(Flags::OUT_OF_ORDER.and(Flags::DUPLICATE)) && conn.flags.has(Flags::SACK)
}

/// What came twice (RFC 2883 §4), then what waits behind gaps (RFC 2018 §4), where there is room for all of it beside the
/// payload.
#[cold]
fn sack_blocks(conn: &Conn, cold: &Cold, payload_len: usize, ctx: &Context<'_>) -> SackBlocks {
    let stamp = if conn.flags.has(Flags::TIMESTAMPS) { TIMESTAMP_BYTES } else { 0 };
    let most = (MAX_OPTIONS_LEN - stamp - 4) / 8;
    let room = usize::from(conn.mss).saturating_sub(payload_len + 4) / 8;
    if room == 0 && payload_len > 0 {
        return SackBlocks::EMPTY;
    }
    let mut blocks = twice(conn, cold, ctx);
    let waiting = cold.reassembly.as_ref().map(|reassembly| reassembly.blocks(most));
    for &(left, right) in waiting.iter().flat_map(SackBlocks::as_slice) {
        if blocks.len() < most && blocks.get(1) != Some(&(left, right)) {
            blocks.push(left, right);
        }
    }
    match payload_len > 0 && blocks.len() > room {
        true => SackBlocks::EMPTY,
        false => blocks,
    }
}

/// What came twice, and where that waits behind a gap, the block that it is in.
fn twice(conn: &Conn, cold: &Cold, ctx: &Context<'_>) -> SackBlocks {
    let mut blocks = SackBlocks::EMPTY;
    let mut all = ctx.out.twice.iter().filter(|(flow, ..)| *flow == conn.flow);
    if conn.flags.has(Flags::DUPLICATE)
        && let Some(&(_, left, right)) = all.next_back()
    {
        let inside = cold.reassembly.as_ref().and_then(|reassembly| reassembly.block_of(left));
        // What was dropped meanwhile is not there any more.
        match inside.filter(|inside| right.before_eq(inside.1)) {
            Some(inside) => {
                blocks.push(left, right);
                blocks.push(inside.0, inside.1);
            }
            None if right.before_eq(conn.rcv_nxt) => _ = blocks.push(left, right),
            None => {}
        }
    }
    blocks
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
    let peer = ctx.addresses(conn.flow.pair()).remote;
    let options = TcpOptions {
        mss: Some(ctx.shared.config.receive_mss(peer)),
        window_scale: scales.then_some(ctx.shared.window_scale),
        timestamp: (offers || conn.flags.has(Flags::TIMESTAMPS)).then_some(timestamp),
        sack_permitted: offers || conn.flags.has(Flags::SACK),
        ..TcpOptions::NONE
    };
    let room = receive_room(conn, cold, ctx).min(u16::MAX as u32);
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
pub(crate) fn transmit(
    conn: &mut Conn,
    cold: &Cold,
    retained: &mut Retained,
    ctx: &mut Context<'_>,
) -> Result<(), mem::Exhausted> {
    if !ctx.can_send() || retained.is_long() && !has_room(retained, ctx) {
        return Err(mem::Exhausted);
    }
    let meta = retained.meta();
    let mut flags = TcpFlags(meta.flags);
    if conn.state != State::SynSent {
        flags = flags.union(TcpFlags::ACK);
    }
    let (flags, ecn) = ecn::stamp(conn, flags, &meta);
    let (seq, payload_len) = (SeqNumber(meta.seq), usize::from(meta.len));
    let is_offloaded = is_offloaded(payload_len, ctx);
    let payload_sum = (!is_offloaded).then_some(Sum::from_bits(meta.payload_sum));
    let link = ctx.resolve_for(conn);
    let (options, window) = options_and_window(conn, cold, flags, payload_len, ctx);
    // What there was no room for goes with an acknowledgment of its own.
    let owes_blocks =
        conn.flags.has(Flags::ACK_NOW) && tells_blocks(conn) && options.sack_blocks.is_empty();
    let segment = Segment { seq, flags, payload_len, payload_sum, options, window, ecn };
    let pair = ctx.addresses(conn.flow.pair());
    match link {
        Some(mac) if !retained.is_in_nic() => {
            push_frame(conn, retained, &segment, (mac, pair), ctx)?;
        }
        Some(mac) => {
            let mut copy =
                long::copy_of(retained, ctx.pool).inspect_err(|_| ctx.stats.tx_dropped += 1)?;
            ctx.stats.tx_payload_copies += u64::from(meta.len > 0);
            let pushed = push_frame(conn, &mut copy, &segment, (mac, pair), ctx);
            ctx.pool.release(copy);
            pushed?;
        }
        // Sent and lost: a frame of several chunks does not wait.
        None if retained.is_long() => ctx.stats.unresolved_drops += 1,
        None => {
            let copy = copy_to_wait(conn, retained, &segment, pair, ctx)?;
            ctx.wait_for_link(pair.remote, copy, Asker::Ours);
        }
    }
    acknowledged(conn);
    ecn::note_sent(conn, flags);
    if owes_blocks {
        conn.flags.set(Flags::ACK_NOW);
    }
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

/// Whether the NIC's queue takes all chunks of a segment.
#[cold]
fn has_room(segment: &Retained, ctx: &Context<'_>) -> bool {
    ctx.out.frames.len() + segment.parts().count() <= ctx.out.max_frames
}

/// Puts the headers before a segment's payload, and gives the NIC its claim on the frame.
#[inline(always)]
fn push_frame(
    conn: &Conn,
    retained: &mut Retained,
    segment: &Segment,
    to: (MacAddr, Pair),
    ctx: &mut Context<'_>,
) -> Result<(), mem::Exhausted> {
    let (shared, tcp_at) = (ctx.shared, link_and_ip_len(to.1.remote));
    let headers = tcp_at + TcpRepr::HEADER_LEN + segment.options.len();
    let write = |out: &mut [u8], _: &[u8]| write_headers(out, conn, segment, shared, to);
    let frame = retained.transmit(headers, write).map_err(|NoRoom| mem::Exhausted)?;
    let is_offloaded = segment.payload_sum.is_none();
    let partial = is_offloaded.then(|| partial_checksum(tcp_at));
    let is_continued = frame.is_continued();
    ctx.out.frames.push(frame.with_partial_checksum(partial));
    if is_continued {
        ctx.out.frames.extend(retained.transmit_rest());
        ctx.stats.tcp_long_segments_out += 1;
    }
    Ok(())
}

/// The whole frame in a buffer of its own, but for its destination: with a complete checksum, as it is not known to
/// leave as a segment's frame does.
#[cold]
fn copy_to_wait(
    conn: &Conn,
    retained: &Retained,
    segment: &Segment,
    pair: Pair,
    ctx: &mut Context<'_>,
) -> Result<Mbuf, mem::Exhausted> {
    let headers = link_and_ip_len(pair.remote) + TcpRepr::HEADER_LEN + segment.options.len();
    let mut mbuf = ctx.alloc_frame()?;
    let filled = mbuf.append(retained.payload()).and_then(|()| mbuf.prepend(headers).map(|_| ()));
    if filled.is_err() {
        ctx.pool.free(mbuf);
        return Err(mem::Exhausted);
    }
    let payload_sum = segment.payload_sum.or_else(|| Some(Sum::of(retained.payload())));
    let segment = &Segment { payload_sum, ..*segment };
    let to = (MacAddr([0; 6]), pair);
    write_headers(&mut mbuf.bytes_mut()[..headers], conn, segment, ctx.shared, to);
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
    let pair = ctx.addresses(conn.flow.pair());
    let link = ctx.resolve_for(conn);
    let mac = link.unwrap_or(MacAddr([0; 6]));
    let mut mbuf = ctx.alloc_frame()?;
    let (options, window) = options_and_window(conn, cold, flags, 0, ctx);
    let flags = flags.union(ecn::echo(conn));
    let (payload_sum, ecn) = (Some(Sum::ZERO), ECN_NOT_ECT);
    let segment = Segment { seq, flags, payload_len: 0, payload_sum, options, window, ecn };
    let headers = link_and_ip_len(pair.remote) + TcpRepr::HEADER_LEN + segment.options.len();
    let Ok(out) = mbuf.prepend(headers) else {
        ctx.pool.free(mbuf);
        return Err(mem::Exhausted);
    };
    write_headers(out, conn, &segment, ctx.shared, (mac, pair));
    match link {
        Some(_) => ctx.out.frames.push(mbuf.into_tx()),
        None => ctx.wait_for_link(pair.remote, mbuf, Asker::Ours),
    }
    ctx.stats.tcp_segments_out += 1;
    acknowledged(conn);
    Ok(())
}

/// Sends a segment that no connection keeps. Answers whether there was room for it.
#[cold]
pub(crate) fn send_unowned(pair: Pair, repr: &TcpRepr, ctx: &mut Context<'_>) -> bool {
    let Ok(mut mbuf) = ctx.alloc_frame() else { return false };
    let Ok(out) = mbuf.prepend(repr.header_len()) else {
        ctx.pool.free(mbuf);
        return false;
    };
    repr.emit(out, pair.local, pair.remote, 0, Sum::ZERO);
    ctx.stats.tcp_segments_out += 1;
    ctx.send_ip(mbuf, pair, Protocol::TCP, Asker::Stranger);
    true
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
    let end = segment.seq + segment.payload_len;
    if end.before_eq(conn.rcv_nxt) {
        note_twice(conn, segment.seq, end, ctx);
    }
    conn.flags.set(Flags::ACK_NOW);
    note_pending(conn, place, ctx);
    true
}

/// Notes that what is from `left` to `right` came once more, for the next acknowledgment to tell (RFC 2883).
#[cold]
pub(crate) fn note_twice(
    conn: &mut Conn,
    left: SeqNumber,
    right: SeqNumber,
    ctx: &mut Context<'_>,
) {
    if !conn.flags.has(Flags::SACK) || left.after_eq(right) {
        return;
    }
    conn.flags.set(Flags::DUPLICATE);
    match ctx.out.twice.last_mut() {
        // Segments in a row are told of together.
        Some((flow, _, end)) if *flow == conn.flow && *end == left => *end = right,
        _ => ctx.out.twice.push((conn.flow, left, right)),
    }
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
