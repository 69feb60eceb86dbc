//! The send queue: bytes that wait for the windows, cut into segments when they are sent, and segments that are sent again.
//!
//! The application's buffers are segments as they stand where they fit, which nearly all do. Longer ones are cut, short
//! ones that wait are joined, so that segments are equal but the last.

use mem::{Mbuf, Retained, TX_PAYLOAD, TxMeta, Want};
use wire::{SeqNumber, Sum, TcpFlags};

use super::conn::{Cold, Conn, Flags, MAX_LISTED, Place};
use super::output::{note_pending, sequence_len, transmit};
use super::recovery::{Probe, SizeProbe};
use super::scoreboard::{End, MAX_SEGMENTS, Scoreboard, trim};
use super::{long, loss, pacing, path_mtu, spurious};
use crate::context::{Context, Shares};

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

/// Takes a new segment into the send queue, and sends it where the windows allow. One that is longer than the peer's
/// segments is cut in step 6, together with what follows: want of memory delays it and refuses nothing.
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
    note_pending(conn, place, ctx);
    let fits = conn.flight() + len <= conn.cwnd.min(conn.snd_wnd) || flags.contains(TcpFlags::SYN);
    // Of a message that goes on, segments are made that are as long as they may be.
    let grows = usize::from(conn.mss) > TX_PAYLOAD && flags == TcpFlags::NONE;
    let waits = grows
        || conn.flags.has(Flags::UNSENT.and(Flags::TRACKED))
        || conn.listed >= MAX_LISTED
        || is_silly(conn, &meta, ctx)
        || pacing::due_ns(conn, cold, ctx).is_some();
    if waits || !fits || meta.len > conn.mss {
        return keep_back(conn, cold, mbuf, meta, ctx);
    }
    let is_last = conn.credit() == 0 && meta.len > 0;
    let mut retained = mbuf.retain(if is_last { with_push(meta) } else { meta });
    if transmit(conn, cold, &mut retained, ctx).is_ok() {
        pacing::note_sent(conn, cold, len, ctx);
        conn.snd_nxt += len;
        conn.listed += 1;
        conn.sent.push(retained);
    } else {
        cold.unsent.push(retained);
        conn.flags.set(Flags::UNSENT);
    }
}

/// What is noted about a segment behind which nothing is for now (RFC 9293 §3.9.1.2).
fn with_push(meta: TxMeta) -> TxMeta {
    TxMeta { flags: TcpFlags(meta.flags).union(TcpFlags::PSH).0, ..meta }
}

/// Whether the first segment that was not sent had better wait until it is longer (RFC 9293 §3.8.6.2.1): with some in flight,
/// whose acknowledgment lets it go, it ends where the window does, and not where a message does; or, with Nagle's algorithm,
/// anywhere.
fn is_silly(conn: &Conn, meta: &TxMeta, ctx: &Context<'_>) -> bool {
    const ENDS: TcpFlags = TcpFlags::PSH.union(TcpFlags::FIN).union(TcpFlags::SYN);
    let len = u32::from(meta.len);
    let is_last = conn.snd_nxt + sequence_len(meta) == conn.snd_end;
    let nagle = ctx.shared.config.nagle;
    let is_whole = is_last && TcpFlags(meta.flags).intersects(ENDS) && !nagle;
    // Two full segments are acknowledged at once, one perhaps late.
    let least = if nagle { 1 } else { 2 * u32::from(conn.mss) };
    !is_whole
        && conn.flight() >= least
        && !is_nearly_full(conn, meta)
        && 2 * len < conn.snd_wnd
        && conn.state.may_send()
}

/// Whether a segment is left as the application cut it.
fn is_nearly_full(conn: &Conn, meta: &TxMeta) -> bool {
    u32::from(meta.len) * 16 > u32::from(conn.mss) * 15
}

/// Puts a new segment behind those that wait, or its bytes into the last one's buffer where they fit into one segment:
/// what a connection may keep waiting is counted in bytes, and small segments pin large buffers.
fn keep_back(conn: &mut Conn, cold: &mut Cold, mbuf: Mbuf, meta: TxMeta, ctx: &mut Context<'_>) {
    let controls = TcpFlags::SYN.union(TcpFlags::FIN);
    let joined = cold.unsent.with_back(|last| {
        let before = last.meta();
        !TcpFlags(before.flags | meta.flags).intersects(controls)
            && before.transmissions == 0
            && usize::from(before.len) + mbuf.len() <= usize::from(conn.mss)
            && join(last, mbuf.bytes(), TcpFlags(meta.flags))
    });
    if joined == Some(true) {
        ctx.pool.free(mbuf);
    } else {
        cold.unsent.push(mbuf.retain(meta));
    }
    conn.flags.set(Flags::UNSENT);
}

/// Copies bytes behind those of a segment that was not sent. Answers whether there was room.
fn join(segment: &mut Retained, bytes: &[u8], flags: TcpFlags) -> bool {
    if segment.append(bytes).is_err() {
        return false;
    }
    let added = (bytes.len() as u16, Sum::of(bytes));
    segment.set_meta(long::longer(segment.meta(), added, flags.0));
    true
}

/// Sends again what is lost, then what waits, as far as the windows allow.
pub(crate) fn pump(place: Place, conn: &mut Conn, cold: &mut Cold, ctx: &mut Context<'_>) {
    if conn.flags.has(Flags::FRTO) {
        send_waiting(conn, cold, false, ctx);
        let recover = cold.recovery.as_ref().and_then(|recovery| recovery.recover);
        if recover == Some(conn.snd_nxt) {
            // Nothing new could be sent: no acknowledgment will decide.
            spurious::forget(conn);
        }
    }
    let is_settled = conn.flags.has(Flags::FRTO) || resend_lost(conn, cold, ctx);
    if is_settled && conn.flags.has(Flags::UNSENT) {
        send_waiting(conn, cold, false, ctx);
    }
    note_pending(conn, place, ctx);
}

/// Answers whether all that was lost is sent again.
fn resend_lost(conn: &mut Conn, cold: &mut Cold, ctx: &mut Context<'_>) -> bool {
    let Some(mut recovery) = cold.recovery.take() else { return true };
    let (before, mut board) =
        (recovery.pipe(conn.flight(), conn.mss), core::mem::take(&mut recovery.board));
    let mut pipe = before;
    loop {
        board.send_lost(|retained, seq, end| {
            let fits = retained.meta().len <= conn.mss;
            if !(fits && may_resend(conn, pipe, seq, end)) {
                return None;
            }
            transmit(conn, cold, retained, ctx).ok()?;
            pipe += (end - seq) as u32;
            spurious::note_again(&mut recovery, seq, end);
            Some(ctx.now.as_nanos())
        });
        // One that is longer than the path's segments by now goes out in parts.
        let next = board.first_lost().filter(|&(seq, end)| may_resend(conn, pipe, seq, end));
        let Some((seq, _)) = next else { break };
        // Pieces take memory of their own: with some on their way, as much as others may.
        let may_split = pipe == 0 || ctx.pool.allows(Want::Send);
        if !may_split || !split_lost(conn, &mut board, ctx) {
            break;
        }
        path_mtu::forget_probe(cold, &mut recovery, seq, ctx);
    }
    recovery.board = board;
    recovery.prr.sent = recovery.prr.sent.saturating_add(pipe - before);
    let is_done = recovery.board.lost() == 0;
    cold.recovery = Some(recovery);
    is_done
}

/// Cuts the first lost segment where it is longer than the path's segments. Answers whether it did.
fn split_lost(conn: &Conn, board: &mut Scoreboard, ctx: &mut Context<'_>) -> bool {
    let lost = board.oldest_lost().filter(|_| ctx.can_send());
    lost.is_some_and(|long| split(conn, board, long, ctx))
}

/// Cuts the segment at `index`, of `len` payload bytes, where it is longer than the path's segments: in equal parts, so that
/// an MTU that is named again and again, a little less each time, does not cut ever smaller pieces off. Answers whether it
/// did.
fn split(
    conn: &Conn,
    board: &mut Scoreboard,
    (index, len): (usize, u16),
    ctx: &mut Context<'_>,
) -> bool {
    let part = len.div_ceil(len.div_ceil(conn.mss.max(1)).max(1));
    len > conn.mss
        && board.len() < MAX_SEGMENTS
        && board.split(index, |segment| cut_front(segment, part, ctx))
}

/// Whether the windows let a segment be sent again, or its first part, with `pipe` bytes on their way.
fn may_resend(conn: &Conn, pipe: u32, seq: SeqNumber, end: SeqNumber) -> bool {
    let end = if end.after(seq + u32::from(conn.mss)) { seq + u32::from(conn.mss) } else { end };
    let in_window = (end - conn.snd_una) as u32 <= conn.snd_wnd.max(conn.mss.into());
    in_window && (pipe == 0 || pipe + (end - seq) as u32 <= conn.cwnd)
}

/// Sends what waits, as far as the windows allow; a probe goes however short it is.
fn send_waiting(conn: &mut Conn, cold: &mut Cold, is_probe: bool, ctx: &mut Context<'_>) {
    if path_mtu::is_narrow(cold) && pacing::due_ns(conn, cold, ctx).is_none() {
        try_size(conn, cold, ctx);
    }
    while let Some(meta) = cold.unsent.front() {
        let len = sequence_len(&meta);
        let room = send_room(conn, cold, &meta);
        // A buffer longer than the peer's segments is cut; so is one that a window smaller than a
        // segment has no room for, where nothing is in flight that could open it.
        let long = meta.len > conn.mss && (conn.mss as u32 <= room || conn.flight() == 0);
        if len > room || long {
            let cut = room.min(meta.len.min(conn.mss) as u32) as u16;
            // Pieces take memory of their own: with some on their way, as much as others may.
            let waits = conn.flight() > 0 && !(long && ctx.pool.allows(Want::Send));
            if waits || cut == 0 || !split_front(cold, cut, ctx) {
                return;
            }
            continue;
        }
        if is_crowded(conn, cold, ctx) || pacing::due_ns(conn, cold, ctx).is_some() {
            return;
        }
        fill_front(conn, cold, room, ctx);
        let is_silly = cold.unsent.front().is_some_and(|meta| is_silly(conn, &meta, ctx));
        if is_silly && !is_probe || !send_front(conn, cold, ctx) {
            return;
        }
    }
    conn.flags.clear(Flags::UNSENT);
}

/// Sends a segment that is larger than the path is known to carry, where it is time for that and others will follow it: those
/// that wait, or those that the acknowledgments of a flight let go (RFC 4821 §7.4).
#[cold]
fn try_size(conn: &mut Conn, cold: &mut Cold, ctx: &mut Context<'_>) {
    let Some(size) = path_mtu::next_size(conn, cold, ctx) else { return };
    let Some(meta) = cold.unsent.front() else { return };
    let (waiting, mss) = ((conn.snd_end - conn.snd_nxt) as u32, conn.mss);
    let followers = path_mtu::FOLLOWERS * u32::from(mss);
    let room = waiting.min(send_room(conn, cold, &meta));
    let followed = waiting.max(conn.flight()).min(conn.cwnd).min(conn.snd_wnd);
    if room < size.into() || followed < followers + u32::from(size) || is_crowded(conn, cold, ctx) {
        return;
    }
    conn.mss = size;
    if meta.len > size {
        // Without memory it stays as long, and is no probe.
        let _ = split_front(cold, size, ctx);
    } else {
        fill(conn, cold, ctx);
    }
    conn.mss = mss;
    let Some(meta) = cold.unsent.front().filter(|meta| (mss + 1..=size).contains(&meta.len)) else {
        return path_mtu::put_off(cold, ctx);
    };
    loss::track(conn, cold);
    let (seq, is_sent) = (conn.snd_nxt, send_front(conn, cold, ctx));
    if let Some(recovery) = cold.recovery.as_mut().filter(|_| is_sent) {
        ctx.stats.tcp_path_mtu_probes += 1;
        recovery.size_probe = Some(SizeProbe { seq, end: seq + u32::from(meta.len) });
    }
}

/// Sends the first waiting segment. Answers whether there was memory and room towards the device.
fn send_front(conn: &mut Conn, cold: &mut Cold, ctx: &mut Context<'_>) -> bool {
    let Some(mut retained) = cold.unsent.pop() else { return false };
    let meta = retained.meta();
    if cold.unsent.is_empty() && meta.len > 0 {
        retained.set_meta(with_push(meta));
    }
    if transmit(conn, cold, &mut retained, ctx).is_err() {
        cold.unsent.push_front(retained);
        return false;
    }
    let len = sequence_len(&meta);
    pacing::note_sent(conn, cold, len, ctx);
    conn.snd_nxt += len;
    if conn.listed >= MAX_LISTED {
        loss::track(conn, cold);
    }
    match &mut cold.recovery {
        Some(recovery) => {
            recovery.prr.sent = recovery.prr.sent.saturating_add(len);
            recovery.board.push(retained);
        }
        None => {
            conn.listed += 1;
            conn.sent.push(retained);
        }
    }
    true
}

/// Whether as many segments are in flight as may be: small ones pin large buffers, so that not only bytes count. What waits
/// is joined meanwhile.
fn is_crowded(conn: &Conn, cold: &Cold, ctx: &Context<'_>) -> bool {
    let (all, arrived) = match &cold.recovery {
        Some(recovery) => (recovery.board.len(), recovery.board.sacked_segments() as usize),
        None => (conn.listed.into(), 0),
    };
    let full = conn.cwnd / u32::from(conn.mss.max(1));
    // Where memory is plenty a stream of small messages need not wait for acknowledgments, which may be delayed.
    let spare = ctx.out.shares.send / Shares::SEGMENT / 4;
    let most = (2 * full).max(spare).max(MAX_LISTED.into());
    all >= MAX_SEGMENTS || all - arrived >= most as usize
}

/// Fills the first waiting segment up from the next ones, where it is much shorter than the peer's segments and the
/// windows have room for a whole one: segments are about equal but the last.
fn fill_front(conn: &Conn, cold: &mut Cold, room: u32, ctx: &mut Context<'_>) {
    let Some(meta) = cold.unsent.front() else { return };
    if !is_nearly_full(conn, &meta) && u32::from(conn.mss) <= room {
        fill(conn, cold, ctx);
    }
}

fn fill(conn: &Conn, cold: &mut Cold, ctx: &mut Context<'_>) {
    let Some(mut first) = cold.unsent.pop() else { return };
    while let Some(next) = cold.unsent.front() {
        let meta = first.meta();
        if first.is_long() && is_nearly_full(conn, &meta) {
            // To fill it up would cost a copy of more than is missing.
            break;
        }
        let missing = conn.mss.saturating_sub(meta.len);
        let controls = TcpFlags::SYN.union(TcpFlags::FIN);
        let taken = missing.min(next.len);
        let is_whole = taken == next.len;
        if taken == 0 || TcpFlags(meta.flags | next.flags).intersects(controls) {
            break;
        }
        let flags = if is_whole { TcpFlags(next.flags) } else { TcpFlags::NONE };
        let copied = cold.unsent.with_front(|second| {
            let bytes = second.payload().get(..usize::from(taken));
            bytes.is_some_and(|bytes| join(&mut first, bytes, flags))
        });
        if copied != Some(true) && usize::from(meta.len + taken) > TX_PAYLOAD {
            if !lengthen(&mut first, cold, taken, ctx) {
                break;
            }
            continue;
        }
        if copied != Some(true) {
            // Its chunk has no room behind it.
            match move_to_front(first, ctx) {
                Ok(moved) => first = moved,
                Err(back) => {
                    first = back;
                    break;
                }
            }
            continue;
        }
        ctx.stats.tx_payload_copies += 1;
        if is_whole {
            if let Some(second) = cold.unsent.pop() {
                ctx.pool.release(second);
            }
        } else {
            cold.unsent.with_front(|second| trim(second, taken));
        }
    }
    cold.unsent.push_front(first);
}

/// Puts the next `taken` bytes that wait behind the first waiting segment, in chunks of their own. Answers whether it did.
fn lengthen(first: &mut Retained, cold: &mut Cold, taken: u16, ctx: &mut Context<'_>) -> bool {
    // Room towards the device for all of them comes sooner or later.
    let most = usize::from(ctx.shared.config.frame_chunks).min(ctx.out.max_frames);
    let chunks = cold.unsent.with_front(|second| second.parts().count());
    if first.parts().count() + chunks.unwrap_or(0) > most {
        return false;
    }
    let is_cut = cold.unsent.front().is_some_and(|next| next.len > taken);
    if is_cut && !split_front(cold, taken, ctx) {
        return false;
    }
    let Some(second) = cold.unsent.pop() else { return false };
    match long::chain(first, second) {
        Ok(()) => true,
        Err(second) => {
            cold.unsent.push_front(second);
            false
        }
    }
}

/// The same segment in a chunk with room behind it.
///
/// # Errors
/// It comes back where there is no memory, its chunk begins with it, or it has several.
fn move_to_front(segment: Retained, ctx: &mut Context<'_>) -> Result<Retained, Retained> {
    let Ok(mut mbuf) = ctx.pool.alloc() else { return Err(segment) };
    let gains = !segment.is_long()
        && mbuf.append(segment.payload()).is_ok()
        && mbuf.tailroom() > segment.tailroom();
    if !gains {
        ctx.pool.free(mbuf);
        return Err(segment);
    }
    let moved = mbuf.retain(segment.meta());
    ctx.pool.release(segment);
    Ok(moved)
}

/// Makes two segments of the first waiting one, the first of `cut` payload bytes at most. Answers whether there was memory.
fn split_front(cold: &mut Cold, cut: u16, ctx: &mut Context<'_>) -> bool {
    let Some(first) = cold.unsent.pop() else { return false };
    match cut_front(first, cut, ctx) {
        Ok([front, rest]) => {
            cold.unsent.push_front(rest);
            cold.unsent.push_front(front);
            true
        }
        Err(first) => {
            cold.unsent.push_front(first);
            false
        }
    }
}

/// Takes the first `cut` payload bytes of a segment into a segment of their own; of a long one the first chunks, where they
/// have fewer. Answers both.
///
/// # Errors
/// It comes back where there is no memory.
fn cut_front(
    segment: Retained,
    cut: u16,
    ctx: &mut Context<'_>,
) -> Result<[Retained; 2], Retained> {
    let meta = segment.meta();
    let cut = cut.min(meta.len);
    let flags = TcpFlags(meta.flags).difference(TcpFlags::FIN.union(TcpFlags::PSH)).0;
    let mut rest = match long::split(segment, cut) {
        Ok([mut front, rest]) => {
            front.set_meta(TxMeta { flags, ..front.meta() });
            return Ok([front, rest]);
        }
        Err(segment) => segment,
    };
    let Ok(mut mbuf) = ctx.pool.alloc() else { return Err(rest) };
    let mut left = usize::from(cut);
    let fits = rest.parts().all(|part| {
        let part = &part[..part.len().min(left)];
        left -= part.len();
        mbuf.append(part).is_ok()
    });
    if !fits {
        ctx.pool.free(mbuf);
        return Err(rest);
    }
    ctx.stats.tx_payload_copies += 1;
    let payload_sum = Sum::of(mbuf.bytes()).to_bits();
    trim(&mut rest, cut);
    Ok([mbuf.retain(TxMeta { payload_sum, len: cut, flags, ..meta }), rest])
}

/// Sends the first unacknowledged segment again. Without room it stays lost until the timer fires.
pub(crate) fn retransmit_first(conn: &mut Conn, cold: &mut Cold, ctx: &mut Context<'_>) {
    let mut sent = core::mem::take(&mut conn.sent);
    sent.with_front(|retained| transmit(conn, cold, retained, ctx));
    conn.sent = sent;
    retransmit(conn, cold, End::Oldest, ctx);
}

/// Sends the segment at one end of the scoreboard again. Answers whether there was room for it.
fn retransmit(conn: &mut Conn, cold: &mut Cold, end: End, ctx: &mut Context<'_>) -> bool {
    let Some(mut recovery) = cold.recovery.take() else { return false };
    let now_ns = ctx.now.as_nanos();
    let board = &mut recovery.board;
    // In parts where the path's segments are shorter by now.
    let (before, first) = (board.len(), board.at_end(end).map_or(0, |(index, _)| index));
    let seq = board.iter().nth(first).map(|sent| sent.seq);
    while let Some(long) = board.at_end(end)
        && split(conn, board, long, ctx)
    {}
    let was_long = board.len() > before;
    let is_short = board.at_end(end).is_some_and(|(_, len)| len <= conn.mss);
    let is_sent = is_short
        && board.send_again(end, |retained| {
            transmit(conn, cold, retained, ctx).is_ok().then_some(now_ns)
        });
    if let Some(seq) = seq.filter(|_| was_long) {
        path_mtu::forget_probe(cold, &mut recovery, seq, ctx);
    }
    cold.recovery = Some(recovery);
    is_sent
}

/// Sends a tail loss probe (RFC 8985 §7.3): a new segment where one waits and the peer's window has room, else the last
/// one again.
pub(crate) fn probe_tail(conn: &mut Conn, cold: &mut Cold, ctx: &mut Context<'_>) {
    loss::track(conn, cold);
    let (before, flight, mss) = (conn.snd_nxt, conn.flight(), u32::from(conn.mss));
    let with_probe = loss::pipe(conn, cold) + mss;
    let cwnd = core::mem::replace(&mut conn.cwnd, with_probe);
    if conn.flags.has(Flags::UNSENT) {
        send_waiting(conn, cold, true, ctx);
    }
    conn.cwnd = cwnd;
    let is_old = conn.snd_nxt == before;
    let is_sent = !is_old || retransmit(conn, cold, End::Newest, ctx);
    ctx.stats.tcp_tail_probes += u64::from(is_sent);
    // One for which there was no room is not tried again before the next acknowledgment, which decides nothing about it.
    let (end, is_old) = if is_sent { (conn.snd_nxt, is_old) } else { (conn.snd_una, false) };
    if let Some(recovery) = &mut cold.recovery {
        recovery.probe = Some(Probe { end, is_old, flight });
    }
}

/// Whether the first lost or waiting segment would fit the windows: what it waited for was room towards the
/// device, or memory.
pub(crate) fn waits_for_the_device(conn: &Conn, cold: &Cold, ctx: &Context<'_>) -> bool {
    if let Some(recovery) = &cold.recovery
        && let Some((seq, end)) = recovery.board.first_lost()
        && !conn.flags.has(Flags::FRTO)
    {
        return may_resend(conn, recovery.pipe(conn.flight(), conn.mss), seq, end);
    }
    let piece = |meta: &TxMeta| sequence_len(meta).min(conn.mss as u32);
    let (waiting, full) = ((conn.snd_end - conn.snd_nxt) as u32, u32::from(conn.mss));
    let fits = |meta: TxMeta| {
        let room = send_room(conn, cold, &meta);
        piece(&meta) <= room && (!is_silly(conn, &meta, ctx) || full <= room.min(waiting))
    };
    !is_crowded(conn, cold, ctx)
        && pacing::due_ns(conn, cold, ctx).is_none()
        && cold.unsent.front().is_some_and(fits)
}

/// Sequence space that the windows leave for a segment. A SYN goes before there are any.
#[inline]
fn send_room(conn: &Conn, cold: &Cold, meta: &TxMeta) -> u32 {
    if TcpFlags(meta.flags).contains(TcpFlags::SYN) {
        return 1;
    }
    let by_path = conn.cwnd.saturating_sub(loss::pipe(conn, cold));
    by_path.min(conn.snd_wnd.saturating_sub(conn.flight()))
}
