//! The acknowledgment field (RFC 9293 §3.10.7.4, fifth).

use domain::EventRecord;
use wire::{SeqNumber, Sum, TcpFlags};

use super::conn::{Cold, Conn, Flags, Place};
use super::fields::Segment;
use super::newreno::{self, Action};
use super::output::{self, sequence_len};
use super::rtt;
use crate::context::Context;

/// What the acknowledgment means for the rest of the segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Go on with the segment's data.
    Continue,
    /// It acknowledges what was never sent, or is far too old: drop it (an ACK has been asked for).
    Drop,
}

/// Processes SEG.ACK of a synchronized connection.
#[inline]
pub(crate) fn process(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    segment: &Segment,
    ctx: &mut Context<'_>,
) -> Verdict {
    let ack = segment.ack;
    if ack.after(conn.snd_nxt) {
        conn.flags.set(Flags::ACK_NOW);
        output::note_pending(conn, place, ctx);
        return Verdict::Drop;
    }
    if ack.after(conn.snd_una) {
        advance(place, conn, cold, segment, ctx);
        return Verdict::Continue;
    }
    // RFC 5961 §5.2: older than any window that we announced can only be a blind guess.
    if conn.snd_una - ack > conn.snd_wnd.max(1 << 16) as i32 {
        output::challenge(place, conn, ctx);
        return Verdict::Drop;
    }
    let window = (segment.window as u32) << conn.snd_wscale;
    // RFC 5681 §2: outstanding data, no payload, no SYN or FIN, same ACK, same window.
    let duplicate = ack == conn.snd_una
        && segment.payload_len == 0
        && conn.flight() > 0
        && window == conn.snd_wnd
        && !segment.flags.intersects(TcpFlags::SYN.union(TcpFlags::FIN));
    let opened = update_window(conn, segment);
    if conn.flags.has(Flags::PERSIST) {
        // The prober was answered: the peer lives.
        conn.backoff = conn.backoff.min(6);
    }
    if duplicate {
        if newreno::on_duplicate_ack(conn, cold) == Action::RetransmitFirst {
            ctx.stats.tcp_fast_retransmits += 1;
            output::retransmit_first(conn, cold, ctx);
        }
        output::pump(place, conn, cold, ctx);
    } else if opened {
        window_opened(place, conn, cold, 0, ctx);
    }
    Verdict::Continue
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
    let newer = segment.ack.after(conn.snd_una)
        || segment.seq.after(conn.snd_wl1)
        || (segment.seq == conn.snd_wl1 && window > conn.snd_wnd);
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
    let bytes = acknowledge(conn, segment.ack, ctx);
    if newreno::on_ack(conn, cold, acked, flight_before) == Action::RetransmitFirst {
        output::retransmit_first(conn, cold, ctx);
    }
    window_opened(place, conn, cold, bytes, ctx);
}

/// Moves SND.UNA to `ack`, with what follows from it for the send queue, the round-trip time and
/// the retransmission timer. Answers the payload bytes that are newly acknowledged.
#[inline(always)]
pub(crate) fn acknowledge(conn: &mut Conn, ack: SeqNumber, ctx: &mut Context<'_>) -> u32 {
    let acked = (ack - conn.snd_una) as u32;
    conn.snd_una = ack;
    let (controls, sample) = release_acked(conn, ctx);
    if let Some(sent_at) = sample {
        rtt::sample(conn, ctx.now.as_nanos().saturating_sub(sent_at));
    } else if !conn.flags.has(Flags::RECOVERY) {
        // Karn: no sample, but the peer answers, so the next time-out counts from the start.
        conn.backoff = 0;
    }
    // RFC 6298 §5.2 and §5.3.
    if conn.flight() == 0 {
        conn.flags.clear(Flags::RTX_ARMED.and(Flags::PERSIST));
    } else {
        output::arm_retransmission(conn, ctx);
    }
    acked - controls.min(acked)
}

/// Frees the segments that are acknowledged. Answers how many SYN and FIN were among them, and when
/// (in nanoseconds) the last one was sent if that can be a sample of the round-trip time (Karn's algorithm).
#[inline(always)]
fn release_acked(conn: &mut Conn, ctx: &mut Context<'_>) -> (u32, Option<u64>) {
    // Nearly always one segment of data, and all of it.
    if let Some(meta) = conn.sent.front()
        && SeqNumber(meta.seq) + meta.len as u32 == conn.snd_una
        && !TcpFlags(meta.flags).intersects(TcpFlags::SYN.union(TcpFlags::FIN))
        && let Some(retained) = conn.sent.pop()
    {
        ctx.pool.release(retained);
        return (0, (meta.transmissions == 1).then_some(meta.sent_at_ns));
    }
    release_any(conn, ctx)
}

/// As [`release_acked`], for any number of any kind.
#[inline(never)]
fn release_any(conn: &mut Conn, ctx: &mut Context<'_>) -> (u32, Option<u64>) {
    let una = conn.snd_una;
    let (mut controls, mut sample, mut ambiguous) = (0, None, false);
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
        ambiguous |= meta.transmissions > 1;
        sample = Some(meta.sent_at_ns);
        if let Some(retained) = conn.sent.pop() {
            ctx.pool.release(retained);
        }
    }
    (controls, if ambiguous { None } else { sample })
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
