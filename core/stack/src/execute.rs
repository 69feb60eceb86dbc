//! Step 4: the array of batched system calls, call by call (IX Table II).

use alloc::vec::Drain;

use domain::{
    CallError, CallKind, CallRecord, ConnectError, Cookie, EventRecord, Handle, LocalEndpoint,
    Staged,
};
use mem::Mbuf;
use wire::{Endpoint, FlowKey, Sum};

use crate::config::NoSource;
use crate::context::Context;
use crate::groups::{Groups, group_mut, resolve};
use crate::pairs::Pair;
use crate::policy::{Direction, Transport};
use crate::shared::Shared;
use crate::tcp::conn::Place;
use crate::tcp::group::FlowGroup;
use crate::tcp::{calls, close, connect, info, predicted, receive};
use crate::{again, udp};

/// Whether a flow group is one that another core owns, or that is on its way.
#[inline]
fn is_away(groups: &Groups, handle: Handle) -> bool {
    groups.get(handle.group() as usize).is_some_and(Option::is_none)
}

/// What comes with the records of a batch.
pub(crate) struct Batch<'a> {
    /// Staged payloads, in the order of the calls that consume them.
    pub payloads: Drain<'a, (Mbuf, Sum)>,
    /// Received buffers that the application has seen, each with its connection (`None`: a datagram's),
    /// in the order of their events.
    pub buffers: Drain<'a, (Option<Handle>, Mbuf)>,
}

/// Executes `records`, in order, and settles the buffers. `ports` is where the search for an ephemeral
/// port goes on.
pub(crate) fn run(
    groups: &mut Groups,
    core: u8,
    ports: &mut u32,
    records: &[CallRecord],
    batch: &mut Batch<'_>,
    ctx: &mut Context<'_>,
) {
    // Chosen once, and not for each call.
    let reply = match ctx.shared.config.tx_checksum_offload {
        false => predicted::reply::<false>,
        true => predicted::reply::<true>,
    };
    let mut rest = records;
    while let [record, after @ ..] = rest {
        rest = after;
        // Nearly every call is one of two: a message of one buffer, and with it the request that it
        // answers given back. What is given back beside a reply finds its connection looked up.
        if let CallRecord::Sendv { handle, staged: Staged { count: 1, .. } } = *record
            && let Some((place, conn, cold)) = resolve(groups, handle)
            && let Some((mbuf, sum)) = batch.payloads.next()
        {
            let mut given_back = 0;
            if let [CallRecord::RecvDone { handle: same, bytes }, after @ ..] = rest
                && *same == handle
            {
                (given_back, rest) = (*bytes, after);
            }
            let is_settled = reply(place, conn, cold, (mbuf, sum), given_back, ctx);
            // An application that answers in the order of its events has its buffers settled on
            // the way, with the connection at hand.
            if is_settled
                && let Some((Some(of), _)) = batch.buffers.as_slice().first()
                && *of == handle
                && let Some((_, mbuf)) = batch.buffers.next()
            {
                ctx.pool.free(mbuf);
            }
        } else {
            one(groups, core, ports, record, &mut batch.payloads, ctx);
        }
    }
    settle(groups, &mut batch.buffers, ctx);
}

/// Asks for the connections of a batch's calls: those that the application speaks to by itself are in no
/// cache where there are many.
#[inline(never)]
pub(crate) fn prefetch(groups: &mut Groups, records: &[CallRecord]) {
    for record in records {
        if let CallRecord::Sendv { handle, .. } = *record
            && let Some(group) = group_mut(groups, handle.group())
        {
            group.prefetch_if_there(handle.slot());
        }
    }
}

/// Settles the buffers that are left: after all calls, as one of the last may have given back what the
/// first event brought.
fn settle(
    groups: &mut Groups,
    buffers: &mut Drain<'_, (Option<Handle>, Mbuf)>,
    ctx: &mut Context<'_>,
) {
    for (handle, mbuf) in buffers {
        match handle.and_then(|handle| resolve(groups, handle)) {
            Some((place, conn, cold)) => receive::settle(place, conn, cold, mbuf, ctx),
            None => ctx.pool.free(mbuf),
        }
    }
}

/// Any call.
#[inline(never)]
fn one(
    groups: &mut Groups,
    core: u8,
    ports: &mut u32,
    record: &CallRecord,
    payloads: &mut Drain<'_, (Mbuf, Sum)>,
    ctx: &mut Context<'_>,
) {
    if let Some(handle) = record.connection()
        && is_away(groups, handle)
    {
        return carry(record, payloads, ctx);
    }
    match *record {
        CallRecord::Sendv { handle, staged: Staged { count, .. } } => {
            let payloads = payloads.take(count as usize);
            match resolve(groups, handle) {
                Some((place, conn, cold)) => calls::sendv(place, conn, cold, payloads, ctx),
                None => {
                    payloads.for_each(|(mbuf, _)| ctx.pool.free(mbuf));
                    stale(CallKind::Sendv, handle, ctx);
                }
            }
        }
        // The domain has told the bytes themselves: there are no places on this side of it.
        CallRecord::SendvPlaced { handle, .. } => {
            calls::fail(CallKind::Sendv, handle, Cookie(0), CallError::Unsendable, ctx);
        }
        CallRecord::RecvDone { handle, bytes } => {
            // Of a connection that is gone it is the usual race with the peer.
            if let Some((place, conn, cold)) = resolve(groups, handle) {
                calls::recv_done(place, conn, cold, bytes, ctx);
            }
        }
        CallRecord::UdpSendv { local, peer, staged: Staged { count, .. } } => {
            udp::send(local, peer, payloads.take(count as usize), ctx);
        }
        CallRecord::Connect { cookie, local, peer } => {
            connect(groups, core, ports, cookie, (local, peer), ctx);
        }
        CallRecord::Listen { .. } | CallRecord::Unlisten { .. } => change_port(record, ctx),
        CallRecord::Inform { handle } => match resolve(groups, handle) {
            Some((place, conn, cold)) => info::inform(place, conn, cold, ctx),
            None => stale(CallKind::Inform, handle, ctx),
        },
        CallRecord::Accept { handle, cookie } => match place_of(groups, handle) {
            Some((group, slot)) => calls::accept(group, slot, cookie, ctx),
            None => stale(CallKind::Accept, handle, ctx),
        },
        // Of a connection that is gone these too are the usual race: `Dead` was told, or is in the
        // same batch.
        CallRecord::Again { handle } => again::note(groups, handle, ctx),
        CallRecord::Shutdown { handle } => {
            if let Some((group, slot)) = place_of(groups, handle) {
                calls::shutdown(group, slot, ctx);
            }
        }
        CallRecord::Close { handle } => {
            if let Some((group, slot)) = place_of(groups, handle) {
                calls::close(group, slot, ctx);
            }
        }
        CallRecord::Abort { handle } => {
            if let Some((group, slot)) = place_of(groups, handle) {
                calls::abort(group, slot, ctx);
            }
        }
    }
}

/// Opens a port, with a backlog, or closes it: what it has not handed over ends in
/// [`unlisten::look`](crate::tcp::unlisten::look).
fn change_port(record: &CallRecord, ctx: &mut Context<'_>) {
    let (cookie, transport, port, backlog) = match *record {
        CallRecord::Listen { cookie, transport, port, backlog } => {
            (cookie, transport, port, Some(backlog))
        }
        CallRecord::Unlisten { cookie, transport, port } => (cookie, transport, port, None),
        _ => return,
    };
    let (shared, nothing) = (ctx.shared, Handle::from_bits(u64::MAX));
    let ports = shared.ports(transport);
    let call = if backlog.is_some() { CallKind::Listen } else { CallKind::Unlisten };
    let is_allowed = shared.may_open(transport, port);
    let is_done = is_allowed
        && match backlog {
            Some(backlog) => ports.open(port, backlog),
            None => ports.close(port),
        };
    match (is_done, call) {
        (true, CallKind::Listen) => ctx.event(EventRecord::Listening { cookie }),
        (true, _) => {}
        (false, _) => {
            let error = if is_allowed { CallError::BadState } else { CallError::Forbidden };
            calls::fail(call, nothing, cookie, error, ctx);
        }
    }
}

/// Opens a connection to a peer, from an address and a port that were given or are chosen here.
#[inline(never)]
fn connect(
    groups: &mut Groups,
    core: u8,
    ports: &mut u32,
    cookie: Cookie,
    (from, peer): (LocalEndpoint, Endpoint),
    ctx: &mut Context<'_>,
) {
    // RFC 9293 §3.9.2.3, MUST-46: no connection leads to a group of hosts, or to this one.
    let config = &ctx.shared.config;
    let is_host = !peer.addr.is_martian() && !config.is_own(peer.addr);
    let local = match config.named_source(from, peer.addr) {
        Ok(local) if is_host => local,
        Err(NoSource::BadAddress) if is_host => {
            ctx.stats.bad_local_addresses += 1;
            let error = ConnectError::BadAddress;
            return ctx.event(EventRecord::ConnectFailed { cookie, error });
        }
        _ => {
            let error = ConnectError::Unreachable;
            return ctx.event(EventRecord::ConnectFailed { cookie, error });
        }
    };
    if !ctx.shared.access.permits(Direction::Out, Transport::Tcp, peer, from.port(), ctx.now) {
        ctx.stats.policy_denied_out += 1;
        return ctx.event(EventRecord::ConnectFailed { cookie, error: ConnectError::Forbidden });
    }
    let (tick, ticks) = (ctx.tick, &ctx.shared.ticks);
    let addresses = Pair { local, remote: peer.addr };
    let pair = ctx.pair_of(addresses);
    let pairs = &*ctx.pairs;
    let in_use = |group, hash, port| {
        let flow = FlowKey::new(pairs.known(group, pair), peer.port, port);
        group_mut(groups, group).is_none_or(|group| {
            group.half_open.find(hash, flow).is_some()
                || group
                    .lookup(hash, flow)
                    .is_some_and(|slot| !close::is_replaceable(group, slot, tick, ticks))
        })
    };
    let chosen = match from.port() {
        port @ 1.. => connect::given_port(ctx.shared, addresses, peer.port, port, in_use),
        0 => connect::choose_port(ctx.shared, core, addresses, peer.port, ports, in_use),
    };
    match chosen {
        Some((port, hash)) => {
            if let Some(group) = group_mut(groups, Shared::group_of(hash)) {
                let pair = ctx.pairs.known(group.index, pair);
                connect::open(group, hash, FlowKey::new(pair, peer.port, port), cookie, ctx);
            }
        }
        None => {
            ctx.event(EventRecord::ConnectFailed { cookie, error: ConnectError::NoPort });
        }
    }
}

/// Puts a call aside that another core is to execute.
#[cold]
fn carry(record: &CallRecord, payloads: &mut Drain<'_, (Mbuf, Sum)>, ctx: &mut Context<'_>) {
    let elsewhere = &mut ctx.out.elsewhere;
    if let CallRecord::Sendv { staged: Staged { count, .. }, .. } = *record {
        elsewhere.payloads.extend(payloads.take(count as usize));
    }
    elsewhere.records.push(*record);
}

fn place_of(groups: &mut Groups, handle: Handle) -> Option<(&mut FlowGroup, u32)> {
    let group = group_mut(groups, handle.group())?;
    let (Place { slot, .. }, ..) = group.resolve(handle)?;
    Some((group, slot))
}

/// A handle of a connection that is gone, where the application must hear that nothing was done.
#[cold]
fn stale(call: CallKind, handle: Handle, ctx: &mut Context<'_>) {
    calls::fail(call, handle, Cookie(0), CallError::BadHandle, ctx);
}
