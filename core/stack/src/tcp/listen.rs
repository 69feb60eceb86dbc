//! Passive open (RFC 9293 §3.10.7.2).

use mem::Mbuf;
use wire::{SeqNumber, TcpFlags};

use super::fields::{Ends, Segment};
use super::group::FlowGroup;
use super::half_open::{Answered, Outcome};
use super::handshake::Handshake;
use super::reset::send_reset;
use super::{cookie, ecn, half_open};
use crate::config::Ecn;
use crate::context::Context;
use crate::policy::{Direction, Transport};

/// Between the numbers of an old connection and those of the one that takes its place out of
/// TIME-WAIT: more than a window without scale.
const REUSE_GAP: u32 = 1 << 17;

/// A segment for which there is no connection, not even a half-open one.
#[cold]
pub(crate) fn arrive(
    group: &mut FlowGroup,
    segment: &Segment,
    mbuf: Mbuf,
    ctx: &mut Context<'_>,
) -> Outcome {
    let is_ack = segment.flags.contains(TcpFlags::ACK)
        && !segment.flags.intersects(TcpFlags::SYN.union(TcpFlags::RST));
    if is_ack && let Some(handshake) = cookie_of(group, segment, ctx) {
        if half_open::can_establish(group, segment, ctx) {
            return half_open::establish(group, segment, &handshake, Answered::Unknown, mbuf, ctx);
        }
        // The peer takes the connection for open, and will send the last step again with its data.
        ctx.pool.free(mbuf);
        return Outcome::Done;
    }
    ctx.pool.free(mbuf);
    // What is sent again may have overtaken the acknowledgment of a cookie: a reset would end a connection that its peer
    // takes for open.
    let is_early = is_ack && segment.is_sent_again() && may_be_cookie(group, segment, ctx);
    if !segment.flags.contains(TcpFlags::RST) && !is_early {
        open(group, segment, None, ctx);
    }
    Outcome::Done
}

/// Whether a cookie may still come back to the port that a segment is for.
fn may_be_cookie(group: &FlowGroup, segment: &Segment, ctx: &Context<'_>) -> bool {
    group.cookie_made_at.is_some_and(|made| cookie::may_come_back(made, ctx.now))
        && !ctx.census.leaving
        && ctx.shared.unaccepted_most(segment.flow.local_port()).is_some()
}

/// The handshake that a segment completes which acknowledges a cookie. They are looked for only while one may come back.
fn cookie_of(group: &FlowGroup, segment: &Segment, ctx: &Context<'_>) -> Option<Handshake> {
    let may_be_one = may_be_cookie(group, segment, ctx);
    let ends = ctx.ends(segment.flow);
    let unbaked = || cookie::unbake(segment, ends, ctx.now, &ctx.shared.isn);
    let mut handshake = may_be_one.then(unbaked)??;
    // The peer may have changed what it echoes.
    handshake.ecn &= ctx.shared.config.ecn != Ecn::Off;
    // A guess has never been asked.
    let (peer, port) = (ends.remote, ends.local.port);
    let access = &ctx.shared.access;
    (ctx.shared.config.next_hop(peer.addr).is_some()
        && access.permits(Direction::In, Transport::Tcp, peer, port, ctx.now))
    .then_some(handshake)
}

/// Answers a SYN, and resets or drops what is none. `before`: the last number that an earlier connection between the same ends used;
/// a new one begins beyond it (RFC 9293 §3.6.1).
#[cold]
pub(crate) fn open(
    group: &mut FlowGroup,
    segment: &Segment,
    before: Option<SeqNumber>,
    ctx: &mut Context<'_>,
) {
    let ends = ctx.ends(segment.flow);
    let (peer, port) = (ends.remote, ends.local.port);
    let opens = segment.flags.contains(TcpFlags::SYN)
        && !segment.flags.intersects(TcpFlags::ACK.union(TcpFlags::FIN));
    let open_port = ctx.shared.unaccepted_most(port).filter(|_| !ctx.census.leaving);
    let Some(most) = open_port.filter(|_| opens) else {
        // An open port drops what neither opens nor acknowledges (RFC 9293 §3.10.7.2).
        if open_port.is_none() || segment.flags.contains(TcpFlags::ACK) {
            send_reset(segment, ctx);
        }
        return;
    };
    // Before there is a connection: one that the policy denies has no handle that could be guessed.
    if !ctx.shared.access.permits(Direction::In, Transport::Tcp, peer, port, ctx.now) {
        ctx.stats.policy_denied_in += 1;
        return send_reset(segment, ctx);
    }
    let config = &ctx.shared.config;
    let backlog = ctx.backlog(port);
    if config.next_hop(peer.addr).is_none()
        || backlog.unaccepted >= most
        || group.backlogs.is_over(port, &ctx.shared.tcp_ports)
        || ctx.census.connections >= config.max_connections
    {
        // What has no way back is not begun, nor what the last step of the handshake would find full, or waiting for the
        // connections of the port's last opening to end.
        ctx.stats.tcp_syn_dropped += 1;
        return;
    }
    let iss = initial_number(before, ends, ctx);
    let mut handshake = Handshake::of_syn(segment, iss, ecn::is_granted(segment.flags, config));
    if backlog.half_open < config.backlog {
        return half_open::open(group, segment, handshake, ctx);
    }
    group.cookie_made_at = Some(ctx.now);
    let now = (ctx.now, ctx.timestamp());
    let timestamp = cookie::bake(&mut handshake, ends, now, &ctx.shared.isn);
    let is_sent = half_open::syn_ack(&handshake, segment.flow, timestamp, ctx);
    ctx.stats.tcp_cookies_out += u64::from(is_sent);
}

/// The initial sequence number of a connection that begins now. `before`: see [`open`].
pub(crate) fn initial_number(
    before: Option<SeqNumber>,
    Ends { local, remote }: Ends,
    ctx: &Context<'_>,
) -> SeqNumber {
    let number = ctx.shared.isn.generate(ctx.now, local, remote);
    // The clock behind the numbers is slower than a fast connection.
    before.map_or(number, |before| number.max(before + REUSE_GAP))
}
