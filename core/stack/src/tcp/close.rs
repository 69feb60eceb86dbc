//! The end of a connection: FIN in both directions, TIME-WAIT, resets (RFC 9293 §3.6).

use domain::{DeadReason, EventRecord};
use wire::{SeqNumber, Sum, TcpFlags};

use super::conn::{Conn, Flags, State};
use super::fields::Segment;
use super::group::{FlowGroup, TimeWait};
use super::{listen, output, send_queue};
use crate::context::{Asker, Context};
use crate::ticks::Ticks;
use crate::wheel::TICK_SHIFT;

/// The application closes. Received bytes that it has seen no event of end the connection with a reset, and so do too many
/// closed connections.
pub(crate) fn close(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let (place, conn, cold) = group.at(slot);
    // What the peer has ended is over with one acknowledgment.
    let is_crowded =
        conn.state != State::CloseWait && ctx.census.closed >= ctx.shared.config.max_closed;
    if cold.undelivered_bytes > 0 || is_crowded {
        ctx.stats.tcp_closed_reset += 1;
        return abort(group, slot, DeadReason::Aborted, ctx);
    }
    conn.flags.set(Flags::CLOSED);
    match conn.state {
        State::Established | State::CloseWait => shutdown(group, slot, ctx),
        State::FinWait2 => {
            wait_for_fin(conn, ctx);
            output::note_pending(conn, place, ctx);
        }
        _ => {}
    }
    group.closed += 1;
    ctx.census.closed += 1;
}

/// The peer of a closed connection has so long for its FIN (FIN-WAIT-2).
fn wait_for_fin(conn: &mut Conn, ctx: &Context<'_>) {
    conn.rtx_at = (ctx.tick as u32).wrapping_add(ctx.shared.ticks.fin_wait);
    conn.flags.set(Flags::RTX_ARMED);
}

/// The application sends no more: a FIN goes out behind all that it sent.
pub(crate) fn shutdown(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let (conn, cold) = group.slots.both(slot);
    // The user time-out of the FIN begins now, however long the window has been closed.
    (cold.stalled_since, cold.stalled_until) = (ctx.tick as u32, conn.snd_nxt);
    conn.state = match conn.state {
        State::Established => State::FinWait1,
        State::CloseWait => State::LastAck,
        other => other,
    };
    conn.flags.set(Flags::FIN_WANTED);
    send_fin(group, slot, ctx);
}

/// Makes the FIN: a segment of its own in the send queue, so that it is sent again like any other.
/// Without memory it is tried again when something else is sent, or by the timer.
pub(crate) fn send_fin(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    match ctx.pool.alloc() {
        Ok(mbuf) => {
            group.slots.hot(slot).flags.clear(Flags::FIN_WANTED);
            let (place, conn, cold) = group.at(slot);
            send_queue::enqueue(place, conn, cold, mbuf, TcpFlags::FIN, Sum::ZERO, ctx);
        }
        Err(mem::Exhausted) => {
            let conn = group.slots.hot(slot);
            if !conn.flags.has(Flags::RTX_ARMED) {
                output::arm_retransmission(conn, ctx);
            }
            output::mark_pending(group, slot, ctx);
        }
    }
}

/// Our FIN has been made and acknowledged.
#[inline]
fn fin_acknowledged(conn: &Conn) -> bool {
    conn.snd_una == conn.snd_end && !conn.flags.has(Flags::FIN_WANTED.and(Flags::UNSENT))
}

/// State changes that an acknowledgment brings. Answers whether the segment's data still matters.
#[inline]
pub(crate) fn after_ack(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) -> bool {
    let conn = group.slots.hot(slot);
    if matches!(conn.state, State::Established | State::CloseWait) {
        return true;
    }
    closing_states(group, slot, ctx)
}

fn closing_states(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) -> bool {
    let conn = group.slots.hot(slot);
    if conn.flags.has(Flags::FIN_WANTED) {
        send_fin(group, slot, ctx);
        return true;
    }
    if !fin_acknowledged(conn) {
        return true;
    }
    match conn.state {
        State::FinWait1 => {
            conn.state = State::FinWait2;
            if conn.flags.has(Flags::CLOSED) {
                wait_for_fin(conn, ctx);
            }
            output::mark_pending(group, slot, ctx);
            true
        }
        State::Closing => {
            enter_time_wait(group, slot, ctx);
            false
        }
        // What the application has not been told of comes before the end: see `delivered`.
        State::LastAck if conn.flags.has(Flags::UNDELIVERED) => true,
        State::LastAck => {
            die(group, slot, Some(DeadReason::Closed), ctx);
            false
        }
        _ => true,
    }
}

/// The peer's FIN is next in the stream (RFC 9293 §3.10.7.4, eighth).
#[cold]
pub(crate) fn peer_finished(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let (place, conn, cold) = group.at(slot);
    if !conn.state.may_receive() {
        return;
    }
    conn.rcv_nxt += 1;
    conn.flags.set(Flags::ACK_NOW);
    if conn.flags.has(Flags::UNDELIVERED) || !conn.flags.has(Flags::ACCEPTED) {
        cold.eof_untold = true;
        if !conn.flags.has(Flags::UNDELIVERED) {
            conn.flags.set(Flags::UNDELIVERED);
            ctx.out.undelivered.push_back(place);
        }
    } else {
        ctx.event(EventRecord::Eof { handle: conn.handle(place), cookie: conn.cookie });
    }
    match conn.state {
        State::Established => conn.state = State::CloseWait,
        State::FinWait1 if !fin_acknowledged(conn) => conn.state = State::Closing,
        _ => return enter_time_wait(group, slot, ctx),
    }
    output::mark_pending(group, slot, ctx);
}

/// TIME-WAIT: the application is told that the connection ended, late segments are still answered.
fn enter_time_wait(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let (conn, cold) = group.slots.both(slot);
    if conn.flags.has(Flags::UNDELIVERED) {
        cold.dead_untold = true;
    } else {
        tell_end(group, slot, ctx);
    }
    group.leave_closed(slot, ctx);
    let conn = group.slots.hot(slot);
    conn.state = State::TimeWait;
    conn.flags.clear(Flags::OUT_OF_ORDER);
    conn.flags.clear(Flags::UNSENT.and(Flags::FIN_WANTED).and(Flags::PERSIST));
    conn.flags.clear(Flags::RTX_ARMED);
    let generation = conn.generation;
    restart_time_wait(conn, ctx);
    group.in_time_wait += 1;
    ctx.census.time_wait += 1;
    let due = ctx.tick + u64::from(ctx.shared.ticks.time_wait);
    wait(group, TimeWait { slot, generation, due }, ctx);
    output::mark_pending(group, slot, ctx);
    limit_time_wait(group, ctx);
}

/// The application hears that the connection ended in order, and what it held is freed.
fn tell_end(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    // Whatever the application still holds stays readable until it has seen this batch: buffers of
    // the batch are settled against a stale handle and freed then.
    tell_dead(group, slot, DeadReason::Closed, ctx);
    group.release(slot, ctx);
    let conn = group.slots.hot(slot);
    conn.flags.clear(Flags::HELD.and(Flags::UNDELIVERED));
}

/// The application has been told of all that came. Where the connection has ended meanwhile, it
/// hears of that now.
pub(crate) fn delivered(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let (conn, cold) = group.slots.both(slot);
    if core::mem::take(&mut cold.dead_untold) {
        tell_end(group, slot, ctx);
    } else if conn.state == State::LastAck && fin_acknowledged(conn) {
        die(group, slot, Some(DeadReason::Closed), ctx);
    }
}

/// Whether TIME-WAIT must go on, since the application has not been told of the end.
pub(crate) fn is_untold(group: &mut FlowGroup, slot: u32) -> bool {
    group.slots.both(slot).1.dead_untold
}

/// Has a connection stand in the queue of those in TIME-WAIT: nearly always at its end.
fn wait(group: &mut FlowGroup, entry: TimeWait, ctx: &mut Context<'_>) {
    let at = match group.time_wait.back() {
        Some(last) if last.due > entry.due => {
            group.time_wait.partition_point(|other| other.due <= entry.due)
        }
        _ => group.time_wait.len(),
    };
    group.time_wait.insert(at, entry);
    ctx.note_group_due(group.index, entry.due);
}

/// Ends connections whose TIME-WAIT is over, `most` of them. Answers how many more there might have been.
pub(crate) fn end_time_wait(
    group: &mut FlowGroup,
    mut most: usize,
    ctx: &mut Context<'_>,
) -> usize {
    while let Some(&TimeWait { slot, generation, due }) = group.time_wait.front()
        && due <= ctx.tick
        && most > 0
    {
        group.time_wait.pop_front();
        most -= 1;
        let conn = group.slots.hot(slot);
        if conn.generation != generation || conn.state != State::TimeWait {
            continue;
        }
        if is_untold(group, slot) {
            restart_time_wait(group.slots.hot(slot), ctx);
        }
        // It may have begun anew meanwhile.
        match group.slots.hot(slot).rtx_at.wrapping_sub(ctx.tick as u32) as i32 {
            ..=0 => group.destroy(slot, ctx),
            left => {
                let due = ctx.tick + left.unsigned_abs() as u64;
                wait(group, TimeWait { slot, generation, due }, ctx);
            }
        }
    }
    most
}

/// Ends the oldest of this group's TIME-WAIT connections where the core has too many.
fn limit_time_wait(group: &mut FlowGroup, ctx: &mut Context<'_>) {
    // Entries of connections that ended by themselves are dropped on the way.
    while let Some(&TimeWait { slot, generation, .. }) = group.time_wait.front() {
        let conn = group.slots.hot(slot);
        let current = conn.generation == generation && conn.state == State::TimeWait;
        let full = ctx.census.time_wait > ctx.shared.config.max_time_wait;
        if current && (!full || is_untold(group, slot)) {
            return;
        }
        group.time_wait.pop_front();
        if current {
            ctx.stats.tcp_time_wait_recycled += 1;
            group.destroy(slot, ctx);
        }
    }
}

/// TIME-WAIT lasts the whole time from now on; the queue finds that out.
fn restart_time_wait(conn: &mut Conn, ctx: &Context<'_>) {
    conn.rtx_at = (ctx.tick as u32).wrapping_add(ctx.shared.ticks.time_wait);
}

/// How long a connection stays in TIME-WAIT at least before one of ours takes its place, in ticks of the wheel: a second,
/// in which our timestamps have changed.
const REPLACEABLE_AFTER: u32 = 1_000_000_000 >> TICK_SHIFT;

/// Whether a new connection to the same peer may take the place of one (RFC 6191): it has been in TIME-WAIT for a second,
/// and the peer tells old segments by their timestamps.
pub(crate) fn is_replaceable(group: &mut FlowGroup, slot: u32, tick: u64, ticks: &Ticks) -> bool {
    let conn = group.slots.hot(slot);
    let left = conn.rtx_at.wrapping_sub(tick as u32);
    conn.state == State::TimeWait
        && conn.flags.has(Flags::TIMESTAMPS)
        && ticks.time_wait.saturating_sub(left) >= REPLACEABLE_AFTER
        && !is_untold(group, slot)
}

/// Ends a connection in TIME-WAIT whose place a new one takes. Answers the last number that it used.
pub(crate) fn replace(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) -> SeqNumber {
    let before = group.slots.hot(slot).snd_nxt;
    group.destroy(slot, ctx);
    before
}

/// A segment for a connection in TIME-WAIT.
#[cold]
pub(crate) fn time_wait(
    group: &mut FlowGroup,
    slot: u32,
    segment: &Segment,
    ctx: &mut Context<'_>,
) {
    let conn = group.slots.hot(slot);
    // A reset must not end TIME-WAIT (RFC 1337).
    if segment.flags.contains(TcpFlags::RST) {
        return;
    }
    // A new SYN may take the place (RFC 9293 §3.6.1) where it is newer than all of the old
    // connection by timestamp or by sequence number (RFC 6191 §2).
    let newer_stamp = match segment.timestamp {
        Some(stamp) if conn.flags.has(Flags::TIMESTAMPS) => {
            (stamp.value.wrapping_sub(conn.ts_recent) as i32) > 0
        }
        _ => false,
    };
    let is_syn = segment.flags.contains(TcpFlags::SYN) && !segment.flags.contains(TcpFlags::ACK);
    let newer = newer_stamp || segment.seq.after(conn.rcv_nxt);
    if is_syn && newer && !is_untold(group, slot) {
        let before = replace(group, slot, ctx);
        return listen::open(group, segment, Some(before), ctx);
    }
    let conn = group.slots.hot(slot);
    // A bare acknowledgment in sequence asks for nothing: two ends in TIME-WAIT that answered it
    // would go on for ever.
    if segment.sequence_len() == 0 && segment.seq == conn.rcv_nxt {
        return;
    }
    if segment.flags.contains(TcpFlags::FIN) {
        restart_time_wait(conn, ctx);
    }
    conn.flags.set(Flags::ACK_NOW);
    output::mark_pending(group, slot, ctx);
}

/// Tells the application that a connection ended, where it knows of it.
fn tell_dead(group: &mut FlowGroup, slot: u32, reason: DeadReason, ctx: &mut Context<'_>) {
    let (place, conn, cold) = group.at(slot);
    let handle = conn.handle(place);
    let cookie = conn.cookie;
    // What came before a reset is told before it, as far as there is room.
    if conn.flags.has(Flags::ACCEPTED)
        && conn.flags.has(Flags::UNDELIVERED)
        && ctx.out.late_events.is_empty()
    {
        while let Some(mbuf) = cold.undelivered.pop() {
            ctx.unkeep(place.group);
            if let Err(mbuf) = ctx.events.push_recv(handle, cookie, mbuf, 0, 0) {
                ctx.pool.free(mbuf);
            }
        }
    }
    leave_backlog(group, slot, ctx);
    ctx.event(EventRecord::Dead { handle, cookie, reason });
}

/// A connection that the application has not accepted ends: counted once, whatever path leads to the slot's end.
fn leave_backlog(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let conn = group.slots.hot(slot);
    if !conn.flags.has(Flags::ACTIVE.and(Flags::ACCEPTED)) {
        conn.flags.set(Flags::ACCEPTED);
        let local_port = conn.flow.local_port();
        ctx.count_backlog(&mut group.backlogs, local_port, |backlog| backlog.unaccepted -= 1);
    }
}

/// Ends a connection without a word to the peer. `told`: the reason for the application, where it
/// knows of the connection.
pub(crate) fn die(
    group: &mut FlowGroup,
    slot: u32,
    told: Option<DeadReason>,
    ctx: &mut Context<'_>,
) {
    match told {
        Some(reason) => tell_dead(group, slot, reason, ctx),
        None => leave_backlog(group, slot, ctx),
    }
    group.destroy(slot, ctx);
}

/// Ends a connection with a reset to the peer.
pub(crate) fn abort(group: &mut FlowGroup, slot: u32, reason: DeadReason, ctx: &mut Context<'_>) {
    let (conn, cold) = group.slots.both(slot);
    let seq = output::bare_seq(conn);
    let flags = TcpFlags::RST.union(TcpFlags::ACK);
    if output::send_bare(conn, cold, seq, flags, ctx).is_ok() {
        ctx.stats.tcp_resets_out += 1;
    } else {
        let ends = ctx.ends(conn.flow);
        ctx.out.owed.owe(conn, ends);
    }
    die(group, slot, Some(reason), ctx);
}

/// Whether the peer of a connection waits for something that an end without a word would keep from it
/// (RFC 9293 §3.10.5). The RFC has a connection whose FIN is queued behind data remain in the state before
/// it; ours is in the one after it.
pub(crate) fn owes_reset(conn: &Conn) -> bool {
    match conn.state {
        State::Closed | State::SynSent | State::TimeWait => false,
        State::Closing | State::LastAck => conn.flags.has(Flags::UNSENT.and(Flags::FIN_WANTED)),
        _ => true,
    }
}

/// How the last word to a peer went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Farewell {
    /// None was owed.
    Silent,
    /// It was reset.
    Reset,
    /// It was to be reset and could not be.
    Untold,
    /// The connection is still there: the peer's link address is not known yet, and was asked for.
    Waits,
}

/// Ends a connection of a stack that leaves, with a reset where one is owed. The application is told
/// nothing.
pub(crate) fn leave(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) -> Farewell {
    let conn = group.slots.hot(slot);
    let mut farewell = Farewell::Silent;
    if owes_reset(conn) {
        let destination = ctx.addresses(conn.flow.pair()).remote;
        let reachable = ctx.shared.config.next_hop(destination).is_some();
        if reachable && ctx.resolve(destination, Asker::Ours).is_none() {
            return Farewell::Waits;
        }
        let sent = reachable && last_reset(group, slot, ctx);
        farewell = if sent { Farewell::Reset } else { Farewell::Untold };
    }
    match group.slots.hot(slot).state {
        // Its part of the counts was settled when it entered that state.
        State::TimeWait => group.destroy(slot, ctx),
        _ => die(group, slot, None, ctx),
    }
    farewell
}

/// Sends a reset on a connection that ends whatever comes of it. Answers whether it is on its way.
fn last_reset(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) -> bool {
    // Without free memory it is made in what the connection itself holds.
    for _ in 0..2 {
        let (conn, cold) = group.slots.both(slot);
        let (seq, flags) = (conn.snd_nxt, TcpFlags::RST.union(TcpFlags::ACK));
        if output::send_bare(conn, cold, seq, flags, ctx).is_ok() {
            ctx.stats.tcp_resets_out += 1;
            return true;
        }
        group.release(slot, ctx);
    }
    false
}
