//! The segment text (RFC 9293 §3.10.7.4, seventh): received bytes go up where they stand.

use domain::{DeadReason, EventRecord};
use mem::{Mbuf, Want};
use wire::{SeqNumber, TcpFlags};

use super::conn::{Cold, Conn, DEFAULT_MSS, Flags, Place};
use super::fields::Segment;
use super::group::FlowGroup;
use super::output::note_pending;
use super::reassembly::MAX_SEGMENTS;
use super::{ack, close, output, settle};
use crate::context::Context;
use crate::groups::{Groups, group_mut, step};

/// Events that are kept free for what is no received data.
pub(crate) const EVENT_RESERVE: usize = 16;
/// Bytes in a buffer, on average, from which on a connection holds no more of them than its window asks for.
const FULL_BYTES: usize = 512;
/// Buffers of received data in order that a connection may pin, where they hold few bytes each.
const MAX_HELD_BUFFERS: usize = 1024;

/// Takes the payload (which is all of `mbuf`) and the FIN of an acceptable segment.
pub(crate) fn data(
    group: &mut FlowGroup,
    slot: u32,
    segment: &Segment,
    mut mbuf: Mbuf,
    ctx: &mut Context<'_>,
) {
    let (place, conn, cold) = group.at(slot);
    if !conn.state.may_receive() {
        // The peer has sent its FIN: whatever is here was sent before, and is acknowledged again.
        conn.flags.set(Flags::ACK_NOW);
        ctx.pool.free(mbuf);
        return note_pending(conn, place, ctx);
    }
    if conn.flags.has(Flags::CLOSED) && (segment.seq + segment.payload_len).after(conn.rcv_nxt) {
        // RFC 9293 §3.10.7.4, RFC 2525 §2.17: the peer must not take for read what the application does not read.
        ctx.pool.free(mbuf);
        ctx.stats.tcp_closed_reset += 1;
        return close::abort(group, slot, DeadReason::Aborted, ctx);
    }
    let (seq, mut fin) = trim(conn, segment, &mut mbuf, ctx);
    // The segment's acknowledgment was processed; its bytes come again when there is memory.
    let refused = !mbuf.is_empty() && !may_keep(conn, cold, seq, ctx);
    if refused || seq.before(conn.rcv_nxt) {
        ctx.stats.tcp_dropped_segments += refused as u64;
        // The acknowledgment shows the peer where the gap is.
        conn.flags.set(if refused { Flags::ACK_NOW } else { Flags::default() });
        ctx.pool.free(mbuf);
        return note_pending(conn, place, ctx);
    }
    if seq != conn.rcv_nxt {
        out_of_order(place, conn, cold, seq, mbuf, fin, ctx);
        return note_pending(conn, place, ctx);
    }
    let end = seq + mbuf.len() as u32;
    if mbuf.is_empty() {
        ctx.pool.free(mbuf);
    } else {
        count_segment(conn, segment.payload_len);
        in_order(place, conn, cold, mbuf, ctx);
    }
    if conn.flags.has(Flags::OUT_OF_ORDER) {
        // RFC 5681 §4.2: acknowledge at once what fills a gap.
        conn.flags.set(Flags::ACK_NOW);
        if fin && let Some(reassembly) = &mut cold.reassembly {
            reassembly.fin = Some(end);
            fin = false;
        }
        fin |= fill(place, conn, cold, ctx);
    }
    note_pending(conn, place, ctx);
    if fin {
        close::peer_finished(group, slot, ctx);
    }
}

/// Cuts what came before, and what is beyond the window. Answers where the rest begins, and whether a FIN is behind it.
fn trim(
    conn: &mut Conn,
    segment: &Segment,
    mbuf: &mut Mbuf,
    ctx: &mut Context<'_>,
) -> (SeqNumber, bool) {
    let fin = segment.flags.contains(TcpFlags::FIN);
    let mut seq = segment.seq;
    let old = conn.rcv_nxt - seq;
    if old > 0 {
        let len = (old as u32).min(segment.payload_len);
        output::note_twice(conn, seq, seq + len, ctx);
        conn.flags.set(Flags::ACK_NOW);
        mbuf.advance(old as usize);
        seq += len;
    }
    let room = (conn.rcv_adv - seq).max(0) as usize;
    if mbuf.len() <= room {
        return (seq, fin);
    }
    // A probe of a closed window, or a peer that ignores it: tell it where the edge is.
    conn.flags.set(Flags::ACK_NOW);
    mbuf.truncate(room);
    (seq, false)
}

/// Whether bytes at `seq` may be kept. A connection has its share of the memory for what is received, counted in
/// buffers, as tiny segments pin large ones; and reception leaves memory for the rest of the stack. One that holds
/// nothing gets on while there is any.
#[inline]
fn may_keep(conn: &Conn, cold: &Cold, seq: SeqNumber, ctx: &mut Context<'_>) -> bool {
    let (want, held) = if seq == conn.rcv_nxt {
        let holds = conn.flags.has(Flags::HELD.and(Flags::UNDELIVERED));
        (Want::Receive, if holds { cold.held_buffers.into() } else { 0 })
    } else {
        let waiting = cold.reassembly.as_ref();
        (Want::OutOfOrder, waiting.map_or(0, |reassembly| reassembly.len()))
    };
    let is_allowed = ctx.pool.allows(want);
    if held == 0 && want == Want::Receive {
        return is_allowed || ctx.pool.leaves_reserve();
    }
    ctx.out.is_short |= !is_allowed;
    if !is_allowed {
        return false;
    }
    // Full segments are bounded by the window: it has been announced, and is not taken back.
    let bytes = (cold.held_bytes + cold.undelivered_bytes) as usize;
    let are_full = want == Want::Receive && bytes >= held * FULL_BYTES;
    let most = if want == Want::Receive { MAX_HELD_BUFFERS } else { MAX_SEGMENTS };
    are_full || held < ctx.pool.share(want).min(most)
}

/// Looks at a bounded number of connections, from `at` on, and has the one that holds most buffers ahead of a gap drop
/// them: its peer will send them again (RFC 2018 §8).
#[cold]
pub(crate) fn relieve(groups: &mut Groups, at: &mut Place, ctx: &mut Context<'_>) {
    const STEPS: usize = 256;
    let mut most: Option<(usize, Place)> = None;
    for _ in 0..STEPS {
        if let Some(Place { group, slot }) = step(groups, at)
            && let Some(group) = group_mut(groups, group)
            && let (place, _, Cold { reassembly: Some(waiting), .. }) = group.at(slot)
        {
            most = most.max(Some((waiting.len(), place)));
        }
    }
    if let Some((buffers, place)) = most.filter(|&(buffers, _)| buffers > 1)
        && let Some(group) = group_mut(groups, place.group)
    {
        let (_, conn, cold) = group.at(place.slot);
        conn.flags.clear(Flags::OUT_OF_ORDER);
        if let Some(mut reassembly) = cold.reassembly.take() {
            ctx.counting_kept(place.group, |pool| reassembly.clear(pool));
        }
        ctx.stats.tcp_dropped_segments += buffers as u64;
    }
}

/// Counts a segment of `payload_len` bytes, which RCV.NXT does not include yet, towards the next acknowledgment: it is
/// due at once where there are as many bytes as in two of the peer's full segments (RFC 9293 §3.8.6.3, RFC 5681 §4.2).
#[inline(always)]
pub(crate) fn count_segment(conn: &mut Conn, payload_len: u32) {
    let unacknowledged = (conn.rcv_nxt - conn.last_ack_sent) as u32 + payload_len;
    // Nearly always: what is larger than two of the smallest is looked at.
    let is_due = unacknowledged >= 2 * u32::from(DEFAULT_MSS / 64 * 64)
        && fills_two_segments(conn, payload_len, unacknowledged);
    conn.flags.set(if is_due { Flags::ACK_NOW } else { Flags::ACK_DUE });
}

#[cold]
#[inline(never)]
fn fills_two_segments(conn: &mut Conn, payload_len: u32, unacknowledged: u32) -> bool {
    let units = (payload_len / 64).min(u8::MAX.into()) as u8;
    conn.rcv_mss_64 = conn.rcv_mss_64.max(units);
    unacknowledged >= 2 * 64 * u32::from(conn.rcv_mss_64)
}

/// Bytes that continue the stream: to the application, or kept for it.
fn in_order(place: Place, conn: &mut Conn, cold: &mut Cold, mbuf: Mbuf, ctx: &mut Context<'_>) {
    let ready = conn.flags.has(Flags::ACCEPTED)
        && !conn.flags.has(Flags::UNDELIVERED)
        && ctx.events.room() > EVENT_RESERVE
        && ctx.out.late_events.is_empty();
    if ready {
        return tell(place, conn, cold, mbuf, 0, ctx);
    }
    let len = mbuf.len() as u32;
    conn.rcv_nxt += len;
    ctx.stats.tcp_bytes_in += len as u64;
    keep_undelivered(place, conn, cold, mbuf, ctx);
}

/// Tells the application of bytes that continue the stream, where nothing waits to be told before,
/// and of `acked` bytes that their segment acknowledged.
#[inline(always)]
pub(crate) fn tell(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    mbuf: Mbuf,
    acked: u32,
    ctx: &mut Context<'_>,
) {
    let len = mbuf.len() as u32;
    conn.rcv_nxt += len;
    ctx.stats.tcp_bytes_in += len as u64;
    let (handle, window) = (conn.handle(place), conn.credit());
    match ctx.events.push_recv(handle, conn.cookie, mbuf, acked, window) {
        Ok(()) => conn.rcv_used += len,
        Err(mbuf) => {
            if acked > 0 {
                ctx.event(ack::sent(place, conn, acked));
            }
            keep_undelivered(place, conn, cold, mbuf, ctx);
            note_pending(conn, place, ctx);
        }
    }
}

#[cold]
fn keep_undelivered(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    mbuf: Mbuf,
    ctx: &mut Context<'_>,
) {
    cold.undelivered_bytes += mbuf.len() as u32;
    if cold.undelivered.append_to_last(mbuf.bytes()) {
        // Small segments share a buffer.
        ctx.pool.free(mbuf);
    } else {
        cold.held_buffers += 1;
        cold.undelivered.push(mbuf);
        ctx.keep(place.group);
    }
    if !conn.flags.has(Flags::UNDELIVERED) {
        conn.flags.set(Flags::UNDELIVERED);
        ctx.out.undelivered.push_back(place);
    }
}

#[cold]
fn out_of_order(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    seq: SeqNumber,
    mbuf: Mbuf,
    fin: bool,
    ctx: &mut Context<'_>,
) {
    let reassembly = cold.reassembly.get_or_insert_default();
    if fin {
        reassembly.fin = Some(seq + mbuf.len() as u32);
    }
    let end = seq + mbuf.len() as u32;
    match reassembly.insert(seq, mbuf) {
        Ok(()) => {
            ctx.keep(place.group);
            ctx.stats.tcp_out_of_order += 1;
        }
        Err((mbuf, is_copied)) => {
            ctx.stats.tcp_out_of_order += u64::from(is_copied);
            ctx.stats.tcp_dropped_segments += u64::from(!is_copied && !mbuf.is_empty());
            if mbuf.is_empty()
                && let Some((_, right)) = reassembly.block_of(seq)
            {
                // What is behind the block was dropped.
                let right = if right.before(end) { right } else { end };
                output::note_twice(conn, seq, right, ctx);
            }
            ctx.pool.free(mbuf);
        }
    }
    conn.flags.set(Flags::OUT_OF_ORDER.and(Flags::ACK_NOW));
}

/// Takes what now continues the stream out of the reassembly queue. Answers whether the peer's FIN
/// is next.
#[cold]
fn fill(place: Place, conn: &mut Conn, cold: &mut Cold, ctx: &mut Context<'_>) -> bool {
    loop {
        let Some(reassembly) = &mut cold.reassembly else { return false };
        let next = ctx.counting_kept(place.group, |pool| reassembly.next(conn.rcv_nxt, pool));
        if let Some(mbuf) = next {
            in_order(place, conn, cold, mbuf, ctx);
            continue;
        }
        let fin = reassembly.fin == Some(conn.rcv_nxt);
        if fin {
            reassembly.fin = None;
        }
        if reassembly.is_empty() {
            cold.reassembly = None;
            conn.flags.clear(Flags::OUT_OF_ORDER);
        }
        return fin;
    }
}

/// Tells the application of bytes that were kept for it, as many as the event array takes.
pub(crate) fn deliver(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let (place, conn, cold) = group.at(slot);
    if !conn.flags.has(Flags::UNDELIVERED) || !conn.flags.has(Flags::ACCEPTED) {
        return;
    }
    let handle = conn.handle(place);
    while ctx.events.room() > EVENT_RESERVE
        && let Some(mbuf) = cold.undelivered.pop()
    {
        ctx.unkeep(place.group);
        let len = mbuf.len() as u32;
        // There is room: it was just asked for.
        match ctx.events.push_recv(handle, conn.cookie, mbuf, 0, conn.credit()) {
            Ok(()) => conn.rcv_used += len,
            Err(mbuf) => ctx.pool.free(mbuf),
        }
        cold.undelivered_bytes -= len;
        cold.held_buffers -= 1;
    }
    if !cold.undelivered.is_empty() {
        ctx.out.undelivered.push_back(place);
        return;
    }
    conn.flags.clear(Flags::UNDELIVERED);
    if core::mem::take(&mut cold.eof_untold) {
        let cookie = conn.cookie;
        ctx.event(EventRecord::Eof { handle, cookie });
    }
    close::delivered(group, slot, ctx);
}

/// Whether, as nearly always, the application has given all back that it had, and a reply took the
/// acknowledgment along: a buffer of the connection is free.
#[inline(always)]
pub(crate) fn is_settled(conn: &Conn, ctx: &Context<'_>) -> bool {
    // The end of a flight of several segments may be probed for.
    conn.rcv_used == 0 && conn.listed <= 1 && settle::is_settled(conn, Flags::HELD, ctx)
}

/// The application has seen the batch that `mbuf` was part of: the buffer is free if its bytes were
/// given back, else it is kept until they are. Outstanding are always the newest `rcv_used` bytes.
#[inline]
pub(crate) fn settle(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    mbuf: Mbuf,
    ctx: &mut Context<'_>,
) {
    if is_settled(conn, ctx) {
        return ctx.pool.free(mbuf);
    }
    // What no reply took along is for step 6. Header prediction has left the question to us.
    note_pending(conn, place, ctx);
    if conn.rcv_used == 0 && !conn.flags.has(Flags::HELD) {
        return ctx.pool.free(mbuf);
    }
    cold.held_bytes += mbuf.len() as u32;
    cold.held_buffers += 1;
    cold.held.push(mbuf);
    ctx.keep(place.group);
    conn.flags.set(Flags::HELD);
    trim_held(place, conn, cold, ctx);
}

/// Frees held buffers that are older than what is outstanding.
pub(crate) fn trim_held(place: Place, conn: &mut Conn, cold: &mut Cold, ctx: &mut Context<'_>) {
    loop {
        let Some(front) = cold.held.iter().next().map(|bytes| bytes.len() as u32) else { break };
        if cold.held_bytes - front < conn.rcv_used {
            return;
        }
        if let Some(mbuf) = cold.held.pop() {
            ctx.unkeep(place.group);
            ctx.pool.free(mbuf);
        }
        cold.held_bytes -= front;
        cold.held_buffers -= 1;
    }
    conn.flags.clear(Flags::HELD);
}
