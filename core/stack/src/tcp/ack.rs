//! The acknowledgment field (RFC 9293 §3.10.7.4, fifth).

use domain::EventRecord;
use wire::{SeqNumber, TcpFlags};

use super::conn::{Cold, Conn, Flags, Place};
use super::fields::Segment;
use super::loss::{self, News};
use super::output::{self, sequence_len};
use super::scoreboard::{Acked, trim};
use super::{ecn, rtt, send_queue, spurious};
use crate::context::Context;

/// Whether SEG.ACK is one that the peer may send. A segment with another one is dropped, and answered: it acknowledges
/// what was never sent, or is older than any window that the peer announced and can only be a blind guess
/// (RFC 5961 §5.2).
#[inline]
pub(crate) fn is_acceptable(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    segment: &Segment,
    ctx: &mut Context<'_>,
) -> bool {
    if segment.ack.after(conn.snd_nxt) {
        output::answer(place, conn, cold, segment, ctx);
        return false;
    }
    if conn.snd_una - segment.ack > conn.snd_wnd.max(1 << 16) as i32 {
        output::challenge(place, conn, cold, segment, ctx);
        return false;
    }
    true
}

/// Processes an acceptable SEG.ACK of a synchronized connection.
#[inline]
pub(crate) fn process(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    segment: &Segment,
    ctx: &mut Context<'_>,
) {
    let ack = segment.ack;
    if ack.after(conn.snd_una) {
        return advance(place, conn, cold, segment, ctx);
    }
    let window = (segment.window as u32) << conn.snd_wscale;
    // RFC 5681 §2: outstanding data, no payload, no SYN or FIN, same ACK, same window.
    let duplicate = ack == conn.snd_una
        && segment.payload_len == 0
        && (conn.flight() > 0 || conn.flags.has(Flags::TRACKED))
        && window == conn.snd_wnd
        // An answer to a probe says nothing of losses.
        && window > 0
        && !segment.flags.intersects(TcpFlags::SYN.union(TcpFlags::FIN));
    let opened = update_window(conn, segment);
    if conn.flags.has(Flags::PERSIST) || conn.snd_wnd == 0 {
        // The prober was answered: the peer lives.
        conn.backoff = conn.backoff.min(6);
        cold.retries = 0;
    }
    if opened && conn.flags.has(Flags::TAKEN_BACK) {
        given_back(conn, cold, ctx);
    }
    let tells = conn.flags.has(Flags::SACK) && !segment.sack_blocks.is_empty();
    let is_news = duplicate || tells;
    if is_news && (conn.flight() > 0 || conn.flags.has(Flags::TRACKED)) {
        if duplicate && conn.flags.has(Flags::FRTO) {
            spurious::refute(conn);
        }
        loss::track(conn, cold);
        let flight_before = conn.flight();
        if ecn::is_echo(conn, segment) {
            loss::on_echo(conn, cold, 0, flight_before, ctx);
        }
        let news = News { is_duplicate: duplicate, flight_before, ..News::default() };
        loss::on_ack(conn, cold, segment, news, ctx);
        window_opened(place, conn, cold, 0, ctx);
        return;
    }
    if conn.flags.has(Flags::TRACKED) && conn.flight() == 0 && segment.payload_len > 0 {
        loss::forget_past(conn, cold);
    }
    if opened {
        window_opened(place, conn, cold, 0, ctx);
    }
}

/// A window that had been taken back is open again: what was in flight is sent again.
#[cold]
fn given_back(conn: &mut Conn, cold: &mut Cold, ctx: &Context<'_>) {
    loss::lose_all(conn, cold);
    conn.backoff = conn.backoff.min(1);
    if conn.flight() > 0 {
        output::arm_retransmission(conn, ctx);
    }
}

/// SND.WND, if the segment is newer than what set it last. Answers whether it grew.
#[inline]
pub(crate) fn update_window(conn: &mut Conn, segment: &Segment) -> bool {
    // An acknowledgment that was overtaken speaks of an older, perhaps larger window: SND.UNA =<
    // SEG.ACK is the first condition.
    if segment.ack.before(conn.snd_una) {
        return false;
    }
    let window = (segment.window as u32) << conn.snd_wscale;
    // Of two segments without data the window alone says which is the later one: the larger, unless it was taken back
    // altogether. Where the order was the other one, probes find the window open.
    let newer = segment.ack.after(conn.snd_una)
        || segment.seq.after(conn.snd_wl1)
        || (segment.seq == conn.snd_wl1 && (window > conn.snd_wnd || window == 0));
    if !newer {
        return false;
    }
    let grew = window > conn.snd_wnd;
    conn.snd_wnd = window;
    conn.snd_wl1 = segment.seq;
    grew
}

/// New data was acknowledged.
fn advance(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    segment: &Segment,
    ctx: &mut Context<'_>,
) {
    let flight_before = conn.flight();
    let advance = (segment.ack - conn.snd_una) as u32;
    update_window(conn, segment);
    // Header prediction need not do it: after a time-out it waits until all is acknowledged.
    cold.retries = 0;
    let (Acknowledged { bytes, rtt_ns }, delivered) = match conn.flags.has(Flags::TRACKED) {
        true => {
            conn.snd_una = segment.ack;
            let acked = loss::acknowledge(conn, cold, segment, ctx);
            (settle(conn, segment, advance, acked, ctx), acked.delivered)
        }
        false => (acknowledge(conn, segment, ctx), advance),
    };
    if conn.flags.has(Flags::TAKEN_BACK) {
        given_back(conn, cold, ctx);
    }
    if conn.flags.has(Flags::UNDO) {
        spurious::on_ack(conn, cold, segment, advance, ctx);
    }
    let tells = conn.flags.has(Flags::SACK) && !segment.sack_blocks.is_empty();
    if tells && conn.flight() > 0 {
        loss::track(conn, cold);
    }
    if ecn::is_echo(conn, segment) {
        loss::on_echo(conn, cold, advance, flight_before, ctx);
    }
    if conn.flags.has(Flags::TRACKED) {
        let news = News { advance, delivered, is_duplicate: false, flight_before, rtt_ns };
        loss::on_ack(conn, cold, segment, news, ctx);
    } else if loss::may_grow(conn, flight_before) {
        loss::grow(conn, cold, advance, flight_before, rtt_ns, ctx);
    }
    window_opened(place, conn, cold, bytes, ctx);
}

/// What an acknowledgment brought.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    /// Payload bytes that are newly acknowledged.
    pub bytes: u32,
    /// The round trip that it ended, where it is one that counts.
    pub rtt_ns: Option<u64>,
}

/// Moves SND.UNA to SEG.ACK, with what follows from it for the segments that are listed, the round-trip time and
/// the retransmission timer.
#[inline(always)]
pub(crate) fn acknowledge(
    conn: &mut Conn,
    segment: &Segment,
    ctx: &mut Context<'_>,
) -> Acknowledged {
    let advance = (segment.ack - conn.snd_una) as u32;
    conn.snd_una = segment.ack;
    let acked = release_acked(conn, ctx);
    settle(conn, segment, advance, acked, ctx)
}

/// The round-trip time and the retransmission timer after an acknowledgment of `advance` bytes.
#[inline(always)]
fn settle(
    conn: &mut Conn,
    segment: &Segment,
    advance: u32,
    acked: Acked,
    ctx: &mut Context<'_>,
) -> Acknowledged {
    let mut rtt_ns = None;
    if let Some(at_ns) = acked.last_ns {
        if acked.again {
            rtt::sample_by_timestamp(conn, segment, at_ns, ctx);
        } else {
            let sample_ns = ctx.now.as_nanos().saturating_sub(at_ns);
            rtt_ns = Some(sample_ns);
            rtt::sample(conn, sample_ns, &ctx.shared.ticks);
        }
    }
    // RFC 6298 §5.2 and §5.3.
    if conn.flight() == 0 {
        conn.flags.clear(Flags::RTX_ARMED.and(Flags::PERSIST).and(Flags::EARLY));
    } else {
        // Step 6 sees whether a probe is due before.
        conn.flags.clear(Flags::EARLY);
        output::arm_retransmission(conn, ctx);
    }
    Acknowledged { bytes: advance - acked.controls.min(advance), rtt_ns }
}

/// Frees the listed segments that are acknowledged.
#[inline(always)]
fn release_acked(conn: &mut Conn, ctx: &mut Context<'_>) -> Acked {
    // Nearly always one segment of data, and all of it.
    if let Some(meta) = conn.sent.front()
        && SeqNumber(meta.seq) + meta.len as u32 == conn.snd_una
        && !TcpFlags(meta.flags).intersects(TcpFlags::SYN.union(TcpFlags::FIN))
        && let Some(retained) = conn.sent.pop()
    {
        conn.listed = conn.listed.wrapping_sub(1);
        ctx.pool.release(retained);
        let (last_ns, again) = (Some(meta.sent_at_ns), meta.transmissions != 1);
        return Acked { last_ns, again, ..Acked::default() };
    }
    release_any(conn, ctx)
}

/// As [`release_acked`], for any number of any kind.
#[inline(never)]
fn release_any(conn: &mut Conn, ctx: &mut Context<'_>) -> Acked {
    let una = conn.snd_una;
    let mut acked = Acked::default();
    while let Some(meta) = conn.sent.front() {
        let seq = SeqNumber(meta.seq);
        let len = sequence_len(&meta);
        if (seq + len).after(una) {
            if seq.before(una) {
                // It was acknowledged in part, by a peer that cut it.
                conn.sent.with_front(|retained| trim(retained, (una - seq) as u16));
            }
            break;
        }
        acked.controls += len - meta.len as u32;
        acked.again |= meta.transmissions != 1;
        acked.last_ns = acked.last_ns.max(Some(meta.sent_at_ns));
        if let Some(retained) = conn.sent.pop() {
            conn.listed = conn.listed.wrapping_sub(1);
            ctx.pool.release(retained);
        }
    }
    acked
}

/// Sends what now may be sent, and tells the application of its acknowledged bytes and its window.
fn window_opened(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    bytes: u32,
    ctx: &mut Context<'_>,
) {
    let arrived = match &cold.recovery {
        Some(recovery) => recovery.arrived(conn.flight(), conn.mss),
        None => 0,
    };
    let grew = conn.update_edge(arrived, ctx.out.shares.send);
    if grew && conn.flags.has(Flags::PERSIST) && !conn.flags.has(Flags::UNSENT) {
        // The application may send again: nothing is left to be probed for.
        conn.flags.clear(Flags::PERSIST.and(Flags::RTX_ARMED));
        conn.backoff = 0;
    }
    if conn.flags.has(Flags::UNSENT.and(Flags::TRACKED)) {
        send_queue::pump(place, conn, cold, ctx);
        loss::untrack(conn, cold);
    }
    // After `shutdown` it is of use what became of the rest, after `close` it is not.
    let is_ended = !conn.state.may_send();
    let telling = conn.flags.are(Flags::ACCEPTED, Flags::ACCEPTED.and(Flags::CLOSED));
    if telling && (bytes > 0 || grew && !is_ended) {
        ctx.event(sent(place, conn, bytes));
    }
    output::note_pending(conn, place, ctx);
}

/// The event that tells the application of acknowledged bytes, and of its window.
#[inline]
pub(crate) fn sent(place: Place, conn: &Conn, bytes: u32) -> EventRecord {
    let (cookie, window) = (conn.cookie, conn.credit());
    EventRecord::Sent { handle: conn.handle(place), cookie, bytes, window }
}
