//! Header prediction (Jacobson 1990; RFC 7323 appendix C): the short way for the segment that an
//! established connection expects next, which nearly every segment of a service is.
//!
//! In sequence, inside the window, acknowledging nothing but what was sent, while nothing unusual
//! goes on: all questions that `segment`, `ack` and `receive` would ask are answered by one look at
//! the flags. What it does is what they would do; the difference is what need not be asked.
//!
//! And the short way out, for the reply: `calls`, [`send_queue::enqueue`] and [`output::transmit`] with what need not be asked
//! left out in the same way.

use mem::{Mbuf, TxMeta, Want};
use wire::established::Version;
use wire::{EstablishedFields, EstablishedTemplate, Sum, TcpFlags};

use super::conn::{Cold, Conn, Flags, MAX_LISTED, Place, State};
use super::fields::Segment;
use super::group::FlowGroup;
use super::{ack, announce, calls, loss, output, receive, segment, settle};
use crate::context::Context;
use crate::input::{cut_to_payload, established_pair, established_segment};

/// Both must be set.
const USUAL: Flags = Flags::TIMESTAMPS.and(Flags::ACCEPTED);
/// None may be set: somebody waits, a gap is open, something is being recovered.
const UNUSUAL: Flags = Flags::UNSENT
    .and(Flags::HELD)
    .and(Flags::UNDELIVERED)
    .and(Flags::OUT_OF_ORDER)
    .and(Flags::TAKEN_BACK)
    .and(Flags::TRACKED)
    .and(Flags::PERSIST)
    .and(Flags::FIN_WANTED)
    .and(Flags::MARKED);

/// None may be set where a reply goes the short way out.
const HINDERS: Flags = Flags::UNSENT
    .and(Flags::PERSIST)
    .and(Flags::HELD)
    .and(Flags::OUT_OF_ORDER)
    .and(Flags::DUPLICATE)
    .and(Flags::TRACKED)
    .and(Flags::MARKED)
    .and(Flags::SLOWED);

/// Bytes of a reply's TCP header.
const TCP_LEN: usize = EstablishedTemplate::TCP_LEN;

/// Delivers a frame of the form that established connections send. `slot` is, most likely, where its connection is.
#[inline(always)]
pub(crate) fn arrive<V: Version>(
    group: &mut FlowGroup,
    slot: Option<u32>,
    hash: u32,
    mut mbuf: Mbuf,
    ctx: &mut Context<'_>,
) {
    if let Some(slot) = slot {
        let (place, conn, cold) = group.at(slot);
        match take_expected::<V>(place, conn, cold, mbuf, ctx) {
            Ok(()) => return group.received += 1,
            Err(back) => mbuf = back,
        }
    }
    arrive_unpredicted::<V>(group, hash, mbuf, ctx);
}

/// As [`arrive`], where header prediction does not apply.
#[inline(never)]
fn arrive_unpredicted<V: Version>(
    group: &mut FlowGroup,
    hash: u32,
    mut mbuf: Mbuf,
    ctx: &mut Context<'_>,
) {
    let segment = established_segment::<V>(mbuf.bytes(), hash);
    let (Some(mut segment), Some(pair)) = (segment, established_pair::<V>(mbuf.bytes())) else {
        return ctx.pool.free(mbuf);
    };
    if V::IS_V6 {
        segment.flow = segment.flow.with_pair(ctx.pair_of(pair));
    }
    cut_to_payload::<V>(&mut mbuf, &segment);
    segment::arrive(group, &segment, mbuf, ctx);
}

/// Takes the segment in the frame `mbuf`, if it is the expected one. A function of its own, with all that it calls inside:
/// within the batch's loop it would have no registers.
///
/// # Errors
/// The buffer comes back, with nothing done, where the segment is another one.
#[inline(never)]
fn take_expected<V: Version>(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    mut mbuf: Mbuf,
    ctx: &mut Context<'_>,
) -> Result<(), Mbuf> {
    // The hash is not asked for.
    let Some(segment) = established_segment::<V>(mbuf.bytes(), 0) else { return Err(mbuf) };
    let is_its = match V::IS_V6 {
        false => conn.flow == segment.flow,
        true => is_between::<V>(conn, &segment, mbuf.bytes(), ctx),
    };
    if !is_its || !applies(conn, &segment, ctx) {
        return Err(mbuf);
    }
    cut_to_payload::<V>(&mut mbuf, &segment);
    take(place, conn, cold, &segment, mbuf, ctx);
    Ok(())
}

/// Whether a connection is between the ends of a segment whose addresses are those of a frame.
#[inline(always)]
fn is_between<V: Version>(conn: &Conn, segment: &Segment, frame: &[u8], ctx: &Context<'_>) -> bool {
    conn.flow.has_ports_of(segment.flow)
        && established_pair::<V>(frame).is_some_and(|pair| ctx.pairs.is(conn.flow.pair(), &pair))
}

#[inline(always)]
fn applies(conn: &Conn, segment: &Segment, ctx: &Context<'_>) -> bool {
    let Some(stamp) = segment.timestamp else { return false };
    let acked = segment.ack - conn.snd_una;
    let window = conn.rcv_adv - conn.rcv_nxt;
    // The state comes first: of a closed slot nothing else means anything.
    conn.state == State::Established
        && conn.flags.are(USUAL, USUAL.and(UNUSUAL))
        && segment.flags.difference(TcpFlags::PSH) == TcpFlags::ACK
        && segment.seq == conn.rcv_nxt
        && segment.payload_len as i32 <= window
        && (stamp.value.wrapping_sub(conn.ts_recent) as i32) >= 0
        && acked >= 0
        && acked as u32 <= conn.flight()
        // Neither says anything where it may be a duplicate, or open the window.
        && (acked > 0 || segment.payload_len > 0)
        && ctx.plenty
}

/// Bytes that a connection's share to send has to have at least: a congestion window grows no further than the share of
/// its time, so that it need not be asked for where there is no shortage.
const PLENTY: u32 = 256 << 10;

/// Whether a batch of `packets` can be taken without asking, packet by packet, for room for its events, for memory to keep
/// its bytes in, and for what connections may be promised.
pub(crate) fn is_plenty(packets: usize, ctx: &Context<'_>) -> bool {
    ctx.out.shares.send >= PLENTY
        && ctx.events.room() > receive::EVENT_RESERVE + 2 * packets
        && ctx.out.late_events.is_empty()
        && ctx.pool.allows_all(Want::Receive, packets)
}

#[inline(always)]
fn take(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    segment: &Segment,
    mbuf: Mbuf,
    ctx: &mut Context<'_>,
) {
    // RFC 7323 §4.3 (2): in sequence, so not after Last.ACK.sent means equal to it.
    if let Some(stamp) = segment.timestamp
        && segment.seq == conn.last_ack_sent
    {
        conn.ts_recent = stamp.value;
    }
    conn.heard_at = ctx.clock;
    let acked = (segment.ack - conn.snd_una) as u32;
    let flight_before = conn.flight();
    let mut bytes = 0;
    // A window that came ahead of this segment is newer (RFC 9293 §3.10.7.4).
    if acked > 0 || !segment.seq.before(conn.snd_wl1) {
        conn.snd_wnd = u32::from(segment.window) << conn.snd_wscale;
        conn.snd_wl1 = segment.seq;
    }
    if acked > 0 {
        let acknowledged = ack::acknowledge(conn, segment, ctx);
        bytes = acknowledged.bytes;
        if loss::may_grow(conn, flight_before) {
            loss::grow(conn, cold, acked, flight_before, acknowledged.rtt_ns, ctx);
        }
    }
    let grew = conn.update_edge(0, u32::MAX);
    // There is room for an event, and nothing waits to be told before: it was asked for.
    if segment.payload_len > 0 {
        receive::count_segment(conn, segment.payload_len);
        return receive::tell(place, conn, cold, mbuf, bytes, ctx);
    }
    ctx.pool.free(mbuf);
    if bytes > 0 || grew {
        ctx.event(ack::sent(place, conn, bytes));
    }
    // With many connections this one is out of the nearest cache again when step 6 comes.
    if !settle::is_at_rest(conn, ctx) {
        output::note_pending(conn, place, ctx);
    }
}

/// Unacknowledged segments from which on no other one takes the short way: with Nagle's algorithm, any.
#[inline(always)]
fn most_listed(ctx: &Context<'_>) -> u8 {
    if ctx.shared.config.nagle { 1 } else { MAX_LISTED }
}

/// `sendv` of a message of one buffer, which nearly every one is, and `recv_done` of the request that it answers
/// (`given_back` bytes, or none): one frame acknowledges, announces the room that came free, and carries the reply.
/// Answers whether, as nearly always, the application has given all back that it had and step 6 has nothing more to
/// acknowledge: a buffer of the connection is free. A message that uses all of the credit goes the other way: it may be cut by
/// the window. `OFFLOADS`: the device completes checksums (`StackConfig::tx_checksum_offload`).
// Not inlined, with all that it calls inside: it needs the registers.
#[inline(never)]
pub(crate) fn reply<const OFFLOADS: bool>(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    (mbuf, sum): (Mbuf, Sum),
    given_back: u32,
    ctx: &mut Context<'_>,
) -> bool {
    let len = mbuf.len();
    if given_back > conn.rcv_used
        || conn.state != State::Established
        || !conn.flags.are(USUAL, USUAL.and(HINDERS))
        || conn.listed >= most_listed(ctx)
        || len > conn.mss as usize
        || len as u32 >= conn.credit()
        || conn.flight() + len as u32 > conn.cwnd.min(conn.snd_wnd)
        || !ctx.can_send()
    {
        return reply_by_calls(place, conn, cold, (mbuf, sum), given_back, ctx);
    }
    conn.rcv_used -= given_back;
    let (window, sent_at_ns) = (announce::announce_window(conn, cold, ctx), ctx.now.as_nanos());
    let Some(template) = ctx.template(conn) else {
        return reply_by_calls(place, conn, cold, (mbuf, sum), 0, ctx);
    };
    let fields = EstablishedFields {
        flow: conn.flow,
        seq: conn.snd_end,
        ack: conn.rcv_nxt,
        flags: TcpFlags::ACK.union(TcpFlags::PSH),
        window,
        echo: conn.ts_recent,
        payload_len: len,
        payload_sum: if OFFLOADS { None } else { Some(sum) },
    };
    let meta = TxMeta {
        sent_at_ns,
        payload_sum: sum.to_bits(),
        seq: conn.snd_end.0,
        len: len as u16,
        flags: TcpFlags::PSH.0,
        transmissions: 1,
    };
    let (retained, frame) = match mbuf.transmit(meta, |front| template.write(front, &fields)) {
        Ok(parts) => parts,
        Err(mbuf) => return reply_by_calls(place, conn, cold, (mbuf, sum), 0, ctx),
    };
    let partial = OFFLOADS.then(|| output::partial_checksum(frame.len() - len - TCP_LEN));
    ctx.out.frames.push(frame.with_partial_checksum(partial));
    conn.sent.push(retained);
    conn.listed += 1;
    conn.snd_end += len as u32;
    conn.snd_nxt = conn.snd_end;
    output::acknowledged(conn);
    ctx.stats.tcp_segments_out += 1;
    ctx.stats.tcp_bytes_out += len as u64;
    if !conn.flags.has(Flags::RTX_ARMED) {
        output::arm_retransmission(conn, ctx);
    }
    // Also where it was armed before: an acknowledgment may have moved it to before the wheel's entry. And of a flight of
    // several segments the end may be probed for.
    if conn.listed > 1 || !settle::has_timer(conn, ctx) {
        output::note_pending(conn, place, ctx);
    }
    conn.rcv_used == 0
}

/// The same where anything is unusual. What is given back is announced with the reply where the connection had it.
#[cold]
#[inline(never)]
fn reply_by_calls(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    payload: (Mbuf, Sum),
    given_back: u32,
    ctx: &mut Context<'_>,
) -> bool {
    let is_usual = given_back <= conn.rcv_used && !conn.flags.has(Flags::HELD);
    let before = if is_usual { given_back } else { 0 };
    conn.rcv_used -= before;
    calls::sendv(place, conn, cold, core::iter::once(payload), ctx);
    calls::recv_done(place, conn, cold, given_back - before, ctx);
    false
}
