//! What acknowledgments and time-outs say about losses, and what follows for the windows: fast recovery (RFC 6675,
//! RFC 6582) with proportional rate reduction, and recovery from a time-out (RFC 5681 §3.1).
//!
//! Nothing is sent here. What is lost stands on the scoreboard, and `send_queue::pump` sends it again.

use wire::{SackBlocks, SeqNumber};

use super::congestion::{Arrival, Cause, Congestion, UNIT_SHIFT, Window, initial_window};
use super::conn::{Cold, Conn, Flags};
use super::fields::Segment;
use super::prr::Prr;
use super::rack::{Path, REORDERING_SEGMENTS};
use super::recovery::Recovery;
use super::scoreboard::{Acked, Sent};
use super::tail::{self, Outcome};
use super::{ecn, path_mtu, spurious};
use crate::context::{Context, STAMP_SHIFT};
use crate::ticks::UNIT_SHIFT as RTT_SHIFT;

const _: () = assert!(UNIT_SHIFT == STAMP_SHIFT);

/// Segments on a scoreboard at most for it to be given up, where nothing is missing.
const FEW: usize = 16;

/// What an acknowledgment brought, apart from its selective part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct News {
    /// Bytes by which SND.UNA moved.
    pub advance: u32,
    /// Bytes of them that the peer had not told of before.
    pub delivered: u32,
    /// Whether it is a duplicate (RFC 5681 §2).
    pub is_duplicate: bool,
    /// What was in flight before it.
    pub flight_before: u32,
    /// The round trip that it ended.
    pub rtt_ns: Option<u64>,
}

/// What is in flight and counts against the congestion window.
#[inline]
pub(crate) fn pipe(conn: &Conn, cold: &Cold) -> u32 {
    match &cold.recovery {
        Some(recovery) => recovery.pipe(conn.flight(), conn.mss),
        None => conn.flight(),
    }
}

/// When the oldest segment was last sent, in nanoseconds.
pub(crate) fn oldest_at_ns(conn: &Conn, cold: &Cold) -> Option<u64> {
    match &cold.recovery {
        Some(recovery) => recovery.board.iter().next().and_then(Sent::at_ns),
        None => conn.sent.front().map(|meta| meta.sent_at_ns),
    }
}

/// When the newest segment was last sent, in nanoseconds.
pub(crate) fn newest_at_ns(conn: &Conn, cold: &Cold) -> Option<u64> {
    match &cold.recovery {
        Some(recovery) => recovery.board.iter().next_back().and_then(Sent::at_ns),
        None => conn.sent.back().map(|meta| meta.sent_at_ns),
    }
}

/// Puts what was sent on a scoreboard, where it is not on one.
pub(crate) fn track<'a>(conn: &mut Conn, cold: &'a mut Cold) -> &'a mut Recovery {
    let recovery = cold.recovery.get_or_insert_default();
    while let Some(retained) = conn.sent.pop() {
        recovery.board.push(retained);
    }
    conn.listed = 0;
    conn.flags.set(Flags::TRACKED);
    recovery
}

/// All is acknowledged, and the peer has gone on: what became of the last probe of new data, or of what was sent again, it will
/// not tell any more. Of a probe that repeated something the next acknowledgment does (RFC 8985 §7.4.2).
pub(crate) fn forget_past(conn: &mut Conn, cold: &mut Cold) {
    if let Some(recovery) = &mut cold.recovery {
        recovery.undo = None;
        recovery.probe = recovery.probe.take().filter(|probe| probe.is_old);
        untrack(conn, cold);
    }
}

/// Gives the scoreboard up where little is in flight and nothing is missing.
pub(crate) fn untrack(conn: &mut Conn, cold: &mut Cold) {
    const BUSY: Flags = Flags::RECOVERY
        .and(Flags::TIMEOUT_RECOVERY)
        .and(Flags::TAKEN_BACK)
        .and(Flags::UNDO)
        .and(Flags::FRTO);
    let Some(recovery) = &mut cold.recovery else { return };
    let waits = recovery.look_at_ns().is_some();
    let board = &mut recovery.board;
    let is_quiet = board.len() <= FEW
        && board.lost() == 0
        && board.sacked_segments() == 0
        && recovery.duplicates == 0
        && recovery.undo.is_none()
        && recovery.probe.is_none()
        && !waits
        && recovery.size_probe.is_none()
        && !conn.flags.has(BUSY.and(Flags::REORDER_TIMER));
    if is_quiet {
        while let Some(retained) = board.pop() {
            conn.sent.push(retained);
            conn.listed += 1;
        }
        cold.recovery = None;
        conn.flags.clear(Flags::TRACKED);
    }
}

/// The smoothed round-trip time in nanoseconds, zero before the first one.
pub(crate) fn srtt_ns(conn: &Conn) -> u64 {
    u64::from(conn.srtt_8 / 8) << RTT_SHIFT
}

fn path(conn: &Conn) -> Path {
    Path {
        srtt_ns: srtt_ns(conn),
        reorders: conn.flags.has(Flags::REORDERS),
        recovers: conn.flags.has(Flags::RECOVERY.and(Flags::TIMEOUT_RECOVERY)),
    }
}

fn window(conn: &Conn) -> Window {
    Window { cwnd: conn.cwnd, mss: conn.mss.into() }
}

fn congestion<'a>(cold: &'a mut Cold, ctx: &Context<'_>) -> &'a mut Congestion {
    cold.congestion(ctx.shared.config.congestion)
}

/// Whether the window may grow by what is acknowledged: with a short segment in flight only a small one is in full use.
#[inline(always)]
pub(crate) fn may_grow(conn: &Conn, flight_before: u32) -> bool {
    flight_before >= conn.mss.into() || conn.cwnd / 2 < flight_before
}

/// Data arrived while nothing was missing. The window grows where it is in full use, or was so when the data was sent: one
/// that is not says nothing about the path (RFC 7661 §4.1). SND.UNA has moved.
#[cold]
#[inline(never)]
pub(crate) fn grow(
    conn: &mut Conn,
    cold: &mut Cold,
    acked: u32,
    flight_before: u32,
    rtt_ns: Option<u64>,
    ctx: &Context<'_>,
) {
    let arrival = arrival(conn, acked, rtt_ns, ctx);
    if conn.cwnd / 2 < flight_before {
        congestion(cold, ctx).note_used(flight_before, arrival);
    } else if !cold.congestion.as_ref().is_some_and(|of| of.was_full(arrival)) {
        return;
    }
    let grown = congestion(cold, ctx).grow(window(conn), arrival);
    // No further than there is memory for.
    let most = ctx.out.shares.send.max(initial_window(conn.mss)).max(conn.cwnd);
    conn.cwnd = grown.min(most);
}

fn arrival(conn: &Conn, acked: u32, rtt_ns: Option<u64>, ctx: &Context<'_>) -> Arrival {
    let (una, nxt, at) = (conn.snd_una, conn.snd_nxt, ctx.clock);
    Arrival { acked, una, nxt, rtt_ns, srtt_ns: path(conn).srtt_ns, at }
}

/// Of `acked` bytes that arrived, some were marked on the way (RFC 3168 §6.1.2): the window shrinks as after a loss, or as
/// DCTCP has it, and nothing is sent again. SND.UNA has moved.
#[cold]
pub(crate) fn on_echo(
    conn: &mut Conn,
    cold: &mut Cold,
    acked: u32,
    flight_before: u32,
    ctx: &mut Context<'_>,
) {
    let arrival = arrival(conn, acked, None, ctx);
    // A recovery has shrunk it, and stands for the mark: also where nothing was lost.
    let flight = if path(conn).recovers { None } else { Some(flight_before) };
    if let Some(recovery) = cold.recovery.as_mut().filter(|_| flight.is_none()) {
        recovery.undo = None;
        spurious::forget(conn);
    }
    let cwnd = congestion(cold, ctx).mark(window(conn), flight, arrival);
    if let Some(cwnd) = cwnd {
        conn.cwnd = cwnd;
        ecn::note_slowed(conn);
        ctx.stats.tcp_marked_windows += 1;
    }
}

/// Whether the timestamp that an acknowledgment echoes is older than a segment that was last sent at `at_ns`: it answers an
/// earlier transmission of it.
fn echoes_earlier(conn: &Conn, segment: &Segment, at_ns: u64, ctx: &Context<'_>) -> bool {
    let stamp = segment.timestamp.filter(|_| conn.flags.has(Flags::TIMESTAMPS));
    let sent_at = ctx.timestamp_at(at_ns);
    stamp.is_some_and(|stamp| (stamp.echo.wrapping_sub(sent_at) as i32) < 0)
}

/// Frees what an acknowledgment covers. SND.UNA has moved.
pub(crate) fn acknowledge(
    conn: &mut Conn,
    cold: &mut Cold,
    segment: &Segment,
    ctx: &mut Context<'_>,
) -> Acked {
    let Some(mut recovery) = cold.recovery.take() else { return Acked::default() };
    let Recovery { board, rack, too_big, .. } = &mut *recovery;
    let (now_ns, mut reorders) = (ctx.now.as_nanos(), false);
    for sent in board.iter().take_while(|sent| sent.end().before_eq(conn.snd_una)) {
        if let Some(at_ns) = sent.at_ns() {
            let is_earlier = echoes_earlier(conn, segment, at_ns, ctx);
            Recovery::refute(too_big, sent, at_ns);
            reorders |= rack.delivered(sent, path(conn), now_ns, is_earlier);
        }
    }
    let acked = board.acknowledge(conn.snd_una, ctx.pool);
    if reorders {
        conn.flags.set(Flags::REORDERS);
    }
    cold.recovery = Some(recovery);
    acked
}

/// Takes in which segments a peer has that lacks others before them (RFC 2018), and which it has twice (RFC 2883).
/// Answers the bytes that are new, and what came twice.
fn take_blocks(
    conn: &mut Conn,
    recovery: &mut Recovery,
    segment: &Segment,
    ctx: &Context<'_>,
) -> (u32, Option<(SeqNumber, SeqNumber)>) {
    let mut blocks = segment.sack_blocks;
    if !conn.flags.has(Flags::SACK) {
        return (0, None);
    }
    let (una, nxt) = (conn.snd_una, conn.snd_nxt);
    let is_sent =
        |&(left, right): &(SeqNumber, SeqNumber)| left.before(right) && right.before_eq(nxt);
    let twice = twice_of(&blocks, segment.ack)
        .filter(|block| is_sent(block) && una - block.0 <= conn.snd_wnd.max(1 << 16) as i32);
    // In the order of the stream: that later segments are told of first says nothing of their order.
    blocks.sort();
    let (mut new, mut reorders, now_ns) = (0, false, ctx.now.as_nanos());
    for &(left, right) in blocks.iter().filter(|block| is_sent(block) && block.0.after_eq(una)) {
        let Recovery { board, rack, too_big, .. } = recovery;
        // What is echoed is of the last segment in order, which these are not (RFC 7323 §4.3).
        new += board.sack(left, right, |sent| {
            Recovery::refute(too_big, sent, sent.at_ns().unwrap_or(0));
            reorders |= rack.delivered(sent, path(conn), now_ns, false);
        });
    }
    if reorders {
        conn.flags.set(Flags::REORDERS);
    }
    (new, twice)
}

/// The first block, where it is below what is acknowledged or inside the second: the peer has it twice (RFC 2883 §4).
fn twice_of(blocks: &SackBlocks, ack: SeqNumber) -> Option<(SeqNumber, SeqNumber)> {
    let &(left, right) = blocks.first()?;
    let is_inside =
        |&(from, to): &(SeqNumber, SeqNumber)| from.before_eq(left) && right.before_eq(to);
    let is_twice = right.before_eq(ack) || blocks.get(1).is_some_and(is_inside);
    is_twice.then_some((left, right))
}

/// What an acknowledgment says about losses, and what follows for the window. SND.UNA has moved, and what it covers is
/// freed.
pub(crate) fn on_ack(
    conn: &mut Conn,
    cold: &mut Cold,
    segment: &Segment,
    news: News,
    ctx: &mut Context<'_>,
) {
    let Some(mut recovery) = cold.recovery.take() else { return };
    let (sacked, twice) = take_blocks(conn, &mut recovery, segment, ctx);
    if twice.is_some() {
        recovery.rack.widen(conn.snd_una, conn.snd_nxt);
    }
    match tail::judge(conn, &mut recovery, segment, twice.is_some(), news.is_duplicate) {
        Outcome::Lost { flight } => {
            conn.cwnd = slow_down(conn, cold, flight, ctx);
        }
        Outcome::Unknown if let Some(twice) = twice => {
            spurious::on_twice(conn, cold, &mut recovery, twice, news.advance, ctx);
        }
        Outcome::Unknown | Outcome::NotLost => {}
    }
    if conn.flags.has(Flags::FRTO) && news.advance == 0 && sacked > 0 {
        spurious::refute(conn);
    }
    if news.advance > 0 {
        spurious::forget_old(conn, &mut recovery);
    }
    count_duplicates(conn, &mut recovery, news);
    let lost = find_losses(conn, &mut recovery, news.advance > 0, ctx);
    let is_size = path_mtu::on_news(conn, cold, &mut recovery, ctx);
    let mut delivered = news.delivered + sacked;
    if news.is_duplicate && recovery.duplicates > 0 {
        delivered += u32::from(conn.mss);
    }
    let is_over = recovery.recover.is_some_and(|recover| conn.snd_una.after_eq(recover));
    let grows = news.advance > 0 && may_grow(conn, news.flight_before);
    if conn.flags.has(Flags::TIMEOUT_RECOVERY) {
        if is_over {
            leave(conn, &mut recovery);
        }
        if grows {
            // RFC 3465 §2.3: what is sent again may have arrived before.
            let advance = news.advance.min(conn.mss.into());
            grow(conn, cold, advance, news.flight_before, news.rtt_ns, ctx);
        }
    } else if conn.flags.has(Flags::RECOVERY) && is_over {
        conn.cwnd = congestion(cold, ctx).ssthresh;
        leave(conn, &mut recovery);
    } else if conn.flags.has(Flags::RECOVERY) {
        reduce_rate(conn, cold, &mut recovery, delivered, news.advance > 0 && lost == 0);
    } else if recovery.board.lost() > 0 && !is_size {
        enter(conn, cold, &mut recovery, news.flight_before, ctx);
        reduce_rate(conn, cold, &mut recovery, delivered, false);
    } else if grows {
        grow(conn, cold, news.advance, news.flight_before, news.rtt_ns, ctx);
    }
    cold.recovery = Some(recovery);
}

/// Without selective acknowledgments a duplicate says that some segment has arrived (RFC 5681 §3.2), and an
/// acknowledgment of several segments that duplicates stood for all of them but the first.
fn count_duplicates(conn: &Conn, recovery: &mut Recovery, news: News) {
    let is_counted = !conn.flags.has(Flags::SACK.and(Flags::TIMEOUT_RECOVERY));
    recovery.duplicates = match news.is_duplicate {
        true if is_counted => (recovery.duplicates + 1).min(recovery.board.len() as u32),
        false if is_counted && conn.flags.has(Flags::RECOVERY) => {
            let segments = news.advance / u32::from(conn.mss.max(1));
            recovery.duplicates.saturating_sub(segments.saturating_sub(1))
        }
        false if is_counted && news.advance == 0 => recovery.duplicates,
        _ => 0,
    };
}

/// Takes as lost what is. Answers how many bytes.
fn find_losses(conn: &Conn, recovery: &mut Recovery, is_advance: bool, ctx: &Context<'_>) -> u32 {
    let Recovery { board, rack, .. } = recovery;
    if conn.flags.has(Flags::SACK) {
        let now_ns = ctx.now.as_nanos();
        let (lost, wait_ns) = rack.detect(board, path(conn), now_ns);
        recovery.late_at_ns = wait_ns.map(|wait_ns| now_ns + wait_ns);
        return lost;
    }
    let is_partial = conn.flags.has(Flags::RECOVERY) && is_advance;
    // Without a time-out before: what it had sent again may have been there, and each such segment makes a duplicate
    // (RFC 6582 §3.2, step 2).
    let resent = recovery.undo.as_ref().filter(|undo| undo.is_timeout).map_or(0, |undo| undo.again);
    let expected = (resent / u32::from(conn.mss.max(1))).saturating_sub(1);
    let is_third = !path(conn).recovers && recovery.duplicates >= REORDERING_SEGMENTS + expected;
    if !is_partial && !is_third {
        return 0;
    }
    // RFC 6582 §3.2: what the peer waits for; a partial acknowledgment names the next hole.
    let mut is_oldest = true;
    board.judge(|sent| core::mem::take(&mut is_oldest).then_some(is_third || sent.is_first()))
}

/// Fast recovery begins.
fn enter(
    conn: &mut Conn,
    cold: &mut Cold,
    recovery: &mut Recovery,
    flight: u32,
    ctx: &mut Context<'_>,
) {
    ctx.stats.tcp_fast_retransmits += 1;
    spurious::begin(conn, cold, recovery, flight, false, ctx);
    slow_down(conn, cold, flight, ctx);
    conn.flags.set(Flags::RECOVERY);
    recovery.recover = Some(conn.snd_nxt);
    recovery.prr = Prr::new(flight);
    recovery.probe = None;
}

/// A loss, with `flight` bytes in flight. Answers the new slow start threshold.
fn slow_down(conn: &mut Conn, cold: &mut Cold, flight: u32, ctx: &Context<'_>) -> u32 {
    ecn::note_slowed(conn);
    let arrival = arrival(conn, 0, None, ctx);
    congestion(cold, ctx).lose(window(conn), flight, arrival)
}

/// All that was sent when the recovery began is acknowledged.
fn leave(conn: &mut Conn, recovery: &mut Recovery) {
    conn.flags.clear(Flags::RECOVERY.and(Flags::TIMEOUT_RECOVERY));
    recovery.duplicates = 0;
    recovery.rack.recovered();
    spurious::wait_for_last(conn, recovery);
}

fn reduce_rate(
    conn: &mut Conn,
    cold: &Cold,
    recovery: &mut Recovery,
    delivered: u32,
    is_good: bool,
) {
    let pipe = recovery.pipe(conn.flight(), conn.mss);
    let ssthresh = cold.ssthresh();
    conn.cwnd = recovery.prr.window(delivered, pipe, ssthresh, conn.mss.into(), is_good);
}

/// What others overtook has not come in time (RFC 8985 §6.3).
pub(crate) fn on_late(conn: &mut Conn, cold: &mut Cold, ctx: &mut Context<'_>) {
    let Some(mut recovery) = cold.recovery.take() else { return };
    find_losses(conn, &mut recovery, false, ctx);
    let is_size = path_mtu::on_news(conn, cold, &mut recovery, ctx);
    if recovery.board.lost() > 0 && !path(conn).recovers && !is_size {
        enter(conn, cold, &mut recovery, conn.flight(), ctx);
    }
    if conn.flags.has(Flags::RECOVERY) {
        reduce_rate(conn, cold, &mut recovery, 0, false);
    }
    cold.recovery = Some(recovery);
}

/// The retransmission timer fired (RFC 5681 §3.1: loss window of one segment).
pub(crate) fn on_timeout(conn: &mut Conn, cold: &mut Cold, ctx: &mut Context<'_>) {
    let is_open = conn.state.is_synchronized();
    let is_first = cold.retries == 0;
    track(conn, cold);
    let Some(mut recovery) = cold.recovery.take() else { return };
    let is_size = is_open && path_mtu::on_timeout(conn, cold, &mut recovery, ctx);
    if is_open && !is_size {
        spurious::on_timeout(conn, cold, &mut recovery, ctx);
    }
    // Only the first time-out of a row tells what the path holds (RFC 5681 §3.1, last paragraph), and that of a SYN
    // nothing.
    if is_first && is_open && !is_size {
        let arrival = arrival(conn, 0, None, ctx);
        congestion(cold, ctx).reduce(window(conn), conn.flight(), Cause::TimeOut, arrival);
        ecn::note_slowed(conn);
    }
    (recovery.duplicates, recovery.probe, recovery.late_at_ns) = (0, None, None);
    let Recovery { board, rack, .. } = &mut *recovery;
    if board.is_taken_back() {
        board.forget_sacked();
    }
    match conn.flags.has(Flags::SACK) {
        true => rack.time_out(board, path(conn), ctx.now.as_nanos()),
        false => _ = board.judge(|_| Some(true)),
    }
    let pipe = recovery.pipe(conn.flight(), conn.mss);
    conn.cwnd = match is_size {
        true => conn.cwnd.min(pipe + initial_window(conn.mss)),
        false => pipe + u32::from(conn.mss),
    };
    cold.recovery = Some(recovery);
    recover_again(conn, cold);
}

/// Takes all that is in flight as lost: it is sent again from its beginning, as far as the windows allow.
pub(crate) fn lose_all(conn: &mut Conn, cold: &mut Cold) {
    track(conn, cold).board.judge(|_| Some(true));
    recover_again(conn, cold);
}

fn recover_again(conn: &mut Conn, cold: &mut Cold) {
    conn.flags.clear(Flags::RECOVERY.and(Flags::TAKEN_BACK));
    conn.flags.set(Flags::TIMEOUT_RECOVERY);
    if let Some(recovery) = &mut cold.recovery {
        recovery.recover = Some(conn.snd_nxt);
    }
}
