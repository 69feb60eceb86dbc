//! Step 4: the application's batched system calls (IX Table II). Every word of a call is checked
//! here; what cannot be done is answered with an event.

use domain::{CallError, CallKind, DeadReason, EventRecord, Handle};
use mem::Mbuf;
use wire::{Sum, TcpFlags};

use super::conn::{Cold, Conn, Flags, Place, State};
use super::group::FlowGroup;
use super::{announce, close, output, receive, send_queue};
use crate::context::Context;

/// Tells the application that a call failed.
pub(crate) fn fail(
    call: CallKind,
    handle: Handle,
    cookie: domain::Cookie,
    error: CallError,
    ctx: &mut Context<'_>,
) {
    ctx.event(EventRecord::Failed { call, handle, cookie, error });
}

#[cold]
fn fail_on(place: Place, conn: &Conn, call: CallKind, error: CallError, ctx: &mut Context<'_>) {
    fail(call, conn.handle(place), conn.cookie, error, ctx);
}

/// `accept`.
pub(crate) fn accept(
    group: &mut FlowGroup,
    slot: u32,
    cookie: domain::Cookie,
    ctx: &mut Context<'_>,
) {
    let (place, conn, _) = group.at(slot);
    if conn.flags.has(Flags::ACCEPTED) || !conn.state.is_synchronized() {
        return fail_on(place, conn, CallKind::Accept, CallError::BadState, ctx);
    }
    conn.flags.set(Flags::ACCEPTED);
    conn.cookie = cookie;
    let local_port = conn.flow.local_port();
    ctx.count_backlog(&mut group.backlogs, local_port, |backlog| backlog.unaccepted -= 1);
    receive::deliver(group, slot, ctx);
}

/// `sendv`: `payloads` are the staged buffers with their checksums, each at most a frame's worth.
pub(crate) fn sendv(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    payloads: impl Iterator<Item = (Mbuf, Sum)>,
    ctx: &mut Context<'_>,
) {
    if !conn.state.may_send() || !conn.flags.has(Flags::ACCEPTED) {
        payloads.for_each(|(mbuf, _)| ctx.pool.free(mbuf));
        return fail_on(place, conn, CallKind::Sendv, CallError::BadState, ctx);
    }
    let mut credit = conn.credit();
    let (mut accepted, mut trimmed) = (0, false);
    let mut payloads = payloads.peekable();
    while let Some((mut mbuf, mut sum)) = payloads.next() {
        if trimmed || credit == 0 || mbuf.is_empty() {
            trimmed |= !mbuf.is_empty();
            ctx.pool.free(mbuf);
            continue;
        }
        if mbuf.len() as u32 > credit {
            mbuf.truncate(credit as usize);
            sum = Sum::of(mbuf.bytes());
            trimmed = true;
        }
        credit -= mbuf.len() as u32;
        accepted += mbuf.len() as u32;
        // A message's last segment asks for its delivery. One that used all of the credit hardly ends a message, and is
        // filled up where it is short.
        let is_full = mbuf.len() >= conn.mss.into();
        let is_last = if credit == 0 { is_full } else { payloads.peek().is_none() };
        let flags = if is_last { TcpFlags::PSH } else { TcpFlags::NONE };
        send_queue::enqueue(place, conn, cold, mbuf, flags, sum, ctx);
    }
    if trimmed {
        fail_on(place, conn, CallKind::Sendv, CallError::Trimmed { accepted }, ctx);
    }
}

/// `recv_done`: frees buffers and opens the window.
pub(crate) fn recv_done(
    place: Place,
    conn: &mut Conn,
    cold: &mut Cold,
    bytes: u32,
    ctx: &mut Context<'_>,
) {
    if bytes > conn.rcv_used {
        return fail_on(place, conn, CallKind::RecvDone, CallError::TooMuch, ctx);
    }
    conn.rcv_used -= bytes;
    if conn.flags.has(Flags::HELD) {
        receive::trim_held(place, conn, cold, ctx);
    }
    if conn.state.may_receive() && announce::window_update_due(conn, cold, ctx) {
        conn.flags.set(Flags::ACK_NOW);
        output::note_pending(conn, place, ctx);
    }
}

/// `shutdown`.
pub(crate) fn shutdown(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let (place, conn, _) = group.at(slot);
    match conn.state {
        State::Established | State::CloseWait if conn.flags.has(Flags::ACCEPTED) => {
            close::shutdown(group, slot, ctx);
        }
        _ => fail_on(place, conn, CallKind::Shutdown, CallError::BadState, ctx),
    }
}

/// `close`.
pub(crate) fn close(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let (place, conn, _) = group.at(slot);
    if !conn.flags.has(Flags::ACCEPTED) {
        return abort(group, slot, ctx);
    }
    if conn.flags.has(Flags::CLOSED) {
        return fail_on(place, conn, CallKind::Close, CallError::BadState, ctx);
    }
    close::close(group, slot, ctx);
}

/// `abort`.
pub(crate) fn abort(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    close::abort(group, slot, DeadReason::Aborted, ctx);
}
