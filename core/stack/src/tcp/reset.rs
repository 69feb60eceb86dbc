//! Resets: for segments that belong to no connection (RFC 9293 §3.10.7.1), and those that are owed.

use wire::{SeqNumber, TcpFlags, TcpOptions, TcpRepr};

use super::fields::{Ends, Segment};
use super::output::send_unowned;
use super::owed::Reset;
use crate::budget::Answer;
use crate::context::Context;
use crate::pairs::Pair;

/// Answers a segment that makes no sense with the reset of RFC 9293 §3.10.7.1.
#[cold]
pub(crate) fn send_reset(segment: &Segment, ctx: &mut Context<'_>) {
    let is_reset = segment.flags.contains(TcpFlags::RST);
    let ends = ctx.ends(segment.flow);
    if is_reset || !ctx.may_answer(Answer::Reset, ends.remote.addr) {
        return;
    }
    let (seq, ack, flags) = if segment.flags.contains(TcpFlags::ACK) {
        (segment.ack, SeqNumber(0), TcpFlags::RST)
    } else {
        let ack = segment.seq + segment.sequence_len();
        (SeqNumber(0), ack, TcpFlags::RST.union(TcpFlags::ACK))
    };
    bare_reset(ends, seq, ack, flags, ctx);
}

/// Sends a reset that needs no connection.
fn bare_reset(
    Ends { local, remote }: Ends,
    seq: SeqNumber,
    ack: SeqNumber,
    flags: TcpFlags,
    ctx: &mut Context<'_>,
) {
    let repr = TcpRepr {
        src_port: local.port,
        dst_port: remote.port,
        seq,
        ack,
        flags,
        window: 0,
        options: TcpOptions::NONE,
    };
    let pair = Pair { local: local.addr, remote: remote.addr };
    let is_sent = send_unowned(pair, &repr, ctx);
    ctx.stats.tcp_resets_out += u64::from(is_sent);
}

/// Sends those owed resets that there is room and memory for, in the order in which their connections ended.
#[inline]
pub(crate) fn pay(ctx: &mut Context<'_>) {
    // Nearly always none: then the depot is not asked, whose line other cores write.
    if ctx.out.owed.len() > 0 {
        pay_waiting(ctx);
    }
}

#[cold]
fn pay_waiting(ctx: &mut Context<'_>) {
    while ctx.can_send()
        && ctx.pool.available() > 0
        && let Some(Reset { ends, seq, ack }) = ctx.out.owed.take_first()
    {
        let flags = TcpFlags::RST.union(TcpFlags::ACK);
        bare_reset(ends, seq, ack, flags, ctx);
    }
}
