//! The acknowledgment field (RFC 9293 §3.10.7.4, fifth).

use domain::EventRecord;
use wire::{SeqNumber, Sum, TcpFlags};

use super::conn::{Cold, Conn, Flags, Place};
use super::fields::Segment;
use super::newreno::{self, Action};
use super::output::{self, sequence_len};
use super::{rtt, spurious};
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
        && conn.flight() > 0
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
    if duplicate {
        if conn.flags.has(Flags::FRTO) {
            spurious::refute(conn);
        }
        if newreno::on_duplicate_ack(conn, cold) == Action::RetransmitFirst {
            ctx.stats.tcp_fast_retransmits += 1;
            output::retransmit_first(conn, cold, ctx);
        }
        output::pump(place, conn, cold, ctx);
    } else if opened {
        window_opened(place, conn, cold, 0, ctx);
    }
}

/// A window that had been taken back is open again: what was in flight is sent again.
#[cold]
fn given_back(conn: &mut Conn, cold: &mut Cold, ctx: &Context<'_>) {
    newreno::resend_all(conn, cold);
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
    let acked = (segment.ack - conn.snd_una) as u32;
    update_window(conn, segment);
    // Header prediction need not do it: after a time-out it waits until all is acknowledged.
    cold.retries = 0;
    let bytes = acknowledge(conn, segment, ctx);
    if conn.flags.has(Flags::TAKEN_BACK) {
        given_back(conn, cold, ctx);
    }
    if conn.flags.has(Flags::UNDO) {
        spurious::on_ack(conn, cold, segment, acked, ctx);
    }
    if newreno::on_ack(conn, cold, acked, flight_before) == Action::RetransmitFirst {
        output::retransmit_first(conn, cold, ctx);
    }
    window_opened(place, conn, cold, bytes, ctx);
}

/// Moves SND.UNA to SEG.ACK, with what follows from it for the send queue, the round-trip time and
/// the retransmission timer. Answers the payload bytes that are newly acknowledged.
#[inline(always)]
pub(crate) fn acknowledge(conn: &mut Conn, segment: &Segment, ctx: &mut Context<'_>) -> u32 {
    let acked = (segment.ack - conn.snd_una) as u32;
    conn.snd_una = segment.ack;
    let (controls, last) = release_acked(conn, ctx);
    if let Some(Sent { at_ns, once }) = last {
        match once {
            true => rtt::sample(conn, ctx.now.as_nanos().saturating_sub(at_ns)),
            false => rtt::sample_by_timestamp(conn, segment, at_ns, ctx),
        }
    }
    // RFC 6298 §5.2 and §5.3.
    if conn.flight() == 0 {
        conn.flags.clear(Flags::RTX_ARMED.and(Flags::PERSIST));
    } else {
        output::arm_retransmission(conn, ctx);
    }
    acked - controls.min(acked)
}

/// When one of the segments that an acknowledgment covers was last sent.
#[derive(Clone, Copy)]
struct Sent {
    /// The latest of their transmissions.
    at_ns: u64,
    /// Whether none of them was sent twice (Karn's algorithm).
    once: bool,
}

/// Frees the segments that are acknowledged. Answers how many SYN and FIN were among them, and when the last of them
/// was sent.
#[inline(always)]
fn release_acked(conn: &mut Conn, ctx: &mut Context<'_>) -> (u32, Option<Sent>) {
    // Nearly always one segment of data, and all of it.
    if let Some(meta) = conn.sent.front()
        && SeqNumber(meta.seq) + meta.len as u32 == conn.snd_una
        && !TcpFlags(meta.flags).intersects(TcpFlags::SYN.union(TcpFlags::FIN))
        && let Some(retained) = conn.sent.pop()
    {
        ctx.pool.release(retained);
        return (0, Some(Sent { at_ns: meta.sent_at_ns, once: meta.transmissions == 1 }));
    }
    release_any(conn, ctx)
}

/// As [`release_acked`], for any number of any kind.
#[inline(never)]
fn release_any(conn: &mut Conn, ctx: &mut Context<'_>) -> (u32, Option<Sent>) {
    let una = conn.snd_una;
    let (mut controls, mut last, mut once) = (0, None::<u64>, true);
    while let Some(meta) = conn.sent.front() {
        let seq = SeqNumber(meta.seq);
        let len = sequence_len(&meta);
        if (seq + len).after(una) {
            if seq.before(una) {
                trim_front(conn, una);
            }
            break;
        }
        controls += len - meta.len as u32;
        once &= meta.transmissions == 1;
        last = last.max(Some(meta.sent_at_ns));
        if let Some(retained) = conn.sent.pop() {
            ctx.pool.release(retained);
        }
    }
    (controls, last.map(|at_ns| Sent { at_ns, once }))
}

/// A segment was acknowledged in part, by a peer that cut it.
#[cold]
fn trim_front(conn: &mut Conn, una: SeqNumber) {
    conn.sent.with_front(|retained| {
        let mut meta = retained.meta();
        let cut = (una - SeqNumber(meta.seq)).clamp(0, meta.len as i32) as u16;
        retained.trim_front(cut as usize);
        meta.seq = meta.seq.wrapping_add(cut as u32);
        meta.len -= cut;
        meta.payload_sum = Sum::of(retained.payload()).to_bits();
        retained.set_meta(meta);
    });
}

/// Sends what now may be sent, and tells the application of its acknowledged bytes and its window.
fn window_opened(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    bytes: u32,
    ctx: &mut Context<'_>,
) {
    let grew = conn.update_edge();
    if grew && conn.flags.has(Flags::PERSIST) && !conn.flags.has(Flags::UNSENT) {
        // The application may send again: nothing is left to be probed for.
        conn.flags.clear(Flags::PERSIST.and(Flags::RTX_ARMED));
        conn.backoff = 0;
    }
    if conn.flags.has(Flags::UNSENT.and(Flags::TIMEOUT_RECOVERY)) {
        output::pump(place, conn, cold, ctx);
    }
    let telling = conn.flags.has(Flags::ACCEPTED) && conn.state.may_send();
    if telling && (bytes > 0 || grew) {
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
